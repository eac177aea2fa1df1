"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row to a root mean square of 1, then by `weight`.

    Written out, as PyTorch's own takes a dozen small kernels on a CPU. The mean is taken in float32.

    Args:
        x: [..., size].
        weight: [size].
        eps: added to the mean square.

    Returns:
        Like `x`, in its dtype.

    Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", eq. 4.
    """
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    scale = (length * length).mul_(1 / x.shape[-1]).add_(eps).rsqrt_()
    return (x * scale).to(x.dtype) * weight
