/* Host functions and stream callbacks: order with the stream's work, the status they get, calls they may not make. */
#include "test.h"

static int order[300], n_order;
static CUresult inside;
static void *pinned;

static void note(void *p) { order[n_order++] = (int)(intptr_t)p; }
static void call_inside(void *p)
{
	CUdeviceptr d;
	(void)p;
	inside = cuMemAlloc_v2(&d, 16);
}
static void stream_callback(CUstream s, CUresult status, void *p)
{
	(void)s;
	CHECK(status == CUDA_SUCCESS);
	note(p);
}
/* sees what the copy before it brought, changes it for the copy behind it */
static void change(void *p)
{
	uint32_t *w = p;
	CHECK(w[9] == 29);
	w[9] = 1000;
}

int main(void)
{
	CUcontext ctx = start(NULL);
	CUfunction f_fill = function(load(), "fill");
	CUstream s;
	CUdeviceptr p;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&p, 400));
	CU(cuMemAllocHost_v2(&pinned, 4096));
	for (int i = 0; i < 100; i++) {
		CU(cuLaunchHostFunc(s, note, (void *)(intptr_t)(3 * i)));
		CU(cuStreamAddCallback(s, stream_callback, (void *)(intptr_t)(3 * i + 1), 0));
		CU(cuLaunchHostFunc(s, note, (void *)(intptr_t)(3 * i + 2)));
	}
	CU(cuStreamSynchronize(s));
	CHECK(n_order == 300);
	for (int i = 0; i < 300; i++)
		CHECK(order[i] == i);
	fill(f_fill, p, 100, 20, s);
	CU(cuMemcpyDtoHAsync_v2(pinned, p, 400, s));
	CU(cuLaunchHostFunc(s, change, pinned));
	CU(cuMemcpyHtoDAsync_v2(p, pinned, 400, s));
	CU(cuStreamSynchronize(s));
	uint32_t h[100];
	CU(cuMemcpyDtoH_v2(h, p, 400));
	CHECK(h[8] == 28 && h[9] == 1000);
	CU(cuLaunchHostFunc(s, call_inside, NULL));
	CU(cuStreamSynchronize(s));
	CHECK(inside == CUDA_ERROR_NOT_PERMITTED);
	CU(cuStreamQuery(s));
	CU(cuCtxDestroy_v2(ctx));
	return finish("callbacks");
}
