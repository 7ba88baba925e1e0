package summarise

import (
	"holdfast/internal/footprint"
	"holdfast/internal/footprint/form"
)

// identities rewrites forms as equal ones that say more: x - x/m*m is x%m.
type identities struct{ *graph }

// wrapped sees k*D + b*[D <= n], as in i + (i < 0 ? n : 0), where b is more than a step of k. That is
// k*min(D, n) + b or k*max(D, n+1), whichever is chosen: each has its own bounds.
func (it identities) wrapped(f *linear) *linear {
	for _, t := range f.terms {
		v := it.vars[t.v]
		if v.kind != form.KindTest || v.args[0].w != 0 || v.args[0].f.sym != 0 {
			continue
		}
		d := v.args[0].f
		h := f
		k := it.ratio(h, d)
		if k == noExpr {
			if h = it.unfolded(f, d); h == nil {
				continue
			}
			k = it.ratio(h, d)
		}
		kn, ok := it.constant(k)
		if k == noExpr || !ok || kn <= -footprint.Largest || kn >= footprint.Largest {
			continue
		}
		if bn, ok := it.constant(t.coef); ok && max(bn, -bn) < 2*max(kn, -kn) {
			continue
		}
		low, ok1 := it.scaled(it.atom(variable{kind: form.KindMinS, w: 64, args: []argument{{f: d},
			{f: it.uniformForm(it.num(v.imm))}}}), k)
		high, ok2 := it.scaled(it.atom(variable{kind: form.KindMaxS, w: 64, args: []argument{{f: d},
			{f: it.uniformForm(it.num(v.imm + 1))}}}), k)
		if !ok1 || !ok2 {
			continue
		}
		low = it.moved(low, it.binary(form.OpAdd, 64, low.c, t.coef))
		one := it.atom(variable{kind: form.KindOne, w: 64, args: []argument{{f: low}, {f: high}}})
		r, ok := it.sum(h, d, it.binary(form.OpMul, 64, k, it.num(-1)))
		if !ok {
			continue
		}
		if r, ok = it.sum(r, it.varForm(t.v), it.binary(form.OpMul, 64, t.coef, it.num(-1))); !ok {
			continue
		}
		if r, ok = it.sum(r, one, it.num(1)); ok {
			return r
		}
	}
	return nil
}

// unfolded is f with k*m*(B/m) + k*(B%m) instead of k*B, if d is of B%m.
func (it identities) unfolded(f, d *linear) *linear {
	if len(d.terms) != 1 {
		return nil
	}
	v := it.vars[d.terms[0].v]
	if v.kind != form.KindMod || v.args[0].w != 0 || v.args[0].f.sym != 0 || len(v.args[0].f.terms) == 0 {
		return nil
	}
	b := v.args[0].f
	k := it.ratio(f, b)
	if k == noExpr {
		return nil
	}
	r, ok := it.sum(f, b, it.binary(form.OpMul, 64, k, it.num(-1)))
	if !ok {
		return nil
	}
	if r, ok = it.sum(r, it.varForm(d.terms[0].v), k); !ok {
		return nil
	}
	q := it.atom(variable{kind: form.KindFloor, w: 64, imm: v.imm, args: v.args})
	if r, ok = it.sum(r, q, it.binary(form.OpMul, 64, k, it.num(v.imm))); !ok {
		return nil
	}
	return r
}

// remainders replaces m*(B/m), where B is in f as well, by B - B%m.
func (it identities) remainders(f *linear) *linear {
	for _, t := range f.terms {
		v := it.vars[t.v]
		var m exprID
		var mod variable
		switch v.kind {
		case form.KindMod:
			if r := it.multiples(f, t, &v); r != nil {
				return r
			}
			continue
		case form.KindFloor:
			m = it.num(v.imm)
			mod = variable{kind: form.KindMod, w: v.w, imm: v.imm, args: v.args}
		case form.KindDivU, form.KindDivS:
			if len(v.args[1].f.terms) > 0 {
				continue
			}
			if it.read(v.args[1].f, v.args[1].w, v.args[1].signed) != v.args[1].f {
				continue // perhaps above 2^31
			}
			m = v.args[1].f.c
			mod = variable{kind: v.kind + (form.KindRemU - form.KindDivU), w: v.w, args: v.args}
			if d, ok := it.constant(m); !ok || d == 0 {
				mod.imm = 1 // not the one of B % m: with m = 0 that has all its bits set, and this is B
			}
		default:
			continue
		}
		b := v.args[0].f
		if len(b.terms) == 0 || b.sym != 0 {
			continue
		}
		if a := v.args[0]; a.w != 0 {
			b = it.read(b, a.w, a.signed)
		}
		k := it.ratio(f, b)
		if k == noExpr {
			continue
		}
		// f = k*B + a*(B/m) + … = (a + k*m) * (B/m) + k*(B%m) + …
		a := it.binary(form.OpAdd, 64, t.coef, it.binary(form.OpMul, 64, m, k))
		kn, kok := it.constant(k)
		an, aok := it.constant(t.coef)
		rest, done := it.constant(a)
		if !(done && rest == 0) && !(kok && aok && (kn > 0) != (an > 0)) {
			continue
		}
		r, ok := it.sum(f, b, it.binary(form.OpMul, 64, k, it.num(-1)))
		if !ok {
			continue
		}
		q := it.varForm(t.v)
		if r, ok = it.sum(r, q, it.binary(form.OpMul, 64, m, k)); !ok {
			continue
		}
		if r, ok = it.sum(r, it.atom(mod), k); ok {
			return r
		}
	}
	return nil
}

