package softgpu

import (
	"math"
	"math/big"
)

// A rounding is a direction of PTX's .rn .rz .rm .rp.
type rounding uint8

const (
	roundNearest rounding = iota // ties to even
	roundZero
	roundDown
	roundUp
	roundAway // to nearest, ties away from zero
)

func roundingOf(s string) rounding {
	switch s {
	case "rz", "rzi":
		return roundZero
	case "rm", "rmi":
		return roundDown
	case "rp", "rpi":
		return roundUp
	case "rna":
		return roundAway
	}
	return roundNearest
}

// The narrow formats are computed in float64, rounded to odd: the exact
// result if float64 holds it, else the neighbour with an odd last bit. A second rounding to a
// format of at most 51 bits, in any direction, then gives what rounding the exact
// result would (Boldo and Melquiond, "When double rounding is odd", 2004).

// toOdd rounds s+err to odd, where s is the nearest float64 and err ≠ 0 the rest.
func toOdd(s, err float64) float64 {
	b := math.Float64bits(s)
	if err == 0 || err != err || math.IsInf(s, 0) || b&1 != 0 {
		return s
	}
	if (err > 0) == (s > 0) {
		return math.Float64frombits(b | 1)
	}
	return math.Float64frombits(b - 1)
}

// addOdd is a+b. The operands come from a narrower format, so nothing overflows.
func addOdd(a, b float64) float64 {
	s := a + b
	bb := s - a
	return toOdd(s, (a-(s-bb))+(b-bb))
}

func divOdd(a, b float64) float64 {
	q := a / b
	if q == 0 || q != q || math.IsInf(q, 0) || math.IsInf(b, 0) {
		return q
	}
	r := math.FMA(-q, b, a)
	if b < 0 {
		r = -r
	}
	return toOdd(q, r)
}

func sqrtOdd(a float64) float64 {
	s := math.Sqrt(a)
	if s == 0 || s != s || math.IsInf(s, 0) {
		return s
	}
	return toOdd(s, math.FMA(-s, s, a))
}

// zeroSum gives an exact sum of zero the sign that rounding down asks for.
func zeroSum(s, a, b float64, r rounding) float64 {
	if s == 0 && r == roundDown && (math.Signbit(a) || math.Signbit(b)) {
		return math.Copysign(0, -1)
	}
	return s
}

// round32 rounds x, which is exact or rounded to odd.
func round32(x float64, r rounding) float32 {
	f := float32(x)
	if r == roundNearest || float64(f) == x || x != x {
		return f
	}
	switch r {
	case roundZero:
		if math.Abs(float64(f)) > math.Abs(x) {
			return math.Float32frombits(math.Float32bits(f) - 1)
		}
	case roundDown:
		if float64(f) > x {
			return next32(f, -1)
		}
	case roundUp:
		if float64(f) < x {
			return next32(f, 1)
		}
	case roundAway:
		// The other neighbour wins if x lies in the middle.
		lo, hi := f, f
		if float64(f) > x {
			lo = next32(f, -1)
		} else {
			hi = next32(f, 1)
		}
		if x-float64(lo) == float64(hi)-x {
			if x > 0 {
				return hi
			}
			return lo
		}
	}
	return f
}

// next32 is the neighbour of f in direction dir; ±Inf comes back to the largest number.
func next32(f float32, dir int) float32 {
	b := math.Float32bits(f)
	if f == 0 {
		if dir > 0 {
			return math.Float32frombits(1)
		}
		return math.Float32frombits(1<<31 | 1)
	}
	if (f > 0) == (dir > 0) {
		return math.Float32frombits(b + 1)
	}
	return math.Float32frombits(b - 1)
}

func next64(f float64, dir int) float64 {
	b := math.Float64bits(f)
	if f == 0 {
		if dir > 0 {
			return math.Float64frombits(1)
		}
		return math.Float64frombits(1<<63 | 1)
	}
	if (f > 0) == (dir > 0) {
		return math.Float64frombits(b + 1)
	}
	return math.Float64frombits(b - 1)
}

// direct64 corrects s, the nearest float64 of a value that lies at s+err, where only
// the sign of err counts.
func direct64(s float64, err int, r rounding) float64 {
	switch r {
	case roundZero:
		if s > 0 && err < 0 || s < 0 && err > 0 {
			return next64(s, -int(math.Copysign(1, s)))
		}
	case roundDown:
		if err < 0 {
			return next64(s, -1)
		}
	case roundUp:
		if err > 0 {
			return next64(s, 1)
		}
	}
	return s
}

func signOf(x float64) int {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// bigPrec holds the exact sum of a product of two float64 and a third one.
const bigPrec = 4400

func newBig(x float64) *big.Float { return new(big.Float).SetPrec(bigPrec).SetFloat64(x) }

// fromBig rounds an exact value.
func fromBig(x *big.Float, r rounding) float64 {
	s, acc := x.Float64()
	return direct64(s, -int(acc), r) // acc: s is below (-1) or above the value
}

func special64(a, b, c float64) bool {
	return a != a || b != b || c != c || math.IsInf(a, 0) || math.IsInf(b, 0) || math.IsInf(c, 0)
}

func add64(a, b float64, r rounding) float64 {
	s := a + b
	if r == roundNearest || special64(a, b, 0) {
		return s
	}
	if s == 0 {
		return zeroSum(s, a, b, r)
	}
	if math.IsInf(s, 0) || math.Abs(a) > 0x1p1000 || math.Abs(b) > 0x1p1000 {
		return fromBig(new(big.Float).SetPrec(bigPrec).Add(newBig(a), newBig(b)), r)
	}
	bb := s - a
	return direct64(s, signOf((a-(s-bb))+(b-bb)), r)
}

func mul64(a, b float64, r rounding) float64 { return fma64(a, b, math.Copysign(0, -1), r, true) }

// fma64 is a*b+c. The product alone is wanted if only is set; c is then -0.
func fma64(a, b, c float64, r rounding, only bool) float64 {
	var s float64
	if only {
		s = a * b
	} else {
		s = math.FMA(a, b, c)
	}
	if r == roundNearest || special64(a, b, c) {
		return s
	}
	if a == 0 || b == 0 {
		if only {
			return s
		}
		if c != 0 {
			return c
		}
		return zeroSum(s, a*b, c, r)
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
		if r == roundDown {
			return math.Copysign(0, -1)
		}
		return 0
	}
	return fromBig(x, r)
}

func div64(a, b float64, r rounding) float64 {
	q := a / b
	if r == roundNearest || special64(a, b, 0) || a == 0 || b == 0 {
		return q
	}
	if x, y, z := math.Abs(a), math.Abs(b), math.Abs(q); x > 0x1p-900 && x < 0x1p900 && y > 0x1p-900 && y < 0x1p900 && z > 0x1p-900 && z < 0x1p900 {
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

func sqrt64(a float64, r rounding) float64 {
	s := math.Sqrt(a)
	if r == roundNearest || s != s || s == 0 || math.IsInf(s, 0) {
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
