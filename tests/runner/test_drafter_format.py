"""What `quantization.drafter=auto` stands for."""

from __future__ import annotations

import pytest
import torch
from simulated_cells import simulated
from tiny_runs import TinyRun

from harness.engine.weights import runs_compiled
from harness.runner.plan import plan_cell


@pytest.mark.parametrize(("target", "chosen"), [("none", "int8"), ("int8", "int8"), ("int4", "int4")])
def test_drafters_get_few_bits_where_the_compiled_kernels_run(
    target: str, chosen: str, tiny: TinyRun
) -> None:
    compiled = runs_compiled(tiny.target, dtype=torch.bfloat16, device="cpu")
    changes = {"backend__dtype": "bfloat16", "quantization__target": target}
    plan = plan_cell(tiny.config(**changes, quantization__drafter="auto"))
    wanted = chosen if compiled else "none"
    assert plan.engine.drafter_quantization == plan.facts["drafter_quantization"] == wanted
    assert plan.cell_id == plan_cell(tiny.config(**changes, quantization__drafter=wanted)).cell_id


@pytest.mark.parametrize("chosen", ["none", "int4"])
def test_a_named_format_stays(chosen: str, tiny: TinyRun) -> None:
    plan = plan_cell(tiny.config(backend__dtype="bfloat16", quantization__drafter=chosen))
    assert plan.engine.drafter_quantization == chosen


def test_elsewhere_drafters_stay_as_they_are(tiny: TinyRun) -> None:
    assert plan_cell(tiny.config(backend__dtype="float32")).engine.drafter_quantization == "none"
    assert plan_cell(simulated()).facts["drafter_quantization"] == "none"
