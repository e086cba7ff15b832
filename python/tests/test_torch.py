"""Tensors: values, gradients and what of PyTorch must work with them."""

import copy
import gc
import operator
import os
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch")

import streamtrain  # noqa: E402
from conftest import SMALL, make_csr, write_store  # noqa: E402
from streamtrain import RequestError  # noqa: E402
from test_numpy import layouts, loss_case, reference  # noqa: E402

if tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 6):
    times = operator.matmul
else:  # whose compiler hands ``A @ x`` to nobody

    def times(A, x):
        return A.matmul(x)


KINDS = ["mse", "l1", "huber", "poisson"]


def as_tensor(csr, dtype=torch.float64):
    return torch.from_numpy(csr.dense).to(dtype)


@pytest.fixture
def D(csr64):
    """The matrix of A64, dense."""
    return as_tensor(csr64)


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture(scope="module")
def positive(tmp_path_factory):
    csr = make_csr(40, 30, 0.3, np.float64)
    csr.data = np.abs(csr.data) + 0.1
    path = write_store(csr, tmp_path_factory.mktemp("positive") / "a.tiles")
    with streamtrain.open(path, **SMALL) as A:
        yield A, csr


# ---- values ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [None, 1, 3, 20])
def test_products(A, csr, dtype, columns):
    x = randn(50, *[columns] if columns else [], dtype=dtype)
    y = A @ x
    assert type(y) is torch.Tensor and y.dtype == dtype and y.shape == (70, *x.shape[1:])
    u = 2.0 ** (-24 if dtype == torch.float32 else -53)
    assert (np.abs(y.numpy() - csr.dense @ x.double().numpy()) <= csr.bounds(x.numpy(), u)).all()
    assert torch.allclose(A.T @ y, as_tensor(csr, dtype).T @ y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [n for n, x in layouts().items()
                                  if n not in ("byte order", "not aligned")])
def test_strides(A, name):
    x = torch.from_numpy(np.ascontiguousarray(layouts()[name]))
    view = {
        "row gap": lambda: torch.zeros(50, 9)[:, 2:6].copy_(x),
        "row step": lambda: torch.zeros(100, 4)[::2].copy_(x),
        "column step": lambda: torch.zeros(50, 20)[:, ::5].copy_(x),
        "column-major": lambda: x.T.contiguous().T,
        "broadcast columns": lambda: x[:, :1].expand(50, 4),
        "broadcast rows": lambda: x[:1].expand(50, 4),
        "broadcast vector": lambda: x[:1].expand(50),
        "vector step": lambda: torch.zeros(100)[::2].copy_(x),
    }.get(name, lambda: x)()
    assert torch.equal(view, x) and torch.equal(A @ view, A @ x)
    negated = torch._neg_view(view)
    assert torch.equal(A @ negated, -(A @ x))


def test_types_are_promoted(A, A64):
    ones = torch.ones(50)
    for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8):
        assert torch.equal(A @ ones.to(dtype), A @ ones)
    assert (A64 @ torch.ones(17, dtype=torch.float16)).dtype == torch.float64
    assert (A64 @ torch.ones(17)).dtype == torch.float32


@pytest.mark.parametrize(
    "x, error, text",
    [
        (torch.ones(49), RequestError, "49 rows, expected 50"),
        (torch.ones(70, 1), RequestError, "70 rows, expected 50"),
        (torch.ones(50, 2, 2), RequestError, "3 dimensions"),
        (torch.ones(50, dtype=torch.complex64), TypeError, "complex64"),
        (torch.eye(50).to_sparse(), TypeError, "sparse"),
    ],
    ids=lambda v: "",
)
def test_wrong_tensors(A, x, error, text):
    with pytest.raises(error, match=text):
        A @ x


def test_no_columns(A):
    x = torch.ones(50, 0, requires_grad=True)
    y = A @ x
    assert y.shape == (70, 0)
    y.sum().backward()
    assert x.grad.shape == (50, 0)


