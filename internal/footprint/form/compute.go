package form

import "math/bits"

// Compute is the machine's arithmetic on canonical values: op of width w; aw is the width
// of a, which comparisons and conversions need. It reports false for what has no result:
// a division by zero, or an operation that is none of the machine's.
func Compute(op Op, w, aw uint8, a, b, c int64) (int64, bool) {
	var r int64
	switch op {
	case OpAdd:
		r = a + b
	case OpSub:
		r = a - b
	case OpMul:
		r = a * b
	case OpMulHiU, OpMulHiS:
		r = mulHigh(op, w, a, b)
	case OpDivU, OpRemU:
		x, y := Unsigned(w, a), Unsigned(w, b)
		if y == 0 {
			return 0, false
		}
		if op == OpDivU {
			r = int64(x / y)
		} else {
			r = int64(x % y)
		}
	case OpDivS, OpRemS:
		if b == 0 {
			return 0, false
		}
		switch {
		case op == OpDivS && b == -1:
			r = -a
		case op == OpDivS:
			r = a / b
		case b == -1:
			r = 0
		default:
			r = a % b
		}
	case OpMinU:
		r = a
		if Unsigned(w, b) < Unsigned(w, a) {
			r = b
		}
	case OpMinS:
		r = min(a, b)
	case OpMaxU:
		r = a
		if Unsigned(w, b) > Unsigned(w, a) {
			r = b
		}
	case OpMaxS:
		r = max(a, b)
	case OpNeg:
		r = -a
	case OpAbs:
		r = max(a, -a)
	case OpAnd:
		r = a & b
	case OpOr:
		r = a | b
	case OpXor:
		r = a ^ b
	case OpNot:
		r = ^a
	case OpShl:
		if n := Unsigned(32, b); n < uint64(w) {
			r = a << n
		}
	case OpShrU:
		if n := Unsigned(32, b); n < uint64(w) {
			r = int64(Unsigned(w, a) >> n)
		}
	case OpShrS:
		r = a >> min(Unsigned(32, b), 63)
	case OpZext:
		r = int64(Unsigned(aw, a))
	case OpSext, OpTrunc:
		r = a
	case OpEQ:
		r = Truth(a == b)
	case OpNE:
		r = Truth(a != b)
	case OpLTU:
		r = Truth(Unsigned(aw, a) < Unsigned(aw, b))
	case OpLEU:
		r = Truth(Unsigned(aw, a) <= Unsigned(aw, b))
	case OpLTS:
		r = Truth(a < b)
	case OpLES:
		r = Truth(a <= b)
	case OpPopc:
		r = int64(bits.OnesCount64(Unsigned(aw, a)))
	case OpClz:
		r = int64(bits.LeadingZeros64(Unsigned(aw, a))) - int64(64-aw)
	case OpSelect:
		r = c
		if a != 0 {
			r = b
		}
	default:
		return 0, false
	}
	return Canonical(w, r), true
}

// Truth is a predicate as a canonical value of one bit.
func Truth(b bool) int64 {
	if b {
		return -1
	}
	return 0
}

// Unsigned is a canonical value of w bits as an unsigned number.
func Unsigned(w uint8, x int64) uint64 {
	if w >= 64 {
		return uint64(x)
	}
	return uint64(x) & (1<<w - 1)
}

func mulHigh(op Op, w uint8, a, b int64) int64 {
	if w < 64 {
		if op == OpMulHiS {
			return a * b >> w
		}
		return int64(Unsigned(w, a) * Unsigned(w, b) >> w)
	}
	hi, _ := bits.Mul64(uint64(a), uint64(b))
	if op == OpMulHiS {
		if a < 0 {
			hi -= uint64(b)
		}
		if b < 0 {
			hi -= uint64(a)
		}
	}
	return int64(hi)
}
