package summarise

import (
	"math/big"
	"math/bits"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
	"holdfast/internal/ir"
)

// Compilers divide by constants with a multiplication and shifts (T. Granlund and P.
// Montgomery, "Division by invariant integers using multiplication", PLDI 1994). Here that is
// turned back, if the numbers prove that it is a division for every argument.

// shift makes a right shift; one of a high half of a product may be a division.
func (k *kernel) shift(op form.Op, w uint8, a, b exprID) exprID {
	if n, ok := k.constant(b); ok && op == form.OpShrU {
		if e := k.unsignedDivision(w, a, n); e != noExpr {
			return e
		}
	}
	return k.binary(op, w, a, b)
}

// unsignedDivision sees (x*m >> w) >> n, and ((x-q >> 1) + q) >> n with q = x*m >> w.
func (k *kernel) unsignedDivision(w uint8, a exprID, n int64) exprID {
	x, m, ok := k.highProduct(form.OpMulHiU, w, a)
	if ok {
		return k.divisor(form.OpDivU, w, x, new(big.Int).SetUint64(form.Unsigned(w, m)), int64(w)+n, int64(w))
	}
	if e := k.exprs[a]; e.op == form.OpAdd {
		for _, p := range [][2]exprID{{e.a, e.b}, {e.b, e.a}} {
			half, q := k.exprs[p[0]], p[1]
			x, m, ok := k.highProduct(form.OpMulHiU, w, q)
			if !ok || half.op != form.OpShrU {
				continue
			}
			one, okn := k.constant(half.b)
			if d := k.exprs[half.a]; okn && one == 1 && d.op == form.OpSub && d.a == x && d.b == q {
				big33 := new(big.Int).Add(new(big.Int).SetUint64(form.Unsigned(w, m)),
					new(big.Int).Lsh(big.NewInt(1), uint(w)))
				return k.divisor(form.OpDivU, w, x, big33, int64(w)+1+n, int64(w))
			}
		}
	}
	return noExpr
}

// halfDivision sees (x*m >> w) >> n where that is a division for all x below a power of two: compilers
// leave out what only larger or negative numbers need if they know that there are none. The form rests
// on the check that there are none.
func (g *graph) halfDivision(x expr) *linear {
	f, _ := g.smallDivision(x)
	return f
}

// smallDivision is halfDivision, and the largest quotient.
func (g *graph) smallDivision(x expr) (*linear, int64) {
	n, ok := g.constant(x.b)
	p := g.exprs[x.a]
	if !ok || n < 0 || n >= int64(x.w) || p.op != form.OpMulHiU && p.op != form.OpMulHiS || p.w != x.w {
		return nil, 0
	}
	a, k := p.a, p.b
	m, ok := g.constant(k)
	if !ok {
		if m, ok = g.constant(p.a); !ok {
			return nil, 0
		}
		a = p.b
	}
	if m <= 0 && p.op == form.OpMulHiS {
		return nil, 0
	}
	f := g.linear[a]
	if f.sym != 0 || g.formBounds(f).Lo < 0 {
		return nil, 0 // hardly a number that is known not to be negative
	}
	// The fewer bits the numbers have, the less exact the factor must be.
	for below := int64(x.w) - 1; below >= 4; below-- {
		if below < 16 && !g.formBounds(f).In(interval.UnsignedBounds(uint8(below))) {
			break // hardly what the compiler knew
		}
		if c, ok := divisorOf(new(big.Int).SetUint64(form.Unsigned(x.w, m)), int64(x.w)+n, below); ok {
			return g.floor(g.read(f, uint8(below), false), c, x.w), (1<<below - 1) / c
		}
	}
	return nil, 0
}

// highProduct sees the high half of x times a constant.
func (k *kernel) highProduct(op form.Op, w uint8, e exprID) (x exprID, m int64, ok bool) {
	p := k.exprs[e]
	if p.op != op || p.w != w {
		return noExpr, 0, false
	}
	if m, ok := k.constant(p.b); ok {
		return p.a, m, true
	}
	if m, ok := k.constant(p.a); ok {
		return p.b, m, true
	}
	return noExpr, 0, false
}

