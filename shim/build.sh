#!/bin/sh
# Builds libholdfast.so into the directory given: shim/build.sh OUTDIR. Needs gcc (CC) and glibc 2.31 or later.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: shim/build.sh OUTDIR}
mkdir -p "$out"
tmp=$(mktemp "$out/.libholdfast.XXXXXX")
trap 'rm -f "$tmp"' EXIT
# shellcheck disable=SC2086
${CC:-gcc} -std=gnu11 -O2 -g -fPIC -shared -fvisibility=hidden -ftls-model=initial-exec -Wall -Wextra -Werror ${CFLAGS:-} \
	-Wl,-soname,libholdfast.so -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -o "$tmp" "$here"/*.c -ldl -lpthread
chmod 755 "$tmp"
mv "$tmp" "$out/libholdfast.so"
trap - EXIT
