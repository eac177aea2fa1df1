"""The section on batch size: where speculation stops paying, and what a batch does to rate and latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from harness.reports import plots
from harness.reports.blocks import Bullets, Column, Figures, Key, Section, Table, entry
from harness.reports.display import count, milliseconds, number, rate, ratio, size
from harness.reports.drawing import SPEEDUP_MEASURE, drawn, point_of
from harness.reports.labels import Row, phrase, variant_label
from harness.reports.language import say
from harness.reports.plots import Line, Point
from harness.reports.svg import Style
from harness.reports.sweep import Sweep
from harness.reports.words import Verdict, interval_text, joined, verdict

IDENTIFIER, TITLE = "batches", "Batch size"
_LEAD = (
    "The larger the batch, the more of the machine plain decoding keeps busy, and the less room is left for "
    "verifying drafts. Filled marks are where speculation stops paying: from that batch size on the whole "
    "interval lies below 1. The second drawing sets what all users get together against what each one waits."
)


@dataclass(frozen=True, slots=True)
class Course:
    """One variant over the batch sizes, all else equal.

    Attributes:
        panel: what else differs between the cells; empty where nothing does.
        name: the variant.
        style: how it is drawn, the same in every panel.
        rows: summary rows by batch size, smallest first.
    """

    panel: str
    name: str
    style: Style
    rows: tuple[Row, ...]

    @property
    def label(self) -> str:
        """Panel and name."""
        return " · ".join(part for part in (self.panel, self.name) if part)

    @property
    def is_baseline(self) -> bool:
        """Whether nothing is drafted."""
        return bool(self.rows[0]["is_baseline"])

    @property
    def crossing(self) -> Row | None:
        """The first row from which on every interval lies below 1; None where the last one doesn't."""
        found = None
        for row in reversed(self.rows):
            if verdict(row) is not Verdict.COSTS:
                break
            found = row
        return found


def batches_section(sweep: Sweep) -> Section:
    """Speedup over the batch size with the crossing marked, and throughput against latency."""
    if "batch_size" not in sweep.varying:
        reason = "All cells have the same batch size."
        return Section(IDENTIFIER, TITLE, omitted=reason, measure="+sweep=batch")
    found = courses(sweep)
    drafting = [course for course in found if not course.is_baseline and _judged(course)]
    if not drafting:
        return Section(IDENTIFIER, TITLE, omitted="No variant has a speedup.")
    items = []
    for place, panel in enumerate(dict.fromkeys(course.panel for course in drafting)):
        within = [course for course in found if course.panel == panel]
        speedups = _speedup_drawing([course for course in within if course in drafting])
        title = "Speedup by batch size"
        items.append(drawn(speedups, f"{IDENTIFIER}-speedup-{place}", title=title, note=panel))
        title = "Throughput against latency"
        items.append(
            drawn(_tradeoff_drawing(within), f"{IDENTIFIER}-tradeoff-{place}", title=title, note=panel)
        )
    styles = {course.name: course.style for course in found}
    keys = [Key(style.swatch(name, line=True), name) for name, style in styles.items()]
    told = Bullets([_told(course) for course in drafting], title="Where it stops paying")
    return Section(IDENTIFIER, TITLE, _LEAD, [told, Figures(items, keys, _table(found))])


def courses(sweep: Sweep) -> list[Course]:
    """Every variant over the batch sizes, one course per combination of the other facts."""
    others = [name for name in sweep.varying if name != "batch_size"]
    grouped: dict[tuple[str, str], list[Row]] = {}
    for row in sweep.variants:
        panel = " · ".join(phrase(name, row.get(name)) for name in others)
        grouped.setdefault((panel, variant_label(row)), []).append(row)
    styles: dict[str, Style] = {}
    return [
        Course(panel, name, styles.setdefault(name, Style(len(styles))), tuple(sorted(rows, key=_batch)))
        for (panel, name), rows in grouped.items()
    ]


def _judged(course: Course) -> list[Row]:
    return [row for row in course.rows if number(row.get("speedup")) is not None]


def _batch(row: Row) -> float:
    return number(row.get("batch_size")) or 0.0


def _speedup_drawing(drafting: Sequence[Course]) -> Figure:
    drawn_lines = [
        Line(
            course.name,
            course.style,
            tuple(
                point_of(row, math.log2(_batch(row)), SPEEDUP_MEASURE, chosen=row is course.crossing)
                for row in _judged(course)
            ),
        )
        for course in drafting
    ]
    scale = SPEEDUP_MEASURE.scale.shared(drawn_lines)
    return plots.lines(drawn_lines, x_label="sequences in a batch", scale=scale, tick_text=_batch_of)


def _batch_of(log2_batch: float) -> str:
    return f"{round(2**log2_batch):d}"


def _tradeoff_drawing(found: Sequence[Course]) -> Figure:
    drawn_lines = []
    for course in found:
        pairs = [
            (number(row.get("tpot_p50_s")), number(row.get("throughput_tok_per_s"))) for row in course.rows
        ]
        points = tuple(
            Point(1000 * wait, speed) for wait, speed in pairs if wait is not None and speed is not None
        )
        drawn_lines.append(Line(course.name, course.style, points))
    labels = "ms per token of a sequence, median", "tokens per second, all sequences"
    return plots.tradeoff([line for line in drawn_lines if line.points], x_label=labels[0], y_label=labels[1])


def _told(course: Course) -> str:
    """Where one variant pays and where it stops, in a sentence."""
    judged = _judged(course)
    pays = [count(_batch(row)) for row in judged if verdict(row) is Verdict.PAYS]
    lead = f"{course.label}: " + (
        say("faster at batch {batches}", batches=joined(pays)) if pays else say("nowhere clearly faster")
    )
    if course.crossing is None:
        return say("{lead}; the largest batch measured doesn't clearly cost.", lead=lead)
    return say(
        "{lead}; from batch {batch} on it costs ({speedup}).",
        lead=lead,
        batch=count(_batch(course.crossing)),
        speedup=interval_text(course.crossing),
    )


def _table(found: Sequence[Course]) -> Table:
    columns = [
        Column("variant", numeric=False),
        Column("batch"),
        Column("speedup"),
        Column("throughput tok/s"),
        Column("times batch 1", hint="throughput over the same variant's at the smallest batch"),
        Column("ms per token", hint="median over sequences"),
        Column("peak memory"),
        Column("prompts"),
    ]
    body = []
    for course in found:
        first = number(course.rows[0].get("throughput_tok_per_s"))
        for row in course.rows:
            speed = number(row.get("throughput_tok_per_s"))
            growth = speed / first if speed is not None and first else None
            texts = (
                course.label,
                count(_batch(row)),
                interval_text(row),
                rate(speed),
                ratio(growth),
                milliseconds(row.get("tpot_p50_s")),
                size(row.get("peak_memory_bytes")),
                count(row["num_prompts"]),
            )
            body.append([entry(text) for text in texts])
    return Table("By batch size, in numbers", columns, body, collapsed=True)
