"""Measures holdfast on one program, beside the driver's own checkpoint of the same program.

    python3 hold.py --holdfast BIN --work DIR --program resnet --pad-gib 64 --out FILE.json [--part
    overhead,live,warm,cold,driver,series]

DIR should be a tmpfs with room for the image (the figures are not about a disk). Every
process that is started is ended by its own PID.
"""
import argparse
import ctypes
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


def read_log(path):
    rows = []
    try:
        text = path.read_text()
    except FileNotFoundError:
        return rows
    for line in text.splitlines():
        f = line.split()
        if len(f) == 3:
            rows.append((int(f[0]), int(f[1]), f[2]))
    return rows


def tree(root):
    """A process and its descendants, parents first."""
    pids = [root]
    for pid in pids:
        for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                pids += [int(c) for c in children.read_text().split()]
            except OSError:
                pass
    return pids


class Program:
    def __init__(self, bench, name, held, extra=()):
        self.bench, self.name = bench, name
        self.log = bench.work / f"{name}.log"
        self.log.unlink(missing_ok=True)
        a = bench.args
        cmd = [sys.executable, str(HERE / "programs.py"), a.program, "--log", str(self.log), "--pad-gib",
               str(a.pad_gib), *extra]
        if held:
            cmd = [a.holdfast, "run", "--gpu=native", "--name", name, "--", *cmd]
        self.out = open(bench.work / f"{name}.out", "wb")
        self.held = held
        self.proc = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out)
        self.pid = self.proc.pid

    def find(self):
        """The held process itself, not the command that runs it."""
        for p in self.bench.holdfast("ps"):
            if p["name"] == self.name:
                self.pid = p["pid"]
                return p
        return None

    def wait_steps(self, more, limit=180, since=None):
        """Waits until `more` more steps have ended; returns the rows."""
        start = len(read_log(self.log)) if since is None else since
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            rows = read_log(self.log)
            if len(rows) >= start + more:
                return rows
            if self.proc.poll() is not None and since is None:
                raise SystemExit(f"{self.name} ended with {self.proc.returncode}:\n" +
                                 (self.bench.work / f"{self.name}.out").read_text()[-3000:])
            time.sleep(0.02)
        raise SystemExit(f"{self.name}: no {more} steps within {limit} s:\n" +
                         (self.bench.work / f"{self.name}.out").read_text()[-3000:])

    def kill(self):
        """Ends the program and the processes that it started."""
        pids = tree(self.pid)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.proc.wait()
        deadline = time.monotonic() + 30
        while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.005)


def gaps(rows):
    return [(b[1] - a[1]) / 1e6 for a, b in zip(rows, rows[1:])]


