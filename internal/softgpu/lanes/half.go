package lanes

import (
	"math"
	"unsafe"

	"holdfast/internal/softgpu/number"
)

// The 16-bit formats: conversions from and to f32, and add, sub, mul and fma, one number or two in a lane, rounded to
// nearest even. Numbers in the normal range are handled here, all others (NaN, infinities, subnormals) by the scalar
// form, which is given.
//
// Arithmetic is float64 and then rounded. Products are exact; a sum that float64 has to round is never next to the
// middle between two numbers of 11 bits or fewer, but for a bf16 fma, which rounds to odd first.

// A HalfOp is an operation of Half.
type HalfOp uint8

// The operations.
const (
	HalfAdd HalfOp = iota
	HalfSub
	HalfMul
	HalfFMA
	halfFMAOdd // the sum rounded to odd
)

// A halfFormat is f16 or bf16.
type halfFormat struct {
	shift    uint   // of the fraction, to that of float64
	bias     uint64 // what the exponent differs from float64's
	min, max uint32 // magnitudes of the smallest normal number and of infinity
	lo, hi   uint64 // float64 bits of magnitudes that round to normal numbers: lo ≤ x < hi
}

var (
	formatF16 = halfFormat{shift: 42, bias: (1023 - 15) << 52, min: 0x0400, max: 0x7c00,
		lo: 0x3f10000000000000, hi: 0x40effe0000000000}
	formatBF16 = halfFormat{shift: 45, bias: (1023 - 127) << 52, min: 0x0080, max: 0x7f80,
		lo: 0x3810000000000000, hi: 0x47eff00000000000}
)

// value is the number h; ok is false for what is not normal and not zero.
func (f *halfFormat) value(h uint32) (x float64, ok bool) {
	em := h & 0x7fff
	sign := uint64(h&0x8000) << 48
	if em-f.min < f.max-f.min {
		return math.Float64frombits(sign | (uint64(em)<<f.shift + f.bias)), true
	}
	return math.Float64frombits(sign), em == 0
}

// round gives the nearest number; ok is false for what does not become a normal one or is not zero.
func (f *halfFormat) round(x float64) (h uint32, ok bool) {
	u := math.Float64bits(x)
	sign := uint32(u>>48) & 0x8000
	u &^= 1 << 63
	if u-f.lo < f.hi-f.lo {
		u += 1<<(f.shift-1) - 1 + u>>f.shift&1
		return sign | uint32((u-f.bias)>>f.shift), true
	}
	return sign, u == 0
}

func formatOf(bf16 bool) *halfFormat {
	if bf16 {
		return &formatBF16
	}
	return &formatF16
}

// Half is an operation on f16 or bf16, on both halves of each lane or on the low one.
func Half(op HalfOp, bf16, pair bool, scalar number.Func) Vec {
	f := formatOf(bf16)
	if vectors() {
		return simdHalf(f, op, pair, scalar)
	}
	return loopHalf(f, op, pair, scalar)
}

// Widen is cvt.f32 of f16 or bf16.
func Widen(bf16 bool, scalar number.Func) Vec {
	f := formatOf(bf16)
	if vectors() {
		return simdWiden(f, scalar)
	}
	return loopWiden(f, scalar)
}

// Narrow is cvt.rn.f32 to f16 or bf16; of a pair, the first operand is the upper half.
func Narrow(bf16, pair bool, scalar number.Func) Vec {
	f := formatOf(bf16)
	if vectors() {
		return simdNarrow(f, pair, scalar)
	}
	return loopNarrow(f, pair, scalar)
}

func loopWiden(f *halfFormat, scalar number.Func) Vec {
	return func(d, a, _, _ unsafe.Pointer) {
		D, A := (*[32]uint32)(d), (*[32]uint32)(a)
		for i, h := range A {
			if x, ok := f.value(h); ok {
				D[i] = math.Float32bits(float32(x))
			} else {
				D[i] = uint32(scalar(uint64(h), 0, 0))
			}
		}
	}
}

func loopNarrow(f *halfFormat, pair bool, scalar number.Func) Vec {
	if !pair {
		return func(d, a, _, _ unsafe.Pointer) {
			D, A := (*[32]uint32)(d), (*[32]float32)(a)
			for i, x := range A {
				h, ok := f.round(float64(x))
				if !ok {
					h = uint32(scalar(uint64(math.Float32bits(x)), 0, 0))
				}
				D[i] = h
			}
		}
	}
	return func(d, a, b, _ unsafe.Pointer) {
		D, A, B := (*[32]uint32)(d), (*[32]float32)(a), (*[32]float32)(b)
		for i, x := range A {
			hi, ok1 := f.round(float64(x))
			lo, ok2 := f.round(float64(B[i]))
			if ok1 && ok2 {
				D[i] = hi<<16 | lo
			} else {
				D[i] = uint32(scalar(uint64(math.Float32bits(x)), uint64(math.Float32bits(B[i])), 0))
			}
		}
	}
}

// apply is one operation. Zeros that a sum makes have a sign of their own: they go the scalar way.
func (f *halfFormat) apply(op HalfOp, a, b, c uint32) (uint32, bool) {
	x, ok1 := f.value(a)
	y, ok2 := f.value(b)
	ok := ok1 && ok2
	switch op {
	case HalfAdd:
		x += y
	case HalfSub:
		x -= y
	case HalfMul:
		x *= y
	default:
		z, ok3 := f.value(c)
		ok = ok && ok3
		if op == HalfFMA {
			x = x*y + z
		} else {
			x = number.AddOdd(x*y, z)
		}
	}
	h, ok4 := f.round(x)
	return h, ok && ok4 && h&0x7fff != 0
}

func loopHalf(f *halfFormat, op HalfOp, pair bool, scalar number.Func) Vec {
	if op == HalfFMA && f == &formatBF16 {
		op = halfFMAOdd
	}
	return func(d, a, b, c unsafe.Pointer) {
		D, A, B, C := (*[32]uint32)(d), (*[32]uint32)(a), (*[32]uint32)(b), (*[32]uint32)(c)
		for i := range D {
			x, y, z := A[i], B[i], C[i]
			lo, ok := f.apply(op, x&0xffff, y&0xffff, z&0xffff)
			if pair && ok {
				var hi uint32
				hi, ok = f.apply(op, x>>16, y>>16, z>>16)
				lo |= hi << 16
			}
			if !ok {
				lo = uint32(scalar(uint64(x), uint64(y), uint64(z)))
			}
			D[i] = lo
		}
	}
}