def test_functions_of_torch(A64, D):
    x, y = randn(17, 3), randn(23, 3)
    for product in (torch.mm, torch.matmul, torch.sparse.mm):
        assert torch.allclose(product(A64, x), D @ x)
        assert torch.allclose(product(A64.T, y), D.T @ y)
    assert torch.allclose(torch.mv(A64, x[:, 0]), D @ x[:, 0])
    assert torch.allclose(torch.mm(y.T, A64), y.T @ D)
    for wrong in (lambda: y.T @ A64, lambda: x.T @ A64.T):
        with pytest.raises(TypeError, match="tensor on the left"):
            wrong()
    for wrong in (lambda: y.T.matmul(A64), lambda: torch.add(A64, x)):
        with pytest.raises(TypeError):
            wrong()


def test_meta_tensors(A):
    assert (A @ torch.empty(50, 3, device="meta")).shape == (70, 3)
    assert (A.T @ torch.empty(70, device="meta", dtype=torch.float64)).dtype == torch.float64


def test_dlpack_of_a_tensor(A):
    """What another library hands over and takes back as DLPack."""

    class Other:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **kwargs):
            return self.x.__dlpack__()

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    x = randn(50, 2)
    assert np.array_equal(A @ Other(x), (A @ x).numpy())


# ---- gradients ----


def test_gradients(A64, csr64, D):
    x = randn(17, 3).requires_grad_()
    (A64 @ x).pow(3).sum().backward()
    want = D.T @ (3 * (D @ x.detach()) ** 2)
    assert torch.allclose(x.grad, want)
    y = randn(23).requires_grad_()
    (A64.T @ y).sum().backward()  # its gradient is a broadcast tensor
    assert torch.allclose(y.grad, D.sum(1))


def test_gradcheck(A64):
    x, y, v = randn(17, 2), randn(23, 2), randn(17)
    for t in (x, y, v):
        t.requires_grad_()
    for f, t in ((lambda t: A64 @ t, x), (lambda t: A64.T @ t, y), (lambda t: A64 @ t, v),
                 (lambda t: torch.sin(A64 @ t), x), (lambda t: A64.T @ (A64 @ t) ** 2, x)):
        assert torch.autograd.gradcheck(f, t)
        assert torch.autograd.gradgradcheck(f, t)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", [None, "rows", "all"])
