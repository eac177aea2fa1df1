"""Seconds a user waits, and tokens per second.

The first output token belongs to the prefill (`ttft_s`), the others to decoding (`decode_s`), so a sequence
of n tokens decodes n - 1; fewer where the engine's first step, prompt included, already emits several.
Under speculation tokens come in bursts: time per output token is a mean over the sequence, and the wait
between two bursts is the step latency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The median and the two upper percentiles of a sample, in its unit; None for an empty sample."""

    p50: float | None
    p90: float | None
    p99: float | None


def percentiles(values: npt.ArrayLike) -> Percentiles:
    """p50, p90 and p99, linear between the two nearest order statistics; NaN (not measured) is left out."""
    sample = np.asarray(values, dtype=np.float64).ravel()
    sample = sample[~np.isnan(sample)]
    if not sample.size:
        return Percentiles(None, None, None)
    p50, p90, p99 = np.percentile(sample, [50, 90, 99])
    return Percentiles(float(p50), float(p90), float(p99))


def num_first_tokens(step_emitted: npt.ArrayLike | None, num_output_tokens: int) -> int:
    """Tokens of one sequence that came at once with its first: one, or those of a first step with the prompt.

    Steps that account for the whole output include the one that read the prompt; else the prefill brought a
    token before the first step.
    """
    emitted = np.zeros(0) if step_emitted is None else np.asarray(step_emitted)
    return int(emitted[0]) if emitted.size and emitted.sum() == num_output_tokens else 1


def num_decoded_tokens(num_output_tokens: npt.ArrayLike, num_first_tokens: npt.ArrayLike = 1) -> FloatArray:
    """Tokens that came after the first ones, which the prefill brought.

    Args:
        num_output_tokens: [num_sequences] output tokens.
        num_first_tokens: [num_sequences] tokens that came at once with the first; more than one where an
            engine drafts before it has read the prompt.
    """
    decoded: FloatArray = np.asarray(num_output_tokens, dtype=np.float64) - np.asarray(num_first_tokens)
    return np.maximum(decoded, 0)


def time_per_output_token_s(
    num_output_tokens: npt.ArrayLike, decode_s: npt.ArrayLike, num_first_tokens: npt.ArrayLike = 1
) -> FloatArray:
    """Decode seconds per token after the first ones (TPOT), per sequence.

    Args:
        num_output_tokens: [num_sequences] output tokens.
        decode_s: [num_sequences] seconds from the first output token to the last.
        num_first_tokens: see `num_decoded_tokens`.

    Returns:
        [num_sequences]; NaN where fewer than two tokens came out.
    """
    decoded = num_decoded_tokens(num_output_tokens, num_first_tokens)
    seconds = np.asarray(decode_s, dtype=np.float64)
    out = np.full(decoded.shape, np.nan)
    np.divide(seconds, decoded, out=out, where=decoded > 0)
    return out


def tok_per_s(num_tokens: npt.ArrayLike, seconds: npt.ArrayLike) -> float | None:
    """Sum of tokens over sum of seconds, so that long sequences weigh more; None without any time.

    Decode rate: n - 1 tokens over decoding seconds. End-to-end rate: n tokens over all seconds. The seconds
    of a batch are to be counted once, not once per sequence.
    """
    total_s = float(np.sum(np.asarray(seconds, dtype=np.float64)))
    return float(np.sum(np.asarray(num_tokens, dtype=np.float64))) / total_s if total_s > 0 else None
