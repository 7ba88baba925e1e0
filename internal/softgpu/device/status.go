package device

import "fmt"

// A Status is a CUresult (cuda.h, CUDA 13.0).
type Status int32

// The results this package gives.
const (
	Success                 Status = 0
	InvalidValue            Status = 1
	OutOfMemory             Status = 2
	NotInitialized          Status = 3
	InvalidDevice           Status = 101
	InvalidImage            Status = 200
	InvalidContext          Status = 201
	NoBinaryForGPU          Status = 209
	ContextAlreadyInUse     Status = 216
	InvalidPTX              Status = 218
	InvalidSource           Status = 300
	OperatingSystem         Status = 304
	InvalidHandle           Status = 400
	IllegalState            Status = 401
	NotFound                Status = 500
	NotReady                Status = 600
	IllegalAddress          Status = 700
	LaunchOutOfResources    Status = 701
	PeerAccessEnabled       Status = 704
	PeerAccessNotEnabled    Status = 705
	PrimaryContextActive    Status = 708
	ContextIsDestroyed      Status = 709
	Assert                  Status = 710
	HostMemoryAlready       Status = 712
	HostMemoryNotRegistered Status = 713
	IllegalInstruction      Status = 715
	MisalignedAddress       Status = 716
	InvalidAddressSpace     Status = 717
	InvalidPC               Status = 718
	LaunchFailed            Status = 719
	CooperativeTooLarge     Status = 720
	NotPermitted            Status = 800
	NotSupported            Status = 801
	CaptureUnsupported      Status = 900
	CaptureInvalidated      Status = 901
	CaptureMerge            Status = 902
	CaptureUnmatched        Status = 903
	CaptureUnjoined         Status = 904
	CaptureIsolation        Status = 905
	CaptureImplicit         Status = 906
	CapturedEvent           Status = 907
	CaptureWrongThread      Status = 908
	GraphExecUpdateFailure  Status = 910
	InvalidClusterSize      Status = 912
	Unknown                 Status = 999
)

func (s Status) String() string { return fmt.Sprintf("CUresult %d", int32(s)) }

func (s Status) Error() string { return s.String() }
