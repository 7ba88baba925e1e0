// Package fatbin reads the containers that GPU code comes in: fat binaries
// (several images for several architectures, compressed or not) and cubins
// (ELF for EM_CUDA). It finds the PTX in an image that a program gives to
// cuModuleLoadData or cuLibraryLoadData, and describes the kernels of a cubin.
//
// The input is hostile: every offset and size is checked, what is decompressed
// is limited, and nothing is executed or interpreted. The package is pure; it
// must not import anything of this module.
//
// Sources: the container was read off the output of fatbinary 12.4; the
// wrapper structure is __fatBinC_Wrapper_t of fatbinary_section.h (CUDA 12.4); ELF
// flags follow LLVM's ELF.h (EF_CUDA_*); the attributes of .nv.info follow
// the names that cuobjdump prints.
package fatbin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Magic numbers.
const (
	MagicContainer = 0xba55ed50 // of a fat binary
	MagicWrapper   = 0x466243b1 // of the structure that points to one
	magicELF       = 0x464c457f
	magicZstd      = 0xfd2fb528
)

// Limits on what is accepted.
const (
	MaxEntries = 4096    // in one fat binary
	MaxData    = 1 << 30 // bytes of one decompressed image
	maxHeader  = 1 << 16 // bytes of an entry's header
)

// A Kind says what an entry holds.
type Kind uint16

// The kinds that fatbinary writes.
const (
	PTX Kind = 1
	ELF Kind = 2
)

func (k Kind) String() string {
	switch k {
	case PTX:
		return "ptx"
	case ELF:
		return "elf"
	}
	return fmt.Sprintf("kind %d", uint16(k))
}

// A Compression says how an entry's payload is stored.
type Compression uint8

// The compressions.
const (
	Stored Compression = iota
	LZ4                // one LZ4 block, from CUDA 7 on
	Zstd               // a zstd frame, from CUDA 12.8 on
	Old                // of CUDA 4 to 6; the format is not documented, and Data refuses it
)

func (c Compression) String() string {
	return [...]string{"stored", "lz4", "zstd", "old"}[c]
}

// Flags of an entry, as far as they are known.
const (
	flag64Bit   = 1 << 0
	flagDebug   = 1 << 1
	flagOldLZ   = 1 << 12
	flagLZ4     = 1 << 13
	flagZstd    = 1 << 15
	flagFeature = 1 << 20 // sm_90a, compute_90a: seen in what nvcc 12.4 makes
)

// A File is a fat binary.
type File struct {
	Size    int // bytes of the container with its header; the image may go on behind it
	Entries []*Entry
}

// An Entry is one image of a fat binary.
type Entry struct {
	Offset       int // of the entry's header in the container
	Kind         Kind
	Arch         int  // 90 for sm_90 and sm_90a
	Specific     bool // sm_90a: runs on that architecture only
	Major, Minor int  // of PTX: the ISA version
	Debug        bool
	Name         string // of the source, often empty
	Options      string // given to ptxas, often empty
	Flags        uint64
	Compression  Compression
	Size         int // bytes of Data; 0 = unsaid
	payload      []byte
}

// A Format is what an image starts with.
type Format uint8

// The formats that the driver API takes.
const (
	Unknown   Format = iota
	Container        // a fat binary
	Wrapper          // a __fatBinC_Wrapper_t: 24 bytes that point to a fat binary
	Object           // a cubin, or another ELF file
	Text             // PTX
)

func (f Format) String() string {
	return [...]string{"unknown", "fat binary", "fat binary wrapper", "elf", "ptx"}[f]
}

// Detect tells the format of an image by its first bytes.
func Detect(b []byte) Format {
	if len(b) >= 4 {
		switch binary.LittleEndian.Uint32(b) {
		case MagicContainer:
			return Container
		case MagicWrapper:
			return Wrapper
		case magicELF:
			return Object
		}
	}
	if text := bytes.TrimLeft(b, " \t\r\n\f\v"); bytes.HasPrefix(text, []byte(".version")) ||
		bytes.HasPrefix(text, []byte("//")) || bytes.HasPrefix(text, []byte("/*")) {
		return Text
	}
	return Unknown
}

