#!/bin/sh
# Collects what `run.sh` needs on a machine without a network that has Python, torch and a GPU, and rehearses it.
#
#   benches/gpu/prepare.sh [FOLDER]
#
# Writes to FOLDER (target/gpu): `wheels`, with parl's wheel and the pure Python packages that it needs, and `roms`,
# the ROM files of the installed ale-py; at most 60 MiB. Then runs the parts `first`, `variants`, `learn`, `cores` in a small form,
# with the fake driver (tests/cuda/fake_driver), in an environment that has torch but neither parl nor gymnasium, and
# prints their times. Copy FOLDER and the repository to the machine; lease.md has the commands there.
# GPU_PYTHON is the version of Python there (3.12). REHEARSE= skips the rehearsal.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
folder=${1:-$root/target/gpu}
python=$root/.venv/bin/python
mkdir -p "$folder"
folder=$(CDPATH= cd -- "$folder" && pwd)

rm -rf "$folder/wheels" "$folder/roms"
# maturin looks for zig in PATH.
(cd "$root" && PATH="$root/.venv/bin:$PATH" "$root/.venv/bin/maturin" build --quiet --release --zig --compatibility manylinux_2_28 --out "$folder/wheels")
for package in gymnasium farama-notifications cloudpickle typing-extensions safetensors \
    tyro docstring-parser typeguard shtab rich markdown-it-py mdurl pygments tomli-w; do
    "$python" -m pip download --quiet --no-deps --only-binary=:all: --python-version "${GPU_PYTHON:-3.12}" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        --dest "$folder/wheels" "$package"
done
roms=${ALE_ROMS_DIR:-$("$python" -c 'import importlib.util as u, pathlib
print(pathlib.Path(u.find_spec("ale_py").origin).parent / "roms")')}
cp -r "$roms" "$folder/roms"
size=$(du -sm "$folder/wheels" "$folder/roms" | awk '{sum += $1} END {print sum}')
echo "$folder holds $size MiB"
[ "$size" -le 60 ] || { echo "more than 60 MiB: leave out packages that the machine has" >&2; exit 1; }
[ -n "${REHEARSE-yes}" ] || exit 0

# An environment with all packages of .venv except parl and those that a machine with torch usually lacks.
bare=$folder/bare
rm -rf "$bare" "$folder/rehearsal"
"$python" -m venv --without-pip "$bare"
site=$(echo "$bare"/lib/python*/site-packages)
for entry in "$root"/.venv/lib/python*/site-packages/*; do
    case $(basename "$entry") in
    parl* | gymnasium* | ale_py* | farama* | cloudpickle* | tyro* | tomli_w* | *.pth) ;;
    *) ln -s "$entry" "$site" ;;
    esac
done
# The fake driver stands in for the machine's; the script in front of each command, for its GPU.
device=$root/tests/cuda/device
cat >"$folder/python" <<END
#!/bin/sh
case \$* in
"-m zipfile "* | "-c import "*) exec "$bare/bin/python" "\$@" ;;
*) exec "$bare/bin/python" "$device/run_on_fake_driver.py" "\$@" ;;
esac
END
chmod +x "$folder/python"
PYTHONPATH=$root/python "$python" - "$device" >"$folder/environment" <<'END'
import os, sys
sys.path.insert(0, sys.argv[1])
import fake_driver
changed = {name: value for name, value in fake_driver.build().items() if os.environ.get(name) != value}
print("\n".join(f"export {name}='{value}'" for name, value in changed.items()))
END
. "$folder/environment"
export PARL_WHEELS="$folder/wheels" ALE_ROMS_DIR="$folder/roms" PYTHON="$folder/python" TMPDIR="$folder/rehearsal"
mkdir -p "$TMPDIR"
export PONG_ENVS=2 PONG_STEPS=600 RATE_ENVS=2 STRATEGY_ENVS=16 BENCH_S=1
for part in first variants learn cores; do
    started=$(date +%s)
    "$here/run.sh" "$part" --quick --games pong --envs 2 --steps 6 --sizes 2 --grid 2 --out "$folder/rehearsal/out"
    echo "rehearsed $part in $(($(date +%s) - started)) s"
done
