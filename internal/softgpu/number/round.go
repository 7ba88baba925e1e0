package number

import (
	"math"
	"math/big"
)

// A Rounding is a direction of PTX's .rn .rz .rm .rp.
type Rounding uint8

// The directions.
const (
	Nearest Rounding = iota // ties to even
	ToZero
	Down
	Up
	Away // to nearest, ties away from zero
)

// RoundingOf is the direction that a modifier names, rn, rz, rm, rp or rna, of integral ones too; without one it is
// Nearest.
func RoundingOf(s string) Rounding {
	switch s {
	case "rz", "rzi":
		return ToZero
	case "rm", "rmi":
		return Down
	case "rp", "rpi":
		return Up
	case "rna":
		return Away
	}
	return Nearest
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

// AddOdd is a+b. The operands come from a narrower format, so nothing overflows.
func AddOdd(a, b float64) float64 {
	s := a + b
	bb := s - a
	return toOdd(s, (a-(s-bb))+(b-bb))
}

// DivOdd is a / b, rounded to odd.
func DivOdd(a, b float64) float64 {
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

// SqrtOdd is the root of a, rounded to odd.
func SqrtOdd(a float64) float64 {
	s := math.Sqrt(a)
	if s == 0 || s != s || math.IsInf(s, 0) {
		return s
	}
	return toOdd(s, math.FMA(-s, s, a))
}

// ZeroSum gives an exact sum of zero the sign that rounding down asks for.
func ZeroSum(s, a, b float64, r Rounding) float64 {
	if s == 0 && r == Down && (math.Signbit(a) || math.Signbit(b)) {
		return math.Copysign(0, -1)
	}
	return s
}

// Round32 rounds x, which is exact or rounded to odd.
func Round32(x float64, r Rounding) float32 {
	f := float32(x)
	if r == Nearest || float64(f) == x || x != x {
		return f
	}
	switch r {
	case ToZero:
		if math.Abs(float64(f)) > math.Abs(x) {
			return math.Float32frombits(math.Float32bits(f) - 1)
		}
	case Down:
		if float64(f) > x {
			return next32(f, -1)
		}
	case Up:
		if float64(f) < x {
			return next32(f, 1)
		}
	case Away:
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
func direct64(s float64, err int, r Rounding) float64 {
	switch r {
	case ToZero:
		if s > 0 && err < 0 || s < 0 && err > 0 {
			return next64(s, -int(math.Copysign(1, s)))
		}
	case Down:
		if err < 0 {
			return next64(s, -1)
		}
	case Up:
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
func fromBig(x *big.Float, r Rounding) float64 {
	s, acc := x.Float64()
	return direct64(s, -int(acc), r) // acc: s is below (-1) or above the value
}

func special64(a, b, c float64) bool {
	return a != a || b != b || c != c || math.IsInf(a, 0) || math.IsInf(b, 0) || math.IsInf(c, 0)
}
