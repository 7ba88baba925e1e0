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

// divisions turns multiplications and shifts back into divisions.
type divisions struct{ *graph }

// shift makes a right shift; one of a high half of a product may be a division.
func (dv divisions) shift(op form.Op, w uint8, a, b exprID) exprID {
	if n, ok := dv.constant(b); ok && op == form.OpShrU {
		if e := dv.unsignedDivision(w, a, n); e != noExpr {
			return e
		}
	}
	return dv.binary(op, w, a, b)
}

// unsignedDivision sees (x*m >> w) >> n, and ((x-q >> 1) + q) >> n with q = x*m >> w.
func (dv divisions) unsignedDivision(w uint8, a exprID, n int64) exprID {
	x, m, ok := dv.highProduct(form.OpMulHiU, w, a)
	if ok {
		return dv.divisor(form.OpDivU, w, x, new(big.Int).SetUint64(form.Unsigned(w, m)), int64(w)+n, int64(w))
	}
	if e := dv.exprs[a]; e.op == form.OpAdd {
		for _, p := range [][2]exprID{{e.a, e.b}, {e.b, e.a}} {
			half, q := dv.exprs[p[0]], p[1]
			x, m, ok := dv.highProduct(form.OpMulHiU, w, q)
			if !ok || half.op != form.OpShrU {
				continue
			}
			one, okn := dv.constant(half.b)
			if d := dv.exprs[half.a]; okn && one == 1 && d.op == form.OpSub && d.a == x && d.b == q {
				big33 := new(big.Int).Add(new(big.Int).SetUint64(form.Unsigned(w, m)),
					new(big.Int).Lsh(big.NewInt(1), uint(w)))
				return dv.divisor(form.OpDivU, w, x, big33, int64(w)+1+n, int64(w))
			}
		}
	}
	return noExpr
}

// halfDivision sees (x*m >> w) >> n where that is a division for all x below a power of two: compilers
// leave out what only larger or negative numbers need if they know that there are none. The form rests
// on the check that there are none.
func (qf quotientForms) halfDivision(x expr) *linear {
	f, _ := qf.smallDivision(x)
	return f
}

// smallDivision is halfDivision, and the largest quotient.
func (qf quotientForms) smallDivision(x expr) (*linear, int64) {
	n, ok := qf.constant(x.b)
	p := qf.exprs[x.a]
	if !ok || n < 0 || n >= int64(x.w) || p.op != form.OpMulHiU && p.op != form.OpMulHiS || p.w != x.w {
		return nil, 0
	}
	a, k := p.a, p.b
	m, ok := qf.constant(k)
	if !ok {
		if m, ok = qf.constant(p.a); !ok {
			return nil, 0
		}
		a = p.b
	}
	if m <= 0 && p.op == form.OpMulHiS {
		return nil, 0
	}
	f := qf.linear[a]
	if f.sym != 0 || qf.formBounds(f).Lo < 0 {
		return nil, 0 // hardly a number that is known not to be negative
	}
	// The fewer bits the numbers have, the less exact the factor must be.
	for below := int64(x.w) - 1; below >= 4; below-- {
		if below < 16 && !qf.formBounds(f).In(interval.UnsignedBounds(uint8(below))) {
			break // hardly what the compiler knew
		}
		if c, ok := divisorOf(new(big.Int).SetUint64(form.Unsigned(x.w, m)), int64(x.w)+n, below); ok {
			return qf.floor(qf.read(f, uint8(below), false), c, x.w), (1<<below - 1) / c
		}
	}
	return nil, 0
}

// highProduct sees the high half of x times a constant.
func (dv divisions) highProduct(op form.Op, w uint8, e exprID) (x exprID, m int64, ok bool) {
	p := dv.exprs[e]
	if p.op != op || p.w != w {
		return noExpr, 0, false
	}
	if m, ok := dv.constant(p.b); ok {
		return p.a, m, true
	}
	if m, ok := dv.constant(p.a); ok {
		return p.b, m, true
	}
	return noExpr, 0, false
}

