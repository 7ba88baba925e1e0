package foresee

import (
	"encoding/binary"
	"slices"
	"testing"

	"holdfast/internal/footprint"
	"holdfast/internal/trace"
)

// copyPTX has a kernel that copies n words, one that writes where a word in memory says, and two that read a variable
// of the module: one reads behind its end.
const copyPTX = `.version 7.0
.target sm_70
.address_size 64
.global .align 4 .b32 waves[64];
.visible .entry words(.param .u64 p_in, .param .u64 p_out, .param .u32 p_n)
{
 .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %d<8>;
 ld.param.u64 %d0, [p_in]; ld.param.u64 %d1, [p_out]; ld.param.u32 %r0, [p_n];
 mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;
 setp.ge.s32 %p0, %r4, %r0; @%p0 bra DONE;
 mul.wide.s32 %d2, %r4, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;
 ld.global.u32 %r5, [%d3]; st.global.u32 [%d4], %r5;
DONE: ret;
}
.visible .entry chase(.param .u64 p_cell)
{
 .reg .b64 %d<3>;
 ld.param.u64 %d0, [p_cell]; ld.global.u64 %d1, [%d0]; st.global.u64 [%d1], %d0; ret;
}
.visible .entry wave(.param .u64 p_out)
{
 .reg .b32 %r<2>; .reg .b64 %d<4>;
 ld.param.u64 %d0, [p_out]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; mov.u64 %d2, waves; add.s64 %d2, %d2, %d1; add.s64 %d0, %d0, %d1;
 ld.global.u32 %r1, [%d2]; st.global.u32 [%d0], %r1; ret;
}
.visible .entry behind(.param .u64 p_out)
{
 .reg .b32 %r<2>; .reg .b64 %d<4>;
 ld.param.u64 %d0, [p_out]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; mov.u64 %d2, waves; add.s64 %d2, %d2, %d1; add.s64 %d0, %d0, %d1;
 ld.global.u32 %r1, [%d2+4]; st.global.u32 [%d0], %r1; ret;
}
`

var textDigest = trace.Digest{1, 2, 3}

// program has two allocations of two held blocks, and the kernels of copyPTX in an image of that kind.
func program(kind uint32) *Program {
	p := New()
	p.Text(textDigest, []byte(copyPTX))
	for _, r := range []trace.Record{
		&trace.Image{ID: 7, Kind: kind, Texts: []trace.TextRef{{Arch: 70, Digest: textDigest}}},
		&trace.Alloc{Addr: 0x100000, Bytes: 0x10000, Block: 1},
		&trace.Alloc{Addr: 0x200000, Bytes: 0x10000, Block: 2, Offset: 0x4000},
		&trace.Alloc{Addr: 0x300000, Bytes: 0x1000, Kind: trace.MemHost},
		&trace.Kernel{ID: 1, Module: 7, Name: "words", Params: []trace.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8},
			{Offset: 16, Size: 4}}},
		&trace.Kernel{ID: 2, Module: 7, Name: "chase", Params: []trace.Param{{Offset: 0, Size: 8}}},
		&trace.Kernel{ID: 3, Module: 9, Name: "library", Params: []trace.Param{{Offset: 0, Size: 24}}},
		&trace.Kernel{ID: 4, Module: 7, Name: "wave", Params: []trace.Param{{Offset: 0, Size: 8}}},
		&trace.Kernel{ID: 5, Module: 7, Name: "behind", Params: []trace.Param{{Offset: 0, Size: 8}}},
	} {
		p.Apply(r)
	}
	return p
}

func launch(kernel uint32, params ...uint64) *trace.Launch {
	l := &trace.Launch{Kernel: kernel, Grid: [3]uint32{4, 1, 1}, Block: [3]uint32{64, 1, 1},
		Cluster: [3]uint32{1, 1, 1}}
	for _, x := range params {
		l.Params = binary.LittleEndian.AppendUint64(l.Params, x)
	}
	return l
}

