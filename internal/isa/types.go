package isa

import (
	"sync"

	"holdfast/ptx"
)

// typeOf maps the spelling of a type modifier to the type.
var typeOf = map[string]ptx.Type{
	"s8": ptx.S8, "s16": ptx.S16, "s32": ptx.S32, "s64": ptx.S64,
	"u8": ptx.U8, "u16": ptx.U16, "u32": ptx.U32, "u64": ptx.U64,
	"f16": ptx.F16, "f16x2": ptx.F16x2, "f32": ptx.F32, "f32x2": ptx.F32x2, "f64": ptx.F64,
	"b1": ptx.B1, "b8": ptx.B8, "b16": ptx.B16, "b32": ptx.B32, "b64": ptx.B64, "b128": ptx.B128,
	"bf16": ptx.BF16, "bf16x2": ptx.BF16x2, "tf32": ptx.TF32,
	"e4m3": ptx.E4M3, "e4m3x2": ptx.E4M3x2, "e4m3x4": ptx.E4M3x4,
	"e5m2": ptx.E5M2, "e5m2x2": ptx.E5M2x2, "e5m2x4": ptx.E5M2x4,
	"e2m1": ptx.E2M1, "e2m1x2": ptx.E2M1x2, "e2m1x4": ptx.E2M1x4,
	"e2m3": ptx.E2M3, "e2m3x2": ptx.E2M3x2, "e2m3x4": ptx.E2M3x4,
	"e3m2": ptx.E3M2, "e3m2x2": ptx.E3M2x2, "e3m2x4": ptx.E3M2x4,
	"ue8m0": ptx.UE8M0, "ue8m0x2": ptx.UE8M0x2, "ue4m3": ptx.UE4M3,
	"u16x2": ptx.U16x2, "s16x2": ptx.S16x2, "u8x4": ptx.U8x4, "s8x4": ptx.S8x4,
	"u2": ptx.U2, "s2": ptx.S2, "u4": ptx.U4, "s4": ptx.S4, "pred": ptx.Pred,
	"texref": ptx.TexRef, "samplerref": ptx.SamplerRef, "surfref": ptx.SurfRef,
}

// typeNames is typeOf the other way round.
var typeNames = sync.OnceValue(func() map[ptx.Type]string {
	m := make(map[ptx.Type]string, len(typeOf))
	for name, t := range typeOf {
		m[t] = name
	}
	return m
})

// TypeName is the PTX spelling of t without the dot.
func TypeName(t ptx.Type) string {
	if name, ok := typeNames()[t]; ok {
		return name
	}
	return "none"
}

var flagOf = map[string]Flag{
	"ftz": Ftz, "sat": Sat, "satfinite": Satfinite, "approx": Approx, "full": Full, "cc": CC, "abs": Abs, "NaN": NaN,
	"xorsign": XorSign, "relu": Relu, "uni": Uni, "sync": Sync, "aligned": Aligned, "to": To, "nc": Nc,
	"unified": Unified, "noftz": Noftz,
	"trans": Trans, "multicast::cluster": Multicast, "read": ReadOnly,
	"oob": OOB, "scaled": Scaled, "noinc": Noinc,
}

// roundOps is what rnd= slots may hold where a form does not say less.
const (
	macroRound     = "rn|rz|rm|rp"
	macroInt       = "u16|u32|u64|s16|s32|s64"
	macroBits      = "b16|b32|b64"
	macroSpace     = "const|global|local|param|param::entry|param::func|shared|shared::cta|shared::cluster"
	macroSem       = "weak|volatile|relaxed|acquire|release|acq_rel|sc|mmio"
	macroScope     = "cta|cluster|gpu|sys"
	macroMemT      = "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
	macroCop       = "ca|cg|cs|lu|cv|wb|wt"
	macroEvict1    = "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
	macroEvict2    = "L2::evict_normal|L2::evict_first|L2::evict_last"
	macroFetch     = "L2::64B|L2::128B|L2::256B"
	macroCmpS      = "eq|ne|lt|le|gt|ge"
	macroAShared   = "global|shared|shared::cta|shared::cluster"
	macroCmpI      = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs"
	macroCmpF      = "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
	macroBool      = "and|or|xor"
	macroSh        = "shared|shared::cta"
	macroShCluster = "shared|shared::cta|shared::cluster"
	macroDim       = "1d|2d|3d|4d|5d"
	macroGeom      = "1d|2d|3d|a1d|a2d|cube|acube"
	macroW16       = "m16n16k16|m8n32k16|m32n8k16"
	macroPacked8   = "e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2"
)
