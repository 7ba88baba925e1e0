package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/snapshot/digest"
)

// The kinds of image.
const (
	KindFull    = "full"     // device memory and processes: can be restored
	KindGPUOnly = "gpu-only" // device memory alone: can be put back into the living program
)

// The versions of the format. An image has the lowest one that can say what it says; others are refused.
const (
	Version      = 1
	VersionOrder = 2 // with Manifest.Order
)

const formatName = "holdfast-image"

// Limits of what a manifest may say, against hostile ones.
const (
	maxManifest = 256 << 20 // bytes
	maxDecoded  = 512 << 20 // bytes of memory, by afford
	maxChunks   = 8 << 20   // 16 TiB of device memory
	maxPrograms = 4096
	maxRegions  = 1 << 20
	maxFiles    = 1 << 20
	maxString   = 64 << 10
	maxArgs     = 1 << 20
)

// MaxOrder is how many runs an order may have.
const MaxOrder = 1 << 16

// Manifest says what an image is.
type Manifest struct {
	Version   int       `json:"version"`
	Kind      string    `json:"kind"`
	Created   time.Time `json:"created"`
	Tool      string    `json:"tool"` // what wrote it
	Nonce     string    `json:"nonce"`
	Parent    string    `json:"parent,omitempty"` // the image it was taken after, if known: for people
	Root      int       `json:"root"`             // process id of the tree's root; 0 for gpu-only
	GPU       GPU       `json:"gpu"`
	Programs  []Program `json:"programs"`
	Regions   []Region  `json:"regions"`
	Order     []Run     `json:"order,omitempty"` // see Run
	Libraries []Library `json:"libraries,omitempty"`
	Files     []File    `json:"files,omitempty"`
	Caveats   []string  `json:"caveats,omitempty"`
	Note      string    `json:"note,omitempty"`
}

// GPU says what the image was taken on.
type GPU struct {
	Driver int    `json:"driver"` // CUDA driver API version, as cuDriverGetVersion
	Name   string `json:"name,omitempty"`
}

// Program is one process that has device memory.
type Program struct {
	PID        int
	StartTime  uint64
	ControlTID int
	GPU        uint32
	Name       string
	Exe        string
	Command    []string
	Devices    [][16]byte // UUIDs
	Token      [16]byte   // names the program over all its restores
	Shim       json.RawMessage
}

type programJSON struct {
	PID        int             `json:"pid"`
	StartTime  uint64          `json:"start_time"`
	ControlTID int             `json:"control_tid"`
	GPU        uint32          `json:"gpu"`
	Name       string          `json:"name"`
	Exe        string          `json:"exe"`
	Command    []string        `json:"command"`
	Devices    []string        `json:"devices"`
	Token      string          `json:"token"`
	Shim       json.RawMessage `json:"shim,omitempty"`
}

