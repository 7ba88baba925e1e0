// Training: gradients, optimizers, dropout.
// variants: O0 fast
#include <cuda_fp16.h>

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), f32(n), 0.01, n])
//@ for(n=(2**17, 513, 64)) launch(grid=up(n, 128), block=128, count=100, args=[f32(n), f32(n), 0.01, n])
extern "C" __global__ void sgd(float *w, const float *g, float rate, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) w[i] -= rate * g[i];
}

// Into another buffer.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), f32(n), zero(4*n), 0.01, n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[(w := f32(n)), f32(n), w, 0.01, n])
extern "C" __global__ void sgd_out(const float *__restrict__ w, const float *__restrict__ g, float *__restrict__ out, float rate, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = w[i] - rate * g[i];
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), f32(n), f32(n), 0.01, 0.9, n])
extern "C" __global__ void momentum(float *w, float *v, const float *g, float rate, float mu, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = mu * v[i] + g[i];
  v[i] = x;
  w[i] -= rate * x;
}

struct Rates {
  float rate, beta1, beta2, eps, decay;
  int step;
};

// Four at a time.
//@ for(n=(4, 132, 1000, 4096), step=(1, 10)) launch(grid=up(n//4, 64), block=64, args=[f32(n), f32(n), f32(n), zero(4*n), struct("fffffi", 0.01, 0.9, 0.999, 1e-8, 0.01, step), n//4])
//@ for(n=(2**17, 516), step=range(1, 9)) launch(grid=up(n//4, 64), block=64, args=[f32(n), f32(n), f32(n), zero(4*n), struct("fffffi", 0.01, 0.9, 0.999, 1e-8, 0.01, step), n//4])
extern "C" __global__ void adam(float4 *w, const float4 *g, float4 *m, float4 *v, Rates r, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 w4 = w[i], g4 = g[i], m4 = m[i], v4 = v[i];
  float *pw = &w4.x, *pg = &g4.x, *pm = &m4.x, *pv = &v4.x;
  float c1 = 1, c2 = 1;
  for (int k = 0; k < r.step; k++) {
    c1 *= r.beta1;
    c2 *= r.beta2;
  }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    pm[k] = r.beta1 * pm[k] + (1 - r.beta1) * pg[k];
    pv[k] = r.beta2 * pv[k] + (1 - r.beta2) * pg[k] * pg[k];
    float a = pm[k] / (1 - c1), b = pv[k] / (1 - c2);
    pw[k] -= r.rate * (a / (sqrtf(b) + r.eps) + r.decay * pw[k]);
  }
  w[i] = w4;
  m[i] = m4;
  v[i] = v4;
}

// Several tensors by a table of pointers, a row of blocks a tensor.
//@ for(sizes=((5,), (33, 1, 200), (64, 64, 64, 1000))) launch(grid=(2, len(sizes)), block=64, args=[table([f32(s) for s in sizes]), table([f32(s) for s in sizes]), ints(sizes), 0.1])
extern "C" __global__ void multi_sgd(float *const *w, const float *const *g, const int *sizes, float rate) {
  int n = sizes[blockIdx.y];
  float *p = w[blockIdx.y];
  const float *q = g[blockIdx.y];
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] -= rate * q[i];
}

struct Chunk {
  float *w[3];
  const float *g[3];
  int n[3];
  float rate;
};

// The same with the pointers by value.
//@ for(sizes=((5, 0, 1), (33, 100, 200), (64, 64, 1000))) launch(grid=(2, 3), block=64, args=[struct("PPPPPPiiif", *[f32(s) for s in sizes], *[f32(s) for s in sizes], *sizes, 0.1)])
extern "C" __global__ void multi_sgd_value(Chunk c) {
  int n = c.n[blockIdx.y];
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c.w[blockIdx.y][i] -= c.rate * c.g[blockIdx.y][i];
}

//@ for(n=S) launch(grid=up(n, 256), block=256, args=[f32(n), f32(n), 0.999, n])
extern "C" __global__ void moving_average(float *avg, const float *w, float keep, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) avg[i] += (1 - keep) * (w[i] - avg[i]);
}

// The mask is made from a counter, kept for the backward pass.
//@ for(n=S, p=(0.1, 0.5)) launch(grid=up(n, 256), block=256, args=[f32(n), zero(4*n), zero(n), p, U(17), n])
extern "C" __global__ void dropout(const float *in, float *out, unsigned char *mask, float p, unsigned seed, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned h = (i + seed) * 0x9E3779B1u;
  h = (h ^ h >> 15) * 0x85EBCA77u;
  h ^= h >> 13;
  bool keep = (h >> 8) * 0x1p-24f >= p;
  mask[i] = keep;
  out[i] = keep ? in[i] / (1 - p) : 0;
}

// In place: what is dropped is not read.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[f32(n), u8(n), 2.0, n])
extern "C" __global__ void dropout_mask(float *x, const unsigned char *mask, float scale, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = mask[i] & 1 ? x[i] * scale : 0;
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), f32(n), zero(4*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[f32(n), (g := f32(n)), g, n])
extern "C" __global__ void relu_backward(const float *y, const float *dy, float *dx, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = y[i] > 0 ? dy[i] : 0;
}

