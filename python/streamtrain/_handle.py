"""A handle of the C library, and what keeps it right: one call at a time, signals, forks."""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from . import _capi
from ._arrays import Operand
from ._errors import BudgetError, ClosedError, ForkedError, RequestError
from ._sizes import parse_size

log = logging.getLogger("streamtrain")

_IO = {"auto": 0, "uring": 1, "pread": 2}
_PASS = {"auto": 0, "fused": 1, "two": 2}
_DENSE = {"float32": _capi.F32, "float64": _capi.F64}
_AUTO_BATCH = (16, 8, 4, 2, 1)
LOSSES = ("mse", "l1", "huber", "poisson")

_ids = itertools.count(1)
# By number, since that is all that a custom operator of PyTorch can carry.
live: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Options:
    """The options of Matrix.open, as they were given: what a pickle holds beside the path."""

    device: str = "auto"
    vram_budget: int | str | None = None
    ram_budget: int | str | None = None
    max_batch: int | None = None
    dtype: str | None = None
    threads: int | None = None
    slots: int | None = None
    io: str = "auto"
    pass_: str = "auto"
    resident: bool = True


def choose(what: str, value: str, table: dict[str, int]) -> int:
    if value not in table:
        raise RequestError(f"{what}: {value!r} is none of {', '.join(table)}")
    return table[value]


def _count(what: str, value: int | None) -> int:
    if value is None:
        return 0
    if not 1 <= value < 1 << 31:
        raise RequestError(f"{what}: {value} is out of range")
    return int(value)


def _tries(o: Options) -> list[tuple[int, int]]:
    """(max_batch, dense type) to try, the widest first: what was not asked for gives way to a
    small budget."""
    batches = (_count("max_batch", o.max_batch),) if o.max_batch is not None else _AUTO_BATCH
    dense = (choose("dtype", o.dtype, _DENSE),) if o.dtype else (_capi.F64, _capi.F32)
    pairs = [(b, d) for b in batches for d in dense]
    return sorted(pairs, key=lambda p: (p[0] * (8 if p[1] == _capi.F64 else 4), p[1]), reverse=True)


@_capi.WARN
def _warn(_ctx: int | None, line: bytes) -> None:
    log.warning("%s", line.decode("utf-8", "replace"))


def _poller(raised: list[BaseException]) -> Generator[bool, Any, None]:
    """Answers "stop?" during a call. Being resumed, in the thread that makes the call, is enough
    for Python to run the handlers of signals that came meanwhile. They must find the ``try`` around
    them already there, or what they raise would be lost on its way through C; in a function they
    would run at its very entry, in a generator they run at the ``yield``."""
    stop = False
    while True:
        try:
            yield stop
            ctypes.pythonapi.PyErr_CheckSignals()
            stop = False
        except GeneratorExit:
            return
        except BaseException as error:
            raised.append(error)
            stop = True


