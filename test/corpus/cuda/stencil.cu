// Stencils in one, two and three dimensions: from one buffer into another, and in place.
// variants: O0 sm_80 nofma

//@ for(n=S, t=(64, 256)) launch(grid=up(n, t), block=t, args=[f32(n), zero(4*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[f32(n + 8) + 12, zero(4*n + 64) + 4, n])
extern "C" __global__ void stencil1d(const float *in, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > 0 && i < n - 1) out[i] = 0.25f * in[i - 1] + 0.5f * in[i] + 0.25f * in[i + 1];
}

// A halo of four on both sides, staged in shared memory.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), n])
//@ for(n=T) launch(grid=up(n, 128), block=128, args=[(a := u32(n + 256)) + 128, zero(4*n), n])
extern "C" __global__ void stencil1d_shared(const int *in, int *out, int n) {
  __shared__ int tile[128 + 8];
  int i = blockIdx.x * 128 + threadIdx.x, s = threadIdx.x + 4;
  tile[s] = i < n ? in[i] : 0;
  if (threadIdx.x < 4) {
    tile[s - 4] = i >= 4 ? in[i - 4] : 0;
    tile[s + 128] = i + 128 < n ? in[i + 128] : 0;
  }
  __syncthreads();
  int sum = 0;
  for (int d = -4; d <= 4; d++) sum += tile[s + d];
  if (i < n) out[i] = sum;
}

// Every block smooths a segment of its own in place: all is read before anything is written.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[u32(n), n])
extern "C" __global__ void stencil1d_inplace(int *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int x = 0;
  if (i < n) {
    x = 2 * a[i];
    if (threadIdx.x > 0) x += a[i - 1];
    if (threadIdx.x < blockDim.x - 1 && i + 1 < n) x += a[i + 1];
  }
  __syncthreads();
  if (i < n) a[i] = x;
}

// Neighbours in other blocks may or may not have been written already.
//@ for(n=S) launch(grid=up(n, 64), block=64, order="any", args=[f32(n), n])
extern "C" __global__ void stencil1d_chaotic(float *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > 0 && i < n - 1) a[i] = (a[i - 1] + a[i] + a[i + 1]) / 3;
}

//@ for(d=((1, 1), (16, 16), (33, 17), (64, 64), (97, 5), (3, 211))) launch(grid=(up(d[0], 16), up(d[1], 8)), block=(16, 8), args=[f32(d[0]*d[1]), zero(4*d[0]*d[1]), d[0], d[1]])
//@ for(d=((33, 17), (64, 40))) launch(grid=(up(d[0], 32), up(d[1], 4)), block=(32, 4), args=[f32(d[0]*d[1] + 16) + 64, zero(4*d[0]*d[1]), d[0], d[1]])
//@ for(w=512, h=300, back=(0, 1)) launch(grid=(w//32, up(h, 8)), block=(32, 8), count=250, args=[*[f32(w*h), f32(w*h)][::1 - 2*back], w, h])
extern "C" __global__ void heat2d(const float *in, float *out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  int i = y * w + x;
  if (x == 0 || y == 0 || x == w - 1 || y == h - 1) {
    out[i] = in[i];
    return;
  }
  out[i] = in[i] + 0.1f * (in[i - 1] + in[i + 1] + in[i - w] + in[i + w] - 4 * in[i]);
}

//@ for(d=((1, 1), (16, 16), (33, 17), (64, 64), (97, 5), (3, 211))) launch(grid=(up(d[0], 16), up(d[1], 16)), block=(16, 16), args=[u32(d[0]*d[1]), zero(4*d[0]*d[1]), d[0], d[1]])
extern "C" __global__ void sum9_shared(const int *in, int *out, int w, int h) {
  __shared__ int tile[18][18];
  int x0 = blockIdx.x * 16 - 1, y0 = blockIdx.y * 16 - 1;
  for (int k = threadIdx.y * 16 + threadIdx.x; k < 18 * 18; k += 256) {
    int x = x0 + k % 18, y = y0 + k / 18;
    tile[k / 18][k % 18] = x >= 0 && y >= 0 && x < w && y < h ? in[y * w + x] : 0;
  }
  __syncthreads();
  int x = x0 + 1 + threadIdx.x, y = y0 + 1 + threadIdx.y, sum = 0;
  if (x >= w || y >= h) return;
#pragma unroll
  for (int dy = 0; dy < 3; dy++)
#pragma unroll
    for (int dx = 0; dx < 3; dx++) sum += tile[threadIdx.y + dy][threadIdx.x + dx];
  out[y * w + x] = sum;
}

