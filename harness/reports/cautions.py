"""What a reader must know before trusting the numbers, each with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records import Status
from harness.reports.display import count, number, percent, ratio
from harness.reports.labels import Row, variant_label
from harness.reports.language import say
from harness.reports.spread import narrowing
from harness.reports.sweep import Sweep
from harness.reports.words import has_drifted, joined
from harness.results.drift import LARGEST_DRIFT
from harness.verdicts import LosslessVerdict

WIDEST_RELATIVE_HALF_WIDTH = 0.10
LEAST_DECODE_SHARE = 0.95
FEWEST_PROMPTS = 5
SIMULATED_DEVICE = "no device"
SYNTHETIC_METHOD = "synthetic"
_COUNTED = {
    "cell": "{number} of {total} cell{s}",
    "variant": "{number} of {total} variant{s}",
    "speedup": "{number} of {total} speedup{s}",
}


def cautions(sweep: Sweep) -> list[str]:
    """Sentences on incomplete cells, weak statistics, idle time and differing outputs, if any."""
    checks = (
        _simulated,
        _cells_not_ok,
        _variants_not_ok,
        _stopped_early,
        _few_repeats,
        _few_prompts,
        _wide,
        _idle,
        _drift,
        _outputs,
    )
    return [sentence for check in checks for sentence in check(sweep)]


def decode_share(cell: Row) -> float | None:
    """The part of the measured phase's wall time spent inside decode calls."""
    inside, wall = number(cell.get("decode_wall_s")), number(cell.get("measured_wall_s"))
    return inside / wall if inside is not None and wall else None


def is_simulated(sweep: Sweep) -> bool:
    """Whether any cell was simulated."""
    return any(cell.get("device") == SIMULATED_DEVICE for cell in sweep.cells)


def _simulated(sweep: Sweep) -> list[str]:
    names = [sweep.labels[cell["cell_id"]] for cell in sweep.cells if cell.get("device") == SIMULATED_DEVICE]
    if not names:
        return []
    where = "" if len(names) == len(sweep.cells) else say(" in {cells}", cells=_listed(names))
    return [
        say("Simulated{where}: no model ran. The figures follow from the simulator's settings.", where=where)
    ]


def _cells_not_ok(sweep: Sweep) -> list[str]:
    found = []
    for status, what in ((Status.FAILED, "failed"), (Status.PARTIAL, "incomplete")):
        names = [sweep.labels[cell["cell_id"]] for cell in sweep.cells if cell["status"] == status]
        if names:
            found.append(
                say(
                    "{number} {what}: {names}.",
                    number=_of(names, len(sweep.cells), "cell"),
                    what=say(what),
                    names=_listed(names),
                )
            )
    return found


def _variants_not_ok(sweep: Sweep) -> list[str]:
    bad = [row for row in sweep.variants if row["status"] not in (Status.OK, None)]
    names = [_variant_name(sweep, row) for row in bad]
    if not names:
        return []
    return [
        say(
            "{number} not ok: {names}. The notes say why.",
            number=_of(names, len(sweep.variants), "variant"),
            names=_listed(names),
        )
    ]


def _stopped_early(sweep: Sweep) -> list[str]:
    wording = {
        "max_time": "ran into the time limit before the precision asked for was reached",
        "interrupted": "was interrupted",
    }
    found = []
    for reason, what in wording.items():
        names = [sweep.labels[cell["cell_id"]] for cell in sweep.cells if cell.get("stop_reason") == reason]
        if names:
            found.append(
                say(
                    "{number} {what}: {names}.",
                    number=_of(names, len(sweep.cells), "cell"),
                    what=say(what),
                    names=_listed(names),
                )
            )
    return found


def _few_repeats(sweep: Sweep) -> list[str]:
    names = [sweep.labels[cell_id] for cell_id, repeats in sweep.num_repeats.items() if repeats == 1]
    if not names:
        return []
    where = "" if len(names) == len(sweep.cells) else say(" in {cells}", cells=_listed(names))
    return [
        say(
            "Each prompt was measured once{where}, so the timing noise of one prompt can't be seen. "
            "Raise the repeats.",
            where=where,
        )
    ]


def _few_prompts(sweep: Sweep) -> list[str]:
    counts = [number(row.get("num_prompts")) for row in sweep.variants]
    fewest = min((found for found in counts if found), default=None)
    if fewest is None or fewest >= FEWEST_PROMPTS:
        return []
    return [
        say(
            "Only {fewest} prompt{s} measured in some variants: an interval over fewer than {enough} "
            "prompts doesn't reach its nominal 95%. Add prompts.",
            fewest=count(fewest),
            s="" if fewest == 1 else "s",
            enough=FEWEST_PROMPTS,
        )
    ]


