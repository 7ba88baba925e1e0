// Package wire is the conversation between a held program (the shim, in C) and the daemon (in Go): one packet a
// message over a SOCK_SEQPACKET unix socket, descriptors beside it, and one shared page of counters.
//
// The message structs below are the one source of both ends: the Go codec walks them by reflection and [Header]
// prints shim/zwire.h from them. A packet is
//
//	u32 type; u32 len; u64 seq; body[len]
//
// little endian; body is the struct's fields in order without padding. Integers are fixed size, a string is a u16
// length and that many bytes (no NUL), a slice is a u16 count and its elements. Limits stand in the `max` tags and are
// checked at both ends. Trailing bytes, unknown types and out-of-range lengths are errors: both ends treat the peer as
// hostile.
//
// seq: a command of the daemon carries a number of its choosing (> 0) and the program's reply carries the same; all
// other messages carry 0.
//
// # Conversation
//
//	program                                   daemon
//	HELLO + fd of the shared page      →
//	                                   ←      WELCOME                     (or the socket closes: it runs on unheld)
//	ALLOC + fd, FREE, MAPPING, CAVEAT, MODULE, CONTEXT, at any time
//	ADOPTED (first flush done)         →                                   after HELLO, READOPT too, RESUME not
//	BYE                                →                                   the program ends by itself
//	ROOM                               →                                   an allocation found no memory
//	                                   ←      ROOMMADE                     (or nothing within RoomMillis)
//	SHARE                              →                                   the program exports memory that came by MAP
//	                                   ←      SHARED + fd                  (or without one: there is none)
//	                                   ←      [CALM] FREEZE
//	FROZEN | FAILED (gate open again)  →
//	                                   ←      [LEASE]                      while frozen; DONE answers a numbered one
//	                                   ←      THAW | RELEASE
//	THAWED | RELEASED | FAILED         →
//	                                   ←      PARK                         after RELEASED, once the driver is locked
//	PARKED | FAILED                    →
//	                                   ←      TAP + fd, ASK, UNTAP         at any time between ADOPTED and RELEASE
//	DONE | FAILED                      →
//
// With HOLDFAST_TRACE in its environment a program speaks to a recorder on that socket instead: HELLO (TRACE) + fd,
// WELCOME, TAP + fd, DONE, and nothing more until the socket closes.
//
// After PARKED the program closes the socket: its end (io.EOF) says that the process has no descriptor and no mapping
// of ours any more, and that all its threads stand still but the control thread and the driver's own. It does so too
// when the daemon ends its side after RELEASED (the threads run on then), and a program without HelloPark right after
// RELEASED. Its control thread (comm "holdfast") waits for SIGRTMAX-1, sent to that thread (its tid is in HELLO);
// woken, it lets the other threads run, tries to connect for 10 s, then waits for the signal again. SIGRTMAX-3 only
// lets the other threads run. Then
//
//	HELLO (RESUME) + fd                →
//	                                   ←      WELCOME, MAP + fd …, MAPEND
//	MAPPED | FAILED (gate stays closed)→
//	                                   ←      THAW
//	THAWED                             →
//
// A FAILED with FailedMap may be followed by more MAP (of what is missing) and another MAPEND. The socket ending before
// MAPPED puts the program back to waiting for the signal; what is mapped by then stays and is skipped the next time.
//
// A daemon that dies while the program is frozen (not released), or says nothing for longer than its LEASE: the
// program opens its gate by itself, unless LEASE said to keep it shut; then it says so (HELLO with READOPT and
// FROZEN) to the next daemon, tells its memory anew, and waits for THAW. Memory that it cannot export again is not
// told, unless WELCOME allows it to move that. A daemon that dies at any time: the program connects again every 500
// ms with HELLO (READOPT) and tells every allocation anew, with fresh descriptors, then ADOPTED.
//
// The package must not import any other package of this module.
package wire

// Version is the protocol version, in HELLO and WELCOME. A program in an image speaks the one that it was made with: a
// message that only the program begins (SHARE), or that its HELLO asks for (CALM, PARK, LEASE), needs no new one. The
// others stay as they are.
const Version = 5

