/* Code generated from internal/cuda/api by internal/shim; DO NOT EDIT. Regenerate: go generate ./internal/shim */
#ifndef HF_ZSHIM_H
#define HF_ZSHIM_H

enum {
	HF_SYM_cuArray3DCreate_v2,
	HF_SYM_cuArray3DGetDescriptor_v2,
	HF_SYM_cuArrayCreate_v2,
	HF_SYM_cuArrayDestroy,
	HF_SYM_cuArrayGetDescriptor_v2,
	HF_SYM_cuArrayGetMemoryRequirements,
	HF_SYM_cuArrayGetPlane,
	HF_SYM_cuArrayGetSparseProperties,
	HF_SYM_cuCheckpointProcessCheckpoint,
	HF_SYM_cuCheckpointProcessGetRestoreThreadId,
	HF_SYM_cuCheckpointProcessGetState,
	HF_SYM_cuCheckpointProcessLock,
	HF_SYM_cuCheckpointProcessRestore,
	HF_SYM_cuCheckpointProcessUnlock,
	HF_SYM_cuCoredumpGetAttribute,
	HF_SYM_cuCoredumpGetAttributeGlobal,
	HF_SYM_cuCoredumpSetAttribute,
	HF_SYM_cuCoredumpSetAttributeGlobal,
	HF_SYM_cuCtxAttach,
	HF_SYM_cuCtxCreate,
	HF_SYM_cuCtxCreate_v2,
	HF_SYM_cuCtxCreate_v3,
	HF_SYM_cuCtxCreate_v4,
	HF_SYM_cuCtxDestroy,
	HF_SYM_cuCtxDestroy_v2,
	HF_SYM_cuCtxDetach,
	HF_SYM_cuCtxDisablePeerAccess,
	HF_SYM_cuCtxEnablePeerAccess,
	HF_SYM_cuCtxFromGreenCtx,
	HF_SYM_cuCtxGetApiVersion,
	HF_SYM_cuCtxGetCacheConfig,
	HF_SYM_cuCtxGetCurrent,
	HF_SYM_cuCtxGetDevResource,
	HF_SYM_cuCtxGetDevice,
	HF_SYM_cuCtxGetDevice_v2,
	HF_SYM_cuCtxGetExecAffinity,
	HF_SYM_cuCtxGetFlags,
	HF_SYM_cuCtxGetId,
	HF_SYM_cuCtxGetLimit,
	HF_SYM_cuCtxGetSharedMemConfig,
	HF_SYM_cuCtxGetStreamPriorityRange,
	HF_SYM_cuCtxPopCurrent,
	HF_SYM_cuCtxPopCurrent_v2,
	HF_SYM_cuCtxPushCurrent,
	HF_SYM_cuCtxPushCurrent_v2,
	HF_SYM_cuCtxRecordEvent,
	HF_SYM_cuCtxResetPersistingL2Cache,
	HF_SYM_cuCtxSetCacheConfig,
	HF_SYM_cuCtxSetCurrent,
	HF_SYM_cuCtxSetFlags,
	HF_SYM_cuCtxSetLimit,
	HF_SYM_cuCtxSetSharedMemConfig,
	HF_SYM_cuCtxSynchronize,
	HF_SYM_cuCtxSynchronize_v2,
	HF_SYM_cuCtxWaitEvent,
	HF_SYM_cuDestroyExternalMemory,
	HF_SYM_cuDestroyExternalSemaphore,
	HF_SYM_cuDevResourceGenerateDesc,
	HF_SYM_cuDevSmResourceSplitByCount,
	HF_SYM_cuDeviceCanAccessPeer,
	HF_SYM_cuDeviceComputeCapability,
	HF_SYM_cuDeviceGet,
	HF_SYM_cuDeviceGetAttribute,
	HF_SYM_cuDeviceGetByPCIBusId,
	HF_SYM_cuDeviceGetCount,
	HF_SYM_cuDeviceGetDefaultMemPool,
	HF_SYM_cuDeviceGetDevResource,
	HF_SYM_cuDeviceGetExecAffinitySupport,
	HF_SYM_cuDeviceGetGraphMemAttribute,
	HF_SYM_cuDeviceGetHostAtomicCapabilities,
	HF_SYM_cuDeviceGetLuid,
	HF_SYM_cuDeviceGetMemPool,
	HF_SYM_cuDeviceGetName,
	HF_SYM_cuDeviceGetNvSciSyncAttributes,
	HF_SYM_cuDeviceGetP2PAtomicCapabilities,
	HF_SYM_cuDeviceGetP2PAttribute,
	HF_SYM_cuDeviceGetPCIBusId,
	HF_SYM_cuDeviceGetProperties,
	HF_SYM_cuDeviceGetTexture1DLinearMaxWidth,
	HF_SYM_cuDeviceGetUuid,
	HF_SYM_cuDeviceGetUuid_v2,
	HF_SYM_cuDeviceGraphMemTrim,
	HF_SYM_cuDevicePrimaryCtxGetState,
	HF_SYM_cuDevicePrimaryCtxRelease,
	HF_SYM_cuDevicePrimaryCtxRelease_v2,
	HF_SYM_cuDevicePrimaryCtxReset,
	HF_SYM_cuDevicePrimaryCtxReset_v2,
	HF_SYM_cuDevicePrimaryCtxRetain,
	HF_SYM_cuDevicePrimaryCtxSetFlags,
	HF_SYM_cuDevicePrimaryCtxSetFlags_v2,
	HF_SYM_cuDeviceRegisterAsyncNotification,
	HF_SYM_cuDeviceSetGraphMemAttribute,
	HF_SYM_cuDeviceSetMemPool,
	HF_SYM_cuDeviceTotalMem_v2,
	HF_SYM_cuDeviceUnregisterAsyncNotification,
	HF_SYM_cuDriverGetVersion,
	HF_SYM_cuEGLStreamConsumerAcquireFrame,
	HF_SYM_cuEGLStreamConsumerConnect,
	HF_SYM_cuEGLStreamConsumerConnectWithFlags,
	HF_SYM_cuEGLStreamConsumerDisconnect,
	HF_SYM_cuEGLStreamConsumerReleaseFrame,
	HF_SYM_cuEGLStreamProducerConnect,
	HF_SYM_cuEGLStreamProducerDisconnect,
	HF_SYM_cuEventCreate,
	HF_SYM_cuEventDestroy,
	HF_SYM_cuEventDestroy_v2,
	HF_SYM_cuEventElapsedTime,
	HF_SYM_cuEventElapsedTime_v2,
	HF_SYM_cuEventQuery,
	HF_SYM_cuEventRecord,
	HF_SYM_cuEventRecordWithFlags,
	HF_SYM_cuEventRecordWithFlags_ptsz,
	HF_SYM_cuEventRecord_ptsz,
	HF_SYM_cuEventSynchronize,
	HF_SYM_cuExternalMemoryGetMappedBuffer,
	HF_SYM_cuExternalMemoryGetMappedMipmappedArray,
	HF_SYM_cuFlushGPUDirectRDMAWrites,
	HF_SYM_cuFuncGetAttribute,
	HF_SYM_cuFuncGetModule,
	HF_SYM_cuFuncGetName,
	HF_SYM_cuFuncGetParamCount,
	HF_SYM_cuFuncGetParamInfo,
	HF_SYM_cuFuncIsLoaded,
	HF_SYM_cuFuncLoad,
	HF_SYM_cuFuncSetAttribute,
	HF_SYM_cuFuncSetBlockShape,
	HF_SYM_cuFuncSetCacheConfig,
	HF_SYM_cuFuncSetSharedMemConfig,
	HF_SYM_cuFuncSetSharedSize,
	HF_SYM_cuGLCtxCreate_v2,
	HF_SYM_cuGLGetDevices,
	HF_SYM_cuGLGetDevices_v2,
	HF_SYM_cuGLInit,
	HF_SYM_cuGLMapBufferObjectAsync_v2,
	HF_SYM_cuGLMapBufferObjectAsync_v2_ptsz,
	HF_SYM_cuGLMapBufferObject_v2,
	HF_SYM_cuGLMapBufferObject_v2_ptds,
	HF_SYM_cuGLRegisterBufferObject,
	HF_SYM_cuGLSetBufferObjectMapFlags,
	HF_SYM_cuGLUnmapBufferObject,
	HF_SYM_cuGLUnmapBufferObjectAsync,
	HF_SYM_cuGLUnregisterBufferObject,
	HF_SYM_cuGetErrorName,
	HF_SYM_cuGetErrorString,
	HF_SYM_cuGetExportTable,
	HF_SYM_cuGetProcAddress,
	HF_SYM_cuGetProcAddress_v2,
	HF_SYM_cuGraphAddBatchMemOpNode,
	HF_SYM_cuGraphAddChildGraphNode,
	HF_SYM_cuGraphAddDependencies,
	HF_SYM_cuGraphAddDependencies_v2,
	HF_SYM_cuGraphAddEmptyNode,
	HF_SYM_cuGraphAddEventRecordNode,
	HF_SYM_cuGraphAddEventWaitNode,
	HF_SYM_cuGraphAddExternalSemaphoresSignalNode,
	HF_SYM_cuGraphAddExternalSemaphoresWaitNode,
	HF_SYM_cuGraphAddHostNode,
	HF_SYM_cuGraphAddKernelNode,
	HF_SYM_cuGraphAddKernelNode_v2,
	HF_SYM_cuGraphAddMemAllocNode,
	HF_SYM_cuGraphAddMemFreeNode,
	HF_SYM_cuGraphAddMemcpyNode,
	HF_SYM_cuGraphAddMemsetNode,
	HF_SYM_cuGraphAddNode,
	HF_SYM_cuGraphAddNode_v2,
	HF_SYM_cuGraphBatchMemOpNodeGetParams,
	HF_SYM_cuGraphBatchMemOpNodeSetParams,
	HF_SYM_cuGraphChildGraphNodeGetGraph,
	HF_SYM_cuGraphClone,
	HF_SYM_cuGraphConditionalHandleCreate,
	HF_SYM_cuGraphCreate,
	HF_SYM_cuGraphDebugDotPrint,
	HF_SYM_cuGraphDestroy,
	HF_SYM_cuGraphDestroyNode,
	HF_SYM_cuGraphEventRecordNodeGetEvent,
	HF_SYM_cuGraphEventRecordNodeSetEvent,
	HF_SYM_cuGraphEventWaitNodeGetEvent,
	HF_SYM_cuGraphEventWaitNodeSetEvent,
	HF_SYM_cuGraphExecBatchMemOpNodeSetParams,
	HF_SYM_cuGraphExecChildGraphNodeSetParams,
	HF_SYM_cuGraphExecDestroy,
	HF_SYM_cuGraphExecEventRecordNodeSetEvent,
	HF_SYM_cuGraphExecEventWaitNodeSetEvent,
	HF_SYM_cuGraphExecExternalSemaphoresSignalNodeSetParams,
	HF_SYM_cuGraphExecExternalSemaphoresWaitNodeSetParams,
	HF_SYM_cuGraphExecGetFlags,
	HF_SYM_cuGraphExecHostNodeSetParams,
	HF_SYM_cuGraphExecKernelNodeSetParams,
	HF_SYM_cuGraphExecKernelNodeSetParams_v2,
	HF_SYM_cuGraphExecMemcpyNodeSetParams,
	HF_SYM_cuGraphExecMemsetNodeSetParams,
	HF_SYM_cuGraphExecNodeSetParams,
	HF_SYM_cuGraphExecUpdate,
	HF_SYM_cuGraphExecUpdate_v2,
	HF_SYM_cuGraphExternalSemaphoresSignalNodeGetParams,
	HF_SYM_cuGraphExternalSemaphoresSignalNodeSetParams,
	HF_SYM_cuGraphExternalSemaphoresWaitNodeGetParams,
	HF_SYM_cuGraphExternalSemaphoresWaitNodeSetParams,
	HF_SYM_cuGraphGetEdges,
	HF_SYM_cuGraphGetEdges_v2,
	HF_SYM_cuGraphGetNodes,
	HF_SYM_cuGraphGetRootNodes,
	HF_SYM_cuGraphHostNodeGetParams,
	HF_SYM_cuGraphHostNodeSetParams,
	HF_SYM_cuGraphInstantiate,
	HF_SYM_cuGraphInstantiateWithFlags,
	HF_SYM_cuGraphInstantiateWithParams,
	HF_SYM_cuGraphInstantiateWithParams_ptsz,
	HF_SYM_cuGraphInstantiate_v2,
	HF_SYM_cuGraphKernelNodeCopyAttributes,
	HF_SYM_cuGraphKernelNodeGetAttribute,
	HF_SYM_cuGraphKernelNodeGetParams,
	HF_SYM_cuGraphKernelNodeGetParams_v2,
	HF_SYM_cuGraphKernelNodeSetAttribute,
	HF_SYM_cuGraphKernelNodeSetParams,
	HF_SYM_cuGraphKernelNodeSetParams_v2,
	HF_SYM_cuGraphLaunch,
	HF_SYM_cuGraphLaunch_ptsz,
	HF_SYM_cuGraphMemAllocNodeGetParams,
	HF_SYM_cuGraphMemFreeNodeGetParams,
	HF_SYM_cuGraphMemcpyNodeGetParams,
	HF_SYM_cuGraphMemcpyNodeSetParams,
	HF_SYM_cuGraphMemsetNodeGetParams,
	HF_SYM_cuGraphMemsetNodeSetParams,
	HF_SYM_cuGraphNodeFindInClone,
	HF_SYM_cuGraphNodeGetDependencies,
	HF_SYM_cuGraphNodeGetDependencies_v2,
	HF_SYM_cuGraphNodeGetDependentNodes,
	HF_SYM_cuGraphNodeGetDependentNodes_v2,
	HF_SYM_cuGraphNodeGetEnabled,
	HF_SYM_cuGraphNodeGetType,
	HF_SYM_cuGraphNodeSetEnabled,
	HF_SYM_cuGraphNodeSetParams,
	HF_SYM_cuGraphReleaseUserObject,
	HF_SYM_cuGraphRemoveDependencies,
	HF_SYM_cuGraphRemoveDependencies_v2,
	HF_SYM_cuGraphRetainUserObject,
	HF_SYM_cuGraphUpload,
	HF_SYM_cuGraphUpload_ptsz,
	HF_SYM_cuGraphicsEGLRegisterImage,
	HF_SYM_cuGraphicsGLRegisterBuffer,
	HF_SYM_cuGraphicsGLRegisterImage,
	HF_SYM_cuGraphicsMapResources,
	HF_SYM_cuGraphicsMapResources_ptsz,
	HF_SYM_cuGraphicsResourceGetMappedEglFrame,
	HF_SYM_cuGraphicsResourceGetMappedMipmappedArray,
	HF_SYM_cuGraphicsResourceGetMappedPointer_v2,
	HF_SYM_cuGraphicsResourceSetMapFlags,
	HF_SYM_cuGraphicsResourceSetMapFlags_v2,
	HF_SYM_cuGraphicsSubResourceGetMappedArray,
	HF_SYM_cuGraphicsUnmapResources,
	HF_SYM_cuGraphicsUnmapResources_ptsz,
	HF_SYM_cuGraphicsUnregisterResource,
	HF_SYM_cuGraphicsVDPAURegisterOutputSurface,
	HF_SYM_cuGraphicsVDPAURegisterVideoSurface,
	HF_SYM_cuGreenCtxCreate,
	HF_SYM_cuGreenCtxDestroy,
	HF_SYM_cuGreenCtxGetDevResource,
	HF_SYM_cuGreenCtxGetId,
	HF_SYM_cuGreenCtxRecordEvent,
	HF_SYM_cuGreenCtxStreamCreate,
	HF_SYM_cuGreenCtxWaitEvent,
	HF_SYM_cuImportExternalMemory,
	HF_SYM_cuImportExternalSemaphore,
	HF_SYM_cuInit,
	HF_SYM_cuIpcCloseMemHandle,
	HF_SYM_cuIpcGetEventHandle,
	HF_SYM_cuIpcGetMemHandle,
	HF_SYM_cuIpcOpenEventHandle,
	HF_SYM_cuIpcOpenMemHandle,
	HF_SYM_cuIpcOpenMemHandle_v2,
	HF_SYM_cuKernelGetAttribute,
	HF_SYM_cuKernelGetFunction,
	HF_SYM_cuKernelGetLibrary,
	HF_SYM_cuKernelGetName,
	HF_SYM_cuKernelGetParamCount,
	HF_SYM_cuKernelGetParamInfo,
	HF_SYM_cuKernelSetAttribute,
	HF_SYM_cuKernelSetCacheConfig,
	HF_SYM_cuLaunch,
	HF_SYM_cuLaunchCooperativeKernel,
	HF_SYM_cuLaunchCooperativeKernelMultiDevice,
	HF_SYM_cuLaunchCooperativeKernel_ptsz,
	HF_SYM_cuLaunchGrid,
	HF_SYM_cuLaunchGridAsync,
	HF_SYM_cuLaunchHostFunc,
	HF_SYM_cuLaunchHostFunc_ptsz,
	HF_SYM_cuLaunchKernel,
	HF_SYM_cuLaunchKernelEx,
	HF_SYM_cuLaunchKernelEx_ptsz,
	HF_SYM_cuLaunchKernel_ptsz,
	HF_SYM_cuLibraryEnumerateKernels,
	HF_SYM_cuLibraryGetGlobal,
	HF_SYM_cuLibraryGetKernel,
	HF_SYM_cuLibraryGetKernelCount,
	HF_SYM_cuLibraryGetManaged,
	HF_SYM_cuLibraryGetModule,
	HF_SYM_cuLibraryGetUnifiedFunction,
	HF_SYM_cuLibraryLoadData,
	HF_SYM_cuLibraryLoadFromFile,
	HF_SYM_cuLibraryUnload,
	HF_SYM_cuLinkAddData,
	HF_SYM_cuLinkAddData_v2,
	HF_SYM_cuLinkAddFile,
	HF_SYM_cuLinkAddFile_v2,
	HF_SYM_cuLinkComplete,
	HF_SYM_cuLinkCreate,
	HF_SYM_cuLinkCreate_v2,
	HF_SYM_cuLinkDestroy,
	HF_SYM_cuLogsCurrent,
	HF_SYM_cuLogsDumpToFile,
	HF_SYM_cuLogsDumpToMemory,
	HF_SYM_cuLogsRegisterCallback,
	HF_SYM_cuLogsUnregisterCallback,
	HF_SYM_cuMemAddressFree,
	HF_SYM_cuMemAddressReserve,
	HF_SYM_cuMemAdvise,
	HF_SYM_cuMemAdvise_v2,
	HF_SYM_cuMemAllocAsync,
	HF_SYM_cuMemAllocAsync_ptsz,
	HF_SYM_cuMemAllocFromPoolAsync,
	HF_SYM_cuMemAllocFromPoolAsync_ptsz,
	HF_SYM_cuMemAllocHost_v2,
	HF_SYM_cuMemAllocManaged,
	HF_SYM_cuMemAllocPitch_v2,
	HF_SYM_cuMemAlloc_v2,
	HF_SYM_cuMemBatchDecompressAsync,
	HF_SYM_cuMemBatchDecompressAsync_ptsz,
	HF_SYM_cuMemCreate,
	HF_SYM_cuMemDiscardAndPrefetchBatchAsync,
	HF_SYM_cuMemDiscardAndPrefetchBatchAsync_ptsz,
	HF_SYM_cuMemDiscardBatchAsync,
	HF_SYM_cuMemDiscardBatchAsync_ptsz,
	HF_SYM_cuMemExportToShareableHandle,
	HF_SYM_cuMemFreeAsync,
	HF_SYM_cuMemFreeAsync_ptsz,
	HF_SYM_cuMemFreeHost,
	HF_SYM_cuMemFree_v2,
	HF_SYM_cuMemGetAccess,
	HF_SYM_cuMemGetAddressRange_v2,
	HF_SYM_cuMemGetAllocationGranularity,
	HF_SYM_cuMemGetAllocationPropertiesFromHandle,
	HF_SYM_cuMemGetDefaultMemPool,
	HF_SYM_cuMemGetHandleForAddressRange,
	HF_SYM_cuMemGetInfo_v2,
	HF_SYM_cuMemGetMemPool,
	HF_SYM_cuMemHostAlloc,
	HF_SYM_cuMemHostGetDevicePointer_v2,
	HF_SYM_cuMemHostGetFlags,
	HF_SYM_cuMemHostRegister,
	HF_SYM_cuMemHostRegister_v2,
	HF_SYM_cuMemHostUnregister,
	HF_SYM_cuMemImportFromShareableHandle,
	HF_SYM_cuMemMap,
	HF_SYM_cuMemMapArrayAsync,
	HF_SYM_cuMemMapArrayAsync_ptsz,
	HF_SYM_cuMemPoolCreate,
	HF_SYM_cuMemPoolDestroy,
	HF_SYM_cuMemPoolExportPointer,
	HF_SYM_cuMemPoolExportToShareableHandle,
	HF_SYM_cuMemPoolGetAccess,
	HF_SYM_cuMemPoolGetAttribute,
	HF_SYM_cuMemPoolImportFromShareableHandle,
	HF_SYM_cuMemPoolImportPointer,
	HF_SYM_cuMemPoolSetAccess,
	HF_SYM_cuMemPoolSetAttribute,
	HF_SYM_cuMemPoolTrimTo,
	HF_SYM_cuMemPrefetchAsync,
	HF_SYM_cuMemPrefetchAsync_ptsz,
	HF_SYM_cuMemPrefetchAsync_v2,
	HF_SYM_cuMemPrefetchAsync_v2_ptsz,
	HF_SYM_cuMemPrefetchBatchAsync,
	HF_SYM_cuMemPrefetchBatchAsync_ptsz,
	HF_SYM_cuMemRangeGetAttribute,
	HF_SYM_cuMemRangeGetAttributes,
	HF_SYM_cuMemRelease,
	HF_SYM_cuMemRetainAllocationHandle,
	HF_SYM_cuMemSetAccess,
	HF_SYM_cuMemSetMemPool,
	HF_SYM_cuMemUnmap,
	HF_SYM_cuMemcpy,
	HF_SYM_cuMemcpy2DAsync_v2,
	HF_SYM_cuMemcpy2DAsync_v2_ptsz,
	HF_SYM_cuMemcpy2DUnaligned_v2,
	HF_SYM_cuMemcpy2DUnaligned_v2_ptds,
	HF_SYM_cuMemcpy2D_v2,
	HF_SYM_cuMemcpy2D_v2_ptds,
	HF_SYM_cuMemcpy3DAsync_v2,
	HF_SYM_cuMemcpy3DAsync_v2_ptsz,
	HF_SYM_cuMemcpy3DBatchAsync,
	HF_SYM_cuMemcpy3DBatchAsync_ptsz,
	HF_SYM_cuMemcpy3DBatchAsync_v2,
	HF_SYM_cuMemcpy3DBatchAsync_v2_ptsz,
	HF_SYM_cuMemcpy3DPeer,
	HF_SYM_cuMemcpy3DPeerAsync,
	HF_SYM_cuMemcpy3DPeerAsync_ptsz,
	HF_SYM_cuMemcpy3DPeer_ptds,
	HF_SYM_cuMemcpy3D_v2,
	HF_SYM_cuMemcpy3D_v2_ptds,
	HF_SYM_cuMemcpyAsync,
	HF_SYM_cuMemcpyAsync_ptsz,
	HF_SYM_cuMemcpyAtoA_v2,
	HF_SYM_cuMemcpyAtoA_v2_ptds,
	HF_SYM_cuMemcpyAtoD_v2,
	HF_SYM_cuMemcpyAtoD_v2_ptds,
	HF_SYM_cuMemcpyAtoHAsync_v2,
	HF_SYM_cuMemcpyAtoHAsync_v2_ptsz,
	HF_SYM_cuMemcpyAtoH_v2,
	HF_SYM_cuMemcpyAtoH_v2_ptds,
	HF_SYM_cuMemcpyBatchAsync,
	HF_SYM_cuMemcpyBatchAsync_ptsz,
	HF_SYM_cuMemcpyBatchAsync_v2,
	HF_SYM_cuMemcpyBatchAsync_v2_ptsz,
	HF_SYM_cuMemcpyDtoA_v2,
	HF_SYM_cuMemcpyDtoA_v2_ptds,
	HF_SYM_cuMemcpyDtoDAsync_v2,
	HF_SYM_cuMemcpyDtoDAsync_v2_ptsz,
	HF_SYM_cuMemcpyDtoD_v2,
	HF_SYM_cuMemcpyDtoD_v2_ptds,
	HF_SYM_cuMemcpyDtoHAsync_v2,
	HF_SYM_cuMemcpyDtoHAsync_v2_ptsz,
	HF_SYM_cuMemcpyDtoH_v2,
	HF_SYM_cuMemcpyDtoH_v2_ptds,
	HF_SYM_cuMemcpyHtoAAsync_v2,
	HF_SYM_cuMemcpyHtoAAsync_v2_ptsz,
	HF_SYM_cuMemcpyHtoA_v2,
	HF_SYM_cuMemcpyHtoA_v2_ptds,
	HF_SYM_cuMemcpyHtoDAsync_v2,
	HF_SYM_cuMemcpyHtoDAsync_v2_ptsz,
	HF_SYM_cuMemcpyHtoD_v2,
	HF_SYM_cuMemcpyHtoD_v2_ptds,
	HF_SYM_cuMemcpyPeer,
	HF_SYM_cuMemcpyPeerAsync,
	HF_SYM_cuMemcpyPeerAsync_ptsz,
	HF_SYM_cuMemcpyPeer_ptds,
	HF_SYM_cuMemcpy_ptds,
	HF_SYM_cuMemsetD16Async,
	HF_SYM_cuMemsetD16Async_ptsz,
	HF_SYM_cuMemsetD16_v2,
	HF_SYM_cuMemsetD16_v2_ptds,
	HF_SYM_cuMemsetD2D16Async,
	HF_SYM_cuMemsetD2D16Async_ptsz,
	HF_SYM_cuMemsetD2D16_v2,
	HF_SYM_cuMemsetD2D16_v2_ptds,
	HF_SYM_cuMemsetD2D32Async,
	HF_SYM_cuMemsetD2D32Async_ptsz,
	HF_SYM_cuMemsetD2D32_v2,
	HF_SYM_cuMemsetD2D32_v2_ptds,
	HF_SYM_cuMemsetD2D8Async,
	HF_SYM_cuMemsetD2D8Async_ptsz,
	HF_SYM_cuMemsetD2D8_v2,
	HF_SYM_cuMemsetD2D8_v2_ptds,
	HF_SYM_cuMemsetD32Async,
	HF_SYM_cuMemsetD32Async_ptsz,
	HF_SYM_cuMemsetD32_v2,
	HF_SYM_cuMemsetD32_v2_ptds,
	HF_SYM_cuMemsetD8Async,
	HF_SYM_cuMemsetD8Async_ptsz,
	HF_SYM_cuMemsetD8_v2,
	HF_SYM_cuMemsetD8_v2_ptds,
	HF_SYM_cuMipmappedArrayCreate,
	HF_SYM_cuMipmappedArrayDestroy,
	HF_SYM_cuMipmappedArrayGetLevel,
	HF_SYM_cuMipmappedArrayGetMemoryRequirements,
	HF_SYM_cuMipmappedArrayGetSparseProperties,
	HF_SYM_cuModuleEnumerateFunctions,
	HF_SYM_cuModuleGetFunction,
	HF_SYM_cuModuleGetFunctionCount,
	HF_SYM_cuModuleGetGlobal_v2,
	HF_SYM_cuModuleGetLoadingMode,
	HF_SYM_cuModuleGetSurfRef,
	HF_SYM_cuModuleGetTexRef,
	HF_SYM_cuModuleLoad,
	HF_SYM_cuModuleLoadData,
	HF_SYM_cuModuleLoadDataEx,
	HF_SYM_cuModuleLoadFatBinary,
	HF_SYM_cuModuleUnload,
	HF_SYM_cuMulticastAddDevice,
	HF_SYM_cuMulticastBindAddr,
	HF_SYM_cuMulticastBindMem,
	HF_SYM_cuMulticastCreate,
	HF_SYM_cuMulticastGetGranularity,
	HF_SYM_cuMulticastUnbind,
	HF_SYM_cuOccupancyAvailableDynamicSMemPerBlock,
	HF_SYM_cuOccupancyMaxActiveBlocksPerMultiprocessor,
	HF_SYM_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
	HF_SYM_cuOccupancyMaxActiveClusters,
	HF_SYM_cuOccupancyMaxPotentialBlockSize,
	HF_SYM_cuOccupancyMaxPotentialBlockSizeWithFlags,
	HF_SYM_cuOccupancyMaxPotentialClusterSize,
	HF_SYM_cuParamSetSize,
	HF_SYM_cuParamSetTexRef,
	HF_SYM_cuParamSetf,
	HF_SYM_cuParamSeti,
	HF_SYM_cuParamSetv,
	HF_SYM_cuPointerGetAttribute,
	HF_SYM_cuPointerGetAttributes,
	HF_SYM_cuPointerSetAttribute,
	HF_SYM_cuProfilerInitialize,
	HF_SYM_cuProfilerStart,
	HF_SYM_cuProfilerStop,
	HF_SYM_cuSignalExternalSemaphoresAsync,
	HF_SYM_cuSignalExternalSemaphoresAsync_ptsz,
	HF_SYM_cuStreamAddCallback,
	HF_SYM_cuStreamAddCallback_ptsz,
	HF_SYM_cuStreamAttachMemAsync,
	HF_SYM_cuStreamAttachMemAsync_ptsz,
	HF_SYM_cuStreamBatchMemOp,
	HF_SYM_cuStreamBatchMemOp_ptsz,
	HF_SYM_cuStreamBatchMemOp_v2,
	HF_SYM_cuStreamBatchMemOp_v2_ptsz,
	HF_SYM_cuStreamBeginCapture,
	HF_SYM_cuStreamBeginCaptureToGraph,
	HF_SYM_cuStreamBeginCaptureToGraph_ptsz,
	HF_SYM_cuStreamBeginCapture_ptsz,
	HF_SYM_cuStreamBeginCapture_v2,
	HF_SYM_cuStreamBeginCapture_v2_ptsz,
	HF_SYM_cuStreamCopyAttributes,
	HF_SYM_cuStreamCopyAttributes_ptsz,
	HF_SYM_cuStreamCreate,
	HF_SYM_cuStreamCreateWithPriority,
	HF_SYM_cuStreamDestroy,
	HF_SYM_cuStreamDestroy_v2,
	HF_SYM_cuStreamEndCapture,
	HF_SYM_cuStreamEndCapture_ptsz,
	HF_SYM_cuStreamGetAttribute,
	HF_SYM_cuStreamGetAttribute_ptsz,
	HF_SYM_cuStreamGetCaptureInfo,
	HF_SYM_cuStreamGetCaptureInfo_ptsz,
	HF_SYM_cuStreamGetCaptureInfo_v2,
	HF_SYM_cuStreamGetCaptureInfo_v2_ptsz,
	HF_SYM_cuStreamGetCaptureInfo_v3,
	HF_SYM_cuStreamGetCaptureInfo_v3_ptsz,
	HF_SYM_cuStreamGetCtx,
	HF_SYM_cuStreamGetCtx_ptsz,
	HF_SYM_cuStreamGetCtx_v2,
	HF_SYM_cuStreamGetCtx_v2_ptsz,
	HF_SYM_cuStreamGetDevice,
	HF_SYM_cuStreamGetDevice_ptsz,
	HF_SYM_cuStreamGetFlags,
	HF_SYM_cuStreamGetFlags_ptsz,
	HF_SYM_cuStreamGetGreenCtx,
	HF_SYM_cuStreamGetId,
	HF_SYM_cuStreamGetId_ptsz,
	HF_SYM_cuStreamGetPriority,
	HF_SYM_cuStreamGetPriority_ptsz,
	HF_SYM_cuStreamIsCapturing,
	HF_SYM_cuStreamIsCapturing_ptsz,
	HF_SYM_cuStreamQuery,
	HF_SYM_cuStreamQuery_ptsz,
	HF_SYM_cuStreamSetAttribute,
	HF_SYM_cuStreamSetAttribute_ptsz,
	HF_SYM_cuStreamSynchronize,
	HF_SYM_cuStreamSynchronize_ptsz,
	HF_SYM_cuStreamUpdateCaptureDependencies,
	HF_SYM_cuStreamUpdateCaptureDependencies_ptsz,
	HF_SYM_cuStreamUpdateCaptureDependencies_v2,
	HF_SYM_cuStreamUpdateCaptureDependencies_v2_ptsz,
	HF_SYM_cuStreamWaitEvent,
	HF_SYM_cuStreamWaitEvent_ptsz,
	HF_SYM_cuStreamWaitValue32,
	HF_SYM_cuStreamWaitValue32_ptsz,
	HF_SYM_cuStreamWaitValue32_v2,
	HF_SYM_cuStreamWaitValue32_v2_ptsz,
	HF_SYM_cuStreamWaitValue64,
	HF_SYM_cuStreamWaitValue64_ptsz,
	HF_SYM_cuStreamWaitValue64_v2,
	HF_SYM_cuStreamWaitValue64_v2_ptsz,
	HF_SYM_cuStreamWriteValue32,
	HF_SYM_cuStreamWriteValue32_ptsz,
	HF_SYM_cuStreamWriteValue32_v2,
	HF_SYM_cuStreamWriteValue32_v2_ptsz,
	HF_SYM_cuStreamWriteValue64,
	HF_SYM_cuStreamWriteValue64_ptsz,
	HF_SYM_cuStreamWriteValue64_v2,
	HF_SYM_cuStreamWriteValue64_v2_ptsz,
	HF_SYM_cuSurfObjectCreate,
	HF_SYM_cuSurfObjectDestroy,
	HF_SYM_cuSurfObjectGetResourceDesc,
	HF_SYM_cuSurfRefGetArray,
	HF_SYM_cuSurfRefSetArray,
	HF_SYM_cuTensorMapEncodeIm2col,
	HF_SYM_cuTensorMapEncodeIm2colWide,
	HF_SYM_cuTensorMapEncodeTiled,
	HF_SYM_cuTensorMapReplaceAddress,
	HF_SYM_cuTexObjectCreate,
	HF_SYM_cuTexObjectDestroy,
	HF_SYM_cuTexObjectGetResourceDesc,
	HF_SYM_cuTexObjectGetResourceViewDesc,
	HF_SYM_cuTexObjectGetTextureDesc,
	HF_SYM_cuTexRefCreate,
	HF_SYM_cuTexRefDestroy,
	HF_SYM_cuTexRefGetAddressMode,
	HF_SYM_cuTexRefGetAddress_v2,
	HF_SYM_cuTexRefGetArray,
	HF_SYM_cuTexRefGetBorderColor,
	HF_SYM_cuTexRefGetFilterMode,
	HF_SYM_cuTexRefGetFlags,
	HF_SYM_cuTexRefGetFormat,
	HF_SYM_cuTexRefGetMaxAnisotropy,
	HF_SYM_cuTexRefGetMipmapFilterMode,
	HF_SYM_cuTexRefGetMipmapLevelBias,
	HF_SYM_cuTexRefGetMipmapLevelClamp,
	HF_SYM_cuTexRefGetMipmappedArray,
	HF_SYM_cuTexRefSetAddress2D_v3,
	HF_SYM_cuTexRefSetAddressMode,
	HF_SYM_cuTexRefSetAddress_v2,
	HF_SYM_cuTexRefSetArray,
	HF_SYM_cuTexRefSetBorderColor,
	HF_SYM_cuTexRefSetFilterMode,
	HF_SYM_cuTexRefSetFlags,
	HF_SYM_cuTexRefSetFormat,
	HF_SYM_cuTexRefSetMaxAnisotropy,
	HF_SYM_cuTexRefSetMipmapFilterMode,
	HF_SYM_cuTexRefSetMipmapLevelBias,
	HF_SYM_cuTexRefSetMipmapLevelClamp,
	HF_SYM_cuTexRefSetMipmappedArray,
	HF_SYM_cuThreadExchangeStreamCaptureMode,
	HF_SYM_cuUserObjectCreate,
	HF_SYM_cuUserObjectRelease,
	HF_SYM_cuUserObjectRetain,
	HF_SYM_cuVDPAUCtxCreate_v2,
	HF_SYM_cuVDPAUGetDevice,
	HF_SYM_cuWaitExternalSemaphoresAsync,
	HF_SYM_cuWaitExternalSemaphoresAsync_ptsz,
	HF_SYMBOLS
};

