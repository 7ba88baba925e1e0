package softgpu

import (
	"math"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// halfFunc is f16 and bf16 arithmetic: float64 rounded to odd, then once more.
func halfFunc(in *isa.Inst, t ptx.Type) laneFunc {
	ftz, sat, relu, oob := in.Has(isa.Ftz), in.Has(isa.Sat), in.Has(isa.Relu), in.Has(isa.OOB)
	one := uint64(number.F16One)
	if t == ptx.BF16 {
		one = number.BF16One
	}
	isNaN := func(x uint64) bool { v := number.HalfValue(x, t); return v != v }
	finish := func(x uint64) uint64 {
		x &= 0xffff
		if isNaN(x) {
			x = number.NaN16
		}
		if ftz {
			x = number.FlushHalf(x, t)
		}
		if sat {
			switch v := number.HalfValue(x, t); {
			case !(v > 0):
				x = 0
			case v > 1:
				x = one
			}
		}
		if relu && x != number.NaN16 && x&0x8000 != 0 {
			x = 0
		}
		return x
	}
	pre := func(x uint64) uint64 {
		x &= 0xffff
		if ftz {
			x = number.FlushHalf(x, t)
		}
		return x
	}
	arith := func(f func(a, b, c float64) float64) laneFunc {
		return func(a, b, c uint64) uint64 {
			x := f(number.HalfValue(pre(a), t), number.HalfValue(pre(b), t), number.HalfValue(pre(c), t))
			h := number.RoundHalf(x, t, number.Nearest)
			if ftz && t == ptx.F16 && h&0x7fff == 0x400 &&
				number.RoundSmall(math.Abs(x)*0x1p16, 5, 10, number.Nearest) < 0x4400 {
				h &= 0x8000 // subnormal when the exponent has no limit: see flushTiny
			}
			return finish(h)
		}
	}
	switch in.Op {
	case "add":
		return arith(func(a, b, _ float64) float64 { return number.AddOdd(a, b) })
	case "sub":
		return arith(func(a, b, _ float64) float64 { return number.AddOdd(a, -b) })
	case "mul":
		return arith(func(a, b, _ float64) float64 { return a * b })
	case "fma":
		f := arith(func(a, b, c float64) float64 { return number.AddOdd(a*b, c) })
		if !oob {
			return f
		}
		// .oob: an operand that is the out-of-bounds NaN, which a tensor copy fills in, makes the result 0, with either
		// sign. (0x7fff and 0xffff are none: H200, driver 580.159, measured.)
		return func(a, b, c uint64) uint64 {
			if a&0x7fff == number.FillNaN || b&0x7fff == number.FillNaN {
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
				return number.NaN16
			case an:
				r = b
			case bn:
				r = a
			default:
				x, y := number.HalfValue(a, t), number.HalfValue(b, t)
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
