"""What a rule finds, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness.findings.tables import Tables

Figure = float | int | str | None


class Topic(StrEnum):
    """What a finding is about: the speculation that was measured, or how far its numbers can be trusted."""

    SPECULATION = "speculation"
    MEASUREMENT = "measurement"


class Confidence(StrEnum):
    """How well a finding is founded.

    `COUNTED` is a fact and no estimate. `CLEAR`: the whole 95% interval lies beyond the threshold. `LIKELY`:
    the estimate does, but its interval reaches back, or it has none.
    """

    COUNTED = "counted"
    CLEAR = "clear"
    LIKELY = "likely"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One place where a rule's condition holds.

    Attributes:
        cell_id: the cell.
        variant_id: the variant; None where it concerns the whole cell.
        text: what the numbers say there, a sentence.
        figures: the numbers behind it, by name; units end a name.
        confidence: how well it is founded.
        next_step: where it differs from the rule's.
    """

    cell_id: str
    variant_id: str | None
    text: str
    figures: Mapping[str, Figure]
    confidence: Confidence
    next_step: str | None = None


Search = Callable[[Tables], Iterable[Sighting]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A known trouble and how to see it.

    Attributes:
        name: identifier.
        title: what it means, as a heading.
        topic: see `Topic`.
        threshold: from when on it counts, in words.
        next_step: what to do about it.
        search: yields the places where it holds.
        reads_rows: whether it looks at single observations, each cell by itself.
    """

    name: str
    title: str
    topic: Topic
    threshold: str
    next_step: str
    search: Search
    reads_rows: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule with a place where it holds."""

    rule: Rule
    sighting: Sighting

    @property
    def next_step(self) -> str:
        """What to do about it."""
        return self.sighting.next_step or self.rule.next_step


def rule(
    *, title: str, topic: Topic, threshold: str, next_step: str, reads_rows: bool = False
) -> Callable[[Search], Rule]:
    """Make a rule of a search, named as its function."""

    def made(search: Search) -> Rule:
        return Rule(search.__name__, title, topic, threshold, next_step, search, reads_rows)

    return made


def beyond(threshold: float, *, low: float | None, high: float | None, below: bool) -> Confidence:
    """Whether a whole interval lies below (or above) a threshold that its estimate is beyond."""
    end = high if below else low
    if end is None:
        return Confidence.LIKELY
    return Confidence.CLEAR if (end < threshold if below else end > threshold) else Confidence.LIKELY
