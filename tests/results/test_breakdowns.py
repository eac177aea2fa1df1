from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from harness.records import CellRecord, Observation
from harness.results import Results, ResultStore, load
from harness.results.agreement import first_divergence
from harness.results.breakdowns import best_k

MakeRecord = Callable[..., CellRecord]
MakeObservation = Callable[..., Observation]


def test_by_task_restricts_every_figure_to_the_task(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    writer = store.open_cell(make_record(2))
    for block, (task, fast) in enumerate([("code", 2.0), ("code", 4.0), ("chat", 1.0)]):
        where = {"task": task, "block": block, "prompt_id": f"p{block}"}
        drafted = {"step_proposed": [2, 2], "step_accepted": [2, 0], "step_emitted": [3, 1]}
        timed = {"step_draft_s": [0.0, 0.0], "step_verify_s": [0.1, 0.1], "decode_s": 0.4 / fast}
        writer.append([make_observation(**where), make_observation("ngram-k2", **where, **drafted, **timed)])
    table = load(store.path).by_task().set_index(["variant_id", "task"])
    code, chat = table.loc[("ngram-k2", "code")], table.loc[("ngram-k2", "chat")]
    assert code["speedup"] == pytest.approx(0.8 / 0.3)
    # one prompt ran at 2.0, the other at 4.0: Student's t of 1 degree leaves much doubt
    spread = 12.706204736 * np.hypot(np.log(2.0 * 0.3 / 0.8), np.log(4.0 * 0.3 / 0.8))
    ends = (0.8 / 0.3 * np.exp(-spread), 0.8 / 0.3 * np.exp(spread))
    assert (code["speedup_low"], code["speedup_high"]) == pytest.approx(ends)
    assert (code["num_prompts"], code["num_output_tokens"]) == (2, 10)
    assert code["acceptance_rate"] == 0.5
    assert chat["speedup"] == pytest.approx(1.0)
    assert pd.isna(chat["speedup_low"])
    assert table.loc[("autoregressive", "code"), "speedup"] == 1.0
    assert set(table["temperature"]) == {0.0}


def test_per_position_pools_the_steps_of_a_variant(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    counts = {"step_proposed": [3, 3, 0, 2], "step_accepted": [3, 1, 0, 0], "step_emitted": [4, 2, 1, 1]}
    store.open_cell(make_record(3)).append([make_observation(), make_observation("ngram-k3", **counts)])
    table = load(store.path).per_position()
    assert table["variant_id"].unique().tolist() == ["ngram-k3"]
    assert table["position"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(table["marginal"], [2 / 3, 1 / 3, 1 / 2])
    np.testing.assert_allclose(table["conditional"], [2 / 3, 1 / 2, 1.0])
    assert table["num_steps"].tolist() == [3, 3, 2]
    assert table["num_reached"].tolist() == [3, 2, 1]


def _summary(*rows: tuple[int, float, float | None, float | None], method: str = "ngram") -> pd.DataFrame:
    names = ["k", "speedup", "speedup_low", "speedup_high"]
    frame = pd.DataFrame(rows, columns=names).astype(float)
    return frame.assign(
        cell_id="c0",
        method=method,
        variant_id=[f"{method}-k{int(k)}" for k in frame["k"]],
        is_baseline=[method == "autoregressive"] * len(frame),
    )


def test_best_k_recommends_the_smallest_within_the_best_ones_interval() -> None:
    found = best_k(
        _summary((7, 1.9, 1.75, 2.1), (1, 1.4, 1.3, 1.5), (3, 1.8, 1.7, 1.9), (5, 1.88, 1.7, 2.0))
    ).iloc[0]
    assert (found["best_k"], found["best_speedup"]) == (7, 1.9)
    assert (found["recommended_k"], found["recommended_speedup"]) == (3, 1.8)
    assert found["recommended_variant_id"] == "ngram-k3"
    assert found["faster"] == "yes"


@pytest.mark.parametrize(
    ("row", "faster", "recommended"),
    [
        ((2, 1.2, 1.05, 1.3), "yes", 2),
        ((2, 1.1, 0.95, 1.3), "unclear", 2),
        ((2, 0.8, 0.70, 0.9), "no", 0),
        ((2, 0.8, None, None), "unclear", 2),
    ],
)
def test_best_k_says_whether_speculation_pays(
    row: tuple[int, float, float | None, float | None], faster: str, recommended: int
) -> None:
    found = best_k(_summary(row)).iloc[0]
    assert (found["faster"], found["recommended_k"]) == (faster, recommended)


def test_best_k_leaves_out_the_baseline_and_what_has_no_speedup() -> None:
    baseline = _summary((0, 1.0, None, None), method="autoregressive")
    failed = _summary((4, float("nan"), None, None), method="eagle")
    found = best_k(pd.concat([baseline, failed, _summary((2, 1.2, 1.1, 1.3))]))
    assert found["method"].tolist() == ["ngram"]


def test_best_k_of_the_synthetic_sweep_lies_inside_it(synthetic: Results) -> None:
    found = synthetic.best_k()
    assert found["best_k"].between(2, 6).all()
    assert (found["recommended_k"] <= found["best_k"]).all()
    assert (found["faster"] == "yes").all()


@pytest.mark.parametrize(
    ("tokens", "reference", "index"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 9, 3], [1, 2, 3], 1),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 3, 4], [1, 2, 3], 3),
        ([], [1], 0),
        ([], [], None),
    ],
)
def test_first_divergence(tokens: list[int], reference: list[int], index: int | None) -> None:
    assert first_divergence(tokens, reference) == index


def test_greedy_agreement_counts_prompts_over_all_repeats(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    outputs = {
        ("p0", 0): [1, 2, 3, 4],
        ("p0", 1): [1, 2, 3, 4],
        ("p1", 0): [1, 2, 3, 4],
        ("p1", 1): [1, 2, 9, 4],
        ("p2", 0): [1, 7, 3, 4],
        ("p2", 1): [1, 2, 3],
        ("p3", 0): None,
    }
    writer = store.open_cell(make_record(2))
    for block, ((prompt_id, repeat), tokens) in enumerate(outputs.items()):
        where = {"prompt_id": prompt_id, "repeat": repeat, "block": block}
        reference = make_observation(**where, output_tokens=[1, 2, 3, 4])
        writer.append([reference, make_observation("ngram-k2", **where, output_tokens=tokens)])
    sampled = make_record(2, cell_id="c1", temperature=0.7)
    store.open_cell(sampled).append(
        [make_observation(cell_id="c1"), make_observation("ngram-k2", cell_id="c1", output_tokens=[5])]
    )
    table = load(store.path).greedy_agreement()
    assert table[["cell_id", "variant_id"]].values.tolist() == [["c0", "ngram-k2"]]
    row = table.iloc[0]
    assert (row["num_prompts"], row["num_equal"], row["share_equal"]) == (3, 1, pytest.approx(1 / 3))
    assert (row["first_divergence_tokens"], row["first_divergence_prompt_id"]) == (1, "p2")
    assert row["median_divergence_tokens"] == 1.5


def test_greedy_agreement_of_equal_outputs_has_no_divergence(synthetic: Results) -> None:
    table = synthetic.greedy_agreement()
    assert table["temperature"].tolist() == [0.0] * 10
    assert (table["share_equal"] == 1).all()
    assert table["first_divergence_tokens"].isna().all()