def test_gradcheck_of_losses(positive, kind, weights):
    A, csr = positive
    x, t, w = (None if v is None else torch.from_numpy(v) for v in loss_case(csr, 2, weights))
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: A.loss(x, t, kind, w), x)
    assert torch.autograd.gradgradcheck(lambda x: A.loss(x, t, kind, w), x)
    assert torch.autograd.gradcheck(lambda x: A.loss(x[:, 0], t[:, 0], kind,
                                                     w[:, 0] if weights == "all" else w), x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", [None, "rows", "all"])
def test_gradcheck_of_targets(positive, kind, weights):
    """A target (or weight) that wants a gradient is served by PyTorch's own operations."""
    A, csr = positive
    x, t, w = (None if v is None else torch.from_numpy(v) for v in loss_case(csr, 2, weights))
    loss = A.loss(x, t, kind, w)
    t = t.nan_to_num(0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: A.loss(x, t, kind, w), t)
    if weights is None:
        assert torch.allclose(A.loss(x, t, kind, w), loss, rtol=1e-12)
    else:
        w.requires_grad_()
        assert torch.allclose(A.loss(x, t, kind, w), loss, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("weights", [None, "rows", "all"])
def test_losses(positive, kind, columns, weights):
    A, csr = positive
    case = loss_case(csr, columns, weights)
    want, want_g = reference(csr, *case[:2], kind, case[2])
    x, t, w = (None if v is None else torch.from_numpy(v) for v in case)
    x.requires_grad_()
    loss = A.loss(x, t, kind, w)
    assert loss.shape == () and loss.item() == pytest.approx(want, rel=1e-12)
    (3 * loss).backward()
    assert np.allclose(x.grad, 3 * want_g, rtol=1e-10, atol=1e-13)
    value, g = A.loss_and_grad(x, t, kind, w)
    assert value == loss and np.allclose(g, want_g, rtol=1e-10, atol=1e-13) and not g.requires_grad


def test_the_backward_of_a_loss_reads_nothing(positive):
    A, csr = positive
    x, t, _ = (None if v is None else torch.from_numpy(v) for v in loss_case(csr, 2, None))
    x.requires_grad_()
    loss = A.loss(x, t)
    A.reset_stats()
    loss.backward()
    assert A.stats().passes == 0
    with torch.no_grad():
        A.loss(x, t)
    assert A.stats().adjoint_seconds == 0  # nobody wants G


@pytest.mark.parametrize(
    "change, error, text",
    [
        ({"kind": "mae"}, RequestError, "none of mse"),
        ({"target": np.ones((70, 1))}, TypeError, "target is of type ndarray"),
        ({"target": torch.ones(70)}, RequestError, "target has shape"),
        ({"weights": torch.ones(50)}, RequestError, "weights has shape"),
        ({"target": torch.ones(70, 1, device="meta")}, RequestError, "target is on meta"),
        ({"target": torch.ones(70, 1, dtype=torch.complex64)}, TypeError, "complex64"),
    ],
    ids=lambda v: "",
)
def test_wrong_losses(A, change, error, text):
    with pytest.raises(error, match=text):
        A.loss(**{"X": torch.ones(50, 1), "target": torch.ones(70, 1), **change})


def test_the_graph_keeps_the_matrix(store64, D):
    x = randn(17).requires_grad_()
    y = streamtrain.open(store64, **SMALL) @ x
    gc.collect()
    y.sum().backward()
    assert torch.allclose(x.grad, D.sum(0))


def test_errors_in_backward(store64):
    x = randn(17).requires_grad_()
    with streamtrain.open(store64, **SMALL) as A:
        y = A @ x
    with pytest.raises(streamtrain.ClosedError, match="has been closed"):
        y.sum().backward()


# ---- torch.library, compile, func ----


@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(A64, grad):
    x, t, w = randn(17, 2).requires_grad_(grad), randn(23, 2), randn(23).abs()
    ops = torch.ops.streamtrain
    for op, arguments in (
        (ops.product, (x, A64._id, False)),
        (ops.product, (randn(23, 2).requires_grad_(grad), A64._id, True)),
        (ops.product, (x[:, :1].T.contiguous().T, A64._id, False)),
        (ops.loss, (x, t, None, A64._id, "mse", grad)),
        (ops.loss, (x, t, w, A64._id, "huber", grad)),
    ):
        result = torch.library.opcheck(op.default, arguments)
        assert set(result.values()) == {"SUCCESS"}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, None])
def test_compile(A64, D, backend, dynamic):
    if backend == "inductor" and not has_compiler():
        pytest.skip("no C++ compiler for torch.compile")
    layer = torch.nn.Linear(5, 17).double()
    t = randn(23)

    def step(z, matrix):
        x = layer(z).tanh().flatten(1).T
        y = times(matrix, x)
        g = times(matrix.T, y[:, 1])
        return (y ** 2).mean() + matrix.loss(x[:, 0], t, "huber") + g.abs().sum()

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend=backend, dynamic=dynamic)
    for batch in (2, 3, 4):
        z = randn(batch, 5, seed=batch)
        gradients = []
        for f in (step, compiled):
            layer.zero_grad()
            loss = f(z, A64)
            loss.backward()
            gradients.append((loss.detach(), [p.grad.clone() for p in layer.parameters()]))
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-12)


def has_compiler():
    import shutil

    return shutil.which("g++") or shutil.which("clang++")


