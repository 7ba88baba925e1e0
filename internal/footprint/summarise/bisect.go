package summarise

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/ir"
)

// A binary search has two variables at the head of a loop, p and q, that go on only as long as p < q, and become what
// they are or the middle m of both, or p becomes m + 1:
//
//	while (p < q) { m = (p+q)/2; if (…) p = m + 1; else q = m; }
//
// As p <= m and m+1 <= q, both stay between what they began with, and m is below what q began with. That holds as long
// as p + q does not overflow, and is rounded as a number that is not negative: which a launch finds out from the
// bounds of what they begin with (vBetween).

// A bisection is the two variables at the head of a loop.
type bisection struct {
	loop *ir.Loop
	p, q ir.ValID
	mid  map[ir.ValID]bool // values that are the middle
}

// bisect looks for binary searches. It reports whether there is a new one.
func (id inductions) bisect(l *ir.Loop) bool {
	phis := l.Header.Phis()
	for _, a := range phis {
		for _, b := range phis {
			p, q := a.Defs[0], b.Defs[0]
			if p == q || id.bisections[p] != nil || id.bisections[q] != nil ||
				id.width(id.vals[p]) != id.width(id.vals[q]) || id.width(id.vals[p]) < 32 {
				continue
			}
			if id.exprs[id.vals[p]].op != form.OpUnknown || id.exprs[id.vals[q]].op != form.OpUnknown {
				continue
			}
			if x := id.bisection(l, a, b); x != nil {
				id.bisections[p], id.bisections[q] = x, x
				for v := range x.mid {
					id.midpoints[v] = x
				}
				return true
			}
		}
	}
	return false
}

func (id inductions) bisection(l *ir.Loop, a, b *ir.Inst) *bisection {
	p, q := id.vals[a.Defs[0]], id.vals[b.Defs[0]]
	w := id.width(p)
	mids := map[exprID]bool{}
	always, later, first := true, true,
		true // p < q is tested: in every iteration; before every iteration but the first; before the first
	for i, from := range l.Header.Preds {
		np, nq := id.operand(a.Args[i], w), id.operand(b.Args[i], w)
		facts := id.edgeFacts(from.Block, from.Index, slices.Clone(id.facts[from.Block.Index]))
		if !id.f.Loops.Contains(l, from.Block) {
			first = first && id.less(facts, np, nq)
			continue
		}
		always = always && id.less(id.facts[from.Block.Index], p, q)
		later = later && id.less(facts, np, nq)
		for _, e := range id.choices(np, nil) {
			if x := id.exprs[e]; x.op == form.OpAdd {
				if one, ok := id.constant(x.b); ok && one == 1 && id.middle(x.a, p, q) {
					mids[x.a] = true
					continue
				}
			}
			if e != p && !id.middle(e, p, q) {
				return nil
			}
			if e != p {
				mids[e] = true
			}
		}
		for _, e := range id.choices(nq, nil) {
			if e != q && !id.middle(e, p, q) {
				return nil
			}
			if e != q {
				mids[e] = true
			}
		}
	}
	if len(mids) == 0 || !always && !(first && later) {
		return nil
	}
	x := &bisection{loop: l, p: a.Defs[0], q: b.Defs[0], mid: map[ir.ValID]bool{}}
	for v, e := range id.vals {
		in := id.f.Vals[v].Def
		if e == noExpr || !mids[e] || in == nil || in.Op == ir.Phi || in.Guarded() || len(in.Defs) != 1 ||
			id.widthOf(ir.ValID(v)) != w {
			continue
		}
		if first && later || id.less(id.facts[id.f.Vals[v].Block.Index], p, q) {
			x.mid[ir.ValID(v)] = true
		}
	}
	return x
}

// less reports whether p < q follows from one of some facts, if p and q are not negative and q - p does not overflow.
func (id inductions) less(facts []fact, p, q exprID) bool {
	for _, f := range facts {
		x := id.exprs[f.e]
		if x.op != form.OpLTS && x.op != form.OpLES && x.op != form.OpLTU && x.op != form.OpLEU {
			continue
		}
		signed := x.op == form.OpLTS || x.op == form.OpLES
		below, above, strict := x.a, x.b, x.op == form.OpLTS || x.op == form.OpLTU
		if f.not {
			below, above, strict = above, below, !strict
		}
		more := form.Truth(strict) & 1
		switch b, a := id.exprs[below], id.exprs[above]; {
		case below == p && above == q && strict:
			return true
		case !signed:
		case b.op == form.OpConst && a.op == form.OpSub && a.a == q && a.b == p && b.imm+more >= 1:
			return true // c < q - p
		case a.op == form.OpConst && b.op == form.OpSub && b.a == p && b.b == q && a.imm-more <= -1:
			return true
		case b.op == form.OpConst && above == q && b.imm < 1<<30:
			if c, ok := id.constant(p); ok && c < b.imm+more {
				return true // p is a number
			}
		}
	}
	return false
}

// middle reports whether a value is (p+q)/2, or p + (q-p)/2.
func (id inductions) middle(e, p, q exprID) bool {
	if x := id.half(e); x != noExpr {
		s := id.exprs[x]
		return s.op == form.OpAdd && (s.a == p && s.b == q || s.a == q && s.b == p)
	}
	x := id.exprs[e]
	if x.op != form.OpAdd {
		return false
	}
	for _, pair := range [...][2]exprID{{x.a, x.b}, {x.b, x.a}} {
		if d := id.half(pair[1]); d != noExpr && pair[0] == p {
			s := id.exprs[d]
			return s.op == form.OpSub && s.a == q && s.b == p
		}
	}
	return false
}

// half is what is divided by 2 in a value, if that is not negative; none: it is nothing of the kind.
func (id inductions) half(e exprID) exprID {
	x := id.exprs[e]
	c, ok := id.constant(x.b)
	if !ok || !((x.op == form.OpShrU || x.op == form.OpShrS) && c == 1 || (x.op == form.OpDivU ||
		x.op == form.OpDivS) && c == 2) {
		return noExpr
	}
	// x/2 of a signed number is (x + (x >>> w-1)) >> 1.
	if s := id.exprs[x.a]; s.op == form.OpAdd && x.op == form.OpShrS {
		for _, pair := range [...][2]exprID{{s.a, s.b}, {s.b, s.a}} {
			sign := id.exprs[pair[1]]
			if n, ok := id.constant(sign.b); ok && sign.op == form.OpShrU && sign.a == pair[0] && n == int64(x.w)-1 {
				return pair[0]
			}
		}
	}
	return x.a
}
