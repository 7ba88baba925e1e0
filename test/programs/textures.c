/* Texture and surface objects over arrays, layers, levels, linear and pitched memory. */
#include "test.h"

#define PROLOGUE \
	"	.reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %d<8>;\n" \
	"	ld.param.u64 %d0, [out]; ld.param.u64 %d1, [t]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4; " \
	"add.u64 %d3, %d0, %d2;\n"
#define KERNEL(name) ".visible .entry " name "(.param .u64 out, .param .u64 t)\n{\n" PROLOGUE
static const char source[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
	/* line: out[i] = texel i */
	KERNEL("line") "	tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%d1, {%r0}]; st.global.u32 [%d3], %r1;\n	ret;\n}\n"
	/* plane: out[i] = the texel at (i % 8 + 0.5, i / 8 + 0.5) */
	KERNEL("plane")
	"	and.b32 %r1, %r0, 7; shr.u32 %r2, %r0, 3; cvt.rn.f32.u32 %f0, %r1; cvt.rn.f32.u32 %f1, %r2; "
	"add.f32 %f0, %f0, 0f3f000000;\n"
	"	add.f32 %f1, %f1, 0f3f000000; tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%d1, {%f0, %f1}]; "
	"st.global.f32 [%d3], %f2;\n	ret;\n}\n"
	/* between: out[i] = half way between texels i and i + 1 of row 0 */
	KERNEL("between")
	"	add.u32 %r1, %r0, 1; cvt.rn.f32.u32 %f0, %r1; mov.f32 %f1, 0f3f000000;\n"
	"	tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%d1, {%f0, %f1}]; st.global.f32 [%d3], %f2;\n	ret;\n}\n"
	/* layer: out[i] = texel (0, 0) of layer i */
	KERNEL("layer")
	"	mov.u32 %r1, 0; tex.a2d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [%d1, {%r0, %r1, %r1, %r1}]; "
	"st.global.u32 [%d3], %r2;\n	ret;\n}\n"
	/* level: out[i] = level i in the middle */
	KERNEL("level")
	"	cvt.rn.f32.u32 %f0, %r0; mov.f32 %f1, 0f3f000000;\n"
	"	tex.level.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%d1, {%f1, %f1}], %f0; st.global.f32 [%d3], %f2;\n	ret;\n}\n"
	/* paint: element (i, 1) of a surface becomes out[i] + 1 */
	KERNEL("paint")
	"	ld.global.u32 %r1, [%d3]; add.u32 %r1, %r1, 1; shl.b32 %r2, %r0, 2; mov.u32 %r3, 1;\n"
	"	sust.b.2d.b32.trap [%d1, {%r2, %r3}], {%r1};\n	ret;\n}\n";

static CUfunction get(CUmodule m, const char *name) { return function(m, name); }

static CUdeviceptr out;

static void run(CUfunction f, unsigned long long object, unsigned int n)
{
	void *params[] = {&out, &object};
	CU(cuLaunchKernel(f, 1, 1, 1, n, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
}

static void fill_array(CUarray a, const void *host, size_t row, size_t rows, size_t slices)
{
	CUDA_MEMCPY3D p = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
		.dstArray = a, .WidthInBytes = row,
	                   .Height = rows, .Depth = slices};
	CU(cuMemcpy3D_v2(&p));
}

static void floats(const char *what, const float *want, unsigned int n)
{
	float h[64];
	CU(cuMemcpyDtoH_v2(h, out, n * 4));
	for (unsigned int i = 0; i < n; i++)
		if (h[i] != want[i])
			FAIL("%s: %u is %g, want %g", what, i, h[i], want[i]);
}

static void words(const char *what, const uint32_t *want, unsigned int n)
{
	uint32_t h[64];
	CU(cuMemcpyDtoH_v2(h, out, n * 4));
	for (unsigned int i = 0; i < n; i++)
		if (h[i] != want[i])
			FAIL("%s: %u is %u, want %u", what, i, h[i], want[i]);
}

int main(void)
{
	CUmodule m;
	CUtexObject t;
	start(NULL);
	CU(cuModuleLoadData(&m, source));
	CU(cuMemAlloc_v2(&out, 256));
	CUDA_TEXTURE_DESC point = {.addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP,
		CU_TR_ADDRESS_MODE_CLAMP}}, linear = point;
	linear.filterMode = CU_TR_FILTER_MODE_LINEAR;
	CUDA_TEXTURE_DESC integers = point;
	integers.flags = CU_TRSF_READ_AS_INTEGER;

	/* Linear memory; out of range it reads zeros. */
	CUdeviceptr p;
	uint32_t ramp[64];
	for (uint32_t i = 0; i < 64; i++)
		ramp[i] = 3 * i + 1;
	CU(cuMemAlloc_v2(&p, 256));
	CU(cuMemcpyHtoD_v2(p, ramp, 256));
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_LINEAR, .res.linear = {p, CU_AD_FORMAT_UNSIGNED_INT32, 1, 240}},
		back;
	CU(cuTexObjectCreate(&t, &r, &integers, NULL));
	CU(cuTexObjectGetResourceDesc(&back, t));
	CHECK(back.resType == CU_RESOURCE_TYPE_LINEAR && back.res.linear.devPtr == p && back.res.linear.sizeInBytes == 240);
	run(get(m, "line"), t, 64);
	ramp[60] = ramp[61] = ramp[62] = ramp[63] = 0;
	words("linear memory", ramp, 64);
	CU(cuTexObjectDestroy(t));

	/* Floats in a plane: an array, then pitched memory. */
	CUarray plane;
	float image[8][8], want[64];
	CUDA_ARRAY3D_DESCRIPTOR d = {8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0};
	for (int i = 0; i < 64; i++)
		image[i / 8][i % 8] = (float)(i * i);
	CU(cuArray3DCreate_v2(&plane, &d));
	fill_array(plane, image, 32, 8, 1);
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = plane};
	CU(cuTexObjectCreate(&t, &r, &point, NULL));
	run(get(m, "plane"), t, 64);
	floats("array", &image[0][0], 64);
	CU(cuTexObjectDestroy(t));
	CU(cuTexObjectCreate(&t, &r, &linear, NULL));
	run(get(m, "between"), t, 7);
	for (int i = 0; i < 7; i++)
		want[i] = (image[0][i] + image[0][i + 1]) / 2;
	floats("linear filter", want, 7);
	CU(cuTexObjectDestroy(t));
	CUsurfObject s;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&s, &r)); /* not made for surfaces */
	size_t pitch;
	CUdeviceptr q;
	CU(cuMemAllocPitch_v2(&q, &pitch, 32, 8, 4));
	CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = plane, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = q, .dstPitch = pitch,
	                   .WidthInBytes = 32, .Height = 8};
	CU(cuMemcpy2D_v2(&c));
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_PITCH2D,
		.res.pitch2D = {q, CU_AD_FORMAT_FLOAT, 1, 8, 8, pitch}};
	CU(cuTexObjectCreate(&t, &r, &point, NULL));
	run(get(m, "plane"), t, 64);
	floats("pitched memory", &image[0][0], 64);
	CU(cuTexObjectDestroy(t));

	/* Layers, all of them and a view of some. */
	CUarray layers;
	uint32_t slices[6][2][2] = {{{0}}}, expect[6];
	d = (CUDA_ARRAY3D_DESCRIPTOR){2, 2, 6, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_LAYERED};
	for (uint32_t i = 0; i < 6; i++)
		slices[i][0][0] = expect[i] = 77 + i;
	CU(cuArray3DCreate_v2(&layers, &d));
	fill_array(layers, slices, 8, 2, 6);
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = layers};
	CU(cuTexObjectCreate(&t, &r, &integers, NULL));
	run(get(m, "layer"), t, 6);
	words("layers", expect, 6);
	CU(cuTexObjectDestroy(t));
	CUDA_RESOURCE_VIEW_DESC view = {.width = 2, .height = 2, .firstLayer = 2, .lastLayer = 4}, same;
	CU(cuTexObjectCreate(&t, &r, &integers, &view));
	CU(cuTexObjectGetResourceViewDesc(&same, t));
	CHECK(same.firstLayer == 2 && same.lastLayer == 4);
	run(get(m, "layer"), t, 3);
	words("view of layers", expect + 2, 3);
	CU(cuTexObjectDestroy(t));
	view.lastLayer = 6;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &r, &integers, &view));

	/* Levels. */
	CUmipmappedArray mipmap;
	d = (CUDA_ARRAY3D_DESCRIPTOR){4, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
	CU(cuMipmappedArrayCreate(&mipmap, &d, 3));
	for (unsigned int i = 0; i < 3; i++) {
		float level[16];
		CUarray a;
		for (int j = 0; j < 16; j++)
			level[j] = want[i] = (float)(10 * i + 5);
		CU(cuMipmappedArrayGetLevel(&a, mipmap, i));
		fill_array(a, level, (4u >> i) * 4, 4u >> i, 1);
	}
	CUDA_TEXTURE_DESC normal = point;
	normal.flags = CU_TRSF_NORMALIZED_COORDINATES;
	normal.maxMipmapLevelClamp = 2;
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, .res.mipmap.hMipmappedArray = mipmap};
	CU(cuTexObjectCreate(&t, &r, &normal, NULL));
	run(get(m, "level"), t, 3);
	floats("levels", want, 3);
	CU(cuTexObjectDestroy(t));

	/* A surface, which the host reads back. */
	CUarray canvas;
	uint32_t lines[2][8];
	d = (CUDA_ARRAY3D_DESCRIPTOR){8, 2, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST};
	CU(cuArray3DCreate_v2(&canvas, &d));
	memset(lines, 0, sizeof lines);
	fill_array(canvas, lines, 32, 2, 1);
	CU(cuMemcpyHtoD_v2(out, ramp, 32));
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = canvas};
	CU(cuSurfObjectCreate(&s, &r));
	run(get(m, "paint"), s, 8);
	c = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = canvas, .dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = lines, .WidthInBytes = 32, .Height = 2};
	CU(cuMemcpy2D_v2(&c));
	for (uint32_t i = 0; i < 8; i++)
		CHECK(lines[0][i] == 0 && lines[1][i] == ramp[i] + 1);
	CU(cuSurfObjectDestroy(s));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuSurfObjectDestroy(s));
	CU(cuArrayDestroy(canvas));
	return finish("textures");
}
