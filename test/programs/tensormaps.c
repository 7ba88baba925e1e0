/* Tensor maps: a box of a matrix comes through a bulk copy, swizzled or not, and with another address. */
#include "test.h"

/* take: 8 × 8 words of the box at (x, y) to out, as they lie in shared memory. */
static const char source[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
	".visible .entry take(.param .u64 out, .param .align 64 .b8 map[128], .param .u32 x, .param .u32 y)\n{\n"
	"	.reg .b32 %r<16>; .reg .b64 %d<8>; .reg .pred %p<4>;\n"
	"	.shared .align 8 .b64 bar; .shared .align 256 .b8 tile[256];\n"
	"	ld.param.u64 %d0, [out]; ld.param.u32 %r0, [x]; ld.param.u32 %r1, [y]; mov.b64 %d1, map; "
	"cvta.param.u64 %d1, %d1;\n"
	"	mov.u32 %r2, bar; mov.u32 %r3, tile; mov.u32 %r4, %tid.x; setp.ne.u32 %p0, %r4, 0;\n"
	"	@%p0 bra WAIT0;\n"
	"	mbarrier.init.shared.b64 [%r2], 1;\n	fence.proxy.async;\n"
	"	mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;\n"
	"	cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%d1, {%r0, %r1}], "
	"[%r2];\n"
	"WAIT0:\n	bar.sync 0;\n"
	"WAIT:\n	mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;\n	@!%p1 bra WAIT;\n"
	"	shl.b32 %r5, %r4, 2; add.u32 %r6, %r3, %r5; ld.shared.u32 %r7, [%r6];\n"
	"	mul.wide.u32 %d2, %r4, 4; add.u64 %d3, %d0, %d2; st.global.u32 [%d3], %r7;\n	ret;\n}\n"
	/* gather: 8 places of 4 channels, from place x of image 0 on */
	".visible .entry gather(.param .u64 out, .param .align 64 .b8 map[128], .param .u32 x)\n{\n"
	"	.reg .b16 %h<2>; .reg .b32 %r<16>; .reg .b64 %d<8>; .reg .pred %p<4>;\n"
	"	.shared .align 8 .b64 bar; .shared .align 128 .b8 tile[128];\n"
	"	ld.param.u64 %d0, [out]; ld.param.u32 %r0, [x]; mov.b64 %d1, map; cvta.param.u64 %d1, %d1; mov.u32 %r1, 0; "
	"mov.b16 %h0, 0;\n"
	"	mov.u32 %r2, bar; mov.u32 %r3, tile; mov.u32 %r4, %tid.x; setp.ne.u32 %p0, %r4, 0;\n"
	"	@%p0 bra WAIT0;\n"
	"	mbarrier.init.shared.b64 [%r2], 1;\n	fence.proxy.async;\n"
	"	mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128;\n"
	"	cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r3], [%d1, {%r1, %r0, "
	"%r1}], [%r2], {%h0};\n"
	"WAIT0:\n	bar.sync 0;\n"
	"WAIT:\n	mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;\n	@!%p1 bra WAIT;\n"
	"	shl.b32 %r5, %r4, 2; add.u32 %r6, %r3, %r5; ld.shared.u32 %r7, [%r6];\n"
	"	mul.wide.u32 %d2, %r4, 4; add.u64 %d3, %d0, %d2; st.global.u32 [%d3], %r7;\n	ret;\n}\n";

enum { N = 40, UINT32 = 2 };

static void check(CUfunction take, CUtensorMap *map, CUdeviceptr out, uint32_t x, uint32_t y, uint32_t add,
		bool swizzled, const char *what)
{
	uint32_t h[64];
	void *params[] = {&out, map, &x, &y};
	CU(cuLaunchKernel(take, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	CU(cuMemcpyDtoH_v2(h, out, sizeof h));
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t at = swizzled ? i ^ (i >> 5 & 1) << 2 : i; /* rows of 32 bytes: bit 4 of the address with bit 7 */
		uint32_t c = x + i % 8, r = y + i / 8, want = c < N && r < N ? r * N + c + add : 0;
		if (h[at] != want)
			FAIL("%s: word %u is %u, want %u", what, at, h[at], want);
	}
}

int main(void)
{
	CUdeviceptr a, b, out;
	CUmodule m;
	CUdevice dev;
	int major;
	start(&dev);
	CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev));
	if (major < 9)
		return finish("tensormaps");
	CU(cuModuleLoadData(&m, source));
	CUfunction take = function(m, "take");
	uint32_t h[N * N];
	CU(cuMemAlloc_v2(&a, sizeof h));
	CU(cuMemAlloc_v2(&b, sizeof h));
	CU(cuMemAlloc_v2(&out, 256));
	for (uint32_t i = 0; i < N * N; i++)
		h[i] = i;
	CU(cuMemcpyHtoD_v2(a, h, sizeof h));
	for (uint32_t i = 0; i < N * N; i++)
		h[i] += 5000;
	CU(cuMemcpyHtoD_v2(b, h, sizeof h));

	CUtensorMap map;
	cuuint64_t dim[] = {N, N}, stride[] = {N * 4};
	cuuint32_t box[] = {8, 8}, steps[] = {1, 1};
#define ENCODE(swizzle) cuTensorMapEncodeTiled(&map, UINT32, 2, (void *)(uintptr_t)a, dim, stride, box, steps, \
	0, swizzle, 0, 0)
	CU(ENCODE(0));
	check(take, &map, out, 0, 0, 0, false, "corner");
	check(take, &map, out, 12, 20, 0, false, "middle");
	check(take, &map, out, 36, 35, 0, false, "edge");
	CU(cuTensorMapReplaceAddress(&map, (void *)(uintptr_t)b));
	check(take, &map, out, 12, 20, 5000, false, "other address");
	CU(ENCODE(1));
	check(take, &map, out, 4, 3, 0, true, "swizzled");

	stride[0] = N * 4 + 4;
	EXPECT(CUDA_ERROR_INVALID_VALUE, ENCODE(0));
	stride[0] = N * 4;
	box[0] = 257;
	EXPECT(CUDA_ERROR_INVALID_VALUE, ENCODE(0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTensorMapEncodeTiled(&map, UINT32, 6, (void *)(uintptr_t)a, dim, stride, box,
		steps, 0, 0, 0, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTensorMapEncodeTiled(NULL, UINT32, 2, (void *)(uintptr_t)a, dim, stride, box,
		steps, 0, 0, 0, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&map, (void *)(uintptr_t)(a + 4)));

	/* Two images of 16 places with 4 channels: the walk goes on in the next image. */
	cuuint64_t images[] = {4, 16, 2}, image_strides[] = {16, 256};
	cuuint32_t image_steps[] = {1, 1, 1};
	int lower[] = {0}, upper[] = {0};
	CU(cuTensorMapEncodeIm2col(&map, UINT32, 3, (void *)(uintptr_t)a, images, image_strides, lower, upper, 4, 8,
		image_steps, 0, 0, 0, 0));
	uint32_t x = 12, got[32];
	void *params[] = {&out, &map, &x};
	CU(cuLaunchKernel(function(m, "gather"), 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
	CU(cuMemcpyDtoH_v2(got, out, sizeof got));
	for (uint32_t i = 0; i < 32; i++)
		CHECK(got[i] == 12 * 4 + i); /* place 12 to 15 of the one, 0 to 3 of the other */
	EXPECT(CUDA_ERROR_INVALID_VALUE,
	       cuTensorMapEncodeIm2col(&map, UINT32, 3, (void *)(uintptr_t)a, images, image_strides, lower, upper, 300, 8,
	       image_steps, 0, 0, 0, 0));
	return finish("tensormaps");
}
