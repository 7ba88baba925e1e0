package summarise

import (
	"math/bits"
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// bitForms makes forms of masks, and knows which bits of a form may be set.
type bitForms struct{ *graph }

// and is the form of x.a & x.b. A mask of adjacent bits is a division and a remainder, which
// hold modulo 2^w whatever the sign.
func (bf bitForms) and(x expr, fa, fb *linear) *linear {
	if k, ok := bf.constant(x.b); ok && fa.sym == 0 {
		m := form.Unsigned(x.w, k)
		if !adjacent(m) && len(fa.checks) == 0 {
			m &= bf.ones(fa) // bits that x has
		}
		if f := bf.bitsOf(x, m); f != nil {
			return f
		}
		low := bits.TrailingZeros64(m)
		high := 64 - bits.LeadingZeros64(m)
		if m != 0 && m == (uint64(1)<<(high-low)-1)<<low && low < 62 {
			f := fa
			most := int64(-1)
			if low > 0 {
				// x*m >> w & -2^n may be a division, like x*m >> w >> n.
				shifted := expr{op: form.OpShrU, w: x.w, a: x.a, b: bf.number(32, int64(low))}
				f, most = quotientForms(bf).smallDivision(shifted)
				if f == nil {
					f, most = quotientForms(bf).floor(fa, int64(1)<<low, x.w), -1
				}
			}
			if high < int(x.w) && high-low < 62 && (most < 0 || most >= int64(1)<<(high-low)) {
				f = quotientForms(bf).mod(f, int64(1)<<(high-low), x.w)
			}
			if r, ok := bf.scaled(f, bf.num(int64(1)<<low)); ok {
				return r
			}
		}
	}
	return bf.atom(variable{kind: form.KindAnd, w: x.w, args: []argument{bf.arg(x.a, false), bf.arg(x.b, false)}})
}

// bitsOf is (a >> n) & m where m leaves low bits, all of which are bits of a: floor(a / 2^n) modulo m+1.
// It does not matter by which multiple of 2^w the form of a differs from a, so nothing is checked.
func (bf bitForms) bitsOf(x expr, m uint64) *linear {
	s := bf.exprs[x.a]
	if s.op != form.OpShrU && s.op != form.OpShrS || m == 0 || m&(m+1) != 0 {
		return nil
	}
	n, ok := bf.constant(s.b)
	f := bf.linear[s.a]
	high := int64(bits.Len64(m))
	if !ok || n <= 0 || n+high > int64(x.w) || high >= 62 || f.sym != 0 {
		return nil
	}
	if h, _ := quotientForms(bf).smallDivision(s); h != nil {
		return nil
	}
	return quotientForms(bf).mod(quotientForms(bf).floor(f, int64(1)<<n, x.w), int64(1)<<high, x.w)
}

// orConstant is x | k = x + k - (x & k), and x ^ k = x + k - 2*(x & k), where x & k is easy.
func (bf bitForms) orConstant(x expr, fa *linear) *linear {
	k, ok := bf.constant(x.b)
	if !ok || fa.sym != 0 || bf.ones(fa)&form.Unsigned(x.w, k) == 0 {
		return nil
	}
	times := int64(-1)
	if x.op == form.OpXor {
		times = -2
	}
	f, ok := bf.sum(fa, bf.uniformForm(bf.num(k)), bf.num(1))
	if !ok {
		return nil
	}
	if adjacent(form.Unsigned(x.w, k)) {
		if f, ok := bf.add(f, bf.and(expr{op: form.OpAnd, w: x.w, a: x.a, b: x.b}, fa, nil), bf.num(times)); ok {
			return f
		}
		return nil
	}
	// x & k = x - (x & ^k)
	inv := form.Canonical(x.w, ^k)
	if !adjacent(form.Unsigned(x.w, inv)) {
		inv = form.Canonical(x.w, ^k&int64(bf.ones(fa))) // bits that x has
	}
	if adjacent(form.Unsigned(x.w, inv)) {
		rest := bf.and(expr{op: form.OpAnd, w: x.w, a: x.a, b: bf.number(x.w, inv)}, fa, nil)
		if f, ok = bf.sum(f, fa, bf.num(times)); !ok {
			return nil
		}
		if f, ok := bf.add(f, rest, bf.num(-times)); ok {
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
func (bf bitForms) ones(f *linear) uint64 {
	b := bf.formBounds(f)
	if f.sym != 0 {
		return ^uint64(0)
	}
	zeros := bf.trailing(f.c)
	for _, t := range f.terms {
		zeros = min(zeros, bf.trailing(t.coef))
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
	parts := []part{{bf.trailing(f.c), interval.Far}}
	if c, ok := bf.constant(f.c); ok && c >= 0 && c < interval.Far {
		parts[0].most = c
	}
	for _, t := range f.terms {
		p := part{bf.trailing(t.coef), interval.Far}
		if r := bf.vars[t.v].bounds.Product(bf.bounds[t.coef]); r.Lo >= 0 {
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
func (bf bitForms) trailing(e exprID) int {
	x := bf.exprs[e]
	switch x.op {
	case form.OpConst:
		return bits.TrailingZeros64(uint64(x.imm))
	case form.OpMul:
		return bf.trailing(x.a) + bf.trailing(x.b)
	case form.OpAdd:
		return min(bf.trailing(x.a), bf.trailing(x.b))
	case form.OpSext, form.OpZext:
		return bf.trailing(x.a)
	}
	return 0
}
