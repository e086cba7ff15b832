#!/usr/bin/env bash
# All checks of the project; what CI runs. Ends with "N passed, N failed, N skipped" alone on a line.
set -u

usage() {
    cat <<'USAGE'
usage: tests/run.sh [--quick | --full] [-k FILTER] [--no-install]

  --quick       only the gcc build, its tests and the format check
  --full        also the long tests, which measure every row of the issues' tables; the figures go
                to build-ci/report.md
  -k FILTER     only tests whose name contains FILTER (gcc build, no other checks)
  --no-install  do not install missing packages
  --help        show this text

Everything is built under build-ci/, which can be deleted at any time; logs are in build-ci/logs/.

examples:
  tests/run.sh
  tests/run.sh --quick
  tests/run.sh -k phantom
USAGE
}

mode=default filter='' install=1
while [ $# -gt 0 ]; do
    case $1 in
    --quick) mode=quick ;;
    --full) mode=full ;;
    -k)
        [ -n "${2:-}" ] || { echo "run.sh: -k needs a filter" >&2; exit 2; }
        filter=$2
        shift
        ;;
    --no-install) install=0 ;;
    --help) usage; exit 0 ;;
    *) echo "run.sh: unknown option $1; see --help" >&2; exit 2 ;;
    esac
    shift
done

top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
cd "$top" || exit 1
out=$top/build-ci
logs=$out/logs
venv=${STREAM_TRAIN_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/stream-train/venv}
jobs=$(nproc)
passed=0 failed=0 skipped=0
failures=() skips=() full=()
[ "$mode" = full ] && full=(--full)
mkdir -p "$logs" || exit 1
# Tests run side by side: a thread that spins while it waits takes the core from another test.
export OMP_WAIT_POLICY=passive

stage() { printf '\n== %s (%d s so far)\n' "$*" "$SECONDS"; }

count_fail() {
    failed=$((failed + 1))
    failures+=("$1")
}

count_skip() {
    skipped=$((skipped + 1))
    skips+=("$1")
}

# check NAME command...: one check, its output in logs/NAME.log, shown where it fails.
check() {
    local name=$1 log=$logs/$1.log
    shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "ok: $name"
    else
        count_fail "$name (see $log)"
        tail -n 40 "$log"
        return 1
    fi
}

# have TOOL WHAT: or WHAT is a skip with its reason.
have() {
    command -v "$1" >/dev/null 2>&1 && return
    count_skip "$2: no $1"
    return 1
}

# attribute FILE NAME: of the first <testsuite>, on whichever of its lines it stands.
attribute() { grep -o "[[:space:]]$2=\"[0-9]*\"" "$1" 2>/dev/null | head -n 1 | tr -cd 0-9; }

# Add the tests of a JUnit file to the counts; no file or no tests is a failure.
add_junit() {
    local name=$1 xml=$2 tests bad errors skip
    tests=$(attribute "$xml" tests) bad=$(attribute "$xml" failures)
    errors=$(attribute "$xml" errors) skip=$(attribute "$xml" skipped)
    if [ -z "$tests" ] || [ "$tests" = 0 ]; then
        [ -n "$filter" ] && return
        count_fail "$name: no test ran"
        return
    fi
    bad=$((bad + ${errors:-0})) skip=${skip:-0}
    passed=$((passed + tests - bad - skip)) skipped=$((skipped + skip)) failed=$((failed + bad))
    echo "$name: $((tests - bad - skip)) passed, $bad failed, $skip skipped"
    [ "$bad" = 0 ] || failures+=("$bad of $name (see $logs/$name.log)")
    [ "$skip" = 0 ] || skips+=("$skip of $name: $(grep -hE 'SKIPPED|\*\*\*Skipped' "$logs/$name.log" |
        sed 's/ *$//' | sort -u | tr '\n' ';')")
}

# build NAME TARGET options...: configure and build build-ci/NAME.
build() { check "build-$1" configure_and_build "$@"; }

configure_and_build() {
    local dir=$out/$1 target=$2
    shift 2
    cmake -S . -B "$dir" -G Ninja "$@" && cmake --build "$dir" -j "$jobs" --target "$target"
}

# ctest_in NAME arguments...
ctest_in() {
    local name=ctest-$1 dir=$out/$1
    shift
    rm -f "$logs/$name.xml"
    ctest --test-dir "$dir" -j "$jobs" --output-on-failure --output-junit "$logs/$name.xml" "$@" \
        >"$logs/$name.log" 2>&1 || tail -n 60 "$logs/$name.log"
    add_junit "$name" "$logs/$name.xml"
}

# pytest_in NAME FOLDER arguments...: the tests of FOLDER on build-ci/NAME.
pytest_in() {
    local name dir=$out/$1 folder=$2 file
    name=pytest-$1-$(echo "$folder" | tr / -)
    shift 2
    if ! "$venv/bin/python" -c 'import pytest, numpy' 2>/dev/null; then
        for file in "$folder"/test_*.py; do
            count_skip "$file on $(basename "$dir"): no Python environment (tools/install-deps.sh)"
        done
        return
    fi
    rm -f "$logs/$name.xml"
    STREAM_TRAIN_BUILD=$dir STREAM_TRAIN_REPORT=$out/report.md PYTHONDONTWRITEBYTECODE=1 \
        "$venv/bin/python" -m pytest "$folder" -q -rs -p no:cacheprovider \
        --basetemp="$out/tmp-$name" --junitxml="$logs/$name.xml" "$@" >"$logs/$name.log" 2>&1 ||
        tail -n 60 "$logs/$name.log"
    add_junit "$name" "$logs/$name.xml"
    rm -rf "$out/tmp-$name"
}

