from __future__ import annotations

from typing import Any

import pytest

from harness.cli.compose import compose_cells
from harness.config.schema import HarnessConfig
from harness.config.store import register_schemas
from harness.config.variants import variants_of
from harness.errors import ConfigError


def compose(*overrides: str) -> list[HarnessConfig]:
    register_schemas()
    return compose_cells(list(overrides))


def test_the_sweep_over_engines_has_a_cell_for_each() -> None:
    cells = compose("+sweep=engines")
    assert [cell.backend.name for cell in cells] == ["native", "transformers", "vllm"]
    assert [cell.vllm is not None for cell in cells] == [False, False, True]
    assert {tuple(v.variant_id for v in variants_of(cell)) for cell in cells} == {
        ("autoregressive", "draft_model-k1", "draft_model-k3", "draft_model-k5")
    }


def test_the_sweep_on_vllm_has_a_cell_for_each_temperature() -> None:
    cells = compose("+sweep=vllm_k_temperature")
    assert [(cell.backend.name, cell.sampling.temperature) for cell in cells] == [
        ("vllm", 0.0),
        ("vllm", 0.7),
        ("vllm", 1.0),
    ]
    (cell, *_) = compose("backend=vllm", "+sweep=k_temperature", "method.k=[1,3,5]")
    assert (cell.backend.name, cell.method.k) == ("vllm", [1, 3, 5])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["backend.name=vllm"], "vllm: must be set"),
        (["backend=vllm", "backend.name=native"], "is for vLLM alone"),
        (["vllm.kv_cache_gib=2"], "is for backend=vllm alone"),
        (["backend=vllm", "vllm.tensor_parallel_size=0"], "must be at least 1"),
        (["backend=vllm", "vllm.start_timeout_s=0"], "must be above 0"),
        (["backend=vllm", "vllm.gpu_memory_utilization=1.5"], "must lie above 0"),
        (["backend=vllm", "vllm.rejection_sample_method=guess"], "isn't known"),
        (["backend=vllm", "vllm.distributed_executor_backend=slurm"], "isn't known"),
        (["backend=vllm", "quantization.target=int3"], "isn't known"),
        (["quantization.target=awq"], "isn't known"),
        (["method.k_by_batch=[[1,4,5]]"], "for backend=vllm alone"),
        (["backend=vllm", "method.k_by_batch=[[4,1,5]]"], "must be a list of"),
        (["backend=vllm", "method.k_by_batch=[[1,4,3]]"], "largest k of k_by_batch"),
    ],
)
def test_what_an_engine_cannot_take_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(*overrides)


def test_a_number_of_drafts_by_load_is_a_variant_with_a_name_of_its_own() -> None:
    (config,) = compose("backend=vllm", "method.k_by_batch=[[1,4,5],[5,16,2]]")
    names = [variant.variant_id for variant in variants_of(config)]
    assert names == ["autoregressive", "draft_model-k5-by-batch"]


def test_synthetic_acceptance_is_not_lossless() -> None:
    options: list[Any] = ["backend=vllm", "vllm.rejection_sample_method=synthetic"]
    (config,) = compose(*options)
    assert [variant.lossless for variant in variants_of(config)] == [True, False]
