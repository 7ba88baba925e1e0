// Package recording is the format of recordings: what a program did on a GPU within a range, in one file, such that
// it can be done again without the program. docs/recording-format.md describes it for readers in other languages.
//
// A file is a header, chunks, and a manifest. The [Manifest] is canonical JSON: the same recording has one text. What
// it names by [Blob] (code, contents of memory, the list of work) lies in chunks, which are known by their SHA-256
// and stored once; chunks of zeros are not stored. The list of work is in the records of package trace.
//
// Files are outside input. [Open] checks all that the manifest says against itself and the file, [File.Read] and
// [File.Each] every chunk against its digest, [File.Work] every record against the manifest; nothing is allocated
// that the file has no bytes for.
//
// The package must not import anything of this module but trace and newfile: recordings are replayed where nothing
// else of holdfast is.
package recording

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ErrMalformed is wrapped by the errors of files that break the format.
var ErrMalformed = errors.New("malformed recording")

// Version is the newest of the format. A recording has the lowest that can say what it says.
const Version = 3

// Limits.
const (
	ChunkSize   = 1 << 20 // bytes of a chunk; the last of a blob may be shorter
	MaxManifest = 256 << 20
	maxHost     = 4 << 30 // bytes that a reader keeps in host memory: code, work, variables
	maxName     = 4096
	maxShape    = 32
)

// A Manifest is what a recording consists of. Fields stand in the order of their names in JSON.
type Manifest struct {
	Arch    int      `json:"arch"`   // of the GPU that it was recorded on: 90 for sm_90
	Chunks  []Chunk  `json:"chunks"` // in the order of the file
	Code    []Code   `json:"code"`
	Driver  int      `json:"driver"` // as cuDriverGetVersion tells it
	Entries []Entry  `json:"entries"`
	Kernels []Kernel `json:"kernels"`
	Memory  []Region `json:"memory"`  // by address; none overlap
	Program []string `json:"program"` // executable and arguments
	// Relocations (version 3) is a table of Patches. Without it the recording is pinned to its addresses.
	Relocations *Blob      `json:"relocations,omitempty"`
	Software    bool       `json:"software"`
	Staging     Span       `json:"staging"` // where inputs come in and outputs go out
	Variables   []Variable `json:"variables"`
	Version     int        `json:"version"`
	Warnings    []string   `json:"warnings"`
}

// A Chunk is a piece of the file.
type Chunk struct {
	Offset int64  `json:"offset"`
	SHA256 Digest `json:"sha256"` // of what it holds
	Size   int64  `json:"size"`
	Stored int64  `json:"stored"` // bytes in the file; fewer than Size: a zstd frame
}

// Zero stands in a Blob for a chunk of zeros.
const Zero = -1

// A Blob is a sequence of bytes.
type Blob struct {
	Bytes  int64 `json:"bytes"`
	Chunks []int `json:"chunks"` // every ChunkSize bytes; Zero, or a place in Manifest.Chunks
	fix    *fixup
}

// Code is one module, as one or more images of it.
type Code struct {
	Images []Image `json:"images"`
}

// An Image is code for one architecture.
type Image struct {
	Arch     int    `json:"arch"`
	Contents Blob   `json:"contents"`
	Kind     string `json:"kind"` // "cubin", "ptx"
}

// Kinds of images.
const (
	Cubin = "cubin"
	PTX   = "ptx"
)

// An Entry is one range: what is replayed as a whole. All entries share memory, variables and staging memory.
type Entry struct {
	Copies   int    `json:"copies"`
	Inputs   []Port `json:"inputs"`
	Launches int    `json:"launches"`
	Name     string `json:"name"`
	Outputs  []Port `json:"outputs"`
	Sets     int    `json:"sets"`
	Work     Blob   `json:"work"` // records of package trace: After, Launch, Copy
}

// A Port is an input or an output: bytes in staging memory.
type Port struct {
	Addr     Addr   `json:"addr"`
	Bytes    int64  `json:"bytes"`
	DType    string `json:"dtype"`
	Name     string `json:"name"`
	Recorded *Blob  `json:"recorded"` // of an input: what came in
	Shape    []int  `json:"shape"`
}

// Untyped says whether nobody has told what a port is: it is bytes.
func (p *Port) Untyped() bool { return p.DType == "uint8" && len(p.Shape) == 1 }

