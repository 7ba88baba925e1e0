package softgpu

import (
	"math/bits"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// intFunc is integer arithmetic and bit manipulation. Results are masked to
// the width of the type, except those of .wide.
func intFunc(in *isa.Inst) laneFunc {
	n := uint(isa.Bits(in.T))
	if n < 8 {
		return nil
	}
	signed := isa.Signed(in.T)
	mask := ^uint64(0) >> (64 - n)
	wrap := func(f func(a, b, c uint64) uint64) laneFunc {
		return func(a, b, c uint64) uint64 { return f(a, b, c) & mask }
	}
	// value is the mathematical value as an int64, right for all but u64.
	value := func(x uint64) int64 {
		if signed {
			return number.SignExtend(x, n)
		}
		return int64(number.ZeroExtend(x, n))
	}
	less := func(a, b uint64) bool {
		if signed {
			return number.SignExtend(a, n) < number.SignExtend(b, n)
		}
		return number.ZeroExtend(a, n) < number.ZeroExtend(b, n)
	}
	switch in.Op {
	case "add":
		if in.Has(isa.Sat) {
			return func(a, b, _ uint64) uint64 { return number.Saturate32(value(a) + value(b)) }
		}
		return wrap(func(a, b, _ uint64) uint64 { return a + b })
	case "sub":
		if in.Has(isa.Sat) {
			return func(a, b, _ uint64) uint64 { return number.Saturate32(value(a) - value(b)) }
		}
		return wrap(func(a, b, _ uint64) uint64 { return a - b })
	case "mul", "mad":
		add := in.Op == "mad"
		addend := func(c uint64) uint64 {
			if add {
				return c
			}
			return 0
		}
		switch in.Mode {
		case "hi":
			if in.Has(isa.Sat) {
				return func(a, b, c uint64) uint64 {
					return number.Saturate32(number.SignExtend(number.MulHi(a, b, n, true), n) + number.SignExtend(c, n))
				}
			}
			return wrap(func(a, b, c uint64) uint64 { return number.MulHi(a, b, n, signed) + addend(c) })
		case "wide":
			m := ^uint64(0) >> (64 - 2*n)
			return func(a, b, c uint64) uint64 { return (uint64(value(a)*value(b)) + addend(c)) & m }
		}
		return wrap(func(a, b, c uint64) uint64 { return a*b + addend(c) })
	case "mul24", "mad24":
		add := in.Op == "mad24"
		hi, sat := in.Mode == "hi", in.Has(isa.Sat)
		return func(a, b, c uint64) uint64 {
			var p uint64
			if signed {
				p = uint64(number.SignExtend(a, 24) * number.SignExtend(b, 24))
			} else {
				p = number.ZeroExtend(a, 24) * number.ZeroExtend(b, 24)
			}
			if hi {
				p >>= 16
			}
			if add {
				if sat {
					return number.Saturate32(number.SignExtend(p, 32) + number.SignExtend(c, 32))
				}
				p += c
			}
			return p & 0xffffffff
		}
	case "div":
		return wrap(func(a, b, _ uint64) uint64 {
			if b&mask == 0 {
				return ^uint64(0) // the ISA leaves it open; this is what GPUs give
			}
			if signed {
				return uint64(value(a) / value(b))
			}
			return (a & mask) / (b & mask)
		})
	case "rem":
		return wrap(func(a, b, _ uint64) uint64 {
			if b&mask == 0 {
				return ^uint64(0) // as above (H200, driver 580.159, measured)
			}
			if signed {
				return uint64(value(a) % value(b))
			}
			return (a & mask) % (b & mask)
		})
	case "abs":
		return wrap(func(a, _, _ uint64) uint64 {
			if value(a) < 0 {
				return -a
			}
			return a
		})
	case "neg":
		return wrap(func(a, _, _ uint64) uint64 { return -a })
	case "sad":
		return wrap(func(a, b, c uint64) uint64 {
			if less(a, b) {
				return c + b - a
			}
			return c + a - b
		})
	case "min", "max":
		isMin, relu := in.Op == "min", in.Has(isa.Relu)
		return wrap(func(a, b, _ uint64) uint64 {
			if less(b, a) == isMin {
				a = b
			}
			if relu && value(a) < 0 {
				return 0
			}
			return a
		})
	case "and":
		return wrap(func(a, b, _ uint64) uint64 { return a & b })
	case "or":
		return wrap(func(a, b, _ uint64) uint64 { return a | b })
	case "xor":
		return wrap(func(a, b, _ uint64) uint64 { return a ^ b })
	case "not":
		return wrap(func(a, _, _ uint64) uint64 { return ^a })
	case "cnot":
		return func(a, _, _ uint64) uint64 { return number.FromBool(a&mask == 0) }
	case "shl":
		return wrap(func(a, b, _ uint64) uint64 { return a << (b & 0xffffffff) })
	case "shr":
		return wrap(func(a, b, _ uint64) uint64 {
			if signed {
				return uint64(value(a) >> (b & 0xffffffff))
			}
			return a & mask >> (b & 0xffffffff)
		})
	case "popc":
		return func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a & mask)) }
	case "clz":
		return func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros64(a&mask)) - uint64(64-n) }
	case "brev":
		return func(a, _, _ uint64) uint64 { return bits.Reverse64(a) >> (64 - n) }
	case "bfind":
		shift := in.Mode == "shiftamt"
		return func(a, _, _ uint64) uint64 {
			if signed && value(a) < 0 {
				a = ^a
			}
			d := uint64(bits.Len64(a&mask)) - 1
			if int64(d) < 0 {
				return 0xffffffff
			}
			if shift {
				d = uint64(n) - 1 - d
			}
			return d
		}
	case "bfe":
		return func(a, b, c uint64) uint64 { return number.ExtractField(a, b, c, n, signed) & mask }
	case "szext":
		wrapMode := in.Mode == "wrap"
		return wrap(func(a, b, _ uint64) uint64 {
			k := b & 0xffffffff
			if wrapMode {
				k &= 31
			}
			if k == 0 {
				return 0
			}
			if k >= 32 {
				return a
			}
			if signed {
				return uint64(number.SignExtend(a, uint(k)))
			}
			return number.ZeroExtend(a, uint(k))
		})
	case "bmsk":
		wrapMode := in.Mode == "wrap"
		return wrap(func(a, b, _ uint64) uint64 {
			start, k := a&0xffffffff, b&0xffffffff
			if wrapMode {
				start, k = start&31, k&31
			}
			return (uint64(1)<<min(k, 63) - 1) << start
		})
	case "fns":
		return func(a, b, c uint64) uint64 { return uint64(number.FindNthSet(uint32(a), uint32(b), int32(c))) }
	case "shf":
		left, clamp := in.Mode == "l", in.Mode2 == "clamp"
		return func(a, b, c uint64) uint64 {
			k := c & 0xffffffff
			if clamp {
				k = min(k, 32)
			} else {
				k &= 31
			}
			x := b<<32 | a
			if left {
				return x << k >> 32 & 0xffffffff
			}
			return x >> k & 0xffffffff
		}
	case "prmt":
		return prmtFunc(in.Mode)
	case "dp4a", "dp2a":
		return dotFunc(in)
	case "clmad":
		hi := in.Mode == "hi"
		return func(a, b, c uint64) uint64 {
			var h, l uint64
			for i := range uint(64) {
				if b>>i&1 != 0 {
					l ^= a << i
					h ^= a >> 1 >> (63 - i)
				}
			}
			if hi {
				return h ^ c
			}
			return l ^ c
		}
	}
	return nil
}

