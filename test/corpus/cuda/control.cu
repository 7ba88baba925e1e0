// Control flow, warps, barriers, clocks, scratch memory, what must not be run twice.
// variants: O0
#include <cstdio>

//@ for(n=S, b=(1, 7)) launch(grid=b, block=64, args=[f32(n), zero(4*n), n])
extern "C" __global__ void grid_stride(const float *in, float *out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i] * in[i];
}

//@ for(n=(1, 33, 500)) launch(grid=up(n, 64), block=64, args=[index(n, 1000), zero(4*n), n])
extern "C" __global__ void collatz(const unsigned *in, int *steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = in[i] + 1;
  int s = 0;
  for (; x != 1; s++) x = x & 1 ? 3 * x + 1 : x / 2;
  steps[i] = s;
}

//@ for(n=S) launch(grid=up(n, 96), block=96, args=[u32(n), zero(4*n), n])
extern "C" __global__ void many_ways(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int x = in[i];
  switch (x & 7) {
  case 0: x = x * 3; break;
  case 1: x = x ^ 0x1234; break;
  case 2: x = __popc(x); break;
  case 3: x = __clz(x); [[fallthrough]];
  case 4: x += 100; break;
  case 5: for (int k = 0; k < (x >> 3 & 7); k++) x = x * 5 + 1; break;
  default: x = -x;
  }
  out[i] = x;
}

__device__ __noinline__ float polynomial(float x, int degree) {
  float y = 1;
  for (int k = 0; k < degree; k++) y = y * x + k;
  return y;
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), zero(4*n), 6, n])
//@ for(n=(1000,)) launch(grid=up(n, 128), block=128, args=[(a := f32(n)), a, 6, n])
extern "C" __global__ void calls(const float *in, float *out, int degree, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = polynomial(in[i], degree);
}

__device__ __noinline__ void store_through(int *p, int x) { *p = x; }

__device__ __noinline__ int load_through(const int *p) { return *p + 1; }

// Memory is accessed only in functions that are called.
//@ for(n=S) launch(grid=up(n, 64), block=64, args=[u32(n), zero(4*n), n])
//@ for(n=(1000,)) launch(grid=up(n, 64), block=64, args=[(a := u32(n)), a, n])
extern "C" __global__ void calls_with_pointers(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) store_through(out + i, load_through(in + i));
}

__device__ __noinline__ int ackermann(int m, int n) {
  if (m == 0) return n + 1;
  return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

//@ for(n=(1, 20)) launch(grid=1, block=32, args=[zero(4*n), n])
extern "C" __global__ void recursion(int *out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x / 3);
}

__device__ int twice(int x) { return 2 * x; }
__device__ int thrice(int x) { return 3 * x; }
typedef int (*Function)(int);
__device__ Function functions[2] = {twice, thrice};

//@ for(n=(1, 100)) launch(grid=up(n, 32), block=32, args=[u32(n), zero(4*n), n])
extern "C" __global__ void function_pointers(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = functions[in[i] & 1](in[i]);
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(12*up(n, 128)), n])
extern "C" __global__ void votes(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  bool p = i < n && in[i] > 0;
  int all = __syncthreads_and(p), any = __syncthreads_or(p), count = __syncthreads_count(p);
  if (threadIdx.x == 0) {
    out[3 * blockIdx.x] = all;
    out[3 * blockIdx.x + 1] = any;
    out[3 * blockIdx.x + 2] = count;
  }
}

//@ for(n=S) launch(grid=up(n, 64), block=64, args=[index(n, 4), zero(4*n), n])
extern "C" __global__ void warp_groups(const int *in, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int x = i < n ? in[i] : -1;
  unsigned same = __match_any_sync(~0u, x);
  int pred;
  unsigned every = __match_all_sync(~0u, x & 1, &pred);
  bool all = __all_sync(~0u, x >= 0), any = __any_sync(~0u, x == 3);
  if (i < n) out[i] = same ^ (every << 1) ^ (pred << 3) ^ (all << 5) ^ (any << 7);
}

// Half of a warp shuffles among itself.
//@ for(n=(32, 256)) launch(grid=n//32, block=32, args=[u32(n), zero(4*n)])
extern "C" __global__ void shuffle_halves(const int *in, int *out) {
  int i = blockIdx.x * 32 + threadIdx.x, x = in[i];
  if (threadIdx.x % 2) x = __shfl_sync(0xaaaaaaaau, x, (threadIdx.x + 2) % 32);
  else x = __shfl_xor_sync(0x55555555u, x, 4, 16);
  out[i] = x;
}

