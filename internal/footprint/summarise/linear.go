package summarise

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// A linear form is c + the sum of coef * v over its terms, as an integer. A value of w bits
// is congruent to its form modulo 2^w, so that adding, subtracting and multiplying by a uniform
// number need no proof that nothing overflows. Where bits become a number (a comparison, a
// division, a conversion to a wider type) that proof is needed: the form then lists
// a check, which each launch makes, and where it fails nothing is known of the form.
type linear struct {
	id     int32
	terms  []term  // by ascending variable
	c      exprID  // uniform, 64 bits
	sym    int32   // 1 + the variable of the program whose address is added; 0 = none
	checks []int32 // ascending
}

// A term is coef * v; coef is uniform, of 64 bits.
type term struct {
	v    varID
	coef exprID
}

// A check holds if a form lies within the signed or unsigned integers of w bits.
type check struct {
	f      *linear
	w      uint8
	signed bool
}

// form finds or makes a form. terms are sorted, without zero coefficients.
func (g *graph) form(f linear) *linear {
	key := binary.AppendVarint(nil, int64(f.c))
	key = binary.AppendVarint(key, int64(f.sym))
	for _, t := range f.terms {
		key = binary.AppendVarint(key, int64(t.v))
		key = binary.AppendVarint(key, int64(t.coef))
	}
	key = append(key, 0x80, 0x80) // no varint ends so
	for _, c := range f.checks {
		key = binary.AppendVarint(key, int64(c))
	}
	if have := g.linears[string(key)]; have != nil {
		return have
	}
	f.id = int32(len(g.linears))
	g.linears[string(key)] = &f
	return &f
}

func (g *graph) num(x int64) exprID { return g.number(64, x) }

// of64 is a uniform value as a signed 64-bit one.
func (g *graph) of64(e exprID) exprID { return g.unary(form.OpSext, 64, e) }

func (g *graph) uniformForm(c exprID) *linear { return g.form(linear{c: c}) }

func (g *graph) varForm(v varID) *linear {
	return g.form(linear{terms: []term{{v, g.num(1)}}, c: g.num(0)})
}

// atom is the form of a variable of its own.
func (g *graph) atom(v variable) *linear { return g.varForm(g.variable(v)) }

// opaque is the form of a value that is not looked into.
func (g *graph) opaque(e exprID) *linear {
	return g.atom(variable{kind: form.KindAny, w: g.width(e), from: e})
}

// sum is a + k*b for a uniform k.
func (g *graph) sum(a, b *linear, k exprID) (*linear, bool) {
	f := linear{c: g.binary(form.OpAdd, 64, a.c, g.binary(form.OpMul, 64, b.c, k)), sym: a.sym}
	if b.sym != 0 {
		if one, _ := g.constant(k); a.sym != 0 || one != 1 {
			return nil, false
		}
		f.sym = b.sym
	}
	i, j := 0, 0
	for i < len(a.terms) || j < len(b.terms) {
		var t term
		switch {
		case j == len(b.terms) || i < len(a.terms) && a.terms[i].v < b.terms[j].v:
			t = a.terms[i]
			i++
		case i == len(a.terms) || b.terms[j].v < a.terms[i].v:
			t = term{b.terms[j].v, g.binary(form.OpMul, 64, b.terms[j].coef, k)}
			j++
		default:
			t = term{a.terms[i].v, g.binary(form.OpAdd, 64, a.terms[i].coef, g.binary(form.OpMul, 64,
				b.terms[j].coef, k))}
			i++
			j++
		}
		if x, ok := g.constant(t.coef); !ok || x != 0 {
			f.terms = append(f.terms, t)
		}
	}
	if len(f.terms) > form.MaxTerms {
		return nil, false
	}
	f.checks = union(a.checks, b.checks)
	return g.form(f), true
}

func union(a, b []int32) []int32 {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	r := slices.Concat(a, b)
	slices.Sort(r)
	return slices.Compact(r)
}

func (g *graph) scaled(f *linear, k exprID) (*linear, bool) {
	return g.sum(g.uniformForm(g.num(0)), f, k)
}

// add is a + k*b with remainders recognised: x - x/m*m is x % m.
func (g *graph) add(a, b *linear, k exprID) (*linear, bool) {
	f, ok := g.sum(a, b, k)
	if !ok {
		return nil, false
	}
	for range f.terms {
		r := g.remainders(f)
		if r == nil {
			break
		}
		f = r
	}
	for range f.terms {
		r := g.wrapped(f)
		if r == nil {
			break
		}
		f = r
	}
	return f, true
}

