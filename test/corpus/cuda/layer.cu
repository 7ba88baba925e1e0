// Layers of neural networks, forward.
// variants: O0 fast

__device__ float block_sum(float x, float *part) {
  __syncthreads();
  part[threadIdx.x] = x;
  for (int h = blockDim.x / 2; h > 0; h /= 2) {
    __syncthreads();
    if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];
  }
  __syncthreads();
  return part[0];
}

__device__ float block_max(float x, float *part) {
  __syncthreads();
  part[threadIdx.x] = x;
  for (int h = blockDim.x / 2; h > 0; h /= 2) {
    __syncthreads();
    if (threadIdx.x < h) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + h]);
  }
  __syncthreads();
  return part[0];
}

//@ for(rows=(1, 12), cols=(1, 64, 100, 301)) launch(grid=rows, block=64, args=[f32(rows*cols), zero(4*rows*cols), cols])
//@ for(rows=(12,), cols=(64, 100)) launch(grid=rows, block=64, args=[(x := f32(rows*cols)), x, cols])
//@ for() launch(grid=256, block=64, count=48, args=[f32(2**18), zero(2**20), 1024])
extern "C" __global__ void softmax(const float *in, float *out, int cols) {
  __shared__ float part[64];
  in += blockIdx.x * cols;
  out += blockIdx.x * cols;
  float top = -1e30f, sum = 0;
  for (int c = threadIdx.x; c < cols; c += 64) top = fmaxf(top, in[c]);
  top = block_max(top, part);
  for (int c = threadIdx.x; c < cols; c += 64) sum += expf(in[c] - top);
  sum = block_sum(sum, part);
  for (int c = threadIdx.x; c < cols; c += 64) out[c] = expf(in[c] - top) / sum;
}

//@ for(rows=(1, 12), cols=(1, 64, 100, 301)) launch(grid=rows, block=64, args=[f32(rows*cols), f32(cols), f32(cols), zero(4*rows*cols), 1e-5, cols])
//@ for(rows=(12,), cols=(64, 100)) launch(grid=rows, block=64, args=[(x := f32(rows*cols)), f32(cols), f32(cols), x, 1e-5, cols])
//@ for() launch(grid=200, block=64, count=48, args=[f32(200*768), f32(768), f32(768), zero(800*768), 1e-5, 768])
extern "C" __global__ void layernorm(const float *in, const float *gain, const float *shift, float *out, float eps, int cols) {
  __shared__ float part[64];
  in += blockIdx.x * cols;
  out += blockIdx.x * cols;
  float sum = 0, square = 0;
  for (int c = threadIdx.x; c < cols; c += 64) sum += in[c];
  float mean = block_sum(sum, part) / cols;
  for (int c = threadIdx.x; c < cols; c += 64) square += (in[c] - mean) * (in[c] - mean);
  float inv = rsqrtf(block_sum(square, part) / cols + eps);
  for (int c = threadIdx.x; c < cols; c += 64) out[c] = (in[c] - mean) * inv * gain[c] + shift[c];
}

// In place, with the residual added first: both buffers change.
//@ for(rows=(1, 12), cols=(1, 64, 100)) launch(grid=rows, block=32, args=[f32(rows*cols), f32(rows*cols), f32(cols), cols])
extern "C" __global__ void rmsnorm_residual(float *x, float *residual, const float *gain, int cols) {
  __shared__ float part[32];
  x += blockIdx.x * cols;
  residual += blockIdx.x * cols;
  float square = 0;
  for (int c = threadIdx.x; c < cols; c += 32) {
    float r = residual[c] + x[c];
    residual[c] = r;
    square += r * r;
  }
  float inv = rsqrtf(block_sum(square, part) / cols + 1e-6f);
  for (int c = threadIdx.x; c < cols; c += 32) x[c] = residual[c] * inv * gain[c];
}

//@ for(n=(1, 8), c=(1, 5), hw=(1, 49, 100)) launch(grid=c, block=64, args=[f32(n*c*hw), zero(4*c), zero(4*c), n, c, hw])
extern "C" __global__ void batch_statistics(const float *in, float *mean, float *var, int n, int c, int hw) {
  __shared__ float part[64];
  float sum = 0, square = 0;
  for (int i = threadIdx.x; i < n * hw; i += 64) {
    float x = in[(i / hw * c + blockIdx.x) * hw + i % hw];
    sum += x;
    square += x * x;
  }
  sum = block_sum(sum, part);
  square = block_sum(square, part);
  if (threadIdx.x == 0) {
    float m = sum / (n * hw);
    mean[blockIdx.x] = m;
    var[blockIdx.x] = square / (n * hw) - m * m;
  }
}

