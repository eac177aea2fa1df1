"""One variant of a cell against another, on the same prompts."""

from __future__ import annotations

from dataclasses import dataclass

from harness.metrics.intervals import Interval, group_sums, speedup_interval
from harness.results.frames import Frames
from harness.results.pairing import DECODE, pair, speedup

_TOKENS, _FORWARDS = "num_output_tokens", "num_target_forwards"


@dataclass(frozen=True, slots=True)
class Rivalry:
    """What a variant is over its rival.

    Attributes:
        speed: ratio of their decode rates.
        tokens_per_forward: ratio of their output tokens per forward of the target.
    """

    speed: Interval
    tokens_per_forward: Interval


def rivalry(cell_frames: Frames, variant_id: str, rival_id: str) -> Rivalry:
    """Compare two variants over the prompts that both decoded, repeat by repeat and block by block.

    Narrower than what the intervals of two speedups suggest, which share a baseline and their prompts.

    Args:
        cell_frames: of a single cell.
        variant_id: the variant.
        rival_id: what it is compared with.
    """
    (cell,) = cell_frames.prepared
    paired = pair(*(cell.variants[name] for name in (variant_id, rival_id)))
    columns = [_TOKENS, _FORWARDS, f"{_TOKENS}_baseline", f"{_FORWARDS}_baseline"]
    known = paired.dropna(subset=columns)
    per_forward = speedup_interval(*group_sums(known["unit"], *(known[column] for column in columns)))
    return Rivalry(speedup(paired, DECODE), per_forward)