// MarshalJSON writes UUIDs and token in hexadecimal.
func (p Program) MarshalJSON() ([]byte, error) {
	j := programJSON{p.PID, p.StartTime, p.ControlTID, p.GPU, p.Name, p.Exe, p.Command, nil,
		hex.EncodeToString(p.Token[:]), p.Shim}
	for _, d := range p.Devices {
		j.Devices = append(j.Devices, hex.EncodeToString(d[:]))
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Program) UnmarshalJSON(b []byte) error {
	var j programJSON
	if err := strict(b, &j); err != nil {
		return err
	}
	*p = Program{PID: j.PID, StartTime: j.StartTime, ControlTID: j.ControlTID, GPU: j.GPU, Name: j.Name, Exe: j.Exe,
		Command: j.Command, Shim: j.Shim}
	if err := unhex(p.Token[:], j.Token); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	for _, s := range j.Devices {
		var u [16]byte
		if err := unhex(u[:], s); err != nil {
			return fmt.Errorf("device: %w", err)
		}
		p.Devices = append(p.Devices, u)
	}
	return nil
}

func unhex(to []byte, s string) error {
	if len(s) != 2*len(to) {
		return fmt.Errorf("%d characters instead of %d", len(s), 2*len(to))
	}
	_, err := hex.Decode(to, []byte(s))
	return err
}

// Region is one allocation of device memory.
type Region struct {
	Program int     `json:"program"` // index in Programs
	ID      uint64  `json:"id"`
	VA      uint64  `json:"va"`
	Size    uint64  `json:"size"` // bytes, a multiple of digest.ChunkSize
	Used    uint64  `json:"used,omitempty"`
	Device  uint32  `json:"device"` // index in the program's Devices
	Kind    uint32  `json:"kind"`
	Access  uint32  `json:"access,omitempty"`
	Digests Digests `json:"digests"`
}

// A Run is some chunks of a region, one after the other. The runs of Manifest.Order are what the programs first touched
// after the image was taken, in that order: what they will need first when they come back. It is a hint; none = not
// known.
type Run struct {
	Region int `json:"region"` // index in Regions
	Chunk  int `json:"chunk"`  // the first
	Count  int `json:"count"`
}

// Digests are the digests of a region's chunks in order. In JSON equal neighbours are written once: "HEX*COUNT".
type Digests []digest.Digest

// MarshalJSON writes an array of "HEX" and "HEX*COUNT".
func (ds Digests) MarshalJSON() ([]byte, error) {
	var out []string
	for i := 0; i < len(ds); {
		n := 1
		for i+n < len(ds) && ds[i+n] == ds[i] {
			n++
		}
		s := ds[i].String()
		if n > 1 {
			s += "*" + strconv.Itoa(n)
		}
		out = append(out, s)
		i += n
	}
	if out == nil {
		out = []string{}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes, up to maxChunks chunks.
func (ds *Digests) UnmarshalJSON(b []byte) error {
	if bytes.IndexByte(b, '\\') >= 0 {
		return errors.New("an escape in a digest") // afford would not have seen what it says
	}
	var in []string
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if len(in) > maxChunks {
		return errors.New("too many chunks")
	}
	// Count first: a few bytes can ask for a lot of memory.
	total := 0
	counts, digests := make([]int, len(in)), make(Digests, len(in))
	for i, s := range in {
		counts[i] = 1
		if h, c, ok := strings.Cut(s, "*"); ok {
			n, err := strconv.Atoi(c)
			if err != nil || n < 2 || n > maxChunks || c[0] == '+' || c[0] == '0' {
				return fmt.Errorf("bad count %q", c)
			}
			counts[i], s = n, h
		}
		var err error
		if digests[i], err = digest.Parse(s); err != nil {
			return err
		}
		if total += counts[i]; total > maxChunks {
			return errors.New("too many chunks")
		}
	}
	out := make(Digests, 0, total)
	for i, d := range digests {
		for range counts[i] {
			out = append(out, d)
		}
	}
	*ds = out
	return nil
}

// File is a file of the image other than manifest and chunks.
type File struct {
	Path string `json:"path"` // criu/NAME or libs/NAME
	Size int64  `json:"size"`
	Sum  string `json:"sum"` // docs/image-format.md; sumFile
}

// Library is a file that the processes have mapped and that holdfast had put where it was: it has to be there again.
type Library struct {
	Path string `json:"path"` // where the processes have it
	File string `json:"file"` // in Files
}

// Bytes is the device memory in the image.
func (m *Manifest) Bytes() (n uint64) {
	for _, r := range m.Regions {
		n += r.Size
	}
	return n
}

// Chunks returns the distinct chunks that the image has to hold (all but the zero chunk), in the order they first
// appear.
func (m *Manifest) Chunks() []digest.Digest {
	seen := map[digest.Digest]bool{digest.ZeroDigest: true}
	var out []digest.Digest
	for _, r := range m.Regions {
		for _, d := range r.Digests {
			if !seen[d] {
				seen[d] = true
				out = append(out, d)
			}
		}
	}
	return out
}

// Digest names the content of all device memory in the image: SHA-256 over the regions' programs, addresses, sizes and
// chunk digests, in the order of the manifest.
func (m *Manifest) Digest() string {
	h := sha256.New()
	for _, r := range m.Regions {
		fmt.Fprintf(h, "%d %#x %d\n", r.Program, r.VA, r.Size)
		for i := range r.Digests {
			h.Write(r.Digests[i][:])
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// envelope is manifest.json: the manifest and the sum over exactly its bytes.
type envelope struct {
	Format   string          `json:"format"`
	Version  int             `json:"version"`
	SHA256   string          `json:"sha256"`
	Manifest json.RawMessage `json:"manifest"`
}

// Encode returns the content of manifest.json. The same manifest gives the same bytes.
func (m *Manifest) Encode() ([]byte, error) {
	b, _, err := m.encode()
	return b, err
}

// encode also returns the manifest's sum.
func (m *Manifest) encode() (b []byte, sum string, err error) {
	if err := m.check(); err != nil {
		return nil, "", err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, "", err
	}
	h := sha256.Sum256(body)
	sum = hex.EncodeToString(h[:])
	if b, err = json.Marshal(envelope{formatName, m.Version, sum, body}); err != nil {
		return nil, "", err
	}
	if err := afford(b); err != nil {
		return nil, "", err
	}
	return append(b, '\n'), sum, nil
}

// DecodeManifest reads manifest.json. It accepts exactly what Encode can write.
func DecodeManifest(b []byte) (*Manifest, error) {
	m, _, err := decodeManifest(b)
	return m, err
}

// decodeManifest also returns the manifest's sum.
func decodeManifest(b []byte) (*Manifest, string, error) {
	fail := func(err error) (*Manifest, string, error) { return nil, "", fmt.Errorf("manifest: %w", err) }
	if len(b) > maxManifest {
		return fail(fmt.Errorf("%d bytes are too many", len(b)))
	}
	if err := afford(b); err != nil {
		return fail(err)
	}
	var e envelope
	if err := strict(b, &e); err != nil {
		return fail(err)
	}
	if e.Format != formatName {
		return fail(fmt.Errorf("format %.40q, not %q", e.Format, formatName))
	}
	if e.Version != Version && e.Version != VersionOrder {
		return fail(fmt.Errorf("version %d of the format; this holdfast reads %d and %d", e.Version, Version,
			VersionOrder))
	}
	sum := sha256.Sum256(e.Manifest)
	if e.SHA256 != hex.EncodeToString(sum[:]) {
		return fail(errors.New("its sum does not fit: it is damaged"))
	}
	m := &Manifest{}
	if err := strict(e.Manifest, m); err != nil {
		return fail(err)
	}
	if m.Version != e.Version {
		return fail(fmt.Errorf("versions %d and %d", e.Version, m.Version))
	}
	if err := m.check(); err != nil {
		return fail(err)
	}
	return m, e.SHA256, nil
}

// Prices of what a manifest makes of its bytes, roughly: an element of any array has its place there, a chunk its
// digest.
const (
	priceValue  = 16
	priceObject = 256
	priceChunk  = digest.Size
)

// afford refuses a manifest that would take too much memory, before any of it is decoded. Three bytes can be an element
// of an array, and "HEX*N" N chunks: each within its limit, and together far beyond what any machine has. It reads JSON
// as strict does, only that what is no JSON may cost anything.
func afford(b []byte) error {
	budget := maxDecoded
	for i := 0; i < len(b) && budget >= 0; i++ {
		switch b[i] {
		case '{':
			budget -= priceObject
		case '[', ',':
			budget -= priceValue
		case '"':
			n := stringEnd(b[i+1:])
			budget -= priceValue + n + priceChunk*repeats(b[i+1:i+1+n])
			i += n + 1
		}
	}
	if budget < 0 {
		return fmt.Errorf("it takes more than %d MiB of memory", maxDecoded>>20)
	}
	return nil
}

// stringEnd is the length of a JSON string behind its opening quote.
func stringEnd(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(b)
}

// repeats is how many chunks a string stands for, if it is one of Digests, which have no escapes.
func repeats(s []byte) int {
	const hexLen = 2 * digest.Size
	if len(s) < hexLen || len(s) > hexLen+20 {
		return 0
	}
	if len(s) == hexLen {
		return 1
	}
	n, err := strconv.Atoi(string(s[hexLen+1:]))
	if s[hexLen] != '*' || err != nil || n < 0 || n > maxChunks {
		return 0 // UnmarshalJSON refuses it
	}
	return n
}

// strict decodes one JSON value without unknown fields and nothing behind it.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if rest := bytes.TrimSpace(b[d.InputOffset():]); len(rest) > 0 {
		return errors.New("something follows the value")
	}
	return nil
}

// check holds every number and name of a manifest to what the rest of holdfast counts on.
func (m *Manifest) check() error {
	if m.Version != m.version() {
		return fmt.Errorf("version %d", m.Version)
	}
	if m.Kind != KindFull && m.Kind != KindGPUOnly {
		return fmt.Errorf("kind %.40q", m.Kind)
	}
	if m.Kind == KindFull && m.Root <= 0 || m.Root < 0 || m.Root > 1<<22 {
		return fmt.Errorf("root process %d", m.Root)
	}
	for what, s := range map[string]string{"tool": m.Tool, "nonce": m.Nonce, "parent": m.Parent, "note": m.Note,
		"GPU": m.GPU.Name} {
		if len(s) > maxString {
			return fmt.Errorf("%s of %d bytes", what, len(s))
		}
	}
	if n := len(m.Programs); n == 0 || n > maxPrograms {
		return fmt.Errorf("%d programs", n)
	}
	if len(m.Regions) > maxRegions || len(m.Files) > maxFiles || len(m.Libraries) > maxFiles ||
		len(m.Caveats) > maxFiles {
		return fmt.Errorf("%d regions, %d files, %d libraries", len(m.Regions), len(m.Files), len(m.Libraries))
	}
	for i, p := range m.Programs {
		switch {
		case p.PID <= 0 || p.PID > 1<<22 || p.ControlTID < 0 || p.ControlTID > 1<<22: // PID_MAX_LIMIT
			return fmt.Errorf("program %d: process %d, thread %d", i, p.PID, p.ControlTID)
		case len(p.Devices) > 1024:
			return fmt.Errorf("program %d: %d devices", i, len(p.Devices))
		case len(p.Name) > maxString || len(p.Exe) > maxString || len(p.Command) > maxArgs:
			return fmt.Errorf("program %d: name, executable or command line are too long", i)
		}
	}
	chunks := 0
	for i, r := range m.Regions {
		switch {
		case r.Program < 0 || r.Program >= len(m.Programs):
			return fmt.Errorf("region %d: program %d of %d", i, r.Program, len(m.Programs))
		case int64(r.Device) >= int64(len(m.Programs[r.Program].Devices)):
			return fmt.Errorf("region %d: device %d of %d", i, r.Device, len(m.Programs[r.Program].Devices))
		case r.Size == 0 || r.Size%digest.ChunkSize != 0 || r.Size > maxChunks*digest.ChunkSize:
			return fmt.Errorf("region %d: %d bytes", i, r.Size)
		case r.VA+r.Size < r.VA:
			return fmt.Errorf("region %d: %d bytes at %#x", i, r.Size, r.VA)
		case r.Used > r.Size:
			return fmt.Errorf("region %d: %d bytes used of %d", i, r.Used, r.Size)
		case uint64(len(r.Digests))*digest.ChunkSize != r.Size:
			return fmt.Errorf("region %d: %d chunks for %d bytes", i, len(r.Digests), r.Size)
		}
		if chunks += len(r.Digests); chunks > maxChunks {
			return errors.New("too many chunks")
		}
	}
	if err := m.checkOrder(); err != nil {
		return err
	}
	files := map[string]bool{}
	for i, f := range m.Files {
		if !validPath(f.Path) || f.Size < 0 || len(f.Sum) != 2*sha256.Size || files[f.Path] {
			return fmt.Errorf("file %d: %.100q, %d bytes, sum %.64q", i, f.Path, f.Size, f.Sum)
		}
		files[f.Path] = true
	}
	for i, l := range m.Libraries {
		if !files[l.File] || !strings.HasPrefix(l.File, libsName+"/") || !validLibrary(l.Path) {
			return fmt.Errorf("library %d: %.100q as %.100q", i, l.Path, l.File)
		}
	}
	return nil
}

// version is the version of the format that says what m says.
func (m *Manifest) version() int {
	if len(m.Order) > 0 {
		return VersionOrder
	}
	return Version
}

// checkOrder holds an order to chunks that there are, each at most once.
func (m *Manifest) checkOrder() error {
	if len(m.Order) > MaxOrder {
		return fmt.Errorf("an order of %d runs", len(m.Order))
	}
	seen := map[int][]bool{} // by region
	for i, r := range m.Order {
		if r.Region < 0 || r.Region >= len(m.Regions) {
			return fmt.Errorf("order, run %d: region %d of %d", i, r.Region, len(m.Regions))
		}
		has := len(m.Regions[r.Region].Digests)
		if r.Chunk < 0 || r.Count < 1 || r.Chunk >= has || r.Count > has-r.Chunk {
			return fmt.Errorf("order, run %d: %d chunks from %d on of %d", i, r.Count, r.Chunk, has)
		}
		if seen[r.Region] == nil {
			seen[r.Region] = make([]bool, has)
		}
		for c := r.Chunk; c < r.Chunk+r.Count; c++ {
			if seen[r.Region][c] {
				return fmt.Errorf("order, run %d: chunk %d of region %d is named twice", i, c, r.Region)
			}
			seen[r.Region][c] = true
		}
	}
	return nil
}

// validPath says whether a name is one of a file in criu or libs.
func validPath(p string) bool {
	dir, name, ok := strings.Cut(p, "/")
	return ok && (dir == criuName || dir == libsName) && validName(name)
}

func validName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) < 200 && !strings.ContainsAny(name, "/\x00\n")
}

// validLibrary says whether a library may be put at a path: only what is one by its name, so that an image from
// elsewhere cannot write just any file.
func validLibrary(p string) bool {
	base := path.Base(p)
	return path.IsAbs(p) && path.Clean(p) == p && len(p) < 4000 && !strings.ContainsAny(p, "\x00\n") &&
		strings.HasPrefix(base, "lib") && (strings.HasSuffix(base, ".so") || strings.Contains(base, ".so."))
}
