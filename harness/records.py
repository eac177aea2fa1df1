"""What is measured and stored: variants, decoded sequences, observations, cells."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

FORMAT_VERSION = 2
"""Version of the stored result layout; readers refuse any other."""

BASELINE_METHOD = "autoregressive"


class Phase(StrEnum):
    """Whether a trial counts: warmup trials are stored and shown, never mixed into steady-state figures."""

    WARMUP = "warmup"
    MEASURE = "measure"


class Status(StrEnum):
    """How a trial, a variant or a cell ended."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    PARTIAL = "partial"


class FinishReason(StrEnum):
    """Why a sequence ended."""

    EOS = "eos"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Variant:
    """How tokens get drafted inside a cell.

    Attributes:
        method: `autoregressive` (the baseline), `draft_model`, `ngram`, ...
        k: drafted tokens per step; 0 for the baseline.
        drafter: model reference of the drafter, None where the method needs none.
        options: further settings of the method, such as `max_ngram`.
        lossless: whether the output distribution is the target's.
    """

    method: str
    k: int = 0
    drafter: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    lossless: bool = True

    @property
    def is_baseline(self) -> bool:
        """Whether nothing is drafted."""
        return self.method == BASELINE_METHOD

    @property
    def variant_id(self) -> str:
        """A short name, unique inside a cell: the method, what is special about it, and k."""
        if self.is_baseline:
            return self.method
        by_batch = "-by-batch" if self.option("k_by_batch") else ""
        return f"{self.series.replace(' ', '-')}-k{self.k}{by_batch}"

    @property
    def series(self) -> str:
        """What it shares with variants of other k: the method and what is special about it."""
        label = self.option("label")
        return f"{self.method} {label}" if label else self.method

    def option(self, name: str, default: Any = None) -> Any:
        """One of `options`, or a default."""
        return dict(self.options).get(name, default)


@dataclass(slots=True)
class Steps:
    """One entry per verification step of a sequence, in order; the prefill isn't a step.

    Attributes:
        proposed: drafted tokens.
        accepted: drafted tokens that the target accepted; never its own token.
        emitted: tokens that reached the output: `accepted + 1`, less where EOS or the limit cut the step.
        draft_s: seconds drafting took.
        verify_s: seconds the target's forward and the acceptance took.
        step_s: seconds of the whole step, where the engine can't tell drafting from verifying; else empty.
    """

    proposed: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)
    draft_s: list[float] = field(default_factory=list)
    verify_s: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)

    def add(self, *, proposed: int, accepted: int, emitted: int, draft_s: float, verify_s: float) -> None:
        """Append one step."""
        self.proposed.append(proposed)
        self.accepted.append(accepted)
        self.emitted.append(emitted)
        self.draft_s.append(draft_s)
        self.verify_s.append(verify_s)

    def add_untimed(self, *, proposed: int, accepted: int, emitted: int, step_s: float) -> None:
        """Append one step whose drafting and verifying can't be timed apart."""
        self.proposed.append(proposed)
        self.accepted.append(accepted)
        self.emitted.append(emitted)
        self.step_s.append(step_s)


@dataclass(slots=True)
class Decoded:
    """One sequence as a backend decoded it.

    Attributes:
        tokens: output token ids, EOS included where it was produced.
        finish_reason: why it ended.
        ttft_s: from the call to the first output token, the drafter's prefill included.
        decode_s: from the first output token to the last.
        total_s: `ttft_s + decode_s`.
        num_target_forwards: forwards of the target, the prefill included.
        steps: what each step did; None where the backend can't tell.
        steps_missing_reason: why `steps` is None.
        last_step_truncated: EOS or the limit cut the last step, so that fewer tokens came out than stood.
    """

    tokens: list[int]
    finish_reason: FinishReason
    ttft_s: float
    decode_s: float
    total_s: float
    num_target_forwards: int
    steps: Steps | None
    steps_missing_reason: str | None = None
    last_step_truncated: bool = False


