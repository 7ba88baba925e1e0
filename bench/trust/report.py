"""Prints docs/results/trust.md of what run.sh and ranks.sh have left: python3 report.py DIR… (later ones count).

What the script does not measure (the fault matrix, the storm on the software GPU, the fuzz targets) stands in notes.md
and is copied below.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
WHAT = {
    "jax": "JAX, XLA's own allocator (49 GiB arena), many host threads",
    "threads": "PyTorch eager, 16 threads that query, record and write pinned memory",
    "generate": "transformers' `generate`",
    "churn": "PyTorch that allocates and frees every tensor at the driver",
}


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for r in rows:
        print("| " + " | ".join(str(c) for c in r) + " |")
    print()


def main():
    runs, ranks = {}, None
    for d in map(pathlib.Path, sys.argv[1:]):
        for f in sorted(d.glob("*.json")):
            v = json.loads(f.read_text())
            if isinstance(v, list):
                ranks = v
            else:
                runs[v["program"]] = v
    some = next(iter(runs.values()))
    print("# Trust: results\n")
    print(f"{some['gpu']}; dates and versions are in the tables. Made by `bench/trust/run.sh` and "
          f"`bench/trust/ranks.sh`, this page by")
    print("`bench/trust/report.py`. Checkpoints are taken back to back of programs that repeat the same work and "
          "compare every bit of it with")
    print("the first time. *Whole*: `checkpoint --leave-running`; the last image is restored after `kill -9` at the "
          "end, and the restored program ends well.")
    print("*GPU*: `checkpoint --gpu-only`.\n")
    print("## Checkpoints back to back\n")
    rows = []
    for k in sorted(runs, key=lambda k: list(WHAT).index(k.partition("@")[0])):
        r, what = runs[k], WHAT[k.partition("@")[0]]
        end = "ended well" if r["ended_well"] else "**did not end well**"
        if r["restored"]:
            end = "restored, " + end
        rows.append([what, "whole" if r["kind"] == "whole" else "GPU", r["checkpoints"], r["failed"],
                     0 if r["died"] is None else 1, end,
                     f"{r['stall_ms']['median']:,.0f} / {r['stall_ms']['max']:,.0f} ms", r["repetitions"],
                     r["holdfast"].split()[1], r["date"]])
    table(["program", "kind", "checkpoints", "failed", "deaths", "at the end", "stall, median / max",
           "repetitions compared", "holdfast", "date"], rows)
    steps = [k for k in ("jax", "threads") if runs.get(k, {}).get("steps_ms")]
    if steps:
        print("Where the whole-process stall goes, median / max in ms:\n")
        names = ["freeze", "release", "lock", "park", "save", "criu dump", "driver restore", "wake", "map"]
        table(["step"] + steps, [[n] + ["{:,.1f} / {:,.1f}".format(*runs[k]["steps_ms"][n])
                                        if n in runs[k]["steps_ms"] else "" for k in steps] for n in names])
    if ranks:
        print("## What the driver saves and cannot restore\n")
        print("Two ranks with NCCL on two GPUs, each held, and one process that copies between two GPUs. Both must go "
              "on, with right sums, after every answer.\n")
        say = lambda x: "done" if x[0] == 0 else x[1].removeprefix("holdfast: ").split(" (docs")[0].replace("|",
                "/")[:160]
        table(["way", "`checkpoint --leave-running` of one rank", "`suspend` of one rank", "all go on"],
              [[r["way"], say(r["checkpoint"]),
                say(r["suspend"]) + (", resumed" if r.get("resume", [1])[0] == 0 else ""),
                "yes" if r["after checkpoint"] and r["after suspend"] and
                all(s == 0 for s in r["status"]) else "**no**"] for r in ranks])
    print((HERE / "notes.md").read_text().rstrip())


main()
