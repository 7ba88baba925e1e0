package cuda

import "fmt"

// Result is a CUresult.
type Result int32

// The results that a caller branches on. resultName has the rest.
const (
	Success           Result = 0   // CUDA_SUCCESS
	ErrInvalidValue   Result = 1   // CUDA_ERROR_INVALID_VALUE
	ErrOutOfMemory    Result = 2   // CUDA_ERROR_OUT_OF_MEMORY
	ErrNotInitialized Result = 3   // CUDA_ERROR_NOT_INITIALIZED
	ErrUnavailable    Result = 46  // CUDA_ERROR_DEVICE_UNAVAILABLE
	ErrNoDevice       Result = 100 // CUDA_ERROR_NO_DEVICE
	ErrInvalidDevice  Result = 101 // CUDA_ERROR_INVALID_DEVICE
	ErrInvalidContext Result = 201 // CUDA_ERROR_INVALID_CONTEXT
	ErrInvalidHandle  Result = 400 // CUDA_ERROR_INVALID_HANDLE
	ErrIllegalState   Result = 401 // CUDA_ERROR_ILLEGAL_STATE
	ErrNotFound       Result = 500 // CUDA_ERROR_NOT_FOUND
	ErrNotReady       Result = 600 // CUDA_ERROR_NOT_READY
	ErrIllegalAddress Result = 700 // CUDA_ERROR_ILLEGAL_ADDRESS
	ErrNotPermitted   Result = 800 // CUDA_ERROR_NOT_PERMITTED
	ErrNotSupported   Result = 801 // CUDA_ERROR_NOT_SUPPORTED
	ErrUnknown        Result = 999 // CUDA_ERROR_UNKNOWN
)

// resultName returns the name of r in cuda.h without its CUDA_ERROR_ prefix, or "".
func resultName(r Result) string {
	switch r {
	case 0:
		return "SUCCESS"
	case 1:
		return "INVALID_VALUE"
	case 2:
		return "OUT_OF_MEMORY"
	case 3:
		return "NOT_INITIALIZED"
	case 4:
		return "DEINITIALIZED"
	case 34:
		return "STUB_LIBRARY"
	case 36:
		return "CALL_REQUIRES_NEWER_DRIVER"
	case 46:
		return "DEVICE_UNAVAILABLE"
	case 100:
		return "NO_DEVICE"
	case 101:
		return "INVALID_DEVICE"
	case 102:
		return "DEVICE_NOT_LICENSED"
	case 200:
		return "INVALID_IMAGE"
	case 201:
		return "INVALID_CONTEXT"
	case 205:
		return "MAP_FAILED"
	case 206:
		return "UNMAP_FAILED"
	case 208:
		return "ALREADY_MAPPED"
	case 209:
		return "NO_BINARY_FOR_GPU"
	case 211:
		return "NOT_MAPPED"
	case 214:
		return "ECC_UNCORRECTABLE"
	case 215:
		return "UNSUPPORTED_LIMIT"
	case 216:
		return "CONTEXT_ALREADY_IN_USE"
	case 218:
		return "INVALID_PTX"
	case 220:
		return "NVLINK_UNCORRECTABLE"
	case 221:
		return "JIT_COMPILER_NOT_FOUND"
	case 222:
		return "UNSUPPORTED_PTX_VERSION"
	case 223:
		return "JIT_COMPILATION_DISABLED"
	case 226:
		return "CONTAINED"
	case 300:
		return "INVALID_SOURCE"
	case 301:
		return "FILE_NOT_FOUND"
	case 302:
		return "SHARED_OBJECT_SYMBOL_NOT_FOUND"
	case 303:
		return "SHARED_OBJECT_INIT_FAILED"
	case 304:
		return "OPERATING_SYSTEM"
	case 400:
		return "INVALID_HANDLE"
	case 401:
		return "ILLEGAL_STATE"
	case 500:
		return "NOT_FOUND"
	case 600:
		return "NOT_READY"
	case 700:
		return "ILLEGAL_ADDRESS"
	case 701:
		return "LAUNCH_OUT_OF_RESOURCES"
	case 702:
		return "LAUNCH_TIMEOUT"
	case 709:
		return "CONTEXT_IS_DESTROYED"
	case 712:
		return "HOST_MEMORY_ALREADY_REGISTERED"
	case 713:
		return "HOST_MEMORY_NOT_REGISTERED"
	case 714:
		return "HARDWARE_STACK_ERROR"
	case 715:
		return "ILLEGAL_INSTRUCTION"
	case 716:
		return "MISALIGNED_ADDRESS"
	case 717:
		return "INVALID_ADDRESS_SPACE"
	case 718:
		return "INVALID_PC"
	case 719:
		return "LAUNCH_FAILED"
	case 800:
		return "NOT_PERMITTED"
	case 801:
		return "NOT_SUPPORTED"
	case 802:
		return "SYSTEM_NOT_READY"
	case 803:
		return "SYSTEM_DRIVER_MISMATCH"
	case 804:
		return "COMPAT_NOT_SUPPORTED_ON_DEVICE"
	case 900:
		return "STREAM_CAPTURE_UNSUPPORTED"
	case 901:
		return "STREAM_CAPTURE_INVALIDATED"
	case 902:
		return "STREAM_CAPTURE_MERGE"
	case 903:
		return "STREAM_CAPTURE_UNMATCHED"
	case 904:
		return "STREAM_CAPTURE_UNJOINED"
	case 905:
		return "STREAM_CAPTURE_ISOLATION"
	case 906:
		return "STREAM_CAPTURE_IMPLICIT"
	case 907:
		return "CAPTURED_EVENT"
	case 908:
		return "STREAM_CAPTURE_WRONG_THREAD"
	case 909:
		return "TIMEOUT"
	case 910:
		return "GRAPH_EXEC_UPDATE_FAILURE"
	case 911:
		return "EXTERNAL_DEVICE"
	case 912:
		return "INVALID_CLUSTER_SIZE"
	case 913:
		return "FUNCTION_NOT_LOADED"
	case 999:
		return "UNKNOWN"
	}
	return ""
}

