package footprint

import "math/bits"

// compute is the machine's arithmetic on canonical values: op of width w; aw is the width
// of a, which comparisons and conversions need. It reports false for what has no result:
// a division by zero, or an operation that is none of the machine's.
func compute(op xop, w, aw uint8, a, b, c int64) (int64, bool) {
	var r int64
	switch op {
	case opAdd:
		r = a + b
	case opSub:
		r = a - b
	case opMul:
		r = a * b
	case opMulHiU, opMulHiS:
		r = mulHigh(op, w, a, b)
	case opDivU, opRemU:
		x, y := unsigned(w, a), unsigned(w, b)
		if y == 0 {
			return 0, false
		}
		if op == opDivU {
			r = int64(x / y)
		} else {
			r = int64(x % y)
		}
	case opDivS, opRemS:
		if b == 0 {
			return 0, false
		}
		switch {
		case op == opDivS && b == -1:
			r = -a
		case op == opDivS:
			r = a / b
		case b == -1:
			r = 0
		default:
			r = a % b
		}
	case opMinU:
		r = a
		if unsigned(w, b) < unsigned(w, a) {
			r = b
		}
	case opMinS:
		r = min(a, b)
	case opMaxU:
		r = a
		if unsigned(w, b) > unsigned(w, a) {
			r = b
		}
	case opMaxS:
		r = max(a, b)
	case opNeg:
		r = -a
	case opAbs:
		r = max(a, -a)
	case opAnd:
		r = a & b
	case opOr:
		r = a | b
	case opXor:
		r = a ^ b
	case opNot:
		r = ^a
	case opShl:
		if n := unsigned(32, b); n < uint64(w) {
			r = a << n
		}
	case opShrU:
		if n := unsigned(32, b); n < uint64(w) {
			r = int64(unsigned(w, a) >> n)
		}
	case opShrS:
		r = a >> min(unsigned(32, b), 63)
	case opZext:
		r = int64(unsigned(aw, a))
	case opSext, opTrunc:
		r = a
	case opEQ:
		r = truth(a == b)
	case opNE:
		r = truth(a != b)
	case opLTU:
		r = truth(unsigned(aw, a) < unsigned(aw, b))
	case opLEU:
		r = truth(unsigned(aw, a) <= unsigned(aw, b))
	case opLTS:
		r = truth(a < b)
	case opLES:
		r = truth(a <= b)
	case opPopc:
		r = int64(bits.OnesCount64(unsigned(aw, a)))
	case opClz:
		r = int64(bits.LeadingZeros64(unsigned(aw, a))) - int64(64-aw)
	case opSelect:
		r = c
		if a != 0 {
			r = b
		}
	default:
		return 0, false
	}
	return canonical(w, r), true
}

// truth is a predicate as a canonical value of one bit.
func truth(b bool) int64 {
	if b {
		return -1
	}
	return 0
}

func unsigned(w uint8, x int64) uint64 {
	if w >= 64 {
		return uint64(x)
	}
	return uint64(x) & (1<<w - 1)
}

func mulHigh(op xop, w uint8, a, b int64) int64 {
	if w < 64 {
		if op == opMulHiS {
			return a * b >> w
		}
		return int64(unsigned(w, a) * unsigned(w, b) >> w)
	}
	hi, _ := bits.Mul64(uint64(a), uint64(b))
	if op == opMulHiS {
		if a < 0 {
			hi -= uint64(b)
		}
		if b < 0 {
			hi -= uint64(a)
		}
	}
	return int64(hi)
}
