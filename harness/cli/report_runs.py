"""Several runs on one page: the gate says what may be compared, the report shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.gate.check import WHOLE, Check
from harness.gate.comparison import cell_key, cell_labels, compare
from harness.gate.settings import GateSettings, MetricSettings
from harness.records import CellRecord
from harness.reports.publish import publish
from harness.reports.runs import METRICS, Change, Compared, runs_page
from harness.results import Results

_Key = tuple[str, str]
"""Label of the cell, id of the variant."""


def write_runs(runs: Sequence[Results], out_dir: Path) -> Path:
    """Write the page that puts runs side by side, each compared with the first.

    Args:
        runs: two or more, loaded.
        out_dir: where `index.html` and its twins go.

    Returns:
        The path of the page.

    Raises:
        ResultFormatError: the observations of a run can't be read.
        StorageError: the page can't be written.
    """
    figures = [_figures(run, _labels(runs)) for run in runs]
    changes: dict[_Key, dict[tuple[int, str], Change]] = {}
    cautions: dict[str, None] = {}
    settings = _settings()
    for number, run in enumerate(runs[1:], 1):
        compared = compare(runs[0], run, settings)
        labels = _relabelled(runs, [runs[0], run])
        for check in compared.checks:
            key = (labels.get(check.cell, check.cell), check.variant)
            _add(changes, key, number, check)
        name = _names(runs)[number]
        cautions |= dict.fromkeys(f"{name}: {text}" for text in compared.cautions)
    rows = [
        Compared(
            key[0],
            {number: own[key] for number, own in enumerate(figures) if key in own},
            changes.get(key, {}) | changes.get((key[0], WHOLE), {}),
        )
        for key in dict.fromkeys(key for own in figures for key in own)
    ]
    return publish(runs_page(_names(runs), rows, list(cautions)), out_dir)


def _settings() -> GateSettings:
    # margins decide verdicts, which the page doesn't show
    return GateSettings(metrics={name: MetricSettings(margin=0.0, gated=True) for name in METRICS})


def _add(changes: dict[_Key, dict[tuple[int, str], Change]], key: _Key, number: int, check: Check) -> None:
    found = Change(check.change, check.low, check.high, check.is_difference, _reason(check))
    changes.setdefault(key, {})[number, check.metric] = found


def _reason(check: Check) -> str | None:
    return None if check.change is not None else check.reason


def _names(runs: Sequence[Results]) -> list[str]:
    """Names of the folders; equal ones get a number."""
    names = [run.path.resolve().name for run in runs]
    return [f"{name} ({place + 1})" if names.count(name) > 1 else name for place, name in enumerate(names)]


def _labels(runs: Sequence[Results]) -> dict[tuple[tuple[str, str], ...], str]:
    return cell_labels(_records(runs))


def _records(runs: Sequence[Results]) -> list[CellRecord]:
    return [record for run in runs for record in run.records.values()]


def _relabelled(runs: Sequence[Results], two: Sequence[Results]) -> dict[str, str]:
    """From a cell's label in a comparison of two runs to its label among all."""
    among_all = _labels(runs)
    return {label: among_all[key] for key, label in _labels(two).items()}


def _figures(
    run: Results, labels: Mapping[tuple[tuple[str, str], ...], str]
) -> dict[_Key, Mapping[str, object]]:
    cells = {cell_id: labels[cell_key(record)] for cell_id, record in run.records.items()}
    return {(cells[row["cell_id"]], str(row["variant_id"])): row for row in run.summary_rows}
