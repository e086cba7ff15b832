"""The man pages: clean for mandoc, and in step with what --help says."""

import re
import shutil
import subprocess

import pytest
from conftest import TREE, command

PAGES = sorted((TREE / "docs/man").iterdir())
COMMANDS = re.findall(r"^ooc_tool\(([a-z-]+)", (TREE / "tools/CMakeLists.txt").read_text(), flags=re.M)
COMMON = {"help", "version", "quiet", "json", "progress", "threads"}


def options_of_page(name):
    text = (TREE / "docs/man" / name).read_text()
    return set(re.findall(r"^\.It Fl -([a-z0-9-]+)", text, flags=re.M))


@pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_lint(page):
    done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_page_and_in_help(name):
    text = subprocess.run(command(name, "--help"), capture_output=True, text=True, check=True).stdout
    listed = set(re.findall(r"^  --([a-z0-9-]+)", text, flags=re.M))
    assert COMMON <= listed and "examples:" in text
    assert options_of_page(f"{name}.1") == listed - COMMON
    assert max(map(len, text.splitlines())) <= 110


def test_common_options():
    assert options_of_page("streamtrain.7") == COMMON
