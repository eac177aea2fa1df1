"""Answer one request a line with vLLM; started by `other_engines.VllmWorker`, in vLLM's own environment."""

from __future__ import annotations

import json
import sys

from vllm import LLM, SamplingParams

ANSWER = "ANSWER "


def main(model: str, dtype: str, context_tokens: int) -> None:
    """Load the model, say so, and decode greedily until standard input ends."""
    engine = LLM(
        model=model,
        dtype=dtype,
        max_model_len=context_tokens + 16,
        enable_prefix_caching=False,
        max_num_seqs=1,
    )
    print(f"{ANSWER}null", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        limits = SamplingParams(temperature=0.0, max_tokens=asked["new_tokens"], ignore_eos=True)
        (answer,) = engine.generate({"prompt_token_ids": asked["prompt"]}, limits, use_tqdm=False)
        print(ANSWER + json.dumps(list(answer.outputs[0].token_ids)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
