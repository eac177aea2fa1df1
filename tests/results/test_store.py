from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import ConfigError, ResultFormatError, StorageError
from harness.records import CellRecord, Failure, Observation
from harness.results import ResultStore
from harness.results.observation_table import SCHEMA, read_table, to_table, write_table

MakeRecord = Callable[..., CellRecord]
MakeObservation = Callable[..., Observation]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_schema_has_every_attribute_of_an_observation() -> None:
    assert SCHEMA.names == [field.name for field in fields(Observation)]


def test_observations_round_trip_exactly(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    whole = make_observation("ngram-k2", step_draft_s=[1e-9, 0.1 + 0.2, 3.0, 0.0], seed=2**62)
    empty = make_observation(
        prompt_id="p1",
        status="failed",
        error="MeasurementError: no tokens",
        **dict.fromkeys(["decode_s", "num_output_tokens", "last_step_truncated", "output_tokens"]),
        **dict.fromkeys([name for name in SCHEMA.names if name.startswith("step_")]),
    )
    writer = store.open_cell(make_record(2))
    writer.append([whole, empty])
    for finish in (False, True):
        if finish:
            writer.finish(make_record(2))
        cell = store.load_cell("c0")
        assert cell is not None
        assert cell.table.to_pylist() == [asdict(whole), asdict(empty)]
        row = cell.observations.iloc[0]
        assert {name: _plain(row[name]) for name in ("step_draft_s", "output_tokens")} == {
            "step_draft_s": whole.step_draft_s,
            "output_tokens": whole.output_tokens,
        }


def test_record_round_trips(store: ResultStore, make_record: MakeRecord) -> None:
    record = make_record(1, 2)
    record.failures = [Failure("measure", "ngram-k2", "it broke", "Traceback ...")]
    record.cold_start = [{"part": "import", "variant_id": None, "seconds": 1.5}]
    store.open_cell(record).finish(record)
    cell = store.load_cell("c0")
    assert cell is not None
    assert cell.record == record


def test_finishing_leaves_one_compressed_file_with_its_version(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    writer = store.open_cell(make_record())
    for block in range(3):
        writer.append([make_observation(block=block)])
    folder = store.path / "c0"
    assert sorted(path.name for path in (folder / "observations").iterdir()) == [
        "part-00000-0.parquet",
        "part-00001-1.parquet",
        "part-00002-2.parquet",
    ]
    writer.finish(make_record())
    assert sorted(path.name for path in folder.iterdir()) == ["cell.json", "observations.parquet"]
    file = pq.ParquetFile(folder / "observations.parquet")
    assert file.schema_arrow.metadata[b"format_version"] == b"2"
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert json.loads((folder / "cell.json").read_text())["format_version"] == 2


def test_reopening_goes_on_after_finish(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    writer = store.open_cell(make_record())
    writer.append([make_observation(block=0)])
    writer.finish(make_record())
    again = store.open_cell(make_record())
    again.append([make_observation(block=1)])
    for _ in range(2):
        assert _blocks(store) == [0, 1]
        again.finish(make_record())
    again.append([make_observation(block=2)])
    assert _blocks(store) == [0, 1, 2]


def _blocks(store: ResultStore) -> list[int]:
    cell = store.load_cell("c0")
    assert cell is not None
    return cell.observations["block"].tolist()


KILLED = """
import os, signal, sys
sys.path[:0] = {path!r}
from pathlib import Path
from harness.records import CellRecord, Observation
from harness.results import ResultStore
record = CellRecord("c0", "run", "partial", {{}}, [])
writer = ResultStore(Path({root!r}), "run").open_cell(record)
for block in range(3):
    keys = dict(cell_id="c0", variant_id="autoregressive", phase="measure", repeat=0, order=0)
    writer.append([Observation(**keys, block=block, prompt_id="p", task="t", seed=0, status="ok")])
(writer.folder / "observations" / "part-00003-3.parquet.77.tmp").write_bytes(b"half a fi")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_keeps_its_trials_and_resumes(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    code = KILLED.format(path=sys.path, root=str(store.path.parent))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    done = {("autoregressive", "measure", 0, block) for block in range(3)}
    assert store.completed_trials("c0") == done
    writer = store.open_cell(make_record())
    assert not list(store.path.rglob("*.tmp"))
    writer.append([make_observation(block=3)])
    assert _blocks(store) == [0, 1, 2, 3]
    writer.finish(make_record())
    assert _blocks(store) == [0, 1, 2, 3]


def test_killed_between_merging_and_deleting_counts_nothing_twice(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation, monkeypatch: Any
) -> None:
    writer = store.open_cell(make_record())
    writer.append([make_observation(block=0)])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", _raise_keyboard_interrupt)
        with pytest.raises(KeyboardInterrupt):
            writer.finish(make_record())
    assert list((store.path / "c0" / "observations").glob("part-*"))
    assert _blocks(store) == [0]
    again = store.open_cell(make_record())
    again.append([make_observation(block=1)])
    assert _blocks(store) == [0, 1]
    again.finish(make_record())
    assert _blocks(store) == [0, 1]


def _raise_keyboard_interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_completed_trials_are_whole_and_ok(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    assert store.completed_trials("c0") == set()
    writer = store.open_cell(make_record(2))
    writer.append([make_observation(), make_observation(prompt_id="p1")])
    writer.append([make_observation("ngram-k2"), make_observation("ngram-k2", "p1", status="failed")])
    writer.append([make_observation(phase="warmup"), make_observation("ngram-k2", block=1, status="skipped")])
    assert store.completed_trials("c0") == {
        ("autoregressive", "measure", 0, 0),
        ("autoregressive", "warmup", 0, 0),
    }


def test_a_damaged_part_is_reported_and_its_trials_are_missing(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation, caplog: Any
) -> None:
    writer = store.open_cell(make_record())
    for block in range(3):
        writer.append([make_observation(block=block)])
    part = store.path / "c0" / "observations" / "part-00001-1.parquet"
    part.write_bytes(part.read_bytes()[:-40])
    cell = store.load_cell("c0")
    assert cell is not None
    assert len(cell.problems) == 1
    assert "part-00001-1.parquet: damaged" in cell.problems[0]
    assert {block for *_, block in store.completed_trials("c0")} == {0, 2}

    again = store.open_cell(make_record())
    assert "part-00001-1.parquet: damaged" in caplog.text
    again.append([make_observation(block=1)])
    again.finish(make_record())
    assert sorted(_blocks(store)) == [0, 1, 2]
    assert [path.name for path in (store.path / "c0" / "observations").iterdir()] == [
        "part-00001-1.parquet.damaged"
    ]


@pytest.mark.parametrize("content", [b"", b"PAR1 not really", b"\0" * 200])
def test_a_damaged_merged_file_is_refused_by_name(
    store: ResultStore, make_record: MakeRecord, content: bytes
) -> None:
    store.open_cell(make_record()).finish(make_record())
    (store.path / "c0" / "observations.parquet").write_bytes(content)
    with pytest.raises(
        ResultFormatError, match=r"c0/observations\.parquet: damaged .* measure the cell again"
    ):
        store.load_cell("c0")


def test_another_format_version_is_refused_with_both_versions(
    store: ResultStore, make_record: MakeRecord
) -> None:
    record = make_record()
    store.open_cell(record).finish(record)
    path = store.path / "c0" / "cell.json"
    path.write_text(path.read_text().replace('"format_version": 2', '"format_version": 99'))
    for read in (lambda: store.load_cell("c0"), lambda: store.open_cell(record)):
        with pytest.raises(ResultFormatError, match=r"cell\.json: format version 99, .* version 2"):
            read()


@pytest.mark.parametrize("file", ["observations.parquet", "observations/part-00000-0.parquet"])
def test_parquet_of_another_format_version_is_refused(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation, file: str
) -> None:
    store.open_cell(make_record())
    table = to_table([make_observation()]).replace_schema_metadata({"format_version": "3"})
    pq.write_table(table, store.path / "c0" / file)
    with pytest.raises(ResultFormatError, match=r"parquet: format version 3, .* version 2"):
        store.load_cell("c0")


def test_odd_columns_are_refused_by_name(tmp_path: Path, make_observation: MakeObservation) -> None:
    table = to_table([make_observation()])
    write_table(tmp_path / "t.parquet", table.append_column("extra", pa.array([1])))
    with pytest.raises(ResultFormatError, match="differs in extra"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("text", ["{", "[]", '{"format_version": 1, "nonsense": 2}'])
def test_a_damaged_record_is_refused_by_name(store: ResultStore, make_record: MakeRecord, text: str) -> None:
    store.open_cell(make_record())
    (store.path / "c0" / "cell.json").write_text(text)
    with pytest.raises(ResultFormatError, match=r"c0/cell\.json"):
        store.load_cell("c0")


def test_cells_are_listed_in_order(store: ResultStore, make_record: MakeRecord) -> None:
    for cell_id in ("c2", "c1"):
        store.open_cell(make_record(cell_id=cell_id))
    (store.path / "not-a-cell").mkdir()
    assert store.cell_ids() == ["c1", "c2"]
    assert [cell.record.cell_id for cell in store.cells()] == ["c1", "c2"]
    assert store.load_cell("c3") is None


@pytest.mark.parametrize(
    ("name", "folder"),
    [("a/b", "a-b"), ("../../etc", "etc"), ("k=1, T 0.7", "k-1-T-0.7"), (".hidden", "hidden")],
)
def test_names_stay_inside_the_root(tmp_path: Path, name: str, folder: str) -> None:
    assert ResultStore(tmp_path, name).path == tmp_path / folder


def test_a_name_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name: needs a letter"):
        ResultStore(tmp_path, "../..")


def test_check_writable_creates_the_folder_and_leaves_it_empty(store: ResultStore) -> None:
    store.check_writable()
    assert list(store.path.iterdir()) == []


def test_check_writable_names_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/run: can't write, .*file.* choose another results folder"):
        ResultStore(tmp_path / "file", "run").check_writable()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_check_writable_names_a_folder_without_permission(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(StorageError, match=r"permission denied\. Make the folder writable"):
        ResultStore(tmp_path / "locked", "run").check_writable()


def test_check_writable_refuses_a_nearly_full_disk(store: ResultStore, monkeypatch: Any) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(2**30, 2**30 - 2**20, 2**20))
    with pytest.raises(StorageError, match=r"1\.0 MiB free, at least 16 MiB needed"):
        store.check_writable()


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.ENOSPC, "the disk is full. Free some space"),
        (errno.EROFS, "the file system is read-only. Choose"),
        (errno.EACCES, "permission denied. Make the folder writable"),
        (errno.EIO, "Input/output error.* Check the disk"),
    ],
)
def test_a_failed_write_says_what_to_do_and_leaves_the_old_file(
    store: ResultStore, make_record: MakeRecord, monkeypatch: Any, number: int, cause: str
) -> None:
    writer = store.open_cell(make_record())
    before = (store.path / "c0" / "cell.json").read_bytes()

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    changed = make_record()
    changed.status = "failed"
    with pytest.raises(StorageError, match=rf"cell\.json: can't write, .*{cause}"):
        writer.update(changed)
    assert (store.path / "c0" / "cell.json").read_bytes() == before
    assert not list(store.path.rglob("*.tmp"))
