"""Real vLLM engines on tiny random models; skipped where vLLM isn't installed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import write_tiny_llama
from tiny_runs import write_workload

from harness.__main__ import main
from harness.backends.base import DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.native import NativeBackend
from harness.backends.vllm.backend import VllmBackend, VllmSession
from harness.config.schema import VllmConfig
from harness.errors import EngineError, OutOfMemoryError, UnsupportedError
from harness.models.checkpoint import ResolvedModel
from harness.models.int8_checkpoint import write_int8_checkpoint
from harness.models.sources import resolve_model
from harness.records import Decoded, FinishReason, Variant
from harness.results import load

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vLLM isn't installed: scripts/vllm_environment makes an environment that has it",
    ),
]

PROMPT = (5, 60, 61, 62, 5, 60, 61)
OTHER = (90, 91, 92, 93, 94)
LIMIT = 30
GREEDY = DecodingSettings(0.0, 0, 1.0, frozenset(), context_tokens=60, batch_size=2)
BASELINE = Variant("autoregressive")
NGRAM = Variant("ngram", 3, None, (("min_ngram", 1), ("max_ngram", 3)))
# heads of 32, the smallest vLLM's CPU engine has; weights so large that no token is repeated for ever
SHAPE: dict[str, Any] = {
    "seed": 4,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> ResolvedModel:
    folder = write_tiny_llama(tmp_path_factory.mktemp("vllm") / "target", **SHAPE)
    return resolve_model(f"path:{folder}")


@pytest.fixture(scope="module")
def drafter(target: ResolvedModel) -> ResolvedModel:
    """The target with a little noise on its weights: a part of its drafts stands."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = target.path.parent / "drafter"
    shutil.copytree(target.path, folder)
    torch.manual_seed(0)
    file = folder / "model.safetensors"
    blurred = {name: t + 0.01 * torch.randn_like(t) for name, t in load_file(file).items()}
    save_file(blurred, file, metadata={"format": "pt"})
    return resolve_model(f"path:{folder}")


def settings(target: ResolvedModel, **options: Any) -> EngineSettings:
    # a busy machine may take long; what is meant to hang says so
    patient = {"start_timeout_s": 1800.0, "decode_timeout_s": 1800.0}
    return EngineSettings(target, "auto", "float32", 1, "none", "none", vllm=VllmConfig(**patient | options))


@pytest.fixture(scope="module")
def session(target: ResolvedModel) -> Iterator[VllmSession]:
    opened = VllmBackend.open(settings(target))
    yield opened
    opened.close()


def decode(
    session: Any, variant: Variant, prompts: Sequence[tuple[int, ...]], options: DecodingSettings = GREEDY
) -> list[Decoded]:
    requests = [SequenceRequest(prompt, LIMIT, 7) for prompt in prompts]
    return list(session.decode(variant, requests, options))


def native(target: ResolvedModel, variant: Variant, drafter: ResolvedModel | None) -> list[Decoded]:
    opened = NativeBackend.open(replace(settings(target), device="cpu"))
    opened.prepare(variant, drafter, GREEDY)
    return [decode(opened, variant, [prompt])[0] for prompt in (PROMPT, OTHER)]


def counts(sequence: Decoded) -> list[tuple[int, int, int]]:
    assert sequence.steps is not None
    steps = sequence.steps
    return list(zip(steps.proposed, steps.accepted, steps.emitted, strict=True))


