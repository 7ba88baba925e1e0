"""Runs what Inductor compiles for a CUDA device that is not there, and writes down what would be launched.

Tensors are fake (FakeTensorMode): shapes, strides and storages, no contents. Kernels come to Recorder instead of Triton; their
tensors lie in a simulation of PyTorch's caching allocator. Calls of library kernels (matrix products,
convolutions) are launches without a module.
"""
import contextlib
import functools
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "triton"))
import language
import package

package.install()
import torch
import torch._inductor.config as config
import torch.cuda.random
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

DTYPE = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64"}
PROPERTIES = types.SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, regs_per_multiprocessor=65536,
                                   max_threads_per_multi_processor=2048, warp_size=32, total_memory=141 << 30, gcnArchName="")
A100 = dict(name="NVIDIA A100", major=8, minor=0, multi_processor_count=108, total_memory=80 << 30)


class Allocator:
    """Blocks of 512 bytes in segments of 2 MiB, 20 MiB or their own, best fit, split and merged as PyTorch does."""

    def __init__(self):
        self.free, self.segments, self.used = {}, 0, {}

    def malloc(self, size):
        size = max(512, (size + 511) & ~511)
        small = size <= 1 << 20
        fits = [(n, s, o) for (s, o), (n, sm) in self.free.items() if sm == small and n >= size]
        if fits:
            n, s, o = min(fits)
            del self.free[s, o]
        else:
            n = 2 << 20 if small else 20 << 20 if size < 10 << 20 else (size + (2 << 20) - 1) & ~((2 << 20) - 1)
            self.segments += 1
            s, o = self.segments, 0
        rest = n - size
        if rest >= (512 if small else (1 << 20) + 1):
            self.free[s, o + size] = rest, small
            n = size
        self.used[s, o] = n, small
        return s, o, n

    def release(self, s, o):
        n, small = self.used.pop((s, o))
        for (s2, o2), (n2, _) in list(self.free.items()):
            if s2 == s and o2 + n2 == o:
                del self.free[s2, o2]
                o, n = o2, n + n2
        if (s, o + n) in self.free:
            n += self.free.pop((s, o + n))[0]
        self.free[s, o] = n, small


