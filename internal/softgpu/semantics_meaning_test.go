package softgpu

import (
	"fmt"
	"math"
	"math/big"
	"strings"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// A meaning is what an instruction computes, stated with big integers, exact rationals and loops over bits: by other
// means than the executor's. The operands are in the order of the instruction.
type meaning struct {
	value  func(x []uint64) uint64
	near   func(x []uint64, got uint64) string // instead of value: "" if got will do
	second func(x []uint64) uint64             // the other predicate: d|p
	carry  func(x []uint64) uint64
}

// A scalar is the meaning of an instruction on one element.
type scalar func(x []uint64) uint64

// lanes applies f to n elements of w bits each.
func (f scalar) lanes(n, w int) scalar {
	if n == 1 {
		return f
	}
	return func(x []uint64) (d uint64) {
		mask := uint64(1)<<w - 1
		for i := range n {
			el := make([]uint64, len(x))
			for k := range x {
				el[k] = x[k] >> (i * w) & mask
			}
			d |= f(el) & mask << (i * w)
		}
		return d
	}
}

// elementOf is the scalar type of a packed one and how many it holds.
func elementOf(t ptx.Type) (ptx.Type, int) {
	switch t {
	case ptx.F16x2:
		return ptx.F16, 2
	case ptx.BF16x2:
		return ptx.BF16, 2
	case ptx.F32x2:
		return ptx.F32, 2
	case ptx.U16x2:
		return ptx.U16, 2
	case ptx.S16x2:
		return ptx.S16, 2
	}
	return t, 1
}

func floatOf(t ptx.Type) (floatFormat, bool) { return formatOf(isa.TypeName(t)) }

// meaningOf states what a decoded instruction computes; lut is the table of lop3.
func meaningOf(in *isa.Inst, lut uint64) (m meaning, ok bool) {
	switch in.Op {
	case "setp", "testp":
		return comparison(in)
	case "set":
		f, ok := setMeaning(in)
		return meaning{value: f}, ok
	case "selp", "slct", "mov":
		f := moveMeaning(in)
		return meaning{value: f}, f != nil
	case "cvt":
		return conversion(in)
	case "cvt.pack":
		return meaning{value: packMeaning(in)}, true
	case "lop3":
		f := func(x []uint64) (d uint64) {
			for i := range 32 {
				k := x[0]>>i&1<<2 | x[1]>>i&1<<1 | x[2]>>i&1
				d |= lut >> k & 1 << i
			}
			return d
		}
		m := meaning{value: f}
		if in.Bool != "" {
			m.second = func(x []uint64) uint64 { return combine(in.Bool, f(x) != 0, x[3] != 0) }
		}
		return m, true
	}
	if m, ok := approximation(in); ok {
		return m, true
	}
	if in.Op[0] == 'v' {
		f := videoMeaning(in)
		return meaning{value: f}, f != nil
	}
	elem, n := elementOf(in.T)
	if f, isFloat := floatOf(elem); isFloat {
		g := floatMeaning(in, f)
		if g == nil {
			return m, false
		}
		m.value = g.lanes(n, isa.Bits(elem))
		if f.name == "f64" { // any NaN will do where one is due
			m.near = func(x []uint64, got uint64) string {
				if want := g(x); got != want && !(f.isNaN(want) && f.isNaN(got)) {
					return fmt.Sprintf("want %#x", want)
				}
				return ""
			}
		}
		return m, true
	}
	switch in.Op {
	case "addc", "subc", "madc":
		return carryMeaning(in), true
	}
	if in.Has(isa.CC) {
		return carryMeaning(in), true
	}
	if f := bitMeaning(in); f != nil {
		return meaning{value: f}, true
	}
	f := integerMeaning(in, elem)
	if f == nil {
		return m, false
	}
	return meaning{value: f.lanes(n, isa.Bits(elem))}, true
}

func combine(op string, a, b bool) uint64 {
	switch op {
	case "and":
		return number.FromBool(a && b)
	case "or":
		return number.FromBool(a || b)
	case "xor":
		return number.FromBool(a != b)
	}
	return number.FromBool(a)
}

// integerMeaning is arithmetic modulo 2^w.
func integerMeaning(in *isa.Inst, t ptx.Type) scalar {
	w, signed := isa.Bits(t), isa.Signed(t)
	z := func() *big.Int { return new(big.Int) }
	num := func(f func(v []*big.Int) *big.Int) scalar {
		return func(x []uint64) uint64 {
			v := make([]*big.Int, len(x))
			for i := range x {
				v[i] = bigOf(x[i], w, signed)
			}
			r := f(v)
			if in.Has(isa.Sat) {
				r = clampTo(r, w, signed)
			}
			return wrapTo(r, w)
		}
	}
	wide := func(terms int) scalar {
		return func(x []uint64) uint64 {
			v := z().Mul(bigOf(x[0], w, signed), bigOf(x[1], w, signed))
			if terms == 3 {
				v.Add(v, bigOf(x[2], 2*w, signed))
			}
			return wrapTo(v, 2*w)
		}
	}
	half := func(v *big.Int) *big.Int {
		if in.Mode == "hi" {
			return z().Rsh(v, uint(w))
		}
		return v
	}
	pick := func(less bool) scalar {
		return num(func(v []*big.Int) *big.Int {
			r := v[0]
			if (v[1].Cmp(v[0]) < 0) == less {
				r = v[1]
			}
			if in.Has(isa.Relu) && r.Sign() < 0 {
				r = z()
			}
			return r
		})
	}
	low := func(x uint64) *big.Int { return bigOf(x, 24, signed) }
	half24 := func(x, y uint64) *big.Int {
		v := z().Mul(low(x), low(y))
		if in.Mode == "hi" {
			return v.Rsh(v, 16)
		}
		return v
	}
	switch in.Op {
	case "add":
		return num(func(v []*big.Int) *big.Int { return z().Add(v[0], v[1]) })
	case "sub":
		return num(func(v []*big.Int) *big.Int { return z().Sub(v[0], v[1]) })
	case "mul":
		if in.Mode == "wide" {
			return wide(2)
		}
		return num(func(v []*big.Int) *big.Int { return half(z().Mul(v[0], v[1])) })
	case "mad":
		if in.Mode == "wide" {
			return wide(3)
		}
		return num(func(v []*big.Int) *big.Int { return z().Add(half(z().Mul(v[0], v[1])), v[2]) })
	case "mul24":
		return func(x []uint64) uint64 { return wrapTo(half24(x[0], x[1]), 32) }
	case "mad24":
		return func(x []uint64) uint64 {
			v := z().Add(half24(x[0], x[1]), bigOf(x[2], 32, signed))
			if in.Has(isa.Sat) {
				v = clampTo(v, 32, signed)
			}
			return wrapTo(v, 32)
		}
	case "div":
		return num(func(v []*big.Int) *big.Int {
			if v[1].Sign() == 0 {
				return big.NewInt(-1) // machine-specific, says the ISA
			}
			return z().Quo(v[0], v[1])
		})
	case "rem":
		return num(func(v []*big.Int) *big.Int {
			if v[1].Sign() == 0 {
				return big.NewInt(-1) // H200, driver 580.159, measured
			}
			return z().Rem(v[0], v[1])
		})
	case "sad":
		return num(func(v []*big.Int) *big.Int { return z().Add(z().Abs(z().Sub(v[0], v[1])), v[2]) })
	case "min":
		return pick(true)
	case "max":
		return pick(false)
	case "abs":
		return num(func(v []*big.Int) *big.Int { return z().Abs(v[0]) })
	case "neg":
		return num(func(v []*big.Int) *big.Int { return z().Neg(v[0]) })
	case "dp4a", "dp2a":
		sa, sb := isa.Signed(in.T), isa.Signed(in.U)
		return func(x []uint64) uint64 {
			v := bigOf(x[2], 32, sa || sb)
			for i := range 4 {
				a, b := x[0]>>(8*i), x[1]>>(8*i)
				n := 8
				if in.Op == "dp2a" {
					if i >= 2 {
						break
					}
					n = 16
					a = x[0] >> (16 * i)
					if in.Mode == "hi" {
						b = x[1] >> (8*i + 16)
					}
				}
				v = z().Add(v, z().Mul(bigOf(a, n, sa), bigOf(b, 8, sb)))
			}
			return wrapTo(v, 32)
		}
	case "clmad":
		return func(x []uint64) uint64 {
			p := z()
			for i := range 64 {
				if x[1]>>i&1 != 0 {
					p.Xor(p, z().Lsh(z().SetUint64(x[0]), uint(i)))
				}
			}
			if in.Mode == "hi" {
				p.Rsh(p, 64)
			}
			return wrapTo(p, 64) ^ x[2]
		}
	}
	return nil
}

// carryMeaning is a step of an extended-precision chain. Probes set the flag beforehand, by adding the first two
// operands. A subtraction leaves the complement of the borrow.
func carryMeaning(in *isa.Inst) meaning {
	w, signed := isa.Bits(in.T), isa.Signed(in.T)
	full := func(x []uint64) *big.Int {
		v := make([]*big.Int, len(x))
		for i := range x {
			v[i] = bigOf(x[i], w, false)
		}
		flag := big.NewInt(0)
		reads := strings.HasSuffix(in.Op, "c")
		if reads {
			flag = new(big.Int).Rsh(new(big.Int).Add(v[0], v[1]), uint(w))
		}
		one := big.NewInt(1)
		switch in.Op {
		case "sub", "subc":
			// a + ~b + flag, the flag being 1 without a borrow.
			not := new(big.Int).Sub(new(big.Int).Sub(new(big.Int).Lsh(one, uint(w)), one), v[1])
			if !reads {
				flag = one
			}
			return not.Add(not, v[0]).Add(not, flag)
		case "add", "addc":
			return new(big.Int).Add(new(big.Int).Add(v[0], v[1]), flag)
		}
		p := new(big.Int).Mul(bigOf(x[0], w, signed), bigOf(x[1], w, signed))
		if in.Mode == "hi" {
			p.Rsh(p, uint(w))
		}
		return new(big.Int).Add(new(big.Int).Add(new(big.Int).SetUint64(wrapTo(p, w)), v[2]), flag)
	}
	return meaning{value: func(x []uint64) uint64 { return wrapTo(full(x), w) },
		carry: func(x []uint64) uint64 { return full(x).Rsh(full(x), uint(w)).Uint64() & 1 }}
}

// bitMeaning is logic, shifts and bit fields, bit by bit.
func bitMeaning(in *isa.Inst) scalar {
	w, signed := isa.Bits(in.T), isa.Signed(in.T)
	bit := func(x uint64, i int) uint64 { return x >> i & 1 }
	each := func(f func(x []uint64, i int) uint64) scalar {
		return func(x []uint64) (d uint64) {
			for i := range w {
				d |= f(x, i) & 1 << i
			}
			return d
		}
	}
	switch in.Op {
	case "and":
		return each(func(x []uint64, i int) uint64 { return bit(x[0], i) * bit(x[1], i) })
	case "or":
		return each(func(x []uint64, i int) uint64 { return (bit(x[0], i) + bit(x[1], i) + 1) >> 1 })
	case "xor":
		return each(func(x []uint64, i int) uint64 { return bit(x[0], i) + bit(x[1], i) })
	case "not":
		return each(func(x []uint64, i int) uint64 { return 1 - bit(x[0], i) })
	case "cnot":
		return func(x []uint64) uint64 { return number.FromBool(x[0] == 0) }
	case "shl":
		return each(func(x []uint64, i int) uint64 {
			if x[1] > uint64(i) {
				return 0
			}
			return bit(x[0], i-int(x[1]))
		})
	case "shr":
		return each(func(x []uint64, i int) uint64 {
			if from := uint64(i) + x[1]; from < uint64(w) {
				return bit(x[0], int(from))
			}
			return bit(x[0], w-1) * number.FromBool(signed)
		})
	case "shf":
		return func(x []uint64) uint64 {
			n := x[2] & 31
			if in.Mode2 == "clamp" {
				n = min(x[2], 32)
			}
			v := new(big.Int).SetUint64(x[1]<<32 | x[0])
			if in.Mode == "l" {
				return wrapTo(v.Rsh(v.Lsh(v, uint(n)), 32), 32)
			}
			return wrapTo(v.Rsh(v, uint(n)), 32)
		}
	case "popc":
		return func(x []uint64) (n uint64) {
			for i := range w {
				n += bit(x[0], i)
			}
			return n
		}
	case "clz":
		return func(x []uint64) (n uint64) {
			for int(n) < w && bit(x[0], w-1-int(n)) == 0 {
				n++
			}
			return n
		}
	case "brev":
		return each(func(x []uint64, i int) uint64 { return bit(x[0], w-1-i) })
	case "bfind":
		return func(x []uint64) uint64 {
			for i := w - 1; i >= 0; i-- {
				if bit(x[0], i) != bit(x[0], w-1)*number.FromBool(signed) {
					if in.Mode == "shiftamt" {
						return uint64(w - 1 - i)
					}
					return uint64(i)
				}
			}
			return 0xffffffff
		}
	case "bfe":
		return func(x []uint64) (d uint64) { // the ISA's pseudocode
			msb := w - 1
			pos, n := fieldOf(x[1], x[2], w)
			var sign uint64
			if signed && n != 0 {
				sign = bit(x[0], min(pos+n-1, msb))
			}
			for i := 0; i <= msb; i++ {
				v := sign
				if i < n && pos+i <= msb {
					v = bit(x[0], pos+i)
				}
				d |= v << i
			}
			return d
		}
	case "bfi":
		return func(x []uint64) uint64 {
			pos, n := fieldOf(x[2], x[3], w)
			f := x[1]
			for i := 0; i < n && pos+i < w; i++ {
				f = f&^(1<<(pos+i)) | bit(x[0], i)<<(pos+i)
			}
			return f
		}
	case "szext":
		return func(x []uint64) (d uint64) {
			n := x[1]
			if in.Mode == "wrap" {
				n &= 31
			}
			if n == 0 {
				return 0
			}
			n = min(n, 32)
			for i := range 32 {
				switch {
				case i < int(n):
					d |= bit(x[0], i) << i
				case signed:
					d |= bit(x[0], int(n)-1) << i
				}
			}
			return d
		}
	case "bmsk":
		return func(x []uint64) (d uint64) {
			at, n := x[0], x[1]
			if in.Mode == "wrap" {
				at, n = at&31, n&31
			}
			for i := range uint64(32) {
				if i >= at && i-at < n {
					d |= 1 << i
				}
			}
			return d
		}
	case "fns":
		return findNthSet
	case "prmt":
		return func(x []uint64) (d uint64) {
			v := x[1]<<32 | x[0]
			for i := range 4 {
				c := int(x[2] & 3)
				k := map[string]int{"f4e": c + i, "b4e": (c - i) & 7, "rc8": c, "ecl": max(c, i), "ecr": min(c, i),
					"rc16": c&1*2 + i&1}[in.Mode]
				by := v >> (8 * k) & 0xff
				if in.Mode == "" {
					sel := x[2] >> (4 * i) & 15
					if by = v >> (8 * (sel & 7)) & 0xff; sel&8 != 0 {
						by = by >> 7 * 0xff
					}
				}
				d |= by << (8 * i)
			}
			return d
		}
	}
	return nil
}

// floatMeaning is arithmetic on exact rationals, rounded once.
func floatMeaning(in *isa.Inst, f floatFormat) scalar {
	mode := in.Rnd
	if mode == "" {
		mode = "rn"
	}
	ftz := in.Has(isa.Ftz) && f.name != "f64" // whose denormals stay, but in rcp.approx.ftz and rsqrt.approx.ftz
	negate := func(x uint64) uint64 { return x ^ f.signBit() }
	// An operand of another format is that of the second type.
	operand := func(i int, x uint64) uint64 {
		if from, ok := floatOf(in.U); ok && in.Op != "div" && (i == 0 || in.Op == "fma" && i == 1) {
			x = exactly(from, f, x)
		}
		if ftz {
			x = f.flush(x)
		}
		return x
	}
	result := func(d uint64, x []uint64) uint64 {
		if ftz {
			d = f.flushed(in.Op, d, x, mode)
		}
		if in.Has(isa.Sat) {
			d = f.sat(d)
		}
		if in.Has(isa.Relu) && f.neg(d) && !f.isNaN(d) {
			d = 0
		}
		return d
	}
	num := func(g func(x []uint64) uint64) scalar {
		return func(x []uint64) uint64 {
			v := make([]uint64, len(x))
			for i := range x {
				v[i] = operand(i, x[i])
			}
			return result(g(v), v)
		}
	}
	one := uint64(f.bias()) << f.m
	switch in.Op {
	case "add":
		return num(func(x []uint64) uint64 { return f.exactSum(x[0], 0, x[1], false, mode) })
	case "sub":
		return num(func(x []uint64) uint64 { return f.exactSum(x[0], 0, negate(x[1]), false, mode) })
	case "mul":
		return num(func(x []uint64) uint64 { return f.product(x[0], x[1], mode) })
	case "fma", "mad":
		g := num(func(x []uint64) uint64 { return f.exactSum(x[0], x[1], x[2], true, mode) })
		if in.Has(isa.OOB) {
			return func(x []uint64) uint64 {
				if x[0]%0x8000 == 0x7ff7 || x[1]%0x8000 == 0x7ff7 { // what a tensor copy fills in
					return 0
				}
				return g(x)
			}
		}
		return g
	case "div":
		return num(func(x []uint64) uint64 { return f.quotient(x[0], x[1], mode) })
	case "rcp":
		return num(func(x []uint64) uint64 { return f.quotient(one, x[0], mode) })
	case "sqrt":
		return num(func(x []uint64) uint64 { return f.root(x[0], mode) })
	case "abs", "neg":
		return num(func(x []uint64) uint64 {
			d := x[0] &^ f.signBit()
			if in.Op == "neg" {
				d = negate(x[0])
			}
			switch {
			case f.isNaN(d) && f.name == "f64":
				return x[0] | 1<<51 // H200, driver 580.159, measured
			case f.isNaN(d):
				return f.nan
			}
			return d
		})
	case "copysign": // the sign of the first, the magnitude of the second
		return func(x []uint64) uint64 { return x[1]&^f.signBit() | x[0]&f.signBit() }
	case "min", "max":
		return num(func(x []uint64) uint64 { return f.extreme(in, x) })
	}
	return nil
}

// extreme is min and max of two or three operands.
func (f floatFormat) extreme(in *isa.Inst, x []uint64) uint64 {
	var sign uint64
	r, have, nan := uint64(0), false, false
	for _, v := range x {
		sign ^= v & f.signBit()
		if in.Has(isa.Abs) {
			v &^= f.signBit()
		}
		// By sign and magnitude; -0 is below +0.
		key := func(x uint64) int64 {
			if f.neg(x) {
				return -int64(x&^f.signBit()) - 1
			}
			return int64(x)
		}
		switch {
		case f.isNaN(v):
			nan = true
		case !have, (key(v) < key(r)) == (in.Op == "min") && v != r:
			r, have = v, true
		}
	}
	if !have || nan && in.Has(isa.NaN) {
		return f.nan
	}
	if in.Has(isa.XorSign) {
		r = r&^f.signBit() | sign
	}
	return r
}

// exactly converts to a wider format.
func exactly(from, to floatFormat, x uint64) uint64 {
	return convertFloat(from, to, x, "rn")
}

// convertFloat rounds a number of one format to another.
func convertFloat(from, to floatFormat, x uint64, mode string) uint64 {
	var sign uint64
	if from.neg(x) {
		sign = to.signBit()
	}
	switch {
	case from.isNaN(x):
		return to.nan
	case from.isInf(x):
		return to.inf() | sign
	case from.zero(x):
		return sign
	}
	return to.round(from.rat(x), mode, false)
}

// comparison is setp and testp.
func comparison(in *isa.Inst) (meaning, bool) {
	if in.Op == "testp" {
		f, ok := floatOf(in.T)
		if !ok {
			return meaning{}, false
		}
		return meaning{value: func(x []uint64) uint64 {
			a := x[0]
			switch in.Fn {
			case "finite":
				return number.FromBool(!f.isNaN(a) && !f.isInf(a))
			case "infinite":
				return number.FromBool(f.isInf(a))
			case "number":
				return number.FromBool(!f.isNaN(a))
			case "notanumber":
				return number.FromBool(f.isNaN(a))
			case "normal":
				return number.FromBool(!f.isNaN(a) && !f.isInf(a) && !f.subnormal(a)) // zero is normal: PTX ISA 9.7.3.2
			}
			return number.FromBool(f.subnormal(a))
		}}, true
	}
	elem, n := elementOf(in.T)
	holds := relation(in, elem)
	if holds == nil {
		return meaning{}, false
	}
	with := func(x []uint64, c bool) uint64 {
		if in.Bool == "" {
			return number.FromBool(c)
		}
		return combine(in.Bool, c, x[2] != 0)
	}
	if n == 2 { // d of the lower half, p of the upper
		return meaning{value: func(x []uint64) uint64 { return with(x, holds(x[0]&0xffff, x[1]&0xffff)) },
			second: func(x []uint64) uint64 { return with(x, holds(x[0]>>16, x[1]>>16)) }}, true
	}
	return meaning{value: func(x []uint64) uint64 { return with(x, holds(x[0], x[1])) },
		second: func(x []uint64) uint64 { return with(x, !holds(x[0], x[1])) }}, true
}

// relation is the comparison of two elements.
func relation(in *isa.Inst, t ptx.Type) func(a, b uint64) bool {
	f, isFloat := floatOf(t)
	ordered := func(c int) bool {
		switch strings.TrimSuffix(
			map[string]string{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}[in.Cmp]+in.Cmp, "u")[:2] {
		case "eq":
			return c == 0
		case "ne":
			return c != 0
		case "lt":
			return c < 0
		case "le":
			return c <= 0
		case "gt":
			return c > 0
		}
		return c >= 0
	}
	if !isFloat {
		w, signed := isa.Bits(t), isa.Signed(t)
		return func(a, b uint64) bool { return ordered(bigOf(a, w, signed).Cmp(bigOf(b, w, signed))) }
	}
	return func(a, b uint64) bool {
		if in.Has(isa.Ftz) && f.name != "bf16" { // which .ftz does not apply to
			a, b = f.flush(a), f.flush(b)
		}
		nan := f.isNaN(a) || f.isNaN(b)
		switch {
		case in.Cmp == "num":
			return !nan
		case in.Cmp == "nan":
			return nan
		case nan:
			return len(in.Cmp) == 3
		}
		value := func(x uint64) *big.Rat {
			if f.isInf(x) {
				r := pow2(5000)
				if f.neg(x) {
					r.Neg(r)
				}
				return r
			}
			return f.rat(x)
		}
		return ordered(value(a).Cmp(value(b)))
	}
}

// setMeaning is set: all ones or 1.0.
func setMeaning(in *isa.Inst) (scalar, bool) {
	elem, n := elementOf(in.U)
	holds := relation(in, elem)
	dst, nd := elementOf(in.T)
	yes := uint64(1)<<isa.Bits(dst) - 1
	if f, ok := floatOf(dst); ok {
		yes = uint64(f.bias()) << f.m
	}
	if nd == 1 && n == 2 { // .u32 of halves: each half is a mask
		yes = 0xffff
	}
	one := func(x []uint64, a, b uint64) uint64 {
		c := holds(a, b)
		if in.Bool != "" {
			c = combine(in.Bool, c, x[2] != 0) != 0
		}
		return number.FromBool(c) * yes
	}
	return func(x []uint64) uint64 {
		if n == 2 {
			return one(x, x[0]&0xffff, x[1]&0xffff) | one(x, x[0]>>16, x[1]>>16)<<16
		}
		return one(x, x[0], x[1])
	}, holds != nil
}

func moveMeaning(in *isa.Inst) scalar {
	switch in.Op {
	case "mov":
		if in.T == ptx.B128 {
			return nil
		}
		return func(x []uint64) uint64 { return x[0] }
	case "selp":
		return func(x []uint64) uint64 { return x[1-x[2]] }
	}
	return func(x []uint64) uint64 { // slct
		if in.U == ptx.S32 {
			return x[x[2]>>31&1]
		}
		c := x[2]
		if binary32.isNaN(c) {
			return x[1]
		}
		if in.Has(isa.Ftz) {
			c = binary32.flush(c)
		}
		return x[number.FromBool(binary32.neg(c) && !binary32.zero(c))]
	}
}

// approximation is an approximate instruction: the bound of the rule of package probe against float64 functions.
func approximation(in *isa.Inst) (meaning, bool) {
	rel, abs := 0.0, 0.0
	const u = 0x1p-23
	var f func(a, b float64) float64
	approx := in.Has(isa.Approx) || in.Op == "tanh" || in.Op == "ex2"
	elem, n := elementOf(in.T)
	format, _ := floatOf(elem)
	switch {
	case in.Op == "div" && format.name == "f32" && (approx || in.Has(isa.Full)):
		rel, abs, f = 2*u, 0x1p-149, func(a, b float64) float64 {
			if approx && math.Abs(b) > 0x1p126 && !math.IsInf(b, 0) {
				if math.IsInf(a, 0) {
					return math.NaN()
				}
				return a * 0 * b
			}
			return a / b
		}
	case !approx:
		return meaning{}, false
	case in.Op == "rcp":
		rel, abs, f = u, 0x1p-149, func(a, _ float64) float64 { return 1 / a }
	case in.Op == "sqrt":
		rel, abs, f = u, 0x1p-149, func(a, _ float64) float64 { return math.Sqrt(a) }
	case in.Op == "rsqrt":
		rel, f = 2*u, func(a, _ float64) float64 { return 1 / math.Sqrt(a) }
	case in.Op == "ex2":
		rel, abs, f = 2*u, 0x1p-149, func(a, _ float64) float64 { return math.Pow(2, a) }
	case in.Op == "lg2":
		rel, abs, f = u, 0x1p-22, func(a, _ float64) float64 { return math.Log2(a) }
	case in.Op == "sin":
		rel, abs, f = u, 0x1p-20, func(a, _ float64) float64 { return math.Sin(a) }
	case in.Op == "cos":
		rel, abs, f = u, 0x1p-20, func(a, _ float64) float64 { return math.Sin(a + math.Pi/2) }
	case in.Op == "tanh":
		rel, f = 0x1p-11, func(a, _ float64) float64 {
			if math.Abs(a) < 0x1p-20 {
				return a
			}
			return 1 - 2/(math.Exp(2*a)+1)
		}
	default:
		return meaning{}, false
	}
	switch format.name {
	case "f64":
		rel, abs = 0x1p-20, 0
	case "f16":
		rel, abs = 0x1p-9, 0x1p-24
	case "bf16":
		rel, abs = 0x1p-7, 0x1p-133
	}
	ftz := in.Has(isa.Ftz)
	check := func(x []uint64, got uint64) string {
		v := [2]float64{}
		for i := range x {
			a := x[i]
			if ftz {
				a = format.flush(a)
			}
			if format.name == "f64" && (ftz || in.Op == "rcp") {
				a &^= 0xffffffff // the lower word counts for nothing: H200, driver 580.159, measured
			}
			v[i] = float64Of(format, a)
		}
		want := f(v[0], v[1])
		w, _ := nearestOf(format, want)
		if ftz {
			w = format.flush(w)
		}
		if got == w || format.isNaN(got) && want != want {
			return ""
		}
		if format.isNaN(got) || want != want || format.isInf(got) != format.isInf(w) || ftz && format.subnormal(got) {
			return fmt.Sprintf("want %#x", w)
		}
		if g := float64Of(format, got); math.Abs(g-want) > math.Abs(want)*rel+abs && !(ftz && got == w) {
			if ftz && format.zero(got) && math.Abs(want) < math.Ldexp(1, 2-format.bias()) {
				return ""
			}
			return fmt.Sprintf("%v, want %v", g, want)
		}
		return ""
	}
	return meaning{near: func(x []uint64, got uint64) string {
		if n == 1 {
			return check(x, got)
		}
		for i := range n {
			if why := check([]uint64{x[0] >> (16 * i) & 0xffff}, got>>(16*i)&0xffff); why != "" {
				return why
			}
		}
		return ""
	}}, true
}

func float64Of(f floatFormat, x uint64) float64 {
	switch {
	case f.isNaN(x):
		return math.NaN()
	case f.isInf(x) && f.neg(x):
		return math.Inf(-1)
	case f.isInf(x):
		return math.Inf(1)
	case f.zero(x) && f.neg(x):
		return math.Copysign(0, -1)
	}
	v, _ := f.rat(x).Float64()
	return v
}

func nearestOf(f floatFormat, v float64) (uint64, bool) {
	return convertFloat(binary64, f, math.Float64bits(v), "rn"), true
}
