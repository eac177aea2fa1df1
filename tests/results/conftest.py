from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.records import CellRecord, Observation, Variant
from harness.results import Results, ResultStore, load

sys.path.insert(0, str(Path(__file__).parents[1]))

from synthetic_results import write_synthetic_results


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Three temperatures, the baseline and k 1 to 10, 16 prompts of 8 tasks, two repeats."""
    return load(write_synthetic_results(tmp_path_factory.mktemp("results")))


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path, "run")


@pytest.fixture
def make_record() -> Callable[..., CellRecord]:
    """A record of one cell with the baseline and a drafter at the given ks."""

    def make(*ks: int, cell_id: str = "c0", **facts: Any) -> CellRecord:
        variants = [Variant("autoregressive"), *(Variant("ngram", k) for k in ks)]
        rows = [
            {
                "variant_id": variant.variant_id,
                "method": variant.method,
                "k": variant.k,
                "drafter": variant.drafter,
                "options": dict(variant.options),
                "lossless": variant.lossless,
                "is_baseline": variant.is_baseline,
                "status": "ok",
                "error": None,
                "applied": {"k": variant.k},
            }
            for variant in variants
        ]
        known = {"backend": "native", "temperature": 0.0, "batch_size": 1, "num_prompts": 2}
        return CellRecord(cell_id=cell_id, name="run", status="ok", facts=known | facts, variants=rows)

    return make


@pytest.fixture
def make_observation() -> Callable[..., Observation]:
    """An ok baseline observation of 5 tokens in 0.1 + 0.4 s; keywords replace any attribute."""

    def make(variant_id: str = "autoregressive", prompt_id: str = "p0", **values: Any) -> Observation:
        fields: dict[str, Any] = {
            "cell_id": "c0",
            "phase": "measure",
            "repeat": 0,
            "block": 0,
            "order": 0,
            "task": "chat",
            "seed": 7,
            "status": "ok",
            "started_s": 0.0,
            "trial_s": 0.6,
            "num_prompt_tokens": 12,
            "num_output_tokens": 5,
            "finish_reason": "length",
            "ttft_s": 0.1,
            "decode_s": 0.4,
            "total_s": 0.5,
            "num_target_forwards": 5,
            "last_step_truncated": False,
            "step_proposed": [0, 0, 0, 0],
            "step_accepted": [0, 0, 0, 0],
            "step_emitted": [1, 1, 1, 1],
            "step_draft_s": [0.0, 0.0, 0.0, 0.0],
            "step_verify_s": [0.1, 0.1, 0.1, 0.1],
            "peak_memory_bytes": 1000,
            "output_tokens": [11, 12, 13, 14, 15],
        }
        return Observation(variant_id=variant_id, prompt_id=prompt_id, **(fields | values))

    return make
