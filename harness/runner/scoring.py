"""Asking the target about finished outputs, within a budget of seconds."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from harness.backends.base import Scorer, ScoreRequest, Session
from harness.errors import UnsupportedError
from harness.records import Scored
from harness.runner.plan import CellPlan


class BudgetedScorer:
    """Scores outputs and counts the seconds; whoever asks stops when they are used up.

    Attributes:
        seconds: spent so far.
    """

    def __init__(self, session: Session, plan: CellPlan) -> None:
        """Take the session that measured the cell, with its target loaded."""
        self._session, self._settings = session, plan.decoding
        self._prompts = {prompt.prompt_id: prompt.tokens for prompt in plan.prompts}
        self._max_time_s = plan.config.measure.lossless.max_time_s
        self.seconds = 0.0
        self._refusal: str | None = None
        if not isinstance(session, Scorer):
            self._refusal = f"the {plan.config.backend.name} backend doesn't score tokens"

    @property
    def is_spent(self) -> bool:
        """Whether the time is used up."""
        return self.seconds >= self._max_time_s

    @property
    def reason(self) -> str | None:
        """Why outputs stay without a score, None as long as they don't."""
        if self._refusal is not None:
            return self._refusal
        spent = f"the check's {self._max_time_s:g} s were used up: raise measure.lossless.max_time_s"
        return spent if self.is_spent else None

    def score(
        self, prompt_id: str, tokens: Sequence[int], *, alternatives: Sequence[tuple[int, int]] = ()
    ) -> Scored | None:
        """What the target makes of one output; None where the engine can't tell."""
        if self._refusal is not None or not isinstance(self._session, Scorer):
            return None
        start = perf_counter()
        try:
            request = ScoreRequest(self._prompts[prompt_id], tokens, alternatives)
            return self._session.score(request, self._settings)
        except UnsupportedError as error:
            self._refusal = str(error)
            return None
        finally:
            self.seconds += perf_counter() - start
