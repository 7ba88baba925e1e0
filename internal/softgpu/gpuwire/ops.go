package gpuwire

// Internal operations, program to server.
const (
	OpHello           uint32 = 0x10000
	OpStats           uint32 = 0x10001
	OpHostAlloc       uint32 = 0x10002
	OpHostPlaced      uint32 = 0x10003
	OpHostFree        uint32 = 0x10004
	OpHostRefetch     uint32 = 0x10005
	OpMemcpy          uint32 = 0x10006
	OpMemcpy3D        uint32 = 0x10007
	OpMemset          uint32 = 0x10008
	OpModuleLoad      uint32 = 0x10009
	OpLibraryLoad     uint32 = 0x1000a
	OpFunctionLayout  uint32 = 0x1000b
	OpLaunch          uint32 = 0x1000c
	OpGraphAddKernel  uint32 = 0x1000d
	OpGraphKernelGet  uint32 = 0x1000e
	OpGraphKernelSet  uint32 = 0x1000f
	OpGraphExecKernel uint32 = 0x10010
	OpGraphAddMemcpy  uint32 = 0x10011
	OpGraphMemcpyGet  uint32 = 0x10012
	OpGraphMemcpySet  uint32 = 0x10013
	OpGraphExecMemcpy uint32 = 0x10014
	OpRestorePart     uint32 = 0x10015
	OpRestoreCommit   uint32 = 0x10016
	OpRestoreDone     uint32 = 0x10017
	OpArrayLayout     uint32 = 0x10018
)

// Internal operations, server to program on the control connection.
const (
	OpCallback         uint32 = 0x20000
	OpHostRead         uint32 = 0x20001
	OpHostWrite        uint32 = 0x20002
	OpPrint            uint32 = 0x20003
	OpLock             uint32 = 0x20004
	OpUnlock           uint32 = 0x20005
	OpCheckpointPart   uint32 = 0x20006
	OpCheckpointCommit uint32 = 0x20007
)

// Flags of HELLO.
const (
	HelloControl uint64 = 1 << 0
	HelloResume  uint64 = 1 << 1
)

// ProtocolVersion is the version argument of HELLO.
const ProtocolVersion = 1

// The memory kinds of copies: pageable host memory, whose bytes travel in the
// message, and addresses that the server resolves.
const (
	KindPageable uint64 = 0
	KindKnown    uint64 = 1
)

// FlagAsync is set in a copy's or memset's flags when the call does not wait.
const FlagAsync uint64 = 1 << 0

// FlagCooperative is set in a launch's flags for a cooperative launch.
const FlagCooperative uint64 = 1 << 0

// Names of the stub's control thread: while connected, and while parked by a
// checkpoint.
const (
	ControlThreadName = "cuda-softgpu"
	ParkedThreadName  = "cuda-softgpu-p"
)
