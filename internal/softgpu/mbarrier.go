package softgpu

import (
	"math/bits"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// An mbarrier object is 64 bits of shared memory (PTX ISA 9.7.13.15), opaque
// to programs. Here: from bit 0, 20 bits of pending arrivals, 20 of
// the count expected in the next phase, 21 of transactions (signed), one bit of the phase.
// The state that an arrival returns is the object before it.
//
// Copies are done when they are issued: a transaction count is complete as
// soon as somebody has announced it.
type mbarrier uint64

// barriers translates what waits for other warps: bar, barrier and mbarrier.
type barriers struct{ *operands }

const (
	mbarCount = 1<<20 - 1
	mbarTx    = 1<<21 - 1
)

func newMbarrier(count uint32) mbarrier {
	return mbarrier(uint64(count&mbarCount) * (1 | 1<<20))
}

func (b mbarrier) pending() uint32  { return uint32(b) & mbarCount }
func (b mbarrier) expected() uint32 { return uint32(b>>20) & mbarCount }
func (b mbarrier) tx() int32        { return int32(uint32(b>>40)&mbarTx<<11) >> 11 }
func (b mbarrier) phase() uint32    { return uint32(b >> 61 & 1) }

func pack(pending, expected uint32, tx int32, phase uint32) mbarrier {
	return mbarrier(uint64(pending&mbarCount) | uint64(expected&mbarCount)<<20 | uint64(uint32(tx)&mbarTx)<<40 |
		uint64(phase&1)<<61)
}

// step takes arrivals and changes the transaction count; a phase that is complete by that ends.
func (b mbarrier) step(arrivals, drop uint32, tx int32) mbarrier {
	pending, expected, t, phase := b.pending()-arrivals, b.expected()-drop, b.tx()+tx, b.phase()
	if pending&mbarCount == 0 && t == 0 {
		pending, phase = expected, phase^1
	}
	return pack(pending, expected, t, phase)
}

// mbarrierAt gives the object that lane names.
func (w *warp) mbarrierAt(in *inst, sp memSpace, lane int, addr uint64) *mbarrier {
	return (*mbarrier)(w.pointer(in, sp, lane, addr, 8, pageWritable))
}

// completeTx ends transactions of n bytes on the object at addr in shared memory.
func (w *warp) completeTx(in *inst, lane int, addr, n uint64) {
	b := w.mbarrierAt(in, memShared, lane, addr)
	*b = b.step(0, 0, -int32(n))
}

func (ba barriers) mbarrier(in *isa.Inst) {
	args := in.Args
	if in.Op == "mbarrier.pending_count" {
		d, a := ba.writeExact(args[0].X, ptx.U32), ba.read(args[1].X, ptx.B64)
		ba.emit(inst{kind: kindExec, exec: func(w *warp, _ *inst, mask uint32) {
			for m := mask; m != 0; m &= m - 1 {
				i := bits.TrailingZeros32(m)
				w.r.v32(d)[i] = mbarrier(w.r.v64(a)[i]).pending()
			}
		}})
		return
	}
	d := uint32(regSink)
	if args[0].Spec.Role == isa.Dst {
		t := args[0].Type
		d = ba.writeExact(args[0].X, t)
		args = args[1:]
	}
	sp := ba.accessSpace(in, args[0].X)
	x := inst{kind: kindPoll, d: d}
	var wide bool
	x.a, x.off, wide = ba.address(args[0].X, sp)
	if wide {
		x.wide = wideA
	}
	one := ba.constBits(1, slot32)
	count := one
	if len(args) > 1 && args[1].Type != ptx.B64 {
		count = ba.read(args[1].X, ptx.U32)
	}
	each := func(f func(w *warp, in *inst, lane int, b *mbarrier)) {
		x.exec = func(w *warp, in *inst, mask uint32) {
			for m := mask; m != 0; m &= m - 1 {
				i := bits.TrailingZeros32(m)
				f(w, in, i, w.mbarrierAt(in, sp, i, w.address(in, i)))
			}
		}
		ba.emit(x)
	}
	// update steps the object; the register gets its state before.
	update := func(f func(b mbarrier, n uint32) mbarrier) {
		each(func(w *warp, in *inst, i int, b *mbarrier) {
			n := w.r.v32(count)[i]
			w.r.v64(in.d)[i] = uint64(*b)
			*b = f(*b, n)
		})
	}
	switch in.Op {
	case "mbarrier.init":
		each(func(w *warp, in *inst, i int, b *mbarrier) {
			n := w.r.v32(count)[i]
			if n == 0 || n > mbarCount {
				w.fault(FaultBarrier, in, i, 0, "mbarrier.init: count must be 1 to 2^20-1")
			}
			*b = newMbarrier(n)
		})
	case "mbarrier.inval":
		each(func(_ *warp, _ *inst, _ int, b *mbarrier) { *b = 0 })
	case "mbarrier.expect_tx":
		update(func(b mbarrier, n uint32) mbarrier {
			return pack(b.pending(), b.expected(), b.tx()+int32(n), b.phase())
		})
	case "mbarrier.complete_tx":
		update(func(b mbarrier, n uint32) mbarrier { return b.step(0, 0, -int32(n)) })
	case "mbarrier.arrive", "mbarrier.arrive.noComplete":
		update(func(b mbarrier, n uint32) mbarrier { return b.step(n, 0, 0) })
	case "mbarrier.arrive.expect_tx":
		update(func(b mbarrier, n uint32) mbarrier { return b.step(1, 0, int32(n)) })
	case "mbarrier.arrive_drop", "mbarrier.arrive_drop.noComplete":
		update(func(b mbarrier, n uint32) mbarrier { return b.step(n, n, 0) })
	case "mbarrier.arrive_drop.expect_tx":
		update(func(b mbarrier, n uint32) mbarrier { return b.step(1, 1, int32(n)) })
	case "cp.async.mbarrier.arrive":
		// The copies are done. Without .noinc the arrival is one that was added for it.
		if in.Has(isa.Noinc) {
			update(func(b mbarrier, _ uint32) mbarrier { return b.step(1, 0, 0) })
		} else {
			each(func(*warp, *inst, int, *mbarrier) {})
		}
	default:
		ba.mbarrierWait(in, x, args, each)
	}
}

// mbarrierWait is test_wait and try_wait, which differ only in how long they
// may take. Both tell whether a phase has ended; the warp gives way if it has not.
func (ba barriers) mbarrierWait(in *isa.Inst, x inst, args []isa.Arg,
	each func(func(w *warp, in *inst, lane int, b *mbarrier))) {
	parity := in.Op == "mbarrier.test_wait.parity" || in.Op == "mbarrier.try_wait.parity"
	var state uint32
	if parity {
		state = ba.read(args[1].X, ptx.U32)
	} else {
		state = ba.read(args[1].X, ptx.B64)
	}
	at := len(ba.p.code)
	each(func(w *warp, in *inst, i int, b *mbarrier) {
		var phase uint32
		if parity {
			phase = w.r.v32(state)[i] & 1
		} else {
			phase = mbarrier(w.r.v64(state)[i]).phase()
		}
		p := w.r.p(in.d)
		*p &^= 1 << i
		if b.phase() != phase {
			*p |= 1 << i
		} else {
			w.missed = true
		}
	})
	ba.p.code[at].kind = kindWait
}
