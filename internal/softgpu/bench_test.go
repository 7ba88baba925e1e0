package softgpu

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/ptx"
)

// bench reports thread instructions per second.
func bench(b *testing.B, d *device, in *Instance, kernel string, cfg LaunchConfig) {
	b.Helper()
	var insts uint64
	before := cpuTime(b)
	for b.Loop() {
		st, err := in.Launch(kernel, cfg)
		if err != nil {
			b.Fatal(err)
		}
		insts += st.ThreadInstructions
	}
	b.ReportMetric(float64(insts)/b.Elapsed().Seconds()/1e6, "Minst/s")
	b.ReportMetric(float64(insts)/(cpuTime(b)-before).Seconds()/1e6, "Minst/cpu-s")
	b.ReportMetric(0, "ns/op")
}

// cpuTime is what this process has used of all cores: on a busy machine the
// rate by it says more than the rate by the clock.
func cpuTime(b *testing.B) time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// loopKernel is a kernel that repeats body 256 times.
func loopKernel(decl, body string) string {
	return header + `.visible .entry k(.param .u64 p)
{
	.reg .pred %p<4>;
	.reg .b16 %h<8>;
	.reg .b32 %r<40>;
	.reg .f32 %f<40>;
	.reg .f64 %fd<20>;
	.reg .b64 %rd<40>;
	.shared .align 4 .b8 buf[4096];
` + decl + `
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.u32 %r4, %r2, %r3, %r1;
	mul.wide.u32 %rd2, %r4, 4;
	add.u64 %rd3, %rd1, %rd2;
	shl.b32 %r5, %r1, 2;
	mov.u32 %r6, buf;
	add.u32 %r6, %r6, %r5;
	cvt.rn.f32.u32 %f1, %r1;
	mov.f32 %f2, 0f3f800001;
	mov.f32 %f3, 0f3f000000;
	cvt.rn.f64.u32 %fd1, %r1;
	mov.f64 %fd2, 0d3ff0000000000001;
	mov.u32 %r7, 1;
	mov.u32 %r8, 0;
LOOP:
` + body + `
	add.u32 %r8, %r8, 1;
	setp.ne.u32 %p1, %r8, 256;
	@%p1 bra LOOP;
	st.global.u32 [%rd3], %r7;
	st.global.f32 [%rd3], %f1;
	st.global.f64 [%rd1], %fd1;
	ret;
}
`
}

func repeat(n int, s string) string {
	out := ""
	for range n {
		out += s
	}
	return out
}

