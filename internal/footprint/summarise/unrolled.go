package summarise

import (
	"slices"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
	"holdfast/internal/ir"
)

// Compilers unroll a loop of T rounds by m: T%m rounds one by one, then the others m at a time. That the two together
// do not go farther than the loop did takes four facts:
//
//   - T itself: max(end, begin+1) is end behind a test that begin < end (larger);
//   - what the first loop leaves behind is begin + T%m, whether it was entered or not (settled);
//   - T%m is at most T (atMostWhole);
//   - the tests of the second loop see T%m - T, which is a multiple of m (modulus).

// settled is the form of a phi whose arguments are the same number because of what is tested on the ways to it: behind
// a loop that counts n down to 0, i + (rounds + 1) is i + n, and so is i where n is 0. It is congruent to the phi
// modulo 2^w like any form; nil if there is none.
func (mg merges) settled(b *ir.Block, list []exprID, w uint8) *linear {
	plain := func(f *linear) bool { return f.sym == 0 && len(f.checks) == 0 }
	zeros := make([][]*linear, len(list)) // forms that are 0 modulo 2^w on the way
	for i, a := range list {
		if !plain(mg.linear[a]) {
			return nil
		}
		p := b.Preds[i]
		for _, x := range mg.edgeFacts(p.Block, p.Index, append([]fact(nil), mg.facts[p.Block.Index]...)) {
			e := mg.exprs[x.e]
			if e.op != form.OpEQ || x.not || mg.width(e.a) != w {
				continue
			}
			l, r := mg.linear[e.a], mg.linear[e.b]
			if d, ok := mg.sum(l, r, mg.num(-1)); ok && plain(l) && plain(r) {
				zeros[i] = append(zeros[i], d)
			}
		}
	}
	for i, a := range list {
		for _, z := range zeros[i] {
			for _, times := range [...]int64{1, -1} {
				f, ok := mg.sum(mg.linear[a], z, mg.num(times))
				for j := 0; ok && j < len(list); j++ {
					ok = j == i || mg.sameBut(f, mg.linear[list[j]], zeros[j])
				}
				if ok {
					return f
				}
			}
		}
	}
	return nil
}

// sameBut reports whether a is b, or differs from it by one of the zeros.
func (mg merges) sameBut(a, b *linear, zeros []*linear) bool {
	d, ok := mg.sum(a, b, mg.num(-1))
	if !ok {
		return false
	}
	if len(d.terms) == 0 && mg.isZero(d.c) {
		return true
	}
	for _, z := range zeros {
		if n, ok := mg.scaled(z, mg.num(-1)); d == z || ok && d == n {
			return true
		}
	}
	return false
}

// modulus finds m and r such that a form is r modulo m because of a remainder in it: T%4 - T is a multiple of 4.
func (cs conditions) modulus(f *linear) (m, r int64) {
	for _, t := range f.terms {
		v := cs.vars[t.v]
		if v.kind != form.KindMod {
			continue
		}
		n := identities(cs).multiples(f, t, &v)
		if n == nil {
			continue
		}
		c, ok := cs.constant(n.c)
		for _, t := range n.terms {
			x, is := cs.constant(t.coef)
			ok = ok && is && x > -1<<32 && x < 1<<32
			m = interval.Gcd(m, x)
		}
		if ok && m > 1 {
			return m, form.Modulo(interval.Bounds{Lo: c, Hi: c}, m).Lo
		}
		m = 0
	}
	return 0, 0
}

// atMostWhole adds guards that say of T what a guard says of T%m, as far as that follows from T%m <= T. That holds if
// T is not negative, which a launch finds out.
func (c *compiler) atMostWhole(all []int32) []int32 {
	for _, id := range all {
		g := c.given[id]
		if exit := c.p.Guards[id].Exit; exit == 0 || !g.not0 || g.rest != nil || g.need != nil {
			continue
		}
		for _, t := range g.f.terms {
			v := c.vars[t.v]
			k, ok := c.constant(t.coef)
			if v.kind != form.KindMod || v.args[0].w != 0 || !ok || k == 0 {
				continue
			}
			whole := v.args[0].f
			if whole.sym != 0 || len(whole.checks) > 0 || len(whole.terms) == 0 {
				continue
			}
			f, ok := c.sum(g.f, whole, c.num(k))
			if ok {
				f, ok = c.sum(f, c.varForm(t.v), c.num(-k))
			}
			if !ok || len(f.terms) == 0 {
				continue
			}
			n := g
			n.f, n.need, n.side = f, whole, footprint.OnlyLow
			if k < 0 {
				n.side = footprint.OnlyHigh
			}
			all = append(all, c.guard(n, c.p.Guards[id].Exit))
		}
	}
	return all
}