//@ for(rows=(1, 12), cols=(2, 33, 100)) launch(grid=up(rows, 4), block=(32, 4), args=[f32(rows*cols), index(rows, cols), zero(4*rows), zero(4*rows*cols), rows, cols])
//@ for(rows=(12,), cols=(33,)) launch(grid=up(rows, 4), block=(32, 4), args=[(x := f32(rows*cols)), index(rows, cols), zero(4*rows), x, rows, cols])
extern "C" __global__ void cross_entropy(const float *logits, const int *target, float *loss, float *grad, int rows, int cols) {
  int r = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x;
  if (r >= rows) return;
  const float *in = logits + r * cols;
  float top = -1e30f, sum = 0;
  for (int c = lane; c < cols; c += 32) top = fmaxf(top, in[c]);
  for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  for (int c = lane; c < cols; c += 32) sum += expf(in[c] - top);
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  int t = target[r];
  float wanted = in[t];
  __syncwarp();
  for (int c = lane; c < cols; c += 32) grad[r * cols + c] = (expf(in[c] - top) / sum - (c == t)) / rows;
  if (lane == 0) loss[r] = logf(sum) + top - wanted;
}

//@ for(n=(1, 30), d=(8, 33)) launch(grid=n, block=32, order="any", args=[f32(n*d), index(n, 10), zero(40*d), d])
extern "C" __global__ void embedding_backward(const float *grad, const int *token, float *table, int d) {
  float *row = table + token[blockIdx.x] * d;
  for (int i = threadIdx.x; i < d; i += blockDim.x) atomicAdd(&row[i], grad[blockIdx.x * d + i]);
}

// Without atomics: a block owns a row of the table and looks for its tokens.
//@ for(n=(1, 30), d=(8, 33)) launch(grid=10, block=32, args=[f32(n*d), index(n, 10), zero(40*d), n, d])
extern "C" __global__ void embedding_backward_rows(const float *grad, const int *token, float *table, int n, int d) {
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    float sum = 0;
    for (int t = 0; t < n; t++)
      if (token[t] == blockIdx.x) sum += grad[t * d + i];
    table[blockIdx.x * d + i] = sum;
  }
}

//@ for(w=(4, 12), h=(4, 9)) launch(grid=up(w*h, 64), block=64, args=[f32(9*(w-2)*(h-2)), zero(4*w*h), w, h])
extern "C" __global__ void col2im(const float *cols, float *out, int w, int h) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, ow = w - 2, oh = h - 2;
  if (i >= w * h) return;
  int x = i % w, y = i / w;
  float sum = 0;
  for (int k = 0; k < 9; k++) {
    int a = x - k % 3, b = y - k / 3;
    if (a >= 0 && b >= 0 && a < ow && b < oh) sum += cols[(k * oh + b) * ow + a];
  }
  out[i] = sum;
}

// Gradients go where the largest element was.
//@ for(n=(1, 33, 200)) launch(grid=up(n, 64), block=64, args=[f32(n), ints([4*i + x for i, x in enumerate(noise(n, 4))]), zero(16*n), n])
extern "C" __global__ void maxpool_backward(const float *grad, const int *where, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[where[i]] = grad[i];
}

// Raises a flag if a gradient is not finite; leaves at once if it is up.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[f32(n), zero(4), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 256), block=256, args=[u32(n), zero(4), n])
extern "C" __global__ void find_infinite(const float *g, int *found, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (*(volatile int *)found) return;
  if (i < n && !isfinite(g[i])) *found = 1;
}

// Scales in place unless the flag is up.
//@ for(n=S, flag=(0, 1)) launch(grid=up(n, 256), block=256, args=[f32(n), ints([flag]), 0.5, n])
extern "C" __global__ void unscale(float *g, const int *skip, float scale, int n) {
  if (*skip) return;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) g[i] *= scale;
}

// Clips by a norm that lies in memory.
//@ for(n=S, norm=(0.5, 9.0)) launch(grid=up(n, 256), block=256, args=[f32(n), floats([norm]), 1.0, n])
extern "C" __global__ void clip(float *g, const float *norm, float most, int n) {
  float s = fminf(1, most / (*norm + 1e-6f));
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) g[i] *= s;
}

// Half precision beside the master copy.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), f16(n), zero(2*n), 0.01, n])
extern "C" __global__ void master_step(float *w, const __half *g, __half *low, float rate, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = w[i] - rate * __half2float(g[i]);
  w[i] = x;
  low[i] = __float2half(x);
}

//@ for(n=(2, 34, 1000)) launch(grid=up(n//2, 128), block=128, args=[f16(n), f16(n), zero(2*n), n//2])
//@ for(n=(34, 1000)) launch(grid=up(n//2, 128), block=128, args=[(x := f16(n)), f16(n), x, n//2])
extern "C" __global__ void half2_fma(const __half2 *a, const __half2 *b, __half2 *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __hfma2(a[i], b[i], a[i]);
}

// Accumulates gradients, or stores them the first time.
//@ for(n=S, first=(0, 1)) launch(grid=up(n, 256), block=256, args=[f32(n), f32(n), first, n])
extern "C" __global__ void accumulate(float *sum, const float *g, int first, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (first) sum[i] = g[i];
  else sum[i] += g[i];
}

// A learning rate's step counter.
//@ for(b=(1, 4)) launch(grid=1, block=1, args=[zero(4), floats([0.5]), b])
extern "C" __global__ void count_step(int *step, float *rate, int every) {
  int s = *step + 1;
  *step = s;
  if (s % every == 0) *rate *= 0.5f;
}
