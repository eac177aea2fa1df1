"""Weights as the kernels read them: bfloat16, or quantised to 8 or 4 bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from harness.engine.compiled.layout import Matrix
from harness.engine.quantize import INT4_GROUP, quantize_int4, quantize_int8

KINDS = {"none": 0, "int8": 1, "int4": 2}
LANES = 16
GROUP = INT4_GROUP


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix with the tensors its pointers point into.

    Outputs come in blocks of 16, padded with zeros: the kernels keep one output per vector lane.

    Attributes:
        scheme: `none` (bfloat16), `int8` or `int4`.
        weights: bfloat16 [blocks, in / 2, 16, 2]; uint8 [blocks, in / 4, 16, 4], offset 128; or uint8
            [blocks, in / 8, 16, 4], low nibbles for the first four inputs and high ones for the next.
        scales: None; float32 [blocks * 16]; or float16 [blocks, in / 32, 2, 16], scales and then offsets.
        bias: float32 [blocks * 16] or None.
        struct: what the kernels are given.
    """

    scheme: str
    weights: Tensor
    scales: Tensor | None
    bias: Tensor | None
    struct: Matrix

    @property
    def num_bytes(self) -> int:
        """Memory of weights, scales and bias."""
        return sum(t.nbytes for t in (self.weights, self.scales, self.bias) if t is not None)

    def dequantise(self) -> Tensor:
        """The matrix that the kernels multiply by, float32 [out, in]."""
        return self._padded()[: self.struct.out]

    def _padded(self) -> Tensor:
        blocks = len(self.weights)
        if self.scales is None:
            return _rows(self.weights.float())
        if self.scheme == "int8":
            return (_rows(self.weights.float()) - 128) * self.scales[:, None]
        values = _rows(torch.stack((self.weights & 15, self.weights >> 4), 2).flatten(1, 2).float())
        scale, offset = self.scales.float().transpose(1, 3).reshape(blocks * LANES, 2, -1, 1).unbind(1)
        return (values.view(len(values), -1, GROUP) * scale + offset).flatten(1)


def pack(weight: Tensor, bias: Tensor | None = None, *, scheme: str = "none") -> PackedMatrix:
    """Lay out, and quantise, one weight matrix.

    int8 is symmetric with one scale per output; int4 has a scale and an offset per 32 inputs of an output.
    The kernels quantise activations to int8 with a scale per 32 of them.

    Args:
        weight: [out, in] on the CPU; `in` a multiple of 32.
        bias: [out] or None.
        scheme: one of `KINDS`.
    """
    padding = -len(weight) % LANES
    padded = functional.pad(weight, (0, 0, 0, padding))
    scales: Tensor | None = None
    if scheme == "none":
        weights = _blocks(padded.to(torch.bfloat16), 2)
    elif scheme == "int8":
        quantised = quantize_int8(padded)
        weights, scales = _blocks((quantised.codes.int() + 128).to(torch.uint8), 4), quantised.scales
    else:
        weights, scales = _four_bits(padded.float())
    bias = None if bias is None else functional.pad(bias.float(), (0, padding))
    struct = Matrix(
        kind=KINDS[scheme],
        out=weight.shape[0],
        in_=weight.shape[1],
        weights=weights.data_ptr(),
        scales=None if scales is None else scales.data_ptr(),
        bias=None if bias is None else bias.data_ptr(),
    )
    return PackedMatrix(scheme, weights, scales, bias, struct)


def _blocks(rows: Tensor, together: int) -> Tensor:
    """[out, in] to [out / 16, in / together, 16, together]."""
    return rows.view(-1, LANES, rows.shape[1] // together, together).transpose(1, 2).contiguous()


def _rows(blocks: Tensor) -> Tensor:
    """The inverse of `_blocks`."""
    return blocks.transpose(1, 2).reshape(len(blocks) * LANES, -1)


def _four_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    quantised = quantize_int4(weight, dtype=torch.float16)
    steps = _blocks(quantised.codes, 4)
    packed = (steps[:, 0::2] | (steps[:, 1::2] << 4)).contiguous()
    # the kernels count from code 0
    factors = torch.stack((quantised.scales, quantised.offsets - 8 * quantised.scales), -1).half()
    return packed, factors.view(-1, LANES, *factors.shape[1:]).permute(0, 2, 3, 1).contiguous()
