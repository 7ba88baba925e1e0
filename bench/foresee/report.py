#!/usr/bin/env python3
"""Makes docs/results/foresee.md of what run.sh measured: report.py OUTDIR > docs/results/foresee.md. What
OUTDIR/note says, if it is there, stands above the figures."""

import json
import pathlib
import platform
import sys

import gpu_report
from gpu_report import met, table

out = pathlib.Path(sys.argv[1])
bench = json.loads((out / "idempotence.json").read_text())
traces = json.loads((out / "traces.json").read_text()) if (out / "traces.json").exists() else None
total, opaque = bench["total"], bench["without_ptx"]
bench_latency = json.loads((out / "latency.json").read_text())
latency = bench_latency["latency"]
recorded = bench_latency["latency_recorded"]
in_order, remembered, others, second = (recorded[k] for k in ("all", "remembered", "others", "second"))
real = traces["latency_recorded"] if traces else None


def n(x):
    return f"{x:,}"


def instances(row):
    return sum(row["verdicts"].values())


def share(a, b):
    return f"{100 * a / b:.2f} %" if b else "–"


def checked(c):
    return sum(c[k] for k in ("idempotent", "not_idempotent", "undecided", "excluded"))


def counts(of):
    return ", ".join(f"{k} {n(v)}" for k, v in sorted(of.items(), key=lambda kv: (-kv[1], kv[0]))) or "none"


def seconds(ns):
    return f"{ns / 1000:.2f} µs"


truth, mutants = total["truth"], total["mutants"]
not_idempotent = truth["not_idempotent"] + mutants["not_idempotent"]
false_positives = truth["false_positives"] + mutants["false_positives"]
cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())

print("# Foresee: results\n")
print(f"Made by `bench/foresee/run.sh` at {(out / 'commit').read_text().strip()} on {cpu}, without a GPU. The corpus, "
      f"its recipes and the definition of each column are in `test/corpus`;")
print("`docs/foresee.md` explains the analysis. An *instance* is a launch that differs from all others in kernel, "
      "configuration, arguments or buffers; a launch that a program made")
print("a hundred times is one instance. *Truth* is what executing an instance on the software GPU shows: by the "
      "definition (no byte is read and then overwritten with another value), and")
print("by stopping it after a random prefix of its schedule and running it again.\n")

if (out / "note").exists():
    print((out / "note").read_text())
print("## Figures and limits\n")
table(["figure", "measured", "limit", ""], [
    ["kernels with PTX, different by code", n(total["kernels"]), "≥ 547", met(total["kernels"] >= 547)],
    ["launches of them", n(total["launches"]), "≥ 18,217", met(total["launches"] >= 18217)],
    ["instances of them, all different", n(instances(total)), "–", ""],
    ["instances checked against the truth, mutants included", n(checked(truth) + checked(mutants)), "–", ""],
    ["instances executed that are truly not idempotent, mutants included", n(not_idempotent), "≥ 3,000",
     met(not_idempotent >= 3000)],
    ["false positives among all executed", n(false_positives), "0", met(false_positives == 0)],
    ["false negatives: idempotent instances not known to be",
     f"{n(truth['false_negatives'])} of {n(truth['idempotent'])}, "
     f"{share(truth['false_negatives'], truth['idempotent'])}", "≤ 5 %",
     met(truth["false_negatives"] <= 0.05 * truth["idempotent"])],
    ["the same if contents of memory are known", f"{n(truth['false_negatives_known'])} of {n(truth['idempotent'])}, "
     f"{share(truth['false_negatives_known'], truth['idempotent'])}", "≤ 5 %",
     met(truth["false_negatives_known"] <= 0.05 * truth["idempotent"])],
    ["false negatives among mutants", f"{n(mutants['false_negatives'])} of {n(mutants['idempotent'])}, "
     f"{share(mutants['false_negatives'], mutants['idempotent'])}", "–", ""],
    ["instances said not to be idempotent, and are", n(truth["refuted"] + mutants["refuted"]), "0",
     met(truth["refuted"] + mutants["refuted"] == 0)],
    ["instances that accessed a byte that was not foreseen", n(truth["missed_ranges"] + mutants["missed_ranges"]), "0",
     met(truth["missed_ranges"] + mutants["missed_ranges"] == 0)],
    *([
        [f"one of the {n(real['all']['launches'])} launches with PTX of the programs below (*Traces*), in their order, "
         f"median", seconds(real["all"]["p50_ns"]), "–", ""],
        ["the same, p99", seconds(real["all"]["p99_ns"]), "≤ 1 µs", met(real["all"]["p99_ns"] <= 1000)],
        ["the same, slowest", f"{seconds(real['all']['max_ns'])} ({real['all']['slowest']})", "≤ 5 µs",
         met(real["all"]["max_ns"] <= 5000)],
        [f"of them, remembered from a launch before "
         f"({share(real['remembered']['launches'], real['all']['launches'])}), p99; slowest",
         f"{seconds(real['remembered']['p99_ns'])}; {seconds(real['remembered']['max_ns'])}", "–", ""],
        [f"of them, the {n(real['others']['launches'])} others, median; p99",
         f"{seconds(real['others']['p50_ns'])}; {seconds(real['others']['p99_ns'])}", "–", ""],
    ] if real else []),
    ["one launch of the corpus in its programs' order, median", seconds(in_order["p50_ns"]), "–", ""],
    ["one launch of the corpus in its programs' order, p99", seconds(in_order["p99_ns"]), "≤ 1 µs",
     met(in_order["p99_ns"] <= 1000)],
    ["one launch of the corpus in its programs' order, slowest",
     f"{seconds(in_order['max_ns'])} ({in_order['slowest']})", "≤ 5 µs", met(in_order["max_ns"] <= 5000)],
    [f"of them, remembered from a launch before ({share(remembered['launches'], in_order['launches'])}), p99; slowest",
     f"{seconds(remembered['p99_ns'])}; {seconds(remembered['max_ns'])}", "–", ""],
    [f"of them, the others ({share(others['launches'], in_order['launches'])}), p99; slowest",
     f"{seconds(others['p99_ns'])}; {seconds(others['max_ns'])}", "–", ""],
    ["one launch when each program makes all of its launches a second time, p99; slowest",
     f"{seconds(second['p99_ns'])}; {seconds(second['max_ns'])}", "–", ""],
    ["one instance with nothing remembered, median", seconds(latency["p50_ns"]), "–", ""],
    ["one instance with nothing remembered, p99", seconds(latency["p99_ns"]), "≤ 1 µs", met(latency["p99_ns"] <= 1000)],
    ["one instance with nothing remembered, slowest", f"{seconds(latency['max_ns'])} ({latency['slowest']})", "≤ 5 µs",
     met(latency["max_ns"] <= 5000)],
    ["one instance with known contents, p99", seconds(bench_latency["latency_known"]["p99_ns"]), "–", ""],
    ["allocations of an evaluation", f"{latency['allocations']:.3f}", "0", met(latency["allocations"] < 0.001)],
])

