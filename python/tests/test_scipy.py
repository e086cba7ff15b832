"""The linear operator under SciPy's methods and PyLops, against SciPy on the same matrix."""

import numpy as np
import pytest
import streamtrain
from conftest import SMALL, make_csr, write_store

sparse = pytest.importorskip("scipy.sparse", reason="no SciPy")
linalg = pytest.importorskip("scipy.sparse.linalg", reason="no SciPy")


@pytest.fixture(scope="module", params=[np.float32, np.float64], ids=["f32", "f64"])
def pair(request, tmp_path_factory):
    """The operator, and the same matrix in SciPy."""
    csr = make_csr(300, 200, 0.05, request.param)
    path = write_store(csr, tmp_path_factory.mktemp("scipy") / "a.tiles")
    with streamtrain.open(path, **SMALL) as A:
        S = sparse.csr_matrix((csr.data, (csr.row, csr.col)), csr.shape)
        yield A.as_linear_operator(), S


def close(a, b, bound=1e-5):
    return np.linalg.norm(a - b) <= bound * np.linalg.norm(b)


def test_it_is_a_linear_operator(pair):
    L, S = pair
    x, X, y = np.ones(200), np.ones((200, 3)), np.ones(300)
    assert isinstance(L, linalg.LinearOperator) and L.shape == S.shape and L.dtype == S.dtype
    assert linalg.aslinearoperator(L) is L
    assert close(L @ x, S @ x) and close(L @ X, S @ X) and close(L.T @ y, S.T @ y)
    assert close(L.H @ np.ones((300, 2)), S.T @ np.ones((300, 2)))
    assert close(L.matvec(x[:, None]), S @ x[:, None]) and close(L.rmatvec(y), S.T @ y)
    assert close((L.T @ L) @ x, S.T @ (S @ x)) and close((2 * L) @ x, 2 * S @ x)
    assert L.A.as_linear_operator(np.float64).dtype == np.float64


def test_lsqr(pair):
    L, S = pair
    b = np.random.default_rng(0).standard_normal(300)
    ours = linalg.lsqr(L, b, atol=1e-12, btol=1e-12, iter_lim=400)
    theirs = linalg.lsqr(S, b, atol=1e-12, btol=1e-12, iter_lim=400)
    assert close(ours[0], theirs[0])
    assert close(linalg.lsmr(L, b, damp=0.1)[0], linalg.lsmr(S, b, damp=0.1)[0])


def test_svds(pair):
    L, S = pair
    v0 = np.random.default_rng(1).standard_normal(200).astype(S.dtype)
    ours = linalg.svds(L, k=5, v0=v0, return_singular_vectors=False)
    theirs = linalg.svds(S, k=5, v0=v0, return_singular_vectors=False)
    assert close(np.sort(ours), np.sort(theirs))
    u, s, vt = linalg.svds(L, k=3, v0=v0)
    assert close(S @ vt.T, u * s, 1e-3)


def test_cg(pair):
    L, S = pair
    shifted = L.T @ L + linalg.aslinearoperator(sparse.identity(200))
    b = np.ones(200)
    x, code = linalg.cg(shifted, b, maxiter=2000)
    assert code == 0 and close(S.T @ (S @ x) + x, b, 1e-4)


def test_pylops(pair):
    pylops = pytest.importorskip("pylops", reason="no PyLops")
    L, S = pair
    op = pylops.aslinearoperator(L)
    assert op.shape == S.shape and close(op @ np.ones(200), S @ np.ones(200))
    assert pylops.utils.dottest(pylops.aslinearoperator(L.A.as_linear_operator("float64")), 300, 200)
    stacked = pylops.VStack([op, 0.1 * pylops.Identity(200)])
    assert close(stacked.H @ np.ones(500), S.T @ np.ones(300) + 0.1)
