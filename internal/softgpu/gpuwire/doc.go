// Package gpuwire is the framing of the protocol between the stub libcuda.so.1
// (C, inside CUDA programs) and the software GPU process. This comment is the
// protocol's normative text; stub/ follows it. The package imports the
// standard library and x/sys/unix only, and neither the device nor the executor.
//
// # Transport
//
// A unix SOCK_STREAM socket: $HOLDFAST_SOFTGPU_SOCKET, else
// $HOLDFAST_DIR/gpu.sock. All numbers are little endian. A program has one
// control connection and one further connection for each thread that calls the
// driver. Requests on a connection are answered in order, one at a time.
//
//	request: u32 magic 'HFG1' (0x31474648); u32 op; u32 nargs; u32 nfds; u64 payload;
//	         u64 args[nargs]; u8 payload[payload]
//	reply:   i32 status (CUresult); u32 nouts; u32 nfds; u32 zero; u64 payload;
//	         u64 outs[nouts]; u8 payload[payload]
//
// nargs, nouts ≤ 64, nfds ≤ 8, payload ≤ 1 GiB; more closes the connection.
// Descriptors travel by SCM_RIGHTS with the first byte of their message (the
// sender writes them with the sendmsg that carries the header). The receiver
// sets close-on-exec. A receiver that may have no more descriptors gets none of those of a message: a request of
// which that is so is answered 304 (CUDA_ERROR_OPERATING_SYSTEM), a reply is the end of that call. The connection
// stays. Senders split big copies; 16 MiB a message is a good size.
//
// # Regular functions
//
// op is the number of the API function's base name (no _v2, _ptsz, _ptds suffix)
// in internal/cuda/api. Names marked irregular below are never sent; the stub
// sends the internal operation instead.
//
//   - args: the C parameters in order, without those that are pure outputs and
//     without those that go to the payload. Scalars, handles, device pointers, enums
//     and function pointers are widened to u64 (signed ones sign-extended; floats as
//     bits). An in-out scalar is an arg and an out.
//   - payload: each input string (without its NUL), struct and array in parameter
//     order as a blob: u64 length in bytes, then the bytes, no padding. Structs are
//     the raw bytes of the x86-64 C struct. A null pointer is the length
//     0xffff_ffff_ffff_ffff and no bytes. An array's count parameter stays in args
//     as well.
//   - outs: the output scalars and handles in C order, all of them, whether or not
//     the caller passed null.
//   - reply payload: output strings, structs and arrays in C order as blobs. For an
//     output array with a capacity the server sends every element, the full count
//     stands in outs where the function has a count output, and the stub copies at
//     most the capacity, which stays in args if it is a by-value or in-out parameter.
//   - void* outputs whose size depends on an attribute (cuPointerGetAttribute,
//     cuMemPoolGetAttribute, cuStreamGetAttribute, …) are blobs of the right size; as
//     inputs (cuMemPoolSetAttribute) they are blobs: 4 bytes for pool attributes 1–3, 8
//     for the others; 64 for CUstreamAttrValue and CUkernelNodeAttrValue.
//   - const char* outputs (cuFuncGetName, cuKernelGetName) are blobs; the stub keeps
//     an interned copy for ever.
//   - Fixed-size outputs such as CUuuid are blobs.
//
// Stream arguments: 0 is the legacy default stream, 1 CU_STREAM_LEGACY, 2
// CU_STREAM_PER_THREAD. For the _ptsz and _ptds variants the stub replaces 0
// (and the implied stream of synchronous calls) by 2.
//
// A reply with a status other than 0 has no outs and no payload unless stated.
// Operations the server does not know reply 801 (CUDA_ERROR_NOT_SUPPORTED) and
// are counted by number.
//
// Answered by the stub without the server: cuGetErrorName, cuGetErrorString,
// cuGetProcAddress, cuDriverGetVersion, cuGetExportTable (not found), cuProfilerStart
// and cuProfilerStop (success).
//
// The stub reads files: cuModuleLoad and cuLibraryLoadFromFile become the internal
// operations with the file's bytes.
//
// Base names that stand for several C signatures:
//
//	cuCtxCreate(flags, dev) → ctx      (v3, v4: affinity and cig parameters must be null, else 801 from the stub)
//	cuGraphInstantiate(graph, flags) → exec        (v1, v2, WithFlags, WithParams; WithParams: result_out,
//	                                hErrNode_out cleared; its hUploadStream is ignored)
//	cuGraphExecUpdate(exec, graph) → result, errorNode, errorFromNode     (v1 and v2)
//	cuStreamBeginCapture(stream, mode)
//	cuStreamGetCaptureInfo(stream) → status, id, graph, numDependencies; blob u64 deps[]
//	                                (v1 to v3; edge data are zero)
//	cuStreamUpdateCaptureDependencies(stream, numDependencies, flags); blob deps
//	cuGraphAddDependencies, cuGraphRemoveDependencies(graph, n); blobs from[], to[]
//	cuGraphGetEdges(graph) → n; blobs from[], to[]
//	cuGraphGetNodes(graph) → n; blob; the same for RootNodes;
//	                                cuGraphNodeGetDependencies, …DependentNodes(node) → n; blob
//	cuGraphAddEmptyNode(graph, n) blob deps → node; ChildGraphNode(graph, n, child), EventRecordNode(graph, n, event),
//	                                EventWaitNode(graph, n, event) likewise
//	cuGraphAddMemsetNode(graph, n, ctx); blobs deps[], CUDA_MEMSET_NODE_PARAMS (v1, 40 bytes) → node
//	cuGraphAddHostNode(graph, n, fn, userData); blob deps[] → node
//	cuGraphMemsetNodeGetParams(node); blob; …SetParams(node); blob.
//	                                cuGraphExecMemsetNodeSetParams(exec, node, ctx); blob
//	cuGraphHostNodeGetParams(node) → fn, userData; …SetParams(node, fn, userData);
//	                                cuGraphExecHostNodeSetParams(exec, node, fn, userData)
//	cuGraphAddNode: the stub dispatches on the node type to the above
//	cuCheckpointProcessLock(pid, timeoutMs); …Checkpoint(pid); …Restore(pid); …Unlock(pid); …GetState(pid) → state;
//	                                …GetRestoreThreadId(pid) → tid
//	cuPointerGetAttribute(attribute, ptr); reply blob of the attribute's size. cuPointerGetAttributes(n, ptr);
//	                                blob u32 attrs[n]; reply n blobs
//	cuMemExportToShareableHandle(handle, type, flags) → reply carries 1 descriptor
//	cuMemImportFromShareableHandle(type), request carries 1 descriptor → handle
//	cuMemPoolExportToShareableHandle, cuMemPoolImportFromShareableHandle: likewise, of a pool
//	cuMemAllocFromPoolAsync(size, pool, stream) → ptr
//	cuGraphAddMemAllocNode(graph, n); blobs deps[], CUDA_MEM_ALLOC_NODE_PARAMS → node; reply blob: the same with dptr
//	cuOccupancyMaxPotentialBlockSize(func, dynamicSMem, limit) → minGrid, block    (WithFlags: flags ignored; a
//	                                non-null size function: the stub calls it for block size 1024, or limit, and sends
//	                                the result as dynamicSMem)
//	cuOccupancyMaxActiveBlocksPerMultiprocessor(func, blockSize, dynamicSMem) → n  (WithFlags: same operation)
//	cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxActiveClusters(func, gx…bz, shared bytes);
//	                                blob CUlaunchAttribute[] → n
//	cuTensorMapEncodeTiled(type, rank, address, interleave, swizzle, L2 promotion, fill); blobs u64 dim[rank],
//	                                u64 strides[rank-1], u32 box[rank], u32 steps[rank]; reply blob CUtensorMap
//	cuTensorMapEncodeIm2col(the 7 of Tiled, channels, pixels); blobs dim[], strides[], s32 lower[rank-2],
//	                                s32 upper[rank-2], u32 steps[rank]
//	cuTensorMapReplaceAddress(address); blob CUtensorMap; reply blob: the same with the address
//	cuLinkCreate() → state; cuLinkAddData(state, type); blobs image, name; reply blob error log (also on failure).
//	                                cuLinkAddFile is cuLinkAddData. cuLinkComplete(state); reply blobs error log (also
//	                                on failure), linked image
//	cuTexObjectCreate(); blobs CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC, CUDA_RESOURCE_VIEW_DESC → object;
//	                                cuSurfObjectCreate(); blob CUDA_RESOURCE_DESC → object. The Get…Desc calls answer
//	                                with the blob.
//	cuArrayGetMemoryRequirements(array, device), cuMipmapped… likewise; reply blob CUDA_ARRAY_MEMORY_REQUIREMENTS
//	cuMemAdvise, cuMemPrefetchAsync, cuMem…BatchAsync but cuMemcpyBatchAsync: any arguments, accepted
//	cuEventRecord(event, stream)  (WithFlags: flags ignored)
//
// # Internal operations, program to server
//
// Numbers are the constants Op… in ops.go. "raw" means that the whole payload is the
// data, with no blob length before it.
//
//	HELLO(version=1, pid, tid, nonce, flags)  → server version, device count, VA low, VA size, total memory
//	     First message of every connection. nonce is a random number the stub draws when it
//	     initialises (again after exec; a forked child is not initialised). flags bit 0: control
//	     connection, bit 1 (with bit 0): resuming after a checkpoint. The peer's pid by SO_PEERCRED must be
//	     pid. A thread connection needs a control connection of the same pid and nonce. When the control
//	     connection ends, everything of the process goes.
//	STATS() → raw JSON
//	HOST_ALLOC(bytes, flags, kind) → id, mapped bytes; 1 descriptor (a memfd)
//	     For cuMemAllocHost (flags 0), cuMemHostAlloc, and cuMemAllocManaged (kind 1, flags as given). The stub maps
//	     the descriptor MAP_SHARED, sends HOST_PLACED, closes the descriptor and keeps (id, address, mapped bytes) in
//	     its table of pinned ranges, which is how it classifies pointers.
//	HOST_PLACED(id, address)
//	HOST_FREE(address)          cuMemFreeHost, or cuMemFree of a managed pointer; afterwards the stub unmaps
//	HOST_REFETCH(id) → mapped bytes; 1 descriptor (after a restore, see below)
//	     cuMemHostRegister(ptr, bytes, flags) and cuMemHostUnregister(ptr) are regular; registered memory stays
//	     pageable for the copy operations below and is not accessible to kernels.
//	MEMCPY(dst, src, dstkind, srckind, bytes, stream, flags)
//	     Every linear copy (HtoD, DtoH, DtoD, cuMemcpy, Peer; sync and Async). kind 0: pageable host memory, that is
//	     not in the table of pinned ranges and not in the device window; kind 1: an address the server knows. srckind
//	     0: the source bytes are the raw payload. dstkind 0: the destination bytes are the raw reply payload (empty
//	     when the stream is being captured: then the stub copies nothing). flags bit 0: asynchronous. Synchronous
//	     calls pass stream 0 (2 for _ptds).
//	     cuMemcpyBatchAsync is one MEMCPY after the other.
//	MEMCPY3D(dst, src, dstkind, srckind, width bytes, height, depth, dst pitch, dst height, src pitch, src height,
//	     stream, flags)
//	     Every 2D and 3D copy: the stub adds x, y and z offsets to dst and src. Pitch is bytes from row to row, height
//	     is rows from slice to slice. Pageable data travel packed (width × height × depth). A CUarray is pitched
//	     device memory:
//	ARRAY_LAYOUT(array) → address, pitch, rows of a slice, slices
//	MEMSET(dst, pitch, value, element bytes, width elements, height, stream, flags)
//	     Every cuMemset*; 1D ones have height 1, pitch 0.
//	MODULE_LOAD(); blobs image, u32 options[], u64 values[] → module; blobs info log, error log (also on failure)
//	     cuModuleLoad, LoadData, LoadDataEx, LoadFatBinary. The stub finds the image's end: PTX text to its NUL; ELF
//	     and fat binaries from their headers; a fatbin wrapper (magic 0x466243b1) is followed to its data.
//	     The logs are cut to the sizes in the options (4, 6) and carry no NUL; the stub writes them into the buffers
//	     (3, 5) and the number of bytes written into the size option's value.
//	LIBRARY_LOAD(); blobs image, u32 jit options[], u64 values[], u32 library options[], u64 values[] → library; blobs
//	     as MODULE_LOAD
//	FUNCTION_LAYOUT(function) → parameter count, parameter bytes; raw: u64 offset, u64 size for each
//	     function is a CUfunction or a CUkernel, everywhere.
//	LAUNCH(function, gx, gy, gz, bx, by, bz, shared bytes, stream, flags); blobs parameters, CUlaunchAttribute[] (raw,
//	     64 bytes + 8 each)
//	     cuLaunchKernel, cuLaunchKernelEx, cuLaunchCooperativeKernel (flags bit 0). parameters: packed by
//	     FUNCTION_LAYOUT from kernelParams, or the buffer of CU_LAUNCH_PARAM_BUFFER_POINTER. The reply does not wait
//	     for the kernel.
//	GRAPH_ADD_KERNEL(graph, n, function, gx…bz, shared bytes, flags); blobs deps[], parameters, attributes → node
//	GRAPH_KERNEL_GET(node) → function, gx…bz, shared bytes; blob parameters
//	     The stub builds kernelParams in storage it keeps for the node.
//	GRAPH_KERNEL_SET(node, function, gx…bz, shared bytes); blob parameters
//	GRAPH_EXEC_KERNEL_SET(exec, node, function, gx…bz, shared bytes); blob parameters
//	GRAPH_ADD_MEMCPY(graph, n, dst, src, dstkind, srckind, width, height, depth, dst pitch, dst height, src pitch,
//	     src height); blob deps → node
//	     Kinds as above; pageable memory is read and written when the graph runs (HOST_READ, HOST_WRITE).
//	GRAPH_MEMCPY_GET(node) → the 11 values from dst on
//	GRAPH_MEMCPY_SET(node, the 11 values); GRAPH_EXEC_MEMCPY_SET(exec, node, the 11 values)
//	RESTORE_PART() raw; RESTORE_COMMIT(); RESTORE_DONE(): see below
//
// # Control connection: server to program
//
// After HELLO (and the restore exchange) the roles turn round on the control
// connection: the server sends requests in the same framing, the stub's control thread
// executes them in order and sends a reply for each. The control thread blocks all signals and
// is named cuda-softgpu.
//
//	CALLBACK(kind, fn, userData, stream, status)    kind 0: fn(userData) (host function, host node);
//	     kind 1: fn(stream, status, userData) (cuStreamAddCallback). The reply is sent when fn has returned.
//	HOST_READ(address, bytes) → raw reply payload; HOST_WRITE(address) raw payload    pageable memory of graph copies
//	PRINT() raw: kernel printf output for the program's stdout (write to the stdio stream and flush it)
//	LOCK(timeout ms ≥ 1): take the call lock for writing, so that new driver calls wait and none is inside; reply 0,
//	     or 600 (CUDA_ERROR_NOT_READY) after the timeout. While it waits no other request is served, so the server
//	     asks with short timeouts, again and again: a call that is inside may wait for a callback.
//	UNLOCK(): release it
//	CHECKPOINT_PART() raw: append to the blob
//	CHECKPOINT_COMMIT(): park, see below
//
// # Checkpoint and restore
//
// Another process calls cuCheckpointProcess*(pid); the calling connection needs to be
// of the same user (or root). Order and states as the CUDA 12.8+ API has them:
// running → Lock → locked → Checkpoint → checkpointed → Restore → locked → Unlock → running.
//
// Checkpoint: the server completes the submitted work, serialises the process, sends
// CHECKPOINT_PART messages and then CHECKPOINT_COMMIT. The control thread, holding the call lock,
// keeps the blob in its heap; replaces each pinned range by private anonymous memory with the same bytes at
// the same address (build the copy beside it, then mremap MREMAP_FIXED over); closes all connections and
// descriptors of the stub except the control connection; renames itself to cuda-softgpu-p; replies 0; closes the
// control connection; and waits in sigwaitinfo for SIGRTMAX-2. If it cannot, it replies 304
// (CUDA_ERROR_OPERATING_SYSTEM) with the state unchanged. The server drops the process when the control connection ends
// and then answers the caller.
//
// Restore: the server finds the thread named cuda-softgpu-p in /proc/PID/task and sends it
// SIGRTMAX-2 (tgkill). The control thread connects (3 tries, 100 ms apart; as long as it may have no descriptor, 500),
// renames itself to cuda-softgpu, and sends
// HELLO (flags 3, same nonce), RESTORE_PART messages, RESTORE_COMMIT; then for each pinned range HOST_REFETCH(id): it
// writes the range's bytes into the descriptor and maps it MAP_SHARED|MAP_FIXED over the range; then RESTORE_DONE. Now
// the roles turn round; the call lock is still held until UNLOCK. If any step fails the stub closes the connection and
// parks again; nothing is lost. A thread that finds its connection's generation stale opens a new one with its tid: the
// server gives it back its context stack.
package gpuwire
