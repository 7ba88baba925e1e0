package softgpu

import (
	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// setFunc is set: all ones or 1.0 where the comparison holds. The predicate
// operand of the combining forms arrives as 0 or 1 in c.
func setFunc(in *isa.Inst) laneFunc {
	u := in.U
	pair := u == ptx.F16x2 || u == ptx.BF16x2
	if u == ptx.F16x2 {
		u = ptx.F16
	}
	if u == ptx.BF16x2 {
		u = ptx.BF16
	}
	f := number.Compare(in.Cmp, u, in.Has(isa.Ftz))
	if f == nil {
		return nil
	}
	yes := map[ptx.Type]uint64{ptx.U32: 0xffffffff, ptx.S32: 0xffffffff, ptx.F32: 0x3f800000, ptx.F16: number.F16One,
		ptx.BF16: number.BF16One, ptx.U16: 0xffff, ptx.S16: 0xffff,
		ptx.F16x2: number.F16One, ptx.BF16x2: number.BF16One}[in.T]
	combine := func(x bool, c uint64) bool {
		p := c&1 != 0
		switch in.Bool {
		case "and":
			return x && p
		case "or":
			return x || p
		case "xor":
			return x != p
		}
		return x
	}
	pick := func(x bool, c uint64) uint64 {
		if combine(x, c) {
			return yes
		}
		return 0
	}
	if !pair {
		return func(a, b, c uint64) uint64 { return pick(f(a, b), c) }
	}
	if isa.Bits(in.T) != 32 {
		return nil
	}
	if in.T == ptx.U32 || in.T == ptx.S32 {
		yes = 0xffff
	}
	return func(a, b, c uint64) uint64 {
		return pick(f(a&0xffff, b&0xffff), c) | pick(f(a>>16&0xffff, b>>16&0xffff), c)<<16
	}
}
