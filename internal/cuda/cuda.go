// Package cuda holds the types of the CUDA driver API and the part of it that the daemon uses, as an interface.
//
// It imports nothing but the standard library and touches no device. Package native implements [Driver] with a real
// libcuda (or the stub of the software GPU), package cudatest in Go memory for tests.
//
// Names and numbers are those of cuda.h, CUDA 13.0; each names the C declaration it stands for.
package cuda

import "fmt"

// DevicePtr is a device address (CUdeviceptr).
type DevicePtr uint64

// Handles of the driver. Zero is none (for Stream: the default stream).
type (
	Device   int32   // CUdevice
	Context  uintptr // CUcontext
	Stream   uintptr // CUstream
	Event    uintptr // CUevent
	Module   uintptr // CUmodule
	Function uintptr // CUfunction
	Handle   uint64  // CUmemGenericAllocationHandle
)

// UUID identifies a device (CUuuid).
type UUID [16]byte

// String returns the form that nvidia-smi prints.
func (u UUID) String() string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// Version is what cuDriverGetVersion returns: 1000·major + 10·minor of the newest CUDA that the driver serves.
type Version int

// String returns "major.minor".
func (v Version) String() string { return fmt.Sprintf("%d.%d", int(v)/1000, int(v)%1000/10) }

// Attribute is a CUdevice_attribute.
type Attribute int32

// The attributes that are asked for.
const (
	AttrMultiprocessorCount    Attribute = 16  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
	AttrAsyncEngineCount       Attribute = 40  // CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT
	AttrComputeCapabilityMajor Attribute = 75  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
	AttrComputeCapabilityMinor Attribute = 76  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
	AttrVirtualMemory          Attribute = 102 // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
	AttrHandleTypeFD           Attribute = 103 // CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
)

// ProcessState is a CUprocessState: where a process is in the driver's checkpoint cycle.
type ProcessState int32

// The states, in the order of a cycle.
const (
	ProcessRunning      ProcessState = 0 // CU_PROCESS_STATE_RUNNING
	ProcessLocked       ProcessState = 1 // CU_PROCESS_STATE_LOCKED
	ProcessCheckpointed ProcessState = 2 // CU_PROCESS_STATE_CHECKPOINTED
	ProcessFailed       ProcessState = 3 // CU_PROCESS_STATE_FAILED
)

// String returns the state as cuda-checkpoint prints it.
func (s ProcessState) String() string {
	switch s {
	case ProcessRunning:
		return "running"
	case ProcessLocked:
		return "locked"
	case ProcessCheckpointed:
		return "checkpointed"
	case ProcessFailed:
		return "failed"
	}
	return fmt.Sprintf("state %d", int32(s))
}
