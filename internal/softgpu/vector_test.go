package softgpu

import (
	"slices"
	"strings"
	"testing"

	"holdfast/internal/softgpu/probe"
	"holdfast/ptx"
)

// vectorFrame is a kernel whose threads each have 32 bytes of input at %in and 32 of output at %out.
// BODY is preceded by functions up to a line of "kernel".
const vectorFrame = header + `FUNCS
.visible .entry k(.param .u64 in, .param .u64 out)
{
	.reg .b32 %t<4>;
	.reg .b64 %in, %out, %at;
	.reg .pred %odd;
	ld.param.u64 %in, [in];
	ld.param.u64 %out, [out];
	mov.u32 %t1, %tid.x;
	mul.wide.u32 %at, %t1, 32;
	add.u64 %in, %in, %at;
	add.u64 %out, %out, %at;
	and.b32 %t2, %t1, 1;
	setp.ne.u32 %odd, %t2, 0;
BODY
	ret;
}
`

func vectorKernel(text string) string {
	funcs, body, ok := strings.Cut(text, "kernel\n")
	if !ok {
		funcs, body = "", text
	}
	return strings.NewReplacer("FUNCS", funcs, "BODY", body).Replace(vectorFrame)
}

// runVector gives what 40 threads of a kernel write: a full warp and a part of one.
func runVector(t *testing.T, text string) []uint32 {
	const threads = 40
	d := newDevice(t, 4)
	in := d.load(vectorKernel(text))
	data := make([]uint32, threads*8)
	for i := range data {
		data[i] = uint32(i)*2654435761 ^ 0x5bd1e995
	}
	from, to := upload(d, data), upload(d, make([]uint32, len(data)))
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(threads), Params: params(from, to)})
	return slices.Clone(view[uint32](d, to, len(data)))
}

