package lanes

import (
	"math/bits"
	"unsafe"
)

// loopRow64 and loopRow32 look at addresses: n apart, or all the same.
func loopRow64(a *[32]uint64, n uint64) (row, same bool) { return loopRow(a, n) }
func loopRow32(a *[32]uint32, n uint32) (row, same bool) { return loopRow(a, n) }

func loopRow[A uint32 | uint64](a *[32]A, n A) (row, same bool) {
	first := a[0]
	step := a[1] - first
	if step != n && step != 0 || a[31]-first != 31*step {
		return false, false
	}
	var x A
	for i := range (*[8][4]A)(unsafe.Pointer(a)) {
		q := &(*[8][4]A)(unsafe.Pointer(a))[i]
		x |= (q[0] - first) | (q[1] - first - step) | (q[2] - first - 2*step) | (q[3] - first - 3*step)
		first += 4 * step
	}
	return x == 0 && step == n, x == 0 && step == 0
}

func loopCopyRow[A uint32 | uint64](d, s unsafe.Pointer, a *[32]A, n uint64) bool {
	if row, _ := loopRow(a, A(n)); !row {
		return false
	}
	if n == 8 {
		*(*[32]uint64)(d) = *(*[32]uint64)(s)
	} else {
		*(*[32]uint32)(d) = *(*[32]uint32)(s)
	}
	return true
}

// laneBits has the bits of four 32-bit lanes, two in a word, by a mask of four.
var laneBits = [16][2]uint64{
	{0, 0}, {lo32, 0}, {hi32, 0}, {lo32 | hi32, 0},
	{0, lo32}, {lo32, lo32}, {hi32, lo32}, {lo32 | hi32, lo32},
	{0, hi32}, {lo32, hi32}, {hi32, hi32}, {lo32 | hi32, hi32},
	{0, lo32 | hi32}, {lo32, lo32 | hi32}, {hi32, lo32 | hi32}, {lo32 | hi32, lo32 | hi32},
}

const (
	lo32 = 0xffffffff
	hi32 = 0xffffffff << 32
)

func loopBlend32(d, t unsafe.Pointer, mask uint32) {
	if mask&(mask-1) == 0 {
		i := bits.TrailingZeros32(mask) & 31
		(*[32]uint32)(d)[i] = (*[32]uint32)(t)[i]
		return
	}
	D, T := (*[8][2]uint64)(d), (*[8][2]uint64)(t)
	for i := range D {
		k := &laneBits[mask&15]
		mask >>= 4
		D[i][0] ^= (D[i][0] ^ T[i][0]) & k[0]
		D[i][1] ^= (D[i][1] ^ T[i][1]) & k[1]
	}
}

func loopBlend64(d, t unsafe.Pointer, mask uint32) {
	D, T := (*[32]uint64)(d), (*[32]uint64)(t)
	if bits.OnesCount32(mask) <= 8 {
		for ; mask != 0; mask &= mask - 1 {
			i := bits.TrailingZeros32(mask) & 31
			D[i] = T[i]
		}
		return
	}
	for i := range (*[8][4]uint64)(d) {
		d, t := &(*[8][4]uint64)(d)[i], &(*[8][4]uint64)(t)[i]
		d[0] ^= (d[0] ^ t[0]) & -uint64(mask&1)
		d[1] ^= (d[1] ^ t[1]) & -uint64(mask>>1&1)
		d[2] ^= (d[2] ^ t[2]) & -uint64(mask>>2&1)
		d[3] ^= (d[3] ^ t[3]) & -uint64(mask>>3&1)
		mask >>= 4
	}
}

func loopSelect32(d, a, b, c unsafe.Pointer) {
	D, A, B := (*[8][2]uint64)(d), (*[8][2]uint64)(a), (*[8][2]uint64)(b)
	p := *(*uint32)(c)
	for i := range D {
		k := &laneBits[p&15]
		p >>= 4
		D[i][0] = B[i][0] ^ (A[i][0]^B[i][0])&k[0]
		D[i][1] = B[i][1] ^ (A[i][1]^B[i][1])&k[1]
	}
}

func loopSelect64(d, a, b, c unsafe.Pointer) {
	D, A, B := (*[8][4]uint64)(d), (*[8][4]uint64)(a), (*[8][4]uint64)(b)
	p := *(*uint32)(c)
	for i := range D {
		d, a, b := &D[i], &A[i], &B[i]
		d[0] = b[0] ^ (a[0]^b[0])&-uint64(p&1)
		d[1] = b[1] ^ (a[1]^b[1])&-uint64(p>>1&1)
		d[2] = b[2] ^ (a[2]^b[2])&-uint64(p>>2&1)
		d[3] = b[3] ^ (a[3]^b[3])&-uint64(p>>3&1)
		p >>= 4
	}
}
