package softgpu

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// Every lane takes its own way through a loop and a call; results are exact.
const collatz = header + `
.func (.param .b32 out) step(.param .b32 in)
{
	.reg .pred %p<2>;
	.reg .b32 %r<5>;
	ld.param.u32 %r1, [in];
	and.b32 %r2, %r1, 1;
	setp.eq.b32 %p1, %r2, 0;
	@%p1 bra EVEN;
	mad.lo.u32 %r3, %r1, 3, 1;
	st.param.b32 [out], %r3;
	ret;
EVEN:
	shr.u32 %r3, %r1, 1;
	st.param.b32 [out], %r3;
	ret;
}
.visible .entry collatz(.param .u64 p)
{
	.reg .pred %p<2>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.u32 %r4, %r2, %r3, %r1;
	add.u32 %r5, %r4, 1;
	mov.u32 %r6, 0;
LOOP:
	setp.eq.u32 %p1, %r5, 1;
	@%p1 bra DONE;
	{
		.param .b32 a;
		.param .b32 b;
		st.param.b32 [a], %r5;
		call.uni (b), step, (a);
		ld.param.b32 %r5, [b];
	}
	add.u32 %r6, %r6, 1;
	bra.uni LOOP;
DONE:
	mul.wide.u32 %rd2, %r4, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r6;
	ret;
}
`

func TestDivergentCalls(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(collatz)
		const n = 7 * 100
		p := d.alloc(4 * n)
		cfg.Grid, cfg.Block, cfg.Params = dims(7), dims(100), params(p)
		d.run(in, "collatz", cfg)
		for i, got := range view[uint32](d, p, n) {
			var want uint32
			for x := uint32(i + 1); x != 1; want++ {
				if x&1 == 0 {
					x >>= 1
				} else {
					x = 3*x + 1
				}
			}
			if got != want {
				t.Fatalf("%d: %d steps, want %d", i+1, got, want)
			}
		}
	})
}

// Recursion with a local variable that must survive, entered with different depth in each lane.
const fib = header + `
.func (.param .b32 out) fib(.param .b32 in)
{
	.local .align 4 .b8 depot[4];
	.reg .pred %p<2>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<3>;
	ld.param.u32 %r1, [in];
	setp.lt.u32 %p1, %r1, 2;
	@%p1 bra BASE;
	mov.u64 %rd1, depot;
	sub.u32 %r2, %r1, 1;
	{
		.param .b32 a;
		.param .b32 b;
		st.param.b32 [a], %r2;
		call.uni (b), fib, (a);
		ld.param.b32 %r3, [b];
	}
	st.local.u32 [%rd1], %r3;
	sub.u32 %r4, %r1, 2;
	{
		.param .b32 a;
		.param .b32 b;
		st.param.b32 [a], %r4;
		call.uni (b), fib, (a);
		ld.param.b32 %r5, [b];
	}
	ld.local.u32 %r6, [%rd1];
	add.u32 %r7, %r6, %r5;
	st.param.b32 [out], %r7;
	ret;
BASE:
	st.param.b32 [out], %r1;
	ret;
}
.visible .entry k(.param .u64 p)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	{
		.param .b32 a;
		.param .b32 b;
		st.param.b32 [a], %r1;
		call.uni (b), fib, (a);
		ld.param.b32 %r2, [b];
	}
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r2;
	ret;
}
`

func TestRecursion(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(fib)
		p := d.alloc(4 * 16)
		cfg.Grid, cfg.Block, cfg.Params = dims(1), dims(16), params(p)
		d.run(in, "k", cfg)
		a, b := uint32(0), uint32(1)
		for i, got := range view[uint32](d, p, 16) {
			if got != a {
				t.Fatalf("fib(%d) = %d, want %d", i, got, a)
			}
			a, b = b, a+b
		}
	})
}

func TestStackOverflow(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(header + `
.func f()
{
	call.uni f, ();
	ret;
}
.visible .entry k()
{
	call.uni f, ();
	ret;
}
`)
	d.fails(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1)}, FaultStack)
}