func TestLaunch(t *testing.T) {
	words := launch(1, 0x100100, 0x200200, 100)
	words.Params = words.Params[:20]
	for name, c := range map[string]struct {
		kind          uint32
		l             *trace.Launch
		reads, writes []footprint.Range
		proven        bool
	}{
		"PTX": {trace.CodePTX, words, []footprint.Range{{Lo: 0x100100, Hi: 0x100100 + 400}},
			[]footprint.Range{{Lo: 0x200200, Hi: 0x200200 + 400}}, true},
		// The driver may run machine code that was made of something else.
		"PTX beside machine code": {trace.CodeFatbin, words, []footprint.Range{{Lo: 0x100100, Hi: 0x100100 + 400}},
			[]footprint.Range{{Lo: 0x200200, Hi: 0x200200 + 400}}, false},
		"no bound": {trace.CodePTX, launch(2, 0x100008),
			[]footprint.Range{{Lo: 0x100008, Hi: 0x100010}}, []footprint.Range{{Lo: 0x100000, Hi: 0x110000}}, false},
		"a variable": {trace.CodePTX, launch(4, 0x200200), nil,
			[]footprint.Range{{Lo: 0x200200, Hi: 0x200300}}, true},
		"a variable, or more": {trace.CodePTX, launch(5, 0x200200), nil,
			[]footprint.Range{{Lo: 0x200200, Hi: 0x200300}}, false},
		"a variable, of other code": {trace.CodeFatbin, launch(4, 0x200200), nil,
			[]footprint.Range{{Lo: 0x200200, Hi: 0x200300}}, false},
		"no PTX": {trace.CodePTX, launch(3, 5, 0x200010, 0x300000),
			[]footprint.Range{{Lo: 0x200000, Hi: 0x210000}, {Lo: 0x300000, Hi: 0x301000}},
			[]footprint.Range{{Lo: 0x200000, Hi: 0x210000}, {Lo: 0x300000, Hi: 0x301000}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := program(c.kind)
			var e Effect
			p.Launch(c.l, &e)
			covered := func(have, want []footprint.Range) bool { // a guess may name more
				if c.proven {
					return slices.Equal(have, want)
				}
				for _, w := range want {
					if !slices.ContainsFunc(have, func(h footprint.Range) bool {
						return h.Lo <= w.Lo && w.Hi <= h.Hi
					}) {
						return false
					}
				}
				return true
			}
			if !covered(e.Reads, c.reads) || !covered(e.Writes, c.writes) || e.Proven != c.proven || e.Everything {
				t.Errorf("%+v, want %x, %x, proven %v", e, c.reads, c.writes, c.proven)
			}
		})
	}
}

func TestUnknown(t *testing.T) {
	p := program(trace.CodePTX)
	var e Effect
	p.Launch(launch(99), &e)
	if !e.Everything || e.Proven {
		t.Errorf("a kernel that was never told: %+v", e)
	}
	l := launch(1)
	l.Flags = trace.NoParams
	p.Launch(l, &e)
	if !e.Everything || e.Name != "words" {
		t.Errorf("parameters that are not known: %+v", e)
	}
	var part Effect
	p.Copy(&trace.Copy{Dst: 0x100000, Width: 16, Flags: trace.SrcHost}, &part)
	part.Join(&e)
	if !part.Everything || part.Proven {
		t.Errorf("a copy beside it: %+v", part)
	}
}

// TestLayoutDiffers: PTX of another version of a kernel is not taken for its.
func TestLayoutDiffers(t *testing.T) {
	p := program(trace.CodePTX)
	p.Apply(&trace.Kernel{ID: 1, Module: 7, Name: "words",
		Params: []trace.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8}}})
	var e Effect
	p.Launch(launch(1, 0x100100, 0x200200), &e)
	if e.Proven {
		t.Errorf("%+v", e)
	}
}