# sources FOLDER...: C files, also where the tree is no git checkout.
sources() { find "$@" -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | sort; }

check_format() {
    sources base io kernels src tiler tools tests examples | xargs clang-format --dry-run --Werror
}

check_tidy() {
    # Only what this build compiles: other files have no compile command. Not the bodies of the
    # products: clang 14's analyzer does not follow intrinsics, so that what they fill "is garbage".
    sources base io kernels src tiler tools | grep -v 'kernels/cpu/spmm_\(avx\|scalar\)' |
        while read -r f; do
            grep -q "\"file\": \"$top/$f\"" "$out/clang/compile_commands.json" && echo "$f"
        done | xargs -P "$jobs" -n 4 clang-tidy --quiet -p "$out/clang"
}

# Each fuzz target for some seconds; the saved inputs are replayed by CTest in every build.
run_fuzz() {
    local target found=0
    for target in "$out"/fuzz/bin/fuzz_*; do
        [ -x "$target" ] || continue
        found=1
        check "$(basename "$target")" fuzz_one "$target" "$1"
    done
    [ "$found" = 1 ] || count_fail "no fuzz target was built"
}

fuzz_one() {
    local target corpora code
    target=$(basename "$1")
    corpora=("$(mktemp -d "$out/corpus.XXXXXX")")
    [ -d "tests/fuzz/corpus/${target#fuzz_}" ] && corpora+=("tests/fuzz/corpus/${target#fuzz_}")
    "$1" -max_total_time="$2" -rss_limit_mb=2048 -timeout=10 -artifact_prefix="$logs/$target-" \
        "${corpora[@]}"
    code=$?
    rm -rf "${corpora[0]}"
    return "$code"
}

finish() {
    local line
    stage "done"
    for line in "${skips[@]}"; do echo "skipped: $line"; done
    for line in "${failures[@]}"; do echo "FAILED: $line"; done
    [ -s "$out/report.md" ] && [ "$mode" = full ] && echo "figures: $out/report.md"
    if [ $((passed + failed)) = 0 ]; then
        echo "FAILED: no test ran${filter:+ (nothing matches $filter)}"
        failed=1
    fi
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}

if [ "$install" = 1 ]; then
    stage set-up
    tools/install-deps.sh || skips+=("tools/install-deps.sh could not install everything")
fi

stage gcc
build gcc all -DCMAKE_C_COMPILER=gcc -DOOC_WERROR=ON || finish
if [ -n "$filter" ]; then
    ctest_in gcc -R "$filter"
    pytest_in gcc tests/e2e -k "$filter" "${full[@]}"
    pytest_in gcc python/tests -k "$filter"
    finish
fi
ctest_in gcc
[ "$mode" = full ] && rm -f "$out/report.md"
if [ "$mode" = quick ]; then
    pytest_in gcc tests/e2e -m "not heavy"
else
    pytest_in gcc tests/e2e "${full[@]}"
fi
pytest_in gcc python/tests
stage format
have clang-format format && check format check_format
[ "$mode" = quick ] && finish

stage clang
# With assertions, which the analyzer below reads too.
have clang "the clang build" && build clang all -DCMAKE_C_COMPILER=clang \
    -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1 \
    -DCMAKE_CXX_FLAGS=-O1 -DOOC_CUDA=OFF && ctest_in clang -L unit
stage "address and undefined-behaviour sanitizers"
# shellcheck disable=SC2015 # a failed build is counted
build asan all -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1 -DCMAKE_CXX_FLAGS=-O1 \
    -DOOC_SANITIZE=address,undefined -DOOC_CUDA=OFF &&
    # The faults of the CUDA stand-in start thousands of processes: minutes here, so only in --full.
    ctest_in asan $([ "$mode" = full ] || echo "-E engine_cuda_faults") &&
    pytest_in asan tests/e2e -m "not heavy"
stage "thread sanitizer"
# What has threads of its own. Kernels have none, oneDNN's libgomp is beyond this sanitizer, and
# test_engine_streams leaves waits out on purpose.
build tsan all -DCMAKE_C_FLAGS=-O1 -DOOC_SANITIZE=thread -DOOC_CUDA=OFF &&
    ctest_in tsan -R '^test_(base|reader|engine|engine_faults|arena|io_sys)$'
stage clang-tidy
if [ "$mode" = full ]; then
    have clang-tidy clang-tidy && [ -f "$out/clang/compile_commands.json" ] && check clang-tidy check_tidy
else
    count_skip "clang-tidy: minutes long, and with findings still open; --full runs it"
fi
stage fuzzing
have clang fuzzing && build fuzz fuzzers -DCMAKE_C_COMPILER=clang -DOOC_FUZZ=ON -DOOC_CUDA=OFF \
    -DOOC_SANITIZE=address,undefined && run_fuzz "$([ "$mode" = full ] && echo 600 || echo 10)"
finish
