package summarise

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/ir"
)

// merges makes the values of phis.
type merges struct{ *values }

// phi is the value of a phi: an induction variable, a choice, or one of its arguments.
func (mg merges) phi(b *ir.Block, in *ir.Inst) exprID {
	d := in.Defs[0]
	w := mg.widthOf(d)
	if l := mg.f.Loops.Of[b.Index]; l != nil && l.Header == b && !l.Irreducible {
		return mg.headerPhi(b, l, in, w)
	}
	var list []exprID
	same := true
	for i, p := range b.Preds {
		if !mg.done[p.Block.Index] {
			return mg.unknown(w, b)
		}
		e := mg.operand(in.Args[i], w)
		list = append(list, e)
		same = same && e == list[0]
	}
	if len(list) == 0 {
		return mg.unknown(w, b)
	}
	if same {
		return list[0]
	}
	if x, ok := mg.samePlace(list); ok {
		x.block, x.in = b, in
		return mg.loaded(w, b, x)
	}
	var settled *linear
	if w > 1 {
		settled = mg.settled(b, list, w)
	}
	if e := mg.ifElse(b, list, w); e != noExpr && settled == nil {
		return e
	}
	if w == 1 {
		return mg.unknown(w, b)
	}
	p := phi{args: list}
	for _, e := range b.Preds {
		var conds []fact
		for _, x := range mg.edgeFacts(e.Block, e.Index, slices.Clone(mg.facts[e.Block.Index])) {
			if mg.uniform[x.e] {
				conds = append(conds, x)
			}
		}
		p.conds = append(p.conds, conds)
	}
	mg.phis = append(mg.phis, p)
	e := mg.intern(expr{op: form.OpPhi, w: w, imm: int64(len(mg.phis) - 1)})
	mg.origin[e] = b
	if settled != nil {
		mg.linear[e] = settled
	}
	return e
}

func (mg merges) headerPhi(b *ir.Block, l *ir.Loop, in *ir.Inst, w uint8) exprID {
	for _, iv := range l.Inductions {
		if iv.Phi != in.Defs[0] || w == 1 || iv.Type.Width != uint16(w) {
			continue
		}
		init := mg.operand(iv.Init, w)
		switch iv.Op {
		case ir.Add, ir.Sub:
			step := mg.operand(iv.Step, w)
			if iv.Op == ir.Sub {
				step = mg.unary(form.OpNeg, w, step)
			}
			c := mg.intern(expr{op: form.OpCounter, w: 64, imm: mg.loopOf[l]})
			mg.origin[c] = l.Header
			return mg.binary(form.OpAdd, w, init, mg.binary(form.OpMul, w, mg.unary(form.OpTrunc, w, c), step))
		case ir.Shr:
			mg.serial++
			signed := int64(0)
			if iv.Type.Kind == ir.Signed {
				signed = 1
			}
			e := mg.intern(expr{op: form.OpHalving, w: w, a: init, imm: 2*mg.serial + signed})
			mg.origin[e] = b
			return e
		}
	}
	if s, ok := mg.steps[in.Defs[0]]; ok {
		return mg.stepped(b, l, in, w, s)
	}
	if x := mg.bisections[in.Defs[0]]; x != nil {
		return mg.between(b, w, x, 0)
	}
	if mg.repeated[in.Defs[0]] {
		return mg.reload(b, l, in, w)
	}
	if list, ok := mg.carried[in.Defs[0]]; ok {
		return mg.carriedValue(b, l, in, w, list)
	}
	return mg.unknown(w, b)
}

