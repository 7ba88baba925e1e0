package softgpu

import (
	"math"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

const nan32bits = 0x7fffffff

func f32of(x uint64) float32    { return math.Float32frombits(uint32(x)) }
func bits32(x float32) uint64   { return uint64(math.Float32bits(x)) }
func f64of(x uint64) float64    { return math.Float64frombits(x) }
func bits64of(x float64) uint64 { return math.Float64bits(x) }

// canon32 makes a NaN the one that f32 instructions give.
func canon32(x float32) float32 {
	if x != x {
		return math.Float32frombits(nan32bits)
	}
	return x
}

// flush32 turns subnormal numbers into zero of the same sign: .ftz.
func flush32(x float32) float32 {
	b := math.Float32bits(x)
	if b&0x7f800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return x
}

// sat32 clamps to [0, 1]; NaN becomes +0.
func sat32(x float32) float32 {
	if x > 0 {
		return min(x, 1)
	}
	return 0
}

// neg32 and abs32 give the one NaN. The ISA leaves that open (9.7.3.9, 9.7.3.10): on an H200 the same NaN comes out so, or with its bits kept,
// as the assembler pleases.
func neg32(x float32) float32 { return canon32(math.Float32frombits(math.Float32bits(x) ^ 1<<31)) }
func abs32(x float32) float32 { return canon32(math.Float32frombits(math.Float32bits(x) &^ (1 << 31))) }

// narrow32 is cvt.rn.f32.f64.
func narrow32(x float64) float32 {
	if x != x {
		b, _ := convertNaN(math.Float64bits(x), ptx.F64, ptx.F32, "rn", false)
		return math.Float32frombits(uint32(b))
	}
	return float32(x)
}

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
	return fma32exact(a, b, c)
}

func fma32exact(a, b, c float32) float32 {
	return canon32(round32(addOdd(float64(a)*float64(b), float64(c)), roundNearest))
}

func min32(a, b float32) float32 {
	if a < b {
		return a
	}
	if b < a {
		return b
	}
	return minMaxRare(a, b, true)
}

func max32(a, b float32) float32 {
	if a > b {
		return a
	}
	if b > a {
		return b
	}
	return minMaxRare(a, b, false)
}

// minMaxRare has NaN, which loses against numbers, and zeros, of which -0 is the smaller.
func minMaxRare(a, b float32, isMin bool) float32 {
	switch {
	case a != a:
		return canon32(b)
	case b != b:
		return a
	case math.Signbit(float64(a)) == isMin:
		return a
	}
	return b
}

// trunc32 is cvt.rzi.s32.f32.
func trunc32(x float32) int32 {
	switch {
	case x >= 0x1p31:
		return math.MaxInt32
	case x < -0x1p31:
		return math.MinInt32
	case x != x:
		return 0
	}
	return int32(x)
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
		return func(a, b, c uint64) uint64 { return bits32(canon32(f(f32of(a), f32of(b), f32of(c)))) }
	}
	return func(a, b, c uint64) uint64 {
		x, y, z := f32of(a), f32of(b), f32of(c)
		if ftz {
			x, y, z = flush32(x), flush32(y), flush32(z)
		}
		r := canon32(f(x, y, z))
		if ftz {
			r = flush32(r)
			if math.Float32bits(r)<<1 == 0x01000000 {
				r = flushTiny(in.Op, f, x, y, z, r)
			}
		}
		if sat {
			r = sat32(r)
		}
		return bits32(r)
	}
}

// flushTiny is what .ftz makes of r, the smallest normal number, to which a result below it may have been rounded up: a GPU flushes
// what is below it when the result is rounded to 24 bits with an exponent that has no limit (H200, driver 580.159, measured).
func flushTiny(op string, f func(a, b, c float32) float32, x, y, z, r float32) float32 {
	const scale = 0x1p24
	switch op {
	case "mul", "fma", "mad", "div":
		// None of these can overflow: the result would be larger.
		if abs32(f(x*scale, y, z*scale)) < 0x1p-102 {
			return float32(math.Copysign(0, float64(r)))
		}
	}
	return r
}

