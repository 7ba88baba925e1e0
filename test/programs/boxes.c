/* Copies of rows and slices: every pair of memories, offsets, pitches; pitched allocations. The expectation is computed
 * byte by byte here. */
#include "test.h"

enum { PITCH = 96, ROWS = 20, SLICES = 6, BYTES = PITCH * ROWS * SLICES };
static uint8_t host_a[BYTES], host_b[BYTES], want[BYTES], got[BYTES];
static void *pin_a, *pin_b;
static CUdeviceptr dev_a, dev_b;

static CUDA_MEMCPY3D box(bool unified)
{
	CUDA_MEMCPY3D c = {
		.srcXInBytes = 5, .srcY = 3, .srcZ = 1, .srcPitch = PITCH, .srcHeight = ROWS,
		.dstXInBytes = 11, .dstY = 2, .dstZ = 2, .dstPitch = 80, .dstHeight = 24,
		.WidthInBytes = 37, .Height = 9, .Depth = 3,
	};
	c.srcMemoryType = c.dstMemoryType = unified ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
	return c;
}

static void expect(const CUDA_MEMCPY3D *c, const uint8_t *src)
{
	for (size_t z = 0; z < c->Depth; z++)
		for (size_t y = 0; y < c->Height; y++)
			memcpy(want + ((z + c->dstZ) * c->dstHeight + y + c->dstY) * c->dstPitch + c->dstXInBytes,
			       src + ((z + c->srcZ) * c->srcHeight + y + c->srcY) * c->srcPitch + c->srcXInBytes, c->WidthInBytes);
}

int main(void)
{
	CUcontext ctx = start(NULL);
	CUstream s;
	CU(cuStreamCreate(&s, CU_STREAM_DEFAULT));
	CU(cuMemAlloc_v2(&dev_a, BYTES));
	CU(cuMemAlloc_v2(&dev_b, BYTES));
	CU(cuMemAllocHost_v2(&pin_a, BYTES));
	CU(cuMemAllocHost_v2(&pin_b, BYTES));
	for (int i = 0; i < BYTES; i++)
		host_a[i] = (uint8_t)(i * 31 + (i >> 8));
	memcpy(pin_a, host_a, BYTES);
	CU(cuMemcpyHtoD_v2(dev_a, host_a, BYTES));

	/* pageable, pinned, device; each to each; typed and unified; sync and async */
	for (int from = 0; from < 3; from++)
		for (int to = 0; to < 3; to++)
			for (int how = 0; how < 4; how++) {
				CUDA_MEMCPY3D c = box(how & 1);
				const void *src[] = {host_a, pin_a, NULL};
				void *dst[] = {host_b, pin_b, NULL};
				memset(want, 0xee, BYTES);
				memset(host_b, 0xee, BYTES);
				memset(pin_b, 0xee, BYTES);
				CU(cuMemsetD8_v2(dev_b, 0xee, BYTES));
				expect(&c, host_a);
				if (from < 2 && !(how & 1)) {
					c.srcMemoryType = CU_MEMORYTYPE_HOST;
					c.srcHost = src[from];
				} else {
					c.srcDevice = from < 2 ? (CUdeviceptr)(uintptr_t)src[from] : dev_a;
				}
				if (to < 2 && !(how & 1)) {
					c.dstMemoryType = CU_MEMORYTYPE_HOST;
					c.dstHost = dst[to];
				} else {
					c.dstDevice = to < 2 ? (CUdeviceptr)(uintptr_t)dst[to] : dev_b;
				}
				if (how & 2)
					CU(cuMemcpy3DAsync_v2(&c, s));
				else
					CU(cuMemcpy3D_v2(&c));
				CU(cuStreamSynchronize(s));
				CU(cuCtxSynchronize());
				if (to == 2)
					CU(cuMemcpyDtoH_v2(got, dev_b, BYTES));
				else
					memcpy(got, dst[to], BYTES);
				for (int i = 0; i < BYTES; i++)
					if (got[i] != want[i])
						FAIL("from %d to %d how %d: byte %d is %#x, want %#x", from, to, how, i, got[i], want[i]);
			}

	/* two dimensions, a pitched allocation, many rows */
	enum { W = 3000, H = 9000 };
	CUdeviceptr p;
	size_t pitch;
	CU(cuMemAllocPitch_v2(&p, &pitch, W, H, 4));
	CHECK(pitch >= W);
	uint8_t *x = malloc(W * H), *y = calloc(W, H);
	for (size_t i = 0; i < (size_t)W * H; i++)
		x[i] = (uint8_t)(i ^ i >> 9);
	CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = x, .srcPitch = W,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = p,
	                    .dstPitch = pitch, .WidthInBytes = W, .Height = H};
	CUDA_MEMCPY2D back = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcPitch = pitch,
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = y,
	                      .dstPitch = W, .WidthInBytes = W, .Height = H};
	CU(cuMemcpy2D_v2(&in));
	CU(cuMemcpy2DAsync_v2(&back, s));
	CU(cuStreamSynchronize(s));
	CHECK(memcmp(x, y, (size_t)W * H) == 0);
	back.srcY = 17;
	back.srcXInBytes = 4;
	back.WidthInBytes = 100;
	back.Height = 1;
	CU(cuMemcpy2DUnaligned_v2(&back));
	CHECK(memcmp(y, x + 17 * W + 4, 100) == 0);
	in.dstPitch = W - 1;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&in));
	in.srcMemoryType = (CUmemorytype)77;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&in));
	CU(cuCtxDestroy_v2(ctx));
	return finish("boxes");
}