// divisor makes x / c where x*m >> s is that for all x below 2^n: m*c = 2^s + e with
// 0 < e and e*2^n <= 2^s.
func (k *kernel) divisor(op form.Op, w uint8, x exprID, m *big.Int, s, n int64) exprID {
	c, ok := divisorOf(m, s, n)
	if !ok || c >= 1<<(w-1) {
		return noExpr
	}
	return k.binary(op, w, x, k.number(w, c))
}

func divisorOf(m *big.Int, s, n int64) (int64, bool) {
	if m.Sign() <= 0 || s < 0 || s > 160 {
		return 0, false
	}
	two := new(big.Int).Lsh(big.NewInt(1), uint(s))
	c := new(big.Int).Div(two, m)
	c.Add(c, big.NewInt(1))
	e := new(big.Int).Mul(m, c)
	e.Sub(e, two)
	if e.Sign() <= 0 || e.Lsh(e, uint(n)).Cmp(two) > 0 || c.BitLen() > 61 {
		return 0, false
	}
	return c.Int64(), true
}

// total makes a + b; the sum of a shifted high product and its sign may be a division.
func (k *kernel) total(w uint8, a, b exprID) exprID {
	for _, p := range [][2]exprID{{a, b}, {b, a}} {
		if e := k.signedDivision(w, p[0], p[1]); e != noExpr {
			return e
		}
	}
	return k.binary(form.OpAdd, w, a, b)
}

// signedDivision sees (t >> n) + (t >>> w-1) where t is x*m >> w, or that plus x.
func (k *kernel) signedDivision(w uint8, a, sign exprID) exprID {
	s := k.exprs[sign]
	if s.op != form.OpShrU {
		return noExpr
	}
	top, ok := k.constant(s.b)
	if !ok || top != int64(w)-1 {
		return noExpr
	}
	t, n := a, int64(0)
	if e := k.exprs[a]; e.op == form.OpShrS {
		if n, ok = k.constant(e.b); !ok {
			return noExpr
		}
		t = e.a
	}
	if t != s.a {
		return noExpr
	}
	if x, m, ok := k.highProduct(form.OpMulHiS, w, t); ok && m > 0 {
		return k.divisor(form.OpDivS, w, x, big.NewInt(m), int64(w)+n, int64(w)-1)
	}
	if e := k.exprs[t]; e.op == form.OpAdd {
		for _, p := range [][2]exprID{{e.a, e.b}, {e.b, e.a}} {
			if x, m, ok := k.highProduct(form.OpMulHiS, w, p[0]); ok && m < 0 && x == p[1] {
				full := new(big.Int).Add(big.NewInt(m), new(big.Int).Lsh(big.NewInt(1), uint(w)))
				return k.divisor(form.OpDivS, w, x, full, int64(w)+n, int64(w)-1)
			}
		}
	}
	return noExpr
}

// insert is b with the low n bits of a from pos on, both constants.
func (k *kernel) insert(w uint8, a, b, pos, n exprID) []exprID {
	p, okp := k.constant(pos)
	l, okl := k.constant(n)
	if !okp || !okl || p < 0 || l <= 0 || l >= 64 || p+l > int64(w) {
		return nil
	}
	mask := (int64(1)<<l - 1) << p
	in := k.binary(form.OpAnd, w, k.binary(form.OpShl, w, a, pos), k.number(w, mask))
	return []exprID{k.binary(form.OpOr, w, in, k.binary(form.OpAnd, w, b, k.number(w, ^mask)))}
}

