//go:build ignore

package main

// An op is an operation of the software GPU with up to three operands, for some types.
type op struct {
	name  string // as the key begins: mnemonic and modifiers
	types string // "t", of result and operands, or "d:a", of the result and the others
	n     int    // operands
	expr  string // of a, b and c; @ is the type of the result, names with a capital are those of package number

	rest     string // types of b and c, where they are not those of a and the result
	suffix   string // of the key
	laneOnly bool   // no form over lanes: it would cost much for lanes that are not active
	loop     string // a loop that package lanes writes by hand

	// The vector expression of x, y and z for some types: "types = expression; types = expression".
	simd string
	rare string // mask of lanes for which the vector expression is wrong
}

const (
	ints = "u16 s16 u32 s32 u64 s64"
	raw  = "b16 b32 b64"
)

var ops = concat(integers, bitwise, singles, doubles, conversions)

func concat(lists ...[]op) (all []op) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

var integers = []op{
	{name: "add", types: ints, n: 2, expr: "a + b", simd: "u16 s16 = x.Add(y).And(low16); u32 s32 u64 s64 = x.Add(y)"},
	{name: "sub", types: ints, n: 2, expr: "a - b", simd: "u16 s16 = x.Sub(y).And(low16); u32 s32 u64 s64 = x.Sub(y)"},
	{name: "add.sat", types: "s32", n: 2, expr: "Saturate32(int64(a) + int64(b))"},
	{name: "sub.sat", types: "s32", n: 2, expr: "Saturate32(int64(a) - int64(b))"},
	{name: "mul.lo", types: ints, n: 2, expr: "a * b",
		simd: "u16 s16 = x.Mul(y).And(low16); u32 s32 = x.Mul(y); u64 = mulU64(x, y, high64); " +
			"s64 = mulS64(x, y, high64)"},
	{name: "mad.lo", types: ints, n: 3, expr: "a*b + c",
		simd: "u16 s16 = x.Mul(y).Add(z).And(low16); u32 s32 = x.Mul(y).Add(z); u64 = mulU64(x, y, high64).Add(z); " +
			"s64 = mulS64(x, y, high64).Add(z)"},
	{name: "mul.wide", types: "u64:u32", n: 2, expr: "uint64(a) * uint64(b)", simd: "u32 = wideU32(x, y)"},
	{name: "mul.wide", types: "s64:s32", n: 2, expr: "int64(a) * int64(b)", simd: "s32 = wideS32(x, y)"},
	{name: "mul.wide", types: "u32:u16", n: 2, expr: "uint32(a) * uint32(b)",
		simd: "u16 = x.And(low16).Mul(y.And(low16))"},
	{name: "mul.wide", types: "s32:s16", n: 2, expr: "int32(a) * int32(b)", simd: "s16 = signed16(x).Mul(signed16(y))"},
	{name: "mad.wide", types: "u64:u32", n: 3, expr: "uint64(a)*uint64(b) + c", simd: "u32 = wideU32(x, y).Add(z)"},
	{name: "mad.wide", types: "s64:s32", n: 3, expr: "int64(a)*int64(b) + c", simd: "s32 = wideS32(x, y).Add(z)"},
	{name: "mad.wide", types: "u32:u16", n: 3, expr: "uint32(a)*uint32(b) + c",
		simd: "u16 = x.And(low16).Mul(y.And(low16)).Add(z)"},
	{name: "mad.wide", types: "s32:s16", n: 3, expr: "int32(a)*int32(b) + c",
		simd: "s16 = signed16(x).Mul(signed16(y)).Add(z)"},
	{name: "mul.hi", types: "u16", n: 2, expr: "uint16(uint32(a) * uint32(b) >> 16)"},
	{name: "mul.hi", types: "s16", n: 2, expr: "int16(int32(a) * int32(b) >> 16)"},
	{name: "mul.hi", types: "u32", n: 2, expr: "uint32(uint64(a) * uint64(b) >> 32)",
		simd: "u32 = highU32(x, y, high64)"},
	{name: "mul.hi", types: "s32", n: 2, expr: "int32(int64(a) * int64(b) >> 32)", simd: "s32 = highS32(x, y, high64)"},
	{name: "mul.hi", types: "u64", n: 2, expr: "MulHi(a, b, 64, false)"},
	{name: "mul.hi", types: "s64", n: 2, expr: "int64(MulHi(uint64(a), uint64(b), 64, true))"},
	{name: "mad.hi", types: "u16", n: 3, expr: "uint16(uint32(a)*uint32(b)>>16) + c"},
	{name: "mad.hi", types: "s16", n: 3, expr: "int16(int32(a)*int32(b)>>16) + c"},
	{name: "mad.hi", types: "u32", n: 3, expr: "uint32(uint64(a)*uint64(b)>>32) + c",
		simd: "u32 = highU32(x, y, high64).Add(z)"},
	{name: "mad.hi", types: "s32", n: 3, expr: "int32(int64(a)*int64(b)>>32) + c",
		simd: "s32 = highS32(x, y, high64).Add(z)"},
	{name: "mad.hi", types: "u64", n: 3, expr: "MulHi(a, b, 64, false) + c"},
	{name: "mad.hi", types: "s64", n: 3, expr: "int64(MulHi(uint64(a), uint64(b), 64, true)) + c"},
	{name: "mad.hi.sat", types: "s32", n: 3, expr: "Saturate32(int64(a)*int64(b)>>32 + int64(c))"},
	{name: "mul24.lo", types: "u32", n: 2, expr: "uint32(Mul24U(a, b))"},
	{name: "mul24.lo", types: "s32", n: 2, expr: "int32(Mul24S(a, b))"},
	{name: "mul24.hi", types: "u32", n: 2, expr: "uint32(Mul24U(a, b) >> 16)"},
	{name: "mul24.hi", types: "s32", n: 2, expr: "int32(Mul24S(a, b) >> 16)"},
	{name: "mad24.lo", types: "u32", n: 3, expr: "uint32(Mul24U(a, b)) + c"},
	{name: "mad24.lo", types: "s32", n: 3, expr: "int32(Mul24S(a, b)) + c"},
	{name: "mad24.hi", types: "u32", n: 3, expr: "uint32(Mul24U(a, b)>>16) + c"},
	{name: "mad24.hi", types: "s32", n: 3, expr: "int32(Mul24S(a, b)>>16) + c"},
	{name: "mad24.hi.sat", types: "s32", n: 3, expr: "Saturate32(int64(int32(Mul24S(a, b)>>16)) + int64(c))"},
	{name: "mad24.lo.sat", types: "s32", n: 3, expr: "Saturate32(int64(int32(Mul24S(a, b))) + int64(c))"},
	{name: "mad24.hi.sat", types: "u32", n: 3,
		expr: "uint32(Saturate32(int64(int32(Mul24U(a, b)>>16)) + int64(int32(c))))"},
	{name: "mad24.lo.sat", types: "u32", n: 3,
		expr: "uint32(Saturate32(int64(int32(Mul24U(a, b))) + int64(int32(c))))"},
	{name: "div", types: ints, n: 2, expr: "Div(a, b)"},
	{name: "rem", types: ints, n: 2, expr: "Rem(a, b)"},
	{name: "sad", types: ints, n: 3, expr: "c + max(a, b) - min(a, b)",
		simd: "u32 = z.Add(x.Max(y)).Sub(x.Min(y)); s32 = z.Add(x.Max(y)).Sub(x.Min(y))"},
	{name: "neg", types: "s16 s32 s64", n: 1, expr: "-a", simd: "s32 = x.Xor(x).Sub(x); s64 = x.Xor(x).Sub(x)"},
	{name: "abs", types: "s16 s32 s64", n: 1, expr: "max(a, -a)", simd: "s32 = x.Abs()"},
	{name: "min", types: ints, n: 2, expr: "min(a, b)",
		simd: "u32 s32 = x.Min(y); s64 = y.Merge(x, x.Greater(y)); u64 = y.Merge(x, above64(x, y, sign64))"},
	{name: "max", types: ints, n: 2, expr: "max(a, b)",
		simd: "u32 s32 = x.Max(y); s64 = x.Merge(y, x.Greater(y)); u64 = x.Merge(y, above64(x, y, sign64))"},
	{name: "min.relu", types: "s16 s32", n: 2, expr: "max(min(a, b), 0)"},
	{name: "max.relu", types: "s16 s32", n: 2, expr: "max(a, b, 0)"},
	{name: "dp4a", types: "u32", suffix: "u32", n: 3, expr: "Dot4(a, b, c, false, false)"},
	{name: "dp4a", types: "u32:s32", suffix: "u32", n: 3, expr: "Dot4(uint32(a), uint32(b), c, true, false)"},
	{name: "dp4a", types: "u32", suffix: "s32", n: 3, expr: "Dot4(a, b, c, false, true)"},
	{name: "dp4a", types: "u32:s32", suffix: "s32", n: 3, expr: "Dot4(uint32(a), uint32(b), c, true, true)"},
	{name: "dp2a.lo", types: "u32", suffix: "u32", n: 3, expr: "Dot2(a, b, c, false, false)"},
	{name: "dp2a.lo", types: "u32:s32", suffix: "u32", n: 3, expr: "Dot2(uint32(a), uint32(b), c, true, false)"},
	{name: "dp2a.lo", types: "u32", suffix: "s32", n: 3, expr: "Dot2(a, b, c, false, true)"},
	{name: "dp2a.lo", types: "u32:s32", suffix: "s32", n: 3, expr: "Dot2(uint32(a), uint32(b), c, true, true)"},
	{name: "dp2a.hi", types: "u32", suffix: "u32", n: 3, expr: "Dot2(a, b>>16, c, false, false)"},
	{name: "dp2a.hi", types: "u32:s32", suffix: "u32", n: 3, expr: "Dot2(uint32(a), uint32(b)>>16, c, true, false)"},
	{name: "dp2a.hi", types: "u32", suffix: "s32", n: 3, expr: "Dot2(a, b>>16, c, false, true)"},
	{name: "dp2a.hi", types: "u32:s32", suffix: "s32", n: 3, expr: "Dot2(uint32(a), uint32(b)>>16, c, true, true)"},
}

