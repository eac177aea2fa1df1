from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from runner.scripted_backend import Script
from tiny_runs import TinyRun, write_workload

from harness.__main__ import main
from harness.errors import OutOfMemoryError
from harness.results import load

SWEEP = ("-m", "sampling.temperature=0,1")


class Ended:
    """How a command ended."""

    def __init__(self, code: int, output: str, errors: str) -> None:
        self.code, self.output, self.errors = code, output, errors

    def check_error(self, code: int, start: str) -> None:
        """One line that begins with `error:`, and no traceback."""
        assert (self.code, self.output) == (code, "")
        assert self.errors.startswith(f"error: {start}")
        assert self.errors.count("\n") == 1


@pytest.fixture
def command(tiny: TinyRun, script: Script, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tiny, capsys)


class Command:
    """Runs the command line in this process, on the scripted backend."""

    def __init__(self, tiny: TinyRun, capsys: pytest.CaptureFixture[str]) -> None:
        self.tiny, self._capsys = tiny, capsys
        self.results = tiny.folder / "results/run"

    def __call__(self, *more: str) -> Ended:
        """Without the report, which takes longer than all the rest, unless `more` asks for it."""
        return self.plain(*self.tiny.arguments("backend.name=scripted", "report=false", *more))

    def plain(self, *arguments: str) -> Ended:
        self._capsys.readouterr()
        code = main(list(arguments))
        output, errors = self._capsys.readouterr()
        return Ended(code, output, errors)

    def statuses(self) -> dict[float, str]:
        """Status by temperature."""
        cells = load(self.results).cells
        return dict(zip(cells["temperature"], cells["status"], strict=True))


def test_a_complete_run_says_so(command: Command) -> None:
    ended = command("report=true")
    assert (ended.code, ended.errors) == (0, "")
    lines = ended.output.splitlines()
    assert lines[-1] == f"report: {command.tiny.folder / 'reports/run/index.html'}"
    assert Path(lines[-1].removeprefix("report: ")).read_text().startswith("<!DOCTYPE html>")
    assert any("1.00x" in line for line in lines)


def test_a_second_run_measures_nothing_and_says_the_same(command: Command, script: Script) -> None:
    first = command("report=true")
    script.decoded.clear()
    second = command("report=true")
    assert (second.code, second.output) == (0, first.output)
    assert script.decoded == []
    assert script.opened == script.closed == 1


def test_a_report_can_be_left_out(command: Command) -> None:
    ended = command()
    assert (ended.code, ended.output, ended.errors) == (0, "", "")
    assert command.statuses() == {0.0: "ok"}
    assert not (command.tiny.folder / "reports").exists()


def test_a_failing_cell_does_not_stop_the_others(command: Command, script: Script) -> None:
    script.decode_errors["autoregressive", 0] = OutOfMemoryError("3 GiB needed.")
    ended = command("report=true", *SWEEP)
    assert ended.code == 1
    assert command.statuses() == {0.0: "failed", 1.0: "ok"}
    assert "failed: autoregressive (warmup): 3 GiB needed." in ended.errors
    assert "Traceback" not in ended.errors
    assert ended.output.splitlines()[-1].startswith("report: ")
    # mended, the same command measures the failed cell alone
    script.decoded.clear()
    assert command(*SWEEP).code == 0
    assert command.statuses() == {0.0: "ok", 1.0: "ok"}
    assert script.calls("autoregressive") == 1 + 4


def test_a_failing_variant_does_not_stop_its_cell(command: Command, script: Script) -> None:
    script.prepare_errors["draft_model-k2"] = RuntimeError("broken drafter")
    ended = command("report=true", "compare=[{name:ngram,k:3}]")
    assert ended.code == 1
    assert ended.errors == "failed: draft_model-k2 (prepare): RuntimeError: broken drafter\n"
    assert "n-gram" in ended.output
    assert command.statuses() == {0.0: "partial"}


def test_an_engine_that_does_not_start(command: Command, script: Script) -> None:
    script.open_error = OutOfMemoryError("the target doesn't fit.")
    ended = command()
    assert ended.code == 1
    assert ended.errors.splitlines()[-1] == "failed: the cell (cell): the target doesn't fit."
    assert command.statuses() == {0.0: "failed"}


