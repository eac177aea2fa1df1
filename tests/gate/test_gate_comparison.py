from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from gate_runs import Change, checks, edit, gate, judged, made_up
from synthetic_results import Truth

from harness.gate.comparison import compare
from harness.gate.settings import MetricSettings
from harness.gate.verdict import Verdict
from harness.records import CellRecord, Observation
from harness.results import Results

SLOWER = Truth(luck=1, noise=0.02, slowdown={"draft_model-k3": 1.10})
SAME = Truth(luck=1, noise=0.02)


@pytest.fixture(scope="module")
def base() -> Results:
    return made_up(truth=SAME)


def test_a_run_against_itself_passes(base: Results) -> None:
    found = judged(base, base)
    assert found.verdict is Verdict.PASS
    assert {check.change for check in found.checks} == {0.0}
    assert len(found.checks) == 2 * 5
    assert any("very same measurements" in caution for caution in found.cautions)
    assert not judged(base, made_up(seed=1, truth=SAME)).cautions


def test_no_change_is_hardly_ever_called_a_regression() -> None:
    runs = [made_up(seed=seed, truth=SAME) for seed in range(41)]
    verdicts = Counter(judged(runs[0], head).verdict for head in runs[1:])
    assert verdicts[Verdict.REGRESSION] <= 2
    assert verdicts[Verdict.PASS] >= 36


def test_no_change_with_other_luck_is_hardly_ever_called_a_regression() -> None:
    verdicts = Counter(
        judged(made_up(seed=2 * n, temperatures=(0.7,)), made_up(seed=2 * n + 1, temperatures=(0.7,))).verdict
        for n in range(12)
    )
    assert verdicts[Verdict.REGRESSION] <= 1


def test_a_tenth_slower_is_caught_and_named() -> None:
    for seed in range(1, 6):
        found = judged(made_up(truth=SAME), made_up(seed=seed, truth=SLOWER))
        assert found.verdict is Verdict.REGRESSION
        worse = {(c.variant, c.metric) for c in found.checks if c.verdict is Verdict.REGRESSION}
        assert ("draft_model-k3", "speedup") in worse
        assert {variant for variant, _ in worse} == {"draft_model-k3"}


def test_the_other_way_round_it_is_an_improvement_and_passes() -> None:
    found = judged(made_up(truth=SLOWER), made_up(seed=1, truth=SAME))
    assert found.verdict is Verdict.IMPROVEMENT
    assert found.verdict.exit_code == 0


def test_lower_acceptance_is_caught() -> None:
    for luck in range(8):
        base = made_up(num_prompts=24, truth=Truth(luck=luck))
        head = made_up(num_prompts=24, seed=1, truth=Truth(luck=luck, alpha_shift=-0.03))
        found = judged(base, head)
        assert found.verdict is Verdict.REGRESSION
        assert any(c.verdict is Verdict.REGRESSION for c in checks(found, "acceptance_rate"))


def test_a_drafter_that_got_worse_is_not_hidden_by_a_slower_baseline() -> None:
    slow = Truth(luck=1, noise=0.02, alpha_shift=-0.06, slowdown={"autoregressive": 1.2})
    found = judged(made_up(truth=SAME), made_up(seed=1, truth=slow))
    assert found.verdict is Verdict.REGRESSION


def test_output_that_newly_parts_from_the_targets_is_a_regression(base: Results) -> None:
    def garble(_: CellRecord, rows: list[Observation]) -> list[Observation]:
        return [
            edit(output_tokens=[1, 2, 3])(row)
            if row.variant_id == "draft_model-k3" and row.prompt_id in ("p003", "p007")
            else row
            for row in rows
        ]

    found = judged(base, made_up(truth=SAME, change=garble))
    (check,) = checks(found, "greedy_agreement", "draft_model-k3")
    assert (check.verdict, found.verdict) == (Verdict.REGRESSION, Verdict.REGRESSION)
    assert check.change == pytest.approx(-2 / 12)


def test_an_undecided_check_says_how_much_would_decide() -> None:
    noisy = Truth(luck=1, noise=0.15)
    found = judged(made_up(truth=noisy), made_up(seed=1, truth=noisy))
    assert found.verdict is Verdict.INCONCLUSIVE
    undecided = [check for check in found.checks if check.verdict is Verdict.INCONCLUSIVE]
    assert undecided
    for check in undecided:
        assert check.needed_prompts is None or check.needed_prompts > 12
    assert any(check.needed_prompts for check in undecided)


