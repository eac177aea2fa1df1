"""The capacity plan as a page: what to run first, then why, then how sure."""

from __future__ import annotations

from dataclasses import asdict

from markupsafe import Markup

from harness.capacity.plan import ConfigurationPlan, Option, Plan
from harness.capacity.validation_table import ValidationTable
from harness.privacy import clipped
from harness.reports import plan_words as words
from harness.reports.blocks import (
    Block,
    Bullets,
    Column,
    Facts,
    Figure,
    Figures,
    Key,
    Page,
    Section,
    Table,
    entry,
)
from harness.reports.display import MISSING, count, fact, percent
from harness.reports.language import retold, say
from harness.reports.plan_calibration import calibration_section, validation_section
from harness.reports.plan_plots import LoadLine, load_plot
from harness.reports.svg import Style

_MOST_LINES = 7
_FIGURES = (("ttft_p95_s", "Time to first token, p95"), ("tpot_p95_s", "Time per output token, p95"))
_SENSITIVITIES = {
    "acceptance": "acceptance 10 points lower",
    "traffic": "twice the traffic",
    "outputs": "outputs twice as long",
}


def plan_page(plan: Plan, validation: ValidationTable | None = None) -> Page:
    """Everything the plan says, ready to lay out."""
    labels = words.configuration_labels(plan)
    named = list(zip(labels, plan.configurations, strict=True))
    return Page(
        title=say("Capacity plan: {name}", name=clipped(plan.name, 80)),
        subtitle=_subtitle(plan),
        headline=_headline(plan, named),
        sections=[
            _summary(plan, named),
            _fleets(plan, named),
            _curves(plan, named),
            _switching(named),
            _sensitivity(plan, named),
            validation_section(validation),
            calibration_section(named),
            _assumptions(plan),
        ],
        kind="plan",
    )


Named = list[tuple[str, ConfigurationPlan]]


def _subtitle(plan: Plan) -> str:
    traffic = plan.settings.traffic
    growth = ", ".join(f"{words.per_second(traffic.requests_per_s * g)}" for g in traffic.growth)
    return say(
        "Peaks of {growth} requests per second. Replicas are simulated from measured step times and "
        "acceptance; nothing here ran under load but the validation.",
        growth=growth,
    )


def _headline(plan: Plan, named: Named) -> str:
    able = [(label, one) for label, one in named if one.recommended is not None and one.recommended.now]
    if not able:
        return words.infeasible(named[0][1])
    label, best = min(able, key=lambda pair: pair[1].recommended.now.total)  # type: ignore[union-attr]
    lead = "" if len(named) == 1 else f"{label}: "
    return f"{lead}{words.advice(plan, best)}"


def _summary(plan: Plan, named: Named) -> Section:
    blocks: list[Block] = []
    for label, one in named:
        title = label if len(named) > 1 else ""
        blocks.append(Bullets([words.advice(plan, one), *_switch_sentences(one)], title=title))
        if one.extrapolated:
            blocks.append(
                Bullets(
                    [_sentence(retold(text)) for text in one.extrapolated],
                    "warning",
                    "Extrapolated or unknown",
                )
            )
    return Section("summary", "What to run", blocks=blocks)


def _switch_sentences(one: ConfigurationPlan) -> list[str]:
    said = []
    for advice in one.advice:
        name = words.method_name(one, advice.method)
        load, closed = advice.off_from_requests_per_s, advice.closed_form
        check = (
            say("closed form: never in a batch that fits")
            if closed.batch is None
            else say(
                "closed form: from batches of {batch}, {rate}/s",
                batch=closed.batch,
                rate=words.per_second(closed.requests_per_s),
            )
        )
        if load is None:
            said.append(
                say(
                    "{name}: speculation pays up to the load plain decoding carries ({check}).",
                    name=name,
                    check=check,
                )
            )
        else:
            said.append(
                say(
                    "{name}: off from {rate} requests/s per replica, simulated ({check}).",
                    name=name,
                    rate=words.per_second(load),
                    check=check,
                )
            )
    return said


