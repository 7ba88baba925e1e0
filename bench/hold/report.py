"""Makes docs/results/hold.md from what hold.py wrote.

    python3 report.py DIR > docs/results/hold.md      (DIR/*.json)
"""
import json
import pathlib
import sys

GIB = 2**30


def mark(value, limit):
    return "met" if value <= limit else "**missed**"


def step(res, name):
    return next((s["ms"] for s in res["steps"] if s["name"].strip() == name), None)


def ms(x):
    return "–" if x is None else f"{x:,.0f} ms" if x >= 100 else f"{x:.1f} ms"


def main():
    order = ["resnet", "overhead", "gpt2", "gpt2-launch", "cupy", "frozen", "transformer-1", "transformer"]
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.json"),
                   key=lambda p: (order.index(p.stem) if p.stem in order else len(order), p.stem))
    runs = {p.stem: json.loads(p.read_text()) for p in files}
    first = next(iter(runs.values()))["machine"]
    out = []
    w = out.append
    w("# Hold: results\n")
    w(f"Measured on {first['date']}: {first['gpu']}, Linux {first['kernel']} in a virtual machine, {first['cpus']} "
      f"cores, {first['python']}, {first['holdfast']}.")
    w("Images on a tmpfs with huge pages (the figures are not about a disk), whose pages were touched once before. "
      "Single runs. Made by `bench/hold/run.sh`;")
    w("this page by `bench/hold/report.py`. *Stall seen* is how much longer than the median the program's longest step "
      "took, from the program's own log;")
    w("*gate* is the time from gate closed to gate open. `transformer` is torch.compile with its pool of compiling "
      "processes, which belong to the")
    w("tree that is dumped; `transformer-1` is the same without the pool.\n")
    w("## Figures and limits\n")
    w("| figure | program | measured | limit | |")
    w("|---|---|---|---|---|")
    for name, r in runs.items():
        p = f"{name} ({r['resident_bytes'] / GIB:.1f} GiB)" if "resident_bytes" in r else name
        if "overhead" in r:
            o = r["overhead"]
            limit = 0.5 if r["program"] == "resnet" or r["program"] == "transformer" else 2
            w(f"| steady overhead | {p} | {o['percent']:+.2f} % ({o['plain_ms']:.2f} → {o['held_ms']:.2f} ms) | "
              f"{limit} % | {mark(o['percent'], limit)} |")
        for c in r.get("checkpoints", []):
            seen = c["seen"]
            if c["kind"] == "gpu-only":
                w(f"| GPU-data stall, {c['mode']}, {c['shot']} | {p} | {ms(seen['stall_seen_ms'])} seen, "
                  f"{ms(c['stall_ms'])} gate | 50 ms | {mark(seen['stall_seen_ms'], 50)} |")
            else:
                w(f"| whole process, leave running, {c['shot']} | {p} | {ms(seen['stall_seen_ms'])} seen, "
                  f"{ms(c['stall_ms'])} gate | 1.2 s | {mark(seen['stall_seen_ms'], 1200)} |")
            if c["bytes_new"] > 16 * GIB:
                rate = c["bytes_new"] / c["drain_ms"] / 1e6
                w(f"| drain rate | {p} | {rate:.1f} GB/s ({c['bytes_new'] / GIB:.1f} GiB) | ≥ 50 GB/s | "
                  f"{'met' if rate >= 50 else '**missed**'} |")
                if seen.get("step_in_drain_ms"):
                    slow = 100 * (seen["step_in_drain_ms"] / seen["step_ms"] - 1)
                    w(f"| step while draining | {p} | {slow:+.2f} % ({seen['steps_in_drain']} steps) | 1 % | "
                      f"{mark(slow, 1)} |")
        for kind in ("warm", "cold"):
            if "restore_" + kind in r:
                c = r["restore_" + kind]
                limit = 2500 if kind == "warm" else 2500 + c["bytes"] / 45e6
                w(f"| {kind} restore → next step done | {p} | {ms(c['seen']['first_step_ms'])} | {ms(limit)} | "
                  f"{mark(c['seen']['first_step_ms'], limit)} |")
        if "series" in r:
            s = r["series"]
            w(f"| loss series after restore | {p} | {s['identical']} of {s['compared']} steps bit-identical | all of ≥ "
              f"50 | {'met' if s['identical'] == s['compared'] >= 50 else '**missed**'} |")
    peers = [(n, r) for n, r in runs.items() if "driver" in r and "checkpoints" in r]
    if peers:
        w("\n## Beside the driver's own checkpoint\n")
        w("The same program, not held, through `cuCheckpointProcess{Lock,Checkpoint,Restore,Unlock}` in the same run. "
          "It copies device memory through the host")
        w("and leaves no image on disk; a whole-process dump with it would add CRIU's time and all of device memory to "
          "CRIU's images.\n")
        w("| program | driver: lock | checkpoint | restore | stall seen | holdfast whole process, stall seen | GPU "
          "data alone |")
        w("|---|---|---|---|---|---|---|")
        for n, r in peers:
            d = r["driver"]
            full = min((c["seen"]["stall_seen_ms"] for c in r["checkpoints"] if c["kind"] == "full"), default=None)
            gpu = min((c["seen"]["stall_seen_ms"] for c in r["checkpoints"] if c["kind"] == "gpu-only"), default=None)
            w(f"| {n} | {ms(d.get('lock_ms'))} | {ms(d.get('checkpoint_ms'))} | {ms(d.get('restore_ms'))} | "
              f"{ms(d.get('stall_seen_ms'))} | {ms(full)} | {ms(gpu)} |")
    w("\n## Where the time goes\n")
    for n, r in runs.items():
        for c in r.get("checkpoints", []):
            if c["kind"] != "full":
                continue
            w(f"{n}, {c['shot']}: {c['bytes'] / GIB:.1f} GiB of device memory, {c['bytes_new'] / GIB:.2f} GiB new, "
              f"{c.get('host_bytes', 0) / GIB:.2f} GiB of host memory.\n")
            w("| step | time | in the stall |")
            w("|---|---|---|")
            for s in c["steps"]:
                w(f"| {s['name'].replace('  ', '… ')} | {ms(s['ms'])} | {'yes' if s['stall'] else ''} |")
            w("")
    inc = [(n, c) for n, r in runs.items() for c in r.get("checkpoints", [])[1:] if r["program"] == "frozen"]
    if inc:
        w("## Incremental: fine-tuning with frozen layers\n")
        w("| checkpoint | device memory | new chunks written | new bytes |")
        w("|---|---|---|---|")
        for n, c in inc:
            w(f"| {n} {c['shot']} | {c['bytes'] / GIB:.2f} GiB | {c['chunks_new']} of {c['chunks']} | "
              f"{c['bytes_new'] / 2**20:.0f} MiB |")
        w("")
    notes = pathlib.Path(__file__).with_name("notes.md")
    if notes.exists():
        w(notes.read_text())
    print("\n".join(out).rstrip())


main()
