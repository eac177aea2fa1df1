from __future__ import annotations

from dataclasses import replace

import pytest
from gate_runs import checks, gate, judged, made_up

from harness.gate.comparison import compare
from harness.gate.evidence import joint_rows
from harness.gate.settings import MetricSettings
from harness.gate.verdict import Verdict
from harness.records import CellRecord, Observation
from harness.results import Results

SUMMARISED = ("acceptance_rate", "tokens_per_forward", "speedup", "end_to_end_speedup", "throughput_speedup")
TIMES = ("decode_tok_per_s", "end_to_end_tok_per_s", "throughput_tok_per_s", "ttft_p50_s")
TAILS = ("ttft_p90_s", "tpot_p99_s", "step_p99_s", "total_p99_s")


@pytest.fixture(scope="module")
def runs() -> tuple[Results, Results]:
    return made_up(temperatures=(0.0, 0.7)), made_up(seed=1, temperatures=(0.0, 0.7))


@pytest.mark.parametrize("name", [*SUMMARISED, *TIMES, *TAILS])
def test_figures_are_those_of_the_summary(runs: tuple[Results, Results], name: str) -> None:
    wanted = {name: MetricSettings(0.05 if name not in TAILS else None, gated=False)}
    found = checks(compare(*runs, gate(wanted)), name)
    expected = {
        (f"temperature {row['temperature']:g}", row["variant_id"]): (row[name], other)
        for row, other in zip(
            runs[0].summary().to_dict("records"), runs[1].summary()[name].tolist(), strict=True
        )
    }
    assert len(found) == (6 if name in (*TIMES, *TAILS) else 4)
    for check in found:
        assert (check.base, check.head) == pytest.approx(expected[(check.cell, check.variant)])


def test_agreement_is_that_of_the_results_and_only_at_temperature_0(runs: tuple[Results, Results]) -> None:
    found = checks(compare(*runs, gate()), "greedy_agreement")
    assert {check.cell for check in found} == {"temperature 0"}
    assert [(check.base, check.head) for check in found] == [(1.0, 1.0)] * 2


def _repeat_some_prompts(_: CellRecord, rows: list[Observation]) -> list[Observation]:
    """A third pass over the even prompts alone, as an interrupted run leaves it."""
    again = [
        replace(row, repeat=2, block=row.block + 1000)
        for row in rows
        if row.phase == "measure" and row.repeat == 0 and int(row.prompt_id[1:]) % 2 == 0
    ]
    return rows + again


def _slow_odd_prompts(_: CellRecord, rows: list[Observation]) -> list[Observation]:
    def slow(row: Observation) -> Observation:
        if row.variant_id == "autoregressive" or int(row.prompt_id[-1]) % 2 == 0:
            return row
        return replace(row, decode_s=3 * row.decode_s, total_s=row.ttft_s + 3 * row.decode_s)

    return [slow(row) for row in rows]


def test_a_prompt_counts_once_however_often_it_was_repeated() -> None:
    base = made_up(change=_slow_odd_prompts)
    head = made_up(change=lambda record, rows: _repeat_some_prompts(record, _slow_odd_prompts(record, rows)))
    (check,) = checks(judged(base, head), "speedup", "draft_model-k3")
    # Pooled over sequences the easy prompts would weigh more in HEAD, and read as an improvement of a tenth.
    assert check.change == pytest.approx(0, abs=0.01)
    assert check.verdict is Verdict.PASS


def test_prompts_batched_together_in_either_run_are_resampled_together() -> None:
    def batched(size: int):
        def change(_: CellRecord, rows: list[Observation]) -> list[Observation]:
            return [
                replace(row, block=row.repeat * 100 + int(row.prompt_id[1:]) // size)
                if row.phase == "measure"
                else row
                for row in rows
            ]

        return change

    base, head = made_up(change=batched(2)), made_up(change=batched(3))
    ours, theirs = joint_rows(base.measured, head.measured)
    groups = {
        tuple(sorted(int(prompt[1:]) for prompt in set(rows["prompt_id"])))
        for side in (ours, theirs)
        for _, rows in side.groupby("unit")
    }
    assert groups == {(0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11)}


def test_empty_runs_have_no_rows_to_pair(runs: tuple[Results, Results]) -> None:
    nothing = runs[0].measured.iloc[:0]
    assert [len(side) for side in joint_rows(nothing, nothing)] == [0, 0]
    assert [len(side) for side in joint_rows(nothing, runs[1].measured)] == [0, len(runs[1].measured)]