// FindPort finds an input or output by its name.
func FindPort(ports []Port, name string) (*Port, error) {
	var names []string
	for i := range ports {
		if ports[i].Name == name {
			return &ports[i], nil
		}
		names = append(names, ports[i].Name)
	}
	return nil, fmt.Errorf("no %q; there are %v", name, names)
}

// FindInput finds an input that takes so many bytes.
func FindInput(ports []Port, name string, bytes int) (*Port, error) {
	in, err := FindPort(ports, name)
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	if int64(bytes) != in.Bytes {
		return nil, fmt.Errorf("input %s: %d bytes, it has %d", name, bytes, in.Bytes)
	}
	return in, nil
}

// A Kernel is a kernel that runs.
type Kernel struct {
	Code   int     `json:"code"` // in Manifest.Code
	Name   string  `json:"name"`
	Params []Param `json:"params"`
}

// A Param is where a parameter lies in a launch's parameter bytes.
type Param struct {
	Offset int `json:"offset"`
	Size   int `json:"size"`
}

// A Region is device memory at a fixed address.
type Region struct {
	Addr     Addr   `json:"addr"`
	Bytes    int64  `json:"bytes"`
	Class    string `json:"class"`
	Contents *Blob  `json:"contents"` // none: not there before the range, its first contents do not count
}

// Classes of regions.
const (
	Live    = "live"    // there when the range began: weights, constants, state, and what the program has left
	Scratch = "scratch" // came in the range
	// Constant (version 2) is Live, and no work of the recording writes it. Whoever recorded it has shown that.
	Constant = "constant"
)

// A Span is a range of addresses.
type Span struct {
	Addr  Addr  `json:"addr"`
	Bytes int64 `json:"bytes"`
}

// A Variable is a variable of a module, with what it held when the range began.
type Variable struct {
	Code     int    `json:"code"`
	Contents Blob   `json:"contents"`
	Name     string `json:"name"`
}

// An Addr is a device address, 0x and hexadecimal digits in JSON.
type Addr uint64

func (a Addr) String() string { return "0x" + strconv.FormatUint(uint64(a), 16) }

// MarshalText implements encoding.TextMarshaler.
func (a Addr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Addr) UnmarshalText(b []byte) error {
	digits, ok := strings.CutPrefix(string(b), "0x")
	v, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil {
		return fmt.Errorf("address %q", b)
	}
	*a = Addr(v)
	return nil
}

// A Digest is a SHA-256.
type Digest [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(d[:])), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(d) {
		return fmt.Errorf("digest of %d characters", len(b))
	}
	_, err := hex.Decode(d[:], b)
	return err
}

func (m *Manifest) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func decodeManifest(b []byte) (*Manifest, error) {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrMalformed, err)
	}
	if v.Version < 1 || v.Version > Version {
		return nil, fmt.Errorf("%w: version %d, this holdfast reads 1 to %d", ErrMalformed, v.Version, Version)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	m := &Manifest{}
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrMalformed, err)
	}
	if again, err := m.encode(); err != nil || !bytes.Equal(again, b) {
		return nil, fmt.Errorf("%w: the manifest is not in its canonical form", ErrMalformed)
	}
	if m.Version != m.lowest() {
		return nil, fmt.Errorf("%w: version %d, what it says is of version %d", ErrMalformed, m.Version, m.lowest())
	}
	return m, nil
}

// lowest is the version that can say what the manifest says.
func (m *Manifest) lowest() int {
	if m.Relocations != nil {
		return 3
	}
	if slices.ContainsFunc(m.Memory, func(r Region) bool { return r.Class == Constant }) {
		return 2
	}
	return 1
}

