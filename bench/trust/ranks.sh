#!/usr/bin/env bash
# What is refused of jobs with several GPUs, on a machine with two NVIDIA GPUs and PyTorch: bench/trust/ranks.sh HOLDFAST OUTDIR
set -u
cd "$(dirname "$0")"
holdfast=$1 out=$2
work=$(mktemp -d /tmp/holdfast-ranks.XXXXXX)
export HOLDFAST_DIR=$work/run PYTHONUNBUFFERED=1
mkdir -m 700 "$HOLDFAST_DIR"
cleanup() {
	for pid in $("$holdfast" ps --json 2>/dev/null | sed -n 's/^    "pid": \([0-9]*\),$/\1/p'); do kill -KILL "$pid" 2>/dev/null; done
	"$holdfast" daemon stop --force >/dev/null 2>&1
}
trap 'cleanup; cp "$HOLDFAST_DIR/daemon.log" "$out/ranks-daemon.log" 2>/dev/null; rm -rf "$work"' EXIT
timeout -k 20 400 python3 ranks.py --holdfast "$holdfast" --work "$work/ranks" --out "$out/ranks.json"
