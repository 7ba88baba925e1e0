#!/usr/bin/env bash
# The figures of docs/results/foresee.md, on any machine: no GPU is needed.
#
#	bench/foresee/run.sh OUTDIR [TRACE…]
#
# builds the command of the folder verdicts, executes the corpus and its mutants on the software GPU, compares with the
# verdicts, and measures how long verdicts take; TRACEs of "holdfast trace" are evaluated beside it. Leaves JSON in
# OUTDIR; report.py makes the page of it. Some tens of minutes; WORKERS=N uses N cores (all of them otherwise).
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
shift
mkdir -p "$out"
traces=()
for t in "$@"; do traces+=(-trace "$t"); done
CGO_ENABLED=0 ${GO:-go} build -trimpath -o "$out/verdicts" ./bench/foresee/verdicts
git rev-parse --short HEAD >"$out/commit"
"$out/verdicts" -corpus test/corpus -oracle -workers "${WORKERS:-$(nproc)}" -json >"$out/idempotence.json" ||
	[ -s "$out/idempotence.json" ]
# Once more without executing anything: evaluations are timed while nothing else runs.
"$out/verdicts" -corpus test/corpus -workers 1 -json >"$out/latency.json"
if [ ${#traces[@]} -gt 0 ]; then
	"$out/verdicts" "${traces[@]}" -workers 1 -json >"$out/traces.json"
fi
python3 bench/foresee/report.py "$out" >docs/results/foresee.md