// String returns the name that cuda.h gives r.
func (r Result) String() string {
	switch n := resultName(r); {
	case r == Success:
		return "CUDA_SUCCESS"
	case n != "":
		return "CUDA_ERROR_" + n
	}
	return fmt.Sprintf("CUresult(%d)", int32(r))
}

// Error makes a result an error, so that errors.Is(err, cuda.ErrOutOfMemory) works on an [*Error].
func (r Result) Error() string { return r.String() }

// Error is a failed call of a driver function.
type Error struct {
	Call string // the function, with the arguments that tell what it was about: "cuMemCreate(size 0x200000)"
	Code Result
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v (%d)", e.Call, e.Code, int32(e.Code)) }

// Unwrap returns the result.
func (e *Error) Unwrap() error { return e.Code }

// Check returns nil for Success and otherwise an [*Error] for the call.
func Check(r Result, call string) error {
	if r == Success {
		return nil
	}
	return &Error{Call: call, Code: r}
}

// UnsupportedError says that the loaded driver library lacks a function.
type UnsupportedError struct {
	Call    string  // the function
	Needs   string  // what has it: "driver ≥ 570"
	Library string  // the library that was asked
	Version Version // what the library says it serves, 0 when unknown
}

func (e *UnsupportedError) Error() string {
	s := fmt.Sprintf("%s not supported by %s, needs %s", e.Call, e.Library, e.Needs)
	if e.Version != 0 {
		s += fmt.Sprintf(" (this one serves CUDA %v)", e.Version)
	}
	return s
}

// Is makes errors.Is(err, cuda.ErrNotSupported) hold, as for a driver that has the function and refuses it.
func (e *UnsupportedError) Is(target error) bool { return target == ErrNotSupported }
