package summarise

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
	"holdfast/internal/ir"
)

// A fact is a predicate that holds where an access stands, or whose opposite does.
type fact struct {
	e   exprID
	not bool
}

// A guard is a fact about a form: it lies within bounds. One whose sides are both unsigned and
// whose form may be negative is a wrap: the form modulo 2^w is below hi.
type guard struct {
	f    *linear
	in   interval.Bounds
	not0 bool  // instead: f is not 0
	wrap uint8 // instead: 0 <= f mod 2^wrap < top
	top  exprID
	rest *linear // in is for the sum of f and rest; nil: for f
	need *linear // it holds if this is not negative, and
	side uint8   // only one of its bounds; nil: always, and both
	load int32   // 1 + a loaded value: it holds if what is loaded is known; 0 = always
}

// conditions says what follows from predicates.
type conditions struct{ *graph }

// conjuncts splits a predicate into the ones that follow from it. All of them together are as
// much as the predicate only if exact stays true.
func (cs conditions) conjuncts(e exprID, not bool, list []fact) []fact {
	for depth := 0; depth < 64; depth++ {
		x := cs.exprs[e]
		switch {
		case x.op == form.OpNot:
			e, not = x.a, !not
			continue
		case x.op == form.OpAnd && !not || x.op == form.OpOr && not:
			list = cs.conjuncts(x.a, not, list)
			e = x.b
			continue
		}
		break
	}
	f := fact{e, not}
	if slices.Contains(list, f) {
		return list
	}
	list = append(list, f)
	x := cs.exprs[e]
	for _, e := range cs.each(x, not) {
		list = cs.conjuncts(e, not, list)
	}
	if x.op == form.OpEQ && !not || x.op == form.OpNE && not {
		if c, ok := cs.constant(x.b); ok && c == 0 && cs.width(x.a) > 1 && !cs.uniform[x.a] {
			list = cs.zeros(x.a, ^uint64(0), list, 0)
		}
	}
	return list
}

// edgeFacts adds what is known after taking successor i of block b.
func (vs *values) edgeFacts(b *ir.Block, i int, list []fact) []fact {
	end := b.End()
	if end == nil || !end.Guarded() {
		return list
	}
	not := i == 1 // Succs[0] is where a branch goes when its guard holds
	if end.Op != ir.Branch {
		not = true // it did not leave
	} else if len(b.Succs) == 2 && b.Succs[0].Block == b.Succs[1].Block {
		return list
	}
	return conditions{vs.graph}.conjuncts(vs.operand(end.Guard, 1), not, list)
}

// blockFacts are the facts that hold in a block: those of the edge that leads to it, if there is
// only one, and those of its dominator. At the head of a loop, the only edge that enters the loop counts as the one:
// what it says is about values from outside of the loop, which are made anew only where it is entered again.
func (vs *values) blockFacts(b *ir.Block) []fact {
	if b.Index == 0 {
		return nil
	}
	list := slices.Clone(vs.facts[vs.f.Dom.Parent[b.Index]])
	preds := b.Preds
	if l := vs.f.Loops.Of[b.Index]; l != nil && l.Header == b && !l.Irreducible {
		preds = slices.DeleteFunc(slices.Clone(preds), func(p ir.Edge) bool { return vs.f.Loops.Contains(l, p.Block) })
	}
	if len(preds) == 1 {
		list = conditions{vs.graph}.resolved(vs.edgeFacts(preds[0].Block, preds[0].Index, list))
	}
	return list
}

// guards are the forms of the facts that are comparisons.
func (cs conditions) guards(f fact) []guard {
	x := cs.exprs[f.e]
	if cs.uniform[f.e] {
		return nil
	}
	switch x.op {
	case form.OpEQ:
		d, ok := cs.difference(x.a, x.b, true)
		if !ok {
			return nil
		}
		if f.not {
			list := []guard{{f: d, not0: true}}
			switch b := cs.formBounds(d); {
			case b.Lo == 0: // floors can say more of a bound
				list = append(list, guard{f: d, in: interval.Bounds{Lo: 1, Hi: interval.Far}})
			case b.Hi == 0:
				list = append(list, guard{f: d, in: interval.Bounds{Lo: -interval.Far, Hi: -1}})
			}
			return list
		}
		return cs.quotients([]guard{{f: d, in: interval.Bounds{Lo: 0, Hi: 0}}})
	case form.OpLTS, form.OpLES, form.OpLTU, form.OpLEU:
	default:
		return nil
	}
	signed := x.op == form.OpLTS || x.op == form.OpLES
	strict := x.op == form.OpLTS || x.op == form.OpLTU
	var list []guard
	if d, ok := cs.difference(x.a, x.b, signed); ok { // a - b
		in := interval.Bounds{Lo: -interval.Far, Hi: 0}
		if strict {
			in.Hi = -1
		}
		if f.not {
			in = interval.Bounds{Lo: in.Hi + 1, Hi: interval.Far}
		}
		list = append(list, guard{f: d, in: in})
	}
	if signed {
		return cs.quotients(list)
	}
	list = cs.quotients(list)
	// a <u b with a uniform b: a modulo 2^w is below b.
	a, b := x.a, x.b
	if f.not {
		a, b, strict = b, a, !strict
	}
	if w := cs.width(a); w <= 32 && cs.uniform[b] && !cs.uniform[a] && cs.linear[a].sym == 0 {
		top := cs.unary(form.OpZext, 64, b)
		if !strict {
			top = cs.binary(form.OpAdd, 64, top, cs.num(1))
		}
		list = append(list, guard{f: cs.linear[a], wrap: w, top: top})
	}
	return list
}

// quotients adds what guards of quotients say of what is divided: if D/m is in [lo, hi], D is in
// [lo*m, hi*m + m-1].
func (cs conditions) quotients(list []guard) []guard {
	for i := 0; i < len(list) && i < 4; i++ {
		x := list[i]
		c, ok := cs.constant(x.f.c)
		if !ok || len(x.f.terms) != 1 || x.not0 || x.wrap != 0 {
			continue
		}
		v := cs.vars[x.f.terms[0].v]
		k, ok := cs.constant(x.f.terms[0].coef)
		if !ok || k == 0 || v.kind != form.KindFloor || v.args[0].w != 0 || v.args[0].f.sym != 0 {
			continue
		}
		in := x.in.Plus(interval.Bounds{Lo: -c, Hi: -c})
		if k < 0 {
			k, in = -k, in.Times(-1)
		}
		r := interval.Everything
		if in.Lo > -interval.Far {
			r.Lo = interval.SatMul(interval.CeilDiv(in.Lo, k), v.imm)
		}
		if in.Hi < interval.Far {
			r.Hi = min(interval.SatMul(interval.FloorDiv(in.Hi, k), v.imm)+v.imm-1, interval.Far)
		}
		list = append(list, guard{f: cs.withChecks(v.args[0].f, x.f), in: r})
	}
	return list
}
