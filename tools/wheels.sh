#!/usr/bin/env bash
# Builds the wheels for Linux into dist: x86-64 and aarch64 with glibc 2.28 or newer, x86-64 with musl 1.2: `make wheels`.
# maturin and zig must be on PATH. With a free-threaded Python of `tools/free_threaded.sh` also its wheel, for x86-64 and glibc.
# `make try-wheels` installs and tries each one.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/cross.sh
WHEELS=(${WHEELS:-x86_64-unknown-linux-gnu:manylinux_2_28 aarch64-unknown-linux-gnu:manylinux_2_28 x86_64-unknown-linux-musl:musllinux_1_2})
BUILD_STD=
cross_rust aarch64-unknown-linux-gnu x86_64-unknown-linux-musl
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
for wheel in "${WHEELS[@]}"; do
  std=
  case $wheel in *-musl:*) std=$BUILD_STD ;; esac
  env ${std:+CARGO_UNSTABLE_BUILD_STD=$std} maturin build --quiet --release --strip --locked --zig \
    --target "${wheel%:*}" --compatibility "${wheel#*:}" --interpreter python3 --out dist
done
free_threaded=target/python3.14t/bin/python3.14t
if [ -x "$free_threaded" ]; then
  maturin build --quiet --release --strip --locked --zig --target x86_64-unknown-linux-gnu --compatibility manylinux_2_28 \
    --interpreter "$free_threaded" --out dist
fi
ls -l dist/*.whl
