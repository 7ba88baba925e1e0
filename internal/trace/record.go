package trace

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ErrMalformed is wrapped by the errors of bytes that break the format.
var ErrMalformed = errors.New("malformed trace")

// A Digest is the SHA-256 of code.
type Digest [sha256.Size]byte

// String is the digest in hexadecimal.
func (d Digest) String() string { return fmt.Sprintf("%x", d[:]) }

// Short is enough of the digest to tell one module of a program from another.
func (d Digest) Short() string { return fmt.Sprintf("%x", d[:6]) }

// Record is one of the pointer types of this file.
type Record interface{ Type() Type }

// Kinds of code in a Module and an Image.
const (
	CodeUnknown uint32 = 0
	CodePTX     uint32 = 1
	CodeCubin   uint32 = 2
	CodeFatbin  uint32 = 3
)

// Kinds of memory in an Alloc.
const (
	MemLinear  uint32 = 1 // cuMemAlloc and the like
	MemAsync   uint32 = 2 // cuMemAllocAsync: from the call on, as the host sees it
	MemMapped  uint32 = 3 // cuMemMap
	MemManaged uint32 = 4 // cuMemAllocManaged
	MemHost    uint32 = 5 // host memory that kernels can reach
	MemGlobal  uint32 = 6 // a variable of a module that the program asked for
)

// A Module is code that was loaded, as the program tells it; Code bytes of CODE follow. In files there is an Image
// instead.
type Module struct {
	Flags  uint16
	ID     uint64 // counts up, never used twice in a process
	Handle uint64 // CUmodule or CUlibrary
	Bytes  uint64 // of the image
	Code   uint64
	Kind   uint32
	Call   uint32 // which driver function loaded it (internal/cuda/api)
	Digest Digest // of a cubin, of which no code follows; else zero
}

// Code is a piece of a Module's code.
type Code struct {
	Module uint64
	Offset uint64
	Bytes  []byte
}

// Unload says that a module is gone, and its kernels with it.
type Unload struct{ Module uint64 }

// A Param is where a kernel's parameter lies in its parameter bytes.
type Param struct{ Offset, Size uint32 }

// A Kernel is told before it is launched first. The same ID may be told again with another meaning when a handle is
// reused.
type Kernel struct {
	Flags  uint16
	ID     uint32
	Module uint64 // 0: not known
	Handle uint64 // CUfunction or CUkernel
	Params []Param
	Name   string
}

// Alloc says that addresses [Addr, Addr+Bytes) are memory now.
type Alloc struct {
	Addr   uint64
	Bytes  uint64
	Block  uint64 // of held programs: the allocation (wire.Alloc) that these addresses show; 0: not known
	Offset uint64 // in Block
	Kind   uint32
	Device uint32
}

// Free says that the allocation at Addr is gone; Bytes > 0: that all mappings in that range are.
type Free struct {
	Addr  uint64
	Bytes uint64
}

// A Launch is a kernel launch, or (Node) a kernel node of graph Cell.
type Launch struct {
	Flags   uint16
	Kernel  uint32
	Thread  uint32 // of the host; Node: the place in the graph, counted from 0
	Cell    uint32
	Shared  uint32 // dynamic shared memory, bytes
	Grid    [3]uint32
	Block   [3]uint32
	Cluster [3]uint32 // 1, 1, 1 without clusters
	Stream  uint64
	Params  []byte
}

// A Copy is a copy or (Set) a memset of Width bytes × Height rows × Depth slices. Pitches count bytes from row to row
// and from slice to slice.
type Copy struct {
	Flags    uint16
	Call     uint32
	Thread   uint32
	Cell     uint32
	Stream   uint64
	Dst      uint64
	DstPitch uint64
	DstSlice uint64
	Src      uint64 // Set: the value
	SrcPitch uint64 // Set: bytes of the value
	SrcSlice uint64
	Width    uint64
	Height   uint64
	Depth    uint64
}