const (
	// MaxPacket is the largest packet, header included, in bytes.
	MaxPacket = 64 << 10
	// HeaderSize is the size of a packet's header in bytes.
	HeaderSize = 16
	// MaxFDs is the largest number of descriptors beside one packet.
	MaxFDs = 4
	// SignalOffset: the signal that wakes a released program's control thread is SIGRTMAX-SignalOffset.
	SignalOffset = 1
	// RunOffset: the signal that only lets the threads of a parked program run is SIGRTMAX-RunOffset.
	RunOffset = 3
	// ControlComm is the name (comm) of the program's control thread.
	ControlComm = "holdfast"
	// RoomMillis is how long, in milliseconds, an allocation that found no memory waits for ROOMMADE.
	RoomMillis = 1000
	// ShareMillis is how long, in milliseconds, the export of an allocation waits for SHARED, of one daemon or the
	// next.
	ShareMillis = 10000
	// ReconnectMillis is how often, in milliseconds, a program looks for a new daemon.
	ReconnectMillis = 500
)

// Type numbers a message. Program to daemon below 64, daemon to program from 64 on.
type Type uint32

const (
	TypeHello    Type = 1
	TypeAlloc    Type = 2
	TypeFree     Type = 3
	TypeMapping  Type = 4
	TypeCaveat   Type = 5
	TypeModule   Type = 6
	TypeContext  Type = 7
	TypeAdopted  Type = 8
	TypeBye      Type = 9
	TypeRoom     Type = 10
	TypeShare    Type = 11
	TypeFrozen   Type = 16
	TypeThawed   Type = 17
	TypeReleased Type = 18
	TypeMapped   Type = 19
	TypeFailed   Type = 20
	TypeDone     Type = 21
	TypeParked   Type = 22
	TypeWelcome  Type = 64
	TypeFreeze   Type = 65
	TypeThaw     Type = 66
	TypeRelease  Type = 67
	TypeMap      Type = 68
	TypeMapEnd   Type = 69
	TypeQuit     Type = 70
	TypeRoomMade Type = 71
	TypeTap      Type = 72
	TypeAsk      Type = 73
	TypeUntap    Type = 74
	TypeShared   Type = 75
	TypeCalm     Type = 76
	TypePark     Type = 77
	TypeLease    Type = 78
)

// Message is one of the structs of this file, by pointer.
type Message interface{ Type() Type }

// Flags of Hello.
const (
	HelloResume  uint32 = 1 << 0 // woken after RELEASE: has no memory, wants MAP … MAPEND
	HelloReadopt uint32 = 1 << 1 // the previous daemon died; allocations follow with fresh descriptors
	HelloTrace   uint32 = 1 << 2 // to a recorder: the program is not held, it waits for TAP
	HelloCalm    uint32 = 1 << 3 // CALM is understood; programs in older images do not
	HelloPark    uint32 = 1 << 4 // PARK and LEASE are understood, and RELEASED does not end the conversation
	HelloFrozen  uint32 = 1 << 5 // with HelloReadopt: the gate was to stay shut (LEASE), and is
)

// Hello opens a conversation. One descriptor: the shared page (see Page).
type Hello struct {
	Proto      uint32
	Flags      uint32
	PID        uint32 // as the program sees it
	PPID       uint32
	ControlTID uint32 // thread to wake with SIGRTMAX-1
	GPU        uint32 // GPUNative or GPUSoft: what HOLDFAST_GPU says (native when unset)
	// field 22 of /proc/self/stat, clock ticks since boot, as the program sees it: CRIU may have given it a time
	// namespace
	StartTime uint64
	Driver    uint32 // cuDriverGetVersion, e.g. 13000
	Token     [16]byte
	Name      string     `max:"255"`  // HOLDFAST_NAME, else the base name of the executable
	Exe       string     `max:"1023"` // /proc/self/exe
	Devices   [][16]byte `max:"32"`   // UUIDs in the program's device order
}

// Kinds of GPU.
const (
	GPUNative uint32 = 0
	GPUSoft   uint32 = 1
)

// Kinds of allocation.
const (
	KindLinear uint32 = 1 // one cuMemAlloc (or pitch) of the program, mapped at VA
	KindSlab   uint32 = 2 // 2 MiB shared by small allocations
	KindPool   uint32 = 3 // stream-ordered allocations (cuMemAllocAsync), reused by the shim
	KindVMM    uint32 = 4 // cuMemCreate of the program; its mappings come as MAPPING
	KindMirror uint32 = 5 // copies of module variables, as of the last FREEZE (see Thaw)
)

