package recording

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holdfast/internal/trace"
)

const movableBase = 0x200000

// movable is a recording whose words of the table given are addresses: a region of two chunks and a bit, of which the
// middle one is zeros, a variable, an input, a copy and a launch with parameters of 8, 4 and 20 bytes.
func movable(t testing.TB, table []byte) (*File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.hfr")
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	pointer := func(n int, at ...int) []byte {
		b := make([]byte, n)
		for i, o := range at {
			binary.LittleEndian.PutUint64(b[o:], movableBase+uint64(16*i))
		}
		return b
	}
	live := w.Put(pointer(2*ChunkSize+16, 8, 2*ChunkSize+8))
	in, work := w.Put(pointer(16, 0)), []byte(nil)
	params := pointer(36, 0, 16)
	binary.LittleEndian.PutUint64(params[24:], 0x1000000+2<<20) // the end of staging memory
	for _, rec := range []trace.Record{&trace.Copy{Dst: movableBase, Src: 0x1000000, Width: 16, Height: 1, Depth: 1},
		&trace.Copy{Flags: trace.Set, Dst: movableBase, Src: movableBase, SrcPitch: 4, Width: 16, Height: 1, Depth: 1},
		&trace.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Cluster: [3]uint32{1, 1, 1},
			Params: params}} {
		if work, err = trace.Append(work, rec); err != nil {
			t.Fatal(err)
		}
	}
	m := &Manifest{Arch: 90, Program: []string{}, Warnings: []string{},
		Code:      []Code{{Images: []Image{{Arch: 90, Contents: w.Put([]byte("code")), Kind: Cubin}}}},
		Kernels:   []Kernel{{Name: "k", Params: []Param{{0, 8}, {8, 4}, {16, 20}}}},
		Variables: []Variable{{Contents: w.Put(pointer(12, 0)), Name: "v"}},
		Memory: []Region{{Addr: movableBase, Bytes: live.Bytes, Class: Live, Contents: &live},
			{Addr: 0x800000, Bytes: 64, Class: Scratch}},
		Staging: Span{Addr: 0x1000000, Bytes: 2 << 20},
		Entries: []Entry{{Name: "e", Launches: 1, Copies: 1, Sets: 1, Work: w.Put(work), Outputs: []Port{},
			Inputs: []Port{{Addr: 0x1000000, Bytes: 16, DType: "uint8", Name: "x", Recorded: &in, Shape: []int{16}}}}}}
	if table != nil {
		b := w.Put(table)
		m.Relocations = &b
	}
	if _, err := w.Finish(m); err != nil {
		return nil, err
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, f.Verify()
}

var movablePatches = []Patch{{InRegion, 0, 0, []int64{8, 2*ChunkSize + 8}}, {InVariable, 0, 0, []int64{0}},
	{InInput, 0, 0, []int64{0}}, {InLaunch, 0, 2, []int64{0, 16, 24}}}