// Graph begins what an executable graph consists of: Node records of it follow, then a GraphEnd. In old traces the same
// ID comes again when the graph was updated.
type Graph struct {
	Flags  uint16
	ID     uint32
	Nodes  uint32 // as the driver counts them: empty nodes and the like have no record
	Handle uint64
}

// GraphVersion begins what an executable graph consists of after changes: what Base does, but for the Node records that
// follow, which take the places that their Thread says. A GraphEnd ends it. It is incomplete if Base is.
type GraphVersion struct {
	Flags  uint16
	ID     uint32
	Base   uint32
	Handle uint64
}

// GraphEdges says which nodes of a graph come after which; it comes behind the graph's nodes. Several are one list. A
// graph of which one comes has no other edges: without any, how its nodes are ordered is not told.
type GraphEdges struct {
	ID    uint32
	Edges []Edge
}

// An Edge says that node To of a graph begins when node From is complete. Both are places in the graph, From the
// smaller.
type Edge struct{ From, To uint32 }

// GraphEnd says that all nodes of a graph were told.
type GraphEnd struct{ ID uint32 }

// GraphLaunch runs a graph.
type GraphLaunch struct {
	Flags  uint16
	Graph  uint32 // 0: not known
	Thread uint32
	Cell   uint32
	Stream uint64
}

// GraphFree says that an executable graph is gone, or that what it was as that ID does not come again.
type GraphFree struct{ ID uint32 }

// Other is a call that may do anything to memory, or (Node) such a node of graph Cell, or (Joint) one that does
// nothing.
type Other struct {
	Flags  uint16
	Call   uint32
	Thread uint32
	Cell   uint32
	Stream uint64
}

// Failed says that the driver refused the last piece of work of this thread: it did not run.
type Failed struct {
	Thread uint32
	Result uint32 // CUresult
}

// Ready says that all that there was when the tap began has been told.
type Ready struct{}

// Data is what memory holds: of the device at a range's beginning, or (HostData) what the next copy of the thread
// takes from the host, its rows one behind the other; Addr counts from 0 then.
type Data struct {
	Flags  uint16
	Addr   uint64
	Thread uint32
	Bytes  []byte
}

// Range says that a range of the program begins that is to be recorded. After the first one all device memory follows
// as Data, and the variables that the program knows, before the next piece of work. With a Reason it cannot be
// recorded.
type Range struct {
	Thread uint32
	Nth    uint32 // of those with this name, from 1
	Name   string
	Reason string
}

// RangeEnd ends the Range.
type RangeEnd struct{ Thread uint32 }

// Variable is a variable of a module that the program has asked for; what it holds follows as Data.
type Variable struct {
	Module uint64
	Addr   uint64
	Bytes  uint64
	Name   string
}

// Function is what the driver says of a kernel: attributes as cuFuncGetAttribute numbers them, from 0. ^0: it does
// not say.
type Function struct {
	Kernel     uint32
	Attributes []uint32
}

// Kinds of Order.
const (
	EventRecorded uint32 = 1 // Event comes after all that Stream has got
	StreamWaits   uint32 = 2 // what Stream gets from now on comes after Event
	HostSynced    uint32 = 3 // the host has waited: all that comes from now on may rest on all that came before
)

// Order is a call that orders work.
type Order struct {
	Flags  uint16 // Captured
	Thread uint32
	Kind   uint32
	Stream uint64
	Event  uint64
}

// After stands before a piece of work in a recording: the pieces of work that are complete before it begins, by their
// number from 0.
type After struct{ Works []uint32 }

// Program begins the records of a process. All its blocks carry the same number.
type Program struct {
	Start   uint64 // of the process, clock ticks since boot
	PID     uint32
	PPID    uint32
	GPU     uint32 // 0 a real one, 1 the software GPU
	Driver  uint32 // cuDriverGetVersion
	Name    string
	Exe     string
	Args    []string
	Devices [][16]byte
}

// Text is a piece of code that is content-addressed: PTX. All pieces of a text come in order, before the first Image or
// Found that names it, once in a file.
type Text struct {
	Digest Digest // of the whole
	Total  uint64
	Offset uint64
	Bytes  []byte
}

