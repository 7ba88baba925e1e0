/* Every kind of memory set. */
#include "test.h"

enum { BYTES = 8192, PITCH = 256 };
static uint8_t h[BYTES], want[BYTES];

static void check(CUdeviceptr p, const char *what)
{
	CU(cuMemcpyDtoH_v2(h, p, BYTES));
	for (int i = 0; i < BYTES; i++)
		if (h[i] != want[i])
			FAIL("%s: byte %d is %#x, want %#x", what, i, h[i], want[i]);
}

static void put(size_t pitch, const void *v, size_t element, size_t w, size_t rows)
{
	for (size_t y = 0; y < rows; y++)
		for (size_t x = 0; x < w; x++)
			memcpy(want + y * pitch + x * element, v, element);
}

int main(void)
{
	CUcontext ctx = start(NULL);
	CUdeviceptr p;
	CUstream s;
	uint8_t v8 = 0x12;
	uint16_t v16 = 0x3456;
	uint32_t v32 = 0x789abcde;
	CU(cuStreamCreate(&s, CU_STREAM_DEFAULT));
	CU(cuMemAlloc_v2(&p, BYTES));
	CU(cuMemsetD8_v2(p, 0, BYTES));
	check(p, "zero");
	CU(cuMemsetD8_v2(p, v8, 1001));
	put(0, &v8, 1, 1001, 1);
	check(p, "D8");
	CU(cuMemsetD16_v2(p, v16, 501));
	put(0, &v16, 2, 501, 1);
	check(p, "D16");
	CU(cuMemsetD32_v2(p, v32, 77));
	put(0, &v32, 4, 77, 1);
	check(p, "D32");
	CU(cuMemsetD2D8_v2(p, PITCH, v8 = 1, 33, 20));
	put(PITCH, &v8, 1, 33, 20);
	check(p, "D2D8");
	CU(cuMemsetD2D16_v2(p, PITCH, v16 = 0x202, 33, 19));
	put(PITCH, &v16, 2, 33, 19);
	check(p, "D2D16");
	CU(cuMemsetD2D32_v2(p, PITCH, v32 = 0x3040506, 33, 18));
	put(PITCH, &v32, 4, 33, 18);
	check(p, "D2D32");
	CU(cuMemsetD8Async(p, v8 = 9, 1000, s));
	CU(cuMemsetD16Async(p, v16 = 0x1234, 400, s));
	CU(cuMemsetD32Async(p, v32 = 0x11223344, 100, s));
	CU(cuMemsetD2D8Async(p + 4096, PITCH, v8, 40, 10, s));
	CU(cuMemsetD2D16Async(p + 4096, PITCH, v16, 18, 9, s));
	CU(cuMemsetD2D32Async(p + 4096, PITCH, v32, 8, 8, s));
	CU(cuStreamSynchronize(s));
	put(0, &v8, 1, 1000, 1);
	put(0, &v16, 2, 400, 1);
	put(0, &v32, 4, 100, 1);
	for (size_t y = 0; y < 10; y++) {
		memset(want + 4096 + y * PITCH, v8, 40);
		for (size_t x = 0; y < 9 && x < 18; x++)
			memcpy(want + 4096 + y * PITCH + 2 * x, &v16, 2);
		for (size_t x = 0; y < 8 && x < 8; x++)
			memcpy(want + 4096 + y * PITCH + 4 * x, &v32, 4);
	}
	check(p, "asynchronous");
	CU(cuMemsetD32_v2_ptds(p, v32 = 5, 10));
	CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	put(0, &v32, 4, 10, 1);
	check(p, "per thread");
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(p, 0, (size_t)64 << 20)); /* past its end */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(p + 2, 0, 10));         /* misaligned */
	CU(cuCtxDestroy_v2(ctx));
	return finish("sets");
}
