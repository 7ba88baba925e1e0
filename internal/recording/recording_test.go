package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/trace"
)

// sample is a small recording: a launch, a set, an input and an output.
func sample(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "m.hfr")
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 20000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	live, zero, input := w.Put(noise), w.Put(make([]byte, 3*ChunkSize+1)), w.Put([]byte("12345678"))
	var work []byte
	for _, rec := range []trace.Record{
		&trace.Copy{Dst: 0x200000, Src: 0x1000000, SrcPitch: 8, Width: 8, Height: 1, Depth: 1},
		&trace.Copy{Flags: trace.Set, Dst: 0x200100, Src: 7, SrcPitch: 4, Width: 64, Height: 1, Depth: 1},
		&trace.After{Works: []uint32{0, 1}},
		&trace.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Cluster: [3]uint32{1, 1, 1},
			Params: make([]byte, 12)},
		&trace.After{Works: []uint32{2}},
		&trace.Copy{Dst: 0x1000200, DstPitch: 8, Src: 0x200010, Width: 8, Height: 1, Depth: 1},
	} {
		if work, err = trace.Append(work, rec); err != nil {
			t.Fatal(err)
		}
	}
	m := &Manifest{
		Arch: 90, Driver: 13000, Program: []string{"p"}, Warnings: []string{}, Variables: []Variable{},
		Code:    []Code{{Images: []Image{{Arch: 70, Contents: w.Put([]byte(".version 7.0")), Kind: PTX}}}},
		Kernels: []Kernel{{Code: 0, Name: "k", Params: []Param{{0, 8}, {8, 4}}}},
		Memory: []Region{{Addr: 0x200000, Bytes: live.Bytes, Class: Live, Contents: &live}, {Addr: 0x300000,
			Bytes: zero.Bytes, Class: Live, Contents: &zero},
			{Addr: 0x800000, Bytes: 5, Class: Scratch}},
		Staging: Span{0x1000000, 2 << 20},
		Entries: []Entry{{
			Name: "holdfast", Launches: 1, Copies: 2, Sets: 1, Work: w.Put(work),
			Inputs: []Port{{Addr: 0x1000000, Bytes: 8, DType: "float32", Name: "in0", Recorded: &input,
				Shape: []int{2}}},
			Outputs: []Port{{Addr: 0x1000200, Bytes: 8, DType: "uint8", Name: "out0", Shape: []int{8}}},
		}},
	}
	if _, err := w.Finish(m); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Fatalf("%v, %v: want the recording alone", list, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// all reads everything that there is in a recording.
func all(b []byte) error {
	f, err := NewFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Verify()
}

func TestRoundTrip(t *testing.T) {
	b := sample(t)
	f, err := NewFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Verify(); err != nil {
		t.Fatal(err)
	}
	for _, r := range f.Manifest.Memory[:2] {
		if got, err := f.Read(*r.Contents); err != nil || int64(len(got)) != r.Bytes {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	region := f.Manifest.Memory[0]
	got, err := f.Read(*region.Contents)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 30000 {
		t.Errorf("%d bytes in the file: zeros are stored", len(b))
	}
	apart := make([]byte, len(got))
	err = f.Each([]Blob{*region.Contents}, func(_ int, offset int64, p []byte) error {
		copy(apart[offset:],
			p)
		return nil
	})
	if err != nil || !bytes.Equal(apart, got) {
		t.Errorf("Each gives something else than Read: %v", err)
	}
	work, err := f.Work(&f.Manifest.Entries[0])
	if err != nil || len(work) != 4 || work[2].Launch == nil || len(work[2].After) != 2 {
		t.Errorf("%+v, %v", work, err)
	}
	if n := Words(work); n != 3 {
		t.Errorf("%d words", n)
	}
}

// Whatever byte is another: it is found. So is every truncation.
func TestDamage(t *testing.T) {
	b := sample(t)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 1000 {
		at := i // the header and what follows it
		if i >= headerSize {
			at = r.IntN(len(b))
		}
		c := bytes.Clone(b)
		c[at] ^= 1 << r.IntN(8)
		if err := all(c); !errors.Is(err, ErrMalformed) {
			t.Fatalf("byte %d changed: %v", at, err)
		}
	}
	for range 200 {
		if err := all(b[:r.IntN(len(b))]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut short: %v", err)
		}
	}
	if err := all(append(bytes.Clone(b), 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a byte more: %v", err)
	}
}

// rewrite makes a file whose manifest is another text, digest and all.
func rewrite(b []byte, change func(string) string) []byte {
	at := binary.LittleEndian.Uint64(b[16:])
	return seal(b[:at], []byte(change(string(b[at:]))))
}

func seal(front, text []byte) []byte {
	out := append(bytes.Clone(front), text...)
	binary.LittleEndian.PutUint64(out[24:], uint64(len(text)))
	sum := digestOf(text)
	copy(out[32:], sum[:])
	return out
}

// A manifest whose digest is right may still say nonsense.
func TestNonsense(t *testing.T) {
	b := sample(t)
	if err := all(rewrite(b, func(s string) string { return s })); err != nil {
		t.Fatalf("unchanged: %v", err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"arch":90`, `"arch":0`, "architecture"},
		{`"arch":90`, `"arch": 90`, "canonical"},
		{`"contents":{"bytes":12,`, `"contents":{"bytes":4294967297,`, "limit"},
		{`"arch":90`, `"arch":90,"more":1`, "unknown field"},
		{`"version":1`, `"version":2`, "what it says is of version 1"},
		{`"version":1`, `"version":3`, "version 3"},
		{`"class":"live"`, `"class":"constant"`, "what it says is of version 2"},
		{`"kind":"ptx"`, `"kind":"elf"`, "elf"},
		{`"addr":"0x800000"`, `"addr":"0x300001"`, "region 2"},
		{`"addr":"0x800000"`, `"addr":"0x1000001"`, "overlaps"},
		{`"addr":"0x800000","bytes":5`, `"addr":"0xffffffffffffffff","bytes":5`, "region 2"},
		{`"class":"scratch"`, `"class":"live"`, "contents"},
		{`"launches":1`, `"launches":2`, "not as many"},
		{`"name":"out0"`, `"name":"in0"`, "two are named"},
		{`"addr":"0x1000200"`, `"addr":"0x1200000"`, "staging"},
		{`"shape":[2]`, `"shape":[3]`, "12"},
		{`"shape":[2]`, `"shape":[-2]`, "shape"},
		{`"dtype":"float32"`, `"dtype":"float31"`, "float31"},
		{`{"offset":8,"size":4}`, `{"offset":8,"size":5}`, "parameters"},
		{`"code":0,"name":"k"`, `"code":1,"name":"k"`, "kernel 0"},
		{`"size":20000,"stored":20000`, `"size":1048577,"stored":20000`, "chunk 0"},
		{`"chunks":[0]`, `"chunks":[9999999]`, "chunk 9999999"},
		{`"offset":64`, `"offset":65`, "chunk 0"},
		{`"addr":"0x1000000","bytes":2097152`, `"addr":"0x1000000","bytes":9223372036854775807`, "memory"},
	} {
		if !strings.Contains(string(b), c.old) {
			t.Fatalf("the sample has no %s", c.old)
		}
		err := all(rewrite(b, func(s string) string { return strings.Replace(s, c.old, c.new, 1) }))
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			// What is in memory that the file cannot have is found by whoever maps it.
			if c.want == "memory" && err == nil {
				continue
			}
			t.Errorf("%s: %v, want something about %q", c.new, err, c.want)
		}
	}
}

// Constant memory makes a recording of version 2, and no copy may write it. A preview leaves the writer as it was.
func TestConstant(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.hfr")
	finish := func(dst uint64) error {
		w, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		work, err := trace.Append(nil, &trace.Copy{Dst: dst, Src: 0x200000, Width: 8, Height: 1, Depth: 1})
		if err != nil {
			t.Fatal(err)
		}
		b := w.Put([]byte("12345678"))
		m := &Manifest{Arch: 90, Program: []string{}, Warnings: []string{}, Variables: []Variable{}, Code: []Code{},
			Kernels: []Kernel{}, Memory: []Region{{Addr: 0x200000, Bytes: 8, Class: Live, Contents: &b},
				{Addr: 0x200008, Bytes: 8, Class: Live, Contents: &b}},
			Staging: Span{0x1000000, 2 << 20},
			Entries: []Entry{{Name: "e", Copies: 1, Work: w.Put(work), Inputs: []Port{}, Outputs: []Port{}}}}
		f, err := w.Preview(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Verify(), f.Close()); err != nil || f.Manifest.Version != 1 {
			t.Fatalf("version %d, %v", f.Manifest.Version, err)
		}
		m.Memory[0].Class = Constant
		_, err = w.Finish(m)
		return err
	}
	if err := finish(0x200008); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Verify(); err != nil || f.Manifest.Version != 2 {
		t.Errorf("version %d, %v", f.Manifest.Version, err)
	}
	if part, err := f.ReadAt(*f.Manifest.Memory[0].Contents, 3, 2); err != nil || string(part) != "45" {
		t.Errorf("%q, %v", part, err)
	}
	if err := finish(0x200004); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "is constant") {
		t.Errorf("a copy into it: %v", err)
	}
}

// Part of a blob is what the whole has there.
func TestReadAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.hfr")
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	whole := make([]byte, 3*ChunkSize+17) // the second chunk stays zero
	for i := range whole {
		if i < ChunkSize || i >= 2*ChunkSize {
			whole[i] = byte(r.Uint32())
		}
	}
	b := w.Put(whole)
	if _, err := w.Finish(&Manifest{Arch: 90, Staging: Span{0x1000000, 0},
		Memory:  []Region{{Addr: 0x200000, Bytes: b.Bytes, Class: Live, Contents: &b}},
		Entries: []Entry{{Name: "e", Work: w.Put(nil)}}}); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 100 {
		at := r.Int64N(b.Bytes + 1)
		n := r.Int64N(b.Bytes - at + 1)
		if got, err := f.ReadAt(b, at, n); err != nil || !bytes.Equal(got, whole[at:at+n]) {
			t.Fatalf("%d bytes from %d: %d, %v", n, at, len(got), err)
		}
	}
	for _, c := range [][2]int64{{-1, 1}, {0, -1}, {b.Bytes, 1}, {b.Bytes + 1, 0}, {1, b.Bytes}} {
		if _, err := f.ReadAt(b, c[0], c[1]); err == nil {
			t.Errorf("%d bytes from %d", c[1], c[0])
		}
	}
}

// What is not finished leaves nothing.
func TestAbort(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "m.hfr"))
	if err != nil {
		t.Fatal(err)
	}
	w.Put(make([]byte, 100))
	w.Abort()
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if w, err = Create(filepath.Join(dir, "m.hfr")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(&Manifest{Arch: 90}); err == nil {
		t.Error("a recording of nothing was finished")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

func FuzzOpen(f *testing.F) {
	b := sample(f)
	at := binary.LittleEndian.Uint64(b[16:])
	f.Add(b[at:])
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := all(seal(b[:at], text)); err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%v", err)
		}
	})
}

// Work is read as it comes: any bytes are either work that the manifest allows, or malformed.
func FuzzWork(f *testing.F) {
	b := sample(f)
	file, err := NewFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		f.Fatal(err)
	}
	work, err := file.Read(file.Manifest.Entries[0].Work)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(work)
	f.Fuzz(func(t *testing.T, work []byte) {
		list, err := file.Manifest.work(&file.Manifest.Entries[0], work)
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%v", err)
		}
		for i, w := range list {
			for _, a := range w.After {
				if int(a) >= i {
					t.Fatalf("work %d comes after %d", i, a)
				}
			}
		}
	})
}
