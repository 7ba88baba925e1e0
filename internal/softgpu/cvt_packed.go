package softgpu

import (
	"math"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// cvtPackedFunc is cvt to and from packed formats. With two operands, a
// becomes the upper half and b the lower.
func cvtPackedFunc(in *isa.Inst) laneFunc {
	if in.Rnd == "rs" {
		return nil
	}
	r := roundingOf(in.Rnd)
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
			x := clamp(float64(f32of(a)))
			if x != x {
				return nanTF32(a, r, satfinite)
			}
			if satfinite {
				x = clampFinite(x, ptx.TF32)
			}
			return uint64(smallFrom64(x, 8, 10, r)) << 13
		}
	case ptx.F16x2, ptx.BF16x2:
		t := half(in.T)
		if in.U == ptx.F32 {
			one := func(a uint64) uint64 {
				x := clamp(float64(f32of(a)))
				if satfinite {
					x = clampFinite(x, t)
				}
				return halfFrom64(x, t, r)
			}
			return func(a, b, _ uint64) uint64 { return one(a)<<16 | one(b) }
		}
		f, ok := smallFormats[in.U]
		if !ok {
			return nil
		}
		one := func(a uint64) uint64 { return halfFrom64(clamp(f.value(uint32(a))), t, roundNearest) }
		return func(a, _, _ uint64) uint64 { return one(a&0xff) | one(a>>8&0xff)<<16 }
	case ptx.E4M3x2, ptx.E5M2x2, ptx.E2M3x2, ptx.E3M2x2:
		f := smallFormats[in.T]
		if in.U == ptx.F32 {
			return func(a, b, _ uint64) uint64 {
				return uint64(f.round(clamp(float64(f32of(a)))))<<8 | uint64(f.round(clamp(float64(f32of(b)))))
			}
		}
		t := half(in.U)
		return func(a, _, _ uint64) uint64 {
			return uint64(f.round(clamp(halfTo64(a>>16&0xffff, t))))<<8 | uint64(f.round(clamp(halfTo64(a&0xffff, t))))
		}
	}
	return nil
}

// nanTF32 is what becomes of a NaN in .tf32 (H200, driver 580.159, measured): .rna cuts it off, which can leave an infinity,
// and with .satfinite takes the one before that; else it is the one NaN, cut off.
func nanTF32(a uint64, r rounding, satfinite bool) uint64 {
	switch {
	case r == roundAway && satfinite:
		return a&0x80000000 | (a&0x7fffe000 - 0x2000)
	case r == roundAway:
		return a & 0xffffe000
	case satfinite:
		return nan32bits
	}
	return nan32bits &^ 0x1fff
}

// A smallFormat is an 8-bit or smaller float in a byte.
type smallFormat struct {
	e, m   uint
	top    uint32 // the largest finite number
	nan    uint32 // what NaN becomes
	hasInf bool
	hasNaN bool
}

var smallFormats = map[ptx.Type]smallFormat{
	ptx.E4M3x2: {e: 4, m: 3, top: 0x7e, nan: 0x7f, hasNaN: true},
	ptx.E5M2x2: {e: 5, m: 2, top: 0x7b, nan: 0x7f, hasInf: true, hasNaN: true},
	ptx.E2M3x2: {e: 2, m: 3, top: 0x1f, nan: 0x1f},
	ptx.E3M2x2: {e: 3, m: 2, top: 0x1f, nan: 0x1f},
}

func (f smallFormat) value(x uint32) float64 {
	if f.hasInf {
		return smallTo64(x, f.e, f.m)
	}
	mag := x & (1<<(f.e+f.m) - 1)
	if f.hasNaN && mag == f.nan {
		return math.NaN()
	}
	return f.magnitude(x)
}

// magnitude reads x with every exponent meaning a number.
func (f smallFormat) magnitude(x uint32) float64 {
	exp, frac := int(x>>f.m&(1<<f.e-1)), x&(1<<f.m-1)
	bias := 1<<(f.e-1) - 1
	v := math.Ldexp(float64(frac|1<<f.m), exp-bias-int(f.m))
	if exp == 0 {
		v = math.Ldexp(float64(frac), 1-bias-int(f.m))
	}
	if x>>(f.e+f.m)&1 != 0 {
		return -v
	}
	return v
}

// round is to nearest even, with .satfinite.
func (f smallFormat) round(x float64) uint32 {
	if x != x {
		return f.nan
	}
	limit := f.magnitude(f.top)
	var sign uint32
	if math.Signbit(x) {
		sign = 1 << (f.e + f.m)
	}
	if math.Abs(x) >= limit {
		return sign | f.top
	}
	return sign | f.nearest(math.Abs(x))
}

// nearest finds the number next to x ≥ 0, below the limit.
func (f smallFormat) nearest(x float64) uint32 {
	lo, hi := uint32(0), f.top
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; f.magnitude(mid) <= x {
			lo = mid
		} else {
			hi = mid
		}
	}
	a, b := x-f.magnitude(lo), f.magnitude(hi)-x
	if a < b || a == b && lo&1 == 0 {
		return lo
	}
	return hi
}
