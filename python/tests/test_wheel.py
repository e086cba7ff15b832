"""A wheel built here, in an empty environment, and the source distribution."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile

import numpy as np
import pytest
from conftest import TREE

pytest.importorskip("scikit_build_core", reason="no scikit-build-core")
PYTHON = TREE / "python"
# nvcc takes minutes and these tests have no card to try its work on.
BUILD = dict(os.environ, CMAKE_ARGS="-DOOC_CUDA=OFF")


def pip(*arguments, cwd=None):
    done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
                          capture_output=True, text=True, cwd=cwd, env=BUILD)
    assert done.returncode == 0, done.stdout + done.stderr


def hook(name, folder):
    """Call a hook of the build backend as pip does; the name of what it made."""
    program = (f"import sys; sys.path.insert(0, 'build_backend'); import streamtrain_build as b;"
               f"print(b.{name}({str(folder)!r}))")
    done = subprocess.run([sys.executable, "-c", program], cwd=PYTHON, capture_output=True, text=True,
                          env=BUILD)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / done.stdout.split()[-1]


def environment():
    """Without what would lead to the tree."""
    names = ("PYTHONPATH", "STREAM_TRAIN_BUILD")
    return {k: v for k, v in os.environ.items() if k not in names}


def examples():
    """The Python parts of the READMEs."""
    texts = [(PYTHON / "README.md").read_text()]
    if (TREE / "README.md").exists():
        texts.append((TREE / "README.md").read_text())
    return [part for text in texts for part in re.findall(r"```python\n(.*?)```", text, re.S)]


def try_in_empty_environment(wheel, folder):
    """Only NumPy is there, linked from here: the wheel needs nothing else."""
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    site = next((folder / "venv/lib").glob("python*/site-packages"))
    pip("install", "--no-deps", "--no-index", "--target", str(site), str(wheel))
    numpy = os.path.dirname(os.path.dirname(np.__file__))
    for name in os.listdir(numpy):
        if name.startswith("numpy"):
            os.symlink(os.path.join(numpy, name), site / name)
    for text in examples():
        if "import torch" in text or "model(" in text:
            continue
        done = subprocess.run([folder / "venv/bin/python", "-W", "error", "-c", text], cwd=folder,
                              capture_output=True, text=True, env=environment())
        assert done.returncode == 0, done.stderr
        assert "2880" in done.stdout or not re.search(r"print", text)


def test_wheel(tmp_path):
    wheel = hook("build_wheel", tmp_path)
    assert re.fullmatch(r"streamtrain-[\d.]+-py3-none-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        assert z.getinfo("streamtrain/_core/tile-convert").external_attr >> 16 & 0o111
    for name in ("py.typed", "_core/libstreamtrain.so", "_core/tile-convert", "_core/tile-info"):
        assert f"streamtrain/{name}" in names
    assert not [n for n in names if n.startswith(("tests", "examples", "lib", "bin", "include"))]
    assert wheel.stat().st_size < 16 << 20
    try_in_empty_environment(wheel, tmp_path)


@pytest.mark.slow
def test_source_distribution(tmp_path):
    """It builds without the repository around it."""
    archive = hook("build_sdist", tmp_path)
    assert not (PYTHON / "core").exists()
    with tarfile.open(archive) as t:
        t.extractall(tmp_path)
    tree = tmp_path / archive.name.removesuffix(".tar.gz")
    assert (tree / "core/src/streamtrain.h").exists() and not (tree / "tests").exists()
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path), str(tree))
    try_in_empty_environment(next(tmp_path.glob("*.whl")), tmp_path)