// Go's shifts by the width or more give what PTX's clamped shifts give, and so do those of vectors.
var bitwise = concat([]op{
	{name: "and", types: raw, n: 2, expr: "a & b", simd: "b16 = x.And(y).And(low16); b32 b64 = x.And(y)"},
	{name: "or", types: raw, n: 2, expr: "a | b", simd: "b16 = x.Or(y).And(low16); b32 b64 = x.Or(y)"},
	{name: "xor", types: raw, n: 2, expr: "a ^ b", simd: "b16 = x.Xor(y).And(low16); b32 b64 = x.Xor(y)"},
	{name: "not", types: raw, n: 1, expr: "^a", simd: "b16 = x.Not().And(low16); b32 b64 = x.Not()"},
	{name: "cnot", types: raw, n: 1, expr: "@(FromBool(a == 0))"},
	{name: "shl", types: raw, rest: "u32", n: 2, expr: "a << b",
		simd: "b32 = x.ShiftLeft(y); b64 = x.ShiftLeft(y.ExtendToUint64())"},
	{name: "shr", types: "b16 u16 s16 b32 u32 s32 b64 u64 s64", rest: "u32", n: 2, expr: "a >> b",
		simd: "b32 u32 = x.ShiftRight(y); s32 = x.ShiftRight(y.AsInt32x8()); " +
			"b64 u64 = x.ShiftRight(y.ExtendToUint64()); s64 = shiftS64(x, y, sign64, most64)"},
	{name: "popc", types: "u32:b32", n: 1, expr: "uint32(bits.OnesCount32(a))"},
	{name: "popc", types: "u32:b64", n: 1, expr: "uint32(bits.OnesCount64(a))"},
	{name: "clz", types: "u32:b32", n: 1, expr: "uint32(bits.LeadingZeros32(a))"},
	{name: "clz", types: "u32:b64", n: 1, expr: "uint32(bits.LeadingZeros64(a))"},
	{name: "brev", types: "b32", n: 1, expr: "bits.Reverse32(a)"},
	{name: "brev", types: "b64", n: 1, expr: "bits.Reverse64(a)"},
	{name: "bfind", types: "u32:u32", n: 1, expr: "FindBit(uint64(a))"},
	{name: "bfind", types: "u32:s32", n: 1, expr: "FindBit(uint64(uint32(a ^ a>>31)))"},
	{name: "bfind", types: "u32:u64", n: 1, expr: "FindBit(a)"},
	{name: "bfind", types: "u32:s64", n: 1, expr: "FindBit(uint64(a ^ a>>63))"},
	{name: "bfind.shiftamt", types: "u32:u32", n: 1, expr: "ShiftToBit(uint64(a), 32)"},
	{name: "bfind.shiftamt", types: "u32:s32", n: 1, expr: "ShiftToBit(uint64(uint32(a ^ a>>31)), 32)"},
	{name: "bfind.shiftamt", types: "u32:u64", n: 1, expr: "ShiftToBit(a, 64)"},
	{name: "bfind.shiftamt", types: "u32:s64", n: 1, expr: "ShiftToBit(uint64(a ^ a>>63), 64)"},
	{name: "bfe", types: "u32", rest: "u32 u32", n: 3,
		expr: "uint32(ExtractField(uint64(a), uint64(b), uint64(c), 32, false))"},
	{name: "bfe", types: "s32", rest: "u32 u32", n: 3,
		expr: "int32(ExtractField(uint64(a), uint64(b), uint64(c), 32, true))"},
	{name: "bfe", types: "u64", rest: "u32 u32", n: 3, expr: "ExtractField(a, uint64(b), uint64(c), 64, false)"},
	{name: "bfe", types: "s64", rest: "u32 u32", n: 3,
		expr: "int64(ExtractField(uint64(a), uint64(b), uint64(c), 64, true))"},
	{name: "szext.clamp", types: "u32", rest: "u32", n: 2, expr: "uint32(Extend32(a, b, false))"},
	{name: "szext.clamp", types: "s32", rest: "u32", n: 2, expr: "int32(Extend32(uint32(a), b, true))"},
	{name: "szext.wrap", types: "u32", rest: "u32", n: 2, expr: "uint32(Extend32(a, b&31, false))"},
	{name: "szext.wrap", types: "s32", rest: "u32", n: 2, expr: "int32(Extend32(uint32(a), b&31, true))"},
	{name: "bmsk.clamp", types: "b32", n: 2, expr: "FieldMask(a, b)"},
	{name: "bmsk.wrap", types: "b32", n: 2, expr: "FieldMask(a&31, b&31)"},
	{name: "fns", types: "b32", rest: "u32 s32", n: 3, expr: "FindNthSet(a, b, c)"},
	{name: "shf.l.clamp", types: "b32", n: 3, expr: "uint32(Funnel(a, b) << min(c, 32) >> 32)", rest: "b32 u32"},
	{name: "shf.l.wrap", types: "b32", n: 3, expr: "uint32(Funnel(a, b) << (c & 31) >> 32)", rest: "b32 u32"},
	{name: "shf.r.clamp", types: "b32", n: 3, expr: "uint32(Funnel(a, b) >> min(c, 32))", rest: "b32 u32"},
	{name: "shf.r.wrap", types: "b32", n: 3, expr: "uint32(Funnel(a, b) >> (c & 31))", rest: "b32 u32"},
	{name: "prmt", types: "b32", n: 3, expr: "Permute(a, b, c)"},
	{name: "clmad.lo", types: "u64 b64", n: 3, expr: "CarrylessLow(a, b) ^ c"},
	{name: "clmad.hi", types: "u64 b64", n: 3, expr: "CarrylessHigh(a, b) ^ c"},
}, permutations())

