package number

import (
	"math"

	"holdfast/ptx"
)

// A Small is an 8-bit or smaller float in a byte.
type Small struct {
	e, m   uint
	top    uint32 // the largest finite number
	nan    uint32 // what NaN becomes
	hasInf bool
	hasNaN bool
}

// SmallFormat is the format of a packed pair, e4m3x2 and its like.
func SmallFormat(t ptx.Type) (Small, bool) {
	switch t {
	case ptx.E4M3x2:
		return Small{e: 4, m: 3, top: 0x7e, nan: 0x7f, hasNaN: true}, true
	case ptx.E5M2x2:
		return Small{e: 5, m: 2, top: 0x7b, nan: 0x7f, hasInf: true, hasNaN: true}, true
	case ptx.E2M3x2:
		return Small{e: 2, m: 3, top: 0x1f, nan: 0x1f}, true
	case ptx.E3M2x2:
		return Small{e: 3, m: 2, top: 0x1f, nan: 0x1f}, true
	}
	return Small{}, false
}

// Value is the number whose bits are x.
func (f Small) Value(x uint32) float64 {
	if f.hasInf {
		return SmallValue(x, f.e, f.m)
	}
	mag := x & (1<<(f.e+f.m) - 1)
	if f.hasNaN && mag == f.nan {
		return math.NaN()
	}
	return f.magnitude(x)
}

// magnitude reads x with every exponent meaning a number.
func (f Small) magnitude(x uint32) float64 {
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

// Round gives the nearest number, ties to even, with .satfinite.
func (f Small) Round(x float64) uint32 {
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
func (f Small) nearest(x float64) uint32 {
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

// NaNTF32 is what becomes of a NaN in .tf32 (H200, driver 580.159, measured): .rna cuts it off, which can leave an
// infinity, and with .satfinite takes the one before that; else it is the one NaN, cut off.
func NaNTF32(a uint64, r Rounding, satfinite bool) uint64 {
	switch {
	case r == Away && satfinite:
		return a&0x80000000 | (a&0x7fffe000 - 0x2000)
	case r == Away:
		return a & 0xffffe000
	case satfinite:
		return NaN32
	}
	return NaN32 &^ 0x1fff
}