const indirect = header + `
.func (.param .b32 out) twice(.param .b32 in)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [in];
	shl.b32 %r2, %r1, 1;
	st.param.b32 [out], %r2;
	ret;
}
.func (.param .b32 out) square(.param .b32 in)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [in];
	mul.lo.u32 %r2, %r1, %r1;
	st.param.b32 [out], %r2;
	ret;
}
.global .align 8 .u64 table[2] = {twice, square};
.visible .entry k(.param .u64 p)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	and.b32 %r2, %r1, 1;
	mul.wide.u32 %rd2, %r2, 8;
	mov.u64 %rd3, table;
	add.u64 %rd4, %rd3, %rd2;
	ld.global.u64 %rd5, [%rd4];
	{
		.param .b32 a;
		.param .b32 b;
		st.param.b32 [a], %r1;
		proto: .callprototype (.param .b32 _) _ (.param .b32 _);
		call (b), %rd5, (a), proto;
		ld.param.b32 %r3, [b];
	}
	mul.wide.u32 %rd6, %r1, 4;
	add.u64 %rd7, %rd1, %rd6;
	st.global.u32 [%rd7], %r3;
	ret;
}
.visible .entry bad()
{
	.reg .b64 %rd<2>;
	mov.u64 %rd1, 12345;
	proto: .callprototype _ ();
	call %rd1, (), proto;
	ret;
}
`

func TestIndirectCall(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(indirect)
		p := d.alloc(4 * 64)
		cfg.Grid, cfg.Block, cfg.Params = dims(1), dims(64), params(p)
		d.run(in, "k", cfg)
		for i, got := range view[uint32](d, p, 64) {
			want := uint32(i * 2)
			if i&1 != 0 {
				want = uint32(i * i)
			}
			if got != want {
				t.Fatalf("lane %d: %d, want %d", i, got, want)
			}
		}
		cfg.Params = nil
		if f := d.fails(in, "bad", cfg, FaultCall); f.Addr != 12345 {
			t.Fatalf("address %#x", f.Addr)
		}
	})
}

func TestBranchTable(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(header + `
.visible .entry k(.param .u64 p)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	rem.u32 %r2, %r1, 3;
	ts: .branchtargets A, B, C;
	brx.idx %r2, ts;
A:	mov.u32 %r3, 100;
	bra.uni END;
B:	mov.u32 %r3, 200;
	bra.uni END;
C:	mov.u32 %r3, 300;
END:
	mul.wide.u32 %rd6, %r1, 4;
	add.u64 %rd7, %rd1, %rd6;
	st.global.u32 [%rd7], %r3;
	ret;
}
`)
		p := d.alloc(4 * 64)
		cfg.Grid, cfg.Block, cfg.Params = dims(1), dims(64), params(p)
		d.run(in, "k", cfg)
		for i, got := range view[uint32](d, p, 64) {
			if want := uint32(100 * (i%3 + 1)); got != want {
				t.Fatalf("lane %d: %d, want %d", i, got, want)
			}
		}
	})
}

// Blocks that wait for each other, as a cooperative launch does.
func TestGridBarrier(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(header + `
.visible .entry k(.param .u64 p, .param .u64 out)
{
	.reg .pred %p<3>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [out];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %nctaid.x;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra WAIT;
	atom.global.add.u32 %r3, [%rd1], 1;
SPIN:
	ld.acquire.gpu.global.u32 %r4, [%rd1];
	setp.lt.u32 %p2, %r4, %r2;
	@%p2 bra SPIN;
WAIT:
	bar.sync 0;
	red.global.add.u32 [%rd2], 1;
	ret;
}
`)
		p, q := upload(d, []uint32{0}), upload(d, []uint32{0})
		cfg.Grid, cfg.Block, cfg.Params = dims(40), dims(64), params(p, q)
		d.run(in, "k", cfg)
		if got := view[uint32](d, q, 1)[0]; got != 40*64 {
			t.Fatalf("%d threads passed, want %d", got, 40*64)
		}
	})
}

