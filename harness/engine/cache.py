"""A static key-value cache, one pair of tensors per layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.architecture import Architecture
from harness.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one forward's new tokens go.

    Attributes:
        total: cached rows to attend to, the new ones included.
        start: the common length of all sequences, None where they differ.
        positions: [batch, new] row of each new token, where lengths differ.
        mask: [batch, new, total] True where a token may look; None where plain causal rules say it.
        is_causal: the new tokens start the sequence and see each other in order.
    """

    total: int
    start: int | None
    positions: Tensor | None = None
    mask: Tensor | None = None
    is_causal: bool = False


class KVCache:
    """Keys and values of `batch` sequences, allocated once, with a committed length per sequence.

    Rows past a sequence's length hold leftovers of rejected drafts. They're never attended to and
    are overwritten by the next forward, so dropping a token is only a smaller length.

    Attributes:
        keys: per layer [batch, num_kv_heads, capacity, head_dim].
        values: like `keys`.
        lengths: committed tokens per sequence.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        batch: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocate the cache.

        Raises:
            UnsupportedError: the model's positions end before `capacity`.
        """
        if capacity > architecture.max_positions:
            raise UnsupportedError(
                f"{capacity} tokens of context were asked for, but the model's positions end at "
                f"{architecture.max_positions}. Shorten the prompts or lower workload.max_output_tokens."
            )
        shape = (batch, architecture.num_kv_heads, capacity, architecture.head_dim)
        layers = range(architecture.num_layers)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in layers]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in layers]
        self.lengths = [0] * batch
        self.capacity = capacity

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    def clear(self) -> None:
        """Forget every sequence, keeping the memory."""
        self.lengths = [0] * self.batch

    def rows(self, start: int, stop: int) -> KVCache:
        """A view of sequences `start` to `stop`, sharing memory but not the lengths."""
        view = object.__new__(KVCache)
        view.keys = [k[start:stop] for k in self.keys]
        view.values = [v[start:stop] for v in self.values]
        view.lengths = self.lengths[start:stop]
        view.capacity = self.capacity
        return view

    def place(self, new: int) -> Placement:
        """Say where `new` tokens per sequence go and what each of them may see."""
        longest, device = max(self.lengths), self.keys[0].device
        total = longest + new
        if min(self.lengths) == longest:
            mask = None if new == 1 or longest == 0 else causal_mask(self.lengths, new, total, device)
            return Placement(total=total, start=longest, mask=mask, is_causal=longest == 0 and new > 1)
        starts = torch.tensor(self.lengths, device=device)
        return Placement(
            total=total,
            start=None,
            positions=starts[:, None] + torch.arange(new, device=device),
            mask=causal_mask(self.lengths, new, total, device),
        )

    def write(self, layer: int, keys: Tensor, values: Tensor, placement: Placement) -> tuple[Tensor, Tensor]:
        """Store new rows behind each sequence's length and return what there is to attend to.

        Args:
            layer: layer index.
            keys: [batch, num_kv_heads, new, head_dim].
            values: like `keys`.
            placement: from `place`.

        Returns:
            Views [batch, num_kv_heads, total, head_dim] of keys and values.
        """
        cached_keys, cached_values = self.keys[layer], self.values[layer]
        if placement.start is not None:
            cached_keys[:, :, placement.start : placement.total] = keys
            cached_values[:, :, placement.start : placement.total] = values
        else:
            rows = torch.arange(self.batch, device=keys.device)[:, None]
            cached_keys[rows, :, placement.positions] = keys.transpose(1, 2).to(cached_keys.dtype)
            cached_values[rows, :, placement.positions] = values.transpose(1, 2).to(cached_values.dtype)
        return cached_keys[:, :, : placement.total], cached_values[:, :, : placement.total]


def causal_mask(lengths: Sequence[int], new: int, total: int, device: torch.device) -> Tensor:
    """Which of `total` cached rows each new token may see: those up to and with itself.

    Args:
        lengths: committed tokens per sequence.
        new: new tokens per sequence.
        total: cached rows, `max(lengths) + new`.
        device: where to put it.

    Returns:
        Boolean [batch, new, total], True where it may look.
    """
    last = torch.tensor(lengths, device=device)[:, None] + torch.arange(new, device=device)
    return torch.arange(total, device=device) <= last[:, :, None]
