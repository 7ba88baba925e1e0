package softgpu

import (
	"slices"
	"strings"
	"testing"
)

const observedDecl = `.visible .entry k(.param .u64 p, .param .u64 q)
{
	.reg .pred %p<4>;
	.reg .b32 %r<20>;
	.reg .b16 %h<4>;
	.reg .b64 %rd<20>;
	.shared .align 8 .b8 s[512];
	.local .align 8 .b8 loc[16];
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [q];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mad.lo.u32 %r4, %r2, %r3, %r1;
	mul.wide.u32 %rd3, %r4, 4;
	add.u64 %rd4, %rd1, %rd3;
	add.u64 %rd5, %rd2, %rd3;
	mul.wide.u32 %rd6, %r1, 4;
	add.u64 %rd7, %rd1, %rd6;
	xor.b32 %r5, %r1, 32;
	mul.wide.u32 %rd8, %r5, 4;
	add.u64 %rd8, %rd1, %rd8;
`

// What each kernel does to the words of p and q; 2 blocks of 64 threads. A class is a set of
// bytes, given by a function of the offset, and what must be recorded of it.
func TestObserver(t *testing.T) {
	type class struct {
		buf  int // 0 = p, 1 = q
		in   func(off uint64) bool
		want Access
	}
	upTo := func(n uint64) func(uint64) bool { return func(off uint64) bool { return off < n } }
	for _, c := range []struct {
		name, body string
		classes    []class
	}{
		{"copy", "ld.global.u32 %r6, [%rd4];\n st.global.u32 [%rd5], %r6;\n",
			[]class{{0, upTo(512), Read | Exposed}, {1, upTo(512), Written | WrittenFirst}}},
		{"increment", "ld.global.u32 %r6, [%rd4];\n add.u32 %r6, %r6, 1;\n st.global.u32 [%rd4], %r6;\n",
			[]class{{0, upTo(512), Read | Written | Exposed}}},
		{"write then read", "st.global.u32 [%rd4], %r1;\n ld.global.u32 %r6, [%rd4];\n",
			[]class{{0, upTo(512), Read | Written | WrittenFirst}}},
		{"read a byte of what was written", "st.global.u32 [%rd4], %r1;\n ld.global.u8 %h1, [%rd4+1];\n",
			[]class{{0, func(o uint64) bool { return o < 512 && o%4 == 1 }, Read | Written | WrittenFirst},
				{0, func(o uint64) bool { return o < 512 && o%4 != 1 }, Written | WrittenFirst}}},
		{"half written", "st.global.u16 [%rd4], 1;\n ld.global.u32 %r6, [%rd4];\n",
			[]class{{0, func(o uint64) bool { return o < 512 && o%4 < 2 }, Read | Written | WrittenFirst},
				{0, func(o uint64) bool { return o < 512 && o%4 >= 2 }, Read | Exposed}}},
		{"other thread's, after a barrier", "setp.ne.u32 %p1, %r2, 0;\n@%p1 ret;\n st.global.u32 [%rd7], %r1;\n" +
			" bar.sync 0;\n ld.global.u32 %r6, [%rd8];\n",
			[]class{{0, upTo(256), Read | Written | WrittenFirst}}},
		{"other thread's, no barrier", "setp.ne.u32 %p1, %r2, 0;\n@%p1 ret;\n st.global.u32 [%rd7], %r1;\n" +
			" bar.warp.sync -1;\n ld.global.u32 %r6, [%rd8];\n",
			// The warp that runs second finds what the first wrote.
			[]class{{0, upTo(128), Read | Written | WrittenFirst | Exposed},
				{0, func(o uint64) bool { return o >= 128 && o < 256 }, Read | Written | Exposed}}},
		{"both wrote it",
			"setp.ne.u32 %p1, %r2, 0;\n@%p1 ret;\n st.global.u32 [%rd1], 7;\n ld.global.u32 %r6, [%rd1];\n",
			[]class{{0, upTo(4), Read | Written | WrittenFirst}}},
		{"read before the barrier", "setp.ne.u32 %p1, %r2, 0;\n@%p1 ret;\n ld.global.u32 %r6, [%rd8];\n bar.sync 0;\n" +
			" st.global.u32 [%rd7], %r1;\n",
			[]class{{0, upTo(256), Read | Written | Exposed}}},
		{"a barrier that some only arrive at",
			"setp.ne.u32 %p1, %r2, 0;\n@%p1 ret;\n st.global.u32 [%rd7], %r1;\n setp.gt.u32 %p2, %r1, 31;\n" +
				"@%p2 bra B;\n bar.sync 1, 64;\n ld.global.u32 %r6, [%rd8];\n ret;\nB: bar.arrive 1, 64;\n",
			[]class{{0, upTo(128), Written | WrittenFirst},
				{0, func(o uint64) bool { return o >= 128 && o < 256 }, Read | Written | WrittenFirst | Exposed}}},
		{"atomic", "atom.global.add.u32 %r6, [%rd1], 1;\n red.global.max.u64 [%rd1+8], %rd3;\n",
			[]class{{0, func(o uint64) bool { return o < 4 || o >= 8 && o < 16 }, Read | Written | Exposed}}},
		{"predicated and scattered", "and.b32 %r7, %r4, 3;\n setp.eq.u32 %p1, %r7, 1;\n add.u64 %rd9, %rd4, %rd3;\n" +
			"@%p1 ld.global.u32 %r6, [%rd9];\n@%p1 st.global.u8 [%rd5], %r6;\n",
			[]class{{0, func(o uint64) bool { return o < 1024 && o%32 >= 8 && o%32 < 12 }, Read | Exposed},
				{1, func(o uint64) bool { return o < 512 && o%16 == 4 }, Written | WrittenFirst}}},
		{"vectors, 16 bytes", "shl.b64 %rd9, %rd3, 2;\n add.u64 %rd10, %rd1, %rd9;\n add.u64 %rd11, %rd2, %rd9;\n" +
			" ld.global.v4.u32 {%r6,%r7,%r8,%r9}, [%rd10];\n st.global.v2.u64 [%rd11], {%rd1,%rd2};\n",
			[]class{{0, upTo(2048), Read | Exposed}, {1, upTo(2048), Written | WrittenFirst}}},
		{"generic, shared and local", "mov.u64 %rd9, s;\n cvta.shared.u64 %rd9, %rd9;\n st.u32 [%rd9], %r1;\n" +
			" ld.u32 %r6, [%rd9];\n mov.u64 %rd10, loc;\n cvta.local.u64 %rd10, %rd10;\n st.u32 [%rd10], %r1;\n" +
			" ld.shared.u32 %r7, [s];\n st.u32 [%rd5], %r6;\n",
			[]class{{1, upTo(512), Written | WrittenFirst}}},
		{"cp.async", "mov.u32 %r6, s;\n" +
			" shl.b32 %r7, %r1, 2;\n add.u32 %r6, %r6, %r7;\n cp.async.ca.shared.global [%r6], [%rd4], 4;\n" +
			" cp.async.ca.shared.global [%r6], [%rd5], 4, 1;\n cp.async.wait_all;\n",
			[]class{{0, upTo(512), Read | Exposed},
				{1, func(o uint64) bool { return o < 512 && o%4 == 0 }, Read | Exposed}}},
		{"address register is the result", "ld.global.u64 %rd4, [%rd1];\n ld.volatile.global.u32 %r5, [%rd2];\n",
			[]class{{0, upTo(8), Read | Exposed}, {1, upTo(4), Read | Exposed}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDevice(t, 4)
			in := d.load(header + observedDecl + strings.ReplaceAll(c.body, "\n ", "\n\t") + "\tret;\n}\n")
			const size = 4096
			p := [2]uint64{d.alloc(size), d.alloc(size)}
			o := &Observer{}
			for range 2 { // the record is that of the last launch
				d.run(in, "k", LaunchConfig{Grid: dims(2), Block: dims(64), Params: params(p[0], p[1]),
					Deterministic: true, Observer: o})
			}
			for b := range p {
				for off := range uint64(size) {
					want := Access(0)
					for _, cl := range c.classes {
						if cl.buf == b && cl.in(off) {
							want = cl.want
						}
					}
					if got := o.At(p[b] + off); got != want {
						t.Fatalf("buffer %d, byte %d: %04b, want %04b", b, off, got, want)
					}
				}
			}
			for _, r := range o.Ranges(0, 0) {
				if r.Addr < p[0] || r.Addr+r.Len > p[1]+size {
					t.Errorf("an access elsewhere: %#x +%d", r.Addr, r.Len)
				}
			}
		})
	}
}

