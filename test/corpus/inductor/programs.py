"""The programs: which models, at which sizes, and what one step of each does."""
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim._functional as O

import capture
import models as M


def fp(*size, dtype=torch.float32):
    return torch.empty(*size, device="cuda", dtype=dtype)


def ids(rec, below, *size):
    return rec.index(torch.empty(*size, device="cuda", dtype=torch.int64), below)


def build(make, dtype=None, layout=torch.contiguous_format):
    """A model on the device that is not there. Fake tensors cannot move: its tensors are made anew."""
    model = make()
    for m in model.modules():
        for tensors in (m._parameters, m._buffers):
            for k, t in tensors.items():
                if t is not None:
                    new = torch.empty(t.shape, device="cuda", dtype=dtype if dtype and t.is_floating_point() else t.dtype, memory_format=layout if t.dim() == 4 else torch.contiguous_format)
                    tensors[k] = nn.Parameter(new) if tensors is m._parameters else new
    return model


def optimizer(kind, params):
    """Compiled updates of all parameters: (update(grads), state)."""
    params = [p.detach() for p in params]
    like = lambda: [torch.empty_like(p) for p in params]
    steps = [torch.empty((), device="cuda") for _ in params]
    if kind == "sgd":
        state = [like()]

        def update(ps, gs, bufs):
            O.sgd(ps, gs, bufs, weight_decay=1e-4, momentum=0.9, lr=0.1, dampening=0.0, nesterov=True, maximize=False, foreach=True)
            return ()
    elif kind in ("adam", "adamw"):
        state = [like(), like(), steps]
        f = O.adam if kind == "adam" else O.adamw

        def update(ps, gs, m, v, s):
            f(ps, gs, m, v, [], s, foreach=True, capturable=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=1e-3, weight_decay=0.01, eps=1e-8, maximize=False)
            return ()
    elif kind == "rmsprop":
        state = [like(), steps]

        def update(ps, gs, v, s):
            O.rmsprop(ps, gs, v, [], [], s, foreach=True, capturable=True, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False)
            return ()
    elif kind == "lion":  # written out, one parameter after the other
        state = [like()]

        def update(ps, gs, ms):
            for p, g, m in zip(ps, gs, ms):
                p.mul_(1 - 1e-4).sub_(torch.sign(0.9 * m + 0.1 * g) * 1e-4)
                m.lerp_(g, 0.01)
            return ()
    compiled = capture.Compiled(update, False)
    return lambda grads: compiled(params, list(grads), *state)


def train(model, loss, inputs, kind, clip=False):
    """A step: forward, backward, perhaps clipping of gradients, update."""
    named, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    names, params = list(named), list(named.values())

    def forward(ps, bs, *xs):
        call = lambda *a: torch.func.functional_call(model, (dict(zip(names, ps)), dict(zip(buffers, bs))), a)
        return loss(call, *xs)

    f = capture.Compiled(forward, True)
    update = optimizer(kind, params)

    def norm(gs):
        total = torch.stack([g.square().sum() for g in gs]).sum().sqrt()
        return [g * (1.0 / (total + 1e-6)).clamp(max=1.0) for g in gs]

    clipped = capture.Compiled(norm, False)

    def step():
        f(params, list(buffers.values()), *inputs).backward()
        grads = [p.grad for p in params]
        for p in params:
            p.grad = None
        update(clipped(grads) if clip else grads)

    return step


def infer(model, inputs, after=lambda y: y):
    model.eval()
    named = {k: v.detach() for k, v in (*model.named_parameters(), *model.named_buffers())}
    f = capture.Compiled(lambda ps, *xs: after(torch.func.functional_call(model, dict(zip(named, ps)), xs)), False)

    def step():
        with torch.no_grad():
            f(list(named.values()), *inputs)

    return step


def classify(call, x, y):
    return F.cross_entropy(call(x), y)


def speak(call, x, y):
    return F.cross_entropy(call(x).flatten(0, 1).float(), y.flatten())


def resnet(rec, small, kind="sgd", layout=False):
    w, blocks, n, size, classes = (8, (1, 1), 2, 32, 10) if small else (64, (3, 4, 6, 3), 64, 224, 1000)
    layout = torch.channels_last if layout else torch.contiguous_format
    x = torch.empty(n, 3, size, size, device="cuda", memory_format=layout)
    return train(build(lambda: M.ResNet(w, blocks, classes), None, layout), classify, (x, ids(rec, classes, n)), kind)


