/*
 * What recording adds to a launch, in one process: nothing but launches of an empty kernel, and of a graph of such
 * kernels; batches that are recorded and batches that go past the recorder to the driver take turns. The queue never
 * fills up: each batch is waited for outside of its time.
 *
 *	holdfast trace -o FILE -- launches ROUNDS LAUNCHES GRAPHS NODES
 *		(launches and graph launches of a batch; kernels of the graph)
 *
 * Prints {"launch": {"plain_ns": [...], "traced_ns": [...]}, "graph": {...}}: of each batch the mean
 * time of one call. The thread stays on one processor.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../stub/zcuda.h"

/* Ten parameters, pointers and numbers, as a small kernel of torch.compile has. */
static const char text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e, .param .u32 "
	"f, .param .u32 g, .param .u32 h, .param .u32 i, .param .u32 j)\n"
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
	printf("\"%s_ns\": [", name);
	for (int i = 0; i < n; i++)
		printf("%s%.1f", i ? ", " : "", ns[i]);
	printf("]%s", end);
}

/* The driver's own function: holdfast answers dlsym, but not dlvsym. */
static void *past_holdfast(const char *name)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	void *(*glibc_dlsym)(void *, const char *) = libc ? dlvsym(libc, "dlsym", "GLIBC_2.34") : NULL;
	if (!glibc_dlsym && libc)
		glibc_dlsym = dlvsym(libc, "dlsym", "GLIBC_2.2.5");
	void *p = glibc_dlsym ? glibc_dlsym(driver, name) : NULL;
	if (!p || p == symbol(name)) {
		fprintf(stderr, "launches: there is nothing between this program and the driver: run it under holdfast "
			"trace\n");
		exit(1);
	}
	return p;
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "launches ROUNDS LAUNCHES GRAPHS NODES\n");
		return 2;
	}
	int rounds = atoi(argv[1]), launches = atoi(argv[2]), graphs = atoi(argv[3]), nodes = atoi(argv[4]);
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
	/* the last processor that we may use: the first ones have interrupts */
	for (int i = CPU_SETSIZE - 1, last = 0; i >= 0; i--) {
		if (CPU_ISSET(i, &set) && last++)
			CPU_CLR(i, &set);
	}
	sched_setaffinity(0, sizeof set, &set);

	CUdeviceptr at = p;
	uint32_t n = 4096;
	void *args[] = { &at, &p, &p, &p, &p, &n, &n, &n, &n, &n };
	__typeof__(&cuLaunchKernel) launch[2] = { (__typeof__(launch[0]))past_holdfast("cuLaunchKernel"),
		(__typeof__(launch[0]))symbol("cuLaunchKernel") };
	__typeof__(&cuGraphLaunch) launch_graph[2] = { (__typeof__(launch_graph[0]))past_holdfast("cuGraphLaunch"),
		(__typeof__(launch_graph[0]))symbol("cuGraphLaunch") };

	CUgraph g;
	CUgraphExec exec;
	CU(cuStreamBeginCapture_v2, st, 2 /* CU_STREAM_CAPTURE_MODE_RELAXED */);
	for (int i = 0; i < nodes; i++)
		CU(cuLaunchKernel, f, 1, 1, 1, 32, 1, 1, 0, st, args, NULL);
	CU(cuStreamEndCapture, st, &g);
	CU(cuGraphInstantiateWithFlags, &exec, g, 0);

	double *ns[4];
	for (int i = 0; i < 4; i++)
		ns[i] = calloc((size_t)rounds, sizeof **ns);
	for (int b = -2; b < rounds; b++) { /* the first two only warm up */
		for (int i = 0; i < 2; i++) {
			int how = i ^ (b & 1);
			double start = now();
			for (int k = 0; k < launches; k++) {
				at = p + (CUdeviceptr)(k & 255) * 1024; /* as programs do: the same kernel, other buffers */
				if (launch[how](f, 1, 1, 1, 32, 1, 1, 0, st, args, NULL) != CUDA_SUCCESS)
					return 1;
			}
			double middle = now();
			CU(cuStreamSynchronize, st);
			double again = now();
			for (int k = 0; k < graphs; k++)
				if (launch_graph[how](exec, st) != CUDA_SUCCESS)
					return 1;
			double end = now();
			CU(cuStreamSynchronize, st);
			if (b >= 0) {
				ns[how][b] = (middle - start) / launches;
				ns[2 + how][b] = (end - again) / graphs;
			}
		}
	}
	printf("{\"launch\": {");
	show("plain", ns[0], rounds, ", ");
	show("traced", ns[1], rounds, "}, \"graph\": {");
	show("plain", ns[2], rounds, ", ");
	show("traced", ns[3], rounds, "}}\n");
	return 0;
}
