from __future__ import annotations

import io
import sys

import pytest

from harness.runner.progress import SweepProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watched(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    # not a fixture: pytest puts its own stderr in place when the test begins
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_silent_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with SweepProgress(3) as progress:
        progress.describe("T=0 mixed")
        progress.advance()
        progress.line("failed: ngram-k2")
        progress.drop(1)
    assert capsys.readouterr() == ("", "")


def test_one_bar_that_grows_with_the_stop_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    with SweepProgress(2) as progress:
        progress.describe("T=0 mixed")
        progress.advance(3)
        progress.line("failed: ngram-k2")
    shown = terminal.getvalue()
    assert "T=0 mixed" in shown
    assert "3/3" in shown
    assert "failed: ngram-k2\n" in shown


def test_trials_that_will_not_come_leave_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    with SweepProgress(10) as progress:
        progress.advance(4)
        progress.drop(6)
    assert "4/4" in terminal.getvalue()