// TestVectorRegisters runs code with vector registers against the same code with scalars.
func TestVectorRegisters(t *testing.T) {
	for _, c := range []struct{ name, vector, scalar string }{
		{"load and store", `
	.reg .v4 .f32 %v;
	ld.global.v4.f32 %v, [%in];
	st.global.v4.f32 [%out+16], %v;`, `
	.reg .f32 %f<4>;
	ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%in];
	st.global.v4.f32 [%out+16], {%f0, %f1, %f2, %f3};`},
		{"64 bits, guarded", `
	.reg .v2 .u64 %v;
	mov.u64 %v.x, 5;
	mov.u64 %v.y, 6;
	@%odd ld.global.v2.u64 %v, [%in+16];
	st.global.v2.u64 [%out], %v;`, `
	.reg .u64 %a, %b;
	mov.u64 %a, 5;
	mov.u64 %b, 6;
	@%odd ld.global.v2.u64 {%a, %b}, [%in+16];
	st.global.v2.u64 [%out], {%a, %b};`},
		{"narrow elements", `
	.reg .v4 .u16 %v;
	.reg .v2 .s16 %w;
	ld.global.v4.u8 %v, [%in];
	ld.global.v2.s8 %w, [%in+4];
	st.global.v4.u16 [%out], %v;
	st.global.v2.u16 [%out+8], %w;`, `
	.reg .u16 %h<6>;
	ld.global.v4.u8 {%h0, %h1, %h2, %h3}, [%in];
	ld.global.v2.s8 {%h4, %h5}, [%in+4];
	st.global.v4.u16 [%out], {%h0, %h1, %h2, %h3};
	st.global.v2.u16 [%out+8], {%h4, %h5};`},
		{"components", `
	.reg .v4 .u32 %v, %w;
	ld.global.v4.u32 %v, [%in];
	add.u32 %w.x, %v.w, %v.r;
	mul.lo.u32 %w.g, %v.z, %v.b;
	xor.b32 %w.z, %v.y, %v.a;
	@%odd sub.u32 %v.g, %v.x, 7;
	mov.u32 %w.a, %v.y;
	st.global.v4.u32 [%out], {%w.x, %w.y, %w.b, %w.w};`, `
	.reg .u32 %v<4>, %w<4>;
	ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%in];
	add.u32 %w0, %v3, %v0;
	mul.lo.u32 %w1, %v2, %v2;
	xor.b32 %w2, %v1, %v3;
	@%odd sub.u32 %v1, %v0, 7;
	mov.u32 %w3, %v1;
	st.global.v4.u32 [%out], {%w0, %w1, %w2, %w3};`},
		{"whole moves", `
	.reg .v4 .b32 %v, %w;
	.reg .b32 %a, %b, %c, %d;
	ld.global.v4.b32 %v, [%in];
	mov.v4.b32 %w, %v;
	mov.v4.b32 %v, {%w.w, %w.z, %w.y, %w.x};
	mov.v4.b32 {%a, %b, %c, %d}, %v;
	@%odd mov.v4.b32 %w, {%d, %d, 7, %a};
	st.global.v4.b32 [%out], %w;
	st.global.v4.b32 [%out+16], {%a, %b, %c, %d};`, `
	.reg .b32 %v<4>, %w<4>;
	ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%in];
	mov.b32 %w0, %v0;
	mov.b32 %w1, %v1;
	mov.b32 %w2, %v2;
	mov.b32 %w3, %v3;
	@%odd mov.b32 %w1, %v0;
	@%odd mov.b32 %w2, 7;
	@%odd mov.b32 %w3, %v3;
	st.global.v4.b32 [%out], {%w0, %w1, %w2, %w3};
	st.global.v4.b32 [%out+16], {%v3, %v2, %v1, %v0};`},
		{"elements change places", `
	.reg .v2 .u64 %v;
	.reg .v4 .f32 %w;
	ld.global.v2.u64 %v, [%in];
	ld.global.v4.f32 %w, [%in+16];
	mov.v2.u64 %v, {%v.y, %v.x};
	@%odd mov.v4.f32 {%w.y, %w.z, %w.w, %w.x}, %w;
	st.global.v2.u64 [%out], %v;
	st.global.v4.f32 [%out+16], %w;`, `
	.reg .u64 %a, %b;
	.reg .f32 %f<4>, %g<4>;
	ld.global.v2.u64 {%a, %b}, [%in];
	ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%in+16];
	st.global.v2.u64 [%out], {%b, %a};
	st.global.v4.f32 [%out+16], {%f0, %f1, %f2, %f3};
	@%odd st.global.v4.f32 [%out+16], {%f3, %f0, %f1, %f2};`},
		{"packed into one number", `
	.reg .v2 .b32 %v;
	.reg .v4 .b16 %h;
	ld.global.v2.b32 %v, [%in];
	mov.b64 %at, %v;
	mov.b64 %h, %at;
	st.global.v4.b16 [%out], {%h.w, %h.z, %h.y, %h.x};`, `
	.reg .b32 %v<2>;
	.reg .b16 %h<4>;
	ld.global.v2.b32 {%v0, %v1}, [%in];
	mov.b64 %at, {%v0, %v1};
	mov.b64 {%h0, %h1, %h2, %h3}, %at;
	st.global.v4.b16 [%out], {%h3, %h2, %h1, %h0};`},
		{"a set of vectors", `
	.reg .v2 .f32 %v<4>;
	ld.global.v2.f32 %v0, [%in];
	ld.global.v2.f32 %v3, [%in+8];
	add.f32 %v1.x, %v0.x, %v3.y;
	add.f32 %v1.y, %v0.y, %v3.x;
	st.global.v2.f32 [%out], %v1;`, `
	.reg .f32 %f<6>;
	ld.global.v2.f32 {%f0, %f1}, [%in];
	ld.global.v2.f32 {%f2, %f3}, [%in+8];
	add.f32 %f4, %f0, %f3;
	add.f32 %f5, %f1, %f2;
	st.global.v2.f32 [%out], {%f4, %f5};`},
		{"an argument and a result", `
.func (.reg .v2 .u32 out) impl(.reg .v2 .u32 a, .reg .v4 .u16 b)
{
	.reg .v2 .u32 t;
	.reg .u32 x;
	add.u32 t.x, a.x, a.y;
	cvt.u32.u16 x, b.w;
	xor.b32 t.y, x, a.x;
	mov.v2.u32 out, t;
	ret;
}
kernel
	.reg .v2 .u32 %v;
	.reg .v4 .u16 %h;
	ld.global.v2.u32 %v, [%in];
	ld.global.v4.u16 %h, [%in+8];
	@%odd call (%v), impl, (%v, %h);
	st.global.v2.u32 [%out], %v;
	call ({%t1, %t2}), impl, ({%v.y, 9}, {%h.x, %h.x, %h.y, 3});
	st.global.v2.u32 [%out+8], {%t1, %t2};`, `
	.reg .u32 %a, %b, %c, %d;
	.reg .u16 %h<4>;
	ld.global.v2.u32 {%a, %b}, [%in];
	ld.global.v4.u16 {%h0, %h1, %h2, %h3}, [%in+8];
	cvt.u32.u16 %c, %h3;
	xor.b32 %c, %c, %a;
	@%odd add.u32 %a, %a, %b;
	@%odd mov.u32 %b, %c;
	st.global.v2.u32 [%out], {%a, %b};
	add.u32 %c, %b, 9;
	xor.b32 %d, %b, 3;
	st.global.v2.u32 [%out+8], {%c, %d};`},
		{"several results", `
.func (.reg .u32 q, .reg .u64 r, .param .b32 s) divide(.reg .u32 a, .reg .u32 b)
{
	.reg .u32 x;
	div.u32 q, a, b;
	rem.u32 x, a, b;
	cvt.u64.u32 r, x;
	st.param.b32 [s], a;
	ret;
}
kernel
	.param .b32 s;
	.reg .u32 %a, %b, %c;
	.reg .u64 %w;
	ld.global.v2.u32 {%a, %b}, [%in];
	or.b32 %b, %b, 1;
	call (%c, %w, s), divide, (%a, %b);
	ld.param.b32 %t1, [s];
	st.global.v2.u32 [%out], {%c, %t1};
	st.global.u64 [%out+8], %w;`, `
	.reg .u32 %a, %b, %c, %d;
	ld.global.v2.u32 {%a, %b}, [%in];
	or.b32 %b, %b, 1;
	div.u32 %c, %a, %b;
	rem.u32 %d, %a, %b;
	st.global.v4.u32 [%out], {%c, %a, %d, 0};`},
		{"predicates", `
.func (.reg .pred p, .reg .u32 n) invert(.reg .u32 a, .reg .pred q, .reg .pred r)
{
	not.pred p, q;
	selp.u32 n, a, 3, r;
	@!r ret;
	add.u32 n, n, 1;
	ret;
}
kernel
	.reg .pred %p, %q;
	ld.global.u32 %t1, [%in];
	setp.lt.s32 %q, %t1, 0;
	call (%p, %t2), invert, (%t1, %q, !%odd);
	selp.u32 %t1, 10, 20, %p;
	st.global.v2.u32 [%out], {%t1, %t2};
	call (%p, %t2), invert, (%t1, 1, 0);
	selp.u32 %t1, 10, 20, %p;
	st.global.v2.u32 [%out+8], {%t1, %t2};`, `
	.reg .pred %q;
	ld.global.u32 %t1, [%in];
	setp.lt.s32 %q, %t1, 0;
	add.u32 %t2, %t1, 1;
	@%odd mov.u32 %t2, 3;
	selp.u32 %t1, 20, 10, %q;
	st.global.v4.u32 [%out], {%t1, %t2, 20, 3};`},
		{"128 bits", `
.func (.reg .b128 out) swap(.reg .b128 a)
{
	.reg .b64 x, y;
	mov.b128 {x, y}, a;
	mov.b128 out, {y, x};
	ret;
}
kernel
	.reg .b128 %q;
	.reg .b64 %a, %b;
	ld.global.v2.b64 {%a, %b}, [%in];
	mov.b128 %q, {%a, %b};
	@%odd call (%q), swap, (%q);
	mov.b128 {%a, %b}, %q;
	st.global.v2.b64 [%out], {%a, %b};`, `
	.reg .b64 %a, %b;
	ld.global.v2.b64 {%a, %b}, [%in];
	@!%odd st.global.v2.b64 [%out], {%a, %b};
	@%odd st.global.v2.b64 [%out], {%b, %a};`},
		{"recursion", `
.func (.reg .v2 .u32 out, .reg .pred even) count(.reg .v2 .u32 a)
{
	.reg .v2 .u32 b;
	.reg .pred p;
	setp.eq.u32 p, a.x, 0;
	mov.v2.u32 out, a;
	setp.eq.u32 even, 0, 0;
	@p ret;
	sub.u32 b.x, a.x, 1;
	mov.u32 b.y, a.y;
	call (b, p), count, (b);
	not.pred even, p;
	add.u32 out.y, b.y, a.x;
	ret;
}
kernel
	.reg .v2 .u32 %v;
	.reg .pred %p;
	mov.v2.u32 %v, {%t1, 100};
	call (%v, %p), count, (%v);
	selp.u32 %t1, 1, 2, %p;
	st.global.v4.u32 [%out], {%v.x, %v.y, %t1, 0};`, `
	add.u32 %t3, %t1, 1;
	mul.lo.u32 %t3, %t3, %t1;
	shr.u32 %t3, %t3, 1;
	add.u32 %t3, %t3, 100;
	selp.u32 %t0, 2, 1, %odd;
	st.global.v4.u32 [%out], {%t1, %t3, %t0, 0};`},
		{"through a pointer", `
.func (.reg .v2 .u32 out, .reg .pred p) flip(.reg .v2 .u32 a)
{
	mov.v2.u32 out, {a.y, a.x};
	setp.lt.u32 p, a.x, a.y;
	ret;
}
kernel
	.reg .v2 .u32 %v;
	.reg .pred %p;
	ld.global.v2.u32 %v, [%in];
	mov.u64 %at, flip;
	call (%v, %p), %at, (%v), proto;
	selp.u32 %t1, 1, 2, %p;
	proto: .callprototype (.reg .v2 .u32 _, .reg .pred _) _ (.reg .v2 .u32 _);
	st.global.v4.u32 [%out], {%v.x, %v.y, %t1, 0};`, `
	.reg .u32 %a, %b;
	.reg .pred %p;
	ld.global.v2.u32 {%a, %b}, [%in];
	setp.lt.u32 %p, %a, %b;
	selp.u32 %t1, 1, 2, %p;
	st.global.v4.u32 [%out], {%b, %a, %t1, 0};`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, want := runVector(t, c.vector), runVector(t, c.scalar)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("word %d of thread %d: %#x, with scalars %#x", i%8, i/8, got[i], want[i])
				}
			}
			if slices.Max(want) == 0 {
				t.Fatal("nothing was written")
			}
		})
	}
}

