// Kernels over tensors of any shape, the way frameworks write them: strides, division by multiplication,
// vectors with a tail, many tensors in one launch, 64-bit sizes.
// variants: O0 sm_80

// Division of numbers below 2^31 by d: (n · m / 2^32 + n) / 2^s.
struct Divider {
  unsigned d, m, s;
};

__device__ __forceinline__ unsigned quotient(unsigned n, Divider v) { return (__umulhi(n, v.m) + n) >> v.s; }

struct Shape {
  int dims;
  Divider size[4];
  long long stride[3][4]; // of the output and two inputs, in bytes
};

__device__ __forceinline__ void offsets(const Shape &s, unsigned i, long long *at) {
  at[0] = at[1] = at[2] = 0;
#pragma unroll
  for (int d = 0; d < 4; d++) {
    if (d == s.dims) break;
    unsigned q = quotient(i, s.size[d]), r = i - q * s.size[d].d;
    i = q;
    for (int k = 0; k < 3; k++) at[k] += r * s.stride[k][d];
  }
}

// Addition with broadcasting.
//@ for(w=(1, 7, 32), h=(1, 12)) launch(grid=up(w*h, 128), block=128, args=[w*h, zero(4*w*h), f32(w*h), f32(w), shape([w, h], [4, 4*w], [4, 4*w], [4, 0])])
//@ for(w=(7, 32), h=(12,)) launch(grid=up(w*h, 128), block=128, args=[w*h, (x := f32(w*h)), x, f32(h), shape([w, h], [4, 4*w], [4, 4*w], [0, 4])])
//@ for(w=(5,), h=(6,), d=(1, 4)) launch(grid=up(w*h*d, 128), block=128, args=[w*h*d, zero(4*w*h*d), f32(w*h*d), f32(1), shape([w, h, d], [4*h*d, 4*d, 4], [4, 4*w, 4*w*h], [0, 0, 0])])
//@ for(w=(8,), h=(8,)) launch(grid=1, block=64, order="any", args=[w*h, (x := f32(w*h)), x, x, shape([w, h], [4, 4*w], [4, 4*w], [4*h, 4])])
extern "C" __global__ void broadcast_add(int n, char *out, const char *a, const char *b, Shape s) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long at[3];
  offsets(s, i, at);
  *(float *)(out + at[0]) = *(const float *)(a + at[1]) + *(const float *)(b + at[2]);
}

// A copy of a part into a part.
//@ for(w=(3, 16), h=(5,)) launch(grid=up(w*h, 64), block=64, args=[w*h, zero(4*32*16) + 4*33, u32(w*h), u32(1), shape([w, h], [4, 128], [4, 4*w], [0, 0])])
//@ for(w=(3, 16), h=(5,)) launch(grid=up(w*h, 64), block=64, args=[w*h, (x := u32(32*16)) + 4*16, x, x, shape([w, h], [4, 128], [4, 128], [0, 0])])
//@ for(w=(10, 16), h=(5,)) launch(grid=up(w*h, 64), block=64, order="any", args=[w*h, (x := u32(32*16)) + 4*8, x, x, shape([w, h], [4, 128], [4, 128], [0, 0])])
extern "C" __global__ void copy_part(int n, char *out, const char *in, const char *unused, Shape s) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    long long at[3];
    offsets(s, i, at);
    *(int *)(out + at[0]) = *(const int *)(in + at[1]);
  }
}