// permutations has prmt with a mode: the selectors by the low bits of c, one nibble a byte, least significant first.
func permutations() (all []op) {
	for _, m := range []struct{ name, selectors string }{
		{"f4e", "0x6543_5432_4321_3210"}, {"b4e", "0x0123_7012_6701_5670"}, {"rc8", "0x3333_2222_1111_0000"},
		{"ecl", "0x3333_3222_3211_3210"}, {"ecr", "0x3210_2210_1110_0000"}, {"rc16", "0x3232_1010_3232_1010"},
	} {
		all = append(all, op{name: "prmt." + m.name, types: "b32", n: 3,
			expr: "Permute(a, b, uint32(uint64(" + m.selectors + ")>>(c&3*16)))"})
	}
	return all
}

var singles = concat([]op{
	{name: "add", types: "f32", n: 2, expr: "Canon32(a + b)", simd: "f32 = canon(x.Add(y), nan32)"},
	{name: "sub", types: "f32", n: 2, expr: "Canon32(a - b)", simd: "f32 = canon(x.Sub(y), nan32)"},
	{name: "mul", types: "f32", n: 2, expr: "Canon32(a * b)", simd: "f32 = canon(x.Mul(y), nan32)"},
	{name: "div", types: "f32", n: 2, expr: "Canon32(a / b)", simd: "f32 = canon(x.Div(y), nan32)"},
	{name: "fma", types: "f32", n: 3, expr: "FMA32(a, b, c)", loop: "loopFMA32",
		simd: "f32 = canon(x.MulAdd(y, z), nan32)"},
	{name: "min", types: "f32", n: 2, expr: "Min32(a, b)", simd: "f32 = min32(x, y, nan32)"},
	{name: "max", types: "f32", n: 2, expr: "Max32(a, b)", simd: "f32 = max32(x, y, nan32)"},
	{name: "neg", types: "f32", n: 1, expr: "Neg32(a)",
		simd: "f32 = canon(x.AsUint32x8().Xor(sign32).AsFloat32x8(), nan32)"},
	{name: "abs", types: "f32", n: 1, expr: "Abs32(a)",
		simd: "f32 = canon(x.AsUint32x8().AndNot(sign32).AsFloat32x8(), nan32)"},
	{name: "rcp", types: "f32", n: 1, expr: "Canon32(1 / a)"},
	{name: "sqrt", types: "f32", n: 1, expr: "Canon32(float32(math.Sqrt(float64(a))))",
		simd: "f32 = canon(x.Sqrt(), nan32)"},
	{name: "div.approx", types: "f32", n: 2, expr: "DivApprox32(a, b)"},
	{name: "rsqrt", types: "f32", n: 1, expr: "Canon32(float32(1 / math.Sqrt(float64(a))))"},
	{name: "sin", types: "f32", n: 1, laneOnly: true, expr: "Canon32(float32(math.Sin(float64(a))))"},
	{name: "cos", types: "f32", n: 1, laneOnly: true, expr: "Canon32(float32(math.Cos(float64(a))))"},
	{name: "lg2", types: "f32", n: 1, laneOnly: true, expr: "Canon32(float32(Log2(float64(a))))"},
	{name: "ex2", types: "f32", n: 1, laneOnly: true, expr: "Canon32(float32(math.Exp2(float64(a))))"},
	{name: "tanh", types: "f32", n: 1, laneOnly: true, expr: "Canon32(float32(math.Tanh(float64(a))))"},
}, directed([]op{
	{name: "add", types: "f32", n: 2, expr: "Canon32(Add32(a, b, R))"},
	{name: "sub", types: "f32", n: 2, expr: "Canon32(Add32(a, -b, R))"},
	{name: "mul", types: "f32", n: 2, expr: "Canon32(Round32(float64(a)*float64(b), R))"},
	{name: "fma", types: "f32", n: 3, expr: "FMARound32(a, b, c, R)"},
	{name: "div", types: "f32", n: 2, expr: "Canon32(Round32(DivOdd(float64(a), float64(b)), R))"},
	{name: "rcp", types: "f32", n: 1, expr: "Canon32(Round32(DivOdd(1, float64(a)), R))"},
	{name: "sqrt", types: "f32", n: 1, expr: "Canon32(Round32(SqrtOdd(float64(a)), R))"},
}))