def resnet_infer(rec, small):
    w, blocks, n, size, classes = (8, (1, 1), 1, 32, 10) if small else (64, (3, 4, 6, 3), 8, 224, 1000)
    return infer(build(lambda: M.ResNet(w, blocks, classes), torch.float16), (fp(n, 3, size, size, dtype=torch.float16),), lambda y: y.softmax(1).max(1))


def mobilenet(rec, small):
    w, depth, n, size, classes = (8, 2, 2, 32, 10) if small else (16, 8, 64, 192, 1000)
    return train(build(lambda: M.MobileNet(w, depth, classes)), classify, (fp(n, 3, size, size), ids(rec, classes, n)), "rmsprop")


def vit(rec, small):
    a, n, size, classes = ((32, 1, 2, 16, 8, 10), 2, 16, 10) if small else ((384, 6, 6, 224, 16, 1000), 32, 224, 1000)
    return train(build(lambda: M.ViT(*a)), classify, (fp(n, 3, size, size), ids(rec, classes, n)), "adamw", True)


def gpt(rec, small, kind="adamw"):
    v, t, d, l, h, n = (64, 16, 32, 1, 2, 2) if small else (50257, 512, 768, 6, 12, 8)
    return train(build(lambda: M.GPT(v, t, d, l, h)), speak, (ids(rec, v, n, t), ids(rec, v, n, t)), kind, True)


def bert(rec, small):
    v, t, d, l, h, n = (64, 16, 32, 1, 2, 2) if small else (30522, 128, 512, 4, 8, 32)
    m = build(lambda: M.BERT(v, t, d, l, h))
    return train(m, lambda call, x, s, y: F.cross_entropy(call(x, s), y), (ids(rec, v, n, t), ids(rec, 2, n, t), ids(rec, 2, n)), "adam")


def llama(rec, small):
    v, t, d, l, h, g, w, n = (64, 16, 32, 1, 4, 2, 64, 2) if small else (32000, 512, 1024, 4, 16, 4, 2816, 2)
    m = build(lambda: M.Llama(v, d, l, h, g, w), torch.bfloat16)
    place = torch.empty(t, dtype=torch.int64, device="cuda")
    rec.index(place, t)
    return train(m, lambda call, x, y, p: F.cross_entropy(call(x, p).flatten(0, 1).float(), y.flatten()), (ids(rec, v, n, t), ids(rec, v, n, t), place), "adamw")


