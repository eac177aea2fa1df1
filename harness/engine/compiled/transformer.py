"""A transformer whose forward pass is one call into the compiled kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from harness.engine.architecture import Architecture
from harness.engine.cache import KVCache, Placement
from harness.engine.compiled import layout
from harness.engine.compiled.packing import GROUP, PackedMatrix
from harness.engine.linear import Linear
from harness.engine.model import Transformer
from harness.engine.rope import rope_table

HEAD_SIZES = (32, 64, 96, 128, 256)


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """One decoder layer's matrices, and its norms in float32."""

    input_norm: Tensor | None
    qkv: PackedMatrix
    output: PackedMatrix
    post_norm: Tensor
    gate_up: PackedMatrix
    down: PackedMatrix
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None

    @classmethod
    def of(cls, **parts: Any) -> PackedLayer:
        """Take norms in any dtype."""
        floats: dict[str, Any] = {
            name: part.float() if isinstance(part, Tensor) else part for name, part in parts.items()
        }
        return cls(**floats)

    def struct(self) -> layout.Layer:
        """What the kernels are given."""
        names = ("input_norm", "post_norm", "query_norm", "key_norm")
        norms = {name: getattr(self, name) for name in names}
        return layout.Layer(
            **{name: None if norm is None else norm.data_ptr() for name, norm in norms.items()},
            **{name: getattr(self, name).struct for name in ("qkv", "output", "gate_up", "down")},
        )