// A producer warp and a consumer warp on two barriers with counts.
func TestNamedBarriers(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(header + `
.visible .entry k(.param .u64 out)
{
	.reg .pred %p<3>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	.shared .align 4 .b8 box[128];
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	and.b32 %r2, %r1, 31;
	shl.b32 %r3, %r2, 2;
	mov.u32 %r4, box;
	add.u32 %r4, %r4, %r3;
	mov.u32 %r5, 0;
	setp.ge.u32 %p1, %r1, 32;
	mov.u32 %r7, 0;
	@%p1 bra CONSUME;
PRODUCE:
	bar.sync 1, 64;
	add.u32 %r6, %r5, %r2;
	st.shared.u32 [%r4], %r6;
	bar.arrive 2, 64;
	add.u32 %r5, %r5, 1;
	setp.lt.u32 %p2, %r5, 10;
	@%p2 bra PRODUCE;
	ret;
CONSUME:
	bar.arrive 1, 64;
	bar.sync 2, 64;
	ld.shared.u32 %r6, [%r4];
	add.u32 %r7, %r7, %r6;
	add.u32 %r5, %r5, 1;
	setp.lt.u32 %p2, %r5, 10;
	@%p2 bra CONSUME;
	mul.wide.u32 %rd2, %r2, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r7;
	ret;
}
`)
		p := d.alloc(4 * 32)
		cfg.Grid, cfg.Block, cfg.Params = dims(1), dims(64), params(p)
		d.run(in, "k", cfg)
		for i, got := range view[uint32](d, p, 32) {
			if want := uint32(45 + 10*i); got != want {
				t.Fatalf("lane %d: %d, want %d", i, got, want)
			}
		}
	})
}

func TestBarrierReduction(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(header + `
.visible .entry k(.param .u64 out)
{
	.reg .pred %p<5>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p1, %r1, 40;
	bar.red.popc.u32 %r2, 0, %p1;
	bar.red.and.pred %p2, 0, %p1;
	barrier.sync 3;
	bar.red.or.pred %p3, 0, !%p1;
	selp.u32 %r3, 1000, 0, %p2;
	selp.u32 %r4, 2000, 0, %p3;
	add.u32 %r2, %r2, %r3;
	add.u32 %r2, %r2, %r4;
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r2;
	ret;
}
`)
	p := d.alloc(4 * 70)
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(70), Params: params(p)})
	for i, got := range view[uint32](d, p, 70) {
		if got != 2040 {
			t.Fatalf("thread %d: %d, want 2040", i, got)
		}
	}
}

