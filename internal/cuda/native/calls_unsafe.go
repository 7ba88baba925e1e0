package native

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"holdfast/internal/cuda"
)

// Invariant of this file: Go memory reaches the driver only as uintptr(unsafe.Pointer(…)) written in the argument list
// of call, whose uintptrescapes directive keeps it alive and in place until the call returns, and the driver keeps no
// such pointer afterwards. Host memory of asynchronous copies was allocated by the driver (HostAlloc).

// call calls the function at fn and returns its CUresult.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) cuda.Result {
	r, _, _ := purego.SyscallN(fn, args...)
	return cuda.Result(int32(r))
}

// failed describes a failed call, the name formatted with its arguments.
func failed(r cuda.Result, format string, args ...any) error {
	if r == cuda.Success {
		return nil
	}
	return &cuda.Error{Call: fmt.Sprintf(format, args...), Code: r}
}

// Constants of cuda.h.
const (
	ctxSchedBlockingSync    = 4 // CU_CTX_SCHED_BLOCKING_SYNC
	memAllocationTypePinned = 1 // CU_MEM_ALLOCATION_TYPE_PINNED
	memHandleTypePOSIXFD    = 1 // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
	memLocationTypeDevice   = 1 // CU_MEM_LOCATION_TYPE_DEVICE
	memAccessReadWrite      = 3 // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	memHostAllocPortable    = 1 // CU_MEMHOSTALLOC_PORTABLE
	streamNonBlocking       = 1 // CU_STREAM_NON_BLOCKING
)

// memAllocationProp is CUmemAllocationProp_v1.
type memAllocationProp struct {
	Type                 int32
	RequestedHandleTypes int32
	Location             memLocation
	Win32HandleMetaData  uintptr
	AllocFlags           struct {
		CompressionType      uint8
		GPUDirectRDMACapable uint8
		Usage                uint16
		Reserved             [4]uint8
	}
}

// memLocation is CUmemLocation_v1.
type memLocation struct{ Type, ID int32 }

// memAccessDesc is CUmemAccessDesc_v1.
type memAccessDesc struct {
	Location memLocation
	Flags    int32
}

// checkpointLockArgs is CUcheckpointLockArgs.
type checkpointLockArgs struct {
	TimeoutMs uint32
	Reserved0 uint32
	Reserved1 [7]uint64
}

func (l *library) Init() error { return failed(call(l.init, 0), "cuInit") }

func (l *library) DriverVersion() (cuda.Version, error) {
	var v int32
	r := call(l.driverGetVersion, uintptr(unsafe.Pointer(&v)))
	return cuda.Version(v), failed(r, "cuDriverGetVersion")
}

func (l *library) DeviceCount() (int, error) {
	var n int32
	r := call(l.deviceGetCount, uintptr(unsafe.Pointer(&n)))
	return int(n), failed(r, "cuDeviceGetCount")
}

func (l *library) DeviceGet(ordinal int) (cuda.Device, error) {
	var dev cuda.Device
	r := call(l.deviceGet, uintptr(unsafe.Pointer(&dev)), uintptr(ordinal))
	return dev, failed(r, "cuDeviceGet(%d)", ordinal)
}

func (l *library) DeviceName(dev cuda.Device) (string, error) {
	var buf [256]byte
	r := call(l.deviceGetName, uintptr(unsafe.Pointer(&buf)), uintptr(len(buf)), uintptr(dev))
	return text(buf[:]), failed(r, "cuDeviceGetName(%d)", dev)
}

func (l *library) DevicePCIBusID(dev cuda.Device) (string, error) {
	var buf [32]byte
	r := call(l.deviceGetPCIBusID, uintptr(unsafe.Pointer(&buf)), uintptr(len(buf)), uintptr(dev))
	return text(buf[:]), failed(r, "cuDeviceGetPCIBusId(%d)", dev)
}

// text returns the C string at the start of buf.
func text(buf []byte) string {
	s, _, _ := bytes.Cut(buf, []byte{0})
	return string(s)
}