def _wide(sweep: Sweep) -> list[str]:
    wide = [row for row in sweep.variants if _half_width(row) > WIDEST_RELATIVE_HALF_WIDTH]
    if not wide:
        return []
    keys = {(row["cell_id"], row["variant_id"]) for row in wide}
    total = sum(not row["is_baseline"] for row in sweep.variants)
    verb = "has" if len(wide) == 1 else "have"
    limit = percent(WIDEST_RELATIVE_HALF_WIDTH)
    remedy = narrowing(sweep.spread, keys)
    lead = say(
        "{number} {verb} an interval wider than ±{limit}",
        number=_of(wide, total, "speedup"),
        verb=verb,
        limit=limit,
    )
    if len(wide) == total:
        return [say("Every speedup's interval is wider than ±{limit}. {remedy}", limit=limit, remedy=remedy)]
    chosen = [one.chosen for one in sweep.series if one.chosen]
    names = [_variant_name(sweep, row) for row in chosen if (row["cell_id"], row["variant_id"]) in keys]
    among = (
        say("recommended ones among them: {names}", names=_listed(names))
        if names
        else say("no recommended one among them")
    )
    return [say("{lead}, {among}. {remedy}", lead=lead, among=among, remedy=remedy)]


def _idle(sweep: Sweep) -> list[str]:
    shares = [(sweep.labels[cell["cell_id"]], decode_share(cell)) for cell in sweep.cells]
    low = [
        f"{label} ({percent(share)})"
        for label, share in shares
        if share is not None and share < LEAST_DECODE_SHARE
    ]
    if not low:
        return []
    share = percent(LEAST_DECODE_SHARE)
    lead = say(
        "Less than {share} of the measured phase was spent decoding in {cells}",
        share=share,
        cells=_listed(low),
    )
    return [say("{lead}: the harness's own work took the rest, outside the timed calls.", lead=lead)]


def _drift(sweep: Sweep) -> list[str]:
    rows = [row for cell in sweep.cells if (row := sweep.baseline(str(cell["cell_id"]))) and has_drifted(row)]
    if not rows:
        return []
    told = [f"{sweep.labels[row['cell_id']]} ({ratio(row['baseline_drift'])})" for row in rows]
    limit = percent(LARGEST_DRIFT)
    return [
        say(
            "The baseline after the variants ran at another speed than before them, by more than "
            "{limit}: {cells}. No verdict is given there: measure again on a quiet machine.",
            limit=limit,
            cells=_listed(told),
        )
    ]


def _outputs(sweep: Sweep) -> list[str]:
    found = []
    forced = [_variant_name(sweep, row) for row in sweep.variants if row["method"] == SYNTHETIC_METHOD]
    if forced:
        lead = say("Acceptance was forced, not earned, for {forced}", forced=_listed(forced))
        found.append(
            say("{lead}: costs are real, output and speedup aren't what the drafter would give.", lead=lead)
        )
    lossy = [
        _variant_name(sweep, row)
        for row in sweep.variants
        if row.get("lossless") is False and row["method"] != SYNTHETIC_METHOD
    ]
    if lossy:
        found.append(
            say("Not lossless by design, so compare quality as well as speed: {lossy}.", lossy=_listed(lossy))
        )
    if sweep.lossless:
        return [*found, *_check(sweep)]
    differing = [
        _variant_name(sweep, row)
        for row in sweep.agreement
        if row["num_equal"] < row["num_prompts"] and row.get("method") != SYNTHETIC_METHOD
    ]
    if differing:
        lead = say(
            "Greedy output differs from the baseline's on some prompts for {differing}",
            differing=_listed(differing),
        )
        found.append(say("{lead}.", lead=lead))
    return found


def _check(sweep: Sweep) -> list[str]:
    """What the lossless check can't vouch for; numerical ties are no reason for caution."""
    found = []
    for verdict, what in (
        (LosslessVerdict.DEFECT, "The output isn't the target's, though it should be: a defect"),
        (LosslessVerdict.UNKNOWN, "Whether the output is the target's couldn't be judged"),
    ):
        rows = [row for row in sweep.lossless if row["verdict"] == verdict]
        if rows:
            names = _listed([_variant_name(sweep, row) for row in rows])
            found.append(
                say("{what}: {names}. The section on losslessness says more.", what=say(what), names=names)
            )
    return found


def _half_width(row: Row) -> float:
    middle, low, high = (number(row.get(name)) for name in ("speedup", "speedup_low", "speedup_high"))
    if not middle or low is None or high is None or row["is_baseline"]:
        return 0.0
    return (high - low) / 2 / middle


def _variant_name(sweep: Sweep, row: Row) -> str:
    name = variant_label(row)
    return f"{sweep.labels[row['cell_id']]} · {name}" if sweep.has_many_cells else name


def _listed(names: Sequence[str]) -> str:
    return joined(names, limit=6, separator="; ")


def _of(names: Sequence[object], total: int, noun: str) -> str:
    return say(_COUNTED[noun], number=len(names), total=total, s="" if total == 1 else "s")
