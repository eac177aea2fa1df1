"""Stored sweeps of several shapes: synthetic cells whose facts, methods or texts are then edited."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from synthetic_results import write_synthetic_results

from harness.results.observation_table import SCHEMA, read_table, write_table

HOSTILE = (
    "<script>alert('x')</script><img src=x onerror=alert(1)>"
    '$\\frac{1}{2}$ & "quoted" {{ 7 * 7 }} \x00\x1b[31m \u202eevil\u202c \u200f\u05e9\u05dc\u05d5\u05dd'
)
PRIVATE_PATH = "/home/somebody/projects/models/target"


def edit_record(cell: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = cell / "cell.json"
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))


def edit_observations(cell: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Rewrite every stored row by `change`; None drops it."""
    file = cell / "observations.parquet"
    table, merged = read_table(file)
    rows = [changed for row in table.to_pylist() if (changed := change(row)) is not None]
    write_table(file, pa.Table.from_pylist(rows, schema=SCHEMA), num_parts_merged=merged)


def cells_of(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/cell.json"))


def rename_method(cell: Path, ks: Iterable[int], method: str) -> None:
    names = {f"draft_model-k{k}": f"{method}-k{k}" for k in ks}

    def change(record: dict[str, Any]) -> None:
        for variant in record["variants"]:
            if variant["variant_id"] in names:
                variant |= {"method": method, "variant_id": names[variant["variant_id"]], "drafter": None}

    edit_record(cell, change)
    edit_observations(cell, lambda row: row | {"variant_id": names.get(row["variant_id"], row["variant_id"])})


def set_facts(cell: Path, **facts: Any) -> None:
    edit_record(cell, lambda record: record["facts"].update(facts))


def method_sweep(root: Path) -> Path:
    """One cell: a draft model at k 1, 3, 5 and an n-gram drafter at 2, 4."""
    folder = write_synthetic_results(root, "method", temperatures=(0.0,), ks=(1, 2, 3, 4, 5), num_prompts=8)
    rename_method(cells_of(folder)[0], (2, 4), "ngram")
    return folder


def workload_sweep(root: Path) -> Path:
    """Two workloads at two temperatures, a draft model and an n-gram drafter in each cell."""
    for seed, workload in enumerate(("chat", "code")):
        folder = write_synthetic_results(
            root, "workload", temperatures=(0.0, 1.0), ks=(1, 2, 3, 4), num_prompts=8, seed=seed
        )
        for cell in cells_of(folder):
            if cell.name.startswith(f"{seed:04x}"):
                set_facts(cell, workload=workload)
    for cell in cells_of(folder):
        rename_method(cell, (2, 4), "ngram")
    return folder


def single_cell(root: Path) -> Path:
    """One cell, one k, one task."""
    folder = write_synthetic_results(root, "single", temperatures=(0.7,), ks=(3,), num_prompts=6)
    edit_observations(cells_of(folder)[0], lambda row: row | {"task": "chat"})
    return folder


def without_steps(root: Path) -> Path:
    """A backend that can't tell its steps."""
    folder = write_synthetic_results(root, "server", temperatures=(0.0,), ks=(2, 4), num_prompts=6)
    names = [name for name in SCHEMA.names if name.startswith("step_")]
    missing = dict.fromkeys(names) | {"steps_missing_reason": "the server reports no steps"}
    edit_observations(cells_of(folder)[0], lambda row: row | missing)
    return folder


def all_failed(root: Path) -> Path:
    """A cell that failed before its first trial, with a traceback full of absolute paths."""
    folder = write_synthetic_results(root, "broken", temperatures=(0.0, 1.0), ks=(2,), num_prompts=6)
    cell = cells_of(folder)[0]
    trace = (
        "Traceback (most recent call last):\n"
        f'  File "{PRIVATE_PATH}/../harness/runner/cell.py", line 10, in run\n'
        '  File "/opt/env/lib/python3.11/site-packages/torch/nn/module.py", line 5, in call\n'
        f"OSError: {PRIVATE_PATH}/config.json: no such file"
    )

    def fail(record: dict[str, Any]) -> None:
        record |= {"status": "failed", "stop_reason": None, "measured_wall_s": None, "decode_wall_s": None}
        error = f"OSError: {PRIVATE_PATH}/config.json: no such file"
        record["failures"] = [
            {"stage": "load_target", "variant_id": None, "error": error, "traceback": trace}
        ]
        for variant in record["variants"]:
            variant |= {"status": "failed", "error": error}

    edit_record(cell, fail)
    edit_observations(cell, lambda _: None)
    return folder


def hostile(root: Path) -> Path:
    """HTML, template syntax, mathematics and control characters in every text that users supply."""
    folder = write_synthetic_results(root, "hostile", temperatures=(0.0, 1.0), ks=(1, 3), num_prompts=8)
    for cell in cells_of(folder):
        edit_record(cell, _poison_record)
        edit_observations(cell, _poison_row)
    return folder


def _poison_record(record: dict[str, Any]) -> None:
    record["name"] = HOSTILE
    record["facts"] |= {"target": f"path:{PRIVATE_PATH}{HOSTILE}", "workload": HOSTILE + "w" * 3000}
    record["environment"] |= {HOSTILE: HOSTILE, "hostname": "secret-machine", "python_path": PRIVATE_PATH}
    record["config"] |= {"target": f"path:{PRIVATE_PATH}", HOSTILE: HOSTILE}
    failure = {"stage": HOSTILE, "variant_id": HOSTILE, "error": HOSTILE * 200}
    record["failures"] = [failure | {"traceback": HOSTILE + "z" * 50_000}]
    record["cold_start"].append({"part": HOSTILE, "variant_id": None, "seconds": 1.0})
    record["variants"][1]["error"] = HOSTILE


def _poison_row(row: dict[str, Any]) -> dict[str, Any]:
    """Poison the texts, and let one variant's output differ from the baseline's, so that prompt ids show."""
    text = HOSTILE.replace("\x00", "")
    task = {"chat": text, "code": "x" * 500}.get(row["task"], row["task"])
    tokens = [1, 2, 3] if row["variant_id"] == "draft_model-k3" else row["output_tokens"]
    return row | {"prompt_id": row["prompt_id"] + text, "task": task, "output_tokens": tokens}


def baseline_only(root: Path) -> Path:
    """Nothing drafts, and nothing was timed before the measured phase."""
    folder = write_synthetic_results(root, "plain", temperatures=(0.0,), ks=(), num_prompts=6)
    edit_record(cells_of(folder)[0], lambda record: record.update(cold_start=[], environment={}, config={}))
    return folder


def nothing_measured(root: Path) -> Path:
    """A cell that failed before it had variants."""
    folder = write_synthetic_results(root, "dead", temperatures=(0.0,), ks=(2,), num_prompts=6)
    edit_record(cells_of(folder)[0], lambda record: record.update(status="failed", variants=[]))
    edit_observations(cells_of(folder)[0], lambda _: None)
    return folder


SCENES = {
    "methods": method_sweep,
    "workloads": workload_sweep,
    "single": single_cell,
    "without-steps": without_steps,
    "baseline-only": baseline_only,
    "nothing-measured": nothing_measured,
    "failed": all_failed,
    "hostile": hostile,
}