families = {}
for row in bench["applications"]:
    missed = families.setdefault(row["family"], [0, 0])
    missed[0] += row["truth"]["false_negatives"]
    missed[1] += row["truth"]["idempotent"]
print("False negatives by family: " + ", ".join(f"{name} {n(a)} of {n(b)}" for name, (a, b) in families.items()) +
      ".\n")
print("## What the figures count\n")
print(f"- Of {n(total['kernels'])} kernels, {n(total['conditional'])} are conditionally idempotent: their verdict "
      f"depends on the arguments. {n(total['both'])} have instances of both verdicts in this corpus, mutants not "
      f"counted.")
print(f"- {n(instances(total))} instances: {n(total['verdicts']['idempotent'])} idempotent, "
      f"{n(total['verdicts']['not_idempotent'])} not, {n(total['verdicts']['unknown'])} unknown; "
      f"{share(instances(total) - total['verdicts']['unknown'], instances(total))} have a verdict.")
print(f"- {n(total['executed'])} instances were executed as they are, {n(total['executed_smaller'])} with fewer blocks "
      f"(both verdict and truth are then those of the smaller launch). Not executed, only evaluated: "
      f"{counts(total['not_executed'])}.")
print(f"- {n(checked(mutants))} mutants were executed: outputs moved onto inputs, sizes 0, 1 and a prime. Mutants that "
      f"fault or leave their buffers are not counted.")
print(f"- {n(truth['reexecutions'] + mutants['reexecutions'])} re-executions after random prefixes.")
print(f"- *Undecided*: {n(truth['undecided'])} instances and {n(mutants['undecided'])} mutants read bytes and "
      f"overwrote them with the values they held, which one run cannot tell from luck. They are in no denominator, but "
      f"a verdict \"idempotent\" on one of them would count as a false positive.")
print(f"- *Set apart*: kernels that are never idempotent by definition (they print, look at clocks, wait for other "
      f"blocks, …), in instances that clobbered nothing: {counts(total['excluded'])}. They are in no denominator "
      f"either.")
print("- *Contents known*: each launch is judged twice. The second time the contents of those buffers are given that "
      "the program fills with indices, pointers or numbers of its own, as long as no earlier launch may have written "
      "them: by its footprint, or, where that has no bound, any buffer that it has a pointer to. Of a running program, "
      "contents count in `checkpoint --mode cow` and `restore --on-demand`, from the stall on. A false positive or a "
      "missed byte of either verdict counts.")
