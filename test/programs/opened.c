/* The driver opened at run time, entry points by cuGetProcAddress, primary context, library and kernel handles. */
#include "test.h"

#include <dlfcn.h>

static CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void *find(const char *name)
{
	void *p;
	CUdriverProcAddressQueryResult status;
	CU(get(name, &p, 12080, 0, &status));
	CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS && p);
	return p;
}
#define CALL(symbol, base) ((__typeof__(&symbol))find(base))

int main(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CHECK(lib);
	get = dlsym(lib, "cuGetProcAddress_v2");
	CHECK(get);
	CUdevice dev;
	CUcontext ctx, again_ctx;
	CUlibrary library;
	CUkernel kernel;
	CUfunction f;
	CUdeviceptr p;
	unsigned flags, count;
	int active;
	CU(CALL(cuInit, "cuInit")(0));
	CU(CALL(cuDeviceGet, "cuDeviceGet")(&dev, 0));
	CU(CALL(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState")(dev, &flags, &active));
	CHECK(!active);
	CU(CALL(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")(&ctx, dev));
	CU(CALL(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")(&again_ctx, dev));
	CHECK(ctx == again_ctx);
	CU(CALL(cuCtxSetCurrent, "cuCtxSetCurrent")(ctx));
	CU(CALL(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState")(dev, &flags, &active));
	CHECK(active);
	CU(CALL(cuLibraryLoadData, "cuLibraryLoadData")(&library, kernels, NULL, NULL, 0, NULL, NULL, 0));
	CU(CALL(cuLibraryGetKernelCount, "cuLibraryGetKernelCount")(&count, library));
	CHECK(count == 8);
	CU(CALL(cuLibraryGetKernel, "cuLibraryGetKernel")(&kernel, library, "fill"));
	CU(CALL(cuKernelGetFunction, "cuKernelGetFunction")(&f, kernel));
	CU(CALL(cuMemAlloc_v2, "cuMemAlloc")(&p, 4000));
	uint32_t n = 1000, v = 5, h[1000];
	void *args[] = {&p, &n, &v};
	/* a CUkernel may stand for it */
	CU(CALL(cuLaunchKernel, "cuLaunchKernel")((CUfunction)kernel, 8, 1, 1, 128, 1, 1, 0, NULL, args, NULL));
	CU(CALL(cuMemcpyDtoH_v2, "cuMemcpyDtoH")(h, p, 4000));
	CHECK(h[999] == 1004);
	v = 6;
	CU(CALL(cuLaunchKernel, "cuLaunchKernel")(f, 8, 1, 1, 128, 1, 1, 0, NULL, args, NULL));
	CU(CALL(cuMemcpyDtoH_v2, "cuMemcpyDtoH")(h, p, 4000));
	CHECK(h[999] == 1005);
	CU(CALL(cuLibraryUnload, "cuLibraryUnload")(library));
	CU(CALL(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease")(dev));
	CU(CALL(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease")(dev));
	CU(CALL(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState")(dev, &flags, &active));
	CHECK(!active);
	return finish("opened");
}
