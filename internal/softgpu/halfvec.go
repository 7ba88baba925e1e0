package softgpu

import (
	"math"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// Vector forms of the 16-bit formats: conversions from and to f32, and add, sub, mul and fma, one number
// or two in a register, rounded to nearest even. Numbers in the normal range are handled here, all others
// (NaN, infinities, subnormals) by the scalar form.
//
// Arithmetic is float64 and then rounded. Products are exact; a sum that float64 has to round is never next to the
// middle between two numbers of 11 bits or fewer, but for a bf16 fma, which rounds to odd first.

// A halfFormat is f16 or bf16.
type halfFormat struct {
	shift    uint   // of the fraction, to that of float64
	bias     uint64 // what the exponent differs from float64's
	min, max uint32 // magnitudes of the smallest normal number and of infinity
	lo, hi   uint64 // float64 bits of magnitudes that round to normal numbers: lo ≤ x < hi
}

var (
	formatF16  = halfFormat{shift: 42, bias: (1023 - 15) << 52, min: 0x0400, max: 0x7c00, lo: 0x3f10000000000000, hi: 0x40effe0000000000}
	formatBF16 = halfFormat{shift: 45, bias: (1023 - 127) << 52, min: 0x0080, max: 0x7f80, lo: 0x3810000000000000, hi: 0x47eff00000000000}
)

// value is the number h; ok is false for what is not normal and not zero.
func (f *halfFormat) value(h uint32) (x float64, ok bool) {
	em := h & 0x7fff
	sign := uint64(h&0x8000) << 48
	if em-f.min < f.max-f.min {
		return math.Float64frombits(sign | (uint64(em)<<f.shift + f.bias)), true
	}
	return math.Float64frombits(sign), em == 0
}

// round gives the nearest number; ok is false for what does not become a normal one or is not zero.
func (f *halfFormat) round(x float64) (h uint32, ok bool) {
	u := math.Float64bits(x)
	sign := uint32(u>>48) & 0x8000
	u &^= 1 << 63
	if u-f.lo < f.hi-f.lo {
		u += 1<<(f.shift-1) - 1 + u>>f.shift&1
		return sign | uint32((u-f.bias)>>f.shift), true
	}
	return sign, u == 0
}

func halfFormatOf(t ptx.Type) *halfFormat {
	switch t {
	case ptx.F16, ptx.F16x2:
		return &formatF16
	case ptx.BF16, ptx.BF16x2:
		return &formatBF16
	}
	return nil
}

// halfVec is the vector form of in, whose scalar form is scalar; nil = there is none.
func halfVec(in *isa.Inst, scalar laneFunc) vecFunc {
	if scalar == nil || in.Flags != 0 || in.Rnd != "" && in.Rnd != "rn" || in.V != ptx.TypeNone {
		return nil
	}
	to, from := halfFormatOf(in.T), halfFormatOf(in.U)
	switch {
	case in.Op == "cvt" && in.T == ptx.F32 && (in.U == ptx.F16 || in.U == ptx.BF16):
		return func(d, a, _, _ unsafe.Pointer) {
			D, A := (*[32]uint32)(d), (*[32]uint32)(a)
			for i, h := range A {
				if x, ok := from.value(h); ok {
					D[i] = math.Float32bits(float32(x))
				} else {
					D[i] = uint32(scalar(uint64(h), 0, 0))
				}
			}
		}
	case in.Op == "cvt" && in.U == ptx.F32 && (in.T == ptx.F16 || in.T == ptx.BF16) && in.Rnd == "rn":
		return func(d, a, _, _ unsafe.Pointer) {
			D, A := (*[32]uint32)(d), (*[32]float32)(a)
			for i, x := range A {
				h, ok := to.round(float64(x))
				if !ok {
					h = uint32(scalar(uint64(math.Float32bits(x)), 0, 0))
				}
				D[i] = h
			}
		}
	case in.Op == "cvt" && in.U == ptx.F32 && (in.T == ptx.F16x2 || in.T == ptx.BF16x2) && in.Rnd == "rn" && len(in.Args) == 3:
		return func(d, a, b, _ unsafe.Pointer) {
			D, A, B := (*[32]uint32)(d), (*[32]float32)(a), (*[32]float32)(b)
			for i, x := range A {
				hi, ok1 := to.round(float64(x))
				lo, ok2 := to.round(float64(B[i]))
				if ok1 && ok2 {
					D[i] = hi<<16 | lo
				} else {
					D[i] = uint32(scalar(uint64(math.Float32bits(x)), uint64(math.Float32bits(B[i])), 0))
				}
			}
		}
	case to == nil || in.U != ptx.TypeNone:
		return nil
	}
	pair := in.T == ptx.F16x2 || in.T == ptx.BF16x2
	op, ok := map[string]halfOp{"add": halfAdd, "sub": halfSub, "mul": halfMul, "fma": halfFMA}[in.Op]
	if !ok {
		return nil
	}
	if op == halfFMA && to == &formatBF16 {
		op = halfFMAOdd
	}
	return halfLoop(to, op, scalar, pair)
}

// A halfOp is an operation of halfLoop.
type halfOp uint8

const (
	halfAdd halfOp = iota
	halfSub
	halfMul
	halfFMA
	halfFMAOdd // the sum rounded to odd
)

// apply is one operation. Zeros that a sum makes have a sign of their own: they go the scalar way.
func (f *halfFormat) apply(op halfOp, a, b, c uint32) (uint32, bool) {
	x, ok1 := f.value(a)
	y, ok2 := f.value(b)
	ok := ok1 && ok2
	switch op {
	case halfAdd:
		x += y
	case halfSub:
		x -= y
	case halfMul:
		x *= y
	default:
		z, ok3 := f.value(c)
		ok = ok && ok3
		if op == halfFMA {
			x = x*y + z
		} else {
			x = number.AddOdd(x*y, z)
		}
	}
	h, ok4 := f.round(x)
	return h, ok && ok4 && h&0x7fff != 0
}

func halfLoop(f *halfFormat, op halfOp, scalar laneFunc, pair bool) vecFunc {
	return func(d, a, b, c unsafe.Pointer) {
		D, A, B, C := (*[32]uint32)(d), (*[32]uint32)(a), (*[32]uint32)(b), (*[32]uint32)(c)
		for i := range D {
			x, y, z := A[i], B[i], C[i]
			lo, ok := f.apply(op, x&0xffff, y&0xffff, z&0xffff)
			if pair && ok {
				var hi uint32
				hi, ok = f.apply(op, x>>16, y>>16, z>>16)
				lo |= hi << 16
			}
			if !ok {
				lo = uint32(scalar(uint64(x), uint64(y), uint64(z)))
			}
			D[i] = lo
		}
	}
}

// subnormal reports whether one of 32 f32 is subnormal.
func subnormal(p unsafe.Pointer) bool {
	var below uint64
	for i := range (*[8][4]uint32)(p) {
		q := &(*[8][4]uint32)(p)[i]
		below |= uint64(q[0]<<1-1) - 0xffffff
		below |= uint64(q[1]<<1-1) - 0xffffff
		below |= uint64(q[2]<<1-1) - 0xffffff
		below |= uint64(q[3]<<1-1) - 0xffffff
	}
	return below>>63 != 0
}

// nearSubnormal reports whether one of 32 f32 is subnormal or the smallest normal number.
func nearSubnormal(p unsafe.Pointer) bool {
	var below uint64
	for i := range (*[8][4]uint32)(p) {
		q := &(*[8][4]uint32)(p)[i]
		below |= uint64(q[0]<<1-1) - 0x1000000
		below |= uint64(q[1]<<1-1) - 0x1000000
		below |= uint64(q[2]<<1-1) - 0x1000000
		below |= uint64(q[3]<<1-1) - 0x1000000
	}
	return below>>63 != 0
}

// flushed makes subnormal numbers zero, in a copy if there are any: .ftz.
func flushed(p unsafe.Pointer) unsafe.Pointer {
	if !subnormal(p) {
		return p
	}
	x := *(*[32]uint32)(p)
	flush(&x)
	return unsafe.Pointer(&x)
}

func flush(x *[32]uint32) {
	for i, u := range x {
		if u&0x7f800000 == 0 {
			x[i] = u & (1 << 31)
		}
	}
}

// ftzVec is the vector form of an f32 instruction with .ftz, from that of the one without.
func ftzVec(in *isa.Inst) vecFunc {
	if in.T != ptx.F32 || in.Flags != isa.Ftz || in.U != ptx.TypeNone {
		return nil
	}
	switch in.Op {
	case "add", "sub", "mul", "fma":
	default:
		return nil
	}
	plain := *in
	plain.Flags = 0
	f := vecOps[vecKey(&plain)]
	if f == nil {
		return nil
	}
	scalar := f32Func(in)
	switch in.Op {
	case "mul":
		return func(d, a, b, c unsafe.Pointer) {
			var out [32]uint32 // d may be an operand
			a, b = flushed(a), flushed(b)
			vMulF32(unsafe.Pointer(&out), a, b, c)
			if nearSubnormal(unsafe.Pointer(&out)) {
				flushAgain(&out, scalar, a, b, c)
			}
			*(*[32]uint32)(d) = out
		}
	case "fma":
		return func(d, a, b, c unsafe.Pointer) {
			var out [32]uint32
			a, b, c = flushed(a), flushed(b), flushed(c)
			vFmaF32(unsafe.Pointer(&out), a, b, c)
			if nearSubnormal(unsafe.Pointer(&out)) {
				flushAgain(&out, scalar, a, b, c)
			}
			*(*[32]uint32)(d) = out
		}
	}
	return func(d, a, b, c unsafe.Pointer) { // sums that are subnormal are exact
		f(d, flushed(a), flushed(b), flushed(c))
		if subnormal(d) {
			flush((*[32]uint32)(d))
		}
	}
}

// flushAgain makes the results that are subnormal, or to which a subnormal one may have been rounded up, by the scalar form.
func flushAgain(out *[32]uint32, scalar laneFunc, a, b, c unsafe.Pointer) {
	A, B, C := (*[32]uint32)(a), (*[32]uint32)(b), (*[32]uint32)(c)
	for i, u := range out {
		if u<<1 != 0 && u<<1 <= 0x01000000 {
			out[i] = uint32(scalar(uint64(A[i]), uint64(B[i]), uint64(C[i])))
		}
	}
}
