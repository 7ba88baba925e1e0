package softgpu

import (
	"fmt"
	"math/bits"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

const numBarriers = 16

// A barrier is one of the 16 of a block.
type barrier struct {
	arrived  int // threads; warps with lanes that do not exist count whole where the count is given
	expected int // given count; 0 = every thread of the block
	popc     uint32
	and, or  bool
	split    bool // somebody arrived and went on
}

// A barrierOp is bar.sync, bar.arrive or bar.red; the operands are in inst.a
// (number), b (count, if hasCount), c (predicate) and d (result).
type barrierOp struct {
	mode     string
	fn       string
	hasCount bool
	notC     bool
}

// barrier makes the lanes of mask arrive. Threads count one by one, as from
// sm_70 on; lanes that are diverged need not meet first.
func (w *warp) barrier(in *inst, mask uint32) {
	op := in.x.(*barrierOp)
	b := w.block
	lane := bits.TrailingZeros32(mask)
	id := w.r.v32(in.a)[lane]
	if id >= numBarriers {
		w.fault(FaultBarrier, in, lane, 0, fmt.Sprintf("barrier %d of %d", id, numBarriers))
	}
	for m := mask; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros32(m); w.r.v32(in.a)[i] != id {
			w.fault(FaultBarrier, in, i, 0, "threads of a warp name different barriers in one instruction")
		}
	}
	bar := &b.bars[id]
	expected := 0
	if op.hasCount {
		expected = int(w.r.v32(in.b)[lane])
		if expected == 0 || expected%32 != 0 || expected > len(b.warps)*32 {
			w.fault(FaultBarrier, in, lane, 0, fmt.Sprintf("thread count %d: want a multiple of 32 up to %d",
				expected, len(b.warps)*32))
		}
	}
	if bar.arrived > 0 && bar.expected != expected {
		w.fault(FaultBarrier, in, lane, 0, fmt.Sprintf("barrier %d was entered with count %d and with count %d",
			id, bar.expected, expected))
	}
	if bar.arrived == 0 {
		*bar = barrier{expected: expected, and: true}
	}
	bar.arrived += bits.OnesCount32(mask)
	if op.hasCount && mask == w.alive {
		bar.arrived += 32 - bits.OnesCount32(mask)
	}
	if op.mode == "red" {
		p := *w.r.p(in.c)
		if op.notC {
			p = ^p
		}
		bar.popc += uint32(bits.OnesCount32(p & mask))
		bar.and = bar.and && p&mask == mask
		bar.or = bar.or || p&mask != 0
	}
	if op.mode == "arrive" {
		bar.split = true
		w.groups[w.cur].pc++
	} else {
		g := w.detach(mask)
		g.wait, g.bar = waitBarrier, uint8(id)
	}
	b.tryRelease(int(id))
}

// tryRelease opens barrier id if everybody has arrived. Threads that have
// exited count as arrived where every thread is expected.
func (b *block) tryRelease(id int) {
	bar := &b.bars[id]
	if bar.arrived == 0 {
		return
	}
	if bar.expected == 0 && bar.arrived < b.live || bar.expected != 0 && bar.arrived < bar.expected {
		return
	}
	if b.watch != nil && !bar.split && (bar.expected == 0 || bar.expected >= len(b.warps)*32) {
		b.watch.Barrier()
	}
	for _, w := range b.warps {
		for i := range w.groups {
			g := &w.groups[i]
			if g.wait != waitBarrier || int(g.bar) != id {
				continue
			}
			in := &b.launch.prog.code[g.pc]
			if op := in.x.(*barrierOp); op.mode == "red" {
				if op.fn == "popc" {
					d := w.r.v32(in.d)
					for m := g.mask; m != 0; m &= m - 1 {
						d[bits.TrailingZeros32(m)] = bar.popc
					}
				} else {
					d := w.r.p(in.d)
					*d &^= g.mask
					if op.fn == "and" && bar.and || op.fn == "or" && bar.or {
						*d |= g.mask
					}
				}
			}
			g.wait = waitNone
			g.pc++
		}
	}
	*bar = barrier{}
}

// exited is called when threads have exited: barriers may open by that.
func (b *block) exited() {
	for id := range b.bars {
		if bar := &b.bars[id]; bar.arrived > 0 && bar.expected == 0 {
			b.tryRelease(id)
		}
	}
}

// deadlock describes a block in which every thread waits.
func (b *block) deadlock() {
	for _, w := range b.warps {
		for i := range w.groups {
			g := &w.groups[i]
			in := &b.launch.prog.code[g.pc]
			lane := bits.TrailingZeros32(g.mask)
			if g.wait == waitBarrier {
				bar := &b.bars[g.bar]
				want := bar.expected
				if want == 0 {
					want = b.live
				}
				w.fault(FaultBarrier, in, lane, 0,
					fmt.Sprintf("every thread of the block waits; barrier %d has %d of %d threads",
						g.bar, bar.arrived, want))
			}
			if g.wait == waitCluster {
				c := b.cluster
				w.fault(FaultBarrier, in, lane, 0,
					fmt.Sprintf("every thread of the cluster waits; its barrier has %d of %d threads",
						c.arrived, c.live))
			}
			if g.wait == waitLanes {
				w.fault(FaultBarrier, in, lane, 0,
					fmt.Sprintf("every thread of the block waits; lanes %#x wait here for lanes %#x",
						g.mask, g.need&^g.mask))
			}
		}
	}
}

func (ba barriers) barrier(in *isa.Inst) {
	op := &barrierOp{mode: in.Mode, fn: in.Fn}
	x := inst{kind: kindBarrier, x: op}
	args := in.Args
	if op.mode == "red" {
		x.d = ba.writeExact(args[0].X, in.T)
		last := args[len(args)-1].X
		x.c = ba.read(last, ptx.Pred)
		args = args[1 : len(args)-1]
	}
	x.a = ba.read(args[0].X, ptx.U32)
	if len(args) > 1 {
		op.hasCount = true
		x.b = ba.read(args[1].X, ptx.U32)
	}
	ba.emit(x)
}