// Four vectors of four a thread where all is full, elements in the last block.
//@ for(n=(1, 512, 1000, 4096, 5000)) launch(grid=up(n, 1024), block=64, args=[n, f32(n), zero(4*n)])
//@ for(n=(1000, 4096)) launch(grid=up(n, 1024), block=64, args=[n, (x := f32(n)), x])
extern "C" __global__ void vectors_and_tail(int n, const float *in, float *out) {
  int base = blockIdx.x * 1024, left = n - base;
  in += base;
  out += base;
  if (left < 1024) {
    float x[16];
#pragma unroll
    for (int k = 0; k < 16; k++) {
      int i = threadIdx.x + k * 64;
      if (i < left) x[k] = in[i];
    }
#pragma unroll
    for (int k = 0; k < 16; k++) {
      int i = threadIdx.x + k * 64;
      if (i < left) out[i] = x[k] * x[k];
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    float4 v = ((const float4 *)in)[threadIdx.x + k * 64];
    v.x *= v.x, v.y *= v.y, v.z *= v.z, v.w *= v.w;
    ((float4 *)out)[threadIdx.x + k * 64] = v;
  }
}

struct Lists {
  void *tensor[2][6];
  int size[6];
  unsigned char block_tensor[16];
  int block_chunk[16];
};

// Many tensors, many chunks: tables by value say which block has which.
//@ for(a=(1, 100, 300), b=(64, 129)) launch(grid=up(a, 64) + up(b, 64), block=32, args=[chunks([f32(a), f32(b)], [f32(a), f32(b)], [a, b], 64), 0.5])
//@ for(a=(300,), b=(129,)) launch(grid=up(a, 64) + up(b, 64), block=32, args=[chunks([x := f32(a), y := f32(b)], [x, y], [a, b], 64), 0.5])
extern "C" __global__ void many_tensors(Lists l, float scale) {
  int t = l.block_tensor[blockIdx.x], from = l.block_chunk[blockIdx.x] * 64, n = min(l.size[t] - from, 64);
  const float *in = (const float *)l.tensor[0][t] + from;
  float *out = (float *)l.tensor[1][t] + from;
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = in[i] * scale;
}

// 64-bit sizes and loops.
//@ for(n=S, b=(1, 5)) launch(grid=b, block=64, args=[L(n), f32(n), zero(4*n)])
extern "C" __global__ void loop_64(long long n, const float *in, float *out) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) out[i] = -in[i];
}

//@ for(n=S, b=(1, 5)) launch(grid=b, block=64, args=[UL(n), f32(n), zero(4*n)])
extern "C" __global__ void loop_unsigned_64(size_t n, const float *in, float *out) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) out[i] = in[i] + 1;
}

// Four elements a turn, the loop cut in two.
//@ for(n=(0, 1, 5, 64, 1001), b=(1, 3)) launch(grid=b, block=32, args=[f32(n), n])
extern "C" __global__ void unrolled_inplace(float *a, int n) {
  int step = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    float x = a[i], y = a[i + step], z = a[i + 2 * step], w = a[i + 3 * step];
    a[i] = x + 1, a[i + step] = y + 2, a[i + 2 * step] = z + 3, a[i + 3 * step] = w + 4;
  }
  for (; i < n; i += step) a[i] += 5;
}

// Batches of products, one along z, by strides.
//@ for(m=(4, 17), n=(16,), k=(5, 16), b=(1, 3)) launch(grid=(up(n, 16), up(m, 16), b), block=(16, 16), args=[f32(b*m*k), f32(k*n), zero(4*b*m*n), m, n, k, L(m*k), L(0), L(m*n)])
//@ for(m=(17,), n=(16,), k=(5,), b=(3,)) launch(grid=(up(n, 16), up(m, 16), b), block=(16, 16), args=[f32(b*m*k), f32(b*k*n), zero(4*b*m*n), m, n, k, L(m*k), L(k*n), L(m*n)])
extern "C" __global__ void batched_product(const float *a, const float *b, float *c, int m, int n, int k, long long sa, long long sb, long long sc) {
  __shared__ float ta[16][16], tb[16][16];
  a += blockIdx.z * sa;
  b += blockIdx.z * sb;
  c += blockIdx.z * sc;
  int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
  float sum = 0;
  for (int base = 0; base < k; base += 16) {
    ta[y][x] = row < m && base + x < k ? a[(long long)row * k + base + x] : 0;
    tb[y][x] = col < n && base + y < k ? b[(long long)(base + y) * n + col] : 0;
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += ta[y][i] * tb[i][x];
    __syncthreads();
  }
  if (row < m && col < n) c[(long long)row * n + col] = sum;
}

// The inner product split over blocks, which add to the result.
//@ for(k=(64, 100), parts=(1, 4)) launch(grid=(2, 2, parts), block=(8, 8), order="any", args=[f32(16*k), f32(16*k), zero(1024), k, up(k, parts)])
extern "C" __global__ void split_product(const float *a, const float *b, float *c, int k, int part) {
  int col = blockIdx.x * 8 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  int from = blockIdx.z * part, to = min(from + part, k);
  float sum = 0;
  for (int i = from; i < to; i++) sum += a[row * k + i] * b[col * k + i];
  atomicAdd(&c[row * 16 + col], sum);
}

// The same with the parts put beside each other, and a second kernel to sum.
//@ for(parts=(1, 4), n=(33, 256)) launch(grid=up(n, 64), block=64, args=[f32(parts*n), zero(4*n), parts, n])
//@ for(parts=(4,), n=(256,)) launch(grid=up(n, 64), block=64, args=[(x := f32(parts*n)), x, parts, n])
extern "C" __global__ void sum_parts(const float *in, float *out, int parts, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int p = 0; p < parts; p++) sum += in[p * n + i];
  out[i] = sum;
}

