"""Matrix products with quantised weights, through PyTorch's own kernels.

Activations are never rounded to integers: a row's result doesn't hang on the rows beside it, so verifying
several tokens at once is the same function as decoding one, up to rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional

from harness.engine.linear import Linear, make_linear
from harness.engine.quantize import (
    FP8_LIMIT,
    INT4_GROUP,
    Int4Weight,
    Int8Weight,
    quantize_int4,
    quantize_int8,
)
from harness.errors import UnsupportedError

CPU_WIDE_ROWS = {"int8": 5, "int4": 9}
"""Rows from which a CPU is faster with the dequantised copy; `scripts/kernel_times.py` measures it."""
FP8_CAPABILITY = (8, 9)
"""Of the first NVIDIA GPUs that multiply 8-bit floats."""


def make_quantized_linear(weight: Tensor, bias: Tensor | None, scheme: str) -> Linear:
    """Quantise a matrix and lay it out for the device it is on.

    On a CPU a second copy, dequantised into the engine's dtype, serves many rows at once: the integer
    kernels are made for few.

    Args:
        weight: [out_features, in_features].
        bias: [out_features] or None.
        scheme: `int8`, `int4` or `fp8`.

    Raises:
        UnsupportedError: the device can't run the scheme, or the matrix has no such form.
    """
    check_scheme(scheme, weight.device)
    if scheme == "int4" and weight.device.type == "cuda" and weight.dtype != torch.bfloat16:
        raise UnsupportedError("int4 weights on a GPU need backend.dtype=bfloat16. Set it, or use int8.")
    if scheme == "fp8":
        return _Fp8Linear(weight, bias)
    narrow, dequantized = _int8(weight, bias) if scheme == "int8" else _int4(weight, bias)
    if weight.device.type != "cpu":
        return narrow
    return _ByRows(narrow, make_linear(dequantized.to(weight.dtype), bias), CPU_WIDE_ROWS[scheme])


def _int8(weight: Tensor, bias: Tensor | None) -> tuple[Linear, Tensor]:
    quantized = quantize_int8(weight, dtype=weight.dtype)
    return _Int8Linear(quantized, bias, weight.dtype), quantized.dequantized()


def _int4(weight: Tensor, bias: Tensor | None) -> tuple[Linear, Tensor]:
    quantized = quantize_int4(weight, dtype=weight.dtype)
    return _Int4Linear(quantized, bias, weight.dtype), quantized.dequantized()


def check_scheme(scheme: str, device: torch.device) -> None:
    """Refuse what a device can't run.

    Raises:
        UnsupportedError: with what it needs.
    """
    if scheme != "fp8":
        return
    if device.type != "cuda":
        raise UnsupportedError("fp8 weights need an NVIDIA GPU. On a CPU use int8 or int4.")
    if torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        raise UnsupportedError(
            f"fp8 weights need compute capability {'.'.join(map(str, FP8_CAPABILITY))} or higher, and "
            f"{torch.cuda.get_device_name(device)} has less. Use int8 or int4."
        )


class _ByRows:
    """The same product through one of two kernels, by the number of rows."""

    def __init__(self, narrow: Linear, wide: Linear, wide_rows: int) -> None:
        self._narrow, self._wide, self._wide_rows = narrow, wide, wide_rows
        self.num_bytes = narrow.num_bytes + wide.num_bytes

    def __call__(self, x: Tensor) -> Tensor:
        return self._kernel(x)(x)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        return self._kernel(x).add_to(residual, x)

    def _kernel(self, x: Tensor) -> Linear:
        return self._narrow if x.numel() < self._wide_rows * x.shape[-1] else self._wide


class _Quantized(ABC):
    """What the schemes share: any leading dimensions, the bias, and the residual."""

    def __init__(self, bias: Tensor | None) -> None:
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        product = self._product(x.reshape(-1, x.shape[-1]))
        if self._bias is not None:
            product = product + self._bias
        return product.reshape(*x.shape[:-1], -1)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        return residual + self(x)

    @abstractmethod
    def _product(self, rows: Tensor) -> Tensor:
        """[rows, in_features] to [rows, out_features]."""


class _Int8Linear(_Quantized):
    def __init__(self, weight: Int8Weight, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__(bias)
        self._codes, self._scales = weight.codes, weight.scales.to(dtype)
        self.num_bytes = self._codes.nbytes + self._scales.nbytes

    def _product(self, rows: Tensor) -> Tensor:
        if rows.device.type == "cuda":
            return functional.linear(rows, self._codes.to(rows.dtype)) * self._scales
        return torch._weight_int8pack_mm(rows, self._codes, self._scales)


class _Int4Linear(_Quantized):
    def __init__(self, weight: Int4Weight, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__(bias)
        self._out_features, in_features = weight.codes.shape
        # the kernels take output features by the sixteen
        spare = -self._out_features % 16
        codes = functional.pad(weight.codes, (0, 0, 0, spare))
        scales = functional.pad(torch.stack((weight.scales, weight.offsets), 2), (0, 0, 0, 0, 0, spare))
        self._scales = scales.to(dtype).transpose(0, 1).contiguous()
        self._on_cuda = codes.device.type == "cuda"
        if self._on_cuda:
            tiles = next(count for count in (8, 4, 2) if in_features % (16 * count) == 0)
            # two codes a byte, the first in the upper half
            self._packed = torch._convert_weight_to_int4pack(codes[:, ::2] << 4 | codes[:, 1::2], tiles)
        else:
            self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
        self.num_bytes = self._packed.nbytes + self._scales.nbytes

    def _product(self, rows: Tensor) -> Tensor:
        multiply = torch._weight_int4pack_mm if self._on_cuda else torch.ops.aten._weight_int4pack_mm_for_cpu
        product: Tensor = multiply(rows, self._packed, INT4_GROUP, self._scales)
        return product[:, : self._out_features]


class _Fp8Linear(_Quantized):
    """8-bit floats on both sides, each row of either with a scale of its own."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(bias)
        self._weight, scales = _to_fp8(weight)
        self._scales = scales.T.contiguous()
        self._dtype = weight.dtype
        self.num_bytes = self._weight.nbytes + self._scales.nbytes

    def _product(self, rows: Tensor) -> Tensor:
        codes, scales = _to_fp8(rows)
        return torch._scaled_mm(
            codes, self._weight.T, scale_a=scales, scale_b=self._scales, out_dtype=self._dtype
        )


def _to_fp8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as float8, and the float32 [rows, 1] scale each was divided by."""
    scales = (rows.abs().amax(1, keepdim=True).float() / FP8_LIMIT).clamp_(min=1e-12)
    return (rows / scales).to(torch.float8_e4m3fn), scales
