package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"holdfast/internal/npy"
)

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
	head, dict, err := npy.Header(r)
	if errors.Is(err, npy.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The GPU is little endian, and an array of Python objects holds none of their bytes.
	if bytes.Contains(dict, []byte("'>")) || bytes.Contains(dict, []byte("'|O'")) {
		return nil, fmt.Errorf(".npy file of big-endian numbers or objects: %s", strings.TrimSpace(string(dict)))
	}
	return head, nil
}

// write writes a buffer to a file.
func (g *emulatedGPU) write(v value, file string) error {
	mem, err := g.space.Bytes(v.va, v.size)
	if err != nil {
		return err
	}
	if strings.HasSuffix(file, ".npy") && v.npy == nil {
		return npy.WriteFile(file, &npy.Array{DType: "uint8", Shape: []int{len(mem)}, Data: mem})
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if strings.HasSuffix(file, ".npy") {
		_, err = f.Write(v.npy)
	}
	if err == nil {
		_, err = f.Write(mem)
	}
	return errors.Join(err, f.Close())
}
