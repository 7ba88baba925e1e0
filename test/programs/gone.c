/* The device goes away under a running program: its calls fail, nothing hangs or crashes. The test kills the server
 * when told "ready". */
#include "test.h"

static void *blocked(void *arg)
{
	CUdeviceptr flag = *(CUdeviceptr *)arg;
	CU(cuCtxSetCurrent(NULL));
	CUcontext ctx;
	CU(cuCtxCreate_v2(&ctx, 0, 0));
	CUfunction wait = function(load(), "wait");
	void *args[] = {&flag};
	CU(cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	printf("ready\n");
	fflush(stdout);
	EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxSynchronize()); /* in the middle of it when the server dies */
	return NULL;
}

int main(void)
{
	start(NULL);
	CUdeviceptr p;
	uint32_t *flag;
	pthread_t t;
	CU(cuMemAlloc_v2(&p, 4096));
	CU(cuMemAllocHost_v2((void **)&flag, 4096));
	*flag = 0;
	CUdeviceptr device_flag = (CUdeviceptr)(uintptr_t)flag;
	CHECK(pthread_create(&t, NULL, blocked, &device_flag) == 0);
	CHECK(pthread_join(t, NULL) == 0);
	EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, cuMemcpyDtoH_v2(&flag, p, 4));
	EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, cuMemFree_v2(p));
	EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, cuInit(0));
	return finish("gone");
}
