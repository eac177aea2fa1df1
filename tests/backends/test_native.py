from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from engine.random_models import greedy_continuation
from tiny_runs import TinyRun

from harness.backends import memory as memory_module
from harness.backends import quality as quality_module
from harness.backends.base import DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.memory import ProcessMemory
from harness.backends.native import NativeBackend, NativeSession, available_cores
from harness.engine.weights import load_transformer
from harness.errors import OutOfMemoryError, UnsupportedError
from harness.models.sources import resolve_model
from harness.records import FinishReason, Variant

PROMPT = (5, 60, 61, 62, 5, 60, 61)
GREEDY = DecodingSettings(temperature=0.0, top_k=0, top_p=1.0, eos_ids=frozenset(), context_tokens=40)
SAMPLED = DecodingSettings(temperature=1.0, top_k=0, top_p=1.0, eos_ids=frozenset(), context_tokens=40)


def engine(tiny: TinyRun, **changes: object) -> EngineSettings:
    settings = {
        "target": resolve_model(f"path:{tiny.target}"),
        "device": "cpu",
        "dtype": "float32",
        "num_threads": 1,
        "target_quantization": "none",
        "drafter_quantization": "none",
    }
    return EngineSettings(**{**settings, **changes})  # type: ignore[arg-type]


def draft(tiny: TinyRun, k: int = 3, **options: object) -> Variant:
    chosen = {"draft_sampling": "sampled", "draft_vocab": True, **options}
    return Variant("draft_model", k, f"path:{tiny.drafter}", tuple(chosen.items()))


NGRAM = Variant("ngram", 3, None, (("min_ngram", 1), ("max_ngram", 3)))
BASELINE = Variant("autoregressive")


@pytest.fixture
def session(tiny: TinyRun) -> Iterator[NativeSession]:
    opened = NativeBackend.open(engine(tiny))
    yield opened
    opened.close()


def decode(
    session: NativeSession, variant: Variant, settings: DecodingSettings, *, seed: int = 1
) -> list[int]:
    (sequence,) = session.decode(variant, [SequenceRequest(PROMPT, 12, seed)], settings)
    return sequence.tokens


def test_version_names_the_release_of_the_engine() -> None:
    assert NativeBackend.version() == f"torch {torch.__version__}"


def test_opening_loads_the_target_and_says_on_what_it_runs(session: NativeSession) -> None:
    (part,) = session.cold_start
    assert (part.part, part.variant_id) == ("load_target", None)
    assert part.seconds > 0
    facts = session.facts()
    assert {name: facts[name] for name in ("device", "dtype", "num_threads")} == {
        "device": "cpu",
        "dtype": "float32",
        "num_threads": 1,
    }
    assert torch.get_num_threads() == 1


def test_every_method_writes_the_targets_greedy_output(session: NativeSession, tiny: TinyRun) -> None:
    drafter = resolve_model(f"path:{tiny.drafter}")
    target = load_transformer(tiny.target, dtype=torch.float32)
    expected = greedy_continuation(target, list(PROMPT), 12)
    for variant, model in ((BASELINE, None), (draft(tiny), drafter), (NGRAM, None)):
        session.prepare(variant, model, GREEDY)
        assert decode(session, variant, GREEDY) == expected


def test_prepare_reads_back_what_was_applied_and_loads_a_drafter_once(
    session: NativeSession, tiny: TinyRun
) -> None:
    drafter = resolve_model(f"path:{tiny.drafter}")
    assert session.prepare(BASELINE, None, GREEDY) == ({}, [])
    applied, (part,) = session.prepare(draft(tiny, 3), drafter, GREEDY)
    assert applied.pop("drafter_weight_bytes") > 300 * 32 * 4
    assert applied == {"draft_sampling": "sampled", "draft_vocab_size": 300, "drafter_layers": 1}
    assert (part.part, part.variant_id) == ("load_drafter", "draft_model-k3")
    greedy = draft(tiny, 4, draft_sampling="greedy")
    applied, parts = session.prepare(greedy, drafter, GREEDY)
    assert (applied["draft_sampling"], parts) == ("greedy", [])
    assert session.prepare(NGRAM, None, GREEDY)[0] == {"draft_sampling": "one-hot"}


def test_a_reduced_vocabulary_is_used_where_there_is_one_and_asked_for(
    session: NativeSession, tiny: TinyRun
) -> None:
    np.save(tiny.drafter / "draft_vocab.npy", np.array([7, 60, 61, 62, 5], dtype=np.int32))
    drafter = resolve_model(f"path:{tiny.drafter}")
    reduced, whole = draft(tiny, 3), draft(tiny, 4, draft_vocab=False)
    assert session.prepare(reduced, drafter, GREEDY)[0]["draft_vocab_size"] == 5
    assert session.prepare(whole, drafter, GREEDY)[0]["draft_vocab_size"] == 300
    session.prepare(BASELINE, None, GREEDY)
    outputs = {tuple(decode(session, variant, GREEDY)) for variant in (BASELINE, reduced, whole)}
    assert len(outputs) == 1


