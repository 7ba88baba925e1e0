package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// The format of NumPy's .npy files: magic, version, the length of a header, the header (a
// Python dictionary with type, order and shape), then the data (NumPy reference, numpy.lib.format).
const npyMagic = "\x93NUMPY"

// readBuffer fills mem from a raw or .npy file; the file may be shorter than mem, not
// longer. It returns the header of a .npy file, all that stands before the data, if the
// data fills mem.
func readBuffer(mem []byte, file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head, err := npyHeader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if head == nil {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	n, err := io.ReadFull(f, mem)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if n < len(mem) {
		head = nil // its shape is not that of the buffer
	}
	if n, err := f.Read(make([]byte, 1)); n > 0 {
		return nil, fmt.Errorf("%s has more than the %d bytes of the buffer", file, len(mem))
	} else if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return head, nil
}

// npyHeader reads what stands before the data of a .npy file; nil if r is none.
func npyHeader(r io.Reader) ([]byte, error) {
	head := make([]byte, 12)
	n, err := io.ReadFull(r, head[:10])
	if n < len(npyMagic) || string(head[:len(npyMagic)]) != npyMagic {
		return nil, nil
	}
	if err != nil {
		return nil, errors.New(".npy file is cut short")
	}
	var size int64
	switch head[6] {
	case 1:
		size = int64(binary.LittleEndian.Uint16(head[8:]))
		head = head[:10]
	case 2, 3:
		if _, err := io.ReadFull(r, head[10:]); err != nil {
			return nil, errors.New(".npy file is cut short")
		}
		size = int64(binary.LittleEndian.Uint32(head[8:]))
	default:
		return nil, fmt.Errorf(".npy format %d.%d is not known", head[6], head[7])
	}
	if size > maxNPYHeader {
		return nil, fmt.Errorf(".npy header of %d bytes, at most %d", size, maxNPYHeader)
	}
	dict, err := io.ReadAll(io.LimitReader(r, size)) // no more memory than there is file
	if err != nil {
		return nil, fmt.Errorf(".npy header: %w", err)
	}
	if int64(len(dict)) < size {
		return nil, errors.New(".npy file is cut short")
	}
	// The GPU is little endian, and an array of Python objects holds none of their bytes.
	if bytes.Contains(dict, []byte("'>")) || bytes.Contains(dict, []byte("'|O'")) {
		return nil, fmt.Errorf(".npy file of big-endian numbers or objects: %s", strings.TrimSpace(string(dict)))
	}
	return append(head, dict...), nil
}

// write writes a buffer to a file.
func (g *emulatedGPU) write(v value, file string) error {
	mem, err := g.space.Bytes(v.va, v.size)
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if strings.HasSuffix(file, ".npy") {
		head := v.npy
		if head == nil {
			head = byteArrayHeader(v.size)
		}
		if _, err := f.Write(head); err != nil {
			f.Close()
			return err
		}
	}
	if _, err := f.Write(mem); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// byteArrayHeader is the .npy header of n bytes. Data begins at a multiple of 64.
func byteArrayHeader(n uint64) []byte {
	dict := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }", n)
	dict += strings.Repeat(" ", 63-(10+len(dict))%64) + "\n"
	return append(binary.LittleEndian.AppendUint16([]byte(npyMagic+"\x01\x00"), uint16(len(dict))), dict...)
}
