/* An illegal address stays: every further call of that context fails, other processes do not notice. */
#include "test.h"

static int victim(void)
{
	start(NULL);
	CUfunction poke = function(load(), "poke");
	CUdeviceptr good, bad = 0x10, q;
	uint32_t v = 1;
	CU(cuMemAlloc_v2(&good, 4096));
	LAUNCH(poke, 1, NULL, &good, &v);
	CU(cuCtxSynchronize());
	LAUNCH(poke, 1, NULL, &bad, &v);
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&q, 4096));
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyDtoH_v2(&v, good, 4));
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(NULL));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return victim();
	CUcontext ctx = start(NULL);
	CUdeviceptr p;
	CU(cuMemAlloc_v2(&p, 400));
	fill(function(load(), "fill"), p, 100, 1, NULL);
	reap(again((char *[]){argv[0], "victim", NULL}));
	check_words(p, 100, 1, "bystander");
	CU(cuCtxDestroy_v2(ctx));
	reap(again((char *[]){argv[0], "victim", NULL}));
	return finish("sticky");
}
