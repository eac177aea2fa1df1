#!/usr/bin/env python
"""How long does a large results folder take to load and to report, and how much memory?

Measures one cell on the simulator, stores copies under other ids and temperatures, keeps their derived tables
as a measurement does, and times each table.

    python scripts/scale.py FOLDER --cells 2000 --observations 1000000 --report
    python scripts/scale.py FOLDER --report --derive  # as if no tables had been kept
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.cli.compose import compose_cells
from harness.config.store import register_schemas
from harness.findings.sightings import TABLE as SIGHTINGS
from harness.reports.build import write_report
from harness.reports.sweep import Sweep
from harness.results import ResultStore, digest, load
from harness.results.cell_folder import OBSERVATIONS_FILE, cell_stamp
from harness.results.derived import TABLES
from harness.results.digest import DIGEST_FILE, read_digest, write_digest
from harness.results.observation_table import write_table
from harness.runner.cell import measure_cell
from harness.runner.plan import plan_cell
from harness.runner.progress import SweepProgress
from harness.runner.sessions import SessionPool

NUM_VARIANTS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="results root; FOLDER/scale is written unless it is there")
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--observations", type=int, default=1_000_000)
    parser.add_argument("--report", action="store_true", help="render the report too")
    parser.add_argument("--derive", action="store_true", help="don't use kept tables")
    options = parser.parse_args()
    path = options.folder / "scale"
    if not path.is_dir():
        timed("write", lambda: write(options.folder, options.cells, options.observations))
        return
    if options.derive:
        digest.code_stamp = lambda: None
    started = time.perf_counter()
    results = timed("load", lambda: load(path))
    if options.report:
        timed("report", lambda: write_report(Sweep(results), options.folder / "report"))
        print(f"{'load and report':<20}{time.perf_counter() - started:8.2f} s")
    else:
        timed("summary", results.summary)
        timed("per_position", results.per_position)
        timed("by_task", results.by_task)
        timed("greedy_agreement", results.greedy_agreement)
    print(f"{'peak memory':<20}{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:8.2f} GiB")


def timed(name: str, work: Callable[[], Any]) -> Any:
    started, cpu = time.perf_counter(), time.process_time()
    found = work()
    print(
        f"{name:<20}{time.perf_counter() - started:8.2f} s, {time.process_time() - cpu:8.2f} s of CPU",
        flush=True,
    )
    return found


def write(root: Path, num_cells: int, num_observations: int) -> None:
    """One measured cell, copied; every copy is a cell of its own."""
    per_variant = max(2, round(num_observations / num_cells / NUM_VARIANTS))
    prompts, repeats = min(per_variant, 20), max(1, round(per_variant / 20))
    register_schemas()
    (config,) = compose_cells(
        [
            "backend=simulator",
            "name=scale",
            "method.k=[1,2,4,6]",
            f"workload.num_prompts={prompts}",
            f"measure.max_repeats={repeats}",
            f"measure.min_repeats={repeats}",
            "measure.max_time_s=1e9",
        ]
    )
    store = ResultStore(root, "scale")
    plan = plan_cell(config)
    with SweepProgress() as progress:
        pool = SessionPool()
        measure_cell(plan, store=store, pool=pool, progress=progress)
        pool.close()
    cell = store.load_cell(plan.cell_id)
    assert cell is not None
    measured = store.path / plan.cell_id
    kept = read_digest(measured / DIGEST_FILE, stamp=cell_stamp(measured))
    assert kept is not None
    for number in range(1, num_cells):
        name = f"{number:012x}"
        record = replace(
            cell.record, cell_id=name, facts={**cell.record.facts, "temperature": number / num_cells}
        )
        store.open_cell(record)
        folder = store.path / name
        write_table(folder / OBSERVATIONS_FILE, renamed(cell.table, name))
        stamp = cell_stamp(folder)
        assert stamp is not None
        # the same observations have the same tables
        tables = {of: renamed(kept[of], name) for of in [*TABLES, SIGHTINGS]}
        write_digest(folder / DIGEST_FILE, tables, stamp=stamp)


def renamed(table: pa.Table, cell_id: str) -> pa.Table:
    """Rows of one cell as rows of another."""
    if "cell_id" not in table.schema.names:
        return table
    at = table.schema.get_field_index("cell_id")
    field = table.schema.field(at)
    return table.set_column(at, field, pa.array([cell_id] * table.num_rows, field.type))


if __name__ == "__main__":
    main()
