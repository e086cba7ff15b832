"""scikit-build-core, with the C sources put into the source distribution.

The package lies in a subfolder of the repository, and a source distribution holds what lies below
pyproject.toml only. While one is packed, the sources that the build needs are copied into core/.
"""

import shutil
from pathlib import Path

from scikit_build_core.build import *  # noqa: F403 - the other hooks, unchanged
from scikit_build_core.build import build_sdist as _build_sdist

_HERE = Path(__file__).resolve().parent.parent
_NEEDED = ("CMakeLists.txt", "LICENSE", "base", "cmake", "docs", "io", "kernels", "src", "tiler",
           "tools")


def build_sdist(sdist_directory, config_settings=None):
    """As PEP 517 says; core/ exists only while this runs (and in an unpacked distribution)."""
    core = _HERE / "core"
    if core.exists():
        return _build_sdist(sdist_directory, config_settings)
    try:
        core.mkdir()
        for name in _NEEDED:
            source = _HERE.parent / name
            if source.is_dir():
                shutil.copytree(source, core / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, core / name)
        return _build_sdist(sdist_directory, config_settings)
    finally:
        shutil.rmtree(core, ignore_errors=True)
