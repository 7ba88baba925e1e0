"""Serves networks of models.py without a CUDA library and asks for them by the Open Inference Protocol.

    serve.py HOLDFAST OUT [CASE...]     default: resnet50 mlp bert. For an NVIDIA H200.

All networks are served by one process, each asked by a client of its own at the same time: the recorded input and five
others, again and again, as binary tensors. Every answer must have the bits of PyTorch. Prints requests, the median and
the 99th of 100 of a request's time as the client sees it, and how long the server took to be ready; then what
"holdfast verify" says of each recording. OUT gets results.json.
"""

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from tiny import record

INPUTS, ROUNDS = 6, 100


def tensor(port, data):
    return {"name": port["name"], "shape": port["shape"], "datatype": port["datatype"],
            "parameters": {"binary_data_size": len(data)}}


def ask(connection, model, meta, data):
    """The outputs of one request, by name."""
    head = json.dumps({"inputs": [tensor(p, data[p["name"]]) for p in meta["inputs"]],
                       "parameters": {"binary_data_output": True}}).encode()
    connection.request("POST", f"/v2/models/{model}/infer", head + b"".join(data[p["name"]] for p in meta["inputs"]),
                       {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        sys.exit(f"{model}: {answer.status} {body[:500]}")
    at = int(answer.headers["Inference-Header-Content-Length"])
    outputs = {}
    for o in json.loads(body[:at])["outputs"]:
        n = o["parameters"]["binary_data_size"]
        outputs[o["name"]], at = body[at:at + n], at + n
    return outputs


def client(address, case, made, result):
    file, _, inputs, outputs = made
    work = os.path.dirname(file)

    def read(name):
        with open(os.path.join(work, name), "rb") as f:
            return f.read()

    connection = http.client.HTTPConnection(address)
    connection.request("GET", f"/v2/models/{case}")
    meta = json.loads(connection.getresponse().read())
    tags = ["", *(str(i) for i in range(INPUTS - 1))]
    data = [{n: read(n + t) for n in inputs} for t in tags]
    want = [{n: read(n + t) for n in outputs} for t in tags]
    times, right = [], 0
    for i in range(INPUTS * ROUNDS):
        begun = time.perf_counter()
        got = ask(connection, case, meta, data[i % INPUTS])
        times.append(time.perf_counter() - begun)
        right += all(got[n] == b for n, b in want[i % INPUTS].items())
    times.sort()
    result[case] = {"requests": len(times), "right": right, "median_us": round(1e6 * times[len(times) // 2]),
                    "p99_us": round(1e6 * times[len(times) * 99 // 100])}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("holdfast")
    p.add_argument("out")
    p.add_argument("case", nargs="*", default=["resnet50", "mlp", "bert"])
    args = p.parse_args()
    hf = os.path.realpath(args.holdfast)
    with tempfile.TemporaryDirectory() as work:
        os.environ.update(HOLDFAST_DIR=os.path.join(work, "run"), XDG_CACHE_HOME=os.path.join(work, "cache"),
                          CUBLAS_WORKSPACE_CONFIG=":4096:2")
        made, result = {}, {}
        for case in args.case:
            os.mkdir(os.path.join(work, case))
            made[case] = record(hf, case, os.path.join(work, case))
        begun = time.perf_counter()
        server = subprocess.Popen([hf, "serve", *(f"{c}={m[0]}" for c, m in made.items()), "--backend", "raw",
                                   "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
        try:
            address = re.search(r"http://(\S+)", server.stderr.readline()).group(1)
            ready = time.perf_counter() - begun
            threads = [threading.Thread(target=client, args=(address, c, m, result)) for c, m in made.items()]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            server.send_signal(signal.SIGTERM)
            status = server.wait(30)
        finally:
            server.kill()
        for case, m in made.items():
            v = subprocess.run([hf, "verify", m[0]], capture_output=True, text=True)
            result.setdefault(case, {})["verify"] = v.stdout.partition("\n")[0].partition(": ")[2] or v.stderr[:200]
        print(f"ready after {ready:.3f} s, ended with {status}")
        for case, r in result.items():
            print(case, r)
        with open(os.path.join(args.out, "results.json"), "w") as f:
            json.dump({"ready_seconds": ready, "status": status, "cases": result}, f, indent=1)


main()
