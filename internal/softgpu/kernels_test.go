package softgpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"holdfast/internal/softgpu/number"
)

// both runs f in the parallel and in the deterministic mode.
func both(t *testing.T, f func(t *testing.T, cfg LaunchConfig)) {
	t.Run("parallel", func(t *testing.T) { f(t, LaunchConfig{Workers: 4}) })
	t.Run("deterministic", func(t *testing.T) { f(t, LaunchConfig{Deterministic: true}) })
}

const vecAdd = header + `
.visible .entry vecadd(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
	.reg .pred %p<2>;
	.reg .f32 %f<4>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<11>;
	ld.param.u64 %rd1, [pa];
	ld.param.u64 %rd2, [pb];
	ld.param.u64 %rd3, [pc];
	ld.param.u32 %r2, [pn];
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, %ntid.x;
	mov.u32 %r5, %tid.x;
	mad.lo.s32 %r1, %r3, %r4, %r5;
	setp.ge.s32 %p1, %r1, %r2;
	@%p1 bra $L__BB0_2;
	cvta.to.global.u64 %rd4, %rd1;
	mul.wide.s32 %rd5, %r1, 4;
	add.s64 %rd6, %rd4, %rd5;
	cvta.to.global.u64 %rd7, %rd2;
	add.s64 %rd8, %rd7, %rd5;
	ld.global.f32 %f1, [%rd8];
	ld.global.f32 %f2, [%rd6];
	add.f32 %f3, %f2, %f1;
	cvta.to.global.u64 %rd9, %rd3;
	add.s64 %rd10, %rd9, %rd5;
	st.global.f32 [%rd10], %f3;
$L__BB0_2:
	ret;
}
`

func TestVectorAdd(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(vecAdd)
		const n = 10007
		a, b := make([]float32, n), make([]float32, n)
		for i := range a {
			a[i], b[i] = rand.Float32(), rand.Float32()
		}
		pa, pb, pc := upload(d, a), upload(d, b), d.alloc(4*n)
		cfg.Grid, cfg.Block, cfg.Params = dims((n+255)/256), dims(256), params(pa, pb, pc, n)
		d.run(in, "vecadd", cfg)
		for i, c := range view[float32](d, pc, n) {
			if c != a[i]+b[i] {
				t.Fatalf("c[%d] = %v, want %v", i, c, a[i]+b[i])
			}
		}
		if got := view[byte](d, pc+4*n, 64); string(got) != string(make([]byte, 64)) {
			t.Fatal("bytes behind the result were written")
		}
	})
}

const blockSum = header + `
.shared .align 4 .b8 buf[1024];
.visible .entry sum(.param .u64 pin, .param .u64 pout)
{
	.reg .pred %p<4>;
	.reg .b32 %r<30>;
	.reg .f32 %f<8>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [pin];
	ld.param.u64 %rd2, [pout];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.u32 %r4, %r2, %r3, %r1;
	mul.wide.u32 %rd3, %r4, 4;
	add.u64 %rd4, %rd1, %rd3;
	ld.global.f32 %f1, [%rd4];
	shl.b32 %r5, %r1, 2;
	mov.u32 %r6, buf;
	add.u32 %r7, %r6, %r5;
	st.shared.f32 [%r7], %f1;
	bar.sync 0;
	shr.u32 %r8, %r3, 1;
LOOP:
	setp.ge.u32 %p1, %r1, %r8;
	@%p1 bra SKIP;
	shl.b32 %r9, %r8, 2;
	add.u32 %r10, %r7, %r9;
	ld.shared.f32 %f2, [%r10];
	ld.shared.f32 %f3, [%r7];
	add.f32 %f4, %f2, %f3;
	st.shared.f32 [%r7], %f4;
SKIP:
	bar.sync 0;
	shr.u32 %r8, %r8, 1;
	setp.ne.u32 %p2, %r8, 0;
	@%p2 bra LOOP;
	setp.ne.u32 %p3, %r1, 0;
	@%p3 bra DONE;
	ld.shared.f32 %f5, [buf];
	red.global.add.f32 [%rd2], %f5;
DONE:
	ret;
}
`

func TestBlockReduction(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(blockSum)
		const n = 256 * 33
		x := make([]float32, n)
		want := float32(0)
		for i := range x {
			x[i] = float32(i%17) - 3
			want += x[i]
		}
		p, q := upload(d, x), upload(d, []float32{0})
		cfg.Grid, cfg.Block, cfg.Params = dims(33), dims(256), params(p, q)
		d.run(in, "sum", cfg)
		if got := view[float32](d, q, 1)[0]; got != want {
			t.Fatalf("sum %v, want %v", got, want)
		}
	})
}