// wrapped sees k*D + b*[D <= n], as in i + (i < 0 ? n : 0), where b is more than a step of k. That is
// k*min(D, n) + b or k*max(D, n+1), whichever is chosen: each has its own bounds.
func (g *graph) wrapped(f *linear) *linear {
	for _, t := range f.terms {
		v := g.vars[t.v]
		if v.kind != form.KindTest || v.args[0].w != 0 || v.args[0].f.sym != 0 {
			continue
		}
		d := v.args[0].f
		h := f
		k := g.ratio(h, d)
		if k == noExpr {
			if h = g.unfolded(f, d); h == nil {
				continue
			}
			k = g.ratio(h, d)
		}
		kn, ok := g.constant(k)
		if k == noExpr || !ok || kn <= -footprint.Largest || kn >= footprint.Largest {
			continue
		}
		if bn, ok := g.constant(t.coef); ok && max(bn, -bn) < 2*max(kn, -kn) {
			continue
		}
		low, ok1 := g.scaled(g.atom(variable{kind: form.KindMinS, w: 64, args: []argument{{f: d},
			{f: g.uniformForm(g.num(v.imm))}}}), k)
		high, ok2 := g.scaled(g.atom(variable{kind: form.KindMaxS, w: 64, args: []argument{{f: d},
			{f: g.uniformForm(g.num(v.imm + 1))}}}), k)
		if !ok1 || !ok2 {
			continue
		}
		low = g.moved(low, g.binary(form.OpAdd, 64, low.c, t.coef))
		one := g.atom(variable{kind: form.KindOne, w: 64, args: []argument{{f: low}, {f: high}}})
		r, ok := g.sum(h, d, g.binary(form.OpMul, 64, k, g.num(-1)))
		if !ok {
			continue
		}
		if r, ok = g.sum(r, g.varForm(t.v), g.binary(form.OpMul, 64, t.coef, g.num(-1))); !ok {
			continue
		}
		if r, ok = g.sum(r, one, g.num(1)); ok {
			return r
		}
	}
	return nil
}

// unfolded is f with k*m*(B/m) + k*(B%m) instead of k*B, if d is of B%m.
func (g *graph) unfolded(f, d *linear) *linear {
	if len(d.terms) != 1 {
		return nil
	}
	v := g.vars[d.terms[0].v]
	if v.kind != form.KindMod || v.args[0].w != 0 || v.args[0].f.sym != 0 || len(v.args[0].f.terms) == 0 {
		return nil
	}
	b := v.args[0].f
	k := g.ratio(f, b)
	if k == noExpr {
		return nil
	}
	r, ok := g.sum(f, b, g.binary(form.OpMul, 64, k, g.num(-1)))
	if !ok {
		return nil
	}
	if r, ok = g.sum(r, g.varForm(d.terms[0].v), k); !ok {
		return nil
	}
	q := g.atom(variable{kind: form.KindFloor, w: 64, imm: v.imm, args: v.args})
	if r, ok = g.sum(r, q, g.binary(form.OpMul, 64, k, g.num(v.imm))); !ok {
		return nil
	}
	return r
}

// remainders replaces m*(B/m), where B is in f as well, by B - B%m.
func (g *graph) remainders(f *linear) *linear {
	for _, t := range f.terms {
		v := g.vars[t.v]
		var m exprID
		var mod variable
		switch v.kind {
		case form.KindMod:
			if r := g.multiples(f, t, &v); r != nil {
				return r
			}
			continue
		case form.KindFloor:
			m = g.num(v.imm)
			mod = variable{kind: form.KindMod, w: v.w, imm: v.imm, args: v.args}
		case form.KindDivU, form.KindDivS:
			if len(v.args[1].f.terms) > 0 {
				continue
			}
			if g.read(v.args[1].f, v.args[1].w, v.args[1].signed) != v.args[1].f {
				continue // perhaps above 2^31
			}
			m = v.args[1].f.c
			mod = variable{kind: v.kind + (form.KindRemU - form.KindDivU), w: v.w, args: v.args}
			if d, ok := g.constant(m); !ok || d == 0 {
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
			b = g.read(b, a.w, a.signed)
		}
		k := g.ratio(f, b)
		if k == noExpr {
			continue
		}
		// f = k*B + a*(B/m) + … = (a + k*m) * (B/m) + k*(B%m) + …
		a := g.binary(form.OpAdd, 64, t.coef, g.binary(form.OpMul, 64, m, k))
		kn, kok := g.constant(k)
		an, aok := g.constant(t.coef)
		rest, done := g.constant(a)
		if !(done && rest == 0) && !(kok && aok && (kn > 0) != (an > 0)) {
			continue
		}
		r, ok := g.sum(f, b, g.binary(form.OpMul, 64, k, g.num(-1)))
		if !ok {
			continue
		}
		q := g.varForm(t.v)
		if r, ok = g.sum(r, q, g.binary(form.OpMul, 64, m, k)); !ok {
			continue
		}
		if r, ok = g.sum(r, g.atom(mod), k); ok {
			return r
		}
	}
	return nil
}

// multiples replaces k*B + a*(B%m), of which t is the second part, by k*m*(B/m) + (k+a)*(B%m), if a and k
// have different signs: what the two have in common then goes away. It is an identity of integers.
func (g *graph) multiples(f *linear, t term, v *variable) *linear {
	b := v.args[0].f
	if v.args[0].w != 0 || len(b.terms) == 0 || b.sym != 0 {
		return nil
	}
	k := g.ratio(f, b)
	if k == noExpr {
		return nil
	}
	minus := g.binary(form.OpMul, 64, k, g.num(-1))
	kn, kok := g.constant(k)
	an, aok := g.constant(t.coef)
	if minus != t.coef && !(kok && aok && (kn > 0) != (an > 0)) {
		return nil
	}
	r, ok := g.sum(f, b, minus)
	if !ok {
		return nil
	}
	if r, ok = g.sum(r, g.varForm(t.v), k); !ok {
		return nil
	}
	q := g.atom(variable{kind: form.KindFloor, w: v.w, imm: v.imm, args: v.args})
	if r, ok = g.sum(r, q, g.binary(form.OpMul, 64, k, g.num(v.imm))); !ok {
		return nil
	}
	return r
}

// ratio finds k such that f has k times every term of b.
func (g *graph) ratio(f, b *linear) exprID {
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
			k = g.quotientOf(f.terms[i].coef, t.coef)
			if k == noExpr {
				return noExpr
			}
		}
		if g.binary(form.OpMul, 64, t.coef, k) != f.terms[i].coef {
			return noExpr
		}
	}
	return k
}

