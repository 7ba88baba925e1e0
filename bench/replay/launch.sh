#!/bin/sh
# Measures launches without libcuda beside CUDA graphs, and cold starts, on this machine's GPU. Prints a table.
#   bench/replay/launch.sh [DIR]     DIR has the programs, if they were built elsewhere: launch, peer
# Needs an H200 or another GPU of sm_90, gcc, libcuda with its header, and Go unless launch is in DIR.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$(mktemp -d)}
cubin=$here/../../internal/cubin/testdata/sm_90.cubin
cuda=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")}
[ -x "$dir/launch" ] || (cd "$here/launch" && CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o "$dir/launch" .)
[ -x "$dir/peer" ] ||
  gcc -std=c11 -O2 -I"$cuda/include" -o "$dir/peer" "$here/launch_peer.c" -L"$cuda/lib64/stubs" -lcuda
exec python3 "$here/launch_report.py" "$dir" "$cubin"
