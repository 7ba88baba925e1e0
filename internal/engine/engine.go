// Package engine runs words on a GPU. A word is a set of launches, copies and sets that are independent of each
// other, and that are submitted as one; a word begins when the one before it is complete.
//
// The package is the interface alone. Its backends stand in packages of their own: engine/driver speaks to a libcuda,
// the real one or that of the software GPU; engine/raw to the device files. All run the same words to the same bits.
//
// An engine knows neither recordings nor policy. It must not import anything of this module.
package engine

import (
	"fmt"
	"time"
)

// Granularity is what addresses and sizes of Map are multiples of.
const Granularity = 2 << 20

// A Backend is one GPU and an address space on it. Its methods are for one goroutine at a time, but for Load where
// Info says so.
type Backend interface {
	// Info says what GPU this is.
	Info() Info
	// Map puts zeroed memory at a fixed device address; both are multiples of Granularity. Whether that address is
	// free is the device's to say: an error names the range.
	Map(addr, size uint64) error
	// Unmap takes away what Map put at addr.
	Unmap(addr uint64) error
	// Write copies b to the device, Read from it. Both are done when they return.
	Write(addr uint64, b []byte) error
	Read(addr uint64, b []byte) error
	// Load takes a cubin, or PTX text where the backend compiles.
	Load(image []byte) (Code, error)
	// Prepare decides everything for many runs of words. It keeps nothing of words but kernels.
	Prepare(words []Word) (Program, error)
	// Close ends everything that the backend has made.
	Close() error
}

// Info describes a GPU.
type Info struct {
	Name   string
	Arch   int    // 90 for sm_90
	Driver string // version of the driver
	Memory uint64 // bytes
	// PTX says that Load takes PTX, Cubin that it takes machine code.
	PTX, Cubin bool
	// LoadsAtOnce says that several goroutines may call Load at once.
	LoadsAtOnce bool
}

// Code is an image that was loaded.
type Code interface {
	// Kernel finds a kernel by name.
	Kernel(name string) (Kernel, error)
	// Symbol finds a variable of the code: its address and size.
	Symbol(name string) (addr, size uint64, err error)
	Close() error
}

// A Kernel belongs to the backend whose Code it came from.
type Kernel interface {
	Name() string
	// Params is where each parameter stands in Launch.Params.
	Params() []Param
}

// A Param is one parameter of a kernel: bytes Offset to Offset+Size of Launch.Params.
type Param struct{ Offset, Size uint32 }

// A Program is words that are ready to run.
type Program interface {
	// Run runs all words in order; it returns when the last is complete, or with a *Fault or *Timeout. After either
	// of these the backend is of no more use but to be closed or, if it is a Reviver, revived.
	Run(timeout time.Duration) error
	Close() error
}

// A Word is work that may run in any order, or at once.
type Word struct{ Ops []Op }

// An Op is one piece of work: exactly one of these is set.
type Op struct {
	Launch *Launch
	Copy   *Copy
	Set    *Set
}

// A Launch runs a kernel.
type Launch struct {
	Kernel      Kernel
	Grid, Block [3]uint32 // blocks; threads of a block
	Cluster     [3]uint32 // blocks of a cluster; zero: what the kernel says
	Shared      uint32    // bytes of dynamic shared memory
	Params      []byte    // every byte of the kernel's parameters
	Cooperative bool
}

// A Copy is Height rows of Width bytes from device memory to device memory. Rows are a pitch apart.
type Copy struct{ Dst, Src, DstPitch, SrcPitch, Width, Height uint64 }

// A Set fills Height rows of Width elements with the low Size bytes of Value; Size is 1, 2 or 4. Rows are Pitch bytes
// apart.
type Set struct {
	Dst, Pitch, Width, Height uint64
	Value                     uint32
	Size                      int
}

// Place names a piece of work in a program.
type Place struct {
	Word, Op int    // -1: not known which
	Kernel   string // of a launch
}

// String names the word, the piece of work and the kernel, as far as they are known.
func (p Place) String() string {
	if p.Word < 0 {
		return "somewhere in the program"
	}
	s := fmt.Sprintf("word %d", p.Word)
	if p.Op >= 0 {
		s += fmt.Sprintf(", op %d", p.Op)
	}
	if p.Kernel != "" {
		s += " (" + p.Kernel + ")"
	}
	return s
}

// A Fault is work that failed on the GPU.
type Fault struct {
	Place
	Addr uint64 // 0: not known
	Err  error
}

func (f *Fault) Error() string {
	if f.Addr != 0 {
		return fmt.Sprintf("%v: fault at %#x: %v", f.Place, f.Addr, f.Err)
	}
	return fmt.Sprintf("%v: %v", f.Place, f.Err)
}

func (f *Fault) Unwrap() error { return f.Err }

// A Timeout is work that was not complete in time.
type Timeout struct {
	Place
	After time.Duration
}

func (t *Timeout) Error() string { return fmt.Sprintf("%v: not complete after %v", t.Place, t.After) }
