"""Chains drafted in one call into the compiled kernels, against the same drafter driven from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine.exact_distribution import chi_square_p, count_outcomes, joint_distribution
from engine.random_heads import save_eagle_head
from engine.random_models import reference_model, save_checkpoint

from harness.engine.compiled import build, layout
from harness.engine.compiled.chain import compiled_chain
from harness.engine.compiled.packing import KINDS
from harness.engine.drafters.base import Turn
from harness.engine.drafters.eagle import EagleDrafter
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.heads import load_eagle
from harness.engine.loop import Decoder
from harness.engine.model import Transformer
from harness.engine.sampling import SamplingParams, draw
from harness.engine.sequence import Request
from harness.engine.tree_growth import chain
from harness.engine.weights import load_head, load_transformer
from harness.records import Decoded

KERNELS = build.load_kernels()
pytestmark = pytest.mark.skipif(isinstance(KERNELS, str), reason=f"no compiled kernels: {KERNELS}")
SHAPE = {"hidden_size": 128, "intermediate_size": 160, "head_dim": 32, "vocab_size": 84}
VOCAB = torch.tensor([4, 2, 80, 7, 0, 9, 33, 21, 60, 5, 6, 8, 1, 3, 44, 70, 71, 72, 73])
CAPACITY, BATCH = 60, 5
Drafter = IndependentDrafter | EagleDrafter
Make = Callable[..., Drafter]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target, and an EAGLE head for it."""
    model = reference_model("llama", **SHAPE)
    for parameter in model.parameters():
        parameter.data = 0.4 * parameter.data if parameter.ndim > 1 else parameter.data
    target = save_checkpoint(model.bfloat16(), tmp_path_factory.mktemp("target"))
    return target, save_eagle_head(target, tmp_path_factory.mktemp("eagle"), seed=8)


@pytest.fixture(scope="module")
def target(folders: tuple[Path, Path]) -> Transformer:
    return load_transformer(folders[0])


@pytest.fixture
def make(folders: tuple[Path, Path], target: Transformer) -> Make:
    """Builds a drafter: method, whether it samples, its scheme, its least confidence."""

    def made(method: str, sample: bool, scheme: str, min_confidence: float = 0.0) -> Drafter:
        if method == "eagle":
            head = load_eagle(folders[1], target, folders[0], scheme=scheme)
            cache = head.model.new_cache(capacity=CAPACITY, batch=BATCH)
            return EagleDrafter(head, cache=cache, plan=chain(4, min_confidence), sample=sample)
        model = load_transformer(folders[0], scheme=scheme)
        return IndependentDrafter(
            model,
            cache=model.new_cache(capacity=CAPACITY, batch=BATCH),
            head=load_head(folders[0], VOCAB, dtype=torch.bfloat16, scheme=scheme),
            vocab=VOCAB,
            sample=sample,
            min_confidence=min_confidence,
        )

    return made


def decode(target: Transformer, drafter: Drafter | None, temperature: float) -> list[Decoded]:
    """Prompts of five lengths that end at five limits."""
    cache = target.new_cache(capacity=CAPACITY, batch=BATCH)
    decoder = Decoder(target, cache=cache, drafter=drafter, k=4 if drafter else 0)
    lengths = zip((1, 3, 9, 4, 2), (30, 7, 21, 14, 3), strict=True)
    requests = [
        Request([n + 1 for n in range(length)], limit, seed=seed)
        for seed, (length, limit) in enumerate(lengths)
    ]
    return decoder.decode_batch(requests, sampling=SamplingParams(temperature=temperature))


def in_python(drafter: Drafter) -> Drafter:
    """The same drafter, driven token by token."""
    assert drafter._chain is not None
    drafter._chain = None
    return drafter


@pytest.mark.parametrize("scheme", KINDS)
@pytest.mark.parametrize("method", ["draft_model", "eagle"])
@pytest.mark.parametrize(("temperature", "sample"), [(0.0, False), (0.8, False), (0.8, True)])
def test_one_call_drafts_what_token_by_token_drafts(
    method: str, scheme: str, temperature: float, sample: bool, make: Make, target: Transformer
) -> None:
    if method == "eagle" and sample:
        pytest.skip("trees draw their children by another rule: see the test of the distribution")
    together = decode(target, make(method, sample, scheme), temperature)
    singly = decode(target, in_python(make(method, sample, scheme)), temperature)
    assert [one.tokens for one in together] == [one.tokens for one in singly]
    for one, other in zip(together, singly, strict=True):
        assert one.steps is not None
        assert other.steps is not None
        assert one.steps.proposed == other.steps.proposed
        assert one.steps.accepted == other.steps.accepted
    if temperature == 0.0:
        assert [one.tokens for one in together] == [one.tokens for one in decode(target, None, 0.0)]


