from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from synthetic_results import Truth, add_failed_variant, write_synthetic_results

from harness.__main__ import main
from harness.cli.compare import _WRITERS
from harness.results.cell_folder import CELL_FILE, OBSERVATIONS_FILE

ROOT = Path(__file__).resolve().parents[2]
CALM = Truth(luck=1, noise=0.02)


def _write(
    root: Path, *, seed: int = 0, truth: Truth = CALM, temperatures: tuple[float, ...] = (0.0,)
) -> Path:
    return write_synthetic_results(
        root, "sweep", temperatures=temperatures, ks=(1, 3), num_prompts=8, seed=seed, truth=truth
    )


def _cell(run: Path) -> Path:
    return next(run.glob(f"*/{CELL_FILE}")).parent


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return _write(tmp_path / "base")


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return _write(tmp_path / "head", seed=1)


def _run(base: Path, head: Path, *arguments: str) -> int:
    """Run the command, and check that each of its outputs agrees with its exit code."""
    out = base.parents[1] / "out"
    files = [out / name for name in ("summary.md", "junit.xml", "all.json")]
    options = [text for name, file in zip(("markdown", "junit", "json"), files, strict=True)
               for text in (f"--{name}", str(file))]  # fmt: skip
    code = main(["compare", str(base), str(head), *arguments, *options])
    document = json.loads(files[2].read_text())
    assert document["exit_code"] == code
    assert f"(exit code {code})" in files[0].read_text().splitlines()[0]
    root = ElementTree.parse(files[1]).getroot()
    assert (int(root.get("failures", "")) + int(root.get("errors", "")) == 0) is (code == 0)
    return code


def _says(capsys: pytest.CaptureFixture[str], verdict: str, code: int) -> str:
    captured = capsys.readouterr()
    text = captured.err if verdict == "error" else captured.out
    last = text.strip().splitlines()[-1]
    assert last.startswith(f"{verdict}: ")
    assert last.endswith(f"(exit code {code})")
    return text