func f32Core(in *isa.Inst) func(a, b, c float32) float32 {
	r := roundingOf(in.Rnd)
	switch in.Op {
	case "add":
		return func(a, b, _ float32) float32 { return addRound32(a, b, r) }
	case "sub":
		return func(a, b, _ float32) float32 { return addRound32(a, -b, r) }
	case "mul":
		return func(a, b, _ float32) float32 { return round32(float64(a)*float64(b), r) }
	case "fma", "mad":
		return func(a, b, c float32) float32 {
			p := float64(a) * float64(b)
			return round32(zeroSum(addOdd(p, float64(c)), p, float64(c), r), r)
		}
	case "div":
		if in.Has(isa.Approx) {
			return func(a, b, _ float32) float32 {
				if m := abs32(b); a == a && m > 0x1p126 && m <= math.MaxFloat32 {
					if math.IsInf(float64(a), 0) {
						return math.Float32frombits(nan32bits)
					}
					return float32(math.Copysign(0, float64(a)) * math.Copysign(1, float64(b)))
				}
				return a / b
			}
		}
		return func(a, b, _ float32) float32 { return round32(divOdd(float64(a), float64(b)), r) }
	case "rcp":
		return func(a, _, _ float32) float32 { return round32(divOdd(1, float64(a)), r) }
	case "sqrt":
		return func(a, _, _ float32) float32 { return round32(sqrtOdd(float64(a)), r) }
	case "rsqrt":
		return func(a, _, _ float32) float32 { return float32(1 / math.Sqrt(float64(a))) }
	case "sin":
		return func(a, _, _ float32) float32 { return float32(math.Sin(float64(a))) }
	case "cos":
		return func(a, _, _ float32) float32 { return float32(math.Cos(float64(a))) }
	case "lg2":
		return func(a, _, _ float32) float32 { return float32(log2(float64(a))) }
	case "ex2":
		return func(a, _, _ float32) float32 { return float32(math.Exp2(float64(a))) }
	case "tanh":
		return func(a, _, _ float32) float32 { return float32(math.Tanh(float64(a))) }
	case "abs":
		return func(a, _, _ float32) float32 { return abs32(a) }
	case "neg":
		return func(a, _, _ float32) float32 { return neg32(a) }
	case "min", "max":
		return minMax32(in)
	}
	return nil
}

func addRound32(a, b float32, r rounding) float32 {
	x, y := float64(a), float64(b)
	return round32(zeroSum(addOdd(x, y), x, y, r), r)
}

// log2 keeps its relative error small near 1.
func log2(x float64) float64 {
	if x > 0.7 && x < 1.5 {
		return math.Log1p(x-1) / math.Ln2
	}
	return math.Log2(x)
}

func minMax32(in *isa.Inst) func(a, b, c float32) float32 {
	isMin, nan, abs, xorSign := in.Op == "min", in.Has(isa.NaN), in.Has(isa.Abs), in.Has(isa.XorSign)
	return func(a, b, _ float32) float32 {
		sign := math.Float32bits(a) ^ math.Float32bits(b)
		if nan && (a != a || b != b) {
			return math.Float32frombits(nan32bits)
		}
		if abs {
			a, b = math.Float32frombits(math.Float32bits(a)&^(1<<31)), math.Float32frombits(math.Float32bits(b)&^(1<<31))
		}
		d := max32
		if isMin {
			d = min32
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
			return b2u(exp != top)
		case "infinite":
			return b2u(exp == top && frac == 0)
		case "number":
			return b2u(exp != top || frac == 0)
		case "notanumber":
			return b2u(exp == top && frac != 0)
		case "normal":
			return b2u(exp != 0 && exp != top || exp == 0 && frac == 0) // zero is normal here: PTX ISA 9.7.3.2
		}
		return b2u(exp == 0 && frac != 0)
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
	up := func(x uint64) uint64 { return bits32(float32(halfTo64(x, in.U))) }
	if in.Op == "fma" {
		return func(a, b, c uint64) uint64 { return f(up(a), up(b), c) }
	}
	return func(a, b, c uint64) uint64 { return f(up(a), b, c) }
}
