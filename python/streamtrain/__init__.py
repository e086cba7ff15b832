"""Products with a huge fixed sparse matrix that streams from disk.

    import streamtrain

    streamtrain.convert("system.mtx", "system.tiles")
    A = streamtrain.open("system.tiles", device="cuda:1", vram_budget="8G")
    y = A @ model(x).flatten(1).T          # autograd knows the adjoint
    loss = A.loss(model(x).flatten(1).T, target)   # the same in one sweep instead of two

What can be set and what is copied: docs/python.md of the project.
"""

from . import _capi
from ._convert import convert, info
from ._errors import (
    BudgetError,
    ClosedError,
    ConversionError,
    DeviceError,
    DriverTooOldError,
    ForkedError,
    FormatError,
    InterruptedCallError,
    NoDeviceError,
    NotFiniteError,
    OutOfMemoryError,
    RequestError,
    StoreError,
    StoreNotFoundError,
    StreamTrainError,
    UnsupportedError,
)
from ._matrix import Matrix, Transpose
from ._stats import Memory, Stats

__version__ = _capi.version()
open = Matrix.open

__all__ = [
    "BudgetError",
    "ClosedError",
    "ConversionError",
    "DeviceError",
    "DriverTooOldError",
    "ForkedError",
    "FormatError",
    "InterruptedCallError",
    "Matrix",
    "Memory",
    "NoDeviceError",
    "NotFiniteError",
    "OutOfMemoryError",
    "RequestError",
    "Stats",
    "StoreError",
    "StoreNotFoundError",
    "StreamTrainError",
    "Transpose",
    "UnsupportedError",
    "convert",
    "info",
    "open",
]
