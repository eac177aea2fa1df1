"""How often the gate cries wolf on this machine's own noise: the same code compared with itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import binomtest

from harness.errors import ConfigError
from harness.gate.comparison import compare
from harness.gate.settings import GateSettings
from harness.gate.verdict import Verdict
from harness.records import Phase
from harness.results import Results, StoredCell

_FEWEST_REPEATS = 2


@dataclass(frozen=True, slots=True)
class Calibration:
    """Verdicts of comparisons in which nothing changed.

    Attributes:
        verdicts: how often each came.
        num_runs: stored runs they were made from; 1 means halves of one run.
    """

    verdicts: Counter[Verdict]
    num_runs: int

    @property
    def num_comparisons(self) -> int:
        """Comparisons in all."""
        return self.verdicts.total()

    def false_alarms(self) -> tuple[float, float, float]:
        """Share of comparisons with the verdict regression, and its 95% interval (Clopper and Pearson)."""
        found = binomtest(self.verdicts[Verdict.REGRESSION], self.num_comparisons)
        interval = found.proportion_ci(0.95)
        return float(found.statistic), float(interval.low), float(interval.high)


def calibrate(runs: Sequence[Results], settings: GateSettings, *, num_splits: int, seed: int) -> Calibration:
    """Compare runs of the same code with each other, or random halves of one run.

    The halves of one run hold one half of each block's repeats each. They share the run's slow drift, which
    two runs at different times don't: several runs are the harder test.

    Args:
        runs: of the same code on the same machine; each pair is compared in both directions.
        settings: of the gate.
        num_splits: of a single run.
        seed: of the splits.

    Raises:
        ConfigError: a single run has a block that was measured only once.
    """
    if len(runs) > 1:
        pairs: Iterator[tuple[Results, Results]] = (
            pair for two in combinations(runs, 2) for pair in (two, two[::-1])
        )
    else:
        rng = np.random.default_rng(seed)
        pairs = (_halves(runs[0], rng) for _ in range(num_splits))
    verdicts = Counter(compare(base, head, settings).verdict for base, head in pairs)
    return Calibration(verdicts, len(runs))


def _halves(run: Results, rng: np.random.Generator) -> tuple[Results, Results]:
    split = [_split_cell(cell, rng) for cell in run.stored]
    first, second = (Results(Path(name), [cells[side] for cells in split]) for side, name in enumerate("ab"))
    return first, second


def _split_cell(cell: StoredCell, rng: np.random.Generator) -> tuple[StoredCell, StoredCell]:
    """Deal the repeats of each block, all variants of it alike, to two halves of equal size."""
    measured = cell.table.filter(pc.equal(cell.table["phase"], Phase.MEASURE.value))
    frame = measured.select(["prompt_id", "repeat"]).to_pandas()
    halves = np.zeros(len(frame), dtype=np.int64)
    for prompt, rows in frame.groupby("prompt_id", sort=True):
        repeats = np.sort(rows["repeat"].unique())
        if len(repeats) < _FEWEST_REPEATS:
            raise ConfigError(
                "results",
                "must hold two repeats of every prompt to be split",
                f"prompt {prompt} of cell {cell.record.cell_id}",
                "Measure with measure.min_repeats=4, or give several runs.",
            )
        size = len(repeats) // 2
        drawn = rng.permutation(repeats)
        for half, chosen in ((1, drawn[:size]), (2, drawn[size : 2 * size])):
            halves[rows.index[rows["repeat"].isin(chosen)]] = half
    one, two = (
        # a record of its own: halves with equal times would look like a copied run
        StoredCell(replace(cell.record), measured.filter(pa.array(halves == half)), cell.problems)
        for half in (1, 2)
    )
    return one, two