// zeroTest is a comparison of a uniform floating-point number with 0 for equality, which its bits decide: it is 0 if
// all of them but the sign are, and with .ftz if the exponent's are. A comparison that fails for numbers that are none
// (eq, ne) fails for bits above those of infinity.
func (k *kernel) zeroTest(in *ir.Inst) []exprID {
	w := in.Type.Width
	if in.Type.Kind != ir.Float || w != 32 && w != 64 {
		return nil
	}
	x, zero := in.Args[0], in.Args[1]
	if x.Kind == ir.Constant {
		x, zero = zero, x
	}
	abs, infinity := int64(1)<<(w-1)-1, int64(0x7f800000)
	if w == 64 {
		infinity = 0x7ff << 52
	}
	if x.Kind != ir.Value || x.Mod != 0 || zero.Kind != ir.Constant || zero.Mod != 0 || int64(zero.Bits)&abs != 0 {
		return nil
	}
	e := k.operand(x, uint8(w))
	if !k.uniform[e] {
		return nil
	}
	bits := k.binary(form.OpAnd, uint8(w), e, k.number(uint8(w), abs))
	is := bits
	if in.Variant&ir.Flushes != 0 && w == 32 {
		is = k.binary(form.OpAnd, uint8(w), e, k.number(uint8(w), infinity))
	}
	is = k.binary(form.OpEQ, 1, is, k.number(uint8(w), 0))
	not := k.unary(form.OpNot, 1, is)
	number := k.binary(form.OpLEU, 1, bits, k.number(uint8(w), infinity))
	var r exprID
	switch unordered := in.Variant&ir.Unordered != 0; {
	case in.Rel == ir.EQ && !unordered:
		r = is
	case in.Rel == ir.NE && unordered:
		r = not
	case in.Rel == ir.NE:
		r = k.binary(form.OpAnd, 1, not, number)
	case in.Rel == ir.EQ:
		r = k.binary(form.OpOr, 1, is, k.unary(form.OpNot, 1, number))
	default:
		return nil
	}
	return []exprID{r, k.unary(form.OpNot, 1, r)}
}

// notNegative reports whether a floating-point value is the maximum of something and a number that is not negative.
// The maximum of 0 and what is no number is 0.
func (k *kernel) notNegative(x ir.Operand) bool {
	if x.Kind != ir.Value || x.Mod != 0 || x.Part != "" {
		return false
	}
	in := k.f.Vals[x.Val].Def
	if in == nil || in.Op != ir.Max || in.Guarded() || in.Type.Kind != ir.Float || in.Type.Width != 32 &&
		in.Type.Width != 64 || in.Variant&(ir.KeepsNaN|ir.Magnitudes) != 0 {
		return false
	}
	for _, a := range in.Args {
		if a.Kind == ir.Value {
			if d := k.f.Vals[a.Val].Def; d != nil && d.Op == ir.Mov && !d.Guarded() && len(d.Args) == 1 {
				a = d.Args[0]
			}
		}
		infinity := uint64(0x7f800000)
		if in.Type.Width == 64 {
			infinity = 0x7ff << 52
		}
		if a.Kind == ir.Constant && a.Mod == 0 &&
			a.Bits <= infinity { // and no NaN: the maximum with that is the other one
			return true
		}
	}
	return false
}

