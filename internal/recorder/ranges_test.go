package recorder

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holdfast/internal/recording"
	"holdfast/internal/tap"
	"holdfast/internal/trace"
	"holdfast/internal/wire"
)

const ptx = ".version 7.0\n.target sm_70\n.visible .entry k(.param .u64 p)\n{\n\tret;\n}\n"

// A teller tells a session what a program would.
type teller struct {
	t    *testing.T
	r    *Ranges
	w    *recording.Writer
	path string
	s    *rangeSession
}

func tell(t *testing.T, records ...trace.Record) *teller {
	t.Helper()
	return tellOf(t, []Wanted{{Name: "holdfast"}}, records...)
}

// tellOf is tell where other ranges are wanted.
func tellOf(t *testing.T, wanted []Wanted, records ...trace.Record) *teller {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.hfr")
	w, err := recording.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Abort)
	spill, err := os.CreateTemp(t.TempDir(), "code")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { spill.Close() })
	r, err := NewRanges(w, spill, wanted, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.seen = 1
	tl := &teller{t, r, w, path, newRangeSession(r, &wire.Hello{Driver: 13000, GPU: 1, Exe: "/bin/p"}, os.Getpid())}
	err = tl.s.Module(&tap.Module{Image: trace.Image{Flags: trace.Whole, ID: 1, Kind: trace.CodePTX},
		Whole: []byte(ptx)})
	if err != nil {
		t.Fatal(err)
	}
	tl.tell(&trace.Alloc{Addr: 0x200000, Bytes: 0x1000, Kind: trace.MemLinear}, &trace.Alloc{Addr: 0x201000,
		Bytes: 0x1000, Kind: trace.MemLinear},
		&trace.Kernel{ID: 1, Module: 1, Name: "k", Params: []trace.Param{{Offset: 0, Size: 8}}})
	tl.tell(records...)
	return tl
}

func (tl *teller) tell(records ...trace.Record) {
	tl.t.Helper()
	for _, r := range records {
		if err := tl.s.Record(r, nil); err != nil {
			tl.t.Fatal(err)
		}
	}
}

// finish is the recording and its work.
func (tl *teller) finish() (*recording.Manifest, []recording.Work) {
	tl.t.Helper()
	m, err := tl.r.Finish()
	if err != nil {
		tl.t.Fatal(err)
	}
	if _, err := tl.w.Finish(m); err != nil {
		tl.t.Fatal(err)
	}
	f, err := recording.Open(tl.path)
	if err != nil {
		tl.t.Fatal(err)
	}
	defer f.Close()
	work, err := f.Work(&f.Manifest.Entries[0])
	if err != nil {
		tl.t.Fatal(err)
	}
	return f.Manifest, work
}

func begins() []trace.Record {
	return []trace.Record{&trace.Range{Thread: 1, Nth: 1, Name: "holdfast"}, &trace.Data{Addr: 0x200000,
		Bytes: make([]byte, 0x1000)},
		&trace.Data{Addr: 0x201000, Bytes: bytes.Repeat([]byte{7}, 0x1000)}}
}

func input(addr uint64, text string) []trace.Record {
	return []trace.Record{&trace.Data{Flags: trace.HostData, Thread: 1, Bytes: []byte(text[:1])},
		&trace.Data{Flags: trace.HostData, Thread: 1, Addr: 1, Bytes: []byte(text[1:])},
		&trace.Copy{Flags: trace.SrcHost, Call: 150, Thread: 1, Stream: 16, Dst: addr, Src: 0x7f0000000000,
			Width: uint64(len(text)), Height: 1, Depth: 1}}
}

func launch(stream uint64, flags uint16) *trace.Launch {
	one := [3]uint32{1, 1, 1}
	return &trace.Launch{Flags: flags, Kernel: 1, Thread: 1, Grid: one, Block: one, Cluster: one, Stream: stream,
		Params: make([]byte, 8)}
}

// What did not run, or not yet, is not recorded; what came after it comes after what was before.
func TestNotRun(t *testing.T) {
	tl := tell(t, begins()...)
	tl.tell(input(0x200000, "input")...)
	tl.tell(launch(16, 0), launch(16, trace.Captured), launch(16, 0), &trace.Failed{Thread: 1, Result: 1}, launch(16,
		0), &trace.RangeEnd{Thread: 1})
	m, work := tl.finish()
	if e := m.Entries[0]; e.Launches != 2 || e.Copies != 1 || len(e.Inputs) != 1 || e.Inputs[0].Bytes != 5 {
		t.Errorf("%+v", e)
	}
	var after [][]uint32
	for _, w := range work {
		after = append(after, w.After)
	}
	if want := [][]uint32{nil, {0}, {1}}; !reflect.DeepEqual(after, want) {
		t.Errorf("order %v, want %v", after, want)
	}
	if len(m.Kernels) != 1 || m.Kernels[0].Name != "k" || len(m.Code) != 1 || m.Code[0].Images[0].Arch != 70 {
		t.Errorf("%+v %+v", m.Kernels, m.Code)
	}
}

