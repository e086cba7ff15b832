"""ct-phantom against an independent rendering in NumPy."""

import json

import numpy as np
import pytest

MASK = (1 << 64) - 1

# Toft's table, as the literature prints it: value, a, b, x0, y0, degrees.
TOFT = [
    (1.0, 0.69, 0.92, 0, 0, 0),
    (-0.8, 0.6624, 0.874, 0, -0.0184, 0),
    (-0.2, 0.11, 0.31, 0.22, 0, -18),
    (-0.2, 0.16, 0.41, -0.22, 0, 18),
    (0.1, 0.21, 0.25, 0, 0.35, 0),
    (0.1, 0.046, 0.046, 0, 0.1, 0),
    (0.1, 0.046, 0.046, 0, -0.1, 0),
    (0.1, 0.046, 0.023, -0.08, -0.605, 0),
    (0.1, 0.023, 0.023, 0, -0.606, 0),
    (0.1, 0.023, 0.046, 0.06, -0.605, 0),
]


def render(ellipses, size):
    centre = (2 * np.arange(size) + 1) / size - 1
    x, y = centre[None, :], -centre[:, None]
    image = np.zeros((size, size))
    for value, a, b, x0, y0, degrees in ellipses:
        t = np.deg2rad(degrees)
        along = (x - x0) * np.cos(t) + (y - y0) * np.sin(t)
        across = -(x - x0) * np.sin(t) + (y - y0) * np.cos(t)
        image += value * ((along / a) ** 2 + (across / b) ** 2 <= 1)
    return np.maximum(image, 0)


class SplitMix:
    def __init__(self, state):
        self.state = state

    def word(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def uniform(self, low, high):
        return low + (high - low) * (self.word() >> 11) / 2**53


def random_ellipses(seed, index):
    r = SplitMix((SplitMix(seed).word() + index) & MASK)
    for _ in range(10 + r.word() % 31):
        radius, direction = 0.75 * r.uniform(0, 1) ** 0.5, r.uniform(0, 2 * np.pi)
        a, b = r.uniform(0.02, 0.35), r.uniform(0.02, 0.35)
        degrees = np.rad2deg(r.uniform(0, np.pi))
        value = r.uniform(-0.3, 0.7)
        yield value, a, b, radius * np.cos(direction), radius * np.sin(direction), degrees


def check(image, expected):
    # A centre that lies on an ellipse's rim may fall to either side by rounding.
    wrong = np.abs(image - expected) > 1e-5
    assert wrong.sum() <= image.size // 5000, f"{wrong.sum()} pixels differ"
    assert image.min() >= 0 and expected.max() > 0.5


@pytest.mark.parametrize("size", [1, 2, 63, 256])
def test_shepp_logan(run, size):
    run("ct-phantom", f"shepp-logan:{size}", "head.npy")
    image = np.load("head.npy")
    assert image.dtype == np.float32 and image.shape == (1, size, size)
    if size > 2:
        check(image[0], render(TOFT, size))


def test_ellipses(run):
    run("ct-phantom", "ellipses:5:97", "e.npy", "--seed", 18446744073709551615)
    images = np.load("e.npy")
    assert images.dtype == np.float32 and images.shape == (5, 97, 97)
    for i, image in enumerate(images):
        check(image, render(random_ellipses(MASK, i), 97))
    assert len({image.tobytes() for image in images}) == 5


def test_seed_and_count(run):
    run("ct-phantom", "ellipses:4:32", "a.npy")
    run("ct-phantom", "ellipses:2:32", "b.npy", "--seed=0")
    run("ct-phantom", "ellipses:2:32", "c.npy", "--seed", 1)
    a, b, c = (np.load(f"{name}.npy") for name in "abc")
    assert (a[:2] == b).all() and not (b == c).all()


@pytest.mark.parametrize(
    "spec",
    ["ellipses:3", "ellipses:0:8", "ellipses:3:0", "ellipses:3:99999", "ellipses::8", "circle:8",
     "shepp-logan:", "shepp-logan:8:8", "shepp-logan:-8", "ellipses:4294967296:8"],
)
def test_bad_request(run, spec, tmp_path):
    done = run("ct-phantom", spec, "out.npy", code=2)
    assert spec in done.stderr
    assert not list(tmp_path.iterdir())


def test_compare(run):
    run("ct-phantom", "ellipses:3:40", "e.npy", "--seed", 4)
    images = np.load("e.npy")
    noisy = images + np.random.default_rng(0).normal(0, 0.1, images.shape).astype(np.float32)
    np.save("noisy.npy", noisy.reshape(3, 1600))
    done = run("ct-phantom", "ellipses:3:40", "--seed", 4, "--compare", "noisy.npy", "--json")
    mse = ((noisy - images.astype(np.float64)) ** 2).mean()
    got = json.loads(done.stdout)
    assert got["psnr"] == pytest.approx(10 * np.log10(images.max() ** 2 / mse), abs=1e-4)
    assert got["mse"] == pytest.approx(mse, rel=1e-6)
    same = run("ct-phantom", "ellipses:3:40", "--seed", 4, "--compare", "e.npy", "--json")
    assert json.loads(same.stdout) == {"psnr": None, "mse": 0, "peak": pytest.approx(images.max())}


@pytest.mark.parametrize(
    "array", [np.zeros((2, 8, 8)), np.zeros((3, 8, 8), np.float32), np.zeros((2, 8, 8), ">f4")]
)
def test_compare_refuses_other_arrays(run, array):
    np.save("a.npy", array)
    assert "a.npy" in run("ct-phantom", "ellipses:2:8", "--compare", "a.npy", code=2).stderr


def test_compare_or_write(run):
    run("ct-phantom", "ellipses:2:8", code=2)
    run("ct-phantom", "ellipses:2:8", "a.npy", "--compare", "a.npy", code=2)
    run("ct-phantom", "ellipses:2:8", "--compare", "none.npy", code=1)


@pytest.mark.parametrize("fault", ["write:2+", "sync:1", "rename:1", "open:1+", "alloc:1"])
def test_a_failure_leaves_nothing(run, fault, tmp_path):
    run("ct-phantom", "ellipses:3:64", "out.npy", env={"OOC_FAULT": fault}, code=1)
    assert not list(tmp_path.iterdir())
