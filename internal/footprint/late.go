package footprint

import (
	"slices"

	"holdfast/internal/ir"
)

// Compilers compute the next value of a loop's variable early, and choose between it and something else:
// i = left > 0 ? next : 0. Such a variable is, from the second iteration on, what was computed in the iteration
// before. The counter of that iteration is one less.

// maxLate bounds what a variable may be one of, and how deep its value is looked into.
const maxLate = 6

// lateOf is what a phi at the head of a loop is one of in every iteration but the first: the values that come along the
// back edges, with what belongs to the iteration before it. nil if one of them cannot be said so.
func (k *kernel) lateOf(l *ir.Loop, in *ir.Inst) []exprID {
	w := k.width(k.vals[in.Defs[0]])
	var list []exprID
	for i, p := range l.Header.Preds {
		if !k.f.Loops.Contains(l, p.Block) {
			continue
		}
		facts := k.edgeFacts(p.Block, p.Index, slices.Clone(k.facts[p.Block.Index]))
		list = k.choices(k.assume(k.operand(in.Args[i], w), facts), list)
	}
	if len(list) > maxLate {
		return nil
	}
	for i, e := range list {
		if list[i] = k.earlier(l, e, 0); list[i] == none {
			return nil
		}
	}
	return list
}

// choices is what a value is one of.
func (k *kernel) choices(e exprID, list []exprID) []exprID {
	if x := k.exprs[e]; x.op == opSelect && len(list) <= maxLate {
		return k.choices(x.c, k.choices(x.b, list))
	}
	if !slices.Contains(list, e) {
		list = append(list, e)
	}
	return list
}

// earlier is what a value was in the iteration before, if there was one: none if it depends on something in the loop
// other than the counter.
func (k *kernel) earlier(l *ir.Loop, e exprID, depth int) exprID {
	x := k.exprs[e]
	switch {
	case k.steady(l, e, 0):
		return e
	case depth > 24:
		return none
	case x.op == opCounter && x.imm == k.loopOf[l]:
		return k.binary(opMaxS, 64, k.binary(opAdd, 64, e, k.num(-1)), k.num(0))
	case x.op == opDrift && k.drifts[x.imm].loop == k.loopOf[l] && !k.drifts[x.imm].late && k.steady(l, x.a, 0):
		d := k.drifts[x.imm]
		d.late = true
		k.drifts = append(k.drifts, d)
		r := k.intern(expr{op: opDrift, w: x.w, a: x.a, imm: int64(len(k.drifts) - 1)})
		k.origin[r] = k.origin[e]
		return r
	case x.w == 1:
		return k.unknown(1, l.Header) // it was true or false
	case x.op > opSelect:
		return none
	}
	var arg [3]exprID
	for i, a := range [...]exprID{x.a, x.b, x.c} {
		if a == none {
			continue
		}
		if arg[i] = k.earlier(l, a, depth+1); arg[i] == none {
			return none
		}
	}
	return k.make(x.op, x.w, arg[0], arg[1], arg[2])
}

// lateValue is a phi of which lateOf has said what it is one of.
func (k *kernel) lateValue(b *ir.Block, l *ir.Loop, in *ir.Inst, w uint8, list []exprID) exprID {
	var p phi
	for i, from := range b.Preds {
		if !k.f.Loops.Contains(l, from.Block) {
			p.args = append(p.args, k.operand(in.Args[i], w))
		}
	}
	if len(p.args) == 0 {
		return k.unknown(w, b)
	}
	p.args = append(p.args, list...)
	p.conds = make([][]fact, len(p.args))
	k.phis = append(k.phis, p)
	e := k.intern(expr{op: opPhi, w: w, imm: int64(len(k.phis) - 1)})
	k.origin[e] = b
	return e
}

// assume is a value where some facts hold: of what it chooses between by them, the one that it is.
func (k *kernel) assume(e exprID, facts []fact) exprID {
	if len(facts) == 0 {
		return e
	}
	if list := k.limits(facts); len(list) > 0 {
		e = k.within(e, list, 0)
	}
	if !k.chooses(e, 0) {
		return e
	}
	known := make([]guard, 0, len(facts))
	for _, f := range facts {
		known = append(known, k.guards(f)...)
	}
	return k.assumed(e, facts, known, 0)
}

// chooses reports whether there is a choice in a value that facts may decide.
func (k *kernel) chooses(e exprID, depth int) bool {
	x := k.exprs[e]
	if x.op == opSelect && !k.uniform[x.a] {
		return true
	}
	if k.uniform[e] || x.op > opSelect || x.w == 1 || depth > 12 {
		return false
	}
	for _, a := range [...]exprID{x.a, x.b, x.c} {
		if a != none && k.chooses(a, depth+1) {
			return true
		}
	}
	return false
}

