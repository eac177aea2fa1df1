from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from cli.command_line import ROOT, run, start
from tiny_runs import TinyRun

from harness.results import load
from harness.results.cell_folder import read_cell


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A user's current directory."""
    folder = tmp_path / "desk"
    folder.mkdir()
    return folder


def without_folders(arguments: list[str]) -> list[str]:
    return [argument for argument in arguments if not argument.startswith(("results_dir=", "reports_dir="))]


def test_a_sweep_runs_end_to_end_outside_the_checkout(tiny: TinyRun, desk: Path) -> None:
    sweep = ["-m", "sampling.temperature=0,0.8", "name=mine", "method.k=[1,2]", "measure.max_repeats=1"]
    code, output, errors = run(desk, *without_folders(tiny.arguments(*sweep)))
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[-1] == "report: reports/mine/index.html"
    assert re.match(r"setting +best k +speedup", lines[0])
    assert len([line for line in lines[2:] if re.search(r"\d\.\d\dx \[.*%", line)]) == 2
    assert sorted(path.name for path in desk.iterdir()) == ["reports", "results"]

    results = load(desk / "results/mine")
    assert sorted(results.cells["temperature"]) == [0.0, 0.8]
    assert set(results.cells["status"]) == {"ok"}
    summary = results.summary()
    assert len(summary) == 6
    assert summary["decode_tok_per_s"].gt(0).all()
    agreement = results.greedy_agreement()
    assert len(agreement) == 2
    check_private(tiny, desk)


def check_private(tiny: TinyRun, desk: Path) -> None:
    """Neither results nor reports say on whose machine, or where on it, they were made."""
    texts = {
        str(file): file.read_text() for file in desk.rglob("*") if file.suffix in (".json", ".html", ".txt")
    }
    for folder in (desk / "results/mine").glob("*/cell.json"):
        texts[f"{folder} rows"] = read_cell(folder.parent).table.to_pandas().to_csv()
    assert len(texts) >= 6
    for name in (str(tiny.folder), str(ROOT), sys.prefix, str(Path.home()) + "/", "quillfeather"):
        assert [file for file, text in texts.items() if name in text] == []
    host = socket.gethostname()
    if len(host) > 3:
        word = re.compile(rf"(?<!\w){re.escape(host)}(?!\w)")
        assert [file for file, text in texts.items() if word.search(text)] == []


def test_a_killed_run_is_resumed_from_what_it_stored(tiny: TinyRun, desk: Path) -> None:
    arguments = tiny.arguments(
        "measure.min_repeats=40", "measure.max_repeats=40", "measure.max_time_s=600", "report=false"
    )
    process = start(desk, *arguments)
    try:
        deadline = time.monotonic() + 120
        while len(list(tiny.folder.glob("results/run/*/observations/part-*.parquet"))) < 12:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    killed = load(tiny.folder / "results/run")
    before = trials(killed.observations)
    assert 8 <= len(before) < 320
    assert killed.cells["status"].tolist() == ["partial"]

    code, _, errors = run(desk, *arguments)
    assert (code, errors) == (0, "")
    resumed = load(tiny.folder / "results/run")
    assert resumed.cells["cell_id"].tolist() == killed.cells["cell_id"].tolist()
    after = trials(resumed.observations)
    assert resumed.cells["status"].tolist() == ["ok"]
    assert len(after) == 320
    assert after.index.is_unique
    pd.testing.assert_frame_equal(after.loc[before.index], before)
    assert not list(tiny.folder.rglob("*.tmp"))


def trials(observations: pd.DataFrame) -> pd.DataFrame:
    kept = observations.query("phase == 'measure' and status == 'ok'")
    return kept.set_index(["variant_id", "block"])[["started_s", "trial_s", "seed", "decode_s"]].sort_index()


def test_what_only_shows_imports_no_model_library(desk: Path) -> None:
    code = (
        "import sys; from harness.__main__ import main\n"
        "codes = []\n"
        "for line in ('--help', '+sweep=smoke sampling.temperature=0.3 --cfg job', 'metod=ngram'):\n"
        "    try:\n"
        "        codes.append(main(line.split()))\n"
        "    except SystemExit as ended:\n"
        "        codes.append(ended.code or 0)\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'vllm'} & set(sys.modules)\n"
        "print(codes, sorted(heavy))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=desk, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[0, 0, 2] []"
    for name in ("k_temperature", "smollm2_135m", "draft_model, eagle", "python -m harness COMMAND --help"):
        assert name in done.stdout
    assert "temperature: 0.3" in done.stdout
    assert (
        done.stderr == "error: metod: isn't a known key, got 'ngram'. Did you mean 'method' or 'method.k'?\n"
    )
    assert list(desk.iterdir()) == []


def test_bad_input_is_one_line_and_exit_code_2(desk: Path) -> None:
    code, output, errors = run(desk, "method.k=0")
    assert (code, output) == (2, "")
    assert errors.startswith("error: method.k: must be whole numbers from 1 to 64, got 0.")
    assert errors.count("\n") == 1
    assert list(desk.iterdir()) == []


def test_ctrl_c_ends_with_130_and_a_report_of_what_there_is(tiny: TinyRun, desk: Path) -> None:
    arguments = tiny.arguments("measure.min_repeats=100", "measure.max_repeats=100", "measure.max_time_s=600")
    process = start(desk, *arguments)
    while len(list(tiny.folder.glob("results/run/*/observations/part-*.parquet"))) < 12:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "interrupted: the same command measures what is missing."
    assert "Traceback" not in errors
    assert output.splitlines()[-1].endswith("reports/run/index.html")
    (file,) = tiny.folder.glob("results/run/*/cell.json")
    record = json.loads(file.read_text())
    assert (record["status"], record["stop_reason"]) == ("partial", "interrupted")
    assert not (file.parent / "observations").exists()
