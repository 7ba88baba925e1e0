package relocate

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holdfast/internal/recording"
	"holdfast/internal/recording/recordingtest"
	"holdfast/internal/trace"
)

// Where the memory of the two runs is, and where things are in it.
const (
	first  = 0x1a5c_c000_0000
	second = 0x1b80_0560_0000
	region = 0x400
	far    = recording.ChunkSize // of a second region, which has two chunks
)

var le = binary.LittleEndian

// A run is one recording of the program of these tests.
type run struct {
	base    uint64
	moved   uint64 // how far the second region is from where it should be
	scratch int64
	memory  []byte // of the first region
	far     []byte
	value   []byte // of the variable
	input   []byte
	params  []byte
	code    string
	grid    uint32
	works   int
	width   uint64
}

func newRun(base uint64) *run {
	r := &run{base: base, scratch: 64, memory: make([]byte, region), far: make([]byte, recording.ChunkSize+64),
		value: make([]byte, 16), input: make([]byte, 16), params: make([]byte, 40), code: "code", grid: 4, works: 1,
		width: 16}
	r.far[0], r.far[recording.ChunkSize] = 1, 1
	r.memory[1] = 1
	le.PutUint64(r.params, base)
	le.PutUint32(r.params[8:], 7)
	le.PutUint64(r.params[24:], base+region) // behind the end of a region
	return r
}

func (r *run) write(t *testing.T) *recording.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.hfr")
	w, err := recording.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	at := func(offset uint64) recording.Addr { return recording.Addr(r.base + offset) }
	var work []byte
	put := func(rec trace.Record) {
		if work, err = trace.Append(work, rec); err != nil {
			t.Fatal(err)
		}
	}
	put(&trace.Copy{Dst: r.base, Src: r.base + 64<<20, Width: r.width, Height: 1, Depth: 1})
	for range r.works {
		put(&trace.Launch{Grid: [3]uint32{r.grid, 1, 1}, Block: [3]uint32{1, 1, 1}, Cluster: [3]uint32{1, 1, 1},
			Params: r.params})
	}
	live, more, in := w.Put(r.memory), w.Put(r.far), w.Put(r.input)
	m := &recording.Manifest{Arch: 90, Program: []string{}, Warnings: []string{},
		Code: []recording.Code{{Images: []recording.Image{{Arch: 90, Contents: w.Put([]byte(r.code)),
			Kind: recording.Cubin}}}},
		Kernels: []recording.Kernel{{Name: "k", Params: []recording.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 4},
			{Offset: 16, Size: 24}}}},
		Variables: []recording.Variable{{Contents: w.Put(r.value), Name: "v"}},
		Memory: []recording.Region{{Addr: at(0), Bytes: region, Class: recording.Live, Contents: &live},
			{Addr: at(far + r.moved), Bytes: more.Bytes, Class: recording.Live, Contents: &more},
			{Addr: at(8 << 20), Bytes: r.scratch, Class: recording.Scratch}},
		Staging: recording.Span{Addr: at(64 << 20), Bytes: 2 << 20},
		Entries: []recording.Entry{{Name: "e", Launches: r.works, Copies: 1, Work: w.Put(work),
			Outputs: []recording.Port{}, Inputs: []recording.Port{{Addr: at(64 << 20), Bytes: 16, DType: "uint8",
				Name: "x", Recorded: &in, Shape: []int{16}}}}}}
	return recordingtest.Finish(t, path, w, m)
}

