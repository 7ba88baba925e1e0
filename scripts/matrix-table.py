#!/usr/bin/env python3
"""Sum up what TestFaultMatrix wrote to HOLDFAST_MATRIX_OUT, as tables for docs/results/hold.md.

    scripts/matrix-table.py FILE...
"""
import json
import sys

COLUMNS = ["runs", "went_on", "suspended", "image", "gone", "lost", "succeeded", "failed", "wrong"]


def table(rows, by):
    sums = {}
    for r in rows:
        s = sums.setdefault(r[by], dict.fromkeys(COLUMNS, 0) | {"longest_seconds": 0})
        for c in COLUMNS:
            s[c] += r[c]
        s["longest_seconds"] = max(s["longest_seconds"], r["longest_seconds"])
    print("| " + by + " | " + " | ".join(c.replace("_", " ") for c in COLUMNS) + " | longest |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for name, s in sums.items():
        print(f"| {name} | " + " | ".join(str(s[c]) for c in COLUMNS) + f" | {s['longest_seconds']:.1f} s |")


rows = [r for name in sys.argv[1:] for r in json.load(open(name))]
for by in "fault", "operation":
    table(rows, by)
    print()