// quotientOf is a uniform k with b*k = a, if one is seen at once.
func (g *graph) quotientOf(a, b exprID) exprID {
	if a == b {
		return g.num(1)
	}
	y, ok := g.constant(b)
	if ok && y == 1 {
		return a
	}
	if x, okx := g.constant(a); okx && ok && y != 0 && x%y == 0 {
		return g.num(x / y)
	}
	fa, fb := g.factor(a), g.factor(b)
	if fa.base == fb.base && fb.times != 0 && fa.times%fb.times == 0 {
		return g.num(fa.times / fb.times)
	}
	return noExpr
}

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

func (g *graph) isZero(e exprID) bool {
	x, ok := g.constant(e)
	return ok && x == 0
}

// arg is a value as an argument of a variable.
func (g *graph) arg(e exprID, signed bool) argument {
	return argument{f: g.linear[e], w: g.width(e), signed: signed}
}

// linearise is the form of a value whose arguments have theirs.
func (g *graph) linearise(e exprID) *linear {
	x := g.exprs[e]
	if g.uniform[e] {
		if x.w == 64 {
			return g.uniformForm(e)
		}
		return g.uniformForm(g.of64(e))
	}
	if f := g.lineariseOp(e, x); f != nil {
		if x.op == form.OpAdd || x.op == form.OpSub || x.op == form.OpMul {
			return g.lifted(f, x.w)
		}
		return f
	}
	return g.opaque(e)
}

// lifted is the form of a value of w bits with k*B instead of k*(B%m) where k*m is a multiple of 2^w: they are
// congruent modulo 2^w. Compilers leave out of a mask what is shifted out later: 2^15 * (x - (x & 0x1fff0)), of 32
// bits, is 2^15 * (x%16).
func (g *graph) lifted(f *linear, w uint8) *linear {
	if w >= 62 || f.sym != 0 {
		return f
	}
	r := f
	for _, t := range f.terms {
		v := g.vars[t.v]
		k, ok := g.constant(t.coef)
		if !ok || v.kind != form.KindMod || v.args[0].w != 0 || v.args[0].f.sym != 0 || v.imm >= int64(1)<<w ||
			k <= -int64(1)<<w || k >= int64(1)<<w {
			continue
		}
		if uint64(k)*uint64(v.imm)&(1<<w-1) != 0 {
			continue
		}
		n, ok := g.sum(r, g.varForm(t.v), g.num(-k))
		if ok {
			n, ok = g.sum(n, v.args[0].f, g.num(k))
		}
		if !ok {
			return f
		}
		r = n
	}
	if r == f {
		return f
	}
	if n, ok := g.add(g.uniformForm(g.num(0)), r, g.num(1)); ok &&
		len(n.terms) < len(f.terms) { // else B may have no bounds
		return n
	}
	return f
}

