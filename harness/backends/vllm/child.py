"""The process of one engine: the only module that imports vLLM.

It is started as `python -m harness.backends.vllm.child FD` and answers one JSON line on the socket FD for
each it gets. What vLLM prints goes to the process's output, which the parent keeps as the engine's log.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from harness.backends.vllm.process import end_group, end_with_parent

_COUNTERS = {
    "drafts": "vllm:spec_decode_num_drafts",
    "proposed": "vllm:spec_decode_num_draft_tokens",
    "accepted": "vllm:spec_decode_num_accepted_tokens",
}


class Engine:
    """A started vLLM engine that decodes batches."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Import vLLM, load the models, and listen to what the engine's core puts out."""
        start = time.monotonic()
        from vllm import LLM

        imported = time.monotonic()
        self._llm = LLM(**arguments)
        self.seconds = {"import": imported - start, "load_engine": time.monotonic() - imported}
        self._core = self._llm.llm_engine.engine_core
        self._get_output = self._core.get_output
        self._core.get_output = self._listening
        self._heard: list[dict[str, Any]] = []

    def applied(self) -> dict[str, Any]:
        """The settings as the engine resolved them, under the names the parent compares."""
        config = self._llm.llm_engine.vllm_config
        parallel, found = config.parallel_config, config.speculative_config
        applied = {
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "quantization": config.model_config.quantization or "none",
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "enforce_eager": config.model_config.enforce_eager,
            "compilation_mode": getattr(config.compilation_config.mode, "name", None),
            "prefix_caching": bool(config.cache_config.enable_prefix_caching),
            "tensor_parallel_size": parallel.tensor_parallel_size,
            "pipeline_parallel_size": parallel.pipeline_parallel_size,
            "executor": str(parallel.distributed_executor_backend),
            "max_model_len": config.model_config.max_model_len,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "async_scheduling": config.scheduler_config.async_scheduling,
            "kv_cache_dtype": str(config.cache_config.cache_dtype),
            "device": str(config.device_config.device_type),
            "num_threads": self._num_threads(),
            "method": None,
            "k": 0,
        }
        return applied if found is None else applied | _speculative(found)

    def decode(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Decode one batch; all its sequences are submitted at once."""
        from vllm import SamplingParams

        prompts = [{"prompt_token_ids": one["prompt"]} for one in request["sequences"]]
        shared = request["sampling"]
        params = [
            SamplingParams(
                temperature=shared["temperature"],
                top_k=shared["top_k"],
                top_p=shared["top_p"],
                stop_token_ids=shared["eos_ids"],
                # end tokens are given above; the checkpoint's own list isn't asked
                ignore_eos=True,
                max_tokens=one["max_new_tokens"],
                seed=one["seed"] if shared["temperature"] > 0 else None,
                detokenize=False,
            )
            for one in request["sequences"]
        ]
        self._heard.clear()
        before = self._counters()
        start_s = time.monotonic()
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        after = self._counters()
        return {
            "start_s": start_s,
            "sequences": [_sequence(output) for output in outputs],
            "core_steps": list(self._heard),
            "counted": {name: after[name] - before[name] for name in _COUNTERS},
            "peak_bytes": self._peak_bytes(),
        }

    def close(self) -> None:
        """Stop the engine's core and whatever processes it has."""
        self._core.shutdown()

    def _listening(self) -> Any:
        output = self._get_output()
        arrived = [[one.request_id, len(one.new_token_ids)] for one in output.outputs if one.new_token_ids]
        if arrived:
            stats = output.scheduler_stats
            drafting = stats.spec_decoding_stats if stats is not None else None
            num_drafts = None if stats is None else (drafting.num_drafts if drafting is not None else 0)
            self._heard.append({"at_s": output.timestamp, "arrived": arrived, "num_drafts": num_drafts})
        return output

    def _is_alone(self) -> bool:
        """Whether this process holds the whole model."""
        parallel = self._llm.llm_engine.vllm_config.parallel_config
        return parallel.world_size == 1 and os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0"

    def _num_threads(self) -> int | None:
        import torch

        return torch.get_num_threads() if self._is_alone() else None

    def _peak_bytes(self) -> int | None:
        """Of the device on CUDA, else of this process; None where other processes hold the model."""
        import torch

        if not self._is_alone():
            return None
        if torch.cuda.is_available():
            return int(torch.cuda.max_memory_reserved())
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _counters(self) -> dict[str, int]:
        totals = dict.fromkeys(_COUNTERS, 0)
        for metric in self._llm.get_metrics():
            for name, full in _COUNTERS.items():
                if metric.name == full:
                    totals[name] += metric.value
        return totals


def _speculative(found: Any) -> dict[str, Any]:
    model = found.draft_model_config
    has_model = model is not None and found.method not in ("ngram", "suffix")
    return {
        "method": found.method,
        "k": found.num_speculative_tokens,
        "draft_sample_method": found.draft_sample_method,
        "rejection_sample_method": found.rejection_sample_method,
        "prompt_lookup_min": found.prompt_lookup_min,
        "prompt_lookup_max": found.prompt_lookup_max,
        "k_by_batch": found.num_speculative_tokens_per_batch_size,
        "draft_model": str(model.model) if has_model else None,
        "draft_quantization": (model.quantization or "none") if has_model else "none",
    }


def _sequence(output: Any) -> dict[str, Any]:
    (completion,) = output.outputs
    spoken = completion.spec_decode_metrics
    detail = {} if spoken is None else spoken.to_dict()
    return {
        "request_id": output.request_id,
        "tokens": list(completion.token_ids),
        "finish_reason": completion.finish_reason,
        "first_token_s": output.metrics.first_token_ts,
        "last_token_s": output.metrics.last_token_ts,
        "per_step_drafted": detail.get("per_step_drafted", []),
        "per_step_accepted": detail.get("per_step_accepted", []),
    }


def _answers(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    engine: Engine | None = None
    for line in lines:
        request = json.loads(line)
        try:
            if request["do"] == "start":
                engine = Engine(request["arguments"])
                yield {"applied": engine.applied(), "seconds": engine.seconds}
            elif request["do"] == "decode":
                assert engine is not None
                yield engine.decode(request)
            else:
                if engine is not None:
                    engine.close()
                yield {}
                return
        except Exception as error:
            yield {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def main() -> None:
    """Serve the parent until it closes the socket or goes away."""
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rw") as stream:
        end_with_parent(channel)
        for answer in _answers(iter(stream)):
            stream.write(json.dumps(answer) + "\n")
            stream.flush()
    end_group()


if __name__ == "__main__":
    main()
