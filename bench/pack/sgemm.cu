// R independent products of FP32 matrices on one GPU, in the ways that programs have.
//
//   sgemm KERNEL WAY,… M N K R [ROUNDS]
//
// KERNEL is cublas, or tiled: a kernel of this file. A WAY is
//   serial   one after the other, in one CUDA graph
//   streams  each on a stream of its own
//   graph    a CUDA graph of parallel nodes
//   fused    tiled: one launch for all, the problem is the grid's z; cublas: cublasSgemmBatched
//   record   like streams, once, in an NVTX range "holdfast" with a copy of four bytes before and behind it: for
//            holdfast record; record-graph is the same with the graph
// For each way it prints, in one line, its name, the least and the median time of a round in us by the host's clock, from before the launch
// until the host knows that it is complete, the same by events on the device, and a hash of all results.
//
//   nvcc -O3 -arch=native -o sgemm sgemm.cu -lcublas
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define CHECK(x) do { int s_ = (int)(x); if (s_) { fprintf(stderr, "%s: %d\n", #x, s_); exit(1); } } while (0)

constexpr int TILE = 64, DEEP = 16;
constexpr size_t SPACE = 4 << 20;  // workspace of a handle: each its own, since they run at the same time

// product is C = A B for one problem: A is M by K, B is K by N, C is M by N, all by columns. A block makes 64 by 64 of C,
// a thread 4 by 4.
__device__ void product(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float as[DEEP][TILE], bs[DEEP][TILE];
  int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.x * TILE, col = blockIdx.y * TILE;
  float sum[4][4] = {};
  for (int from = 0; from < k; from += DEEP) {
    for (int i = threadIdx.x; i < TILE * DEEP; i += 256) {
      int d = i / TILE, r = i % TILE;
      as[d][r] = row + r < m && from + d < k ? a[row + r + (size_t)(from + d) * m] : 0;
      bs[d][r] = col + r < n && from + d < k ? b[from + d + (size_t)(col + r) * k] : 0;
    }
    __syncthreads();
    for (int d = 0; d < DEEP; d++)
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sum[i][j] += as[d][x + 16 * i] * bs[d][y + 16 * j];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      if (row + x + 16 * i < m && col + y + 16 * j < n)
        c[row + x + 16 * i + (size_t)(col + y + 16 * j) * m] = sum[i][j];
}

extern "C" __global__ void tiled(const float *a, const float *b, float *c, int m, int n, int k) {
  product(a, b, c, m, n, k);
}

extern "C" __global__ void fused(float *const *a, float *const *b, float *const *c, int m, int n, int k) {
  product(a[blockIdx.z], b[blockIdx.z], c[blockIdx.z], m, n, k);
}

extern "C" __global__ void fill(float *p, size_t n, uint32_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    uint32_t x = (uint32_t)i * 2654435761u ^ seed * 40503u;
    x ^= x >> 15; x *= 2246822519u; x ^= x >> 13;
    p[i] = (float)(int32_t)x * (1.0f / 2147483648.0f);
  }
}

struct Work {
  bool cublas;
  int m, n, k, r;
  std::vector<float *> a, b, c;
  float **da, **db, **dc;
  std::vector<cublasHandle_t> handle;
  std::vector<void *> space;
  std::vector<cudaStream_t> stream;

  void one(int i, cudaStream_t s) {
    if (!cublas) {
      dim3 grid((m + TILE - 1) / TILE, (n + TILE - 1) / TILE);
      tiled<<<grid, 256, 0, s>>>(a[i], b[i], c[i], m, n, k);
      return;
    }
    float one = 1, zero = 0;
    CHECK(cublasSetStream(handle[i], s));  // which forgets the workspace
    CHECK(cublasSetWorkspace(handle[i], space[i], SPACE));
    CHECK(cublasSgemm(handle[i], CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a[i], m, b[i], k, &zero, c[i], m));
  }

  void all(const std::string &way, cudaStream_t s) {
    if (way == "fused" && cublas) {
      float one = 1, zero = 0;
      CHECK(cublasSetStream(handle[0], s));
      CHECK(cublasSgemmBatched(handle[0], CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, da, m, db, k, &zero, dc, m, r));
    } else if (way == "fused") {
      dim3 grid((m + TILE - 1) / TILE, (n + TILE - 1) / TILE, r);
      fused<<<grid, 256, 0, s>>>(da, db, dc, m, n, k);
    } else if (way == "serial") {
      for (int i = 0; i < r; i++) one(i, s);
    } else {
      cudaEvent_t fork;
      CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
      CHECK(cudaEventRecord(fork, s));
      for (int i = 0; i < r; i++) {
        cudaEvent_t join;
        CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
        CHECK(cudaStreamWaitEvent(stream[i], fork, 0));
        one(i, stream[i]);
        CHECK(cudaEventRecord(join, stream[i]));
        CHECK(cudaStreamWaitEvent(s, join, 0));
        CHECK(cudaEventDestroy(join));
      }
      CHECK(cudaEventDestroy(fork));
    }
    CHECK(cudaGetLastError());
  }
};

// measure does the work in one way.
static void measure(Work &w, const std::string &way, cudaStream_t s, int rounds) {
  w.all(way == "record" ? "streams" : way == "record-graph" ? "graph" : way, s);  // what is loaded and set up once
  CHECK(cudaDeviceSynchronize());
  cudaGraphExec_t exec = nullptr;
  if (way != "streams" && way != "record") {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    w.all(way == "record-graph" ? "graph" : way, s);
    CHECK(cudaStreamEndCapture(s, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaStreamSynchronize(s));
  }
  auto round = [&] {
    if (exec) CHECK(cudaGraphLaunch(exec, s)); else w.all("streams", s);
  };
  bool record = !way.compare(0, 6, "record");
  if (record) {
    float *word, value = 1;
    CHECK(cudaMalloc(&word, 4));
    nvtxRangePushA("holdfast");
    CHECK(cudaMemcpyAsync(word, &value, 4, cudaMemcpyHostToDevice, s));
    if (exec) CHECK(cudaGraphLaunch(exec, s)); else w.all("streams", s);
    CHECK(cudaMemcpyAsync(&value, word, 4, cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamSynchronize(s));
    nvtxRangePop();
  }
  cudaEvent_t from, to;
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  std::vector<double> hosts, devices;
  for (int i = 0; i < rounds + 20; i++) {
    auto begun = std::chrono::steady_clock::now();
    round();
    CHECK(cudaStreamSynchronize(s));
    std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
    CHECK(cudaEventRecord(from, s));
    round();
    CHECK(cudaEventRecord(to, s));
    CHECK(cudaStreamSynchronize(s));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, from, to));
    if (i >= 20) hosts.push_back(took.count()), devices.push_back(ms * 1000);
  }
  uint64_t hash = 14695981039346656037ull;
  size_t n = (size_t)w.m * w.n;
  std::vector<float> out(n);
  for (int i = 0; i < w.r; i++) {
    CHECK(cudaMemcpy(out.data(), w.c[i], n * 4, cudaMemcpyDeviceToHost));
    const unsigned char *p = (const unsigned char *)out.data();
    for (size_t j = 0; j < n * 4; j++) hash = (hash ^ p[j]) * 1099511628211ull;
    if (record) printf("at %p %zu\n", (void *)w.c[i], n * 4);
  }
  std::sort(hosts.begin(), hosts.end());
  std::sort(devices.begin(), devices.end());
  if (hosts.empty()) hosts.push_back(0), devices.push_back(0);
  printf("%s host %.1f %.1f device %.1f %.1f hash %016llx\n", way.c_str(), hosts[0], hosts[hosts.size() / 2], devices[0],
         devices[devices.size() / 2], (unsigned long long)hash);
}

int main(int argc, char **argv) {
  if (argc < 7) { fprintf(stderr, "usage: sgemm cublas|tiled serial|streams|graph|fused|record M N K R [ROUNDS]\n"); return 2; }
  Work w;
  w.cublas = !strcmp(argv[1], "cublas");
  w.m = atoi(argv[3]), w.n = atoi(argv[4]), w.k = atoi(argv[5]), w.r = atoi(argv[6]);
  int rounds = argc > 7 ? atoi(argv[7]) : 200;
  for (int i = 0; i < w.r; i++) {
    size_t sizes[3] = {(size_t)w.m * w.k, (size_t)w.k * w.n, (size_t)w.m * w.n};
    float *p[3];
    for (int j = 0; j < 3; j++) {
      CHECK(cudaMalloc(&p[j], sizes[j] * 4));
      fill<<<64, 256>>>(p[j], sizes[j], j < 2 ? i * 2 + j + 1 : 0);
    }
    w.a.push_back(p[0]), w.b.push_back(p[1]), w.c.push_back(p[2]);
    cudaStream_t s;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    w.stream.push_back(s);
    if (w.cublas) {
      cublasHandle_t h;
      void *mem;
      CHECK(cublasCreate(&h));
      CHECK(cudaMalloc(&mem, SPACE));
      w.handle.push_back(h);
      w.space.push_back(mem);
    }
  }
  std::vector<float *> *host[3] = {&w.a, &w.b, &w.c};
  float ***dev[3] = {&w.da, &w.db, &w.dc};
  for (int j = 0; j < 3; j++) {
    CHECK(cudaMalloc(dev[j], w.r * sizeof(float *)));
    CHECK(cudaMemcpy(*dev[j], host[j]->data(), w.r * sizeof(float *), cudaMemcpyHostToDevice));
  }
  cudaStream_t s;
  CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (char *way = strtok(argv[2], ","); way; way = strtok(nullptr, ",")) measure(w, way, s, rounds);
}
