#!/bin/sh
# Install what is missing to build and test the project: Debian 12 packages (as root or by sudo) and
# a cached Python environment for the tests' references. Run twice, the second run does nothing.
set -u

usage() {
    cat <<'USAGE'
usage: tools/install-deps.sh [--minimal] [--check] [--no-python]

  --minimal    only what building and tools/quickstart.sh need
  --check      install nothing: list what is missing; exit 1 if something is
  --no-python  leave the Python environment out
  --help       show this text

The Python environment lies in ${XDG_CACHE_HOME:-~/.cache}/stream-train/venv; set
STREAM_TRAIN_VENV to put it elsewhere. Its packages are listed in tests/requirements.txt.

examples:
  tools/install-deps.sh
  tools/install-deps.sh --minimal
  tools/install-deps.sh --check
USAGE
}

build_packages="gcc libc6-dev cmake ninja-build pkg-config libdnnl-dev liburing-dev libzstd-dev liblz4-dev
libxxhash-dev libcjson-dev libhdf5-dev libpng-dev zlib1g-dev"
test_packages="g++ libcmocka-dev clang clang-format clang-tidy libclang-rt-14-dev mandoc
python3 python3-venv git ca-certificates"

say() { printf 'install-deps: %s\n' "$*" >&2; }

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Debian's python3 rather than the first on PATH, which may be a version manager's shim.
find_python() {
    for p in /usr/bin/python3 python3; do
        command -v "$p" >/dev/null 2>&1 && { command -v "$p"; return; }
    done
}

missing_packages() {
    for p in "$@"; do
        installed "$p" || printf '%s ' "$p"
    done
}

# Prints the command that gives us root, or fails.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        echo env
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        echo sudo env
    else
        return 1
    fi
}

install_packages() {
    if ! root=$(as_root); then
        say "not root and no sudo, so these packages stay missing: $1"
        say "install them with: apt-get install $1"
        return 1
    fi
    say "installing: $1"
    # Package lists may be old or absent; an unreachable mirror shows in the install itself.
    $root DEBIAN_FRONTEND=noninteractive apt-get -qq update >&2 || say "apt-get update failed"
    # shellcheck disable=SC2086 # a list of words
    $root DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y $1 >&2
}

venv_stamp() { cat "$requirements"; "$1" --version; }

venv_ready() {
    [ -f "$venv/stamp" ] && [ "$(venv_stamp "$python")" = "$(cat "$venv/stamp")" ] &&
        "$venv/bin/python" -c 'import numpy, scipy, torch, pytest' 2>/dev/null
}

make_venv() {
    say "Python packages into $venv (once; PyTorch takes a few minutes)"
    mkdir -p "$venv" || return 1
    rm -f "$venv/stamp"
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv" >&2 || return 1
    "$venv/bin/python" -m pip --quiet --disable-pip-version-check install -r "$requirements" >&2 ||
        return 1
    venv_stamp "$python" >"$venv/stamp"
}

minimal=0 check=0 with_python=1
for arg in "$@"; do
    case $arg in
    --minimal) minimal=1 with_python=0 ;;
    --check) check=1 ;;
    --no-python) with_python=0 ;;
    --help) usage; exit 0 ;;
    *) say "unknown option $arg; see --help"; exit 2 ;;
    esac
done
top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
requirements=$top/tests/requirements.txt
venv=${STREAM_TRAIN_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/stream-train/venv}
code=0

packages=$build_packages
[ "$minimal" = 1 ] || packages="$packages $test_packages"
if command -v dpkg-query >/dev/null 2>&1; then
    # shellcheck disable=SC2086 # a list of words
    missing=$(missing_packages $packages)
    if [ -n "$missing" ] && [ "$check" = 1 ]; then
        say "missing packages: $missing"
        code=1
    elif [ -n "$missing" ]; then
        install_packages "$missing" || code=1
    fi
else
    # shellcheck disable=SC2086 # a list of words
    say "this is no Debian; needed here are the counterparts of:" $packages
fi

python=$(find_python)
if [ "$with_python" = 1 ] && [ -z "$python" ]; then
    say "no python3: tests that need NumPy, SciPy or PyTorch will be skipped"
    code=1
elif [ "$with_python" = 1 ] && ! venv_ready; then
    if [ "$check" = 1 ]; then
        say "the Python environment $venv is missing or out of date"
        code=1
    else
        mkdir -p "$(dirname "$venv")" && exec 9>"$venv.lock" && flock 9
        venv_ready || make_venv ||
            { say "no Python environment: tests that need it will be skipped"; code=1; }
    fi
fi
exit $code