def test_compile_with_two_matrices(A, A64, D):
    """A graph belongs to its matrix."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda M, x: times(M, x).sum(), fullgraph=True, backend="aot_eager")
    for _ in range(2):
        for M, n in ((A64, 17), (A, 50)):
            x = randn(n, seed=n)
            assert torch.allclose(compiled(M, x), (M @ x).sum())


def test_compile_functions_of_torch(A64, D):
    torch._dynamo.reset()
    x = randn(17, 2)
    compiled = torch.compile(lambda x: A64.matmul(x) + A64.T.T.matmul(x), fullgraph=True,
                             backend="aot_eager")
    assert torch.allclose(compiled(x), 2 * D @ x)
    if times is operator.matmul:
        compiled = torch.compile(lambda x: torch.mm(A64, x) + torch.mm(x.T, A64.T).T,
                                 fullgraph=True, backend="aot_eager")
        assert torch.allclose(compiled(x), 2 * D @ x)


def test_compiled_graph_of_a_closed_matrix(store64):
    torch._dynamo.reset()
    with streamtrain.open(store64, **SMALL) as A:
        compiled = torch.compile(lambda x: times(A, x), fullgraph=True, backend="aot_eager")
        compiled(randn(17))
    with pytest.raises(streamtrain.ClosedError):
        compiled(randn(17))


def test_export(A64, D):
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.relu(times(A64, x))

    if not hasattr(torch.export, "export"):
        pytest.skip("no torch.export")
    program = torch.export.export(Model(), (randn(17, 2),))
    x = randn(17, 2, seed=9)
    assert torch.allclose(program.module()(x), torch.relu(D @ x))


def test_func(A64, D):
    from torch.func import functional_call, grad, hessian, jacrev, vjp, vmap

    x, t = randn(17), randn(23)

    def f(x):
        return ((A64 @ x) ** 3).sum()

    def g(x):
        return ((D @ x) ** 3).sum()

    assert torch.allclose(grad(f)(x), grad(g)(x))
    assert torch.allclose(grad(lambda x: grad(f)(x).sum())(x), grad(lambda x: grad(g)(x).sum())(x))
    assert torch.allclose(grad(lambda x: A64.loss(x, t))(x), 2 * D.T @ (D @ x - t) / 23)
    assert torch.allclose(jacrev(lambda x: A64 @ x)(x), D)
    assert torch.allclose(vjp(lambda x: A64 @ x, x)[1](t)[0], D.T @ t)
    assert torch.allclose(vmap(lambda x: A64 @ x)(randn(4, 17)), randn(4, 17) @ D.T)
    assert torch.allclose(vmap(lambda x: A64 @ x, 1, 1)(randn(17, 4)), D @ randn(17, 4))
    assert torch.allclose(jacrev(jacrev(f))(x), hessian(g)(x))
    model = torch.nn.Linear(3, 17).double()
    z, parameters = randn(3), dict(model.named_parameters())
    ours = grad(lambda p: A64.loss(functional_call(model, p, (z,)), t))(parameters)
    theirs = grad(lambda p: ((D @ functional_call(model, p, (z,)) - t) ** 2).mean())(parameters)
    torch.testing.assert_close(ours, theirs)


# ---- training ----


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(A, csr, dtype):
    model = torch.nn.Linear(8, 50)
    D = as_tensor(csr, torch.float32)
    t = torch.ones(70)
    z = torch.ones(8)
    gradients = []
    for product, loss in ((lambda x: A @ x, lambda x: A.loss(x, t)),
                          (lambda x: D @ x.float(), lambda x: ((D @ x.float() - t) ** 2).mean())):
        model.zero_grad()
        with torch.autocast("cpu", dtype):
            x = model(z)
            assert x.dtype == dtype
            total = product(x).square().mean() + loss(x)
        assert total.dtype == torch.float32
        with torch.autocast("cpu", enabled=False):
            D32 = total
        D32.backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(A64, D, reentrant):
    from torch.utils.checkpoint import checkpoint

    def part(x):
        return torch.tanh(A64 @ x), A64.loss(x, torch.ones(23, 2, dtype=torch.float64))

    x = randn(17, 2).requires_grad_()
    y, loss = checkpoint(part, x, use_reentrant=reentrant)
    (y.sum() + loss).backward()
    want = x.detach().clone().requires_grad_()
    (torch.tanh(D @ want).sum() + ((D @ want - 1) ** 2).mean()).backward()
    assert torch.allclose(x.grad, want.grad)


class Projections(torch.utils.data.Dataset):
    """Data that doesn't touch the matrix, or that does."""

    def __init__(self, A=None):
        self.A = A

    def __len__(self):
        return 6

    def __getitem__(self, i):
        x = torch.full((50,), float(i))
        return x if self.A is None else self.A @ x


