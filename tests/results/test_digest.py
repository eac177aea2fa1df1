from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from synthetic_results import add_failed_variant, write_synthetic_results

from harness.errors import ResultFormatError
from harness.findings import find, keep
from harness.results import Results, ResultStore, digest, load
from harness.results import results as results_module
from harness.results.breakdowns import best_k
from harness.results.cell_folder import CELL_FILE, OBSERVATIONS_FILE
from harness.results.digest import DIGEST_FILE
from harness.results.frames import rows_of
from harness.results.pairing import pair, pair_each, prepare

TABLES: dict[str, Callable[[Results], pd.DataFrame]] = {
    "summary": Results.summary,
    "by_task": Results.by_task,
    "per_position": Results.per_position,
    "best_k": Results.best_k,
    "look_ahead": Results.look_ahead,
    "chosen_k": Results.chosen_k,
    "spread": Results.spread,
    "greedy_agreement": Results.greedy_agreement,
    "num_repeats": Results.num_repeats,
}


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cells without digests, of which one has a variant that failed before it was measured."""
    root = tmp_path_factory.mktemp("derived")
    folder = write_synthetic_results(root, "run", temperatures=(0.0, 0.7), ks=(1, 4), num_prompts=8)
    add_failed_variant(root, "run", min(cell.name for cell in cells_of(folder)))
    return folder


@pytest.fixture
def kept(derived: Path, tmp_path: Path) -> Path:
    """The same with digests."""
    folder = tmp_path / "run"
    shutil.copytree(derived, folder)
    for cell in cells_of(folder):
        keep(cell)
    return folder


def cells_of(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob(f"*/{CELL_FILE}"))


def digests(folder: Path) -> list[bool]:
    return [cell.digest is not None for cell in load(folder).stored]


def test_kept_tables_are_those_that_are_derived(derived: Path, kept: Path) -> None:
    now, earlier = load(derived), load(kept)
    assert digests(derived) == [False, False]
    assert digests(kept) == [True, True]
    for name, table in TABLES.items():
        assert len(table(now)), name
        assert_frame_equal(table(earlier), table(now), check_exact=True)
    assert find(earlier) == find(now)


def test_a_cell_with_a_digest_is_read_without_its_observations(kept: Path) -> None:
    for cell in cells_of(kept):
        file = cell / OBSERVATIONS_FILE
        content = bytearray(file.read_bytes())
        content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
        file.write_bytes(content)
    results = load(kept)
    assert results.summary()["speedup"].notna().any()
    assert find(results) is not None
    with pytest.raises(ResultFormatError, match="damaged"):
        _ = results.observations
    # whoever goes on measuring has to know at once
    with pytest.raises(ResultFormatError, match="damaged"):
        ResultStore(kept.parent, kept.name).load_cell(cells_of(kept)[0].name)


def _touch_record(cell: Path) -> None:
    record = json.loads((cell / CELL_FILE).read_text())
    record["facts"]["temperature"] = 0.4
    (cell / CELL_FILE).write_text(json.dumps(record))


def _touch_observations(cell: Path) -> None:
    other = next(one for one in cells_of(cell.parent) if one != cell)
    shutil.copy(other / OBSERVATIONS_FILE, cell / OBSERVATIONS_FILE)


def _add_part(cell: Path) -> None:
    (cell / "observations").mkdir(exist_ok=True)
    (cell / "observations" / "part-00099-9999.parquet").write_bytes(b"cut")


def _damage_digest(cell: Path) -> None:
    (cell / DIGEST_FILE).write_bytes((cell / DIGEST_FILE).read_bytes()[:200])


@pytest.mark.parametrize("change", [_touch_record, _touch_observations, _add_part, _damage_digest])
def test_a_digest_of_other_files_is_left_aside(kept: Path, change: Callable[[Path], None]) -> None:
    change(cells_of(kept)[0])
    assert digests(kept) == [False, True]


def test_a_digest_of_other_code_is_left_aside(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "code_stamp", lambda: "another release")
    assert digests(kept) == [False, False]
    for cell in cells_of(kept):
        keep(cell)
    assert digests(kept) == [True, True]


def test_large_results_are_read_again_instead_of_held(derived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = load(derived)
    monkeypatch.setattr(results_module, "_HELD_BYTES", 0)
    read_again = load(derived)
    assert all(isinstance(cell.rows, Path) for cell in read_again.stored)
    assert_frame_equal(read_again.summary(), held.summary(), check_exact=True)
    assert_frame_equal(read_again.observations, held.observations, check_exact=True)


def test_pairing_all_variants_at_once_is_pairing_each(derived: Path) -> None:
    for _, cell in load(derived).measured.groupby("cell_id"):
        # a baseline measured twice is averaged
        again = cell[cell["is_baseline"].eq(True)].assign(
            order=9, decode_s=lambda rows: rows["decode_s"] * 1.5
        )
        rows = prepare(pd.concat([cell, again], ignore_index=True))
        baseline = rows[rows["variant_id"] == "autoregressive"]
        at_once = pair_each(rows, baseline)
        assert set(at_once) == {"autoregressive", "draft_model-k1", "draft_model-k4"}
        for variant_id, paired in at_once.items():
            alone = pair(rows[rows["variant_id"] == variant_id], baseline)
            found = paired.drop(columns="variant_id").reset_index(drop=True)
            assert_frame_equal(found, alone, check_exact=True)


def test_rows_of_a_frame_are_those_of_pandas(derived: Path) -> None:
    for table in (load(derived).summary(), load(derived).by_task().iloc[:0], load(derived).failures):
        ours, theirs = rows_of(table), table.to_dict("records")
        assert len(ours) == len(theirs) == len(table)
        for row, expected in zip(ours, theirs, strict=True):
            assert list(row) == list(expected)
            for name, value in row.items():
                assert type(value) is type(expected[name]), name
                assert value == expected[name] or (pd.isna(value) and pd.isna(expected[name])), name


def test_best_k_is_what_a_loop_over_the_groups_finds() -> None:
    rng = np.random.default_rng(3)
    rows = [
        {"cell_id": f"c{cell}", "method": method, "k": k, "variant_id": f"{method}-{k}", "is_baseline": False}
        for cell in range(40)
        for method in ("ngram", "eagle")
        for k in rng.permutation([1, 2, 3, 5, 8]).tolist()
    ]
    summary = pd.DataFrame(rows).assign(speedup=rng.choice([0.8, 0.9, 1.0, 1.1, 1.2, np.nan], len(rows)))
    width = rng.choice([0.02, 0.15, np.nan], len(rows))
    summary = summary.assign(speedup_low=summary["speedup"] - width, speedup_high=summary["speedup"] + width)
    found = best_k(summary).to_dict("records")
    at = 0
    for (cell_id, method), group in summary.dropna(subset="speedup").groupby(
        ["cell_id", "method"], sort=False
    ):
        ordered = sorted(group.to_dict("records"), key=lambda row: row["k"])
        best = max(ordered, key=lambda row: row["speedup"])
        bar = best["speedup"] if np.isnan(best["speedup_low"]) else best["speedup_low"]
        chosen = next(row for row in ordered if row["speedup"] >= bar)
        faster = "yes" if chosen["speedup_low"] > 1 else "no" if chosen["speedup_high"] < 1 else "unclear"
        row = found[at]
        at += 1
        assert (row["cell_id"], row["method"], row["best_k"]) == (cell_id, method, best["k"])
        assert row["best_speedup"] == best["speedup"]
        assert row["faster"] == faster
        assert row["recommended_k"] == (0 if faster == "no" else chosen["k"])
        wanted = None if faster == "no" else chosen["variant_id"]
        assert row["recommended_variant_id"] == wanted or (
            wanted is None and pd.isna(row["recommended_variant_id"])
        )
        assert row["recommended_speedup"] == chosen["speedup"]
    assert at == len(found)
