"""One tenant of goodput.py's peers: a network of bench/replay/models.py as a CUDA graph of PyTorch's.

    peer.py CASE PLAN.json TENANT

Says "ready", then answers lines on standard input. "alone": prints the median time of a pass with its copies, in
seconds. "RUN BEGIN" (BEGIN by the monotonic clock): serves that run's arrivals in their order, one after the other, and
prints a JSON list: for each request the seconds from its arrival to its answer, or null for one that was not begun
because its deadline had passed. An end of input ends it.
"""

import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "replay"))
import models  # noqa: E402


def main():
    name, path, tenant = sys.argv[1], sys.argv[2], int(sys.argv[3])
    import torch

    case = models.CASES[name]
    with torch.no_grad():
        run = models.build(torch, case)
        hosts = [[v.pin_memory() for v in case.values(torch, i)] for i in range(6)]
        inputs = [v.cuda() for v in hosts[0]]
        graph, outs = models.captured(torch, run, inputs)
        back = [torch.empty(o.shape, dtype=o.dtype, pin_memory=True) for o in outs]

        def serve(i):
            for to, v in zip(inputs, hosts[i % 6]):
                to.copy_(v, non_blocking=True)
            graph.replay()
            for to, o in zip(back, outs):
                to.copy_(o, non_blocking=True)
            torch.cuda.current_stream().synchronize()

        serve(0)
        print("ready", flush=True)
        plan = None
        for line in sys.stdin:
            if line == "alone\n":
                times = []
                for i in range(110):
                    begun = time.perf_counter()
                    serve(i)
                    times.append(time.perf_counter() - begun)
                print(statistics.median(times[10:]), flush=True)
                continue
            number, begin = line.split()
            if plan is None:
                with open(path) as f:
                    plan = json.load(f)
            begin, deadline = float(begin), plan["tenants"][tenant]["deadline"]
            took = []
            for i, at in enumerate(plan["runs"][int(number)]["arrivals"][tenant]):
                due = begin + at
                while (left := due - time.monotonic()) > 0:
                    if left > 0.0005:
                        time.sleep(left - 0.0004)
                if time.monotonic() - due > deadline:
                    took.append(None)
                    continue
                serve(i)
                took.append(time.monotonic() - due)
            print(json.dumps(took), flush=True)


main()
