"""What the end-to-end tests share: the commands under test, run as a user runs them.

STREAM_TRAIN_BUILD names the build folder (default: build/ in the tree). Every test runs in a
temporary folder of its own.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("STREAM_TRAIN_BUILD", TREE / "build")).resolve()


NO_GPU = "; the CPU is used"  # how a build with CUDA ends the line that says why it uses no GPU


def command(name, *args):
    """The argument list that runs command `name` of the build."""
    return [str(BUILD / "bin" / name), *map(str, args)]


@pytest.fixture
def run(tmp_path):
    """run("tile-info", "a.tiles", code=0, env={...}, timeout=60): checks the exit code, and that an
    error is one line that begins with the command's name (beside the one that says that there is no
    GPU). Returns the CompletedProcess (text)."""

    def call(name, *args, code=0, env=None, timeout=120, **more):
        done = subprocess.run(
            command(name, *args),
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=timeout,
            env={**os.environ, **(env or {})},
            **more,
        )
        shown = f"{name} {' '.join(map(str, args))}\nenv {env}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, f"exit code {done.returncode}, expected {code}: {shown}"
        if code in (1, 2):
            lines = [line for line in done.stderr.splitlines() if not line.endswith(NO_GPU)]
            assert len(lines) == 1 and lines[0].startswith(f"{name}: "), shown
        return done

    return call


# A process begins with the peak of the one that starts it (it shares that one's memory until exec),
# and pytest's is large: so a small process starts the command and reads the peak of its child.
LAUNCHER = """
import json, resource, subprocess, sys, time
begin = time.monotonic()
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps([code, time.monotonic() - begin, peak]))
"""


class Measured:
    """What a finished command took."""

    def __init__(self, seconds, peak_bytes):
        self.seconds, self.peak_bytes = seconds, peak_bytes


@pytest.fixture
def measure(tmp_path):
    """measure("tile-convert", ...): runs to success; its wall time and peak resident memory (no
    less than that of a small Python process, 10 MB)."""

    def call(name, *args):
        done = subprocess.run([sys.executable, "-I", "-S", "-c", LAUNCHER, *command(name, *args)],
                              capture_output=True, text=True, cwd=tmp_path)
        code, seconds, peak = json.loads(done.stdout)
        assert code == 0, f"{name} {args}: {done.stderr}"
        return Measured(seconds, peak)

    return call


@pytest.fixture
def start(tmp_path):
    """Start a command and go on; it is killed when the test ends."""
    running = []

    def call(name, *args, env=None):
        process = subprocess.Popen(
            command(name, *args),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
        )
        running.append(process)
        return process

    yield call
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def record():
    """record(issue, row, "what was done", "figure"): one line of the report that tests/run.sh --full
    leaves, and of the test's own output."""

    def call(issue, row, what, figure):
        line = f"| {issue} | {row} | {what} | {figure} |"
        print(line)
        path = os.environ.get("STREAM_TRAIN_REPORT")
        if path:
            new = not os.path.exists(path)
            with open(path, "a", encoding="utf-8") as report:
                if new:
                    report.write("| issue | row | check | figure |\n|---|---|---|---|\n")
                report.write(line + "\n")

    return call


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also run the tests marked full")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: minutes long or GBs large; only with --full")
    config.addinivalue_line("markers", "heavy: too slow, or meaningless, under a sanitizer")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--full"):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
