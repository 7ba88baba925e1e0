/*
 * decode MODE SEED OUT: a sequence of numbers with a cache, as language models have one: range "prefill" takes six
 * numbers, range "decode" one, and both compute from all that came so far. It decodes three times; OUT gets what each
 * range has brought to the host: 4 floats and how many numbers there are.
 *
 * Weights are found by pointers: in a table on the device, in a variable of the module, in a structure that the
 * kernels are given. MODE is "plain", "warm" (everything twice), or something that cannot be recorded, or not be moved
 * to other addresses: see main, between and oddities.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <nvtx.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CU(call) check(call, __LINE__)

static const char code[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .global .align 8 .u64 table;\n"
	/* cache[count + i] = table[0][x[i] % 16] for i < n; count += n. The structure: cache, n, end of x */
	".visible .entry append(.param .u64 x, .param .align 8 .b8 s[24], .param .u64 count)\n{\n"
	"\t.reg .pred %p<2>;\n\t.reg .b32 %r<6>;\n\t.reg .b64 %d<12>;\n\t.reg .f32 %f<2>;\n"
	"\tld.param.u64 %d1, [x];\n\tld.param.u64 %d2, [s];\n\tld.param.u64 %d3, [s+16];\n\tld.param.u64 %d4, [count];\n"
	"\tld.global.u64 %d5, [table];\n\tld.global.u64 %d5, [%d5];\n\tld.global.u32 %r1, [%d4];\n"
	"loop:\n\tsetp.ge.u64 %p1, %d1, %d3;\n\t@%p1 bra done;\n"
	"\tld.global.u32 %r2, [%d1];\n\tand.b32 %r2, %r2, 15;\n\tmul.wide.u32 %d6, %r2, 4;\n\tadd.s64 %d6, %d5, %d6;\n"
	"\tld.global.f32 %f1, [%d6];\n\tmul.wide.u32 %d7, %r1, 4;\n\tadd.s64 %d7, %d2, %d7;\n"
	"\tst.global.f32 [%d7], %f1;\n\tadd.u32 %r1, %r1, 1;\n\tadd.s64 %d1, %d1, 4;\n\tbra loop;\n"
	"done:\n\tst.global.u32 [%d4], %r1;\n\tret;\n}\n"
	/* y[t] = sum of cache[i] * table[1][(i + t) % 16] for i < count; y[4] = count */
	".visible .entry attend(.param .u64 cache, .param .u64 count, .param .u64 y)\n{\n"
	"\t.reg .pred %p<2>;\n\t.reg .b32 %r<8>;\n\t.reg .b64 %d<12>;\n\t.reg .f32 %f<5>;\n"
	"\tld.param.u64 %d1, [cache];\n\tld.param.u64 %d2, [count];\n\tld.param.u64 %d3, [y];\n"
	"\tld.global.u64 %d4, [table];\n\tld.global.u64 %d4, [%d4+8];\n\tld.global.u32 %r1, [%d2];\n"
	"\tmov.u32 %r2, %tid.x;\n\tmov.u32 %r3, 0;\n\tmov.f32 %f1, 0f00000000;\n"
	"loop:\n\tsetp.ge.u32 %p1, %r3, %r1;\n\t@%p1 bra done;\n"
	"\tadd.u32 %r4, %r3, %r2;\n\tand.b32 %r4, %r4, 15;\n\tmul.wide.u32 %d5, %r4, 4;\n\tadd.s64 %d5, %d4, %d5;\n"
	"\tld.global.f32 %f2, [%d5];\n\tmul.wide.u32 %d6, %r3, 4;\n\tadd.s64 %d6, %d1, %d6;\n"
	"\tld.global.f32 %f3, [%d6];\n\tfma.rn.f32 %f1, %f2, %f3, %f1;\n\tadd.u32 %r3, %r3, 1;\n\tbra loop;\n"
	"done:\n\tmul.wide.u32 %d7, %r2, 4;\n\tadd.s64 %d7, %d3, %d7;\n\tst.global.f32 [%d7], %f1;\n"
	"\tst.global.u32 [%d3+16], %r1;\n\tret;\n}\n"
	".visible .entry nothing(.param .u64 a, .param .u64 b)\n{\n\tret;\n}\n";

enum { LONG = 6, ROOM = 64 };

static void check(CUresult r, int line)
{
	if (r == CUDA_SUCCESS)
		return;
	fprintf(stderr, "decode: line %d: error %d\n", line, r);
	exit(1);
}

static const char *mode;
static uint32_t seed;
static FILE *out;
static CUmodule module;
static CUfunction append, attend, nothing;
static CUdeviceptr x, y, cache, count, extra, pointers, weights[2];

static int is(const char *name) { return !strcmp(mode, name); }

static uint32_t number(void) { return (seed = seed * 1664525u + 1013904223u) >> 8; }

