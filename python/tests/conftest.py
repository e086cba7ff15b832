"""Fixtures: matrices in memory and as stores, for the package as installed; where it is not, for the
one in the tree with the C build of STREAM_TRAIN_BUILD (default: build/ of the repository)."""

import os
import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

import numpy as np
import pytest

TREE = Path(__file__).resolve().parents[2]


# Without the tree, which stands first where pytest was started in python/.
ELSEWHERE = [p for p in sys.path if Path(p or ".").resolve() != TREE / "python"]
if PathFinder.find_spec("streamtrain", ELSEWHERE):
    sys.path[:] = ELSEWHERE
    os.environ.pop("STREAM_TRAIN_BUILD", None)
else:
    os.environ.setdefault("STREAM_TRAIN_BUILD", str(TREE / "build"))
    sys.path.insert(0, str(TREE / "python"))
    # Processes that the tests start find the same package.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(TREE / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )

import streamtrain  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also the tests that take minutes")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs --slow"))


@dataclass
class Csr:
    """A sparse matrix as NumPy arrays, and its float64 products: no SciPy needed."""

    shape: tuple
    row: np.ndarray
    col: np.ndarray
    data: np.ndarray

    @property
    def dense(self):
        out = np.zeros(self.shape)
        np.add.at(out, (self.row, self.col), self.data.astype(np.float64))
        return out

    def bounds(self, x, u):
        """The bound of DESIGN section 9 for every element of A @ x."""
        a = np.abs(self.dense)
        length = np.maximum((a != 0).sum(1), 1).reshape(-1, *[1] * (x.ndim - 1))
        return 8 * u * np.sqrt(length) * (a @ np.abs(x.astype(np.float64)))


def make_csr(m, n, density=0.1, dtype=np.float32, seed=0, integers=False):
    rng = np.random.default_rng(seed)
    places = rng.choice(m * n, size=int(m * n * density), replace=False) if m * n else np.array([], int)
    data = rng.integers(-8, 9, places.size) if integers else rng.standard_normal(places.size)
    if integers:
        data[data == 0] = 1
    return Csr((m, n), places // max(n, 1), places % max(n, 1), data.astype(dtype))


def write_store(csr, path, **options):
    """Through the .npz of SciPy's format, written without SciPy."""
    source = Path(str(path) + ".npz")
    np.savez(source, format=b"coo", shape=csr.shape, row=csr.row, col=csr.col, data=csr.data)
    values = {"float32": "f32", "float64": "f64"}[csr.data.dtype.name]
    streamtrain.convert(source, path, values=values, **options)
    source.unlink()
    return path


SMALL = {"device": "cpu", "vram_budget": "32M", "ram_budget": "32M"}


@pytest.fixture(scope="session")
def csr():
    return make_csr(70, 50, 0.2)


@pytest.fixture(scope="session")
def csr64():
    return make_csr(23, 17, 0.3, np.float64)


@pytest.fixture(scope="session")
def store(csr, tmp_path_factory):
    return write_store(csr, tmp_path_factory.mktemp("store") / "a.tiles")


@pytest.fixture(scope="session")
def store64(csr64, tmp_path_factory):
    return write_store(csr64, tmp_path_factory.mktemp("store64") / "a.tiles")


@pytest.fixture(scope="session")
def ct_store(tmp_path_factory):
    """A CT matrix of some 7 million entries in many tiles: a wide product takes a while."""
    path = tmp_path_factory.mktemp("ct") / "ct.tiles"
    streamtrain.convert("radon:180x128:128", path, tile_size="512K")
    return path


@pytest.fixture
def A(store):
    with streamtrain.open(store, **SMALL) as matrix:
        yield matrix


@pytest.fixture
def A64(store64):
    with streamtrain.open(store64, **SMALL) as matrix:
        yield matrix