// Lanes leave one after another; each counts those still with it.
//@ for(n=(1, 40, 300)) launch(grid=up(n, 64), block=64, args=[index(n, 9), zero(4*n), n])
extern "C" __global__ void leave_early(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned left = __ballot_sync(~0u, i < n);
  if (i >= n) return;
  int rounds = in[i], sum = 0;
  for (int k = 0; left = __ballot_sync(left, k < rounds), k < rounds; k++) sum += __popc(left);
  out[i] = sum;
}

// Volatile flags from one half of a block to the other.
//@ for(b=(1, 5)) launch(grid=b, block=64, args=[zero(4*b), zero(4*b)])
extern "C" __global__ void hand_over(int *flag, int *box) {
  volatile int *f = flag + blockIdx.x, *p = box + blockIdx.x;
  if (threadIdx.x == 32) {
    *p = 40 + blockIdx.x;
    __threadfence();
    *f = 1;
  }
  if (threadIdx.x == 0) {
    while (*f == 0) {
    }
    __threadfence();
    *p += 2;
  }
}

// All blocks wait for one another, as grid-wide barriers do: the counter goes on from launch to launch.
//@ for(b=(1, 4, 12)) launch(grid=b, block=32, spin=True, args=[zero(4), u32(32*b), zero(128*b)])
extern "C" __global__ void grid_barrier(unsigned *arrived, int *a, int *out) {
  int i = blockIdx.x * 32 + threadIdx.x;
  a[i] += 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    unsigned ticket = atomicAdd(arrived, 1), goal = (ticket / gridDim.x + 1) * gridDim.x;
    while (*(volatile unsigned *)arrived < goal) {
    }
    __threadfence();
  }
  __syncthreads();
  out[i] = __ldcg(a + (i + 32) % (32 * gridDim.x));
}

// Block after block.
//@ for(b=(1, 4, 12)) launch(grid=b, block=32, spin=True, args=[zero(4), zero(4*b)])
extern "C" __global__ void in_turn(unsigned *turn, unsigned *out) {
  if (threadIdx.x) return;
  while (*(volatile unsigned *)turn != blockIdx.x) {
  }
  out[blockIdx.x] = blockIdx.x ? ((volatile unsigned *)out)[blockIdx.x - 1] * 3 + 1 : 1;
  __threadfence();
  atomicExch(turn, blockIdx.x + 1);
}

// A lock around a sum: the sum does not depend on the order.
//@ for(b=(1, 4)) launch(grid=b, block=32, spin=True, args=[zero(4), zero(8)])
extern "C" __global__ void locked_sum(int *lock, int *sum) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *(volatile int *)sum += blockIdx.x * 32 + threadIdx.x;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

//@ for(b=(1, 3)) launch(grid=b, block=32, order="any", args=[zero(8*32*b)])
extern "C" __global__ void clock_stamps(long long *out) {
  long long start = clock64();
  out[blockIdx.x * blockDim.x + threadIdx.x] = start;
}

// The clock decides where is written.
//@ for(b=(1, 3)) launch(grid=b, block=32, order="any", args=[zero(4*64)])
extern "C" __global__ void clock_scatter(int *out) { out[(clock() >> 4) & 63] = threadIdx.x; }

// The clock is read, but changes nothing.
//@ for(n=(1, 100)) launch(grid=up(n, 32), block=32, args=[u32(n), zero(4*n), n])
extern "C" __global__ void clock_bounded(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  long long start = clock64();
  int x = i < n ? in[i] : 0;
  if (clock64() - start < 0) x = 0;
  if (i < n) out[i] = x;
}

//@ for(b=(1, 3)) launch(grid=b, block=4, order="any", args=[zero(64*b), 7])
extern "C" __global__ void says(int *out, int x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = x + i;
  printf("block %d thread %d: %d %.2f\n", blockIdx.x, threadIdx.x, x + i, 0.5 * x);
}

// Says something only if something is wrong, which it is not.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[index(n, 100), zero(4*n), n])
extern "C" __global__ void complains(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (in[i] < 0) printf("element %d is %d\n", i, in[i]);
  out[i] = in[i] * 2;
}

// A trap that no launch of ours springs.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[index(n, 50), u32(50), zero(4*n), 50, n])
extern "C" __global__ void checked_gather(const int *at, const int *table, int *out, int size, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if ((unsigned)at[i] >= size) __trap();
  out[i] = table[at[i]];
}

