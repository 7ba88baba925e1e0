#!/bin/bash
# Records the inference of PyTorch models and replays it, on a GPU: bench/replay/run.sh HOLDFAST OUTDIR [MODEL…]
# For each model: are the outputs bit-identical on the recorded input and on five others, how large is the recording,
# how long from the start of a process to the first output, how long a pass in the steady state; PyTorch beside it.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
hf=$(realpath "$1") out=$2
shift 2
mkdir -p "$out"
export HOLDFAST_DIR=$out/run XDG_CACHE_HOME=$out/cache
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.3f", b - a }'; }

for model in "${@:-mlp}"; do
	d=$work/$model log=$out/$model.log
	mkdir -p "$d"
	: >"$log"
	read -ra hints <<<"$(python3 "$here/models.py" "$model" --hints)"
	begun=$(now)
	if ! timeout 150 "$hf" record -o "$d/m.hfr" --gpu=native "${hints[@]}" -- \
		python3 "$here/models.py" "$model" --dir "$d" >>"$log" 2>&1; then
		echo "$model: not recorded: $(tail -n 3 "$log")"
		continue
	fi
	echo "$model: recorded in $(since "$begun") s, $(stat -c %s "$d/m.hfr") bytes"
	timeout 60 "$hf" inspect "$d/m.hfr" >>"$log" 2>&1
	grep -E 'entry|words|memory' "$log" | sed "s/^/$model: /"

	for i in "" 0 1 2 3 4; do
		given=(--in "x=$d/x$i.npy")
		[ -z "$i" ] && given=()
		timeout 60 "$hf" replay "$d/m.hfr" --backend libcuda "${given[@]}" --out "y=$d/r$i.npy" >>"$log" 2>&1 ||
			tail -n 2 "$log"
	done
	same=$(python3 "$here/models.py" "$model" --same "$d")
	echo "$model: $same of 6 outputs bit-identical (the recorded input, five others)"
	cold=()
	for _ in 1 2 3 4 5; do
		said=$(timeout 60 "$hf" replay "$d/m.hfr" --backend libcuda --in "x=$d/x0.npy" --out "y=$d/r.npy" --json \
			2>>"$log" | tee -a "$log")
		cold+=("$(python3 -c 'import json, sys; print("%.3f" % json.loads(sys.argv[1])["total_seconds"])' "$said")")
	done
	echo "$model: cold to first output, replay: ${cold[*]} s"
	timeout 60 "$hf" replay "$d/m.hfr" --backend libcuda -n 300 --json 2>>"$log" | tr -d '\n ' | sed "s/^/$model: /"
	echo
	cold=()
	for _ in 1 2 3; do
		cold+=("$(timeout 60 python3 "$here/models.py" "$model" --cold 2>>"$log")")
	done
	echo "$model: cold to first output, PyTorch: ${cold[*]} s"
	echo "$model: PyTorch's CUDA graph, median: $(timeout 60 python3 "$here/models.py" "$model" --steady 2>>"$log") s"
done 2>&1 | tee "$out/summary.txt"
