"""Opening, closing, errors, pickling, threads, forks, signals, logging, figures."""

import copy
import logging
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
import streamtrain
from conftest import SMALL, TREE
from streamtrain import _capi, _errors, _handle

WIDE = 4000  # columns: a product of seconds with the matrix of ct_store


# ---- the C side ----


def test_structs_are_laid_out_as_in_c(tmp_path):
    """Every field of every struct, by a C program that includes the public header."""
    cc = shutil.which("cc") or shutil.which("gcc")
    if not cc:
        pytest.skip("no C compiler")
    structs = {
        "ooc_err": _capi.Err, "ooc_array": _capi.Array, "ooc_matrix_opts": _capi.MatrixOpts,
        "ooc_matrix_shape": _capi.MatrixShape, "ooc_loss_opts": _capi.LossOpts,
        "ooc_matrix_stats": _capi.MatrixStats,
    }
    lines, want = [], []
    for name, struct in structs.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        want.append(_capi.ctypes.sizeof(struct))
        for field, _ in struct._fields_:
            member = field.rstrip("_")
            lines.append(f'printf("%zu\\n", offsetof({name}, {member}));')
            want.append(getattr(struct, field).offset)
    source = tmp_path / "layout.c"
    source.write_text('#include "src/streamtrain.h"\n#include <stdio.h>\nint main(void) {'
                      + "\n".join(lines) + "return 0; }")
    subprocess.run([cc, "-I", TREE, source, "-o", tmp_path / "layout"], check=True)
    out = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout
    assert [int(v) for v in out.split()] == want


def test_every_status_has_an_exception():
    header = (TREE / "base/err.h").read_text()
    codes = {int(n): name for name, n in re.findall(r"(OOC_E_\w+) = (\d+)", header)}
    assert set(_errors._BY_CODE) == set(codes) and len(set(_errors._BY_CODE.values())) == len(codes)
    assert {c.__name__ for c in _errors._BY_CODE.values()} <= set(streamtrain.__all__)
    for code in codes:
        error = _errors.make(code, "what", 5, 4096, 7)
        assert isinstance(error, streamtrain.StreamTrainError) and "what" in str(error)
        assert (error.code, error.sys, error.offset, error.tile) == (code, 5, 4096, 7)


def test_version_is_that_of_the_library():
    text = (TREE / "python/pyproject.toml").read_text()
    assert streamtrain.__version__ == re.search(r'^version = "(.*)"', text, re.M)[1]


# ---- open and close ----


def test_what_it_is(A, csr, store):
    assert A.shape == csr.shape and A.nnz == csr.data.size and A.ndim == 2
    assert A.dtype == np.float32 and A.values == "f32" and A.n_tiles >= 1
    assert 0 < A.stored_bytes <= os.path.getsize(store) and A.path == str(store)
    assert not A.closed and "70 x 50" in repr(A) and "transpose" in repr(A.T)


def test_values_types(tmp_path, csr, store, A64):
    assert A64.dtype == np.float64 and A64.values == "f64"
    for values in ("f16", "bf16"):
        path = tmp_path / f"{values}.tiles"
        streamtrain.convert(store, path, values=values)
        with streamtrain.open(path, **SMALL) as A:
            assert A.values == values and A.dtype == np.float32
            assert np.allclose(A @ np.ones(50), csr.dense.sum(1), atol=0.2)


def test_close(store):
    A = streamtrain.open(str(store), **SMALL)
    with A as inside:
        assert inside is A
        A @ np.ones(50)
    A.close()
    assert A.closed and A.shape == (70, 50) and "closed" in repr(A)
    for use in (lambda: A @ np.ones(50), lambda: A.T @ np.ones(70), A.stats, A.memory,
                A.reset_stats, lambda: A.loss(np.ones(50), np.ones(70))):
        with pytest.raises(streamtrain.ClosedError, match="has been closed"):
            use()
    A.interrupt()


