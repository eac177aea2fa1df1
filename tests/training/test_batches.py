from __future__ import annotations

import numpy as np
import pytest
import torch
from training.tiny_corpus import answer

from harness.training.batches import BatchMaker, frequent_tokens
from harness.training.corpus import Answer

VOCAB_SIZE = 50
DRAFT_VOCAB = np.array([7, 3, 41, 9, 0, 22, 11], dtype=np.int32)


@pytest.fixture
def corpus() -> list[Answer]:
    rng = np.random.default_rng(0)
    return [
        answer(
            rng.integers(0, VOCAB_SIZE, size=prompt).tolist(),
            rng.integers(0, VOCAB_SIZE, size=size).tolist(),
            vocab_size=VOCAB_SIZE,
        )
        for prompt, size in ((3, 5), (9, 1), (1, 4), (12, 7), (2, 2), (6, 6), (30, 3))
    ]


def maker(**settings: int) -> BatchMaker:
    chosen = {"vocab_size": VOCAB_SIZE, "max_prompt_tokens": 10, "tokens_per_batch": 40, **settings}
    return BatchMaker(DRAFT_VOCAB, **chosen)


def test_tokens_rank_by_how_often_the_target_wrote_them() -> None:
    corpus = [answer([9, 9, 9, 9], [5, 7, 5]), answer([1], [5, 7, 30])]
    ranked = frequent_tokens(corpus, size=3, always=frozenset(), vocab_size=VOCAB_SIZE)
    assert (ranked.tolist(), ranked.dtype) == ([5, 7, 30], np.int32)


def test_end_tokens_are_kept_and_unseen_ones_fill_up() -> None:
    corpus = [answer([9], [5, 7, 5])]
    ranked = frequent_tokens(corpus, size=6, always=frozenset({2, 7}), vocab_size=VOCAB_SIZE)
    assert ranked.tolist() == [2, 7, 5, 0, 1, 3]
    assert frequent_tokens(corpus, size=2, always=frozenset({2}), vocab_size=VOCAB_SIZE).tolist() == [2, 5]


def test_the_whole_vocabulary_is_a_permutation(corpus: list[Answer]) -> None:
    ranked = frequent_tokens(corpus, size=VOCAB_SIZE, always=frozenset({2}), vocab_size=VOCAB_SIZE)
    assert sorted(ranked.tolist()) == list(range(VOCAB_SIZE))


def test_each_position_predicts_the_answer_token_after_it(corpus: list[Answer]) -> None:
    """Against a loop over tokens: what stands before, what comes next, and what the target thought of it."""
    batch = maker().batch(corpus)
    columns = {token: column for column, token in enumerate(DRAFT_VOCAB.tolist())}
    position = 0
    for row, one in enumerate(corpus):
        tokens = one.tokens.tolist()
        first_kept = max(0, one.prompt_tokens - 10)
        for index, token in enumerate(one.answer_tokens.tolist()):
            place = one.prompt_tokens + index
            column = int(batch.where[1][position])
            assert int(batch.where[0][position]) == row
            seen = batch.tokens[row, : column + 1].tolist()
            assert seen == tokens[first_kept:place]
            assert tokens[place] == token
            likely = one.top_tokens[index].tolist()
            assert likely[0] == token
            assert batch.top_columns[position].tolist() == [columns.get(t, -1) for t in likely]
            expected = np.exp(one.top_logprobs[index].astype(np.float32))
            assert batch.top_probs[position].tolist() == pytest.approx(expected.tolist())
            position += 1
    assert position == len(batch.where[0]) == len(batch.where[1]) == len(batch.top_columns)


def test_padding_comes_after_all_that_is_read(corpus: list[Answer]) -> None:
    batch = maker().batch(corpus)
    lengths = [min(one.prompt_tokens, 10) + len(one.answer_tokens) - 1 for one in corpus]
    assert batch.tokens.shape == (len(corpus), max(lengths))
    for row, length in enumerate(lengths):
        assert batch.tokens[row, length:].eq(0).all()
        assert batch.where[1][batch.where[0] == row].max() == length - 1


def test_an_epoch_has_every_answer_once(corpus: list[Answer]) -> None:
    seen = [
        tuple(row[: int(batch.where[1][batch.where[0] == index].max()) + 1].tolist())
        for batch in maker().epoch(corpus, seed=3)
        for index, row in enumerate(batch.tokens)
    ]
    expected = [tuple(one.tokens[max(0, one.prompt_tokens - 10) : -1].tolist()) for one in corpus]
    assert sorted(seen) == sorted(expected)


def test_batches_keep_to_the_budget_and_depend_on_the_seed(corpus: list[Answer]) -> None:
    batches = list(maker().epoch(corpus * 5, seed=1))
    # lengths are jittered by up to twelve before they are sorted, which may pad a row by as much
    assert all(batch.tokens.numel() <= 40 + 12 * len(batch.tokens) for batch in batches)
    assert max(len(batch.tokens) for batch in batches) > 3
    again = list(maker().epoch(corpus * 5, seed=1))
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(batches, again, strict=True))
    shapes = [batch.tokens.shape for batch in batches]
    assert shapes != [batch.tokens.shape for batch in maker().epoch(corpus * 5, seed=2)]


def test_an_answer_above_the_budget_is_a_batch_of_its_own(corpus: list[Answer]) -> None:
    batches = list(maker(tokens_per_batch=1).epoch(corpus, seed=0))
    assert [len(batch.tokens) for batch in batches] == [1] * len(corpus)
