package cubin

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// A relocKind is what a relocation does: which part of the address goes where.
type relocKind struct {
	shift, at, width int // bits of the address dropped, first bit in the place, bits
}

// relocKinds are the relocations known here (R_CUDA_*).
var relocKinds = map[uint32]relocKind{
	0x02: {0, 0, 64},   // R_CUDA_64
	0x04: {0, 0, 64},   // R_CUDA_G64: a generic address
	0x38: {0, 32, 32},  // R_CUDA_ABS32_LO_32
	0x39: {32, 32, 32}, // R_CUDA_ABS32_HI_32
}

// Place is the bytes of the image for device address base.
func (im *Image) Place(base uint64) ([]byte, error) {
	out := make([]byte, im.Size)
	for i := range im.file.Sections {
		if s := &im.file.Sections[i]; im.at[i] != notLoaded && s.Type != typeNoBits {
			copy(out[im.at[i]:], s.Data)
		}
	}
	for i, w := range trapCode {
		binary.LittleEndian.PutUint64(out[im.trap+uint64(8*i):], w)
	}
	for _, r := range im.relocs {
		if im.at[r.Section] == notLoaded {
			continue
		}
		k, ok := relocKinds[r.Type]
		if !ok {
			if strings.HasPrefix(im.file.Sections[r.Section].Name, textPrefix) {
				continue // the kernels that reach it are refused
			}
			return nil, fmt.Errorf("cubin: section %s: unknown relocation %#x of %s",
				im.file.Sections[r.Section].Name, r.Type,
				im.syms[r.Symbol].Name)
		}
		addr, ok := im.address(base, r.Symbol)
		if !ok {
			continue
		}
		k.apply(out[im.at[r.Section]+r.Offset:], addr+uint64(r.Addend))
	}
	return out, nil
}

// address is where a symbol stands; false if it stands nowhere: whoever uses it is refused.
func (im *Image) address(base uint64, symbol int) (uint64, bool) {
	s := im.syms[symbol]
	switch {
	case s.Section == 0 && s.Name == assertFail:
		return base + im.trap, true
	case s.Section == 0:
		return 0, false
	case im.at[s.Section] == notLoaded: // shared memory: an offset
		return s.Value, true
	}
	return base + im.at[s.Section] + s.Value, true
}

func (k relocKind) apply(b []byte, v uint64) {
	if k.width == 64 {
		binary.LittleEndian.PutUint64(b, v)
		return
	}
	binary.LittleEndian.PutUint32(b[k.at/8:], uint32(v>>k.shift))
}