// Channels last, depth by depth, three by three.
//@ for(c=(4, 32), w=(5, 9), h=(4,)) launch(grid=(w, h), block=c, args=[f32(c*w*h), f32(9*c), zero(4*c*w*h)])
extern "C" __global__ void depthwise_last(const float *in, const float *weight, float *out) {
  int c = threadIdx.x, channels = blockDim.x, x = blockIdx.x, y = blockIdx.y, w = gridDim.x, h = gridDim.y;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 9; k++) {
    int a = x + k % 3 - 1, b = y + k / 3 - 1;
    if (a >= 0 && a < w && b >= 0 && b < h) sum += in[(b * w + a) * channels + c] * weight[k * channels + c];
  }
  out[(y * w + x) * channels + c] = sum;
}

// From striped to blocked by way of shared memory: a thread has four neighbours, and scans them.
//@ for(n=(1, 128, 300, 1000)) launch(grid=up(n, 128), block=32, args=[u32(n), zero(4*n), n])
//@ for(n=(300,)) launch(grid=up(n, 128), block=32, args=[(x := u32(n)), x, n])
extern "C" __global__ void blocked_scan(const int *in, int *out, int n) {
  __shared__ int s[128];
  int t = threadIdx.x, base = blockIdx.x * 128, x[4];
#pragma unroll
  for (int k = 0; k < 4; k++) s[k * 32 + t] = base + k * 32 + t < n ? in[base + k * 32 + t] : 0;
  __syncwarp();
  int sum = 0;
#pragma unroll
  for (int k = 0; k < 4; k++) x[k] = sum += s[4 * t + k];
  int before = sum;
  for (int d = 1; d < 32; d *= 2) {
    int y = __shfl_up_sync(~0u, before, d);
    if (t >= d) before += y;
  }
  before -= sum;
  __syncwarp();
#pragma unroll
  for (int k = 0; k < 4; k++) s[4 * t + k] = x[k] + before;
  __syncwarp();
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (base + k * 32 + t < n) out[base + k * 32 + t] = s[k * 32 + t];
}

// Rows that are chosen are filled, in place; indices may repeat.
//@ for(n=(1, 12), rows=(4, 40)) launch(grid=n, block=32, args=[f32(rows*20), index64(n, rows), 20, 1.5])
extern "C" __global__ void fill_rows(float *a, const long long *row, int cols, float x) {
  float *p = a + row[blockIdx.x] * cols;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) p[c] = x;
}

// Rows that are chosen are added to; with repeated indices the order shows in the last bits.
//@ for(n=(1, 12), rows=(4, 40)) launch(grid=n, block=32, order="any", args=[f32(rows*20), index64(n, rows), f32(20*n), 20])
extern "C" __global__ void add_rows(float *a, const long long *row, const float *b, int cols) {
  for (int c = threadIdx.x; c < cols; c += blockDim.x) atomicAdd(&a[row[blockIdx.x] * cols + c], b[blockIdx.x * cols + c]);
}

// An index may be negative: it counts from the end.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, args=[f32(50), ints([x - 50 for x in noise(n, 100)]), zero(4*n), 50, n])
extern "C" __global__ void take(const float *table, const int *at, float *out, int size, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int k = at[i];
  out[i] = table[k < 0 ? k + size : k];
}

// Lower triangle kept, the rest set to minus infinity, in place.
//@ for(n=(1, 16, 33), heads=(1, 3)) launch(grid=(up(n*n, 64), heads), block=64, args=[f32(heads*n*n), n])
extern "C" __global__ void causal_mask(float *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n * n && i % n > i / n) a[blockIdx.y * n * n + i] = __int_as_float(0xff800000);
}

// A chain of operations in one kernel, results kept along the way.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), f32(n), zero(4*n), zero(4*n), n])
//@ for(n=(1000,)) launch(grid=up(n, 128), block=128, args=[(a := f32(n)), f32(n), zero(4*n), a, n])
//@ for(n=(1000,)) launch(grid=up(n, 128), block=128, args=[(a := f32(n)), a, zero(4*n), zero(4*n), n])
extern "C" __global__ void fused_chain(const float *a, const float *b, float *kept, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = a[i] * b[i];
  kept[i] = x;
  x = x / (1 + expf(-x));
  out[i] = x + a[i];
}
