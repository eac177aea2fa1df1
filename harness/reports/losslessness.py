"""The section that says whether each variant's output is the target's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.metrics.rounding import FLOAT32_TIE_ROUNDINGS, TIE_ROUNDINGS
from harness.privacy import clipped
from harness.reports.blocks import Block, Column, Entry, Prose, Section, Table, entry
from harness.reports.display import MISSING, count, decimal, number, percent, seconds
from harness.reports.labels import Row, is_lossless
from harness.reports.language import retold, say
from harness.reports.naming import variant_columns, variant_entries
from harness.reports.sweep import Sweep
from harness.verdicts import LosslessVerdict

TITLE = "Losslessness"
_REASON_CHARACTERS = 200
_TONES = {
    LosslessVerdict.EQUAL: "pays",
    LosslessVerdict.TIE: "pays",
    LosslessVerdict.CONSISTENT: "pays",
    LosslessVerdict.LOSSY: "unclear",
    LosslessVerdict.DEFECT: "costs",
    LosslessVerdict.UNKNOWN: "unclear",
}
_Columns = Sequence[tuple[Column, Callable[[Row], Entry]]]


def lossless_section(sweep: Sweep) -> Section:
    """What the lossless check found, or the plain comparison of greedy outputs where it didn't run."""
    if not sweep.lossless:
        return _agreement_section(sweep)
    greedy = [row for row in sweep.lossless if row["test"] == "greedy"]
    sampled = [row for row in sweep.lossless if row["test"] == "distribution"]
    blocks: list[Block] = []
    if greedy:
        blocks += [_table(sweep, "Temperature 0: greedy outputs", greedy, _GREEDY), Prose(_greedy_text())]
    if sweep.divergences:
        blocks.append(_divergences(sweep))
    if sampled:
        caption = "Temperature above 0: the distribution of the tokens"
        blocks += [_table(sweep, caption, sampled, _SAMPLED), Prose(_SAMPLED_TEXT)]
    return Section("lossless", TITLE, lossless_line(sweep.lossless), blocks)


def lossless_line(rows: Sequence[Row]) -> str:
    """The outcome of the check in one or two sentences; empty where it didn't run."""
    if not rows:
        return ""
    drafting = [row for row in rows if not row["is_baseline"]]
    checked = [row for row in drafting if is_lossless(row)]
    parts = [
        text
        for verdict, text in (
            (LosslessVerdict.EQUAL, say("write exactly the baseline's tokens")),
            (LosslessVerdict.TIE, say("differ from the baseline by numerical ties alone")),
            (LosslessVerdict.CONSISTENT, _consistent(checked)),
            (LosslessVerdict.UNKNOWN, say("couldn't be judged")),
        )
        for text in [_counted(checked, verdict, text)]
        if text
    ]
    found = (
        say("{text}.", text=say("; ").join(parts))
        if parts
        else ""
        if drafting
        else say("No variant was checked.")
    )
    changing = [row for row in drafting if not is_lossless(row)]
    return " ".join(text for text in (_defects(rows), found, *_by_design(changing)) if text)


def _by_design(rows: Sequence[Row]) -> list[str]:
    """What variants that aren't meant to be lossless change."""
    if not rows:
        return []
    greedy = [row for row in rows if row["test"] == "greedy"]
    distances = [found for row in rows if (found := number(row.get("distance"))) is not None]
    parts = []
    if greedy:
        compared, differing = (sum(map(count_of, greedy)) for count_of in (_num_compared, _num_differing))
        parts.append(
            say(
                "{differing} of {compared} greedy outputs differ from the baseline's",
                differing=count(differing),
                compared=count(compared),
            )
        )
    if distances:
        parts.append(
            say(
                "sampled tokens lie up to {distance:.2f} from the target's distribution",
                distance=max(distances),
            )
        )
    told = say(": {parts}", parts=say(" and ").join(parts)) if parts else ""
    verb = "isn't" if len(rows) == 1 else "aren't"
    return [say("{number} {verb} lossless by design{told}.", number=len(rows), verb=verb, told=told)]


