#!/usr/bin/env bash
# Run tests many times while every core is kept busy, and list what failed how often:
#
#     scripts/flake.sh [-n ROUNDS] [-b BUSY] [-r REGEXP] [-t TIMEOUT] [PACKAGE ...]
#
#     -n  rounds of each package (20)
#     -b  busy loops beside the tests (as many as there are cores, and one more)
#     -r  run only these tests, as go test -run
#     -t  time limit of a round (30m)
#
# Packages are those of go list; none: all that have tests. Test programs are compiled once, so a round costs what
# the tests cost. The output of each round that fails stays in build/flake/, with the table. The status is 1 if
# anything failed, also once.
#
# A test that fails once in twenty rounds here fails in one of two runs of the whole suite on somebody's busy
# machine. Its cause is nearly always a wait on a clock: wait for the event instead.
set -euo pipefail
{ # read to the end before it runs, so that it can be edited meanwhile
cd "$(dirname "$0")/.."
go=${GO:-go} rounds=20 busy=$(($(nproc) + 1)) only= limit=30m
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
while getopts n:b:r:t: o; do
	case $o in
	n) rounds=$OPTARG ;;
	b) busy=$OPTARG ;;
	r) only=$OPTARG ;;
	t) limit=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[[ $rounds =~ ^[1-9][0-9]*$ && $busy =~ ^[0-9]+$ ]] || usage

out=$PWD/build/flake
rm -rf "$out"
mkdir -p "$out/bin"
loops=()
test= # the process group of the tests that run
end() {
	for pid in "${loops[@]}"; do kill "$pid" 2>/dev/null || true; done
	[ -z "$test" ] || kill -- "-$test" 2>/dev/null || true
	rm -rf "$out/bin"
}
trap end EXIT
trap 'exit 130' INT TERM

# Each package's directory, import path and test program.
list=()
format='{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.ImportPath}}{{end}}'
while read -r dir path; do
	bin=$out/bin/${path//\//_}
	"$go" test -c -o "$bin" "$path"
	[ ! -x "$bin" ] || list+=("$dir $path $bin")
done < <("$go" list -f "$format" "${@:-./...}" | sed '/^$/d')
[ ${#list[@]} -gt 0 ] || { echo 'flake: no tests there' >&2; exit 2; }

for ((i = 0; i < busy; i++)); do
	(while :; do :; done) &
	loops+=($!)
	disown $!
done

declare -A failed=()
note() { failed[$1]=$((${failed[$1]:-0} + 1)); }
for ((round = 1; round <= rounds; round++)); do
	for entry in "${list[@]}"; do
		read -r dir path bin <<<"$entry"
		log=$out/${path//\//_}.$round.log
		args=(-test.timeout="$limit" -test.v)
		[ -z "$only" ] || args+=(-test.run="$only")
		# A process group of its own: whatever a test leaves behind ends with the round.
		status=0
		(cd "$dir" && exec setsid "$bin" "${args[@]}") >"$log" 2>&1 </dev/null &
		test=$!
		wait "$test" || status=$?
		kill -- "-$test" 2>/dev/null || true
		test=
		if [ "$status" = 0 ]; then
			rm -f "$log"
			continue
		fi
		# The innermost tests that failed; none where the process ended by itself.
		names=$(sed -nE 's/^ *--- FAIL: ([^ ]+) .*/\1/p' "$log" | LC_ALL=C sort -u |
			awk 'NR > 1 && index($0, last "/") != 1 { print last } { last = $0 } END { if (NR) print last }')
		if [ -z "$names" ]; then # a panic, a timeout: what ran then
			names=$(awk '/^=== RUN/ { run = $3 } END { print "(ended with '"$status"', last " run ")" }' "$log")
		fi
		while read -r name; do note "$path $name"; done <<<"$names"
		echo "flake: round $round: $path: ${names//$'\n'/, }" >&2
	done
done

{
	printf '%s rounds beside %s busy loops on %s cores, ' "$rounds" "$busy" "$(nproc)"
	printf '%s packages, %s\n' "${#list[@]}" "$(git rev-parse --short HEAD 2>/dev/null || echo 'no commit')"
	if [ ${#failed[@]} = 0 ]; then
		echo 'nothing failed'
	else
		for name in "${!failed[@]}"; do
			printf '%4d of %d  %s\n' "${failed[$name]}" "$rounds" "$name"
		done | sort -k1,1nr -k4
	fi
} | tee "$out/table.txt"
[ ${#failed[@]} = 0 ]
exit
}
