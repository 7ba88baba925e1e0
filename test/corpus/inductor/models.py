"""The models whose kernels are compiled, written for this corpus in plain torch.nn."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    """A bottleneck, or two 3x3 convolutions, around a shortcut."""

    def __init__(self, cin, mid, cout, stride):
        super().__init__()
        self.a = nn.Conv2d(cin, mid, 1, bias=False)
        self.an = nn.BatchNorm2d(mid)
        self.b = nn.Conv2d(mid, mid, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(mid)
        self.c = nn.Conv2d(mid, cout, 1, bias=False)
        self.cn = nn.BatchNorm2d(cout)
        self.short = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)) if stride != 1 or cin != cout else nn.Identity()

    def forward(self, x):
        y = F.relu(self.an(self.a(x)))
        y = F.relu(self.bn(self.b(y)))
        return F.relu(self.cn(self.c(y)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, width, blocks, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        layers, cin = [], width
        for i, n in enumerate(blocks):
            for j in range(n):
                layers.append(Residual(cin, width << i, 4 * width << i, 2 if j == 0 and i else 1))
                cin = 4 * width << i
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(cin, classes)

    def forward(self, x):
        return self.head(self.layers(self.stem(x)).mean((2, 3)))


class SqueezeExcite(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, max(c // 4, 1), 1), nn.Conv2d(max(c // 4, 1), c, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.b(F.relu(self.a(x.mean((2, 3), keepdim=True)))))


class MobileNet(nn.Module):
    def __init__(self, width, depth, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.Hardswish())
        layers, c = [], width
        for i in range(depth):
            out = c * 2 if i % 2 else c
            layers.append(nn.Sequential(nn.Conv2d(c, 4 * c, 1, bias=False), nn.BatchNorm2d(4 * c), nn.Hardswish(),
                                        nn.Conv2d(4 * c, 4 * c, 3, 2 if i % 2 else 1, 1, groups=4 * c, bias=False), nn.BatchNorm2d(4 * c), nn.ReLU6(),
                                        SqueezeExcite(4 * c), nn.Conv2d(4 * c, out, 1, bias=False), nn.BatchNorm2d(out)))
            c = out
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(c, classes)

    def forward(self, x):
        return self.head(F.dropout(self.layers(self.stem(x)).mean((2, 3)), 0.2, self.training))


class Attention(nn.Module):
    def __init__(self, d, heads, causal=False, p=0.0):
        super().__init__()
        self.qkv, self.out, self.heads, self.causal, self.p = nn.Linear(d, 3 * d), nn.Linear(d, d), heads, causal, p

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in self.qkv(x).split(d, 2))
        a = q @ k.transpose(2, 3) / math.sqrt(d // self.heads)
        if self.causal:
            a = a.masked_fill(torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1), -math.inf)
        a = F.dropout(a.softmax(3), self.p, self.training)
        return F.dropout(self.out((a @ v).transpose(1, 2).reshape(b, t, d)), self.p, self.training)


class Layer(nn.Module):
    def __init__(self, d, heads, causal, p, tanh=False):
        super().__init__()
        self.n1, self.att, self.n2 = nn.LayerNorm(d), Attention(d, heads, causal, p), nn.LayerNorm(d)
        self.up, self.down, self.p, self.tanh = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), p, tanh

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + F.dropout(self.down(F.gelu(self.up(self.n2(x)), approximate="tanh" if self.tanh else "none")), self.p, self.training)


class ViT(nn.Module):
    def __init__(self, d, layers, heads, size, patch, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, d, patch, patch)
        self.token, self.place = nn.Parameter(torch.empty(1, 1, d)), nn.Parameter(torch.empty(1, (size // patch) ** 2 + 1, d))
        self.layers, self.norm, self.head = nn.Sequential(*(Layer(d, heads, False, 0.0) for _ in range(layers))), nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.norm(self.layers(x))[:, 0])


class GPT(nn.Module):
    def __init__(self, vocabulary, context, d, layers, heads, p=0.1):
        super().__init__()
        self.word, self.place, self.p = nn.Embedding(vocabulary, d), nn.Embedding(context, d), p
        self.layers, self.norm = nn.Sequential(*(Layer(d, heads, True, p, True) for _ in range(layers))), nn.LayerNorm(d)

    def forward(self, ids):
        x = self.word(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        x = self.norm(self.layers(F.dropout(x, self.p, self.training)))
        return x @ self.word.weight.t()


class BERT(nn.Module):
    """An encoder with a mask, segment embeddings and a pooled answer."""

    def __init__(self, vocabulary, context, d, layers, heads):
        super().__init__()
        self.word, self.segment, self.place = nn.Embedding(vocabulary, d, padding_idx=0), nn.Embedding(2, d), nn.Parameter(torch.empty(context, d))
        self.norm, self.heads = nn.LayerNorm(d), heads
        self.layers = nn.ModuleList(nn.ModuleList([nn.Linear(d, 3 * d), nn.Linear(d, d), nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.LayerNorm(d)]) for _ in range(layers))
        self.pool, self.head = nn.Linear(d, d), nn.Linear(d, 2)

    def forward(self, ids, segments):
        keep = (ids != 0)[:, None, None, :]
        x = self.norm(self.word(ids) + self.segment(segments) + self.place[:ids.shape[1]])
        b, t, d = x.shape
        for qkv, out, n1, up, down, n2 in self.layers:
            q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in qkv(x).chunk(3, 2))
            a = (q @ k.transpose(2, 3) * (d // self.heads) ** -0.5).masked_fill(~keep, -1e4).softmax(3)
            x = n1(x + F.dropout(out((a @ v).transpose(1, 2).reshape(b, t, d)), 0.1, self.training))
            x = n2(x + F.dropout(down(F.gelu(up(x))), 0.1, self.training))
        return self.head(torch.tanh(self.pool(x[:, 0])))


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def rotate(x, place):
    """Rotary embedding by halves; x is (batch, heads, time, width)."""
    h = x.shape[-1] // 2
    f = 10000.0 ** (-torch.arange(h, device=x.device, dtype=torch.float32) / h)
    angle = place[:, None].float() * f
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :h], x[..., h:]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


class LlamaLayer(nn.Module):
    def __init__(self, d, heads, groups, hidden):
        super().__init__()
        w = d // heads
        self.heads, self.groups, self.w = heads, groups, w
        self.n1, self.n2 = RMSNorm(d), RMSNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, n, bias=False) for n in (d, groups * w, groups * w, d))
        self.gate, self.up, self.down = nn.Linear(d, hidden, bias=False), nn.Linear(d, hidden, bias=False), nn.Linear(hidden, d, bias=False)

    def forward(self, x, place, cache=None):
        b, t, d = x.shape
        h = self.n1(x)
        q = rotate(self.q(h).view(b, t, self.heads, self.w).transpose(1, 2), place)
        k = rotate(self.k(h).view(b, t, self.groups, self.w).transpose(1, 2), place)
        v = self.v(h).view(b, t, self.groups, self.w).transpose(1, 2)
        if cache is not None:
            cache[0].index_copy_(2, place, k)
            cache[1].index_copy_(2, place, v)
            k, v = cache
        s = k.shape[2]
        k, v = (z.repeat_interleave(self.heads // self.groups, 1) for z in (k, v))
        mask = torch.arange(s, device=x.device)[None, :] <= place[:, None]
        a = (q @ k.transpose(2, 3) * self.w ** -0.5).masked_fill(~mask, -math.inf).softmax(3, dtype=torch.float32).to(x.dtype)
        x = x + self.o((a @ v).transpose(1, 2).reshape(b, t, d))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, vocabulary, d, layers, heads, groups, hidden):
        super().__init__()
        self.word, self.norm, self.head = nn.Embedding(vocabulary, d), RMSNorm(d), nn.Linear(d, vocabulary, bias=False)
        self.layers = nn.ModuleList(LlamaLayer(d, heads, groups, hidden) for _ in range(layers))

    def forward(self, ids, place, caches=None):
        x = self.word(ids)
        for i, l in enumerate(self.layers):
            x = l(x, place, caches[i] if caches is not None else None)
        return self.head(self.norm(x))


class UNetBlock(nn.Module):
    def __init__(self, cin, cout, time, groups):
        super().__init__()
        self.n1, self.c1, self.t = nn.GroupNorm(groups, cin), nn.Conv2d(cin, cout, 3, padding=1), nn.Linear(time, cout)
        self.n2, self.c2 = nn.GroupNorm(groups, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.short = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
        return self.c2(F.silu(self.n2(h))) + self.short(x)


class UNet(nn.Module):
    """Predicts noise: two levels down, attention, two levels up with skips."""

    def __init__(self, c, groups, heads):
        super().__init__()
        t = 4 * c
        self.c, self.time = c, nn.Sequential(nn.Linear(c, t), nn.SiLU(), nn.Linear(t, t))
        self.first, self.last, self.norm = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1), nn.GroupNorm(groups, c)
        self.d1, self.d2, self.mid = UNetBlock(c, c, t, groups), UNetBlock(c, 2 * c, t, groups), UNetBlock(2 * c, 2 * c, t, groups)
        self.s1, self.s2 = nn.Conv2d(c, c, 3, 2, 1), nn.Conv2d(2 * c, 2 * c, 3, 2, 1)
        self.an, self.att = nn.GroupNorm(groups, 2 * c), Attention(2 * c, heads)
        self.u2, self.u1 = UNetBlock(4 * c, 2 * c, t, groups), UNetBlock(3 * c, c, t, groups)

    def forward(self, x, t):
        f = torch.exp(-math.log(10000) * torch.arange(self.c // 2, device=x.device) / (self.c // 2))
        a = t[:, None].float() * f
        t = self.time(torch.cat([a.sin(), a.cos()], 1).to(x.dtype))
        x0 = self.first(x)
        x1 = self.d1(x0, t)
        x2 = self.d2(self.s1(x1), t)
        x3 = self.mid(self.s2(x2), t)
        b, c, h, w = x3.shape
        x3 = x3 + self.att(self.an(x3).flatten(2).transpose(1, 2)).transpose(1, 2).view(b, c, h, w)
        y = self.u2(torch.cat([F.interpolate(x3, scale_factor=2.0, mode="nearest"), x2], 1), t)
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2.0, mode="bilinear"), x1], 1), t)
        return self.last(F.silu(self.norm(y)))


class Recurrent(nn.Module):
    """Cells written out, one step of time after the other."""

    def __init__(self, kind, inputs, d, classes):
        super().__init__()
        self.kind, self.d, n = kind, d, 4 if kind == "lstm" else 3
        self.x, self.h, self.head = nn.Linear(inputs, n * d), nn.Linear(d, n * d), nn.Linear(d, classes)

    def forward(self, xs):
        h = torch.zeros(xs.shape[0], self.d, device=xs.device)
        c = h
        for t in range(xs.shape[1]):
            a, b = self.x(xs[:, t]), self.h(h)
            if self.kind == "lstm":
                i, f, g, o = (a + b).chunk(4, 1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
            else:
                r, z = (a + b)[:, :2 * self.d].sigmoid().chunk(2, 1)
                n = (a[:, 2 * self.d:] + r * b[:, 2 * self.d:]).tanh()
                h = (1 - z) * n + z * h
        return self.head(h)


class Graph(nn.Module):
    """Graph convolution, then attention over edges; edges are (source, target) lists."""

    def __init__(self, inputs, d, classes):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(inputs, d), nn.Linear(d, d), nn.Linear(d, classes)
        self.left, self.right = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))

    def forward(self, x, source, target):
        n = x.shape[0]
        degree = torch.zeros(n, device=x.device).index_add(0, target, torch.ones(target.shape[0], device=x.device)).clamp(min=1)
        norm = (degree[source] * degree[target]).rsqrt()
        x = self.a(x)
        x = F.relu(torch.zeros_like(x).index_add(0, target, x[source] * norm[:, None]))
        x = self.b(x)
        e = F.leaky_relu((x @ self.left)[source] + (x @ self.right)[target], 0.2)
        top = torch.full((n,), -1e30, device=x.device).scatter_reduce(0, target, e.detach(), "amax")
        e = (e - top[target]).exp()
        total = torch.zeros(n, device=x.device).scatter_add(0, target, e)
        x = torch.zeros_like(x).index_add(0, target, x[source] * (e / (total[target] + 1e-9))[:, None])
        return self.head(F.elu(x))


class Recommender(nn.Module):
    """Embedding tables, pairwise products, a small network."""

    def __init__(self, rows, d, tables, dense):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, d) for _ in range(tables))
        self.low = nn.Sequential(nn.Linear(dense, 4 * d), nn.ReLU(), nn.Linear(4 * d, d), nn.ReLU())
        n = tables + 1
        self.high = nn.Sequential(nn.Linear(d + n * (n - 1) // 2, 2 * d), nn.ReLU(), nn.Linear(2 * d, 1))

    def forward(self, dense, bags):
        x = self.low(dense)
        z = torch.stack([x] + [t(bags[:, i]).sum(1) for i, t in enumerate(self.tables)], 1)
        p = z @ z.transpose(1, 2)
        n = z.shape[1]
        pairs = torch.stack([p[:, a, b] for a in range(n) for b in range(a)], 1)
        return self.high(torch.cat([x, pairs], 1)).squeeze(1)


class Experts(nn.Module):
    """A mixture: two of n experts a token, by gathering and adding back."""

    def __init__(self, d, n):
        super().__init__()
        self.route, self.up, self.down = nn.Linear(d, n), nn.Parameter(torch.empty(n, d, 2 * d)), nn.Parameter(torch.empty(n, 2 * d, d))

    def forward(self, x):
        p = self.route(x).softmax(1)
        first = p.argmax(1)
        rest = p.masked_fill(F.one_hot(first, p.shape[1]).bool(), 0.0)
        second = rest.argmax(1)
        out = torch.zeros_like(x)
        for choice in (first, second):
            w = p.gather(1, choice[:, None])
            h = F.silu(torch.einsum("nd,edh->neh", x, self.up))
            y = torch.einsum("neh,ehd->ned", h, self.down)
            out = out + w * y.gather(1, choice[:, None, None].expand(-1, 1, x.shape[1])).squeeze(1)
        load = torch.zeros(p.shape[1], device=x.device).scatter_add(0, first, torch.ones_like(p[:, 0]))
        return out + (load * p.mean(0)).sum() * 1e-2


class Autoencoder(nn.Module):
    """Variational: convolutions down, transposed up."""

    def __init__(self, c, z, size):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, c, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(c, 2 * c, 4, 2, 1), nn.InstanceNorm2d(2 * c, affine=True), nn.LeakyReLU(0.2))
        self.mean, self.spread = (nn.Linear(2 * c * (size // 4) ** 2, z) for _ in range(2))
        self.open, self.c, self.size = nn.Linear(z, 2 * c * (size // 4) ** 2), c, size
        self.up = nn.Sequential(nn.ConvTranspose2d(2 * c, c, 4, 2, 1), nn.BatchNorm2d(c), nn.ELU(), nn.ConvTranspose2d(c, 3, 4, 2, 1))

    def forward(self, x):
        h = self.down(x).flatten(1)
        m, s = self.mean(h), self.spread(h).clamp(-10, 10)
        z = m + torch.randn_like(m) * (0.5 * s).exp()
        y = self.up(F.softplus(self.open(z)).view(-1, 2 * self.c, self.size // 4, self.size // 4)).sigmoid()
        return F.binary_cross_entropy(y, x.sigmoid(), reduction="mean") - 0.5 * (1 + s - m.square() - s.exp()).mean()


class Waves(nn.Module):
    """Sound: dilated convolutions in one dimension, gates, and a masked head."""

    def __init__(self, c, layers):
        super().__init__()
        self.first = nn.Conv1d(1, c, 16, 8)
        self.layers = nn.ModuleList(nn.Conv1d(c, 2 * c, 3, padding=1 << i, dilation=1 << i) for i in range(layers))
        self.norms = nn.ModuleList(nn.GroupNorm(1, c) for _ in range(layers))
        self.mix = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(layers))
        self.mask = nn.Conv1d(c, 2 * c, 1)

    def forward(self, x):
        x = self.first(x)
        skip = 0
        for conv, norm, mix in zip(self.layers, self.norms, self.mix):
            a, b = conv(norm(x)).chunk(2, 1)
            h = mix(a.tanh() * b.sigmoid())
            skip, x = skip + h, x + h
        m = self.mask(F.prelu(skip, torch.full((1,), 0.25, device=x.device))).view(x.shape[0], 2, x.shape[1], -1).softmax(1)
        return m * x[:, None]