func (g *graph) lineariseOp(e exprID, x expr) *linear {
	var fa, fb *linear
	if x.a != noExpr {
		fa = g.linear[x.a]
	}
	if x.b != noExpr {
		fb = g.linear[x.b]
	}
	one := g.num(1)
	switch x.op {
	case form.OpThread:
		return g.atom(variable{kind: form.KindThread, w: x.w, imm: x.imm})
	case form.OpCounter:
		return g.atom(variable{kind: form.KindCounter, w: x.w, imm: x.imm})
	case form.OpUnknown:
		if l, ok := g.loads[x.imm]; ok {
			return g.atom(variable{kind: l.kind, w: x.w, imm: l.imm, from: e, args: []argument{{f: l.at}}})
		}
	case form.OpSymbol:
		return g.form(linear{c: g.num(0), sym: int32(x.imm) + 1})
	case form.OpAdd:
		if f, ok := g.add(fa, fb, one); ok {
			return f
		}
	case form.OpSub:
		f, ok := g.add(fa, fb, g.num(-1))
		if ok {
			if r := g.dividerRemainder(e, x, f); r != nil {
				return r
			}
			return f
		}
	case form.OpNot:
		if f, ok := g.add(g.uniformForm(g.num(-1)), fa, g.num(-1)); ok {
			return f
		}
	case form.OpMul:
		switch {
		case g.uniform[x.b]:
			if f, ok := g.scaled(fa, fb.c); ok {
				return f
			}
		case g.uniform[x.a]:
			if f, ok := g.scaled(fb, fa.c); ok {
				return f
			}
		default:
			return g.atom(variable{kind: form.KindMul, w: x.w, args: []argument{{f: fa}, {f: fb}}})
		}
	case form.OpTrunc:
		if fa.sym == 0 {
			return fa
		}
	case form.OpZext, form.OpSext:
		if g.width(x.a) == 1 {
			break
		}
		return g.read(fa, g.width(x.a), x.op == form.OpSext)
	case form.OpShrU, form.OpShrS:
		if f := g.halfDivision(x); f != nil {
			return f
		}
		if k, ok := g.constant(x.b); ok && k > 0 && k < int64(x.w) && k < 62 {
			return g.shifted(fa, x.w, x.op == form.OpShrS, int64(1)<<k)
		}
		if k, ok := g.constant(x.b); ok && k >= 62 && k < int64(x.w) && fa.sym == 0 &&
			g.formBounds(fa).In(interval.Bounds{Lo: 0, Hi: interval.Far - 1}) {
			return g.withChecks(g.uniformForm(g.num(0)), fa) // the sign of an index
		}
		kind := form.KindShrU
		if x.op == form.OpShrS {
			kind = form.KindShrS
		}
		return g.atom(variable{kind: kind, w: x.w, args: []argument{g.arg(x.a, x.op == form.OpShrS), g.arg(x.b,
			false)}})
	case form.OpShl:
		return g.atom(variable{kind: form.KindShl, w: x.w, args: []argument{g.arg(x.a, false), g.arg(x.b, false)}})
	case form.OpDivU, form.OpDivS, form.OpRemU, form.OpRemS:
		return g.divide(x)
	case form.OpAnd:
		return g.and(x, fa, fb)
	case form.OpOr, form.OpXor:
		if f := g.orConstant(x, fa); f != nil {
			return f
		}
		ones := g.ones(fb)
		if k, ok := g.constant(x.b); ok {
			ones = form.Unsigned(x.w, k) // of the bits, whatever the sign
		}
		if g.ones(fa)&ones == 0 && fa.sym == 0 && fb.sym == 0 {
			if f, ok := g.add(fa, fb, one); ok {
				return f
			}
		}
		return g.atom(variable{kind: form.KindOr + form.Kind(x.op-form.OpOr), w: x.w, args: []argument{g.arg(x.a,
			false), g.arg(x.b, false)}})
	case form.OpMulHiU, form.OpMulHiS:
		if f := g.halfDivision(expr{op: form.OpShrU, w: x.w, a: e, b: g.number(32, 0)}); f != nil {
			return f
		}
		args := []argument{g.arg(x.a, x.op == form.OpMulHiS), g.arg(x.b, x.op == form.OpMulHiS)}
		for i, y := range [...]exprID{x.a, x.b} {
			if x.op == form.OpMulHiU && g.uniform[y] && x.w == 32 { // most often above 2^31
				args[i].f = g.uniformForm(g.unary(form.OpZext, 64, y))
			}
		}
		return g.atom(variable{kind: form.KindMulHiU + form.Kind(x.op-form.OpMulHiU), w: x.w, args: args})
	case form.OpMinU, form.OpMinS, form.OpMaxU, form.OpMaxS:
		signed := x.op == form.OpMinS || x.op == form.OpMaxS
		args := []argument{g.arg(x.a, signed), g.arg(x.b, signed)}
		if args[0].f.id > args[1].f.id { // the same one, whichever way round
			args[0], args[1] = args[1], args[0]
		}
		return g.atom(variable{kind: form.KindMinU + form.Kind(x.op-form.OpMinU), w: x.w, args: args})
	case form.OpAbs:
		return g.atom(variable{kind: form.KindAbs, w: x.w, args: []argument{g.arg(x.a, true)}})
	case form.OpPopc, form.OpClz:
		return g.atom(variable{kind: form.KindBits, w: x.w, imm: int64(g.width(x.a)), from: e})
	case form.OpSelect:
		return g.choose(e, x, fb, g.linear[x.c])
	case form.OpPhi:
		return g.merge(e, x)
	case form.OpDrift:
		return g.drift(e, x, fa)
	case form.OpCurve:
		return g.atom(variable{kind: form.KindCurve, w: x.w, imm: x.imm, args: []argument{g.arg(x.a, false)}})
	case form.OpBetween:
		less, _ := g.constant(x.c)
		return g.atom(variable{kind: form.KindBetween, w: x.w, imm: less, from: e, args: []argument{g.arg(x.a, true),
			g.arg(x.b, true)}})
	case form.OpHalving:
		return g.atom(variable{kind: form.KindHalf, w: x.w, from: e, args: []argument{g.arg(x.a, x.imm&1 == 1)}})
	}
	return nil
}

