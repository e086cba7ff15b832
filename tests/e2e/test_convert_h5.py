"""tile-convert on HDF5: AnnData, 10x Genomics, Binsparse, MATLAB v7.3, written by h5py."""

import json
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

from convert_support import convert, random_matrix, refuse  # noqa: F401

h5py = pytest.importorskip("h5py")


def anndata(group, m, index=np.int32, **options):
    m = m if m.format in ("csr", "csc") else m.tocsr()
    group.attrs["encoding-type"] = f"{m.format}_matrix"
    group.attrs["encoding-version"] = "0.1.0"
    group.attrs["shape"] = m.shape
    for name, value in dict(data=m.data, indices=m.indices.astype(index),
                            indptr=m.indptr.astype(index)).items():
        group.create_dataset(name, data=value, **options)


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("options", [{}, dict(compression="gzip"), dict(chunks=(100,)),
                                     dict(compression="gzip", shuffle=True, chunks=(150,))])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_anndata(convert, kind, options, index):
    m = random_matrix(300, 200, 0.05)
    layer = random_matrix(300, 200, 0.03, seed=1)
    with h5py.File("a.h5ad", "w") as f:
        f.attrs["encoding-type"] = "anndata"
        anndata(f.create_group("X"), m.asformat(kind), index, **options)
        anndata(f.create_group("layers/counts"), layer.asformat(kind), index, **options)
    convert("a.h5ad", "--values", "f64", expect=m, dtype=np.float64)
    convert("a.h5ad", "--transpose", expect=m.T)
    convert("a.h5ad", "--key", "layers/counts", expect=layer)
    convert("a.h5ad:/layers/counts", expect=layer)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "u1", "i4", "i8", "u2", "?"])
def test_types(convert, dtype):
    m = random_matrix(40, 60, 0.2)
    m.data = np.random.default_rng(1).integers(1, 100, m.nnz).astype(dtype)
    with h5py.File("a.h5", "w") as f:
        anndata(f.create_group("m"), m)
    convert("a.h5", expect=m.astype(float))


def test_10x(convert):
    m = random_matrix(70, 30, 0.1)
    m.data = np.ceil(np.abs(m.data) * 10)
    c = m.tocsc()
    with h5py.File("a.h5", "w") as f:
        g = f.create_group("matrix")
        g["data"], g["indices"] = c.data.astype(np.int32), c.indices.astype(np.int64)
        g["indptr"], g["shape"] = c.indptr.astype(np.int64), np.array(m.shape, np.int32)
        g["barcodes"] = np.array([b"A"] * 30)
        g.create_group("features")["id"] = np.array([b"g"] * 70)
    convert("a.h5", expect=m)


def test_shape_tells_the_direction(convert, refuse):
    m = random_matrix(70, 30, 0.1)
    for kind in ("csr", "csc"):
        with h5py.File("a.h5", "w") as f:
            c = m.asformat(kind)
            f["data"], f["indices"], f["indptr"], f["shape"] = c.data, c.indices, c.indptr, m.shape
        convert("a.h5", expect=m)
    square = random_matrix(9, 9, 0.3)
    with h5py.File("a.h5", "w") as f:
        f["data"], f["indices"], f["indptr"] = square.data, square.indices, square.indptr
        f["shape"] = square.shape
    refuse("a.h5", code=2, says=["by rows or by columns", "encoding-type"])
    with h5py.File("a.h5", "a") as f:
        del f["shape"]
    refuse("a.h5", says=["shape"])


def test_triples(convert):
    m = random_matrix(50, 60, 0.2).tocoo()
    order = np.random.default_rng(0).permutation(m.nnz)
    with h5py.File("a.h5", "w") as f:
        g = f.create_group("some/where")
        g["row"], g["col"], g["data"] = m.coords[0][order], m.coords[1][order], m.data[order]
        g.attrs["shape"] = m.shape
    convert("a.h5", expect=m)


