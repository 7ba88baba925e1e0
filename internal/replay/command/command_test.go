package command

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/engine"
	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// A plain is an engine in Go memory that copies, and refuses or fails if it is to.
type plain struct {
	mem          map[uint64][]byte
	refuse, fail error
	closed       *int
	breaks       *int // run after which it fails once; nil: none
}

func (g *plain) Info() engine.Info { return engine.Info{Name: "plain", Arch: 90, Cubin: true} }

func (g *plain) Map(addr, size uint64) error {
	g.mem[addr] = make([]byte, size)
	return nil
}

func (g *plain) Unmap(uint64) error { return nil }

func (g *plain) at(addr uint64) []byte {
	for base, m := range g.mem {
		if addr >= base && addr < base+uint64(len(m)) {
			return m[addr-base:]
		}
	}
	return nil
}

func (g *plain) Write(addr uint64, b []byte) error { copy(g.at(addr), b); return nil }
func (g *plain) Read(addr uint64, b []byte) error  { copy(b, g.at(addr)); return nil }
func (g *plain) Close() error                      { *g.closed++; return nil }

func (g *plain) Load([]byte) (engine.Code, error) { return nil, errors.New("there is no code") }

func (g *plain) Prepare(words []engine.Word) (engine.Program, error) {
	return &copies{g, words}, g.refuse
}

type copies struct {
	g     *plain
	words []engine.Word
}

func (p *copies) Run(time.Duration) error {
	for _, w := range p.words {
		for _, op := range w.Ops {
			copy(p.g.at(op.Copy.Dst)[:op.Copy.Width], p.g.at(op.Copy.Src))
		}
	}
	if p.g.breaks != nil {
		if *p.g.breaks--; *p.g.breaks == 0 {
			return &engine.Fault{Err: errors.New("once")}
		}
	}
	return p.g.fail
}

func (p *copies) Close() error { return nil }

