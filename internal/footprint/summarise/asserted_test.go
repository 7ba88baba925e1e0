package summarise

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast/internal/footprint"
)

// assertions are indices, %rd9, into array a of words, which were loaded from array b (%rd4 and %rd5 of 64 bits, %r4 of
// 32) and compared before, and the bytes of a that are read; hi = 0: nobody knows. %r1 is the number of the thread, of
// 64, %rd3 a parameter.
var assertions = []struct {
	name, body string
	n          uint64
	lo, hi     int64
}{
	{"an index that may be negative", `
	add.s64 %rd6, %rd4, 1000;
	setp.lt.s64 %p1, %rd4, 0;
	selp.b64 %rd9, %rd6, %rd4, %p1;
	setp.lt.u64 %p2, %rd9, 1000;
	@%p2 bra $L_ok;
	trap;
$L_ok:`, 0, 0, 4000},
	{"the other index", `
	add.s64 %rd6, %rd4, 1000;
	setp.lt.s64 %p1, %rd4, 0;
	selp.b64 %rd7, %rd6, %rd4, %p1;
	setp.lt.s64 %p1, %rd5, 0;
	add.s64 %rd6, %rd5, 1000;
	selp.b64 %rd9, %rd6, %rd5, %p1;
	setp.lt.u64 %p2, %rd7, 1000;
	@%p2 bra $L_ok;
	trap;
$L_ok:`, 0, 0, 0},
	{"an assertion that not all threads make", `
	add.s64 %rd6, %rd4, 1000;
	setp.lt.s64 %p1, %rd4, 0;
	selp.b64 %rd9, %rd6, %rd4, %p1;
	setp.lt.u32 %p3, %r1, 32;
	@%p3 bra $L_ok;
	setp.lt.u64 %p2, %rd9, 1000;
	@%p2 bra $L_ok;
	trap;
$L_ok:`, 0, 0, 0},
	{"an assertion of those threads that read", `
	setp.lt.u32 %p9, %r1, 32;
	add.s64 %rd6, %rd4, 1000;
	setp.lt.s64 %p1, %rd4, 0;
	selp.b64 %rd9, %rd6, %rd4, %p1;
	setp.lt.u64 %p2, %rd9, 1000;
	not.pred %p3, %p9;
	or.pred %p4, %p2, %p3;
	@%p4 bra $L_ok;
	trap;
$L_ok:`, 0, 0, 4000},
	{"an assertion of those threads that do not", `
	setp.lt.u32 %p9, %r1, 32;
	add.s64 %rd6, %rd4, 1000;
	setp.lt.s64 %p1, %rd4, 0;
	selp.b64 %rd9, %rd6, %rd4, %p1;
	setp.lt.u64 %p2, %rd9, 1000;
	or.pred %p4, %p2, %p9;
	@%p4 bra $L_ok;
	trap;
$L_ok:`, 0, 0, 0},
	{"the largest of two, for those that read", `
	setp.lt.s32 %p9, %r1, 40;
	setp.gt.s32 %p3, %r1, 39;
	add.s64 %rd9, %rd4, 7;
	max.u64 %rd6, %rd9, %rd5;
	setp.lt.u64 %p2, %rd6, 1000;
	or.pred %p4, %p3, %p2;
	@%p4 bra $L_ok;
	trap;
$L_ok:`, 0, 0, 4000},
	{"the largest of two, but for one that reads", `
	setp.lt.s32 %p9, %r1, 40;
	setp.gt.s32 %p3, %r1, 38;
	add.s64 %rd9, %rd4, 7;
	max.u64 %rd6, %rd9, %rd5;
	setp.lt.u64 %p2, %rd6, 1000;
	or.pred %p4, %p3, %p2;
	@%p4 bra $L_ok;
	trap;
$L_ok:`, 0, 0, 0},
	{"the smallest of two", `
	add.s64 %rd9, %rd4, 7;
	min.u64 %rd6, %rd9, %rd5;
	setp.lt.u64 %p2, %rd6, 1000;
	@%p2 bra $L_ok;
	trap;
$L_ok:`, 0, 0, 0},
	{"bits of a vector's assertions", `
	setp.lt.u32 %p9, %r1, 32;
	add.s64 %rd9, %rd4, 7;
	setp.gt.u64 %p1, %rd9, 99;
	selp.b16 %rs1, -1, 0, %p1;
	shl.b16 %rs2, %rs1, 3;
	setp.gt.u64 %p2, %rd5, 99;
	selp.b16 %rs3, 1, 0, %p2;
	or.b16 %rs4, %rs3, %rs2;
	and.b16 %rs5, %rs4, 15;
	setp.ne.b16 %p3, %rs5, 0;
	and.pred %p4, %p9, %p3;
	not.pred %p5, %p4;
	@%p5 bra $L_ok;
	trap;
$L_ok:`, 0, 0, 400},
	{"bits that nobody asks for", `
	add.s64 %rd9, %rd4, 7;
	setp.gt.u64 %p1, %rd9, 99;
	selp.b16 %rs1, -1, 0, %p1;
	shl.b16 %rs2, %rs1, 3;
	setp.gt.u64 %p2, %rd5, 99;
	selp.b16 %rs3, 1, 0, %p2;
	or.b16 %rs4, %rs3, %rs2;
	and.b16 %rs5, %rs4, 7;
	setp.ne.b16 %p3, %rs5, 0;
	not.pred %p5, %p3;
	@%p5 bra $L_ok;
	trap;
$L_ok:`, 0, 0, 0},
	{"a product that wraps around", `
	max.s64 %rd5, %rd4, 0;
	mul.lo.s64 %rd6, %rd5, 3;
	add.s64 %rd9, %rd6, 5;
	setp.gt.u64 %p2, %rd9, 8;
	@%p2 bra $L_end;`, 0, 0, 36},
	{"signed, with a number from outside", `
	add.s64 %rd6, %rd4, %rd3;
	setp.lt.s64 %p1, %rd4, 0;
	selp.b64 %rd9, %rd6, %rd4, %p1;
	setp.ge.s64 %p2, %rd9, 0;
	setp.lt.s64 %p3, %rd9, %rd3;
	and.pred %p4, %p2, %p3;
	not.pred %p5, %p4;
	@%p5 bra $L_end;`, 50, 0, 200},
	{"signed, on one side", `
	add.s64 %rd6, %rd4, %rd3;
	setp.lt.s64 %p1, %rd4, 0;
	selp.b64 %rd9, %rd6, %rd4, %p1;
	setp.lt.s64 %p3, %rd9, %rd3;
	@!%p3 bra $L_end;`, 50, 0, 0},
	{"the low half", `
	cvt.u32.u64 %r5, %rd4;
	setp.lt.u32 %p3, %r5, 100;
	mov.u64 %rd9, %rd4;
	@!%p3 bra $L_end;`, 0, 0, 0},
	{"32 bits", `
	add.s32 %r5, %r4, 100;
	setp.lt.s32 %p1, %r4, 0;
	selp.b32 %r6, %r5, %r4, %p1;
	setp.lt.u32 %p3, %r6, 100;
	@!%p3 bra $L_end;
	cvt.s64.s32 %rd9, %r6;`, 0, 0, 400},
	{"32 bits without a sign", `
	add.s32 %r5, %r4, 100;
	setp.lt.s32 %p1, %r4, 0;
	selp.b32 %r6, %r5, %r4, %p1;
	setp.lt.u32 %p3, %r6, 100;
	@!%p3 bra $L_end;
	cvt.u64.u32 %rd9, %r6;`, 0, 0, 400},
	{"32 bits, a bound that is negative", `
	cvt.u32.u64 %r7, %rd3;
	add.s32 %r5, %r4, 100;
	setp.lt.s32 %p1, %r4, 0;
	selp.b32 %r6, %r5, %r4, %p1;
	setp.lt.u32 %p3, %r6, %r7;
	@!%p3 bra $L_end;
	cvt.s64.s32 %rd9, %r6;`, 0xf0000000, -1<<33 + 400, 1 << 33},
	{"a guard of what is above", `
	setp.gt.u64 %p3, %rd4, 100;
	@!%p3 bra $L_end;
	mov.u64 %rd9, %rd4;`, 0, 0, 0},
}