def _num_compared(row: Row) -> int:
    return int(row["num_prompts"])


def _num_differing(row: Row) -> int:
    """Prompts some output of which isn't the baseline's, ties included."""
    return int(row["num_prompts"]) - int(number(row["num_equal"]) or 0)


def _defects(rows: Sequence[Row]) -> str:
    bad = [row for row in rows if row["verdict"] == LosslessVerdict.DEFECT]
    if not bad:
        return ""
    variants = sum(not row["is_baseline"] for row in bad)
    found = []
    if variants:
        verb = "writes" if variants == 1 else "write"
        found.append(
            say(
                "DEFECT: {number} variant{s} that should be lossless {verb} what the target doesn't.",
                number=variants,
                s="" if variants == 1 else "s",
                verb=verb,
            )
        )
    if len(bad) > variants:
        found.append(
            say(
                "DEFECT: the target disagrees with its own output when it is run over several tokens at once."
            )
        )
    return " ".join(found)


def _counted(rows: Sequence[Row], verdict: LosslessVerdict, text: str) -> str:
    number_of = sum(row["verdict"] == verdict for row in rows)
    return (
        say("{number} of {total} variants {text}", number=number_of, total=len(rows), text=text)
        if number_of
        else ""
    )


def _consistent(rows: Sequence[Row]) -> str:
    distances = [
        found
        for row in rows
        if row["verdict"] == LosslessVerdict.CONSISTENT
        and (found := number(row["detectable_distance"])) is not None
    ]
    text = say("follow the target's distribution")
    return (
        say("{text} (a distance of {distance:.2f} would be noticed)", text=text, distance=max(distances))
        if distances
        else text
    )


def _table(sweep: Sweep, caption: str, rows: Sequence[Row], columns: _Columns) -> Table:
    shown = [*variant_columns(sweep), *(column for column, _ in columns)]
    body = [[*variant_entries(sweep, row), *(write(row) for _, write in columns)] for row in rows]
    return Table(caption, shown, body)


def _verdict(row: Row) -> Entry:
    verdict = LosslessVerdict(row["verdict"])
    if not is_lossless(row):
        seen = "" if verdict is LosslessVerdict.LOSSY else say(": {verdict} here", verdict=say(verdict))
        return entry(say("not lossless by design{seen}", seen=seen), _TONES[LosslessVerdict.LOSSY])
    text = say("{verdict}, the control", verdict=say(verdict)) if row["is_baseline"] else say(verdict)
    return entry(text, _TONES[verdict])


def _reason(row: Row) -> Entry:
    reason = row["reason"]
    return entry(clipped(retold(reason), _REASON_CHARACTERS) if isinstance(reason, str) else MISSING)


_VERDICT = (Column("verdict", numeric=False), _verdict)
_REASON = (Column("why unknown", numeric=False), _reason)
_SECONDS = (
    Column("time", hint="in which the target scored this variant's outputs"),
    lambda row: entry(seconds(row["seconds"])),
)
_GREEDY: _Columns = (
    _VERDICT,
    (Column("prompts"), lambda row: entry(count(row["num_prompts"]))),
    (Column("equal"), lambda row: entry(count(row["num_equal"]))),
    (Column("differ"), lambda row: entry(count(_num_differing(row)))),
    (Column("ties"), lambda row: entry(count(row["num_ties"]))),
    (
        Column("defects", hint="none where a variant isn't lossless by design"),
        lambda row: entry(count(row["num_defects"]) if is_lossless(row) else MISSING),
    ),
    (
        Column("widest", hint="roundings below the target's likeliest token, of those that were scored"),
        lambda row: entry(decimal(row["largest_roundings"])),
    ),
    _SECONDS,
    _REASON,
)
_SAMPLED: _Columns = (
    _VERDICT,
    (Column("tokens"), lambda row: entry(count(row["num_tokens"]))),
    (Column("p", hint="corrected for the number of variants"), lambda row: entry(_p_value(row["p_value"]))),
    (
        Column("distance", hint="of the tokens' places from a uniform spread, noise included"),
        lambda row: entry(decimal(row.get("distance"))),
    ),
    (
        Column("would notice", hint="distance found with probability 0.9"),
        lambda row: entry(decimal(row["detectable_distance"])),
    ),
    _SECONDS,
    _REASON,
)
_GREEDY_TEXT = (
    "Where an output leaves the baseline's, the target runs the baseline's output once more, all of it in "
    "one forward. A token within {roundings:g} roundings of the likeliest one "
    "({float32_roundings:g} in float32) is a numerical tie, which another number of tokens per forward "
    "may decide otherwise; anything else is a defect. The control is the baseline itself: prompts on which "
    "the target, run over all tokens at once, prefers another token."
)
_SAMPLED_TEXT = (
    "The target scores measured outputs in one forward each. Each token's place in its own distribution, "
    "likeliest tokens first, must be uniform over all tokens: that is tested in five bins. The distance is "
    "the total variation between the places and a uniform spread; what averages out over the places can't "
    "be noticed. The control is the baseline."
)