def test_the_memory_goes_with_the_last_reference(store):
    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    before = resident()
    for _ in range(40):
        A = streamtrain.open(store, device="cpu", vram_budget="32M", ram_budget="32M")
        A @ np.ones(50)
        G = A.T
        del A
        G @ np.ones(70)
    assert resident() - before < 64 << 20
    assert len(os.listdir("/proc/self/fd")) < 100


def test_wrong_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match="none.tiles") as caught:
        streamtrain.open(tmp_path / "none.tiles", **SMALL)
    assert isinstance(caught.value, streamtrain.StoreError) and caught.value.errno == 2
    with pytest.raises(streamtrain.StreamTrainError):
        streamtrain.open(tmp_path, **SMALL)
    text = tmp_path / "text.tiles"
    text.write_text("no store" * 1000)
    with pytest.raises(streamtrain.FormatError, match="text.tiles"):
        streamtrain.open(text, **SMALL)


def test_damage_is_found(tmp_path, store):
    data = bytearray(store.read_bytes())
    with streamtrain.open(store, **SMALL) as A:
        size = A.stored_bytes
    broken = tmp_path / "broken.tiles"
    found = 0
    for place in range(0, size, max(size // 20, 1)):
        data[4096 + place] ^= 1
        broken.write_bytes(data)
        data[4096 + place] ^= 1
        with pytest.raises(streamtrain.FormatError) as caught:
            with streamtrain.open(broken, **SMALL) as A:
                A @ np.ones(50)
        found += caught.value.tile is not None
    assert found > 0


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"vram_budget": "1K"}, streamtrain.BudgetError, "needs|need"),
        ({"ram_budget": 4096}, streamtrain.BudgetError, "needs|need"),
        ({"vram_budget": "8 parsecs"}, streamtrain.RequestError, "vram_budget: '8 parsecs'"),
        ({"ram_budget": 0}, streamtrain.RequestError, "ram_budget: 0"),
        ({"ram_budget": -1}, streamtrain.RequestError, "ram_budget: -1"),
        ({"device": "gpu"}, streamtrain.RequestError, "gpu"),
        ({"max_batch": 0}, streamtrain.RequestError, "max_batch"),
        ({"dtype": "float16"}, streamtrain.RequestError, "dtype: 'float16'"),
        ({"threads": -1}, streamtrain.RequestError, "threads"),
        ({"slots": 1000}, streamtrain.RequestError, "slots"),
        ({"io": "mmap"}, streamtrain.RequestError, "auto, uring, pread"),
        ({"pass_": "three"}, streamtrain.RequestError, "auto, fused, two"),
    ],
    ids=lambda v: str(v) if isinstance(v, dict) else "",
)
def test_wrong_options(store, options, error, text):
    with pytest.raises(error, match=text):
        streamtrain.open(store, **{**SMALL, **options})


def test_no_such_device(store):
    with pytest.raises(streamtrain.StreamTrainError, match="cuda"):
        streamtrain.open(store, **{**SMALL, "device": "cuda:63"})


@pytest.mark.parametrize(
    "options",
    [{"io": "pread"}, {"io": "uring"}, {"pass_": "fused"}, {"pass_": "two"}, {"threads": 1},
     {"slots": 3}, {"resident": False}, {"max_batch": 1}, {"max_batch": 40}, {"device": "cpu"},
     {"vram_budget": 1 << 25, "ram_budget": "33554432"}, {"vram_budget": "0.1G"}],
    ids=str,
)
def test_options_do_not_change_the_result(store, csr, options):
    x = np.random.default_rng(0).standard_normal((50, 20))
    with streamtrain.open(store, **{**SMALL, **options}) as A:
        for _ in range(2):
            assert np.allclose(A @ x, csr.dense @ x, rtol=1e-12)
            assert np.allclose(A.T @ (A @ x), csr.dense.T @ (csr.dense @ x), rtol=1e-12)