// floor is f / m, rounded towards minus infinity: what is a multiple of m is divided, the rest
// is a variable.
func (g *graph) floor(f *linear, m int64, w uint8) *linear {
	whole, rest := g.split(f, m)
	if g.formBounds(rest).In(interval.Bounds{Lo: 0, Hi: m - 1}) && rest.sym == 0 {
		return g.withChecks(whole, f)
	}
	// (k*B + r) / (k*m) = B / m if 0 <= r < k.
	if small, k := g.reduce(rest, m); k > 1 {
		rest, m = small, m/k
	}
	if m > 1 {
		rest = g.atom(variable{kind: form.KindFloor, w: w, imm: m, args: []argument{{f: rest}}})
	}
	r, ok := g.sum(whole, rest, g.num(1))
	if !ok {
		return g.atom(variable{kind: form.KindFloor, w: w, imm: m, args: []argument{{f: f}}})
	}
	return g.withChecks(r, f)
}

// shifted is f, read as a number of w bits, divided by m and rounded towards minus infinity.
func (g *graph) shifted(f *linear, w uint8, signed bool, m int64) *linear {
	r := g.read(f, w, signed)
	if len(r.checks) == len(f.checks) {
		return g.floor(r, m, w)
	}
	if g.formBounds(r).In(interval.Bounds{Lo: 0, Hi: m - 1}) && g.plausible(f) && g.modest(f, w) {
		return g.withChecks(g.uniformForm(g.num(0)), r) // the sign of an index
	}
	q := g.floor(r, m, w)
	if whole, _ := g.split(f, m); len(whole.terms) > 0 || len(q.terms) == 0 {
		return q
	}
	if small, k := g.reduce(f, m); k > 1 && len(small.terms) < len(f.terms) && g.plausible(f) {
		return q
	}
	// Without the check it is still a number of fewer bits.
	return g.atom(variable{kind: form.KindFloor, w: w, imm: m, args: []argument{{f: f, w: w, signed: signed}}})
}

// withChecks is r with the checks of f.
func (g *graph) withChecks(r, f *linear) *linear {
	n := *r
	n.checks = union(r.checks, f.checks)
	return g.form(n)
}

// mod is f modulo m, not negative.
func (g *graph) mod(f *linear, m int64, w uint8) *linear {
	_, rest := g.split(f, m)
	if g.formBounds(rest).In(interval.Bounds{Lo: 0, Hi: m - 1}) && rest.sym == 0 {
		return g.withChecks(rest, f)
	}
	var r *linear
	if small, k := g.reduce(rest, m); k > 1 {
		// (k*B + r) % (k*m) = k*(B % m) + r if 0 <= r < k.
		low, _ := g.sum(rest, small, g.num(-k))
		r = low
		if m/k > 1 {
			a := g.atom(variable{kind: form.KindMod, w: w, imm: m / k, args: []argument{{f: small}}})
			r, _ = g.sum(low, a, g.num(k))
		}
	}
	if r == nil {
		r = g.atom(variable{kind: form.KindMod, w: w, imm: m, args: []argument{{f: rest}}})
	}
	return g.withChecks(r, f)
}

// split divides f into m * whole + rest. They are integers, and have no checks: who makes a value of
// them adds those of f.
func (g *graph) split(f *linear, m int64) (whole, rest *linear) {
	var a, b linear
	a.c, b.c = g.num(0), f.c
	if c, ok := g.constant(f.c); ok {
		q := interval.FloorDiv(c, m)
		a.c, b.c = g.num(q), g.num(c-q*m)
	}
	for _, t := range f.terms {
		if k, ok := g.constant(t.coef); ok && k%m == 0 {
			a.terms = append(a.terms, term{t.v, g.num(k / m)})
		} else {
			b.terms = append(b.terms, t)
		}
	}
	b.sym = f.sym
	return g.form(a), g.form(b)
}

// reduce finds the largest k that divides m, such that f = k*B + r with 0 <= r < k: the coefficients of B are
// divided by k, and r is a constant and terms that are small in every launch.
func (g *graph) reduce(f *linear, m int64) (*linear, int64) {
	c, ok := g.constant(f.c)
	if !ok || f.sym != 0 || len(f.terms) == 0 {
		return nil, 1
	}
	best := int64(1)
	for _, t := range f.terms {
		x, ok := g.constant(t.coef)
		if !ok {
			return nil, 1
		}
		k := interval.Gcd(m, x)
		for _, u := range f.terms {
			// What has no chance of being small must be a multiple as well.
			if y, ok := g.constant(u.coef); ok && !g.vars[u.v].bounds.Times(y).In(interval.Bounds{Lo: 0, Hi: k - 1}) {
				k = interval.Gcd(k, y)
			}
		}
		if k > best && g.rest(f, k, c).In(interval.Bounds{Lo: 0, Hi: k - 1}) {
			best = k
		}
	}
	if best <= 1 {
		return nil, 1
	}
	r := linear{c: g.num(interval.FloorDiv(c, best))}
	for _, t := range f.terms {
		if x, _ := g.constant(t.coef); x%best == 0 {
			r.terms = append(r.terms, term{t.v, g.num(x / best)})
		}
	}
	return g.form(r), best
}

// rest is the bounds, in every launch, of the terms of f that are no multiples of k, and c modulo k.
func (g *graph) rest(f *linear, k, c int64) interval.Bounds {
	r := interval.Bounds{Lo: c - interval.FloorDiv(c, k)*k, Hi: c - interval.FloorDiv(c, k)*k}
	for _, t := range f.terms {
		if x, ok := g.constant(t.coef); !ok || x%k != 0 {
			r = r.Plus(g.vars[t.v].bounds.Product(g.bounds[t.coef]))
		}
	}
	return r
}