// Alloc announces physical memory; one descriptor, from cuMemExportToShareableHandle. ID is chosen by the program,
// never reused in its life, never 0. Announced at the latest before the next FROZEN.
type Alloc struct {
	ID     uint64
	VA     uint64 // where it is mapped; 0 for KindVMM
	Size   uint64 // bytes, a multiple of 2 MiB (of the granularity)
	Device uint32 // ordinal in Hello.Devices
	Kind   uint32
	Used   uint64 // bytes the program asked for (slab: at the time of announcement)
}

// Free says that the program let go of an allocation for good: the daemon closes its descriptor.
type Free struct{ ID uint64 }

// Mapping tells where a KindVMM allocation is mapped, for ps and gpu-only images; the shim remembers it itself over
// RELEASE.
type Mapping struct {
	ID     uint64
	VA     uint64
	Offset uint64
	Size   uint64
	Access uint32 // CUmemAccess_flags of the owning device: 0 none, 1 read, 3 read and write
	Mapped uint32 // 1: mapped now, 0: unmapped now
}

// Codes of Caveat: memory or state that holdfast cannot hold.
const (
	CaveatManaged    uint32 = 1 // cuMemAllocManaged
	CaveatIPC        uint32 = 2 // cuIpcGetMemHandle, cuIpcOpenMemHandle, event handles
	CaveatExported   uint32 = 3 // the program itself exports or imports memory
	CaveatExternal   uint32 = 4 // cuImportExternalMemory, …Semaphore
	CaveatGraphics   uint32 = 5 // OpenGL, Vulkan, EGL, D3D interoperation
	CaveatMulticast  uint32 = 6 // cuMulticast*
	CaveatHostMemory uint32 = 7 // cuMemHostRegister of device (I/O) memory
	CaveatArray      uint32 = 8 // arrays and mipmapped arrays stay with the driver
	// module variables that rollback leaves as they are (a note, Flags 0: almost every library has some)
	CaveatGlobals      uint32 = 9
	CaveatDriverMemory uint32 = 10 // an allocation stays with the driver (fallback)
	CaveatGraphMemory  uint32 = 11 // memory allocation nodes of graphs
	CaveatPeer         uint32 = 12 // peer access between devices
	CaveatGreen        uint32 = 13 // green contexts, MPS and the like
)

// Flags of Caveat: which kind of image it stands against.
const (
	CaveatBlocksFull    uint32 = 1 << 0 // a whole-process checkpoint cannot be right
	CaveatBlocksGPUOnly uint32 = 1 << 1 // a gpu-only snapshot and rollback would miss this
)

// Caveat names something that cannot be held. The same Code and Subject is told once; Count 0 says that it is gone. Of
// more than 512 different ones the rest is dropped.
type Caveat struct {
	Code    uint32
	Flags   uint32
	Count   uint32
	Subject uint64 // address or handle, 0: none
	Text    string `max:"511"` // names the call, the bytes and the address
}

// Kinds of Module images.
const (
	ModuleUnknown uint32 = 0
	ModulePTX     uint32 = 1
	ModuleCubin   uint32 = 2
	ModuleFatbin  uint32 = 3
)

// Module announces a loaded module or library. If there is a descriptor, it is a sealed memfd with the Size bytes of
// its image; without one the image is not told.
type Module struct {
	ID     uint64 // CUmodule or CUlibrary
	Kind   uint32
	Loaded uint32 // 1: loaded, 0: unloaded
	Size   uint64 // bytes
	Call   string `max:"63"` // the driver call
}

// Context announces a context of the program on a device.
type Context struct {
	ID     uint64
	Device uint32
	Alive  uint32
}

// Adopted ends the first flush after HELLO: everything that existed has been announced.
type Adopted struct {
	Allocations uint64
	Bytes       uint64
	Lost        uint64 // bytes of allocations that could not be exported or re-homed (caveats name them)
}

// Bye says that the program ends by itself (exit, the end of main): nobody will want its memory back. A program that
// is killed cannot say so. From then on it refuses every command.
type Bye struct{}

// Room asks for device memory that the daemon only keeps for warm restores. The program tries again after the answer,
// once.
type Room struct {
	ID     uint32 // of the question: they count up, and each is asked once
	Device uint32 // ordinal in Hello.Devices
	Bytes  uint64 // that the allocation wants
}

// Share asks for a descriptor of allocation Alloc, which the program wants to export to another process: the driver
// exports what it has created, but not what it has imported, and all memory is imported after MAP. The daemon's
// descriptor is of the same memory.
type Share struct {
	ID    uint32 // of the question: they count up
	Alloc uint64
}

