#!/usr/bin/env bash
# Run every fuzz target of the tree for a short while: fuzz-smoke.sh [TIMES]
#
# TIMES is a number of inputs (4000x), not of seconds: go test may fail with "context deadline exceeded" if
# the time ends in the middle of an input.
# An input with new coverage is made smaller a few times only: by default that takes up to a minute each,
# in which a short run tries nothing else.
# Each package is compiled once for all its targets. As many targets run at once as there are processors, each with one
# worker: so nothing waits while one begins or ends.
set -euo pipefail
cd "$(dirname "$0")/.."
export times=${1:-4000x}
go=${GO:-go}
bin=$(mktemp -d)
cache=$("$go" env GOCACHE)/fuzz/$("$go" list -m) # where go test -fuzz keeps what it finds
export bin cache
trap 'rm -rf "$bin"' EXIT

smoke() { # DIRECTORY FUNCTION
	mkdir -p "$cache/$1"
	out=$(cd "$1" && "$bin/${1//\//+}" -test.run '^$' -test.parallel 1 -test.timeout 10m -test.fuzz "^$2\$" \
		-test.fuzztime "$times" -test.fuzzminimizetime 10x -test.fuzzcachedir "$cache/$1" 2>&1) || {
		printf '%s\nfuzz-smoke: %s %s fails\n' "$out" "$1" "$2" >&2
		return 255 # xargs begins nothing else
	}
}
export -f smoke

# file:func FuzzName(
targets=$(grep -rn --include='*_test.go' -oE '^func Fuzz[A-Za-z0-9_]+' cmd internal ptx test |
	sed -E 's|/[^/]*:[0-9]+:func | |' | sort -u)
[ -n "$targets" ] || { echo 'fuzz-smoke: no fuzz target found' >&2; exit 1; }
cut -d ' ' -f 1 <<<"$targets" | sort -u | while read -r dir; do
	"$go" test -vet=off -c -ldflags "-s -w" -fuzz . -o "$bin/${dir//\//+}" "./$dir" >&2 || exit 1
	grep "^$dir " <<<"$targets"
done | xargs -P "$(nproc)" -L 1 bash -c 'smoke "$@"' smoke
echo "fuzz-smoke: $(wc -l <<<"$targets") targets, $times each: ok"
