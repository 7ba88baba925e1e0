/* What a driver says of kernels: memory, registers and versions, also where the program limits the registers. */
#include "test.h"

static const char head[] = HEAD
	".const .align 4 .b8 constants[80];\n.const .b32 one = 1;\n"
	/* called: 64 bytes of local memory of its own */
	".func (.reg .u32 r) called(.reg .u32 a)\n{\n	.local .align 8 .b8 mine[64];\n	.reg .u64 y, z;\n"
	"	mul.wide.u32 y, a, 4; mov.u64 z, mine; add.u64 y, y, z; st.local.u32 [mine+4], a;\n"
	"	ld.local.u32 r, [y+4];\n	ret;\n}\n"
	".visible .entry memory(.param .u64 p, .param .u32 n)\n{\n" REGS
	"	.local .align 16 .b8 loc[400];\n	.shared .align 4 .b8 sh[100];\n"
	"	ld.param.u64 %d0, [p]; ld.param.u32 %r0, [n]; and.b32 %r1, %r0, 15; mul.wide.u32 %d1, %r1, 4;\n"
	"	mov.u64 %d2, loc; add.u64 %d2, %d2, %d1; st.local.u32 [%d2], %r0; ld.local.u32 %r2, [loc+8];\n"
	"	mov.u64 %d3, constants; add.u64 %d3, %d3, %d1; ld.const.u32 %r3, [%d3]; add.u32 %r2, %r2, %r3;\n"
	"	st.shared.u32 [sh+8], %r2; st.global.u32 [%d0], %r2;\n	ret;\n}\n"
	".visible .entry calls(.param .u64 p)\n{\n	.reg .b64 d;\n	.reg .u32 a, b;\n"
	"	ld.param.u64 d, [p]; ld.global.u32 a, [d]; call (b), called, (a); st.global.u32 [d], b;\n	ret;\n}\n";

static char text[40000];

/* A kernel that loads 150 words before it uses any. */
static void add_kernel(const char *name, const char *directive)
{
	char *p = text + strlen(text), *end = text + sizeof text;
	p += snprintf(p, (size_t)(end - p),
	              ".visible .entry %s(.param .u64 p) %s\n{\n"
	              "	.reg .b64 d; .reg .b32 %%r<150>; ld.param.u64 d, [p];\n",
	              name, directive);
	for (int i = 0; i < 150; i++)
		p += snprintf(p, (size_t)(end - p), "	ld.volatile.global.u32 %%r%d, [d+%d];\n", i, 4 * i);
	for (int i = 0; i < 150; i++)
		p += snprintf(p, (size_t)(end - p), "	st.volatile.global.u32 [d+%d], %%r%d;\n", 4 * i, 149 - i);
	snprintf(p, (size_t)(end - p), "	ret;\n}\n");
}

static int attribute(CUmodule m, const char *name, CUfunction_attribute which)
{
	int v = -1;
	CU(cuFuncGetAttribute(&v, which, function(m, name)));
	return v;
}

static int registers(CUmodule m, const char *name) { return attribute(m, name, CU_FUNC_ATTRIBUTE_NUM_REGS); }

/* The module, with at most so many registers; what the compiler says goes to log. */
static CUmodule limited(unsigned most, char *log, size_t room)
{
	CUmodule m;
	CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS};
	void *values[] = {log, (void *)room, (void *)(uintptr_t)most};
	CU(cuModuleLoadDataEx(&m, text, 3, options, values));
	CHECK((size_t)values[1] == strlen(log));
	return m;
}

int main(void)
{
	start(NULL);
	strcpy(text, head);
	add_kernel("many", ".maxntid 128, 1, 1");
	add_kernel("few", ".maxnreg 40");
	char log[1000];
	CUmodule m;
	CU(cuModuleLoadData(&m, text));
	CHECK(attribute(m, "memory", CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES) == 84);
	CHECK(attribute(m, "many", CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES) == 84); /* of the module, used or not */
	CHECK(attribute(m, "memory", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) == 400);
	CHECK(attribute(m, "calls", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) == 64);
	CHECK(attribute(m, "many", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) == 0);
	CHECK(attribute(m, "memory", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) == 100);
	CHECK(attribute(m, "memory", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) == 49152 - 100);
	CHECK(attribute(m, "memory", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 1024);
	CHECK(attribute(m, "many", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 128);
	CHECK(attribute(m, "memory", CU_FUNC_ATTRIBUTE_PTX_VERSION) == 70);
	CHECK(registers(m, "few") > 0 && registers(m, "few") <= 40);
	CHECK(registers(m, "many") > 100);

	m = limited(38, log, sizeof log);
	CHECK(registers(m, "many") > 0 && registers(m, "many") <= 38);
	CHECK(strcmp(log, "") == 0);
	m = limited(8, log, sizeof log);
	CHECK(registers(m, "many") <= 24);
	CHECK(strstr(log, "adjusting per thread register count of 8 to lower bound of 24"));
	m = limited(8, log, 20);
	CHECK(strlen(log) < 20);
	CU(cuModuleLoadData(&m, text)); /* without a limit again */
	CHECK(registers(m, "many") > 100);

	/* a limit of what is linked */
	CUlinkState link;
	void *image;
	size_t size;
	CUjit_option option = CU_JIT_MAX_REGISTERS;
	CU(cuLinkCreate_v2(1, &option, (void *[]){(void *)38}, &link));
	CU(cuLinkAddData_v2(link, 1 /* PTX */, (void *)(uintptr_t)text, strlen(text) + 1, "text", 0, NULL, NULL));
	CU(cuLinkComplete(link, &image, &size));
	CU(cuModuleLoadData(&m, image));
	CU(cuLinkDestroy(link));
	CHECK(registers(m, "many") > 0 && registers(m, "many") <= 38);
	CHECK(registers(m, "few") <= 40);
	CHECK(attribute(m, "memory", CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES) == 84);
	return finish("attributes");
}
