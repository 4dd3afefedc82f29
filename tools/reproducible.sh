#!/usr/bin/env bash
# Builds the wheel of the last commit twice and compares the two files: `make reproducible`. maturin and zig must be on PATH.
#
# The commit's date stands in place of the time, and Rust code names no path of this machine. The list of crates and the debug
# information of zig's libunwind still name folders: for equal files both builds use one folder, which is emptied in between.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/target/reproducible
export SOURCE_DATE_EPOCH CARGO_TARGET_DIR=$folder/source/target
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export RUSTFLAGS="--remap-path-prefix=$folder/source=/parl --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
rm -rf "$folder"
for build in 1 2; do
  rm -rf "$folder/source"
  mkdir -p "$folder/source"
  git archive HEAD | tar --extract --directory "$folder/source"
  (cd "$folder/source" && maturin build --quiet --release --locked --zig --compatibility manylinux_2_28 --out "../$build")
done
cd "$folder"
sha256sum ./*/*.whl
cmp 1/*.whl 2/*.whl
