package number

import (
	"math"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// Widen is the value of a float register.
func Widen(a uint64, t ptx.Type, ftz bool) float64 {
	switch t {
	case ptx.F64:
		return F64(a)
	case ptx.F32:
		if ftz {
			return float64(Flush32(F32(a)))
		}
		return float64(F32(a))
	}
	return HalfValue(a&0xffff, t)
}

// Narrow rounds to a float register.
func Narrow(x float64, t ptx.Type, r Rounding, sat, ftz bool) uint64 {
	if sat {
		if x > 0 {
			x = min(x, 1)
		} else {
			x = 0
		}
	}
	switch t {
	case ptx.F64:
		return Bits64(x)
	case ptx.F32:
		f := Canon32(Round32(x, r))
		if ftz {
			f = Flush32(f)
		}
		return Bits32(f)
	}
	return RoundHalf(x, t, r)
}

// RoundIntegral rounds to an integer.
func RoundIntegral(x float64, r Rounding) float64 {
	switch r {
	case ToZero:
		return math.Trunc(x)
	case Down:
		return math.Floor(x)
	case Up:
		return math.Ceil(x)
	}
	return math.RoundToEven(x)
}

// ToInt saturates a number.
func ToInt(x float64, t ptx.Type, r Rounding) uint64 {
	x = RoundIntegral(x, r)
	m := isa.Bits(t)
	mask := ^uint64(0) >> (64 - m)
	if isa.Signed(t) {
		limit := math.Ldexp(1, m-1)
		switch {
		case x >= limit:
			return mask >> 1
		case x <= -limit:
			return mask>>1 + 1
		}
		return uint64(int64(x)) & mask
	}
	switch {
	case x <= 0:
		return 0
	case x >= math.Ldexp(1, m):
		return mask
	case x >= 0x1p63:
		return uint64(x-0x1p63) + 1<<63
	}
	return uint64(x)
}

// FromInt gives the value as float64, rounded to odd where the second
// rounding follows, else in direction r.
func FromInt(a uint64, from, to ptx.Type, r Rounding) float64 {
	n := uint(isa.Bits(from))
	neg := false
	v := ZeroExtend(a, n)
	if isa.Signed(from) {
		if s := SignExtend(a, n); s < 0 {
			neg, v = true, uint64(-s)
		}
	}
	// Upper and lower half are exact; so is the error of their sum.
	hi, lo := float64(v>>32)*0x1p32, float64(v&0xffffffff)
	if neg {
		hi, lo = -hi, -lo
	}
	if to == ptx.F64 {
		return Add64(hi, lo, r)
	}
	return AddOdd(hi, lo)
}

// ConvertNaN is what a conversion of floats makes of a NaN, where that is not the one NaN of the result's format: the
// upper bits of the fraction are kept, and but for those to f32 that need no arithmetic NaN becomes a quiet one (H200,
// driver 580.159, measured).
func ConvertNaN(a uint64, from, to ptx.Type, rnd string, ftz bool) (uint64, bool) {
	switch {
	case from == ptx.F32 && to == ptx.F32 && rnd == "" && !ftz:
		return a & 0xffffffff, true
	case from == ptx.BF16 && to == ptx.F32 && !ftz:
		return a & 0xffff << 16, true
	case from == ptx.F64 && to == ptx.F64:
		return a | 1<<51, true
	case from == ptx.BF16 && to == ptx.F64:
		return a&0x8000<<48 | 0x7ff8<<48 | a&0x7f<<45, true
	case from == ptx.F16 && to == ptx.F64:
		return a&0x8000<<48 | 0x7ff8<<48 | a&0x3ff<<42, true
	case from == ptx.F64 && to == ptx.F32:
		return a>>63<<31 | 0x7fc00000 | a>>29&0x7fffff, true
	case from == ptx.F64 && to == ptx.F16:
		return a>>63<<15 | 0x7e00 | a>>42&0x3ff, true
	case from == ptx.F64 && to == ptx.BF16:
		return a>>63<<15 | 0x7fc0 | a>>45&0x7f, true
	}
	return 0, false
}

// ClampFinite replaces values beyond the largest number of t by it.
func ClampFinite(x float64, t ptx.Type) float64 {
	limit := 65504.0
	switch t {
	case ptx.BF16:
		limit = 0x1.fep127
	case ptx.F32, ptx.TF32:
		limit = 0x1.ffcp127
	}
	if math.Abs(x) > limit {
		return math.Copysign(limit, x)
	}
	return x
}

// Narrow32 is cvt.rn.f32.f64.
func Narrow32(x float64) float32 {
	if x != x {
		b, _ := ConvertNaN(math.Float64bits(x), ptx.F64, ptx.F32, "rn", false)
		return math.Float32frombits(uint32(b))
	}
	return float32(x)
}