def test_the_baseline_is_the_native_engines_and_is_read_back(
    session: VllmSession, target: ResolvedModel
) -> None:
    applied, parts = session.prepare(BASELINE, None, GREEDY)
    assert [part.part for part in parts] == ["import", "load_engine"]
    wanted = {"dtype": "float32", "method": None, "k": 0, "max_num_seqs": 2, "quantization": "none"}
    assert {name: applied[name] for name in wanted} == wanted
    assert (session.facts()["device"], session.facts()["num_threads"]) == ("cpu", 1)
    assert session.prepare(BASELINE, None, GREEDY)[1] == []  # the engine that runs already
    expected = native(target, BASELINE, None)
    for found in (decode(session, BASELINE, [PROMPT, OTHER]), *[decode(session, BASELINE, [PROMPT])]):
        for ours, theirs in zip(found, expected, strict=False):
            assert ours.tokens == theirs.tokens
            assert counts(ours) == [(0, 0, 1)] * (LIMIT - 1)
            assert ours.num_target_forwards == LIMIT
            assert 0 < ours.ttft_s < ours.total_s
    assert (session.peak_memory_bytes() or 0) > 1e8
    ended = frozenset({expected[0].tokens[9]})
    (short,) = decode(session, BASELINE, [PROMPT], replace(GREEDY, eos_ids=ended))
    assert short.tokens == expected[0].tokens[: expected[0].tokens.index(expected[0].tokens[9]) + 1]
    assert short.finish_reason is FinishReason.EOS
    sampled = replace(GREEDY, temperature=1.0)
    first, second = (decode(session, BASELINE, [PROMPT], sampled)[0].tokens for _ in range(2))
    assert first == second != expected[0].tokens


def test_draft_model_acceptance_is_the_native_engines_step_by_step(
    session: VllmSession, target: ResolvedModel, drafter: ResolvedModel
) -> None:
    options = (("draft_sampling", "sampled"), ("draft_vocab", False))
    variant = Variant("draft_model", 3, drafter.ref, options)
    applied, _ = session.prepare(variant, drafter, GREEDY)
    wanted = {"method": "draft_model", "k": 3, "draft_sample_method": "probabilistic"}
    assert {name: applied[name] for name in wanted} == wanted
    assert "draft_model" not in applied  # a path of this machine
    expected = native(target, variant, drafter)
    together = decode(session, variant, [PROMPT, OTHER])
    alone = [decode(session, variant, [prompt])[0] for prompt in (PROMPT, OTHER)]
    for found in (together, alone):
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.tokens == theirs.tokens
            assert sum(emitted for _, _, emitted in counts(ours)) == LIMIT - 1
            # at the end the native engine drafts no more than can be used, vLLM all the same
            whole = [step for step in counts(theirs) if step[0] == 3]
            assert counts(ours)[: len(whole)] == whole
            assert 0 < sum(accepted for _, accepted, _ in whole) < sum(proposed for proposed, _, _ in whole)
            assert ours.steps is not None
            assert sum(ours.steps.step_s) == pytest.approx(ours.decode_s, abs=1e-6)
            cut = counts(ours)[-1][2] < counts(ours)[-1][1] + 1
            assert ours.last_step_truncated == cut
    sampled = decode(session, variant, [PROMPT, OTHER], replace(GREEDY, temperature=0.7, top_p=0.95))
    assert [len(sequence.tokens) for sequence in sampled] == [LIMIT, LIMIT]


def test_ngram_counts_what_was_really_drafted_and_a_killed_engine_is_told(
    session: VllmSession, target: ResolvedModel
) -> None:
    session.prepare(NGRAM, None, GREEDY)
    expected = native(target, BASELINE, None)
    found = [decode(session, NGRAM, [prompt])[0] for prompt in (PROMPT, OTHER)]
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    proposed = [drafted for one in found for drafted, _, _ in counts(one)]
    assert 0 in proposed  # no earlier occurrence
    assert any(0 < drafted < 4 for drafted in proposed)
    pid = session._process.pid  # type: ignore[union-attr]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"SIGKILL(.|\n)*last log lines:(.|\n)*(INFO|WARNING)"):
        decode(session, NGRAM, [PROMPT])
    assert not children_of_group(pid)


def test_an_engine_that_cannot_start_or_hangs_is_told_and_ended(target: ResolvedModel) -> None:
    hung = VllmBackend.open(settings(target, start_timeout_s=0.5))
    with pytest.raises(EngineError, match=r"answer within 0\.5 s while starting"):
        hung.prepare(BASELINE, None, GREEDY)
    wrong = VllmBackend.open(settings(target, engine_args={"load_format": "no_such_format"}))
    with pytest.raises(EngineError, match=r"failed while starting: .*no_such_format"):
        wrong.prepare(BASELINE, None, GREEDY)
    large = VllmBackend.open(settings(target, kv_cache_gib=100_000))
    with pytest.raises(OutOfMemoryError, match=r"vllm\.kv_cache_gib(.|\n)*100000"):
        large.prepare(BASELINE, None, GREEDY)
    assert not [p for p in psutil.Process().children(recursive=True) if "vllm" in " ".join(p.cmdline())]


