/* Sixteen threads that never pause: they launch, ask streams and events, allocate, load code, capture, ask for
 * attributes, and write pinned memory without any call. Each checks what it has done. With an argument it goes on until
 * there is a file of that name, else for a second. */
#include "test.h"

#include <poll.h>
#include <stdatomic.h>
#include <time.h>

enum { N = 4096 };
static CUcontext ctx;
static CUmodule module;
static atomic_bool ending;
static atomic_ulong done[16];

static bool going(int id)
{
	done[id]++;
	return !ending;
}

static void *launcher(void *arg)
{
	int id = (int)(intptr_t)arg;
	CUstream s;
	CUdeviceptr p;
	CU(cuCtxSetCurrent(ctx));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&p, N * 4));
	fill(function(module, "fill"), p, N, 0, s);
	CUfunction f = function(module, "inc");
	uint32_t n = 0;
	while (going(id)) {
		inc(f, p, N, s);
		if (++n % 8 == 0)
			CU(cuStreamSynchronize(s));
		if (n % 64 == 0)
			check_words(p, N, n, "launches");
	}
	CU(cuStreamSynchronize(s));
	check_words(p, N, n, "launches at the end");
	return NULL;
}

static void *asker(void *arg)
{
	CUstream s;
	CUevent e;
	CUdeviceptr p;
	CU(cuCtxSetCurrent(ctx));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&e, CU_EVENT_DEFAULT));
	CU(cuMemAlloc_v2(&p, N * 4));
	while (going((int)(intptr_t)arg)) {
		inc(function(module, "inc"), p, N, s);
		CU(cuEventRecord(e, s));
		for (CUresult r; (r = cuEventQuery(e)) != CUDA_SUCCESS;)
			CHECK(r == CUDA_ERROR_NOT_READY);
		for (int i = 0; i < 20; i++) {
			CU(cuEventQuery(e));
			CU(cuStreamQuery(s));
		}
	}
	return NULL;
}

/* No call at all: its memory has to be there whenever it runs. */
static void *writer(void *arg)
{
	volatile uint64_t *words;
	CU(cuCtxSetCurrent(ctx));
	CU(cuMemAllocHost_v2((void **)&words, N * 8));
	for (size_t i = 0; i < N; i++)
		words[i] = 0;
	for (uint64_t n = 1; going((int)(intptr_t)arg); n++)
		for (size_t i = 0; i < N; i++) {
			if (words[i] != n - 1)
				FAIL("pinned word %zu is %llu, want %llu", i, (unsigned long long)words[i], (unsigned long long)n - 1);
			words[i] = n;
		}
	return NULL;
}

static void *copier(void *arg)
{
	uint32_t *from, *to;
	CUstream s;
	CUdeviceptr p;
	CU(cuCtxSetCurrent(ctx));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAllocHost_v2((void **)&from, N * 4));
	CU(cuMemAllocHost_v2((void **)&to, N * 4));
	CU(cuMemAlloc_v2(&p, N * 4));
	for (uint32_t n = 1; going((int)(intptr_t)arg); n++) {
		for (size_t i = 0; i < N; i++)
			from[i] = n * (uint32_t)i;
		CU(cuMemcpyHtoDAsync_v2(p, from, N * 4, s));
		CU(cuMemcpyDtoHAsync_v2(to, p, N * 4, s));
		CU(cuStreamSynchronize(s));
		for (size_t i = 0; i < N; i++)
			CHECK(to[i] == n * (uint32_t)i);
	}
	return NULL;
}

static void *allocator(void *arg)
{
	CU(cuCtxSetCurrent(ctx));
	CUdeviceptr p[8] = {0};
	unsigned seed = (unsigned)(intptr_t)arg;
	for (unsigned n = 0; going((int)(intptr_t)arg); n++) {
		unsigned i = n % 8, type, v;
		size_t size = (size_t)(rand_r(&seed) % 64 + 1) << (rand_r(&seed) % 17);
		if (p[i]) {
			CU(cuMemcpyDtoH_v2(&v, p[i], 4));
			CHECK(v == (unsigned)p[i]);
			CU(cuMemFree_v2(p[i]));
		}
		CU(cuMemAlloc_v2(&p[i], size + 4));
		CU(cuMemsetD32_v2(p[i], (unsigned)p[i], 1));
		CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p[i] + size / 2));
		CHECK(type == CU_MEMORYTYPE_DEVICE);
	}
	return NULL;
}

static void *loader(void *arg)
{
	CU(cuCtxSetCurrent(ctx));
	while (going((int)(intptr_t)arg)) {
		CUmodule m = load();
		function(m, "poke");
		CU(cuModuleUnload(m));
	}
	return NULL;
}

static void *capturer(void *arg)
{
	CUstream s;
	CUdeviceptr p;
	CU(cuCtxSetCurrent(ctx));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&p, N * 4));
	fill(function(module, "fill"), p, N, 0, s);
	CU(cuStreamSynchronize(s));
	uint32_t n = 0;
	while (going((int)(intptr_t)arg)) {
		CUgraph g;
		CUgraphExec x;
		CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		inc(function(module, "inc"), p, N, s);
		CU(cuStreamEndCapture(s, &g));
		CU(cuGraphInstantiateWithFlags(&x, g, 0));
		CU(cuGraphLaunch(x, s));
		CU(cuGraphLaunch(x, s));
		CU(cuStreamSynchronize(s));
		CU(cuGraphExecDestroy(x));
		CU(cuGraphDestroy(g));
		check_words(p, N, n += 2, "graphs");
	}
	return NULL;
}

static void *other(void *arg)
{
	CU(cuCtxSetCurrent(ctx));
	while (going((int)(intptr_t)arg)) {
		CUcontext top;
		int v;
		size_t a, b;
		CU(cuCtxPushCurrent_v2(ctx));
		CU(cuCtxPopCurrent_v2(&top));
		CHECK(top == ctx);
		CU(cuDeviceGetAttribute(&v, 16 /* multiprocessors */, 0));
		CU(cuMemGetInfo_v2(&a, &b));
		char *mine = malloc(a % 100000 + 1); /* libc's locks are as busy as the driver's */
		mine[a % 100000] = 1;
		free(mine);
	}
	return NULL;
}

static unsigned long least(void)
{
	unsigned long n = done[0];
	for (int i = 1; i < 16; i++)
		if (done[i] < n)
			n = done[i];
	return n;
}

int main(int argc, char **argv)
{
	static void *(*const kinds[16])(void *) = {launcher, launcher, launcher, asker, asker, writer, writer, writer,
		copier, allocator,
		allocator, allocator, loader, capturer, other, other};
	ctx = start(NULL);
	module = load();
	pthread_t t[16];
	for (int i = 0; i < 16; i++)
		CHECK(pthread_create(&t[i], NULL, kinds[i], (void *)(intptr_t)i) == 0);
	struct timespec begin, now;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		poll(NULL, 0, 10);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (argc > 1 ? access(argv[1], F_OK) != 0 : now.tv_sec <= begin.tv_sec || least() < 2);
	ending = true;
	for (int i = 0; i < 16; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	return finish("storm");
}
