"""Attention of a drafter that is unrolled over several drafted tokens at all positions at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def shifted(x: Tensor, rows: int) -> Tensor:
    """Move rows towards the end; zeros come in at the beginning.

    Args:
        x: [..., length, size].
        rows: at most `length`.
    """
    if rows == 0:
        return x
    return functional.pad(x, (0, 0, rows, 0))[..., : x.shape[-2], :]


def rotate_halves(heads: Tensor, rotations: Tensor) -> Tensor:
    """Rotate query or key heads to their positions, in the layout of Hugging Face checkpoints.

    Args:
        heads: [..., length, head_dim]; a rotation mixes numbers half a head apart.
        rotations: complex64 [length, head_dim / 2].
    """
    first, second = heads.float().chunk(2, -1)
    turned = torch.complex(first, second) * rotations
    return torch.cat((turned.real, turned.imag), -1).to(heads.dtype)


def attend_unrolled(queries: Tensor, context: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Let step j at row t see the target's rows up to t - j + 1 and one row of each step since.

    A draft of j tokens that ends at row t has the target's own features up to row t - j + 1, and
    the drafter's features of step i at row t - j + i. All drafts are computed at once: the rows of
    step i are those of the drafts one row shorter.

    Args:
        queries: [batch, num_heads, length, head_dim] of the newest step.
        context: per step so far, the newest included, keys and values
            [batch, num_kv_heads, length, head_dim]; those of the first step are the target's rows.

    Returns:
        [batch, num_heads, length, head_dim]. Rows before step j's first possible one hold no draft's
        values; nothing later depends on them.
    """
    steps, length = len(context), queries.shape[-2]
    groups = queries.shape[1] // context[0][0].shape[1]
    spread = [[x.repeat_interleave(groups, 1) for x in pair] for pair in context]
    queries = queries * queries.shape[-1] ** -0.5
    (keys, values), drafts = spread[0], spread[1:]
    visible = torch.ones(length, length, dtype=torch.bool, device=queries.device).tril(1 - steps)
    scores = [(queries @ keys.transpose(-1, -2)).float().masked_fill(~visible, float("-inf"))]
    shifts = range(steps - 2, -1, -1)
    moved = [[shifted(x, rows) for x in pair] for rows, pair in zip(shifts, drafts, strict=True)]
    scores += [(queries * keys).float().sum(-1, keepdim=True) for keys, _ in moved]
    weights = torch.cat(scores, -1).softmax(-1).to(values.dtype)
    mixed = weights[..., :length] @ values
    for place, (_, own) in enumerate(moved):
        mixed = mixed + weights[..., length + place, None] * own
    return mixed
