package gpuwire

import (
	"encoding/binary"
	"fmt"
)

const nullBlob = ^uint64(0)

// AppendBlob appends b as a blob; a nil b is a null pointer.
func AppendBlob(dst, b []byte) []byte {
	if b == nil {
		return binary.LittleEndian.AppendUint64(dst, nullBlob)
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(b)))
	return append(dst, b...)
}

// AppendWords appends an array of u64 as a blob.
func AppendWords(dst []byte, words []uint64) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(words))*8)
	for _, w := range words {
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	return dst
}

// TakeBlob cuts the first blob off p. The blob shares p's memory; it is nil for a
// null pointer and not nil otherwise.
func TakeBlob(p []byte) (blob, rest []byte, err error) {
	if len(p) < 8 {
		return nil, nil, fmt.Errorf("blob length in %d bytes: %w", len(p), ErrProtocol)
	}
	n := binary.LittleEndian.Uint64(p)
	p = p[8:]
	if n == nullBlob {
		return nil, p, nil
	}
	if n > uint64(len(p)) {
		return nil, nil, fmt.Errorf("blob of %d bytes in %d: %w", n, len(p), ErrProtocol)
	}
	return p[:n:n], p[n:], nil
}

// Words reads a blob as an array of u64.
func Words(blob []byte) ([]uint64, error) {
	if len(blob)%8 != 0 {
		return nil, fmt.Errorf("array of 64-bit words in %d bytes: %w", len(blob), ErrProtocol)
	}
	words := make([]uint64, len(blob)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(blob[i*8:])
	}
	return words, nil
}
