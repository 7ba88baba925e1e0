//go:build goexperiment.simd && amd64

package lanes

import (
	"simd/archsimd"
	"unsafe"

	"holdfast/internal/softgpu/number"
)

// The 16-bit formats with vectors, eight lanes at a time, in single precision. A bf16 is the upper half of such a
// number; the bits of an f16, moved to their places, are those of the same number 2^-112 times, subnormal ones
// included, and so computed with and rounded. A sum or product has its second rounding where that is harmless: single
// precision has at least 2·11+2 bits (Figueroa, "When is double rounding innocuous?", 1995), and sums that are
// subnormal are exact. A fused sum may come to lie in the middle between two halves, and it and a product may be
// subnormal and rounded: then, and where an f16 is infinite or NaN, the eight lanes go the scalar way.

type (
	words  = archsimd.Uint32x8
	floats = archsimd.Float32x8
)

// all has x in each lane.
func all(x uint32) words { return archsimd.BroadcastUint32x8(x) }

// The constants of f16.
const (
	f16Mask     = 0x8fffe000 // sign, exponent and fraction, where single precision has them
	f16Scale    = 0x77800000 // 2^112
	f16Infinity = 0x7c00
	f16Below    = 0x1fff // the bits that rounding takes away
	f16Middle   = 0x1000
)

// simdHalf is loopHalf.
func simdHalf(f *halfFormat, op HalfOp, pair bool, scalar number.Func) Vec {
	bf16 := f == &formatBF16
	return func(d, a, b, c unsafe.Pointer) {
		D, A, B, C := (*[4][8]uint32)(d), (*[4][8]uint32)(a), (*[4][8]uint32)(b), (*[4][8]uint32)(c)
		switch {
		case bf16 && op == HalfFMA:
			fmaBF16(D, A, B, C, pair, scalar)
		case bf16:
			twoBF16(D, A, B, op, pair, scalar)
		case op == HalfFMA:
			fmaF16(D, A, B, C, pair, scalar)
		default:
			twoF16(D, A, B, op, pair, scalar)
		}
	}
}

// calculate is an operation of two operands in single precision.
func calculate(op HalfOp, x, y floats) floats {
	switch op {
	case HalfAdd:
		return x.Add(y)
	case HalfSub:
		return x.Sub(y)
	}
	return x.Mul(y)
}

// down shifts ones in where the highest bit is set. (Shifts of zeros by a constant are compiled to an instruction that
// does not go well with vectors of 256 bits: these are not.)
func down(x words, n uint64) words { return x.AsInt32x8().ShiftAllRight(n).AsUint32x8() }

// lowF16 and highF16 are the numbers in the halves of the lanes, 2^-112 times, if they are finite.
func lowF16(h, mask words) floats  { return down(h.ShiftAllLeft(16), 3).And(mask).AsFloat32x8() }
func highF16(h, mask words) floats { return down(h, 3).And(mask).AsFloat32x8() }

// narrowF16 rounds the magnitude m of such a number; the result is in the low half.
func narrowF16(m, odd, round, infinity words) words {
	return down(m.Add(round).Add(down(m, 13).And(odd)), 13).Min(infinity)
}

// pairF16 rounds two such numbers, the upper one of which lies in the upper half.
func pairF16(lo, hi, most, odd, round, infinity, sign words) words {
	upper := narrowF16(hi.And(most), odd, round, infinity).ShiftAllLeft(16).Or(hi.AndNot(most))
	return oneF16(lo, most, odd, round, infinity, sign).Or(upper)
}

// oneF16 is the lower one.
func oneF16(lo, most, odd, round, infinity, sign words) words {
	return narrowF16(lo.And(most), odd, round, infinity).Or(down(lo, 16).And(sign))
}

// narrowBF16 rounds; the results are in the upper halves, with rubbish below.
func narrowBF16(r floats, odd, round, nan words) words {
	u := r.AsUint32x8()
	return nan.Merge(u.Add(round).Add(down(u, 16).And(odd)), r.IsNaN())
}

// infinite16 is not zero in half-words whose exponent is all ones, nor in those where special is zero.
func infinite16(x, special words) archsimd.Int16x16 {
	s := special.AsInt16x16()
	return x.AsInt16x16().And(s).Equal(s).ToInt16x16()
}

// subnormals is not zero in lanes whose magnitude m is below least and not zero.
func subnormals(m, least words) words {
	small := least.AsInt32x8().Greater(m.AsInt32x8()).ToInt32x8().AsUint32x8()
	return small.AndNot(m.Equal(m.Xor(m)).ToInt32x8().AsUint32x8())
}

// tied is not zero in lanes in the middle between two halves, too.
func tied(r floats, most, below, middle, least words) words {
	m := r.AsUint32x8().And(most)
	return m.And(below).Equal(middle).ToInt32x8().AsUint32x8().Or(subnormals(m, least))
}

func scalarGroup(d, a, b, c *[8]uint32, scalar number.Func) {
	for k := range d {
		d[k] = uint32(scalar(uint64(a[k]), uint64(b[k]), uint64(c[k])))
	}
}

