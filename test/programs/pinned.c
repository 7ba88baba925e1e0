/* Pinned host memory: asynchronous copies both ways, kernels on it, flags, registered memory, big copies. */
#include "test.h"

enum { WORDS = 1 << 20, BIG = 40 << 20 };

static void look(void *p)
{
	uint32_t **at = p; /* where to, what at */
	*at[0] = *at[1];
}

/* Kernels on memory of the program's own, which need not begin or end with a page. */
static void registered(CUfunction f_inc, CUfunction f_copy, CUstream s, CUdeviceptr p)
{
	enum { COUNT = 5000, BEFORE = 16 };
	uint8_t *block = calloc(1, 4 * COUNT + 2 * BEFORE);
	uint32_t *mine = (uint32_t *)(block + BEFORE), n = COUNT;
	CUdeviceptr d, base;
	size_t size;
	unsigned flags, type;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&d, mine, 0));
	CU(cuMemHostRegister_v2(mine, 4 * COUNT, 2 /* device map */));
	CU(cuMemHostGetDevicePointer_v2(&d, mine + 5, 0));
	CHECK(d == (CUdeviceptr)(uintptr_t)(mine + 5));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&d, mine + COUNT, 0));
	CU(cuMemHostGetFlags(&flags, mine));
	CHECK(flags == 2);
	d = (CUdeviceptr)(uintptr_t)mine;
	CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d + 20));
	CHECK(type == CU_MEMORYTYPE_HOST);
	CU(cuMemGetAddressRange_v2(&base, &size, d + 20));
	CHECK(base == d && size == 4 * COUNT);

	for (uint32_t i = 0; i < COUNT; i++)
		mine[i] = 0x10000 * i;
	inc(f_inc, d, COUNT, s);
	CU(cuStreamSynchronize(s));
	for (uint32_t i = 0; i < COUNT; i++)
		CHECK(mine[i] == 0x10000 * i + 1);
	mine[7] = 99; /* seen by the next work, and what nobody wrote stays */
	inc(f_inc, d, 10, s);
	CU(cuMemsetD32Async(d + 400, 0xabcdef01, 3, s));
	CU(cuMemcpyDtoDAsync_v2(d + 800, d + 28, 4, s));
	CU(cuStreamSynchronize(s));
	CHECK(mine[7] == 100 && mine[8] == 0x80002 && mine[10] == 0xa0001);
	CHECK(mine[99] == 0x630001 && mine[100] == 0xabcdef01 && mine[102] == 0xabcdef01 && mine[103] == 0x670001);
	CHECK(mine[200] == 100);
	void *args[] = {&p, &d, &n};
	CU(cuLaunchKernel(f_copy, 40, 1, 1, 128, 1, 1, 0, s, args, NULL));
	uint32_t *back = malloc(4 * COUNT);
	CU(cuStreamSynchronize(s));
	CU(cuMemcpyDtoH_v2(back, p, 4 * COUNT));
	CHECK(memcmp(back, mine, 4 * COUNT) == 0);
	CUgraph graph; /* and in a graph: what one node writes, the host sees in the next */
	CUgraphExec exec;
	uint32_t seen = 0;
	CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	inc(f_inc, d, 10, s);
	uint32_t *look_at[] = {&seen, mine + 7};
	CU(cuLaunchHostFunc(s, look, look_at));
	CU(cuStreamEndCapture(s, &graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	mine[7] = 500;
	CU(cuGraphLaunch(exec, s));
	CU(cuStreamSynchronize(s));
	CHECK(seen == 501 && mine[7] == 501);
	mine[7] = 100;
	for (int i = 0; i < BEFORE; i++)
		CHECK(block[i] == 0 && block[BEFORE + 4 * COUNT + i] == 0);

	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(mine + 1));
	CU(cuMemHostUnregister(mine));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&d, mine, 0));
	CU(cuMemHostRegister_v2(mine, 64, 0)); /* again, and smaller */
	CU(cuMemHostGetDevicePointer_v2(&d, mine, 0));
	inc(f_inc, d, 16, s);
	CU(cuStreamSynchronize(s));
	CHECK(mine[7] == 101 && mine[15] == 0xf0002 && mine[16] == 0x100001);
	CU(cuMemHostUnregister(mine));
	free(back);
	free(block);
}

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

	registered(f_inc, f_copy, s, p);

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
