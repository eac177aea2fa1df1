from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from engine.random_models import greedy_continuation, head_over, random_transformer
from engine.scripted_drafters import ScriptedDrafter

from harness.engine.drafters.base import Drafter, Turn
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.loop import Decoder
from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal
from harness.engine.weights import load_transformer
from harness.errors import UnsupportedError
from harness.records import Decoded, FinishReason

VOCAB_SIZE = 12
CAPACITY = 100
GREEDY = SamplingParams()
TARGET = random_transformer(20, vocab_size=VOCAB_SIZE, num_layers=2)
DRAFT_MODEL = random_transformer(20, vocab_size=VOCAB_SIZE, num_layers=2, noise=0.2)
PROMPTS = [[5], [3, 3], [1, 2, 3, 4, 5, 6, 7], [0, 9, 0, 9, 11, 0, 9] * 4]


def independent_drafter() -> Drafter:
    return IndependentDrafter(DRAFT_MODEL, cache=DRAFT_MODEL.new_cache(capacity=CAPACITY))


def target_as_drafter() -> Drafter:
    return IndependentDrafter(TARGET, cache=TARGET.new_cache(capacity=CAPACITY))


def reduced_drafter() -> Drafter:
    vocab = torch.tensor([7, 2, 9, 0, 4, 11, 5])
    return IndependentDrafter(
        TARGET, cache=TARGET.new_cache(capacity=CAPACITY), head=head_over(TARGET, vocab), vocab=vocab
    )


def check_consistent(decoded: Decoded, *, k: int) -> None:
    """Sums and bounds that hold for any drafter."""
    steps = decoded.steps
    assert steps is not None
    columns = (steps.proposed, steps.accepted, steps.emitted, steps.draft_s, steps.verify_s)
    assert {len(column) for column in columns} == {len(steps.proposed)}
    assert decoded.num_target_forwards == 1 + len(steps.proposed)
    assert sum(steps.emitted) == len(decoded.tokens) - 1
    for proposed, accepted, emitted in zip(steps.proposed, steps.accepted, steps.emitted, strict=True):
        assert 0 <= accepted <= proposed <= k
        assert 1 <= emitted <= accepted + 1
    *before, last = [a + 1 - e for a, e in zip(steps.accepted, steps.emitted, strict=True)] or [0]
    assert not any(before)
    assert decoded.last_step_truncated == (last > 0)
    assert decoded.total_s == pytest.approx(decoded.ttft_s + decoded.decode_s)
    assert min([*steps.draft_s, *steps.verify_s], default=0.0) >= 0.0
    assert sum(steps.draft_s) + sum(steps.verify_s) <= decoded.decode_s


def test_autoregressive_output_is_the_naive_continuation() -> None:
    decoder = Decoder(TARGET, cache=TARGET.new_cache(capacity=CAPACITY))
    for prompt in PROMPTS:
        decoded = decoder.decode(prompt, sampling=GREEDY, max_new_tokens=30)
        assert decoded.tokens == greedy_continuation(TARGET, prompt, 30)
        assert decoded.steps is not None
        assert decoded.steps.proposed == decoded.steps.accepted == [0] * 29
        check_consistent(decoded, k=0)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize(
    "make_drafter", [independent_drafter, target_as_drafter, reduced_drafter, NgramDrafter]
)
def test_greedy_speculative_output_is_the_autoregressive_one(
    make_drafter: Callable[[], Drafter], k: int
) -> None:
    decoder = Decoder(TARGET, cache=TARGET.new_cache(capacity=CAPACITY), drafter=make_drafter(), k=k)
    accepted = 0
    for prompt in PROMPTS:
        decoded = decoder.decode(prompt, sampling=GREEDY, max_new_tokens=30)
        assert decoded.tokens == greedy_continuation(TARGET, prompt, 30)
        check_consistent(decoded, k=k)
        accepted += sum(decoded.steps.accepted) if decoded.steps else 0
    assert accepted > 0


