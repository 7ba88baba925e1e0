package number

import (
	"math"
	"math/big"
)

// NaN64 is the NaN of an operation without NaN operands.
const NaN64 = 0xfff8000000000000

// KeepNaN64 gives r, or where that is a NaN the one that a GPU gives: the second operand, else the first, made quiet,
// with its sign (also that of what a subtraction takes away). H200, driver 580.159, measured.
func KeepNaN64(r, a, b float64) float64 {
	if r != r {
		return firstNaN64(b, a, a)
	}
	return r
}

//go:noinline // it is rare, and would make the loops around it long
func firstNaN64(a, b, c float64) float64 {
	for _, x := range [...]float64{a, b, c} {
		if x != x {
			return math.Float64frombits(math.Float64bits(x) | 1<<51)
		}
	}
	return math.Float64frombits(NaN64)
}

// KeepNaN64FMA is KeepNaN64 of three operands: the second comes before the third, that before the first.
func KeepNaN64FMA(r, a, b, c float64) float64 {
	if r != r {
		return firstNaN64(b, c, a)
	}
	return r
}

// Neg64 leaves a NaN its sign and makes it quiet.
func Neg64(x float64) float64 {
	return KeepNaN64(math.Float64frombits(math.Float64bits(x)^1<<63), x, x)
}

// Abs64 is the magnitude; of a NaN, as Neg64.
func Abs64(x float64) float64 { return KeepNaN64(math.Abs(x), x, x) }

// Add64 is a + b.
func Add64(a, b float64, r Rounding) float64 {
	s := a + b
	if r == Nearest || special64(a, b, 0) {
		return s
	}
	if s == 0 {
		return ZeroSum(s, a, b, r)
	}
	if math.IsInf(s, 0) || math.Abs(a) > 0x1p1000 || math.Abs(b) > 0x1p1000 {
		return fromBig(new(big.Float).SetPrec(bigPrec).Add(newBig(a), newBig(b)), r)
	}
	bb := s - a
	return direct64(s, signOf((a-(s-bb))+(b-bb)), r)
}

// Mul64 is a·b.
func Mul64(a, b float64, r Rounding) float64 { return FMA64(a, b, math.Copysign(0, -1), r, true) }

// FMA64 is a*b+c. The product alone is wanted if only is set; c is then -0.
func FMA64(a, b, c float64, r Rounding, only bool) float64 {
	var s float64
	if only {
		s = a * b
	} else {
		s = math.FMA(a, b, c)
	}
	if r == Nearest || special64(a, b, c) {
		return s
	}
	if a == 0 || b == 0 {
		if only {
			return s
		}
		if c != 0 {
			return c
		}
		return ZeroSum(s, a*b, c, r)
	}
	x := new(big.Float).SetPrec(bigPrec).Mul(newBig(a), newBig(b))
	if only {
		if p := math.Abs(s); p > 0x1p-900 && p < 0x1p1000 {
			return direct64(s, signOf(math.FMA(a, b, -s)), r)
		}
		return fromBig(x, r)
	}
	x.Add(x, newBig(c))
	if x.Sign() == 0 {
		if r == Down {
			return math.Copysign(0, -1)
		}
		return 0
	}
	return fromBig(x, r)
}

// Div64 is a / b.
func Div64(a, b float64, r Rounding) float64 {
	q := a / b
	if r == Nearest || special64(a, b, 0) || a == 0 || b == 0 {
		return q
	}
	if x, y, z := math.Abs(a), math.Abs(b), math.Abs(q); x > 0x1p-900 && x < 0x1p900 && y > 0x1p-900 && y < 0x1p900 &&
		z > 0x1p-900 && z < 0x1p900 {
		e := signOf(math.FMA(-q, b, a))
		if b < 0 {
			e = -e
		}
		return direct64(q, e, r)
	}
	x := new(big.Float).SetPrec(1200).SetMode(big.ToZero).Quo(newBig(a), newBig(b))
	if x.Acc() != big.Exact {
		// A little more, beyond every bit that matters: what was cut off.
		tail := new(big.Float).SetPrec(1400).SetMantExp(big.NewFloat(float64(x.Sign())), x.MantExp(nil)-1300)
		x = new(big.Float).SetPrec(1400).Add(x, tail)
	}
	return fromBig(x, r)
}

// Sqrt64 is the root of a.
func Sqrt64(a float64, r Rounding) float64 {
	s := math.Sqrt(a)
	if r == Nearest || s != s || s == 0 || math.IsInf(s, 0) {
		return s
	}
	// Scaled to the middle of the range, where the error is exact.
	f, e := math.Frexp(a)
	if e&1 != 0 {
		f, e = f*2, e-1
	}
	m := math.Sqrt(f)
	return math.Ldexp(direct64(m, signOf(math.FMA(-m, m, f)), r), e/2)
}

// F64 is the number whose bits are x.
func F64(x uint64) float64 { return math.Float64frombits(x) }

// Bits64 is the way back.
func Bits64(x float64) uint64 { return math.Float64bits(x) }

// Min64 is the lesser; a NaN loses against a number, and -0 is below +0.
func Min64(a, b float64) float64 {
	if a != a || b != b {
		return oneNaN64(a, b)
	}
	return min(a, b)
}

// Max64 is the greater, likewise.
func Max64(a, b float64) float64 {
	if a != a || b != b {
		return oneNaN64(a, b)
	}
	return max(a, b)
}

// oneNaN64 is what a minimum or maximum with a NaN gives.
func oneNaN64(a, b float64) float64 {
	switch {
	case a == a:
		return a
	case b == b:
		return b
	}
	return firstNaN64(b, a, a)
}
