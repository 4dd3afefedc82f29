#!/bin/sh
# Everything that needs a CUDA device: first whether its numbers are those of the CPU, then how fast it is.
#
#   ALE_ROMS_DIR=<folder> benches/gpu/run.sh [--quick] [--out benches/records]
#
# Needs the installed wheel, torch with CUDA, NVRTC (pip install nvidia-cuda-nvrtc) and the folder of ROMs. Builds nothing.
# Stops with the first difference; measurements are written as they are made.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python3}
"$python" -m parl doctor
if command -v compute-sanitizer >/dev/null 2>&1; then
    compute-sanitizer --error-exitcode 9 "$python" "$here/exactness.py" --games pong --envs 64 --steps 20
    compute-sanitizer --error-exitcode 9 "$python" "$here/replay_exactness.py" --quick
else
    echo "compute-sanitizer is not on this machine: left out"
fi
"$python" "$here/replay_exactness.py" "$@"
"$python" "$here/replay_speed.py" "$@"
"$python" "$here/exactness.py" "$@"
"$python" "$here/speed.py" "$@"
