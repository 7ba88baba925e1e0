#!/bin/sh
# Compiles every .cu of this directory to PTX and writes the applications' JSON.
# Needs nvcc (CUDA 12.4 made what is committed) as $NVCC or in PATH, and python3.
# The line "// variants: …" of a source names what is made besides NAME.ptx (-O3, sm_90):
#   O0 O1    the device compiler's optimisation level
#   fast     --use_fast_math
#   nofma    -fmad=false
#   sm_70 …  another architecture
# A variant that differs from an earlier one in its .target line only is not kept.
set -eu
cd "$(dirname "$0")"
: "${NVCC:=nvcc}"

compile() { # arch out flags…
	arch=$1 out=$2
	shift 2
	"$NVCC" -ptx -arch="$arch" "$@" ${NVCCFLAGS:-} -o "$out" "$src"
	# Names of internal functions have a digest of the path in them.
	sed -E -i 's/(_INTERNAL_)[0-9a-f]{8}/\1digested/g; s/(_INTERNAL_digested_[0-9]+_[a-z]+_cu_)[0-9a-f]{8}/\1digested/g' "$out"
}

body() { sed '/^\.target/d' "$1" | cksum; }

for src in ${*:-*.cu}; do
	name=${src%.cu}
	rm -f "$name".ptx "$name".*.ptx
	compile sm_90 "$name.ptx" -O3
	seen=$(body "$name.ptx")
	for v in $(sed -n 's|^// variants: ||p' "$src"); do
		out=$name.$v.ptx
		case $v in
		O[01]) compile sm_90 "$out" -Xcicc -"$v" ;;
		fast) compile sm_90 "$out" -O3 --use_fast_math ;;
		nofma) compile sm_90 "$out" -O3 -fmad=false ;;
		sm_*) compile "$v" "$out" -O3 ;;
		*) echo "$src: variant $v?" >&2 && exit 1 ;;
		esac
		sum=$(body "$out")
		case "$seen" in
		*"$sum"*) rm "$out" ;;
		*) seen="$seen
$sum" ;;
		esac
	done
done
python3 launches.py
