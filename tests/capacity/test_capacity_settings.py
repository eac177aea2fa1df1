from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from capacity.replicas import shapes

from harness.capacity.requests import daily_requests, measured_shapes, read_trace, trace_shapes
from harness.capacity.settings import GROUPS, group_names, load_settings
from harness.errors import ConfigError, WorkloadError


def test_every_shipped_file_loads() -> None:
    for group in GROUPS:
        names = group_names(group)
        assert names
        for name in names:
            load_settings([f"{group}={name}"])


def test_single_values_win_over_groups_whatever_their_order() -> None:
    settings = load_settings(
        ["traffic.requests_per_s=7", "traffic=chat", "slo.ttft_p95_s=null", "replica=chunked"]
    )
    assert settings.traffic.requests_per_s == 7
    assert len(settings.traffic.day) == 24
    assert settings.slo.ttft_p95_s is None
    assert settings.replica.chunk_tokens == 512
    assert load_settings(["traffic.tasks={code: 2, chat: 1}"]).traffic.tasks == {"code": 2.0, "chat": 1.0}


def test_own_files(tmp_path: Path) -> None:
    mine = tmp_path / "plan" / "slo" / "mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("tpot_p95_s: 0.2\n")
    assert load_settings([f"slo={mine}"]).slo.tpot_p95_s == 0.2
    assert load_settings(["slo=mine"], config_dir=tmp_path).slo.tpot_p95_s == 0.2


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("traffic.requests_per_s=0", r"traffic.requests_per_s: must be above 0, got 0"),
        ("traffic.requests_per_s=-3", r"traffic.requests_per_s: must be above 0, got -3"),
        ("traffic.requests_per_s=nan", r"traffic.requests_per_s: must be above 0"),
        ("traffic.growth=[1,0]", r"traffic.growth\[1\]: must be above 0"),
        ("traffic.growth=[]", r"traffic.growth: needs one multiple"),
        ("traffic.day=[0.5,1.2]", r"traffic.day: holds shares"),
        ("traffic.requests=5", r"traffic.requests: isn't a known key.*requests_per_s"),
        ("trafic=chat", r"trafic: isn't a known group.*traffic"),
        ("traffic=chatt", r"traffic: has no such file.*'chat'"),
        ("slo.availability=1", r"slo.availability: must lie between"),
        ("slo.ttft_p95_s=soon", r"slo.ttft_p95_s: .*got 'soon'"),
        ("replica.headroom=1", r"replica.headroom: must lie"),
        ("replica.max_batch=0", r"replica.max_batch: must be above 0"),
        ("prices.replica_hour=0", r"prices.replica_hour: must be above 0"),
        ("traffic.lengths=[{prompt_tokens: 0}]", r"traffic.lengths\[0\].prompt_tokens: must be above 0"),
        ("hello", r"command line: takes GROUP=NAME or KEY=VALUE"),
        ("slo=no/such.yaml", r"slo: can't be read as YAML"),
    ],
)
def test_mistakes_are_told(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings([word])


def test_a_trace_is_read_and_its_mistakes_are_told(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens,task\n5,100,20,code\n3,50,10,chat\n")
    trace = read_trace(file)
    assert trace.arrival_s.tolist() == [0.0, 2.0]
    assert trace.tasks.tolist() == ["chat", "code"]
    assert trace_shapes(trace).mean_output_tokens == 15
    file.write_text("arrival_s,prompt_tokens,output_tokens\n5,100,20\n6,0,20\n")
    with pytest.raises(
        WorkloadError, match=r"trace.csv, line 3, column 'prompt_tokens'.*at least 1, got '0'"
    ):
        read_trace(file)
    file.write_text("arrival_s,prompt_tokens\n5,100\n")
    with pytest.raises(WorkloadError, match=r"line 2, column 'output_tokens'"):
        read_trace(file)
    file.write_text("")
    with pytest.raises(WorkloadError, match="no requests"):
        read_trace(file)
    with pytest.raises(WorkloadError, match="can't be read"):
        read_trace(tmp_path / "absent.csv")


def test_the_day_sets_the_rate() -> None:
    found = daily_requests(shapes(), 10.0, [1.0, 0.1], start_s=0.0, duration_s=86_400.0, seed=0)
    night = (found.arrival_s > 43_200).sum()
    assert (found.arrival_s < 43_200).sum() == pytest.approx(432_000, rel=0.01)
    assert night == pytest.approx(43_200, rel=0.02)
    assert (np.diff(found.arrival_s) >= 0).all()


def test_tasks_can_be_mixed_anew() -> None:
    rows = pd.DataFrame(
        {
            "task": ["chat"] * 3 + ["code"],
            "num_prompt_tokens": [10, 10, 10, 90],
            "num_output_tokens": [5, 5, 5, 64],
            "max_output_tokens": 64,
            "finish_reason": ["eos"] * 3 + ["length"],
        }
    )
    as_measured = measured_shapes(rows, {})
    assert as_measured.mean_prompt_tokens == 30
    assert as_measured.limit_tokens.tolist() == [64] * 4
    assert measured_shapes(rows, {"code": 1.0, "chat": 1.0}).mean_prompt_tokens == 50
    assert measured_shapes(rows, {"code": 1.0}).mean_output_tokens == 64
    assert as_measured.longer_outputs(2.0).output_tokens.tolist() == [10, 10, 10, 128]
    with pytest.raises(ConfigError, match=r"traffic.tasks.*'poems'.*chat, code"):
        measured_shapes(rows, {"poems": 1.0})
