"""Causal attention of a few new tokens over cached keys and values, with grouped heads."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from harness.engine.cache import Placement


def attend(queries: Tensor, keys: Tensor, values: Tensor, placement: Placement) -> Tensor:
    """Let each new token see its sequence's committed tokens, itself and the new ones before it.

    Args:
        queries: [batch, num_heads, new, head_dim].
        keys: [batch, num_kv_heads, total, head_dim] in the cache's dtype, new rows behind each length.
        values: like `keys`.
        placement: says which rows each new token may see.

    Returns:
        [batch, new, num_heads * head_dim] in the cache's dtype.
    """
    queries = queries.to(keys.dtype)
    if placement.mask is not None and queries.is_cuda:
        return attend_folded(queries, keys, values, placement.mask)
    mixed = functional.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=None if placement.mask is None else placement.mask.unsqueeze(1),
        is_causal=placement.is_causal,
        enable_gqa=True,
    )
    return mixed.transpose(1, 2).flatten(2)


def attend_folded(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention in which the query heads that share keys are further rows of one head.

    PyTorch's fast kernels for GPUs take a mask or grouped heads, not both: this needs a mask alone.

    Args:
        queries: [batch, num_heads, new, head_dim].
        keys: [batch, num_kv_heads, total, head_dim].
        values: like `keys`.
        mask: [batch, new, total] True where a token may look.

    Returns:
        [batch, new, num_heads * head_dim].
    """
    batch, num_heads, new, size = queries.shape
    group = num_heads // keys.shape[1]
    rows = queries.reshape(batch, -1, group * new, size)
    mixed = functional.scaled_dot_product_attention(
        rows, keys, values, attn_mask=mask.repeat(1, group, 1).unsqueeze(1)
    )
    return mixed.view(batch, num_heads, new, size).transpose(1, 2).flatten(2)