class Handle:
    """One ooc_matrix. All methods may be called from any thread; calls wait for each other."""

    def __init__(self, path: str, options: Options) -> None:
        self.id = next(_ids)
        self.path = path
        self.options = options
        self._pointer: int | None = None
        self._gone: type[ClosedError] | type[ForkedError] | None = None
        self._shape: _capi.MatrixShape | None = None
        self._sides: tuple[tuple[int, int], tuple[int, int]] | None = None
        self._f64 = True
        self._lock = threading.Lock()
        self._owner = 0
        self._stop_lock = threading.Lock()  # between interrupt() and close()
        self._raised: list[BaseException] = []
        poller = _poller(self._raised)
        next(poller)
        self._interrupted = _capi.INTERRUPT(poller.send)
        # One call at a time, so one set of structs does.
        self._err = _capi.Err()
        self._structs = [_capi.Array() for _ in range(5)]
        self._refs = [ctypes.byref(s) for s in self._structs]
        self._err_ref = ctypes.byref(self._err)
        live[self.id] = self

    # ---- open and close ----

    def open(self) -> None:
        """Open now rather than at the first use."""
        self._enter()
        try:
            self._opened()
        finally:
            self._leave()

    def close(self) -> None:
        if self._owner == threading.get_ident():
            raise RuntimeError(f"{self.path}: closed by a signal handler during its own call")
        with self._lock, self._stop_lock:
            pointer, self._pointer = self._pointer, None
            self._gone = self._gone or ClosedError
            if pointer:
                _capi.lib.ooc_matrix_close(pointer)

    def __del__(self, close: Callable[[int], None] = _capi.lib.ooc_matrix_close) -> None:
        pointer = getattr(self, "_pointer", None)
        if pointer:
            self._pointer = None
            close(pointer)

    def forked(self) -> None:
        """In a forked child: the threads and rings of the handle stayed with the parent."""
        if self._pointer:
            self._pointer = None
            self._gone = ForkedError
        self._lock = threading.Lock()
        self._stop_lock = threading.Lock()
        self._owner = 0

    @property
    def closed(self) -> bool:
        return self._gone is not None

    def _opened(self) -> int:
        if self._pointer:
            return self._pointer
        if self._gone is ForkedError:
            raise ForkedError(
                f"{self.path}: this process ({os.getpid()}) was forked from the one that opened "
                "the matrix, and cannot use it; keep the matrix out of DataLoader workers, or "
                "start them with multiprocessing_context='spawn'"
            )
        if self._gone:
            raise ClosedError(f"{self.path}: the matrix has been closed")
        self._pointer = self._open_c()
        shape = _capi.MatrixShape(size=ctypes.sizeof(_capi.MatrixShape))
        _capi.lib.ooc_matrix_get_shape(self._pointer, ctypes.byref(shape))
        self._shape = shape
        return self._pointer

    def _open_c(self) -> int:
        o = self.options
        opts = _capi.MatrixOpts(
            size=ctypes.sizeof(_capi.MatrixOpts),
            device=o.device.encode(),
            vram_budget=parse_size(o.vram_budget, "vram_budget"),
            ram_budget=parse_size(o.ram_budget, "ram_budget"),
            n_slots=_count("slots", o.slots),
            n_threads=_count("threads", o.threads),
            io=choose("io", o.io, _IO),
            pass_=choose("pass_", o.pass_, _PASS),
            no_resident=not o.resident,
            warn=_warn,
            interrupted=self._interrupted,
        )
        out = ctypes.c_void_p()
        error: BaseException | None = None
        for max_batch, dense in _tries(o):
            opts.max_batch, opts.dense = max_batch, dense
            status = _capi.lib.ooc_matrix_open(
                ctypes.byref(out), os.fsencode(self.path), ctypes.byref(opts), self._err_ref
            )
            if not status and out.value:
                self._f64 = dense == _capi.F64
                return out.value
            error = _capi.error(status, self._err)
            if not isinstance(error, BudgetError):
                break
        assert error is not None
        raise error

    # ---- one call at a time ----

    def _enter(self) -> None:
        me = threading.get_ident()
        if not self._lock.acquire(False):
            if self._owner == me:
                raise RuntimeError(f"{self.path}: used by a signal handler during its own call")
            self._lock.acquire()
        self._owner = me

    def _leave(self) -> None:
        self._owner = 0
        self._lock.release()

    def _fill(self, operands: tuple[Operand | None, ...]) -> list[Any]:
        """The operands in the structs of this handle; None stays NULL."""
        arguments: list[Any] = []
        for struct, ref, operand in zip(self._structs, self._refs, operands):
            if operand is None:
                arguments.append(None)
                continue
            if operand.dtype == _capi.F64 and not self._f64:
                raise RequestError(
                    f"{self.path}: the operand is float64, but the matrix was opened for float32"
                    + ("" if self.options.dtype else " (the budget has no room for more)")
                    + "; use dtype='float64' or pass float32"
                )
            struct.data, struct.ld, struct.dtype, struct.device, struct.stream = operand
            arguments.append(ref)
        return arguments

    def _check(self, status: int) -> None:
        if self._raised:
            raised = self._raised.pop()
            self._raised.clear()
            raise raised
        if status:
            raise _capi.error(status, self._err)

    # ---- the calls ----

    def product(self, adjoint: bool, B: int, x: Operand, y: Operand) -> None:
        """Y = A*X, or Y = transpose(A)*X."""
        lib = _capi.lib
        self._enter()
        try:
            pointer = self._opened()
            x_ref, y_ref = self._fill((x, y))
            call = lib.ooc_matrix_adjoint if adjoint else lib.ooc_matrix_forward
            self._check(call(pointer, B, x_ref, y_ref, self._err_ref))
        finally:
            self._leave()

    def step(
        self,
        kind: str,
        B: int,
        x: Operand,
        target: Operand,
        weights: Operand | None,
        per_column: bool,
        y: Operand | None,
        g: Operand | None,
    ) -> float:
        """The loss, with A*X into ``y`` and the gradient into ``g`` where they are given."""
        loss = ctypes.c_double()
        self._enter()
        try:
            pointer = self._opened()
            refs = self._fill((x, target, y, g, weights))
            opts = _capi.LossOpts(
                size=ctypes.sizeof(_capi.LossOpts),
                kind=LOSSES.index(kind),
                W=ctypes.pointer(self._structs[4]) if weights else None,
                w_per_column=per_column,
            )
            self._check(
                _capi.lib.ooc_matrix_step(
                    pointer, B, refs[0], refs[1], ctypes.byref(opts), refs[2], refs[3],
                    ctypes.byref(loss), self._err_ref,
                )
            )
        finally:
            self._leave()
        return loss.value

    def interrupt(self) -> None:
        """Stop the call that another thread is in; where there is none, nothing happens."""
        with self._stop_lock:
            if self._pointer and self._owner:
                _capi.lib.ooc_matrix_interrupt(self._pointer)

    def shape(self) -> _capi.MatrixShape:
        """Stays readable after the matrix is closed."""
        if self._shape is None:
            self.open()
        assert self._shape is not None
        return self._shape

    def sides(self, adjoint: bool) -> tuple[int, int]:
        """Rows of a result and of an operand."""
        if self._sides is None:
            shape = self.shape()
            m, n = int(shape.n_rows), int(shape.n_cols)
            self._sides = ((m, n), (n, m))
        return self._sides[adjoint]

    def stats(self) -> _capi.MatrixStats:
        s = _capi.MatrixStats(size=ctypes.sizeof(_capi.MatrixStats))
        self._enter()
        try:
            _capi.lib.ooc_matrix_get_stats(self._opened(), ctypes.byref(s))
            s.isa, s.device = bytes(s.isa or b""), bytes(s.device or b"")
        finally:
            self._leave()
        return s

    def reset_stats(self) -> None:
        self._enter()
        try:
            _capi.lib.ooc_matrix_reset_stats(self._opened())
        finally:
            self._leave()


def _after_fork() -> None:
    for handle in list(live.values()):
        handle.forked()


os.register_at_fork(after_in_child=_after_fork)
