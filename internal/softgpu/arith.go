package softgpu

import (
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// vecKey is the name of in in vecOps; instructions with flags that the loops
// do not have get a name that is not there.
func vecKey(in *isa.Inst) string {
	key := in.Op
	name := isa.TypeName(in.T)
	const exact = isa.Sat | isa.Satfinite | isa.Ftz | isa.Full | isa.Abs | isa.NaN | isa.XorSign | isa.Relu | isa.OOB | isa.CC
	if in.Flags&exact != 0 || in.V != ptx.TypeNone {
		return ""
	}
	switch in.Op {
	case "mul", "mad":
		if in.T == ptx.F32 || in.T == ptx.F64 {
			if in.Op == "mad" {
				key = "fma"
			}
			break
		}
		mode := in.Mode
		if mode == "" {
			mode = "lo"
		}
		key += "." + mode
	case "cvt":
		if in.Rnd != "" {
			key += "." + in.Rnd
		}
		return key + "." + name + "." + isa.TypeName(in.U)
	case "div":
		if in.Has(isa.Approx) {
			return ""
		}
	case "shl":
		if in.T == ptx.B16 {
			return ""
		}
	}
	if in.U != ptx.TypeNone || in.Rnd != "" && in.Rnd != "rn" {
		return ""
	}
	return key + "." + name
}

// laneOp is the scalar meaning of an instruction with up to three operands:
// raw bits in, raw bits out. It is nil for what does not exist.
func laneOp(in *isa.Inst) laneFunc {
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
		return packed(intFunc(&one))
	}
	return intFunc(in)
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
