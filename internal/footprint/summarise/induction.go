package summarise

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
	"holdfast/internal/ir"
)

// inductions finds out how phis at the heads of loops change.
type inductions struct{ *values }

// A step is how a value changes from one iteration to the next: by a uniform amount, or (none) by
// lo to hi.
type step struct {
	by     exprID
	lo, hi int64
}

// find finds phis at the heads of loops that change by the same, or by a bounded amount, in
// every iteration, whatever way it takes. It reports whether there are new ones.
func (id inductions) find() bool {
	found := false
	for _, l := range id.f.Loops.Loops {
		if l.Irreducible {
			continue
		}
		if id.bisect(l) {
			found = true
			continue
		}
		for _, in := range l.Header.Phis() {
			d := in.Defs[0]
			if _, ok := id.steps[d]; ok || id.exprs[id.vals[d]].op != form.OpUnknown || id.width(id.vals[d]) < 8 {
				continue
			}
			if s, ok := id.stepOf(l, in); ok {
				id.steps[d] = s
				found = true
				continue
			}
			if _, ok := id.carried[d]; ok {
				continue
			}
			if id.repeated[d] {
				continue
			}
			if id.loadedAgain(l, in) {
				id.repeated[d], found = true, true
				continue
			}
			if list := id.carriedOf(l, in); list != nil {
				id.carried[d] = list
				found = true
			}
		}
	}
	return found
}

func (id inductions) stepOf(l *ir.Loop, in *ir.Inst) (step, bool) {
	d := in.Defs[0]
	w := id.width(id.vals[d])
	s := step{lo: interval.Far, hi: -interval.Far}
	for i, p := range l.Header.Preds {
		if !id.f.Loops.Contains(l, p.Block) {
			continue
		}
		f := id.linear[decisions{id.graph}.assume(id.operand(in.Args[i], w), id.edgeFacts(p.Block, p.Index,
			slices.Clone(id.facts[p.Block.Index])))]
		by, ok := id.sum(f, id.linear[id.vals[d]], id.num(-1))
		if !ok || by.sym != 0 || len(by.checks) > 0 {
			return s, false
		}
		b := id.formBounds(by)
		s.lo, s.hi = min(s.lo, b.Lo), max(s.hi, b.Hi)
		if len(by.terms) > 0 || s.by != noExpr && s.by != by.c {
			s.by = -1
		} else if s.by == noExpr {
			s.by = by.c
		}
	}
	if s.by > 0 {
		return s, true
	}
	const most = 1 << 20 // larger steps are of no use
	return step{noExpr, s.lo, s.hi}, s.lo >= -most && s.hi <= most && s.lo <= s.hi
}

// loadedAgain is the place that a phi's values were all loaded from, before a loop and in it. What its address is made
// from must stay the same while the loop runs: then all these loads have one address.
func (id inductions) loadedAgain(l *ir.Loop, in *ir.Inst) bool {
	var list []exprID
	w := id.widthOf(in.Defs[0])
	done := map[ir.ValID]bool{}
	var visit func(in *ir.Inst) bool
	visit = func(in *ir.Inst) bool {
		if done[in.Defs[0]] {
			return true
		}
		done[in.Defs[0]] = true
		for i := range in.Args {
			x := &in.Args[i]
			if x.Kind != ir.Value || x.Part != "" || x.Mod != 0 || id.widthOf(x.Val) != w || len(done) > 8 {
				return false
			}
			if def := id.f.Vals[x.Val].Def; def != nil && def.Op == ir.Phi {
				if !visit(def) {
					return false
				}
			} else {
				list = append(list, id.vals[x.Val])
			}
		}
		return true
	}
	if w < 8 || !visit(in) || len(list) == 0 {
		return false
	}
	x, ok := id.samePlace(list)
	return ok && invariants{id.graph, id.code}.fixed(l, x.at)
}

// Compilers compute the next value of a loop's variable early, and choose between it and something else:
// i = left > 0 ? next : 0. Such a variable is, from the second iteration on, what was computed in the iteration
// before. The counter of that iteration is one less.

// maxCarried bounds what a variable may be one of, and how deep its value is looked into.
const maxCarried = 6

// carriedOf recognises a phi at the head of a loop whose value, from the second iteration on, was computed in the
// iteration before: it lists the values that come along the back edges, as they were then. nil if one of them depends
// on more than the loop's counter.
func (id inductions) carriedOf(l *ir.Loop, in *ir.Inst) []exprID {
	w := id.width(id.vals[in.Defs[0]])
	var list []exprID
	for i, p := range l.Header.Preds {
		if !id.f.Loops.Contains(l, p.Block) {
			continue
		}
		facts := id.edgeFacts(p.Block, p.Index, slices.Clone(id.facts[p.Block.Index]))
		list = id.choices(decisions{id.graph}.assume(id.operand(in.Args[i], w), facts), list)
	}
	if len(list) > maxCarried {
		return nil
	}
	for i, e := range list {
		if list[i] = id.earlier(l, e, 0); list[i] == noExpr {
			return nil
		}
	}
	return list
}

// earlier is what a value was in the iteration before, if there was one: none if it depends on something in the loop
// other than the counter.
func (id inductions) earlier(l *ir.Loop, e exprID, depth int) exprID {
	x := id.exprs[e]
	inv := invariants{id.graph, id.code}
	switch {
	case inv.steady(l, e, 0):
		return e
	case depth > 24:
		return noExpr
	case x.op == form.OpCounter && x.imm == id.loopOf[l]:
		return id.binary(form.OpMaxS, 64, id.binary(form.OpAdd, 64, e, id.num(-1)), id.num(0))
	case x.op == form.OpDrift && id.drifts[x.imm].loop == id.loopOf[l] &&
		!id.drifts[x.imm].before && inv.steady(l, x.a, 0):
		d := id.drifts[x.imm]
		d.before = true
		id.drifts = append(id.drifts, d)
		r := id.intern(expr{op: form.OpDrift, w: x.w, a: x.a, imm: int64(len(id.drifts) - 1)})
		id.origin[r] = id.origin[e]
		return r
	case x.w == 1:
		return id.unknown(1, l.Header) // it was true or false
	case x.op > form.OpSelect:
		return noExpr
	}
	var arg [3]exprID
	for i, a := range [...]exprID{x.a, x.b, x.c} {
		if a == noExpr {
			continue
		}
		if arg[i] = id.earlier(l, a, depth+1); arg[i] == noExpr {
			return noExpr
		}
	}
	return id.make(x.op, x.w, arg[0], arg[1], arg[2])
}

// choices is what a value is one of.
func (id inductions) choices(e exprID, list []exprID) []exprID {
	if x := id.exprs[e]; x.op == form.OpSelect && len(list) <= maxCarried {
		return id.choices(x.c, id.choices(x.b, list))
	}
	if !slices.Contains(list, e) {
		list = append(list, e)
	}
	return list
}
