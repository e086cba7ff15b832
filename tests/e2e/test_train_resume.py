"""Checkpoints of stream-train: a run that was stopped, killed or starved goes on bit for bit."""

import os
import random
import re
import signal
import time

import numpy as np
import pytest
import scipy.sparse

from training import ENV, model_document, random_matrix, read_safetensors

M, N, SAMPLES = 280, 256, 7
MODELS = {"unet": ["--model", "unet", "--channels", "3,5", "--input-shape", "14x20"],
          "mlp": ["--model", "mlp", "--hidden", "9"], "pixels": ["--model", "pixels"]}
OPTIMIZERS = {"adam": ["--optimizer", "adam", "--weight-decay", "0.01"],
              "sgd": ["--optimizer", "sgd", "--momentum", "0.9"], "plain": ["--optimizer", "sgd"]}


@pytest.fixture
def args(run):
    rng = np.random.default_rng(3)
    A = random_matrix(M, N, 12, 4)
    scipy.sparse.save_npz("a.npz", A)
    run("tile-convert", "--tile-size", 4096, "a.npz", "a.tiles")
    data = np.ascontiguousarray((A @ rng.random((N, SAMPLES), dtype=np.float32)).T)
    np.save("x.npy", data)
    # small steps: a second thread would mostly wait for the processors that tests share
    return ["--matrix", "a.tiles", "--data", "x.npy", "--threads", 1]


def content(path):
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("batch", [1, 3])
def test_resume_is_the_same_run(model, optimizer, batch, args, run):
    """Stopped inside the first epoch, at an epoch's end, and later."""
    args = [*args, *MODELS[model], *OPTIMIZERS[optimizer], "--batch-size", batch, "--seed", 11,
            "--warmup-steps", 4]
    run("stream-train", *args, "--steps", 17, "--save", "whole.safetensors", env=ENV)
    at, more = 0, []
    for stop in (2, 3, 7, 14, 17):
        run("stream-train", *args, *more, "--steps", stop, "--save", "part.safetensors", "--log",
            "run.jsonl", env=ENV)
        more = ["--resume", "part.safetensors"]
        meta = read_safetensors("part.safetensors")[1]
        assert meta["step"] == str(stop) and at < stop
        at = stop
    assert content("part.safetensors") == content("whole.safetensors")
    steps = re.findall(r'"step": (\d+)', content("run.jsonl").decode())
    assert steps == [str(i) for i in range(1, 18)]


def test_resume_and_validation(args, run):
    """The validation set has its own order and does not disturb the other."""
    args = [*args, *MODELS["mlp"], "--val", "x.npy", "--batch-size", 2]
    run("stream-train", *args, "--epochs", 4, "--save", "whole.safetensors", env=ENV)
    run("stream-train", *args, "--epochs", 2, "--save", "part.safetensors", env=ENV)
    run("stream-train", *args, "--epochs", 4, "--save", "part.safetensors", "--resume",
        "part.safetensors", env=ENV)
    assert content("part.safetensors") == content("whole.safetensors")


@pytest.mark.parametrize("other, words", [
    (["--seed", 1], "--seed 0, this one has 1"),
    (["--batch-size", 2], "--batch-size 1, this one has 2"),
    (["--optimizer", "sgd"], "--optimizer adam, this one has sgd"),
    (["--model", "pixels"], "--model mlp, this one has pixels"),
])
def test_another_run_is_refused(other, words, args, run):
    run("stream-train", *args, *MODELS["mlp"], "--steps", 1, "--save", "a.safetensors", env=ENV)
    mlp = [] if "--model" in other else MODELS["mlp"]
    done = run("stream-train", *args, *mlp, *other, "--steps", 2, "--resume", "a.safetensors",
               env=ENV, code=2)
    assert words in done.stderr


