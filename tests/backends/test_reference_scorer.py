from __future__ import annotations

from dataclasses import replace

import pytest
from tiny_runs import TinyRun

from harness.backends.base import DecodingSettings, EngineSettings, Scorer, ScoreRequest
from harness.backends.native import NativeBackend
from harness.backends.reference import ReferenceScorer
from harness.backends.transformers.backend import TransformersBackend
from harness.backends.vllm.backend import VllmSession
from harness.errors import UnsupportedError
from harness.models.sources import resolve_model

REQUEST = ScoreRequest((5, 60, 61, 62), (7, 8, 9), ((1, 70),))
SETTINGS = DecodingSettings(0.8, 0, 0.9, frozenset(), 60)


@pytest.fixture
def engine(tiny: TinyRun) -> EngineSettings:
    return EngineSettings(resolve_model(f"path:{tiny.target}"), "cpu", "float32", 1, "none", "none")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_score_is_the_native_engines(engine: EngineSettings, temperature: float) -> None:
    settings = replace(SETTINGS, temperature=temperature)
    native = NativeBackend.open(engine)
    expected = native.score(REQUEST, settings)
    native.close()
    assert ReferenceScorer(engine).score(REQUEST, settings) == expected
    other = TransformersBackend.open(engine)
    assert other.score(REQUEST, settings) == expected
    other.close()
    session = VllmSession(engine)
    assert isinstance(session, Scorer)
    assert session.score(REQUEST, settings) == expected


def test_a_quantised_target_is_not_scored(engine: EngineSettings) -> None:
    with pytest.raises(UnsupportedError, match="a quantised target on this backend can't be scored"):
        ReferenceScorer(replace(engine, target_quantization="int8")).score(REQUEST, SETTINGS)


def test_a_target_that_does_not_fit_is_not_loaded(
    engine: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.backends.reference.free_bytes", lambda device: (1000, "cpu"))
    with pytest.raises(UnsupportedError, match="of main memory, and 1,000 are free"):
        ReferenceScorer(engine).score(REQUEST, SETTINGS)
