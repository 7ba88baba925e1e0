package softgpu

import "testing"

// A recursive function whose frames hold arrays of different sizes, and a kernel that takes its stack back.
const allocaKernels = header + `.func (.param .b32 sum) walk(.param .b32 n)
{
	.reg .pred %p<3>;
	.reg .b32 %r<20>;
	ld.param.u32 %r1, [n];
	mov.u32 %r9, 0;
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra DONE;
	shl.b32 %r2, %r1, 2;
	alloca.u32 %r3, %r2;
	mov.u32 %r4, 0;
FILL:
	shl.b32 %r5, %r4, 2;
	add.u32 %r5, %r5, %r3;
	st.local.u32 [%r5], %r1;
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p2, %r4, %r1;
	@%p2 bra FILL;
	sub.u32 %r6, %r1, 1;
	{
		.param .b32 a;
		.param .b32 b;
		st.param.b32 [a], %r6;
		call (b), walk, (a);
		ld.param.b32 %r9, [b];
	}
	mov.u32 %r4, 0;
SUM:
	shl.b32 %r5, %r4, 2;
	add.u32 %r5, %r5, %r3;
	ld.local.u32 %r7, [%r5];
	add.u32 %r9, %r9, %r7;
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p2, %r4, %r1;
	@%p2 bra SUM;
DONE:
	st.param.b32 [sum], %r9;
	ret;
}
.visible .entry squares(.param .u64 out)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd1, %rd1, %rd2;
	stacksave.u32 %r5;
	{
		.param .b32 a;
		.param .b32 b;
		st.param.b32 [a], %r1;
		call (b), walk, (a);
		ld.param.b32 %r2, [b];
	}
	stacksave.u32 %r6;
	sub.u32 %r6, %r5, %r6;
	add.u32 %r2, %r2, %r6;
	st.global.u32 [%rd1], %r2;
	ret;
}
.visible .entry again(.param .u64 out)
{
	.reg .pred %p<2>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, 0;
LOOP:
	stacksave.u64 %rd2;
	alloca.u64 %rd3, 20000, 64;
	and.b64 %rd4, %rd3, 63;
	st.local.u32 [%rd3+19996], %r1;
	cvta.local.u64 %rd5, %rd3;
	ld.u32 %r2, [%rd5+19996];
	stackrestore.u64 %rd2;
	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p1, %r1, 10;
	@%p1 bra LOOP;
	st.global.u32 [%rd1], %r2;
	st.global.u64 [%rd1+8], %rd4;
	ret;
}
.visible .entry much()
{
	.reg .b32 %r<3>;
	alloca.u32 %r1, 1000000;
	ret;
}
`

func TestAlloca(t *testing.T) {
	d := newDevice(t, 8)
	in := d.load(allocaKernels)
	out := d.alloc(64 * 4)
	d.run(in, "squares", LaunchConfig{Grid: dims(2), Block: dims(40), Params: params(out)})
	for i, x := range view[uint32](d, out, 40) {
		if want := uint32(i * (i + 1) * (2*i + 1) / 6); x != want { // the sum of n arrays of n times n
			t.Fatalf("thread %d: %d, want %d", i, x, want)
		}
	}
	d.run(in, "again", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(out)})
	if got := view[uint64](d, out, 2); uint32(got[0]) != 9 || got[1] != 0 {
		t.Errorf("last value and misalignment: %v", got)
	}
	d.fails(in, "much", LaunchConfig{Grid: dims(1), Block: dims(1)}, FaultStack)
}
