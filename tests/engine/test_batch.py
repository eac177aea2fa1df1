"""Sequences decoded together come out as they do alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from engine.random_models import all_logits, head_over, random_transformer

from harness.engine.drafters.base import Drafter
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.loop import Decoder, _survivors
from harness.engine.prefill import MOST_TOKENS, prefill_prompts, similar_lengths
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import Request
from harness.errors import UnsupportedError
from harness.records import Decoded, FinishReason

VOCAB_SIZE = 12
CAPACITY = 120
GREEDY, SAMPLED = SamplingParams(), SamplingParams(1.0, top_k=8)
TARGET = random_transformer(20, vocab_size=VOCAB_SIZE, num_layers=2)
DRAFT_MODEL = random_transformer(20, vocab_size=VOCAB_SIZE, num_layers=2, noise=0.2)
EOS = frozenset({3})
REQUESTS = [
    Request([5], 25, 1),
    Request([7, 2] * 50, 20, 2),  # a hundred times as long, and up to the last token of the cache
    Request([3, 3], 1, 3),  # ends with its prefill
    Request([1, 2, 3, 4, 5, 6, 7], 12, 4),
    Request([0, 9, 0, 9, 11, 0, 9] * 4, 30, 5),
    Request([8, 1], 2, 6),
    Request([4, 4, 1], 40, 7),
]


def no_drafter(batch: int) -> None:
    return None


def independent(batch: int) -> Drafter:
    return IndependentDrafter(DRAFT_MODEL, cache=DRAFT_MODEL.new_cache(batch=batch, capacity=CAPACITY))


def reduced(batch: int) -> Drafter:
    vocab = torch.tensor([7, 2, 9, 0, 4, 11, 5])
    cache = TARGET.new_cache(batch=batch, capacity=CAPACITY)
    return IndependentDrafter(TARGET, cache=cache, head=head_over(TARGET, vocab), vocab=vocab)


def ngram(batch: int) -> Drafter:
    return NgramDrafter()


def decoder(make_drafter: Callable[[int], Drafter | None], batch: int, k: int) -> Decoder:
    cache = TARGET.new_cache(batch=batch, capacity=CAPACITY)
    return Decoder(TARGET, cache=cache, drafter=make_drafter(batch), k=k)


def what_happened(decoded: Decoded) -> tuple[object, ...]:
    steps = decoded.steps
    assert steps is not None
    counts = (steps.proposed, steps.accepted, steps.emitted)
    return decoded.tokens, decoded.finish_reason, decoded.last_step_truncated, *counts


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    ("make_drafter", "k"), [(no_drafter, 0), (independent, 1), (independent, 4), (reduced, 3), (ngram, 4)]
)
def test_each_sequence_is_what_it_is_alone(
    make_drafter: Callable[[int], Drafter | None], k: int, sampling: SamplingParams
) -> None:
    single, together = decoder(make_drafter, 1, k), decoder(make_drafter, len(REQUESTS), k)
    alone = [single.decode_batch([one], sampling=sampling, eos_ids=EOS)[0] for one in REQUESTS]
    # twice, and then a smaller batch in the same caches: nothing may be left of the batch before
    for requests in (REQUESTS, REQUESTS, REQUESTS[3:6]):
        found = together.decode_batch(requests, sampling=sampling, eos_ids=EOS)
        expected = [alone[REQUESTS.index(request)] for request in requests]
        assert list(map(what_happened, found)) == list(map(what_happened, expected))
    assert {decoded.finish_reason for decoded in alone} == {FinishReason.EOS, FinishReason.LENGTH}


def test_a_batch_shares_its_first_token_time_and_its_steps() -> None:
    found = decoder(independent, 3, 2).decode_batch(
        [Request([1, 2], limit, seed) for seed, limit in enumerate((1, 9, 30))], sampling=GREEDY
    )
    assert len({decoded.ttft_s for decoded in found}) == 1
    first, short, long = found
    assert first.decode_s == 0.0
    assert 0.0 < short.decode_s < long.decode_s
    assert short.steps is not None
    assert long.steps is not None
    shared = len(short.steps.verify_s)
    assert short.steps.verify_s == long.steps.verify_s[:shared]
    assert short.steps.draft_s == long.steps.draft_s[:shared]
    assert sum(long.steps.draft_s) + sum(long.steps.verify_s) <= long.decode_s


def test_more_sequences_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"3 sequences .* room for 2\. Lower batch_size"):
        decoder(no_drafter, 2, 0).decode_batch([Request([1], 2)] * 3, sampling=GREEDY)


@pytest.mark.parametrize(
    ("ended", "rows"),
    [
        ([False, False, False], [0, 1, 2]),
        ([True, False, False], [2, 1]),
        ([False, True, False, True, False], [0, 4, 2]),
        ([True, True, False, False], [2, 3]),
        ([False, True], [0]),
        ([True, True], []),
    ],
)
def test_the_last_sequences_fill_the_gaps(ended: list[bool], rows: list[int]) -> None:
    assert _survivors(ended) == rows


def test_kept_sequences_go_on_from_where_they_were() -> None:
    prompts = [[1, 2, 3], [4, 5, 6, 7, 8], [9, 10], [11, 0, 1, 2]]
    cache = TARGET.new_cache(batch=4, capacity=12)
    with torch.inference_mode():
        prefill_prompts(TARGET, prompts, cache)
        cache.keep([3, 1])
        assert cache.lengths == [4, 5]
        hidden = TARGET.feed([[6], [7, 8]], cache)
        expected = [
            all_logits(TARGET, torch.tensor([tokens]))[0, -1]
            for tokens in ([*prompts[3], 6], [*prompts[1], 7, 8])
        ]
        torch.testing.assert_close(TARGET.head(hidden), torch.stack(expected))


def test_padding_of_a_full_sequence_harms_nobody() -> None:
    cache = TARGET.new_cache(batch=2, capacity=6)
    prompts = [[1, 2, 3, 4, 5], [6]]
    with torch.inference_mode():
        prefill_prompts(TARGET, prompts, cache)
        hidden = TARGET.feed([[7], [8, 9, 10, 11]], cache)
        expected = [
            all_logits(TARGET, torch.tensor([tokens]))[0, -1]
            for tokens in ([1, 2, 3, 4, 5, 7], [6, 8, 9, 10, 11])
        ]
        torch.testing.assert_close(TARGET.head(hidden), torch.stack(expected))


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [
        ([7], [(0, 1)]),
        ([5, 5, 5], [(0, 3)]),
        ([1, 100], [(0, 1), (1, 2)]),
        ([8, 9, 10, 100, 110], [(0, 3), (3, 5)]),
        ([0, 0, 3], [(0, 2), (2, 3)]),
        ([MOST_TOKENS, MOST_TOKENS], [(0, 1), (1, 2)]),
    ],
)
def test_prompts_of_similar_length_are_read_together(
    lengths: list[int], groups: list[tuple[int, int]]
) -> None:
    assert list(similar_lengths(lengths)) == groups
