package summarise

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast/internal/footprint"
)

// scratchKernel is a kernel k(s, out, n) with %r1 = tid.x, %r2 = tid.y, %r3 = ctaid.x, %r4 = ntid.x.
func scratchKernel(tb testing.TB, body string) *footprint.Summary {
	tb.Helper()
	return summarised(tb, "scratch", `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 s, .param .u64 out, .param .u32 n)
{
	.reg .pred %p<8>;
	.reg .b32 %r<32>;
	.reg .b64 %rd<32>;
	ld.param.u64 %rd1, [s];
	ld.param.u64 %rd2, [out];
	ld.param.u32 %r5, [n];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %tid.y;
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, %ntid.x;
	mad.lo.s32 %r6, %r3, %r4, %r1;
	setp.lt.u32 %p1, %r1, 31;
	setp.eq.s32 %p2, %r1, 0;
	mul.wide.s32 %rd3, %r6, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	mul.wide.s32 %rd6, %r3, 4;
	add.s64 %rd7, %rd1, %rd6;
	sub.s32 %r7, %r4, %r1;
	mad.lo.s32 %r8, %r3, %r4, %r7;
	mul.wide.s32 %rd8, %r8, 4;
	add.s64 %rd9, %rd1, %rd8;
`+body+`
L9:
	ret;
}
`)
}

// TestScratch: what a block has written before a barrier, and near misses. Blocks have 32 threads.
func TestScratch(t *testing.T) {
	const all, back = "st.global.u32 [%rd4], %r1;", "ld.global.u32 %r9, [%rd9-4]; st.global.u32 [%rd5], %r9;"
	const first, count = "setp.ne.s32 %p3, %r1, 0; @%p3 bra L1; st.global.u32 [%rd7], 0; L1:",
		"red.global.add.u32 [%rd7], 1;"
	for _, x := range []struct {
		name, body string
		want       bool
	}{
		{"reversed", all + "bar.sync 0;" + back, true},
		{"reversed, with two barriers", all + "barrier.sync 0; bar.sync 0;" + back, true},
		{"a vote", all + "bar.red.popc.u32 %r10, 0, %p1;" + back, true},
		{"one more", all + "bar.sync 0; ld.global.u32 %r9, [%rd9]; st.global.u32 [%rd5], %r9;", false},
		{"no barrier", all + back, false},
		{"a barrier of a part", all + "bar.sync 0, 32;" + back, false},
		{"a barrier of a warp", all + "bar.warp.sync -1;" + back, false},
		{"who only arrives", all + "bar.arrive 0, 64;" + back, false},
		{"who arrives counts twice",
			all + "setp.lt.u32 %p3, %r1, 32; @%p3 bar.arrive 0, 64; bar.sync 0;" + back, false},
		{"who arrives at some barrier", all + "@%p1 bar.arrive %r5, 64; bar.sync 0;" + back, false},
		{"who arrives elsewhere", all + "@%p1 bar.arrive 1, 64; bar.sync 0;" + back, true},
		{"a part elsewhere", all + "bar.sync 1, 32; bar.warp.sync -1; bar.sync 0;" + back, true},
		{"a barrier that some pass", all + "@%p1 bra L1; bar.sync 0; L1:" + back, false},
		{"read before the barrier", all + "ld.global.u32 %r9, [%rd9-4]; bar.sync 0; st.global.u32 [%rd5], %r9;", false},
		{"a barrier before the write", "bar.sync 1;" + all + "bar.sync 0;" + back, false},
		{"a barrier before the write, for some", "@%p1 bra L1; bar.sync 0; bra L2; L1:" + all +
			"bar.sync 0; L2:" + back, false},
		{"not all write", "@%p1 " + all + "bar.sync 0;" + back, false},
		{"some have left", "@!%p1 bra L9;" + all + "bar.sync 0;" + back, false},
		{"some leave afterwards", all + "@!%p1 bra L9; bar.sync 0;" + back, false},
		{"gaps", "st.global.u8 [%rd4], %r1; bar.sync 0;" + back, false},
		{"another block's", "ld.param.u32 %r11, [n]; mul.wide.s32 %rd11, %r1, 4; add.s64 %rd11, %rd11, %rd1; " +
			"st.global.u32 [%rd11], %r1; bar.sync 0;" + back, false},
		{"counted", first + "bar.sync 0;" + count, true},
		{"counted, predicated", "@%p2 st.global.u32 [%rd7], 0; bar.sync 0;" + count, true},
		{"counted without a barrier", first + count, false},
		{"the next one is counted", first + "bar.sync 0; red.global.add.u32 [%rd7+4], 1;", false},
		{"half of it is set", "@%p2 st.global.u16 [%rd7], 0; bar.sync 0;" + count, false},
		// they do, but it is not seen
		{"the others set it", "@!%p2 st.global.u32 [%rd7], 0; bar.sync 0;" + count, false},
		{"perhaps none sets it", "setp.eq.s32 %p3, %r1, 7; @%p3 st.global.u32 [%rd7], 0; bar.sync 0;" + count, false},
		{"some block sets it",
			"setp.ne.s32 %p3, %r3, 0; @%p3 bra L1; st.global.u32 [%rd7], 0; L1: bar.sync 0;" + count, false},
	} {
		s := scratchKernel(t, x.body)
		l := &footprint.Launch{Grid: [3]uint32{3, 1, 1}, Block: [3]uint32{32, 1, 1}}
		l.Params = appendUint(appendUint(appendUint(nil, 1<<32, 8), 1<<33, 8), 96, 4)
		var in footprint.Instance
		s.Evaluate(l, &in)
		if got := in.Verdict == footprint.Idempotent; got != x.want {
			t.Errorf("%s: %v, %s", x.name, in.Verdict, in.Reason())
		}
		if n := testing.AllocsPerRun(20, func() { s.Evaluate(l, &in) }); n != 0 {
			t.Errorf("%s: %v allocations", x.name, n)
		}
	}
}

