"""Forced acceptance on the real engine: the asked share stands, and everything else runs as ever."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_runs import TinyRun

from harness.backends.base import DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.native import NativeBackend
from harness.metrics import position_rates, proportion_interval
from harness.models.sources import resolve_model
from harness.records import Decoded, Variant

PROMPT = (5, 60, 61, 62, 5, 60, 61)


def decoded(
    tiny: TinyRun, method: str, *, temperature: float, num_sequences: int, **options: object
) -> list[Decoded]:
    settings = DecodingSettings(temperature, 0, 1.0, frozenset(), 60)
    chosen = (("draft_sampling", "sampled"), ("draft_vocab", True), *options.items())
    variant = Variant(method, 3, f"path:{tiny.drafter}", chosen, lossless=method != "synthetic")
    session = NativeBackend.open(
        EngineSettings(resolve_model(f"path:{tiny.target}"), "cpu", "float32", 1, "none", "none")
    )
    applied, _ = session.prepare(variant, resolve_model(f"path:{tiny.drafter}"), settings)
    assert applied.get("synthetic_acceptance") == (
        list(options["acceptance"]) if "acceptance" in options else None  # type: ignore[call-overload]
    )
    requests = [SequenceRequest(PROMPT, 40, seed) for seed in range(num_sequences)]
    found = [session.decode(variant, [request], settings)[0] for request in requests]
    session.close()
    return found


def steps(sequences: list[Decoded], name: str) -> list[float]:
    return [value for one in sequences for value in getattr(one.steps, name)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_asked_acceptance_is_what_is_measured(tiny: TinyRun, temperature: float) -> None:
    asked = (0.9, 0.5)
    found = decoded(tiny, "synthetic", temperature=temperature, num_sequences=30, acceptance=asked)
    proposed, accepted = (np.array(steps(found, name), dtype=int) for name in ("proposed", "accepted"))
    rates = position_rates(proposed, accepted)
    for place, (reached, conditional) in enumerate(zip(rates.num_reached, rates.conditional, strict=True)):
        expected = asked[min(place, len(asked) - 1)]
        # four standard errors of a binomial share
        assert conditional == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / reached))
    # the first token of each step alone, by sequence: its interval holds what was asked
    firsts = [(sum(a > 0 for a in one.steps.accepted), len(one.steps.accepted)) for one in found if one.steps]
    interval = proportion_interval(*zip(*firsts, strict=True), confidence=0.999)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low <= asked[0] <= interval.high
    assert all(len(one.tokens) == 40 for one in found)


def test_all_and_none_can_be_asked_for(tiny: TinyRun) -> None:
    (every,) = decoded(tiny, "synthetic", temperature=0.0, num_sequences=1, acceptance=(1.0,))
    assert steps([every], "accepted") == steps([every], "proposed")
    (none,) = decoded(tiny, "synthetic", temperature=1.0, num_sequences=1, acceptance=(0.0,))
    assert set(steps([none], "accepted")) == {0}
    assert none.num_target_forwards == 40


def test_target_and_drafter_work_as_much_as_for_real(tiny: TinyRun) -> None:
    real = decoded(tiny, "draft_model", temperature=1.0, num_sequences=1)
    forced = decoded(tiny, "synthetic", temperature=1.0, num_sequences=1, acceptance=(0.5,))
    for sequences in (real, forced):
        assert min(steps(sequences, "verify_s")) > 0
        drafting = np.array(steps(sequences, "proposed")) > 0
        assert (np.array(steps(sequences, "draft_s"))[drafting] > 0).all()
        # close to the limit drafts are short, all others are whole
        assert set(steps(sequences, "proposed")[:-3]) == {3}


def test_a_rejected_first_draft_gives_the_targets_own_token(tiny: TinyRun) -> None:
    (forced,) = decoded(tiny, "synthetic", temperature=0.0, num_sequences=1, acceptance=(0.0,))
    (plain,) = decoded(tiny, "draft_model", temperature=0.0, num_sequences=1)
    assert forced.tokens == plain.tokens
