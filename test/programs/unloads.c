/* Modules are unloaded in some threads while others launch kernels of one that stays: an unload makes the driver forget
 * what it knows of functions, and must not do so between looking and using. */
#include "test.h"

#include <stdatomic.h>

enum { LAUNCHES = 1500, N = 64 };
static CUcontext ctx;
static CUmodule module;
static atomic_bool ending;

static void *unloader(void *arg)
{
	(void)arg;
	CU(cuCtxSetCurrent(ctx));
	while (!ending)
		CU(cuModuleUnload(load()));
	return NULL;
}

static void *launcher(void *arg)
{
	(void)arg;
	CUstream s;
	CUdeviceptr p;
	CU(cuCtxSetCurrent(ctx));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&p, N * 4));
	fill(function(module, "fill"), p, N, 0, s);
	for (int i = 0; i < LAUNCHES; i++)
		inc(function(module, "inc"), p, N, s);
	CU(cuStreamSynchronize(s));
	check_words(p, N, LAUNCHES, "launches");
	return NULL;
}

int main(void)
{
	ctx = start(NULL);
	module = load();
	pthread_t t[5];
	for (int i = 0; i < 5; i++)
		CHECK(pthread_create(&t[i], NULL, i < 2 ? unloader : launcher, NULL) == 0);
	for (int i = 2; i < 5; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	ending = true;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	return finish("unloads");
}
