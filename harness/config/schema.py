"""Dataclass schemas behind `conf/`; values are checked in `harness.config.validate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class BackendConfig:
    """The engine that decodes.

    Attributes:
        name: `native`, or one added by an entry point.
        device: `cpu`, `cuda`, or `auto` for cuda where there is one.
        dtype: `bfloat16`, `float16` or `float32`.
        num_threads: CPU threads of the engine; null takes the cores this process may use.
    """

    name: str = "native"
    device: str = "auto"
    dtype: str = "bfloat16"
    num_threads: int | None = None


@dataclass
class PairConfig:
    """The target and the draft model that goes with it.

    Attributes:
        name: what reports call the pair.
        target: model reference: `pypi:`, `path:` or `hub:`.
        drafter: model reference of the draft model, `asset:` for a shipped one; null where none exists.
    """

    name: str = "???"
    target: str = "???"
    drafter: str | None = None


@dataclass
class MethodConfig:
    """A way to draft, at one or several numbers of drafted tokens.

    Attributes:
        name: `autoregressive`, `draft_model` or `ngram`.
        k: drafted tokens per step: one number or a list; each becomes a variant of the cell.
        drafter: replaces the pair's draft model.
        draft_sampling: at temperature above 0, `sampled` draws drafts from the drafter's distribution,
            `greedy` proposes its likeliest token.
        draft_vocab: let the native engine draft from the drafter's reduced vocabulary where it has one.
        min_ngram: shortest match of `ngram`, in tokens.
        max_ngram: longest match of `ngram`, in tokens.
    """

    name: str = "draft_model"
    k: Any = 5
    drafter: str | None = None
    draft_sampling: str = "sampled"
    draft_vocab: bool = True
    min_ngram: int = 1
    max_ngram: int = 3


@dataclass
class SamplingConfig:
    """How tokens are drawn, for target and drafter alike.

    Attributes:
        temperature: 0 is greedy.
        top_k: keep the likeliest; 0 keeps all.
        top_p: nucleus; 1 keeps all.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass
class WorkloadConfig:
    """The prompts.

    Attributes:
        name: a shipped workload, or the path of a JSONL file.
        num_prompts: take the first so many; null takes all.
        max_output_tokens: output limit per sequence.
        ignore_eos: decode up to the limit whatever the model says.
        warmup: workload of the warmup prompts, disjoint from the measured ones.
    """

    name: str = "mixed"
    num_prompts: int | None = None
    max_output_tokens: int = 64
    ignore_eos: bool = False
    warmup: str = "warmup"


@dataclass
class QuantizationConfig:
    """Weight formats; `none` keeps the backend's dtype."""

    target: str = "none"
    drafter: str = "none"


@dataclass
class MeasureConfig:
    """How much is measured.

    Attributes:
        warmup_prompts: warmup trials of each variant before anything counts.
        min_repeats: passes over the prompts, unless `max_time_s` ends them.
        max_repeats: no more passes than this.
        target_precision: stop once each speedup's interval is at most this share of it on either side.
        max_time_s: start no block after so many seconds of measuring in a cell.
        seed: of the random order of variants and of the sequences.
    """

    warmup_prompts: int = 2
    min_repeats: int = 1
    max_repeats: int = 5
    target_precision: float = 0.05
    max_time_s: float = 600.0
    seed: int = 0


@dataclass
class HarnessConfig:
    """One cell: everything that must be equal for its speedups to mean anything, and its variants.

    Attributes:
        name: folder of the results and the report.
        batch_size: sequences decoded together.
        method: how to draft.
        compare: further methods measured in the same cell against the same baseline.
        results_dir: where results go, relative to the current directory.
        reports_dir: where reports go.
        resume: keep what an earlier run of the same configuration measured.
        report: render the report when the run ends.
    """

    name: str = "run"
    batch_size: int = 1
    backend: BackendConfig = field(default_factory=BackendConfig)
    pair: PairConfig = field(default_factory=PairConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    compare: list[MethodConfig] = field(default_factory=list)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    workload: WorkloadConfig = field(default_factory=WorkloadConfig)
    quantization: QuantizationConfig = field(default_factory=QuantizationConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    results_dir: str = "results"
    reports_dir: str = "reports"
    resume: bool = True
    report: bool = True
