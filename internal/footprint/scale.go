package footprint

import (
	"math"
	"strings"

	"holdfast/internal/ir"
)

// Images are made larger and smaller with indices that are computed as floating-point numbers: i * c, or
// (i + 1/2) * c - 1/2, rounded towards 0. Every step of that is a function that does not fall, so what lies
// between two indices is between what becomes of them.

// maxScaled is the largest index that is looked at: up to it all steps but the last rounding are exact with 64 bits.
const maxScaled = 1 << 22

// halves, in the number of a scaling, stands for (i + 1/2) * c - 1/2. The lower 32 bits are those of c.
const halves = int64(1) << 32

// scaled is what becomes of index i: 0 <= i <= maxScaled, and 2^-16 <= c <= 2^8, so that it fits.
func scaled(curve, i int64) int64 {
	c := math.Float32frombits(uint32(curve))
	if !(c >= 1.0/(1<<16) && c <= 1<<8) {
		return 0
	}
	y := float32(float32(i) * c)
	if curve&halves != 0 {
		// The sum is exact. So is the product, with 48 bits, and the difference: only the last rounding is one.
		y = float32(float64(float32(i)+0.5)*float64(c) - 0.5)
	}
	return int64(y)
}

// scaling sees the conversion of a scaled index to an integer.
func (k *kernel) scaling(in *ir.Inst) exprID {
	if k.named(in, "cvt.rzi.s32.f32") == nil || in.Guarded() {
		return none
	}
	x := in.Args[0]
	if max := k.named(k.madeBy(x), "max.f32"); max != nil && len(max.Args) == 2 {
		// Nothing is below -1/2, which becomes 0 as well.
		if c, ok := floating(max.Args[1]); ok && c == 0 {
			x = max.Args[0]
		}
	}
	d := k.madeBy(x)
	var curve int64
	if fma := k.named(d, "fma.rn.f32"); fma != nil && len(fma.Args) == 3 {
		c, ok1 := floating(fma.Args[1])
		less, ok2 := floating(fma.Args[2])
		half := k.named(k.madeBy(fma.Args[0]), "add.f32")
		if half == nil || len(half.Args) != 2 || !ok1 || !ok2 || less != -0.5 {
			return none
		}
		if more, ok := floating(half.Args[1]); !ok || more != 0.5 {
			return none
		}
		curve = halves | int64(math.Float32bits(c))
		x = half.Args[0]
	} else if mul := k.named(d, "mul.f32"); mul != nil && len(mul.Args) == 2 {
		c, ok := floating(mul.Args[1])
		if !ok {
			return none
		}
		curve = int64(math.Float32bits(c))
		x = mul.Args[0]
	} else {
		return none
	}
	if c := math.Float32frombits(uint32(curve)); !(c >= 1.0/(1<<16) && c <= 1<<8) {
		return none
	}
	from := k.madeBy(x)
	if k.named(from, "cvt.rn.f32.u32") == nil {
		return none
	}
	return k.intern(expr{op: opCurve, w: 32, a: k.operand(from.Args[0], 32), imm: curve})
}

// named is an instruction if it has that name, rounds to nearest if it says nothing else, and is executed always.
func (k *kernel) named(in *ir.Inst, name string) *ir.Inst {
	if in == nil || in.Guarded() || strings.Replace(in.Name, ".ftz", "", 1) != name {
		return nil
	}
	return in
}

// madeBy is the instruction that makes a value.
func (k *kernel) madeBy(x ir.Operand) *ir.Inst {
	if x.Kind != ir.Value || x.Mod != 0 || x.Part != "" {
		return nil
	}
	return k.f.Vals[x.Val].Def
}

// floating is a constant of 32 bits.
func floating(x ir.Operand) (float32, bool) {
	if x.Kind != ir.Constant || x.Mod != 0 || x.Bits>>32 != 0 {
		return 0, false
	}
	return math.Float32frombits(uint32(x.Bits)), true
}