class Recorder:
    """One program: its buffers, modules and launches."""

    def __init__(self, target, out):
        self.target, self.out = target, out
        self.allocator, self.live, self.buffers = Allocator(), {}, {}
        self.modules, self.launches, self.order = {}, {}, []
        self.below, self.kernels, self.failed = {}, {}, {}

    # memory

    def sweep(self):
        for key, (ref, s, o, _) in list(self.live.items()):
            if ref.expired():
                self.allocator.release(s, o)
                del self.live[key]

    def place(self, t):
        """The buffer of a tensor, and its offset in it."""
        storage = t.untyped_storage()
        key = storage._cdata
        if key not in self.live or self.live[key][0].expired():
            self.sweep()
            s, o, n = self.allocator.malloc(storage.nbytes())
            self.live[key] = StorageWeakRef(storage), s, o, n
        _, s, o, n = self.live[key]
        kind = self.kind(t, key)
        name = f"s{s}.{o // 512:x}" + {"f32": "", "bf16": "h", "f16": "h", "f64": "d"}.get(kind if isinstance(kind, str) else "", "i" + str(kind.get("below", "")) if isinstance(kind, dict) else "z")
        b = self.buffers.setdefault(name, {"bytes": n, "init": kind})
        b["bytes"] = max(b["bytes"], n)
        return name, t.storage_offset() * t.element_size()

    def kind(self, t, key):
        if t.dtype in DTYPE:
            return DTYPE[t.dtype]
        if t.dtype in (torch.int64, torch.int32):
            return {"index": "s64" if t.dtype == torch.int64 else "s32", "below": self.below.get(key, 2)}
        return "u8" if t.dtype == torch.uint8 else "zero"

    def index(self, t, below):
        self.below[t.untyped_storage()._cdata] = below
        return t

    # launches

    def add(self, launch):
        key = json.dumps(launch)
        if key in self.launches:
            self.launches[key] += 1
        else:
            self.launches[key] = 1
            self.order.append(key)

    def library(self, name, args):
        out = []
        for a in args:
            if isinstance(a, torch.Tensor):
                b, off = self.place(a)
                out.append({"buf": b, "offset": off} if off else {"buf": b})
        self.add({"module": "", "kernel": name, "grid": [1, 1, 1], "block": [1, 1, 1], "args": out})

    def kernel(self, k, grid, args):
        self.sweep()
        try:
            module, shared = self.module(k)
        except Exception as e:
            if os.environ.get("CORPUS_RAISE"):
                raise
            self.failed.setdefault(f"{type(e).__name__}: {str(e)[:160]}", k.name)
            return
        out = []
        for (p, t), a in zip(k.signature, args):
            if p in k.constants:
                continue
            if isinstance(a, torch.Tensor):
                b, off = self.place(a)
                out.append({"buf": b, "offset": off} if off else {"buf": b})
            else:
                out.append({{"i": "s", "u": "u", "f": "f"}[t[0]] + t.lstrip("iufp"): a})
        self.add({"module": module, "kernel": k.name, "grid": list(grid), "block": [32 * k.config.num_warps, 1, 1], **({"shared": shared} if shared else {}), "args": out})

    def module(self, k):
        if k not in self.kernels:
            self.kernels[k] = None
            self.kernels[k] = k.compile(self.target)
        if self.kernels[k] is None:
            raise RuntimeError("not lowered")
        text, shared = self.kernels[k]
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.modules[digest] = text
        return digest, shared

    def write(self, name, made):
        os.makedirs(os.path.join(self.out, "ptx"), exist_ok=True)
        used = set()
        launches = []
        for key in self.order:
            l = json.loads(key)
            if self.launches[key] > 1:
                l["count"] = self.launches[key]
            launches.append(l)
            used |= {a["buf"] for a in l["args"] if "buf" in a}
        for d, text in self.modules.items():
            with open(os.path.join(self.out, "ptx", f"{d}.ptx.gz"), "wb") as f:
                f.write(gzip.compress(text.encode(), 9, mtime=0))
        app = {"application": name, "family": "inductor", "target": self.target, "made": made,
               "modules": {d: f"ptx/{d}.ptx.gz" for d in sorted(self.modules)},
               "buffers": {b: self.buffers[b] for b in sorted(used)}}
        line = functools.partial(json.dumps, separators=(",", ":"))
        table = lambda d: "{" + ",".join(f"\n{line(k)}:{line(v)}" for k, v in d.items()) + "}"
        text = "{" + ",\n".join(f"{line(k)}:{table(v) if isinstance(v, dict) else line(v)}" for k, v in app.items())
        text += ',\n"launches":[\n' + ",\n".join(map(line, launches)) + "\n]}\n"
        with open(os.path.join(self.out, f"{name}.app.json"), "w") as f:
            f.write(text)
        n = sum(self.launches.values())
        lib = sum(c for k, c in self.launches.items() if json.loads(k)["module"] == "")
        print(f"{name}: {len(self.modules)} kernels, {len(launches)} distinct launches, {n} in all ({lib} without PTX)", flush=True)
        for e, k in self.failed.items():
            print(f"  not lowered: {k}: {e}", flush=True)


recorder = None


