"""NumPy arrays and DLPack objects as the C library wants them.

The library takes rows whose entries are contiguous, any distance (``ld``) apart. What is laid out
otherwise (column-major with more than one column, negative or broadcast strides, another byte
order) is copied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _capi
from ._errors import RequestError

# Kinds of DLPack devices.
_DL_HOST = (1, 3)  # ordinary and page-locked host memory
_DL_CUDA = (2, 13)  # device and managed memory

_CODES = {np.dtype(np.float32): _capi.F32, np.dtype(np.float64): _capi.F64}


class Operand(NamedTuple):
    """The fields of an ooc_array. Whoever makes it keeps the memory alive."""

    data: int
    ld: int
    dtype: int
    device: int
    stream: int | None


def check_shape(what: str, shape: Sequence[int], rows: int) -> int:
    """The number of columns of an operand with ``rows`` rows: 1 for a vector."""
    if len(shape) not in (1, 2):
        raise RequestError(f"{what} has {len(shape)} dimensions; it must have 1 or 2")
    if shape[0] != rows:
        raise RequestError(
            f"{what} has {shape[0]} rows, expected {rows}; its shape is {tuple(shape)}"
        )
    return shape[1] if len(shape) == 2 else 1


def dense_dtype(what: str, dtype: np.dtype[Any], values: np.dtype[Any]) -> np.dtype[Any]:
    """The type that a product with an array of ``dtype`` is computed in: float32 or float64."""
    if dtype.newbyteorder("=") in _CODES:
        return dtype.newbyteorder("=")
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return np.result_type(values, dtype)
    raise TypeError(f"{what} has type {dtype}; float32 and float64 (and what fits them) are served")


def has_rows(strides: tuple[int, int], shape: tuple[int, int]) -> int:
    """The distance of rows in elements, or 0 where the array must be copied. Strides in elements."""
    rows, cols = shape
    ld = strides[0]
    if rows <= 1:
        ld = max(ld, cols, 1)
    if cols > 1 and strides[1] != 1:
        return 0
    return ld if ld >= max(cols, 1) else 0


def numpy_operand(x: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> tuple[Any, Operand]:
    """``x`` (1-D or 2-D), or a copy of it, and its description. Keep the first while using the
    second."""
    if x.dtype != dtype or not x.flags.aligned:
        x = x.astype(dtype, order="C")
    item = dtype.itemsize
    ld = 0
    if x.strides[0] % item == 0:
        cols = x.shape[1] if x.ndim == 2 else 1
        inner = x.strides[1] // item if x.ndim == 2 and x.strides[1] % item == 0 else 0
        ld = has_rows((x.strides[0] // item, inner), (x.shape[0], cols))
    if not ld:
        x = np.ascontiguousarray(x)
        ld = max(x.shape[1] if x.ndim == 2 else 1, 1)
    return x, Operand(x.__array_interface__["data"][0], ld, _CODES[dtype], _capi.HOST, None)


def as_numpy(what: str, x: Any) -> np.ndarray[Any, Any]:
    """An array-like as an array, without a copy where that is possible."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array; fill it first, for instance with x.filled(0)")
    if isinstance(x, np.ndarray):
        return np.asarray(x)
    if hasattr(x, "toarray") and hasattr(x, "nnz"):
        raise TypeError(f"{what} is sparse; only dense operands are served: use {what}.toarray()")
    array = np.asarray(x)
    if array.dtype == object:
        raise TypeError(f"{what} is of type {type(x).__name__}, which is no array")
    return array


def dlpack_device(x: Any) -> str | None:
    """"host" or "cuda" for an object that speaks DLPack and is no NumPy array, else None."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
        return None
    kind = int(x.__dlpack_device__()[0])
    if kind in _DL_HOST:
        return "host"
    if kind in _DL_CUDA:
        return "cuda"
    raise TypeError(f"an array on a device of DLPack kind {kind}; host and CUDA are served")


def back_to_library(result: Any, like: Any) -> Any:
    """``result`` as an array of the library that ``like`` comes from, where that takes DLPack."""
    namespace = getattr(like, "__array_namespace__", None)
    from_dlpack = getattr(namespace(), "from_dlpack", None) if namespace else None
    return from_dlpack(result) if from_dlpack else result
