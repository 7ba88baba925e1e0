package summarise

import (
	"cmp"
	"maps"
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/ir"
)

// What a kernel loads from memory is a variable of its own (KindTable). A summary has two programs: one in which such
// variables may be anything, and one that asks at every launch whether what is loaded is known (known.go), with guards
// made for it.

// loadedFrom is the place of what result i of a load reads; false if its contents are of no use.
func (k *kernel) loadedFrom(in *ir.Inst, i int) (loaded, bool) {
	if in.Op != ir.Load || len(in.Mem) != 1 || in.Effect&ir.Orders != 0 || in.Type.Width > 64 ||
		in.Type.Kind == ir.Float {
		return loaded{}, false
	}
	m := in.Mem[0]
	f := k.linear[k.operand(m.Base, 64)]
	off := m.Off + int64(i)*int64(in.Type.Width/8)
	space := ir.Global
	if f.sym != 0 {
		space = k.symbols[f.sym-1].space
	}
	switch {
	case m.Space == ir.Param || space == ir.Param:
		return k.fromParameters(m.Space, f, off)
	case m.Space != ir.Global && m.Space != ir.Generic && m.Space != ir.Const:
		return loaded{}, false
	case space != ir.Global && space != ir.Generic && space != ir.Const:
		return loaded{}, false
	}
	return loaded{at: k.moved(f, k.binary(form.OpAdd, 64, f.c, k.num(off))), kind: form.KindTable}, true
}

// Where a compiler cannot see that nothing writes a place, it loads from there again and again: the end of a row anew
// in every iteration, or only in those that have stored something. The value that is used is then a phi of loads from
// one place. It is a loaded value like each of them: in a launch that knows what is there, they are the same, and in
// another one it may be anything.

// samePlace is the place that all of some values of one width were loaded from.
func (k *kernel) samePlace(list []exprID) (loaded, bool) {
	first, ok := k.loadOf(list[0])
	for _, e := range list {
		x, is := k.loadOf(e)
		ok = ok && is && x.at == first.at && x.imm == first.imm
	}
	return first, ok
}

// loadOf is where a value was loaded from.
func (k *kernel) loadOf(e exprID) (loaded, bool) {
	if e == noExpr || k.exprs[e].op != form.OpUnknown {
		return loaded{}, false
	}
	x, ok := k.loads[k.exprs[e].imm]
	return x, ok && x.kind == form.KindTable
}

// loadedAgain is the place that a phi's values were all loaded from, before a loop and in it. What its address is made
// from must stay the same while the loop runs: then all these loads have one address.
func (k *kernel) loadedAgain(l *ir.Loop, in *ir.Inst) bool {
	var list []exprID
	w := k.widthOf(in.Defs[0])
	done := map[ir.ValID]bool{}
	var visit func(in *ir.Inst) bool
	visit = func(in *ir.Inst) bool {
		if done[in.Defs[0]] {
			return true
		}
		done[in.Defs[0]] = true
		for i := range in.Args {
			x := &in.Args[i]
			if x.Kind != ir.Value || x.Part != "" || x.Mod != 0 || k.widthOf(x.Val) != w || len(done) > 8 {
				return false
			}
			if def := k.f.Vals[x.Val].Def; def != nil && def.Op == ir.Phi {
				if !visit(def) {
					return false
				}
			} else {
				list = append(list, k.vals[x.Val])
			}
		}
		return true
	}
	if w < 8 || !visit(in) || len(list) == 0 {
		return false
	}
	x, ok := k.samePlace(list)
	return ok && k.fixed(l, x.at)
}

// reload is a phi of which loadedAgain has said so.
func (k *kernel) reload(b *ir.Block, l *ir.Loop, in *ir.Inst, w uint8) exprID {
	for i, p := range b.Preds {
		if k.f.Loops.Contains(l, p.Block) {
			continue
		}
		if x, ok := k.loadOf(k.operand(in.Args[i], w)); ok && k.fixed(l, x.at) {
			x.block, x.in = b, in
			return k.loaded(w, b, x)
		}
	}
	return k.unknown(w, b)
}

// fixed reports whether a form stays the same while a loop runs.
func (k *kernel) fixed(l *ir.Loop, f *linear) bool {
	for _, t := range f.terms {
		if !k.invariant(l, t.v, 0) {
			return false
		}
	}
	for _, id := range f.checks {
		for _, t := range k.checks[id].f.terms {
			if !k.invariant(l, t.v, 0) {
				return false
			}
		}
	}
	return true
}

