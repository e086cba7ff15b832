"""Products and losses of NumPy arrays and of what speaks DLPack, against float64."""

import numpy as np
import pytest
import streamtrain
from conftest import SMALL, make_csr, write_store
from streamtrain import RequestError

U = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}


def check(A, csr, x):
    """Both products, every element within the bound."""
    y = A @ x
    u = U[y.dtype]
    assert type(y) is np.ndarray and y.shape == (csr.shape[0], *x.shape[1:])
    reference = csr.dense @ x.astype(np.float64)
    assert (np.abs(y - reference) <= csr.bounds(x, u) + 1e-300).all()
    csr_t = type(csr)(csr.shape[::-1], csr.col, csr.row, csr.data)
    g = A.T @ y
    assert g.shape == x.shape and g.dtype == y.dtype
    assert (np.abs(g - csr_t.dense @ y.astype(np.float64)) <= csr_t.bounds(y, u) + 1e-300).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [None, 1, 2, 8, 17, 40])
def test_products(A, csr, dtype, columns):
    rng = np.random.default_rng(1)
    check(A, csr, rng.standard_normal((50,) if columns is None else (50, columns)).astype(dtype))


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (5, 2000), (2000, 3)])
def test_shapes(tmp_path, shape):
    csr = make_csr(*shape, 0.5)
    with streamtrain.open(write_store(csr, tmp_path / "a.tiles"), **SMALL) as A:
        assert A.shape == shape and A.T.shape == shape[::-1] and A.nnz == A.T.nnz == csr.data.size
        for columns in (1, 3):
            check(A, csr, np.random.default_rng(2).standard_normal((shape[1], columns)))


def test_small_integers_are_exact(tmp_path):
    csr = make_csr(200, 300, 0.2, integers=True)
    x = np.random.default_rng(3).integers(-9, 10, (300, 5)).astype(np.float32)
    with streamtrain.open(write_store(csr, tmp_path / "a.tiles"), **SMALL) as A:
        assert np.array_equal(A @ x, csr.dense @ x)


def layouts():
    """Views with every kind of stride, by name; each 50 x 4."""
    base = np.random.default_rng(4).standard_normal((100, 20)).astype(np.float32)
    column = base[:, 3]
    unaligned = np.frombuffer(b"\0" + base[:50, :4].tobytes(), np.uint8)[1:].view(np.float32)
    return {
        "contiguous": base[:50, :4].copy(),
        "row gap": base[:50, 2:6],
        "row step": base[::2, :4],
        "column step": base[:50, ::5],
        "column-major": np.asfortranarray(base[:50, :4]),
        "transposed": base[:4, :].T.repeat(3, 0)[:50],
        "reversed rows": base[49::-1, :4],
        "reversed columns": base[:50, 3::-1],
        "broadcast columns": np.broadcast_to(column[:50, None], (50, 4)),
        "broadcast rows": np.broadcast_to(base[0, :4], (50, 4)),
        "byte order": base[:50, :4].astype(">f4"),
        "not aligned": unaligned.reshape(50, 4),
        "vector": column[:50].copy(),
        "vector step": column[::2],
        "reversed vector": column[49::-1],
        "broadcast vector": np.broadcast_to(column[0], (50,)),
        "one column": column[:50, None],
        "read-only": base[:50, :4].copy(),
    }


@pytest.mark.parametrize("name", layouts())
def test_strides(A, csr, name):
    x = layouts()[name]
    if name == "read-only":
        x.flags.writeable = False
    before = x.copy()
    assert x.shape[0] == 50
    check(A, csr, x)
    assert np.array_equal(A @ x, A @ np.ascontiguousarray(x, np.float32))
    assert np.array_equal(x, before)


def test_types_are_promoted(A, A64, csr):
    ones = np.ones(50)
    for kind, result in [("f2", "f4"), ("i2", "f4"), ("u1", "f4"), ("?", "f4"), ("i4", "f8"),
                         ("i8", "f8"), ("f4", "f4"), ("f8", "f8")]:
        y = A @ ones.astype(kind)
        assert y.dtype == np.dtype(result)
        assert np.allclose(y, csr.dense.sum(1), atol=1e-5)
    assert (A64 @ np.ones(17, np.float16)).dtype == np.float64
    assert (A64 @ np.ones(17, np.float32)).dtype == np.float32
    assert np.allclose(A @ list(ones), csr.dense.sum(1))


def test_no_columns(A):
    assert (A @ np.empty((50, 0), np.float32)).shape == (70, 0)


def test_from_the_left(A, csr):
    x = np.random.default_rng(5).standard_normal((3, 70))
    assert np.allclose(x @ A, x @ csr.dense)
    assert np.allclose(x[0] @ A, x[0] @ csr.dense)
    assert np.allclose(x[:, :50] @ A.T, x[:, :50] @ csr.dense.T)
    assert A.T.T is A


