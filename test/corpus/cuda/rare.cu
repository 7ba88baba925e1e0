// Instructions by which memory is read or written that compilers seldom use.
// variants: O0
#include <cuda_fp16.h>
#include <mma.h>

// Tiles of 16 by 16 go from global memory to the tensor cores and back.
//@ for(b=(1, 4)) launch(grid=b, block=32, args=[f16(256*b), f16(256*b), zero(1024*b)])
extern "C" __global__ void matrix_tiles(const half *a, const half *b, float *c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, half, row_major> fb;
  fragment<accumulator, 16, 16, 16, float> fc;
  load_matrix_sync(fa, a + blockIdx.x * 256, 16);
  load_matrix_sync(fb, b + blockIdx.x * 256, 16);
  fill_fragment(fc, 0.0f);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(c + blockIdx.x * 256, fc, 16, mem_row_major);
}

// The result is added to what is there.
//@ for(b=(1, 4)) launch(grid=b, block=32, args=[f16(256*b), f16(256*b), f32(256*b)])
extern "C" __global__ void matrix_tiles_added(const half *a, const half *b, float *c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, half, col_major> fb;
  fragment<accumulator, 16, 16, 16, float> fc;
  load_matrix_sync(fa, a + blockIdx.x * 256, 16);
  load_matrix_sync(fb, b + blockIdx.x * 256, 16);
  load_matrix_sync(fc, c + blockIdx.x * 256, 16, mem_row_major);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(c + blockIdx.x * 256, fc, 16, mem_row_major);
}

// Tiles of a wider matrix: rows lie apart, and the gap is left alone. In place over its own input or not.
//@ for(w=(32, 48)) launch(grid=w//16, block=32, args=[f16(16*w), zero(2*16*w), w])
//@ for(w=(32, 48)) launch(grid=w//16, block=32, args=[(a := f16(16*w)), a, w])
extern "C" __global__ void matrix_square(const half *a, half *out, int w) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, half, row_major> fb;
  fragment<accumulator, 16, 16, 16, half> fc;
  load_matrix_sync(fa, a + blockIdx.x * 16, w);
  load_matrix_sync(fb, a + blockIdx.x * 16, w);
  fill_fragment(fc, __float2half(0.0f));
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(out + blockIdx.x * 16, fc, w, mem_row_major);
}

// Global to shared to global, by the copy engine only: no thread loads or stores a word of it.
//@ for(b=(1, 4)) launch(grid=b, block=32, args=[u32(64*b), zero(256*b)])
//@ for(b=(1, 4)) launch(grid=b, block=32, args=[(a := u32(64*b)), a])
//@ for(b=(1, 4)) launch(grid=b, block=32, order=None if b == 1 else "any", args=[(a := u32(64*b + 64)), a + 256])
extern "C" __global__ void bulk_through(const int *in, int *out) {
  __shared__ __align__(128) int row[64];
  __shared__ __align__(8) unsigned long long full;
  if (threadIdx.x) return;
  unsigned bar = (unsigned)__cvta_generic_to_shared(&full), at = (unsigned)__cvta_generic_to_shared(row);
  asm volatile("mbarrier.init.shared.b64 [%0], 1;\nfence.proxy.async.shared::cta;" ::"r"(bar) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(bar) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(at), "l"(in + blockIdx.x * 64), "r"(bar) : "memory");
  unsigned done = 0;
  while (!done) asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(bar) : "memory");
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(out + blockIdx.x * 64), "r"(at) : "memory");
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

// Minimum and maximum in bulk.
//@ for(b=(1, 4)) launch(grid=b, block=64, args=[u32(64*b), u32(64), u32(64)])
extern "C" __global__ void bulk_extremes(const unsigned *in, unsigned *least, unsigned *most) {
  __shared__ __align__(128) unsigned row[64];
  row[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x) return;
  unsigned at = (unsigned)__cvta_generic_to_shared(row);
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.u32 [%0], [%1], 256;" ::"l"(least), "r"(at) : "memory");
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.u32 [%0], [%1], 256;" ::"l"(most), "r"(at) : "memory");
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

// Copies that fill up with zeros: fewer bytes are read than arrive.
//@ for(n=(1, 4, 30, 64)) launch(grid=1, block=16, args=[u32(n), zero(256), n])
extern "C" __global__ void async_zero_fill(const int *in, int *out, int n) {
  __shared__ __align__(16) int tile[64];
  int t = threadIdx.x, left = min(max(n - 4 * t, 0), 4) * 4;
  unsigned to = (unsigned)__cvta_generic_to_shared(&tile[4 * t]);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(in + (left ? 4 * t : 0)), "r"(left) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  for (int k = 0; k < 4; k++) out[k * 16 + t] = tile[k * 16 + t];
}

// Prefetches read nothing that matters.
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), n])
extern "C" __global__ void prefetched(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(in + i));
  asm volatile("prefetch.global.L1 [%0];" ::"l"(out + i));
  out[i] = in[i] - 1;
}

// Cache hints, weak and relaxed and volatile accesses side by side.
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), zero(4*n), n])
//@ for(n=(1000,)) launch(grid=up(n, 128), block=128, args=[(a := u32(n)), a, zero(4*n), n])
extern "C" __global__ void cache_hints(const int *in, int *out, int *other, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int x = __ldcs(in + i), y = __ldlu(in + i), z;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(z) : "l"(in + i) : "memory");
  __stwt(out + i, x + y);
  __stcg(other + i, z);
  asm volatile("st.relaxed.cluster.global.s32 [%0], %1;" ::"l"(other + i), "r"(z + 1) : "memory");
}

// Sixteen bits are compared and swapped.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, args=[zero(2*n), n])
extern "C" __global__ void swap_16(unsigned short *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicCAS(a + i, (unsigned short)(i & 1), (unsigned short)7);
}

// 64 bits are exchanged, the old value kept.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, args=[u32(2*n), zero(8*n), n])
extern "C" __global__ void exchange_64(unsigned long long *a, unsigned long long *old, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) old[i] = atomicExch(a + i, ~0ull);
}

// A generic address that is of shared memory for some threads and of global memory for others.
//@ for(b=(1, 3)) launch(grid=b, block=64, args=[zero(4*b)])
extern "C" __global__ void shared_or_global(int *out) {
  __shared__ int local;
  if (threadIdx.x == 0) local = 0;
  __syncthreads();
  int *p = threadIdx.x & 1 ? &local : out + blockIdx.x;
  atomicAdd(p, 1);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out + blockIdx.x, local);
}

// Half precision, two at a time, added in memory; small whole numbers, so that the order does not show.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, args=[index(n, 4), zero(16), n])
extern "C" __global__ void add_halves(const int *bin, __half2 *sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sum + bin[i], __floats2half2_rn(1, 2));
}
