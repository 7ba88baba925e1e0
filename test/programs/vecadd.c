/* A whole program, linked against the driver; parameters in both forms. */
#include "test.h"

int main(void)
{
	enum { N = 10000 };
	CUdevice dev;
	int n, major;
	size_t total, free_bytes, whole;
	char name[64], tiny[5];
	CUcontext ctx = start(&dev), current;
	CU(cuDeviceGetCount(&n));
	CHECK(n >= 1);
	CU(cuDeviceGetName(name, sizeof name, dev));
	CHECK(name[0] != 0);
	CU(cuDeviceGetName(tiny, sizeof tiny, dev));
	CHECK(strlen(tiny) == 4 && strncmp(tiny, name, 4) == 0);
	CU(cuDeviceTotalMem_v2(&whole, dev));
	CU(cuMemGetInfo_v2(&free_bytes, &total));
	CHECK(free_bytes <= total && total <= whole);
	CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev));
	CHECK(major >= 7);
	CUuuid u1, u2;
	CU(cuDeviceGetUuid(&u1, dev));
	CU(cuDeviceGetUuid_v2(&u2, dev));
	CHECK(memcmp(&u1, &u2, sizeof u1) == 0);
	CU(cuCtxGetCurrent(&current));
	CHECK(current == ctx);

	CUmodule m = load();
	CUfunction add = function(m, "add");
	CUdeviceptr a, b, c;
	CU(cuMemAlloc_v2(&a, N * 4));
	CU(cuMemAlloc_v2(&b, N * 4));
	CU(cuMemAlloc_v2(&c, N * 4));
	float *h = malloc(N * 4);
	for (int i = 0; i < N; i++)
		h[i] = (float)i;
	CU(cuMemcpyHtoD_v2(a, h, N * 4));
	CU(cuMemcpyDtoD_v2(b, a, N * 4));
	uint32_t count = N;
	LAUNCH(add, N, NULL, &a, &b, &c, &count);
	CU(cuCtxSynchronize());
	memset(h, 0, N * 4);
	CU(cuMemcpyDtoH_v2(h, c, N * 4));
	for (int i = 0; i < N; i++)
		CHECK(h[i] == 2.0f * (float)i);

	struct {
		CUdeviceptr a, b, c;
		uint32_t n;
	} packed = {a, c, c, N};
	size_t size = offsetof(__typeof__(packed), n) + sizeof packed.n; /* without the padding behind it */
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	CU(cuLaunchKernel(add, (N + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
	CUlaunchConfig config = {.gridDimX = (N + 127) / 128, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128,
		.blockDimY = 1, .blockDimZ = 1};
	void *params[] = {&a, &c, &c, &count};
	CU(cuLaunchKernelEx(&config, add, params, NULL));
	CU(cuMemcpyDtoH_v2(h, c, N * 4));
	for (int i = 0; i < N; i++)
		CHECK(h[i] == 4.0f * (float)i);

	CUfunction mixed = function(m, "mixed");
	uint8_t p1 = 200, p6 = 7;
	uint16_t p2 = 60000;
	uint32_t p4 = 1000000, sum;
	double p5 = 12.75;
	LAUNCH(mixed, 1, NULL, &p1, &p2, &c, &p4, &p5, &p6);
	CU(cuMemcpyDtoH_v2(&sum, c, 4));
	CHECK(sum == 200 + 60000 + 1000000 + 12 + 7);
	size_t offset, bytes;
	CU(cuFuncGetParamInfo(mixed, 2, &offset, &bytes));
	CHECK(offset == 8 && bytes == 8);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(mixed, 6, &offset, &bytes));
	const char *fname;
	CU(cuFuncGetName(&fname, mixed));
	CHECK(strcmp(fname, "mixed") == 0);

	CU(cuMemFree_v2(a));
	CU(cuMemFree_v2(b));
	CU(cuMemFree_v2(c));
	CU(cuModuleUnload(m));
	CU(cuCtxDestroy_v2(ctx));
	free(h);
	return finish("vecadd");
}
