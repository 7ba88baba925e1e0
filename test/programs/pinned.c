/* Pinned host memory: asynchronous copies both ways, kernels on it, flags, registered memory, big copies. */
#include "test.h"

enum { WORDS = 1 << 20, BIG = 40 << 20 };

int main(void)
{
	CUcontext ctx = start(NULL);
	CUmodule m = load();
	CUfunction f_inc = function(m, "inc"), f_copy = function(m, "copy");
	CUstream s;
	CUdeviceptr p, dp;
	uint32_t *a, *b;
	unsigned flags;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&p, WORDS * 4));
	CU(cuMemAllocHost_v2((void **)&a, WORDS * 4));
	CU(cuMemHostAlloc((void **)&b, WORDS * 4, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetFlags(&flags, b));
	CHECK((flags & CU_MEMHOSTALLOC_PORTABLE) && (flags & CU_MEMHOSTALLOC_DEVICEMAP));
	for (uint32_t i = 0; i < WORDS; i++)
		a[i] = 3 * i;
	CU(cuMemcpyHtoDAsync_v2(p, a, WORDS * 4, s));
	inc(f_inc, p, WORDS / 4, s);
	CU(cuMemcpyDtoHAsync_v2(b, p, WORDS * 4, s));
	CU(cuStreamSynchronize(s));
	for (uint32_t i = 0; i < WORDS; i++)
		CHECK(b[i] == 3 * i + (i < WORDS / 4));

	/* a kernel reads and writes host memory; unified addressing gives it one address */
	CU(cuMemHostGetDevicePointer_v2(&dp, b, 0));
	CHECK(dp == (CUdeviceptr)(uintptr_t)b);
	uint32_t n = 1000;
	void *args[] = {&dp, &p, &n};
	CU(cuMemcpyHtoD_v2(p, a, 4000));
	CU(cuLaunchKernel(f_copy, 8, 1, 1, 128, 1, 1, 0, s, args, NULL));
	CU(cuStreamSynchronize(s));
	for (uint32_t i = 0; i < n; i++)
		CHECK(b[i] == 3 * i);
	CU(cuMemcpy((CUdeviceptr)(uintptr_t)a, p, 4000)); /* unified */
	uint32_t on_stack[16];
	CU(cuMemcpy((CUdeviceptr)(uintptr_t)on_stack, p, sizeof on_stack));
	CHECK(on_stack[15] == 45);
	CU(cuMemcpyAsync(p, (CUdeviceptr)(uintptr_t)a, 4000, s));
	CU(cuStreamSynchronize(s));

	unsigned type;
	void *host;
	CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)b));
	CHECK(type == CU_MEMORYTYPE_HOST);
	CU(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, (CUdeviceptr)(uintptr_t)(b + 5)));
	CHECK(host == b + 5);
	CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	CHECK(type == CU_MEMORYTYPE_DEVICE);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		(CUdeviceptr)(uintptr_t)on_stack));
	CUdeviceptr base;
	size_t size;
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	CU(cuPointerGetAttributes(3, which, (void *[]){&type, &base, &size}, p + 100));
	CHECK(type == CU_MEMORYTYPE_DEVICE && base == p && size >= WORDS * 4);
	type = 99;
	CU(cuPointerGetAttributes(1, which, (void *[]){&type}, (CUdeviceptr)(uintptr_t)on_stack));
	CHECK(type == 0);

	/* registered memory keeps its bytes and copies as before */
	void *mine;
	CHECK(posix_memalign(&mine, 4096, 8192) == 0);
	memset(mine, 0x5a, 8192);
	CU(cuMemHostRegister_v2(mine, 8192, 0));
	EXPECT(712 /* already registered */, cuMemHostRegister_v2(mine, 4096, 0));
	CU(cuMemcpyHtoDAsync_v2(p, mine, 8192, s));
	CU(cuStreamSynchronize(s));
	CU(cuMemHostUnregister(mine));
	EXPECT(713 /* not registered */, cuMemHostUnregister(mine));
	CU(cuMemcpyDtoH_v2(on_stack, p, sizeof on_stack));
	CHECK(on_stack[3] == 0x5a5a5a5a);

	/* pageable, larger than one message */
	CUdeviceptr big;
	uint8_t *x = malloc(BIG), *y = malloc(BIG);
	for (size_t i = 0; i < BIG; i++)
		x[i] = (uint8_t)(i * 7 + (i >> 16));
	CU(cuMemAlloc_v2(&big, BIG));
	CU(cuMemcpyHtoD_v2(big, x, BIG));
	CU(cuMemcpyDtoHAsync_v2(y, big, BIG, s));
	CU(cuStreamSynchronize(s));
	CHECK(memcmp(x, y, BIG) == 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(big + BIG - 100, x, 4 << 20)); /* past its end */
	CU(cuMemFree_v2(big));
	CU(cuMemFreeHost(a));
	CU(cuMemFreeHost(b));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(on_stack));
	CU(cuCtxDestroy_v2(ctx));
	return finish("pinned");
}
