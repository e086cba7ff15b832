"""The two training loops of examples/, compared as compare.py does it."""

import difflib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import streamtrain
from conftest import TREE

pytest.importorskip("torch", reason="no PyTorch")
EXAMPLES = TREE / "python/examples"


def code(name):
    """Without the docstring, which says what each is."""
    return (EXAMPLES / name).read_text().split('"""', 2)[2].splitlines()


def test_three_lines_are_changed():
    changes = [line for line in difflib.ndiff(code("original.py"), code("streamed.py"))
               if line[0] in "+-"]
    assert len(changes) == 6, changes


def compare(*options):
    environment = {**os.environ, "PYTHONPATH": str(Path(streamtrain.__file__).parents[1])}
    done = subprocess.run([sys.executable, EXAMPLES / "compare.py", "--json", *options],
                          capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_small(tmp_path):
    figures = compare("--views", "60", "--detectors", "64", "--size", "48", "--steps", "5",
                      "--channels", "4,8", "--tmp", str(tmp_path))
    assert len(figures["losses"]) == 5 and figures["worst_difference"] <= 1e-4
    assert figures["losses"][-1][1] < figures["losses"][0][1]
    assert not os.listdir(tmp_path)


@pytest.mark.slow
def test_figures(tmp_path):
    """20 steps of the U-Net on a CT matrix of 30 million entries: 0.6 GB as a COO tensor."""
    figures = compare("--steps", "20", "--tmp", str(tmp_path))
    print(figures, file=sys.stderr)
    original, streamed = figures["peak_beyond_model"]
    slow, fast = figures["seconds_through_matrix"]
    assert figures["worst_difference"] <= 1e-4
    assert streamed <= original / 10, figures
    assert slow >= 5 * fast, figures
