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

// An exit is a test that every iteration of a loop makes, and what holds when it goes on.
type exit struct {
	loop int64
	g    guard
	rest *linear // g.f without the loop's counter, checks left out
	step exprID  // the coefficient of the counter
	load int32   // 1 + a value in rest that every iteration loads anew, from the same place; 0 = none
	wrap uint8   // instead of in: 0 <= f mod 2^wrap < top
	top  exprID
}

// conjuncts splits a predicate into the ones that follow from it. All of them together are as
// much as the predicate only if exact stays true.
func (k *kernel) conjuncts(e exprID, not bool, list []fact) []fact {
	for depth := 0; depth < 64; depth++ {
		x := k.exprs[e]
		switch {
		case x.op == form.OpNot:
			e, not = x.a, !not
			continue
		case x.op == form.OpAnd && !not || x.op == form.OpOr && not:
			list = k.conjuncts(x.a, not, list)
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
	x := k.exprs[e]
	for _, e := range k.each(x, not) {
		list = k.conjuncts(e, not, list)
	}
	if x.op == form.OpEQ && !not || x.op == form.OpNE && not {
		if c, ok := k.constant(x.b); ok && c == 0 && k.width(x.a) > 1 && !k.uniform[x.a] {
			list = k.zeros(x.a, ^uint64(0), list, 0)
		}
	}
	return list
}

// edgeFacts adds what is known after taking successor i of block b.
func (k *kernel) edgeFacts(b *ir.Block, i int, list []fact) []fact {
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
	return k.conjuncts(k.operand(end.Guard, 1), not, list)
}

// blockFacts are the facts that hold in a block: those of the edge that leads to it, if there is
// only one, and those of its dominator. At the head of a loop, the only edge that enters the loop counts as the one:
// what it says is about values from outside of the loop, which are made anew only where it is entered again.
func (k *kernel) blockFacts(b *ir.Block) []fact {
	if b.Index == 0 {
		return nil
	}
	list := slices.Clone(k.facts[k.f.Dom.Parent[b.Index]])
	preds := b.Preds
	if l := k.f.Loops.Of[b.Index]; l != nil && l.Header == b && !l.Irreducible {
		preds = slices.DeleteFunc(slices.Clone(preds), func(p ir.Edge) bool { return k.f.Loops.Contains(l, p.Block) })
	}
	if len(preds) == 1 {
		list = k.resolved(k.edgeFacts(preds[0].Block, preds[0].Index, list))
	}
	return list
}

// guards are the forms of the facts that are comparisons.
func (k *kernel) guards(f fact) []guard {
	x := k.exprs[f.e]
	if k.uniform[f.e] {
		return nil
	}
	switch x.op {
	case form.OpEQ:
		d, ok := k.difference(x.a, x.b, true)
		if !ok {
			return nil
		}
		if f.not {
			list := []guard{{f: d, not0: true}}
			switch b := k.formBounds(d); {
			case b.Lo == 0: // floors can say more of a bound
				list = append(list, guard{f: d, in: interval.Bounds{Lo: 1, Hi: interval.Far}})
			case b.Hi == 0:
				list = append(list, guard{f: d, in: interval.Bounds{Lo: -interval.Far, Hi: -1}})
			}
			return list
		}
		return k.quotients([]guard{{f: d, in: interval.Bounds{Lo: 0, Hi: 0}}})
	case form.OpLTS, form.OpLES, form.OpLTU, form.OpLEU:
	default:
		return nil
	}
	signed := x.op == form.OpLTS || x.op == form.OpLES
	strict := x.op == form.OpLTS || x.op == form.OpLTU
	var list []guard
	if d, ok := k.difference(x.a, x.b, signed); ok { // a - b
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
		return k.quotients(list)
	}
	list = k.quotients(list)
	// a <u b with a uniform b: a modulo 2^w is below b.
	a, b := x.a, x.b
	if f.not {
		a, b, strict = b, a, !strict
	}
	if w := k.width(a); w <= 32 && k.uniform[b] && !k.uniform[a] && k.linear[a].sym == 0 {
		top := k.unary(form.OpZext, 64, b)
		if !strict {
			top = k.binary(form.OpAdd, 64, top, k.num(1))
		}
		list = append(list, guard{f: k.linear[a], wrap: w, top: top})
	}
	return list
}

// quotients adds what guards of quotients say of what is divided: if D/m is in [lo, hi], D is in
// [lo*m, hi*m + m-1].
func (g *graph) quotients(list []guard) []guard {
	for i := 0; i < len(list) && i < 4; i++ {
		x := list[i]
		c, ok := g.constant(x.f.c)
		if !ok || len(x.f.terms) != 1 || x.not0 || x.wrap != 0 {
			continue
		}
		v := g.vars[x.f.terms[0].v]
		k, ok := g.constant(x.f.terms[0].coef)
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
		list = append(list, guard{f: g.withChecks(v.args[0].f, x.f), in: r})
	}
	return list
}

// difference is a - b, both read as numbers.
func (g *graph) difference(a, b exprID, signed bool) (*linear, bool) {
	w := g.width(a)
	if w == 1 {
		return nil, false
	}
	fa, fb := g.read(g.linear[a], w, signed), g.read(g.linear[b], w, signed)
	d, ok := g.sum(fa, fb, g.num(-1))
	if !ok || d.sym != 0 {
		return nil, false
	}
	return d, true
}

// exits finds the tests of a loop that bound how often it goes round.
func (k *kernel) exits(l *ir.Loop) []exit {
	id := k.loopOf[l]
	counter, ok := k.varOf[k.counterKey(id)]
	if !ok || l.Irreducible {
		return nil
	}
	var list []exit
	for _, e := range l.Exits {
		b := e.Block
		if k.f.Loops.Of[b.Index] != l || !k.everyTime(l, b) {
			continue
		}
		end := b.End()
		if end == nil || !end.Guarded() {
			continue
		}
		stay := -1
		for i, s := range b.Succs {
			if k.f.Loops.Contains(l, s.Block) {
				stay = i
			}
		}
		if stay < 0 {
			continue
		}
		for _, f := range k.edgeFacts(b, stay, nil) {
			for _, g := range k.guards(f) {
				if x, ok := k.exit(l, id, counter, g); ok {
					list = append(list, x)
				}
			}
		}
	}
	return list
}

func (k *kernel) everyTime(l *ir.Loop, b *ir.Block) bool {
	for _, latch := range l.Latches {
		if !k.f.Dom.Dominates(b.Index, latch.Index) {
			return false
		}
	}
	return true
}

// exit takes a guard apart into the loop's counter and the rest, which must not change in the loop.
func (k *kernel) exit(l *ir.Loop, id int64, counter varID, g guard) (exit, bool) {
	x := exit{loop: id, g: g}
	if g.wrap != 0 {
		x.wrap, x.top = g.wrap, g.top
		x.g = guard{f: g.f, in: interval.Bounds{Lo: 0, Hi: interval.Far}}
	}
	rest := linear{c: g.f.c}
	for _, t := range g.f.terms {
		if t.v == counter {
			x.step = t.coef
			continue
		}
		if !k.invariant(l, t.v, 0) {
			if x.load != 0 || !k.reloaded(l, t.v) {
				return exit{}, false
			}
			x.load = int32(t.v) + 1
		}
		rest.terms = append(rest.terms, t)
	}
	if x.step == noExpr {
		return exit{}, false
	}
	for _, c := range g.f.checks {
		for _, t := range k.checks[c].f.terms {
			if t.v != counter && int32(t.v)+1 != x.load && !k.invariant(l, t.v, 0) {
				return exit{}, false
			}
		}
	}
	x.rest = k.form(rest)
	return x, true
}

// reloaded reports whether a value is loaded in a loop, from a place that stays the same while it runs: j < row[i+1]
// where the compiler could not see that nothing writes row. A launch that knows what is there knows that it is the
// same value every time (table).
func (k *kernel) reloaded(l *ir.Loop, v varID) bool {
	x := k.vars[v]
	if x.kind != form.KindTable || len(x.args) != 1 {
		return false
	}
	return k.fixed(l, x.args[0].f)
}

// invariant reports whether a variable stays the same while a loop runs.
func (k *kernel) invariant(l *ir.Loop, v varID, depth int) bool {
	if depth > 32 {
		return false
	}
	x := k.vars[v]
	if x.kind == form.KindThread {
		return true
	}
	if x.kind == form.KindCounter {
		b := k.f.Loops.Loops[x.imm].Header
		return !k.f.Loops.Contains(l, b)
	}
	if x.from != noExpr && !k.steady(l, x.from, 0) {
		return false
	}
	if x.kind == form.KindTable || x.kind == form.KindParam {
		return true
	}
	for _, a := range x.args {
		for _, t := range a.f.terms {
			if !k.invariant(l, t.v, depth+1) {
				return false
			}
		}
		for _, c := range a.f.checks {
			for _, t := range k.checks[c].f.terms {
				if !k.invariant(l, t.v, depth+1) {
					return false
				}
			}
		}
	}
	return true
}

// steady is invariant for an expression.
func (k *kernel) steady(l *ir.Loop, e exprID, depth int) bool {
	x := k.exprs[e]
	switch {
	case k.uniform[e] || x.op == form.OpThread || x.op == form.OpSymbol:
		return true
	case depth > 32:
		return false
	case x.op == form.OpUnknown || x.op == form.OpPhi || x.op == form.OpCounter || x.op == form.OpHalving ||
		x.op == form.OpDrift || x.op == form.OpBetween:
		b := k.origin[e]
		return b != nil && !k.f.Loops.Contains(l, b)
	}
	for _, a := range [...]exprID{x.a, x.b, x.c} {
		if a != noExpr && !k.steady(l, a, depth+1) {
			return false
		}
	}
	return true
}

func (k *kernel) counterKey(loop int64) string {
	return string(k.keyOf(&variable{kind: form.KindCounter, w: 64, imm: loop}))
}
