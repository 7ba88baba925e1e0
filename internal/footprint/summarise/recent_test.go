package summarise

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/footprint"
)

// different says in what two instances of one launch differ.
func different(a, b *footprint.Instance) string {
	if a.Verdict != b.Verdict || a.Cause != b.Cause || a.At != b.At || a.Witness != b.Witness ||
		a.ReadsUnknown != b.ReadsUnknown || a.WritesUnknown != b.WritesUnknown ||
		a.ReadsVariables != b.ReadsVariables ||
		!slices.Equal(a.Reads, b.Reads) || !slices.Equal(a.Writes, b.Writes) {
		return fmt.Sprintf("%v, %v at %d, witness %+v, reads %x (%v), writes %x (%v); "+
			"by itself %v, %v at %d, witness %+v, reads %x (%v), writes %x (%v)",
			a.Verdict, a.Cause, a.At, a.Witness, a.Reads, a.ReadsUnknown, a.Writes, a.WritesUnknown,
			b.Verdict, b.Cause, b.At, b.Witness, b.Reads, b.ReadsUnknown, b.Writes, b.WritesUnknown)
	}
	return ""
}

// What is remembered is what evaluating says: random kernels, launched with pointers that are anywhere, near each
// other, at the ends of all addresses, or as they were before.
func TestRecent(t *testing.T) {
	var recent footprint.Recent
	var one, other footprint.Instance
	hits := map[footprint.Verdict]int{}
	moved := 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 21))
		g := &generator{r: r, regs: regFirst,
			known: []int{regTid, regTid, regTidY, regCta, regCta, regNtid, regN, regM}}
		list := g.block(2)
		if seed%3 == 0 {
			g.known = []int{regTid, regTidY, regN}
			list = g.congruent()
		}
		s := summarised(t, "random", kernelText(list, g.regs))
		for range 3 {
			l, _, _, _ := randomArguments(r)
			if l.Seeks = r.IntN(2) == 0; r.IntN(4) > 0 {
				l.Known = nil
			}
			places := []uint64{1 << 40, 1<<40 + 64, 1<<40 + 4, 1 << 41, 1<<41 - 128, 1 << 32, 1<<32 + 1<<12, 8}
			if r.IntN(4) == 0 {
				places = append(places, 0, 1<<63-64, 1<<63, 1<<64-16)
			}
			was := slices.Clone(l.Params)
			allocs := [][]footprint.Range{nil, {{Lo: 1 << 32, Hi: 1<<32 + 1<<14},
				{Lo: 1 << 40, Hi: 1<<40 + 256}, {Lo: 1 << 41, Hi: 1<<41 + 512}, {Lo: 5 << 40, Hi: 6 << 40}},
				{{Lo: 1 << 40, Hi: 1<<40 + 512}, {Lo: 1 << 41, Hi: 1 << 42}}}
			for try := range 24 {
				if try%4 != 3 || r.IntN(2) == 0 { // else only allocations change
					for _, b := range s.Inspect().Bases {
						x := places[r.IntN(len(places))] + uint64(r.IntN(3))*uint64(r.IntN(64))*4
						switch {
						case try == 0 || r.IntN(4) == 0:
							x = binary.LittleEndian.Uint64(was[b:])
						case r.IntN(2) == 0:
							x = uint64(1+r.IntN(8)) << 40
						}
						binary.LittleEndian.PutUint64(l.Params[b:], x)
					}
				}
				l.Allocs = allocs[r.IntN(len(allocs))]
				before := recent.Hits
				recent.Evaluate(s, l, &one)
				s.Evaluate(l, &other)
				bad := different(&one, &other)
				if !slices.Equal(one.Relied, other.Relied) || !slices.Equal(one.Wanted, other.Wanted) {
					bad += " with other contents"
				}
				if bad != "" {
					t.Fatalf("seed %d: %s\ngrid %v block %v params %x\n%s", seed, bad, l.Grid, l.Block,
						l.Params, kernelText(list, g.regs))
				}
				if recent.Hits > before {
					hits[one.Verdict]++
					if try > 0 && len(s.Inspect().Bases) > 0 {
						moved++
					}
				}
			}
		}
	}
	t.Logf("%v of %d were remembered, %d moved", hits, recent.Hits+recent.Misses, moved)
	if hits[footprint.Idempotent] < 5000 || hits[footprint.NotIdempotent] < 1000 ||
		hits[footprint.Unknown] < 1000 || moved < 10000 {
		t.Errorf("%v, %d moved: the test has become weak", hits, moved)
	}
}

