/* A driver whose launches do nothing at all: what is left of the time of a launch is the shim's. One kernel, ten
 * parameters. */
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
API int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned s,
	void *st, void **p, void **e)
{
	(void)f; (void)x; (void)y; (void)z; (void)a; (void)b; (void)c; (void)s; (void)st; (void)p; (void)e;
	return 0;
}
/* A graph of 200 nodes with that kernel. */
struct kernel_node { void *f; unsigned grid[3], block[3], shared; void **params, **extra; void *kernel, *ctx; };
API int cuGraphGetNodes(void *g, void **nodes, size_t *n)
{
	(void)g;
	*n = 200;
	for (size_t i = 0; nodes && i < *n; i++)
		nodes[i] = (void *)(i + 1);
	return 0;
}
API int cuGraphNodeGetType(void *node, int *type) { (void)node; *type = 0; return 0; }
API int cuGraphKernelNodeGetAttribute(void *node, int id, void *value)
{
	(void)node;
	(void)id;
	*(int *)value = 0;
	return 0;
}
API int cuGraphKernelNodeGetParams_v2(void *node, struct kernel_node *p)
{
	static unsigned long long value[10];
	static void *params[10];
	(void)node;
	for (int i = 0; i < 10; i++)
		params[i] = &value[i];
	*p = (struct kernel_node){ (void *)48, { 1, 1, 1 }, { 1, 1, 1 }, 0, params, NULL, NULL, NULL };
	return 0;
}
API int cuGraphInstantiateWithFlags(void **x, void *g, unsigned long long flags)
{
	(void)g;
	(void)flags;
	*x = (void *)64;
	return 0;
}
API int cuGraphExecKernelNodeSetParams_v2(void *x, void *node, const struct kernel_node *p)
{
	(void)x;
	(void)node;
	(void)p;
	return 0;
}
API int cuGraphLaunch(void *x, void *stream) { (void)x; (void)stream; return 0; }
API int cuGraphExecDestroy(void *x) { (void)x; return 0; }
