#!/usr/bin/env python3
"""Writes NAME.app.json for every NAME.cu of this directory, from the launches that its
//@ comments list.

A comment above a kernel

    //@ for(n=S, t=(64, 256)) launch(grid=up(n, t), block=t, args=[f32(n), zero(4*n), n])

stands for one launch for every combination of the values named in for(...); a kernel may have
several comments, and one may go on over several lines. The expressions are Python's. Keywords of
launch: grid, block, cluster (a number or a tuple), shared (bytes), count, order="any" (the result
depends on the order of blocks or warps), spin=True (blocks wait for one another), and args, the
kernel's parameters in order:

    f16 f32 f64 u8 u32(n)    n random elements, a buffer of their own
    zero(bytes)              a buffer of zeros
    index(n, below)          n random s32 in [0, below); index64 likewise
    iota(n)                  s32 0, 1, …
    ints(values), floats(values)     s32 and f32 with these values
    table(buffers)           pointers to buffers; None is null
    struct(format, values…)  a struct by value; format as of Python's module struct, P a buffer
    shape(…), chunks(…)      the structs of tensors.cu
    buffer + bytes           an address inside
    (a := f32(n)), …, a      the same buffer twice
    7, 1.5                   s32, f32; U(7) u32, L(7) s64, UL(7) u64, D(1.5) f64, H(bits) u16, B(7) u8
"""

import itertools
import json
import pathlib
import re
import struct as structs

HERE = pathlib.Path(__file__).parent


class Buffer:
    """A place in a buffer: its name and an offset in bytes."""

    def __init__(self, name, offset=0):
        self.name, self.offset = name, offset

    def __add__(self, n):
        return Buffer(self.name, self.offset + n)

    def json(self):
        return {"buf": self.name, "offset": self.offset}


class Application:
    """Collects the buffers and launches of one source file."""

    def __init__(self):
        self.buffers, self.launches = {}, []
        self.used = {}  # buffers of the launch being made, by kind

    def buffer(self, label, size, init):
        """Launches share buffers of one kind; one launch never gets the same twice."""
        i = self.used[label] = self.used.get(label, 0) + 1
        name = label if i == 1 else f"{label}.{i}"
        self.buffers[name] = {"bytes": size, "init": init}
        return Buffer(name)

    def literal(self, kind, values):
        values = list(values)
        for i in itertools.count():
            name = f"{kind}s{i}"
            found = self.buffers.get(name)
            if found is None or (found["init"] == {kind: values} and name not in self.used):
                self.used[name] = 1
                self.buffers[name] = {"bytes": max(4 * len(values), 4), "init": {kind: values}}
                return Buffer(name)

    def table(self, entries):
        entries = [e and e.json() for e in entries]
        i = sum("pointers" in b["init"] for b in self.buffers.values())
        name = f"table{i}"
        self.buffers[name] = {"bytes": 8 * max(len(entries), 1), "init": {"pointers": entries}}
        return Buffer(name)

    def names(self):
        def random(kind, width):
            return lambda n: self.buffer(f"{kind}x{n}", width * max(n, 1), kind)

        return {
            "f16": random("f16", 2), "bf16": random("bf16", 2), "f32": random("f32", 4), "f64": random("f64", 8),
            "u8": random("u8", 1), "u32": random("u32", 4),
            "zero": lambda n: self.buffer(f"zero{n}", max(n, 1), "zero"),
            "index": lambda n, below: self.buffer(f"index{below}x{n}", 4 * max(n, 1), {"index": "s32", "below": below}),
            "index64": lambda n, below: self.buffer(f"index64_{below}x{n}", 8 * max(n, 1), {"index": "s64", "below": below}),
            "iota": lambda n: self.buffer(f"iota{n}", 4 * max(n, 1), {"iota": "s32"}),
            "ints": lambda v: self.literal("s32", v),
            "floats": lambda v: self.literal("f32", v),
            "table": self.table,
            "struct": struct, "shape": shape, "chunks": chunks, "up": up, "log2": log2, "graph": graph, "lists": lists, "mesh": mesh,
            "shuffled": shuffled, "noise": noise,
            "S": (0, 1, 33, 256, 1000, 4099), "T": (1, 63, 512, 1021), "null": Scalar("u64", 0),
            "U": lambda v: Scalar("u32", v), "L": lambda v: Scalar("s64", v), "UL": lambda v: Scalar("u64", v),
            "D": lambda v: Scalar("f64", v), "H": lambda v: Scalar("u16", v), "B": lambda v: Scalar("u8", v),
        }

    def launch(self, module, kernel, grid=1, block=1, cluster=1, shared=0, args=(), count=1, order=None, spin=False):
        made = {"module": module, "kernel": kernel, "grid": dims(grid), "block": dims(block)}
        if cluster != 1:
            made["cluster"] = dims(cluster)
        if shared:
            made["shared"] = shared
        made["args"] = [argument(a) for a in args]
        if count != 1:
            made["count"] = count
        if order:
            made["order"] = order
        if spin:
            made["spin"] = True
        return made


