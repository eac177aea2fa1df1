"""Cells of many runs as series over time: the same experiment, measured again and again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness.errors import ResultFormatError
from harness.results.cell_folder import CELL_FILE
from harness.results.results import Results, load

HISTORY_METRICS = ("speedup", "acceptance_rate", "tokens_per_forward", "baseline_tok_per_s")
# What changes from commit to commit or follows from it, and doesn't make it another experiment.
_FREE_FACTS = frozenset({"backend_version", "target_revision"})
_KEYS = ["experiment", "variant_id"]


def history(paths: Sequence[Path]) -> pd.DataFrame:
    """One row per stored cell and variant of every run below the paths, in order of time.

    Cells are of one `experiment` if all their facts are equal but versions and revisions. A baseline's row
    holds its decode rate as `baseline_tok_per_s`, the others hold the remaining `HISTORY_METRICS`, each with
    `_low` and `_high` where there is an interval.

    Args:
        paths: folders of runs, or folders that hold some.

    Returns:
        Columns: `experiment`, `variant_id`, `is_baseline`, `started_at`, `run`, `code_version`, the facts of
        the cell, and the metrics.

    Raises:
        ResultFormatError: a path holds no run, or one can't be read.
    """
    frames = [_of_run(load(folder, every_cell=True)) for path in paths for folder in run_folders(path)]
    table = pd.concat(frames, ignore_index=True)
    # the same folder may be named twice
    table = table.drop_duplicates(["cell_id", "variant_id", "started_at"])
    return table.sort_values(["started_at", *_KEYS], kind="stable").reset_index(drop=True)


def run_folders(path: Path) -> list[Path]:
    """The runs at or directly below a path.

    Raises:
        ResultFormatError: there are none.
    """
    if any(path.glob(f"*/{CELL_FILE}")) or (path / CELL_FILE).is_file():
        return [path]
    found = sorted({file.parent.parent for file in path.glob(f"*/*/{CELL_FILE}")})
    if not found:
        raise ResultFormatError(
            f"{path}: no stored runs. Give folders of runs such as results/k_temperature, or one that "
            f"holds several."
        )
    return found


def _of_run(results: Results) -> pd.DataFrame:
    summary = results.summary()
    is_baseline = summary["is_baseline"].eq(True)
    cells = results.cells.set_index("cell_id")
    table = summary.assign(
        run=results.path.name,
        started_at=summary["cell_id"].map(cells["started_at"]),
        code_version=summary["cell_id"].map(_code_versions(results)),
        experiment=summary["cell_id"].map(_experiments(results)),
        num_measured_prompts=summary["num_prompts"],
    )
    for end in ("", "_low", "_high"):
        table[f"baseline_tok_per_s{end}"] = summary[f"decode_tok_per_s{end}"].where(is_baseline)
        table[f"speedup{end}"] = summary[f"speedup{end}"].where(~is_baseline)
        table[f"tokens_per_forward{end}"] = None if end else summary["tokens_per_forward"].where(~is_baseline)
    return table


def _experiments(results: Results) -> dict[str, str]:
    """A text per cell that is equal for cells whose measurements may be laid side by side."""
    names = sorted(set(results.fact_columns) - _FREE_FACTS)
    return {
        row["cell_id"]: json.dumps({name: row.get(name) for name in names}, sort_keys=True, default=str)
        for row in results.cells.to_dict("records")
    }


def _code_versions(results: Results) -> dict[str, str | None]:
    known = {cell_id: record.environment.get("code_version") for cell_id, record in results.records.items()}
    return {cell_id: None if code is None else str(code) for cell_id, code in known.items()}
