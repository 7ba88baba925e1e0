package softgpu

import (
	"math"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

const (
	nan16bits   = 0x7fff // of both 16-bit formats
	fillNaN     = 0x7ff7 // what tensor copies fill in where a tensor ends
	f16One      = 0x3c00
	bf16One     = 0x3f80
	f16Infinity = 0x7c00
)

// halfTo64 is the value of an f16 or bf16.
func halfTo64(x uint64, t ptx.Type) float64 {
	if t == ptx.BF16 {
		return float64(math.Float32frombits(uint32(x) << 16))
	}
	return smallTo64(uint32(x)&0xffff, 5, 10)
}

// smallTo64 is the value of an IEEE-like number with e exponent and m fraction bits.
func smallTo64(x uint32, e, m uint) float64 {
	sign := 1.0
	if x>>(e+m)&1 != 0 {
		sign = -1
	}
	exp := int(x >> m & (1<<e - 1))
	frac := x & (1<<m - 1)
	bias := 1<<(e-1) - 1
	switch {
	case exp == 1<<e-1 && frac != 0:
		return math.NaN()
	case exp == 1<<e-1:
		return math.Inf(int(sign))
	case exp == 0:
		return sign * math.Ldexp(float64(frac), 1-bias-int(m))
	}
	return sign * math.Ldexp(float64(frac|1<<m), exp-bias-int(m))
}

// smallFrom64 rounds x, exact or rounded to odd, to such a number. Overflow
// gives infinity or the largest number, as the direction says; NaN is the
// caller's business.
func smallFrom64(x float64, e, m uint, r rounding) uint32 {
	b := math.Float64bits(x)
	sign := uint32(b>>63) << (e + m)
	neg := sign != 0
	inf := uint32(1<<e-1) << m
	if math.IsInf(x, 0) {
		return sign | inf
	}
	if x == 0 {
		return sign
	}
	bias := 1<<(e-1) - 1
	fr, ex := math.Frexp(math.Abs(x)) // in [0.5, 1)
	exp := ex - 1                     // x = 1.f * 2^exp
	if exp < 1-bias {
		exp = 1 - bias // subnormal: same scale
	}
	// The result counts units of 2^(exp-m).
	units := math.Ldexp(fr, ex-exp+int(m))
	whole := math.Floor(units)
	rest := units - whole
	n := uint32(whole)
	up := false
	switch r {
	case roundNearest:
		up = rest > 0.5 || rest == 0.5 && n&1 != 0
	case roundAway:
		up = rest >= 0.5
	case roundDown:
		up = neg && rest > 0
	case roundUp:
		up = !neg && rest > 0
	}
	if up {
		n++
	}
	// A carry out of the fraction runs into the exponent, as it should.
	var v uint64
	if n >= 1<<m {
		v = uint64(exp+bias)<<m + uint64(n-1<<m)
	} else {
		v = uint64(n)
	}
	if v >= uint64(inf) {
		if r == roundZero || r == roundDown && !neg || r == roundUp && neg {
			return sign | (inf - 1)
		}
		return sign | inf
	}
	return sign | uint32(v)
}

func f16From64(x float64, r rounding) uint16 {
	if x != x {
		return nan16bits
	}
	return uint16(smallFrom64(x, 5, 10, r))
}

func bf16From64(x float64, r rounding) uint16 {
	if x != x {
		return nan16bits
	}
	return uint16(smallFrom64(x, 8, 7, r))
}

func halfFrom64(x float64, t ptx.Type, r rounding) uint64 {
	if t == ptx.BF16 {
		return uint64(bf16From64(x, r))
	}
	return uint64(f16From64(x, r))
}

// flushHalf turns subnormal numbers into zero.
func flushHalf(x uint64, t ptx.Type) uint64 {
	exponent := uint64(0x7c00)
	if t == ptx.BF16 {
		exponent = 0x7f80
	}
	if x&exponent == 0 {
		return x & 0x8000
	}
	return x
}

// halfFunc is f16 and bf16 arithmetic: float64 rounded to odd, then once more.
func halfFunc(in *isa.Inst, t ptx.Type) laneFunc {
	ftz, sat, relu, oob := in.Has(isa.Ftz), in.Has(isa.Sat), in.Has(isa.Relu), in.Has(isa.OOB)
	one := uint64(f16One)
	if t == ptx.BF16 {
		one = bf16One
	}
	isNaN := func(x uint64) bool { v := halfTo64(x, t); return v != v }
	finish := func(x uint64) uint64 {
		x &= 0xffff
		if isNaN(x) {
			x = nan16bits
		}
		if ftz {
			x = flushHalf(x, t)
		}
		if sat {
			switch v := halfTo64(x, t); {
			case !(v > 0):
				x = 0
			case v > 1:
				x = one
			}
		}
		if relu && x != nan16bits && x&0x8000 != 0 {
			x = 0
		}
		return x
	}
	pre := func(x uint64) uint64 {
		x &= 0xffff
		if ftz {
			x = flushHalf(x, t)
		}
		return x
	}
	arith := func(f func(a, b, c float64) float64) laneFunc {
		return func(a, b, c uint64) uint64 {
			x := f(halfTo64(pre(a), t), halfTo64(pre(b), t), halfTo64(pre(c), t))
			h := halfFrom64(x, t, roundNearest)
			if ftz && t == ptx.F16 && h&0x7fff == 0x400 && smallFrom64(math.Abs(x)*0x1p16, 5, 10, roundNearest) < 0x4400 {
				h &= 0x8000 // subnormal when the exponent has no limit: see flushTiny
			}
			return finish(h)
		}
	}
	switch in.Op {
	case "add":
		return arith(func(a, b, _ float64) float64 { return addOdd(a, b) })
	case "sub":
		return arith(func(a, b, _ float64) float64 { return addOdd(a, -b) })
	case "mul":
		return arith(func(a, b, _ float64) float64 { return a * b })
	case "fma":
		f := arith(func(a, b, c float64) float64 { return addOdd(a*b, c) })
		if !oob {
			return f
		}
		// .oob: an operand that is the out-of-bounds NaN, which a tensor copy fills in, makes the result 0, with either sign. (0x7fff
		// and 0xffff are none: H200, driver 580.159, measured.)
		return func(a, b, c uint64) uint64 {
			if a&0x7fff == fillNaN || b&0x7fff == fillNaN {
				return 0
			}
			return f(a, b, c)
		}
	case "ex2":
		return arith(func(a, _, _ float64) float64 { return math.Exp2(a) })
	case "tanh":
		return arith(func(a, _, _ float64) float64 { return math.Tanh(a) })
	case "abs":
		return func(a, _, _ uint64) uint64 { return finish(pre(a) &^ 0x8000) }
	case "neg":
		return func(a, _, _ uint64) uint64 { return finish(pre(a) ^ 0x8000) }
	case "min", "max":
		isMin, nan, abs, xorSign := in.Op == "min", in.Has(isa.NaN), in.Has(isa.Abs), in.Has(isa.XorSign)
		return func(a, b, _ uint64) uint64 {
			a, b = pre(a), pre(b)
			sign := (a ^ b) & 0x8000
			if abs {
				a, b = a&^0x8000, b&^0x8000
			}
			an, bn := isNaN(a), isNaN(b)
			var r uint64
			switch {
			case an && bn || nan && (an || bn):
				return nan16bits
			case an:
				r = b
			case bn:
				r = a
			default:
				x, y := halfTo64(a, t), halfTo64(b, t)
				r = a
				if isMin && (y < x || y == x && math.Signbit(y)) || !isMin && (y > x || y == x && !math.Signbit(y)) {
					r = b
				}
			}
			if xorSign {
				r = r&^0x8000 | sign
			}
			return finish(r)
		}
	}
	return nil
}
