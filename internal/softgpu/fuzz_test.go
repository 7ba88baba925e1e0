package softgpu

import (
	"errors"
	"strings"
	"testing"
	"time"

	"holdfast/ptx"
)

// FuzzLaunch feeds whatever parses to the translation and runs it for a
// moment: errors and faults are fine, a crash or a hang of the executor is not.
func FuzzLaunch(f *testing.F) {
	for _, src := range []string{vecAdd, blockSum, sgemm, spinLock, collatz, fib, indirect} {
		f.Add(strings.TrimPrefix(src, header))
	}
	f.Add(".visible .entry k()\n{\n\t.reg .b32 %r<4>;\n\t.shared .b8 s[16];\n" +
		"\tld.shared.v4.u32 {%r0,%r1,%r2,%r3}, [s+-4];\n\tbar.sync %r0, %r1;\n\tret;\n}\n")
	f.Add(".visible .entry k(.param .align 8 .b8 p[16])\n{\n\t.reg .b64 %rd<4>;\n\tld.param.u64 %rd1, [p+9];\n" +
		"\tmov.b128 %rd1, {%rd2, %rd3};\n\tret;\n}\n")
	f.Add(strings.TrimPrefix(tensorKernel("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 %D, %A, %B, %C",
		false, 4, 4, 2, 4), header))
	f.Add(strings.TrimPrefix(tensorKernel("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 %D, %A, %rd290, 1, "+
		"-1, 1, 1", false, 4, 4, 2, 4), header))
	f.Add(strings.TrimPrefix(tensorKernel("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 %D, %rd290, %rd291, 1",
		false, 4, 4, 2, 4), header))
	f.Add(".visible .entry k(.param .u64 p)\n{\n\t.reg .b32 %r<20>;\n\t.reg .b64 %rd<4>;\n\t.shared .b8 s[2048];\n" +
		"\tld.param.u64 %rd1, [p];\n" +
		"\twmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%rd1], 64;\n" +
		"\tldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r0,%r1}, [%r9];\n" +
		"\tstmatrix.sync.aligned.m8n8.x1.shared.b16 [s], {%r1};\n\tret;\n}\n")
	f.Add(strings.TrimPrefix(mbarrierKernel("mbarrier.init.shared.b64 [%r1], 2;\n"+
		"mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r1], 16;\nmbarrier.try_wait.shared.b64 %p1, [%r1], %rd2;\n"),
		header))
	f.Add(strings.TrimPrefix(clusterExchange, header))
	f.Add(strings.TrimPrefix(
		bulkHead+"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r1];\n"+
			"cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd3, {%r3, %r3}], [%r2];\n"+
			"st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%r2], {%r3, %r3}, [%r1];\nret;\n}\n",
		header))
	f.Add(strings.TrimPrefix(surfaceKernels, header))
	f.Add(strings.TrimPrefix(fetchKernel("tex.level.2d.v4.f32.f32", "{%f1, %f2}", 2, ", %f3, {%r1, 2}"), header))
	f.Add(strings.TrimPrefix(fetchKernel("tld4.b.2d.v4.f32.f32", "{%f1, %f2}", 2, ""), header))
	f.Add(strings.TrimPrefix(heapKernels, header))
	f.Add(strings.TrimPrefix(allocaKernels, header))
	f.Add(strings.TrimPrefix(im2colKernel(4, true), header))
	f.Add(strings.TrimPrefix(tensorKernel("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 %D, %A, %B, %C, %r0, 3",
		false, 4, 2, 2, 4), header))
	f.Add(strings.TrimPrefix(tensorKernel("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 %D, %A, %rd290, %r1, "+
		"1, 1, -1, 1, 1", false, 4, 4, 2, 4), header))
	for _, body := range []string{
		".func (.reg .v2 .u32 o, .reg .pred p) f(.reg .v2 .u32 a, .reg .b128 b, .reg .pred q) {\n" +
			"\tmov.v2.u32 o, {a.y, a.x};\n\tcall (o, p), f, (a, b, q);\n\tret;\n}\nkernel\n" +
			".reg .v2 .u32 %v<3>;\n\t.reg .b128 %q;\n\tld.global.v2.u32 %v0, [%in];\n\tmov.b64 %at, %v0;\n" +
			"\tcall (%v1, %odd), f, (%v0, %q, !%odd);\n",
		".func (.reg .pred p) f(.reg .v4 .u16 a) {\n\tret;\n}\nkernel\n.reg .v4 .u16 %v;\n\tmov.u64 %at, f;\n" +
			"\tcall (%odd), %at, (%v), c;\n\tc: .callprototype (.reg .pred _) _ (.reg .v4 .u16 _);\n",
	} {
		f.Add(strings.TrimPrefix(vectorKernel(body), header))
	}
	d := newDevice(f, 4)
	// Whatever a kernel takes for a handle is one: parameters are testLo.
	m := Image{Address: testLo + 2<<20, Width: 16, Height: 8, Pitch: 256, Format: TexelF32, Channels: 4}
	if err := errors.Join(d.space.SetTexture(testLo,
		&Texture{Levels: []Image{m, m}, Filter: true, Normalized: true, MaxLevel: 1, LevelFilter: true}),
		d.space.SetSurface(testLo, &m), d.space.SetHeap(testLo+3<<20, 64<<10)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		m, err := ptx.Parse("fuzz.ptx", []byte(header+body))
		if err != nil {
			return
		}
		mod, err := Load(m)
		if err != nil || mod.DataSize() > 1<<20 {
			return
		}
		in, err := mod.Instantiate(d.space, testLo+1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range mod.Kernels() {
			p := make([]byte, k.ParamBytes)
			for i := 0; i+8 <= len(p); i += 8 {
				copy(p[i:], params(uint64(testLo)))
			}
			start := time.Now()
			_, err := in.Launch(k.Name, LaunchConfig{Grid: dims(2), Block: dims(40), Params: p, Deterministic: true,
				MaxInstructions: 200_000, Observer: &Observer{}})
			if f, ok := err.(*Fault); ok && f.Kind == FaultInternal {
				t.Fatal(f)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Fatalf("launch took %v", d)
			}
		}
	})
}
