"""Matrices that end-to-end tests multiply by: small, of every awkward shape, made from seeds.

Values are float32 numbers, so that a store keeps them as they are.
"""

import numpy as np
import scipy.sparse as sp


def joseph(views, detectors, size):
    """The CT matrix that DESIGN calls radon:VIEWSxDETECTORS:SIZE, in float64, straight from the words:
    step along the axis that the ray follows more closely (a tie: along rows), interpolate linearly on
    the other, weight by the step's length."""
    rows, cols, vals = [], [], []
    centre, spacing = (size - 1) / 2, size / detectors
    steps = np.arange(size)
    for view in range(views):
        angle = np.pi * view / views
        cos, sin = np.cos(angle), np.sin(angle)
        for detector in range(detectors):
            s = (detector - (detectors - 1) / 2) * spacing
            along_rows = abs(cos) >= abs(sin)  # the ray's direction is (-sin, cos)
            if along_rows:
                at = (s - (steps - centre) * sin) / cos + centre
            else:
                at = (s - (steps - centre) * cos) / sin + centre
            low = np.floor(at).astype(np.int64)
            weight = at - low
            length = 1 / max(abs(cos), abs(sin))
            for index, w in ((low, 1 - weight), (low + 1, weight)):
                inside = (index >= 0) & (index < size) & (w > 0)
                i, k = index[inside], steps[inside]
                cols.append(k * size + i if along_rows else i * size + k)
                rows.append(np.full(i.size, view * detectors + detector))
                vals.append(w[inside] * length)
    shape = (views * detectors, size * size)
    entries = (np.concatenate(vals), (np.concatenate(rows), np.concatenate(cols)))
    return sp.coo_matrix(entries, shape=shape).tocsr()


def power_law(n, mean, rng):
    """A graph whose degrees follow a power law, in both directions."""
    weight = 1 / np.arange(1, n + 1) ** 0.8
    weight /= weight.sum()
    m = n * mean
    i, j = rng.choice(n, m, p=weight), rng.choice(n, m, p=weight)
    return sp.coo_matrix((rng.random(m) + 0.5, (rng.permutation(n)[i], j)), shape=(n, n)).tocsr()


def banded(n, half, rng):
    offsets = range(-half, half + 1)
    return sp.diags([rng.standard_normal(n - abs(k)) for k in offsets], offsets, shape=(n, n)).tocsr()


def rand(m, n, density, rng):
    return sp.random(m, n, density, "csr", random_state=rng, data_rvs=rng.standard_normal)


def with_holes(m, n, rng):
    """Blocks of empty rows and columns, also the first and the last ones."""
    a = rand(m, n, 0.03, rng).tolil()
    a[: m // 5] = 0
    a[m // 2 : m // 2 + 40] = 0
    a[-7:] = 0
    a = a.tocsc()
    keep = np.ones(n)
    keep[: n // 4] = keep[-3:] = 0
    return (a @ sp.diags(keep)).tocsr()


def small_integers(m, n, rng):
    """Sums stay far below 2^24: every product is exact."""
    a = sp.random(m, n, 0.05, "csr", random_state=rng)
    a.data = rng.integers(-8, 9, a.nnz).astype(float)
    return a


def all_matrices():
    """{name: CSR matrix of float32 values}"""
    rng = np.random.default_rng(20)
    one_long = rand(50, 30000, 0.0005, rng).tolil()
    one_long[17] = rng.standard_normal(30000)
    made = {
        "ct": joseph(24, 17, 20),
        "ct-odd": joseph(7, 33, 31),
        "random": rand(700, 900, 0.02, rng),
        "random-wide": rand(60, 50000, 0.002, rng),
        "random-tall": rand(50000, 60, 0.002, rng),
        "dense": sp.csr_matrix(rng.standard_normal((90, 110))),
        "banded": banded(3000, 4, rng),
        "diagonal": sp.diags([rng.random(5000)], [0]).tocsr(),
        "graph": power_law(4000, 8, rng),
        "hypersparse": rand(40000, 70000, 2e-6, rng),
        "one-row": sp.csr_matrix(rng.standard_normal((1, 4000))),
        "one-column": sp.csr_matrix(rng.standard_normal((4000, 1))),
        "one-entry": sp.coo_matrix(([2.5], ([3], [4])), shape=(9, 8)).tocsr(),
        "one-by-one": sp.csr_matrix([[3.0]]),
        "empty-one": sp.csr_matrix((1, 1)),
        "no-entries": sp.csr_matrix((300, 200)),
        "holes": with_holes(900, 700, rng),
        "tall-dense": sp.csr_matrix(rng.standard_normal((200000, 3))),
        "wide-dense": sp.csr_matrix(rng.standard_normal((3, 200000))),
        "one-long-row": one_long.tocsr(),
        "equal-values": (rand(600, 800, 0.02, rng) != 0).astype(float) * 0.75,
        "few-values": small_integers(500, 600, rng) * 0.125,
        "integers": small_integers(800, 700, rng),
        "integer-graph": (power_law(3000, 6, rng) != 0).astype(float),
    }
    for a in made.values():
        a.sum_duplicates()
        a.data = a.data.astype(np.float32)
        a.eliminate_zeros()
    return made


def bound(a, x, unit):
    """DESIGN section 9: what an element of a @ x may be off."""
    lengths = np.diff(a.tocsr().indptr)
    terms = abs(a).astype(np.float64) @ abs(x.astype(np.float64))
    return 8 * unit * np.sqrt(lengths).reshape(-1, *[1] * (x.ndim - 1)) * terms


def check(a, x, y, transpose=False):
    """y is the product of a (or its transpose) with x, every element within the bound."""
    if transpose:
        a = a.T.tocsr()
    assert y.dtype == (np.float64 if x.dtype == np.float64 else np.float32)
    assert y.shape == (a.shape[0],) + x.shape[1:]
    expected = a.astype(np.float64) @ x.astype(np.float64)
    unit = 2.0**-53 if y.dtype == np.float64 else 2.0**-24
    off = abs(y - expected) - bound(a, x, unit)
    assert not np.isnan(off).any()
    worst = np.unravel_index(np.argmax(off), off.shape) if off.size else None
    assert not off.size or off[worst] <= 0, (
        f"element {worst}: got {y[worst]!r}, expected {expected[worst]!r}, over the bound by {off[worst]}"
    )
