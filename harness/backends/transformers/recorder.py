"""What Transformers' assisted generation drafts and accepts, noted while it runs: it returns none of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.records import Steps


class StepRecorder:
    """Watches one `generate` call through its streamer and its candidate generator.

    It is handed to `generate` as the streamer, which receives the prompt first and then every burst of tokens
    as soon as it stands.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Take a clock that waits for the device."""
        self._clock = clock
        self._candidate: list[int] | None = None
        self._draft_s = 0.0
        self._started_s = clock()
        self._last_s = self._started_s
        self._num_put = 0
        self.arrivals_s: list[float] = []
        """When each burst of tokens stood."""
        self.steps = Steps()
        """Every forward of the target that followed a draft, the one with the prompt included."""

    def put(self, tokens: Any) -> None:
        """Take a burst; the first one is the prompt."""
        self._num_put += 1
        if self._num_put == 1:
            return
        now = self._clock()
        self.arrivals_s.append(now)
        if self._candidate is not None:
            self._add_step(tokens.reshape(-1).tolist(), now - self._last_s)
            self._candidate = None
        elif len(self.arrivals_s) > 1:
            self.steps.add(
                proposed=0, accepted=0, emitted=int(tokens.numel()), draft_s=0.0, verify_s=now - self._last_s
            )
        self._last_s = now

    def end(self) -> None:
        """Part of the streamer's interface; nothing is left to do."""

    def watch(self, generator: Any) -> Any:
        """Note what a candidate generator drafts, and when; it drafts as before."""
        draft = generator.get_candidates

        def get_candidates(input_ids: Any, *args: Any, **options: Any) -> Any:
            start = self._clock()
            found = draft(input_ids, *args, **options)
            self._last_s = self._clock()
            self._draft_s = self._last_s - start
            self._candidate = found[0][0, input_ids.shape[1] :].tolist()
            return found

        generator.get_candidates = get_candidates
        return generator

    def _add_step(self, stood: list[int], verify_s: float) -> None:
        drafted = self._candidate or []
        # The last token that stood is the target's own, unless EOS or the limit cut the step at a drafted
        # one: a token that replaces a refused one always differs from it.
        last = len(stood) - 1
        was_cut = last < len(drafted) and drafted[last] == stood[last]
        self.steps.add(
            proposed=len(drafted),
            accepted=last + was_cut,
            emitted=len(stood),
            draft_s=self._draft_s,
            verify_s=verify_s,
        )

    @property
    def last_step_truncated(self) -> bool:
        """Whether the last step let fewer tokens out than stood."""
        steps = self.steps
        return bool(steps.emitted) and steps.emitted[-1] < steps.accepted[-1] + 1
