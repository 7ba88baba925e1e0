package number

import (
	"math"
	"math/bits"
)

// SignExtend is the value of the low n bits, the highest of which is the sign.
func SignExtend(x uint64, n uint) int64 { return int64(x<<(64-n)) >> (64 - n) }

// ZeroExtend gives them without a sign.
func ZeroExtend(x uint64, n uint) uint64 { return x << (64 - n) >> (64 - n) }

// MulHi is the high half of the product of two n-bit numbers.
func MulHi(a, b uint64, n uint, signed bool) uint64 {
	if n < 64 {
		if signed {
			return uint64(SignExtend(a, n) * SignExtend(b, n) >> n)
		}
		return ZeroExtend(a, n) * ZeroExtend(b, n) >> n
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

// Saturate32 clamps to the range of s32.
func Saturate32(x int64) int32 { return int32(min(max(x, math.MinInt32), math.MaxInt32)) }

// fieldOperands are position and length of bfe and bfi. The ISA restricts them to 0..255; a GPU takes their low 8 bits
// for fields of 32-bit numbers, and all of them for 64-bit ones (H200, driver 580.159, measured).
func fieldOperands(pos, length uint64, n uint) (uint64, uint64) {
	if n == 64 {
		return pos & 0xffffffff, length & 0xffffffff
	}
	return pos & 0xff, length & 0xff
}

// ExtractField is bfe: PTX ISA 9.7.1.18.
func ExtractField(a, b, c uint64, n uint, signed bool) uint64 {
	pos, length := fieldOperands(b, c, n)
	msb := uint64(n - 1)
	var sign uint64
	if signed && length > 0 {
		sign = a >> min(pos+length-1, msb) & 1
	}
	var d uint64
	if pos <= msb {
		d = ZeroExtend(a, n) >> pos
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

// InsertField is bfi: a into b.
func InsertField(a, b, c, d uint64, n uint) uint64 {
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

// FindNthSet is fns: PTX ISA 9.7.1.17.
func FindNthSet(mask, base uint32, offset int32) uint32 {
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

// FromBool is 1 for true.
func FromBool(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// An Integer is a register as an integer.
type Integer interface {
	~uint16 | ~int16 | ~uint32 | ~int32 | ~uint64 | ~int64
}

// Div is a / b. The ISA leaves open what a division by zero gives; GPUs give all ones.
func Div[T Integer](a, b T) T {
	if b == 0 {
		return ^T(0)
	}
	return a / b
}

// Rem is what Div leaves; of a division by zero, all ones as well (H200, driver 580.159, measured).
func Rem[T Integer](a, b T) T {
	if b == 0 {
		return ^T(0)
	}
	return a % b
}

// Mul24U is the product of the low 24 bits.
func Mul24U(a, b uint32) uint64 { return uint64(a<<8>>8) * uint64(b<<8>>8) }

// Mul24S is the product of the low 24 bits, the highest of which are signs.
func Mul24S(a, b int32) int64 { return int64(a<<8>>8) * int64(b<<8>>8) }

// part is the signed or unsigned number in the low n bits of x.
func part(x uint32, n uint, signed bool) int64 {
	if signed {
		return SignExtend(uint64(x), n)
	}
	return int64(ZeroExtend(uint64(x), n))
}

// Dot4 is dp4a: c and the products of four bytes each.
func Dot4(a, b, c uint32, aSigned, bSigned bool) uint32 {
	for i := range 4 {
		c += uint32(part(a>>(8*i), 8, aSigned) * part(b>>(8*i), 8, bSigned))
	}
	return c
}

// Dot2 is dp2a: c and the products of the half-words of a with the low two bytes of b.
func Dot2(a, b, c uint32, aSigned, bSigned bool) uint32 {
	for i := range 2 {
		c += uint32(part(a>>(16*i), 16, aSigned) * part(b>>(8*i), 8, bSigned))
	}
	return c
}

// FindBit is the number of the highest bit that is set, all ones if there is none: bfind.
func FindBit(x uint64) uint32 { return uint32(bits.Len64(x)) - 1 }

// ShiftToBit is how far that bit is below the highest of n.
func ShiftToBit(x uint64, n uint32) uint32 {
	if x == 0 {
		return math.MaxUint32
	}
	return n - uint32(bits.Len64(x))
}

// Extend32 is szext: the low n bits of a, extended.
func Extend32(a, n uint32, signed bool) uint32 {
	switch {
	case n == 0:
		return 0
	case n >= 32:
		return a
	}
	return uint32(part(a, uint(n), signed))
}

// FieldMask is bmsk: n ones from bit start on.
func FieldMask(start, n uint32) uint32 { return uint32((uint64(1)<<min(n, 63) - 1) << start) }

// Funnel is a below b.
func Funnel(a, b uint32) uint64 { return uint64(b)<<32 | uint64(a) }

// Permute is prmt: each nibble of the selector names a byte of b and a, or with its highest bit the sign of one.
func Permute(a, b, selector uint32) uint32 {
	x := Funnel(a, b)
	var d uint32
	for i := range 4 {
		s := selector >> (4 * i)
		v := uint32(x>>(s&7*8)) & 0xff
		if s&8 != 0 {
			v = uint32(int8(v)>>7) & 0xff
		}
		d |= v << (8 * i)
	}
	return d
}

// CarrylessLow is the low half of the product of polynomials over GF(2).
func CarrylessLow(a, b uint64) (d uint64) {
	for ; b != 0; b &= b - 1 {
		d ^= a << bits.TrailingZeros64(b)
	}
	return d
}

// CarrylessHigh is the high half.
func CarrylessHigh(a, b uint64) (d uint64) {
	for ; b != 0; b &= b - 1 {
		d ^= a >> 1 >> (63 - bits.TrailingZeros64(b))
	}
	return d
}