def smallest_budget(path, **options):
    """In bytes, by bisection."""
    low, high = 0, 64 << 20
    while high - low > 1:
        middle = (low + high) // 2
        try:
            streamtrain.open(path, device="cpu", vram_budget=middle, **options).close()
            high = middle
        except streamtrain.BudgetError:
            low = middle
    return high


def test_a_small_budget_gets_float32_and_fewer_columns(ct_store):
    """What was not asked for gives way; what was asked for does not."""
    budget = smallest_budget(ct_store, dtype="float32", max_batch=1)
    more = smallest_budget(ct_store, dtype="float64", max_batch=1)
    assert smallest_budget(ct_store) == budget < more
    with streamtrain.open(ct_store, device="cpu", vram_budget=budget) as A:
        x = np.ones((A.shape[1], 3))
        assert np.isfinite(A @ x.astype(np.float32)).all()
        with pytest.raises(streamtrain.RequestError, match="float64.*no room"):
            A @ x


def test_float32_only(store):
    with streamtrain.open(store, dtype="float32", **SMALL) as A:
        A @ np.ones(50, np.float32)
        with pytest.raises(streamtrain.RequestError, match="opened for float32; use dtype"):
            A @ np.ones(50)


# ---- copies ----


def test_pickle_by_path(A, store):
    data = pickle.dumps(A)
    assert len(data) < 1000
    B = pickle.loads(data)
    assert B._handle._pointer is None  # no memory is taken before the first use
    assert np.array_equal(B @ np.ones(50), A @ np.ones(50)) and B.path == A.path
    assert B._handle.options == A._handle.options
    B.close()
    assert copy.copy(A) is A and copy.deepcopy({"A": A})["A"] is A
    G = pickle.loads(pickle.dumps(A.T))
    assert np.array_equal(G @ np.ones(70), A.T @ np.ones(70))


def test_pickle_of_a_store_that_is_gone(tmp_path, store):
    moved = shutil.copy(store, tmp_path / "b.tiles")
    with streamtrain.open(moved, **SMALL) as A:
        data = pickle.dumps(A)
    os.unlink(moved)
    B = pickle.loads(data)
    with pytest.raises(FileNotFoundError):
        B @ np.ones(50)
    assert "not open" in repr(B)


# ---- figures ----


def test_stats_and_memory(ct_store):
    with streamtrain.open(ct_store, device="cpu", vram_budget="24M", ram_budget="16M",
                          resident=False, threads=2, io="pread") as A:
        x = np.ones(A.shape[1], np.float32)
        A @ x
        s = A.stats()
        assert s.passes == 1 and s.tiles_read == A.n_tiles and s.read_bytes >= A.stored_bytes
        assert s.decoded_bytes > s.read_bytes and s.forward_seconds > 0 == s.adjoint_seconds
        assert s.device == "cpu" and s.io == "pread" and s.n_threads == 2 and s.isa
        A.loss_and_grad(x, np.ones(A.shape[0], np.float32))
        assert A.stats().passes >= 2 and A.stats().adjoint_seconds > 0 and A.stats().loss_seconds > 0
        m = A.memory()
        assert m.device_budget == 24 << 20 and m.host_budget == 16 << 20
        assert 0 < m.device_peak <= m.device_budget and 0 < m.host_peak <= m.host_budget
        A.reset_stats()
        assert A.stats().passes == A.stats().read_bytes == 0


def test_resident_tiles_are_not_read_again(ct_store):
    with streamtrain.open(ct_store, device="cpu") as A:
        x = np.ones(A.shape[1], np.float32)
        A @ x
        A.reset_stats()
        A @ x
        assert A.stats().read_bytes == 0 and A.stats().tiles_resident_device == A.n_tiles


def test_the_log(store, caplog):
    """What the C side says through its callback arrives in Python's logging."""
    with caplog.at_level(logging.WARNING, "streamtrain"):
        _handle._warn(None, "io_uring: näin".encode())
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        ("streamtrain", "WARNING", "io_uring: näin")
    ]


# ---- threads ----


