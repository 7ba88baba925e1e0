/*
 * Local memory. A context reserves its stack size for every thread that the device can hold at once: 1 KiB each is 230
 * MiB on an H200, which the driver's checkpoint would copy into the process for CRIU to write. Nothing runs and nothing
 * can be launched between RELEASE and MAPPED, so the reservation shrinks meanwhile and is made again before the gate
 * opens.
 */
#include "shim.h"

enum { LIMIT_STACK_SIZE = 0 /* CU_LIMIT_STACK_SIZE */, SMALL = 128, MOST = 64 };

static struct { void *ctx; size_t size; } shrunk[MOST];
static size_t nshrunk; /* control thread only */

/* Best effort: a context that keeps its reservation only takes longer to checkpoint. */
void hf_stacks_shrink(void)
{
	struct hf_ctx list[MOST];
	size_t n = hf_contexts(list, MOST);
	for (size_t i = 0; i < n && nshrunk < MOST; i++) {
		size_t size = 0;
		if (!hf_push(list[i].ctx))
			continue;
		if (real_cuCtxGetLimit(&size, LIMIT_STACK_SIZE) == CUDA_SUCCESS && size > SMALL &&
			real_cuCtxSetLimit(LIMIT_STACK_SIZE, SMALL) == CUDA_SUCCESS) {
			shrunk[nshrunk].ctx = list[i].ctx;
			shrunk[nshrunk++].size = size;
		}
		hf_pop();
	}
}

/* Must succeed before anything is launched; may be repeated. */
CUresult hf_stacks_restore(void)
{
	while (nshrunk) {
		if (!hf_push(shrunk[nshrunk - 1].ctx))
			return CUDA_ERROR_INVALID_CONTEXT;
		CUresult r = real_cuCtxSetLimit(LIMIT_STACK_SIZE, shrunk[nshrunk - 1].size);
		hf_pop();
		if (r != CUDA_SUCCESS)
			return r;
		nshrunk--;
	}
	return CUDA_SUCCESS;
}
