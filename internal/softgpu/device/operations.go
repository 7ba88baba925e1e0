package device

import (
	"fmt"

	"holdfast/internal/cuda/api"
	"holdfast/internal/softgpu/gpuwire"
)

// What an operation needs before it can run.
const (
	needNothing = iota
	needInit
	needOwner   // the context of what it names: none has to be current, but one that is must not have ended or failed
	needContext // a current context that has not failed
)

// An operation is one request of the protocol. run is nil for functions of the API that
// are not served.
type operation struct {
	name        string
	args        int
	need        int
	run         func(*call) Status
	outsOnError bool
}

// served are the functions of the driver API, by base name.
var served = []operation{
	{"cuInit", 1, needNothing, cuInit, false},
	{"cuDeviceGet", 1, needInit, deviceGet, false},
	{"cuDeviceGetCount", 0, needInit, func(c *call) Status { return c.ret(uint64(c.p.srv.cfg.Devices)) }, false},
	{"cuDeviceGetName", 2, needInit, deviceGetName, false},
	{"cuDeviceGetUuid", 1, needInit, deviceUUID, false},
	{"cuDeviceTotalMem", 1, needInit, deviceTotalMem, false},
	{"cuDeviceGetAttribute", 2, needInit, deviceAttribute, false},
	{"cuDeviceGetExecAffinitySupport", 2, needInit, func(c *call) Status { c.device(c.args[1]); return c.ret(0) },
		false},
	{"cuDeviceGetProperties", 1, needInit, deviceProperties, false},
	{"cuDeviceComputeCapability", 1, needInit, deviceCapability, false},
	{"cuDeviceGetByPCIBusId", 0, needInit, deviceByPCI, false},
	{"cuDeviceGetPCIBusId", 2, needInit, devicePCI, false},
	{"cuDeviceCanAccessPeer", 2, needInit, canAccessPeer, false},
	{"cuDeviceGetP2PAttribute", 3, needInit, p2pAttribute, false},
	{"cuDeviceSetMemPool", 2, needInit, deviceSetPool, false},
	{"cuDeviceGetMemPool", 1, needInit, deviceGetPool, false},
	{"cuDeviceGetDefaultMemPool", 1, needInit, deviceDefaultPool, false},
	{"cuDeviceGraphMemTrim", 1, needInit, func(c *call) Status { c.device(c.args[0]); return Success }, false},
	{"cuDeviceGetGraphMemAttribute", 2, needInit, graphMemAttribute, false},
	{"cuDeviceSetGraphMemAttribute", 2, needInit, graphMemSetAttribute, false},

	{"cuDevicePrimaryCtxRetain", 1, needInit, primaryRetain, false},
	{"cuDevicePrimaryCtxRelease", 1, needInit, primaryRelease, false},
	{"cuDevicePrimaryCtxReset", 1, needInit, primaryReset, false},
	{"cuDevicePrimaryCtxSetFlags", 2, needInit, primarySetFlags, false},
	{"cuDevicePrimaryCtxGetState", 1, needInit, primaryState, false},
	{"cuCtxCreate", 2, needInit, ctxCreate, false},
	{"cuCtxDestroy", 1, needInit, ctxDestroy, false},
	{"cuCtxPushCurrent", 1, needInit, ctxPush, false},
	{"cuCtxPopCurrent", 0, needInit, ctxPop, false},
	{"cuCtxSetCurrent", 1, needInit, ctxSetCurrent, false},
	{"cuCtxGetCurrent", 0, needInit, ctxGetCurrent, false},
	{"cuCtxGetDevice", 0, needInit, ctxGetDevice, false},
	{"cuCtxGetFlags", 0, needInit, func(c *call) Status { return c.ret(uint64(c.context(0).flags)) }, false},
	{"cuCtxSetFlags", 1, needInit, func(c *call) Status { c.context(0).flags = uint32(c.args[0]); return Success },
		false},
	{"cuCtxGetId", 1, needInit, func(c *call) Status { return c.ret(c.context(c.args[0]).id) }, false},
	{"cuCtxGetApiVersion", 1, needInit, func(c *call) Status { c.context(c.args[0]); return c.ret(3020) }, false},
	{"cuCtxSynchronize", 0, needInit, ctxSynchronize, false},
	{"cuCtxSetLimit", 2, needContext, ctxSetLimit, false},
	{"cuCtxGetLimit", 1, needContext, ctxGetLimit, false},
	{"cuCtxGetCacheConfig", 0, needContext, func(c *call) Status { return c.ret(c.th.current().cache) }, false},
	{"cuCtxSetCacheConfig", 1, needContext, func(c *call) Status { c.th.current().cache = c.args[0]; return Success },
		false},
	{"cuCtxGetSharedMemConfig", 0, needContext, func(c *call) Status { return c.ret(c.th.current().shmem) }, false},
	{"cuCtxSetSharedMemConfig", 1, needContext,
		func(c *call) Status { c.th.current().shmem = c.args[0]; return Success }, false},
	{"cuCtxGetStreamPriorityRange", 0, needContext, func(c *call) Status {
		c.ret32(leastPriority)
		return c.ret32(greatestPriority)
	}, false},
	{"cuCtxResetPersistingL2Cache", 0, needContext, func(*call) Status { return Success }, false},
	{"cuCtxEnablePeerAccess", 2, needContext, ctxEnablePeer, false},
	{"cuCtxDisablePeerAccess", 1, needContext, ctxDisablePeer, false},

	{"cuModuleUnload", 1, needOwner, moduleUnload, false},
	{"cuModuleGetLoadingMode", 0, needInit, func(c *call) Status { return c.ret(1) }, false}, // eager
	{"cuModuleGetFunction", 1, needOwner, moduleGetFunction, false},
	{"cuModuleGetFunctionCount", 1, needContext, moduleFunctionCount, false},
	{"cuModuleEnumerateFunctions", 2, needContext, moduleEnumerate, false},
	{"cuModuleGetGlobal", 1, needContext, moduleGetGlobal, false},
	{"cuLinkCreate", 0, needContext, linkCreate, false},
	{"cuLinkAddData", 2, needContext, linkAdd, true},
	{"cuLinkComplete", 1, needContext, linkComplete, true},
	{"cuLinkDestroy", 1, needInit, linkDestroy, false},
	{"cuLibraryUnload", 1, needInit, libraryUnload, false},
	{"cuLibraryGetKernel", 1, needInit, libraryGetKernel, false},
	{"cuLibraryGetKernelCount", 1, needInit, libraryKernelCount, false},
	{"cuLibraryEnumerateKernels", 2, needInit, libraryEnumerate, false},
	{"cuLibraryGetModule", 1, needContext, libraryGetModule, false},
	{"cuLibraryGetGlobal", 1, needContext, libraryGetGlobal, false},
	{"cuLibraryGetManaged", 1, needContext, libraryGetManaged, false},
	{"cuKernelGetFunction", 1, needContext, kernelGetFunction, false},
	{"cuKernelGetLibrary", 1, needInit, kernelGetLibrary, false},
	{"cuKernelGetAttribute", 2, needInit, funcGetAttribute, false},
	{"cuKernelSetAttribute", 3, needInit, kernelSetAttribute, false},
	{"cuKernelSetCacheConfig", 1, needInit, requireFunction, false},
	{"cuKernelGetName", 1, needInit, functionName, false},
	{"cuKernelGetParamInfo", 2, needInit, functionParamInfo, false},
	{"cuFuncGetAttribute", 2, needInit, funcGetAttribute, false},
	{"cuFuncSetAttribute", 3, needInit, funcSetAttribute, false},
	{"cuFuncSetCacheConfig", 1, needInit, requireFunction, false},
	{"cuFuncSetSharedMemConfig", 1, needInit, requireFunction, false},
	{"cuFuncGetModule", 1, needInit, functionModule, false},
	{"cuFuncGetName", 1, needInit, functionName, false},
	{"cuFuncGetParamInfo", 2, needInit, functionParamInfo, false},
	{"cuFuncIsLoaded", 1, needInit, func(c *call) Status { c.kernelInfo(c.args[0]); return c.ret(1) }, false},
	{"cuFuncLoad", 1, needInit, requireFunction, false},

	{"cuMemGetInfo", 0, needContext, memGetInfo, false},
	{"cuMemAlloc", 1, needContext, memAlloc, false},
	{"cuMemAllocPitch", 3, needContext, memAllocPitch, false},
	{"cuMemFree", 1, needOwner, memFree, false},
	{"cuMemGetAddressRange", 1, needContext, memAddressRange, false},
	{"cuMemHostGetDevicePointer", 1, needContext, hostDevicePointer, false},
	{"cuMemHostGetFlags", 1, needContext, hostFlags, false},
	{"cuMemHostRegister", 2, needContext, hostRegister, false},
	{"cuMemHostUnregister", 1, needContext, hostUnregister, false},
	{"cuPointerGetAttribute", 2, needInit, pointerGetAttribute, false},
	{"cuPointerGetAttributes", 1, needInit, pointerGetAttributes, false},
	{"cuPointerSetAttribute", 1, needInit, pointerSetAttribute, false},
	{"cuMemPrefetchAsync", 0, needContext, func(*call) Status { return Success }, false},
	{"cuMemAdvise", 0, needContext, func(*call) Status { return Success }, false},
	{"cuMemPrefetchBatchAsync", 0, needContext, func(*call) Status { return Success }, false},
	{"cuMemDiscardBatchAsync", 0, needContext, func(*call) Status { return Success }, false},
	{"cuMemDiscardAndPrefetchBatchAsync", 0, needContext, func(*call) Status { return Success }, false},
	{"cuStreamAttachMemAsync", 1, needContext, func(c *call) Status { c.stream(c.args[0]); return Success }, false},
	{"cuFlushGPUDirectRDMAWrites", 0, needContext, func(*call) Status { return Success }, false},

	{"cuIpcGetMemHandle", 1, needContext, ipcGetMemHandle, false},
	{"cuIpcOpenMemHandle", 1, needContext, ipcOpenMemHandle, false},
	{"cuIpcCloseMemHandle", 1, needContext, ipcCloseMemHandle, false},

	{"cuArrayCreate", 0, needContext, arrayCreate, false},
	{"cuArrayGetDescriptor", 1, needContext, arrayDescriptor, false},
	{"cuArrayGetMemoryRequirements", 2, needContext, arrayRequirements, false},
	{"cuArrayGetPlane", 2, needContext, arrayPlane, false},
	{"cuArrayDestroy", 1, needContext, arrayDestroy, false},
	{"cuArray3DCreate", 0, needContext, array3DCreate, false},
	{"cuArray3DGetDescriptor", 1, needContext, array3DDescriptor, false},
	{"cuMipmappedArrayCreate", 1, needContext, mipmapCreate, false},
	{"cuMipmappedArrayGetLevel", 2, needContext, mipmapLevel, false},
	{"cuMipmappedArrayGetMemoryRequirements", 2, needContext, mipmapRequirements, false},
	{"cuMipmappedArrayDestroy", 1, needContext, mipmapDestroy, false},
	{"cuDeviceGetTexture1DLinearMaxWidth", 3, needInit, textureLinearWidth, false},
	{"cuTexObjectCreate", 0, needContext, textureCreate, false},
	{"cuTexObjectDestroy", 1, needContext, textureDestroy(false), false},
	{"cuTexObjectGetResourceDesc", 1, needContext, textureGet(false, (*textureObject).resourceDesc), false},
	{"cuTexObjectGetTextureDesc", 1, needContext, textureGet(false, (*textureObject).textureDesc), false},
	{"cuTexObjectGetResourceViewDesc", 1, needContext, textureGet(false, (*textureObject).viewDesc), false},
	{"cuSurfObjectCreate", 0, needContext, surfaceCreate, false},
	{"cuSurfObjectDestroy", 1, needContext, textureDestroy(true), false},
	{"cuSurfObjectGetResourceDesc", 1, needContext, textureGet(true, (*textureObject).resourceDesc), false},

	{"cuMemAddressReserve", 4, needInit, addressReserve, false},
	{"cuMemAddressFree", 2, needInit, addressFree, false},
	{"cuMemCreate", 2, needInit, memCreate, false},
	{"cuMemRelease", 1, needInit, memRelease, false},
	{"cuMemMap", 5, needInit, memMap, false},
	{"cuMemUnmap", 2, needInit, memUnmap, false},
	{"cuMemSetAccess", 3, needInit, memSetAccess, false},
	{"cuMemGetAccess", 1, needInit, memGetAccess, false},
	{"cuMemExportToShareableHandle", 2, needInit, memExport, false},
	{"cuMemImportFromShareableHandle", 1, needInit, memImport, false},
	{"cuMemGetAllocationGranularity", 1, needInit, memGranularity, false},
	{"cuMemGetAllocationPropertiesFromHandle", 1, needInit, memProperties, false},
	{"cuMemRetainAllocationHandle", 1, needInit, memRetain, false},

	{"cuMemAllocAsync", 2, needContext, memAllocAsync, false},
	{"cuMemFreeAsync", 2, needContext, memFreeAsync, false},
	{"cuMemAllocFromPoolAsync", 3, needContext, memAllocFromPool, false},
	{"cuMemPoolCreate", 0, needInit, poolCreate, false},
	{"cuMemPoolDestroy", 1, needInit, poolDestroy, false},
	{"cuMemPoolTrimTo", 1, needInit, poolTrim, false},
	{"cuMemPoolSetAttribute", 2, needInit, poolSetAttribute, false},
	{"cuMemPoolGetAttribute", 2, needInit, poolGetAttribute, false},
	{"cuMemPoolSetAccess", 1, needInit, poolSetAccess, false},
	{"cuMemPoolGetAccess", 1, needInit, poolGetAccess, false},

	{"cuMemPoolExportToShareableHandle", 2, needInit, poolExport, false},
	{"cuMemPoolImportFromShareableHandle", 1, needInit, poolImport, false},
	{"cuMemPoolExportPointer", 1, needInit, poolExportPointer, false},
	{"cuMemPoolImportPointer", 1, needContext, poolImportPointer, false},
	{"cuMemGetDefaultMemPool", 1, needInit, locationPool(deviceDefaultPool), false},
	{"cuMemGetMemPool", 1, needInit, locationPool(deviceGetPool), false},
	{"cuMemSetMemPool", 2, needInit, locationSetPool, false},

	{"cuStreamCreate", 1, needContext, func(c *call) Status { return c.streamCreate(c.args[0], 0) }, false},
	{"cuStreamCreateWithPriority", 2, needContext,
		func(c *call) Status { return c.streamCreate(c.args[0], int32(c.args[1])) }, false},
	{"cuStreamGetPriority", 1, needInit, func(c *call) Status { return c.ret32(c.stream(c.args[0]).priority) }, false},
	{"cuStreamGetDevice", 1, needInit, func(c *call) Status { return c.ret(uint64(c.stream(c.args[0]).cx.dev)) },
		false},
	{"cuStreamGetFlags", 1, needInit, func(c *call) Status { return c.ret(uint64(c.stream(c.args[0]).flags)) }, false},
	{"cuStreamGetId", 1, needInit, func(c *call) Status { return c.ret(c.stream(c.args[0]).id) }, false},
	{"cuStreamGetCtx", 1, needInit, func(c *call) Status { return c.ret(c.stream(c.args[0]).cx.handle, 0) }, false},
	{"cuStreamWaitEvent", 3, needInit, streamWaitEvent, false},
	{"cuStreamQuery", 1, needInit, streamQuery, false},
	{"cuStreamSynchronize", 1, needInit, func(c *call) Status { return c.streamSync(c.stream(c.args[0])) }, false},
	{"cuStreamDestroy", 1, needInit, streamDestroy, false},
	{"cuStreamCopyAttributes", 2, needInit,
		func(c *call) Status { c.stream(c.args[0]); c.stream(c.args[1]); return Success }, false},
	{"cuStreamGetAttribute", 2, needInit, streamGetAttribute, false},
	{"cuStreamSetAttribute", 2, needInit, streamSetAttribute, false},
	{"cuStreamWaitValue32", 4, needInit, streamMemop(4, true), false},
	{"cuStreamWaitValue64", 4, needInit, streamMemop(8, true), false},
	{"cuStreamWriteValue32", 4, needInit, streamMemop(4, false), false},
	{"cuStreamWriteValue64", 4, needInit, streamMemop(8, false), false},
	{"cuStreamBatchMemOp", 3, needInit, streamBatchMemop, false},
	{"cuStreamAddCallback", 3, needInit, addCallback, false},
	{"cuLaunchHostFunc", 3, needInit, launchHostFunc, false},

	{"cuStreamBeginCapture", 2, needInit, beginCapture, false},
	{"cuStreamBeginCaptureToGraph", 4, needInit, beginCaptureToGraph, false},
	{"cuStreamEndCapture", 1, needInit, endCapture, false},
	{"cuStreamIsCapturing", 1, needInit, isCapturing, false},
	{"cuStreamGetCaptureInfo", 1, needInit, captureInfo, false},
	{"cuStreamUpdateCaptureDependencies", 3, needInit, updateCaptureDependencies, false},
	{"cuThreadExchangeStreamCaptureMode", 1, needInit, exchangeCaptureMode, false},

	{"cuEventCreate", 1, needContext, eventCreate, false},
	{"cuEventRecord", 2, needInit, eventRecord, false},
	{"cuEventRecordWithFlags", 3, needInit, eventRecord, false},
	{"cuEventQuery", 1, needInit, eventQuery, false},
	{"cuEventSynchronize", 1, needInit, eventSynchronize, false},
	{"cuEventDestroy", 1, needInit, eventDestroy, false},
	{"cuEventElapsedTime", 2, needInit, eventElapsed, false},

	{"cuGraphCreate", 1, needInit, graphCreate, false},
	{"cuGraphDestroy", 1, needInit, graphDestroy, false},
	{"cuGraphAddMemsetNode", 2, needInit, graphAddMemset, false},
	{"cuGraphMemsetNodeGetParams", 1, needInit, graphMemsetGet, false},
	{"cuGraphMemsetNodeSetParams", 1, needInit, graphMemsetSet, false},
	{"cuGraphAddHostNode", 4, needInit, graphAddHost, false},
	{"cuGraphHostNodeGetParams", 1, needInit, graphHostGet, false},
	{"cuGraphHostNodeSetParams", 3, needInit, graphHostSet, false},
	{"cuGraphAddChildGraphNode", 3, needInit, graphAddChild, false},
	{"cuGraphChildGraphNodeGetGraph", 1, needInit, graphChildGet, false},
	{"cuGraphAddEmptyNode", 2, needInit, graphAddEmpty, false},
	{"cuGraphAddEventRecordNode", 3, needInit, graphAddEvent(nodeEventRecord), false},
	{"cuGraphEventRecordNodeGetEvent", 1, needInit, graphEventGet(nodeEventRecord), false},
	{"cuGraphEventRecordNodeSetEvent", 2, needInit, graphEventSet(nodeEventRecord), false},
	{"cuGraphAddEventWaitNode", 3, needInit, graphAddEvent(nodeEventWait), false},
	{"cuGraphEventWaitNodeGetEvent", 1, needInit, graphEventGet(nodeEventWait), false},
	{"cuGraphEventWaitNodeSetEvent", 2, needInit, graphEventSet(nodeEventWait), false},
	{"cuGraphAddMemAllocNode", 2, needInit, graphAddAlloc, false},
	{"cuGraphMemAllocNodeGetParams", 1, needInit, graphAllocGet, false},
	{"cuGraphAddMemFreeNode", 3, needInit, graphAddFree, false},
	{"cuGraphMemFreeNodeGetParams", 1, needInit, graphFreeGet, false},
	{"cuGraphClone", 1, needInit, graphClone, false},
	{"cuGraphNodeFindInClone", 2, needInit, graphFindInClone, false},
	{"cuGraphNodeGetType", 1, needInit, graphNodeType, false},
	{"cuGraphGetNodes", 1, needInit, graphNodes, false},
	{"cuGraphGetRootNodes", 1, needInit, graphRoots, false},
	{"cuGraphGetEdges", 1, needInit, graphEdges, false},
	{"cuGraphNodeGetDependencies", 1, needInit, nodeDependencies, false},
	{"cuGraphNodeGetDependentNodes", 1, needInit, nodeDependents, false},
	{"cuGraphAddDependencies", 1, needInit, graphAddDependencies, false},
	{"cuGraphRemoveDependencies", 1, needInit, graphRemoveDependencies, false},
	{"cuGraphDestroyNode", 1, needInit, graphDestroyNode, false},
	{"cuGraphInstantiate", 2, needContext, graphInstantiate, false},
	{"cuGraphExecGetFlags", 1, needInit, execFlags, false},
	{"cuGraphExecMemsetNodeSetParams", 2, needInit, execMemsetSet, false},
	{"cuGraphExecHostNodeSetParams", 4, needInit, execHostSet, false},
	{"cuGraphExecChildGraphNodeSetParams", 3, needInit, execChildSet, false},
	{"cuGraphExecEventRecordNodeSetEvent", 3, needInit, execEventSet(nodeEventRecord), false},
	{"cuGraphExecEventWaitNodeSetEvent", 3, needInit, execEventSet(nodeEventWait), false},
	{"cuGraphNodeSetEnabled", 3, needInit, execSetEnabled, false},
	{"cuGraphNodeGetEnabled", 2, needInit, execGetEnabled, false},
	{"cuGraphUpload", 2, needInit, execUpload, false},
	{"cuGraphLaunch", 2, needInit, graphLaunch, false},
	{"cuGraphExecDestroy", 1, needInit, execDestroy, false},
	{"cuGraphExecUpdate", 2, needInit, execUpdate, true},
	{"cuGraphKernelNodeCopyAttributes", 2, needInit, kernelNodeCopyAttributes, false},
	{"cuGraphKernelNodeGetAttribute", 2, needInit, kernelNodeAttribute, false},
	{"cuGraphKernelNodeSetAttribute", 2, needInit, kernelNodeSetAttribute, false},

	{"cuUserObjectCreate", 4, needInit, objectCreate, false},
	{"cuUserObjectRetain", 2, needInit, objectRetain, false},
	{"cuUserObjectRelease", 2, needInit, objectRelease, false},
	{"cuGraphRetainUserObject", 4, needInit, graphRetainObject, false},
	{"cuGraphReleaseUserObject", 3, needInit, graphReleaseObject, false},

	{"cuOccupancyMaxActiveBlocksPerMultiprocessor", 3, needInit, occupancyBlocks, false},
	{"cuOccupancyMaxPotentialBlockSize", 3, needInit, occupancyBlockSize, false},
	{"cuOccupancyAvailableDynamicSMemPerBlock", 3, needInit, occupancyShared, false},
	{"cuOccupancyMaxPotentialClusterSize", 8, needInit, occupancyClusterSize, false},
	{"cuOccupancyMaxActiveClusters", 8, needInit, occupancyClusters, false},

	{"cuTensorMapEncodeTiled", 7, needInit, tensorMapTiled, false},
	{"cuTensorMapEncodeIm2col", 9, needInit, tensorMapIm2col, false},
	{"cuTensorMapReplaceAddress", 1, needInit, tensorMapReplace, false},

	{"cuCheckpointProcessLock", 2, needInit, checkpointLock, false},
	{"cuCheckpointProcessCheckpoint", 1, needInit, checkpointTake, false},
	{"cuCheckpointProcessRestore", 1, needInit, checkpointRestore, false},
	{"cuCheckpointProcessUnlock", 1, needInit, checkpointUnlock, false},
	{"cuCheckpointProcessGetState", 1, needInit, checkpointState, false},
	{"cuCheckpointProcessGetRestoreThreadId", 1, needInit, checkpointThread, false},
}