class CompiledLinear:
    """`x @ weight.T + bias` in float32, weights packed; the LM head of a compiled model."""

    def __init__(self, library: Any, matrix: PackedMatrix) -> None:
        """Keep the matrix alive for the kernels."""
        self._library, self.matrix = library, matrix
        self.num_bytes = matrix.num_bytes

    def __call__(self, x: Tensor) -> Tensor:
        """Project [..., in] to float32 [..., out]."""
        rows = x.float().reshape(-1, x.shape[-1]).contiguous()
        out = torch.empty((len(rows), self.matrix.struct.out), dtype=torch.float32)
        self._library.harness_project(
            ctypes.byref(self.matrix.struct),
            rows.data_ptr(),
            len(rows),
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out.view(*x.shape[:-1], -1)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual + self(x)`."""
        return residual + self(x)


class CompiledTransformer(Transformer):
    """Like `Transformer` for bfloat16 or quantised weights on a CPU, with a float32 residual stream.

    Each row's result is the same bits whatever else is in the forward: tokens verified together come out
    as if decoded one by one.
    """

    kernels: ClassVar[str] = "compiled"

    def __init__(
        self,
        library: Any,
        architecture: Architecture,
        *,
        embeddings: Tensor,
        layers: list[PackedLayer],
        norm: Tensor | None,
        head: Linear,
    ) -> None:
        """Take packed weights; see `harness.engine.weights.load_transformer`."""
        super().__init__(architecture, embeddings=embeddings, layers=[], norm=norm, head=head)
        self.library, self._packed = library, layers
        self._rotations = torch.empty(0)
        # an EAGLE layer may stand before the head of a target that the kernels don't run
        self._own_head = head.matrix.struct if isinstance(head, CompiledLinear) else None
        self._layers = (layout.Layer * len(layers))(*(layer.struct() for layer in layers))
        self._pointers: WeakKeyDictionary[KVCache, tuple[Any, layout.CacheShape]] = WeakKeyDictionary()
        self.struct = layout.Model(
            hidden=architecture.hidden_size,
            intermediate=architecture.intermediate_size,
            heads=architecture.num_heads,
            kv_heads=architecture.num_kv_heads,
            head_dim=architecture.head_dim,
            num_layers=len(layers),
            eps=architecture.norm_eps,
            layers=self._layers,
            norm=None if norm is None else norm.data_ptr(),
            embeddings=embeddings.data_ptr(),
        )

    @property
    def cache_dtype(self) -> torch.dtype:
        """Of keys and values: the kernels multiply bfloat16."""
        return torch.bfloat16

    @property
    def weight_bytes(self) -> int:
        """Memory of embeddings and matrices."""
        matrices = [m for layer in self._packed for m in (layer.qkv, layer.output, layer.gate_up, layer.down)]
        return self.embeddings.nbytes + self.head.num_bytes + sum(matrix.num_bytes for matrix in matrices)

    def forward(self, tokens: Tensor, cache: KVCache, placement: Placement | None = None) -> Tensor:
        """See `Transformer.forward`; hidden states are float32."""
        batch = batch_of([tokens.shape[1]] * len(tokens), cache, placement)
        ids = tokens.contiguous()
        return self._call(batch, cache, tokens.numel(), tokens=ids.data_ptr()).view(*tokens.shape, -1)

    def forward_rows(
        self, rows: Sequence[Sequence[int]], cache: KVCache, placement: Placement | None = None
    ) -> Tensor:
        """See `Transformer.forward_rows`; nothing is padded."""
        batch, tokens = _flat(rows, cache, placement)
        return self._call(batch, cache, len(tokens), tokens=tokens)

    def run(self, x: Tensor, cache: KVCache, placement: Placement | None = None) -> Tensor:
        """See `Transformer.run`; hidden states are float32."""
        inputs = x.float().contiguous()
        batch = batch_of([x.shape[1]] * len(x), cache, placement)
        return self._call(batch, cache, len(x) * x.shape[1], inputs=inputs.data_ptr()).view(x.shape)

    def logits_rows(
        self, rows: Sequence[Sequence[int]], cache: KVCache, placement: Placement | None = None
    ) -> tuple[Tensor, Tensor]:
        """See `Transformer.logits_rows`; one call."""
        if self._own_head is None:
            return super().logits_rows(rows, cache, placement)
        batch, tokens = _flat(rows, cache, placement)
        logits = torch.empty((len(tokens), self._own_head.out), dtype=torch.float32)
        results = layout.Results(head=ctypes.pointer(self._own_head), logits=logits.data_ptr())
        return self._call(batch, cache, len(tokens), tokens=tokens, results=results), logits

    def choose_rows(
        self, rows: Sequence[Sequence[int]], cache: KVCache, placement: Placement | None = None
    ) -> tuple[Tensor, list[int]]:
        """See `Transformer.choose_rows`; one call, which keeps the logits to itself."""
        if self._own_head is None:
            return super().choose_rows(rows, cache, placement)
        batch, tokens = _flat(rows, cache, placement)
        choices = layout.int64s([0] * len(tokens))
        results = layout.Results(head=ctypes.pointer(self._own_head), choices=choices)
        return self._call(batch, cache, len(tokens), tokens=tokens, results=results), list(choices)

    def prepare(self, cache: KVCache) -> tuple[Any, layout.CacheShape]:
        """Be ready for a call over a cache: gives its pointers and strides."""
        self.struct.threads = torch.get_num_threads()
        self.struct.rotations = self._rotation_table(cache.keys[0].shape[2]).data_ptr()
        known = self._pointers.get(cache)
        if known is None:
            pairs = zip(cache.keys, cache.values, strict=True)
            layers = [layout.LayerCache(keys.data_ptr(), values.data_ptr()) for keys, values in pairs]
            first = cache.keys[0]
            known = (layout.LayerCache * len(layers))(*layers), layout.CacheShape(*first.stride()[:2])
            self._pointers[cache] = known
        return known

    def _call(
        self,
        batch: layout.Batch,
        cache: KVCache,
        count: int,
        *,
        tokens: Any = None,
        inputs: int | None = None,
        results: layout.Results | None = None,
    ) -> Tensor:
        out = torch.empty((count, self.architecture.hidden_size), dtype=torch.float32)
        results = results or layout.Results()
        results.hidden = out.data_ptr()
        self.library.harness_forward(self.struct, batch, *self.prepare(cache), tokens, inputs, results)
        return out

    def _rotation_table(self, positions: int) -> Tensor:
        if self._rotations.shape[0] < positions:
            self._rotations = rope_table(self.architecture, positions)
        return self._rotations


def _flat(
    rows: Sequence[Sequence[int]], cache: KVCache, placement: Placement | None
) -> tuple[layout.Batch, ctypes.Array[ctypes.c_int64]]:
    """What each sequence gets, and all tokens one sequence after the other."""
    tokens = layout.int64s([token for row in rows for token in row])
    return batch_of([len(row) for row in rows], cache, placement), tokens


def batch_of(counts: Sequence[int], cache: KVCache, placement: Placement | None = None) -> layout.Batch:
    """Say what each sequence of a forward gets.

    Args:
        counts: [batch] new tokens of each sequence.
        cache: of the same batch.
        placement: of draft trees; None, or one without branches, lets tokens follow each other.
    """
    batch = layout.Batch(
        size=len(counts),
        capacity=cache.capacity,
        counts=layout.int32s(counts),
        lengths=layout.int32s(cache.lengths),
    )
    if placement is not None and placement.branches is not None and placement.angles is not None:
        angles, branches = placement.angles.contiguous(), placement.branches.contiguous()
        batch.first, batch.stride = placement.first, angles.shape[1]
        batch.positions, batch.branches = angles.data_ptr(), branches.data_ptr()
        batch.kept = angles, branches  # as long as the pointers into them
    return batch


def why_not(architecture: Architecture) -> str | None:
    """Why the kernels can't run an architecture; None where they can."""
    widths = (
        architecture.hidden_size,
        architecture.intermediate_size,
        architecture.num_heads * architecture.head_dim,
    )
    if any(width % GROUP for width in widths):
        return f"a width of {widths} is not a multiple of {GROUP}"
    if architecture.head_dim not in HEAD_SIZES:
        return f"head_dim {architecture.head_dim} is none of {HEAD_SIZES}"
    return None