// Frozen: no call is inside the driver, every context is idle.
type Frozen struct {
	GateNanos uint64 // closing the gate until the last thread was out
	SyncNanos uint64 // synchronising the contexts
	Launches  uint64
	Contexts  uint32
	Waiting   uint32 // threads waiting at the gate now
}

// Thawed: the gate is open.
type Thawed struct{ FrozenNanos uint64 }

// Released: all memory is unmapped and released; the socket closes next.
type Released struct {
	Count uint64
	Bytes uint64
	Nanos uint64
}

// Park stops every thread of a released program but its control thread and the thread Except, inside a signal handler.
// The driver must be locked: from its save to its restore it has no mappings, and a thread that read one, or pinned
// memory, would die of it. TimeoutMillis (0: 10 s) bounds how long a thread may take to stop; after a failure none
// stands still.
type Park struct {
	Except        uint32 // thread of the driver that carries out its restore, 0: none
	TimeoutMillis uint32
}

// Parked: nothing but the driver runs in the process.
type Parked struct {
	Threads uint64 // that stand still
	Nanos   uint64
}

// Mapped: every allocation is back at its address.
type Mapped struct {
	Count uint64
	Bytes uint64
	Nanos uint64
}

// Codes of Failed.
const (
	FailedState    uint32 = 1 // the command does not fit the state
	FailedInside   uint32 = 2 // a thread did not leave the driver in time; Text names its call
	FailedCapture  uint32 = 3 // a stream capture stayed open
	FailedSync     uint32 = 4 // a context could not be synchronised; Result says why
	FailedUnmap    uint32 = 5
	FailedMap      uint32 = 6
	FailedProtocol uint32 = 7
	FailedRelease  uint32 = 8
	FailedBlocked  uint32 = 9  // memory that cannot be let go (caveat)
	FailedGlobals  uint32 = 10 // module variables could not be copied to or from their mirror
	FailedPark     uint32 = 11 // a thread did not stop; Text names it
	FailedOpen     uint32 = 12 // THAW: the gate is open (programs of before HelloPark say FailedState)
)

// Failed answers a command that was not done. After a failed FREEZE the gate is open; after a failed RELEASE the memory
// is mapped as before and the gate closed; after a failed MAPEND the gate is closed and the program can be released
// again; after a THAW that failed with FailedGlobals the gate is open, unless a LEASE has shut it.
type Failed struct {
	Code   uint32
	Result uint32 // CUresult, 0: none
	Text   string `max:"511"`
}

// WelcomeMove, to a program that says FROZEN: nobody has descriptors of its memory but the program, so what it cannot
// export again is to be moved into memory that it can.
const WelcomeMove uint32 = 1 << 0

// Welcome accepts the program. Token names the conversation; the program repeats it in later HELLOs (zero in the
// first).
type Welcome struct {
	Proto uint32
	Flags uint32
	Token [16]byte
}

// Freeze closes the gate. TimeoutMillis (0: 10 s) bounds waiting for calls inside, stream captures and busy devices
// together.
type Freeze struct{ TimeoutMillis uint32 }

// Calm prepares the next FREEZE: before it closes the gate, the program runs on, for at most Millis, until it has
// waited for the device by itself and has little under way. Only for programs with HelloCalm: there is no answer.
type Calm struct{ Millis uint32 }

// Lease says how long a frozen program stays so when its daemon says nothing more; any packet of the daemon begins it
// anew. It holds for the conversation. With a number it is answered: DONE says that the program is frozen and keeps
// to this lease; without one there is no answer. Only for programs with HelloPark.
type Lease struct {
	Millis uint32 // 0: without limit
	Flags  uint32
}

// LeaseShut: while the program is frozen its memory is not what it should be (it is being filled). The gate stays shut
// when the conversation ends.
const LeaseShut uint32 = 1 << 0

// Flags of Thaw.
const (
	// ThawGlobals: what the mirrors hold goes back into the module variables first. FREEZE has copied them there; the
	// daemon has put another state of that memory in its place.
	ThawGlobals uint32 = 1 << 0
)

// Thaw opens the gate, or to where work asks first (see Ask).
type Thaw struct{ Flags uint32 }

// Release lets go of all memory (frozen programs only).
type Release struct{}

// Map gives back allocation ID; one descriptor, the one received in ALLOC (or that of new memory of the same size).
// VA, Size and Device must be those of ALLOC.
type Map struct {
	ID     uint64
	VA     uint64
	Size   uint64
	Device uint32
	Access uint32 // reserved, 3
}