def _fleets(plan: Plan, named: Named) -> Section:
    currency = plan.settings.prices.currency
    growth = [plan.settings.traffic.requests_per_s * g for g in plan.settings.traffic.growth]
    columns = [
        Column("configuration", numeric=False),
        Column("option", numeric=False),
        Column("most per replica, 1/s", hint="requests per second within the limits"),
        Column("bound by", numeric=False, hint="the limit that the next higher load breaks"),
        *(
            Column(say("replicas at {rate}/s", rate=words.per_second(peak)), hint="spares included")
            for peak in growth
        ),
        Column("utilisation", hint="load at the peak over what a replica serves when some always wait"),
        Column(
            say("{currency} per million tokens", currency=currency),
            hint="output tokens; the fleet of the peak runs all day",
        ),
        Column("scaled by the hour", hint="the same if the fleet follows the day"),
    ]
    rows = [
        [
            entry(text, "pays" if option is one.recommended else "")
            for text in _fleet_cells(label, option, len(growth))
        ]
        for label, one in named
        for option in one.options
    ]
    lead = say(
        "{headroom} of a replica's load is kept free at the peak; spares keep enough of them up with "
        "a probability of {availability}. The recommended option is highlighted.",
        headroom=percent(plan.settings.replica.headroom),
        availability=percent(plan.settings.slo.availability),
    )
    return Section("fleets", "Replicas and costs", lead, [Table("Every option", columns, rows)])


def _fleet_cells(label: str, option: Option, num_peaks: int) -> list[str]:
    sizing, now = option.sizing, option.now
    texts = [clipped(label, 60), words.option_label(option)]
    texts += [words.per_second(sizing.max_requests_per_s), words.binding_text(sizing.binding)]
    if now is None:
        return [*texts, *(MISSING,) * (num_peaks + 3)]
    texts += [count(fleet.total) for fleet in option.fleets]
    costs = (now.cost_per_million_tokens, now.cost_per_million_scaled)
    return [*texts, percent(now.utilisation), *(f"{cost:.3g}" for cost in costs)]


def _curves(plan: Plan, named: Named) -> Section:
    blocks: list[Block] = []
    for place, (label, one) in enumerate(named):
        options = _drawn_options(one)
        styles = {words.option_label(option): Style(number) for number, option in enumerate(options)}
        items = [
            Figure(_drawing(plan, options, name, title, f"plan-{place}-{name}"), say(title), label)
            for name, title in _FIGURES
        ]
        keys = [Key(style.swatch(name, line=True), name) for name, style in styles.items()]
        blocks.append(Figures(items, keys, _points_table(label, options)))
    lead = (
        "Per replica. Bars are 95% intervals over seeds; the dashed line is the limit, dotted lines are the "
        "loads planned for. Requests that were never served count as infinitely slow."
    )
    return Section("load", "Latency against load", lead, blocks)


def _drawn_options(one: ConfigurationPlan) -> list[Option]:
    first = [one.plain, *([one.recommended] if one.recommended not in (None, one.plain) else [])]
    rest = [option for option in one.options if option not in first and option.policy == "fixed"]
    return [option for option in [*first, *rest] if option is not None][:_MOST_LINES]


def _drawing(plan: Plan, options: list[Option], name: str, title: str, identifier: str) -> Markup:
    lines = []
    for place, option in enumerate(options):
        points = [p for p in option.sizing.points if p.mean(name) != float("inf")]
        found = [point.figures[name] for point in points]
        now = option.now
        lines.append(
            LoadLine(
                words.option_label(option),
                Style(place),
                [point.requests_per_s for point in points],
                [one.mean for one in found],
                [one.low for one in found],
                [one.high for one in found],
                now.requests_per_s / now.replicas if now else None,
            )
        )
    drawable = [line for line in lines if line.values]
    limit = getattr(plan.settings.slo, name)
    return load_plot(drawable, identifier=identifier, title=title, y_label="seconds", limit=limit)