def test_damaged_checkpoint(args, run):
    args = [*args, *MODELS["mlp"]]
    run("stream-train", *args, "--steps", 1, "--save", "a.safetensors", env=ENV)
    whole = content("a.safetensors")
    for keep in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        with open("cut.safetensors", "wb") as file:
            file.write(whole[:keep])
        done = run("stream-train", *args, "--resume", "cut.safetensors", env=ENV, code=1)
        assert "cut.safetensors" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals(number, args, run, start, tmp_path):
    args = [*args, *MODELS["unet"], "--steps", 2000, "--schedule", "cosine", "--batch-size", 2]
    process = start("stream-train", *args, "--save", "a.safetensors", "--log", "run.jsonl", "--json",
                    env=ENV)
    wait_for_steps(tmp_path / "run.jsonl", 3)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"--resume a.safetensors" in err and b'"interrupted": true' in out
    step = int(read_safetensors("a.safetensors")[1]["step"])
    assert 3 <= step < 2000
    assert leftovers(tmp_path) == set()
    # the rate depends on the number of steps, so a shorter whole run would be another one
    for more in ([], ["--resume", "a.safetensors"]):
        run("stream-train", *args, *more, "--save", f"b{len(more)}.safetensors", env=ENV)
    assert content("b0.safetensors") == content("b2.safetensors")


def wait_for_steps(path, n):
    for _ in range(3000):
        if path.exists() and path.read_bytes().count(b"\n") >= n:
            return
        time.sleep(0.01)
    raise AssertionError(f"no {n} steps in {path}")


def leftovers(folder):
    known = {"a.npz", "a.tiles", "x.npy", "a.safetensors", "whole.safetensors", "run.jsonl"}
    return {path.name for path in folder.iterdir()} - known


def kill_at_random(rounds, args, run, start, tmp_path):
    """Kill and resume until the run is through; returns how many kills found it running."""
    steps, kills = 400, 0
    args = [*args, *MODELS["unet"], "--steps", steps, "--checkpoint-every", 1]
    run("stream-train", *args, "--save", "whole.safetensors", env=ENV)
    rng = random.Random(rounds)
    while kills < rounds:
        if os.path.exists("a.safetensors"):
            os.remove("a.safetensors")
        for _ in range(steps):
            more = ["--resume", "a.safetensors"] if os.path.exists("a.safetensors") else []
            process = start("stream-train", *args, *more, "--save", "a.safetensors", env=ENV)
            time.sleep(rng.uniform(0.02, 0.25))
            running = process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert leftovers(tmp_path) == set()
            if os.path.exists("a.safetensors"):
                read_safetensors("a.safetensors")
            if not running:
                assert process.returncode == 0
                break
            kills += 1
        assert content("a.safetensors") == content("whole.safetensors")
    return kills


def test_kill(args, run, start, tmp_path):
    assert kill_at_random(3, args, run, start, tmp_path) >= 3


@pytest.mark.full
def test_kill_fifty_times(args, run, start, tmp_path, record):
    kills = kill_at_random(50, args, run, start, tmp_path)
    record(2, 7, "kill -9 of a training run, then --resume", f"{kills} kills, the same weights")


@pytest.mark.parametrize("site", ["read", "short-read", "eintr", "open", "write", "short-write",
                                  "sync", "rename", "alloc"])
def test_faults(site, args, run, tmp_path):
    """Every visit fails once: exit 1 and one line, and the checkpoint is whole, old or new."""
    args = [*args, *MODELS["mlp"], "--steps", 3, "--log", "run.jsonl", "--predict", "f.npy"]
    run("stream-train", *args, "--save", "whole.safetensors", env=ENV)
    whole, harmless = content("whole.safetensors"), {"short-read", "eintr", "short-write"}
    for nth in range(1, 400):
        with open("a.safetensors", "wb") as file:
            file.write(b"old")
        done = run_either("stream-train", *args, "--save", "a.safetensors",
                          env={**ENV, "OOC_FAULT": f"{site}:{nth}"}, run=run)
        assert content("a.safetensors") in (b"old", whole)
        if done.returncode == 0:
            assert content("a.safetensors") == whole
            if site not in harmless:
                break
        if site in harmless:
            assert done.returncode == 0, done.stderr
            if nth > 30:
                break
    else:
        raise AssertionError("never came through")


def run_either(*command, env, run):
    """Success, or failure with one line."""
    try:
        return run(*command, env=env)
    except AssertionError:
        return run(*command, env=env, code=1)


def test_order_is_as_documented():
    order = model_document()["sample_order"]
    assert sorted(order(100, 1, 0)) == list(range(100))
    assert order(100, 1, 0) != order(100, 1, 1) != order(100, 2, 1)