// plausible reports whether a form looks like an index that is computed from coordinates and loop
// counters. A program that computes it with 32 bits takes care that it fits.
func (g *graph) plausible(f *linear) bool {
	if f.sym != 0 {
		return false
	}
	b := g.bounds[f.c]
	for _, t := range f.terms {
		v := g.vars[t.v].bounds
		if g.vars[t.v].kind == form.KindCounter {
			v.Hi = 1 << 20
		}
		b = b.Plus(v.Product(g.bounds[t.coef]))
	}
	return b.Lo >= 0 && b.Hi < 1<<46
}

// modest reports whether a form is a signed number of w bits in a launch of up to 1024 blocks: one that is not may be
// bits that are moved to the top, to take the highest.
func (g *graph) modest(f *linear, w uint8) bool {
	b := g.bounds[f.c]
	for _, t := range f.terms {
		v := g.vars[t.v].bounds
		b = b.Plus(interval.Bounds{Lo: min(max(v.Lo, -1023), v.Hi), Hi: min(v.Hi, 1023)}.Product(g.bounds[t.coef]))
	}
	return b.In(interval.SignedBounds(w))
}

// divide is the form of a division or its remainder.
func (g *graph) divide(x expr) *linear {
	signed := x.op == form.OpDivS || x.op == form.OpRemS
	quot := x.op == form.OpDivU || x.op == form.OpDivS
	m, ok := g.constant(x.b)
	if ok && m > 0 && m < interval.Far {
		fa := g.linear[x.a]
		f := g.read(fa, x.w, signed)
		whole, _ := g.split(fa, m)
		// A form that rests on a check gives more, but nothing if the check fails.
		worth := len(f.checks) == len(fa.checks) || len(whole.terms) > 0 || g.plausible(fa)
		if worth && (!signed || g.formBounds(f).Lo >= 0) {
			if quot {
				return g.floor(f, m, x.w)
			}
			return g.mod(f, m, x.w)
		}
	}
	kind := form.KindDivU + form.Kind(x.op-form.OpDivU)
	return g.atom(variable{kind: kind, w: x.w, args: []argument{g.arg(x.a, signed), g.arg(x.b, signed)}})
}

// and is the form of x.a & x.b. A mask of adjacent bits is a division and a remainder, which
// hold modulo 2^w whatever the sign.
func (g *graph) and(x expr, fa, fb *linear) *linear {
	if k, ok := g.constant(x.b); ok && fa.sym == 0 {
		m := form.Unsigned(x.w, k)
		if !adjacent(m) && len(fa.checks) == 0 {
			m &= g.ones(fa) // bits that x has
		}
		if f := g.bitsOf(x, m); f != nil {
			return f
		}
		low := bits.TrailingZeros64(m)
		high := 64 - bits.LeadingZeros64(m)
		if m != 0 && m == (uint64(1)<<(high-low)-1)<<low && low < 62 {
			f := fa
			most := int64(-1)
			if low > 0 {
				// x*m >> w & -2^n may be a division, like x*m >> w >> n.
				f, most = g.smallDivision(expr{op: form.OpShrU, w: x.w, a: x.a, b: g.number(32, int64(low))})
				if f == nil {
					f, most = g.floor(fa, int64(1)<<low, x.w), -1
				}
			}
			if high < int(x.w) && high-low < 62 && (most < 0 || most >= int64(1)<<(high-low)) {
				f = g.mod(f, int64(1)<<(high-low), x.w)
			}
			if r, ok := g.scaled(f, g.num(int64(1)<<low)); ok {
				return r
			}
		}
	}
	return g.atom(variable{kind: form.KindAnd, w: x.w, args: []argument{g.arg(x.a, false), g.arg(x.b, false)}})
}

// bitsOf is (a >> n) & m where m leaves low bits, all of which are bits of a: floor(a / 2^n) modulo m+1.
// It does not matter by which multiple of 2^w the form of a differs from a, so nothing is checked.
func (g *graph) bitsOf(x expr, m uint64) *linear {
	s := g.exprs[x.a]
	if s.op != form.OpShrU && s.op != form.OpShrS || m == 0 || m&(m+1) != 0 {
		return nil
	}
	n, ok := g.constant(s.b)
	f := g.linear[s.a]
	high := int64(bits.Len64(m))
	if !ok || n <= 0 || n+high > int64(x.w) || high >= 62 || f.sym != 0 {
		return nil
	}
	if h, _ := g.smallDivision(s); h != nil {
		return nil
	}
	return g.mod(g.floor(f, int64(1)<<n, x.w), int64(1)<<high, x.w)
}

