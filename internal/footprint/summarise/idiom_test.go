package summarise

import (
	"fmt"
	"testing"

	"holdfast/internal/footprint"
)

// idioms are what compilers write for an index, %r9, of 128 threads in each of 3 blocks, and the bytes of array a
// that are read with it, as far as it is known; hi = 0: it is not. %r1 is the number of the thread, %r2 a parameter.
var idioms = []struct {
	name, body string
	n          uint32
	lo, hi     int64
}{
	{"a row backwards", `
	mul.hi.u32 %r3, %r1, 715827883;
	shr.u32 %r4, %r3, 3;
	mul.lo.s32 %r5, %r4, 48;
	sub.s32 %r6, %r1, %r5;
	shl.b32 %r7, %r6, 1;
	sub.s32 %r8, %r1, %r7;
	add.s32 %r9, %r8, 47;`, 0, 0, 4 * 384},
	{"the maximum with a number", `
	sub.s32 %r3, %r1, 200;
	cvt.rn.f32.s32 %r4, %r3;
	max.f32 %r5, %r4, 0f00000000;
	cvt.rzi.s32.f32 %r6, %r5;
	min.s32 %r9, %r6, 7;`, 0, 0, 32},
	{"the maximum with what is no number", `
	sub.s32 %r3, %r1, 200;
	cvt.rn.f32.s32 %r4, %r3;
	max.f32 %r5, %r4, 0f7FC00000;
	cvt.rzi.s32.f32 %r6, %r5;
	min.s32 %r9, %r6, 7;`, 0, -1 << 33, 32},
	{"a negative number shifted by what differs", `
	sub.s32 %r3, %r2, 16;
	shr.u32 %r4, %r1, 8;
	shl.b32 %r9, %r3, %r4;`, 2, -1 << 33, 1 << 33},
	{"a number shifted by what differs", `
	shr.u32 %r4, %r1, 8;
	shl.b32 %r9, %r2, %r4;`, 2, 8, 20},
	{"by fours to what is not above", `
	mov.u32 %r9, 0;
	setp.lt.u32 %p2, %r1, 3;
	@%p2 bra $L_end;
	add.s32 %r3, %r1, 1;
	and.b32 %r4, %r3, 3;
	sub.s32 %r5, %r1, %r4;
$L_1:
	add.s32 %r9, %r9, 4;
	add.s32 %r5, %r5, -4;
	setp.ne.s32 %p1, %r5, -1;
	@%p1 bra $L_1;`, 0, 16, 1540},
	{"by fours, and a test that allows one more", `
	mov.u32 %r9, 0;
	setp.lt.u32 %p2, %r1, 2;
	@%p2 bra $L_end;
	add.s32 %r3, %r1, 1;
	and.b32 %r4, %r3, 3;
	sub.s32 %r5, %r1, %r4;
$L_1:
	add.s32 %r9, %r9, 4;
	add.s32 %r5, %r5, -4;
	setp.ne.s32 %p1, %r5, -1;
	@%p1 bra $L_1;`, 0, 0, 0},
	{"by threes to a multiple of four", `
	mov.u32 %r9, 0;
	setp.lt.u32 %p2, %r1, 3;
	@%p2 bra $L_end;
	add.s32 %r3, %r1, 1;
	and.b32 %r4, %r3, 3;
	sub.s32 %r5, %r1, %r4;
$L_1:
	add.s32 %r9, %r9, 3;
	add.s32 %r5, %r5, -3;
	setp.ne.s32 %p1, %r5, -1;
	@%p1 bra $L_1;`, 0, 0, 0},
	{"by twos to what is not above", `
	mov.u32 %r9, 0;
	setp.eq.s32 %p2, %r1, 0;
	@%p2 bra $L_end;
	add.s32 %r3, %r1, 1;
	and.b32 %r4, %r3, 1;
	sub.s32 %r5, %r1, %r4;
$L_1:
	add.s32 %r9, %r9, 2;
	add.s32 %r5, %r5, -2;
	setp.ne.s32 %p1, %r5, -1;
	@%p1 bra $L_1;`, 0, 8, 1540},
	{"by twos without a test", `
	mov.u32 %r9, 0;
	add.s32 %r3, %r1, 1;
	and.b32 %r4, %r3, 1;
	sub.s32 %r5, %r1, %r4;
$L_1:
	add.s32 %r9, %r9, 2;
	add.s32 %r5, %r5, -2;
	setp.ne.s32 %p1, %r5, -1;
	@%p1 bra $L_1;`, 0, 0, 0},
	{"the remainder of 64 bits by 2", `
	cvt.u64.u32 %rd5, %r1;
	shr.u64 %rd6, %rd5, 63;
	add.s64 %rd7, %rd5, %rd6;
	and.b64 %rd7, %rd7, -2;
	sub.s64 %rd8, %rd5, %rd7;
	setp.lt.s64 %p1, %rd8, 0;
	add.s64 %rd9, %rd8, 2;
	selp.b64 %rd9, %rd9, %rd8, %p1;
	cvt.u32.u64 %r9, %rd9;`, 0, 0, 8},
	{"the sign of what may be negative", `
	cvt.u64.u32 %rd5, %r1;
	add.s64 %rd5, %rd5, -1;
	shr.u64 %rd6, %rd5, 63;
	cvt.u32.u64 %r9, %rd6;`, 0, 0, 0},
	{"some bits of a multiple, and more", `
	shl.b32 %r3, %r40, 2;
	or.b32 %r4, %r3, -14;
	add.s32 %r9, %r4, 14;`, 0, 0, 4 * 13},
	{"bits that are not side by side, of a multiple", `
	shl.b32 %r3, %r40, 2;
	and.b32 %r9, %r3, 29;`, 0, 0, 4 * 29},
	{"bits that are not side by side", `
	and.b32 %r3, %r40, 13;
	or.b32 %r4, %r40, -14;
	add.s32 %r9, %r4, 14;`, 0, 0, 0},
	{"a mask without what is shifted out", `
	shr.u32 %r3, %r1, 2;
	and.b32 %r4, %r3, 131056;
	sub.s32 %r5, %r3, %r4;
	shl.b32 %r6, %r5, 15;
	shr.u32 %r9, %r6, 13;`, 0, 0, 4 * 61},
	{"a mask without more than what is shifted out", `
	shr.u32 %r3, %r1, 2;
	and.b32 %r4, %r3, 65520;
	sub.s32 %r5, %r3, %r4;
	shl.b32 %r6, %r5, 15;
	shr.u32 %r9, %r6, 13;`, 0, 0, 4 * 61},
	{"two quotients, one of a number with a sign", `
	shl.b32 %r3, %r41, 9;
	shl.b32 %r4, %r40, 1;
	or.b32 %r5, %r4, %r3;
	bfe.s32 %r6, %r41, 22, 1;
	shr.u32 %r7, %r6, 22;
	add.s32 %r8, %r5, %r7;
	shr.s32 %r10, %r8, 10;
	shr.u32 %r11, %r41, 1;
	sub.s32 %r9, %r10, %r11;`, 0, 0, 4},
	{"down to below 0, without a sign", `
	add.s32 %r3, %r2, -1;
$L_1:
	mov.u32 %r9, %r3;
	add.s32 %r3, %r3, -1;
	setp.lt.u32 %p1, %r3, %r2;
	@%p1 bra $L_1;`, 64, 0, 256},
	{"down by threes", `
	add.s32 %r3, %r2, -1;
$L_1:
	mov.u32 %r9, %r3;
	add.s32 %r3, %r3, -3;
	setp.lt.u32 %p1, %r3, %r2;
	@%p1 bra $L_1;`, 64, 0, 256},
	{"down past what is not below", `
	add.s32 %r3, %r2, -1;
$L_1:
	mov.u32 %r9, %r3;
	add.s32 %r3, %r3, -3;
	setp.lt.u32 %p1, %r3, %r2;
	@%p1 bra $L_1;`, 0xfffffffe, 0, 0},
	{"down from what differs", `
	shr.u32 %r3, %r40, 2;
$L_1:
	mov.u32 %r9, %r3;
	add.s32 %r3, %r3, -1;
	setp.lt.u32 %p1, %r3, %r2;
	@%p1 bra $L_1;`, 64, 0, 4 * 32},
	{"bits of minus a number", `
	and.b32 %r3, %r1, 63;
	not.b32 %r4, %r3;
	xor.b32 %r5, %r4, 31;
	add.s32 %r9, %r5, 64;`, 0, 0, 4 * 64},
	{"one off", `
	add.s32 %r10, %r1, 1;
	mul.hi.u32 %r3, %r10, 715827883;
	shr.u32 %r4, %r3, 3;
	mul.lo.s32 %r5, %r4, 48;
	sub.s32 %r6, %r10, %r5;
	shl.b32 %r7, %r6, 1;
	sub.s32 %r8, %r1, %r7;
	add.s32 %r9, %r8, 47;`, 0, -4, 0x6bc},
	{"a quotient without shifts", `
	mul.hi.u32 %r3, %r1, 715827883;
	and.b32 %r4, %r3, 0x3ffffff8;
	shr.u32 %r5, %r3, 3;
	mul.lo.s32 %r6, %r5, 8;
	sub.s32 %r9, %r4, %r6;`, 0, 0, 4},
	{"no quotient", `
	mul.hi.u32 %r3, %r1, 715827883;
	and.b32 %r4, %r3, 0x3ffffffa;
	shr.u32 %r5, %r3, 3;
	mul.lo.s32 %r6, %r5, 8;
	sub.s32 %r9, %r4, %r6;`, 0, -0xe0, 0x100},
	{"a signed remainder where there is no sign", `
	rem.u32 %r3, %r1, 48;
	and.b32 %r4, %r3, 48;
	setp.eq.s32 %p9, %r4, 16;
	cvt.u16.u32 %rs1, %r3;
	add.s16 %rs2, %rs1, -16;
	cvt.s16.s8 %rs3, %rs2;
	shr.u16 %rs4, %rs3, 11;
	and.b16 %rs5, %rs4, 15;
	add.s16 %rs6, %rs2, %rs5;
	and.b16 %rs7, %rs6, 240;
	sub.s16 %rs8, %rs2, %rs7;
	cvt.s16.s8 %rs9, %rs8;
	cvt.s32.s16 %r9, %rs9;`, 0, 0, 64},
	{"a signed remainder where there is one", `
	rem.u32 %r3, %r1, 48;
	and.b32 %r4, %r3, 48;
	setp.eq.s32 %p9, %r4, 0;
	cvt.u16.u32 %rs1, %r3;
	add.s16 %rs2, %rs1, -16;
	cvt.s16.s8 %rs3, %rs2;
	shr.u16 %rs4, %rs3, 11;
	and.b16 %rs5, %rs4, 15;
	add.s16 %rs6, %rs2, %rs5;
	and.b16 %rs7, %rs6, 224;
	sub.s16 %rs8, %rs2, %rs7;
	cvt.s16.s8 %rs9, %rs8;
	cvt.s32.s16 %r9, %rs9;`, 0, 0, 0},
	{"a value that is computed early, and what is left counted down by two", `
	mov.u32 %r3, 0;
	mov.u32 %r4, 1;
	mov.u32 %r5, %r2;
	mov.u32 %r9, 0;
$L_1:
	mul.wide.s32 %rd5, %r3, 4;
	add.s64 %rd6, %rd1, %rd5;
	ld.global.u32 %r50, [%rd6];
	setp.gt.s32 %p1, %r5, 0;
	setp.gt.s32 %p2, %r5, 0;
	selp.b32 %r6, -1, 0, %p1;
	add.s32 %r5, %r5, %r6;
	setp.gt.s32 %p3, %r5, 0;
	selp.b32 %r6, -1, 0, %p3;
	add.s32 %r5, %r5, %r6;
	selp.b32 %r3, %r4, 0, %p3;
	add.s32 %r4, %r4, 1;
	@%p3 bra $L_1;`, 10, 0, 24},
	{"what is left counted down by other conditions", `
	mov.u32 %r3, 0;
	mov.u32 %r4, 1;
	mov.u32 %r5, %r2;
	mov.u32 %r9, 0;
$L_1:
	mul.wide.s32 %rd5, %r3, 4;
	add.s64 %rd6, %rd1, %rd5;
	ld.global.u32 %r50, [%rd6];
	setp.gt.s32 %p1, %r5, 0;
	setp.gt.s32 %p2, %r50, 0;
	selp.b32 %r6, -1, 0, %p1;
	add.s32 %r5, %r5, %r6;
	setp.gt.s32 %p3, %r5, 0;
	selp.b32 %r6, -1, 0, %p2;
	add.s32 %r5, %r5, %r6;
	selp.b32 %r3, %r4, 0, %p3;
	add.s32 %r4, %r4, 1;
	@%p3 bra $L_1;`, 10, 0, 0},
	{"an index where it was chosen", `
	setp.lt.s32 %p9, %r1, %r2;
	add.s32 %r3, %r1, 1000;
	selp.b32 %r9, %r1, %r3, %p9;`, 10, 0, 40},
	{"an index where another was chosen", `
	add.s32 %r4, %r2, 1;
	setp.lt.s32 %p9, %r1, %r4;
	setp.lt.s32 %p8, %r1, %r2;
	add.s32 %r3, %r1, 1000;
	selp.b32 %r9, %r1, %r3, %p8;`, 10, 0, 4044},
	{"a quotient where it is not negative", `
	add.s32 %r3, %r1, -100;
	setp.gt.s32 %p1, %r3, 0;
	shr.u32 %r4, %r3, 3;
	selp.b32 %r9, %r4, 0, %p1;`, 0, 0, 4 * 36},
	{"a quotient where it may be negative", `
	add.s32 %r3, %r1, -100;
	setp.gt.s32 %p1, %r3, -2;
	shr.u32 %r4, %r3, 3;
	selp.b32 %r9, %r4, 0, %p1;`, 0, 0, 4*0x1fffffff + 4},
	{"a row rolled by three", `
	rem.u32 %r3, %r1, 48;
	setp.lt.u32 %p1, %r3, 3;
	selp.b32 %r4, 45, -3, %p1;
	add.s32 %r9, %r4, %r1;`, 0, 0, 4 * 384},
	{"a row rolled by three, one of which stays", `
	rem.u32 %r3, %r1, 48;
	setp.lt.u32 %p1, %r3, 2;
	selp.b32 %r4, 45, -3, %p1;
	add.s32 %r9, %r4, %r1;`, 0, -4, 4 * 383},
	{"multiples of four but the first", `
	shl.b32 %r5, %r1, 2;
	rem.u32 %r3, %r5, 48;
	add.s32 %r4, %r3, -3;
	setp.eq.s32 %p1, %r3, 0;
	selp.b32 %r9, 45, %r4, %p1;`, 0, 4, 4 * 46},
	{"multiples of four but the second", `
	shl.b32 %r5, %r1, 2;
	rem.u32 %r3, %r5, 48;
	add.s32 %r4, %r3, -3;
	setp.eq.s32 %p1, %r3, 4;
	selp.b32 %r9, 45, %r4, %p1;`, 0, -12, 4 * 46},
	{"bits between those of a negative number", `
	and.b32 %r3, %r1, 31;
	shl.b32 %r4, %r3, 3;
	or.b32 %r5, %r4, -255;
	add.s32 %r9, %r5, 255;`, 0, 0, 4 * 249},
	{"bits of a negative number", `
	and.b32 %r3, %r1, 31;
	shl.b32 %r4, %r3, 3;
	or.b32 %r5, %r4, -247;
	add.s32 %r9, %r5, 255;`, 0, 0x20, 0x3e4},
	{"a scaled index", `
	cvt.rn.f32.u32 %f1, %r1;
	mul.f32 %f2, %f1, 0f3EAAAAAB;
	max.f32 %f3, %f2, 0f00000000;
	cvt.rzi.s32.f32 %r9, %f3;`, 0, 0, 4 * 128},
	{"an index scaled by a negative number", `
	cvt.rn.f32.u32 %f1, %r1;
	mul.f32 %f2, %f1, 0fBEAAAAAB;
	max.f32 %f3, %f2, 0f00000000;
	cvt.rzi.s32.f32 %r9, %f3;`, 0, 0, 1 << 33},
	{"a scaled index, from its middle", `
	cvt.rn.f32.u32 %f1, %r1;
	add.f32 %f2, %f1, 0f3F000000;
	fma.rn.f32 %f3, %f2, 0f3EAAAAAB, 0fBF000000;
	max.f32 %f4, %f3, 0f00000000;
	cvt.rzi.s32.f32 %r9, %f4;`, 0, 0, 4 * 128},
	{"a remainder by the sign of an index", `
	bfe.s32 %r3, %r41, 24, 1;
	shr.u32 %r4, %r3, 26;
	add.s32 %r5, %r1, %r4;
	and.b32 %r6, %r5, -64;
	sub.s32 %r9, %r1, %r6;`, 0, 0, 4 * 64},
	{"a mask from one bit", `
	bfe.s32 %r3, %r40, 5, 1;
	and.b32 %r9, %r3, 100;`, 0, 0, 4 * 101},
	{"a scaled index, from elsewhere", `
	cvt.rn.f32.u32 %f1, %r1;
	add.f32 %f2, %f1, 0f3F000000;
	fma.rn.f32 %f3, %f2, 0f3EAAAAAB, 0fBF800000;
	max.f32 %f4, %f3, 0f00000000;
	cvt.rzi.s32.f32 %r9, %f4;`, 0, 0, 1 << 33},
}

