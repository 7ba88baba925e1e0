package softgpu

import (
	"math"
	"math/big"
	"strings"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// conversion is cvt.
func conversion(in *isa.Inst) (meaning, bool) {
	to, toFloat := floatOf(in.T)
	from, fromFloat := floatOf(in.U)
	switch {
	case !toFloat && !fromFloat && isInteger(in.T) && isInteger(in.U):
		return meaning{value: func(x []uint64) uint64 {
			v := bigOf(x[0], isa.Bits(in.U), isa.Signed(in.U))
			if in.Has(isa.Sat) {
				v = clampTo(v, isa.Bits(in.T), isa.Signed(in.T))
			}
			return extended(wrapTo(v, isa.Bits(in.T)), in.T)
		}}, true
	case fromFloat && isInteger(in.T):
		return meaning{value: func(x []uint64) uint64 {
			a := x[0]
			if in.Has(isa.Ftz) {
				a = from.flush(a)
			}
			v := new(big.Int)
			switch {
			case from.isNaN(a):
				return extended(integerOfNaN(from, isa.Bits(in.T)), in.T)
			case from.isInf(a):
				v.Lsh(big.NewInt(1), 100)
				if from.neg(a) {
					v.Neg(v)
				}
			default:
				v = roundRat(from.rat(a), strings.TrimSuffix(in.Rnd, "i"))
			}
			return extended(wrapTo(clampTo(v, isa.Bits(in.T), isa.Signed(in.T)), isa.Bits(in.T)), in.T)
		}}, true
	case toFloat && isInteger(in.U):
		return meaning{value: func(x []uint64) uint64 {
			v := bigOf(x[0], isa.Bits(in.U), isa.Signed(in.U))
			d := uint64(0)
			if v.Sign() != 0 {
				d = to.round(new(big.Rat).SetInt(v), in.Rnd, false)
			}
			if in.Has(isa.Sat) {
				d = to.sat(d)
			}
			return d
		}}, true
	case toFloat && fromFloat:
		return floatConversion(in, from, to), true
	}
	f := packedConversion(in)
	return meaning{value: f}, f != nil
}

func isInteger(t ptx.Type) bool {
	switch t {
	case ptx.U8, ptx.S8, ptx.U16, ptx.S16, ptx.U32, ptx.S32, ptx.U64, ptx.S64:
		return true
	}
	return false
}

// extended is a result in a register that is wider than its type.
func extended(x uint64, t ptx.Type) uint64 {
	w := isa.Bits(t)
	if isa.Signed(t) && x>>(w-1)&1 != 0 {
		return x | ^uint64(0)<<w
	}
	return x
}

func floatConversion(in *isa.Inst, from, to floatFormat) meaning {
	value := func(x []uint64) uint64 {
		a := x[0]
		if in.Has(isa.Ftz) && from.name == "f32" && to.name != "f16" { // H200, driver 580.159, measured
			a = from.flush(a)
		}
		mode := in.Rnd
		var d uint64
		if from.isNaN(a) {
			d = convertedNaN(from, to, a, mode, in.Has(isa.Ftz))
		} else if integral, ok := strings.CutSuffix(mode, "i"); ok && !from.isNaN(a) &&
			!from.isInf(a) && !from.zero(a) {
			v := roundRat(from.rat(a), integral)
			switch {
			case v.Sign() != 0:
				d = to.round(new(big.Rat).SetInt(v), "rn", false)
			case from.neg(a):
				d = to.signBit()
			}
		} else {
			if mode == "" {
				mode = "rn"
			}
			d = convertFloat(from, to, a, mode)
		}
		if in.Has(isa.Satfinite) && !to.isNaN(d) && to.isInf(d) {
			d-- // the largest number
		}
		if in.Has(isa.Ftz) && to.name == "f32" {
			d = to.flush(d)
		}
		if in.Has(isa.Sat) {
			d = to.sat(d)
		}
		if in.Has(isa.Relu) && to.neg(d) && !to.isNaN(d) {
			d = 0
		}
		return d
	}
	m := meaning{value: value}
	if to.name == "f64" {
		m.near = func(x []uint64, got uint64) string {
			if want := value(x); got != want && !(to.isNaN(want) && to.isNaN(got)) {
				return same(want, got)
			}
			return ""
		}
	}
	return m
}

// tiny is a format of at most 8 bits, by the table of its values.
type tiny struct {
	e, m      int
	inf, nans bool // e5m2 has infinities and NaNs, e4m3 one NaN, the others neither
	toNaN     uint64
}

var tinyFormats = map[ptx.Type]tiny{
	ptx.E4M3x2: {4, 3, false, true, 0x7f},
	ptx.E5M2x2: {5, 2, true, true, 0x7f},
	ptx.E2M3x2: {2, 3, false, false, 0x1f},
	ptx.E3M2x2: {3, 2, false, false, 0x1f},
	ptx.E2M1x2: {2, 1, false, false, 0x7},
}

func (f tiny) isNaN(code int) bool {
	switch {
	case f.inf:
		return code > 0x7c
	case f.nans:
		return code == 0x7f
	}
	return false
}

// magnitude is the value of a code without its sign.
func (f tiny) magnitude(code int) *big.Rat {
	exp, frac := code>>f.m, int64(code&(1<<f.m-1))
	if exp == 0 {
		exp = 1
	} else {
		frac += 1 << f.m
	}
	return new(big.Rat).Mul(new(big.Rat).SetInt64(frac), pow2(exp-(1<<(f.e-1)-1)-f.m))
}

// encode is the code nearest to a number of another format, ties to even codes; beyond the largest it is the largest.
func (f tiny) encode(from floatFormat, x uint64, relu bool) uint64 {
	if from.isNaN(x) {
		return f.toNaN
	}
	if relu && from.neg(x) {
		return 0
	}
	var sign uint64
	if from.neg(x) {
		sign = 1 << (f.e + f.m)
	}
	a := pow2(200)
	if !from.isInf(x) {
		a = new(big.Rat).Abs(from.rat(x))
	}
	best, dist := 0, new(big.Rat).Set(a)
	for code := 1; code < 1<<(f.e+f.m); code++ {
		if f.isNaN(code) || f.inf && code == 0x7c {
			continue
		}
		d := new(big.Rat).Sub(a, f.magnitude(code))
		if c := d.Abs(d).Cmp(dist); c < 0 || c == 0 && code&1 == 0 {
			best, dist = code, d
		}
	}
	return sign | uint64(best)
}

func (f tiny) decode(code int, to floatFormat, relu bool) uint64 {
	var sign uint64
	if code>>(f.e+f.m)&1 != 0 {
		sign = to.signBit()
	}
	code &= 1<<(f.e+f.m) - 1
	switch {
	case f.isNaN(code):
		return to.nan
	case relu && sign != 0:
		return 0
	case f.inf && code == 0x7c:
		return sign | to.inf()
	case code == 0:
		return sign
	}
	return sign | to.round(f.magnitude(code), "rn", false)
}

// packedConversion is cvt to and from packed and narrow formats, and to tf32.
func packedConversion(in *isa.Inst) scalar {
	relu := in.Has(isa.Relu)
	if in.T == ptx.TF32 {
		tf32 := floatFormat{"tf32", 8, 10, 0}
		return func(x []uint64) uint64 {
			a := x[0]
			switch {
			case binary32.isNaN(a): // H200, driver 580.159, measured
				switch {
				case in.Rnd == "rna" && in.Has(isa.Satfinite): // cut off, and one less
					return a&binary32.signBit() | (a&^binary32.signBit()/8192-1)*8192
				case in.Rnd == "rna":
					return a >> 13 << 13
				case in.Has(isa.Satfinite):
					return binary32.nan
				}
				return binary32.nan >> 13 << 13
			case relu && binary32.neg(a):
				return 0
			case binary32.zero(a):
				return a
			case binary32.isInf(a):
				if in.Has(isa.Satfinite) {
					return a&binary32.signBit() | (tf32.inf()-1)<<13
				}
				return a
			}
			d := tf32.round(binary32.rat(a), in.Rnd, false)
			if in.Has(isa.Satfinite) && tf32.isInf(d) {
				d--
			}
			return d << 13
		}
	}
	if elem, n := elementOf(in.T); n == 2 && in.U == ptx.F32 {
		one := *in
		one.T = elem
		to, _ := floatOf(elem)
		f := floatConversion(&one, binary32, to).value
		if in.Rnd == "rs" {
			return nil
		}
		return func(x []uint64) uint64 { return f(x[:1])<<16 | f(x[1:2]) }
	}
	if f, ok := tinyFormats[in.T]; ok {
		if in.U == ptx.F32 {
			return func(x []uint64) uint64 {
				return f.encode(binary32, x[0], relu)<<8 | f.encode(binary32, x[1], relu)
			}
		}
		elem, _ := elementOf(in.U)
		from, _ := floatOf(elem)
		return func(x []uint64) uint64 {
			return f.encode(from, x[0]>>16, relu)<<8 | f.encode(from, x[0]&0xffff, relu)
		}
	}
	if f, ok := tinyFormats[in.U]; ok {
		elem, _ := elementOf(in.T)
		to, _ := floatOf(elem)
		return func(x []uint64) uint64 {
			return f.decode(int(x[0]&0xff), to, relu) | f.decode(int(x[0]>>8&0xff), to, relu)<<16
		}
	}
	return nil
}

// packMeaning is cvt.pack: a above b, above the lower part of c.
func packMeaning(in *isa.Inst) scalar {
	w := isa.Bits(in.T)
	switch in.T {
	case ptx.U4, ptx.S4:
		w = 4
	case ptx.U2, ptx.S2:
		w = 2
	}
	return func(x []uint64) uint64 {
		one := func(x uint64) uint64 { return wrapTo(clampTo(bigOf(x, 32, true), w, isa.Signed(in.T)), w) }
		d := one(x[0])<<w | one(x[1])
		if w < 16 {
			d |= x[2] << (2 * w)
		}
		return d & math.MaxUint32
	}
}

// videoMeaning is the ISA's pseudocode of the video instructions (9.7.17, 9.7.18), with whole registers as operands.
func videoMeaning(in *isa.Inst) scalar {
	name := strings.TrimRight(in.Op, "24")
	parts := 1
	switch in.Op[len(in.Op)-1] {
	case '2':
		parts = 2
	case '4':
		parts = 4
	}
	w := 32 / parts
	z := func() *big.Int { return new(big.Int) }
	signed := isa.Signed(in.T)
	lane := func(a, b *big.Int) *big.Int {
		switch name {
		case "vadd":
			return z().Add(a, b)
		case "vsub":
			return z().Sub(a, b)
		case "vabsdiff":
			return z().Abs(z().Sub(a, b))
		case "vavrg":
			s := z().Add(a, b)
			if s.Sign() >= 0 {
				s.Add(s, big.NewInt(1))
			}
			return s.Rsh(s, 1)
		case "vmin":
			if a.Cmp(b) < 0 {
				return a
			}
			return b
		case "vmax":
			if a.Cmp(b) > 0 {
				return a
			}
			return b
		case "vset":
			holds := map[string]bool{"eq": a.Cmp(b) == 0, "ne": a.Cmp(b) != 0, "lt": a.Cmp(b) < 0, "le": a.Cmp(b) <= 0,
				"gt": a.Cmp(b) > 0, "ge": a.Cmp(b) >= 0}
			return z().SetUint64(number.FromBool(holds[in.Cmp]))
		case "vshl", "vshr":
			n := wrapTo(b, 32)
			if in.Mode2 == "wrap" {
				n &= 31
			} else {
				n = min(n, 32)
			}
			if name == "vshl" {
				return z().Lsh(a, uint(n))
			}
			return z().Rsh(a, uint(n))
		}
		return nil
	}
	if name == "vmad" {
		return func(x []uint64) uint64 {
			su, sv := isa.Signed(in.U), isa.Signed(in.V)
			// All three have a sign, whatever the types say: H200, driver 580.159, measured. So for the rest of this
			// function.
			v := z().Mul(bigOf(x[0], 32, true), bigOf(x[1], 32, true))
			v.Add(v, bigOf(x[2], 32, true))
			if in.Mode == "po" {
				v.Add(v, big.NewInt(1))
			}
			if in.Mode2 != "" && !su && !sv {
				v.SetUint64(wrapTo(v, 64))
			}
			switch in.Mode2 {
			case "shr7":
				v.Rsh(v, 7)
			case "shr15":
				v.Rsh(v, 15)
			}
			if in.Has(isa.Sat) {
				v = clampTo(v, 32, su || sv)
			}
			return wrapTo(v, 32)
		}
	}
	if lane(z(), z()) == nil {
		return nil
	}
	return func(x []uint64) uint64 {
		var sum uint64
		if len(x) > 2 {
			sum = x[2]
		}
		var d uint64
		for i := range parts {
			a := bigOf(x[0]>>(i*w), w, isa.Signed(in.U))
			b := bigOf(x[1]>>(i*w), w, isa.Signed(in.V))
			t := lane(a, b)
			if in.Has(isa.Sat) {
				if parts == 1 && name == "vshl" {
					t = bigOf(wrapTo(t, 34), 34, true)
				}
				if parts > 1 || name == "vshl" || signed || t.Sign() < 0 {
					t = clampTo(t, w, signed)
				}
			}
			switch {
			case parts > 1 && in.Mode == "add":
				sum += wrapTo(t, 64)
			case parts > 1 || in.Mode == "":
				d |= wrapTo(t, w) << (i * w)
			case in.Mode == "add":
				d = wrapTo(z().Add(t, bigOf(x[2], 32, signed)), 32)
			default:
				// The secondary minimum and maximum compare numbers of 64 bits, to which sums and saturated shifts are
				// extended with their sign.
				if name == "vadd" || name == "vsub" || in.Has(isa.Sat) && (name == "vshl" || name == "vshr") {
					t = bigOf(wrapTo(t, 32), 32, true)
				}
				signed := signed || name == "vset" && isa.Signed(in.U)
				t, c := bigOf(wrapTo(t, 64), 64, signed), bigOf(x[2], 32, signed)
				if (t.Cmp(c) < 0) == (in.Mode == "min") {
					d = wrapTo(t, 32)
				} else {
					d = wrapTo(c, 32)
				}
			}
		}
		if parts > 1 && in.Mode == "add" {
			return sum & math.MaxUint32
		}
		return d
	}
}
