"""What one training step through A costs: PyTorch's sparse COO product against tiles from disk.

    coo_backward.py [--matrix radon:360x192:256] [--build BUILD] [--steps 5] [--vram-budget 16M] ...

Prints a Markdown table: seconds and extra memory of forward and backward in PyTorch, seconds and
peak memory of stream-train (model pixels: next to nothing but A in a step). README.md quotes it.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import numpy as np
import torch

TREE = pathlib.Path(__file__).resolve().parents[2]


def radon(views, detectors, size):
    """The matrix that DESIGN calls radon:VxD:S (parallel beam, Joseph) as COO parts."""
    parts = []
    centre = np.arange(size) - (size - 1) / 2
    for view in range(views):
        c, s = np.cos(np.pi * view / views), np.sin(np.pi * view / views)
        offset = (np.arange(detectors) - (detectors - 1) / 2) * size / detectors
        along_x = abs(s) > abs(c)
        main, other = (c, s) if along_x else (s, c)
        position = (offset[:, None] - centre[None, :] * main) / other + (size - 1) / 2
        low = np.floor(position).astype(np.int64)
        for shift, weight in ((0, low + 1 - position), (1, position - low)):
            cross = low + shift
            keep = (cross >= 0) & (cross < size) & (weight != 0)
            ray, step = np.nonzero(keep)
            at = cross[keep]
            column = at * size + step if along_x else step * size + at
            parts.append((view * detectors + ray, column, (weight[keep] / abs(other))))
    rows, columns, values = (np.concatenate(part) for part in zip(*parts))
    return rows, columns, values.astype(np.float32), (views * detectors, size * size)


class Memory:
    """Peak resident memory of this process above what was there at the beginning."""

    @staticmethod
    def status(key):
        return int(re.search(rf"{key}:\s+(\d+) kB", open("/proc/self/status").read())[1]) * 1024

    def __enter__(self):
        open("/proc/self/clear_refs", "w").write("5")  # resets VmHWM
        self.begin, self.clock = self.status("VmRSS"), time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self.clock
        self.extra = self.status("VmHWM") - self.begin


def pytorch(rows, columns, values, shape, steps):
    torch.sparse.check_sparse_tensor_invariants.disable()
    A = torch.sparse_coo_tensor(np.stack([rows, columns]), values, shape).coalesce()
    del rows, columns, values
    x = torch.rand(shape[1], 1, requires_grad=True)
    target = torch.rand(shape[0], 1)
    forward, backward = [], []
    for _ in range(steps):
        x.grad = None
        with Memory() as m:
            loss = torch.nn.functional.mse_loss(torch.sparse.mm(A, x), target)
        forward.append((m.seconds, m.extra))
        with Memory() as m:
            loss.backward()
        backward.append((m.seconds, m.extra))
    return np.median(forward, axis=0), np.median(backward, axis=0)


def streamed(args, folder, rows):
    def tool(name, *options):
        subprocess.run([str(args.build / "bin" / name), *options], check=True, cwd=folder)

    tool("tile-convert", args.matrix, "a.tiles")
    np.save(folder / "d.npy", np.random.default_rng(0).random((1, rows), np.float32))
    size = args.matrix.split(":")[2]
    tool("stream-train", "--matrix", "a.tiles", "--data", "d.npy", "--model", "pixels",
         "--output-shape", f"{size}x{size}", "--steps", str(args.steps + 1), "--log", "log.jsonl",
         "--vram-budget", args.vram_budget, "--ram-budget", args.ram_budget, "--threads",
         str(args.threads), "--quiet")
    lines = [json.loads(line) for line in open(folder / "log.jsonl")]
    seconds = np.median([line["seconds"] for line in lines if "step" in line][1:])
    return seconds, lines[-1]["process_peak_bytes"], lines[-1]["stored_bytes"]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--matrix", default="radon:360x192:256")
    p.add_argument("--build", type=pathlib.Path, default=TREE / "build")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--vram-budget", default="16M")
    p.add_argument("--ram-budget", default="16M")
    args = p.parse_args()
    args.build = args.build.resolve()
    torch.set_num_threads(args.threads)
    rows, columns, values, shape = radon(*map(int, re.split("[x:]", args.matrix)[1:]))
    coo = 20 * len(values)
    print(f"{args.matrix}: {shape[0]} x {shape[1]}, {len(values)} entries, {args.threads} threads, "
          f"PyTorch {torch.__version__}\n")
    forward, backward = pytorch(rows, columns, values, shape, args.steps)
    with tempfile.TemporaryDirectory() as folder:
        seconds, peak, file_bytes = streamed(args, pathlib.Path(folder).resolve(), shape[0])
    mib = 1 << 20
    print("| | seconds | memory |\n|---|---|---|")
    print(f"| A as PyTorch COO | | {coo / mib:.0f} MiB |")
    for name, (s, extra) in (("forward", forward), ("backward", backward)):
        print(f"| PyTorch {name} | {s:.3f} | {extra / mib:.0f} MiB on top ({extra / coo:.2f} x A) |")
    print(f"| A as tiles, on disk | | {file_bytes / mib:.0f} MiB |")
    print(f"| stream-train, one step ({args.vram_budget} + {args.ram_budget}) | {seconds:.3f} | "
          f"{peak / mib:.0f} MiB, the whole process |")


if __name__ == "__main__":
    main()
