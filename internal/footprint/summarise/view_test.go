package summarise

import (
	"testing"

	"holdfast/internal/footprint"
)

// A witness is looked for only where a followed thread may be seen to read and to write: not if it is loaded whether it
// writes.
func TestView(t *testing.T) {
	for _, x := range []struct {
		name, test string
		blind      bool
		verdict    footprint.Verdict
	}{
		{"a condition that is computed", "setp.lt.u32 %p1, %r1, %r2;", false, footprint.NotIdempotent},
		{"a condition that is loaded", "setp.lt.f32 %p1, %f1, 0f00000000;", true, footprint.Unknown},
		{"one of two conditions that is computed, and decides for thread 2", "setp.lt.f32 %p2, %f1, 0f00000000;\n" +
			"\tsetp.ge.u32 %p3, %r1, %r2;\n\tor.pred %p1, %p2, %p3;", false, footprint.NotIdempotent},
	} {
		s := summarised(t, x.name, `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u32 n)
{
	.reg .pred %p<4>;
	.reg .b32 %r<4>;
	.reg .f32 %f<2>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [a];
	cvta.to.global.u64 %rd1, %rd1;
	ld.param.u32 %r2, [n];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd2, %rd1, %rd2;
	ld.global.f32 %f1, [%rd2];
	`+x.test+`
	@!%p1 bra OUT;
	add.f32 %f1, %f1, %f1;
	st.global.f32 [%rd2], %f1;
OUT:
	ret;
}`)
		if got := s.Inspect().Blind; got != x.blind {
			t.Errorf("%s: blind %v", x.name, got)
		}
		l := &footprint.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{4, 1, 1}, Params: make([]byte, 16)}
		l.Params[5], l.Params[8] = 1, 2 // a and n
		var in footprint.Instance
		if s.Evaluate(l, &in); in.Verdict != x.verdict || in.Cause != footprint.ReadThenWrite {
			t.Errorf("%s: %v because of %v", x.name, in.Verdict, in.Cause)
		}
	}
}
