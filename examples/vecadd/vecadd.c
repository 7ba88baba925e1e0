/* vecadd: the smallest whole CUDA program. It opens the driver at run time, as the CUDA
 * runtime does, adds two vectors on the GPU and checks the sum.
 *
 *     vecadd [ELEMENTS] */
#define _GNU_SOURCE
#include <cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char ptx[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n"
	"{\n"
	"	.reg .pred %p<2>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %d<8>;\n"
	"	ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [c]; ld.param.u32 %r0, [n];\n"
	"	mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
	"	mad.lo.u32 %r4, %r1, %r2, %r3;\n"
	"	setp.ge.u32 %p0, %r4, %r0;\n"
	"	@%p0 ret;\n"
	"	mul.wide.u32 %d3, %r4, 4;\n"
	"	add.u64 %d4, %d0, %d3; add.u64 %d5, %d1, %d3; add.u64 %d6, %d2, %d3;\n"
	"	ld.global.f32 %f0, [%d4]; ld.global.f32 %f1, [%d5];\n"
	"	add.f32 %f2, %f0, %f1;\n"
	"	st.global.f32 [%d6], %f2;\n"
	"	ret;\n"
	"}\n";

static void *lib;

static void *find(const char *name)
{
	void *f = dlsym(lib, name);
	if (!f) {
		fprintf(stderr, "vecadd: the driver has no %s\n", name);
		exit(1);
	}
	return f;
}

#define STR2(x) #x
#define STR(x) STR2(x) /* the header maps names to versions: cuMemAlloc is cuMemAlloc_v2 */
#define FIND(call) ((__typeof__(&call))find(STR(call)))
#define CU(call, ...)                                                                          \
	do {                                                                                   \
		CUresult r = FIND(call)(__VA_ARGS__);                                          \
		if (r != CUDA_SUCCESS) {                                                       \
			fprintf(stderr, "vecadd: %s: error %d\n", STR(call), (int)r);          \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

int main(int argc, char **argv)
{
	unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 4096;
	if (n == 0 || n > 1u << 28) {
		fprintf(stderr, "usage: vecadd [ELEMENTS]\n");
		return 2;
	}
	lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "vecadd: %s\n", dlerror());
		return 1;
	}
	CUdevice dev;
	CUcontext ctx;
	CUmodule mod;
	CUfunction add;
	CUdeviceptr d[3];
	CU(cuInit, 0);
	CU(cuDeviceGet, &dev, 0);
	CU(cuCtxCreate, &ctx, 0, dev);
	CU(cuModuleLoadData, &mod, ptx);
	CU(cuModuleGetFunction, &add, mod, "add");
	float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *c = malloc(n * sizeof *c);
	if (!a || !b || !c)
		return 1;
	for (unsigned i = 0; i < n; i++) {
		a[i] = (float)i;
		b[i] = 0.5f * (float)i;
	}
	for (int i = 0; i < 3; i++)
		CU(cuMemAlloc, &d[i], n * sizeof(float));
	CU(cuMemcpyHtoD, d[0], a, n * sizeof(float));
	CU(cuMemcpyHtoD, d[1], b, n * sizeof(float));
	void *args[] = {&d[0], &d[1], &d[2], &n};
	CU(cuLaunchKernel, add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, args, NULL);
	CU(cuMemcpyDtoH, c, d[2], n * sizeof(float));
	for (unsigned i = 0; i < n; i++)
		if (c[i] != a[i] + b[i]) {
			fprintf(stderr, "vecadd: element %u is %g, not %g\n", i, c[i], a[i] + b[i]);
			return 1;
		}
	printf("vecadd: %u sums are right\n", n);
	for (int i = 0; i < 3; i++)
		CU(cuMemFree, d[i]);
	CU(cuCtxDestroy, ctx);
	return 0;
}
