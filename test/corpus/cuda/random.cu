// Random numbers and what is estimated with them.
// variants: O0 fast

__device__ unsigned lcg(unsigned x) { return x * 1664525u + 1013904223u; }

// Philox with two words and ten rounds: a counter in, no state.
__device__ uint2 philox(unsigned counter, unsigned stream, unsigned key) {
  uint2 c = {counter, stream};
  for (int r = 0; r < 10; r++) {
    unsigned hi = __umulhi(0xD256D193u, c.x), lo = 0xD256D193u * c.x;
    c = {hi ^ key ^ c.y, lo};
    key += 0x9E3779B9u;
  }
  return c;
}

__device__ float unit(unsigned x) { return (x >> 8) * 0x1p-24f; }

// Every thread's state lies in memory and moves on.
//@ for(n=S, draws=(1, 20)) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), draws, n])
//@ for(n=10007) launch(grid=up(n, 128), block=128, count=32, args=[u32(n), zero(4*n), 8, n])
extern "C" __global__ void pi_state(unsigned *state, int *hits, int draws, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned s = state[i];
  int h = 0;
  for (int k = 0; k < draws; k++) {
    float x = unit(s = lcg(s)), y = unit(s = lcg(s));
    h += x * x + y * y < 1;
  }
  state[i] = s;
  hits[i] = h;
}

//@ for(n=S, draws=(1, 20)) launch(grid=up(n, 128), block=128, args=[zero(4*n), U(77), draws, n])
extern "C" __global__ void pi_philox(int *hits, unsigned seed, int draws, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int h = 0;
  for (int k = 0; k < draws; k++) {
    uint2 r = philox(k, i, seed);
    float x = unit(r.x), y = unit(r.y);
    h += x * x + y * y < 1;
  }
  hits[i] = h;
}

//@ for(b=(1, 7, 24), draws=(16,)) launch(grid=b, block=128, args=[zero(8), U(5), draws])
extern "C" __global__ void pi_count(unsigned long long *hits, unsigned seed, int draws) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned h = 0;
  for (int k = 0; k < draws; k++) {
    uint2 r = philox(k, i, seed);
    h += unit(r.x) * unit(r.x) + unit(r.y) * unit(r.y) < 1;
  }
  h = __syncthreads_count(h > draws / 2);
  if (threadIdx.x == 0) atomicAdd(hits, (unsigned long long)h);
}

// Skips ahead: state times a power, in place.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[u32(n), n])
extern "C" __global__ void advance(unsigned *state, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned s = state[i], a = 1664525u, c = 1013904223u;
  for (unsigned steps = i; steps; steps >>= 1) {
    if (steps & 1) s = s * a + c;
    c *= a + 1;
    a *= a;
  }
  state[i] = s;
}

//@ for(n=S) launch(grid=up(n, 256), block=256, args=[zero(4*n), UL(1234567890123), n])
extern "C" __global__ void fill_xorshift(unsigned *out, unsigned long long seed, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned long long x = seed + 0x9E3779B97F4A7C15ull * (i + 1);
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    out[i] = (x * 2685821657736338717ull) >> 32;
  }
}

// Pairs of normal numbers, Box and Muller's way.
//@ for(n=S) launch(grid=up((n + 1)//2, 128), block=128, args=[zero(4*n + 4), U(3), n])
extern "C" __global__ void fill_normal(float *out, unsigned seed, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (2 * i >= n) return;
  uint2 r = philox(i, 0, seed);
  float radius = sqrtf(-2 * logf(unit(r.x) + 1e-7f)), s, c;
  sincosf(6.2831853f * unit(r.y), &s, &c);
  out[2 * i] = radius * c;
  if (2 * i + 1 < n) out[2 * i + 1] = radius * s;
}

// A call option's value, the mean over the paths of a block.
//@ for(b=(1, 6), steps=(1, 8)) launch(grid=b, block=64, args=[f32(b), zero(4*b), 0.02, steps, U(9)])
extern "C" __global__ void option(const float *spot, float *value, float sigma, int steps, unsigned seed) {
  __shared__ float part[64];
  float s = 100 + spot[blockIdx.x];
  for (int k = 0; k < steps; k++) {
    uint2 r = philox(k, blockIdx.x * 64 + threadIdx.x, seed);
    s *= 1 + sigma * (unit(r.x) + unit(r.y) - 1);
  }
  part[threadIdx.x] = fmaxf(s - 100, 0);
  for (int h = 32; h > 0; h /= 2) {
    __syncthreads();
    if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];
  }
  if (threadIdx.x == 0) value[blockIdx.x] = part[0] / 64;
}

// Walkers on a ring count their visits.
//@ for(n=(1, 33, 256), sites=(5, 64), steps=(1, 12)) launch(grid=up(n, 64), block=64, args=[index(n, sites), zero(4*sites), sites, steps, n])
extern "C" __global__ void walkers(int *at, int *visits, int sites, int steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int p = at[i];
  for (int k = 0; k < steps; k++) {
    p = (p + ((philox(k, i, 1).x & 1) ? 1 : sites - 1)) % sites;
    atomicAdd(&visits[p], 1);
  }
  at[i] = p;
}

// A Metropolis sweep over the spins of one colour of a ring, in place.
//@ for(n=(2, 64, 1000), colour=(0, 1)) launch(grid=up(n//2, 64), block=64, args=[u8(n), colour, U(4), n])
extern "C" __global__ void ising(unsigned char *spin, int colour, unsigned seed, int n) {
  int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + colour;
  if (i >= n) return;
  int s = spin[i] & 1, agree = (spin[(i + 1) % n] & 1) + (spin[(i + n - 1) % n] & 1);
  int cost = s ? agree : 2 - agree;
  if (cost <= 1 || unit(philox(i, 7, seed).x) < 0.2f) spin[i] = !s;
}

// Mersenne-like recurrence: a block turns its table of 96 words in place.
//@ for(b=(1, 5)) launch(grid=b, block=32, args=[u32(96*b)])
extern "C" __global__ void twist(unsigned *state) {
  unsigned *s = state + 96 * blockIdx.x;
  int t = threadIdx.x;
  for (int part = 0; part < 3; part++) {
    int i = part * 32 + t;
    unsigned y = (s[i] & 0x80000000u) | (s[(i + 1) % 96] & 0x7fffffffu), m = s[(i + 61) % 96];
    __syncthreads();
    s[i] = m ^ (y >> 1) ^ ((y & 1) ? 0x9908B0DFu : 0);
    __syncthreads();
  }
}
