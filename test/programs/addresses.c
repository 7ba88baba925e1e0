/* cuGetProcAddress in both forms: what each CUDA version gets, per-thread twins, what is missing. */
#include "test.h"

#include <dlfcn.h>

static void *lib;

static void resolves(const char *base, int version, cuuint64_t flags, const char *symbol)
{
	void *p = NULL, *old = NULL, *want = dlsym(lib, symbol);
	CUdriverProcAddressQueryResult status = 9;
	if (!want)
		FAIL("no symbol %s", symbol);
	CU(cuGetProcAddress_v2(base, &p, version, flags, &status));
	if (p != want || status != CU_GET_PROC_ADDRESS_SUCCESS)
		FAIL("%s at %d, flags %d: not %s", base, version, (int)flags, symbol);
	CU(cuGetProcAddress(base, &old, version, flags));
	CHECK(old == want);
}

static void missing(const char *base, int version, CUdriverProcAddressQueryResult want)
{
	void *p = (void *)1;
	CUdriverProcAddressQueryResult status = 9;
	CU(cuGetProcAddress_v2(base, &p, version, 0, &status)); /* found or not: only the first form fails */
	if (p || status != want)
		FAIL("%s at %d: %p, status %d", base, version, p, (int)status);
	EXPECT(CUDA_ERROR_NOT_FOUND, cuGetProcAddress(base, &p, version, 0));
}

int main(void)
{
	lib = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(lib);
	resolves("cuInit", 2000, 0, "cuInit");
	resolves("cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
	resolves("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
	resolves("cuCtxCreate", 3020, 0, "cuCtxCreate_v2");
	resolves("cuCtxCreate", 12000, 0, "cuCtxCreate_v3");
	resolves("cuCtxCreate", 13000, 0, "cuCtxCreate_v4");
	resolves("cuDevicePrimaryCtxRelease", 10000, 0, "cuDevicePrimaryCtxRelease");
	resolves("cuDevicePrimaryCtxRelease", 12000, 0, "cuDevicePrimaryCtxRelease_v2");
	resolves("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
	resolves("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
	resolves("cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2");
	resolves("cuGraphInstantiate", 12000, 0, "cuGraphInstantiate_v2");
	resolves("cuStreamGetCaptureInfo", 11030, 0, "cuStreamGetCaptureInfo_v2");
	resolves("cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz");
	resolves("cuStreamSynchronize", 12000, 0, "cuStreamSynchronize");
	resolves("cuStreamSynchronize", 12000, 1, "cuStreamSynchronize");
	resolves("cuStreamSynchronize", 12000, 2, "cuStreamSynchronize_ptsz");
	resolves("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds");
	resolves("cuLaunchKernelEx", 12000, 2, "cuLaunchKernelEx_ptsz");
	resolves("cuMemAlloc", 12000, 2, "cuMemAlloc_v2");
	missing("cuNothingOfTheKind", 12000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	missing("cuMemAlloc_v2", 12000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND); /* base names only */
	missing("cuLaunchKernelEx", 11000, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	void *p;
	CUdriverProcAddressQueryResult status;
	CU(cuGetProcAddress_v2("cuStreamQuery", &p, 6050, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
	CHECK(!p && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &p, 99000, 0, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &p, 12000, 4, NULL));
	return finish("addresses");
}
