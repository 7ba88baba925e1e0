/* Contexts, capture, graphs and checkpoints where they are not regular. See stub.h. */
#include "stub.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- contexts, events, memory operations of several forms ---- */

EXPORT CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuCtxCreate);
	arg(&c, flags);
	arg(&c, SIGNED(dev));
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		*ctx = (CUcontext)(uintptr_t)out(&c, 0);
	call_end(&c);
	return r;
}

EXPORT CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	return cuCtxCreate_v2(ctx, flags, dev);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params, int n, unsigned int flags, CUdevice dev)
{
	return params || n ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(ctx, flags, dev);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	return params && (params->numExecAffinityParams || params->cigParams) ? CUDA_ERROR_NOT_SUPPORTED
	                                                                      : cuCtxCreate_v2(ctx, flags, dev);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) { return cuCtxGetDevice_v2(device, NULL); }
EXPORT CUresult cuCtxSynchronize(void) { return cuCtxSynchronize_v2(NULL); }

/* Without a place for a green context: there are none. */
EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx)
{
	return ctx ? cuStreamGetCtx_v2(stream, ctx, NULL) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	(void)flags;
	return cuEventRecord(event, stream);
}

/* The software GPU has no unified memory that could be moved: advice is accepted. */
EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice dev, CUstream stream)
{
	return cuMemPrefetchAsync_v2(p, n, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, dev}, 0, stream);
}
EXPORT CUresult cuMemAdvise(CUdeviceptr p, size_t n, CUmem_advise advice, CUdevice dev)
{
	return cuMemAdvise_v2(p, n, advice, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, dev});
}

/* ---- capture ---- */

EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
	return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                             const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *n)
{
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuStreamGetCaptureInfo);
	arg(&c, PTR(stream));
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS) {
		uint64_t bytes;
		const void *p = next_blob(&c, &bytes);
		uint64_t count = bytes / sizeof(CUgraphNode);
		*status = (CUstreamCaptureStatus)out(&c, 0);
		if (id)
			*id = out(&c, 1);
		if (graph)
			*graph = (CUgraph)(uintptr_t)out(&c, 2);
		if (n)
			*n = count;
		if (deps || edges) {
			CUgraphNode *nodes = thread_scratch(count * (sizeof(CUgraphNode) + sizeof(CUgraphEdgeData)));
			if (nodes && p)
				memcpy(nodes, p, count * sizeof *nodes);
			if (!nodes)
				r = CUDA_ERROR_OUT_OF_MEMORY;
			if (deps)
				*deps = nodes;
			if (edges)
				*edges = nodes ? (const CUgraphEdgeData *)(nodes + count) : NULL;
		}
	}
	call_end(&c);
	return r;
}

EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	return capture_info(stream, status, id, NULL, NULL, NULL, NULL);
}
EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                          CUgraph *graph, const CUgraphNode **deps, size_t *n)
{
	return capture_info(stream, status, id, graph, deps, NULL, n);
}
EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                          CUgraph *graph, const CUgraphNode **deps, const CUgraphEdgeData **edges,
                                          size_t *n)
{
	return capture_info(stream, status, id, graph, deps, edges, n);
}

static bool plain_edges(const CUgraphEdgeData *e, size_t n)
{
	static const CUgraphEdgeData plain;
	for (size_t i = 0; e && i < n; i++)
		if (memcmp(&e[i], &plain, sizeof plain) != 0)
			return false;
	return true;
}

