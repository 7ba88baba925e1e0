// Dense linear algebra, row major.
// variants: O0 nofma

//@ for(m=(1, 17, 48), n=(1, 33), k=(1, 20)) launch(grid=(up(n, 16), up(m, 8)), block=(16, 8), args=[f32(m*k), f32(k*n), zero(4*m*n), m, n, k])
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
  int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= m || col >= n) return;
  float sum = 0;
  for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum;
}

//@ for(m=(1, 17, 48), n=(16, 33), k=(7, 32)) launch(grid=(up(n, 16), up(m, 16)), block=(16, 16), args=[u32(m*k), u32(k*n), zero(4*m*n), m, n, k])
//@ for(m=(256, 250), n=(128, 131)) launch(grid=(up(n, 16), up(m, 16)), block=(16, 16), count=4, args=[u32(m*64), u32(64*n), zero(4*m*n), m, n, 64])
extern "C" __global__ void matmul_tiled(const int *a, const int *b, int *c, int m, int n, int k) {
  __shared__ int ta[16][16], tb[16][17];
  int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y, sum = 0;
  for (int base = 0; base < k; base += 16) {
    ta[y][x] = row < m && base + x < k ? a[row * k + base + x] : 0;
    tb[y][x] = col < n && base + y < k ? b[(base + y) * n + col] : 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i++) sum += ta[y][i] * tb[i][x];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}

// c = alpha a b + beta c, four by four a thread.
//@ for(m=(32, 64), n=(32, 96), k=(8, 24), beta=(0.0, 1.0)) launch(grid=(n//32, m//32), block=(8, 8), args=[f32(m*k), f32(k*n), f32(m*n), n, k, 1.5, beta])
extern "C" __global__ void matmul_registers(const float *__restrict__ a, const float *__restrict__ b, float *c, int n, int k, float alpha, float beta) {
  __shared__ float ta[8][32], tb[8][32];
  int t = threadIdx.y * 8 + threadIdx.x, row0 = blockIdx.y * 32, col0 = blockIdx.x * 32;
  float sum[4][4] = {};
  for (int base = 0; base < k; base += 8) {
    for (int i = t; i < 256; i += 64) {
      ta[i % 8][i / 8] = a[(row0 + i / 8) * k + base + i % 8];
      tb[i / 32][i % 32] = b[(base + i / 32) * n + col0 + i % 32];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
      for (int r = 0; r < 4; r++)
#pragma unroll
        for (int s = 0; s < 4; s++) sum[r][s] += ta[i][threadIdx.y * 4 + r] * tb[i][threadIdx.x * 4 + s];
    __syncthreads();
  }
  for (int r = 0; r < 4; r++)
    for (int s = 0; s < 4; s++) {
      float *p = &c[(row0 + threadIdx.y * 4 + r) * n + col0 + threadIdx.x * 4 + s];
      *p = alpha * sum[r][s] + (beta != 0 ? beta * *p : 0);
    }
}

//@ for(d=((1, 1), (32, 32), (33, 70), (5, 128))) launch(grid=(up(d[0], 16), up(d[1], 16)), block=(16, 16), args=[u32(d[0]*d[1]), zero(4*d[0]*d[1]), d[0], d[1]])
extern "C" __global__ void transpose(const int *in, int *out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) out[x * h + y] = in[y * w + x];
}

//@ for(d=((1, 1), (32, 32), (33, 70), (5, 128), (64, 96))) launch(grid=(up(d[0], 32), up(d[1], 32)), block=(32, 8), args=[f32(d[0]*d[1]), zero(4*d[0]*d[1]), d[0], d[1]])
//@ for(d=((512, 257),)) launch(grid=(16, 9), block=(32, 8), count=10, args=[f32(512*257), zero(4*512*257), 512, 257])
extern "C" __global__ void transpose_tiled(const float *in, float *out, int w, int h) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y0 = blockIdx.y * 32;
  for (int y = threadIdx.y; y < 32; y += 8)
    if (x < w && y0 + y < h) tile[y][threadIdx.x] = in[(y0 + y) * w + x];
  __syncthreads();
  int ox = y0 + threadIdx.x, oy0 = blockIdx.x * 32;
  for (int y = threadIdx.y; y < 32; y += 8)
    if (ox < h && oy0 + y < w) out[(oy0 + y) * h + ox] = tile[threadIdx.x][y];
}

//@ for(n=(1, 16, 33, 64)) launch(grid=(up(n, 16), up(n, 16)), block=(16, 16), args=[u32(n*n), n])
extern "C" __global__ void transpose_inplace(int *a, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= n || y >= x) return;
  int t = a[y * n + x];
  a[y * n + x] = a[x * n + y];
  a[x * n + y] = t;
}

// Two tiles change places; the diagonal ones turn alone.
//@ for(n=(16, 32, 80)) launch(grid=(n//16, n//16), block=(16, 16), args=[u32(n*n), n])
extern "C" __global__ void transpose_tiles_inplace(int *a, int n) {
  if (blockIdx.y > blockIdx.x) return;
  __shared__ int upper[16][17], lower[16][17];
  int x = threadIdx.x, y = threadIdx.y;
  int *p = a + (blockIdx.y * 16 + y) * n + blockIdx.x * 16 + x, *q = a + (blockIdx.x * 16 + y) * n + blockIdx.y * 16 + x;
  upper[y][x] = *p;
  lower[y][x] = *q;
  __syncthreads();
  *p = lower[x][y];
  *q = upper[x][y];
}

