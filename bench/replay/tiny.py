"""Records networks of models.py, links and packs them, and compares the executables' outputs and times.

    tiny.py HOLDFAST HFREPLAY OUT [CASE...]     default: resnet50. For an NVIDIA H200.

Bits: a packed network on the recorded input and on five others (a training step done once to six times) must give what
PyTorch gave, and what hfreplay gives. Cold: from before the start of a process to the last byte of its output, read
through a pipe, and to its end; RUNS processes of each way, in turns. Also: that linking for this GPU gives the bytes of
linking for an H200, that a recording linked for another GPU is refused, and that a player that was killed leaves a GPU
on which the next one runs. OUT gets results.json and table.md.
"""

import argparse
import filecmp
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = [sys.executable, os.path.join(HERE, "models.py")]
INPUTS = 6  # the recorded one and five others, or so many training steps
RUNS = 10


def done(cmd, limit=200):
    r = subprocess.run(cmd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)
    if r.returncode:
        sys.exit(f"{' '.join(cmd)}: status {r.returncode}\n{r.stdout}{r.stderr}")
    return r.stdout + r.stderr


def record(hf, case, work):
    """The recording of a case, and what models.py has said of it."""
    for line in done([*MODELS, "--list"]).splitlines():
        name, kind, inputs, hints = line.split("\t")
        if name == case:
            break
    else:
        sys.exit(f"{case}: no such case")
    file = os.path.join(work, "m.hfr")
    named = [a for n in inputs.split() for a in ("--in", n)] + [a for h in hints.split() for a in ("--out", h)]
    done([hf, "record", "-o", file, "--gpu=native", *named, "--", *MODELS, case, "--dir", work])
    return file, kind == "train", inputs.split(), [h.split(":")[0] for h in hints.split()]


def bits(ways, train, inputs, outputs, work):
    """How many of INPUTS outputs each way has right."""
    right = dict.fromkeys(ways, 0)
    for i in range(INPUTS):
        tag = str(i - 1) if i else ""
        for way, cmd in ways.items():
            more = [a for n in outputs for a in ("--out", f"{n}={os.path.join(work, 'got.' + n)}")]
            if train:
                more += ["-n", str(i + 1)]
            elif i:
                more += [a for n in inputs for a in ("--in", f"{n}={os.path.join(work, n + tag)}")]
            done([*cmd, *more])
            right[way] += all(filecmp.cmp(os.path.join(work, "got." + n), os.path.join(work, n + tag), shallow=False)
                              for n in outputs)
    return right


