from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.drafters.base import Turn
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.sampling import SamplingParams

GENERATOR = torch.Generator()


def propose(drafter: NgramDrafter, tokens: list[int], limit: int) -> list[int]:
    (proposal,) = drafter.propose([Turn(tokens, limit, GENERATOR)], sampling=SamplingParams())
    assert proposal.probs is None
    assert proposal.vocab is None
    return list(proposal.tokens)


def search(tokens: list[int], limit: int, *, min_ngram: int, max_ngram: int) -> list[int]:
    """Longest suffix first; the latest earlier place where it stands, followed by at least one token."""
    for size in range(max_ngram, min_ngram - 1, -1):
        for end in range(len(tokens) - 1, size - 1, -1):
            if tokens[end - size : end] == tokens[len(tokens) - size :]:
                return tokens[end : end + limit]
    return []


def test_the_longest_match_beats_a_later_shorter_one() -> None:
    drafter = NgramDrafter(min_ngram=1, max_ngram=2)
    tokens = [1, 2, 7, 8, 9, 2, 5, 1, 2]
    drafter.begin([tokens])
    assert propose(drafter, tokens, 3) == [7, 8, 9]


def test_the_latest_of_equal_matches_is_copied() -> None:
    drafter = NgramDrafter(min_ngram=1, max_ngram=3)
    tokens = [4, 5, 6, 0, 4, 5, 9, 0, 4, 5]
    drafter.begin([tokens])
    assert propose(drafter, tokens, 2) == [9, 0]


def test_a_copy_ends_with_the_sequence() -> None:
    drafter = NgramDrafter()
    drafter.begin([[3, 3]])
    assert propose(drafter, [3, 3], 5) == [3]


def test_no_match_proposes_nothing() -> None:
    drafter = NgramDrafter(min_ngram=2, max_ngram=3)
    drafter.begin([[1, 2, 3, 1]])
    assert propose(drafter, [1, 2, 3, 1], 4) == []
    drafter.begin([[1]])
    assert propose(drafter, [1], 4) == []


def test_begin_forgets_the_sequence_before() -> None:
    drafter = NgramDrafter()
    drafter.begin([[1, 2, 3, 4, 5]])
    assert propose(drafter, [1, 2, 3, 4, 5, 2], 2) == [3, 4]
    drafter.begin([[9, 2]])
    assert propose(drafter, [9, 2], 2) == []
    assert propose(drafter, [9, 2, 8, 2], 2) == [8, 2]


sequences = st.lists(st.integers(0, 3), min_size=1, max_size=40)
sizes = st.tuples(st.integers(1, 3), st.integers(0, 2)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(
    sequences,
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=8),
    sizes,
    st.integers(1, 5),
)
def test_a_growing_sequence_equals_searching_it(
    prompt: list[int], growth: list[list[int]], sizes: tuple[int, int], limit: int
) -> None:
    min_ngram, max_ngram = sizes
    drafter = NgramDrafter(min_ngram=min_ngram, max_ngram=max_ngram)
    drafter.begin([prompt])
    tokens = list(prompt)
    for more in [[], *growth]:
        tokens += more
        assert propose(drafter, tokens, limit) == search(
            tokens, limit, min_ngram=min_ngram, max_ngram=max_ngram
        )
        drafter.settle([0])


@given(sequences, sequences)
def test_a_used_drafter_equals_a_new_one(first: list[int], second: list[int]) -> None:
    used, new = NgramDrafter(), NgramDrafter()
    used.begin([first])
    propose(used, [*first, *second], 3)
    for drafter in (used, new):
        drafter.begin([second])
    assert propose(used, second, 3) == propose(new, second, 3)
