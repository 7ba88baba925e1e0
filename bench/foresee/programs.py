"""The programs of the figures on a GPU: ordinary PyTorch, CuPy and JAX, random weights, nothing of holdfast.

    python3 programs.py PROGRAM --log FILE [--steps N] [--device cpu --tiny --eager]

Each works for ever (or --steps), and appends one line a step to --log:
    STEP END_NS VALUE
END_NS is CLOCK_MONOTONIC after the device has finished the step; VALUE is a loss, a checksum or a token with all its
bits. SIGTERM ends a program between two steps. --device cpu --tiny --eager checks shapes where there is no GPU.
"""
import argparse
import hashlib
import itertools
import math
import os
import pathlib
import signal
import sys
import time

NAMES = {}


def program(f):
    NAMES[f.__name__.replace("_", "-")] = f
    return f


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--log")
    p.add_argument("--steps", type=int, default=1 << 60)
    p.add_argument("--out", help="write a digest of all weights to this file at the end (train)")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true", help="sizes for a look at the shapes")
    p.add_argument("--eager", action="store_true", help="without torch.compile")
    p.add_argument("--gemm", choices=["aten", "triton"], default="aten",
                   help="who multiplies matrices in compiled code: libraries, or kernels of Triton")
    p.add_argument("--layers", type=int, default=18, help="of train and decode")
    p.add_argument("--width", type=int, default=4096)
    p.add_argument("--pool-gib", type=float, default=0, help="decode: caches of other sequences")
    p.add_argument("--leave", type=float, default=0.08, help="ballast: the part of the memory that stays free")
    return p.parse_args()


class Log:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if path else 1

    def step(self, n, value):
        text = value if isinstance(value, str) else float(value).hex()
        os.write(self.fd, b"%d %d %s\n" % (n, time.monotonic_ns(), text.encode()))


# PyTorch is imported only by the programs that use it.
torch = F = nn = None


def setup(a, deterministic=False):
    global torch, F, nn
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch as t
    torch, F, nn = t, t.nn.functional, t.nn
    torch.manual_seed(1)
    if a.device == "cuda":
        torch.set_float32_matmul_precision("high")
    if deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        if hasattr(torch.utils, "deterministic"):
            torch.utils.deterministic.fill_uninitialized_memory = False
    if not a.eager:
        import torch._dynamo
        import torch._inductor.config as inductor
        for name in ("recompile_limit", "cache_size_limit"):  # as it is called, and was
            if hasattr(torch._dynamo.config, name):
                setattr(torch._dynamo.config, name, 64)
        if a.gemm == "triton":
            inductor.max_autotune_gemm = True
            inductor.max_autotune_gemm_backends = "TRITON"


def compiled(a, f, **options):
    return f if a.eager else torch.compile(f, **options)


def autocast(a):
    return torch.autocast(a.device, torch.bfloat16, enabled=a.device != "cpu")


def attention(q, k, v):
    """Causal, of (batch, heads, length, width), in operations that compile to kernels of their own instead of a
    library's."""
    n = q.shape[-2]
    s = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    s = s.masked_fill(torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1), float("-inf"))
    return s.softmax(-1).to(v.dtype) @ v


def training(a, model, loss, batches, opt):
    """Steps of training as a generator; loss is compiled."""
    f = compiled(a, loss)
    for n in itertools.count():
        opt.zero_grad(set_to_none=True)
        out = f(model, *(b[n % len(b)] for b in batches))
        out.backward()
        opt.step()
        yield out.item()


# Vision: convolutions come from a library, all between them is compiled.

def residual(a):
    class Block(nn.Module):
        def __init__(self, cin, width, cout, stride):
            super().__init__()
            conv = lambda i, o, k, s=1: nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o))
            self.a, self.b, self.c = conv(cin, width, 1), conv(width, width, 3, stride), conv(width, cout, 1)
            self.short = conv(cin, cout, 1, stride) if stride > 1 or cin != cout else nn.Identity()

        def forward(self, x):
            y = F.relu(self.a(x))
            y = F.relu(self.b(y))
            return F.relu(self.c(y) + self.short(x))
    return Block


