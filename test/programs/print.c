/* What a kernel prints stands on the program's own standard output, before what the program prints after
 * synchronising. */
#include "test.h"

static const char source[] = HEAD
	".extern .func (.param .b32 r) vprintf (.param .b64 format, .param .b64 list);\n"
	/* "hello %d %.2f\n" */
	".global .align 1 .b8 text[15] = {104, 101, 108, 108, 111, 32, 37, 100, 32, 37, 46, 50, 102, 10, 0};\n"
	".visible .entry hello()\n{\n" REGS
	"	.local .align 8 .b8 list[16]; .reg .f64 %g<2>;\n"
	"	mov.u64 %d0, list; cvta.local.u64 %d1, %d0;\n"
	"	mov.u32 %r0, %tid.x; st.local.u32 [%d0], %r0; mov.f64 %g0, 0d3ff8000000000000; st.local.f64 [%d0+8], %g0;\n"
	"	mov.u64 %d2, text; cvta.global.u64 %d3, %d2;\n"
	"	{ .param .b64 p0; .param .b64 p1; .param .b32 ret;\n"
	"	st.param.b64 [p0], %d3; st.param.b64 [p1], %d1;\n"
	"	call.uni (ret), vprintf, (p0, p1); }\n	ret;\n}\n";

int main(void)
{
	CUcontext ctx = start(NULL);
	CUmodule m;
	CU(cuModuleLoadData(&m, source));
	CU(cuLaunchKernel(function(m, "hello"), 1, 1, 1, 3, 1, 1, 0, NULL, NULL, NULL));
	CU(cuCtxSynchronize());
	printf("and then\n");
	CU(cuCtxDestroy_v2(ctx));
	return finish("print");
}