@pytest.mark.parametrize(
    "x, error, text",
    [
        (np.ones(49), RequestError, "49 rows, expected 50"),
        (np.ones((70, 2)), RequestError, "70 rows, expected 50"),
        (np.ones((50, 2, 2)), RequestError, "3 dimensions"),
        (np.float32(1), RequestError, "0 dimensions"),
        (np.ones(50, complex), TypeError, "complex"),
        (np.ones(50, np.longdouble), TypeError, "float128"),
        (np.full(50, "a"), TypeError, "U1"),
        (np.full(50, None), TypeError, "object"),
        (np.ma.masked_array(np.ones(50), np.zeros(50)), TypeError, "masked"),
        (None, TypeError, "no array"),
    ],
    ids=lambda v: "",
)
def test_wrong_operands(A, x, error, text):
    with pytest.raises(error, match=text):
        A @ x
    assert np.isfinite(A @ np.ones(50)).all()


def test_sparse_operand(A):
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match="sparse"):
        A @ sparse.eye(50)


class Other:
    """An array of another library, which speaks DLPack."""

    def __init__(self, array, namespace=False):
        self.array = array
        if namespace:
            self.__array_namespace__ = lambda: OtherNamespace

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OtherNamespace:
    @staticmethod
    def from_dlpack(x):
        return Other(np.from_dlpack(x), namespace=True)


def test_dlpack(A, csr):
    x = np.random.default_rng(6).standard_normal((50, 3))
    y = A @ Other(x)
    assert type(y) is np.ndarray and np.array_equal(y, A @ x)
    back = A @ Other(x, namespace=True)
    assert type(back) is Other and np.array_equal(back.array, y)
    other = Other(x)
    other.__class__ = type("Tpu", (Other,), {"__dlpack_device__": lambda self: (99, 0)})
    with pytest.raises(TypeError, match="DLPack kind 99"):
        A @ other


# ---- losses ----


def reference(csr, x, t, kind, w):
    """The loss and its gradient in float64; entries of weight 0 left out."""
    dense = csr.dense
    y = dense @ x.astype(np.float64)
    w = np.ones_like(y) if w is None else np.broadcast_to(w.reshape(len(w), *[1] * (y.ndim - w.ndim), *w.shape[1:]), y.shape)
    t = np.where(w == 0, y, t)
    d = y - t
    with np.errstate(invalid="ignore", divide="ignore"):
        each, slope = {
            "mse": lambda: (d * d, 2 * d),
            "l1": lambda: (np.abs(d), np.sign(d)),
            "huber": lambda: (np.where(abs(d) <= 1, d * d / 2, abs(d) - 0.5), np.clip(d, -1, 1)),
            "poisson": lambda: (y - t * np.log(y + 1e-8), 1 - t / (y + 1e-8)),
        }[kind]()
    each, slope = np.where(w == 0, 0, each), np.where(w == 0, 0, slope)
    return (w * each).sum() / w.sum(), dense.T @ (w * slope / w.sum())


def loss_case(csr, columns, weights, seed=7):
    """x, target (NaN where the weight is 0) and weights; A x is positive, for poisson."""
    rng = np.random.default_rng(seed)
    m, n = csr.shape
    x = rng.uniform(0.5, 1.5, (n,) if columns is None else (n, columns))
    y = csr.dense @ x
    t = y * rng.uniform(0.2, 2, y.shape) + rng.standard_normal(y.shape) * 0.1
    w = None
    if weights:
        w = rng.uniform(0, 2, m if weights == "rows" else y.shape)
        w[::3] = 0
        t[::3] = np.nan
    return x, np.abs(t), w


@pytest.fixture(scope="module")
def positive(tmp_path_factory):
    csr = make_csr(40, 30, 0.3, np.float64)
    csr.data = np.abs(csr.data) + 0.1
    path = write_store(csr, tmp_path_factory.mktemp("positive") / "a.tiles")
    with streamtrain.open(path, **SMALL) as A:
        yield A, csr


@pytest.mark.parametrize("kind", ["mse", "l1", "huber", "poisson"])
@pytest.mark.parametrize("columns", [None, 1, 5])
@pytest.mark.parametrize("weights", [None, "rows", "all"])
def test_losses(positive, kind, columns, weights):
    A, csr = positive
    x, t, w = loss_case(csr, columns, weights)
    want, want_g = reference(csr, x, t, kind, w)
    loss, g = A.loss_and_grad(x, t, kind, w)
    assert isinstance(loss, float) and loss == pytest.approx(want, rel=1e-12)
    assert g.shape == x.shape and np.allclose(g, want_g, rtol=1e-10, atol=1e-13)
    assert A.loss(x, t, kind, w) == loss
    f32 = [None if v is None else v.astype(np.float32) for v in (x, t, w)]
    loss32, g32 = A.loss_and_grad(f32[0], f32[1], kind, f32[2])
    assert loss32 == pytest.approx(want, rel=1e-5) and g32.dtype == np.float32


@pytest.mark.parametrize(
    "change, text",
    [
        ({"kind": "mae"}, "none of mse, l1, huber, poisson"),
        ({"X": np.ones((50, 2))}, "target has shape"),
        ({"X": np.ones((49, 1))}, "49 rows"),
        ({"target": np.ones((70, 2))}, "target has shape"),
        ({"weights": np.ones(50)}, "weights has shape"),
        ({"weights": -np.ones(70)}, "weight"),
        ({"X": np.ones((50, 0)), "target": np.ones((70, 0))}, "no columns"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_wrong_losses(A, change, text):
    arguments = {"X": np.ones((50, 1)), "target": np.ones((70, 1)), **change}
    with pytest.raises(RequestError, match=text):
        A.loss(**arguments)