EXPORT CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *deps, size_t n, unsigned int flags)
{
	struct call c;
	call_begin(&c, OP_cuStreamUpdateCaptureDependencies);
	arg(&c, PTR(stream));
	arg(&c, n);
	arg(&c, flags);
	blob_piece(&c, deps, n * sizeof *deps);
	CUresult r = call_send(&c);
	call_end(&c);
	return r;
}
EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *deps, const CUgraphEdgeData *edges,
                                                     size_t n, unsigned int flags)
{
	return plain_edges(edges, n) ? cuStreamUpdateCaptureDependencies(stream, deps, n, flags) : CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- edges ---- */

static CUresult change_edges(uint32_t op, CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *edges, size_t n)
{
	if (!plain_edges(edges, n))
		return CUDA_ERROR_NOT_SUPPORTED;
	struct call c;
	call_begin(&c, op);
	arg(&c, PTR(graph));
	arg(&c, n);
	blob_piece(&c, from, n * sizeof *from);
	blob_piece(&c, to, n * sizeof *to);
	CUresult r = call_send(&c);
	call_end(&c);
	return r;
}

EXPORT CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	return change_edges(OP_cuGraphAddDependencies, g, from, to, NULL, n);
}
EXPORT CUresult cuGraphAddDependencies_v2(CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
                                          const CUgraphEdgeData *edges, size_t n)
{
	return change_edges(OP_cuGraphAddDependencies, g, from, to, edges, n);
}
EXPORT CUresult cuGraphRemoveDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	return change_edges(OP_cuGraphRemoveDependencies, g, from, to, NULL, n);
}
EXPORT CUresult cuGraphRemoveDependencies_v2(CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
                                             const CUgraphEdgeData *edges, size_t n)
{
	return change_edges(OP_cuGraphRemoveDependencies, g, from, to, edges, n);
}

/*
 * Lists of nodes: without an array the call asks for the count; with one it returns how many nodes there are, and
 * entries beyond them become null.
 */
static CUresult list(uint32_t op, uint64_t handle, CUgraphNode *a, CUgraphNode *b, CUgraphEdgeData *edges, size_t *n)
{
	if (!n || (b && !*n)) /* libcuda (580.159) refuses room for no edges, nodes were not tried */
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, op);
	arg(&c, handle);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS) {
		uint64_t total = out(&c, 0), room = a ? *n : 0, take = total < room ? total : room;
		CUgraphNode *lists[] = {a, b};
		for (int i = 0; i < 2; i++) {
			if (lists[i])
				memset(lists[i], 0, room * sizeof *a);
			take_blob(&c, lists[i], take * sizeof *a);
		}
		if (edges)
			memset(edges, 0, room * sizeof *edges);
		*n = a ? take : total;
	}
	call_end(&c);
	return r;
}

EXPORT CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
	return list(OP_cuGraphGetNodes, PTR(g), nodes, NULL, NULL, n);
}
EXPORT CUresult cuGraphGetRootNodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
	return list(OP_cuGraphGetRootNodes, PTR(g), nodes, NULL, NULL, n);
}
EXPORT CUresult cuGraphGetEdges(CUgraph g, CUgraphNode *from, CUgraphNode *to, size_t *n)
{
	return list(OP_cuGraphGetEdges, PTR(g), from, to, NULL, n);
}
EXPORT CUresult cuGraphGetEdges_v2(CUgraph g, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *n)
{
	return list(OP_cuGraphGetEdges, PTR(g), from, to, edges, n);
}
EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *deps, size_t *n)
{
	return list(OP_cuGraphNodeGetDependencies, PTR(node), deps, NULL, NULL, n);
}
EXPORT CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *deps, CUgraphEdgeData *edges, size_t *n)
{
	return list(OP_cuGraphNodeGetDependencies, PTR(node), deps, NULL, edges, n);
}
EXPORT CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *deps, size_t *n)
{
	return list(OP_cuGraphNodeGetDependentNodes, PTR(node), deps, NULL, NULL, n);
}
EXPORT CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *deps, CUgraphEdgeData *edges, size_t *n)
{
	return list(OP_cuGraphNodeGetDependentNodes, PTR(node), deps, NULL, edges, n);
}

/* ---- nodes ---- */

static CUresult new_node(struct call *c, CUgraphNode *node)
{
	CUresult r = node ? call_send(c) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*node = (CUgraphNode)(uintptr_t)out(c, 0);
	call_end(c);
	return r;
}

static void kernel_args(struct call *c, uint64_t function, const CUDA_KERNEL_NODE_PARAMS *p)
{
	arg(c, function);
	arg(c, p->gridDimX);
	arg(c, p->gridDimY);
	arg(c, p->gridDimZ);
	arg(c, p->blockDimX);
	arg(c, p->blockDimY);
	arg(c, p->blockDimZ);
	arg(c, p->sharedMemBytes);
}

static uint64_t kernel_function(const CUDA_KERNEL_NODE_PARAMS *p) { return p->func ? PTR(p->func) : PTR(p->kern); }

