package summarise

import (
	"testing"

	"holdfast/internal/footprint"
)

// TestUnrolled: for j from row[i] to below row[i+1], unrolled by 4, reads no columns behind the last row. One that
// reads one more does.
func TestUnrolled(t *testing.T) {
	body := func(last string) string {
		column := func(off string) string {
			return `
	ld.global.u32 %r3, [%rd9+` + off + `];
	mul.wide.s32 %rd8, %r3, 4;
	add.s64 %rd8, %rd1, %rd8;
	ld.global.u32 %r4, [%rd8];`
		}
		return `
	ld.global.u32 %r5, [%rd5];
	ld.global.u32 %r6, [%rd5+4];
	setp.ge.s32 %p1, %r5, %r6;
	@%p1 bra L4;
	add.s32 %r8, %r5, 1;
	max.s32 %r9, %r6, %r8;
	sub.s32 %r10, %r9, %r5;
	and.b32 %r11, %r10, 3;
	mov.u32 %r7, %r5;
	setp.eq.s32 %p1, %r11, 0;
	@%p1 bra L2;
L1:
	mul.wide.s32 %rd9, %r7, 4;
	add.s64 %rd9, %rd3, %rd9;` + column("20") + `
	add.s32 %r7, %r7, 1;
	add.s32 %r11, %r11, -1;
	setp.ne.s32 %p1, %r11, 0;
	@%p1 bra L1;
L2:
	not.b32 %r12, %r5;
	add.s32 %r12, %r9, %r12;
	setp.lt.u32 %p1, %r12, 3;
	@%p1 bra L4;
L3:
	mul.wide.s32 %rd9, %r7, 4;
	add.s64 %rd9, %rd3, %rd9;` + column("20") + column("24") + column("28") + column(last) + `
	add.s32 %r7, %r7, 4;
	setp.lt.s32 %p1, %r7, %r6;
	@%p1 bra L3;
L4:
	st.global.u32 [%rd7], %r1;`
	}
	const a, tab = 1 << 32, 1 << 40
	csr := append(words(4, 0, 5, 6, 14, 16),
		words(4, 70, 64, 68, 65, 66, 69, 64, 64, 65, 66, 64, 64, 64, 64, 64, 70)...)
	for _, x := range []struct {
		last  string
		known int
		want  footprint.Verdict
	}{{"32", len(csr), footprint.Idempotent}, {"32", len(csr) - 4, footprint.Unknown},
		{"36", len(csr), footprint.Unknown}} {
		s := tableKernel(t, body(x.last))
		l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{4, 1, 1}}
		l.Params = appendUint(appendUint(appendUint(appendUint(nil, a, 8), a, 8), tab, 8), 4, 4)
		l.Known = []footprint.Known{{Range: footprint.Range{Lo: tab, Hi: tab + uint64(x.known)},
			Contents: footprint.NewContents(csr[:x.known], uint64(x.known))}}
		var in footprint.Instance
		s.Evaluate(l, &in)
		if in.Verdict != x.want {
			t.Errorf("%s, %d bytes known: %v (%s), reads %x", x.last, x.known, in.Verdict, in.Reason(), in.Reads)
		}
	}
}
