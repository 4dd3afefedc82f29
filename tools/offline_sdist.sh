#!/usr/bin/env bash
# Builds the source distribution, vendors its crates, and builds and uses a wheel from that without a network:
# `make offline-sdist`. maturin must be on PATH; `unshare` (util-linux) takes the network away. Quick, so without optimization.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/target/offline
rm -rf "$folder"
mkdir -p "$folder"
maturin sdist 2>/dev/null --out "$folder"
tar --extract --file "$folder"/parl_rl-*.tar.gz --directory "$folder" --strip-components 1 --one-top-level=source
cd "$folder/source"
mkdir -p .cargo
# Without --locked: crates that only benchmarks and generators need leave the lock file, which keeps the versions of the others.
cargo vendor >.cargo/config.toml 2>../vendor.log
export CARGO_HOME=$folder/cargo CARGO_TARGET_DIR=$folder/target # without the crates that cargo has downloaded before
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0
unshare --map-root-user --net bash -euc '
  if timeout 5 bash -c "exec 3<>/dev/tcp/1.1.1.1/443" 2>/dev/null; then echo "there is a network"; exit 1; fi
  maturin build --quiet --release --locked --out ..
'
python -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])' "$folder"/parl_rl-*.whl "$folder/installed"
PYTHONPATH=$folder/installed python -c '
import sys, parl
assert parl.__file__.startswith(sys.argv[1]), parl.__file__
tree = parl.SumTree(8)
tree.update([3], [1.0])
assert tree.sample(1)[0][0] == 3
print("parl", parl.__version__, "was built without a network from its source distribution")
' "$folder"
