#!/usr/bin/env bash
# Installs and selects the oldest Rust that parl supports, as Cargo.toml names it. Needs rustup; used by the workflows.
set -euo pipefail
version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$(dirname "$0")/../Cargo.toml")
rustup toolchain install "$version" --profile minimal --component clippy,rustfmt
rustup default "$version"