// Memory that is freed was waited for.
func TestFreeOrders(t *testing.T) {
	tl := tell(t, begins()...)
	tl.tell(input(0x200000, "input")...)
	tl.tell(launch(16, 0), &trace.Free{Addr: 0x201000}, launch(32, 0), &trace.RangeEnd{Thread: 1})
	if _, work := tl.finish(); !reflect.DeepEqual(work[2].After, []uint32{1}) {
		t.Errorf("the second launch comes after %v", work[2].After)
	}
}

// After a copy that the host waits for, whichever stream may use what it has brought.
func TestSynchronousCopy(t *testing.T) {
	for name, want := range map[string][]uint32{"cuMemcpyHtoD": {0}, "cuMemcpyHtoDAsync": nil} {
		tl := tell(t, begins()...)
		in := input(0x200000, "input")
		c := in[2].(*trace.Copy)
		c.Call, c.Stream = callNumber(t, name), perThreadStream
		tl.tell(in...)
		tl.tell(launch(16, 0), &trace.RangeEnd{Thread: 1})
		if _, work := tl.finish(); !reflect.DeepEqual(work[1].After, want) {
			t.Errorf("%s: the launch comes after %v, want %v", name, work[1].After, want)
		}
	}
}

// Memory that comes in the range is a region of its own where there was none before; what is freed and comes again
// stays what it was.
func TestRegions(t *testing.T) {
	tl := tell(t, begins()...)
	tl.tell(&trace.Free{Addr: 0x200000}, &trace.Alloc{Addr: 0x1ff000, Bytes: 0x2800, Kind: trace.MemAsync},
		&trace.Alloc{Addr: 0x300000, Bytes: 0x100, Kind: trace.MemLinear}, &trace.Free{Addr: 0x300000},
		&trace.Alloc{Addr: 0x300080, Bytes: 0x200, Kind: trace.MemLinear})
	tl.tell(input(0x300080, "in")...)
	tl.tell(&trace.RangeEnd{Thread: 1})
	m, _ := tl.finish()
	type region struct {
		addr  recording.Addr
		bytes int64
		class string
	}
	var got []region
	for _, r := range m.Memory {
		got = append(got, region{r.Addr, r.Bytes, r.Class})
	}
	want := []region{{0x1ff000, 0x1000, recording.Scratch}, {0x200000, 0x1000, recording.Live}, {0x201000, 0x1000,
		recording.Live},
		{0x300000, 0x100, recording.Scratch}, {0x300100, 0x180, recording.Scratch}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// What cannot be replayed is refused by name.
func TestRangeRefusals(t *testing.T) {
	at := func(addr uint64) *trace.Launch {
		l := launch(16, 0)
		l.Params = []byte{byte(addr), byte(addr >> 8), byte(addr >> 16), byte(addr >> 24), 0, 0, 0, 0}
		return l
	}
	end := &trace.RangeEnd{Thread: 1}
	for _, c := range []struct {
		name, want string
		records    []trace.Record
	}{
		{"no copies", "have the range around the copies", []trace.Record{launch(16, 0), end}},
		{"parameters", "kernel k: what its parameters are", []trace.Record{launch(16, trace.NoParams), end}},
		{"a kernel", "not known", []trace.Record{&trace.Launch{Kernel: 9, Thread: 1}, end}},
		{"host memory", "kernel k is given host memory (0x5010", []trace.Record{&trace.Alloc{Addr: 0x5000,
			Bytes: 0x1000, Kind: trace.MemHost}, at(0x5010), end}},
		{"a variable", "address of a variable", []trace.Record{&trace.Alloc{Addr: 0x9000, Bytes: 8,
			Kind: trace.MemGlobal}, at(0x9000), end}},
		{"managed memory", "managed memory at 0x900000", []trace.Record{&trace.Alloc{Addr: 0x900000, Bytes: 8,
			Kind: trace.MemManaged}, end}},
		{"another call", "cuStreamWaitValue32", []trace.Record{&trace.Copy{Flags: trace.DstHost, Call: 255, Thread: 1,
			Src: 0x200000, Width: 4, Height: 1, Depth: 1}, end}},
		{"what may do anything", "cuMemcpyBatchAsync", []trace.Record{&trace.Other{Call: callNumber(t,
			"cuMemcpyBatchAsync"), Thread: 1}, end}},
		{"arrays", "CUDA arrays", []trace.Record{&trace.Copy{Flags: trace.SrcArray, Call: 150, Thread: 1,
			Dst: 0x200000, Width: 4, Height: 1, Depth: 1}, end}},
		{"unknown input", "0 of the 4 bytes", []trace.Record{&trace.Copy{Flags: trace.SrcHost, Call: 150, Thread: 1,
			Dst: 0x200000, Width: 4, Height: 1, Depth: 1}, end}},
		{"another GPU", "on device 1", []trace.Record{&trace.Alloc{Addr: 0x900000, Bytes: 8, Kind: trace.MemLinear,
			Device: 1}, end}},
		{"a way through the host", "what a copy within the range has brought there",
			append([]trace.Record{&trace.Copy{Flags: trace.DstHost,
				Call: 150, Thread: 1, Dst: 0x7f0000000004, Src: 0x200000, Width: 4, Height: 1, Depth: 1}},
				append(input(0x200000, "input"), end)...)},
		{"a graph", "what it consists of is not known", []trace.Record{&trace.GraphLaunch{Graph: 3, Thread: 1,
			Stream: 16}, end}},
		{"hostile copies", "cuMemcpyAsync of", []trace.Record{&trace.Copy{Flags: trace.SrcHost, Call: 150, Thread: 1,
			Dst: 0x200000, Width: 1 << 40, Height: 1 << 40, Depth: 1 << 60}, end}},
		{"a reason", "a capture is open", []trace.Record{&trace.Range{Name: "holdfast", Reason: "a capture is open"}}},
		{"another range", "comes in two processes", []trace.Record{&trace.Range{Name: "holdfast"}}},
		{"no end", "no such range", []trace.Record{launch(16, 0)}},
	} {
		tl := tell(t)
		if c.name == "another range" {
			tl.r.taker = newRangeSession(tl.r, &wire.Hello{}, 1)
		}
		if c.name != "a reason" && c.name != "another range" {
			tl.tell(begins()...)
		}
		tl.tell(c.records...)
		if _, err := tl.r.Finish(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something about %q", c.name, err, c.want)
		}
	}
	// Memory whose contents were not told.
	tl := tell(t, &trace.Range{Name: "holdfast"}, &trace.Data{Addr: 0x200000, Bytes: make([]byte, 0x1000)}, launch(16,
		0), end)
	if _, err := tl.r.Finish(); err == nil || !strings.Contains(err.Error(),
		"memory at 0x201000 (4096 bytes): its contents could not be read") {
		t.Error(err)
	}
}

// Several ranges are entries that share memory: what was there when the first began.
func TestEntries(t *testing.T) {
	two := []Wanted{{Name: "holdfast"}, {Name: "second", In: []Hint{{Name: "x", DType: "uint8", Shape: []int{2}}}}}
	second := &trace.Range{Thread: 1, Nth: 1, Name: "second"}
	end := &trace.RangeEnd{Thread: 1}
	first := append(append(begins(), input(0x200000, "input")...), launch(16, 0), end)
	kept := &trace.Alloc{Addr: 0x300000, Bytes: 0x100, Kind: trace.MemLinear}
	for _, c := range []struct {
		name, want string // "": it is recorded
		between    []trace.Record
	}{
		{name: "nothing between"},
		{name: "what the host reads", between: []trace.Record{&trace.Copy{Flags: trace.DstHost, Call: 150, Thread: 1,
			Src: 0x200000, Dst: 0x7f0000000000, Width: 4, Height: 1, Depth: 1}}},
		{name: "what is captured", between: []trace.Record{launch(16, trace.Captured)}},
		{name: "new memory", between: []trace.Record{kept}},
		{name: "memory that came and went", between: []trace.Record{kept, &trace.Free{Addr: 0x300000}}},
		{name: "memory that went", between: []trace.Record{&trace.Free{Addr: 0x201000}}},
		{"a launch", `kernel k comes after range "holdfast" and before range "second"`, []trace.Record{launch(16, 0)}},
		{"a copy", "comes after range", input(0x200000, "in")[2:]},
		{"a graph", "a graph comes after range", []trace.Record{&trace.GraphLaunch{Graph: 3, Thread: 1}}},
		{"another call", "cuMemcpyBatchAsync comes after range", []trace.Record{&trace.Other{Call: callNumber(t,
			"cuMemcpyBatchAsync"), Thread: 1}}},
		{"memory that comes back", "memory at 0x201000 (4096 bytes) was freed after range \"holdfast\" had begun",
			[]trace.Record{&trace.Free{Addr: 0x201000}, &trace.Alloc{Addr: 0x201000, Bytes: 0x1000}}},
		{"a range in a range", "range \"second\" comes, which nobody has asked for", []trace.Record{second}},
	} {
		tl := tellOf(t, two, first...)
		tl.tell(c.between...)
		tl.tell(second)
		tl.tell(input(0x200000, "in")...)
		tl.tell(launch(16, 0), &trace.Failed{Thread: 1}, end)
		if c.want != "" {
			if _, err := tl.r.Finish(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want something about %q", c.name, err, c.want)
			}
			continue
		}
		m, _ := tl.finish()
		a, b := m.Entries[0], m.Entries[1]
		if a.Name != "holdfast" || a.Launches != 1 || a.Inputs[0].Name != "in0" || b.Name != "second" ||
			b.Launches != 0 || b.Inputs[0].Name != "x" || b.Inputs[0].Addr == a.Inputs[0].Addr || len(m.Kernels) != 1 {
			t.Errorf("%s: %+v", c.name, m.Entries)
		}
	}
	// Memory that comes in one range and is still there in the next.
	tl := tellOf(t, two, append(append(begins(), kept), input(0x300000, "in")...)...)
	tl.tell(end, second)
	if _, err := tl.r.Finish(); err == nil || !strings.Contains(err.Error(),
		"memory at 0x300000 (256 bytes) came after") {
		t.Error(err)
	}
	// A range within another, and one that does not come.
	tl = tellOf(t, two, append(begins(), second)...)
	if _, err := tl.r.Finish(); err == nil || !strings.Contains(err.Error(),
		`begins before range "holdfast" has ended`) {
		t.Error(err)
	}
	tl = tellOf(t, two, first...)
	if _, err := tl.r.Finish(); !errors.Is(err, ErrNoRange) || !strings.Contains(err.Error(), "\"second\"") {
		t.Error(err)
	}
}

func callNumber(t *testing.T, name string) uint32 {
	t.Helper()
	tl := tell(t)
	for n, call := range tl.r.calls {
		if call == name {
			return n
		}
	}
	t.Fatalf("no call %s", name)
	return 0
}

// A program may tell anything: it is recorded, or refused, and what is recorded can be read.
func FuzzRange(f *testing.F) {
	var all []byte
	add := func(list ...trace.Record) {
		for _, r := range list {
			b, err := trace.Append(nil, r)
			if err != nil {
				f.Fatal(err)
			}
			all = append(all, b...)
		}
	}
	add(&trace.Alloc{Addr: 0x200000, Bytes: 0x1000, Kind: trace.MemLinear}, &trace.Alloc{Addr: 0x201000,
		Bytes: 0x1000, Kind: trace.MemLinear},
		&trace.Kernel{ID: 1, Module: 1, Name: "k", Params: []trace.Param{{Offset: 0, Size: 8}}})
	add(begins()...)
	add(&trace.Order{Kind: trace.EventRecorded, Stream: 16, Event: 1}, &trace.Variable{Module: 1, Bytes: 4, Name: "v"})
	add(input(0x200000, "input")...)
	add(launch(16, 0), &trace.Failed{Thread: 1}, &trace.Alloc{Addr: 0x300080, Bytes: 0x200, Kind: trace.MemLinear},
		launch(1, 0), &trace.RangeEnd{})
	f.Add(all)
	add(&trace.Free{Addr: 0x300080}, &trace.Range{Thread: 1, Nth: 1, Name: "second"})
	add(graphOf(1, "kjkzk", "0>1 1>2 2>3")...)
	add(&trace.GraphLaunch{Graph: 1, Thread: 1, Stream: 16}, &trace.GraphVersion{ID: 2, Base: 1},
		&trace.GraphEnd{ID: 2}, &trace.GraphLaunch{Graph: 2, Thread: 1})
	add(input(0x200000, "input")...)
	add(&trace.RangeEnd{})
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "m.hfr")
		w, err := recording.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		spill, err := os.CreateTemp(t.TempDir(), "code")
		if err != nil {
			t.Fatal(err)
		}
		defer spill.Close()
		wanted := []Wanted{{Name: "holdfast"}, {Name: "second"}}[:1+len(b)%2]
		r, err := NewRanges(w, spill, wanted, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r.seen = 1
		s := newRangeSession(r, &wire.Hello{Exe: "p"}, 1<<22+1)
		if err := s.Module(&tap.Module{Image: trace.Image{ID: 1, Kind: trace.CodePTX},
			Whole: []byte(ptx)}); err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 {
			n, err := trace.Size(b)
			if err != nil || n == 0 {
				break
			}
			if rec, err := trace.Decode(b[:n]); err == nil {
				if err := s.Record(rec, nil); err != nil {
					t.Fatal(err)
				}
			}
			b = b[n:]
		}
		if m, err := r.Finish(); err == nil {
			w.Finish(m) // which reads it
		}
	})
}
