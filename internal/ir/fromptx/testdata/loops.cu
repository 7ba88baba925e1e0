// Kernels for the tests of internal/ir. loops.ptx is what nvcc -ptx -arch=sm_90 makes of this file.
extern "C" __global__ void axpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

extern "C" __global__ void stride(float *y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = y[i] * y[i];
}

extern "C" __global__ void reduce(float *out, const float *in, int n) {
    __shared__ float s[256];
    unsigned t = threadIdx.x;
    s[t] = t < n ? in[blockIdx.x * 256 + t] : 0;
    __syncthreads();
#pragma unroll 1
    for (unsigned k = 128; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

extern "C" __global__ void matmul(float *c, const float *a, const float *b, int n) {
    __shared__ float as[16][16], bs[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float acc = 0;
#pragma unroll 1
    for (int k = 0; k < n; k += 16) {
        as[y][x] = a[row * n + k + x];
        bs[y][x] = b[(k + y) * n + col];
        __syncthreads();
#pragma unroll 1
        for (int j = 0; j < 16; j++) acc += as[y][j] * bs[j][x];
        __syncthreads();
    }
    c[row * n + col] = acc;
}

extern "C" __global__ void collatz(int *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = i + 1;
    int k = 0;
    while (x != 1) {
        x = x & 1 ? 3 * x + 1 : x / 2;
        if (++k > 1000) break;
    }
    steps[i] = k;
}

__device__ __noinline__ int pick(int k, int x) {
    switch (k) {
    case 0: return x * 3;
    case 1: return x - 7;
    case 2: return x ^ 0x55;
    case 3: return x / 5;
    case 4: return x << 3;
    case 5: return x % 9;
    }
    return 0;
}

extern "C" __global__ void choose(int *p, int k) {
    int i = threadIdx.x;
    int v = __ballot_sync(0xffffffff, p[i] > 3);
    p[i] = pick(k, v) + __shfl_xor_sync(0xffffffff, v, 1);
    if (__syncthreads_or(v > 12)) atomicAdd(p, 1);
}
