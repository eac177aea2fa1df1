"""The recommended configuration as files for serving engines, with the evidence in comments.

Names of settings were read in vLLM 0.32, llama.cpp b11434, SGLang 0.5.23 and TensorRT-LLM 1.2; they change
between releases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.capacity.plan import ConfigurationPlan, Option, Plan
from harness.errors import UnsupportedError
from harness.privacy import clipped

_METHODS = ("draft_model", "ngram")


@dataclass(frozen=True, slots=True)
class Choice:
    """What to run.

    Attributes:
        method: None for plain decoding.
        k: where an engine takes one k.
        bands: (first, last, k) by batch, empty for one k.
        target: the target's name on a hub, or None.
        drafter: the drafter's, or None.
        options: of the method, as measured.
        max_batch: sequences at once.
        evidence: lines that say why.
    """

    method: str | None
    k: int
    bands: tuple[tuple[int, int, int], ...]
    target: str | None
    drafter: str | None
    options: Mapping[str, Any]
    max_batch: int
    evidence: tuple[str, ...]


def export_files(plan: Plan, one: ConfigurationPlan) -> dict[str, str]:
    """Content by file name.

    Raises:
        UnsupportedError: no option keeps the limits, or no engine here runs the recommended method.
    """
    choice = _choice(plan, one)
    files = {
        "vllm.sh": _shell(choice, "vllm serve", _vllm_flags(choice)),
        "llama_cpp.sh": _shell(choice, "llama-server -m", _llama_flags(choice)),
        "sglang.sh": _shell(choice, "python -m sglang.launch_server --model-path", _sglang_flags(choice)),
        "tensorrt_llm.yaml": _tensorrt(choice),
    }
    if choice.method is not None:
        files["vllm_speculative_config.json"] = json.dumps(vllm_config(choice), indent=2) + "\n"
    return files


def vllm_config(choice: Choice) -> dict[str, Any]:
    """What vLLM takes as `--speculative-config`."""
    config: dict[str, Any] = {"method": choice.method, "num_speculative_tokens": choice.k}
    if choice.method == "ngram":
        config |= {
            "prompt_lookup_min": int(choice.options.get("min_ngram", 1)),
            "prompt_lookup_max": int(choice.options.get("max_ngram", 3)),
        }
    else:
        sampled = choice.options.get("draft_sampling") == "sampled"
        config |= {
            "model": choice.drafter or "DRAFTER",
            "draft_sample_method": "probabilistic" if sampled else "greedy",
        }
    if choice.bands:
        config["num_speculative_tokens"] = max(k for _, _, k in choice.bands)
        config["num_speculative_tokens_per_batch_size"] = [list(band) for band in choice.bands]
    return config


def _choice(plan: Plan, one: ConfigurationPlan) -> Choice:
    chosen = one.recommended
    if chosen is None:
        raise UnsupportedError(
            "no option keeps the limits, so there is nothing to export. Raise slo.*_p95_s."
        )
    fixed = _best_fixed(one, chosen)
    if not chosen.lossless:
        raise UnsupportedError(f"{chosen.method}: isn't lossless, so it isn't exported.")
    plain = chosen.policy == "never"
    if not plain and chosen.method not in _METHODS:
        raise UnsupportedError(f"{chosen.method}: can be exported for {', '.join(_METHODS)} alone.")
    model = None if plain else one.model.methods[chosen.method]
    return Choice(
        method=None if plain else chosen.method,
        k=fixed.k,
        bands=chosen.bands,
        target=_hub_name(one.model.facts.get("target")),
        drafter=_hub_name(model.drafter) if model else None,
        options=model.applied.get(fixed.k, {}) if model else {},
        max_batch=one.bounds.max_batch,
        evidence=tuple(_evidence(plan, one, chosen, fixed)),
    )


def _best_fixed(one: ConfigurationPlan, chosen: Option) -> Option:
    """What an engine that takes a single k should run."""
    same = [option for option in one.options if option.method == chosen.method and option.policy == "fixed"]
    if chosen.policy in ("never", "fixed") or not same:
        return chosen
    return max(same, key=lambda option: option.sizing.max_requests_per_s or 0.0)


def _hub_name(reference: object) -> str | None:
    text = str(reference)
    return text.removeprefix("hub:").partition("@")[0] if text.startswith("hub:") else None


def _evidence(plan: Plan, one: ConfigurationPlan, chosen: Option, fixed: Option) -> list[str]:
    facts = one.model.facts
    where = ", ".join(
        clipped(facts[name], 60) for name in ("backend", "backend_version", "device") if facts.get(name)
    )
    lines = [
        f"Results {clipped(plan.name, 60)}, measured with {where}; another engine has other costs.",
        f"Batches measured: {', '.join(map(str, one.model.range.batches))}. "
        f"Temperature {facts.get('temperature')}.",
        _carries("A replica", chosen),
    ]
    if chosen is not fixed:
        lines.append(_carries(f"With one k, {fixed.k}, it", fixed))
    if chosen is not one.plain:
        lines.append(_carries("Without speculation it", one.plain))
    for advice in one.advice:
        off = advice.off_from_requests_per_s
        if off is not None:
            lines.append(
                f"{advice.method}: slower than plain decoding from {off:.3g} requests/s per replica on."
            )
    return [*lines, *(f"Extrapolated or unknown: {text}." for text in one.extrapolated)]


def _carries(who: str, option: Option) -> str:
    most = option.sizing.max_requests_per_s
    if most is None:
        return f"{who} can't keep the limits."
    total = f", {option.now.total} replicas for {option.now.requests_per_s:.3g}/s" if option.now else ""
    return f"{who} carries {most:.3g} requests/s within the limits{total}."


def _comments(choice: Choice) -> list[str]:
    return [f"# {line}" for line in choice.evidence]


def _shell(choice: Choice, program: str, flags: list[str]) -> str:
    target = f'"{choice.target}"' if choice.target else '"${TARGET:?the path of the target}"'
    command = " \\\n  ".join([f"{program} {target}", *flags])
    return "\n".join(["#!/usr/bin/env bash", *_comments(choice), "set -euo pipefail", command, ""])


def _drafter(choice: Choice) -> str:
    return f'"{choice.drafter}"' if choice.drafter else '"${DRAFTER:?the path of the drafter}"'


def _vllm_flags(choice: Choice) -> list[str]:
    flags = [f"--max-num-seqs {choice.max_batch}"]
    if choice.method is not None:
        flags.append('--speculative-config "$(cat "$(dirname "$0")/vllm_speculative_config.json")"')
    return flags


def _llama_flags(choice: Choice) -> list[str]:
    flags = [f"--parallel {choice.max_batch}"]
    if choice.method == "draft_model":
        sampling = "probabilistic" if choice.options.get("draft_sampling") == "sampled" else "greedy"
        flags += [f"--spec-draft-model {_drafter(choice)}", "--spec-type draft-simple"]
        flags += [
            f"--spec-draft-n-max {choice.k}",
            "--spec-draft-p-min 0",
            f"--spec-draft-sampling {sampling}",
        ]
    if choice.method == "ngram":
        flags += ["--spec-type ngram-simple", f"--spec-ngram-simple-size-m {choice.k}"]
    return flags


def _sglang_flags(choice: Choice) -> list[str]:
    # speculation resets the number of running requests, so it is always said
    flags = [f"--max-running-requests {choice.max_batch}"]
    if choice.method == "draft_model":
        flags += ["--speculative-algorithm STANDALONE", f"--speculative-draft-model-path {_drafter(choice)}"]
        flags += [f"--speculative-num-steps {choice.k}", "--speculative-eagle-topk 1"]
        flags += [f"--speculative-num-draft-tokens {choice.k + 1}"]
    if choice.method == "ngram":
        flags += ["--speculative-algorithm NGRAM", f"--speculative-num-draft-tokens {choice.k + 1}"]
    return flags


def _tensorrt(choice: Choice) -> str:
    lines = [
        *_comments(choice),
        "# trtllm-serve MODEL --config tensorrt_llm.yaml",
        f"max_batch_size: {choice.max_batch}",
    ]
    if choice.method is not None:
        kind = {"draft_model": "Draft_Target", "ngram": "NGram"}[choice.method]
        lines += ["speculative_config:", f"  decoding_type: {kind}", f"  max_draft_len: {choice.k}"]
    if choice.method == "draft_model":
        lines.append(f"  speculative_model: {choice.drafter or 'DRAFTER'}")
    return "\n".join([*lines, ""])
