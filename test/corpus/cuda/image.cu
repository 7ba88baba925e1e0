// Images: filters, resampling, tables.
// variants: O0 sm_80

__constant__ float weights[9] = {1 / 16.f, 2 / 16.f, 1 / 16.f, 2 / 16.f, 4 / 16.f, 2 / 16.f, 1 / 16.f, 2 / 16.f, 1 / 16.f};

//@ for(d=((1, 1), (32, 8), (33, 17), (100, 40))) launch(grid=(up(d[0], 32), up(d[1], 8)), block=(32, 8), args=[f32(d[0]*d[1]), zero(4*d[0]*d[1]), d[0], d[1]])
extern "C" __global__ void blur3(const float *in, float *out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  float sum = 0;
  for (int dy = -1; dy <= 1; dy++)
    for (int dx = -1; dx <= 1; dx++) {
      int a = min(max(x + dx, 0), w - 1), b = min(max(y + dy, 0), h - 1);
      sum += weights[(dy + 1) * 3 + dx + 1] * in[b * w + a];
    }
  out[y * w + x] = sum;
}

//@ for(d=((1, 1), (32, 8), (33, 17), (100, 40))) launch(grid=(up(d[0], 32), up(d[1], 8)), block=(32, 8), args=[u8(d[0]*d[1]), zero(d[0]*d[1]), d[0], d[1]])
//@ for(w=640, h=200) launch(grid=(20, 25), block=(32, 8), count=30, args=[u8(w*h), zero(w*h), w, h])
extern "C" __global__ void sobel(const unsigned char *in, unsigned char *out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
  const unsigned char *p = in + y * w + x;
  int gx = p[1 - w] + 2 * p[1] + p[1 + w] - p[-1 - w] - 2 * p[-1] - p[-1 + w];
  int gy = p[w - 1] + 2 * p[w] + p[w + 1] - p[-w - 1] - 2 * p[-w] - p[-w + 1];
  out[y * w + x] = min(abs(gx) + abs(gy), 255);
}

// Any kernel of odd size up to seven, the image with a halo in dynamic shared memory.
//@ for(d=((16, 16), (33, 17), (50, 40)), k=(1, 3, 7)) launch(grid=(up(d[0], 16), up(d[1], 16)), block=(16, 16), shared=4*(16 + k - 1)**2, args=[u32(d[0]*d[1]), index(k*k, 5), zero(4*d[0]*d[1]), d[0], d[1], k])
extern "C" __global__ void convolve(const int *in, const int *kernel, int *out, int w, int h, int k) {
  extern __shared__ int tile[];
  int side = 16 + k - 1, r = k / 2, t = threadIdx.y * 16 + threadIdx.x;
  for (int i = t; i < side * side; i += 256) {
    int x = blockIdx.x * 16 + i % side - r, y = blockIdx.y * 16 + i / side - r;
    tile[i] = x >= 0 && y >= 0 && x < w && y < h ? in[y * w + x] : 0;
  }
  __syncthreads();
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, sum = 0;
  if (x >= w || y >= h) return;
  for (int j = 0; j < k; j++)
    for (int i = 0; i < k; i++) sum += kernel[j * k + i] * tile[(threadIdx.y + j) * side + threadIdx.x + i];
  out[y * w + x] = sum;
}

// A running sum along each row, a thread a row …
//@ for(d=((1, 1), (32, 8), (33, 17), (100, 40)), r=(1, 3)) launch(grid=up(d[1], 32), block=32, args=[u8(d[0]*d[1]), zero(4*d[0]*d[1]), d[0], d[1], r])
extern "C" __global__ void box_rows(const unsigned char *in, int *out, int w, int h, int r) {
  int y = blockIdx.x * blockDim.x + threadIdx.x;
  if (y >= h) return;
  in += y * w;
  out += y * w;
  int sum = 0;
  for (int x = 0; x < min(r, w); x++) sum += in[x];
  for (int x = 0; x < w; x++) {
    if (x + r < w) sum += in[x + r];
    if (x - r > 0) sum -= in[x - r - 1];
    out[x] = sum;
  }
}

// … and down each column in place, with the last values in registers.
//@ for(d=((1, 1), (32, 8), (33, 17), (100, 40))) launch(grid=up(d[0], 64), block=64, args=[u32(d[0]*d[1]), d[0], d[1]])
extern "C" __global__ void box_columns(int *a, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= w) return;
  int above = 0, here = a[x];
  for (int y = 0; y < h; y++) {
    int below = y + 1 < h ? a[(y + 1) * w + x] : 0;
    a[y * w + x] = above + here + below;
    above = here;
    here = below;
  }
}

