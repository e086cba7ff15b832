"""tile-info: what it says is what the file holds, and --verify finds every damaged byte."""

import json
import os
import random

import numpy as np
import pytest
import scipy.sparse as sp


@pytest.fixture
def store(run):
    """A CT store of several tiles; returns a function that makes one with the codec asked for."""

    def make(codec="auto", name="a.tiles", source="radon:40x30:24"):
        run("tile-convert", "--codec", codec, "--tile-size", "64K", "--force", source, name)
        return name

    return make


def info(run, *args):
    return json.loads(run("tile-info", "--json", *args).stdout)


@pytest.mark.parametrize("codec", ["auto", "raw", "zstd"])
def test_shape_and_sums(run, store, codec):
    name = store(codec)
    found = info(run, "--tiles", "--verify", name)
    size = os.path.getsize(name)
    assert found["rows"] == 1200 and found["columns"] == 576
    assert found["file_bytes"] == size and found["verified"] is True
    assert found["tiles"] == len(found["tile_list"]) > 1
    assert sum(t["rows"] for t in found["tile_list"]) == 1200
    assert sum(t["entries"] for t in found["tile_list"]) == found["entries"]
    assert found["max_kernel_bytes"] == max(t["kernel_bytes"] for t in found["tile_list"])
    stored = sum(
        v for use in ("segments", "columns", "values") for k, v in found["bytes"][use].items()
        if k != "plain"
    )
    tiles = sum(t["stored_bytes"] for t in found["tile_list"])
    assert stored + found["bytes"]["directories"] + found["bytes"]["padding"] == tiles
    assert tiles < size <= tiles + 2 * 4096
    assert found["bytes"]["values"]["plain"] >= 4 * found["entries"]
    assert (found["kernel_tiles"] == found["tiles"]) == (codec == "raw")


def test_text(run, store):
    text = run("tile-info", "--verify", "--tiles", store()).stdout
    assert "1200 x 576" in text and "verified" in text and "format 1.0" in text


def test_a_row_that_is_longer_than_the_tile_size_is_named(run):
    rows = sp.random(20, 50000, density=0.001, random_state=1, format="lil")
    rows[7, :] = 1.5
    sp.save_npz("long.npz", rows.tocsr().astype(np.float32))
    run("tile-convert", "--tile-size", "64K", "long.npz", "a.tiles")
    text = run("tile-info", "a.tiles").stdout
    line = next(x for x in text.splitlines() if x.startswith("largest tile"))
    assert "rows 7 to 7, 50000 entries" in line and "longer than the tile size" in line


@pytest.mark.parametrize("codec", ["auto", "raw"])
def test_damage(run, store, codec):
    name = store(codec, source="radon:16x12:10")
    whole = open(name, "rb").read()
    rng = random.Random(1)
    places = rng.sample(range(len(whole)), 60) + [0, 9, 4095, 4096, len(whole) - 1]
    for at in places:
        bad = bytearray(whole)
        bad[at] ^= 1 << rng.randrange(8)
        open("bad.tiles", "wb").write(bad)
        line = run("tile-info", "--verify", "bad.tiles", code=1).stderr
        assert "bad.tiles" in line, (at, line)
    for n in (0, 7, 8, 4095, 4096, 5000, len(whole) - 1):
        open("cut.tiles", "wb").write(whole[:n])
        run("tile-info", "cut.tiles", code=1)
    open("long.tiles", "wb").write(whole + b"\0")
    run("tile-info", "long.tiles", code=1)


def test_reading_fails(run, store):
    name = store()
    line = run("tile-info", "--verify", name, code=1, env={"OOC_FAULT": "read:5"}).stderr
    assert name in line
    run("tile-info", "--verify", name, env={"OOC_FAULT": "short-read:3+,eintr:4"})


def test_wrong_requests(run):
    run("tile-info", code=2)
    run("tile-info", "none.tiles", code=1)
    run("tile-info", "--no-such-option", "none.tiles", code=2)
    os.mkdir("folder")
    run("tile-info", "folder", code=1)