class Scalar:
    def __init__(self, kind, value):
        self.kind, self.value = kind, value

    def json(self):
        return {self.kind: self.value}


class Struct:
    def __init__(self, data, patches):
        self.data, self.patches = data, patches

    def json(self):
        made = {"bytes": self.data.hex()}
        if self.patches:
            made["patch"] = self.patches
        return made


def struct(layout, *values):
    """A C struct with native alignment, padded to that of its widest member."""
    data, patches, values = b"", [], list(values)
    for member in re.findall(r"\d*[a-zA-Z]", layout):
        for _ in range(int(member[:-1] or 1)):
            code, v = member[-1], values.pop(0)
            data += b"\0" * (-len(data) % structs.calcsize(code))
            if isinstance(v, Buffer):
                patches.append({"at": len(data), **v.json()})
                v = 0
            data += structs.pack("<" + code.replace("P", "Q"), v)
    widest = max(structs.calcsize(c) for c in layout if c.isalpha())
    return Struct(data + b"\0" * (-len(data) % widest), patches)


def divider(d):
    """The multiplier and shift of a division by d (struct Divider of tensors.cu)."""
    s = (d - 1).bit_length()
    return d, 2**32 * (2**s - d) // d + 1, s


def shape(sizes, *strides):
    """struct Shape of tensors.cu."""
    rest = 4 - len(sizes)
    values = [v for d in sizes for v in divider(d)] + [0] * (3 * rest)
    return struct("i12I12q", len(sizes), *values, *[v for s in strides for v in (*s, *[0] * rest)])


def chunks(inputs, outputs, sizes, chunk):
    """struct Lists of tensors.cu."""
    blocks = [(t, c) for t, n in enumerate(sizes) for c in range(up(n, chunk))]
    rest, spare = [0] * (6 - len(sizes)), [0] * (16 - len(blocks))
    return struct("12P6i16B16i", *inputs, *rest, *outputs, *rest, *sizes, *rest, *[t for t, _ in blocks], *spare, *[c for _, c in blocks], *spare)


def argument(a):
    if isinstance(a, (Buffer, Scalar, Struct)):
        return a.json()
    return {"f32": a} if isinstance(a, float) else {"s32": int(a)}


def dims(d):
    d = d if isinstance(d, tuple) else (d,)
    return list(d) + [1] * (3 - len(d))


