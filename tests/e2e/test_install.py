"""cmake --install, and a program of somebody else's that finds the library there, both ways."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, TREE

pytestmark = pytest.mark.heavy  # a sanitized library needs a sanitized program


def ok(*args, env=None, **more):
    done = subprocess.run(
        [str(a) for a in args], capture_output=True, text=True, env={**os.environ, **(env or {})}, **more
    )
    assert done.returncode == 0, f"{args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    # Another prefix than the one the build was configured for, and moved afterwards.
    staged = tmp_path_factory.mktemp("staged") / "first"
    ok("cmake", "--install", BUILD, "--prefix", staged)
    final = staged.with_name("moved here")
    staged.rename(final)
    return final


@pytest.fixture(scope="module")
def libdir(prefix):
    (found,) = prefix.glob("lib*/**/libstreamtrain.so")
    return found.parent


@pytest.fixture(scope="module")
def pkg_config(libdir):
    def flags(*args):
        out = ok("pkg-config", *args, "streamtrain", env={"PKG_CONFIG_PATH": f"{libdir}/pkgconfig"})
        return [word.replace("\\ ", " ") for word in re.split(r"(?<!\\) ", out.strip())]

    return flags


@pytest.fixture
def check_example(run):
    def check(program, libdir):
        run("tile-convert", "radon:12x16:16", "ct.tiles")
        out = ok(program, "ct.tiles", env={"LD_LIBRARY_PATH": str(libdir)})
        assert re.match(r"192 x 256, \d+ entries: \|A\*x\| = [0-9.]+, \|At\*A\*x\| = [0-9.]+$", out)
        done = subprocess.run([program, "none.tiles"], capture_output=True, text=True,
                              env={**os.environ, "LD_LIBRARY_PATH": str(libdir)})
        assert done.returncode == 1 and "none.tiles" in done.stderr

    return check


def test_pkg_config(pkg_config, libdir, tmp_path, check_example):
    ok("gcc", "-std=c11", "-Wall", "-Werror", TREE / "examples/apply_example.c", "-o", "example",
       *pkg_config("--cflags", "--libs"), "-lm")
    check_example(tmp_path / "example", libdir)


def test_cmake_package(prefix, libdir, tmp_path, check_example):
    ok("cmake", "-S", TREE / "examples", "-B", "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    ok("cmake", "--build", "b")
    check_example(tmp_path / "b/apply_example", libdir)


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_header_is_cxx_too(pkg_config, tmp_path):
    (tmp_path / "a.cpp").write_text("#include <streamtrain.h>\nint main() { return !ooc_version(); }\n")
    ok("g++", "-Wall", "-Wextra", "-Werror", "a.cpp", "-o", "a", *pkg_config("--cflags", "--libs"))


def test_exports_are_the_public_header(libdir):
    declared = set()
    for header in ("src/streamtrain.h", "base/err.h"):
        text = re.sub(r"/\*.*?\*/", "", (TREE / header).read_text(), flags=re.S)
        text = re.sub(r"^#if defined\(__clang_analyzer__\).*?^#endif", "", text, flags=re.S | re.M)
        declared |= set(re.findall(r"\b(ooc_\w+)\(", text))
    table = ok("nm", "-D", "--defined-only", libdir / "libstreamtrain.so")
    assert set(re.findall(r" T (\w+)", table)) == declared


def test_commands_and_pages_are_installed(prefix):
    commands = {path.name for path in (prefix / "bin").iterdir()}
    assert {"ct-phantom", "tile-info", "tile-convert", "tile-apply", "stream-train"} <= commands
    pages = {path.stem for path in prefix.glob("share/man/man1/*.1")}
    assert pages == commands
    assert ok(prefix / "bin/ct-phantom", "--version").startswith("ct-phantom 0.")
