"""The lossless check on tiny real models: right engines pass, seeded mistakes don't."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import TinyRun, write_peaked_run
from torch import Tensor

from harness.backends.native import NativeSession
from harness.config.schema import HarnessConfig
from harness.config.variants import variants_of
from harness.engine import loop, verify
from harness.engine.drafters import independent
from harness.engine.loop import _Run
from harness.engine.verify import Proposal, Verdict
from harness.errors import UnsupportedError
from harness.records import CellRecord, Variant
from harness.results.store import ResultStore
from harness.runner import plan as planning
from harness.runner.cell import measure_cell
from harness.runner.plan import plan_cell
from harness.runner.progress import SweepProgress
from harness.runner.sessions import SessionPool

GREEDY = {
    "workload__max_output_tokens": 32,
    "workload__ignore_eos": True,
    # also on a busy machine
    "measure__max_time_s": 600.0,
    "measure__lossless__max_time_s": 600.0,
}
SAMPLED = {**GREEDY, "sampling__temperature": 1.0, "workload__max_output_tokens": 64}
NO_TIME = {"measure__lossless__max_time_s": 1e-9}
THRICE = {"measure__min_repeats": 3, "measure__max_repeats": 3}


@pytest.fixture
def tiny(tmp_path: Path, make_tiny_llama: Callable[..., Path]) -> TinyRun:
    return write_peaked_run(tmp_path, make_tiny_llama)


def measure(tiny: TinyRun, **changes: Any) -> CellRecord:
    plan = plan_cell(tiny.config(**changes))
    store, pool = ResultStore(tiny.folder / "results", "run"), SessionPool()
    with SweepProgress() as progress:
        return measure_cell(plan, store=store, pool=pool, progress=progress)


def verdicts(record: CellRecord) -> dict[str, str]:
    return {row["variant_id"]: row["verdict"] for row in record.lossless}


def row_of(record: CellRecord, variant_id: str = "draft_model-k2") -> dict[str, Any]:
    return next(row for row in record.lossless if row["variant_id"] == variant_id)


def previous_row_greedy(choices: Sequence[int], proposal: Proposal) -> Verdict:
    """Judges each drafted token by the target's view one token earlier."""
    return verify.verify_choices([*choices[:1], *choices[:-1]], proposal)


def accepts_all(choices: Sequence[int], proposal: Proposal) -> Verdict:
    """Takes every draft as it comes."""
    return Verdict(len(proposal.tokens), choices[-1])


def plain_redraw(target: Tensor, proposal: Proposal, row: int) -> Tensor:
    """Redraws a rejected position from p as if nothing had been drafted."""
    return target


def likeliest_draw(weights: Tensor, generator: torch.Generator) -> Tensor:
    """Drafts the likeliest token, yet reports it as drawn from the whole distribution."""
    return weights.argmax(-1)


RIGHT_COMMIT = _Run._commit_rows


def keeps_a_rejected_row(self: Any, hidden: Tensor, counts: list[int], verdicts: list[Verdict]) -> None:
    """Commits the cache row of the first rejected draft too."""
    RIGHT_COMMIT(self, hidden, counts, verdicts)
    if counts[0] - 1 > verdicts[0].num_accepted and not hasattr(self, "kept"):
        self.kept = True
        self._cache.lengths[0] += 1


def test_a_right_engine_passes_at_temperature_0(tiny: TinyRun) -> None:
    record = measure(tiny, **GREEDY)
    assert verdicts(record) == {"autoregressive": "equal", "draft_model-k2": "equal"}
    row = row_of(record)
    assert (row["test"], row["num_prompts"], row["num_equal"], row["num_defects"]) == ("greedy", 4, 4, 0)
    assert row["num_tokens"] == 4 * 32
    assert row["divergences"] == []
    assert row_of(record, "autoregressive")["seconds"] > 0


def test_a_right_engine_passes_above_temperature_0(tiny: TinyRun) -> None:
    record = measure(tiny, **SAMPLED)
    assert verdicts(record) == {"autoregressive": "consistent", "draft_model-k2": "consistent"}
    row = row_of(record)
    assert row["p_value"] >= 0.001
    assert 0 < row["detectable_distance"] < 0.3
    assert row["num_tokens"] == 4 * 64


