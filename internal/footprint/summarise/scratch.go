package summarise

import (
	"slices"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/form"
	"holdfast/internal/ir"
)

// What the threads of a block have written before a barrier, no thread of it sees as it was before the launch. A read
// behind the barrier is covered by a write if
//
//   - every thread comes to the write: its block is on every way through the kernel. Or every thread whose tid.x is 0
//   does, of which each
//     block has one: that is what alone decides about it, in a block on every way;
//   - no barrier may be passed before it, whatever a thread does: a thread that waits at a barrier, or has passed one,
//   has written;
//   - a barrier of the whole block, on every way through the kernel, dominates the read: whoever reads has waited
//   there for all others, and
//     none of them has left instead, or was counted in place of another: no thread arrives at a barrier of that number
//     and goes on;
//   - what the write writes in all these threads is one piece (a launch finds out), of which the read reads a part:
//   its address
//     depends on the block in the same way, and what else is in it does not lead out of the piece.
//
// An atomic operation whose old value is covered changes nothing that was there before the launch either: block-wide
// counters that one thread has set to 0 are counted again.

// coverage finds writes that cover reads.
type coverage struct{ *values }

// cover finds, for accesses that may see what was there before, a write that may cover them.
func (cv coverage) cover(list []*access) {
	all, bar := cv.barriers()
	if len(bar) == 0 {
		return
	}
	next := int32(0)
	for _, w := range list {
		lone, ok := cv.written(w)
		if w.kind != footprint.IsWrite || w.atom != (atomicUpdate{}) || w.bytes == 0 || w.async || w.upTo || !ok ||
			cv.behindBarrier(w.block) {
			continue
		}
		if slices.ContainsFunc(all, func(b position) bool { return b.block == w.block && b.order < w.order }) {
			continue
		}
		for _, r := range list {
			if r.kind == footprint.IsWrite || r.hidden || r.bytes == 0 || r.cover != 0 || !cv.sameBlocks(w.f, r.f) ||
				!cv.behind(bar, r) {
				continue
			}
			if w.cover == 0 {
				next++
				w.cover, w.lone = next, lone
			}
			r.cover = w.cover
		}
	}
}

// barriers lists the instructions where threads of a block wait for each other, and those that wait for the whole
// block on every way through the kernel.
func (cd *code) barriers() (all, list []position) {
	var parts, whole []*ir.Inst // where not all wait; those of list
	for at, in := range cd.ordered() {
		switch {
		case in.Op == ir.Call:
			return nil, nil // there may be any in it
		case in.Op == ir.Barrier:
			all = append(all, at)
			switch {
			case in.Barrier.Among != ir.BlockGroup: // they count for themselves
			case !waitsForAll(in):
				parts = append(parts, in)
			case !in.Guarded() && cd.always(at.block):
				list, whole = append(list, at), append(whole, in)
			}
		}
	}
	n := 0
	for i, in := range whole {
		if !slices.ContainsFunc(parts, func(p *ir.Inst) bool { return sameNumber(in, p) }) {
			list[n] = list[i]
			n++
		}
	}
	return all, list[:n]
}

// sameNumber reports whether two may be one barrier of the 16 that a block has.
func sameNumber(a, b *ir.Inst) bool {
	if len(a.Args) == 0 || len(b.Args) == 0 || a.Args[0].Kind != ir.Constant || b.Args[0].Kind != ir.Constant {
		return true
	}
	return a.Args[0].Bits == b.Args[0].Bits
}

// waitsForAll reports whether a barrier is one of the whole block, and no thread goes on before all others have come.
func waitsForAll(in *ir.Inst) bool {
	return in.Barrier.Among == ir.BlockGroup && in.Barrier.Arrives && in.Barrier.Waits && !in.Barrier.Counted
}

// written reports whether all threads make an access, or (lone) those whose tid.x is 0.
func (cv coverage) written(w *access) (lone, ok bool) {
	if cv.always(w.block) {
		if w.guard == noExpr {
			return false, true
		}
		return true, cv.isFirst(w.guard, false)
	}
	if w.guard != noExpr || len(w.block.Preds) != 1 {
		return false, false
	}
	e := w.block.Preds[0]
	end := e.Block.End()
	if !cv.always(e.Block) || end == nil || end.Op != ir.Branch || !end.Guarded() || len(e.Block.Succs) != 2 ||
		e.Block.Succs[0].Block == e.Block.Succs[1].Block {
		return false, false
	}
	return true, cv.isFirst(cv.operand(end.Guard, 1), e.Index == 1)
}

// isFirst reports whether a predicate is tid.x == 0, or its opposite is.
func (cv coverage) isFirst(e exprID, not bool) bool {
	x := cv.exprs[e]
	for ; x.op == form.OpNot; x = cv.exprs[x.a] {
		not = !not
	}
	if x.op != form.OpEQ || not || cv.exprs[x.a].op != form.OpThread || cv.exprs[x.a].imm != form.TidX {
		return false
	}
	c, ok := cv.constant(x.b)
	return ok && c == 0
}

// sameBlocks reports whether the place of a write is made from coordinates of its thread and of its block alone, and
// the place of a read from the same ones of the block.
func (cv coverage) sameBlocks(w, r *linear) bool {
	if w.sym != r.sym {
		return false
	}
	for _, t := range w.terms {
		v := &cv.vars[t.v]
		switch {
		case v.kind != form.KindThread || v.imm == form.LaneID:
			return false
		case v.imm <= form.TidZ:
		case !slices.ContainsFunc(r.terms, func(u term) bool { return u.v == t.v }):
			return false
		}
	}
	return true
}
