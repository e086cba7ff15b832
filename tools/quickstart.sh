#!/bin/sh
# From a fresh clone to a network trained through a CT matrix that streams from disk, in one command.
set -u

usage() {
    cat <<'USAGE'
usage: tools/quickstart.sh [--full] [--out DIR] [--no-install]

Installs what is missing to build (Debian 12), builds, makes a CT matrix, phantoms and their
measured data, trains a U-Net and a plain reconstruction through the matrix while it streams from
disk, and prints a short table.

  --full        the 6 GB case: radon:700x384:640, about 292 million entries (10 GB of disk space)
  --out DIR     where everything goes (default: stream-train-quickstart in the current folder);
                a folder that holds something else is refused
  --no-install  do not install missing packages
  --help        show this text

examples:
  tools/quickstart.sh
  tools/quickstart.sh --full --out /data/quickstart
USAGE
}

die() {
    printf 'quickstart.sh: %s\n' "$1" >&2
    exit "${2:-1}"
}

full=0 install=1 out=stream-train-quickstart
while [ $# -gt 0 ]; do
    case $1 in
    --full) full=1 ;;
    --no-install) install=0 ;;
    --out)
        [ -n "${2:-}" ] || die "--out needs a folder" 2
        out=$2
        shift
        ;;
    --help) usage; exit 0 ;;
    *) die "unknown option $1; see --help" 2 ;;
    esac
    shift
done

# Both budgets together are below a quarter of A's kernel form (1.7 GB and 173 MiB), so tiles stream.
if [ "$full" = 1 ]; then
    matrix=radon:700x384:640 size=640 input=700x384 train=16 channels=16,32,64
    unet_steps=32 pixel_steps=40 vram=384M ram=40M
else
    matrix=radon:360x192:256 size=256 input=360x192 train=64 channels=8,16
    unet_steps=128 pixel_steps=150 vram=32M ram=9M
fi

start=$(date +%s)
top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
mark=.stream-train-quickstart
if [ -d "$out" ] && [ ! -e "$out/$mark" ] && [ -n "$(ls -A "$out")" ]; then
    die "$out holds something else; choose another folder with --out" 2
fi
{ mkdir -p "$out" && : >"$out/$mark"; } || die "cannot write to $out"
out=$(cd "$out" && pwd)
build=$top/build-quickstart
log=$out/quickstart.log
: >"$log"

# step WHAT command...: its output goes to the log; where it fails the end of the log is shown.
step() {
    printf '%4d s  %s\n' $(($(date +%s) - start)) "$1"
    shift
    "$@" >>"$log" 2>&1 && return
    tail -n 20 "$log" >&2
    die "this failed: $*; the whole log is $log"
}

# field FILE NAME: a number of the last line that has it (the summary of a run is its last line).
field() { sed -n "s/.*\"$2\": *\(-\{0,1\}[0-9.eE+-]*\).*/\1/p" "$1" | tail -n 1; }

# mean FILE head|tail: of the loss over the first or last 16 steps, since samples differ.
mean() {
    sed -n 's/.*"step".*"loss": \([0-9.eE+-]*\),.*/\1/p' "$1" | "$2" -n 16 |
        awk '{ sum += $1 } END { printf "%.4g", sum / NR }'
}

mib() { awk -v b="$1" 'BEGIN { printf "%.1f MiB", b / 1048576 }'; }
number() { awk -v x="$1" -v f="$2" 'BEGIN { printf f, x }'; }
row() { printf '%-26s %22s %22s\n' "$1" "$2" "$3"; }

to_file() {
    dest=$1
    shift
    "$@" >"$dest"
}

build_it() {
    cmake -S "$top" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DOOC_FAULTS=OFF \
        -DOOC_TESTS=OFF -DOOC_CUDA=OFF && cmake --build "$build"
}

if [ "$install" = 1 ]; then
    step "set-up" "$top/tools/install-deps.sh" --minimal
fi
step "building" build_it
bin=$build/bin
cd "$out" || exit 1

step "matrix $matrix" "$bin/tile-convert" --force "$matrix" ct.tiles
step "phantoms: $train of random ellipses" "$bin/ct-phantom" "ellipses:$train:$size" train.npy
step "phantoms: Shepp-Logan" "$bin/ct-phantom" "shepp-logan:$size" head.npy
step "measuring the ellipses: A*x" "$bin/tile-apply" --samples ct.tiles train.npy train-measured.npy
step "measuring the head: A*x" "$bin/tile-apply" --samples ct.tiles head.npy head-measured.npy

# train MODEL DATA options...: log, checkpoint and pictures under the model's name.
train() {
    model=$1 data=$2
    shift 2
    step "training: $model, $steps steps" "$bin/stream-train" --matrix ct.tiles --data "$data" \
        --model "$model" --steps "$steps" --vram-budget "$vram" --ram-budget "$ram" \
        --log "$model.jsonl" --save "$model.safetensors" --preview "$model-png" "$@"
}

steps=$unet_steps
train unet train-measured.npy --val head-measured.npy --channels "$channels" \
    --input-shape "$input" --lr 1e-3
step "the net's picture of the head" "$bin/stream-train" --matrix ct.tiles --data head-measured.npy \
    --model unet --channels "$channels" --input-shape "$input" --init unet.safetensors --steps 0 \
    --predict unet.npy --vram-budget "$vram" --ram-budget "$ram"
steps=$pixel_steps
train pixels head-measured.npy --predict pixels.npy
for model in unet pixels; do
    step "comparing with the phantom: $model" to_file "$model.json" "$bin/ct-phantom" \
        "shepp-logan:$size" --compare "$model.npy" --json
done

entries=$(field pixels.jsonl entries)
echo
echo "A: $matrix, $entries entries"
row "" "as PyTorch COO" "as tiles"
row "size on disk" "$(mib $((entries * 20)))" "$(mib "$(field pixels.jsonl stored_bytes)")"
row "in kernel form" "" "$(mib "$(field pixels.jsonl kernel_bytes)")"
echo
# both NAME FORMAT FILE-ENDING LABEL: one figure of both runs.
both() { row "$4" "$(number "$(field "unet$3" "$1")" "$2")" "$(number "$(field "pixels$3" "$1")" "$2")"; }
both_mib() { row "$2" "$(mib "$(field unet.jsonl "$1")")" "$(mib "$(field pixels.jsonl "$1")")"; }
row "" "unet" "pixels"
row "steps" "$unet_steps" "$pixel_steps"
row "loss, first 16 steps" "$(mean unet.jsonl head)" "$(mean pixels.jsonl head)"
row "loss, last 16 steps" "$(mean unet.jsonl tail)" "$(mean pixels.jsonl tail)"
both psnr '%.1f dB' .json "PSNR of the head"
row "--vram-budget" "$vram" "$vram"
both_mib device_peak_bytes "  measured peak"
row "--ram-budget" "$ram" "$ram"
both_mib host_peak_bytes "  measured peak"
both_mib process_peak_bytes "whole process, peak"
both tiles_read %d .jsonl "tiles read"
both seconds_per_step %.3f .jsonl "seconds a step"
echo
echo "pictures: $out/unet-png $out/pixels-png"
echo "commands: $bin"
echo "log: $log, all in $(($(date +%s) - start)) s"