// What moves as memory does is an address, wherever it stands; numbers, and data that differs, are none.
func TestFind(t *testing.T) {
	a, b := newRun(first), newRun(second)
	for _, r := range []*run{a, b} {
		le.PutUint64(r.memory[8:], r.base+0x10)
		le.PutUint64(r.memory[16:], first+0x10) // in the second run it points nowhere: a number
		le.PutUint64(r.far[recording.ChunkSize-8:], r.base+far)
		le.PutUint64(r.far[recording.ChunkSize+56:], r.base+8<<20+64)
		le.PutUint64(r.value[8:], r.base+64<<20)
		le.PutUint64(r.input[8:], r.base)
		le.PutUint64(r.params[16:], 0x5555_0000_0000+r.base>>30<<12) // on the host, where nothing stays
	}
	le.PutUint64(a.memory[24:], 0x3f2a_11d0_9e4b_7c35)
	le.PutUint64(b.memory[24:], 0x4b19_e283_0fd6_a19e)
	table, err := Find(a.write(t), b.write(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []recording.Patch{{In: recording.InRegion, Index: 0, Offsets: []int64{8}},
		{In: recording.InRegion, Index: 1, Offsets: []int64{recording.ChunkSize - 8, recording.ChunkSize + 56}},
		{In: recording.InVariable, Offsets: []int64{8}}, {In: recording.InInput, Offsets: []int64{8}},
		{In: recording.InLaunch, Index: 1, Offsets: []int64{0, 24}}}
	if !reflect.DeepEqual(table.Patches, want) || table.Differs != 8 {
		t.Errorf("%+v", table)
	}
}

// What cannot be shown to be movable is pinned, and named.
func TestPinned(t *testing.T) {
	type change func(r *run, again bool)
	memory := func(at int, v func(r *run) uint64) change {
		return func(r *run, _ bool) { le.PutUint64(r.memory[at:], v(r)) }
	}
	late := func(f func(r *run)) change {
		return func(r *run, again bool) {
			if again {
				f(r)
			}
		}
	}
	for name, c := range map[string]struct {
		want   string
		change change
	}{
		"not moved":               {"not far enough", late(func(r *run) { *r = *newRun(first) })},
		"moved by a power of two": {"not far enough", late(func(r *run) { *r = *newRun(first + 1<<40) })},
		"moved a little":          {"not far enough", late(func(r *run) { *r = *newRun(first + 2<<20) })},
		"memory elsewhere":        {"is at 0x1b8005702000", late(func(r *run) { r.moved = 0x2000 })},
		"other memory": {"memory at 0x1a5cc0800000 (64 bytes, scratch) is at 0x1b8005e00000 (128 bytes",
			late(func(r *run) { r.scratch = 128 })},
		"another launch": {"entry e, work 1: k with grid [4 1 1], block [1 1 1] in the first run, k with grid [5 1 1]",
			late(func(r *run) { r.grid = 5 })},
		"another copy": {"work 0: a copy of 16 × 1 bytes in the first run, a copy of 8 × 1 bytes",
			late(func(r *run) { r.width = 8 })},
		"more work":  {"2 pieces of work in the first run, 3 in the second", late(func(r *run) { r.works = 2 })},
		"other code": {"code 0 is another", late(func(r *run) { r.code = "c0de" })},
		"a parameter": {"work 1, kernel k: byte 16 of its parameters is 0x0 in the first run, 0x1 in the second",
			late(func(r *run) { r.params[16] = 1 })},
		"a parameter of four bytes": {"byte 8 of its parameters is 0x7", late(func(r *run) { r.params[8] = 9 })},
		"an address of nothing": {"byte 32 of its parameters", func(r *run, _ bool) {
			le.PutUint64(r.params[32:], r.base+32<<20)
		}},
		"an address in halves": {"byte 16 of its parameters", func(r *run, _ bool) {
			le.PutUint32(r.params[16:], uint32(r.base>>32))
			le.PutUint32(r.params[20:], uint32(r.base))
		}},
		"an address of nothing in memory": {"memory at 0x1a5cc0000000: byte 64: it may have an address",
			memory(64, func(r *run) uint64 { return r.base + 32<<20 })},
		"not aligned":       {"byte 64: it may have an address", memory(67, func(r *run) uint64 { return r.base })},
		"in larger units":   {"in units of 4096 bytes", memory(64, func(r *run) uint64 { return r.base >> 12 })},
		"in units of 2 MiB": {"in units of 2097152 bytes", memory(64, func(r *run) uint64 { return r.base >> 21 })},
		"a difference": {"byte 64: it may have", memory(64, func(r *run) uint64 {
			return r.base - 0x1000_0000_0000
		})},
		"its lower half": {"half of an address", memory(64, func(r *run) uint64 {
			return uint64(uint32(r.base)) << 32
		})},
		"its upper half": {"half of an address", memory(64, func(r *run) uint64 { return r.base >> 32 << 32 })},
		"another's address": {"byte 64: it may have an address", late(func(r *run) {
			le.PutUint64(r.memory[64:], r.base+0x20)
		})},
		"across chunks": {"memory at 0x1a5cc0100000: byte 1048568: it may have an address", func(r *run, _ bool) {
			le.PutUint64(r.far[recording.ChunkSize-3:], r.base)
		}},
		"in a variable": {"variable v: byte 8: it may have", func(r *run, _ bool) {
			le.PutUint64(r.value[7:], r.base)
		}},
		"in an input": {"entry e, input x: byte 0: it may have", func(r *run, _ bool) {
			le.PutUint64(r.input[3:], r.base)
		}},
	} {
		a, b := newRun(first), newRun(second)
		c.change(a, false)
		c.change(b, true)
		table, err := Find(a.write(t), b.write(t))
		var why *Pinned
		if !errors.As(err, &why) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want something about %q", name, table, err, c.want)
		}
	}
}

// Recordings of other programs, or ones that are damaged, are no panic.
func TestOthers(t *testing.T) {
	a := newRun(first).write(t)
	if _, err := Find(a, a); err == nil {
		t.Error("a recording moved from itself")
	}
	r := newRun(second)
	r.memory = nil
	r.memory = make([]byte, region)
	b := r.write(t)
	b.Manifest.Entries[0].Name = "other"
	if _, err := Find(a, b); err == nil || !strings.Contains(err.Error(), "other ranges") {
		t.Error(err)
	}
}
