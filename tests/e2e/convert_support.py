"""What the conversion tests share: convert a file, read the store back, compare with SciPy."""

import json
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp

from conftest import command

ENTRY = np.dtype([("row", "<u8"), ("col", "<u8"), ("val", "<f8")])


class Store:
    """The entries of a store, sorted, and what its header says."""

    def __init__(self, path):
        done = subprocess.run(command("tile-dump", path, f"{path}.dump"), capture_output=True,
                              text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        self.info = json.loads(done.stdout)
        self.shape = (self.info["rows"], self.info["columns"])
        entries = np.fromfile(f"{path}.dump", ENTRY)
        order = np.lexsort((entries["col"], entries["row"]))
        self.row, self.col, self.val = (entries[n][order] for n in ("row", "col", "val"))
        assert len(entries) == self.info["entries"]

    def matrix(self):
        return sp.csr_array((self.val, (self.row.astype(np.int64), self.col.astype(np.int64))),
                            self.shape)


def assert_holds(path, expected, dtype=np.float32):
    """The store at `path` holds exactly the entries of `expected` (any SciPy matrix), explicit
    zeros too, each value rounded to `dtype`."""
    store = Store(path)
    want = sp.coo_array(expected)
    assert store.shape == want.shape
    csr = want.tocsr().astype(np.float64) if want.dtype.kind != "c" else want.tocsr()
    csr.sum_duplicates()
    coo = csr.tocoo()
    assert store.info["entries"] == coo.nnz
    np.testing.assert_array_equal(store.row, coo.row)
    np.testing.assert_array_equal(store.col, coo.col)
    np.testing.assert_array_equal(store.val, coo.data.astype(dtype).astype(np.float64))
    return store


@pytest.fixture
def convert(run):
    """convert(input, options..., expect=matrix): convert, compare, return the result object."""

    def call(source, *options, expect=None, dtype=np.float32, out="out.tiles", **more):
        done = run("tile-convert", "--json", "--force", source, out, *options, **more)
        result = json.loads(done.stdout) if done.stdout else None
        if expect is not None:
            result["store"] = assert_holds(out, expect, dtype)
        return result

    return call


@pytest.fixture
def refuse(run, tmp_path):
    """refuse(input, options..., code=1, says=[...]): the error names everything in `says`, and
    nothing is left behind."""

    def call(source, *options, code=1, says=(), **more):
        before = {p.name for p in tmp_path.iterdir()}
        done = run("tile-convert", source, "refused.tiles", *options, code=code, **more)
        for text in says:
            assert text in done.stderr, f"{text!r} is not in {done.stderr!r}"
        assert {p.name for p in tmp_path.iterdir()} == before
        return done

    return call


def random_matrix(rows, cols, density, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    m = sp.random_array((rows, cols), density=density, rng=rng, format="csr")
    m.data = rng.standard_normal(m.nnz)
    return m.astype(dtype)
