#!/bin/sh
# Compares the software GPU with the GPU of this machine: run.sh [flags of softgpu-compare]. See README.md.
#
# It builds the command, runs it on the probes and on the kernel corpus, and writes results.json, the PTX of what
# differs (results-kernels.tar.gz) and table.md to $OUT (default: softgpu-results in the working directory).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-softgpu-results}
mkdir -p "$out" && out=$(cd "$out" && pwd)
binary=${BINARY:-$out/softgpu-compare} # BINARY: one that was built elsewhere, for machines without Go
if [ ! -x "$binary" ]; then
	(cd "$here/../.." && CGO_ENABLED=0 ${GO:-go} build -trimpath -o "$out/softgpu-compare.tmp" ./bench/softgpu)
	mv "$out/softgpu-compare.tmp" "$binary"
fi
corpus=$here/../../test/corpus
case " $* " in *" -short "*) limit=130 ;; *) limit=420 ;; esac
set -- -seed 1 -limit-seconds $limit -json "$out/results.json" -table "$out/table.md" "$@"
[ ! -d "$corpus" ] || set -- -corpus "$corpus" "$@"
status=0
"$binary" "$@" || status=$?
[ "$status" -ne 2 ] || exit 2
kernels=$out/results-kernels # one file for all of them, for machines from which few files come back
[ ! -d "$kernels" ] || { tar -czf "$kernels.tar.gz" -C "$out" results-kernels && rm -r "$kernels"; }
echo "results: $out/results.json, $out/table.md"
exit "$status"