def test_checkpoints_decode_alike_with_and_without_a_drafter(make_tiny_llama: Callable[..., Path]) -> None:
    target = load_transformer(make_tiny_llama("target", seed=1), dtype=torch.float32)
    drafter = load_transformer(make_tiny_llama("drafter", seed=2, num_layers=1), dtype=torch.float32)
    plain = Decoder(target, cache=target.new_cache(capacity=64)).decode(
        [9, 8, 7], sampling=GREEDY, max_new_tokens=40
    )
    fast = Decoder(
        target,
        cache=target.new_cache(capacity=64),
        drafter=IndependentDrafter(drafter, cache=drafter.new_cache(capacity=64)),
        k=4,
    )
    assert fast.decode([9, 8, 7], sampling=GREEDY, max_new_tokens=40).tokens == plain.tokens


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(1.0), SamplingParams(0.7, top_k=6, top_p=0.9)])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_target_accepts_all_of_its_own_drafts(k: int, sampling: SamplingParams) -> None:
    # a draft cache that misses the last token of a fully accepted step goes astray from there on
    decoder = Decoder(TARGET, cache=TARGET.new_cache(capacity=CAPACITY), drafter=target_as_drafter(), k=k)
    decoded = decoder.decode([1, 2, 3], sampling=sampling, max_new_tokens=90)
    steps = decoded.steps
    assert steps is not None
    assert steps.accepted == steps.proposed
    assert set(steps.proposed[:-1]) == {k}
    assert decoded.num_target_forwards == 1 + -(-89 // (k + 1))


class CheckedDrafter:
    """Compares each proposal of an independent drafter with its model run anew over the whole context."""

    def __init__(self) -> None:
        self._drafter = independent_drafter()
        self.begin, self.settle = self._drafter.begin, self._drafter.settle
        self.keep = self._drafter.keep

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        proposals = self._drafter.propose(turns, sampling=sampling)
        for turn, proposal in zip(turns, proposals, strict=True):
            assert proposal.tokens == greedy_continuation(DRAFT_MODEL, list(turn.tokens), turn.limit)
        return proposals


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_drafters_cache_follows_what_was_accepted(k: int) -> None:
    decoder = Decoder(TARGET, cache=TARGET.new_cache(capacity=CAPACITY), drafter=CheckedDrafter(), k=k)
    accepted = set[int]()
    for prompt in PROMPTS:
        decoded = decoder.decode(prompt, sampling=GREEDY, max_new_tokens=50)
        accepted |= set(decoded.steps.accepted if decoded.steps else [])
    assert {0, k} <= accepted  # rejected at once, and fully accepted


@pytest.mark.parametrize(
    ("num_accepted", "fed_next"), [(0, [1, 1, 1]), (1, [1, 1, 1]), (2, [1, 1, 1]), (3, [2, 1, 1])]
)
def test_the_drafter_feeds_no_token_twice(
    monkeypatch: pytest.MonkeyPatch, num_accepted: int, fed_next: list[int]
) -> None:
    drafter, fed, forward = independent_drafter(), list[int](), DRAFT_MODEL.forward_rows
    monkeypatch.setattr(
        DRAFT_MODEL, "forward_rows", lambda rows, cache: fed.append(len(rows[0])) or forward(rows, cache)
    )

    def propose(tokens: list[int]) -> list[int]:
        fed.clear()
        (proposal,) = drafter.propose([Turn(tokens, 3, torch.Generator())], sampling=GREEDY)
        assert proposal.tokens == greedy_continuation(DRAFT_MODEL, tokens, 3)
        return list(proposal.tokens)

    drafter.begin([[1, 2, 3]])
    assert fed == [2]
    drafted = propose([1, 2, 3])
    assert fed == [1, 1, 1]
    drafter.settle([num_accepted])
    # the target's own token differs from the draft it replaces
    propose(
        [
            1,
            2,
            3,
            *drafted[:num_accepted],
            (drafted[-1 if num_accepted == 3 else num_accepted] + 1) % VOCAB_SIZE,
        ]
    )
    assert fed == fed_next


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(1.0)])
@pytest.mark.parametrize("make_drafter", [None, independent_drafter, NgramDrafter])
def test_nothing_is_left_of_the_sequence_before(
    make_drafter: Callable[[], Drafter] | None, sampling: SamplingParams
) -> None:
    def new_decoder() -> Decoder:
        return Decoder(
            TARGET,
            cache=TARGET.new_cache(capacity=CAPACITY),
            drafter=make_drafter() if make_drafter else None,
            k=3,
        )

    used = new_decoder()
    for seed, prompt in enumerate([*PROMPTS, *reversed(PROMPTS)]):
        options = {"sampling": sampling, "max_new_tokens": 25, "seed": seed}
        again, alone = used.decode(prompt, **options), new_decoder().decode(prompt, **options)
        assert again.tokens == alone.tokens
        assert again.steps is not None
        assert alone.steps is not None
        assert again.steps.accepted == alone.steps.accepted


