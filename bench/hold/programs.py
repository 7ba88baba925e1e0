"""The programs of the hold benchmark: ordinary PyTorch and CuPy, nothing of holdfast.

Each trains or generates for ever (or --steps), and appends one line a step to --log:
    STEP END_NS VALUE
END_NS is CLOCK_MONOTONIC after the device has finished the step; VALUE is the loss
(or a checksum) with all its bits, as hexadecimal float, so that two runs can be compared.
"""
import argparse
import os
import time


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("program", choices=["resnet", "gpt2", "gpt2-eager", "transformer", "frozen", "cupy"])
    p.add_argument("--steps", type=int, default=1 << 60)
    p.add_argument("--log", required=True)
    p.add_argument("--pad-gib", type=float, default=0, help="grow the resident memory to this with random data")
    p.add_argument("--batch", type=int, default=64)
    return p.parse_args()


class Log:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def step(self, n, value):
        os.write(self.fd, b"%d %d %s\n" % (n, time.monotonic_ns(), float(value).hex().encode()))


def pad(torch, gib):
    """Random data in 1 GiB tensors until `gib` are resident: what weights, caches and optimizer states look like to a
    checkpoint."""
    keep = []
    while torch.cuda.memory_reserved() < gib * 2**30:
        keep.append(torch.empty(2**30, dtype=torch.uint8, device="cuda").random_(0, 256))
    return keep


def setup_torch():
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    return torch


def resnet(a, log, frozen=False):
    torch = setup_torch()
    import torchvision
    model = torchvision.models.resnet50().cuda()
    if frozen:  # fine-tuning: only the last layer learns
        for name, p in model.named_parameters():
            p.requires_grad = name.startswith("fc.")
        model.eval()
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
    lossf = torch.nn.CrossEntropyLoss()
    x = torch.randn(8, a.batch, 3, 224, 224, device="cuda")
    y = torch.randint(0, 1000, (8, a.batch), device="cuda")
    keep = pad(torch, a.pad_gib)
    for n in range(a.steps):
        opt.zero_grad(set_to_none=True)
        loss = lossf(model(x[n % 8]), y[n % 8])
        loss.backward()
        opt.step()
        log.step(n, loss.item())
    return keep


def transformer(a, log):
    torch = setup_torch()
    torch.use_deterministic_algorithms(True, warn_only=True)
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.1, norm_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(32000, 1024),
                                torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False),
                                torch.nn.Linear(1024, 32000)).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randint(0, 32000, (8, 8, 513), device="cuda")

    @torch.compile
    def lossf(tokens):
        with torch.autocast("cuda", torch.bfloat16):
            out = model(tokens[:, :-1])
        return torch.nn.functional.cross_entropy(out.flatten(0, 1).float(), tokens[:, 1:].flatten())

    keep = pad(torch, a.pad_gib)
    for n in range(a.steps):
        opt.zero_grad(set_to_none=True)
        loss = lossf(data[n % 8])
        loss.backward()
        opt.step()
        log.step(n, loss.item())
    return keep


def gpt2(a, log, graph):
    """GPT-2 small (12 layers, 12 heads, 768), random weights, one token a step with a static key/value cache."""
    torch = setup_torch()
    F = torch.nn.functional
    L, H, D, V, T = 12, 12, 768, 50257, 1024
    g = torch.Generator(device="cuda").manual_seed(2)
    w = lambda *s: torch.randn(*s, device="cuda", generator=g, dtype=torch.float16) * 0.02
    wte, wpe = w(V, D), w(T, D)
    layers = [dict(qkv=w(D, 3 * D), o=w(D, D), up=w(D, 4 * D), down=w(4 * D, D),
                   ln=torch.ones(D, device="cuda", dtype=torch.float16)) for _ in range(L)]
    cache = torch.zeros(L, 2, H, T, D // H, device="cuda", dtype=torch.float16)
    token = torch.zeros(1, dtype=torch.long, device="cuda")
    pos = torch.zeros(1, dtype=torch.long, device="cuda")
    where = torch.arange(T, device="cuda")

    def decode():
        h = wte[token] + wpe[pos]
        mask = torch.where(where <= pos, 0.0, float("-inf")).to(torch.float16)
        for i, l in enumerate(layers):
            q, k, v = (F.layer_norm(h, (D,), l["ln"]) @ l["qkv"]).view(3, H, 1, D // H).unbind(0)
            cache[i, 0].index_copy_(1, pos, k)
            cache[i, 1].index_copy_(1, pos, v)
            s = (q @ cache[i, 0].transpose(1, 2)) * (D // H) ** -0.5 + mask
            h = h + (torch.softmax(s.float(), -1).half() @ cache[i, 1]).reshape(1, D) @ l["o"]
            h = h + F.gelu(F.layer_norm(h, (D,), l["ln"]) @ l["up"]) @ l["down"]
        logits = F.layer_norm(h, (D,), l["ln"]) @ wte.t()
        token.copy_(logits.argmax(-1))
        pos.copy_((pos + 1) % T)

    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                decode()
        torch.cuda.synchronize()
        if graph:
            cg = torch.cuda.CUDAGraph()
            with torch.cuda.graph(cg):
                decode()
        keep = pad(torch, a.pad_gib)
        for n in range(a.steps):
            for _ in range(16):
                cg.replay() if graph else decode()
            log.step(n, token.item())
    return keep


def cupy(a, log):
    import cupy as cp
    rng = cp.random.default_rng(3)
    u = rng.standard_normal((4096, 4096), dtype=cp.float32)
    keep = []
    while sum(k.nbytes for k in keep) < a.pad_gib * 2**30:
        keep.append(rng.integers(0, 256, 2**30, dtype=cp.uint8))
    step = cp.ElementwiseKernel("raw float32 u, int32 n", "float32 v", """
        int y = i / n, x = i % n;
        float c = u[i];
        float s = u[((y + 1) % n) * n + x] + u[((y + n - 1) % n) * n + x]
                + u[y * n + (x + 1) % n] + u[y * n + (x + n - 1) % n];
        v = c + 0.2f * (s - 4 * c);""", "stencil")
    for n in range(a.steps):
        for _ in range(50):
            u = step(u, 4096, cp.empty_like(u))
        log.step(n, float(u[n % 4096].sum()))
    return keep


def main():
    a = arguments()
    log = Log(a.log)
    {
        "resnet": lambda: resnet(a, log),
        "frozen": lambda: resnet(a, log, frozen=True),
        "transformer": lambda: transformer(a, log),
        "gpt2": lambda: gpt2(a, log, True),
        "gpt2-eager": lambda: gpt2(a, log, False),
        "cupy": lambda: cupy(a, log),
    }[a.program]()


if __name__ == "__main__":
    main()
