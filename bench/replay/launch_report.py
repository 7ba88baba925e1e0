"""Runs what launch.sh has built, and prints it as tables."""
import os
import statistics
import subprocess
import sys
import time

COLD = 20


def output(*command):
    r = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if r.returncode != 0:
        sys.exit(f"{command}: {r.stdout}{r.stderr}")
    return r.stdout


def figures(program, cubin):
    """{(number, way): (device us, host us)} of lines 'who number way device host'."""
    found = {}
    for line in output(program, "launch", cubin).splitlines():
        _, n, way, device, host = line.split()
        found[int(n), way] = float(device), float(host)
    return found


def cold(program, cubin):
    begin = time.perf_counter()
    if "ok" not in output(program, "cold", cubin):
        sys.exit(f"{program}: no result")
    return (time.perf_counter() - begin) * 1000


def clock():
    return output("nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader").strip()


def main():
    directory, cubin = sys.argv[1:]
    raw, peer = f"{directory}/launch", f"{directory}/peer"
    gpu = output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").strip()
    print(gpu, "| kernel", os.uname().release)
    cold(raw, cubin)
    alone, slow = figures(raw, cubin), clock()
    # A CUDA context beside it holds the clocks, for both sides.
    hold = subprocess.Popen([peer, "hold", cubin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        hold.stdout.readline()
        time.sleep(1)
        ours, theirs, fast = figures(raw, cubin), figures(peer, cubin), clock()
    finally:
        hold.stdin.close()
        hold.wait()
    print(f"clocks: {fast} with a CUDA context beside it, {slow} alone; microseconds, medians of 31 runs")
    print("| launches | way | raw | a launch | CUDA graph | a launch | raw, host | graph, host | raw alone, a launch |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (n, way), (device, host) in ours.items():
        d, h = theirs[n, way]
        print(f"| {n} | {way} | {device:.1f} | **{device / n:.2f}** | {d:.1f} | {d / n:.2f} | {host:.1f} | {h:.1f} | "
              f"{alone[n, way][0] / n:.2f} |")
    times = {"raw": [], "libcuda": []}
    for _ in range(COLD):
        times["raw"].append(cold(raw, cubin))
        times["libcuda"].append(cold(peer, cubin))
    print(f"\n| process to first result, ms, {COLD} runs | median | least | most |")
    print("|---|---|---|---|")
    for name, t in times.items():
        print(f"| {name} | **{statistics.median(t):.1f}** | {min(t):.1f} | {max(t):.1f} |")


if __name__ == "__main__":
    main()
