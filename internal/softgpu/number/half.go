package number

import (
	"math"

	"holdfast/ptx"
)

// Numbers of the 16-bit formats.
const (
	NaN16       = 0x7fff // of both 16-bit formats
	FillNaN     = 0x7ff7 // what tensor copies fill in where a tensor ends
	F16One      = 0x3c00
	BF16One     = 0x3f80
	F16Infinity = 0x7c00
)

// HalfValue is the value of an f16 or bf16.
func HalfValue(x uint64, t ptx.Type) float64 {
	if t == ptx.BF16 {
		return float64(math.Float32frombits(uint32(x) << 16))
	}
	return SmallValue(uint32(x)&0xffff, 5, 10)
}

// SmallValue is the value of an IEEE-like number with e exponent and m fraction bits.
func SmallValue(x uint32, e, m uint) float64 {
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

// RoundSmall rounds x, exact or rounded to odd, to such a number. Overflow
// gives infinity or the largest number, as the direction says; NaN is the
// caller's business.
func RoundSmall(x float64, e, m uint, r Rounding) uint32 {
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
	case Nearest:
		up = rest > 0.5 || rest == 0.5 && n&1 != 0
	case Away:
		up = rest >= 0.5
	case Down:
		up = neg && rest > 0
	case Up:
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
		if r == ToZero || r == Down && !neg || r == Up && neg {
			return sign | (inf - 1)
		}
		return sign | inf
	}
	return sign | uint32(v)
}

// RoundF16 rounds x to f16; NaN becomes the one NaN.
func RoundF16(x float64, r Rounding) uint16 {
	if x != x {
		return NaN16
	}
	return uint16(RoundSmall(x, 5, 10, r))
}

// RoundBF16 rounds x to bf16, likewise.
func RoundBF16(x float64, r Rounding) uint16 {
	if x != x {
		return NaN16
	}
	return uint16(RoundSmall(x, 8, 7, r))
}

// RoundHalf rounds x to f16 or bf16.
func RoundHalf(x float64, t ptx.Type, r Rounding) uint64 {
	if t == ptx.BF16 {
		return uint64(RoundBF16(x, r))
	}
	return uint64(RoundF16(x, r))
}

// FlushHalf turns subnormal numbers into zero.
func FlushHalf(x uint64, t ptx.Type) uint64 {
	exponent := uint64(0x7c00)
	if t == ptx.BF16 {
		exponent = 0x7f80
	}
	if x&exponent == 0 {
		return x & 0x8000
	}
	return x
}