// sgemm is C = A·B with 16×16 tiles in shared memory; n is a multiple of 16.
const sgemm = header + `
.visible .entry sgemm(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
	.reg .pred %p<3>;
	.reg .b32 %r<40>;
	.reg .f32 %f<40>;
	.reg .b64 %rd<20>;
	.shared .align 4 .b8 ta[1024];
	.shared .align 4 .b8 tb[1024];
	ld.param.u64 %rd1, [pa];
	ld.param.u64 %rd2, [pb];
	ld.param.u64 %rd3, [pc];
	ld.param.u32 %r1, [pn];
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, %tid.y;
	mov.u32 %r4, %ctaid.x;
	mov.u32 %r5, %ctaid.y;
	shl.b32 %r6, %r5, 4;
	add.u32 %r6, %r6, %r3;
	shl.b32 %r7, %r4, 4;
	add.u32 %r7, %r7, %r2;
	mad.lo.u32 %r8, %r6, %r1, %r2;
	mul.wide.u32 %rd4, %r8, 4;
	add.u64 %rd4, %rd1, %rd4;
	mad.lo.u32 %r9, %r3, %r1, %r7;
	mul.wide.u32 %rd5, %r9, 4;
	add.u64 %rd5, %rd2, %rd5;
	shl.b32 %r10, %r3, 6;
	mov.u32 %r11, ta;
	add.u32 %r12, %r11, %r10;
	shl.b32 %r13, %r2, 2;
	add.u32 %r14, %r12, %r13;
	mov.u32 %r15, tb;
	add.u32 %r16, %r15, %r13;
	add.u32 %r17, %r16, %r10;
	shl.b32 %r18, %r1, 6;
	cvt.u64.u32 %rd6, %r18;
	mov.f32 %f1, 0f00000000;
	mov.u32 %r19, 0;
TILE:
	ld.global.f32 %f2, [%rd4];
	st.shared.f32 [%r14], %f2;
	ld.global.f32 %f3, [%rd5];
	st.shared.f32 [%r17], %f3;
	bar.sync 0;
	mov.u32 %r20, 0;
	mov.u32 %r21, %r12;
	mov.u32 %r22, %r16;
INNER:
	ld.shared.f32 %f4, [%r21];
	ld.shared.f32 %f5, [%r22];
	fma.rn.f32 %f1, %f4, %f5, %f1;
	ld.shared.f32 %f6, [%r21+4];
	ld.shared.f32 %f7, [%r22+64];
	fma.rn.f32 %f1, %f6, %f7, %f1;
	add.u32 %r21, %r21, 8;
	add.u32 %r22, %r22, 128;
	add.u32 %r20, %r20, 2;
	setp.lt.u32 %p1, %r20, 16;
	@%p1 bra INNER;
	bar.sync 0;
	add.u64 %rd4, %rd4, 64;
	add.u64 %rd5, %rd5, %rd6;
	add.u32 %r19, %r19, 16;
	setp.lt.u32 %p2, %r19, %r1;
	@%p2 bra TILE;
	mad.lo.u32 %r23, %r6, %r1, %r7;
	mul.wide.u32 %rd7, %r23, 4;
	add.u64 %rd7, %rd3, %rd7;
	st.global.f32 [%rd7], %f1;
	ret;
}
`

func TestMatrixProduct(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(sgemm)
		const n = 64
		a, b := make([]float32, n*n), make([]float32, n*n)
		for i := range a {
			a[i], b[i] = rand.Float32()-0.5, rand.Float32()-0.5
		}
		pa, pb, pc := upload(d, a), upload(d, b), d.alloc(4*n*n)
		cfg.Grid, cfg.Block, cfg.Params = dims(n/16, n/16), dims(16, 16), params(pa, pb, pc, n)
		d.run(in, "sgemm", cfg)
		c := view[float32](d, pc, n*n)
		for i := range n {
			for j := range n {
				var want float32
				for k := range n {
					want = number.FMA32(a[i*n+k], b[k*n+j], want)
				}
				if math.Float32bits(c[i*n+j]) != math.Float32bits(want) {
					t.Fatalf("c[%d,%d] = %v, want %v", i, j, c[i*n+j], want)
				}
			}
		}
	})
}

// A spin lock between the lanes of one warp: progress needs lanes to be
// scheduled independently.
const spinLock = header + `
.global .u32 lock;
.visible .entry spin(.param .u64 counter)
{
	.reg .pred %p<2>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [counter];
AGAIN:
	atom.global.acquire.gpu.cas.b32 %r1, [lock], 0, 1;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra AGAIN;
	ld.volatile.global.u32 %r2, [%rd1];
	add.u32 %r2, %r2, 1;
	st.volatile.global.u32 [%rd1], %r2;
	fence.acq_rel.gpu;
	atom.global.release.gpu.exch.b32 %r3, [lock], 0;
	ret;
}
`

func TestSpinLockInWarp(t *testing.T) {
	both(t, func(t *testing.T, cfg LaunchConfig) {
		d := newDevice(t, 4)
		in := d.load(spinLock)
		p := upload(d, []uint32{0})
		cfg.Grid, cfg.Block, cfg.Params = dims(3), dims(96), params(p)
		d.run(in, "spin", cfg)
		if got := view[uint32](d, p, 1)[0]; got != 3*96 {
			t.Fatalf("counter %d, want %d", got, 3*96)
		}
	})
}
