package number

import (
	"cmp"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// Compare is a comparison of two raw values; nil if the type has no such operator.
func Compare(op string, t ptx.Type, ftz bool) func(a, b uint64) bool {
	if isa.Float(t) {
		value := func(x uint64) float64 {
			switch t {
			case ptx.F64:
				return F64(x)
			case ptx.F32:
				if ftz {
					return float64(Flush32(F32(x)))
				}
				return float64(F32(x))
			}
			if ftz {
				x = FlushHalf(x&0xffff, t)
			}
			return HalfValue(x&0xffff, t)
		}
		f := compareFloat(op)
		if f == nil {
			return nil
		}
		return func(a, b uint64) bool { return f(value(a), value(b)) }
	}
	n := uint(isa.Bits(t))
	signed := isa.Signed(t)
	order := func(a, b uint64) int {
		if signed {
			x, y := SignExtend(a, n), SignExtend(b, n)
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		}
		return cmp.Compare(ZeroExtend(a, n), ZeroExtend(b, n))
	}
	bitsOnly := t == ptx.B16 || t == ptx.B32 || t == ptx.B64
	switch op {
	case "eq":
		return func(a, b uint64) bool { return order(a, b) == 0 }
	case "ne":
		return func(a, b uint64) bool { return order(a, b) != 0 }
	}
	if bitsOnly || signed && (op == "lo" || op == "ls" || op == "hi" || op == "hs") {
		return nil
	}
	switch op {
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

func compareFloat(op string) func(a, b float64) bool {
	switch op {
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
