/* A driver whose launches do nothing at all: what is left of the time of a launch is the shim's. One kernel, ten parameters. */
#include <stddef.h>
#define API __attribute__((visibility("default")))
API int cuInit(unsigned f) { (void)f; return 0; }
API int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
API int cuDeviceGetCount(int *n) { *n = 1; return 0; }
API int cuDeviceGet(int *d, int i) { *d = i; return 0; }
API int cuDeviceGetUuid_v2(char *u, int d) { for (int i = 0; i < 16; i++) u[i] = (char)d; return 0; }
API int cuCtxGetCurrent(void **c) { *c = (void *)16; return 0; }
API int cuCtxGetDevice(int *d) { *d = 0; return 0; }
API int cuCtxPushCurrent_v2(void *c) { (void)c; return 0; }
API int cuCtxPopCurrent_v2(void **c) { *c = (void *)16; return 0; }
API int cuCtxSynchronize(void) { return 0; }
API int cuModuleLoadData(void **m, const void *image) { (void)image; *m = (void *)32; return 0; }
API int cuModuleGetFunction(void **f, void *m, const char *name) { (void)m; (void)name; *f = (void *)48; return 0; }
API int cuFuncGetParamInfo(void *f, size_t i, size_t *offset, size_t *size)
{
	(void)f;
	*offset = 8 * i;
	*size = i % 3 ? 8 : 4;
	return i < 10 ? 0 : 1;
}
API int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned s, void *st, void **p, void **e)
{
	(void)f; (void)x; (void)y; (void)z; (void)a; (void)b; (void)c; (void)s; (void)st; (void)p; (void)e;
	return 0;
}
