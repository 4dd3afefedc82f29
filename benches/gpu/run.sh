#!/bin/sh
# All tests and measurements on a CUDA device: first that its results equal those of the CPU, then its speed.
#
#   ALE_ROMS_DIR=<folder> benches/gpu/run.sh PART [--quick] [--out DIR] [--part 1/4]
#
# Needs the installed wheel, torch with CUDA, NVRTC (pip install nvidia-cuda-nvrtc) and the folder of ROMs.
# Builds nothing. PARL_WHEELS=<folder> first adds the packages of the wheels in that folder: parl, and what the
# machine lacks of numpy and of gymnasium with its dependencies.
#
#   first      all games in one batch beside the CPU; the sanitizer; twenty games at many sizes; a profile of a step
#   variants   frame rates of four games with options of the kernels, and with other numbers of environments in a warp
#   learn      Pong to 18 from pictures with PPO and PQN; frame rates of training; A2C's batching strategies.
#              PONG_ENVS, PONG_STEPS, RATE_ENVS, STRATEGY_ENVS and BENCH_S change environments, steps and seconds
#   cores      CPU cores: frame rates of vector environments, threads of the replay
#   tests      the tests that otherwise run on the fake driver; compute-sanitizer, if it is installed
#   exactness  compares all games with the CPU: mixed batches, both autoreset modes, states moved between both
#   replay     compares sum tree and replay with those of the CPU; then their speed, and TorchRL's if it is installed
#   micro      figures on which the design of the kernels rests: cycles, instruction cache, share of observations
#   speed      frames per second, start-up, compile time, memory
#   all        tests, exactness, replay, micro, speed; also without PART
#
# For machines that are available for minutes only: each call ends within LIMIT_S seconds (540). Call it again
# with the same --out until it exits with 0. Findings are recorded at once; work with a record of the same
# commit, device and settings is not repeated. Exit status 3: work is left; 1: something failed, see the
# records. --quick uses fewer games and short runs. PARL_COMMIT sets the commit outside of a repository.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
python=${PYTHON:-python3}
limit=${LIMIT_S:-540}
part=all
case "${1:-}" in
first | variants | learn | cores | tests | exactness | replay | micro | speed | all)
    part=$1
    shift
    ;;
-* | "") ;;
*)
    echo "unknown part $1, expected first, variants, learn, cores, tests, exactness, replay, micro, speed or all" >&2
    exit 2
    ;;
esac

