"""Measures what holdfast foresees, on a GPU: see README.md. gpu.sh runs it.

    python3 gpu.py --holdfast BIN --out DIR --work DIR --part launches|traces|cow|demand [--gpu soft]
        [--program 'NAME=COMMAND']…

A COMMAND may have {log} (its step log: "STEP END_NS [VALUE]" a line), {out} and {steps}. Every process that is started
is ended by its own PID, whatever happens. Results are written as they come: what a limit cuts off does not take the
rest along.
"""
import argparse
import collections
import contextlib
import ctypes
import io
import json
import lzma
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "hold"))
from hold import tree  # noqa: E402

MOST_BACK = 15 * 2**20  # of one archive
SERIES = 24  # steps that must be equal after a restore
CHUNK = 2 * 2**20


class Failed(Exception):
    pass


class Left(Exception):
    """Not enough time for something."""


def rows_of(path):
    """The whole lines of a step log."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return []
    rows = []
    for line in text[:text.rfind("\n") + 1].splitlines():
        f = line.split()
        if len(f) >= 2 and f[0].isdigit() and f[1].isdigit():
            rows.append((int(f[0]), int(f[1]), f[2] if len(f) > 2 else None))
    return rows


def gaps(rows):
    return [(b[1] - a[1]) / 1e6 for a, b in zip(rows, rows[1:])]


def median(list_):
    return statistics.median(list_) if list_ else None


def lower_quartile(list_):
    return statistics.quantiles(list_, n=4, method="inclusive")[0] if len(list_) > 1 else median(list_)


def interval(groups):
    """The median over groups of their medians, and the bootstrap's interval: 90 % of such medians are in it when as
    many groups are drawn with replacement, and of each as many of its values. The same seed every time: the same values
    give the same interval."""
    draw = random.Random(1)
    again = lambda: median([median(draw.choices(g, k=len(g))) for g in draw.choices(groups, k=len(groups))])
    drawn = sorted(again() for _ in range(4000))
    return median([median(g) for g in groups]), drawn[len(drawn) // 20], drawn[-1 - len(drawn) // 20]


def overhead(processes):
    """What tracing costs, in percent, of the step times of blocks that took turns: of each pair of processes {"plain":
    blocks, "traced": blocks}, a block being a list of ms. A block is its median and two neighbours a ratio; then see
    interval."""
    ratios = [[100 * (median(t) / median(p) - 1) for p, t in zip(pair["plain"], pair["traced"])] for pair in processes]
    middle, low, high = interval(ratios)
    all_ = {how: [ms for pair in processes for b in pair[how] for ms in b] for how in ("plain", "traced")}
    return {"plain_ms": median(all_["plain"]), "traced_ms": median(all_["traced"]), "pairs": len(processes),
            "blocks": sum(map(len, ratios)),
            "overhead_percent": middle, "overhead_low": low, "overhead_high": high,
            "overhead_of_pairs": [median(r) for r in ratios]}


def dead(pid):
    """Whether a process has ended; one of ours that has is reaped."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return True
    return state == "X"


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Program:
    """A program that was started, alone, under holdfast run or under holdfast trace."""

    def __init__(self, bench, name, command, how, values=None, env=None, trace=None):
        self.bench, self.name, self.how = bench, name, how
        self.log, self.text = bench.work / f"{name}.log", bench.work / f"{name}.out"
        for f in (self.log, self.text):
            f.unlink(missing_ok=True)
        values = {"log": str(self.log), "out": "", "steps": str(1 << 40), **(values or {})}
        cmd = [part.format(**values) for part in command]
        gpu = f"--gpu={bench.args.gpu}"
        if how == "held":
            cmd = [bench.args.holdfast, "run", gpu, "--name", name, "--", *cmd]
        elif how == "traced":
            cmd = [bench.args.holdfast, "trace", "--json", "-o", str(trace), gpu, "--", *cmd]
        environment = {**os.environ, **bench.environment, **(env or {})}
        if how == "plain":
            environment.update(bench.plain)
        with open(self.text, "wb") as out:
            self.proc = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        self.pid, self.stopped = self.proc.pid, False
        bench.programs.append(self)

    def tail(self):
        return self.text.read_text(errors="replace")[-2500:]

    def itself(self):
        """The PID of the program, not of the command that runs it."""
        if self.how == "traced":
            for _ in range(500):
                # Servers that holdfast has started are its children too.
                found = [p for p in tree(self.proc.pid)[1:] if b"softgpu" not in command_line(p)]
                if found or self.proc.poll() is not None:
                    self.pid = (found or [self.pid])[0]
                    break
                time.sleep(0.01)
        elif self.how == "held":
            for p in self.bench.holdfast("ps"):
                if p["name"] == self.name:
                    self.pid = p["pid"]
                    return p
        return None

    def rows(self):
        return rows_of(self.log)

    def reach(self, lines, limit, alive=True):
        """Waits until the log has so many lines."""
        deadline = time.monotonic() + min(limit, max(1, self.bench.left()))
        while True:
            rows = self.rows()
            if len(rows) >= lines:
                return rows
            if alive and self.proc.poll() is not None:
                raise Failed(f"{self.name} ended with {self.proc.returncode}: {self.tail()}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name}: {len(rows)} of {lines} steps in time: {self.tail()}")
            time.sleep(0.01)

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)
        self.stopped = True

    def go(self):
        if self.stopped:
            os.kill(self.pid, signal.SIGCONT)
        self.stopped = False

    def ask(self):
        """Asks the program to end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
            self.go()

    def end(self, patience=20):
        """Ends the program as it would end itself, so that a trace of it is whole; else it is killed."""
        self.ask()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.proc.wait(patience)
        self.kill()

    def kill(self):
        if self.how in ("held", "traced") and self.pid == self.proc.pid and self.proc.poll() is None:
            with contextlib.suppress(Failed):
                self.itself()
        pids = tree(self.pid) if self.how in ("plain", "restored") or self.pid != self.proc.pid else []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            self.proc.wait(10)  # the command ends with its program
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        deadline = time.monotonic() + 60  # a GPU process that had much memory takes a while to go
        while not all([dead(p) for p in pids]) and time.monotonic() < deadline:
            time.sleep(0.005)
        if self in self.bench.programs:
            self.bench.programs.remove(self)


class Bench:
    def __init__(self, args):
        self.args = args
        self.began = time.monotonic()
        self.work, self.out = pathlib.Path(args.work), pathlib.Path(args.out)
        self.images = pathlib.Path(args.images or args.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        self.programs = []
        self.environment = {"PYTHONUNBUFFERED": "1", "CUPY_COMPILE_WITH_PTX": "1",
                            "CUPY_CACHE_DIR": str(self.work / "cupy"),
                            "TORCHINDUCTOR_CACHE_DIR": str(self.work / "inductor"),
                            "TRITON_CACHE_DIR": str(self.work / "triton"),
                            "XLA_FLAGS": f"--xla_dump_to={self.work / 'xla'}"}
        self.plain, self.python = {}, ""
        if args.gpu == "soft" and args.stub:  # the software GPU's own driver library, without holdfast between
            self.plain.update(LD_LIBRARY_PATH=args.stub, HOLDFAST_SOFTGPU_EXEC=f"{args.holdfast} softgpu")
        self.result = {"part": args.part, "gpu": args.gpu, "left_out": []}

    # Time, results, words.

    def left(self):
        return self.args.budget - (time.monotonic() - self.began)

    def enough(self, seconds, what):
        if self.left() < seconds:
            raise Left(f"{what}: {self.left():.0f} s left, {seconds:.0f} s needed")

    def leave_out(self, what):
        self.result["left_out"].append(str(what)[-1500:])
        self.say("left out:", what)
        self.save()

    def say(self, *words):
        print(f"[{time.monotonic() - self.began:6.1f}]", *words, file=sys.stderr, flush=True)

    def save(self):
        self.result["seconds"] = time.monotonic() - self.began
        name = self.out / f"gpu-{self.args.part}.json"
        tmp = name.with_suffix(".tmp")
        tmp.write_text(json.dumps(self.result, indent=1))
        tmp.replace(name)

    @contextlib.contextmanager
    def attempt(self, what):
        """What fails in here is left out, and the rest goes on."""
        here = list(self.programs)
        try:
            yield
        except (Failed, Left) as e:
            self.leave_out(f"{what}: {e}")
            for p in [p for p in self.programs if p not in here]:
                p.kill()

    # Holdfast and the machine.

    def holdfast(self, *argv, limit=300):
        try:
            r = subprocess.run([self.args.holdfast, *argv, "--json"], capture_output=True, text=True,
                               timeout=min(limit, max(5, self.left())))
        except subprocess.TimeoutExpired:
            raise Failed(f"holdfast {' '.join(argv)}: not done in time") from None
        if r.returncode != 0:
            raise Failed(f"holdfast {' '.join(argv)}: exit {r.returncode}: {(r.stdout + r.stderr)[-2000:]}")
        return json.loads(r.stdout)

    def stop_daemon(self):
        subprocess.run([self.args.holdfast, "daemon", "stop", "--force"], capture_output=True, timeout=60)

    def daemon_log(self):
        try:
            return (pathlib.Path(os.environ["HOLDFAST_DIR"]) / "daemon.log").read_text(errors="replace")
        except OSError:
            return ""

    def memory(self):
        """Free and total bytes of the GPU, as its driver says."""
        try:
            r = subprocess.run(["nvidia-smi", "--query-gpu=memory.free,memory.total", "--format=csv,noheader,nounits",
                                "-i", "0"], capture_output=True, text=True, timeout=20)
            free, total = (int(x) * 2**20 for x in r.stdout.split(","))
            return {"free": free, "total": total}
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return None

    def machine(self):
        def run(*c):
            try:
                return subprocess.run(c, capture_output=True, text=True, timeout=60).stdout.strip()
            except (OSError, subprocess.TimeoutExpired):
                return ""
        return {"gpu": run("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
                if self.args.gpu == "native" else "software GPU",
                "kernel": os.uname().release, "cpus": os.cpu_count(), "date": time.strftime("%Y-%m-%d"),
                "python": self.python,
                "holdfast": run(self.args.holdfast, "version")}

    def unable(self):
        """Why nothing can be measured here, or None."""
        if self.args.gpu == "soft":
            if self.args.program or self.args.part == "launches":
                return None
            return "on the software GPU a program must be given (--program)"
        r = subprocess.run([sys.executable, "-c", "import torch, triton; assert torch.cuda.is_available(), 'PyTorch "
                            "sees no GPU'; print('PyTorch', torch.__version__, 'Triton', triton.__version__)"],
                           capture_output=True, text=True)
        self.python = r.stdout.strip()
        if r.returncode != 0 and not self.args.program:
            return (r.stderr.strip().splitlines() or ["PyTorch cannot be imported"])[-1]
        if self.memory() is None:
            return "nvidia-smi finds no GPU"
        return None

    def end(self):
        for p in list(reversed(self.programs)):
            with contextlib.suppress(OSError):
                p.kill()
        with contextlib.suppress(Failed, OSError, ValueError):
            for p in self.holdfast("ps", limit=20):
                os.kill(p["pid"], signal.SIGKILL)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.stop_daemon()
            if self.args.gpu == "soft":
                subprocess.run([self.args.holdfast, "softgpu", "--stop"], capture_output=True, timeout=20)


def own(*words):
    return [sys.executable, str(HERE / "programs.py"), *words]


def given(bench):
    """The programs of the command line: name → command."""
    return {name: shlex.split(command) for name, _, command in (p.partition("=") for p in bench.args.program)}


def chosen(bench, programs):
    """Those that --only names, in that order; without it all."""
    only = [n for n in bench.args.only.split(",") if n]
    for n in only:
        if n not in programs:
            bench.leave_out(f"{n}: this part has no such program, but {', '.join(programs)}")
    return {n: programs[n] for n in only if n in programs} if only else programs


# Part launches.

def launches(bench):
    """What recording adds to one launch: a program that does nothing else goes past the recorder and through it in
    turn."""
    a = bench.args
    exe = bench.work / "launches"
    r = subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-o", str(exe), str(HERE / "launches.c"),
                        "-ldl"], capture_output=True, text=True)
    if r.returncode != 0:
        bench.result["skipped"] = "launches.c cannot be compiled: " + r.stderr[-500:]
        return
    rounds, each, graphs, nodes = (400, 512, 64, 50) if a.gpu == "native" else (8, 64, 8, 20)
    bench.result.update(rounds=rounds, nodes=nodes, processes=[])
    for _ in range(a.processes):
        bench.enough(5, "launches")
        p = Program(bench, "launches", [str(exe), *map(str, (rounds, each, graphs, nodes))], "traced",
                    trace=bench.work / "launches.trace")
        with contextlib.suppress(subprocess.TimeoutExpired):
            p.proc.wait(min(60, bench.left()))
        lines = [l for l in p.text.read_text(errors="replace").splitlines() if l.startswith('{"launch"')]
        p.kill()
        if p.proc.returncode != 0 or not lines:
            raise Failed(f"launches: {p.tail()}")
        times = json.loads(lines[0])
        bench.result["processes"].append({what: {"plain_ns": median(t["plain_ns"]), "traced_ns": median(t["traced_ns"]),
                                                 "added_ns": median([y - x for x, y in zip(t["plain_ns"],
                                                     t["traced_ns"])])}
                                          for what, t in times.items()})
        bench.save()
    for what in ("launch", "graph"):
        of = {k: [p[what][k] for p in bench.result["processes"]] for k in ("plain_ns", "traced_ns", "added_ns")}
        share = [100 * x / y for x, y in zip(of["added_ns"], of["plain_ns"])]
        bench.result[what] = {**{k: median(v) for k, v in of.items()}, "added_low_ns": min(of["added_ns"]),
                              "added_high_ns": max(of["added_ns"]),
                              "overhead_percent": median(share), "overhead_high": max(share)}
        bench.say(f"a {what}: {median(of['plain_ns']):.0f} ns, recorded {median(of['added_ns']):+.0f} ns "
                  f"({min(of['added_ns']):+.0f} to {max(of['added_ns']):+.0f}), {median(share):+.2f} %")


# Part traces.

TRACED = ["resnet", "gpt2", "llama", "decode", "unet", "recurrent", "graph", "optimizers", "cupy", "jax", "mobilenet"]


def traces(bench):
    a = bench.args
    programs = given(bench) or {n: own(n, "--log", "{log}", "--steps", "{steps}",
                                       *(["--layers", "8"] if n == "decode" else [])) for n in TRACED}
    programs = chosen(bench, programs)
    bench.result.update(pairs=a.pairs, blocks=a.blocks, steps=a.steps, skip=a.skip, programs=[])
    ready = warm(bench, programs) if not a.program else list(programs)
    done = []
    for i in range(0, len(ready), a.at_once):
        some = ready[i:i + a.at_once]
        try:
            bench.enough(60 if not a.program else 5, ", ".join(some))
        except Left as e:
            bench.leave_out(e)
            continue
        done += measure(bench, {n: programs[n] for n in some})
    kept = [(n, t) for n, t in done if t.exists()]
    if kept:
        pack(bench, kept)
        evaluate(bench, kept)


def warm(bench, programs):
    """Runs each program for a few steps, some at a time, so that all is compiled. Returns those that work."""
    ready, waiting, running = [], list(programs), []
    threads = {"TORCHINDUCTOR_COMPILE_THREADS": str(max(2, (os.cpu_count() or 4) // 4))}
    until = min(bench.left() * 0.45, 240)
    began = time.monotonic()
    while waiting or running:
        while waiting and len(running) < 5 and time.monotonic() - began < until:
            n = waiting.pop(0)
            running.append((n, Program(bench, f"warm-{n}", programs[n], "plain", {"steps": "4"}, threads)))
        if not running:
            break
        for n, p in list(running):
            if p.proc.poll() is None and time.monotonic() - began < until:
                continue
            running.remove((n, p))
            if p.proc.poll() == 0:
                ready.append(n)
                bench.say(f"{n}: compiled")
            else:
                bench.leave_out(f"{n}: " + (f"ended with {p.proc.returncode}: {p.tail()[-700:]}"
                                            if p.proc.poll() is not None else "not compiled in time"))
            p.kill()
        time.sleep(0.1)
    for n in waiting:
        bench.leave_out(f"{n}: no time was left to compile it")
    return [n for n in programs if n in ready]


FEWEST = 4  # pairs of blocks of a pair of processes, however long they take
DRY = 0.02  # seconds in which what a program that was stopped has queued runs out


def block_steps(a, pair):
    """How many steps a block has: fewer of a program whose steps are long, because pairs count, not steps."""
    # others were starting meanwhile
    step = lower_quartile([ms for p in pair.values() for ms in gaps(p.rows()[-10:])]) / 1e3
    return max(min(8, a.steps), min(a.steps, int(a.seconds / (2 * a.blocks * a.pairs * step)) - a.skip - 1))


def alike(command):
    """The command so that its processes differ as little as can be: on the same processors, leaving others to who
    records; with the same addresses and, in Python, the same order of hashes. On a shared machine two processes of one
    program differ by tens of percent else."""
    cpus = sorted(os.sched_getaffinity(0))
    words = ["env", "PYTHONHASHSEED=0"]
    if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0:
        words += ["setarch", "-R"]
    if len(cpus) >= 8:
        words += ["taskset", "-c", ",".join(map(str, cpus[-len(cpus) // 4:]))]
    return [*words, *command]


def measure(bench, programs):
    """Alternates between a plain and a traced process of each program, of several pairs of processes. All have begun
    and stand still (SIGSTOP) but the one that is measured: so both of a pair see the same machine within a second, and
    what starting costs is paid once."""
    a, pairs, done = bench.args, {}, []
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    trace = lambda n, i=0: bench.work / (f"{n}.trace" if i == 0 else f"{n}-{i}.trace")
    for n, command in programs.items():
        pairs[n] = [{how: Program(bench, f"{n}-{how}-{i}", alike(command), how, env=environment, trace=trace(n, i))
                     for how in ("plain", "traced")} for i in range(a.pairs)]
    every = lambda n: [p for pair in pairs[n] for p in pair.values()]
    for n in list(pairs):
        with bench.attempt(n):
            try:
                for p in every(n):
                    p.reach(a.warm, 120)
                    p.itself()
                    p.stop()
            except Failed:
                for p in every(n):
                    p.kill()
                del pairs[n]
                raise
    for n in pairs:
        with bench.attempt(n):
            steps, processes = block_steps(a, pairs[n][0]), []
            try:
                for pair in pairs[n]:
                    bench.enough(45 if not a.program else 5, "steps")  # what comes after needs time too
                    blocks, began = {"plain": [], "traced": []}, time.monotonic()
                    for b in range(a.blocks):
                        if len(blocks["plain"]) >= FEWEST and time.monotonic() - began > a.seconds / a.pairs:
                            break
                        one = {}
                        for how in ("plain", "traced") if b % 2 == 0 else ("traced", "plain"):
                            p = pair[how]
                            time.sleep(DRY)
                            had = len(p.rows())
                            p.go()
                            rows = p.reach(had + a.skip + steps + 1, 120)
                            p.stop()
                            # The gap in which it stood still is not one of these.
                            one[how] = gaps(rows[had + a.skip:had + a.skip + steps + 1])
                        for how in one:  # whole pairs only
                            blocks[how].append(one[how])
                    processes.append(blocks)
            finally:
                for p in every(n):
                    p.ask()
                for p in every(n):
                    p.end()
            traced = pairs[n][0]["traced"]
            r = {"program": n, "block_steps": steps,
                 "step_times_ms": [{how: [" ".join(f"{ms:.3f}" for ms in b) for b in blocks[how]] for how in blocks}
                                   for blocks in processes],
                 **overhead(processes), **told(traced), "traced_steps": len(traced.rows())}
            r.update(kernels(bench, trace(n)))
            bench.result["programs"].append(r)
            bench.save()
            bench.say(f"{n}: {r['plain_ms']:.3f} ms, traced {r['traced_ms']:.3f} ms, {r['overhead_percent']:+.2f} % "
                      f"({r['overhead_low']:+.2f} to {r['overhead_high']:+.2f}; pairs " +
                      ", ".join(f"{o:+.2f}" for o in r["overhead_of_pairs"]) + ")")
            done.append((n, trace(n)))
    return done


def told(p):
    """What holdfast trace said at the end."""
    for line in p.text.read_text(errors="replace").splitlines():
        if line.startswith("{") and '"traced"' in line:
            with contextlib.suppress(ValueError):
                t = json.loads(line)
                return {"trace_bytes": t["bytes"], "launches": t["launches"], "graph_launches": t["graph_launches"],
                        "waits": t["waits"]}
    return {"trace_failed": p.tail()[-500:]}


def kernels(bench, trace):
    try:
        list_ = bench.holdfast("trace", "ls", str(trace), limit=60)
    except Failed as e:
        return {"kernels_failed": str(e)[-500:]}
    ks = list_["kernels"] or []
    return {"kernels": len(ks), "kernels_with_ptx": sum(bool(k.get("ptx")) for k in ks),
            "launches_with_ptx": sum(k["launches"] for k in ks if k.get("ptx")),
            "trace_ended_early": list_["ended_early"]}


def pack(bench, kept):
    """Traces, and the PTX that was made meanwhile, into archives that each stay under MOST_BACK."""
    archives, size = [[]], 0
    for n, t in sorted(kept, key=lambda k: k[1].stat().st_size):
        s = t.stat().st_size + 2048
        if s > MOST_BACK:
            bench.leave_out(f"{n}: its trace has {s} bytes, too many for an archive")
            continue
        if size + s > MOST_BACK:
            archives.append([])
            size = 0
        if len(archives) > 3:
            bench.leave_out(f"{n}: its trace is in no archive, three are full")
            continue
        archives[-1].append((n, t))
        size += s
    for i, list_ in enumerate(archives[:3]):
        if not list_:
            continue
        with tarfile.open(bench.out / f"traces-{i + 1}.tar", "w") as tar:  # traces are compressed already
            for n, t in list_:
                tar.add(t, f"{n}.trace")
    left, count = MOST_BACK * 6, 0  # before compression; xz makes a tenth of PTX
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for root, kinds in (("triton", ("*.ptx", "*.json")), ("xla", ("*.ptx",))):
            for kind in kinds:
                for f in sorted((bench.work / root).rglob(kind)):
                    if f.name.startswith("__grp__") or f.stat().st_size > left:
                        continue
                    left -= f.stat().st_size
                    count += kind == "*.ptx"
                    tar.add(f, str(f.relative_to(bench.work)))
    if count:
        data = lzma.compress(raw.getvalue(), preset=3)
        if len(data) <= MOST_BACK:
            (bench.out / "ptx.tar.xz").write_bytes(data)
        else:
            bench.leave_out(f"the PTX: {len(data)} bytes, too many for an archive")
    bench.result["ptx_files"] = count
    bench.save()


def evaluate(bench, kept):
    if not bench.args.verdicts:
        return bench.leave_out("verdicts: no --verdicts; run.sh evaluates the traces anywhere")
    argv = [bench.args.verdicts, "-json", "-workers", str(os.cpu_count() or 1)]
    for _, t in kept:
        argv += ["-trace", str(t)]
    try:
        r = subprocess.run(argv, capture_output=True, text=True, timeout=max(10, bench.left() - 5))
    except subprocess.TimeoutExpired:
        return bench.leave_out("verdicts: not done in time; the traces can be evaluated anywhere")
    if not r.stdout.strip():
        return bench.leave_out(f"verdicts: exit {r.returncode}: {r.stderr[-800:]}")
    (bench.out / "traces.json").write_text(r.stdout)
    t = json.loads(r.stdout)["total"]
    bench.result["idempotence"] = {k: t[k] for k in ("kernels", "launches", "verdicts")}
    bench.say("verdicts", t["verdicts"])


# Parts cow and demand.

def room(bench):
    """Waits until gpu.sh has made the memory for images, if it does (see there)."""
    growing = os.environ.get("GROWING")
    while growing and os.path.exists(growing) and bench.left() > 60:
        time.sleep(0.1)


def chunks_gone(path):
    """Removes an image with the pool of chunks beside it."""
    shutil.rmtree(path, ignore_errors=True)


def around(p, action, settle):
    """Runs action, a checkpoint, while p steps. Says what the steps were before, while it drained, and after."""
    before = p.rows()
    base = gaps(before[-min(len(before), 60):])
    n = len(before)
    start = time.monotonic_ns()
    res = action()
    end = time.monotonic_ns()
    called = len(p.rows())
    rows = p.reach(called + settle, 120)
    steps = list(zip((r[1] for r in rows[n - 1:]), (r[1] for r in rows[n:])))  # beginning and end of each since
    # Both clocks are CLOCK_MONOTONIC. The stall began after all that stands before it in the list of what was done, and
    # was over before drain and commit: the longest step in between is the one that stood still.
    before_stall = after_stall = 0.0
    begun = False
    for t in res["steps"]:
        begun = begun or t["stall"]
        if not begun:
            before_stall += t["ms"]
        elif t["name"] in ("drain", "commit"):
            after_stall += t["ms"]
    near = [i for i, (b, e) in enumerate(steps) if e > start + before_stall * 1e6 and
            b < end - after_stall * 1e6] or [0]
    ms = [(e - b) / 1e6 for b, e in steps]
    stalled = max(near, key=ms.__getitem__)
    drained = steps[stalled][1] + res["drain_ms"] * 1e6
    drain = [ms[i] for i in range(stalled + 1, len(steps)) if steps[i][0] < drained]
    after = [ms[i] for i in range(stalled + 1, len(steps)) if steps[i][0] > end]
    usual = median(base) or 0
    return res, {"step_ms": usual, "step_spread_ms": [min(base), max(base)] if base else None,
                 "stalled_step_ms": ms[stalled], "stall_seen_ms": ms[stalled] - usual,
                 "worst_step_ms": max(ms), "steps_in_drain": len(drain), "step_in_drain_ms": median(drain),
                 "worst_in_drain_ms": max(drain) if drain else None,
                 "steps_in_drain_ms": drain[:100], "lost_in_drain_ms": sum(drain) - usual * len(drain),
                 "step_after_ms": median(after), "call_ms": (end - start) / 1e6}


SHOTS = {"cow-gpu": ["--gpu-only", "--mode", "cow"], "recopy-gpu": ["--gpu-only", "--mode", "recopy"],
         "stop-gpu": ["--gpu-only", "--mode", "stop"],
         "stage-gpu": ["--gpu-only", "--mode", "stage"], "auto-gpu": ["--gpu-only", "--mode", "auto"],
         "cow": ["--leave-running", "--mode", "cow"], "recopy": ["--leave-running", "--mode", "recopy"],
         "stop": ["--leave-running", "--mode", "stop"]}


def cow_programs(bench):
    if bench.args.program:
        return given(bench)
    large = ["--log", "{log}", "--layers", str(bench.args.layers)]
    return {"train-triton": own("train", "--gemm", "triton", *large), "train-library": own("train", "--gemm", "aten",
            *large), "train-eager": own("train", "--eager", *large)}


def cow(bench):
    a = bench.args
    bench.result["programs"] = []
    for name, command in chosen(bench, cow_programs(bench)).items():
        done = [r for r in bench.result["programs"] if r["checkpoints"]]
        if done and "--eager" in command:
            continue  # it is for a PyTorch that cannot compile the others
        r = {"program": name, "checkpoints": [], "restores": []}
        bench.result["programs"].append(r)
        with bench.attempt(name):
            if not a.program:
                bench.enough(110, name)
                if "--eager" not in command:
                    precompile(bench, name, command)
            checkpoints(bench, name, command, r, restore=not any(d["restores"] for d in done))
        chunks_gone(bench.images / f"images-{name}")
        bench.stop_daemon()
        bench.save()
    # The weights of a smaller instance, bit for bit, at the end of a run that was checkpointed, killed and restored.
    with bench.attempt("verify"):
        bench.enough(5 if a.program else 60, "verify")
        if a.program:
            name, command = next(iter(given(bench).items()))
        else:
            name, command = "train", own("train", "--layers", "4", "--width", "1024", "--steps", "{steps}", "--log",
                                         "{log}", "--out", "{out}")
        verify(bench, name, command)


def precompile(bench, name, command):
    """Compiles with all processors, on one layer: the kernels are the same. What holds has no pool of compilers beside
    it."""
    small = [*command, "--layers", "1", "--steps", "9"]
    p = Program(bench, f"warm-{name}", small, "plain", env={"TORCHINDUCTOR_COMPILE_THREADS": str(os.cpu_count() or 4)})
    try:
        p.proc.wait(min(240, max(1, bench.left() - 60)))
    except subprocess.TimeoutExpired:
        raise Failed(f"not compiled in time: {p.tail()}") from None
    finally:
        p.kill()
    if p.proc.returncode != 0:
        raise Failed(f"ended with {p.proc.returncode}: {p.tail()}")
    bench.say(f"{name}: compiled")


def checkpoints(bench, name, command, r, restore):
    a = bench.args
    p = Program(bench, name, command, "held", env={"TORCHINDUCTOR_COMPILE_THREADS": "1"})
    p.reach(a.warm, 180)
    ballast = None
    if a.gpu == "native" and not a.program:
        ballast = Program(bench, "ballast", own("ballast", "--eager", "--log", "{log}"), "plain")
        ballast.reach(2, 60)
    else:
        r["ballast"] = "none: a program was given, whose memory is what it is"
    p.reach(len(p.rows()) + a.settle, 60)
    info = p.itself() or {}
    r.update(resident_bytes=info.get("resident_bytes"), allocations=info.get("allocations"),
             caveats=info.get("caveats"), gpu_memory=bench.memory())
    bench.say(f"{name}: resident {(info.get('resident_bytes') or 0) / 2**30:.2f} GiB, GPU memory {r['gpu_memory']}")
    shots = a.shots.split(",")
    room(bench)
    images = bench.images / f"images-{name}"
    chunks_gone(images)
    for shot in shots:
        with bench.attempt(f"{name} {shot}"):
            bench.enough(3 if a.program else 25, shot)
            images.mkdir(exist_ok=True)
            res, seen = around(p, lambda: bench.holdfast("checkpoint", name, "-o", str(images / shot), *SHOTS[shot]),
                               a.settle)
            r["checkpoints"].append({"shot": shot, **res, "seen": seen, "gpu_memory": bench.memory()})
            bench.save()
            bench.say(f"{name} {shot}: mode {res['mode']}, stall {res['stall_ms']:.1f} ms (data "
                      f"{res['data_stall_ms']:.1f}), seen {seen['stall_seen_ms']:.1f}, drain {res['drain_ms']:.0f} ms,"
                      f" step {seen['step_ms']:.1f} → {seen['step_in_drain_ms'] or 0:.1f} ({seen['steps_in_drain']}) → "
                      f"{seen['step_after_ms'] or 0:.1f} ms, waits {res['waits']} ({res['waited_ms']:.0f} ms),"
                      f" aside {res['chunks_aside']}, mispredictions {res['mispredictions']} "
                      f"{res.get('warnings') or ''}")
        if shot != shots[-1]:
            chunks_gone(images)  # room for the next: all of it changes from step to step
    full = images / shots[-1]
    if not restore or not any(full.glob("*")):
        p.kill()
        if ballast:
            ballast.kill()
        return
    # What the program computes after its checkpoint is what the restored one must compute.
    had = len(p.rows())
    with contextlib.suppress(Failed):
        p.reach(had + SERIES, 60)
    want = {n: v for n, _, v in p.rows() if v}
    p.kill()
    if ballast:
        ballast.kill()
    for i in range(a.restores):
        for kind in ("whole", "on demand") if i % 2 == 0 else ("on demand", "whole"):
            with bench.attempt(f"{name}: restore {kind}"):
                bench.enough(3 if a.program else 25, f"restore {kind}")
                one = restored(bench, p, full, kind, want)
                r["restores"].append(one)
                bench.save()
    chunks_gone(images)


def restored(bench, p, image, kind, want, drop=False):
    """A cold restore; p is the program that the image is of, and has ended."""
    bench.stop_daemon()
    if drop:
        uncached(image)
    said = len(bench.daemon_log())
    n = len(p.rows())
    start = time.monotonic()
    res = bench.holdfast("restore", str(image), "--detach", *(["--on-demand"] if kind == "on demand" else []))
    call = (time.monotonic() - start) * 1e3
    p.pid, p.how = res["pid"], "restored"
    bench.programs.append(p)
    try:
        # The clock of the restored program goes on from the dump: the time is taken here, when its lines appear. The
        # work of the step that was under way had ended before the dump: its line comes at once. The step after it is
        # the first that runs after the restore.
        seen = []
        while len(seen) < 2:
            size = p.log.stat().st_size
            seen += [(time.monotonic() - start) * 1e3] * (min(2, len(p.rows()) - n) - len(seen))
            while len(seen) < 2 and p.log.stat().st_size == size:
                if time.monotonic() > start + 120 or dead(p.pid):
                    raise Failed(f"no step after the restore: {bench.daemon_log()[said:][-1500:]}")
                time.sleep(0.0005)
        left = next((x.get("missing_bytes", 0) for x in bench.holdfast("ps") if x["pid"] == p.pid),
                    None) if kind == "on demand" else None
        one = {"kind": kind, "missing_at_first_step": left, "from": "disk" if drop else "memory",
               "source": res["source"], "bytes": res["bytes"], "bytes_filled": res["bytes_filled"],
               "missing": res["missing"],
               "total_ms": res["total_ms"], "call_ms": call, "first_line_ms": seen[0], "first_step_ms": seen[1],
               "steps": res["steps"]}
        if kind == "on demand":
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                new = bench.daemon_log()[said:]
                if "restore on demand failed" in new:
                    raise Failed(new[-1500:])
                if "restored on demand" in new:
                    line = next(l for l in new.splitlines() if "restored on demand" in l)
                    one["filled_ms"] = (time.monotonic() - start) * 1e3
                    one["fill"] = dict(re.findall(r"(\w+)=(\S+)", line[line.index("restored on demand"):]))
                    break
                time.sleep(0.005)
        with contextlib.suppress(Failed):
            p.reach(n + (SERIES if want else 5), 60, alive=False)
        after = p.rows()[n:]
        one["steps_after"] = len(after)
        if want:
            both = [(want[s], v) for s, _, v in after if s in want]
            one["compared"], one["identical"] = len(both), sum(x == y for x, y in both)
        bench.say(f"{p.name} restore {kind} ({one['from']}): program runs after {call:.0f} ms, first line "
                  f"{seen[0]:.0f} ms, first step {seen[1]:.0f} ms"
                  + (f", {left / 1e9:.1f} GB missing then, {one.get('fill', '')}" if left is not None else "")
                  + (f", {one['identical']} of {one['compared']} steps identical" if want else ""))
        return one
    finally:
        p.kill()


def uncached(image):
    """Puts the files of an image out of the page cache."""
    for f in image.rglob("*"):
        if f.is_file():
            fd = os.open(f, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def verify(bench, name, command):
    a = bench.args
    outs = {k: bench.work / f"verify-{k}" for k in ("reference", "held")}
    for f in outs.values():
        f.unlink(missing_ok=True)
    steps = str(a.verify_steps)
    if not a.program:
        precompiled = Program(bench, "warm-verify", command, "plain", {"steps": "9"},
                              {"TORCHINDUCTOR_COMPILE_THREADS": str(os.cpu_count() or 4)})
        with contextlib.suppress(subprocess.TimeoutExpired):
            precompiled.proc.wait(max(1, bench.left() - 30))
        precompiled.kill()
    env = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    ref = Program(bench, "reference", command, "held" if a.gpu == "soft" else "plain",
                  {"steps": steps, "out": str(outs["reference"])}, env)
    p = Program(bench, "verified", command, "held", {"steps": steps, "out": str(outs["held"])}, env)
    p.reach(a.warm, 120)
    p.itself()
    image = bench.images / "images-verify" / "1"
    chunks_gone(image.parent)
    image.parent.mkdir()
    res = bench.holdfast("checkpoint", "verified", "-o", str(image), "--leave-running", "--mode", "cow")
    p.kill()
    outs["held"].unlink(missing_ok=True)  # should it have come to its end by itself
    bench.stop_daemon()
    with contextlib.suppress(subprocess.TimeoutExpired):
        ref.proc.wait(min(120, max(1, bench.left())))
    back = bench.holdfast("restore", str(image), "--detach")
    p.pid, p.how = back["pid"], "restored"
    bench.programs.append(p)
    deadline = time.monotonic() + min(120, max(1, bench.left()))
    while not dead(p.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    p.kill()
    ref.kill()
    if not all(f.exists() for f in outs.values()):
        raise Failed(f"no result of {' and '.join(k for k, f in outs.items() if not f.exists())}")
    reference, held = (outs[k].read_bytes() for k in ("reference", "held"))
    bench.result["verify"] = {"program": name, "steps": a.verify_steps, "mode": res["mode"],
                              "mispredictions": res["mispredictions"], "bytes": res["bytes"], "source": back["source"],
                              "identical": reference == held, "result_bytes": len(reference)}
    bench.say(f"verify: the results of the restored run are {'identical' if reference == held else 'DIFFERENT'}")
    chunks_gone(image.parent)
    bench.save()


def demand(bench):
    """Programs that generate: cold restores that wait for all, and restores on demand. (Those of training stand in the
    part cow, of its images.)"""
    a = bench.args
    bench.result["programs"] = []
    base = own("decode", "--layers", "32", "--log", "{log}", "--pool-gib", str(a.pool_gib))
    programs = given(bench) or {"decode": base, **({"decode-library": [*base, "--eager"]} if a.only else {})}
    programs = chosen(bench, programs)
    for name, command in programs.items():
        r = {"program": name, "restores": []}
        bench.result["programs"].append(r)
        with bench.attempt(name):
            bench.enough(5 if a.program else 60, name)
            if not a.program and "--eager" not in command:
                precompile(bench, name, [*command, "--pool-gib", "0"])
            p = Program(bench, name, command, "held", env={"TORCHINDUCTOR_COMPILE_THREADS": "1"})
            p.reach(a.warm, 120)
            info = p.itself() or {}
            room(bench)
            r.update(resident_bytes=info.get("resident_bytes"), step_ms=median(gaps(p.rows()[-50:])))
            images = bench.images / f"images-{name}"
            chunks_gone(images)
            images.mkdir()
            shot = ["checkpoint", name, "-o", str(images / "1"), "--leave-running", "--mode"]
            try:
                res = bench.holdfast(*shot, "cow")  # so that the image says in which order its memory is needed
            except Failed as e:
                bench.leave_out(f"{name}: an image with an order: {e}")
                res = bench.holdfast(*shot, "auto")
            r["checkpoint"] = {k: res[k] for k in ("mode", "stall_ms", "data_stall_ms", "drain_ms", "total_ms", "bytes",
                                                   "chunks", "chunks_zero", "host_bytes", "waits", "mispredictions")}
            runs = json.loads((images / "1" / "manifest.json").read_text())["manifest"].get("order", [])
            r["order"] = {"runs": len(runs), "bytes": sum(x["count"] for x in runs) * CHUNK}
            with contextlib.suppress(Failed):
                p.reach(len(p.rows()) + SERIES, 60)
            want = {n: v for n, _, v in p.rows() if v}
            p.kill()
            bench.say(f"{name}: image of {res['bytes'] / 2**30:.1f} GiB, mode {res['mode']}, "
                      f"{r['order']['bytes'] / 2**30:.1f} GiB of it in order ({len(runs)} runs)")
            for i in range(a.restores):
                for kind in ("whole", "on demand") if i % 2 == 0 else ("on demand", "whole"):
                    with bench.attempt(f"{name}: restore {kind}"):
                        bench.enough(2 if a.program else 20, f"restore {kind}")
                        r["restores"].append(restored(bench, p, images / "1", kind, want))
                        bench.save()
            if a.disk and name == next(iter(programs)):
                with bench.attempt(f"{name} from a disk"):
                    from_disk(bench, p, images / "1", want, r)
        chunks_gone(bench.images / f"images-{name}")
        bench.stop_daemon()
        bench.save()


def from_disk(bench, p, image, want, r):
    """The same from a file system on a disk, whose page cache is emptied before each restore."""
    a = bench.args
    disk = pathlib.Path(a.disk)
    size = sum(f.stat().st_size for f in image.rglob("*") if f.is_file())
    if shutil.disk_usage(disk).free < size * 1.05:
        raise Left(f"{disk} has no room for an image of {size} bytes")
    bench.enough(1 if a.program else 90, "a copy to the disk")
    copy = disk / f"holdfast-image-{os.getpid()}"
    try:
        start = time.monotonic()
        # With a limit: a slow disk must not eat the time of the rest.
        cp = subprocess.Popen(["cp", "-r", str(image), str(copy)])
        try:
            cp.wait(max(5, min(120, bench.left() - 40)))
            subprocess.run(["sync", "-f", str(disk)], timeout=max(5, bench.left() - 30))
        except subprocess.TimeoutExpired:
            raise Left("the copy to the disk was not done in time") from None
        finally:
            if cp.poll() is None:
                cp.kill()
            cp.wait()
        r["disk"] = {"bytes": size, "write_seconds": time.monotonic() - start}
        longest = 0 if a.program else 20
        for kind in ("whole", "on demand"):
            bench.enough(1.3 * longest, f"restore {kind} from the disk")
            start = time.monotonic()
            r["restores"].append(restored(bench, p, copy, kind, want, drop=True))
            longest = max(longest, time.monotonic() - start)
            bench.save()
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--holdfast", required=True)
    p.add_argument("--verdicts", help="traces: the command of the folder verdicts; without it the traces are not "
                   "evaluated")
    p.add_argument("--out", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--images", help="directory for images (that of --work)")
    p.add_argument("--part", required=True, choices=["launches", "traces", "cow", "demand"])
    p.add_argument("--gpu", default="native", choices=["native", "soft"])
    p.add_argument("--stub", help="directory of the software GPU's libcuda.so.1, for programs that run without "
                   "holdfast")
    p.add_argument("--program", action="append", default=[], help="NAME=COMMAND instead of the programs of the part")
    p.add_argument("--budget", type=float, default=540, help="seconds; nothing is begun that may not end by then")
    p.add_argument("--only", default="", metavar="NAMES",
                   help="of the programs of the part only these, with commas between")
    p.add_argument("--processes", type=int, default=10, help="launches: how many")
    p.add_argument("--pairs", type=int, default=3, help="traces: of processes of each program")
    p.add_argument("--blocks", type=int, default=8,
                   help="traces: measured of a pair of processes at most, plain and traced in turn")
    p.add_argument("--steps", type=int, default=20, help="traces: steps of a block at most")
    p.add_argument("--skip", type=int, default=3, help="traces: steps of a block before those that count")
    p.add_argument("--seconds", type=float, default=12, help="traces: for the blocks of one program")
    p.add_argument("--settle", type=int, default=8, help="steps that stand before and after something")
    p.add_argument("--warm", type=int, default=30, help="steps before anything is measured")
    p.add_argument("--at-once", type=int, default=3, help="traces: programs that are started together")
    p.add_argument("--layers", type=int, default=18, help="cow: of the training program; 18 make about 70 GB")
    p.add_argument("--shots", default="cow-gpu,recopy-gpu,stop-gpu,cow",
                   help="cow: checkpoints in order; the last is restored: " + ", ".join(SHOTS))
    p.add_argument("--restores", type=int, default=2, help="of each kind, of an image in memory")
    p.add_argument("--verify-steps", type=int, default=600)
    p.add_argument("--pool-gib", type=float, default=24,
                   help="demand: caches of other sequences beside the 16 GB of weights")
    p.add_argument("--disk", help="demand: a directory on a disk, for restores from there")
    args = p.parse_args()
    os.environ.setdefault("HOLDFAST_DIR", str(pathlib.Path(args.work) / "run"))
    args.holdfast = os.path.abspath(args.holdfast)
    if args.verdicts:
        args.verdicts = os.path.abspath(args.verdicts)
    args.work, args.out = os.path.abspath(args.work), os.path.abspath(args.out)

    def ended(number, _):
        signal.signal(number, signal.SIG_IGN)  # once is enough: what follows ends everything
        raise SystemExit(128 + number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended)
    # Restored programs whose daemon is stopped become ours: their process IDs are free once we have taken their status.
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    bench = Bench(args)
    why = bench.unable()
    if why:
        bench.result["skipped"] = why
        bench.save()
        print(f"skipped: {args.part}: {why}", file=sys.stderr)
        return
    bench.result["machine"] = bench.machine()
    try:
        {"launches": launches, "traces": traces, "cow": cow, "demand": demand}[args.part](bench)
    except SystemExit as e:
        bench.result["left_out"].append(f"ended by signal {int(e.code) - 128}")
        raise
    finally:
        bench.end()
        bench.save()


if __name__ == "__main__":
    main()