def test_data_loader_workers(A, csr):
    loader = torch.utils.data.DataLoader(Projections(), batch_size=2, num_workers=2,
                                         multiprocessing_context="fork")
    A @ torch.ones(50)
    sums = torch.cat([(A @ batch.T).T for batch in loader])
    assert torch.allclose(sums, torch.arange(6.0)[:, None] * as_tensor(csr, torch.float32).sum(1),
                          rtol=1e-4, atol=1e-4)
    touching = torch.utils.data.DataLoader(Projections(A), num_workers=1,
                                           multiprocessing_context="fork")
    with pytest.raises(streamtrain.ForkedError, match="spawn"):
        next(iter(touching))


def test_data_loader_spawned(A):
    loader = torch.utils.data.DataLoader(Projections(A), batch_size=6, num_workers=1,
                                         multiprocessing_context="spawn")
    want = A @ torch.arange(6.0).expand(50, 6)
    assert torch.allclose(next(iter(loader)), want.T, atol=1e-5)


def test_module_with_a_matrix(A):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.A = A
            self.x = torch.nn.Parameter(torch.ones(50))

        def forward(self):
            return self.A @ self.x

    model = Model()
    twin = copy.deepcopy(model)
    assert twin.A is A and torch.equal(twin(), model())
    assert list(model.state_dict()) == ["x"]
    t = torch.randn(70)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = A.loss(model.x, t)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def distributed(rank, store, folder, results):
    sys.path.insert(0, os.path.dirname(__file__))
    torch.distributed.init_process_group("gloo", f"file://{folder}/init", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 50))
    with streamtrain.open(store, threads=1, **SMALL) as A:
        loss = A.loss(model(torch.full((4,), float(rank + 1))), torch.ones(70))
        (loss + (A @ model.module.bias).sum() * 0).backward()
    results[rank] = [p.grad.tolist() for p in model.parameters()]
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="no torch.distributed")
def test_distributed_data_parallel(store, csr, tmp_path):
    """Two processes, each with its own matrix: the gradients are the mean of both."""
    with torch.multiprocessing.Manager() as manager:
        results = manager.dict()
        torch.multiprocessing.spawn(distributed, (str(store), str(tmp_path), results), nprocs=2)
        assert results[0] == results[1]
        weight = torch.tensor(results[0][0])
    torch.manual_seed(0)
    model, D = torch.nn.Linear(4, 50), as_tensor(csr, torch.float32)
    loss = sum(((D @ model(torch.full((4,), r)) - 1) ** 2).mean() for r in (1.0, 2.0)) / 2
    loss.backward()
    assert torch.allclose(weight, model.weight.grad, rtol=1e-4, atol=1e-5)


# ---- a card ----


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda(store, csr):
    D = as_tensor(csr, torch.float32).cuda()
    with streamtrain.open(store, device="cuda:0", vram_budget="64M", ram_budget="32M") as A:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.randn(50, 8, device="cuda", requires_grad=True)
            y = A @ (2 * x)
            y.square().sum().backward()
        stream.synchronize()
        assert y.is_cuda and torch.allclose(y, D @ (2 * x), atol=1e-4)
        assert torch.allclose(x.grad, 4 * D.T @ y, atol=1e-3)
        host = A @ x.detach().cpu()
        assert not host.is_cuda and torch.allclose(host, D.cpu() @ x.detach().cpu(), atol=1e-4)
    with streamtrain.open(store, **SMALL) as A:
        with pytest.raises(RequestError, match="cuda"):
            A @ x
