package main

import "testing"

// Additions and multiplications of floats get the rounding that they have anyway; nothing else changes.
func TestRounded(t *testing.T) {
	for in, want := range map[string]string{
		"\tmul.f32 %f1, %f2, %f3;":                "\tmul.rn.f32 %f1, %f2, %f3;",
		"@%p1 add.ftz.f32 %f1, %f2, %f3;":         "@%p1 add.rn.ftz.f32 %f1, %f2, %f3;",
		"{sub.sat.f32 %f1,%f2,%f3;mul.f64 a,b,c;": "{sub.rn.sat.f32 %f1,%f2,%f3;mul.rn.f64 a,b,c;",
		"L:add.f16x2 a,b,c; mul.bf16 d,e,f;":      "L:add.rn.f16x2 a,b,c; mul.rn.bf16 d,e,f;",
		"add.rn.f32 a,b,c; mul.rz.ftz.f32 d,e,f;": "add.rn.f32 a,b,c; mul.rz.ftz.f32 d,e,f;",
		"atom.global.add.f32 a,[b],c;":            "atom.global.add.f32 a,[b],c;",
		"red.add.f64 [b],c; mul.lo.u32 d,e,f;":    "red.add.f64 [b],c; mul.lo.u32 d,e,f;",
		"fma.rn.f32 a,b,c,d; add.s32 d,e,f;":      "fma.rn.f32 a,b,c,d; add.s32 d,e,f;",
	} {
		if got := string(rounded([]byte(in))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
