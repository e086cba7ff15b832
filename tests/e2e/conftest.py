"""What the end-to-end tests share: the commands under test, run as a user runs them.

STREAM_TRAIN_BUILD names the build folder (default: build/ in the tree). Every test runs in a
temporary folder of its own.
"""

import os
import pathlib
import signal
import subprocess
import time

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("STREAM_TRAIN_BUILD", TREE / "build")).resolve()


def command(name, *args):
    """The argument list that runs command `name` of the build."""
    return [str(BUILD / "bin" / name), *map(str, args)]


@pytest.fixture
def run(tmp_path):
    """run("tile-info", "a.tiles", code=0, env={...}, timeout=60): checks the exit code, and that an
    error is one line that begins with the command's name. Returns the CompletedProcess (text)."""

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
            lines = done.stderr.splitlines()
            assert len(lines) == 1 and lines[0].startswith(f"{name}: "), shown
        return done

    return call


class Measured:
    """What a finished command took."""

    def __init__(self, seconds, usage):
        self.seconds, self.peak_bytes = seconds, usage.ru_maxrss * 1024


@pytest.fixture
def measure(tmp_path):
    """measure("tile-convert", ...): runs to success; its wall time and peak resident memory."""

    def call(name, *args):
        begin = time.monotonic()
        with open(tmp_path / "stderr", "wb") as err:
            process = subprocess.Popen(command(name, *args), cwd=tmp_path, stderr=err,
                                       stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status  # reaped here, not by Popen
        assert status == 0, f"{name} {args}: {(tmp_path / 'stderr').read_text()}"
        return Measured(time.monotonic() - begin, usage)

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