// All that is an address is another one, however it is read; nothing else is.
func TestAt(t *testing.T) {
	f, err := movable(t, AppendPatches(nil, movablePatches))
	if err != nil {
		t.Fatal(err)
	}
	if f.Manifest.Version != 3 {
		t.Errorf("version %d", f.Manifest.Version)
	}
	if got, err := f.Patches(); err != nil || !reflect.DeepEqual(got, movablePatches) {
		t.Errorf("%+v, %v", got, err)
	}
	const base, delta = 0x7654_3200_0000, 0x7654_3200_0000 - movableBase
	g, err := f.At(base)
	if err != nil {
		t.Fatal(err)
	}
	m, was := g.Manifest, f.Manifest
	if m.Memory[0].Addr != base || m.Memory[1].Addr != was.Memory[1].Addr+delta || m.Staging.Addr != 0x1000000+delta ||
		m.Entries[0].Inputs[0].Addr != 0x1000000+delta || !g.Moved() || f.Moved() || m.Base() != base ||
		was.Memory[0].Addr != movableBase || was.Entries[0].Inputs[0].Addr != 0x1000000 {
		t.Errorf("%+v", m)
	}
	le := binary.LittleEndian
	live := *m.Memory[0].Contents
	all, err := g.Read(live)
	if err != nil || le.Uint64(all[8:]) != base || le.Uint64(all[2*ChunkSize+8:]) != base+16 {
		t.Errorf("%x, %v", all[:16], err)
	}
	each := make([]byte, live.Bytes)
	err = g.Each([]Blob{live}, func(_ int, at int64, b []byte) error { copy(each[at:], b); return nil })
	if err != nil || !bytes.Equal(each, all) {
		t.Errorf("Each gives something else: %v", err)
	}
	if part, err := g.ReadAt(live, 2*ChunkSize+4, 12); err != nil || !bytes.Equal(part, all[2*ChunkSize+4:]) {
		t.Errorf("%x, %v", part, err)
	}
	for _, b := range []Blob{m.Variables[0].Contents, *m.Entries[0].Inputs[0].Recorded} {
		if x, err := g.Read(b); err != nil || le.Uint64(x) != base {
			t.Errorf("%x, %v", x, err)
		}
	}
	work, err := g.Work(&m.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	p := work[2].Launch.Params
	if work[0].Copy.Dst != base || work[0].Copy.Src != 0x1000000+delta || work[1].Copy.Dst != base ||
		work[1].Copy.Src != movableBase || le.Uint64(p) != base || le.Uint64(p[16:]) != base+16 ||
		le.Uint64(p[24:]) != 0x1200000+delta || le.Uint32(p[8:]) != 0 {
		t.Errorf("%+v %+v %x", work[0].Copy, work[1].Copy, p)
	}
	if err := g.Verify(); err != nil {
		t.Error(err)
	}
	// The recording itself is as it was, also by way of the other one.
	if again, err := g.At(movableBase); err != nil || again.Manifest != was || again.Moved() {
		t.Error(err)
	}
	if b, err := f.Read(*was.Memory[0].Contents); err != nil || le.Uint64(b[8:]) != movableBase {
		t.Errorf("%x, %v", b[:16], err)
	}
	for _, at := range []Addr{0, 4096, base + 4096, 1<<64 - 2<<20} {
		if _, err := f.At(at); err == nil {
			t.Errorf("memory at %v", at)
		}
	}
	if f, err = movable(t, nil); err != nil || f.Manifest.Version != 1 {
		t.Fatal(err)
	}
	if _, err := f.At(base); err == nil || !strings.Contains(err.Error(),
		"pinned to its addresses (from 0x200000 on)") {
		t.Error(err)
	}
	if g, err := f.At(movableBase); err != nil || g.Manifest != f.Manifest {
		t.Error(err)
	}
}

// A table that says of something that it is an address and cannot be is refused.
func TestHostileRelocations(t *testing.T) {
	list := func(p ...Patch) []byte { return AppendPatches(nil, p) }
	for name, c := range map[string]struct {
		table []byte
		want  string
	}{
		"an unknown kind":     {list(Patch{9, 0, 0, []int64{8}}), "no such thing"},
		"no region":           {list(Patch{InRegion, 0, 2, []int64{8}}), "no such thing"},
		"a region's entry":    {list(Patch{InRegion, 1, 0, []int64{8}}), "it is of no entry"},
		"scratch":             {list(Patch{InRegion, 0, 1, []int64{8}}), "no contents"},
		"zeros":               {list(Patch{InRegion, 0, 0, []int64{ChunkSize}}), "or one of zeros"},
		"behind a region":     {list(Patch{InRegion, 0, 0, []int64{2*ChunkSize + 16}}), "begins no word"},
		"not aligned":         {list(Patch{InRegion, 0, 0, []int64{12}}), "begins no word"},
		"a number":            {list(Patch{InRegion, 0, 0, []int64{16}}), "is no address of the recording"},
		"a variable's end":    {list(Patch{InVariable, 0, 0, []int64{8}}), "begins no word"},
		"no variable":         {list(Patch{InVariable, 0, 1, []int64{0}}), "no such thing"},
		"no input":            {list(Patch{InInput, 0, 1, []int64{0}}), "no such thing"},
		"an input's number":   {list(Patch{InInput, 0, 0, []int64{8}}), "is no address of the recording"},
		"another entry":       {list(Patch{InLaunch, 1, 2, []int64{0}}), "no such thing"},
		"a copy":              {list(Patch{InLaunch, 0, 0, []int64{0}}), "no such thing"},
		"behind the work":     {list(Patch{InLaunch, 0, 3, []int64{0}}), "no such thing"},
		"a short parameter":   {list(Patch{InLaunch, 0, 2, []int64{8}}), "begins no word of one"},
		"across the end":      {list(Patch{InLaunch, 0, 2, []int64{32}}), "begins no word of one"},
		"within a word":       {list(Patch{InLaunch, 0, 2, []int64{20}}), "begins no word of one"},
		"twice":               {list(movablePatches[0], movablePatches[0]), "comes after"},
		"in another order":    {list(movablePatches[1], movablePatches[0]), "comes after"},
		"no words":            {[]byte{1, 0, 0, 0}, "0 words"},
		"more words than are": {[]byte{1, 0, 0, 9, 8}, "9 words"},
		"cut short":           {[]byte{1, 0, 0, 1}, "1 words"},
		"cut in a number":     {[]byte{1, 0, 0, 1, 0x88}, "cut short"},
		"a large number":      {[]byte{1, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, "cut short"},
		"a long number":       {[]byte{1, 0, 0, 1, 0x88, 0}, "canonical"},
		"a large kind":        {[]byte{0x81, 2, 0, 0, 1, 8}, "canonical"},
	} {
		if _, err := movable(t, c.table); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something about %q", name, err, c.want)
		}
	}
}

func FuzzRelocations(f *testing.F) {
	f.Add(AppendPatches(nil, movablePatches))
	f.Add([]byte{1, 0, 0, 9, 8})
	file, err := movable(f, AppendPatches(nil, movablePatches))
	if err != nil {
		f.Fatal(err)
	}
	m := file.Manifest
	work, err := file.Work(&m.Entries[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := DecodePatches(b)
		if err != nil {
			return
		}
		if !bytes.Equal(AppendPatches(nil, list), b) {
			t.Errorf("%x is read as %+v", b, list)
		}
		for i := range list {
			p := &list[i]
			if m.checkPatch(p, work) != nil || p.In == InLaunch {
				continue
			}
			blobs := map[Where]*Blob{InRegion: m.Memory[0].Contents, InVariable: &m.Variables[0].Contents,
				InInput: m.Entries[0].Inputs[0].Recorded}
			c := *blobs[p.In]
			c.fix = &fixup{p.Offsets, &moved{m, 0}}
			_, _ = file.Read(c) // which must not panic: what is checked lies in what is read
		}
	})
}
