package softgpu

import (
	"math"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// vFmaF32 rounds once: the float64 sum of the exact product is rounded a
// second time only where that cannot matter, that is, not in the middle between two f32
// and not to a subnormal one. Those, zeros and NaN, are looked at again.
func vFmaF32(d, a, b, c unsafe.Pointer) {
	D, A, B, C := (*[16][2]float32)(d), (*[16][2]float32)(a), (*[16][2]float32)(b), (*[16][2]float32)(c)
	for i := range D {
		d, a, b, c := &D[i], &A[i], &B[i], &C[i]
		s := float64(a[0])*float64(b[0]) + float64(c[0])
		t := float64(a[1])*float64(b[1]) + float64(c[1])
		r, q := float32(s), float32(t)
		if k := math.Float64bits(s); k&0x1fffffff == 0x10000000 || k<<1-normal32 > infinite-normal32 {
			r = fma32again(a[0], b[0], c[0], s)
		}
		if k := math.Float64bits(t); k&0x1fffffff == 0x10000000 || k<<1-normal32 > infinite-normal32 {
			q = fma32again(a[1], b[1], c[1], t)
		}
		d[0], d[1] = r, q
	}
}

// The bits of float64 without the sign, doubled: of the smallest normal float32, and a bit more, and of infinity.
const (
	normal32 = 0x3810000000000000<<1 + 1
	infinite = 0x7ff0000000000000 << 1
)

func fma32again(a, b, c float32, s float64) float32 {
	if s == 0 {
		return float32(s) // exact
	}
	return number.FMA32(a, b, c)
}

// f32Func is f32 arithmetic.
//
// Errors of the approximate instructions against the exact result: each is
// computed in float64 (relative error below 2^-50) and rounded to nearest, so
// at most 0.5001 ulp. sin and cos reduce their argument with a value of π of
// more than 100 bits (exactly, from 2^29 on), so next to their zeros the absolute error is
// below 2^-40. div.approx gives 0 for divisors above 2^126, as the ISA says.
func f32Func(in *isa.Inst) laneFunc {
	f := f32Core(in)
	if f == nil {
		if in.Op == "testp" || in.Op == "copysign" {
			return copysignFunc(in)
		}
		return nil
	}
	ftz, sat := in.Has(isa.Ftz), in.Has(isa.Sat)
	if !ftz && !sat {
		return func(a, b, c uint64) uint64 {
			return number.Bits32(number.Canon32(f(number.F32(a), number.F32(b), number.F32(c))))
		}
	}
	return func(a, b, c uint64) uint64 {
		x, y, z := number.F32(a), number.F32(b), number.F32(c)
		if ftz {
			x, y, z = number.Flush32(x), number.Flush32(y), number.Flush32(z)
		}
		r := number.Canon32(f(x, y, z))
		if ftz {
			r = number.Flush32(r)
			if math.Float32bits(r)<<1 == 0x01000000 {
				r = flushTiny(in.Op, f, x, y, z, r)
			}
		}
		if sat {
			r = number.Sat32(r)
		}
		return number.Bits32(r)
	}
}

// flushTiny is what .ftz makes of r, the smallest normal number, to which a result below it may have been rounded up: a GPU flushes
// what is below it when the result is rounded to 24 bits with an exponent that has no limit (H200, driver 580.159, measured).
func flushTiny(op string, f func(a, b, c float32) float32, x, y, z, r float32) float32 {
	const scale = 0x1p24
	switch op {
	case "mul", "fma", "mad", "div":
		// None of these can overflow: the result would be larger.
		if number.Abs32(f(x*scale, y, z*scale)) < 0x1p-102 {
			return float32(math.Copysign(0, float64(r)))
		}
	}
	return r
}

func f32Core(in *isa.Inst) func(a, b, c float32) float32 {
	r := number.RoundingOf(in.Rnd)
	switch in.Op {
	case "add":
		return func(a, b, _ float32) float32 { return number.Add32(a, b, r) }
	case "sub":
		return func(a, b, _ float32) float32 { return number.Add32(a, -b, r) }
	case "mul":
		return func(a, b, _ float32) float32 { return number.Round32(float64(a)*float64(b), r) }
	case "fma", "mad":
		return func(a, b, c float32) float32 {
			p := float64(a) * float64(b)
			return number.Round32(number.ZeroSum(number.AddOdd(p, float64(c)), p, float64(c), r), r)
		}
	case "div":
		if in.Has(isa.Approx) {
			return func(a, b, _ float32) float32 {
				if m := number.Abs32(b); a == a && m > 0x1p126 && m <= math.MaxFloat32 {
					if math.IsInf(float64(a), 0) {
						return math.Float32frombits(number.NaN32)
					}
					return float32(math.Copysign(0, float64(a)) * math.Copysign(1, float64(b)))
				}
				return a / b
			}
		}
		return func(a, b, _ float32) float32 { return number.Round32(number.DivOdd(float64(a), float64(b)), r) }
	case "rcp":
		return func(a, _, _ float32) float32 { return number.Round32(number.DivOdd(1, float64(a)), r) }
	case "sqrt":
		return func(a, _, _ float32) float32 { return number.Round32(number.SqrtOdd(float64(a)), r) }
	case "rsqrt":
		return func(a, _, _ float32) float32 { return float32(1 / math.Sqrt(float64(a))) }
	case "sin":
		return func(a, _, _ float32) float32 { return float32(math.Sin(float64(a))) }
	case "cos":
		return func(a, _, _ float32) float32 { return float32(math.Cos(float64(a))) }
	case "lg2":
		return func(a, _, _ float32) float32 { return float32(number.Log2(float64(a))) }
	case "ex2":
		return func(a, _, _ float32) float32 { return float32(math.Exp2(float64(a))) }
	case "tanh":
		return func(a, _, _ float32) float32 { return float32(math.Tanh(float64(a))) }
	case "abs":
		return func(a, _, _ float32) float32 { return number.Abs32(a) }
	case "neg":
		return func(a, _, _ float32) float32 { return number.Neg32(a) }
	case "min", "max":
		return minMax32(in)
	}
	return nil
}

func minMax32(in *isa.Inst) func(a, b, c float32) float32 {
	isMin, nan, abs, xorSign := in.Op == "min", in.Has(isa.NaN), in.Has(isa.Abs), in.Has(isa.XorSign)
	return func(a, b, _ float32) float32 {
		sign := math.Float32bits(a) ^ math.Float32bits(b)
		if nan && (a != a || b != b) {
			return math.Float32frombits(number.NaN32)
		}
		if abs {
			a, b = math.Float32frombits(math.Float32bits(a)&^(1<<31)), math.Float32frombits(math.Float32bits(b)&^(1<<31))
		}
		d := number.Max32
		if isMin {
			d = number.Min32
		}
		r := d(a, b)
		if xorSign && r == r {
			r = math.Float32frombits(math.Float32bits(r)&^(1<<31) | sign&(1<<31))
		}
		return r
	}
}

// minMax3 is min and max of three, through a register between.
func (l *lowering) minMax3(in *isa.Inst) {
	f := laneOp(in)
	if f == nil {
		l.fail(in.Src.Pos, "not implemented")
	}
	d := l.writeExact(in.Args[0].X, in.T)
	var src [3]uint32
	for i := range src {
		src[i] = l.read(in.Args[i+1].X, in.T)
	}
	l.emit(inst{kind: kindLane, d: d, a: src[0], b: src[1], c: src[2], lane: func(a, b, c uint64) uint64 { return f(f(a, b, 0), c, 0) }})
}

// copysignFunc is copysign: the sign of a, the rest of b. Nothing is canonical here.
func copysignFunc(in *isa.Inst) laneFunc {
	if in.Op != "copysign" {
		return nil
	}
	sign := uint64(1) << (isa.Bits(in.T) - 1)
	return func(a, b, _ uint64) uint64 { return b&^sign | a&sign }
}

func testpFunc(in *isa.Inst) laneFunc {
	wide := in.T == ptx.F64
	fn := in.Fn
	return func(a, _, _ uint64) uint64 {
		exp, frac, top := a>>23&0xff, a&0x7fffff, uint64(0xff)
		if wide {
			exp, frac, top = a>>52&0x7ff, a&(1<<52-1), 0x7ff
		}
		switch fn {
		case "finite":
			return number.FromBool(exp != top)
		case "infinite":
			return number.FromBool(exp == top && frac == 0)
		case "number":
			return number.FromBool(exp != top || frac == 0)
		case "notanumber":
			return number.FromBool(exp == top && frac != 0)
		case "normal":
			return number.FromBool(exp != 0 && exp != top || exp == 0 && frac == 0) // zero is normal here: PTX ISA 9.7.3.2
		}
		return number.FromBool(exp == 0 && frac != 0)
	}
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
