package form

import "holdfast/internal/interval"

import "math"

// MaxTerms bounds the terms of a form. A longer one is one variable.
const MaxTerms = 16

// A Kind is what a variable stands for.
type Kind uint8

// The kinds of variables. A variable is an integer; the value it comes from is congruent to it
// modulo 2^w. F, A and B are its arguments.
const (
	KindThread  Kind = iota // a coordinate, imm
	KindCounter             // how often loop imm has gone back to its header
	KindAny                 // any number of w bits, signed or (imm = 1) unsigned
	KindExt                 // A as a number of w bits, signed or (imm = 1) unsigned
	KindFlag                // 0 or 1
	KindTest                // 1 if A <= imm, else 0
	KindFloor               // A / imm, rounded towards minus infinity
	KindMod                 // A modulo imm, not negative
	KindDivU                // A / B, and the operations of the same names
	KindDivS
	KindRemU
	KindRemS
	KindMulHiU
	KindMulHiS
	KindMul
	KindMinU
	KindMinS
	KindMaxU
	KindMaxS
	KindAbs
	KindAnd
	KindOr
	KindXor
	KindShl
	KindShrU
	KindShrS
	KindOne  // one of the arguments
	KindHalf // not negative, not above A, if A is not negative
	KindBits // from 0 to imm

	KindCurve // scaled(imm, A)
	// between A and B or, imm = 1, from A to B-1, if A and B are not negative and twice as much is a number of w bits;
	// else any number
	KindBetween
	KindTable // what memory at A holds: a signed or (imm = 1) unsigned number of w bits
	KindParam // what the parameter buffer holds at A; imm is a paramTable
)

// ReadBounds is the bounds of a number of w bits (0: of any) that is read of a form within b; sound says that the
// checks of the form hold.
func ReadBounds(w uint8, signed bool, b interval.Bounds, sound bool) interval.Bounds {
	all := interval.Everything
	switch {
	case w != 0 && signed:
		all = interval.SignedBounds(w)
	case w != 0:
		all = interval.UnsignedBounds(w)
	}
	if sound && b.In(all) {
		return b
	}
	return all
}

// IsNumber reports whether a variable is a signed number of at most 64 bits, or an unsigned one that is read as such.
func IsNumber(kind Kind, w uint8, imm int64, signed bool) bool {
	switch kind {
	case KindAny, KindTable, KindParam, KindExt:
		return imm&1 == 0 || !signed || w < 64
	case KindThread, KindCounter, KindFlag, KindTest, KindFloor, KindMod, KindDivS, KindRemS, KindMinS, KindMaxS,
		KindShrS, KindBits, KindCurve, KindBetween:
		return true
	case KindDivU, KindRemU, KindMinU, KindMaxU, KindAnd, KindOr, KindXor, KindShrU:
		return !signed || w < 64
	}
	return false
}

