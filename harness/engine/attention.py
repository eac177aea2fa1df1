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
    mixed = functional.scaled_dot_product_attention(
        queries.to(keys.dtype),
        keys,
        values,
        attn_mask=None if placement.mask is None else placement.mask.unsqueeze(1),
        is_causal=placement.is_causal,
        enable_gqa=True,
    )
    return mixed.transpose(1, 2).flatten(2)
