"""Makes this directory's applications with Numba's CUDA target, without a GPU. CUDA_HOME holds nvvm/lib64/libnvvm.so and
nvvm/libdevice/libdevice.10.bc."""
import gzip
import hashlib
import json
import math
import os
import re
import sys
import warnings

import numba
from numba import cuda

warnings.filterwarnings("ignore")
import kernels
import numba.cuda.cudadrv.nvvm as nvvm

nvvm.get_supported_ccs = lambda: ((8, 0), (9, 0))  # asks a driver otherwise

HERE = os.path.dirname(os.path.abspath(__file__))


def types_of(t):
    return {"float32": "f32", "float64": "f64", "int32": "s32", "int64": "s64", "uint32": "u32"}[t.name]


def arguments(types, args, buffers):
    """An array becomes its fields, as Numba passes it: no parent, number and size of elements, data, shape, strides."""
    out = []
    for t, a in zip(types, args):
        if not isinstance(a, kernels.A):
            out.append({types_of(t): a})
            continue
        init = a.init if a.init is not None else "zero"
        b = buffers.setdefault(a.name, {"bytes": a.size, "init": {"s32": init} if isinstance(init, list) else init})
        b["bytes"] = max(b["bytes"], a.size)
        data = {"buf": a.name, "offset": a.offset * a.item} if a.offset else {"buf": a.name}
        out += [{"u64": 0}, {"u64": 0}, {"s64": math.prod(a.shape)}, {"s64": a.item}, data]
        out += [{"s64": n} for n in (*a.shape, *a.strides)]
    return out


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else HERE
    os.makedirs(os.path.join(out, "ptx"), exist_ok=True)
    made = f"Numba {numba.__version__}, NVVM 12.4; recipe numba/make.py"
    compiled, apps = {}, {}
    for app, fn, types, grid, block, shared, args, count in kernels.launches():
        # the two sizes of a program were compiled for two architectures
        cc = (8, 0) if app in ("grids", "particles", "transforms") else (9, 0)
        key = fn, types, cc
        if key not in compiled:
            text, _ = cuda.compile_ptx(fn, types, cc=cc)
            entry = re.search(r"\.entry (\w+)\(", text).group(1)
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            with open(os.path.join(out, "ptx", f"{digest}.ptx.gz"), "wb") as f:
                f.write(gzip.compress(text.encode(), 9, mtime=0))
            compiled[key] = digest, entry
        digest, entry = compiled[key]
        a = apps.setdefault(app, {"modules": {}, "buffers": {}, "launches": {}, "cc": cc})
        a["modules"][digest] = f"ptx/{digest}.ptx.gz"
        l = {"module": digest, "kernel": entry, "grid": [*grid, 1, 1][:3], "block": [*block, 1, 1][:3], **({"shared": shared} if shared else {}), "args": arguments(types, args, a["buffers"])}
        text = json.dumps(l, separators=(",", ":"))
        a["launches"][text] = a["launches"].get(text, 0) + count
    for name, a in apps.items():
        launches = [t if c == 1 else t[:-1] + f',"count":{c}}}' for t, c in a["launches"].items()]
        line = lambda x: json.dumps(x, separators=(",", ":"))
        table = lambda d: "{" + ",".join(f"\n{line(k)}:{line(v)}" for k, v in sorted(d.items())) + "}"
        with open(os.path.join(out, f"{name}.app.json"), "w") as f:
            f.write('{"application":' + line("numba-" + name) + ',\n"family":"numba",\n"target":"sm_%d%d",\n"made":%s,\n"modules":%s,\n"buffers":%s,\n"launches":[\n%s\n]}\n'
                    % (*a["cc"], line(made), table(a["modules"]), table(a["buffers"]), ",\n".join(launches)))
        print(name, len(a["modules"]), "kernels", len(launches), "distinct", sum(a["launches"].values()), "in all")


main()