def test_a_quantisation_the_checkpoint_lacks_is_not_taken_for_granted(target: ResolvedModel) -> None:
    asked = replace(settings(target), target_quantization="compressed-tensors")
    with pytest.raises((EngineError, UnsupportedError), match=r"quanti"):
        VllmBackend.open(asked).prepare(BASELINE, None, GREEDY)


def test_an_int8_checkpoint_runs_quantised_and_is_not_taken_for_a_whole_one(
    target: ResolvedModel, drafter: ResolvedModel, tmp_path: Path
) -> None:
    write_int8_checkpoint(target.path, tmp_path / "int8")
    small = resolve_model(f"path:{tmp_path / 'int8'}")
    with pytest.raises(
        UnsupportedError, match="quantization: asked for 'none', runs with 'compressed-tensors'"
    ):
        VllmBackend.open(settings(small)).prepare(BASELINE, None, GREEDY)
    quantised = replace(settings(small), target_quantization="compressed-tensors", dtype="bfloat16")
    session = VllmBackend.open(quantised)
    variant = Variant("draft_model", 3, drafter.ref, (("draft_sampling", "greedy"),))
    applied, _ = session.prepare(variant, drafter, GREEDY)
    assert (applied["quantization"], applied["draft_quantization"]) == ("compressed-tensors", "none")
    (found,) = decode(session, variant, [PROMPT])
    session.close()
    assert len(found.tokens) == LIMIT
    # the drafter is the whole target with a little noise: its drafts stand where eight bits decide as it does
    assert sum(accepted for _, accepted, _ in counts(found)) > 0


def test_the_command_measures_a_cell_and_reports_it(
    target: ResolvedModel, drafter: ResolvedModel, tmp_path: Path
) -> None:
    prompts = write_workload(tmp_path / "mine.jsonl", ["abc abc abc", "one two three"])
    warmup = write_workload(tmp_path / "warm.jsonl", ["warm up"])
    arguments = ["backend=vllm", "backend.dtype=float32", "backend.num_threads=1", "method.k=[2]"]
    arguments += ["pair.name=tiny", f"pair.target=path:{target.path}", f"pair.drafter=path:{drafter.path}"]
    arguments += [f"workload.name={prompts}", f"workload.warmup={warmup}", "workload.max_output_tokens=16"]
    arguments += ["vllm.start_timeout_s=1800", "vllm.decode_timeout_s=1800", "measure=quick"]
    arguments += [f"results_dir={tmp_path}/results", f"reports_dir={tmp_path}/reports"]
    assert main(arguments) == 0
    results = load(tmp_path / "results" / "run")
    (record,) = results.records.values()
    assert (record.status, record.failures) == ("ok", [])
    summary = results.summary().set_index("variant_id")
    assert list(summary.index) == ["autoregressive", "draft_model-k2"]
    assert summary["baseline_drift"].notna().all()
    assert 0 < summary.loc["draft_model-k2", "acceptance_rate"] < 1
    assert results.greedy_agreement()["share_equal"].tolist() == [1.0]
    assert set(results.lossless["verdict"]) <= {"equal", "tie"}  # judged by the native engine's forward
    parts = [part["part"] for part in record.cold_start]
    assert parts.count("load_engine") == 3  # the baseline before and after, and the variant
    assert record.facts["device"] == "cpu"
    assert str(target.path) not in json.dumps(record.variants)
    assert (tmp_path / "reports" / "run" / "index.html").is_file()


def children_of_group(pid: int) -> list[int]:
    return [p.pid for p in psutil.process_iter() if p.pid != os.getpid() and group_of(p.pid) == pid]


def group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
