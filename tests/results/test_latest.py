from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_results import write_synthetic_results

from harness.errors import ResultFormatError
from harness.results import ResultStore, load


def test_load_reads_the_cells_of_the_latest_command(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, temperatures=(0.0, 1.0), ks=[2], num_prompts=2)
    greedy = load(folder).cells.query("temperature == 0.0")["cell_id"].tolist()
    ResultStore(tmp_path, folder.name).select(greedy)
    assert load(folder).cells["cell_id"].tolist() == greedy
    assert len(load(folder, every_cell=True).cells) == 2


def test_a_selection_of_cells_not_yet_stored_hides_nothing(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, temperatures=(0.0,), ks=[2], num_prompts=2)
    ResultStore(tmp_path, folder.name).select(["0123456789abcdef"])
    assert len(load(folder).cells) == 1


def test_a_damaged_selection_is_an_error(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, temperatures=(0.0,), ks=[2], num_prompts=2)
    (folder / "latest.json").write_text('{"format_version": 999, "cells": []}')
    with pytest.raises(ResultFormatError, match="999"):
        load(folder)
