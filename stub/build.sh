#!/bin/sh
# Builds the stub libcuda.so.1 of the software GPU: stub/build.sh OUTDIR. Needs a C compiler and nothing else
# (glibc 2.31 or newer).
set -eu
[ $# -eq 1 ] || { echo "usage: $0 OUTDIR" >&2; exit 2; }
src=$(dirname "$0")
mkdir -p "$1"
# -Bsymbolic: calls between our own functions stay inside, whatever is preloaded over them.
${CC:-cc} -std=gnu11 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror \
	-Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,-z,defs \
	-o "$1/libcuda.so.1.tmp" "$src"/*.c -lpthread
mv "$1/libcuda.so.1.tmp" "$1/libcuda.so.1"
