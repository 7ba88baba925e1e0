package lanes

import (
	"unsafe"

	"holdfast/internal/softgpu/number"
)

// Ftz is the f32 operation add, sub, mul or fma with .ftz, whose scalar form is given; nil for others.
func Ftz(op string, scalar number.Func) Vec {
	if vectors() {
		if f := simdFtz(op, scalar); f != nil {
			return f
		}
	}
	return loopFtz(op, scalar)
}

// CompareFtz is the f32 comparison of that name with .ftz; nil if there is none.
func CompareFtz(name string) Cmp {
	f := Compare(name)
	if f == nil {
		return nil
	}
	return func(a, b unsafe.Pointer) uint32 { return f(flushed(a), flushed(b)) }
}

func loopFtz(op string, scalar number.Func) Vec {
	f := loops[op+".f32"]
	switch op {
	case "add", "sub":
		return func(d, a, b, c unsafe.Pointer) { // sums that are subnormal are exact
			f(d, flushed(a), flushed(b), c)
			if subnormal(d) {
				flush((*[32]uint32)(d))
			}
		}
	case "mul", "fma":
		return func(d, a, b, c unsafe.Pointer) {
			var out [32]uint32 // d may be an operand
			a, b = flushed(a), flushed(b)
			if op == "fma" {
				c = flushed(c)
			}
			f(unsafe.Pointer(&out), a, b, c)
			if nearSubnormal(unsafe.Pointer(&out)) {
				flushAgain(&out, scalar, a, b, c)
			}
			*(*[32]uint32)(d) = out
		}
	}
	return nil
}

// subnormal reports whether one of 32 f32 is subnormal.
func subnormal(p unsafe.Pointer) bool { return below(p, 0xffffff) }

// nearSubnormal reports whether one of 32 f32 is subnormal or the smallest normal number.
func nearSubnormal(p unsafe.Pointer) bool { return below(p, 0x1000000) }

// below reports whether the magnitude of one of 32 f32, doubled, is at most limit and not zero.
func below(p unsafe.Pointer, limit uint64) bool {
	var below uint64
	for i := range (*[8][4]uint32)(p) {
		q := &(*[8][4]uint32)(p)[i]
		below |= uint64(q[0]<<1-1) - limit
		below |= uint64(q[1]<<1-1) - limit
		below |= uint64(q[2]<<1-1) - limit
		below |= uint64(q[3]<<1-1) - limit
	}
	return below>>63 != 0
}

// flushed makes subnormal numbers zero, in a copy if there are any.
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

// flushAgain makes the results that are subnormal, or to which a subnormal one may have been rounded up, by the scalar
// form.
func flushAgain(out *[32]uint32, scalar number.Func, a, b, c unsafe.Pointer) {
	A, B, C := (*[32]uint32)(a), (*[32]uint32)(b), (*[32]uint32)(c)
	for i, u := range out {
		if u<<1 != 0 && u<<1 <= 0x01000000 {
			out[i] = uint32(scalar(uint64(A[i]), uint64(B[i]), uint64(C[i])))
		}
	}
}