func TestFaults(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(header + `
.visible .entry unmapped(.param .u64 p)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r1;
	ret;
}
.visible .entry trapped()
{
	.reg .pred %p<2>;
	.reg .b32 %r<3>;
	mov.u32 %r1, %tid.x;
	setp.eq.u32 %p1, %r1, 37;
	@%p1 trap;
	ret;
}
.visible .entry endless()
{
L:	bra.uni L;
}
.visible .entry stuck()
{
	.reg .pred %p<2>;
	.reg .b32 %r<3>;
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p1, %r1, 32;
	@%p1 bar.sync 0, 64;
	@!%p1 bar.sync 1, 64;
	ret;
}
.visible .entry toofar(.param .u32 off)
{
	.reg .b32 %r<3>;
	.shared .align 4 .b8 buf[64];
	ld.param.u32 %r1, [off];
	ld.shared.u32 %r2, [%r1];
	ret;
}
.visible .entry lanes()
{
	.reg .pred %p<2>;
	.reg .b32 %r<3>;
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p1, %r1, 5;
	@%p1 bar.warp.sync 0xff;
	@%p1 ret;
	bar.sync 0;
	ret;
}
`)
	one := LaunchConfig{Grid: dims(2), Block: dims(64)}
	with := func(p []byte) LaunchConfig { c := one; c.Params = p; return c }
	end := uint64(testLo + 4<<20)
	f := d.fails(in, "unmapped",
		LaunchConfig{Grid: dims(1), Block: dims(64), Params: params(end - 4*40)}, FaultUnmapped)
	if f.Addr != end || f.Thread != [3]uint32{40, 0, 0} {
		t.Errorf("fault %v, want address %#x thread 40", f, end)
	}
	if want := "st.global.u32 [%rd3], %r1"; !strings.Contains(f.Error(), want) || f.Pos.Line != 13 {
		t.Errorf("%v: want instruction %q in line 13", f, want)
	}
	f = d.fails(in, "unmapped", with(params(uint64(testLo+2))), FaultMisaligned)
	if f.Addr != testLo+2 {
		t.Errorf("fault %v, want address %#x", f, testLo+2)
	}
	d.fails(in, "unmapped", with(params(uint64(0))), FaultUnmapped)
	if f := d.fails(in, "trapped", one, FaultTrap); f.Thread[0] != 37 {
		t.Errorf("fault %v, want thread 37", f)
	}
	c := one
	c.MaxInstructions = 1e6
	limit := d.fails(in, "endless", c, FaultLimit)
	if !strings.Contains(limit.Error(), limit.Inst) || !strings.HasPrefix(limit.Inst, "bra") ||
		!strings.Contains(limit.Error(), fmt.Sprintf(".ptx:%d:", limit.Pos.Line)) {
		t.Errorf("%v: want the place of the loop", limit)
	}
	c = one
	cancel := make(chan struct{})
	c.Cancel = cancel
	close(cancel)
	if f := d.fails(in, "endless", c, FaultCancelled); f.Pos.Line == 0 || f.File == "" {
		t.Errorf("%v: want a place", f)
	}
	d.fails(in, "stuck", one, FaultBarrier)
	d.fails(in, "toofar", with(params(64)), FaultUnmapped)
	d.fails(in, "toofar", with(params(2)), FaultMisaligned)
	d.run(in, "toofar", with(params(60)))
}

func TestPrintf(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(header + `
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 fmt[64] = {37, 53, 100, 124, 37, 45, 53, 117, 124, 37, 48, 56, 46, 51, 102, 124, 37, 115, 124, 37, 108, 108, 120, 124, 37, 103, 37, 37, 10, 0};
.global .align 1 .b8 str[8] = {104, 101, 121, 0};
.visible .entry k()
{
	.local .align 8 .b8 depot[48];
	.reg .b32 %r<4>;
	.reg .b64 %rd<8>;
	.reg .f64 %fd<3>;
	mov.u64 %rd1, depot;
	cvta.local.u64 %rd2, %rd1;
	mov.u32 %r1, %tid.x;
	neg.s32 %r2, %r1;
	st.local.u32 [%rd1], %r2;
	st.local.u32 [%rd1+4], %r1;
	cvt.rn.f64.u32 %fd1, %r1;
	mul.f64 %fd1, %fd1, 0d3FF8000000000000;
	st.local.f64 [%rd1+8], %fd1;
	mov.u64 %rd3, str;
	cvta.global.u64 %rd4, %rd3;
	st.local.u64 [%rd1+16], %rd4;
	mov.u64 %rd5, 0xabcdef0123;
	st.local.u64 [%rd1+24], %rd5;
	st.local.f64 [%rd1+32], %fd1;
	mov.u64 %rd6, fmt;
	cvta.global.u64 %rd7, %rd6;
	{
		.param .b64 a;
		.param .b64 b;
		.param .b32 r;
		st.param.b64 [a], %rd7;
		st.param.b64 [b], %rd2;
		call.uni (r), vprintf, (a, b);
		ld.param.b32 %r3, [r];
	}
	ret;
}
`)
	var out bytes.Buffer
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(3), Printf: &out, Deterministic: true})
	want := ""
	for i := range 3 {
		want += fmt.Sprintf("%5d|%-5d|%08.3f|hey|abcdef0123|%v%%\n", -i, i, 1.5*float64(i), 1.5*float64(i))
	}
	if out.String() != want {
		t.Fatalf("printed\n%q\nwant\n%q", out.String(), want)
	}
}

