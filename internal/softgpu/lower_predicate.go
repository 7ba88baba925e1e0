package softgpu

import (
	"holdfast/internal/isa"
	"holdfast/internal/softgpu/lanes"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// predicates translates comparisons, and what combines predicates or chooses by one.
type predicates struct{ *operands }

func (pr predicates) setp(in *isa.Inst) {
	x := inst{kind: kindCmp}
	switch d := in.Args[0].X.(type) {
	case *ptx.Pair:
		x.d = pr.writeExact(d.A, ptx.Pred)
		if _, sink := d.B.(*ptx.Sink); !sink {
			x.e = pr.writeExact(d.B, ptx.Pred)
		}
	default:
		x.d = pr.writeExact(d, ptx.Pred)
	}
	x.a, x.b = pr.read(in.Args[1].X, in.T), pr.read(in.Args[2].X, in.T)
	if in.Bool != "" {
		x.boolOp = map[string]uint8{"and": boolAnd, "or": boolOr, "xor": boolXor}[in.Bool]
		x.c = pr.read(in.Args[3].X, ptx.Pred)
	}
	if in.T == ptx.F16x2 || in.T == ptx.BF16x2 {
		pr.setpPacked(in, x)
		return
	}
	key := in.Cmp + "." + isa.TypeName(in.T)
	if in.Has(isa.Ftz) {
		x.cmp = lanes.CompareFtz(key)
	} else {
		x.cmp = lanes.Compare(key)
	}
	if x.cmp == nil {
		f := number.Compare(in.Cmp, in.T, in.Has(isa.Ftz))
		if f == nil {
			pr.fail(in.Src.Pos, "no comparison .%s of this type", in.Cmp)
		}
		x.kind = kindLaneCmp
		x.lane = func(a, b, _ uint64) uint64 { return number.FromBool(f(a, b)) }
		if slotFor(in.T) == slot64 {
			x.wide = wideA | wideB
		}
	}
	pr.emit(x)
}

// testp asks what kind of number one is.
func (pr predicates) testp(in *isa.Inst) {
	f := testpFunc(in)
	d := pr.writeExact(in.Args[0].X, ptx.Pred)
	a := pr.read(in.Args[1].X, in.T)
	x := inst{kind: kindLaneCmp, d: d, a: a, b: a, lane: f}
	if slotFor(in.T) == slot64 {
		x.wide = wideA | wideB
	}
	pr.emit(x)
}

// setpPacked compares both halves: d gets the low one, e the high one.
func (pr predicates) setpPacked(in *isa.Inst, x inst) {
	half := ptx.F16
	if in.T == ptx.BF16x2 {
		half = ptx.BF16
	}
	f := number.Compare(in.Cmp, half, in.Has(isa.Ftz))
	e := x.e
	hi := x
	x.e, hi.e = 0, 0
	x.kind, hi.kind = kindLaneCmp, kindLaneCmp
	x.lane = func(a, b, _ uint64) uint64 { return number.FromBool(f(a&0xffff, b&0xffff)) }
	hi.lane = func(a, b, _ uint64) uint64 { return number.FromBool(f(a>>16&0xffff, b>>16&0xffff)) }
	hi.d = e
	c := x.c
	if x.boolOp != boolNone && e != 0 && x.d == c {
		// d must not change c before the second comparison.
		t := pr.reg(ptx.Pred)
		pr.copyPlace(placeAt(t.off, slotPred), placeAt(c, slotPred))
		hi.c = t.off
	}
	pr.emit(x)
	if e != 0 {
		pr.emit(hi)
	}
}

// setCombined is set with a predicate operand, which becomes a vector of 0 and 1.
func (pr predicates) setCombined(in *isa.Inst) {
	f := setFunc(in)
	if f == nil {
		pr.fail(in.Src.Pos, "not implemented")
	}
	p := pr.read(in.Args[3].X, ptx.Pred)
	c := pr.reg(ptx.U32)
	pr.emit(inst{kind: kindVec, d: c.off, a: pr.constBits(1, slot32), b: pr.constBits(0, slot32), c: p,
		vec: lanes.Select32})
	x := inst{kind: kindLane, d: pr.writeExact(in.Args[0].X, in.T), a: pr.read(in.Args[1].X, in.U),
		b: pr.read(in.Args[2].X, in.U), c: c.off, lane: f}
	if slotFor(in.U) == slot64 {
		x.wide = wideA | wideB
	}
	pr.emit(x)
}

func (pr predicates) predLogic(in *isa.Inst) {
	d := pr.writeExact(in.Args[0].X, ptx.Pred)
	a := pr.read(in.Args[1].X, ptx.Pred)
	b := a
	if len(in.Args) > 2 {
		b = pr.read(in.Args[2].X, ptx.Pred)
	}
	f := map[string]func(a, b uint32) uint32{
		"and": func(a, b uint32) uint32 { return a & b },
		"or":  func(a, b uint32) uint32 { return a | b },
		"xor": func(a, b uint32) uint32 { return a ^ b },
		"not": func(a, b uint32) uint32 { return ^a },
	}[in.Op]
	pr.emit(inst{kind: kindExec, d: d, a: a, b: b, exec: func(w *warp, in *inst, mask uint32) {
		q := w.r.p(in.d)
		*q = *q&^mask | f(*w.r.p(in.a), *w.r.p(in.b))&mask
	}})
}
