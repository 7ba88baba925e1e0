"""Kernels in Numba's Python for this corpus, and the launches that a program would make of them.

LAUNCHES lists (application, kernel, types, grid, block, dynamic shared memory, arguments, count); arguments are numbers or
arrays A(name, dtype, shape, init). Arrays of one name are one buffer.
"""
import math

import numba
from numba import cuda, float32, float64, int32, int64, uint32


class A:
    """An array argument: a buffer, its shape, perhaps where in the buffer it begins (in elements) and its strides (in bytes)."""

    def __init__(self, name, dtype, shape, init=None, offset=0, strides=None, size=None):
        self.name, self.dtype, self.shape, self.offset = name, dtype, shape if isinstance(shape, tuple) else (shape,), offset
        item = dtype.bitwidth // 8
        if strides is None:
            strides, n = [], item
            for s in reversed(self.shape):
                strides.insert(0, n)
                n *= s
        self.item, self.strides = item, tuple(strides)
        self.size = size or item * (offset + math.prod(self.shape))
        self.init = init


def axpy(n, a, x, y):
    i = cuda.grid(1)
    if i < n:
        y[i] += a * x[i]


def scale_to(x, y, a):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i]


def strided(x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = math.sqrt(abs(x[i])) + 1


def add2d(a, b, c):
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = a[i, j] + b[i, j]


def transpose(a, b):
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        b[j, i] = a[i, j]


def transpose_tiled(a, b):
    tile = cuda.shared.array((16, 17), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    i, j = cuda.blockIdx.y * 16 + y, cuda.blockIdx.x * 16 + x
    if i < a.shape[0] and j < a.shape[1]:
        tile[y, x] = a[i, j]
    cuda.syncthreads()
    i, j = cuda.blockIdx.x * 16 + y, cuda.blockIdx.y * 16 + x
    if i < b.shape[0] and j < b.shape[1]:
        b[i, j] = tile[x, y]


def matmul(a, b, c):
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        s = float32(0)
        for k in range(a.shape[1]):
            s += a[i, k] * b[k, j]
        c[i, j] = s


def matmul_tiled(a, b, c):
    sa, sb = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    i, j = cuda.grid(2)
    s = float32(0)
    for t in range((a.shape[1] + 15) // 16):
        sa[tx, ty] = a[i, t * 16 + ty] if i < a.shape[0] and t * 16 + ty < a.shape[1] else 0
        sb[tx, ty] = b[t * 16 + tx, j] if j < b.shape[1] and t * 16 + tx < b.shape[0] else 0
        cuda.syncthreads()
        for k in range(16):
            s += sa[tx, k] * sb[k, ty]
        cuda.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = s


def jacobi(a, b):
    i, j = cuda.grid(2)
    if 0 < i < a.shape[0] - 1 and 0 < j < a.shape[1] - 1:
        b[i, j] = (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1]) * 0.25


def gauss_seidel(a, colour):
    i, j = cuda.grid(2)
    if 0 < i < a.shape[0] - 1 and 0 < j < a.shape[1] - 1 and (i + j) % 2 == colour:
        a[i, j] = (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1]) * 0.25


def shift(a):
    i = cuda.grid(1)
    if i < a.size - 1:
        a[i] = a[i + 1]


def reverse(a):
    i = cuda.grid(1)
    if i < a.size // 2:
        t = a[i]
        a[i] = a[a.size - 1 - i]
        a[a.size - 1 - i] = t


def sum_blocks(x, out):
    s = cuda.shared.array(256, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    k = 128
    while k > 0:
        if t < k:
            s[t] += s[t + k]
        cuda.syncthreads()
        k //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


def sum_atomic(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])


def max_atomic(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(out, 0, x[i])


def sum_warp(x, out):
    v = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        v += x[i]
    k = 16
    while k > 0:
        v += cuda.shfl_sync_intrinsic(0xFFFFFFFF, 2, v, k, 31)[0]  # down
        k //= 2
    if cuda.threadIdx.x % 32 == 0:
        cuda.atomic.add(out, 0, v)


def histogram(x, bins):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(bins, x[i], 1)


def histogram_shared(x, bins):
    s = cuda.shared.array(256, int32)
    s[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(s, x[i], 1)
    cuda.syncthreads()
    cuda.atomic.add(bins, cuda.threadIdx.x, s[cuda.threadIdx.x])


def scan_block(x, y, sums):
    s = cuda.shared.array(256, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    k = 1
    while k < 256:
        v = s[t - k] if t >= k else 0
        cuda.syncthreads()
        s[t] += v
        cuda.syncthreads()
        k *= 2
    if i < x.size:
        y[i] = s[t]
    if t == 255:
        sums[cuda.blockIdx.x] = s[t]


def scan_add(y, sums):
    i = cuda.grid(1)
    if i < y.size and cuda.blockIdx.x > 0:
        y[i] += sums[cuda.blockIdx.x - 1]


def gather(x, index, y):
    i = cuda.grid(1)
    if i < index.size:
        y[i] = x[index[i]]


def scatter(x, index, y):
    i = cuda.grid(1)
    if i < index.size:
        y[index[i]] = x[i]


def scatter_add(x, index, y):
    i = cuda.grid(1)
    if i < index.size:
        cuda.atomic.add(y, index[i], x[i])


def spmv(row, col, val, x, y):
    i = cuda.grid(1)
    if i < y.size:
        s = float32(0)
        for k in range(row[i], row[i + 1]):
            s += val[k] * x[col[k]]
        y[i] = s


def bfs(row, col, level, depth, changed):
    i = cuda.grid(1)
    if i < level.size and level[i] == depth:
        for k in range(row[i], row[i + 1]):
            if level[col[k]] < 0:
                level[col[k]] = depth + 1
                changed[0] = 1


def relax(row, col, w, dist):
    i = cuda.grid(1)
    if i < dist.size:
        for k in range(row[i], row[i + 1]):
            cuda.atomic.min(dist, col[k], dist[i] + w[k])


def nbody(p, v, dt):
    i = cuda.grid(1)
    if i < p.shape[0]:
        ax = ay = az = float32(0)
        for j in range(p.shape[0]):
            dx, dy, dz = p[j, 0] - p[i, 0], p[j, 1] - p[i, 1], p[j, 2] - p[i, 2]
            r = float32(1) / math.sqrt(dx * dx + dy * dy + dz * dz + float32(1e-3))
            f = r * r * r
            ax += dx * f
            ay += dy * f
            az += dz * f
        v[i, 0] += dt * ax
        v[i, 1] += dt * ay
        v[i, 2] += dt * az


def drift(p, v, dt):
    i = cuda.grid(1)
    if i < p.shape[0]:
        for k in range(3):
            p[i, k] += dt * v[i, k]


def mandelbrot(out, x0, y0, dx, dy, limit):
    i, j = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        cr, ci, zr, zi, n = x0 + j * dx, y0 + i * dy, 0.0, 0.0, 0
        while n < limit and zr * zr + zi * zi < 4.0:
            zr, zi = zr * zr - zi * zi + cr, 2 * zr * zi + ci
            n += 1
        out[i, j] = n


def black_scholes(call, put, s, x, t, r, v):
    i = cuda.grid(1)
    if i < s.size:
        q = math.sqrt(abs(t[i]) + 0.1)
        d1 = (math.log((abs(s[i]) + 0.1) / (abs(x[i]) + 0.1)) + (r + 0.5 * v * v) * abs(t[i])) / (v * q)
        c1, c2 = 0.5 * (1 + math.erf(d1 / math.sqrt(2.0))), 0.5 * (1 + math.erf((d1 - v * q) / math.sqrt(2.0)))
        e = x[i] * math.exp(-r * abs(t[i]))
        call[i] = s[i] * c1 - e * c2
        put[i] = e * (1 - c2) - s[i] * (1 - c1)


def monte_carlo(state, hits, rounds):
    i = cuda.grid(1)
    if i < state.size:
        s, n = state[i], 0
        for _ in range(rounds):
            s = uint32(s * uint32(1664525) + uint32(1013904223))
            x = (s >> uint32(8)) * float32(5.9604645e-08)
            s = uint32(s * uint32(1664525) + uint32(1013904223))
            y = (s >> uint32(8)) * float32(5.9604645e-08)
            if x * x + y * y < 1:
                n += 1
        state[i] = s
        hits[i] = n


def sobel(a, b):
    i, j = cuda.grid(2)
    if 0 < i < a.shape[0] - 1 and 0 < j < a.shape[1] - 1:
        gx = a[i - 1, j + 1] + 2 * a[i, j + 1] + a[i + 1, j + 1] - a[i - 1, j - 1] - 2 * a[i, j - 1] - a[i + 1, j - 1]
        gy = a[i + 1, j - 1] + 2 * a[i + 1, j] + a[i + 1, j + 1] - a[i - 1, j - 1] - 2 * a[i - 1, j] - a[i - 1, j + 1]
        b[i, j] = math.sqrt(gx * gx + gy * gy)


def convolve(x, taps, y):
    i = cuda.grid(1)
    if i < y.size:
        s = float32(0)
        for k in range(taps.size):
            if 0 <= i + k - taps.size // 2 < x.size:
                s += x[i + k - taps.size // 2] * taps[k]
        y[i] = s


def life(a, b):
    i, j = cuda.grid(2)
    n, m = a.shape
    if i < n and j < m:
        s = 0
        for di in range(-1, 2):
            for dj in range(-1, 2):
                if di != 0 or dj != 0:
                    s += a[(i + di + n) % n, (j + dj + m) % m] & 1
        b[i, j] = 1 if s == 3 or (s == 2 and a[i, j] & 1) else 0


def bitonic(x, j, k):
    i = cuda.grid(1)
    p = i ^ j
    if p > i and p < x.size:
        if (x[i] > x[p]) == ((i & k) == 0):
            t = x[i]
            x[i] = x[p]
            x[p] = t


def odd_even(x, phase):
    i = 2 * cuda.grid(1) + phase
    if i + 1 < x.size and x[i] > x[i + 1]:
        t = x[i]
        x[i] = x[i + 1]
        x[i + 1] = t


def edit_row(a, b, table, d):
    i = cuda.grid(1) + 1
    j = d - i
    if i <= a.size and 1 <= j <= b.size:
        c = 0 if a[i - 1] == b[j - 1] else 1
        table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + c)


def floyd(d, k):
    i, j = cuda.grid(2)
    if i < d.shape[0] and j < d.shape[0]:
        d[i, j] = min(d[i, j], d[i, k] + d[k, j])


def eliminate(a, k):
    i, j = cuda.grid(2)
    i += k + 1
    if i < a.shape[0] and k < j < a.shape[1]:
        a[i, j] -= a[i, k] / a[k, k] * a[k, j]


def softmax_rows(x, y):
    i = cuda.blockIdx.x
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    top = float32(-1e30)
    for j in range(t, x.shape[1], 128):
        top = max(top, x[i, j])
    s[t] = top
    cuda.syncthreads()
    k = 64
    while k > 0:
        if t < k:
            s[t] = max(s[t], s[t + k])
        cuda.syncthreads()
        k //= 2
    top = s[0]
    cuda.syncthreads()
    total = float32(0)
    for j in range(t, x.shape[1], 128):
        total += math.exp(x[i, j] - top)
    s[t] = total
    cuda.syncthreads()
    k = 64
    while k > 0:
        if t < k:
            s[t] += s[t + k]
        cuda.syncthreads()
        k //= 2
    for j in range(t, x.shape[1], 128):
        y[i, j] = math.exp(x[i, j] - top) / s[0]


def compact(x, out, count):
    i = cuda.grid(1)
    if i < x.size and x[i] > 0:
        out[cuda.atomic.add(count, 0, 1)] = x[i]


def hash_insert(keys, table):
    i = cuda.grid(1)
    if i < keys.size:
        h = (keys[i] * 40503) & (table.size - 1)
        for _ in range(table.size):
            old = cuda.atomic.cas(table, h, 0, keys[i] + 1)
            if old == 0 or old == keys[i] + 1:
                break
            h = (h + 1) & (table.size - 1)


def union(parent, a, b):
    i = cuda.grid(1)
    if i < a.size:
        x, y = a[i], b[i]
        while parent[x] != x:
            x = parent[x]
        while parent[y] != y:
            y = parent[y]
        if x != y:
            cuda.atomic.min(parent, max(x, y), min(x, y))


def complex_multiply(ar, ai, br, bi):
    i = cuda.grid(1)
    if i < ar.size:
        r = ar[i] * br[i] - ai[i] * bi[i]
        ai[i] = ar[i] * bi[i] + ai[i] * br[i]
        ar[i] = r


def fft_stage(re, im, half):
    i = cuda.grid(1)
    if i < re.size // 2:
        j = i // half * 2 * half + i % half
        w = -math.pi * (i % half) / half
        c, s = math.cos(w), math.sin(w)
        tr, ti = re[j + half] * c - im[j + half] * s, re[j + half] * s + im[j + half] * c
        re[j + half], im[j + half] = re[j] - tr, im[j] - ti
        re[j], im[j] = re[j] + tr, im[j] + ti


def heat3d(a, b, k):
    x, y, z = cuda.grid(3)
    if 0 < x < a.shape[0] - 1 and 0 < y < a.shape[1] - 1 and 0 < z < a.shape[2] - 1:
        b[x, y, z] = a[x, y, z] + k * (a[x - 1, y, z] + a[x + 1, y, z] + a[x, y - 1, z] + a[x, y + 1, z] + a[x, y, z - 1] + a[x, y, z + 1] - 6 * a[x, y, z])


def lattice(f, g, omega):
    i, j = cuda.grid(2)
    n, m = f.shape[1], f.shape[2]
    if i < n and j < m:
        rho = f[0, i, j] + f[1, i, j] + f[2, i, j] + f[3, i, j] + f[4, i, j]
        for k in range(5):
            di = (1 if k == 1 else 0) - (1 if k == 2 else 0)
            dj = (1 if k == 3 else 0) - (1 if k == 4 else 0)
            g[k, (i + di + n) % n, (j + dj + m) % m] = f[k, i, j] * (1 - omega) + omega * rho * float32(0.2)


def kmeans_assign(p, c, label):
    i = cuda.grid(1)
    if i < p.shape[0]:
        best, where = float32(1e30), 0
        for k in range(c.shape[0]):
            d = float32(0)
            for j in range(p.shape[1]):
                e = p[i, j] - c[k, j]
                d += e * e
            if d < best:
                best, where = d, k
        label[i] = where


def kmeans_sum(p, label, sums, counts):
    i = cuda.grid(1)
    if i < p.shape[0]:
        for j in range(p.shape[1]):
            cuda.atomic.add(sums, (label[i], j), p[i, j])
        cuda.atomic.add(counts, label[i], 1)


def sgd(w, g, m, lr, mu):
    i = cuda.grid(1)
    if i < w.size:
        m[i] = mu * m[i] + g[i]
        w[i] -= lr * m[i]


def local_sort(x):
    a = cuda.local.array(8, float32)
    i = cuda.grid(1)
    if i * 8 + 7 < x.size:
        for k in range(8):
            a[k] = x[i * 8 + k]
        for k in range(1, 8):
            j = k
            while j > 0 and a[j - 1] > a[j]:
                t = a[j]
                a[j] = a[j - 1]
                a[j - 1] = t
                j -= 1
        for k in range(8):
            x[i * 8 + k] = a[k]


def dynamic_reverse(x):
    s = cuda.shared.array(0, float32)
    t, n = cuda.threadIdx.x, cuda.blockDim.x
    i = cuda.blockIdx.x * n + t
    s[t] = x[i]
    cuda.syncthreads()
    x[i] = s[n - 1 - t]


def f1(t=float32):
    return numba.types.Array(t, 1, "C")


def f2(t=float32):
    return numba.types.Array(t, 2, "C")


def f3(t=float32):
    return numba.types.Array(t, 3, "C")


def any1(t=float32):
    return numba.types.Array(t, 1, "A")


def launches():
    out = []

    def add(app, fn, types, grid, block, args, count=1, shared=0):
        grid = grid if isinstance(grid, tuple) else (grid,)
        block = block if isinstance(block, tuple) else (block,)
        out.append((app, fn, types, grid, block, shared, args, count))

    f, d, i4, i8 = float32, float64, int32, int64
    for small in (True, False):
        app = lambda name: name + ("-small" if small else "")
        for n in ((1, 100, 257, 4099) if small else (1 << 16, 1 << 20, 10_000_019, 1 << 24)):
            g = -(-n // 256)
            x, y, z, u, v = (A(c + str(n), f, n, "f32") for c in "xyzuv")
            xd, yd = A(f"xd{n}", d, n, "f64"), A(f"yd{n}", d, n, "f64")
            index = A(f"i{n}", i4, n, {"index": "s32", "below": n})
            add(app("vectors"), axpy, (i4, f, f1(), f1()), g, 256, (n, 2.0, x, y), 3)
            add(app("vectors"), axpy, (i4, f, f1(), f1()), g, 256, (n, 2.0, x, x))
            add(app("vectors"), axpy, (i4, d, f1(d), f1(d)), g, 256, (n, 2.0, xd, yd), 2)
            add(app("vectors"), scale_to, (f1(), f1(), f), g, 256, (x, y, 3.0), 2)
            add(app("vectors"), scale_to, (f1(), f1(), f), g, 256, (x, x, 3.0))
            if n > 8:
                whole = A(f"w{n}", f, n, "f32")
                add(app("vectors"), scale_to, (f1(), f1(), f), g, 256, (A(f"w{n}", f, n - 1, "f32", 0, None, 4 * n), A(f"w{n}", f, n - 1, "f32", 1, None, 4 * n), 3.0))
                add(app("vectors"), scale_to, (any1(), any1(), f), g, 256, (A(f"w{n}", f, n // 2, "f32", 0, (8,), 4 * n), A(f"w{n}", f, n // 2, "f32", 1, (8,), 4 * n), 3.0))
                add(app("vectors"), scale_to, (any1(), any1(), f), g, 256, (A(f"w{n}", f, n // 2, "f32", 0, (8,), 4 * n), y, 3.0))
            add(app("vectors"), strided, (f1(), f1()), min(g, 64), 256, (x, y), 2)
            add(app("vectors"), shift, (f1(),), g, 256, (x,))
            add(app("vectors"), reverse, (f1(),), g, 256, (x,), 2)
            add(app("vectors"), reverse, (f1(i8),), g, 256, (A(f"l{n}", i8, n, {"iota": "s64"}),))
            add(app("vectors"), complex_multiply, (f1(),) * 4, g, 256, (x, y, u, v))
            add(app("vectors"), sgd, (f1(), f1(), f1(), f, f), g, 256, (x, y, z, 0.1, 0.9), 5)
            add(app("vectors"), local_sort, (f1(),), max(1, g // 8), 256, (x,))
            add(app("vectors"), dynamic_reverse, (f1(),), max(1, n // 128), 128 if n >= 128 else n, (x,), 1, 512)
            add(app("reductions"), sum_blocks, (f1(), f1()), g, 256, (x, A(f"p{n}", f, g, "zero")), 2)
            add(app("reductions"), sum_atomic, (f1(), f1()), g, 256, (x, A("total", f, 1, "zero")))
            add(app("reductions"), sum_atomic, (f1(i4), f1(i4)), g, 256, (index, A("itotal", i4, 1, "zero")))
            add(app("reductions"), max_atomic, (f1(), f1()), g, 256, (x, A("top", f, 1, "zero")))
            add(app("reductions"), sum_warp, (f1(), f1()), min(g, 32), 256, (x, A("total", f, 1, "zero")))
            b = A(f"b{n}", i4, n, {"index": "s32", "below": 256})
            add(app("reductions"), histogram, (f1(i4), f1(i4)), g, 256, (b, A("bins", i4, 256, "zero")))
            add(app("reductions"), histogram_shared, (f1(i4), f1(i4)), min(g, 32), 256, (b, A("bins", i4, 256, "zero")))
            add(app("reductions"), scan_block, (f1(i4),) * 3, g, 256, (b, A(f"c{n}", i4, n, "zero"), A(f"s{n}", i4, g, "zero")), 2)
            add(app("reductions"), scan_add, (f1(i4),) * 2, g, 256, (A(f"c{n}", i4, n, "zero"), A(f"s{n}", i4, g, "zero")), 2)
            add(app("indirect"), gather, (f1(), f1(i4), f1()), g, 256, (x, index, y), 4)
            add(app("indirect"), gather, (f1(), f1(i4), f1()), g, 256, (x, index, x))
            add(app("indirect"), scatter, (f1(), f1(i4), f1()), g, 256, (x, index, y), 4)
            add(app("indirect"), scatter_add, (f1(), f1(i4), f1()), g, 256, (x, index, y), 4)
            add(app("indirect"), compact, (f1(), f1(), f1(i4)), g, 256, (x, y, A("count", i4, 1, "zero")))
            table = 1 << (2 * n - 1).bit_length()
            add(app("indirect"), hash_insert, (f1(i4), f1(i4)), g, 256, (index, A(f"table{n}", i4, table, "zero")))
            add(app("indirect"), union, (f1(i4),) * 3, g, 256, (A(f"parent{n}", i4, n, {"iota": "s32"}), index, A(f"j{n}", i4, n, {"index": "s32", "below": n})))
            add(app("finance"), black_scholes, (f1(),) * 5 + (f, f), g, 256, (A(f"call{n}", f, n, "zero"), A(f"put{n}", f, n, "zero"), x, y, z, 0.02, 0.3), 3)
            add(app("finance"), black_scholes, (f1(d),) * 5 + (d, d), g, 256, (A(f"calld{n}", d, n, "zero"), A(f"putd{n}", d, n, "zero"), xd, yd, A(f"zd{n}", d, n, "f64"), 0.02, 0.3))
            add(app("finance"), monte_carlo, (f1(uint32), f1(i4), i4), g, 256, (A(f"state{n}", uint32, n, "u32"), A(f"hits{n}", i4, n, "zero"), 16), 2)
            add(app("finance"), convolve, (f1(), f1(), f1()), g, 256, (x, A("taps", f, 17, "f32"), y), 2)
            p = 1 << (n.bit_length() - 1)
            k = 2
            while k <= p and p > 1:
                j = k // 2
                while j:
                    add(app("sorts"), bitonic, (f1(), i4, i4), max(1, p // 256), min(p, 256), (A(f"sort{p}", f, p, "f32"), j, k))
                    j //= 2
                k *= 2
            for phase in range(2):
                add(app("sorts"), odd_even, (f1(), i4), -(-n // 512), 256, (x, phase), min(n, 1000))
            half = 1
            while half < p:
                add(app("transforms"), fft_stage, (f1(), f1(), i4), max(1, p // 512), min(256, max(p // 2, 1)), (A(f"re{p}", f, p, "f32"), A(f"im{p}", f, p, "f32"), half), 2)
                add(app("transforms"), fft_stage, (f1(d), f1(d), i4), max(1, p // 512), min(256, max(p // 2, 1)), (A(f"red{p}", d, p, "f64"), A(f"imd{p}", d, p, "f64"), half))
                half *= 2
        for n, m in (((16, 16), (33, 50), (128, 96)) if small else ((512, 512), (1000, 777), (4096, 4096))):
            a, b, c = (A(f"{q}{n}x{m}", f, (n, m), "f32") for q in "abc")
            ints = lambda q: A(f"{q}{n}x{m}", i4, (n, m), {"index": "s32", "below": 2})
            g2, b2 = (-(-n // 16), -(-m // 16)), (16, 16)
            add(app("grids"), add2d, (f2(),) * 3, g2, b2, (a, b, c), 2)
            add(app("grids"), add2d, (f2(),) * 3, g2, b2, (a, b, a))
            add(app("grids"), transpose, (f2(),) * 2, g2, b2, (a, A(f"t{n}x{m}", f, (m, n), "f32")), 2)
            add(app("grids"), transpose_tiled, (f2(),) * 2, (g2[1], g2[0]), b2, (a, A(f"t{n}x{m}", f, (m, n), "f32")), 2)
            for _ in range(2):
                add(app("grids"), jacobi, (f2(),) * 2, g2, b2, (a, b), 50)
                a, b = b, a
            add(app("grids"), jacobi, (f2(d),) * 2, g2, b2, (A(f"da{n}x{m}", d, (n, m), "f64"), A(f"db{n}x{m}", d, (n, m), "f64")), 10)
            for colour in range(2):
                add(app("grids"), gauss_seidel, (f2(), i4), g2, b2, (a, colour), 50)
            add(app("grids"), sobel, (f2(),) * 2, g2, b2, (a, b), 3)
            add(app("grids"), life, (f2(i4),) * 2, g2, b2, (ints("la"), ints("lb")), 25)
            add(app("grids"), life, (f2(i4),) * 2, g2, b2, (ints("lb"), ints("la")), 25)
            add(app("grids"), mandelbrot, (f2(i4), d, d, d, d, i4), g2, b2, (ints("mb"), -2.0, -1.0, 3.0 / m, 2.0 / n, 64))
            add(app("grids"), lattice, (f3(),) * 2 + (f,), g2, b2, (A(f"f{n}x{m}", f, (5, n, m), "f32"), A(f"g{n}x{m}", f, (5, n, m), "f32"), 0.6), 20)
            add(app("grids"), heat3d, (f3(),) * 2 + (f,), (-(-n // 4), -(-m // 4), 2), (4, 4, 4), (A(f"ha{n}x{m}", f, (n, m, 8), "f32"), A(f"hb{n}x{m}", f, (n, m, 8), "f32"), 0.1), 20)
            add(app("matrices"), softmax_rows, (f2(),) * 2, n, 128, (a, b), 2)
            add(app("matrices"), softmax_rows, (f2(),) * 2, n, 128, (a, a))
            k = m
            add(app("matrices"), matmul, (f2(),) * 3, g2, b2, (A(f"ma{n}x{m}", f, (n, k), "f32"), A(f"mb{n}x{m}", f, (k, m), "f32"), c), 2)
            add(app("matrices"), matmul_tiled, (f2(),) * 3, g2, b2, (A(f"ma{n}x{m}", f, (n, k), "f32"), A(f"mb{n}x{m}", f, (k, m), "f32"), c), 2)
            s = min(n, m)
            for k in range(0, s, max(1, s // 16)):
                add(app("matrices"), floyd, (f2(), i4), (-(-s // 16), -(-s // 16)), b2, (A(f"dist{s}", f, (s, s), "f32"), k))
                add(app("matrices"), eliminate, (f2(), i4), (-(-s // 16), -(-s // 16)), b2, (A(f"lu{s}", f, (s, s), "f32"), k))
            for dgl in range(2, n + m + 1, max(1, (n + m) // 16)):
                add(app("matrices"), edit_row, (f1(i4), f1(i4), f2(i4), i4), -(-n // 128), 128, (A(f"ea{n}", i4, n, {"index": "s32", "below": 4}), A(f"eb{m}", i4, m, {"index": "s32", "below": 4}), A(f"et{n}x{m}", i4, (n + 1, m + 1), "zero"), dgl))
        for n, degree in (((20, 3), (300, 4)) if small else ((100_000, 8), (1_000_000, 16))):
            row = A(f"row{n}", i4, n + 1, [k * degree for k in range(n + 1)] if small else "rows")
            if not small:
                row.init = {"iota": "s32"}  # one edge a vertex, in order: lists of a million numbers do not belong here
            col = A(f"col{n}", i4, n * degree, {"index": "s32", "below": n})
            g = -(-n // 128)
            add(app("graphs"), spmv, (f1(i4), f1(i4), f1(), f1(), f1()), g, 128, (row, col, A(f"val{n}", f, n * degree, "f32"), A(f"x{n}", f, n, "f32"), A(f"y{n}", f, n, "f32")), 30)
            for depth in range(3):
                add(app("graphs"), bfs, (f1(i4), f1(i4), f1(i4), i4, f1(i4)), g, 128, (row, col, A(f"level{n}", i4, n, [0] + [-1] * (n - 1) if small else "zero"), depth, A("changed", i4, 1, "zero")))
            add(app("graphs"), relax, (f1(i4), f1(i4), f1(i4), f1(i4)), g, 128, (row, col, A(f"w{n}", i4, n * degree, {"index": "s32", "below": 100}), A(f"dist{n}", i4, n, {"index": "s32", "below": 1000})), 10)
        for n in ((7, 64, 300) if small else (4096, 16384)):
            p, v = A(f"p{n}", f, (n, 3), "f32"), A(f"v{n}", f, (n, 3), "f32")
            add(app("particles"), nbody, (f2(), f2(), f), -(-n // 64), 64, (p, v, 0.01), 20)
            add(app("particles"), drift, (f2(), f2(), f), -(-n // 64), 64, (p, v, 0.01), 20)
            add(app("particles"), drift, (f2(d), f2(d), d), -(-n // 64), 64, (A(f"pd{n}", d, (n, 3), "f64"), A(f"vd{n}", d, (n, 3), "f64"), 0.01), 20)
            add(app("particles"), kmeans_assign, (f2(), f2(), f1(i4)), -(-n // 64), 64, (p, A("centres", f, (5, 3), "f32"), A(f"label{n}", i4, n, {"index": "s32", "below": 5})), 10)
            add(app("particles"), kmeans_sum, (f2(), f1(i4), f2(), f1(i4)), -(-n // 64), 64, (p, A(f"label{n}", i4, n, {"index": "s32", "below": 5}), A("sums", f, (5, 3), "zero"), A("members", i4, 5, "zero")), 10)
    return out