def test_pass(base: Path, head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(base, head) == 0
    _says(capsys, "pass", 0)


def test_regression(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = Truth(luck=1, noise=0.02, slowdown={"draft_model-k3": 1.15})
    assert _run(base, _write(tmp_path / "slow", truth=slow)) == 1
    assert "draft_model-k3" in _says(capsys, "regression", 1)


def test_inconclusive(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(base, _write(tmp_path / "noisy", truth=Truth(luck=1, noise=0.3))) == 3
    assert "would be decided by about" in _says(capsys, "inconclusive", 3)


def test_incomparable(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = _write(tmp_path / "other", truth=Truth(luck=1, facts={"target_revision": "f" * 12}))
    assert _run(base, other) == 4
    assert "different pair" in _says(capsys, "incomparable", 4)


def test_a_failed_variant_in_head(base: Path, head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in (base, head):
        add_failed_variant(run.parent, run.name, _cell(run).name)
    assert _run(base, head) == 4
    assert "failed in BASE: OutOfMemoryError" in _says(capsys, "incomparable", 4)


def test_a_damaged_part_of_an_unfinished_run(
    base: Path, head: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = _cell(head) / "observations" / "part-000099-9999.parquet"
    part.parent.mkdir(exist_ok=True)
    part.write_bytes(b"PAR1 not really")
    assert _run(base, head) == 4
    assert "damaged" in _says(capsys, "incomparable", 4)


def test_a_truncated_file(base: Path, head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _cell(head) / OBSERVATIONS_FILE
    file.write_bytes(file.read_bytes()[:-200])
    assert _run(base, head) == 2
    assert "damaged" in _says(capsys, "error", 2)


def test_another_format_version(base: Path, head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _cell(head) / OBSERVATIONS_FILE
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata({"format_version": "99"}), file)
    assert _run(base, head) == 2
    assert "version 99" in _says(capsys, "error", 2)


def test_a_missing_column(base: Path, head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _cell(head) / OBSERVATIONS_FILE
    pq.write_table(pq.read_table(file).drop_columns(["decode_s"]), file)
    assert _run(base, head) == 2
    assert "decode_s" in _says(capsys, "error", 2)


def test_a_folder_without_results(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(base, tmp_path / "nowhere") == 2
    assert "no stored cells" in _says(capsys, "error", 2)
    assert _run(tmp_path / "nowhere", base) == 2


def test_observations_deleted(base: Path, head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (_cell(head) / OBSERVATIONS_FILE).unlink()
    assert _run(base, head) == 4
    _says(capsys, "incomparable", 4)


def test_an_odd_record(base: Path, head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _cell(head) / CELL_FILE
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"variants": [7]}))
    assert _run(base, head) == 2
    _says(capsys, "error", 2)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("gate=strcit", "'strict'"),
        ("strict", "gate=NAME"),
        ("gate=", "gate=NAME"),
        ("gates=strict", "gate=NAME"),
    ],
)
def test_a_wrong_gate(
    base: Path, head: Path, argument: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(base, head, argument) == 2
    assert says in _says(capsys, "error", 2)


def test_an_unknown_metric_in_a_gate_file(
    base: Path, head: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yml"
    file.write_text("metrics: {aceptance_rate: {margin: 0.1}}\n")
    assert _run(base, head, f"gate={file}") == 2
    assert "'acceptance_rate'" in _says(capsys, "error", 2)


def test_shipped_gates_by_name(base: Path, head: Path) -> None:
    assert _run(base, head, "gate=tight") == 0
    assert _run(base, base, "gate=strict") == 0


def test_an_output_that_can_not_be_written_is_no_verdict(
    base: Path, head: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    written = tmp_path / "summary.md"
    options = ["--markdown", str(written), "--json", str(tmp_path / "file" / "x.json")]
    assert main(["compare", str(base), str(head), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "x.json" in _last(captured.err)
    assert _last(captured.err).endswith("(exit code 2)")
    assert "(exit code 2)" in written.read_text().splitlines()[0]


def _last(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_a_defect_of_an_output_is_no_verdict(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> bytes:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(_WRITERS, "json", broken)
    assert main(["compare", str(base), str(base), "--json", str(base / "x.json")]) == 2
    assert _last(capsys.readouterr().err) == "error: ZeroDivisionError: oops (exit code 2)"


def test_a_defect_of_the_gate_itself_is_no_verdict(
    base: Path, head: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("harness.cli.compare.compare", broken)
    assert _run(base, head) == 2
    assert "ZeroDivisionError: oops" in _says(capsys, "error", 2)


def test_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["compare", "only-one"])
    assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        main(["compare", "--help"])
    assert caught.value.code == 0
    assert "3 inconclusive" in " ".join(capsys.readouterr().out.split())


def _process(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_a_terminal_without_unicode_and_a_reader_that_left(base: Path, tmp_path: Path) -> None:
    slow = _write(tmp_path / "slow", truth=Truth(luck=1, slowdown={"draft_model-k3": 1.2}))
    found = _process("-m", "harness", "compare", str(base), str(slow))
    assert found.returncode == 1
    assert found.stdout.strip().endswith(b"(exit code 1)")
    script = f"{sys.executable} -m harness compare {base} {slow} --all | true; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    left = subprocess.run(["bash", "-c", script], env=environment, timeout=120, check=False)
    assert left.returncode == 1


def test_a_full_disk_behind_the_output_changes_no_exit_code(base: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "harness", "compare", str(base), str(base)]
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(command, env=environment, stdout=full, timeout=120, check=False)
    assert found.returncode == 0


def test_comparing_imports_no_model_library(base: Path) -> None:
    code = (
        "import sys; from harness.__main__ import main; "
        f"main(['compare', {str(base)!r}, {str(base)!r}]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'hydra')))"
    )
    found = _process("-c", code)
    assert found.returncode == 0, found.stderr