// divisor makes x / c where x*m >> s is that for all x below 2^n: m*c = 2^s + e with
// 0 < e and e*2^n <= 2^s.
func (dv divisions) divisor(op form.Op, w uint8, x exprID, m *big.Int, s, n int64) exprID {
	c, ok := divisorOf(m, s, n)
	if !ok || c >= 1<<(w-1) {
		return noExpr
	}
	return dv.binary(op, w, x, dv.number(w, c))
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
func (dv divisions) total(w uint8, a, b exprID) exprID {
	for _, p := range [][2]exprID{{a, b}, {b, a}} {
		if e := dv.signedDivision(w, p[0], p[1]); e != noExpr {
			return e
		}
	}
	return dv.binary(form.OpAdd, w, a, b)
}

// signedDivision sees (t >> n) + (t >>> w-1) where t is x*m >> w, or that plus x.
func (dv divisions) signedDivision(w uint8, a, sign exprID) exprID {
	s := dv.exprs[sign]
	if s.op != form.OpShrU {
		return noExpr
	}
	top, ok := dv.constant(s.b)
	if !ok || top != int64(w)-1 {
		return noExpr
	}
	t, n := a, int64(0)
	if e := dv.exprs[a]; e.op == form.OpShrS {
		if n, ok = dv.constant(e.b); !ok {
			return noExpr
		}
		t = e.a
	}
	if t != s.a {
		return noExpr
	}
	if x, m, ok := dv.highProduct(form.OpMulHiS, w, t); ok && m > 0 {
		return dv.divisor(form.OpDivS, w, x, big.NewInt(m), int64(w)+n, int64(w)-1)
	}
	if e := dv.exprs[t]; e.op == form.OpAdd {
		for _, p := range [][2]exprID{{e.a, e.b}, {e.b, e.a}} {
			if x, m, ok := dv.highProduct(form.OpMulHiS, w, p[0]); ok && m < 0 && x == p[1] {
				full := new(big.Int).Add(big.NewInt(m), new(big.Int).Lsh(big.NewInt(1), uint(w)))
				return dv.divisor(form.OpDivS, w, x, full, int64(w)+n, int64(w)-1)
			}
		}
	}
	return noExpr
}

// insert is b with the low n bits of a from pos on, both constants.
func (dv divisions) insert(w uint8, a, b, pos, n exprID) []exprID {
	p, okp := dv.constant(pos)
	l, okl := dv.constant(n)
	if !okp || !okl || p < 0 || l <= 0 || l >= 64 || p+l > int64(w) {
		return nil
	}
	mask := (int64(1)<<l - 1) << p
	in := dv.binary(form.OpAnd, w, dv.binary(form.OpShl, w, a, pos), dv.number(w, mask))
	return []exprID{dv.binary(form.OpOr, w, in, dv.binary(form.OpAnd, w, b, dv.number(w, ^mask)))}
}

// zeroTest is a comparison of a uniform floating-point number with 0 for equality, which its bits decide: it is 0 if
// all of them but the sign are, and with .ftz if the exponent's are. A comparison that fails for numbers that are none
// (eq, ne) fails for bits above those of infinity.
func (me meanings) zeroTest(in *ir.Inst) []exprID {
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
	e := me.operand(x, uint8(w))
	if !me.uniform[e] {
		return nil
	}
	bits := me.binary(form.OpAnd, uint8(w), e, me.number(uint8(w), abs))
	is := bits
	if in.Variant&ir.Flushes != 0 && w == 32 {
		is = me.binary(form.OpAnd, uint8(w), e, me.number(uint8(w), infinity))
	}
	is = me.binary(form.OpEQ, 1, is, me.number(uint8(w), 0))
	not := me.unary(form.OpNot, 1, is)
	number := me.binary(form.OpLEU, 1, bits, me.number(uint8(w), infinity))
	var r exprID
	switch unordered := in.Variant&ir.Unordered != 0; {
	case in.Rel == ir.EQ && !unordered:
		r = is
	case in.Rel == ir.NE && unordered:
		r = not
	case in.Rel == ir.NE:
		r = me.binary(form.OpAnd, 1, not, number)
	case in.Rel == ir.EQ:
		r = me.binary(form.OpOr, 1, is, me.unary(form.OpNot, 1, number))
	default:
		return nil
	}
	return []exprID{r, me.unary(form.OpNot, 1, r)}
}

// notNegative reports whether a floating-point value is the maximum of something and a number that is not negative.
// The maximum of 0 and what is no number is 0.
func (me meanings) notNegative(x ir.Operand) bool {
	if x.Kind != ir.Value || x.Mod != 0 || x.Part != "" {
		return false
	}
	in := me.f.Vals[x.Val].Def
	if in == nil || in.Op != ir.Max || in.Guarded() || in.Type.Kind != ir.Float || in.Type.Width != 32 &&
		in.Type.Width != 64 || in.Variant&(ir.KeepsNaN|ir.Magnitudes) != 0 {
		return false
	}
	for _, a := range in.Args {
		if a.Kind == ir.Value {
			if d := me.f.Vals[a.Val].Def; d != nil && d.Op == ir.Mov && !d.Guarded() && len(d.Args) == 1 {
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
func (qf quotientForms) dividerRemainder(id exprID, sub expr, f *linear) *linear {
	x, p := sub.a, qf.exprs[sub.b]
	if sub.w != 32 || p.op != form.OpMul || qf.uniform[x] {
		return nil
	}
	q, d := p.a, p.b
	if qf.uniform[q] {
		q, d = d, q
	}
	shift := qf.exprs[q]
	if !qf.uniform[d] || shift.op != form.OpShrU || !qf.uniform[shift.b] {
		return nil
	}
	total := qf.exprs[shift.a]
	if total.op != form.OpAdd {
		return nil
	}
	high := qf.exprs[total.a]
	if total.a == x {
		high = qf.exprs[total.b]
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
	if !qf.uniform[m] {
		return nil
	}
	s := qf.unary(form.OpZext, 64, shift.b)
	n := qf.binary(form.OpAdd, 64, qf.unary(form.OpZext, 64, m), qf.num(1<<32))
	e := qf.binary(form.OpSub, 64, qf.binary(form.OpMul, 64, n, qf.unary(form.OpZext, 64, d)), qf.binary(form.OpShl, 64,
		qf.num(1), qf.binary(form.OpAdd, 64, s, qf.num(32))))
	is := qf.binary(form.OpLEU, 1, e, qf.binary(form.OpShl, 64, qf.num(1), s))
	is = qf.binary(form.OpAnd, 1, is, qf.binary(form.OpLTU, 1, d, qf.number(32, -1<<31)))
	is = qf.binary(form.OpAnd, 1, is, qf.binary(form.OpLTU, 1, s, qf.num(32)))
	fx := qf.read(qf.linear[x], 31, false)
	r := qf.withChecks(qf.atom(variable{kind: form.KindRemU, w: 32, args: []argument{{f: fx, w: 32},
		{f: qf.uniformForm(qf.unary(form.OpZext, 64, d)), w: 32}}}), fx)
	return qf.atom(variable{kind: form.KindOne, w: 32, from: id, args: []argument{{f: r, conds: []fact{{is, false}}},
		{f: f, conds: []fact{{is, true}}}}})
}

// compareWith is a comparison together with a second predicate.
func (me meanings) compareWith(in *ir.Inst) []exprID {
	e := me.comparison(in.Rel, in.Type, in.Args[0], in.Args[1])
	if e == noExpr || !me.isPred(in.Args[2]) {
		return nil
	}
	op := map[ir.Logic]form.Op{ir.BothHold: form.OpAnd, ir.OneHolds: form.OpOr, ir.OnlyOneHolds: form.OpXor}[in.Logic]
	c := me.operand(in.Args[2], 1)
	return []exprID{me.binary(op, 1, e, c), me.binary(op, 1, me.unary(form.OpNot, 1, e), c)}
}

// field is n bits from pos on; the unsigned one, of constants.
func (dv divisions) field(w uint8, signed bool, a, pos, n exprID) []exprID {
	p, okp := dv.constant(pos)
	l, okl := dv.constant(n)
	if !okp || !okl || p < 0 || l <= 0 || p+l > int64(w) {
		return nil
	}
	if signed {
		up := dv.binary(form.OpShl, w, a, dv.number(32, int64(w)-p-l))
		return []exprID{dv.binary(form.OpShrS, w, up, dv.number(32, int64(w)-l))}
	}
	e := dv.shift(form.OpShrU, w, a, dv.number(32, p))
	if p+l < int64(w) {
		e = dv.binary(form.OpAnd, w, e, dv.number(w, int64(uint64(1)<<l-1)))
	}
	return []exprID{e}
}

// masked makes a & b. Where b leaves adjacent bits of a high product, which shifted down would be a
// division, that is what it is made of: x*m >> w & -2^n is x/c * 2^n.
func (dv divisions) masked(w uint8, a, b exprID) exprID {
	for _, p := range [][2]exprID{{a, b}, {b, a}} {
		c, ok := dv.constant(p[1])
		m := form.Unsigned(w, c)
		if !ok || dv.exprs[p[0]].op != form.OpMulHiU || !adjacent(m) || m&1 != 0 {
			continue
		}
		low := int64(bits.TrailingZeros64(m))
		e := dv.unsignedDivision(w, p[0], low)
		if e == noExpr {
			continue
		}
		e = dv.binary(form.OpAnd, w, e, dv.number(w, int64(m>>low)))
		return dv.binary(form.OpShl, w, e, dv.number(32, low))
	}
	return dv.binary(form.OpAnd, w, a, b)
}
