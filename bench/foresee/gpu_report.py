#!/usr/bin/env python3
"""The sections of docs/results/foresee.md that need a GPU, of what gpu.sh left: gpu_report.py OUTDIR. report.py takes
them in.

Beside gpu-PART.json there may be those of earlier runs, gpu-PART-NAME.json.
"""

import json
import pathlib
import statistics
import sys


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for r in rows:
        print("| " + " | ".join(str(x) for x in r) + " |")
    print()


def ms(x):
    return "–" if x is None else f"{x:,.0f} ms" if x >= 100 else f"{x:.1f} ms" if x >= 10 else f"{x:.2f} ms"


def gb(x):
    return "–" if not x else f"{x / 1e9:.1f} GB"


def met(ok):
    return "met" if ok else "**missed**"


def on(r):
    m = r["machine"]
    words = [m["date"], m["gpu"], f"Linux {m['kernel']}", f"{m['cpus']} cores", m["python"], m["holdfast"]]
    return ", ".join(w for w in words if w)


def left_out(r):
    if r.get("left_out"):
        print("Left out: " + "; ".join(" ".join(x.split())[:200].replace("|", "\\|") for x in r["left_out"]) + ".\n")


def ns(x):
    return f"{x:,.0f} ns"


def launches(r):
    print(f"{on(r)}. A program under `holdfast trace` does nothing but launch an empty kernel of ten parameters, or a "
          f"graph of {r['nodes']} such kernels; in turn it calls the driver past the recorder, and")
    print(f"as programs call it. The difference of neighbouring batches counts, of a process the median over "
          f"{r['rounds']} pairs of batches; below, the median over {len(r['processes'])} processes, with the least and "
          f"the largest.\n")
    print("A program that does nothing else loses that share of its time, others lose less. The limit is about "
          "programs: the next table has them.\n")
    table(["call", "past the recorder", "recorded", "recording adds", "of the call"], [
        [name, ns(x["plain_ns"]), ns(x["traced_ns"]),
         f"{ns(x['added_ns'])} ({ns(x['added_low_ns'])} to {ns(x['added_high_ns'])})",
         f"{x['overhead_percent']:.2f} % (at most {x['overhead_high']:.2f})"]
        for name, x in (("`cuLaunchKernel`", r["launch"]), ("`cuGraphLaunch`", r["graph"]))])
    left_out(r)


def traces(r, cost):
    print(f"{on(r)}. Of each program {r['pairs']} pairs of processes run, one by itself and one under `holdfast "
          f"trace`, on the same processors and with the same layout of addresses; in turn one goes on while the others "
          f"stand still,")
    print(f"up to {r['blocks']} times up to {r['steps']} steps each. A block's step time is the median of its steps, a "
          f"pair of neighbouring blocks gives a ratio, and the overhead is the median over the pairs of processes of "
          f"the")
    print("median of their ratios, with the bootstrap's interval over both (90 %). Processes of one program differ by "
          "more than that on this machine, whichever is recorded: see the pairs. *Calls cost* is what the table above")
    print("says that recording adds to a launch, in the process where it adds most, times the launches of a step, as "
          "if each step became longer by all of it.\n")
    rows = []
    for p in r["programs"]:
        o, low, high = p["overhead_percent"], p["overhead_low"], p["overhead_high"]
        each, graphs = (p.get(k, 0) / max(p["traced_steps"], 1) for k in ("launches", "graph_launches"))
        share = (each * cost["launch"]["added_high_ns"] +
                 graphs * cost["graph"]["added_high_ns"]) / p["plain_ms"] / 1e4 if cost else None
        rows.append([p["program"], ms(p["plain_ms"]), ms(p["traced_ms"]), f"{o:+.2f} % ({low:+.2f} to {high:+.2f})",
                     ", ".join(f"{x:+.1f}" for x in p["overhead_of_pairs"]),
                     "open" if low <= 5 < high else met(high <= 5),
                     f"{each:,.0f}" + (f" and {graphs:,.0f} of graphs" if graphs >= 0.5 else ""),
                     *(["–", "–"] if share is None else [f"{share:.2f} %", met(share <= 5)]),
                     f"{p.get('launches', 0):,}", p.get("waits", "–"), f"{p.get('launches_with_ptx', 0):,}",
                     f"{p.get('kernels_with_ptx', 0)} of {p.get('kernels', 0)}",
                     f"{p.get('trace_bytes', 0) / 2**20:.1f} MiB"])
    table(["program", "step", "traced", "overhead", "of each pair, %", "≤ 5 %", "launches a step", "calls cost",
           "≤ 5 %", "launches", "waits", "with PTX", "kernels with PTX", "trace"], rows)
    left_out(r)


