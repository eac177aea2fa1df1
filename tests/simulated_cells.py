"""Cells on the simulator, measured in this process: configuration in, loaded results out."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

from harness.config.schema import (
    BackendConfig,
    HarnessConfig,
    MeasureConfig,
    PairConfig,
    SimulatorConfig,
    WorkloadConfig,
)
from harness.config.validate import validate
from harness.results import load
from harness.results.results import Results
from harness.results.store import ResultStore
from harness.runner.cell import measure_cell
from harness.runner.plan import plan_cell
from harness.runner.progress import SweepProgress
from harness.runner.sessions import SessionPool


def simulated(**changes: Any) -> HarnessConfig:
    """A cell without noise, with values replaced: `simulator__step_s=0.1`."""
    made = HarnessConfig(
        backend=BackendConfig("simulator"),
        pair=PairConfig("imagined", "path:/no-target", "path:/no-drafter"),
        workload=WorkloadConfig(ignore_eos=True),
        measure=MeasureConfig(warmup_prompts=1, max_repeats=1, max_time_s=1e6),
        simulator=SimulatorConfig(),
    )
    for name, value in changes.items():
        *parents, leaf = name.split("__")
        setattr(attrgetter(".".join(parents))(made) if parents else made, leaf, value)
    validate(made)
    return made


def measured(folder: Path, *configs: HarnessConfig) -> Results:
    """Measure cells into a folder and read them back."""
    store = ResultStore(folder, "simulated")
    with SweepProgress() as progress:
        pool = SessionPool()
        for config in configs:
            measure_cell(plan_cell(config), store=store, pool=pool, progress=progress)
        pool.close()
    return load(store.path)
