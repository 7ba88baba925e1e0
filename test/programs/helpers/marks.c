/* marks MODE: marks a range "holdfast" in one of the ways that NVTX has, by NVTX's protocol (nvtxDetail/nvtxTypes.h of
 * https://github.com/NVIDIA/NVTX), and copies 8 bytes to the device and back within it. Prints them. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CORE = 1, CORE2 = 5, ENTRIES = 16 };
static void (*core[ENTRIES])(void), (*core2[ENTRIES])(void);
static void (**core_table[ENTRIES])(void), (**core2_table[ENTRIES])(void);

static int table(int module, void (****out)(void), unsigned *n)
{
	for (int i = 1; i < ENTRIES; i++) {
		core_table[i] = &core[i];
		core2_table[i] = &core2[i];
	}
	*out = module == CORE2 ? core2_table : core_table;
	*n = ENTRIES;
	return module == CORE || module == CORE2;
}

static const void *export(uint32_t id)
{
	static const struct callbacks { size_t size; int (*table)(int, void (****)(void), unsigned *); } callbacks = {
		sizeof callbacks, table,
	};
	return id == 1 ? &callbacks : NULL;
}

struct attributes { /* nvtxEventAttributes_v2 */
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type, reserved1;
	const void *message;
};

#define CALL(table, i, type, ...) ((type)table[i])(__VA_ARGS__)
typedef int (*push_a)(const char *);
typedef int (*push_w)(const void *);
typedef int (*push_ex)(const struct attributes *);
typedef int (*pop)(void);
typedef uint64_t (*start_a)(const char *);
typedef void (*end)(uint64_t);
typedef int (*domain_push)(void *, const struct attributes *);
typedef int (*domain_pop)(void *);
typedef void *(*named)(void *, const char *);
typedef void *(*create)(const char *);

static CUdeviceptr p;

CUresult cuTexObjectCreate(unsigned long long *object, const void *resource, const void *texture, const void *view);

/* A texture of the 8 bytes. */
static void texture(void)
{
	unsigned long long object;
	struct { int type; CUdeviceptr p; int format; unsigned channels; size_t bytes; int rest[32]; } resource = {0};
	char description[128] = "";
	resource.type = 2; /* CU_RESOURCE_TYPE_LINEAR */
	resource.p = p;
	resource.format = 1; /* CU_AD_FORMAT_UNSIGNED_INT8 */
	resource.channels = 1;
	resource.bytes = 8;
	if (cuTexObjectCreate(&object, &resource, description, NULL))
		exit(4);
}


CUresult cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream stream), cuMemFreeAsync(CUdeviceptr p, CUstream stream),
	cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
static CUstream stream;
static CUgraphExec exec;

/* A graph that turns the two halves of the 8 bytes round, by way of memory that it allocates; or with a single node
 * that copies the first half over the second. */
static void capture(int memory)
{
	CUdeviceptr m;
	CUgraph graph;
	if (cuStreamCreate(&stream, 1) || cuStreamBeginCapture(stream, 2) ||
	    (memory && (cuMemAllocAsync(&m, 3 << 20, stream) || cuMemcpyDtoDAsync_v2(m, p, 8, stream) ||
	     cuMemcpyDtoDAsync_v2(p, m + 4, 4, stream) || cuMemcpyDtoDAsync_v2(p + 4, m, 4, stream) ||
	     cuMemFreeAsync(m, stream))) ||
	    (!memory && cuMemcpyDtoDAsync_v2(p + 4, p, 4, stream)) ||
	    cuStreamEndCapture(stream, &graph) || cuGraphInstantiate(&exec, graph, 0))
		exit(5);
}

static void setup(void)
{
	CUdevice dev;
	CUcontext ctx;
	if (cuInit(0) || cuDeviceGet(&dev, 0) || cuCtxCreate(&ctx, 0, dev) || cuMemAlloc(&p, 8))
		exit(1);
}

static void work(const char *text)
{
	char back[9] = "";
	if (cuMemcpyHtoD(p, text, 8) || (exec && (cuGraphLaunch(exec, stream) || cuStreamSynchronize(stream))) ||
	    cuMemcpyDtoH(back, p, 8))
		exit(1);
	printf("%s\n", back);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	void *lib = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_LAZY);
	int (*init)(const void *(*)(uint32_t)) = NULL;
	if (lib)
		init = (int (*)(const void *(*)(uint32_t)))dlsym(lib, "InitializeInjectionNvtx2");
	struct attributes a = {.version = 3, .size = sizeof a, .message_type = 1, .message = "holdfast"};
	if (!init || !init(export))
		return 2;
	if (strcmp(mode, "before"))
		setup();
	if (!strcmp(mode, "before")) { /* the range begins before there is a device */
		CALL(core, 9, push_a, "holdfast");
		setup();
		work("beforeit");
		CALL(core, 11, pop);
	} else if (!strcmp(mode, "start")) {
		uint64_t other = CALL(core, 5, start_a, "other"), id = CALL(core, 5, start_a, "holdfast");
		CALL(core, 7, end, other); /* which is not ours */
		work("startend");
		CALL(core, 7, end, id);
		work("tooolate");
	} else if (!strcmp(mode, "attributes")) {
		CALL(core, 8, push_ex, &a);
		work("attribut");
		CALL(core, 11, pop);
	} else if (!strcmp(mode, "nested")) {
		int levels = CALL(core, 10, push_w, L"holdfast"); /* a wide name is not ours */
		levels += CALL(core, 9, push_a, "outer");
		levels += CALL(core, 9, push_a, "holdfast");
		levels += CALL(core, 9, push_a, "inner");
		CALL(core, 11, pop);
		work("nestedin");
		levels += CALL(core, 11, pop);
		if (levels != 0 + 1 + 2 + 3 + 2)
			return 3;
		work("tooolate");
	} else if (!strcmp(mode, "registered")) { /* in the default domain, as Python's nvtx does it */
		a.message_type = 3;
		a.message = CALL(core2, 10, named, NULL, "holdfast");
		CALL(core2, 4, domain_push, NULL, &a);
		work("register");
		CALL(core2, 5, domain_pop, NULL);
	} else if (!strcmp(mode, "domain")) { /* another domain's ranges are not ours, and its pops do not end ours */
		void *domain = CALL(core2, 12, create, "mine");
		CALL(core, 9, push_a, "holdfast");
		CALL(core2, 4, domain_push, domain, &a);
		CALL(core2, 5, domain_pop, domain);
		work("twodomai");
		CALL(core, 11, pop);
	} else if (!strcmp(mode, "other")) { /* only another domain has it */
		void *domain = CALL(core2, 12, create, "mine");
		CALL(core2, 4, domain_push, domain, &a);
		work("otherone");
		CALL(core2, 5, domain_pop, domain);
	} else if (!strcmp(mode, "texture") || !strcmp(mode, "texture within")) {
		if (!strcmp(mode, "texture"))
			texture();
		CALL(core, 9, push_a, "holdfast");
		if (strcmp(mode, "texture"))
			texture();
		work("textures");
		CALL(core, 11, pop);
	} else if (!strcmp(mode, "single") || !strcmp(mode, "memory")) {
		capture(!strcmp(mode, "memory"));
		CALL(core, 9, push_a, "holdfast");
		work("twohalfs");
		CALL(core, 11, pop);
	} else if (!strcmp(mode, "open")) {
		CALL(core, 9, push_a, "holdfast");
		work("openones");
	} else
		return 2;
	return 0;
}
