package summarise

import (
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
	"holdfast/internal/ir"
)

// invariants says what stays the same while a loop runs.
type invariants struct {
	*graph
	*code
}

// fixed reports whether a form stays the same while a loop runs.
func (inv invariants) fixed(l *ir.Loop, f *linear) bool {
	for _, t := range f.terms {
		if !inv.invariant(l, t.v, 0) {
			return false
		}
	}
	for _, id := range f.checks {
		for _, t := range inv.checks[id].f.terms {
			if !inv.invariant(l, t.v, 0) {
				return false
			}
		}
	}
	return true
}

// invariant reports whether a variable stays the same while a loop runs.
func (inv invariants) invariant(l *ir.Loop, v varID, depth int) bool {
	if depth > 32 {
		return false
	}
	x := inv.vars[v]
	if x.kind == form.KindThread {
		return true
	}
	if x.kind == form.KindCounter {
		b := inv.f.Loops.Loops[x.imm].Header
		return !inv.f.Loops.Contains(l, b)
	}
	if x.from != noExpr && !inv.steady(l, x.from, 0) {
		return false
	}
	if x.kind == form.KindTable || x.kind == form.KindParam {
		return true
	}
	for _, a := range x.args {
		for _, t := range a.f.terms {
			if !inv.invariant(l, t.v, depth+1) {
				return false
			}
		}
		for _, c := range a.f.checks {
			for _, t := range inv.checks[c].f.terms {
				if !inv.invariant(l, t.v, depth+1) {
					return false
				}
			}
		}
	}
	return true
}

// steady is invariant for an expression.
func (inv invariants) steady(l *ir.Loop, e exprID, depth int) bool {
	x := inv.exprs[e]
	switch {
	case inv.uniform[e] || x.op == form.OpThread || x.op == form.OpSymbol:
		return true
	case depth > 32:
		return false
	case x.op == form.OpUnknown || x.op == form.OpPhi || x.op == form.OpCounter || x.op == form.OpHalving ||
		x.op == form.OpDrift || x.op == form.OpBetween:
		b := inv.origin[e]
		return b != nil && !inv.f.Loops.Contains(l, b)
	}
	for _, a := range [...]exprID{x.a, x.b, x.c} {
		if a != noExpr && !inv.steady(l, a, depth+1) {
			return false
		}
	}
	return true
}

// reloaded reports whether a value is loaded in a loop, from a place that stays the same while it runs: j < row[i+1]
// where the compiler could not see that nothing writes row. A launch that knows what is there knows that it is the
// same value every time (table).
func (inv invariants) reloaded(l *ir.Loop, v varID) bool {
	x := inv.vars[v]
	if x.kind != form.KindTable || len(x.args) != 1 {
		return false
	}
	return inv.fixed(l, x.args[0].f)
}

// exit takes a guard apart into the loop's counter and the rest, which must not change in the loop.
func (inv invariants) exit(l *ir.Loop, id int64, counter varID, g guard) (exit, bool) {
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
		if !inv.invariant(l, t.v, 0) {
			if x.load != 0 || !inv.reloaded(l, t.v) {
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
		for _, t := range inv.checks[c].f.terms {
			if t.v != counter && int32(t.v)+1 != x.load && !inv.invariant(l, t.v, 0) {
				return exit{}, false
			}
		}
	}
	x.rest = inv.form(rest)
	return x, true
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

// exits finds the tests of a loop that bound how often it goes round.
func (vs *values) exits(l *ir.Loop) []exit {
	id := vs.loopOf[l]
	counter, ok := vs.varOf[vs.counterKey(id)]
	if !ok || l.Irreducible {
		return nil
	}
	var list []exit
	for _, e := range l.Exits {
		b := e.Block
		if vs.f.Loops.Of[b.Index] != l || !vs.everyTime(l, b) {
			continue
		}
		end := b.End()
		if end == nil || !end.Guarded() {
			continue
		}
		stay := -1
		for i, s := range b.Succs {
			if vs.f.Loops.Contains(l, s.Block) {
				stay = i
			}
		}
		if stay < 0 {
			continue
		}
		for _, f := range vs.edgeFacts(b, stay, nil) {
			for _, g := range (conditions{vs.graph}).guards(f) {
				if x, ok := (invariants{vs.graph, vs.code}).exit(l, id, counter, g); ok {
					list = append(list, x)
				}
			}
		}
	}
	return list
}
