#!/usr/bin/env python3
"""Prints how a C compiler lays out the structures of internal/rm, from checkouts of NVIDIA's open kernel modules.

    scripts/rmlayout.py 580.95.05=DIR 575.51.02=DIR 570.86.15=DIR > internal/rm/rmtest/layout.txt

The first checkout is printed in full, of the others only what differs. DIR is the root of a checkout of that tag of
https://github.com/NVIDIA/open-gpu-kernel-modules. Needs gcc and grep.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

SDK = "src/common/sdk/nvidia/inc"
PLACES = [SDK, "src/nvidia/arch/nvalloc/unix/include", "src/common/inc", "kernel-open/nvidia-uvm",
          "kernel-open/common/inc"]
HERE = os.path.dirname(os.path.abspath(__file__))


def declared():
    """The structures that internal/rm declares; lower case first where the vendor has it so."""
    text = open(os.path.join(HERE, "../internal/rm/structs.go")).read()
    names = re.findall(r"^type (\w+) struct", text, re.M)
    return ["nv_" + n[3:] if n.startswith("Nv_") else n for n in names if n != "NVOS46_PARAMETERS_570"]


def headers(base, names):
    pattern = "|".join(rf"\b{n};|}} *{n}\b" for n in names)
    where = [f"{base}/{p}" for p in (SDK, PLACES[1], PLACES[3])]
    found = subprocess.run(["grep", "-rlE", pattern, *where], capture_output=True, text=True).stdout.split()
    skip = ("nv-priv", "nv.h", "g_", "os-interface", "osapi", "nvlink", "kernel-rmapi")
    first = ["nvtypes.h", "nvos.h", "nv-ioctl.h", "uvm_ioctl.h", "uvm_linux_ioctl.h"]
    rest = sorted(h for h in found if h.endswith(".h") and not any(s in os.path.basename(h) for s in skip))
    return "#include <stddef.h>\n#include <stdio.h>\n" + "".join(f'#include "{h}"\n' for h in first + rest)


def fields(text, name):
    """The names of a structure's fields, in order."""
    block = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
    m = re.search(r"typedef struct\s*\w*\s*" + block + r"\s*" + name + r"\s*;", text)
    if not m:
        alias = re.search(r"typedef (?:struct )?(\w+) " + name + ";", text)
        return fields(text, alias.group(1)) if alias and alias.group(1) != name else []
    body = re.sub(r"__attribute__\s*\(\(.*?\)\)\)?", "", m.group(1))
    body = re.sub(r"\[.*?\]", "", re.sub(r"\{[^{}]*\}", "", body))
    return [re.findall(r"\w+", part)[-1] for d in body.split(";") if d.strip() for part in d.split(",")]


def layout(base):
    """{structure: lines} of one checkout."""
    names = declared()
    include = headers(base, names)
    flags = ["-w", "-DNV_UNIX", "-DNV_LINUX", *(f"-I{base}/{p}" for p in PLACES)]
    with tempfile.TemporaryDirectory() as tmp:
        c, out = os.path.join(tmp, "l.c"), os.path.join(tmp, "l")
        open(c, "w").write(include)
        text = subprocess.run(["gcc", "-E", "-P", *flags, c], capture_output=True, text=True, check=True).stdout
        body = ""
        for n in names:
            body += f'printf("{n} %zu\\n", sizeof({n}));\n'
            for f in fields(text, n):
                body += f'printf("  {f} %zu %zu\\n", offsetof({n}, {f}), sizeof((({n} *)0)->{f}));\n'
        open(c, "w").write(include + "int main(void) {\n" + body + "return 0; }\n")
        subprocess.run(["gcc", *flags, c, "-o", out], check=True)
        lines = subprocess.run([out], capture_output=True, text=True, check=True).stdout.splitlines()
    result, name = {}, None
    for line in lines:
        if not line.startswith(" "):
            name = line.split()[0]
            result[name] = []
        result[name].append(line)
    return result


def main():
    first = None
    for arg in sys.argv[1:]:
        version, base = arg.split("=", 1)
        found = layout(base)
        print(f"version {version}")
        for name, lines in found.items():
            if first is None or first[name] != lines:
                print("\n".join(lines))
        first = first or found


if __name__ == "__main__":
    main()
