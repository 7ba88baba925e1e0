package checkpoint

import (
	"encoding/binary"
	"slices"
	"testing"

	"holdfast/internal/foresee"
	"holdfast/internal/image"
	"holdfast/internal/snapshot"
	"holdfast/internal/trace"
)

// orderPTX has a kernel that copies a word, and one that copies the word at an index from memory, of so many.
const orderPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry word(.param .u64 p_in, .param .u64 p_out)
{
 .reg .b32 %r<2>; .reg .b64 %d<2>;
 ld.param.u64 %d0, [p_in]; ld.param.u64 %d1, [p_out]; ld.global.u32 %r0, [%d0]; st.global.u32 [%d1], %r0; ret;
}
.visible .entry gather(.param .u64 p_index, .param .u64 p_in, .param .u64 p_out, .param .u64 p_n)
{
 .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d<8>;
 ld.param.u64 %d0, [p_index]; ld.param.u64 %d1, [p_in]; ld.param.u64 %d2, [p_out]; ld.param.u64 %d3, [p_n];
 ld.global.u64 %d4, [%d0]; setp.ge.u64 %p0, %d4, %d3; @%p0 bra DONE;
 shl.b64 %d5, %d4, 2; add.s64 %d6, %d1, %d5; ld.global.u32 %r0, [%d6]; st.global.u32 [%d2], %r0;
DONE: ret;
}
`

// The order has what work touches for certain, then what it may touch by an index from memory, and nothing of work of
// which less is known.
func TestOrder(t *testing.T) {
	const chunk = snapshot.ChunkSize
	const a, b = 1 << 40, 2 << 40 // addresses of 8 and 4 chunks
	w := &watch{foreseen: foresee.New()}
	w.foreseen.Translated = true
	digest := trace.Digest{1}
	w.foreseen.Text(digest, []byte(orderPTX))
	for _, r := range []trace.Record{
		&trace.Image{ID: 7, Kind: trace.CodePTX, Texts: []trace.TextRef{{Arch: 70, Digest: digest}}},
		&trace.Alloc{Addr: a, Bytes: 8 * chunk, Block: 5},
		&trace.Alloc{Addr: b, Bytes: 4 * chunk, Block: 3},
		&trace.Alloc{Addr: 3 << 40, Bytes: chunk, Block: 9}, // is in no image
		&trace.Kernel{ID: 1, Module: 7, Name: "word",
			Params: []trace.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8}}},
		&trace.Kernel{ID: 2, Module: 7, Name: "gather",
			Params: []trace.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8}, {Offset: 16, Size: 8},
				{Offset: 24, Size: 8}}},
		&trace.Kernel{ID: 3, Module: 8, Name: "library", Params: []trace.Param{{Offset: 0, Size: 16}}},
	} {
		w.foreseen.Apply(r)
	}
	m := &image.Manifest{Regions: []image.Region{{Program: 1, ID: 3, Digests: make(image.Digests, 4)},
		{Program: 1, ID: 5, Digests: make(image.Digests, 8)}, {Program: 0, ID: 5, Digests: make(image.Digests, 8)}}}
	o := newOrder(m)
	note := func(program int, kernel uint32, params ...uint64) {
		l := &trace.Launch{Kernel: kernel, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
			Cluster: [3]uint32{1, 1, 1}}
		for _, x := range params {
			l.Params = binary.LittleEndian.AppendUint64(l.Params, x)
		}
		w.pieces = []foresee.Piece{{Launch: l}}
		w.foreseen.Work("launch", w.pieces, "", nil, &w.effect)
		o.note(program, w, &w.effect)
	}
	note(1, 3, a+7*chunk, b)           // of which nothing is known
	note(1, 2, b, a, b+8, 3*chunk/4)   // may read the first three chunks of a
	note(1, 1, a+5*chunk, b+2*chunk)   // surely reads and writes
	note(1, 1, a+2*chunk-2, a+5*chunk) // two chunks of a, one of them only now for certain
	note(1, 1, 3<<40, 3<<40+8)         // allocated later
	note(1, 1, a+5*chunk, b+2*chunk)   // again
	note(0, 1, a+6*chunk, a+6*chunk+8) // another program
	want := []image.Run{{Region: 1, Chunk: 5, Count: 1}, {Region: 0, Chunk: 2, Count: 1},
		{Region: 1, Chunk: 1, Count: 2}, {Region: 2, Chunk: 6, Count: 1},
		{Region: 1, Chunk: 0, Count: 1}, {Region: 0, Chunk: 0, Count: 1}}
	if got := o.runs(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var none *order
	none.note(1, w, &w.effect) // when a capture failed
}

// An order is no longer than a manifest may say.
func TestOrderLimit(t *testing.T) {
	var list []image.Run
	for i := range 2*image.MaxOrder + 10 {
		list = addRun(list, 0, 2*i)
	}
	if len(list) != image.MaxOrder {
		t.Errorf("%d runs", len(list))
	}
	if list = addRun(list, 0, list[len(list)-1].Chunk+1); list[len(list)-1].Count != 2 {
		t.Error("the last run does not grow")
	}
}
