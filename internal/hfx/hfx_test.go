package hfx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

// A buffer is a file in memory.
type buffer struct{ b []byte }

func (f *buffer) WriteAt(p []byte, at int64) (int, error) {
	if need := int(at) + len(p); need > len(f.b) {
		f.b = append(f.b, make([]byte, need-len(f.b))...)
	}
	return copy(f.b[at:], p), nil
}

// small is a file with a step of each kind.
func small(t testing.TB) []byte {
	t.Helper()
	var out buffer
	w := NewWriter(&out)
	h := &w.Header
	h.Arch, h.GPCs, h.TPCsPerGPC, h.SMsPerTPC, h.Warps, h.TPCs = 90, 1, 1, 2, 64, 1
	h.Ring, h.RingEntries, h.USERD, h.Begin, h.End, h.Progress = 0, 64, 512, 16, 32, 48
	h.Name, h.NameBytes = w.Text("a GPU")
	w.Memory(1<<32, HugePage, Visible)
	w.Memory(2<<32, HugePage, Pinned)
	w.Memory(3<<32, Page, System)
	w.Submit([]uint32{1, 2, 3}, 4096, 1)
	w.Wait(1)
	w.Memory(4<<32, HugePage, Device)
	w.Put(8192, []byte("what is in it"))
	w.Submit([]uint32{4, 5}, 4096, 2)
	w.Wait(2)
	h.Program, h.ProgramWords = 4<<32, 7
	p := Port{Addr: 4 << 32, Bytes: 8}
	p.Name, p.NameBytes = w.Text("in")
	w.Port(p)
	w.Put(8192, make([]byte, 8))
	w.Submit([]uint32{6}, 4096, 3)
	w.Wait(3)
	p.Way = Out
	w.Port(p)
	w.Submit([]uint32{7}, 4096, 4)
	w.Wait(4)
	w.Take(8192, 8)
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return out.b
}

func open(b []byte) (*File, error) {
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err == nil {
		err = f.Verify()
	}
	return f, err
}

