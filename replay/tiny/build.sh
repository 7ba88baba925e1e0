#!/bin/sh
# Builds the smallest player of linked recordings: replay/tiny/build.sh OUTDIR makes OUTDIR/player. Needs a C compiler
# for x86-64 and no library.
set -eu
[ $# -eq 1 ] || { echo "usage: $0 OUTDIR" >&2; exit 2; }
src=$(dirname "$0")
mkdir -p "$1"
# No relocations, no tables to unwind, no protector that a libc would have to set up. SSE 4.2 has the checksum.
${CC:-cc} -std=gnu11 -Os -msse4.2 -ffreestanding -nostdlib -static -fno-pic -no-pie -fno-stack-protector \
	-fcf-protection=none -fno-asynchronous-unwind-tables -fno-tree-loop-distribute-patterns \
	-Wall -Wextra -Werror -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s \
	-o "$1/player.tmp" "$src"/sys.c "$src"/file.c "$src"/rm.c "$src"/play.c "$src"/main.c
mv "$1/player.tmp" "$1/player"