func TestCopy(t *testing.T) {
	p := program(trace.CodePTX)
	var e Effect
	p.Copy(&trace.Copy{Dst: 0x100000, DstPitch: 256, DstSlice: 4096, Src: 0x200000, SrcPitch: 128, SrcSlice: 1024,
		Width: 100, Height: 3, Depth: 2}, &e)
	if !e.Proven || !slices.Equal(e.Writes, []footprint.Range{{Lo: 0x100000, Hi: 0x100000 + 4096 + 512 + 100}}) ||
		!slices.Equal(e.Reads, []footprint.Range{{Lo: 0x200000, Hi: 0x200000 + 1024 + 256 + 100}}) {
		t.Errorf("%+v", e)
	}
	p.Copy(&trace.Copy{Dst: 0x100000, Src: 0xabcd, Width: 64, Flags: trace.Set}, &e)
	if len(e.Reads) != 0 || len(e.Writes) != 1 || e.Name != "memset" {
		t.Errorf("%+v", e)
	}
	p.Copy(&trace.Copy{Dst: 0x7f0000000000, Src: 0x200000, Width: 64, Flags: trace.DstHost}, &e)
	if len(e.Reads) != 1 || len(e.Writes) != 0 {
		t.Errorf("%+v", e)
	}
	// What does not fit into addresses is bounded by them.
	p.Copy(&trace.Copy{Dst: 0x100000, DstPitch: 1 << 63, Width: 1, Height: 3, Flags: trace.SrcHost}, &e)
	if len(e.Writes) != 1 || e.Writes[0].Hi < 0x110000 {
		t.Errorf("%x", e.Writes)
	}
}

func TestSpans(t *testing.T) {
	p := program(trace.CodePTX)
	got := p.Spans(nil, []footprint.Range{{Lo: 0x10fff0, Hi: 0x200010}, {Lo: 0x300000, Hi: 0x300010}})
	want := []Span{{Block: 1, Off: 0xfff0, Len: 16}, {Block: 2, Off: 0x4000, Len: 16}}
	if !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	p.Apply(&trace.Free{Addr: 0x200000})
	if got := p.Spans(nil, []footprint.Range{{Lo: 0, Hi: ^uint64(0)}}); !slices.Equal(got,
		[]Span{{Block: 1, Len: 0x10000}}) {
		t.Errorf("%x", got)
	}
}

// A kernel may know a variable of its module by name, so what a pointer into it means is not taken for an allocation of
// its own.
func TestVariablesAreNoAllocations(t *testing.T) {
	p := New()
	p.Apply(&trace.Alloc{Addr: 0x10000, Bytes: 0x1000, Kind: trace.MemLinear})
	p.Apply(&trace.Alloc{Addr: 0x20000, Bytes: 0x100, Kind: trace.MemGlobal})
	p.Apply(&trace.Alloc{Addr: 0x30000, Bytes: 0x1000, Kind: trace.MemHost})
	want := []footprint.Range{{Lo: 0x10000, Hi: 0x11000}, {Lo: 0x30000, Hi: 0x31000}}
	if got := p.Footprint(&trace.Launch{}).Allocs; !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestIndexed: what a gather may touch is more than it will; what a copy touches is not.
func TestIndexed(t *testing.T) {
	p := program(trace.CodePTX)
	words := launch(1, 0x100100, 0x200200, 100)
	words.Params = words.Params[:20]
	for _, x := range []struct {
		name   string
		pieces []Piece
		want   bool
	}{
		{"words", []Piece{{Launch: words}}, false},
		{"chase", []Piece{{Launch: words}, {Launch: launch(2, 0x100008)}}, true},
		{"copy", []Piece{{Copy: &trace.Copy{Dst: 0x100000, Src: 0x200000, Width: 64}}}, false},
		{"unknown", []Piece{{Launch: launch(99)}}, false},
	} {
		if got := p.Indexed(x.pieces); got != x.want {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}
