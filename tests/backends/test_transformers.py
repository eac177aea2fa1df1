from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import TinyRun

from harness.backends.base import DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.native import NativeBackend
from harness.backends.transformers.backend import TransformersBackend, TransformersSession
from harness.errors import UnsupportedError
from harness.models.checkpoint import ResolvedModel
from harness.models.sources import resolve_model
from harness.models.tokenizer import load_tokenizer
from harness.records import Decoded, FinishReason, Variant

PROMPT = (5, 60, 61, 62, 5, 60, 61)
GREEDY = DecodingSettings(temperature=0.0, top_k=0, top_p=1.0, eos_ids=frozenset(), context_tokens=60)
SAMPLED = replace(GREEDY, temperature=1.0)
BASELINE = Variant("autoregressive")
NGRAM = Variant("ngram", 3, None, (("min_ngram", 1), ("max_ngram", 3)))


# its weights are so large that it doesn't repeat one token
LIVELY: dict[str, Any] = {"seed": 4, "tie_word_embeddings": False, "initializer_range": 0.2}


def draft(drafter: Path, k: int = 3, sampling: str = "sampled") -> Variant:
    options = (("draft_sampling", sampling), ("draft_vocab", False))
    return Variant("draft_model", k, f"path:{drafter}", options)


def engine(target: Path) -> EngineSettings:
    return EngineSettings(
        target=resolve_model(f"path:{target}"),
        device="cpu",
        dtype="float32",
        num_threads=1,
        target_quantization="none",
        drafter_quantization="none",
    )


@pytest.fixture
def session(tiny: TinyRun) -> Iterator[TransformersSession]:
    opened = TransformersBackend.open(engine(tiny.target))
    yield opened
    opened.close()


def decode(
    session: TransformersSession, variant: Variant, settings: DecodingSettings = GREEDY, *, limit: int = 12
) -> Decoded:
    (sequence,) = session.decode(variant, [SequenceRequest(PROMPT, limit, 1)], settings)
    return sequence


def test_opening_reads_back_what_runs(session: TransformersSession) -> None:
    (part,) = session.cold_start
    assert (part.part, part.seconds > 0) == ("load_target", True)
    facts = session.facts()
    assert (facts["device"], facts["dtype"], facts["num_threads"]) == ("cpu", "float32", 1)
    assert TransformersBackend.version().startswith("transformers ")


def test_every_method_writes_the_native_engines_greedy_output(
    session: TransformersSession, tiny: TinyRun
) -> None:
    drafter = resolve_model(f"path:{tiny.drafter}")
    native = NativeBackend.open(engine(tiny.target))
    native.prepare(BASELINE, None, GREEDY)
    (expected,) = native.decode(BASELINE, [SequenceRequest(PROMPT, 12, 1)], GREEDY)
    for variant, model in ((BASELINE, None), (draft(tiny.drafter), drafter), (NGRAM, None)):
        session.prepare(variant, model, GREEDY)
        assert decode(session, variant).tokens == expected.tokens


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_acceptance_is_the_native_engines_step_by_step(
    make_tiny_llama: Callable[..., Path], noise: float
) -> None:
    """The drafter is the target itself, or the target blurred: a part of the drafts stands."""
    target = make_tiny_llama("same", **LIVELY)
    drafter = blurred(target, target.parent / "drafter", noise)
    model = resolve_model(f"path:{drafter}")
    variant = draft(drafter)
    sessions = [backend.open(engine(target)) for backend in (TransformersBackend, NativeBackend)]
    found = []
    for opened in sessions:
        opened.prepare(variant, model, GREEDY)
        (sequence,) = opened.decode(variant, [SequenceRequest(PROMPT, 40, 1)], GREEDY)
        found.append(sequence)
    ours, theirs = found
    assert ours.tokens == theirs.tokens
    assert ours.steps is not None
    assert theirs.steps is not None
    assert 0 < sum(ours.steps.accepted) <= sum(ours.steps.proposed)
    assert (sum(ours.steps.accepted) < sum(ours.steps.proposed)) == (noise > 0)
    # Transformers drafts while it reads the prompt; given the first token, it takes the native engine's steps
    (continued,) = sessions[0].decode(variant, [SequenceRequest((*PROMPT, ours.tokens[0]), 39, 1)], GREEDY)
    assert continued.steps is not None
    for name in ("proposed", "accepted", "emitted"):
        assert getattr(continued.steps, name) == getattr(theirs.steps, name)


@pytest.mark.model
@pytest.mark.slow
def test_the_default_pair_is_accepted_as_on_the_native_engine(default_target: ResolvedModel) -> None:
    drafter = resolve_model("asset:smollm2-135m-draft", base_ref=default_target.ref)
    variant = Variant("draft_model", 3, drafter.ref, (("draft_sampling", "sampled"), ("draft_vocab", False)))
    prompt = load_tokenizer(default_target.path).encode_user_text("List three colours.")
    settings = replace(GREEDY, context_tokens=len(prompt) + 20)
    found = []
    for backend in (TransformersBackend, NativeBackend):
        opened = backend.open(engine(default_target.path))
        opened.prepare(variant, drafter, settings)
        found += opened.decode(variant, [SequenceRequest(prompt, 16, 1)], settings)
        if backend is TransformersBackend:
            request = SequenceRequest([*prompt, found[0].tokens[0]], 15, 1)
            found += opened.decode(variant, [request], settings)
        opened.close()
    ours, continued, theirs = found
    assert ours.tokens == [ours.tokens[0], *continued.tokens] == theirs.tokens
    assert continued.steps is not None
    assert theirs.steps is not None
    assert sum(theirs.steps.accepted) > 0
    assert continued.steps.proposed == theirs.steps.proposed
    assert continued.steps.accepted == theirs.steps.accepted