def test_threads_share_matrices(store, store64, csr, csr64):
    """Two matrices and eight threads; a matrix serves one call after another."""
    problems = []

    def work(A, dense, seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x = rng.standard_normal((dense.shape[1], 1 + seed % 3))
            if not np.allclose(A @ x, dense @ x) or not np.allclose(A.T @ (A @ x), dense.T @ (dense @ x)):
                problems.append(seed)

    with streamtrain.open(store, **SMALL) as A, streamtrain.open(store64, **SMALL) as B:
        threads = [
            threading.Thread(target=work, args=((A, csr.dense) if i % 2 else (B, csr64.dense)) + (i,))
            for i in range(8)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not problems


def test_the_gil_is_released(ct_store):
    with streamtrain.open(ct_store, device="cpu") as A:
        x = np.ones((A.shape[1], 300), np.float32)
        worker = threading.Thread(target=lambda: A @ x)
        worker.start()
        turns = 0
        while worker.is_alive():
            time.sleep(0.002)
            turns += 1
    assert turns > 10


def test_closing_waits_for_a_call(ct_store):
    A = streamtrain.open(ct_store, device="cpu")
    x = np.ones((A.shape[1], 300), np.float32)
    results = []
    worker = threading.Thread(target=lambda: results.append(A @ x))
    worker.start()
    time.sleep(0.05)
    A.close()
    worker.join()
    assert results[0].shape == (A.shape[0], 300)


# ---- signals ----


def later(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def send(number):
    return lambda: os.kill(os.getpid(), number)


@pytest.fixture
def slow(ct_store):
    """(A, X) of a product that takes seconds, and is interrupted long before that."""
    with streamtrain.open(ct_store, device="cpu") as A:
        yield A, np.ones((A.shape[1], WIDE), np.float32)


def test_ctrl_c_stops_a_pass(slow):
    A, X = slow
    expected = A @ X[:, 0]
    for _ in range(2):
        later(0.3, send(signal.SIGINT))
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            A @ X
        assert time.monotonic() - start < 1.5
        assert np.array_equal(A @ X[:, 0], expected)


def test_other_handlers_run_during_a_pass(slow):
    A, X = slow
    times = []
    old = signal.signal(signal.SIGUSR1, lambda *_: times.append(time.monotonic()))
    try:
        start = time.monotonic()
        later(0.2, send(signal.SIGUSR1))
        later(1, A.interrupt)
        with pytest.raises(streamtrain.InterruptedCallError) as caught:
            A @ X
        assert isinstance(caught.value, InterruptedError)
        assert len(times) == 1 and times[0] - start < 0.8
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_an_exception_of_a_handler_arrives(slow):
    A, X = slow

    def handler(*_):
        with pytest.raises(RuntimeError, match="by a signal handler"):
            A @ X[:, 0]
        with pytest.raises(RuntimeError, match="by a signal handler"):
            A.close()
        raise LookupError("of the handler")

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        later(0.2, send(signal.SIGUSR1))
        with pytest.raises(LookupError, match="of the handler"):
            A @ X
        assert np.isfinite(A @ X[:, 0]).all()
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_interrupt_without_a_call(A):
    A.interrupt()
    assert np.isfinite(A @ np.ones(50)).all()


# ---- forks ----


def in_child(action):
    """The result of ``action`` in a forked child, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(action())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_is_told(A, csr):
    A @ np.ones(50)
    text = in_child(lambda: A @ np.ones(50))
    assert text.startswith("ForkedError") and "spawn" in text and A.path in text
    assert in_child(lambda: A.stats()).startswith("ForkedError")
    assert in_child(A.close) == "None"
    assert in_child(lambda: A.shape) == "(70, 50)"
    assert np.allclose(A @ np.ones(50), csr.dense.sum(1), atol=1e-5)


def total(A):
    return float((A @ np.ones(50)).sum())


def test_a_spawned_process_opens_its_own(A, csr):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(total, (A,)) == pytest.approx(csr.dense.sum(), rel=1e-5, abs=1e-4)
