"""The part of the Triton language that Inductor writes, lowered to PTX without Triton.

Triton itself is not needed and not used: a kernel's Python function is run once with symbolic values, each operation
writes one line of C per register, and clang's NVPTX back end (LLVM, as in Triton) makes PTX of it. A tile lies in
the threads the way Triton's blocked layouts do: vectors of up to four neighbours along the fastest dimension, then
lanes, warps, and registers; loads and stores are predicated vector instructions in inline assembly; reductions
go through registers, shuffles, then dynamic shared memory; threads that repeat an element do not store it.

for loops over range(...) and conditions on values of the GPU become control flow; everything else of Python (constants,
functions, static loops) happens while the kernel is run.
"""
import ast
import functools
import inspect
import math
import subprocess
import sys
import textwrap


LIBDEVICE = "/usr/lib/nvidia-cuda-toolkit/libdevice/libdevice.10.bc"  # of Debian's nvidia-cuda-toolkit


class DType:
    def __init__(self, name, c, bits, kind):
        self.name, self.c, self.primitive_bitwidth, self.kind = name, c, bits, kind

    def is_floating(self):
        return self.kind == "f"

    def __repr__(self):
        return self.name


int1 = DType("int1", "bool", 8, "b")
int8, uint8 = DType("int8", "signed char", 8, "s"), DType("uint8", "unsigned char", 8, "u")
int16, uint16 = DType("int16", "short", 16, "s"), DType("uint16", "unsigned short", 16, "u")
int32, uint32 = DType("int32", "int", 32, "s"), DType("uint32", "unsigned", 32, "u")
int64, uint64 = DType("int64", "long long", 64, "s"), DType("uint64", "unsigned long long", 64, "u")
float16, bfloat16 = DType("float16", "half_bits", 16, "f"), DType("bfloat16", "bf16_bits", 16, "f")
float32, float64 = DType("float32", "float", 32, "f"), DType("float64", "double", 64, "f")
DTYPES = {d.name: d for d in (int1, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64)}
SHORT = {"i1": int1, "i8": int8, "u8": uint8, "i16": int16, "u16": uint16, "i32": int32, "u32": uint32, "i64": int64, "u64": uint64,
         "fp16": float16, "bf16": bfloat16, "fp32": float32, "fp64": float64}


class Pointer:
    """The type of a pointer."""

    def __init__(self, to):
        self.to = to


