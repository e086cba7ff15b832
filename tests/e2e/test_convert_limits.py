"""tile-convert: memory budgets, temporary space, faults, signals, kill -9, options."""

import json
import os
import random
import signal
import time

import numpy as np
import pytest
import scipy.sparse as sp

from convert_support import assert_holds, convert, random_matrix, refuse  # noqa: F401

MIB = 1 << 20
PROGRAM = 32 * MIB  # what the process may take beside the budget


def unsorted_triples(n, rows, cols, seed=0):
    """A folder of triples in random order, with duplicates far apart."""
    rng = np.random.default_rng(seed)
    os.makedirs("dir", exist_ok=True)
    row = rng.integers(0, rows, n).astype(np.int32)
    col = rng.integers(0, cols, n).astype(np.int32)
    row[: n // 10], col[: n // 10] = row[-(n // 10):], col[-(n // 10):]
    val = rng.integers(-8, 9, n).astype(np.float32)
    for name, value in dict(row=row, col=col, data=val, shape=np.array([rows, cols])).items():
        np.save(f"dir/{name}.npy", value)
    return row, col, val


def check_sums(store, row, col, val, shape):
    """Small whole numbers: sums are exact, so products show every lost or doubled entry."""
    A = store.matrix()
    x = np.arange(shape[1]) % 7.0
    want = np.bincount(row, weights=val * x[col], minlength=shape[0])
    np.testing.assert_array_equal(A @ x, want)
    y = np.arange(shape[0]) % 5.0
    np.testing.assert_array_equal(A.T @ y, np.bincount(col, weights=val * y[row],
                                                       minlength=shape[1]))


@pytest.mark.heavy
@pytest.mark.parametrize("budget", [32, 64])
def test_budget_with_unsorted_entries(measure, budget):
    n, shape = 20_000_000, (100_000, 70_000)
    row, col, val = unsorted_triples(n, *shape)
    took = measure("tile-convert", "--ram-budget", f"{budget}M", "dir", "out.tiles")
    assert took.peak_bytes <= budget * MIB + PROGRAM, took.peak_bytes / MIB
    from convert_support import Store

    check_sums(Store("out.tiles"), row, col, val, shape)
    assert {p for p in os.listdir() if "tmp" in p or "tile-convert" in p} == set()


@pytest.mark.heavy
def test_budget_of_other_orders(measure):
    """Columns of a wide matrix, one long row, hypersparse rows."""
    for shape, kind, budget in (((300, 2_000_000), "csc", 64), ((1, 3_000_000), "csr", 160),
                                ((3_000_000, 3_000_000), "csc", 64),
                                ((2_000_000, 40), "csr", 64)):
        m = random_matrix(*shape, 2_000_000 / (shape[0] * shape[1]), dtype=np.float32)
        sp.save_npz("a.npz", m.asformat(kind), compressed=False)
        took = measure("tile-convert", "--force", "--ram-budget", f"{budget}M", "a.npz", "out.tiles")
        assert took.peak_bytes <= budget * MIB + PROGRAM, (shape, took.peak_bytes / MIB)
        assert_holds("out.tiles", m)


def test_same_store_whatever_the_budget(run):
    unsorted_triples(800_000, 5000, 3000)
    want = None
    for budget in ("16M", "24M", "1G"):
        run("tile-convert", "--force", "--tile-size", "256K", "--ram-budget", budget, "dir",
            "out.tiles")
        got = open("out.tiles", "rb").read()
        want = want or got
        assert got == want


def test_too_small_a_budget_names_what_is_needed(run):
    unsorted_triples(1000, 50, 50)
    done = run("tile-convert", "--ram-budget", "1M", "dir", "out.tiles", code=2)
    needed = int(done.stderr.split("too small: ")[1].split()[0])
    run("tile-convert", "--ram-budget", str(needed), "dir", "out.tiles")
    run("tile-convert", "--force", "--ram-budget", str(needed - MIB), "dir", "out.tiles", code=2)


def test_a_row_beyond_the_budget_is_named(refuse):
    n = 4_000_000
    sp.save_npz("a.npz", sp.csr_array((np.ones(n, np.float32) * np.arange(n) % 3 + 1,
                                       np.arange(n), [0, 0, n]), (2, n)), compressed=False)
    refuse("a.npz", "--ram-budget", "32M", code=2, says=["row 1", "--ram-budget"])


def test_temporary_folder(run, refuse, tmp_path):
    unsorted_triples(800_000, 5000, 3000)
    refuse("dir", "--ram-budget", "16M", "--tmp", "missing", code=2, says=["missing"])
    (tmp_path / "tmp").mkdir()
    done = run("tile-convert", "--json", "--ram-budget", "16M", "--tmp", "tmp", "dir", "out.tiles")
    assert json.loads(done.stdout)["temporary_bytes"] > 0
    assert os.listdir("tmp") == []


def test_long_rows_are_tiles_of_their_own(convert):
    m = sp.csr_array(np.ones((3, 30000), np.float32) * np.arange(1, 30001))
    sp.save_npz("a.npz", m)
    r = convert("a.npz", "--tile-size", "64K", expect=m)
    assert r["tiles"] == 3
    m = random_matrix(100_000, 50, 0.02)
    sp.save_npz("a.npz", m)
    r = convert("a.npz", "--tile-size", "1G", "--ram-budget", "40G", expect=m)
    assert r["tiles"] == 2  # 65,536 rows at most


def test_tiles_keep_to_the_size(convert):
    for tile in (16 << 10, 100_000, 1 << 20):
        m = random_matrix(3000, 5000, 0.02, dtype=np.float32)
        sp.save_npz("a.npz", m)
        r = convert("a.npz", "--tile-size", str(tile), "--panel-columns", "512", expect=m)
        assert r["store"].info["max_kernel_bytes"] <= tile
        assert r["tiles"] > 1 or tile > 300_000 * 6


@pytest.mark.parametrize("what", ["alloc", "open", "read", "short-read", "eintr", "write",
                                  "short-write", "sync", "rename"])
def test_faults_one_by_one(run, what, tmp_path):
    """The n-th call fails, n = 1, 2, ...: a clear error and nothing left, or success."""
    unsorted_triples(20_000, 500, 300)
    args = ("--tile-size", "16K", "--ram-budget", "8M", "dir", "out.tiles")
    run("tile-convert", "--threads", "2", *args)
    good = open("out.tiles", "rb").read()
    os.remove("out.tiles")
    harmless = what in ("short-read", "eintr", "short-write")
    names = set(os.listdir())
    misses, n, failures = 0, 0, 0
    while misses < 3:
        n += 1 if n < 40 else random.Random(n).randrange(1, 60)
        import subprocess

        from conftest import command

        done = subprocess.run(command("tile-convert", "--threads", "2", *args),
                              env={**os.environ, "OOC_FAULT": f"{what}:{n}"}, capture_output=True,
                              text=True, timeout=60)
        if done.returncode == 0:
            assert open("out.tiles", "rb").read() == good
            os.remove("out.tiles")
            misses += 1
            if harmless and n < 30:
                misses = 0
        else:
            assert not harmless and done.returncode == 1, (n, done)
            assert len(done.stderr.splitlines()) == 1, done.stderr
            failures += 1
            misses = 0
        assert set(os.listdir()) == names, (what, n)
    assert harmless or failures > 0


def test_interrupts_leave_nothing(start, tmp_path):
    unsorted_triples(3_000_000, 50_000, 30_000)
    names = set(os.listdir())
    done = 0
    for i in range(12):
        process = start("tile-convert", "--ram-budget", "24M", "dir", "out.tiles")
        time.sleep(0.05 + 0.06 * i)
        process.send_signal(signal.SIGINT if i % 2 else signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert process.returncode in (0, 130, -signal.SIGTERM, -signal.SIGINT), err
        if process.returncode == 0:
            os.remove("out.tiles")
        done += process.returncode == 130
        assert set(os.listdir()) == names
    assert done > 0


@pytest.mark.parametrize("times", [12, pytest.param(50, marks=pytest.mark.full)])
def test_kill_leaves_nothing(start, run, times):
    unsorted_triples(2_000_000, 50_000, 30_000)
    run("tile-convert", "--ram-budget", "24M", "dir", "good.tiles")
    names = set(os.listdir())
    good = open("good.tiles", "rb").read()
    rng = random.Random(times)
    for _ in range(times):
        process = start("tile-convert", "--ram-budget", "24M", "dir", "out.tiles")
        time.sleep(rng.uniform(0.01, 1.2))
        process.kill()
        process.communicate()
        if os.path.exists("out.tiles"):  # then it must be complete
            assert open("out.tiles", "rb").read() == good
            os.remove("out.tiles")
        assert set(os.listdir()) == names


def test_options(run, refuse):
    sp.save_npz("a.npz", random_matrix(20, 30, 0.1))
    for options, says in ((["--values", "f8"], "--values"), (["--codec", "lz4"], "--codec"),
                          (["--codec", "zstd:99"], "--codec"), (["--from", "xml"], "--from"),
                          (["--panel-columns", "0"], "--panel-columns"),
                          (["--panel-columns", "65537"], "--panel-columns"),
                          (["--tile-size", "1"], "--tile-size"), (["--nonsense"], "--nonsense"),
                          (["--ram-budget", "lots"], "--ram-budget")):
        refuse("a.npz", *options, code=2, says=[says])
    refuse("missing.npz", code=2, says=["missing.npz", "no such file"])
    refuse(".", code=1, says=["--from"])
    refuse("a.npz", "--from", "mtx", says=["a.npz", "line 1"])
    run("tile-convert", "a.npz", "out.tiles")
    run("tile-convert", "a.npz", "out.tiles", code=2)
    run("tile-convert", "a.npz", "out.tiles", "--force")
    run("tile-convert", "a.npz", "no/such/folder.tiles", code=1)
    assert run("tile-convert", "--help").stdout.count("radon:") >= 2
    quiet = run("tile-convert", "--quiet", "--force", "a.npz", "out.tiles")
    assert quiet.stdout == quiet.stderr == ""


def test_in_place_retiling(run):
    m = random_matrix(500, 300, 0.1, dtype=np.float32)
    sp.save_npz("a.npz", m)
    run("tile-convert", "a.npz", "a.tiles")
    run("tile-convert", "--force", "--transpose", "--tile-size", "8K", "a.tiles", "a.tiles")
    assert_holds("a.tiles", m.T)


@pytest.mark.full
@pytest.mark.heavy
def test_the_full_ct_matrix(measure, record, tmp_path):
    took = measure("tile-convert", "radon:700x384:640", "ct640.tiles")
    bytes_per_entry = os.path.getsize("ct640.tiles") / 292_115_305
    record(2, 1, "tile-convert radon:700x384:640",
           f"{took.seconds:.1f} s, {took.peak_bytes / MIB:.0f} MiB peak, "
           f"{bytes_per_entry:.3f} bytes an entry")
    assert took.peak_bytes <= 512 * MIB and bytes_per_entry <= 1.5 and took.seconds <= 45