// In place, but those below zero are left alone.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[f32(n), n])
extern "C" __global__ void exit_inplace(float *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = a[i];
  if (x < 0) return;
  a[i] = sqrtf(x);
}

// A thread that finds nothing to do reads, but never writes.
//@ for(n=S, limit=(0, 10**9)) launch(grid=up(n, 256), block=256, args=[u32(n), limit, n])
extern "C" __global__ void clamp_inplace(int *a, int limit, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && a[i] > limit) a[i] = limit;
}

// Written twice: a provisional value, then the real one.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), n])
extern "C" __global__ void double_write(const int *in, volatile int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = -1;
  if (in[i] >= 0) out[i] = in[i];
}

// Everybody writes the same to one place.
//@ for(b=(1, 6)) launch(grid=b, block=64, args=[zero(4), 42])
extern "C" __global__ void same_write(int *out, int x) { *out = x; }

// The last writer wins: who that is, is open.
//@ for(b=(2, 6)) launch(grid=b, block=64, order="any", args=[zero(4)])
extern "C" __global__ void last_write(int *out) { *out = blockIdx.x * blockDim.x + threadIdx.x; }

// Scratch memory of a thread's own in global memory, written before it is read.
//@ for(n=(1, 33, 300), k=(1, 8)) launch(grid=up(n, 64), block=64, args=[u32(n), zero(4*n*k), zero(4*n), k, n])
extern "C" __global__ void scratch_thread(const int *in, int *scratch, int *out, int k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int j = 0; j < k; j++) scratch[j * n + i] = in[i] * j;
  int sum = 0;
  for (int j = 0; j < k; j++) sum += scratch[(k - 1 - j) * n + i] ^ j;
  out[i] = sum;
}

// Of a block's own, with a barrier between.
//@ for(b=(1, 2, 9), t=(32, 64)) launch(grid=b, block=t, args=[u32(b*t), zero(4*b*t), zero(4*b*t)])
extern "C" __global__ void scratch_block(const int *in, int *scratch, int *out) {
  int *s = scratch + blockIdx.x * blockDim.x, t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = in[i] * 2;
  __syncthreads();
  out[i] = s[blockDim.x - 1 - t];
}

// The same without the barrier, among the lanes of a warp that need none today.
//@ for(b=(1, 9)) launch(grid=b, block=32, order="any", args=[u32(b*32), zero(4*b*32), zero(4*b*32)])
extern "C" __global__ void scratch_unordered(const int *in, volatile int *scratch, int *out) {
  volatile int *s = scratch + blockIdx.x * 32;
  int t = threadIdx.x, i = blockIdx.x * 32 + t;
  s[t] = in[i] * 2;
  out[i] = s[31 - t];
}

// Scratch that only half of the threads fill: the rest shows through.
//@ for(b=(1, 4)) launch(grid=b, block=64, args=[u32(b*64), u32(b*64)])
extern "C" __global__ void scratch_half(const int *in, int *scratch) {
  int *s = scratch + blockIdx.x * 64, t = threadIdx.x;
  if (t % 2) s[t] = in[blockIdx.x * 64 + t];
  __syncthreads();
  int x = s[t] + s[63 - t];
  __syncthreads();
  s[t] = x;
}

// A result, used again within the launch: read after written by the same thread.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), zero(4*n), n])
extern "C" __global__ void written_then_read(const int *in, volatile int *mid, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  mid[i] = in[i] + 1;
  out[i] = mid[i] * 2;
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), ints([-1, 0, 0, 2**31 - 1, -2**31]), n])
extern "C" __global__ void atomics_fixed_point(const unsigned *in, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAnd(&out[0], in[i] | 0xff);
  atomicOr(&out[1], in[i] & 0xff);
  atomicMax(&out[2], in[i]);
  atomicMin((int *)&out[3], (int)in[i]);
  atomicMax((int *)&out[4], (int)in[i]);
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(20), n])
extern "C" __global__ void atomics_counting(const unsigned *in, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicXor(&out[0], in[i]);
  atomicSub(&out[1], in[i]);
  atomicInc(&out[2], 6);
  atomicDec(&out[3], 6);
}

// Everybody exchanges the same value.
//@ for(b=(1, 5)) launch(grid=b, block=64, args=[zero(4)])
extern "C" __global__ void exchange_fixed(int *out) { atomicExch(out, 17); }

