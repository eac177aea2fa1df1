from __future__ import annotations

from typing import Any

from harness.gate.matching import cell_identity
from harness.records import CellRecord


def record(**facts: Any) -> CellRecord:
    return CellRecord("c", "run", "ok", {"target": "path:a", "batch_size": 1} | facts, [])


def test_what_was_measured_is_no_part_of_what_was_asked_for() -> None:
    quality = {"perplexity_change": 0.01, "seconds": 3.0}
    measured = record(target_weight_bytes=1, peak_memory_scope="since the last trial", quality=quality)
    assert cell_identity(measured) == cell_identity(record())
    assert cell_identity(record(batch_size=2)) != cell_identity(record())
    assert cell_identity(record(prompt_tokens=512)) != cell_identity(record())
