"""The C library through ctypes: its structs (src/streamtrain.h, base/err.h) and its functions."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_int64, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p
from pathlib import Path

from . import _errors

HOST = -1
F32, F64 = 0, 1
INTERRUPTED = 11

WARN = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)
INTERRUPT = ctypes.CFUNCTYPE(c_bool, c_void_p)


class Err(ctypes.Structure):
    _fields_ = [
        ("code", c_int),
        ("sys", c_int),
        ("offset", c_uint64),
        ("tile", c_int64),
        ("text", c_char * 1000),
    ]


class Array(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("ld", c_uint64),
        ("dtype", c_int),
        ("device", c_int),
        ("stream", c_void_p),
    ]


class MatrixOpts(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_char_p),
        ("vram_budget", c_uint64),
        ("ram_budget", c_uint64),
        ("max_batch", c_uint32),
        ("dense", c_int),
        ("n_slots", c_uint32),
        ("n_threads", c_uint32),
        ("io", c_int),
        ("pass_", c_int),
        ("no_resident", c_bool),
        ("arrays_on_device", c_bool),
        ("warn", WARN),
        ("warn_ctx", c_void_p),
        ("progress", c_void_p),
        ("progress_ctx", c_void_p),
        ("interrupted", INTERRUPT),
        ("interrupted_ctx", c_void_p),
    ]


class MatrixShape(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("n_rows", c_uint64),
        ("n_cols", c_uint64),
        ("n_entries", c_uint64),
        ("n_tiles", c_uint64),
        ("stored_bytes", c_uint64),
        ("kernel_bytes", c_uint64),
        ("values", c_int),
    ]


class LossOpts(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("W", POINTER(Array)),
        ("w_per_column", c_bool),
    ]


class MatrixStats(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("passes", c_uint64),
        ("tiles_read", c_uint64),
        ("read_bytes", c_uint64),
        ("decoded_bytes", c_uint64),
        ("read_wait_ns", c_uint64),
        ("decode_ns", c_uint64),
        ("forward_ns", c_uint64),
        ("loss_ns", c_uint64),
        ("adjoint_ns", c_uint64),
        ("tiles_resident_device", c_uint64),
        ("tiles_resident_ram", c_uint64),
        ("device_budget", c_uint64),
        ("device_peak_bytes", c_uint64),
        ("host_budget", c_uint64),
        ("host_peak_bytes", c_uint64),
        ("n_slots", c_uint32),
        ("n_threads", c_uint32),
        ("io", c_int),
        ("isa", c_char_p),
        ("device", c_char_p),
    ]


_CORE = Path(__file__).resolve().parent / "_core"


def core_file(name: str) -> Path:
    """A file of the C build: of the package, or of the build folder in STREAM_TRAIN_BUILD (for
    working on the project itself)."""
    build = os.environ.get("STREAM_TRAIN_BUILD")
    if build:
        path = Path(build) / name if name.endswith(".so") else Path(build) / "bin" / name
    else:
        path = _CORE / name
    if not path.exists():
        raise ImportError(
            f"streamtrain: {path} is missing; install the package with 'pip install ./python', or "
            "set STREAM_TRAIN_BUILD to a build folder of the project"
        )
    return path


def _load() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(core_file("libstreamtrain.so")))
    array, err = POINTER(Array), POINTER(Err)
    signatures = {
        "ooc_matrix_open": (c_int, [POINTER(c_void_p), c_char_p, POINTER(MatrixOpts), err]),
        "ooc_matrix_close": (None, [c_void_p]),
        "ooc_matrix_get_shape": (None, [c_void_p, POINTER(MatrixShape)]),
        "ooc_matrix_forward": (c_int, [c_void_p, c_uint32, array, array, err]),
        "ooc_matrix_adjoint": (c_int, [c_void_p, c_uint32, array, array, err]),
        "ooc_matrix_step": (
            c_int,
            [c_void_p, c_uint32, array, array, POINTER(LossOpts), array, array,
             POINTER(c_double), err],
        ),
        "ooc_matrix_get_stats": (None, [c_void_p, POINTER(MatrixStats)]),
        "ooc_matrix_reset_stats": (None, [c_void_p]),
        "ooc_matrix_interrupt": (None, [c_void_p]),
        "ooc_version": (c_char_p, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    return lib


lib = _load()


def version() -> str:
    return lib.ooc_version().decode()


def error(code: int, err: Err) -> _errors.StreamTrainError:
    """The exception for what a call returned."""
    text = err.text.decode("utf-8", "replace") or f"the C library returned status {code}"
    offset = None if err.offset == 2**64 - 1 else err.offset
    return _errors.make(code, text, err.sys, offset, None if err.tile < 0 else err.tile)
