"""Drafters that know the target's greedy output and are right exactly as often as they're told."""

from __future__ import annotations

from collections.abc import Sequence

from harness.engine.drafters.base import Turn
from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal


class ScriptedDrafter:
    """Proposes one sequence's known output, made wrong behind the first `num_right[step]` tokens of a step.

    Args:
        answer: the target's greedy output.
        num_right: right tokens per step, repeated from its start when it ends.
        vocab_size: to find a wrong token in.
        width: tokens to propose whatever the limit says; None keeps to the limit.
    """

    def __init__(
        self, answer: Sequence[int], num_right: Sequence[int], *, vocab_size: int, width: int | None = None
    ) -> None:
        self._answer, self._num_right, self._vocab_size = list(answer), list(num_right), vocab_size
        self._width = width
        self.prompts: list[list[int]] = []
        self.limits: list[int] = []
        self.settled: list[int] = []

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        (prompt,) = prompts
        self.prompts.append(list(prompt))
        self.limits, self.settled = [], []

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        (turn,) = turns
        num_output = len(turn.tokens) - len(self.prompts[-1])
        assert list(turn.tokens) == self.prompts[-1] + self._answer[:num_output]
        right = self._num_right[len(self.limits) % len(self._num_right)]
        self.limits.append(turn.limit)
        drafted = self._answer[num_output : num_output + (self._width or turn.limit)]
        wrong = [(token + 1) % self._vocab_size for token in drafted[right:]]
        return [Proposal(drafted[:right] + wrong)]

    def settle(self, num_accepted: Sequence[int]) -> None:
        self.settled += num_accepted

    def keep(self, rows: Sequence[int]) -> None:
        raise AssertionError("one sequence never leaves a batch with others in it")
