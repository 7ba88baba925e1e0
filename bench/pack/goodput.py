"""Goodput under deadlines: many recorded networks on one GPU by pack's machine, and the same arrivals served by
PyTorch's CUDA graphs, a process each, time-sliced and under MPS.

    goodput.py HOLDFAST GOODPUT OUT [--tenants 8,16] [--loads 0.5,1,2] [--seconds 4] [--kind poisson,bursty]
               [--peers slices,mps]

GOODPUT is the program of bench/pack/goodput. Load 1 is as much as one process after the other could serve without any
gap: each tenant asks for 1/N of the GPU's time, by its time alone as a CUDA graph. Deadlines are 2 to 10 times that
time alone, from the arrival. Met counts requests that were answered in time. The peers get no admission control, but
do not begin what is late already. OUT gets results.json, table.md, logs.
"""

import argparse
import concurrent.futures
import json
import os
import random
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "replay"))
import mps  # noqa: E402
from tiny import record  # noqa: E402

CASES = ["resnet50", "resnet18", "mobilenet_v2", "bert", "decoder_step", "lstm"]
TIMES = [2, 3, 5, 10]  # deadlines, in times alone


def arrivals(rng, kind, rate, seconds):
    """Moments of a Poisson process, or of one that is on for a fifth of the time, at five times the rate."""
    out, t, on = [], 0.0, 0.0
    while True:
        if kind == "poisson":
            t += rng.expovariate(rate)
        else:
            step = rng.expovariate(5 * rate)
            while on < step:
                step -= on
                t += on
                t += rng.expovariate(1 / 0.08)  # off
                on = rng.expovariate(1 / 0.02)
            on -= step
            t += step
        if t >= seconds:
            return out
        out.append(t)