// dividerRemainder is the form of x - q*d, where q is x divided by a divider that comes with the parameters: a divisor
// d, a multiplier m and a shift s with q = (mulhi(x, m) + x) >> s. It is x % d in launches whose divider is one; else
// what it was, f.
//
// Let n = 2^32 + m and e = n*d - 2^(32+s). If 0 <= e <= 2^s, then for all x below 2^31, x*n / 2^(32+s) = x/d + x*e /
// (d * 2^(32+s)), and what is added is less than 1/d: the quotients are the same. mulhi(x, m) is below x, so that the
// sum does not overflow. For d below 2^31 and s below 32, n*d is below 2^64, and e modulo 2^64 is between 0 and 2^s
// only if e is.
func (g *graph) dividerRemainder(id exprID, sub expr, f *linear) *linear {
	x, p := sub.a, g.exprs[sub.b]
	if sub.w != 32 || p.op != form.OpMul || g.uniform[x] {
		return nil
	}
	q, d := p.a, p.b
	if g.uniform[q] {
		q, d = d, q
	}
	shift := g.exprs[q]
	if !g.uniform[d] || shift.op != form.OpShrU || !g.uniform[shift.b] {
		return nil
	}
	total := g.exprs[shift.a]
	if total.op != form.OpAdd {
		return nil
	}
	high := g.exprs[total.a]
	if total.a == x {
		high = g.exprs[total.b]
	} else if total.b != x {
		return nil
	}
	if high.op != form.OpMulHiU {
		return nil
	}
	m := high.a
	if m == x {
		m = high.b
	} else if high.b != x {
		return nil
	}
	if !g.uniform[m] {
		return nil
	}
	s := g.unary(form.OpZext, 64, shift.b)
	n := g.binary(form.OpAdd, 64, g.unary(form.OpZext, 64, m), g.num(1<<32))
	e := g.binary(form.OpSub, 64, g.binary(form.OpMul, 64, n, g.unary(form.OpZext, 64, d)), g.binary(form.OpShl, 64,
		g.num(1), g.binary(form.OpAdd, 64, s, g.num(32))))
	is := g.binary(form.OpLEU, 1, e, g.binary(form.OpShl, 64, g.num(1), s))
	is = g.binary(form.OpAnd, 1, is, g.binary(form.OpLTU, 1, d, g.number(32, -1<<31)))
	is = g.binary(form.OpAnd, 1, is, g.binary(form.OpLTU, 1, s, g.num(32)))
	fx := g.read(g.linear[x], 31, false)
	r := g.withChecks(g.atom(variable{kind: form.KindRemU, w: 32, args: []argument{{f: fx, w: 32},
		{f: g.uniformForm(g.unary(form.OpZext, 64, d)), w: 32}}}), fx)
	return g.atom(variable{kind: form.KindOne, w: 32, from: id, args: []argument{{f: r, conds: []fact{{is, false}}},
		{f: f, conds: []fact{{is, true}}}}})
}

// compareWith is a comparison together with a second predicate.
func (k *kernel) compareWith(in *ir.Inst) []exprID {
	e := k.comparison(in.Rel, in.Type, in.Args[0], in.Args[1])
	if e == noExpr || !k.isPred(in.Args[2]) {
		return nil
	}
	op := map[ir.Logic]form.Op{ir.BothHold: form.OpAnd, ir.OneHolds: form.OpOr, ir.OnlyOneHolds: form.OpXor}[in.Logic]
	c := k.operand(in.Args[2], 1)
	return []exprID{k.binary(op, 1, e, c), k.binary(op, 1, k.unary(form.OpNot, 1, e), c)}
}

// field is n bits from pos on; the unsigned one, of constants.
func (k *kernel) field(w uint8, signed bool, a, pos, n exprID) []exprID {
	p, okp := k.constant(pos)
	l, okl := k.constant(n)
	if !okp || !okl || p < 0 || l <= 0 || p+l > int64(w) {
		return nil
	}
	if signed {
		up := k.binary(form.OpShl, w, a, k.number(32, int64(w)-p-l))
		return []exprID{k.binary(form.OpShrS, w, up, k.number(32, int64(w)-l))}
	}
	e := k.shift(form.OpShrU, w, a, k.number(32, p))
	if p+l < int64(w) {
		e = k.binary(form.OpAnd, w, e, k.number(w, int64(uint64(1)<<l-1)))
	}
	return []exprID{e}
}

// masked makes a & b. Where b leaves adjacent bits of a high product, which shifted down would be a
// division, that is what it is made of: x*m >> w & -2^n is x/c * 2^n.
func (k *kernel) masked(w uint8, a, b exprID) exprID {
	for _, p := range [][2]exprID{{a, b}, {b, a}} {
		c, ok := k.constant(p[1])
		m := form.Unsigned(w, c)
		if !ok || k.exprs[p[0]].op != form.OpMulHiU || !adjacent(m) || m&1 != 0 {
			continue
		}
		low := int64(bits.TrailingZeros64(m))
		e := k.unsignedDivision(w, p[0], low)
		if e == noExpr {
			continue
		}
		e = k.binary(form.OpAnd, w, e, k.number(w, int64(m>>low)))
		return k.binary(form.OpShl, w, e, k.number(32, low))
	}
	return k.binary(form.OpAnd, w, a, b)
}