def cold(cmd, output, size):
    """Seconds to the last byte of an output, and to the end of the process."""
    begun = time.perf_counter()
    p = subprocess.Popen([*cmd, "--out", f"{output}=/dev/stdout"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    got = 0
    while got < size:
        b = os.read(p.stdout.fileno(), size - got)
        if not b:
            sys.exit(f"{' '.join(cmd)}: {got} bytes of output, want {size}\n{p.stderr.read().decode()}")
        got += len(b)
    there = time.perf_counter() - begun
    said = p.communicate()[1].decode()
    if p.returncode:
        sys.exit(f"{' '.join(cmd)}: status {p.returncode}\n{said}")
    return there, time.perf_counter() - begun, said


def case_of(args, case, work):
    hf, hr = (os.path.realpath(p) for p in (args.holdfast, args.hfreplay))
    file, train, inputs, outputs = record(hf, case, work)
    at = {n: os.path.join(work, n) for n in ("m.hfx", "this.hfx", "other.hfx", "model", "other")}
    begun = time.perf_counter()
    done([hf, "link", file, "-o", at["m.hfx"], "--gpu", "h200"])
    linked = time.perf_counter() - begun
    done([hr, "pack", at["m.hfx"], "-o", at["model"]])
    ways = {"tiny": [at["model"]], "hfreplay": [hr, file], "libcuda": [hf, "replay", "--backend", "libcuda", file]}
    result = {"right": bits({w: ways[w] for w in ("tiny", "hfreplay")}, train, inputs, outputs, work),
              "link_seconds": linked, "hfr_bytes": os.path.getsize(file), "hfx_bytes": os.path.getsize(at["m.hfx"]),
              "model_bytes": os.path.getsize(at["model"])}
    size = os.path.getsize(os.path.join(work, outputs[0]))
    times = {w: [] for w in ways}
    for _ in range(RUNS):
        for w, cmd in ways.items():
            times[w].append(cold([*cmd, "--times"] if w == "tiny" else cmd, outputs[0], size))
    for w, took in times.items():
        for k, what in enumerate(("output", "end")):
            values = sorted(t[k] for t in took)
            result[f"{w}_{what}"] = {"median": statistics.median(values), "least": values[0], "most": values[-1]}
    split = [[int(n) for n in re.findall(r"(\d+) us", t[2])] for t in times["tiny"]]
    names = ("device", "contents", "first run", "fastest run", "outputs")
    result["tiny_split_us"] = {n: statistics.median(s[i] for s in split) for i, n in enumerate(names)}
    result["tiny_300"] = done([at["model"], "-n", "300", "--times"]).strip()
    result["hfreplay_300"] = json.loads(done([hr, file, "-n", "300", "--json"]))["median_run_seconds"]
    return result, at, hf, hr, file


def odd(at, hf, hr, file):
    """What else must hold, as text."""
    said = []
    done([hf, "link", file, "-o", at["this.hfx"], "--gpu", "this"])
    said.append("linked for this GPU: " +
                ("the same bytes" if filecmp.cmp(at["this.hfx"], at["m.hfx"], shallow=False) else "OTHER BYTES"))
    done([hf, "link", file, "-o", at["other.hfx"], "--gpu", "sm_90:8,9,2,64,57"])
    done([hr, "pack", at["other.hfx"], "-o", at["other"]])
    r = subprocess.run([at["other"]], capture_output=True, text=True)
    said.append(f"linked for another GPU: status {r.returncode}: {r.stderr.strip()}")
    for number in (signal.SIGKILL, signal.SIGINT):
        p = subprocess.Popen([at["model"], "-n", "1000000"])
        time.sleep(1)
        p.send_signal(number)
        p.wait()
        r = subprocess.run([at["model"]], capture_output=True, text=True)
        said.append(f"after signal {int(number)} while it ran (status {p.returncode}): the next one ends with "
                    f"{r.returncode} {r.stderr.strip()}")
    return said


def table(results):
    def ms(v):
        return f"{1e3 * v['median']:.1f} ({1e3 * v['least']:.1f}–{1e3 * v['most']:.1f})"

    rows = ["| network | recording | linked | tiny | hfreplay | tiny: output | hfreplay | libcuda | tiny: end | "
            "hfreplay | libcuda |", "|" + "---|" * 11]
    for name, r in results.items():
        rows.append(f"| {name} | {r['hfr_bytes'] / 1e6:.1f} MB | {r['hfx_bytes'] / 1e6:.1f} MB | "
                    f"{r['right']['tiny']} of {INPUTS} | {r['right']['hfreplay']} of {INPUTS} | " +
                    " | ".join(ms(r[f"{w}_{what}"]) for what in ("output", "end")
                               for w in ("tiny", "hfreplay", "libcuda")) + " |")
    return "\n".join(rows) + "\n(milliseconds: median, least and most)\n"


def main():
    p = argparse.ArgumentParser()
    for name in ("holdfast", "hfreplay", "out"):
        p.add_argument(name)
    p.add_argument("case", nargs="*", default=["resnet50"])
    args = p.parse_args()
    os.makedirs(args.out, exist_ok=True)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:2"
    results = {}
    for i, case in enumerate(args.case):
        with tempfile.TemporaryDirectory() as work:
            os.environ["HOLDFAST_DIR"] = os.path.join(work, "run")
            os.environ["XDG_CACHE_HOME"] = os.path.join(work, "cache")
            results[case], *rest = case_of(args, case, work)
            r = results[case]
            print(case, r["right"], r["tiny_split_us"], r["tiny_300"], f"hfreplay {1e6 * r['hfreplay_300']:.0f} us",
                  f"link {r['link_seconds']:.2f} s", flush=True)
            if i == 0:
                results[case]["odd"] = odd(*rest)
                print("\n".join(results[case]["odd"]), flush=True)
        with open(os.path.join(args.out, "results.json"), "w") as f:
            json.dump(results, f, indent=1)
        with open(os.path.join(args.out, "table.md"), "w") as f:
            f.write(table(results))
    print(table(results))


if __name__ == "__main__":
    main()
