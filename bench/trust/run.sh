#!/usr/bin/env bash
# Checkpoints back to back of programs that nobody wrote for it, on a machine with an NVIDIA GPU, PyTorch, JAX and
# transformers:
#
#	[COUNT=200] [SECONDS_EACH=450] bench/trust/run.sh HOLDFAST OUTDIR [PROGRAM…]
#
# leaves one JSON file a program in OUTDIR (jax and threads: whole processes; generate and churn: GPU memory alone), and
# a table. The programs run side by side; threads@2 is another threads.
set -u
cd "$(dirname "$0")"
holdfast=$1 out=$2
shift 2
. ../site.sh
site "${SIZE:-90g}"
[ $# -gt 0 ] || set -- jax threads generate churn
jobs=()
for program in "$@"; do
	kind=whole
	case $program in generate | churn) kind=gpu ;; esac
	timeout -k 20 "$((${SECONDS_EACH:-450} + 120))" python3 trust.py --holdfast "$holdfast" \
		--work "$work/images/$program" --program "$program" \
		--kind "$kind" --count "${COUNT:-200}" --seconds "${SECONDS_EACH:-450}" --out "$out/$program.json" &
	jobs+=($!)
done
wait "${jobs[@]}"