func prmtFunc(mode string) laneFunc {
	pick := func(a, b, sel uint64) uint64 {
		x := b<<32 | a&0xffffffff
		v := x >> (sel & 7 * 8) & 0xff
		if sel&8 != 0 {
			if v&0x80 != 0 {
				return 0xff
			}
			return 0
		}
		return v
	}
	table := map[string][4]uint64{ // selectors by c&3, one nibble a byte, least significant first
		"f4e":  {0x3210, 0x4321, 0x5432, 0x6543},
		"b4e":  {0x5670, 0x6701, 0x7012, 0x0123},
		"rc8":  {0x0000, 0x1111, 0x2222, 0x3333},
		"ecl":  {0x3210, 0x3211, 0x3222, 0x3333},
		"ecr":  {0x0000, 0x1110, 0x2210, 0x3210},
		"rc16": {0x1010, 0x3232, 0x1010, 0x3232},
	}
	sels, special := table[mode]
	return func(a, b, c uint64) uint64 {
		sel := c
		if special {
			sel = sels[c&3]
		}
		var d uint64
		for i := range uint(4) {
			d |= pick(a, b, sel>>(4*i)&15) << (8 * i)
		}
		return d
	}
}

func dotFunc(in *isa.Inst) laneFunc {
	aSigned, bSigned := in.T == ptx.S32, in.U == ptx.S32
	get := func(x uint64, i, n uint, signed bool) int64 {
		x >>= i * n
		if signed {
			return number.SignExtend(x, n)
		}
		return int64(number.ZeroExtend(x, n))
	}
	if in.Op == "dp4a" {
		return func(a, b, c uint64) uint64 {
			d := int64(c)
			for i := range uint(4) {
				d += get(a, i, 8, aSigned) * get(b, i, 8, bSigned)
			}
			return uint64(uint32(d))
		}
	}
	var first uint
	if in.Mode == "hi" {
		first = 2
	}
	return func(a, b, c uint64) uint64 {
		d := int64(c)
		for i := range uint(2) {
			d += get(a, i, 16, aSigned) * get(b, first+i, 8, bSigned)
		}
		return uint64(uint32(d))
	}
}

