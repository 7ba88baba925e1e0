// Prefix sums.
// variants: O0 sm_70

// Hillis and Steele, a block at a time.
//@ for(n=S, t=(64, 256)) launch(grid=up(n, t), block=t, shared=8*t, args=[u32(n), zero(4*n), zero(4*up(n, t)), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, shared=1024, args=[(a := u32(n)), a, zero(4*up(n, 128)), n])
//@ for(n=100003) launch(grid=up(n, 256), block=256, shared=2048, count=4, args=[u32(n), zero(4*n), zero(4*up(n, 256)), n])
extern "C" __global__ void scan_block(const int *in, int *out, int *sums, int n) {
  extern __shared__ int buf[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  int *from = buf, *to = buf + blockDim.x;
  from[t] = i < n ? in[i] : 0;
  for (int d = 1; d < blockDim.x; d *= 2) {
    __syncthreads();
    to[t] = from[t] + (t >= d ? from[t - d] : 0);
    int *swap = from;
    from = to;
    to = swap;
  }
  if (i < n) out[i] = from[t];
  if (t == blockDim.x - 1) sums[blockIdx.x] = from[t];
}

// The second phase: every block adds the sums before it, in place.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), index(up(n, 128), 1000), n])
extern "C" __global__ void scan_add(int *a, const int *sums, int n) {
  __shared__ int before;
  if (threadIdx.x == 0) {
    before = 0;
    for (int b = 0; b < blockIdx.x; b++) before += sums[b];
  }
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] += before;
}

// Blelloch's two sweeps, exclusive, in place.
//@ for(n=S) launch(grid=up(n, 256), block=128, args=[u32(n), n])
extern "C" __global__ void scan_blelloch(int *a, int n) {
  __shared__ int tree[256];
  int t = threadIdx.x, base = blockIdx.x * 256;
  for (int k = t; k < 256; k += 128) tree[k] = base + k < n ? a[base + k] : 0;
  int step = 1;
  for (int d = 128; d > 0; d /= 2, step *= 2) {
    __syncthreads();
    if (t < d) tree[step * (2 * t + 2) - 1] += tree[step * (2 * t + 1) - 1];
  }
  if (t == 0) tree[255] = 0;
  for (int d = 1; d < 256; d *= 2) {
    step /= 2;
    __syncthreads();
    if (t < d) {
      int l = step * (2 * t + 1) - 1, r = step * (2 * t + 2) - 1, x = tree[l];
      tree[l] = tree[r];
      tree[r] += x;
    }
  }
  __syncthreads();
  for (int k = t; k < 256; k += 128)
    if (base + k < n) a[base + k] = tree[k];
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), n])
extern "C" __global__ void scan_warp(const unsigned *in, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  unsigned x = i < n ? in[i] : 0;
  for (int d = 1; d < 32; d *= 2) {
    unsigned y = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += y;
  }
  if (i < n) out[i] = x;
}

// One pass over everything: blocks take numbers and wait for the sum of those before them.
// state holds a flag and a sum a block, and the ticket in front.
//@ for(n=S) launch(grid=up(n, 128), block=128, spin=True, args=[u32(n), zero(4*n), zero(8 + 8*up(n, 128)), n])
//@ for(n=20011) launch(grid=up(n, 128), block=128, spin=True, args=[u32(n), zero(4*n), zero(8 + 8*up(n, 128)), n])
extern "C" __global__ void scan_chained(const int *in, int *out, int *state, int n) {
  __shared__ int block, before, part[4];
  if (threadIdx.x == 0) block = atomicAdd(state, 1);
  __syncthreads();
  int i = block * 128 + threadIdx.x, lane = threadIdx.x % 32, w = threadIdx.x / 32;
  int x = i < n ? in[i] : 0;
  for (int d = 1; d < 32; d *= 2) {
    int y = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += y;
  }
  if (lane == 31) part[w] = x;
  __syncthreads();
  for (int k = 0; k < w; k++) x += part[k];
  volatile int *flags = state + 2;
  if (threadIdx.x == 127) {
    int sum = 0;
    if (block > 0) {
      while (flags[2 * (block - 1)] == 0) {
      }
      __threadfence();
      sum = flags[2 * (block - 1) + 1];
    }
    flags[2 * block + 1] = sum + x;
    __threadfence();
    flags[2 * block] = 1;
    before = sum;
  }
  __syncthreads();
  if (i < n) out[i] = x + before;
}

// Sums restart where the flag is set.
//@ for(n=S) launch(grid=1, block=256, args=[u32(n), u8(n), zero(4*n), n])
//@ for(n=(1000,)) launch(grid=1, block=256, args=[(a := u32(n)), u8(n), a, n])
extern "C" __global__ void scan_segments(const int *in, const unsigned char *head, int *out, int n) {
  __shared__ int sum[256];
  __shared__ int flag[256];
  __shared__ int carry;
  int t = threadIdx.x;
  if (t == 0) carry = 0;
  for (int base = 0; base < n; base += 256) {
    int i = base + t;
    sum[t] = i < n ? in[i] : 0;
    flag[t] = i < n && (head[i] & 7) == 0;
    for (int d = 1; d < 256; d *= 2) {
      __syncthreads();
      int s = 0, f = 0;
      if (t >= d) {
        s = flag[t] ? 0 : sum[t - d];
        f = flag[t - d];
      }
      __syncthreads();
      sum[t] += s;
      flag[t] |= f;
    }
    __syncthreads();
    int x = sum[t] + (flag[t] ? 0 : carry);
    if (i < n) out[i] = x;
    __syncthreads();
    if (t == 255) carry = x;
    __syncthreads();
  }
}

// A running maximum over each row, a warp a row, in place.
//@ for(rows=(1, 6, 40), cols=(1, 32, 75)) launch(grid=up(rows, 4), block=(32, 4), args=[u32(rows*cols), rows, cols])
extern "C" __global__ void scan_rows_max(int *a, int rows, int cols) {
  int row = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x;
  if (row >= rows) return;
  int carry = -2147483647 - 1;
  for (int base = 0; base < cols; base += 32) {
    int x = base + lane < cols ? a[row * cols + base + lane] : -2147483647 - 1;
    for (int d = 1; d < 32; d *= 2) x = max(x, __shfl_up_sync(~0u, x, d)); // lanes below d get their own
    x = max(x, carry);
    if (base + lane < cols) a[row * cols + base + lane] = x;
    carry = __shfl_sync(~0u, x, 31);
  }
}

// One step over global memory; the host swaps the buffers.
//@ for(n=(1, 33, 1000), d=(1, 16, 512)) launch(grid=up(n, 256), block=256, args=[u32(n), zero(4*n), n, d])
//@ for(n=(1000,), d=(1, 16)) launch(grid=up(n, 256), block=256, order="any", args=[(a := u32(n)), a, n, d])
//@ for(d=[2**k for k in range(11)]) launch(grid=16, block=128, args=[u32(2048), zero(8192), 2048, d])
extern "C" __global__ void scan_step(const int *in, int *out, int n, int d) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + (i >= d ? in[i - d] : 0);
}
