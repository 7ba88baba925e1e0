package softgpu

import (
	"math/bits"
	"slices"

	"holdfast/internal/softgpu/lanes"
	"holdfast/internal/softgpu/observe"
)

// An Observer records which bytes of global memory a launch accesses: device memory, constants and module variables,
// and aliased host memory; not shared, local or parameter memory. Put it in a LaunchConfig.
//
// It costs nothing when LaunchConfig.Observer is nil: memory instructions are wrapped in a copy of the program that
// observed launches use. Observed, kernels that do little but access memory take 2 to 8 times the processor time
// (BenchmarkObserver prints it); arithmetic costs what it did.
type Observer = observe.Observer

// What an Observer tells.
type (
	Access = observe.Access
	Range  = observe.Range
	Site   = observe.Site
)

// The bits of an Access.
const (
	Read         = observe.Read
	Written      = observe.Written
	WrittenFirst = observe.WrittenFirst
	Exposed      = observe.Exposed
)

// isWindow: shared, local, parameter memory and functions.
func isWindow(addr uint64) bool { return addr-windowStart < windowEnd-windowStart }

// access records one access of each lane of mask: size bytes at the address
// that the instruction names.
func (w *warp) access(in *inst, mask uint32, size uint64, a Access) {
	c := w.block.watch
	focus := c.Focused()
	if mask == fullMask && !focus && in.wide&wideA != 0 {
		// A row that is known to be exposed, to which this was done before: who wrote it last does not matter.
		at := w.r.v64(in.a)
		if row, _ := lanes.Row64(at, size); row && c.Touched(at[0]+in.off, 32*size, a|Exposed) {
			return
		}
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		addr := w.address(in, i)
		if focus {
			c.Note(in.src, addr, size, a)
		}
		w.record(i, addr, size, a)
	}
}

// observe records one access of a lane that is no instruction's own, if the launch is observed.
func (w *warp) observe(lane int, addr, n uint64, a Access) {
	c := w.block.watch
	if c == nil || n == 0 {
		return
	}
	if c.Focused() {
		c.Note(nil, addr, n, a)
	}
	w.record(lane, addr, n, a)
}

func (w *warp) record(lane int, addr, n uint64, a Access) {
	if isWindow(addr) {
		return
	}
	c := w.block.watch
	if a&Read != 0 {
		c.Read(w.id*32+lane, addr, n)
	}
	if a&Written != 0 {
		c.Write(w.id*32+lane, addr, n)
	}
}

// watched is an instruction of global memory as observed launches run it.
func watched(run execFunc, size uint64, a Access) execFunc {
	return func(w *warp, in *inst, mask uint32) {
		w.access(in, mask, size, a)
		run(w, in, mask)
	}
}

// observed is the code with every access of global memory wrapped. It is made once.
func (p *program) observed() []inst {
	p.observeOnce.Do(func() {
		p.observedCode = slices.Clone(p.code)
		for _, t := range p.touches {
			in := &p.observedCode[t.inst]
			in.exec = watched(in.exec, t.size, t.access)
		}
	})
	return p.observedCode
}

// A touch is an instruction that accesses size bytes of global memory in each lane.
type touch struct {
	inst   int
	size   uint64
	access Access
}

// touches notes that the last instruction emitted accesses memory.
func (me memory) touches(sp memSpace, size uint64, a Access) {
	if sp == memGlobal {
		me.p.touches = append(me.p.touches, touch{len(me.p.code) - 1, size, a})
	}
}