// A pointer that is used for something else than where accesses lie is no base: whether a launch is a moved one depends
// on it.
func TestBases(t *testing.T) {
	for _, x := range []struct {
		name, code string
		bases      []int32
	}{
		{"addresses", "ld.global.u32 %r2, [%rd4]; st.global.u32 [%rd5], %r2;", []int32{0, 8}},
		{"a null check", "setp.eq.s64 %p1, %rd2, 0; @%p1 bra DONE; ld.global.u32 %r2, [%rd4]; " +
			"st.global.u32 [%rd5], %r2;", []int32{0}},
		{"a predicate", "setp.lt.u64 %p1, %rd1, %rd2; ld.global.u32 %r2, [%rd4]; @%p1 st.global.u32 [%rd4], %r2; " +
			"st.global.u32 [%rd5], 0;", nil},
		{"an alignment", "and.b64 %rd6, %rd1, 15; setp.ne.s64 %p1, %rd6, 0; @%p1 bra DONE; " +
			"ld.global.u32 %r2, [%rd4]; st.global.u32 [%rd5], %r2;", []int32{8}},
		{"a distance", "sub.s64 %rd6, %rd2, %rd1; shl.b64 %rd6, %rd6, 1; add.s64 %rd6, %rd5, %rd6; " +
			"ld.global.u32 %r2, [%rd6]; st.global.u32 [%rd4], %r2;", nil},
		{"a size", "cvt.u32.u64 %r3, %rd2; mul.wide.u32 %rd6, %r3, %r1; add.s64 %rd6, %rd1, %rd6; " +
			"ld.global.u32 %r2, [%rd6]; st.global.u32 [%rd4], %r2;", []int32{0}},
		{"a half", "ld.param.u32 %r3, [b+4]; mul.wide.u32 %rd6, %r3, 4; add.s64 %rd6, %rd4, %rd6; " +
			"ld.global.u32 %r2, [%rd6]; st.global.u32 [%rd5], %r2;", []int32{0}},
		{"a choice", "setp.lt.u32 %p1, %r1, 2; selp.b64 %rd6, %rd1, %rd2, %p1; ld.global.u32 %r2, [%rd6]; " +
			"st.global.u32 [%rd5], %r2;", nil},
		{"a choice at the same base", "setp.lt.u32 %p1, %r9, 2; selp.b64 %rd6, %rd1, %rd4, %p1; " +
			"ld.global.u32 %r2, [%rd6]; st.global.u32 [%rd5], %r2;", []int32{8}},
	} {
		s := summarised(t, x.name, `.version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{
	.reg .pred %p<3>;
	.reg .b32 %r<10>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	ld.param.u32 %r9, [n];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	`+x.code+`
DONE:
	ret;
}
`)
		if !slices.Equal(s.Inspect().Bases, x.bases) {
			t.Errorf("%s: bases %v, want %v", x.name, s.Inspect().Bases, x.bases)
		}
		var recent footprint.Recent
		var one, other footprint.Instance
		places := []uint64{0, 2, 8, 16, 24, 48, 1 << 32, 1<<32 + 8, 1<<32 + 64, 1 << 33, 3 << 33, 5 << 33, 7 << 40}
		for _, a := range places {
			for _, b := range places {
				l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{4, 1, 1},
					Params: appendUint(appendUint(appendUint(nil, a, 8), b, 8), uint64(a%3), 4)}
				recent.Evaluate(s, l, &one)
				s.Evaluate(l, &other)
				if bad := different(&one, &other); bad != "" {
					t.Fatalf("%s, a %x, b %x: %s", x.name, a, b, bad)
				}
			}
		}
		if len(x.bases) > 0 && recent.Hits < 20 {
			t.Errorf("%s: %d remembered", x.name, recent.Hits)
		}
	}
}