def test_one_prompt_is_never_enough() -> None:
    one = made_up(num_prompts=1, truth=SAME)
    assert judged(one, made_up(num_prompts=1, seed=1, truth=SLOWER)).verdict is Verdict.INCONCLUSIVE
    assert judged(one, one).verdict is Verdict.INCONCLUSIVE


def _facts(**facts: Any) -> Change:
    def change(record: CellRecord, rows: list[Observation]) -> list[Observation]:
        record.facts |= facts
        return rows

    return change


def _variant(variant_id: str, **values: Any) -> Change:
    def change(record: CellRecord, rows: list[Observation]) -> list[Observation]:
        for variant in record.variants:
            if variant["variant_id"] == variant_id:
                variant |= values
        return rows

    return change


def _without(variant_id: str) -> Change:
    def change(record: CellRecord, rows: list[Observation]) -> list[Observation]:
        record.variants = [v for v in record.variants if v["variant_id"] != variant_id]
        return [row for row in rows if row.variant_id != variant_id]

    return change


def _rows(which: Callable[[Observation], bool], change: Callable[[Observation], Observation]) -> Change:
    return lambda _, rows: [change(row) if which(row) else row for row in rows]


def _drop(which: Callable[[Observation], bool]) -> Change:
    return lambda _, rows: [row for row in rows if not which(row)]


def _fail_cell(record: CellRecord, rows: list[Observation]) -> list[Observation]:
    record.status, record.variants = "failed", []
    return []


def _is(variant_id: str) -> Callable[[Observation], bool]:
    return lambda row: row.variant_id == variant_id


def _any(_: Observation) -> bool:
    return True


def _once(row: Observation) -> bool:
    return (row.variant_id, row.prompt_id, row.repeat) == ("draft_model-k3", "p004", 1)


