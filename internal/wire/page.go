package wire

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Layout of the shared page, a memfd that the program makes and the daemon maps read-only. Offsets in bytes; fields are
// naturally aligned and written by the program only. Threads count in slots of their own (no atomics on the launch
// path); what ended threads counted is folded into slot 0.
const (
	PageMagic  uint32 = 0x31504648 // "HFP1"
	PageSize          = 1 << 20
	PageSlots         = 4096 // offset of slot 0
	SlotSize          = 64
	MaxSlots          = (PageSize - PageSlots) / SlotSize
	offMagic          = 0
	offVersion        = 4
	offGate           = 8  // u32: GateOpen, GateClosed or GateWatched
	offSlots          = 12 // u32: slots ever used
	offBytes          = 16 // u64: bytes of device memory held, rounded to the granularity
	offAllocs         = 24 // u64: allocations of the program alive
	offRefused        = 32 // u32: id (internal/cuda/api) of the last call that was refused or cannot be held
	offWaiting        = 36 // u32: threads waiting at the gate

	slotInside   = 0  // u32: depth of hooked calls
	slotCall     = 4  // u32: id of the call inside (valid while slotInside > 0)
	slotLaunches = 8  // u64
	slotGraphs   = 16 // u64: graph launches
	slotCopies   = 24 // u64: copies and sets
	slotTID      = 32 // u32: 0: free
)

// States of the gate.
const (
	GateOpen    uint32 = 0
	GateClosed  uint32 = 1 // calls wait
	GateWatched uint32 = 2 // calls go through, and work is recorded or asks
)

// Counters is what the shared page says at one moment (not atomically over all threads).
type Counters struct {
	GateClosed  bool
	Launches    uint64
	Graphs      uint64 // graph launches
	Copies      uint64 // copies and sets
	Bytes       uint64 // device memory held
	Allocations uint64
	Inside      int // threads inside a hooked call
	Waiting     int // threads waiting at the gate
	LastRefused uint32
}

// Page is a mapped shared page.
type Page struct{ b []byte }

// MapPage maps the page of a program. It refuses a descriptor that could shrink under us (a read would then be SIGBUS).
func MapPage(fd int) (*Page, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shared page: %w", err)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("shared page: %w: not a memfd sealed against shrinking", ErrMalformed)
	}
	if st.Size != PageSize {
		return nil, fmt.Errorf("shared page: %w: %d bytes, want %d", ErrMalformed, st.Size, PageSize)
	}
	b, err := unix.Mmap(fd, 0, PageSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shared page: %w", err)
	}
	p := &Page{b}
	if m := p.u32(offMagic); m != PageMagic {
		p.Close()
		return nil, fmt.Errorf("shared page: %w: magic %#x", ErrMalformed, m)
	}
	return p, nil
}

// Read adds up the counters.
func (p *Page) Read() Counters {
	c := Counters{
		GateClosed:  p.u32(offGate) == GateClosed,
		Bytes:       p.u64(offBytes),
		Allocations: p.u64(offAllocs),
		Waiting:     int(p.u32(offWaiting)),
		LastRefused: p.u32(offRefused),
	}
	n := min(int(p.u32(offSlots)), MaxSlots)
	for i := range n {
		s := PageSlots + i*SlotSize
		c.Launches += p.u64(s + slotLaunches)
		c.Graphs += p.u64(s + slotGraphs)
		c.Copies += p.u64(s + slotCopies)
		if p.u32(s+slotInside) != 0 {
			c.Inside++
		}
	}
	return c
}

// Close unmaps the page.
func (p *Page) Close() error {
	b := p.b
	p.b = nil
	if b == nil {
		return nil
	}
	return unix.Munmap(b)
}

// The program writes while we read: loads are atomic so that a value is never torn.
func (p *Page) u32(off int) uint32 { return atomic.LoadUint32(word(p.b, off)) }
func (p *Page) u64(off int) uint64 { return atomic.LoadUint64(long(p.b, off)) }
