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
func (k *kernel) bisect(l *ir.Loop) bool {
	phis := l.Header.Phis()
	for _, a := range phis {
		for _, b := range phis {
			p, q := a.Defs[0], b.Defs[0]
			if p == q || k.bisections[p] != nil || k.bisections[q] != nil ||
				k.width(k.vals[p]) != k.width(k.vals[q]) || k.width(k.vals[p]) < 32 {
				continue
			}
			if k.exprs[k.vals[p]].op != form.OpUnknown || k.exprs[k.vals[q]].op != form.OpUnknown {
				continue
			}
			if x := k.bisection(l, a, b); x != nil {
				k.bisections[p], k.bisections[q] = x, x
				for v := range x.mid {
					k.midpoints[v] = x
				}
				return true
			}
		}
	}
	return false
}

func (k *kernel) bisection(l *ir.Loop, a, b *ir.Inst) *bisection {
	p, q := k.vals[a.Defs[0]], k.vals[b.Defs[0]]
	w := k.width(p)
	mids := map[exprID]bool{}
	always, later, first := true, true,
		true // p < q is tested: in every iteration; before every iteration but the first; before the first
	for i, from := range l.Header.Preds {
		np, nq := k.operand(a.Args[i], w), k.operand(b.Args[i], w)
		facts := k.edgeFacts(from.Block, from.Index, slices.Clone(k.facts[from.Block.Index]))
		if !k.f.Loops.Contains(l, from.Block) {
			first = first && k.less(facts, np, nq)
			continue
		}
		always = always && k.less(k.facts[from.Block.Index], p, q)
		later = later && k.less(facts, np, nq)
		for _, e := range k.choices(np, nil) {
			if x := k.exprs[e]; x.op == form.OpAdd {
				if one, ok := k.constant(x.b); ok && one == 1 && k.middle(x.a, p, q) {
					mids[x.a] = true
					continue
				}
			}
			if e != p && !k.middle(e, p, q) {
				return nil
			}
			if e != p {
				mids[e] = true
			}
		}
		for _, e := range k.choices(nq, nil) {
			if e != q && !k.middle(e, p, q) {
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
	for v, e := range k.vals {
		in := k.f.Vals[v].Def
		if e == noExpr || !mids[e] || in == nil || in.Op == ir.Phi || in.Guarded() || len(in.Defs) != 1 ||
			k.widthOf(ir.ValID(v)) != w {
			continue
		}
		if first && later || k.less(k.facts[k.f.Vals[v].Block.Index], p, q) {
			x.mid[ir.ValID(v)] = true
		}
	}
	return x
}

// less reports whether p < q follows from one of some facts, if p and q are not negative and q - p does not overflow.
func (k *kernel) less(facts []fact, p, q exprID) bool {
	for _, f := range facts {
		x := k.exprs[f.e]
		if x.op != form.OpLTS && x.op != form.OpLES && x.op != form.OpLTU && x.op != form.OpLEU {
			continue
		}
		signed := x.op == form.OpLTS || x.op == form.OpLES
		below, above, strict := x.a, x.b, x.op == form.OpLTS || x.op == form.OpLTU
		if f.not {
			below, above, strict = above, below, !strict
		}
		more := form.Truth(strict) & 1
		switch b, a := k.exprs[below], k.exprs[above]; {
		case below == p && above == q && strict:
			return true
		case !signed:
		case b.op == form.OpConst && a.op == form.OpSub && a.a == q && a.b == p && b.imm+more >= 1:
			return true // c < q - p
		case a.op == form.OpConst && b.op == form.OpSub && b.a == p && b.b == q && a.imm-more <= -1:
			return true
		case b.op == form.OpConst && above == q && b.imm < 1<<30:
			if c, ok := k.constant(p); ok && c < b.imm+more {
				return true // p is a number
			}
		}
	}
	return false
}

// middle reports whether a value is (p+q)/2, or p + (q-p)/2.
func (k *kernel) middle(e, p, q exprID) bool {
	if x := k.half(e); x != noExpr {
		s := k.exprs[x]
		return s.op == form.OpAdd && (s.a == p && s.b == q || s.a == q && s.b == p)
	}
	x := k.exprs[e]
	if x.op != form.OpAdd {
		return false
	}
	for _, pair := range [...][2]exprID{{x.a, x.b}, {x.b, x.a}} {
		if d := k.half(pair[1]); d != noExpr && pair[0] == p {
			s := k.exprs[d]
			return s.op == form.OpSub && s.a == q && s.b == p
		}
	}
	return false
}

// half is what is divided by 2 in a value, if that is not negative; none: it is nothing of the kind.
func (k *kernel) half(e exprID) exprID {
	x := k.exprs[e]
	c, ok := k.constant(x.b)
	if !ok || !((x.op == form.OpShrU || x.op == form.OpShrS) && c == 1 || (x.op == form.OpDivU ||
		x.op == form.OpDivS) && c == 2) {
		return noExpr
	}
	// x/2 of a signed number is (x + (x >>> w-1)) >> 1.
	if s := k.exprs[x.a]; s.op == form.OpAdd && x.op == form.OpShrS {
		for _, pair := range [...][2]exprID{{s.a, s.b}, {s.b, s.a}} {
			sign := k.exprs[pair[1]]
			if n, ok := k.constant(sign.b); ok && sign.op == form.OpShrU && sign.a == pair[0] && n == int64(x.w)-1 {
				return pair[0]
			}
		}
	}
	return x.a
}

// between is a variable of a binary search, or the middle of both: from what p begins with to what q begins with, or
// one less.
func (k *kernel) between(b *ir.Block, w uint8, x *bisection, less int64) exprID {
	l := x.loop
	init := func(v ir.ValID) exprID {
		found := noExpr
		for i, from := range l.Header.Preds {
			if k.f.Loops.Contains(l, from.Block) {
				continue
			}
			e := k.operand(k.f.Vals[v].Def.Args[i], w)
			if found != noExpr && found != e {
				return noExpr
			}
			found = e
		}
		return found
	}
	p, q := init(x.p), init(x.q)
	if p == noExpr || q == noExpr {
		return k.unknown(w, b)
	}
	k.serial++
	e := k.intern(expr{op: form.OpBetween, w: w, a: p, b: q, c: k.number(w, less), imm: k.serial})
	k.origin[e] = b
	return e
}
