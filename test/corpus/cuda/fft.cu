// Steps of Fourier transforms; complex numbers lie interleaved.
// variants: O0 fast

__device__ float2 mul(float2 a, float2 b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }

__device__ float2 twiddle(int k, int n) {
  float s, c;
  sincospif(-2.0f * k / n, &s, &c);
  return {c, s};
}

// Stockham's step: from one buffer into another, in order at the end.
//@ for(n=(2, 64, 1024), s=(1, 4, 32)) launch(grid=up(n//2, 64), block=64, args=[f32(2*n), zero(8*n), n, min(s, n//2)])
//@ for(n=4096, s=[2**k for k in range(12)]) launch(grid=32, block=64, args=[f32(2*n), zero(8*n), n, s])
extern "C" __global__ void stockham(const float2 *in, float2 *out, int n, int s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n / 2) return;
  int q = i % s, p = i / s;
  float2 a = in[q + s * p], b = in[q + s * (p + n / s / 2)];
  float2 w = twiddle(p, n / s);
  out[q + s * 2 * p] = {a.x + b.x, a.y + b.y};
  out[q + s * (2 * p + 1)] = mul({a.x - b.x, a.y - b.y}, w);
}

// Cooley and Tukey's butterfly in place.
//@ for(n=(2, 64, 1024), h=(1, 4, 32)) launch(grid=up(n//2, 64), block=64, args=[f32(2*n), n, min(h, n//2)])
//@ for(n=4096, h=[2**k for k in range(12)]) launch(grid=32, block=64, args=[f32(2*n), n, h])
extern "C" __global__ void butterfly(float2 *a, int n, int half) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n / 2) return;
  int k = i % half, at = (i / half) * 2 * half + k;
  float2 x = a[at], y = mul(a[at + half], twiddle(k, 2 * half));
  a[at] = {x.x + y.x, x.y + y.y};
  a[at + half] = {x.x - y.x, x.y - y.y};
}

//@ for(n=(1, 8, 256, 1024)) launch(grid=up(n, 128), block=128, args=[f32(2*n), log2(n)])
extern "C" __global__ void bit_reverse_inplace(float2 *a, int bits) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 1u << bits) return;
  unsigned r = bits ? __brev(i) >> (32 - bits) : 0;
  if (i >= r) return;
  float2 x = a[i];
  a[i] = a[r];
  a[r] = x;
}

//@ for(n=(1, 8, 256, 1024)) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), log2(n)])
extern "C" __global__ void bit_reverse(const unsigned *in, unsigned *out, int bits) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 1u << bits) out[bits ? __brev(i) >> (32 - bits) : 0] = in[i];
}

// A block transforms 128 points in shared memory, in place.
//@ for(b=(1, 3, 12)) launch(grid=b, block=64, args=[f32(256*b)])
extern "C" __global__ void fft128(float2 *a) {
  __shared__ float2 s[128];
  a += blockIdx.x * 128;
  int t = threadIdx.x;
  for (int i = t; i < 128; i += 64) s[__brev(i) >> 25] = a[i];
  for (int half = 1; half < 128; half *= 2) {
    __syncthreads();
    int k = t % half, at = (t / half) * 2 * half + k;
    float2 x = s[at], y = mul(s[at + half], twiddle(k, 2 * half));
    s[at] = {x.x + y.x, x.y + y.y};
    s[at + half] = {x.x - y.x, x.y - y.y};
  }
  __syncthreads();
  for (int i = t; i < 128; i += 64) a[i] = s[i];
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(2*n), f32(2*n), zero(8*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[(a := f32(2*n)), f32(2*n), a, n])
extern "C" __global__ void multiply_spectra(const float2 *a, const float2 *b, float2 *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = mul(a[i], b[i]);
}

// Real input packed as complex numbers, parted in place: i and n-i belong to one thread.
//@ for(n=(2, 64, 1000)) launch(grid=up(n//2 + 1, 64), block=64, args=[f32(2*n), n])
extern "C" __global__ void split_real(float2 *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > n / 2) return;
  int j = (n - i) % n;
  float2 x = a[i], y = a[j];
  a[i] = {(x.x + y.x) / 2, (x.y - y.y) / 2};
  if (i != j) a[j] = {(x.y + y.y) / 2, (y.x - x.x) / 2};
}

// The same butterfly over the integers modulo 998244353.
//@ for(n=(2, 64, 1024), h=(1, 32)) launch(grid=up(n//2, 64), block=64, args=[index(n, 998244353), index(n, 998244353), n, min(h, n//2)])
extern "C" __global__ void number_butterfly(unsigned *a, const unsigned *root, int n, int half) {
  const unsigned p = 998244353;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n / 2) return;
  int k = i % half, at = (i / half) * 2 * half + k;
  unsigned x = a[at], y = (unsigned long long)a[at + half] * root[k] % p;
  a[at] = (x + y) % p;
  a[at + half] = (x + p - y) % p;
}

// Walsh and Hadamard: a warp transforms 32 numbers by shuffles, in place.
//@ for(n=(32, 256, 1024)) launch(grid=up(n, 128), block=128, args=[u32(n), n])
extern "C" __global__ void hadamard(int *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int x = i < n ? a[i] : 0;
  for (int d = 1; d < 32; d *= 2) {
    int y = __shfl_xor_sync(~0u, x, d);
    x = threadIdx.x & d ? y - x : x + y;
  }
  if (i < n) a[i] = x;
}

// A lifting step of a wavelet: odd ones from their even neighbours, in place.
//@ for(n=(2, 33, 1000)) launch(grid=up(n//2, 64), block=64, args=[f32(n), n])
extern "C" __global__ void lift_odd(float *a, int n) {
  int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + 1;
  if (i >= n) return;
  a[i] -= 0.5f * (a[i - 1] + (i + 1 < n ? a[i + 1] : a[i - 1]));
}
