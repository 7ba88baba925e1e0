package summarise

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"holdfast/internal/footprint"
	"holdfast/ptx"
)

// tableKernel is a kernel k(a, b, t, n) with i = its thread, %rd5 = t + 4*i, %rd6 = t + 8*i, %rd7 = b + 4*i.
func tableKernel(tb testing.TB, body string) *footprint.Summary {
	tb.Helper()
	m, err := ptx.Parse("table.ptx", fmt.Appendf(nil, `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 t, .param .u32 n)
{
	.reg .pred %%p<4>;
	.reg .b16 %%h<4>;
	.reg .b32 %%r<16>;
	.reg .b64 %%rd<16>;
	ld.param.u64 %%rd1, [a];
	ld.param.u64 %%rd2, [b];
	ld.param.u64 %%rd3, [t];
	ld.param.u32 %%r2, [n];
	mov.u32 %%r1, %%tid.x;
	mul.wide.u32 %%rd4, %%r1, 4;
	add.s64 %%rd5, %%rd3, %%rd4;
	mul.wide.u32 %%rd6, %%r1, 8;
	add.s64 %%rd6, %%rd3, %%rd6;
	add.s64 %%rd7, %%rd2, %%rd4;
%s
	ret;
}
`, body))
	if err != nil {
		tb.Fatal(err)
	}
	list, err := Module(m)
	if err != nil {
		tb.Fatal(err)
	}
	return list[0]
}

// What is loaded through %r3, and stored at %rd7.
const gather = `
	mul.wide.s32 %rd8, %r3, 4;
	add.s64 %rd8, %rd1, %rd8;
	ld.global.u32 %r4, [%rd8];
	st.global.u32 [%rd7], %r4;`

func words(size int, list ...int64) []byte {
	var b []byte
	for _, x := range list {
		b = appendUint(b, uint64(x), size)
	}
	return b
}

