/* The two functions of NVTX that the examples use, by NVTX's protocol: the library that NVTX_INJECTION64_PATH names
 * may replace them. Real programs include nvtx3/nvToolsExt.h (https://github.com/NVIDIA/NVTX), whose
 * nvtxDetail/nvtxTypes.h and nvtxInit.h describe that. */
#ifndef NVTX_H
#define NVTX_H
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static void (*nvtx_push)(void), (*nvtx_pop)(void);

/* Module 1 (core): of its functions, 9 is RangePushA, 11 RangePop. */
static int nvtx_table(int module, void (****out)(void), unsigned *n)
{
	static void (**core[12])(void);
	core[9] = &nvtx_push;
	core[11] = &nvtx_pop;
	*out = core;
	*n = 12;
	return module == 1;
}

static const void *nvtx_export(uint32_t id)
{
	static const struct { size_t size; int (*table)(int, void (****)(void),
		unsigned *); } callbacks = {sizeof callbacks, nvtx_table};
	return id == 1 ? &callbacks : NULL;
}

static void nvtx_init(void)
{
	static int done;
	const char *path = getenv("NVTX_INJECTION64_PATH");
	void *lib = done++ || !path ? NULL : dlopen(path, RTLD_LAZY);
	int (*init)(const void *(*)(uint32_t)) = lib ? (int (*)(const void *(*)(uint32_t)))dlsym(lib,
		"InitializeInjectionNvtx2") : NULL;
	if (init)
		init(nvtx_export);
}

static inline int nvtxRangePushA(const char *message)
{
	nvtx_init();
	return nvtx_push ? ((int (*)(const char *))nvtx_push)(message) : -2;
}

static inline int nvtxRangePop(void) { return nvtx_pop ? ((int (*)(void))nvtx_pop)() : -2; }
#endif
