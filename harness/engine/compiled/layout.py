"""The C structures that the kernels read, field for field as in the headers."""

from __future__ import annotations

import ctypes
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
    """Strides of a cache, in floats; see attention.hpp."""

    _fields_ = (("batch_stride", c_int64), ("head_stride", c_int64))


class Rows(ctypes.Structure):
    """What one forward computes; see attention.hpp."""

    _fields_ = (
        ("count", c_int32),
        ("unused", c_int32),
        ("sequence", c_void_p),
        ("position", c_void_p),
        ("slot", c_void_p),
        ("committed", c_void_p),
        ("tree", c_void_p),
    )


def declare(library: ctypes.CDLL) -> Any:
    """Tell ctypes the argument types of the two entry points."""
    library.harness_forward.argtypes = (
        POINTER(Model),
        POINTER(Rows),
        POINTER(LayerCache),
        CacheShape,
        c_void_p,
        c_void_p,
        c_void_p,
    )
    library.harness_forward.restype = None
    library.harness_project.argtypes = (POINTER(Matrix), c_void_p, c_int32, c_void_p, c_int32)
    library.harness_project.restype = None
    return library
