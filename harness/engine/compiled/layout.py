"""The C structures that the kernels read, field for field as in the headers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from typing import Any


class Matrix(ctypes.Structure):
    """A weight matrix; see matrix.hpp."""

    _fields_ = (
        ("kind", c_int32),
        ("out", c_int32),
        ("in_", c_int32),
        ("unused", c_int32),
        ("weights", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
    )


class Layer(ctypes.Structure):
    """A decoder layer; see forward.cpp."""

    _fields_ = (
        ("input_norm", c_void_p),
        ("post_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("qkv", Matrix),
        ("output", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
    )


class Model(ctypes.Structure):
    """A model; see forward.cpp."""

    _fields_ = (
        ("hidden", c_int32),
        ("intermediate", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("num_layers", c_int32),
        ("eps", c_float),
        ("threads", c_int32),
        ("layers", POINTER(Layer)),
        ("norm", c_void_p),
        ("embeddings", c_void_p),
        ("rotations", c_void_p),
    )


class LayerCache(ctypes.Structure):
    """Keys and values of one layer; see attention.hpp."""

    _fields_ = (("keys", c_void_p), ("values", c_void_p))


class CacheShape(ctypes.Structure):
    """Strides of a cache, in numbers; see attention.hpp."""

    _fields_ = (("batch_stride", c_int64), ("head_stride", c_int64))


class Batch(ctypes.Structure):
    """What each sequence of a forward gets; see rows.hpp.

    Attributes:
        kept: what pointers point into.
    """

    kept: Any = None

    _fields_ = (
        ("size", c_int32),
        ("capacity", c_int32),
        ("first", c_int32),
        ("stride", c_int32),
        ("counts", POINTER(c_int32)),
        ("lengths", POINTER(c_int32)),
        ("positions", c_void_p),
        ("branches", c_void_p),
    )


class Results(ctypes.Structure):
    """Where a forward's results go; see forward.cpp."""

    _fields_ = (
        ("hidden", c_void_p),
        ("head", POINTER(Matrix)),
        ("logits", c_void_p),
        ("choices", POINTER(c_int64)),
    )


class Drafter(ctypes.Structure):
    """What drafts; see draft.hpp."""

    _fields_ = (
        ("model", POINTER(Model)),
        ("head", POINTER(Matrix)),
        ("fuse", POINTER(Matrix)),
        ("vocab", c_void_p),
    )


class Chains(ctypes.Structure):
    """One draft of a batch; see draft.hpp."""

    _fields_ = (
        ("tokens", POINTER(c_int64)),
        ("hidden", c_void_p),
        ("limits", POINTER(c_int32)),
        ("longest", c_int32),
        ("temperature", c_float),
        ("min_confidence", c_float),
        ("unused", c_int32),
        ("uniform", c_void_p),
        ("drafted", POINTER(c_int64)),
        ("lengths", POINTER(c_int32)),
        ("probs", c_void_p),
    )


def int32s(numbers: Sequence[int]) -> ctypes.Array[c_int32]:
    """Numbers as the kernels read them."""
    return (c_int32 * len(numbers))(*numbers)


def int64s(numbers: Sequence[int]) -> ctypes.Array[c_int64]:
    """Token ids as the kernels read them."""
    return (c_int64 * len(numbers))(*numbers)


def declare(library: ctypes.CDLL) -> Any:
    """Tell ctypes the argument types of the entry points."""
    library.harness_forward.argtypes = (
        POINTER(Model),
        POINTER(Batch),
        POINTER(LayerCache),
        CacheShape,
        c_void_p,
        c_void_p,
        POINTER(Results),
    )
    library.harness_project.argtypes = (POINTER(Matrix), c_void_p, c_int32, c_void_p, c_int32)
    library.harness_draft.argtypes = (
        POINTER(Drafter),
        POINTER(Batch),
        POINTER(LayerCache),
        CacheShape,
        POINTER(Chains),
    )
    for name in ("harness_forward", "harness_project", "harness_draft"):
        getattr(library, name).restype = None
    return library
