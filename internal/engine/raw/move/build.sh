#!/bin/sh
# Makes the cubins of move.cu, one for each generation, and sums.txt, which says what they were made of and by what.
#   build.sh        needs nvcc (12.0 or later)
set -eu
cd "$(dirname "$0")"
for arch in 80 86 89 90; do
	nvcc -cubin -arch=sm_$arch -O3 -std=c++17 -o sm_$arch.cubin move.cu
done
{
	nvcc --version | tail -2
	sha256sum move.cu sm_*.cubin
} >sums.txt
