from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from harness.config import identity
from harness.config.identity import cell_id, code_version
from harness.config.schema import HarnessConfig, MethodConfig

REVISIONS = {"target": "t1", "workload": "w1", "backend": "engine 1"}


def changed(change: Callable[[HarnessConfig], Any]) -> HarnessConfig:
    config = deepcopy(HarnessConfig())
    change(config)
    assert config != HarnessConfig()
    return config


def test_the_same_cell_has_the_same_id() -> None:
    first = cell_id(HarnessConfig(), REVISIONS)
    assert first == cell_id(HarnessConfig(), dict(reversed(REVISIONS.items())))
    assert len(first) == 16
    int(first, 16)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: setattr(c.sampling, "temperature", 0.5),
        lambda c: setattr(c.method, "k", 6),
        lambda c: setattr(c.method, "k", [5]),
        lambda c: c.compare.append(MethodConfig("ngram")),
        lambda c: setattr(c.backend, "dtype", "float32"),
        lambda c: setattr(c.workload, "max_output_tokens", 65),
        lambda c: setattr(c.measure, "seed", 1),
        lambda c: setattr(c.measure, "warmup_prompts", 1),
        lambda c: setattr(c, "batch_size", 2),
    ],
)
def test_what_decides_a_number_changes_the_id(change: Callable[[HarnessConfig], Any]) -> None:
    assert cell_id(changed(change), REVISIONS) != cell_id(HarnessConfig(), REVISIONS)


@pytest.mark.parametrize("role", REVISIONS)
def test_another_model_workload_or_engine_changes_the_id(role: str) -> None:
    other = cell_id(HarnessConfig(), {**REVISIONS, role: "2"})
    assert other != cell_id(HarnessConfig(), REVISIONS)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: setattr(c, "name", "other"),
        lambda c: setattr(c, "results_dir", "elsewhere"),
        lambda c: setattr(c, "reports_dir", "elsewhere"),
        lambda c: setattr(c, "resume", False),
        lambda c: setattr(c, "report", False),
        lambda c: setattr(c, "report_language", "zh"),
        lambda c: setattr(c.measure, "min_repeats", 2),
        lambda c: setattr(c.measure, "max_repeats", 9),
        lambda c: setattr(c.measure, "target_precision", 0.01),
        lambda c: setattr(c.measure, "max_time_s", 1.0),
    ],
)
def test_where_results_go_and_when_to_stop_leave_the_id(change: Callable[[HarnessConfig], Any]) -> None:
    assert cell_id(changed(change), REVISIONS) == cell_id(HarnessConfig(), REVISIONS)


def test_other_code_changes_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cell_id(HarnessConfig(), REVISIONS)
    monkeypatch.setattr(identity, "code_version", lambda: "0123456789ab")
    assert cell_id(HarnessConfig(), REVISIONS) != before


def test_code_version_hashes_the_code_that_measures(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "harness"
    for folder in ("config", "engine", "reports"):
        (package / folder).mkdir(parents=True)
        (package / folder / "a.py").write_text("one = 1\n")
    monkeypatch.setattr(identity, "__file__", str(package / "config/identity.py"))

    def version() -> str:
        code_version.cache_clear()
        return code_version()

    try:
        first = version()
        (package / "reports/a.py").write_text("one = 2\n")
        assert version() == first
        (package / "engine/a.py").write_text("one = 2\n")
        second = version()
        assert second != first
        (package / "engine/a.py").rename(package / "engine/b.py")
        assert version() not in (first, second)
    finally:
        code_version.cache_clear()
