package summarise

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// formBounds is the bounds of a form in every launch.
func (g *graph) formBounds(f *linear) interval.Bounds {
	if f.sym != 0 {
		return interval.Everything
	}
	b := g.bounds[f.c]
	for _, t := range f.terms {
		b = b.Plus(g.vars[t.v].bounds.Product(g.bounds[t.coef]))
	}
	for _, id := range f.checks { // whoever uses f has its checks
		if c := g.checks[id]; c.f.c == f.c && slices.Equal(c.f.terms, f.terms) {
			b = b.Meet(c.all())
		}
	}
	return b
}

// all is what the check demands.
func (c check) all() interval.Bounds { return numbers(c.f, c.w, c.signed) }

// numbers is where a form must lie to be a number of w bits. A bound of ±far is none, so a sum of 64 bits that
// has no other may have overflowed.
func numbers(f *linear, w uint8, signed bool) interval.Bounds {
	all := interval.UnsignedBounds(w)
	if signed {
		all = interval.SignedBounds(w)
	}
	if len(f.terms) > 0 {
		all = all.Meet(interval.Bounds{Lo: -interval.Far + 1, Hi: interval.Far - 1})
	}
	return all
}

// itself reports whether a form is a variable of 64 bits that is a number as it is.
func (g *graph) itself(f *linear, w uint8, signed bool) bool {
	if w != 64 || len(f.terms) != 1 || len(f.checks) > 0 || !g.isZero(f.c) {
		return false
	}
	if k, ok := g.constant(f.terms[0].coef); !ok || k != 1 {
		return false
	}
	switch v := g.vars[f.terms[0].v]; v.kind {
	case form.KindAny, form.KindTable, form.KindExt:
		return v.w == 64 && signed == (v.imm&1 == 0)
	}
	return false
}

// read is a form as a number of w bits.
func (g *graph) read(f *linear, w uint8, signed bool) *linear {
	if f.sym != 0 {
		if w == 64 {
			return f
		}
		return g.atom(variable{kind: form.KindExt, w: w, imm: form.Truth(!signed) & 1, args: []argument{{f: f, w: w,
			signed: signed}}})
	}
	if g.formBounds(f).In(numbers(f, w, signed)) || g.itself(f, w, signed) {
		return f
	}
	if len(f.terms) == 1 && len(f.checks) == 0 && (g.vars[f.terms[0].v].kind == form.KindAny ||
		g.vars[f.terms[0].v].kind >= form.KindTable) && !signed {
		if k, ok := g.constant(f.terms[0].coef); ok && k == 1 && g.isZero(f.c) {
			return g.atom(variable{kind: form.KindExt, w: w, imm: 1, args: []argument{{f: f, w: w, signed: signed}}})
		}
	}
	c := check{f, w, signed}
	id, ok := g.checkOf[c]
	if !ok {
		id = int32(len(g.checks))
		g.checks = append(g.checks, c)
		g.checkOf[c] = id
	}
	if slices.Contains(f.checks, id) {
		return f
	}
	r := *f
	r.checks = union(f.checks, []int32{id})
	return g.form(r)
}

// uniformBounds is the bounds of a uniform value, as a signed number, in every launch.
func (g *graph) uniformBounds(e exprID) interval.Bounds {
	x := g.exprs[e]
	all := interval.SignedBounds(x.w)
	var r interval.Bounds
	switch x.op {
	case form.OpConst:
		return interval.Bounds{Lo: interval.Clamp(x.imm), Hi: interval.Clamp(x.imm)}
	case form.OpGeometry:
		switch x.imm {
		case form.NtidX, form.NtidY, form.NtidZ:
			return interval.Bounds{Lo: 1, Hi: g.maxTid[x.imm-form.NtidX] + 1}
		case form.NctaidY, form.NctaidZ:
			return interval.Bounds{Lo: 1, Hi: 65535}
		case form.DynamicShared:
			return interval.Bounds{Lo: 0, Hi: 1 << 20}
		}
		return interval.Bounds{Lo: 1, Hi: 1<<31 - 1}
	case form.OpAdd:
		r = g.bounds[x.a].Plus(g.bounds[x.b])
	case form.OpSub:
		r = g.bounds[x.a].Minus(g.bounds[x.b])
	case form.OpMul:
		r = g.bounds[x.a].Product(g.bounds[x.b])
	case form.OpSext:
		r = g.bounds[x.a]
		if g.width(x.a) == 1 {
			r = interval.Bounds{Lo: -1, Hi: 0}
		}
	case form.OpZext:
		r = interval.UnsignedBounds(g.width(x.a))
		if b := g.bounds[x.a]; g.width(x.a) > 1 && b.Lo >= 0 {
			r = b
		}
	case form.OpMinS:
		r = interval.Bounds{Lo: min(g.bounds[x.a].Lo, g.bounds[x.b].Lo), Hi: min(g.bounds[x.a].Hi, g.bounds[x.b].Hi)}
	case form.OpMaxS:
		r = interval.Bounds{Lo: max(g.bounds[x.a].Lo, g.bounds[x.b].Lo), Hi: max(g.bounds[x.a].Hi, g.bounds[x.b].Hi)}
	default:
		return all
	}
	if !r.In(all) {
		return all
	}
	return r
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
