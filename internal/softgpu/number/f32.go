package number

import (
	"math"
)

// F32 is the number whose bits are the low half of x.
func F32(x uint64) float32 { return math.Float32frombits(uint32(x)) }

// Bits32 is the way back.
func Bits32(x float32) uint64 { return uint64(math.Float32bits(x)) }

// NaN32 is the one NaN of f32.
const NaN32 = 0x7fffffff

// Canon32 makes a NaN the one that f32 instructions give.
func Canon32(x float32) float32 {
	if x != x {
		return math.Float32frombits(NaN32)
	}
	return x
}

// Flush32 turns subnormal numbers into zero of the same sign: .ftz.
func Flush32(x float32) float32 {
	b := math.Float32bits(x)
	if b&0x7f800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return x
}

// Sat32 clamps to [0, 1]; NaN becomes +0.
func Sat32(x float32) float32 {
	if x > 0 {
		return min(x, 1)
	}
	return 0
}

// Neg32 gives the one NaN, as Abs32 does. The ISA leaves that open (9.7.3.9, 9.7.3.10): on an H200 the same NaN comes
// out so, or with its bits kept, as the assembler pleases.
func Neg32(x float32) float32 { return Canon32(math.Float32frombits(math.Float32bits(x) ^ 1<<31)) }

// Abs32 is the magnitude; of a NaN, as Neg32.
func Abs32(x float32) float32 { return Canon32(math.Float32frombits(math.Float32bits(x) &^ (1 << 31))) }

// Min32 is the lesser; a NaN loses against a number, and -0 is below +0.
func Min32(a, b float32) float32 {
	if a < b {
		return a
	}
	if b < a {
		return b
	}
	return minMaxRare(a, b, true)
}

// Max32 is the greater, likewise.
func Max32(a, b float32) float32 {
	if a > b {
		return a
	}
	if b > a {
		return b
	}
	return minMaxRare(a, b, false)
}

// minMaxRare has NaN, which loses against numbers, and zeros, of which -0 is the smaller.
func minMaxRare(a, b float32, isMin bool) float32 {
	switch {
	case a != a:
		return Canon32(b)
	case b != b:
		return a
	case math.Signbit(float64(a)) == isMin:
		return a
	}
	return b
}

// Trunc32 is cvt.rzi.s32.f32.
func Trunc32(x float32) int32 {
	switch {
	case x >= 0x1p31:
		return math.MaxInt32
	case x < -0x1p31:
		return math.MinInt32
	case x != x:
		return 0
	}
	return int32(x)
}

// FMA32 is a·b + c, rounded once to nearest even. The sum of the exact product is rounded a second time where that
// cannot matter: not in the middle between two f32, and not to a subnormal one, a NaN or zero.
func FMA32(a, b, c float32) float32 {
	s := float64(a)*float64(b) + float64(c)
	if k := math.Float64bits(s); k&0x1fffffff == 0x10000000 || k<<1-normal32 > infinite-normal32 {
		return fmaAgain32(a, b, c, s)
	}
	return float32(s)
}

// The bits of float64 without the sign, doubled: of the smallest normal float32, and a bit more, and of infinity.
const (
	normal32 = 0x3810000000000000<<1 + 1
	infinite = 0x7ff0000000000000 << 1
)

//go:noinline // it is rare, and would make the loops around it long
func fmaAgain32(a, b, c float32, s float64) float32 {
	if s == 0 {
		return float32(s) // exact
	}
	return Canon32(Round32(AddOdd(float64(a)*float64(b), float64(c)), Nearest))
}

// FMARound32 is a·b + c in direction r.
func FMARound32(a, b, c float32, r Rounding) float32 {
	p := float64(a) * float64(b)
	return Canon32(Round32(ZeroSum(AddOdd(p, float64(c)), p, float64(c), r), r))
}

// DivApprox32 is div.approx, which gives 0 for divisors above 2^126, as the ISA says.
func DivApprox32(a, b float32) float32 {
	m := Abs32(b)
	if a != a || !(m > 0x1p126 && m <= math.MaxFloat32) {
		return Canon32(a / b)
	}
	if math.IsInf(float64(a), 0) {
		return math.Float32frombits(NaN32)
	}
	return float32(math.Copysign(0, float64(a)) * math.Copysign(1, float64(b)))
}

// Add32 is a + b.
func Add32(a, b float32, r Rounding) float32 {
	x, y := float64(a), float64(b)
	return Round32(ZeroSum(AddOdd(x, y), x, y, r), r)
}

// Log2 keeps its relative error small near 1.
func Log2(x float64) float64 {
	if x > 0.7 && x < 1.5 {
		return math.Log1p(x-1) / math.Ln2
	}
	return math.Log2(x)
}
