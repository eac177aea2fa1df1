"""A static key-value cache, one pair of tensors per layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.architecture import Architecture
from harness.errors import UnsupportedError

SPARE_ROWS = 64
"""Rows behind the capacity: for padding, and for the branches of draft trees."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one forward's new tokens go.

    Attributes:
        total: cached rows to attend to, the new ones included.
        start: row of the first new token of every sequence, None where their lengths differ.
        rows: [batch, 1] sequence of each new token, where lengths differ.
        positions: [batch, new] row of each new token, where lengths differ.
        angles: [batch, new] position of each new token, where it isn't its row: in draft trees.
        mask: [batch, new, total] True where a token may look; None where plain causal rules say it.
        is_causal: the new tokens start the sequence and see each other in order.
        first: row past the committed ones that the first new token goes to.
        branches: [batch, new] int64 of draft trees: bit i says whether a token sees the i-th row past the
            committed ones; the same as `mask` says, for kernels that build none.
    """

    total: int
    start: int | None
    rows: Tensor | None = None
    positions: Tensor | None = None
    angles: Tensor | None = None
    mask: Tensor | None = None
    is_causal: bool = False
    first: int = 0
    branches: Tensor | None = None


class KVCache:
    """Keys and values of `batch` sequences, allocated once, with a committed length per sequence.

    Rows past a sequence's length hold leftovers of rejected drafts and of padding. They're never
    attended to and are overwritten by the next forward, so dropping a token is only a smaller length.
    `SPARE_ROWS` behind the capacity take the padding of a sequence that is full while others aren't, and
    those nodes of a draft tree that lie behind its longest path.

    Attributes:
        keys: per layer [batch, num_kv_heads, capacity + SPARE_ROWS, head_dim].
        values: like `keys`.
        lengths: committed tokens per sequence.
        capacity: most tokens of a sequence.
        max_batch: sequences there is memory for.
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
        shape = (batch, architecture.num_kv_heads, capacity + SPARE_ROWS, architecture.head_dim)
        layers = range(architecture.num_layers)
        self._all_keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in layers]
        self._all_values = [torch.zeros(shape, dtype=dtype, device=device) for _ in layers]
        self.keys, self.values = self._all_keys, self._all_values
        self.lengths = [0] * batch
        self.capacity = capacity
        self.max_batch = batch

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    @staticmethod
    def size_bytes(architecture: Architecture, *, batch: int, capacity: int, dtype: torch.dtype) -> int:
        """Memory that a cache takes."""
        rows = 2 * architecture.num_layers * architecture.num_kv_heads * batch * (capacity + SPARE_ROWS)
        return rows * architecture.head_dim * dtype.itemsize

    def clear(self, batch: int | None = None) -> None:
        """Forget every sequence, keeping the memory.

        Args:
            batch: sequences to hold from now on, at most `max_batch`; None keeps their number.
        """
        self._resize([0] * (self.batch if batch is None else batch))

    def keep(self, rows: Sequence[int]) -> None:
        """Keep some sequences and forget the others.

        Args:
            rows: which sequence each row takes over; one that moves must move down, to a row that isn't kept.
        """
        for new, old in enumerate(rows):
            if new != old:
                used = self.lengths[old]
                for tensor in (*self._all_keys, *self._all_values):
                    tensor[new, :, :used] = tensor[old, :, :used]
        self._resize([self.lengths[row] for row in rows])

    def _resize(self, lengths: list[int]) -> None:
        if len(lengths) != self.batch:
            self.keys = [tensor[: len(lengths)] for tensor in self._all_keys]
            self.values = [tensor[: len(lengths)] for tensor in self._all_values]
        self.lengths = lengths

    def rows(self, start: int, stop: int) -> KVCache:
        """A view of sequences `start` to `stop`, sharing memory but not the lengths."""
        view = object.__new__(KVCache)
        view.keys = view._all_keys = [k[start:stop] for k in self.keys]
        view.values = view._all_values = [v[start:stop] for v in self.values]
        view.lengths = self.lengths[start:stop]
        view.capacity, view.max_batch = self.capacity, stop - start
        return view

    def gather(self, row: int, nodes: Sequence[int]) -> None:
        """Bring the accepted path of a tree together, before it is committed.

        Args:
            row: of the sequence; its tree lies behind its committed rows, the root first.
            nodes: accepted ones, from below the root downwards.
        """
        if list(nodes) == list(range(1, len(nodes) + 1)):
            return
        root = self.lengths[row]
        rows = [root + node for node in nodes]
        for tensor in (*self.keys, *self.values):
            own = tensor[row]
            # indexing by a list copies, so that no row is overwritten before it was read
            own[:, root + 1 : root + 1 + len(rows)] = own[:, rows]

    def place(self, new: int) -> Placement:
        """Say where `new` tokens per sequence go and what each of them may see."""
        longest, device = max(self.lengths), self.keys[0].device
        total = longest + new
        if min(self.lengths) == longest:
            mask = None if new == 1 or longest == 0 else causal_mask(self.lengths, new, total, device)
            return Placement(total=total, start=longest, mask=mask, is_causal=longest == 0 and new > 1)
        # padding may reach past the capacity: it all goes to the row behind it
        total = min(total, self.capacity + 1)
        starts = torch.tensor(self.lengths, device=device)
        positions = starts[:, None] + torch.arange(new, device=device)
        return Placement(
            total=total,
            start=None,
            rows=torch.arange(self.batch, device=device)[:, None],
            positions=positions.clamp_(max=self.capacity),
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
            rows, positions = placement.rows, placement.positions
            cached_keys[rows, :, positions] = keys.transpose(1, 2).to(cached_keys.dtype)
            cached_values[rows, :, positions] = values.transpose(1, 2).to(cached_values.dtype)
        return cached_keys[:, :, : placement.total], cached_values[:, :, : placement.total]


def static_placement(cache: KVCache, lengths: Tensor, new: int) -> Placement:
    """What `place` says, in shapes that don't depend on the lengths: all see the whole cache through a mask.

    Args:
        cache: of the batch.
        lengths: [batch] int64 committed tokens, on the cache's device.
        new: new tokens per sequence.
    """
    device, total = lengths.device, cache.keys[0].shape[2]
    last = lengths[:, None] + torch.arange(new, device=device)
    return Placement(
        total=total,
        start=None,
        rows=torch.arange(len(lengths), device=device)[:, None],
        positions=last.clamp(max=cache.capacity),
        mask=torch.arange(total, device=device) <= last[:, :, None],
    )


def causal_mask(lengths: Sequence[int], new: int, total: int, device: torch.device) -> Tensor:
    """Which of `total` cached rows each new token may see: those up to and with itself.

    Args:
        lengths: committed tokens per sequence.
        new: new tokens per sequence.
        total: cached rows, at most `max(lengths) + new`.
        device: where to put it.

    Returns:
        Boolean [batch, new, total], True where it may look.
    """
    last = torch.tensor(lengths, device=device)[:, None] + torch.arange(new, device=device)
    return torch.arange(total, device=device) <= last[:, :, None]
