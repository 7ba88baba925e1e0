//go:build goexperiment.simd && amd64

package lanes

import (
	"simd/archsimd"
	"unsafe"

	"holdfast/internal/softgpu/number"
)

// The 16-bit formats with vectors, eight lanes at a time, in single precision. A sum or product of two halves has its
// second rounding where that is harmless: single precision has at least 2·11+2 bits (Figueroa, "When is double rounding
// innocuous?", 1995), and what is subnormal in a half is exact in it. A fused sum may come to lie in the middle
// between two halves: then, and where something is infinite or NaN, the eight lanes go the scalar way.

type (
	words  = archsimd.Uint32x8
	floats = archsimd.Float32x8
)

// simdHalf is loopHalf.
func simdHalf(f *halfFormat, op HalfOp, pair bool, scalar number.Func) Vec {
	bf16 := f == &formatBF16
	return func(d, a, b, c unsafe.Pointer) {
		D, A, B, C := (*[4][8]uint32)(d), (*[4][8]uint32)(a), (*[4][8]uint32)(b), (*[4][8]uint32)(c)
		if bf16 {
			halfBF16(D, A, B, C, op, pair, scalar)
		} else {
			halfF16(D, A, B, C, op, pair, scalar)
		}
	}
}

// calculate is the operation in single precision.
func calculate(op HalfOp, x, y, z floats) floats {
	switch op {
	case HalfAdd:
		return x.Add(y)
	case HalfSub:
		return x.Sub(y)
	case HalfMul:
		return x.Mul(y)
	}
	return x.MulAdd(y, z)
}

// widenF16 is the number whose bits are the upper halves of the lanes, 2^112 times too small, if it is finite.
func widenF16(h, mask words) floats {
	return down(h, 3).And(mask).AsFloat32x8()
}

// down shifts ones in where the highest bit is set. (Shifts of zeros by a constant are compiled to an instruction that
// does not go well with vectors of 256 bits: these are not.)
func down(x words, n uint64) words { return x.AsInt32x8().ShiftAllRight(n).AsUint32x8() }

// narrowF16 rounds finite numbers; the results are in the low halves. Those that are subnormal as halves are made by
// an addition, after which the last bit is worth as much as theirs.
func narrowF16(r floats, most, odd, round, bias, infinity, least, sign words, magic floats) words {
	u := r.AsUint32x8()
	m := u.And(most)
	normal := down(m.Add(round).Add(down(m, 13).And(odd)), 13).Sub(bias).Min(infinity)
	small := m.AsFloat32x8().Add(magic).AsUint32x8().Sub(magic.AsUint32x8())
	h := small.Merge(normal, least.AsInt32x8().Greater(m.AsInt32x8()))
	return h.Or(down(u, 16).And(sign))
}

