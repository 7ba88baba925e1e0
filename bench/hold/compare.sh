#!/usr/bin/env bash
# Two builds of holdfast beside each other on a machine with an NVIDIA GPU and PyTorch: the stall of whole-process
# checkpoints of ResNet-50, the builds in turn, a new process each time.
#
#	[ROUNDS=3] [PAD=8] bench/hold/compare.sh BEFORE AFTER OUTDIR
#
# leaves one JSON file a process in OUTDIR and prints a table.
set -u
cd "$(dirname "$0")"
before=$1 after=$2 out=$3 holdfast=$2
. ../site.sh
site "${SIZE:-48g}"
for i in 0 1 2 3; do head -c 10G /dev/zero >"$work/images/grow$i" & done # see run.sh
wait $(jobs -p)
rm -f "$work"/images/grow*
for ((round = 1; round <= ${ROUNDS:-3}; round++)); do
	for build in before after; do
		holdfast=${!build}
		timeout -k 10 60 python3 hold.py --holdfast "$holdfast" --work "$work/images/$build" --program resnet \
			--pad-gib "${PAD:-8}" --shots full,full,full --part live --warm 40 \
			--out "$out/compare-$build-$round.json" >"$out/compare-$build-$round.log" 2>&1 ||
			tail -n 5 "$out/compare-$build-$round.log"
		end_held
		rm -rf "$work/images/$build"
	done
done
python3 compare.py "$out"
