package softgpu

import (
	"math"

	"holdfast/internal/isa"
)

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
		return two(func(a, b float64) float64 { return add64(a, b, r) })
	case "sub":
		return two(func(a, b float64) float64 { return add64(a, -b, r) })
	case "mul":
		return two(func(a, b float64) float64 { return mul64(a, b, r) })
	case "fma", "mad":
		return func(a, b, c uint64) uint64 { return bits64of(fma64(f64of(a), f64of(b), f64of(c), r, false)) }
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
		return func(a, _, _ uint64) uint64 { return a &^ (1 << 63) }
	case "neg":
		return func(a, _, _ uint64) uint64 { return a ^ 1<<63 }
	case "copysign":
		return copysignFunc(in)
	case "min", "max":
		isMin := in.Op == "min"
		return two(func(a, b float64) float64 {
			switch {
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
		x := f64of(a)
		if x != x {
			return 0x7fffffff00000000
		}
		r := f(f64of(flush(a)))
		if r != r {
			return 0x7fffffff00000000
		}
		return flush(bits64of(r))
	}
}
