package footprint

// A Cause says why an instance is not known to be idempotent.
type Cause uint8

// The causes.
const (
	NoCause       Cause = iota
	ReadThenWrite       // a byte is read and may be overwritten afterwards
	ReadModifyWrite
	UnboundedRead
	UnboundedWrite
	GridSync
	Spin
	SystemScope
	HostCall
	UnknownCall
	UnknownInstruction
	Clock
	DeviceLaunch
	DependentLaunch
	Texture
	TensorCopy
	Volatile
	NoCode
	TooLarge
	BadLaunch
	numCauses
)

var causeTexts = [numCauses]string{
	NoCause:            "",
	ReadThenWrite:      "a byte may be read and overwritten afterwards",
	ReadModifyWrite:    "an atomic operation depends on what it overwrites",
	UnboundedRead:      "the address of a read has no provable bound",
	UnboundedWrite:     "the address of a write has no provable bound",
	GridSync:           "the blocks of the grid wait for each other",
	Spin:               "a loop waits for memory that others write",
	SystemScope:        "it communicates with the host or another device",
	HostCall:           "it calls printf, malloc or the like",
	UnknownCall:        "it calls a function that is not analysed",
	UnknownInstruction: "an instruction is not known",
	Clock:              "it depends on a clock, or on where it runs",
	DeviceLaunch:       "it launches kernels",
	DependentLaunch:    "it may overlap with the launch before or after it",
	Texture:            "it accesses textures or surfaces",
	TensorCopy:         "a tensor copy has a descriptor that is not read",
	Volatile:           "it accesses volatile memory",
	NoCode:             "there is no PTX of it",
	TooLarge:           "it is too large to be analysed",
	BadLaunch:          "the launch does not fit the kernel",
}

// String is why, in words.
func (c Cause) String() string { return causeTexts[c] }

// key is a word for tables.
var causeKeys = [numCauses]string{
	NoCause: "none", ReadThenWrite: "read-then-write", ReadModifyWrite: "read-modify-write",
	UnboundedRead: "unbounded-read", UnboundedWrite: "unbounded-write", GridSync: "grid-sync", Spin: "spin",
	SystemScope: "system-scope", HostCall: "host-call", UnknownCall: "unknown-call",
	UnknownInstruction: "unknown-instruction", Clock: "clock", DeviceLaunch: "device-launch",
	DependentLaunch: "dependent-launch", Texture: "texture", TensorCopy: "tensor-copy", Volatile: "volatile",
	NoCode: "no-code", TooLarge: "too-large", BadLaunch: "bad-launch",
}

// Key is the cause as one word, for tables and JSON.
func (c Cause) Key() string { return causeKeys[c] }
