package softgpu

import (
	"math"

	"holdfast/internal/isa"
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
	r := roundingOf(in.Rnd)
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
			x := load64(a, in.U, ftz)
			if x != x {
				return nan
			}
			return floatToInt(x, in.T, r)
		}
	case !fromFloat:
		return func(a, _, _ uint64) uint64 { return store64(intToFloat(a, in.U, in.T, r), in.T, r, sat, false) }
	}
	return floatToFloat(in, r, integral)
}

// load64 is the value of a float register.
func load64(a uint64, t ptx.Type, ftz bool) float64 {
	switch t {
	case ptx.F64:
		return f64of(a)
	case ptx.F32:
		if ftz {
			return float64(flush32(f32of(a)))
		}
		return float64(f32of(a))
	}
	return halfTo64(a&0xffff, t)
}

// store64 rounds to a float register.
func store64(x float64, t ptx.Type, r rounding, sat, ftz bool) uint64 {
	if sat {
		if x > 0 {
			x = min(x, 1)
		} else {
			x = 0
		}
	}
	switch t {
	case ptx.F64:
		return bits64of(x)
	case ptx.F32:
		f := canon32(round32(x, r))
		if ftz {
			f = flush32(f)
		}
		return bits32(f)
	}
	return halfFrom64(x, t, r)
}

func intToInt(from, to ptx.Type, sat bool) laneFunc {
	n, m := uint(isa.Bits(from)), uint(isa.Bits(to))
	mask := ^uint64(0) >> (64 - m)
	src, dst := isa.Signed(from), isa.Signed(to)
	return func(a, _, _ uint64) uint64 {
		if src {
			v := signExtend(a, n)
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
		v := zeroExtend(a, n)
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

// roundIntegral rounds to an integer.
func roundIntegral(x float64, r rounding) float64 {
	switch r {
	case roundZero:
		return math.Trunc(x)
	case roundDown:
		return math.Floor(x)
	case roundUp:
		return math.Ceil(x)
	}
	return math.RoundToEven(x)
}

// floatToInt saturates a number.
func floatToInt(x float64, t ptx.Type, r rounding) uint64 {
	x = roundIntegral(x, r)
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

// intToFloat gives the value as float64, rounded to odd where the second
// rounding follows, else in direction r.
func intToFloat(a uint64, from, to ptx.Type, r rounding) float64 {
	n := uint(isa.Bits(from))
	neg := false
	v := zeroExtend(a, n)
	if isa.Signed(from) {
		if s := signExtend(a, n); s < 0 {
			neg, v = true, uint64(-s)
		}
	}
	// Upper and lower half are exact; so is the error of their sum.
	hi, lo := float64(v>>32)*0x1p32, float64(v&0xffffffff)
	if neg {
		hi, lo = -hi, -lo
	}
	if to == ptx.F64 {
		return add64(hi, lo, r)
	}
	return addOdd(hi, lo)
}

func floatToFloat(in *isa.Inst, r rounding, integral bool) laneFunc {
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
		x := load64(a, from, ftz)
		if x != x && !sat && !relu && !satfinite {
			if b, ok := convertNaN(a, from, to, in.Rnd, ftz); ok {
				return b
			}
		}
		if integral {
			if x == x {
				x = math.Copysign(roundIntegral(x, r), x)
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
			x = clampFinite(x, to)
		}
		return store64(x, to, r, sat, ftz)
	}
}

// convertNaN is what a conversion of floats makes of a NaN, where that is not the one NaN of the result's format: the upper bits of the
// fraction are kept, and but for those to f32 that need no arithmetic NaN becomes a quiet one (H200, driver 580.159, measured).
func convertNaN(a uint64, from, to ptx.Type, rnd string, ftz bool) (uint64, bool) {
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

// clampFinite replaces values beyond the largest number of t by it.
func clampFinite(x float64, t ptx.Type) float64 {
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
		return zeroExtend(uint64(v), n)
	}
	if n == 16 {
		return func(a, b, _ uint64) uint64 { return one(a)<<16 | one(b) }
	}
	return func(a, b, c uint64) uint64 { return (c<<(2*n) | one(a)<<n | one(b)) & 0xffffffff }
}
