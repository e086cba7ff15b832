"""What original.py and streamed.py share: the model, the options, the data, the meter."""

import argparse
import json
import time
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Pair(nn.Sequential):
    """Two 3 x 3 convolutions, each with ReLU."""

    def __init__(self, before, after):
        super().__init__(nn.Conv2d(before, after, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(after, after, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    """From a sinogram to an image: (B, *input_shape) -> (B, *output_shape)."""

    def __init__(self, channels, output_shape):
        super().__init__()
        self.output_shape = output_shape
        self.down = nn.ModuleList(Pair(a, b) for a, b in zip([1, *channels], channels))
        self.up = nn.ModuleList(Pair(a + b, a) for a, b in zip(channels, channels[1:]))
        self.last = nn.Conv2d(channels[0], 1, 1)

    def forward(self, x):
        x = x[:, None]
        levels = []
        for pair in self.down:
            x = pair(F.max_pool2d(x, 2) if levels else x)
            levels.append(x)
        for pair, skip in zip(reversed(self.up), reversed(levels[:-1])):
            x = F.interpolate(x, size=skip.shape[2:], mode="nearest")
            x = pair(torch.cat([x, skip], 1))
        x = self.last(x)
        return F.interpolate(x, size=self.output_shape, mode="bilinear")[:, 0]


def options(about):
    def shape(text):
        height, width = text.split("x")
        return int(height), int(width)

    p = argparse.ArgumentParser(description=about)
    p.add_argument("--matrix", required=True, help="original.py: SciPy's .npz (CSR); streamed.py: a tile store")
    p.add_argument("--data", required=True, help="sinograms: a .npy file, (n, views, detectors)")
    p.add_argument("--image", required=True, type=shape, help="HEIGHTxWIDTH of the image")
    p.add_argument("--channels", default="16,32,64", help="of the U-Net, finest level first")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cpu", help="of the model: cpu, cuda:0, ...")
    p.add_argument("--matrix-device", default=None, help="of the matrix; default: as the model")
    p.add_argument("--vram-budget", default="512M", help="streamed.py: most memory on that device")
    p.add_argument("--ram-budget", default="256M", help="streamed.py: most memory on the host")
    options = p.parse_args()
    options.channels = [int(c) for c in options.channels.split(",")]
    options.matrix_device = options.matrix_device or options.device
    return options


def load_coo(path, device):
    """SciPy's .npz (CSR) as PyTorch's COO tensor: 20 bytes an entry."""
    with np.load(path) as f:
        rows = np.repeat(np.arange(f["shape"][0]), np.diff(f["indptr"]))
        indices = torch.from_numpy(np.stack([rows, f["indices"].astype(np.int64)]))
        values = torch.from_numpy(f["data"].astype(np.float32))
        shape = tuple(int(n) for n in f["shape"])
    return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True,
                                   check_invariants=False).to(device)


def start(options):
    """Model, optimizer and sinograms."""
    torch.manual_seed(options.seed)
    model = UNet(options.channels, options.image).to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), options.lr)
    return model, optimizer, np.load(options.data, mmap_mode="r")


def memory(field):
    """VmRSS or VmHWM of this process, in bytes."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field))


class Meter:
    """Time through the matrix and peak memory, on a line of JSON a step."""

    def __init__(self, device):
        self.cuda = torch.device(device).type == "cuda"
        self.device = device
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")  # VmHWM begins anew: what loading took does not count
        if self.cuda:
            torch.cuda.reset_peak_memory_stats(device)

    def now(self):
        if self.cuda:
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @contextmanager
    def through_matrix(self, image):
        """Around the product; what its backward takes is added by hooks."""
        begin = self.now()
        result = []
        yield result.append
        self.forward = self.now() - begin
        (y,) = result
        y.register_hook(lambda g: setattr(self, "reached", self.now()))
        image.register_hook(lambda g: setattr(self, "backward", self.now() - self.reached))

    def report(self, step, loss):
        line = {"step": step, "loss": loss.item(), "forward": self.forward,
                "backward": self.backward, "peak": memory("VmHWM")}
        if self.cuda:
            line["peak_device"] = torch.cuda.max_memory_allocated(self.device)
        print(json.dumps(line), flush=True)
