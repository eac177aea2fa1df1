from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import harness
from harness.__main__ import main
from harness.errors import ConfigError
from harness.results import load

PACKAGE = Path(harness.__file__).parent
OVERRIDES = ["backend=simulator", "method.k=[2]", "workload.num_prompts=4", "measure.warmup_prompts=1"]


def git(folder: Path, *command: str) -> None:
    identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"]
    subprocess.run(["git", *identity, *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose one commit holds the package, as a checkout of it does."""
    folder = tmp_path / "repository"
    without = shutil.ignore_patterns("__pycache__", "assets")
    for name in ("harness", "conf", "workloads"):
        shutil.copytree(PACKAGE.parent / name, folder / name, ignore=without)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Begin")
    monkeypatch.chdir(folder)
    return folder


def test_both_sides_are_measured_in_turns_and_compared(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["rebaseline", "HEAD", "--rounds", "2", "gate=tight", "--", *OVERRIDES]
    assert main(command) == 0, capfd.readouterr()
    out = capfd.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("round")] == [
        "round 1 of 2: base",
        "round 1 of 2: head",
        "round 2 of 2: head",
        "round 2 of 2: base",
    ]
    for side in ("base", "head"):
        assert set(load(repository / "results/rebaseline" / side).measured["repeat"]) == {0, 1}
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1  # the commit's tree is gone again


def test_a_side_that_fails_is_an_error_and_no_regression(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["rebaseline", "HEAD", "--rounds", "1", "--", *OVERRIDES, "method.kk=2"]) == 2
    assert "measuring base ended with exit code 2" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["rebaseline", "no-such-commit"], "git: can't do what rebaseline needs"),
        (["rebaseline", "HEAD", "--rounds", "0"], "--rounds: must be at least 1"),
        (["rebaseline", "HEAD", "--", "measure.max_repeats=3"], "is set by rebaseline itself"),
    ],
)
def test_bad_input_is_refused(repository: Path, command: list[str], message: str) -> None:
    from harness.cli import rebaseline

    with pytest.raises(ConfigError, match=message):
        rebaseline.main(command[1:])
