package device

import (
	"encoding/binary"
	"maps"
	"slices"
)

// numbers is a map that travels in a process image. gob makes room for as many entries as a map is said to have before
// it reads the first; this one grows with what is there.
type numbers[V int32 | uint64] map[uint64]V

// GobEncode implements gob.GobEncoder: keys and values in turn, by ascending key.
func (m numbers[V]) GobEncode() ([]byte, error) {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = binary.AppendVarint(binary.AppendUvarint(b, k), int64(m[k]))
	}
	return b, nil
}

// GobDecode implements gob.GobDecoder.
func (m *numbers[V]) GobDecode(b []byte) error {
	*m = numbers[V]{}
	for len(b) > 0 {
		k, n := binary.Uvarint(b)
		if n <= 0 {
			return errBadImage
		}
		b = b[n:]
		v, n := binary.Varint(b)
		if n <= 0 {
			return errBadImage
		}
		b = b[n:]
		(*m)[k] = V(v)
	}
	return nil
}
