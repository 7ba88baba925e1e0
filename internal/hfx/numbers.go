package hfx

// Magic begins a file, Trailer the last TrailerSize bytes of a player that has one appended.
const (
	Magic       = "HFXLINK\n"
	Trailer     = "HFXPACK\n"
	TrailerSize = 16
)

// Version is that of the format.
const Version = 1

// Limits and alignment.
const (
	Page       = 4096    // contents begin at multiples of it
	HugePage   = 2 << 20 // device memory has whole ones
	MaxTables  = 256 << 20
	MaxPorts   = 4096
	MaxRing    = 0x1fffff // command words of one submission
	HeaderSize = 256
)

// Kinds of memory.
const (
	Device  = 0 // device memory
	Visible = 1 // device memory that the player maps too: the channel's ring and its control words
	Pinned  = 2 // pages of the player
	System  = 3 // the driver's system memory, mapped by the player: where errors are reported
)

// Places in the table of memory that have a meaning of their own. They stand before the channel is made.
const (
	MemoryControl  = 0
	MemoryHost     = 1
	MemoryNotifier = 2
	MemoryFixed    = 3 // how many these are
)

// Kinds of steps.
const (
	OpMemory = 0 // have the memory of Memory
	OpSubmit = 1 // put Bytes of data at Stage, the words at Push, and ring; complete when Ticket is seen
	OpTake   = 2 // the Bytes at Stage are those at Data of the output
	OpWait   = 3 // nothing but waiting
)

// Directions of ports.
const (
	In  = 0
	Out = 1
)