// Whatever is written over what was remembered, it is never taken for something else; and nothing is allocated.
func TestRecentIsBounded(t *testing.T) {
	s := summaryOf(t, "axpy")
	_, line := kernelIn(t, "axpy")
	l := launchOf(t, line)
	var recent footprint.Recent
	var one, other footprint.Instance
	next := uint32(0)
	some := func() {
		for range 1000 {
			next = next*1664525 + 1013904223
			l.Grid[0] = 1 + next>>18
			recent.Evaluate(s, l, &one)
		}
	}
	for range 40 {
		some()
		s.Evaluate(l, &other)
		if bad := different(&one, &other); bad != "" {
			t.Fatal(bad)
		}
	}
	if words, room := recent.Written(); words < 2*room {
		t.Errorf("%d words were written: nothing was written over", words)
	}
	if n := testing.AllocsPerRun(10, some); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A kernel may have the same numbers at many places of a program, where its buffers lie at other distances: all of them
// are remembered.
func TestRecentDistances(t *testing.T) {
	s := summarised(t, "k", `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) {
	.reg .b64 %rd<6>;
	.reg .b32 %r<3>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 1024;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	ld.global.u32 %r2, [%rd4];
	st.global.u32 [%rd5], %r2;
	ret;
}
`)
	const most = footprint.RecentDistances
	var recent footprint.Recent
	var one, other footprint.Instance
	for round := range 3 {
		for i := range uint64(most) {
			l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}
			l.Params = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 1<<40), 1<<40+4*i)
			before := recent.Hits
			recent.Evaluate(s, l, &one)
			s.Evaluate(l, &other)
			if bad := different(&one, &other); bad != "" || recent.Hits > before != (round > 0) {
				t.Errorf("round %d, distance %d: %s, remembered: %v", round, 4*i, bad, recent.Hits > before)
			}
		}
	}
}

// A kernel of which nothing is known has no program, also when its summary was read. What an Instance held before is
// not taken for what it does.
func TestRecentOpaque(t *testing.T) {
	b, err := footprint.Opaque("k", nil).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var s footprint.Summary
	if err := s.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	second := summarised(t, "other", `.version 8.0
.target sm_80
.address_size 64
.visible .entry other(.param .u64 a, .param .u64 b) {
	.reg .b64 %rd<3>;
	.reg .b32 %r<2>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	ld.global.u32 %r1, [%rd1];
	st.global.u32 [%rd2], %r1;
	ret;
}
`)
	l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}
	l.Params = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 1<<40), 1<<41)
	for _, used := range []bool{false, true} {
		var recent footprint.Recent
		var one, other footprint.Instance
		if used {
			recent.Evaluate(second, l, &one)
		}
		s.Evaluate(l, &other)
		for range 2 {
			if recent.Evaluate(&s, l, &one); different(&one, &other) != "" {
				t.Errorf("used before: %v: %s", used, different(&one, &other))
			}
		}
	}
}

// A kernel that reads a variable of its module, as sin and cos do, is remembered though nobody says where that is; but
// not beyond an allocation, where the variable might be.
func TestRecentReadsVariable(t *testing.T) {
	const text = `.version 7.0
.target sm_70
.address_size 64
.global .align 4 .b32 table[6] = {1, 2, 3, 4, 5, 6};
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	ld.global.u32 %r2, [%rd4];
	rem.u32 %r3, %r2, 6;
	mov.u64 %rd6, table;
	mul.wide.u32 %rd7, %r3, 4;
	add.s64 %rd8, %rd6, %rd7;
	ld.global.u32 %r4, [%rd8];
	st.global.u32 [%rd5], %r4;
	ret;
}`
	s := summarised(t, "k", text)
	var recent footprint.Recent
	var one, other footprint.Instance
	allocs := []footprint.Range{{Lo: 0x10000, Hi: 0x20000}, {Lo: 0x30000, Hi: 0x40000}}
	for _, x := range []struct {
		a, b       uint64
		remembered bool
		verdict    footprint.Verdict
	}{
		{0x10000, 0x30000, false, footprint.Idempotent},
		{0x10000, 0x30000, true, footprint.Idempotent},
		{0x30000, 0x10000, true, footprint.Idempotent},
		{0x30000, 0x1ff80, true, footprint.Idempotent},
		{0x30000, 0x1ff84, false, footprint.Unknown}, // its last word may be in the variable
		{0x30000, 0x50000, false, footprint.Unknown},
		{0x10000, 0x10000, false, footprint.NotIdempotent},
	} {
		l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Cluster: [3]uint32{1, 1, 1},
			Allocs: allocs, Params: make([]byte, 20)}
		binary.LittleEndian.PutUint64(l.Params, x.a)
		binary.LittleEndian.PutUint64(l.Params[8:], x.b)
		before := recent.Hits
		recent.Evaluate(s, l, &one)
		s.Evaluate(l, &other)
		if bad := different(&one, &other); bad != "" || one.Verdict != x.verdict ||
			recent.Hits > before != x.remembered {
			t.Errorf("a %x, b %x: %s: %v, remembered %v", x.a, x.b, bad, one.Verdict, recent.Hits > before)
		}
	}
}