//@ for(s=((4, 4), (33, 17)), d=((1, 1), (8, 8), (70, 30))) launch(grid=(up(d[0], 16), up(d[1], 8)), block=(16, 8), args=[f32(s[0]*s[1]), zero(4*d[0]*d[1]), s[0], s[1], d[0], d[1]])
extern "C" __global__ void resize(const float *in, float *out, int sw, int sh, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  float fx = fmaxf((x + 0.5f) * sw / w - 0.5f, 0), fy = fmaxf((y + 0.5f) * sh / h - 0.5f, 0);
  int x0 = min((int)fx, sw - 1), y0 = min((int)fy, sh - 1), x1 = min(x0 + 1, sw - 1), y1 = min(y0 + 1, sh - 1);
  float a = fx - x0, b = fy - y0;
  float top = in[y0 * sw + x0] * (1 - a) + in[y0 * sw + x1] * a, low = in[y1 * sw + x0] * (1 - a) + in[y1 * sw + x1] * a;
  out[y * w + x] = top * (1 - b) + low * b;
}

//@ for(d=((1, 1), (32, 8), (33, 17), (64, 40))) launch(grid=(up(d[0], 32), up(d[1], 4)), block=(32, 4), args=[u8(d[0]*d[1]), zero(d[0]*d[1]), d[0], d[1]])
extern "C" __global__ void median3(const unsigned char *in, unsigned char *out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  unsigned char v[9];
  for (int i = 0; i < 9; i++) v[i] = in[min(max(y + i / 3 - 1, 0), h - 1) * w + min(max(x + i % 3 - 1, 0), w - 1)];
  for (int i = 0; i < 5; i++)
    for (int k = i + 1; k < 9; k++)
      if (v[k] < v[i]) {
        unsigned char t = v[i];
        v[i] = v[k];
        v[k] = t;
      }
  out[y * w + x] = v[4];
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u8(4*n), zero(n), n])
extern "C" __global__ void grey(const uchar4 *in, unsigned char *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  uchar4 p = in[i];
  out[i] = (77 * p.x + 150 * p.y + 29 * p.z) >> 8;
}

// Through a table, in place.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[u8(n), u8(256), n])
extern "C" __global__ void tone(unsigned char *a, const unsigned char *table, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = table[a[i]];
}

// Four pixels at a time, in place; the last ones alone.
//@ for(n=S) launch(grid=up(n, 256), block=64, args=[u8(n), n])
//@ for(n=(256, 1000)) launch(grid=up(n, 256), block=64, args=[u8(n + 4) + 4, n])
//@ for(n=400001) launch(grid=up(n, 256), block=64, count=2, args=[u8(n), n])
extern "C" __global__ void invert(unsigned char *a, int n) {
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 3 < n) *(unsigned *)(a + i) ^= ~0u;
  else
    for (; i < n; i++) a[i] = ~a[i];
}

// Writing 0 where it is dark already is harmless; the rest keeps its value.
//@ for(n=S, t=(10, 200)) launch(grid=up(n, 256), block=256, args=[u8(n), t, n])
extern "C" __global__ void blacken(unsigned char *a, int below, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && a[i] < below) a[i] = 0;
}

//@ for(d=((1, 1), (32, 8), (33, 17), (100, 40))) launch(grid=(up(d[0], 32), up(d[1], 8)), block=(32, 8), args=[u8(d[0]*d[1]), zero(d[0]*d[1]), d[0], d[1]])
extern "C" __global__ void erode(const unsigned char *in, unsigned char *out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  int least = 255;
  for (int dy = -1; dy <= 1; dy++)
    for (int dx = -1; dx <= 1; dx++)
      if (x + dx >= 0 && x + dx < w && y + dy >= 0 && y + dy < h) least = min(least, (int)in[(y + dy) * w + x + dx]);
  out[y * w + x] = least;
}

// A quarter turn in place: four pixels change places.
//@ for(n=(1, 2, 16, 33)) launch(grid=(up((n + 1)//2, 8), up(n//2, 8)), block=(8, 8), args=[u32(n*n), n])
extern "C" __global__ void quarter_turn(unsigned *a, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= (n + 1) / 2 || y >= n / 2) return;
  int p[4] = {y * n + x, x * n + n - 1 - y, (n - 1 - y) * n + n - 1 - x, (n - 1 - x) * n + y};
  unsigned v[4];
#pragma unroll
  for (int k = 0; k < 4; k++) v[k] = a[p[k]];
#pragma unroll
  for (int k = 0; k < 4; k++) a[p[(k + 1) % 4]] = v[k];
}

// The summed-area table of a strip of 64 columns, in place, a block a strip.
//@ for(strips=(1, 3), h=(1, 20)) launch(grid=strips, block=64, args=[index(64*strips*h, 256), strips, h])
extern "C" __global__ void area_strip(int *a, int strips, int h) {
  __shared__ int row[64];
  int x = threadIdx.x, w = 64 * strips, above = 0;
  for (int y = 0; y < h; y++) {
    int *p = &a[y * w + blockIdx.x * 64 + x];
    row[x] = *p;
    for (int d = 1; d < 64; d *= 2) {
      __syncthreads();
      int add = x >= d ? row[x - d] : 0;
      __syncthreads();
      row[x] += add;
    }
    above += row[x];
    *p = above;
  }
}
