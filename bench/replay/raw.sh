#!/bin/bash
# Replays recordings of PyTorch models without a CUDA library, and by libcuda beside it:
# bench/replay/raw.sh HOLDFAST HFREPLAY OUTDIR [MODEL…]
# For each model: are the outputs of hfreplay bit-identical on the recorded input and on five others; for both, five
# cold starts (seconds from the start of the process to the output; ms of that: device, reading beside it, memory,
# code, work, first pass) and the median of 1000 passes.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
hf=$(realpath "$1") hr=$(realpath "$2") out=$3
shift 3
mkdir -p "$out"
export HOLDFAST_DIR=$out/run XDG_CACHE_HOME=$out/cache
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

record() {
	local model=$1 d=$work/$1 hints
	mkdir -p "$d"
	read -ra hints <<<"$(python3 "$here/models.py" "$model" --hints)"
	timeout 150 "$hf" record -o "$d/m.hfr" --gpu=native "${hints[@]}" -- \
		python3 "$here/models.py" "$model" --dir "$d" >"$out/$model.log" 2>&1 ||
		echo "$model: not recorded: $(tail -n 3 "$out/$model.log")"
}
for model in "${@:-mlp}"; do
	while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n; done
	record "$model" &
done
wait

start='import json, sys
try:
    r = json.load(sys.stdin)
    s, ms = r["start_nanoseconds"], 1e-6
    print("%.3f (%.0f %.0f %.0f %.0f %.0f %.1f)" % (r["total_seconds"], 1e3 * r["open_seconds"], ms * s["read"],
          ms * s["memory"], ms * s["code"], ms * s["prepare"], 1e3 * r["first_run_seconds"]))
except ValueError:
    print("failed")'
median='import json, sys
try:
    print("%.1f us" % (1e6 * json.load(sys.stdin)["median_run_seconds"]))
except ValueError:
    print("failed")'

for model in "${@:-mlp}"; do
	d=$work/$model log=$out/$model.log
	[ -f "$d/m.hfr" ] || continue
	for i in "" 0 1 2 3 4; do
		given=(--in "x=$d/x$i.npy")
		[ -z "$i" ] && given=()
		timeout 30 "$hr" --experimental "$d/m.hfr" "${given[@]}" --out "y=$d/r$i.npy" >>"$log" 2>&1 && continue
		echo "$model: raw: $(tail -n 1 "$log")"
		break
	done
	echo "$model: raw: $(python3 "$here/models.py" "$model" --same "$d") of 6 outputs bit-identical"
	for backend in raw libcuda; do
		run=("$hr" --experimental "$d/m.hfr")
		[ $backend = raw ] || run=("$hf" replay "$d/m.hfr" --backend libcuda)
		cold=()
		for _ in 1 2 3 4 5; do
			cold+=("$(timeout 30 "${run[@]}" --in "x=$d/x0.npy" --out "y=$d/c.npy" --json 2>>"$log" |
				python3 -c "$start")")
		done
		echo "$model: $backend: cold to first output: ${cold[*]}"
		echo "$model: $backend: median of 1000: $(timeout 60 "${run[@]}" -n 1000 --json 2>>"$log" |
			python3 -c "$median")"
	done
done 2>&1 | tee "$out/summary.txt"