func slctFunc(in *isa.Inst) laneFunc {
	if in.U == ptx.S32 {
		return func(a, b, c uint64) uint64 {
			if int32(c) >= 0 {
				return a
			}
			return b
		}
	}
	ftz := in.Has(isa.Ftz)
	return func(a, b, c uint64) uint64 {
		x := number.F32(c)
		if ftz {
			x = number.Flush32(x)
		}
		if x >= 0 { // -0 is not below zero, NaN is no number
			return a
		}
		return b
	}
}

// carry translates the extended-precision instructions; the carry flag is a
// predicate of the register file.
func (l *lowering) carry(in *isa.Inst) {
	n := uint(isa.Bits(in.T))
	op := in.Op
	var off [4]uint32
	off[0] = l.writeExact(in.Args[0].X, in.T)
	for i := 1; i < len(in.Args); i++ {
		off[i] = l.read(in.Args[i].X, in.T)
	}
	wide := n == 64
	setCC := in.Has(isa.CC)
	useCC := op == "addc" || op == "subc" || op == "madc"
	mul := op == "mad" || op == "madc"
	hi := in.Mode == "hi"
	signed := isa.Signed(in.T)
	sub := op == "sub" || op == "subc"
	// A subtraction adds the complement, so the flag it leaves is 0 after a
	// borrow; programs that use one family of instructions in a chain see what
	// the ISA says either way.
	var borrow uint64
	if op == "subc" {
		borrow = 1
	}
	l.emit(inst{kind: kindExec, d: off[0], a: off[1], b: off[2], c: off[3], exec: func(w *warp, in *inst, mask uint32) {
		cc := w.r.p(regCC)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			x, y := w.r.get(in.a, i, wide), w.r.get(in.b, i, wide)
			if mul {
				p := x * y
				if hi {
					p = number.MulHi(x, y, n, signed)
				}
				x, y = number.ZeroExtend(p, n), w.r.get(in.c, i, wide)
			}
			var carry uint64
			if useCC {
				carry = uint64(*cc >> i & 1)
			}
			var d, out uint64
			switch {
			case sub && wide:
				d, out = bits.Sub64(x, y, carry^borrow)
				out ^= 1
			case sub:
				d = x - y - (carry ^ borrow)
				out = d>>32&1 ^ 1
			case wide:
				d, out = bits.Add64(x, y, carry)
			default:
				d = x + y + carry
				out = d >> 32 & 1
			}
			w.r.put(in.d, i, wide, d)
			if setCC {
				*cc = *cc&^(1<<i) | uint32(out)<<i
			}
		}
	}})
}