// internal are gpuwire's own operations on thread connections.
var internal = map[uint32]operation{
	gpuwire.OpStats:           {"STATS", 0, needNothing, statsCall, false},
	gpuwire.OpHostAlloc:       {"HOST_ALLOC", 3, needContext, hostAlloc, false},
	gpuwire.OpHostPlaced:      {"HOST_PLACED", 2, needInit, hostPlaced, false},
	gpuwire.OpHostFree:        {"HOST_FREE", 1, needInit, hostFree, false},
	gpuwire.OpMemcpy:          {"MEMCPY", 7, needContext, memcpyLinear, false},
	gpuwire.OpMemcpy3D:        {"MEMCPY3D", 13, needContext, memcpy3D, false},
	gpuwire.OpMemset:          {"MEMSET", 8, needContext, memset, false},
	gpuwire.OpModuleLoad:      {"MODULE_LOAD", 0, needContext, moduleLoad, true},
	gpuwire.OpLibraryLoad:     {"LIBRARY_LOAD", 0, needInit, libraryLoad, true},
	gpuwire.OpFunctionLayout:  {"FUNCTION_LAYOUT", 1, needInit, functionLayout, false},
	gpuwire.OpLaunch:          {"LAUNCH", 10, needContext, launchKernel, false},
	gpuwire.OpGraphAddKernel:  {"GRAPH_ADD_KERNEL", 11, needInit, graphAddKernel, false},
	gpuwire.OpGraphKernelGet:  {"GRAPH_KERNEL_GET", 1, needInit, graphKernelGet, false},
	gpuwire.OpGraphKernelSet:  {"GRAPH_KERNEL_SET", 9, needInit, graphKernelSet, false},
	gpuwire.OpGraphExecKernel: {"GRAPH_EXEC_KERNEL_SET", 10, needInit, execKernelSet, false},
	gpuwire.OpGraphAddMemcpy:  {"GRAPH_ADD_MEMCPY", 13, needInit, graphAddMemcpy, false},
	gpuwire.OpGraphMemcpyGet:  {"GRAPH_MEMCPY_GET", 1, needInit, graphMemcpyGet, false},
	gpuwire.OpGraphMemcpySet:  {"GRAPH_MEMCPY_SET", 12, needInit, graphMemcpySet, false},
	gpuwire.OpArrayLayout:     {"ARRAY_LAYOUT", 1, needContext, arrayLayout, false},
	gpuwire.OpGraphExecMemcpy: {"GRAPH_EXEC_MEMCPY_SET", 13, needInit, execMemcpySet, false},
}

// operations joins the tables under the numbers of the wire.
func operations() (map[uint32]*operation, error) {
	fns, err := api.Functions()
	if err != nil {
		return nil, fmt.Errorf("table of the driver API: %w", err)
	}
	numbers := make(map[string]uint32, len(fns))
	ops := make(map[uint32]*operation, len(fns)+len(internal))
	for _, f := range fns {
		numbers[f.Name] = uint32(f.Op)
		ops[uint32(f.Op)] = &operation{name: f.Name}
	}
	for _, op := range served {
		n, ok := numbers[op.name]
		if !ok {
			return nil, fmt.Errorf("%s is not in the table of the driver API", op.name)
		}
		if ops[n].run != nil {
			return nil, fmt.Errorf("%s is registered twice", op.name)
		}
		ops[n] = &op
	}
	for n, op := range internal {
		ops[n] = &op
	}
	return ops, nil
}
