/* Copies in batches, and managed memory: both sides use it, advice about it is taken. */
#include "test.h"

enum { N = 500, COPIES = 5 };

int main(void)
{
	CUdeviceptr dev[COPIES], managed;
	uint32_t host[COPIES][N], back[COPIES][N];
	CUdeviceptr to[COPIES], from[COPIES];
	size_t sizes[COPIES], first = 0, fail;
	uint64_t attributes[3] = {0}; /* of one CUmemcpyAttributes, 24 bytes */
	CUdevice device;
	CUstream s;
	int yes;
	start(&device);
	CUmodule m = load();
	CUfunction f = function(m, "inc");
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	*(unsigned int *)attributes = 1; /* CU_MEMCPY_SRC_ACCESS_ORDER_STREAM */
	for (uint32_t i = 0; i < COPIES; i++) {
		CU(cuMemAlloc_v2(&dev[i], sizeof host[i]));
		for (uint32_t j = 0; j < N; j++)
			host[i][j] = 10000 * i + j;
		to[i] = dev[i];
		from[i] = (CUdeviceptr)(uintptr_t)host[i];
		sizes[i] = sizeof host[i] - 4 * i;
	}
	CU(cuMemcpyBatchAsync_v2(to, from, sizes, COPIES, (CUmemcpyAttributes *)attributes, &first, 1, s));
	for (uint32_t i = 0; i < COPIES; i++)
		inc(f, dev[i], N - i, s);
	for (uint32_t i = 0; i < COPIES; i++)
		to[i] = (CUdeviceptr)(uintptr_t)back[i], from[i] = dev[i];
	CU(cuMemcpyBatchAsync(to, from, sizes, COPIES, (CUmemcpyAttributes *)attributes, &first, 1, &fail, s));
	CU(cuStreamSynchronize(s));
	for (uint32_t i = 0; i < COPIES; i++)
		for (uint32_t j = 0; j < N - i; j++)
			CHECK(back[i][j] == 10000 * i + j + 1);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(to, from, sizes, 0, (CUmemcpyAttributes *)attributes, &first, 1,
		&fail, s));

	CU(cuDeviceGetAttribute(&yes, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device));
	CHECK(yes == 1);
	CU(cuMemAllocManaged(&managed, N * 4, 1));
	uint32_t *p = (uint32_t *)(uintptr_t)managed;
	for (uint32_t i = 0; i < N; i++)
		p[i] = i;
	CU(cuStreamAttachMemAsync(s, managed, 0, 1));
	inc(f, managed, N, s);
	CU(cuStreamSynchronize(s));
	for (uint32_t i = 0; i < N; i++)
		CHECK(p[i] == i + 1);
	int where = 7;
	CU(cuMemRangeGetAttribute(&where, sizeof where, 2, managed, N * 4)); /* preferred location: none */
	CHECK(where == -2);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(&where, sizeof where, 2, dev[0], N * 4));
	CU(cuMemFree_v2(managed));
	return finish("batches");
}
