package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// some has one record of each type, every field with a value of its own.
func some() []Record {
	d := func(b byte) Digest { return Digest{b, 31: 1} }
	dim := func(n uint32) [3]uint32 { return [3]uint32{n, n + 1, n + 2} }
	return []Record{
		&Program{Start: 1, PID: 2, PPID: 3, GPU: 1, Driver: 13000, Name: "train", Exe: "/usr/bin/python3",
			Args: []string{"python3", "", "x y"}, Devices: [][16]byte{{1}, {2}}},
		&Text{Digest: d(1), Total: 5, Offset: 2, Bytes: []byte("abc")},
		&Image{Flags: Outline, ID: 1, Handle: 2, Bytes: 3, Kind: CodeFatbin, Call: 5, Digest: d(2),
			Texts: []TextRef{{80, d(3)}, {90, d(4)}}},
		&Found{Image: d(5), TextRef: TextRef{90, d(6)}},
		&Module{ID: 1, Handle: 2, Bytes: 3, Code: 4, Kind: CodePTX, Call: 6, Digest: d(7)},
		&Code{Module: 1, Offset: 2, Bytes: []byte("12345678")},
		&Kernel{Flags: NoLayout, ID: 1, Module: 2, Handle: 3, Params: []Param{{0, 8}, {8, 4}}, Name: "k"},
		&Alloc{Addr: 1, Bytes: 2, Block: 3, Offset: 4, Kind: MemMapped, Device: 6},
		&Free{Addr: 1, Bytes: 2},
		&Graph{Flags: Incomplete, ID: 1, Nodes: 2, Handle: 3},
		&Launch{Flags: Node, Kernel: 1, Thread: 2, Cell: 3, Shared: 4, Grid: dim(5), Block: dim(8), Cluster: dim(11),
			Stream: 14, Params: []byte{1, 2, 3}},
		&Copy{Flags: Set, Call: 1, Thread: 2, Cell: 3, Stream: 5, Dst: 6, DstPitch: 7, DstSlice: 8, Src: 9,
			SrcPitch: 10, SrcSlice: 11, Width: 12, Height: 13, Depth: 14},
		&Other{Flags: Asks, Call: 1, Thread: 2, Cell: 3, Stream: 4},
		&GraphEdges{ID: 1, Edges: []Edge{{0, 1}, {1, 3}}},
		&GraphEnd{ID: 1},
		&GraphVersion{Flags: Incomplete, ID: 2, Base: 1, Handle: 3},
		&GraphLaunch{Flags: Asks, Graph: 1, Thread: 2, Cell: 3, Stream: 4},
		&GraphFree{ID: 1},
		&Failed{Thread: 1, Result: 2},
		&Unload{Module: 1},
		&Data{Flags: HostData, Addr: 1, Thread: 2, Bytes: []byte("abc")},
		&Range{Thread: 1, Nth: 2, Name: "holdfast", Reason: "a capture is open"},
		&RangeEnd{Thread: 1},
		&Variable{Module: 1, Addr: 2, Bytes: 3, Name: "table"},
		&Function{Kernel: 1, Attributes: []uint32{2, 3, 4}},
		&Order{Flags: Captured, Thread: 1, Kind: StreamWaits, Stream: 3, Event: 4},
		&After{Works: []uint32{1, 2}},
		&Ready{},
		&Exit{Flags: Clean, Launches: 1, Graphs: 2, Copies: 3, Waits: 4, Waited: 5},
	}
}

// TestLayout holds what decodes and what encodes together, with the layouts between them.
func TestLayout(t *testing.T) {
	seen := map[Type]bool{}
	for _, r := range append(some(), &End{}) {
		seen[r.Type()] = true
		b, err := Append([]byte("xxx"), r)
		if err != nil {
			t.Fatal(err)
		}
		b = b[3:]
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%v: %+v, %v, want %+v", r.Type(), got, err, r)
		}
		for n := range len(b) {
			c := bytes.Clone(b[:n])
			if _, err := Decode(c); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v cut to %d bytes: %v", r.Type(), n, err)
			}
			if n >= headerSize && n%8 == 0 { // the same, with a header that agrees
				binary.LittleEndian.PutUint32(c, uint32(n))
				if _, err := Decode(c); !errors.Is(err, ErrMalformed) {
					t.Fatalf("%v shortened to %d bytes: %v", r.Type(), n, err)
				}
			}
		}
	}
	for _, l := range layouts() {
		typ, name := typeOf(l)
		if typ == 0 || !seen[typ] {
			t.Errorf("layout %s has no type or no test", name)
		}
	}
	if _, err := Append(nil, &Launch{Params: make([]byte, MaxRecord)}); err == nil {
		t.Error("a record of more than MaxRecord bytes was encoded")
	}
}