// specialF16 has the exponents of the halves that count.
func specialF16(pair bool) words {
	if pair {
		return all(f16Infinity<<16 | f16Infinity)
	}
	return all(f16Infinity)
}

func twoF16(d, a, b *[4][8]uint32, op HalfOp, pair bool, scalar number.Func) {
	special, mask := specialF16(pair), all(f16Mask)
	scale := all(f16Scale).AsFloat32x8()
	most, odd, round := all(most32), all(1), all(f16Below>>1)
	infinity, sign := all(f16Infinity), all(0x8000)
	least := all(normal32)
	for i := range d {
		x, y := archsimd.LoadUint32x8(&a[i]), archsimd.LoadUint32x8(&b[i])
		rare := infinite16(x, special).Or(infinite16(y, special)).AsUint32x8().And(special)
		p, q := lowF16(x, mask), lowF16(y, mask)
		if op == HalfMul {
			q = q.Mul(scale)
		}
		lo := calculate(op, p, q)
		if op == HalfMul {
			rare = rare.Or(subnormals(lo.AsUint32x8().And(most), least))
		}
		var r words
		if !pair {
			r = oneF16(lo.AsUint32x8(), most, odd, round, infinity, sign)
		} else {
			p, q = highF16(x, mask), highF16(y, mask)
			if op == HalfMul {
				q = q.Mul(scale)
			}
			hi := calculate(op, p, q)
			if op == HalfMul {
				rare = rare.Or(subnormals(hi.AsUint32x8().And(most), least))
			}
			r = pairF16(lo.AsUint32x8(), hi.AsUint32x8(), most, odd, round, infinity, sign)
		}
		if !rare.IsZero() {
			archsimd.ClearAVXUpperBits()
			scalarGroup(&d[i], &a[i], &b[i], &b[i], scalar)
			continue
		}
		r.Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}

func fmaF16(d, a, b, c *[4][8]uint32, pair bool, scalar number.Func) {
	special, mask := specialF16(pair), all(f16Mask)
	scale := all(f16Scale).AsFloat32x8()
	most, odd, round := all(most32), all(1), all(f16Below>>1)
	infinity, sign := all(f16Infinity), all(0x8000)
	below, middle := all(f16Below), all(f16Middle)
	least := all(normal32)
	for i := range d {
		x, y, z := archsimd.LoadUint32x8(&a[i]), archsimd.LoadUint32x8(&b[i]), archsimd.LoadUint32x8(&c[i])
		rare := infinite16(x, special).Or(infinite16(y, special)).Or(infinite16(z, special)).AsUint32x8().And(special)
		lo := lowF16(x, mask).MulAdd(lowF16(y, mask).Mul(scale), lowF16(z, mask))
		rare = rare.Or(tied(lo, most, below, middle, least))
		var r words
		if !pair {
			r = oneF16(lo.AsUint32x8(), most, odd, round, infinity, sign)
		} else {
			hi := highF16(x, mask).MulAdd(highF16(y, mask).Mul(scale), highF16(z, mask))
			rare = rare.Or(tied(hi, most, below, middle, least))
			r = pairF16(lo.AsUint32x8(), hi.AsUint32x8(), most, odd, round, infinity, sign)
		}
		if !rare.IsZero() {
			archsimd.ClearAVXUpperBits()
			scalarGroup(&d[i], &a[i], &b[i], &c[i], scalar)
			continue
		}
		r.Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}

func twoBF16(d, a, b *[4][8]uint32, op HalfOp, pair bool, scalar number.Func) {
	high, low := all(0xffff0000), all(0xffff)
	odd, round, nan := all(1), all(0x7fff), all(number.NaN16<<16)
	most, least := all(most32), all(normal32)
	for i := range d {
		x, y := archsimd.LoadUint32x8(&a[i]), archsimd.LoadUint32x8(&b[i])
		rare := x.Xor(x)
		lo := calculate(op, x.ShiftAllLeft(16).AsFloat32x8(), y.ShiftAllLeft(16).AsFloat32x8())
		if op == HalfMul {
			rare = subnormals(lo.AsUint32x8().And(most), least)
		}
		r := down(narrowBF16(lo, odd, round, nan), 16).And(low)
		if pair {
			hi := calculate(op, x.And(high).AsFloat32x8(), y.And(high).AsFloat32x8())
			if op == HalfMul {
				rare = rare.Or(subnormals(hi.AsUint32x8().And(most), least))
			}
			r = r.Or(narrowBF16(hi, odd, round, nan).And(high))
		}
		if !rare.IsZero() {
			archsimd.ClearAVXUpperBits()
			scalarGroup(&d[i], &a[i], &b[i], &b[i], scalar)
			continue
		}
		r.Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}

func fmaBF16(d, a, b, c *[4][8]uint32, pair bool, scalar number.Func) {
	high, low, middle := all(0xffff0000), all(0xffff), all(0x8000)
	odd, round, nan := all(1), all(0x7fff), all(number.NaN16<<16)
	most, least := all(most32), all(normal32)
	for i := range d {
		x, y, z := archsimd.LoadUint32x8(&a[i]), archsimd.LoadUint32x8(&b[i]), archsimd.LoadUint32x8(&c[i])
		lo := x.ShiftAllLeft(16).AsFloat32x8().MulAdd(y.ShiftAllLeft(16).AsFloat32x8(),
			z.ShiftAllLeft(16).AsFloat32x8())
		rare := tied(lo, most, low, middle, least)
		r := down(narrowBF16(lo, odd, round, nan), 16).And(low)
		if pair {
			hi := x.And(high).AsFloat32x8().MulAdd(y.And(high).AsFloat32x8(), z.And(high).AsFloat32x8())
			rare = rare.Or(tied(hi, most, low, middle, least))
			r = r.Or(narrowBF16(hi, odd, round, nan).And(high))
		}
		if !rare.IsZero() {
			archsimd.ClearAVXUpperBits()
			scalarGroup(&d[i], &a[i], &b[i], &c[i], scalar)
			continue
		}
		r.Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}

// simdWiden is loopWiden.
func simdWiden(f *halfFormat, scalar number.Func) Vec {
	if f == &formatBF16 {
		return func(d, a, _, _ unsafe.Pointer) { widenLanes((*[4][8]uint32)(d), (*[4][8]uint32)(a), 0x7f80, scalar) }
	}
	return func(d, a, _, _ unsafe.Pointer) {
		widenLanes((*[4][8]uint32)(d), (*[4][8]uint32)(a), f16Infinity, scalar)
	}
}

func widenLanes(d, a *[4][8]uint32, infinity uint32, scalar number.Func) {
	special := all(infinity)
	mask, scale := all(f16Mask), all(f16Scale).AsFloat32x8()
	for i := range d {
		x := archsimd.LoadUint32x8(&a[i])
		r := x.ShiftAllLeft(16)
		if infinity == f16Infinity {
			r = lowF16(x, mask).Mul(scale).AsUint32x8()
		}
		if !infinite16(x, special).AsUint32x8().And(special).IsZero() {
			archsimd.ClearAVXUpperBits()
			scalarGroup(&d[i], &a[i], &a[i], &a[i], scalar)
			continue
		}
		r.Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}

// simdNarrow is loopNarrow.
func simdNarrow(f *halfFormat, pair bool, scalar number.Func) Vec {
	narrow := narrowToF16
	if f == &formatBF16 {
		narrow = narrowToBF16
	}
	return func(d, a, b, _ unsafe.Pointer) {
		if !pair {
			b = a
		}
		narrow((*[4][8]uint32)(d), (*[4][8]uint32)(a), (*[4][8]uint32)(b), pair, scalar)
	}
}

func narrowToF16(d, a, b *[4][8]uint32, pair bool, scalar number.Func) {
	most, odd := all(most32), all(1)
	round, bias := all(f16Below>>1), all(112<<10)
	infinity, least := all(f16Infinity), all(0x38800000)
	magic, sign := all(0x3f000000).AsFloat32x8(), all(0x8000)
	for i := range d {
		x, y := archsimd.LoadUint32x8(&a[i]).AsFloat32x8(), archsimd.LoadUint32x8(&b[i]).AsFloat32x8()
		if x.IsNaN().Or(y.IsNaN()).ToBits() != 0 {
			archsimd.ClearAVXUpperBits()
			scalarGroup(&d[i], &a[i], &b[i], &b[i], scalar)
			continue
		}
		r := nearestF16(x, most, odd, round, bias, infinity, least, sign, magic)
		if pair {
			r = r.ShiftAllLeft(16).Or(nearestF16(y, most, odd, round, bias, infinity, least, sign, magic))
		}
		r.Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}

// nearestF16 rounds numbers of single precision. Those that are subnormal as halves are made by an addition, after
// which the last bit is worth as much as theirs.
func nearestF16(r floats, most, odd, round, bias, infinity, least, sign words, magic floats) words {
	u := r.AsUint32x8()
	m := u.And(most)
	normal := down(m.Add(round).Add(down(m, 13).And(odd)), 13).Sub(bias).Min(infinity)
	small := m.AsFloat32x8().Add(magic).AsUint32x8().Sub(magic.AsUint32x8())
	return small.Merge(normal, least.AsInt32x8().Greater(m.AsInt32x8())).Or(down(u, 16).And(sign))
}

func narrowToBF16(d, a, b *[4][8]uint32, pair bool, scalar number.Func) {
	high, low, odd := all(0xffff0000), all(0xffff), all(1)
	round, nan := all(0x7fff), all(0x7fff0000)
	for i := range d {
		x, y := archsimd.LoadUint32x8(&a[i]).AsFloat32x8(), archsimd.LoadUint32x8(&b[i]).AsFloat32x8()
		if x.IsNaN().Or(y.IsNaN()).ToBits() != 0 {
			archsimd.ClearAVXUpperBits()
			scalarGroup(&d[i], &a[i], &b[i], &b[i], scalar)
			continue
		}
		r := narrowBF16(x, odd, round, nan)
		if pair {
			r = r.And(high).Or(down(narrowBF16(y, odd, round, nan), 16).And(low))
		} else {
			r = down(r, 16).And(low)
		}
		r.Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}
