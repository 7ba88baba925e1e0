package summarise

import (
	"testing"

	"holdfast/internal/footprint"
)

// An instruction in a form that nobody knows may do what its opcode does elsewhere, and more: no launch is judged.
func TestUnknownForms(t *testing.T) {
	for in, want := range map[string]footprint.Cause{
		"wmma.store.d.sync.aligned.row.m64n64k64.global.f16 [%rd1], {%r1, %r2}, %r3;":   footprint.UnknownInstruction,
		"cp.async.bulk.global.shared::cta.swizzled [%rd1], [%r1], 16;":                  footprint.UnknownInstruction,
		"cp.reduce.async.bulk.global.shared::cta.bulk_group.mul.u32 [%rd1], [%r1], 16;": footprint.UnknownInstruction,
		"tcgen05.st.sync.aligned [%rd1], %r1;":                                          footprint.UnknownInstruction,
		"tex.base.2dms.v4.f32.s32 {%f1, %f1, %f1, %f1}, [%rd1, {%r1, %r2, %r3, %r1}];":  footprint.Texture,
		"wgmma.mma_async.sync.aligned.m64n8k99.f32.f16.f16 {%f1}, %rd1, %rd1;":          footprint.NoCause,
		"mbarrier.arrive.someday.shared.b64 %rd1, [%r1];":                               footprint.NoCause,
		"red.async.mbarrier::complete_tx::bytes.add.u32 [%rd1], %r1, [%rd1];":           footprint.NoCause,
		// shared memory, if it says so or not
	} {
		s := summarised(t, "k", `.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a)
{
	.reg .f32 %f<2>;
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [a];
	mov.u32 %r1, %tid.x;
	`+in+`
	ret;
}
`)
		if s.Cause != want || want == footprint.NoCause && len(s.Code.Accs) != 0 {
			t.Errorf("%s: %v, want %v", in, s.Cause, want)
		}
	}
}