// orConstant is x | k = x + k - (x & k), and x ^ k = x + k - 2*(x & k), where x & k is easy.
func (g *graph) orConstant(x expr, fa *linear) *linear {
	k, ok := g.constant(x.b)
	if !ok || fa.sym != 0 || g.ones(fa)&form.Unsigned(x.w, k) == 0 {
		return nil
	}
	times := int64(-1)
	if x.op == form.OpXor {
		times = -2
	}
	f, ok := g.sum(fa, g.uniformForm(g.num(k)), g.num(1))
	if !ok {
		return nil
	}
	if adjacent(form.Unsigned(x.w, k)) {
		if f, ok := g.add(f, g.and(expr{op: form.OpAnd, w: x.w, a: x.a, b: x.b}, fa, nil), g.num(times)); ok {
			return f
		}
		return nil
	}
	// x & k = x - (x & ^k)
	inv := form.Canonical(x.w, ^k)
	if !adjacent(form.Unsigned(x.w, inv)) {
		inv = form.Canonical(x.w, ^k&int64(g.ones(fa))) // bits that x has
	}
	if adjacent(form.Unsigned(x.w, inv)) {
		rest := g.and(expr{op: form.OpAnd, w: x.w, a: x.a, b: g.number(x.w, inv)}, fa, nil)
		if f, ok = g.sum(f, fa, g.num(times)); !ok {
			return nil
		}
		if f, ok := g.add(f, rest, g.num(-times)); ok {
			return f
		}
	}
	return nil
}

// adjacent reports whether the ones of a mask are side by side.
func adjacent(m uint64) bool {
	if m == 0 {
		return false
	}
	m >>= bits.TrailingZeros64(m)
	return m&(m+1) == 0
}

// ones is the bits of a form that may be 1.
func (g *graph) ones(f *linear) uint64 {
	b := g.formBounds(f)
	if f.sym != 0 {
		return ^uint64(0)
	}
	zeros := g.trailing(f.c)
	for _, t := range f.terms {
		zeros = min(zeros, g.trailing(t.coef))
	}
	all := ^uint64(0)
	if b.Lo >= 0 && b.Hi < interval.Far {
		all = uint64(interval.Smear(b.Hi))
	}
	if zeros >= 64 {
		return 0
	}
	all = all >> zeros << zeros
	// What lies wholly above the largest sum of the rest carries nothing into it, nor gets anything from it.
	type part struct {
		zeros int
		most  int64
	}
	parts := []part{{g.trailing(f.c), interval.Far}}
	if c, ok := g.constant(f.c); ok && c >= 0 && c < interval.Far {
		parts[0].most = c
	}
	for _, t := range f.terms {
		p := part{g.trailing(t.coef), interval.Far}
		if r := g.vars[t.v].bounds.Product(g.bounds[t.coef]); r.Lo >= 0 {
			p.most = r.Hi
		}
		parts = append(parts, p)
	}
	slices.SortStableFunc(parts, func(a, b part) int { return a.zeros - b.zeros })
	have, low, sum := uint64(0), parts[0].zeros, int64(0)
	for i, p := range parts {
		if i > 0 && (p.zeros >= 63 || sum < int64(1)<<p.zeros) {
			have |= multiplesUpTo(low, sum)
			low, sum = p.zeros, 0
		}
		if sum += p.most; sum < 0 || sum > interval.Far { // two that have no bound
			sum = interval.Far
		}
	}
	have |= multiplesUpTo(low, sum)
	return all & have
}

// multiplesUpTo is the bits of numbers up to most that are multiples of 2^low.
func multiplesUpTo(low int, most int64) uint64 {
	all := ^uint64(0)
	if most < interval.Far {
		all = uint64(interval.Smear(most))
	}
	if low >= 64 {
		return 0
	}
	return all >> low << low
}

// trailing is how many low bits of a uniform value are surely 0.
func (g *graph) trailing(e exprID) int {
	x := g.exprs[e]
	switch x.op {
	case form.OpConst:
		return bits.TrailingZeros64(uint64(x.imm))
	case form.OpMul:
		return g.trailing(x.a) + g.trailing(x.b)
	case form.OpAdd:
		return min(g.trailing(x.a), g.trailing(x.b))
	case form.OpSext, form.OpZext:
		return g.trailing(x.a)
	}
	return 0
}

// choose is the form of a ? b : c.
func (g *graph) choose(e exprID, x expr, fb, fc *linear) *linear {
	if d, ok := g.sum(fb, fc, g.num(-1)); ok && len(d.terms) == 0 && d.sym == 0 {
		if g.uniform[x.a] {
			c := g.make(form.OpSelect, 64, x.a, d.c, g.num(0))
			if f, ok := g.sum(g.withChecks(fc, fb), g.uniformForm(c), g.num(1)); ok {
				return f
			}
		}
		// b = c + d: c + d * flag
		flag := g.test(x.a)
		base := g.withChecks(fc, fb)
		if f, ok := g.add(base, flag, d.c); ok {
			return f
		}
	}
	v := variable{kind: form.KindOne, w: x.w, from: e, args: []argument{{f: g.unless(fb, x.a, false)},
		{f: g.unless(fc, x.a, true)}}}
	if g.uniform[x.a] {
		v.args[0].conds = []fact{{x.a, false}}
		v.args[1].conds = []fact{{x.a, true}}
	}
	return g.oneOf(v)
}

