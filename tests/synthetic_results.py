"""A plausible results folder without measuring: the costs and acceptances are made up, the files are real."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from harness.records import CellRecord, Failure, Observation, Phase, Status, Variant
from harness.results import ResultStore

TASKS = ("chat", "code", "extraction", "math", "qa", "rewriting", "summarisation", "translation")
MAX_OUTPUT_TOKENS = 96
STEP_S = 0.020
DRAFT_TOKEN_S = 0.0024
STEP_OVERHEAD_S = 0.0006


@dataclass(frozen=True)
class Truth:
    """What differs from the usual made-up run.

    Attributes:
        alpha_shift: added to the chance that a drafted token stands.
        slowdown: seconds of a variant, by its id, times this.
        noise: standard deviation of a further log-normal factor on each trial's seconds.
        luck: seed of what gets accepted, so that two runs with different times accept the same, as two runs
            of a deterministic decoder do; None draws it anew.
        facts: of every cell, replaced.
    """

    alpha_shift: float = 0.0
    slowdown: Mapping[str, float] = field(default_factory=dict)
    noise: float = 0.0
    luck: int | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


USUAL = Truth()


def write_synthetic_results(
    root: Path,
    name: str = "k_temperature",
    *,
    temperatures: Sequence[float] = (0.0, 0.7, 1.0),
    ks: Iterable[int] = range(1, 11),
    num_prompts: int = 16,
    seed: int = 0,
    num_repeats: int = 2,
    truth: Truth = USUAL,
) -> Path:
    """Write one cell per temperature: the baseline and a drafter at every k, repeats, one warmup each.

    Code and extraction are easier to draft than chat, acceptance falls with the temperature and the place in
    the draft, verification grows slowly with k, so that the best k lies inside the range.

    Returns:
        The folder to `load`.
    """
    store = ResultStore(root, name)
    cells = synthetic_cells(
        store.name,
        temperatures=temperatures,
        ks=ks,
        num_prompts=num_prompts,
        seed=seed,
        num_repeats=num_repeats,
        truth=truth,
    )
    for record, trials in cells:
        finished = (record.status, record.stop_reason, record.finished_at)
        record.status, record.stop_reason, record.finished_at = Status.PARTIAL.value, None, None
        writer = store.open_cell(record)
        for block in trials:
            writer.append(block)
        record.status, record.stop_reason, record.finished_at = finished
        writer.finish(record)
    return store.path


def synthetic_cells(
    name: str,
    *,
    temperatures: Sequence[float],
    ks: Iterable[int],
    num_prompts: int,
    seed: int = 0,
    num_repeats: int = 2,
    truth: Truth = USUAL,
) -> Iterator[tuple[CellRecord, list[list[Observation]]]]:
    """The cells that `write_synthetic_results` writes, each with its observations by block."""
    variants = [Variant("autoregressive"), *(Variant("draft_model", k, "path:drafter") for k in ks)]
    for number, temperature in enumerate(temperatures):
        rng = np.random.default_rng([seed, number])
        record = _record(f"{seed:04x}{number:08x}", name, temperature, variants, num_prompts)
        record.facts |= truth.facts
        clock, blocks = 0.0, []
        for phase, repeat, block in _blocks(num_prompts, num_repeats):
            blocks.append([])
            for order, index in enumerate(rng.permutation(len(variants))):
                row = _observe(record, variants[index], phase, repeat, block, order, clock, rng, truth)
                blocks[-1].append(row)
                clock += row.trial_s or 0.0
        record.status, record.stop_reason = Status.OK.value, "max_repeats"
        record.finished_at = "2026-01-01T00:20:00+00:00"
        record.measured_wall_s, record.decode_wall_s = clock * 1.02, clock
        yield record, blocks


def _blocks(num_prompts: int, num_repeats: int) -> list[tuple[Phase, int, int]]:
    warmup = [(Phase.WARMUP, 0, 0)]
    passes = range(num_repeats)
    return warmup + [(Phase.MEASURE, r, r * num_prompts + p) for r in passes for p in range(num_prompts)]


def _record(
    cell_id: str, name: str, temperature: float, variants: Sequence[Variant], num_prompts: int
) -> CellRecord:
    return CellRecord(
        cell_id=cell_id,
        name=name,
        status=Status.PARTIAL.value,
        facts={
            "backend": "simulator",
            "backend_version": "0.1.0",
            "target": "path:target",
            "target_revision": "0" * 12,
            "dtype": "bfloat16",
            "target_quantization": None,
            "device": "cpu",
            "batch_size": 1,
            "temperature": temperature,
            "top_k": 0,
            "top_p": 1.0,
            "workload": "mixed",
            "workload_sha256": "a" * 64,
            "num_prompts": num_prompts,
            "max_output_tokens": MAX_OUTPUT_TOKENS,
            "ignore_eos": False,
        },
        variants=[_variant_row(variant) for variant in variants],
        cold_start=[
            {"part": "import", "variant_id": None, "seconds": 3.2},
            {"part": "load_target", "variant_id": None, "seconds": 1.9},
            *(
                {"part": part, "variant_id": variant.variant_id, "seconds": seconds}
                for variant in variants
                for part, seconds in (("first_call", 0.41), ("warmup", 1.3))
            ),
        ],
        environment={"cpu": "synthetic", "num_cores": 2, "python": "3.11"},
        config={"sweep": name, "sampling": {"temperature": temperature}},
        failures=[],
        started_at="2026-01-01T00:00:00+00:00",
    )


def _variant_row(variant: Variant) -> dict[str, object]:
    return {
        "variant_id": variant.variant_id,
        "method": variant.method,
        "k": variant.k,
        "drafter": variant.drafter,
        "options": dict(variant.options),
        "lossless": variant.lossless,
        "is_baseline": variant.is_baseline,
        "status": Status.OK.value,
        "error": None,
        "applied": {"k": variant.k},
    }


def _observe(
    record: CellRecord,
    variant: Variant,
    phase: Phase,
    repeat: int,
    block: int,
    order: int,
    started_s: float,
    rng: np.random.Generator,
    truth: Truth,
) -> Observation:
    prompt = block % record.facts["num_prompts"]
    temperature = record.facts["temperature"]
    prompt_id = f"warm-{prompt:03d}" if phase is Phase.WARMUP else f"p{prompt:03d}"
    task = TASKS[prompt % len(TASKS)]
    # Greedy output depends on the prompt alone, sampled output on the trial too.
    luck = rng if truth.luck is None else _luck(truth.luck, variant.k, prompt, repeat * (temperature > 0))
    text = np.random.default_rng(prompt) if temperature == 0 else luck
    length = int(np.clip(text.lognormal(4.2, 0.4), 8, MAX_OUTPUT_TOKENS))
    tokens = text.integers(0, 49152, size=length).tolist()
    alpha = float(np.clip(_alpha(task, prompt, temperature) + truth.alpha_shift, 0.0, 1.0))
    steps = _steps(variant.k, length, alpha, rng, luck)
    slow = (1.0 if phase is Phase.MEASURE else 1.6) * truth.slowdown.get(variant.variant_id, 1.0)
    if truth.noise:
        slow *= float(rng.lognormal(0, truth.noise))
    decode_s = float(
        slow * (sum(steps["draft_s"]) + sum(steps["verify_s"]) + STEP_OVERHEAD_S * len(steps["emitted"]))
    )
    ttft_s = float(slow * rng.lognormal(np.log(0.055 + 0.004 * (variant.k > 0)), 0.05))
    return Observation(
        cell_id=record.cell_id,
        variant_id=variant.variant_id,
        phase=phase.value,
        repeat=repeat,
        block=block,
        order=order,
        prompt_id=prompt_id,
        task=task,
        seed=block,
        status=Status.OK.value,
        started_s=started_s,
        trial_s=ttft_s + decode_s + 0.001,
        num_prompt_tokens=60 + 7 * prompt,
        num_output_tokens=length,
        finish_reason="length" if length == MAX_OUTPUT_TOKENS else "eos",
        ttft_s=ttft_s,
        decode_s=decode_s,
        total_s=ttft_s + decode_s,
        num_target_forwards=1 + len(steps["emitted"]),
        last_step_truncated=bool(steps["emitted"]) and steps["emitted"][-1] < steps["accepted"][-1] + 1,
        step_proposed=steps["proposed"],
        step_accepted=steps["accepted"],
        step_emitted=steps["emitted"],
        step_draft_s=[slow * s for s in steps["draft_s"]],
        step_verify_s=[slow * s for s in steps["verify_s"]],
        peak_memory_bytes=600_000_000 + 40_000_000 * (variant.k > 0),
        output_tokens=tokens,
    )


def _alpha(task: str, prompt: int, temperature: float) -> float:
    ease = {"code": 0.82, "extraction": 0.85, "rewriting": 0.8, "math": 0.74}.get(task, 0.62)
    return float(np.clip(ease - 0.12 * temperature + 0.04 * np.sin(prompt), 0.05, 0.95))


def _luck(seed: int, k: int, prompt: int, repeat: int) -> np.random.Generator:
    return np.random.default_rng([seed, k, prompt, repeat])


def _steps(
    k: int, length: int, alpha: float, rng: np.random.Generator, luck: np.random.Generator
) -> dict[str, list]:
    steps: dict[str, list] = {name: [] for name in ("proposed", "accepted", "emitted", "draft_s", "verify_s")}
    left = length - 1
    while left > 0:
        chances = alpha * 0.985 ** np.arange(k)
        accepted = int(np.cumprod(luck.random(k) < chances).sum())
        emitted = min(accepted + 1, left)
        left -= emitted
        steps["proposed"].append(k)
        steps["accepted"].append(accepted)
        steps["emitted"].append(emitted)
        steps["draft_s"].append(float(k * DRAFT_TOKEN_S * rng.lognormal(0, 0.05)))
        steps["verify_s"].append(float(STEP_S * (1 + 0.025 * k) * rng.lognormal(0, 0.04)))
    return steps


def add_failed_variant(root: Path, name: str, cell_id: str) -> None:
    """Add a variant that ran out of memory, and its failure, to a stored cell."""
    store = ResultStore(root, name)
    cell = store.load_cell(cell_id)
    assert cell is not None
    failed = _variant_row(Variant("eagle", 4, "path:eagle"))
    failed |= {"status": Status.FAILED.value, "error": "OutOfMemoryError: 3.1 GiB needed, 1.2 GiB free"}
    cell.record.variants.append(failed)
    cell.record.failures.append(Failure("measure", "eagle-k4", str(failed["error"]), "Traceback ..."))
    cell.record.status = Status.PARTIAL.value
    store.open_cell(cell.record).finish(cell.record)
