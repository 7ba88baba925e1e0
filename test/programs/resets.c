/* The primary context while it is not current, after it was reset, and after the last release: what still works, and
 * which error the rest has. All of it as a GPU's driver has it (580). */
#include "test.h"

/* Some of everything, in the current context. */
struct things {
	CUmodule module, other;
	CUdeviceptr memory;
	CUevent event;
	CUstream stream;
};

static struct things things(void)
{
	struct things t;
	CU(cuModuleLoadData(&t.module, kernels));
	CU(cuModuleLoadData(&t.other, kernels));
	CU(cuMemAlloc_v2(&t.memory, 100));
	CU(cuEventCreate(&t.event, CU_EVENT_DEFAULT));
	CU(cuStreamCreate(&t.stream, CU_STREAM_DEFAULT));
	return t;
}

static bool active(void)
{
	unsigned flags;
	int is;
	CU(cuDevicePrimaryCtxGetState(0, &flags, &is));
	return is;
}

static CUcontext current(void)
{
	CUcontext c;
	CU(cuCtxGetCurrent(&c));
	return c;
}

/* The context that is current has ended. */
static void ended(void)
{
	CUdeviceptr p;
	CUdevice d;
	CHECK(!active());
	EXPECT(709 /* context is destroyed */, cuMemAlloc_v2(&p, 10));
	EXPECT(709, cuCtxSynchronize());
	CU(cuCtxGetDevice(&d));
	CHECK(d == 0);
}

int main(void)
{
	CUcontext primary, other, c;
	CUfunction f;
	CUdeviceptr p;
	CUdevice d;
	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuCtxPushCurrent_v2(primary));
	struct things t = things();
	CU(cuCtxPopCurrent_v2(&c));

	/* no context is current: an object is enough to say which */
	CU(cuModuleGetFunction(&f, t.module, "fill"));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&p, 10));
	CU(cuMemFree_v2(t.memory));
	CU(cuEventDestroy_v2(t.event));
	CU(cuStreamDestroy_v2(t.stream));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&d));
	CU(cuModuleUnload(t.module));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(t.module));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&c));
	CU(cuCtxCreate_v2(&other, 0, 0));
	CU(cuModuleUnload(t.other)); /* and another context does not matter */

	/* a reset ends the context for those who hold it, too */
	CU(cuCtxPushCurrent_v2(primary));
	things();
	CU(cuDevicePrimaryCtxReset_v2(0));
	CHECK(current() == primary);
	ended();
	CU(cuCtxPushCurrent_v2(primary));
	CU(cuCtxPopCurrent_v2(&c));
	CHECK(c == primary);
	CU(cuDevicePrimaryCtxRetain(&c, 0));
	CHECK(c == primary && active());
	CU(cuMemAlloc_v2(&p, 10)); /* it is current still */
	CU(cuCtxSetCurrent(c));
	t = things();

	/* it was retained twice, before the reset and after it */
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CHECK(active());
	CU(cuMemAlloc_v2(&p, 10));
	CU(cuDevicePrimaryCtxRelease_v2(0));
	ended();
	CU(cuCtxPopCurrent_v2(&c));
	CHECK(c == primary && current() == other);
	CU(cuCtxSetCurrent(primary));
	ended();
	CU(cuDevicePrimaryCtxRetain(&c, 0));
	CU(cuModuleLoadData(&t.module, kernels));
	CU(cuMemAlloc_v2(&p, 400));
	fill(function(t.module, "fill"), p, 100, 5, NULL);
	check_words(p, 100, 5, "after all that");
	return finish("resets");
}
