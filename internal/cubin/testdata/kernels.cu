// Kernels for the tests: nvcc -cubin -arch=sm_90 -o sm_90.cubin kernels.cu (13.0.88).
#include <cooperative_groups.h>
#include <stdio.h>
#include <assert.h>
namespace cg = cooperative_groups;
struct Words { unsigned w[64]; };
__constant__ unsigned table[16] = {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597};
__constant__ unsigned scalar;
__device__ unsigned counter = 7;
__device__ unsigned zeroed[32];
__device__ unsigned *link_ = zeroed + 3;
extern "C" __global__ void empty() {}
extern "C" __global__ void add(const unsigned *a, const unsigned *b, unsigned *c, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
extern "C" __global__ void chain(unsigned *p, unsigned mul, unsigned inc) { *p = *p * mul + inc; }
extern "C" __global__ void shape(unsigned *out) {
  unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned n = blockDim.x * blockDim.y * blockDim.z;
  out[b * n + t] = (b * n + t) ^ (gridDim.x << 8) ^ (gridDim.y << 16) ^ (gridDim.z << 24) ^ (blockDim.x << 4) ^ (blockDim.y << 12) ^ (blockDim.z << 20);
}
extern "C" __global__ void smem(unsigned *out) {
  __shared__ unsigned s[1024];
  s[threadIdx.x] = threadIdx.x * 3 + 1;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = s[(threadIdx.x + 37) % blockDim.x];
}
extern "C" __global__ void dsmem(unsigned *out, unsigned words) {
  extern __shared__ unsigned d[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) d[i] = i ^ blockIdx.x;
  __syncthreads();
  unsigned h = 0;
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) h += d[words - 1 - i];
  out[blockIdx.x * blockDim.x + threadIdx.x] = h;
}
extern "C" __global__ void local(unsigned *out, unsigned n) {
  unsigned a[200];
  for (unsigned i = 0; i < 200; i++) a[i] = i * n + threadIdx.x;
  unsigned h = 0;
  for (unsigned i = 0; i < n; i++) h = h * 31 + a[(h + i * 7) % 200];
  out[blockIdx.x * blockDim.x + threadIdx.x] = h;
}
__device__ __noinline__ unsigned fact(unsigned n) { return n < 2 ? 1 : n * fact(n - 1); }
extern "C" __global__ void call(unsigned *out) { out[threadIdx.x] = fact(threadIdx.x % 11); }
typedef unsigned (*fn)(unsigned);
__device__ __noinline__ unsigned f0(unsigned x) { return x * 3; }
__device__ __noinline__ unsigned f1(unsigned x) { return x ^ 0x55; }
__device__ fn fns[2] = {f0, f1};
extern "C" __global__ void indirect(unsigned *out) { out[threadIdx.x] = fns[threadIdx.x & 1](threadIdx.x); }
extern "C" __global__ void constants(unsigned *out) { out[threadIdx.x] = table[threadIdx.x & 15] + scalar; }
extern "C" __global__ void globals(unsigned *out) {
  out[threadIdx.x] = counter + zeroed[threadIdx.x & 31] + (unsigned)(link_ - zeroed);
  if (threadIdx.x == 0) atomicAdd(&zeroed[0], 0);
}
extern "C" __global__ void generic(unsigned *out) {
  __shared__ unsigned s[64];
  unsigned l[4];
  volatile unsigned *p = threadIdx.x & 1 ? s : l;
  p[threadIdx.x & 3] = threadIdx.x + 5;
  unsigned v = p[threadIdx.x & 3];
  out[threadIdx.x] = v;
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster(unsigned *out) {
  __shared__ unsigned s;
  cg::cluster_group c = cg::this_cluster();
  if (threadIdx.x == 0) s = blockIdx.x * 10 + 1;
  c.sync();
  unsigned *other = c.map_shared_rank(&s, c.block_rank() ^ 1);
  out[blockIdx.x * blockDim.x + threadIdx.x] = *other + c.num_blocks() * 1000 + c.block_rank() * 100000;
  c.sync();
}
extern "C" __global__ void clusterany(unsigned *out) {
  __shared__ unsigned s;
  cg::cluster_group c = cg::this_cluster();
  if (threadIdx.x == 0) s = blockIdx.x * 10 + 1;
  c.sync();
  unsigned *other = c.map_shared_rank(&s, (c.block_rank() + 1) % c.num_blocks());
  out[blockIdx.x * blockDim.x + threadIdx.x] = *other + c.num_blocks() * 1000 + c.block_rank() * 100000;
  c.sync();
}
extern "C" __global__ void coop(unsigned *out) {
  cg::grid_group g = cg::this_grid();
  out[g.thread_rank()] = g.thread_rank();
  g.sync();
  out[g.size() + g.thread_rank()] = out[g.size() - 1 - g.thread_rank()];
}
extern "C" __global__ void dependent(unsigned *p) {
  cudaGridDependencySynchronize();
  *p = *p * 3 + 1;
  cudaTriggerProgrammaticLaunchCompletion();
}
extern "C" __global__ void busy(unsigned *p, long long clocks) { long long t = clock64(); while (clock64() - t < clocks) {} *p = 1; }
extern "C" __global__ void trap(unsigned *p) { if (*p != 77) __trap(); }
extern "C" __global__ void asserts(unsigned *p) { assert(*p == 77); *p = 1; }
extern "C" __global__ void spin(unsigned *p) { while (*(volatile unsigned *)p == 0) {} }
extern "C" __global__ void stray(unsigned *p) { *p = 1; }
extern "C" __global__ void print(unsigned x) { printf("%u\n", x); }
extern "C" __global__ void heap(unsigned **p) { *p = (unsigned *)malloc(64); }
extern "C" __global__ void bank(Words w, unsigned *out, int first) { out[threadIdx.x] = w.w[(int)threadIdx.x + first]; }
extern "C" __global__ void ctxinfo(unsigned *o) {
  if (threadIdx.x || blockIdx.x) return;
  unsigned v; unsigned long long q;
  asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(v)); o[0] = v;
  asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(v)); o[1] = v;
  asm volatile("mov.u32 %0, %%nsmid;" : "=r"(v)); o[2] = v;
  asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(v)); o[3] = v;
  asm volatile("mov.u64 %0, %%gridid;" : "=l"(q)); o[4] = (unsigned)q; o[5] = (unsigned)(q >> 32);
  asm volatile("mov.u32 %0, %%reserved_smem_offset_begin;" : "=r"(v)); o[6] = v;
  asm volatile("mov.u32 %0, %%reserved_smem_offset_end;" : "=r"(v)); o[7] = v;
}
template <int N> __device__ float burn(float x) { float r[N]; for (int i = 0; i < N; i++) r[i] = x + i; for (int k = 0; k < 4; k++) for (int i = 0; i < N; i++) r[i] = r[i] * r[(i + k + 1) % N] + x; float s = 0; for (int i = 0; i < N; i++) s += r[i]; return s; }
extern "C" __global__ void __launch_bounds__(128) regs(float *p) { p[blockIdx.x * blockDim.x + threadIdx.x] = burn<150>(p[threadIdx.x]); }