/* the real functions, 0 until first used */
extern void *hf_real[HF_SYMBOLS];

static inline CUresult real_cuArray3DCreate_v2(void *pHandle, void *pAllocateArray)
{
	return ((CUresult (*)(void *pHandle, void *pAllocateArray))hf_fn(HF_SYM_cuArray3DCreate_v2))(pHandle, pAllocateArray);
}
static inline CUresult real_cuArray3DGetDescriptor_v2(void *pArrayDescriptor, void *hArray)
{
	return ((CUresult (*)(void *pArrayDescriptor, void *hArray))hf_fn(HF_SYM_cuArray3DGetDescriptor_v2))(pArrayDescriptor, hArray);
}
static inline CUresult real_cuArrayCreate_v2(void *pHandle, void *pAllocateArray)
{
	return ((CUresult (*)(void *pHandle, void *pAllocateArray))hf_fn(HF_SYM_cuArrayCreate_v2))(pHandle, pAllocateArray);
}
static inline CUresult real_cuArrayDestroy(void *hArray)
{
	return ((CUresult (*)(void *hArray))hf_fn(HF_SYM_cuArrayDestroy))(hArray);
}
static inline CUresult real_cuArrayGetDescriptor_v2(void *pArrayDescriptor, void *hArray)
{
	return ((CUresult (*)(void *pArrayDescriptor, void *hArray))hf_fn(HF_SYM_cuArrayGetDescriptor_v2))(pArrayDescriptor, hArray);
}
static inline CUresult real_cuArrayGetMemoryRequirements(void *memoryRequirements, void *array, int device)
{
	return ((CUresult (*)(void *memoryRequirements, void *array, int device))hf_fn(HF_SYM_cuArrayGetMemoryRequirements))(memoryRequirements, array, device);
}
static inline CUresult real_cuArrayGetPlane(void *pPlaneArray, void *hArray, unsigned int planeIdx)
{
	return ((CUresult (*)(void *pPlaneArray, void *hArray, unsigned int planeIdx))hf_fn(HF_SYM_cuArrayGetPlane))(pPlaneArray, hArray, planeIdx);
}
static inline CUresult real_cuArrayGetSparseProperties(void *sparseProperties, void *array)
{
	return ((CUresult (*)(void *sparseProperties, void *array))hf_fn(HF_SYM_cuArrayGetSparseProperties))(sparseProperties, array);
}
static inline CUresult real_cuCheckpointProcessCheckpoint(int pid, void *args)
{
	return ((CUresult (*)(int pid, void *args))hf_fn(HF_SYM_cuCheckpointProcessCheckpoint))(pid, args);
}
static inline CUresult real_cuCheckpointProcessGetRestoreThreadId(int pid, void *tid)
{
	return ((CUresult (*)(int pid, void *tid))hf_fn(HF_SYM_cuCheckpointProcessGetRestoreThreadId))(pid, tid);
}
static inline CUresult real_cuCheckpointProcessGetState(int pid, void *state)
{
	return ((CUresult (*)(int pid, void *state))hf_fn(HF_SYM_cuCheckpointProcessGetState))(pid, state);
}
static inline CUresult real_cuCheckpointProcessLock(int pid, void *args)
{
	return ((CUresult (*)(int pid, void *args))hf_fn(HF_SYM_cuCheckpointProcessLock))(pid, args);
}
static inline CUresult real_cuCheckpointProcessRestore(int pid, void *args)
{
	return ((CUresult (*)(int pid, void *args))hf_fn(HF_SYM_cuCheckpointProcessRestore))(pid, args);
}
static inline CUresult real_cuCheckpointProcessUnlock(int pid, void *args)
{
	return ((CUresult (*)(int pid, void *args))hf_fn(HF_SYM_cuCheckpointProcessUnlock))(pid, args);
}
static inline CUresult real_cuCoredumpGetAttribute(int attrib, void *value, void *size)
{
	return ((CUresult (*)(int attrib, void *value, void *size))hf_fn(HF_SYM_cuCoredumpGetAttribute))(attrib, value, size);
}
static inline CUresult real_cuCoredumpGetAttributeGlobal(int attrib, void *value, void *size)
{
	return ((CUresult (*)(int attrib, void *value, void *size))hf_fn(HF_SYM_cuCoredumpGetAttributeGlobal))(attrib, value, size);
}
static inline CUresult real_cuCoredumpSetAttribute(int attrib, void *value, void *size)
{
	return ((CUresult (*)(int attrib, void *value, void *size))hf_fn(HF_SYM_cuCoredumpSetAttribute))(attrib, value, size);
}
static inline CUresult real_cuCoredumpSetAttributeGlobal(int attrib, void *value, void *size)
{
	return ((CUresult (*)(int attrib, void *value, void *size))hf_fn(HF_SYM_cuCoredumpSetAttributeGlobal))(attrib, value, size);
}
static inline CUresult real_cuCtxAttach(void *pctx, unsigned int flags)
{
	return ((CUresult (*)(void *pctx, unsigned int flags))hf_fn(HF_SYM_cuCtxAttach))(pctx, flags);
}
static inline CUresult real_cuCtxCreate(void *pctx, unsigned int flags, int dev)
{
	return ((CUresult (*)(void *pctx, unsigned int flags, int dev))hf_fn(HF_SYM_cuCtxCreate))(pctx, flags, dev);
}
static inline CUresult real_cuCtxCreate_v2(void *pctx, unsigned int flags, int dev)
{
	return ((CUresult (*)(void *pctx, unsigned int flags, int dev))hf_fn(HF_SYM_cuCtxCreate_v2))(pctx, flags, dev);
}
static inline CUresult real_cuCtxCreate_v3(void *pctx, void *paramsArray, int numParams, unsigned int flags, int dev)
{
	return ((CUresult (*)(void *pctx, void *paramsArray, int numParams, unsigned int flags, int dev))hf_fn(HF_SYM_cuCtxCreate_v3))(pctx, paramsArray, numParams, flags, dev);
}
static inline CUresult real_cuCtxCreate_v4(void *pctx, void *ctxCreateParams, unsigned int flags, int dev)
{
	return ((CUresult (*)(void *pctx, void *ctxCreateParams, unsigned int flags, int dev))hf_fn(HF_SYM_cuCtxCreate_v4))(pctx, ctxCreateParams, flags, dev);
}
static inline CUresult real_cuCtxDestroy(void *ctx)
{
	return ((CUresult (*)(void *ctx))hf_fn(HF_SYM_cuCtxDestroy))(ctx);
}
static inline CUresult real_cuCtxDestroy_v2(void *ctx)
{
	return ((CUresult (*)(void *ctx))hf_fn(HF_SYM_cuCtxDestroy_v2))(ctx);
}
static inline CUresult real_cuCtxDetach(void *ctx)
{
	return ((CUresult (*)(void *ctx))hf_fn(HF_SYM_cuCtxDetach))(ctx);
}
static inline CUresult real_cuCtxDisablePeerAccess(void *peerContext)
{
	return ((CUresult (*)(void *peerContext))hf_fn(HF_SYM_cuCtxDisablePeerAccess))(peerContext);
}
static inline CUresult real_cuCtxEnablePeerAccess(void *peerContext, unsigned int Flags)
{
	return ((CUresult (*)(void *peerContext, unsigned int Flags))hf_fn(HF_SYM_cuCtxEnablePeerAccess))(peerContext, Flags);
}
static inline CUresult real_cuCtxFromGreenCtx(void *pContext, void *hCtx)
{
	return ((CUresult (*)(void *pContext, void *hCtx))hf_fn(HF_SYM_cuCtxFromGreenCtx))(pContext, hCtx);
}
static inline CUresult real_cuCtxGetApiVersion(void *ctx, void *version)
{
	return ((CUresult (*)(void *ctx, void *version))hf_fn(HF_SYM_cuCtxGetApiVersion))(ctx, version);
}
static inline CUresult real_cuCtxGetCacheConfig(void *pconfig)
{
	return ((CUresult (*)(void *pconfig))hf_fn(HF_SYM_cuCtxGetCacheConfig))(pconfig);
}
static inline CUresult real_cuCtxGetCurrent(void *pctx)
{
	return ((CUresult (*)(void *pctx))hf_fn(HF_SYM_cuCtxGetCurrent))(pctx);
}
static inline CUresult real_cuCtxGetDevResource(void *hCtx, void *resource, int type)
{
	return ((CUresult (*)(void *hCtx, void *resource, int type))hf_fn(HF_SYM_cuCtxGetDevResource))(hCtx, resource, type);
}
static inline CUresult real_cuCtxGetDevice(void *device)
{
	return ((CUresult (*)(void *device))hf_fn(HF_SYM_cuCtxGetDevice))(device);
}
static inline CUresult real_cuCtxGetDevice_v2(void *device, void *ctx)
{
	return ((CUresult (*)(void *device, void *ctx))hf_fn(HF_SYM_cuCtxGetDevice_v2))(device, ctx);
}
static inline CUresult real_cuCtxGetExecAffinity(void *pExecAffinity, int type)
{
	return ((CUresult (*)(void *pExecAffinity, int type))hf_fn(HF_SYM_cuCtxGetExecAffinity))(pExecAffinity, type);
}
static inline CUresult real_cuCtxGetFlags(void *flags)
{
	return ((CUresult (*)(void *flags))hf_fn(HF_SYM_cuCtxGetFlags))(flags);
}
static inline CUresult real_cuCtxGetId(void *ctx, void *ctxId)
{
	return ((CUresult (*)(void *ctx, void *ctxId))hf_fn(HF_SYM_cuCtxGetId))(ctx, ctxId);
}
static inline CUresult real_cuCtxGetLimit(void *pvalue, int limit)
{
	return ((CUresult (*)(void *pvalue, int limit))hf_fn(HF_SYM_cuCtxGetLimit))(pvalue, limit);
}
static inline CUresult real_cuCtxGetSharedMemConfig(void *pConfig)
{
	return ((CUresult (*)(void *pConfig))hf_fn(HF_SYM_cuCtxGetSharedMemConfig))(pConfig);
}
static inline CUresult real_cuCtxGetStreamPriorityRange(void *leastPriority, void *greatestPriority)
{
	return ((CUresult (*)(void *leastPriority, void *greatestPriority))hf_fn(HF_SYM_cuCtxGetStreamPriorityRange))(leastPriority, greatestPriority);
}
static inline CUresult real_cuCtxPopCurrent(void *pctx)
{
	return ((CUresult (*)(void *pctx))hf_fn(HF_SYM_cuCtxPopCurrent))(pctx);
}
static inline CUresult real_cuCtxPopCurrent_v2(void *pctx)
{
	return ((CUresult (*)(void *pctx))hf_fn(HF_SYM_cuCtxPopCurrent_v2))(pctx);
}
static inline CUresult real_cuCtxPushCurrent(void *ctx)
{
	return ((CUresult (*)(void *ctx))hf_fn(HF_SYM_cuCtxPushCurrent))(ctx);
}
static inline CUresult real_cuCtxPushCurrent_v2(void *ctx)
{
	return ((CUresult (*)(void *ctx))hf_fn(HF_SYM_cuCtxPushCurrent_v2))(ctx);
}
static inline CUresult real_cuCtxRecordEvent(void *hCtx, void *hEvent)
{
	return ((CUresult (*)(void *hCtx, void *hEvent))hf_fn(HF_SYM_cuCtxRecordEvent))(hCtx, hEvent);
}
static inline CUresult real_cuCtxResetPersistingL2Cache(void)
{
	return ((CUresult (*)(void))hf_fn(HF_SYM_cuCtxResetPersistingL2Cache))();
}
static inline CUresult real_cuCtxSetCacheConfig(int config)
{
	return ((CUresult (*)(int config))hf_fn(HF_SYM_cuCtxSetCacheConfig))(config);
}
static inline CUresult real_cuCtxSetCurrent(void *ctx)
{
	return ((CUresult (*)(void *ctx))hf_fn(HF_SYM_cuCtxSetCurrent))(ctx);
}
static inline CUresult real_cuCtxSetFlags(unsigned int flags)
{
	return ((CUresult (*)(unsigned int flags))hf_fn(HF_SYM_cuCtxSetFlags))(flags);
}
static inline CUresult real_cuCtxSetLimit(int limit, size_t value)
{
	return ((CUresult (*)(int limit, size_t value))hf_fn(HF_SYM_cuCtxSetLimit))(limit, value);
}
static inline CUresult real_cuCtxSetSharedMemConfig(int config)
{
	return ((CUresult (*)(int config))hf_fn(HF_SYM_cuCtxSetSharedMemConfig))(config);
}
static inline CUresult real_cuCtxSynchronize(void)
{
	return ((CUresult (*)(void))hf_fn(HF_SYM_cuCtxSynchronize))();
}
static inline CUresult real_cuCtxSynchronize_v2(void *ctx)
{
	return ((CUresult (*)(void *ctx))hf_fn(HF_SYM_cuCtxSynchronize_v2))(ctx);
}
static inline CUresult real_cuCtxWaitEvent(void *hCtx, void *hEvent)
{
	return ((CUresult (*)(void *hCtx, void *hEvent))hf_fn(HF_SYM_cuCtxWaitEvent))(hCtx, hEvent);
}
static inline CUresult real_cuDestroyExternalMemory(void *extMem)
{
	return ((CUresult (*)(void *extMem))hf_fn(HF_SYM_cuDestroyExternalMemory))(extMem);
}
static inline CUresult real_cuDestroyExternalSemaphore(void *extSem)
{
	return ((CUresult (*)(void *extSem))hf_fn(HF_SYM_cuDestroyExternalSemaphore))(extSem);
}
static inline CUresult real_cuDevResourceGenerateDesc(void *phDesc, void *resources, unsigned int nbResources)
{
	return ((CUresult (*)(void *phDesc, void *resources, unsigned int nbResources))hf_fn(HF_SYM_cuDevResourceGenerateDesc))(phDesc, resources, nbResources);
}
static inline CUresult real_cuDevSmResourceSplitByCount(void *result, void *nbGroups, void *input, void *remainder, unsigned int useFlags, unsigned int minCount)
{
	return ((CUresult (*)(void *result, void *nbGroups, void *input, void *remainder, unsigned int useFlags, unsigned int minCount))hf_fn(HF_SYM_cuDevSmResourceSplitByCount))(result, nbGroups, input, remainder, useFlags, minCount);
}
static inline CUresult real_cuDeviceCanAccessPeer(void *canAccessPeer, int dev, int peerDev)
{
	return ((CUresult (*)(void *canAccessPeer, int dev, int peerDev))hf_fn(HF_SYM_cuDeviceCanAccessPeer))(canAccessPeer, dev, peerDev);
}
static inline CUresult real_cuDeviceComputeCapability(void *major, void *minor, int dev)
{
	return ((CUresult (*)(void *major, void *minor, int dev))hf_fn(HF_SYM_cuDeviceComputeCapability))(major, minor, dev);
}
static inline CUresult real_cuDeviceGet(void *device, int ordinal)
{
	return ((CUresult (*)(void *device, int ordinal))hf_fn(HF_SYM_cuDeviceGet))(device, ordinal);
}
static inline CUresult real_cuDeviceGetAttribute(void *pi, int attrib, int dev)
{
	return ((CUresult (*)(void *pi, int attrib, int dev))hf_fn(HF_SYM_cuDeviceGetAttribute))(pi, attrib, dev);
}
static inline CUresult real_cuDeviceGetByPCIBusId(void *dev, void *pciBusId)
{
	return ((CUresult (*)(void *dev, void *pciBusId))hf_fn(HF_SYM_cuDeviceGetByPCIBusId))(dev, pciBusId);
}
static inline CUresult real_cuDeviceGetCount(void *count)
{
	return ((CUresult (*)(void *count))hf_fn(HF_SYM_cuDeviceGetCount))(count);
}
static inline CUresult real_cuDeviceGetDefaultMemPool(void *pool_out, int dev)
{
	return ((CUresult (*)(void *pool_out, int dev))hf_fn(HF_SYM_cuDeviceGetDefaultMemPool))(pool_out, dev);
}
static inline CUresult real_cuDeviceGetDevResource(int device, void *resource, int type)
{
	return ((CUresult (*)(int device, void *resource, int type))hf_fn(HF_SYM_cuDeviceGetDevResource))(device, resource, type);
}
static inline CUresult real_cuDeviceGetExecAffinitySupport(void *pi, int type, int dev)
{
	return ((CUresult (*)(void *pi, int type, int dev))hf_fn(HF_SYM_cuDeviceGetExecAffinitySupport))(pi, type, dev);
}
static inline CUresult real_cuDeviceGetGraphMemAttribute(int device, int attr, void *value)
{
	return ((CUresult (*)(int device, int attr, void *value))hf_fn(HF_SYM_cuDeviceGetGraphMemAttribute))(device, attr, value);
}
static inline CUresult real_cuDeviceGetHostAtomicCapabilities(void *capabilities, void *operations, unsigned int count, int dev)
{
	return ((CUresult (*)(void *capabilities, void *operations, unsigned int count, int dev))hf_fn(HF_SYM_cuDeviceGetHostAtomicCapabilities))(capabilities, operations, count, dev);
}
static inline CUresult real_cuDeviceGetLuid(void *luid, void *deviceNodeMask, int dev)
{
	return ((CUresult (*)(void *luid, void *deviceNodeMask, int dev))hf_fn(HF_SYM_cuDeviceGetLuid))(luid, deviceNodeMask, dev);
}
static inline CUresult real_cuDeviceGetMemPool(void *pool, int dev)
{
	return ((CUresult (*)(void *pool, int dev))hf_fn(HF_SYM_cuDeviceGetMemPool))(pool, dev);
}
static inline CUresult real_cuDeviceGetName(void *name, int len, int dev)
{
	return ((CUresult (*)(void *name, int len, int dev))hf_fn(HF_SYM_cuDeviceGetName))(name, len, dev);
}
static inline CUresult real_cuDeviceGetNvSciSyncAttributes(void *nvSciSyncAttrList, int dev, int flags)
{
	return ((CUresult (*)(void *nvSciSyncAttrList, int dev, int flags))hf_fn(HF_SYM_cuDeviceGetNvSciSyncAttributes))(nvSciSyncAttrList, dev, flags);
}
static inline CUresult real_cuDeviceGetP2PAtomicCapabilities(void *capabilities, void *operations, unsigned int count, int srcDevice, int dstDevice)
{
	return ((CUresult (*)(void *capabilities, void *operations, unsigned int count, int srcDevice, int dstDevice))hf_fn(HF_SYM_cuDeviceGetP2PAtomicCapabilities))(capabilities, operations, count, srcDevice, dstDevice);
}
static inline CUresult real_cuDeviceGetP2PAttribute(void *value, int attrib, int srcDevice, int dstDevice)
{
	return ((CUresult (*)(void *value, int attrib, int srcDevice, int dstDevice))hf_fn(HF_SYM_cuDeviceGetP2PAttribute))(value, attrib, srcDevice, dstDevice);
}
static inline CUresult real_cuDeviceGetPCIBusId(void *pciBusId, int len, int dev)
{
	return ((CUresult (*)(void *pciBusId, int len, int dev))hf_fn(HF_SYM_cuDeviceGetPCIBusId))(pciBusId, len, dev);
}
static inline CUresult real_cuDeviceGetProperties(void *prop, int dev)
{
	return ((CUresult (*)(void *prop, int dev))hf_fn(HF_SYM_cuDeviceGetProperties))(prop, dev);
}
static inline CUresult real_cuDeviceGetTexture1DLinearMaxWidth(void *maxWidthInElements, int format, unsigned int numChannels, int dev)
{
	return ((CUresult (*)(void *maxWidthInElements, int format, unsigned int numChannels, int dev))hf_fn(HF_SYM_cuDeviceGetTexture1DLinearMaxWidth))(maxWidthInElements, format, numChannels, dev);
}
static inline CUresult real_cuDeviceGetUuid(void *uuid, int dev)
{
	return ((CUresult (*)(void *uuid, int dev))hf_fn(HF_SYM_cuDeviceGetUuid))(uuid, dev);
}
static inline CUresult real_cuDeviceGetUuid_v2(void *uuid, int dev)
{
	return ((CUresult (*)(void *uuid, int dev))hf_fn(HF_SYM_cuDeviceGetUuid_v2))(uuid, dev);
}
static inline CUresult real_cuDeviceGraphMemTrim(int device)
{
	return ((CUresult (*)(int device))hf_fn(HF_SYM_cuDeviceGraphMemTrim))(device);
}
static inline CUresult real_cuDevicePrimaryCtxGetState(int dev, void *flags, void *active)
{
	return ((CUresult (*)(int dev, void *flags, void *active))hf_fn(HF_SYM_cuDevicePrimaryCtxGetState))(dev, flags, active);
}
static inline CUresult real_cuDevicePrimaryCtxRelease(int dev)
{
	return ((CUresult (*)(int dev))hf_fn(HF_SYM_cuDevicePrimaryCtxRelease))(dev);
}
static inline CUresult real_cuDevicePrimaryCtxRelease_v2(int dev)
{
	return ((CUresult (*)(int dev))hf_fn(HF_SYM_cuDevicePrimaryCtxRelease_v2))(dev);
}
static inline CUresult real_cuDevicePrimaryCtxReset(int dev)
{
	return ((CUresult (*)(int dev))hf_fn(HF_SYM_cuDevicePrimaryCtxReset))(dev);
}
static inline CUresult real_cuDevicePrimaryCtxReset_v2(int dev)
{
	return ((CUresult (*)(int dev))hf_fn(HF_SYM_cuDevicePrimaryCtxReset_v2))(dev);
}
static inline CUresult real_cuDevicePrimaryCtxRetain(void *pctx, int dev)
{
	return ((CUresult (*)(void *pctx, int dev))hf_fn(HF_SYM_cuDevicePrimaryCtxRetain))(pctx, dev);
}
static inline CUresult real_cuDevicePrimaryCtxSetFlags(int dev, unsigned int flags)
{
	return ((CUresult (*)(int dev, unsigned int flags))hf_fn(HF_SYM_cuDevicePrimaryCtxSetFlags))(dev, flags);
}
static inline CUresult real_cuDevicePrimaryCtxSetFlags_v2(int dev, unsigned int flags)
{
	return ((CUresult (*)(int dev, unsigned int flags))hf_fn(HF_SYM_cuDevicePrimaryCtxSetFlags_v2))(dev, flags);
}
static inline CUresult real_cuDeviceRegisterAsyncNotification(int device, void *callbackFunc, void *userData, void *callback)
{
	return ((CUresult (*)(int device, void *callbackFunc, void *userData, void *callback))hf_fn(HF_SYM_cuDeviceRegisterAsyncNotification))(device, callbackFunc, userData, callback);
}
static inline CUresult real_cuDeviceSetGraphMemAttribute(int device, int attr, void *value)
{
	return ((CUresult (*)(int device, int attr, void *value))hf_fn(HF_SYM_cuDeviceSetGraphMemAttribute))(device, attr, value);
}
static inline CUresult real_cuDeviceSetMemPool(int dev, void *pool)
{
	return ((CUresult (*)(int dev, void *pool))hf_fn(HF_SYM_cuDeviceSetMemPool))(dev, pool);
}
static inline CUresult real_cuDeviceTotalMem_v2(void *bytes, int dev)
{
	return ((CUresult (*)(void *bytes, int dev))hf_fn(HF_SYM_cuDeviceTotalMem_v2))(bytes, dev);
}
static inline CUresult real_cuDeviceUnregisterAsyncNotification(int device, void *callback)
{
	return ((CUresult (*)(int device, void *callback))hf_fn(HF_SYM_cuDeviceUnregisterAsyncNotification))(device, callback);
}
static inline CUresult real_cuDriverGetVersion(void *driverVersion)
{
	return ((CUresult (*)(void *driverVersion))hf_fn(HF_SYM_cuDriverGetVersion))(driverVersion);
}
static inline CUresult real_cuEGLStreamConsumerAcquireFrame(void *conn, void *pCudaResource, void *pStream, unsigned int timeout)
{
	return ((CUresult (*)(void *conn, void *pCudaResource, void *pStream, unsigned int timeout))hf_fn(HF_SYM_cuEGLStreamConsumerAcquireFrame))(conn, pCudaResource, pStream, timeout);
}
static inline CUresult real_cuEGLStreamConsumerConnect(void *conn, void *stream)
{
	return ((CUresult (*)(void *conn, void *stream))hf_fn(HF_SYM_cuEGLStreamConsumerConnect))(conn, stream);
}
static inline CUresult real_cuEGLStreamConsumerConnectWithFlags(void *conn, void *stream, unsigned int flags)
{
	return ((CUresult (*)(void *conn, void *stream, unsigned int flags))hf_fn(HF_SYM_cuEGLStreamConsumerConnectWithFlags))(conn, stream, flags);
}
static inline CUresult real_cuEGLStreamConsumerDisconnect(void *conn)
{
	return ((CUresult (*)(void *conn))hf_fn(HF_SYM_cuEGLStreamConsumerDisconnect))(conn);
}
static inline CUresult real_cuEGLStreamConsumerReleaseFrame(void *conn, void *pCudaResource, void *pStream)
{
	return ((CUresult (*)(void *conn, void *pCudaResource, void *pStream))hf_fn(HF_SYM_cuEGLStreamConsumerReleaseFrame))(conn, pCudaResource, pStream);
}
static inline CUresult real_cuEGLStreamProducerConnect(void *conn, void *stream, int width, int height)
{
	return ((CUresult (*)(void *conn, void *stream, int width, int height))hf_fn(HF_SYM_cuEGLStreamProducerConnect))(conn, stream, width, height);
}
static inline CUresult real_cuEGLStreamProducerDisconnect(void *conn)
{
	return ((CUresult (*)(void *conn))hf_fn(HF_SYM_cuEGLStreamProducerDisconnect))(conn);
}
static inline CUresult real_cuEventCreate(void *phEvent, unsigned int Flags)
{
	return ((CUresult (*)(void *phEvent, unsigned int Flags))hf_fn(HF_SYM_cuEventCreate))(phEvent, Flags);
}
static inline CUresult real_cuEventDestroy(void *hEvent)
{
	return ((CUresult (*)(void *hEvent))hf_fn(HF_SYM_cuEventDestroy))(hEvent);
}
static inline CUresult real_cuEventDestroy_v2(void *hEvent)
{
	return ((CUresult (*)(void *hEvent))hf_fn(HF_SYM_cuEventDestroy_v2))(hEvent);
}
static inline CUresult real_cuEventElapsedTime(void *pMilliseconds, void *hStart, void *hEnd)
{
	return ((CUresult (*)(void *pMilliseconds, void *hStart, void *hEnd))hf_fn(HF_SYM_cuEventElapsedTime))(pMilliseconds, hStart, hEnd);
}
static inline CUresult real_cuEventElapsedTime_v2(void *pMilliseconds, void *hStart, void *hEnd)
{
	return ((CUresult (*)(void *pMilliseconds, void *hStart, void *hEnd))hf_fn(HF_SYM_cuEventElapsedTime_v2))(pMilliseconds, hStart, hEnd);
}
static inline CUresult real_cuEventQuery(void *hEvent)
{
	return ((CUresult (*)(void *hEvent))hf_fn(HF_SYM_cuEventQuery))(hEvent);
}
static inline CUresult real_cuEventRecord(void *hEvent, void *hStream)
{
	return ((CUresult (*)(void *hEvent, void *hStream))hf_fn(HF_SYM_cuEventRecord))(hEvent, hStream);
}
static inline CUresult real_cuEventRecordWithFlags(void *hEvent, void *hStream, unsigned int flags)
{
	return ((CUresult (*)(void *hEvent, void *hStream, unsigned int flags))hf_fn(HF_SYM_cuEventRecordWithFlags))(hEvent, hStream, flags);
}
static inline CUresult real_cuEventRecordWithFlags_ptsz(void *hEvent, void *hStream, unsigned int flags)
{
	return ((CUresult (*)(void *hEvent, void *hStream, unsigned int flags))hf_fn(HF_SYM_cuEventRecordWithFlags_ptsz))(hEvent, hStream, flags);
}
static inline CUresult real_cuEventRecord_ptsz(void *hEvent, void *hStream)
{
	return ((CUresult (*)(void *hEvent, void *hStream))hf_fn(HF_SYM_cuEventRecord_ptsz))(hEvent, hStream);
}
static inline CUresult real_cuEventSynchronize(void *hEvent)
{
	return ((CUresult (*)(void *hEvent))hf_fn(HF_SYM_cuEventSynchronize))(hEvent);
}
static inline CUresult real_cuExternalMemoryGetMappedBuffer(void *devPtr, void *extMem, void *bufferDesc)
{
	return ((CUresult (*)(void *devPtr, void *extMem, void *bufferDesc))hf_fn(HF_SYM_cuExternalMemoryGetMappedBuffer))(devPtr, extMem, bufferDesc);
}
static inline CUresult real_cuExternalMemoryGetMappedMipmappedArray(void *mipmap, void *extMem, void *mipmapDesc)
{
	return ((CUresult (*)(void *mipmap, void *extMem, void *mipmapDesc))hf_fn(HF_SYM_cuExternalMemoryGetMappedMipmappedArray))(mipmap, extMem, mipmapDesc);
}
static inline CUresult real_cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	return ((CUresult (*)(int target, int scope))hf_fn(HF_SYM_cuFlushGPUDirectRDMAWrites))(target, scope);
}
static inline CUresult real_cuFuncGetAttribute(void *pi, int attrib, void *hfunc)
{
	return ((CUresult (*)(void *pi, int attrib, void *hfunc))hf_fn(HF_SYM_cuFuncGetAttribute))(pi, attrib, hfunc);
}
static inline CUresult real_cuFuncGetModule(void *hmod, void *hfunc)
{
	return ((CUresult (*)(void *hmod, void *hfunc))hf_fn(HF_SYM_cuFuncGetModule))(hmod, hfunc);
}
static inline CUresult real_cuFuncGetName(void *name, void *hfunc)
{
	return ((CUresult (*)(void *name, void *hfunc))hf_fn(HF_SYM_cuFuncGetName))(name, hfunc);
}
static inline CUresult real_cuFuncGetParamCount(void *func, void *paramCount)
{
	return ((CUresult (*)(void *func, void *paramCount))hf_fn(HF_SYM_cuFuncGetParamCount))(func, paramCount);
}
static inline CUresult real_cuFuncGetParamInfo(void *func, size_t paramIndex, void *paramOffset, void *paramSize)
{
	return ((CUresult (*)(void *func, size_t paramIndex, void *paramOffset, void *paramSize))hf_fn(HF_SYM_cuFuncGetParamInfo))(func, paramIndex, paramOffset, paramSize);
}
static inline CUresult real_cuFuncIsLoaded(void *state, void *function)
{
	return ((CUresult (*)(void *state, void *function))hf_fn(HF_SYM_cuFuncIsLoaded))(state, function);
}
static inline CUresult real_cuFuncLoad(void *function)
{
	return ((CUresult (*)(void *function))hf_fn(HF_SYM_cuFuncLoad))(function);
}
static inline CUresult real_cuFuncSetAttribute(void *hfunc, int attrib, int value)
{
	return ((CUresult (*)(void *hfunc, int attrib, int value))hf_fn(HF_SYM_cuFuncSetAttribute))(hfunc, attrib, value);
}
static inline CUresult real_cuFuncSetBlockShape(void *hfunc, int x, int y, int z)
{
	return ((CUresult (*)(void *hfunc, int x, int y, int z))hf_fn(HF_SYM_cuFuncSetBlockShape))(hfunc, x, y, z);
}
static inline CUresult real_cuFuncSetCacheConfig(void *hfunc, int config)
{
	return ((CUresult (*)(void *hfunc, int config))hf_fn(HF_SYM_cuFuncSetCacheConfig))(hfunc, config);
}
static inline CUresult real_cuFuncSetSharedMemConfig(void *hfunc, int config)
{
	return ((CUresult (*)(void *hfunc, int config))hf_fn(HF_SYM_cuFuncSetSharedMemConfig))(hfunc, config);
}
static inline CUresult real_cuFuncSetSharedSize(void *hfunc, unsigned int bytes)
{
	return ((CUresult (*)(void *hfunc, unsigned int bytes))hf_fn(HF_SYM_cuFuncSetSharedSize))(hfunc, bytes);
}
static inline CUresult real_cuGLCtxCreate_v2(void *pCtx, unsigned int Flags, int device)
{
	return ((CUresult (*)(void *pCtx, unsigned int Flags, int device))hf_fn(HF_SYM_cuGLCtxCreate_v2))(pCtx, Flags, device);
}
static inline CUresult real_cuGLGetDevices(void *pCudaDeviceCount, void *pCudaDevices, unsigned int cudaDeviceCount, int deviceList)
{
	return ((CUresult (*)(void *pCudaDeviceCount, void *pCudaDevices, unsigned int cudaDeviceCount, int deviceList))hf_fn(HF_SYM_cuGLGetDevices))(pCudaDeviceCount, pCudaDevices, cudaDeviceCount, deviceList);
}
static inline CUresult real_cuGLGetDevices_v2(void *pCudaDeviceCount, void *pCudaDevices, unsigned int cudaDeviceCount, int deviceList)
{
	return ((CUresult (*)(void *pCudaDeviceCount, void *pCudaDevices, unsigned int cudaDeviceCount, int deviceList))hf_fn(HF_SYM_cuGLGetDevices_v2))(pCudaDeviceCount, pCudaDevices, cudaDeviceCount, deviceList);
}
static inline CUresult real_cuGLInit(void)
{
	return ((CUresult (*)(void))hf_fn(HF_SYM_cuGLInit))();
}
static inline CUresult real_cuGLMapBufferObjectAsync_v2(void *dptr, void *size, unsigned int buffer, void *hStream)
{
	return ((CUresult (*)(void *dptr, void *size, unsigned int buffer, void *hStream))hf_fn(HF_SYM_cuGLMapBufferObjectAsync_v2))(dptr, size, buffer, hStream);
}
static inline CUresult real_cuGLMapBufferObjectAsync_v2_ptsz(void *dptr, void *size, unsigned int buffer, void *hStream)
{
	return ((CUresult (*)(void *dptr, void *size, unsigned int buffer, void *hStream))hf_fn(HF_SYM_cuGLMapBufferObjectAsync_v2_ptsz))(dptr, size, buffer, hStream);
}
static inline CUresult real_cuGLMapBufferObject_v2(void *dptr, void *size, unsigned int buffer)
{
	return ((CUresult (*)(void *dptr, void *size, unsigned int buffer))hf_fn(HF_SYM_cuGLMapBufferObject_v2))(dptr, size, buffer);
}
static inline CUresult real_cuGLMapBufferObject_v2_ptds(void *dptr, void *size, unsigned int buffer)
{
	return ((CUresult (*)(void *dptr, void *size, unsigned int buffer))hf_fn(HF_SYM_cuGLMapBufferObject_v2_ptds))(dptr, size, buffer);
}
static inline CUresult real_cuGLRegisterBufferObject(unsigned int buffer)
{
	return ((CUresult (*)(unsigned int buffer))hf_fn(HF_SYM_cuGLRegisterBufferObject))(buffer);
}
static inline CUresult real_cuGLSetBufferObjectMapFlags(unsigned int buffer, unsigned int Flags)
{
	return ((CUresult (*)(unsigned int buffer, unsigned int Flags))hf_fn(HF_SYM_cuGLSetBufferObjectMapFlags))(buffer, Flags);
}
static inline CUresult real_cuGLUnmapBufferObject(unsigned int buffer)
{
	return ((CUresult (*)(unsigned int buffer))hf_fn(HF_SYM_cuGLUnmapBufferObject))(buffer);
}
static inline CUresult real_cuGLUnmapBufferObjectAsync(unsigned int buffer, void *hStream)
{
	return ((CUresult (*)(unsigned int buffer, void *hStream))hf_fn(HF_SYM_cuGLUnmapBufferObjectAsync))(buffer, hStream);
}
static inline CUresult real_cuGLUnregisterBufferObject(unsigned int buffer)
{
	return ((CUresult (*)(unsigned int buffer))hf_fn(HF_SYM_cuGLUnregisterBufferObject))(buffer);
}
static inline CUresult real_cuGetErrorName(int error, void *pStr)
{
	return ((CUresult (*)(int error, void *pStr))hf_fn(HF_SYM_cuGetErrorName))(error, pStr);
}
static inline CUresult real_cuGetErrorString(int error, void *pStr)
{
	return ((CUresult (*)(int error, void *pStr))hf_fn(HF_SYM_cuGetErrorString))(error, pStr);
}
static inline CUresult real_cuGetExportTable(void *ppExportTable, void *pExportTableId)
{
	return ((CUresult (*)(void *ppExportTable, void *pExportTableId))hf_fn(HF_SYM_cuGetExportTable))(ppExportTable, pExportTableId);
}
static inline CUresult real_cuGetProcAddress(void *symbol, void *pfn, int cudaVersion, unsigned long long flags)
{
	return ((CUresult (*)(void *symbol, void *pfn, int cudaVersion, unsigned long long flags))hf_fn(HF_SYM_cuGetProcAddress))(symbol, pfn, cudaVersion, flags);
}
static inline CUresult real_cuGetProcAddress_v2(void *symbol, void *pfn, int cudaVersion, unsigned long long flags, void *symbolStatus)
{
	return ((CUresult (*)(void *symbol, void *pfn, int cudaVersion, unsigned long long flags, void *symbolStatus))hf_fn(HF_SYM_cuGetProcAddress_v2))(symbol, pfn, cudaVersion, flags, symbolStatus);
}
static inline CUresult real_cuGraphAddBatchMemOpNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams))hf_fn(HF_SYM_cuGraphAddBatchMemOpNode))(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
static inline CUresult real_cuGraphAddChildGraphNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *childGraph)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *childGraph))hf_fn(HF_SYM_cuGraphAddChildGraphNode))(phGraphNode, hGraph, dependencies, numDependencies, childGraph);
}
static inline CUresult real_cuGraphAddDependencies(void *hGraph, void *from, void *to, size_t numDependencies)
{
	return ((CUresult (*)(void *hGraph, void *from, void *to, size_t numDependencies))hf_fn(HF_SYM_cuGraphAddDependencies))(hGraph, from, to, numDependencies);
}
static inline CUresult real_cuGraphAddDependencies_v2(void *hGraph, void *from, void *to, void *edgeData, size_t numDependencies)
{
	return ((CUresult (*)(void *hGraph, void *from, void *to, void *edgeData, size_t numDependencies))hf_fn(HF_SYM_cuGraphAddDependencies_v2))(hGraph, from, to, edgeData, numDependencies);
}
static inline CUresult real_cuGraphAddEmptyNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies))hf_fn(HF_SYM_cuGraphAddEmptyNode))(phGraphNode, hGraph, dependencies, numDependencies);
}
static inline CUresult real_cuGraphAddEventRecordNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *event)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *event))hf_fn(HF_SYM_cuGraphAddEventRecordNode))(phGraphNode, hGraph, dependencies, numDependencies, event);
}
static inline CUresult real_cuGraphAddEventWaitNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *event)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *event))hf_fn(HF_SYM_cuGraphAddEventWaitNode))(phGraphNode, hGraph, dependencies, numDependencies, event);
}
static inline CUresult real_cuGraphAddExternalSemaphoresSignalNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams))hf_fn(HF_SYM_cuGraphAddExternalSemaphoresSignalNode))(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
static inline CUresult real_cuGraphAddExternalSemaphoresWaitNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams))hf_fn(HF_SYM_cuGraphAddExternalSemaphoresWaitNode))(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
static inline CUresult real_cuGraphAddHostNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams))hf_fn(HF_SYM_cuGraphAddHostNode))(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
static inline CUresult real_cuGraphAddKernelNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams))hf_fn(HF_SYM_cuGraphAddKernelNode))(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
static inline CUresult real_cuGraphAddKernelNode_v2(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams))hf_fn(HF_SYM_cuGraphAddKernelNode_v2))(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
static inline CUresult real_cuGraphAddMemAllocNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams))hf_fn(HF_SYM_cuGraphAddMemAllocNode))(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
static inline CUresult real_cuGraphAddMemFreeNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, CUdeviceptr dptr)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, CUdeviceptr dptr))hf_fn(HF_SYM_cuGraphAddMemFreeNode))(phGraphNode, hGraph, dependencies, numDependencies, dptr);
}
static inline CUresult real_cuGraphAddMemcpyNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *copyParams, void *ctx)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *copyParams, void *ctx))hf_fn(HF_SYM_cuGraphAddMemcpyNode))(phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx);
}
static inline CUresult real_cuGraphAddMemsetNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *memsetParams, void *ctx)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *memsetParams, void *ctx))hf_fn(HF_SYM_cuGraphAddMemsetNode))(phGraphNode, hGraph, dependencies, numDependencies, memsetParams, ctx);
}
static inline CUresult real_cuGraphAddNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams))hf_fn(HF_SYM_cuGraphAddNode))(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
static inline CUresult real_cuGraphAddNode_v2(void *phGraphNode, void *hGraph, void *dependencies, void *dependencyData, size_t numDependencies, void *nodeParams)
{
	return ((CUresult (*)(void *phGraphNode, void *hGraph, void *dependencies, void *dependencyData, size_t numDependencies, void *nodeParams))hf_fn(HF_SYM_cuGraphAddNode_v2))(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}
static inline CUresult real_cuGraphBatchMemOpNodeGetParams(void *hNode, void *nodeParams_out)
{
	return ((CUresult (*)(void *hNode, void *nodeParams_out))hf_fn(HF_SYM_cuGraphBatchMemOpNodeGetParams))(hNode, nodeParams_out);
}
static inline CUresult real_cuGraphBatchMemOpNodeSetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphBatchMemOpNodeSetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphChildGraphNodeGetGraph(void *hNode, void *phGraph)
{
	return ((CUresult (*)(void *hNode, void *phGraph))hf_fn(HF_SYM_cuGraphChildGraphNodeGetGraph))(hNode, phGraph);
}
static inline CUresult real_cuGraphClone(void *phGraphClone, void *originalGraph)
{
	return ((CUresult (*)(void *phGraphClone, void *originalGraph))hf_fn(HF_SYM_cuGraphClone))(phGraphClone, originalGraph);
}
static inline CUresult real_cuGraphConditionalHandleCreate(void *pHandle_out, void *hGraph, void *ctx, unsigned int defaultLaunchValue, unsigned int flags)
{
	return ((CUresult (*)(void *pHandle_out, void *hGraph, void *ctx, unsigned int defaultLaunchValue, unsigned int flags))hf_fn(HF_SYM_cuGraphConditionalHandleCreate))(pHandle_out, hGraph, ctx, defaultLaunchValue, flags);
}
static inline CUresult real_cuGraphCreate(void *phGraph, unsigned int flags)
{
	return ((CUresult (*)(void *phGraph, unsigned int flags))hf_fn(HF_SYM_cuGraphCreate))(phGraph, flags);
}
static inline CUresult real_cuGraphDebugDotPrint(void *hGraph, void *path, unsigned int flags)
{
	return ((CUresult (*)(void *hGraph, void *path, unsigned int flags))hf_fn(HF_SYM_cuGraphDebugDotPrint))(hGraph, path, flags);
}
static inline CUresult real_cuGraphDestroy(void *hGraph)
{
	return ((CUresult (*)(void *hGraph))hf_fn(HF_SYM_cuGraphDestroy))(hGraph);
}
static inline CUresult real_cuGraphDestroyNode(void *hNode)
{
	return ((CUresult (*)(void *hNode))hf_fn(HF_SYM_cuGraphDestroyNode))(hNode);
}
static inline CUresult real_cuGraphEventRecordNodeGetEvent(void *hNode, void *event_out)
{
	return ((CUresult (*)(void *hNode, void *event_out))hf_fn(HF_SYM_cuGraphEventRecordNodeGetEvent))(hNode, event_out);
}
static inline CUresult real_cuGraphEventRecordNodeSetEvent(void *hNode, void *event)
{
	return ((CUresult (*)(void *hNode, void *event))hf_fn(HF_SYM_cuGraphEventRecordNodeSetEvent))(hNode, event);
}
static inline CUresult real_cuGraphEventWaitNodeGetEvent(void *hNode, void *event_out)
{
	return ((CUresult (*)(void *hNode, void *event_out))hf_fn(HF_SYM_cuGraphEventWaitNodeGetEvent))(hNode, event_out);
}
static inline CUresult real_cuGraphEventWaitNodeSetEvent(void *hNode, void *event)
{
	return ((CUresult (*)(void *hNode, void *event))hf_fn(HF_SYM_cuGraphEventWaitNodeSetEvent))(hNode, event);
}
static inline CUresult real_cuGraphExecBatchMemOpNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphExecBatchMemOpNodeSetParams))(hGraphExec, hNode, nodeParams);
}
static inline CUresult real_cuGraphExecChildGraphNodeSetParams(void *hGraphExec, void *hNode, void *childGraph)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *childGraph))hf_fn(HF_SYM_cuGraphExecChildGraphNodeSetParams))(hGraphExec, hNode, childGraph);
}
static inline CUresult real_cuGraphExecDestroy(void *hGraphExec)
{
	return ((CUresult (*)(void *hGraphExec))hf_fn(HF_SYM_cuGraphExecDestroy))(hGraphExec);
}
static inline CUresult real_cuGraphExecEventRecordNodeSetEvent(void *hGraphExec, void *hNode, void *event)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *event))hf_fn(HF_SYM_cuGraphExecEventRecordNodeSetEvent))(hGraphExec, hNode, event);
}
static inline CUresult real_cuGraphExecEventWaitNodeSetEvent(void *hGraphExec, void *hNode, void *event)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *event))hf_fn(HF_SYM_cuGraphExecEventWaitNodeSetEvent))(hGraphExec, hNode, event);
}
static inline CUresult real_cuGraphExecExternalSemaphoresSignalNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphExecExternalSemaphoresSignalNodeSetParams))(hGraphExec, hNode, nodeParams);
}
static inline CUresult real_cuGraphExecExternalSemaphoresWaitNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphExecExternalSemaphoresWaitNodeSetParams))(hGraphExec, hNode, nodeParams);
}
static inline CUresult real_cuGraphExecGetFlags(void *hGraphExec, void *flags)
{
	return ((CUresult (*)(void *hGraphExec, void *flags))hf_fn(HF_SYM_cuGraphExecGetFlags))(hGraphExec, flags);
}
static inline CUresult real_cuGraphExecHostNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphExecHostNodeSetParams))(hGraphExec, hNode, nodeParams);
}
static inline CUresult real_cuGraphExecKernelNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphExecKernelNodeSetParams))(hGraphExec, hNode, nodeParams);
}
static inline CUresult real_cuGraphExecKernelNodeSetParams_v2(void *hGraphExec, void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphExecKernelNodeSetParams_v2))(hGraphExec, hNode, nodeParams);
}
static inline CUresult real_cuGraphExecMemcpyNodeSetParams(void *hGraphExec, void *hNode, void *copyParams, void *ctx)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *copyParams, void *ctx))hf_fn(HF_SYM_cuGraphExecMemcpyNodeSetParams))(hGraphExec, hNode, copyParams, ctx);
}
static inline CUresult real_cuGraphExecMemsetNodeSetParams(void *hGraphExec, void *hNode, void *memsetParams, void *ctx)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *memsetParams, void *ctx))hf_fn(HF_SYM_cuGraphExecMemsetNodeSetParams))(hGraphExec, hNode, memsetParams, ctx);
}
static inline CUresult real_cuGraphExecNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphExecNodeSetParams))(hGraphExec, hNode, nodeParams);
}
static inline CUresult real_cuGraphExecUpdate(void *hGraphExec, void *hGraph, void *hErrorNode_out, void *updateResult_out)
{
	return ((CUresult (*)(void *hGraphExec, void *hGraph, void *hErrorNode_out, void *updateResult_out))hf_fn(HF_SYM_cuGraphExecUpdate))(hGraphExec, hGraph, hErrorNode_out, updateResult_out);
}
static inline CUresult real_cuGraphExecUpdate_v2(void *hGraphExec, void *hGraph, void *resultInfo)
{
	return ((CUresult (*)(void *hGraphExec, void *hGraph, void *resultInfo))hf_fn(HF_SYM_cuGraphExecUpdate_v2))(hGraphExec, hGraph, resultInfo);
}
static inline CUresult real_cuGraphExternalSemaphoresSignalNodeGetParams(void *hNode, void *params_out)
{
	return ((CUresult (*)(void *hNode, void *params_out))hf_fn(HF_SYM_cuGraphExternalSemaphoresSignalNodeGetParams))(hNode, params_out);
}
static inline CUresult real_cuGraphExternalSemaphoresSignalNodeSetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphExternalSemaphoresSignalNodeSetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphExternalSemaphoresWaitNodeGetParams(void *hNode, void *params_out)
{
	return ((CUresult (*)(void *hNode, void *params_out))hf_fn(HF_SYM_cuGraphExternalSemaphoresWaitNodeGetParams))(hNode, params_out);
}
static inline CUresult real_cuGraphExternalSemaphoresWaitNodeSetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphExternalSemaphoresWaitNodeSetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphGetEdges(void *hGraph, void *from, void *to, void *numEdges)
{
	return ((CUresult (*)(void *hGraph, void *from, void *to, void *numEdges))hf_fn(HF_SYM_cuGraphGetEdges))(hGraph, from, to, numEdges);
}
static inline CUresult real_cuGraphGetEdges_v2(void *hGraph, void *from, void *to, void *edgeData, void *numEdges)
{
	return ((CUresult (*)(void *hGraph, void *from, void *to, void *edgeData, void *numEdges))hf_fn(HF_SYM_cuGraphGetEdges_v2))(hGraph, from, to, edgeData, numEdges);
}
static inline CUresult real_cuGraphGetNodes(void *hGraph, void *nodes, void *numNodes)
{
	return ((CUresult (*)(void *hGraph, void *nodes, void *numNodes))hf_fn(HF_SYM_cuGraphGetNodes))(hGraph, nodes, numNodes);
}
static inline CUresult real_cuGraphGetRootNodes(void *hGraph, void *rootNodes, void *numRootNodes)
{
	return ((CUresult (*)(void *hGraph, void *rootNodes, void *numRootNodes))hf_fn(HF_SYM_cuGraphGetRootNodes))(hGraph, rootNodes, numRootNodes);
}
static inline CUresult real_cuGraphHostNodeGetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphHostNodeGetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphHostNodeSetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphHostNodeSetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphInstantiate(void *phGraphExec, void *hGraph, void *phErrorNode, void *logBuffer, size_t bufferSize)
{
	return ((CUresult (*)(void *phGraphExec, void *hGraph, void *phErrorNode, void *logBuffer, size_t bufferSize))hf_fn(HF_SYM_cuGraphInstantiate))(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
static inline CUresult real_cuGraphInstantiateWithFlags(void *phGraphExec, void *hGraph, unsigned long long flags)
{
	return ((CUresult (*)(void *phGraphExec, void *hGraph, unsigned long long flags))hf_fn(HF_SYM_cuGraphInstantiateWithFlags))(phGraphExec, hGraph, flags);
}
static inline CUresult real_cuGraphInstantiateWithParams(void *phGraphExec, void *hGraph, void *instantiateParams)
{
	return ((CUresult (*)(void *phGraphExec, void *hGraph, void *instantiateParams))hf_fn(HF_SYM_cuGraphInstantiateWithParams))(phGraphExec, hGraph, instantiateParams);
}
static inline CUresult real_cuGraphInstantiateWithParams_ptsz(void *phGraphExec, void *hGraph, void *instantiateParams)
{
	return ((CUresult (*)(void *phGraphExec, void *hGraph, void *instantiateParams))hf_fn(HF_SYM_cuGraphInstantiateWithParams_ptsz))(phGraphExec, hGraph, instantiateParams);
}
static inline CUresult real_cuGraphInstantiate_v2(void *phGraphExec, void *hGraph, void *phErrorNode, void *logBuffer, size_t bufferSize)
{
	return ((CUresult (*)(void *phGraphExec, void *hGraph, void *phErrorNode, void *logBuffer, size_t bufferSize))hf_fn(HF_SYM_cuGraphInstantiate_v2))(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
static inline CUresult real_cuGraphKernelNodeCopyAttributes(void *dst, void *src)
{
	return ((CUresult (*)(void *dst, void *src))hf_fn(HF_SYM_cuGraphKernelNodeCopyAttributes))(dst, src);
}
static inline CUresult real_cuGraphKernelNodeGetAttribute(void *hNode, int attr, void *value_out)
{
	return ((CUresult (*)(void *hNode, int attr, void *value_out))hf_fn(HF_SYM_cuGraphKernelNodeGetAttribute))(hNode, attr, value_out);
}
static inline CUresult real_cuGraphKernelNodeGetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphKernelNodeGetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphKernelNodeGetParams_v2(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphKernelNodeGetParams_v2))(hNode, nodeParams);
}
static inline CUresult real_cuGraphKernelNodeSetAttribute(void *hNode, int attr, void *value)
{
	return ((CUresult (*)(void *hNode, int attr, void *value))hf_fn(HF_SYM_cuGraphKernelNodeSetAttribute))(hNode, attr, value);
}
static inline CUresult real_cuGraphKernelNodeSetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphKernelNodeSetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphKernelNodeSetParams_v2(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphKernelNodeSetParams_v2))(hNode, nodeParams);
}
static inline CUresult real_cuGraphLaunch(void *hGraphExec, void *hStream)
{
	return ((CUresult (*)(void *hGraphExec, void *hStream))hf_fn(HF_SYM_cuGraphLaunch))(hGraphExec, hStream);
}
static inline CUresult real_cuGraphLaunch_ptsz(void *hGraphExec, void *hStream)
{
	return ((CUresult (*)(void *hGraphExec, void *hStream))hf_fn(HF_SYM_cuGraphLaunch_ptsz))(hGraphExec, hStream);
}
static inline CUresult real_cuGraphMemAllocNodeGetParams(void *hNode, void *params_out)
{
	return ((CUresult (*)(void *hNode, void *params_out))hf_fn(HF_SYM_cuGraphMemAllocNodeGetParams))(hNode, params_out);
}
static inline CUresult real_cuGraphMemFreeNodeGetParams(void *hNode, void *dptr_out)
{
	return ((CUresult (*)(void *hNode, void *dptr_out))hf_fn(HF_SYM_cuGraphMemFreeNodeGetParams))(hNode, dptr_out);
}
static inline CUresult real_cuGraphMemcpyNodeGetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphMemcpyNodeGetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphMemcpyNodeSetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphMemcpyNodeSetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphMemsetNodeGetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphMemsetNodeGetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphMemsetNodeSetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphMemsetNodeSetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphNodeFindInClone(void *phNode, void *hOriginalNode, void *hClonedGraph)
{
	return ((CUresult (*)(void *phNode, void *hOriginalNode, void *hClonedGraph))hf_fn(HF_SYM_cuGraphNodeFindInClone))(phNode, hOriginalNode, hClonedGraph);
}
static inline CUresult real_cuGraphNodeGetDependencies(void *hNode, void *dependencies, void *numDependencies)
{
	return ((CUresult (*)(void *hNode, void *dependencies, void *numDependencies))hf_fn(HF_SYM_cuGraphNodeGetDependencies))(hNode, dependencies, numDependencies);
}
static inline CUresult real_cuGraphNodeGetDependencies_v2(void *hNode, void *dependencies, void *edgeData, void *numDependencies)
{
	return ((CUresult (*)(void *hNode, void *dependencies, void *edgeData, void *numDependencies))hf_fn(HF_SYM_cuGraphNodeGetDependencies_v2))(hNode, dependencies, edgeData, numDependencies);
}
static inline CUresult real_cuGraphNodeGetDependentNodes(void *hNode, void *dependentNodes, void *numDependentNodes)
{
	return ((CUresult (*)(void *hNode, void *dependentNodes, void *numDependentNodes))hf_fn(HF_SYM_cuGraphNodeGetDependentNodes))(hNode, dependentNodes, numDependentNodes);
}
static inline CUresult real_cuGraphNodeGetDependentNodes_v2(void *hNode, void *dependentNodes, void *edgeData, void *numDependentNodes)
{
	return ((CUresult (*)(void *hNode, void *dependentNodes, void *edgeData, void *numDependentNodes))hf_fn(HF_SYM_cuGraphNodeGetDependentNodes_v2))(hNode, dependentNodes, edgeData, numDependentNodes);
}
static inline CUresult real_cuGraphNodeGetEnabled(void *hGraphExec, void *hNode, void *isEnabled)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, void *isEnabled))hf_fn(HF_SYM_cuGraphNodeGetEnabled))(hGraphExec, hNode, isEnabled);
}
static inline CUresult real_cuGraphNodeGetType(void *hNode, void *type)
{
	return ((CUresult (*)(void *hNode, void *type))hf_fn(HF_SYM_cuGraphNodeGetType))(hNode, type);
}
static inline CUresult real_cuGraphNodeSetEnabled(void *hGraphExec, void *hNode, unsigned int isEnabled)
{
	return ((CUresult (*)(void *hGraphExec, void *hNode, unsigned int isEnabled))hf_fn(HF_SYM_cuGraphNodeSetEnabled))(hGraphExec, hNode, isEnabled);
}
static inline CUresult real_cuGraphNodeSetParams(void *hNode, void *nodeParams)
{
	return ((CUresult (*)(void *hNode, void *nodeParams))hf_fn(HF_SYM_cuGraphNodeSetParams))(hNode, nodeParams);
}
static inline CUresult real_cuGraphReleaseUserObject(void *graph, void *object, unsigned int count)
{
	return ((CUresult (*)(void *graph, void *object, unsigned int count))hf_fn(HF_SYM_cuGraphReleaseUserObject))(graph, object, count);
}
static inline CUresult real_cuGraphRemoveDependencies(void *hGraph, void *from, void *to, size_t numDependencies)
{
	return ((CUresult (*)(void *hGraph, void *from, void *to, size_t numDependencies))hf_fn(HF_SYM_cuGraphRemoveDependencies))(hGraph, from, to, numDependencies);
}
static inline CUresult real_cuGraphRemoveDependencies_v2(void *hGraph, void *from, void *to, void *edgeData, size_t numDependencies)
{
	return ((CUresult (*)(void *hGraph, void *from, void *to, void *edgeData, size_t numDependencies))hf_fn(HF_SYM_cuGraphRemoveDependencies_v2))(hGraph, from, to, edgeData, numDependencies);
}
static inline CUresult real_cuGraphRetainUserObject(void *graph, void *object, unsigned int count, unsigned int flags)
{
	return ((CUresult (*)(void *graph, void *object, unsigned int count, unsigned int flags))hf_fn(HF_SYM_cuGraphRetainUserObject))(graph, object, count, flags);
}
static inline CUresult real_cuGraphUpload(void *hGraphExec, void *hStream)
{
	return ((CUresult (*)(void *hGraphExec, void *hStream))hf_fn(HF_SYM_cuGraphUpload))(hGraphExec, hStream);
}
static inline CUresult real_cuGraphUpload_ptsz(void *hGraphExec, void *hStream)
{
	return ((CUresult (*)(void *hGraphExec, void *hStream))hf_fn(HF_SYM_cuGraphUpload_ptsz))(hGraphExec, hStream);
}
static inline CUresult real_cuGraphicsEGLRegisterImage(void *pCudaResource, void *image, unsigned int flags)
{
	return ((CUresult (*)(void *pCudaResource, void *image, unsigned int flags))hf_fn(HF_SYM_cuGraphicsEGLRegisterImage))(pCudaResource, image, flags);
}
static inline CUresult real_cuGraphicsGLRegisterBuffer(void *pCudaResource, unsigned int buffer, unsigned int Flags)
{
	return ((CUresult (*)(void *pCudaResource, unsigned int buffer, unsigned int Flags))hf_fn(HF_SYM_cuGraphicsGLRegisterBuffer))(pCudaResource, buffer, Flags);
}
static inline CUresult real_cuGraphicsGLRegisterImage(void *pCudaResource, unsigned int image, unsigned int target, unsigned int Flags)
{
	return ((CUresult (*)(void *pCudaResource, unsigned int image, unsigned int target, unsigned int Flags))hf_fn(HF_SYM_cuGraphicsGLRegisterImage))(pCudaResource, image, target, Flags);
}
static inline CUresult real_cuGraphicsMapResources(unsigned int count, void *resources, void *hStream)
{
	return ((CUresult (*)(unsigned int count, void *resources, void *hStream))hf_fn(HF_SYM_cuGraphicsMapResources))(count, resources, hStream);
}
static inline CUresult real_cuGraphicsMapResources_ptsz(unsigned int count, void *resources, void *hStream)
{
	return ((CUresult (*)(unsigned int count, void *resources, void *hStream))hf_fn(HF_SYM_cuGraphicsMapResources_ptsz))(count, resources, hStream);
}
static inline CUresult real_cuGraphicsResourceGetMappedEglFrame(void *eglFrame, void *resource, unsigned int index, unsigned int mipLevel)
{
	return ((CUresult (*)(void *eglFrame, void *resource, unsigned int index, unsigned int mipLevel))hf_fn(HF_SYM_cuGraphicsResourceGetMappedEglFrame))(eglFrame, resource, index, mipLevel);
}
static inline CUresult real_cuGraphicsResourceGetMappedMipmappedArray(void *pMipmappedArray, void *resource)
{
	return ((CUresult (*)(void *pMipmappedArray, void *resource))hf_fn(HF_SYM_cuGraphicsResourceGetMappedMipmappedArray))(pMipmappedArray, resource);
}
static inline CUresult real_cuGraphicsResourceGetMappedPointer_v2(void *pDevPtr, void *pSize, void *resource)
{
	return ((CUresult (*)(void *pDevPtr, void *pSize, void *resource))hf_fn(HF_SYM_cuGraphicsResourceGetMappedPointer_v2))(pDevPtr, pSize, resource);
}
static inline CUresult real_cuGraphicsResourceSetMapFlags(void *resource, unsigned int flags)
{
	return ((CUresult (*)(void *resource, unsigned int flags))hf_fn(HF_SYM_cuGraphicsResourceSetMapFlags))(resource, flags);
}
static inline CUresult real_cuGraphicsResourceSetMapFlags_v2(void *resource, unsigned int flags)
{
	return ((CUresult (*)(void *resource, unsigned int flags))hf_fn(HF_SYM_cuGraphicsResourceSetMapFlags_v2))(resource, flags);
}
static inline CUresult real_cuGraphicsSubResourceGetMappedArray(void *pArray, void *resource, unsigned int arrayIndex, unsigned int mipLevel)
{
	return ((CUresult (*)(void *pArray, void *resource, unsigned int arrayIndex, unsigned int mipLevel))hf_fn(HF_SYM_cuGraphicsSubResourceGetMappedArray))(pArray, resource, arrayIndex, mipLevel);
}
static inline CUresult real_cuGraphicsUnmapResources(unsigned int count, void *resources, void *hStream)
{
	return ((CUresult (*)(unsigned int count, void *resources, void *hStream))hf_fn(HF_SYM_cuGraphicsUnmapResources))(count, resources, hStream);
}
static inline CUresult real_cuGraphicsUnmapResources_ptsz(unsigned int count, void *resources, void *hStream)
{
	return ((CUresult (*)(unsigned int count, void *resources, void *hStream))hf_fn(HF_SYM_cuGraphicsUnmapResources_ptsz))(count, resources, hStream);
}
static inline CUresult real_cuGraphicsUnregisterResource(void *resource)
{
	return ((CUresult (*)(void *resource))hf_fn(HF_SYM_cuGraphicsUnregisterResource))(resource);
}
static inline CUresult real_cuGraphicsVDPAURegisterOutputSurface(void *pCudaResource, unsigned int vdpSurface, unsigned int flags)
{
	return ((CUresult (*)(void *pCudaResource, unsigned int vdpSurface, unsigned int flags))hf_fn(HF_SYM_cuGraphicsVDPAURegisterOutputSurface))(pCudaResource, vdpSurface, flags);
}
static inline CUresult real_cuGraphicsVDPAURegisterVideoSurface(void *pCudaResource, unsigned int vdpSurface, unsigned int flags)
{
	return ((CUresult (*)(void *pCudaResource, unsigned int vdpSurface, unsigned int flags))hf_fn(HF_SYM_cuGraphicsVDPAURegisterVideoSurface))(pCudaResource, vdpSurface, flags);
}
static inline CUresult real_cuGreenCtxCreate(void *phCtx, void *desc, int dev, unsigned int flags)
{
	return ((CUresult (*)(void *phCtx, void *desc, int dev, unsigned int flags))hf_fn(HF_SYM_cuGreenCtxCreate))(phCtx, desc, dev, flags);
}
static inline CUresult real_cuGreenCtxDestroy(void *hCtx)
{
	return ((CUresult (*)(void *hCtx))hf_fn(HF_SYM_cuGreenCtxDestroy))(hCtx);
}
static inline CUresult real_cuGreenCtxGetDevResource(void *hCtx, void *resource, int type)
{
	return ((CUresult (*)(void *hCtx, void *resource, int type))hf_fn(HF_SYM_cuGreenCtxGetDevResource))(hCtx, resource, type);
}
static inline CUresult real_cuGreenCtxGetId(void *greenCtx, void *greenCtxId)
{
	return ((CUresult (*)(void *greenCtx, void *greenCtxId))hf_fn(HF_SYM_cuGreenCtxGetId))(greenCtx, greenCtxId);
}
static inline CUresult real_cuGreenCtxRecordEvent(void *hCtx, void *hEvent)
{
	return ((CUresult (*)(void *hCtx, void *hEvent))hf_fn(HF_SYM_cuGreenCtxRecordEvent))(hCtx, hEvent);
}
static inline CUresult real_cuGreenCtxStreamCreate(void *phStream, void *greenCtx, unsigned int flags, int priority)
{
	return ((CUresult (*)(void *phStream, void *greenCtx, unsigned int flags, int priority))hf_fn(HF_SYM_cuGreenCtxStreamCreate))(phStream, greenCtx, flags, priority);
}
static inline CUresult real_cuGreenCtxWaitEvent(void *hCtx, void *hEvent)
{
	return ((CUresult (*)(void *hCtx, void *hEvent))hf_fn(HF_SYM_cuGreenCtxWaitEvent))(hCtx, hEvent);
}
static inline CUresult real_cuImportExternalMemory(void *extMem_out, void *memHandleDesc)
{
	return ((CUresult (*)(void *extMem_out, void *memHandleDesc))hf_fn(HF_SYM_cuImportExternalMemory))(extMem_out, memHandleDesc);
}
static inline CUresult real_cuImportExternalSemaphore(void *extSem_out, void *semHandleDesc)
{
	return ((CUresult (*)(void *extSem_out, void *semHandleDesc))hf_fn(HF_SYM_cuImportExternalSemaphore))(extSem_out, semHandleDesc);
}
static inline CUresult real_cuInit(unsigned int Flags)
{
	return ((CUresult (*)(unsigned int Flags))hf_fn(HF_SYM_cuInit))(Flags);
}
static inline CUresult real_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	return ((CUresult (*)(CUdeviceptr dptr))hf_fn(HF_SYM_cuIpcCloseMemHandle))(dptr);
}
static inline CUresult real_cuIpcGetEventHandle(void *pHandle, void *event)
{
	return ((CUresult (*)(void *pHandle, void *event))hf_fn(HF_SYM_cuIpcGetEventHandle))(pHandle, event);
}
static inline CUresult real_cuIpcGetMemHandle(void *pHandle, CUdeviceptr dptr)
{
	return ((CUresult (*)(void *pHandle, CUdeviceptr dptr))hf_fn(HF_SYM_cuIpcGetMemHandle))(pHandle, dptr);
}
static inline CUresult real_cuIpcOpenEventHandle(void *phEvent, CUipcEventHandle handle)
{
	return ((CUresult (*)(void *phEvent, CUipcEventHandle handle))hf_fn(HF_SYM_cuIpcOpenEventHandle))(phEvent, handle);
}
static inline CUresult real_cuIpcOpenMemHandle(void *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return ((CUresult (*)(void *pdptr, CUipcMemHandle handle, unsigned int Flags))hf_fn(HF_SYM_cuIpcOpenMemHandle))(pdptr, handle, Flags);
}
static inline CUresult real_cuIpcOpenMemHandle_v2(void *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return ((CUresult (*)(void *pdptr, CUipcMemHandle handle, unsigned int Flags))hf_fn(HF_SYM_cuIpcOpenMemHandle_v2))(pdptr, handle, Flags);
}
static inline CUresult real_cuKernelGetAttribute(void *pi, int attrib, void *kernel, int dev)
{
	return ((CUresult (*)(void *pi, int attrib, void *kernel, int dev))hf_fn(HF_SYM_cuKernelGetAttribute))(pi, attrib, kernel, dev);
}
static inline CUresult real_cuKernelGetFunction(void *pFunc, void *kernel)
{
	return ((CUresult (*)(void *pFunc, void *kernel))hf_fn(HF_SYM_cuKernelGetFunction))(pFunc, kernel);
}
static inline CUresult real_cuKernelGetLibrary(void *pLib, void *kernel)
{
	return ((CUresult (*)(void *pLib, void *kernel))hf_fn(HF_SYM_cuKernelGetLibrary))(pLib, kernel);
}
static inline CUresult real_cuKernelGetName(void *name, void *hfunc)
{
	return ((CUresult (*)(void *name, void *hfunc))hf_fn(HF_SYM_cuKernelGetName))(name, hfunc);
}
static inline CUresult real_cuKernelGetParamCount(void *kernel, void *paramCount)
{
	return ((CUresult (*)(void *kernel, void *paramCount))hf_fn(HF_SYM_cuKernelGetParamCount))(kernel, paramCount);
}
static inline CUresult real_cuKernelGetParamInfo(void *kernel, size_t paramIndex, void *paramOffset, void *paramSize)
{
	return ((CUresult (*)(void *kernel, size_t paramIndex, void *paramOffset, void *paramSize))hf_fn(HF_SYM_cuKernelGetParamInfo))(kernel, paramIndex, paramOffset, paramSize);
}
static inline CUresult real_cuKernelSetAttribute(int attrib, int val, void *kernel, int dev)
{
	return ((CUresult (*)(int attrib, int val, void *kernel, int dev))hf_fn(HF_SYM_cuKernelSetAttribute))(attrib, val, kernel, dev);
}
static inline CUresult real_cuKernelSetCacheConfig(void *kernel, int config, int dev)
{
	return ((CUresult (*)(void *kernel, int config, int dev))hf_fn(HF_SYM_cuKernelSetCacheConfig))(kernel, config, dev);
}
static inline CUresult real_cuLaunch(void *f)
{
	return ((CUresult (*)(void *f))hf_fn(HF_SYM_cuLaunch))(f);
}
static inline CUresult real_cuLaunchCooperativeKernel(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams)
{
	return ((CUresult (*)(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams))hf_fn(HF_SYM_cuLaunchCooperativeKernel))(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
}
static inline CUresult real_cuLaunchCooperativeKernelMultiDevice(void *launchParamsList, unsigned int numDevices, unsigned int flags)
{
	return ((CUresult (*)(void *launchParamsList, unsigned int numDevices, unsigned int flags))hf_fn(HF_SYM_cuLaunchCooperativeKernelMultiDevice))(launchParamsList, numDevices, flags);
}
static inline CUresult real_cuLaunchCooperativeKernel_ptsz(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams)
{
	return ((CUresult (*)(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams))hf_fn(HF_SYM_cuLaunchCooperativeKernel_ptsz))(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams);
}
static inline CUresult real_cuLaunchGrid(void *f, int grid_width, int grid_height)
{
	return ((CUresult (*)(void *f, int grid_width, int grid_height))hf_fn(HF_SYM_cuLaunchGrid))(f, grid_width, grid_height);
}
static inline CUresult real_cuLaunchGridAsync(void *f, int grid_width, int grid_height, void *hStream)
{
	return ((CUresult (*)(void *f, int grid_width, int grid_height, void *hStream))hf_fn(HF_SYM_cuLaunchGridAsync))(f, grid_width, grid_height, hStream);
}
static inline CUresult real_cuLaunchHostFunc(void *hStream, void *fn, void *userData)
{
	return ((CUresult (*)(void *hStream, void *fn, void *userData))hf_fn(HF_SYM_cuLaunchHostFunc))(hStream, fn, userData);
}
static inline CUresult real_cuLaunchHostFunc_ptsz(void *hStream, void *fn, void *userData)
{
	return ((CUresult (*)(void *hStream, void *fn, void *userData))hf_fn(HF_SYM_cuLaunchHostFunc_ptsz))(hStream, fn, userData);
}
static inline CUresult real_cuLaunchKernel(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams, void *extra)
{
	return ((CUresult (*)(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams, void *extra))hf_fn(HF_SYM_cuLaunchKernel))(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
}
static inline CUresult real_cuLaunchKernelEx(void *config, void *f, void *kernelParams, void *extra)
{
	return ((CUresult (*)(void *config, void *f, void *kernelParams, void *extra))hf_fn(HF_SYM_cuLaunchKernelEx))(config, f, kernelParams, extra);
}
static inline CUresult real_cuLaunchKernelEx_ptsz(void *config, void *f, void *kernelParams, void *extra)
{
	return ((CUresult (*)(void *config, void *f, void *kernelParams, void *extra))hf_fn(HF_SYM_cuLaunchKernelEx_ptsz))(config, f, kernelParams, extra);
}
static inline CUresult real_cuLaunchKernel_ptsz(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams, void *extra)
{
	return ((CUresult (*)(void *f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, void *hStream, void *kernelParams, void *extra))hf_fn(HF_SYM_cuLaunchKernel_ptsz))(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
}
static inline CUresult real_cuLibraryEnumerateKernels(void *kernels, unsigned int numKernels, void *lib)
{
	return ((CUresult (*)(void *kernels, unsigned int numKernels, void *lib))hf_fn(HF_SYM_cuLibraryEnumerateKernels))(kernels, numKernels, lib);
}
static inline CUresult real_cuLibraryGetGlobal(void *dptr, void *bytes, void *library, void *name)
{
	return ((CUresult (*)(void *dptr, void *bytes, void *library, void *name))hf_fn(HF_SYM_cuLibraryGetGlobal))(dptr, bytes, library, name);
}
static inline CUresult real_cuLibraryGetKernel(void *pKernel, void *library, void *name)
{
	return ((CUresult (*)(void *pKernel, void *library, void *name))hf_fn(HF_SYM_cuLibraryGetKernel))(pKernel, library, name);
}
static inline CUresult real_cuLibraryGetKernelCount(void *count, void *lib)
{
	return ((CUresult (*)(void *count, void *lib))hf_fn(HF_SYM_cuLibraryGetKernelCount))(count, lib);
}
static inline CUresult real_cuLibraryGetManaged(void *dptr, void *bytes, void *library, void *name)
{
	return ((CUresult (*)(void *dptr, void *bytes, void *library, void *name))hf_fn(HF_SYM_cuLibraryGetManaged))(dptr, bytes, library, name);
}
static inline CUresult real_cuLibraryGetModule(void *pMod, void *library)
{
	return ((CUresult (*)(void *pMod, void *library))hf_fn(HF_SYM_cuLibraryGetModule))(pMod, library);
}
static inline CUresult real_cuLibraryGetUnifiedFunction(void *fptr, void *library, void *symbol)
{
	return ((CUresult (*)(void *fptr, void *library, void *symbol))hf_fn(HF_SYM_cuLibraryGetUnifiedFunction))(fptr, library, symbol);
}
static inline CUresult real_cuLibraryLoadData(void *library, void *code, void *jitOptions, void *jitOptionsValues, unsigned int numJitOptions, void *libraryOptions, void *libraryOptionValues, unsigned int numLibraryOptions)
{
	return ((CUresult (*)(void *library, void *code, void *jitOptions, void *jitOptionsValues, unsigned int numJitOptions, void *libraryOptions, void *libraryOptionValues, unsigned int numLibraryOptions))hf_fn(HF_SYM_cuLibraryLoadData))(library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues, numLibraryOptions);
}
static inline CUresult real_cuLibraryLoadFromFile(void *library, void *fileName, void *jitOptions, void *jitOptionsValues, unsigned int numJitOptions, void *libraryOptions, void *libraryOptionValues, unsigned int numLibraryOptions)
{
	return ((CUresult (*)(void *library, void *fileName, void *jitOptions, void *jitOptionsValues, unsigned int numJitOptions, void *libraryOptions, void *libraryOptionValues, unsigned int numLibraryOptions))hf_fn(HF_SYM_cuLibraryLoadFromFile))(library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues, numLibraryOptions);
}
static inline CUresult real_cuLibraryUnload(void *library)
{
	return ((CUresult (*)(void *library))hf_fn(HF_SYM_cuLibraryUnload))(library);
}
static inline CUresult real_cuLinkAddData(void *state, int type, void *data, size_t size, void *name, unsigned int numOptions, void *options, void *optionValues)
{
	return ((CUresult (*)(void *state, int type, void *data, size_t size, void *name, unsigned int numOptions, void *options, void *optionValues))hf_fn(HF_SYM_cuLinkAddData))(state, type, data, size, name, numOptions, options, optionValues);
}
static inline CUresult real_cuLinkAddData_v2(void *state, int type, void *data, size_t size, void *name, unsigned int numOptions, void *options, void *optionValues)
{
	return ((CUresult (*)(void *state, int type, void *data, size_t size, void *name, unsigned int numOptions, void *options, void *optionValues))hf_fn(HF_SYM_cuLinkAddData_v2))(state, type, data, size, name, numOptions, options, optionValues);
}
static inline CUresult real_cuLinkAddFile(void *state, int type, void *path, unsigned int numOptions, void *options, void *optionValues)
{
	return ((CUresult (*)(void *state, int type, void *path, unsigned int numOptions, void *options, void *optionValues))hf_fn(HF_SYM_cuLinkAddFile))(state, type, path, numOptions, options, optionValues);
}
static inline CUresult real_cuLinkAddFile_v2(void *state, int type, void *path, unsigned int numOptions, void *options, void *optionValues)
{
	return ((CUresult (*)(void *state, int type, void *path, unsigned int numOptions, void *options, void *optionValues))hf_fn(HF_SYM_cuLinkAddFile_v2))(state, type, path, numOptions, options, optionValues);
}
static inline CUresult real_cuLinkComplete(void *state, void *cubinOut, void *sizeOut)
{
	return ((CUresult (*)(void *state, void *cubinOut, void *sizeOut))hf_fn(HF_SYM_cuLinkComplete))(state, cubinOut, sizeOut);
}
static inline CUresult real_cuLinkCreate(unsigned int numOptions, void *options, void *optionValues, void *stateOut)
{
	return ((CUresult (*)(unsigned int numOptions, void *options, void *optionValues, void *stateOut))hf_fn(HF_SYM_cuLinkCreate))(numOptions, options, optionValues, stateOut);
}
static inline CUresult real_cuLinkCreate_v2(unsigned int numOptions, void *options, void *optionValues, void *stateOut)
{
	return ((CUresult (*)(unsigned int numOptions, void *options, void *optionValues, void *stateOut))hf_fn(HF_SYM_cuLinkCreate_v2))(numOptions, options, optionValues, stateOut);
}
static inline CUresult real_cuLinkDestroy(void *state)
{
	return ((CUresult (*)(void *state))hf_fn(HF_SYM_cuLinkDestroy))(state);
}
static inline CUresult real_cuLogsCurrent(void *iterator_out, unsigned int flags)
{
	return ((CUresult (*)(void *iterator_out, unsigned int flags))hf_fn(HF_SYM_cuLogsCurrent))(iterator_out, flags);
}
static inline CUresult real_cuLogsDumpToFile(void *iterator, void *pathToFile, unsigned int flags)
{
	return ((CUresult (*)(void *iterator, void *pathToFile, unsigned int flags))hf_fn(HF_SYM_cuLogsDumpToFile))(iterator, pathToFile, flags);
}
static inline CUresult real_cuLogsDumpToMemory(void *iterator, void *buffer, void *size, unsigned int flags)
{
	return ((CUresult (*)(void *iterator, void *buffer, void *size, unsigned int flags))hf_fn(HF_SYM_cuLogsDumpToMemory))(iterator, buffer, size, flags);
}
static inline CUresult real_cuLogsRegisterCallback(void *callbackFunc, void *userData, void *callback_out)
{
	return ((CUresult (*)(void *callbackFunc, void *userData, void *callback_out))hf_fn(HF_SYM_cuLogsRegisterCallback))(callbackFunc, userData, callback_out);
}
static inline CUresult real_cuLogsUnregisterCallback(void *callback)
{
	return ((CUresult (*)(void *callback))hf_fn(HF_SYM_cuLogsUnregisterCallback))(callback);
}
static inline CUresult real_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	return ((CUresult (*)(CUdeviceptr ptr, size_t size))hf_fn(HF_SYM_cuMemAddressFree))(ptr, size);
}
static inline CUresult real_cuMemAddressReserve(void *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
	return ((CUresult (*)(void *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags))hf_fn(HF_SYM_cuMemAddressReserve))(ptr, size, alignment, addr, flags);
}
static inline CUresult real_cuMemAdvise(CUdeviceptr devPtr, size_t count, int advice, int device)
{
	return ((CUresult (*)(CUdeviceptr devPtr, size_t count, int advice, int device))hf_fn(HF_SYM_cuMemAdvise))(devPtr, count, advice, device);
}
static inline CUresult real_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, int advice, CUmemLocation location)
{
	return ((CUresult (*)(CUdeviceptr devPtr, size_t count, int advice, CUmemLocation location))hf_fn(HF_SYM_cuMemAdvise_v2))(devPtr, count, advice, location);
}
static inline CUresult real_cuMemAllocAsync(void *dptr, size_t bytesize, void *hStream)
{
	return ((CUresult (*)(void *dptr, size_t bytesize, void *hStream))hf_fn(HF_SYM_cuMemAllocAsync))(dptr, bytesize, hStream);
}
static inline CUresult real_cuMemAllocAsync_ptsz(void *dptr, size_t bytesize, void *hStream)
{
	return ((CUresult (*)(void *dptr, size_t bytesize, void *hStream))hf_fn(HF_SYM_cuMemAllocAsync_ptsz))(dptr, bytesize, hStream);
}
static inline CUresult real_cuMemAllocFromPoolAsync(void *dptr, size_t bytesize, void *pool, void *hStream)
{
	return ((CUresult (*)(void *dptr, size_t bytesize, void *pool, void *hStream))hf_fn(HF_SYM_cuMemAllocFromPoolAsync))(dptr, bytesize, pool, hStream);
}
static inline CUresult real_cuMemAllocFromPoolAsync_ptsz(void *dptr, size_t bytesize, void *pool, void *hStream)
{
	return ((CUresult (*)(void *dptr, size_t bytesize, void *pool, void *hStream))hf_fn(HF_SYM_cuMemAllocFromPoolAsync_ptsz))(dptr, bytesize, pool, hStream);
}
static inline CUresult real_cuMemAllocHost_v2(void *pp, size_t bytesize)
{
	return ((CUresult (*)(void *pp, size_t bytesize))hf_fn(HF_SYM_cuMemAllocHost_v2))(pp, bytesize);
}
static inline CUresult real_cuMemAllocManaged(void *dptr, size_t bytesize, unsigned int flags)
{
	return ((CUresult (*)(void *dptr, size_t bytesize, unsigned int flags))hf_fn(HF_SYM_cuMemAllocManaged))(dptr, bytesize, flags);
}
static inline CUresult real_cuMemAllocPitch_v2(void *dptr, void *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes)
{
	return ((CUresult (*)(void *dptr, void *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes))hf_fn(HF_SYM_cuMemAllocPitch_v2))(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
}
static inline CUresult real_cuMemAlloc_v2(void *dptr, size_t bytesize)
{
	return ((CUresult (*)(void *dptr, size_t bytesize))hf_fn(HF_SYM_cuMemAlloc_v2))(dptr, bytesize);
}
static inline CUresult real_cuMemBatchDecompressAsync(void *paramsArray, size_t count, unsigned int flags, void *errorIndex, void *stream)
{
	return ((CUresult (*)(void *paramsArray, size_t count, unsigned int flags, void *errorIndex, void *stream))hf_fn(HF_SYM_cuMemBatchDecompressAsync))(paramsArray, count, flags, errorIndex, stream);
}
static inline CUresult real_cuMemBatchDecompressAsync_ptsz(void *paramsArray, size_t count, unsigned int flags, void *errorIndex, void *stream)
{
	return ((CUresult (*)(void *paramsArray, size_t count, unsigned int flags, void *errorIndex, void *stream))hf_fn(HF_SYM_cuMemBatchDecompressAsync_ptsz))(paramsArray, count, flags, errorIndex, stream);
}
static inline CUresult real_cuMemCreate(void *handle, size_t size, void *prop, unsigned long long flags)
{
	return ((CUresult (*)(void *handle, size_t size, void *prop, unsigned long long flags))hf_fn(HF_SYM_cuMemCreate))(handle, size, prop, flags);
}
static inline CUresult real_cuMemDiscardAndPrefetchBatchAsync(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream)
{
	return ((CUresult (*)(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream))hf_fn(HF_SYM_cuMemDiscardAndPrefetchBatchAsync))(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
static inline CUresult real_cuMemDiscardAndPrefetchBatchAsync_ptsz(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream)
{
	return ((CUresult (*)(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream))hf_fn(HF_SYM_cuMemDiscardAndPrefetchBatchAsync_ptsz))(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
static inline CUresult real_cuMemDiscardBatchAsync(void *dptrs, void *sizes, size_t count, unsigned long long flags, void *hStream)
{
	return ((CUresult (*)(void *dptrs, void *sizes, size_t count, unsigned long long flags, void *hStream))hf_fn(HF_SYM_cuMemDiscardBatchAsync))(dptrs, sizes, count, flags, hStream);
}
static inline CUresult real_cuMemDiscardBatchAsync_ptsz(void *dptrs, void *sizes, size_t count, unsigned long long flags, void *hStream)
{
	return ((CUresult (*)(void *dptrs, void *sizes, size_t count, unsigned long long flags, void *hStream))hf_fn(HF_SYM_cuMemDiscardBatchAsync_ptsz))(dptrs, sizes, count, flags, hStream);
}
static inline CUresult real_cuMemExportToShareableHandle(void *shareableHandle, CUhandle handle, int handleType, unsigned long long flags)
{
	return ((CUresult (*)(void *shareableHandle, CUhandle handle, int handleType, unsigned long long flags))hf_fn(HF_SYM_cuMemExportToShareableHandle))(shareableHandle, handle, handleType, flags);
}
static inline CUresult real_cuMemFreeAsync(CUdeviceptr dptr, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dptr, void *hStream))hf_fn(HF_SYM_cuMemFreeAsync))(dptr, hStream);
}
static inline CUresult real_cuMemFreeAsync_ptsz(CUdeviceptr dptr, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dptr, void *hStream))hf_fn(HF_SYM_cuMemFreeAsync_ptsz))(dptr, hStream);
}
static inline CUresult real_cuMemFreeHost(void *p)
{
	return ((CUresult (*)(void *p))hf_fn(HF_SYM_cuMemFreeHost))(p);
}
static inline CUresult real_cuMemFree_v2(CUdeviceptr dptr)
{
	return ((CUresult (*)(CUdeviceptr dptr))hf_fn(HF_SYM_cuMemFree_v2))(dptr);
}
static inline CUresult real_cuMemGetAccess(void *flags, void *location, CUdeviceptr ptr)
{
	return ((CUresult (*)(void *flags, void *location, CUdeviceptr ptr))hf_fn(HF_SYM_cuMemGetAccess))(flags, location, ptr);
}
static inline CUresult real_cuMemGetAddressRange_v2(void *pbase, void *psize, CUdeviceptr dptr)
{
	return ((CUresult (*)(void *pbase, void *psize, CUdeviceptr dptr))hf_fn(HF_SYM_cuMemGetAddressRange_v2))(pbase, psize, dptr);
}
static inline CUresult real_cuMemGetAllocationGranularity(void *granularity, void *prop, int option)
{
	return ((CUresult (*)(void *granularity, void *prop, int option))hf_fn(HF_SYM_cuMemGetAllocationGranularity))(granularity, prop, option);
}
static inline CUresult real_cuMemGetAllocationPropertiesFromHandle(void *prop, CUhandle handle)
{
	return ((CUresult (*)(void *prop, CUhandle handle))hf_fn(HF_SYM_cuMemGetAllocationPropertiesFromHandle))(prop, handle);
}
static inline CUresult real_cuMemGetDefaultMemPool(void *pool_out, void *location, int type)
{
	return ((CUresult (*)(void *pool_out, void *location, int type))hf_fn(HF_SYM_cuMemGetDefaultMemPool))(pool_out, location, type);
}
static inline CUresult real_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, int handleType, unsigned long long flags)
{
	return ((CUresult (*)(void *handle, CUdeviceptr dptr, size_t size, int handleType, unsigned long long flags))hf_fn(HF_SYM_cuMemGetHandleForAddressRange))(handle, dptr, size, handleType, flags);
}
static inline CUresult real_cuMemGetInfo_v2(void *free, void *total)
{
	return ((CUresult (*)(void *free, void *total))hf_fn(HF_SYM_cuMemGetInfo_v2))(free, total);
}
static inline CUresult real_cuMemGetMemPool(void *pool, void *location, int type)
{
	return ((CUresult (*)(void *pool, void *location, int type))hf_fn(HF_SYM_cuMemGetMemPool))(pool, location, type);
}
static inline CUresult real_cuMemHostAlloc(void *pp, size_t bytesize, unsigned int Flags)
{
	return ((CUresult (*)(void *pp, size_t bytesize, unsigned int Flags))hf_fn(HF_SYM_cuMemHostAlloc))(pp, bytesize, Flags);
}
static inline CUresult real_cuMemHostGetDevicePointer_v2(void *pdptr, void *p, unsigned int Flags)
{
	return ((CUresult (*)(void *pdptr, void *p, unsigned int Flags))hf_fn(HF_SYM_cuMemHostGetDevicePointer_v2))(pdptr, p, Flags);
}
static inline CUresult real_cuMemHostGetFlags(void *pFlags, void *p)
{
	return ((CUresult (*)(void *pFlags, void *p))hf_fn(HF_SYM_cuMemHostGetFlags))(pFlags, p);
}
static inline CUresult real_cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return ((CUresult (*)(void *p, size_t bytesize, unsigned int Flags))hf_fn(HF_SYM_cuMemHostRegister))(p, bytesize, Flags);
}
static inline CUresult real_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	return ((CUresult (*)(void *p, size_t bytesize, unsigned int Flags))hf_fn(HF_SYM_cuMemHostRegister_v2))(p, bytesize, Flags);
}
static inline CUresult real_cuMemHostUnregister(void *p)
{
	return ((CUresult (*)(void *p))hf_fn(HF_SYM_cuMemHostUnregister))(p);
}
static inline CUresult real_cuMemImportFromShareableHandle(void *handle, void *osHandle, int shHandleType)
{
	return ((CUresult (*)(void *handle, void *osHandle, int shHandleType))hf_fn(HF_SYM_cuMemImportFromShareableHandle))(handle, osHandle, shHandleType);
}
static inline CUresult real_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUhandle handle, unsigned long long flags)
{
	return ((CUresult (*)(CUdeviceptr ptr, size_t size, size_t offset, CUhandle handle, unsigned long long flags))hf_fn(HF_SYM_cuMemMap))(ptr, size, offset, handle, flags);
}
static inline CUresult real_cuMemMapArrayAsync(void *mapInfoList, unsigned int count, void *hStream)
{
	return ((CUresult (*)(void *mapInfoList, unsigned int count, void *hStream))hf_fn(HF_SYM_cuMemMapArrayAsync))(mapInfoList, count, hStream);
}
static inline CUresult real_cuMemMapArrayAsync_ptsz(void *mapInfoList, unsigned int count, void *hStream)
{
	return ((CUresult (*)(void *mapInfoList, unsigned int count, void *hStream))hf_fn(HF_SYM_cuMemMapArrayAsync_ptsz))(mapInfoList, count, hStream);
}
static inline CUresult real_cuMemPoolCreate(void *pool, void *poolProps)
{
	return ((CUresult (*)(void *pool, void *poolProps))hf_fn(HF_SYM_cuMemPoolCreate))(pool, poolProps);
}
static inline CUresult real_cuMemPoolDestroy(void *pool)
{
	return ((CUresult (*)(void *pool))hf_fn(HF_SYM_cuMemPoolDestroy))(pool);
}
static inline CUresult real_cuMemPoolExportPointer(void *shareData_out, CUdeviceptr ptr)
{
	return ((CUresult (*)(void *shareData_out, CUdeviceptr ptr))hf_fn(HF_SYM_cuMemPoolExportPointer))(shareData_out, ptr);
}
static inline CUresult real_cuMemPoolExportToShareableHandle(void *handle_out, void *pool, int handleType, unsigned long long flags)
{
	return ((CUresult (*)(void *handle_out, void *pool, int handleType, unsigned long long flags))hf_fn(HF_SYM_cuMemPoolExportToShareableHandle))(handle_out, pool, handleType, flags);
}
static inline CUresult real_cuMemPoolGetAccess(void *flags, void *memPool, void *location)
{
	return ((CUresult (*)(void *flags, void *memPool, void *location))hf_fn(HF_SYM_cuMemPoolGetAccess))(flags, memPool, location);
}
static inline CUresult real_cuMemPoolGetAttribute(void *pool, int attr, void *value)
{
	return ((CUresult (*)(void *pool, int attr, void *value))hf_fn(HF_SYM_cuMemPoolGetAttribute))(pool, attr, value);
}
static inline CUresult real_cuMemPoolImportFromShareableHandle(void *pool_out, void *handle, int handleType, unsigned long long flags)
{
	return ((CUresult (*)(void *pool_out, void *handle, int handleType, unsigned long long flags))hf_fn(HF_SYM_cuMemPoolImportFromShareableHandle))(pool_out, handle, handleType, flags);
}
static inline CUresult real_cuMemPoolImportPointer(void *ptr_out, void *pool, void *shareData)
{
	return ((CUresult (*)(void *ptr_out, void *pool, void *shareData))hf_fn(HF_SYM_cuMemPoolImportPointer))(ptr_out, pool, shareData);
}
static inline CUresult real_cuMemPoolSetAccess(void *pool, void *map, size_t count)
{
	return ((CUresult (*)(void *pool, void *map, size_t count))hf_fn(HF_SYM_cuMemPoolSetAccess))(pool, map, count);
}
static inline CUresult real_cuMemPoolSetAttribute(void *pool, int attr, void *value)
{
	return ((CUresult (*)(void *pool, int attr, void *value))hf_fn(HF_SYM_cuMemPoolSetAttribute))(pool, attr, value);
}
static inline CUresult real_cuMemPoolTrimTo(void *pool, size_t minBytesToKeep)
{
	return ((CUresult (*)(void *pool, size_t minBytesToKeep))hf_fn(HF_SYM_cuMemPoolTrimTo))(pool, minBytesToKeep);
}
static inline CUresult real_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, int dstDevice, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr devPtr, size_t count, int dstDevice, void *hStream))hf_fn(HF_SYM_cuMemPrefetchAsync))(devPtr, count, dstDevice, hStream);
}
static inline CUresult real_cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, int dstDevice, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr devPtr, size_t count, int dstDevice, void *hStream))hf_fn(HF_SYM_cuMemPrefetchAsync_ptsz))(devPtr, count, dstDevice, hStream);
}
static inline CUresult real_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, void *hStream))hf_fn(HF_SYM_cuMemPrefetchAsync_v2))(devPtr, count, location, flags, hStream);
}
static inline CUresult real_cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, void *hStream))hf_fn(HF_SYM_cuMemPrefetchAsync_v2_ptsz))(devPtr, count, location, flags, hStream);
}
static inline CUresult real_cuMemPrefetchBatchAsync(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream)
{
	return ((CUresult (*)(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream))hf_fn(HF_SYM_cuMemPrefetchBatchAsync))(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
static inline CUresult real_cuMemPrefetchBatchAsync_ptsz(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream)
{
	return ((CUresult (*)(void *dptrs, void *sizes, size_t count, void *prefetchLocs, void *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, void *hStream))hf_fn(HF_SYM_cuMemPrefetchBatchAsync_ptsz))(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
static inline CUresult real_cuMemRangeGetAttribute(void *data, size_t dataSize, int attribute, CUdeviceptr devPtr, size_t count)
{
	return ((CUresult (*)(void *data, size_t dataSize, int attribute, CUdeviceptr devPtr, size_t count))hf_fn(HF_SYM_cuMemRangeGetAttribute))(data, dataSize, attribute, devPtr, count);
}
static inline CUresult real_cuMemRangeGetAttributes(void *data, void *dataSizes, void *attributes, size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
	return ((CUresult (*)(void *data, void *dataSizes, void *attributes, size_t numAttributes, CUdeviceptr devPtr, size_t count))hf_fn(HF_SYM_cuMemRangeGetAttributes))(data, dataSizes, attributes, numAttributes, devPtr, count);
}
static inline CUresult real_cuMemRelease(CUhandle handle)
{
	return ((CUresult (*)(CUhandle handle))hf_fn(HF_SYM_cuMemRelease))(handle);
}
static inline CUresult real_cuMemRetainAllocationHandle(void *handle, void *addr)
{
	return ((CUresult (*)(void *handle, void *addr))hf_fn(HF_SYM_cuMemRetainAllocationHandle))(handle, addr);
}
static inline CUresult real_cuMemSetAccess(CUdeviceptr ptr, size_t size, void *desc, size_t count)
{
	return ((CUresult (*)(CUdeviceptr ptr, size_t size, void *desc, size_t count))hf_fn(HF_SYM_cuMemSetAccess))(ptr, size, desc, count);
}
static inline CUresult real_cuMemSetMemPool(void *location, int type, void *pool)
{
	return ((CUresult (*)(void *location, int type, void *pool))hf_fn(HF_SYM_cuMemSetMemPool))(location, type, pool);
}
static inline CUresult real_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	return ((CUresult (*)(CUdeviceptr ptr, size_t size))hf_fn(HF_SYM_cuMemUnmap))(ptr, size);
}
static inline CUresult real_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return ((CUresult (*)(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount))hf_fn(HF_SYM_cuMemcpy))(dst, src, ByteCount);
}
static inline CUresult real_cuMemcpy2DAsync_v2(void *pCopy, void *hStream)
{
	return ((CUresult (*)(void *pCopy, void *hStream))hf_fn(HF_SYM_cuMemcpy2DAsync_v2))(pCopy, hStream);
}
static inline CUresult real_cuMemcpy2DAsync_v2_ptsz(void *pCopy, void *hStream)
{
	return ((CUresult (*)(void *pCopy, void *hStream))hf_fn(HF_SYM_cuMemcpy2DAsync_v2_ptsz))(pCopy, hStream);
}
static inline CUresult real_cuMemcpy2DUnaligned_v2(void *pCopy)
{
	return ((CUresult (*)(void *pCopy))hf_fn(HF_SYM_cuMemcpy2DUnaligned_v2))(pCopy);
}
static inline CUresult real_cuMemcpy2DUnaligned_v2_ptds(void *pCopy)
{
	return ((CUresult (*)(void *pCopy))hf_fn(HF_SYM_cuMemcpy2DUnaligned_v2_ptds))(pCopy);
}
static inline CUresult real_cuMemcpy2D_v2(void *pCopy)
{
	return ((CUresult (*)(void *pCopy))hf_fn(HF_SYM_cuMemcpy2D_v2))(pCopy);
}
static inline CUresult real_cuMemcpy2D_v2_ptds(void *pCopy)
{
	return ((CUresult (*)(void *pCopy))hf_fn(HF_SYM_cuMemcpy2D_v2_ptds))(pCopy);
}
static inline CUresult real_cuMemcpy3DAsync_v2(void *pCopy, void *hStream)
{
	return ((CUresult (*)(void *pCopy, void *hStream))hf_fn(HF_SYM_cuMemcpy3DAsync_v2))(pCopy, hStream);
}
static inline CUresult real_cuMemcpy3DAsync_v2_ptsz(void *pCopy, void *hStream)
{
	return ((CUresult (*)(void *pCopy, void *hStream))hf_fn(HF_SYM_cuMemcpy3DAsync_v2_ptsz))(pCopy, hStream);
}
static inline CUresult real_cuMemcpy3DBatchAsync(size_t numOps, void *opList, void *failIdx, unsigned long long flags, void *hStream)
{
	return ((CUresult (*)(size_t numOps, void *opList, void *failIdx, unsigned long long flags, void *hStream))hf_fn(HF_SYM_cuMemcpy3DBatchAsync))(numOps, opList, failIdx, flags, hStream);
}
static inline CUresult real_cuMemcpy3DBatchAsync_ptsz(size_t numOps, void *opList, void *failIdx, unsigned long long flags, void *hStream)
{
	return ((CUresult (*)(size_t numOps, void *opList, void *failIdx, unsigned long long flags, void *hStream))hf_fn(HF_SYM_cuMemcpy3DBatchAsync_ptsz))(numOps, opList, failIdx, flags, hStream);
}
static inline CUresult real_cuMemcpy3DBatchAsync_v2(size_t numOps, void *opList, unsigned long long flags, void *hStream)
{
	return ((CUresult (*)(size_t numOps, void *opList, unsigned long long flags, void *hStream))hf_fn(HF_SYM_cuMemcpy3DBatchAsync_v2))(numOps, opList, flags, hStream);
}
static inline CUresult real_cuMemcpy3DBatchAsync_v2_ptsz(size_t numOps, void *opList, unsigned long long flags, void *hStream)
{
	return ((CUresult (*)(size_t numOps, void *opList, unsigned long long flags, void *hStream))hf_fn(HF_SYM_cuMemcpy3DBatchAsync_v2_ptsz))(numOps, opList, flags, hStream);
}
static inline CUresult real_cuMemcpy3DPeer(void *pCopy)
{
	return ((CUresult (*)(void *pCopy))hf_fn(HF_SYM_cuMemcpy3DPeer))(pCopy);
}
static inline CUresult real_cuMemcpy3DPeerAsync(void *pCopy, void *hStream)
{
	return ((CUresult (*)(void *pCopy, void *hStream))hf_fn(HF_SYM_cuMemcpy3DPeerAsync))(pCopy, hStream);
}
static inline CUresult real_cuMemcpy3DPeerAsync_ptsz(void *pCopy, void *hStream)
{
	return ((CUresult (*)(void *pCopy, void *hStream))hf_fn(HF_SYM_cuMemcpy3DPeerAsync_ptsz))(pCopy, hStream);
}
static inline CUresult real_cuMemcpy3DPeer_ptds(void *pCopy)
{
	return ((CUresult (*)(void *pCopy))hf_fn(HF_SYM_cuMemcpy3DPeer_ptds))(pCopy);
}
static inline CUresult real_cuMemcpy3D_v2(void *pCopy)
{
	return ((CUresult (*)(void *pCopy))hf_fn(HF_SYM_cuMemcpy3D_v2))(pCopy);
}
static inline CUresult real_cuMemcpy3D_v2_ptds(void *pCopy)
{
	return ((CUresult (*)(void *pCopy))hf_fn(HF_SYM_cuMemcpy3D_v2_ptds))(pCopy);
}
static inline CUresult real_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyAsync))(dst, src, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyAsync_ptsz))(dst, src, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyAtoA_v2(void *dstArray, size_t dstOffset, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	return ((CUresult (*)(void *dstArray, size_t dstOffset, void *srcArray, size_t srcOffset, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyAtoA_v2))(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}
static inline CUresult real_cuMemcpyAtoA_v2_ptds(void *dstArray, size_t dstOffset, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	return ((CUresult (*)(void *dstArray, size_t dstOffset, void *srcArray, size_t srcOffset, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyAtoA_v2_ptds))(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}
static inline CUresult real_cuMemcpyAtoD_v2(CUdeviceptr dstDevice, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, void *srcArray, size_t srcOffset, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyAtoD_v2))(dstDevice, srcArray, srcOffset, ByteCount);
}
static inline CUresult real_cuMemcpyAtoD_v2_ptds(CUdeviceptr dstDevice, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, void *srcArray, size_t srcOffset, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyAtoD_v2_ptds))(dstDevice, srcArray, srcOffset, ByteCount);
}
static inline CUresult real_cuMemcpyAtoHAsync_v2(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyAtoHAsync_v2))(dstHost, srcArray, srcOffset, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyAtoHAsync_v2_ptsz(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyAtoHAsync_v2_ptsz))(dstHost, srcArray, srcOffset, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyAtoH_v2(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	return ((CUresult (*)(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyAtoH_v2))(dstHost, srcArray, srcOffset, ByteCount);
}
static inline CUresult real_cuMemcpyAtoH_v2_ptds(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount)
{
	return ((CUresult (*)(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyAtoH_v2_ptds))(dstHost, srcArray, srcOffset, ByteCount);
}
static inline CUresult real_cuMemcpyBatchAsync(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *failIdx, void *hStream)
{
	return ((CUresult (*)(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *failIdx, void *hStream))hf_fn(HF_SYM_cuMemcpyBatchAsync))(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}
static inline CUresult real_cuMemcpyBatchAsync_ptsz(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *failIdx, void *hStream)
{
	return ((CUresult (*)(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *failIdx, void *hStream))hf_fn(HF_SYM_cuMemcpyBatchAsync_ptsz))(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}
static inline CUresult real_cuMemcpyBatchAsync_v2(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *hStream)
{
	return ((CUresult (*)(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *hStream))hf_fn(HF_SYM_cuMemcpyBatchAsync_v2))(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}
static inline CUresult real_cuMemcpyBatchAsync_v2_ptsz(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *hStream)
{
	return ((CUresult (*)(void *dsts, void *srcs, void *sizes, size_t count, void *attrs, void *attrsIdxs, size_t numAttrs, void *hStream))hf_fn(HF_SYM_cuMemcpyBatchAsync_v2_ptsz))(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}
static inline CUresult real_cuMemcpyDtoA_v2(void *dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
	return ((CUresult (*)(void *dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyDtoA_v2))(dstArray, dstOffset, srcDevice, ByteCount);
}
static inline CUresult real_cuMemcpyDtoA_v2_ptds(void *dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
	return ((CUresult (*)(void *dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyDtoA_v2_ptds))(dstArray, dstOffset, srcDevice, ByteCount);
}
static inline CUresult real_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyDtoDAsync_v2))(dstDevice, srcDevice, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyDtoDAsync_v2_ptsz))(dstDevice, srcDevice, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyDtoD_v2))(dstDevice, srcDevice, ByteCount);
}
static inline CUresult real_cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyDtoD_v2_ptds))(dstDevice, srcDevice, ByteCount);
}
static inline CUresult real_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyDtoHAsync_v2))(dstHost, srcDevice, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyDtoHAsync_v2_ptsz(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyDtoHAsync_v2_ptsz))(dstHost, srcDevice, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return ((CUresult (*)(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyDtoH_v2))(dstHost, srcDevice, ByteCount);
}
static inline CUresult real_cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return ((CUresult (*)(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyDtoH_v2_ptds))(dstHost, srcDevice, ByteCount);
}
static inline CUresult real_cuMemcpyHtoAAsync_v2(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyHtoAAsync_v2))(dstArray, dstOffset, srcHost, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyHtoAAsync_v2_ptsz(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyHtoAAsync_v2_ptsz))(dstArray, dstOffset, srcHost, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyHtoA_v2(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount)
{
	return ((CUresult (*)(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyHtoA_v2))(dstArray, dstOffset, srcHost, ByteCount);
}
static inline CUresult real_cuMemcpyHtoA_v2_ptds(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount)
{
	return ((CUresult (*)(void *dstArray, size_t dstOffset, void *srcHost, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyHtoA_v2_ptds))(dstArray, dstOffset, srcHost, ByteCount);
}
static inline CUresult real_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyHtoDAsync_v2))(dstDevice, srcHost, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyHtoDAsync_v2_ptsz))(dstDevice, srcHost, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyHtoD_v2))(dstDevice, srcHost, ByteCount);
}
static inline CUresult real_cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, void *srcHost, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyHtoD_v2_ptds))(dstDevice, srcHost, ByteCount);
}
static inline CUresult real_cuMemcpyPeer(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyPeer))(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
}
static inline CUresult real_cuMemcpyPeerAsync(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyPeerAsync))(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount, void *hStream))hf_fn(HF_SYM_cuMemcpyPeerAsync_ptsz))(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
}
static inline CUresult real_cuMemcpyPeer_ptds(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, void *dstContext, CUdeviceptr srcDevice, void *srcContext, size_t ByteCount))hf_fn(HF_SYM_cuMemcpyPeer_ptds))(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
}
static inline CUresult real_cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return ((CUresult (*)(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount))hf_fn(HF_SYM_cuMemcpy_ptds))(dst, src, ByteCount);
}
static inline CUresult real_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned short us, size_t N, void *hStream))hf_fn(HF_SYM_cuMemsetD16Async))(dstDevice, us, N, hStream);
}
static inline CUresult real_cuMemsetD16Async_ptsz(CUdeviceptr dstDevice, unsigned short us, size_t N, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned short us, size_t N, void *hStream))hf_fn(HF_SYM_cuMemsetD16Async_ptsz))(dstDevice, us, N, hStream);
}
static inline CUresult real_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned short us, size_t N))hf_fn(HF_SYM_cuMemsetD16_v2))(dstDevice, us, N);
}
static inline CUresult real_cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned short us, size_t N))hf_fn(HF_SYM_cuMemsetD16_v2_ptds))(dstDevice, us, N);
}
static inline CUresult real_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, void *hStream))hf_fn(HF_SYM_cuMemsetD2D16Async))(dstDevice, dstPitch, us, Width, Height, hStream);
}
static inline CUresult real_cuMemsetD2D16Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, void *hStream))hf_fn(HF_SYM_cuMemsetD2D16Async_ptsz))(dstDevice, dstPitch, us, Width, Height, hStream);
}
static inline CUresult real_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height))hf_fn(HF_SYM_cuMemsetD2D16_v2))(dstDevice, dstPitch, us, Width, Height);
}
static inline CUresult real_cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height))hf_fn(HF_SYM_cuMemsetD2D16_v2_ptds))(dstDevice, dstPitch, us, Width, Height);
}
static inline CUresult real_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, void *hStream))hf_fn(HF_SYM_cuMemsetD2D32Async))(dstDevice, dstPitch, ui, Width, Height, hStream);
}
static inline CUresult real_cuMemsetD2D32Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, void *hStream))hf_fn(HF_SYM_cuMemsetD2D32Async_ptsz))(dstDevice, dstPitch, ui, Width, Height, hStream);
}
static inline CUresult real_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height))hf_fn(HF_SYM_cuMemsetD2D32_v2))(dstDevice, dstPitch, ui, Width, Height);
}
static inline CUresult real_cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height))hf_fn(HF_SYM_cuMemsetD2D32_v2_ptds))(dstDevice, dstPitch, ui, Width, Height);
}
static inline CUresult real_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, void *hStream))hf_fn(HF_SYM_cuMemsetD2D8Async))(dstDevice, dstPitch, uc, Width, Height, hStream);
}
static inline CUresult real_cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, void *hStream))hf_fn(HF_SYM_cuMemsetD2D8Async_ptsz))(dstDevice, dstPitch, uc, Width, Height, hStream);
}
static inline CUresult real_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height))hf_fn(HF_SYM_cuMemsetD2D8_v2))(dstDevice, dstPitch, uc, Width, Height);
}
static inline CUresult real_cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height))hf_fn(HF_SYM_cuMemsetD2D8_v2_ptds))(dstDevice, dstPitch, uc, Width, Height);
}
static inline CUresult real_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned int ui, size_t N, void *hStream))hf_fn(HF_SYM_cuMemsetD32Async))(dstDevice, ui, N, hStream);
}
static inline CUresult real_cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned int ui, size_t N, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned int ui, size_t N, void *hStream))hf_fn(HF_SYM_cuMemsetD32Async_ptsz))(dstDevice, ui, N, hStream);
}
static inline CUresult real_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned int ui, size_t N))hf_fn(HF_SYM_cuMemsetD32_v2))(dstDevice, ui, N);
}
static inline CUresult real_cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned int ui, size_t N))hf_fn(HF_SYM_cuMemsetD32_v2_ptds))(dstDevice, ui, N);
}
static inline CUresult real_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned char uc, size_t N, void *hStream))hf_fn(HF_SYM_cuMemsetD8Async))(dstDevice, uc, N, hStream);
}
static inline CUresult real_cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, void *hStream)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned char uc, size_t N, void *hStream))hf_fn(HF_SYM_cuMemsetD8Async_ptsz))(dstDevice, uc, N, hStream);
}
static inline CUresult real_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned char uc, size_t N))hf_fn(HF_SYM_cuMemsetD8_v2))(dstDevice, uc, N);
}
static inline CUresult real_cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	return ((CUresult (*)(CUdeviceptr dstDevice, unsigned char uc, size_t N))hf_fn(HF_SYM_cuMemsetD8_v2_ptds))(dstDevice, uc, N);
}
static inline CUresult real_cuMipmappedArrayCreate(void *pHandle, void *pMipmappedArrayDesc, unsigned int numMipmapLevels)
{
	return ((CUresult (*)(void *pHandle, void *pMipmappedArrayDesc, unsigned int numMipmapLevels))hf_fn(HF_SYM_cuMipmappedArrayCreate))(pHandle, pMipmappedArrayDesc, numMipmapLevels);
}
static inline CUresult real_cuMipmappedArrayDestroy(void *hMipmappedArray)
{
	return ((CUresult (*)(void *hMipmappedArray))hf_fn(HF_SYM_cuMipmappedArrayDestroy))(hMipmappedArray);
}
static inline CUresult real_cuMipmappedArrayGetLevel(void *pLevelArray, void *hMipmappedArray, unsigned int level)
{
	return ((CUresult (*)(void *pLevelArray, void *hMipmappedArray, unsigned int level))hf_fn(HF_SYM_cuMipmappedArrayGetLevel))(pLevelArray, hMipmappedArray, level);
}
static inline CUresult real_cuMipmappedArrayGetMemoryRequirements(void *memoryRequirements, void *mipmap, int device)
{
	return ((CUresult (*)(void *memoryRequirements, void *mipmap, int device))hf_fn(HF_SYM_cuMipmappedArrayGetMemoryRequirements))(memoryRequirements, mipmap, device);
}
static inline CUresult real_cuMipmappedArrayGetSparseProperties(void *sparseProperties, void *mipmap)
{
	return ((CUresult (*)(void *sparseProperties, void *mipmap))hf_fn(HF_SYM_cuMipmappedArrayGetSparseProperties))(sparseProperties, mipmap);
}
static inline CUresult real_cuModuleEnumerateFunctions(void *functions, unsigned int numFunctions, void *mod)
{
	return ((CUresult (*)(void *functions, unsigned int numFunctions, void *mod))hf_fn(HF_SYM_cuModuleEnumerateFunctions))(functions, numFunctions, mod);
}
static inline CUresult real_cuModuleGetFunction(void *hfunc, void *hmod, void *name)
{
	return ((CUresult (*)(void *hfunc, void *hmod, void *name))hf_fn(HF_SYM_cuModuleGetFunction))(hfunc, hmod, name);
}
static inline CUresult real_cuModuleGetFunctionCount(void *count, void *mod)
{
	return ((CUresult (*)(void *count, void *mod))hf_fn(HF_SYM_cuModuleGetFunctionCount))(count, mod);
}
static inline CUresult real_cuModuleGetGlobal_v2(void *dptr, void *bytes, void *hmod, void *name)
{
	return ((CUresult (*)(void *dptr, void *bytes, void *hmod, void *name))hf_fn(HF_SYM_cuModuleGetGlobal_v2))(dptr, bytes, hmod, name);
}
static inline CUresult real_cuModuleGetLoadingMode(void *mode)
{
	return ((CUresult (*)(void *mode))hf_fn(HF_SYM_cuModuleGetLoadingMode))(mode);
}
static inline CUresult real_cuModuleGetSurfRef(void *pSurfRef, void *hmod, void *name)
{
	return ((CUresult (*)(void *pSurfRef, void *hmod, void *name))hf_fn(HF_SYM_cuModuleGetSurfRef))(pSurfRef, hmod, name);
}
static inline CUresult real_cuModuleGetTexRef(void *pTexRef, void *hmod, void *name)
{
	return ((CUresult (*)(void *pTexRef, void *hmod, void *name))hf_fn(HF_SYM_cuModuleGetTexRef))(pTexRef, hmod, name);
}
static inline CUresult real_cuModuleLoad(void *module, void *fname)
{
	return ((CUresult (*)(void *module, void *fname))hf_fn(HF_SYM_cuModuleLoad))(module, fname);
}
static inline CUresult real_cuModuleLoadData(void *module, void *image)
{
	return ((CUresult (*)(void *module, void *image))hf_fn(HF_SYM_cuModuleLoadData))(module, image);
}
static inline CUresult real_cuModuleLoadDataEx(void *module, void *image, unsigned int numOptions, void *options, void *optionValues)
{
	return ((CUresult (*)(void *module, void *image, unsigned int numOptions, void *options, void *optionValues))hf_fn(HF_SYM_cuModuleLoadDataEx))(module, image, numOptions, options, optionValues);
}
static inline CUresult real_cuModuleLoadFatBinary(void *module, void *fatCubin)
{
	return ((CUresult (*)(void *module, void *fatCubin))hf_fn(HF_SYM_cuModuleLoadFatBinary))(module, fatCubin);
}
static inline CUresult real_cuModuleUnload(void *hmod)
{
	return ((CUresult (*)(void *hmod))hf_fn(HF_SYM_cuModuleUnload))(hmod);
}
static inline CUresult real_cuMulticastAddDevice(CUhandle mcHandle, int dev)
{
	return ((CUresult (*)(CUhandle mcHandle, int dev))hf_fn(HF_SYM_cuMulticastAddDevice))(mcHandle, dev);
}
static inline CUresult real_cuMulticastBindAddr(CUhandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size, unsigned long long flags)
{
	return ((CUresult (*)(CUhandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size, unsigned long long flags))hf_fn(HF_SYM_cuMulticastBindAddr))(mcHandle, mcOffset, memptr, size, flags);
}
static inline CUresult real_cuMulticastBindMem(CUhandle mcHandle, size_t mcOffset, CUhandle memHandle, size_t memOffset, size_t size, unsigned long long flags)
{
	return ((CUresult (*)(CUhandle mcHandle, size_t mcOffset, CUhandle memHandle, size_t memOffset, size_t size, unsigned long long flags))hf_fn(HF_SYM_cuMulticastBindMem))(mcHandle, mcOffset, memHandle, memOffset, size, flags);
}
static inline CUresult real_cuMulticastCreate(void *mcHandle, void *prop)
{
	return ((CUresult (*)(void *mcHandle, void *prop))hf_fn(HF_SYM_cuMulticastCreate))(mcHandle, prop);
}
static inline CUresult real_cuMulticastGetGranularity(void *granularity, void *prop, int option)
{
	return ((CUresult (*)(void *granularity, void *prop, int option))hf_fn(HF_SYM_cuMulticastGetGranularity))(granularity, prop, option);
}
static inline CUresult real_cuMulticastUnbind(CUhandle mcHandle, int dev, size_t mcOffset, size_t size)
{
	return ((CUresult (*)(CUhandle mcHandle, int dev, size_t mcOffset, size_t size))hf_fn(HF_SYM_cuMulticastUnbind))(mcHandle, dev, mcOffset, size);
}
static inline CUresult real_cuOccupancyAvailableDynamicSMemPerBlock(void *dynamicSmemSize, void *func, int numBlocks, int blockSize)
{
	return ((CUresult (*)(void *dynamicSmemSize, void *func, int numBlocks, int blockSize))hf_fn(HF_SYM_cuOccupancyAvailableDynamicSMemPerBlock))(dynamicSmemSize, func, numBlocks, blockSize);
}
static inline CUresult real_cuOccupancyMaxActiveBlocksPerMultiprocessor(void *numBlocks, void *func, int blockSize, size_t dynamicSMemSize)
{
	return ((CUresult (*)(void *numBlocks, void *func, int blockSize, size_t dynamicSMemSize))hf_fn(HF_SYM_cuOccupancyMaxActiveBlocksPerMultiprocessor))(numBlocks, func, blockSize, dynamicSMemSize);
}
static inline CUresult real_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(void *numBlocks, void *func, int blockSize, size_t dynamicSMemSize, unsigned int flags)
{
	return ((CUresult (*)(void *numBlocks, void *func, int blockSize, size_t dynamicSMemSize, unsigned int flags))hf_fn(HF_SYM_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags))(numBlocks, func, blockSize, dynamicSMemSize, flags);
}
static inline CUresult real_cuOccupancyMaxActiveClusters(void *numClusters, void *func, void *config)
{
	return ((CUresult (*)(void *numClusters, void *func, void *config))hf_fn(HF_SYM_cuOccupancyMaxActiveClusters))(numClusters, func, config);
}
static inline CUresult real_cuOccupancyMaxPotentialBlockSize(void *minGridSize, void *blockSize, void *func, void *blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit)
{
	return ((CUresult (*)(void *minGridSize, void *blockSize, void *func, void *blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit))hf_fn(HF_SYM_cuOccupancyMaxPotentialBlockSize))(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit);
}
static inline CUresult real_cuOccupancyMaxPotentialBlockSizeWithFlags(void *minGridSize, void *blockSize, void *func, void *blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags)
{
	return ((CUresult (*)(void *minGridSize, void *blockSize, void *func, void *blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags))hf_fn(HF_SYM_cuOccupancyMaxPotentialBlockSizeWithFlags))(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, flags);
}
static inline CUresult real_cuOccupancyMaxPotentialClusterSize(void *clusterSize, void *func, void *config)
{
	return ((CUresult (*)(void *clusterSize, void *func, void *config))hf_fn(HF_SYM_cuOccupancyMaxPotentialClusterSize))(clusterSize, func, config);
}
static inline CUresult real_cuParamSetSize(void *hfunc, unsigned int numbytes)
{
	return ((CUresult (*)(void *hfunc, unsigned int numbytes))hf_fn(HF_SYM_cuParamSetSize))(hfunc, numbytes);
}
static inline CUresult real_cuParamSetTexRef(void *hfunc, int texunit, void *hTexRef)
{
	return ((CUresult (*)(void *hfunc, int texunit, void *hTexRef))hf_fn(HF_SYM_cuParamSetTexRef))(hfunc, texunit, hTexRef);
}
static inline CUresult real_cuParamSetf(void *hfunc, int offset, float value)
{
	return ((CUresult (*)(void *hfunc, int offset, float value))hf_fn(HF_SYM_cuParamSetf))(hfunc, offset, value);
}
static inline CUresult real_cuParamSeti(void *hfunc, int offset, unsigned int value)
{
	return ((CUresult (*)(void *hfunc, int offset, unsigned int value))hf_fn(HF_SYM_cuParamSeti))(hfunc, offset, value);
}
static inline CUresult real_cuParamSetv(void *hfunc, int offset, void *ptr, unsigned int numbytes)
{
	return ((CUresult (*)(void *hfunc, int offset, void *ptr, unsigned int numbytes))hf_fn(HF_SYM_cuParamSetv))(hfunc, offset, ptr, numbytes);
}
static inline CUresult real_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr)
{
	return ((CUresult (*)(void *data, int attribute, CUdeviceptr ptr))hf_fn(HF_SYM_cuPointerGetAttribute))(data, attribute, ptr);
}
static inline CUresult real_cuPointerGetAttributes(unsigned int numAttributes, void *attributes, void *data, CUdeviceptr ptr)
{
	return ((CUresult (*)(unsigned int numAttributes, void *attributes, void *data, CUdeviceptr ptr))hf_fn(HF_SYM_cuPointerGetAttributes))(numAttributes, attributes, data, ptr);
}
static inline CUresult real_cuPointerSetAttribute(void *value, int attribute, CUdeviceptr ptr)
{
	return ((CUresult (*)(void *value, int attribute, CUdeviceptr ptr))hf_fn(HF_SYM_cuPointerSetAttribute))(value, attribute, ptr);
}
static inline CUresult real_cuProfilerInitialize(void *configFile, void *outputFile, int outputMode)
{
	return ((CUresult (*)(void *configFile, void *outputFile, int outputMode))hf_fn(HF_SYM_cuProfilerInitialize))(configFile, outputFile, outputMode);
}
static inline CUresult real_cuProfilerStart(void)
{
	return ((CUresult (*)(void))hf_fn(HF_SYM_cuProfilerStart))();
}
static inline CUresult real_cuProfilerStop(void)
{
	return ((CUresult (*)(void))hf_fn(HF_SYM_cuProfilerStop))();
}
static inline CUresult real_cuSignalExternalSemaphoresAsync(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	return ((CUresult (*)(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream))hf_fn(HF_SYM_cuSignalExternalSemaphoresAsync))(extSemArray, paramsArray, numExtSems, stream);
}
static inline CUresult real_cuSignalExternalSemaphoresAsync_ptsz(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	return ((CUresult (*)(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream))hf_fn(HF_SYM_cuSignalExternalSemaphoresAsync_ptsz))(extSemArray, paramsArray, numExtSems, stream);
}
static inline CUresult real_cuStreamAddCallback(void *hStream, void *callback, void *userData, unsigned int flags)
{
	return ((CUresult (*)(void *hStream, void *callback, void *userData, unsigned int flags))hf_fn(HF_SYM_cuStreamAddCallback))(hStream, callback, userData, flags);
}
static inline CUresult real_cuStreamAddCallback_ptsz(void *hStream, void *callback, void *userData, unsigned int flags)
{
	return ((CUresult (*)(void *hStream, void *callback, void *userData, unsigned int flags))hf_fn(HF_SYM_cuStreamAddCallback_ptsz))(hStream, callback, userData, flags);
}
static inline CUresult real_cuStreamAttachMemAsync(void *hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	return ((CUresult (*)(void *hStream, CUdeviceptr dptr, size_t length, unsigned int flags))hf_fn(HF_SYM_cuStreamAttachMemAsync))(hStream, dptr, length, flags);
}
static inline CUresult real_cuStreamAttachMemAsync_ptsz(void *hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	return ((CUresult (*)(void *hStream, CUdeviceptr dptr, size_t length, unsigned int flags))hf_fn(HF_SYM_cuStreamAttachMemAsync_ptsz))(hStream, dptr, length, flags);
}
static inline CUresult real_cuStreamBatchMemOp(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	return ((CUresult (*)(void *stream, unsigned int count, void *paramArray, unsigned int flags))hf_fn(HF_SYM_cuStreamBatchMemOp))(stream, count, paramArray, flags);
}
static inline CUresult real_cuStreamBatchMemOp_ptsz(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	return ((CUresult (*)(void *stream, unsigned int count, void *paramArray, unsigned int flags))hf_fn(HF_SYM_cuStreamBatchMemOp_ptsz))(stream, count, paramArray, flags);
}
static inline CUresult real_cuStreamBatchMemOp_v2(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	return ((CUresult (*)(void *stream, unsigned int count, void *paramArray, unsigned int flags))hf_fn(HF_SYM_cuStreamBatchMemOp_v2))(stream, count, paramArray, flags);
}
static inline CUresult real_cuStreamBatchMemOp_v2_ptsz(void *stream, unsigned int count, void *paramArray, unsigned int flags)
{
	return ((CUresult (*)(void *stream, unsigned int count, void *paramArray, unsigned int flags))hf_fn(HF_SYM_cuStreamBatchMemOp_v2_ptsz))(stream, count, paramArray, flags);
}
static inline CUresult real_cuStreamBeginCapture(void *hStream)
{
	return ((CUresult (*)(void *hStream))hf_fn(HF_SYM_cuStreamBeginCapture))(hStream);
}
static inline CUresult real_cuStreamBeginCaptureToGraph(void *hStream, void *hGraph, void *dependencies, void *dependencyData, size_t numDependencies, int mode)
{
	return ((CUresult (*)(void *hStream, void *hGraph, void *dependencies, void *dependencyData, size_t numDependencies, int mode))hf_fn(HF_SYM_cuStreamBeginCaptureToGraph))(hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
}
static inline CUresult real_cuStreamBeginCaptureToGraph_ptsz(void *hStream, void *hGraph, void *dependencies, void *dependencyData, size_t numDependencies, int mode)
{
	return ((CUresult (*)(void *hStream, void *hGraph, void *dependencies, void *dependencyData, size_t numDependencies, int mode))hf_fn(HF_SYM_cuStreamBeginCaptureToGraph_ptsz))(hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
}
static inline CUresult real_cuStreamBeginCapture_ptsz(void *hStream)
{
	return ((CUresult (*)(void *hStream))hf_fn(HF_SYM_cuStreamBeginCapture_ptsz))(hStream);
}
static inline CUresult real_cuStreamBeginCapture_v2(void *hStream, int mode)
{
	return ((CUresult (*)(void *hStream, int mode))hf_fn(HF_SYM_cuStreamBeginCapture_v2))(hStream, mode);
}
static inline CUresult real_cuStreamBeginCapture_v2_ptsz(void *hStream, int mode)
{
	return ((CUresult (*)(void *hStream, int mode))hf_fn(HF_SYM_cuStreamBeginCapture_v2_ptsz))(hStream, mode);
}
static inline CUresult real_cuStreamCopyAttributes(void *dst, void *src)
{
	return ((CUresult (*)(void *dst, void *src))hf_fn(HF_SYM_cuStreamCopyAttributes))(dst, src);
}
static inline CUresult real_cuStreamCopyAttributes_ptsz(void *dst, void *src)
{
	return ((CUresult (*)(void *dst, void *src))hf_fn(HF_SYM_cuStreamCopyAttributes_ptsz))(dst, src);
}
static inline CUresult real_cuStreamCreate(void *phStream, unsigned int Flags)
{
	return ((CUresult (*)(void *phStream, unsigned int Flags))hf_fn(HF_SYM_cuStreamCreate))(phStream, Flags);
}
static inline CUresult real_cuStreamCreateWithPriority(void *phStream, unsigned int flags, int priority)
{
	return ((CUresult (*)(void *phStream, unsigned int flags, int priority))hf_fn(HF_SYM_cuStreamCreateWithPriority))(phStream, flags, priority);
}
static inline CUresult real_cuStreamDestroy(void *hStream)
{
	return ((CUresult (*)(void *hStream))hf_fn(HF_SYM_cuStreamDestroy))(hStream);
}
static inline CUresult real_cuStreamDestroy_v2(void *hStream)
{
	return ((CUresult (*)(void *hStream))hf_fn(HF_SYM_cuStreamDestroy_v2))(hStream);
}
static inline CUresult real_cuStreamEndCapture(void *hStream, void *phGraph)
{
	return ((CUresult (*)(void *hStream, void *phGraph))hf_fn(HF_SYM_cuStreamEndCapture))(hStream, phGraph);
}
static inline CUresult real_cuStreamEndCapture_ptsz(void *hStream, void *phGraph)
{
	return ((CUresult (*)(void *hStream, void *phGraph))hf_fn(HF_SYM_cuStreamEndCapture_ptsz))(hStream, phGraph);
}
static inline CUresult real_cuStreamGetAttribute(void *hStream, int attr, void *value_out)
{
	return ((CUresult (*)(void *hStream, int attr, void *value_out))hf_fn(HF_SYM_cuStreamGetAttribute))(hStream, attr, value_out);
}
static inline CUresult real_cuStreamGetAttribute_ptsz(void *hStream, int attr, void *value_out)
{
	return ((CUresult (*)(void *hStream, int attr, void *value_out))hf_fn(HF_SYM_cuStreamGetAttribute_ptsz))(hStream, attr, value_out);
}
static inline CUresult real_cuStreamGetCaptureInfo(void *hStream, void *captureStatus_out, void *id_out)
{
	return ((CUresult (*)(void *hStream, void *captureStatus_out, void *id_out))hf_fn(HF_SYM_cuStreamGetCaptureInfo))(hStream, captureStatus_out, id_out);
}
static inline CUresult real_cuStreamGetCaptureInfo_ptsz(void *hStream, void *captureStatus_out, void *id_out)
{
	return ((CUresult (*)(void *hStream, void *captureStatus_out, void *id_out))hf_fn(HF_SYM_cuStreamGetCaptureInfo_ptsz))(hStream, captureStatus_out, id_out);
}
static inline CUresult real_cuStreamGetCaptureInfo_v2(void *hStream, void *captureStatus_out, void *id_out, void *graph_out, void *dependencies_out, void *numDependencies_out)
{
	return ((CUresult (*)(void *hStream, void *captureStatus_out, void *id_out, void *graph_out, void *dependencies_out, void *numDependencies_out))hf_fn(HF_SYM_cuStreamGetCaptureInfo_v2))(hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
}
static inline CUresult real_cuStreamGetCaptureInfo_v2_ptsz(void *hStream, void *captureStatus_out, void *id_out, void *graph_out, void *dependencies_out, void *numDependencies_out)
{
	return ((CUresult (*)(void *hStream, void *captureStatus_out, void *id_out, void *graph_out, void *dependencies_out, void *numDependencies_out))hf_fn(HF_SYM_cuStreamGetCaptureInfo_v2_ptsz))(hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
}
static inline CUresult real_cuStreamGetCaptureInfo_v3(void *hStream, void *captureStatus_out, void *id_out, void *graph_out, void *dependencies_out, void *edgeData_out, void *numDependencies_out)
{
	return ((CUresult (*)(void *hStream, void *captureStatus_out, void *id_out, void *graph_out, void *dependencies_out, void *edgeData_out, void *numDependencies_out))hf_fn(HF_SYM_cuStreamGetCaptureInfo_v3))(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out);
}
static inline CUresult real_cuStreamGetCaptureInfo_v3_ptsz(void *hStream, void *captureStatus_out, void *id_out, void *graph_out, void *dependencies_out, void *edgeData_out, void *numDependencies_out)
{
	return ((CUresult (*)(void *hStream, void *captureStatus_out, void *id_out, void *graph_out, void *dependencies_out, void *edgeData_out, void *numDependencies_out))hf_fn(HF_SYM_cuStreamGetCaptureInfo_v3_ptsz))(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out);
}
static inline CUresult real_cuStreamGetCtx(void *hStream, void *pctx)
{
	return ((CUresult (*)(void *hStream, void *pctx))hf_fn(HF_SYM_cuStreamGetCtx))(hStream, pctx);
}
static inline CUresult real_cuStreamGetCtx_ptsz(void *hStream, void *pctx)
{
	return ((CUresult (*)(void *hStream, void *pctx))hf_fn(HF_SYM_cuStreamGetCtx_ptsz))(hStream, pctx);
}
static inline CUresult real_cuStreamGetCtx_v2(void *hStream, void *pCtx, void *pGreenCtx)
{
	return ((CUresult (*)(void *hStream, void *pCtx, void *pGreenCtx))hf_fn(HF_SYM_cuStreamGetCtx_v2))(hStream, pCtx, pGreenCtx);
}
static inline CUresult real_cuStreamGetCtx_v2_ptsz(void *hStream, void *pCtx, void *pGreenCtx)
{
	return ((CUresult (*)(void *hStream, void *pCtx, void *pGreenCtx))hf_fn(HF_SYM_cuStreamGetCtx_v2_ptsz))(hStream, pCtx, pGreenCtx);
}
static inline CUresult real_cuStreamGetDevice(void *hStream, void *device)
{
	return ((CUresult (*)(void *hStream, void *device))hf_fn(HF_SYM_cuStreamGetDevice))(hStream, device);
}
static inline CUresult real_cuStreamGetDevice_ptsz(void *hStream, void *device)
{
	return ((CUresult (*)(void *hStream, void *device))hf_fn(HF_SYM_cuStreamGetDevice_ptsz))(hStream, device);
}
static inline CUresult real_cuStreamGetFlags(void *hStream, void *flags)
{
	return ((CUresult (*)(void *hStream, void *flags))hf_fn(HF_SYM_cuStreamGetFlags))(hStream, flags);
}
static inline CUresult real_cuStreamGetFlags_ptsz(void *hStream, void *flags)
{
	return ((CUresult (*)(void *hStream, void *flags))hf_fn(HF_SYM_cuStreamGetFlags_ptsz))(hStream, flags);
}
static inline CUresult real_cuStreamGetGreenCtx(void *hStream, void *phCtx)
{
	return ((CUresult (*)(void *hStream, void *phCtx))hf_fn(HF_SYM_cuStreamGetGreenCtx))(hStream, phCtx);
}
static inline CUresult real_cuStreamGetId(void *hStream, void *streamId)
{
	return ((CUresult (*)(void *hStream, void *streamId))hf_fn(HF_SYM_cuStreamGetId))(hStream, streamId);
}
static inline CUresult real_cuStreamGetId_ptsz(void *hStream, void *streamId)
{
	return ((CUresult (*)(void *hStream, void *streamId))hf_fn(HF_SYM_cuStreamGetId_ptsz))(hStream, streamId);
}
static inline CUresult real_cuStreamGetPriority(void *hStream, void *priority)
{
	return ((CUresult (*)(void *hStream, void *priority))hf_fn(HF_SYM_cuStreamGetPriority))(hStream, priority);
}
static inline CUresult real_cuStreamGetPriority_ptsz(void *hStream, void *priority)
{
	return ((CUresult (*)(void *hStream, void *priority))hf_fn(HF_SYM_cuStreamGetPriority_ptsz))(hStream, priority);
}
static inline CUresult real_cuStreamIsCapturing(void *hStream, void *captureStatus)
{
	return ((CUresult (*)(void *hStream, void *captureStatus))hf_fn(HF_SYM_cuStreamIsCapturing))(hStream, captureStatus);
}
static inline CUresult real_cuStreamIsCapturing_ptsz(void *hStream, void *captureStatus)
{
	return ((CUresult (*)(void *hStream, void *captureStatus))hf_fn(HF_SYM_cuStreamIsCapturing_ptsz))(hStream, captureStatus);
}
static inline CUresult real_cuStreamQuery(void *hStream)
{
	return ((CUresult (*)(void *hStream))hf_fn(HF_SYM_cuStreamQuery))(hStream);
}
static inline CUresult real_cuStreamQuery_ptsz(void *hStream)
{
	return ((CUresult (*)(void *hStream))hf_fn(HF_SYM_cuStreamQuery_ptsz))(hStream);
}
static inline CUresult real_cuStreamSetAttribute(void *hStream, int attr, void *value)
{
	return ((CUresult (*)(void *hStream, int attr, void *value))hf_fn(HF_SYM_cuStreamSetAttribute))(hStream, attr, value);
}
static inline CUresult real_cuStreamSetAttribute_ptsz(void *hStream, int attr, void *value)
{
	return ((CUresult (*)(void *hStream, int attr, void *value))hf_fn(HF_SYM_cuStreamSetAttribute_ptsz))(hStream, attr, value);
}
static inline CUresult real_cuStreamSynchronize(void *hStream)
{
	return ((CUresult (*)(void *hStream))hf_fn(HF_SYM_cuStreamSynchronize))(hStream);
}
static inline CUresult real_cuStreamSynchronize_ptsz(void *hStream)
{
	return ((CUresult (*)(void *hStream))hf_fn(HF_SYM_cuStreamSynchronize_ptsz))(hStream);
}
static inline CUresult real_cuStreamUpdateCaptureDependencies(void *hStream, void *dependencies, size_t numDependencies, unsigned int flags)
{
	return ((CUresult (*)(void *hStream, void *dependencies, size_t numDependencies, unsigned int flags))hf_fn(HF_SYM_cuStreamUpdateCaptureDependencies))(hStream, dependencies, numDependencies, flags);
}
static inline CUresult real_cuStreamUpdateCaptureDependencies_ptsz(void *hStream, void *dependencies, size_t numDependencies, unsigned int flags)
{
	return ((CUresult (*)(void *hStream, void *dependencies, size_t numDependencies, unsigned int flags))hf_fn(HF_SYM_cuStreamUpdateCaptureDependencies_ptsz))(hStream, dependencies, numDependencies, flags);
}
static inline CUresult real_cuStreamUpdateCaptureDependencies_v2(void *hStream, void *dependencies, void *dependencyData, size_t numDependencies, unsigned int flags)
{
	return ((CUresult (*)(void *hStream, void *dependencies, void *dependencyData, size_t numDependencies, unsigned int flags))hf_fn(HF_SYM_cuStreamUpdateCaptureDependencies_v2))(hStream, dependencies, dependencyData, numDependencies, flags);
}
static inline CUresult real_cuStreamUpdateCaptureDependencies_v2_ptsz(void *hStream, void *dependencies, void *dependencyData, size_t numDependencies, unsigned int flags)
{
	return ((CUresult (*)(void *hStream, void *dependencies, void *dependencyData, size_t numDependencies, unsigned int flags))hf_fn(HF_SYM_cuStreamUpdateCaptureDependencies_v2_ptsz))(hStream, dependencies, dependencyData, numDependencies, flags);
}
static inline CUresult real_cuStreamWaitEvent(void *hStream, void *hEvent, unsigned int Flags)
{
	return ((CUresult (*)(void *hStream, void *hEvent, unsigned int Flags))hf_fn(HF_SYM_cuStreamWaitEvent))(hStream, hEvent, Flags);
}
static inline CUresult real_cuStreamWaitEvent_ptsz(void *hStream, void *hEvent, unsigned int Flags)
{
	return ((CUresult (*)(void *hStream, void *hEvent, unsigned int Flags))hf_fn(HF_SYM_cuStreamWaitEvent_ptsz))(hStream, hEvent, Flags);
}
static inline CUresult real_cuStreamWaitValue32(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags))hf_fn(HF_SYM_cuStreamWaitValue32))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWaitValue32_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags))hf_fn(HF_SYM_cuStreamWaitValue32_ptsz))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWaitValue32_v2(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags))hf_fn(HF_SYM_cuStreamWaitValue32_v2))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWaitValue32_v2_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags))hf_fn(HF_SYM_cuStreamWaitValue32_v2_ptsz))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWaitValue64(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags))hf_fn(HF_SYM_cuStreamWaitValue64))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWaitValue64_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags))hf_fn(HF_SYM_cuStreamWaitValue64_ptsz))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWaitValue64_v2(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags))hf_fn(HF_SYM_cuStreamWaitValue64_v2))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWaitValue64_v2_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags))hf_fn(HF_SYM_cuStreamWaitValue64_v2_ptsz))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWriteValue32(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags))hf_fn(HF_SYM_cuStreamWriteValue32))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWriteValue32_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags))hf_fn(HF_SYM_cuStreamWriteValue32_ptsz))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWriteValue32_v2(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags))hf_fn(HF_SYM_cuStreamWriteValue32_v2))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWriteValue32_v2_ptsz(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned int value, unsigned int flags))hf_fn(HF_SYM_cuStreamWriteValue32_v2_ptsz))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWriteValue64(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags))hf_fn(HF_SYM_cuStreamWriteValue64))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWriteValue64_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags))hf_fn(HF_SYM_cuStreamWriteValue64_ptsz))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWriteValue64_v2(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags))hf_fn(HF_SYM_cuStreamWriteValue64_v2))(stream, addr, value, flags);
}
static inline CUresult real_cuStreamWriteValue64_v2_ptsz(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags)
{
	return ((CUresult (*)(void *stream, CUdeviceptr addr, unsigned long long value, unsigned int flags))hf_fn(HF_SYM_cuStreamWriteValue64_v2_ptsz))(stream, addr, value, flags);
}
static inline CUresult real_cuSurfObjectCreate(void *pSurfObject, void *pResDesc)
{
	return ((CUresult (*)(void *pSurfObject, void *pResDesc))hf_fn(HF_SYM_cuSurfObjectCreate))(pSurfObject, pResDesc);
}
static inline CUresult real_cuSurfObjectDestroy(unsigned long long surfObject)
{
	return ((CUresult (*)(unsigned long long surfObject))hf_fn(HF_SYM_cuSurfObjectDestroy))(surfObject);
}
static inline CUresult real_cuSurfObjectGetResourceDesc(void *pResDesc, unsigned long long surfObject)
{
	return ((CUresult (*)(void *pResDesc, unsigned long long surfObject))hf_fn(HF_SYM_cuSurfObjectGetResourceDesc))(pResDesc, surfObject);
}
static inline CUresult real_cuSurfRefGetArray(void *phArray, void *hSurfRef)
{
	return ((CUresult (*)(void *phArray, void *hSurfRef))hf_fn(HF_SYM_cuSurfRefGetArray))(phArray, hSurfRef);
}
static inline CUresult real_cuSurfRefSetArray(void *hSurfRef, void *hArray, unsigned int Flags)
{
	return ((CUresult (*)(void *hSurfRef, void *hArray, unsigned int Flags))hf_fn(HF_SYM_cuSurfRefSetArray))(hSurfRef, hArray, Flags);
}
static inline CUresult real_cuTensorMapEncodeIm2col(void *tensorMap, int tensorDataType, unsigned int tensorRank, void *globalAddress, void *globalDim, void *globalStrides, void *pixelBoxLowerCorner, void *pixelBoxUpperCorner, unsigned int channelsPerPixel, unsigned int pixelsPerColumn, void *elementStrides, int interleave, int swizzle, int l2Promotion, int oobFill)
{
	return ((CUresult (*)(void *tensorMap, int tensorDataType, unsigned int tensorRank, void *globalAddress, void *globalDim, void *globalStrides, void *pixelBoxLowerCorner, void *pixelBoxUpperCorner, unsigned int channelsPerPixel, unsigned int pixelsPerColumn, void *elementStrides, int interleave, int swizzle, int l2Promotion, int oobFill))hf_fn(HF_SYM_cuTensorMapEncodeIm2col))(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, pixelBoxLowerCorner, pixelBoxUpperCorner, channelsPerPixel, pixelsPerColumn, elementStrides, interleave, swizzle, l2Promotion, oobFill);
}
static inline CUresult real_cuTensorMapEncodeIm2colWide(void *tensorMap, int tensorDataType, unsigned int tensorRank, void *globalAddress, void *globalDim, void *globalStrides, int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, unsigned int channelsPerPixel, unsigned int pixelsPerColumn, void *elementStrides, int interleave, int mode, int swizzle, int l2Promotion, int oobFill)
{
	return ((CUresult (*)(void *tensorMap, int tensorDataType, unsigned int tensorRank, void *globalAddress, void *globalDim, void *globalStrides, int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, unsigned int channelsPerPixel, unsigned int pixelsPerColumn, void *elementStrides, int interleave, int mode, int swizzle, int l2Promotion, int oobFill))hf_fn(HF_SYM_cuTensorMapEncodeIm2colWide))(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth, channelsPerPixel, pixelsPerColumn, elementStrides, interleave, mode, swizzle, l2Promotion, oobFill);
}
static inline CUresult real_cuTensorMapEncodeTiled(void *tensorMap, int tensorDataType, unsigned int tensorRank, void *globalAddress, void *globalDim, void *globalStrides, void *boxDim, void *elementStrides, int interleave, int swizzle, int l2Promotion, int oobFill)
{
	return ((CUresult (*)(void *tensorMap, int tensorDataType, unsigned int tensorRank, void *globalAddress, void *globalDim, void *globalStrides, void *boxDim, void *elementStrides, int interleave, int swizzle, int l2Promotion, int oobFill))hf_fn(HF_SYM_cuTensorMapEncodeTiled))(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, boxDim, elementStrides, interleave, swizzle, l2Promotion, oobFill);
}
static inline CUresult real_cuTensorMapReplaceAddress(void *tensorMap, void *globalAddress)
{
	return ((CUresult (*)(void *tensorMap, void *globalAddress))hf_fn(HF_SYM_cuTensorMapReplaceAddress))(tensorMap, globalAddress);
}
static inline CUresult real_cuTexObjectCreate(void *pTexObject, void *pResDesc, void *pTexDesc, void *pResViewDesc)
{
	return ((CUresult (*)(void *pTexObject, void *pResDesc, void *pTexDesc, void *pResViewDesc))hf_fn(HF_SYM_cuTexObjectCreate))(pTexObject, pResDesc, pTexDesc, pResViewDesc);
}
static inline CUresult real_cuTexObjectDestroy(unsigned long long texObject)
{
	return ((CUresult (*)(unsigned long long texObject))hf_fn(HF_SYM_cuTexObjectDestroy))(texObject);
}
static inline CUresult real_cuTexObjectGetResourceDesc(void *pResDesc, unsigned long long texObject)
{
	return ((CUresult (*)(void *pResDesc, unsigned long long texObject))hf_fn(HF_SYM_cuTexObjectGetResourceDesc))(pResDesc, texObject);
}
static inline CUresult real_cuTexObjectGetResourceViewDesc(void *pResViewDesc, unsigned long long texObject)
{
	return ((CUresult (*)(void *pResViewDesc, unsigned long long texObject))hf_fn(HF_SYM_cuTexObjectGetResourceViewDesc))(pResViewDesc, texObject);
}
static inline CUresult real_cuTexObjectGetTextureDesc(void *pTexDesc, unsigned long long texObject)
{
	return ((CUresult (*)(void *pTexDesc, unsigned long long texObject))hf_fn(HF_SYM_cuTexObjectGetTextureDesc))(pTexDesc, texObject);
}
static inline CUresult real_cuTexRefCreate(void *pTexRef)
{
	return ((CUresult (*)(void *pTexRef))hf_fn(HF_SYM_cuTexRefCreate))(pTexRef);
}
static inline CUresult real_cuTexRefDestroy(void *hTexRef)
{
	return ((CUresult (*)(void *hTexRef))hf_fn(HF_SYM_cuTexRefDestroy))(hTexRef);
}
static inline CUresult real_cuTexRefGetAddressMode(void *pam, void *hTexRef, int dim)
{
	return ((CUresult (*)(void *pam, void *hTexRef, int dim))hf_fn(HF_SYM_cuTexRefGetAddressMode))(pam, hTexRef, dim);
}
static inline CUresult real_cuTexRefGetAddress_v2(void *pdptr, void *hTexRef)
{
	return ((CUresult (*)(void *pdptr, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetAddress_v2))(pdptr, hTexRef);
}
static inline CUresult real_cuTexRefGetArray(void *phArray, void *hTexRef)
{
	return ((CUresult (*)(void *phArray, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetArray))(phArray, hTexRef);
}
static inline CUresult real_cuTexRefGetBorderColor(void *pBorderColor, void *hTexRef)
{
	return ((CUresult (*)(void *pBorderColor, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetBorderColor))(pBorderColor, hTexRef);
}
static inline CUresult real_cuTexRefGetFilterMode(void *pfm, void *hTexRef)
{
	return ((CUresult (*)(void *pfm, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetFilterMode))(pfm, hTexRef);
}
static inline CUresult real_cuTexRefGetFlags(void *pFlags, void *hTexRef)
{
	return ((CUresult (*)(void *pFlags, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetFlags))(pFlags, hTexRef);
}
static inline CUresult real_cuTexRefGetFormat(void *pFormat, void *pNumChannels, void *hTexRef)
{
	return ((CUresult (*)(void *pFormat, void *pNumChannels, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetFormat))(pFormat, pNumChannels, hTexRef);
}
static inline CUresult real_cuTexRefGetMaxAnisotropy(void *pmaxAniso, void *hTexRef)
{
	return ((CUresult (*)(void *pmaxAniso, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetMaxAnisotropy))(pmaxAniso, hTexRef);
}
static inline CUresult real_cuTexRefGetMipmapFilterMode(void *pfm, void *hTexRef)
{
	return ((CUresult (*)(void *pfm, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetMipmapFilterMode))(pfm, hTexRef);
}
static inline CUresult real_cuTexRefGetMipmapLevelBias(void *pbias, void *hTexRef)
{
	return ((CUresult (*)(void *pbias, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetMipmapLevelBias))(pbias, hTexRef);
}
static inline CUresult real_cuTexRefGetMipmapLevelClamp(void *pminMipmapLevelClamp, void *pmaxMipmapLevelClamp, void *hTexRef)
{
	return ((CUresult (*)(void *pminMipmapLevelClamp, void *pmaxMipmapLevelClamp, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetMipmapLevelClamp))(pminMipmapLevelClamp, pmaxMipmapLevelClamp, hTexRef);
}
static inline CUresult real_cuTexRefGetMipmappedArray(void *phMipmappedArray, void *hTexRef)
{
	return ((CUresult (*)(void *phMipmappedArray, void *hTexRef))hf_fn(HF_SYM_cuTexRefGetMipmappedArray))(phMipmappedArray, hTexRef);
}
static inline CUresult real_cuTexRefSetAddress2D_v3(void *hTexRef, void *desc, CUdeviceptr dptr, size_t Pitch)
{
	return ((CUresult (*)(void *hTexRef, void *desc, CUdeviceptr dptr, size_t Pitch))hf_fn(HF_SYM_cuTexRefSetAddress2D_v3))(hTexRef, desc, dptr, Pitch);
}
static inline CUresult real_cuTexRefSetAddressMode(void *hTexRef, int dim, int am)
{
	return ((CUresult (*)(void *hTexRef, int dim, int am))hf_fn(HF_SYM_cuTexRefSetAddressMode))(hTexRef, dim, am);
}
static inline CUresult real_cuTexRefSetAddress_v2(void *ByteOffset, void *hTexRef, CUdeviceptr dptr, size_t bytes)
{
	return ((CUresult (*)(void *ByteOffset, void *hTexRef, CUdeviceptr dptr, size_t bytes))hf_fn(HF_SYM_cuTexRefSetAddress_v2))(ByteOffset, hTexRef, dptr, bytes);
}
static inline CUresult real_cuTexRefSetArray(void *hTexRef, void *hArray, unsigned int Flags)
{
	return ((CUresult (*)(void *hTexRef, void *hArray, unsigned int Flags))hf_fn(HF_SYM_cuTexRefSetArray))(hTexRef, hArray, Flags);
}
static inline CUresult real_cuTexRefSetBorderColor(void *hTexRef, void *pBorderColor)
{
	return ((CUresult (*)(void *hTexRef, void *pBorderColor))hf_fn(HF_SYM_cuTexRefSetBorderColor))(hTexRef, pBorderColor);
}
static inline CUresult real_cuTexRefSetFilterMode(void *hTexRef, int fm)
{
	return ((CUresult (*)(void *hTexRef, int fm))hf_fn(HF_SYM_cuTexRefSetFilterMode))(hTexRef, fm);
}
static inline CUresult real_cuTexRefSetFlags(void *hTexRef, unsigned int Flags)
{
	return ((CUresult (*)(void *hTexRef, unsigned int Flags))hf_fn(HF_SYM_cuTexRefSetFlags))(hTexRef, Flags);
}
static inline CUresult real_cuTexRefSetFormat(void *hTexRef, int fmt, int NumPackedComponents)
{
	return ((CUresult (*)(void *hTexRef, int fmt, int NumPackedComponents))hf_fn(HF_SYM_cuTexRefSetFormat))(hTexRef, fmt, NumPackedComponents);
}
static inline CUresult real_cuTexRefSetMaxAnisotropy(void *hTexRef, unsigned int maxAniso)
{
	return ((CUresult (*)(void *hTexRef, unsigned int maxAniso))hf_fn(HF_SYM_cuTexRefSetMaxAnisotropy))(hTexRef, maxAniso);
}
static inline CUresult real_cuTexRefSetMipmapFilterMode(void *hTexRef, int fm)
{
	return ((CUresult (*)(void *hTexRef, int fm))hf_fn(HF_SYM_cuTexRefSetMipmapFilterMode))(hTexRef, fm);
}
static inline CUresult real_cuTexRefSetMipmapLevelBias(void *hTexRef, float bias)
{
	return ((CUresult (*)(void *hTexRef, float bias))hf_fn(HF_SYM_cuTexRefSetMipmapLevelBias))(hTexRef, bias);
}
static inline CUresult real_cuTexRefSetMipmapLevelClamp(void *hTexRef, float minMipmapLevelClamp, float maxMipmapLevelClamp)
{
	return ((CUresult (*)(void *hTexRef, float minMipmapLevelClamp, float maxMipmapLevelClamp))hf_fn(HF_SYM_cuTexRefSetMipmapLevelClamp))(hTexRef, minMipmapLevelClamp, maxMipmapLevelClamp);
}
static inline CUresult real_cuTexRefSetMipmappedArray(void *hTexRef, void *hMipmappedArray, unsigned int Flags)
{
	return ((CUresult (*)(void *hTexRef, void *hMipmappedArray, unsigned int Flags))hf_fn(HF_SYM_cuTexRefSetMipmappedArray))(hTexRef, hMipmappedArray, Flags);
}
static inline CUresult real_cuThreadExchangeStreamCaptureMode(void *mode)
{
	return ((CUresult (*)(void *mode))hf_fn(HF_SYM_cuThreadExchangeStreamCaptureMode))(mode);
}
static inline CUresult real_cuUserObjectCreate(void *object_out, void *ptr, void *destroy, unsigned int initialRefcount, unsigned int flags)
{
	return ((CUresult (*)(void *object_out, void *ptr, void *destroy, unsigned int initialRefcount, unsigned int flags))hf_fn(HF_SYM_cuUserObjectCreate))(object_out, ptr, destroy, initialRefcount, flags);
}
static inline CUresult real_cuUserObjectRelease(void *object, unsigned int count)
{
	return ((CUresult (*)(void *object, unsigned int count))hf_fn(HF_SYM_cuUserObjectRelease))(object, count);
}
static inline CUresult real_cuUserObjectRetain(void *object, unsigned int count)
{
	return ((CUresult (*)(void *object, unsigned int count))hf_fn(HF_SYM_cuUserObjectRetain))(object, count);
}
static inline CUresult real_cuVDPAUCtxCreate_v2(void *pCtx, unsigned int flags, int device, unsigned int vdpDevice, void *vdpGetProcAddress)
{
	return ((CUresult (*)(void *pCtx, unsigned int flags, int device, unsigned int vdpDevice, void *vdpGetProcAddress))hf_fn(HF_SYM_cuVDPAUCtxCreate_v2))(pCtx, flags, device, vdpDevice, vdpGetProcAddress);
}
static inline CUresult real_cuVDPAUGetDevice(void *pDevice, unsigned int vdpDevice, void *vdpGetProcAddress)
{
	return ((CUresult (*)(void *pDevice, unsigned int vdpDevice, void *vdpGetProcAddress))hf_fn(HF_SYM_cuVDPAUGetDevice))(pDevice, vdpDevice, vdpGetProcAddress);
}
static inline CUresult real_cuWaitExternalSemaphoresAsync(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	return ((CUresult (*)(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream))hf_fn(HF_SYM_cuWaitExternalSemaphoresAsync))(extSemArray, paramsArray, numExtSems, stream);
}
static inline CUresult real_cuWaitExternalSemaphoresAsync_ptsz(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream)
{
	return ((CUresult (*)(void *extSemArray, void *paramsArray, unsigned int numExtSems, void *stream))hf_fn(HF_SYM_cuWaitExternalSemaphoresAsync_ptsz))(extSemArray, paramsArray, numExtSems, stream);
}

/* answered by hand-written code */
CUresult hf_cuArray3DCreate_v2(void *pHandle, void *pAllocateArray);
CUresult hf_cuArrayCreate_v2(void *pHandle, void *pAllocateArray);
CUresult hf_cuCtxCreate_v2(void *pctx, unsigned int flags, int dev);
CUresult hf_cuCtxCreate_v3(void *pctx, void *paramsArray, int numParams, unsigned int flags, int dev);
CUresult hf_cuCtxCreate_v4(void *pctx, void *ctxCreateParams, unsigned int flags, int dev);
CUresult hf_cuCtxDestroy(void *ctx);
CUresult hf_cuCtxDestroy_v2(void *ctx);
CUresult hf_cuCtxDisablePeerAccess(void *peerContext);
CUresult hf_cuCtxEnablePeerAccess(void *peerContext, unsigned int Flags);
CUresult hf_cuDevicePrimaryCtxRelease(int dev);
CUresult hf_cuDevicePrimaryCtxRelease_v2(int dev);
CUresult hf_cuDevicePrimaryCtxReset(int dev);
CUresult hf_cuDevicePrimaryCtxReset_v2(int dev);
CUresult hf_cuDevicePrimaryCtxRetain(void *pctx, int dev);
CUresult hf_cuDeviceSetMemPool(int dev, void *pool);
CUresult hf_cuGetProcAddress(void *symbol, void *pfn, int cudaVersion, unsigned long long flags);
CUresult hf_cuGetProcAddress_v2(void *symbol, void *pfn, int cudaVersion, unsigned long long flags, void *symbolStatus);
CUresult hf_cuGraphAddMemAllocNode(void *phGraphNode, void *hGraph, void *dependencies, size_t numDependencies, void *nodeParams);
CUresult 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(void *hGraphExec, void *hNode, void *nodeParams);
CUresult 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(void *hGraphExec, void *hNode, void *childGraph);
CUresult hf_cuGraphExecDestroy(void *hGraphExec);
CUresult hf_cuGraphExecKernelNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams);
CUresult hf_cuGraphExecKernelNodeSetParams_v2(void *hGraphExec, void *hNode, void *nodeParams);
CUresult hf_cuGraphExecMemcpyNodeSetParams(void *hGraphExec, void *hNode, void *copyParams, void *ctx);
CUresult hf_cuGraphExecMemsetNodeSetParams(void *hGraphExec, void *hNode, void *memsetParams, void *ctx);
CUresult hf_cuGraphExecNodeSetParams(void *hGraphExec, void *hNode, void *nodeParams);
CUresult hf_cuGraphExecUpdate(void *hGraphExec, void *hGraph, void *hErrorNode_out, void *updateResult_out);
CUresult hf_cuGraphExecUpdate_v2(void *hGraphExec, void *hGraph, void *resultInfo);
CUresult hf_cuGraphInstantiate(void *phGraphExec, void *hGraph, void *phErrorNode, void *logBuffer, size_t bufferSize);
CUresult hf_cuGraphInstantiateWithFlags(void *phGraphExec, void *hGraph, unsigned long long flags);
CUresult hf_cuGraphInstantiateWithParams(void *phGraphExec, void *hGraph, void *instantiateParams);
CUresult hf_cuGraphInstantiate_v2(void *phGraphExec, void *hGraph, void *phErrorNode, void *logBuffer, size_t bufferSize);
CUresult hf_cuGraphicsMapResources(unsigned int count, void *resources, void *hStream);
CUresult hf_cuGreenCtxCreate(void *phCtx, void *desc, int dev, unsigned int flags);
CUresult hf_cuImportExternalMemory(void *extMem_out, void *memHandleDesc);
CUresult hf_cuImportExternalSemaphore(void *extSem_out, void *semHandleDesc);
CUresult hf_cuInit(unsigned int Flags);
CUresult hf_cuIpcGetEventHandle(void *pHandle, void *event);
CUresult hf_cuIpcGetMemHandle(void *pHandle, CUdeviceptr dptr);
CUresult hf_cuIpcOpenEventHandle(void *phEvent, CUipcEventHandle handle);
CUresult hf_cuIpcOpenMemHandle_v2(void *pdptr, CUipcMemHandle handle, unsigned int Flags);
CUresult hf_cuKernelGetFunction(void *pFunc, void *kernel);
CUresult hf_cuLibraryEnumerateKernels(void *kernels, unsigned int numKernels, void *lib);
CUresult hf_cuLibraryGetGlobal(void *dptr, void *bytes, void *library, void *name);
CUresult hf_cuLibraryGetKernel(void *pKernel, void *library, void *name);
CUresult hf_cuLibraryGetManaged(void *dptr, void *bytes, void *library, void *name);
CUresult hf_cuLibraryGetModule(void *pMod, void *library);
CUresult hf_cuLibraryLoadData(void *library, void *code, void *jitOptions, void *jitOptionsValues, unsigned int numJitOptions, void *libraryOptions, void *libraryOptionValues, unsigned int numLibraryOptions);
CUresult hf_cuLibraryLoadFromFile(void *library, void *fileName, void *jitOptions, void *jitOptionsValues, unsigned int numJitOptions, void *libraryOptions, void *libraryOptionValues, unsigned int numLibraryOptions);
CUresult hf_cuLibraryUnload(void *library);
CUresult hf_cuMemAllocAsync(void *dptr, size_t bytesize, void *hStream);
CUresult hf_cuMemAllocFromPoolAsync(void *dptr, size_t bytesize, void *pool, void *hStream);
CUresult hf_cuMemAllocManaged(void *dptr, size_t bytesize, unsigned int flags);
CUresult hf_cuMemAllocPitch_v2(void *dptr, void *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes);
CUresult hf_cuMemAlloc_v2(void *dptr, size_t bytesize);
CUresult hf_cuMemCreate(void *handle, size_t size, void *prop, unsigned long long flags);
CUresult hf_cuMemExportToShareableHandle(void *shareableHandle, CUhandle handle, int handleType, unsigned long long flags);
CUresult hf_cuMemFreeAsync(CUdeviceptr dptr, void *hStream);
CUresult hf_cuMemFree_v2(CUdeviceptr dptr);
CUresult hf_cuMemGetAddressRange_v2(void *pbase, void *psize, CUdeviceptr dptr);
CUresult hf_cuMemGetAllocationPropertiesFromHandle(void *prop, CUhandle handle);
CUresult hf_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, int handleType, unsigned long long flags);
CUresult hf_cuMemGetInfo_v2(void *free, void *total);
CUresult hf_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags);
CUresult hf_cuMemHostUnregister(void *p);
CUresult hf_cuMemImportFromShareableHandle(void *handle, void *osHandle, int shHandleType);
CUresult hf_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUhandle handle, unsigned long long flags);
CUresult hf_cuMemPoolCreate(void *pool, void *poolProps);
CUresult hf_cuMemPoolDestroy(void *pool);
CUresult hf_cuMemPoolExportToShareableHandle(void *handle_out, void *pool, int handleType, unsigned long long flags);
CUresult hf_cuMemPoolGetAttribute(void *pool, int attr, void *value);
CUresult 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(void *pool_out, void *handle, int handleType, unsigned long long flags);
CUresult hf_cuMemPoolSetAccess(void *pool, void *map, size_t count);
CUresult hf_cuMemPoolSetAttribute(void *pool, int attr, void *value);
CUresult hf_cuMemPoolTrimTo(void *pool, size_t minBytesToKeep);
CUresult hf_cuMemRelease(CUhandle handle);
CUresult hf_cuMemRetainAllocationHandle(void *handle, void *addr);
CUresult hf_cuMemSetAccess(CUdeviceptr ptr, size_t size, void *desc, size_t count);
CUresult hf_cuMemUnmap(CUdeviceptr ptr, size_t size);
CUresult hf_cuMipmappedArrayCreate(void *pHandle, void *pMipmappedArrayDesc, unsigned int numMipmapLevels);
CUresult hf_cuModuleGetFunction(void *hfunc, void *hmod, void *name);
CUresult hf_cuModuleGetGlobal_v2(void *dptr, void *bytes, void *hmod, void *name);
CUresult hf_cuModuleLoad(void *module, void *fname);
CUresult hf_cuModuleLoadData(void *module, void *image);
CUresult hf_cuModuleLoadDataEx(void *module, void *image, unsigned int numOptions, void *options, void *optionValues);
CUresult hf_cuModuleLoadFatBinary(void *module, void *fatCubin);
CUresult hf_cuModuleUnload(void *hmod);
CUresult hf_cuMulticastBindMem(CUhandle mcHandle, size_t mcOffset, CUhandle memHandle, size_t memOffset, size_t size, unsigned long long flags);
CUresult hf_cuMulticastCreate(void *mcHandle, void *prop);
CUresult hf_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr);
CUresult hf_cuPointerGetAttributes(unsigned int numAttributes, void *attributes, void *data, CUdeviceptr ptr);
CUresult hf_cuStreamBeginCapture(void *hStream);
CUresult hf_cuStreamBeginCaptureToGraph(void *hStream, void *hGraph, void *dependencies, void *dependencyData, size_t numDependencies, int mode);
CUresult hf_cuStreamBeginCapture_v2(void *hStream, int mode);
CUresult hf_cuStreamDestroy_v2(void *hStream);
CUresult hf_cuStreamEndCapture(void *hStream, void *phGraph);

#endif
