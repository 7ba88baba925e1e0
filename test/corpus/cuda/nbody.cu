// Bodies that attract one another.
// variants: O0 fast

__device__ float3 pull(float4 a, float4 b, float3 f) {
  float dx = b.x - a.x, dy = b.y - a.y, dz = b.z - a.z;
  float r2 = dx * dx + dy * dy + dz * dz + 0.01f;
  float inv = rsqrtf(r2), s = fabsf(b.w) * inv * inv * inv;
  f.x += dx * s;
  f.y += dy * s;
  f.z += dz * s;
  return f;
}

//@ for(n=(1, 33, 128, 300)) launch(grid=up(n, 64), block=64, args=[f32(4*n), zero(12*n), n])
extern "C" __global__ void forces(const float4 *body, float3 *force, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float3 f = {0, 0, 0};
  for (int j = 0; j < n; j++) f = pull(body[i], body[j], f);
  force[i] = f;
}

//@ for(n=(1, 33, 128, 300)) launch(grid=up(n, 64), block=64, args=[f32(4*n), zero(12*n), n])
extern "C" __global__ void forces_tiled(const float4 *body, float3 *force, int n) {
  __shared__ float4 tile[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  float4 me = i < n ? body[i] : make_float4(0, 0, 0, 0);
  float3 f = {0, 0, 0};
  for (int base = 0; base < n; base += 64) {
    if (base + threadIdx.x < n) tile[threadIdx.x] = body[base + threadIdx.x];
    __syncthreads();
    for (int k = 0; k < min(64, n - base); k++) f = pull(me, tile[k], f);
    __syncthreads();
  }
  if (i < n) force[i] = f;
}

// Positions and speeds move on, in place.
//@ for(n=S, dt=(0.01,)) launch(grid=up(n, 128), block=128, args=[f32(4*n), f32(3*n), f32(3*n), dt, n])
//@ for(n=30011) launch(grid=up(n, 128), block=128, count=100, args=[f32(4*n), f32(3*n), f32(3*n), 0.01, n])
extern "C" __global__ void integrate(float4 *body, float3 *speed, const float3 *force, float dt, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float3 v = speed[i];
  v.x += dt * force[i].x;
  v.y += dt * force[i].y;
  v.z += dt * force[i].z;
  speed[i] = v;
  float4 p = body[i];
  p.x += dt * v.x;
  p.y += dt * v.y;
  p.z += dt * v.z;
  body[i] = p;
}

// Forces on bodies that lie by coordinate, from one state into the next.
//@ for(n=(1, 33, 128)) launch(grid=up(n, 32), block=32, args=[f32(3*n), f32(n), zero(12*n), n])
//@ for(n=(33, 128)) launch(grid=up(n, 32), block=32, order="any", args=[(p := f32(3*n)), f32(n), p, n])
extern "C" __global__ void step_soa(const float *p, const float *mass, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = p[i], y = p[n + i], z = p[2 * n + i];
  float3 f = {0, 0, 0};
  for (int j = 0; j < n; j++) f = pull(make_float4(x, y, z, 0), make_float4(p[j], p[n + j], p[2 * n + j], mass[j]), f);
  out[i] = x + 0.001f * f.x;
  out[n + i] = y + 0.001f * f.y;
  out[2 * n + i] = z + 0.001f * f.z;
}

// Short-range forces: only the bodies of a cell and its neighbours on a line.
//@ for(cells=(1, 7, 20), per=(4, 32)) launch(grid=cells, block=per, args=[f32(cells*per), zero(4*cells*per), cells, per])
extern "C" __global__ void cells(const float *x, float *force, int cells, int per) {
  int c = blockIdx.x, i = c * per + threadIdx.x;
  float f = 0, me = x[i];
  for (int d = -1; d <= 1; d++) {
    int o = c + d;
    if (o < 0 || o >= cells) continue;
    for (int k = 0; k < per; k++) {
      float r = x[o * per + k] - me;
      f += r / (1 + r * r);
    }
  }
  force[i] = f;
}

// Energy of each body, a block a body.
//@ for(n=(1, 33, 100)) launch(grid=n, block=64, args=[f32(4*n), zero(4*n), n])
extern "C" __global__ void energy(const float4 *body, float *out, int n) {
  __shared__ float part[64];
  float4 a = body[blockIdx.x];
  float sum = 0;
  for (int j = threadIdx.x; j < n; j += 64) {
    if (j == blockIdx.x) continue;
    float4 b = body[j];
    float dx = b.x - a.x, dy = b.y - a.y, dz = b.z - a.z;
    sum -= b.w * rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
  }
  part[threadIdx.x] = sum;
  for (int h = 32; h > 0; h /= 2) {
    __syncthreads();
    if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = a.w * part[0];
}

// Leapfrog's half step: speeds only, a flag stops the frozen ones early.
//@ for(n=S) launch(grid=up(n, 128), block=128, args=[f32(n), f32(n), u8(n), 0.5, n])
extern "C" __global__ void kick(float *v, const float *a, const unsigned char *frozen, float h, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n || (frozen[i] & 1)) return;
  v[i] = fmaf(h, a[i], v[i]);
}

// Walls: what left the box comes back, in place; most threads change nothing.
//@ for(n=S) launch(grid=up(n, 256), block=256, args=[f32(n), f32(n), 0.8, n])
extern "C" __global__ void bounce(float *x, float *v, float wall, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float p = x[i];
  if (p > wall) {
    x[i] = 2 * wall - p;
    v[i] = -v[i];
  } else if (p < -wall) {
    x[i] = -2 * wall - p;
    v[i] = -v[i];
  }
}
