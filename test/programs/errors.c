/* Errors: before initialisation, bad arguments, bad handles, bad PTX with its log, names and texts of errors, what is
 * not supported. */
#include "test.h"

int main(void)
{
	CUdeviceptr p;
	CUdevice dev;
	CUmodule m;
	CUfunction f;
	const char *text;
	int n;
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&p, 100));
	CU(cuDriverGetVersion(&n));
	CHECK(n >= 12000);
	CU(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
	CHECK(strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
	CU(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
	CHECK(strcmp(text, "out of memory") == 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuInit(1));

	CU(cuInit(0));
	CU(cuDeviceGet(&dev, 0));
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&dev, 1000));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&p, 100));
	CUcontext ctx = start(&dev);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&p, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 100));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, (size_t)1 << 50));
	CU(cuMemAlloc_v2(&p, 100));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p + 4));
	CU(cuMemFree_v2(p));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p));
	char bytes[64] = {0};
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(0x10, bytes, sizeof bytes));

	m = load();
	EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f, m, "nothing"));
	f = function(m, "fill");
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL)); /* no parameters */
	uint32_t one = 1;
	void *args[] = {&p, &one, &one};
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 2048, 1, 1, 0, NULL, args, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 0, 1, 1, 128, 1, 1, 0, NULL, args, NULL));
	CU(cuCtxSynchronize()); /* none of them hurt */

	char error_log[512] = "", info_log[512] = "";
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER,
		CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {error_log, (void *)sizeof error_log, info_log, (void *)sizeof info_log};
	EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&m, HEAD ".visible .entry k()\n{\n	mov.u32 , 1;\n}\n", 4,
		options, values));
	CHECK(strlen(error_log) > 0 && (size_t)(uintptr_t)values[1] <= sizeof error_log);
	EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&m, HEAD ".visible .entry k() { add"));
	CHECK(cuModuleLoadData(&m, "not an image at all") != CUDA_SUCCESS);
	values[1] = (void *)sizeof error_log;
	values[3] = (void *)sizeof info_log;
	CU(cuModuleLoadDataEx(&m, kernels, 4, options, values));
	CU(cuModuleUnload(m));

	if (soft()) { /* handles that never were: a real driver may crash on them */
		CUstream s = (CUstream)0x1234;
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(s));
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord((CUevent)0x777, NULL));
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&f, (CUmodule)0x99, "fill"));
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel((CUfunction)0x55, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
		EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)0x88));
		CUtexref t;
		EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuTexRefCreate(&t));
		CUmemGenericAllocationHandle mc;
		CUmulticastObjectProp prop = {.numDevices = 1, .size = 2 << 20};
		EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMulticastCreate(&mc, &prop));
		const void *table;
		EXPECT(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&table, &(CUuuid){{1}}));
	}
	CU(cuCtxSynchronize());
	CU(cuCtxDestroy_v2(ctx));
	return finish("errors");
}