class Bench:
    def __init__(self, args):
        self.args = args
        run = lambda *c: subprocess.run(c, capture_output=True, text=True).stdout.strip()
        machine = {"gpu": run("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"),
                   "kernel": os.uname().release, "cpus": os.cpu_count(), "date": time.strftime("%Y-%m-%d"),
                   "python": run(sys.executable, "-c", "import torch; print('PyTorch', torch.__version__)"),
                   "holdfast": run(args.holdfast, "version")}
        self.work = pathlib.Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.result = {"program": args.program, "pad_gib": args.pad_gib, "machine": machine}

    def holdfast(self, *argv):
        r = subprocess.run([self.args.holdfast, *argv, "--json"], capture_output=True, text=True)
        if r.returncode != 0:
            raise SystemExit(f"holdfast {' '.join(argv)}: exit {r.returncode}\n{r.stdout}\n{r.stderr}")
        return json.loads(r.stdout)

    def say(self, *a):
        print(f"[{time.monotonic():.1f}]", *a, flush=True)

    def overhead(self):
        """Steady overhead: median step, held against not held, in turn."""
        times = {False: [], True: []}
        for round_ in range(self.args.rounds):
            for held in (False, True) if round_ % 2 == 0 else (True, False):
                p = Program(self, f"over{int(held)}{round_}", held)
                rows = p.wait_steps(self.args.warm, since=0)
                rows = p.wait_steps(self.args.count)
                if held:
                    p.find()
                p.kill()
                times[held] += gaps(rows[self.args.warm:])
        a, b = statistics.median(times[False]), statistics.median(times[True])
        self.result["overhead"] = {"plain_ms": a, "held_ms": b, "percent": 100 * (b / a - 1)}
        self.say("overhead", self.result["overhead"])

    def around(self, p, action, settle=10):
        """Runs action while p steps; returns its result and how much later a step ended than it would have."""
        before = read_log(p.log)
        base = statistics.median(gaps(before[-100:]))
        start = time.monotonic_ns()
        res = action()
        end = time.monotonic_ns()
        n = len(before)
        rows = p.wait_steps(settle)
        after = rows[n - 1:]
        window = gaps(after)
        worst = max(range(len(window)), key=window.__getitem__)
        # The drain begins when the stalled step ends; the steps that lie wholly inside it.
        thawed = after[worst + 1][1]
        drain = [g for g, r in zip(window[worst + 1:], after[worst + 2:]) if r[1] <= thawed + res["drain_ms"] * 1e6]
        return res, {"step_ms": base, "worst_step_ms": window[worst], "stall_seen_ms": window[worst] - base,
                     "steps_in_drain": len(drain), "step_in_drain_ms": statistics.median(drain) if len(drain) >= 5
                     else None,
                     "call_ms": (end - start) / 1e6}

    def live(self):
        p = Program(self, "live", True)
        p.wait_steps(self.args.warm, limit=300, since=0)
        info = p.find()
        self.result["resident_bytes"] = info["resident_bytes"]
        self.result["allocations"] = info.get("allocations")
        self.say("resident", info["resident_bytes"] / 2**30, "GiB, allocations", info.get("allocations"), "caveats",
                 info.get("caveats"))
        shots = []
        kinds = {"gpu": ["--gpu-only", "--mode", "stage"], "recopy": ["--gpu-only", "--mode", "recopy"],
                 "full": ["--leave-running"]}
        names = [n + str(i + 1) for i, n in enumerate(self.args.shots.split(","))]
        for name in names:
            flags = kinds[name.rstrip("0123456789")]
            d = self.work / "img" / name
            shutil.rmtree(d, ignore_errors=True)
            d.parent.mkdir(exist_ok=True)
            res, seen = self.around(p, lambda: self.holdfast("checkpoint", "live", "-o", str(d), *flags))
            res.update(seen=seen, shot=name)
            shots.append(res)
            self.say(name, json.dumps({k: res[k] for k in ("mode", "stall_ms", "data_stall_ms", "drain_ms", "total_ms",
                    "bytes", "bytes_new", "chunks", "chunks_new", "chunks_zero", "chunks_recopied")}), seen)
            for s in res["steps"]:
                self.say("    ", f"{s['name']:<20} {s['ms']:>10.1f} ms", "stall" if s.get("stall") else "")
            if name != names[-1]:  # its chunks stay in the pool
                shutil.rmtree(d, ignore_errors=True)
        self.result["checkpoints"] = shots
        self.live_program = p
        self.image = d

    def restore(self, kind):
        p = self.live_program
        p.find()
        p.kill()
        if kind == "cold":  # a daemon that has never seen the program
            subprocess.run([self.args.holdfast, "daemon", "stop", "--force"], capture_output=True)
        n = len(read_log(p.log))
        start = time.monotonic()
        res = self.holdfast("restore", str(self.image), "--detach")
        end = time.monotonic()
        # The clock of the restored program goes on from the dump: the time is taken here, when its line appears.
        while len(read_log(p.log)) <= n and time.monotonic() < start + 120:
            time.sleep(0.001)
        res["seen"] = {"call_ms": (end - start) * 1e3, "first_step_ms": (time.monotonic() - start) * 1e3}
        p.pid = res["pid"]
        self.result["restore_" + kind] = res
        self.say("restore", kind, json.dumps({k: res[k] for k in ("source", "total_ms", "bytes", "bytes_filled")}),
                 res["seen"])
        for s in res["steps"]:
            self.say("    ", f"{s['name']:<20} {s['ms']:>10.1f} ms")
        p.wait_steps(10, since=n)

    def series(self):
        """50 steps after a restore against a run that never stopped."""
        count = 120
        ref = Program(self, "reference", False, ("--steps", str(count)))
        rows = ref.wait_steps(count, limit=300, since=0)
        ref.proc.wait()
        want = {r[0]: r[2] for r in rows}
        p = Program(self, "series", True)
        p.wait_steps(20, limit=300, since=0)
        p.find()
        d = self.work / "img" / "series"
        shutil.rmtree(d, ignore_errors=True)
        d.parent.mkdir(exist_ok=True)
        self.holdfast("checkpoint", "series", "-o", str(d))
        p.proc.wait()
        had = len(read_log(p.log))
        res = self.holdfast("restore", str(d), "--detach")
        p.pid = res["pid"]
        rows = p.wait_steps(50, since=had)
        p.kill()
        after = [r for r in rows[had:]][:50]
        same = sum(want.get(r[0]) == r[2] for r in after if r[0] < count)
        compared = sum(r[0] < count for r in after)
        self.result["series"] = {"checkpoint_after_steps": had, "compared": compared, "identical": same,
                                 "reference": [w for w in list(want.values())[-3:]]}
        self.say("series", self.result["series"])

    def driver(self):
        """The driver's own checkpoint (cuCheckpointProcess*) of the same program, not held."""
        p = Program(self, "driver", False)
        p.wait_steps(self.args.warm, limit=300, since=0)
        cu = ctypes.CDLL("libcuda.so.1")
        cu.cuInit(0)
        t = {}
        base = statistics.median(gaps(read_log(p.log)[-20:]))
        for name in ("Lock", "Checkpoint", "Restore", "Unlock"):
            start = time.monotonic()
            args = (ctypes.c_uint64 * 8)()  # CUcheckpoint*Args: 64 reserved bytes, all zero (cuda.h, CUDA 12.8)
            rc = getattr(cu, "cuCheckpointProcess" + name)(p.pid, args)
            t[name.lower() + "_ms"] = (time.monotonic() - start) * 1e3
            if rc != 0:
                t["error"] = f"{name}: {rc}"
                break
        rows = p.wait_steps(3)
        t["stall_seen_ms"] = max(gaps(rows)[self.args.warm - 1:]) - base
        p.kill()
        self.result["driver"] = t
        self.say("driver's own", t)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--holdfast", required=True)
    a.add_argument("--work", required=True)
    a.add_argument("--program", required=True)
    a.add_argument("--pad-gib", type=float, default=0)
    a.add_argument("--out", required=True)
    a.add_argument("--part", default="overhead,live,warm,cold,driver,series")
    a.add_argument("--shots", default="gpu,gpu,full,full",
                   help="checkpoints of the part live, in order: gpu, recopy, full")
    a.add_argument("--rounds", type=int, default=1)
    a.add_argument("--warm", type=int, default=30)
    a.add_argument("--count", type=int, default=150)
    b = Bench(a.parse_args())
    b.live_program = None
    try:
        for part in b.args.part.split(","):
            {"overhead": b.overhead, "live": b.live, "warm": lambda: b.restore("warm"),
             "cold": lambda: b.restore("cold"),
             "driver": b.driver, "series": b.series}[part]()
            if part == "cold":  # room for what comes: the driver's own checkpoint needs all of it in host memory
                b.live_program.kill()
                b.live_program = None
                subprocess.run([b.args.holdfast, "daemon", "stop", "--force"], capture_output=True)
                shutil.rmtree(b.work / "img")
    finally:
        pathlib.Path(b.args.out).write_text(json.dumps(b.result, indent=1))
        if b.live_program is not None:
            b.live_program.kill()


if __name__ == "__main__":
    main()