func halfF16(d, a, b, c *[4][8]uint32, op HalfOp, pair bool, scalar number.Func) {
	special := archsimd.BroadcastUint32x8(0x7c00)
	if pair {
		special = archsimd.BroadcastUint32x8(0x7c007c00)
	}
	mask, scale := archsimd.BroadcastUint32x8(0x8fffe000), archsimd.BroadcastUint32x8(0x77800000).AsFloat32x8()
	most, odd := archsimd.BroadcastUint32x8(most32), archsimd.BroadcastUint32x8(1)
	round, bias := archsimd.BroadcastUint32x8(0xfff), archsimd.BroadcastUint32x8(112<<10)
	infinity, least := archsimd.BroadcastUint32x8(0x7c00), archsimd.BroadcastUint32x8(0x38800000)
	magic, sign := archsimd.BroadcastUint32x8(0x3f000000).AsFloat32x8(), archsimd.BroadcastUint32x8(0x8000)
	fraction, middle := archsimd.BroadcastUint32x8(0x1fff), archsimd.BroadcastUint32x8(0x1000)
	for i := range d {
		x, y, z := archsimd.LoadUint32x8(&a[i]), archsimd.LoadUint32x8(&b[i]), archsimd.LoadUint32x8(&c[i])
		rare := infinite16(x, special).Or(infinite16(y, special))
		if op == HalfFMA {
			rare = rare.Or(infinite16(z, special))
		}
		lo := calculate(op, widenF16(x.ShiftAllLeft(16), mask).Mul(scale), widenF16(y.ShiftAllLeft(16), mask).Mul(scale),
			widenF16(z.ShiftAllLeft(16), mask).Mul(scale))
		if op == HalfFMA {
			rare = rare.Or(tied(lo, most, fraction, middle, least))
		}
		r := narrowF16(lo, most, odd, round, bias, infinity, least, sign, magic)
		if pair {
			hi := calculate(op, widenF16(x, mask).Mul(scale), widenF16(y, mask).Mul(scale), widenF16(z, mask).Mul(scale))
			if op == HalfFMA {
				rare = rare.Or(tied(hi, most, fraction, middle, least))
			}
			r = r.Or(narrowF16(hi, most, odd, round, bias, infinity, least, sign, magic).ShiftAllLeft(16))
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

// infinite16 is not zero in half-words whose exponent is all ones.
func infinite16(x, special words) words {
	s := special.AsInt16x16()
	return x.AsInt16x16().And(s).Equal(s).ToInt16x16().AsUint32x8().And(special)
}

// tied is not zero in lanes that lie in the middle between two halves, or below the least normal one and not at zero.
func tied(r floats, most, fraction, middle, least words) words {
	m := r.AsUint32x8().And(most)
	zero := m.Xor(m)
	small := least.AsInt32x8().Greater(m.AsInt32x8()).ToInt32x8().AsUint32x8()
	return m.And(fraction).Equal(middle).ToInt32x8().AsUint32x8().Or(small.AndNot(m.Equal(zero).ToInt32x8().AsUint32x8()))
}

func scalarGroup(d, a, b, c *[8]uint32, scalar number.Func) {
	for k := range d {
		d[k] = uint32(scalar(uint64(a[k]), uint64(b[k]), uint64(c[k])))
	}
}

// narrowBF16 rounds; the results are in the upper halves, with rubbish below.
func narrowBF16(r floats, odd, round, nan words) words {
	u := r.AsUint32x8()
	return nan.Merge(u.Add(round).Add(down(u, 16).And(odd)), r.IsNaN())
}

func halfBF16(d, a, b, c *[4][8]uint32, op HalfOp, pair bool, scalar number.Func) {
	high, most := archsimd.BroadcastUint32x8(0xffff0000), archsimd.BroadcastUint32x8(most32)
	odd, round := archsimd.BroadcastUint32x8(1), archsimd.BroadcastUint32x8(0x7fff)
	nan := archsimd.BroadcastUint32x8(0x7fff0000)
	fraction, middle := archsimd.BroadcastUint32x8(0xffff), archsimd.BroadcastUint32x8(0x8000)
	least := archsimd.BroadcastUint32x8(normal32)
	if op == HalfMul { // products are exact but for those that are subnormal
		middle = archsimd.BroadcastUint32x8(1 << 31)
	}
	for i := range d {
		x, y, z := archsimd.LoadUint32x8(&a[i]), archsimd.LoadUint32x8(&b[i]), archsimd.LoadUint32x8(&c[i])
		lo := calculate(op, x.ShiftAllLeft(16).AsFloat32x8(), y.ShiftAllLeft(16).AsFloat32x8(), z.ShiftAllLeft(16).AsFloat32x8())
		rare := x.Xor(x)
		if op >= HalfMul {
			rare = tied(lo, most, fraction, middle, least)
		}
		r := down(narrowBF16(lo, odd, round, nan), 16).And(fraction)
		if pair {
			hi := calculate(op, x.And(high).AsFloat32x8(), y.And(high).AsFloat32x8(), z.And(high).AsFloat32x8())
			if op >= HalfMul {
				rare = rare.Or(tied(hi, most, fraction, middle, least))
			}
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
	return func(d, a, _, _ unsafe.Pointer) { widenLanes((*[4][8]uint32)(d), (*[4][8]uint32)(a), 0x7c00, scalar) }
}

func widenLanes(d, a *[4][8]uint32, infinity uint32, scalar number.Func) {
	special := archsimd.BroadcastUint32x8(infinity)
	mask, scale := archsimd.BroadcastUint32x8(0x8fffe000), archsimd.BroadcastUint32x8(0x77800000).AsFloat32x8()
	for i := range d {
		x := archsimd.LoadUint32x8(&a[i])
		r := x.ShiftAllLeft(16)
		if infinity == 0x7c00 {
			r = widenF16(r, mask).Mul(scale).AsUint32x8()
		}
		if !infinite16(x, special).IsZero() {
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
	most, odd := archsimd.BroadcastUint32x8(most32), archsimd.BroadcastUint32x8(1)
	round, bias := archsimd.BroadcastUint32x8(0xfff), archsimd.BroadcastUint32x8(112<<10)
	infinity, least := archsimd.BroadcastUint32x8(0x7c00), archsimd.BroadcastUint32x8(0x38800000)
	magic, sign := archsimd.BroadcastUint32x8(0x3f000000).AsFloat32x8(), archsimd.BroadcastUint32x8(0x8000)
	for i := range d {
		x, y := archsimd.LoadUint32x8(&a[i]).AsFloat32x8(), archsimd.LoadUint32x8(&b[i]).AsFloat32x8()
		if x.IsNaN().Or(y.IsNaN()).ToBits() != 0 {
			archsimd.ClearAVXUpperBits()
			scalarGroup(&d[i], &a[i], &b[i], &b[i], scalar)
			continue
		}
		r := narrowF16(x, most, odd, round, bias, infinity, least, sign, magic)
		if pair {
			r = r.ShiftAllLeft(16).Or(narrowF16(y, most, odd, round, bias, infinity, least, sign, magic))
		}
		r.Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}

func narrowToBF16(d, a, b *[4][8]uint32, pair bool, scalar number.Func) {
	high, low, odd := archsimd.BroadcastUint32x8(0xffff0000), archsimd.BroadcastUint32x8(0xffff), archsimd.BroadcastUint32x8(1)
	round, nan := archsimd.BroadcastUint32x8(0x7fff), archsimd.BroadcastUint32x8(0x7fff0000)
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
