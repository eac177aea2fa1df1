"""Names and sentences of a capacity plan."""

from __future__ import annotations

from collections.abc import Sequence

from harness.capacity.crossover import Band
from harness.capacity.plan import ConfigurationPlan, Option, Plan
from harness.capacity.sizing import Binding
from harness.reports.display import count, k_is, number, percent, seconds
from harness.reports.labels import Row, cell_labels, marked, method_label
from harness.reports.language import say

_LIMIT_NAMES = {
    "slo.ttft_p95_s": "TTFT p95",
    "slo.tpot_p95_s": "TPOT p95",
    "slo.total_p95_s": "total time p95",
    "slo.availability": "share of requests served",
    "capacity": "saturation",
}
_POLICIES = {"off": "switched off", "by_batch": "k by batch", "adaptive": "adaptive k"}


def configuration_labels(plan: Plan) -> list[str]:
    """A distinct name per configuration, of what differs between them."""
    rows: list[Row] = [
        {**one.model.facts, "cell_id": str(place)} for place, one in enumerate(plan.configurations)
    ]
    labels = cell_labels(rows)
    return [
        say("this configuration") if labels[str(p)] == say("this cell") else labels[str(p)]
        for p in range(len(rows))
    ]


def option_label(option: Option) -> str:
    """An option as prose has it."""
    if option.policy == "never":
        return method_label(option.method)
    how = k_is(option.k) if option.policy == "fixed" else say(_POLICIES[option.policy])
    name = marked(method_label(option.method), {"lossless": option.lossless})
    return say("{method}, {how}", method=name, how=how)


def method_name(one: ConfigurationPlan, method: str) -> str:
    """A method as prose has it, and that it changes the output where it does."""
    model = one.model.methods.get(method)
    return marked(method_label(method), {"lossless": model is None or model.lossless})


def per_second(value: object) -> str:
    """Requests per second, with the digits a small rate needs."""
    found = number(value)
    if found is None:
        return say("none")
    return f"{found:,.0f}" if found >= 100 else f"{found:.3g}"


def money(value: object, currency: str) -> str:
    """An amount with its unit."""
    found = number(value)
    return (
        say("none")
        if found is None
        else f"{found:,.0f} {currency}"
        if found >= 1000
        else f"{found:.3g} {currency}"
    )


def binding_text(binding: Binding | None) -> str:
    """Which limit decides, and what was found beyond it."""
    if binding is None:
        return say("none")
    name = say(_LIMIT_NAMES[binding.key])
    if binding.key == "capacity":
        return say("{name} at {found}/s", name=name, found=per_second(binding.found))
    if binding.key == "slo.availability":
        return say(
            "{name}: {found}, limit {limit}",
            name=name,
            found=percent(binding.found),
            limit=percent(binding.limit),
        )
    return say(
        "{name}: {found}, limit {limit}",
        name=name,
        found=duration(binding.found),
        limit=seconds(binding.limit),
    )


def duration(value: float) -> str:
    """Seconds, where they exist: a percentile that reaches requests never served has none."""
    return say("never served") if value == float("inf") else seconds(value)


def infeasible(one: ConfigurationPlan) -> str:
    """Which limit no option meets, and by how much the best misses it."""
    closest = min(
        (option for option in one.options if option.sizing.binding is not None),
        key=lambda option: option.sizing.binding.excess if option.sizing.binding else 0.0,
    )
    binding = closest.sizing.binding
    excess = (
        ""
        if binding is None or binding.excess == float("inf")
        else say(", {excess} beyond it", excess=percent(binding.excess))
    )
    return say(
        "No option keeps the limits, not even on an idle replica. Closest is {option}: "
        "{binding}{excess}. Raise {limit}, or measure a faster configuration.",
        option=option_label(closest),
        binding=binding_text(binding),
        excess=excess,
        limit=binding.key if binding else say("the limit"),
    )


def advice(plan: Plan, one: ConfigurationPlan) -> str:
    """What to run, how many, at which price, and against what."""
    chosen = one.recommended
    if chosen is None or chosen.now is None:
        return infeasible(one)
    fleet, currency = chosen.now, plan.settings.prices.currency
    text = say(
        "Run {option}: {total} {replica_word} ({replicas} and {spares} spare) for {rate} requests/s, "
        "{cost} per million output tokens.",
        option=option_label(chosen),
        total=count(fleet.total),
        replica_word=_replicas(fleet.total),
        replicas=count(fleet.replicas),
        spares=count(fleet.spares),
        rate=per_second(fleet.requests_per_s),
        cost=money(fleet.cost_per_million_tokens, currency),
    )
    return " ".join([text, _against(one), *_binds(chosen), *_left_out(one)])


def _replicas(total: int) -> str:
    return say("replica") if total == 1 else say("replicas")


def _against(one: ConfigurationPlan) -> str:
    chosen, plain = one.recommended, one.plain
    if chosen is None or chosen is plain:
        return say("No way to draft carries 2% more on a replica.")
    if plain.now is None or chosen.now is None:
        return say(
            "Without speculation the limits can't be kept: {binding}.",
            binding=binding_text(plain.sizing.binding),
        )
    more = plain.now.total / chosen.now.total - 1
    if more <= 0:
        return say(
            "Without speculation it takes {total}: the gain is in latency and headroom.",
            total=count(plain.now.total),
        )
    return say(
        "Without speculation it takes {total}, {more} more.", total=count(plain.now.total), more=percent(more)
    )


def _left_out(one: ConfigurationPlan) -> list[str]:
    """Methods that change the output: measured and shown, but no advice."""
    names = dict.fromkeys(method_label(option.method) for option in one.options if not option.lossless)
    return [say("Not lossless, so never recommended: {names}.", names=say(", ").join(names))] if names else []


def _binds(option: Option) -> list[str]:
    binding = option.sizing.binding
    if binding is None:
        return []
    what = binding_text(binding)
    return [
        say(
            "What bounds a replica at {rate} requests/s: {limit}.",
            rate=per_second(option.sizing.max_requests_per_s),
            limit=what,
        )
    ]


def bands_text(bands: Sequence[Band]) -> str:
    """Best k by load per replica, `k = 4 up to 2.1/s, k = 2 up to 3/s, off above`."""
    if not bands:
        return say("no load keeps the limits")
    parts = []
    for place, band in enumerate(bands):
        name = k_is(band.k) if band.k else say("off")
        parts.append(
            say("{name} up to {rate}/s", name=name, rate=per_second(band.to_requests_per_s))
            if place < len(bands) - 1
            else name
        )
    return (
        parts[0]
        if len(parts) == 1
        else say("{bands}, {last} above", bands=say(", ").join(parts[:-1]), last=parts[-1])
    )


def batch_bands_text(bands: Sequence[tuple[int, int, int]]) -> str:
    """K by batch, `1-4: 5, 5-16: 2, 17 and more: 0`."""
    last = len(bands) - 1
    return ", ".join(
        say("{first} and more: {k}", first=first, k=k)
        if place == last
        else f"{first}-{end}: {k}"
        if first != end
        else f"{first}: {k}"
        for place, (first, end, k) in enumerate(bands)
    )
