package softgpu

import (
	"math"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
)

// f64Func is f64 arithmetic. Payloads of NaN go through.
func f64Func(in *isa.Inst) laneFunc {
	r := number.RoundingOf(in.Rnd)
	two := func(f func(a, b float64) float64) laneFunc {
		return func(a, b, _ uint64) uint64 { return number.Bits64(f(number.F64(a), number.F64(b))) }
	}
	one := func(f func(a float64) float64) laneFunc {
		return func(a, _, _ uint64) uint64 { return number.Bits64(f(number.F64(a))) }
	}
	switch in.Op {
	case "add":
		return two(func(a, b float64) float64 { return number.KeepNaN64(number.Add64(a, b, r), a, b) })
	case "sub":
		return two(func(a, b float64) float64 { return number.KeepNaN64(number.Add64(a, -b, r), a, b) })
	case "mul":
		return two(func(a, b float64) float64 { return number.KeepNaN64(number.Mul64(a, b, r), a, b) })
	case "fma", "mad":
		return func(a, b, c uint64) uint64 {
			x, y, z := number.F64(a), number.F64(b), number.F64(c)
			return number.Bits64(number.KeepNaN64FMA(number.FMA64(x, y, z, r, false), x, y, z))
		}
	case "div":
		return two(func(a, b float64) float64 { return number.Div64(a, b, r) })
	case "rcp":
		if in.Has(isa.Approx) {
			return gross64(func(a float64) float64 { return 1 / a })
		}
		return one(func(a float64) float64 { return number.Div64(1, a, r) })
	case "sqrt":
		return one(func(a float64) float64 { return number.Sqrt64(a, r) })
	case "rsqrt":
		f := func(a float64) float64 { return 1 / math.Sqrt(a) }
		if in.Has(isa.Ftz) {
			return gross64(f)
		}
		return one(f)
	case "abs":
		return one(number.Abs64)
	case "neg":
		return one(number.Neg64)
	case "copysign":
		return copysignFunc(in)
	case "min", "max":
		if in.Op == "min" {
			return two(number.Min64)
		}
		return two(number.Max64)
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
		r := f(number.F64(flush(a)))
		if r != r {
			return 0x7fffffff00000000
		}
		return flush(number.Bits64(r))
	}
}