// A TextRef is a PTX text of an image: what it was written for, and the text.
type TextRef struct {
	Arch   uint32 // 90 of sm_90; 0: what its .target says
	Digest Digest
}

// An Image is code that was loaded. Without texts it has no PTX.
type Image struct {
	Flags  uint16
	ID     uint64
	Handle uint64
	Bytes  uint64
	Kind   uint32
	Call   uint32
	Digest Digest // of the image; Outline: of its headers and the beginnings of its parts; zero: not known
	Texts  []TextRef
}

// Found says that images with this digest were made from this text, although they do not hold it.
type Found struct {
	Image Digest
	TextRef
}

// Exit ends the records of a process. Its counts are the program's own, to be compared with what was recorded.
type Exit struct {
	Flags    uint16
	Launches uint64 // captured ones too
	Graphs   uint64
	Copies   uint64
	Waits    uint64 // how often it waited for the recorder
	Waited   time.Duration
}

// End is the last record of a file that was finished.
type End struct{}

// Type implements Record.
func (*Module) Type() Type       { return TypeModule }
func (*Code) Type() Type         { return TypeCode }
func (*Unload) Type() Type       { return TypeUnload }
func (*Kernel) Type() Type       { return TypeKernel }
func (*Alloc) Type() Type        { return TypeAlloc }
func (*Free) Type() Type         { return TypeFree }
func (*Launch) Type() Type       { return TypeLaunch }
func (*Copy) Type() Type         { return TypeCopy }
func (*Graph) Type() Type        { return TypeGraph }
func (*GraphVersion) Type() Type { return TypeGraphVersion }
func (*GraphEnd) Type() Type     { return TypeGraphEnd }
func (*GraphEdges) Type() Type   { return TypeGraphEdges }
func (*GraphLaunch) Type() Type  { return TypeGraphLaunch }
func (*GraphFree) Type() Type    { return TypeGraphFree }
func (*Other) Type() Type        { return TypeOther }
func (*Failed) Type() Type       { return TypeFailed }
func (*Ready) Type() Type        { return TypeReady }
func (*Data) Type() Type         { return TypeData }
func (*Range) Type() Type        { return TypeRange }
func (*RangeEnd) Type() Type     { return TypeRangeEnd }
func (*Variable) Type() Type     { return TypeVariable }
func (*Function) Type() Type     { return TypeFunction }
func (*Order) Type() Type        { return TypeOrder }
func (*After) Type() Type        { return TypeAfter }
func (*Program) Type() Type      { return TypeProgram }
func (*Text) Type() Type         { return TypeText }
func (*Image) Type() Type        { return TypeImage }
func (*Found) Type() Type        { return TypeFound }
func (*Exit) Type() Type         { return TypeExit }
func (*End) Type() Type          { return TypeEnd }

// A body is the rest of a record that is being decoded.
type body struct {
	b   []byte
	bad bool
}

func (s *body) take(n uint64) []byte {
	if n > uint64(len(s.b)) {
		s.bad, s.b = true, nil
		return nil
	}
	b := s.b[:n:n]
	s.b = s.b[n:]
	return b
}

