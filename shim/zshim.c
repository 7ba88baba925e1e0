/* Code generated from internal/cuda/api by internal/shim; DO NOT EDIT. Regenerate: go generate ./internal/shim */
#include "shim.h"

void *hf_real[HF_SYMBOLS];

HF_EXPORT CUresult cuArray3DCreate_v2(void *pHandle, void *pAllocateArray)
{
	struct hf_slot *slot = hf_enter(183);
	CUresult r = hf_depth > 1 ? real_cuArray3DCreate_v2(pHandle, pAllocateArray) : hf_cuArray3DCreate_v2(pHandle, pAllocateArray);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuArray3DGetDescriptor_v2(void *pArrayDescriptor, void *hArray)
{
	struct hf_slot *slot = hf_enter(184);
	CUresult r = real_cuArray3DGetDescriptor_v2(pArrayDescriptor, hArray);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuArrayCreate_v2(void *pHandle, void *pAllocateArray)
{
	struct hf_slot *slot = hf_enter(175);
	CUresult r = hf_depth > 1 ? real_cuArrayCreate_v2(pHandle, pAllocateArray) : hf_cuArrayCreate_v2(pHandle, pAllocateArray);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuArrayDestroy(void *hArray)
{
	struct hf_slot *slot = hf_enter(182);
	CUresult r = real_cuArrayDestroy(hArray);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuArrayGetDescriptor_v2(void *pArrayDescriptor, void *hArray)
{
	struct hf_slot *slot = hf_enter(176);
	CUresult r = real_cuArrayGetDescriptor_v2(pArrayDescriptor, hArray);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuArrayGetMemoryRequirements(void *memoryRequirements, void *array, int device)
{
	struct hf_slot *slot = hf_enter(179);
	CUresult r = real_cuArrayGetMemoryRequirements(memoryRequirements, array, device);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuArrayGetPlane(void *pPlaneArray, void *hArray, unsigned int planeIdx)
{
	struct hf_slot *slot = hf_enter(181);
	CUresult r = real_cuArrayGetPlane(pPlaneArray, hArray, planeIdx);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuArrayGetSparseProperties(void *sparseProperties, void *array)
{
	struct hf_slot *slot = hf_enter(177);
	CUresult r = real_cuArrayGetSparseProperties(sparseProperties, array);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxCreate(void *pctx, unsigned int flags, int dev)
{
	struct hf_slot *slot = hf_enter(39);
	CUresult r = real_cuCtxCreate(pctx, flags, dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxCreate_v2(void *pctx, unsigned int flags, int dev)
{
	struct hf_slot *slot = hf_enter(39);
	CUresult r = hf_depth > 1 ? real_cuCtxCreate_v2(pctx, flags, dev) : hf_cuCtxCreate_v2(pctx, flags, dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxCreate_v3(void *pctx, void *paramsArray, int numParams, unsigned int flags, int dev)
{
	struct hf_slot *slot = hf_enter(39);
	CUresult r = hf_depth > 1 ? real_cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev) : hf_cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxCreate_v4(void *pctx, void *ctxCreateParams, unsigned int flags, int dev)
{
	struct hf_slot *slot = hf_enter(39);
	CUresult r = hf_depth > 1 ? real_cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev) : hf_cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxDestroy(void *ctx)
{
	struct hf_slot *slot = hf_enter(40);
	CUresult r = hf_depth > 1 ? real_cuCtxDestroy(ctx) : hf_cuCtxDestroy(ctx);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxDestroy_v2(void *ctx)
{
	struct hf_slot *slot = hf_enter(40);
	CUresult r = hf_depth > 1 ? real_cuCtxDestroy_v2(ctx) : hf_cuCtxDestroy_v2(ctx);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxDisablePeerAccess(void *peerContext)
{
	struct hf_slot *slot = hf_enter(65);
	CUresult r = hf_depth > 1 ? real_cuCtxDisablePeerAccess(peerContext) : hf_cuCtxDisablePeerAccess(peerContext);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxEnablePeerAccess(void *peerContext, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(64);
	CUresult r = hf_depth > 1 ? real_cuCtxEnablePeerAccess(peerContext, Flags) : hf_cuCtxEnablePeerAccess(peerContext, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxGetLimit(void *pvalue, int limit)
{
	struct hf_slot *slot = hf_enter(51);
	CUresult r = real_cuCtxGetLimit(pvalue, limit);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxResetPersistingL2Cache(void)
{
	struct hf_slot *slot = hf_enter(58);
	CUresult r = real_cuCtxResetPersistingL2Cache();
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxSetLimit(int limit, size_t value)
{
	struct hf_slot *slot = hf_enter(50);
	CUresult r = real_cuCtxSetLimit(limit, value);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuCtxSynchronize(void)
{
	hf_wait_begin();
	CUresult r = real_cuCtxSynchronize();
	hf_wait_end();
	return r;
}

HF_EXPORT CUresult cuCtxSynchronize_v2(void *ctx)
{
	hf_wait_begin();
	CUresult r = real_cuCtxSynchronize_v2(ctx);
	hf_wait_end();
	return r;
}

HF_EXPORT CUresult cuDestroyExternalMemory(void *extMem)
{
	struct hf_slot *slot = hf_enter(270);
	CUresult r = real_cuDestroyExternalMemory(extMem);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDestroyExternalSemaphore(void *extSem)
{
	struct hf_slot *slot = hf_enter(274);
	CUresult r = real_cuDestroyExternalSemaphore(extSem);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDeviceGetDefaultMemPool(void *pool_out, int dev)
{
	struct hf_slot *slot = hf_enter(19);
	CUresult r = real_cuDeviceGetDefaultMemPool(pool_out, dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDeviceGetGraphMemAttribute(int device, int attr, void *value)
{
	struct hf_slot *slot = hf_enter(29);
	CUresult r = real_cuDeviceGetGraphMemAttribute(device, attr, value);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDeviceGetMemPool(void *pool, int dev)
{
	struct hf_slot *slot = hf_enter(18);
	CUresult r = real_cuDeviceGetMemPool(pool, dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDeviceGetNvSciSyncAttributes(void *nvSciSyncAttrList, int dev, int flags)
{
	struct hf_slot *slot = hf_enter(16);
	CUresult r = real_cuDeviceGetNvSciSyncAttributes(nvSciSyncAttrList, dev, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDeviceGraphMemTrim(int device)
{
	struct hf_slot *slot = hf_enter(31);
	CUresult r = real_cuDeviceGraphMemTrim(device);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDevicePrimaryCtxRelease(int dev)
{
	struct hf_slot *slot = hf_enter(35);
	CUresult r = hf_depth > 1 ? real_cuDevicePrimaryCtxRelease(dev) : hf_cuDevicePrimaryCtxRelease(dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(int dev)
{
	struct hf_slot *slot = hf_enter(35);
	CUresult r = hf_depth > 1 ? real_cuDevicePrimaryCtxRelease_v2(dev) : hf_cuDevicePrimaryCtxRelease_v2(dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDevicePrimaryCtxReset(int dev)
{
	struct hf_slot *slot = hf_enter(38);
	CUresult r = hf_depth > 1 ? real_cuDevicePrimaryCtxReset(dev) : hf_cuDevicePrimaryCtxReset(dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDevicePrimaryCtxReset_v2(int dev)
{
	struct hf_slot *slot = hf_enter(38);
	CUresult r = hf_depth > 1 ? real_cuDevicePrimaryCtxReset_v2(dev) : hf_cuDevicePrimaryCtxReset_v2(dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDevicePrimaryCtxRetain(void *pctx, int dev)
{
	struct hf_slot *slot = hf_enter(34);
	CUresult r = hf_depth > 1 ? real_cuDevicePrimaryCtxRetain(pctx, dev) : hf_cuDevicePrimaryCtxRetain(pctx, dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDeviceSetGraphMemAttribute(int device, int attr, void *value)
{
	struct hf_slot *slot = hf_enter(30);
	CUresult r = real_cuDeviceSetGraphMemAttribute(device, attr, value);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuDeviceSetMemPool(int dev, void *pool)
{
	struct hf_slot *slot = hf_enter(17);
	CUresult r = hf_depth > 1 ? real_cuDeviceSetMemPool(dev, pool) : hf_cuDeviceSetMemPool(dev, pool);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuEGLStreamConsumerAcquireFrame(void *conn, void *pCudaResource, void *pStream, unsigned int timeout)
{
	struct hf_slot *slot = hf_enter(445);
	CUresult r = real_cuEGLStreamConsumerAcquireFrame(conn, pCudaResource, pStream, timeout);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuEGLStreamConsumerConnect(void *conn, void *stream)
{
	struct hf_slot *slot = hf_enter(443);
	CUresult r = real_cuEGLStreamConsumerConnect(conn, stream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuEGLStreamConsumerConnectWithFlags(void *conn, void *stream, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(449);
	CUresult r = real_cuEGLStreamConsumerConnectWithFlags(conn, stream, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuEGLStreamConsumerDisconnect(void *conn)
{
	struct hf_slot *slot = hf_enter(444);
	CUresult r = real_cuEGLStreamConsumerDisconnect(conn);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuEGLStreamConsumerReleaseFrame(void *conn, void *pCudaResource, void *pStream)
{
	struct hf_slot *slot = hf_enter(446);
	CUresult r = real_cuEGLStreamConsumerReleaseFrame(conn, pCudaResource, pStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuEGLStreamProducerConnect(void *conn, void *stream, int width, int height)
{
	struct hf_slot *slot = hf_enter(447);
	CUresult r = real_cuEGLStreamProducerConnect(conn, stream, width, height);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuEGLStreamProducerDisconnect(void *conn)
{
	struct hf_slot *slot = hf_enter(448);
	CUresult r = real_cuEGLStreamProducerDisconnect(conn);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuEventSynchronize(void *hEvent)
{
	hf_wait_begin();
	CUresult r = real_cuEventSynchronize(hEvent);
	hf_wait_end();
	return r;
}

HF_EXPORT CUresult cuExternalMemoryGetMappedBuffer(void *devPtr, void *extMem, void *bufferDesc)
{
	struct hf_slot *slot = hf_enter(268);
	CUresult r = real_cuExternalMemoryGetMappedBuffer(devPtr, extMem, bufferDesc);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuExternalMemoryGetMappedMipmappedArray(void *mipmap, void *extMem, void *mipmapDesc)
{
	struct hf_slot *slot = hf_enter(269);
	CUresult r = real_cuExternalMemoryGetMappedMipmappedArray(mipmap, extMem, mipmapDesc);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuFuncLoad(void *function)
{
	struct hf_slot *slot = hf_enter(284);
	CUresult r = real_cuFuncLoad(function);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLCtxCreate_v2(void *pCtx, unsigned int Flags, int device)
{
	struct hf_slot *slot = hf_enter(438);
	CUresult r = real_cuGLCtxCreate_v2(pCtx, Flags, device);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLGetDevices(void *pCudaDeviceCount, void *pCudaDevices, unsigned int cudaDeviceCount, int deviceList)
{
	struct hf_slot *slot = hf_enter(437);
	CUresult r = real_cuGLGetDevices(pCudaDeviceCount, pCudaDevices, cudaDeviceCount, deviceList);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLGetDevices_v2(void *pCudaDeviceCount, void *pCudaDevices, unsigned int cudaDeviceCount, int deviceList)
{
	struct hf_slot *slot = hf_enter(437);
	CUresult r = real_cuGLGetDevices_v2(pCudaDeviceCount, pCudaDevices, cudaDeviceCount, deviceList);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLInit(void)
{
	struct hf_slot *slot = hf_enter(439);
	CUresult r = real_cuGLInit();
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLMapBufferObjectAsync_v2(void *dptr, void *size, unsigned int buffer, void *hStream)
{
	struct hf_slot *slot = hf_enter(477);
	CUresult r = real_cuGLMapBufferObjectAsync_v2(dptr, size, buffer, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLMapBufferObjectAsync_v2_ptsz(void *dptr, void *size, unsigned int buffer, void *hStream)
{
	struct hf_slot *slot = hf_enter(477);
	CUresult r = real_cuGLMapBufferObjectAsync_v2_ptsz(dptr, size, buffer, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLMapBufferObject_v2(void *dptr, void *size, unsigned int buffer)
{
	struct hf_slot *slot = hf_enter(473);
	CUresult r = real_cuGLMapBufferObject_v2(dptr, size, buffer);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLMapBufferObject_v2_ptds(void *dptr, void *size, unsigned int buffer)
{
	struct hf_slot *slot = hf_enter(473);
	CUresult r = real_cuGLMapBufferObject_v2_ptds(dptr, size, buffer);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLRegisterBufferObject(unsigned int buffer)
{
	struct hf_slot *slot = hf_enter(472);
	CUresult r = real_cuGLRegisterBufferObject(buffer);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLSetBufferObjectMapFlags(unsigned int buffer, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(476);
	CUresult r = real_cuGLSetBufferObjectMapFlags(buffer, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLUnmapBufferObject(unsigned int buffer)
{
	struct hf_slot *slot = hf_enter(474);
	CUresult r = real_cuGLUnmapBufferObject(buffer);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLUnmapBufferObjectAsync(unsigned int buffer, void *hStream)
{
	struct hf_slot *slot = hf_enter(478);
	CUresult r = real_cuGLUnmapBufferObjectAsync(buffer, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGLUnregisterBufferObject(unsigned int buffer)
{
	struct hf_slot *slot = hf_enter(475);
	CUresult r = real_cuGLUnregisterBufferObject(buffer);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGetProcAddress(void *symbol, void *pfn, int cudaVersion, unsigned long long flags)
{
	if (hf_depth)
		return real_cuGetProcAddress(symbol, pfn, cudaVersion, flags);
	return hf_cuGetProcAddress(symbol, pfn, cudaVersion, flags);
}

HF_EXPORT CUresult cuGetProcAddress_v2(void *symbol, void *pfn, int cudaVersion, unsigned long long flags, void *symbolStatus)
{
	if (hf_depth)
		return real_cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);
	return hf_cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);
}

HF_EXPORT CUresult cuGraphAddBatchMemOpNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(328);
	CUresult r = real_cuGraphAddBatchMemOpNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddChildGraphNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *childGraph)
{
	struct hf_slot *slot = hf_enter(313);
	CUresult r = real_cuGraphAddChildGraphNode(phGraphNode, hGraph, dependencies, numDependencies, childGraph);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddDependencies(void *hGraph, void *from, void *to, size_t numDependencies)
{
	struct hf_slot *slot = hf_enter(344);
	CUresult r = real_cuGraphAddDependencies(hGraph, from, to, numDependencies);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddDependencies_v2(void *hGraph, void *from, void *to, void *edgeData, size_t numDependencies)
{
	struct hf_slot *slot = hf_enter(344);
	CUresult r = real_cuGraphAddDependencies_v2(hGraph, from, to, edgeData, numDependencies);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddEmptyNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies)
{
	struct hf_slot *slot = hf_enter(315);
	CUresult r = real_cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddEventRecordNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *event)
{
	struct hf_slot *slot = hf_enter(316);
	CUresult r = real_cuGraphAddEventRecordNode(phGraphNode, hGraph, dependencies, numDependencies, event);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddEventWaitNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *event)
{
	struct hf_slot *slot = hf_enter(319);
	CUresult r = real_cuGraphAddEventWaitNode(phGraphNode, hGraph, dependencies, numDependencies, event);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddExternalSemaphoresSignalNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(322);
	CUresult r = real_cuGraphAddExternalSemaphoresSignalNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddExternalSemaphoresWaitNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(325);
	CUresult r = real_cuGraphAddExternalSemaphoresWaitNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddHostNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(310);
	CUresult r = real_cuGraphAddHostNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddKernelNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(301);
	CUresult r = real_cuGraphAddKernelNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddKernelNode_v2(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(301);
	CUresult r = real_cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddMemAllocNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(332);
	CUresult r = hf_depth > 1 ? real_cuGraphAddMemAllocNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams) : hf_cuGraphAddMemAllocNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddMemFreeNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, CUdeviceptr dptr)
{
	struct hf_slot *slot = hf_enter(334);
	CUresult r = real_cuGraphAddMemFreeNode(phGraphNode, hGraph, dependencies, numDependencies, dptr);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddMemcpyNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *copyParams, void *ctx)
{
	struct hf_slot *slot = hf_enter(304);
	CUresult r = real_cuGraphAddMemcpyNode(phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddMemsetNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *memsetParams, void *ctx)
{
	struct hf_slot *slot = hf_enter(307);
	CUresult r = real_cuGraphAddMemsetNode(phGraphNode, hGraph, dependencies, numDependencies, memsetParams, ctx);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(376);
	CUresult r = real_cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphAddNode_v2(void *phGraphNode, void *hGraph, void *dependencies, void *dependencyData, size_t numDependencies, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(376);
	CUresult r = real_cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphBatchMemOpNodeGetParams(void *hNode, void *nodeParams_out)
{
	struct hf_slot *slot = hf_enter(329);
	CUresult r = real_cuGraphBatchMemOpNodeGetParams(hNode, nodeParams_out);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphBatchMemOpNodeSetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(330);
	CUresult r = real_cuGraphBatchMemOpNodeSetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphChildGraphNodeGetGraph(void *hNode, void *phGraph)
{
	struct hf_slot *slot = hf_enter(314);
	CUresult r = real_cuGraphChildGraphNodeGetGraph(hNode, phGraph);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphClone(void *phGraphClone, void *originalGraph)
{
	struct hf_slot *slot = hf_enter(336);
	CUresult r = real_cuGraphClone(phGraphClone, originalGraph);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphConditionalHandleCreate(void *pHandle_out, void *hGraph, void *ctx, unsigned int defaultLaunchValue, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(379);
	CUresult r = real_cuGraphConditionalHandleCreate(pHandle_out, hGraph, ctx, defaultLaunchValue, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphCreate(void *phGraph, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(300);
	CUresult r = real_cuGraphCreate(phGraph, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphDebugDotPrint(void *hGraph, void *path, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(370);
	CUresult r = real_cuGraphDebugDotPrint(hGraph, path, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphDestroy(void *hGraph)
{
	struct hf_slot *slot = hf_enter(365);
	CUresult r = real_cuGraphDestroy(hGraph);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphDestroyNode(void *hNode)
{
	struct hf_slot *slot = hf_enter(346);
	CUresult r = real_cuGraphDestroyNode(hNode);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphEventRecordNodeGetEvent(void *hNode, void *event_out)
{
	struct hf_slot *slot = hf_enter(317);
	CUresult r = real_cuGraphEventRecordNodeGetEvent(hNode, event_out);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphEventRecordNodeSetEvent(void *hNode, void *event)
{
	struct hf_slot *slot = hf_enter(318);
	CUresult r = real_cuGraphEventRecordNodeSetEvent(hNode, event);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphEventWaitNodeGetEvent(void *hNode, void *event_out)
{
	struct hf_slot *slot = hf_enter(320);
	CUresult r = real_cuGraphEventWaitNodeGetEvent(hNode, event_out);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphEventWaitNodeSetEvent(void *hNode, void *event)
{
	struct hf_slot *slot = hf_enter(321);
	CUresult r = real_cuGraphEventWaitNodeSetEvent(hNode, event);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecBatchMemOpNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(331);
	CUresult r = hf_depth > 1 ? real_cuGraphExecBatchMemOpNodeSetParams(hGraphExec, hNode, nodeParams) : 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(hGraphExec, hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecChildGraphNodeSetParams(void *hGraphExec, void *hNode, void *childGraph)
{
	struct hf_slot *slot = hf_enter(355);
	CUresult r = hf_depth > 1 ? real_cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph) : 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(hGraphExec, hNode, childGraph);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecDestroy(void *hGraphExec)
{
	struct hf_slot *slot = hf_enter(364);
	CUresult r = hf_depth > 1 ? real_cuGraphExecDestroy(hGraphExec) : hf_cuGraphExecDestroy(hGraphExec);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecEventRecordNodeSetEvent(void *hGraphExec, void *hNode, void *event)
{
	struct hf_slot *slot = hf_enter(356);
	CUresult r = real_cuGraphExecEventRecordNodeSetEvent(hGraphExec, hNode, event);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecEventWaitNodeSetEvent(void *hGraphExec, void *hNode, void *event)
{
	struct hf_slot *slot = hf_enter(357);
	CUresult r = real_cuGraphExecEventWaitNodeSetEvent(hGraphExec, hNode, event);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecExternalSemaphoresSignalNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(358);
	CUresult r = real_cuGraphExecExternalSemaphoresSignalNodeSetParams(hGraphExec, hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(359);
	CUresult r = real_cuGraphExecExternalSemaphoresWaitNodeSetParams(hGraphExec, hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecGetFlags(void *hGraphExec, void *flags)
{
	struct hf_slot *slot = hf_enter(350);
	CUresult r = real_cuGraphExecGetFlags(hGraphExec, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecHostNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(354);
	CUresult r = real_cuGraphExecHostNodeSetParams(hGraphExec, hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecKernelNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(351);
	CUresult r = hf_depth > 1 ? real_cuGraphExecKernelNodeSetParams(hGraphExec, hNode, nodeParams) : hf_cuGraphExecKernelNodeSetParams(hGraphExec, hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(void *hGraphExec, void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(351);
	CUresult r = hf_depth > 1 ? real_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, nodeParams) : hf_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecMemcpyNodeSetParams(void *hGraphExec, void *hNode, void *copyParams, void *ctx)
{
	struct hf_slot *slot = hf_enter(352);
	CUresult r = hf_depth > 1 ? real_cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, copyParams, ctx) : hf_cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, copyParams, ctx);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecMemsetNodeSetParams(void *hGraphExec, void *hNode, void *memsetParams, void *ctx)
{
	struct hf_slot *slot = hf_enter(353);
	CUresult r = hf_depth > 1 ? real_cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, memsetParams, ctx) : hf_cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, memsetParams, ctx);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(378);
	CUresult r = hf_depth > 1 ? real_cuGraphExecNodeSetParams(hGraphExec, hNode, nodeParams) : hf_cuGraphExecNodeSetParams(hGraphExec, hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecUpdate(void *hGraphExec, void *hGraph, void *hErrorNode_out, void *updateResult_out)
{
	struct hf_slot *slot = hf_enter(366);
	CUresult r = hf_depth > 1 ? real_cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out) : hf_cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExecUpdate_v2(void *hGraphExec, void *hGraph, void *resultInfo)
{
	struct hf_slot *slot = hf_enter(366);
	CUresult r = hf_depth > 1 ? real_cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo) : hf_cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExternalSemaphoresSignalNodeGetParams(void *hNode, void *params_out)
{
	struct hf_slot *slot = hf_enter(323);
	CUresult r = real_cuGraphExternalSemaphoresSignalNodeGetParams(hNode, params_out);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExternalSemaphoresSignalNodeSetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(324);
	CUresult r = real_cuGraphExternalSemaphoresSignalNodeSetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExternalSemaphoresWaitNodeGetParams(void *hNode, void *params_out)
{
	struct hf_slot *slot = hf_enter(326);
	CUresult r = real_cuGraphExternalSemaphoresWaitNodeGetParams(hNode, params_out);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphExternalSemaphoresWaitNodeSetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(327);
	CUresult r = real_cuGraphExternalSemaphoresWaitNodeSetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphGetEdges(void *hGraph, void *from, void *to, void *numEdges)
{
	struct hf_slot *slot = hf_enter(341);
	CUresult r = real_cuGraphGetEdges(hGraph, from, to, numEdges);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphGetEdges_v2(void *hGraph, void *from, void *to, void *edgeData, void *numEdges)
{
	struct hf_slot *slot = hf_enter(341);
	CUresult r = real_cuGraphGetEdges_v2(hGraph, from, to, edgeData, numEdges);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphGetNodes(void *hGraph, void *nodes, void *numNodes)
{
	struct hf_slot *slot = hf_enter(339);
	CUresult r = real_cuGraphGetNodes(hGraph, nodes, numNodes);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphGetRootNodes(void *hGraph, void *rootNodes, void *numRootNodes)
{
	struct hf_slot *slot = hf_enter(340);
	CUresult r = real_cuGraphGetRootNodes(hGraph, rootNodes, numRootNodes);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphHostNodeGetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(311);
	CUresult r = real_cuGraphHostNodeGetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphHostNodeSetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(312);
	CUresult r = real_cuGraphHostNodeSetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphInstantiate(void *phGraphExec, void *hGraph, void *phErrorNode, void *logBuffer, size_t bufferSize)
{
	struct hf_slot *slot = hf_enter(347);
	CUresult r = hf_depth > 1 ? real_cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize) : hf_cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphInstantiateWithFlags(void *phGraphExec, void *hGraph, unsigned long long flags)
{
	struct hf_slot *slot = hf_enter(348);
	CUresult r = hf_depth > 1 ? real_cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags) : hf_cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphInstantiateWithParams(void *phGraphExec, void *hGraph, void *instantiateParams)
{
	struct hf_slot *slot = hf_enter(349);
	CUresult r = hf_depth > 1 ? real_cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams) : hf_cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(void *phGraphExec, void *hGraph, void *instantiateParams)
{
	struct hf_slot *slot = hf_enter(349);
	CUresult r = hf_depth > 1 ? real_cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams) : hf_cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphInstantiate_v2(void *phGraphExec, void *hGraph, void *phErrorNode, void *logBuffer, size_t bufferSize)
{
	struct hf_slot *slot = hf_enter(347);
	CUresult r = hf_depth > 1 ? real_cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize) : hf_cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphKernelNodeCopyAttributes(void *dst, void *src)
{
	struct hf_slot *slot = hf_enter(367);
	CUresult r = real_cuGraphKernelNodeCopyAttributes(dst, src);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphKernelNodeGetAttribute(void *hNode, int attr, void *value_out)
{
	struct hf_slot *slot = hf_enter(368);
	CUresult r = real_cuGraphKernelNodeGetAttribute(hNode, attr, value_out);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphKernelNodeGetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(302);
	CUresult r = real_cuGraphKernelNodeGetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphKernelNodeGetParams_v2(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(302);
	CUresult r = real_cuGraphKernelNodeGetParams_v2(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphKernelNodeSetAttribute(void *hNode, int attr, void *value)
{
	struct hf_slot *slot = hf_enter(369);
	CUresult r = real_cuGraphKernelNodeSetAttribute(hNode, attr, value);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphKernelNodeSetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(303);
	CUresult r = real_cuGraphKernelNodeSetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphKernelNodeSetParams_v2(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(303);
	CUresult r = real_cuGraphKernelNodeSetParams_v2(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuGraphLaunch(void *hGraphExec, void *hStream)
{
	hf_slot->graphs++;
	hf_work_graph(hGraphExec, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuGraphLaunch(hGraphExec, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuGraphLaunch(void *hGraphExec, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(363);
	if (HF_UNLIKELY(!slot))
		return watched_cuGraphLaunch(hGraphExec, hStream);
	slot->graphs++;
	CUresult r = real_cuGraphLaunch(hGraphExec, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuGraphLaunch_ptsz(void *hGraphExec, void *hStream)
{
	hf_slot->graphs++;
	hf_work_graph(hGraphExec, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuGraphLaunch_ptsz(hGraphExec, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuGraphLaunch_ptsz(void *hGraphExec, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(363);
	if (HF_UNLIKELY(!slot))
		return watched_cuGraphLaunch_ptsz(hGraphExec, hStream);
	slot->graphs++;
	CUresult r = real_cuGraphLaunch_ptsz(hGraphExec, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphMemAllocNodeGetParams(void *hNode, void *params_out)
{
	struct hf_slot *slot = hf_enter(333);
	CUresult r = real_cuGraphMemAllocNodeGetParams(hNode, params_out);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphMemFreeNodeGetParams(void *hNode, void *dptr_out)
{
	struct hf_slot *slot = hf_enter(335);
	CUresult r = real_cuGraphMemFreeNodeGetParams(hNode, dptr_out);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphMemcpyNodeGetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(305);
	CUresult r = real_cuGraphMemcpyNodeGetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphMemcpyNodeSetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(306);
	CUresult r = real_cuGraphMemcpyNodeSetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphMemsetNodeGetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(308);
	CUresult r = real_cuGraphMemsetNodeGetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphMemsetNodeSetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(309);
	CUresult r = real_cuGraphMemsetNodeSetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphNodeFindInClone(void *phNode, void *hOriginalNode, void *hClonedGraph)
{
	struct hf_slot *slot = hf_enter(337);
	CUresult r = real_cuGraphNodeFindInClone(phNode, hOriginalNode, hClonedGraph);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphNodeGetDependencies(void *hNode, void *dependencies, void *numDependencies)
{
	struct hf_slot *slot = hf_enter(342);
	CUresult r = real_cuGraphNodeGetDependencies(hNode, dependencies, numDependencies);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphNodeGetDependencies_v2(void *hNode, void *dependencies, void *edgeData, void *numDependencies)
{
	struct hf_slot *slot = hf_enter(342);
	CUresult r = real_cuGraphNodeGetDependencies_v2(hNode, dependencies, edgeData, numDependencies);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphNodeGetDependentNodes(void *hNode, void *dependentNodes, void *numDependentNodes)
{
	struct hf_slot *slot = hf_enter(343);
	CUresult r = real_cuGraphNodeGetDependentNodes(hNode, dependentNodes, numDependentNodes);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphNodeGetDependentNodes_v2(void *hNode, void *dependentNodes, void *edgeData, void *numDependentNodes)
{
	struct hf_slot *slot = hf_enter(343);
	CUresult r = real_cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, edgeData, numDependentNodes);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphNodeGetEnabled(void *hGraphExec, void *hNode, void *isEnabled)
{
	struct hf_slot *slot = hf_enter(361);
	CUresult r = real_cuGraphNodeGetEnabled(hGraphExec, hNode, isEnabled);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphNodeGetType(void *hNode, void *type)
{
	struct hf_slot *slot = hf_enter(338);
	CUresult r = real_cuGraphNodeGetType(hNode, type);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphNodeSetEnabled(void *hGraphExec, void *hNode, unsigned int isEnabled)
{
	struct hf_slot *slot = hf_enter(360);
	CUresult r = real_cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphNodeSetParams(void *hNode, void *nodeParams)
{
	struct hf_slot *slot = hf_enter(377);
	CUresult r = real_cuGraphNodeSetParams(hNode, nodeParams);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphReleaseUserObject(void *graph, void *object, unsigned int count)
{
	struct hf_slot *slot = hf_enter(375);
	CUresult r = real_cuGraphReleaseUserObject(graph, object, count);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphRemoveDependencies(void *hGraph, void *from, void *to, size_t numDependencies)
{
	struct hf_slot *slot = hf_enter(345);
	CUresult r = real_cuGraphRemoveDependencies(hGraph, from, to, numDependencies);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphRemoveDependencies_v2(void *hGraph, void *from, void *to, void *edgeData, size_t numDependencies)
{
	struct hf_slot *slot = hf_enter(345);
	CUresult r = real_cuGraphRemoveDependencies_v2(hGraph, from, to, edgeData, numDependencies);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphRetainUserObject(void *graph, void *object, unsigned int count, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(374);
	CUresult r = real_cuGraphRetainUserObject(graph, object, count, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphUpload(void *hGraphExec, void *hStream)
{
	struct hf_slot *slot = hf_enter(362);
	CUresult r = real_cuGraphUpload(hGraphExec, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphUpload_ptsz(void *hGraphExec, void *hStream)
{
	struct hf_slot *slot = hf_enter(362);
	CUresult r = real_cuGraphUpload_ptsz(hGraphExec, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsEGLRegisterImage(void *pCudaResource, void *image, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(440);
	CUresult r = real_cuGraphicsEGLRegisterImage(pCudaResource, image, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsGLRegisterBuffer(void *pCudaResource, unsigned int buffer, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(435);
	CUresult r = real_cuGraphicsGLRegisterBuffer(pCudaResource, buffer, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsGLRegisterImage(void *pCudaResource, unsigned int image, unsigned int target, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(436);
	CUresult r = real_cuGraphicsGLRegisterImage(pCudaResource, image, target, Flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuGraphicsMapResources(unsigned int count, void *resources, void *hStream)
{
	hf_work_other(433, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = hf_cuGraphicsMapResources(count, resources, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsMapResources(unsigned int count, void *resources, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(433);
	if (HF_UNLIKELY(!slot))
		return watched_cuGraphicsMapResources(count, resources, hStream);
	CUresult r = hf_depth > 1 ? real_cuGraphicsMapResources(count, resources, hStream) : hf_cuGraphicsMapResources(count, resources, HF_STREAM(hStream, CU_STREAM_LEGACY));
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuGraphicsMapResources_ptsz(unsigned int count, void *resources, void *hStream)
{
	hf_work_other(433, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = hf_cuGraphicsMapResources(count, resources, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsMapResources_ptsz(unsigned int count, void *resources, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(433);
	if (HF_UNLIKELY(!slot))
		return watched_cuGraphicsMapResources_ptsz(count, resources, hStream);
	CUresult r = hf_depth > 1 ? real_cuGraphicsMapResources_ptsz(count, resources, hStream) : hf_cuGraphicsMapResources(count, resources, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsResourceGetMappedEglFrame(void *eglFrame, void *resource, unsigned int index, unsigned int mipLevel)
{
	struct hf_slot *slot = hf_enter(441);
	CUresult r = real_cuGraphicsResourceGetMappedEglFrame(eglFrame, resource, index, mipLevel);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsResourceGetMappedMipmappedArray(void *pMipmappedArray, void *resource)
{
	struct hf_slot *slot = hf_enter(430);
	CUresult r = real_cuGraphicsResourceGetMappedMipmappedArray(pMipmappedArray, resource);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsResourceGetMappedPointer_v2(void *pDevPtr, void *pSize, void *resource)
{
	struct hf_slot *slot = hf_enter(431);
	CUresult r = real_cuGraphicsResourceGetMappedPointer_v2(pDevPtr, pSize, resource);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsResourceSetMapFlags(void *resource, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(432);
	CUresult r = real_cuGraphicsResourceSetMapFlags(resource, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsResourceSetMapFlags_v2(void *resource, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(432);
	CUresult r = real_cuGraphicsResourceSetMapFlags_v2(resource, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsSubResourceGetMappedArray(void *pArray, void *resource, unsigned int arrayIndex, unsigned int mipLevel)
{
	struct hf_slot *slot = hf_enter(429);
	CUresult r = real_cuGraphicsSubResourceGetMappedArray(pArray, resource, arrayIndex, mipLevel);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuGraphicsUnmapResources(unsigned int count, void *resources, void *hStream)
{
	hf_work_other(434, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuGraphicsUnmapResources(count, resources, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsUnmapResources(unsigned int count, void *resources, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(434);
	if (HF_UNLIKELY(!slot))
		return watched_cuGraphicsUnmapResources(count, resources, hStream);
	CUresult r = real_cuGraphicsUnmapResources(count, resources, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuGraphicsUnmapResources_ptsz(unsigned int count, void *resources, void *hStream)
{
	hf_work_other(434, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuGraphicsUnmapResources_ptsz(count, resources, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsUnmapResources_ptsz(unsigned int count, void *resources, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(434);
	if (HF_UNLIKELY(!slot))
		return watched_cuGraphicsUnmapResources_ptsz(count, resources, hStream);
	CUresult r = real_cuGraphicsUnmapResources_ptsz(count, resources, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsUnregisterResource(void *resource)
{
	struct hf_slot *slot = hf_enter(428);
	CUresult r = real_cuGraphicsUnregisterResource(resource);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsVDPAURegisterOutputSurface(void *pCudaResource, unsigned int vdpSurface, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(453);
	CUresult r = real_cuGraphicsVDPAURegisterOutputSurface(pCudaResource, vdpSurface, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGraphicsVDPAURegisterVideoSurface(void *pCudaResource, unsigned int vdpSurface, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(452);
	CUresult r = real_cuGraphicsVDPAURegisterVideoSurface(pCudaResource, vdpSurface, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGreenCtxCreate(void *phCtx, void *desc, int dev, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(66);
	CUresult r = hf_depth > 1 ? real_cuGreenCtxCreate(phCtx, desc, dev, flags) : hf_cuGreenCtxCreate(phCtx, desc, dev, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGreenCtxDestroy(void *hCtx)
{
	struct hf_slot *slot = hf_enter(67);
	CUresult r = real_cuGreenCtxDestroy(hCtx);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuGreenCtxStreamCreate(void *phStream, void *greenCtx, unsigned int flags, int priority)
{
	struct hf_slot *slot = hf_enter(77);
	CUresult r = real_cuGreenCtxStreamCreate(phStream, greenCtx, flags, priority);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuImportExternalMemory(void *extMem_out, void *memHandleDesc)
{
	struct hf_slot *slot = hf_enter(267);
	CUresult r = hf_depth > 1 ? real_cuImportExternalMemory(extMem_out, memHandleDesc) : hf_cuImportExternalMemory(extMem_out, memHandleDesc);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuImportExternalSemaphore(void *extSem_out, void *semHandleDesc)
{
	struct hf_slot *slot = hf_enter(271);
	CUresult r = hf_depth > 1 ? real_cuImportExternalSemaphore(extSem_out, semHandleDesc) : hf_cuImportExternalSemaphore(extSem_out, semHandleDesc);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuInit(unsigned int Flags)
{
	if (hf_depth)
		return real_cuInit(Flags);
	return hf_cuInit(Flags);
}

HF_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct hf_slot *slot = hf_enter(135);
	CUresult r = real_cuIpcCloseMemHandle(dptr);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuIpcGetEventHandle(void *pHandle, void *event)
{
	struct hf_slot *slot = hf_enter(131);
	CUresult r = hf_depth > 1 ? real_cuIpcGetEventHandle(pHandle, event) : hf_cuIpcGetEventHandle(pHandle, event);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuIpcGetMemHandle(void *pHandle, CUdeviceptr dptr)
{
	struct hf_slot *slot = hf_enter(133);
	CUresult r = hf_depth > 1 ? real_cuIpcGetMemHandle(pHandle, dptr) : hf_cuIpcGetMemHandle(pHandle, dptr);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuIpcOpenEventHandle(void *phEvent, CUipcEventHandle handle)
{
	struct hf_slot *slot = hf_enter(132);
	CUresult r = hf_depth > 1 ? real_cuIpcOpenEventHandle(phEvent, handle) : hf_cuIpcOpenEventHandle(phEvent, handle);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuIpcOpenMemHandle(void *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(134);
	CUresult r = real_cuIpcOpenMemHandle(pdptr, handle, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuIpcOpenMemHandle_v2(void *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(134);
	CUresult r = hf_depth > 1 ? real_cuIpcOpenMemHandle_v2(pdptr, handle, Flags) : hf_cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuKernelGetFunction(void *pFunc, void *kernel)
{
	struct hf_slot *slot = hf_enter(103);
	CUresult r = hf_depth > 1 ? real_cuKernelGetFunction(pFunc, kernel) : hf_cuKernelGetFunction(pFunc, kernel);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuLaunch(void *f)
{
	hf_slot->launches++;
	hf_work_other(296, CU_STREAM_LEGACY);
	CUresult r = real_cuLaunch(f);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuLaunch(void *f)
{
	struct hf_slot *slot = hf_enter_work(296);
	if (HF_UNLIKELY(!slot))
		return watched_cuLaunch(f);
	slot->launches++;
	CUresult r = real_cuLaunch(f);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuLaunchCooperativeKernel(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams)
{
	hf_slot->launches++;
	hf_work_launch(f, &(struct hf_dims){ { gridDimX, gridDimY, gridDimZ }, { blockDimX, blockDimY, blockDimZ }, { 1, 1, 1 } }, sharedMemBytes, HF_STREAM(hStream, CU_STREAM_LEGACY), kernelParams, NULL, HF_REC_COOPERATIVE_FLAG);
	CUresult r = real_cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuLaunchCooperativeKernel(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams)
{
	struct hf_slot *slot = hf_enter_work(287);
	if (HF_UNLIKELY(!slot))
		return watched_cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
	slot->launches++;
	CUresult r = real_cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuLaunchCooperativeKernelMultiDevice(void *launchParamsList, unsigned int numDevices, unsigned int flags)
{
	hf_slot->launches++;
	hf_work_other(288, CU_STREAM_LEGACY);
	CUresult r = real_cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(void *launchParamsList, unsigned int numDevices, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(288);
	if (HF_UNLIKELY(!slot))
		return watched_cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags);
	slot->launches++;
	CUresult r = real_cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuLaunchCooperativeKernel_ptsz(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams)
{
	hf_slot->launches++;
	hf_work_launch(f, &(struct hf_dims){ { gridDimX, gridDimY, gridDimZ }, { blockDimX, blockDimY, blockDimZ }, { 1, 1, 1 } }, sharedMemBytes, HF_STREAM(hStream, CU_STREAM_PER_THREAD), kernelParams, NULL, HF_REC_COOPERATIVE_FLAG);
	CUresult r = real_cuLaunchCooperativeKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuLaunchCooperativeKernel_ptsz(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams)
{
	struct hf_slot *slot = hf_enter_work(287);
	if (HF_UNLIKELY(!slot))
		return watched_cuLaunchCooperativeKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
	slot->launches++;
	CUresult r = real_cuLaunchCooperativeKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuLaunchGrid(void *f, int grid_width, int grid_height)
{
	hf_slot->launches++;
	hf_work_other(297, CU_STREAM_LEGACY);
	CUresult r = real_cuLaunchGrid(f, grid_width, grid_height);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuLaunchGrid(void *f, int grid_width, int grid_height)
{
	struct hf_slot *slot = hf_enter_work(297);
	if (HF_UNLIKELY(!slot))
		return watched_cuLaunchGrid(f, grid_width, grid_height);
	slot->launches++;
	CUresult r = real_cuLaunchGrid(f, grid_width, grid_height);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuLaunchGridAsync(void *f, int grid_width, int grid_height, void *hStream)
{
	hf_slot->launches++;
	hf_work_other(298, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuLaunchGridAsync(f, grid_width, grid_height, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuLaunchGridAsync(void *f, int grid_width, int grid_height, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(298);
	if (HF_UNLIKELY(!slot))
		return watched_cuLaunchGridAsync(f, grid_width, grid_height, hStream);
	slot->launches++;
	CUresult r = real_cuLaunchGridAsync(f, grid_width, grid_height, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuLaunchHostFunc(void *hStream, void *fn, void *userData)
{
	struct hf_slot *slot = hf_enter(289);
	CUresult r = real_cuLaunchHostFunc(hStream, fn, userData);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuLaunchHostFunc_ptsz(void *hStream, void *fn, void *userData)
{
	struct hf_slot *slot = hf_enter(289);
	CUresult r = real_cuLaunchHostFunc_ptsz(hStream, fn, userData);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuLaunchKernel(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams, void *extra)
{
	hf_slot->launches++;
	hf_work_launch(f, &(struct hf_dims){ { gridDimX, gridDimY, gridDimZ }, { blockDimX, blockDimY, blockDimZ }, { 1, 1, 1 } }, sharedMemBytes, HF_STREAM(hStream, CU_STREAM_LEGACY), kernelParams, extra, 0);
	CUresult r = real_cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuLaunchKernel(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams, void *extra)
{
	struct hf_slot *slot = hf_enter_work(285);
	if (HF_UNLIKELY(!slot))
		return watched_cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
	slot->launches++;
	CUresult r = real_cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuLaunchKernelEx(void *config, void *f, void *kernelParams, void *extra)
{
	hf_slot->launches++;
	hf_work_launch_ex(config, f, kernelParams, extra, CU_STREAM_LEGACY);
	CUresult r = real_cuLaunchKernelEx(config, f, kernelParams, extra);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuLaunchKernelEx(void *config, void *f, void *kernelParams, void *extra)
{
	struct hf_slot *slot = hf_enter_work(286);
	if (HF_UNLIKELY(!slot))
		return watched_cuLaunchKernelEx(config, f, kernelParams, extra);
	slot->launches++;
	CUresult r = real_cuLaunchKernelEx(config, f, kernelParams, extra);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuLaunchKernelEx_ptsz(void *config, void *f, void *kernelParams, void *extra)
{
	hf_slot->launches++;
	hf_work_launch_ex(config, f, kernelParams, extra, CU_STREAM_PER_THREAD);
	CUresult r = real_cuLaunchKernelEx_ptsz(config, f, kernelParams, extra);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuLaunchKernelEx_ptsz(void *config, void *f, void *kernelParams, void *extra)
{
	struct hf_slot *slot = hf_enter_work(286);
	if (HF_UNLIKELY(!slot))
		return watched_cuLaunchKernelEx_ptsz(config, f, kernelParams, extra);
	slot->launches++;
	CUresult r = real_cuLaunchKernelEx_ptsz(config, f, kernelParams, extra);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuLaunchKernel_ptsz(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams, void *extra)
{
	hf_slot->launches++;
	hf_work_launch(f, &(struct hf_dims){ { gridDimX, gridDimY, gridDimZ }, { blockDimX, blockDimY, blockDimZ }, { 1, 1, 1 } }, sharedMemBytes, HF_STREAM(hStream, CU_STREAM_PER_THREAD), kernelParams, extra, 0);
	CUresult r = real_cuLaunchKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuLaunchKernel_ptsz(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams, void *extra)
{
	struct hf_slot *slot = hf_enter_work(285);
	if (HF_UNLIKELY(!slot))
		return watched_cuLaunchKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
	slot->launches++;
	CUresult r = real_cuLaunchKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuLibraryEnumerateKernels(void *kernels, unsigned int numKernels, void *lib)
{
	if (hf_depth)
		return real_cuLibraryEnumerateKernels(kernels, numKernels, lib);
	return hf_cuLibraryEnumerateKernels(kernels, numKernels, lib);
}

HF_EXPORT CUresult cuLibraryGetGlobal(void *dptr, void *bytes, void *library, void *name)
{
	struct hf_slot *slot = hf_enter(105);
	CUresult r = hf_depth > 1 ? real_cuLibraryGetGlobal(dptr, bytes, library, name) : hf_cuLibraryGetGlobal(dptr, bytes, library, name);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuLibraryGetKernel(void *pKernel, void *library, void *name)
{
	if (hf_depth)
		return real_cuLibraryGetKernel(pKernel, library, name);
	return hf_cuLibraryGetKernel(pKernel, library, name);
}

HF_EXPORT CUresult cuLibraryGetManaged(void *dptr, void *bytes, void *library, void *name)
{
	if (hf_depth)
		return real_cuLibraryGetManaged(dptr, bytes, library, name);
	return hf_cuLibraryGetManaged(dptr, bytes, library, name);
}

HF_EXPORT CUresult cuLibraryGetModule(void *pMod, void *library)
{
	struct hf_slot *slot = hf_enter(102);
	CUresult r = hf_depth > 1 ? real_cuLibraryGetModule(pMod, library) : hf_cuLibraryGetModule(pMod, library);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuLibraryLoadData(void *library, void *code, void *jitOptions, void *jitOptionsValues, unsigned int numJitOptions, void *libraryOptions, void *libraryOptionValues, unsigned int numLibraryOptions)
{
	struct hf_slot *slot = hf_enter(96);
	CUresult r = hf_depth > 1 ? real_cuLibraryLoadData(library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues, numLibraryOptions) : hf_cuLibraryLoadData(library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues, numLibraryOptions);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuLibraryLoadFromFile(void *library, void *fileName, void *jitOptions, void *jitOptionsValues, unsigned int numJitOptions, void *libraryOptions, void *libraryOptionValues, unsigned int numLibraryOptions)
{
	struct hf_slot *slot = hf_enter(97);
	CUresult r = hf_depth > 1 ? real_cuLibraryLoadFromFile(library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues, numLibraryOptions) : hf_cuLibraryLoadFromFile(library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues, numLibraryOptions);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuLibraryUnload(void *library)
{
	if (hf_depth)
		return real_cuLibraryUnload(library);
	return hf_cuLibraryUnload(library);
}

HF_EXPORT CUresult cuLinkComplete(void *state, void *cubinOut, void *sizeOut)
{
	struct hf_slot *slot = hf_enter(94);
	CUresult r = real_cuLinkComplete(state, cubinOut, sizeOut);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	struct hf_slot *slot = hf_enter(189);
	CUresult r = real_cuMemAddressFree(ptr, size);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAddressReserve(void *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
	struct hf_slot *slot = hf_enter(188);
	CUresult r = real_cuMemAddressReserve(ptr, size, alignment, addr, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, int advice, int device)
{
	struct hf_slot *slot = hf_enter(226);
	CUresult r = real_cuMemAdvise(devPtr, count, advice, device);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, int advice, CUmemLocation location)
{
	struct hf_slot *slot = hf_enter(226);
	CUresult r = real_cuMemAdvise_v2(devPtr, count, advice, location);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAllocAsync(void *dptr, size_t bytesize, void *hStream)
{
	struct hf_slot *slot = hf_enter(202);
	CUresult r = hf_depth > 1 ? real_cuMemAllocAsync(dptr, bytesize, hStream) : hf_cuMemAllocAsync(dptr, bytesize, HF_STREAM(hStream, CU_STREAM_LEGACY));
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_alloc(HF_MEM_ASYNC, *(CUdeviceptr *)dptr, bytesize);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAllocAsync_ptsz(void *dptr, size_t bytesize, void *hStream)
{
	struct hf_slot *slot = hf_enter(202);
	CUresult r = hf_depth > 1 ? real_cuMemAllocAsync_ptsz(dptr, bytesize, hStream) : hf_cuMemAllocAsync(dptr, bytesize, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_alloc(HF_MEM_ASYNC, *(CUdeviceptr *)dptr, bytesize);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAllocFromPoolAsync(void *dptr, size_t bytesize, void *pool, void *hStream)
{
	struct hf_slot *slot = hf_enter(204);
	CUresult r = hf_depth > 1 ? real_cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream) : hf_cuMemAllocFromPoolAsync(dptr, bytesize, pool, HF_STREAM(hStream, CU_STREAM_LEGACY));
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_alloc(HF_MEM_ASYNC, *(CUdeviceptr *)dptr, bytesize);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(void *dptr, size_t bytesize, void *pool, void *hStream)
{
	struct hf_slot *slot = hf_enter(204);
	CUresult r = hf_depth > 1 ? real_cuMemAllocFromPoolAsync_ptsz(dptr, bytesize, pool, hStream) : hf_cuMemAllocFromPoolAsync(dptr, bytesize, pool, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_alloc(HF_MEM_ASYNC, *(CUdeviceptr *)dptr, bytesize);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAllocHost_v2(void *pp, size_t bytesize)
{
	struct hf_slot *slot = hf_enter(119);
	CUresult r = real_cuMemAllocHost_v2(pp, bytesize);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_alloc(HF_MEM_HOST, *(CUdeviceptr *)pp, bytesize);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAllocManaged(void *dptr, size_t bytesize, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(124);
	CUresult r = hf_depth > 1 ? real_cuMemAllocManaged(dptr, bytesize, flags) : hf_cuMemAllocManaged(dptr, bytesize, flags);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_alloc(HF_MEM_MANAGED, *(CUdeviceptr *)dptr, bytesize);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAllocPitch_v2(void *dptr, void *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes)
{
	struct hf_slot *slot = hf_enter(116);
	CUresult r = hf_depth > 1 ? real_cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes) : hf_cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_alloc(HF_MEM_LINEAR, *(CUdeviceptr *)dptr, *(size_t *)pPitch * Height);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemAlloc_v2(void *dptr, size_t bytesize)
{
	struct hf_slot *slot = hf_enter(115);
	CUresult r = hf_depth > 1 ? real_cuMemAlloc_v2(dptr, bytesize) : hf_cuMemAlloc_v2(dptr, bytesize);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_alloc(HF_MEM_LINEAR, *(CUdeviceptr *)dptr, bytesize);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemBatchDecompressAsync(void *paramsArray, size_t count, unsigned int flags, void *errorIndex, void *stream)
{
	hf_slot->copies++;
	hf_work_other(162, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemBatchDecompressAsync(paramsArray, count, flags, errorIndex, stream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemBatchDecompressAsync(void *paramsArray, size_t count, unsigned int flags, void *errorIndex, void *stream)
{
	struct hf_slot *slot = hf_enter_work(162);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemBatchDecompressAsync(paramsArray, count, flags, errorIndex, stream);
	slot->copies++;
	CUresult r = real_cuMemBatchDecompressAsync(paramsArray, count, flags, errorIndex, stream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemBatchDecompressAsync_ptsz(void *paramsArray, size_t count, unsigned int flags, void *errorIndex, void *stream)
{
	hf_slot->copies++;
	hf_work_other(162, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemBatchDecompressAsync_ptsz(paramsArray, count, flags, errorIndex, stream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemBatchDecompressAsync_ptsz(void *paramsArray, size_t count, unsigned int flags, void *errorIndex, void *stream)
{
	struct hf_slot *slot = hf_enter_work(162);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemBatchDecompressAsync_ptsz(paramsArray, count, flags, errorIndex, stream);
	slot->copies++;
	CUresult r = real_cuMemBatchDecompressAsync_ptsz(paramsArray, count, flags, errorIndex, stream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemCreate(void *handle, size_t size, void *prop, unsigned long long flags)
{
	struct hf_slot *slot = hf_enter(190);
	CUresult r = hf_depth > 1 ? real_cuMemCreate(handle, size, prop, flags) : hf_cuMemCreate(handle, size, prop, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemDiscardAndPrefetchBatchAsync(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream)
{
	hf_work_other(231, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemDiscardAndPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemDiscardAndPrefetchBatchAsync(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(231);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemDiscardAndPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
	CUresult r = real_cuMemDiscardAndPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemDiscardAndPrefetchBatchAsync_ptsz(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream)
{
	hf_work_other(231, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemDiscardAndPrefetchBatchAsync_ptsz(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(231);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemDiscardAndPrefetchBatchAsync_ptsz(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
	CUresult r = real_cuMemDiscardAndPrefetchBatchAsync_ptsz(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemDiscardBatchAsync(void *dptrs, void *sizes, size_t count, unsigned long long flags, void *hStream)
{
	hf_work_other(230, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemDiscardBatchAsync(void *dptrs, void *sizes, size_t count, unsigned long long flags, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(230);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
	CUresult r = real_cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemDiscardBatchAsync_ptsz(void *dptrs, void *sizes, size_t count, unsigned long long flags, void *hStream)
{
	hf_work_other(230, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemDiscardBatchAsync_ptsz(dptrs, sizes, count, flags, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemDiscardBatchAsync_ptsz(void *dptrs, void *sizes, size_t count, unsigned long long flags, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(230);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemDiscardBatchAsync_ptsz(dptrs, sizes, count, flags, hStream);
	CUresult r = real_cuMemDiscardBatchAsync_ptsz(dptrs, sizes, count, flags, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemExportToShareableHandle(void *shareableHandle, CUhandle handle, int handleType, unsigned long long flags)
{
	struct hf_slot *slot = hf_enter(197);
	CUresult r = hf_depth > 1 ? real_cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags) : hf_cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemFreeAsync(CUdeviceptr dptr, void *hStream)
{
	struct hf_slot *slot = hf_enter(203);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1)
		hf_note_free(dptr, 0);
	CUresult r = hf_depth > 1 ? real_cuMemFreeAsync(dptr, hStream) : hf_cuMemFreeAsync(dptr, HF_STREAM(hStream, CU_STREAM_LEGACY));
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, void *hStream)
{
	struct hf_slot *slot = hf_enter(203);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1)
		hf_note_free(dptr, 0);
	CUresult r = hf_depth > 1 ? real_cuMemFreeAsync_ptsz(dptr, hStream) : hf_cuMemFreeAsync(dptr, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemFreeHost(void *p)
{
	struct hf_slot *slot = hf_enter(120);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1)
		hf_note_free((CUdeviceptr)(uintptr_t)p, 0);
	CUresult r = real_cuMemFreeHost(p);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct hf_slot *slot = hf_enter(117);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1)
		hf_note_free(dptr, 0);
	CUresult r = hf_depth > 1 ? real_cuMemFree_v2(dptr) : hf_cuMemFree_v2(dptr);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemGetAccess(void *flags, void *location, CUdeviceptr ptr)
{
	struct hf_slot *slot = hf_enter(196);
	CUresult r = real_cuMemGetAccess(flags, location, ptr);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemGetAddressRange_v2(void *pbase, void *psize, CUdeviceptr dptr)
{
	struct hf_slot *slot = hf_enter(118);
	CUresult r = hf_depth > 1 ? real_cuMemGetAddressRange_v2(pbase, psize, dptr) : hf_cuMemGetAddressRange_v2(pbase, psize, dptr);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemGetAllocationGranularity(void *granularity, void *prop, int option)
{
	struct hf_slot *slot = hf_enter(199);
	CUresult r = real_cuMemGetAllocationGranularity(granularity, prop, option);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(void *prop, CUhandle handle)
{
	struct hf_slot *slot = hf_enter(200);
	CUresult r = hf_depth > 1 ? real_cuMemGetAllocationPropertiesFromHandle(prop, handle) : hf_cuMemGetAllocationPropertiesFromHandle(prop, handle);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemGetDefaultMemPool(void *pool_out, void *location, int type)
{
	struct hf_slot *slot = hf_enter(216);
	CUresult r = real_cuMemGetDefaultMemPool(pool_out, location, type);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, int handleType, unsigned long long flags)
{
	struct hf_slot *slot = hf_enter(130);
	CUresult r = hf_depth > 1 ? real_cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags) : hf_cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemGetInfo_v2(void *free, void *total)
{
	struct hf_slot *slot = hf_enter(114);
	CUresult r = hf_depth > 1 ? real_cuMemGetInfo_v2(free, total) : hf_cuMemGetInfo_v2(free, total);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemGetMemPool(void *pool, void *location, int type)
{
	struct hf_slot *slot = hf_enter(217);
	CUresult r = real_cuMemGetMemPool(pool, location, type);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemHostAlloc(void *pp, size_t bytesize, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(121);
	CUresult r = real_cuMemHostAlloc(pp, bytesize, Flags);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_alloc(HF_MEM_HOST, *(CUdeviceptr *)pp, bytesize);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(125);
	CUresult r = real_cuMemHostRegister(p, bytesize, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(125);
	CUresult r = hf_depth > 1 ? real_cuMemHostRegister_v2(p, bytesize, Flags) : hf_cuMemHostRegister_v2(p, bytesize, Flags);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_alloc(HF_MEM_HOST, (CUdeviceptr)(uintptr_t)p, bytesize);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemHostUnregister(void *p)
{
	struct hf_slot *slot = hf_enter(126);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1)
		hf_note_free((CUdeviceptr)(uintptr_t)p, 0);
	CUresult r = hf_depth > 1 ? real_cuMemHostUnregister(p) : hf_cuMemHostUnregister(p);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemImportFromShareableHandle(void *handle, void *osHandle, int shHandleType)
{
	struct hf_slot *slot = hf_enter(198);
	CUresult r = hf_depth > 1 ? real_cuMemImportFromShareableHandle(handle, osHandle, shHandleType) : hf_cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUhandle handle, unsigned long long flags)
{
	struct hf_slot *slot = hf_enter(192);
	CUresult r = hf_depth > 1 ? real_cuMemMap(ptr, size, offset, handle, flags) : hf_cuMemMap(ptr, size, offset, handle, flags);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1 && r == CUDA_SUCCESS)
		hf_note_map(ptr, size, offset);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemMapArrayAsync(void *mapInfoList, unsigned int count, void *hStream)
{
	hf_work_other(193, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemMapArrayAsync(mapInfoList, count, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemMapArrayAsync(void *mapInfoList, unsigned int count, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(193);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemMapArrayAsync(mapInfoList, count, hStream);
	CUresult r = real_cuMemMapArrayAsync(mapInfoList, count, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemMapArrayAsync_ptsz(void *mapInfoList, unsigned int count, void *hStream)
{
	hf_work_other(193, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemMapArrayAsync_ptsz(mapInfoList, count, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemMapArrayAsync_ptsz(void *mapInfoList, unsigned int count, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(193);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemMapArrayAsync_ptsz(mapInfoList, count, hStream);
	CUresult r = real_cuMemMapArrayAsync_ptsz(mapInfoList, count, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolCreate(void *pool, void *poolProps)
{
	struct hf_slot *slot = hf_enter(205);
	CUresult r = hf_depth > 1 ? real_cuMemPoolCreate(pool, poolProps) : hf_cuMemPoolCreate(pool, poolProps);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolDestroy(void *pool)
{
	struct hf_slot *slot = hf_enter(206);
	CUresult r = hf_depth > 1 ? real_cuMemPoolDestroy(pool) : hf_cuMemPoolDestroy(pool);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolExportPointer(void *shareData_out, CUdeviceptr ptr)
{
	struct hf_slot *slot = hf_enter(214);
	CUresult r = real_cuMemPoolExportPointer(shareData_out, ptr);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolExportToShareableHandle(void *handle_out, void *pool, int handleType, unsigned long long flags)
{
	struct hf_slot *slot = hf_enter(212);
	CUresult r = hf_depth > 1 ? real_cuMemPoolExportToShareableHandle(handle_out, pool, handleType, flags) : hf_cuMemPoolExportToShareableHandle(handle_out, pool, handleType, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolGetAccess(void *flags, void *memPool, void *location)
{
	struct hf_slot *slot = hf_enter(211);
	CUresult r = real_cuMemPoolGetAccess(flags, memPool, location);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolGetAttribute(void *pool, int attr, void *value)
{
	struct hf_slot *slot = hf_enter(209);
	CUresult r = hf_depth > 1 ? real_cuMemPoolGetAttribute(pool, attr, value) : hf_cuMemPoolGetAttribute(pool, attr, value);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolImportFromShareableHandle(void *pool_out, void *handle, int handleType, unsigned long long flags)
{
	struct hf_slot *slot = hf_enter(213);
	CUresult r = hf_depth > 1 ? real_cuMemPoolImportFromShareableHandle(pool_out, handle, handleType, flags) : 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(pool_out, handle, handleType, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolImportPointer(void *ptr_out, void *pool, void *shareData)
{
	struct hf_slot *slot = hf_enter(215);
	CUresult r = real_cuMemPoolImportPointer(ptr_out, pool, shareData);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolSetAccess(void *pool, void *map, size_t count)
{
	struct hf_slot *slot = hf_enter(210);
	CUresult r = hf_depth > 1 ? real_cuMemPoolSetAccess(pool, map, count) : hf_cuMemPoolSetAccess(pool, map, count);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolSetAttribute(void *pool, int attr, void *value)
{
	struct hf_slot *slot = hf_enter(208);
	CUresult r = hf_depth > 1 ? real_cuMemPoolSetAttribute(pool, attr, value) : hf_cuMemPoolSetAttribute(pool, attr, value);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPoolTrimTo(void *pool, size_t minBytesToKeep)
{
	struct hf_slot *slot = hf_enter(207);
	CUresult r = hf_depth > 1 ? real_cuMemPoolTrimTo(pool, minBytesToKeep) : hf_cuMemPoolTrimTo(pool, minBytesToKeep);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, int dstDevice, void *hStream)
{
	struct hf_slot *slot = hf_enter(225);
	CUresult r = real_cuMemPrefetchAsync(devPtr, count, dstDevice, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, int dstDevice, void *hStream)
{
	struct hf_slot *slot = hf_enter(225);
	CUresult r = real_cuMemPrefetchAsync_ptsz(devPtr, count, dstDevice, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, void *hStream)
{
	struct hf_slot *slot = hf_enter(225);
	CUresult r = real_cuMemPrefetchAsync_v2(devPtr, count, location, flags, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, void *hStream)
{
	struct hf_slot *slot = hf_enter(225);
	CUresult r = real_cuMemPrefetchAsync_v2_ptsz(devPtr, count, location, flags, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPrefetchBatchAsync(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream)
{
	struct hf_slot *slot = hf_enter(229);
	CUresult r = real_cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemPrefetchBatchAsync_ptsz(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream)
{
	struct hf_slot *slot = hf_enter(229);
	CUresult r = real_cuMemPrefetchBatchAsync_ptsz(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, int attribute, CUdeviceptr devPtr, size_t count)
{
	struct hf_slot *slot = hf_enter(227);
	CUresult r = real_cuMemRangeGetAttribute(data, dataSize, attribute, devPtr, count);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemRangeGetAttributes(void *data, void *dataSizes, void *attributes, size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
	struct hf_slot *slot = hf_enter(228);
	CUresult r = real_cuMemRangeGetAttributes(data, dataSizes, attributes, numAttributes, devPtr, count);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemRelease(CUhandle handle)
{
	struct hf_slot *slot = hf_enter(191);
	CUresult r = hf_depth > 1 ? real_cuMemRelease(handle) : hf_cuMemRelease(handle);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemRetainAllocationHandle(void *handle, void *addr)
{
	struct hf_slot *slot = hf_enter(201);
	CUresult r = hf_depth > 1 ? real_cuMemRetainAllocationHandle(handle, addr) : hf_cuMemRetainAllocationHandle(handle, addr);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, void *desc, size_t count)
{
	struct hf_slot *slot = hf_enter(195);
	CUresult r = hf_depth > 1 ? real_cuMemSetAccess(ptr, size, desc, count) : hf_cuMemSetAccess(ptr, size, desc, count);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemSetMemPool(void *location, int type, void *pool)
{
	struct hf_slot *slot = hf_enter(218);
	CUresult r = real_cuMemSetMemPool(location, type, pool);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct hf_slot *slot = hf_enter(194);
	if (HF_UNLIKELY(hf_tapped) && hf_depth == 1)
		hf_note_free(ptr, size);
	CUresult r = hf_depth > 1 ? real_cuMemUnmap(ptr, size) : hf_cuMemUnmap(ptr, size);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(136, 0, (uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src, ByteCount, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpy(dst, src, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(136);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy(dst, src, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpy(dst, src, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy2DAsync_v2(void *pCopy, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy2d(157, pCopy, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpy2DAsync_v2(pCopy, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy2DAsync_v2(void *pCopy, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(157);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy2DAsync_v2(pCopy, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpy2DAsync_v2(pCopy, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy2DAsync_v2_ptsz(void *pCopy, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy2d(157, pCopy, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpy2DAsync_v2_ptsz(pCopy, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy2DAsync_v2_ptsz(void *pCopy, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(157);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy2DAsync_v2_ptsz(pCopy, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpy2DAsync_v2_ptsz(pCopy, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy2DUnaligned_v2(void *pCopy)
{
	hf_slot->copies++;
	hf_work_copy2d(147, pCopy, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpy2DUnaligned_v2(pCopy);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy2DUnaligned_v2(void *pCopy)
{
	struct hf_slot *slot = hf_enter_work(147);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy2DUnaligned_v2(pCopy);
	slot->copies++;
	CUresult r = real_cuMemcpy2DUnaligned_v2(pCopy);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy2DUnaligned_v2_ptds(void *pCopy)
{
	hf_slot->copies++;
	hf_work_copy2d(147, pCopy, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpy2DUnaligned_v2_ptds(pCopy);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy2DUnaligned_v2_ptds(void *pCopy)
{
	struct hf_slot *slot = hf_enter_work(147);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy2DUnaligned_v2_ptds(pCopy);
	slot->copies++;
	CUresult r = real_cuMemcpy2DUnaligned_v2_ptds(pCopy);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy2D_v2(void *pCopy)
{
	hf_slot->copies++;
	hf_work_copy2d(146, pCopy, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpy2D_v2(pCopy);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy2D_v2(void *pCopy)
{
	struct hf_slot *slot = hf_enter_work(146);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy2D_v2(pCopy);
	slot->copies++;
	CUresult r = real_cuMemcpy2D_v2(pCopy);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy2D_v2_ptds(void *pCopy)
{
	hf_slot->copies++;
	hf_work_copy2d(146, pCopy, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpy2D_v2_ptds(pCopy);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy2D_v2_ptds(void *pCopy)
{
	struct hf_slot *slot = hf_enter_work(146);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy2D_v2_ptds(pCopy);
	slot->copies++;
	CUresult r = real_cuMemcpy2D_v2_ptds(pCopy);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3DAsync_v2(void *pCopy, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy3d(158, pCopy, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpy3DAsync_v2(pCopy, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3DAsync_v2(void *pCopy, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(158);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3DAsync_v2(pCopy, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpy3DAsync_v2(pCopy, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3DAsync_v2_ptsz(void *pCopy, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy3d(158, pCopy, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpy3DAsync_v2_ptsz(pCopy, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3DAsync_v2_ptsz(void *pCopy, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(158);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3DAsync_v2_ptsz(pCopy, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpy3DAsync_v2_ptsz(pCopy, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3DBatchAsync(size_t numOps, void *opList, void *failIdx, unsigned long long flags, void *hStream)
{
	hf_slot->copies++;
	hf_work_other(161, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpy3DBatchAsync(numOps, opList, failIdx, flags, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3DBatchAsync(size_t numOps, void *opList, void *failIdx, unsigned long long flags, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(161);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3DBatchAsync(numOps, opList, failIdx, flags, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpy3DBatchAsync(numOps, opList, failIdx, flags, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3DBatchAsync_ptsz(size_t numOps, void *opList, void *failIdx, unsigned long long flags, void *hStream)
{
	hf_slot->copies++;
	hf_work_other(161, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpy3DBatchAsync_ptsz(numOps, opList, failIdx, flags, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3DBatchAsync_ptsz(size_t numOps, void *opList, void *failIdx, unsigned long long flags, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(161);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3DBatchAsync_ptsz(numOps, opList, failIdx, flags, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpy3DBatchAsync_ptsz(numOps, opList, failIdx, flags, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3DBatchAsync_v2(size_t numOps, void *opList, unsigned long long flags, void *hStream)
{
	hf_slot->copies++;
	hf_work_other(161, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, void *opList, unsigned long long flags, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(161);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3DBatchAsync_v2_ptsz(size_t numOps, void *opList, unsigned long long flags, void *hStream)
{
	hf_slot->copies++;
	hf_work_other(161, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpy3DBatchAsync_v2_ptsz(numOps, opList, flags, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3DBatchAsync_v2_ptsz(size_t numOps, void *opList, unsigned long long flags, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(161);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3DBatchAsync_v2_ptsz(numOps, opList, flags, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpy3DBatchAsync_v2_ptsz(numOps, opList, flags, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3DPeer(void *pCopy)
{
	hf_slot->copies++;
	hf_work_copy3d(149, pCopy, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpy3DPeer(pCopy);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3DPeer(void *pCopy)
{
	struct hf_slot *slot = hf_enter_work(149);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3DPeer(pCopy);
	slot->copies++;
	CUresult r = real_cuMemcpy3DPeer(pCopy);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3DPeerAsync(void *pCopy, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy3d(159, pCopy, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpy3DPeerAsync(pCopy, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3DPeerAsync(void *pCopy, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(159);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3DPeerAsync(pCopy, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpy3DPeerAsync(pCopy, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3DPeerAsync_ptsz(void *pCopy, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy3d(159, pCopy, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpy3DPeerAsync_ptsz(pCopy, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3DPeerAsync_ptsz(void *pCopy, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(159);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3DPeerAsync_ptsz(pCopy, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpy3DPeerAsync_ptsz(pCopy, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3DPeer_ptds(void *pCopy)
{
	hf_slot->copies++;
	hf_work_copy3d(149, pCopy, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpy3DPeer_ptds(pCopy);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3DPeer_ptds(void *pCopy)
{
	struct hf_slot *slot = hf_enter_work(149);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3DPeer_ptds(pCopy);
	slot->copies++;
	CUresult r = real_cuMemcpy3DPeer_ptds(pCopy);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3D_v2(void *pCopy)
{
	hf_slot->copies++;
	hf_work_copy3d(148, pCopy, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpy3D_v2(pCopy);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3D_v2(void *pCopy)
{
	struct hf_slot *slot = hf_enter_work(148);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3D_v2(pCopy);
	slot->copies++;
	CUresult r = real_cuMemcpy3D_v2(pCopy);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy3D_v2_ptds(void *pCopy)
{
	hf_slot->copies++;
	hf_work_copy3d(148, pCopy, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpy3D_v2_ptds(pCopy);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy3D_v2_ptds(void *pCopy)
{
	struct hf_slot *slot = hf_enter_work(148);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy3D_v2_ptds(pCopy);
	slot->copies++;
	CUresult r = real_cuMemcpy3D_v2_ptds(pCopy);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(150, 0, (uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src, ByteCount, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpyAsync(dst, src, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(150);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyAsync(dst, src, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyAsync(dst, src, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(150, 0, (uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src, ByteCount, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpyAsync_ptsz(dst, src, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(150);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyAsync_ptsz(dst, src, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyAsync_ptsz(dst, src, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyAtoA_v2(void *dstArray, size_t dstOffset, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(145, HF_REC_DSTARRAY_FLAG | HF_REC_SRCARRAY_FLAG, 0, 0, ByteCount, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyAtoA_v2(void *dstArray, size_t dstOffset, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(145);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyAtoA_v2_ptds(void *dstArray, size_t dstOffset, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(145, HF_REC_DSTARRAY_FLAG | HF_REC_SRCARRAY_FLAG, 0, 0, ByteCount, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpyAtoA_v2_ptds(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyAtoA_v2_ptds(void *dstArray, size_t dstOffset, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(145);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyAtoA_v2_ptds(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyAtoA_v2_ptds(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyAtoD_v2(CUdeviceptr dstDevice, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(142, HF_REC_SRCARRAY_FLAG, (uint64_t)(uintptr_t)dstDevice, 0, ByteCount, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(142);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyAtoD_v2_ptds(CUdeviceptr dstDevice, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(142, HF_REC_SRCARRAY_FLAG, (uint64_t)(uintptr_t)dstDevice, 0, ByteCount, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpyAtoD_v2_ptds(dstDevice, srcArray, srcOffset, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr dstDevice, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(142);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyAtoD_v2_ptds(dstDevice, srcArray, srcOffset, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyAtoD_v2_ptds(dstDevice, srcArray, srcOffset, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyAtoHAsync_v2(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(156, HF_REC_DSTHOST_FLAG | HF_REC_SRCARRAY_FLAG, (uint64_t)(uintptr_t)dstHost, 0, ByteCount, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyAtoHAsync_v2(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(156);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyAtoHAsync_v2_ptsz(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(156, HF_REC_DSTHOST_FLAG | HF_REC_SRCARRAY_FLAG, (uint64_t)(uintptr_t)dstHost, 0, ByteCount, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpyAtoHAsync_v2_ptsz(dstHost, srcArray, srcOffset, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyAtoHAsync_v2_ptsz(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(156);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyAtoHAsync_v2_ptsz(dstHost, srcArray, srcOffset, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyAtoHAsync_v2_ptsz(dstHost, srcArray, srcOffset, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyAtoH_v2(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(144, HF_REC_DSTHOST_FLAG | HF_REC_SRCARRAY_FLAG, (uint64_t)(uintptr_t)dstHost, 0, ByteCount, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpyAtoH_v2(dstHost, srcArray, srcOffset, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyAtoH_v2(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(144);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyAtoH_v2(dstHost, srcArray, srcOffset, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyAtoH_v2(dstHost, srcArray, srcOffset, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyAtoH_v2_ptds(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(144, HF_REC_DSTHOST_FLAG | HF_REC_SRCARRAY_FLAG, (uint64_t)(uintptr_t)dstHost, 0, ByteCount, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpyAtoH_v2_ptds(dstHost, srcArray, srcOffset, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyAtoH_v2_ptds(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(144);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyAtoH_v2_ptds(dstHost, srcArray, srcOffset, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyAtoH_v2_ptds(dstHost, srcArray, srcOffset, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyBatchAsync(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *failIdx, void *hStream)
{
	hf_slot->copies++;
	hf_work_other(160, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyBatchAsync(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *failIdx, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(160);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyBatchAsync_ptsz(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *failIdx, void *hStream)
{
	hf_slot->copies++;
	hf_work_other(160, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpyBatchAsync_ptsz(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyBatchAsync_ptsz(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *failIdx, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(160);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyBatchAsync_ptsz(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyBatchAsync_ptsz(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyBatchAsync_v2(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *hStream)
{
	hf_slot->copies++;
	hf_work_other(160, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyBatchAsync_v2(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(160);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyBatchAsync_v2_ptsz(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *hStream)
{
	hf_slot->copies++;
	hf_work_other(160, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpyBatchAsync_v2_ptsz(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyBatchAsync_v2_ptsz(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(160);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyBatchAsync_v2_ptsz(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyBatchAsync_v2_ptsz(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyDtoA_v2(void *dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(141, HF_REC_DSTARRAY_FLAG, 0, (uint64_t)(uintptr_t)srcDevice, ByteCount, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyDtoA_v2(void *dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(141);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyDtoA_v2_ptds(void *dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(141, HF_REC_DSTARRAY_FLAG, 0, (uint64_t)(uintptr_t)srcDevice, ByteCount, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpyDtoA_v2_ptds(dstArray, dstOffset, srcDevice, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyDtoA_v2_ptds(void *dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(141);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyDtoA_v2_ptds(dstArray, dstOffset, srcDevice, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyDtoA_v2_ptds(dstArray, dstOffset, srcDevice, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(154, 0, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcDevice, ByteCount, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(154);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(154, 0, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcDevice, ByteCount, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpyDtoDAsync_v2_ptsz(dstDevice, srcDevice, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(154);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyDtoDAsync_v2_ptsz(dstDevice, srcDevice, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyDtoDAsync_v2_ptsz(dstDevice, srcDevice, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(140, 0, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcDevice, ByteCount, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(140);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(140, 0, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcDevice, ByteCount, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpyDtoD_v2_ptds(dstDevice, srcDevice, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(140);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyDtoD_v2_ptds(dstDevice, srcDevice, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyDtoD_v2_ptds(dstDevice, srcDevice, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(153, HF_REC_DSTHOST_FLAG, (uint64_t)(uintptr_t)dstHost, (uint64_t)(uintptr_t)srcDevice, ByteCount, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(153);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyDtoHAsync_v2_ptsz(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(153, HF_REC_DSTHOST_FLAG, (uint64_t)(uintptr_t)dstHost, (uint64_t)(uintptr_t)srcDevice, ByteCount, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpyDtoHAsync_v2_ptsz(dstHost, srcDevice, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyDtoHAsync_v2_ptsz(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(153);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyDtoHAsync_v2_ptsz(dstHost, srcDevice, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyDtoHAsync_v2_ptsz(dstHost, srcDevice, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(139, HF_REC_DSTHOST_FLAG, (uint64_t)(uintptr_t)dstHost, (uint64_t)(uintptr_t)srcDevice, ByteCount, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(139);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(139, HF_REC_DSTHOST_FLAG, (uint64_t)(uintptr_t)dstHost, (uint64_t)(uintptr_t)srcDevice, ByteCount, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpyDtoH_v2_ptds(dstHost, srcDevice, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(139);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyDtoH_v2_ptds(dstHost, srcDevice, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyDtoH_v2_ptds(dstHost, srcDevice, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyHtoAAsync_v2(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(155, HF_REC_DSTARRAY_FLAG | HF_REC_SRCHOST_FLAG, 0, (uint64_t)(uintptr_t)srcHost, ByteCount, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyHtoAAsync_v2(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(155);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyHtoAAsync_v2_ptsz(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(155, HF_REC_DSTARRAY_FLAG | HF_REC_SRCHOST_FLAG, 0, (uint64_t)(uintptr_t)srcHost, ByteCount, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpyHtoAAsync_v2_ptsz(dstArray, dstOffset, srcHost, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyHtoAAsync_v2_ptsz(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(155);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyHtoAAsync_v2_ptsz(dstArray, dstOffset, srcHost, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyHtoAAsync_v2_ptsz(dstArray, dstOffset, srcHost, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyHtoA_v2(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(143, HF_REC_DSTARRAY_FLAG | HF_REC_SRCHOST_FLAG, 0, (uint64_t)(uintptr_t)srcHost, ByteCount, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpyHtoA_v2(dstArray, dstOffset, srcHost, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyHtoA_v2(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(143);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyHtoA_v2(dstArray, dstOffset, srcHost, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyHtoA_v2(dstArray, dstOffset, srcHost, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyHtoA_v2_ptds(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(143, HF_REC_DSTARRAY_FLAG | HF_REC_SRCHOST_FLAG, 0, (uint64_t)(uintptr_t)srcHost, ByteCount, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpyHtoA_v2_ptds(dstArray, dstOffset, srcHost, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyHtoA_v2_ptds(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(143);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyHtoA_v2_ptds(dstArray, dstOffset, srcHost, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyHtoA_v2_ptds(dstArray, dstOffset, srcHost, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(152, HF_REC_SRCHOST_FLAG, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcHost, ByteCount, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(152);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(152, HF_REC_SRCHOST_FLAG, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcHost, ByteCount, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpyHtoDAsync_v2_ptsz(dstDevice, srcHost, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(152);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyHtoDAsync_v2_ptsz(dstDevice, srcHost, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyHtoDAsync_v2_ptsz(dstDevice, srcHost, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(138, HF_REC_SRCHOST_FLAG, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcHost, ByteCount, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(138);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(138, HF_REC_SRCHOST_FLAG, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcHost, ByteCount, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpyHtoD_v2_ptds(dstDevice, srcHost, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(138);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyHtoD_v2_ptds(dstDevice, srcHost, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyHtoD_v2_ptds(dstDevice, srcHost, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyPeer(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(137, 0, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcDevice, ByteCount, CU_STREAM_LEGACY);
	CUresult r = real_cuMemcpyPeer(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyPeer(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(137);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyPeer(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyPeer(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyPeerAsync(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(151, 0, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcDevice, ByteCount, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(151);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount, void *hStream)
{
	hf_slot->copies++;
	hf_work_copy(151, 0, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcDevice, ByteCount, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemcpyPeerAsync_ptsz(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(151);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyPeerAsync_ptsz(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
	slot->copies++;
	CUresult r = real_cuMemcpyPeerAsync_ptsz(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpyPeer_ptds(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(137, 0, (uint64_t)(uintptr_t)dstDevice, (uint64_t)(uintptr_t)srcDevice, ByteCount, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpyPeer_ptds(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpyPeer_ptds(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(137);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpyPeer_ptds(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpyPeer_ptds(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	hf_slot->copies++;
	hf_work_copy(136, 0, (uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src, ByteCount, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemcpy_ptds(dst, src, ByteCount);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	struct hf_slot *slot = hf_enter_work(136);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemcpy_ptds(dst, src, ByteCount);
	slot->copies++;
	CUresult r = real_cuMemcpy_ptds(dst, src, ByteCount);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(170, dstDevice, 0, us, 2, N, 1, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemsetD16Async(dstDevice, us, N, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(170);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD16Async(dstDevice, us, N, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD16Async(dstDevice, us, N, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD16Async_ptsz(CUdeviceptr dstDevice, unsigned short us, size_t N, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(170, dstDevice, 0, us, 2, N, 1, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemsetD16Async_ptsz(dstDevice, us, N, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD16Async_ptsz(CUdeviceptr dstDevice, unsigned short us, size_t N, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(170);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD16Async_ptsz(dstDevice, us, N, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD16Async_ptsz(dstDevice, us, N, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	hf_slot->copies++;
	hf_work_set(164, dstDevice, 0, us, 2, N, 1, CU_STREAM_LEGACY);
	CUresult r = real_cuMemsetD16_v2(dstDevice, us, N);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	struct hf_slot *slot = hf_enter_work(164);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD16_v2(dstDevice, us, N);
	slot->copies++;
	CUresult r = real_cuMemsetD16_v2(dstDevice, us, N);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	hf_slot->copies++;
	hf_work_set(164, dstDevice, 0, us, 2, N, 1, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemsetD16_v2_ptds(dstDevice, us, N);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	struct hf_slot *slot = hf_enter_work(164);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD16_v2_ptds(dstDevice, us, N);
	slot->copies++;
	CUresult r = real_cuMemsetD16_v2_ptds(dstDevice, us, N);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(173, dstDevice, dstPitch, us, 2, Width, Height, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(173);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D16Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(173, dstDevice, dstPitch, us, 2, Width, Height, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemsetD2D16Async_ptsz(dstDevice, dstPitch, us, Width, Height, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D16Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(173);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D16Async_ptsz(dstDevice, dstPitch, us, Width, Height, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD2D16Async_ptsz(dstDevice, dstPitch, us, Width, Height, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	hf_slot->copies++;
	hf_work_set(167, dstDevice, dstPitch, us, 2, Width, Height, CU_STREAM_LEGACY);
	CUresult r = real_cuMemsetD2D16_v2(dstDevice, dstPitch, us, Width, Height);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	struct hf_slot *slot = hf_enter_work(167);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D16_v2(dstDevice, dstPitch, us, Width, Height);
	slot->copies++;
	CUresult r = real_cuMemsetD2D16_v2(dstDevice, dstPitch, us, Width, Height);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	hf_slot->copies++;
	hf_work_set(167, dstDevice, dstPitch, us, 2, Width, Height, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemsetD2D16_v2_ptds(dstDevice, dstPitch, us, Width, Height);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	struct hf_slot *slot = hf_enter_work(167);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D16_v2_ptds(dstDevice, dstPitch, us, Width, Height);
	slot->copies++;
	CUresult r = real_cuMemsetD2D16_v2_ptds(dstDevice, dstPitch, us, Width, Height);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(174, dstDevice, dstPitch, ui, 4, Width, Height, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(174);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D32Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(174, dstDevice, dstPitch, ui, 4, Width, Height, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemsetD2D32Async_ptsz(dstDevice, dstPitch, ui, Width, Height, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D32Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(174);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D32Async_ptsz(dstDevice, dstPitch, ui, Width, Height, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD2D32Async_ptsz(dstDevice, dstPitch, ui, Width, Height, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	hf_slot->copies++;
	hf_work_set(168, dstDevice, dstPitch, ui, 4, Width, Height, CU_STREAM_LEGACY);
	CUresult r = real_cuMemsetD2D32_v2(dstDevice, dstPitch, ui, Width, Height);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	struct hf_slot *slot = hf_enter_work(168);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D32_v2(dstDevice, dstPitch, ui, Width, Height);
	slot->copies++;
	CUresult r = real_cuMemsetD2D32_v2(dstDevice, dstPitch, ui, Width, Height);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	hf_slot->copies++;
	hf_work_set(168, dstDevice, dstPitch, ui, 4, Width, Height, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemsetD2D32_v2_ptds(dstDevice, dstPitch, ui, Width, Height);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	struct hf_slot *slot = hf_enter_work(168);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D32_v2_ptds(dstDevice, dstPitch, ui, Width, Height);
	slot->copies++;
	CUresult r = real_cuMemsetD2D32_v2_ptds(dstDevice, dstPitch, ui, Width, Height);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(172, dstDevice, dstPitch, uc, 1, Width, Height, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(172);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(172, dstDevice, dstPitch, uc, 1, Width, Height, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemsetD2D8Async_ptsz(dstDevice, dstPitch, uc, Width, Height, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(172);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D8Async_ptsz(dstDevice, dstPitch, uc, Width, Height, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD2D8Async_ptsz(dstDevice, dstPitch, uc, Width, Height, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	hf_slot->copies++;
	hf_work_set(166, dstDevice, dstPitch, uc, 1, Width, Height, CU_STREAM_LEGACY);
	CUresult r = real_cuMemsetD2D8_v2(dstDevice, dstPitch, uc, Width, Height);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	struct hf_slot *slot = hf_enter_work(166);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D8_v2(dstDevice, dstPitch, uc, Width, Height);
	slot->copies++;
	CUresult r = real_cuMemsetD2D8_v2(dstDevice, dstPitch, uc, Width, Height);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	hf_slot->copies++;
	hf_work_set(166, dstDevice, dstPitch, uc, 1, Width, Height, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemsetD2D8_v2_ptds(dstDevice, dstPitch, uc, Width, Height);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	struct hf_slot *slot = hf_enter_work(166);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD2D8_v2_ptds(dstDevice, dstPitch, uc, Width, Height);
	slot->copies++;
	CUresult r = real_cuMemsetD2D8_v2_ptds(dstDevice, dstPitch, uc, Width, Height);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(171, dstDevice, 0, ui, 4, N, 1, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemsetD32Async(dstDevice, ui, N, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(171);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD32Async(dstDevice, ui, N, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD32Async(dstDevice, ui, N, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned int ui, size_t N, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(171, dstDevice, 0, ui, 4, N, 1, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemsetD32Async_ptsz(dstDevice, ui, N, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned int ui, size_t N, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(171);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD32Async_ptsz(dstDevice, ui, N, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD32Async_ptsz(dstDevice, ui, N, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	hf_slot->copies++;
	hf_work_set(165, dstDevice, 0, ui, 4, N, 1, CU_STREAM_LEGACY);
	CUresult r = real_cuMemsetD32_v2(dstDevice, ui, N);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	struct hf_slot *slot = hf_enter_work(165);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD32_v2(dstDevice, ui, N);
	slot->copies++;
	CUresult r = real_cuMemsetD32_v2(dstDevice, ui, N);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	hf_slot->copies++;
	hf_work_set(165, dstDevice, 0, ui, 4, N, 1, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemsetD32_v2_ptds(dstDevice, ui, N);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	struct hf_slot *slot = hf_enter_work(165);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD32_v2_ptds(dstDevice, ui, N);
	slot->copies++;
	CUresult r = real_cuMemsetD32_v2_ptds(dstDevice, ui, N);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(169, dstDevice, 0, uc, 1, N, 1, HF_STREAM(hStream, CU_STREAM_LEGACY));
	CUresult r = real_cuMemsetD8Async(dstDevice, uc, N, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(169);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD8Async(dstDevice, uc, N, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD8Async(dstDevice, uc, N, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, void *hStream)
{
	hf_slot->copies++;
	hf_work_set(169, dstDevice, 0, uc, 1, N, 1, HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuMemsetD8Async_ptsz(dstDevice, uc, N, hStream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, void *hStream)
{
	struct hf_slot *slot = hf_enter_work(169);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD8Async_ptsz(dstDevice, uc, N, hStream);
	slot->copies++;
	CUresult r = real_cuMemsetD8Async_ptsz(dstDevice, uc, N, hStream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	hf_slot->copies++;
	hf_work_set(163, dstDevice, 0, uc, 1, N, 1, CU_STREAM_LEGACY);
	CUresult r = real_cuMemsetD8_v2(dstDevice, uc, N);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	struct hf_slot *slot = hf_enter_work(163);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD8_v2(dstDevice, uc, N);
	slot->copies++;
	CUresult r = real_cuMemsetD8_v2(dstDevice, uc, N);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	hf_slot->copies++;
	hf_work_set(163, dstDevice, 0, uc, 1, N, 1, CU_STREAM_PER_THREAD);
	CUresult r = real_cuMemsetD8_v2_ptds(dstDevice, uc, N);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	struct hf_slot *slot = hf_enter_work(163);
	if (HF_UNLIKELY(!slot))
		return watched_cuMemsetD8_v2_ptds(dstDevice, uc, N);
	slot->copies++;
	CUresult r = real_cuMemsetD8_v2_ptds(dstDevice, uc, N);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMipmappedArrayCreate(void *pHandle, void *pMipmappedArrayDesc, unsigned int numMipmapLevels)
{
	struct hf_slot *slot = hf_enter(185);
	CUresult r = hf_depth > 1 ? real_cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels) : hf_cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMipmappedArrayDestroy(void *hMipmappedArray)
{
	struct hf_slot *slot = hf_enter(187);
	CUresult r = real_cuMipmappedArrayDestroy(hMipmappedArray);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMipmappedArrayGetLevel(void *pLevelArray, void *hMipmappedArray, unsigned int level)
{
	struct hf_slot *slot = hf_enter(186);
	CUresult r = real_cuMipmappedArrayGetLevel(pLevelArray, hMipmappedArray, level);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMipmappedArrayGetMemoryRequirements(void *memoryRequirements, void *mipmap, int device)
{
	struct hf_slot *slot = hf_enter(180);
	CUresult r = real_cuMipmappedArrayGetMemoryRequirements(memoryRequirements, mipmap, device);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMipmappedArrayGetSparseProperties(void *sparseProperties, void *mipmap)
{
	struct hf_slot *slot = hf_enter(178);
	CUresult r = real_cuMipmappedArrayGetSparseProperties(sparseProperties, mipmap);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuModuleGetFunction(void *hfunc, void *hmod, void *name)
{
	if (hf_depth)
		return real_cuModuleGetFunction(hfunc, hmod, name);
	return hf_cuModuleGetFunction(hfunc, hmod, name);
}

HF_EXPORT CUresult cuModuleGetGlobal_v2(void *dptr, void *bytes, void *hmod, void *name)
{
	struct hf_slot *slot = hf_enter(88);
	CUresult r = hf_depth > 1 ? real_cuModuleGetGlobal_v2(dptr, bytes, hmod, name) : hf_cuModuleGetGlobal_v2(dptr, bytes, hmod, name);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuModuleGetSurfRef(void *pSurfRef, void *hmod, void *name)
{
	struct hf_slot *slot = hf_enter(90);
	CUresult r = real_cuModuleGetSurfRef(pSurfRef, hmod, name);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuModuleGetTexRef(void *pTexRef, void *hmod, void *name)
{
	struct hf_slot *slot = hf_enter(89);
	CUresult r = real_cuModuleGetTexRef(pTexRef, hmod, name);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuModuleLoad(void *module, void *fname)
{
	struct hf_slot *slot = hf_enter(79);
	CUresult r = hf_depth > 1 ? real_cuModuleLoad(module, fname) : hf_cuModuleLoad(module, fname);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuModuleLoadData(void *module, void *image)
{
	struct hf_slot *slot = hf_enter(80);
	CUresult r = hf_depth > 1 ? real_cuModuleLoadData(module, image) : hf_cuModuleLoadData(module, image);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuModuleLoadDataEx(void *module, void *image, unsigned int numOptions, void *options, void *optionValues)
{
	struct hf_slot *slot = hf_enter(81);
	CUresult r = hf_depth > 1 ? real_cuModuleLoadDataEx(module, image, numOptions, options, optionValues) : hf_cuModuleLoadDataEx(module, image, numOptions, options, optionValues);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuModuleLoadFatBinary(void *module, void *fatCubin)
{
	struct hf_slot *slot = hf_enter(82);
	CUresult r = hf_depth > 1 ? real_cuModuleLoadFatBinary(module, fatCubin) : hf_cuModuleLoadFatBinary(module, fatCubin);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuModuleUnload(void *hmod)
{
	if (hf_depth)
		return real_cuModuleUnload(hmod);
	return hf_cuModuleUnload(hmod);
}

HF_EXPORT CUresult cuMulticastAddDevice(CUhandle mcHandle, int dev)
{
	struct hf_slot *slot = hf_enter(220);
	CUresult r = real_cuMulticastAddDevice(mcHandle, dev);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMulticastBindAddr(CUhandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size, unsigned long long flags)
{
	struct hf_slot *slot = hf_enter(222);
	CUresult r = real_cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMulticastBindMem(CUhandle mcHandle, size_t mcOffset, CUhandle memHandle, size_t memOffset, size_t size, unsigned long long flags)
{
	struct hf_slot *slot = hf_enter(221);
	CUresult r = hf_depth > 1 ? real_cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size, flags) : hf_cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMulticastCreate(void *mcHandle, void *prop)
{
	struct hf_slot *slot = hf_enter(219);
	CUresult r = hf_depth > 1 ? real_cuMulticastCreate(mcHandle, prop) : hf_cuMulticastCreate(mcHandle, prop);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMulticastGetGranularity(void *granularity, void *prop, int option)
{
	struct hf_slot *slot = hf_enter(224);
	CUresult r = real_cuMulticastGetGranularity(granularity, prop, option);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuMulticastUnbind(CUhandle mcHandle, int dev, size_t mcOffset, size_t size)
{
	struct hf_slot *slot = hf_enter(223);
	CUresult r = real_cuMulticastUnbind(mcHandle, dev, mcOffset, size);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr)
{
	struct hf_slot *slot = hf_enter(127);
	CUresult r = hf_depth > 1 ? real_cuPointerGetAttribute(data, attribute, ptr) : hf_cuPointerGetAttribute(data, attribute, ptr);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuPointerGetAttributes(unsigned int numAttributes, void *attributes, void *data, CUdeviceptr ptr)
{
	struct hf_slot *slot = hf_enter(128);
	CUresult r = hf_depth > 1 ? real_cuPointerGetAttributes(numAttributes, attributes, data, ptr) : hf_cuPointerGetAttributes(numAttributes, attributes, data, ptr);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuPointerSetAttribute(void *value, int attribute, CUdeviceptr ptr)
{
	struct hf_slot *slot = hf_enter(129);
	CUresult r = real_cuPointerSetAttribute(value, attribute, ptr);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuSignalExternalSemaphoresAsync(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	hf_work_other(272, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuSignalExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuSignalExternalSemaphoresAsync(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	struct hf_slot *slot = hf_enter_work(272);
	if (HF_UNLIKELY(!slot))
		return watched_cuSignalExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
	CUresult r = real_cuSignalExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuSignalExternalSemaphoresAsync_ptsz(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	hf_work_other(272, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuSignalExternalSemaphoresAsync_ptsz(extSemArray, paramsArray, numExtSems, stream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuSignalExternalSemaphoresAsync_ptsz(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	struct hf_slot *slot = hf_enter_work(272);
	if (HF_UNLIKELY(!slot))
		return watched_cuSignalExternalSemaphoresAsync_ptsz(extSemArray, paramsArray, numExtSems, stream);
	CUresult r = real_cuSignalExternalSemaphoresAsync_ptsz(extSemArray, paramsArray, numExtSems, stream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamAddCallback(void *hStream, void *callback, void *userData, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(240);
	CUresult r = real_cuStreamAddCallback(hStream, callback, userData, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamAddCallback_ptsz(void *hStream, void *callback, void *userData, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(240);
	CUresult r = real_cuStreamAddCallback_ptsz(hStream, callback, userData, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamAttachMemAsync(void *hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(248);
	CUresult r = real_cuStreamAttachMemAsync(hStream, dptr, length, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamAttachMemAsync_ptsz(void *hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(248);
	CUresult r = real_cuStreamAttachMemAsync_ptsz(hStream, dptr, length, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamBatchMemOp(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	hf_work_other(259, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuStreamBatchMemOp(stream, count, paramArray, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamBatchMemOp(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(259);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamBatchMemOp(stream, count, paramArray, flags);
	CUresult r = real_cuStreamBatchMemOp(stream, count, paramArray, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamBatchMemOp_ptsz(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	hf_work_other(259, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuStreamBatchMemOp_ptsz(stream, count, paramArray, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamBatchMemOp_ptsz(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(259);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamBatchMemOp_ptsz(stream, count, paramArray, flags);
	CUresult r = real_cuStreamBatchMemOp_ptsz(stream, count, paramArray, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamBatchMemOp_v2(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	hf_work_other(259, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamBatchMemOp_v2(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(259);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
	CUresult r = real_cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamBatchMemOp_v2_ptsz(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	hf_work_other(259, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuStreamBatchMemOp_v2_ptsz(stream, count, paramArray, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamBatchMemOp_v2_ptsz(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(259);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamBatchMemOp_v2_ptsz(stream, count, paramArray, flags);
	CUresult r = real_cuStreamBatchMemOp_v2_ptsz(stream, count, paramArray, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamBeginCapture(void *hStream)
{
	struct hf_slot *slot = hf_enter(241);
	CUresult r = hf_depth > 1 ? real_cuStreamBeginCapture(hStream) : hf_cuStreamBeginCapture(HF_STREAM(hStream, CU_STREAM_LEGACY));
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamBeginCaptureToGraph(void *hStream, void *hGraph, void *dependencies, void *dependencyData, size_t numDependencies, int mode)
{
	struct hf_slot *slot = hf_enter(242);
	CUresult r = hf_depth > 1 ? real_cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData, numDependencies, mode) : hf_cuStreamBeginCaptureToGraph(HF_STREAM(hStream, CU_STREAM_LEGACY), hGraph, dependencies, dependencyData, numDependencies, mode);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(void *hStream, void *hGraph, void *dependencies, void *dependencyData, size_t numDependencies, int mode)
{
	struct hf_slot *slot = hf_enter(242);
	CUresult r = hf_depth > 1 ? real_cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies, dependencyData, numDependencies, mode) : hf_cuStreamBeginCaptureToGraph(HF_STREAM(hStream, CU_STREAM_PER_THREAD), hGraph, dependencies, dependencyData, numDependencies, mode);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamBeginCapture_ptsz(void *hStream)
{
	struct hf_slot *slot = hf_enter(241);
	CUresult r = hf_depth > 1 ? real_cuStreamBeginCapture_ptsz(hStream) : hf_cuStreamBeginCapture(HF_STREAM(hStream, CU_STREAM_PER_THREAD));
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamBeginCapture_v2(void *hStream, int mode)
{
	struct hf_slot *slot = hf_enter(241);
	CUresult r = hf_depth > 1 ? real_cuStreamBeginCapture_v2(hStream, mode) : hf_cuStreamBeginCapture_v2(HF_STREAM(hStream, CU_STREAM_LEGACY), mode);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamBeginCapture_v2_ptsz(void *hStream, int mode)
{
	struct hf_slot *slot = hf_enter(241);
	CUresult r = hf_depth > 1 ? real_cuStreamBeginCapture_v2_ptsz(hStream, mode) : hf_cuStreamBeginCapture_v2(HF_STREAM(hStream, CU_STREAM_PER_THREAD), mode);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamCopyAttributes(void *dst, void *src)
{
	struct hf_slot *slot = hf_enter(252);
	CUresult r = real_cuStreamCopyAttributes(dst, src);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamCopyAttributes_ptsz(void *dst, void *src)
{
	struct hf_slot *slot = hf_enter(252);
	CUresult r = real_cuStreamCopyAttributes_ptsz(dst, src);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamCreate(void *phStream, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(232);
	CUresult r = real_cuStreamCreate(phStream, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamCreateWithPriority(void *phStream, unsigned int flags, int priority)
{
	struct hf_slot *slot = hf_enter(233);
	CUresult r = real_cuStreamCreateWithPriority(phStream, flags, priority);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamDestroy(void *hStream)
{
	struct hf_slot *slot = hf_enter(251);
	CUresult r = real_cuStreamDestroy(hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamDestroy_v2(void *hStream)
{
	struct hf_slot *slot = hf_enter(251);
	CUresult r = hf_depth > 1 ? real_cuStreamDestroy_v2(hStream) : hf_cuStreamDestroy_v2(hStream);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamEndCapture(void *hStream, void *phGraph)
{
	struct hf_slot *slot = hf_enter(244);
	CUresult r = hf_depth > 1 ? real_cuStreamEndCapture(hStream, phGraph) : hf_cuStreamEndCapture(HF_STREAM(hStream, CU_STREAM_LEGACY), phGraph);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamEndCapture_ptsz(void *hStream, void *phGraph)
{
	struct hf_slot *slot = hf_enter(244);
	CUresult r = hf_depth > 1 ? real_cuStreamEndCapture_ptsz(hStream, phGraph) : hf_cuStreamEndCapture(HF_STREAM(hStream, CU_STREAM_PER_THREAD), phGraph);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamSetAttribute(void *hStream, int attr, void *value)
{
	struct hf_slot *slot = hf_enter(254);
	CUresult r = real_cuStreamSetAttribute(hStream, attr, value);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamSetAttribute_ptsz(void *hStream, int attr, void *value)
{
	struct hf_slot *slot = hf_enter(254);
	CUresult r = real_cuStreamSetAttribute_ptsz(hStream, attr, value);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuStreamSynchronize(void *hStream)
{
	hf_wait_begin();
	CUresult r = real_cuStreamSynchronize(hStream);
	hf_wait_end();
	return r;
}

HF_EXPORT CUresult cuStreamSynchronize_ptsz(void *hStream)
{
	hf_wait_begin();
	CUresult r = real_cuStreamSynchronize_ptsz(hStream);
	hf_wait_end();
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWaitValue32(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	hf_work_copy(255, HF_REC_DSTHOST_FLAG, 0, addr, 4, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuStreamWaitValue32(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWaitValue32(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(255);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWaitValue32(stream, addr, value, flags);
	CUresult r = real_cuStreamWaitValue32(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWaitValue32_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	hf_work_copy(255, HF_REC_DSTHOST_FLAG, 0, addr, 4, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuStreamWaitValue32_ptsz(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWaitValue32_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(255);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWaitValue32_ptsz(stream, addr, value, flags);
	CUresult r = real_cuStreamWaitValue32_ptsz(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWaitValue32_v2(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	hf_work_copy(255, HF_REC_DSTHOST_FLAG, 0, addr, 4, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuStreamWaitValue32_v2(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWaitValue32_v2(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(255);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWaitValue32_v2(stream, addr, value, flags);
	CUresult r = real_cuStreamWaitValue32_v2(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWaitValue32_v2_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	hf_work_copy(255, HF_REC_DSTHOST_FLAG, 0, addr, 4, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuStreamWaitValue32_v2_ptsz(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWaitValue32_v2_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(255);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWaitValue32_v2_ptsz(stream, addr, value, flags);
	CUresult r = real_cuStreamWaitValue32_v2_ptsz(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWaitValue64(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	hf_work_copy(256, HF_REC_DSTHOST_FLAG, 0, addr, 8, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuStreamWaitValue64(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWaitValue64(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(256);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWaitValue64(stream, addr, value, flags);
	CUresult r = real_cuStreamWaitValue64(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWaitValue64_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	hf_work_copy(256, HF_REC_DSTHOST_FLAG, 0, addr, 8, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuStreamWaitValue64_ptsz(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWaitValue64_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(256);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWaitValue64_ptsz(stream, addr, value, flags);
	CUresult r = real_cuStreamWaitValue64_ptsz(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWaitValue64_v2(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	hf_work_copy(256, HF_REC_DSTHOST_FLAG, 0, addr, 8, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuStreamWaitValue64_v2(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWaitValue64_v2(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(256);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWaitValue64_v2(stream, addr, value, flags);
	CUresult r = real_cuStreamWaitValue64_v2(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWaitValue64_v2_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	hf_work_copy(256, HF_REC_DSTHOST_FLAG, 0, addr, 8, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuStreamWaitValue64_v2_ptsz(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWaitValue64_v2_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(256);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWaitValue64_v2_ptsz(stream, addr, value, flags);
	CUresult r = real_cuStreamWaitValue64_v2_ptsz(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWriteValue32(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	hf_work_set(257, addr, 0, value, 4, 1, 1, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuStreamWriteValue32(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWriteValue32(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(257);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWriteValue32(stream, addr, value, flags);
	CUresult r = real_cuStreamWriteValue32(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWriteValue32_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	hf_work_set(257, addr, 0, value, 4, 1, 1, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuStreamWriteValue32_ptsz(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWriteValue32_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(257);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWriteValue32_ptsz(stream, addr, value, flags);
	CUresult r = real_cuStreamWriteValue32_ptsz(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWriteValue32_v2(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	hf_work_set(257, addr, 0, value, 4, 1, 1, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuStreamWriteValue32_v2(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWriteValue32_v2(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(257);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWriteValue32_v2(stream, addr, value, flags);
	CUresult r = real_cuStreamWriteValue32_v2(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWriteValue32_v2_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	hf_work_set(257, addr, 0, value, 4, 1, 1, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuStreamWriteValue32_v2_ptsz(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWriteValue32_v2_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(257);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWriteValue32_v2_ptsz(stream, addr, value, flags);
	CUresult r = real_cuStreamWriteValue32_v2_ptsz(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWriteValue64(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	hf_work_set(258, addr, 0, value, 8, 1, 1, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuStreamWriteValue64(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWriteValue64(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(258);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWriteValue64(stream, addr, value, flags);
	CUresult r = real_cuStreamWriteValue64(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWriteValue64_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	hf_work_set(258, addr, 0, value, 8, 1, 1, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuStreamWriteValue64_ptsz(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWriteValue64_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(258);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWriteValue64_ptsz(stream, addr, value, flags);
	CUresult r = real_cuStreamWriteValue64_ptsz(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWriteValue64_v2(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	hf_work_set(258, addr, 0, value, 8, 1, 1, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuStreamWriteValue64_v2(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWriteValue64_v2(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(258);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWriteValue64_v2(stream, addr, value, flags);
	CUresult r = real_cuStreamWriteValue64_v2(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuStreamWriteValue64_v2_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	hf_work_set(258, addr, 0, value, 8, 1, 1, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuStreamWriteValue64_v2_ptsz(stream, addr, value, flags);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuStreamWriteValue64_v2_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	struct hf_slot *slot = hf_enter_work(258);
	if (HF_UNLIKELY(!slot))
		return watched_cuStreamWriteValue64_v2_ptsz(stream, addr, value, flags);
	CUresult r = real_cuStreamWriteValue64_v2_ptsz(stream, addr, value, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuSurfObjectCreate(void *pSurfObject, void *pResDesc)
{
	struct hf_slot *slot = hf_enter(421);
	CUresult r = real_cuSurfObjectCreate(pSurfObject, pResDesc);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuSurfObjectDestroy(unsigned long long surfObject)
{
	struct hf_slot *slot = hf_enter(422);
	CUresult r = real_cuSurfObjectDestroy(surfObject);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuSurfObjectGetResourceDesc(void *pResDesc, unsigned long long surfObject)
{
	struct hf_slot *slot = hf_enter(423);
	CUresult r = real_cuSurfObjectGetResourceDesc(pResDesc, surfObject);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuSurfRefGetArray(void *phArray, void *hSurfRef)
{
	struct hf_slot *slot = hf_enter(415);
	CUresult r = real_cuSurfRefGetArray(phArray, hSurfRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuSurfRefSetArray(void *hSurfRef, void *hArray, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(414);
	CUresult r = real_cuSurfRefSetArray(hSurfRef, hArray, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTensorMapEncodeIm2col(void *tensorMap, int tensorDataType, unsigned int tensorRank, void *globalAddress, void *globalDim, void *globalStrides, void *pixelBoxLowerCorner, void *pixelBoxUpperCorner, unsigned int channelsPerPixel, unsigned int pixelsPerColumn, void *elementStrides, int interleave, int swizzle, int l2Promotion, int oobFill)
{
	struct hf_slot *slot = hf_enter(425);
	CUresult r = real_cuTensorMapEncodeIm2col(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, pixelBoxLowerCorner, pixelBoxUpperCorner, channelsPerPixel, pixelsPerColumn, elementStrides, interleave, swizzle, l2Promotion, oobFill);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTensorMapEncodeIm2colWide(void *tensorMap, int tensorDataType, unsigned int tensorRank, void *globalAddress, void *globalDim, void *globalStrides, int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, unsigned int channelsPerPixel, unsigned int pixelsPerColumn, void *elementStrides, int interleave, int mode, int swizzle, int l2Promotion, int oobFill)
{
	struct hf_slot *slot = hf_enter(426);
	CUresult r = real_cuTensorMapEncodeIm2colWide(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth, channelsPerPixel, pixelsPerColumn, elementStrides, interleave, mode, swizzle, l2Promotion, oobFill);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTensorMapEncodeTiled(void *tensorMap, int tensorDataType, unsigned int tensorRank, void *globalAddress, void *globalDim, void *globalStrides, void *boxDim, void *elementStrides, int interleave, int swizzle, int l2Promotion, int oobFill)
{
	struct hf_slot *slot = hf_enter(424);
	CUresult r = real_cuTensorMapEncodeTiled(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, boxDim, elementStrides, interleave, swizzle, l2Promotion, oobFill);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTensorMapReplaceAddress(void *tensorMap, void *globalAddress)
{
	struct hf_slot *slot = hf_enter(427);
	CUresult r = real_cuTensorMapReplaceAddress(tensorMap, globalAddress);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexObjectCreate(void *pTexObject, void *pResDesc, void *pTexDesc, void *pResViewDesc)
{
	struct hf_slot *slot = hf_enter(416);
	CUresult r = real_cuTexObjectCreate(pTexObject, pResDesc, pTexDesc, pResViewDesc);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexObjectDestroy(unsigned long long texObject)
{
	struct hf_slot *slot = hf_enter(417);
	CUresult r = real_cuTexObjectDestroy(texObject);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexObjectGetResourceDesc(void *pResDesc, unsigned long long texObject)
{
	struct hf_slot *slot = hf_enter(418);
	CUresult r = real_cuTexObjectGetResourceDesc(pResDesc, texObject);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexObjectGetResourceViewDesc(void *pResViewDesc, unsigned long long texObject)
{
	struct hf_slot *slot = hf_enter(420);
	CUresult r = real_cuTexObjectGetResourceViewDesc(pResViewDesc, texObject);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexObjectGetTextureDesc(void *pTexDesc, unsigned long long texObject)
{
	struct hf_slot *slot = hf_enter(419);
	CUresult r = real_cuTexObjectGetTextureDesc(pTexDesc, texObject);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefCreate(void *pTexRef)
{
	struct hf_slot *slot = hf_enter(412);
	CUresult r = real_cuTexRefCreate(pTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefDestroy(void *hTexRef)
{
	struct hf_slot *slot = hf_enter(413);
	CUresult r = real_cuTexRefDestroy(hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetAddressMode(void *pam, void *hTexRef, int dim)
{
	struct hf_slot *slot = hf_enter(403);
	CUresult r = real_cuTexRefGetAddressMode(pam, hTexRef, dim);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetAddress_v2(void *pdptr, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(400);
	CUresult r = real_cuTexRefGetAddress_v2(pdptr, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetArray(void *phArray, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(401);
	CUresult r = real_cuTexRefGetArray(phArray, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetBorderColor(void *pBorderColor, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(410);
	CUresult r = real_cuTexRefGetBorderColor(pBorderColor, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetFilterMode(void *pfm, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(404);
	CUresult r = real_cuTexRefGetFilterMode(pfm, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetFlags(void *pFlags, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(411);
	CUresult r = real_cuTexRefGetFlags(pFlags, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetFormat(void *pFormat, void *pNumChannels, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(405);
	CUresult r = real_cuTexRefGetFormat(pFormat, pNumChannels, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetMaxAnisotropy(void *pmaxAniso, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(409);
	CUresult r = real_cuTexRefGetMaxAnisotropy(pmaxAniso, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetMipmapFilterMode(void *pfm, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(406);
	CUresult r = real_cuTexRefGetMipmapFilterMode(pfm, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetMipmapLevelBias(void *pbias, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(407);
	CUresult r = real_cuTexRefGetMipmapLevelBias(pbias, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetMipmapLevelClamp(void *pminMipmapLevelClamp, void *pmaxMipmapLevelClamp, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(408);
	CUresult r = real_cuTexRefGetMipmapLevelClamp(pminMipmapLevelClamp, pmaxMipmapLevelClamp, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefGetMipmappedArray(void *phMipmappedArray, void *hTexRef)
{
	struct hf_slot *slot = hf_enter(402);
	CUresult r = real_cuTexRefGetMipmappedArray(phMipmappedArray, hTexRef);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetAddress2D_v3(void *hTexRef, void *desc, CUdeviceptr dptr, size_t Pitch)
{
	struct hf_slot *slot = hf_enter(390);
	CUresult r = real_cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetAddressMode(void *hTexRef, int dim, int am)
{
	struct hf_slot *slot = hf_enter(392);
	CUresult r = real_cuTexRefSetAddressMode(hTexRef, dim, am);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetAddress_v2(void *ByteOffset, void *hTexRef, CUdeviceptr dptr, size_t bytes)
{
	struct hf_slot *slot = hf_enter(389);
	CUresult r = real_cuTexRefSetAddress_v2(ByteOffset, hTexRef, dptr, bytes);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetArray(void *hTexRef, void *hArray, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(387);
	CUresult r = real_cuTexRefSetArray(hTexRef, hArray, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetBorderColor(void *hTexRef, void *pBorderColor)
{
	struct hf_slot *slot = hf_enter(398);
	CUresult r = real_cuTexRefSetBorderColor(hTexRef, pBorderColor);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetFilterMode(void *hTexRef, int fm)
{
	struct hf_slot *slot = hf_enter(393);
	CUresult r = real_cuTexRefSetFilterMode(hTexRef, fm);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetFlags(void *hTexRef, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(399);
	CUresult r = real_cuTexRefSetFlags(hTexRef, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetFormat(void *hTexRef, int fmt, int NumPackedComponents)
{
	struct hf_slot *slot = hf_enter(391);
	CUresult r = real_cuTexRefSetFormat(hTexRef, fmt, NumPackedComponents);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetMaxAnisotropy(void *hTexRef, unsigned int maxAniso)
{
	struct hf_slot *slot = hf_enter(397);
	CUresult r = real_cuTexRefSetMaxAnisotropy(hTexRef, maxAniso);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetMipmapFilterMode(void *hTexRef, int fm)
{
	struct hf_slot *slot = hf_enter(394);
	CUresult r = real_cuTexRefSetMipmapFilterMode(hTexRef, fm);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetMipmapLevelBias(void *hTexRef, float bias)
{
	struct hf_slot *slot = hf_enter(395);
	CUresult r = real_cuTexRefSetMipmapLevelBias(hTexRef, bias);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetMipmapLevelClamp(void *hTexRef, float minMipmapLevelClamp, float maxMipmapLevelClamp)
{
	struct hf_slot *slot = hf_enter(396);
	CUresult r = real_cuTexRefSetMipmapLevelClamp(hTexRef, minMipmapLevelClamp, maxMipmapLevelClamp);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuTexRefSetMipmappedArray(void *hTexRef, void *hMipmappedArray, unsigned int Flags)
{
	struct hf_slot *slot = hf_enter(388);
	CUresult r = real_cuTexRefSetMipmappedArray(hTexRef, hMipmappedArray, Flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuUserObjectCreate(void *object_out, void *ptr, void *destroy, unsigned int initialRefcount, unsigned int flags)
{
	struct hf_slot *slot = hf_enter(371);
	CUresult r = real_cuUserObjectCreate(object_out, ptr, destroy, initialRefcount, flags);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuUserObjectRelease(void *object, unsigned int count)
{
	struct hf_slot *slot = hf_enter(373);
	CUresult r = real_cuUserObjectRelease(object, count);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuUserObjectRetain(void *object, unsigned int count)
{
	struct hf_slot *slot = hf_enter(372);
	CUresult r = real_cuUserObjectRetain(object, count);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuVDPAUCtxCreate_v2(void *pCtx, unsigned int flags, int device, unsigned int vdpDevice, void *vdpGetProcAddress)
{
	struct hf_slot *slot = hf_enter(451);
	CUresult r = real_cuVDPAUCtxCreate_v2(pCtx, flags, device, vdpDevice, vdpGetProcAddress);
	hf_leave(slot);
	return r;
}

HF_EXPORT CUresult cuVDPAUGetDevice(void *pDevice, unsigned int vdpDevice, void *vdpGetProcAddress)
{
	struct hf_slot *slot = hf_enter(450);
	CUresult r = real_cuVDPAUGetDevice(pDevice, vdpDevice, vdpGetProcAddress);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuWaitExternalSemaphoresAsync(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	hf_work_other(273, HF_STREAM(stream, CU_STREAM_LEGACY));
	CUresult r = real_cuWaitExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuWaitExternalSemaphoresAsync(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	struct hf_slot *slot = hf_enter_work(273);
	if (HF_UNLIKELY(!slot))
		return watched_cuWaitExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
	CUresult r = real_cuWaitExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
	hf_leave(slot);
	return r;
}

static __attribute__((cold, noinline)) CUresult watched_cuWaitExternalSemaphoresAsync_ptsz(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	hf_work_other(273, HF_STREAM(stream, CU_STREAM_PER_THREAD));
	CUresult r = real_cuWaitExternalSemaphoresAsync_ptsz(extSemArray, paramsArray, numExtSems, stream);
	if (HF_UNLIKELY(r != CUDA_SUCCESS))
		hf_work_failed(r);
	hf_leave(hf_slot);
	return r;
}

HF_EXPORT CUresult cuWaitExternalSemaphoresAsync_ptsz(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	struct hf_slot *slot = hf_enter_work(273);
	if (HF_UNLIKELY(!slot))
		return watched_cuWaitExternalSemaphoresAsync_ptsz(extSemArray, paramsArray, numExtSems, stream);
	CUresult r = real_cuWaitExternalSemaphoresAsync_ptsz(extSemArray, paramsArray, numExtSems, stream);
	hf_leave(slot);
	return r;
}

/* sorted by name */
const struct hf_symbol hf_symbols[HF_SYMBOLS] = {
	{ "cuArray3DCreate_v2", (void *)cuArray3DCreate_v2, 183 },
	{ "cuArray3DGetDescriptor_v2", (void *)cuArray3DGetDescriptor_v2, 184 },
	{ "cuArrayCreate_v2", (void *)cuArrayCreate_v2, 175 },
	{ "cuArrayDestroy", (void *)cuArrayDestroy, 182 },
	{ "cuArrayGetDescriptor_v2", (void *)cuArrayGetDescriptor_v2, 176 },
	{ "cuArrayGetMemoryRequirements", (void *)cuArrayGetMemoryRequirements, 179 },
	{ "cuArrayGetPlane", (void *)cuArrayGetPlane, 181 },
	{ "cuArrayGetSparseProperties", (void *)cuArrayGetSparseProperties, 177 },
	{ "cuCheckpointProcessCheckpoint", 0, 469 },
	{ "cuCheckpointProcessGetRestoreThreadId", 0, 466 },
	{ "cuCheckpointProcessGetState", 0, 467 },
	{ "cuCheckpointProcessLock", 0, 468 },
	{ "cuCheckpointProcessRestore", 0, 470 },
	{ "cuCheckpointProcessUnlock", 0, 471 },
	{ "cuCoredumpGetAttribute", 0, 454 },
	{ "cuCoredumpGetAttributeGlobal", 0, 455 },
	{ "cuCoredumpSetAttribute", 0, 456 },
	{ "cuCoredumpSetAttributeGlobal", 0, 457 },
	{ "cuCtxAttach", 0, 62 },
	{ "cuCtxCreate", (void *)cuCtxCreate, 39 },
	{ "cuCtxCreate_v2", (void *)cuCtxCreate_v2, 39 },
	{ "cuCtxCreate_v3", (void *)cuCtxCreate_v3, 39 },
	{ "cuCtxCreate_v4", (void *)cuCtxCreate_v4, 39 },
	{ "cuCtxDestroy", (void *)cuCtxDestroy, 40 },
	{ "cuCtxDestroy_v2", (void *)cuCtxDestroy_v2, 40 },
	{ "cuCtxDetach", 0, 63 },
	{ "cuCtxDisablePeerAccess", (void *)cuCtxDisablePeerAccess, 65 },
	{ "cuCtxEnablePeerAccess", (void *)cuCtxEnablePeerAccess, 64 },
	{ "cuCtxFromGreenCtx", 0, 68 },
	{ "cuCtxGetApiVersion", 0, 56 },
	{ "cuCtxGetCacheConfig", 0, 52 },
	{ "cuCtxGetCurrent", 0, 44 },
	{ "cuCtxGetDevResource", 0, 70 },
	{ "cuCtxGetDevice", 0, 45 },
	{ "cuCtxGetDevice_v2", 0, 45 },
	{ "cuCtxGetExecAffinity", 0, 59 },
	{ "cuCtxGetFlags", 0, 46 },
	{ "cuCtxGetId", 0, 48 },
	{ "cuCtxGetLimit", (void *)cuCtxGetLimit, 51 },
	{ "cuCtxGetSharedMemConfig", 0, 54 },
	{ "cuCtxGetStreamPriorityRange", 0, 57 },
	{ "cuCtxPopCurrent", 0, 42 },
	{ "cuCtxPopCurrent_v2", 0, 42 },
	{ "cuCtxPushCurrent", 0, 41 },
	{ "cuCtxPushCurrent_v2", 0, 41 },
	{ "cuCtxRecordEvent", 0, 60 },
	{ "cuCtxResetPersistingL2Cache", (void *)cuCtxResetPersistingL2Cache, 58 },
	{ "cuCtxSetCacheConfig", 0, 53 },
	{ "cuCtxSetCurrent", 0, 43 },
	{ "cuCtxSetFlags", 0, 47 },
	{ "cuCtxSetLimit", (void *)cuCtxSetLimit, 50 },
	{ "cuCtxSetSharedMemConfig", 0, 55 },
	{ "cuCtxSynchronize", (void *)cuCtxSynchronize, 49 },
	{ "cuCtxSynchronize_v2", (void *)cuCtxSynchronize_v2, 49 },
	{ "cuCtxWaitEvent", 0, 61 },
	{ "cuDestroyExternalMemory", (void *)cuDestroyExternalMemory, 270 },
	{ "cuDestroyExternalSemaphore", (void *)cuDestroyExternalSemaphore, 274 },
	{ "cuDevResourceGenerateDesc", 0, 73 },
	{ "cuDevSmResourceSplitByCount", 0, 72 },
	{ "cuDeviceCanAccessPeer", 0, 26 },
	{ "cuDeviceComputeCapability", 0, 23 },
	{ "cuDeviceGet", 0, 7 },
	{ "cuDeviceGetAttribute", 0, 14 },
	{ "cuDeviceGetByPCIBusId", 0, 24 },
	{ "cuDeviceGetCount", 0, 8 },
	{ "cuDeviceGetDefaultMemPool", (void *)cuDeviceGetDefaultMemPool, 19 },
	{ "cuDeviceGetDevResource", 0, 69 },
	{ "cuDeviceGetExecAffinitySupport", 0, 20 },
	{ "cuDeviceGetGraphMemAttribute", (void *)cuDeviceGetGraphMemAttribute, 29 },
	{ "cuDeviceGetHostAtomicCapabilities", 0, 15 },
	{ "cuDeviceGetLuid", 0, 11 },
	{ "cuDeviceGetMemPool", (void *)cuDeviceGetMemPool, 18 },
	{ "cuDeviceGetName", 0, 9 },
	{ "cuDeviceGetNvSciSyncAttributes", (void *)cuDeviceGetNvSciSyncAttributes, 16 },
	{ "cuDeviceGetP2PAtomicCapabilities", 0, 28 },
	{ "cuDeviceGetP2PAttribute", 0, 27 },
	{ "cuDeviceGetPCIBusId", 0, 25 },
	{ "cuDeviceGetProperties", 0, 22 },
	{ "cuDeviceGetTexture1DLinearMaxWidth", 0, 13 },
	{ "cuDeviceGetUuid", 0, 10 },
	{ "cuDeviceGetUuid_v2", 0, 10 },
	{ "cuDeviceGraphMemTrim", (void *)cuDeviceGraphMemTrim, 31 },
	{ "cuDevicePrimaryCtxGetState", 0, 37 },
	{ "cuDevicePrimaryCtxRelease", (void *)cuDevicePrimaryCtxRelease, 35 },
	{ "cuDevicePrimaryCtxRelease_v2", (void *)cuDevicePrimaryCtxRelease_v2, 35 },
	{ "cuDevicePrimaryCtxReset", (void *)cuDevicePrimaryCtxReset, 38 },
	{ "cuDevicePrimaryCtxReset_v2", (void *)cuDevicePrimaryCtxReset_v2, 38 },
	{ "cuDevicePrimaryCtxRetain", (void *)cuDevicePrimaryCtxRetain, 34 },
	{ "cuDevicePrimaryCtxSetFlags", 0, 36 },
	{ "cuDevicePrimaryCtxSetFlags_v2", 0, 36 },
	{ "cuDeviceRegisterAsyncNotification", 0, 32 },
	{ "cuDeviceSetGraphMemAttribute", (void *)cuDeviceSetGraphMemAttribute, 30 },
	{ "cuDeviceSetMemPool", (void *)cuDeviceSetMemPool, 17 },
	{ "cuDeviceTotalMem_v2", 0, 12 },
	{ "cuDeviceUnregisterAsyncNotification", 0, 33 },
	{ "cuDriverGetVersion", 0, 4 },
	{ "cuEGLStreamConsumerAcquireFrame", (void *)cuEGLStreamConsumerAcquireFrame, 445 },
	{ "cuEGLStreamConsumerConnect", (void *)cuEGLStreamConsumerConnect, 443 },
	{ "cuEGLStreamConsumerConnectWithFlags", (void *)cuEGLStreamConsumerConnectWithFlags, 449 },
	{ "cuEGLStreamConsumerDisconnect", (void *)cuEGLStreamConsumerDisconnect, 444 },
	{ "cuEGLStreamConsumerReleaseFrame", (void *)cuEGLStreamConsumerReleaseFrame, 446 },
	{ "cuEGLStreamProducerConnect", (void *)cuEGLStreamProducerConnect, 447 },
	{ "cuEGLStreamProducerDisconnect", (void *)cuEGLStreamProducerDisconnect, 448 },
	{ "cuEventCreate", 0, 260 },
	{ "cuEventDestroy", 0, 265 },
	{ "cuEventDestroy_v2", 0, 265 },
	{ "cuEventElapsedTime", 0, 266 },
	{ "cuEventElapsedTime_v2", 0, 266 },
	{ "cuEventQuery", 0, 263 },
	{ "cuEventRecord", 0, 261 },
	{ "cuEventRecordWithFlags", 0, 262 },
	{ "cuEventRecordWithFlags_ptsz", 0, 262 },
	{ "cuEventRecord_ptsz", 0, 261 },
	{ "cuEventSynchronize", (void *)cuEventSynchronize, 264 },
	{ "cuExternalMemoryGetMappedBuffer", (void *)cuExternalMemoryGetMappedBuffer, 268 },
	{ "cuExternalMemoryGetMappedMipmappedArray", (void *)cuExternalMemoryGetMappedMipmappedArray, 269 },
	{ "cuFlushGPUDirectRDMAWrites", 0, 21 },
	{ "cuFuncGetAttribute", 0, 275 },
	{ "cuFuncGetModule", 0, 279 },
	{ "cuFuncGetName", 0, 280 },
	{ "cuFuncGetParamCount", 0, 282 },
	{ "cuFuncGetParamInfo", 0, 281 },
	{ "cuFuncIsLoaded", 0, 283 },
	{ "cuFuncLoad", (void *)cuFuncLoad, 284 },
	{ "cuFuncSetAttribute", 0, 276 },
	{ "cuFuncSetBlockShape", 0, 290 },
	{ "cuFuncSetCacheConfig", 0, 277 },
	{ "cuFuncSetSharedMemConfig", 0, 278 },
	{ "cuFuncSetSharedSize", 0, 291 },
	{ "cuGLCtxCreate_v2", (void *)cuGLCtxCreate_v2, 438 },
	{ "cuGLGetDevices", (void *)cuGLGetDevices, 437 },
	{ "cuGLGetDevices_v2", (void *)cuGLGetDevices_v2, 437 },
	{ "cuGLInit", (void *)cuGLInit, 439 },
	{ "cuGLMapBufferObjectAsync_v2", (void *)cuGLMapBufferObjectAsync_v2, 477 },
	{ "cuGLMapBufferObjectAsync_v2_ptsz", (void *)cuGLMapBufferObjectAsync_v2_ptsz, 477 },
	{ "cuGLMapBufferObject_v2", (void *)cuGLMapBufferObject_v2, 473 },
	{ "cuGLMapBufferObject_v2_ptds", (void *)cuGLMapBufferObject_v2_ptds, 473 },
	{ "cuGLRegisterBufferObject", (void *)cuGLRegisterBufferObject, 472 },
	{ "cuGLSetBufferObjectMapFlags", (void *)cuGLSetBufferObjectMapFlags, 476 },
	{ "cuGLUnmapBufferObject", (void *)cuGLUnmapBufferObject, 474 },
	{ "cuGLUnmapBufferObjectAsync", (void *)cuGLUnmapBufferObjectAsync, 478 },
	{ "cuGLUnregisterBufferObject", (void *)cuGLUnregisterBufferObject, 475 },
	{ "cuGetErrorName", 0, 2 },
	{ "cuGetErrorString", 0, 1 },
	{ "cuGetExportTable", 0, 6 },
	{ "cuGetProcAddress", (void *)cuGetProcAddress, 5 },
	{ "cuGetProcAddress_v2", (void *)cuGetProcAddress_v2, 5 },
	{ "cuGraphAddBatchMemOpNode", (void *)cuGraphAddBatchMemOpNode, 328 },
	{ "cuGraphAddChildGraphNode", (void *)cuGraphAddChildGraphNode, 313 },
	{ "cuGraphAddDependencies", (void *)cuGraphAddDependencies, 344 },
	{ "cuGraphAddDependencies_v2", (void *)cuGraphAddDependencies_v2, 344 },
	{ "cuGraphAddEmptyNode", (void *)cuGraphAddEmptyNode, 315 },
	{ "cuGraphAddEventRecordNode", (void *)cuGraphAddEventRecordNode, 316 },
	{ "cuGraphAddEventWaitNode", (void *)cuGraphAddEventWaitNode, 319 },
	{ "cuGraphAddExternalSemaphoresSignalNode", (void *)cuGraphAddExternalSemaphoresSignalNode, 322 },
	{ "cuGraphAddExternalSemaphoresWaitNode", (void *)cuGraphAddExternalSemaphoresWaitNode, 325 },
	{ "cuGraphAddHostNode", (void *)cuGraphAddHostNode, 310 },
	{ "cuGraphAddKernelNode", (void *)cuGraphAddKernelNode, 301 },
	{ "cuGraphAddKernelNode_v2", (void *)cuGraphAddKernelNode_v2, 301 },
	{ "cuGraphAddMemAllocNode", (void *)cuGraphAddMemAllocNode, 332 },
	{ "cuGraphAddMemFreeNode", (void *)cuGraphAddMemFreeNode, 334 },
	{ "cuGraphAddMemcpyNode", (void *)cuGraphAddMemcpyNode, 304 },
	{ "cuGraphAddMemsetNode", (void *)cuGraphAddMemsetNode, 307 },
	{ "cuGraphAddNode", (void *)cuGraphAddNode, 376 },
	{ "cuGraphAddNode_v2", (void *)cuGraphAddNode_v2, 376 },
	{ "cuGraphBatchMemOpNodeGetParams", (void *)cuGraphBatchMemOpNodeGetParams, 329 },
	{ "cuGraphBatchMemOpNodeSetParams", (void *)cuGraphBatchMemOpNodeSetParams, 330 },
	{ "cuGraphChildGraphNodeGetGraph", (void *)cuGraphChildGraphNodeGetGraph, 314 },
	{ "cuGraphClone", (void *)cuGraphClone, 336 },
	{ "cuGraphConditionalHandleCreate", (void *)cuGraphConditionalHandleCreate, 379 },
	{ "cuGraphCreate", (void *)cuGraphCreate, 300 },
	{ "cuGraphDebugDotPrint", (void *)cuGraphDebugDotPrint, 370 },
	{ "cuGraphDestroy", (void *)cuGraphDestroy, 365 },
	{ "cuGraphDestroyNode", (void *)cuGraphDestroyNode, 346 },
	{ "cuGraphEventRecordNodeGetEvent", (void *)cuGraphEventRecordNodeGetEvent, 317 },
	{ "cuGraphEventRecordNodeSetEvent", (void *)cuGraphEventRecordNodeSetEvent, 318 },
	{ "cuGraphEventWaitNodeGetEvent", (void *)cuGraphEventWaitNodeGetEvent, 320 },
	{ "cuGraphEventWaitNodeSetEvent", (void *)cuGraphEventWaitNodeSetEvent, 321 },
	{ "cuGraphExecBatchMemOpNodeSetParams", (void *)cuGraphExecBatchMemOpNodeSetParams, 331 },
	{ "cuGraphExecChildGraphNodeSetParams", (void *)cuGraphExecChildGraphNodeSetParams, 355 },
	{ "cuGraphExecDestroy", (void *)cuGraphExecDestroy, 364 },
	{ "cuGraphExecEventRecordNodeSetEvent", (void *)cuGraphExecEventRecordNodeSetEvent, 356 },
	{ "cuGraphExecEventWaitNodeSetEvent", (void *)cuGraphExecEventWaitNodeSetEvent, 357 },
	{ "cuGraphExecExternalSemaphoresSignalNodeSetParams", (void *)cuGraphExecExternalSemaphoresSignalNodeSetParams, 358 },
	{ "cuGraphExecExternalSemaphoresWaitNodeSetParams", (void *)cuGraphExecExternalSemaphoresWaitNodeSetParams, 359 },
	{ "cuGraphExecGetFlags", (void *)cuGraphExecGetFlags, 350 },
	{ "cuGraphExecHostNodeSetParams", (void *)cuGraphExecHostNodeSetParams, 354 },
	{ "cuGraphExecKernelNodeSetParams", (void *)cuGraphExecKernelNodeSetParams, 351 },
	{ "cuGraphExecKernelNodeSetParams_v2", (void *)cuGraphExecKernelNodeSetParams_v2, 351 },
	{ "cuGraphExecMemcpyNodeSetParams", (void *)cuGraphExecMemcpyNodeSetParams, 352 },
	{ "cuGraphExecMemsetNodeSetParams", (void *)cuGraphExecMemsetNodeSetParams, 353 },
	{ "cuGraphExecNodeSetParams", (void *)cuGraphExecNodeSetParams, 378 },
	{ "cuGraphExecUpdate", (void *)cuGraphExecUpdate, 366 },
	{ "cuGraphExecUpdate_v2", (void *)cuGraphExecUpdate_v2, 366 },
	{ "cuGraphExternalSemaphoresSignalNodeGetParams", (void *)cuGraphExternalSemaphoresSignalNodeGetParams, 323 },
	{ "cuGraphExternalSemaphoresSignalNodeSetParams", (void *)cuGraphExternalSemaphoresSignalNodeSetParams, 324 },
	{ "cuGraphExternalSemaphoresWaitNodeGetParams", (void *)cuGraphExternalSemaphoresWaitNodeGetParams, 326 },
	{ "cuGraphExternalSemaphoresWaitNodeSetParams", (void *)cuGraphExternalSemaphoresWaitNodeSetParams, 327 },
	{ "cuGraphGetEdges", (void *)cuGraphGetEdges, 341 },
	{ "cuGraphGetEdges_v2", (void *)cuGraphGetEdges_v2, 341 },
	{ "cuGraphGetNodes", (void *)cuGraphGetNodes, 339 },
	{ "cuGraphGetRootNodes", (void *)cuGraphGetRootNodes, 340 },
	{ "cuGraphHostNodeGetParams", (void *)cuGraphHostNodeGetParams, 311 },
	{ "cuGraphHostNodeSetParams", (void *)cuGraphHostNodeSetParams, 312 },
	{ "cuGraphInstantiate", (void *)cuGraphInstantiate, 347 },
	{ "cuGraphInstantiateWithFlags", (void *)cuGraphInstantiateWithFlags, 348 },
	{ "cuGraphInstantiateWithParams", (void *)cuGraphInstantiateWithParams, 349 },
	{ "cuGraphInstantiateWithParams_ptsz", (void *)cuGraphInstantiateWithParams_ptsz, 349 },
	{ "cuGraphInstantiate_v2", (void *)cuGraphInstantiate_v2, 347 },
	{ "cuGraphKernelNodeCopyAttributes", (void *)cuGraphKernelNodeCopyAttributes, 367 },
	{ "cuGraphKernelNodeGetAttribute", (void *)cuGraphKernelNodeGetAttribute, 368 },
	{ "cuGraphKernelNodeGetParams", (void *)cuGraphKernelNodeGetParams, 302 },
	{ "cuGraphKernelNodeGetParams_v2", (void *)cuGraphKernelNodeGetParams_v2, 302 },
	{ "cuGraphKernelNodeSetAttribute", (void *)cuGraphKernelNodeSetAttribute, 369 },
	{ "cuGraphKernelNodeSetParams", (void *)cuGraphKernelNodeSetParams, 303 },
	{ "cuGraphKernelNodeSetParams_v2", (void *)cuGraphKernelNodeSetParams_v2, 303 },
	{ "cuGraphLaunch", (void *)cuGraphLaunch, 363 },
	{ "cuGraphLaunch_ptsz", (void *)cuGraphLaunch_ptsz, 363 },
	{ "cuGraphMemAllocNodeGetParams", (void *)cuGraphMemAllocNodeGetParams, 333 },
	{ "cuGraphMemFreeNodeGetParams", (void *)cuGraphMemFreeNodeGetParams, 335 },
	{ "cuGraphMemcpyNodeGetParams", (void *)cuGraphMemcpyNodeGetParams, 305 },
	{ "cuGraphMemcpyNodeSetParams", (void *)cuGraphMemcpyNodeSetParams, 306 },
	{ "cuGraphMemsetNodeGetParams", (void *)cuGraphMemsetNodeGetParams, 308 },
	{ "cuGraphMemsetNodeSetParams", (void *)cuGraphMemsetNodeSetParams, 309 },
	{ "cuGraphNodeFindInClone", (void *)cuGraphNodeFindInClone, 337 },
	{ "cuGraphNodeGetDependencies", (void *)cuGraphNodeGetDependencies, 342 },
	{ "cuGraphNodeGetDependencies_v2", (void *)cuGraphNodeGetDependencies_v2, 342 },
	{ "cuGraphNodeGetDependentNodes", (void *)cuGraphNodeGetDependentNodes, 343 },
	{ "cuGraphNodeGetDependentNodes_v2", (void *)cuGraphNodeGetDependentNodes_v2, 343 },
	{ "cuGraphNodeGetEnabled", (void *)cuGraphNodeGetEnabled, 361 },
	{ "cuGraphNodeGetType", (void *)cuGraphNodeGetType, 338 },
	{ "cuGraphNodeSetEnabled", (void *)cuGraphNodeSetEnabled, 360 },
	{ "cuGraphNodeSetParams", (void *)cuGraphNodeSetParams, 377 },
	{ "cuGraphReleaseUserObject", (void *)cuGraphReleaseUserObject, 375 },
	{ "cuGraphRemoveDependencies", (void *)cuGraphRemoveDependencies, 345 },
	{ "cuGraphRemoveDependencies_v2", (void *)cuGraphRemoveDependencies_v2, 345 },
	{ "cuGraphRetainUserObject", (void *)cuGraphRetainUserObject, 374 },
	{ "cuGraphUpload", (void *)cuGraphUpload, 362 },
	{ "cuGraphUpload_ptsz", (void *)cuGraphUpload_ptsz, 362 },
	{ "cuGraphicsEGLRegisterImage", (void *)cuGraphicsEGLRegisterImage, 440 },
	{ "cuGraphicsGLRegisterBuffer", (void *)cuGraphicsGLRegisterBuffer, 435 },
	{ "cuGraphicsGLRegisterImage", (void *)cuGraphicsGLRegisterImage, 436 },
	{ "cuGraphicsMapResources", (void *)cuGraphicsMapResources, 433 },
	{ "cuGraphicsMapResources_ptsz", (void *)cuGraphicsMapResources_ptsz, 433 },
	{ "cuGraphicsResourceGetMappedEglFrame", (void *)cuGraphicsResourceGetMappedEglFrame, 441 },
	{ "cuGraphicsResourceGetMappedMipmappedArray", (void *)cuGraphicsResourceGetMappedMipmappedArray, 430 },
	{ "cuGraphicsResourceGetMappedPointer_v2", (void *)cuGraphicsResourceGetMappedPointer_v2, 431 },
	{ "cuGraphicsResourceSetMapFlags", (void *)cuGraphicsResourceSetMapFlags, 432 },
	{ "cuGraphicsResourceSetMapFlags_v2", (void *)cuGraphicsResourceSetMapFlags_v2, 432 },
	{ "cuGraphicsSubResourceGetMappedArray", (void *)cuGraphicsSubResourceGetMappedArray, 429 },
	{ "cuGraphicsUnmapResources", (void *)cuGraphicsUnmapResources, 434 },
	{ "cuGraphicsUnmapResources_ptsz", (void *)cuGraphicsUnmapResources_ptsz, 434 },
	{ "cuGraphicsUnregisterResource", (void *)cuGraphicsUnregisterResource, 428 },
	{ "cuGraphicsVDPAURegisterOutputSurface", (void *)cuGraphicsVDPAURegisterOutputSurface, 453 },
	{ "cuGraphicsVDPAURegisterVideoSurface", (void *)cuGraphicsVDPAURegisterVideoSurface, 452 },
	{ "cuGreenCtxCreate", (void *)cuGreenCtxCreate, 66 },
	{ "cuGreenCtxDestroy", (void *)cuGreenCtxDestroy, 67 },
	{ "cuGreenCtxGetDevResource", 0, 71 },
	{ "cuGreenCtxGetId", 0, 78 },
	{ "cuGreenCtxRecordEvent", 0, 74 },
	{ "cuGreenCtxStreamCreate", (void *)cuGreenCtxStreamCreate, 77 },
	{ "cuGreenCtxWaitEvent", 0, 75 },
	{ "cuImportExternalMemory", (void *)cuImportExternalMemory, 267 },
	{ "cuImportExternalSemaphore", (void *)cuImportExternalSemaphore, 271 },
	{ "cuInit", (void *)cuInit, 3 },
	{ "cuIpcCloseMemHandle", (void *)cuIpcCloseMemHandle, 135 },
	{ "cuIpcGetEventHandle", (void *)cuIpcGetEventHandle, 131 },
	{ "cuIpcGetMemHandle", (void *)cuIpcGetMemHandle, 133 },
	{ "cuIpcOpenEventHandle", (void *)cuIpcOpenEventHandle, 132 },
	{ "cuIpcOpenMemHandle", (void *)cuIpcOpenMemHandle, 134 },
	{ "cuIpcOpenMemHandle_v2", (void *)cuIpcOpenMemHandle_v2, 134 },
	{ "cuKernelGetAttribute", 0, 108 },
	{ "cuKernelGetFunction", (void *)cuKernelGetFunction, 103 },
	{ "cuKernelGetLibrary", 0, 104 },
	{ "cuKernelGetName", 0, 111 },
	{ "cuKernelGetParamCount", 0, 113 },
	{ "cuKernelGetParamInfo", 0, 112 },
	{ "cuKernelSetAttribute", 0, 109 },
	{ "cuKernelSetCacheConfig", 0, 110 },
	{ "cuLaunch", (void *)cuLaunch, 296 },
	{ "cuLaunchCooperativeKernel", (void *)cuLaunchCooperativeKernel, 287 },
	{ "cuLaunchCooperativeKernelMultiDevice", (void *)cuLaunchCooperativeKernelMultiDevice, 288 },
	{ "cuLaunchCooperativeKernel_ptsz", (void *)cuLaunchCooperativeKernel_ptsz, 287 },
	{ "cuLaunchGrid", (void *)cuLaunchGrid, 297 },
	{ "cuLaunchGridAsync", (void *)cuLaunchGridAsync, 298 },
	{ "cuLaunchHostFunc", (void *)cuLaunchHostFunc, 289 },
	{ "cuLaunchHostFunc_ptsz", (void *)cuLaunchHostFunc_ptsz, 289 },
	{ "cuLaunchKernel", (void *)cuLaunchKernel, 285 },
	{ "cuLaunchKernelEx", (void *)cuLaunchKernelEx, 286 },
	{ "cuLaunchKernelEx_ptsz", (void *)cuLaunchKernelEx_ptsz, 286 },
	{ "cuLaunchKernel_ptsz", (void *)cuLaunchKernel_ptsz, 285 },
	{ "cuLibraryEnumerateKernels", (void *)cuLibraryEnumerateKernels, 101 },
	{ "cuLibraryGetGlobal", (void *)cuLibraryGetGlobal, 105 },
	{ "cuLibraryGetKernel", (void *)cuLibraryGetKernel, 99 },
	{ "cuLibraryGetKernelCount", 0, 100 },
	{ "cuLibraryGetManaged", (void *)cuLibraryGetManaged, 106 },
	{ "cuLibraryGetModule", (void *)cuLibraryGetModule, 102 },
	{ "cuLibraryGetUnifiedFunction", 0, 107 },
	{ "cuLibraryLoadData", (void *)cuLibraryLoadData, 96 },
	{ "cuLibraryLoadFromFile", (void *)cuLibraryLoadFromFile, 97 },
	{ "cuLibraryUnload", (void *)cuLibraryUnload, 98 },
	{ "cuLinkAddData", 0, 92 },
	{ "cuLinkAddData_v2", 0, 92 },
	{ "cuLinkAddFile", 0, 93 },
	{ "cuLinkAddFile_v2", 0, 93 },
	{ "cuLinkComplete", (void *)cuLinkComplete, 94 },
	{ "cuLinkCreate", 0, 91 },
	{ "cuLinkCreate_v2", 0, 91 },
	{ "cuLinkDestroy", 0, 95 },
	{ "cuLogsCurrent", 0, 463 },
	{ "cuLogsDumpToFile", 0, 464 },
	{ "cuLogsDumpToMemory", 0, 465 },
	{ "cuLogsRegisterCallback", 0, 461 },
	{ "cuLogsUnregisterCallback", 0, 462 },
	{ "cuMemAddressFree", (void *)cuMemAddressFree, 189 },
	{ "cuMemAddressReserve", (void *)cuMemAddressReserve, 188 },
	{ "cuMemAdvise", (void *)cuMemAdvise, 226 },
	{ "cuMemAdvise_v2", (void *)cuMemAdvise_v2, 226 },
	{ "cuMemAllocAsync", (void *)cuMemAllocAsync, 202 },
	{ "cuMemAllocAsync_ptsz", (void *)cuMemAllocAsync_ptsz, 202 },
	{ "cuMemAllocFromPoolAsync", (void *)cuMemAllocFromPoolAsync, 204 },
	{ "cuMemAllocFromPoolAsync_ptsz", (void *)cuMemAllocFromPoolAsync_ptsz, 204 },
	{ "cuMemAllocHost_v2", (void *)cuMemAllocHost_v2, 119 },
	{ "cuMemAllocManaged", (void *)cuMemAllocManaged, 124 },
	{ "cuMemAllocPitch_v2", (void *)cuMemAllocPitch_v2, 116 },
	{ "cuMemAlloc_v2", (void *)cuMemAlloc_v2, 115 },
	{ "cuMemBatchDecompressAsync", (void *)cuMemBatchDecompressAsync, 162 },
	{ "cuMemBatchDecompressAsync_ptsz", (void *)cuMemBatchDecompressAsync_ptsz, 162 },
	{ "cuMemCreate", (void *)cuMemCreate, 190 },
	{ "cuMemDiscardAndPrefetchBatchAsync", (void *)cuMemDiscardAndPrefetchBatchAsync, 231 },
	{ "cuMemDiscardAndPrefetchBatchAsync_ptsz", (void *)cuMemDiscardAndPrefetchBatchAsync_ptsz, 231 },
	{ "cuMemDiscardBatchAsync", (void *)cuMemDiscardBatchAsync, 230 },
	{ "cuMemDiscardBatchAsync_ptsz", (void *)cuMemDiscardBatchAsync_ptsz, 230 },
	{ "cuMemExportToShareableHandle", (void *)cuMemExportToShareableHandle, 197 },
	{ "cuMemFreeAsync", (void *)cuMemFreeAsync, 203 },
	{ "cuMemFreeAsync_ptsz", (void *)cuMemFreeAsync_ptsz, 203 },
	{ "cuMemFreeHost", (void *)cuMemFreeHost, 120 },
	{ "cuMemFree_v2", (void *)cuMemFree_v2, 117 },
	{ "cuMemGetAccess", (void *)cuMemGetAccess, 196 },
	{ "cuMemGetAddressRange_v2", (void *)cuMemGetAddressRange_v2, 118 },
	{ "cuMemGetAllocationGranularity", (void *)cuMemGetAllocationGranularity, 199 },
	{ "cuMemGetAllocationPropertiesFromHandle", (void *)cuMemGetAllocationPropertiesFromHandle, 200 },
	{ "cuMemGetDefaultMemPool", (void *)cuMemGetDefaultMemPool, 216 },
	{ "cuMemGetHandleForAddressRange", (void *)cuMemGetHandleForAddressRange, 130 },
	{ "cuMemGetInfo_v2", (void *)cuMemGetInfo_v2, 114 },
	{ "cuMemGetMemPool", (void *)cuMemGetMemPool, 217 },
	{ "cuMemHostAlloc", (void *)cuMemHostAlloc, 121 },
	{ "cuMemHostGetDevicePointer_v2", 0, 122 },
	{ "cuMemHostGetFlags", 0, 123 },
	{ "cuMemHostRegister", (void *)cuMemHostRegister, 125 },
	{ "cuMemHostRegister_v2", (void *)cuMemHostRegister_v2, 125 },
	{ "cuMemHostUnregister", (void *)cuMemHostUnregister, 126 },
	{ "cuMemImportFromShareableHandle", (void *)cuMemImportFromShareableHandle, 198 },
	{ "cuMemMap", (void *)cuMemMap, 192 },
	{ "cuMemMapArrayAsync", (void *)cuMemMapArrayAsync, 193 },
	{ "cuMemMapArrayAsync_ptsz", (void *)cuMemMapArrayAsync_ptsz, 193 },
	{ "cuMemPoolCreate", (void *)cuMemPoolCreate, 205 },
	{ "cuMemPoolDestroy", (void *)cuMemPoolDestroy, 206 },
	{ "cuMemPoolExportPointer", (void *)cuMemPoolExportPointer, 214 },
	{ "cuMemPoolExportToShareableHandle", (void *)cuMemPoolExportToShareableHandle, 212 },
	{ "cuMemPoolGetAccess", (void *)cuMemPoolGetAccess, 211 },
	{ "cuMemPoolGetAttribute", (void *)cuMemPoolGetAttribute, 209 },
	{ "cuMemPoolImportFromShareableHandle", (void *)cuMemPoolImportFromShareableHandle, 213 },
	{ "cuMemPoolImportPointer", (void *)cuMemPoolImportPointer, 215 },
	{ "cuMemPoolSetAccess", (void *)cuMemPoolSetAccess, 210 },
	{ "cuMemPoolSetAttribute", (void *)cuMemPoolSetAttribute, 208 },
	{ "cuMemPoolTrimTo", (void *)cuMemPoolTrimTo, 207 },
	{ "cuMemPrefetchAsync", (void *)cuMemPrefetchAsync, 225 },
	{ "cuMemPrefetchAsync_ptsz", (void *)cuMemPrefetchAsync_ptsz, 225 },
	{ "cuMemPrefetchAsync_v2", (void *)cuMemPrefetchAsync_v2, 225 },
	{ "cuMemPrefetchAsync_v2_ptsz", (void *)cuMemPrefetchAsync_v2_ptsz, 225 },
	{ "cuMemPrefetchBatchAsync", (void *)cuMemPrefetchBatchAsync, 229 },
	{ "cuMemPrefetchBatchAsync_ptsz", (void *)cuMemPrefetchBatchAsync_ptsz, 229 },
	{ "cuMemRangeGetAttribute", (void *)cuMemRangeGetAttribute, 227 },
	{ "cuMemRangeGetAttributes", (void *)cuMemRangeGetAttributes, 228 },
	{ "cuMemRelease", (void *)cuMemRelease, 191 },
	{ "cuMemRetainAllocationHandle", (void *)cuMemRetainAllocationHandle, 201 },
	{ "cuMemSetAccess", (void *)cuMemSetAccess, 195 },
	{ "cuMemSetMemPool", (void *)cuMemSetMemPool, 218 },
	{ "cuMemUnmap", (void *)cuMemUnmap, 194 },
	{ "cuMemcpy", (void *)cuMemcpy, 136 },
	{ "cuMemcpy2DAsync_v2", (void *)cuMemcpy2DAsync_v2, 157 },
	{ "cuMemcpy2DAsync_v2_ptsz", (void *)cuMemcpy2DAsync_v2_ptsz, 157 },
	{ "cuMemcpy2DUnaligned_v2", (void *)cuMemcpy2DUnaligned_v2, 147 },
	{ "cuMemcpy2DUnaligned_v2_ptds", (void *)cuMemcpy2DUnaligned_v2_ptds, 147 },
	{ "cuMemcpy2D_v2", (void *)cuMemcpy2D_v2, 146 },
	{ "cuMemcpy2D_v2_ptds", (void *)cuMemcpy2D_v2_ptds, 146 },
	{ "cuMemcpy3DAsync_v2", (void *)cuMemcpy3DAsync_v2, 158 },
	{ "cuMemcpy3DAsync_v2_ptsz", (void *)cuMemcpy3DAsync_v2_ptsz, 158 },
	{ "cuMemcpy3DBatchAsync", (void *)cuMemcpy3DBatchAsync, 161 },
	{ "cuMemcpy3DBatchAsync_ptsz", (void *)cuMemcpy3DBatchAsync_ptsz, 161 },
	{ "cuMemcpy3DBatchAsync_v2", (void *)cuMemcpy3DBatchAsync_v2, 161 },
	{ "cuMemcpy3DBatchAsync_v2_ptsz", (void *)cuMemcpy3DBatchAsync_v2_ptsz, 161 },
	{ "cuMemcpy3DPeer", (void *)cuMemcpy3DPeer, 149 },
	{ "cuMemcpy3DPeerAsync", (void *)cuMemcpy3DPeerAsync, 159 },
	{ "cuMemcpy3DPeerAsync_ptsz", (void *)cuMemcpy3DPeerAsync_ptsz, 159 },
	{ "cuMemcpy3DPeer_ptds", (void *)cuMemcpy3DPeer_ptds, 149 },
	{ "cuMemcpy3D_v2", (void *)cuMemcpy3D_v2, 148 },
	{ "cuMemcpy3D_v2_ptds", (void *)cuMemcpy3D_v2_ptds, 148 },
	{ "cuMemcpyAsync", (void *)cuMemcpyAsync, 150 },
	{ "cuMemcpyAsync_ptsz", (void *)cuMemcpyAsync_ptsz, 150 },
	{ "cuMemcpyAtoA_v2", (void *)cuMemcpyAtoA_v2, 145 },
	{ "cuMemcpyAtoA_v2_ptds", (void *)cuMemcpyAtoA_v2_ptds, 145 },
	{ "cuMemcpyAtoD_v2", (void *)cuMemcpyAtoD_v2, 142 },
	{ "cuMemcpyAtoD_v2_ptds", (void *)cuMemcpyAtoD_v2_ptds, 142 },
	{ "cuMemcpyAtoHAsync_v2", (void *)cuMemcpyAtoHAsync_v2, 156 },
	{ "cuMemcpyAtoHAsync_v2_ptsz", (void *)cuMemcpyAtoHAsync_v2_ptsz, 156 },
	{ "cuMemcpyAtoH_v2", (void *)cuMemcpyAtoH_v2, 144 },
	{ "cuMemcpyAtoH_v2_ptds", (void *)cuMemcpyAtoH_v2_ptds, 144 },
	{ "cuMemcpyBatchAsync", (void *)cuMemcpyBatchAsync, 160 },
	{ "cuMemcpyBatchAsync_ptsz", (void *)cuMemcpyBatchAsync_ptsz, 160 },
	{ "cuMemcpyBatchAsync_v2", (void *)cuMemcpyBatchAsync_v2, 160 },
	{ "cuMemcpyBatchAsync_v2_ptsz", (void *)cuMemcpyBatchAsync_v2_ptsz, 160 },
	{ "cuMemcpyDtoA_v2", (void *)cuMemcpyDtoA_v2, 141 },
	{ "cuMemcpyDtoA_v2_ptds", (void *)cuMemcpyDtoA_v2_ptds, 141 },
	{ "cuMemcpyDtoDAsync_v2", (void *)cuMemcpyDtoDAsync_v2, 154 },
	{ "cuMemcpyDtoDAsync_v2_ptsz", (void *)cuMemcpyDtoDAsync_v2_ptsz, 154 },
	{ "cuMemcpyDtoD_v2", (void *)cuMemcpyDtoD_v2, 140 },
	{ "cuMemcpyDtoD_v2_ptds", (void *)cuMemcpyDtoD_v2_ptds, 140 },
	{ "cuMemcpyDtoHAsync_v2", (void *)cuMemcpyDtoHAsync_v2, 153 },
	{ "cuMemcpyDtoHAsync_v2_ptsz", (void *)cuMemcpyDtoHAsync_v2_ptsz, 153 },
	{ "cuMemcpyDtoH_v2", (void *)cuMemcpyDtoH_v2, 139 },
	{ "cuMemcpyDtoH_v2_ptds", (void *)cuMemcpyDtoH_v2_ptds, 139 },
	{ "cuMemcpyHtoAAsync_v2", (void *)cuMemcpyHtoAAsync_v2, 155 },
	{ "cuMemcpyHtoAAsync_v2_ptsz", (void *)cuMemcpyHtoAAsync_v2_ptsz, 155 },
	{ "cuMemcpyHtoA_v2", (void *)cuMemcpyHtoA_v2, 143 },
	{ "cuMemcpyHtoA_v2_ptds", (void *)cuMemcpyHtoA_v2_ptds, 143 },
	{ "cuMemcpyHtoDAsync_v2", (void *)cuMemcpyHtoDAsync_v2, 152 },
	{ "cuMemcpyHtoDAsync_v2_ptsz", (void *)cuMemcpyHtoDAsync_v2_ptsz, 152 },
	{ "cuMemcpyHtoD_v2", (void *)cuMemcpyHtoD_v2, 138 },
	{ "cuMemcpyHtoD_v2_ptds", (void *)cuMemcpyHtoD_v2_ptds, 138 },
	{ "cuMemcpyPeer", (void *)cuMemcpyPeer, 137 },
	{ "cuMemcpyPeerAsync", (void *)cuMemcpyPeerAsync, 151 },
	{ "cuMemcpyPeerAsync_ptsz", (void *)cuMemcpyPeerAsync_ptsz, 151 },
	{ "cuMemcpyPeer_ptds", (void *)cuMemcpyPeer_ptds, 137 },
	{ "cuMemcpy_ptds", (void *)cuMemcpy_ptds, 136 },
	{ "cuMemsetD16Async", (void *)cuMemsetD16Async, 170 },
	{ "cuMemsetD16Async_ptsz", (void *)cuMemsetD16Async_ptsz, 170 },
	{ "cuMemsetD16_v2", (void *)cuMemsetD16_v2, 164 },
	{ "cuMemsetD16_v2_ptds", (void *)cuMemsetD16_v2_ptds, 164 },
	{ "cuMemsetD2D16Async", (void *)cuMemsetD2D16Async, 173 },
	{ "cuMemsetD2D16Async_ptsz", (void *)cuMemsetD2D16Async_ptsz, 173 },
	{ "cuMemsetD2D16_v2", (void *)cuMemsetD2D16_v2, 167 },
	{ "cuMemsetD2D16_v2_ptds", (void *)cuMemsetD2D16_v2_ptds, 167 },
	{ "cuMemsetD2D32Async", (void *)cuMemsetD2D32Async, 174 },
	{ "cuMemsetD2D32Async_ptsz", (void *)cuMemsetD2D32Async_ptsz, 174 },
	{ "cuMemsetD2D32_v2", (void *)cuMemsetD2D32_v2, 168 },
	{ "cuMemsetD2D32_v2_ptds", (void *)cuMemsetD2D32_v2_ptds, 168 },
	{ "cuMemsetD2D8Async", (void *)cuMemsetD2D8Async, 172 },
	{ "cuMemsetD2D8Async_ptsz", (void *)cuMemsetD2D8Async_ptsz, 172 },
	{ "cuMemsetD2D8_v2", (void *)cuMemsetD2D8_v2, 166 },
	{ "cuMemsetD2D8_v2_ptds", (void *)cuMemsetD2D8_v2_ptds, 166 },
	{ "cuMemsetD32Async", (void *)cuMemsetD32Async, 171 },
	{ "cuMemsetD32Async_ptsz", (void *)cuMemsetD32Async_ptsz, 171 },
	{ "cuMemsetD32_v2", (void *)cuMemsetD32_v2, 165 },
	{ "cuMemsetD32_v2_ptds", (void *)cuMemsetD32_v2_ptds, 165 },
	{ "cuMemsetD8Async", (void *)cuMemsetD8Async, 169 },
	{ "cuMemsetD8Async_ptsz", (void *)cuMemsetD8Async_ptsz, 169 },
	{ "cuMemsetD8_v2", (void *)cuMemsetD8_v2, 163 },
	{ "cuMemsetD8_v2_ptds", (void *)cuMemsetD8_v2_ptds, 163 },
	{ "cuMipmappedArrayCreate", (void *)cuMipmappedArrayCreate, 185 },
	{ "cuMipmappedArrayDestroy", (void *)cuMipmappedArrayDestroy, 187 },
	{ "cuMipmappedArrayGetLevel", (void *)cuMipmappedArrayGetLevel, 186 },
	{ "cuMipmappedArrayGetMemoryRequirements", (void *)cuMipmappedArrayGetMemoryRequirements, 180 },
	{ "cuMipmappedArrayGetSparseProperties", (void *)cuMipmappedArrayGetSparseProperties, 178 },
	{ "cuModuleEnumerateFunctions", 0, 87 },
	{ "cuModuleGetFunction", (void *)cuModuleGetFunction, 85 },
	{ "cuModuleGetFunctionCount", 0, 86 },
	{ "cuModuleGetGlobal_v2", (void *)cuModuleGetGlobal_v2, 88 },
	{ "cuModuleGetLoadingMode", 0, 84 },
	{ "cuModuleGetSurfRef", (void *)cuModuleGetSurfRef, 90 },
	{ "cuModuleGetTexRef", (void *)cuModuleGetTexRef, 89 },
	{ "cuModuleLoad", (void *)cuModuleLoad, 79 },
	{ "cuModuleLoadData", (void *)cuModuleLoadData, 80 },
	{ "cuModuleLoadDataEx", (void *)cuModuleLoadDataEx, 81 },
	{ "cuModuleLoadFatBinary", (void *)cuModuleLoadFatBinary, 82 },
	{ "cuModuleUnload", (void *)cuModuleUnload, 83 },
	{ "cuMulticastAddDevice", (void *)cuMulticastAddDevice, 220 },
	{ "cuMulticastBindAddr", (void *)cuMulticastBindAddr, 222 },
	{ "cuMulticastBindMem", (void *)cuMulticastBindMem, 221 },
	{ "cuMulticastCreate", (void *)cuMulticastCreate, 219 },
	{ "cuMulticastGetGranularity", (void *)cuMulticastGetGranularity, 224 },
	{ "cuMulticastUnbind", (void *)cuMulticastUnbind, 223 },
	{ "cuOccupancyAvailableDynamicSMemPerBlock", 0, 384 },
	{ "cuOccupancyMaxActiveBlocksPerMultiprocessor", 0, 380 },
	{ "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", 0, 381 },
	{ "cuOccupancyMaxActiveClusters", 0, 386 },
	{ "cuOccupancyMaxPotentialBlockSize", 0, 382 },
	{ "cuOccupancyMaxPotentialBlockSizeWithFlags", 0, 383 },
	{ "cuOccupancyMaxPotentialClusterSize", 0, 385 },
	{ "cuParamSetSize", 0, 292 },
	{ "cuParamSetTexRef", 0, 299 },
	{ "cuParamSetf", 0, 294 },
	{ "cuParamSeti", 0, 293 },
	{ "cuParamSetv", 0, 295 },
	{ "cuPointerGetAttribute", (void *)cuPointerGetAttribute, 127 },
	{ "cuPointerGetAttributes", (void *)cuPointerGetAttributes, 128 },
	{ "cuPointerSetAttribute", (void *)cuPointerSetAttribute, 129 },
	{ "cuProfilerInitialize", 0, 458 },
	{ "cuProfilerStart", 0, 459 },
	{ "cuProfilerStop", 0, 460 },
	{ "cuSignalExternalSemaphoresAsync", (void *)cuSignalExternalSemaphoresAsync, 272 },
	{ "cuSignalExternalSemaphoresAsync_ptsz", (void *)cuSignalExternalSemaphoresAsync_ptsz, 272 },
	{ "cuStreamAddCallback", (void *)cuStreamAddCallback, 240 },
	{ "cuStreamAddCallback_ptsz", (void *)cuStreamAddCallback_ptsz, 240 },
	{ "cuStreamAttachMemAsync", (void *)cuStreamAttachMemAsync, 248 },
	{ "cuStreamAttachMemAsync_ptsz", (void *)cuStreamAttachMemAsync_ptsz, 248 },
	{ "cuStreamBatchMemOp", (void *)cuStreamBatchMemOp, 259 },
	{ "cuStreamBatchMemOp_ptsz", (void *)cuStreamBatchMemOp_ptsz, 259 },
	{ "cuStreamBatchMemOp_v2", (void *)cuStreamBatchMemOp_v2, 259 },
	{ "cuStreamBatchMemOp_v2_ptsz", (void *)cuStreamBatchMemOp_v2_ptsz, 259 },
	{ "cuStreamBeginCapture", (void *)cuStreamBeginCapture, 241 },
	{ "cuStreamBeginCaptureToGraph", (void *)cuStreamBeginCaptureToGraph, 242 },
	{ "cuStreamBeginCaptureToGraph_ptsz", (void *)cuStreamBeginCaptureToGraph_ptsz, 242 },
	{ "cuStreamBeginCapture_ptsz", (void *)cuStreamBeginCapture_ptsz, 241 },
	{ "cuStreamBeginCapture_v2", (void *)cuStreamBeginCapture_v2, 241 },
	{ "cuStreamBeginCapture_v2_ptsz", (void *)cuStreamBeginCapture_v2_ptsz, 241 },
	{ "cuStreamCopyAttributes", (void *)cuStreamCopyAttributes, 252 },
	{ "cuStreamCopyAttributes_ptsz", (void *)cuStreamCopyAttributes_ptsz, 252 },
	{ "cuStreamCreate", (void *)cuStreamCreate, 232 },
	{ "cuStreamCreateWithPriority", (void *)cuStreamCreateWithPriority, 233 },
	{ "cuStreamDestroy", (void *)cuStreamDestroy, 251 },
	{ "cuStreamDestroy_v2", (void *)cuStreamDestroy_v2, 251 },
	{ "cuStreamEndCapture", (void *)cuStreamEndCapture, 244 },
	{ "cuStreamEndCapture_ptsz", (void *)cuStreamEndCapture_ptsz, 244 },
	{ "cuStreamGetAttribute", 0, 253 },
	{ "cuStreamGetAttribute_ptsz", 0, 253 },
	{ "cuStreamGetCaptureInfo", 0, 246 },
	{ "cuStreamGetCaptureInfo_ptsz", 0, 246 },
	{ "cuStreamGetCaptureInfo_v2", 0, 246 },
	{ "cuStreamGetCaptureInfo_v2_ptsz", 0, 246 },
	{ "cuStreamGetCaptureInfo_v3", 0, 246 },
	{ "cuStreamGetCaptureInfo_v3_ptsz", 0, 246 },
	{ "cuStreamGetCtx", 0, 238 },
	{ "cuStreamGetCtx_ptsz", 0, 238 },
	{ "cuStreamGetCtx_v2", 0, 238 },
	{ "cuStreamGetCtx_v2_ptsz", 0, 238 },
	{ "cuStreamGetDevice", 0, 235 },
	{ "cuStreamGetDevice_ptsz", 0, 235 },
	{ "cuStreamGetFlags", 0, 236 },
	{ "cuStreamGetFlags_ptsz", 0, 236 },
	{ "cuStreamGetGreenCtx", 0, 76 },
	{ "cuStreamGetId", 0, 237 },
	{ "cuStreamGetId_ptsz", 0, 237 },
	{ "cuStreamGetPriority", 0, 234 },
	{ "cuStreamGetPriority_ptsz", 0, 234 },
	{ "cuStreamIsCapturing", 0, 245 },
	{ "cuStreamIsCapturing_ptsz", 0, 245 },
	{ "cuStreamQuery", 0, 249 },
	{ "cuStreamQuery_ptsz", 0, 249 },
	{ "cuStreamSetAttribute", (void *)cuStreamSetAttribute, 254 },
	{ "cuStreamSetAttribute_ptsz", (void *)cuStreamSetAttribute_ptsz, 254 },
	{ "cuStreamSynchronize", (void *)cuStreamSynchronize, 250 },
	{ "cuStreamSynchronize_ptsz", (void *)cuStreamSynchronize_ptsz, 250 },
	{ "cuStreamUpdateCaptureDependencies", 0, 247 },
	{ "cuStreamUpdateCaptureDependencies_ptsz", 0, 247 },
	{ "cuStreamUpdateCaptureDependencies_v2", 0, 247 },
	{ "cuStreamUpdateCaptureDependencies_v2_ptsz", 0, 247 },
	{ "cuStreamWaitEvent", 0, 239 },
	{ "cuStreamWaitEvent_ptsz", 0, 239 },
	{ "cuStreamWaitValue32", (void *)cuStreamWaitValue32, 255 },
	{ "cuStreamWaitValue32_ptsz", (void *)cuStreamWaitValue32_ptsz, 255 },
	{ "cuStreamWaitValue32_v2", (void *)cuStreamWaitValue32_v2, 255 },
	{ "cuStreamWaitValue32_v2_ptsz", (void *)cuStreamWaitValue32_v2_ptsz, 255 },
	{ "cuStreamWaitValue64", (void *)cuStreamWaitValue64, 256 },
	{ "cuStreamWaitValue64_ptsz", (void *)cuStreamWaitValue64_ptsz, 256 },
	{ "cuStreamWaitValue64_v2", (void *)cuStreamWaitValue64_v2, 256 },
	{ "cuStreamWaitValue64_v2_ptsz", (void *)cuStreamWaitValue64_v2_ptsz, 256 },
	{ "cuStreamWriteValue32", (void *)cuStreamWriteValue32, 257 },
	{ "cuStreamWriteValue32_ptsz", (void *)cuStreamWriteValue32_ptsz, 257 },
	{ "cuStreamWriteValue32_v2", (void *)cuStreamWriteValue32_v2, 257 },
	{ "cuStreamWriteValue32_v2_ptsz", (void *)cuStreamWriteValue32_v2_ptsz, 257 },
	{ "cuStreamWriteValue64", (void *)cuStreamWriteValue64, 258 },
	{ "cuStreamWriteValue64_ptsz", (void *)cuStreamWriteValue64_ptsz, 258 },
	{ "cuStreamWriteValue64_v2", (void *)cuStreamWriteValue64_v2, 258 },
	{ "cuStreamWriteValue64_v2_ptsz", (void *)cuStreamWriteValue64_v2_ptsz, 258 },
	{ "cuSurfObjectCreate", (void *)cuSurfObjectCreate, 421 },
	{ "cuSurfObjectDestroy", (void *)cuSurfObjectDestroy, 422 },
	{ "cuSurfObjectGetResourceDesc", (void *)cuSurfObjectGetResourceDesc, 423 },
	{ "cuSurfRefGetArray", (void *)cuSurfRefGetArray, 415 },
	{ "cuSurfRefSetArray", (void *)cuSurfRefSetArray, 414 },
	{ "cuTensorMapEncodeIm2col", (void *)cuTensorMapEncodeIm2col, 425 },
	{ "cuTensorMapEncodeIm2colWide", (void *)cuTensorMapEncodeIm2colWide, 426 },
	{ "cuTensorMapEncodeTiled", (void *)cuTensorMapEncodeTiled, 424 },
	{ "cuTensorMapReplaceAddress", (void *)cuTensorMapReplaceAddress, 427 },
	{ "cuTexObjectCreate", (void *)cuTexObjectCreate, 416 },
	{ "cuTexObjectDestroy", (void *)cuTexObjectDestroy, 417 },
	{ "cuTexObjectGetResourceDesc", (void *)cuTexObjectGetResourceDesc, 418 },
	{ "cuTexObjectGetResourceViewDesc", (void *)cuTexObjectGetResourceViewDesc, 420 },
	{ "cuTexObjectGetTextureDesc", (void *)cuTexObjectGetTextureDesc, 419 },
	{ "cuTexRefCreate", (void *)cuTexRefCreate, 412 },
	{ "cuTexRefDestroy", (void *)cuTexRefDestroy, 413 },
	{ "cuTexRefGetAddressMode", (void *)cuTexRefGetAddressMode, 403 },
	{ "cuTexRefGetAddress_v2", (void *)cuTexRefGetAddress_v2, 400 },
	{ "cuTexRefGetArray", (void *)cuTexRefGetArray, 401 },
	{ "cuTexRefGetBorderColor", (void *)cuTexRefGetBorderColor, 410 },
	{ "cuTexRefGetFilterMode", (void *)cuTexRefGetFilterMode, 404 },
	{ "cuTexRefGetFlags", (void *)cuTexRefGetFlags, 411 },
	{ "cuTexRefGetFormat", (void *)cuTexRefGetFormat, 405 },
	{ "cuTexRefGetMaxAnisotropy", (void *)cuTexRefGetMaxAnisotropy, 409 },
	{ "cuTexRefGetMipmapFilterMode", (void *)cuTexRefGetMipmapFilterMode, 406 },
	{ "cuTexRefGetMipmapLevelBias", (void *)cuTexRefGetMipmapLevelBias, 407 },
	{ "cuTexRefGetMipmapLevelClamp", (void *)cuTexRefGetMipmapLevelClamp, 408 },
	{ "cuTexRefGetMipmappedArray", (void *)cuTexRefGetMipmappedArray, 402 },
	{ "cuTexRefSetAddress2D_v3", (void *)cuTexRefSetAddress2D_v3, 390 },
	{ "cuTexRefSetAddressMode", (void *)cuTexRefSetAddressMode, 392 },
	{ "cuTexRefSetAddress_v2", (void *)cuTexRefSetAddress_v2, 389 },
	{ "cuTexRefSetArray", (void *)cuTexRefSetArray, 387 },
	{ "cuTexRefSetBorderColor", (void *)cuTexRefSetBorderColor, 398 },
	{ "cuTexRefSetFilterMode", (void *)cuTexRefSetFilterMode, 393 },
	{ "cuTexRefSetFlags", (void *)cuTexRefSetFlags, 399 },
	{ "cuTexRefSetFormat", (void *)cuTexRefSetFormat, 391 },
	{ "cuTexRefSetMaxAnisotropy", (void *)cuTexRefSetMaxAnisotropy, 397 },
	{ "cuTexRefSetMipmapFilterMode", (void *)cuTexRefSetMipmapFilterMode, 394 },
	{ "cuTexRefSetMipmapLevelBias", (void *)cuTexRefSetMipmapLevelBias, 395 },
	{ "cuTexRefSetMipmapLevelClamp", (void *)cuTexRefSetMipmapLevelClamp, 396 },
	{ "cuTexRefSetMipmappedArray", (void *)cuTexRefSetMipmappedArray, 388 },
	{ "cuThreadExchangeStreamCaptureMode", 0, 243 },
	{ "cuUserObjectCreate", (void *)cuUserObjectCreate, 371 },
	{ "cuUserObjectRelease", (void *)cuUserObjectRelease, 373 },
	{ "cuUserObjectRetain", (void *)cuUserObjectRetain, 372 },
	{ "cuVDPAUCtxCreate_v2", (void *)cuVDPAUCtxCreate_v2, 451 },
	{ "cuVDPAUGetDevice", (void *)cuVDPAUGetDevice, 450 },
	{ "cuWaitExternalSemaphoresAsync", (void *)cuWaitExternalSemaphoresAsync, 273 },
	{ "cuWaitExternalSemaphoresAsync_ptsz", (void *)cuWaitExternalSemaphoresAsync_ptsz, 273 },
};

/* what cuGetProcAddress gives for a base name, sorted by name, newest first */
const struct hf_proc hf_procs[] = {
	{ "cuArray3DCreate", 3020, HF_SYM_cuArray3DCreate_v2, HF_SYM_cuArray3DCreate_v2 },
	{ "cuArray3DGetDescriptor", 3020, HF_SYM_cuArray3DGetDescriptor_v2, HF_SYM_cuArray3DGetDescriptor_v2 },
	{ "cuArrayCreate", 3020, HF_SYM_cuArrayCreate_v2, HF_SYM_cuArrayCreate_v2 },
	{ "cuArrayDestroy", 2000, HF_SYM_cuArrayDestroy, HF_SYM_cuArrayDestroy },
	{ "cuArrayGetDescriptor", 3020, HF_SYM_cuArrayGetDescriptor_v2, HF_SYM_cuArrayGetDescriptor_v2 },
	{ "cuArrayGetMemoryRequirements", 11060, HF_SYM_cuArrayGetMemoryRequirements, HF_SYM_cuArrayGetMemoryRequirements },
	{ "cuArrayGetPlane", 11020, HF_SYM_cuArrayGetPlane, HF_SYM_cuArrayGetPlane },
	{ "cuArrayGetSparseProperties", 11010, HF_SYM_cuArrayGetSparseProperties, HF_SYM_cuArrayGetSparseProperties },
	{ "cuCheckpointProcessCheckpoint", 12080, HF_SYM_cuCheckpointProcessCheckpoint, HF_SYM_cuCheckpointProcessCheckpoint },
	{ "cuCheckpointProcessGetRestoreThreadId", 12080, HF_SYM_cuCheckpointProcessGetRestoreThreadId, HF_SYM_cuCheckpointProcessGetRestoreThreadId },
	{ "cuCheckpointProcessGetState", 12080, HF_SYM_cuCheckpointProcessGetState, HF_SYM_cuCheckpointProcessGetState },
	{ "cuCheckpointProcessLock", 12080, HF_SYM_cuCheckpointProcessLock, HF_SYM_cuCheckpointProcessLock },
	{ "cuCheckpointProcessRestore", 12080, HF_SYM_cuCheckpointProcessRestore, HF_SYM_cuCheckpointProcessRestore },
	{ "cuCheckpointProcessUnlock", 12080, HF_SYM_cuCheckpointProcessUnlock, HF_SYM_cuCheckpointProcessUnlock },
	{ "cuCoredumpGetAttribute", 12010, HF_SYM_cuCoredumpGetAttribute, HF_SYM_cuCoredumpGetAttribute },
	{ "cuCoredumpGetAttributeGlobal", 12010, HF_SYM_cuCoredumpGetAttributeGlobal, HF_SYM_cuCoredumpGetAttributeGlobal },
	{ "cuCoredumpSetAttribute", 12010, HF_SYM_cuCoredumpSetAttribute, HF_SYM_cuCoredumpSetAttribute },
	{ "cuCoredumpSetAttributeGlobal", 12010, HF_SYM_cuCoredumpSetAttributeGlobal, HF_SYM_cuCoredumpSetAttributeGlobal },
	{ "cuCtxAttach", 2000, HF_SYM_cuCtxAttach, HF_SYM_cuCtxAttach },
	{ "cuCtxCreate", 12050, HF_SYM_cuCtxCreate_v4, HF_SYM_cuCtxCreate_v4 },
	{ "cuCtxCreate", 11040, HF_SYM_cuCtxCreate_v3, HF_SYM_cuCtxCreate_v3 },
	{ "cuCtxCreate", 3020, HF_SYM_cuCtxCreate_v2, HF_SYM_cuCtxCreate_v2 },
	{ "cuCtxCreate", 2000, HF_SYM_cuCtxCreate, HF_SYM_cuCtxCreate },
	{ "cuCtxDestroy", 4000, HF_SYM_cuCtxDestroy_v2, HF_SYM_cuCtxDestroy_v2 },
	{ "cuCtxDestroy", 2000, HF_SYM_cuCtxDestroy, HF_SYM_cuCtxDestroy },
	{ "cuCtxDetach", 2000, HF_SYM_cuCtxDetach, HF_SYM_cuCtxDetach },
	{ "cuCtxDisablePeerAccess", 4000, HF_SYM_cuCtxDisablePeerAccess, HF_SYM_cuCtxDisablePeerAccess },
	{ "cuCtxEnablePeerAccess", 4000, HF_SYM_cuCtxEnablePeerAccess, HF_SYM_cuCtxEnablePeerAccess },
	{ "cuCtxFromGreenCtx", 12040, HF_SYM_cuCtxFromGreenCtx, HF_SYM_cuCtxFromGreenCtx },
	{ "cuCtxGetApiVersion", 3020, HF_SYM_cuCtxGetApiVersion, HF_SYM_cuCtxGetApiVersion },
	{ "cuCtxGetCacheConfig", 3020, HF_SYM_cuCtxGetCacheConfig, HF_SYM_cuCtxGetCacheConfig },
	{ "cuCtxGetCurrent", 4000, HF_SYM_cuCtxGetCurrent, HF_SYM_cuCtxGetCurrent },
	{ "cuCtxGetDevResource", 12040, HF_SYM_cuCtxGetDevResource, HF_SYM_cuCtxGetDevResource },
	{ "cuCtxGetDevice", 13000, HF_SYM_cuCtxGetDevice_v2, HF_SYM_cuCtxGetDevice_v2 },
	{ "cuCtxGetDevice", 2000, HF_SYM_cuCtxGetDevice, HF_SYM_cuCtxGetDevice },
	{ "cuCtxGetExecAffinity", 11040, HF_SYM_cuCtxGetExecAffinity, HF_SYM_cuCtxGetExecAffinity },
	{ "cuCtxGetFlags", 7000, HF_SYM_cuCtxGetFlags, HF_SYM_cuCtxGetFlags },
	{ "cuCtxGetId", 12000, HF_SYM_cuCtxGetId, HF_SYM_cuCtxGetId },
	{ "cuCtxGetLimit", 3010, HF_SYM_cuCtxGetLimit, HF_SYM_cuCtxGetLimit },
	{ "cuCtxGetSharedMemConfig", 4020, HF_SYM_cuCtxGetSharedMemConfig, HF_SYM_cuCtxGetSharedMemConfig },
	{ "cuCtxGetStreamPriorityRange", 5050, HF_SYM_cuCtxGetStreamPriorityRange, HF_SYM_cuCtxGetStreamPriorityRange },
	{ "cuCtxPopCurrent", 4000, HF_SYM_cuCtxPopCurrent_v2, HF_SYM_cuCtxPopCurrent_v2 },
	{ "cuCtxPopCurrent", 2000, HF_SYM_cuCtxPopCurrent, HF_SYM_cuCtxPopCurrent },
	{ "cuCtxPushCurrent", 4000, HF_SYM_cuCtxPushCurrent_v2, HF_SYM_cuCtxPushCurrent_v2 },
	{ "cuCtxPushCurrent", 2000, HF_SYM_cuCtxPushCurrent, HF_SYM_cuCtxPushCurrent },
	{ "cuCtxRecordEvent", 12050, HF_SYM_cuCtxRecordEvent, HF_SYM_cuCtxRecordEvent },
	{ "cuCtxResetPersistingL2Cache", 11000, HF_SYM_cuCtxResetPersistingL2Cache, HF_SYM_cuCtxResetPersistingL2Cache },
	{ "cuCtxSetCacheConfig", 3020, HF_SYM_cuCtxSetCacheConfig, HF_SYM_cuCtxSetCacheConfig },
	{ "cuCtxSetCurrent", 4000, HF_SYM_cuCtxSetCurrent, HF_SYM_cuCtxSetCurrent },
	{ "cuCtxSetFlags", 12010, HF_SYM_cuCtxSetFlags, HF_SYM_cuCtxSetFlags },
	{ "cuCtxSetLimit", 3010, HF_SYM_cuCtxSetLimit, HF_SYM_cuCtxSetLimit },
	{ "cuCtxSetSharedMemConfig", 4020, HF_SYM_cuCtxSetSharedMemConfig, HF_SYM_cuCtxSetSharedMemConfig },
	{ "cuCtxSynchronize", 13000, HF_SYM_cuCtxSynchronize_v2, HF_SYM_cuCtxSynchronize_v2 },
	{ "cuCtxSynchronize", 2000, HF_SYM_cuCtxSynchronize, HF_SYM_cuCtxSynchronize },
	{ "cuCtxWaitEvent", 12050, HF_SYM_cuCtxWaitEvent, HF_SYM_cuCtxWaitEvent },
	{ "cuDestroyExternalMemory", 10000, HF_SYM_cuDestroyExternalMemory, HF_SYM_cuDestroyExternalMemory },
	{ "cuDestroyExternalSemaphore", 10000, HF_SYM_cuDestroyExternalSemaphore, HF_SYM_cuDestroyExternalSemaphore },
	{ "cuDevResourceGenerateDesc", 12040, HF_SYM_cuDevResourceGenerateDesc, HF_SYM_cuDevResourceGenerateDesc },
	{ "cuDevSmResourceSplitByCount", 12040, HF_SYM_cuDevSmResourceSplitByCount, HF_SYM_cuDevSmResourceSplitByCount },
	{ "cuDeviceCanAccessPeer", 4000, HF_SYM_cuDeviceCanAccessPeer, HF_SYM_cuDeviceCanAccessPeer },
	{ "cuDeviceComputeCapability", 2000, HF_SYM_cuDeviceComputeCapability, HF_SYM_cuDeviceComputeCapability },
	{ "cuDeviceGet", 2000, HF_SYM_cuDeviceGet, HF_SYM_cuDeviceGet },
	{ "cuDeviceGetAttribute", 2000, HF_SYM_cuDeviceGetAttribute, HF_SYM_cuDeviceGetAttribute },
	{ "cuDeviceGetByPCIBusId", 4010, HF_SYM_cuDeviceGetByPCIBusId, HF_SYM_cuDeviceGetByPCIBusId },
	{ "cuDeviceGetCount", 2000, HF_SYM_cuDeviceGetCount, HF_SYM_cuDeviceGetCount },
	{ "cuDeviceGetDefaultMemPool", 11020, HF_SYM_cuDeviceGetDefaultMemPool, HF_SYM_cuDeviceGetDefaultMemPool },
	{ "cuDeviceGetDevResource", 12040, HF_SYM_cuDeviceGetDevResource, HF_SYM_cuDeviceGetDevResource },
	{ "cuDeviceGetExecAffinitySupport", 11040, HF_SYM_cuDeviceGetExecAffinitySupport, HF_SYM_cuDeviceGetExecAffinitySupport },
	{ "cuDeviceGetGraphMemAttribute", 11040, HF_SYM_cuDeviceGetGraphMemAttribute, HF_SYM_cuDeviceGetGraphMemAttribute },
	{ "cuDeviceGetHostAtomicCapabilities", 13000, HF_SYM_cuDeviceGetHostAtomicCapabilities, HF_SYM_cuDeviceGetHostAtomicCapabilities },
	{ "cuDeviceGetLuid", 10000, HF_SYM_cuDeviceGetLuid, HF_SYM_cuDeviceGetLuid },
	{ "cuDeviceGetMemPool", 11020, HF_SYM_cuDeviceGetMemPool, HF_SYM_cuDeviceGetMemPool },
	{ "cuDeviceGetName", 2000, HF_SYM_cuDeviceGetName, HF_SYM_cuDeviceGetName },
	{ "cuDeviceGetNvSciSyncAttributes", 10020, HF_SYM_cuDeviceGetNvSciSyncAttributes, HF_SYM_cuDeviceGetNvSciSyncAttributes },
	{ "cuDeviceGetP2PAtomicCapabilities", 13000, HF_SYM_cuDeviceGetP2PAtomicCapabilities, HF_SYM_cuDeviceGetP2PAtomicCapabilities },
	{ "cuDeviceGetP2PAttribute", 8000, HF_SYM_cuDeviceGetP2PAttribute, HF_SYM_cuDeviceGetP2PAttribute },
	{ "cuDeviceGetPCIBusId", 4010, HF_SYM_cuDeviceGetPCIBusId, HF_SYM_cuDeviceGetPCIBusId },
	{ "cuDeviceGetProperties", 2000, HF_SYM_cuDeviceGetProperties, HF_SYM_cuDeviceGetProperties },
	{ "cuDeviceGetTexture1DLinearMaxWidth", 11010, HF_SYM_cuDeviceGetTexture1DLinearMaxWidth, HF_SYM_cuDeviceGetTexture1DLinearMaxWidth },
	{ "cuDeviceGetUuid", 11040, HF_SYM_cuDeviceGetUuid_v2, HF_SYM_cuDeviceGetUuid_v2 },
	{ "cuDeviceGetUuid", 9020, HF_SYM_cuDeviceGetUuid, HF_SYM_cuDeviceGetUuid },
	{ "cuDeviceGraphMemTrim", 11040, HF_SYM_cuDeviceGraphMemTrim, HF_SYM_cuDeviceGraphMemTrim },
	{ "cuDevicePrimaryCtxGetState", 7000, HF_SYM_cuDevicePrimaryCtxGetState, HF_SYM_cuDevicePrimaryCtxGetState },
	{ "cuDevicePrimaryCtxRelease", 11000, HF_SYM_cuDevicePrimaryCtxRelease_v2, HF_SYM_cuDevicePrimaryCtxRelease_v2 },
	{ "cuDevicePrimaryCtxRelease", 7000, HF_SYM_cuDevicePrimaryCtxRelease, HF_SYM_cuDevicePrimaryCtxRelease },
	{ "cuDevicePrimaryCtxReset", 11000, HF_SYM_cuDevicePrimaryCtxReset_v2, HF_SYM_cuDevicePrimaryCtxReset_v2 },
	{ "cuDevicePrimaryCtxReset", 7000, HF_SYM_cuDevicePrimaryCtxReset, HF_SYM_cuDevicePrimaryCtxReset },
	{ "cuDevicePrimaryCtxRetain", 7000, HF_SYM_cuDevicePrimaryCtxRetain, HF_SYM_cuDevicePrimaryCtxRetain },
	{ "cuDevicePrimaryCtxSetFlags", 11000, HF_SYM_cuDevicePrimaryCtxSetFlags_v2, HF_SYM_cuDevicePrimaryCtxSetFlags_v2 },
	{ "cuDevicePrimaryCtxSetFlags", 7000, HF_SYM_cuDevicePrimaryCtxSetFlags, HF_SYM_cuDevicePrimaryCtxSetFlags },
	{ "cuDeviceRegisterAsyncNotification", 12040, HF_SYM_cuDeviceRegisterAsyncNotification, HF_SYM_cuDeviceRegisterAsyncNotification },
	{ "cuDeviceSetGraphMemAttribute", 11040, HF_SYM_cuDeviceSetGraphMemAttribute, HF_SYM_cuDeviceSetGraphMemAttribute },
	{ "cuDeviceSetMemPool", 11020, HF_SYM_cuDeviceSetMemPool, HF_SYM_cuDeviceSetMemPool },
	{ "cuDeviceTotalMem", 3020, HF_SYM_cuDeviceTotalMem_v2, HF_SYM_cuDeviceTotalMem_v2 },
	{ "cuDeviceUnregisterAsyncNotification", 12040, HF_SYM_cuDeviceUnregisterAsyncNotification, HF_SYM_cuDeviceUnregisterAsyncNotification },
	{ "cuDriverGetVersion", 2020, HF_SYM_cuDriverGetVersion, HF_SYM_cuDriverGetVersion },
	{ "cuEGLStreamConsumerAcquireFrame", 7000, HF_SYM_cuEGLStreamConsumerAcquireFrame, HF_SYM_cuEGLStreamConsumerAcquireFrame },
	{ "cuEGLStreamConsumerConnect", 7000, HF_SYM_cuEGLStreamConsumerConnect, HF_SYM_cuEGLStreamConsumerConnect },
	{ "cuEGLStreamConsumerConnectWithFlags", 8000, HF_SYM_cuEGLStreamConsumerConnectWithFlags, HF_SYM_cuEGLStreamConsumerConnectWithFlags },
	{ "cuEGLStreamConsumerDisconnect", 7000, HF_SYM_cuEGLStreamConsumerDisconnect, HF_SYM_cuEGLStreamConsumerDisconnect },
	{ "cuEGLStreamConsumerReleaseFrame", 7000, HF_SYM_cuEGLStreamConsumerReleaseFrame, HF_SYM_cuEGLStreamConsumerReleaseFrame },
	{ "cuEGLStreamProducerConnect", 7000, HF_SYM_cuEGLStreamProducerConnect, HF_SYM_cuEGLStreamProducerConnect },
	{ "cuEGLStreamProducerDisconnect", 7000, HF_SYM_cuEGLStreamProducerDisconnect, HF_SYM_cuEGLStreamProducerDisconnect },
	{ "cuEventCreate", 2000, HF_SYM_cuEventCreate, HF_SYM_cuEventCreate },
	{ "cuEventDestroy", 4000, HF_SYM_cuEventDestroy_v2, HF_SYM_cuEventDestroy_v2 },
	{ "cuEventDestroy", 2000, HF_SYM_cuEventDestroy, HF_SYM_cuEventDestroy },
	{ "cuEventElapsedTime", 12080, HF_SYM_cuEventElapsedTime_v2, HF_SYM_cuEventElapsedTime_v2 },
	{ "cuEventElapsedTime", 2000, HF_SYM_cuEventElapsedTime, HF_SYM_cuEventElapsedTime },
	{ "cuEventQuery", 2000, HF_SYM_cuEventQuery, HF_SYM_cuEventQuery },
	{ "cuEventRecord", 2000, HF_SYM_cuEventRecord, HF_SYM_cuEventRecord_ptsz },
	{ "cuEventRecordWithFlags", 11010, HF_SYM_cuEventRecordWithFlags, HF_SYM_cuEventRecordWithFlags_ptsz },
	{ "cuEventSynchronize", 2000, HF_SYM_cuEventSynchronize, HF_SYM_cuEventSynchronize },
	{ "cuExternalMemoryGetMappedBuffer", 10000, HF_SYM_cuExternalMemoryGetMappedBuffer, HF_SYM_cuExternalMemoryGetMappedBuffer },
	{ "cuExternalMemoryGetMappedMipmappedArray", 10000, HF_SYM_cuExternalMemoryGetMappedMipmappedArray, HF_SYM_cuExternalMemoryGetMappedMipmappedArray },
	{ "cuFlushGPUDirectRDMAWrites", 11030, HF_SYM_cuFlushGPUDirectRDMAWrites, HF_SYM_cuFlushGPUDirectRDMAWrites },
	{ "cuFuncGetAttribute", 2020, HF_SYM_cuFuncGetAttribute, HF_SYM_cuFuncGetAttribute },
	{ "cuFuncGetModule", 11000, HF_SYM_cuFuncGetModule, HF_SYM_cuFuncGetModule },
	{ "cuFuncGetName", 12030, HF_SYM_cuFuncGetName, HF_SYM_cuFuncGetName },
	{ "cuFuncGetParamCount", 13010, HF_SYM_cuFuncGetParamCount, HF_SYM_cuFuncGetParamCount },
	{ "cuFuncGetParamInfo", 12040, HF_SYM_cuFuncGetParamInfo, HF_SYM_cuFuncGetParamInfo },
	{ "cuFuncIsLoaded", 12040, HF_SYM_cuFuncIsLoaded, HF_SYM_cuFuncIsLoaded },
	{ "cuFuncLoad", 12040, HF_SYM_cuFuncLoad, HF_SYM_cuFuncLoad },
	{ "cuFuncSetAttribute", 9000, HF_SYM_cuFuncSetAttribute, HF_SYM_cuFuncSetAttribute },
	{ "cuFuncSetBlockShape", 2000, HF_SYM_cuFuncSetBlockShape, HF_SYM_cuFuncSetBlockShape },
	{ "cuFuncSetCacheConfig", 3000, HF_SYM_cuFuncSetCacheConfig, HF_SYM_cuFuncSetCacheConfig },
	{ "cuFuncSetSharedMemConfig", 4020, HF_SYM_cuFuncSetSharedMemConfig, HF_SYM_cuFuncSetSharedMemConfig },
	{ "cuFuncSetSharedSize", 2000, HF_SYM_cuFuncSetSharedSize, HF_SYM_cuFuncSetSharedSize },
	{ "cuGLCtxCreate", 3020, HF_SYM_cuGLCtxCreate_v2, HF_SYM_cuGLCtxCreate_v2 },
	{ "cuGLGetDevices", 6050, HF_SYM_cuGLGetDevices_v2, HF_SYM_cuGLGetDevices_v2 },
	{ "cuGLGetDevices", 4010, HF_SYM_cuGLGetDevices, HF_SYM_cuGLGetDevices },
	{ "cuGLInit", 2000, HF_SYM_cuGLInit, HF_SYM_cuGLInit },
	{ "cuGLMapBufferObject", 3020, HF_SYM_cuGLMapBufferObject_v2, HF_SYM_cuGLMapBufferObject_v2_ptds },
	{ "cuGLMapBufferObjectAsync", 3020, HF_SYM_cuGLMapBufferObjectAsync_v2, HF_SYM_cuGLMapBufferObjectAsync_v2_ptsz },
	{ "cuGLRegisterBufferObject", 2000, HF_SYM_cuGLRegisterBufferObject, HF_SYM_cuGLRegisterBufferObject },
	{ "cuGLSetBufferObjectMapFlags", 2030, HF_SYM_cuGLSetBufferObjectMapFlags, HF_SYM_cuGLSetBufferObjectMapFlags },
	{ "cuGLUnmapBufferObject", 2000, HF_SYM_cuGLUnmapBufferObject, HF_SYM_cuGLUnmapBufferObject },
	{ "cuGLUnmapBufferObjectAsync", 2030, HF_SYM_cuGLUnmapBufferObjectAsync, HF_SYM_cuGLUnmapBufferObjectAsync },
	{ "cuGLUnregisterBufferObject", 2000, HF_SYM_cuGLUnregisterBufferObject, HF_SYM_cuGLUnregisterBufferObject },
	{ "cuGetErrorName", 6000, HF_SYM_cuGetErrorName, HF_SYM_cuGetErrorName },
	{ "cuGetErrorString", 6000, HF_SYM_cuGetErrorString, HF_SYM_cuGetErrorString },
	{ "cuGetExportTable", 3000, HF_SYM_cuGetExportTable, HF_SYM_cuGetExportTable },
	{ "cuGetProcAddress", 12000, HF_SYM_cuGetProcAddress_v2, HF_SYM_cuGetProcAddress_v2 },
	{ "cuGetProcAddress", 11030, HF_SYM_cuGetProcAddress, HF_SYM_cuGetProcAddress },
	{ "cuGraphAddBatchMemOpNode", 11070, HF_SYM_cuGraphAddBatchMemOpNode, HF_SYM_cuGraphAddBatchMemOpNode },
	{ "cuGraphAddChildGraphNode", 10000, HF_SYM_cuGraphAddChildGraphNode, HF_SYM_cuGraphAddChildGraphNode },
	{ "cuGraphAddDependencies", 12030, HF_SYM_cuGraphAddDependencies_v2, HF_SYM_cuGraphAddDependencies_v2 },
	{ "cuGraphAddDependencies", 10000, HF_SYM_cuGraphAddDependencies, HF_SYM_cuGraphAddDependencies },
	{ "cuGraphAddEmptyNode", 10000, HF_SYM_cuGraphAddEmptyNode, HF_SYM_cuGraphAddEmptyNode },
	{ "cuGraphAddEventRecordNode", 11010, HF_SYM_cuGraphAddEventRecordNode, HF_SYM_cuGraphAddEventRecordNode },
	{ "cuGraphAddEventWaitNode", 11010, HF_SYM_cuGraphAddEventWaitNode, HF_SYM_cuGraphAddEventWaitNode },
	{ "cuGraphAddExternalSemaphoresSignalNode", 11020, HF_SYM_cuGraphAddExternalSemaphoresSignalNode, HF_SYM_cuGraphAddExternalSemaphoresSignalNode },
	{ "cuGraphAddExternalSemaphoresWaitNode", 11020, HF_SYM_cuGraphAddExternalSemaphoresWaitNode, HF_SYM_cuGraphAddExternalSemaphoresWaitNode },
	{ "cuGraphAddHostNode", 10000, HF_SYM_cuGraphAddHostNode, HF_SYM_cuGraphAddHostNode },
	{ "cuGraphAddKernelNode", 12000, HF_SYM_cuGraphAddKernelNode_v2, HF_SYM_cuGraphAddKernelNode_v2 },
	{ "cuGraphAddKernelNode", 10000, HF_SYM_cuGraphAddKernelNode, HF_SYM_cuGraphAddKernelNode },
	{ "cuGraphAddMemAllocNode", 11040, HF_SYM_cuGraphAddMemAllocNode, HF_SYM_cuGraphAddMemAllocNode },
	{ "cuGraphAddMemFreeNode", 11040, HF_SYM_cuGraphAddMemFreeNode, HF_SYM_cuGraphAddMemFreeNode },
	{ "cuGraphAddMemcpyNode", 10000, HF_SYM_cuGraphAddMemcpyNode, HF_SYM_cuGraphAddMemcpyNode },
	{ "cuGraphAddMemsetNode", 10000, HF_SYM_cuGraphAddMemsetNode, HF_SYM_cuGraphAddMemsetNode },
	{ "cuGraphAddNode", 12030, HF_SYM_cuGraphAddNode_v2, HF_SYM_cuGraphAddNode_v2 },
	{ "cuGraphAddNode", 12020, HF_SYM_cuGraphAddNode, HF_SYM_cuGraphAddNode },
	{ "cuGraphBatchMemOpNodeGetParams", 11070, HF_SYM_cuGraphBatchMemOpNodeGetParams, HF_SYM_cuGraphBatchMemOpNodeGetParams },
	{ "cuGraphBatchMemOpNodeSetParams", 11070, HF_SYM_cuGraphBatchMemOpNodeSetParams, HF_SYM_cuGraphBatchMemOpNodeSetParams },
	{ "cuGraphChildGraphNodeGetGraph", 10000, HF_SYM_cuGraphChildGraphNodeGetGraph, HF_SYM_cuGraphChildGraphNodeGetGraph },
	{ "cuGraphClone", 10000, HF_SYM_cuGraphClone, HF_SYM_cuGraphClone },
	{ "cuGraphConditionalHandleCreate", 12030, HF_SYM_cuGraphConditionalHandleCreate, HF_SYM_cuGraphConditionalHandleCreate },
	{ "cuGraphCreate", 10000, HF_SYM_cuGraphCreate, HF_SYM_cuGraphCreate },
	{ "cuGraphDebugDotPrint", 11030, HF_SYM_cuGraphDebugDotPrint, HF_SYM_cuGraphDebugDotPrint },
	{ "cuGraphDestroy", 10000, HF_SYM_cuGraphDestroy, HF_SYM_cuGraphDestroy },
	{ "cuGraphDestroyNode", 10000, HF_SYM_cuGraphDestroyNode, HF_SYM_cuGraphDestroyNode },
	{ "cuGraphEventRecordNodeGetEvent", 11010, HF_SYM_cuGraphEventRecordNodeGetEvent, HF_SYM_cuGraphEventRecordNodeGetEvent },
	{ "cuGraphEventRecordNodeSetEvent", 11010, HF_SYM_cuGraphEventRecordNodeSetEvent, HF_SYM_cuGraphEventRecordNodeSetEvent },
	{ "cuGraphEventWaitNodeGetEvent", 11010, HF_SYM_cuGraphEventWaitNodeGetEvent, HF_SYM_cuGraphEventWaitNodeGetEvent },
	{ "cuGraphEventWaitNodeSetEvent", 11010, HF_SYM_cuGraphEventWaitNodeSetEvent, HF_SYM_cuGraphEventWaitNodeSetEvent },
	{ "cuGraphExecBatchMemOpNodeSetParams", 11070, HF_SYM_cuGraphExecBatchMemOpNodeSetParams, HF_SYM_cuGraphExecBatchMemOpNodeSetParams },
	{ "cuGraphExecChildGraphNodeSetParams", 11010, HF_SYM_cuGraphExecChildGraphNodeSetParams, HF_SYM_cuGraphExecChildGraphNodeSetParams },
	{ "cuGraphExecDestroy", 10000, HF_SYM_cuGraphExecDestroy, HF_SYM_cuGraphExecDestroy },
	{ "cuGraphExecEventRecordNodeSetEvent", 11010, HF_SYM_cuGraphExecEventRecordNodeSetEvent, HF_SYM_cuGraphExecEventRecordNodeSetEvent },
	{ "cuGraphExecEventWaitNodeSetEvent", 11010, HF_SYM_cuGraphExecEventWaitNodeSetEvent, HF_SYM_cuGraphExecEventWaitNodeSetEvent },
	{ "cuGraphExecExternalSemaphoresSignalNodeSetParams", 11020, HF_SYM_cuGraphExecExternalSemaphoresSignalNodeSetParams, HF_SYM_cuGraphExecExternalSemaphoresSignalNodeSetParams },
	{ "cuGraphExecExternalSemaphoresWaitNodeSetParams", 11020, HF_SYM_cuGraphExecExternalSemaphoresWaitNodeSetParams, HF_SYM_cuGraphExecExternalSemaphoresWaitNodeSetParams },
	{ "cuGraphExecGetFlags", 12000, HF_SYM_cuGraphExecGetFlags, HF_SYM_cuGraphExecGetFlags },
	{ "cuGraphExecHostNodeSetParams", 10020, HF_SYM_cuGraphExecHostNodeSetParams, HF_SYM_cuGraphExecHostNodeSetParams },
	{ "cuGraphExecKernelNodeSetParams", 12000, HF_SYM_cuGraphExecKernelNodeSetParams_v2, HF_SYM_cuGraphExecKernelNodeSetParams_v2 },
	{ "cuGraphExecKernelNodeSetParams", 10010, HF_SYM_cuGraphExecKernelNodeSetParams, HF_SYM_cuGraphExecKernelNodeSetParams },
	{ "cuGraphExecMemcpyNodeSetParams", 10020, HF_SYM_cuGraphExecMemcpyNodeSetParams, HF_SYM_cuGraphExecMemcpyNodeSetParams },
	{ "cuGraphExecMemsetNodeSetParams", 10020, HF_SYM_cuGraphExecMemsetNodeSetParams, HF_SYM_cuGraphExecMemsetNodeSetParams },
	{ "cuGraphExecNodeSetParams", 12020, HF_SYM_cuGraphExecNodeSetParams, HF_SYM_cuGraphExecNodeSetParams },
	{ "cuGraphExecUpdate", 12000, HF_SYM_cuGraphExecUpdate_v2, HF_SYM_cuGraphExecUpdate_v2 },
	{ "cuGraphExecUpdate", 10020, HF_SYM_cuGraphExecUpdate, HF_SYM_cuGraphExecUpdate },
	{ "cuGraphExternalSemaphoresSignalNodeGetParams", 11020, HF_SYM_cuGraphExternalSemaphoresSignalNodeGetParams, HF_SYM_cuGraphExternalSemaphoresSignalNodeGetParams },
	{ "cuGraphExternalSemaphoresSignalNodeSetParams", 11020, HF_SYM_cuGraphExternalSemaphoresSignalNodeSetParams, HF_SYM_cuGraphExternalSemaphoresSignalNodeSetParams },
	{ "cuGraphExternalSemaphoresWaitNodeGetParams", 11020, HF_SYM_cuGraphExternalSemaphoresWaitNodeGetParams, HF_SYM_cuGraphExternalSemaphoresWaitNodeGetParams },
	{ "cuGraphExternalSemaphoresWaitNodeSetParams", 11020, HF_SYM_cuGraphExternalSemaphoresWaitNodeSetParams, HF_SYM_cuGraphExternalSemaphoresWaitNodeSetParams },
	{ "cuGraphGetEdges", 12030, HF_SYM_cuGraphGetEdges_v2, HF_SYM_cuGraphGetEdges_v2 },
	{ "cuGraphGetEdges", 10000, HF_SYM_cuGraphGetEdges, HF_SYM_cuGraphGetEdges },
	{ "cuGraphGetNodes", 10000, HF_SYM_cuGraphGetNodes, HF_SYM_cuGraphGetNodes },
	{ "cuGraphGetRootNodes", 10000, HF_SYM_cuGraphGetRootNodes, HF_SYM_cuGraphGetRootNodes },
	{ "cuGraphHostNodeGetParams", 10000, HF_SYM_cuGraphHostNodeGetParams, HF_SYM_cuGraphHostNodeGetParams },
	{ "cuGraphHostNodeSetParams", 10000, HF_SYM_cuGraphHostNodeSetParams, HF_SYM_cuGraphHostNodeSetParams },
	{ "cuGraphInstantiate", 11000, HF_SYM_cuGraphInstantiate_v2, HF_SYM_cuGraphInstantiate_v2 },
	{ "cuGraphInstantiate", 10000, HF_SYM_cuGraphInstantiate, HF_SYM_cuGraphInstantiate },
	{ "cuGraphInstantiateWithFlags", 11040, HF_SYM_cuGraphInstantiateWithFlags, HF_SYM_cuGraphInstantiateWithFlags },
	{ "cuGraphInstantiateWithParams", 12000, HF_SYM_cuGraphInstantiateWithParams, HF_SYM_cuGraphInstantiateWithParams_ptsz },
	{ "cuGraphKernelNodeCopyAttributes", 11000, HF_SYM_cuGraphKernelNodeCopyAttributes, HF_SYM_cuGraphKernelNodeCopyAttributes },
	{ "cuGraphKernelNodeGetAttribute", 11000, HF_SYM_cuGraphKernelNodeGetAttribute, HF_SYM_cuGraphKernelNodeGetAttribute },
	{ "cuGraphKernelNodeGetParams", 12000, HF_SYM_cuGraphKernelNodeGetParams_v2, HF_SYM_cuGraphKernelNodeGetParams_v2 },
	{ "cuGraphKernelNodeGetParams", 10000, HF_SYM_cuGraphKernelNodeGetParams, HF_SYM_cuGraphKernelNodeGetParams },
	{ "cuGraphKernelNodeSetAttribute", 11000, HF_SYM_cuGraphKernelNodeSetAttribute, HF_SYM_cuGraphKernelNodeSetAttribute },
	{ "cuGraphKernelNodeSetParams", 12000, HF_SYM_cuGraphKernelNodeSetParams_v2, HF_SYM_cuGraphKernelNodeSetParams_v2 },
	{ "cuGraphKernelNodeSetParams", 10000, HF_SYM_cuGraphKernelNodeSetParams, HF_SYM_cuGraphKernelNodeSetParams },
	{ "cuGraphLaunch", 10000, HF_SYM_cuGraphLaunch, HF_SYM_cuGraphLaunch_ptsz },
	{ "cuGraphMemAllocNodeGetParams", 11040, HF_SYM_cuGraphMemAllocNodeGetParams, HF_SYM_cuGraphMemAllocNodeGetParams },
	{ "cuGraphMemFreeNodeGetParams", 11040, HF_SYM_cuGraphMemFreeNodeGetParams, HF_SYM_cuGraphMemFreeNodeGetParams },
	{ "cuGraphMemcpyNodeGetParams", 10000, HF_SYM_cuGraphMemcpyNodeGetParams, HF_SYM_cuGraphMemcpyNodeGetParams },
	{ "cuGraphMemcpyNodeSetParams", 10000, HF_SYM_cuGraphMemcpyNodeSetParams, HF_SYM_cuGraphMemcpyNodeSetParams },
	{ "cuGraphMemsetNodeGetParams", 10000, HF_SYM_cuGraphMemsetNodeGetParams, HF_SYM_cuGraphMemsetNodeGetParams },
	{ "cuGraphMemsetNodeSetParams", 10000, HF_SYM_cuGraphMemsetNodeSetParams, HF_SYM_cuGraphMemsetNodeSetParams },
	{ "cuGraphNodeFindInClone", 10000, HF_SYM_cuGraphNodeFindInClone, HF_SYM_cuGraphNodeFindInClone },
	{ "cuGraphNodeGetDependencies", 12030, HF_SYM_cuGraphNodeGetDependencies_v2, HF_SYM_cuGraphNodeGetDependencies_v2 },
	{ "cuGraphNodeGetDependencies", 10000, HF_SYM_cuGraphNodeGetDependencies, HF_SYM_cuGraphNodeGetDependencies },
	{ "cuGraphNodeGetDependentNodes", 12030, HF_SYM_cuGraphNodeGetDependentNodes_v2, HF_SYM_cuGraphNodeGetDependentNodes_v2 },
	{ "cuGraphNodeGetDependentNodes", 10000, HF_SYM_cuGraphNodeGetDependentNodes, HF_SYM_cuGraphNodeGetDependentNodes },
	{ "cuGraphNodeGetEnabled", 11060, HF_SYM_cuGraphNodeGetEnabled, HF_SYM_cuGraphNodeGetEnabled },
	{ "cuGraphNodeGetType", 10000, HF_SYM_cuGraphNodeGetType, HF_SYM_cuGraphNodeGetType },
	{ "cuGraphNodeSetEnabled", 11060, HF_SYM_cuGraphNodeSetEnabled, HF_SYM_cuGraphNodeSetEnabled },
	{ "cuGraphNodeSetParams", 12020, HF_SYM_cuGraphNodeSetParams, HF_SYM_cuGraphNodeSetParams },
	{ "cuGraphReleaseUserObject", 11030, HF_SYM_cuGraphReleaseUserObject, HF_SYM_cuGraphReleaseUserObject },
	{ "cuGraphRemoveDependencies", 12030, HF_SYM_cuGraphRemoveDependencies_v2, HF_SYM_cuGraphRemoveDependencies_v2 },
	{ "cuGraphRemoveDependencies", 10000, HF_SYM_cuGraphRemoveDependencies, HF_SYM_cuGraphRemoveDependencies },
	{ "cuGraphRetainUserObject", 11030, HF_SYM_cuGraphRetainUserObject, HF_SYM_cuGraphRetainUserObject },
	{ "cuGraphUpload", 11010, HF_SYM_cuGraphUpload, HF_SYM_cuGraphUpload_ptsz },
	{ "cuGraphicsEGLRegisterImage", 7000, HF_SYM_cuGraphicsEGLRegisterImage, HF_SYM_cuGraphicsEGLRegisterImage },
	{ "cuGraphicsGLRegisterBuffer", 3000, HF_SYM_cuGraphicsGLRegisterBuffer, HF_SYM_cuGraphicsGLRegisterBuffer },
	{ "cuGraphicsGLRegisterImage", 3000, HF_SYM_cuGraphicsGLRegisterImage, HF_SYM_cuGraphicsGLRegisterImage },
	{ "cuGraphicsMapResources", 3000, HF_SYM_cuGraphicsMapResources, HF_SYM_cuGraphicsMapResources_ptsz },
	{ "cuGraphicsResourceGetMappedEglFrame", 7000, HF_SYM_cuGraphicsResourceGetMappedEglFrame, HF_SYM_cuGraphicsResourceGetMappedEglFrame },
	{ "cuGraphicsResourceGetMappedMipmappedArray", 5000, HF_SYM_cuGraphicsResourceGetMappedMipmappedArray, HF_SYM_cuGraphicsResourceGetMappedMipmappedArray },
	{ "cuGraphicsResourceGetMappedPointer", 3020, HF_SYM_cuGraphicsResourceGetMappedPointer_v2, HF_SYM_cuGraphicsResourceGetMappedPointer_v2 },
	{ "cuGraphicsResourceSetMapFlags", 6050, HF_SYM_cuGraphicsResourceSetMapFlags_v2, HF_SYM_cuGraphicsResourceSetMapFlags_v2 },
	{ "cuGraphicsResourceSetMapFlags", 3000, HF_SYM_cuGraphicsResourceSetMapFlags, HF_SYM_cuGraphicsResourceSetMapFlags },
	{ "cuGraphicsSubResourceGetMappedArray", 3000, HF_SYM_cuGraphicsSubResourceGetMappedArray, HF_SYM_cuGraphicsSubResourceGetMappedArray },
	{ "cuGraphicsUnmapResources", 3000, HF_SYM_cuGraphicsUnmapResources, HF_SYM_cuGraphicsUnmapResources_ptsz },
	{ "cuGraphicsUnregisterResource", 3000, HF_SYM_cuGraphicsUnregisterResource, HF_SYM_cuGraphicsUnregisterResource },
	{ "cuGraphicsVDPAURegisterOutputSurface", 3010, HF_SYM_cuGraphicsVDPAURegisterOutputSurface, HF_SYM_cuGraphicsVDPAURegisterOutputSurface },
	{ "cuGraphicsVDPAURegisterVideoSurface", 3010, HF_SYM_cuGraphicsVDPAURegisterVideoSurface, HF_SYM_cuGraphicsVDPAURegisterVideoSurface },
	{ "cuGreenCtxCreate", 12040, HF_SYM_cuGreenCtxCreate, HF_SYM_cuGreenCtxCreate },
	{ "cuGreenCtxDestroy", 12040, HF_SYM_cuGreenCtxDestroy, HF_SYM_cuGreenCtxDestroy },
	{ "cuGreenCtxGetDevResource", 12040, HF_SYM_cuGreenCtxGetDevResource, HF_SYM_cuGreenCtxGetDevResource },
	{ "cuGreenCtxGetId", 12090, HF_SYM_cuGreenCtxGetId, HF_SYM_cuGreenCtxGetId },
	{ "cuGreenCtxRecordEvent", 12040, HF_SYM_cuGreenCtxRecordEvent, HF_SYM_cuGreenCtxRecordEvent },
	{ "cuGreenCtxStreamCreate", 12050, HF_SYM_cuGreenCtxStreamCreate, HF_SYM_cuGreenCtxStreamCreate },
	{ "cuGreenCtxWaitEvent", 12040, HF_SYM_cuGreenCtxWaitEvent, HF_SYM_cuGreenCtxWaitEvent },
	{ "cuImportExternalMemory", 10000, HF_SYM_cuImportExternalMemory, HF_SYM_cuImportExternalMemory },
	{ "cuImportExternalSemaphore", 10000, HF_SYM_cuImportExternalSemaphore, HF_SYM_cuImportExternalSemaphore },
	{ "cuInit", 2000, HF_SYM_cuInit, HF_SYM_cuInit },
	{ "cuIpcCloseMemHandle", 4010, HF_SYM_cuIpcCloseMemHandle, HF_SYM_cuIpcCloseMemHandle },
	{ "cuIpcGetEventHandle", 4010, HF_SYM_cuIpcGetEventHandle, HF_SYM_cuIpcGetEventHandle },
	{ "cuIpcGetMemHandle", 4010, HF_SYM_cuIpcGetMemHandle, HF_SYM_cuIpcGetMemHandle },
	{ "cuIpcOpenEventHandle", 4010, HF_SYM_cuIpcOpenEventHandle, HF_SYM_cuIpcOpenEventHandle },
	{ "cuIpcOpenMemHandle", 11000, HF_SYM_cuIpcOpenMemHandle_v2, HF_SYM_cuIpcOpenMemHandle_v2 },
	{ "cuIpcOpenMemHandle", 4010, HF_SYM_cuIpcOpenMemHandle, HF_SYM_cuIpcOpenMemHandle },
	{ "cuKernelGetAttribute", 12000, HF_SYM_cuKernelGetAttribute, HF_SYM_cuKernelGetAttribute },
	{ "cuKernelGetFunction", 12000, HF_SYM_cuKernelGetFunction, HF_SYM_cuKernelGetFunction },
	{ "cuKernelGetLibrary", 12050, HF_SYM_cuKernelGetLibrary, HF_SYM_cuKernelGetLibrary },
	{ "cuKernelGetName", 12030, HF_SYM_cuKernelGetName, HF_SYM_cuKernelGetName },
	{ "cuKernelGetParamCount", 13010, HF_SYM_cuKernelGetParamCount, HF_SYM_cuKernelGetParamCount },
	{ "cuKernelGetParamInfo", 12040, HF_SYM_cuKernelGetParamInfo, HF_SYM_cuKernelGetParamInfo },
	{ "cuKernelSetAttribute", 12000, HF_SYM_cuKernelSetAttribute, HF_SYM_cuKernelSetAttribute },
	{ "cuKernelSetCacheConfig", 12000, HF_SYM_cuKernelSetCacheConfig, HF_SYM_cuKernelSetCacheConfig },
	{ "cuLaunch", 2000, HF_SYM_cuLaunch, HF_SYM_cuLaunch },
	{ "cuLaunchCooperativeKernel", 9000, HF_SYM_cuLaunchCooperativeKernel, HF_SYM_cuLaunchCooperativeKernel_ptsz },
	{ "cuLaunchCooperativeKernelMultiDevice", 9000, HF_SYM_cuLaunchCooperativeKernelMultiDevice, HF_SYM_cuLaunchCooperativeKernelMultiDevice },
	{ "cuLaunchGrid", 2000, HF_SYM_cuLaunchGrid, HF_SYM_cuLaunchGrid },
	{ "cuLaunchGridAsync", 2000, HF_SYM_cuLaunchGridAsync, HF_SYM_cuLaunchGridAsync },
	{ "cuLaunchHostFunc", 10000, HF_SYM_cuLaunchHostFunc, HF_SYM_cuLaunchHostFunc_ptsz },
	{ "cuLaunchKernel", 4000, HF_SYM_cuLaunchKernel, HF_SYM_cuLaunchKernel_ptsz },
	{ "cuLaunchKernelEx", 11060, HF_SYM_cuLaunchKernelEx, HF_SYM_cuLaunchKernelEx_ptsz },
	{ "cuLibraryEnumerateKernels", 12040, HF_SYM_cuLibraryEnumerateKernels, HF_SYM_cuLibraryEnumerateKernels },
	{ "cuLibraryGetGlobal", 12000, HF_SYM_cuLibraryGetGlobal, HF_SYM_cuLibraryGetGlobal },
	{ "cuLibraryGetKernel", 12000, HF_SYM_cuLibraryGetKernel, HF_SYM_cuLibraryGetKernel },
	{ "cuLibraryGetKernelCount", 12040, HF_SYM_cuLibraryGetKernelCount, HF_SYM_cuLibraryGetKernelCount },
	{ "cuLibraryGetManaged", 12000, HF_SYM_cuLibraryGetManaged, HF_SYM_cuLibraryGetManaged },
	{ "cuLibraryGetModule", 12000, HF_SYM_cuLibraryGetModule, HF_SYM_cuLibraryGetModule },
	{ "cuLibraryGetUnifiedFunction", 12000, HF_SYM_cuLibraryGetUnifiedFunction, HF_SYM_cuLibraryGetUnifiedFunction },
	{ "cuLibraryLoadData", 12000, HF_SYM_cuLibraryLoadData, HF_SYM_cuLibraryLoadData },
	{ "cuLibraryLoadFromFile", 12000, HF_SYM_cuLibraryLoadFromFile, HF_SYM_cuLibraryLoadFromFile },
	{ "cuLibraryUnload", 12000, HF_SYM_cuLibraryUnload, HF_SYM_cuLibraryUnload },
	{ "cuLinkAddData", 6050, HF_SYM_cuLinkAddData_v2, HF_SYM_cuLinkAddData_v2 },
	{ "cuLinkAddData", 5050, HF_SYM_cuLinkAddData, HF_SYM_cuLinkAddData },
	{ "cuLinkAddFile", 6050, HF_SYM_cuLinkAddFile_v2, HF_SYM_cuLinkAddFile_v2 },
	{ "cuLinkAddFile", 5050, HF_SYM_cuLinkAddFile, HF_SYM_cuLinkAddFile },
	{ "cuLinkComplete", 5050, HF_SYM_cuLinkComplete, HF_SYM_cuLinkComplete },
	{ "cuLinkCreate", 6050, HF_SYM_cuLinkCreate_v2, HF_SYM_cuLinkCreate_v2 },
	{ "cuLinkCreate", 5050, HF_SYM_cuLinkCreate, HF_SYM_cuLinkCreate },
	{ "cuLinkDestroy", 5050, HF_SYM_cuLinkDestroy, HF_SYM_cuLinkDestroy },
	{ "cuLogsCurrent", 12090, HF_SYM_cuLogsCurrent, HF_SYM_cuLogsCurrent },
	{ "cuLogsDumpToFile", 12090, HF_SYM_cuLogsDumpToFile, HF_SYM_cuLogsDumpToFile },
	{ "cuLogsDumpToMemory", 12090, HF_SYM_cuLogsDumpToMemory, HF_SYM_cuLogsDumpToMemory },
	{ "cuLogsRegisterCallback", 12090, HF_SYM_cuLogsRegisterCallback, HF_SYM_cuLogsRegisterCallback },
	{ "cuLogsUnregisterCallback", 12090, HF_SYM_cuLogsUnregisterCallback, HF_SYM_cuLogsUnregisterCallback },
	{ "cuMemAddressFree", 10020, HF_SYM_cuMemAddressFree, HF_SYM_cuMemAddressFree },
	{ "cuMemAddressReserve", 10020, HF_SYM_cuMemAddressReserve, HF_SYM_cuMemAddressReserve },
	{ "cuMemAdvise", 12020, HF_SYM_cuMemAdvise_v2, HF_SYM_cuMemAdvise_v2 },
	{ "cuMemAdvise", 8000, HF_SYM_cuMemAdvise, HF_SYM_cuMemAdvise },
	{ "cuMemAlloc", 3020, HF_SYM_cuMemAlloc_v2, HF_SYM_cuMemAlloc_v2 },
	{ "cuMemAllocAsync", 11020, HF_SYM_cuMemAllocAsync, HF_SYM_cuMemAllocAsync_ptsz },
	{ "cuMemAllocFromPoolAsync", 11020, HF_SYM_cuMemAllocFromPoolAsync, HF_SYM_cuMemAllocFromPoolAsync_ptsz },
	{ "cuMemAllocHost", 3020, HF_SYM_cuMemAllocHost_v2, HF_SYM_cuMemAllocHost_v2 },
	{ "cuMemAllocManaged", 6000, HF_SYM_cuMemAllocManaged, HF_SYM_cuMemAllocManaged },
	{ "cuMemAllocPitch", 3020, HF_SYM_cuMemAllocPitch_v2, HF_SYM_cuMemAllocPitch_v2 },
	{ "cuMemBatchDecompressAsync", 12060, HF_SYM_cuMemBatchDecompressAsync, HF_SYM_cuMemBatchDecompressAsync_ptsz },
	{ "cuMemCreate", 10020, HF_SYM_cuMemCreate, HF_SYM_cuMemCreate },
	{ "cuMemDiscardAndPrefetchBatchAsync", 13000, HF_SYM_cuMemDiscardAndPrefetchBatchAsync, HF_SYM_cuMemDiscardAndPrefetchBatchAsync_ptsz },
	{ "cuMemDiscardBatchAsync", 13000, HF_SYM_cuMemDiscardBatchAsync, HF_SYM_cuMemDiscardBatchAsync_ptsz },
	{ "cuMemExportToShareableHandle", 10020, HF_SYM_cuMemExportToShareableHandle, HF_SYM_cuMemExportToShareableHandle },
	{ "cuMemFree", 3020, HF_SYM_cuMemFree_v2, HF_SYM_cuMemFree_v2 },
	{ "cuMemFreeAsync", 11020, HF_SYM_cuMemFreeAsync, HF_SYM_cuMemFreeAsync_ptsz },
	{ "cuMemFreeHost", 2000, HF_SYM_cuMemFreeHost, HF_SYM_cuMemFreeHost },
	{ "cuMemGetAccess", 10020, HF_SYM_cuMemGetAccess, HF_SYM_cuMemGetAccess },
	{ "cuMemGetAddressRange", 3020, HF_SYM_cuMemGetAddressRange_v2, HF_SYM_cuMemGetAddressRange_v2 },
	{ "cuMemGetAllocationGranularity", 10020, HF_SYM_cuMemGetAllocationGranularity, HF_SYM_cuMemGetAllocationGranularity },
	{ "cuMemGetAllocationPropertiesFromHandle", 10020, HF_SYM_cuMemGetAllocationPropertiesFromHandle, HF_SYM_cuMemGetAllocationPropertiesFromHandle },
	{ "cuMemGetDefaultMemPool", 13000, HF_SYM_cuMemGetDefaultMemPool, HF_SYM_cuMemGetDefaultMemPool },
	{ "cuMemGetHandleForAddressRange", 11070, HF_SYM_cuMemGetHandleForAddressRange, HF_SYM_cuMemGetHandleForAddressRange },
	{ "cuMemGetInfo", 3020, HF_SYM_cuMemGetInfo_v2, HF_SYM_cuMemGetInfo_v2 },
	{ "cuMemGetMemPool", 13000, HF_SYM_cuMemGetMemPool, HF_SYM_cuMemGetMemPool },
	{ "cuMemHostAlloc", 2020, HF_SYM_cuMemHostAlloc, HF_SYM_cuMemHostAlloc },
	{ "cuMemHostGetDevicePointer", 3020, HF_SYM_cuMemHostGetDevicePointer_v2, HF_SYM_cuMemHostGetDevicePointer_v2 },
	{ "cuMemHostGetFlags", 2030, HF_SYM_cuMemHostGetFlags, HF_SYM_cuMemHostGetFlags },
	{ "cuMemHostRegister", 6050, HF_SYM_cuMemHostRegister_v2, HF_SYM_cuMemHostRegister_v2 },
	{ "cuMemHostRegister", 4000, HF_SYM_cuMemHostRegister, HF_SYM_cuMemHostRegister },
	{ "cuMemHostUnregister", 4000, HF_SYM_cuMemHostUnregister, HF_SYM_cuMemHostUnregister },
	{ "cuMemImportFromShareableHandle", 10020, HF_SYM_cuMemImportFromShareableHandle, HF_SYM_cuMemImportFromShareableHandle },
	{ "cuMemMap", 10020, HF_SYM_cuMemMap, HF_SYM_cuMemMap },
	{ "cuMemMapArrayAsync", 11010, HF_SYM_cuMemMapArrayAsync, HF_SYM_cuMemMapArrayAsync_ptsz },
	{ "cuMemPoolCreate", 11020, HF_SYM_cuMemPoolCreate, HF_SYM_cuMemPoolCreate },
	{ "cuMemPoolDestroy", 11020, HF_SYM_cuMemPoolDestroy, HF_SYM_cuMemPoolDestroy },
	{ "cuMemPoolExportPointer", 11020, HF_SYM_cuMemPoolExportPointer, HF_SYM_cuMemPoolExportPointer },
	{ "cuMemPoolExportToShareableHandle", 11020, HF_SYM_cuMemPoolExportToShareableHandle, HF_SYM_cuMemPoolExportToShareableHandle },
	{ "cuMemPoolGetAccess", 11020, HF_SYM_cuMemPoolGetAccess, HF_SYM_cuMemPoolGetAccess },
	{ "cuMemPoolGetAttribute", 11020, HF_SYM_cuMemPoolGetAttribute, HF_SYM_cuMemPoolGetAttribute },
	{ "cuMemPoolImportFromShareableHandle", 11020, HF_SYM_cuMemPoolImportFromShareableHandle, HF_SYM_cuMemPoolImportFromShareableHandle },
	{ "cuMemPoolImportPointer", 11020, HF_SYM_cuMemPoolImportPointer, HF_SYM_cuMemPoolImportPointer },
	{ "cuMemPoolSetAccess", 11020, HF_SYM_cuMemPoolSetAccess, HF_SYM_cuMemPoolSetAccess },
	{ "cuMemPoolSetAttribute", 11020, HF_SYM_cuMemPoolSetAttribute, HF_SYM_cuMemPoolSetAttribute },
	{ "cuMemPoolTrimTo", 11020, HF_SYM_cuMemPoolTrimTo, HF_SYM_cuMemPoolTrimTo },
	{ "cuMemPrefetchAsync", 12020, HF_SYM_cuMemPrefetchAsync_v2, HF_SYM_cuMemPrefetchAsync_v2_ptsz },
	{ "cuMemPrefetchAsync", 8000, HF_SYM_cuMemPrefetchAsync, HF_SYM_cuMemPrefetchAsync_ptsz },
	{ "cuMemPrefetchBatchAsync", 13000, HF_SYM_cuMemPrefetchBatchAsync, HF_SYM_cuMemPrefetchBatchAsync_ptsz },
	{ "cuMemRangeGetAttribute", 8000, HF_SYM_cuMemRangeGetAttribute, HF_SYM_cuMemRangeGetAttribute },
	{ "cuMemRangeGetAttributes", 8000, HF_SYM_cuMemRangeGetAttributes, HF_SYM_cuMemRangeGetAttributes },
	{ "cuMemRelease", 10020, HF_SYM_cuMemRelease, HF_SYM_cuMemRelease },
	{ "cuMemRetainAllocationHandle", 11000, HF_SYM_cuMemRetainAllocationHandle, HF_SYM_cuMemRetainAllocationHandle },
	{ "cuMemSetAccess", 10020, HF_SYM_cuMemSetAccess, HF_SYM_cuMemSetAccess },
	{ "cuMemSetMemPool", 13000, HF_SYM_cuMemSetMemPool, HF_SYM_cuMemSetMemPool },
	{ "cuMemUnmap", 10020, HF_SYM_cuMemUnmap, HF_SYM_cuMemUnmap },
	{ "cuMemcpy", 4000, HF_SYM_cuMemcpy, HF_SYM_cuMemcpy_ptds },
	{ "cuMemcpy2D", 3020, HF_SYM_cuMemcpy2D_v2, HF_SYM_cuMemcpy2D_v2_ptds },
	{ "cuMemcpy2DAsync", 3020, HF_SYM_cuMemcpy2DAsync_v2, HF_SYM_cuMemcpy2DAsync_v2_ptsz },
	{ "cuMemcpy2DUnaligned", 3020, HF_SYM_cuMemcpy2DUnaligned_v2, HF_SYM_cuMemcpy2DUnaligned_v2_ptds },
	{ "cuMemcpy3D", 3020, HF_SYM_cuMemcpy3D_v2, HF_SYM_cuMemcpy3D_v2_ptds },
	{ "cuMemcpy3DAsync", 3020, HF_SYM_cuMemcpy3DAsync_v2, HF_SYM_cuMemcpy3DAsync_v2_ptsz },
	{ "cuMemcpy3DBatchAsync", 13000, HF_SYM_cuMemcpy3DBatchAsync_v2, HF_SYM_cuMemcpy3DBatchAsync_v2_ptsz },
	{ "cuMemcpy3DBatchAsync", 12080, HF_SYM_cuMemcpy3DBatchAsync, HF_SYM_cuMemcpy3DBatchAsync_ptsz },
	{ "cuMemcpy3DPeer", 4000, HF_SYM_cuMemcpy3DPeer, HF_SYM_cuMemcpy3DPeer_ptds },
	{ "cuMemcpy3DPeerAsync", 4000, HF_SYM_cuMemcpy3DPeerAsync, HF_SYM_cuMemcpy3DPeerAsync_ptsz },
	{ "cuMemcpyAsync", 4000, HF_SYM_cuMemcpyAsync, HF_SYM_cuMemcpyAsync_ptsz },
	{ "cuMemcpyAtoA", 3020, HF_SYM_cuMemcpyAtoA_v2, HF_SYM_cuMemcpyAtoA_v2_ptds },
	{ "cuMemcpyAtoD", 3020, HF_SYM_cuMemcpyAtoD_v2, HF_SYM_cuMemcpyAtoD_v2_ptds },
	{ "cuMemcpyAtoH", 3020, HF_SYM_cuMemcpyAtoH_v2, HF_SYM_cuMemcpyAtoH_v2_ptds },
	{ "cuMemcpyAtoHAsync", 3020, HF_SYM_cuMemcpyAtoHAsync_v2, HF_SYM_cuMemcpyAtoHAsync_v2_ptsz },
	{ "cuMemcpyBatchAsync", 13000, HF_SYM_cuMemcpyBatchAsync_v2, HF_SYM_cuMemcpyBatchAsync_v2_ptsz },
	{ "cuMemcpyBatchAsync", 12080, HF_SYM_cuMemcpyBatchAsync, HF_SYM_cuMemcpyBatchAsync_ptsz },
	{ "cuMemcpyDtoA", 3020, HF_SYM_cuMemcpyDtoA_v2, HF_SYM_cuMemcpyDtoA_v2_ptds },
	{ "cuMemcpyDtoD", 3020, HF_SYM_cuMemcpyDtoD_v2, HF_SYM_cuMemcpyDtoD_v2_ptds },
	{ "cuMemcpyDtoDAsync", 3020, HF_SYM_cuMemcpyDtoDAsync_v2, HF_SYM_cuMemcpyDtoDAsync_v2_ptsz },
	{ "cuMemcpyDtoH", 3020, HF_SYM_cuMemcpyDtoH_v2, HF_SYM_cuMemcpyDtoH_v2_ptds },
	{ "cuMemcpyDtoHAsync", 3020, HF_SYM_cuMemcpyDtoHAsync_v2, HF_SYM_cuMemcpyDtoHAsync_v2_ptsz },
	{ "cuMemcpyHtoA", 3020, HF_SYM_cuMemcpyHtoA_v2, HF_SYM_cuMemcpyHtoA_v2_ptds },
	{ "cuMemcpyHtoAAsync", 3020, HF_SYM_cuMemcpyHtoAAsync_v2, HF_SYM_cuMemcpyHtoAAsync_v2_ptsz },
	{ "cuMemcpyHtoD", 3020, HF_SYM_cuMemcpyHtoD_v2, HF_SYM_cuMemcpyHtoD_v2_ptds },
	{ "cuMemcpyHtoDAsync", 3020, HF_SYM_cuMemcpyHtoDAsync_v2, HF_SYM_cuMemcpyHtoDAsync_v2_ptsz },
	{ "cuMemcpyPeer", 4000, HF_SYM_cuMemcpyPeer, HF_SYM_cuMemcpyPeer_ptds },
	{ "cuMemcpyPeerAsync", 4000, HF_SYM_cuMemcpyPeerAsync, HF_SYM_cuMemcpyPeerAsync_ptsz },
	{ "cuMemsetD16", 3020, HF_SYM_cuMemsetD16_v2, HF_SYM_cuMemsetD16_v2_ptds },
	{ "cuMemsetD16Async", 3020, HF_SYM_cuMemsetD16Async, HF_SYM_cuMemsetD16Async_ptsz },
	{ "cuMemsetD2D16", 3020, HF_SYM_cuMemsetD2D16_v2, HF_SYM_cuMemsetD2D16_v2_ptds },
	{ "cuMemsetD2D16Async", 3020, HF_SYM_cuMemsetD2D16Async, HF_SYM_cuMemsetD2D16Async_ptsz },
	{ "cuMemsetD2D32", 3020, HF_SYM_cuMemsetD2D32_v2, HF_SYM_cuMemsetD2D32_v2_ptds },
	{ "cuMemsetD2D32Async", 3020, HF_SYM_cuMemsetD2D32Async, HF_SYM_cuMemsetD2D32Async_ptsz },
	{ "cuMemsetD2D8", 3020, HF_SYM_cuMemsetD2D8_v2, HF_SYM_cuMemsetD2D8_v2_ptds },
	{ "cuMemsetD2D8Async", 3020, HF_SYM_cuMemsetD2D8Async, HF_SYM_cuMemsetD2D8Async_ptsz },
	{ "cuMemsetD32", 3020, HF_SYM_cuMemsetD32_v2, HF_SYM_cuMemsetD32_v2_ptds },
	{ "cuMemsetD32Async", 3020, HF_SYM_cuMemsetD32Async, HF_SYM_cuMemsetD32Async_ptsz },
	{ "cuMemsetD8", 3020, HF_SYM_cuMemsetD8_v2, HF_SYM_cuMemsetD8_v2_ptds },
	{ "cuMemsetD8Async", 3020, HF_SYM_cuMemsetD8Async, HF_SYM_cuMemsetD8Async_ptsz },
	{ "cuMipmappedArrayCreate", 5000, HF_SYM_cuMipmappedArrayCreate, HF_SYM_cuMipmappedArrayCreate },
	{ "cuMipmappedArrayDestroy", 5000, HF_SYM_cuMipmappedArrayDestroy, HF_SYM_cuMipmappedArrayDestroy },
	{ "cuMipmappedArrayGetLevel", 5000, HF_SYM_cuMipmappedArrayGetLevel, HF_SYM_cuMipmappedArrayGetLevel },
	{ "cuMipmappedArrayGetMemoryRequirements", 11060, HF_SYM_cuMipmappedArrayGetMemoryRequirements, HF_SYM_cuMipmappedArrayGetMemoryRequirements },
	{ "cuMipmappedArrayGetSparseProperties", 11010, HF_SYM_cuMipmappedArrayGetSparseProperties, HF_SYM_cuMipmappedArrayGetSparseProperties },
	{ "cuModuleEnumerateFunctions", 12040, HF_SYM_cuModuleEnumerateFunctions, HF_SYM_cuModuleEnumerateFunctions },
	{ "cuModuleGetFunction", 2000, HF_SYM_cuModuleGetFunction, HF_SYM_cuModuleGetFunction },
	{ "cuModuleGetFunctionCount", 12040, HF_SYM_cuModuleGetFunctionCount, HF_SYM_cuModuleGetFunctionCount },
	{ "cuModuleGetGlobal", 3020, HF_SYM_cuModuleGetGlobal_v2, HF_SYM_cuModuleGetGlobal_v2 },
	{ "cuModuleGetLoadingMode", 11070, HF_SYM_cuModuleGetLoadingMode, HF_SYM_cuModuleGetLoadingMode },
	{ "cuModuleGetSurfRef", 3000, HF_SYM_cuModuleGetSurfRef, HF_SYM_cuModuleGetSurfRef },
	{ "cuModuleGetTexRef", 2000, HF_SYM_cuModuleGetTexRef, HF_SYM_cuModuleGetTexRef },
	{ "cuModuleLoad", 2000, HF_SYM_cuModuleLoad, HF_SYM_cuModuleLoad },
	{ "cuModuleLoadData", 2000, HF_SYM_cuModuleLoadData, HF_SYM_cuModuleLoadData },
	{ "cuModuleLoadDataEx", 2010, HF_SYM_cuModuleLoadDataEx, HF_SYM_cuModuleLoadDataEx },
	{ "cuModuleLoadFatBinary", 2000, HF_SYM_cuModuleLoadFatBinary, HF_SYM_cuModuleLoadFatBinary },
	{ "cuModuleUnload", 2000, HF_SYM_cuModuleUnload, HF_SYM_cuModuleUnload },
	{ "cuMulticastAddDevice", 12010, HF_SYM_cuMulticastAddDevice, HF_SYM_cuMulticastAddDevice },
	{ "cuMulticastBindAddr", 12010, HF_SYM_cuMulticastBindAddr, HF_SYM_cuMulticastBindAddr },
	{ "cuMulticastBindMem", 12010, HF_SYM_cuMulticastBindMem, HF_SYM_cuMulticastBindMem },
	{ "cuMulticastCreate", 12010, HF_SYM_cuMulticastCreate, HF_SYM_cuMulticastCreate },
	{ "cuMulticastGetGranularity", 12010, HF_SYM_cuMulticastGetGranularity, HF_SYM_cuMulticastGetGranularity },
	{ "cuMulticastUnbind", 12010, HF_SYM_cuMulticastUnbind, HF_SYM_cuMulticastUnbind },
	{ "cuOccupancyAvailableDynamicSMemPerBlock", 10020, HF_SYM_cuOccupancyAvailableDynamicSMemPerBlock, HF_SYM_cuOccupancyAvailableDynamicSMemPerBlock },
	{ "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050, HF_SYM_cuOccupancyMaxActiveBlocksPerMultiprocessor, HF_SYM_cuOccupancyMaxActiveBlocksPerMultiprocessor },
	{ "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", 7000, HF_SYM_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, HF_SYM_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags },
	{ "cuOccupancyMaxActiveClusters", 11070, HF_SYM_cuOccupancyMaxActiveClusters, HF_SYM_cuOccupancyMaxActiveClusters },
	{ "cuOccupancyMaxPotentialBlockSize", 6050, HF_SYM_cuOccupancyMaxPotentialBlockSize, HF_SYM_cuOccupancyMaxPotentialBlockSize },
	{ "cuOccupancyMaxPotentialBlockSizeWithFlags", 7000, HF_SYM_cuOccupancyMaxPotentialBlockSizeWithFlags, HF_SYM_cuOccupancyMaxPotentialBlockSizeWithFlags },
	{ "cuOccupancyMaxPotentialClusterSize", 11070, HF_SYM_cuOccupancyMaxPotentialClusterSize, HF_SYM_cuOccupancyMaxPotentialClusterSize },
	{ "cuParamSetSize", 2000, HF_SYM_cuParamSetSize, HF_SYM_cuParamSetSize },
	{ "cuParamSetTexRef", 2000, HF_SYM_cuParamSetTexRef, HF_SYM_cuParamSetTexRef },
	{ "cuParamSetf", 2000, HF_SYM_cuParamSetf, HF_SYM_cuParamSetf },
	{ "cuParamSeti", 2000, HF_SYM_cuParamSeti, HF_SYM_cuParamSeti },
	{ "cuParamSetv", 2000, HF_SYM_cuParamSetv, HF_SYM_cuParamSetv },
	{ "cuPointerGetAttribute", 4000, HF_SYM_cuPointerGetAttribute, HF_SYM_cuPointerGetAttribute },
	{ "cuPointerGetAttributes", 7000, HF_SYM_cuPointerGetAttributes, HF_SYM_cuPointerGetAttributes },
	{ "cuPointerSetAttribute", 6000, HF_SYM_cuPointerSetAttribute, HF_SYM_cuPointerSetAttribute },
	{ "cuProfilerInitialize", 4000, HF_SYM_cuProfilerInitialize, HF_SYM_cuProfilerInitialize },
	{ "cuProfilerStart", 4000, HF_SYM_cuProfilerStart, HF_SYM_cuProfilerStart },
	{ "cuProfilerStop", 4000, HF_SYM_cuProfilerStop, HF_SYM_cuProfilerStop },
	{ "cuSignalExternalSemaphoresAsync", 10000, HF_SYM_cuSignalExternalSemaphoresAsync, HF_SYM_cuSignalExternalSemaphoresAsync_ptsz },
	{ "cuStreamAddCallback", 5000, HF_SYM_cuStreamAddCallback, HF_SYM_cuStreamAddCallback_ptsz },
	{ "cuStreamAttachMemAsync", 6000, HF_SYM_cuStreamAttachMemAsync, HF_SYM_cuStreamAttachMemAsync_ptsz },
	{ "cuStreamBatchMemOp", 11070, HF_SYM_cuStreamBatchMemOp_v2, HF_SYM_cuStreamBatchMemOp_v2_ptsz },
	{ "cuStreamBatchMemOp", 8000, HF_SYM_cuStreamBatchMemOp, HF_SYM_cuStreamBatchMemOp_ptsz },
	{ "cuStreamBeginCapture", 10010, HF_SYM_cuStreamBeginCapture_v2, HF_SYM_cuStreamBeginCapture_v2_ptsz },
	{ "cuStreamBeginCapture", 10000, HF_SYM_cuStreamBeginCapture, HF_SYM_cuStreamBeginCapture_ptsz },
	{ "cuStreamBeginCaptureToGraph", 12030, HF_SYM_cuStreamBeginCaptureToGraph, HF_SYM_cuStreamBeginCaptureToGraph_ptsz },
	{ "cuStreamCopyAttributes", 11000, HF_SYM_cuStreamCopyAttributes, HF_SYM_cuStreamCopyAttributes_ptsz },
	{ "cuStreamCreate", 2000, HF_SYM_cuStreamCreate, HF_SYM_cuStreamCreate },
	{ "cuStreamCreateWithPriority", 5050, HF_SYM_cuStreamCreateWithPriority, HF_SYM_cuStreamCreateWithPriority },
	{ "cuStreamDestroy", 4000, HF_SYM_cuStreamDestroy_v2, HF_SYM_cuStreamDestroy_v2 },
	{ "cuStreamDestroy", 2000, HF_SYM_cuStreamDestroy, HF_SYM_cuStreamDestroy },
	{ "cuStreamEndCapture", 10000, HF_SYM_cuStreamEndCapture, HF_SYM_cuStreamEndCapture_ptsz },
	{ "cuStreamGetAttribute", 11000, HF_SYM_cuStreamGetAttribute, HF_SYM_cuStreamGetAttribute_ptsz },
	{ "cuStreamGetCaptureInfo", 12030, HF_SYM_cuStreamGetCaptureInfo_v3, HF_SYM_cuStreamGetCaptureInfo_v3_ptsz },
	{ "cuStreamGetCaptureInfo", 11030, HF_SYM_cuStreamGetCaptureInfo_v2, HF_SYM_cuStreamGetCaptureInfo_v2_ptsz },
	{ "cuStreamGetCaptureInfo", 10010, HF_SYM_cuStreamGetCaptureInfo, HF_SYM_cuStreamGetCaptureInfo_ptsz },
	{ "cuStreamGetCtx", 12050, HF_SYM_cuStreamGetCtx_v2, HF_SYM_cuStreamGetCtx_v2_ptsz },
	{ "cuStreamGetCtx", 9020, HF_SYM_cuStreamGetCtx, HF_SYM_cuStreamGetCtx_ptsz },
	{ "cuStreamGetDevice", 12080, HF_SYM_cuStreamGetDevice, HF_SYM_cuStreamGetDevice_ptsz },
	{ "cuStreamGetFlags", 5050, HF_SYM_cuStreamGetFlags, HF_SYM_cuStreamGetFlags_ptsz },
	{ "cuStreamGetGreenCtx", 12040, HF_SYM_cuStreamGetGreenCtx, HF_SYM_cuStreamGetGreenCtx },
	{ "cuStreamGetId", 12000, HF_SYM_cuStreamGetId, HF_SYM_cuStreamGetId_ptsz },
	{ "cuStreamGetPriority", 5050, HF_SYM_cuStreamGetPriority, HF_SYM_cuStreamGetPriority_ptsz },
	{ "cuStreamIsCapturing", 10000, HF_SYM_cuStreamIsCapturing, HF_SYM_cuStreamIsCapturing_ptsz },
	{ "cuStreamQuery", 2000, HF_SYM_cuStreamQuery, HF_SYM_cuStreamQuery_ptsz },
	{ "cuStreamSetAttribute", 11000, HF_SYM_cuStreamSetAttribute, HF_SYM_cuStreamSetAttribute_ptsz },
	{ "cuStreamSynchronize", 2000, HF_SYM_cuStreamSynchronize, HF_SYM_cuStreamSynchronize_ptsz },
	{ "cuStreamUpdateCaptureDependencies", 12030, HF_SYM_cuStreamUpdateCaptureDependencies_v2, HF_SYM_cuStreamUpdateCaptureDependencies_v2_ptsz },
	{ "cuStreamUpdateCaptureDependencies", 11030, HF_SYM_cuStreamUpdateCaptureDependencies, HF_SYM_cuStreamUpdateCaptureDependencies_ptsz },
	{ "cuStreamWaitEvent", 3020, HF_SYM_cuStreamWaitEvent, HF_SYM_cuStreamWaitEvent_ptsz },
	{ "cuStreamWaitValue32", 11070, HF_SYM_cuStreamWaitValue32_v2, HF_SYM_cuStreamWaitValue32_v2_ptsz },
	{ "cuStreamWaitValue32", 8000, HF_SYM_cuStreamWaitValue32, HF_SYM_cuStreamWaitValue32_ptsz },
	{ "cuStreamWaitValue64", 11070, HF_SYM_cuStreamWaitValue64_v2, HF_SYM_cuStreamWaitValue64_v2_ptsz },
	{ "cuStreamWaitValue64", 9000, HF_SYM_cuStreamWaitValue64, HF_SYM_cuStreamWaitValue64_ptsz },
	{ "cuStreamWriteValue32", 11070, HF_SYM_cuStreamWriteValue32_v2, HF_SYM_cuStreamWriteValue32_v2_ptsz },
	{ "cuStreamWriteValue32", 8000, HF_SYM_cuStreamWriteValue32, HF_SYM_cuStreamWriteValue32_ptsz },
	{ "cuStreamWriteValue64", 11070, HF_SYM_cuStreamWriteValue64_v2, HF_SYM_cuStreamWriteValue64_v2_ptsz },
	{ "cuStreamWriteValue64", 9000, HF_SYM_cuStreamWriteValue64, HF_SYM_cuStreamWriteValue64_ptsz },
	{ "cuSurfObjectCreate", 5000, HF_SYM_cuSurfObjectCreate, HF_SYM_cuSurfObjectCreate },
	{ "cuSurfObjectDestroy", 5000, HF_SYM_cuSurfObjectDestroy, HF_SYM_cuSurfObjectDestroy },
	{ "cuSurfObjectGetResourceDesc", 5000, HF_SYM_cuSurfObjectGetResourceDesc, HF_SYM_cuSurfObjectGetResourceDesc },
	{ "cuSurfRefGetArray", 3000, HF_SYM_cuSurfRefGetArray, HF_SYM_cuSurfRefGetArray },
	{ "cuSurfRefSetArray", 3000, HF_SYM_cuSurfRefSetArray, HF_SYM_cuSurfRefSetArray },
	{ "cuTensorMapEncodeIm2col", 12000, HF_SYM_cuTensorMapEncodeIm2col, HF_SYM_cuTensorMapEncodeIm2col },
	{ "cuTensorMapEncodeIm2colWide", 12080, HF_SYM_cuTensorMapEncodeIm2colWide, HF_SYM_cuTensorMapEncodeIm2colWide },
	{ "cuTensorMapEncodeTiled", 12000, HF_SYM_cuTensorMapEncodeTiled, HF_SYM_cuTensorMapEncodeTiled },
	{ "cuTensorMapReplaceAddress", 12000, HF_SYM_cuTensorMapReplaceAddress, HF_SYM_cuTensorMapReplaceAddress },
	{ "cuTexObjectCreate", 5000, HF_SYM_cuTexObjectCreate, HF_SYM_cuTexObjectCreate },
	{ "cuTexObjectDestroy", 5000, HF_SYM_cuTexObjectDestroy, HF_SYM_cuTexObjectDestroy },
	{ "cuTexObjectGetResourceDesc", 5000, HF_SYM_cuTexObjectGetResourceDesc, HF_SYM_cuTexObjectGetResourceDesc },
	{ "cuTexObjectGetResourceViewDesc", 5000, HF_SYM_cuTexObjectGetResourceViewDesc, HF_SYM_cuTexObjectGetResourceViewDesc },
	{ "cuTexObjectGetTextureDesc", 5000, HF_SYM_cuTexObjectGetTextureDesc, HF_SYM_cuTexObjectGetTextureDesc },
	{ "cuTexRefCreate", 2000, HF_SYM_cuTexRefCreate, HF_SYM_cuTexRefCreate },
	{ "cuTexRefDestroy", 2000, HF_SYM_cuTexRefDestroy, HF_SYM_cuTexRefDestroy },
	{ "cuTexRefGetAddress", 3020, HF_SYM_cuTexRefGetAddress_v2, HF_SYM_cuTexRefGetAddress_v2 },
	{ "cuTexRefGetAddressMode", 2000, HF_SYM_cuTexRefGetAddressMode, HF_SYM_cuTexRefGetAddressMode },
	{ "cuTexRefGetArray", 2000, HF_SYM_cuTexRefGetArray, HF_SYM_cuTexRefGetArray },
	{ "cuTexRefGetBorderColor", 8000, HF_SYM_cuTexRefGetBorderColor, HF_SYM_cuTexRefGetBorderColor },
	{ "cuTexRefGetFilterMode", 2000, HF_SYM_cuTexRefGetFilterMode, HF_SYM_cuTexRefGetFilterMode },
	{ "cuTexRefGetFlags", 2000, HF_SYM_cuTexRefGetFlags, HF_SYM_cuTexRefGetFlags },
	{ "cuTexRefGetFormat", 2000, HF_SYM_cuTexRefGetFormat, HF_SYM_cuTexRefGetFormat },
	{ "cuTexRefGetMaxAnisotropy", 5000, HF_SYM_cuTexRefGetMaxAnisotropy, HF_SYM_cuTexRefGetMaxAnisotropy },
	{ "cuTexRefGetMipmapFilterMode", 5000, HF_SYM_cuTexRefGetMipmapFilterMode, HF_SYM_cuTexRefGetMipmapFilterMode },
	{ "cuTexRefGetMipmapLevelBias", 5000, HF_SYM_cuTexRefGetMipmapLevelBias, HF_SYM_cuTexRefGetMipmapLevelBias },
	{ "cuTexRefGetMipmapLevelClamp", 5000, HF_SYM_cuTexRefGetMipmapLevelClamp, HF_SYM_cuTexRefGetMipmapLevelClamp },
	{ "cuTexRefGetMipmappedArray", 5000, HF_SYM_cuTexRefGetMipmappedArray, HF_SYM_cuTexRefGetMipmappedArray },
	{ "cuTexRefSetAddress", 3020, HF_SYM_cuTexRefSetAddress_v2, HF_SYM_cuTexRefSetAddress_v2 },
	{ "cuTexRefSetAddress2D", 4010, HF_SYM_cuTexRefSetAddress2D_v3, HF_SYM_cuTexRefSetAddress2D_v3 },
	{ "cuTexRefSetAddressMode", 2000, HF_SYM_cuTexRefSetAddressMode, HF_SYM_cuTexRefSetAddressMode },
	{ "cuTexRefSetArray", 2000, HF_SYM_cuTexRefSetArray, HF_SYM_cuTexRefSetArray },
	{ "cuTexRefSetBorderColor", 8000, HF_SYM_cuTexRefSetBorderColor, HF_SYM_cuTexRefSetBorderColor },
	{ "cuTexRefSetFilterMode", 2000, HF_SYM_cuTexRefSetFilterMode, HF_SYM_cuTexRefSetFilterMode },
	{ "cuTexRefSetFlags", 2000, HF_SYM_cuTexRefSetFlags, HF_SYM_cuTexRefSetFlags },
	{ "cuTexRefSetFormat", 2000, HF_SYM_cuTexRefSetFormat, HF_SYM_cuTexRefSetFormat },
	{ "cuTexRefSetMaxAnisotropy", 5000, HF_SYM_cuTexRefSetMaxAnisotropy, HF_SYM_cuTexRefSetMaxAnisotropy },
	{ "cuTexRefSetMipmapFilterMode", 5000, HF_SYM_cuTexRefSetMipmapFilterMode, HF_SYM_cuTexRefSetMipmapFilterMode },
	{ "cuTexRefSetMipmapLevelBias", 5000, HF_SYM_cuTexRefSetMipmapLevelBias, HF_SYM_cuTexRefSetMipmapLevelBias },
	{ "cuTexRefSetMipmapLevelClamp", 5000, HF_SYM_cuTexRefSetMipmapLevelClamp, HF_SYM_cuTexRefSetMipmapLevelClamp },
	{ "cuTexRefSetMipmappedArray", 5000, HF_SYM_cuTexRefSetMipmappedArray, HF_SYM_cuTexRefSetMipmappedArray },
	{ "cuThreadExchangeStreamCaptureMode", 10010, HF_SYM_cuThreadExchangeStreamCaptureMode, HF_SYM_cuThreadExchangeStreamCaptureMode },
	{ "cuUserObjectCreate", 11030, HF_SYM_cuUserObjectCreate, HF_SYM_cuUserObjectCreate },
	{ "cuUserObjectRelease", 11030, HF_SYM_cuUserObjectRelease, HF_SYM_cuUserObjectRelease },
	{ "cuUserObjectRetain", 11030, HF_SYM_cuUserObjectRetain, HF_SYM_cuUserObjectRetain },
	{ "cuVDPAUCtxCreate", 3020, HF_SYM_cuVDPAUCtxCreate_v2, HF_SYM_cuVDPAUCtxCreate_v2 },
	{ "cuVDPAUGetDevice", 3010, HF_SYM_cuVDPAUGetDevice, HF_SYM_cuVDPAUGetDevice },
	{ "cuWaitExternalSemaphoresAsync", 10000, HF_SYM_cuWaitExternalSemaphoresAsync, HF_SYM_cuWaitExternalSemaphoresAsync_ptsz },
};
const unsigned hf_nprocs = 526;

/* base names by operation number */
const char *const hf_call_names[] = {
	[1] = "cuGetErrorString",
	[2] = "cuGetErrorName",
	[3] = "cuInit",
	[4] = "cuDriverGetVersion",
	[5] = "cuGetProcAddress",
	[6] = "cuGetExportTable",
	[7] = "cuDeviceGet",
	[8] = "cuDeviceGetCount",
	[9] = "cuDeviceGetName",
	[10] = "cuDeviceGetUuid",
	[11] = "cuDeviceGetLuid",
	[12] = "cuDeviceTotalMem",
	[13] = "cuDeviceGetTexture1DLinearMaxWidth",
	[14] = "cuDeviceGetAttribute",
	[15] = "cuDeviceGetHostAtomicCapabilities",
	[16] = "cuDeviceGetNvSciSyncAttributes",
	[17] = "cuDeviceSetMemPool",
	[18] = "cuDeviceGetMemPool",
	[19] = "cuDeviceGetDefaultMemPool",
	[20] = "cuDeviceGetExecAffinitySupport",
	[21] = "cuFlushGPUDirectRDMAWrites",
	[22] = "cuDeviceGetProperties",
	[23] = "cuDeviceComputeCapability",
	[24] = "cuDeviceGetByPCIBusId",
	[25] = "cuDeviceGetPCIBusId",
	[26] = "cuDeviceCanAccessPeer",
	[27] = "cuDeviceGetP2PAttribute",
	[28] = "cuDeviceGetP2PAtomicCapabilities",
	[29] = "cuDeviceGetGraphMemAttribute",
	[30] = "cuDeviceSetGraphMemAttribute",
	[31] = "cuDeviceGraphMemTrim",
	[32] = "cuDeviceRegisterAsyncNotification",
	[33] = "cuDeviceUnregisterAsyncNotification",
	[34] = "cuDevicePrimaryCtxRetain",
	[35] = "cuDevicePrimaryCtxRelease",
	[36] = "cuDevicePrimaryCtxSetFlags",
	[37] = "cuDevicePrimaryCtxGetState",
	[38] = "cuDevicePrimaryCtxReset",
	[39] = "cuCtxCreate",
	[40] = "cuCtxDestroy",
	[41] = "cuCtxPushCurrent",
	[42] = "cuCtxPopCurrent",
	[43] = "cuCtxSetCurrent",
	[44] = "cuCtxGetCurrent",
	[45] = "cuCtxGetDevice",
	[46] = "cuCtxGetFlags",
	[47] = "cuCtxSetFlags",
	[48] = "cuCtxGetId",
	[49] = "cuCtxSynchronize",
	[50] = "cuCtxSetLimit",
	[51] = "cuCtxGetLimit",
	[52] = "cuCtxGetCacheConfig",
	[53] = "cuCtxSetCacheConfig",
	[54] = "cuCtxGetSharedMemConfig",
	[55] = "cuCtxSetSharedMemConfig",
	[56] = "cuCtxGetApiVersion",
	[57] = "cuCtxGetStreamPriorityRange",
	[58] = "cuCtxResetPersistingL2Cache",
	[59] = "cuCtxGetExecAffinity",
	[60] = "cuCtxRecordEvent",
	[61] = "cuCtxWaitEvent",
	[62] = "cuCtxAttach",
	[63] = "cuCtxDetach",
	[64] = "cuCtxEnablePeerAccess",
	[65] = "cuCtxDisablePeerAccess",
	[66] = "cuGreenCtxCreate",
	[67] = "cuGreenCtxDestroy",
	[68] = "cuCtxFromGreenCtx",
	[69] = "cuDeviceGetDevResource",
	[70] = "cuCtxGetDevResource",
	[71] = "cuGreenCtxGetDevResource",
	[72] = "cuDevSmResourceSplitByCount",
	[73] = "cuDevResourceGenerateDesc",
	[74] = "cuGreenCtxRecordEvent",
	[75] = "cuGreenCtxWaitEvent",
	[76] = "cuStreamGetGreenCtx",
	[77] = "cuGreenCtxStreamCreate",
	[78] = "cuGreenCtxGetId",
	[79] = "cuModuleLoad",
	[80] = "cuModuleLoadData",
	[81] = "cuModuleLoadDataEx",
	[82] = "cuModuleLoadFatBinary",
	[83] = "cuModuleUnload",
	[84] = "cuModuleGetLoadingMode",
	[85] = "cuModuleGetFunction",
	[86] = "cuModuleGetFunctionCount",
	[87] = "cuModuleEnumerateFunctions",
	[88] = "cuModuleGetGlobal",
	[89] = "cuModuleGetTexRef",
	[90] = "cuModuleGetSurfRef",
	[91] = "cuLinkCreate",
	[92] = "cuLinkAddData",
	[93] = "cuLinkAddFile",
	[94] = "cuLinkComplete",
	[95] = "cuLinkDestroy",
	[96] = "cuLibraryLoadData",
	[97] = "cuLibraryLoadFromFile",
	[98] = "cuLibraryUnload",
	[99] = "cuLibraryGetKernel",
	[100] = "cuLibraryGetKernelCount",
	[101] = "cuLibraryEnumerateKernels",
	[102] = "cuLibraryGetModule",
	[103] = "cuKernelGetFunction",
	[104] = "cuKernelGetLibrary",
	[105] = "cuLibraryGetGlobal",
	[106] = "cuLibraryGetManaged",
	[107] = "cuLibraryGetUnifiedFunction",
	[108] = "cuKernelGetAttribute",
	[109] = "cuKernelSetAttribute",
	[110] = "cuKernelSetCacheConfig",
	[111] = "cuKernelGetName",
	[112] = "cuKernelGetParamInfo",
	[113] = "cuKernelGetParamCount",
	[114] = "cuMemGetInfo",
	[115] = "cuMemAlloc",
	[116] = "cuMemAllocPitch",
	[117] = "cuMemFree",
	[118] = "cuMemGetAddressRange",
	[119] = "cuMemAllocHost",
	[120] = "cuMemFreeHost",
	[121] = "cuMemHostAlloc",
	[122] = "cuMemHostGetDevicePointer",
	[123] = "cuMemHostGetFlags",
	[124] = "cuMemAllocManaged",
	[125] = "cuMemHostRegister",
	[126] = "cuMemHostUnregister",
	[127] = "cuPointerGetAttribute",
	[128] = "cuPointerGetAttributes",
	[129] = "cuPointerSetAttribute",
	[130] = "cuMemGetHandleForAddressRange",
	[131] = "cuIpcGetEventHandle",
	[132] = "cuIpcOpenEventHandle",
	[133] = "cuIpcGetMemHandle",
	[134] = "cuIpcOpenMemHandle",
	[135] = "cuIpcCloseMemHandle",
	[136] = "cuMemcpy",
	[137] = "cuMemcpyPeer",
	[138] = "cuMemcpyHtoD",
	[139] = "cuMemcpyDtoH",
	[140] = "cuMemcpyDtoD",
	[141] = "cuMemcpyDtoA",
	[142] = "cuMemcpyAtoD",
	[143] = "cuMemcpyHtoA",
	[144] = "cuMemcpyAtoH",
	[145] = "cuMemcpyAtoA",
	[146] = "cuMemcpy2D",
	[147] = "cuMemcpy2DUnaligned",
	[148] = "cuMemcpy3D",
	[149] = "cuMemcpy3DPeer",
	[150] = "cuMemcpyAsync",
	[151] = "cuMemcpyPeerAsync",
	[152] = "cuMemcpyHtoDAsync",
	[153] = "cuMemcpyDtoHAsync",
	[154] = "cuMemcpyDtoDAsync",
	[155] = "cuMemcpyHtoAAsync",
	[156] = "cuMemcpyAtoHAsync",
	[157] = "cuMemcpy2DAsync",
	[158] = "cuMemcpy3DAsync",
	[159] = "cuMemcpy3DPeerAsync",
	[160] = "cuMemcpyBatchAsync",
	[161] = "cuMemcpy3DBatchAsync",
	[162] = "cuMemBatchDecompressAsync",
	[163] = "cuMemsetD8",
	[164] = "cuMemsetD16",
	[165] = "cuMemsetD32",
	[166] = "cuMemsetD2D8",
	[167] = "cuMemsetD2D16",
	[168] = "cuMemsetD2D32",
	[169] = "cuMemsetD8Async",
	[170] = "cuMemsetD16Async",
	[171] = "cuMemsetD32Async",
	[172] = "cuMemsetD2D8Async",
	[173] = "cuMemsetD2D16Async",
	[174] = "cuMemsetD2D32Async",
	[175] = "cuArrayCreate",
	[176] = "cuArrayGetDescriptor",
	[177] = "cuArrayGetSparseProperties",
	[178] = "cuMipmappedArrayGetSparseProperties",
	[179] = "cuArrayGetMemoryRequirements",
	[180] = "cuMipmappedArrayGetMemoryRequirements",
	[181] = "cuArrayGetPlane",
	[182] = "cuArrayDestroy",
	[183] = "cuArray3DCreate",
	[184] = "cuArray3DGetDescriptor",
	[185] = "cuMipmappedArrayCreate",
	[186] = "cuMipmappedArrayGetLevel",
	[187] = "cuMipmappedArrayDestroy",
	[188] = "cuMemAddressReserve",
	[189] = "cuMemAddressFree",
	[190] = "cuMemCreate",
	[191] = "cuMemRelease",
	[192] = "cuMemMap",
	[193] = "cuMemMapArrayAsync",
	[194] = "cuMemUnmap",
	[195] = "cuMemSetAccess",
	[196] = "cuMemGetAccess",
	[197] = "cuMemExportToShareableHandle",
	[198] = "cuMemImportFromShareableHandle",
	[199] = "cuMemGetAllocationGranularity",
	[200] = "cuMemGetAllocationPropertiesFromHandle",
	[201] = "cuMemRetainAllocationHandle",
	[202] = "cuMemAllocAsync",
	[203] = "cuMemFreeAsync",
	[204] = "cuMemAllocFromPoolAsync",
	[205] = "cuMemPoolCreate",
	[206] = "cuMemPoolDestroy",
	[207] = "cuMemPoolTrimTo",
	[208] = "cuMemPoolSetAttribute",
	[209] = "cuMemPoolGetAttribute",
	[210] = "cuMemPoolSetAccess",
	[211] = "cuMemPoolGetAccess",
	[212] = "cuMemPoolExportToShareableHandle",
	[213] = "cuMemPoolImportFromShareableHandle",
	[214] = "cuMemPoolExportPointer",
	[215] = "cuMemPoolImportPointer",
	[216] = "cuMemGetDefaultMemPool",
	[217] = "cuMemGetMemPool",
	[218] = "cuMemSetMemPool",
	[219] = "cuMulticastCreate",
	[220] = "cuMulticastAddDevice",
	[221] = "cuMulticastBindMem",
	[222] = "cuMulticastBindAddr",
	[223] = "cuMulticastUnbind",
	[224] = "cuMulticastGetGranularity",
	[225] = "cuMemPrefetchAsync",
	[226] = "cuMemAdvise",
	[227] = "cuMemRangeGetAttribute",
	[228] = "cuMemRangeGetAttributes",
	[229] = "cuMemPrefetchBatchAsync",
	[230] = "cuMemDiscardBatchAsync",
	[231] = "cuMemDiscardAndPrefetchBatchAsync",
	[232] = "cuStreamCreate",
	[233] = "cuStreamCreateWithPriority",
	[234] = "cuStreamGetPriority",
	[235] = "cuStreamGetDevice",
	[236] = "cuStreamGetFlags",
	[237] = "cuStreamGetId",
	[238] = "cuStreamGetCtx",
	[239] = "cuStreamWaitEvent",
	[240] = "cuStreamAddCallback",
	[241] = "cuStreamBeginCapture",
	[242] = "cuStreamBeginCaptureToGraph",
	[243] = "cuThreadExchangeStreamCaptureMode",
	[244] = "cuStreamEndCapture",
	[245] = "cuStreamIsCapturing",
	[246] = "cuStreamGetCaptureInfo",
	[247] = "cuStreamUpdateCaptureDependencies",
	[248] = "cuStreamAttachMemAsync",
	[249] = "cuStreamQuery",
	[250] = "cuStreamSynchronize",
	[251] = "cuStreamDestroy",
	[252] = "cuStreamCopyAttributes",
	[253] = "cuStreamGetAttribute",
	[254] = "cuStreamSetAttribute",
	[255] = "cuStreamWaitValue32",
	[256] = "cuStreamWaitValue64",
	[257] = "cuStreamWriteValue32",
	[258] = "cuStreamWriteValue64",
	[259] = "cuStreamBatchMemOp",
	[260] = "cuEventCreate",
	[261] = "cuEventRecord",
	[262] = "cuEventRecordWithFlags",
	[263] = "cuEventQuery",
	[264] = "cuEventSynchronize",
	[265] = "cuEventDestroy",
	[266] = "cuEventElapsedTime",
	[267] = "cuImportExternalMemory",
	[268] = "cuExternalMemoryGetMappedBuffer",
	[269] = "cuExternalMemoryGetMappedMipmappedArray",
	[270] = "cuDestroyExternalMemory",
	[271] = "cuImportExternalSemaphore",
	[272] = "cuSignalExternalSemaphoresAsync",
	[273] = "cuWaitExternalSemaphoresAsync",
	[274] = "cuDestroyExternalSemaphore",
	[275] = "cuFuncGetAttribute",
	[276] = "cuFuncSetAttribute",
	[277] = "cuFuncSetCacheConfig",
	[278] = "cuFuncSetSharedMemConfig",
	[279] = "cuFuncGetModule",
	[280] = "cuFuncGetName",
	[281] = "cuFuncGetParamInfo",
	[282] = "cuFuncGetParamCount",
	[283] = "cuFuncIsLoaded",
	[284] = "cuFuncLoad",
	[285] = "cuLaunchKernel",
	[286] = "cuLaunchKernelEx",
	[287] = "cuLaunchCooperativeKernel",
	[288] = "cuLaunchCooperativeKernelMultiDevice",
	[289] = "cuLaunchHostFunc",
	[290] = "cuFuncSetBlockShape",
	[291] = "cuFuncSetSharedSize",
	[292] = "cuParamSetSize",
	[293] = "cuParamSeti",
	[294] = "cuParamSetf",
	[295] = "cuParamSetv",
	[296] = "cuLaunch",
	[297] = "cuLaunchGrid",
	[298] = "cuLaunchGridAsync",
	[299] = "cuParamSetTexRef",
	[300] = "cuGraphCreate",
	[301] = "cuGraphAddKernelNode",
	[302] = "cuGraphKernelNodeGetParams",
	[303] = "cuGraphKernelNodeSetParams",
	[304] = "cuGraphAddMemcpyNode",
	[305] = "cuGraphMemcpyNodeGetParams",
	[306] = "cuGraphMemcpyNodeSetParams",
	[307] = "cuGraphAddMemsetNode",
	[308] = "cuGraphMemsetNodeGetParams",
	[309] = "cuGraphMemsetNodeSetParams",
	[310] = "cuGraphAddHostNode",
	[311] = "cuGraphHostNodeGetParams",
	[312] = "cuGraphHostNodeSetParams",
	[313] = "cuGraphAddChildGraphNode",
	[314] = "cuGraphChildGraphNodeGetGraph",
	[315] = "cuGraphAddEmptyNode",
	[316] = "cuGraphAddEventRecordNode",
	[317] = "cuGraphEventRecordNodeGetEvent",
	[318] = "cuGraphEventRecordNodeSetEvent",
	[319] = "cuGraphAddEventWaitNode",
	[320] = "cuGraphEventWaitNodeGetEvent",
	[321] = "cuGraphEventWaitNodeSetEvent",
	[322] = "cuGraphAddExternalSemaphoresSignalNode",
	[323] = "cuGraphExternalSemaphoresSignalNodeGetParams",
	[324] = "cuGraphExternalSemaphoresSignalNodeSetParams",
	[325] = "cuGraphAddExternalSemaphoresWaitNode",
	[326] = "cuGraphExternalSemaphoresWaitNodeGetParams",
	[327] = "cuGraphExternalSemaphoresWaitNodeSetParams",
	[328] = "cuGraphAddBatchMemOpNode",
	[329] = "cuGraphBatchMemOpNodeGetParams",
	[330] = "cuGraphBatchMemOpNodeSetParams",
	[331] = "cuGraphExecBatchMemOpNodeSetParams",
	[332] = "cuGraphAddMemAllocNode",
	[333] = "cuGraphMemAllocNodeGetParams",
	[334] = "cuGraphAddMemFreeNode",
	[335] = "cuGraphMemFreeNodeGetParams",
	[336] = "cuGraphClone",
	[337] = "cuGraphNodeFindInClone",
	[338] = "cuGraphNodeGetType",
	[339] = "cuGraphGetNodes",
	[340] = "cuGraphGetRootNodes",
	[341] = "cuGraphGetEdges",
	[342] = "cuGraphNodeGetDependencies",
	[343] = "cuGraphNodeGetDependentNodes",
	[344] = "cuGraphAddDependencies",
	[345] = "cuGraphRemoveDependencies",
	[346] = "cuGraphDestroyNode",
	[347] = "cuGraphInstantiate",
	[348] = "cuGraphInstantiateWithFlags",
	[349] = "cuGraphInstantiateWithParams",
	[350] = "cuGraphExecGetFlags",
	[351] = "cuGraphExecKernelNodeSetParams",
	[352] = "cuGraphExecMemcpyNodeSetParams",
	[353] = "cuGraphExecMemsetNodeSetParams",
	[354] = "cuGraphExecHostNodeSetParams",
	[355] = "cuGraphExecChildGraphNodeSetParams",
	[356] = "cuGraphExecEventRecordNodeSetEvent",
	[357] = "cuGraphExecEventWaitNodeSetEvent",
	[358] = "cuGraphExecExternalSemaphoresSignalNodeSetParams",
	[359] = "cuGraphExecExternalSemaphoresWaitNodeSetParams",
	[360] = "cuGraphNodeSetEnabled",
	[361] = "cuGraphNodeGetEnabled",
	[362] = "cuGraphUpload",
	[363] = "cuGraphLaunch",
	[364] = "cuGraphExecDestroy",
	[365] = "cuGraphDestroy",
	[366] = "cuGraphExecUpdate",
	[367] = "cuGraphKernelNodeCopyAttributes",
	[368] = "cuGraphKernelNodeGetAttribute",
	[369] = "cuGraphKernelNodeSetAttribute",
	[370] = "cuGraphDebugDotPrint",
	[371] = "cuUserObjectCreate",
	[372] = "cuUserObjectRetain",
	[373] = "cuUserObjectRelease",
	[374] = "cuGraphRetainUserObject",
	[375] = "cuGraphReleaseUserObject",
	[376] = "cuGraphAddNode",
	[377] = "cuGraphNodeSetParams",
	[378] = "cuGraphExecNodeSetParams",
	[379] = "cuGraphConditionalHandleCreate",
	[380] = "cuOccupancyMaxActiveBlocksPerMultiprocessor",
	[381] = "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
	[382] = "cuOccupancyMaxPotentialBlockSize",
	[383] = "cuOccupancyMaxPotentialBlockSizeWithFlags",
	[384] = "cuOccupancyAvailableDynamicSMemPerBlock",
	[385] = "cuOccupancyMaxPotentialClusterSize",
	[386] = "cuOccupancyMaxActiveClusters",
	[387] = "cuTexRefSetArray",
	[388] = "cuTexRefSetMipmappedArray",
	[389] = "cuTexRefSetAddress",
	[390] = "cuTexRefSetAddress2D",
	[391] = "cuTexRefSetFormat",
	[392] = "cuTexRefSetAddressMode",
	[393] = "cuTexRefSetFilterMode",
	[394] = "cuTexRefSetMipmapFilterMode",
	[395] = "cuTexRefSetMipmapLevelBias",
	[396] = "cuTexRefSetMipmapLevelClamp",
	[397] = "cuTexRefSetMaxAnisotropy",
	[398] = "cuTexRefSetBorderColor",
	[399] = "cuTexRefSetFlags",
	[400] = "cuTexRefGetAddress",
	[401] = "cuTexRefGetArray",
	[402] = "cuTexRefGetMipmappedArray",
	[403] = "cuTexRefGetAddressMode",
	[404] = "cuTexRefGetFilterMode",
	[405] = "cuTexRefGetFormat",
	[406] = "cuTexRefGetMipmapFilterMode",
	[407] = "cuTexRefGetMipmapLevelBias",
	[408] = "cuTexRefGetMipmapLevelClamp",
	[409] = "cuTexRefGetMaxAnisotropy",
	[410] = "cuTexRefGetBorderColor",
	[411] = "cuTexRefGetFlags",
	[412] = "cuTexRefCreate",
	[413] = "cuTexRefDestroy",
	[414] = "cuSurfRefSetArray",
	[415] = "cuSurfRefGetArray",
	[416] = "cuTexObjectCreate",
	[417] = "cuTexObjectDestroy",
	[418] = "cuTexObjectGetResourceDesc",
	[419] = "cuTexObjectGetTextureDesc",
	[420] = "cuTexObjectGetResourceViewDesc",
	[421] = "cuSurfObjectCreate",
	[422] = "cuSurfObjectDestroy",
	[423] = "cuSurfObjectGetResourceDesc",
	[424] = "cuTensorMapEncodeTiled",
	[425] = "cuTensorMapEncodeIm2col",
	[426] = "cuTensorMapEncodeIm2colWide",
	[427] = "cuTensorMapReplaceAddress",
	[428] = "cuGraphicsUnregisterResource",
	[429] = "cuGraphicsSubResourceGetMappedArray",
	[430] = "cuGraphicsResourceGetMappedMipmappedArray",
	[431] = "cuGraphicsResourceGetMappedPointer",
	[432] = "cuGraphicsResourceSetMapFlags",
	[433] = "cuGraphicsMapResources",
	[434] = "cuGraphicsUnmapResources",
	[435] = "cuGraphicsGLRegisterBuffer",
	[436] = "cuGraphicsGLRegisterImage",
	[437] = "cuGLGetDevices",
	[438] = "cuGLCtxCreate",
	[439] = "cuGLInit",
	[440] = "cuGraphicsEGLRegisterImage",
	[441] = "cuGraphicsResourceGetMappedEglFrame",
	[443] = "cuEGLStreamConsumerConnect",
	[444] = "cuEGLStreamConsumerDisconnect",
	[445] = "cuEGLStreamConsumerAcquireFrame",
	[446] = "cuEGLStreamConsumerReleaseFrame",
	[447] = "cuEGLStreamProducerConnect",
	[448] = "cuEGLStreamProducerDisconnect",
	[449] = "cuEGLStreamConsumerConnectWithFlags",
	[450] = "cuVDPAUGetDevice",
	[451] = "cuVDPAUCtxCreate",
	[452] = "cuGraphicsVDPAURegisterVideoSurface",
	[453] = "cuGraphicsVDPAURegisterOutputSurface",
	[454] = "cuCoredumpGetAttribute",
	[455] = "cuCoredumpGetAttributeGlobal",
	[456] = "cuCoredumpSetAttribute",
	[457] = "cuCoredumpSetAttributeGlobal",
	[458] = "cuProfilerInitialize",
	[459] = "cuProfilerStart",
	[460] = "cuProfilerStop",
	[461] = "cuLogsRegisterCallback",
	[462] = "cuLogsUnregisterCallback",
	[463] = "cuLogsCurrent",
	[464] = "cuLogsDumpToFile",
	[465] = "cuLogsDumpToMemory",
	[466] = "cuCheckpointProcessGetRestoreThreadId",
	[467] = "cuCheckpointProcessGetState",
	[468] = "cuCheckpointProcessLock",
	[469] = "cuCheckpointProcessCheckpoint",
	[470] = "cuCheckpointProcessRestore",
	[471] = "cuCheckpointProcessUnlock",
	[472] = "cuGLRegisterBufferObject",
	[473] = "cuGLMapBufferObject",
	[474] = "cuGLUnmapBufferObject",
	[475] = "cuGLUnregisterBufferObject",
	[476] = "cuGLSetBufferObjectMapFlags",
	[477] = "cuGLMapBufferObjectAsync",
	[478] = "cuGLUnmapBufferObjectAsync",
};
const unsigned hf_ncalls = 479;