@dataclass(slots=True)
class Observation:
    """One sequence of one trial: the row that is stored. Every statistic is derived from these.

    Attributes:
        cell_id: the cell's content hash.
        variant_id: see `Variant.variant_id`.
        phase: `warmup` or `measure`.
        repeat: 0-based pass over the prompts.
        block: 0-based number of the batch of prompts, counted over the whole phase.
        order: 0-based place of the variant in the block's random order.
        prompt_id: the workload's id of the prompt.
        task: the workload's task of the prompt.
        seed: of the sequence's random numbers.
        status: `ok`, `failed` or `skipped`.
        error: why not `ok`.
        started_s: when the trial began, in seconds since the cell's measuring began.
        trial_s: wall time of the decode call that produced the sequence (shared by its whole batch).
        peak_memory_bytes: of the process (CPU) or device (GPU), from the trial before to the end of this one
            where the mark can be reset; the cell's fact `peak_memory_scope` says so.
    """

    cell_id: str
    variant_id: str
    phase: str
    repeat: int
    block: int
    order: int
    prompt_id: str
    task: str
    seed: int
    status: str
    error: str | None = None
    started_s: float | None = None
    trial_s: float | None = None
    num_prompt_tokens: int | None = None
    num_output_tokens: int | None = None
    finish_reason: str | None = None
    ttft_s: float | None = None
    decode_s: float | None = None
    total_s: float | None = None
    num_target_forwards: int | None = None
    last_step_truncated: bool | None = None
    step_proposed: list[int] | None = None
    step_accepted: list[int] | None = None
    step_emitted: list[int] | None = None
    step_draft_s: list[float] | None = None
    step_verify_s: list[float] | None = None
    step_s: list[float] | None = None
    steps_missing_reason: str | None = None
    peak_memory_bytes: int | None = None
    output_tokens: list[int] | None = None

    def row(self) -> dict[str, Any]:
        """The observation as a flat mapping, for a table."""
        # not `asdict`, which would copy every list of steps
        return {column.name: getattr(self, column.name) for column in fields(self)}


@dataclass(slots=True)
class Scored:
    """What the target makes of a sequence's output tokens, all of them run in one forward.

    Attributes:
        logits: [num_tokens] of the output tokens, each after the prompt and the output tokens before it.
        best_tokens: [num_tokens] the likeliest token in their places.
        best_logits: [num_tokens] its logit.
        alternative_logits: logits of the alternatives asked for.
        mass_above: [num_tokens] probability of the tokens likelier than the output token, as sampled (after
            temperature, top-k and top-p); empty at temperature 0.
        mass: [num_tokens] probability of the output token, equally likely ones included; likewise.
        significant_bits: of the number format that the logits went through.
    """

    logits: list[float]
    best_tokens: list[int]
    best_logits: list[float]
    alternative_logits: list[float]
    mass_above: list[float]
    mass: list[float]
    significant_bits: int


@dataclass(slots=True)
class Failure:
    """Something that went wrong and was kept: where, what, and the traceback."""

    stage: str
    variant_id: str | None
    error: str
    traceback: str


@dataclass(slots=True)
class CellRecord:
    """All of a cell but its observations; stored as `cell.json`.

    Attributes:
        cell_id: content hash of configuration, code version and model revisions.
        name: of the run or sweep it belongs to.
        status: `ok`, `partial` (interrupted, or some variant failed) or `failed`.
        facts: what is equal for every variant: backend, backend_version, target, target_revision, dtype,
            target_quantization, device, batch_size, temperature, top_k, top_p, workload, workload_sha256,
            num_prompts, max_output_tokens, ignore_eos.
        variants: one mapping per variant: variant_id, method, k, drafter, drafter_revision (content hash),
            options, lossless, is_baseline, status, error, applied (settings as read back from the engine).
        cold_start: one mapping per timed set-up part: part (`import`, `load_target`, `load_drafter`,
            `first_call`, `warmup`, ...), variant_id or None, seconds.
        measured_wall_s: wall time of the measured phase.
        decode_wall_s: part of it inside decode calls.
        environment: machine and software facts, without user, host or paths.
        config: the resolved configuration.
        failures: everything that went wrong.
        stop_reason: why measuring ended (`precision`, `max_time`, `max_repeats`, `interrupted`).
        lossless: one mapping per variant, see `harness.verdicts.LosslessRow`; empty where the check was off
            or not reached.
    """

    cell_id: str
    name: str
    status: str
    facts: dict[str, Any]
    variants: list[dict[str, Any]]
    cold_start: list[dict[str, Any]] = field(default_factory=list)
    measured_wall_s: float | None = None
    decode_wall_s: float | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    stop_reason: str | None = None
    lossless: list[dict[str, Any]] = field(default_factory=list)
    started_at: str | None = None
    finished_at: str | None = None
    format_version: int = FORMAT_VERSION
