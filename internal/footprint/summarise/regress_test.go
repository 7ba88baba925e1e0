package summarise

import (
	"slices"
	"testing"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/form"
)

// regressions are kernels k(a, n) of 4 threads, each with a byte that was once missing from its footprint.
var regressions = []struct {
	name, body string
	n          uint32
	byte       uint64 // of a, that is written
}{
	{"a choice that has no way under a condition that does not hold", `
	mov.u32 %r5, 0;
	setp.ge.u32 %p1, %r2, 10;
	@%p1 bra OUT;
	mov.u32 %r5, %r1;
	setp.lt.u32 %p1, %r2, 3;
	@%p1 bra IN;
	add.s32 %r5, %r1, %r1;
	setp.lt.u32 %p1, %r2, 6;
	@%p1 bra IN;
	mov.u32 %r5, 3;
IN:
	mul.lo.s32 %r5, %r5, %r5;
OUT:`, 20, 0},
	{"sums of two numbers without bounds have all bits", `
	mov.u32 %r3, %r2;
L:
	xor.b32 %r5, %r3, 15;
	add.s32 %r3, %r3, 2;
	setp.lt.u32 %p1, %r3, 4;
	@%p1 bra L;`, 7, 4 * (7 ^ 15)},
	{"multiples of 64 bits that overflow (what is loaded is 2^61)", `
	ld.global.u64 %rd4, [%rd1];
	shl.b64 %rd5, %rd4, 3;
	setp.lt.s64 %p1, %rd5, 32;
	@!%p1 ret;
	setp.ge.s64 %p1, %rd5, 0;
	@!%p1 ret;
	shr.s64 %rd4, %rd4, 58;
	cvt.u32.u64 %r5, %rd4;`, 0, 4 * 8},
	{"the same without a sign", `
	ld.global.u64 %rd4, [%rd1];
	shl.b64 %rd5, %rd4, 3;
	setp.ge.u64 %p1, %rd5, 32;
	@%p1 ret;
	shr.u64 %rd4, %rd4, 58;
	cvt.u32.u64 %r5, %rd4;`, 0, 4 * 8},
}

func TestRegressions(t *testing.T) {
	for _, x := range regressions {
		s := summarised(t, x.name, `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u32 n)
{
	.reg .pred %p<4>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [a];
	ld.param.u32 %r2, [n];
	mov.u32 %r1, %tid.x;
`+x.body+`
	mul.wide.s32 %rd2, %r5, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r1;
	ret;
}
`)
		const a = 1 << 32
		l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{4, 1, 1},
			Params: appendUint(appendUint(nil, a, 8), uint64(x.n), 4)}
		var in footprint.Instance
		s.Evaluate(l, &in)
		if !in.WritesUnknown && !inside(in.Writes, a+x.byte) {
			t.Errorf("%s: byte %d of a is written; %x is foreseen", x.name, x.byte, in.Writes)
		}
	}
}

// Numbers that are all beyond what bounds can be are as good as not known: a quotient of two of them was taken for at
// least 1.
func TestKnownBeyondBounds(t *testing.T) {
	const a, b, tab = 1 << 32, 1 << 33, 1 << 40
	s := tableKernel(t, `
	ld.global.u64 %rd8, [%rd3];
	ld.global.u64 %rd9, [%rd3+8];
	div.s64 %rd10, %rd8, %rd9;
	min.s64 %rd10, %rd10, 8;
	max.s64 %rd10, %rd10, 0;
	shl.b64 %rd10, %rd10, 2;
	add.s64 %rd10, %rd1, %rd10;
	ld.global.u32 %r4, [%rd10];
	st.global.u32 [%rd7], %r4;`)
	known := words(8, 5<<60, 7<<60)
	l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{4, 1, 1}, Known: []footprint.Known{
		{Range: footprint.Range{Lo: tab, Hi: tab + 16}, Contents: footprint.NewContents(known, 16)}}}
	for _, p := range []uint64{a, b, tab} {
		l.Params = appendUint(l.Params, p, 8)
	}
	l.Params = appendUint(l.Params, 0, 4)
	var in footprint.Instance
	s.Evaluate(l, &in)
	if !in.ReadsUnknown && !inside(in.Reads, a) {
		t.Errorf("byte 0 of a is read; %x is foreseen", in.Reads)
	}
}

// A program that is evaluated without known contents asks for none.
func TestCheckTables(t *testing.T) {
	s := *tableKernel(t, "ld.global.u32 %r3, [%rd5];"+gather)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	prog := s.Code
	s.Code = s.KnowingCode
	if s.Check() == nil {
		t.Error("a summary that takes the one program for the other is accepted")
	}
	s.Code = prog
	s.KnowingCode.Vars = slices.Clone(s.KnowingCode.Vars)
	for i := range s.KnowingCode.Vars {
		if s.KnowingCode.Vars[i].Kind == form.KindTable {
			s.KnowingCode.Vars[i].W = 1
		}
	}
	if s.Check() == nil {
		t.Error("a summary with words of one bit is accepted")
	}
}

// A remainder by 0 has all its bits set, and x - x/m*m is x where m is 0: the two are not one number in all launches.
func TestRemainderByZero(t *testing.T) {
	for _, same := range []bool{false, true} {
		written := "rem.s32 %r3, %r2, %r1;"
		if same {
			written = "mov.u32 %r3, %r6;"
		}
		s := summarised(t, "remainder", `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u32 m)
{
	.reg .b64 %rd<6>;
	.reg .b32 %r<9>;
	ld.param.u64 %rd1, [a];
	ld.param.u32 %r1, [m];
	mov.u32 %r2, %tid.x;
	div.s32 %r4, %r2, %r1;
	mul.lo.s32 %r5, %r4, %r1;
	sub.s32 %r6, %r2, %r5;
	`+written+`
	mul.wide.s32 %rd2, %r3, 4;
	add.s64 %rd3, %rd1, %rd2;
	mul.wide.s32 %rd4, %r6, 4;
	add.s64 %rd5, %rd1, %rd4;
	st.global.u32 [%rd3], 5;
	ld.global.u32 %r7, [%rd5];
	add.s32 %r8, %r7, 1;
	st.global.u32 [%rd5], %r8;
	ret;
}
`)
		l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: []byte{5: 1, 11: 0}}
		var in footprint.Instance
		if s.Evaluate(l, &in); (in.Verdict == footprint.Idempotent) != same {
			t.Errorf("the same number: %v: %v", same, in.Verdict)
		}
	}
}