def up(n, t):
    """Blocks of t threads for n elements; one if there are none."""
    return max(1, -(-n // t))


def log2(n):
    return n.bit_length() - 1


def noise(n, below, seed=1):
    """n repeatable numbers in [0, below)."""
    x, out = seed * 2654435761 % 2**64, []
    for _ in range(n):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((x >> 33) % below)
    return out


def shuffled(n, seed=1):
    """A permutation of 0 … n-1."""
    out = list(range(n))
    for i, r in enumerate(noise(n, 2**31, seed)):
        j = i + r % (n - i)
        out[i], out[j] = out[j], out[i]
    return out


def lists(n, width, columns, seed=1):
    """Rows of up to width distinct sorted columns in compressed form: offsets and columns."""
    offsets, cols = [0], []
    for i, want in enumerate(noise(n, width + 1, seed)):
        cols += sorted(set(noise(want, columns, seed + 7 * i + 1)))
        offsets.append(len(cols))
    return offsets, cols


def graph(n, degree, seed=1):
    """A symmetric graph without loops in compressed form: offsets and neighbours."""
    near = [set() for _ in range(n)]
    for i in range(n):
        for j in noise(degree // 2, n, seed + 7 * i):
            if i != j:
                near[i].add(j)
                near[j].add(i)
    offsets, cols = [0], []
    for row in near:
        cols += sorted(row)
        offsets.append(len(cols))
    return offsets, cols


def mesh(w, h):
    """The graph of a grid of w by h nodes."""
    offsets, cols = [0], []
    for y in range(h):
        for x in range(w):
            cols += [b * w + a for a, b in ((x, y - 1), (x - 1, y), (x + 1, y), (x, y + 1)) if 0 <= a < w and 0 <= b < h]
            offsets.append(len(cols))
    return offsets, cols


COMMENT = re.compile(r"//@ for\((.*)\) launch\((.*)\)$")


def directives(source):
    """The kernels of a source with their comments: kernel, values, expression of a launch."""
    lines, pending = source.split("\n"), []
    for i, line in enumerate(lines):
        if line.startswith("//@ "):
            while line.count("(") != line.count(")"):
                i += 1
                line += " " + lines[i].removeprefix("//@").strip()
            pending.append(COMMENT.match(line).groups())
        elif m := re.search(r"__global__ void.*?\b(\w+)\(", line):
            if not pending:
                raise ValueError(f"kernel {m[1]} has no launches")
            for values, launch in pending:
                yield m[1], values, launch
            pending = []


def application(path):
    app, variants = Application(), []
    for p in sorted(HERE.glob(path.stem + ".*ptx"), key=lambda p: (len(p.name), p.name)):
        variants.append(p.name.removesuffix(".ptx"))
    made = []
    for kernel, values, expression in directives(path.read_text()):
        names = app.names()
        ranges = eval(f"dict({values})", {}, names)
        loops = {k: v if isinstance(v, (tuple, list, range)) else (v,) for k, v in ranges.items()}
        code = compile(f"dict({expression})", f"{path.name}: {kernel}", "eval")
        for i, combination in enumerate(itertools.product(*loops.values())):
            app.used = {}
            env = {**names, **dict(zip(loops, combination))}
            made.append((i, kernel, eval(code, env)))
    for at, module in enumerate(variants):
        for i, kernel, keywords in made:
            # What the optimiser changes shows with fewer launches.
            if at == 0 or i % 3 == at % 3:
                app.launches.append(app.launch(module, kernel, **keywords))
    unique = list({json.dumps(l): l for l in app.launches}.values())
    return {
        "application": path.stem,
        "family": "cuda",
        "target": "sm_90",
        "made": "nvcc 12.4, recipe cuda/make.sh",
        "modules": {v: v + ".ptx" for v in variants},
        "buffers": app.buffers,
        "launches": unique,
    }


def write(path, app):
    """One line a buffer and a launch."""
    def rows(items):
        return ",\n".join("  " + i for i in items)
    head = {k: app[k] for k in ("application", "family", "target", "made", "modules")}
    text = json.dumps(head, indent=1)[:-2] + ',\n "buffers": {\n'
    text += rows(json.dumps(k) + ": " + json.dumps(v, separators=(",", ":")) for k, v in app["buffers"].items())
    text += '\n },\n "launches": [\n' + rows(json.dumps(l, separators=(",", ":")) for l in app["launches"]) + "\n ]\n}\n"
    path.write_text(text)


def main():
    kernels = launches = 0
    for path in sorted(HERE.glob("*.cu")):
        app = application(path)
        write(path.with_suffix(".app.json"), app)
        kernels += len({(l["module"], l["kernel"]) for l in app["launches"]})
        launches += len(app["launches"])
    print(f"{kernels} kernels, {launches} launches")


if __name__ == "__main__":
    main()
