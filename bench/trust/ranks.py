"""Two ranks with NCCL on two GPUs, held: what holdfast says to a checkpoint and a suspend of one, and whether both go
on.

    python3 ranks.py --holdfast BIN --work DIR --out FILE.json

NCCL's ways are tried in turn: peer memory by VMM handles (its default), shared host memory, legacy IPC, sockets alone;
and one process that copies between two GPUs. Where the driver could save a rank but not restore it
(docs/results/hold.md), holdfast must refuse, and say why, before anything stops.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

WAYS = {
    "peer memory (NCCL's default)": {},
    "shared host memory": {"NCCL_P2P_DISABLE": "1"},
    "legacy IPC": {"NCCL_CUMEM_ENABLE": "0"},
    "sockets alone": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
}


def rank(n, work, port):
    import torch
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(n), WORLD_SIZE="2")
    torch.cuda.set_device(n)
    dist.init_process_group("nccl")
    x = torch.ones(1 << 20, device="cuda")
    steps = open(work / f"steps{n}", "a", buffering=1)
    k = 0
    while not (work / "stop").exists():
        y = x * (k % 100)
        dist.all_reduce(y)
        if y[0].item() != 2 * (k % 100):
            sys.exit(3)
        k += 1
        if k % 20 == 0:
            print(k, file=steps)
            time.sleep(0.01)
    os._exit(0)


def peers(work):
    import torch
    a = torch.arange(1 << 20, device="cuda:0")
    steps = open(work / "steps0", "a", buffering=1)
    k = 0
    while not (work / "stop").exists():
        b = (a + k).to("cuda:1")
        if int(b[7]) != 7 + k:
            sys.exit(3)
        k += 1
        if k % 20 == 0:
            print(k, file=steps)
            time.sleep(0.01)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--holdfast")
    p.add_argument("--work", required=True)
    p.add_argument("--out")
    p.add_argument("--rank", type=int)
    p.add_argument("--port", type=int)
    p.add_argument("--peers", action="store_true")
    a = p.parse_args()
    work = pathlib.Path(a.work)
    if a.peers:
        return peers(work)
    if a.rank is not None:
        return rank(a.rank, work, a.port)

    def holdfast(*argv):
        r = subprocess.run([a.holdfast, *argv], capture_output=True, text=True, timeout=120)
        return r.returncode, (r.stdout + r.stderr).strip()

    results = []
    for i, (way, env) in enumerate([*WAYS.items(), ("one process, two GPUs", {})]):
        d = work / str(i)
        d.mkdir(parents=True)
        count = 1 if way.startswith("one") else 2
        procs = []
        for n in range(count):
            args = ["--peers"] if count == 1 else ["--rank", str(n), "--port", str(29500 + i)]
            with open(d / f"log{n}", "wb") as log:
                procs.append(subprocess.Popen([a.holdfast, "run", "--gpu=native", "--name", f"rank{n}", "--",
                                               sys.executable, __file__, "--work", str(d), *args],
                                              env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=log,
                                              stderr=log))
        lines = lambda n: (d / f"steps{n}").read_text().count("\n") if (d / f"steps{n}").exists() else 0

        def go_on():
            before, end = [lines(n) for n in range(count)], time.monotonic() + 30
            while time.monotonic() < end:
                if all(lines(n) > before[n] + 2 for n in range(count)):
                    return True
                if any(q.poll() is not None for q in procs):
                    return False
                time.sleep(0.02)
            return False

        row = {"way": way, "started": False}
        end = time.monotonic() + 90
        while time.monotonic() < end and not row["started"] and all(q.poll() is None for q in procs):
            row["started"] = all(lines(n) > 2 for n in range(count))
            time.sleep(0.05)
        if row["started"]:
            row["checkpoint"] = holdfast("checkpoint", "rank0", "-o", str(d / "image"), "--leave-running")
            row["after checkpoint"] = go_on()
            row["suspend"] = holdfast("suspend", "rank0")
            if row["suspend"][0] == 0:
                row["resume"] = holdfast("resume", "rank0")
            row["after suspend"] = go_on()
        (d / "stop").touch()
        row["status"] = []
        for n, q in enumerate(procs):
            try:
                row["status"].append(q.wait(timeout=20))
            except subprocess.TimeoutExpired:
                for x in json.loads(holdfast("ps", "--json")[1]):
                    os.kill(x["pid"], 9)
                q.kill()
                row["status"].append("killed")
        if not row["started"] or any(s != 0 for s in row["status"]):
            row["logs"] = [(d / f"log{n}").read_text(errors="replace")[-800:] for n in range(count)]
        results.append(row)
        print(json.dumps(row)[:900], flush=True)
    pathlib.Path(a.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
