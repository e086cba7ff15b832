"""tile-apply against SciPy in float64: matrices x tile sizes x panels x codecs x budgets x threads, and
the same bits whatever the budgets, the slots and the I/O engine (issue 2, row 4)."""

import itertools
import json
import os
import re
import resource
import shutil
import signal
import time

import numpy as np
import pytest
import scipy.sparse as sp
from matrices import all_matrices, check, joseph

MATRICES = all_matrices()
CONFIGS = [  # tile-convert's --tile-size, --panel-columns, --codec, --values
    ("4K", 64, "raw", "f32"),
    ("64K", 1000, "zstd", "f32"),
    ("1M", 65536, "auto", "f32"),
    ("20K", 8192, "zstd:9", "f64"),
    ("300K", 256, "auto", "f64"),
    ("16K", 32768, "raw", "f64"),
]


def convert(run, a, out, tile_size, panel, codec, values, *more):
    sp.save_npz("a.npz", a)
    run(
        "tile-convert", "a.npz", out, "--tile-size", tile_size, "--panel-columns", panel,
        "--codec", codec, "--values", values, "--force", "--quiet", *more,
    )  # fmt: skip


def smallest(run, store, x, *options):
    """The smallest budgets that are possible, found from the refusals."""
    np.save("smallest.npy", x)
    found = {}
    for name in ("vram", "ram"):
        budgets = [f"--{n}-budget={found.get(n, 1)}" for n in ("vram", "ram")]
        said = run("tile-apply", store, "smallest.npy", "no.npy", *options, *budgets, code=2).stderr
        assert f"--{name}-budget" in said
        found[name] = int(re.search(r"at least (\d+) bytes", said)[1])
    return found["vram"], found["ram"]


def apply(run, store, x, *options, code=0):
    np.save("x.npy", x)
    done = run("tile-apply", store, "x.npy", "y.npy", "--json", *options, code=code)
    return np.load("y.npy"), json.loads(done.stdout)


def operand(rng, rows, batch, kind):
    shape = (rows,) if batch == 0 else (rows, batch)
    if kind == "integers":
        return rng.integers(-9, 10, shape).astype(np.float32)
    return rng.standard_normal(shape).astype(kind)


