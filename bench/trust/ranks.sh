#!/usr/bin/env bash
# What is refused of jobs with several GPUs, on a machine with two NVIDIA GPUs and PyTorch:
# bench/trust/ranks.sh HOLDFAST OUTDIR
set -u
cd "$(dirname "$0")"
holdfast=$1 out=$2
. ../site.sh
site
timeout -k 20 400 python3 ranks.py --holdfast "$holdfast" --work "$work/ranks" --out "$out/ranks.json"
