package softgpu

import (
	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// cvtPackedFunc is cvt to and from packed formats. With two operands, a
// becomes the upper half and b the lower.
func cvtPackedFunc(in *isa.Inst) laneFunc {
	if in.Rnd == "rs" {
		return nil
	}
	r := number.RoundingOf(in.Rnd)
	relu, satfinite := in.Has(isa.Relu), in.Has(isa.Satfinite)
	clamp := func(x float64) float64 {
		if relu && x == x && !(x > 0) {
			return 0
		}
		return x
	}
	half := func(t ptx.Type) ptx.Type {
		if t == ptx.BF16x2 {
			return ptx.BF16
		}
		return ptx.F16
	}
	switch in.T {
	case ptx.TF32:
		return func(a, _, _ uint64) uint64 {
			x := clamp(float64(number.F32(a)))
			if x != x {
				return number.NaNTF32(a, r, satfinite)
			}
			if satfinite {
				x = number.ClampFinite(x, ptx.TF32)
			}
			return uint64(number.RoundSmall(x, 8, 10, r)) << 13
		}
	case ptx.F16x2, ptx.BF16x2:
		t := half(in.T)
		if in.U == ptx.F32 {
			one := func(a uint64) uint64 {
				x := clamp(float64(number.F32(a)))
				if satfinite {
					x = number.ClampFinite(x, t)
				}
				return number.RoundHalf(x, t, r)
			}
			return func(a, b, _ uint64) uint64 { return one(a)<<16 | one(b) }
		}
		f, ok := number.SmallFormat(in.U)
		if !ok {
			return nil
		}
		one := func(a uint64) uint64 { return number.RoundHalf(clamp(f.Value(uint32(a))), t, number.Nearest) }
		return func(a, _, _ uint64) uint64 { return one(a&0xff) | one(a>>8&0xff)<<16 }
	case ptx.E4M3x2, ptx.E5M2x2, ptx.E2M3x2, ptx.E3M2x2:
		f, _ := number.SmallFormat(in.T)
		if in.U == ptx.F32 {
			return func(a, b, _ uint64) uint64 {
				return uint64(f.Round(clamp(float64(number.F32(a)))))<<8 |
					uint64(f.Round(clamp(float64(number.F32(b)))))
			}
		}
		t := half(in.U)
		return func(a, _, _ uint64) uint64 {
			return uint64(f.Round(clamp(number.HalfValue(a>>16&0xffff, t))))<<8 |
				uint64(f.Round(clamp(number.HalfValue(a&0xffff, t))))
		}
	}
	return nil
}
