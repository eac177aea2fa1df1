"""Mistakes of published snippets, seeded one by one: the test that docs/mistakes.md names must then fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from engine import test_loop, test_lossless, test_verify
from engine.random_models import all_logits, random_transformer
from metrics import test_latency
from models import test_pair_check
from synthetic_results import write_synthetic_results

from harness.engine import verify
from harness.engine.cache import KVCache, Placement
from harness.engine.drafters import independent
from harness.engine.drafters.base import Turn
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import DecodedSequence
from harness.engine.verify import Proposal
from harness.metrics.intervals import Interval
from harness.metrics.latency import Percentiles
from harness.models import pair_check
from harness.results import Results, load, summary

Patch = pytest.MonkeyPatch
CAUGHT = (AssertionError, pytest.fail.Exception)
DOCS = Path(__file__).parent.parent / "docs" / "mistakes.md"

RIGHT_PLACE, RIGHT_PROPOSE = KVCache.place, IndependentDrafter.propose


def limit_of_everything(sequence: DecodedSequence) -> bool:
    """Compares the output limit with prompt and output together."""
    return len(sequence.tokens) >= sequence.limit or sequence.output[-1] in sequence._eos


def forgets_the_last_draft(
    self: IndependentDrafter, turns: Sequence[Turn], **settings: Any
) -> list[Proposal]:
    """Feeds the newest token alone: after full acceptance the cache stays one token behind."""
    # the row of the token that was never fed is skipped by feeding the newest in its place
    cut = [
        replace(turn, tokens=[*turn.tokens[:length], turn.tokens[-1]])
        for turn, length in zip(turns, self._cache.lengths, strict=True)
    ]
    return RIGHT_PROPOSE(self, cut, **settings)


def positions_of_the_longest(self: KVCache, new: int) -> Placement:
    """Counts the padding of shorter sequences as tokens, as with a wrong pad id."""
    lengths = self.lengths
    self.lengths = [max(lengths)] * len(lengths)
    try:
        return RIGHT_PLACE(self, new)
    finally:
        self.lengths = lengths


def by_index(values: npt.ArrayLike) -> Percentiles:
    """Indexes into the list as it came."""
    sample = list(np.asarray(values, dtype=float))
    return Percentiles(*(sample[int(share * len(sample))] for share in (0.5, 0.9, 0.99)))


def sizes_alone(target: Any, drafter: Any) -> None:
    """Accepts a pair whose vocabularies are equally large."""
    assert len(target.tokens) == len(drafter.tokens)


@torch.inference_mode()
def check_that_sequences_of_a_batch_equal_single_runs() -> None:
    model = random_transformer(3, vocab_size=12)
    sequences = [[1, 2], [3, 4, 5, 6, 7]]
    cache = model.new_cache(batch=2, capacity=16)
    for row, tokens in enumerate(sequences):
        view = cache.rows(row, row + 1)
        model.prefill(torch.tensor([tokens]), view)
        cache.lengths[row] = view.lengths[0]
    new = torch.tensor([[8], [9]])
    batched = model.head(model.forward(new, cache))[:, -1]
    for row, tokens in enumerate(sequences):
        alone = all_logits(model, torch.tensor([[*tokens, int(new[row])]]))[0, -1]
        torch.testing.assert_close(batched[row], alone, rtol=1e-4, atol=1e-4)


def check_that_speedup_is_wall_time(results: Results) -> None:
    rows = results.measured
    decoded = {
        name: (own["num_output_tokens"] - 1).sum() / own["decode_s"].sum()
        for name, own in rows.groupby("variant_id")
    }
    row = results.summary().set_index("variant_id").loc["draft_model-k3"]
    assert row["speedup"] == pytest.approx(decoded["draft_model-k3"] / decoded["autoregressive"])
    assert row["tokens_per_forward"] > 1.3 * row["speedup"]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return load(write_synthetic_results(tmp_path, temperatures=(0.0,), ks=(3,), num_prompts=6))


ENGINE: dict[str, tuple[object, str, Any, Callable[[], None]]] = {
    "limit compared with prompt and output": (
        DecodedSequence,
        "has_ended",
        property(limit_of_everything),
        lambda: test_loop.test_the_limit_counts_new_tokens_whatever_the_prompt(5),
    ),
    "draft cache one token behind": (
        IndependentDrafter,
        "propose",
        forgets_the_last_draft,
        lambda: test_loop.test_the_target_accepts_all_of_its_own_drafts(3, SamplingParams()),
    ),
    "padding counted as tokens": (
        KVCache,
        "place",
        positions_of_the_longest,
        check_that_sequences_of_a_batch_equal_single_runs,
    ),
    "percentile by index": (
        test_latency,
        "percentiles",
        by_index,
        test_latency.test_percentiles_sort_and_interpolate,
    ),
    "scalar residual": (
        verify,
        "_residual",
        test_lossless.scalar_residual,
        test_verify.test_the_residual_is_the_whole_vector,
    ),
    "drafts hotter than reported": (
        independent,
        "draw",
        test_lossless.hotter_draw,
        lambda: test_lossless.test_output_has_the_targets_distribution(
            test_lossless.sampled_drafts, 3, SamplingParams(1.0)
        ),
    ),
}


@pytest.mark.parametrize("name", ENGINE)
def test_a_seeded_mistake_makes_its_test_fail(monkeypatch: Patch, name: str) -> None:
    owner, attribute, wrong, check = ENGINE[name]
    check()
    monkeypatch.setattr(owner, attribute, wrong)
    with pytest.raises(CAUGHT):
        check()


def test_tokens_per_forward_sold_as_speedup_is_caught(monkeypatch: Patch, results: Results) -> None:
    check_that_speedup_is_wall_time(results)
    steps = results.steps
    per_forward = steps["emitted"].sum() / len(steps)
    monkeypatch.setattr(summary, "speedup", lambda *_: Interval(per_forward, None, None, 0.95, 6))
    with pytest.raises(CAUGHT):
        check_that_speedup_is_wall_time(load(results.path))


def test_a_pair_compared_by_size_alone_is_caught(
    monkeypatch: Patch, make_tiny_llama: Callable[..., Path], tiny_tokens: tuple[list[str], Any]
) -> None:
    test_pair_check.test_equal_sizes_with_other_tokens_are_refused(make_tiny_llama, tiny_tokens)
    monkeypatch.setattr(pair_check, "_check_tokens", sizes_alone)
    with pytest.raises(CAUGHT):
        test_pair_check.test_equal_sizes_with_other_tokens_are_refused(make_tiny_llama, tiny_tokens)


def test_every_test_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", DOCS.read_text(encoding="utf-8"))
    assert len(named) > 10
    for file, test in named:
        source = (DOCS.parent.parent / file).read_text(encoding="utf-8")
        assert f"def {test}(" in source, f"{file} has no {test}"
