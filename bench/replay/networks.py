"""Records the networks of models.py, replays them with and without a CUDA library, and compares bits and times.

    networks.py HOLDFAST HFREPLAY OUT [--jobs N] [--no-times | --no-steady] [--cold CASE]... [CASE...]

Bits: an inference on the recorded input and on five others, a training step done once to six times; each must give
what PyTorch gave. Times, one after the other, of networks that were right: cold, from the start of a process to its
first output, the least of three; steady, the median of 300 passes that are each waited for, with a CUDA context of
another process beside them, which keeps the clocks up for all; PyTorch's own CUDA graph likewise. OUT gets
results.json, table.md and the logs.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = [sys.executable, os.path.join(HERE, "models.py")]
RUNS = 6  # the recorded input and five others, or so many training steps


class Bench:
    def __init__(self, args, work):
        self.hf, self.hr = (os.path.realpath(p) for p in (args.holdfast, args.hfreplay))
        self.out, self.work = os.path.realpath(args.out), work
        os.makedirs(self.out, exist_ok=True)
        os.environ["HOLDFAST_DIR"] = os.path.join(work, "run")
        os.environ["XDG_CACHE_HOME"] = os.path.join(work, "cache")
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:2"  # so that PyTorch's recurrent networks repeat themselves
        self.results = {}

    def case(self, line):
        name, kind, inputs, hints = line.split("\t")
        return {"name": name, "inputs": inputs.split(), "hints": hints.split(), "train": kind == "train",
                "outputs": [h.split(":")[0] for h in hints.split()], "dir": os.path.join(self.work, name)}

    def run(self, case, cmd, limit):
        """The exit status, and what was printed."""
        try:
            r = subprocess.run(cmd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)
            said, status = r.stdout + r.stderr, r.returncode
            out = r.stdout
        except subprocess.TimeoutExpired as e:
            said, status, out = f"{e}\n", 124, ""
        with open(os.path.join(self.out, case["name"] + ".log"), "a") as f:
            f.write(" ".join(cmd) + "\n" + said)
        return status, out if status == 0 else said

    def record(self, case):
        os.makedirs(case["dir"])
        named = [a for n in case["inputs"] for a in ("--in", n)] + [a for h in case["hints"] for a in ("--out", h)]
        file = os.path.join(case["dir"], "m.hfr")
        begun = time.time()
        program = [*MODELS, case["name"], "--dir", case["dir"]]
        status, said = self.run(case, [self.hf, "record", "-o", file, "--gpu=native", *named, "--", *program], 280)
        result = {"record_seconds": time.time() - begun}
        if status:
            lines = said.strip().splitlines()
            ours = [line for line in lines if line.startswith("holdfast:")]
            result["failed"] = (ours or lines or ["?"])[-1]
            return result
        if "PyTorch itself gives other bits" in said:
            result["unsteady"] = True
        status, said = self.run(case, [self.hf, "inspect", "--json", file], 60)
        m = json.loads(said)
        result["bytes"] = os.path.getsize(file)
        result["warnings"] = m["warnings"]
        result["memory_bytes"] = sum(r["bytes"] for r in m["memory"])
        result["kernels"] = len(m["kernels"])
        result["launches"] = sum(e["launches"] for e in m["entries"])
        return result

    def replay(self, case, backend, more):
        file = os.path.join(case["dir"], "m.hfr")
        cmd = [self.hr] if backend == "raw" else [self.hf, "replay", "--backend", backend]
        return self.run(case, [*cmd, file, *more], 60)

    def same(self, case, backend):
        """How many of RUNS outputs are right, and why not."""
        right, why = 0, ""
        for i in range(RUNS):
            tag = str(i - 1) if i else ""
            got = {n: os.path.join(case["dir"], f"{backend}.{n}{tag}") for n in case["outputs"]}
            more = [a for n in case["outputs"] for a in ("--out", f"{n}={got[n]}")]
            if case["train"]:
                more += ["-n", str(i + 1)]
            elif i:
                more += [a for n in case["inputs"] for a in ("--in", f"{n}={os.path.join(case['dir'], n + tag)}")]
            status, said = self.replay(case, backend, more)
            if status:
                return right, said.strip().splitlines()[-1]
            ok = True
            for n, file in got.items():
                with open(file, "rb") as a, open(os.path.join(case["dir"], n + tag), "rb") as b:
                    ok = ok and a.read() == b.read()
                os.remove(file)
            right += ok
        return right, why

    def report(self, case, backend, more):
        status, said = self.replay(case, backend, [*more, "--json"])
        return None if status else json.loads(said)

    def times(self, case, backend, result):
        first = case["outputs"][0]
        cold = [self.report(case, backend, ["--out", f"{first}={os.path.join(case['dir'], 'cold')}"]) for _ in range(3)]
        cold = sorted((r for r in cold if r), key=lambda r: r["total_seconds"])
        result[backend + "_cold"] = [r["total_seconds"] for r in cold]
        if cold:
            parts = ("open_seconds", "start_nanoseconds", "first_run_seconds")
            result[backend + "_split"] = {k: cold[0][k] for k in parts}

    def steady(self, case, backend, result):
        r = self.report(case, backend, ["-n", "300"])
        result[backend + "_steady"] = r["median_run_seconds"] if r else None


def table(results):
    def least(v):
        return f"{min(v):.3f}" if v else ""

    def us(v):
        return f"{1e6 * v:,.0f}" if isinstance(v, float) else ""

    rows = ["| network | recording | launches | raw | libcuda | cold, raw | cold, libcuda | cold, PyTorch | "
            "steady, raw | steady, libcuda | CUDA graph |", "|" + "---|" * 11]
    for name, r in results.items():
        if "failed" not in r and "libcuda" not in r:
            continue
        if "failed" in r:
            rows.append(f"| {name} | not recorded: {r['failed']} |" + " |" * 9)
            continue
        rows.append(f"| {name} | {r['bytes'] / 1e6:.1f} MB | {r['launches']} | {r['raw'][0]} of {RUNS} | "
                    f"{r['libcuda'][0]} of {RUNS} | {least(r.get('raw_cold'))} | {least(r.get('libcuda_cold'))} | "
                    f"{least(r.get('pytorch_cold'))} | {us(r.get('raw_steady'))} | {us(r.get('libcuda_steady'))} | "
                    f"{us(r.get('graph'))} |")
    return "\n".join(rows) + "\n"


def main():
    p = argparse.ArgumentParser()
    for name in ("holdfast", "hfreplay", "out"):
        p.add_argument(name)
    p.add_argument("case", nargs="*")
    p.add_argument("--jobs", type=int, default=6)
    p.add_argument("--no-times", action="store_true")
    p.add_argument("--no-steady", action="store_true")
    p.add_argument("--cold", action="append", default=[])
    args = p.parse_intermixed_args()
    lines = subprocess.run([*MODELS, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    with tempfile.TemporaryDirectory() as work:
        b = Bench(args, work)
        cases = [c for c in map(b.case, lines) if not args.case or c["name"] in args.case]
        results = b.results = {c["name"]: {} for c in cases}

        def bits(case):
            r = results[case["name"]]
            r.update(b.record(case))
            if "failed" not in r:
                for backend in ("raw", "libcuda"):
                    r[backend] = b.same(case, backend)
            said = r.get("failed") or f"raw {r['raw']}, libcuda {r['libcuda']}"
            more = ["unsteady"] if r.get("unsteady") else []
            print(case["name"], said, *more, f"{r['record_seconds']:.1f} s", flush=True)
            save()

        def save():
            with open(os.path.join(b.out, "results.json"), "w") as f:
                json.dump(results, f, indent=1)
            with open(os.path.join(b.out, "table.md"), "w") as f:
                f.write(table(results))

        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(bits, cases))
        if not args.no_times:
            good = [c for c in cases if results[c["name"]].get("libcuda", (0,))[0]]
            for c in good:
                for backend in ("raw", "libcuda"):
                    b.times(c, backend, results[c["name"]])
                if c["name"] in args.cold:
                    said = [b.run(c, [*MODELS, c["name"], "--cold"], 60) for _ in range(3)]
                    results[c["name"]]["pytorch_cold"] = [float(s.strip()) for status, s in said if status == 0]
            save()
        if not args.no_times and not args.no_steady:
            context = "import torch; torch.zeros(1).cuda(); print('up', flush=True); input()"
            holder = subprocess.Popen([sys.executable, "-c", context], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            try:
                holder.stdout.readline()
                for c in good:
                    for backend in ("raw", "libcuda"):
                        b.steady(c, backend, results[c["name"]])
                    save()
                status, said = b.run({"name": "graphs"}, [*MODELS, "--steady", *(c["name"] for c in good)], 300)
                for line in said.splitlines():
                    name, _, v = line.partition(" ")
                    try:
                        results[name]["graph"] = float(v)
                    except (KeyError, ValueError):
                        pass
            finally:
                holder.kill()
                holder.wait()
            save()
    right = [n for n, r in results.items() if r.get("raw", (0,))[0] == r.get("libcuda", (0,))[0] == RUNS]
    print(f"{len(right)} of {len(results)} networks right on both backends")


main()