// Evaluate is the bounds of a variable whose arguments have bounds a and b; those of KindOne are
// joined in a.
func Evaluate(kind Kind, w uint8, imm int64, a, b interval.Bounds) interval.Bounds {
	all := interval.SignedBounds(w)
	switch kind {
	case KindAny, KindTable, KindParam:
		if imm&1 == 1 {
			return interval.UnsignedBounds(w)
		}
		return all
	case KindCounter:
		return interval.Bounds{Lo: 0, Hi: interval.Far}
	case KindExt:
		return a
	case KindFlag:
		return interval.Bounds{Lo: 0, Hi: 1}
	case KindTest:
		switch {
		case a.Hi <= imm:
			return interval.Bounds{Lo: 1, Hi: 1}
		case a.Lo > imm:
			return interval.Bounds{Lo: 0, Hi: 0}
		}
		return interval.Bounds{Lo: 0, Hi: 1}
	case KindBits:
		return interval.Bounds{Lo: 0, Hi: imm}
	case KindCurve:
		if a.Lo < 0 || a.Hi > maxScaled {
			return interval.Bounds{Lo: math.MinInt32, Hi: math.MaxInt32}
		}
		return interval.Bounds{Lo: scaled(imm, a.Lo), Hi: scaled(imm, a.Hi)}
	case KindBetween:
		if a.Lo < 0 || b.Lo < 0 || max(a.Hi, b.Hi) >= int64(1)<<(min(w, 62)-2) {
			return all
		}
		if imm == 1 { // where there is a middle, A is below B
			return interval.Bounds{Lo: a.Lo, Hi: max(a.Lo, b.Hi-1)}
		}
		return a.Join(b)
	case KindFloor:
		return a.Over(imm)
	case KindMod:
		return Modulo(a, imm)
	case KindDivU, KindDivS:
		if b.Lo <= 0 {
			if kind == KindDivU {
				return interval.UnsignedBounds(w)
			}
			return all
		}
		return quotient(a, b)
	case KindRemU, KindRemS:
		if b.Lo <= 0 {
			if kind == KindRemU {
				return interval.UnsignedBounds(w)
			}
			return all
		}
		return remainder(a, b)
	case KindMulHiU, KindMulHiS:
		return mulHiBounds(kind == KindMulHiS, w, a, b)
	case KindMul:
		return a.Product(b)
	case KindMinU, KindMinS:
		return interval.Bounds{Lo: min(a.Lo, b.Lo), Hi: min(a.Hi, b.Hi)}
	case KindMaxU, KindMaxS:
		return interval.Bounds{Lo: max(a.Lo, b.Lo), Hi: max(a.Hi, b.Hi)}
	case KindAbs:
		if a.Lo >= 0 {
			return a
		}
		return interval.Bounds{Lo: 0, Hi: max(a.Hi, -a.Lo)}
	case KindAnd:
		if a.Lo < 0 || b.Lo < 0 {
			return interval.UnsignedBounds(w)
		}
		return interval.Bounds{Lo: 0, Hi: min(a.Hi, b.Hi)}
	case KindOr, KindXor:
		if a.Lo < 0 || b.Lo < 0 || a.Hi >= interval.Far || b.Hi >= interval.Far {
			return interval.UnsignedBounds(w)
		}
		r := interval.Bounds{Lo: 0, Hi: interval.Smear(max(a.Hi, b.Hi))}
		if kind == KindOr {
			r.Lo = max(a.Lo, b.Lo)
			r.Hi = min(r.Hi, a.Hi+b.Hi)
		}
		return r
	case KindShl:
		if a.Lo < 0 || b.Lo < 0 || b.Hi >= int64(w) || b.Hi >= 62 {
			return all
		}
		if r := (interval.Bounds{Lo: interval.SatMul(a.Lo, 1<<b.Lo), Hi: interval.SatMul(a.Hi,
			1<<b.Hi)}); r.Hi < interval.Far && r.In(all) {
			return r
		}
		return all // a signed number, always: whoever needs one has no check
	case KindShrU, KindShrS:
		if b.Lo < 0 {
			b = interval.Bounds{Lo: 0, Hi: 63}
		}
		lo, hi := min(b.Lo, 62), min(b.Hi, 62)
		return a.Over(1 << lo).Join(a.Over(1 << hi))
	case KindOne:
		return a
	case KindHalf:
		if a.Lo < 0 {
			return all
		}
		return interval.Bounds{Lo: 0, Hi: a.Hi}
	}
	return interval.Everything
}

// Modulo is the bounds of a modulo k > 0.
func Modulo(a interval.Bounds, k int64) interval.Bounds {
	if a.Bounded() && interval.FloorDiv(a.Lo, k) == interval.FloorDiv(a.Hi, k) {
		q := interval.FloorDiv(a.Lo, k) * k
		return interval.Bounds{Lo: a.Lo - q, Hi: a.Hi - q}
	}
	return interval.Bounds{Lo: 0, Hi: k - 1}
}

// quotient is the bounds of a / b, rounded towards zero; b > 0.
func quotient(a, b interval.Bounds) interval.Bounds {
	r := interval.Bounds{Lo: -interval.Far, Hi: interval.Far}
	if a.Lo > -interval.Far {
		r.Lo = a.Lo / b.Hi
		if a.Lo < 0 {
			r.Lo = a.Lo / b.Lo
		}
	}
	if a.Hi < interval.Far {
		r.Hi = a.Hi / b.Lo
		if a.Hi < 0 {
			r.Hi = a.Hi / b.Hi
		}
	}
	return r
}

// remainder is the bounds of a % b, with the sign of a; b > 0.
func remainder(a, b interval.Bounds) interval.Bounds {
	if b.Lo == b.Hi && a.Lo >= 0 {
		return Modulo(a, b.Lo)
	}
	top := interval.Far
	if b.Hi < interval.Far {
		top = b.Hi - 1
	}
	r := interval.Bounds{Lo: 0, Hi: max(0, min(a.Hi, top))}
	if a.Lo < 0 {
		r.Lo = max(a.Lo, -top)
	} else if a.Hi < b.Lo {
		r.Lo = a.Lo
	}
	return r
}

func mulHiBounds(signed bool, w uint8, a, b interval.Bounds) interval.Bounds {
	if signed {
		if w > 32 {
			if a.Lo < 0 || b.Lo < 0 {
				return interval.SignedBounds(w)
			}
		} else {
			p := a.Product(b)
			return interval.Bounds{Lo: p.Lo >> w, Hi: p.Hi >> w}
		}
	} else if a.Lo < 0 || b.Lo < 0 {
		return interval.UnsignedBounds(w)
	}
	if a.Hi >= interval.Far || b.Hi >= interval.Far {
		return interval.UnsignedBounds(w)
	}
	return interval.Bounds{Lo: mulHigh(OpMulHiU, w, a.Lo, b.Lo), Hi: mulHigh(OpMulHiU, w, a.Hi, b.Hi)}
}