// stepped is a phi whose step was found by an earlier pass.
func (mg merges) stepped(b *ir.Block, l *ir.Loop, in *ir.Inst, w uint8, s step) exprID {
	init := noExpr
	for i, p := range b.Preds {
		if mg.f.Loops.Contains(l, p.Block) {
			continue
		}
		e := mg.operand(in.Args[i], w)
		if init != noExpr && init != e {
			return mg.unknown(w, b)
		}
		init = e
	}
	if init == noExpr {
		return mg.unknown(w, b)
	}
	if s.by != noExpr {
		c := mg.intern(expr{op: form.OpCounter, w: 64, imm: mg.loopOf[l]})
		mg.origin[c] = l.Header
		return mg.binary(form.OpAdd, w, init, mg.binary(form.OpMul, w, mg.unary(form.OpTrunc, w, c),
			mg.unary(form.OpTrunc, w, s.by)))
	}
	mg.drifts = append(mg.drifts, drift{loop: mg.loopOf[l], lo: s.lo, hi: s.hi})
	e := mg.intern(expr{op: form.OpDrift, w: w, a: init, imm: int64(len(mg.drifts) - 1)})
	mg.origin[e] = b
	return e
}

// ifElse sees that the two arguments of a phi come from the two sides of a branch.
func (mg merges) ifElse(b *ir.Block, list []exprID, w uint8) exprID {
	if len(b.Preds) != 2 {
		return noExpr
	}
	top := mg.f.Blocks[mg.f.Dom.Parent[b.Index]]
	end := top.End()
	if end == nil || end.Op != ir.Branch || !end.Guarded() || len(top.Succs) != 2 {
		return noExpr
	}
	side := func(p ir.Edge) int {
		found := -1
		for i, s := range top.Succs {
			from := p.Block == top && p.Index == i || s.Block != b && len(s.Block.Preds) == 1 &&
				mg.f.Dom.Dominates(s.Block.Index, p.Block.Index)
			if from {
				if found >= 0 {
					return -1
				}
				found = i
			}
		}
		return found
	}
	s0, s1 := side(b.Preds[0]), side(b.Preds[1])
	if s0 < 0 || s1 < 0 || s0 == s1 {
		return noExpr
	}
	if s0 == 1 {
		list = []exprID{list[1], list[0]}
	}
	return decisions{mg.graph}.choice(w, mg.operand(end.Guard, 1), list[0], list[1])
}

// carriedValue is the value of a phi that carriedOf recognised.
func (mg merges) carriedValue(b *ir.Block, l *ir.Loop, in *ir.Inst, w uint8, list []exprID) exprID {
	var p phi
	for i, from := range b.Preds {
		if !mg.f.Loops.Contains(l, from.Block) {
			p.args = append(p.args, mg.operand(in.Args[i], w))
		}
	}
	if len(p.args) == 0 {
		return mg.unknown(w, b)
	}
	p.args = append(p.args, list...)
	p.conds = make([][]fact, len(p.args))
	mg.phis = append(mg.phis, p)
	e := mg.intern(expr{op: form.OpPhi, w: w, imm: int64(len(mg.phis) - 1)})
	mg.origin[e] = b
	return e
}

// reload is a phi of which loadedAgain has said so.
func (mg merges) reload(b *ir.Block, l *ir.Loop, in *ir.Inst, w uint8) exprID {
	for i, p := range b.Preds {
		if mg.f.Loops.Contains(l, p.Block) {
			continue
		}
		if x, ok := mg.loadOf(mg.operand(in.Args[i], w)); ok && (invariants{mg.graph, mg.code}).fixed(l, x.at) {
			x.block, x.in = b, in
			return mg.loaded(w, b, x)
		}
	}
	return mg.unknown(w, b)
}

// between is a variable of a binary search, or the middle of both: from what p begins with to what q begins with, or
// one less.
func (mg merges) between(b *ir.Block, w uint8, x *bisection, less int64) exprID {
	l := x.loop
	init := func(v ir.ValID) exprID {
		found := noExpr
		for i, from := range l.Header.Preds {
			if mg.f.Loops.Contains(l, from.Block) {
				continue
			}
			e := mg.operand(mg.f.Vals[v].Def.Args[i], w)
			if found != noExpr && found != e {
				return noExpr
			}
			found = e
		}
		return found
	}
	p, q := init(x.p), init(x.q)
	if p == noExpr || q == noExpr {
		return mg.unknown(w, b)
	}
	mg.serial++
	e := mg.intern(expr{op: form.OpBetween, w: w, a: p, b: q, c: mg.number(w, less), imm: mg.serial})
	mg.origin[e] = b
	return e
}
