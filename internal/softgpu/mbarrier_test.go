package softgpu

import (
	"fmt"
	"strings"
	"testing"
)

// mbarrierKernel runs body in every thread; s is the object, %rN with N ≥ 10 are
// stored to out[N-10] by thread 0.
func mbarrierKernel(body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `%s.visible .entry k(.param .u64 p)
{
	.reg .b32 %%r<40>; .reg .b64 %%rd<20>; .reg .pred %%p<8>;
	.shared .align 16 .b8 s[1024];
	ld.param.u64 %%rd1, [p];
	mov.u32 %%r1, s;
	mov.u32 %%r2, %%tid.x;
	setp.eq.u32 %%p7, %%r2, 0;
	%s
	@!%%p7 ret;
`, header, body)
	for i := range 10 {
		fmt.Fprintf(&b, "\tst.global.u32 [%%rd1+%d], %%r%d;\n", 4*i, 10+i)
	}
	b.WriteString("\tret;\n}\n")
	return b.String()
}

func TestMbarrier(t *testing.T) {
	wait := func(reg, phase int) string {
		return fmt.Sprintf("mbarrier.test_wait.parity.shared.b64 %%p1, [%%r1], %d;\n"+
			"selp.u32 %%r%d, 1, 0, %%p1;\n", phase, reg)
	}
	for _, c := range []struct {
		name, body string
		threads    uint32
		want       []uint32
	}{
		{"arrivals complete a phase", "mbarrier.init.shared.b64 [%r1], 2;\n" + wait(10, 0) +
			"mbarrier.arrive.shared.b64 %rd2, [%r1];\n" + wait(11, 0) +
			"mbarrier.arrive.shared::cta.b64 %rd3, [%r1];\n" + wait(12, 0) + wait(13, 1) +
			"mbarrier.test_wait.shared.b64 %p1, [%r1], %rd2;\nselp.u32 %r14, 1, 0, %p1;\n" +
			"mbarrier.pending_count.b64 %r15, %rd2;\nmbarrier.pending_count.b64 %r16, %rd3;\n" +
			"mbarrier.arrive.shared.b64 %rd4, [%r1], 2;\n" + wait(17, 1) + wait(18, 0) +
			"mbarrier.test_wait.shared.b64 %p1, [%r1], %rd4;\nselp.u32 %r19, 1, 0, %p1;\n", 1,
			// The object starts in phase 0; parity 1 is the phase before it.
			[]uint32{0, 0, 1, 0, 1, 2, 1, 1, 0, 1}},
		{"transactions hold a phase", "mbarrier.init.shared.b64 [%r1], 1;\n" +
			"mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd2, [%r1], 64;\n" + wait(10, 0) +
			"mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r1], 40;\n" + wait(11, 0) +
			"mbarrier.complete_tx.shared::cta.b64 [%r1], 24;\n" + wait(12, 0) +
			"mbarrier.complete_tx.shared::cta.b64 [%r1], 8;\nmbarrier.arrive.shared.b64 _, [%r1];\n" + wait(13, 1) +
			"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 8;\n" + wait(14, 1) +
			"mov.u32 %r15, 1048575;\nmbarrier.expect_tx.shared::cta.b64 [%r1], %r15;\n" +
			"mbarrier.complete_tx.shared::cta.b64 [%r1], %r15;\n", 1,
			// An expectation alone ends no phase: only the next arrival or completion does.
			[]uint32{0, 0, 1, 0, 0, 1048575}},
		{"drop", "mbarrier.init.shared.b64 [%r1], 3;\nmbarrier.arrive_drop.shared.b64 %rd2, [%r1];\n" +
			"mbarrier.arrive.shared.b64 %rd2, [%r1], 2;\n" + wait(10, 0) +
			"mbarrier.arrive.shared.b64 %rd2, [%r1];\n" + wait(11, 1) +
			"mbarrier.arrive_drop.expect_tx.shared::cta.b64 %rd2, [%r1], 16;\n" + wait(12, 1) +
			"mbarrier.complete_tx.shared::cta.b64 [%r1], 16;\n" + wait(13, 1) +
			"mbarrier.arrive.noComplete.shared.b64 %rd3, [%r1], 1;\nmbarrier.pending_count.b64 %r14, %rd3;\n", 1,
			[]uint32{1, 0, 0, 1, 1}},
		{"generic addresses, inval, cp.async", "mov.u64 %rd5, s;\ncvta.shared.u64 %rd5, %rd5;\n" +
			"mbarrier.init.b64 [%rd5], 1;\ncp.async.mbarrier.arrive.b64 [%rd5];\n" + wait(10, 0) +
			"cp.async.mbarrier.arrive.noinc.b64 [%rd5];\n" + wait(11, 0) +
			"mbarrier.inval.b64 [%rd5];\nld.shared.u32 %r12, [s];\n", 1, []uint32{0, 1, 0}},
		{"warps wait for one another", `@%p7 mbarrier.init.shared.b64 [%r1], 128;
	bar.sync 0;
	mov.u32 %r10, 0;
	mov.u32 %r3, 0;
PHASE:
	atom.shared.add.u32 %r4, [s+8], 1;
	mbarrier.arrive.shared.b64 %rd2, [%r1];
WAIT:
	mbarrier.try_wait.shared.b64 %p1, [%r1], %rd2;
	@!%p1 bra WAIT;
	ld.shared.u32 %r5, [s+8];
	add.u32 %r6, %r3, 1;
	mul.lo.u32 %r6, %r6, 128;
	setp.lt.u32 %p2, %r5, %r6;
	@%p2 st.shared.u32 [s+12], 1;
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p3, %r3, 10;
	@%p3 bra PHASE;
	ld.shared.u32 %r11, [s+12];
	ld.shared.u32 %r10, [s+8];
`, 128, []uint32{1280, 0}},
		{"a producer and consumers", `@%p7 mbarrier.init.shared.b64 [%r1], 1;
	@%p7 mbarrier.init.shared.b64 [%r1+16], 96;
	bar.sync 0;
	mov.u32 %r3, 0;
	mov.u32 %r10, 0;
	setp.lt.u32 %p1, %r2, 32;
	@!%p1 bra CONSUME;
PRODUCE:
	xor.b32 %r5, %r3, 1;
	and.b32 %r5, %r5, 1;
P1:	mbarrier.try_wait.parity.shared.b64 %p2, [%r1+16], %r5;
	@!%p2 bra P1;
	elect.sync _|%p3, -1;
	@%p3 st.shared.u32 [s+32], %r3;
	@%p3 mbarrier.arrive.shared.b64 _, [%r1];
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p4, %r3, 8;
	@%p4 bra PRODUCE;
	bra DONE;
CONSUME:
	and.b32 %r5, %r3, 1;
C1:	mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r1], %r5, 1000;
	@!%p2 bra C1;
	ld.shared.u32 %r6, [s+32];
	setp.ne.u32 %p5, %r6, %r3;
	@%p5 atom.shared.add.u32 %r7, [s+40], 1;
	atom.shared.add.u32 %r7, [s+44], %r6;
	mbarrier.arrive.shared.b64 _, [%r1+16];
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p4, %r3, 8;
	@%p4 bra CONSUME;
DONE:
	bar.sync 0;
	ld.shared.u32 %r10, [s+40];
	ld.shared.u32 %r11, [s+44];
`, 128, []uint32{0, 96 * 28}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDevice(t, 4)
			in := d.load(mbarrierKernel(c.body))
			p := d.alloc(64)
			d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(c.threads), Params: params(p), MaxInstructions: 1e7})
			for i, want := range c.want {
				if got := view[uint32](d, p, 10)[i]; got != want {
					t.Errorf("result %d: %d, want %d", i, got, want)
				}
			}
		})
	}
}

func TestMbarrierBadCount(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(mbarrierKernel("mbarrier.init.shared.b64 [%r1], 0;\n"))
	d.fails(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(d.alloc(64))}, FaultBarrier)
}
