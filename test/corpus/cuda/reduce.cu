// Reductions: trees, shuffles, atomics, the last block.
// variants: O0 sm_70 O1

//@ for(n=S, t=(64, 256)) launch(grid=up(n, t), block=t, shared=4*t, args=[u32(n), zero(4*up(n, t)), n])
//@ for(n=(2**18, 1024)) launch(grid=up(n, 256), block=256, shared=1024, count=10, args=[u32(n), zero(4*up(n, 256)), n])
extern "C" __global__ void reduce_tree(const int *in, int *out, int n) {
  extern __shared__ int part[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? in[i] : 0;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

__device__ int warp_sum(int x) {
  for (int d = 16; d > 0; d /= 2) x += __shfl_down_sync(~0u, x, d);
  return x;
}

//@ for(n=S, b=(1, 3, 16)) launch(grid=b, block=128, args=[u32(n), zero(4*b), n])
extern "C" __global__ void reduce_warp(const int *in, int *out, int n) {
  __shared__ int part[4];
  int x = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x += in[i];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = part[0] + part[1] + part[2] + part[3];
}

//@ for(n=S) launch(grid=up(n, 256), block=256, args=[u32(n), zero(4), n])
extern "C" __global__ void reduce_atomic(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int x = warp_sum(i < n ? in[i] : 0);
  if (threadIdx.x % 32 == 0) atomicAdd(out, x);
}

// The last block to end adds up what the others left, and resets the ticket.
//@ for(n=S, b=(1, 2, 7, 32)) launch(grid=b, block=64, args=[u32(n), zero(4*b), zero(4), zero(8), n])
//@ for() launch(grid=64, block=64, count=50, args=[u32(100003), zero(256), zero(4), zero(8), 100003])
extern "C" __global__ void reduce_ticket(const int *in, int *parts, unsigned *ticket, int *out, int n) {
  __shared__ int part[2];
  __shared__ bool last;
  int x = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x += in[i];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = part[0] + part[1];
    __threadfence();
    last = atomicAdd(ticket, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x >= 32) return;
  x = 0;
  for (int i = threadIdx.x; i < gridDim.x; i += 32) x += ((volatile int *)parts)[i];
  x = warp_sum(x);
  if (threadIdx.x == 0) {
    *out = x;
    *ticket = 0;
  }
}

// The same with atomicInc, which wraps to zero by itself.
//@ for(n=(1, 256, 1000), b=(1, 5, 24)) launch(grid=b, block=32, args=[u32(n), zero(4*b), zero(4), zero(8), n])
extern "C" __global__ void reduce_wrap(const int *in, int *parts, unsigned *ticket, int *out, int n) {
  int x = 0;
  for (int i = blockIdx.x * 32 + threadIdx.x; i < n; i += gridDim.x * 32) x = max(x, in[i]);
  for (int d = 16; d > 0; d /= 2) x = max(x, __shfl_xor_sync(~0u, x, d));
  unsigned turn = 0;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = x;
    __threadfence();
    turn = atomicInc(ticket, gridDim.x - 1);
  }
  turn = __shfl_sync(~0u, turn, 0);
  if (turn != gridDim.x - 1) return;
  __threadfence();
  x = 0;
  for (int i = threadIdx.x; i < gridDim.x; i += 32) x = max(x, __ldcg(parts + i));
  for (int d = 16; d > 0; d /= 2) x = max(x, __shfl_xor_sync(~0u, x, d));
  if (threadIdx.x == 0) *out = x;
}

//@ for(n=S) launch(grid=up(n, 256), block=256, args=[u32(n), ints([-2**31]), ints([2**31 - 1]), n])
extern "C" __global__ void extremes(const int *in, int *most, int *least, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicMax(most, in[i]);
  atomicMin(least, in[i]);
}

// sm_80 reduces a warp in one instruction.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(16*up(n, 128)), n])
extern "C" __global__ void reduce_redux(const unsigned *in, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned x = i < n ? in[i] : 0;
#if __CUDA_ARCH__ >= 800
  x = __reduce_add_sync(~0u, x);
#else
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
#endif
  if (threadIdx.x % 32 == 0) out[i / 32] = x;
}

//@ for(n=S) launch(grid=up(n, 256), block=256, order="any", args=[f32(n), f32(n), zero(4), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 256), block=256, order="any", args=[(a := f32(n)), a, zero(4), n])
extern "C" __global__ void dot(const float *a, const float *b, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = i < n ? a[i] * b[i] : 0;
  for (int d = 16; d > 0; d /= 2) x += __shfl_down_sync(~0u, x, d);
  if (threadIdx.x % 32 == 0) atomicAdd(out, x);
}

// The smallest element's place, value and place in one word.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[index(n, 5000), ints([-1, 2**31 - 1]), n])
extern "C" __global__ void argmin(const int *in, unsigned long long *best, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicMin(best, (unsigned long long)in[i] << 32 | i);
}

// A warp sums a row.
//@ for(rows=(1, 5, 64), cols=(1, 31, 100, 257)) launch(grid=up(rows, 4), block=(32, 4), args=[f32(rows*cols), zero(4*rows), rows, cols])
extern "C" __global__ void row_sums(const float *in, float *out, int rows, int cols) {
  int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  float x = 0;
  for (int c = threadIdx.x; c < cols; c += 32) x += in[row * cols + c];
  for (int d = 16; d > 0; d /= 2) x += __shfl_down_sync(~0u, x, d);
  if (threadIdx.x == 0) out[row] = x;
}

// A thread sums a column, in double precision.
//@ for(rows=(1, 40, 129), cols=(1, 31, 100, 257)) launch(grid=up(cols, 64), block=64, args=[f64(rows*cols), zero(8*cols), rows, cols])
extern "C" __global__ void column_sums(const double *in, double *out, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  double x = 0;
  for (int r = 0; r < rows; r++) x += in[(size_t)r * cols + c];
  out[c] = x;
}

// One pass of a reduction in place: the lower half takes the upper one in.
//@ for(n=(1, 2, 33, 256, 1000)) launch(grid=up((n + 1)//2, 64), block=64, args=[u32(n), n])
//@ for(n=[2**k for k in range(11, 15)]) launch(grid=n//128, block=64, args=[u32(2**14), n])
extern "C" __global__ void fold(int *a, int n) {
  int half = (n + 1) / 2, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n - half) a[i] += a[i + half];
}