def _points_table(label: str, options: list[Option]) -> Table:
    names = ("ttft_p50_s", "ttft_p95_s", "tpot_p50_s", "tpot_p95_s", "total_p50_s", "total_p95_s")
    columns = [
        Column("option", numeric=False),
        Column("requests/s"),
        *(Column(_heading(name)) for name in names),
    ]
    columns += [Column("mean batch"), Column("tok/s"), Column("within limits")]
    rows = []
    for option in options:
        for point in option.sizing.points:
            texts = [words.option_label(option), words.per_second(point.requests_per_s)]
            texts += [words.duration(point.mean(name)) for name in names]
            texts += [f"{point.mean('mean_batch'):.1f}", words.per_second(point.mean("throughput_tok_per_s"))]
            rows.append([entry(text) for text in (*texts, percent(point.mean("met_share")))])
    return Table(say("Simulated loads: {label}", label=label), columns, rows, collapsed=True)


def _heading(name: str) -> str:
    what, percentile, _ = name.split("_")
    return f"{what.upper() if what != 'total' else say('total')} {percentile}"


def _switching(named: Named) -> Section:
    columns = [Column(name, numeric=False) for name in ("configuration", "method")]
    columns += [
        Column("off from, simulated", hint="requests/s per replica from which plain decoding is faster"),
        Column("off from, closed form", hint="from mean costs and yields alone"),
        Column("at batch", hint="the batch at which no k is faster"),
        Column("best k by load per replica", numeric=False),
    ]
    rows = []
    for label, one in named:
        for advice in one.advice:
            closed = advice.closed_form
            texts = [clipped(label, 60), words.method_name(one, advice.method)]
            texts += [_load(advice.off_from_requests_per_s), _load(closed.requests_per_s)]
            texts += [count(closed.batch), words.bands_text(advice.best_k)]
            rows.append([entry(text) for text in texts])
    lead = "The k whose requests end soonest on average, load by load. The closed form cross-checks it."
    if not rows:
        return Section("switching", "When to switch off", omitted="No way to draft was measured.")
    return Section("switching", "When to switch off", lead, [Table("By method", columns, rows)])


def _load(value: float | None) -> str:
    return say("never") if value is None else f"{words.per_second(value)}/s"


def _sensitivity(plan: Plan, named: Named) -> Section:
    columns = [Column("configuration", numeric=False), Column("if", numeric=False)]
    columns += [Column("replicas, recommended"), Column("replicas, no speculation")]
    columns += [Column(say("{currency} per million tokens", currency=plan.settings.prices.currency))]
    rows = []
    for label, one in named:
        for case in one.sensitivities:
            found, plain = case.recommended, case.plain
            texts = [clipped(label, 60), say(_SENSITIVITIES[case.name])]
            texts += [count(found.total) if found else say("limits not kept")]
            texts += [count(plain.total) if plain else say("limits not kept")]
            rows.append(
                [entry(t) for t in (*texts, f"{found.cost_per_million_tokens:.3g}" if found else MISSING)]
            )
    if not rows:
        return Section("sensitivity", "If an assumption is off", omitted="No option keeps the limits.")
    return Section("sensitivity", "If an assumption is off", blocks=[Table("Today's peak", columns, rows)])


def _assumptions(plan: Plan) -> Section:
    settings = plan.settings
    blocks: list[Block] = []
    for title in ("traffic", "slo", "prices", "replica", "simulation"):
        items = [
            (name, clipped(fact(value), 300)) for name, value in asdict(getattr(settings, title)).items()
        ]
        blocks.append(Facts(items, title))
    return Section("assumptions", "What was asked", blocks=blocks)


def _sentence(text: str) -> str:
    return say("{text}.", text=f"{text[:1].upper()}{text[1:]}")