// TestTables: where what is loaded is known, and near misses.
func TestTables(t *testing.T) {
	const a, b, tab = 1 << 32, 1 << 32, 1 << 40 // out lies on in, but for where a test says otherwise
	four := words(4, 8, 10, 9, 8)
	csr := append(words(4, 0, 2, 2, 5, 6), words(4, 70, 64, 68, 65, 66, 69)...) // rows, then columns
	loop := `
	ld.global.u32 %r5, [%rd5];
	ld.global.u32 %r6, [%rd5+4];
	mov.u32 %r7, %r5;
L1:
	setp.ge.s32 %p1, %r7, %r6;
	@%p1 bra L2;
	mul.wide.s32 %rd9, %r7, 4;
	add.s64 %rd9, %rd3, %rd9;
	ld.global.u32 %r3, [%rd9+20];
	mul.wide.s32 %rd8, %r3, 4;
	add.s64 %rd8, %rd1, %rd8;
	ld.global.u32 %r4, [%rd8];
	add.s32 %r7, %r7, 1;
	bra L1;
L2:
	st.global.u32 [%rd7], %r1;`
	// The same with the end of the row loaded anew, from off bytes behind where the row begins, in rounds that have
	// stored something.
	reloaded := func(off string) string {
		return `
	ld.global.u32 %r5, [%rd5];
	ld.global.u32 %r6, [%rd5+4];
	mov.u32 %r7, %r5;
	setp.ge.s32 %p1, %r7, %r6;
	@%p1 bra L2;
L1:
	mul.wide.s32 %rd9, %r7, 4;
	add.s64 %rd9, %rd3, %rd9;
	ld.global.u32 %r3, [%rd9+20];
	mul.wide.s32 %rd8, %r3, 4;
	add.s64 %rd8, %rd1, %rd8;
	ld.global.u32 %r4, [%rd8];
	setp.lt.s32 %p2, %r4, 0;
	@%p2 bra L3;
	st.global.u32 [%rd7], %r1;
	ld.global.u32 %r6, [%rd5+` + off + `];
L3:
	add.s32 %r7, %r7, 1;
	setp.lt.s32 %p1, %r7, %r6;
	@%p1 bra L1;
L2:`
	}
	pointers := `
	ld.global.u64 %rd8, [%rd6];
	add.s64 %rd9, %rd8, %rd4;
	ld.global.u32 %r4, [%rd9];
	st.global.u32 [%rd7], %r4;`
	idempotent := func(reads ...footprint.Range) []footprint.Range { return reads }
	var unknown []footprint.Range
	for _, x := range []struct {
		name, body string
		known      []byte
		b, t, at   uint64 // where b and t lie, and what is known
		want       []footprint.Range
	}{
		{"gather", "ld.global.u32 %r3, [%rd5];" + gather, four, b, tab, tab,
			idempotent(footprint.Range{Lo: a + 32, Hi: a + 44}, footprint.Range{Lo: tab, Hi: tab + 16})},
		{"unsigned", "ld.global.nc.u32 %r3, [%rd5]; cvt.u64.u32 %rd8, %r3; shl.b64 %rd8, %rd8, 2; " +
			"add.s64 %rd8, %rd1, %rd8; ld.global.u32 %r4, [%rd8]; st.global.u32 [%rd7], %r4;", four, b, tab, tab,
			idempotent(footprint.Range{Lo: a + 32, Hi: a + 44}, footprint.Range{Lo: tab, Hi: tab + 16})},
		{"one word too few", "ld.global.u32 %r3, [%rd5];" + gather, four[:12], b, tab, tab, unknown},
		{"it begins a word late", "ld.global.u32 %r3, [%rd5];" + gather, four, b, tab, tab + 4, unknown},
		{"it begins between words", "ld.global.u32 %r3, [%rd5];" + gather,
			append(make([]byte, 2), words(4, 8, 8, 8, 8, 8)...), b, tab, tab - 2, unknown},
		{"negative", "ld.global.u32 %r3, [%rd5];" + gather, words(4, 8, -1, 9, 8), b - 8, tab, tab, unknown},
		{"volatile", "ld.volatile.global.u32 %r3, [%rd5];" + gather, four, b, tab, tab, unknown},
		{"written by the launch", "ld.global.u32 %r3, [%rd5];" + gather, four, tab + 12, tab, tab, unknown},
		{"written beside", "ld.global.u32 %r3, [%rd5];" + gather, four, tab + 16, tab, tab,
			idempotent(footprint.Range{Lo: a + 32, Hi: a + 44}, footprint.Range{Lo: tab, Hi: tab + 16})},
		{"an atomic on it", "ld.global.u32 %r3, [%rd5]; red.global.min.u32 [%rd3], %r1;" + gather,
			four, b, tab, tab, unknown},
		{"a write anywhere", "ld.global.u32 %r3, [%rd5]; ld.global.u64 %rd9, [%rd2+4096]; st.global.u32 [%rd9], %r1;" +
			gather, four, b, tab, tab, unknown},
		{"16 bits", "ld.global.s16 %h1, [%rd5]; cvt.s32.s16 %r3, %h1;" + gather, words(4, 8, 10, 9, 8), b, tab, tab,
			idempotent(footprint.Range{Lo: a + 32, Hi: a + 44}, footprint.Range{Lo: tab, Hi: tab + 14})},
		{"16 bits between words", "ld.global.s16 %h1, [%rd5]; cvt.s32.s16 %r3, %h1;" + gather,
			words(2, 8, -7, 10, -7, 9, -7, 8, -7), b, tab, tab,
			idempotent(footprint.Range{Lo: a + 32, Hi: a + 44}, footprint.Range{Lo: tab, Hi: tab + 14})},
		{"two in one", "ld.global.v2.u32 {%r5, %r3}, [%rd6];" + gather, words(4, -5, 8, -5, 10, -5, 9, -5, 8), b, tab,
			tab, idempotent(footprint.Range{Lo: a + 32, Hi: a + 44}, footprint.Range{Lo: tab, Hi: tab + 32})},
		{"the other of two", "ld.global.v2.u32 {%r3, %r5}, [%rd6];" + gather, words(4, -1, 8, -1, 10, -1, 9, -1, 8),
			b - 8, tab, tab, unknown},
		{"only if", "mov.u32 %r3, 9; setp.lt.u32 %p1, %r1, 2; @%p1 ld.global.u32 %r3, [%rd5];" + gather, four[:8], b,
			tab, tab, idempotent(footprint.Range{Lo: a + 32, Hi: a + 44}, footprint.Range{Lo: tab, Hi: tab + 8})},
		{"only if, and more", "mov.u32 %r3, 9; setp.lt.u32 %p1, %r1, 3; @%p1 ld.global.u32 %r3, [%rd5];" + gather,
			four[:8], b, tab, tab, unknown},
		{"rows", loop, csr, b, tab, tab, idempotent(footprint.Range{Lo: a + 256, Hi: a + 268},
			footprint.Range{Lo: a + 272, Hi: a + 284}, footprint.Range{Lo: tab, Hi: tab + 44})},
		{"rows, and a column too few", loop, csr[:len(csr)-4], b, tab, tab, unknown},
		{"rows, ends anew", reloaded("4"), csr, b, tab, tab, idempotent(footprint.Range{Lo: a + 256, Hi: a + 268},
			footprint.Range{Lo: a + 272, Hi: a + 284}, footprint.Range{Lo: tab, Hi: tab + 44})},
		{"rows, ends anew, and a column too few", reloaded("4"), csr[:len(csr)-4], b, tab, tab, unknown},
		{"rows, ends anew, and written", reloaded("4"), csr, tab + 12, tab, tab, unknown},
		{"rows, other ends", reloaded("8"), csr, b, tab, tab, unknown},
		{"pointers", pointers, words(8, a+64, a+128, a+64, a+256), b,
			tab, tab, idempotent(footprint.Range{Lo: a + 64, Hi: a + 80}, footprint.Range{Lo: a + 128, Hi: a + 144},
				footprint.Range{Lo: a + 256, Hi: a + 272}, footprint.Range{Lo: tab, Hi: tab + 32})},
		{"between pointers", pointers, words(8, a+64, a+128, a+64, a+256), b + 96,
			tab, tab, idempotent(footprint.Range{Lo: a + 64, Hi: a + 80}, footprint.Range{Lo: a + 128, Hi: a + 144},
				footprint.Range{Lo: a + 256, Hi: a + 272}, footprint.Range{Lo: tab, Hi: tab + 32})},
		{"at a pointer", pointers, words(8, a+64, a+128, a+64, a+256), b + 124, tab, tab, unknown},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := tableKernel(t, x.body)
			l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{4, 1, 1}}
			l.Params = appendUint(appendUint(appendUint(appendUint(nil, a, 8), x.b, 8), x.t, 8), 4, 4)
			var in, plain footprint.Instance
			s.Evaluate(l, &plain)
			l.Known = []footprint.Known{{Range: footprint.Range{Lo: 64, Hi: 4096}, Contents: nil},
				{Range: footprint.Range{Lo: x.at, Hi: x.at + uint64(len(x.known))},
					Contents: footprint.NewContents(x.known, uint64(len(x.known)))},
				{Range: footprint.Range{Lo: 1 << 50, Hi: 1<<50 + 4}, Contents: footprint.NewContents(nil, 4)}}
			s.Evaluate(l, &in)
			if x.want == nil {
				if in.Verdict == footprint.Idempotent {
					t.Errorf("%v, reads %x, writes %x", in.Verdict, in.Reads, in.Writes)
				}
			} else if in.Verdict != footprint.Idempotent || !reflect.DeepEqual(in.Reads, x.want) {
				t.Errorf("%v: %s, reads %x, want %x", in.Verdict, in.Reason(), in.Reads, x.want)
			}
			if plain.Verdict == footprint.Idempotent {
				t.Error("nothing needs to be known")
			}
			var relied uint64
			for _, r := range in.Relied {
				relied += r.Hi - r.Lo
			}
			if x.want != nil && (relied == 0 || relied > uint64(len(x.known)) || in.Wanted != nil) {
				t.Errorf("relies on %x, wants %x", in.Relied, in.Wanted)
			}
			// Who is asked for what is wanted, and for nothing else, comes to the same.
			seek := *l
			seek.Known, seek.Seeks = nil, true
			var sought footprint.Instance
			var have []footprint.Range
			for range 4 {
				s.Evaluate(&seek, &sought)
				have = footprint.Merge(append(have, sought.Wanted...))
				seek.Known = nil
				for _, r := range have {
					r.Lo, r.Hi = max(r.Lo, x.at), min(r.Hi, x.at+uint64(len(x.known)))
					if r.Lo < r.Hi {
						seek.Known = append(seek.Known, footprint.Known{Range: r,
							Contents: footprint.NewContents(x.known[r.Lo-x.at:r.Hi-x.at], r.Hi-r.Lo)})
					}
				}
			}
			if x.name == "it begins between words" { // which what is wanted does not
				return
			}
			if sought.Verdict != in.Verdict || in.Verdict == footprint.Idempotent &&
				!slices.Equal(sought.Reads, in.Reads) {
				t.Errorf("sought: %v, reads %x; known: %v, reads %x", sought.Verdict,
					sought.Reads, in.Verdict, in.Reads)
			}
			if x.want == nil && x.name == "volatile" && have != nil {
				t.Errorf("wants %x", have)
			}
			// The same with a summary that was kept, and with the memory of another evaluation.
			text, err := s.MarshalBinary()
			var back footprint.Summary
			if err == nil {
				err = back.UnmarshalBinary(text)
			}
			if err != nil {
				t.Fatal(err)
			}
			again := plain
			back.Evaluate(l, &again)
			if again.Verdict != in.Verdict || !slices.Equal(again.Reads, in.Reads) ||
				!slices.Equal(again.Writes, in.Writes) {
				t.Errorf("once more: %v, reads %x, writes %x", again.Verdict, again.Reads, again.Writes)
			}
			if n := testing.AllocsPerRun(20, func() { s.Evaluate(l, &in) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// TestParameterTable: a block picks its pointer from an array in a parameter, which is known without being told.
func TestParameterTable(t *testing.T) {
	s := summarised(t, "picked", `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 b, .param .align 8 .b8 s[32], .param .u64 c)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<10>;
	ld.param.u64 %rd1, [b];
	mov.b64 %rd2, s;
	mov.u32 %r1, %ctaid.x;
	mul.wide.u32 %rd3, %r1, 8;
	add.s64 %rd4, %rd2, %rd3;
	ld.param.u64 %rd5, [%rd4+8];
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %rd6, %r2, 4;
	add.s64 %rd7, %rd5, %rd6;
	ld.global.u32 %r3, [%rd7];
	add.s64 %rd8, %rd1, %rd6;
	st.global.u32 [%rd8], %r3;
	ret;
}
`)
	for _, x := range []struct {
		blocks uint32
		b      uint64
		want   footprint.Verdict
		reads  []footprint.Range
	}{
		{1, 0x3000, footprint.Idempotent, []footprint.Range{{Lo: 0x2000, Hi: 0x2010}}},
		{2, 0x3000, footprint.Idempotent, []footprint.Range{{Lo: 0x2000, Hi: 0x2010}, {Lo: 0x5000, Hi: 0x5010}}},
		{3, 0x3000, footprint.Idempotent,
			[]footprint.Range{{Lo: 0x2000, Hi: 0x2010}, {Lo: 0x4000, Hi: 0x4010}, {Lo: 0x5000, Hi: 0x5010}}},
		{3, 0x4004, footprint.Unknown, nil},
		{4, 0x3000, footprint.Unknown, nil}, // a block reads what is behind the array
	} {
		var params []byte
		for _, p := range []uint64{x.b, 0x1000, 0x2000, 0x5000, 0x4000, 0x6000} {
			params = appendUint(params, p, 8)
		}
		l := &footprint.Launch{Grid: [3]uint32{x.blocks, 1, 1}, Block: [3]uint32{4, 1, 1}, Params: params}
		var in footprint.Instance
		s.Evaluate(l, &in)
		if in.Verdict != x.want || x.reads != nil && !reflect.DeepEqual(in.Reads, x.reads) {
			t.Errorf("%d blocks, b = %#x: %v, reads %x", x.blocks, x.b, in.Verdict, in.Reads)
		}
		if n := testing.AllocsPerRun(20, func() { s.Evaluate(l, &in) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// TestLoadedTwice: two loads of one place give the same value where nothing writes it, and may not elsewhere. Threads
// from 10 on write what they load twice, so that their two values differ; another access, of the others alone, knows
// what is there.
func TestLoadedTwice(t *testing.T) {
	s := summarised(t, "loaded twice", `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 table, .param .u64 out)
{
	.reg .pred %p<3>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<12>;
	ld.param.u64 %rd1, [table];
	ld.param.u64 %rd2, [out];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %tid.y;
	cvt.u64.u32 %rd3, %r1;
	add.s64 %rd4, %rd1, %rd3;
	ld.global.u8 %r3, [%rd4];
	setp.lt.s32 %p1, %r1, 10;
	add.s32 %r4, %r3, 100;
	@!%p1 st.global.u8 [%rd4], %r4;
	ld.global.u8 %r5, [%rd4];
	mul.wide.s32 %rd5, %r5, 4;
	add.s64 %rd6, %rd2, %rd5;
	@%p1 st.global.u32 [%rd6], %r1;
	add.s32 %r6, %r3, %r2;
	setp.lt.s32 %p2, %r6, %r5;
	mul.wide.s32 %rd7, %r2, 4;
	add.s64 %rd8, %rd6, %rd7;
	@%p2 st.global.u32 [%rd8], %r1;
	ret;
}
`)
	table := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	l := &footprint.Launch{Block: [3]uint32{32, 8, 1}, Grid: [3]uint32{1, 1, 1},
		Params: appendUint(appendUint(nil, 1<<32, 8), 1<<40, 8)}
	l.Known = []footprint.Known{{Range: footprint.Range{Lo: 1 << 32, Hi: 1<<32 + 10},
		Contents: footprint.NewContents(table, 10)}}
	var in footprint.Instance
	s.Evaluate(l, &in)
	for a := uint64(1 << 40); a < 1<<40+4*(100+7); a += 4 { // 100 + tid.y, if 0 was there
		if !in.WritesUnknown && !inside(in.Writes, a) {
			t.Fatalf("a thread writes %#x, which is not in %x", a, in.Writes)
		}
	}
	l.Block = [3]uint32{10, 8, 1} // nobody writes the table: nobody's values differ
	if s.Evaluate(l, &in); in.Verdict != footprint.Idempotent || len(in.Writes) != 1 ||
		in.Writes[0] != (footprint.Range{Lo: 1 << 40, Hi: 1<<40 + 40}) {
		t.Errorf("%v, writes %x", in.Verdict, in.Writes)
	}
}
