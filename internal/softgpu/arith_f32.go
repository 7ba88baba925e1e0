package softgpu

import (
	"math"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// f32Func is f32 arithmetic.
//
// Errors of the approximate instructions against the exact result: each is
// computed in float64 (relative error below 2^-50) and rounded to nearest, so
// at most 0.5001 ulp. sin and cos reduce their argument with a value of π of
// more than 100 bits (exactly, from 2^29 on), so next to their zeros the absolute error is
// below 2^-40. div.approx gives 0 for divisors above 2^126, as the ISA says.
func f32Func(in *isa.Inst) laneFunc {
	f := number.Op(floatKey(in))
	switch in.Op {
	case "min", "max":
		f = minMax32(in)
	case "copysign":
		return copysignFunc(in)
	}
	ftz, sat := in.Has(isa.Ftz), in.Has(isa.Sat)
	if f == nil || !ftz && !sat {
		return f
	}
	return func(a, b, c uint64) uint64 {
		if ftz {
			a, b, c = flushBits(a), flushBits(b), flushBits(c)
		}
		r := f(a, b, c)
		if ftz {
			r = flushBits(r)
			if r<<1&0xffffffff == 0x01000000 {
				r = flushTiny(in.Op, f, a, b, c, r)
			}
		}
		if sat {
			r = number.Bits32(number.Sat32(number.F32(r)))
		}
		return r
	}
}

func flushBits(x uint64) uint64 { return number.Bits32(number.Flush32(number.F32(x))) }

// flushTiny is what .ftz makes of r, the smallest normal number, to which a result below it may have been rounded up: a
// GPU flushes what is below it when the result is rounded to 24 bits with an exponent that has no limit (H200, driver
// 580.159, measured).
func flushTiny(op string, f laneFunc, x, y, z, r uint64) uint64 {
	scaled := func(x uint64) uint64 { return number.Bits32(number.F32(x) * 0x1p24) }
	switch op {
	case "mul", "fma", "mad", "div":
		// None of these can overflow: the result would be larger.
		if number.Abs32(number.F32(f(scaled(x), y, scaled(z)))) < 0x1p-102 {
			return r & 0x80000000
		}
	}
	return r
}

func minMax32(in *isa.Inst) laneFunc {
	isMin, nan, abs, xorSign := in.Op == "min", in.Has(isa.NaN), in.Has(isa.Abs), in.Has(isa.XorSign)
	return func(x, y, _ uint64) uint64 {
		a, b := number.F32(x), number.F32(y)
		sign := math.Float32bits(a) ^ math.Float32bits(b)
		if nan && (a != a || b != b) {
			return number.NaN32
		}
		if abs {
			a, b = math.Float32frombits(math.Float32bits(a)&^(1<<31)),
				math.Float32frombits(math.Float32bits(b)&^(1<<31))
		}
		d := number.Max32
		if isMin {
			d = number.Min32
		}
		r := d(a, b)
		if xorSign && r == r {
			r = math.Float32frombits(math.Float32bits(r)&^(1<<31) | sign&(1<<31))
		}
		return number.Bits32(r)
	}
}

// minMax3 is min and max of three, through a register between.
func (ar arithmetic) minMax3(in *isa.Inst) {
	f := laneOp(in)
	if f == nil {
		ar.fail(in.Src.Pos, "not implemented")
	}
	d := ar.writeExact(in.Args[0].X, in.T)
	var src [3]uint32
	for i := range src {
		src[i] = ar.read(in.Args[i+1].X, in.T)
	}
	ar.emit(inst{kind: kindLane, d: d, a: src[0], b: src[1], c: src[2],
		lane: func(a, b, c uint64) uint64 { return f(f(a, b, 0), c, 0) }})
}

// mixedFunc is add, sub and fma of f32 with f16 or bf16 operands.
func mixedFunc(in *isa.Inst) laneFunc {
	if in.T != ptx.F32 {
		return nil
	}
	one := *in
	one.U = ptx.TypeNone
	f := f32Func(&one)
	if f == nil {
		return nil
	}
	up := func(x uint64) uint64 { return number.Bits32(float32(number.HalfValue(x, in.U))) }
	if in.Op == "fma" {
		return func(a, b, c uint64) uint64 { return f(up(a), up(b), c) }
	}
	return func(a, b, c uint64) uint64 { return f(up(a), b, c) }
}
