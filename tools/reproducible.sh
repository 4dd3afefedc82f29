#!/usr/bin/env bash
# Builds the wheel of the last commit twice and compares the two files: `make reproducible`. maturin and zig must be on PATH.
#
# The commit's date stands in place of the time, and Rust code names no path of this machine. --strip removes symbols, whose
# names differ from build to build after thin link-time optimization, and the folders in the debug information of zig's
# libunwind. The list of crates names the folder of the sources: both builds use one, which is emptied in between.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/target/reproducible
export SOURCE_DATE_EPOCH CARGO_TARGET_DIR=$folder/source/target
commit=$(git rev-parse HEAD) # both builds are of this one, whatever is committed meanwhile
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
export RUSTFLAGS="--remap-path-prefix=$folder/source=/parl --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
rm -rf "$folder"
for build in 1 2; do
  rm -rf "$folder/source"
  mkdir -p "$folder/source"
  git archive "$commit" | tar --extract --directory "$folder/source"
  (cd "$folder/source" && maturin build --quiet --release --strip --locked --zig --compatibility manylinux_2_28 --out "../$build")
done
cd "$folder"
sha256sum ./*/*.whl
cmp 1/*.whl 2/*.whl