@pytest.mark.parametrize("name", MATRICES)
def test_products(run, name):
    a = MATRICES[name]
    number = list(MATRICES).index(name)
    rng = np.random.default_rng(number)
    exact = name.startswith("integer")
    batches = [0, 1, 2, 3, 8, 16, 20, 40]
    for i in range(3):
        tile_size, panel, codec, values = CONFIGS[(number + 2 * i + number // 6) % 6]
        convert(run, a, "a.tiles", tile_size, panel, codec, values)
        for transpose in (False, True):
            rows = a.shape[0] if transpose else a.shape[1]
            kind = "integers" if exact else ("float32", "float64")[(number + i) % 2]
            x = operand(rng, rows, batches[(number + 3 * i + transpose) % 8], kind)
            options = ["--transpose"] * transpose + ["--threads", 1 + (number + i) % 4]
            if i:
                vram, ram = smallest(run, "a.tiles", x, *options)
                options += ["--vram-budget", vram + (i - 1) * 40000]
                options += ["--ram-budget", ram + (i - 1) * 100000]
            y, stats = apply(run, "a.tiles", x, *options)
            check(a, x, y, transpose)
            if exact:
                expected = (a.T if transpose else a).astype(np.int64) @ x.astype(np.int64)
                assert np.array_equal(y, expected)
            assert stats["device_peak_bytes"] <= stats["vram_budget"]
            assert stats["host_peak_bytes"] <= stats["ram_budget"]


def test_there_are_enough_matrices():
    assert len(MATRICES) >= 20


@pytest.mark.parametrize("codec", ["raw", "zstd", "auto"])
@pytest.mark.parametrize("transpose", [False, True])
def test_same_bits(run, codec, transpose):
    """Budgets x slots x I/O engines x threads x residency."""
    a = joseph(40, 30, 30).astype(np.float32)
    convert(run, a, "a.tiles", "16K", 128, codec, "f32")
    x = np.random.default_rng(1).standard_normal((a.shape[0 if transpose else 1], 5)).astype(np.float32)
    way = ["--transpose"] * transpose
    first = None
    variants = list(itertools.product(["auto", "pread"], [None, 1, 2, 7], [0, 60000, 1 << 28], [1, 2, 3]))
    for io, slots, more, threads in variants[:: 1 if codec == "auto" else 5]:
        options = way + ["--io", io, "--threads", threads] + (["--slots", slots] if slots else [])
        vram, ram = smallest(run, "a.tiles", x, *options)
        options += ["--vram-budget", vram + more, "--ram-budget", ram + more // 2, "--repeat", 2]
        y, stats = apply(run, "a.tiles", x, *options)
        if first is None:
            first = y
            check(a, x, y, transpose)
        assert y.tobytes() == first.tobytes(), (io, slots, more, threads)
        resident = stats["tiles_resident_device"] + stats["tiles_resident_ram"]
        assert stats["tiles_read"] == 2 * stats["tiles"] - resident
        assert (resident == 0) if more == 0 else (resident > 0)


@pytest.mark.parametrize("name", ["ct", "hypersparse", "dense", "one-long-row", "few-values"])
def test_rounded_values(run, name):
    """f16 and bf16 on disk: equal to the product with the rounded values."""
    a = MATRICES[name]
    half = a.copy()
    half.data = half.data.astype(np.float16).astype(np.float32)
    brain = a.copy()
    bits = brain.data.view(np.uint32)
    brain.data = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    for values, rounded in (("f16", half), ("bf16", brain)):
        for codec in ("raw", "auto"):
            convert(run, a, "a.tiles", "32K", 512, codec, values)
            for transpose in (False, True):
                x = np.random.default_rng(2).standard_normal((a.shape[0 if transpose else 1], 4))
                y, _ = apply(run, "a.tiles", x.astype(np.float32), *["--transpose"] * transpose)
                check(rounded, x.astype(np.float32), y, transpose)


def test_radon_is_the_matrix_of_the_design(run):
    a = joseph(30, 19, 24)
    run("tile-convert", "radon:30x19:24", "a.tiles", "--tile-size", "16K", "--values", "f64", "--quiet")
    x = np.random.default_rng(3).standard_normal((24 * 24, 3))
    y, _ = apply(run, "a.tiles", x)
    assert np.allclose(y, a @ x, rtol=0, atol=1e-5)


def test_one_byte_less_is_refused_before_any_work(run, tmp_path):
    a = MATRICES["one-long-row"]
    convert(run, a, "a.tiles", "16K", 1024, "zstd", "f32")
    x = np.ones(a.shape[1], np.float32)
    vram, ram = smallest(run, "a.tiles", x)
    apply(run, "a.tiles", x, "--vram-budget", vram, "--ram-budget", ram)
    os.remove("y.npy")
    less_vram = ["--vram-budget", vram - 1, "--ram-budget", ram]
    less_ram = ["--vram-budget", vram, "--ram-budget", ram - 1]
    for options, parts in ((less_vram, ["tile slots", "Y and R blocks", "kernel scratch"]), (less_ram, ["I/O slots"])):
        said = run("tile-apply", "a.tiles", "x.npy", "y.npy", *options, code=2).stderr
        for part in parts:
            assert re.search(rf"{part} \d+", said), said
        assert "row 17 alone" in said and "30000 entries" in said, said
        assert not (tmp_path / "y.npy").exists()


# ---- arrays ----


@pytest.fixture
def store(run):
    a = MATRICES["random"]
    convert(run, a, "a.tiles", "16K", 256, "auto", "f32")
    return a


@pytest.mark.parametrize(
    "dtype", ["<f4", "<f8", ">f4", ">f8", "|u1", "|i1", "<u2", ">i2", "<i4", ">u4", "<i8", ">u8", "|b1"]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_orders(run, store, dtype, order):
    rng = np.random.default_rng(4)
    values = rng.integers(0, 2, (store.shape[1], 6)) if "b" in dtype else rng.integers(-99, 100, (store.shape[1], 6))
    x = np.asarray(abs(values) if "u" in dtype else values, dtype=dtype, order=order)
    y, _ = apply(run, "a.tiles", x)
    as_used = x.astype(np.float64 if "f8" in dtype else np.float32)
    check(store, as_used, y)


def test_samples(run, store):
    """(n, ...) arrays, more samples than one sweep serves."""
    n = store.shape[1]
    x = np.random.default_rng(5).standard_normal((70, 30, n // 30)).astype(np.float32)
    flat = x.reshape(70, n)
    y, stats = apply(run, "a.tiles", x, "--samples")
    assert y.shape == (70, store.shape[0]) and stats["passes"] == 3
    check(store, flat.T, y.T)
    whole, _ = apply(run, "a.tiles", np.asfortranarray(flat), "--samples", "--batch", 32)
    assert np.array_equal(whole, y)
    g, _ = apply(run, "a.tiles", y, "--samples", "--transpose", "--batch", 7)
    check(store, y.T, g.T, transpose=True)


def test_not_finite_is_computed_with(run, store):
    x = np.ones((store.shape[1], 2), np.float32)
    x[5, 1] = np.nan
    y, _ = apply(run, "a.tiles", x)
    hit = store[:, 5].toarray().ravel() != 0
    assert hit.any() and not hit.all()
    assert np.array_equal(np.isnan(y[:, 1]), hit) and not np.isnan(y[:, 0]).any()


def test_no_columns(run, store):
    y, stats = apply(run, "a.tiles", np.zeros((store.shape[1], 0), np.float32))
    assert y.shape == (store.shape[0], 0) and stats["tiles_read"] == 0
    y, _ = apply(run, "a.tiles", np.zeros((0, store.shape[1])), "--samples")
    assert y.shape == (0, store.shape[0])


@pytest.mark.parametrize(
    "array, said",
    [
        (np.zeros(899, np.float32), "(899,)"),
        (np.zeros((901, 2), np.float32), "(901, 2)"),
        (np.zeros((3, 900), np.float32), "--samples"),
        (np.zeros((900, 2, 2), np.float32), "(900, 2, 2)"),
        (np.zeros((), np.float32), "()"),
        (np.zeros(900, np.float16), "f2"),
        (np.zeros(900, np.complex64), "c8"),
    ],
)
def test_unsuitable_arrays_are_refused(run, store, array, said, tmp_path):
    np.save("x.npy", array)
    text = run("tile-apply", "a.tiles", "x.npy", "y.npy", code=2).stderr
    assert said in text and "x.npy" in text
    assert not (tmp_path / "y.npy").exists()


def test_wrong_requests(run, store):
    np.save("x.npy", np.zeros(900, np.float32))
    for options in (
        ["--matrix-device", "gpu"],
        ["--matrix-device", "cuda:"],
        ["--vram-budget", "0"],
        ["--slots", "65"],
        ["--io", "mmap"],
        ["--batch", "0"],
    ):
        run("tile-apply", "a.tiles", "x.npy", "y.npy", *options, code=2)
    run("tile-apply", "a.tiles", "x.npy", code=2)
    run("tile-apply", "missing.tiles", "x.npy", "y.npy", code=1)
    run("tile-apply", "a.tiles", "missing.npy", "y.npy", code=1)
    run("tile-apply", "x.npy", "x.npy", "y.npy", code=1)


def test_cuda_is_refused_with_the_reason_where_there_is_none(run, store):
    if shutil.which("nvidia-smi"):
        pytest.skip("there may be a GPU here")
    np.save("x.npy", np.zeros(900, np.float32))
    said = run("tile-apply", "a.tiles", "x.npy", "y.npy", "--matrix-device", "cuda:0", code=2).stderr
    assert "cuda:0" in said


# ---- faults (issue 2, row 8) ----


@pytest.fixture
def damaged(run):
    a = MATRICES["ct"]
    for codec in ("raw", "zstd", "auto"):
        convert(run, a, f"{codec}.tiles", "8K", 64, codec, "f32")
    np.save("x.npy", np.ones((a.shape[1], 2), np.float32))
    return a


@pytest.mark.parametrize("codec", ["raw", "zstd", "auto"])
def test_any_flipped_byte_is_found(run, damaged, codec, tmp_path):
    """Of all bytes, a sample with every kind of place: each is found, whatever the byte is for."""
    whole = bytearray((tmp_path / f"{codec}.tiles").read_bytes())
    rng = np.random.default_rng(6)
    places = set(rng.integers(0, len(whole), 60)) | {0, 8, 100, 4095, 4096, len(whole) - 1}
    for at in sorted(places):
        copy = bytearray(whole)
        copy[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "bad.tiles").write_bytes(copy)
        said = run("tile-apply", "bad.tiles", "x.npy", "y.npy", code=1).stderr
        assert "bad.tiles" in said, at
        assert not (tmp_path / "y.npy").exists()


def test_a_cut_store_is_found(run, damaged, tmp_path):
    whole = (tmp_path / "zstd.tiles").read_bytes()
    for size in {0, 1, 4095, 4096, 5000, len(whole) // 2, len(whole) - 4096, len(whole) - 1}:
        (tmp_path / "cut.tiles").write_bytes(whole[:size])
        said = run("tile-apply", "cut.tiles", "x.npy", "y.npy", code=1).stderr
        assert "cut.tiles" in said
        assert not (tmp_path / "y.npy").exists()


def test_reads_that_fail_or_come_up_short(run, damaged, tmp_path):
    a, x = damaged, np.load("x.npy")
    run("tile-apply", "zstd.tiles", "x.npy", "good.npy")
    good = np.load("good.npy")
    check(a, x, good)
    for io in ("auto", "pread"):
        for n in itertools.count(1):
            done = None
            for fault in (f"short-read:{n}", f"eintr:{n}"):
                run("tile-apply", "zstd.tiles", "x.npy", "y.npy", "--io", io, env={"OOC_FAULT": fault})
                assert np.load("y.npy").tobytes() == good.tobytes(), fault
                (tmp_path / "y.npy").unlink()
            try:
                done = run("tile-apply", "zstd.tiles", "x.npy", "y.npy", "--io", io, env={"OOC_FAULT": f"read:{n}"})
            except AssertionError:
                said = run("tile-apply", "zstd.tiles", "x.npy", "y.npy", "--io", io, code=1,
                           env={"OOC_FAULT": f"read:{n}"}).stderr  # fmt: skip
                assert "Input/output error" in said
                assert not (tmp_path / "y.npy").exists()
            if done:
                break
        assert n > 10
        (tmp_path / "y.npy").unlink()


def test_uring_refused_is_said_once(run, damaged):
    done = run("tile-apply", "zstd.tiles", "x.npy", "y.npy", "--json", env={"OOC_FAULT": "uring:1+"})
    assert json.loads(done.stdout)["io"] == "pread"
    assert done.stderr.count("io_uring is refused") == 1
    run("tile-apply", "zstd.tiles", "x.npy", "y.npy", "--io", "uring", code=2, env={"OOC_FAULT": "uring:1+"})


def test_a_small_memlock_limit_is_enough(run, damaged):
    def limit():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

    done = run("tile-apply", "zstd.tiles", "x.npy", "y.npy", "--json", preexec_fn=limit)
    assert json.loads(done.stdout)["tiles_read"] > 0


def test_every_failing_allocation_is_an_error(run, damaged, tmp_path):
    for n in itertools.count(1):
        (tmp_path / "y.npy").unlink(missing_ok=True)
        try:
            run("tile-apply", "auto.tiles", "x.npy", "y.npy", env={"OOC_FAULT": f"alloc:{n}"})
            break
        except AssertionError:
            run("tile-apply", "auto.tiles", "x.npy", "y.npy", code=1, env={"OOC_FAULT": f"alloc:{n}"})
            assert not (tmp_path / "y.npy").exists()
    assert n > 10


@pytest.mark.parametrize("fault", ["write:1", "write:2+", "sync:1", "rename:1"])
def test_an_output_that_cannot_be_written_leaves_nothing(run, damaged, fault, tmp_path):
    run("tile-apply", "raw.tiles", "x.npy", "y.npy", code=1, env={"OOC_FAULT": fault})
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("y.npy")]


def test_interrupt(run, start, damaged, tmp_path):
    for sig in (signal.SIGINT, signal.SIGTERM):
        process = start("tile-apply", "raw.tiles", "x.npy", "y.npy", "--repeat", 1000,
                        "--batch", 1, "--threads", 1, "--vram-budget", "16M", "--ram-budget", "1M")  # fmt: skip
        time.sleep(0.05)
        process.send_signal(sig)
        _, said = process.communicate(timeout=60)
        if process.returncode == 0:
            continue  # it was faster
        assert process.returncode in (130, -sig)
        if process.returncode == 130:
            assert b"y.npy was not written" in said
            assert not (tmp_path / "y.npy").exists()