// The running averages of training move on.
//@ for(c=(1, 33, 100)) launch(grid=up(c, 64), block=64, args=[f32(c), f32(c), f32(c), f32(c), 0.1, c])
extern "C" __global__ void batch_running(float *mean, float *var, const float *m, const float *v, float momentum, int c) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c) return;
  mean[i] = (1 - momentum) * mean[i] + momentum * m[i];
  var[i] = (1 - momentum) * var[i] + momentum * v[i];
}

//@ for(n=(1, 3), c=(4, 8), hw=(1, 49)) launch(grid=(c, n), block=64, args=[f32(n*c*hw), f32(c), f32(c), zero(4*n*c*hw), hw])
//@ for(n=(3,), c=(8,), hw=(49,)) launch(grid=(c, n), block=64, args=[(x := f32(n*c*hw)), f32(c), f32(c), x, hw])
extern "C" __global__ void channel_affine(const float *in, const float *scale, const float *shift, float *out, int hw) {
  int base = (blockIdx.y * gridDim.x + blockIdx.x) * hw;
  float a = scale[blockIdx.x], b = shift[blockIdx.x];
  for (int i = threadIdx.x; i < hw; i += blockDim.x) out[base + i] = fmaxf(a * in[base + i] + b, 0);
}

__device__ __forceinline__ float gelu_of(float x) { return 0.5f * x * (1 + tanhf(0.7978846f * (x + 0.044715f * x * x * x))); }

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), zero(4*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, args=[(x := f32(n)), x, n])
//@ for(n=(1000,)) launch(grid=up(n, 128), block=128, order="any", args=[(x := f32(n + 1)), x + 4, n])
//@ for(n=2**17) launch(grid=n//128, block=128, count=24, args=[(x := f32(n)), x, n])
extern "C" __global__ void gelu(const float *in, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = gelu_of(in[i]);
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), n])
extern "C" __global__ void gelu_inplace(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = gelu_of(x[i]);
}

// Twice is the same as once, but for what the bytes were.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[f32(n), n])
extern "C" __global__ void relu_inplace(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = fmaxf(x[i], 0);
}

//@ for(rows=(1, 10), cols=(1, 32, 75)) launch(grid=up(rows*cols, 128), block=128, args=[f32(rows*cols), f32(cols), rows*cols, cols])
extern "C" __global__ void add_bias(float *x, const float *bias, int n, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += bias[i % cols];
}

// A gate and a value lie side by side in each row.
//@ for(rows=(1, 10), cols=(1, 32, 75)) launch(grid=(up(cols, 32), rows), block=32, args=[f32(2*rows*cols), zero(4*rows*cols), cols])
extern "C" __global__ void swiglu(const float *in, float *out, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
  if (c >= cols) return;
  float g = in[2 * r * cols + c];
  out[r * cols + c] = g / (1 + expf(-g)) * in[(2 * r + 1) * cols + c];
}

// One query of attention a block: scores, softmax, values.
//@ for(q=(1, 5), keys=(1, 33, 64), d=(8, 32)) launch(grid=q, block=64, args=[f32(q*d), f32(keys*d), f32(keys*d), zero(4*q*d), keys, d])
extern "C" __global__ void attention(const float *q, const float *k, const float *v, float *out, int keys, int d) {
  __shared__ float part[64], score[64];
  int t = threadIdx.x;
  q += blockIdx.x * d;
  float s = -1e30f;
  if (t < keys) {
    s = 0;
    for (int i = 0; i < d; i++) s += q[i] * k[t * d + i];
    s *= rsqrtf(d);
  }
  float top = block_max(s, part);
  float e = t < keys ? expf(s - top) : 0;
  float sum = block_sum(e, part);
  score[t] = e / sum;
  __syncthreads();
  if (t >= d) return;
  float x = 0;
  for (int j = 0; j < keys; j++) x += score[j] * v[j * d + t];
  out[blockIdx.x * d + t] = x;
}

// The online form: a warp a query, a key at a time, causal.
//@ for(n=(1, 17, 40)) launch(grid=up(n, 4), block=(32, 4), args=[f32(n*32), f32(n*32), f32(n*32), zero(128*n), n])
extern "C" __global__ void attention_online(const float *q, const float *k, const float *v, float *out, int n) {
  int row = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x;
  if (row >= n) return;
  float mine = q[row * 32 + lane], top = -1e30f, sum = 0, acc = 0;
  for (int j = 0; j <= row; j++) {
    float s = mine * k[j * 32 + lane];
    for (int m = 16; m > 0; m /= 2) s += __shfl_xor_sync(~0u, s, m);
    s *= 0.17677669f;
    float up = fmaxf(top, s), scale = expf(top - up), w = expf(s - up);
    acc = acc * scale + w * v[j * 32 + lane];
    sum = sum * scale + w;
    top = up;
  }
  out[row * 32 + lane] = acc / sum;
}