static void setup(void)
{
	CUdevice dev;
	CUcontext ctx;
	CUdeviceptr variable;
	size_t bytes;
	float w[16];
	CU(cuInit(0));
	CU(cuDeviceGet(&dev, 0));
	CU(cuCtxCreate(&ctx, 0, dev));
	CU(cuModuleLoadData(&module, code));
	CU(cuModuleGetFunction(&append, module, "append"));
	CU(cuModuleGetFunction(&attend, module, "attend"));
	CU(cuModuleGetFunction(&nothing, module, "nothing"));
	CU(cuMemAlloc(&x, LONG * 4));
	CU(cuMemAlloc(&y, 20));
	CU(cuMemAlloc(&count, 4));
	CU(cuMemAlloc(&extra, 4096));
	CU(cuMemAlloc(&pointers, 4 << 20)); /* more than a unit of memory */
	CU(cuMemsetD32(count, 0, 1));
	CU(cuMemsetD32(y, 0, 5));
	CU(cuMemsetD32(x, 0, LONG));
	CU(cuMemsetD32(extra, 0, 1024));
	CU(cuMemsetD32(pointers, 0, 1 << 20));
	if (!is("kept")) {
		CU(cuMemAlloc(&cache, ROOM * 4));
		CU(cuMemsetD32(cache, 0, ROOM));
	}
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < 16; k++)
			w[k] = (float)(int)((k * 37 + i * 11) % 23 - 11) / 8;
		CU(cuMemAlloc(&weights[i], sizeof w));
		CU(cuMemcpyHtoD(weights[i], w, sizeof w));
	}
	CUdeviceptr at = pointers + (3 << 20);
	CU(cuMemcpyHtoD(at, weights, sizeof weights));
	CU(cuModuleGetGlobal(&variable, &bytes, module, "table"));
	CU(cuMemcpyHtoD(variable, &at, 8));
}

/* What makes a recording keep to its addresses, or only looks like it. */
static void oddities(void)
{
	uint64_t v = 0;
	if (is("random")) { /* differs, but is no address */
		if (getrandom(&v, 6, 0) != 6)
			exit(1);
		v = v << 16 | 1;
		CU(cuMemcpyHtoD(extra + 64, &v, 8));
	}
	if (is("shifted")) { /* an address in units of 256 bytes */
		v = cache >> 8;
		CU(cuMemcpyHtoD(extra + 64, &v, 8));
	}
	if (is("unaligned"))
		CU(cuMemcpyHtoD(extra + 68, &cache, 8));
	if (is("behind")) { /* an address of nothing */
		v = weights[1] + (64u << 20);
		CU(cuMemcpyHtoD(extra + 64, &v, 8));
	}
}

static void run(uint32_t n)
{
	uint32_t tokens[LONG];
	char result[20];
	for (uint32_t i = 0; i < n; i++)
		tokens[i] = number();
	CU(cuMemcpyHtoD(x, tokens, n * 4));
	struct { CUdeviceptr cache; uint64_t n; CUdeviceptr end; } s = {cache, n, x + n * 4};
	void *first[] = {&x, &s, &count}, *second[] = {&cache, &count, &y};
	CU(cuLaunchKernel(append, 1, 1, 1, 1, 1, 1, 0, NULL, first, NULL));
	CU(cuLaunchKernel(attend, 1, 1, 1, 4, 1, 1, 0, NULL, second, NULL));
	if (is("parameter") || is("longer")) {
		uint64_t a = is("longer") ? 0 : ~cache, b = cache;
		void *third[] = {&a, &b};
		if (is("parameter") || (cache >> 33) % 2)
			CU(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, third, NULL));
	}
	CU(cuMemcpyDtoH(result, y, sizeof result));
	fwrite(result, sizeof result, 1, out);
}

/* What comes between the ranges. */
static void between(void)
{
	void *args[] = {&cache, &count};
	uint32_t v = 0;
	if (is("launch"))
		CU(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	if (is("copy"))
		CU(cuMemcpyHtoD(extra, &v, 4));
	if (is("set"))
		CU(cuMemsetD32(extra, 0, 1));
	if (is("look")) /* this is allowed */
		CU(cuMemcpyDtoH(&v, extra, 4));
	if (is("freed")) {
		CU(cuMemFree(extra));
		CU(cuMemAlloc(&extra, 4096));
	}
}

static void sequence(void)
{
	CU(cuMemsetD32(count, 0, 1));
	if (is("swapped")) {
		nvtxRangePushA("decode");
		run(1);
		nvtxRangePop();
	}
	nvtxRangePushA("prefill");
	if (is("kept")) {
		CU(cuMemAlloc(&cache, ROOM * 4));
		CU(cuMemsetD32(cache, 0, ROOM));
	}
	run(LONG);
	if (is("nested")) {
		nvtxRangePushA("decode");
		run(1);
		nvtxRangePop();
	}
	nvtxRangePop();
	between();
	for (int i = 0; i < 3 && !is("swapped"); i++) {
		nvtxRangePushA("decode");
		run(1);
		nvtxRangePop();
	}
}

int main(int argc, char **argv)
{
	if (argc != 4 || !(out = fopen(argv[3], "wb")))
		return 2;
	mode = argv[1];
	seed = (uint32_t)atoi(argv[2]);
	setup();
	oddities();
	if (is("warm")) {
		sequence();
		rewind(out);
	}
	sequence();
	return fclose(out) != 0;
}