@pytest.mark.parametrize("method", ["draft_model", "eagle"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_chains_end_where_token_by_token_they_end(
    method: str, temperature: float, make: Make, target: Transformer
) -> None:
    least = 0.003
    together = decode(target, make(method, False, "int8", least), temperature)
    singly = decode(target, in_python(make(method, False, "int8", least)), temperature)
    lengths: list[int] = []
    for one, other in zip(together, singly, strict=True):
        assert one.tokens == other.tokens
        assert one.steps is not None
        assert other.steps is not None
        assert one.steps.proposed == other.steps.proposed
        lengths += one.steps.proposed
    assert len(set(lengths)) > 2


@pytest.mark.parametrize("min_confidence", [0.0, 0.2])
@pytest.mark.parametrize("method", ["draft_model", "eagle"])
def test_sampled_chains_leave_the_targets_distribution(
    method: str, min_confidence: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = save_checkpoint(
        reference_model("llama", **{**SHAPE, "vocab_size": 6}).bfloat16(), tmp_path_factory.mktemp("tiny")
    )
    model, prompt, params = load_transformer(folder), [1, 2, 0, 1, 2], SamplingParams(1.0)
    eagle = load_eagle(
        save_eagle_head(folder, tmp_path_factory.mktemp("eagle"), seed=3), model, folder, scheme="int8"
    )
    rough = load_transformer(folder, scheme="int4")
    drafter: Drafter = IndependentDrafter(
        rough, cache=rough.new_cache(capacity=16), min_confidence=min_confidence
    )
    if method == "eagle":
        cache = eagle.model.new_cache(capacity=16)
        drafter = EagleDrafter(eagle, cache=cache, plan=chain(3, min_confidence), sample=True)
    assert drafter._chain is not None
    decoder = Decoder(model, cache=model.new_cache(capacity=16), drafter=drafter, k=3)
    outputs = [
        tuple(decoder.decode(prompt, sampling=params, max_new_tokens=4, seed=seed).tokens)
        for seed in range(1500)
    ]
    exact = joint_distribution(model, prompt, params, 4)
    for kept in (slice(0, 3), slice(1, 4)):
        others = tuple(axis for axis in range(4) if axis not in range(4)[kept])
        marginal = exact.sum(others)
        counts = count_outcomes((output[kept] for output in outputs), marginal.shape)
        assert chi_square_p(counts, marginal) > 1e-3


def test_the_target_as_its_own_drafter_is_always_right(folders: tuple[Path, Path]) -> None:
    model = load_transformer(folders[0])
    cache = model.new_cache(capacity=CAPACITY, batch=BATCH)
    drafted = decode(model, IndependentDrafter(model, cache=cache), 0.0)
    for one in drafted:
        assert one.steps is not None
        assert sum(one.steps.proposed) > 0
        assert one.steps.accepted == one.steps.proposed


def test_drafts_come_with_the_distribution_they_were_drawn_from(make: Make, target: Transformer) -> None:
    """Uniform numbers from the same generators give the tokens back from the probabilities."""
    drafter = make("draft_model", True, "none")
    prompts = [[5, 6, 7], [8, 9]]
    drafter.begin(prompts)
    turns = [
        Turn(prompt, limit, torch.Generator().manual_seed(limit))
        for prompt, limit in zip(prompts, (4, 2), strict=True)
    ]
    for proposal, limit in zip(
        drafter.propose(turns, sampling=SamplingParams(temperature=1.3)), (4, 2), strict=True
    ):
        assert proposal.probs is not None
        torch.testing.assert_close(proposal.probs.sum(-1), torch.ones(limit))
        generator = torch.Generator().manual_seed(limit)
        columns = [int(draw(row[None], generator)) for row in proposal.probs]
        assert proposal.tokens == VOCAB[columns].tolist()


def test_cut_off_distributions_are_drawn_in_python(make: Make, target: Transformer) -> None:
    drafter = make("draft_model", True, "none")
    drafter.begin([[5, 6, 7]])
    turn = Turn([5, 6, 7], 3, torch.Generator().manual_seed(0))
    proposal = drafter.propose([turn], sampling=SamplingParams(temperature=1.0, top_k=2))[0]
    assert proposal.probs is not None
    assert ((proposal.probs > 0).sum(-1) == 2).all()


def test_pytorch_models_have_no_such_call(folders: tuple[Path, Path]) -> None:
    plain = load_transformer(folders[0], dtype=torch.float32)
    assert compiled_chain(plain, plain.head) is None


def test_structures_fit_the_kernels() -> None:
    """Pointers are eight bytes and numbers four: sizes as the C++ headers lay them out."""
    sizes = {layout.Batch: 48, layout.Results: 32, layout.Drafter: 32, layout.Chains: 72}
    assert {kind: ctypes.sizeof(kind) for kind in sizes} == sizes
