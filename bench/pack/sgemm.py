"""Small independent FP32 matrix products on one GPU: the figure of the OoO VLIW paper (arXiv 1901.10008).

    sgemm.py HOLDFAST COALESCE OUT [--shapes MxNxK,…] [--problems R,…] [--processes R,…]

COALESCE is the program of bench/pack/coalesce. sgemm.cu (built here with nvcc) does R products one after the other, as
a CUDA graph of parallel nodes, and fused: by cuBLAS (batched) and by a plain kernel of its own, whose fused form has
the problem as the grid's z. Ours are that program's recording, its launches in one submission, and R address spaces
with one product each, started together. Time slicing and MPS are R processes that do one product each, again and again,
by libcuda: the time of a round is R divided by how many all did in a second. Times are medians by the host's clock, in
us. Bits: all results must be those of the program. OUT gets results.json and table.md.
"""

import argparse
import json
import os
import re
import subprocess
import time

import mps

HERE = os.path.dirname(os.path.abspath(__file__))


def run(cmd, limit=120, stdin="", env=None):
    r = subprocess.run(cmd, input=stdin, capture_output=True, text=True, timeout=limit, env=env)
    if r.returncode:
        raise RuntimeError(f"{' '.join(cmd)}: {r.stderr[-500:]}")
    return r.stdout + r.stderr


def processes(coalesce, file, n, env):
    """How many products a second n processes do."""
    long = 1.0
    all_ = [subprocess.Popen([coalesce, "loop", "-for", f"{long}s", file], env=env, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True) for _ in range(n)]
    for p in all_:
        if p.stdout.readline() != "ready\n":
            raise RuntimeError("a process did not start")
    for p in all_:
        p.stdin.write("go\n")
        p.stdin.flush()
    done = sum(int(p.stdout.readline()) for p in all_)
    for p in all_:
        p.wait(20)
    return done / long


def main():
    a = argparse.ArgumentParser()
    a.add_argument("holdfast")
    a.add_argument("coalesce")
    a.add_argument("out")
    a.add_argument("--shapes", default="512x1x512,256x128x1152,256x256x256")
    a.add_argument("--problems", default="1,8,40,120")
    a.add_argument("--processes", default="8,32")
    a = a.parse_args()
    os.makedirs(a.out, exist_ok=True)
    program = os.path.join(a.out, "sgemm")
    run(["nvcc", "-O3", "-arch=native", "-o", program, os.path.join(HERE, "sgemm.cu"), "-lcublas"])
    head = ["| kernel | M×N×K | R | serial | parallel graph | fused or batched | ours, one submission | "
            "ours, R address spaces | same bits |", "|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(head))
    results, lines = [], []
    file = os.path.join(a.out, "m.hfr")

    def times(text, what):
        m = re.search(rf"{what}host [0-9.]+ ([0-9.]+).* hash ([0-9a-f]+)", text)
        return (float(m[1]), m[2]) if m else (None, None)

    for kernel in ["cublas", "tiled"]:
        for shape in a.shapes.split(","):
            for r in [int(x) for x in a.problems.split(",")]:
                size = shape.split("x")
                row = {"kernel": kernel, "shape": shape, "problems": r}
                try:
                    ways = ["serial", "graph", "fused"]
                    text = run([program, kernel, ",".join(ways), *size, str(r), "60"])
                    for w in ways:
                        row[w], row[w + "_hash"] = times(text, w + " ")
                    text = run([a.holdfast, "record", "-o", file, "--gpu=native", "--", program, kernel, "record",
                                *size, str(r), "0"])
                    at = "".join(x + "\n" for x in text.splitlines() if x.startswith("at "))
                    row["word"], row["word_hash"] = times(run([a.coalesce, "word", file], stdin=at), "")
                    if r == 1:
                        one = os.path.join(a.out, f"{kernel}-{shape}.hfr")
                        os.replace(file, one)
                    row["bits"] = row["word_hash"] == row["graph_hash"]
                    if r <= 60:
                        row["spaces"], _ = times(run([a.coalesce, "tenants", "-n", str(r), one]), "")
                except (RuntimeError, subprocess.TimeoutExpired) as e:
                    print(e)
                results.append(row)
                cell = ["-" if row.get(k) is None else f"{row[k]:.1f}" for k in
                        ("serial", "graph", "fused", "word", "spaces")]
                lines.append(f"| {kernel} | {shape} | {r} | " + " | ".join(cell) +
                             f" | {'yes' if row.get('bits') else 'no'} |")
                print(lines[-1], flush=True)
    more = []
    for shape in a.shapes.split(","):
        one = os.path.join(a.out, f"cublas-{shape}.hfr")
        for n in [int(x) for x in a.processes.split(",")]:
            cell = []
            for shared in (False, True):
                env = dict(os.environ)
                try:
                    if shared:
                        env = mps.start(os.path.join(a.out, "mps"))
                    cell.append(1e6 * n / processes(a.coalesce, one, n, env))
                except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as e:
                    print(e)
                    cell.append(None)
                finally:
                    if shared:
                        mps.stop(env)
                        time.sleep(1)
            try:
                ours, _ = times(run([a.coalesce, "tenants", "-n", str(n), one]), "")
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                print(e)
                ours = None
            cell.append(ours)
            results.append({"shape": shape, "processes": n, "slices": cell[0], "mps": cell[1], "spaces": ours})
            more.append(f"| {shape} | {n} | " + " | ".join("-" if c is None else f"{c:.1f}" for c in cell) + " |")
    second = ["", "| cuBLAS, M×N×K | R | time slicing | MPS | ours, R address spaces |", "|---|---|---|---|---|"]
    with open(os.path.join(a.out, "results.json"), "w") as f:
        json.dump(results, f)
    with open(os.path.join(a.out, "table.md"), "w") as f:
        f.write("\n".join(head + lines + second + more) + "\n")
    print("\n".join(second + more))
    for name in os.listdir(a.out):
        if name.endswith(".hfr") or name == "sgemm":
            os.remove(os.path.join(a.out, name))



main()