NO_DRAFTS = edit(step_proposed=[0], step_accepted=[0])
NO_STEPS = edit(step_proposed=None, step_accepted=None, steps_missing_reason="the server reports none")
UNFIT = {
    "another target revision": (_facts(target_revision="1" * 12), "different pair"),
    "another pair": (_facts(pair="x", target="path:other"), "different pair"),
    "other prompts": (_facts(workload_sha256="b" * 64), "different workload"),
    "another temperature": (_facts(temperature=0.1), "temperature"),
    "another batch size": (_facts(batch_size=8), "batch_size (1 here, 8 there)"),
    "another dtype": (_facts(dtype="float32"), "dtype"),
    "another limit": (_facts(max_output_tokens=12), "max_output_tokens"),
    "a missing variant": (_without("draft_model-k3"), "missing variant"),
    "a missing baseline": (_without("autoregressive"), "baseline"),
    "another drafter": (_variant("draft_model-k3", drafter="path:other"), "drafter"),
    "other options": (_variant("draft_model-k3", options={"max_ngram": 4}), "options"),
    "another k": (_variant("draft_model-k3", k=4), "closest differs in k (3 here"),
    "a failed variant": (
        _variant("draft_model-k3", status="failed", error="OutOfMemoryError: 3 GiB"),
        "failed in HEAD: OutOfMemoryError: 3 GiB",
    ),
    "a skipped variant": (_variant("draft_model-k3", status="skipped"), "skipped in HEAD"),
    "a failed baseline": (_variant("autoregressive", status="failed"), "failed in HEAD"),
    "a failed cell": (_fail_cell, "the cell failed in HEAD"),
    "no observations": (_drop(_any), "no ok measurement"),
    "nothing of one variant": (_drop(_is("draft_model-k3")), "no ok measurement"),
    "one failed sequence": (
        _rows(_once, edit(status="failed", error="boom")),
        "1 of 24 sequences failed in HEAD: boom",
    ),
    "a missing prompt": (_drop(lambda row: row.prompt_id == "p004"), "only 11 of 12 prompts"),
    "other prompt ids": (_rows(_any, lambda row: replace(row, prompt_id=f"x{row.prompt_id}")), "0 in both"),
    "only warmup": (_rows(_any, edit(phase="warmup")), "no ok measurement"),
    "times NaN": (_rows(_is("draft_model-k3"), edit(decode_s=float("nan"))), "decode_s is missing"),
    "one time NaN": (_rows(_once, edit(decode_s=float("nan"))), "in 1 of 24 sequences"),
    "a time infinite": (_rows(_once, edit(total_s=float("inf"))), "total_s is missing or no valid"),
    "a time negative": (_rows(_once, edit(total_s=-1.0)), "total_s is missing or no valid"),
    "times null": (_rows(_is("draft_model-k3"), edit(decode_s=None)), "decode_s is missing"),
    "times zero": (_rows(_is("draft_model-k3"), edit(decode_s=0.0)), "no ratio"),
    "the baseline's time NaN": (
        _rows(_is("autoregressive"), edit(decode_s=float("nan"))),
        "baseline of HEAD",
    ),
    "steps unknown": (_rows(_is("draft_model-k3"), NO_STEPS), "the server reports none"),
    "nothing drafted": (_rows(_is("draft_model-k3"), NO_DRAFTS), "no token was drafted"),
    "forwards unknown": (_rows(_once, edit(num_target_forwards=None)), "num_target_forwards is missing"),
    "tokens not stored": (_rows(_once, edit(output_tokens=None)), "output tokens are missing"),
    "the baseline measured no repeat": (
        _drop(lambda row: row.variant_id == "autoregressive" and row.prompt_id == "p004"),
        "baseline",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_can_not_be_compared_is_never_a_pass(base: Results, name: str) -> None:
    change, says = UNFIT[name]
    found = judged(base, made_up(truth=SAME, change=change))
    assert found.verdict is Verdict.INCOMPARABLE
    reasons = [check.reason or "" for check in found.checks if check.verdict is Verdict.INCOMPARABLE]
    assert any(says in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    "name",
    ["another pair", "a failed variant", "no observations", "a missing prompt", "times NaN", "steps unknown"],
)
def test_it_is_not_a_pass_when_both_runs_have_the_trouble_or_base_alone(base: Results, name: str) -> None:
    troubled = made_up(truth=SAME, change=UNFIT[name][0])
    assert judged(troubled, base).verdict is Verdict.INCOMPARABLE


def test_a_missing_cell_and_a_new_one() -> None:
    both, one = made_up(temperatures=(0.0, 0.7), truth=SAME), made_up(truth=SAME)
    assert judged(both, one).verdict is Verdict.INCOMPARABLE
    (missing,) = [check for check in judged(both, one).checks if check.metric == "all"]
    assert (missing.cell, missing.gated) == ("temperature 0.7", True)
    assert "HEAD has no such cell" in (missing.reason or "")
    assert judged(one, both).verdict is Verdict.INCOMPARABLE
    allowed = judged(one, both, allow_new=True)
    assert allowed.verdict is Verdict.PASS
    assert any("only HEAD has it" in (check.reason or "") for check in allowed.checks)


def test_a_new_variant_counts_unless_it_is_allowed(base: Results) -> None:
    head = made_up(ks=(1, 3, 5), truth=Truth(luck=1))
    calm = made_up(truth=Truth(luck=1))
    assert judged(calm, head).verdict is Verdict.INCOMPARABLE
    assert judged(calm, head, allow_new=True).verdict is not Verdict.INCOMPARABLE


def test_two_cells_with_the_same_facts_are_ambiguous(base: Results) -> None:
    twice = Results(base.path, [*base.stored, *made_up(seed=5, truth=SAME).stored])
    found = judged(twice, base)
    assert found.verdict is Verdict.INCOMPARABLE
    assert any("ambiguous" in (check.reason or "") for check in found.checks)


def test_a_damaged_part_is_no_pass(base: Results) -> None:
    (cell,) = base.stored
    damaged = Results(base.path, [replace(cell, problems=("part-0-1.parquet: damaged",))])
    assert judged(base, damaged).verdict is Verdict.INCOMPARABLE


def test_a_run_without_speculation_compares_nothing(base: Results) -> None:
    plain = made_up(ks=(), truth=SAME)
    found = compare(plain, plain, gate({"decode_tok_per_s": MetricSettings(0.05, gated=True)}))
    assert found.verdict is Verdict.INCOMPARABLE


def test_cells_match_though_their_ids_and_the_order_differ() -> None:
    base = made_up(temperatures=(0.0, 0.7), truth=SAME)
    head = made_up(temperatures=(0.7, 0.0), seed=9, truth=SAME)
    assert not set(base.records) & set(head.records)
    found = judged(base, head)
    assert not [check for check in found.checks if check.metric == "all"]
    assert {check.cell for check in found.checks} == {"temperature 0", "temperature 0.7"}


TIMES = {"decode_tok_per_s": MetricSettings(0.05, gated=True), "ttft_p50_s": MetricSettings(0.1, gated=False)}


def _environment(**facts: Any) -> Change:
    def change(record: CellRecord, rows: list[Observation]) -> list[Observation]:
        record.environment |= facts
        return rows

    return change


def test_absolute_times_are_judged_on_one_machine() -> None:
    slower = Truth(luck=1, noise=0.02, slowdown={"autoregressive": 1.2})
    found = compare(made_up(truth=SAME), made_up(seed=1, truth=slower), gate(TIMES))
    (check,) = checks(found, "decode_tok_per_s", "autoregressive")
    assert check.verdict is Verdict.REGRESSION
    assert not any(check.gated for check in checks(found, "ttft_p50_s"))


def test_time_to_the_first_token_gets_worse_when_it_rises(base: Results) -> None:
    wait = _rows(_any, lambda row: replace(row, ttft_s=(row.ttft_s or 0) * 1.5))
    found = compare(base, made_up(truth=SAME, change=wait), gate(TIMES))
    assert {check.verdict for check in checks(found, "ttft_p50_s")} == {Verdict.REGRESSION}


@pytest.mark.parametrize(
    "facts", [{"cpu": "another"}, {"num_cores": 64}, {"packages": {"torch": "9.9"}}, {"gpu": "one more"}]
)
def test_absolute_times_of_another_machine_are_not_compared(base: Results, facts: dict[str, Any]) -> None:
    head = made_up(truth=SAME, change=_environment(**facts))
    found = compare(base, head, gate(TIMES))
    assert {check.verdict for check in found.checks} == {Verdict.INCOMPARABLE}
    assert all(next(iter(facts)) in (check.reason or "") for check in found.checks)
    ratios = judged(base, head)
    assert ratios.verdict is Verdict.PASS
    assert ratios.cautions


def test_load_and_version_of_the_harness_are_no_other_machine(base: Results) -> None:
    facts = {"code_version": "abc", "harness": "9", "load_average_1min": 3.0, "available_memory_gib": 1.0}
    head = made_up(truth=SAME, change=_environment(**facts))
    assert compare(base, head, gate(TIMES)).verdict is Verdict.PASS


def test_times_without_a_known_environment_are_not_compared() -> None:
    def forget(record: CellRecord, rows: list[Observation]) -> list[Observation]:
        record.environment = {}
        return rows

    unknown = made_up(truth=SAME, change=forget)
    assert compare(unknown, unknown, gate(TIMES)).verdict is Verdict.INCOMPARABLE


def test_tails_are_shown_and_decide_nothing(base: Results) -> None:
    metrics = dict(gate().metrics) | {"ttft_p99_s": MetricSettings()}
    late = _rows(_any, lambda row: replace(row, ttft_s=(row.ttft_s or 0) * 3))
    head = made_up(truth=SAME, change=late)
    (check,) = checks(compare(base, head, gate(metrics)), "ttft_p99_s", "draft_model-k1")
    assert (check.verdict, check.gated) == (Verdict.REPORTED, False)
    assert check.change == pytest.approx(2)


def test_what_changes_the_output_is_named_among_the_cautions() -> None:
    def change(record: CellRecord, rows: list[Observation]) -> list[Observation]:
        record.variants[1]["lossless"] = False
        return rows

    found = judged(made_up(change=change), made_up(change=change))
    assert "not lossless by design, so compare quality as well as speed: draft_model-k1." in found.cautions
    assert not any("not lossless" in text for text in judged(made_up(), made_up()).cautions)
    # nor is it the variant that BASE has under the same name
    alone = judged(made_up(), made_up(change=change))
    assert alone.verdict is Verdict.INCOMPARABLE
    assert any("lossless (true here, false there)" in str(check.reason) for check in alone.checks)


def test_a_retrained_drafter_makes_a_comparison_incomparable() -> None:
    def drafted_by(revision: str) -> Change:
        def change(record: CellRecord, rows: list[Observation]) -> list[Observation]:
            for variant in record.variants:
                variant["drafter_revision"] = None if variant["is_baseline"] else revision
            return rows

        return change

    same = judged(made_up(change=drafted_by("a" * 64)), made_up(change=drafted_by("a" * 64)))
    assert same.verdict is Verdict.PASS
    other = judged(made_up(change=drafted_by("a" * 64)), made_up(change=drafted_by("b" * 64)))
    assert other.verdict is Verdict.INCOMPARABLE
    assert any(str(check.reason).startswith("another drafter") for check in other.checks)
