// The peers: launches in CUDA graphs, and the least that libcuda needs for a first result.
//   peer launch CUBIN    peer cold CUBIN    peer hold CUBIN: keeps a context, until standard input ends
#define _POSIX_C_SOURCE 199309L
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call)                                                \
  do {                                                             \
    CUresult r_ = (call);                                          \
    if (r_ != CUDA_SUCCESS) {                                      \
      fprintf(stderr, "%s: error %d\n", #call, (int)r_);           \
      exit(1);                                                     \
    }                                                              \
  } while (0)

enum { ROUNDS = 31 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// graph measures n nodes, each after the one before it or all independent.
static void graph(CUfunction kernel, CUstream s, int n, int dependent) {
  CUgraph g;
  CUgraphExec e;
  CUgraphNode last = NULL;
  CUDA_KERNEL_NODE_PARAMS k;
  void *none[1] = {NULL};
  double device[ROUNDS], host[ROUNDS];
  CUevent from, to;
  memset(&k, 0, sizeof k);
  k.func = kernel;
  k.gridDimX = k.gridDimY = k.gridDimZ = k.blockDimY = k.blockDimZ = 1;
  k.blockDimX = 32;
  k.kernelParams = none;
  CHECK(cuGraphCreate(&g, 0));
  for (int i = 0; i < n; i++) {
    CUgraphNode node;
    CHECK(cuGraphAddKernelNode(&node, g, dependent && last ? &last : NULL, dependent && last ? 1 : 0, &k));
    last = node;
  }
  CHECK(cuGraphInstantiate(&e, g, 0));
  CHECK(cuGraphUpload(e, s));
  CHECK(cuEventCreate(&from, 0));
  CHECK(cuEventCreate(&to, 0));
  for (int i = -3; i < ROUNDS; i++) {
    float t;
    CHECK(cuEventRecord(from, s));
    CHECK(cuGraphLaunch(e, s));
    CHECK(cuEventRecord(to, s));
    CHECK(cuStreamSynchronize(s));
    CHECK(cuEventElapsedTime(&t, from, to));
    double begin = now();
    CHECK(cuGraphLaunch(e, s));
    CHECK(cuStreamSynchronize(s));
    double end = now();
    if (i >= 0) {
      device[i] = t * 1000;
      host[i] = end - begin;
    }
  }
  qsort(device, ROUNDS, sizeof device[0], compare);
  qsort(host, ROUNDS, sizeof host[0], compare);
  printf("graph %d %s %.2f %.2f\n", n, dependent ? "dependent" : "independent", device[ROUNDS / 2], host[ROUNDS / 2]);
  CHECK(cuGraphExecDestroy(e));
  CHECK(cuGraphDestroy(g));
}

static void cold(CUmodule module) {
  enum { N = 1 << 16 };
  static unsigned buf[N];
  unsigned n = N;
  CUfunction f;
  CUdeviceptr a, b, c;
  for (unsigned i = 0; i < N; i++) buf[i] = i;
  CHECK(cuMemAlloc(&a, 64 << 20));
  b = a + (4 << 20);
  c = a + (8 << 20);
  CHECK(cuMemcpyHtoD(a, buf, sizeof buf));
  CHECK(cuMemcpyHtoD(b, buf, sizeof buf));
  CHECK(cuModuleGetFunction(&f, module, "add"));
  void *args[] = {&a, &b, &c, &n};
  CHECK(cuLaunchKernel(f, N / 256, 1, 1, 256, 1, 1, 0, 0, args, NULL));
  CHECK(cuMemcpyDtoH(buf, c, sizeof buf));
  for (unsigned i = 0; i < N; i++)
    if (buf[i] != 2 * i) exit(1);
  printf("ok\n");
}

int main(int argc, char **argv) {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  if (argc != 3) return 2;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoad(&module, argv[2]));
  if (!strcmp(argv[1], "hold")) {
    printf("held\n");
    fflush(stdout);
    while (getchar() != EOF) {
    }
  } else if (!strcmp(argv[1], "cold")) {
    cold(module);
  } else {
    CUfunction empty;
    CUstream s;
    CHECK(cuModuleGetFunction(&empty, module, "empty"));
    CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    for (int n = 1; n <= 1000; n *= 10) {
      graph(empty, s, n, 0);
      graph(empty, s, n, 1);
    }
  }
  fflush(stdout);
  _exit(0);
}