func (k *kernel) assumed(e exprID, facts []fact, known []guard, depth int) exprID {
	x := k.exprs[e]
	if k.uniform[e] || x.op > opSelect || x.w == 1 || depth > 12 {
		return e
	}
	if x.op == opSelect {
		switch k.decided(x.a, facts, known) {
		case 1:
			return k.assumed(x.b, facts, known, depth+1)
		case 0:
			return k.assumed(x.c, facts, known, depth+1)
		}
		return k.make(opSelect, x.w, x.a, k.assumed(x.b, facts, known, depth+1), k.assumed(x.c, facts, known, depth+1))
	}
	var arg [3]exprID
	for i, a := range [...]exprID{x.a, x.b, x.c} {
		if a != none {
			arg[i] = k.assumed(a, facts, known, depth+1)
		}
	}
	return k.make(x.op, x.w, arg[0], arg[1], arg[2])
}

// decided is 1 if a predicate holds where some facts do, 0 if it does not, and else -1.
func (k *kernel) decided(e exprID, facts []fact, known []guard) int {
	for _, f := range facts {
		if f.e == e {
			return 1 - int(truth(f.not)&1)
		}
	}
	for want, not := range []bool{true, false} {
		for _, g := range k.guards(fact{e, not}) {
			if g.not0 || g.wrap != 0 || len(g.f.checks) > 0 {
				continue
			}
			c, ok := k.constant(g.f.c)
			if !ok {
				continue
			}
			in := g.in.plus(bounds{-c, -c})
			for _, have := range known {
				d, ok := k.constant(have.f.c)
				if !ok || have.not0 || have.wrap != 0 || len(have.f.checks) > 0 || !slices.Equal(have.f.terms, g.f.terms) || have.f.sym != g.f.sym {
					continue
				}
				if have.in.plus(bounds{-d, -d}).in(in) {
					return want
				}
			}
		}
	}
	return -1
}

// choice makes cond ? a : b, each with what the condition says of what it is made of: in d > 0 ? d >> 7 : 0, which is
// max(d, 1) >> 7 where it is chosen, nothing negative is shifted.
func (k *kernel) choice(w uint8, cond, a, b exprID) exprID {
	if !k.uniform[cond] && w > 1 {
		a = k.where(a, k.conjuncts(cond, false, nil))
		b = k.where(b, k.conjuncts(cond, true, nil))
	}
	return k.make(opSelect, w, cond, a, b)
}

// where is a value that is used only where some facts hold, with bounds put to what it shifts, divides or converts. Sums
// stay sums.
func (k *kernel) where(e exprID, facts []fact) exprID {
	if k.uniform[e] || len(facts) > 4 {
		return e
	}
	for _, f := range facts {
		x := k.exprs[f.e]
		var least, most xop
		switch x.op {
		case opLTS, opLES:
			least, most = opMaxS, opMinS
		case opLTU, opLEU:
			least, most = opMaxU, opMinU
		default:
			continue
		}
		below, above, strict := x.a, x.b, x.op == opLTS || x.op == opLTU // below < above
		if f.not {
			below, above, strict = above, below, !strict
		}
		off := truth(strict) & 1
		w := k.width(below)
		switch {
		case w == 1 || k.uniform[below] == k.uniform[above]:
		case k.uniform[above]:
			e = k.replaced(e, below, k.binary(most, w, below, k.binary(opAdd, w, above, k.number(w, -off))), false, 0)
		default:
			e = k.replaced(e, above, k.binary(least, w, above, k.binary(opAdd, w, below, k.number(w, off))), false, 0)
		}
	}
	return e
}

// replaced is e with another value instead of one, inside of operations that are not linear.
func (k *kernel) replaced(e, old, by exprID, inside bool, depth int) exprID {
	x := k.exprs[e]
	switch {
	case e == old:
		if inside {
			return by
		}
		return e
	case k.uniform[e] || x.op > opSelect || x.w == 1 || depth > 6 || x.op >= opMinU && x.op <= opMaxS:
		return e
	}
	inside = inside || x.op == opShrU || x.op == opShrS || x.op == opDivU || x.op == opDivS || x.op == opRemU || x.op == opRemS || x.op == opZext || x.op == opSext
	var arg [3]exprID
	same := true
	for i, a := range [...]exprID{x.a, x.b, x.c} {
		if a != none {
			arg[i] = k.replaced(a, old, by, inside, depth+1)
			same = same && arg[i] == a
		}
	}
	if same {
		return e
	}
	return k.make(x.op, x.w, arg[0], arg[1], arg[2])
}