// What no vector can be, or does not fit, is refused by name.
func TestVectorRefusals(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{".reg .v2 .pred %v;", "%v: a vector register of 2 .pred"},
		{".reg .v8 .b32 %v;", "%v: a vector register of 8 .b32"},
		{".reg .v2 .u32 %v; mov.u32 %t1, %v.z;", "%v needs a component"},
		{".reg .v2 .u32 %v; mov.u32 %t1, %v.xy;", "%v needs a component"},
		{".reg .v2 .u32 %v; mov.u32 %t1, %v;", "%v needs a component"},
		{".reg .v2 .u32 %v; mov.u32 %v, %v;", "both operands are vectors"},
		{".reg .v2 .u32 %v; mov.v4.u32 %v, %v;", "not both vectors of 4 elements"},
		{".reg .v2 .u32 %v; ld.global.v4.u32 %v, [%in];", "2 elements for .v4"},
		{".reg .v2 .u32 %v; ld.global.u32 %v, [%in];", "vector operand without .v"},
		{".reg .v2 .u64 %v; ld.global.u32 %t1, [%v];", "%v needs a component"},
		{".func f(.reg .v2 .u32 a) { ret; }\nkernel\ncall f, (%t1);", "f has a parameter of another size"},
		{".func f(.reg .v2 .u32 a) { ret; }\nkernel\n.reg .v4 .u32 %v; call f, (%v);",
			"operand {%v.x, %v.y, %v.z, %v.w} does not fit"},
		{".func f(.reg .v2 .u64 a) { ret; }\nkernel\n.reg .v2 .u32 %v; call f, (%v);",
			"operand %v.x has the wrong width for .u64"},
		{".func f(.reg .u32 a) { ret; }\nkernel\ncall f, (%odd);", "operand %odd has the wrong width for .u32"},
		{".func f(.reg .pred a) { ret; }\nkernel\ncall f, (%t1);", "operand %t1 has the wrong width for .pred"},
		{".func f(.reg .b128 a) { ret; }\nkernel\ncall f, (1);", "operand 1 for a parameter of 128 bits"},
		{".func f(.reg .u32 a<2>) { ret; }\nkernel\ncall f, (%at);", "a: several registers as one parameter"},
	} {
		m, err := ptx.Parse("v.ptx", []byte(vectorKernel(c.body)))
		if err != nil {
			t.Fatal(err)
		}
		mod, err := Load(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := mod.Kernels()[0].Unsupported; !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.body, got, c.want)
		}
	}
}

// TestVectorMoves runs the probe of each mov of a whole vector: it stores the elements, the last one first.
func TestVectorMoves(t *testing.T) {
	d := newDevice(t, 4)
	at := d.alloc(2 << 20)
	mem, err := d.space.Bytes(at, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range probe.All() {
		if !strings.HasPrefix(p.Spelling, "mov.v") {
			continue
		}
		n++
		in := d.load(probe.Module([]*probe.Probe{p}))
		x := p.Input(1, 0)
		copy(mem, x)
		d.run(in, p.Name, LaunchConfig{Grid: p.Grid, Block: p.Block, Params: params(at, at+1<<19)})
		size, count := p.In[0].Bytes, p.In[0].Count
		for i := range p.NumThreads() * count {
			want := x[i/count*p.InStride()+(count-1-i%count)*size:][:size]
			if got := mem[1<<19+i*size:][:size]; !slices.Equal(got, want) {
				t.Fatalf("%s: element %d is %x, want %x", p.Spelling, i, got, want)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d probes", n)
	}
}
