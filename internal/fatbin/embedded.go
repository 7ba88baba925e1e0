package fatbin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
)

// maxContainer bounds a fat binary that is read from a file, in bytes.
const maxContainer = 2 << 30

// maxStandalone bounds a cubin that is a file.
const maxStandalone = MaxData

// An Embedded is a fat binary or a cubin in a file.
type Embedded struct {
	Offset int64  // in the file
	Format Format // Container or Object
	Data   []byte
}

// The sections that nvcc puts fat binaries into: those to load, and those to link first.
var fatbinSections = map[string]bool{".nv_fatbin": true, "__nv_relfatbin": true}

// Files finds the GPU code in a file: a fat binary, a cubin, or an executable, shared object or relocatable
// object with fat binaries in it. It reads one of them at a time. The last error, if any, names the
// place in the file.
func Files(r io.ReaderAt, size int64) iter.Seq2[*Embedded, error] {
	return func(yield func(*Embedded, error) bool) {
		var head [64]byte
		n, err := r.ReadAt(head[:], 0)
		if err != nil && err != io.EOF {
			yield(nil, err)
			return
		}
		switch Detect(head[:n]) {
		case Container:
			containers(r, 0, size, yield)
		case Object:
			if n >= 20 && binary.LittleEndian.Uint16(head[18:]) == elfMachineCUDA {
				yield(read(r, 0, size, maxStandalone, Object))
				return
			}
			hostObject(r, yield)
		case Wrapper:
			yield(nil, errors.New("offset 0: this points to a fat binary in a program's memory, and is none"))
		default:
			yield(nil, errors.New("offset 0: neither a fat binary nor an ELF file"))
		}
	}
}

func read(r io.ReaderAt, at, n, limit int64, f Format) (*Embedded, error) {
	if n > limit {
		return nil, fmt.Errorf("offset %#x: %s of %d bytes, the limit is %d", at, f, n, limit)
	}
	// What is not there is not asked for: memory grows with what was read.
	var b bytes.Buffer
	if got, err := io.Copy(&b, io.NewSectionReader(r, at, n)); err != nil || got < n {
		return nil, fmt.Errorf("offset %#x: %s of %d bytes ends after %d", at, f, n, got)
	}
	return &Embedded{at, f, b.Bytes()}, nil
}

// containers reads the fat binaries between two offsets: each begins at a multiple of 8, with zeros before it.
func containers(r io.ReaderAt, at, end int64, yield func(*Embedded, error) bool) bool {
	buf := make([]byte, 64<<10)
	for {
		var err error
		if at, err = skipZeros(r, at, end, buf); err != nil {
			yield(nil, fmt.Errorf("offset %#x: %w", at, err))
			return false
		}
		if at+HeaderSize > end {
			return true
		}
		head := buf[:HeaderSize]
		if _, err := r.ReadAt(head, at); err != nil {
			yield(nil, fmt.Errorf("offset %#x: %w", at, err))
			return false
		}
		n, err := ContainerSize(head)
		if err == nil && n > end-at {
			err = fmt.Errorf("fat binary claims %d bytes, there are %d", n, end-at)
		}
		if err != nil {
			yield(nil, fmt.Errorf("offset %#x: %w", at, err))
			return false
		}
		e, err := read(r, at, n, maxContainer, Container)
		if !yield(e, err) || err != nil {
			return false
		}
		at = (at + n + 7) &^ 7
	}
}

// skipZeros is the first offset, a multiple of 8 from at on, with something else than eight zeros.
func skipZeros(r io.ReaderAt, at, end int64, buf []byte) (int64, error) {
	for at < end {
		b := buf[:min(int64(len(buf)), end-at)]
		if _, err := r.ReadAt(b, at); err != nil {
			return at, err
		}
		if i := bytes.IndexFunc(b, func(c rune) bool { return c != 0 }); i >= 0 {
			return at + int64(i&^7), nil
		}
		at += int64(len(b))
	}
	return end, nil
}

// hostObject finds the fat binaries of an ELF file for a CPU.
func hostObject(r io.ReaderAt, yield func(*Embedded, error) bool) {
	f, err := elf.NewFile(r)
	if err != nil {
		yield(nil, err)
		return
	}
	found := false
	for _, s := range f.Sections {
		if !fatbinSections[s.Name] || s.Type == elf.SHT_NOBITS {
			continue
		}
		found = true
		if s.Offset > 1<<62 || s.FileSize > 1<<62 {
			yield(nil, fmt.Errorf("section %s: %d bytes at offset %d", s.Name, s.FileSize, s.Offset))
			return
		}
		if !containers(r, int64(s.Offset), int64(s.Offset+s.FileSize), yield) {
			return
		}
	}
	if !found {
		yield(nil, errors.New("an ELF file without a section of GPU code (.nv_fatbin)"))
	}
}
