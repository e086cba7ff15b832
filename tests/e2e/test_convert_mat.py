"""tile-convert on MATLAB v5 to v7 files, written by SciPy, and exports back to .npz and .mtx."""

import os
import struct

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from convert_support import convert, random_matrix, refuse  # noqa: F401


@pytest.mark.parametrize("packed", [False, True])
def test_written_by_scipy(convert, refuse, packed):
    m = random_matrix(150, 90, 0.1)
    scipy.io.savemat("a.mat", {"A": m}, do_compression=packed)
    convert("a.mat", "--values", "f64", expect=m, dtype=np.float64)
    convert("a.mat", "--transpose", expect=m.T)
    other = random_matrix(9, 8, 0.5)
    scipy.io.savemat("a.mat", {"x": np.arange(5.0), "text": "hello", "cell": np.array([1, "a"],
                               object), "long_name_of_A": m, "B": other}, do_compression=packed)
    refuse("a.mat", code=2, says=["long_name_of_A, B", "--key"])
    convert("a.mat", "--key", "B", expect=other)
    convert("a.mat:long_name_of_A", expect=m)
    refuse("a.mat:x", code=2, says=["x is not a sparse"])
    refuse("a.mat:y", code=2, says=["no variable y"])


@pytest.mark.parametrize("packed", [False, True])
def test_kinds(convert, refuse, packed):
    m = random_matrix(50, 30, 0.2)
    z = m * (1 + 2j)
    scipy.io.savemat("a.mat", {"A": z}, do_compression=packed)
    refuse("a.mat", code=2, says=["--part"])
    convert("a.mat", "--part", "imag", expect=z.imag)
    scipy.io.savemat("a.mat", {"A": m.astype(bool)}, do_compression=packed)
    convert("a.mat", expect=m.astype(bool).astype(float))
    for shape in ((5, 7), (1, 1), (3000, 1), (1, 3000)):
        scipy.io.savemat("a.mat", {"A": sp.csc_array(shape)}, do_compression=packed)
        convert("a.mat", expect=sp.csr_array(shape))
    scipy.io.savemat("a.mat", {"c": np.array([m, 1], object)}, do_compression=packed)
    refuse("a.mat", code=2, says=["cells and structs"])


def test_big_endian_and_small_elements(convert):
    """As other machines wrote it: one entry, so that row number and value are short elements."""
    def element(kind, data):
        if len(data) <= 4:
            return struct.pack(">HH", len(data), kind) + data.ljust(4, b"\0")
        return struct.pack(">II", kind, len(data)) + data + b"\0" * (-len(data) % 8)

    body = element(6, struct.pack(">II", 5, 1)) + element(5, struct.pack(">ii", 3, 2))
    body += element(1, b"A") + element(5, struct.pack(">i", 2))
    body += element(5, struct.pack(">iii", 0, 0, 1)) + element(2, b"\7")
    with open("a.mat", "wb") as f:
        f.write(b"MATLAB 5.0 MAT-file".ljust(124) + b"\1\0MI" + struct.pack(">II", 14, len(body)))
        f.write(body)
    convert("a.mat", expect=np.array([[0, 0], [0, 0], [0, 7.0]]))


@pytest.mark.parametrize("packed", [False, True])
def test_every_cut_is_noticed(refuse, packed):
    scipy.io.savemat("a.mat", {"A": random_matrix(40, 30, 0.1)}, do_compression=packed)
    data = open("a.mat", "rb").read()
    for percent in range(100):
        open("cut.mat", "wb").write(data[: len(data) * percent // 100])
        if len(data) * percent // 100 != 128:
            refuse("cut.mat", "--from", "mat", says=["cut.mat"])


# --- the other way ---


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("transpose", [False, True])
def test_export(run, kind, transpose):
    for m in (random_matrix(500, 300, 0.05), sp.csr_array((7, 5)), random_matrix(1, 9, 0.5),
              random_matrix(20000, 3, 0.01)):
        sp.save_npz("a.npz", m)
        run("tile-convert", "--force", "--values", kind, "--tile-size", "16K", "a.npz", "a.tiles")
        from convert_support import Store

        want = Store("a.tiles").matrix()
        want = want.T.tocsr() if transpose else want
        options = ["--transpose"] if transpose else []
        run("tile-convert", "--force", *options, "a.tiles", "b.npz")
        got = sp.load_npz("b.npz")
        assert got.format == "csr" and got.dtype == {"f64": np.float64, "f16": np.float16}.get(
            kind, np.float32)
        assert got.shape == want.shape and got.has_canonical_format
        np.testing.assert_array_equal(got.indptr, want.indptr)
        np.testing.assert_array_equal(got.indices, want.indices)
        np.testing.assert_array_equal(got.data.astype(float), want.data)
        run("tile-convert", "--force", *options, "a.tiles", "b.mtx")
        text = sp.csr_array(scipy.io.mmread("b.mtx"))
        assert text.shape == want.shape
        text.sort_indices()
        np.testing.assert_array_equal(text.indices, want.indices)
        exact = np.float64 if kind == "f64" else np.float32  # nine digits name one f32
        np.testing.assert_array_equal(text.data.astype(exact), want.data.astype(exact))


def test_export_is_refused_or_complete(run, refuse):
    sp.save_npz("a.npz", random_matrix(50, 30, 0.2))
    run("tile-convert", "a.npz", "a.tiles")
    run("tile-convert", "a.tiles", "b.npz")
    run("tile-convert", "a.tiles", "b.npz", code=2)
    run("tile-convert", "a.npz", "c.npz", code=1)
    run("tile-convert", "a.tiles", "c.mtx", "--codec", "raw", code=2)
    names = set(os.listdir())
    for what in ("write", "alloc", "read", "sync", "rename", "open"):
        for n in range(1, 60):
            import subprocess

            from conftest import command

            for out in ("d.npz", "d.mtx"):
                done = subprocess.run(command("tile-convert", "a.tiles", out), text=True,
                                      env={**os.environ, "OOC_FAULT": f"{what}:{n}"},
                                      capture_output=True, timeout=60)
                if done.returncode == 0:
                    os.remove(out)
                else:
                    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
                assert set(os.listdir()) == names
