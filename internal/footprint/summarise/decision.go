package summarise

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// decisions says what facts decide of values: choices, and bounds of what was asserted.
type decisions struct{ *graph }

// assume is a value where some facts hold: of what it chooses between by them, the one that it is.
func (ds decisions) assume(e exprID, facts []fact) exprID {
	if len(facts) == 0 {
		return e
	}
	if list := ds.limits(facts); len(list) > 0 {
		e = ds.within(e, list, 0)
	}
	if !ds.chooses(e, 0) {
		return e
	}
	known := make([]guard, 0, len(facts))
	for _, f := range facts {
		known = append(known, conditions(ds).guards(f)...)
	}
	return ds.assumed(e, facts, known, 0)
}

// chooses reports whether there is a choice in a value that facts may decide.
func (ds decisions) chooses(e exprID, depth int) bool {
	x := ds.exprs[e]
	if x.op == form.OpSelect && !ds.uniform[x.a] {
		return true
	}
	if ds.uniform[e] || x.op > form.OpSelect || x.w == 1 || depth > 12 {
		return false
	}
	for _, a := range [...]exprID{x.a, x.b, x.c} {
		if a != noExpr && ds.chooses(a, depth+1) {
			return true
		}
	}
	return false
}

func (ds decisions) assumed(e exprID, facts []fact, known []guard, depth int) exprID {
	x := ds.exprs[e]
	if ds.uniform[e] || x.op > form.OpSelect || x.w == 1 || depth > 12 {
		return e
	}
	if x.op == form.OpSelect {
		switch ds.decided(x.a, facts, known) {
		case 1:
			return ds.assumed(x.b, facts, known, depth+1)
		case 0:
			return ds.assumed(x.c, facts, known, depth+1)
		}
		return ds.make(form.OpSelect, x.w, x.a, ds.assumed(x.b, facts, known, depth+1), ds.assumed(x.c, facts, known,
			depth+1))
	}
	var arg [3]exprID
	for i, a := range [...]exprID{x.a, x.b, x.c} {
		if a != noExpr {
			arg[i] = ds.assumed(a, facts, known, depth+1)
		}
	}
	return ds.make(x.op, x.w, arg[0], arg[1], arg[2])
}

// decided is 1 if a predicate holds where some facts do, 0 if it does not, and else -1.
func (ds decisions) decided(e exprID, facts []fact, known []guard) int {
	for _, f := range facts {
		if f.e == e {
			return 1 - int(form.Truth(f.not)&1)
		}
	}
	for want, not := range []bool{true, false} {
		for _, g := range conditions(ds).guards(fact{e, not}) {
			if g.not0 || g.wrap != 0 || len(g.f.checks) > 0 {
				continue
			}
			c, ok := ds.constant(g.f.c)
			if !ok {
				continue
			}
			in := g.in.Plus(interval.Bounds{Lo: -c, Hi: -c})
			for _, have := range known {
				d, ok := ds.constant(have.f.c)
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
func (ds decisions) choice(w uint8, cond, a, b exprID) exprID {
	if !ds.uniform[cond] && w > 1 {
		a = ds.where(a, conditions(ds).conjuncts(cond, false, nil))
		b = ds.where(b, conditions(ds).conjuncts(cond, true, nil))
	}
	return ds.make(form.OpSelect, w, cond, a, b)
}

// where is a value that is used only where some facts hold, with bounds put to what it shifts, divides or converts.
// Sums stay sums.
func (ds decisions) where(e exprID, facts []fact) exprID {
	if ds.uniform[e] || len(facts) > 4 {
		return e
	}
	for _, f := range facts {
		x := ds.exprs[f.e]
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
		w := ds.width(below)
		switch {
		case w == 1 || ds.uniform[below] == ds.uniform[above]:
		case ds.uniform[above]:
			e = ds.replaced(e, below, ds.binary(most, w, below, ds.binary(form.OpAdd, w, above, ds.number(w, -off))),
				false, 0)
		default:
			e = ds.replaced(e, above, ds.binary(least, w, above, ds.binary(form.OpAdd, w, below, ds.number(w, off))),
				false, 0)
		}
	}
	return e
}

// replaced is e with another value instead of one, inside of operations that are not linear.
func (ds decisions) replaced(e, old, by exprID, inside bool, depth int) exprID {
	x := ds.exprs[e]
	switch {
	case e == old:
		if inside {
			return by
		}
		return e
	case ds.uniform[e] || x.op > form.OpSelect || x.w == 1 || depth > 6 || x.op >= form.OpMinU && x.op <= form.OpMaxS:
		return e
	}
	inside = inside || x.op == form.OpShrU || x.op == form.OpShrS || x.op == form.OpDivU || x.op == form.OpDivS ||
		x.op == form.OpRemU || x.op == form.OpRemS || x.op == form.OpZext || x.op == form.OpSext
	var arg [3]exprID
	same := true
	for i, a := range [...]exprID{x.a, x.b, x.c} {
		if a != noExpr {
			arg[i] = ds.replaced(a, old, by, inside, depth+1)
			same = same && arg[i] == a
		}
	}
	if same {
		return e
	}
	return ds.make(x.op, x.w, arg[0], arg[1], arg[2])
}
