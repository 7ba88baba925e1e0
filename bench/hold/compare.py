"""The table of compare.sh: python3 compare.py OUTDIR"""
import json
import pathlib
import statistics
import sys

runs = {"before": [], "after": []}
for build, list_ in runs.items():
    for path in sorted(pathlib.Path(sys.argv[1]).glob(f"compare-{build}-*.json")):
        shots = json.loads(path.read_text()).get("checkpoints")
        if shots:
            list_.append(shots)
first = {b: [r[0]["stall_ms"] for r in list_] for b, list_ in runs.items()}
later = {b: [s["stall_ms"] for r in list_ for s in r[1:]] for b, list_ in runs.items()}
print("| stall, whole process | before, ms | after, ms | change |")
print("|---|---|---|---|")
for name, values in (("first checkpoint of a process", first), ("later ones", later)):
    if not (values["before"] and values["after"]):
        continue
    a, b = statistics.median(values["before"]), statistics.median(values["after"])
    text = [f"{statistics.median(v):.0f} ({min(v):.0f}–{max(v):.0f}, {len(v)})" for v in values.values()]
    print(f"| {name} | {text[0]} | {text[1]} | {100 * (b / a - 1):+.1f} % |")
print()
print("| step | before, ms | after, ms |")
print("|---|---|---|")
steps = {}
for build, list_ in runs.items():
    for shots in list_:
        for shot in shots[1:]:
            for step in shot["steps"]:
                if step.get("stall"):
                    steps.setdefault(step["name"], {"before": [], "after": []})[build].append(step["ms"])
for name, values in steps.items():
    text = [f"{statistics.median(v):.1f}" if v else "–" for v in values.values()]
    print(f"| {name} | {text[0]} | {text[1]} |")