var doubles = concat([]op{
	{name: "add", types: "f64", n: 2, expr: "KeepNaN64(a+b, a, b)", simd: "f64 = x.Add(y)", rare: "r.IsNaN()"},
	{name: "sub", types: "f64", n: 2, expr: "KeepNaN64(a-b, a, b)", simd: "f64 = x.Sub(y)", rare: "r.IsNaN()"},
	{name: "mul", types: "f64", n: 2, expr: "KeepNaN64(a*b, a, b)", simd: "f64 = x.Mul(y)", rare: "r.IsNaN()"},
	{name: "fma", types: "f64", n: 3, expr: "KeepNaN64FMA(math.FMA(a, b, c), a, b, c)",
		simd: "f64 = x.MulAdd(y, z)", rare: "r.IsNaN()"},
	{name: "div", types: "f64", n: 2, expr: "a / b", simd: "f64 = x.Div(y)", rare: "r.IsNaN()"},
	{name: "rcp", types: "f64", n: 1, expr: "1 / a"},
	{name: "sqrt", types: "f64", n: 1, expr: "math.Sqrt(a)"},
	{name: "neg", types: "f64", n: 1, expr: "Neg64(a)",
		simd: "f64 = x.AsUint64x4().Xor(sign64).AsFloat64x4()", rare: "r.IsNaN()"},
	{name: "abs", types: "f64", n: 1, expr: "Abs64(a)",
		simd: "f64 = x.AsUint64x4().AndNot(sign64).AsFloat64x4()", rare: "r.IsNaN()"},
	{name: "min", types: "f64", n: 2, expr: "Min64(a, b)"},
	{name: "max", types: "f64", n: 2, expr: "Max64(a, b)"},
	{name: "rsqrt", types: "f64", n: 1, expr: "1 / math.Sqrt(a)"},
}, directed([]op{
	{name: "add", types: "f64", n: 2, expr: "KeepNaN64(Add64(a, b, R), a, b)"},
	{name: "sub", types: "f64", n: 2, expr: "KeepNaN64(Add64(a, -b, R), a, b)"},
	{name: "mul", types: "f64", n: 2, expr: "KeepNaN64(Mul64(a, b, R), a, b)"},
	{name: "fma", types: "f64", n: 3, expr: "KeepNaN64FMA(FMA64(a, b, c, R, false), a, b, c)"},
	{name: "div", types: "f64", n: 2, expr: "Div64(a, b, R)"},
	{name: "rcp", types: "f64", n: 1, expr: "Div64(1, a, R)"},
	{name: "sqrt", types: "f64", n: 1, expr: "Sqrt64(a, R)"},
}))

