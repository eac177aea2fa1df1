from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from report_scenes import SCENES
from synthetic_results import write_synthetic_results

from harness.reports.build import build_report


@pytest.fixture(scope="session")
def scene_html(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The report of a scene, built once per session; `k_temperature` is the plain sweep."""

    @cache
    def html(name: str) -> str:
        root = tmp_path_factory.mktemp(name)
        folder = (
            write_synthetic_results(root, temperatures=(0.0, 0.7), ks=(1, 2, 4, 6), num_prompts=8)
            if name == "k_temperature"
            else SCENES[name](root)
        )
        return build_report(folder, root / "out" / "nested").read_text()

    return html
