package footprint

import (
	"encoding/binary"
	"math"
)

// A varID names a variable: it indexes graph.vars.
type varID int32

// A vkind is what a variable stands for.
type vkind uint8

// The kinds of variables. A variable is an integer; the value it comes from is congruent to it
// modulo 2^w. F, A and B are its arguments.
const (
	vThread  vkind = iota // a coordinate, imm
	vCounter              // how often loop imm has gone back to its header
	vAny                  // any number of w bits, signed or (imm = 1) unsigned
	vExt                  // A as a number of w bits, signed or (imm = 1) unsigned
	vFlag                 // 0 or 1
	vTest                 // 1 if A <= imm, else 0
	vFloor                // A / imm, rounded towards minus infinity
	vMod                  // A modulo imm, not negative
	vDivU                 // A / B, and the operations of the same names
	vDivS
	vRemU
	vRemS
	vMulHiU
	vMulHiS
	vMul
	vMinU
	vMinS
	vMaxU
	vMaxS
	vAbs
	vAnd
	vOr
	vXor
	vShl
	vShrU
	vShrS
	vOne  // one of the arguments
	vHalf // not negative, not above A, if A is not negative
	vBits // from 0 to imm

	vCurve   // scaled(imm, A)
	vBetween // between A and B or, imm = 1, from A to B-1, if A and B are not negative and twice as much is a number of w bits; else any number
	vTable   // what memory at A holds: a signed or (imm = 1) unsigned number of w bits
	vParam   // what the parameter buffer holds at A; imm is a paramTable
)

// An argument of a variable is a form, to be read as a number of w bits: unsigned,
// signed, or (w = 0) as the integer that it is.
type argument struct {
	f      *linear
	w      uint8
	signed bool
	conds  []fact // of vOne: uniform ones, without which it is not this argument
}

// A variable is something that differs from thread to thread.
type variable struct {
	kind vkind
	w    uint8
	imm  int64
	from exprID // what it stands for, if it is not made of its arguments
	args []argument

	bounds bounds // in every launch
}

// keyOf is what tells a variable from others.
func (g *graph) keyOf(v *variable) []byte {
	key := binary.AppendVarint([]byte{byte(v.kind), v.w}, v.imm)
	key = binary.AppendVarint(key, int64(v.from))
	for _, a := range v.args {
		key = binary.AppendVarint(key, int64(a.f.id))
		key = append(key, a.w, byte(truth(a.signed)&1))
	}
	return key
}

// variable finds or makes a variable.
func (g *graph) variable(v variable) varID {
	if v.kind == vFloor || v.kind == vMod {
		v.w = 64 // they are numbers, whatever the width of the instruction that made them
	}
	key := g.keyOf(&v)
	if id, ok := g.varOf[string(key)]; ok {
		return id
	}
	id := varID(len(g.vars))
	if v.kind == vThread {
		v.bounds = g.coordinate(int(v.imm))
	} else {
		var ab [2]bounds
		for i, a := range v.args {
			b := a.read(g.formBounds(a.f), len(a.f.checks) == 0 && (a.w < 63 || g.whole(a)))
			switch {
			case v.kind == vOne && i > 0:
				ab[0] = ab[0].join(b)
			case i < len(ab):
				ab[i] = b
			}
		}
		v.bounds = evaluate(v.kind, v.w, v.imm, ab[0], ab[1])
	}
	g.vars = append(g.vars, v)
	g.varOf[string(key)] = id
	return id
}

// coordinate is the bounds of a coordinate in every launch.
func (g *graph) coordinate(i int) bounds {
	switch i {
	case tidX, tidY, tidZ:
		return bounds{0, g.maxTid[i-tidX]}
	case ctaidX, clusterIDX, clusterIDY, clusterIDZ:
		return bounds{0, math.MaxInt32 - 1}
	case ctaidY, ctaidZ:
		return bounds{0, 65535 - 1}
	case laneID:
		return bounds{0, 31}
	}
	return bounds{0, 1023}
}

// read is the bounds of an argument whose form lies in b; sound says that the checks of the form
// hold.
func (a argument) read(b bounds, sound bool) bounds { return readBounds(a.w, a.signed, b, sound) }

func readBounds(w uint8, signed bool, b bounds, sound bool) bounds {
	all := everything
	switch {
	case w != 0 && signed:
		all = signedBounds(w)
	case w != 0:
		all = unsignedBounds(w)
	}
	if sound && b.in(all) {
		return b
	}
	return all
}

// whole reports whether a number of 64 bits is what its form is: the form is bounded, or a variable that is such a number. A sum
// without bounds may have overflowed: then it is any number.
func (g *graph) whole(a argument) bool {
	if g.formBounds(a.f).bounded() {
		return true
	}
	f := a.f
	if len(f.terms) != 1 || !g.isZero(f.c) || f.sym != 0 {
		return false
	}
	k, ok := g.constant(f.terms[0].coef)
	v := &g.vars[f.terms[0].v]
	return ok && k == 1 && isNumber(v.kind, v.w, v.imm, a.signed)
}

// isNumber reports whether a variable is a signed number of at most 64 bits, or an unsigned one that is read as such.
func isNumber(kind vkind, w uint8, imm int64, signed bool) bool {
	switch kind {
	case vAny, vTable, vParam, vExt:
		return imm&1 == 0 || !signed || w < 64
	case vThread, vCounter, vFlag, vTest, vFloor, vMod, vDivS, vRemS, vMinS, vMaxS, vShrS, vBits, vCurve, vBetween:
		return true
	case vDivU, vRemU, vMinU, vMaxU, vAnd, vOr, vXor, vShrU:
		return !signed || w < 64
	}
	return false
}