// directed has operations in the directions other than to nearest.
func directed(list []op) (all []op) {
	for _, r := range []struct{ name, direction string }{{"rz", "ToZero"}, {"rm", "Down"}, {"rp", "Up"}} {
		for _, o := range list {
			o.name += "." + r.name
			o.expr = replaceWord(o.expr, "R", r.direction)
			o.laneOnly = true
			all = append(all, o)
		}
	}
	return all
}

var conversions = []op{
	{name: "cvt", n: 1, expr: "@(a)",
		types: "u64:u32 s64:u32 u64:s32 s64:s32 u32:u64 s32:u64 u32:s64 s32:s64 u32:u32 u32:s32 s32:u32 s32:s32 " +
			"u64:u64 u64:s64 s64:u64 s64:s64 u32:u16 s32:u16 u32:s16 s32:s16 u64:u16 s64:s16 u16:u32 u16:s32 s16:s32 " +
			"s16:u32 u16:u16 s16:s16 u16:u64"},
	{name: "cvt.rn", types: "f32:s32", n: 1, expr: "@(a)", simd: "s32 = x.ConvertToFloat32()"},
	{name: "cvt.rn", types: "f32:u32 f64:u32 f64:s64 f64:u64 f32:s64 f32:u64", n: 1, expr: "@(a)"},
	{name: "cvt.rn", types: "f64:s32", n: 1, expr: "@(a)", simd: "s32 = x.ConvertToFloat64()"},
	{name: "cvt", types: "f64:f32", n: 1, expr: "float64(a)", simd: "f32 = x.ConvertToFloat64()"},
	{name: "cvt.rn", types: "f32:f64", n: 1, expr: "Narrow32(a)", simd: "f64 = x.ConvertToFloat32()"},
	{name: "cvt.rzi", types: "s32:f32", n: 1, expr: "Trunc32(a)", simd: "f32 = trunc32(x)"},
}

