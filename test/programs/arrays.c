/* Arrays: of one, two and three dimensions, with layers, with levels; copies of every kind to and from them. */
#include "test.h"

enum { W = 37, H = 11, D = 5 };

static uint32_t pattern(uint32_t x, uint32_t y, uint32_t z, uint32_t seed) { return seed + x + 1000 * y + 100000 * z; }

static CUDA_MEMCPY3D box(uint32_t w, uint32_t h, uint32_t d)
{
	return (CUDA_MEMCPY3D){.WidthInBytes = w * 4, .Height = h, .Depth = d};
}

static void from_host(CUDA_MEMCPY3D *p, const void *host)
{
	p->srcMemoryType = CU_MEMORYTYPE_HOST;
	p->srcHost = host;
}

static void to_host(CUDA_MEMCPY3D *p, void *host)
{
	p->dstMemoryType = CU_MEMORYTYPE_HOST;
	p->dstHost = host;
}

static void from_array(CUDA_MEMCPY3D *p, CUarray a, uint32_t x, uint32_t y, uint32_t z)
{
	p->srcMemoryType = CU_MEMORYTYPE_ARRAY;
	p->srcArray = a;
	p->srcXInBytes = x * 4, p->srcY = y, p->srcZ = z;
}

static void to_array(CUDA_MEMCPY3D *p, CUarray a, uint32_t x, uint32_t y, uint32_t z)
{
	p->dstMemoryType = CU_MEMORYTYPE_ARRAY;
	p->dstArray = a;
	p->dstXInBytes = x * 4, p->dstY = y, p->dstZ = z;
}

static void write_all(CUarray a, uint32_t seed)
{
	static uint32_t h[D][H][W];
	for (uint32_t z = 0; z < D; z++)
		for (uint32_t y = 0; y < H; y++)
			for (uint32_t x = 0; x < W; x++)
				h[z][y][x] = pattern(x, y, z, seed);
	CUDA_MEMCPY3D p = box(W, H, D);
	from_host(&p, h);
	to_array(&p, a, 0, 0, 0);
	CU(cuMemcpy3D_v2(&p));
}

static void check_part(CUarray a, uint32_t x0, uint32_t y0, uint32_t z0, uint32_t seed, const char *what)
{
	enum { PW = 9, PH = 3, PD = 2 };
	uint32_t h[PD][PH][PW];
	CUDA_MEMCPY3D p = box(PW, PH, PD);
	from_array(&p, a, x0, y0, z0);
	to_host(&p, h);
	CU(cuMemcpy3D_v2(&p));
	for (uint32_t z = 0; z < PD; z++)
		for (uint32_t y = 0; y < PH; y++)
			for (uint32_t x = 0; x < PW; x++)
				if (h[z][y][x] != pattern(x0 + x, y0 + y, z0 + z, seed))
					FAIL("%s: element %u,%u,%u is %u", what, x0 + x, y0 + y, z0 + z, h[z][y][x]);
}

static void volumes(void)
{
	CUarray a, b, layers;
	CUDA_ARRAY3D_DESCRIPTOR d = {W, H, D, CU_AD_FORMAT_SIGNED_INT32, 1, 0}, got;
	CUDA_ARRAY_DESCRIPTOR flat;
	CU(cuArray3DCreate_v2(&a, &d));
	CU(cuArray3DCreate_v2(&b, &d));
	d.Flags = CUDA_ARRAY3D_LAYERED;
	CU(cuArray3DCreate_v2(&layers, &d));
	CU(cuArray3DGetDescriptor_v2(&got, layers));
	CHECK(memcmp(&got, &d, offsetof(__typeof__(d), Flags) + sizeof d.Flags) == 0);
	CHECK(cuArrayGetDescriptor_v2(&flat, layers) != CUDA_SUCCESS || flat.Width == W);
	write_all(a, 7);
	check_part(a, 0, 0, 0, 7, "volume");
	check_part(a, W - 9, H - 3, D - 2, 7, "end of the volume");
	CUDA_MEMCPY3D p = box(W, H, D);
	from_array(&p, a, 0, 0, 0);
	to_array(&p, layers, 0, 0, 0);
	CU(cuMemcpy3D_v2(&p));
	check_part(layers, 4, 2, 3, 7, "layers");

	/* Through pitched device memory, in stream order, and as a node of a graph. */
	CUdeviceptr dev;
	size_t pitch;
	CUstream s;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAllocPitch_v2(&dev, &pitch, W * 4, H * D, 4));
	p = box(W, H, D);
	from_array(&p, layers, 0, 0, 0);
	p.dstMemoryType = CU_MEMORYTYPE_DEVICE, p.dstDevice = dev, p.dstPitch = pitch, p.dstHeight = H;
	CU(cuMemcpy3DAsync_v2(&p, s));
	p.srcMemoryType = CU_MEMORYTYPE_DEVICE, p.srcDevice = dev, p.srcPitch = pitch, p.srcHeight = H;
	to_array(&p, b, 0, 0, 0);
	CU(cuMemcpy3DAsync_v2(&p, s));
	CU(cuStreamSynchronize(s));
	check_part(b, 1, 1, 1, 7, "through device memory");
	CUgraph g;
	CUgraphExec e;
	CUgraphNode n;
	write_all(layers, 13);
	p = box(W, H, D);
	from_array(&p, layers, 0, 0, 0);
	to_array(&p, b, 0, 0, 0);
	CU(cuGraphCreate(&g, 0));
	CU(cuGraphAddMemcpyNode(&n, g, NULL, 0, &p, NULL));
	CU(cuGraphInstantiateWithFlags(&e, g, 0));
	CU(cuGraphLaunch(e, s));
	CU(cuStreamSynchronize(s));
	check_part(b, 2, 0, 1, 13, "by a graph");

	p = box(W, H, D);
	from_array(&p, a, 1, 0, 0);
	to_array(&p, b, 0, 0, 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&p)); /* over the end of a row */
	CU(cuArrayDestroy(a));
	CU(cuArrayDestroy(b));
	CU(cuArrayDestroy(layers));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(a));
	CU(cuMemFree_v2(dev));
}

