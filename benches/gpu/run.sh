#!/bin/sh
# Everything that needs a CUDA device: first whether its numbers are those of the CPU, then how fast it is.
#
#   ALE_ROMS_DIR=<folder> benches/gpu/run.sh [tests|exactness|replay|micro|speed|all] [--quick] [--out DIR] [--part 1/4]
#
# Needs the installed wheel, torch with CUDA, NVRTC (pip install nvidia-cuda-nvrtc) and the folder of ROMs. Builds nothing.
# PARL_WHEELS=<folder> installs parl's wheel (and what it needs that the machine lacks) from that folder into an
# environment of its own first, which sees the machine's torch.
#
#   tests      the tests that run with a stand-in elsewhere; compute-sanitizer, where it is
#   exactness  all games on the device beside the CPU, mixed batches, both autoreset modes, states moved
#   replay     sum tree and replay beside the CPU's, then their speed, beside TorchRL's where it is
#   micro      what the kernels rest on: cycles, instruction cache, the observations' share
#   speed      frames per second, start-up, compile time, memory
#
# Machines are lent for minutes: each part ends within LIMIT_S seconds (540) and is called again with the same --out until
# it exits with 0. Findings are written as they are made; what records there have of the same commit, device and settings
# is not done again. Exit status 3: there is more to do; 1: something failed, which the records name. --quick takes some
# games and short runs. PARL_COMMIT names the commit where there is no repository.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
python=${PYTHON:-python3}
limit=${LIMIT_S:-540}
part=all
case "${1:-}" in
tests | exactness | replay | micro | speed | all)
    part=$1
    shift
    ;;
-* | "") ;;
*)
    echo "$1 is none of tests, exactness, replay, micro, speed, all" >&2
    exit 2
    ;;
esac

if [ -n "${PARL_WHEELS:-}" ]; then
    place=${TMPDIR:-/tmp}/parl-gpu-environment
    if [ ! -e "$place/done" ]; then
        rm -rf "$place"
        if "$python" -m venv --system-site-packages "$place" >/dev/null 2>&1; then
            "$place/bin/python" -m pip install -q --no-index --find-links "$PARL_WHEELS" parl-rl
        else
            # A Python without ensurepip makes no environments: all wheels of the folder, without looking for others.
            rm -rf "$place"
            "$python" -m pip install -q --no-index --no-deps --target "$place" "$PARL_WHEELS"/*.whl
        fi
        touch "$place/done"
    fi
    if [ -x "$place/bin/python" ]; then
        python=$place/bin/python
    else
        PYTHONPATH=$place${PYTHONPATH:+:$PYTHONPATH}
        export PYTHONPATH
    fi
fi

# One script within what is left of the limit; those that know --seconds stop by themselves before it.
begun=$(date +%s)
run() {
    left=$((limit - $(date +%s) + begun))
    if [ "$left" -lt 5 ]; then
        echo "left for the next call: $*"
        status=3
        return 0
    fi
    found=0
    if command -v timeout >/dev/null 2>&1; then timeout "$left" "$@" || found=$?; else "$@" || found=$?; fi
    case $found in
    0) ;;
    3 | 124)
        [ "$found" = 3 ] || echo "cut off by the limit: $*"
        [ "$status" = 1 ] || status=3
        ;;
    *) status=1 ;;
    esac
}
remaining() { echo $((limit - $(date +%s) + begun - 20)); }

# What knows nothing of --out, as `run`: a file there says that it passed with this commit, device and driver, and it is
# not done again.
out=$root/benches/records
word=
for next in "$@"; do
    [ "$word" != --out ] || out=$next
    word=$next
done
commit=${PARL_COMMIT:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null || true)}
device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || true)
once() {
    passed=$out/passed-$commit-$1
    if [ -n "$commit" ] && [ -e "$passed" ] && [ "$(cat "$passed")" = "$device" ]; then
        echo "$1 has passed before"
        return 0
    fi
    shift
    run "$@"
    if [ "$left" -ge 5 ] && [ "$found" = 0 ]; then
        mkdir -p "$out"
        echo "$device" >"$passed"
    fi
}

tests() {
    if "$python" -c "import pytest" 2>/dev/null && [ -d "$root/tests/cuda/device" ]; then
        # One file at a time, and none of the repository's settings, which want plugins. The rehearsal of these scripts
        # is left out: here they are run.
        for file in "$root"/tests/cuda/device/test_*.py; do
            name=$(basename "$file" .py)
            [ "$name" != test_benches ] || continue
            once "$name" "$python" -m pytest -q -p no:cacheprovider -c /dev/null --rootdir "$root" "$file"
        done
    else
        echo "pytest or the repository's tests are not on this machine: left out"
    fi
    if command -v compute-sanitizer >/dev/null 2>&1; then
        for tool in memcheck initcheck synccheck; do
            once "sanitizer-$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$python" \
                "$here/exactness.py" --games pong --envs 64 --steps 20 --out "${TMPDIR:-/tmp}/parl-sanitizer-$tool"
        done
        once sanitizer-replay compute-sanitizer --error-exitcode 9 "$python" "$here/replay_exactness.py" --quick \
            --out "${TMPDIR:-/tmp}/parl-sanitizer-replay"
    else
        echo "compute-sanitizer is not on this machine: left out"
    fi
}
exactness() { run "$python" "$here/exactness.py" --seconds "$(remaining)" "$@"; }
replay() {
    run "$python" "$here/replay_exactness.py" --seconds "$(remaining)" "$@"
    run "$python" "$here/replay_speed.py" --seconds "$(remaining)" "$@"
}
micro() {
    # It reads the kernels from the repository.
    if [ -d "$root/crates/cule/kernels" ]; then
        run "$python" "$here/micro.py" --seconds "$(remaining)" "$@"
    else
        echo "the repository's kernels are not on this machine: micro is left out"
    fi
}
speed() { run "$python" "$here/speed.py" --seconds "$(remaining)" "$@"; }

status=0
"$python" -m parl doctor || echo "what parl doctor misses, the parts say again"
case $part in
tests) tests ;;
all)
    tests
    exactness "$@"
    replay "$@"
    micro "$@"
    speed "$@"
    ;;
*) "$part" "$@" ;;
esac
[ "$status" != 3 ] || echo "not finished: call again with the same --out"
exit "$status"
