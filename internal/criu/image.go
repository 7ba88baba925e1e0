package criu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// CRIU's image files: two 32-bit magic numbers, then messages in protocol buffer encoding, each after its 32-bit length
// (criu/image.c, criu/protobuf.c; magic numbers from criu/include/magic.h, CRIU 4.1.1). All little endian.
const (
	magicCommon  = 0x54564319
	magicService = 0x55105940
	magicFiles   = 0x56303138
	magicFdinfo  = 0x56213732
	magicPstree  = 0x50273030
	magicStats   = 0x57093306
	magicTTYInfo = 0x59453036

	maxImage   = 256 << 20 // of the few small images that are read here
	maxMessage = 16 << 20
)

var errTruncated = errors.New("truncated")

// readImage returns the messages of an image file.
func readImage(path string, major, minor uint32) ([][]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxImage {
		return nil, fmt.Errorf("%s: %d bytes are too many", path, st.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := parseImage(b, major, minor)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func parseImage(b []byte, major, minor uint32) ([][]byte, error) {
	if len(b) < 8 {
		return nil, errTruncated
	}
	if a, c := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]); a != major || c != minor {
		return nil, fmt.Errorf("magic numbers %#x %#x, not %#x %#x", a, c, major, minor)
	}
	b = b[8:]
	var out [][]byte
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, errTruncated
		}
		n := binary.LittleEndian.Uint32(b)
		if n > maxMessage || uint64(n) > uint64(len(b)-4) {
			return nil, errTruncated
		}
		out = append(out, b[4:4+n])
		b = b[4+n:]
	}
	return out, nil
}

// writeImage replaces an image file.
func writeImage(path string, major, minor uint32, messages [][]byte) error {
	b := binary.LittleEndian.AppendUint32(nil, major)
	b = binary.LittleEndian.AppendUint32(b, minor)
	for _, m := range messages {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(m)))
		b = append(b, m...)
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// field is one field of a protocol buffer message (https://protobuf.dev/programming-guides/encoding/).
type field struct {
	num  uint32
	wire byte   // 0 varint, 1 64 bits, 2 bytes, 5 32 bits
	val  uint64 // wire 0, 1, 5
	data []byte // wire 2
	raw  []byte // tag and value as they stand
}

// message is the fields of a message in order.
type message []field

func parseMessage(b []byte) (message, error) {
	var m message
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
			return nil, errors.New("bad field tag")
		}
		f := field{num: uint32(tag >> 3), wire: byte(tag & 7)}
		end := n
		switch f.wire {
		case 0:
			v, k := binary.Uvarint(b[n:])
			if k <= 0 {
				return nil, errTruncated
			}
			f.val, end = v, n+k
		case 1:
			if len(b)-n < 8 {
				return nil, errTruncated
			}
			f.val, end = binary.LittleEndian.Uint64(b[n:]), n+8
		case 2:
			l, k := binary.Uvarint(b[n:])
			if k <= 0 || l > uint64(len(b)-n-k) {
				return nil, errTruncated
			}
			f.data, end = b[n+k:n+k+int(l)], n+k+int(l)
		case 5:
			if len(b)-n < 4 {
				return nil, errTruncated
			}
			f.val, end = uint64(binary.LittleEndian.Uint32(b[n:])), n+4
		default:
			return nil, fmt.Errorf("field %d has wire type %d", f.num, f.wire)
		}
		f.raw = b[:end]
		m = append(m, f)
		b = b[end:]
	}
	return m, nil
}

// uint returns the last value of a field, 0 when it is absent.
func (m message) uint(num uint32) uint64 {
	var v uint64
	for _, f := range m {
		if f.num == num && f.wire != 2 {
			v = f.val
		}
	}
	return v
}

// has says whether a field is present.
func (m message) has(num uint32) bool {
	for _, f := range m {
		if f.num == num {
			return true
		}
	}
	return false
}

// bytes returns the last value of a length-delimited field.
func (m message) bytes(num uint32) []byte {
	var v []byte
	for _, f := range m {
		if f.num == num && f.wire == 2 {
			v = f.data
		}
	}
	return v
}

// uints returns the values of a repeated integer field, packed or not.
func (m message) uints(num uint32) ([]uint64, error) {
	var out []uint64
	for _, f := range m {
		if f.num != num {
			continue
		}
		if f.wire != 2 {
			out = append(out, f.val)
			continue
		}
		for b := f.data; len(b) > 0; {
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return nil, errTruncated
			}
			out = append(out, v)
			b = b[n:]
		}
	}
	return out, nil
}

// sub parses a nested message.
func (m message) sub(num uint32) (message, error) { return parseMessage(m.bytes(num)) }

// without returns the message encoded with one field left out.
func (m message) without(num uint32) []byte {
	var b []byte
	for _, f := range m {
		if f.num != num {
			b = append(b, f.raw...)
		}
	}
	return b
}

// with returns the message encoded with a length-delimited field replaced.
func (m message) with(num uint32, data []byte) []byte {
	return appendBytes(m.without(num), num, data)
}

func appendUint(b []byte, num uint32, v uint64) []byte {
	b = binary.AppendUvarint(b, uint64(num)<<3)
	return binary.AppendUvarint(b, v)
}

func appendBytes(b []byte, num uint32, data []byte) []byte {
	b = binary.AppendUvarint(b, uint64(num)<<3|2)
	b = binary.AppendUvarint(b, uint64(len(data)))
	return append(b, data...)
}