@pytest.mark.parametrize("make_drafter", [None, independent_drafter, NgramDrafter])
def test_the_seed_decides_the_output(make_drafter: Callable[[], Drafter] | None) -> None:
    decoder = Decoder(
        TARGET,
        cache=TARGET.new_cache(capacity=CAPACITY),
        drafter=make_drafter() if make_drafter else None,
        k=3,
    )

    def decode(seed: int) -> Decoded:
        return decoder.decode([1, 2, 3], sampling=SamplingParams(1.0), max_new_tokens=20, seed=seed)

    first = [decode(seed) for seed in range(8)]
    assert [decoded.tokens for decoded in first] == [decode(seed).tokens for seed in range(8)]
    assert len({tuple(decoded.tokens) for decoded in first}) == 8
    for decoded in first:
        check_consistent(decoded, k=3)


def run_script(
    num_right: list[int], *, k: int, limit: int, prompt: Sequence[int] = (1, 2, 3)
) -> tuple[Decoded, ScriptedDrafter]:
    answer = greedy_continuation(TARGET, list(prompt), limit)
    drafter = ScriptedDrafter(answer, num_right, vocab_size=VOCAB_SIZE)
    decoder = Decoder(TARGET, cache=TARGET.new_cache(capacity=CAPACITY), drafter=drafter, k=k)
    decoded = decoder.decode(prompt, sampling=GREEDY, max_new_tokens=limit)
    assert decoded.tokens == answer
    assert drafter.prompts == [list(prompt)]
    check_consistent(decoded, k=k)
    return decoded, drafter


@pytest.mark.parametrize(
    ("num_right", "k", "limit", "proposed", "accepted", "emitted"),
    [
        # never right: the proposal shrinks towards the limit, the last step drafts nothing
        ([0], 3, 8, [3, 3, 3, 3, 2, 1, 0], [0] * 7, [1] * 7),
        # always right: 1 + 4 + 3 tokens
        ([9], 3, 8, [3, 2], [3, 2], [4, 3]),
        # always right, and the limit falls on the end of a step: 1 + 4 + 4
        ([9], 3, 9, [3, 3], [3, 3], [4, 4]),
        # always right, and one token is left over: 1 + 4 + 4 + 1
        ([9], 3, 10, [3, 3, 0], [3, 3, 0], [4, 4, 1]),
        # a pattern: 1 + 3 + 1 + 5 + 2 = 12
        ([2, 0, 4, 1], 4, 12, [4, 4, 4, 1], [2, 0, 4, 1], [3, 1, 5, 2]),
        ([1], 1, 5, [1, 1], [1, 1], [2, 2]),
        ([9], 3, 1, [], [], []),
        ([9], 3, 2, [0], [0], [1]),
    ],
)
def test_steps_are_recorded_exactly(
    num_right: list[int], k: int, limit: int, proposed: list[int], accepted: list[int], emitted: list[int]
) -> None:
    decoded, drafter = run_script(num_right, k=k, limit=limit)
    assert decoded.steps is not None
    assert decoded.steps.proposed == proposed
    assert decoded.steps.accepted == drafter.settled == accepted
    assert decoded.steps.emitted == emitted
    assert decoded.num_target_forwards == 1 + len(proposed)
    assert not decoded.last_step_truncated
    assert drafter.limits == [count for count in proposed if count]
    assert decoded.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("prompt_tokens", [1, 2, 5, 30])
def test_the_limit_counts_new_tokens_whatever_the_prompt(prompt_tokens: int) -> None:
    decoded, _ = run_script([2, 0], k=3, limit=11, prompt=[n % VOCAB_SIZE for n in range(prompt_tokens)])
    assert len(decoded.tokens) == 11


