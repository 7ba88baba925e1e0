// What needs sm_90: clusters, distributed shared memory; and asynchronous copies of sm_80.
// variants: O0

__device__ unsigned cluster_rank() {
  unsigned r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

__device__ unsigned cluster_size() {
  unsigned n;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  return n;
}

__device__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The address of a variable of shared memory in another block of the cluster.
__device__ unsigned remote(const void *p, unsigned rank) {
  unsigned a = (unsigned)__cvta_generic_to_shared(p), r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(rank));
  return r;
}

__device__ int load_remote(unsigned a) {
  int x;
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(x) : "r"(a) : "memory");
  return x;
}

// Every block sums its part, the first of the cluster sums the blocks.
//@ for(n=(1, 100, 1000, 4099), c=(1, 2, 4)) launch(grid=4, block=64, cluster=c, args=[u32(n), zero(16), n])
extern "C" __global__ void cluster_sum(const int *in, int *out, int n) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  int x = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x += in[i];
  atomicAdd(&sum, x);
  cluster_sync();
  if (cluster_rank() == 0 && threadIdx.x == 0) {
    int total = 0;
    for (unsigned r = 0; r < cluster_size(); r++) total += load_remote(remote(&sum, r));
    out[blockIdx.x / cluster_size()] = total;
  }
  cluster_sync();
}

// Tiles go round the cluster.
//@ for(c=(2, 4), rounds=(1, 3)) launch(grid=8, block=32, cluster=c, args=[u32(256), zero(1024), rounds])
extern "C" __global__ void cluster_ring(const int *in, int *out, int rounds) {
  __shared__ int tile[2][32];
  int i = blockIdx.x * 32 + threadIdx.x;
  tile[0][threadIdx.x] = in[i];
  for (int r = 0; r < rounds; r++) {
    cluster_sync();
    unsigned from = (cluster_rank() + 1) % cluster_size();
    tile[(r + 1) & 1][threadIdx.x] = load_remote(remote(&tile[r & 1][threadIdx.x], from)) + 1;
  }
  cluster_sync();
  out[i] = tile[rounds & 1][threadIdx.x];
}

// A histogram whose bins lie spread over the cluster.
//@ for(n=(0, 100, 1000), c=(1, 4)) launch(grid=4, block=64, cluster=c, args=[index(n, 64), zero(4*64*4), n])
extern "C" __global__ void cluster_histogram(const int *in, int *out, int n) {
  __shared__ int bins[64];
  int per = 64 / cluster_size();
  bins[threadIdx.x] = 0;
  cluster_sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned a = remote(&bins[in[i] % per], in[i] / per);
    asm volatile("red.shared::cluster.add.s32 [%0], 1;" ::"r"(a) : "memory");
  }
  cluster_sync();
  int first = blockIdx.x / cluster_size() * 64;
  if (threadIdx.x < per) out[first + cluster_rank() * per + threadIdx.x] = bins[threadIdx.x];
}

// Global to shared memory behind the thread's back, two stages.
//@ for(n=(64, 256, 1024)) launch(grid=2, block=32, args=[u32(2*n), zero(8*n), n])
//@ for(n=(64, 256)) launch(grid=2, block=32, args=[(a := u32(2*n)), a, n])
extern "C" __global__ void async_stages(const int *in, int *out, int n) {
  __shared__ __align__(16) int stage[2][32];
  in += blockIdx.x * n;
  out += blockIdx.x * n;
  auto fetch = [&](int k) {
    unsigned to = (unsigned)__cvta_generic_to_shared(&stage[k & 1][threadIdx.x]);
    if (k * 32 < n) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + k * 32 + threadIdx.x) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0);
  for (int k = 0; k * 32 < n; k++) {
    fetch(k + 1);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    int x = stage[k & 1][31 - threadIdx.x];
    __syncthreads();
    out[k * 32 + threadIdx.x] = x * 2;
  }
}

// Sixteen bytes a thread.
//@ for(b=(1, 5)) launch(grid=b, block=64, args=[u32(256*b), zero(1024*b)])
extern "C" __global__ void async_wide(const int4 *in, int *out) {
  __shared__ __align__(16) int4 tile[64];
  unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + blockIdx.x * 64 + threadIdx.x) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  const int *words = (const int *)tile;
  for (int k = 0; k < 4; k++) out[blockIdx.x * 256 + k * 64 + threadIdx.x] = words[k * 64 + 63 - threadIdx.x];
}

