/* Several contexts, their stacks, streams between them, priorities. */
#include "test.h"

enum { N = 5000 };

int main(void)
{
	CUdevice dev;
	CUcontext a = start(&dev), b, top;
	CUfunction fa = function(load(), "fill");
	CUstream sa[4], sb;
	CUdeviceptr pa, pb;
	CU(cuMemAlloc_v2(&pa, 4 * N * 4));
	for (int i = 0; i < 4; i++)
		CU(cuStreamCreateWithPriority(&sa[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT, 0));
	CU(cuCtxCreate_v2(&b, 0, dev));
	CU(cuCtxGetCurrent(&top));
	CHECK(top == b);
	CUfunction fb = function(load(), "fill");
	CU(cuMemAlloc_v2(&pb, N * 4));
	CU(cuStreamCreate(&sb, CU_STREAM_DEFAULT));
	fill(fb, pb, N, 900, sb);
	CU(cuCtxPopCurrent_v2(&top));
	CHECK(top == b);
	CU(cuCtxGetCurrent(&top));
	CHECK(top == a);
	for (uint32_t i = 0; i < 4; i++)
		fill(fa, pa + i * N * 4, N, 100 * i, sa[i]);
	CU(cuCtxSynchronize());
	for (uint32_t i = 0; i < 4; i++) {
		CU(cuStreamQuery(sa[i]));
		check_words(pa + i * N * 4, N, 100 * i, "stream");
	}

	/* a copy in a, ordered behind b's stream by an event */
	CUevent e;
	CU(cuCtxPushCurrent_v2(b));
	CU(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	fill(fb, pb, N, 901, sb);
	CU(cuEventRecord(e, sb));
	CU(cuCtxPopCurrent_v2(&top));
	CU(cuStreamWaitEvent(sa[1], e, 0));
	CU(cuMemcpyDtoDAsync_v2(pa, pb, N * 4, sa[1]));
	CU(cuStreamSynchronize(sa[1]));
	check_words(pa, N, 901, "over two contexts");

	CUcontext of;
	unsigned flags;
	int priority, least, greatest;
	CU(cuStreamGetCtx(sb, &of));
	CHECK(of == b);
	CU(cuStreamGetFlags(sa[1], &flags));
	CHECK(flags == CU_STREAM_NON_BLOCKING);
	CU(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(least >= greatest);
	CU(cuStreamGetPriority(sa[0], &priority));
	CHECK(priority == 0);
	CUdevice d;
	CU(cuCtxGetDevice(&d));
	CHECK(d == dev);
	unsigned long long ida, idb;
	CU(cuCtxGetId(a, &ida));
	CU(cuCtxGetId(b, &idb));
	CHECK(ida != idb);
	unsigned version;
	CU(cuCtxGetApiVersion(a, &version));
	size_t limit;
	CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	CU(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
	CHECK(limit >= 4096);
	CU(cuCtxDestroy_v2(b));
	CU(cuStreamQuery(sa[0])); /* a lives on */
	CU(cuCtxDestroy_v2(a));
	CU(cuCtxGetCurrent(&top));
	CHECK(top == NULL);
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&pa, 100));
	return finish("contexts");
}
