/*
 * What a launch costs the thread that makes it: nothing but launches of an empty kernel, and of a graph of such kernels. The queue never fills
 * up: each batch is waited for outside of its time.
 *
 *	launches BATCHES LAUNCHES GRAPHS NODES	(batches; launches of a batch; graph launches of a batch; kernels of the graph)
 *
 * Prints {"launch_ns": [...], "graph_ns": [...]}: of each batch the mean time of one call. The thread stays on one processor.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../shim/zcuda.h"

/* Ten parameters, pointers and numbers, as a small kernel of torch.compile has. */
static const char text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e, .param .u32 f, .param .u32 g, .param .u32 h, .param .u32 i, .param .u32 j)\n"
	"{ ret; }\n";

static void *driver;

static void *symbol(const char *name)
{
	void *p = dlsym(driver, name);
	if (!p) {
		fprintf(stderr, "launches: %s\n", dlerror());
		exit(1);
	}
	return p;
}

#define CU(name, ...)                                                                                             \
	do {                                                                                                      \
		CUresult r_ = ((__typeof__(&name))symbol(#name))(__VA_ARGS__);                                    \
		if (r_ != CUDA_SUCCESS) {                                                                         \
			fprintf(stderr, "launches: %s: %d\n", #name, (int)r_);                                    \
			exit(1);                                                                                  \
		}                                                                                                 \
	} while (0)

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void show(const char *name, const double *ns, int n, const char *end)
{
	printf("\"%s\": [", name);
	for (int i = 0; i < n; i++)
		printf("%s%.1f", i ? ", " : "", ns[i]);
	printf("]%s", end);
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "launches BATCHES LAUNCHES GRAPHS NODES\n");
		return 2;
	}
	int batches = atoi(argv[1]), launches = atoi(argv[2]), graphs = atoi(argv[3]), nodes = atoi(argv[4]);
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		fprintf(stderr, "launches: %s\n", dlerror());
		return 1;
	}
	CUdevice dev;
	CUcontext ctx;
	CUmodule mod;
	CUfunction f;
	CUstream st;
	CUdeviceptr p;
	CU(cuInit, 0);
	CU(cuDeviceGet, &dev, 0);
	CU(cuDevicePrimaryCtxRetain, &ctx, dev);
	CU(cuCtxSetCurrent, ctx);
	CU(cuModuleLoadData, &mod, text);
	CU(cuModuleGetFunction, &f, mod, "nothing");
	CU(cuStreamCreate, &st, 1 /* CU_STREAM_NON_BLOCKING */);
	CU(cuMemAlloc_v2, &p, 1 << 20);

	cpu_set_t set;
	sched_getaffinity(0, sizeof set, &set);
	for (int i = CPU_SETSIZE - 1, last = 0; i >= 0; i--) { /* the last processor that we may use: the first ones have interrupts */
		if (CPU_ISSET(i, &set) && last++)
			CPU_CLR(i, &set);
	}
	sched_setaffinity(0, sizeof set, &set);

	CUdeviceptr at = p;
	uint32_t n = 4096;
	void *args[] = { &at, &p, &p, &p, &p, &n, &n, &n, &n, &n };
	__typeof__(&cuLaunchKernel) launch = (__typeof__(launch))symbol("cuLaunchKernel");
	__typeof__(&cuGraphLaunch) launch_graph = (__typeof__(launch_graph))symbol("cuGraphLaunch");

	CUgraph g;
	CUgraphExec exec;
	CU(cuStreamBeginCapture_v2, st, 2 /* CU_STREAM_CAPTURE_MODE_RELAXED */);
	for (int i = 0; i < nodes; i++)
		CU(cuLaunchKernel, f, 1, 1, 1, 32, 1, 1, 0, st, args, NULL);
	CU(cuStreamEndCapture, st, &g);
	CU(cuGraphInstantiateWithFlags, &exec, g, 0);

	double *one = calloc((size_t)batches, sizeof *one), *whole = calloc((size_t)batches, sizeof *whole);
	for (int b = -2; b < batches; b++) { /* the first two only warm up */
		double start = now();
		for (int i = 0; i < launches; i++) {
			at = p + (CUdeviceptr)(i & 255) * 1024; /* as programs do: the same kernel, other buffers */
			if (launch(f, 1, 1, 1, 32, 1, 1, 0, st, args, NULL) != CUDA_SUCCESS)
				return 1;
		}
		double middle = now();
		CU(cuStreamSynchronize, st);
		double again = now();
		for (int i = 0; i < graphs; i++)
			if (launch_graph(exec, st) != CUDA_SUCCESS)
				return 1;
		double end = now();
		CU(cuStreamSynchronize, st);
		if (b >= 0) {
			one[b] = (middle - start) / launches;
			whole[b] = (end - again) / graphs;
		}
	}
	printf("{");
	show("launch_ns", one, batches, ", ");
	show("graph_ns", whole, batches, "}\n");
	return 0;
}
