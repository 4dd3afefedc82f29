# Sourced by scripts that compile for other systems: `cross_rust TARGET...` sets the environment for cargo.
. tools/debian.sh

# Uses rustup's standard libraries if it can download them. Otherwise those of Debian's rustc-web, of which each target but
# aarch64 Linux is compiled with every build (nightly cargo's -Zbuild-std), which takes one to two minutes more. CROSS=debian
# skips rustup.
cross_rust() {
  if [ "${CROSS:-}" != debian ] && timeout 60 rustup target add "$@" 2>/dev/null; then return; fi
  echo "rustup has no standard libraries of $*: taking Debian's" >&2
  local folder=$PWD/target/cross/rust
  if [ ! -f "$folder/done" ]; then
    debian_unpack amd64 "$folder" rustc-web cargo-web rust-web-src libstd-rust-web-dev libstd-rust-web-1.96 libllvm22 libgit2-1.5 \
      libhttp-parser2.9 libmbedtls14 libmbedx509-1 libmbedcrypto7
    debian_unpack arm64 "$folder" libstd-rust-web-dev
    touch "$folder/done"
  fi
  export PATH=$folder/usr/bin:$PATH LD_LIBRARY_PATH=$folder/usr/lib/x86_64-linux-gnu:$folder/usr/lib RUSTC_BOOTSTRAP=1
  unset RUSTUP_TOOLCHAIN
  # Of another compiler version: kept apart from the other builds.
  export CARGO_TARGET_DIR=$PWD/target/cross/build
  BUILD_STD=std,panic_unwind
}
