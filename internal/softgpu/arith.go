package softgpu

import (
	"holdfast/internal/isa"
	"holdfast/internal/softgpu/lanes"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// opKey is the name of in in the table of operations (lanes/table.go). Instructions with flags that the operations
// there do not have get none.
func opKey(in *isa.Inst) string {
	const others = isa.Satfinite | isa.Ftz | isa.Full | isa.Abs | isa.NaN | isa.XorSign | isa.OOB | isa.CC
	if in.Flags&others != 0 || in.V != ptx.TypeNone {
		return ""
	}
	sat, relu := in.Has(isa.Sat), in.Has(isa.Relu)
	if in.Op == "cvt" {
		if sat || relu {
			return ""
		}
		return joined("cvt", in.Rnd, isa.TypeName(in.T), isa.TypeName(in.U))
	}
	if isa.Float(in.T) {
		if sat || relu || in.U != ptx.TypeNone {
			return ""
		}
		return floatKey(in)
	}
	if in.Rnd != "" {
		return ""
	}
	if in.Op == "dp4a" || in.Op == "dp2a" {
		return joined(in.Op, in.Mode, isa.TypeName(in.T), isa.TypeName(in.U))
	}
	if in.U != ptx.TypeNone {
		return ""
	}
	return intKey(in)
}

// floatKey is the name of an operation of floats without its flags.
func floatKey(in *isa.Inst) string {
	op, rnd := in.Op, in.Rnd
	switch {
	case op == "mad":
		op = "fma"
	case op == "div" && in.Has(isa.Approx):
		op = "div.approx"
	}
	if rnd == "rn" {
		rnd = ""
	}
	return joined(op, rnd, isa.TypeName(in.T))
}

func intKey(in *isa.Inst) string {
	mode, sat, relu := in.Mode, "", ""
	if (in.Op == "mul" || in.Op == "mad") && mode == "" {
		mode = "lo"
	}
	if in.Has(isa.Sat) {
		sat = "sat"
	}
	if in.Has(isa.Relu) {
		relu = "relu"
	}
	return joined(in.Op, mode, in.Mode2, sat, relu, isa.TypeName(in.T))
}

// joined puts dots between the words that are not empty.
func joined(words ...string) string {
	key := ""
	for _, w := range words {
		if w == "" {
			continue
		}
		if key != "" {
			key += "."
		}
		key += w
	}
	return key
}

// vecOp is the form of an instruction for whole registers, nil if it has only the scalar one, which is given.
func vecOp(in *isa.Inst, scalar laneFunc) vecFunc {
	if f := lanes.Op(opKey(in)); f != nil {
		return f
	}
	if f := halfVec(in, scalar); f != nil {
		return f
	}
	if in.T == ptx.F32 && in.Flags == isa.Ftz && in.U == ptx.TypeNone && (in.Rnd == "" || in.Rnd == "rn") {
		return lanes.Ftz(in.Op, scalar)
	}
	return nil
}

// halfVec is vecOp of the 16-bit formats.
func halfVec(in *isa.Inst, scalar laneFunc) vecFunc {
	if scalar == nil || in.Flags != 0 || in.Rnd != "" && in.Rnd != "rn" || in.V != ptx.TypeNone {
		return nil
	}
	bf16, pair, ok := halfType(in.T)
	if in.Op == "cvt" {
		from, both, half := halfType(in.U)
		switch {
		case in.T == ptx.F32 && half && !both:
			return lanes.Widen(from, scalar)
		case ok && in.U == ptx.F32 && in.Rnd == "rn" && pair == (len(in.Args) == 3):
			return lanes.Narrow(bf16, pair, scalar)
		}
		return nil
	}
	if !ok || in.U != ptx.TypeNone {
		return nil
	}
	op, ok := map[string]lanes.HalfOp{"add": lanes.HalfAdd, "sub": lanes.HalfSub, "mul": lanes.HalfMul,
		"fma": lanes.HalfFMA}[in.Op]
	if !ok {
		return nil
	}
	return lanes.Half(op, bf16, pair, scalar)
}

// halfType takes a 16-bit float type apart.
func halfType(t ptx.Type) (bf16, pair, ok bool) {
	switch t {
	case ptx.F16:
		return false, false, true
	case ptx.F16x2:
		return false, true, true
	case ptx.BF16:
		return true, false, true
	case ptx.BF16x2:
		return true, true, true
	}
	return false, false, false
}

// laneOp is the scalar meaning of an instruction with up to three operands:
// raw bits in, raw bits out. It is nil for what does not exist.
func laneOp(in *isa.Inst) laneFunc {
	if f := number.Op(opKey(in)); f != nil {
		return f
	}
	if in.Op == "cvt" || in.Op == "cvt.pack" {
		return cvtFunc(in)
	}
	if in.Op == "set" {
		return setFunc(in)
	}
	if in.Op == "slct" {
		return slctFunc(in)
	}
	if in.U == ptx.F16 || in.U == ptx.BF16 {
		return mixedFunc(in)
	}
	switch in.T {
	case ptx.F32:
		return f32Func(in)
	case ptx.F64:
		return f64Func(in)
	case ptx.F16, ptx.BF16:
		return halfFunc(in, in.T)
	case ptx.F16x2:
		return packed(halfFunc(in, ptx.F16))
	case ptx.BF16x2:
		return packed(halfFunc(in, ptx.BF16))
	case ptx.F32x2:
		one := *in
		one.T = ptx.F32
		f := f32Func(&one)
		if f == nil {
			return nil
		}
		return func(a, b, c uint64) uint64 {
			return uint64(uint32(f(a&0xffffffff, b&0xffffffff, c&0xffffffff))) | f(a>>32, b>>32, c>>32)<<32
		}
	case ptx.U16x2, ptx.S16x2:
		one := *in
		one.T = ptx.U16
		if in.T == ptx.S16x2 {
			one.T = ptx.S16
		}
		return packed(laneOp(&one))
	}
	return nil
}

// packed applies f to both halves of a word.
func packed(f laneFunc) laneFunc {
	if f == nil {
		return nil
	}
	return func(a, b, c uint64) uint64 {
		return f(a&0xffff, b&0xffff, c&0xffff)&0xffff | f(a>>16&0xffff, b>>16&0xffff, c>>16&0xffff)&0xffff<<16
	}
}

func slctFunc(in *isa.Inst) laneFunc {
	if in.U == ptx.S32 {
		return func(a, b, c uint64) uint64 {
			if int32(c) >= 0 {
				return a
			}
			return b
		}
	}
	ftz := in.Has(isa.Ftz)
	return func(a, b, c uint64) uint64 {
		x := number.F32(c)
		if ftz {
			x = number.Flush32(x)
		}
		if x >= 0 { // -0 is not below zero, NaN is no number
			return a
		}
		return b
	}
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
			// Zero is normal here: PTX ISA 9.7.3.2.
			return number.FromBool(exp != 0 && exp != top || exp == 0 && frac == 0)
		}
		return number.FromBool(exp == 0 && frac != 0)
	}
}