func BenchmarkClass(b *testing.B) {
	for _, c := range []struct{ name, body string }{
		{"int", repeat(4, "\tadd.u32 %r7, %r7, %r1;\n\txor.b32 %r9, %r7, %r4;\n\tshl.b32 %r10, %r9, 3;\n"+
			"\tmad.lo.u32 %r7, %r10, %r7, %r1;\n")},
		{"int64",
			repeat(4, "\tadd.u64 %rd7, %rd7, %rd3;\n\txor.b64 %rd9, %rd7, %rd3;\n\tmul.lo.u64 %rd7, %rd9, %rd7;\n")},
		{"f32fma", repeat(16, "\tfma.rn.f32 %f1, %f1, %f2, %f3;\n")},
		{"f32addmul", repeat(8, "\tadd.f32 %f1, %f1, %f2;\n\tmul.f32 %f1, %f1, %f2;\n")},
		{"f64fma", repeat(16, "\tfma.rn.f64 %fd1, %fd1, %fd2, %fd2;\n")},
		{"convert", repeat(4, "\tcvt.rn.f16.f32 %h1, %f1;\n\tcvt.f32.f16 %f4, %h1;\n"+
			"\tcvt.rn.bf16x2.f32 %r9, %f1, %f4;\n\tcvt.f32.bf16 %f5, %h1;\n")},
		{"half", "\tmov.b32 %r9, 0x3c013a02;\n" +
			repeat(5, "\tfma.rn.f16x2 %r10, %r9, %r9, %r9;\n\tadd.rn.bf16x2 %r10, %r9, %r9;\n"+
				"\tmul.rn.f16x2 %r10, %r9, %r9;\n")},
		{"ftz", repeat(8, "\tadd.ftz.f32 %f1, %f1, %f2;\n\tmul.ftz.f32 %f1, %f1, %f2;\n")},
		{"global", repeat(8, "\tld.global.f32 %f4, [%rd3];\n\tst.global.f32 [%rd3], %f4;\n")},
		{"globalv4", "\tshl.b64 %rd5, %rd2, 2;\n\tadd.u64 %rd5, %rd5, %rd1;\n" +
			repeat(8, "\tld.global.v4.f32 {%f4,%f5,%f6,%f7}, [%rd5];\n"+
				"\tst.global.v4.f32 [%rd5], {%f4,%f5,%f6,%f7};\n")},
		{"gather", "\tshl.b64 %rd5, %rd2, 1;\n\tadd.u64 %rd5, %rd5, %rd1;\n" +
			repeat(16, "\tld.global.f32 %f4, [%rd5];\n")},
		{"shared", repeat(8, "\tld.shared.f32 %f4, [%r6];\n\tst.shared.f32 [%r6], %f4;\n")},
		{"barrier", repeat(4,
			"\tst.shared.f32 [%r6], %f1;\n\tbar.sync 0;\n\tld.shared.f32 %f5, [buf];\n\tadd.f32 %f1, %f1, %f5;\n")},
		{"atomic", repeat(4, "\tatom.shared.add.u32 %r9, [%r6], 1;\n\tred.global.add.u32 [%rd3], 1;\n")},
		{"shfl", repeat(8, "\tshfl.sync.bfly.b32 %r9, %r7, 1, 31, -1;\n\tadd.u32 %r7, %r7, %r9;\n")},
		{"special", repeat(4, "\tex2.approx.f32 %f4, %f1;\n\tlg2.approx.f32 %f1, %f4;\n\tsin.approx.f32 %f5, %f1;\n"+
			"\trsqrt.approx.f32 %f6, %f4;\n")},
		{"divergent", "\tand.b32 %r9, %r1, 1;\n\tsetp.eq.u32 %p2, %r9, 0;\n\t@%p2 bra A;\n" +
			repeat(8, "\tadd.u32 %r7, %r7, %r1;\n") + "\tbra B;\nA:\n" +
			repeat(8, "\txor.b32 %r7, %r7, %r1;\n") + "B:\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := newDevice(b, 16)
			in := d.load(loopKernel("", c.body))
			p := d.alloc(1 << 22)
			bench(b, d, in, "k", LaunchConfig{Grid: dims(64), Block: dims(256), Params: params(p)})
		})
	}
}

func BenchmarkSGEMM(b *testing.B) {
	d := newDevice(b, 16)
	in := d.load(sgemm)
	const n = 256
	pa, pb, pc := upload(d, make([]float32, n*n)), upload(d, make([]float32, n*n)), d.alloc(4*n*n)
	bench(b, d, in, "sgemm", LaunchConfig{Grid: dims(n/16, n/16), Block: dims(16, 16), Params: params(pa, pb, pc, n)})
}

// BenchmarkLoad is the translation of a kernel of 5000 instructions.
func BenchmarkLoad(b *testing.B) {
	src := loopKernel("", repeat(1000, "\tfma.rn.f32 %f1, %f1, %f2, %f3;\n\tadd.u32 %r7, %r7, %r1;\n"+
		"\tld.global.f32 %f4, [%rd3+4];\n\tsetp.lt.s32 %p2, %r7, %r1;\n\t@%p2 mov.u32 %r9, %r7;\n"))
	m, err := ptx.Parse("load.ptx", []byte(src))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Load(m); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/5000, "ns/inst")
}

// BenchmarkLaunch is the cost of a launch that does next to nothing.
func BenchmarkLaunch(b *testing.B) {
	d := newDevice(b, 4)
	in := d.load(vecAdd)
	p := d.alloc(4096)
	cfg := LaunchConfig{Grid: dims(1), Block: dims(32), Params: params(p, p, p, 32)}
	for b.Loop() {
		if _, err := in.Launch("vecadd", cfg); err != nil {
			b.Fatal(err)
		}
	}
}
