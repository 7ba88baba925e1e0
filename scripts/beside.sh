#!/usr/bin/env bash
# Run one command beside another: beside.sh BACKGROUND FOREGROUND
#
# Each is a line of shell. The output of the first is shown when it has ended, so that the two do not mix. Both are run
# to their ends, whatever becomes of the other; the status is 1 if either failed.
set -uo pipefail
[ $# -eq 2 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
bash -c "$1" >"$log" 2>&1 </dev/null &
first=$!
status=0
bash -c "$2" || { status=1; echo "beside: this failed: $2" >&2; }
wait "$first" || { failed=1; status=1; }
cat "$log"
[ -z "${failed:-}" ] || echo "beside: this failed: $1" >&2
exit "$status"
