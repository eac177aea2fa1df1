"""Engine sessions shared by the cells of a sweep."""

from __future__ import annotations

from typing import Any

from harness.backends.base import EngineSettings, Session
from harness.runner.plan import CellPlan


class SessionPool:
    """Keeps the last engine session open, as the cells of a sweep mostly share it.

    One at a time: two engines would compete for memory and cores.
    """

    def __init__(self) -> None:
        """Start with no session."""
        self._key: tuple[Any, EngineSettings] | None = None
        self._session: Session | None = None

    def get(self, plan: CellPlan) -> tuple[Session, bool]:
        """The session a plan needs, and whether it was opened just now.

        Raises:
            HarnessError: the engine doesn't start.
        """
        key = (plan.backend, plan.engine)
        if self._session is not None and key == self._key:
            return self._session, False
        self.close()
        self._session = plan.backend.open(plan.engine)
        self._key = key
        return self._session, True

    def close(self) -> None:
        """Close the open session, if any."""
        if self._session is not None:
            self._session.close()
        self._session, self._key = None, None