const assertedKernel = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 n)
.maxntid 64, 1, 1
{
	.reg .pred %%p<10>;
	.reg .b16 %%rs<10>;
	.reg .b32 %%r<20>;
	.reg .b64 %%rd<40>;
	ld.param.u64 %%rd1, [a];
	ld.param.u64 %%rd2, [b];
	ld.param.u64 %%rd3, [n];
	mov.u32 %%r1, %%tid.x;
	ld.global.u64 %%rd4, [%%rd2];
	ld.global.u64 %%rd5, [%%rd2+8];
	ld.global.u32 %%r4, [%%rd2+16];
	setp.eq.s32 %%p9, %%r1, %%r1;
%s
	shl.b64 %%rd10, %%rd9, 2;
	add.s64 %%rd11, %%rd1, %%rd10;
	@%%p9 ld.global.u32 %%r19, [%%rd11];
$L_end:
	ret;
}
`

// asserted evaluates a kernel of one block, and gives what it reads beside array b.
func asserted(t *testing.T, body string, n uint64, in *footprint.Instance) []footprint.Range {
	t.Helper()
	src := fmt.Sprintf(assertedKernel, body)
	s := summarised(t, "asserted", src)
	l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}}
	l.Params = appendUint(appendUint(appendUint(nil, assertedA, 8), assertedB, 8), n, 8)
	s.Evaluate(l, in)
	var reads []footprint.Range
	for _, r := range in.Reads {
		if r.Lo < assertedB || r.Hi > assertedB+64 {
			reads = append(reads, r)
		}
	}
	return reads
}

const assertedA, assertedB = 1 << 40, 1 << 41

func TestAssertions(t *testing.T) {
	for _, x := range assertions {
		t.Run(x.name, func(t *testing.T) {
			var in footprint.Instance
			reads := asserted(t, x.body, x.n, &in)
			switch {
			case x.hi == 0 && !in.ReadsUnknown:
				t.Errorf("reads %x", reads)
			case x.hi != 0 && (in.ReadsUnknown || len(reads) != 1 ||
				reads[0] != footprint.Range{Lo: uint64(assertedA + x.lo), Hi: uint64(assertedA + x.hi)}):
				t.Errorf("reads %x (unknown: %v), not %x to %x", reads, in.ReadsUnknown, assertedA+x.lo, assertedA+x.hi)
			}
		})
	}
}

// TestRandomAssertions makes indices from a loaded number by a few operations that may overflow, compares some of them,
// and looks whether what is read where the comparisons hold lies in what was found.
func TestRandomAssertions(t *testing.T) {
	n := 4000
	if testing.Short() {
		n = 400
	}
	bounded := 0
	var in footprint.Instance
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 7))
		pick := func(list ...int64) int64 { return list[r.IntN(len(list))] }
		constant := func() int64 {
			return pick(0, 1, 3, 5, 8, 100, 1000, -1, -7, -1000, 1<<31, 1<<32-1, 1<<62, -1<<63, 1<<63-1)
		}
		values := []func(x int64) int64{func(x int64) int64 { return x }}
		body := "mov.u64 %rd20, %rd4;\n"
		var guards []func(x int64) bool
		for range 2 + r.IntN(5) {
			i := r.IntN(len(values))
			f, from, to := values[i], fmt.Sprintf("%%rd%d", 20+i), fmt.Sprintf("%%rd%d", 20+len(values))
			c := constant()
			var g func(x int64) int64
			switch r.IntN(8) {
			case 0:
				body += fmt.Sprintf("add.s64 %s, %s, %d;\n", to, from, c)
				g = func(x int64) int64 { return f(x) + c }
			case 1:
				body += fmt.Sprintf("mul.lo.s64 %s, %s, %d;\n", to, from, c)
				g = func(x int64) int64 { return f(x) * c }
			case 2:
				body += fmt.Sprintf("add.s64 %%rd19, %s, %d;\nsetp.lt.s64 %%p1, %s, 0;\n"+
					"selp.b64 %s, %%rd19, %s, %%p1;\n", from, c, from, to, from)
				g = func(x int64) int64 {
					if f(x) < 0 {
						return f(x) + c
					}
					return f(x)
				}
			case 3:
				body += fmt.Sprintf("max.s64 %s, %s, %d;\n", to, from, c)
				g = func(x int64) int64 { return max(f(x), c) }
			case 4:
				body += fmt.Sprintf("min.u64 %s, %s, %d;\n", to, from, c)
				g = func(x int64) int64 { return int64(min(uint64(f(x)), uint64(c))) }
			case 5:
				body += fmt.Sprintf("cvt.u32.u64 %%r9, %s;\ncvt.s64.s32 %s, %%r9;\n", from, to)
				g = func(x int64) int64 { return int64(int32(f(x))) }
			case 6:
				body += fmt.Sprintf("cvt.u32.u64 %%r9, %s;\ncvt.u64.u32 %s, %%r9;\n", from, to)
				g = func(x int64) int64 { return int64(uint32(f(x))) }
			case 7:
				body += fmt.Sprintf("shr.s64 %s, %s, 1;\n", to, from)
				g = func(x int64) int64 { return f(x) >> 1 }
			}
			values = append(values, g)
		}
		for range 1 + r.IntN(3) {
			i := r.IntN(len(values))
			if r.IntN(2) == 0 {
				i = len(values) - 1
			}
			f, c := values[i], constant()
			k := r.IntN(4)
			body += fmt.Sprintf("%s;\n@!%%p2 bra $L_end;\n", []string{
				fmt.Sprintf("setp.lt.u64 %%p2, %%rd%d, %d", 20+i, c),
				fmt.Sprintf("setp.gt.s64 %%p2, %%rd%d, %d", 20+i, c),
				fmt.Sprintf("setp.le.s64 %%p2, %%rd%d, %d", 20+i, c),
				fmt.Sprintf("cvt.u32.u64 %%r9, %%rd%d;\nsetp.lt.u32 %%p2, %%r9, %d", 20+i, uint32(c)),
			}[k])
			guards = append(guards, func(x int64) bool {
				switch y := f(x); k {
				case 0:
					return uint64(y) < uint64(c)
				case 1:
					return y > c
				case 2:
					return y <= c
				default:
					return uint32(y) < uint32(c)
				}
			})
		}
		index := values[len(values)-1]
		body += fmt.Sprintf("mov.u64 %%rd9, %%rd%d;\n", 20+len(values)-1)
		reads := asserted(t, body, 0, &in)
		if in.ReadsUnknown {
			continue
		}
		bounded++
		for range 3000 {
			x := int64(r.Uint64()) >> r.IntN(64)
			if r.IntN(2) == 0 {
				x = constant() + pick(-2, -1, 0, 1, 2, 500)
			}
			holds := true
			for _, g := range guards {
				holds = holds && g(x)
			}
			if at := uint64(assertedA + 4*index(x)); holds && !inside(reads, at) {
				t.Fatalf("seed %d: %d is loaded, and %x read, which is not in %x\n%s", seed, x, at, reads, body)
			}
		}
	}
	t.Logf("%d of %d have bounds", bounded, n)
	if bounded < n/10 {
		t.Error("the test has become weak")
	}
}