func (l *library) DeviceUUID(dev cuda.Device) (cuda.UUID, error) {
	var u cuda.UUID
	r := call(l.deviceGetUUID, uintptr(unsafe.Pointer(&u)), uintptr(dev))
	return u, failed(r, "cuDeviceGetUuid(%d)", dev)
}

func (l *library) DeviceAttribute(attr cuda.Attribute, dev cuda.Device) (int, error) {
	var v int32
	r := call(l.deviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(attr), uintptr(dev))
	return int(v), failed(r, "cuDeviceGetAttribute(%d, device %d)", attr, dev)
}

func (l *library) DeviceTotalMem(dev cuda.Device) (uint64, error) {
	var n uint64
	r := call(l.deviceTotalMem, uintptr(unsafe.Pointer(&n)), uintptr(dev))
	return n, failed(r, "cuDeviceTotalMem(%d)", dev)
}

func (l *library) PrimaryContextRetain(dev cuda.Device) (cuda.Context, error) {
	if r := call(l.primarySetFlags, uintptr(dev), ctxSchedBlockingSync); r != cuda.Success {
		return 0, failed(r, "cuDevicePrimaryCtxSetFlags(%d, blocking sync)", dev)
	}
	var ctx cuda.Context
	r := call(l.primaryRetain, uintptr(unsafe.Pointer(&ctx)), uintptr(dev))
	return ctx, failed(r, "cuDevicePrimaryCtxRetain(%d)", dev)
}

func (l *library) PrimaryContextRelease(dev cuda.Device) error {
	return failed(call(l.primaryRelease, uintptr(dev)), "cuDevicePrimaryCtxRelease(%d)", dev)
}

func (l *library) SetContext(ctx cuda.Context) error {
	return failed(call(l.ctxSetCurrent, uintptr(ctx)), "cuCtxSetCurrent")
}

