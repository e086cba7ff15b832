"""The exceptions of the package: one class for each status of the C library."""

from __future__ import annotations

import errno


class StreamTrainError(Exception):
    """Base of all errors of the engine.

    Attributes:
        code: number of the C status (base/err.h).
        sys: the errno of the failed system call, or 0.
        offset: byte offset in the file, or None.
        tile: number of the tile, or None.
    """

    code: int = 0
    sys: int = 0
    offset: int | None = None
    tile: int | None = None


class StoreError(StreamTrainError, OSError):
    """A system call on the store failed; ``errno`` says how."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """There is no such file."""


class FormatError(StreamTrainError, ValueError):
    """A file does not hold what its format promises: damaged, cut off, or no tile store."""


class OutOfMemoryError(StreamTrainError, MemoryError):
    """The host has no memory left."""


class RequestError(StreamTrainError, ValueError):
    """The request is wrong: an option, a shape, a kind of loss."""


class BudgetError(StreamTrainError, ValueError):
    """The request cannot fit the budgets; the text says what each part needs."""


class UnsupportedError(StreamTrainError, NotImplementedError):
    """Valid, but not something this build or version can do."""


class DeviceError(StreamTrainError, RuntimeError):
    """A call of the device failed; the matrix cannot be used any more."""


class NoDeviceError(DeviceError):
    """No such device, or no driver at all."""


class DriverTooOldError(DeviceError):
    """The driver is older than this build needs."""


class NotFiniteError(StreamTrainError, ArithmeticError):
    """A NaN or an infinity where none is allowed."""


class InterruptedCallError(StreamTrainError, InterruptedError):
    """The call was stopped by :meth:`Matrix.interrupt`."""


class ConversionError(StreamTrainError, RuntimeError):
    """A conversion failed while it ran: the input is damaged, the disk is full, ..."""


class ClosedError(StreamTrainError, ValueError):
    """The matrix has been closed."""


class ForkedError(StreamTrainError, RuntimeError):
    """The matrix was opened by the parent of this process, which was then forked."""


_BY_CODE: dict[int, type[StreamTrainError]] = {
    1: StoreError,
    2: FormatError,
    3: OutOfMemoryError,
    4: RequestError,
    5: BudgetError,
    6: UnsupportedError,
    7: DeviceError,
    8: NoDeviceError,
    9: DriverTooOldError,
    10: NotFiniteError,
    11: InterruptedCallError,
}


def make(
    code: int, text: str, sys: int = 0, offset: int | None = None, tile: int | None = None
) -> StreamTrainError:
    """The exception for a status of the C library."""
    cls = _BY_CODE.get(code, StreamTrainError)
    if code == 1 and sys == errno.ENOENT:
        cls = StoreNotFoundError
    error = cls(text)
    if isinstance(error, OSError):
        error.errno = sys or None
    error.code, error.sys, error.offset, error.tile = code, sys, offset, tile
    return error
