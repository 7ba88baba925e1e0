package cuda

import "time"

// Driver is the part of the CUDA driver API that the daemon uses. Every method is one driver function, named in its
// comment, and returns its failure as [*Error] (or [*UnsupportedError] when this driver has no such function).
//
// Methods that need a context use that of the calling OS thread: a goroutine that calls them locks its thread
// ([runtime.LockOSThread]) and calls SetContext first. All methods may be called from several threads at once.
type Driver interface {
	Devices
	Memory
	Execution
	Checkpointer
}

// Devices is what can be asked before there is a context, and the contexts themselves.
type Devices interface {
	Init() error                                             // cuInit; to be called first
	DriverVersion() (Version, error)                         // cuDriverGetVersion
	DeviceCount() (int, error)                               // cuDeviceGetCount
	DeviceGet(ordinal int) (Device, error)                   // cuDeviceGet
	DeviceName(dev Device) (string, error)                   // cuDeviceGetName
	DeviceUUID(dev Device) (UUID, error)                     // cuDeviceGetUuid_v2
	DeviceAttribute(attr Attribute, dev Device) (int, error) // cuDeviceGetAttribute
	DeviceTotalMem(dev Device) (uint64, error)               // cuDeviceTotalMem_v2
	DevicePCIBusID(dev Device) (string, error)               // cuDeviceGetPCIBusId
	// cuDevicePrimaryCtxSetFlags_v2(SCHED_BLOCKING_SYNC), cuDevicePrimaryCtxRetain
	PrimaryContextRetain(dev Device) (Context, error)
	PrimaryContextRelease(dev Device) error // cuDevicePrimaryCtxRelease_v2
	SetContext(ctx Context) error           // cuCtxSetCurrent
}

// Memory is the virtual memory API and pinned host memory.
type Memory interface {
	// cuMemGetInfo_v2, of the current context's device
	MemInfo() (free, total uint64, err error)
	// cuMemCreate, pinned device memory; exportable: as a POSIX file descriptor
	MemCreate(dev Device, size uint64, exportable bool) (Handle, error)
	MemRelease(h Handle) error                               // cuMemRelease
	MemExport(h Handle) (fd int, err error)                  // cuMemExportToShareableHandle; the caller owns fd
	MemImport(fd int) (Handle, error)                        // cuMemImportFromShareableHandle; fd stays the caller's
	AddressReserve(size uint64) (DevicePtr, error)           // cuMemAddressReserve
	AddressFree(p DevicePtr, size uint64) error              // cuMemAddressFree
	MemMap(p DevicePtr, size uint64, h Handle) error         // cuMemMap
	MemUnmap(p DevicePtr, size uint64) error                 // cuMemUnmap
	MemSetAccess(p DevicePtr, size uint64, dev Device) error // cuMemSetAccess, read and write
	HostAlloc(size int) ([]byte, error)                      // cuMemHostAlloc(PORTABLE)
	HostFree(mem []byte) error                               // cuMemFreeHost, of a whole HostAlloc result
}

// Execution is streams, copies and kernels. The copies and Launch return before the work is done.
// Host memory given to a copy is from HostAlloc and is left alone until the stream was synchronized.
type Execution interface {
	StreamCreate() (Stream, error) // cuStreamCreate(NON_BLOCKING)
	StreamDestroy(s Stream) error  // cuStreamDestroy_v2
	// cuStreamSynchronize; sleeps, as the context is BLOCKING_SYNC
	StreamSynchronize(s Stream) error
	StreamQuery(s Stream) (done bool, err error)                      // cuStreamQuery
	CopyDtoD(dst, src DevicePtr, size uint64, s Stream) error         // cuMemcpyDtoDAsync_v2
	CopyDtoH(dst []byte, src DevicePtr, s Stream) error               // cuMemcpyDtoHAsync_v2
	CopyHtoD(dst DevicePtr, src []byte, s Stream) error               // cuMemcpyHtoDAsync_v2
	SetD32(dst DevicePtr, value uint32, count uint64, s Stream) error // cuMemsetD32Async
	ModuleLoad(image []byte) (Module, error)                          // cuModuleLoadData, of PTX text
	ModuleUnload(m Module) error                                      // cuModuleUnload
	ModuleFunction(m Module, name string) (Function, error)           // cuModuleGetFunction
	// cuLaunchKernel, one-dimensional; every parameter is 8 bytes
	Launch(f Function, grid, block uint32, s Stream, args ...uint64) error
}

// Checkpointer is the driver's checkpoint of another process's contexts. It needs a driver ≥ 570 and no context.
type Checkpointer interface {
	CheckpointState(pid int) (ProcessState, error)        // cuCheckpointProcessGetState
	CheckpointRestoreThread(pid int) (tid int, err error) // cuCheckpointProcessGetRestoreThreadId
	CheckpointLock(pid int, timeout time.Duration) error  // cuCheckpointProcessLock; 0: no limit
	CheckpointSave(pid int) error                         // cuCheckpointProcessCheckpoint
	CheckpointRestore(pid int) error                      // cuCheckpointProcessRestore
	CheckpointUnlock(pid int) error                       // cuCheckpointProcessUnlock
}