static CUDA_KERNEL_NODE_PARAMS kernel_v2(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS q = {0};
	memcpy(&q, p, sizeof *p);
	return q;
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
                                        const CUDA_KERNEL_NODE_PARAMS *p)
{
	uint8_t buffer[MAX_PARAM_BYTES];
	uint64_t bytes = 0;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t function = kernel_function(p);
	CUresult r = pack_params(function, p->kernelParams, p->extra, buffer, &bytes);
	if (r != CUDA_SUCCESS)
		return r;
	struct call c;
	call_begin(&c, OP_GRAPH_ADD_KERNEL);
	arg(&c, PTR(graph));
	arg(&c, n);
	kernel_args(&c, function, p);
	arg(&c, 0);
	blob_piece(&c, deps, n * sizeof *deps);
	blob_piece(&c, buffer, bytes);
	blob_piece(&c, "", 0);
	return new_node(&c, node);
}

EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
                                     const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS q = kernel_v2(p);
	return cuGraphAddKernelNode_v2(node, graph, deps, n, &q);
}

/* kernelParams as GetParams gives them out: one block a node, its pointers and then the packed bytes. It is overwritten
 * when asked for again and kept for ever, since the program may hold the pointers as long as the node. */
static void **node_params(uint64_t node, uint64_t count, uint64_t bytes)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct block {
		struct block *next;
		uint64_t node, count, bytes;
		void *params[];
	} *blocks;
	pthread_mutex_lock(&lock);
	struct block *b = blocks;
	while (b && (b->node != node || b->count != count || b->bytes != bytes))
		b = b->next;
	if (!b && (b = malloc(sizeof *b + count * sizeof b->params[0] + bytes))) {
		b->node = node;
		b->count = count;
		b->bytes = bytes;
		b->next = blocks;
		blocks = b;
	}
	pthread_mutex_unlock(&lock);
	return b ? b->params : NULL;
}

EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_GRAPH_KERNEL_GET);
	arg(&c, PTR(node));
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS) {
		uint64_t packed_bytes, count, bytes, (*layout)[2];
		const void *packed = next_blob(&c, &packed_bytes);
		*p = (CUDA_KERNEL_NODE_PARAMS){
			.func = (CUfunction)(uintptr_t)out(&c, 0),
			.gridDimX = (unsigned)out(&c, 1), .gridDimY = (unsigned)out(&c, 2), .gridDimZ = (unsigned)out(&c, 3),
			.blockDimX = (unsigned)out(&c, 4), .blockDimY = (unsigned)out(&c, 5), .blockDimZ = (unsigned)out(&c, 6),
			.sharedMemBytes = (unsigned)out(&c, 7),
		};
		if ((r = function_layout(out(&c, 0), &count, &bytes, &layout)) == CUDA_SUCCESS) {
			p->kernelParams = packed_bytes == bytes ? node_params(PTR(node), count, bytes) : NULL;
			for (uint64_t i = 0; p->kernelParams && i < count; i++)
				p->kernelParams[i] = (char *)(p->kernelParams + count) + layout[i][0];
			if (p->kernelParams && bytes > 0)
				memcpy(p->kernelParams + count, packed, bytes);
			else if (!p->kernelParams)
				r = CUDA_ERROR_OUT_OF_MEMORY;
			free(layout);
		}
	}
	call_end(&c);
	return r;
}

EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS q;
	CUresult r = p ? cuGraphKernelNodeGetParams_v2(node, &q) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		memcpy(p, &q, sizeof *p);
	return r;
}

/* exec null: of the node itself. */
static CUresult set_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	uint8_t buffer[MAX_PARAM_BYTES];
	uint64_t bytes = 0;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t function = kernel_function(p);
	CUresult r = pack_params(function, p->kernelParams, p->extra, buffer, &bytes);
	if (r != CUDA_SUCCESS)
		return r;
	struct call c;
	call_begin(&c, exec ? OP_GRAPH_EXEC_KERNEL_SET : OP_GRAPH_KERNEL_SET);
	if (exec)
		arg(&c, PTR(exec));
	arg(&c, PTR(node));
	kernel_args(&c, function, p);
	blob_piece(&c, buffer, bytes);
	r = call_send(&c);
	call_end(&c);
	return r;
}

EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	return set_kernel(NULL, node, p);
}
EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS q = kernel_v2(p);
	return set_kernel(NULL, node, &q);
}
EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	return exec ? set_kernel(exec, node, p) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p || !exec)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS q = kernel_v2(p);
	return set_kernel(exec, node, &q);
}

EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
                                     const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	struct box dst, src;
	(void)ctx;
	CUresult r = p ? boxes_of(p, &dst, &src) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	struct call c;
	call_begin(&c, OP_GRAPH_ADD_MEMCPY);
	arg(&c, PTR(graph));
	arg(&c, n);
	box_args(&c, &dst, &src, p->WidthInBytes, p->Height, p->Depth);
	blob_piece(&c, deps, n * sizeof *deps);
	return new_node(&c, node);
}

EXPORT CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_GRAPH_MEMCPY_GET);
	arg(&c, PTR(node));
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS) {
		uint64_t dst = out(&c, 0), src = out(&c, 1);
		bool dst_device = dst - process.window_lo < process.window_size,
		     src_device = src - process.window_lo < process.window_size;
		*p = (CUDA_MEMCPY3D){
			.dstMemoryType = dst_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
			.srcMemoryType = src_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
			.dstHost = dst_device ? NULL : (void *)(uintptr_t)dst,
			.srcHost = src_device ? NULL : (void *)(uintptr_t)src,
			.dstDevice = dst_device ? dst : 0, .srcDevice = src_device ? src : 0,
			.WidthInBytes = out(&c, 4), .Height = out(&c, 5), .Depth = out(&c, 6),
			.dstPitch = out(&c, 7), .dstHeight = out(&c, 8), .srcPitch = out(&c, 9), .srcHeight = out(&c, 10),
		};
	}
	call_end(&c);
	return r;
}

static CUresult set_memcpy(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p)
{
	struct box dst, src;
	CUresult r = p ? boxes_of(p, &dst, &src) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	struct call c;
	call_begin(&c, exec ? OP_GRAPH_EXEC_MEMCPY_SET : OP_GRAPH_MEMCPY_SET);
	if (exec)
		arg(&c, PTR(exec));
	arg(&c, PTR(node));
	box_args(&c, &dst, &src, p->WidthInBytes, p->Height, p->Depth);
	r = call_send(&c);
	call_end(&c);
	return r;
}

EXPORT CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *p)
{
	return set_memcpy(NULL, node, p);
}
EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p,
                                               CUcontext ctx)
{
	(void)ctx;
	return exec ? set_memcpy(exec, node, p) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
                                   const CUDA_HOST_NODE_PARAMS *p)
{
	if (!p || !p->fn)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuGraphAddHostNode);
	arg(&c, PTR(graph));
	arg(&c, n);
	arg(&c, PTR(p->fn));
	arg(&c, PTR(p->userData));
	blob_piece(&c, deps, n * sizeof *deps);
	return new_node(&c, node);
}

EXPORT CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuGraphHostNodeGetParams);
	arg(&c, PTR(node));
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		*p = (CUDA_HOST_NODE_PARAMS){(CUhostFn)(uintptr_t)out(&c, 0), (void *)(uintptr_t)out(&c, 1)};
	call_end(&c);
	return r;
}

EXPORT CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
	return p && p->fn ? SIMPLE(OP_cuGraphHostNodeSetParams, PTR(node), PTR(p->fn), PTR(p->userData))
	                  : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
	return p && p->fn ? SIMPLE(OP_cuGraphExecHostNodeSetParams, PTR(exec), PTR(node), PTR(p->fn), PTR(p->userData))
	                  : CUDA_ERROR_INVALID_VALUE;
}

/* ---- the calls that take any kind of node ---- */

EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
                               CUgraphNodeParams *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cuGraphAddKernelNode_v2(node, graph, deps, n, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphAddMemcpyNode(node, graph, deps, n, &p->memcpy.copyParams, p->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return cuGraphAddMemsetNode(node, graph, deps, n, &p->memset.params, p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		return cuGraphAddHostNode(node, graph, deps, n, &p->host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphAddChildGraphNode(node, graph, deps, n, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return cuGraphAddEmptyNode(node, graph, deps, n);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphAddEventRecordNode(node, graph, deps, n, p->event.event);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphAddEventWaitNode(node, graph, deps, n, p->event.event);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return cuGraphAddMemAllocNode(node, graph, deps, n, &p->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuGraphAddMemFreeNode(node, graph, deps, n, p->free.dptr);
	}
	return CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                                  const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *p)
{
	return plain_edges(edges, n) ? cuGraphAddNode(node, graph, deps, n, p) : CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cuGraphKernelNodeSetParams_v2(node, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphMemcpyNodeSetParams(node, &p->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return cuGraphMemsetNodeSetParams(node, &p->memset.params);
	case CU_GRAPH_NODE_TYPE_HOST:
		return cuGraphHostNodeSetParams(node, &p->host);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphEventRecordNodeSetEvent(node, p->event.event);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphEventWaitNodeSetEvent(node, p->event.event);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cuGraphExecKernelNodeSetParams_v2(exec, node, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphExecMemcpyNodeSetParams(exec, node, &p->memcpy.copyParams, p->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return cuGraphExecMemsetNodeSetParams(exec, node, &p->memset.params, p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		return cuGraphExecHostNodeSetParams(exec, node, &p->host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphExecChildGraphNodeSetParams(exec, node, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphExecEventRecordNodeSetEvent(exec, node, p->event.event);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphExecEventWaitNodeSetEvent(exec, node, p->event.event);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* ---- executable graphs ---- */

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuGraphInstantiate);
	arg(&c, PTR(graph));
	arg(&c, flags);
	CUresult r = call_send(&c);
	if (r == CUDA_SUCCESS)
		*exec = (CUgraphExec)(uintptr_t)out(&c, 0);
	call_end(&c);
	return r;
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                                      size_t log_size)
{
	if (error_node)
		*error_node = NULL;
	if (log && log_size > 0)
		log[0] = 0;
	return cuGraphInstantiateWithFlags(exec, graph, 0);
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                                   size_t log_size)
{
	return cuGraphInstantiate_v2(exec, graph, error_node, log, log_size);
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	p->hErrNode_out = NULL;
	CUresult r = cuGraphInstantiateWithFlags(exec, graph, p->flags);
	p->result_out = r == CUDA_SUCCESS ? 0 : 1; /* CUDA_GRAPH_INSTANTIATE_SUCCESS, _ERROR */
	return r;
}

EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	if (!info)
		return CUDA_ERROR_INVALID_VALUE;
	struct call c;
	call_begin(&c, OP_cuGraphExecUpdate);
	arg(&c, PTR(exec));
	arg(&c, PTR(graph));
	CUresult r = call_send(&c);
	*info = (CUgraphExecUpdateResultInfo){
		r == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR, NULL, NULL};
	if (c.nouts >= 3)
		*info = (CUgraphExecUpdateResultInfo){(CUgraphExecUpdateResult)out(&c, 0), (CUgraphNode)(uintptr_t)out(&c, 1),
		                                      (CUgraphNode)(uintptr_t)out(&c, 2)};
	call_end(&c);
	return r;
}

EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                                  CUgraphExecUpdateResult *result)
{
	CUgraphExecUpdateResultInfo info;
	CUresult r = cuGraphExecUpdate_v2(exec, graph, &info);
	if (error_node)
		*error_node = info.errorNode;
	if (result)
		*result = info.result;
	return r;
}

/* ---- checkpoint of other processes ---- */

EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	return SIMPLE(OP_cuCheckpointProcessLock, SIGNED(pid), args ? args->timeoutMs : 0);
}
EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	(void)args; /* all reserved */
	return SIMPLE(OP_cuCheckpointProcessCheckpoint, SIGNED(pid));
}
EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	/* Onto other GPUs: there are no different ones. */
	return args && args->gpuPairsCount > 0 ? CUDA_ERROR_NOT_SUPPORTED
	                                       : SIMPLE(OP_cuCheckpointProcessRestore, SIGNED(pid));
}
EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	(void)args;
	return SIMPLE(OP_cuCheckpointProcessUnlock, SIGNED(pid));
}
