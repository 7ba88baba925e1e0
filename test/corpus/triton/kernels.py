"""Kernels in the Triton language, written for this corpus. Products of matrices are sums over a third dimension of the tile."""
import triton
import triton.language as tl


def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, m) + tl.load(y + i, m), m)


def gated(gate, up, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    g = tl.load(gate + i, m).to(tl.float32)
    tl.store(out + i, g * tl.sigmoid(g) * tl.load(up + i, m).to(tl.float32), m)


def adam(p, g, m, v, n, lr, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = i < n
    d = tl.load(g + i, k)
    a = tl.load(m + i, k) * 0.9 + d * 0.1
    b = tl.load(v + i, k) * 0.999 + d * d * 0.001
    tl.store(m + i, a, k)
    tl.store(v + i, b, k)
    tl.store(p + i, tl.load(p + i, k) - lr * a / (tl.sqrt(b) + 1e-8) * step, k)


def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, m)
    tl.store(out + i, tl.where(tl.rand(seed, i) > p, v / (1 - p), 0.0), m)


def softmax(x, out, cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, i < cols, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + i, e / tl.sum(e, 0), i < cols)


def layernorm(x, w, b, out, mean, rstd, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for at in range(0, cols, BLOCK):
        total += tl.load(x + row * cols + at + j, at + j < cols, other=0.0)
    mu = tl.sum(total, 0) / cols
    square = tl.zeros([BLOCK], tl.float32)
    for at in range(0, cols, BLOCK):
        d = tl.where(at + j < cols, tl.load(x + row * cols + at + j, at + j < cols, other=0.0) - mu, 0.0)
        square += d * d
    r = tl.rsqrt(tl.sum(square, 0) / cols + 1e-5)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    for at in range(0, cols, BLOCK):
        k = at + j < cols
        v = tl.load(x + row * cols + at + j, k, other=0.0)
        tl.store(out + row * cols + at + j, (v - mu) * r * tl.load(w + at + j, k) + tl.load(b + at + j, k), k)


def entropy(x, target, loss, grad, cols, BLOCK: tl.constexpr):
    """Cross entropy of a row, its gradient written over the logits if grad is x."""
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    t = tl.load(target + row)
    v = tl.load(x + row * cols + j, j < cols, other=float("-inf"))
    top = tl.max(v, 0)
    e = tl.exp(v - top)
    total = tl.sum(e, 0)
    tl.store(loss + row, tl.log(total) + top - tl.sum(tl.where(j == t, v, 0.0), 0))
    tl.store(grad + row * cols + j, e / total - tl.where(j == t, 1.0, 0.0), j < cols)


def transpose(x, out, n, m, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    k = (i < n) & (j < m)
    tl.store(out + j * n + i, tl.load(x + i * m + j, k), k)


def column_sum(x, out, n, m, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.arange(0, BM)[:, None]
    j = tl.program_id(0) * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros([BM, BN], tl.float32)
    for at in range(0, n, BM):
        total += tl.load(x + (at + i) * m + j, (at + i < n) & (j < m), other=0.0)
    tl.store(out + j, tl.sum(total, 0, keep_dims=True), j < m)


def column_sum_atomic(x, out, n, m, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(1) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(0) * BN + tl.arange(0, BN)[None, :]
    v = tl.load(x + i * m + j, (i < n) & (j < m), other=0.0)
    tl.atomic_add(out + j, tl.sum(v, 0, keep_dims=True), j < m, sem="relaxed")


def rotate(x, place, heads, half, BLOCK: tl.constexpr):
    """Rotary embedding of a head, in place."""
    token, head = tl.program_id(0), tl.program_id(1)
    j = tl.arange(0, BLOCK)
    m = j < half
    at = x + (token * heads + head) * 2 * half + j
    angle = tl.load(place + token).to(tl.float32) * tl.exp(j.to(tl.float32) * (-9.21034) / half)
    a, b = tl.load(at, m).to(tl.float32), tl.load(at + half, m).to(tl.float32)
    c, s = tl.cos(angle), tl.sin(angle)
    tl.store(at, a * c - b * s, m)
    tl.store(at + half, b * c + a * s, m)


def quantise(x, out, scale, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + j, j < cols, other=0.0)
    top = tl.max(tl.abs(v), 0)
    tl.store(scale + row, top / 127.0)
    q = v * (127.0 / (top + 1e-9))
    tl.store(out + row * cols + j, q.to(tl.int8), j < cols)


def matmul(a, b, c, n, m, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Pointers walk along k."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :, None]
    l = tl.arange(0, BK)[None, None, :]
    pa, pb = a + i * k + l, b + l * m + j
    acc = tl.zeros([BM, BN, BK], tl.float32)
    for at in range(0, k, BK):
        x = tl.load(pa, (i < n) & (l < k - at), other=0.0).to(tl.float32)
        y = tl.load(pb, (j < m) & (l < k - at), other=0.0).to(tl.float32)
        acc += x * y
        pa += BK
        pb += BK * m
    tl.store(c + i * m + j, tl.sum(acc, 2, keep_dims=True), (i < n) & (j < m))


def matmul_split(a, b, c, n, m, k, split, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Programs of the third dimension of the grid share k and add up with atomics."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :, None]
    l = tl.program_id(2) * BK + tl.arange(0, BK)[None, None, :]
    acc = tl.zeros([BM, BN, BK], tl.float32)
    for at in range(0, k, BK * split):
        x = tl.load(a + i * k + at + l, (i < n) & (at + l < k), other=0.0)
        y = tl.load(b + (at + l) * m + j, (j < m) & (at + l < k), other=0.0)
        acc += x * y
    tl.atomic_add(c + i * m + j, tl.sum(acc, 2, keep_dims=True), (i < n) & (j < m), sem="relaxed")


def matmul_bias(a, b, bias, c, n, m, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c += relu(ab + bias): the output is read too."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :, None]
    l = tl.arange(0, BK)[None, None, :]
    acc = tl.zeros([BM, BN, BK], tl.float32)
    for at in range(0, k, BK):
        acc += tl.load(a + i * k + at + l, (i < n) & (at + l < k), other=0.0) * tl.load(b + (at + l) * m + j, (j < m) & (at + l < k), other=0.0)
    r = tl.sum(acc, 2, keep_dims=True) + tl.load(bias + j, j < m, other=0.0)
    p = c + i * m + j
    tl.store(p, tl.maximum(r, 0.0) + tl.load(p, (i < n) & (j < m)), (i < n) & (j < m))


def attention(q, k, v, out, time, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Causal attention of a head with a running maximum and sum."""
    head = tl.program_id(1) * time * D
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None, None]
    j = tl.arange(0, BN)[None, :, None]
    d = tl.arange(0, D)[None, None, :]
    x = tl.load(q + head + i * D + d, i < time, other=0.0)
    top = tl.full([BM, 1, 1], -1e30, tl.float32)
    total = tl.zeros([BM, 1, 1], tl.float32)
    acc = tl.zeros([BM, 1, D], tl.float32)
    for at in range(0, time, BN):
        y = tl.load(k + head + (at + j) * D + d, at + j < time, other=0.0)
        z = tl.load(v + head + (at + j) * D + d, at + j < time, other=0.0)
        s = tl.sum(x * y, 2, keep_dims=True) * scale
        s = tl.where((at + j <= i) & (at + j < time), s, -1e30)
        new = tl.maximum(top, tl.max(s, 1, keep_dims=True))
        p = tl.exp(s - new)
        old = tl.exp(top - new)
        total = total * old + tl.sum(p, 1, keep_dims=True)
        acc = acc * old + tl.sum(p * z, 1, keep_dims=True)
        top = new
    tl.store(out + head + i * D + d, acc / total, i < time)


def embed(table, ids, out, width, BLOCK: tl.constexpr):
    row = tl.load(ids + tl.program_id(0))
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * width + j, tl.load(table + row * width + j, j < width), j < width)


def embed_backward(grad, ids, table, width, BLOCK: tl.constexpr):
    row = tl.load(ids + tl.program_id(0))
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(table + row * width + j, tl.load(grad + tl.program_id(0) * width + j, j < width), j < width, sem="relaxed")


def scatter(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.load(index + i, i < n, other=0), tl.load(x + i, i < n), i < n)


def histogram(x, bins, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + i, i < n, other=0), 1, i < n, sem="relaxed")


def top(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(out, tl.max(tl.load(x + i, i < n, other=0), 0), sem="relaxed")


def scan(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    tl.store(out + row + i, tl.associative_scan(tl.load(x + row + i, i < n, other=0.0), 0, lambda a, b: a + b), i < n)


def convolve(x, w, out, n, taps, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for k in range(0, taps):
        acc += tl.load(x + i + k, i + k < n + taps - 1, other=0.0) * tl.load(w + k)
    tl.store(out + i, acc, i < n)


def smooth(x, n, BLOCK: tl.constexpr):
    """In place, and wrong: neighbours of other programs may be new or old."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = (i > 0) & (i < n - 1)
    v = (tl.load(x + i - 1, m) + tl.load(x + i, m) + tl.load(x + i + 1, m)) / 3.0
    tl.debug_barrier()
    tl.store(x + i, v, m)


def reverse(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n // 2
    a, b = tl.load(x + i, m), tl.load(x + n - 1 - i, m)
    tl.store(x + i, b, m)
    tl.store(x + n - 1 - i, a, m)
