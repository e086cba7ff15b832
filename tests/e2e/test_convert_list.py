"""tile-convert --list, and SciPy's block and diagonal matrices."""

import json

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from convert_support import convert, random_matrix, refuse  # noqa: F401


def test_list(run):
    m = random_matrix(20, 30, 0.1)
    sp.save_npz("a.npz", m)
    scipy.io.mmwrite("a.mtx", m)
    scipy.io.savemat("a.mat", {"B": m, "x": np.ones(3), "C": m.T.tocsc()})
    for name in ("a.npz", "a.mtx"):
        (item,) = json.loads(run("tile-convert", "--json", "--list", name).stdout)
        assert (item["rows"], item["columns"], item["max_entries"]) == (20, 30, m.nnz)
    items = json.loads(run("tile-convert", "--json", "--list", "a.mat").stdout)
    assert [(i["name"], i["rows"]) for i in items] == [("B", 20), ("C", 30)]
    assert "B: 20 x 30, float64" in run("tile-convert", "--list", "a.mat").stdout
    run("tile-convert", "a.npz", "a.tiles")
    assert "20 x 30, f32" in run("tile-convert", "--list", "a.tiles").stdout
    assert "float32" in run("tile-convert", "--list", "radon:4x5:6").stdout
    run("tile-convert", "--list", "a.npz", "b.tiles", code=2)
    run("tile-convert", "a.npz", code=2)
    run("tile-convert", "--list", "missing", code=2)


def test_list_pt(run):
    torch = pytest.importorskip("torch")
    m = torch.eye(4).to_sparse_coo()
    torch.save({"A": m, "b": torch.ones(3), 'odd "name"': torch.ones(2, 3)}, "a.pt")
    items = json.loads(run("tile-convert", "--json", "--list", "a.pt").stdout)
    assert [i["name"] for i in items] == ["A", "b", 'odd "name"']
    assert "problem" in items[1] and items[2]["columns"] == 3
    torch.save(m, "a.pt")
    assert "4 x 4, float32, at most 4 entries" in run("tile-convert", "--list", "a.pt").stdout


def test_list_h5(run):
    h5py = pytest.importorskip("h5py")
    m = random_matrix(20, 30, 0.1)
    with h5py.File("a.h5", "w") as f:
        for name in ("X", "layers/counts"):
            g = f.create_group(name)
            g["data"], g["indices"], g["indptr"] = m.data, m.indices, m.indptr
            g.attrs["shape"] = m.shape
    items = json.loads(run("tile-convert", "--json", "--list", "a.h5").stdout)
    assert [i["name"] for i in items] == ["X", "layers/counts"]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("blocks", [(1, 1), (2, 3), (5, 1), (40, 60)])
def test_bsr(convert, blocks, compressed):
    m = random_matrix(120, 180, 0.02)
    b = m.tobsr(blocksize=blocks)
    sp.save_npz("a.npz", b, compressed=compressed)
    want = b.tocsr()
    convert("a.npz", "--values", "f64", expect=want, dtype=np.float64)
    convert("a.npz", "--transpose", "--drop-zeros", expect=m.T)


@pytest.mark.parametrize("shape", [(50, 70), (70, 50), (50, 50), (7, 9)])
def test_dia(convert, shape):
    rng = np.random.default_rng(0)
    offsets = np.array([0, 3, -2, 8, -(shape[0] - 1)])
    d = sp.dia_array((rng.standard_normal((5, shape[1])), offsets), shape=shape)
    sp.save_npz("a.npz", d)
    convert("a.npz", "--values", "f64", expect=d.tocsr(), dtype=np.float64)
    short = sp.dia_array((rng.standard_normal((2, 4)), [0, 1]), shape=shape)
    sp.save_npz("a.npz", short)
    convert("a.npz", expect=short.tocsr())


def test_bad_blocks(refuse):
    b = random_matrix(12, 18, 0.2).tobsr(blocksize=(2, 3))
    arrays = dict(indptr=b.indptr, indices=b.indices, data=b.data, shape=b.shape,
                  format=np.bytes_("bsr"))

    def bad(code=1, says=(), **change):
        np.savez("a.npz", **{**arrays, **change})
        refuse("a.npz", code=code, says=["a.npz", *says])

    bad(indptr=b.indptr[:-1], says=["data.npy"])
    bad(indptr=b.indptr[::-1], says=["expected"])
    bad(indices=b.indices + 6, says=["column"])
    bad(indices=b.indices - 6, says=["no column"])
    bad(indices=b.indices[:-1], says=["number of items"])
    bad(data=b.data.reshape(-1, 6), says=["three dimensions"])
    bad(data=np.asfortranarray(b.data), code=2, says=["Fortran"])
    bad(data=b.data[:, :, :0], says=["data.npy"])
