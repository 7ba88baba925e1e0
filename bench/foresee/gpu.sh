#!/usr/bin/env bash
# The figures of docs/results/foresee.md that need a GPU: README.md says what each part needs and what comes out.
#
#	bench/foresee/gpu.sh HOLDFAST OUTDIR PART…	(launches, traces, cow, demand)
#
# BUDGET=N  seconds for all parts together (540): nothing is begun that may not end by then, and what is left out is
# said
# DISK=DIR  demand: also restore from this directory, which should be on a disk ("" = not; default: where the work is)
# VERDICTS=FILE  traces: the command of the folder verdicts, to evaluate what was traced ("" = that is left out)
# GROW=N    GiB that each of 12 writers touches before images are written (7; 0 = none)
# Further arguments for gpu.py in GPU_ARGS, quoted as for a shell. Ends everything that it started, also when it is
# ended by a signal.
set -u
cd "$(dirname "$0")/../.."
[ $# -ge 3 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
began=$SECONDS budget=${BUDGET:-540}
holdfast=$(readlink -f "$1") out=$2
shift 2
mkdir -p "$out"
work=$(mktemp -d /tmp/holdfast-gpu.XXXXXX)
export HOLDFAST_DIR=$work/run GROWING=
mkdir -m 700 "$HOLDFAST_DIR" "$work/work" "$work/images"
mounted= growers= runner=

cleanup() {
	trap - EXIT
	[ -z "$runner" ] || { kill -TERM "$runner" 2>/dev/null; wait "$runner"; }
	case " $(jobs -pr | tr "\n" " ")" in *" $growers "*) kill -TERM "$growers" && wait "$growers" ;; esac 2>/dev/null
	for pid in $("$holdfast" ps --json 2>/dev/null | sed -n 's/^    "pid": \([0-9]*\),$/\1/p'); do
		kill -KILL "$pid" 2>/dev/null
	done
	"$holdfast" daemon stop --force >/dev/null 2>&1
	for p in /proc/[0-9]*; do # what a SIGKILL of gpu.py has left: the name of our directory is in its command line
		! grep -qsF "$work/" "$p/cmdline" || kill -KILL "${p#/proc/}" 2>/dev/null
	done
	tail -c 2000000 "$HOLDFAST_DIR/daemon.log" >"$out/daemon.log" 2>/dev/null || rm -f "$out/daemon.log"
	[ -z "$mounted" ] || umount "$work/images" || umount -l "$work/images"
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Images are in memory: the figures are not about a disk. A virtual machine's memory may grow as it is touched, far
# slower than it is written later; it is touched while the programs are compiled.
case " $* " in *" cow "* | *" demand "*)
	if mount -t tmpfs -o size="${SIZE:-104g}",huge=always tmpfs "$work/images" 2>/dev/null; then
		mounted=1
		if [ "${GROW:-7}" -gt 0 ]; then
			export GROWING=$work/growing
			: >"$GROWING"
			(
				writers=
				trap 'kill -KILL $writers 2>/dev/null; exit' TERM
				for i in 0 1 2 3 4 5 6 7 8 9 10 11; do
					head -c "${GROW:-7}G" /dev/zero >"$work/images/grow$i" &
					writers="$writers $!"
				done
				wait
				rm -f "$work"/images/grow* "$GROWING"
			) &
			growers=$!
		fi
	else
		echo "gpu.sh: no tmpfs: images go to $work" >&2
	fi
	;;
esac

eval "extra=(${GPU_ARGS:-})"
status=0
while [ $# -gt 0 ]; do
	left=$((budget - SECONDS + began))
	share=$left
	[ $# -eq 1 ] || share=$((left * 65 / 100))
	echo "=== $1: $share s" >&2
	disk= verdicts=
	[ "$1" != demand ] || [ -z "${DISK-$work}" ] || disk="--disk ${DISK-$work}"
	[ -z "${VERDICTS-}" ] || verdicts="--verdicts $VERDICTS"
	# shellcheck disable=SC2086
	timeout -k 20 $((share + 15)) python3 bench/foresee/gpu.py --holdfast "$holdfast" --out "$out" --work "$work/work" \
		--images "$work/images" --part "$1" --budget "$share" $disk $verdicts "${extra[@]}" &
	runner=$!
	wait "$runner" || status=$?
	runner=
	shift
done
exit "$status"
