"""Rules about what got into a measurement from outside: caches, other processes, the machine's limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.findings.finding import Confidence, Sighting, Topic, rule
from harness.findings.tables import Tables, value
from harness.records import Phase

CACHED_PREFIX = 0.7
FEWEST_PROMPTS = 5
OTHER_CPU = 0.10
STEAL = 0.02
SLOWER_CLOCK = 0.15
SWAPPED_BYTES = 2**20
OTHER_GPU_USE = 0.05


@rule(
    title="Warmup prompts are among the measured ones",
    topic=Topic.MEASUREMENT,
    threshold="any prompt in both",
    next_step="Warm up on other prompts: caches know these.",
    reads_rows=True,
)
def measured_warmup_prompts(tables: Tables) -> Iterator[Sighting]:
    """Prompt ids of both phases."""
    for cell_id in tables.records:
        both = tables.prompts(cell_id, Phase.WARMUP) & tables.prompts(cell_id, Phase.MEASURE)
        if both:
            text = f"{len(both)} prompts, {sorted(both)[0][:60]} among them."
            yield Sighting(cell_id, None, text, {"num_prompts": len(both)}, Confidence.COUNTED)


@rule(
    title="Prompts that come again are read faster: a prefix cache answers",
    topic=Topic.MEASUREMENT,
    threshold=f"median time to first token of a repeated prompt under {CACHED_PREFIX:.0%} of its first",
    next_step="Turn the engine's prefix cache off while measuring: whichever variant comes first pays for "
    "the others.",
    reads_rows=True,
)
def prefix_cache(tables: Tables) -> Iterator[Sighting]:
    """The same prompt, whichever variant decodes it: its first trial against the later ones."""
    for cell_id, trials in tables.trials.groupby("cell_id", sort=False):
        timed = trials.dropna(subset=["ttft_s", "started_s"]).sort_values("started_s")
        is_first = ~timed["prompt_id"].duplicated()
        first = timed[is_first].set_index("prompt_id")["ttft_s"]
        later = timed[~is_first].groupby("prompt_id")["ttft_s"].median()
        ratios = (later / first).dropna()
        if len(ratios) >= FEWEST_PROMPTS and ratios.median() < CACHED_PREFIX:
            text = (
                f"a prompt that came again took {ratios.median():.0%} of its first time to the first token."
            )
            figures = {"ttft_ratio": float(ratios.median()), "num_prompts": len(ratios)}
            confidence = Confidence.CLEAR if ratios.quantile(0.9) < CACHED_PREFIX else Confidence.LIKELY
            yield Sighting(str(cell_id), None, text, figures, confidence)


@rule(
    title="Other processes used the CPU",
    topic=Topic.MEASUREMENT,
    threshold=f"more than {OTHER_CPU:.0%} of the machine's CPU time, while it was measured",
    next_step="Stop them, or give the measurement cores of its own. Ratios suffer less than tokens per "
    "second, but do.",
)
def busy_cpu(tables: Tables) -> Iterator[Sighting]:
    """CPU time that wasn't this process's."""
    for cell_id, machine in _machines(tables):
        share = value(machine, "other_cpu_share")
        if share is not None and share > OTHER_CPU:
            text = f"they took {share:.0%} of all cores' time."
            figures = {
                "other_cpu_share": share,
                "load_average_1min": value(machine, "load_average_1min_before"),
            }
            yield Sighting(cell_id, None, text, figures, Confidence.COUNTED)


@rule(
    title="The host took CPU time away from this virtual machine",
    topic=Topic.MEASUREMENT,
    threshold=f"steal above {STEAL:.0%} of the CPU time",
    next_step="Use a machine with dedicated cores.",
)
def stolen_cpu(tables: Tables) -> Iterator[Sighting]:
    """Steal, as the kernel counts it."""
    for cell_id, machine in _machines(tables):
        share = value(machine, "steal_share")
        if share is not None and share > STEAL:
            text = f"{share:.0%} of the CPU time was stolen."
            yield Sighting(cell_id, None, text, {"steal_share": share}, Confidence.COUNTED)


@rule(
    title="The clock was throttled",
    topic=Topic.MEASUREMENT,
    threshold=f"a throttling event of the CPU or the GPU, or a CPU clock more than {SLOWER_CLOCK:.0%} "
    "lower at the end",
    next_step="Cool the machine, lower its power draw or fix a lower clock that it can hold; then measure "
    "again.",
)
def throttled_clock(tables: Tables) -> Iterator[Sighting]:
    """Counters of the kernel and the driver, and the clock before and after."""
    for cell_id, machine in _machines(tables):
        events, reason = value(machine, "throttle_events"), machine.get("gpu_throttle_reason")
        before, after = (value(machine, f"cpu_clock_mhz_{when}") for when in ("before", "after"))
        found = []
        if events:
            found.append(f"the CPU was throttled {events:.0f} times")
        if isinstance(reason, str):
            found.append(f"the GPU was throttled ({reason[:60]})")
        slower = before is not None and after is not None and after < (1 - SLOWER_CLOCK) * before
        if slower:
            found.append(f"the CPU's clock went from {before:.0f} to {after:.0f} MHz")
        if found:
            figures = {
                "throttle_events": events,
                "cpu_clock_mhz_before": before,
                "cpu_clock_mhz_after": after,
            }
            counted = events or isinstance(reason, str)
            confidence = Confidence.COUNTED if counted else Confidence.LIKELY
            yield Sighting(cell_id, None, f"{', '.join(found)}.", figures, confidence)


@rule(
    title="The machine swapped",
    topic=Topic.MEASUREMENT,
    threshold="more than 1 MiB read from or written to swap while it was measured",
    next_step="Free memory or use a smaller model: times with swapping say nothing about decoding.",
)
def swapping(tables: Tables) -> Iterator[Sighting]:
    """Bytes in and out of swap."""
    for cell_id, machine in _machines(tables):
        swapped = value(machine, "swapped_bytes")
        if swapped is not None and swapped > SWAPPED_BYTES:
            text = f"{swapped / 2**20:.0f} MiB went in or out."
            yield Sighting(cell_id, None, text, {"swapped_bytes": int(swapped)}, Confidence.COUNTED)


@rule(
    title="Other processes used the GPU",
    topic=Topic.MEASUREMENT,
    threshold=f"another process on the GPU, or more than {OTHER_GPU_USE:.0%} use before measuring began",
    next_step="Give the measurement a GPU of its own.",
)
def busy_gpu(tables: Tables) -> Iterator[Sighting]:
    """What the driver says of the GPU before the first trial."""
    for cell_id, machine in _machines(tables):
        others, use = value(machine, "gpu_other_processes"), value(machine, "gpu_use_before")
        if (others or 0) > 0 or (use or 0) > OTHER_GPU_USE:
            told = [f"{others:.0f} other processes"] if others else []
            told += [f"{use:.0%} in use beforehand"] if (use or 0) > OTHER_GPU_USE else []
            figures = {"gpu_other_processes": others, "gpu_use_before": use}
            yield Sighting(cell_id, None, f"{' and '.join(told)}.", figures, Confidence.COUNTED)


def _machines(tables: Tables) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the runner recorded about the machine while a cell was measured, where it did."""
    for cell_id, record in tables.records.items():
        machine = record.environment.get("while_measuring")
        if isinstance(machine, Mapping):
            yield cell_id, machine
