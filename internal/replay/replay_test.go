package replay

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
	"holdfast/internal/recording/recordingtest"
	"holdfast/internal/trace"
)

// A memoryGPU is an engine in Go memory whose one kernel adds 1 to the byte that its parameter points to.
type memoryGPU struct {
	info    engine.Info
	mem     map[uint64][]byte
	symbol  []byte
	params  []engine.Param
	words   []engine.Word
	faulty  bool
	closed  int
	loaded  string
	noSpace uint64
}

const symbolAt = 0x7000000

func (g *memoryGPU) Info() engine.Info { return g.info }

func (g *memoryGPU) Map(addr, size uint64) error {
	if g.noSpace == addr {
		return errors.New("in use")
	}
	g.mem[addr] = make([]byte, size)
	return nil
}

func (g *memoryGPU) Unmap(addr uint64) error { delete(g.mem, addr); return nil }

func (g *memoryGPU) at(addr uint64, n int) []byte {
	if addr == symbolAt {
		return g.symbol
	}
	for base, m := range g.mem {
		if addr >= base && addr+uint64(n) <= base+uint64(len(m)) {
			return m[addr-base:][:n]
		}
	}
	panic(fmt.Sprintf("%d bytes at %#x", n, addr))
}

func (g *memoryGPU) Write(addr uint64, b []byte) error { copy(g.at(addr, len(b)), b); return nil }
func (g *memoryGPU) Read(addr uint64, b []byte) error  { copy(b, g.at(addr, len(b))); return nil }
func (g *memoryGPU) Close() error                      { return nil }

func (g *memoryGPU) Load(image []byte) (engine.Code, error) {
	g.loaded = string(image)
	return (*memoryCode)(g), nil
}

func (g *memoryGPU) Prepare(words []engine.Word) (engine.Program, error) {
	g.words = words
	return (*memoryProgram)(g), nil
}

type memoryCode memoryGPU

func (c *memoryCode) Kernel(name string) (engine.Kernel, error) { return (*memoryKernel)(c), nil }

func (c *memoryCode) Symbol(string) (addr, size uint64, err error) {
	return symbolAt, uint64(len(c.symbol)), nil
}

func (c *memoryCode) Close() error { c.closed++; return nil }

type memoryKernel memoryGPU

func (k *memoryKernel) Name() string           { return "increment" }
func (k *memoryKernel) Params() []engine.Param { return k.params }

type memoryProgram memoryGPU

func (p *memoryProgram) Run(time.Duration) error {
	g := (*memoryGPU)(p)
	if p.faulty {
		return &engine.Fault{Place: engine.Place{Word: 1}, Err: errors.New("broken")}
	}
	for _, w := range p.words {
		for _, op := range w.Ops {
			switch {
			case op.Launch != nil:
				g.at(uint64(op.Launch.Params[0])|0x200000, 1)[0]++
			case op.Copy != nil:
				copy(g.at(op.Copy.Dst, int(op.Copy.Width)), g.at(op.Copy.Src, int(op.Copy.Width)))
			case op.Set != nil:
				copy(g.at(op.Set.Dst, 1), []byte{byte(op.Set.Value)})
			}
		}
	}
	return nil
}

func (p *memoryProgram) Close() error { p.closed++; return nil }

// open makes a recording: in0 (4 bytes) → 0x200010; increments of 0x200010 and 0x200020, which may run at once; 8
// bytes from there out.
func open(t testing.TB) *recording.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.hfr")
	w, err := recording.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	contents := make([]byte, recording.ChunkSize+100)
	contents[0x20], contents[recording.ChunkSize] = 7, 9 // a chunk that is not zero, and one more
	live, zero, input := w.Put(contents), w.Put(make([]byte, 64)), w.Put([]byte{1, 2, 3, 4})
	launch := func(at byte) *trace.Launch {
		return &trace.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Cluster: [3]uint32{1, 1, 1},
			Params: []byte{at, 0, 0, 0, 0, 0, 0, 0}}
	}
	var work []byte
	for _, r := range []trace.Record{
		&trace.Copy{Dst: 0x200010, Src: 0x1000000, Width: 4, Height: 1, Depth: 1},
		&trace.After{Works: []uint32{0}}, launch(0x10),
		launch(0x20),
		&trace.After{Works: []uint32{1, 2}}, &trace.Copy{Dst: 0x1000200, Src: 0x200010, Width: 32, Height: 1, Depth: 1},
		&trace.After{Works: []uint32{3}}, &trace.Copy{Flags: trace.Set, Dst: 0x200000 + 1<<20 + 99, Src: 5,
			SrcPitch: 1, Width: 1, Height: 1, Depth: 1},
	} {
		if work, err = trace.Append(work, r); err != nil {
			t.Fatal(err)
		}
	}
	return recordingtest.Finish(t, path, w, &recording.Manifest{
		Arch: 90, Program: []string{}, Warnings: []string{},
		Code: []recording.Code{{Images: []recording.Image{
			{Arch: 90, Contents: w.Put([]byte("cubin")), Kind: recording.Cubin}, {Arch: 70,
				Contents: w.Put([]byte("ptx")), Kind: recording.PTX},
		}}},
		Kernels:   []recording.Kernel{{Name: "increment", Params: []recording.Param{{Offset: 0, Size: 8}}}},
		Variables: []recording.Variable{{Contents: w.Put([]byte("value")), Name: "v"}},
		Memory: []recording.Region{{Addr: 0x200000, Bytes: live.Bytes, Class: recording.Live, Contents: &live},
			{Addr: 0x800000, Bytes: 64, Class: recording.Live, Contents: &zero}},
		Staging: recording.Span{Addr: 0x1000000, Bytes: 2 << 20},
		Entries: []recording.Entry{{Name: "e", Launches: 2, Copies: 2, Sets: 1, Work: w.Put(work),
			Inputs: []recording.Port{{Addr: 0x1000000, Bytes: 4, DType: "uint8", Name: "in0", Recorded: &input,
				Shape: []int{4}}},
			Outputs: []recording.Port{{Addr: 0x1000200, Bytes: 32, DType: "uint8", Name: "out0", Shape: []int{32}}}}},
	})
}

