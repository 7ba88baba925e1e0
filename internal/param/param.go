// Package param encodes the arguments of kernels as they lie in a parameter buffer: numbers
// written as text, little endian. It must not import anything of this module.
package param

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// Encode encodes a number of type u8 to u64, s8 to s64, f16, f32 or f64. Integers may be
// written in any base that Go knows; ptr is u64.
func Encode(kind, text string) ([]byte, error) {
	width, err := width(kind)
	if err != nil {
		return nil, err
	}
	var bits uint64
	switch kind[0] {
	case 'u', 'p':
		bits, err = strconv.ParseUint(text, 0, width)
	case 's':
		var n int64
		n, err = strconv.ParseInt(text, 0, width)
		bits = uint64(n)
	default:
		var f float64
		f, err = strconv.ParseFloat(text, max(width, 32)) // rounds once for f32 and f64
		switch width {
		case 16:
			if f, err = strconv.ParseFloat(text, 64); err == nil {
				bits = uint64(Float16(f))
			}
		case 32:
			bits = uint64(math.Float32bits(float32(f)))
		default:
			bits = math.Float64bits(f)
		}
	}
	if err != nil {
		return nil, err
	}
	return binary.LittleEndian.AppendUint64(nil, bits)[:width/8], nil
}

func width(kind string) (int, error) {
	switch kind {
	case "u8", "s8":
		return 8, nil
	case "u16", "s16", "f16":
		return 16, nil
	case "u32", "s32", "f32":
		return 32, nil
	case "u64", "s64", "f64", "ptr":
		return 64, nil
	}
	return 0, fmt.Errorf("type %q: want u8 to u64, s8 to s64, f16, f32, f64 or ptr", kind)
}

// Float16 rounds to the nearest half-precision number, ties to even.
func Float16(f float64) uint16 {
	sign := uint16(math.Float64bits(f) >> 48 & 0x8000)
	f = math.Abs(f)
	switch {
	case f != f:
		return sign | 0x7e00
	case f >= 65520: // the middle between the largest one and the next
		return sign | 0x7c00
	case f < 0x1p-14: // a multiple of the smallest one; 1024 of them are the smallest normal one
		return sign | uint16(math.RoundToEven(f*0x1p24))
	}
	frac, exp := math.Frexp(f) // 0.5 ≤ frac < 1
	// 11 bits, the first of which adds one to the exponent.
	return sign | (uint16(exp+13)<<10 + uint16(math.RoundToEven(frac*0x800)))
}