def test_ctrl_c_keeps_finished_cells_and_trials(command: Command, script: Script) -> None:
    script.decode_errors["draft_model-k2", 1 + 4 + 1 + 2] = KeyboardInterrupt()  # in the second cell
    ended = command(*SWEEP)
    assert ended.code == 130
    assert ended.errors == "interrupted: the same command measures what is missing.\n"
    assert command.statuses() == {0.0: "ok", 1.0: "partial"}
    script.decoded.clear()
    assert command(*SWEEP).code == 0
    assert command.statuses() == {0.0: "ok", 1.0: "ok"}
    assert script.calls("draft_model-k2") == 1 + 2


def test_ctrl_c_while_planning(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(name: str) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.runner.plan.load_workload", press)
    ended = command()
    assert (ended.code, ended.output, ended.errors) == (130, "", "interrupted\n")


def test_values_given_twice_are_one_cell(command: Command) -> None:
    assert command("-m", "sampling.temperature=0,0.0").code == 0
    assert command.statuses() == {0.0: "ok"}


@pytest.mark.parametrize("field", ["name", "results_dir", "resume"])
def test_cells_of_a_sweep_share_their_folders(field: str, command: Command) -> None:
    ended = command("-m", f"{field}=true,false")
    ended.check_error(2, f"{field}: takes one value in a sweep")


def test_a_mistake_in_the_last_cell_keeps_the_first_from_starting(command: Command, script: Script) -> None:
    other = write_workload(command.tiny.folder / "long.jsonl", ("much " * 100,))
    ended = command("-m", f"workload.name={command.tiny.workload},{other}")
    ended.check_error(2, "long, prompt 'long-0':")
    assert script.opened == 0


@pytest.mark.parametrize(
    ("override", "start"),
    [
        ("pair.target=path:/nowhere/target", "model reference 'path:/nowhere/target': /nowhere/target isn't"),
        ("pair.drafter=asset:nothing", "asset:nothing: no such drafter"),
        ("workload.name=nothing", "unknown workload 'nothing'"),
        ("workload.name=nothing.jsonl", "nothing.jsonl: no such workload file"),
        ("batch_size=3", "batch_size: backend.name=scripted decodes at most 2"),
        ("+sweep=nothing", "sweep: has no such file, got 'nothing'"),
        ("sampling.temperature=0,1", "sampling.temperature: takes one value, got '0,1'. Add -m"),
        ("measure.seed=-1", "measure.seed: must be at least 0"),
        ("compare=[{name:draft_model,k:2}]", "compare: must not repeat a variant"),
    ],
)
def test_bad_input_is_one_line_and_measures_nothing(
    override: str, start: str, command: Command, script: Script
) -> None:
    command(override).check_error(2, start)
    assert script.opened == 0
    assert not list(command.tiny.folder.glob("results/run/*/cell.json"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the file is empty"),
        ('{"format": "specdec-workload"', "line 1, column"),
        ("[1]", "must be a JSON object"),
    ],
)
def test_malformed_workloads_name_the_file(content: str, says: str, command: Command) -> None:
    command.tiny.workload.write_text(content)
    ended = command()
    ended.check_error(2, str(command.tiny.workload))
    assert says in ended.errors


def test_a_workload_without_prompts(command: Command) -> None:
    write_workload(command.tiny.workload, ())
    ended = command()
    ended.check_error(2, f"{command.tiny.workload}: no prompts after the header")


def test_a_file_in_the_place_of_the_results_folder(command: Command, script: Script) -> None:
    (command.tiny.folder / "results").write_text("mine")
    ended = command()
    ended.check_error(2, str(command.tiny.folder / "results"))
    assert "can't write" in ended.errors
    assert "choose another results folder" in ended.errors
    assert script.opened == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_results_folder_without_rights(command: Command) -> None:
    (command.tiny.folder / "results").mkdir(mode=0o555)
    ended = command()
    ended.check_error(2, str(command.tiny.folder / "results"))
    assert "permission denied" in ended.errors


def test_a_full_disk_ends_the_run_and_keeps_what_is_stored(
    command: Command, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_sync = os.fsync

    def sync(descriptor: int) -> None:
        stored = list(command.results.glob("*/observations/part-*.parquet"))
        if len(stored) >= 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        really_sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr("harness.results.storage.os.fsync", sync)
        ended = command(*SWEEP)
    ended.check_error(1, str(command.results))
    assert "can't write, the disk is full. Free some space" in ended.errors
    assert script.opened == script.closed == 1
    stored = len(load(command.results).measured)
    assert stored == 3  # the other two parts are warmup
    script.decoded.clear()
    assert command(*SWEEP).code == 0
    assert command.statuses() == {0.0: "ok", 1.0: "ok"}
    assert len(script.decoded) == 2 + (8 - stored) + 2 + 8


def test_results_of_another_format_version_are_refused(command: Command, script: Script) -> None:
    assert command().code == 0
    (file,) = command.results.glob("*/cell.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "format_version": 999}))
    script.decoded.clear()
    ended = command()
    ended.check_error(2, f"{file}: format version 999, this release reads version 2.")
    assert script.decoded == []
    command.plain("report", str(command.results)).check_error(2, f"{file}: format version 999")
    # measured anew, they are replaced
    assert command("resume=false").code == 0


def test_damaged_results_are_refused_before_measuring(command: Command, script: Script) -> None:
    assert command().code == 0
    (file,) = command.results.glob("*/observations.parquet")
    file.write_bytes(file.read_bytes()[:100])
    script.decoded.clear()
    ended = command()
    ended.check_error(2, f"{file}: damaged")
    assert script.decoded == []


def test_a_damaged_last_cell_keeps_the_first_from_being_measured(command: Command, script: Script) -> None:
    assert command("sampling.temperature=1").code == 0
    (file,) = command.results.glob("*/cell.json")
    file.write_text("{")
    script.decoded.clear()
    command(*SWEEP).check_error(2, f"{file}: can't be read")
    assert script.decoded == []


def test_a_report_that_cannot_be_written_leaves_the_results(command: Command) -> None:
    (command.tiny.folder / "reports").write_text("mine")
    ended = command("report=true")
    assert (ended.code, ended.output) == (1, "")
    assert ended.errors.startswith(f"error: the results are stored in {command.results}, but no report:")
    assert command.statuses() == {0.0: "ok"}


def test_the_report_command_measures_nothing(command: Command, script: Script) -> None:
    measured = command("report=true")
    first = (command.tiny.folder / "reports/run/index.html").read_text()
    script.decoded.clear()
    out = command.tiny.folder / "elsewhere"
    ended = command.plain("report", str(command.results), "--out", str(out))
    assert (ended.code, ended.errors, script.decoded) == (0, "", [])
    assert ended.output.splitlines()[-1] == f"report: {out / 'index.html'}"
    assert ended.output.splitlines()[:-1] == measured.output.splitlines()[:-1]
    assert (out / "index.html").read_text() == first


def test_the_report_goes_to_reports_in_the_current_directory(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command()
    desk = command.tiny.folder / "desk"
    desk.mkdir()
    monkeypatch.chdir(desk)
    ended = command.plain("report", str(command.results))
    assert ended.output.splitlines()[-1] == "report: reports/run/index.html"
    assert (desk / "reports/run/index.html").is_file()


def test_a_report_of_nothing(command: Command, tmp_path: Path) -> None:
    ended = command.plain("report", str(tmp_path / "nothing"))
    ended.check_error(2, f"{tmp_path / 'nothing'}: no stored cells")
    assert "measure first" in ended.errors


def test_own_configuration_is_added_to_the_shipped_one(command: Command) -> None:
    tiny = command.tiny
    for group in ("pair", "sweep"):
        (tiny.folder / "own" / group).mkdir(parents=True)
    (tiny.folder / "own/pair/mine.yaml").write_text(
        f"defaults: [schema, _self_]\nname: mine\ntarget: path:{tiny.target}\ndrafter: path:{tiny.drafter}\n"
    )
    (tiny.folder / "own/sweep/top_k.yaml").write_text(
        "# @package _global_\nname: top_k\nhydra:\n  mode: MULTIRUN\n"
        "  sweeper:\n    params:\n      sampling.top_k: 5,50\n"
    )
    rest = [argument for argument in tiny.arguments() if not argument.startswith("pair.")]
    ended = command.plain(
        "--config-dir",
        str(tiny.folder / "own"),
        "pair=mine",
        "+sweep=top_k",
        "backend.name=scripted",
        "report=false",
        *rest,
    )
    assert (ended.code, ended.errors) == (0, "")
    cells = load(tiny.folder / "results/top_k").cells
    assert sorted(cells["top_k"]) == [5, 50]
    assert set(cells["pair"]) == {"mine"}


def test_words_that_are_no_command_are_read_as_overrides(command: Command) -> None:
    command.plain("reprot").check_error(2, "command line: can't be read, got 'reprot'.")


@pytest.mark.parametrize("line", [["report"], ["train"], ["train", "draft"], ["--no-such-flag"]])
def test_incomplete_commands_show_their_usage(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(line)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_missing_folder_of_own_configuration_is_named(command: Command) -> None:
    ended = command.plain("--config-dir", str(command.tiny.folder / "nothing"), "+sweep=smoke")
    ended.check_error(2, "--config-dir: must be a folder")
