"""Takes checkpoints of one program back to back and counts what fails or dies.

    python3 trust.py --holdfast BIN --work DIR --program jax --kind whole --count 200 --out FILE.json

The program (programs.py) checks itself all the while. At the end it is killed and restored from the last image where
the kind is "whole", and must then come to a good end. Every process that is started is ended by its own PID.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--holdfast", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--program", required=True)
    p.add_argument("--kind", choices=["whole", "gpu"], required=True)
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--seconds", type=float, default=450, help="no new checkpoint after that")
    p.add_argument("--out", required=True)
    a = p.parse_args()
    work = pathlib.Path(a.work)
    work.mkdir(parents=True, exist_ok=True)
    stop, log = work / "stop", work / "log"
    begin = time.monotonic()

    def holdfast(*argv):
        r = subprocess.run([a.holdfast, *argv, "--json"], capture_output=True, text=True)
        return r.returncode, r.stdout, r.stderr.strip()

    def repetitions():
        return log.read_text(errors="replace").count("repetition ") if log.exists() else 0

    def wait(what, cond, limit=120):
        end = time.monotonic() + limit
        while not cond():
            if time.monotonic() > end:
                raise SystemExit(f"{a.program}: {what}: not within {limit} "
                                 f"s\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.01)

    def launch(*argv):
        with open(log, "ab") as f:
            return subprocess.Popen([a.holdfast, *argv], stdin=subprocess.DEVNULL, stdout=f, stderr=f)

    name = a.program
    proc = launch("run", "--gpu=native", "--name", name, "--", sys.executable, str(HERE / "programs.py"),
                  a.program.partition("@")[0], "--stop", str(stop))
    wait("the first repetition", lambda: repetitions() > 2 or proc.poll() is not None)
    stalls, totals, errors, died, last, steps = [], [], [], None, None, {}
    n = 0
    while n < a.count and time.monotonic() - begin < a.seconds and proc.poll() is None:
        image = work / f"image{n}"
        before = repetitions()
        code, out, err = holdfast("checkpoint", name, "-o", str(image), "--leave-running" if a.kind == "whole"
                                  else "--gpu-only")
        n += 1
        if code == 0:
            r = json.loads(out)
            stalls.append(r["stall_ms"])
            totals.append(r["total_ms"])
            for s in r["steps"]:
                steps.setdefault(s["name"].strip(), []).append(s["ms"])
            if last:
                shutil.rmtree(last, ignore_errors=True)
            last = image
        else:
            errors.append(err[-500:])
            print(f"{name}: checkpoint {n} failed: {err[-300:]}", flush=True)
            if len(errors) >= 3:
                break
        if n % 20 == 0:
            print(f"{name}: {n} checkpoints, {len(errors)} failed, {time.monotonic() - begin:.0f} s", flush=True)
            wait("to go on", lambda: repetitions() > before or proc.poll() is not None)
    if proc.poll() is not None:
        died = proc.returncode
    restored = None
    if a.kind == "whole" and died is None and last:
        pid = next(x["pid"] for x in json.loads(holdfast("ps")[1]) if x["name"] == name)
        os.kill(pid, signal.SIGKILL)
        proc.wait()
        proc = launch("restore", str(last))
        before = repetitions()
        wait("to go on after the restore", lambda: repetitions() > before + 1 or proc.poll() is not None)
        restored = proc.poll() is None
    stop.touch()
    try:
        status = proc.wait(timeout=60)
    except subprocess.TimeoutExpired:
        status = "does not end"
        for x in json.loads(holdfast("ps")[1]):
            if x["name"] == name:
                os.kill(x["pid"], signal.SIGKILL)
        proc.kill()
    good = status == 0 and log.read_text(errors="replace").rstrip().endswith("good")
    q = lambda v, f: round(f(v), 1) if v else None
    run = lambda *c: subprocess.run(c, capture_output=True, text=True).stdout.strip()
    result = {
        "program": a.program, "kind": a.kind, "checkpoints": n, "failed": len(errors), "died": died,
        "restored": restored, "ended_well": good,
        "status": status, "repetitions": repetitions(), "stall_ms": {"median": q(stalls, statistics.median),
            "max": q(stalls, max)},
        "total_ms": {"median": q(totals, statistics.median), "max": q(totals, max)}, "errors": errors[:5],
        "seconds": round(time.monotonic() - begin), "date": time.strftime("%Y-%m-%d"),
        "gpu": run("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "holdfast": run(a.holdfast, "version"),
    }
    pathlib.Path(a.out).write_text(json.dumps(result, indent=1) + "\n")
    if not good or errors or died is not None:
        shutil.copy(log, a.out + ".log")
    print(json.dumps({k: result[k] for k in ("program", "kind", "checkpoints", "failed", "died", "restored",
                                             "ended_well", "stall_ms")}), flush=True)


main()