// TestRandomScratch: kernels of a write, a barrier and a read at random places, or without one of them, compared with
// what blocks do: a read sees what its own block has written before a barrier of the whole block, or what was there
// before.
func TestRandomScratch(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	counts := map[footprint.Verdict]int{}
	covered := 0
	for i := range 4000 {
		type place struct{ x, y, b, c, flip int }
		random := func() place {
			sizes := []int{0, 1, 1, 1, -1, 2, 3, 4, 8, 12, 16, 32}
			one := func() int { return sizes[r.IntN(len(sizes))] }
			return place{one(), one(), one(), r.IntN(5), 0}
		}
		w := random()
		rd := w
		if r.IntN(4) == 0 {
			rd = random()
		}
		switch r.IntN(4) {
		case 0:
			rd.flip = 1 + r.IntN(3)
		case 1:
			rd.c += r.IntN(3) - 1
		case 2:
			rd.x, rd.c = -rd.x, rd.c+3*rd.x
		}
		who, before, after, update := r.IntN(5), r.IntN(6) == 0, r.IntN(6), r.IntN(3) == 0
		address := func(p place, reg int) string {
			return fmt.Sprintf(`
	xor.b32 %%r20, %%r1, %d;
	mul.lo.s32 %%r21, %%r20, %d;
	mad.lo.s32 %%r21, %%r2, %d, %%r21;
	mad.lo.s32 %%r21, %%r3, %d, %%r21;
	mul.wide.s32 %%rd20, %%r21, 4;
	add.s64 %%rd%d, %%rd1, %%rd20;
	add.s64 %%rd%d, %%rd%d, %d;`, p.flip, p.x, p.y, p.b, reg, reg, reg, 4*p.c)
		}
		body := address(w, 21) + address(rd, 22)
		if before {
			body += "\n	bar.sync 0;"
		}
		body += []string{"", "\n	@%p2", "\n	setp.ne.s32 %p3, %r1, 0;\n	@%p3 bra L1;",
			"\n	setp.lt.u32 %p3, %r1, 2;\n	@%p3", ""}[who] + "\n	st.global.u32 [%rd21], %r1;\nL1:"
		if after > 0 {
			body += "\n	bar.sync 0;"
		}
		if update {
			body += "\n	red.global.add.u32 [%rd22], 1;"
		} else {
			body += "\n	ld.global.u32 %r9, [%rd22];"
		}
		s := scratchKernel(t, body)
		l := &footprint.Launch{Grid: [3]uint32{1 + r.Uint32N(3), 1, 1},
			Block: [3]uint32{1 + r.Uint32N(5), 1 + r.Uint32N(3), 1}}
		l.Params = appendUint(appendUint(appendUint(nil, 1<<32, 8), 1<<33, 8), 96, 4)
		at := func(p place, x, y, b int) int { return (x^p.flip)*p.x + y*p.y + b*p.b + p.c }
		written, live, updated := map[int]bool{}, map[int]bool{}, map[int]bool{}
		for b := range int(l.Grid[0]) {
			own := map[int]bool{}
			each := func(do func(x, y int)) {
				for y := range int(l.Block[1]) {
					for x := range int(l.Block[0]) {
						do(x, y)
					}
				}
			}
			each(func(x, y int) {
				if who == 0 || who == 4 || who < 3 && x == 0 || who == 3 && x < 2 {
					written[at(w, x, y, b)], own[at(w, x, y, b)] = true, true
				}
			})
			each(func(x, y int) {
				a := at(rd, x, y, b)
				mine := at(w, x, y, b) == a && (who == 0 || who == 4 || who < 3 && x == 0 || who == 3 && x < 2)
				if !mine && (after == 0 || !own[a]) {
					live[a] = true
				}
				if update {
					updated[a] = true
				}
			})
		}
		clobbers := false
		for a := range live {
			clobbers = clobbers || written[a] || updated[a]
		}
		var in footprint.Instance
		s.Evaluate(l, &in)
		counts[in.Verdict]++
		if in.Verdict == footprint.Idempotent && clobbers || in.Verdict == footprint.NotIdempotent && !clobbers {
			t.Fatalf("kernel %d: %v, blocks %v of %v\n%s", i, in.Verdict, l.Grid, l.Block, body)
		}
		for j := range s.Code.Accs {
			if in.Verdict == footprint.Idempotent && s.Code.Accs[j].Kind != footprint.IsWrite &&
				s.Code.Accs[j].Cover != 0 {
				covered++
				break
			}
		}
	}
	t.Logf("%v, %d with something covered", counts, covered)
	if counts[footprint.Idempotent] < 500 || covered < 300 {
		t.Errorf("%v, %d with something covered: the test has become weak", counts, covered)
	}
}
