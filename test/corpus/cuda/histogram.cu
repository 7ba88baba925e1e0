// Histograms: global, shared and private bins, with and without atomics.
// variants: O0 sm_80

//@ for(n=S, bins=(7, 64)) launch(grid=up(n, 256), block=256, args=[index(n, bins), zero(4*bins), n])
extern "C" __global__ void hist_global(const int *in, int *bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[in[i]], 1);
}

//@ for(n=S, bins=(7, 256)) launch(grid=min(up(n, 256), 6), block=256, shared=4*bins, args=[u32(n), zero(4*bins), n, bins])
//@ for(n=200003) launch(grid=48, block=256, shared=1024, count=8, args=[u32(n), zero(1024), n, 256])
extern "C" __global__ void hist_shared(const unsigned *in, int *bins, int n, int count) {
  extern __shared__ int local[];
  for (int b = threadIdx.x; b < count; b += blockDim.x) local[b] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i] % count], 1);
  __syncthreads();
  for (int b = threadIdx.x; b < count; b += blockDim.x)
    if (local[b]) atomicAdd(&bins[b], local[b]);
}

// Bins of a thread's own in shared memory; the block's result is stored, not added.
//@ for(n=S) launch(grid=up(n, 512), block=64, args=[u8(n), zero(64*up(n, 512)), n])
extern "C" __global__ void hist_private(const unsigned char *in, int *out, int n) {
  __shared__ unsigned short own[16][64];
  for (int b = 0; b < 16; b++) own[b][threadIdx.x] = 0;
  int end = min(n, (blockIdx.x + 1) * 512);
  for (int i = blockIdx.x * 512 + threadIdx.x; i < end; i += 64) own[in[i] >> 4][threadIdx.x]++;
  __syncthreads();
  if (threadIdx.x >= 16) return;
  int sum = 0;
  for (int t = 0; t < 64; t++) sum += own[threadIdx.x][t];
  out[blockIdx.x * 16 + threadIdx.x] = sum;
}

// Sums the blocks' histograms.
//@ for(parts=(1, 9, 40), bins=(16, 100)) launch(grid=up(bins, 32), block=32, args=[index(parts*bins, 512), zero(4*bins), parts, bins])
extern "C" __global__ void hist_merge(const int *parts, int *bins, int n, int count) {
  int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= count) return;
  int sum = 0;
  for (int p = 0; p < n; p++) sum += parts[p * count + b];
  bins[b] = sum;
}

// Lanes with the same bin elect one of them.
//@ for(n=S, bins=(3, 50)) launch(grid=up(n, 128), block=128, args=[index(n, bins), zero(4*bins), n])
extern "C" __global__ void hist_match(const int *in, int *bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  bool live = i < n;
  unsigned mask = __ballot_sync(~0u, live);
  if (!live) return;
  unsigned same = __match_any_sync(mask, in[i]);
  if (threadIdx.x % 32 == __ffs(same) - 1) atomicAdd(&bins[in[i]], __popc(same));
}

// Pairs into a table of two dimensions; weights are integers.
//@ for(n=(1, 33, 1000), w=(4, 17)) launch(grid=up(n, 128), block=128, args=[f32(n), f32(n), zero(4*w*w), n, w])
extern "C" __global__ void hist_2d(const float *x, const float *y, unsigned *bins, int n, int w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int a = min((int)((x[i] + 1) * 0.5f * w), w - 1), b = min((int)((y[i] + 1) * 0.5f * w), w - 1);
  atomicAdd(&bins[b * w + a], 1u);
}

// Bins by thread, not by element: each thread reads everything and nothing is atomic.
//@ for(n=(0, 100, 1000), bins=(5, 64)) launch(grid=up(bins, 32), block=32, args=[index(n, bins), zero(4*bins), n, bins])
extern "C" __global__ void hist_by_bin(const int *in, int *bins, int n, int count) {
  int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= count) return;
  int sum = 0;
  for (int i = 0; i < n; i++) sum += in[i] == b;
  bins[b] = sum;
}

// The cumulative table, in place, by one warp.
//@ for(bins=(1, 32, 100, 256)) launch(grid=1, block=32, args=[index(bins, 99), bins])
extern "C" __global__ void hist_cumulate(int *bins, int count) {
  int carry = 0;
  for (int base = 0; base < count; base += 32) {
    int b = base + threadIdx.x, x = b < count ? bins[b] : 0;
    for (int d = 1; d < 32; d *= 2) {
      int y = __shfl_up_sync(~0u, x, d);
      if (threadIdx.x >= d) x += y;
    }
    x += carry;
    if (b < count) bins[b] = x;
    carry = __shfl_sync(~0u, x, 31);
  }
}