func (s *body) u32() uint32 {
	if b := s.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (s *body) u64() uint64 {
	if b := s.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (s *body) dim() [3]uint32 { return [3]uint32{s.u32(), s.u32(), s.u32()} }

func (s *body) digest() (d Digest) {
	copy(d[:], s.take(uint64(len(d))))
	return d
}

func (s *body) words(n uint32) (list []uint32) {
	for b := s.take(4 * uint64(n)); len(b) > 0; b = b[4:] {
		list = append(list, binary.LittleEndian.Uint32(b))
	}
	return list
}

// Size is how long the record at the beginning of b is, header included; 0 and no error: b is shorter than that.
func Size(b []byte) (int, error) {
	if len(b) < headerSize {
		return 0, nil
	}
	n := binary.LittleEndian.Uint32(b)
	if n < headerSize || n > MaxRecord || n%8 != 0 {
		return 0, fmt.Errorf("%w: a record of %d bytes", ErrMalformed, n)
	}
	if int(n) > len(b) {
		return 0, nil
	}
	return int(n), nil
}

// Decode reads the record that b is, exactly. What it returns refers to b.
func Decode(b []byte) (Record, error) {
	if n, err := Size(b); err != nil {
		return nil, err
	} else if n == 0 || n != len(b) {
		return nil, fmt.Errorf("%w: a record is cut short", ErrMalformed)
	}
	t, flags := Type(binary.LittleEndian.Uint16(b[4:])), binary.LittleEndian.Uint16(b[6:])
	s := &body{b: b[headerSize:]}
	r := s.record(t, flags)
	if r == nil {
		return nil, fmt.Errorf("%w: a record of unknown %v", ErrMalformed, t)
	}
	if s.bad || len(s.b) >= 8 { // what fills up to a multiple of 8 is less
		return nil, fmt.Errorf("%w: a %v record of %d bytes", ErrMalformed, t, len(b))
	}
	return r, nil
}

// The order of fields is that of the layouts; TestLayout holds both together.
func (s *body) record(t Type, flags uint16) Record {
	switch t {
	case TypeLaunch:
		r := &Launch{Flags: flags, Kernel: s.u32(), Thread: s.u32(), Cell: s.u32(), Shared: s.u32(), Grid: s.dim(),
			Block: s.dim(), Cluster: s.dim()}
		n := s.u32()
		r.Stream = s.u64()
		r.Params = s.take(uint64(n))
		return r
	case TypeCopy:
		r := &Copy{Flags: flags, Call: s.u32(), Thread: s.u32(), Cell: s.u32()}
		s.u32()
		r.Stream = s.u64()
		r.Dst, r.DstPitch, r.DstSlice = s.u64(), s.u64(), s.u64()
		r.Src, r.SrcPitch, r.SrcSlice = s.u64(), s.u64(), s.u64()
		r.Width, r.Height, r.Depth = s.u64(), s.u64(), s.u64()
		return r
	case TypeModule:
		return &Module{Flags: flags, ID: s.u64(), Handle: s.u64(), Bytes: s.u64(), Code: s.u64(), Kind: s.u32(),
			Call: s.u32(), Digest: s.digest()}
	case TypeCode:
		r := &Code{Module: s.u64(), Offset: s.u64()}
		n := s.u32()
		s.u32()
		r.Bytes = s.take(uint64(n))
		return r
	case TypeUnload:
		return &Unload{Module: s.u64()}
	case TypeKernel:
		r := &Kernel{Flags: flags, ID: s.u32()}
		n := s.u32()
		r.Module, r.Handle = s.u64(), s.u64()
		name := s.u32()
		s.u32()
		if n > MaxParams {
			s.bad = true
			return r
		}
		if p := s.take(8 * uint64(n)); p != nil && n > 0 {
			r.Params = make([]Param, n)
			for i := range r.Params {
				r.Params[i] = Param{binary.LittleEndian.Uint32(p[8*i:]), binary.LittleEndian.Uint32(p[8*i+4:])}
			}
		}
		r.Name = string(s.take(uint64(name)))
		return r
	case TypeAlloc:
		return &Alloc{Addr: s.u64(), Bytes: s.u64(), Block: s.u64(), Offset: s.u64(), Kind: s.u32(), Device: s.u32()}
	case TypeFree:
		return &Free{Addr: s.u64(), Bytes: s.u64()}
	case TypeGraph:
		return &Graph{Flags: flags, ID: s.u32(), Nodes: s.u32(), Handle: s.u64()}
	case TypeGraphVersion:
		return &GraphVersion{Flags: flags, ID: s.u32(), Base: s.u32(), Handle: s.u64()}
	case TypeGraphEdges:
		r := &GraphEdges{ID: s.u32()}
		for b := s.take(8 * uint64(s.u32())); len(b) > 0; b = b[8:] {
			r.Edges = append(r.Edges, Edge{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])})
		}
		return r
	case TypeGraphEnd:
		r := &GraphEnd{ID: s.u32()}
		s.u32()
		return r
	case TypeGraphLaunch:
		r := &GraphLaunch{Flags: flags, Graph: s.u32(), Thread: s.u32(), Cell: s.u32()}
		s.u32()
		r.Stream = s.u64()
		return r
	case TypeGraphFree:
		r := &GraphFree{ID: s.u32()}
		s.u32()
		return r
	case TypeOther:
		r := &Other{Flags: flags, Call: s.u32(), Thread: s.u32(), Cell: s.u32()}
		s.u32()
		r.Stream = s.u64()
		return r
	case TypeFailed:
		return &Failed{Thread: s.u32(), Result: s.u32()}
	case TypeReady:
		s.u64()
		return &Ready{}
	case TypeData:
		r := &Data{Flags: flags, Addr: s.u64(), Thread: s.u32()}
		n := s.u32()
		r.Bytes = s.take(uint64(n))
		return r
	case TypeRange:
		r := &Range{Thread: s.u32(), Nth: s.u32()}
		name, reason := s.u32(), s.u32()
		r.Name, r.Reason = string(s.take(uint64(name))), string(s.take(uint64(reason)))
		return r
	case TypeRangeEnd:
		r := &RangeEnd{Thread: s.u32()}
		s.u32()
		return r
	case TypeVariable:
		r := &Variable{Module: s.u64(), Addr: s.u64(), Bytes: s.u64()}
		n := s.u32()
		s.u32()
		r.Name = string(s.take(uint64(n)))
		return r
	case TypeFunction:
		r := &Function{Kernel: s.u32()}
		r.Attributes = s.words(s.u32())
		return r
	case TypeOrder:
		return &Order{Flags: flags, Thread: s.u32(), Kind: s.u32(), Stream: s.u64(), Event: s.u64()}
	case TypeAfter:
		n := s.u32()
		s.u32()
		return &After{Works: s.words(n)}
	case TypeProgram:
		r := &Program{Start: s.u64(), PID: s.u32(), PPID: s.u32(), GPU: s.u32(), Driver: s.u32()}
		name, exe, args, devices := s.u32(), s.u32(), s.u32(), s.u32()
		r.Name, r.Exe = string(s.take(uint64(name))), string(s.take(uint64(exe)))
		a := s.take(uint64(args))
		s.bad = s.bad || len(a) > 0 && a[len(a)-1] != 0
		for len(a) > 0 {
			before, after, _ := bytes.Cut(a, []byte{0})
			r.Args = append(r.Args, string(before))
			a = after
		}
		if d := s.take(16 * uint64(devices)); d != nil {
			for ; len(d) > 0; d = d[16:] {
				r.Devices = append(r.Devices, [16]byte(d))
			}
		}
		return r
	case TypeText:
		r := &Text{Digest: s.digest(), Total: s.u64(), Offset: s.u64()}
		n := s.u32()
		s.u32()
		r.Bytes = s.take(uint64(n))
		return r
	case TypeImage:
		r := &Image{Flags: flags, ID: s.u64(), Handle: s.u64(), Bytes: s.u64(), Kind: s.u32(), Call: s.u32(),
			Digest: s.digest()}
		n := s.u32()
		s.u32()
		for i := uint32(0); i < n && !s.bad && i < MaxTexts; i++ {
			ref := TextRef{Arch: s.u32()}
			s.u32()
			ref.Digest = s.digest()
			r.Texts = append(r.Texts, ref)
		}
		return r
	case TypeFound:
		r := &Found{Image: s.digest()}
		r.TextRef.Digest = s.digest()
		r.Arch = s.u32()
		s.u32()
		return r
	case TypeExit:
		return &Exit{Flags: flags, Launches: s.u64(), Graphs: s.u64(), Copies: s.u64(), Waits: s.u64(),
			Waited: time.Duration(s.u64())}
	case TypeEnd:
		s.u64()
		return &End{}
	}
	return nil
}
