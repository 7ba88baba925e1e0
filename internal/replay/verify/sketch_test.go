package verify_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/internal/recording"
	"holdfast/internal/replay"
	"holdfast/internal/replay/verify"
	"holdfast/internal/softgpu"
	"holdfast/internal/trace"
	"holdfast/ptx"
)

// Where the memory of recordings that tests make begins; their window on the test's GPU is around it.
const (
	base   = 1 << 47
	window = 1 << 34
)

// A sketch is what a recording of a test consists of.
type sketch struct {
	code    []string // PTX, one module each
	cubin   bool     // there is machine code beside it
	kernels []string // of code 0; parameters are those of the PTX
	regions []region
	work    []trace.Record
	entry   recording.Entry // inputs and outputs
	patches []recording.Patch
}

// A region's contents are nil for scratch memory.
type region struct {
	addr     uint64
	bytes    int64
	contents []byte
	constant bool
}

// write makes the file. Staging memory begins 64 MiB above base and has 2 MiB.
func (s *sketch) write(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.hfr")
	w, err := recording.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &recording.Manifest{Arch: 90, Driver: 13000, Program: []string{"p"}, Software: true, Warnings: []string{},
		Code: []recording.Code{}, Kernels: []recording.Kernel{}, Memory: []recording.Region{},
		Variables: []recording.Variable{}, Staging: recording.Span{Addr: base + 64<<20, Bytes: 2 << 20}}
	for i, text := range s.code {
		images := []recording.Image{{Arch: 70, Contents: w.Put([]byte(text)), Kind: recording.PTX}}
		if s.cubin {
			images = append(images, recording.Image{Arch: 90, Contents: w.Put([]byte("machine code")),
				Kind: recording.Cubin})
		}
		m.Code = append(m.Code, recording.Code{Images: images})
		if i > 0 {
			continue
		}
		for _, name := range s.kernels {
			m.Kernels = append(m.Kernels, recording.Kernel{Name: name, Params: paramsOf(t, text, name)})
		}
	}
	for _, r := range s.regions {
		g := recording.Region{Addr: recording.Addr(r.addr), Bytes: r.bytes, Class: recording.Scratch}
		if r.contents != nil {
			b := w.Put(append(bytes.Clone(r.contents), make([]byte, r.bytes-int64(len(r.contents)))...))
			g.Class, g.Contents = recording.Live, &b
		}
		if r.constant {
			g.Class = recording.Constant
		}
		m.Memory = append(m.Memory, g)
	}
	e := s.entry
	if e.Inputs == nil {
		e.Inputs = []recording.Port{}
	}
	if e.Outputs == nil {
		e.Outputs = []recording.Port{}
	}
	e.Name = "test"
	var work []byte
	for _, rec := range s.work {
		count(&e, rec)
		if work, err = trace.Append(work, rec); err != nil {
			t.Fatal(err)
		}
	}
	e.Work = w.Put(work)
	m.Entries = []recording.Entry{e}
	if s.patches != nil {
		b := w.Put(recording.AppendPatches(nil, s.patches))
		m.Relocations = &b
	}
	if _, err := w.Finish(m); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// relocatable has the recording say which of its words are addresses: those that point into its memory.
func (s *sketch) relocatable() *sketch {
	points := func(v uint64) bool {
		for _, r := range s.regions {
			if v >= r.addr && v <= r.addr+uint64(r.bytes) {
				return true
			}
		}
		return false
	}
	find := func(p recording.Patch, b []byte) {
		for at := 0; at+8 <= len(b); at += 8 {
			if points(binary.LittleEndian.Uint64(b[at:])) {
				p.Offsets = append(p.Offsets, int64(at))
			}
		}
		if p.Offsets != nil {
			s.patches = append(s.patches, p)
		}
	}
	for i, r := range s.regions {
		find(recording.Patch{In: recording.InRegion, Index: i}, r.contents)
	}
	n := 0
	for _, rec := range s.work {
		if l, ok := rec.(*trace.Launch); ok {
			find(recording.Patch{In: recording.InLaunch, Index: n}, l.Params)
		}
		if _, ok := rec.(*trace.After); !ok {
			n++
		}
	}
	return s
}

// paramsOf is where a kernel's parameters are.
func paramsOf(t testing.TB, text, name string) []recording.Param {
	t.Helper()
	out := []recording.Param{}
	source, err := ptx.Parse("", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m, err := softgpu.Load(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range m.Kernels() {
		if k.Name != name {
			continue
		}
		for _, p := range k.Params {
			out = append(out, recording.Param{Offset: int(p.Offset), Size: int(p.Size)})
		}
		return out
	}
	t.Fatalf("no kernel %s", name)
	return nil
}

// launch is a launch of kernel number k. Parameters are uint64 or uint32, aligned as PTX does.
func launch(k uint32, grid, block uint32, params ...any) *trace.Launch {
	var b []byte
	for _, p := range params {
		switch p := p.(type) {
		case uint64:
			for len(b)%8 != 0 {
				b = append(b, 0)
			}
			b = binary.LittleEndian.AppendUint64(b, p)
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, p)
		default:
			panic("neither uint64 nor uint32")
		}
	}
	return &trace.Launch{Kernel: k, Grid: [3]uint32{grid, 1, 1}, Block: [3]uint32{block, 1, 1},
		Cluster: [3]uint32{1, 1, 1}, Params: b}
}

func after(works ...uint32) *trace.After { return &trace.After{Works: works} }

func words(list ...uint32) (b []byte) {
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// open opens the recording that b is.
func open(t testing.TB, b []byte) *recording.File {
	t.Helper()
	f, err := recording.NewFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func verified(t testing.TB, b []byte) *verify.Report {
	t.Helper()
	r, err := verify.Verify(open(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An outcome is how a replay on the test's GPU went.
type outcome struct {
	loaded error    // it could not begin
	ended  error    // it ended early
	strays []string // what it touched that is not the recording's
}

// played replays a recording once on a GPU whose addresses begin at lo.
func played(t testing.TB, f *recording.File, lo, size uint64) outcome {
	t.Helper()
	g, err := newGPU(lo, size)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	p, err := replay.Load(g, f, "")
	if err != nil {
		return outcome{loaded: err}
	}
	for _, r := range f.Manifest.Memory {
		g.allowed = append(g.allowed, softgpu.Range{Addr: uint64(r.Addr), Len: uint64(r.Bytes)})
		if r.Class == recording.Constant {
			g.constant = append(g.constant, softgpu.Range{Addr: uint64(r.Addr), Len: uint64(r.Bytes)})
		}
	}
	g.allowed = join(append(g.allowed, softgpu.Range{Addr: uint64(f.Manifest.Staging.Addr),
		Len: uint64(f.Manifest.Staging.Bytes)}))
	intact := g.canaries(t)
	_ = p.Entries[0].Run(time.Minute)
	out := outcome{ended: g.ended, strays: g.strays}
	if err := intact(); err != nil {
		out.strays = append(out.strays, err.Error())
	}
	return out
}

// count adds a record to what an entry says of its work.
func count(e *recording.Entry, rec trace.Record) {
	switch rec := rec.(type) {
	case *trace.Launch:
		e.Launches++
	case *trace.Copy:
		if rec.Flags&trace.Set != 0 {
			e.Sets++
		} else {
			e.Copies++
		}
	}
}
