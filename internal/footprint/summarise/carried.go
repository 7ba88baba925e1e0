package summarise

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
	"holdfast/internal/ir"
)

// Compilers compute the next value of a loop's variable early, and choose between it and something else:
// i = left > 0 ? next : 0. Such a variable is, from the second iteration on, what was computed in the iteration
// before. The counter of that iteration is one less.

// maxCarried bounds what a variable may be one of, and how deep its value is looked into.
const maxCarried = 6

// carriedOf recognises a phi at the head of a loop whose value, from the second iteration on, was computed in the
// iteration before: it lists the values that come along the back edges, as they were then. nil if one of them depends
// on more than the loop's counter.
func (k *kernel) carriedOf(l *ir.Loop, in *ir.Inst) []exprID {
	w := k.width(k.vals[in.Defs[0]])
	var list []exprID
	for i, p := range l.Header.Preds {
		if !k.f.Loops.Contains(l, p.Block) {
			continue
		}
		facts := k.edgeFacts(p.Block, p.Index, slices.Clone(k.facts[p.Block.Index]))
		list = k.choices(k.assume(k.operand(in.Args[i], w), facts), list)
	}
	if len(list) > maxCarried {
		return nil
	}
	for i, e := range list {
		if list[i] = k.earlier(l, e, 0); list[i] == noExpr {
			return nil
		}
	}
	return list
}

// choices is what a value is one of.
func (k *kernel) choices(e exprID, list []exprID) []exprID {
	if x := k.exprs[e]; x.op == form.OpSelect && len(list) <= maxCarried {
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
		return noExpr
	case x.op == form.OpCounter && x.imm == k.loopOf[l]:
		return k.binary(form.OpMaxS, 64, k.binary(form.OpAdd, 64, e, k.num(-1)), k.num(0))
	case x.op == form.OpDrift && k.drifts[x.imm].loop == k.loopOf[l] && !k.drifts[x.imm].before && k.steady(l, x.a, 0):
		d := k.drifts[x.imm]
		d.before = true
		k.drifts = append(k.drifts, d)
		r := k.intern(expr{op: form.OpDrift, w: x.w, a: x.a, imm: int64(len(k.drifts) - 1)})
		k.origin[r] = k.origin[e]
		return r
	case x.w == 1:
		return k.unknown(1, l.Header) // it was true or false
	case x.op > form.OpSelect:
		return noExpr
	}
	var arg [3]exprID
	for i, a := range [...]exprID{x.a, x.b, x.c} {
		if a == noExpr {
			continue
		}
		if arg[i] = k.earlier(l, a, depth+1); arg[i] == noExpr {
			return noExpr
		}
	}
	return k.make(x.op, x.w, arg[0], arg[1], arg[2])
}

// carriedValue is the value of a phi that carriedOf recognised.
func (k *kernel) carriedValue(b *ir.Block, l *ir.Loop, in *ir.Inst, w uint8, list []exprID) exprID {
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
	e := k.intern(expr{op: form.OpPhi, w: w, imm: int64(len(k.phis) - 1)})
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
	if x.op == form.OpSelect && !k.uniform[x.a] {
		return true
	}
	if k.uniform[e] || x.op > form.OpSelect || x.w == 1 || depth > 12 {
		return false
	}
	for _, a := range [...]exprID{x.a, x.b, x.c} {
		if a != noExpr && k.chooses(a, depth+1) {
			return true
		}
	}
	return false
}

func (k *kernel) assumed(e exprID, facts []fact, known []guard, depth int) exprID {
	x := k.exprs[e]
	if k.uniform[e] || x.op > form.OpSelect || x.w == 1 || depth > 12 {
		return e
	}
	if x.op == form.OpSelect {
		switch k.decided(x.a, facts, known) {
		case 1:
			return k.assumed(x.b, facts, known, depth+1)
		case 0:
			return k.assumed(x.c, facts, known, depth+1)
		}
		return k.make(form.OpSelect, x.w, x.a, k.assumed(x.b, facts, known, depth+1), k.assumed(x.c, facts, known,
			depth+1))
	}
	var arg [3]exprID
	for i, a := range [...]exprID{x.a, x.b, x.c} {
		if a != noExpr {
			arg[i] = k.assumed(a, facts, known, depth+1)
		}
	}
	return k.make(x.op, x.w, arg[0], arg[1], arg[2])
}

// decided is 1 if a predicate holds where some facts do, 0 if it does not, and else -1.
func (k *kernel) decided(e exprID, facts []fact, known []guard) int {
	for _, f := range facts {
		if f.e == e {
			return 1 - int(form.Truth(f.not)&1)
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
			in := g.in.Plus(interval.Bounds{Lo: -c, Hi: -c})
			for _, have := range known {
				d, ok := k.constant(have.f.c)
				if !ok || have.not0 || have.wrap != 0 || len(have.f.checks) > 0 || !slices.Equal(have.f.terms,
					g.f.terms) || have.f.sym != g.f.sym {
					continue
				}
				if have.in.Plus(interval.Bounds{Lo: -d, Hi: -d}).In(in) {
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
	return k.make(form.OpSelect, w, cond, a, b)
}

// where is a value that is used only where some facts hold, with bounds put to what it shifts, divides or converts.
// Sums stay sums.
func (k *kernel) where(e exprID, facts []fact) exprID {
	if k.uniform[e] || len(facts) > 4 {
		return e
	}
	for _, f := range facts {
		x := k.exprs[f.e]
		var least, most form.Op
		switch x.op {
		case form.OpLTS, form.OpLES:
			least, most = form.OpMaxS, form.OpMinS
		case form.OpLTU, form.OpLEU:
			least, most = form.OpMaxU, form.OpMinU
		default:
			continue
		}
		below, above, strict := x.a, x.b, x.op == form.OpLTS || x.op == form.OpLTU // below < above
		if f.not {
			below, above, strict = above, below, !strict
		}
		off := form.Truth(strict) & 1
		w := k.width(below)
		switch {
		case w == 1 || k.uniform[below] == k.uniform[above]:
		case k.uniform[above]:
			e = k.replaced(e, below, k.binary(most, w, below, k.binary(form.OpAdd, w, above, k.number(w, -off))),
				false, 0)
		default:
			e = k.replaced(e, above, k.binary(least, w, above, k.binary(form.OpAdd, w, below, k.number(w, off))),
				false, 0)
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
	case k.uniform[e] || x.op > form.OpSelect || x.w == 1 || depth > 6 || x.op >= form.OpMinU && x.op <= form.OpMaxS:
		return e
	}
	inside = inside || x.op == form.OpShrU || x.op == form.OpShrS || x.op == form.OpDivU || x.op == form.OpDivS ||
		x.op == form.OpRemU || x.op == form.OpRemS || x.op == form.OpZext || x.op == form.OpSext
	var arg [3]exprID
	same := true
	for i, a := range [...]exprID{x.a, x.b, x.c} {
		if a != noExpr {
			arg[i] = k.replaced(a, old, by, inside, depth+1)
			same = same && arg[i] == a
		}
	}
	if same {
		return e
	}
	return k.make(x.op, x.w, arg[0], arg[1], arg[2])
}