// Appends a token's key and value to the cache.
//@ for(heads=(1, 4), pos=(0, 7, 15), d=(32, 48)) launch(grid=heads, block=d, args=[f32(heads*d), f32(heads*d), zero(4*heads*16*d), zero(4*heads*16*d), pos, 16])
//@ for(pos=range(0, 128)) launch(grid=8, block=64, count=12, args=[f32(512), f32(512), zero(4*8*128*64), zero(4*8*128*64), pos, 128])
extern "C" __global__ void cache_append(const float *k, const float *v, float *keys, float *values, int pos, int room) {
  int h = blockIdx.x, i = threadIdx.x, d = blockDim.x;
  keys[(h * room + pos) * d + i] = k[h * d + i];
  values[(h * room + pos) * d + i] = v[h * d + i];
}

// The cache in pages: a table says where each page lies.
//@ for(tokens=(1, 9, 30)) launch(grid=tokens, block=32, args=[f32(tokens*32), ints(shuffled(8)), iota(tokens), zero(4*8*4*32)])
extern "C" __global__ void cache_append_paged(const float *k, const int *pages, const int *positions, float *cache) {
  int p = positions[blockIdx.x];
  cache[(pages[p / 4] * 4 + p % 4) * 32 + threadIdx.x] = k[blockIdx.x * 32 + threadIdx.x];
}

// Rotary positions, pairs in place.
//@ for(tokens=(1, 20), half=(16, 32)) launch(grid=tokens, block=half, args=[f32(2*tokens*half), 3])
extern "C" __global__ void rotary(float *x, int first) {
  int half = blockDim.x, i = threadIdx.x;
  float *p = x + blockIdx.x * 2 * half, s, c;
  sincosf((first + (int)blockIdx.x) * exp2f(-13.287712f * i / half), &s, &c);
  float a = p[i], b = p[i + half];
  p[i] = a * c - b * s;
  p[i + half] = a * s + b * c;
}

//@ for(n=(1, 30), d=(8, 33)) launch(grid=n, block=32, args=[f32(50*d), index(n, 50), zero(4*n*d), d])
extern "C" __global__ void embedding(const float *table, const int *token, float *out, int d) {
  int row = token[blockIdx.x];
  for (int i = threadIdx.x; i < d; i += blockDim.x) out[blockIdx.x * d + i] = table[row * d + i];
}

// Indices that lie outside are cut off.
//@ for(n=(1, 300), rows=(1, 17)) launch(grid=up(n, 128), block=128, args=[f32(rows), u32(n), zero(4*n), rows, n])
extern "C" __global__ void gather_clamped(const float *table, const int *at, float *out, int rows, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = table[min(max(at[i], 0), rows - 1)];
}

//@ for(c=(1, 3), s=((5, 5), (12, 9)), k=(1, 3)) launch(grid=up(c*k*k*(s[0]-k+1)*(s[1]-k+1), 128), block=128, args=[f32(c*s[0]*s[1]), zero(4*c*k*k*(s[0]-k+1)*(s[1]-k+1)), c, s[0], s[1], k])
extern "C" __global__ void im2col(const float *in, float *out, int c, int w, int h, int k) {
  int ow = w - k + 1, oh = h - k + 1, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c * k * k * ow * oh) return;
  int x = i % ow, y = i / ow % oh, f = i / (ow * oh);
  out[i] = in[(f / (k * k) * h + y + f / k % k) * w + x + f % k];
}

//@ for(c=(1, 3), s=((4, 4), (13, 9)), k=(2, 3)) launch(grid=(up(s[0]//k * (s[1]//k), 32), c), block=32, args=[f32(c*s[0]*s[1]), zero(4*c*(s[0]//k)*(s[1]//k)), zero(4*c*(s[0]//k)*(s[1]//k)), s[0], s[1], k])
extern "C" __global__ void maxpool(const float *in, float *out, int *where, int w, int h, int k) {
  int ow = w / k, oh = h / k, i = blockIdx.x * blockDim.x + threadIdx.x, c = blockIdx.y;
  if (i >= ow * oh) return;
  int x0 = i % ow * k, y0 = i / ow * k, at = -1;
  float best = -1e30f;
  for (int y = y0; y < y0 + k; y++)
    for (int x = x0; x < x0 + k; x++) {
      float v = in[(c * h + y) * w + x];
      if (v > best) {
        best = v;
        at = y * w + x;
      }
    }
  out[c * ow * oh + i] = best;
  where[c * ow * oh + i] = at;
}

