"""The Llama-family forward pass over a static cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from harness.engine.architecture import Architecture
from harness.engine.attention import attend
from harness.engine.cache import KVCache, Placement
from harness.engine.linear import Linear
from harness.engine.norm import rms_norm
from harness.engine.rope import rope_table, rotate
from harness.engine.step_graphs import step_graphs


@dataclass(slots=True)
class Layer:
    """One decoder layer with fused projections."""

    input_norm: Tensor | None
    qkv: Linear
    output: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None


class Transformer:
    """A decoder-only model: token ids in, hidden states and logits out.

    Attributes:
        architecture: shape facts.
        dtype: of weights and activations.
        device: where it runs.
        head: the LM head; `None` rows are never padded, so it gives [.., vocab_size].
        kernels: what computes the layers: `torch` or `compiled`.
    """

    kernels: ClassVar[str] = "torch"

    def __init__(
        self,
        architecture: Architecture,
        *,
        embeddings: Tensor,
        layers: list[Layer],
        norm: Tensor | None,
        head: Linear,
    ) -> None:
        """Take weights already on their device; see `harness.engine.weights.load_transformer`."""
        self.architecture = architecture
        self.embeddings = embeddings
        self.layers = layers
        self.norm = norm
        self.head = head
        self.dtype = embeddings.dtype
        self.device = embeddings.device
        self._rotation_tables = [torch.empty(0)]
        self._graphs = step_graphs(self._run_layers, self.device)

    def new_cache(self, *, capacity: int, batch: int = 1) -> KVCache:
        """Allocate a cache for `batch` sequences of at most `capacity` tokens."""
        return KVCache(
            self.architecture, batch=batch, capacity=capacity, dtype=self.cache_dtype, device=self.device
        )

    def cache_bytes(self, *, capacity: int, batch: int = 1) -> int:
        """Memory that `new_cache` takes."""
        return KVCache.size_bytes(self.architecture, batch=batch, capacity=capacity, dtype=self.cache_dtype)

    @property
    def weight_bytes(self) -> int:
        """Memory of embeddings and matrices, every copy counted."""
        matrices = [m for layer in self.layers for m in (layer.qkv, layer.output, layer.gate_up, layer.down)]
        # a tied head that was neither packed nor quantised is the embeddings
        if getattr(self.head, "weight", None) is not self.embeddings:
            matrices.append(self.head)
        return self.embeddings.nbytes + sum(matrix.num_bytes for matrix in matrices)

    @property
    def has_graphs(self) -> bool:
        """Whether its decode steps run as CUDA graphs."""
        return self._graphs is not None and self._graphs.is_running

    @property
    def cache_dtype(self) -> torch.dtype:
        """Of keys and values: float32 on CPUs, where PyTorch attends to bfloat16 four times slower."""
        return torch.float32 if self.device.type == "cpu" else self.dtype

    def forward(self, tokens: Tensor, cache: KVCache, placement: Placement | None = None) -> Tensor:
        """Run new tokens behind each sequence's committed length; lengths are left as they were.

        Args:
            tokens: [batch, new] int64 token ids.
            cache: of the same batch; its rows past the lengths are overwritten.
            placement: where they go and what they see; None lets them follow each other.

        Returns:
            Hidden states after the last norm, [batch, new, hidden_size].
        """
        return self.run(functional.embedding(tokens, self.embeddings), cache, placement)

    def run(self, x: Tensor, cache: KVCache, placement: Placement | None = None) -> Tensor:
        """`forward` from the first layer's inputs on, [batch, new, hidden_size]."""
        if self._graphs is not None and placement is None:
            replayed = self._graphs.run(x, cache)
            if replayed is not None:
                return replayed
        return self._run_layers(x, cache, placement or cache.place(x.shape[1]))

    def _run_layers(self, x: Tensor, cache: KVCache, placement: Placement) -> Tensor:
        rotations = self._rotation_rows(cache, placement)
        for index, layer in enumerate(self.layers):
            mixed = self._attention(layer, index, self._rms(x, layer.input_norm), cache, placement, rotations)
            x = layer.output.add_to(x, mixed)
            gate, up = layer.gate_up(self._rms(x, layer.post_norm)).chunk(2, -1)
            x = layer.down.add_to(x, functional.silu(gate) * up)
        return self._rms(x, self.norm)

    def forward_rows(
        self, rows: Sequence[Sequence[int]], cache: KVCache, placement: Placement | None = None
    ) -> Tensor:
        """Like `forward` for sequences that may get different numbers of tokens.

        Args:
            rows: [batch] new token ids of each sequence; may be empty, though not all of them.
            cache: of the same batch.
            placement: of the longest row's tokens; None lets them follow each other.

        Returns:
            [sum of len(row), hidden_size], one sequence below the other.
        """
        return unpadded(self.forward(padded(rows, self.device), cache, placement), rows)

    def logits_rows(
        self, rows: Sequence[Sequence[int]], cache: KVCache, placement: Placement | None = None
    ) -> tuple[Tensor, Tensor]:
        """`forward_rows`, and the logits after each of its rows, [sum of len(row), vocab_size]."""
        hidden = self.forward_rows(rows, cache, placement)
        return hidden, self.head(hidden)

    def choose_rows(
        self, rows: Sequence[Sequence[int]], cache: KVCache, placement: Placement | None = None
    ) -> tuple[Tensor, list[int]]:
        """`forward_rows`, and the likeliest token after each of its rows."""
        hidden, logits = self.logits_rows(rows, cache, placement)
        return hidden, logits.argmax(-1).tolist()

    def prefill(self, tokens: Tensor, cache: KVCache) -> Tensor:
        """Run a prompt, commit it and return the last position's hidden state [batch, hidden_size]."""
        hidden = self.forward(tokens, cache)
        cache.lengths = [length + tokens.shape[1] for length in cache.lengths]
        return hidden[:, -1]

    def feed(self, rows: Sequence[Sequence[int]], cache: KVCache) -> Tensor:
        """Run new tokens of sequences that may get different numbers of them, and commit them.

        Args:
            rows: [batch] new token ids of each sequence; may be empty, though not all of them.
            cache: of the same batch.

        Returns:
            [batch, hidden_size] after each sequence's last new token; anything where there is none.
        """
        hidden = self.forward_rows(rows, cache)
        counts = [len(row) for row in rows]
        cache.lengths = [length + count for length, count in zip(cache.lengths, counts, strict=True)]
        if min(counts) == max(counts):
            return hidden[counts[0] - 1 :: counts[0]]
        return hidden[[end - 1 for end in accumulate(counts)]]

    def feed_all(self, rows: Sequence[Sequence[int]], cache: KVCache) -> Sequence[Tensor]:
        """`feed` that gives the hidden states after every new token, [len(row), hidden_size] of each row."""
        hidden = self.forward_rows(rows, cache)
        counts = [len(row) for row in rows]
        cache.lengths = [length + count for length, count in zip(cache.lengths, counts, strict=True)]
        return torch.split(hidden, counts)

    def _attention(
        self,
        layer: Layer,
        index: int,
        x: Tensor,
        cache: KVCache,
        placement: Placement,
        rotations: Tensor,
    ) -> Tensor:
        arch = self.architecture
        batch, new, _ = x.shape
        heads = layer.qkv(x).view(batch, new, -1, arch.head_dim).transpose(1, 2)
        rotated = arch.num_heads + arch.num_kv_heads
        query_key, values = heads[:, :rotated], heads[:, rotated:]
        if layer.query_norm is not None and layer.key_norm is not None:
            queries = self._rms(query_key[:, : arch.num_heads], layer.query_norm)
            query_key = torch.cat((queries, self._rms(query_key[:, arch.num_heads :], layer.key_norm)), 1)
        query_key = rotate(query_key, rotations)
        keys, values = cache.write(index, query_key[:, arch.num_heads :], values, placement)
        return attend(query_key[:, : arch.num_heads], keys, values, placement).to(x.dtype)

    def _rms(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else rms_norm(x, weight, self.architecture.norm_eps)

    def _rotation_rows(self, cache: KVCache, placement: Placement) -> Tensor:
        if self._rotation_tables[-1].shape[0] <= cache.capacity:
            # shorter ones stay, as captured graphs read them where they are
            self._rotation_tables.append(rope_table(self.architecture, cache.capacity + 1).to(self.device))
        table = self._rotation_tables[-1]
        if placement.angles is not None:
            return table[placement.angles].unsqueeze(1)
        if placement.start is not None:
            return table[placement.start : placement.total]
        return table[placement.positions].unsqueeze(1)


def last_states(hidden: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
    """Of each row the hidden state after its last token; anything where it has none.

    Args:
        hidden: [batch, longest, size].
        rows: [batch] the tokens they belong to.

    Returns:
        [batch, size].
    """
    last = [max(0, len(row) - 1) for row in rows]
    if min(last) == hidden.shape[1] - 1:
        return hidden[:, -1]
    return hidden[torch.arange(len(last), device=hidden.device), torch.tensor(last, device=hidden.device)]


def unpadded(hidden: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
    """[batch, longest, size] to [tokens of all rows, size]."""
    counts = [len(row) for row in rows]
    if min(counts) == hidden.shape[1]:
        return hidden.flatten(0, 1)
    return torch.cat([states[:count] for states, count in zip(hidden, counts, strict=True)])


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Token ids as [len(rows), longest] int64, shorter rows filled up at their end."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)