def test_a_seed_repeats_a_sample_and_another_one_does_not(session: NativeSession, tiny: TinyRun) -> None:
    drafter = resolve_model(f"path:{tiny.drafter}")
    for variant, model in ((BASELINE, None), (draft(tiny), drafter)):
        session.prepare(variant, model, SAMPLED)
        assert decode(session, variant, SAMPLED) == decode(session, variant, SAMPLED)
        assert decode(session, variant, SAMPLED) != decode(session, variant, SAMPLED, seed=2)


def test_sampling_settings_reach_the_engine(session: NativeSession) -> None:
    session.prepare(BASELINE, None, SAMPLED)
    greedy = decode(session, BASELINE, GREEDY)
    one_token_left = DecodingSettings(
        temperature=1.0, top_k=1, top_p=1.0, eos_ids=frozenset(), context_tokens=40
    )
    tiny_nucleus = DecodingSettings(
        temperature=1.0, top_k=0, top_p=1e-6, eos_ids=frozenset(), context_tokens=40
    )
    assert decode(session, BASELINE, one_token_left) == greedy
    assert decode(session, BASELINE, tiny_nucleus) == greedy
    assert decode(session, BASELINE, SAMPLED) != greedy


def test_requests_are_answered_in_order_up_to_their_limits(session: NativeSession) -> None:
    session.prepare(BASELINE, None, GREEDY)
    requests = [SequenceRequest(PROMPT, 3, 1), SequenceRequest((9, 8, 7), 6, 1)]
    session.prepare(BASELINE, None, replace(GREEDY, batch_size=2))
    found = session.decode(BASELINE, requests, GREEDY)
    assert [len(sequence.tokens) for sequence in found] == [3, 6]
    assert [sequence.finish_reason for sequence in found] == [FinishReason.LENGTH] * 2
    alone = session.decode(BASELINE, requests[1:], GREEDY)
    assert alone[0].tokens == found[1].tokens


def test_an_end_token_ends_the_sequence(session: NativeSession) -> None:
    session.prepare(BASELINE, None, GREEDY)
    output = decode(session, BASELINE, GREEDY)
    ending = DecodingSettings(
        temperature=0.0, top_k=0, top_p=1.0, eos_ids=frozenset({output[4]}), context_tokens=40
    )
    (sequence,) = session.decode(BASELINE, [SequenceRequest(PROMPT, 12, 1)], ending)
    assert sequence.finish_reason == FinishReason.EOS
    assert sequence.tokens == output[: output.index(output[4]) + 1]


def test_a_longer_context_is_allocated_for_the_next_cell(session: NativeSession) -> None:
    session.prepare(BASELINE, None, GREEDY)
    longer = DecodingSettings(temperature=0.0, top_k=0, top_p=1.0, eos_ids=frozenset(), context_tokens=200)
    with pytest.raises(UnsupportedError, match="don't fit the context of 40 tokens"):
        session.decode(BASELINE, [SequenceRequest(PROMPT, 100, 1)], GREEDY)
    session.prepare(BASELINE, None, longer)
    (sequence,) = session.decode(BASELINE, [SequenceRequest(PROMPT, 100, 1)], longer)
    assert len(sequence.tokens) == 100


def test_a_cache_that_does_not_fit_is_out_of_memory(
    tiny: TinyRun, make_tiny_llama: Callable[..., Path]
) -> None:
    endless = DecodingSettings(
        temperature=0.0, top_k=0, top_p=1.0, eos_ids=frozenset(), context_tokens=10**13
    )
    target = resolve_model(f"path:{make_tiny_llama('endless', max_position_embeddings=10**13)}")
    with pytest.raises(OutOfMemoryError, match=r"doesn't fit the free memory .*Use a smaller model"):
        NativeBackend.open(engine(tiny, target=target)).prepare(BASELINE, None, endless)


def test_a_batch_that_does_not_fit_is_out_of_memory(session: NativeSession) -> None:
    crowd = replace(GREEDY, batch_size=10**9)
    with pytest.raises(OutOfMemoryError, match=r"values of 1000000000 sequences of 40 tokens take .* GiB of"):
        session.prepare(BASELINE, None, crowd)
    # the session lives on
    session.prepare(BASELINE, None, GREEDY)
    assert len(decode(session, BASELINE, GREEDY)) == 12


