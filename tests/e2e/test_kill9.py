"""kill -9 at random moments: no half store is ever seen, and resumed training ends with the very
weights of an undisturbed run."""

import json
import os
import random
import shutil
import subprocess
import time

import pytest

pytestmark = pytest.mark.heavy  # the moments are chosen for an unsanitized build
COUNTS = [pytest.param(5), pytest.param(50, marks=pytest.mark.full)]


def seconds_of(run, *args):
    begin = time.monotonic()
    run(*args)
    return time.monotonic() - begin


def kill_after(process, seconds):
    """True if the process was still running."""
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


@pytest.mark.parametrize("count", COUNTS)
def test_conversion(run, start, record, tmp_path, count):
    moments = random.Random(7)
    old_args = ("tile-convert", "radon:20x64:64", "old.tiles")
    args = ("tile-convert", "radon:180x192:128", "ct.tiles", "--tile-size", "256K",
            "--codec", "zstd:9", "--force", "--tmp", tmp_path)
    run(*old_args)
    usual = seconds_of(run, *args)
    whole = (tmp_path / "ct.tiles").read_bytes()
    old = (tmp_path / "old.tiles").read_bytes()
    os.remove("ct.tiles")
    killed = seen = 0
    for i in range(count):
        replaces = i % 2 == 1  # every other time there is an older store under the name
        if replaces:
            shutil.copy("old.tiles", "ct.tiles")
        killed += kill_after(start(*args), moments.uniform(0, 1.1 * usual))
        allowed = [whole, old] if replaces else [whole]
        files = set(os.listdir())
        assert files <= {"old.tiles", "ct.tiles"}, f"run {i}: left behind: {files}"
        assert "ct.tiles" in files or not replaces
        if "ct.tiles" in files:
            seen += 1
            assert (tmp_path / "ct.tiles").read_bytes() in allowed, f"run {i}: a half store"
            os.remove("ct.tiles")
    assert killed > count // 3
    record(2, 7, f"kill -9 of {count} conversions at random moments",
           f"{killed} killed while running, {seen} stores seen, all complete; nothing left behind")


def tensors(path):
    data = open(path, "rb").read()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return {name: body[slice(*t["data_offsets"])] for name, t in header.items()}


@pytest.mark.parametrize("count", COUNTS)
def test_training(run, start, record, count):
    moments = random.Random(8)
    run("tile-convert", "radon:24x32:32", "ct.tiles", "--tile-size", "64K")
    run("ct-phantom", "ellipses:6:32", "e.npy")
    run("tile-apply", "--samples", "ct.tiles", "e.npy", "d.npy")

    def args(name):
        return ("stream-train", "--matrix", "ct.tiles", "--data", "d.npy", "--model", "unet",
                "--channels", "4,8", "--input-shape", "24x32", "--output-shape", "32x32", "--steps",
                "40", "--checkpoint-every", "3", "--save", name, "--seed", "5", "--quiet")

    usual = seconds_of(run, *args("whole.safetensors"))
    expected = tensors("whole.safetensors")
    assert len(expected) > 10
    killed = resumed = 0
    for i in range(count):
        name = f"run{i}.safetensors"
        killed += kill_after(start(*args(name)), moments.uniform(0.1, 1.0) * usual)
        more = ()
        if os.path.exists(name):
            resumed += 1
            more = ("--resume", name)
        run(*args(name), *more)
        got = tensors(name)
        assert got.keys() == expected.keys()
        assert all(got[key] == expected[key] for key in expected), f"run {i}: other weights"
        os.remove(name)
    left = [name for name in os.listdir() if name.startswith("run")]
    assert not left
    assert killed > count // 3
    record(2, 7, f"kill -9 of {count} training runs at random moments, then --resume",
           f"{killed} killed while running, {resumed} resumed from a checkpoint; weights and "
           "optimizer state bit-identical")
