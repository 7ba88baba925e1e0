/* Threads that share a context, threads with contexts of their own, per-thread default streams, a thread cancelled
 * between calls. */
#include "test.h"

enum { THREADS = 8, ROUNDS = 40, N = 3000 };
static CUcontext shared;
static CUfunction f_fill, f_inc;

static void *worker(void *arg)
{
	uint32_t id = (uint32_t)(uintptr_t)arg;
	CUcontext ctx = NULL;
	EXPECT(CUDA_SUCCESS, cuCtxGetCurrent(&ctx));
	CHECK(ctx == NULL); /* nothing is current in a new thread */
	CU(cuCtxSetCurrent(shared));
	CUstream s;
	CUdeviceptr p;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&p, N * 4));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		fill(f_fill, p, N, id * 1000 + i, s);
		inc(f_inc, p, N, s);
		CU(cuStreamSynchronize(s));
		check_words(p, N, id * 1000 + i + 1, "shared context");
	}
	CU(cuMemFree_v2(p));
	CU(cuStreamDestroy_v2(s));
	return NULL;
}

static void *own_context(void *arg)
{
	(void)arg;
	CUcontext ctx, popped;
	CUdeviceptr p;
	CU(cuCtxCreate_v2(&ctx, 0, 0));
	CUfunction g = function(load(), "fill");
	CU(cuMemAlloc_v2(&p, N * 4));
	uint32_t n = N, v = 77;
	void *args[] = {&p, &n, &v};
	CU(cuLaunchKernel_ptsz(g, (N + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, args, NULL));
	uint32_t *h = malloc(N * 4);
	CU(cuMemcpyDtoH_v2_ptds(h, p, N * 4)); /* the same per-thread stream: in order */
	CHECK(h[N - 1] == 77 + N - 1);
	free(h);
	CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	CU(cuCtxPopCurrent_v2(&popped));
	CHECK(popped == ctx);
	CU(cuCtxDestroy_v2(ctx));
	return NULL;
}

static void *cancelled(void *arg)
{
	CU(cuCtxSetCurrent(shared));
	for (bool first = true;; first = false) {
		size_t a, b;
		CU(cuMemGetInfo_v2(&a, &b));
		if (first)
			tell(*(int *)arg);
		pthread_testcancel();
	}
	return NULL;
}

int main(void)
{
	shared = start(NULL);
	CUmodule m = load();
	f_fill = function(m, "fill");
	f_inc = function(m, "inc");
	pthread_t t[2 * THREADS], c;
	for (uintptr_t i = 0; i < THREADS; i++) {
		CHECK(pthread_create(&t[i], NULL, worker, (void *)i) == 0);
		CHECK(pthread_create(&t[THREADS + i], NULL, own_context, NULL) == 0);
	}
	for (int i = 0; i < 2 * THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	int fd[2];
	CHECK(pipe(fd) == 0);
	CHECK(pthread_create(&c, NULL, cancelled, &fd[1]) == 0);
	await(fd[0]);
	CHECK(pthread_cancel(c) == 0 && pthread_join(c, NULL) == 0);
	CU(cuCtxSynchronize());
	CU(cuCtxDestroy_v2(shared));
	return finish("threads");
}