func (l *library) MemInfo() (free, total uint64, err error) {
	r := call(l.memGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	return free, total, failed(r, "cuMemGetInfo")
}

func (l *library) MemCreate(dev cuda.Device, size uint64, exportable bool) (cuda.Handle, error) {
	prop := memAllocationProp{
		Type:     memAllocationTypePinned,
		Location: memLocation{memLocationTypeDevice, int32(dev)},
	}
	if exportable {
		prop.RequestedHandleTypes = memHandleTypePOSIXFD
	}
	var h cuda.Handle
	r := call(l.memCreate, uintptr(unsafe.Pointer(&h)), uintptr(size), uintptr(unsafe.Pointer(&prop)), 0)
	return h, failed(r, "cuMemCreate(%#x bytes on device %d)", size, dev)
}

func (l *library) MemRelease(h cuda.Handle) error {
	return failed(call(l.memRelease, uintptr(h)), "cuMemRelease(%#x)", h)
}

func (l *library) MemExport(h cuda.Handle) (int, error) {
	var fd int32 = -1
	r := call(l.memExport, uintptr(unsafe.Pointer(&fd)), uintptr(h), memHandleTypePOSIXFD, 0)
	return int(fd), failed(r, "cuMemExportToShareableHandle(%#x)", h)
}

func (l *library) MemImport(fd int) (cuda.Handle, error) {
	var h cuda.Handle
	r := call(l.memImport, uintptr(unsafe.Pointer(&h)), uintptr(fd), memHandleTypePOSIXFD)
	return h, failed(r, "cuMemImportFromShareableHandle(descriptor %d)", fd)
}

func (l *library) AddressReserve(size uint64) (cuda.DevicePtr, error) {
	var p cuda.DevicePtr
	r := call(l.addressReserve, uintptr(unsafe.Pointer(&p)), uintptr(size), 0, 0, 0)
	return p, failed(r, "cuMemAddressReserve(%#x bytes)", size)
}

func (l *library) AddressFree(p cuda.DevicePtr, size uint64) error {
	return failed(call(l.addressFree, uintptr(p), uintptr(size)), "cuMemAddressFree(%#x, %#x bytes)", p, size)
}

func (l *library) MemMap(p cuda.DevicePtr, size uint64, h cuda.Handle) error {
	return failed(call(l.memMap, uintptr(p), uintptr(size), 0, uintptr(h), 0),
		"cuMemMap(%#x, %#x bytes, handle %#x)", p, size, h)
}

func (l *library) MemUnmap(p cuda.DevicePtr, size uint64) error {
	return failed(call(l.memUnmap, uintptr(p), uintptr(size)), "cuMemUnmap(%#x, %#x bytes)", p, size)
}

func (l *library) MemSetAccess(p cuda.DevicePtr, size uint64, dev cuda.Device) error {
	desc := memAccessDesc{memLocation{memLocationTypeDevice, int32(dev)}, memAccessReadWrite}
	r := call(l.memSetAccess, uintptr(p), uintptr(size), uintptr(unsafe.Pointer(&desc)), 1)
	return failed(r, "cuMemSetAccess(%#x, %#x bytes, device %d)", p, size, dev)
}

func (l *library) HostAlloc(size int) ([]byte, error) {
	if size <= 0 {
		return nil, failed(cuda.ErrInvalidValue, "cuMemHostAlloc(%d bytes)", size)
	}
	var p unsafe.Pointer // memory of the driver, outside the Go heap
	r := call(l.memHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(size), memHostAllocPortable)
	if r != cuda.Success {
		return nil, failed(r, "cuMemHostAlloc(%#x bytes)", size)
	}
	return unsafe.Slice((*byte)(p), size), nil
}

func (l *library) HostFree(mem []byte) error {
	r := call(l.memFreeHost, uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	return failed(r, "cuMemFreeHost(%#x bytes)", len(mem))
}

func (l *library) StreamCreate() (cuda.Stream, error) {
	var s cuda.Stream
	r := call(l.streamCreate, uintptr(unsafe.Pointer(&s)), streamNonBlocking)
	return s, failed(r, "cuStreamCreate")
}

func (l *library) StreamDestroy(s cuda.Stream) error {
	return failed(call(l.streamDestroy, uintptr(s)), "cuStreamDestroy")
}

func (l *library) StreamSynchronize(s cuda.Stream) error {
	return failed(call(l.streamSynchronize, uintptr(s)), "cuStreamSynchronize")
}

func (l *library) StreamQuery(s cuda.Stream) (bool, error) {
	r := call(l.streamQuery, uintptr(s))
	if r == cuda.ErrNotReady {
		return false, nil
	}
	return r == cuda.Success, failed(r, "cuStreamQuery")
}

func (l *library) CopyDtoD(dst, src cuda.DevicePtr, size uint64, s cuda.Stream) error {
	r := call(l.copyDtoD, uintptr(dst), uintptr(src), uintptr(size), uintptr(s))
	return failed(r, "cuMemcpyDtoDAsync(%#x, %#x, %#x bytes)", dst, src, size)
}

func (l *library) CopyDtoH(dst []byte, src cuda.DevicePtr, s cuda.Stream) error {
	r := call(l.copyDtoH, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)), uintptr(s))
	return failed(r, "cuMemcpyDtoHAsync(from %#x, %#x bytes)", src, len(dst))
}

func (l *library) CopyHtoD(dst cuda.DevicePtr, src []byte, s cuda.Stream) error {
	r := call(l.copyHtoD, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)), uintptr(s))
	return failed(r, "cuMemcpyHtoDAsync(to %#x, %#x bytes)", dst, len(src))
}

func (l *library) SetD32(dst cuda.DevicePtr, value uint32, count uint64, s cuda.Stream) error {
	r := call(l.setD32, uintptr(dst), uintptr(value), uintptr(count), uintptr(s))
	return failed(r, "cuMemsetD32Async(%#x, %#x words)", dst, count)
}

func (l *library) ModuleLoad(image []byte) (cuda.Module, error) {
	z := append(bytes.Clone(image), 0) // PTX text is a C string
	var m cuda.Module
	r := call(l.moduleLoadData, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(unsafe.SliceData(z))))
	return m, failed(r, "cuModuleLoadData(%d bytes)", len(image))
}