func TestRoundTrip(t *testing.T) {
	f, err := open(small(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Memory) != 4 || len(f.Ops) != 8 || len(f.Ports) != 2 || len(f.Words) != 7 || len(f.Groups) != 3 {
		t.Errorf("%+v", f.Header)
	}
	if f.String(f.Header.Name, f.Header.NameBytes) != "a GPU" || f.Header.DeviceBytes != 2*HugePage {
		t.Errorf("%+v", f.Header)
	}
	b, err := f.Data(&f.Ops[2])
	if err != nil || string(b) != "what is in it" || f.Ops[2].Wait != 0 || f.Ops[1].Wait != 1 {
		t.Errorf("%q, %v; %+v", b, err, f.Ops)
	}
	if last := f.Ops[7]; last.Kind != OpTake || last.Wait != 4 || f.Ops[3].Kind != OpWait || f.Ops[5].Kind != OpWait {
		t.Errorf("%+v", f.Ops)
	}
}

// Every byte counts: no damaged file is taken, whichever byte it is. Between contents nothing is looked at.
func TestDamage(t *testing.T) {
	good := small(t)
	for i := range good {
		if i >= HeaderSize && i < Page || i >= Page+len("what is in it") && i < 2*Page {
			continue
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if _, err := open(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("byte %d damaged: %v", i, err)
		}
	}
	for i := range good {
		if _, err := open(good[:i]); err == nil {
			t.Fatalf("cut to %d bytes", i)
		}
	}
	if _, err := open(append(bytes.Clone(good), 0)); err == nil {
		t.Error("longer than it says")
	}
}

// seal gives tables and header their sums, so that what they say is looked at.
func seal(b []byte) []byte {
	if len(b) < HeaderSize {
		return b
	}
	if at, n := le.Uint64(b[24:]), le.Uint64(b[32:]); at <= uint64(len(b)) && n <= uint64(len(b))-at {
		le.PutUint32(b[40:], Sum(b[at:][:n]))
	}
	le.PutUint32(b[12:], Sum(b[16:HeaderSize]))
	return b
}

func TestHostile(t *testing.T) {
	good := small(t)
	f, err := open(good)
	if err != nil {
		t.Fatal(err)
	}
	groups := int(f.Header.Tables) + 4*binary.Size(Memory{})
	ops := groups + 3*binary.Size(Group{})
	ports := ops + 8*binary.Size(Op{})
	memory := int(f.Header.Tables)
	for name, change := range map[string]struct {
		at   int
		with uint32
		says string
	}{
		"a version to come":           {8, 2, "version 2"},
		"more tables than there are":  {84, 5, "no place"},
		"unused bytes":                {250, 1, "nothing is known"},
		"a ring beyond its memory":    {108, HugePage, "ring"},
		"a ring of 63":                {112, 63, "ring"},
		"a semaphore beyond":          {124, HugePage, "semaphores"},
		"no program":                  {136, 0, "no program"},
		"less memory than it takes":   {160, 1, "device memory"},
		"memory at an odd address":    {memory, 4096, "whole pages"},
		"memory of another kind":      {memory + 16, Device, "kind 0"},
		"steps of another group":      {groups + 8, 1, "not its own"},
		"too many steps":              {groups + 4, 9, "not its own"},
		"a step of no kind":           {ops, 9, "kind 9"},
		"words beyond the end":        {ops + 24, 99, "words"},
		"words beyond the memory":     {ops + 32, HugePage - 4, "words"},
		"the same memory twice":       {ops + 56 + 4, 1, "out of its order"},
		"data in the header":          {ops + 2*56 + 40, 16, "data"},
		"data beyond the contents":    {ops + 2*56 + 40, 1 << 20, "data"},
		"data beyond the memory":      {ops + 2*56 + 36, HugePage - 1, "data"},
		"data beyond the input":       {ops + 4*56 + 40, 1, "data"},
		"an output of an input":       {ops + 4*56, OpTake, "output of no output"},
		"an output that submits data": {ops + 6*56 + 48, 8, "words"},
		"a wait with words":           {ops + 3*56 + 28, 1, "wait"},
		"a ticket that never comes":   {ops + 16, 0, "words"},
		"a port of another group":     {ports + 20, 2, "no kind"},
		"a name beyond the end":       {ports + 28, 1 << 20, "text"},
	} {
		bad := bytes.Clone(good)
		le.PutUint32(bad[change.at:], change.with)
		if _, err := open(seal(bad)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), change.says) {
			t.Errorf("%s: %v, want something about %q", name, err, change.says)
		}
	}
}

// What breaks the rules of the writer is an error at its end.
func TestWriter(t *testing.T) {
	for name, do := range map[string]func(w *Writer){
		"nothing":         func(*Writer) {},
		"memory is freed": func(w *Writer) { w.Free() },
		"two pieces":      func(w *Writer) { w.Put(0, []byte{1}); w.Put(0, []byte{1}) },
		"a piece left":    func(w *Writer) { w.Put(0, []byte{1}) },
		"memory of a port": func(w *Writer) {
			w.Port(Port{})
			w.Memory(1<<32, HugePage, Device)
		},
	} {
		w := NewWriter(&buffer{})
		do(w)
		if err := w.Finish(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	w := NewWriter(failing{})
	w.Put(0, []byte{1})
	w.Submit([]uint32{1}, 0, 1)
	if err := w.Finish(); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}

type failing struct{}

func (failing) WriteAt([]byte, int64) (int, error) { return 0, io.ErrShortWrite }

// Four parts at once give what they give one after the other.
func TestSum(t *testing.T) {
	b := bytes.Repeat([]byte("0123456789abcdef"), 9)
	seen := map[uint32]bool{}
	for n := range b {
		seen[Sum(b[:n])] = true
	}
	if len(seen) != len(b) {
		t.Errorf("%d sums of %d texts", len(seen), len(b))
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(small(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := open(seal(bytes.Clone(b)))
		if err != nil {
			return
		}
		for i := range file.Ops { // nothing that is taken reaches beyond anything
			if o := &file.Ops[i]; o.Kind == OpSubmit {
				_ = file.Words[o.Word:][:o.Words]
			}
		}
		for _, p := range file.Ports {
			_ = file.String(p.Name, p.NameBytes) + file.String(p.Type, p.TypeBytes) + file.String(p.Array, p.ArrayText)
		}
	})
}
