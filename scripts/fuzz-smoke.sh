#!/usr/bin/env bash
# Run every fuzz target of the tree for a short while: fuzz-smoke.sh [TIMES]
#
# TIMES is a number of inputs (20000x), not of seconds: go test may fail with "context deadline exceeded" if
# the time ends in the middle of an input.
# An input with new coverage is made smaller a few times only: by default that takes up to a minute each,
# in which a short run tries nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
times=${1:-20000x}
go=${GO:-go}

# file:func FuzzName(
targets=$(grep -rn --include='*_test.go' -oE '^func Fuzz[A-Za-z0-9_]+' cmd internal ptx test | sed -E 's|/[^/]*:[0-9]+:func | |' | sort -u)
[ -n "$targets" ] || { echo 'fuzz-smoke: no fuzz target found' >&2; exit 1; }
n=0
while read -r dir name; do
	out=$("$go" test "./$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$times" -fuzzminimizetime 10x 2>&1) || {
		printf '%s\n' "$out" >&2
		echo "fuzz-smoke: $dir $name fails" >&2
		exit 1
	}
	n=$((n + 1))
done <<<"$targets"
echo "fuzz-smoke: $n targets, $times each: ok"