// evaluate is the bounds of a variable whose arguments have bounds a and b; those of vOne are
// joined in a.
func evaluate(kind vkind, w uint8, imm int64, a, b bounds) bounds {
	all := signedBounds(w)
	switch kind {
	case vAny, vTable, vParam:
		if imm&1 == 1 {
			return unsignedBounds(w)
		}
		return all
	case vCounter:
		return bounds{0, far}
	case vExt:
		return a
	case vFlag:
		return bounds{0, 1}
	case vTest:
		switch {
		case a.hi <= imm:
			return bounds{1, 1}
		case a.lo > imm:
			return bounds{0, 0}
		}
		return bounds{0, 1}
	case vBits:
		return bounds{0, imm}
	case vCurve:
		if a.lo < 0 || a.hi > maxScaled {
			return bounds{math.MinInt32, math.MaxInt32}
		}
		return bounds{scaled(imm, a.lo), scaled(imm, a.hi)}
	case vBetween:
		if a.lo < 0 || b.lo < 0 || max(a.hi, b.hi) >= int64(1)<<(min(w, 62)-2) {
			return all
		}
		if imm == 1 { // where there is a middle, A is below B
			return bounds{a.lo, max(a.lo, b.hi-1)}
		}
		return a.join(b)
	case vFloor:
		return a.over(imm)
	case vMod:
		return modulo(a, imm)
	case vDivU, vDivS:
		if b.lo <= 0 {
			if kind == vDivU {
				return unsignedBounds(w)
			}
			return all
		}
		return quotient(a, b)
	case vRemU, vRemS:
		if b.lo <= 0 {
			if kind == vRemU {
				return unsignedBounds(w)
			}
			return all
		}
		return remainder(a, b)
	case vMulHiU, vMulHiS:
		return mulHiBounds(kind == vMulHiS, w, a, b)
	case vMul:
		return a.product(b)
	case vMinU, vMinS:
		return bounds{min(a.lo, b.lo), min(a.hi, b.hi)}
	case vMaxU, vMaxS:
		return bounds{max(a.lo, b.lo), max(a.hi, b.hi)}
	case vAbs:
		if a.lo >= 0 {
			return a
		}
		return bounds{0, max(a.hi, -a.lo)}
	case vAnd:
		if a.lo < 0 || b.lo < 0 {
			return unsignedBounds(w)
		}
		return bounds{0, min(a.hi, b.hi)}
	case vOr, vXor:
		if a.lo < 0 || b.lo < 0 || a.hi >= far || b.hi >= far {
			return unsignedBounds(w)
		}
		r := bounds{0, smear(max(a.hi, b.hi))}
		if kind == vOr {
			r.lo = max(a.lo, b.lo)
			r.hi = min(r.hi, a.hi+b.hi)
		}
		return r
	case vShl:
		if a.lo < 0 || b.lo < 0 || b.hi >= int64(w) || b.hi >= 62 {
			return all
		}
		if r := (bounds{satMul(a.lo, 1<<b.lo), satMul(a.hi, 1<<b.hi)}); r.hi < far && r.in(all) {
			return r
		}
		return all // a signed number, always: whoever needs one has no check
	case vShrU, vShrS:
		if b.lo < 0 {
			b = bounds{0, 63}
		}
		lo, hi := min(b.lo, 62), min(b.hi, 62)
		return a.over(1 << lo).join(a.over(1 << hi))
	case vOne:
		return a
	case vHalf:
		if a.lo < 0 {
			return all
		}
		return bounds{0, a.hi}
	}
	return everything
}

// modulo is the bounds of a modulo k > 0.
func modulo(a bounds, k int64) bounds {
	if a.bounded() && floorDiv(a.lo, k) == floorDiv(a.hi, k) {
		q := floorDiv(a.lo, k) * k
		return bounds{a.lo - q, a.hi - q}
	}
	return bounds{0, k - 1}
}

// quotient is the bounds of a / b, rounded towards zero; b > 0.
func quotient(a, b bounds) bounds {
	r := bounds{-far, far}
	if a.lo > -far {
		r.lo = a.lo / b.hi
		if a.lo < 0 {
			r.lo = a.lo / b.lo
		}
	}
	if a.hi < far {
		r.hi = a.hi / b.lo
		if a.hi < 0 {
			r.hi = a.hi / b.hi
		}
	}
	return r
}

// remainder is the bounds of a % b, with the sign of a; b > 0.
func remainder(a, b bounds) bounds {
	if b.lo == b.hi && a.lo >= 0 {
		return modulo(a, b.lo)
	}
	top := far
	if b.hi < far {
		top = b.hi - 1
	}
	r := bounds{0, max(0, min(a.hi, top))}
	if a.lo < 0 {
		r.lo = max(a.lo, -top)
	} else if a.hi < b.lo {
		r.lo = a.lo
	}
	return r
}

func mulHiBounds(signed bool, w uint8, a, b bounds) bounds {
	if signed {
		if w > 32 {
			if a.lo < 0 || b.lo < 0 {
				return signedBounds(w)
			}
		} else {
			p := a.product(b)
			return bounds{p.lo >> w, p.hi >> w}
		}
	} else if a.lo < 0 || b.lo < 0 {
		return unsignedBounds(w)
	}
	if a.hi >= far || b.hi >= far {
		return unsignedBounds(w)
	}
	return bounds{mulHigh(opMulHiU, w, a.lo, b.lo), mulHigh(opMulHiU, w, a.hi, b.hi)}
}