class Kernel:
    """What Inductor's decorator makes of a kernel's function."""

    lowered = {}

    def __init__(self, fn, source, configs, triton_meta, inductor_meta, heuristic):
        self.name, self.source, self.scope = fn.__name__, source, fn.__globals__
        self.config, self.meta = configs[0], triton_meta
        self.heuristic, self.inductor_meta = heuristic, inductor_meta
        self.signature = list(triton_meta["signature"].items())
        if isinstance(triton_meta["signature"], dict) and self.signature and isinstance(self.signature[0][0], int):
            names = fn.__code__.co_varnames[:fn.__code__.co_argcount]
            self.signature = [(names[i], t) for i, t in self.signature]
        ones = [c.equal_to_1 for c in triton_meta["configs"]]
        names = [n for n, _ in self.signature]
        self.constants = {names[i if isinstance(i, int) else i[0]]: 1 for i in ones[0]}
        self.constants.update({names[k] if isinstance(k, int) else k: v for k, v in (triton_meta.get("constants") or {}).items()})
        self.constants = {n: v for n, v in self.constants.items() if n in names}
        self.divisible = {i if isinstance(i, int) else i[0] for i in triton_meta["configs"][0].divisible_by_16}

    def compile(self, target):
        key = (self.source, str(self.config.all_kwargs()), target)
        if key in self.lowered:
            return self.lowered[key]
        sizes = dict(self.config.kwargs)
        for m in re.finditer(r"^\s*(\w+): tl\.constexpr = (\d+)$", self.source, re.M):
            sizes.setdefault(m.group(1), int(m.group(2)))
        tile, order = self.tile(sizes)
        fn = language.rewritten(self.body(), self.name, self.scope)
        params = [(n, t) for n, t in self.signature if n not in self.constants]
        index = {n: i for i, (n, _) in enumerate(self.signature)}
        divisible = {i for i, (n, _) in enumerate(params) if index[n] in self.divisible}
        constants = dict(self.constants)
        constants.update(self.config.kwargs)
        c, shared = language.lower(self.name, fn, params, constants, tile, order, self.config.num_warps, divisible)
        if os.environ.get("CORPUS_DEBUG"):
            print(c)
        text = language.ptx(c, target, libdevice_bc=os.environ.get("LIBDEVICE", language.LIBDEVICE))
        self.lowered[key] = text, shared
        return text, shared

    def body(self):
        """The functions of the kernel's source, without imports and decorators."""
        return self.source[min(m.start() for m in re.finditer(r"^(@triton|def )", self.source, re.M)):].replace("@triton_heuristics", "@_")

    def tile(self, sizes):
        """The dimensions of the kernel's tile, from how it indexes tl.arange, and which varies fastest."""
        dims = {}
        rank = 0
        for m in re.finditer(r"tl\.arange\(0, (\w+)\)(\[[^\]]*\])?", self.source):
            index = [x.strip() for x in (m.group(2) or "[:]")[1:-1].split(",") if x.strip()]
            n = sizes[m.group(1)] if not m.group(1).isdigit() else int(m.group(1))
            at = index.index(":")
            rank = max(rank, len(index))
            dims[at] = n
        tile = [dims.get(d, 1) for d in range(rank)]
        order = list(reversed(range(rank)))
        hint = str(self.inductor_meta.get("reduction_hint"))
        if "OUTER" in hint:
            order = list(range(rank))
        return tile, order

    def run(self, *args, grid, stream=None, **_):
        g = grid({**self.config.kwargs}) if callable(grid) else grid
        g = tuple(int(x) for x in g) + (1, 1, 1)
        if recorder is not None:
            recorder.kernel(self, g[:3], args)


class Libraries(TorchDispatchMode):
    """Operations that Inductor leaves to library kernels, seen when the compiled code calls them."""

    VIEWS = {"as_strided", "view", "reshape", "_unsafe_view", "t", "transpose", "permute", "alias", "detach", "slice", "select", "expand", "empty_strided", "empty",
             "unsqueeze", "squeeze", "set_", "sym_size", "sym_stride", "_to_copy", "new_empty_strided", "empty_like", "lift_fresh", "unbind", "split"}

    def __torch_dispatch__(self, func, types_, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1] if hasattr(func, "_schema") else str(func)
        if recorder is not None and name not in self.VIEWS:
            flat = [x for x in torch.utils._pytree.tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor) and x.device.type == "cuda"]
            if flat and "prim" not in str(func):
                unique = []
                for t in flat:
                    if all(t is not u for u in unique):
                        unique.append(t)
                recorder.library("aten." + name, unique)
        return out


class OnCPU(TorchDispatchMode):
    """Constant folding computes with real tensors: they go where there is a device."""

    def __torch_dispatch__(self, func, types_, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)


def guard():
    """guard.cpp as a library."""
    out = os.path.join(tempfile.mkdtemp(), "guard.so")
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-std=c++17", "-o", out, os.path.join(HERE, "guard.cpp"), "-lc10"], check=True)
    return out