// The documentation has the number and the size of every record that files hold.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "trace-format.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layouts() {
		typ, _ := typeOf(l)
		if typ == TypeModule || typ == TypeCode {
			continue
		}
		row := fmt.Sprintf("| %d | %v | %d |", typ, typ, headerSize+binary.Size(l))
		if !bytes.Contains(doc, []byte(row)) {
			t.Errorf("no row %q", row)
		}
	}
	if want := fmt.Sprintf("at most %d %03d", blockMax/1000, blockMax%1000); !bytes.Contains(doc, []byte(want)) {
		t.Errorf("blocks are not %s", want)
	}
}

func write(t testing.TB, w io.Writer, launches int) {
	t.Helper()
	tw, err := NewWriter(w, func() time.Time { return time.Unix(7, 0) })
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range some() {
		if err := tw.Write(1, r); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range launches {
		p := make([]byte, 64)
		binary.LittleEndian.PutUint64(p, rng.Uint64())
		if err := tw.Write(2, &Launch{Kernel: uint32(i), Params: p}); err != nil {
			t.Fatal(err)
		}
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 5000)
	for range 2 {
		if _, err := tw.WriteText(1, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Finish(); err != nil {
		t.Fatal(err)
	}
}

func TestFile(t *testing.T) {
	const launches = 5000
	var buf bytes.Buffer
	write(t, &buf, launches)
	r, err := NewReader(bytes.NewReader(buf.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var first []Record
	next, text := 0, 0
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !r.Began().Equal(time.Unix(7, 0)) {
			t.Fatalf("a block of %v", r.Began())
		}
		switch rec := rec.(type) {
		case *End:
		case *Text:
			if rec.Total != 5 {
				text += len(rec.Bytes)
				continue
			}
			first = append(first, rec)
		case *Launch:
			if r.Process() == 2 {
				if rec.Kernel != uint32(next) {
					t.Fatalf("launch %d is the %dth", rec.Kernel, next)
				}
				next++
				continue
			}
			first = append(first, rec)
		default:
			first = append(first, rec)
		}
	}
	if next != launches || text != 80000 || !reflect.DeepEqual(first, some()) {
		t.Errorf("%d launches, %d bytes of text, %d other records", next, text, len(first))
	}
	if n := buf.Len(); n > launches*40 {
		t.Errorf("%d launches in %d bytes", launches, n)
	}
}

// Whatever a file is cut to, the whole blocks are good and the end is told; whatever byte is changed, it is noticed.
func TestDamage(t *testing.T) {
	var buf bytes.Buffer
	write(t, &buf, 20)
	whole := buf.Bytes()
	read := func(b []byte) (n int, err error) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return 0, err
		}
		defer r.Close()
		for {
			if _, err := r.Next(); err != nil {
				return n, err
			}
			n++
		}
	}
	all, err := read(whole)
	if err != io.EOF {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if _, err := read(whole[:n]); !errors.Is(err, ErrEndedEarly) && n > 0 {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		b := bytes.Clone(whole)
		b[n] ^= 1 << (n % 8)
		if n == len(Magic) {
			continue // another version that is read
		}
		if got, err := read(b); err == io.EOF && (n < 12 || n >= fileHeader) {
			t.Fatalf("byte %d changed: %d records of %d and no error", n, got, all)
		}
	}
	if _, err := read(append(bytes.Clone(whole), whole[fileHeader:]...)); !errors.Is(err, ErrMalformed) {
		t.Errorf("something behind the end: %v", err)
	}
}

type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if len(b) > f.room {
		n := f.room
		f.room = 0
		return n, errors.New("no space")
	}
	f.room -= len(b)
	return len(b), nil
}

func TestNoSpace(t *testing.T) {
	w, err := NewWriter(&full{20}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(1, &Launch{})
	first := w.Flush()
	if first == nil {
		t.Fatal("written without room")
	}
	if err := w.Write(1, &Launch{}); !errors.Is(err, first) {
		t.Errorf("after an error: %v", err)
	}
	if err := w.Finish(); !errors.Is(err, first) {
		t.Errorf("after an error: %v", err)
	}
}

func TestState(t *testing.T) {
	s := NewState()
	check := func(when string, want ...uint64) {
		t.Helper()
		var got []uint64
		for _, a := range s.Allocs() {
			got = append(got, a.Addr, a.Bytes)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	for _, a := range []Alloc{{Addr: 300, Bytes: 10}, {Addr: 100, Bytes: 50}, {Addr: 200, Bytes: 100}} {
		s.Apply(&a)
	}
	check("allocated", 100, 50, 200, 100, 300, 10)
	if a := s.At(299); a == nil || a.Addr != 200 {
		t.Errorf("299 is in %+v", a)
	}
	if a := s.At(150); a != nil {
		t.Errorf("150 is in %+v", a)
	}
	s.Apply(&Free{Addr: 101})
	check("nothing is at 101", 100, 50, 200, 100, 300, 10)
	s.Apply(&Free{Addr: 200})
	check("freed", 100, 50, 300, 10)
	s.Apply(&Alloc{Addr: 140, Bytes: 200})
	check("what was there ended unseen", 140, 200)
	s.Apply(&Alloc{Addr: 1000, Bytes: 0})
	s.Apply(&Alloc{Addr: 1000, Bytes: 1<<64 - 1})
	s.Apply(&Free{Addr: 0, Bytes: 1 << 40})
	check("unmapped")

	s.Apply(&Graph{ID: 3, Nodes: 2})
	s.Apply(&Launch{Flags: Node, Cell: 3, Kernel: 1})
	s.Apply(&Launch{Kernel: 2})
	s.Apply(&Copy{Flags: Node, Cell: 3})
	s.Apply(&GraphEnd{ID: 3})
	if g := s.Graph(3); g == nil || !g.Done || len(g.Work) != 2 {
		t.Errorf("graph %+v", g)
	}
	s.Apply(&GraphFree{ID: 3})
	if g := s.Graph(3); g != nil {
		t.Errorf("graph %+v", g)
	}
}

func TestGraphVersions(t *testing.T) {
	s := NewState()
	whole := func(id uint32, flags uint16, kernels ...uint32) {
		s.Apply(&Graph{Flags: flags, ID: id, Nodes: 9})
		for i, k := range kernels {
			s.Apply(&Launch{Flags: Node, Cell: id, Thread: uint32(i), Kernel: k})
		}
		s.Apply(&GraphEnd{ID: id})
	}
	version := func(id, base, place, kernel uint32) {
		s.Apply(&GraphVersion{ID: id, Base: base})
		s.Apply(&Launch{Flags: Node, Cell: id, Thread: place, Kernel: kernel})
		s.Apply(&GraphEnd{ID: id})
	}
	check := func(id uint32, incomplete bool, kernels ...uint32) {
		t.Helper()
		g := s.Graph(id)
		if g == nil || !g.Done || (g.Flags&Incomplete != 0) != incomplete {
			t.Fatalf("graph %d: %+v", id, g)
		}
		var got []uint32
		for _, w := range g.Work {
			got = append(got, w.(*Launch).Kernel)
		}
		if !incomplete && !reflect.DeepEqual(got, kernels) {
			t.Errorf("graph %d consists of %d, want %d", id, got, kernels)
		}
	}
	whole(1, 0, 10, 11, 12)
	version(2, 1, 1, 21)
	version(3, 2, 2, 32)
	check(1, false, 10, 11, 12)
	check(2, false, 10, 21, 12)
	s.Apply(&GraphFree{ID: 1})
	s.Apply(&GraphFree{ID: 2})
	check(3, false, 10, 21, 32)
	version(3, 3, 0, 40) // of its own number
	check(3, false, 40, 21, 32)
	version(4, 3, 3, 50) // there is no such place
	check(4, true)
	version(5, 4, 0, 60) // of one that is not sure
	check(5, true)
	version(6, 2, 0, 60) // of one that is gone
	check(6, true)
	whole(7, Incomplete, 10)
	version(8, 7, 0, 11)
	check(8, true)
	s.Apply(&Graph{ID: 9}) // of one that was not told to its end
	version(10, 9, 0, 11)
	check(10, true)
	for id := uint32(1); id <= 10; id++ {
		s.Apply(&GraphFree{ID: id})
	}
	if s.copied != 0 {
		t.Errorf("%d nodes are counted as copied, and there is no graph", s.copied)
	}
	// However many versions a trace has, what is kept of them is limited.
	nodes := make([]uint32, 1<<12)
	whole(1, 0, nodes...)
	for id := uint32(2); id <= maxCopied>>12+1; id++ {
		version(id, 1, 0, 1)
	}
	if g := s.Graph(maxCopied>>12 + 1); g.Flags&Incomplete != 0 {
		t.Error("flagged too early")
	}
	version(1<<20, 1, 0, 1)
	check(1<<20, true)
}

// Edges are those of a graph and of its versions; what cannot be so is not believed.
func TestGraphEdges(t *testing.T) {
	graph := func(tell ...Record) *GraphState {
		s := NewState()
		s.Apply(&Graph{ID: 1, Nodes: 3})
		for i := range uint32(3) {
			s.Apply(&Other{Flags: Node | Joint, Cell: 1, Thread: i})
		}
		for _, r := range tell {
			s.Apply(r)
		}
		s.Apply(&GraphEnd{ID: 1})
		s.Apply(&GraphVersion{ID: 2, Base: 1})
		s.Apply(&GraphEnd{ID: 2})
		s.Apply(&GraphFree{ID: 1})
		g := s.Graph(2)
		s.Apply(&GraphFree{ID: 2})
		if s.Kept() != 0 {
			t.Errorf("%+v: %d bytes are kept of nothing", tell, s.Kept())
		}
		return g
	}
	of := func(edges ...Edge) Record { return &GraphEdges{ID: 1, Edges: edges} }
	for _, c := range []struct {
		name string
		tell []Record
		want []Edge
	}{
		{"none", []Record{of()}, nil},
		{"a list in two", []Record{of(Edge{0, 2}), of(Edge{1, 2})}, []Edge{{0, 2}, {1, 2}}},
		{"of another graph", []Record{of(Edge{0, 1}), &GraphEdges{ID: 9, Edges: []Edge{{7, 8}}}}, []Edge{{0, 1}}},
	} {
		if g := graph(c.tell...); !g.Ordered || g.Flags&Incomplete != 0 || !reflect.DeepEqual(g.Edges, c.want) {
			t.Errorf("%s: %+v", c.name, g)
		}
	}
	if g := graph(); g.Ordered || g.Flags&Incomplete != 0 {
		t.Errorf("without: %+v", g)
	}
	many := make([]Record, maxGraphEdges>>12+1)
	for i := range many {
		many[i] = of(make01(1 << 12)...)
	}
	for name, tell := range map[string][]Record{
		"backwards":       {of(Edge{1, 0})},
		"to itself":       {of(Edge{1, 1})},
		"to no node":      {of(Edge{1, 3})},
		"far away":        {of(Edge{1, 1<<32 - 1})},
		"after the end":   {of(), &GraphEnd{ID: 1}, of(Edge{0, 1})},
		"more than there": many,
	} {
		if g := graph(tell...); g.Flags&Incomplete == 0 {
			t.Errorf("%s: %d edges are believed", name, len(g.Edges))
		}
	}
	s := NewState() // a version has its base's
	s.Apply(&Graph{ID: 1})
	s.Apply(of())
	s.Apply(&GraphEnd{ID: 1})
	s.Apply(&GraphVersion{ID: 2, Base: 1})
	s.Apply(&GraphEdges{ID: 2})
	if g := s.Graph(2); g.Flags&Incomplete == 0 || s.Graph(1).Flags&Incomplete != 0 {
		t.Errorf("a version with edges: %+v", g)
	}
}

// Files of the versions before are read.
func TestVersions(t *testing.T) {
	var buf bytes.Buffer
	write(t, &buf, 1)
	for v, ok := range []bool{false, true, true, true, true, false} {
		b := bytes.Clone(buf.Bytes())
		b[len(Magic)] = byte(v)
		r, err := NewReader(bytes.NewReader(b))
		if (err == nil) != ok {
			t.Errorf("version %d: %v", v, err)
		}
		if err == nil {
			r.Close()
		}
	}
}

// make01 is n edges from the first node to the second.
func make01(n int) []Edge {
	list := make([]Edge, n)
	for i := range list {
		list[i] = Edge{0, 1}
	}
	return list
}

func FuzzDecode(f *testing.F) {
	for _, r := range some() {
		b, err := Append(nil, r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Append(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(again)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%+v became %+v, %v", r, got, err)
		}
		NewState().Apply(r)
	})
}

func FuzzReader(f *testing.F) {
	var buf bytes.Buffer
	write(f, &buf, 3)
	f.Add(buf.Bytes())
	f.Add(buf.Bytes()[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		defer r.Close()
		s := NewState()
		for {
			rec, err := r.Next()
			if err != nil {
				return
			}
			s.Apply(rec)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	rec, err := Append(nil, &Launch{Params: make([]byte, 80)})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(rec)))
	for b.Loop() {
		if _, err := Decode(rec); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWriter says how fast records of launches are written: of few kinds, as programs repeat them.
func BenchmarkWriter(b *testing.B) {
	var all []byte
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 4096 {
		p := make([]byte, 64)
		for at := 0; at < 64; at += 8 {
			binary.LittleEndian.PutUint64(p[at:], 0x7f0000000000+rng.Uint64N(1<<12)<<9)
		}
		rec, err := Append(nil, &Launch{Kernel: uint32(i % 50), Thread: 7, Grid: [3]uint32{8, 1, 1},
			Block: [3]uint32{128, 1, 1}, Cluster: [3]uint32{1, 1, 1}, Params: p})
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, rec...)
	}
	w, err := NewWriter(io.Discard, time.Now)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(all)))
	for b.Loop() {
		for at := 0; at < len(all); {
			n, err := Size(all[at:])
			if err != nil {
				b.Fatal(err)
			}
			if err := w.WriteRaw(1, all[at:at+n]); err != nil {
				b.Fatal(err)
			}
			at += n
		}
	}
	b.ReportMetric(float64(w.Bytes())/float64(b.N)/float64(len(all)), "stored/byte")
}

// What a state keeps is counted: whatever a program tells without end makes it grow, and what is gone is not counted
// any more.
func TestKept(t *testing.T) {
	grows := map[string]func(s *State, i uint32){
		"images":      func(s *State, i uint32) { s.Apply(&Image{ID: uint64(i), Texts: make([]TextRef, 3)}) },
		"kernels":     func(s *State, i uint32) { s.Apply(&Kernel{ID: i, Name: "k", Params: make([]Param, 4)}) },
		"allocations": func(s *State, i uint32) { s.Apply(&Alloc{Addr: uint64(i) << 20, Bytes: 1}) },
		"graphs":      func(s *State, i uint32) { s.Apply(&Graph{ID: i}) },
		"nodes": func(s *State, i uint32) {
			if i == 0 {
				s.Apply(&Graph{ID: 1})
			}
			s.Apply(&Launch{Flags: Node, Cell: 1, Thread: i, Params: make([]byte, 100)})
		},
		"edges": func(s *State, i uint32) {
			if i == 0 {
				s.Apply(&Graph{ID: 1})
				s.Apply(&Launch{Flags: Node, Cell: 1})
				s.Apply(&Launch{Flags: Node, Cell: 1})
			}
			s.Apply(&GraphEdges{ID: 1, Edges: make01(10)})
		},
		"versions": func(s *State, i uint32) {
			if i == 0 {
				s.Apply(&Graph{ID: 0})
				s.Apply(&Launch{Flags: Node, Params: make([]byte, 100)})
				s.Apply(&GraphEnd{ID: 0})
				return
			}
			s.Apply(&GraphVersion{ID: i, Base: 0})
		},
	}
	const n = 1000
	for name, f := range grows {
		s := NewState()
		for i := range uint32(n) {
			f(s, i)
		}
		if s.Kept() < n*costAlloc {
			t.Errorf("%d %s count as %d bytes", n, name, s.Kept())
		}
	}
	s := NewState()
	for range 3 {
		s.Apply(&Image{ID: 1, Texts: make([]TextRef, 3)})
		s.Apply(&Alloc{Addr: 1, Bytes: 1})
		s.Apply(&Graph{ID: 1})
		s.Apply(&Launch{Flags: Node, Cell: 1, Params: make([]byte, 100)})
		s.Apply(&GraphEnd{ID: 1})
		s.Apply(&GraphVersion{ID: 2, Base: 1})
	}
	s.Apply(&Unload{Module: 1})
	s.Apply(&Unload{Module: 1})
	s.Apply(&Free{Addr: 1})
	s.Apply(&GraphFree{ID: 1})
	s.Apply(&GraphFree{ID: 2})
	if s.Kept() != 0 {
		t.Errorf("nothing is left, which counts as %d bytes", s.Kept())
	}
	// Changing one and the same thing for ever takes no more.
	s.Apply(&Graph{ID: 1})
	s.Apply(&Launch{Flags: Node, Cell: 1, Params: make([]byte, 100)})
	s.Apply(&GraphEnd{ID: 1})
	once := s.Kept()
	for range n {
		s.Apply(&GraphVersion{ID: 1, Base: 1})
		s.Apply(&Launch{Flags: Node, Cell: 1, Params: make([]byte, 100)})
		s.Apply(&GraphEnd{ID: 1})
	}
	if s.Kept() != once {
		t.Errorf("one graph that changes counts as %d bytes, then as %d", once, s.Kept())
	}
	s.Apply(&GraphFree{ID: 1})
	for range n {
		s.Apply(&Kernel{ID: 1, Name: "k"})
	}
	if s.Kept() != costRecord+1 {
		t.Errorf("one kernel counts as %d bytes", s.Kept())
	}
}
