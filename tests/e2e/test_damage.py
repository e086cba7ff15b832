"""Damaged stores, full disks, failing system calls: one clear line, exit code 1, nothing wrong
computed and nothing left behind."""

import itertools
import os
import resource
import shutil
import signal
import subprocess

import numpy as np
import pytest
from conftest import NO_GPU, command

CODECS = ["raw", "zstd", "auto"]


@pytest.fixture
def store(run, tmp_path):
    """store(codec): a small store of several tiles and an input for it."""

    def make(codec):
        run("tile-convert", "radon:9x16:16", "s.tiles", "--codec", codec, "--tile-size", "16K")
        np.save("x.npy", np.ones(256, np.float32))
        return bytearray((tmp_path / "s.tiles").read_bytes())

    return make


def error_lines(done):
    return [line for line in done.stderr.splitlines() if not line.endswith(NO_GPU)]


def refused(name, *args, outputs=()):
    """The command ends with 1 and one line, and leaves no output."""
    done = subprocess.run(command(name, *args), capture_output=True, text=True, timeout=60)
    lines = error_lines(done)
    shown = f"{name} {args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 1 and len(lines) == 1 and lines[0].startswith(f"{name}: "), shown
    for output in outputs:
        assert not os.path.exists(output), shown
    return lines[0]


@pytest.mark.parametrize("every", [97, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("codec", CODECS)
def test_any_flipped_byte_is_found(store, record, codec, every):
    data = store(codec)
    for at in range(0, len(data), every):
        bad = bytearray(data)
        bad[at] ^= 1 << at % 8
        open("bad.tiles", "wb").write(bad)
        line = refused("tile-apply", "bad.tiles", "x.npy", "y.npy", outputs=["y.npy"])
        assert "bad.tiles" in line, f"byte {at}: {line}"
        if at % 3 == 0:
            refused("tile-info", "--verify", "bad.tiles")
    record(2, 8, f"one byte flipped, codec {codec}, every {every}. of {len(data)} bytes",
           "each is found by tile-info --verify and by tile-apply, exit 1")


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_store_is_found(store, codec):
    data = store(codec)
    for size in {0, 1, 7, 8, 63, 4095, 4096, len(data) // 2, len(data) - 4096, len(data) - 1}:
        open("bad.tiles", "wb").write(data[:size])
        refused("tile-info", "bad.tiles")
        refused("tile-apply", "bad.tiles", "x.npy", "y.npy", outputs=["y.npy"])
    open("bad.tiles", "wb").write(data + b"\0")
    refused("tile-info", "bad.tiles")


# Each command with what it writes; later ones use what earlier ones left.
JOBS = {
    "tile-convert": (["radon:9x16:16", "o.tiles", "--tile-size", "16K"], ["o.tiles"]),
    "ct-phantom": (["ellipses:3:16", "o.npy"], ["o.npy"]),
    "tile-apply": (["s.tiles", "x.npy", "o.npy"], ["o.npy"]),
    "tile-info": (["s.tiles", "--verify"], []),
    "stream-train": (
        ["--matrix", "s.tiles", "--data", "d.npy", "--model", "pixels", "--output-shape", "16x16",
         "--steps", "2", "--save", "o.safetensors", "--predict", "o.npy"],
        ["o.safetensors", "o.npy"],
    ),
}


@pytest.fixture(params=JOBS, ids=str)
def job(request, store, run):
    store("zstd")
    np.save("d.npy", np.ones((1, 144), np.float32))
    arguments, outputs = JOBS[request.param]
    return request.param, arguments, outputs


def visits():
    """1, 2, ... densely at first, then further and further apart."""
    n = 1
    while True:
        yield n
        n += 1 + n // 16


@pytest.mark.parametrize("site", ["alloc", "read", "write", "sync", "rename", "open"])
def test_each_failing_call(job, run, site):
    name, arguments, outputs = job
    run(name, *arguments)
    whole = {output: open(output, "rb").read() for output in outputs}
    failures = 0
    for n in visits():
        for output in outputs:
            if os.path.exists(output):
                os.remove(output)
        before = set(os.listdir())
        done = subprocess.run(
            command(name, *arguments), capture_output=True, text=True, timeout=60,
            env={**os.environ, "OOC_FAULT": f"{site}:{n}+"},
        )
        shown = f"{name}, {site} {n}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        if done.returncode == 0:
            assert all(os.path.exists(output) for output in outputs), shown
            break
        failures += 1
        assert done.returncode == 1, shown
        lines = error_lines(done)
        assert lines and all(line.startswith(f"{name}: ") for line in lines), shown
        # An output that was in place before the failure (of a later file, or of syncing the folder)
        # stays, and is complete.
        for extra in set(os.listdir()) - before:
            assert open(extra, "rb").read() == whole.get(extra), f"{shown}\n{extra}"
    wanted = {"read": name != "ct-phantom" and name != "tile-convert",
              "write": bool(outputs), "sync": bool(outputs), "rename": False}.get(site, True)
    assert failures or not wanted, f"{name} passes no {site}"


@pytest.mark.parametrize("site", ["short-read", "short-write", "eintr"])
def test_short_and_interrupted_calls_are_repeated(job, run, site):
    name, arguments, outputs = job
    run(name, *arguments)
    expected = [open(output, "rb").read() for output in outputs]
    for n in itertools.islice(visits(), 12):
        for output in outputs:
            os.remove(output)
        run(name, *arguments, env={"OOC_FAULT": f"{site}:{n}"})
        assert [open(output, "rb").read() for output in outputs] == expected, f"{site} {n}"


def limit_files(size):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


@pytest.mark.parametrize("job", [name for name in JOBS if JOBS[name][1]], indirect=True)
@pytest.mark.parametrize("size", [0, 100])
def test_file_size_limit(job, size):
    name, arguments, outputs = job
    before = set(os.listdir())
    done = subprocess.run(command(name, *arguments), capture_output=True, text=True,
                          preexec_fn=limit_files(size))
    assert done.returncode == 1 and done.stderr.startswith(f"{name}: "), done
    assert "large" in done.stderr or "space" in done.stderr, done
    assert set(os.listdir()) == before


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder],
                             capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_full_disk(run, small_disk):
    for name, arguments in {
        "tile-convert": ["radon:45x64:64", small_disk / "o.tiles"],
        "ct-phantom": ["ellipses:9:128", small_disk / "o.npy"],
    }.items():
        done = run(name, *arguments, code=1)
        assert "No space left" in done.stderr
        assert not list(small_disk.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_result_that_cannot_be_printed(job):
    name, arguments, _ = job
    with open("/dev/full", "w") as full:
        done = subprocess.run(command(name, *arguments, "--json"), stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "stdout" in done.stderr, done