// Gauss-Seidel, one colour at a time: cells of one colour depend on the other one only.
//@ for(d=((16, 16), (33, 17), (64, 64), (97, 5)), colour=(0, 1)) launch(grid=(up(d[0], 16), up(d[1], 16)), block=(16, 16), args=[f32(d[0]*d[1]), d[0], d[1], colour])
//@ for(colour=(0, 1)) launch(grid=(16, 16), block=(16, 16), count=100, args=[f32(256*256), 256, 256, colour])
extern "C" __global__ void red_black(float *a, int w, int h, int colour) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1 || ((x + y) & 1) != colour) return;
  int i = y * w + x;
  a[i] = 0.25f * (a[i - 1] + a[i + 1] + a[i - w] + a[i + w]);
}

//@ for(d=((1, 1, 1), (8, 8, 8), (17, 5, 9), (32, 12, 6), (5, 5, 41))) launch(grid=(up(d[0], 8), up(d[1], 4), up(d[2], 4)), block=(8, 4, 4), args=[f32(d[0]*d[1]*d[2]), zero(4*d[0]*d[1]*d[2]), d[0], d[1], d[2]])
//@ for() launch(grid=(8, 16, 16), block=(8, 4, 4), count=20, args=[f32(2**18), zero(2**20), 64, 64, 64])
extern "C" __global__ void laplace3d(const float *in, float *out, int w, int h, int d) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x < 1 || y < 1 || z < 1 || x >= w - 1 || y >= h - 1 || z >= d - 1) return;
  int wh = w * h, i = z * wh + y * w + x;
  out[i] = in[i - 1] + in[i + 1] + in[i - w] + in[i + w] + in[i - wh] + in[i + wh] - 6 * in[i];
}

// A thread walks along z and keeps three planes in registers.
//@ for(d=((8, 8, 8), (17, 5, 9), (32, 12, 6), (5, 5, 41), (16, 16, 2))) launch(grid=(up(d[0], 8), up(d[1], 8)), block=(8, 8), args=[u32(d[0]*d[1]*d[2]), zero(4*d[0]*d[1]*d[2]), d[0], d[1], d[2]])
extern "C" __global__ void march3d(const int *__restrict__ in, int *__restrict__ out, int w, int h, int d) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h || d < 2) return;
  int wh = w * h, i = y * w + x;
  int below = 0, here = in[i], above = in[i + wh];
  for (int z = 0; z < d; z++, i += wh) {
    out[i] = below + 2 * here + above;
    below = here;
    here = above;
    above = z + 2 < d ? in[i + 2 * wh] : 0;
  }
}

// The wave equation: the older field becomes the newer one.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), f32(n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, order="any", args=[(a := f32(n)), a, n])
extern "C" __global__ void wave(float *older, const float *now, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 1 || i >= n - 1) return;
  older[i] = 2 * now[i] - older[i] + 0.2f * (now[i - 1] - 2 * now[i] + now[i + 1]);
}

// Conway's game on a torus of bytes.
//@ for(d=((8, 8), (32, 32), (37, 19), (128, 3), (1, 1))) launch(grid=(up(d[0], 32), up(d[1], 4)), block=(32, 4), args=[u8(d[0]*d[1]), zero(d[0]*d[1]), d[0], d[1]])
extern "C" __global__ void life(const unsigned char *in, unsigned char *out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  int alive = 0;
  for (int dy = -1; dy <= 1; dy++)
    for (int dx = -1; dx <= 1; dx++) alive += in[(y + dy + h) % h * w + (x + dx + w) % w] & 1;
  alive -= in[y * w + x] & 1;
  out[y * w + x] = alive == 3 || (alive == 2 && (in[y * w + x] & 1));
}
