/* Blocks in clusters: by launch attribute, by attribute of the function, compiled in; launched, captured and as nodes
 * of a graph. */
#include "test.h"

/* rank: out[block] = its rank in the cluster + 100 × the number of blocks in it, got from a neighbour's shared
 * memory. */
static const char source[] = ".version 7.8\n.target sm_90\n.address_size 64\n"
#define BODY \
	"	.reg .b32 %r<16>; .reg .b64 %d<8>; .shared .align 4 .u32 mine;\n" \
	"	ld.param.u64 %d0, [p]; mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, %cluster_nctarank;\n" \
	"	mov.u32 %r2, %ctaid.x;\n" \
	"	mad.lo.u32 %r3, %r1, 100, %r0; st.shared.u32 [mine], %r3;\n" \
	"	barrier.cluster.arrive; barrier.cluster.wait;\n" \
	"	add.u32 %r4, %r0, 1; rem.u32 %r4, %r4, %r1;\n" \
	"	mov.u32 %r5, mine; mapa.shared::cluster.u32 %r6, %r5, %r4; ld.shared::cluster.u32 %r7, [%r6];\n" \
	"	mul.wide.u32 %d1, %r2, 4; add.u64 %d2, %d0, %d1; st.global.u32 [%d2], %r7;\n" \
	"	barrier.cluster.arrive; barrier.cluster.wait;\n	ret;\n}\n"
	".visible .entry rank(.param .u64 p)\n{\n" BODY
	".visible .entry pairs(.param .u64 p) .explicitcluster .reqnctapercluster 2, 1, 1\n{\n" BODY
	".visible .entry sized(.param .u64 p) .explicitcluster\n{\n" BODY;

enum { BLOCKS = 16 };

static void check(CUdeviceptr p, uint32_t cluster, const char *what)
{
	uint32_t h[BLOCKS];
	CU(cuMemcpyDtoH_v2(h, p, sizeof h));
	for (uint32_t i = 0; i < BLOCKS; i++)
		if (h[i] != 100 * cluster + (i + 1) % cluster)
			FAIL("%s: block %u got %u, want %u", what, i, h[i], 100 * cluster + (i + 1) % cluster);
	CU(cuMemsetD8_v2(p, 0, sizeof h));
	CU(cuCtxSynchronize());
}

static CUlaunchConfig config(CUlaunchAttribute *a, unsigned int cluster, CUstream s)
{
	*a = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {cluster, 1, 1}};
	return (CUlaunchConfig){BLOCKS, 1, 1, 1, 1, 1, 0, s, a, cluster > 0};
}

int main(void)
{
	CUdeviceptr p;
	CUmodule m;
	CUlaunchAttribute a;
	int n;
	CUdevice dev;
	start(&dev);
	CU(cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev));
	if (n < 9)
		return finish("clusters");
	CU(cuModuleLoadData(&m, source));
	CUfunction rank = function(m, "rank"), pairs = function(m, "pairs"), sized = function(m, "sized");
	CU(cuMemAlloc_v2(&p, BLOCKS * 4));
	void *params[] = {&p};

	for (unsigned int cluster = 1; cluster <= 8; cluster *= 2) {
		CUlaunchConfig q = config(&a, cluster, NULL);
		CU(cuLaunchKernelEx(&q, rank, params, NULL));
		check(p, cluster, "launch attribute");
	}
	CUlaunchConfig q = config(&a, 3, NULL);
	EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&q, rank, params, NULL)); /* 16 blocks */
	q = config(&a, 16, NULL);
	EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&q, rank, params, NULL));
	CU(cuOccupancyMaxPotentialClusterSize(&n, rank, &q));
	CHECK(n == 8);
	CU(cuFuncSetAttribute(rank, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	CU(cuLaunchKernelEx(&q, rank, params, NULL));
	check(p, 16, "non-portable size");
	CU(cuOccupancyMaxPotentialClusterSize(&n, rank, &q));
	CHECK(n == 16);
	CU(cuOccupancyMaxActiveClusters(&n, rank, &q));
	CHECK(n >= 1);

	/* Compiled in. */
	CU(cuLaunchKernel(pairs, BLOCKS, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	check(p, 2, "compiled in");
	CU(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, pairs));
	CHECK(n == 2);
	EXPECT(CUDA_ERROR_NOT_PERMITTED, cuFuncSetAttribute(pairs, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4));
	q = config(&a, 4, NULL);
	EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&q, pairs, params, NULL));
	q = config(&a, 2, NULL);
	CU(cuLaunchKernelEx(&q, pairs, params, NULL));
	check(p, 2, "compiled in and asked for");

	/* Set for the function. */
	CU(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, sized));
	CHECK(n == 1);
	EXPECT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernel(sized, BLOCKS, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuFuncSetAttribute(sized, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4));
	CU(cuFuncSetAttribute(sized, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 1));
	CU(cuFuncSetAttribute(sized, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1));
	CU(cuLaunchKernel(sized, BLOCKS, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	check(p, 4, "set for the function");

	/* Captured, and a node of its own, whose cluster changes before it is instantiated. */
	CUstream s;
	CUgraph g;
	CUgraphExec e;
	CUgraphNode node;
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	q = config(&a, 8, s);
	CU(cuLaunchKernelEx(&q, rank, params, NULL));
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphInstantiateWithFlags(&e, g, 0));
	CU(cuGraphLaunch(e, s));
	CU(cuStreamSynchronize(s));
	check(p, 8, "captured");
	CU(cuGraphExecDestroy(e));
	CU(cuGraphDestroy(g));
	CUDA_KERNEL_NODE_PARAMS k = {.func = rank, BLOCKS, 1, 1, 1, 1, 1, 0, params, NULL, NULL, NULL};
	CUlaunchAttributeValue v = {.clusterDim = {4, 1, 1}}, got;
	CU(cuGraphCreate(&g, 0));
	CU(cuGraphAddKernelNode_v2(&node, g, NULL, 0, &k));
	CU(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v));
	CU(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &got));
	CHECK(got.clusterDim.x == 4 && got.clusterDim.y == 1 && got.clusterDim.z == 1);
	v.clusterDim.x = 5;
	CHECK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v) != CUDA_SUCCESS);
	CU(cuGraphInstantiateWithFlags(&e, g, 0));
	CU(cuGraphLaunch(e, s));
	CU(cuStreamSynchronize(s));
	check(p, 4, "node");

	/* An event that is recorded with a launch. */
	CUevent event;
	CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CUlaunchAttribute with[] = {{.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
		.value.launchCompletionEvent = {event, 0}},
	                            {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}}};
	CUlaunchConfig r = {BLOCKS, 1, 1, 1, 1, 1, 0, s, with, 2};
	CU(cuLaunchKernelEx(&r, rank, params, NULL));
	CU(cuEventSynchronize(event));
	CU(cuStreamSynchronize(s));
	check(p, 2, "with an event");
	return finish("clusters");
}