// Warp collectives with all lanes and with the odd ones, and a shuffle reduction.
func TestCollectives(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(header + `
.visible .entry k(.param .u64 out)
{
	.reg .pred %p<9>;
	.reg .b32 %r<30>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 64;
	add.u64 %rd3, %rd1, %rd2;
	shfl.sync.up.b32 %r2|%p1, %r1, 3, 0, 0xffffffff;
	selp.u32 %r3, 1, 0, %p1;
	st.global.v2.u32 [%rd3], {%r2, %r3};
	shfl.sync.down.b32 %r2|%p1, %r1, 5, 0x181f, 0xffffffff;
	selp.u32 %r3, 1, 0, %p1;
	st.global.v2.u32 [%rd3+8], {%r2, %r3};
	shfl.sync.idx.b32 %r2, %r1, 7, 31, 0xffffffff;
	st.global.u32 [%rd3+16], %r2;
	and.b32 %r4, %r1, 1;
	setp.eq.u32 %p2, %r4, 0;
	vote.sync.ballot.b32 %r5, %p2, 0xffffffff;
	st.global.u32 [%rd3+20], %r5;
	shr.u32 %r6, %r1, 3;
	match.any.sync.b32 %r7, %r6, 0xffffffff;
	st.global.u32 [%rd3+24], %r7;
	redux.sync.add.s32 %r8, %r1, 0xffffffff;
	st.global.u32 [%rd3+28], %r8;
	@%p2 bra EVEN;
	shfl.sync.bfly.b32 %r9, %r1, 2, 31, 0xaaaaaaaa;
	activemask.b32 %r10;
	redux.sync.max.u32 %r11, %r1, 0xaaaaaaaa;
	elect.sync %r12|%p3, 0xaaaaaaaa;
	selp.u32 %r13, 1, 0, %p3;
	st.global.v4.u32 [%rd3+32], {%r9, %r10, %r11, %r12};
	st.global.u32 [%rd3+48], %r13;
EVEN:
	ret;
}
`)
		p := d.alloc(64 * 32)
		cfg.Grid, cfg.Block, cfg.Params = dims(1), dims(32), params(p)
		d.run(in, "k", cfg)
		for i := range uint32(32) {
			got := view[[16]uint32](d, p, 32)[i]
			var want [16]uint32
			want[0], want[1] = i, 0
			if i >= 3 {
				want[0], want[1] = i-3, 1
			}
			want[2], want[3] = i, 0
			if i%8+5 < 8 {
				want[2], want[3] = i+5, 1
			}
			want[4] = 7
			want[5] = 0x55555555
			want[6] = 0xff << (i / 8 * 8)
			want[7] = 31 * 16
			if i&1 != 0 {
				want[8], want[9], want[10], want[11] = i^2, 0xaaaaaaaa, 31, 1
				if i == 1 {
					want[12] = 1
				}
			}
			if got != want {
				t.Fatalf("lane %d:\n%x, want\n%x", i, got, want)
			}
		}
	})
}

func TestStaticsAndWideResults(t *testing.T) {
	d := newDevice(t, 2)
	in := d.load(header + `
.visible .entry k(.param .u64 p)
{
	.global .u32 counter = 40;
	.reg .b32 %r<9>;
	.reg .b16 %h<3>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	atom.global.add.u32 %r1, [counter], 2;
	ld.global.u32 %r2, [counter];
	mov.b16 %h1, 0x12f0;
	cvt.s16.s8 %r3, %h1;
	cvt.u16.u8 %r4, %h1;
	cvt.s32.s8 %rd2, %h1;
	st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};
	st.global.u64 [%rd1+16], %rd2;
	ret;
}
`)
	p := d.alloc(24)
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(p)})
	if got, want := [6]uint32(view[uint32](d, p, 6)),
		[6]uint32{40, 42, 0xfffffff0, 0xf0, 0xfffffff0, 0xffffffff}; got != want {
		t.Fatalf("%x, want %x", got, want)
	}
}