//@ for(c=(1, 7), hw=(1, 49)) launch(grid=up(c, 4), block=(32, 4), args=[f32(c*hw), zero(4*c), c, hw])
extern "C" __global__ void average_pool(const float *in, float *out, int c, int hw) {
  int row = blockIdx.x * 4 + threadIdx.y;
  if (row >= c) return;
  float x = 0;
  for (int i = threadIdx.x; i < hw; i += 32) x += in[row * hw + i];
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
  if (threadIdx.x == 0) out[row] = x / hw;
}

// Three channels in, a three by three kernel, straight.
//@ for(o=(1, 4), s=((5, 5), (14, 9))) launch(grid=(up(s[0], 8), up(s[1], 8), o), block=(8, 8), args=[f32(3*s[0]*s[1]), f32(27*o), f32(o), zero(4*o*s[0]*s[1]), s[0], s[1]])
extern "C" __global__ void conv3x3(const float *in, const float *weight, const float *bias, float *out, int w, int h) {
  int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, o = blockIdx.z;
  if (x >= w || y >= h) return;
  float sum = bias[o];
  for (int c = 0; c < 3; c++)
    for (int k = 0; k < 9; k++) {
      int a = x + k % 3 - 1, b = y + k / 3 - 1;
      if (a >= 0 && b >= 0 && a < w && b < h) sum += weight[(o * 3 + c) * 9 + k] * in[(c * h + b) * w + a];
    }
  out[(o * h + y) * w + x] = sum;
}

//@ for(a=(1, 20), b=(1, 33), rows=(1, 7)) launch(grid=(up(a + b, 64), rows), block=64, args=[f32(rows*a), f32(rows*b), zero(4*rows*(a+b)), a, b])
extern "C" __global__ void concat(const float *a, const float *b, float *out, int na, int nb) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
  if (c < na + nb) out[r * (na + nb) + c] = c < na ? a[r * na + c] : b[r * nb + c - na];
}

//@ for(d=((1, 1), (10, 7)), p=(0, 2)) launch(grid=(up(d[0] + 2*p, 16), up(d[1] + 2*p, 8)), block=(16, 8), args=[f32(d[0]*d[1]), zero(4*(d[0]+2*p)*(d[1]+2*p)), d[0], d[1], p])
extern "C" __global__ void pad(const float *in, float *out, int w, int h, int p) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w + 2 * p || y >= h + 2 * p) return;
  bool inside = x >= p && y >= p && x < w + p && y < h + p;
  out[y * (w + 2 * p) + x] = inside ? in[(y - p) * w + x - p] : 0;
}

//@ for(n=S) launch(grid=up(n, 128), block=128, args=[u32(n), zero(4*n), n])
//@ for(n=(33, 1000)) launch(grid=up(n, 128), block=128, order="any", args=[(x := u32(n)), x, n])
extern "C" __global__ void flip(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[n - 1 - i];
}

// Heads before tokens.
//@ for(t=(1, 9), h=(1, 4), d=(8, 20)) launch(grid=(t, h), block=d, args=[f32(t*h*d), zero(4*t*h*d)])
extern "C" __global__ void split_heads(const float *in, float *out) {
  int t = blockIdx.x, h = blockIdx.y, d = blockDim.x;
  out[(h * gridDim.x + t) * d + threadIdx.x] = in[(t * gridDim.y + h) * d + threadIdx.x];
}

// Scales a row to eight bits.
//@ for(rows=(1, 9), cols=(1, 64, 100)) launch(grid=rows, block=32, args=[f32(rows*cols), zero(rows*cols), zero(4*rows), cols])
extern "C" __global__ void quantise(const float *in, signed char *out, float *scale, int cols) {
  __shared__ float part[32];
  in += blockIdx.x * cols;
  float top = 0;
  for (int c = threadIdx.x; c < cols; c += 32) top = fmaxf(top, fabsf(in[c]));
  top = block_max(top, part);
  float s = top / 127;
  if (threadIdx.x == 0) scale[blockIdx.x] = s;
  for (int c = threadIdx.x; c < cols; c += 32) out[blockIdx.x * cols + c] = s > 0 ? __float2int_rn(in[c] / s) : 0;
}

//@ for(rows=(1, 9), cols=(1, 64, 100)) launch(grid=rows, block=32, args=[f32(rows*cols), zero(4*rows), cols])
extern "C" __global__ void greedy(const float *logits, int *token, int cols) {
  logits += blockIdx.x * cols;
  float best = -1e30f;
  int at = 0;
  for (int c = threadIdx.x; c < cols; c += 32)
    if (logits[c] > best) {
      best = logits[c];
      at = c;
    }
  for (int d = 16; d > 0; d /= 2) {
    float v = __shfl_xor_sync(~0u, best, d);
    int a = __shfl_xor_sync(~0u, at, d);
    if (v > best || (v == best && a < at)) {
      best = v;
      at = a;
    }
  }
  if (threadIdx.x == 0) token[blockIdx.x] = at;
}
