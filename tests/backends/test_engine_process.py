from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.backends.vllm.process import EngineProcess
from harness.errors import EngineError

PROMPT = 60.0


@pytest.fixture
def child() -> Iterator[EngineProcess]:
    started = EngineProcess(
        "odd_child", environment={"PYTHONPATH": str(Path(__file__).parent), "MARK": "set"}
    )
    yield started
    started.kill()


def is_gone(pid: int) -> bool:
    for _ in range(50):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


def test_it_answers_from_a_process_group_of_its_own(child: EngineProcess) -> None:
    answer = child.ask({"do": "greet"}, timeout_s=PROMPT, doing="greeting")
    assert answer == {"pid": child.pid, "mark": "set"}
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    assert len(child.ask({"do": "long"}, timeout_s=PROMPT, doing="talking")["text"]) == 300_000


def test_an_error_comes_with_the_last_log_lines_and_the_child_lives_on(child: EngineProcess) -> None:
    with pytest.raises(EngineError, match="failed while starting: ValueError: no such thing") as raised:
        child.ask({"do": "fail"}, timeout_s=PROMPT, doing="starting")
    assert "Its last log lines:\nthe engine says hello" in str(raised.value)
    assert child.is_running


def test_a_killed_child_is_told_with_its_last_words(child: EngineProcess) -> None:
    with pytest.raises(EngineError, match=r"was ended by SIGKILL \(memory") as raised:
        child.ask({"do": "die"}, timeout_s=PROMPT, doing="decoding")
    assert str(raised.value).endswith("the engine says hello\nlast words")
    assert not child.is_running
    with pytest.raises(EngineError, match="was ended by SIGKILL"):
        child.ask({"do": "greet"}, timeout_s=PROMPT, doing="decoding")


def test_a_child_that_ends_is_told_with_its_exit_code(child: EngineProcess) -> None:
    with pytest.raises(EngineError, match="ended with exit code 3 while decoding"):
        child.ask({"do": "exit"}, timeout_s=PROMPT, doing="decoding")


def test_a_hung_child_and_what_it_started_are_ended(child: EngineProcess) -> None:
    worker = child.ask({"do": "spawn"}, timeout_s=PROMPT, doing="starting")["worker"]
    with pytest.raises(EngineError, match=r"didn't answer within 0.2 s while decoding"):
        child.ask({"do": "hang"}, timeout_s=0.2, doing="decoding")
    assert is_gone(child.pid)
    assert is_gone(worker)


def test_a_killed_harness_leaves_no_process() -> None:
    code = (
        "import json, time; from harness.backends.vllm.process import EngineProcess; "
        f"child = EngineProcess('odd_child', environment={{'PYTHONPATH': {str(Path(__file__).parent)!r}}}); "
        "answer = child.ask({'do': 'spawn'}, timeout_s=60, doing='starting'); "
        "print(json.dumps(answer), flush=True); time.sleep(600)"
    )
    harness = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    answer = json.loads(harness.stdout.readline())
    harness.kill()
    harness.wait()
    harness.stdout.close()
    assert is_gone(answer["pid"])
    assert is_gone(answer["worker"])


@pytest.mark.parametrize("how", ["close", "forgotten"])
def test_closing_or_forgetting_leaves_no_process(how: str) -> None:
    started = EngineProcess("odd_child", environment={"PYTHONPATH": str(Path(__file__).parent)})
    pid = started.pid
    worker = started.ask({"do": "spawn"}, timeout_s=PROMPT, doing="starting")["worker"]
    if how == "close":
        started.close()
    del started
    assert is_gone(pid)
    assert is_gone(worker)