@pytest.mark.parametrize("kind", ["CSR", "CSC", "COO"])
def test_binsparse(convert, refuse, kind):
    m = random_matrix(50, 60, 0.2)
    c = m.asformat(kind.lower())
    about = {"binsparse": {"version": "0.1", "format": kind, "shape": list(m.shape),
                           "number_of_stored_values": m.nnz, "data_types": {"values": "float64"}}}
    with h5py.File("a.h5", "w") as f:
        f.attrs["binsparse"] = json.dumps(about)
        f["values"] = c.data
        if kind == "COO":
            f["indices_0"], f["indices_1"] = c.coords
        else:
            f["pointers_to_1"], f["indices_1"] = c.indptr, c.indices
    convert("a.h5", expect=m)
    about["binsparse"]["structure"] = "symmetric_lower"
    with h5py.File("a.h5", "a") as f:
        f.attrs["binsparse"] = json.dumps(about)
    refuse("a.h5", code=2, says=["symmetric_lower"])


def matlab73(path, **matrices):
    with h5py.File(path, "w", userblock_size=512) as f:
        for name, m in matrices.items():
            c = sp.csc_array(m)
            g = f.create_group(name)
            g.attrs["MATLAB_sparse"] = np.uint64(c.shape[0])
            g.attrs["MATLAB_class"] = np.bytes_("logical" if c.dtype == bool else "double")
            g["jc"] = c.indptr.astype(np.uint64)
            if c.nnz:
                g["ir"] = c.indices.astype(np.uint64)
                if c.dtype.kind == "c":
                    g["data"] = np.array([(z.real, z.imag) for z in c.data],
                                         [("real", "<f8"), ("imag", "<f8")])
                else:
                    g["data"] = c.data.astype(np.uint8) if c.dtype == bool else c.data
    with open(path, "r+b") as f:
        f.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM")


def test_matlab73(convert, refuse):
    m = random_matrix(40, 30, 0.2)
    matlab73("a.mat", A=m)
    convert("a.mat", "--values", "f64", expect=m, dtype=np.float64)
    matlab73("a.mat", A=m, B=sp.csc_array((5, 6)), C=m.astype(bool), D=m * (1 + 2j))
    refuse("a.mat", code=2, says=["A, B, C, D", "--key"])
    convert("a.mat:B", expect=sp.csr_array((5, 6)))
    convert("a.mat", "--key", "C", expect=m.astype(bool).astype(float))
    convert("a.mat", "--key", "D", "--part", "imag", expect=(m * (1 + 2j)).imag)
    shutil.copy("a.mat", "plain.bin")
    convert("plain.bin:A", expect=m)


def test_refused(refuse, convert):
    with h5py.File("a.h5", "w") as f:
        f["dense"] = np.eye(3)
    refuse("a.h5", says=["no group"])
    m = random_matrix(40, 30, 0.2)
    with h5py.File("a.h5", "w") as f:
        anndata(f.create_group("X"), m, compression="lzf")
    convert_or_hint = __import__("subprocess").run(
        __import__("conftest").command("tile-convert", "a.h5", "o.tiles"), capture_output=True,
        text=True)
    assert convert_or_hint.returncode == 2 and "lzf" in convert_or_hint.stderr
    assert "h5repack" in convert_or_hint.stderr
    with h5py.File("a.h5", "w") as f:
        anndata(f.create_group("X"), m, chunks=(m.nnz,), maxshape=(None,))
        big = np.zeros(3_000_000)
        f["X"].create_dataset("extra", data=big, chunks=(3_000_000,))
        del f["X"]["data"]
        f["X"].create_dataset("data", shape=(m.nnz,), maxshape=(None,), chunks=(30_000_000,),
                              dtype="f8")
    refuse("a.h5", "--ram-budget", "64M", code=2, says=["data", "--ram-budget"])


def test_every_cut_is_noticed(refuse):
    m = random_matrix(30, 40, 0.1)
    with h5py.File("a.h5", "w") as f:
        anndata(f.create_group("X"), m)
    data = open("a.h5", "rb").read()
    for percent in range(1, 100):
        open("cut.h5", "wb").write(data[: len(data) * percent // 100])
        refuse("cut.h5", "--from", "h5", says=["cut.h5"])
