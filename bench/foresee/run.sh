#!/usr/bin/env bash
# The figures of docs/results/foresee.md, on any machine: no GPU is needed.
#
#	bench/foresee/run.sh HOLDFAST OUTDIR [TRACE…]
#
# executes the corpus and its mutants on the software GPU, compares with the verdicts, and measures how long verdicts take; TRACEs of
# "holdfast trace" are evaluated beside it. Leaves JSON in OUTDIR; report.py makes the page of it. Some tens of
# minutes; WORKERS=N uses N cores (all of them otherwise).
set -euo pipefail
cd "$(dirname "$0")/../.."
holdfast=$1 out=$2
shift 2
mkdir -p "$out"
traces=()
for t in "$@"; do traces+=(--trace "$t"); done
git rev-parse --short HEAD >"$out/commit"
"$holdfast" bench idempotence --corpus test/corpus --oracle --workers "${WORKERS:-$(nproc)}" --json >"$out/idempotence.json" || [ -s "$out/idempotence.json" ]
# Once more without executing anything: evaluations are timed while nothing else runs.
"$holdfast" bench idempotence --corpus test/corpus --workers 1 --json >"$out/latency.json"
if [ ${#traces[@]} -gt 0 ]; then
	"$holdfast" bench idempotence "${traces[@]}" --workers 1 --json >"$out/traces.json"
fi
python3 bench/foresee/report.py "$out" >docs/results/foresee.md
