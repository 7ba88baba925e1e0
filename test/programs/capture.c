/* Stream capture: over two streams, what it forbids, what it tells, replay. */
#include "test.h"

enum { N = 4096 };

int main(void)
{
	CUcontext ctx = start(NULL);
	CUmodule m = load();
	CUfunction f_fill = function(m, "fill"), f_inc = function(m, "inc");
	CUstream s, t;
	CUevent fork_e, join_e;
	CUgraph g, during;
	CUgraphExec x;
	CUdeviceptr a, b;
	CUstreamCaptureStatus status;
	cuuint64_t id, id2;
	const CUgraphNode *deps;
	size_t n;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&fork_e, CU_EVENT_DISABLE_TIMING));
	CU(cuEventCreate(&join_e, CU_EVENT_DISABLE_TIMING));
	CU(cuMemAlloc_v2(&a, N * 4));
	CU(cuMemAlloc_v2(&b, N * 4));
	fill(f_fill, a, N, 0, s);
	fill(f_fill, b, N, 0, s);
	CU(cuStreamSynchronize(s));
	CU(cuStreamIsCapturing(s, &status));
	CHECK(status == 0);

	CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CU(cuStreamIsCapturing(s, &status));
	CHECK(status == 1);
	inc(f_inc, a, N, s);
	CU(cuStreamGetCaptureInfo_v2(s, &status, &id, &during, &deps, &n));
	CHECK(status == 1 && id != 0 && during && n == 1 && deps);
	CUgraphNodeType type;
	CU(cuGraphNodeGetType(deps[0], &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_KERNEL);
	CU(cuEventRecord(fork_e, s));
	CU(cuStreamWaitEvent(t, fork_e, 0));
	CU(cuStreamGetCaptureInfo(t, &status, &id2));
	CHECK(status == 1 && id2 == id);
	inc(f_inc, b, N, t);
	CU(cuMemcpyDtoDAsync_v2(b, a, 4, t));
	CU(cuEventRecord(join_e, t));
	inc(f_inc, a, N, s);
	CU(cuStreamWaitEvent(s, join_e, 0));
	CU(cuMemsetD32Async(a, 99, 1, s));
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphGetNodes(g, NULL, &n));
	CHECK(n == 5);
	size_t edges;
	CU(cuGraphGetEdges(g, NULL, NULL, &edges));
	CHECK(edges == 5); /* a→b, b→copy, a→a', a'→set, copy→set */
	check_words(a, N, 0, "captured work has not run");
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	for (int i = 0; i < 3; i++)
		CU(cuGraphLaunch(x, s));
	CU(cuStreamSynchronize(s));
	uint32_t h[2];
	CU(cuMemcpyDtoH_v2(h, a, 8));
	CHECK(h[0] == 99 && h[1] == 1 + 6);
	check_words(a + 4, N - 1, 7, "replayed");
	check_words(b + 4, N - 1, 4, "replayed on the second stream");

	/* what breaks a capture */
	CUgraph broken = NULL;
	CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &broken));
	CHECK(broken == NULL);
	EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &broken));
	CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cuEventRecord(fork_e, s));
	CU(cuStreamWaitEvent(t, fork_e, 0));
	inc(f_inc, b, N, t);
	EXPECT(904 /* unjoined */, cuStreamEndCapture(s, &broken));
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));

	/* into a graph that is there, behind a node of it */
	CUgraphNode first;
	CUdeviceptr p = b;
	uint32_t words = N, v = 50;
	void *params[] = {&p, &words, &v};
	CUDA_KERNEL_NODE_PARAMS k = {.func = function(m, "fill"), (N + 127) / 128, 1, 1, 128, 1, 1, 0, params, NULL, NULL,
		NULL};
	CU(cuGraphCreate(&g, 0));
	CU(cuGraphAddKernelNode_v2(&first, g, NULL, 0, &k));
	CU(cuStreamBeginCaptureToGraph(s, g, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
	inc(f_inc, b, N, s);
	CU(cuStreamEndCapture(s, &broken));
	CHECK(broken == g);
	size_t nodes = 0;
	CU(cuGraphGetNodes(g, NULL, &nodes));
	CHECK(nodes == 2);
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	CU(cuGraphLaunch(x, s));
	CU(cuStreamSynchronize(s));
	check_words(b, N, 51, "captured behind a node");
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));
	CU(cuCtxDestroy_v2(ctx));
	return finish("capture");
}
