"""The order of the page: the decision first, then what it rests on, then the detail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from harness.privacy import clipped
from harness.reports.batches import batches_section
from harness.reports.blocks import Page, Section
from harness.reports.breakdown import prediction_section, split_section, tasks_section
from harness.reports.capacity import Advice, capacity_section
from harness.reports.cautions import is_simulated
from harness.reports.ceiling import ceiling_section
from harness.reports.curves import acceptance_section, positions_section, speedup_section
from harness.reports.engines import engines_section
from harness.reports.excerpt import excerpted, overview_section
from harness.reports.findings import findings_section
from harness.reports.glossary import glossary_section
from harness.reports.language import say
from harness.reports.listings import results_section
from harness.reports.losslessness import lossless_section
from harness.reports.methods import methods_section
from harness.reports.pacing import pacing_section
from harness.reports.provenance import environment_section, failures_section
from harness.reports.quantization import quantization_section
from harness.reports.summary import subtitle, summary_section
from harness.reports.sweep import Sweep
from harness.reports.timings import cold_start_section, efficiency_section, latency_section
from harness.reports.trees import trees_section
from harness.reports.words import headline

_Sections = tuple[Callable[[Sweep], Section], ...]
_EVIDENCE: _Sections = (
    summary_section,
    speedup_section,
    acceptance_section,
    positions_section,
    tasks_section,
    methods_section,
    trees_section,
    ceiling_section,
    pacing_section,
    batches_section,
    quantization_section,
    engines_section,
    prediction_section,
    split_section,
    latency_section,
    cold_start_section,
)
_DETAIL: _Sections = (
    lossless_section,
    findings_section,
    failures_section,
    results_section,
    efficiency_section,
    environment_section,
)

_OF_EVERY_CELL = (summary_section, findings_section, failures_section, environment_section)


def page_of(sweep: Sweep, *, advice: Sequence[Advice] = ()) -> Page:
    """Everything the report says, ready to lay out.

    Args:
        sweep: what was measured.
        advice: of the capacity plan, where one was made.
    """
    told = headline(sweep.series)
    return Page(
        title=say("Speculative decoding: {name}", name=clipped(sweep.name, 80)),
        subtitle=subtitle(sweep),
        headline=say("Simulated, not measured. {told}", told=told) if is_simulated(sweep) else told,
        sections=[
            *_sections(sweep, _EVIDENCE),
            capacity_section(sweep, advice),
            *_sections(sweep, _DETAIL),
            glossary_section(),
        ],
    )


def _sections(sweep: Sweep, wanted: _Sections) -> Iterator[Section]:
    for section in wanted:
        if section in _OF_EVERY_CELL or not sweep.is_cut:
            yield section(sweep)
        else:
            yield excerpted(section(sweep.excerpt), sweep)
        if section is summary_section and sweep.is_cut:
            yield overview_section(sweep)
