package summarise

import (
	"strings"
	"testing"

	"holdfast/internal/footprint"
)

// vectorKernel copies 16 bytes a thread; BODY has the bases at %in and %out and the thread's offset at %at.
const vectorKernel = `.version 8.4
.target sm_90
.address_size 64
.func (.reg .v2 .u64 o) moved(.reg .v2 .u64 a, .reg .u64 by)
{
	add.u64 o.x, a.x, by;
	add.u64 o.y, a.y, by;
	ret;
}
.func stored(.reg .v2 .u64 a, .reg .pred p)
{
	@p st.global.u64 [a.y], a.x;
	ret;
}
.visible .entry k(.param .u64 in, .param .u64 out)
{
	.reg .b32 %r<8>;
	.reg .u64 %in, %out, %at;
	.reg .pred %p;
	.reg .v2 .u64 %v, %w;
	.reg .v4 .u32 %x;
	ld.param.u64 %in, [in];
	ld.param.u64 %out, [out];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %at, %r1, 16;
	setp.lt.u32 %p, %r1, 8;
BODY
	ret;
}
`

// TestVectorRegisters wants that what is known of addresses in vector registers is what is known of them in
// scalars, or nothing.
func TestVectorRegisters(t *testing.T) {
	const scalar = `
	add.u64 %in, %in, %at;
	add.u64 %out, %out, %at;
	ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%in];
	st.global.v4.u32 [%out], {%r2, %r3, %r4, %r5};`
	for _, c := range []struct {
		name, body string
		known      bool
		cause      footprint.Cause
	}{
		{"components", `
	add.u64 %v.x, %in, %at;
	add.u64 %v.y, %out, %at;
	ld.global.v4.u32 %x, [%v.x];
	st.global.v4.u32 [%v.y], %x;`, true, footprint.NoCause},
		{"whole moves", `
	mov.v2.u64 %v, {%in, %out};
	mov.v2.u64 %w, %v;
	add.u64 %w.r, %w.r, %at;
	add.u64 %w.g, %w.g, %at;
	mov.v2.u64 {%in, %out}, %w;
	ld.global.v4.u32 %x, [%in];
	st.global.v4.u32 [%out], {%x.x, %x.y, %x.z, %x.w};`, true, footprint.NoCause},
		{"elements change places", `
	add.u64 %v.x, %out, %at;
	add.u64 %v.y, %in, %at;
	mov.v2.u64 %v, {%v.y, %v.x};
	ld.global.v4.u32 %x, [%v.x];
	st.global.v4.u32 [%v.y], %x;`, false, footprint.UnboundedRead},
		{"results of a call", `
	mov.v2.u64 %v, {%in, %out};
	call (%w), moved, (%v, %at);
	ld.global.v4.u32 %x, [%w.x];
	st.global.v4.u32 [%w.y], %x;`, false, footprint.UnboundedRead},
		{"written by a call", `
	add.u64 %v.x, %in, %at;
	add.u64 %v.y, %out, %at;
	call stored, (%v, %p);
	ld.global.v4.u32 %x, [%v.x];
	st.global.v4.u32 [%v.y], %x;`, false, footprint.UnknownCall},
	} {
		for _, launch := range []string{"block 32 p 1000 p 2000", "block 32 p 1000 p 1000", "block 32 p 1000 p 1010"} {
			var got, want footprint.Instance
			summarised(t, c.name, strings.Replace(vectorKernel, "BODY", c.body, 1)).Evaluate(launchOf(t, launch), &got)
			summarised(t, "scalar",
				strings.Replace(vectorKernel, "BODY", scalar, 1)).Evaluate(launchOf(t, launch), &want)
			g := rangesText(got.Reads, got.ReadsUnknown) + rangesText(got.Writes, got.WritesUnknown)
			w := rangesText(want.Reads, want.ReadsUnknown) + rangesText(want.Writes, want.WritesUnknown)
			if c.known && (got.Verdict != want.Verdict || g != w) {
				t.Errorf("%s: %s: %v, %s; with scalars %v, %s", c.name, launch, got.Verdict, g, want.Verdict, w)
			}
			if !c.known && (got.Verdict != footprint.Unknown || got.Cause != c.cause || !got.WritesUnknown) {
				t.Errorf("%s: %s: %v, %v, %s; want unknown", c.name, launch, got.Verdict, got.Cause, g)
			}
		}
	}
}
