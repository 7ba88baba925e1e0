package softgpu

import (
	"math"

	"holdfast/internal/isa"
)

const nan64bits = 0xfff8000000000000 // of an operation without NaN operands

// nan64 gives r, or where that is a NaN the one that a GPU gives: the second operand, else the first, made quiet, with its sign (also
// that of what a subtraction takes away). H200, driver 580.159, measured.
func nan64(r, a, b float64) float64 {
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
	return math.Float64frombits(nan64bits)
}

// fmaNaN64 is nan64 of three operands: the second comes before the third, that before the first.
func fmaNaN64(r, a, b, c float64) float64 {
	if r != r {
		return firstNaN64(b, c, a)
	}
	return r
}

// neg64 and abs64 leave a NaN its sign and make it quiet.
func neg64(x float64) float64 { return nan64(math.Float64frombits(math.Float64bits(x)^1<<63), x, x) }
func abs64(x float64) float64 { return nan64(math.Abs(x), x, x) }

// f64Func is f64 arithmetic. Payloads of NaN go through.
func f64Func(in *isa.Inst) laneFunc {
	r := roundingOf(in.Rnd)
	two := func(f func(a, b float64) float64) laneFunc {
		return func(a, b, _ uint64) uint64 { return bits64of(f(f64of(a), f64of(b))) }
	}
	one := func(f func(a float64) float64) laneFunc {
		return func(a, _, _ uint64) uint64 { return bits64of(f(f64of(a))) }
	}
	switch in.Op {
	case "add":
		return two(func(a, b float64) float64 { return nan64(add64(a, b, r), a, b) })
	case "sub":
		return two(func(a, b float64) float64 { return nan64(add64(a, -b, r), a, b) })
	case "mul":
		return two(func(a, b float64) float64 { return nan64(mul64(a, b, r), a, b) })
	case "fma", "mad":
		return func(a, b, c uint64) uint64 {
			x, y, z := f64of(a), f64of(b), f64of(c)
			return bits64of(fmaNaN64(fma64(x, y, z, r, false), x, y, z))
		}
	case "div":
		return two(func(a, b float64) float64 { return div64(a, b, r) })
	case "rcp":
		if in.Has(isa.Approx) {
			return gross64(func(a float64) float64 { return 1 / a })
		}
		return one(func(a float64) float64 { return div64(1, a, r) })
	case "sqrt":
		return one(func(a float64) float64 { return sqrt64(a, r) })
	case "rsqrt":
		f := func(a float64) float64 { return 1 / math.Sqrt(a) }
		if in.Has(isa.Ftz) {
			return gross64(f)
		}
		return one(f)
	case "abs":
		return one(abs64)
	case "neg":
		return one(neg64)
	case "copysign":
		return copysignFunc(in)
	case "min", "max":
		isMin := in.Op == "min"
		return two(func(a, b float64) float64 {
			switch {
			case a != a && b != b:
				return firstNaN64(b, a, a)
			case a != a:
				return b
			case b != b:
				return a
			case isMin:
				return min(a, b)
			}
			return max(a, b)
		})
	}
	return nil
}

// gross64 is the shape of rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64: only the
// upper words of operand and result count, subnormal numbers are zero. The
// relative error is below 2^-19.
func gross64(f func(float64) float64) laneFunc {
	flush := func(b uint64) uint64 {
		if b&0x7ff0000000000000 == 0 {
			return b & (1 << 63)
		}
		return b &^ 0xffffffff
	}
	return func(a, _, _ uint64) uint64 {
		r := f(f64of(flush(a)))
		if r != r {
			return 0x7fffffff00000000
		}
		return flush(bits64of(r))
	}
}
