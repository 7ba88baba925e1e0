package digest

import "encoding/binary"

// absorbRows is how many rows absorbGeneric takes at a time: enough that a lane's state stays in registers for a
// while, few enough that the rows (32 KiB) stay in the first-level cache while all lanes pass over them.
const absorbRows = 8

// absorbGeneric feeds chunk to the lanes. Two lanes advance together, for their steps are chains of
// dependent multiplications and the processor can run several such chains at once.
func absorbGeneric(s *states, chunk []byte) {
	for len(chunk) >= absorbRows*rowSize {
		block := chunk[: absorbRows*rowSize : absorbRows*rowSize]
		chunk = chunk[absorbRows*rowSize:]
		for lane := 0; lane < lanes; lane += 2 {
			a0, b0 := s[lane].a, s[lane].b
			a1, b1 := s[lane+1].a, s[lane+1].b
			for at := lane * vectorSize; at <= len(block)-2*vectorSize; at += rowSize {
				v := (*[2 * vectorSize]byte)(block[at:])
				a0 ^= binary.LittleEndian.Uint64(v[0:])
				b0 ^= binary.LittleEndian.Uint64(v[8:])
				a1 ^= binary.LittleEndian.Uint64(v[16:])
				b1 ^= binary.LittleEndian.Uint64(v[24:])
				b0 += (a0 & 0xffffffff) * (a0 >> 32)
				b1 += (a1 & 0xffffffff) * (a1 >> 32)
				a0 += (b0 & 0xffffffff) * (b0 >> 32)
				a1 += (b1 & 0xffffffff) * (b1 >> 32)
				b0 += (a0 & 0xffffffff) * (a0 >> 32)
				b1 += (a1 & 0xffffffff) * (a1 >> 32)
			}
			s[lane] = state{a0, b0}
			s[lane+1] = state{a1, b1}
		}
	}
}
