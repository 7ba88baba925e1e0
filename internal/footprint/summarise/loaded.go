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

// Where a compiler cannot see that nothing writes a place, it loads from there again and again: the end of a row anew
// in every iteration, or only in those that have stored something. The value that is used is then a phi of loads from
// one place. It is a loaded value like each of them: in a launch that knows what is there, they are the same, and in
// another one it may be anything.

// samePlace is the place that all of some values of one width were loaded from.
func (g *graph) samePlace(list []exprID) (loaded, bool) {
	first, ok := g.loadOf(list[0])
	for _, e := range list {
		x, is := g.loadOf(e)
		ok = ok && is && x.at == first.at && x.imm == first.imm
	}
	return first, ok
}

// loadOf is where a value was loaded from.
func (g *graph) loadOf(e exprID) (loaded, bool) {
	if e == noExpr || g.exprs[e].op != form.OpUnknown {
		return loaded{}, false
	}
	x, ok := g.loads[g.exprs[e].imm]
	return x, ok && x.kind == form.KindTable
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
			a.facts = conditions{c.graph}.conjuncts(c.operand(l.in.Guard, 1), false, slices.Clone(a.facts))
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