// check holds the manifest against itself and the bytes of the file that chunks may lie in.
func (m *Manifest) check(from, to int64) error {
	at := from
	for i, c := range m.Chunks {
		if c.Offset != at || c.Stored <= 0 || c.Stored > to-at || c.Size <= 0 || c.Size > ChunkSize ||
			c.Stored > c.Size {
			return fmt.Errorf("chunk %d: %d bytes at %d of the file, %d unpacked", i, c.Stored, c.Offset, c.Size)
		}
		at += c.Stored
	}
	if at != to {
		return fmt.Errorf("%d bytes of the file belong to no chunk", to-at)
	}
	if m.Arch <= 0 || m.Arch > math.MaxInt16 || m.Driver < 0 {
		return fmt.Errorf("architecture %d, driver %d", m.Arch, m.Driver)
	}
	if n := m.hostBytes(); n > maxHost {
		return fmt.Errorf("%d bytes of code, work and variables, limit %d", n, int64(maxHost))
	}
	if t := m.Relocations; t != nil {
		if t.Bytes > MaxTable {
			return fmt.Errorf("relocations: %d bytes, limit %d", t.Bytes, MaxTable)
		}
		if err := m.checkBlob(*t); err != nil {
			return fmt.Errorf("relocations: %w", err)
		}
	}
	for _, f := range []func() error{m.checkCode, m.checkMemory, m.checkEntries} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// hostBytes is the size of what is read as a whole. Zeros take no room in the file, but here.
func (m *Manifest) hostBytes() (n int64) {
	add := func(b Blob) { n = min(n+max(0, min(b.Bytes, 2*maxHost)), 2*maxHost) }
	for _, c := range m.Code {
		for _, g := range c.Images {
			add(g.Contents)
		}
	}
	for _, v := range m.Variables {
		add(v.Contents)
	}
	for _, e := range m.Entries {
		add(e.Work)
	}
	return n
}

func (m *Manifest) checkCode() error {
	for i, c := range m.Code {
		if len(c.Images) == 0 {
			return fmt.Errorf("code %d has no image", i)
		}
		for _, g := range c.Images {
			if err := m.checkBlob(g.Contents); err != nil {
				return fmt.Errorf("code %d: %w", i, err)
			}
			if g.Kind != Cubin && g.Kind != PTX || g.Arch < 0 {
				return fmt.Errorf("code %d: %.100q for architecture %d", i, g.Kind, g.Arch)
			}
		}
	}
	for i, k := range m.Kernels {
		if k.Code < 0 || k.Code >= len(m.Code) || k.Name == "" || len(k.Name) > math.MaxUint16 {
			return fmt.Errorf("kernel %d (%.100q) of code %d", i, k.Name, k.Code)
		}
		for _, p := range k.Params {
			if p.Offset < 0 || p.Size <= 0 || p.Offset > math.MaxUint16 || p.Size > math.MaxUint16 {
				return fmt.Errorf("kernel %.100q: a parameter of %d bytes at %d", k.Name, p.Size, p.Offset)
			}
		}
	}
	for i, v := range m.Variables {
		if v.Code < 0 || v.Code >= len(m.Code) || v.Name == "" || len(v.Name) > maxName {
			return fmt.Errorf("variable %d (%.100q) of code %d", i, v.Name, v.Code)
		}
		if err := m.checkBlob(v.Contents); err != nil {
			return fmt.Errorf("variable %.100q: %w", v.Name, err)
		}
	}
	return nil
}

func (m *Manifest) checkMemory() error {
	end := Addr(1)
	for i, r := range m.Memory {
		if r.Addr < end || r.Bytes <= 0 || uint64(r.Addr)+uint64(r.Bytes) < uint64(r.Addr) ||
			!slices.Contains([]string{Live, Scratch, Constant}, r.Class) {
			return fmt.Errorf("region %d (%q): %d bytes at %v", i, r.Class, r.Bytes, r.Addr)
		}
		end = r.Addr + Addr(r.Bytes)
		if (r.Contents == nil) != (r.Class == Scratch) {
			return fmt.Errorf("region %d at %v: its contents do not fit its class", i, r.Addr)
		}
		if r.Contents == nil {
			continue
		}
		if err := m.checkBlob(*r.Contents); err != nil {
			return fmt.Errorf("region %d at %v: %w", i, r.Addr, err)
		}
		if r.Contents.Bytes != r.Bytes {
			return fmt.Errorf("region %d at %v: %d bytes of contents, want %d", i, r.Addr, r.Contents.Bytes, r.Bytes)
		}
	}
	s := m.Staging
	if s.Addr == 0 || s.Bytes < 0 || uint64(s.Addr)+uint64(s.Bytes) < uint64(s.Addr) {
		return fmt.Errorf("staging memory: %d bytes at %v", s.Bytes, s.Addr)
	}
	for _, r := range m.Memory {
		if r.Addr < s.Addr+Addr(s.Bytes) && s.Addr < r.Addr+Addr(r.Bytes) {
			return fmt.Errorf("staging memory at %v overlaps the region at %v", s.Addr, r.Addr)
		}
	}
	return nil
}

func (m *Manifest) checkEntries() error {
	names := map[string]bool{}
	for _, e := range m.Entries {
		if e.Name == "" || len(e.Name) > maxName || names[e.Name] || e.Launches < 0 || e.Copies < 0 || e.Sets < 0 {
			return fmt.Errorf("entry %.100q: its name is empty, too long or there twice, or a count is negative",
				e.Name)
		}
		names[e.Name] = true
		ports := map[string]bool{}
		for _, p := range append(append([]Port(nil), e.Inputs...), e.Outputs...) {
			if ports[p.Name] {
				return fmt.Errorf("entry %s: two are named %.100q", e.Name, p.Name)
			}
			ports[p.Name] = true
			if err := m.checkPort(p); err != nil {
				return fmt.Errorf("entry %s, %.100q: %w", e.Name, p.Name, err)
			}
		}
		if err := m.checkBlob(e.Work); err != nil {
			return fmt.Errorf("entry %s: %w", e.Name, err)
		}
	}
	if len(m.Entries) == 0 {
		return errors.New("there is no entry")
	}
	return nil
}

func (m *Manifest) checkPort(p Port) error {
	if p.Name == "" || len(p.Name) > maxName || p.Bytes <= 0 || !m.Staging.holds(uint64(p.Addr), uint64(p.Bytes)) {
		return fmt.Errorf("%d bytes at %v, not in staging memory", p.Bytes, p.Addr)
	}
	if n, err := ArrayBytes(p.DType, p.Shape); err != nil {
		return err
	} else if n != p.Bytes {
		return fmt.Errorf("%s %v has %d bytes, not %d", p.DType, p.Shape, n, p.Bytes)
	}
	if p.Recorded == nil {
		return nil
	}
	if p.Recorded.Bytes != p.Bytes {
		return fmt.Errorf("%d bytes recorded, want %d", p.Recorded.Bytes, p.Bytes)
	}
	return m.checkBlob(*p.Recorded)
}

func (m *Manifest) checkBlob(b Blob) error {
	if b.Bytes < 0 || b.Bytes > math.MaxInt64-ChunkSize || int64(len(b.Chunks)) != (b.Bytes+ChunkSize-1)/ChunkSize {
		return fmt.Errorf("%d chunks for %d bytes", len(b.Chunks), b.Bytes)
	}
	for i, c := range b.Chunks {
		if c == Zero {
			continue
		}
		if c < 0 || c >= len(m.Chunks) || m.Chunks[c].Size != b.size(i) {
			return fmt.Errorf("chunk %d is not one of %d bytes", c, b.size(i))
		}
	}
	return nil
}

// size is how many bytes the i-th chunk of b has.
func (b Blob) size(i int) int64 { return min(ChunkSize, b.Bytes-int64(i)*ChunkSize) }

// holds reports whether all of [addr, addr+n) lies in the span.
func (s Span) holds(addr, n uint64) bool {
	return addr >= uint64(s.Addr) && addr-uint64(s.Addr) <= uint64(s.Bytes) &&
		n <= uint64(s.Bytes)-(addr-uint64(s.Addr))
}

// dtypes are the types of elements, as NumPy names them, and their sizes.
var dtypes = map[string]int64{
	"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
	"float32": 4,
	"int64":   8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}

// ArrayBytes is how many bytes an array of that type and shape has.
func ArrayBytes(dtype string, shape []int) (int64, error) {
	n, ok := dtypes[dtype]
	if !ok {
		return 0, fmt.Errorf("type %.100q is not known", dtype)
	}
	if len(shape) > maxShape {
		return 0, fmt.Errorf("%d dimensions", len(shape))
	}
	for _, d := range shape {
		if d < 0 || d > 0 && n > math.MaxInt64/int64(d) {
			return 0, fmt.Errorf("shape %v", shape)
		}
		n *= int64(d)
	}
	return n, nil
}

// Entry finds an entry; with no name the only one.
func (m *Manifest) Entry(name string) (*Entry, error) {
	var names []string
	for i := range m.Entries {
		if m.Entries[i].Name == name || name == "" && len(m.Entries) == 1 {
			return &m.Entries[i], nil
		}
		names = append(names, m.Entries[i].Name)
	}
	if name == "" {
		return nil, fmt.Errorf("which entry? There are %s", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("no entry %q; there are %s", name, strings.Join(names, ", "))
}
