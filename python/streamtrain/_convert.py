"""Conversion of foreign matrices into tile stores, and what a store holds.

Both run the commands of the project, tile-convert and tile-info, as processes: a conversion's
memory is then its own, and what it is converted from cannot harm this process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _capi
from ._errors import ConversionError, RequestError, StoreNotFoundError
from ._sizes import parse_size

Progress = Callable[[float, str], None]

_PERCENT = re.compile(r"^([\w -]+?)  +(\d+) %  ")  # an error message has a colon before that


# ---- running a command ----


def _show_line(done: float, line: str) -> None:
    """Progress on a terminal, on one line that is overwritten."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _progress_of(line: str) -> float | None:
    """The fraction done that a progress line of a command says, or None for another line."""
    match = _PERCENT.match(line)
    return int(match[2]) / 100 if match else None


def _run(command: str, arguments: list[str], progress: Progress | None = None) -> Any:
    """The JSON that a command prints."""
    argv = [str(_capi.core_file(command)), "--json", *arguments]
    # A session of its own: Ctrl-C in a terminal goes to Python alone, which hands it on just once;
    # a second signal would kill the command before it has removed its temporary files.
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        stdin=subprocess.DEVNULL, start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    messages = []
    try:
        with process.stdout, process.stderr:
            for line in process.stderr:
                done = _progress_of(line)
                if done is None:
                    messages.append(line.rstrip("\n"))
                elif progress is not None:
                    progress(done, line.rstrip("\n"))
            output = process.stdout.read()
        code = process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    finally:
        if progress is _show_line:
            progress(1, "")
    if code == 0:
        return json.loads(output)
    text = "\n".join(messages).removeprefix(f"{command}: ") or f"{command} ended with {code}"
    if code in (130, -signal.SIGINT):
        raise KeyboardInterrupt(text)
    raise (RequestError if code == 2 else ConversionError)(text)


# ---- matrices in memory ----


def _dense_arrays(x: np.ndarray[Any, Any]) -> dict[str, Any]:
    if x.ndim != 2:
        raise RequestError(f"the source has {x.ndim} dimensions; a matrix has 2")
    row, col = np.nonzero(x)
    return {"format": b"coo", "shape": x.shape, "row": row, "col": col, "data": x[row, col]}


def _scipy_arrays(x: Any) -> dict[str, Any]:
    if len(x.shape) != 2:
        raise RequestError(f"the source has {len(x.shape)} dimensions; a matrix has 2")
    if x.format == "coo":
        return {"format": b"coo", "shape": x.shape, "row": x.row, "col": x.col, "data": x.data}
    if x.format not in ("csr", "csc"):
        x = x.tocsr()
    return {
        "format": x.format.encode(), "shape": x.shape, "indices": x.indices, "indptr": x.indptr,
        "data": x.data,
    }


def _torch_arrays(x: Any) -> dict[str, Any]:
    import torch

    def host(t: Any) -> Any:
        return t.detach().cpu().numpy()

    if x.dim() != 2:
        raise RequestError(f"the source has {x.dim()} dimensions; a matrix has 2")
    if x.dtype == torch.bfloat16:  # which NumPy lacks; float32 holds it exactly
        x = x.float()
    if x.layout == torch.strided:
        return _dense_arrays(host(x))
    if x.layout == torch.sparse_csr:
        names = ("csr", host(x.col_indices()), host(x.crow_indices()))
    elif x.layout == torch.sparse_csc:
        names = ("csc", host(x.row_indices()), host(x.ccol_indices()))
    else:
        if x.layout != torch.sparse_coo:
            x = x.to_sparse()
        if x.sparse_dim() != 2:
            raise RequestError("the source is a hybrid tensor: its values are no numbers")
        row, col = host(x._indices())  # as they are: duplicates are summed when converting
        return {
            "format": b"coo", "shape": tuple(x.shape), "row": row, "col": col,
            "data": host(x._values()),
        }
    kind, indices, indptr = names
    return {
        "format": kind.encode(), "shape": tuple(x.shape), "indices": indices, "indptr": indptr,
        "data": host(x.values()),
    }


def _arrays_of(source: Any) -> dict[str, Any]:
    """The arrays of SciPy's .npz format for a matrix in memory."""
    if type(source).__module__.split(".")[0] == "torch":
        arrays = _torch_arrays(source)
    elif hasattr(source, "tocsr") and hasattr(source, "format"):
        arrays = _scipy_arrays(source)
    elif isinstance(source, np.ndarray):
        arrays = _dense_arrays(source)
    else:
        raise TypeError(
            f"the source is of type {type(source).__name__}; expected a path, a PyTorch tensor, a "
            "SciPy sparse matrix or a NumPy array"
        )
    data = arrays["data"]
    if data.dtype.kind not in "biuf":
        raise RequestError(f"the source has values of type {data.dtype}; real numbers are served")
    if data.dtype.kind == "b":
        arrays["data"] = data.astype(np.uint8)
    return arrays


