/* Events: order, queries, timing. A kernel that waits for the host makes "not yet" certain. */
#include "test.h"

int main(void)
{
	CUcontext ctx = start(NULL);
	CUmodule m = load();
	CUfunction wait = function(m, "wait"), f_fill = function(m, "fill");
	CUstream s, t;
	CUevent before, after, plain;
	volatile uint32_t *flag;
	CUdeviceptr dflag, p;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&before, CU_EVENT_DEFAULT));
	CU(cuEventCreate(&after, CU_EVENT_BLOCKING_SYNC));
	CU(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	CU(cuMemHostAlloc((void **)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer_v2(&dflag, (void *)flag, 0));
	CU(cuMemAlloc_v2(&p, 4000));
	*flag = 0;
	CU(cuEventQuery(before)); /* never recorded: complete */
	CU(cuMemsetD8_v2(p, 0, 4000));
	fill(f_fill, p, 1000, 0, t); /* loads everything before the wait */
	CU(cuStreamSynchronize(t));

	CU(cuEventRecord(before, s));
	void *args[] = {&dflag};
	CU(cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
	CU(cuEventRecord(after, s));
	CU(cuStreamWaitEvent(t, after, 0));
	fill(f_fill, p, 1000, 42, t);
	CU(cuEventRecord(plain, t));
	CU(cuEventSynchronize(before));
	EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(after));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(t));
	float ms;
	EXPECT(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, before, after));
	usleep(2000); /* what the two events must then be apart */
	*flag = 1;
	CU(cuEventSynchronize(after));
	CU(cuEventSynchronize(plain));
	check_words(p, 1000, 42, "behind the event");
	CU(cuEventElapsedTime(&ms, before, after));
	CHECK(ms >= 2.0f && ms < 60000.0f);
	CU(cuEventElapsedTime_v2(&ms, before, after));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, before, plain));
	CU(cuEventDestroy_v2(before));
	CU(cuEventDestroy_v2(after));
	CU(cuEventDestroy_v2(plain));
	CU(cuMemFreeHost((void *)flag));
	CU(cuCtxDestroy_v2(ctx));
	return finish("events");
}