def test_methods_it_does_not_run_are_refused(session: NativeSession) -> None:
    with pytest.raises(UnsupportedError, match=r"doesn't run .*'medusa'"):
        session.prepare(Variant("medusa", 3), None, GREEDY)


def test_float16_is_for_gpus(tiny: TinyRun) -> None:
    with pytest.raises(UnsupportedError, match="on a CPU use bfloat16 or float32"):
        NativeBackend.open(engine(tiny, dtype="float16"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_a_missing_gpu_is_named(tiny: TinyRun) -> None:
    with pytest.raises(UnsupportedError, match="sees no CUDA device"):
        NativeBackend.open(engine(tiny, device="cuda"))
    opened = NativeBackend.open(engine(tiny, device="auto", dtype="bfloat16"))
    assert (opened.facts()["device"], opened.facts()["dtype"]) == ("cpu", "bfloat16")


def test_families_it_does_not_know_are_refused(tiny: TinyRun) -> None:
    config = tiny.target / "config.json"
    config.write_text(config.read_text().replace('"llama"', '"mamba"'))
    with pytest.raises(UnsupportedError, match="mamba"):
        NativeBackend.open(engine(tiny))


def test_memory_is_that_of_the_process(session: NativeSession) -> None:
    peak = session.peak_memory_bytes()
    assert peak is not None
    assert 50 * 2**20 < peak < 2**40


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="can't reset the peak here")
def test_each_reading_of_memory_is_a_new_peak() -> None:
    memory, big = ProcessMemory(), 300 * 2**20
    assert memory.scope == "since the last trial"
    before = memory.peak_bytes()
    block = np.ones(big, dtype=np.uint8)
    del block
    high, after = memory.peak_bytes(), memory.peak_bytes()
    assert before is not None
    assert high is not None
    assert after is not None
    assert high > before + 0.9 * big
    assert after < high - 0.9 * big


def test_memory_that_can_not_be_reset_is_the_highest_so_far(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory_module, "_CLEAR", tmp_path / "nowhere" / "clear_refs")
    memory = ProcessMemory()
    assert memory.scope == "since the process began"
    first, second = memory.peak_bytes(), memory.peak_bytes()
    assert first is not None
    assert second is not None
    assert 50 * 2**20 < first <= second


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_quantised_models_say_what_they_cost(
    tiny: TinyRun, scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    settings = engine(tiny, target_quantization=scheme, drafter_quantization=scheme)
    session = NativeBackend.open(settings)
    quality = session.facts()["quality"]
    assert quality["perplexity_change"] == quality["perplexity"] / quality["perplexity_unquantized"] - 1
    assert abs(quality["perplexity_change"]) < 0.05
    assert 0.5 < quality["greedy_agreement"] <= 1
    assert quality["num_tokens"] == 256
    assert [part.part for part in session.cold_start] == ["load_target", "measure_quality"]
    variant = draft(tiny)
    applied, _ = session.prepare(variant, resolve_model(f"path:{tiny.drafter}"), GREEDY)
    assert applied["drafter_weight_bytes"] > 0
    session.prepare(BASELINE, None, GREEDY)
    # speculation leaves the quantised target's output as it is
    assert decode(session, variant, GREEDY) == decode(session, BASELINE, GREEDY)
    # a second session reads nothing anew
    monkeypatch.setattr(quality_module, "read_text", None)
    again = NativeBackend.open(settings).facts()["quality"]
    assert again["perplexity"] == quality["perplexity"]


def test_quantisation_a_device_can_not_do_is_refused(tiny: TinyRun) -> None:
    for role in ("target", "drafter"):
        with pytest.raises(UnsupportedError, match="fp8 weights need an NVIDIA GPU"):
            NativeBackend.open(engine(tiny, **{f"{role}_quantization": "fp8"}))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_cores_are_those_the_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {next(iter(before))})
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert available_cores() == len(before)


def test_both_models_of_a_pair_may_be_of_any_shape(
    tiny: TinyRun, make_tiny_llama: Callable[..., Path], session: NativeSession
) -> None:
    other = make_tiny_llama(
        "wide", num_layers=1, hidden_size=32, num_attention_heads=2, tie_word_embeddings=False
    )
    np.save(other / "draft_vocab.npy", np.array([60, 61, 62], dtype=np.int32))
    variant = Variant("draft_model", 2, f"path:{other}", draft(tiny).options)
    session.prepare(variant, resolve_model(f"path:{other}"), GREEDY)
    session.prepare(BASELINE, None, GREEDY)
    assert decode(session, variant, GREEDY) == decode(session, BASELINE, GREEDY)
