"""A package named triton for programs that import it where Triton is not installed: what Inductor asks of it, and the
language of language.py. Kernels are never run; whoever installs the package lowers them."""
import sys
import types

import language


def module(name, **names):
    m = types.ModuleType(name)
    m.__dict__.update(names)
    m.__path__ = []
    sys.modules[name] = m
    if "." in name:
        parent, _, leaf = name.rpartition(".")
        setattr(sys.modules[parent], leaf, m)
    return m


class Config:
    """What a kernel is specialised for."""

    def __init__(self, kwargs, num_warps=4, num_stages=2, num_ctas=1, maxnreg=None, pre_hook=None):
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas, self.maxnreg, self.pre_hook = kwargs, num_warps, num_stages, num_ctas, maxnreg, pre_hook

    def all_kwargs(self):
        return {**self.kwargs, "num_warps": self.num_warps, "num_ctas": self.num_ctas, "num_stages": self.num_stages}


class OutOfResources(Exception):
    pass


class CompilationError(Exception):
    pass


class KernelInterface:
    pass


class JITFunction:
    pass


def first_iteration(value, mean, m2, weight, first):
    """Welford's step; the first one starts from zeros and needs no case of its own."""
    delta = value - mean
    new_weight = weight + 1
    new_mean = mean + delta / new_weight
    return new_mean, m2 + delta * (value - new_mean), new_weight


def jit(fn=None, **_):
    if fn is None:
        return jit
    if fn.__name__ == "welford_reduce":
        return first_iteration
    return language.Function(fn) if "<" not in fn.__code__.co_filename else fn


def install():
    if "triton" in sys.modules:
        return
    L = language
    module("triton", jit=jit, Config=Config, cdiv=L.cdiv, next_power_of_2=lambda n: 1 << (n - 1).bit_length(), __version__="0")
    tl = module("triton.language", **{n: getattr(L, n) for n in dir(L) if not n.startswith("_")})
    tl.sum, tl.max, tl.min, tl.abs, tl.math = L.sum_, L.max_, L.min_, L.abs_, L.math_
    tl.pointer_type = L.Pointer
    tl.core = types.SimpleNamespace(_constexpr_to_value=lambda x: x, get_int_dtype=lambda bitwidth, signed: L.SHORT[f"{'i' if signed else 'u'}{bitwidth}"])
    for f in ("sqrt", "log", "log2", "cos", "sin", "rsqrt", "erf", "floor", "ceil"):
        setattr(tl, f, lambda x, f=f: L.call(f, x))
    module("triton.language.extra", libdevice=L.libdevice)
    module("triton.language.extra.libdevice")
    tl.extra.libdevice = L.libdevice
    module("triton.language.standard", _log2=lambda n: n.bit_length() - 1)
    module("triton.compiler", CompiledKernel=object)
    module("triton.compiler.compiler", triton_key=lambda: "none", ASTSource=None, AttrsDescriptor=AttrsDescriptor)
    module("triton.compiler.errors", CompilationError=CompilationError)
    module("triton.runtime")
    module("triton.runtime.autotuner", OutOfResources=OutOfResources, Autotuner=type("Autotuner", (), {}))
    module("triton.runtime.jit", KernelInterface=KernelInterface, JITFunction=JITFunction)
    module("triton.backends")
    module("triton.backends.compiler", GPUTarget=lambda *a: a, AttrsDescriptor=AttrsDescriptor)


class AttrsDescriptor:
    """Which arguments are divisible by 16 and which are 1."""

    def __init__(self, divisible, ones):
        self.divisible_by_16, self.equal_to_1 = tuple(divisible or ()), tuple(ones or ())
        self.property_values = {"tt.divisibility": 16, "tt.equal_to": 1}

    @classmethod
    def from_dict(cls, d):
        return cls(d["arg_properties"]["tt.divisibility"], d["arg_properties"]["tt.equal_to"])

    def to_dict(self):
        return {"arg_properties": {"tt.divisibility": self.divisible_by_16, "tt.equal_to": self.equal_to_1}, "cls": "AttrsDescriptor"}

    def __repr__(self):
        return f"AttrsDescriptor.from_dict({self.to_dict()})"
