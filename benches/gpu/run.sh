#!/bin/sh
# Everything that needs a CUDA device: first whether its numbers are those of the CPU, then how fast it is.
#
#   ALE_ROMS_DIR=<folder> benches/gpu/run.sh [--quick] [--part 1/4] [--out benches/records]
#
# Needs the installed wheel, torch with CUDA, NVRTC (pip install nvidia-cuda-nvrtc) and the folder of ROMs. Builds nothing.
# Stops with the first script that fails; findings are written as they are made. --quick takes minutes; --part runs a part
# of the games, where a machine is lent for minutes at a time. PARL_COMMIT names the commit where there is no repository.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python3}
"$python" -m parl doctor
# The tests that run with a stand-in elsewhere: here with the device, graphs and streams being torch's own.
if "$python" -c "import pytest" 2>/dev/null && [ -d "$here/../../tests/cuda" ]; then
    "$python" -m pytest -q -p no:cacheprovider "$here/../../tests/cuda"
else
    echo "pytest or the repository's tests are not on this machine: left out"
fi
if command -v compute-sanitizer >/dev/null 2>&1; then
    for tool in memcheck initcheck synccheck; do
        compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "$python" "$here/exactness.py" --games pong --envs 64 --steps 20 --out "${TMPDIR:-/tmp}/parl-sanitizer"
    done
    compute-sanitizer --error-exitcode 9 "$python" "$here/replay_exactness.py" --quick
else
    echo "compute-sanitizer is not on this machine: left out"
fi
"$python" "$here/replay_exactness.py" "$@"
"$python" "$here/replay_speed.py" "$@"
"$python" "$here/exactness.py" "$@"
"$python" "$here/speed.py" "$@"
# What the kernels rest on; it reads them from the repository.
if [ -d "$here/../../crates/cule/kernels" ]; then "$python" "$here/micro.py" "$@"; fi
