#!/usr/bin/env bash
# Compiles the crates, with their tests and examples, for systems that parl has no tests on, without linking, and checks the
# types of the Python package as on those systems: `make check-targets`. basedpyright must be on PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/cross.sh
TARGETS=(${TARGETS:-x86_64-pc-windows-gnu aarch64-apple-darwin x86_64-apple-darwin})
for system in Linux Darwin Windows; do basedpyright --pythonplatform "$system" ${PYTHON_ARGUMENTS:-} python/parl; done
BUILD_STD=
cross_rust "${TARGETS[@]}"
# No Python of that system is needed: the extension has the stable ABI.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0 PYO3_NO_PYTHON=1 ${BUILD_STD:+CARGO_UNSTABLE_BUILD_STD=$BUILD_STD}
crates=(-p cuda -p sumtree -p cule -p dense -p xla_ffi)
for target in "${TARGETS[@]}"; do
  echo "$target"
  cargo check --quiet --keep-going --target "$target" "${crates[@]}" --lib --tests --examples
  cargo check --quiet --target "$target" -p bindings --features pyo3/extension-module
done