// echo is a recording whose output is its input.
func echo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.hfr")
	w, err := recording.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	work, err := trace.Append(nil, &trace.Copy{Dst: 0x1000200, Src: 0x1000000, Width: 4, Height: 1, Depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	in := w.Put([]byte{1, 2, 3, 4})
	_, err = w.Finish(&recording.Manifest{
		Arch: 90, Program: []string{}, Warnings: []string{}, Code: []recording.Code{}, Kernels: []recording.Kernel{},
		Variables: []recording.Variable{}, Memory: []recording.Region{},
		Staging: recording.Span{Addr: 0x1000000, Bytes: 2 << 20},
		Entries: []recording.Entry{{Name: "e", Copies: 1, Work: w.Put(work),
			Inputs: []recording.Port{{Addr: 0x1000000, Bytes: 4, DType: "uint8", Name: "in0", Recorded: &in,
				Shape: []int{4}}},
			Outputs: []recording.Port{{Addr: 0x1000200, Bytes: 4, DType: "uint8", Name: "out0", Shape: []int{4}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A backend that refuses before anything has run is followed by the next; one that fails while it runs is not.
func TestWays(t *testing.T) {
	file, out := echo(t), filepath.Join(t.TempDir(), "out")
	opened, closed := 0, 0
	way := func(name string, opens, refuse, fail error) Way {
		return func() (engine.Backend, string, error) {
			if opens != nil {
				return nil, name, opens
			}
			opened++
			return &plain{mem: map[uint64][]byte{}, refuse: refuse, fail: fail, closed: &closed}, name, nil
		}
	}
	no := errors.New("no such driver")
	next, none := way("libcuda", nil, nil, nil), way("libcuda", errors.New("none"), nil, nil)
	for _, c := range []struct {
		name    string
		ways    []Way
		backend string // "" is an error
		says    string
	}{
		{"the first", []Way{way("raw", nil, nil, nil), next}, "raw", ""},
		{"it cannot be opened", []Way{way("raw", no, nil, nil), next}, "libcuda", "raw: no such driver"},
		{"it refuses", []Way{way("raw", nil, no, nil), next}, "libcuda", "raw: no such driver"},
		{"all refuse", []Way{way("raw", nil, no, nil), none}, "", "driver\nnone"},
		{"it fails", []Way{way("raw", nil, nil, no), next}, "", "no such driver"},
	} {
		opened, closed = 0, 0
		os.Remove(out)
		o := Options{Runs: 2, Same: true, Outs: []string{"out0=" + out}, Timeout: time.Minute}
		r, err := Replay(file, o, c.ways...)
		switch {
		case c.backend == "":
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		default:
			var text bytes.Buffer
			if err := r.Print(&text, "replay"); err != nil {
				t.Fatal(err)
			}
			if r.Backend != c.backend || !r.Same || !strings.Contains(text.String(), c.says) ||
				strings.Contains(text.String(), "not by") != (c.says != "") {
				t.Errorf("%s: %+v\n%s", c.name, r, &text)
			}
			if b, err := os.ReadFile(out); err != nil || !bytes.Equal(b, []byte{1, 2, 3, 4}) {
				t.Errorf("%s: %v, %v", c.name, b, err)
			}
		}
		if opened != closed || opened == 0 {
			t.Errorf("%s: %d opened, %d closed", c.name, opened, closed)
		}
	}
}

// relay is a recording of two entries: put copies its input to memory, get copies it from there to its output.
func relay(t *testing.T) string {
	t.Helper()
	const staging, memory = 0x1000000, 0x200000
	path := filepath.Join(t.TempDir(), "m.hfr")
	w, err := recording.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(name string, dst, src uint64) recording.Entry {
		work, err := trace.Append(nil, &trace.Copy{Dst: dst, Src: src, Width: 4, Height: 1, Depth: 1})
		if err != nil {
			t.Fatal(err)
		}
		return recording.Entry{Name: name, Copies: 1, Work: w.Put(work), Inputs: []recording.Port{},
			Outputs: []recording.Port{}}
	}
	put, get := entry("put", memory, staging), entry("get", staging+0x200, memory)
	in, held := w.Put([]byte("read")), w.Put([]byte("held"))
	put.Inputs = []recording.Port{{Addr: staging, Bytes: 4, DType: "uint8", Name: "x", Recorded: &in, Shape: []int{4}}}
	get.Outputs = []recording.Port{{Addr: staging + 0x200, Bytes: 4, DType: "uint8", Name: "x", Shape: []int{4}}}
	_, err = w.Finish(&recording.Manifest{
		Arch: 90, Program: []string{}, Warnings: []string{}, Code: []recording.Code{}, Kernels: []recording.Kernel{},
		Variables: []recording.Variable{}, Staging: recording.Span{Addr: staging, Bytes: 2 << 20},
		Memory:  []recording.Region{{Addr: memory, Bytes: 4, Class: recording.Live, Contents: &held}},
		Entries: []recording.Entry{put, get},
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A run is its entries in their order, which find what those before them have left.
func TestScript(t *testing.T) {
	file, dir := relay(t), t.TempDir()
	given := filepath.Join(dir, "given")
	if err := os.WriteFile(given, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want, fails string
		o                 Options
	}{
		{"one", "held", "", Options{Entries: []string{"get"}, Runs: 1}},
		{"both", "read", "", Options{Entries: []string{"put", "get"}, Runs: 1}},
		{"the last comes too late", "held", "", Options{Entries: []string{"get", "put"}, Runs: 1}},
		{"again", "read", "", Options{Entries: []string{"get", "put", "get"}, Runs: 1}},
		{"two runs", "read", "", Options{Entries: []string{"get", "put"}, Runs: 2}},
		{"two runs, each from the start", "held", "", Options{Entries: []string{"get", "put"}, Runs: 2, Reset: true}},
		{"input", "mine", "", Options{Entries: []string{"put", "get"}, Runs: 1, Ins: []string{"put/x=" + given}}},
		{"runs that differ", "", "run 2 left other bits in x", Options{Entries: []string{"get", "put"}, Runs: 2,
			Same: true}},
		{"none", "", "which entry? There are put, get", Options{Runs: 1}},
		{"another", "", `no entry "other"`, Options{Entries: []string{"put", "other"}, Runs: 1}},
		{"another's input", "", "there are [put/x]", Options{Entries: []string{"put", "get"}, Runs: 1,
			Ins: []string{"get/x=" + given}}},
		{"twice", "", "given twice", Options{Entries: []string{"put"}, Runs: 1,
			Ins: []string{"x=" + given, "put/x=" + given}}},
	} {
		out, closed := filepath.Join(dir, "out"), 0
		os.Remove(out)
		if c.fails == "" {
			c.o.Outs = []string{"x=" + out}
		}
		_, err := Replay(file, c.o, func() (engine.Backend, string, error) {
			return &plain{mem: map[uint64][]byte{}, closed: &closed}, "plain", nil
		})
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v, want something about %q", c.name, err, c.fails)
			}
			continue
		}
		if b, read := os.ReadFile(out); err != nil || read != nil || string(b) != c.want {
			t.Errorf("%s: %q, %v, %v, want %q", c.name, b, err, read, c.want)
		}
	}
}
