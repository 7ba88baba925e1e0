package softgpu

import (
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/lanes"
	"holdfast/internal/softgpu/number"
)

// A kind tells the interpreter loop how to run an instruction.
type kind uint8

const (
	kindVec     kind = iota // vec on whole vectors, then the active lanes are kept
	kindLane                // lane on each active lane
	kindCmp                 // cmp gives a mask: setp
	kindLaneCmp             // lane gives 0 or 1: setp of the rarer types
	kindExec                // exec does everything
	kindPoll                // exec, of a kind that spinning code is made of
	kindBranch
	kindTable // brx.idx
	kindCall
	kindReturn
	kindExit
	kindBarrier
	kindSync    // exec, after the lanes of a member mask have met
	kindSleep   // nanosleep: give way
	kindWait    // exec tests for something other threads do: give way if it is not so
	kindCluster // barrier.cluster
	kindTrap
)

// The bits of inst.wide: which operands have 64-bit lanes.
const (
	wideD uint8 = 1 << iota
	wideA
	wideB
	wideC
)

type (
	vecFunc  = lanes.Vec
	cmpFunc  = lanes.Cmp
	laneFunc = number.Func
	execFunc func(w *warp, in *inst, mask uint32)
)

// An inst is one decoded instruction. d, a, b, c, e are byte offsets into the
// register file of a warp.
type inst struct {
	kind     kind
	wide     uint8
	guardNot bool
	boolOp   uint8  // of setp
	guard    uint32 // predicate; 0 = none
	d        uint32
	a        uint32
	b        uint32
	c        uint32
	e        uint32
	target   int32
	off      uint64
	vec      vecFunc
	cmp      cmpFunc
	lane     laneFunc
	exec     execFunc
	x        any // more of it, by kind: regList, *callSite, *barrierOp…
	src      *isa.Inst
	fn       *function
}

// The start of a register file.
const (
	regNone  = 0 // guard 0: no guard
	regSinkP = 8 // predicate nobody reads
	regCC    = 16
	regSink  = 256 // vector nobody reads
	regTmp   = 512 // results of partly active instructions
	regFirst = 768
)

// regs is the register file of a warp. The lowering makes every offset and
// the size of the file together, so that offsets are not checked again.
type regs struct{ base unsafe.Pointer }

func (r regs) p(off uint32) *uint32       { return (*uint32)(unsafe.Add(r.base, off)) }
func (r regs) v32(off uint32) *[32]uint32 { return (*[32]uint32)(unsafe.Add(r.base, off)) }
func (r regs) v64(off uint32) *[32]uint64 { return (*[32]uint64)(unsafe.Add(r.base, off)) }

// get reads one lane, put writes one.
func (r regs) get(off uint32, lane int, wide bool) uint64 {
	if wide {
		return r.v64(off)[lane&31]
	}
	return uint64(r.v32(off)[lane&31])
}

func (r regs) putPred(off uint32, lane int, x bool) {
	bit := uint32(1) << (lane & 31)
	if *r.p(off) &^= bit; x {
		*r.p(off) |= bit
	}
}

func (r regs) put(off uint32, lane int, wide bool, x uint64) {
	if wide {
		r.v64(off)[lane&31] = x
	} else {
		r.v32(off)[lane&31] = uint32(x)
	}
}
