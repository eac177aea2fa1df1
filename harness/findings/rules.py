"""The registry of rules, and what they find in a run's results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.findings import acceptance, contamination, outputs, speed, steadiness
from harness.findings.finding import Finding, Rule, Sighting
from harness.findings.sightings import keep_derived, seen
from harness.findings.tables import Tables
from harness.results import Results

RULES: Sequence[Rule] = (
    outputs.out_of_memory,
    outputs.different_text,
    outputs.changed_output,
    outputs.stuck_output,
    acceptance.mismatched_pair,
    acceptance.wrong_pair,
    acceptance.weak_pair,
    acceptance.little_to_look_up,
    acceptance.hot_sampling,
    acceptance.quantised_drafter,
    acceptance.hard_task,
    speed.k_past_optimum,
    speed.k_range_too_short,
    speed.large_batch,
    speed.short_outputs,
    speed.long_prompts,
    speed.slow_drafter,
    speed.slow_verification,
    speed.engine_overhead,
    acceptance.falling_acceptance,
    acceptance.shared_memory,
    contamination.measured_warmup_prompts,
    contamination.prefix_cache,
    steadiness.short_warmup,
    steadiness.baseline_drift,
    steadiness.noisy_cell,
    steadiness.outliers,
    contamination.busy_cpu,
    contamination.stolen_cpu,
    contamination.throttled_clock,
    contamination.swapping,
    contamination.busy_gpu,
)
"""In the order in which findings are told."""

_READING_ROWS = [rule for rule in RULES if rule.reads_rows]


def find(results: Results) -> list[Finding]:
    """Apply every rule to a run or sweep; a rule whose figures are missing finds nothing."""
    tables = Tables(results)
    in_rows: dict[str, list[Sighting]] = {}
    for name, sighting in seen(results, _READING_ROWS):
        in_rows.setdefault(name, []).append(sighting)
    return [
        Finding(rule, sighting)
        for rule in RULES
        for sighting in (in_rows.get(rule.name, ()) if rule.reads_rows else rule.search(tables))
    ]


def keep(cell_folder: Path) -> None:
    """Derive a finished cell's tables and what the rules see in its rows, and keep them in its folder.

    Raises:
        ResultFormatError: the cell can't be read.
        StorageError: the disk is full, read-only or not writable.
    """
    keep_derived(cell_folder, _READING_ROWS)
