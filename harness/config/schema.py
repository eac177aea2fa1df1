"""Dataclass schemas behind `conf/`; values are checked in `harness.config.validate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.config.simulated import SimulatorConfig


@dataclass
class BackendConfig:
    """The engine that decodes.

    Attributes:
        name: `native`, `transformers`, `vllm`, `simulator`, or one added by an entry point.
        device: `cpu`, `cuda`, or `auto` for cuda where there is one.
        dtype: `bfloat16`, `float16` or `float32`.
        num_threads: CPU threads of the engine; null takes the cores this process may use.
    """

    name: str = "native"
    device: str = "auto"
    dtype: str = "bfloat16"
    num_threads: int | None = None


@dataclass
class VllmConfig:
    """How vLLM's engines are started; what isn't here can be passed through `engine_args`.

    Attributes:
        enforce_eager: run without compiling; null compiles on GPUs and not on CPUs, where compiling takes a
            minute and more for each engine.
        enable_prefix_caching: reuse the cache of equal prompt beginnings; repeats of a prompt then get it.
        tensor_parallel_size: GPUs that share each layer, of the target and of a draft model.
        pipeline_parallel_size: GPUs that share the layers among them.
        distributed_executor_backend: `mp`, `ray` or `uni`; null leaves it to vLLM.
        gpu_memory_utilization: share of a GPU's memory to take; null leaves it to vLLM.
        kv_cache_gib: size of the key-value cache on a CPU.
        separate_core: run the engine's core in a process of its own, as vLLM's server does, instead of in the
            process that submits the requests.
        rejection_sample_method: `standard`, `block`, or `synthetic`, which isn't lossless.
        rejection_args: what the latter needs besides, such as `synthetic_acceptance_length`.
        engine_args: further arguments of vLLM's `LLM`; those that the harness decides are refused.
        start_timeout_s: an engine that takes longer to start counts as hung.
        decode_timeout_s: so does a batch that takes longer to decode.
    """

    enforce_eager: bool | None = None
    enable_prefix_caching: bool = False
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    distributed_executor_backend: str | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_gib: int = 1
    separate_core: bool = False
    rejection_sample_method: str = "standard"
    rejection_args: dict[str, Any] = field(default_factory=dict)
    engine_args: dict[str, Any] = field(default_factory=dict)
    start_timeout_s: float = 900.0
    decode_timeout_s: float = 600.0


@dataclass
class PairConfig:
    """The target and the draft model that goes with it.

    Attributes:
        name: what reports call the pair.
        target: model reference: `pypi:`, `path:` or `hub:`.
        drafter: model reference of the draft model, `asset:` for a shipped one; null where none exists.
        eagle: reference of the EAGLE head; null where none exists.
        medusa: reference of the Medusa heads; null where none exist.
    """

    name: str = "???"
    target: str = "???"
    drafter: str | None = None
    eagle: str | None = None
    medusa: str | None = None


@dataclass
class MethodConfig:
    """A way to draft, at one or several numbers of drafted tokens.

    Attributes:
        name: `autoregressive`, `draft_model`, `eagle`, `medusa`, `ngram`, or `synthetic` (a draft model
            accepted by lot); on vLLM also `suffix`, `eagle3` and `mtp`.
        k: drafted tokens per step: one number or a list; each becomes a variant of the cell.
        drafter: replaces the pair's draft model, EAGLE head or Medusa heads.
        draft_sampling: above temperature 0, `sampled` draws drafts and `greedy` takes the likeliest.
        draft_vocab: let the native engine draft from the drafter's reduced vocabulary where it has one.
        min_ngram: shortest match of `ngram`, in tokens.
        max_ngram: longest match of `ngram`, in tokens.
        lookup: copy first: where a sequence's last `lookup` tokens occurred before, propose what followed
            them there, and draft elsewhere; 0 always drafts.
        min_confidence: end a draft where the likeliest next token would bring the product of its tokens'
            probabilities below; 0 always drafts k tokens.
        k_by_batch: vLLM's k by running sequences, `[[from, to, k], ...]`; k is then the largest one.
        tree: draft a tree of this shape, k tokens deep at most: a list of paths, a list of the number of
            children of each node, or `{nodes: 8, breadth: 3}`; null drafts chains.
        adaptive: choose each step's number of tokens, k at most, from acceptance and measured costs.
        min_output_tokens: draft nothing for sequences whose output limit is below it; 0 always drafts.
        max_prompt_tokens: draft nothing for longer prompts; null always drafts.
        max_batch: draft nothing while more sequences than this are decoded together; null always drafts.
        verification: `exact`, or `typical`, which accepts what is plausible and so isn't lossless.
        epsilon: of `typical`: drafted tokens likelier than this stand.
        delta: of `typical`: so do those likelier than delta exp(-entropy); null is sqrt(epsilon).
        optional: in `compare`, leave the method out where pair or backend can't run it.
        acceptance: of `synthetic`: alpha, one number or one per position, whose last goes on.
    """

    name: str = "draft_model"
    k: Any = 5
    drafter: str | None = None
    draft_sampling: str = "sampled"
    draft_vocab: bool = True
    min_ngram: int = 1
    max_ngram: int = 3
    lookup: int = 0
    min_confidence: float = 0.0
    k_by_batch: Any = None
    tree: Any = None
    adaptive: bool = False
    min_output_tokens: int = 0
    max_prompt_tokens: int | None = None
    max_batch: int | None = None
    verification: str = "exact"
    epsilon: float = 0.09
    delta: float | None = None
    optional: bool = False
    acceptance: Any = None


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
        prompt_tokens: fill shorter prompts up to about so many tokens with text of `filler`; null leaves
            them as they are.
        filler: workload whose texts fill prompts up.
        ignore_eos: decode up to the limit whatever the model says.
        warmup: workload of the warmup prompts, disjoint from the measured ones.
    """

    name: str = "mixed"
    num_prompts: int | None = None
    max_output_tokens: int = 64
    prompt_tokens: int | None = None
    filler: str = "all_tasks"
    ignore_eos: bool = False
    warmup: str = "warmup"


