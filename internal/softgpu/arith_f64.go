package softgpu

import (
	"math"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
)

// f64Func is f64 arithmetic. Payloads of NaN go through.
func f64Func(in *isa.Inst) laneFunc {
	switch {
	case in.Op == "rcp" && in.Has(isa.Approx):
		return gross64(func(a float64) float64 { return 1 / a })
	case in.Op == "rsqrt" && in.Has(isa.Ftz):
		return gross64(func(a float64) float64 { return 1 / math.Sqrt(a) })
	case in.Op == "copysign":
		return copysignFunc(in)
	}
	return number.Op(floatKey(in))
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