def _greedy_text() -> str:
    return say(_GREEDY_TEXT, roundings=TIE_ROUNDINGS, float32_roundings=FLOAT32_TIE_ROUNDINGS)


def _p_value(value: object) -> str:
    found = number(value)
    if found is None:
        return MISSING
    return "< 0.0001" if found < 1e-4 else f"{found:.3f}"


def _divergences(sweep: Sweep) -> Table:
    names = ("prompt", "token", "baseline's id", "other id", "roundings below the likeliest", "kind")
    columns = [
        *variant_columns(sweep),
        *(Column(name, numeric=name not in ("prompt", "kind")) for name in names),
    ]
    known = {(row["cell_id"], row["variant_id"]): row for row in sweep.lossless}
    body = []
    for found in sweep.divergences:
        kind = LosslessVerdict(found["verdict"])
        body.append(
            [
                *variant_entries(sweep, known[found["cell_id"], found["variant_id"]]),
                entry(clipped(found["prompt_id"], 60)),
                entry(count(found["after_tokens"])),
                entry(count(found["token"])),
                entry(count(found["other_token"])),
                entry(decimal(found["roundings"])),
                entry(say(kind), _TONES[kind]),
            ]
        )
    return Table("Where greedy outputs part, output tokens counted from 0", columns, body, collapsed=True)


def _agreement_section(sweep: Sweep) -> Section:
    """Results stored without a check: how many greedy outputs are the baseline's."""
    if not sweep.agreement:
        reason = "The lossless check was off, and no cell ran at temperature 0 with its tokens stored."
        return Section("lossless", TITLE, omitted=reason, measure="lossless.enabled=true")
    names = ("equal prompts", "share", "first differing token", "in prompt", "median differing token")
    columns = [*variant_columns(sweep), *(Column(name, numeric=name != "in prompt") for name in names)]
    body = [[*variant_entries(sweep, row), *_agreement_entries(row)] for row in sweep.agreement]
    lead = (
        "The lossless check was off. At temperature 0 a lossless method writes the baseline's tokens, but "
        "for tokens whose logits are nearly equal. Output tokens are counted from 0."
    )
    return Section(
        "lossless", TITLE, lead, [Table("Greedy output compared with the baseline's", columns, body)]
    )


def _agreement_entries(row: Row) -> list[Entry]:
    equal = row["num_equal"] == row["num_prompts"]
    prompt = row["first_divergence_prompt_id"]
    return [
        entry(
            say(
                "{num_equal} of {num_prompts}",
                num_equal=count(row["num_equal"]),
                num_prompts=count(row["num_prompts"]),
            ),
            "pays" if equal else "costs",
        ),
        entry(percent(row["share_equal"])),
        entry(count(row["first_divergence_tokens"])),
        entry(clipped(prompt, 60) if isinstance(prompt, str) else MISSING),
        entry(count(row["median_divergence_tokens"])),
    ]
