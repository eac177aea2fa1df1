"""Matrix products with weights laid out once for the device that runs them."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Linear(Protocol):
    """`x @ weight.T + bias`, and the same added to a residual.

    Attributes:
        num_bytes: memory of the weights, every copy counted.
    """

    num_bytes: int

    def __call__(self, x: Tensor) -> Tensor:
        """Project [..., in_features] to [..., out_features]."""

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual + self(x)`, in one kernel where there is one."""


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """Lay a weight matrix out for the device it is on.

    bfloat16 weights on a CPU with oneDNN are reordered into its blocked layout once; a plain
    `linear` would stream the same bytes about 1.4 times slower at one row.

    Args:
        weight: [out_features, in_features].
        bias: [out_features] or None.
    """
    if weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and packs_bfloat16():
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        return _PackedLinear(packed, bias, num_bytes=weight.nbytes)
    return _PlainLinear(weight.contiguous(), bias)


def packs_bfloat16() -> bool:
    """Whether oneDNN takes bfloat16 here: not on CPUs without AVX-512 or AVX-NE-CONVERT."""
    return torch._C._has_mkldnn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class _PlainLinear:
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.num_bytes = weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        return residual + self(x)


class _PackedLinear:
    def __init__(self, weight: Tensor, bias: Tensor | None, *, num_bytes: int) -> None:
        self.weight, self.bias = weight, bias
        self.num_bytes = num_bytes

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")
        return out
