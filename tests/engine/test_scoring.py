"""Scores of finished outputs against logits computed position by position."""

from __future__ import annotations

import pytest
import torch
from engine.random_models import all_logits, greedy_continuation, random_transformer

from harness.engine import scoring
from harness.engine.sampling import SamplingParams, probabilities
from harness.engine.scoring import score_tokens

MODEL = random_transformer(0, vocab_size=12)
PROMPT, TOKENS = [1, 2, 0, 7], [3, 3, 9, 0, 11]
ROWS = all_logits(MODEL, torch.tensor([[*PROMPT, *TOKENS]]))[0, len(PROMPT) - 1 : -1]


@pytest.mark.parametrize("at_once", [2, 64])
def test_logits_are_those_of_each_prefix(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(scoring, "POSITIONS_AT_ONCE", at_once)
    alternatives = [(0, 5), (4, 1), (2, 9)]
    scored = score_tokens(MODEL, PROMPT, TOKENS, alternatives=alternatives, sampling=SamplingParams(0.0))
    assert scored.logits == pytest.approx([float(ROWS[i, t]) for i, t in enumerate(TOKENS)], abs=1e-5)
    assert scored.best_tokens == ROWS.argmax(-1).tolist()
    assert scored.best_logits == pytest.approx(ROWS.max(-1).values.tolist(), abs=1e-5)
    assert scored.alternative_logits == pytest.approx([float(ROWS[i, t]) for i, t in alternatives], abs=1e-5)
    assert scored.mass == scored.mass_above == []
    assert scored.significant_bits == 24


def test_greedy_output_is_what_the_target_prefers() -> None:
    output = greedy_continuation(MODEL, PROMPT, 8)
    assert score_tokens(MODEL, PROMPT, output, sampling=SamplingParams(0.0)).best_tokens == output


@pytest.mark.parametrize("params", [SamplingParams(0.7), SamplingParams(1.0, top_k=4), SamplingParams(1.5)])
def test_masses_follow_the_sampled_distribution(params: SamplingParams) -> None:
    scored = score_tokens(MODEL, PROMPT, TOKENS, sampling=params)
    for place, token in enumerate(TOKENS):
        probs = probabilities(ROWS[place], params).double()
        own = probs[token]
        assert scored.mass[place] == pytest.approx(float(probs[probs == own].sum()), abs=1e-5)
        assert scored.mass_above[place] == pytest.approx(float(probs[probs > own].sum()), abs=1e-5)