// The other block's writes order nothing: a byte that block 0 writes and block 1 reads is exposed.
func TestObserverBlocks(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(header + observedDecl +
		"setp.eq.u32 %p1, %r2, 0;\n@%p1 st.global.u32 [%rd7], %r1;\n@!%p1 ld.global.u32 %r6, [%rd7];\nret;\n}\n")
	p := d.alloc(256)
	o := &Observer{}
	d.run(in, "k", LaunchConfig{Grid: dims(2), Block: dims(64), Params: params(p, p), Deterministic: true, Observer: o})
	if got := o.At(p + 8); got != Read|Written|WrittenFirst|Exposed {
		t.Errorf("access %04b", got)
	}
	if got, want := o.Ranges(Written|Exposed, 0), []Range{{Addr: p, Len: 256}}; !slices.Equal(got, want) {
		t.Errorf("ranges %v, want %v", got, want)
	}
}

// Host memory that appears outside the window, and module variables.
func TestObserverElsewhere(t *testing.T) {
	d := newDevice(t, 4)
	in := d.load(header + ".global .u32 g = 5;\n.const .u32 c[4] = {1,2,3,4};\n" + observedDecl +
		"ld.global.u32 %r6, [g];\nld.const.u32 %r7, [c+8];\nld.global.u16 %h1, [%rd2+65535];\n" +
		"st.global.u8 [%rd2+3], %h1;\nret;\n}\n")
	mem := make([]byte, 1<<18)
	const va = 0x7f00_0000_0001
	if err := d.space.Alias(va, mem); err != nil {
		t.Fatal(err)
	}
	o := &Observer{}
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(uint64(0), uint64(va)), Observer: o})
	g := map[string]uint64{}
	for _, x := range in.mod.Globals() {
		g[x.Name] = in.base + x.Offset
	}
	want := []Range{{Addr: g["g"], Len: 4}, {Addr: g["c"] + 8, Len: 4}, {Addr: va + 65535, Len: 2}}
	if got := o.Ranges(Read, 0); !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if got, want := o.Ranges(Written, Read), []Range{{Addr: va + 3, Len: 1}}; !slices.Equal(got, want) {
		t.Errorf("written %v, want %v", got, want)
	}
}