def llama_decode(rec, small):
    """One token more for every sequence, with a cache of keys and values."""
    v, t, d, l, h, g, w, n = (64, 32, 32, 1, 4, 2, 64, 2) if small else (32000, 2048, 1024, 8, 16, 4, 2816, 8)
    m = build(lambda: M.Llama(v, d, l, h, g, w), torch.bfloat16).eval()
    named = {k: p.detach() for k, p in m.named_parameters()}
    caches = [[fp(n, g, t, d // h, dtype=torch.bfloat16) for _ in range(2)] for _ in range(l)]
    place = ids(rec, t, 1)

    def run(ps, cs, x, p):
        y = torch.func.functional_call(m, dict(zip(named, ps)), (x, p, cs))[:, -1]
        y = y / 0.8
        probability = y.float().softmax(1)
        noise = torch.rand_like(probability)
        return (probability / -noise.log()).argmax(1), p + 1

    f, x = capture.Compiled(run, False), ids(rec, v, n, 1)

    def step():
        with torch.no_grad():
            f(list(named.values()), caches, x, place)

    return step


def unet(rec, small):
    c, groups, heads, n, size = (8, 4, 2, 1, 16) if small else (96, 32, 4, 8, 64)
    return train(build(lambda: M.UNet(c, groups, heads)), lambda call, x, t, noise: F.mse_loss(call(x, t), noise),
                 (fp(n, 3, size, size), ids(rec, 1000, n), fp(n, 3, size, size)), "adamw", True)


def unet_sample(rec, small):
    c, groups, heads, n, size = (8, 4, 2, 1, 16) if small else (96, 32, 4, 4, 64)
    m = build(lambda: M.UNet(c, groups, heads), torch.float16).eval()
    named = {k: p.detach() for k, p in m.named_parameters()}

    def run(ps, x, t, a, b):
        e = torch.func.functional_call(m, dict(zip(named, ps)), (x, t)).float()
        x0 = ((x - (1 - a).sqrt() * e) / a.sqrt()).clamp(-1, 1)
        return (b.sqrt() * x0 + (1 - b).sqrt() * e + 0.1 * torch.randn_like(e)).half()

    f, args = capture.Compiled(run, False), (fp(n, 3, size, size, dtype=torch.float16), ids(rec, 1000, n), fp(1), fp(1))

    def step():
        with torch.no_grad():
            f(list(named.values()), *args)

    return step


def recurrent(rec, small, cell):
    i, d, t, n = (8, 16, 4, 2) if small else (256, 512, 32, 64)
    return train(build(lambda: M.Recurrent(cell, i, d, 10)), classify, (fp(n, t, i), ids(rec, 10, n)), "adam", True)


def graph(rec, small):
    n, e, i, d = (32, 64, 8, 16) if small else (16384, 131072, 128, 256)
    return train(build(lambda: M.Graph(i, d, 7)), lambda call, x, s, t, y: F.cross_entropy(call(x, s, t), y),
                 (fp(n, i), ids(rec, n, e), ids(rec, n, e), ids(rec, 7, n)), "adam")


def recommender(rec, small):
    rows, d, tables, dense, n = (50, 8, 2, 4, 4) if small else (100000, 64, 8, 13, 2048)
    return train(build(lambda: M.Recommender(rows, d, tables, dense)), lambda call, x, b, y: F.binary_cross_entropy_with_logits(call(x, b), y),
                 (fp(n, dense), ids(rec, rows, n, tables, 4), fp(n)), "sgd")


def experts(rec, small):
    d, n, tokens = (16, 4, 8) if small else (256, 8, 1024)
    return train(build(lambda: M.Experts(d, n)), lambda call, x, y: F.mse_loss(call(x), y), (fp(tokens, d), fp(tokens, d)), "lion")


def autoencoder(rec, small):
    c, z, size, n = (4, 8, 16, 2) if small else (64, 128, 64, 128)
    return train(build(lambda: M.Autoencoder(c, z, size)), lambda call, x: call(x), (fp(n, 3, size, size),), "adam")


def waves(rec, small):
    c, layers, n, t = (8, 2, 1, 256) if small else (128, 6, 8, 32000)
    return train(build(lambda: M.Waves(c, layers)), lambda call, x: call(x).square().mean(), (fp(n, 1, t),), "adamw", True)


def several(functions):
    """A program of separately compiled functions."""
    fs = [(capture.Compiled(f, False), args) for f, args in functions]

    def step():
        with torch.no_grad():
            for f, args in fs:
                f(*args)

    return step


def arrays(rec, small):
    """What array programs do that models do not: scans, searches, borders, in-place shifts, masks, scatters."""
    n, m = (64, 48) if small else (4096, 3000)
    x, y, z = fp(n, m), fp(n, m), fp(n, m)
    i, j = ids(rec, m, n, m), ids(rec, n, n)
    b16 = fp(n, m, dtype=torch.bfloat16)
    img = fp(2, 3, 20, 24) if small else fp(16, 3, 224, 256)

    def inplace(f):
        def g(*a):
            f(*a)
            return ()
        return g

    return several([
        (lambda x: x.cumsum(1), (x,)), (lambda x: x.cumsum(0), (x,)), (lambda x: x.exp().cumprod(1), (x,)), (lambda x: x.logcumsumexp(1), (x,)),
        (lambda x: (x.amax(1), x.amin(0), x.argmax(0), x.argmin(1)), (x,)), (lambda x: (x.var(1), x.std(0)), (x,)), (lambda x: x.sum(), (x,)), (lambda x: x.double().mean(), (x,)),
        (lambda x: (x > 0).any(1), (x,)), (lambda x: (x > 0).all(0), (x,)), (lambda x: x.prod(1), (x,)), (lambda x: x.norm(dim=1), (x,)), (lambda x: x.logsumexp(1), (x,)), (lambda x: x.logsumexp(0), (x,)),
        (lambda x: x.t().contiguous(), (x,)), (lambda x, y: x.t() + y.reshape(m, n), (x, y)), (lambda x: x.flip(0), (x,)), (lambda x: x.flip(1) + x, (x,)), (lambda x: x.roll(3, 1), (x,)), (lambda x: x.roll(5, 0) * 2, (x,)),
        (lambda x, i: x.gather(1, i), (x, i)), (lambda x, j: x[j], (x, j)), (lambda x, i, y: x.scatter(1, i, y), (x, i, y)), (lambda x, i, y: x.scatter_add(1, i, y), (x, i, y)), (lambda x, j, y: x.index_add(0, j, y), (x, j, y)),
        (lambda x, j, y: x.index_copy(0, j, y), (x, j, y)), (inplace(lambda x, j, y: x.index_put_((j,), y, accumulate=True)), (x, j, y)), (inplace(lambda x, j, y: x.index_put_((j,), y)), (x, j, y)),
        (lambda x, y: torch.cat([x, y], 1), (x, y)), (lambda x, y: torch.cat([x, y, x * y], 0), (x, y)), (lambda x, y: torch.stack([x, y], 2), (x, y)),
        (lambda x: F.pad(x, (3, 5, 1, 2)), (x,)), (lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), (img,)), (lambda x: F.pad(x, (2, 3, 1, 2), mode="replicate"), (img,)), (lambda x: F.pad(x, (2, 3, 1, 2), mode="circular"), (img,)),
        (lambda x: F.avg_pool2d(x, 3, 2, 1), (img,)), (lambda x: F.max_pool2d(x, 2), (img,)), (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (img,)), (lambda x: F.adaptive_avg_pool2d(x, 5), (img,)), (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True), (img,)),
        (lambda x: F.interpolate(x, size=(33, 47), mode="nearest"), (img,)), (lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic"), (img,)), (lambda x: F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2), (img,)), (lambda x: F.unfold(x, 3), (img,)),
        (inplace(lambda x: x.add_(1)), (x,)), (inplace(lambda x, y: x.mul_(y).relu_()), (x, y)), (inplace(lambda x, y: x.copy_(y)), (x, y)), (inplace(lambda x: x[:, 1:].add_(x[:, :-1].clone())), (x,)), (inplace(lambda x: x[1:].mul_(x[:-1].clone())), (x,)), (inplace(lambda x, y: x[::2].copy_(y[1::2])), (x, y)),
        (inplace(lambda x: x.masked_fill_(x < 0, 0.0)), (x,)), (inplace(lambda x: x.zero_()), (z,)), (inplace(lambda x, y: x.lerp_(y, 0.1)), (x, y)), (inplace(lambda x: x.clamp_(-1, 1)), (x,)), (inplace(lambda x: x.triu_(1)), (x,)),
        (lambda x, y: torch.where(x > y, x, y.sin()), (x, y)), (lambda x: x.triu(), (x,)), (lambda x, y: torch.outer(x[0], y[:, 0]), (x, y)), (lambda x, y: (x - y).abs().pow(1.5).mean(1), (x, y)),
        (lambda x: torch.softmax(x.float(), 1).bfloat16(), (b16,)), (lambda x: x.float().square().mean(1).rsqrt(), (b16,)), (lambda x: F.gelu(x), (b16,)), (lambda x: F.layer_norm(x, (m,)), (b16,)), 
        (lambda x: torch.bucketize(x, torch.linspace(-1, 1, 17, device=x.device)), (x,)), (lambda x: F.dropout(x, 0.3), (x,)), (lambda x: torch.rand_like(x) + torch.randn_like(x), (x,)), (lambda x: F.rrelu(x) * x.erf(), (x,)), (lambda x, y: torch.atan2(x, y) + torch.hypot(x, y), (x, y)),
        (lambda x: (x.double() @ x.double().t()[:, :1]).lgamma(), (x,)), (lambda x: torch.linspace(0, 1, m, device=x.device) * x, (x,)), (lambda x: torch.arange(m, device=x.device).remainder(7) + x, (x,)), (lambda i: (i * 31 + 7) % m, (i,)), (lambda i: i // 3 ^ i >> 1, (i,)),
        (lambda i: F.one_hot(i[:, :4], m).sum(1), (i,)), (lambda x: x.diff(dim=1), (x,)), (lambda x: (x[:, 2:] - 2 * x[:, 1:-1] + x[:, :-2]) * 0.25, (x,)), (lambda x: (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]) / 4, (x,)), (lambda x: F.normalize(x, dim=0), (x,)),
        (lambda x: F.smooth_l1_loss(x, x.roll(1, 0)), (x,)), (lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), (x, y)), (lambda x, y: F.cosine_similarity(x, y), (x, y)), (lambda x: F.glu(x, 1), (x,)), (lambda x: F.mish(x) + F.selu(x) + F.softsign(x) + F.logsigmoid(x), (x,)),
    ])


PROGRAMS = {
    "resnet50-train": resnet, "resnet50-channels-last": functools.partial(resnet, kind="adamw", layout=True), "resnet50-infer": resnet_infer, "mobilenet-train": mobilenet, "vit-train": vit,
    "gpt2-train": gpt, "gpt2-train-lion": functools.partial(gpt, kind="lion"), "bert-train": bert, "llama-train": llama, "llama-decode": llama_decode, "unet-train": unet, "unet-sample": unet_sample,
    "lstm-train": functools.partial(recurrent, cell="lstm"), "gru-train": functools.partial(recurrent, cell="gru"), "graph-train": graph, "recommender-train": recommender, "experts-train": experts,
    "autoencoder-train": autoencoder, "waves-train": waves, "arrays": arrays,
}