// fromParameters is a load from an array in a parameter. Its place is an offset in the parameter buffer.
func (k *kernel) fromParameters(space ir.Space, f *linear, off int64) (loaded, bool) {
	if !k.f.Kernel || f.sym == 0 || space != ir.Param && space != ir.Generic {
		return loaded{}, false
	}
	s := k.symbols[f.sym-1]
	lo, ok := k.params[s.name]
	if !ok || s.space != ir.Param || lo < 0 || s.size <= 0 || lo+s.size >= 1<<20 {
		return loaded{}, false
	}
	at := *k.withoutSymbol(f)
	at.c = k.binary(form.OpAdd, 64, at.c, k.num(int64(lo)+off))
	return loaded{at: k.form(at), kind: form.KindParam, imm: int64(lo)<<1 | int64(lo+s.size)<<25}, true
}

// arguments are those of a variable, as far as the program evaluates them.
func (c *compiler) arguments(v varID) []argument {
	if c.vars[v].kind == form.KindTable && !c.tables {
		return nil
	}
	return c.vars[v].args
}

// maxProjections bounds the guards that are made of one.
const maxProjections = 4

// projections adds to guards what they say without one of the loaded values in them: from j < row[i+1] follows
// j < the largest number in row.
func (c *compiler) projections(all []int32) []int32 {
	out := slices.Clone(all)
	for _, id := range all {
		g := c.given[id]
		if g.wrap != 0 || g.not0 && c.p.Guards[id].Exit == 0 || g.rest != nil || len(g.f.terms) < 2 {
			continue
		}
		n := 0
		for i, t := range g.f.terms {
			if c.vars[t.v].kind != form.KindTable || n == maxProjections {
				continue
			}
			n++
			f := *g.f
			f.terms = slices.Delete(slices.Clone(g.f.terms), i, i+1)
			p := g
			p.f = c.form(f)
			p.rest = c.form(linear{terms: []term{t}, c: c.num(0)})
			out = append(out, c.guard(p, c.p.Guards[id].Exit))
		}
	}
	return out
}

// aliases adds to guards of a loaded value what they say of another one that an access needs, and that is loaded from
// the same place. It holds where what is there is known: then both are that.
func (c *compiler) aliases(all []int32, needed map[varID]bool) []int32 {
	var list []varID
	for v := range needed {
		if c.vars[v].kind == form.KindTable {
			list = append(list, v)
		}
	}
	slices.Sort(list)
	out := all
	for _, id := range all {
		g := c.given[id]
		if c.p.Guards[id].Exit != 0 || g.rest != nil || g.need != nil || g.load != 0 {
			continue
		}
		for _, t := range g.f.terms {
			x := &c.vars[t.v]
			if x.kind != form.KindTable {
				continue
			}
			for _, v := range list {
				y := &c.vars[v]
				if v == t.v || y.w != x.w || y.imm != x.imm || y.args[0].f != x.args[0].f {
					continue
				}
				f, ok := c.sum(g.f, c.varForm(t.v), c.binary(form.OpMul, 64, t.coef, c.num(-1)))
				if ok {
					f, ok = c.sum(f, c.varForm(v), t.coef)
				}
				if !ok || len(f.terms) == 0 {
					continue
				}
				p := g
				p.f, p.load = f, int32(v)+1
				out = append(out, c.guard(p, 0))
			}
		}
	}
	return out
}

// A home is a load whose value is used, and what holds where it stands: elsewhere less may be known of its address.
type home struct {
	scope
	v     varID
	block *ir.Block
}

// homes finds the loads whose values scopes use, in an order in which those that an address is made from come first.
func (c *compiler) homes(all []scope) []home {
	if !c.tables {
		return nil
	}
	var list []home
	done := map[varID]bool{}
	var todo []varID
	add := func(vars map[varID]bool) {
		for _, v := range slices.Sorted(maps.Keys(vars)) {
			if c.vars[v].kind == form.KindTable && !done[v] {
				done[v] = true
				todo = append(todo, v)
			}
		}
	}
	for _, s := range all {
		add(s.vars)
	}
	for len(todo) > 0 {
		v := todo[0]
		todo = todo[1:]
		l := c.loads[c.exprs[c.vars[v].from].imm]
		a := &access{facts: c.facts[l.block.Index], block: l.block}
		if l.in.Guarded() {
			a.facts = c.conjuncts(c.operand(l.in.Guard, 1), false, slices.Clone(a.facts))
		}
		h := home{c.scopeOf(a, c.varForm(v)), v, l.block}
		add(h.vars)
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b home) int {
		return cmp.Or(cmp.Compare(a.block.Index, b.block.Index),
			cmp.Compare(a.v, b.v))
	})
	return list
}
