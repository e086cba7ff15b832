"""Run original.py and streamed.py on the same data; print loss by loss, time and peak memory.

The matrix is a CT matrix that is made here, the data are projections of random ellipses. Memory is
what a process holds at most while it trains, less that of the same model without a matrix.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import streamtrain

HERE = Path(__file__).resolve().parent

# The same model, trained on something that needs no matrix: what memory the model takes by itself.
MODEL_ALONE = """
import sys
sys.path.insert(0, {here!r})
import torch
from parts import Meter, options, start
o = options("")
model, optimizer, data = start(o)
meter = Meter(o.device)
for step in range(min(o.steps, 3)):
    image = model(torch.tensor(data[0][None], device=o.device)).flatten(1).T
    with meter.through_matrix(image) as measured:
        y = 2 * image
        measured(y)
    loss = y.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    meter.report(step, loss)
"""


def ellipses(count, size, seed):
    """Images of some random ellipses each, (count, size * size)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    images = np.zeros((count, size, size), np.float32)
    for image in images:
        for _ in range(rng.integers(3, 9)):
            cx, cy = rng.uniform(-0.5, 0.5, 2)
            a, b = rng.uniform(0.05, 0.4, 2)
            turn = rng.uniform(0, np.pi)
            u = (x - cx) * np.cos(turn) + (y - cy) * np.sin(turn)
            v = (y - cy) * np.cos(turn) - (x - cx) * np.sin(turn)
            image[(u / a) ** 2 + (v / b) ** 2 < 1] += rng.uniform(0.1, 1)
    return images.reshape(count, -1)


def make_data(o, folder):
    """The matrix as a store and as .npz, and sinograms."""
    streamtrain.convert(f"radon:{o.views}x{o.detectors}:{o.size}", folder / "ct.tiles")
    streamtrain.convert(folder / "ct.tiles", folder / "ct.npz")
    with streamtrain.open(folder / "ct.tiles", device="cpu", ram_budget="256M") as A:
        sinograms = (A @ ellipses(4, o.size, o.seed).T).T / o.size
        print(f"A: {A.shape[0]} x {A.shape[1]}, {A.nnz} entries; as COO tensor "
              f"{20 * A.nnz / 1e9:.2f} GB, as a store {A.stored_bytes / 1e9:.2f} GB")
    np.save(folder / "data.npy", sinograms.reshape(-1, o.views, o.detectors))


def run(command, o, folder, matrix):
    """The lines of one run."""
    arguments = [
        "--matrix", folder / matrix, "--data", folder / "data.npy", "--image", f"{o.size}x{o.size}",
        "--channels", o.channels, "--steps", o.steps, "--seed", o.seed, "--device", o.device,
        "--vram-budget", o.vram_budget, "--ram-budget", o.ram_budget,
    ]
    if o.matrix_device:
        arguments += ["--matrix-device", o.matrix_device]
    done = subprocess.run([sys.executable, *command, *map(str, arguments)], stdout=subprocess.PIPE,
                          text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def median(values):
    return sorted(values)[len(values) // 2]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--views", type=int, default=360)
    p.add_argument("--detectors", type=int, default=192)
    p.add_argument("--size", type=int, default=256, help="of the image, in pixels")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--channels", default="16,32,64")
    p.add_argument("--device", default="cpu")
    p.add_argument("--matrix-device")
    p.add_argument("--vram-budget", default="32M")
    p.add_argument("--ram-budget", default="32M")
    p.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    p.add_argument("--tmp", help="folder for the matrix and the data")
    o = p.parse_args()

    with tempfile.TemporaryDirectory(dir=o.tmp) as name:
        folder = Path(name)
        if o.json:
            sys.stdout = sys.stderr
        make_data(o, folder)
        original = run([HERE / "original.py"], o, folder, "ct.npz")
        streamed = run([HERE / "streamed.py"], o, folder, "ct.tiles")
        alone = run(["-c", MODEL_ALONE.format(here=str(HERE))], o, folder, "none")
        sys.stdout = sys.__stdout__

    peak = "peak_device" if "peak_device" in original[0] else "peak"
    base = alone[-1][peak]
    figures = {
        "losses": [[a["loss"], b["loss"]] for a, b in zip(original, streamed)],
        "worst_difference": max(abs(a["loss"] - b["loss"]) / abs(a["loss"])
                                for a, b in zip(original, streamed)),
        "seconds_through_matrix": [median([x["forward"] + x["backward"] for x in r[1:] or r])
                                   for r in (original, streamed)],
        "peak_beyond_model": [r[-1][peak] - base for r in (original, streamed)],
        "model_peak": base,
    }
    if o.json:
        print(json.dumps(figures))
        return
    print("step     original     streamed")
    for step, (a, b) in enumerate(figures["losses"]):
        print(f"{step:4d} {a:12.6g} {b:12.6g}")
    print(f"losses differ by at most {figures['worst_difference']:.1e} (relative)")
    for what, unit, scale in (("seconds_through_matrix", "s a step through A", 1),
                              ("peak_beyond_model", "MB beyond the model", 1e6)):
        a, b = (v / scale for v in figures[what])
        ratio = a / b if b > 0 else math.inf
        print(f"original {a:.3f}, streamed {b:.3f} {unit}: {ratio:.1f} times less")


if __name__ == "__main__":
    main()
