#!/usr/bin/env bash
# Builds a free-threaded CPython 3.14 from its sources in target/python3.14t, in some five minutes: for `make test-free-threaded` and
# the free-threaded wheel. The sources are those of Debian's next release, or the archive (.tar.xz) that is given. Needs apt for
# the former, a C compiler, and the headers of OpenSSL, zlib and libffi (libssl-dev, zlib1g-dev, libffi-dev).
#
#     tools/free_threaded.sh [Python-3.14.7.tar.xz]
set -euo pipefail
archive=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."
. tools/debian.sh
folder=$PWD/target/python3.14t
python=$folder/bin/python3.14t
if [ ! -x "$python" ]; then
  work=$PWD/target/python3.14t-work
  rm -rf "$work"
  mkdir -p "$work"
  if [ -n "$archive" ]; then
    tar --extract --file "$archive" --directory "$work"
  else
    SUITE=forky debian_source "$work" python3.14
  fi
  cd "$work"/[Pp]ython*3.14*/
  ./configure --quiet --disable-gil --prefix="$folder" --disable-test-modules >"$work/log" 2>&1
  make -j"$(nproc)" >>"$work/log" 2>&1 || { tail "$work/log"; exit 1; }
  make install >>"$work/log" 2>&1
  rm -rf "$work"
fi
"$python" -c 'import ctypes, ssl, sys, zlib; print(sys.version); sys.exit(sys._is_gil_enabled())'
