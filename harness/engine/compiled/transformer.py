"""A transformer whose forward pass is one call into the compiled kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
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
        self._library, self._packed = library, layers
        self._layers = (layout.Layer * len(layers))(*(layer.struct() for layer in layers))
        self._model = layout.Model(
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
    def weight_bytes(self) -> int:
        """Memory of embeddings and matrices."""
        matrices = [m for layer in self._packed for m in (layer.qkv, layer.output, layer.gate_up, layer.down)]
        return self.embeddings.nbytes + self.head.num_bytes + sum(matrix.num_bytes for matrix in matrices)

    def forward(self, tokens: Tensor, cache: KVCache, placement: Placement | None = None) -> Tensor:
        """See `Transformer.forward`; hidden states are float32."""
        rows = _Rows([tokens.shape[1]] * len(tokens), cache, placement)
        return self._call(rows, cache, tokens=tokens.reshape(-1).contiguous()).view(*tokens.shape, -1)

    def forward_rows(
        self, rows: Sequence[Sequence[int]], cache: KVCache, placement: Placement | None = None
    ) -> Tensor:
        """See `Transformer.forward_rows`; nothing is padded."""
        tokens = torch.tensor([token for row in rows for token in row])
        return self._call(_Rows([len(row) for row in rows], cache, placement), cache, tokens=tokens)

    def run(self, x: Tensor, cache: KVCache, placement: Placement | None = None) -> Tensor:
        """See `Transformer.run`; hidden states are float32."""
        inputs = x.float().reshape(-1, x.shape[-1]).contiguous()
        return self._call(_Rows([x.shape[1]] * len(x), cache, placement), cache, inputs=inputs).view(x.shape)

    def _call(
        self, rows: _Rows, cache: KVCache, *, tokens: Tensor | None = None, inputs: Tensor | None = None
    ) -> Tensor:
        self._model.threads = torch.get_num_threads()
        self._model.rotations = self._rotation_table(cache.keys[0].shape[2]).data_ptr()
        out = torch.empty((rows.count, self.architecture.hidden_size), dtype=torch.float32)
        first = cache.keys[0]
        self._library.harness_forward(
            ctypes.byref(self._model),
            ctypes.byref(rows.struct),
            _pointers(cache),
            layout.CacheShape(first.stride(0), first.stride(1)),
            None if tokens is None else tokens.data_ptr(),
            None if inputs is None else inputs.data_ptr(),
            out.data_ptr(),
        )
        return out

    def _rotation_table(self, positions: int) -> Tensor:
        if self._rotations.shape[0] < positions:
            self._rotations = rope_table(self.architecture, positions)
        return self._rotations


class _Rows:
    """Where each new token goes and what it sees; one sequence's tokens after the other's.

    Args:
        counts: [batch] new tokens of each sequence.
        cache: of the same batch.
        placement: of draft trees; None, or one without branches, lets tokens follow each other.
    """

    def __init__(self, counts: Sequence[int], cache: KVCache, placement: Placement | None) -> None:
        lengths = np.array(cache.lengths, dtype=np.int32)
        self._committed = np.repeat(lengths, counts)
        places = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
        self._sequence = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self._tree = None
        if placement is None or placement.branches is None or placement.angles is None:
            # padding past the capacity goes to the row behind it
            self._slot = np.minimum(self._committed + places, cache.capacity)
            self._position = self._slot
        else:
            self._slot = self._committed + placement.first + places
            self._position = placement.angles.numpy()[self._sequence, places].astype(np.int32)
            self._tree = placement.branches.numpy()[self._sequence, places].astype(np.uint64)
        self.count = len(places)
        self.struct = layout.Rows(
            count=self.count,
            sequence=self._sequence.ctypes.data,
            position=self._position.ctypes.data,
            slot=self._slot.ctypes.data,
            committed=self._committed.ctypes.data,
            tree=None if self._tree is None else self._tree.ctypes.data,
        )


def _pointers(cache: KVCache) -> Any:
    pairs = zip(cache.keys, cache.values, strict=True)
    layers = [layout.LayerCache(keys.data_ptr(), values.data_ptr()) for keys, values in pairs]
    return (layout.LayerCache * len(layers))(*layers)


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