def blurred(source: Path, folder: Path, noise: float) -> Path:
    """A copy of a checkpoint with noise on its weights."""
    import shutil

    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    torch.manual_seed(0)
    file = folder / "model.safetensors"
    weights = {name: t + noise * torch.randn_like(t) for name, t in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def test_first_tokens_come_in_one_burst_and_every_step_is_timed(
    session: TransformersSession, tiny: TinyRun
) -> None:
    variant = draft(tiny.target)
    session.prepare(variant, resolve_model(f"path:{tiny.target}"), GREEDY)
    sequence = decode(session, variant)
    assert sequence.steps is not None
    assert sequence.steps.proposed == [3, 3, 3]
    assert sequence.steps.emitted == [4, 4, 4]
    assert sequence.num_target_forwards == 3
    assert all(seconds > 0 for seconds in (*sequence.steps.draft_s, *sequence.steps.verify_s))
    assert sum(sequence.steps.draft_s + sequence.steps.verify_s) <= sequence.total_s
    assert sequence.total_s == pytest.approx(sequence.ttft_s + sequence.decode_s)


def test_the_baseline_has_a_step_per_token_after_the_first(session: TransformersSession) -> None:
    session.prepare(BASELINE, None, GREEDY)
    sequence = decode(session, BASELINE)
    assert sequence.steps is not None
    assert (sequence.steps.proposed, sequence.steps.emitted) == ([0] * 11, [1] * 11)
    assert sequence.num_target_forwards == 12
    assert sequence.finish_reason is FinishReason.LENGTH


def test_a_drafted_end_token_that_stands_is_accepted_and_flagged(
    make_tiny_llama: Callable[..., Path],
) -> None:
    target = make_tiny_llama("same", **LIVELY)
    session = TransformersBackend.open(engine(target))
    variant = draft(target)
    session.prepare(variant, resolve_model(f"path:{target}"), GREEDY)
    output = decode(session, variant).tokens
    ends = next(place for place in range(1, 12) if output[place] not in output[:place] and place % 4 != 3)
    sequence = decode(session, variant, replace(GREEDY, eos_ids=frozenset({output[ends]})))
    assert sequence.tokens == output[: ends + 1]
    assert sequence.finish_reason is FinishReason.EOS
    assert sequence.last_step_truncated
    assert sequence.steps is not None
    assert sequence.steps.accepted[-1] == sequence.steps.emitted[-1] == ends % 4 + 1


def test_seeds_repeat_samples_and_checkpoint_settings_do_not_leak_in(
    make_tiny_llama: Callable[..., Path],
) -> None:
    import json

    target = make_tiny_llama("advised")
    advice = {"do_sample": True, "temperature": 0.01, "repetition_penalty": 5.0, "max_new_tokens": 3}
    (target / "generation_config.json").write_text(json.dumps(advice))
    opened = TransformersBackend.open(engine(target))
    opened.prepare(BASELINE, None, SAMPLED)

    def sampled(seed: int) -> list[int]:
        return opened.decode(BASELINE, [SequenceRequest(PROMPT, 12, seed)], SAMPLED)[0].tokens

    assert len(sampled(1)) == 12
    assert sampled(1) == sampled(1) != sampled(2)
    one_left = replace(SAMPLED, top_k=1)
    assert decode(opened, BASELINE, one_left).tokens == decode(opened, BASELINE).tokens


def test_ngram_steps_without_a_match_draft_nothing(session: TransformersSession) -> None:
    session.prepare(NGRAM, None, GREEDY)
    (sequence,) = session.decode(NGRAM, [SequenceRequest((5, 60, 61, 62), 12, 1)], GREEDY)
    assert sequence.steps is not None
    assert sequence.steps.proposed[0] == 0
    assert sequence.steps.emitted[0] == 1


def test_what_it_cannot_do_is_refused(session: TransformersSession, tiny: TinyRun) -> None:
    model = resolve_model(f"path:{tiny.drafter}")
    with pytest.raises(UnsupportedError, match="draft_sampling=greedy"):
        session.prepare(draft(tiny.drafter, sampling="greedy"), model, SAMPLED)
    with pytest.raises(UnsupportedError, match="min_ngram=1"):
        session.prepare(Variant("ngram", 3, None, (("min_ngram", 2), ("max_ngram", 3))), None, GREEDY)
    with pytest.raises(UnsupportedError, match="doesn't run method"):
        session.prepare(Variant("eagle", 3, "path:x"), model, GREEDY)
