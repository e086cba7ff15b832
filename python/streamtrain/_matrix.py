"""Matrix: the sparse matrix in a tile store, as an operator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from . import _arrays, _capi
from ._errors import RequestError
from ._handle import LOSSES, Handle, Options
from ._stats import Memory, Stats, memory_of, stats_of

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Dense = TypeVar("Dense")  # a tensor for a tensor, an array for an array

_VALUES = {0: "f32", 1: "f64", 2: "f16", 3: "bf16", 4: "constant"}
_torch: ModuleType | None = None  # ._torch, once a tensor has been seen or PyTorch is there


def load_torch() -> ModuleType:
    """Register the operators with PyTorch. Done once, and only where PyTorch is used."""
    global _torch
    from . import _torch as module

    _torch = module
    return module


def _is_tensor(x: Any) -> bool:
    """Whether ``x`` is a PyTorch tensor, without importing PyTorch for it."""
    return any(c.__module__ == "torch" and c.__name__ == "Tensor" for c in type(x).__mro__)


def _product(A: Matrix, X: Any, adjoint: bool) -> Any:
    """A @ X, or A.T @ X, for anything but tensors."""
    if _is_tensor(X):
        return load_torch().product(A, X, adjoint)
    place = _arrays.dlpack_device(X)
    if place == "cuda":
        import torch

        result = load_torch().product(A, torch.from_dlpack(X), adjoint)
        return _arrays.back_to_library(result, X)
    x = np.from_dlpack(X) if place == "host" else _arrays.as_numpy("X", X)
    result = _numpy_product(A, x, adjoint)
    return _arrays.back_to_library(result, X) if place == "host" else result


def _numpy_product(A: Matrix, x: np.ndarray[Any, Any], adjoint: bool) -> np.ndarray[Any, Any]:
    m, n = A.shape if not adjoint else A.shape[::-1]
    B = _arrays.check_shape("X", x.shape, n)
    dtype = _arrays.dense_dtype("X", x.dtype, A.dtype)
    y = np.empty((m, B) if x.ndim == 2 else (m,), dtype)
    if B:
        x, x_operand = _arrays.numpy_operand(x, dtype)
        y, y_operand = _arrays.numpy_operand(y, dtype)
        A._handle.product(adjoint, B, x_operand, y_operand)
    return y


def from_left(transposed: Any, X: Any) -> Any:
    """X A, by the transpose of A."""
    if len(X.shape) == 2:
        return transposed.__matmul__(X.T).T
    return transposed.__matmul__(X)


def _refuse_tensor(X: Any) -> None:
    """torch.compile cannot tell ``X @ A`` from ``A @ X`` (see torch_function); so that nobody
    writes what would change its meaning there, it is an error outside too."""
    if _is_tensor(X):
        raise TypeError("a tensor on the left of @: write (A.T @ X.T).T, or torch.mm(X, A)")


def check_loss(A: Matrix, kind: str, X: Any, target: Any, weights: Any) -> int:
    """The number of columns, once kind and shapes are known to be right."""
    m, n = A.shape
    if kind not in LOSSES:
        raise RequestError(f"kind: {kind!r} is none of {', '.join(LOSSES)}")
    B = _arrays.check_shape("X", tuple(X.shape), n)
    want = (m,) if len(X.shape) == 1 else (m, B)
    if tuple(target.shape) != want:
        raise RequestError(f"target has shape {tuple(target.shape)}, but A @ X has {want}")
    if weights is not None and tuple(weights.shape) not in ((m,), want):
        raise RequestError(f"weights has shape {tuple(weights.shape)}, expected {(m,)} or {want}")
    if B == 0:
        raise RequestError("X has no columns: there is nothing to take the loss of")
    return B


def _numpy_loss(
    A: Matrix, X: Any, target: Any, kind: str, weights: Any, want_grad: bool
) -> tuple[float, np.ndarray[Any, Any] | None]:
    x, t = _arrays.as_numpy("X", X), _arrays.as_numpy("target", target)
    w = None if weights is None else _arrays.as_numpy("weights", weights)
    B = check_loss(A, kind, x, t, w)
    dtype = _arrays.dense_dtype("X", x.dtype, A.dtype)
    x, x_operand = _arrays.numpy_operand(x, dtype)
    t, t_operand = _arrays.numpy_operand(t, dtype)
    w_operand = g_operand = g = None
    if w is not None:
        w, w_operand = _arrays.numpy_operand(np.ascontiguousarray(w), dtype)
    if want_grad:
        g, g_operand = _arrays.numpy_operand(np.empty(x.shape, dtype), dtype)
    per_column = w is not None and w.ndim == 2
    loss = A._handle.step(kind, B, x_operand, t_operand, w_operand, per_column, None, g_operand)
    return loss, g


class Matrix:
    """A sparse matrix of M rows and N columns that streams from a tile store.

    ``A @ X`` and ``A.T @ Y`` take PyTorch tensors (differentiable), NumPy arrays and whatever
    speaks DLPack, with one or two dimensions, and give the same kind of array back. Memory stays
    within the budgets given at opening. Use it as a context manager, or call :meth:`close`.

    Calls release the GIL and may come from any thread; those on one matrix wait for each other,
    those on several run side by side. Ctrl-C stops a running call.
    """

    __array_ufunc__ = None  # so that NumPy leaves ``X @ A`` to __rmatmul__
    ndim = 2

    def __init__(self, path: str | os.PathLike[str], options: Options) -> None:
        self._handle = Handle(os.path.abspath(os.fspath(path)), options)
        self._id = self._handle.id
        self._shape: tuple[int, int] | None = None
        self._wide: bool | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        device: str = "auto",
        vram_budget: int | str | None = None,
        ram_budget: int | str | None = None,
        max_batch: int | None = None,
        dtype: str | None = None,
        threads: int | None = None,
        slots: int | None = None,
        io: str = "auto",
        pass_: str = "auto",
        resident: bool = True,
    ) -> Matrix:
        """Open a tile store, plan the budgets and take the memory.

        Args:
            path: a store that :func:`streamtrain.convert` or tile-convert made.
            device: "auto" (the first GPU that works, else the CPU), "cpu", "cuda:0", ...
            vram_budget: most bytes on the device, as a number or like "8G" (K, M, G, T are
                binary). Default: 80 % of what is free on a GPU, 2 GiB on the CPU.
            ram_budget: most bytes for the RAM tier and the I/O slots. Default: 1 GiB.
            max_batch: columns that one sweep over the store serves; wider operands take several.
                Default: what the budget has room for, at most 16.
            dtype: widest dense type to come, "float32" or "float64". Default: "float64" where the
                budget has room for it.
            threads: compute threads. Default: all processors of this process.
            slots: tile slots in each stage, at least 2. Default: as many as pay.
            io: "auto", "uring" or "pread".
            pass_: how :meth:`loss` runs: "auto", "fused" (one sweep) or "two".
            resident: keep tiles between passes in what the budgets leave.

        Raises:
            StoreNotFoundError, StoreError: the file cannot be read.
            FormatError: it is no tile store, or it is damaged.
            BudgetError: the budgets are too small; the text says what each part needs.
            NoDeviceError, DriverTooOldError: the device cannot be used.
            RequestError: an option is wrong.
        """
        options = Options(device, vram_budget, ram_budget, max_batch, dtype, threads, slots, io,
                          pass_, resident)
        A = cls(path, options)
        A._handle.open()
        A.shape, A._f64  # noqa: B018 - so that no graph has to ask the C library
        if _torch is None and "torch" in sys.modules:
            load_torch()
        return A

    # ---- what it is ----

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)."""
        shape = self._shape
        if shape is None:
            c = self._handle.shape()
            shape = self._shape = (int(c.n_rows), int(c.n_cols))
        return shape

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self._handle.shape().n_entries)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64 where values are stored so, else float32: what they are computed in at least."""
        return np.dtype(np.float64 if self._f64 else np.float32)

    @property
    def _f64(self) -> bool:
        wide = self._wide
        if wide is None:
            wide = self._wide = self._handle.shape().values == _capi.F64
        return wide

    @property
    def values(self) -> str:
        """How values are stored: "f32", "f64", "f16", "bf16" or "constant"."""
        return _VALUES[self._handle.shape().values]

    @property
    def n_tiles(self) -> int:
        return int(self._handle.shape().n_tiles)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tiles on disk: what one sweep reads where nothing is resident."""
        return int(self._handle.shape().stored_bytes)

    @property
    def path(self) -> str:
        return self._handle.path

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def __repr__(self) -> str:
        state = "closed, " if self.closed else ""
        try:
            m, n = self.shape
            return f"<streamtrain.Matrix {m} x {n}, {self.nnz} entries, {state}{self.path}>"
        except Exception:
            return f"<streamtrain.Matrix, not open, {self.path}>"

    # ---- products ----

    def __matmul__(self, X: Dense) -> Dense:
        """Y = A X. X is (N,) or (N, B); Y is (M,) or (M, B), of the same kind and type.

        Copied first: operands whose rows are not contiguous. float16, bfloat16 and integers are
        computed in the type that they and :attr:`dtype` promote to.

        Raises:
            RequestError: the shape does not fit.
            TypeError: an operand that is no dense real array.
            ClosedError, ForkedError: the matrix cannot be used (any more, or here).
            StoreError, FormatError: the store cannot be read, or it is damaged.
        """
        if _torch is not None and isinstance(X, _torch.Tensor):
            return _torch.product(self, X, False)
        return _product(self, X, False)

    def matmul(self, X: Dense) -> Dense:
        """``A @ X``, for torch.compile in releases of PyTorch that cannot compile the operator."""
        return self.__matmul__(X)

    def __rmatmul__(self, X: Dense) -> Dense:
        """X A, for arrays (for tensors: ``torch.mm(X, A)``). X is (M,) or (B, M)."""
        _refuse_tensor(X)
        return from_left(self.T, X)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """``torch.mm``, ``torch.matmul``, ``torch.sparse.mm``; and ``@`` under torch.compile."""
        return load_torch().torch_function(func, args, kwargs)

    @property
    def T(self) -> Transpose:
        """The transpose: ``A.T @ R`` is G = transpose(A) R, from the same tiles."""
        return Transpose(self)

    H = T

    # ---- loss ----

    def loss(self, X: Dense, target: Dense, kind: str = "mse", weights: Dense | None = None) -> Any:
        """The loss of A X against a target, with its gradient computed in the same sweep.

        For tensors the result is a differentiable scalar whose backward reads nothing: G was
        computed on the way (where X needs a gradient). For arrays it is a float. The loss is a
        weighted mean over all entries: ``sum(w * l(y, t)) / sum(w)`` with

        - mse: (y - t)²
        - l1: \\|y - t\\|
        - huber: (y - t)²/2 where \\|y - t\\| <= 1, else \\|y - t\\| - 1/2
        - poisson: y - t log(y + 1e-8)

        Args:
            X: (N,) or (N, B).
            target: (M,) or (M, B).
            kind: "mse", "l1", "huber" or "poisson".
            weights: (M,) or as target, >= 0. An entry of weight 0 is left out, whatever target
                is there (NaN too).
        """
        if _torch is None and _is_tensor(X):
            load_torch()
        if _torch is not None and isinstance(X, _torch.Tensor):
            return _torch.loss(self, X, target, kind, weights)
        return _numpy_loss(self, X, target, kind, weights, False)[0]

    def loss_and_grad(
        self, X: Dense, target: Dense, kind: str = "mse", weights: Dense | None = None
    ) -> tuple[Any, Dense]:
        """The loss as in :meth:`loss`, and G = its gradient by X, without autograd."""
        if _is_tensor(X):
            return load_torch().loss_and_grad(self, X, target, kind, weights)
        loss, g = _numpy_loss(self, X, target, kind, weights, True)
        return loss, cast(Dense, g)

    def as_linear_operator(self, dtype: Any = None) -> LinearOperator:
        """This matrix for ``scipy.sparse.linalg`` (lsqr, lsmr, svds, ...) and PyLops.

        Args:
            dtype: what the operator says its type is; default :attr:`dtype`. Products are
                computed in the type of the vectors that come.
        """
        from ._linop import StreamedOperator

        return StreamedOperator(self, np.dtype(self.dtype if dtype is None else dtype))

    # ---- figures ----

    def stats(self) -> Stats:
        """Counters: passes, bytes read, time that computing waited for the disk, ..."""
        return stats_of(self._handle.stats())

    def reset_stats(self) -> None:
        self._handle.reset_stats()

    def memory(self) -> Memory:
        """Budgets and peaks in bytes."""
        return memory_of(self._handle.stats())

    # ---- life ----

    def interrupt(self) -> None:
        """Make the call that another thread is in stop with :class:`InterruptedCallError`."""
        self._handle.interrupt()

    def close(self) -> None:
        """Give back memory and file. Waits for a running call; closing twice is allowed."""
        self._handle.close()

    def __enter__(self) -> Matrix:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Matrix], tuple[str, Options]]:
        """Pickled by path and options; what is unpickled opens the store at its first use."""
        return Matrix, (self.path, self._handle.options)

    def __copy__(self) -> Matrix:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Matrix:
        return self  # nothing in it changes, and a second one would take the budgets twice