//@ for(m=(1, 33, 200), n=(1, 50)) launch(grid=up(m, 64), block=64, args=[f32(m*n), f32(n), zero(4*m), m, n])
extern "C" __global__ void gemv(const float *a, const float *x, float *y, int m, int n) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= m) return;
  float sum = 0;
  for (int c = 0; c < n; c++) sum += a[r * n + c] * x[c];
  y[r] = sum;
}

// A block a row; y is added to.
//@ for(m=(1, 9, 40), n=(1, 100, 257)) launch(grid=m, block=128, args=[f32(m*n), f32(n), f32(m), 2.0, 0.5, n])
extern "C" __global__ void gemv_block(const float *a, const float *x, float *y, float alpha, float beta, int n) {
  __shared__ float part[128];
  float sum = 0;
  for (int c = threadIdx.x; c < n; c += 128) sum += a[blockIdx.x * n + c] * x[c];
  part[threadIdx.x] = sum;
  for (int h = 64; h > 0; h /= 2) {
    __syncthreads();
    if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];
  }
  if (threadIdx.x == 0) y[blockIdx.x] = alpha * part[0] + beta * y[blockIdx.x];
}

//@ for(m=(1, 33), n=(1, 64, 75)) launch(grid=(up(n, 32), up(m, 4)), block=(32, 4), args=[f32(m), f32(n), f32(m*n), 0.5, m, n])
extern "C" __global__ void rank_one(const float *x, const float *y, float *a, float alpha, int m, int n) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < m && c < n) a[r * n + c] += alpha * x[r] * y[c];
}

// The lower triangle of a a'.
//@ for(n=(1, 16, 33), k=(1, 12)) launch(grid=(up(n, 16), up(n, 16)), block=(16, 16), args=[f32(n*k), zero(4*n*n), n, k])
extern "C" __global__ void syrk(const float *a, float *c, int n, int k) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (y >= n || x > y) return;
  float sum = 0;
  for (int i = 0; i < k; i++) sum += a[y * k + i] * a[x * k + i];
  c[y * n + x] = sum;
}

// Column p is divided by the pivot …
//@ for(n=(2, 17, 64), p=(0, 1)) launch(grid=up(n - p - 1, 32), block=32, args=[f32(n*n), n, p])
//@ for(n=24, p=range(0, 23)) launch(block=32, args=[f32(n*n), n, p])
extern "C" __global__ void lu_column(float *a, int n, int p) {
  int r = p + 1 + blockIdx.x * blockDim.x + threadIdx.x;
  if (r < n) a[r * n + p] /= a[p * n + p];
}

// … and the rest reduced by it.
//@ for(n=(2, 17, 64), p=(0, 1)) launch(grid=(up(n - p - 1, 16), up(n - p - 1, 16)), block=(16, 16), args=[f32(n*n), n, p])
//@ for(n=24, p=range(0, 23)) launch(grid=(2, 2), block=(16, 16), args=[f32(n*n), n, p])
extern "C" __global__ void lu_rest(float *a, int n, int p) {
  int c = p + 1 + blockIdx.x * blockDim.x + threadIdx.x, r = p + 1 + blockIdx.y * blockDim.y + threadIdx.y;
  if (r < n && c < n) a[r * n + c] -= a[r * n + p] * a[p * n + c];
}

// A block factors a small symmetric matrix in place, Cholesky's way; the diagonal is made heavy first.
//@ for(n=(1, 5, 16, 31)) launch(grid=3, block=32, args=[f32(3*n*n), n])
extern "C" __global__ void cholesky(float *all, int n) {
  float *a = all + blockIdx.x * n * n;
  int t = threadIdx.x;
  if (t < n) a[t * n + t] += 2 * n;
  __syncthreads();
  for (int p = 0; p < n; p++) {
    if (t == p) a[p * n + p] = sqrtf(a[p * n + p]);
    __syncthreads();
    if (t > p && t < n) a[t * n + p] /= a[p * n + p];
    __syncthreads();
    if (t > p && t < n)
      for (int c = p + 1; c <= t; c++) a[t * n + c] -= a[t * n + p] * a[c * n + p];
    __syncthreads();
  }
}

// A lower triangular system, the right-hand side in place.
//@ for(n=(1, 9, 40, 64)) launch(grid=1, block=64, args=[f32(n*n), f32(n), n])
extern "C" __global__ void triangular_solve(const float *l, float *x, int n) {
  int t = threadIdx.x;
  for (int p = 0; p < n; p++) {
    if (t == p) x[p] /= 1.5f + l[p * n + p];
    __syncthreads();
    if (t > p && t < n) x[t] -= l[t * n + p] * x[p];
    __syncthreads();
  }
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[2.5, f32(n), f32(n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[2.5, (x := f32(n)), x, n])
//@ for(n=2**18) launch(grid=n//256, block=256, count=40, args=[0.5, f32(n), f32(n), n])
extern "C" __global__ void axpy(float a, const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

// A Givens rotation of two rows.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f64(n), f64(n), D(0.6), D(0.8), n])
//@ for(n=(1000,)) launch(grid=up(n, 128), block=128, args=[(x := f64(2*n)), x + 8*n, D(0.6), D(0.8), n])
extern "C" __global__ void rotate(double *x, double *y, double c, double s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double a = x[i], b = y[i];
  x[i] = c * a + s * b;
  y[i] = c * b - s * a;
}

// Two rows change places.
//@ for(n=(1, 33, 256), r=((0, 3), (2, 1), (1, 1))) launch(grid=up(n, 64), block=64, args=[u32(4*n), n, r[0], r[1]])
extern "C" __global__ void swap_rows(int *a, int n, int p, int q) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= n) return;
  int x = a[p * n + c];
  a[p * n + c] = a[q * n + c];
  a[q * n + c] = x;
}
