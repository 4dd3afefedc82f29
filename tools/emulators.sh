#!/usr/bin/env bash
# Unpacks or builds what `tests/wheels/run.py` tries wheels with, in target/emulators: QEMU's emulators of processors, Debian's
# Python for aarch64, and a Python for musl, which is compiled from Debian's sources in some five minutes. Needs apt and a C
# compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/debian.sh
folder=$PWD/target/emulators
mkdir -p "$folder"

[ -x "$folder/qemu/usr/bin/qemu-aarch64-static" ] || debian_unpack amd64 "$folder/qemu" qemu-user-static
[ -x "$folder/aarch64/usr/bin/python3.11" ] || debian_unpack_all arm64 "$folder/aarch64" python3.11 libstdc++6 libgomp1

if [ ! -x "$folder/musl/bin/python3.11" ]; then
  work=$folder/musl-work
  mkdir -p "$work"
  debian_unpack amd64 "$work/musl" musl musl-dev musl-tools
  debian_source "$work/source" python3.11 zlib libffi
  # Debian's compiler with musl's files in place of glibc's, from the folders above.
  files=$work/musl/usr/lib/x86_64-linux-musl headers=$work/musl/usr/include/x86_64-linux-musl
  sed -i "s#/usr/include/x86_64-linux-musl#$headers#g; s#/usr/lib/x86_64-linux-musl#$files#g; s#-dynamic-linker /lib/#-dynamic-linker $work/musl/lib/#" \
    "$files/musl-gcc.specs"
  ln -sf "$work/musl/lib/x86_64-linux-musl/libc.so" "$files/libc.so"
  ln -sfn /usr/include/linux "$headers/linux"
  ln -sfn /usr/include/asm-generic "$headers/asm-generic"
  ln -sfn /usr/include/x86_64-linux-gnu/asm "$headers/asm"
  cat >"$work/cc" <<END
#!/bin/sh
[ "\$1" = --print-multiarch ] && echo x86_64-linux-musl && exit
exec gcc "\$@" -specs $files/musl-gcc.specs
END
  chmod +x "$work/cc"
  export CC=$work/cc
  (cd "$work"/source/zlib-*/ && CFLAGS="-O2 -fPIC" ./configure --static --prefix="$folder/musl" && make install) >"$work/log"
  (cd "$work"/source/libffi-*/ && CFLAGS="-O2 -fPIC" ./configure --disable-shared --disable-docs --prefix="$folder/musl" && make install) >>"$work/log"
  cd "$work"/source/Python-3.11*/
  # It would take headers and libraries of this machine, which are for glibc.
  sed -i 's/^    def add_multiarch_paths(self):/&\n        return/' setup.py
  sed -i -E "s#add_dir_to_list\(self.compiler.(library|include)_dirs, '/usr/local/(lib|include)'\)#pass#" setup.py
  export CPPFLAGS=-I$folder/musl/include LDFLAGS="-L$folder/musl/lib -L$folder/musl/lib64" PKG_CONFIG_PATH=$folder/musl/lib/pkgconfig
  ./configure --prefix="$folder/musl" --without-ensurepip --disable-test-modules --without-doc-strings >>"$work/log"
  make -j"$(nproc)" >>"$work/log" 2>&1
  make install >>"$work/log" 2>&1
  # To run: newer packages, numpy among them, have a kind of relocations (RELR) that musl knows from 1.2.4 on. Not to compile: it has
  # functions that the headers lack.
  SUITE=trixie debian_unpack amd64 "$work/musl-1.2.5" musl
  cp "$(find "$work/musl-1.2.5" -type f -name libc.so)" "$work/musl/lib/x86_64-linux-musl/libc.so"
fi
"$folder/musl/bin/python3.11" -c "import ctypes, sysconfig, zlib; print('musl:', sysconfig.get_config_var('SOABI'))"
"$folder/qemu/usr/bin/qemu-aarch64-static" -L "$folder/aarch64" "$folder/aarch64/usr/bin/python3.11" -c "import platform; print('aarch64:', platform.platform())"