# ---- the two functions ----


def convert(
    source: Any,
    path: str | os.PathLike[str],
    *,
    values: str | None = None,
    transpose: bool = False,
    tile_size: int | str | None = None,
    panel_columns: int | None = None,
    codec: str | None = None,
    ram_budget: int | str | None = None,
    tmp: str | os.PathLike[str] | None = None,
    format: str | None = None,
    key: str | None = None,
    part: str | None = None,
    threads: int | None = None,
    allow_nonfinite: bool = False,
    drop_zeros: bool = False,
    force: bool = False,
    progress: bool | Progress = False,
) -> dict[str, Any]:
    """Write ``source`` as a tile store, or a store as another file.

    Args:
        source: path of a matrix in a format that tile-convert reads, or "radon:VIEWSxDETECTORS:
            IMAGE"; or a PyTorch tensor (COO, CSR, CSC, ... or dense, where zeros are dropped), a
            SciPy sparse matrix, a 2-D NumPy array. What is in memory is first written to ``tmp``.
            Values at the same place are summed.
        path: the store to write, usually ``*.tiles``. It appears complete or not at all. Where the
            source is a store, ``*.npz`` and ``*.mtx`` are written in those formats.
        values: type that values are stored in: "f32" (the default), "f64", "f16", "bf16".
        transpose: store the transpose.
        tile_size: bytes of a tile in kernel form, as a number or like "4M".
        panel_columns: columns of a panel, at most 65536.
        codec: "auto" (the default), "raw", "zstd" or "zstd:LEVEL".
        ram_budget: the most memory that the conversion takes; default 1 GiB.
        tmp: folder for temporary files; default: that of ``path``.
        format: name of the source's format, where content and name do not tell.
        key: name of the matrix inside the source, where it holds several.
        part: what becomes of complex values in a file: "real", "imag", "abs" or "stack".
        threads: default: all processors.
        allow_nonfinite: keep NaN and infinities, which are refused otherwise.
        drop_zeros: leave out entries whose value is zero.
        force: replace ``path`` if it exists.
        progress: True for a line on a terminal, or a function of (fraction done, text).

    Returns:
        What tile-convert says: rows, columns, entries, tiles, file_bytes, seconds, ...

    Raises:
        RequestError: an option or the source is wrong, or ``path`` exists.
        ConversionError: the conversion failed; nothing is left behind.
    """
    out = os.fspath(path)
    arguments: list[str] = []
    for name, value in (
        ("values", values), ("codec", codec), ("from", format), ("key", key), ("part", part),
        ("panel-columns", panel_columns), ("threads", threads),
        ("tile-size", parse_size(tile_size, "tile_size") or None),
        ("ram-budget", parse_size(ram_budget, "ram_budget") or None),
        ("tmp", None if tmp is None else os.fspath(tmp)),
    ):
        if value is not None:
            arguments.append(f"--{name}={value}")
    for name, flag in (
        ("transpose", transpose), ("allow-nonfinite", allow_nonfinite),
        ("drop-zeros", drop_zeros), ("force", force), ("progress", bool(progress)),
    ):
        if flag:
            arguments.append(f"--{name}")
    show = _show_line if progress is True else progress or None
    if isinstance(source, (str, os.PathLike)):
        source = os.fspath(source)
        plain = not source.startswith("radon:") and ":" not in source
        if plain and not os.path.exists(source):
            raise StoreNotFoundError(f"{source}: no such file")
        return _run("tile-convert", [*arguments, "--", source, out], show)
    arrays = _arrays_of(source)
    with tempfile.TemporaryDirectory(
        prefix=".streamtrain-", dir=tmp if tmp is not None else os.path.dirname(os.path.abspath(out))
    ) as folder:
        source_path = os.path.join(folder, "matrix.npz")
        np.savez(source_path, **arrays)
        return _run("tile-convert", [*arguments, "--", source_path, out], show)


def info(path: str | os.PathLike[str], *, verify: bool = False) -> dict[str, Any]:
    """What a tile store holds, as tile-info says it: shape, entries, tiles, codecs, sizes.

    Args:
        path: a tile store.
        verify: also read everything and check every byte.

    Raises:
        StoreNotFoundError: there is no such file.
        ConversionError: it is no tile store, or it is damaged.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise StoreNotFoundError(f"{path}: no such file")
    return _run("tile-info", [*(["--verify"] if verify else []), "--", path])
