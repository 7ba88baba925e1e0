package form

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

	KindCurve   // scaled(imm, A)
	KindBetween // between A and B or, imm = 1, from A to B-1, if A and B are not negative and twice as much is a number of w bits; else any number
	KindTable   // what memory at A holds: a signed or (imm = 1) unsigned number of w bits
	KindParam   // what the parameter buffer holds at A; imm is a paramTable
)

// ReadBounds is the bounds of a number of w bits (0: of any) that is read of a form within b; sound says that the
// checks of the form hold.
func ReadBounds(w uint8, signed bool, b Bounds, sound bool) Bounds {
	all := Everything
	switch {
	case w != 0 && signed:
		all = SignedBounds(w)
	case w != 0:
		all = UnsignedBounds(w)
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
func Evaluate(kind Kind, w uint8, imm int64, a, b Bounds) Bounds {
	all := SignedBounds(w)
	switch kind {
	case KindAny, KindTable, KindParam:
		if imm&1 == 1 {
			return UnsignedBounds(w)
		}
		return all
	case KindCounter:
		return Bounds{0, Far}
	case KindExt:
		return a
	case KindFlag:
		return Bounds{0, 1}
	case KindTest:
		switch {
		case a.Hi <= imm:
			return Bounds{1, 1}
		case a.Lo > imm:
			return Bounds{0, 0}
		}
		return Bounds{0, 1}
	case KindBits:
		return Bounds{0, imm}
	case KindCurve:
		if a.Lo < 0 || a.Hi > maxScaled {
			return Bounds{math.MinInt32, math.MaxInt32}
		}
		return Bounds{scaled(imm, a.Lo), scaled(imm, a.Hi)}
	case KindBetween:
		if a.Lo < 0 || b.Lo < 0 || max(a.Hi, b.Hi) >= int64(1)<<(min(w, 62)-2) {
			return all
		}
		if imm == 1 { // where there is a middle, A is below B
			return Bounds{a.Lo, max(a.Lo, b.Hi-1)}
		}
		return a.Join(b)
	case KindFloor:
		return a.over(imm)
	case KindMod:
		return Modulo(a, imm)
	case KindDivU, KindDivS:
		if b.Lo <= 0 {
			if kind == KindDivU {
				return UnsignedBounds(w)
			}
			return all
		}
		return quotient(a, b)
	case KindRemU, KindRemS:
		if b.Lo <= 0 {
			if kind == KindRemU {
				return UnsignedBounds(w)
			}
			return all
		}
		return remainder(a, b)
	case KindMulHiU, KindMulHiS:
		return mulHiBounds(kind == KindMulHiS, w, a, b)
	case KindMul:
		return a.Product(b)
	case KindMinU, KindMinS:
		return Bounds{min(a.Lo, b.Lo), min(a.Hi, b.Hi)}
	case KindMaxU, KindMaxS:
		return Bounds{max(a.Lo, b.Lo), max(a.Hi, b.Hi)}
	case KindAbs:
		if a.Lo >= 0 {
			return a
		}
		return Bounds{0, max(a.Hi, -a.Lo)}
	case KindAnd:
		if a.Lo < 0 || b.Lo < 0 {
			return UnsignedBounds(w)
		}
		return Bounds{0, min(a.Hi, b.Hi)}
	case KindOr, KindXor:
		if a.Lo < 0 || b.Lo < 0 || a.Hi >= Far || b.Hi >= Far {
			return UnsignedBounds(w)
		}
		r := Bounds{0, Smear(max(a.Hi, b.Hi))}
		if kind == KindOr {
			r.Lo = max(a.Lo, b.Lo)
			r.Hi = min(r.Hi, a.Hi+b.Hi)
		}
		return r
	case KindShl:
		if a.Lo < 0 || b.Lo < 0 || b.Hi >= int64(w) || b.Hi >= 62 {
			return all
		}
		if r := (Bounds{SatMul(a.Lo, 1<<b.Lo), SatMul(a.Hi, 1<<b.Hi)}); r.Hi < Far && r.In(all) {
			return r
		}
		return all // a signed number, always: whoever needs one has no check
	case KindShrU, KindShrS:
		if b.Lo < 0 {
			b = Bounds{0, 63}
		}
		lo, hi := min(b.Lo, 62), min(b.Hi, 62)
		return a.over(1 << lo).Join(a.over(1 << hi))
	case KindOne:
		return a
	case KindHalf:
		if a.Lo < 0 {
			return all
		}
		return Bounds{0, a.Hi}
	}
	return Everything
}

// Modulo is the bounds of a modulo k > 0.
func Modulo(a Bounds, k int64) Bounds {
	if a.Bounded() && FloorDiv(a.Lo, k) == FloorDiv(a.Hi, k) {
		q := FloorDiv(a.Lo, k) * k
		return Bounds{a.Lo - q, a.Hi - q}
	}
	return Bounds{0, k - 1}
}

// quotient is the bounds of a / b, rounded towards zero; b > 0.
func quotient(a, b Bounds) Bounds {
	r := Bounds{-Far, Far}
	if a.Lo > -Far {
		r.Lo = a.Lo / b.Hi
		if a.Lo < 0 {
			r.Lo = a.Lo / b.Lo
		}
	}
	if a.Hi < Far {
		r.Hi = a.Hi / b.Lo
		if a.Hi < 0 {
			r.Hi = a.Hi / b.Hi
		}
	}
	return r
}

// remainder is the bounds of a % b, with the sign of a; b > 0.
func remainder(a, b Bounds) Bounds {
	if b.Lo == b.Hi && a.Lo >= 0 {
		return Modulo(a, b.Lo)
	}
	top := Far
	if b.Hi < Far {
		top = b.Hi - 1
	}
	r := Bounds{0, max(0, min(a.Hi, top))}
	if a.Lo < 0 {
		r.Lo = max(a.Lo, -top)
	} else if a.Hi < b.Lo {
		r.Lo = a.Lo
	}
	return r
}

func mulHiBounds(signed bool, w uint8, a, b Bounds) Bounds {
	if signed {
		if w > 32 {
			if a.Lo < 0 || b.Lo < 0 {
				return SignedBounds(w)
			}
		} else {
			p := a.Product(b)
			return Bounds{p.Lo >> w, p.Hi >> w}
		}
	} else if a.Lo < 0 || b.Lo < 0 {
		return UnsignedBounds(w)
	}
	if a.Hi >= Far || b.Hi >= Far {
		return UnsignedBounds(w)
	}
	return Bounds{mulHigh(OpMulHiU, w, a.Lo, b.Lo), mulHigh(OpMulHiU, w, a.Hi, b.Hi)}
}
