package softgpu

import (
	"math"
	"math/bits"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// signExtend and zeroExtend give the value of the low n bits.
func signExtend(x uint64, n uint) int64  { return int64(x<<(64-n)) >> (64 - n) }
func zeroExtend(x uint64, n uint) uint64 { return x << (64 - n) >> (64 - n) }

// mulHi is the high half of the product of two n-bit numbers.
func mulHi(a, b uint64, n uint, signed bool) uint64 {
	if n < 64 {
		if signed {
			return uint64(signExtend(a, n) * signExtend(b, n) >> n)
		}
		return zeroExtend(a, n) * zeroExtend(b, n) >> n
	}
	hi, _ := bits.Mul64(a, b)
	if signed {
		if int64(a) < 0 {
			hi -= b
		}
		if int64(b) < 0 {
			hi -= a
		}
	}
	return hi
}

// saturate32 clamps to the range of s32.
func saturate32(x int64) uint64 {
	return uint64(uint32(int32(min(max(x, -1<<31), 1<<31-1))))
}

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
			return signExtend(x, n)
		}
		return int64(zeroExtend(x, n))
	}
	less := func(a, b uint64) bool {
		if signed {
			return signExtend(a, n) < signExtend(b, n)
		}
		return zeroExtend(a, n) < zeroExtend(b, n)
	}
	switch in.Op {
	case "add":
		if in.Has(isa.Sat) {
			return func(a, b, _ uint64) uint64 { return saturate32(value(a) + value(b)) }
		}
		return wrap(func(a, b, _ uint64) uint64 { return a + b })
	case "sub":
		if in.Has(isa.Sat) {
			return func(a, b, _ uint64) uint64 { return saturate32(value(a) - value(b)) }
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
					return saturate32(signExtend(mulHi(a, b, n, true), n) + signExtend(c, n))
				}
			}
			return wrap(func(a, b, c uint64) uint64 { return mulHi(a, b, n, signed) + addend(c) })
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
				p = uint64(signExtend(a, 24) * signExtend(b, 24))
			} else {
				p = zeroExtend(a, 24) * zeroExtend(b, 24)
			}
			if hi {
				p >>= 16
			}
			if add {
				if sat {
					return saturate32(signExtend(p, 32) + signExtend(c, 32))
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
		return func(a, _, _ uint64) uint64 { return b2u(a&mask == 0) }
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
		return func(a, b, c uint64) uint64 { return bitField(a, b, c, n, signed) & mask }
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
				return uint64(signExtend(a, uint(k)))
			}
			return zeroExtend(a, uint(k))
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
		return func(a, b, c uint64) uint64 { return uint64(findNthSet(uint32(a), uint32(b), int32(c))) }
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

// fieldOperands are position and length of bfe and bfi. The ISA restricts them to 0..255; a GPU takes their low 8 bits for
// fields of 32-bit numbers, and all of them for 64-bit ones (H200, driver 580.159, measured).
func fieldOperands(pos, length uint64, n uint) (uint64, uint64) {
	if n == 64 {
		return pos & 0xffffffff, length & 0xffffffff
	}
	return pos & 0xff, length & 0xff
}

// bitField is bfe: PTX ISA 9.7.1.18.
func bitField(a, b, c uint64, n uint, signed bool) uint64 {
	pos, length := fieldOperands(b, c, n)
	msb := uint64(n - 1)
	var sign uint64
	if signed && length > 0 {
		sign = a >> min(pos+length-1, msb) & 1
	}
	var d uint64
	if pos <= msb {
		d = zeroExtend(a, n) >> pos
	}
	if length < 64 {
		d &= 1<<length - 1
		if avail := msb + 1 - min(pos, msb+1); length > avail && sign != 0 || sign != 0 {
			d |= ^uint64(0) << min(length, avail)
		}
	} else if sign != 0 {
		d |= ^uint64(0) << (msb + 1 - min(pos, msb+1))
	}
	return d
}

// insertField is bfi: a into b.
func insertField(a, b, c, d uint64, n uint) uint64 {
	pos, length := fieldOperands(c, d, n)
	if pos >= uint64(n) {
		return b
	}
	m := ^uint64(0)
	if length < 64 {
		m = 1<<length - 1
	}
	m <<= pos
	return (b&^m | a<<pos&m) & (^uint64(0) >> (64 - n))
}

// findNthSet is fns: PTX ISA 9.7.1.17.
func findNthSet(mask, base uint32, offset int32) uint32 {
	switch {
	case offset == math.MinInt32:
		return 0 // H200, driver 580.159, measured
	case base > 31:
		return 0xffffffff
	}
	if offset == 0 {
		if mask>>base&1 != 0 {
			return base
		}
		return 0xffffffff
	}
	step, count := int32(1), offset
	pos := int32(base)
	if offset < 0 {
		step, count = -1, -offset
	}
	for found := int32(0); pos >= 0 && pos < 32; pos += step {
		if mask>>uint32(pos)&1 != 0 {
			if found++; found == count {
				return uint32(pos)
			}
		}
	}
	return 0xffffffff
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
			return signExtend(x, n)
		}
		return int64(zeroExtend(x, n))
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
		x := f32of(c)
		if ftz {
			x = flush32(x)
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
					p = mulHi(x, y, n, signed)
				}
				x, y = zeroExtend(p, n), w.r.get(in.c, i, wide)
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
