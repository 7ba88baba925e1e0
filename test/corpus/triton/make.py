"""Makes this directory's applications: the kernels of kernels.py, lowered by language.py for sm_90 and sm_80."""
import gzip
import hashlib
import inspect
import json
import math
import os
import sys

import package

package.install()
import kernels
import language

HERE = os.path.dirname(os.path.abspath(__file__))
ITEM = {"fp32": 4, "fp16": 2, "bf16": 2, "fp64": 8, "i32": 4, "i64": 8, "i8": 1}
INIT = {"fp32": "f32", "fp16": "f16", "bf16": "bf16", "fp64": "f64", "i8": "zero"}


class App:
    def __init__(self, name, target):
        self.name, self.target = name, target
        self.modules, self.buffers, self.launches, self.compiled = {}, {}, {}, {}

    def buffer(self, name, kind, n, init=None):
        init = init or INIT.get(kind, "zero")
        b = self.buffers.setdefault(name, {"bytes": 0, "init": init})
        b["bytes"] = max(b["bytes"], -(-n * ITEM[kind] // 512) * 512)
        return name, kind

    def launch(self, fn, grid, args, constants, warps=4, tile=None, count=1, offsets=()):
        """args: buffers, or (type, number)."""
        names = [n for n in inspect.signature(fn).parameters if n not in constants]
        types = ["*" + a[1] if a[0] in self.buffers else a[0] for a in args]
        tile = tile or list(constants.values())
        key = fn.__name__, tuple(types), tuple(constants.items()), warps
        if key not in self.compiled:
            run = language.rewritten(inspect.getsource(fn), fn.__name__, kernels.__dict__)
            aligned = {i for i, t in enumerate(types) if t.startswith("*")} if not offsets else set()
            c, shared = language.lower(fn.__name__, run, list(zip(names, types)), constants, tile, list(reversed(range(len(tile)))), warps, aligned)
            text = language.ptx(c, self.target, libdevice_bc=os.environ.get("LIBDEVICE", language.LIBDEVICE))
            self.compiled[key] = hashlib.sha256(text.encode()).hexdigest()[:12], text, shared
        digest, text, shared = self.compiled[key]
        self.modules[digest] = text
        out = []
        for i, (a, t) in enumerate(zip(args, types)):
            if t.startswith("*"):
                out.append({"buf": a[0], "offset": offsets[i]} if i < len(offsets) and offsets[i] else {"buf": a[0]})
            else:
                out.append({{"i": "s", "f": "f"}[t[0]] + t.lstrip("ifp"): a[1]})
        l = {"module": digest, "kernel": fn.__name__, "grid": [*grid, 1, 1][:3], "block": [32 * warps, 1, 1], **({"shared": shared} if shared else {}), "args": out}
        text = json.dumps(l, separators=(",", ":"))
        self.launches[text] = self.launches.get(text, 0) + count

    def write(self, out):
        os.makedirs(os.path.join(out, "ptx"), exist_ok=True)
        for d, text in self.modules.items():
            with open(os.path.join(out, "ptx", f"{d}.ptx.gz"), "wb") as f:
                f.write(gzip.compress(text.encode(), 9, mtime=0))
        line = lambda x: json.dumps(x, separators=(",", ":"))
        table = lambda d: "{" + ",".join(f"\n{line(k)}:{line(v)}" for k, v in sorted(d.items())) + "}"
        launches = [t if c == 1 else t[:-1] + f',"count":{c}}}' for t, c in self.launches.items()]
        with open(os.path.join(out, f"{self.name}.app.json"), "w") as f:
            f.write('{"application":%s,\n"family":"triton",\n"target":%s,\n"made":%s,\n"modules":%s,\n"buffers":%s,\n"launches":[\n%s\n]}\n' % (
                line("triton-" + self.name), line(self.target), line(f"test/corpus/triton/language.py, clang 19 for {self.target}; recipe triton/make.py"),
                table({d: f"ptx/{d}.ptx.gz" for d in self.modules}), table(self.buffers), ",\n".join(launches)))
        print(self.name, len(self.modules), "kernels", len(launches), "distinct", sum(self.launches.values()), "in all")


def fill(app, small):
    K, B = kernels, app.buffer
    i32 = lambda n: ("i32", n)
    for n in ((1, 97, 1024, 5000) if small else (1 << 20, 3_000_001, 1 << 25)):
        x, y, z, u = (B(f"{c}{n}", "fp32", n) for c in "xyzu")
        h, k, l = (B(f"{c}{n}", "bf16", n) for c in "hkl")
        block = 1024
        g = (-(-n // block),)
        for xs in ((x, y, z), (x, y, x), (x, x, x)):
            app.launch(K.add, g, (*xs, i32(n)), {"BLOCK": block}, count=4)
        app.launch(K.add, g, (h, k, l, i32(n)), {"BLOCK": block}, 8)
        if n > 64:
            app.launch(K.add, g, (x, y, x, i32(n - 16)), {"BLOCK": block}, offsets=(0, 0, 4))
            app.launch(K.add, g, (x, y, x, i32(n - 16)), {"BLOCK": block}, offsets=(64, 0, 0))
        app.launch(K.gated, g, (h, k, l, i32(n)), {"BLOCK": block}, count=8)
        app.launch(K.gated, g, (h, k, h, i32(n)), {"BLOCK": block})
        app.launch(K.adam, g, (x, y, z, u, i32(n), ("fp32", 0.001), ("fp32", 1.1)), {"BLOCK": block}, count=12)
        app.launch(K.dropout, g, (x, y, i32(n), ("fp32", 0.1), i32(1234)), {"BLOCK": block}, count=6)
        app.launch(K.dropout, g, (x, x, i32(n), ("fp32", 0.1), i32(1234)), {"BLOCK": block})
        index = B(f"i{n}", "i32", n, {"index": "s32", "below": n})
        app.launch(K.scatter, g, (x, index, y, i32(n)), {"BLOCK": block}, count=3)
        app.launch(K.scatter, g, (x, index, x, i32(n)), {"BLOCK": block})
        byte = B(f"b{n}", "i32", n, {"index": "s32", "below": 256})
        app.launch(K.histogram, g, (byte, B("bins", "i32", 256), i32(n)), {"BLOCK": block}, count=3)
        app.launch(K.top, g, (byte, B("top", "i32", 1), i32(n)), {"BLOCK": block})
        app.launch(K.convolve, g, (B(f"signal{n}", "fp32", n + 16), B("taps", "fp32", 9), y, i32(n), i32(9)), {"BLOCK": block}, count=2)
        app.launch(K.smooth, g, (x, i32(n)), {"BLOCK": block}, count=5)
        app.launch(K.reverse, (-(-n // 2 // block) or 1,), (x, i32(n)), {"BLOCK": block})
    for n, m in (((3, 100), (16, 64), (33, 257)) if small else ((4096, 1024), (8192, 768), (2048, 5000))):
        a, b = B(f"a{n}x{m}", "fp32", n * m), B(f"c{n}x{m}", "fp32", n * m)
        w, v, s, r = B(f"w{m}", "fp32", m), B(f"v{m}", "fp32", m), B(f"s{n}", "fp32", n), B(f"r{n}", "fp32", n)
        p = 1 << (m - 1).bit_length()
        app.launch(K.softmax, (n,), (a, b, i32(m), i32(m)), {"BLOCK": p}, count=6)
        app.launch(K.softmax, (n,), (a, a, i32(m), i32(m)), {"BLOCK": p})
        app.launch(K.layernorm, (n,), (a, w, v, b, s, r, i32(m)), {"BLOCK": min(p, 512)}, count=6)
        app.launch(K.layernorm, (n,), (a, w, v, a, s, r, i32(m)), {"BLOCK": min(p, 512)})
        t = B(f"t{n}", "i64", n, {"index": "s64", "below": m})
        app.launch(K.entropy, (n,), (a, t, s, b, i32(m)), {"BLOCK": p}, 8, count=2)
        app.launch(K.entropy, (n,), (a, t, s, a, i32(m)), {"BLOCK": p}, 8, count=2)
        app.launch(K.scan, (n,), (a, b, i32(m)), {"BLOCK": p}, count=2)
        app.launch(K.scan, (n,), (a, a, i32(m)), {"BLOCK": p})
        app.launch(K.quantise, (n,), (a, B(f"q{n}x{m}", "i8", n * m), s, i32(m)), {"BLOCK": p}, count=4)
        app.launch(K.transpose, (-(-n // 32), -(-m // 32)), (a, b, i32(n), i32(m)), {"BM": 32, "BN": 32}, count=3)
        app.launch(K.transpose, (-(-n // 32), -(-m // 32)), (a, a, i32(n), i32(m)), {"BM": 32, "BN": 32})
        app.launch(K.column_sum, (-(-m // 32),), (a, w, i32(n), i32(m)), {"BM": 32, "BN": 32}, count=6)
        app.launch(K.column_sum_atomic, (-(-m // 32), -(-n // 32)), (a, w, i32(n), i32(m)), {"BM": 32, "BN": 32}, count=2)
        table, ids = B(f"table{m}", "fp32", 50 * m), B(f"ids{n}", "i64", n, {"index": "s64", "below": 50})
        app.launch(K.embed, (n, -(-m // 256)), (table, ids, b, i32(m)), {"BLOCK": 256}, count=2)
        app.launch(K.embed_backward, (n, -(-m // 256)), (a, ids, table, i32(m)), {"BLOCK": 256}, count=2)
    for tokens, heads, half in (((5, 2, 8), (16, 4, 32)) if small else ((512, 16, 32), (2048, 32, 64))):
        x, p = B(f"rope{tokens}", "bf16", tokens * heads * 2 * half), B(f"place{tokens}", "i64", tokens, {"iota": "s64"})
        app.launch(K.rotate, (tokens, heads), (x, p, i32(heads), i32(half)), {"BLOCK": half}, 1, count=8)
    for n, m, k in (((8, 8, 8), (20, 33, 50), (64, 48, 100)) if small else ((512, 512, 512), (1000, 777, 300), (1024, 1024, 256))):
        a, b, c = B(f"ma{n}x{k}", "fp32", n * k), B(f"mb{k}x{m}", "fp32", k * m), B(f"mc{n}x{m}", "fp32", n * m)
        ah, bh, ch = B(f"ha{n}x{k}", "fp16", n * k), B(f"hb{k}x{m}", "fp16", k * m), B(f"hc{n}x{m}", "fp16", n * m)
        bias = B(f"bias{m}", "fp32", m)
        tile = {"BM": 16, "BN": 16, "BK": 8}
        g = (-(-n // 16), -(-m // 16))
        s = (i32(n), i32(m), i32(k))
        app.launch(K.matmul, g, (a, b, c, *s), tile, count=12)
        app.launch(K.matmul, g, (ah, bh, ch, *s), tile, count=12)
        app.launch(K.matmul_split, (*g, 4), (a, b, c, *s, i32(4)), tile, count=4)
        app.launch(K.matmul_bias, g, (a, b, bias, c, *s), tile, count=6)
    for time, heads, d in (((10, 2, 16), (40, 3, 32)) if small else ((512, 12, 64), (1024, 16, 64))):
        q, k, v, o = (B(f"{c}{time}", "fp32", heads * time * d) for c in ("aq", "ak", "av", "ao"))
        app.launch(K.attention, (-(-time // 8), heads), (q, k, v, o, i32(time), ("fp32", d ** -0.5)), {"BM": 8, "BN": 8, "D": d}, count=6)
        app.launch(K.attention, (-(-time // 8), heads), (q, k, v, q, i32(time), ("fp32", d ** -0.5)), {"BM": 8, "BN": 8, "D": d})


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else HERE
    for target in ("sm_90", "sm_80"):
        for small in (True, False):
            app = App("kernels" + ("-small" if small else "") + ("" if target == "sm_90" else "-sm80"), target)
            fill(app, small)
            app.write(out)


main()
