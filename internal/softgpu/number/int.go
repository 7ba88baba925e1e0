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
func Saturate32(x int64) uint64 {
	return uint64(uint32(int32(min(max(x, -1<<31), 1<<31-1))))
}

// fieldOperands are position and length of bfe and bfi. The ISA restricts them to 0..255; a GPU takes their low 8 bits for
// fields of 32-bit numbers, and all of them for 64-bit ones (H200, driver 580.159, measured).
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
