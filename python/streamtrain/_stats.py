"""What a matrix tells about itself."""

from __future__ import annotations

from dataclasses import dataclass

from . import _capi


@dataclass(frozen=True)
class Stats:
    """Counters since the matrix was opened, or since :meth:`Matrix.reset_stats`."""

    passes: int
    """Sweeps over all tiles."""
    tiles_read: int
    read_bytes: int
    """From disk."""
    decoded_bytes: int
    """Bytes in kernel form that decoding gave."""
    read_wait_seconds: float
    """Time that computing waited for the disk."""
    decode_seconds: float
    forward_seconds: float
    loss_seconds: float
    adjoint_seconds: float
    tiles_resident_device: int
    tiles_resident_ram: int
    n_slots: int
    n_threads: int
    io: str
    """"uring" or "pread"."""
    isa: str
    """What the kernels use: "avx512", "sm_86", ..."""
    device: str


@dataclass(frozen=True)
class Memory:
    """Bytes. The caller's own X, Y and G on the host or in PyTorch's memory are not part of it."""

    device_budget: int
    device_peak: int
    """Most that the matrix held of its device's budget."""
    host_budget: int
    host_peak: int
    """Most that the RAM tier and the I/O slots held."""


_IO = {1: "uring", 2: "pread"}


def stats_of(s: _capi.MatrixStats) -> Stats:
    return Stats(
        passes=s.passes,
        tiles_read=s.tiles_read,
        read_bytes=s.read_bytes,
        decoded_bytes=s.decoded_bytes,
        read_wait_seconds=s.read_wait_ns * 1e-9,
        decode_seconds=s.decode_ns * 1e-9,
        forward_seconds=s.forward_ns * 1e-9,
        loss_seconds=s.loss_ns * 1e-9,
        adjoint_seconds=s.adjoint_ns * 1e-9,
        tiles_resident_device=s.tiles_resident_device,
        tiles_resident_ram=s.tiles_resident_ram,
        n_slots=s.n_slots,
        n_threads=s.n_threads,
        io=_IO.get(s.io, "auto"),
        isa=(s.isa or b"").decode(),
        device=(s.device or b"").decode(),
    )


def memory_of(s: _capi.MatrixStats) -> Memory:
    return Memory(s.device_budget, s.device_peak_bytes, s.host_budget, s.host_peak_bytes)
