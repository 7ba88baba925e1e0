// Package npy reads and writes NumPy's .npy files (NumPy reference, numpy.lib.format): arrays of numbers, little
// endian, in C order.
//
// Files are outside input: nothing is allocated that the file has no bytes for. The package must not import anything
// of this module.
package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

const (
	magic     = "\x93NUMPY"
	maxHeader = 1 << 20
)

// An Array is numbers with a type, named as NumPy names it, and a shape.
type Array struct {
	DType string
	Shape []int
	Data  []byte // little endian, C order
}

// kinds are the types by how files spell them.
var kinds = map[string]string{
	"|b1": "bool", "|i1": "int8", "|u1": "uint8", "<i2": "int16", "<u2": "uint16", "<f2": "float16", "<i4": "int32",
	"<u4": "uint32",
	"<f4": "float32", "<i8": "int64", "<u8": "uint64", "<f8": "float64", "<c8": "complex64", "<c16": "complex128",
}

// SizeOf is the bytes of an element of a type, 0 if the format does not have it.
func SizeOf(dtype string) int {
	spelled := spell(dtype)
	if spelled == "" {
		return 0
	}
	n, _ := strconv.Atoi(spelled[2:])
	return n
}

func spell(dtype string) string {
	for s, name := range kinds {
		if name == dtype {
			return s
		}
	}
	return ""
}

// ReadFile reads the array in a file that has at most limit bytes of data.
func ReadFile(path string, limit int64) (*Array, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a, err := Read(f, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// value is what follows a key of the header's dictionary, which is written in Python's syntax; "" if it is not there.
func value(dict, key string) string {
	for _, quote := range []string{"'", "\""} {
		if _, rest, ok := strings.Cut(dict, quote+key+quote); ok {
			rest, _ = strings.CutPrefix(strings.TrimSpace(rest), ":")
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// within is what stands between two characters at the begin of a text.
func within(text string, open, end byte) (string, bool) {
	if text == "" || text[0] != open {
		return "", false
	}
	in, _, ok := strings.Cut(text[1:], string(end))
	return in, ok
}

// ErrNone is what Header says of files of another kind.
var ErrNone = errors.New("it is no .npy file")

// Header reads what stands before the data: all of its bytes, and the dictionary at their end.
func Header(r io.Reader) (head, dict []byte, err error) {
	head = make([]byte, 12)
	n, err := io.ReadFull(r, head[:10])
	if n < len(magic) || string(head[:len(magic)]) != magic {
		return nil, nil, ErrNone
	}
	if err != nil {
		return nil, nil, errShort
	}
	var size int64
	switch head[6] {
	case 1:
		size = int64(binary.LittleEndian.Uint16(head[8:]))
		head = head[:10]
	case 2, 3:
		if _, err := io.ReadFull(r, head[10:]); err != nil {
			return nil, nil, errShort
		}
		size = int64(binary.LittleEndian.Uint32(head[8:]))
	default:
		return nil, nil, fmt.Errorf(".npy format %d.%d is not known", head[6], head[7])
	}
	if size > maxHeader {
		return nil, nil, fmt.Errorf("a .npy header of %d bytes, limit %d", size, maxHeader)
	}
	dict, err = io.ReadAll(io.LimitReader(r, size)) // no more memory than there is file
	if err != nil {
		return nil, nil, fmt.Errorf(".npy header: %w", err)
	}
	if int64(len(dict)) < size {
		return nil, nil, errShort
	}
	return append(head, dict...), dict, nil
}

var errShort = errors.New(".npy file is cut short")

// Read reads an array of at most limit bytes of data.
func Read(r io.Reader, limit int64) (*Array, error) {
	_, dict, err := Header(r)
	if err != nil {
		return nil, err
	}
	a, want, err := parse(dict)
	if err != nil {
		return nil, err
	}
	if want > limit {
		return nil, fmt.Errorf("%d bytes of data, want at most %d", want, limit)
	}
	if a.Data, err = io.ReadAll(io.LimitReader(r, want+1)); err != nil {
		return nil, err
	}
	if int64(len(a.Data)) != want {
		return nil, fmt.Errorf("%s %v has %d bytes, the file does not", a.DType, a.Shape, want)
	}
	return a, nil
}

// parse reads the header's dictionary: the array without data, and how many bytes that has.
func parse(dict []byte) (*Array, int64, error) {
	text := string(dict)
	kind := value(text, "descr")
	d, ok := within(kind, '\'', '\'')
	if !ok {
		d, ok = within(kind, '"', '"')
	}
	shape, shaped := within(value(text, "shape"), '(', ')')
	order := value(text, "fortran_order")
	fortran := strings.HasPrefix(order, "True")
	if !ok || !shaped || !fortran && !strings.HasPrefix(order, "False") {
		return nil, 0, fmt.Errorf("its header is not of numbers: %.200q", bytes.TrimSpace(dict))
	}
	a := &Array{DType: kinds[d], Shape: []int{}}
	if a.DType == "" {
		return nil, 0, fmt.Errorf("type %.100q is not read", d)
	}
	n := int64(SizeOf(a.DType))
	for _, f := range strings.Split(shape, ",") {
		if f = strings.TrimSpace(f); f == "" {
			continue
		}
		v, err := strconv.Atoi(f)
		if err != nil || v < 0 || v > 0 && n > (1<<62)/int64(v) {
			return nil, 0, fmt.Errorf("shape (%.200s)", shape)
		}
		a.Shape = append(a.Shape, v)
		n *= int64(v)
	}
	if fortran && len(a.Shape) > 1 {
		return nil, 0, errors.New("it is in Fortran order: save numpy.ascontiguousarray of it")
	}
	return a, n, nil
}

// Write writes an array. Data begins at a multiple of 64 bytes.
func Write(w io.Writer, a *Array) error {
	head, n, err := Head(a.DType, a.Shape)
	if err != nil {
		return err
	}
	if n != len(a.Data) {
		return fmt.Errorf("%s %v has %d bytes, not %d", a.DType, a.Shape, n, len(a.Data))
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err = w.Write(a.Data)
	return err
}

// Head is what stands before an array's data, and how many bytes of these there are.
func Head(dtype string, shape []int) (head []byte, size int, err error) {
	spelled := spell(dtype)
	if spelled == "" {
		return nil, 0, fmt.Errorf("type %s cannot be written", dtype)
	}
	var dims strings.Builder
	size = SizeOf(dtype)
	for _, d := range shape {
		fmt.Fprintf(&dims, "%d, ", d)
		size *= d
	}
	tuple := strings.TrimSuffix(dims.String(), " ")
	if len(shape) > 1 {
		tuple = strings.TrimSuffix(tuple, ",")
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", spelled, tuple)
	dict += strings.Repeat(" ", 63-(10+len(dict))%64) + "\n"
	head = binary.LittleEndian.AppendUint16([]byte(magic+"\x01\x00"), uint16(len(dict)))
	return append(head, dict...), size, nil
}

// WriteFile writes an array to a file.
func WriteFile(path string, a *Array) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := Write(f, a); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Close()
}
