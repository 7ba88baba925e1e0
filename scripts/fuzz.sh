#!/usr/bin/env bash
# Run fuzz targets for a number of inputs each, and say how many each has had: fuzz.sh [TIMES [PATTERN…]]
#
# TIMES is as 1000000x (the default); a PATTERN is part of "DIRECTORY NAME", such as internal/wire or FuzzImport. Unlike
# fuzz-smoke.sh it goes on after a failure. go test keeps the input that failed in the package's testdata/fuzz, where
# every later run of the tests tries it: fix what it shows, and commit it.
# PARALLEL is how many workers a target gets (default: as many as there are processors). LIMIT is the time that one
# target gets, such as 10m: one that is not done by then is reported with what it has had.
set -uo pipefail
cd "$(dirname "$0")/.."
times=${1:-1000000x}
shift || true
go=${GO:-go}
parallel=${PARALLEL:-$(nproc)}
limit=${LIMIT:-0}

targets=$(grep -rn --include='*_test.go' -oE '^func Fuzz[A-Za-z0-9_]+' cmd internal ptx test |
	sed -E 's|/[^/]*:[0-9]+:func | |' | sort -u)
failed=0
while read -r dir name; do
	wanted=$(($# == 0))
	for pattern in "$@"; do
		[[ "$dir $name" == *"$pattern"* ]] && wanted=1
	done
	((wanted)) || continue
	log=$(mktemp)
	timeout --signal=INT "$limit" "$go" test "./$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$times" \
		-fuzzminimizetime 10x \
		-parallel "$parallel" -timeout 0 >"$log" 2>&1
	status=$?
	execs=$(grep -oE 'execs: [0-9]+' "$log" | tail -n 1 | grep -oE '[0-9]+')
	if grep -qE '^(--- FAIL|FAIL|panic:)' "$log" && ((status != 124)); then
		failed=$((failed + 1))
		printf '%-34s %-18s %10s inputs  FAILED\n' "$dir" "$name" "${execs:-0}"
		sed 's/^/    /' "$log" | tail -n 40
	elif ((status != 0)); then
		printf '%-34s %-18s %10s inputs  (not done within %s)\n' "$dir" "$name" "${execs:-0}" "$limit"
	else
		printf '%-34s %-18s %10s inputs\n' "$dir" "$name" "${execs:-0}"
	fi
	rm -f "$log"
done <<<"$targets"
exit $((failed > 0))