def cow(r):
    print(f"{on(r)}. A checkpoint is taken while the program trains; the image is in memory. *Stall* is from gate "
          f"closed to gate open, *seen* how much longer the step that stood still took,")
    print("by the program's own log. `-gpu` is of GPU memory alone; otherwise the whole process is dumped.\n")
    for p in r["programs"]:
        m = p.get("gpu_memory")
        if p.get("resident_bytes"):
            spare = m["free"] / m["total"] if m else None
            print(f"`{p['program']}` holds {gb(p['resident_bytes'])} (≥ 64 GB: {met(p['resident_bytes'] >= 64e9)}) in "
                  f"{p.get('allocations')} allocations; " +
                  (f"{100 * spare:.1f} % of the GPU's {gb(m['total'])} were free (< 10 %: {met(spare < 0.1)}); a "
                   f"second process holds the rest." if m else p.get("ballast", "") + ".") + "\n")
    rows, where = [], []
    for p in r["programs"]:
        for c in p["checkpoints"]:
            s = c["seen"]
            mode = c["mode"] if c["mode"] == c["shot"].removesuffix("-gpu") else f"{c['mode']} ({c.get('mode_reason')})"
            rows.append([p["program"], c["shot"], mode, ms(c["stall_ms"]), ms(c["data_stall_ms"]),
                         ms(s["stall_seen_ms"]), ms(c["drain_ms"]),
                         f"{c['bytes_new'] / 1e9 / max(c['drain_ms'], 0.001) * 1e3:.1f} GB/s" if c["drain_ms"] > 1
                         else "–",
                         ms(s["step_ms"]), f"{ms(s['step_in_drain_ms'])} ({s['steps_in_drain']})",
                         ms(s["worst_in_drain_ms"]), ms(s["step_after_ms"]),
                         f"{c['waits']} ({ms(c['waited_ms'])})", c["chunks_aside"], c["mispredictions"]])
            where += [f"- {p['program']}, {c['shot']}: {' '.join(w.split())}" for w in c.get("warnings") or []]
    table(["program", "asked for", "mode", "stall", "of it data", "seen", "drain", "rate", "step before",
           "in the drain (steps)", "longest in it", "after", "waits (in all)", "chunks aside", "mispredictions"], rows)
    if where:
        print("\n".join(where) + "\n")
    restores(r, "step")
    v = r.get("verify")
    if v:
        print(f"A run of `{v['program']}` over {v['steps']} steps ({gb(v['bytes'])} of GPU memory), checkpointed with "
              f"mode {v['mode']} ({v['mispredictions']} mispredictions), killed, restored {v['source']} and run to its "
              f"end: all weights and moments are "
              + ("**bit for bit** those of an undisturbed run.\n"
                 if v["identical"] else "**not those of an undisturbed run**.\n"))
    left_out(r)


def restores(r, what):
    rows = []
    for p in r["programs"]:
        for kind, place in dict.fromkeys((x["kind"], x["from"]) for x in p["restores"]):
            of = [x for x in p["restores"] if (x["kind"], x["from"]) == (kind, place)]
            firsts = [x["first_step_ms"] for x in of]
            mid = lambda key: statistics.median([x[key] for x in of])
            fills = [x["fill"] for x in of if x.get("fill")]
            left = lambda of: f"{statistics.median([x['missing_at_first_step'] for x in of]) / 1e9:.1f} GB" if all(
                x.get("missing_at_first_step") is not None for x in of) else "–"
            compared = sum(x.get("compared", 0) for x in of)
            rows.append([p["program"], place, kind, len(of), gb(of[0]["bytes"]), ms(mid("call_ms")),
                         f"{ms(statistics.median(firsts))} ({ms(min(firsts))} to {ms(max(firsts))})",
                         gb(mid("missing")) if kind == "on demand" else "–", left(of),
                         ", ".join(f"{f.get('waits')} ({f.get('waited')})" for f in fills) or "–",
                         ms(statistics.median([x["filled_ms"] for x in of if "filled_ms" in x]))
                         if any("filled_ms" in x for x in of) else "–",
                         f"{sum(x.get('identical', 0) for x in of)} of {compared}" if compared else "–"])
    if rows:
        print(f"Cold restores: the time until the program runs again, and until the first {what} that began after the "
              f"restore is done.\n")
        table(["program", "image in", "restore", "runs", "GPU memory", "program runs", f"first {what}",
               "missing when it runs", f"at the first {what}", "waits", "all there", f"{what}s identical"], rows)


def demand(r):
    print(f"{on(r)}. A llama of 8 billion random weights generates one token at a time. `decode` is compiled: all its "
          f"launches have PTX" +
          ("; `decode-library` multiplies with a library"
           if any(p["program"] == "decode-library" for p in r["programs"]) else "") +
           ". A launch that is not proven waits for everything.")
    print("Nothing is kept from before: the daemon is a new one.\n")
    for p in r["programs"]:
        if p.get("resident_bytes"):
            words = [f"`{p['program']}` holds {gb(p['resident_bytes'])}; a token takes {ms(p.get('step_ms'))}."]
            if p.get("order"):
                words.append(f"The image was taken with mode {p['checkpoint']['mode']} in "
                             f"{ms(p['checkpoint']['stall_ms'])} of stall and {ms(p['checkpoint']['drain_ms'])} of "
                             f"drain; it says the order of {gb(p['order']['bytes'])} in {p['order']['runs']} runs of "
                             f"chunks.")
            if p.get("disk"):
                words.append(f"It was copied to the disk in {p['disk']['write_seconds']:.0f} s.")
            print(" ".join(words) + "\n")
    restores(r, "token")
    left_out(r)


def sections(out):
    results = {f: json.loads(f.read_text()) for f in sorted(pathlib.Path(out).glob("gpu-*.json"), key=lambda f: f.stem)}
    cost = next((r for r in results.values() if r["part"] == "launches" and "graph" in r), None)
    for part, head, show in (("launches", "What recording adds to a launch", launches),
                             ("traces", "Recording on a GPU", lambda r: traces(r, cost)),
                             ("cow", "Copy on write on a GPU", cow), ("demand", "Restore on demand on a GPU", demand)):
        for f, r in results.items():
            if r["part"] != part:
                continue
            if r.get("skipped"):
                print(f"(Part {part} was skipped: {r['skipped']}.)\n")
            elif r.get("machine"):
                print(f"## {head}{'' if f.stem == 'gpu-' + part else ', another run'}\n")
                show(r)


if __name__ == "__main__":
    sections(sys.argv[1])