class Peers:
    """A process for each tenant."""

    def __init__(self, plan, path, out, shared):
        self.plan, self.shared = plan, shared
        self.env = mps.start(os.path.join(out, "mps")) if shared else dict(os.environ)
        log = open(os.path.join(out, "peers.log"), "a")
        self.all = [
            subprocess.Popen([sys.executable, os.path.join(HERE, "peer.py"), t["case"], path, str(i)], env=self.env,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
            for i, t in enumerate(plan["tenants"])
        ]
        for p in self.all:
            self.line(p)

    def alone(self):
        """The median time of a pass of each, while nobody else does anything."""
        out = []
        for p in self.all:
            p.stdin.write("alone\n")
            p.stdin.flush()
            out.append(float(self.line(p)))
        return out

    def line(self, p):
        text = p.stdout.readline()
        if not text:
            raise RuntimeError("a peer ended: see peers.log")
        return text

    def run(self, number):
        begin = time.monotonic() + 0.2
        for p in self.all:
            p.stdin.write(f"{number} {begin}\n")
            p.stdin.flush()
        return [json.loads(self.line(p)) for p in self.all]

    def close(self):
        for p in self.all:
            p.stdin.close()
        for p in self.all:
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
        if self.shared:
            mps.stop(self.env)


def summary(plan, took):
    rows = []
    for t, list_ in zip(plan["tenants"], took):
        there = sorted(x for x in list_ if x is not None)
        rows.append({
            "case": t["case"], "offered": len(list_), "met": sum(x <= t["deadline"] for x in there),
            "beyond": sum(x > t["deadline"] for x in there), "refused": sum(x is None for x in list_),
            "p50": there[len(there) // 2] if there else 0, "p99": there[len(there) * 99 // 100] if there else 0})
    return rows


def main():
    p = argparse.ArgumentParser()
    p.add_argument("holdfast")
    p.add_argument("goodput")
    p.add_argument("out")
    p.add_argument("--tenants", default="8,16")
    p.add_argument("--loads", default="0.5,1,2")
    p.add_argument("--seconds", type=float, default=4)
    p.add_argument("--kind", default="poisson,bursty")
    p.add_argument("--peers", default="slices,mps")
    p.add_argument("--flags", default="", help="for GOODPUT; several sets of them with ; between")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    work = os.path.join(a.out, "work")
    for case in CASES:
        os.makedirs(os.path.join(work, case), exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda case: record(a.holdfast, case, os.path.join(work, case)), CASES))
    plan = {"tenants": [{"case": c, "deadline": 1} for c in CASES], "runs": []}
    path = os.path.join(work, "plan.json")
    with open(path, "w") as f:
        json.dump(plan, f)
    peers = Peers(plan, path, a.out, False)
    alone = dict(zip(CASES, peers.alone()))
    peers.close()
    results, lines = [], []
    for n in [int(x) for x in a.tenants.split(",")]:
        rng = random.Random(n)
        tenants = [{"case": CASES[i % len(CASES)], "dir": os.path.join(work, CASES[i % len(CASES)]),
                    "deadline": TIMES[(i + i // len(CASES)) % len(TIMES)] * alone[CASES[i % len(CASES)]]}
                   for i in range(n)]
        runs = [{"load": load, "kind": kind,
                 "arrivals": [arrivals(rng, kind, load / n / alone[t["case"]], a.seconds) for t in tenants]}
                for kind in a.kind.split(",") for load in [float(x) for x in a.loads.split(",")]]
        plan = {"tenants": tenants, "runs": runs}
        with open(path, "w") as f:
            json.dump(plan, f)
        ways = {}
        for flags in a.flags.split(";"):
            # A copy has an address space, of which a GPU takes some 60 at the same time.
            copies = ["-instances", "2" if n <= 30 else "1"]
            r = subprocess.run([a.goodput, *copies, *flags.split(), path], capture_output=True, text=True, timeout=400)
            with open(os.path.join(a.out, f"goodput{n}.log"), "a") as f:
                f.write(r.stdout + r.stderr)
            if r.returncode:
                print(r.stderr[-2000:])
            ways[" ".join(["pack", *flags.split()])] = [json.loads(x) for x in r.stdout.splitlines()]
        for way in [x for x in a.peers.split(",") if x]:
            try:
                peers = Peers(plan, path, a.out, way == "mps")
                ways[way] = [{"tenants": summary(plan, peers.run(i))} for i in range(len(runs))]
                peers.close()
            except (RuntimeError, OSError, subprocess.SubprocessError) as e:
                print(f"{way}: {e}")
        for way, list_ in ways.items():
            for run, got in zip(runs, list_):
                t = got["tenants"]
                offered, met = sum(x["offered"] for x in t), sum(x["met"] for x in t)
                late, beyond = sum(x["refused"] for x in t), sum(x["beyond"] for x in t)
                wrong = sum(x.get("wrong", 0) + x.get("errors", 0) for x in t)
                gain = sum(x["met"] * alone[x["case"]] for x in t) / a.seconds
                results.append({"tenants": n, "way": way, "kind": run["kind"], "load": run["load"], "offered": offered,
                                "met": met, "refused": late, "beyond": beyond, "wrong": wrong, "work": gain,
                                "detail": got})
                lines.append(f"| {n} | {run['kind']} | {run['load']} | {way} | {offered} | {met} | "
                             f"{100 * met / offered:.1f} % | {late} | {beyond} | {wrong} | {gain:.2f} |")
    with open(os.path.join(a.out, "results.json"), "w") as f:
        json.dump({"alone": alone, "results": results}, f)
    head = ["alone, ms: " + ", ".join(f"{c} {1e3 * t:.3f}" for c, t in alone.items()), "",
            "| tenants | arrivals | load | way | offered | met | of offered | refused | late | wrong | work met |",
            "|---|---|---|---|---|---|---|---|---|---|---|"]
    with open(os.path.join(a.out, "table.md"), "w") as f:
        f.write("\n".join(head + lines) + "\n")
    print("\n".join(head + lines))
    shutil.rmtree(work)


main()
