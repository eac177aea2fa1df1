"""One bar over the whole sweep, and one line per finished variant; silent where nobody watches."""

from __future__ import annotations

import sys
from types import TracebackType

from tqdm import tqdm

from harness.metrics.intervals import Interval


def variant_line(cell: str, variant_id: str, speedup: Interval | None) -> str:
    """What is printed of a finished variant."""
    if speedup is None or speedup.estimate is None:
        return f"{cell}  {variant_id}: no speedup measured"
    spread = "" if speedup.low is None else f" [{speedup.low:.2f}, {speedup.high:.2f}]"
    return f"{cell}  {variant_id}: {speedup.estimate:.2f}x{spread}"


class SweepProgress:
    """Counts trials over all cells of a sweep.

    The total starts as every cell's least number of trials and grows when the stop rule asks for more.
    """

    def __init__(self, total: int = 0) -> None:
        """Open the bar; on anything but a terminal nothing is drawn."""
        self._bar = tqdm(total=total, unit="trial", disable=None, dynamic_ncols=True, smoothing=0.05)

    def __enter__(self) -> SweepProgress:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the bar."""
        self._bar.close()

    def describe(self, text: str) -> None:
        """Say what is being measured."""
        self._bar.set_description(text)

    def advance(self, trials: int = 1) -> None:
        """Count finished trials."""
        if self._bar.total is not None and self._bar.n + trials > self._bar.total:
            self._bar.total = self._bar.n + trials
        self._bar.update(trials)

    def drop(self, trials: int) -> None:
        """Take trials off the total that won't be needed."""
        if self._bar.total is not None:
            self._bar.total = max(self._bar.n, self._bar.total - trials)
            self._bar.refresh()

    def line(self, text: str) -> None:
        """Print one line above the bar, on a terminal only."""
        if sys.stderr.isatty():
            self._bar.write(text, file=sys.stderr)
