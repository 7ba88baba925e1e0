package softgpu

import (
	"math"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// cvtFunc is cvt: PTX ISA 9.7.9.21.
func cvtFunc(in *isa.Inst) laneFunc {
	if in.Op == "cvt.pack" {
		return cvtPack(in.T)
	}
	switch in.T {
	case ptx.F16x2, ptx.BF16x2, ptx.E4M3x2, ptx.E5M2x2, ptx.UE8M0x2, ptx.E2M1x2, ptx.E2M3x2, ptx.E3M2x2, ptx.TF32:
		return cvtPackedFunc(in)
	}
	if isa.Bits(in.T) < 8 || isa.Bits(in.U) < 8 {
		return nil
	}
	fromFloat, toFloat := isa.Float(in.U), isa.Float(in.T)
	r := number.RoundingOf(in.Rnd)
	integral := len(in.Rnd) == 3 && in.Rnd[2] == 'i'
	ftz, sat := in.Has(isa.Ftz), in.Has(isa.Sat)
	switch {
	case !fromFloat && !toFloat:
		return intToInt(in.U, in.T, sat)
	case fromFloat && !toFloat:
		if !integral {
			return nil
		}
		// NaN becomes 0; where doubles or 64-bit integers take part, the highest bit: PTX ISA 9.7.9.21.
		var nan uint64
		if in.U == ptx.F64 || isa.Bits(in.T) == 64 {
			nan = 1 << (isa.Bits(in.T) - 1)
		}
		return func(a, _, _ uint64) uint64 {
			x := number.Widen(a, in.U, ftz)
			if x != x {
				return nan
			}
			return number.ToInt(x, in.T, r)
		}
	case !fromFloat:
		return func(a, _, _ uint64) uint64 {
			return number.Narrow(number.FromInt(a, in.U, in.T, r), in.T, r, sat, false)
		}
	}
	return floatToFloat(in, r, integral)
}

func intToInt(from, to ptx.Type, sat bool) laneFunc {
	n, m := uint(isa.Bits(from)), uint(isa.Bits(to))
	mask := ^uint64(0) >> (64 - m)
	src, dst := isa.Signed(from), isa.Signed(to)
	return func(a, _, _ uint64) uint64 {
		if src {
			v := number.SignExtend(a, n)
			if sat {
				switch {
				case dst && m < 64:
					v = min(max(v, -1<<(m-1)), 1<<(m-1)-1)
				case !dst && v < 0:
					v = 0
				case !dst && m < 64:
					v = min(v, int64(mask))
				}
			}
			return uint64(v) & mask
		}
		v := number.ZeroExtend(a, n)
		if sat {
			if dst {
				v = min(v, mask>>1)
			} else {
				v = min(v, mask)
			}
		}
		return v & mask
	}
}

func floatToFloat(in *isa.Inst, r number.Rounding, integral bool) laneFunc {
	ftz, sat, relu, satfinite := in.Has(isa.Ftz), in.Has(isa.Sat), in.Has(isa.Relu), in.Has(isa.Satfinite)
	from, to := in.U, in.T
	if from == to && !integral && in.Rnd == "" && to == ptx.F64 && !sat {
		return func(a, _, _ uint64) uint64 { return a }
	}
	// Conversions to f16 in a direction do not flush: H200, driver 580.159, measured.
	if to == ptx.F16 {
		ftz = false
	}
	return func(a, _, _ uint64) uint64 {
		x := number.Widen(a, from, ftz)
		if x != x && !sat && !relu && !satfinite {
			if b, ok := number.ConvertNaN(a, from, to, in.Rnd, ftz); ok {
				return b
			}
		}
		if integral {
			if x == x {
				x = math.Copysign(number.RoundIntegral(x, r), x)
			}
		}
		if x != x && to == ptx.F64 {
			// NaN of a narrower format: its canonical form, widened.
			if sat {
				return 0
			}
			return 0x7fffffffe0000000
		}
		if relu && !(x > 0) && x == x {
			x = 0
		}
		if satfinite {
			x = number.ClampFinite(x, to)
		}
		return number.Narrow(x, to, r, sat, ftz)
	}
}

// cvtPack saturates two s32 to t and puts them, a above b, below what c holds.
func cvtPack(t ptx.Type) laneFunc {
	n := uint(isa.Bits(t))
	one := func(x uint64) uint64 {
		v := int64(int32(x))
		if isa.Signed(t) {
			v = min(max(v, -1<<(n-1)), 1<<(n-1)-1)
		} else {
			v = min(max(v, 0), 1<<n-1)
		}
		return number.ZeroExtend(uint64(v), n)
	}
	if n == 16 {
		return func(a, b, _ uint64) uint64 { return one(a)<<16 | one(b) }
	}
	return func(a, b, c uint64) uint64 { return (c<<(2*n) | one(a)<<n | one(b)) & 0xffffffff }
}