// WrapperSize is the number of bytes of a __fatBinC_Wrapper_t on a 64-bit machine.
const WrapperSize = 24

// A WrapperInfo is a __fatBinC_Wrapper_t: addresses in the program that holds it.
type WrapperInfo struct {
	Version uint32 // 1: Extra is the name of a file; 2: an array of prelinked fat binaries
	Data    uint64 // the fat binary
	Extra   uint64
}

// ReadWrapper reads the wrapper structure.
func ReadWrapper(b []byte) (WrapperInfo, error) {
	if Detect(b) != Wrapper || len(b) < WrapperSize {
		return WrapperInfo{}, errors.New("not a fat binary wrapper")
	}
	le := binary.LittleEndian
	w := WrapperInfo{Version: le.Uint32(b[4:]), Data: le.Uint64(b[8:]), Extra: le.Uint64(b[16:])}
	if w.Version != 1 && w.Version != 2 {
		return w, fmt.Errorf("fat binary wrapper has version %d, known are 1 and 2", w.Version)
	}
	return w, nil
}

// HeaderSize is how many bytes ContainerSize needs.
const HeaderSize = 16

// ContainerSize reads how long a fat binary is from its first 16 bytes.
func ContainerSize(b []byte) (int64, error) {
	if len(b) < HeaderSize || Detect(b) != Container {
		return 0, errors.New("not a fat binary")
	}
	le := binary.LittleEndian
	version, header, size := le.Uint16(b[4:]), le.Uint16(b[6:]), le.Uint64(b[8:])
	if version != 1 {
		return 0, fmt.Errorf("fat binary has version %d, known is 1", version)
	}
	if header < HeaderSize || size > 1<<40 {
		return 0, fmt.Errorf("fat binary has a header of %d bytes and claims %d bytes", header, size)
	}
	return int64(header) + int64(size), nil
}

// Open lists the entries of a fat binary. The entries refer to b.
func Open(b []byte) (*File, error) {
	size, err := ContainerSize(b)
	if err != nil {
		return nil, err
	}
	if size > int64(len(b)) {
		return nil, fmt.Errorf("fat binary claims %d bytes, there are %d", size, len(b))
	}
	b = b[:size]
	f := &File{Size: int(size)}
	for off := int(binary.LittleEndian.Uint16(b[6:])); off < len(b); {
		if len(f.Entries) == MaxEntries {
			return nil, fmt.Errorf("fat binary has more than %d entries", MaxEntries)
		}
		e, n, err := readEntry(b[off:])
		if err != nil {
			return nil, fmt.Errorf("fat binary entry %d at %#x: %w", len(f.Entries), off, err)
		}
		e.Offset = off
		f.Entries = append(f.Entries, e)
		off += n
	}
	return f, nil
}