static void rows(void)
{
	CUarray line, other, plane;
	CUDA_ARRAY_DESCRIPTOR d = {100, 0, CU_AD_FORMAT_FLOAT, 2, }, got;
	float h[200], back[200];
	CUdeviceptr dev;
	for (int i = 0; i < 200; i++)
		h[i] = (float)i;
	CU(cuMemAlloc_v2(&dev, sizeof h));
	CU(cuArrayCreate_v2(&line, &d));
	CU(cuArrayCreate_v2(&other, &d));
	CU(cuArrayGetDescriptor_v2(&got, line));
	CHECK(got.Width == 100 && got.Height == 0 && got.Format == CU_AD_FORMAT_FLOAT && got.NumChannels == 2);
	CU(cuMemcpyHtoA_v2(line, 0, h, sizeof h));
	CU(cuMemcpyAtoA_v2(other, 8, line, 16, 400));
	CU(cuMemcpyAtoD_v2(dev, other, 8, 400));
	CU(cuMemcpyDtoA_v2(other, 400, dev, 400));
	CU(cuMemcpyAtoH_v2(back, other, 400, 400));
	for (int i = 0; i < 100; i++)
		CHECK(back[i] == (float)(i + 4));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(line, 4, h, sizeof h));

	/* Two dimensions, bytes of four channels, through CUDA_MEMCPY2D. */
	CUDA_ARRAY_DESCRIPTOR p = {33, 20, CU_AD_FORMAT_UNSIGNED_INT8, 4};
	static unsigned char in[20][256], out[20][33 * 4];
	CU(cuArrayCreate_v2(&plane, &p));
	for (int y = 0; y < 20; y++)
		for (int x = 0; x < 132; x++)
			in[y][x] = (unsigned char)(7 * x + 13 * y);
	CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = sizeof in[0],
		.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = plane,
	                   .WidthInBytes = 132, .Height = 20};
	CU(cuMemcpy2D_v2(&c));
	c = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = plane, .srcXInBytes = 4, .srcY = 2,
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out,
	                    .dstPitch = sizeof out[0], .WidthInBytes = 120, .Height = 18};
	CU(cuMemcpy2D_v2(&c));
	for (int y = 0; y < 18; y++)
		CHECK(memcmp(out[y], in[y + 2] + 4, 120) == 0);
	CU(cuArrayDestroy(plane));
	CU(cuArrayDestroy(line));
	CU(cuArrayDestroy(other));
	p.NumChannels = 3;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuArrayCreate_v2(&plane, &p));
	p = (CUDA_ARRAY_DESCRIPTOR){0, 20, CU_AD_FORMAT_UNSIGNED_INT8, 4};
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuArrayCreate_v2(&plane, &p));
}

static void levels(void)
{
	CUmipmappedArray m;
	CUarray level, again;
	CUDA_ARRAY3D_DESCRIPTOR d = {40, 24, 0, CU_AD_FORMAT_FLOAT, 1, 0}, got;
	CU(cuMipmappedArrayCreate(&m, &d, 4));
	for (unsigned i = 0; i < 4; i++) {
		CU(cuMipmappedArrayGetLevel(&level, m, i));
		CU(cuMipmappedArrayGetLevel(&again, m, i));
		CHECK(level == again);
		CU(cuArray3DGetDescriptor_v2(&got, level));
		CHECK(got.Width == 40u >> i && got.Height == 24u >> i && got.Depth == 0);
	}
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, m, 4));
	CHECK(cuArrayDestroy(again) != CUDA_SUCCESS);
	CU(cuMipmappedArrayDestroy(m));
}

int main(void)
{
	start(NULL);
	volumes();
	rows();
	levels();
	return finish("arrays");
}