// Tickets are handed out: who gets which is open.
//@ for(b=(1, 5)) launch(grid=b, block=64, order="any", args=[zero(4), zero(256*b)])
extern "C" __global__ void tickets(int *next, int *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1); }

// A counter that this launch counts up and down again.
//@ for(b=(1, 5)) launch(grid=b, block=64, args=[zero(4)])
extern "C" __global__ void up_and_down(int *count) {
  atomicAdd(count, 3);
  atomicSub(count, 3);
}

// A maximum of floats by compare and swap.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), zero(4), n])
extern "C" __global__ void float_max(const float *in, unsigned *most, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned was = *(volatile unsigned *)most;
  while (in[i] > __uint_as_float(was)) {
    unsigned seen = atomicCAS(most, was, __float_as_uint(in[i]));
    if (seen == was) break;
    was = seen;
  }
}

// Atomics that the host may watch.
//@ for(b=(1, 5)) launch(grid=b, block=64, args=[zero(4), zero(8)])
extern "C" __global__ void system_atomics(int *count, unsigned long long *most) {
  atomicAdd_system(count, 1);
  atomicMax_system(most, (unsigned long long)(blockIdx.x * blockDim.x + threadIdx.x));
  __threadfence_system();
}

__device__ int module_counter;
__device__ int module_table[64];
__constant__ int module_constant[4] = {3, 5, 7, 11};

// Variables of the module, not of the caller.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), n])
extern "C" __global__ void module_variables(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 64) module_table[i] = i;
  if (i < n) out[i] = in[i] * module_constant[i & 3];
}

//@ for(b=(1, 4)) launch(grid=b, block=64, args=[])
extern "C" __global__ void module_count() { atomicAdd(&module_counter, 1); }

// Two arrays in one piece of dynamic shared memory.
//@ for(b=(1, 4), t=(32, 96)) launch(grid=b, block=t, shared=6*t, args=[u32(b*t), zero(4*b*t)])
extern "C" __global__ void dynamic_arrays(const int *in, int *out) {
  extern __shared__ char raw[];
  int *words = (int *)raw;
  short *halves = (short *)(words + blockDim.x);
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  words[t] = in[i];
  halves[t] = in[i] >> 16;
  __syncthreads();
  int o = blockDim.x - 1 - t;
  out[i] = words[o] + halves[(t + 1) % blockDim.x];
}

// An array of the thread's own, indexed by data.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, args=[u32(n), zero(4*n), n])
extern "C" __global__ void local_array(const unsigned *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int seen[16] = {};
  unsigned x = in[i];
  for (int k = 0; k < 8; k++, x >>= 4) seen[x & 15]++;
  int best = 0;
  for (int k = 1; k < 16; k++)
    if (seen[k] > seen[best]) best = k;
  out[i] = best * 16 + seen[best];
}

// Producers and consumers meet at named barriers.
//@ for(b=(1, 3), rounds=(1, 5)) launch(grid=b, block=64, args=[u32(b*32*rounds), zero(128*b*rounds), rounds])
extern "C" __global__ void producer_consumer(const int *in, int *out, int rounds) {
  __shared__ int slot[32];
  int lane = threadIdx.x % 32, base = blockIdx.x * 32 * rounds;
  for (int r = 0; r < rounds; r++) {
    if (threadIdx.x < 32) {
      slot[lane] = in[base + r * 32 + lane];
      asm volatile("bar.arrive 1, 64;" ::: "memory");
      asm volatile("bar.sync 2, 64;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 64;" ::: "memory");
      out[base + r * 32 + lane] = slot[31 - lane] * 3;
      asm volatile("bar.arrive 2, 64;" ::: "memory");
    }
  }
}

// A bit of everything three-dimensional.
//@ for(g=((2, 3, 2), (1, 1, 5)), b=((4, 4, 2), (3, 5, 1))) launch(grid=g, block=b, args=[zero(4*g[0]*g[1]*g[2]*b[0]*b[1]*b[2])])
extern "C" __global__ void coordinates(int *out) {
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = blockIdx.z * 10000 + blockIdx.y * 1000 + threadIdx.z * 100 + threadIdx.y * 10 + threadIdx.x;
}

// Nothing happens.
//@ for(b=(1, 64)) launch(grid=b, block=128, args=[null, 0])
extern "C" __global__ void nothing(int *p, int n) {
  if (p && n) *p = n;
}
