"""Compares the lowering with PyTorch on the CPU: every function of programs.arrays is compiled, its kernels are run by
"holdfast emulate" one after the other on random numbers, and the results are compared. python3 check.py HOLDFAST"""
import os
import subprocess
import sys
import tempfile
import warnings

import torch

warnings.filterwarnings("ignore")
import capture
import programs


class Run(capture.Recorder):
    """A recorder that keeps the launches in order."""

    def __init__(self):
        super().__init__("sm_90", None)
        self.sequence = []

    def add(self, launch):
        self.sequence.append(launch)


def raw(t):
    return t.contiguous().view(torch.uint8).numpy().tobytes() if t.dim() else t.view(1).view(torch.uint8).numpy().tobytes()


def emulate(holdfast, run, launch, memory, directory):
    """One launch; memory maps buffers to bytes."""
    used = [a["buf"] for a in launch["args"] if "buf" in a]
    if len(set(used)) != len(used) or any(a.get("offset") for a in launch["args"]):
        return "the arguments share a buffer"
    ptx = os.path.join(directory, "k.ptx")
    with open(ptx, "w") as f:
        f.write(run.modules[launch["module"]])
    cmd = [holdfast, "emulate", ptx, "--kernel", launch["kernel"], "--grid", ",".join(map(str, launch["grid"])), "--block", str(launch["block"][0]), "--shared", str(launch.get("shared", 0))]
    for i, a in enumerate(launch["args"]):
        if "buf" in a:
            path = os.path.join(directory, f"{i}.raw")
            size = run.buffers[a["buf"]]["bytes"]
            with open(path, "wb") as f:
                f.write(memory.get(a["buf"], b"").ljust(size, b"\0")[:size])
            cmd += ["--arg", f"buf:{size}={path}", "--out", f"{i}={path}"]
        else:
            (kind, value), = a.items()
            cmd += ["--arg", f"{kind}:{value}"]
    r = subprocess.run(cmd, capture_output=True, text=True)
    if r.returncode:
        return r.stderr.strip()[:300]
    for i, a in enumerate(launch["args"]):
        if "buf" in a:
            with open(os.path.join(directory, f"{i}.raw"), "rb") as f:
                memory[a["buf"]] = f.read()
    return ""


def random(t):
    if t.dtype.is_floating_point:
        return (torch.rand(t.shape, device="cpu") * 2 - 1).to(t.dtype)
    return torch.randint(0, 40, t.shape, dtype=t.dtype, device="cpu")


def compare(holdfast, f, args, mode):
    real = [random(a) for a in args]
    if any(not t.dtype.is_floating_point for t in real):  # rows once each: copies to one row have no order
        real = [t if t.dtype.is_floating_point else torch.randperm(max(t.shape[-1], 1))[:t.shape[-1]].expand(t.shape).contiguous() for t in real]
    run = capture.recorder = Run()
    c = capture.Compiled(f, False)
    with torch.no_grad(), mode:
        capture.recorder = None
        c(*args)
        capture.recorder = run
        with capture.Libraries():
            places = [run.place(a)[0] for a in args]
            out = c(*args)
            outs = [(run.place(o), o) for o in torch.utils._pytree.tree_leaves(out)]
    if any(not l["module"] for l in run.sequence):
        return "skipped: library call" if not run.failed else str(run.failed)
    memory = {p: raw(r) for p, r in zip(places, real)}
    with tempfile.TemporaryDirectory() as d:
        for l in run.sequence:
            e = emulate(holdfast, run, l, memory, d)
            if e:
                return ("skipped: " if "share" in e else "") + e
    want = torch.utils._pytree.tree_leaves(f(*real))
    got = [(memory[b][off:], o) for (b, off), o in outs] + [(memory.get(p, b""), a) for p, a in zip(places, args)]
    want += real
    worst = 0.0
    for (data, like), w in zip(got, want):
        n = like.untyped_storage().nbytes() - like.storage_offset() * like.element_size()
        if len(data) < n:
            continue
        g = torch.frombuffer(bytearray(data[:n // like.element_size() * like.element_size()]), dtype=like.dtype).as_strided(like.shape, like.stride())
        a, b = g.double(), w.double()
        same = (a == b) | (a.isnan() & b.isnan())
        error = ((a - b).abs() / b.abs().clamp(min=1)).masked_fill(same, 0).nan_to_num(1e9).max().item() if a.numel() else 0
        worst = max(worst, error)
    return worst


def main():
    capture.install()
    torch.manual_seed(1)
    mode = capture.FakeTensorMode(allow_non_fake_inputs=True)
    functions = []
    programs.several = lambda fs: functions.extend(fs)
    with mode:
        programs.arrays(Run(), True)
    bad = 0
    for i, (f, args) in enumerate(functions):
        try:
            result = compare(sys.argv[1], f, args, mode)
        except Exception as e:
            result = f"{type(e).__name__}: {str(e)[:200]}"
        good = isinstance(result, float) and result < 2e-2 or isinstance(result, str) and result.startswith("skipped")
        bad += not good
        print(i, result if good else f"WRONG {result}", flush=True)
    print(len(functions), "functions,", bad, "wrong")


main()