print(f"- Why instances have no verdict or are not idempotent: {counts(total['causes'])}.")
print(f"- Latency with nothing remembered: each of {n(latency['instances'])} instances is evaluated in five batches of "
      f"16, and the mean of its best batch counts; the distribution is over instances, however often a program made "
      f"them.")
print(f"- Latency in the programs' order: of the corpus {n(in_order['launches'])} launches, each program with a "
      f"`footprint.Recent` that begins with nothing. {n(remembered['launches'])} "
      f"({share(remembered['launches'], in_order['launches'])}) were remembered: the kernel had been launched with the "
      f"same geometry and numbers before, with the same or other pointers (median {seconds(remembered['p50_ns'])}). "
      f"The others were evaluated and written down (median {seconds(others['p50_ns'])}). Every launch is timed by "
      f"itself, the clock included, and the best of seven rounds counts; equal launches of a program, of which the "
      f"corpus has one and their number, count as made right after the first one.")
if real:
    print(f"- *Launches of real programs*: {n(real['all']['launches'])} of those below, of each process at most the "
          f"first 262,144, measured in the same way. First launches are "
          f"{share(real['others']['launches'], real['all']['launches'])} of them; they take longer than the same "
          f"evaluation again, since nothing of the kernel is in a cache.")
print(f"- *A second time*: the programs of the corpus end after a few steps, so first launches are a large share. One "
      f"that runs on repeats its steps: when each makes all of its launches once more, "
      f"{n(recorded['second_remembered'])} of {n(second['launches'])} are remembered.\n")

print("## Kernels without PTX\n")
if opaque["kernels"]:
    print(f"Library kernels of which only machine code exists: {n(opaque['kernels'])} kernels, {n(opaque['launches'])} "
          f"launches, {n(instances(opaque))} instances, all of them unknown by construction. The analysis names the "
          f"allocations that")
    print("pointer-like values in their parameters point into, for those who can check afterwards.\n")
else:
    print("None in this corpus.\n")


def rows_of(rows):
    for r in rows:
        t, m = r["truth"], r["mutants"]
        v = r["verdicts"]
        yield [r["application"], n(r["kernels"]), n(r["conditional"]), n(r["launches"]), n(instances(r)),
               n(v["idempotent"]), n(v["not_idempotent"]), n(v["unknown"]),
               n(t["idempotent"]), n(t["not_idempotent"]), n(t["false_positives"] + m["false_positives"]),
               f"{n(t['false_negatives'])} ({share(t['false_negatives'], t['idempotent'])})",
               n(t["false_negatives_known"]), n(m["not_idempotent"])]


head = ["application", "kernels", "conditional", "launches", "instances", "idempotent", "not", "unknown",
        "truly idempotent", "truly not", "false positives", "false negatives", "with known contents",
        "mutants truly not"]
families = {}
for a in bench["applications"]:
    families.setdefault(a["family"], []).append(a)
for family, rows in sorted(families.items()):
    print(f"## {family}\n")
    table(head, rows_of(rows))
table(head, rows_of([total]))

if traces:
    print("## Traces\n")
    print("Launches that programs made on a GPU, recorded by `holdfast trace`. There are no contents of memory in a "
          "trace, so that nothing is executed.\n")
    table(["program", "kernels with PTX", "conditional", "launches", "instances", "idempotent", "not", "unknown",
           "with a verdict"],
          [[r["application"], n(r["kernels"]), n(r["conditional"]), n(r["launches"]), n(instances(r)),
            n(r["verdicts"]["idempotent"]), n(r["verdicts"]["not_idempotent"]), n(r["verdicts"]["unknown"]),
            share(instances(r) - r["verdicts"]["unknown"], instances(r))] for r in traces["applications"] +
            [traces["total"]]])
    o = traces["without_ptx"]
    print(f"Without PTX: {n(o['kernels'])} kernels, {n(o['launches'])} launches, {n(instances(o))} instances. Machine "
          f"code beside the PTX that was analysed: {n(traces['total']['beside'])} instances.\n")

gpu_report.sections(out)

if bench["false_negatives_known"]:
    causes = {}
    for x in bench["false_negatives_known"]:
        causes[x["cause"]] = causes.get(x["cause"], 0) + x["instances"]
    print(f"With known contents, false negatives by cause: {counts(causes)}.\n")
if bench["false_negatives"]:
    print("## False negatives\n")
    print("By kernel, those with most instances first; `verdicts -json` lists all.\n")
    most = sorted(bench["false_negatives"], key=lambda x: (-x["instances"], x["application"], x["kernel"]))
    table(["application", "kernel", "instances", "cause", "reason"],
          [[x["application"], f"`{x['kernel'][:60]}`", n(x["instances"]), x["cause"], x["reason"]] for x in most[:60]])