// MapEnd asks for MAPPED once everything is in place.
type MapEnd struct{ Count uint64 }

// Quit detaches: the gate opens and the program runs on unheld; its memory stays its own. The socket closes next.
type Quit struct{}

// RoomMade answers Room.
type RoomMade struct {
	ID    uint32
	Bytes uint64 // freed, on all devices
}

// Shared answers Share; one descriptor, or none when the daemon has none of that allocation.
type Shared struct{ ID uint32 }

// Tap makes the program tell what code and memory it has and, from then on, what changes of it; one descriptor: the
// memfd of the tap (see TapReader). DONE follows when all that there was has been written, so it must be read
// meanwhile.
type Tap struct{ Flags uint32 }

// Flags of Tap.
const (
	TapRecord uint32 = 1 << 0 // record every piece of work as well
	TapNoCode uint32 = 1 << 1 // modules are told without what is in them: an earlier tap of this process has shown it
)

// Ask says which work asks before it runs. It may be given while the program is frozen, and then counts from THAW on.
// What asks waits until its cell of the tap is answered; when the daemon dies, nothing waits any longer.
type Ask struct{ Flags uint32 }

// Flags of Ask; none of the first two: nothing asks.
const (
	AskWrites uint32 = 1 << 0 // what may write device memory
	AskReads  uint32 = 1 << 1 // what only reads it, too
	// AskHold: when the daemon dies what asks waits for ever, because memory may not be complete.
	AskHold uint32 = 1 << 2
)

// Untap ends what Tap began; nothing asks any more.
type Untap struct{}

// Done answers Tap, Ask and Untap.
type Done struct{}

func (*Hello) Type() Type    { return TypeHello }
func (*Alloc) Type() Type    { return TypeAlloc }
func (*Free) Type() Type     { return TypeFree }
func (*Mapping) Type() Type  { return TypeMapping }
func (*Caveat) Type() Type   { return TypeCaveat }
func (*Module) Type() Type   { return TypeModule }
func (*Context) Type() Type  { return TypeContext }
func (*Adopted) Type() Type  { return TypeAdopted }
func (*Bye) Type() Type      { return TypeBye }
func (*Room) Type() Type     { return TypeRoom }
func (*RoomMade) Type() Type { return TypeRoomMade }
func (*Share) Type() Type    { return TypeShare }
func (*Shared) Type() Type   { return TypeShared }
func (*Calm) Type() Type     { return TypeCalm }
func (*Frozen) Type() Type   { return TypeFrozen }
func (*Thawed) Type() Type   { return TypeThawed }
func (*Released) Type() Type { return TypeReleased }
func (*Mapped) Type() Type   { return TypeMapped }
func (*Failed) Type() Type   { return TypeFailed }
func (*Welcome) Type() Type  { return TypeWelcome }
func (*Freeze) Type() Type   { return TypeFreeze }
func (*Thaw) Type() Type     { return TypeThaw }
func (*Release) Type() Type  { return TypeRelease }
func (*Map) Type() Type      { return TypeMap }
func (*MapEnd) Type() Type   { return TypeMapEnd }
func (*Quit) Type() Type     { return TypeQuit }
func (*Tap) Type() Type      { return TypeTap }
func (*Ask) Type() Type      { return TypeAsk }
func (*Untap) Type() Type    { return TypeUntap }
func (*Done) Type() Type     { return TypeDone }
func (*Park) Type() Type     { return TypePark }
func (*Parked) Type() Type   { return TypeParked }
func (*Lease) Type() Type    { return TypeLease }

// messages lists one zero value of each message, in the order of the C header.
func messages() []Message {
	return []Message{
		new(Hello), new(Alloc), new(Free), new(Mapping), new(Caveat), new(Module), new(Context), new(Adopted), new(Bye),
		new(Room), new(Share),
		new(Frozen), new(Thawed), new(Released), new(Mapped), new(Failed), new(Done),
		new(Welcome), new(Freeze), new(Thaw), new(Release), new(Map), new(MapEnd), new(Quit), new(RoomMade),
		new(Shared), new(Calm),
		new(Tap), new(Ask), new(Untap), new(Park), new(Parked), new(Lease),
	}
}

func newMessage(t Type) Message {
	for _, m := range messages() {
		if m.Type() == t {
			return m
		}
	}
	return nil
}