def inverted(a):
    class Block(nn.Module):
        def __init__(self, cin, cout, stride, expand=6):
            super().__init__()
            w = cin * expand
            self.f = nn.Sequential(nn.Conv2d(cin, w, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU6(),
                                   nn.Conv2d(w, w, 3, stride, 1, groups=w, bias=False), nn.BatchNorm2d(w), nn.ReLU6(),
                                   nn.Conv2d(w, cout, 1, bias=False), nn.BatchNorm2d(cout))
            self.same = stride == 1 and cin == cout

        def forward(self, x):
            return x + self.f(x) if self.same else self.f(x)
    return Block


def vision(a, body, features, size, batch):
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, 1000)).to(a.device)
    model = model.to(memory_format=torch.channels_last)
    x = [torch.randn(batch, 3, size, size, device=a.device).to(memory_format=torch.channels_last) for _ in range(2)]
    y = [torch.randint(0, 1000, (batch,), device=a.device) for _ in range(2)]

    def loss(model, x, y):
        with autocast(a):
            out = model(x)
        return F.cross_entropy(out.float(), y)
    return training(a, model, loss, (x, y), torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))


@program
def resnet(a):
    setup(a)
    Block = residual(a)
    depths, size, batch = ((1, 1), 32, 2) if a.tiny else ((3, 4, 6, 3), 224, 64)
    body, cin = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for i, n in enumerate(depths):
        for j in range(n):
            body.append(Block(cin, 64 << i, 256 << i, 2 if j == 0 and i > 0 else 1))
            cin = 256 << i
    return vision(a, body, cin, size, batch)


@program
def mobilenet(a):
    setup(a)
    Block = inverted(a)
    size, batch = (32, 2) if a.tiny else (192, 96)
    body, cin = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()], 32
    for cout, n, stride in [(24, 2, 2), (32, 1, 1)] if a.tiny else [(24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1),
            (160, 3, 2)]:
        for j in range(n):
            body.append(Block(cin, cout, stride if j == 0 else 1))
            cin = cout
    return vision(a, body, cin, size, batch)


# Language.

def language(a, model, vocabulary, length, batch, opt):
    data = [torch.randint(0, vocabulary, (batch, length + 1), device=a.device) for _ in range(4)]

    def loss(model, tokens):
        with autocast(a):
            out = model(tokens[:, :-1])
        return F.cross_entropy(out.flatten(0, 1).float(), tokens[:, 1:].flatten())
    return training(a, model, loss, (data,), opt(model.parameters()))