// One thread copies a whole row in bulk; the others wait for its bytes.
//@ for(b=(1, 4)) launch(grid=b, block=64, args=[u32(256*b), zero(1024*b)])
extern "C" __global__ void bulk_row(const int *in, int *out) {
  __shared__ __align__(128) int row[256];
  __shared__ __align__(8) unsigned long long full;
  unsigned bar = (unsigned)__cvta_generic_to_shared(&full), to = (unsigned)__cvta_generic_to_shared(row);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" ::"r"(bar) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(to), "l"(in + blockIdx.x * 256), "r"(bar) : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (!done) asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(bar) : "memory");
  for (int k = threadIdx.x; k < 256; k += 64) out[blockIdx.x * 256 + k] = row[k] + k;
}

// And back from shared memory in bulk, over what it came from.
//@ for(b=(1, 4)) launch(grid=b, block=64, args=[u32(64*b)])
extern "C" __global__ void bulk_back(int *a) {
  __shared__ __align__(128) int row[64];
  row[threadIdx.x] = a[blockIdx.x * 64 + threadIdx.x] ^ 0xff;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned from = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(a + blockIdx.x * 64), "r"(from) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// A product of 16 by 8 by 16 on the tensor cores, half precision in, a warp a tile.
//@ for(b=(1, 6)) launch(grid=b, block=32, args=[f16(256*b), f16(128*b), zero(512*b)])
extern "C" __global__ void tensor_tile(const unsigned *a, const unsigned *b, float *c) {
  a += blockIdx.x * 128;
  b += blockIdx.x * 64;
  c += blockIdx.x * 128;
  int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  unsigned a0 = a[g * 8 + t], a1 = a[(g + 8) * 8 + t], a2 = a[g * 8 + t + 4], a3 = a[(g + 8) * 8 + t + 4];
  unsigned b0 = b[g * 8 + t], b1 = b[g * 8 + t + 4]; // b lies by column
  float d[4] = {};
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  c[g * 8 + 2 * t] = d[0];
  c[g * 8 + 2 * t + 1] = d[1];
  c[(g + 8) * 8 + 2 * t] = d[2];
  c[(g + 8) * 8 + 2 * t + 1] = d[3];
}

// Rows are added to memory in bulk: the order does not matter for integers.
//@ for(b=(1, 5)) launch(grid=b, block=64, args=[u32(64*b), zero(256)])
extern "C" __global__ void bulk_add(const int *in, int *sum) {
  __shared__ __align__(128) int row[64];
  row[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned from = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], 256;" ::"l"(sum), "r"(from) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// May overlap the launch before it, and let the next one overlap.
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[f32(n), zero(4*n), n])
extern "C" __global__ void dependent_launch(const float *in, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  float x = i < n ? in[i] : 0;
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (i < n) out[i] = x * 2;
}

// Two floats in one atomic operation.
//@ for(n=(1, 33, 300)) launch(grid=up(n, 64), block=64, order="any", args=[f32(2*n), index(n, 8), zero(64), n])
extern "C" __global__ void add_pairs(const float2 *in, const int *bin, float2 *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(out + bin[i]), "f"(in[i].x), "f"(in[i].y) : "memory");
}

// Flags released and acquired for the whole system.
//@ for(b=(1, 4)) launch(grid=b, block=32, args=[zero(4*b), zero(4*b)])
extern "C" __global__ void release_acquire(int *flag, int *data) {
  if (threadIdx.x == 0) {
    data[blockIdx.x] = 5;
    asm volatile("st.release.sys.global.s32 [%0], 1;" ::"l"(flag + blockIdx.x) : "memory");
  }
  int seen = 0;
  while (!seen) asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag + blockIdx.x) : "memory");
}

// One thread of a warp, whichever the hardware elects, does what any could.
//@ for(b=(1, 4)) launch(grid=b, block=64, args=[zero(8*b)])
extern "C" __global__ void elected(int *out) {
  unsigned mine;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(mine));
  if (mine) out[blockIdx.x * 2 + threadIdx.x / 32] = 9;
}

// Matrices of eight by eight, loaded by a warp at once and turned.
//@ for(b=(1, 4)) launch(grid=b, block=32, args=[f16(64*b), zero(128*b)])
extern "C" __global__ void turn_8x8(const unsigned *in, unsigned *out) {
  __shared__ __align__(16) unsigned tile[32];
  tile[threadIdx.x] = in[blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  unsigned from = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x % 8 * 4]), x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(x) : "r"(from) : "memory");
  out[blockIdx.x * 32 + threadIdx.x] = x;
}