class Kernel:
    """The kernel that is being lowered: its tile, where the tile lies in the threads, and the lines so far."""

    def __init__(self, tile, order, warps):
        self.tile, self.order, self.threads = tuple(tile), order, 32 * warps
        self.lines, self.memo, self.count, self.depth = [], [{}], 0, 1
        self.named, self.gone = [[]], set()  # names by scope, and those of scopes that have ended
        self.shared = self.highest = 0
        n = math.prod(self.tile)
        v = max(1, n // self.threads)
        v = min(4, v, self.tile[order[0]] if self.tile else 1)
        self.vector, self.elements = v, max(1, n // (self.threads * v)) * v
        self.repeats = max(1, self.threads * v // n)  # threads that hold the same element
        self.coordinates = self.place()

    def place(self):
        """coordinates[d][k]: the expression of register k's coordinate along d."""
        self.shift = {}
        at = 0
        for d in self.order:
            self.shift[d] = at
            at += int(math.log2(self.tile[d]))
        v, t = int(math.log2(self.vector)), int(math.log2(self.threads))
        self.line("const int tid = __nvvm_read_ptx_sreg_tid_x();")
        out = []
        for d, size in enumerate(self.tile):
            thread = self.emit(int32, f"((tid << {v}) >> {self.shift[d]}) & {size - 1}" if v else f"(tid >> {self.shift[d]}) & {size - 1}")
            regs = []
            for k in range(self.elements):
                fixed = ((k % self.vector | k // self.vector << (v + t)) >> self.shift[d]) & (size - 1)
                regs.append(self.emit(int32, f"{thread} | {fixed}") if fixed else thread)
            out.append(regs)
        return out

    def thread_bits(self, d):
        """The bits of the thread's number that choose along dimension d, and along none."""
        v = int(math.log2(self.vector))
        size = int(math.log2(self.tile[d]))
        return [b for b in range(int(math.log2(self.threads))) if self.shift[d] <= b + v < self.shift[d] + size]

    def free_bits(self):
        v, n = int(math.log2(self.vector)), int(math.log2(math.prod(self.tile)))
        return [b for b in range(int(math.log2(self.threads))) if b + v >= n]

    def line(self, text):
        self.lines.append("  " * self.depth + text)

    def name(self):
        self.count += 1
        self.named[-1].append(f"v{self.count}")
        return f"v{self.count}"

    def emit(self, dtype, text, pure=True):
        c = "unsigned long long" if isinstance(dtype, Pointer) else dtype.c
        if pure:
            for memo in self.memo:
                if (c, text) in memo:
                    return memo[c, text]
        n = self.name()
        self.line(f"const {c} {n} = {text};")
        if pure:
            self.memo[-1][c, text] = n
        return n

    def open(self, text):
        self.line(text + " {")
        self.depth += 1
        self.memo.append({})
        self.named.append([])

    def close(self):
        self.memo.pop()
        self.gone.update(self.named.pop())
        self.depth -= 1
        self.line("}")

    def scratch(self, size):
        """Shared memory for one exchange; the barriers around it let the next one have the same bytes."""
        self.highest = max(self.highest, self.shared + size)
        return self.shared


K = None  # the kernel being lowered: the language has no other way to reach it


def constant(x, dtype):
    if dtype is int1:
        return "true" if x else "false"
    if dtype.is_floating():
        x = float(x)
        if dtype is float64:
            return "__builtin_inf()" if x == math.inf else "-__builtin_inf()" if x == -math.inf else '__builtin_nan("")' if x != x else repr(x)
        text = "__builtin_inff()" if x == math.inf else "-__builtin_inff()" if x == -math.inf else '__builtin_nanf("")' if x != x else x.hex() + "f"
        return text if dtype is float32 else f"{dtype.name}_of({text})"
    if dtype.primitive_bitwidth == 64:
        return f"{int(x)}ll" if int(x) > -1 << 63 else "(-9223372036854775807ll - 1)"
    return str(int(x)) if int(x) > -1 << 31 else "(-2147483647 - 1)"


class Value:
    """A tile, or a scalar (shape ()): one C name per register, and what is known of neighbours in a vector.

    near is ("u", d): equal, a multiple of d; ("c", d): consecutive, starting at a multiple of d; None: nothing.
    """

    def __init__(self, shape, dtype, regs, near=None):
        self.shape, self.dtype, self.regs, self.near = tuple(shape), dtype, regs, near
        if near is None and len(set(regs)) == 1:
            self.near = ("u", 1)

    __iter__ = None

    @property
    def numel(self):
        return math.prod(self.shape)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        old, shape = list(self.shape), []
        for i in index:
            shape.append(1 if i is None else old.pop(0))
        return Value(shape, self.dtype, self.regs, self.near)

    def to(self, dtype, bitcast=False, fp_downcast_rounding=None):
        return convert(self, dtype, bitcast)

    def logical_and(self, o):
        return binary("&", self, o)

    def __bool__(self):
        raise TypeError("a value of the GPU decides about Python")

    def __hash__(self):
        return id(self)


class Arange:
    """tl.arange before an index says along which dimension."""

    def __init__(self, start, end):
        self.start, self.size = start, end - start

    def along(self, d, rank):
        near = None
        if d == K.order[0]:
            near = ("c", K.vector if self.start == 0 else math.gcd(self.start, K.vector))
        elif K.vector <= K.tile[K.order[0]]:
            near = ("u", 1)
        regs = [K.emit(int32, f"{r} + {self.start}") for r in K.coordinates[d]] if self.start else K.coordinates[d]
        shape = [1] * rank
        shape[d] = self.size
        return Value(shape, int32, regs, near)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        return self.along(next(i for i, x in enumerate(index) if x is not None), len(index))

    def value(self):
        if len(K.tile) != 1:
            raise TypeError("an arange without a dimension")
        return self.along(0, 1)


def arange(start, end):
    a = Arange(start, end)
    return a.value() if len(K.tile) == 1 else a


def scalar(text, dtype, near=("u", 1)):
    return Value((), dtype, [text] * K.elements, near)


def lift(x, like=None):
    if isinstance(x, (Value, Arange)):
        return x.value() if isinstance(x, Arange) else x
    if isinstance(x, bool):
        dtype = int1
    elif isinstance(x, int):
        dtype = like if like is not None and not isinstance(like, Pointer) and (like.is_floating() or like is not int1 and fits(x, like)) else int32 if -1 << 31 <= x < 1 << 31 else int64
    else:
        dtype = like if like is not None and not isinstance(like, Pointer) and like.is_floating() else float32
    near = ("u", abs(int(x)) or 1 << 30) if dtype.kind in "su" else ("u", 1)
    return scalar(constant(x, dtype), dtype, near)


def fits(x, d):
    n = d.primitive_bitwidth
    return (-1 << n - 1 <= x < 1 << n - 1) if d.kind == "s" else 0 <= x < 1 << n


def join(a, b):
    if len(a) < len(b):
        a = (1,) * (len(b) - len(a)) + a
    if len(b) < len(a):
        b = (1,) * (len(a) - len(b)) + b
    for x, y in zip(a, b):
        if x != y and 1 not in (x, y):
            raise TypeError(f"shapes {a} and {b}")
    return tuple(max(x, y) for x, y in zip(a, b))


def promote(a, b):
    if a is b:
        return a
    if a.is_floating() or b.is_floating():
        fs = [d for d in (a, b) if d.is_floating()]
        if len(fs) == 1:
            return fs[0]
        return max(fs, key=lambda d: d.primitive_bitwidth) if fs[0].primitive_bitwidth != fs[1].primitive_bitwidth else float32
    if a is int1:
        return b
    if b is int1:
        return a
    if a.primitive_bitwidth != b.primitive_bitwidth:
        return max(a, b, key=lambda d: d.primitive_bitwidth)
    return a if a.kind == "u" else b


COMPARE = {"<", ">", "<=", ">=", "==", "!="}


def binary(op, a, b):
    a = lift(a, b.dtype if isinstance(b, Value) else None)
    b = lift(b, a.dtype)
    shape = join(a.shape, b.shape)
    if isinstance(a.dtype, Pointer) or isinstance(b.dtype, Pointer):
        if isinstance(b.dtype, Pointer):
            a, b = b, a
        size = a.dtype.to.primitive_bitwidth // 8
        sign = "+" if op == "+" else "-"
        regs = [K.emit(a.dtype, f"{x} {sign} (long long){y} * {size}") for x, y in zip(a.regs, b.regs)]
        return Value(shape, a.dtype, regs, nearness(op, a, b))
    dtype = promote(a.dtype, b.dtype)
    if op == "/" and not dtype.is_floating():
        dtype = float32
    near = nearness(op, a, b) if not dtype.is_floating() else None
    if op == "*" and dtype is int1:
        op = "&"
    work = float32 if dtype in (float16, bfloat16) else dtype
    x, y = convert(a, work), convert(b, work)
    c = {"//": "/"}.get(op, op)
    if op == "%" and work.is_floating():
        regs = [K.emit(work, f"__nv_fmod{'f' if work is float32 else ''}({p}, {q})") for p, q in zip(x.regs, y.regs)]
    elif op in COMPARE:
        return Value(shape, int1, [K.emit(int1, f"{p} {op} {q}") for p, q in zip(x.regs, y.regs)], near)
    else:
        regs = [K.emit(work, f"{p} {c} {q}" if work.primitive_bitwidth >= 32 and work is not int1 else f"({work.c})({p} {c} {q})") for p, q in zip(x.regs, y.regs)]
    return convert(Value(shape, work, regs, near), dtype)


def nearness(op, a, b):
    if a.near is None or b.near is None:
        return None
    (p, d), (q, e) = a.near, b.near
    w = K.vector
    if op in "+-" or op == "|":
        if p == q == "c":
            return None
        if q == "c" and op != "+":
            return None
        return ("c" if "c" in (p, q) else "u", math.gcd(d, e)) if op != "|" or p == q == "u" else None
    if op == "*":
        if p == q == "u":
            return "u", min(d * e, 1 << 30)
        n = a.regs[0] if p == "u" else b.regs[0]
        return ("c", max(d, e)) if n == "1" else None
    if p == "c" and d % w == 0 and q == "u" and e % w == 0:
        if op == "//":
            return "u", d // e if d % e == 0 else 1
        if op == "%":
            return "c", math.gcd(d, e)
        if op in ("<", ">="):
            return "u", 1
    return ("u", 1) if p == q == "u" else None


def convert(x, dtype, bitcast=False):
    x = lift(x)
    if x.dtype is dtype:
        return x
    if isinstance(dtype, Pointer):
        return Value(x.shape, dtype, x.regs)
    f = x.dtype
    small = (float16, bfloat16)
    if bitcast:
        kinds = {(float32, "s"): "__float_as_int", (float32, "u"): "(unsigned)__float_as_int", (float64, "s"): "__double_as_longlong",
                 (float64, "u"): "(unsigned long long)__double_as_longlong"}
        back = {float32: "__int_as_float", float64: "__longlong_as_double"}
        if f.is_floating() and f not in small and not dtype.is_floating():
            call = kinds[f, dtype.kind]
        elif dtype in back and not f.is_floating():
            call = back[dtype]
        else:
            call = f"({dtype.c})"
        return Value(x.shape, dtype, [K.emit(dtype, f"{call}({r})") for r in x.regs])
    if dtype in small and f is not float32:
        return convert(convert(x, float32), dtype)
    if f in small and dtype is not float32:
        return convert(convert(x, float32), dtype)
    if dtype is int1:
        return Value(x.shape, int1, [K.emit(int1, f"{r} != 0") for r in x.regs], x.near and x.near[0] == "u" and ("u", 1) or None)
    call = f"{dtype.name}_of" if dtype in small else f"float_of_{f.name}" if f in small else f"({dtype.c})"
    near = x.near if f.kind in "sub" and dtype.kind in "su" else None
    return Value(x.shape, dtype, [K.emit(dtype, f"{call}({r})") for r in x.regs], near)


def _ops():
    for name, op in dict(add="+", sub="-", mul="*", truediv="/", floordiv="//", mod="%", and_="&", or_="|", xor="^", lshift="<<", rshift=">>",
                         lt="<", gt=">", le="<=", ge=">=", eq="==", ne="!=").items():
        base = name.rstrip("_")
        for cls in (Value,):
            setattr(cls, f"__{base}__", lambda a, b, op=op: binary(op, a, b))
            setattr(cls, f"__r{base}__", lambda a, b, op=op: binary(op, b, a))
    Value.__neg__ = lambda a: binary("-", convert(lift(0), a.dtype), a) if not a.dtype.is_floating() else unary("-({})", a)
    Value.__invert__ = lambda a: unary("!{}", a) if a.dtype is int1 else unary("~{}", a)


def unary(text, a, dtype=None):
    a = lift(a)
    work = float32 if a.dtype in (float16, bfloat16) else a.dtype
    x = convert(a, work)
    out = dtype or work
    return Value(a.shape, out, [K.emit(out, text.format(r)) for r in x.regs])


_ops()


class constexpr:
    def __new__(cls, x=None):
        return x


class tensor(Value):
    pass


dtype = DType


def program_id(axis):
    return scalar(K.emit(int32, f"__nvvm_read_ptx_sreg_ctaid_{'xyz'[axis]}()"), int32)


def num_programs(axis):
    return scalar(K.emit(int32, f"__nvvm_read_ptx_sreg_nctaid_{'xyz'[axis]}()"), int32)


def full(shape, value, dtype):
    v = lift(value, dtype)
    v = convert(v, dtype)
    return Value(shape, dtype, v.regs, v.near)


def zeros(shape, dtype=float32):
    return full(shape, 0, dtype)


def zeros_like(x):
    return full(x.shape, 0, x.dtype)


def broadcast_to(x, *shape):
    shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    x = lift(x)
    if x.numel != 1:
        if join(x.shape, tuple(shape)) != tuple(shape):
            raise TypeError(f"{x.shape} does not fit {shape}")
    return Value(shape, x.dtype, x.regs, x.near)


def broadcast(a, b):
    s = join(a.shape, b.shape)
    return broadcast_to(a, s), broadcast_to(b, s)


def reshape(x, *shape):
    shape = tuple(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)
    if [s for s in shape if s != 1] != [s for s in x.shape if s != 1]:
        raise TypeError(f"{x.shape} reshaped to {shape}")
    return Value(shape, x.dtype, x.regs, x.near)


view = reshape


def expand_dims(x, axis):
    s = list(x.shape)
    s.insert(axis, 1)
    return Value(s, x.dtype, x.regs, x.near)


def where(c, a, b):
    a = lift(a, b.dtype if isinstance(b, Value) else None)
    b = lift(b, a.dtype)
    c = convert(lift(c), int1)
    dtype = a.dtype if isinstance(a.dtype, Pointer) else promote(a.dtype, b.dtype)
    if not isinstance(dtype, Pointer):
        a, b = convert(a, dtype), convert(b, dtype)
    shape = join(join(a.shape, b.shape), c.shape)
    near = ("u", 1) if all(x.near and x.near[0] == "u" for x in (a, b, c)) else None
    return Value(shape, dtype, [K.emit(dtype, f"{z} ? {x} : {y}") for x, y, z in zip(a.regs, b.regs, c.regs)], near)


def minimum(a, b):
    m = binary("<", a, b)
    return where(m, a, b)


def maximum(a, b):
    m = binary(">", a, b)
    return where(m, a, b)


def abs_(x):
    x = lift(x)
    if not x.dtype.is_floating():
        return where(x < 0, -x, x)
    return call("fabs", x)


def call(name, *args):
    args = [lift(a) for a in args]
    floats = [a for a in args if a.dtype.is_floating()]
    wide = any(a.dtype is float64 for a in floats)
    integer = {"ldexp": 1, "ilogb": None}
    work = float64 if wide else float32
    cs = [a if name in integer and i == integer[name] else convert(a, work) for i, a in enumerate(args)]
    shape = ()
    for a in args:
        shape = join(shape, a.shape)
    test = name in ("isnan", "isinf", "signbit")
    fn = f"__nv_{name}" + ("d" if test and wide else "f")
    if test:
        fn = {"isnan": "__nv_isnan", "isinf": "__nv_isinf", "signbit": "__nv_signbit"}[name] + ("d" if wide else "f")
    elif wide:
        fn = f"__nv_{name}"
    out = int1 if test else int32 if name == "ilogb" else work
    text = "{}({})" + (" != 0" if test else "")
    return Value(shape, out, [K.emit(out, text.format(fn, ", ".join(rs))) for rs in zip(*(c.regs for c in cs))])


def exp(x):
    """As Triton does: 2 to the power of x log2(e), approximately."""
    x = lift(x)
    if x.dtype is float64:
        return call("exp", x)
    y = convert(x, float32) * 1.4426950408889634
    return Value(y.shape, float32, [K.emit(float32, f"__nvvm_ex2_approx_f({r})") for r in y.regs])


def exp2(x):
    y = convert(lift(x), float32)
    return Value(y.shape, float32, [K.emit(float32, f"__nvvm_ex2_approx_f({r})") for r in y.regs])


def sigmoid(x):
    return 1 / (1 + exp(-x))


class Library:
    """libdevice, and tl.math where it means the same."""

    def __init__(self, special):
        self.special = special

    def __getattr__(self, name):
        return self.special.get(name) or (lambda *args: call(name, *args))


def fma(a, b, c):
    return call("fma", a, b, c)


def umulhi(a, b):
    a, b = lift(a), lift(b)
    if uint64 in (a.dtype, b.dtype):
        return Value(join(a.shape, b.shape), uint64, [K.emit(uint64, f"__nv_umul64hi({x}, {y})") for x, y in zip(a.regs, b.regs)])
    return Value(join(a.shape, b.shape), uint32, [K.emit(uint32, f"__nv_umulhi({x}, {y})") for x, y in zip(convert(a, uint32).regs, convert(b, uint32).regs)])


def llrint(x):
    return Value(x.shape, int64, [K.emit(int64, f"__nv_llrintf({r})") for r in convert(x, float32).regs])


math_ = Library(dict(exp=exp, exp2=exp2, sqrt=lambda x: call("sqrt", x), abs=abs_, fma=fma, umulhi=umulhi, max=maximum, min=minimum))
libdevice = Library(dict(umulhi=umulhi, llrint=llrint, abs=abs_))

# Memory.

WORD = {8: ("b8", "h", "unsigned short"), 16: ("b16", "h", "unsigned short"), 32: ("b32", "r", "unsigned"), 64: ("b64", "l", "unsigned long long")}


def bits_of(dtype, r):
    if dtype is float32:
        return f"__float_as_int({r})"
    if dtype is float64:
        return f"__double_as_longlong({r})"
    if dtype is int1:
        return f"(unsigned char)({r})"
    return f"(unsigned short)({r})" if dtype.primitive_bitwidth == 16 else f"(unsigned char)({r})" if dtype.primitive_bitwidth == 8 else r


def of_bits(dtype, r):
    if dtype is float32:
        return f"__int_as_float({r})"
    if dtype is float64:
        return f"__longlong_as_double({r})"
    if dtype is int1:
        return f"((unsigned char)({r})) != 0"
    return f"({dtype.c})({r})"


def words(dtype, n):
    """How n neighbours travel: words of how many bits, how many words."""
    b = dtype.primitive_bitwidth
    size = 64 if b == 64 else min(32, b * n)
    return size, b * n // size


def together(ptr, mask, *values):
    """Whether a vector of registers can be one access."""
    v, e = K.vector, ptr.dtype.to.primitive_bitwidth // 8
    if v == 1 or ptr.near is None or ptr.near[0] != "c" or ptr.near[1] % v:
        return False
    return mask is None or mask.near is not None and mask.near[0] == "u"


def load(ptr, mask=None, other=None, eviction_policy="", volatile=False, cache_modifier="", boundary_check=None, padding_option=None):
    to = ptr.dtype.to
    ptr, mask, other = operands(ptr, mask, other, to)
    policy = {"evict_last": ".L1::evict_last", "evict_first": ".L1::evict_first"}.get(eviction_policy, "")
    form = "volatile.global" if volatile else "global" + policy
    regs, done = [None] * K.elements, {}
    step = K.vector if together(ptr, mask) else 1
    for k in range(0, K.elements, step):
        m = mask.regs[k] if mask is not None else None
        key = (ptr.regs[k], m)
        if key not in done:
            done[key] = read(to, form, ptr.regs[k], m, [other.regs[k + i] if other is not None else constant(0, to) for i in range(step)])
        regs[k:k + step] = done[key]
    return Value(ptr.shape, to, regs)


def operands(ptr, mask, other, to):
    mask = convert(lift(mask), int1) if mask is not None else None
    other = convert(lift(other), to) if other is not None else None
    shape = ptr.shape
    for x in (mask, other):
        if x is not None:
            shape = join(shape, x.shape)
    return Value(shape, ptr.dtype, ptr.regs, ptr.near), mask, other


def read(to, form, address, mask, others):
    n = len(others)
    size, count = words(to, n)
    kind, constraint, c = WORD[size]
    limit = 128 // max(size, 8)
    parts = []
    for at in range(0, count, limit):
        m = min(limit, count - at)
        names = [K.name() for _ in range(m)]
        per = n // count if count <= n else 1
        for i, name in enumerate(names):
            pieces = others[(at + i) * per:(at + i + 1) * per]
            text = " | ".join(f"(({c}){bits_of(to, p)} << {j * to.primitive_bitwidth})" if j else f"({c}){bits_of(to, p)}" for j, p in enumerate(pieces))
            K.line(f"{c} {name} = {text};")
        dest = "{" + ", ".join(f"%{i}" for i in range(m)) + "}" if m > 1 else "%0"
        vec = f".v{m}" if m > 1 else ""
        outs = ", ".join(f'"+{constraint}"({x})' for x in names)
        where_ = f"[%{m} + {at * size // 8}]"
        if mask is None:
            K.line(f'asm volatile("ld.{form}{vec}.{kind} {dest}, {where_};" : {outs} : "l"({address}));')
        else:
            K.line(f'asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{m + 1}, 0; @p ld.{form}{vec}.{kind} {dest}, {where_}; }}" : {outs} : "l"({address}), "r"((int){mask}));')
        for name in names:
            for j in range(per):
                parts.append(K.emit(to, of_bits(to, f"{name} >> {j * to.primitive_bitwidth}" if j else name), pure=False))
    return parts


def alone(shape):
    """The condition under which a thread stores a value of a shape: nobody before it has the same."""
    bits = list(K.free_bits())
    shape = (1,) * (len(K.tile) - len(shape)) + tuple(shape)
    for d, s in enumerate(shape):
        if s == 1 and K.tile[d] != 1:
            bits += K.thread_bits(d)
    m = sum(1 << b for b in bits)
    return f"(tid & {m}) == 0" if m else None


def firsts(shape):
    """The registers of a thread that hold each value of a shape once."""
    shape = (1,) * (len(K.tile) - len(shape)) + tuple(shape)
    seen, out = set(), []
    for k in range(K.elements):
        key = tuple(K.coordinates[d][k] for d in range(len(K.tile)) if shape[d] != 1)
        if key not in seen:
            seen.add(key)
            out.append(k)
    return out


def store(ptr, value, mask=None, eviction_policy="", cache_modifier="", boundary_check=None):
    to = ptr.dtype.to
    value = convert(lift(value), to)
    ptr, mask, _ = operands(ptr, mask, None, to)
    shape = join(ptr.shape, value.shape)
    only, keep = alone(shape), firsts(shape)
    step = K.vector if together(ptr, mask) and len(keep) == K.elements else 1
    for k in range(0, K.elements, step) if step > 1 else keep:
        conditions = [c for c in (only, mask.regs[k] if mask is not None else None) if c]
        write(to, ptr.regs[k], " & ".join(f"({c})" for c in conditions), value.regs[k:k + step])


def write(to, address, condition, regs):
    n = len(regs)
    size, count = words(to, n)
    kind, constraint, c = WORD[size]
    limit, per = 128 // max(size, 8), n // count
    for at in range(0, count, limit):
        m = min(limit, count - at)
        ins = []
        for i in range(m):
            pieces = regs[(at + i) * per:(at + i + 1) * per]
            text = " | ".join(f"(({c}){bits_of(to, p)} << {j * to.primitive_bitwidth})" if j else f"({c}){bits_of(to, p)}" for j, p in enumerate(pieces))
            ins.append(f'"{constraint}"(({c})({text}))')
        src = "{" + ", ".join(f"%{i + 1}" for i in range(m)) + "}" if m > 1 else "%1"
        vec = f".v{m}" if m > 1 else ""
        head = f"st.global{vec}.{kind} [%0 + {at * size // 8}], {src};"
        if condition:
            K.line(f'asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{m + 1}, 0; @p {head} }}" :: "l"({address}), {", ".join(ins)}, "r"((int)({condition})) : "memory");')
        else:
            K.line(f'asm volatile("{head}" :: "l"({address}), {", ".join(ins)} : "memory");')


def atomic(op, ptr, value, mask=None, sem=None, scope=None):
    to = ptr.dtype.to
    value = convert(lift(value), to)
    ptr, mask, _ = operands(ptr, mask, None, to)
    shape = join(ptr.shape, value.shape)
    only, keep = alone(shape), firsts(shape)
    sem = {None: "acq_rel"}.get(sem, sem)
    b = to.primitive_bitwidth
    kind = {"add": ("f" if to.is_floating() else "u") + str(b), "xchg": f"b{b}", "max": f"s{b}", "min": f"s{b}", "and": f"b{b}", "or": f"b{b}"}[op]
    if to.kind == "u" and op in ("max", "min"):
        kind = f"u{b}"
    noftz = ".noftz" if to in (float16, bfloat16) else ""
    constraint = {16: "h", 32: "f" if to is float32 else "r", 64: "d" if to is float64 else "l"}[b]
    out = [None] * K.elements
    for k in keep:
        name = K.name()
        K.line(f"{to.c} {name} = 0;")
        conditions = [c for c in (only, mask.regs[k] if mask is not None else None) if c]
        c = " & ".join(f"({c})" for c in conditions) or "true"
        K.line(f'asm volatile("{{ .reg .pred p; setp.ne.b32 p, %3, 0; @p atom.global.gpu.{sem}.{op}{noftz}.{kind} %0, [%1 + 0], %2; }}" : "+{constraint}"({name}) : "l"({ptr.regs[k]}), "{constraint}"({value.regs[k]}), "r"((int)({c})) : "memory");')
        for j in range(K.elements):
            if out[j] is None and (len(keep) == K.elements and j == k or len(keep) != K.elements and ptr.regs[j] == ptr.regs[k]):
                out[j] = name
    out = [o or out[keep[0]] for o in out]
    if not shape or all(s == 1 for s in shape):  # a scalar goes to all threads through shared memory
        at = K.scratch(8)
        K.line(f"block_barrier(); if ({only or 'true'}) *({to.c} *)(global_smem + {at}) = {out[0]}; block_barrier();")
        n = K.emit(to, f"*({to.c} *)(global_smem + {at})", pure=False)
        K.line("block_barrier();")
        out = [n] * K.elements
    return Value(shape, to, out)


def atomic_add(ptr, value, mask=None, sem=None, scope=None):
    return atomic("add", ptr, value, mask, sem, scope)


def atomic_max(ptr, value, mask=None, sem=None, scope=None):
    return atomic("max", ptr, value, mask, sem, scope)


def atomic_min(ptr, value, mask=None, sem=None, scope=None):
    return atomic("min", ptr, value, mask, sem, scope)


def atomic_xchg(ptr, value, mask=None, sem=None, scope=None):
    return atomic("xchg", ptr, value, mask, sem, scope)


def debug_barrier():
    K.line("block_barrier();")


def device_assert(cond, msg="", mask=None):
    """Triton leaves assertions out unless it debugs."""


def static_assert(cond, msg=""):
    assert cond, msg


def cdiv(a, b):
    return (a + b - 1) // b


def multiple_of(x, n):
    return x


max_contiguous = multiple_of


def static_range(*args):
    return range(*args)


# Reductions and scans.

def reduce(x, axis, combine, keep_dims=False):
    many = isinstance(x, tuple)
    xs = [lift(v) for v in (x if many else (x,))]
    if axis is None:
        axis = 0
    rank = len(xs[0].shape)
    axis %= rank
    d = axis + len(K.tile) - rank
    def merge(p, q):
        r = combine(*[scalar(a, v.dtype) for a, v in zip(p, xs)], *[scalar(b, v.dtype) for b, v in zip(q, xs)])
        return [convert(lift(o), v.dtype).regs[0] for o, v in zip(r if many else (r,), xs)]
    rows = {}
    others = [e for e in range(len(K.tile)) if e != d]
    for k in range(K.elements):
        key = tuple(K.coordinates[e][k] for e in others)
        row = [v.regs[k] for v in xs]
        rows[key] = merge(rows[key], row) if key in rows else row
    bits = K.thread_bits(d)
    for key in rows:
        for b in (b for b in reversed(bits) if b < 5):
            rows[key] = merge(rows[key], [K.emit(v.dtype, f"shuffle({r}, {1 << b})", pure=False) for r, v in zip(rows[key], xs)])
    warps = [b for b in bits if b >= 5]
    if warps:
        n = 1 << len(warps)
        w = " | ".join(f"((tid >> {b} & 1) << {i})" for i, b in enumerate(warps))
        which = K.emit(int32, w)
        width = math.prod(K.tile[e] for e in others) if others else 1
        quiet = sum(1 << b for b in bits if b < 5) | sum(1 << b for b in K.free_bits())
        offset = K.scratch(0)
        size = sum(max(v.dtype.primitive_bitwidth, 8) // 8 for v in xs) * width * n
        K.scratch(size)
        places = []
        at = offset
        for v in xs:
            places.append(at)
            at += v.dtype.primitive_bitwidth // 8 * width * n
        place = {}
        K.line("block_barrier();")
        for key in rows:
            flat = "0"
            for e, c in zip(others, key):
                flat = f"({flat}) * {K.tile[e]} + {c}"
            place[key] = K.emit(int32, flat)
            for r, v, p in zip(rows[key], xs, places):
                K.line(f"if ((tid & {quiet}) == 0) (({v.dtype.c} *)(global_smem + {p}))[{place[key]} * {n} + {which}] = {r};")
        K.line("block_barrier();")
        for key in rows:
            parts = [[K.emit(v.dtype, f"(({v.dtype.c} *)(global_smem + {p}))[{place[key]} * {n} + {i}]", pure=False) for v, p in zip(xs, places)] for i in range(n)]
            while len(parts) > 1:
                parts = [merge(parts[i], parts[i + len(parts) // 2]) for i in range(len(parts) // 2)]
            rows[key] = parts[0]
        K.line("block_barrier();")
    shape = list(xs[0].shape)
    shape[axis] = 1
    if not keep_dims:
        del shape[axis]
    out = []
    for i, v in enumerate(xs):
        regs = [rows[tuple(K.coordinates[e][k] for e in others)][i] for k in range(K.elements)]
        out.append(Value(shape, v.dtype, regs))
    return tuple(out) if many else out[0]


def sum_(x, axis=None, keep_dims=False, dtype=None):
    x = lift(x)
    if x.dtype in (int1, int8, int16):
        x = convert(x, int32)
    return reduce(x, axis, lambda a, b: a + b, keep_dims)


def max_(x, axis=None, keep_dims=False):
    return reduce(x, axis, maximum, keep_dims)


def min_(x, axis=None, keep_dims=False):
    return reduce(x, axis, minimum, keep_dims)


def associative_scan(x, axis, combine, reverse=False):
    """Every element becomes the combination of all up to it: log2 steps through shared memory."""
    xs = [lift(v) for v in (x if isinstance(x, tuple) else (x,))]
    rank = len(xs[0].shape)
    d = axis % rank + len(K.tile) - rank
    n, size = math.prod(K.tile), K.tile[d]
    places, at = [], K.scratch(0)
    for v in xs:
        places.append(at)
        at += v.dtype.primitive_bitwidth // 8 * n
    K.scratch(at - places[0])
    flat = []
    for k in range(K.elements):
        t = "0"
        for e in range(len(K.tile)):
            t = f"({t}) * {K.tile[e]} + {K.coordinates[e][k]}"
        flat.append(K.emit(int32, t))
    stride = math.prod(K.tile[d + 1:])
    regs = [list(v.regs) for v in xs]
    step = 1
    while step < size:
        K.line("block_barrier();")
        for v, p, rs in zip(xs, places, regs):
            for k, r in enumerate(rs):
                K.line(f"(({v.dtype.c} *)(global_smem + {p}))[{flat[k]}] = {r};")
        K.line("block_barrier();")
        new = [[] for _ in xs]
        for k in range(K.elements):
            c = K.coordinates[d][k]
            ok = K.emit(int1, f"{c} + {step} < {size}" if reverse else f"{c} >= {step}")
            far = K.emit(int32, f"{ok} ? {flat[k]} {'+' if reverse else '-'} {step * stride} : {flat[k]}")
            theirs = [scalar(K.emit(v.dtype, f"(({v.dtype.c} *)(global_smem + {p}))[{far}]", pure=False), v.dtype) for v, p in zip(xs, places)]
            mine = [scalar(rs[k], v.dtype) for v, rs in zip(xs, regs)]
            both = combine(*theirs, *mine)
            both = both if isinstance(both, tuple) else (both,)
            for i, (v, o) in enumerate(zip(xs, both)):
                new[i].append(K.emit(v.dtype, f"{ok} ? {convert(o, v.dtype).regs[0]} : {mine[i].regs[0]}"))
        regs, step = new, step * 2
    K.line("block_barrier();")
    out = tuple(Value(v.shape, v.dtype, rs) for v, rs in zip(xs, regs))
    return out if isinstance(x, tuple) else out[0]


def dot(a, b, acc=None, input_precision=None, allow_tf32=None, out_dtype=None):
    raise NotImplementedError("matrix products")


# Random numbers: Philox 4x32, ten rounds (Salmon et al., SC 2011), as tl.rand does.

def philox(seed, offset):
    seed = convert(lift(seed), uint64)
    c0 = convert(lift(offset), uint32)
    c1 = c2 = c3 = convert(lift(0), uint32)
    k0, k1 = convert(seed, uint32), convert(seed >> 32, uint32)
    for _ in range(10):
        a, b = convert(lift(0xD2511F53), uint32), convert(lift(0xCD9E8D57), uint32)
        old0, old2 = c0, c2
        c0, c2 = umulhi(b, old2) ^ c1 ^ k0, umulhi(a, old0) ^ c3 ^ k1
        c1, c3 = b * old2, a * old0
        k0, k1 = k0 + convert(lift(0x9E3779B9), uint32), k1 + convert(lift(0xBB67AE85), uint32)
    return tuple(broadcast_to(c, join(c.shape, lift(offset).shape)) for c in (c0, c1, c2, c3))


def randint4x(seed, offset, n_rounds=10):
    return philox(seed, offset)


def uint_to_uniform_float(x):
    x = convert(x, int32, bitcast=True)
    return convert(where(x < 0, -x - 1, x), float32) * 4.6566127342e-10


def rand(seed, offset, n_rounds=10):
    return uint_to_uniform_float(philox(seed, offset)[0])


def randn(seed, offset, n_rounds=10):
    a, b, _, _ = philox(seed, offset)
    u, v = maximum(uint_to_uniform_float(a), 1e-7), uint_to_uniform_float(b)
    return call("sqrt", call("log", u) * -2.0) * call("cos", v * 6.283185307179586)


# Control flow.

class Function:
    """A function that kernels call: rewritten like them when it is first called."""

    def __init__(self, fn):
        self.fn, self.new = fn, None

    def __call__(self, *args, **kwargs):
        if self.new is None:
            self.new = rewritten(inspect.getsource(self.fn), self.fn.__name__, self.fn.__globals__)
        return self.new(*args, **kwargs)


class Loop:
    """A for loop. Names that live before it and change in it are kept in C variables."""

    def __init__(self, *bounds):
        start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1) if len(bounds) == 2 else bounds
        self.bounds = [lift(b, int32) for b in (start, stop, step)]
        self.kept, self.opened = {}, False

    def keep(self, name, value):
        if not isinstance(value, Value):
            if not isinstance(value, (int, float)):
                return
            value = lift(value)
        if K.gone.intersection(value.regs):
            return  # belongs to a loop that has ended: nobody reads it again
        slots = {}
        for r in value.regs:
            if r not in slots:
                slots[r] = K.name()
                c = "unsigned long long" if isinstance(value.dtype, Pointer) else value.dtype.c
                K.line(f"{c} {slots[r]} = {r};")
        # registers that are equal before the loop need not stay equal
        if len(slots) < K.elements and value.numel > 1:
            regs = []
            c = "unsigned long long" if isinstance(value.dtype, Pointer) else value.dtype.c
            for r in value.regs:
                n = K.name()
                K.line(f"{c} {n} = {r};")
                regs.append(n)
        else:
            regs = [slots[r] for r in value.regs]
        self.kept[name] = (value, regs)

    def enter(self):
        a, b, c = (x.regs[0] for x in self.bounds)
        i = K.name()
        K.open(f"for (int {i} = {a}; {i} < {b}; {i} += {c})")
        near = ("u", math.gcd(self.bounds[0].near[1], self.bounds[2].near[1]) if self.bounds[0].near and self.bounds[2].near else 1)
        return scalar(K.emit(int32, i, pure=False), int32, near)

    def get(self, name, old):
        if name not in self.kept:
            return old
        v, regs = self.kept[name]
        names = {r: K.emit(v.dtype, r, pure=False) for r in dict.fromkeys(regs)}
        return Value(v.shape, v.dtype, [names[r] for r in regs])

    def put(self, name, value):
        if name not in self.kept:
            return
        v, regs = self.kept[name]
        value = lift(value, v.dtype)
        if not isinstance(v.dtype, Pointer):
            value = convert(value, v.dtype)
        done = set()
        pairs = []
        for slot, r in zip(regs, value.regs):
            if slot not in done:
                done.add(slot)
                pairs.append((slot, r))
        for slot, r in pairs:
            K.line(f"{slot} = {r};")
        if value.numel > v.numel:
            self.kept[name] = (Value(value.shape, v.dtype, v.regs), regs)

    def leave(self):
        K.close()


def loop(*bounds):
    return Loop(*bounds)


class Branch:
    """An if. On a constant only one side happens."""

    def __init__(self, condition):
        self.condition = condition
        self.real = isinstance(condition, Value)

    def then(self):
        if self.real:
            K.open(f"if ({self.condition.regs[0]})")
            return True
        return bool(self.condition)

    def otherwise(self):
        if self.real:
            K.close()
            K.open("else")
            return True
        return not self.condition

    def end(self):
        if self.real:
            K.close()


def branch(condition):
    return Branch(condition)


def both(*xs):
    return functools.reduce(lambda a, b: a & b if isinstance(a, Value) or isinstance(b, Value) else a and b, xs)


def either(*xs):
    return functools.reduce(lambda a, b: a | b if isinstance(a, Value) or isinstance(b, Value) else a or b, xs)


def negated(x):
    return ~convert(x, int1) if isinstance(x, Value) else not x


class Rewrite(ast.NodeTransformer):
    """Makes for and if of a kernel's body calls of loop and branch."""

    def __init__(self):
        self.n = 0

    def names(self, body):
        out = []
        for s in body:
            for n in ast.walk(s):
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id not in out and not n.id.startswith("_hf"):
                    out.append(n.id)
        return out

    def visit_FunctionDef(self, f):
        self.seen = {a.arg for a in f.args.args}
        f.decorator_list = []
        for a in f.args.args:
            a.annotation = None
        f.body = self.block(f.body)
        return f

    def block(self, body):
        out = []
        for s in body:
            r = self.visit(s)
            out += r if isinstance(r, list) else [r]
            self.seen |= set(self.names([s]))
        return out

    def visit_AnnAssign(self, s):
        self.generic_visit(s)
        return ast.Assign(targets=[s.target], value=s.value, lineno=s.lineno)

    def visit_For(self, s):
        if not (isinstance(s.iter, ast.Call) and isinstance(s.iter.func, ast.Name) and s.iter.func.id == "range"):
            return s
        self.n += 1
        l = f"_hf{self.n}"
        kept = [n for n in self.names(s.body) if n in self.seen]
        before = set(self.seen)
        body = self.block(s.body)
        self.seen = before
        s.iter.func = parse("_hf_language.loop", "eval")
        out = [ast.Assign(targets=[ast.Name(l, ast.Store())], value=s.iter)]
        out += parse("".join(f"{l}.keep({n!r}, {n})\n" for n in kept))
        out += parse(f"{s.target.id} = {l}.enter()\n" + "".join(f"{n} = {l}.get({n!r}, {n})\n" for n in kept))
        out += body
        out += parse("".join(f"{l}.put({n!r}, {n})\n" for n in kept) + f"{l}.leave()\n" + "".join(f"{n} = {l}.get({n!r}, {n})\n" for n in kept))
        return out

    def visit_Assign(self, s):
        """A name for a float is a value, and has a shape and a type."""
        self.generic_visit(s)
        if isinstance(s.value, ast.Constant) and isinstance(s.value.value, float):
            call = parse("_hf_language.lift()", "eval")
            call.args = [s.value]
            s.value = call
        return s

    def visit_BoolOp(self, e):
        self.generic_visit(e)
        call = parse("_hf_language.both()" if isinstance(e.op, ast.And) else "_hf_language.either()", "eval")
        call.args = e.values
        return call

    def visit_UnaryOp(self, e):
        self.generic_visit(e)
        if not isinstance(e.op, ast.Not):
            return e
        call = parse("_hf_language.negated()", "eval")
        call.args = [e.operand]
        return call

    def visit_If(self, s):
        self.n += 1
        b = f"_hf{self.n}"
        before = set(self.seen)
        body, other = self.block(s.body), self.block(s.orelse)
        self.seen = before
        out = [ast.Assign(targets=[ast.Name(b, ast.Store())], value=parse("_hf_language.branch(0)", "eval"))]
        out[0].value.args = [self.visit(s.test)]
        out += [ast.If(parse(f"{b}.then()", "eval"), body, []), ast.If(parse(f"{b}.otherwise()", "eval"), other or [ast.Pass()], []), *parse(f"{b}.end()")]
        return out


def parse(text, mode="exec"):
    return ast.parse(text, mode=mode).body


HEAD = """\
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
typedef unsigned short half_bits; typedef unsigned short bf16_bits;
extern "C" {{
{declarations}
extern __shared__ char global_smem[];
__device__ static inline void block_barrier() {{ __nvvm_bar_sync(0); }}
__device__ static inline int __float_as_int(float x) {{ return __builtin_bit_cast(int, x); }}
__device__ static inline float __int_as_float(int x) {{ return __builtin_bit_cast(float, x); }}
__device__ static inline long long __double_as_longlong(double x) {{ return __builtin_bit_cast(long long, x); }}
__device__ static inline double __longlong_as_double(long long x) {{ return __builtin_bit_cast(double, x); }}
__device__ static inline half_bits float16_of(float x) {{ half_bits r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }}
__device__ static inline bf16_bits bfloat16_of(float x) {{ bf16_bits r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }}
__device__ static inline float float_of_float16(half_bits x) {{ float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }}
__device__ static inline float float_of_bfloat16(bf16_bits x) {{ return __int_as_float((int)((unsigned)x << 16)); }}
}}
__device__ static inline int shuffle(int x, int m) {{ return __nvvm_shfl_sync_bfly_i32(-1, x, m, 31); }}
__device__ static inline unsigned shuffle(unsigned x, int m) {{ return shuffle((int)x, m); }}
__device__ static inline bool shuffle(bool x, int m) {{ return shuffle((int)x, m); }}
__device__ static inline signed char shuffle(signed char x, int m) {{ return shuffle((int)x, m); }}
__device__ static inline short shuffle(short x, int m) {{ return shuffle((int)x, m); }}
__device__ static inline unsigned short shuffle(unsigned short x, int m) {{ return shuffle((int)x, m); }}
__device__ static inline float shuffle(float x, int m) {{ return __int_as_float(shuffle(__float_as_int(x), m)); }}
__device__ static inline long long shuffle(long long x, int m) {{ return (unsigned)shuffle((int)x, m) | (long long)shuffle((int)(x >> 32), m) << 32; }}
__device__ static inline double shuffle(double x, int m) {{ return __longlong_as_double(shuffle(__double_as_longlong(x), m)); }}
"""


def declarations(text):
    """What libdevice functions a kernel calls, declared."""
    import re
    out = []
    special = {"__nv_umulhi": "unsigned __nv_umulhi(unsigned, unsigned)", "__nv_umul64hi": "unsigned long long __nv_umul64hi(unsigned long long, unsigned long long)",
               "__nv_llrintf": "long long __nv_llrintf(float)", "__nv_ilogbf": "int __nv_ilogbf(float)", "__nv_ldexpf": "float __nv_ldexpf(float, int)"}
    for name in sorted(set(re.findall(r"__nv_\w+(?=\()", text))):
        sample = re.search(name + r"\(([^()]*)\)", text).group(1)
        n = sample.count(",") + 1
        t = "float" if name.endswith("f") and name not in ("__nv_erf",) else "double"
        r = "int" if name.startswith(("__nv_isnan", "__nv_isinf", "__nv_signbit")) else t
        out.append("__device__ " + special.get(name, f"{r} {name}({', '.join([t] * n)})") + ";")
    return "\n".join(out)


def lower(name, fn, params, constants, tile, order, warps, divisible=()):
    """The C of a kernel: params are (name, "*fp32" or "i32") in order, constants the rest of its arguments."""
    global K
    K = Kernel(tile, order, warps)
    args = {}
    names = []
    for i, (p, t) in enumerate(params):
        d = 16 if i in divisible else 1
        if t.startswith("*"):
            to = SHORT[t[1:]]
            size = to.primitive_bitwidth // 8
            args[p] = scalar(f"p{i}", Pointer(to), ("u", d // size if d > size else 1))
            names.append(f"unsigned long long p{i}")
        else:
            args[p] = scalar(f"p{i}", SHORT[t], ("u", d))
            names.append(f"{SHORT[t].c} p{i}")
    args.update(constants)
    args = {n: v for n, v in args.items() if n in fn.__code__.co_varnames[:fn.__code__.co_argcount]}
    fn(**args)
    body = "\n".join(K.lines)
    text = HEAD.format(declarations=declarations(body))
    text += f'extern "C" __global__ __attribute__((launch_bounds({32 * warps}))) void {name}({", ".join(names)}) {{\n{body}\n}}\n'
    return text, K.highest


def rewritten(source, name, scope):
    """The function of a kernel's source, with control flow rewritten, in a scope of its own."""
    tree = ast.parse(textwrap.dedent(source))
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    tree.body = [ast.fix_missing_locations(Rewrite().visit(f)) for f in functions]
    scope = dict(scope, _hf_language=sys.modules[__name__])
    exec(compile(ast.fix_missing_locations(tree), f"<{name}>", "exec"), scope)
    return scope[name]


def ptx(text, target, clang="clang-19", libdevice_bc=None):
    """C to PTX."""
    cmd = [clang, "-x", "cuda", "--cuda-device-only", f"--cuda-gpu-arch={target}", "-nocudainc", "-nocudalib", "-S", "-O3", "-std=c++17",
           "-Wno-unknown-cuda-version", "-Wno-everything", "-fbracket-depth=4096", "-Xclang", "-target-feature", "-Xclang", "+ptx80", "-fno-gpu-rdc", "-o", "-", "-"]
    if libdevice_bc and "__nv_" in text:
        cmd[-3:-3] = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", libdevice_bc]
    r = subprocess.run(cmd, input=text, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stderr[:3000])
    return r.stdout