// multiples replaces k*B + a*(B%m), of which t is the second part, by k*m*(B/m) + (k+a)*(B%m), if a and k
// have different signs: what the two have in common then goes away. It is an identity of integers.
func (it identities) multiples(f *linear, t term, v *variable) *linear {
	b := v.args[0].f
	if v.args[0].w != 0 || len(b.terms) == 0 || b.sym != 0 {
		return nil
	}
	k := it.ratio(f, b)
	if k == noExpr {
		return nil
	}
	minus := it.binary(form.OpMul, 64, k, it.num(-1))
	kn, kok := it.constant(k)
	an, aok := it.constant(t.coef)
	if minus != t.coef && !(kok && aok && (kn > 0) != (an > 0)) {
		return nil
	}
	r, ok := it.sum(f, b, minus)
	if !ok {
		return nil
	}
	if r, ok = it.sum(r, it.varForm(t.v), k); !ok {
		return nil
	}
	q := it.atom(variable{kind: form.KindFloor, w: v.w, imm: v.imm, args: v.args})
	if r, ok = it.sum(r, q, it.binary(form.OpMul, 64, k, it.num(v.imm))); !ok {
		return nil
	}
	return r
}

// ratio finds k such that f has k times every term of b.
func (it identities) ratio(f, b *linear) exprID {
	k := noExpr
	i := 0
	for _, t := range b.terms {
		for i < len(f.terms) && f.terms[i].v < t.v {
			i++
		}
		if i == len(f.terms) || f.terms[i].v != t.v {
			return noExpr
		}
		if k == noExpr {
			k = it.quotientOf(f.terms[i].coef, t.coef)
			if k == noExpr {
				return noExpr
			}
		}
		if it.binary(form.OpMul, 64, t.coef, k) != f.terms[i].coef {
			return noExpr
		}
	}
	return k
}

// quotientOf is a uniform k with b*k = a, if one is seen at once.
func (it identities) quotientOf(a, b exprID) exprID {
	if a == b {
		return it.num(1)
	}
	y, ok := it.constant(b)
	if ok && y == 1 {
		return a
	}
	if x, okx := it.constant(a); okx && ok && y != 0 && x%y == 0 {
		return it.num(x / y)
	}
	fa, fb := it.factor(a), it.factor(b)
	if fa.base == fb.base && fb.times != 0 && fa.times%fb.times == 0 {
		return it.num(fa.times / fb.times)
	}
	return noExpr
}

// lifted is the form of a value of w bits with k*B instead of k*(B%m) where k*m is a multiple of 2^w: they are
// congruent modulo 2^w. Compilers leave out of a mask what is shifted out later: 2^15 * (x - (x & 0x1fff0)), of 32
// bits, is 2^15 * (x%16).
func (it identities) lifted(f *linear, w uint8) *linear {
	if w >= 62 || f.sym != 0 {
		return f
	}
	r := f
	for _, t := range f.terms {
		v := it.vars[t.v]
		k, ok := it.constant(t.coef)
		if !ok || v.kind != form.KindMod || v.args[0].w != 0 || v.args[0].f.sym != 0 || v.imm >= int64(1)<<w ||
			k <= -int64(1)<<w || k >= int64(1)<<w {
			continue
		}
		if uint64(k)*uint64(v.imm)&(1<<w-1) != 0 {
			continue
		}
		n, ok := it.sum(r, it.varForm(t.v), it.num(-k))
		if ok {
			n, ok = it.sum(n, v.args[0].f, it.num(k))
		}
		if !ok {
			return f
		}
		r = n
	}
	if r == f {
		return f
	}
	if n, ok := it.add(it.uniformForm(it.num(0)), r, it.num(1)); ok &&
		len(n.terms) < len(f.terms) { // else B may have no bounds
		return n
	}
	return f
}
