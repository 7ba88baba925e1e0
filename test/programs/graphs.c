/* Graphs built node by node: every kind served, edges, clones, children, parameters, update of an executable graph. */
#include "test.h"

enum { N = 2048 };
static uint32_t seen[N];
static void read_back(void *p) { memcpy(seen, p, sizeof seen); }

int main(void)
{
	CUcontext ctx = start(NULL);
	CUmodule m = load();
	CUfunction f_fill = function(m, "fill"), f_inc = function(m, "inc");
	CUstream s;
	CUdeviceptr a, b;
	uint32_t *host;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&a, N * 4));
	CU(cuMemAlloc_v2(&b, N * 4));
	CU(cuMemAllocHost_v2((void **)&host, N * 4));

	/* set → fill → copy → inc → out → read */
	CUgraph g;
	CUgraphNode set, kfill, copy, kinc, out, call, empty;
	CU(cuGraphCreate(&g, 0));
	CUDA_MEMSET_NODE_PARAMS ms = {.dst = a, .value = 0xff, .elementSize = 1, .width = N * 4, .height = 1};
	CU(cuGraphAddMemsetNode(&set, g, NULL, 0, &ms, ctx));
	uint32_t n = N, v = 100;
	void *fill_args[] = {&a, &n, &v}, *inc_args[] = {&b, &n};
	CUDA_KERNEL_NODE_PARAMS kp = {.func = f_fill, .gridDimX = N / 128, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128,
		.blockDimY = 1, .blockDimZ = 1,
	                              .kernelParams = fill_args};
	CU(cuGraphAddKernelNode_v2(&kfill, g, &set, 1, &kp));
	CUDA_MEMCPY3D cp = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = b,
	                    .WidthInBytes = N * 4, .Height = 1, .Depth = 1};
	CU(cuGraphAddMemcpyNode(&copy, g, &kfill, 1, &cp, ctx));
	kp.func = f_inc;
	kp.kernelParams = inc_args;
	CU(cuGraphAddKernelNode_v2(&kinc, g, NULL, 0, &kp));
	CU(cuGraphAddDependencies(g, &copy, &kinc, 1));
	CUDA_MEMCPY3D op = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = b, .dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = host,
	                    .WidthInBytes = N * 4, .Height = 1, .Depth = 1};
	CU(cuGraphAddMemcpyNode(&out, g, &kinc, 1, &op, ctx));
	CUDA_HOST_NODE_PARAMS hp = {read_back, host};
	CU(cuGraphAddHostNode(&call, g, &out, 1, &hp));
	CU(cuGraphAddEmptyNode(&empty, g, &call, 1));

	size_t count = 0;
	CUgraphNode list[16], to[16];
	CU(cuGraphGetNodes(g, NULL, &count));
	CHECK(count == 7);
	count = 16;
	CU(cuGraphGetNodes(g, list, &count));
	CHECK(count == 7 && list[7] == NULL);
	count = 16;
	CU(cuGraphGetRootNodes(g, list, &count));
	CHECK(count == 1 && list[0] == set);
	count = 16;
	CU(cuGraphGetEdges(g, list, to, &count));
	CHECK(count == 6);
	count = 16;
	CU(cuGraphNodeGetDependencies(kinc, list, &count));
	CHECK(count == 1 && list[0] == copy);
	count = 16;
	CU(cuGraphNodeGetDependentNodes(kinc, list, &count));
	CHECK(count == 1 && list[0] == out);
	CUDA_KERNEL_NODE_PARAMS got;
	CU(cuGraphKernelNodeGetParams_v2(kfill, &got));
	CHECK(got.func == f_fill && got.gridDimX == N / 128 && *(CUdeviceptr *)got.kernelParams[0] == a &&
		*(uint32_t *)got.kernelParams[2] == 100);
	CUDA_MEMSET_NODE_PARAMS mgot;
	CU(cuGraphMemsetNodeGetParams(set, &mgot));
	CHECK(mgot.dst == a && mgot.value == 0xff && mgot.width == N * 4);
	CUDA_MEMCPY3D cgot;
	CU(cuGraphMemcpyNodeGetParams(copy, &cgot));
	CHECK(cgot.srcDevice == a && cgot.dstDevice == b && cgot.WidthInBytes == N * 4);
	CUDA_HOST_NODE_PARAMS hgot;
	CU(cuGraphHostNodeGetParams(call, &hgot));
	CHECK(hgot.fn == read_back && hgot.userData == host);
	CUgraphNodeType type;
	CU(cuGraphNodeGetType(out, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_MEMCPY);

	CUgraphExec x;
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	CU(cuGraphUpload(x, s));
	CU(cuGraphLaunch(x, s));
	CU(cuStreamSynchronize(s));
	for (uint32_t i = 0; i < N; i++)
		CHECK(seen[i] == 101 + i);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &call, &call, 1));

	/* parameters of one node in the executable graph; the graph itself stays */
	v = 500;
	kp.func = f_fill;
	kp.kernelParams = fill_args;
	CU(cuGraphExecKernelNodeSetParams_v2(x, kfill, &kp));
	CU(cuGraphLaunch(x, s));
	CU(cuStreamSynchronize(s));
	CHECK(seen[3] == 504);
	CU(cuGraphKernelNodeGetParams_v2(kfill, &got));
	CHECK(*(uint32_t *)got.kernelParams[2] == 100);

	/* the whole graph as an update; then one of another shape */
	v = 900;
	CU(cuGraphKernelNodeSetParams_v2(kfill, &kp));
	CUgraphExecUpdateResultInfo info;
	CU(cuGraphExecUpdate_v2(x, g, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	CU(cuGraphLaunch(x, s));
	CU(cuStreamSynchronize(s));
	CHECK(seen[3] == 904);
	CUgraph other;
	CU(cuGraphClone(&other, g));
	CUgraphNode in_clone;
	CU(cuGraphNodeFindInClone(&in_clone, empty, other));
	CU(cuGraphDestroyNode(in_clone));
	EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(x, other, &info));
	CHECK(info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS);
	CU(cuGraphLaunch(x, s)); /* as it was */
	CU(cuStreamSynchronize(s));
	CHECK(seen[3] == 904);

	/* a child graph, disabled nodes, events */
	CUgraph parent, inner;
	CUgraphNode child, after, record;
	CUgraphExec px;
	CUevent e;
	CU(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CU(cuGraphCreate(&parent, 0));
	CU(cuGraphAddChildGraphNode(&child, parent, NULL, 0, other));
	CU(cuGraphChildGraphNodeGetGraph(child, &inner));
	CHECK(inner != NULL);
	kp.func = f_inc;
	kp.kernelParams = inc_args;
	CU(cuGraphAddKernelNode_v2(&after, parent, &child, 1, &kp));
	CU(cuGraphAddEventRecordNode(&record, parent, &after, 1, e));
	CU(cuGraphInstantiateWithFlags(&px, parent, 0));
	CU(cuGraphLaunch(px, s));
	CU(cuEventSynchronize(e));
	CU(cuStreamSynchronize(s));
	check_words(b, N, 902, "child and after");
	unsigned enabled;
	CU(cuGraphNodeSetEnabled(px, after, 0));
	CU(cuGraphNodeGetEnabled(px, after, &enabled));
	CHECK(enabled == 0);
	CU(cuGraphLaunch(px, s));
	CU(cuStreamSynchronize(s));
	check_words(b, N, 901, "after disabled");

	/* the general form of adding a node */
	CUgraph any;
	CUgraphNode an;
	CUgraphExec ax;
	v = 3;
	CUgraphNodeParams np = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	np.kernel = (CUDA_KERNEL_NODE_PARAMS){.func = f_fill, .gridDimX = N / 128, .gridDimY = 1, .gridDimZ = 1,
		.blockDimX = 128, .blockDimY = 1, .blockDimZ = 1,
	                                      .kernelParams = fill_args};
	CU(cuGraphCreate(&any, 0));
	CU(cuGraphAddNode_v2(&an, any, NULL, NULL, 0, &np));
	CUDA_GRAPH_INSTANTIATE_PARAMS ip = {0};
	CU(cuGraphInstantiateWithParams(&ax, any, &ip));
	CU(cuGraphLaunch(ax, s));
	CU(cuStreamSynchronize(s));
	check_words(a, N, 3, "any kind");
	CU(cuGraphExecDestroy(ax));
	CU(cuGraphExecDestroy(px));
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(any));
	CU(cuGraphDestroy(parent));
	CU(cuGraphDestroy(other));
	CU(cuGraphDestroy(g));
	CU(cuMemFreeHost(host));
	CU(cuCtxDestroy_v2(ctx));
	return finish("graphs");
}
