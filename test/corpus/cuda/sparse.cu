// Sparse matrices: compressed rows, ELLPACK, coordinates, diagonals.
// variants: O0 nofma

//@ for(m=(lists(1, 3, 9), lists(40, 5, 50), lists(301, 12, 64))) launch(grid=up(len(m[0])-1, 64), block=64, args=[ints(m[0]), ints(m[1]), f32(len(m[1])), f32(64), zero(4*len(m[0])), len(m[0])-1])
//@ for(m=(lists(1500, 7, 1500),)) launch(grid=24, block=64, count=60, args=[ints(m[0]), ints(m[1]), f32(len(m[1])), f32(1500), zero(6000), 1500])
extern "C" __global__ void csr_scalar(const int *rows, const int *cols, const float *values, const float *x, float *y, int n) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= n) return;
  float sum = 0;
  for (int e = rows[r]; e < rows[r + 1]; e++) sum += values[e] * x[cols[e]];
  y[r] = sum;
}

//@ for(m=(lists(1, 3, 9), lists(40, 5, 50), lists(101, 64, 64))) launch(grid=up(len(m[0])-1, 4), block=128, args=[ints(m[0]), ints(m[1]), f32(len(m[1])), f32(64), zero(4*len(m[0])), 0.5, 2.0, len(m[0])-1])
extern "C" __global__ void csr_vector(const int *rows, const int *cols, const float *values, const float *x, float *y, float alpha, float beta, int n) {
  int r = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (r >= n) return;
  float sum = 0;
  for (int e = rows[r] + lane; e < rows[r + 1]; e += 32) sum += values[e] * x[cols[e]];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
  if (lane == 0) y[r] = beta == 0 ? alpha * sum : alpha * sum + beta * y[r];
}

//@ for(n=(1, 33, 300), width=(1, 6)) launch(grid=up(n, 64), block=64, args=[index(n*width, 40), f32(n*width), f32(40), zero(4*n), n, width])
extern "C" __global__ void ellpack(const int *cols, const float *values, const float *x, float *y, int n, int width) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= n) return;
  float sum = 0;
  for (int k = 0; k < width; k++) sum += values[k * n + r] * x[cols[k * n + r]];
  y[r] = sum;
}

//@ for(n=(1, 33, 1000)) launch(grid=up(n, 128), block=128, order="any", args=[index(n, 50), index(n, 40), f32(n), f32(40), zero(200), n])
extern "C" __global__ void coo_float(const int *row, const int *col, const float *values, const float *x, float *y, int n) {
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < n) atomicAdd(&y[row[e]], values[e] * x[col[e]]);
}

//@ for(n=(0, 1, 33, 1000)) launch(grid=up(n, 128), block=128, args=[index(n, 50), index(n, 40), u32(n), u32(40), zero(200), n])
extern "C" __global__ void coo_int(const int *row, const int *col, const int *values, const int *x, int *y, int n) {
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < n) atomicAdd(&y[row[e]], values[e] * x[col[e]]);
}

//@ for(m=(lists(1, 3, 9), lists(40, 5, 50), lists(61, 12, 64)), k=(1, 8, 33)) launch(grid=(up(k, 32), len(m[0])-1), block=32, args=[ints(m[0]), ints(m[1]), f32(len(m[1])), f32(64*k), zero(4*(len(m[0])-1)*k), k])
extern "C" __global__ void spmm(const int *rows, const int *cols, const float *values, const float *b, float *c, int k) {
  int r = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= k) return;
  float sum = 0;
  for (int e = rows[r]; e < rows[r + 1]; e++) sum += values[e] * b[cols[e] * k + j];
  c[r * k + j] = sum;
}

// Products of rows where the matrix has elements.
//@ for(m=(lists(40, 5, 50), lists(61, 12, 64)), k=(1, 16)) launch(grid=len(m[0])-1, block=32, args=[ints(m[0]), ints(m[1]), f32((len(m[0])-1)*k), f32(64*k), zero(4*max(len(m[1]), 1)), k])
extern "C" __global__ void sddmm(const int *rows, const int *cols, const float *a, const float *b, float *values, int k) {
  int r = blockIdx.x;
  for (int e = rows[r] + threadIdx.x; e < rows[r + 1]; e += 32) {
    float sum = 0;
    for (int i = 0; i < k; i++) sum += a[r * k + i] * b[cols[e] * k + i];
    values[e] = sum;
  }
}

// Scales rows in place by the inverse of their sum.
//@ for(m=(lists(1, 3, 9), lists(40, 5, 50), lists(301, 12, 64))) launch(grid=up(len(m[0])-1, 64), block=64, args=[ints(m[0]), f32(len(m[1])), len(m[0])-1])
extern "C" __global__ void csr_normalise(const int *rows, float *values, int n) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= n) return;
  float sum = 0;
  for (int e = rows[r]; e < rows[r + 1]; e++) sum += fabsf(values[e]);
  if (sum > 0)
    for (int e = rows[r]; e < rows[r + 1]; e++) values[e] /= sum;
}

// Tridiagonal, stored by diagonals.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(3*n), f32(n), zero(4*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, order="any", args=[f32(3*n), (x := f32(n)), x, n])
extern "C" __global__ void tridiagonal(const float *d, const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = d[n + i] * x[i];
  if (i > 0) sum += d[i] * x[i - 1];
  if (i < n - 1) sum += d[2 * n + i] * x[i + 1];
  y[i] = sum;
}

// Expands row offsets into row numbers.
//@ for(m=(lists(1, 3, 9), lists(40, 5, 50), lists(301, 12, 64))) launch(grid=up(len(m[1]), 64), block=64, args=[ints(m[0]), zero(4*max(len(m[1]), 1)), len(m[0])-1])
extern "C" __global__ void csr_to_coo(const int *rows, int *row, int n) {
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e >= rows[n]) return;
  int lo = 0, hi = n;
  while (hi - lo > 1) {
    int mid = (lo + hi) / 2;
    if (rows[mid] <= e) lo = mid;
    else hi = mid;
  }
  row[e] = lo;
}

// Blocks of 4 by 4, a thread an element of y.
//@ for(m=(lists(1, 3, 9), lists(40, 5, 16))) launch(grid=up(4*(len(m[0])-1), 64), block=64, args=[ints(m[0]), ints(m[1]), f32(16*len(m[1])), f32(64), zero(16*len(m[0])), 4*(len(m[0])-1)])
extern "C" __global__ void bsr(const int *rows, const int *cols, const float *values, const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int r = i / 4, k = i % 4;
  float sum = 0;
  for (int e = rows[r]; e < rows[r + 1]; e++) {
    float4 v = reinterpret_cast<const float4 *>(values)[4 * e + k];
    const float *p = x + 4 * cols[e];
    sum += v.x * p[0] + v.y * p[1] + v.z * p[2] + v.w * p[3];
  }
  y[i] = sum;
}
