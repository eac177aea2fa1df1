"""Corpus answers as padded training batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.training.corpus import Answer


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded sequences with the positions at which the target's probabilities are known.

    Attributes:
        tokens: [rows, longest] int64, padded on the right; causal attention never looks there.
        where: ([positions], [positions]) row and column whose output predicts an answer token.
        top_columns: [positions, top] int64 column of each likely token in the reduced vocabulary;
            -1 where it isn't part of it.
        top_probs: [positions, top] float32 the target's probabilities at temperature 1.
        features: [rows, longest, hidden] float16, the target's last hidden states; None where the
            answers come without.
    """

    tokens: Tensor
    where: tuple[Tensor, Tensor]
    top_columns: Tensor
    top_probs: Tensor
    features: Tensor | None = None

    def from_column(self, first: int) -> Batch:
        """The same batch without the positions that lie before a column."""
        kept = self.where[1] >= first
        if bool(kept.all()):
            return self
        rows, columns = self.where
        return replace(
            self,
            where=(rows[kept], columns[kept]),
            top_columns=self.top_columns[kept],
            top_probs=self.top_probs[kept],
        )


def frequent_tokens(
    answers: Sequence[Answer], *, size: int, always: frozenset[int], vocab_size: int
) -> NDArray[np.int32]:
    """Rank tokens by how often the target produces them.

    Args:
        answers: the corpus.
        size: tokens to keep.
        always: tokens to keep in any case, such as the end of sequence.
        vocab_size: of the target; tokens never seen fill the rest in the order of their ids.

    Returns:
        [size] int32 ids, most frequent first; no id comes twice.
    """
    counts: Counter[int] = Counter()
    for answer in answers:
        counts.update(answer.answer_tokens.tolist())
    ranked = [*sorted(always), *(token for token, _ in counts.most_common() if token not in always)]
    unseen = (token for token in range(vocab_size) if token not in counts and token not in always)
    while len(ranked) < size:
        ranked.append(next(unseen))
    return np.array(ranked[:size], dtype=np.int32)


class BatchMaker:
    """Cuts prompts, groups answers of similar length and pads them.

    Args:
        draft_vocab: [size] ids of the reduced vocabulary.
        vocab_size: of the target.
        max_prompt_tokens: longer prompts lose their beginning.
        tokens_per_batch: padded tokens a batch may hold.
    """

    def __init__(
        self,
        draft_vocab: NDArray[np.int32],
        *,
        vocab_size: int,
        max_prompt_tokens: int,
        tokens_per_batch: int,
    ) -> None:
        """See the class."""
        self._columns = torch.full((vocab_size,), -1, dtype=torch.int64)
        self._columns[torch.from_numpy(draft_vocab.astype(np.int64))] = torch.arange(len(draft_vocab))
        self._max_prompt = max_prompt_tokens
        self._budget = tokens_per_batch

    def epoch(self, answers: Sequence[Answer], *, seed: int) -> Iterator[Batch]:
        """Every answer once, in random batches of similar length."""
        rng = np.random.default_rng(seed)
        # jitter breaks ties differently in each epoch, so batches aren't always the same
        lengths = np.array([self._length(answer) for answer in answers]) + rng.uniform(0, 12, len(answers))
        groups: list[list[Answer]] = [[]]
        for index in np.argsort(lengths):
            answer = answers[int(index)]
            if groups[-1] and (len(groups[-1]) + 1) * self._length(answer) > self._budget:
                groups.append([])
            groups[-1].append(answer)
        for place in rng.permutation(len(groups)):
            yield self.batch(groups[int(place)])

    def batch(self, answers: Sequence[Answer]) -> Batch:
        """Pad some answers into one batch."""
        longest = max(self._length(answer) for answer in answers)
        tokens = torch.zeros((len(answers), longest), dtype=torch.int64)
        rows, columns = [], []
        for row, answer in enumerate(answers):
            kept = answer.tokens[self._dropped(answer) : -1]
            tokens[row, : len(kept)] = torch.from_numpy(kept.astype(np.int64))
            size = len(answer.answer_tokens)
            rows.append(torch.full((size,), row))
            columns.append(torch.arange(len(kept) - size, len(kept)))
        top = np.concatenate([answer.top_tokens for answer in answers]).astype(np.int64)
        logprobs = np.concatenate([answer.top_logprobs for answer in answers]).astype(np.float32)
        return Batch(
            tokens=tokens,
            where=(torch.cat(rows), torch.cat(columns)),
            top_columns=self._columns[torch.from_numpy(top)],
            top_probs=torch.from_numpy(np.exp(logprobs)),
            features=_padded_features(answers, longest),
        )

    def _dropped(self, answer: Answer) -> int:
        return max(0, answer.prompt_tokens - self._max_prompt)

    def _length(self, answer: Answer) -> int:
        return len(answer.tokens) - self._dropped(answer) - 1


def _padded_features(answers: Sequence[Answer], longest: int) -> Tensor | None:
    known = [answer.features for answer in answers if answer.features is not None]
    if len(known) < len(answers):
        return None
    padded = torch.zeros((len(answers), longest, known[0].shape[1]), dtype=torch.float16)
    for row, features in enumerate(known):
        padded[row, : len(features)] = torch.from_numpy(np.ascontiguousarray(features))
    return padded
