from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from gate_runs import gate, made_up
from synthetic_results import Truth, write_synthetic_results

from harness.__main__ import main
from harness.errors import ConfigError
from harness.gate.calibration import Calibration, calibrate
from harness.gate.verdict import Verdict


def test_halves_of_one_run_hold_one_half_of_each_blocks_repeats() -> None:
    run = made_up(num_repeats=4, num_prompts=10, truth=Truth(noise=0.01, luck=1))
    found = calibrate([run], gate(), num_splits=6, seed=0)
    assert found.num_comparisons == 6
    # noise of one percent and margins of five: nearly all of it is a pass, none of it an alarm
    assert found.verdicts[Verdict.PASS] >= 4
    assert found.verdicts[Verdict.REGRESSION] == found.verdicts[Verdict.INCOMPARABLE] == 0
    assert found.verdicts == calibrate([run], gate(), num_splits=6, seed=0).verdicts


def test_two_runs_are_compared_in_both_directions() -> None:
    slower = made_up(seed=5, truth=Truth(luck=1, slowdown={"draft_model-k3": 1.5}))
    found = calibrate([made_up(truth=Truth(luck=1)), slower], gate(), num_splits=9, seed=0)
    assert found.verdicts == Counter({Verdict.REGRESSION: 1, Verdict.IMPROVEMENT: 1})
    share, low, high = found.false_alarms()
    assert share == 0.5
    assert low < 0.02  # one of two: all but nothing is known
    assert high > 0.98


def test_one_repeat_cannot_be_split() -> None:
    with pytest.raises(ConfigError, match="two repeats of every prompt"):
        calibrate([made_up(num_repeats=1)], gate(), num_splits=2, seed=0)


def test_the_interval_of_no_alarm_in_a_hundred_is_clopper_and_pearsons() -> None:
    share, low, high = Calibration(Counter({Verdict.PASS: 100}), 1).false_alarms()
    assert (share, low) == (0.0, 0.0)
    assert high == pytest.approx(1 - 0.025 ** (1 / 100))


def test_the_command_prints_the_false_alarm_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_synthetic_results(tmp_path, temperatures=(0.0,), ks=(2,), num_prompts=6, num_repeats=2)
    assert main(["calibrate", str(folder), "gate=tight", "--splits", "3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 comparisons of halves of one run with gate=tight, nothing changed:")
    assert "false alarms: 0.0% [0.0%, 70.8%]" in out
    assert main(["calibrate", "gate=tight"]) == 2
    assert "must name a results folder" in capsys.readouterr().err
