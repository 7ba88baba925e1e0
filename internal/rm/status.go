package rm

import "fmt"

// A Status is an answer of the resource manager (nvstatuscodes.h); 0 is success.
type Status uint32

// The ones that a caller decides by, or that are met often.
const (
	StatusInsufficientPermissions Status = 0x1b
	StatusInvalidAddress          Status = 0x1e
	StatusNoMemory                Status = 0x51
	StatusNotSupported            Status = 0x56
	StatusAddressInUse            Status = 0x68
)

var statusNames = map[Status]string{
	0x02: "NV_ERR_BUFFER_TOO_SMALL", 0x03: "NV_ERR_BUSY_RETRY", 0x05: "NV_ERR_CARD_NOT_PRESENT",
	0x0f: "NV_ERR_GPU_IS_LOST", 0x12: "NV_ERR_GPU_UUID_NOT_FOUND", 0x16: "NV_ERR_ILLEGAL_ACTION",
	0x17: "NV_ERR_IN_USE", 0x1a: "NV_ERR_INSUFFICIENT_RESOURCES", 0x1b: "NV_ERR_INSUFFICIENT_PERMISSIONS",
	0x1d: "NV_ERR_INVALID_ACCESS_TYPE", 0x1e: "NV_ERR_INVALID_ADDRESS", 0x1f: "NV_ERR_INVALID_ARGUMENT",
	0x20: "NV_ERR_INVALID_BASE", 0x21: "NV_ERR_INVALID_CHANNEL", 0x22: "NV_ERR_INVALID_CLASS",
	0x23: "NV_ERR_INVALID_CLIENT", 0x24: "NV_ERR_INVALID_COMMAND", 0x25: "NV_ERR_INVALID_DATA",
	0x26: "NV_ERR_INVALID_DEVICE", 0x29: "NV_ERR_INVALID_FLAGS", 0x2a: "NV_ERR_INVALID_FUNCTION",
	0x2c: "NV_ERR_INVALID_INDEX", 0x2e: "NV_ERR_INVALID_LIMIT", 0x31: "NV_ERR_INVALID_OBJECT",
	0x33: "NV_ERR_INVALID_OBJECT_HANDLE", 0x34: "NV_ERR_INVALID_OBJECT_NEW", 0x36: "NV_ERR_INVALID_OBJECT_PARENT",
	0x37: "NV_ERR_INVALID_OFFSET", 0x38: "NV_ERR_INVALID_OPERATION", 0x39: "NV_ERR_INVALID_OWNER",
	0x3a: "NV_ERR_INVALID_PARAM_STRUCT", 0x3b: "NV_ERR_INVALID_PARAMETER", 0x3d: "NV_ERR_INVALID_POINTER",
	0x40: "NV_ERR_INVALID_STATE", 0x4f: "NV_ERR_NO_FREE_FIFOS", 0x51: "NV_ERR_NO_MEMORY",
	0x56: "NV_ERR_NOT_SUPPORTED", 0x57: "NV_ERR_OBJECT_NOT_FOUND", 0x59: "NV_ERR_OPERATING_SYSTEM",
	0x5b: "NV_ERR_OUT_OF_RANGE", 0x60: "NV_ERR_RC_ERROR", 0x62: "NV_ERR_RESET_REQUIRED",
	0x63: "NV_ERR_STATE_IN_USE", 0x65: "NV_ERR_TIMEOUT", 0x68: "NV_ERR_UVM_ADDRESS_IN_USE",
	0x6a: "NV_ERR_LIB_RM_VERSION_MISMATCH", 0xffff: "NV_ERR_GENERIC",
}

func (s Status) Error() string {
	if n, ok := statusNames[s]; ok {
		return fmt.Sprintf("%s (%#x)", n, uint32(s))
	}
	return fmt.Sprintf("status %#x", uint32(s))
}

// check is nil for success.
func check(s uint32) error {
	if s == 0 {
		return nil
	}
	return Status(s)
}