// Blocks on several goroutines record what one goroutine records, where
// threads do not race.
func TestObserverParallel(t *testing.T) {
	d := newDevice(t, 16)
	in := d.load(sgemm)
	const n = 64
	pa, pb, pc := upload(d, make([]float32, n*n)), upload(d, make([]float32, n*n)), d.alloc(4*n*n)
	cfg := LaunchConfig{Grid: dims(n/16, n/16), Block: dims(16, 16), Params: params(pa, pb, pc, n), Workers: 8}
	for range 5 {
		o := &Observer{}
		cfg.Observer = o
		d.run(in, "sgemm", cfg)
		if got, want := o.Ranges(Read|Exposed, Written), []Range{{Addr: pa, Len: 8 * n * n}}; !slices.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
		if got, want := o.Ranges(Written|WrittenFirst, Read),
			[]Range{{Addr: pc, Len: 4 * n * n}}; !slices.Equal(got, want) {
			t.Errorf("written %v, want %v", got, want)
		}
	}
	plain := cfg
	plain.Observer = nil
	d.run(in, "sgemm", plain) // and the plain program still runs
}

// BenchmarkObserver is what observation costs, by class of access.
func BenchmarkObserver(b *testing.B) {
	for _, c := range []struct{ name, body string }{
		{"row", repeat(8, "\tld.global.f32 %f4, [%rd3];\n\tst.global.f32 [%rd3], %f4;\n")},
		{"gather", "\tshl.b64 %rd5, %rd2, 1;\n\tadd.u64 %rd5, %rd5, %rd1;\n" +
			repeat(16, "\tld.global.f32 %f4, [%rd5];\n")},
		{"fresh", "\tadd.u64 %rd3, %rd3, 65536;\n\tld.global.f32 %f4, [%rd3];\n"},
	} {
		for _, observed := range []bool{false, true} {
			name := c.name + "/plain"
			if observed {
				name = c.name + "/observed"
			}
			b.Run(name, func(b *testing.B) {
				d := newDevice(b, 64)
				in := d.load(loopKernel("", c.body))
				cfg := LaunchConfig{Grid: dims(64), Block: dims(256), Params: params(d.alloc(1 << 22))}
				if observed {
					cfg.Observer = &Observer{}
				}
				bench(b, d, in, "k", cfg)
			})
		}
	}
}
