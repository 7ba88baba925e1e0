/* Modules linked from pieces: functions and variables of one are used by another, names that both keep to themselves do
 * not clash. */
#include "test.h"

static const char library_text[] = HEAD
	".visible .global .align 4 .u32 shared_counter = 100;\n"
	".global .align 4 .u32 own = 1000;\n"
	".visible .func (.param .b32 out) triple(.param .b32 x)\n{\n	.reg .b32 %r<4>; .reg .b64 %d<2>;\n"
	"	ld.param.b32 %r0, [x]; mul.lo.u32 %r1, %r0, 3; ld.global.u32 %r2, [own]; add.u32 %r1, %r1, %r2; "
	"st.param.b32 [out], %r1;\n	ret;\n}\n"
	".weak .func (.param .b32 out) either()\n{\n	st.param.b32 [out], 1;\n	ret;\n}\n";
static const char program_text[] = HEAD
	".extern .global .align 4 .u32 shared_counter;\n"
	".global .align 4 .u32 own = 7;\n"
	".extern .func (.param .b32 out) triple(.param .b32 x);\n"
	".weak .func (.param .b32 out) either()\n{\n	st.param.b32 [out], 2;\n	ret;\n}\n"
	".visible .entry run(.param .u64 p)\n{\n" REGS
	"	ld.param.u64 %d0, [p]; ld.global.u32 %r0, [own];\n"
	"	{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r0; call (b), triple, (a); ld.param.b32 %r1, [b]; }\n"
	"	{ .param .b32 b; call (b), either; ld.param.b32 %r3, [b]; }\n"
	"	ld.global.u32 %r2, [shared_counter]; add.u32 %r2, %r2, 1; st.global.u32 [shared_counter], %r2;\n"
	"	st.global.u32 [%d0], %r1; st.global.u32 [%d0+4], %r2; st.global.u32 [%d0+8], %r3;\n	ret;\n}\n";

enum { PTX = 1 };

int main(void)
{
	CUlinkState link;
	void *image;
	size_t size;
	char log[512] = "";
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)sizeof log};
	start(NULL);
	CU(cuLinkCreate_v2(2, options, values, &link));
	CU(cuLinkAddData_v2(link, PTX, (void *)library_text, sizeof library_text, "library", 0, NULL, NULL));
	char path[] = "/tmp/holdfast-link-XXXXXX";
	int fd = mkstemp(path);
	CHECK(fd >= 0 && write(fd, program_text, sizeof program_text - 1) == sizeof program_text - 1);
	close(fd);
	CU(cuLinkAddFile_v2(link, PTX, path, 0, NULL, NULL));
	unlink(path);
	CU(cuLinkComplete(link, &image, &size));
	CUmodule m;
	CU(cuModuleLoadData(&m, image));
	CU(cuLinkDestroy(link));

	CUdeviceptr p, counter;
	size_t bytes;
	uint32_t h[3];
	CU(cuMemAlloc_v2(&p, sizeof h));
	void *params[] = {&p};
	CU(cuLaunchKernel(function(m, "run"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuMemcpyDtoH_v2(h, p, sizeof h));
	CHECK(h[0] == 7 * 3 + 1000 && h[1] == 101 && (h[2] == 1 || h[2] == 2));
	CU(cuModuleGetGlobal_v2(&counter, &bytes, m, "shared_counter"));
	CU(cuMemcpyDtoH_v2(h, counter, 4));
	CHECK(bytes == 4 && h[0] == 101);

	/* A symbol that nobody has, and a piece that is no PTX. */
	values[1] = (void *)sizeof log;
	CU(cuLinkCreate_v2(2, options, values, &link));
	EXPECT(CUDA_ERROR_INVALID_PTX, cuLinkAddData_v2(link, PTX, (void *)"nonsense", 9, "bad", 0, NULL, NULL));
	CHECK(strstr(log, "bad:1") != NULL && (size_t)(uintptr_t)values[1] >= strlen(log));
	CU(cuLinkAddData_v2(link, PTX, (void *)program_text, sizeof program_text, "program", 0, NULL, NULL));
	CHECK(cuLinkComplete(link, &image, &size) != CUDA_SUCCESS);
	CHECK(strstr(log, "shared_counter") != NULL);
	CU(cuLinkDestroy(link));
	return finish("links");
}
