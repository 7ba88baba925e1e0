#!/bin/sh
# Builds libholdfast.so into the directory given: shim/build.sh OUTDIR [DEVICE]. Needs gcc (CC) and glibc 2.31 or later.
# With DEVICE also OUTDIR/device/libholdfast.so, which takes files of that prefix for the GPU: tests have no others.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: shim/build.sh OUTDIR [DEVICE]}
mkdir -p "$out"
tmp=$(mktemp -d "$out/.libholdfast.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

compile() { # OBJECT ARGUMENTS…
	object=$1
	shift
	# shellcheck disable=SC2086
	${CC:-gcc} -std=gnu11 -O2 -g -fPIC -fvisibility=hidden -ftls-model=initial-exec -Wall -Wextra -Werror ${CFLAGS:-} \
		-c -o "$object" "$@"
}

link() { # LIBRARY OBJECTS…
	library=$1
	shift
	# shellcheck disable=SC2086
	${CC:-gcc} -O2 -g -fPIC -shared ${CFLAGS:-} -Wl,-soname,libholdfast.so -Wl,-z,defs -Wl,-z,now -Wl,-z,relro \
		-o "$tmp/library" "$@" -ldl -lpthread
	chmod 755 "$tmp/library"
	mv "$tmp/library" "$library"
}

# The generated wrappers take as long as all the rest.
compile "$tmp/zshim.o" "$here/zshim.c" &
wrappers=$!
for c in "$here"/*.c; do
	name=$(basename "$c" .c)
	[ "$name" = zshim ] || compile "$tmp/$name.o" "$c"
done
wait "$wrappers"
link "$out/libholdfast.so" "$tmp"/*.o
if [ $# -gt 1 ]; then
	mkdir -p "$out/device"
	compile "$tmp/fork.o" -DHF_DEVICE_PREFIX="\"$2\"" "$here/fork.c"
	link "$out/device/libholdfast.so" "$tmp"/*.o
fi