def install(target="sm_90"):
    """Makes torch believe in a device, and Inductor hand its kernels over."""
    from torch._inductor.fx_passes import joint_graph, post_grad
    joint_graph.lazy_init()  # traces its patterns: on the CPU, which is there
    post_grad.lazy_init()
    folder = joint_graph.UniformValueConstantFolder
    deduce = folder._deduce_value

    def deduce_on_cpu(self, node):
        with OnCPU():
            return deduce(self, node)

    folder._deduce_value = deduce_on_cpu
    torch.ops.load_library(guard())
    torch._C._set_only_lift_cpu_tensors(True)
    torch._subclasses.fake_tensor.init_gpu_context = lambda device: None
    if target == "sm_80":
        PROPERTIES.__dict__.update(A100)
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.is_initialized = lambda: True
    cuda.synchronize = lambda *a: None
    cuda._lazy_init = lambda: None
    cuda.get_device_properties = lambda *a: PROPERTIES
    cuda.get_device_capability = lambda *a: (PROPERTIES.major, PROPERTIES.minor)
    cuda.get_device_name = lambda *a: PROPERTIES.name
    cuda.is_bf16_supported = lambda *a, **k: True
    cuda.set_device = lambda *a: None
    for m in (cuda, cuda.random):
        m.get_rng_state = lambda *a: torch.zeros(16, dtype=torch.uint8, device="cpu")
        m.set_rng_state = lambda *a: None
    cuda.is_current_stream_capturing = lambda: False
    torch._C._cuda_getCurrentRawStream = lambda i: 0
    from torch._dynamo import device_interface as di
    ci = di.CudaInterface
    for n, f in dict(is_available=lambda: True, current_device=lambda: 0, device_count=lambda: 1, get_compute_capability=lambda *a: 10 * PROPERTIES.major + PROPERTIES.minor,
                     get_raw_stream=lambda i: 0, get_device_properties=lambda *a: PROPERTIES, is_bf16_supported=lambda *a, **k: True, synchronize=lambda *a: None).items():
        setattr(ci, n, staticmethod(f))
    ci.Worker.get_device_properties = staticmethod(lambda *a: PROPERTIES)
    ci.Worker.current_device = staticmethod(lambda: 0)
    import torch._inductor.runtime.triton_heuristics as h
    from torch._inductor import async_compile, codecache, utils

    def cached_autotune(size_hints, configs, triton_meta, heuristic_type, filename=None, inductor_meta=None, custom_kernel=False):
        return lambda fn: Kernel(fn, SOURCE[0], configs, triton_meta, inductor_meta or {}, heuristic_type)

    h.cached_autotune = cached_autotune
    SOURCE = [""]

    def triton(self, name, source, device_str="cuda"):
        SOURCE[0] = source
        scope = {"__name__": name, "__file__": name}
        exec(compile(source, f"<{name}>", "exec"), scope)
        return scope[name]

    async_compile.AsyncCompile.triton = triton
    from torch._inductor.runtime import triton_helpers
    triton_helpers.set_driver_to_gpu = lambda: None
    g = torch._C._dynamo.guards
    g._empty_strided_cuda = lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device="cuda")
    g._reinterpret_tensor = lambda t, size, stride, offset=0: torch.as_strided(t, size, stride, t.storage_offset() + offset)
    cuda._DeviceGuard = lambda i: contextlib.nullcontext()
    cuda.device = lambda i: contextlib.nullcontext()
    torch.utils._triton.triton_hash_with_backend = lambda: "none"
    config.shape_padding = False  # decides by timing
    config.compile_threads = 1
    config.fx_graph_cache = False
    config.triton.cudagraphs = False
    config.fallback_random = False
    config.generate_intermediate_hooks = False
    config.assert_indirect_indexing = False
    config.triton.autotune_at_compile_time = False
    torch.backends.cuda.is_built = lambda: True


class Compiled:
    """A function compiled as torch.compile does it after Dynamo: AOTAutograd, the partitioner, Inductor."""

    def __init__(self, fn, train):
        from functorch.compile import aot_function, min_cut_rematerialization_partition
        from torch._inductor.compile_fx import compile_fx_inner, _recursive_joint_graph_passes
        from torch._inductor.decomposition import select_decomp_table

        def joint(gm):
            values = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder" and "val" in n.meta]
            with V.set_fake_mode(detect_fake_mode(values)):
                _recursive_joint_graph_passes(gm)

        def compiler(backward):
            def compile_(gm, inputs):
                if not train:
                    joint(gm)
                return compile_fx_inner(gm, inputs, is_backward=backward, is_inference=not train, static_input_idxs=())
            return compile_

        def partition(gm, joint_inputs, **kw):
            joint(gm)
            return min_cut_rematerialization_partition(gm, joint_inputs, **kw, compiler="inductor")

        self.context = None
        self.fn = aot_function(fn, fw_compiler=compiler(False), bw_compiler=compiler(True), partition_fn=partition, decompositions=select_decomp_table(),
                               keep_inference_input_mutations=True)

    def __call__(self, *args):
        if self.context is None:  # the first call compiles; forward tells backward the strides that it chose
            self.context = TracingContext(detect_fake_mode(torch.utils._pytree.tree_leaves(args)))
            with tracing(self.context):
                return self.fn(*args)
        return self.fn(*args)


def session(target, out):
    """A fake mode and a recorder for one program."""
    global recorder
    import torch._dynamo
    torch._dynamo.reset()
    recorder = Recorder(target, out)
    return FakeTensorMode(allow_non_fake_inputs=True), recorder