@dataclass
class QuantizationConfig:
    """Weight formats, quantised from the checkpoint when it is loaded.

    Attributes:
        target: `none` keeps the backend's dtype; `int8`, `int4`, or `fp8` on GPUs that have it.
        drafter: the same for what drafts; `auto` is what the backend drafts best in, never at the cost of
            the output: `int8`, under an `int4` target `int4`, where the native engine's compiled kernels
            run, `none` elsewhere.
    """

    target: str = "none"
    drafter: str = "auto"


@dataclass
class LosslessConfig:
    """Whether each variant's output is checked to be the target's; docs/lossless.md.

    Attributes:
        enabled: check after measuring; a defect ends the run with exit code 5.
        max_time_s: seconds of a cell in which the target may score outputs.
    """

    enabled: bool = True
    max_time_s: float = 8.0


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
        lossless: whether the output is the target's.
    """

    warmup_prompts: int = 2
    min_repeats: int = 1
    max_repeats: int = 5
    target_precision: float = 0.05
    max_time_s: float = 600.0
    seed: int = 0
    lossless: LosslessConfig = field(default_factory=LosslessConfig)


@dataclass
class HarnessConfig:
    """One cell: everything that must be equal for its speedups to mean anything, and its variants.

    Attributes:
        name: folder of the results and the report.
        batch_size: sequences decoded together.
        method: how to draft.
        compare: further methods measured in the same cell against the same baseline.
        simulator: what `backend=simulator` simulates; null for every other backend.
        vllm: how `backend=vllm` starts its engines; null for every other backend.
        results_dir: where results go, relative to the current directory.
        reports_dir: where reports go.
        resume: keep what an earlier run of the same configuration measured.
        report: render the report when the run ends.
        report_language: `en` or `zh`.
        check_memory: refuse a cell whose models are estimated not to fit the free memory.
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
    simulator: SimulatorConfig | None = None
    vllm: VllmConfig | None = None
    results_dir: str = "results"
    reports_dir: str = "reports"
    resume: bool = True
    report: bool = True
    report_language: str = "en"
    check_memory: bool = True