func (l *library) ModuleUnload(m cuda.Module) error {
	return failed(call(l.moduleUnload, uintptr(m)), "cuModuleUnload")
}

func (l *library) ModuleFunction(m cuda.Module, name string) (cuda.Function, error) {
	z := append([]byte(name), 0)
	var f cuda.Function
	r := call(l.moduleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m),
		uintptr(unsafe.Pointer(unsafe.SliceData(z))))
	return f, failed(r, "cuModuleGetFunction(%s)", name)
}

func (l *library) Launch(f cuda.Function, grid, block uint32, s cuda.Stream, args ...uint64) error {
	// The driver reads the parameters through pointers in Go memory before it returns. Both slices are on the heap
	// (they escape through call) and outlive it.
	params := make([]unsafe.Pointer, len(args)+1)
	for i := range args {
		params[i] = unsafe.Pointer(&args[i])
	}
	r := call(l.launchKernel, uintptr(f), uintptr(grid), 1, 1, uintptr(block), 1, 1, 0, uintptr(s),
		uintptr(unsafe.Pointer(unsafe.SliceData(params))), 0)
	runtime.KeepAlive(args)
	return failed(r, "cuLaunchKernel(grid %d, block %d)", grid, block)
}

// unsupported is the answer of a checkpoint function that the library lacks.
func (l *library) unsupported(name string) error {
	v, _ := l.DriverVersion()
	return &cuda.UnsupportedError{Call: name, Needs: "driver ≥ 570", Library: l.path, Version: v}
}

func (l *library) CheckpointState(pid int) (cuda.ProcessState, error) {
	if l.cpGetState == 0 {
		return 0, l.unsupported("cuCheckpointProcessGetState")
	}
	var s cuda.ProcessState
	r := call(l.cpGetState, uintptr(pid), uintptr(unsafe.Pointer(&s)))
	return s, failed(r, "cuCheckpointProcessGetState(pid %d)", pid)
}

func (l *library) CheckpointRestoreThread(pid int) (int, error) {
	if l.cpGetThread == 0 {
		return 0, l.unsupported("cuCheckpointProcessGetRestoreThreadId")
	}
	var tid int32
	r := call(l.cpGetThread, uintptr(pid), uintptr(unsafe.Pointer(&tid)))
	return int(tid), failed(r, "cuCheckpointProcessGetRestoreThreadId(pid %d)", pid)
}

func (l *library) CheckpointLock(pid int, timeout time.Duration) error {
	if l.cpLock == 0 {
		return l.unsupported("cuCheckpointProcessLock")
	}
	var args checkpointLockArgs
	if timeout > 0 { // at least 1 ms: 0 means no limit
		args.TimeoutMs = uint32(min(max(timeout.Milliseconds(), 1), math.MaxUint32))
	}
	r := call(l.cpLock, uintptr(pid), uintptr(unsafe.Pointer(&args)))
	return failed(r, "cuCheckpointProcessLock(pid %d, timeout %v)", pid, timeout)
}

func (l *library) CheckpointSave(pid int) error {
	if l.cpCheckpoint == 0 {
		return l.unsupported("cuCheckpointProcessCheckpoint")
	}
	return failed(call(l.cpCheckpoint, uintptr(pid), 0), "cuCheckpointProcessCheckpoint(pid %d)", pid)
}

func (l *library) CheckpointRestore(pid int) error {
	if l.cpRestore == 0 {
		return l.unsupported("cuCheckpointProcessRestore")
	}
	return failed(call(l.cpRestore, uintptr(pid), 0), "cuCheckpointProcessRestore(pid %d)", pid)
}

func (l *library) CheckpointUnlock(pid int) error {
	if l.cpUnlock == 0 {
		return l.unsupported("cuCheckpointProcessUnlock")
	}
	return failed(call(l.cpUnlock, uintptr(pid), 0), "cuCheckpointProcessUnlock(pid %d)", pid)
}
