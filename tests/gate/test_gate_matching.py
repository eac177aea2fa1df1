from __future__ import annotations

from typing import Any

from harness.gate.matching import cell_identity, match_variants
from harness.records import CellRecord


def record(**facts: Any) -> CellRecord:
    return CellRecord("c", "run", "ok", {"target": "path:a", "batch_size": 1} | facts, [])


def test_what_was_measured_is_no_part_of_what_was_asked_for() -> None:
    quality = {"perplexity_change": 0.01, "seconds": 3.0}
    measured = record(target_weight_bytes=1, peak_memory_scope="since the last trial", quality=quality)
    assert cell_identity(measured) == cell_identity(record())
    assert cell_identity(record(batch_size=2)) != cell_identity(record())
    assert cell_identity(record(prompt_tokens=512)) != cell_identity(record())


def drafting(revision: str | None, **others: Any) -> list[dict[str, Any]]:
    row = {"variant_id": "draft_model-k3", "method": "draft_model", "k": 3, "drafter": "path:d"} | others
    return [row if revision is None else row | {"drafter_revision": revision}]


def test_a_retrained_drafter_under_the_same_name_is_another_variant() -> None:
    found = match_variants(drafting("a" * 64), drafting("b" * 64))
    assert not found.pairs
    ((_, reason),) = found.missing
    assert reason.startswith(
        "another drafter: HEAD has no such variant; its closest differs in drafter_revision"
    )
    assert len(match_variants(drafting("a" * 64), drafting("a" * 64)).pairs) == 1


def test_results_that_dont_know_their_drafters_files_match_by_name() -> None:
    assert len(match_variants(drafting(None), drafting("b" * 64)).pairs) == 1
    assert not match_variants(drafting(None), drafting("b" * 64, drafter="path:other")).pairs
