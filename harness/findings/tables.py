"""The measured tables as rules read them: derived once, shared by all rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from harness.records import BASELINE_METHOD, CellRecord, Phase
from harness.results import Results
from harness.results.frames import rows_of

Row = Mapping[str, Any]
_TASK_COLUMNS = ["cell_id", "variant_id", "task", "acceptance_rate", "acceptance_rate_high", "num_prompts"]
_COUNTS = ("accepted", "tested")
_TRIAL = ["cell_id", "variant_id", "repeat", "block"]
# Facts that say how a cell was measured or follow from others, not what was measured.
_NOT_COMPARED = {"num_threads", "target_revision", "workload_sha256", "num_prompts", "context_tokens"}


class Tables:
    """Rows by topic."""

    def __init__(self, results: Results) -> None:
        """Wrap what was loaded."""
        self.results = results

    @cached_property
    def variants(self) -> Sequence[Row]:
        """Summary rows, one per cell and variant."""
        return self.results.summary_rows

    @property
    def drafting(self) -> list[Row]:
        """Those of them that draft."""
        return [row for row in self.variants if not row["is_baseline"]]

    @cached_property
    def methods(self) -> Mapping[tuple[str, str], Sequence[Row]]:
        """Drafting rows with a speedup by cell and method, by k."""
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.drafting:
            if value(row, "speedup") is not None:
                found.setdefault((row["cell_id"], row["method"]), []).append(row)
        return {key: sorted(rows, key=lambda row: float(row["k"])) for key, rows in found.items()}

    @cached_property
    def recommended(self) -> Mapping[tuple[str, str], Row]:
        """The summary row of the k to use, or of the fastest where none is, by cell and method."""
        best = {(row["cell_id"], row["method"]): row for row in rows_of(self.results.best_k())}
        found = {}
        for key, rows in self.methods.items():
            chosen = [row for row in rows if row["variant_id"] == best[key]["recommended_variant_id"]]
            found[key] = chosen[0] if chosen else max(rows, key=lambda row: float(row["speedup"]))
        return found

    @cached_property
    def tasks(self) -> Mapping[tuple[str, str], Sequence[Row]]:
        """Figures by task of the recommended variants, by cell and variant."""
        wanted = [(row["cell_id"], row["variant_id"]) for row in self.recommended.values()]
        tasks = self.results.figures("by_task")[_TASK_COLUMNS]
        tasks = tasks[pd.MultiIndex.from_frame(tasks[["cell_id", "variant_id"]]).isin(wanted)]
        found: dict[tuple[str, str], list[Row]] = {}
        for row in rows_of(tasks):
            found.setdefault((row["cell_id"], row["variant_id"]), []).append(row)
        return found

    @cached_property
    def agreement(self) -> Sequence[Row]:
        """Greedy output compared with the baseline's."""
        return rows_of(self.results.greedy_agreement())

    @property
    def records(self) -> Mapping[str, CellRecord]:
        """Whole records by cell id."""
        return self.results.records

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per measured trial.

        Columns: `cell_id`, `variant_id`, `repeat`, `block`, `is_baseline`, `prompt_id` (of its first prompt),
        `started_s`, `ttft_s`, `step_s` (median step), `num_steps`, `decode_s`, `s_per_token`, `accepted` and
        `tested` (drafted tokens up to the first rejection); NaN where unknown.
        """
        rows = self.results.measured
        known = [steps is not None for steps in rows["step_proposed"]]
        counted = rows.assign(
            accepted=[_sum(steps) for steps in rows["step_accepted"]],
            tested=[
                _tested(*pair) for pair in zip(rows["step_proposed"], rows["step_accepted"], strict=True)
            ],
            step_s=[
                _median_step_s(draft, verify) if has else np.nan
                for has, draft, verify in zip(known, rows["step_draft_s"], rows["step_verify_s"], strict=True)
            ],
            num_steps=[
                len(steps) if has else np.nan for has, steps in zip(known, rows["step_proposed"], strict=True)
            ],
            num_decoded_tokens=rows["num_output_tokens"] - 1,
        )
        grouped = counted.groupby(_TRIAL, sort=False)
        table = grouped.agg(
            is_baseline=("is_baseline", "first"),
            prompt_id=("prompt_id", "min"),
            started_s=("started_s", "first"),
            ttft_s=("ttft_s", "mean"),
            step_s=("step_s", "median"),
            num_steps=("num_steps", "max"),
            decode_s=("decode_s", "max"),
            summed_decode_s=("decode_s", "sum"),
            num_decoded_tokens=("num_decoded_tokens", "sum"),
            **{name: (name, "sum") for name in _COUNTS},
            **{f"{name}_known": (name, "count") for name in _COUNTS},
            num_sequences=("prompt_id", "size"),
        ).reset_index()
        # a sum of which a part is unknown is unknown
        for name in _COUNTS:
            table[name] = table[name].where(table.pop(f"{name}_known") == table["num_sequences"])
        tokens = table["num_decoded_tokens"].where(table["num_decoded_tokens"] > 0)
        return table.assign(s_per_token=table["summed_decode_s"] / tokens)

    @property
    def baseline_trials(self) -> pd.DataFrame:
        """Trials of the baselines."""
        return self.trials[self.trials["is_baseline"].eq(True)]

    def cells_along(self, fact: str) -> list[list[Row]]:
        """Groups of two or more cells that differ in one fact alone, each sorted by it."""
        cells = rows_of(self.results.cells)
        others = [
            name for name in self.results.fact_columns if name != fact and name.lower() not in _NOT_COMPARED
        ]
        groups: dict[tuple[str, ...], list[Row]] = {}
        for cell in cells:
            if cell.get(fact) is not None:
                groups.setdefault(tuple(str(cell.get(name)) for name in others), []).append(cell)
        spread = [group for group in groups.values() if len({str(cell[fact]) for cell in group}) > 1]
        return [sorted(group, key=lambda cell: _sort_key(cell[fact])) for group in spread]

    def baseline_id(self, cell_id: str) -> str:
        """Name of a cell's baseline."""
        of_cell = (row for row in self.variants if row["cell_id"] == cell_id)
        return next((str(row["variant_id"]) for row in of_cell if row["is_baseline"]), BASELINE_METHOD)

    def prompts(self, cell_id: str, phase: Phase) -> set[str]:
        """Ids of the prompts of a phase."""
        rows = self.results.observations
        return set(rows.loc[(rows["cell_id"] == cell_id) & (rows["phase"] == phase.value), "prompt_id"])


def value(row: Row, name: str) -> float | None:
    """A finite figure of a row, or None."""
    found = row.get(name)
    if found is None or isinstance(found, str | bool):
        return None
    return float(found) if math.isfinite(found) else None


def _sum(steps: Any) -> float:
    return np.nan if steps is None else float(np.sum(steps))


def _tested(proposed: Any, accepted: Any) -> float:
    if proposed is None or accepted is None:
        return np.nan
    return float(np.minimum(np.asarray(accepted) + 1, np.asarray(proposed)).sum())


def _median_step_s(draft_s: Any, verify_s: Any) -> float:
    if draft_s is None or verify_s is None or not len(verify_s):
        return np.nan
    return float(np.median(np.asarray(draft_s) + np.asarray(verify_s)))


def _sort_key(found: object) -> tuple[bool, float, str]:
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return (not is_number, float(found) if is_number else 0.0, str(found))  # type: ignore[arg-type]