class Transpose:
    """The transpose of a :class:`Matrix`, which it keeps alive."""

    __array_ufunc__ = None
    ndim = 2

    def __init__(self, A: Matrix) -> None:
        self._A = A

    @property
    def T(self) -> Matrix:
        return self._A

    H = T

    @property
    def shape(self) -> tuple[int, int]:
        """(N, M)."""
        m, n = self._A.shape
        return n, m

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._A.dtype

    @property
    def nnz(self) -> int:
        return self._A.nnz

    def __repr__(self) -> str:
        return f"<transpose of {self._A!r}>"

    def __matmul__(self, Y: Dense) -> Dense:
        """G = transpose(A) Y. Y is (M,) or (M, B), G is (N,) or (N, B); as ``A @ X`` otherwise."""
        if _torch is not None and isinstance(Y, _torch.Tensor):
            return _torch.product(self._A, Y, True)
        return _product(self._A, Y, True)

    def matmul(self, Y: Dense) -> Dense:
        """``A.T @ Y``, as :meth:`Matrix.matmul`."""
        return self.__matmul__(Y)

    def __rmatmul__(self, Y: Dense) -> Dense:
        """Y transpose(A). Y is (N,) or (B, N)."""
        _refuse_tensor(Y)
        return from_left(self._A, Y)

    __torch_function__ = Matrix.__torch_function__