@pytest.mark.parametrize("wrong", [previous_row_greedy, accepts_all])
def test_a_wrong_greedy_choice_is_a_defect(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch, wrong: Callable[..., Verdict]
) -> None:
    monkeypatch.setattr(loop, "judge_choices", wrong)
    record = measure(tiny, **GREEDY)
    assert verdicts(record) == {"autoregressive": "equal", "draft_model-k2": "defect"}
    row = row_of(record)
    assert row["num_defects"] >= 1
    assert row["largest_roundings"] > 1000
    divergence = max(row["divergences"], key=lambda found: found["roundings"])
    assert divergence["verdict"] == "defect"
    assert divergence["token"] != divergence["other_token"]


def test_rows_of_rejected_tokens_left_in_the_cache_are_a_defect(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Run, "_commit_rows", keeps_a_rejected_row)
    assert verdicts(measure(tiny, **GREEDY))["draft_model-k2"] == "defect"


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [(verify, "_residual", plain_redraw), (independent, "draw", likeliest_draw)],
)
def test_a_wrong_distribution_is_a_defect(
    tiny: TinyRun,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    wrong: Callable[..., Tensor],
) -> None:
    monkeypatch.setattr(module, name, wrong)
    longer = {**SAMPLED, "workload__max_output_tokens": 150, "method__k": 4, **THRICE}
    record = measure(tiny, **longer)
    assert verdicts(record) == {"autoregressive": "consistent", "draft_model-k4": "defect"}
    assert row_of(record, "draft_model-k4")["p_value"] < 0.001


def test_what_a_variant_says_of_itself_decides_between_lossy_and_defect(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "judge_choices", accepts_all)
    monkeypatch.setattr(planning, "variants_of", lossy_variants)
    record = measure(tiny, **GREEDY)
    assert verdicts(record)["draft_model-k2"] == "lossy"
    row = row_of(record)
    assert row["num_defects"] == 0
    assert row["num_equal"] + row["num_ties"] < row["num_prompts"]
    assert "lossy" in {found["verdict"] for found in row["divergences"]}
    assert record.status == "ok"


def lossy_variants(config: HarnessConfig) -> list[Variant]:
    return [replace(variant, lossless=variant.is_baseline) for variant in variants_of(config)]


def test_a_backend_without_scores_leaves_differences_unjudged(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise UnsupportedError("this engine keeps its logits to itself")

    monkeypatch.setattr(NativeSession, "score", refused)
    record = measure(tiny, **GREEDY)
    assert verdicts(record)["draft_model-k2"] == "equal", record.failures
    monkeypatch.setattr(loop, "judge_choices", accepts_all)
    row = row_of(measure(tiny, **GREEDY, resume=False))
    assert row["verdict"] == "unknown"
    assert row["reason"] == "this engine keeps its logits to itself"
    assert row["divergences"][0]["roundings"] is None
    sampled = measure(tiny, **SAMPLED)
    assert set(verdicts(sampled).values()) == {"unknown"}
    assert row_of(sampled)["p_value"] is None


def test_time_that_is_used_up_ends_the_scoring(tiny: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    record = measure(tiny, **{**SAMPLED, **NO_TIME})
    # one round is always scored, of which 64 tokens are enough for a test
    assert {row["num_prompts"] for row in record.lossless} == {1}
    monkeypatch.setattr(loop, "judge_choices", accepts_all)
    greedy = measure(tiny, **{**GREEDY, **NO_TIME})
    assert row_of(greedy, "autoregressive")["num_prompts"] == 1
    unjudged = [found for found in row_of(greedy)["divergences"] if found["verdict"] == "unknown"]
    assert len(unjudged) == 3


def test_a_check_that_was_off_is_made_up_for(tiny: TinyRun) -> None:
    off = measure(tiny, **GREEDY, measure__lossless__enabled=False)
    assert (off.status, off.lossless) == ("ok", [])
    on = measure(tiny, **GREEDY)
    assert on.cell_id == off.cell_id
    assert verdicts(on)["draft_model-k2"] == "equal"
    assert measure(tiny, **GREEDY).lossless == on.lossless


def test_a_check_that_breaks_is_a_failure_of_the_cell(tiny: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no scores today")

    monkeypatch.setattr(NativeSession, "score", broken)
    record = measure(tiny, **GREEDY)
    assert record.status == "partial"
    assert [(failure.stage, failure.error) for failure in record.failures] == [
        ("lossless", "RuntimeError: no scores today")
    ]
