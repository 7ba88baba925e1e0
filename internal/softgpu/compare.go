package softgpu

import (
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// compareFunc is a comparison of two raw values; nil if the type has no such operator.
func compareFunc(cmp string, t ptx.Type, ftz bool) func(a, b uint64) bool {
	if isa.Float(t) {
		value := func(x uint64) float64 {
			switch t {
			case ptx.F64:
				return f64of(x)
			case ptx.F32:
				if ftz {
					return float64(flush32(f32of(x)))
				}
				return float64(f32of(x))
			}
			if ftz {
				x = flushHalf(x&0xffff, t)
			}
			return halfTo64(x&0xffff, t)
		}
		f := compareFloat(cmp)
		if f == nil {
			return nil
		}
		return func(a, b uint64) bool { return f(value(a), value(b)) }
	}
	n := uint(isa.Bits(t))
	signed := isa.Signed(t)
	order := func(a, b uint64) int {
		if signed {
			x, y := signExtend(a, n), signExtend(b, n)
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		}
		return cmpU64(zeroExtend(a, n), zeroExtend(b, n))
	}
	bitsOnly := t == ptx.B16 || t == ptx.B32 || t == ptx.B64
	switch cmp {
	case "eq":
		return func(a, b uint64) bool { return order(a, b) == 0 }
	case "ne":
		return func(a, b uint64) bool { return order(a, b) != 0 }
	}
	if bitsOnly || signed && (cmp == "lo" || cmp == "ls" || cmp == "hi" || cmp == "hs") {
		return nil
	}
	switch cmp {
	case "lt", "lo":
		return func(a, b uint64) bool { return order(a, b) < 0 }
	case "le", "ls":
		return func(a, b uint64) bool { return order(a, b) <= 0 }
	case "gt", "hi":
		return func(a, b uint64) bool { return order(a, b) > 0 }
	case "ge", "hs":
		return func(a, b uint64) bool { return order(a, b) >= 0 }
	}
	return nil
}

func compareFloat(cmp string) func(a, b float64) bool {
	switch cmp {
	case "eq":
		return func(a, b float64) bool { return a == b }
	case "ne":
		return func(a, b float64) bool { return a < b || a > b }
	case "lt":
		return func(a, b float64) bool { return a < b }
	case "le":
		return func(a, b float64) bool { return a <= b }
	case "gt":
		return func(a, b float64) bool { return a > b }
	case "ge":
		return func(a, b float64) bool { return a >= b }
	case "equ":
		return func(a, b float64) bool { return !(a < b || a > b) }
	case "neu":
		return func(a, b float64) bool { return a != b }
	case "ltu":
		return func(a, b float64) bool { return !(a >= b) }
	case "leu":
		return func(a, b float64) bool { return !(a > b) }
	case "gtu":
		return func(a, b float64) bool { return !(a <= b) }
	case "geu":
		return func(a, b float64) bool { return !(a < b) }
	case "num":
		return func(a, b float64) bool { return a == a && b == b }
	case "nan":
		return func(a, b float64) bool { return a != a || b != b }
	}
	return nil
}

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
	f := compareFunc(in.Cmp, u, in.Has(isa.Ftz))
	if f == nil {
		return nil
	}
	yes := map[ptx.Type]uint64{ptx.U32: 0xffffffff, ptx.S32: 0xffffffff, ptx.F32: 0x3f800000, ptx.F16: f16One, ptx.BF16: bf16One,
		ptx.U16: 0xffff, ptx.S16: 0xffff, ptx.F16x2: f16One, ptx.BF16x2: bf16One}[in.T]
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
