package summarise

import (
	"math"

	"holdfast/internal/footprint/form"
	"holdfast/internal/ir"
)

// scaling sees the conversion of a scaled index to an integer.
func (me meanings) scaling(in *ir.Inst) exprID {
	if !converts(in, signed32, float32s) || in.Round != ir.Truncate {
		return noExpr
	}
	x := in.Args[0]
	if max := me.madeBy(x); plainFloat(max, ir.Max, ir.RoundUnsaid) {
		// Nothing is below -1/2, which becomes 0 as well.
		if c, ok := floating(max.Args[1]); ok && c == 0 {
			x = max.Args[0]
		}
	}
	d := me.madeBy(x)
	var curve int64
	if plainFloat(d, ir.FMA, ir.Nearest) {
		c, ok1 := floating(d.Args[1])
		less, ok2 := floating(d.Args[2])
		half := me.madeBy(d.Args[0])
		if !plainFloat(half, ir.Add, ir.RoundUnsaid) || !ok1 || !ok2 || less != -0.5 {
			return noExpr
		}
		if more, ok := floating(half.Args[1]); !ok || more != 0.5 {
			return noExpr
		}
		curve = form.Halves | int64(math.Float32bits(c))
		x = half.Args[0]
	} else if plainFloat(d, ir.Mul, ir.RoundUnsaid) {
		c, ok := floating(d.Args[1])
		if !ok {
			return noExpr
		}
		curve = int64(math.Float32bits(c))
		x = d.Args[0]
	} else {
		return noExpr
	}
	if c := math.Float32frombits(uint32(curve)); !(c >= 1.0/(1<<16) && c <= 1<<8) {
		return noExpr
	}
	from := me.madeBy(x)
	if !converts(from, float32s, unsigned32) || from.Round != ir.Nearest {
		return noExpr
	}
	return me.intern(expr{op: form.OpCurve, w: 32, a: me.operand(from.Args[0], 32), imm: curve})
}

var (
	signed32   = ir.Type{Kind: ir.Signed, Width: 32}
	unsigned32 = ir.Type{Kind: ir.Unsigned, Width: 32}
	float32s   = ir.Type{Kind: ir.Float, Width: 32}
)

// plainFloat reports whether an instruction is an operation on floats of 32 bits that is rounded like that, is
// executed always, and differs from the plain one in nothing but that it may flush subnormal numbers.
func plainFloat(in *ir.Inst, op ir.Op, round ir.Rounding) bool {
	return in != nil && in.Op == op && !in.Guarded() && in.Type == float32s && in.Round == round &&
		in.Variant&^ir.Flushes == 0
}

// converts reports whether an instruction converts, always, between two types.
func converts(in *ir.Inst, to, from ir.Type) bool {
	return in != nil && in.Op == ir.Convert && !in.Guarded() && in.Type == to && in.Type2 == from &&
		in.Variant&^ir.Flushes == 0
}

// floating is a constant of 32 bits.
func floating(x ir.Operand) (float32, bool) {
	if x.Kind != ir.Constant || x.Mod != 0 || x.Bits>>32 != 0 {
		return 0, false
	}
	return math.Float32frombits(uint32(x.Bits)), true
}
