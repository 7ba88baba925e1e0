package ptx

// typeNames is the spelling of each type, without its dot.
var typeNames = [...]string{
	TypeNone: "",
	S8:       "s8", S16: "s16", S32: "s32", S64: "s64",
	U8: "u8", U16: "u16", U32: "u32", U64: "u64",
	F16: "f16", F16x2: "f16x2", F32: "f32", F32x2: "f32x2", F64: "f64",
	B8: "b8", B16: "b16", B32: "b32", B64: "b64", B128: "b128",
	BF16: "bf16", BF16x2: "bf16x2", TF32: "tf32",
	E4M3: "e4m3", E5M2: "e5m2", E4M3x2: "e4m3x2", E5M2x2: "e5m2x2", E4M3x4: "e4m3x4", E5M2x4: "e5m2x4",
	E2M1: "e2m1", E2M1x2: "e2m1x2", E2M1x4: "e2m1x4",
	E2M3: "e2m3", E2M3x2: "e2m3x2", E2M3x4: "e2m3x4",
	E3M2: "e3m2", E3M2x2: "e3m2x2", E3M2x4: "e3m2x4",
	UE8M0: "ue8m0", UE8M0x2: "ue8m0x2", UE4M3: "ue4m3",
	U16x2: "u16x2", S16x2: "s16x2", U8x4: "u8x4", S8x4: "s8x4",
	U4: "u4", S4: "s4", U2: "u2", S2: "s2", B1: "b1",
	B4x16: "b4x16", B4x16P64: "b4x16_p64", B6x16P32: "b6x16_p32", B6P2x16: "b6p2x16",
	Pred:   "pred",
	TexRef: "texref", SamplerRef: "samplerref", SurfRef: "surfref",
}

var typeByName = func() map[string]Type {
	m := make(map[string]Type, len(typeNames))
	for t, n := range typeNames {
		if n != "" {
			m[n] = Type(t)
		}
	}
	return m
}()

// String is the type's spelling without its dot: "f16x2".
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "?"
}

// LookupType finds a type by its spelling without the dot.
func LookupType(name string) (Type, bool) {
	t, ok := typeByName[name]
	return t, ok
}

// Size is the number of bytes a variable of this type takes: 8 for the opaque
// types, 1 for .pred, which has no address, and 0 for types that no variable can have.
func (t Type) Size() int {
	switch t {
	case S8, U8, B8, Pred, E4M3, E5M2, E2M1x2, UE8M0, UE4M3, E2M3, E3M2:
		return 1
	case S16, U16, B16, F16, BF16, E4M3x2, E5M2x2, E2M3x2, E3M2x2, UE8M0x2, E2M1x4:
		return 2
	case S32, U32, B32, F32, F16x2, BF16x2, TF32, U16x2, S16x2, U8x4, S8x4, E4M3x4, E5M2x4, E2M3x4, E3M2x4:
		return 4
	case S64, U64, B64, F64, F32x2, TexRef, SamplerRef, SurfRef:
		return 8
	case B128:
		return 16
	}
	return 0
}

// spaceNames is the spelling of each state space, without its dot.
var spaceNames = [...]string{
	SpaceGeneric: "generic", SpaceReg: "reg", SpaceSreg: "sreg", SpaceConst: "const",
	SpaceGlobal: "global", SpaceLocal: "local", SpaceParam: "param",
	SpaceShared: "shared", SpaceTex: "tex",
}

// String is the state space's spelling without its dot.
func (s Space) String() string {
	if int(s) < len(spaceNames) {
		return spaceNames[s]
	}
	return "?"
}

// LookupSpace finds the state space of a declaration by its spelling without the dot.
func LookupSpace(name string) (Space, bool) {
	switch name {
	case "reg":
		return SpaceReg, true
	case "sreg":
		return SpaceSreg, true
	case "const":
		return SpaceConst, true
	case "global":
		return SpaceGlobal, true
	case "local":
		return SpaceLocal, true
	case "param":
		return SpaceParam, true
	case "shared":
		return SpaceShared, true
	case "tex":
		return SpaceTex, true
	}
	return SpaceGeneric, false
}

// linkNames is the spelling of each linkage, without its dot.
var linkNames = [...]string{LinkNone: "", LinkExtern: "extern", LinkVisible: "visible",
	LinkWeak: "weak", LinkCommon: "common"}

// String is the linkage's spelling without its dot.
func (l Linkage) String() string {
	if int(l) < len(linkNames) {
		return linkNames[l]
	}
	return "?"
}

func lookupLink(name string) (Linkage, bool) {
	switch name {
	case "extern":
		return LinkExtern, true
	case "visible":
		return LinkVisible, true
	case "weak":
		return LinkWeak, true
	case "common":
		return LinkCommon, true
	}
	return LinkNone, false
}