// oneOf is the form of one of several forms: what all of them have is taken out, so that it is not lost that it is the
// same. Checks stay where they are: a form that rests on some of its own is left alone.
func (g *graph) oneOf(v variable) *linear {
	base := linear{c: g.num(0)}
	for _, t := range v.args[0].f.terms {
		all := true
		for _, a := range v.args {
			all = all && slices.Contains(a.f.terms, t)
		}
		if all {
			base.terms = append(base.terms, t)
		}
	}
	for _, a := range v.args {
		if a.w != 0 || a.f.sym != 0 || !slices.Equal(a.f.checks, v.args[0].f.checks) {
			return g.atom(v)
		}
	}
	if len(base.terms) == 0 {
		return g.atom(v)
	}
	base.checks = v.args[0].f.checks
	rest := v
	rest.args = slices.Clone(v.args)
	for i, a := range rest.args {
		f := linear{c: a.f.c}
		for _, t := range a.f.terms {
			if !slices.Contains(base.terms, t) {
				f.terms = append(f.terms, t)
			}
		}
		rest.args[i].f = g.form(f)
	}
	if f, ok := g.sum(g.form(base), g.atom(rest), g.num(1)); ok {
		return f
	}
	return g.atom(v)
}

// unless is f, which is used only where a == b is not what yes says: if a - b = k*V + c is not 0 and V would have its
// least number there, V is at least one more.
func (g *graph) unless(f *linear, cond exprID, yes bool) *linear {
	for g.exprs[cond].op == form.OpNot {
		cond, yes = g.exprs[cond].a, !yes
	}
	x := g.exprs[cond]
	if x.op != form.OpEQ || !yes || g.uniform[cond] {
		return f
	}
	d, ok := g.difference(x.a, x.b, true)
	if !ok || len(d.terms) != 1 || len(union(d.checks, f.checks)) != len(f.checks) {
		return f
	}
	v := d.terms[0].v
	c, ok1 := g.constant(d.c)
	k, ok2 := g.constant(d.terms[0].coef)
	least := g.vars[v].bounds.Lo
	if !ok1 || !ok2 || least <= -footprint.Largest || c <= -footprint.Largest || c >= footprint.Largest ||
		interval.SatMul(k, least) != -c {
		return f
	}
	for _, t := range f.terms {
		if t.v != v {
			continue
		}
		more := g.atom(variable{kind: form.KindMaxS, w: 64, args: []argument{{f: g.varForm(v)},
			{f: g.uniformForm(g.num(least + 1))}}})
		r, ok := g.sum(f, g.varForm(v), g.binary(form.OpMul, 64, t.coef, g.num(-1)))
		if !ok {
			return f
		}
		if r, ok = g.sum(r, more, t.coef); ok {
			return r
		}
	}
	return f
}

// test is the form of a predicate, as 0 or 1.
func (g *graph) test(e exprID) *linear {
	x := g.exprs[e]
	switch x.op {
	case form.OpLTS, form.OpLES, form.OpLTU, form.OpLEU:
		if d, ok := g.difference(x.a, x.b, x.op == form.OpLTS || x.op == form.OpLES); ok {
			return g.atom(variable{kind: form.KindTest, w: 1, imm: -(form.Truth(x.op == form.OpLTS ||
				x.op == form.OpLTU) & 1), from: e, args: []argument{{f: d}}})
		}
	}
	return g.atom(variable{kind: form.KindFlag, w: 1, from: e})
}

// drift is the form of a value that starts as fa and changes by a bounded step.
func (g *graph) drift(e exprID, x expr, fa *linear) *linear {
	d := g.drifts[x.imm]
	rounds := g.atom(variable{kind: form.KindCounter, w: 64, imm: d.loop})
	if d.before {
		less, _ := g.sum(rounds, g.uniformForm(g.num(-1)), g.num(1))
		rounds = g.atom(variable{kind: form.KindMaxS, w: 64, args: []argument{{f: less}, {f: g.uniformForm(g.num(0))}}})
	}
	step := g.atom(variable{kind: form.KindBits, w: 64, imm: d.hi - d.lo, from: e})
	step, ok := g.sum(g.uniformForm(g.num(d.lo)), step, g.num(1))
	if !ok {
		return nil
	}
	sum := g.atom(variable{kind: form.KindMul, w: 64, args: []argument{{f: rounds}, {f: step}}})
	if f, ok := g.sum(fa, sum, g.num(1)); ok {
		return f
	}
	return nil
}

// merge is the form of a value that comes from different ways.
func (g *graph) merge(e exprID, x expr) *linear {
	list := g.phis[x.imm].args
	conds := g.phis[x.imm].conds
	first := g.linear[list[0]]
	v := variable{kind: form.KindOne, w: x.w, from: e}
	same := true
	for i, a := range list {
		f := g.linear[a]
		d, ok := g.sum(f, first, g.num(-1))
		same = same && ok && len(d.terms) == 0 && d.sym == 0
		if same {
			v.args = append(v.args, argument{f: d, conds: conds[i]})
		}
	}
	if !same {
		v.args = nil
		for i, a := range list {
			v.args = append(v.args, argument{f: g.linear[a], conds: conds[i]})
		}
		return g.oneOf(v)
	}
	base := first
	for _, a := range list {
		base = g.withChecks(base, g.linear[a])
	}
	if f, ok := g.sum(base, g.atom(v), g.num(1)); ok {
		return f
	}
	return nil
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
