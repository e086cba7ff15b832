"""Budgets are hard: the smallest possible ones work, one byte less is refused before any work, and
the process's own peak stays within them. The 6 GB case with --full."""

import json
import os
import re

import numpy as np
import pytest

MIB = 1 << 20
# What a process may hold beside both budgets: code, libraries, stacks, the index of the store.
OUTSIDE = 96 * MIB


def training(matrix, data, model, *more):
    return ("stream-train", "--matrix", matrix, "--data", data, "--model", *model, "--batch-size", "1",
            "--seed", "3", "--quiet", *more)


def steps_of(path):
    return [line for line in map(json.loads, open(path)) if "step" in line and "loss" in line]


def smallest(run, args, option, other):
    """The least bytes that `option` may have, found in the refusal's own words."""
    done = run(*args, option, "1", *other, code=2)
    match = re.search(rf"{option}.*?at least (\d+) bytes are needed", done.stderr)
    assert match, done.stderr
    assert re.search(r"\(.*\d.*,.*\d.*\)", done.stderr), f"no parts: {done.stderr}"
    return int(match[1])


def check_smallest(run, args, log):
    vram = smallest(run, args, "--vram-budget", ("--ram-budget", "1G"))
    ram = smallest(run, args, "--ram-budget", ("--vram-budget", "4G"))
    before = sorted(os.listdir())
    for v, r in ((vram - 1, ram), (vram, ram - 1)):
        run(*args, "--vram-budget", v, "--ram-budget", r, code=2)
        assert sorted(os.listdir()) == before, "work was begun"
    run(*args, "--vram-budget", vram, "--ram-budget", ram, timeout=600)
    for line in steps_of(log):
        assert line["device_peak_bytes"] <= vram and line["host_peak_bytes"] <= ram
    return vram, ram


MODELS = {
    "unet": ("unet", "--channels", "4,8", "--input-shape", "24x32", "--output-shape", "32x32"),
    "mlp": ("mlp", "--hidden", "16", "--output-shape", "32x32"),
    "pixels": ("pixels", "--output-shape", "32x32"),
}


@pytest.mark.parametrize("model", MODELS)
def test_smallest_budgets(run, model):
    run("tile-convert", "radon:24x32:32", "ct.tiles", "--tile-size", "32K")
    np.save("d.npy", np.random.default_rng(0).random((2, 768), np.float32))
    args = training("ct.tiles", "d.npy", MODELS[model], "--steps", "3", "--log", "log.jsonl")
    check_smallest(run, args, "log.jsonl")
    wide = (*args[:-1], "wide.jsonl")
    run(*wide, "--vram-budget", "64M", "--ram-budget", "64M")
    assert [s["loss"] for s in steps_of("log.jsonl")] == [s["loss"] for s in steps_of("wide.jsonl")]


@pytest.mark.parametrize("direction", [(), ("--transpose",)])
def test_smallest_budgets_of_apply(run, direction):
    run("tile-convert", "radon:24x32:32", "ct.tiles", "--tile-size", "32K")
    np.save("x.npy", np.ones(768 if direction else 1024, np.float32))
    args = ("tile-apply", "ct.tiles", "x.npy", "y.npy", *direction)
    vram = smallest(run, args, "--vram-budget", ())
    ram = smallest(run, args, "--ram-budget", ())
    for v, r in ((vram - 1, ram), (vram, ram - 1)):
        run(*args, "--vram-budget", v, "--ram-budget", r, code=2)
        assert not os.path.exists("y.npy")
    run(*args, "--vram-budget", vram, "--ram-budget", ram)
    least = np.load("y.npy")
    run(*args)
    assert least.tobytes() == np.load("y.npy").tobytes()


@pytest.mark.heavy
def test_peak_of_the_process(run, measure):
    run("tile-convert", "radon:180x192:256", "ct.tiles", "--tile-size", "1M")
    np.save("d.npy", np.random.default_rng(0).random((2, 34560), np.float32))
    args = training("ct.tiles", "d.npy", ("pixels", "--output-shape", "256x256"), "--steps", "4",
                    "--log", "log.jsonl", "--vram-budget", "24M", "--ram-budget", "8M")
    peak = measure(*args).peak_bytes
    assert peak <= 32 * MIB + OUTSIDE, f"{peak / MIB:.1f} MiB"
    assert all(line["device_peak_bytes"] <= 24 * MIB for line in steps_of("log.jsonl"))


@pytest.mark.full
@pytest.mark.heavy
def test_the_6_gb_case(run, measure, record):
    took = measure("tile-convert", "radon:700x384:640", "ct640.tiles")
    info = json.loads(run("tile-info", "--json", "ct640.tiles").stdout)
    each = info["file_bytes"] / info["entries"]
    record(2, 1, "tile-convert radon:700x384:640",
           f"{took.seconds:.1f} s, {took.peak_bytes / MIB:.0f} MiB peak, {info['entries']} entries, "
           f"{each:.3f} bytes an entry")
    np.save("d.npy", np.random.default_rng(0).random((1, 700 * 384), np.float32))
    unet = ("unet", "--channels", "16,32,64", "--input-shape", "700x384", "--output-shape", "640x640")
    args = training("ct640.tiles", "d.npy", unet, "--log", "log.jsonl")
    trained = measure(*args, "--steps", "20", "--vram-budget", "512M", "--ram-budget", "256M")
    lines = steps_of("log.jsonl")
    printed = max(line["device_peak_bytes"] + line["host_peak_bytes"] for line in lines)
    record(2, 2, "stream-train unet, --vram-budget 512M --ram-budget 256M, 20 steps",
           f"loss {lines[0]['loss']:.6g} to {lines[-1]['loss']:.6g}; peak resident "
           f"{trained.peak_bytes / MIB:.0f} MiB, printed {printed / MIB:.0f} MiB; "
           f"{np.median([line['seconds'] for line in lines]):.2f} s a step")
    vram, ram = check_smallest(run, (*args, "--steps", "2"), "log.jsonl")
    record(2, 3, "smallest budgets of the same run",
           f"--vram-budget {vram} --ram-budget {ram} work, one byte less of either is refused")
    assert took.seconds <= 45 and took.peak_bytes <= 512 * MIB and each <= 1.5
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert trained.peak_bytes <= (512 + 256) * MIB + OUTSIDE
    assert abs(trained.peak_bytes - printed) <= OUTSIDE