// readEntry reads the entry at the start of b and says how many bytes it takes.
//
//	 0 u16 kind         2 u16 version     4 u32 header bytes   8 u64 payload bytes, padded
//	16 u32 compressed  20 u32 options at 24 u16 minor, major  28 u32 architecture
//	32 u32 name at     36 u32 name bytes 40 u64 flags         48 u64 0  56 u64 bytes of data
func readEntry(b []byte) (*Entry, int, error) {
	if len(b) < 64 {
		return nil, 0, fmt.Errorf("header needs 64 bytes, there are %d", len(b))
	}
	le := binary.LittleEndian
	header, padded := uint64(le.Uint32(b[4:])), le.Uint64(b[8:])
	rest := uint64(len(b))
	if header < 64 || header > maxHeader || header > rest || padded > rest-header {
		return nil, 0, fmt.Errorf("header of %d and payload of %d bytes do not fit %d bytes", header, padded, rest)
	}
	e := &Entry{
		Kind: Kind(le.Uint16(b)), Arch: int(le.Uint32(b[28:]) & 0xffff), Minor: int(le.Uint16(b[24:])),
		Major: int(le.Uint16(b[26:])), Flags: le.Uint64(b[40:]), payload: b[header : header+padded],
	}
	e.Debug = e.Flags&flagDebug != 0
	e.Specific = e.Flags&flagFeature != 0
	head := b[:header]
	var err error
	if e.Name, err = headerString(head, le.Uint32(b[32:]), le.Uint32(b[36:])); err != nil {
		return nil, 0, fmt.Errorf("name: %w", err)
	}
	if at := uint64(le.Uint32(b[20:])); at != 0 && e.Kind == PTX && at+8 <= header {
		if e.Options, err = headerString(head, le.Uint32(b[at:]), le.Uint32(b[at+4:])); err != nil {
			return nil, 0, fmt.Errorf("options: %w", err)
		}
	}
	compressed, size := uint64(le.Uint32(b[16:])), le.Uint64(b[56:])
	if size > MaxData {
		return nil, 0, fmt.Errorf("data of %d bytes, the limit is %d", size, MaxData)
	}
	if compressed == 0 && e.Flags&(flagLZ4|flagZstd|flagOldLZ) == 0 {
		return e, int(header + padded), nil
	}
	if compressed > padded {
		return nil, 0, fmt.Errorf("compressed payload of %d bytes in %d bytes", compressed, padded)
	}
	if compressed == 0 {
		compressed = padded
	}
	e.payload, e.Size = e.payload[:compressed], int(size)
	switch {
	case e.Flags&flagZstd != 0, len(e.payload) >= 4 && le.Uint32(e.payload) == magicZstd:
		e.Compression = Zstd
	case e.Flags&flagLZ4 != 0:
		e.Compression = LZ4
	case e.Flags&flagOldLZ != 0:
		e.Compression = Old
	default:
		return nil, 0, fmt.Errorf("payload is compressed in an unknown way (flags %#x)", e.Flags)
	}
	return e, int(header + padded), nil
}

func headerString(head []byte, off, n uint32) (string, error) {
	if n == 0 {
		return "", nil
	}
	if uint64(off)+uint64(n) > uint64(len(head)) {
		return "", fmt.Errorf("%d bytes at %d lie outside the header of %d", n, off, len(head))
	}
	return strings.TrimRight(string(head[off:off+n]), " \x00"), nil
}

// Data is the entry's PTX text, without the zeros that pad it, or its ELF
// file. Stored data is not copied: do not write to it.
func (e *Entry) Data() ([]byte, error) {
	data := e.payload
	var err error
	switch e.Compression {
	case LZ4:
		data, err = decompressLZ4(e.payload, e.Size)
	case Zstd:
		data, err = decompressZstd(e.payload, e.Size)
	case Old:
		err = errors.New("compressed as CUDA before 7 did it, which is not supported; build the program with a newer " +
			"CUDA, or with -no-compress")
	}
	if err != nil {
		return nil, fmt.Errorf("%s entry for sm_%d at %#x: %w", e.Kind, e.Arch, e.Offset, err)
	}
	if e.Kind == PTX {
		data = bytes.TrimRight(data, "\x00")
	}
	return data, nil
}

// BestPTX is the PTX entry that a device of this compute capability (90 for 9.0)
// would be given: of those that can run on it, the one for the newest architecture.
// It is nil when there is none.
func (f *File) BestPTX(capability int) *Entry {
	var best *Entry
	for _, e := range f.Entries {
		if e.Kind != PTX || e.Arch > capability || e.Specific && e.Arch != capability {
			continue
		}
		if best == nil || e.Arch > best.Arch || e.Arch == best.Arch && e.Specific && !best.Specific {
			best = e
		}
	}
	return best
}