func TestIdioms(t *testing.T) {
	for _, x := range idioms {
		t.Run(x.name, func(t *testing.T) {
			src := fmt.Sprintf(`.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
.maxntid 128, 1, 1
{
	.reg .pred %%p<20>;
	.reg .b16 %%rs<20>;
	.reg .f32 %%f<20>;
	.reg .b32 %%r<60>;
	.reg .b64 %%rd<20>;
	ld.param.u64 %%rd1, [a];
	ld.param.u64 %%rd2, [b];
	ld.param.u32 %%r2, [n];
	mov.u32 %%r40, %%tid.x;
	mov.u32 %%r41, %%ctaid.x;
	shl.b32 %%r42, %%r41, 7;
	or.b32 %%r1, %%r42, %%r40;
	setp.eq.s32 %%p9, %%r1, %%r1;
%s
	mul.wide.s32 %%rd3, %%r9, 4;
	add.s64 %%rd4, %%rd1, %%rd3;
	@%%p9 ld.global.u32 %%r50, [%%rd4];
$L_end:
	ret;
}
`, x.body)
			s := summarised(t, "idiom", src)
			const base = 1 << 40
			l := &footprint.Launch{Grid: [3]uint32{3, 1, 1}, Block: [3]uint32{128, 1, 1}}
			l.Params = appendUint(appendUint(appendUint(nil, base, 8), 1<<41, 8), uint64(x.n), 4)
			var in footprint.Instance
			s.Evaluate(l, &in)
			switch {
			case x.hi == 0 && !in.ReadsUnknown:
				t.Errorf("reads %x", in.Reads)
			case x.hi != 0 && (in.ReadsUnknown || len(in.Reads) != 1 ||
				in.Reads[0] != footprint.Range{Lo: uint64(base + x.lo), Hi: uint64(base + x.hi)}):
				t.Errorf("reads %x (unknown: %v), not %x to %x", in.Reads, in.ReadsUnknown, base+x.lo, base+x.hi)
			}
		})
	}
}