@program
def gpt2(a):
    setup(a)
    layers, width, heads, vocabulary, length, batch = (2, 32, 2, 100, 8, 2) if a.tiny else (12, 768, 12, 50304, 512, 8)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, n, _ = x.shape
            q, k, v = self.qkv(self.ln1(x)).view(b, n, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
            x = x + F.dropout(self.o(attention(q, k, v).transpose(1, 2).reshape(b, n, width)), 0.1)
            return x + F.dropout(self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh")), 0.1)

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks, self.ln = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(width)

        def forward(self, t):
            x = self.wte(t) + self.wpe(torch.arange(t.shape[1], device=t.device))
            for b in self.blocks:
                x = b(x)
            return self.ln(x) @ self.wte.weight.t()
    return language(a, GPT().to(a.device), vocabulary, length, batch, lambda p: torch.optim.AdamW(p, lr=3e-4))


def llama_block(width, heads, kv, ffn):
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            y = x.float()
            return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            d = width // heads
            self.n1, self.n2 = Norm(), Norm()
            lin = lambda i, o: nn.Linear(i, o, bias=False)
            self.q, self.k, self.v, self.o = lin(width, width), lin(width, kv * d), lin(width, kv * d), lin(width,
                    width)
            self.gate, self.up, self.down = lin(width, ffn), lin(width, ffn), lin(ffn, width)

        def forward(self, x, cos, sin):
            b, n, _ = x.shape
            h = self.n1(x)
            split = lambda t, m: t.view(b, n, m, width // heads).transpose(1, 2)
            q, k, v = rotate(split(self.q(h), heads), cos, sin), rotate(split(self.k(h), kv), cos,
                    sin), split(self.v(h), kv)
            if kv != heads:
                k, v = k.repeat_interleave(heads // kv, 1), v.repeat_interleave(heads // kv, 1)
            x = x + self.o(attention(q, k, v).transpose(1, 2).reshape(b, n, width))
            h = self.n2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))
    return Norm, Block


def rotate(x, cos, sin):
    lo, hi = x.chunk(2, -1)
    return torch.cat((lo * cos - hi * sin, hi * cos + lo * sin), -1).to(x.dtype)


def angles(positions, d):
    """Of positions (any shape) for heads of d: cosines and sines, (…, d/2)."""
    f = 1e4 ** (-torch.arange(0, d, 2, device=positions.device, dtype=torch.float32) / d)
    t = positions.float().unsqueeze(-1) * f
    return t.cos(), t.sin()


@program
def llama(a):
    setup(a)
    layers, width, heads, kv, ffn, vocabulary, length, batch = (2, 32, 4, 2, 64, 100, 8, 2) if a.tiny else (10, 1024,
            16, 4, 2816, 32000, 512, 8)
    Norm, Block = llama_block(width, heads, kv, ffn)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(layers)), Norm()

        def forward(self, t):
            cos, sin = angles(torch.arange(t.shape[1], device=t.device), width // heads)
            x = self.wte(t)
            for b in self.blocks:
                x = b(x, cos, sin)
            return self.head(self.norm(x))
    return language(a, Llama().to(a.device), vocabulary, length, batch, lambda p: torch.optim.Adam(p, lr=3e-4))


@program
def decode(a):
    """A llama of 8 billion weights (32 layers, 4096) that generates, one token at a time. Matrix times vector is
    written as multiply and sum, which compiles to kernels with PTX; --eager multiplies with a library. What goes with a
    position is copied from pinned memory of the host in each step, as servers do. Other sequences have their caches in
    the same pool."""
    setup(a)
    layers, width, heads, kv, ffn, vocabulary, length = (2, 32, 4, 2, 64, 100, 16) if a.tiny else (a.layers, a.width,
            32, 8, 14336, 128256, 2048)
    d = width // heads
    kind = torch.float32 if a.device == "cpu" else torch.bfloat16
    w = lambda *s: torch.empty(*s, device=a.device, dtype=kind).normal_(0, 0.02)
    blocks = [dict(q=w(width, width), k=w(kv * d, width), v=w(kv * d, width), o=w(width, width), gate=w(ffn, width),
                   up=w(ffn, width), down=w(width, ffn),
                   n1=torch.ones(width, device=a.device, dtype=kind), n2=torch.ones(width, device=a.device, dtype=kind))
                   for _ in range(layers)]
    wte, head, norm = w(vocabulary, width), w(vocabulary, width), torch.ones(width, device=a.device, dtype=kind)
    caches = [torch.zeros(2, kv, length, d, device=a.device, dtype=kind) for _ in range(layers)]
    others = [torch.empty(2**30, dtype=torch.uint8, device=a.device).random_(0, 256) for _ in range(int(a.pool_gib))]
    pinned = (lambda t: t.pin_memory()) if a.device == "cuda" else lambda t: t
    places = torch.arange(length).view(length, 1)
    turns = pinned(torch.stack(angles(places, d), 1))  # (length, 2, 1, d/2)
    places = pinned(places)
    token, pos = torch.zeros(1, dtype=torch.long, device=a.device), torch.zeros(1, dtype=torch.long, device=a.device)
    turn = torch.zeros(turns.shape[1:], device=a.device)
    mul = (lambda m, x: x @ m.t()) if a.eager else (lambda m, x: (m.float() * x.float()).sum(-1).to(x.dtype))

    def rms(x, g):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * g

    def block(x, b, cache, pos, turn):
        cos, sin = turn[0], turn[1]
        h = rms(x, b["n1"])
        q = rotate(mul(b["q"], h).view(heads, d), cos, sin)
        cache[0].index_copy_(1, pos, rotate(mul(b["k"], h).view(kv, 1, d), cos, sin))
        cache[1].index_copy_(1, pos, mul(b["v"], h).view(kv, 1, d))
        q = q.view(kv, heads // kv, 1, d).float()
        s = (q * cache[0].unsqueeze(1).float()).sum(-1) * d ** -0.5
        s = torch.where(torch.arange(length, device=x.device) <= pos, s, float("-inf")).softmax(-1)
        x = x + mul(b["o"], (s.unsqueeze(-1) * cache[1].unsqueeze(1).float()).sum(-2).reshape(width).to(x.dtype))
        h = rms(x, b["n2"])
        return x + mul(b["down"], F.silu(mul(b["gate"], h)) * mul(b["up"], h))

    def last(x, token):
        token.copy_(mul(head, rms(x, norm)).argmax(-1, keepdim=True))

    first, block, last = compiled(a, lambda token: wte.index_select(0, token)[0]), compiled(a, block), compiled(a, last)
    with torch.no_grad():
        for n in itertools.count():
            pos.copy_(places[n % length], non_blocking=True)
            turn.copy_(turns[n % length], non_blocking=True)
            x = first(token)
            for b, cache in zip(blocks, caches):
                x = block(x, b, cache, pos, turn)
            last(x, token)
            yield token.item()
            assert others is not None


# Diffusion.

@program
def unet(a):
    setup(a)
    widths, size, batch = ((32, 64), 16, 1) if a.tiny else ((128, 256, 384), 64, 4)
    emb = widths[0] * 4

    class Res(nn.Module):
        def __init__(self, cin, cout):
            super().__init__()
            self.n1, self.n2 = nn.GroupNorm(32, cin), nn.GroupNorm(32, cout)
            self.c1, self.c2 = nn.Conv2d(cin, cout, 3, 1, 1), nn.Conv2d(cout, cout, 3, 1, 1)
            self.t = nn.Linear(emb, cout)
            self.short = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

        def forward(self, x, t):
            h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
            return self.short(x) + self.c2(F.silu(self.n2(h)))

    class Attend(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.n, self.qkv, self.o = nn.GroupNorm(32, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

        def forward(self, x):
            b, c, h, w = x.shape
            q, k, v = self.qkv(self.n(x)).view(b, 3, c, h * w).unbind(1)
            s = (q.transpose(1, 2) @ k * c ** -0.5).float().softmax(-1).to(v.dtype)
            return x + self.o((v @ s.transpose(1, 2)).view(b, c, h, w))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(widths[0], emb), nn.SiLU(), nn.Linear(emb, emb))
            self.begin, self.end = nn.Conv2d(4, widths[0], 3, 1, 1), nn.Conv2d(widths[0], 4, 3, 1, 1)
            pairs = list(zip((widths[0],) + widths[:-1], widths))
            self.down = nn.ModuleList(Res(i, o) for i, o in pairs)
            self.pool = nn.ModuleList(nn.Conv2d(o, o, 3, 2, 1) for _, o in pairs)
            self.mid, self.attend, self.mid2 = Res(widths[-1], widths[-1]), Attend(widths[-1]), Res(widths[-1],
                    widths[-1])
            self.up = nn.ModuleList(Res(2 * o, i) for i, o in reversed(pairs))

        def forward(self, x, t):
            f = torch.exp(-math.log(1e4) * torch.arange(widths[0] // 2, device=x.device) / (widths[0] // 2))
            t = self.time(torch.cat((torch.sin(t[:, None] * f), torch.cos(t[:, None] * f)), -1))
            h, saved = self.begin(x), []
            for down, pool in zip(self.down, self.pool):
                h = down(h, t)
                saved.append(h)
                h = pool(h)
            h = self.mid2(self.attend(self.mid(h, t)), t)
            for up in self.up:
                h = up(torch.cat((F.interpolate(h, scale_factor=2.0), saved.pop()), 1), t)
            return self.end(F.silu(h))

    model = UNet().to(a.device).eval()
    alpha = torch.cos(torch.linspace(0, 1.55, 51, device=a.device)) ** 2

    def sample(x, t, now, then):  # a step of DDIM
        with autocast(a):
            e = model(x, t).float()
        x0 = ((x - (1 - now).sqrt() * e) / now.sqrt()).clamp(-3, 3)
        return then.sqrt() * x0 + (1 - then).sqrt() * e

    sample = compiled(a, sample)
    with torch.no_grad():
        while True:
            x = torch.randn(batch, 4, size, size, device=a.device)
            for i in range(49, 0, -1):
                x = sample(x, torch.full((batch,), 20.0 * i, device=a.device), alpha[i], alpha[i - 1])
                yield x.mean().item()


# Recurrent: the cells are compiled, the time is a loop of Python.

@program
def recurrent(a):
    setup(a)
    width, batch, length, classes = (16, 2, 4, 5) if a.tiny else (1024, 256, 32, 100)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.x1, self.h1 = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
            self.x2, self.h2 = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)
            self.head = nn.Linear(width, classes)

    m = Model().to(a.device)

    def cells(x, g, h, c):  # a GRU under an LSTM
        r, z, n = m.x1(x).chunk(3, -1)
        hr, hz, hn = m.h1(g).chunk(3, -1)
        z = torch.sigmoid(z + hz)
        g = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * g
        i, f, o, u = (m.x2(g) + m.h2(h)).chunk(4, -1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(u)
        return g, torch.sigmoid(o) * torch.tanh(c), c

    cells = compiled(a, cells)
    x = torch.randn(length, batch, width, device=a.device)
    y = torch.randint(0, classes, (batch,), device=a.device)
    opt = torch.optim.RMSprop(m.parameters(), lr=1e-4)
    while True:
        g, h, c = (torch.zeros(batch, width, device=a.device) for _ in range(3))
        for t in range(length):
            g, h, c = cells(x[t], g, h, c)
        loss = F.cross_entropy(m.head(h), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        yield loss.item()


# Graphs: messages along edges, by gathering and adding.

@program
def graph(a):
    setup(a)
    nodes, edges, width, layers, classes = (20, 50, 8, 2, 3) if a.tiny else (100_000, 1_000_000, 128, 3, 40)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.self_ = nn.Linear(width, width, bias=False), nn.Linear(width, width)
            self.from_, self.to_ = nn.Parameter(torch.randn(width) * 0.1), nn.Parameter(torch.randn(width) * 0.1)

        def forward(self, x, src, dst):
            h = self.w(x)
            e = F.leaky_relu((h @ self.from_)[src] + (h @ self.to_)[dst], 0.2).clamp(max=10).exp()
            norm = torch.zeros(x.shape[0], device=x.device).index_add(0, dst, e)
            m = h[src] * (e / (norm[dst] + 1e-9)).unsqueeze(-1)
            return F.elu(torch.zeros_like(h).index_add(0, dst, m) + self.self_(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = nn.ModuleList(Layer() for _ in range(layers)), nn.Linear(width, classes)

        def forward(self, x, src, dst):
            for f in self.layers:
                x = f(x, src, dst)
            return self.head(x)

    x = [torch.randn(nodes, width, device=a.device)]
    src, dst = [torch.randint(0, nodes, (edges,), device=a.device)], [torch.randint(0, nodes, (edges,),
            device=a.device)]
    y = [torch.randint(0, classes, (nodes,), device=a.device)]
    model = Net().to(a.device)
    return training(a, model, lambda model, x, src, dst, y: F.cross_entropy(model(x, src, dst), y), (x, src, dst, y),
                    torch.optim.Adagrad(model.parameters(), lr=1e-2))


# Optimizers: each compiled as a whole.

@program
def optimizers(a):
    setup(a)
    shapes = [(8, 8), (8,), (16, 3)] if a.tiny else [(1024, 1024), (1024,), (4096, 1024), (1024, 4096), (333,),
                                                     (257, 129)] * 2
    o = torch.optim
    makers = [lambda p: o.SGD(p, lr=1e-2, momentum=0.9, nesterov=True, weight_decay=1e-4), lambda p: o.Adam(p, lr=1e-3),
              lambda p: o.AdamW(p, lr=1e-3, amsgrad=True),
              lambda p: o.RMSprop(p, lr=1e-3, centered=True, momentum=0.9), lambda p: o.Adagrad(p, lr=1e-2),
              lambda p: o.Adamax(p, lr=1e-3)]
    steps = []

    def stepper(opt):
        def step():
            opt.step()
        return compiled(a, step)

    for make in makers:
        params = [torch.randn(*s, device=a.device, requires_grad=True) for s in shapes]
        opt = make(params)
        f = stepper(opt)
        try:
            for p in params:
                p.grad = torch.randn_like(p)
            f()
        except Exception as e:  # one that this PyTorch cannot compile
            print(f"optimizers: without {type(opt).__name__}: {str(e)[:300]}", file=sys.stderr)
            continue
        steps.append((params, f))
    while True:
        for params, f in steps:
            with torch.no_grad():
                for p in params:
                    p.grad.mul_(0.5).add_(p, alpha=0.1)
            f()
        yield sum(float(ps[0][0].sum()) for ps, _ in steps)


# Without PyTorch.

@program
def cupy(a):
    import cupy as cp
    n = 256 if a.tiny else 4096
    rng = cp.random.default_rng(3)
    u = rng.standard_normal((n, n), dtype=cp.float32)
    stencil = cp.ElementwiseKernel("raw float32 u, int32 n", "float32 v", """
        int y = i / n, x = i % n;
        float c = u[i];
        float s = u[((y + 1) % n) * n + x] + u[((y + n - 1) % n) * n + x]
                + u[y * n + (x + 1) % n] + u[y * n + (x + n - 1) % n];
        v = c + 0.2f * (s - 4 * c);""", "stencil")
    norm = cp.ReductionKernel("float32 x", "float32 y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    bins = cp.RawKernel(r"""extern "C" __global__ void bins(const float *x, unsigned *h, int n) {
        __shared__ unsigned s[256];
        for (int i = threadIdx.x; i < 256; i += blockDim.x) s[i] = 0;
        __syncthreads();
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            atomicAdd(&s[min(255, max(0, (int)(x[i] * 32 + 128)))], 1u);
        __syncthreads();
        for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&h[i], s[i]);
    }""", "bins")
    while True:
        for _ in range(20):
            u = stencil(u, n, cp.empty_like(u))
        h = cp.zeros(256, dtype=cp.uint32)
        bins((512,), (256,), (u, h, np32(u.size)))
        yield float(norm(u)) + float(h[128])


def np32(n):
    import numpy as np
    return np.int32(n)


@program
def jax(a):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax as j
    import jax.numpy as np
    width, layers, batch = (32, 2, 4) if a.tiny else (1024, 6, 512)
    key = j.random.PRNGKey(0)
    p = [(j.random.normal(j.random.fold_in(key, i), (width, width)) * width ** -0.5, np.zeros(width))
         for i in range(layers)]
    x, y = j.random.normal(key, (batch, width)), j.random.normal(j.random.fold_in(key, 99), (batch, width))

    def loss(p, x, y):
        for w, b in p:
            h = x @ w + b
            x = x + j.nn.gelu((h - h.mean(-1, keepdims=True)) * j.lax.rsqrt(h.var(-1, keepdims=True) + 1e-5))
        return ((j.nn.softmax(x) - j.nn.softmax(y)) ** 2).mean() + 1e-6 * sum((w ** 2).sum() for w, _ in p)

    @j.jit
    def step(p, m, x, y):
        v, g = j.value_and_grad(loss)(p, x, y)
        m = j.tree_util.tree_map(lambda m, g: 0.9 * m + g, m, g)
        return j.tree_util.tree_map(lambda p, m: p - 1e-2 * m, p, m), m, v

    m = j.tree_util.tree_map(np.zeros_like, p)
    while True:
        for _ in range(10):
            p, m, v = step(p, m, x, y)
        yield float(v)


# Copy on write and restore on demand: a transformer with Adam of any size, deterministic. Its blocks, its head and its
# optimizer are compiled each for itself, so that many layers compile as fast as one.

@program
def train(a):
    setup(a, deterministic=True)
    width, heads, ffn, vocabulary, length, batch = (32, 4, 64, 100, 8, 2) if a.tiny else (a.width, a.width // 128,
            a.width * 43 // 16, 32000, 512, 4)
    layers = 2 if a.tiny else a.layers
    Norm, Block = llama_block(width, heads, heads, ffn)
    with torch.device(a.device) if hasattr(torch, "get_default_device") else contextless():
        wte, blocks = nn.Embedding(vocabulary, width), nn.ModuleList(Block() for _ in range(layers))
        norm, head = Norm(), nn.Linear(width, vocabulary, bias=False)
    model = nn.ModuleList((wte, blocks, norm, head)).to(a.device)
    params = list(model.parameters())
    m, v = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
    data = [torch.randint(0, vocabulary, (batch, length + 1), device=a.device) for _ in range(8)]
    cos, sin = angles(torch.arange(length, device=a.device), width // heads)
    one = torch.ones((), device=a.device)  # what changes from step to step lives on the device

    def tail(x, y):
        with autocast(a):
            out = head(norm(x))
        return F.cross_entropy(out.flatten(0, 1).float(), y.flatten())

    def adam(p, g, m, v, t):
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.95).addcmul_(g, g, value=0.05)
        p.sub_(1e-4 * (m / (1 - 0.9 ** t)) / ((v / (1 - 0.95 ** t)).sqrt() + 1e-8))

    if not a.eager:
        for b in blocks:
            b.compile()
    embed, tail, adam = compiled(a, lambda t: wte(t)), compiled(a, tail), compiled(a, adam, dynamic=True)
    digest = compiled(a, lambda x: x.sum(dtype=torch.int64), dynamic=True)
    t = one.clone()
    for n in itertools.count():
        tokens = data[n % len(data)]
        x = embed(tokens[:, :-1])
        with autocast(a):
            for b in blocks:
                x = b(x, cos, sin)
        loss = tail(x, tokens[:, 1:])
        loss.backward()
        with torch.no_grad():
            for p, pm, pv in zip(params, m, v):
                adam(p.detach().view(-1), p.grad.view(-1), pm.view(-1), pv.view(-1), t)
                p.grad = None
            t += one
        text = float(loss.item()).hex()
        if n % 8 == 7 or n + 1 == a.steps:  # every bit of the weights and moments, now and then
            sums = torch.stack([digest(x.detach().view(-1).view(torch.int32)) for x in itertools.chain(params, m,
                    v)]).cpu().tolist()
            text += "/" + hashlib.sha256(repr(sums).encode()).hexdigest()[:16]
        if n + 1 == a.steps and a.out:
            h = hashlib.sha256()
            for x in itertools.chain(params, m, v):
                h.update(x.detach().cpu().numpy().tobytes())
            pathlib.Path(a.out).write_text(f"{h.hexdigest()} {text}\n")
        yield text


class contextless:
    def __enter__(self): pass
    def __exit__(self, *_): pass


# A neighbour: holds memory of the GPU until so much is left, and says so.

@program
def ballast(a):
    setup(a)
    keep, mib = [], 256
    while True:
        free, total = torch.cuda.mem_get_info()
        if free - mib * 2**20 < a.leave * total:
            break
        keep.append(torch.empty(mib * 2**20, dtype=torch.uint8, device="cuda"))
    while True:
        yield torch.cuda.mem_get_info()[0] / total
        time.sleep(0.2)
        assert keep is not None


def main():
    a = arguments()
    if a.program not in NAMES:
        raise SystemExit(f"programs.py: no program {a.program}: have {', '.join(NAMES)}")
    over = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(1))
    log = Log(a.log)
    for n, value in zip(range(a.steps), NAMES[a.program](a)):
        log.step(n, value)
        if over:
            break


if __name__ == "__main__":
    main()
