#!/usr/bin/env bash
# The demonstration: a program trains a small network. It is checkpointed three times while
# it trains, killed with SIGKILL and restored from the last image. Its final weights must be
# those of an uninterrupted run, byte for byte.
#
#	scripts/demo.sh [auto|native|soft]	(make demo)
#
# HOLDFAST_DEMO_SECONDS  how long the training should last, about (default 20)
# HOLDFAST_DEMO_PAD      MiB of device memory beside the network (default 64; 4096 on a real GPU)
# HOLDFAST_DEMO_KEEP     leave the working directory, with logs and images, where it is
set -euo pipefail
cd "$(dirname "$0")/.."
hf=$PWD/bin/holdfast
train=$PWD/build/examples/train
seconds=${HOLDFAST_DEMO_SECONDS:-20}

work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-demo.XXXXXX")
export HOLDFAST_DIR=$work/run
mkdir -m 700 "$HOLDFAST_DIR"
runner=

# Everything that was started is ended by its process ID; the daemon and the software GPU
# serve this run's directory only.
cleanup() {
	status=$?
	trap - EXIT INT TERM
	set +e
	if [ "$status" -ne 0 ]; then
		printf '\ndemo: failed (status %s)\n' "$status" >&2
		for log in run.log restore.log restore.err run/daemon.log run/softgpu.log; do
			if [ -s "$work/$log" ]; then
				printf -- '--- the end of %s\n' "$log" >&2
				tail -n 15 "$work/$log" >&2
			fi
		done
	fi
	for pid in $(held_pids) $runner; do
		kill -KILL "$pid" 2>/dev/null
	done
	[ -n "$runner" ] && wait "$runner" 2>/dev/null
	"$hf" daemon stop --force >/dev/null 2>&1
	"$hf" softgpu --stop >/dev/null 2>&1
	[ -n "${HOLDFAST_DEMO_KEEP:-}" ] && echo "demo: see $work" || rm -rf "$work"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# number FIELD FILE: a number from the outermost object of indented JSON.
number() { sed -n "s/^  \"$1\": \\([-+.eE0-9]*\\),\\{0,1\\}\$/\\1/p" "$2"; }
text() { sed -n "s/^  \"$1\": \"\\(.*\\)\",\\{0,1\\}\$/\\1/p" "$2"; }
held_pids() { "$hf" ps --json 2>/dev/null | sed -n 's/^    "pid": \([0-9]*\),$/\1/p'; }
steps_done() { [ -s "$1" ] && tail -n 1 "$1" | cut -d ' ' -f 1 || echo -1; }

# reach STEP: wait until the program has done it; give up when it ended or stands still for a minute.
reach() {
	local seen=-2 now still=0
	while now=$(steps_done "$work/held.steps") && [ "$now" -lt "$1" ]; do
		kill -0 "$runner" 2>/dev/null || { echo "demo: the program ended at step $now" >&2; return 1; }
		[ "$now" = "$seen" ] && still=$((still + 1)) || still=0
		[ "$still" -lt 1200 ] || { echo "demo: the program stands still at step $now" >&2; return 1; }
		seen=$now
		sleep 0.05
	done
}

gpu=${1:-auto}
[ "$gpu" != auto ] || gpu=$("$hf" doctor --json | text gpu /dev/stdin) || true
[ -n "$gpu" ] || { echo 'demo: holdfast doctor says nothing' >&2; exit 1; }
pad=${HOLDFAST_DEMO_PAD:-$([ "$gpu" = native ] && echo 4096 || echo 64)}

# How fast is this machine? A short run tells how many steps fill the time.
"$hf" run --gpu="$gpu" --name measure -- "$train" --steps 200 --every 0 --step-log "$work/measure.steps" \
	>"$work/measure.log"
steps=$(awk -v s="$seconds" 'NR == 20 { n = NR; t = $2 } END { r = (NR - n) * 1e9 / ($2 - t); v = int(r * s / 100) * 100
	if (v < 500) v = 500; if (v > 5000000) v = 5000000; printf "%d", v }' "$work/measure.steps")
every=$((steps / 10))
echo "GPU: $gpu.  Training: $steps steps, $pad MiB of padding."

echo
echo "== An uninterrupted run, for comparison"
"$hf" run --gpu="$gpu" --name reference -- "$train" --steps "$steps" --every "$every" --pad "$pad" \
	--out "$work/reference.bin" | tail -n 3

echo
echo "== The same, checkpointed three times while it runs"
# The log is appended to: a restored program finds it longer than it was, as with any log.
"$hf" run --gpu="$gpu" --name demo -- "$train" --steps "$steps" --every "$every" --pad "$pad" --out "$work/held.bin" \
	--step-log "$work/held.steps" >>"$work/run.log" 2>&1 </dev/null &
runner=$!
for i in 1 2 3; do
	reach $((steps * (2 * i - 1) / 10))
	before=$(steps_done "$work/held.steps")
	"$hf" checkpoint demo -o "$work/images/$i" --leave-running --json >"$work/$i.json"
	after=$(steps_done "$work/held.steps")
	echo "checkpoint $i: from step $before to $after"
	# The program's own view: its longest step meanwhile.
	echo "$before" >"$work/$i.before"
done
reach $((steps * 7 / 10))
# What the longest step was around each checkpoint, by the program's clock, and what a step takes otherwise.
gap() {
	awk -v from="$1" -v n=$((steps / 6)) '
		$1 >= from && $1 < from + n { if (p) { d = ($2 - p) / 1e6; if (d > m) m = d } p = $2 }
		END { printf "%.1f", m }' "$work/held.steps"
}
usual=$(awk 'p { print ($2 - p) / 1e6 } { p = $2 }' "$work/held.steps" | sort -n |
	awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] }')

pid=$(held_pids | head -n 1)
echo
echo "== kill -9 $pid at step $(steps_done "$work/held.steps")"
kill -KILL "$pid"
wait "$runner" || true
runner=
[ ! -e "$work/held.bin" ] || { echo 'demo: the program had ended before it was killed' >&2; exit 1; }
"$hf" images verify "$work/images/3"

echo
echo "== Restore from the third image"
status=0
"$hf" restore "$work/images/3" --json >>"$work/restore.log" 2>"$work/restore.err" </dev/null &
runner=$!
wait "$runner" || status=$?
runner=
[ "$status" = 0 ] || { echo "demo: the restored program ended with status $status" >&2; exit 1; }
tail -n 2 "$work/run.log"

echo
printf '%-12s %12s %14s %12s %12s %14s\n' checkpoint 'stall (ms)' 'data (ms)' 'drain (ms)' 'new chunks' 'longest step'
for i in 1 2 3; do
	printf '%-12s %12.1f %14.1f %12.1f %12s %11s ms\n' "$i ($(text mode "$work/$i.json"))" \
		"$(number stall_ms "$work/$i.json")" \
		"$(number data_stall_ms "$work/$i.json")" "$(number drain_ms "$work/$i.json")" \
		"$(number chunks_new "$work/$i.json")/$(number chunks "$work/$i.json")" "$(gap "$(cat "$work/$i.before")")"
done
echo "(stall: gate closed to gate open; longest step: by the program's own clock; its median step takes $usual ms)"

echo
cmp "$work/reference.bin" "$work/held.bin" || { echo 'demo: the weights DIFFER' >&2; exit 1; }
echo "weights after $steps steps, never stopped and killed-and-restored: $(sha256sum <"$work/held.bin" | cut -c 1-16)"
echo identical