// A compare is a comparison of a and b, and of the vectors x and y.
type compare struct{ name, t, expr, simd string }

func compares() (all []compare) {
	type form struct{ name, op, simd string }
	orders := []form{{"eq", "==", "x.Equal(y)"}, {"ne", "!=", "!x.Equal(y)"}, {"lt", "<", "y.Greater(x)"},
		{"le", "<=", "!x.Greater(y)"}, {"gt", ">", "x.Greater(y)"}, {"ge", ">=", "!y.Greater(x)"}}
	unsigned := map[string]string{"lt": "lo", "le": "ls", "gt": "hi", "ge": "hs"}
	for _, f := range orders {
		for _, t := range []string{"u16", "s16", "u32", "s32", "u64", "s64"} {
			all = append(all, compare{f.name, t, "a " + f.op + " b", f.simd})
			if name := unsigned[f.name]; name != "" && t[0] == 'u' {
				all = append(all, compare{name, t, "a " + f.op + " b", f.simd})
			}
		}
		if f.op[1:] == "=" && f.op[0] != '<' && f.op[0] != '>' {
			for _, t := range []string{"b16", "b32", "b64"} {
				all = append(all, compare{f.name, t, "a " + f.op + " b", f.simd})
			}
		}
	}
	for _, t := range []string{"f32", "f64"} {
		for _, f := range []form{
			{"eq", "a == b", "x.Equal(y)"}, {"ne", "a < b || a > b", "x.Less(y).Or(x.Greater(y))"},
			{"lt", "a < b", "x.Less(y)"}, {"le", "a <= b", "x.LessEqual(y)"},
			{"gt", "a > b", "x.Greater(y)"}, {"ge", "a >= b", "x.GreaterEqual(y)"},
			{"equ", "!(a < b || a > b)", "!x.Less(y).Or(x.Greater(y))"}, {"neu", "a != b", "!x.Equal(y)"},
			{"ltu", "!(a >= b)", "!x.GreaterEqual(y)"}, {"leu", "!(a > b)", "!x.Greater(y)"},
			{"gtu", "!(a <= b)", "!x.LessEqual(y)"}, {"geu", "!(a < b)", "!x.Less(y)"},
			{"num", "a == a && b == b", "!x.IsNaN().Or(y.IsNaN())"},
			{"nan", "a != a || b != b", "x.IsNaN().Or(y.IsNaN())"},
		} {
			all = append(all, compare{f.name, t, f.op, f.simd})
		}
	}
	return all
}