// floors adds what guards say of a quotient that an access needs: if D is in [lo, hi], (D+n)/m is in [(lo+n)/m,
// (hi+n)/m], rounded towards minus infinity. Of 4*x + y, (4*x + y + 1)/2 is the form 2*x + (y+1)/2, so that D and what
// is divided have to be the same only but for multiples of m.
func (c *compiler) floors(all []int32, needed map[varID]bool) []int32 {
	var list []varID
	for v := range needed {
		if x := &c.vars[v]; x.kind == form.KindFloor && x.args[0].w == 0 && x.args[0].f.sym == 0 &&
			len(x.args[0].f.checks) == 0 {
			list = append(list, v)
		}
	}
	if len(list) == 0 {
		return all
	}
	slices.Sort(list)
	out := all
	for _, id := range all {
		g := c.given[id]
		if c.p.Guards[id].Exit != 0 || g.wrap != 0 || g.not0 || g.rest != nil || g.need != nil || g.load != 0 {
			continue
		}
		n := 0
		for _, v := range list {
			if n == maxFloors {
				break
			}
			if q, ok := c.quotientGuard(g, v); ok {
				out = append(out, c.guard(q, 0))
				n++
			}
		}
	}
	return out
}

// maxFloors bounds the guards that floors makes of one.
const maxFloors = 4

// quotientGuard is what a guard says of the quotient v of its form.
func (c *compiler) quotientGuard(g guard, v varID) (guard, bool) {
	x := &c.vars[v]
	whole, rest := quotientForms{c.graph}.split(g.f, x.imm)
	d, ok := c.sum(x.args[0].f, rest, c.num(-1))
	if !ok || len(rest.terms) == 0 || len(d.terms) > 0 {
		return guard{}, false
	}
	n, ok := c.constant(d.c)
	if !ok || n <= -footprint.Largest || n >= footprint.Largest {
		return guard{}, false
	}
	// g.f = m*whole + rest, and what v divides is rest + n.
	f, ok := c.sum(whole, c.varForm(v), c.num(1))
	if !ok {
		return guard{}, false
	}
	in := interval.Everything
	if g.in.Lo > -footprint.Largest {
		in.Lo = interval.FloorDiv(g.in.Lo+n, x.imm)
	}
	if g.in.Hi < footprint.Largest {
		in.Hi = interval.FloorDiv(g.in.Hi+n, x.imm)
	}
	return guard{f: c.withChecks(f, g.f), in: in}, true
}

// larger is the maximum of x and y where facts say which it is.
func (me meanings) larger(b *ir.Block, signed bool, x, y exprID) exprID {
	less, atMost := form.OpLTU, form.OpLEU
	if signed {
		less, atMost = form.OpLTS, form.OpLES
	}
	for _, p := range [...][2]exprID{{x, y}, {y, x}} {
		a, c := me.exprs[p[1]], p[0]
		// p[1] is s + 1, and s < c: s + 1 is at most c, and does not wrap.
		s := noExpr
		switch one, ok := me.constant(a.b); {
		case a.op == form.OpAdd && ok && one == 1:
			s = a.a
		case a.op == form.OpConst && a.imm > 0:
			s = me.number(a.w, a.imm-1)
		}
		for _, f := range me.facts[b.Index] {
			e := me.exprs[f.e]
			if s != noExpr && (!f.not && e.op == less && e.a == s && e.b == c || f.not && e.op == atMost &&
				e.a == c && e.b == s) {
				return c
			}
		}
	}
	return noExpr
}