func gpu() *memoryGPU {
	return &memoryGPU{info: engine.Info{Name: "memory", Arch: 90, Cubin: true, PTX: true, Memory: 1 << 40},
		mem:    map[uint64][]byte{},
		symbol: make([]byte, 5), params: []engine.Param{{Offset: 0, Size: 8}}}
}

func TestPlay(t *testing.T) {
	g := gpu()
	p, err := Load(g, open(t), "")
	if err != nil {
		t.Fatal(err)
	}
	if g.loaded != "cubin" || string(g.symbol) != "value" {
		t.Errorf("loaded %q, variable %q", g.loaded, g.symbol)
	}
	// The second launch waits for nothing, so it is in the first word.
	if len(g.words) != 4 || len(g.words[0].Ops) != 2 || len(g.words[1].Ops) != 1 {
		t.Errorf("%d words", len(g.words))
	}
	run := func(want ...byte) {
		t.Helper()
		if err := p.Entries[0].Run(time.Second); err != nil {
			t.Fatal(err)
		}
		out, err := p.Entries[0].Output("out0")
		if got := append(bytes.Clone(out[:4]), out[16]); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	run(2, 2, 3, 4, 8) // the recorded input
	run(2, 2, 3, 4, 9) // on from there
	if err := p.Entries[0].SetInput("in0", []byte{5, 6, 7, 8}); err != nil {
		t.Fatal(err)
	}
	run(6, 6, 7, 8, 10)
	g.at(0x800000, 1)[0] = 1 // a chunk of zeros
	g.symbol[0] = 'x'
	if err := p.Reset(); err != nil {
		t.Fatal(err)
	}
	if g.at(0x800000, 1)[0] != 0 || string(g.symbol) != "value" || g.at(0x200000+1<<20+99, 1)[0] != 0 {
		t.Error("memory is not as it was")
	}
	run(6, 6, 7, 8, 8)
	if err := p.Close(); err != nil || g.closed != 2 || len(g.mem) > 0 {
		t.Errorf("%v, %d closed, %d mappings left", err, g.closed, len(g.mem))
	}
}

func TestRefusals(t *testing.T) {
	f := open(t)
	for _, c := range []struct {
		name, want string
		change     func(*memoryGPU)
	}{
		{"another architecture", "sm_60, the recording has [cubin for sm_90 ptx for sm_70]",
			func(g *memoryGPU) { g.info.Arch = 60 }},
		{"no PTX", "machine code for sm_100", func(g *memoryGPU) { g.info.Arch, g.info.PTX = 100, false }},
		{"parameters", "its parameters are", func(g *memoryGPU) { g.params = nil }},
		{"a variable", "variable v: 5 bytes in the recording, 6", func(g *memoryGPU) { g.symbol = make([]byte, 6) }},
		{"too little memory", "bytes of device memory", func(g *memoryGPU) { g.info.Memory = 1 << 20 }},
		{"addresses", "the recording's memory at 0x200000", func(g *memoryGPU) { g.noSpace = 0x200000 }},
	} {
		g := gpu()
		c.change(g)
		if _, err := Load(g, f, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something about %q", c.name, err, c.want)
		}
	}
	if _, err := Load(gpu(), f, "other"); err == nil || !strings.Contains(err.Error(), `no entry "other"`) {
		t.Errorf("%v", err)
	}
	p, err := Load(gpu(), f, "e")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Entries[0].SetInput("in0", []byte("12345")); err == nil ||
		!strings.Contains(err.Error(), "5 bytes, it has 4") {
		t.Errorf("%v", err)
	}
	if err := p.Entries[0].SetInput("in1", nil); err == nil {
		t.Error("an input that is not there was set")
	}
	// On later architectures PTX runs.
	g := gpu()
	g.info.Arch = 120
	if _, err := Load(g, f, ""); err != nil || g.loaded != "ptx" {
		t.Errorf("%v, %q", err, g.loaded)
	}
}