if [ -n "${PARL_WHEELS:-}" ]; then
    # A wheel is a zip file. Extracting needs no pip and no environment, and the machine's torch stays visible.
    place=${TMPDIR:-/tmp}/parl-gpu-packages
    wheels=$(cksum "$PARL_WHEELS"/*.whl)
    if [ "$(cat "$place/wheels" 2>/dev/null)" != "$wheels" ]; then
        rm -rf "$place"
        for wheel in "$PARL_WHEELS"/*.whl; do "$python" -m zipfile -e "$wheel" "$place"; done
        echo "$wheels" >"$place/wheels"
    fi
    PYTHONPATH=$place${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
fi
for package in numpy gymnasium torch parl; do
    "$python" -c "import $package" || {
        echo "$python cannot import $package; PARL_WHEELS=<folder> adds the wheels of a folder" >&2
        exit 2
    }
done

# Runs a script within the rest of the time limit. Scripts with --seconds stop by themselves before it.
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

# As `run`, for commands without records: once a command has passed, a file in --out with the commit, device
# and driver prevents that it runs again.
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
        # One file at a time, without the repository's pytest settings, which need plugins. test_benches is
        # left out: it only tests the scripts that run here.
        for file in "$root"/tests/cuda/device/test_*.py; do
            name=$(basename "$file" .py)
            [ "$name" != test_benches ] || continue
            once "$name" "$python" -m pytest -q -p no:cacheprovider -c /dev/null --rootdir "$root" "$file"
        done
    else
        echo "skipped the tests: pytest or the repository's tests are not on this machine"
    fi
    sanitize memcheck racecheck initcheck synccheck
    if command -v compute-sanitizer >/dev/null 2>&1; then
        once sanitizer-replay compute-sanitizer --error-exitcode 9 "$python" "$here/replay_exactness.py" --quick \
            --out "${TMPDIR:-/tmp}/parl-sanitizer-replay"
    fi
}
# Small batches under the tools of compute-sanitizer.
sanitize() {
    if command -v compute-sanitizer >/dev/null 2>&1; then
        for tool in "$@"; do
            once "sanitizer-$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$python" \
                "$here/exactness.py" --games pong --envs 64 --steps 20 --out "${TMPDIR:-/tmp}/parl-sanitizer-$tool"
        done
    else
        echo "skipped: compute-sanitizer is not on this machine"
    fi
}
first() {
    # Everything else waits until a few steps of a few games are equal.
    once contact "$python" "$here/exactness.py" --mixed --envs 32 --steps 50 --seconds 60 "$@" \
        --games pong breakout maze_craze solaris
    [ "$status" != 1 ] || return 0
    run "$python" "$here/speed.py" --sections grid compile --grid 32768 --seconds "$(remaining)" "$@"
    # As many steps as there is time for, at most 1,000.
    half=$((($(remaining) + 1) / 2))
    once all-games "$python" "$here/exactness.py" --mixed --envs 32 --steps 1000 --seconds "$half" "$@"
    for game in breakout seaquest; do profile "$game"; done
    sanitize memcheck racecheck synccheck
    run "$python" "$here/speed.py" --sections grid settings sizes start memory --games breakout \
        --grid 256 1024 4096 65536 131072 --seconds "$(remaining)" "$@"
}
# A profile of one step of a game: figures of the whole kernel, and the samples of each instruction.
profile() {
    if ! command -v ncu >/dev/null 2>&1; then
        echo "skipped: ncu is not on this machine"
        return 0
    fi
    mkdir -p "$out"
    found=0
    # After 110 steps environments are far from alike.
    once "ncu-$1" ncu --kernel-name parl_step --launch-skip 110 --launch-count 1 --section SourceCounters \
        --section WarpStateStats --section MemoryWorkloadAnalysis --section SpeedOfLight --section InstructionStats \
        --clock-control none --force-overwrite --export "$out/parl_step-$1" \
        "$python" "$here/steps.py" --games "$1" --envs 32768 --steps 111
    if [ "$found" = 0 ] && [ -e "$out/parl_step-$1.ncu-rep" ]; then
        # Takes a quarter of a minute of a processor; the GPU goes on meanwhile.
        {
            ncu --import "$out/parl_step-$1.ncu-rep" --page details >"$out/details-$1.txt"
            ncu --import "$out/parl_step-$1.ncu-rep" --page source --csv | gzip >"$out/source-$1.csv.gz"
            "$python" "$here/stalls.py" "$out/source-$1.csv.gz" >"$out/stalls-$1.txt"
        } &
    fi
}
# What the options are for: docs/decisions/0021-code-in-the-cache.md.
variants() {
    all="-DSYNC_PHASES=0 -DSYNC_PHASES=2 -DSYNC_PHASES=3 -DSYNC_PHASES=1 -DPARL_LOOPS=1"
    # One process per variant: each compiles three files.
    for options in $all; do
        PARL_NVRTC_OPTIONS=$options "$python" -c "from parl import cuda; cuda.prepare('cuda')" &
    done
    wait
    for options in $all; do
        export PARL_NVRTC_OPTIONS="$options"
        run "$python" "$here/speed.py" --sections games --seconds "$(remaining)" --games pong seaquest beam_rider enduro "$@"
    done
    unset PARL_NVRTC_OPTIONS
    for lanes in 4 8 16 32; do
        export PARL_CUDA_LANES="$lanes"
        run "$python" "$here/speed.py" --sections games --seconds "$(remaining)" --games pong --envs 4096 "$@"
    done
    unset PARL_CUDA_LANES
}
learn() {
    mkdir -p "$out"
    for sticky in 0.25 0.0; do
        for algorithm in ppo pqn; do
            name=pong-$algorithm-$sticky
            run=$name${commit:+-$commit}
            # A run that the limit cut off goes on from its checkpoint. Without one, parl numbers the next directory.
            saved=$(ls -d "$out/$run"/checkpoints/* "$out/$run"-[0-9]*/checkpoints/* 2>/dev/null | tail -n 1)
            if [ -n "$saved" ]; then
                once "$name" "$python" -m parl resume "${saved%/checkpoints/*}"
                continue
            fi
            once "$name" "$python" -m parl train "$algorithm" --preset atari-gpu ${PONG_ENVS:+--num-envs "$PONG_ENVS"} \
                --env-options device=cuda "repeat_action_probability=$sticky" --stop-at-return 18 \
                --total-steps "${PONG_STEPS:-20000000}" --evaluation-episodes 30 --seed 0 --runs "$out" --name "$run"
        done
    done
    # shellcheck disable=SC2086  # several numbers
    once bench-atari "$python" -m parl bench atari --device cuda --algorithms ppo pqn \
        --num-envs ${RATE_ENVS:-1024 4096 32768} --seconds "${BENCH_S:-5}" --out "$out/atari-rates.png"
    once tradeoff "$python" -m parl bench tradeoff --device cuda --env parl/Breakout-v0 --env-options device=cuda \
        --num-envs "${STRATEGY_ENVS:-1024}" --goal 30 --seconds "${BENCH_S:-30}" --out "$out/tradeoff.png"
}
cores() {
    mkdir -p "$out"
    once cores "$python" "$here/cores.py" --out "$out" "$@"
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
        echo "skipped micro: the repository's kernels are not on this machine"
    fi
}
speed() { run "$python" "$here/speed.py" --seconds "$(remaining)" "$@"; }

status=0
"$python" -m parl doctor || echo "parl doctor reports problems; affected parts report them again"
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
wait
[ "$status" != 3 ] || echo "not finished: run again with the same --out"
exit "$status"
