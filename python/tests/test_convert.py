"""convert and info: what can be converted, what is refused, progress, interruption."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
import streamtrain
from conftest import SMALL, Csr, make_csr, write_store
from streamtrain import ConversionError, RequestError, _convert


def check(path, dense):
    with streamtrain.open(path, **SMALL) as A:
        assert A.shape == dense.shape
        assert np.allclose(A @ np.eye(dense.shape[1]), dense, rtol=1e-6)


@pytest.fixture
def out(tmp_path):
    """A path to write; nothing else may stay in its folder."""
    folder = tmp_path / "out"
    folder.mkdir()
    yield folder / "a.tiles"
    assert set(os.listdir(folder)) <= {"a.tiles"}


@pytest.fixture
def dense(csr):
    return csr.dense.astype(np.float32)


def test_dense_arrays(out, dense):
    result = streamtrain.convert(dense, out)
    assert result["entries"] == np.count_nonzero(dense) and result["rows"] == 70
    check(out, dense)
    streamtrain.convert(dense > 0, out, force=True)
    check(out, (dense > 0).astype(float))
    streamtrain.convert((dense * 10).astype(np.int16), out, force=True)
    check(out, (dense * 10).astype(np.int16))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("flavour", ["matrix", "array"])
@pytest.mark.filterwarnings("ignore:Constructing a DIA")
def test_scipy(out, dense, kind, flavour):
    sparse = pytest.importorskip("scipy.sparse", reason="no SciPy")
    streamtrain.convert(getattr(sparse, f"{kind}_{flavour}")(dense), out)
    check(out, dense)


@pytest.mark.parametrize("layout", ["strided", "coo", "csr", "csc", "bsr"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_torch(out, dense, layout, dtype):
    torch = pytest.importorskip("torch", reason="no PyTorch")
    x = (torch.from_numpy(dense) * 8).to(getattr(torch, dtype))
    source = {
        "strided": lambda: x.requires_grad_(x.is_floating_point()),
        "coo": x.to_sparse, "csr": x.to_sparse_csr, "csc": x.to_sparse_csc,
        "bsr": lambda: x.to_sparse_bsr((7, 5)),
    }[layout]()
    streamtrain.convert(source, out)
    check(out, x.detach().double().numpy())


def test_uncoalesced_tensors_are_summed(out):
    torch = pytest.importorskip("torch", reason="no PyTorch")
    places = torch.tensor([[0, 1, 0], [2, 0, 2]])
    values = torch.tensor([1.0, 2.0, 3.0])
    streamtrain.convert(
        torch.sparse_coo_tensor(places, values, (2, 3), check_invariants=True), out)
    check(out, np.array([[0, 0, 4], [2, 0, 0]]))


def test_options(tmp_path, csr, out):
    with streamtrain.open(write_store(csr, tmp_path / "a.tiles"), **SMALL) as A:
        path = A.path
    result = streamtrain.convert(path, out, transpose=True, tile_size="4K", panel_columns=16,
                                 codec="raw", ram_budget="64M", tmp=tmp_path, threads=1,
                                 values="f64", drop_zeros=True)
    assert result["rows"] == 50 and result["tiles"] > 1
    check(out, csr.dense.T)
    streamtrain.convert(path, tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as f:
        assert f["data"].size == csr.data.size


def test_info(store, csr):
    told = streamtrain.info(store)
    assert (told["rows"], told["columns"], told["entries"]) == (70, 50, csr.data.size)
    assert told["values"] == "f32"
    assert streamtrain.info(str(store), verify=True)["rows"] == 70


def test_info_of_what_is_no_store(tmp_path):
    with pytest.raises(FileNotFoundError, match="none.tiles"):
        streamtrain.info(tmp_path / "none.tiles")
    (tmp_path / "text.tiles").write_text("nothing")
    with pytest.raises(ConversionError, match="text.tiles"):
        streamtrain.info(tmp_path / "text.tiles")


@pytest.mark.parametrize(
    "source, options, error, text",
    [
        ("/nowhere/a.mtx", {}, FileNotFoundError, "/nowhere/a.mtx"),
        ("radon:0x1:1", {}, RequestError, "radon"),
        (np.ones(3), {}, RequestError, "1 dimensions"),
        (np.ones((2, 2, 2)), {}, RequestError, "3 dimensions"),
        (np.ones((2, 2), complex), {}, RequestError, "complex128"),
        ([[1, 2]], {}, TypeError, "of type list"),
        (np.array([[np.nan]]), {}, (RequestError, ConversionError), "nan"),
        (np.ones((2, 2)), {"codec": "rar"}, RequestError, "rar"),
        (np.ones((2, 2)), {"values": "f8"}, RequestError, "f8"),
        (np.ones((2, 2)), {"tile_size": "big"}, RequestError, "tile_size: 'big'"),
        (np.ones((2, 2)), {"panel_columns": 0}, RequestError, "panel-columns"),
        (np.ones((2, 2)), {"tmp": "/nowhere"}, OSError, "nowhere"),
    ],
    ids=lambda v: "",
)
def test_refused(out, source, options, error, text):
    with pytest.raises(error, match=f"(?i){text}"):
        streamtrain.convert(source, out, **options)
    assert not out.exists()


def test_an_existing_store_stays(out):
    streamtrain.convert(np.eye(3), out)
    with pytest.raises(RequestError, match="--force|exists"):
        streamtrain.convert(np.eye(4), out)
    check(out, np.eye(3))
    streamtrain.convert(np.eye(4), out, force=True)
    check(out, np.eye(4))


def test_a_name_that_looks_like_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    streamtrain.convert(np.eye(3), "--force")
    check("--force", np.eye(3))
    assert os.listdir() == ["--force"]


def test_progress(out):
    seen = []
    streamtrain.convert("radon:180x128:128", out, progress=lambda done, text: seen.append((done, text)))
    assert seen and all(0 <= d <= 1 for d, _ in seen) and any("%" in t for _, t in seen)
    assert seen == sorted(seen, key=lambda s: s[0]) or len({t.split()[0] for _, t in seen}) > 1


def test_progress_on_a_terminal(out, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    streamtrain.convert("radon:180x128:128", out, progress=True)
    assert "%" in capsys.readouterr().err
    assert _convert._progress_of("tile-convert: a.mtx: 3 % wrong") is None


def test_progress_that_fails_stops_the_conversion(out):
    def progress(done, text):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        streamtrain.convert("radon:360x256:256", out, progress=progress)


def test_ctrl_c(out):
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        streamtrain.convert("radon:1400x768:768", out)
    assert time.monotonic() - start < 10 and not out.exists()


def test_no_rows_or_no_entries(out):
    streamtrain.convert(np.zeros((5, 4)), out)
    with streamtrain.open(out, **SMALL) as A:
        assert A.nnz == 0 and np.array_equal(A @ np.ones((4, 2)), np.zeros((5, 2)))
        assert np.array_equal(A.T @ np.ones(5), np.zeros(4))


def test_larger_than_the_budget(tmp_path):
    """Unsorted entries, more than the budget holds, with duplicates far apart."""
    rng = np.random.default_rng(0)
    n = 2_000_000
    csr = Csr((3000, 2000), rng.integers(0, 3000, n), rng.integers(0, 2000, n),
              rng.integers(1, 9, n).astype(np.float32))
    source = tmp_path / "large.tiles"
    write_store(csr, source, ram_budget="16M")
    with streamtrain.open(source, **SMALL) as A:
        assert np.array_equal(A @ np.ones(2000), csr.dense.sum(1))


def test_a_seed_makes_the_same_matrix():
    assert np.array_equal(make_csr(9, 9).dense, make_csr(9, 9).dense)
