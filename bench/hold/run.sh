#!/usr/bin/env bash
# The hold benchmark on a machine with an NVIDIA GPU and PyTorch:
#
#	bench/hold/run.sh HOLDFAST OUTDIR [PART…]
#
# mounts a tmpfs with huge pages for the images (as root), runs every program with hold.py, and leaves one
# JSON file each in OUTDIR; report.py makes docs/results/hold.md of them. With PARTs, only those programs.
set -u
cd "$(dirname "$0")"
holdfast=$1 out=$2
shift 2
. ../site.sh
site "${SIZE:-110g}"

# A virtual machine's memory may grow as it is touched, far slower than it is written later.
for i in 0 1 2 3 4 5 6 7 8 9 10 11; do head -c "${GROW:-7}G" /dev/zero >"$work/images/grow$i" & done
wait $(jobs -p)
rm -f "$work"/images/grow*

part() {
	local name=$1 seconds=$2
	shift 2
	[ ${#parts[@]} -eq 0 ] || [[ " ${parts[*]} " = *" $name "* ]] || return 0
	echo "=== $name"
	timeout -k 10 "$seconds" python3 hold.py --holdfast "$holdfast" --work "$work/images/$name" \
		--out "$out/$name.json" "$@" 2>&1 |
		tail -n "${LINES_SHOWN:-60}"
	end_held
	rm -rf "$work/images/$name"
}
parts=("$@")
part resnet 260 --program resnet --pad-gib 64 --shots gpu,gpu,full,full --part live,warm,cold,driver --warm 100
part overhead 120 --program resnet --part overhead --rounds 2 --count 300
part gpt2 60 --program gpt2 --pad-gib 2 --shots gpu,full --part live,warm,driver --warm 30
part gpt2-launch 120 --program gpt2-eager --part overhead --rounds 2 --count 60 --warm 10
part cupy 60 --program cupy --pad-gib 16 --shots gpu,full --part live,cold,driver --warm 300
part frozen 60 --program frozen --pad-gib 2 --shots gpu,gpu,full --part live --warm 30
part transformer 120 --program transformer --shots gpu,full --part live,cold --warm 30
export TORCHINDUCTOR_COMPILE_THREADS=1 # no pool of compiling processes beside the program
part transformer-1 120 --program transformer --shots gpu,full --part live,cold --warm 30
unset TORCHINDUCTOR_COMPILE_THREADS
part series 90 --program resnet --part series
part series-graph 60 --program gpt2 --part series