def test_a_drafter_past_the_limit_is_cut_and_flagged() -> None:
    answer = greedy_continuation(TARGET, [1, 2, 3], 20)
    drafter = ScriptedDrafter(answer, [9], vocab_size=VOCAB_SIZE, width=6)
    decoded = Decoder(TARGET, cache=TARGET.new_cache(capacity=CAPACITY), drafter=drafter, k=6).decode(
        [1, 2, 3], sampling=GREEDY, max_new_tokens=4
    )
    assert decoded.tokens == answer[:4]
    assert decoded.steps is not None
    assert (decoded.steps.proposed, decoded.steps.accepted, decoded.steps.emitted) == ([6], [6], [3])
    assert decoded.last_step_truncated
    assert decoded.finish_reason is FinishReason.LENGTH


def prompt_with_distinct_answer(length: int) -> tuple[list[int], list[int]]:
    """A prompt whose greedy output starts with `length` different tokens, so that any can be EOS."""
    for first in range(VOCAB_SIZE):
        for second in range(VOCAB_SIZE):
            answer = greedy_continuation(TARGET, [first, second], 12)
            if len(set(answer[:length])) == length:
                return [first, second], answer
    raise AssertionError("no such prompt")


@pytest.mark.parametrize(
    ("place", "emitted", "truncated"),
    [
        # output: prefill token, then 3 accepted drafts and the target's own token
        (0, [], False),
        (1, [1], True),
        (2, [2], True),
        (3, [3], True),
        (4, [4], False),  # the target's own token, the last of its step
    ],
)
def test_eos_ends_the_output_where_it_stands(place: int, emitted: list[int], truncated: bool) -> None:
    prompt, answer = prompt_with_distinct_answer(5)
    drafter = ScriptedDrafter(answer, [9], vocab_size=VOCAB_SIZE)
    decoder = Decoder(TARGET, cache=TARGET.new_cache(capacity=CAPACITY), drafter=drafter, k=3)
    eos_ids = frozenset({answer[place], VOCAB_SIZE + 1})
    decoded = decoder.decode(prompt, sampling=GREEDY, max_new_tokens=12, eos_ids=eos_ids)
    assert decoded.tokens == answer[: place + 1]
    assert decoded.finish_reason is FinishReason.EOS
    assert decoded.last_step_truncated == truncated
    assert decoded.steps is not None
    assert decoded.steps.emitted == emitted
    assert decoded.steps.accepted == [3] * len(emitted)
    check_consistent(decoded, k=3)
    # the next sequence isn't touched by the cut
    assert decoder.decode(prompt, sampling=GREEDY, max_new_tokens=12).tokens == answer


def test_a_rejected_eos_ends_nothing() -> None:
    prompt, answer = prompt_with_distinct_answer(5)
    rejected = (answer[1] + 1) % VOCAB_SIZE
    drafter = ScriptedDrafter(answer, [0], vocab_size=VOCAB_SIZE)
    decoder = Decoder(TARGET, cache=TARGET.new_cache(capacity=CAPACITY), drafter=drafter, k=1)
    place = answer.index(rejected) + 1 if rejected in answer else len(answer)
    decoded = decoder.decode(
        prompt, sampling=GREEDY, max_new_tokens=len(answer), eos_ids=frozenset({rejected})
    )
    assert decoded.tokens == answer[:place]


def test_eos_on_the_limit_is_eos() -> None:
    prompt, answer = prompt_with_distinct_answer(5)
    decoded = Decoder(TARGET, cache=TARGET.new_cache(capacity=CAPACITY)).decode(
        prompt, sampling=GREEDY, max_new_tokens=5, eos_ids=frozenset({answer[4]})
    )
    assert (decoded.tokens, decoded.finish_reason) == (answer[:5], FinishReason.EOS)


@pytest.mark.parametrize("make_drafter", [None, target_as_drafter, NgramDrafter])
def test_prompt_and_output_must_fit_the_context(make_drafter: Callable[[], Drafter] | None) -> None:
    decoder = Decoder(
        TARGET, cache=TARGET.new_cache(capacity=16), drafter=make_drafter() if make_drafter else None, k=4
    )
    prompt = [1, 2, 3, 4, 5, 6]
    assert len(decoder.decode(prompt, sampling=GREEDY, max_new_tokens=10).tokens) == 10
    with pytest.raises(UnsupportedError, match="6 tokens and 11 new ones don't fit the context of 16"):
        decoder.decode(prompt, sampling=GREEDY, max_new_tokens=11)
