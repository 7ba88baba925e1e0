package summarise

import (
	"holdfast/internal/footprint/form"
	"holdfast/internal/ir"
)

// meanings makes the values of instructions from those of their operands.
type meanings struct{ *values }

// geometry and coordinates are what special registers hold: the first of their dimensions.
var (
	geometry = map[ir.Coordinate]int64{ir.BlockSize: form.NtidX, ir.GridSize: form.NctaidX,
		ir.ClusterSize:   form.ClusterX,
		ir.GridClusters:  form.NclusterX,
		ir.ClusterBlocks: form.ClusterSize, ir.DynamicShared: form.DynamicShared}
	coordinates = map[ir.Coordinate]int64{ir.ThreadIndex: form.TidX, ir.BlockIndex: form.CtaidX, ir.Lane: form.LaneID,
		ir.IndexInCluster: form.ClusterCtaX,
		ir.RankInCluster:  form.ClusterRank, ir.ClusterIndex: form.ClusterIDX}
)

func (me meanings) special(r *ir.Register) exprID {
	if i, ok := geometry[r.Is]; ok {
		return me.intern(expr{op: form.OpGeometry, w: 32, imm: i + int64(r.Dim)})
	}
	if i, ok := coordinates[r.Is]; ok {
		return me.intern(expr{op: form.OpThread, w: 32, imm: i + int64(r.Dim)})
	}
	return me.unknown(uint8(r.Type.Width), nil)
}

// results are the values that an instruction makes; none where nothing is known.
func (me meanings) results(b *ir.Block, in *ir.Inst) []exprID {
	t := in.Type
	w := uint8(min(t.Width, 64))
	if t.Kind == ir.Pred {
		w = 1
	}
	switch in.Op {
	case ir.Load:
		return me.load(b, in)
	case ir.Mov:
		w = me.widthOf(in.Defs[0])
		return []exprID{me.operand(in.Args[0], w)}
	case ir.ToGeneric:
		return []exprID{me.toGeneric(in)}
	case ir.FromGeneric:
		return []exprID{me.operand(in.Args[0], me.widthOf(in.Defs[0]))}
	case ir.Pack:
		return me.pack(in)
	case ir.Unpack:
		return me.unpack(in)
	case ir.Select:
		a, b, c := in.Args[0], in.Args[1], in.Args[2]
		if me.isPred(a) && !me.isPred(c) {
			a, b, c = b, c, a
		}
		w = me.widthOf(in.Defs[0])
		return []exprID{decisions{me.graph}.choice(w, me.operand(c, 1), me.operand(a, w), me.operand(b, w))}
	case ir.Compare:
		return me.compare(in)
	case ir.Convert:
		return me.convert(b, in)
	case ir.CompareWith:
		return me.compareWith(in)
	}
	if t.Width > 64 || !(t.Integer() || t.Kind == ir.Pred) || len(in.Args) == 0 {
		return nil
	}
	signed := t.Kind == ir.Signed
	pick := func(u, s form.Op) form.Op {
		if signed {
			return s
		}
		return u
	}
	arg := func(i int) exprID { return me.operand(in.Args[i], w) }
	one := func(op form.Op) []exprID { return []exprID{me.unary(op, w, arg(0))} }
	two := func(op form.Op) []exprID { return []exprID{me.binary(op, w, arg(0), arg(1))} }
	wide := func() exprID {
		ext := pick(form.OpZext, form.OpSext)
		return me.binary(form.OpMul, 2*w, me.unary(ext, 2*w, arg(0)), me.unary(ext, 2*w, arg(1)))
	}
	if w == 1 {
		switch in.Op {
		case ir.And, ir.Or, ir.Xor:
			return two(form.OpAnd + form.Op(in.Op-ir.And))
		case ir.Not:
			return one(form.OpNot)
		}
		return nil
	}
	switch in.Op {
	case ir.Add:
		return []exprID{divisions{me.graph}.total(w, arg(0), arg(1))}
	case ir.Sub:
		return two(form.OpSub)
	case ir.Mul:
		return two(form.OpMul)
	case ir.Mad:
		return []exprID{me.binary(form.OpAdd, w, me.binary(form.OpMul, w, arg(0), arg(1)), arg(2))}
	case ir.MulWide:
		if w <= 32 {
			return []exprID{wide()}
		}
	case ir.MadWide:
		if w <= 32 {
			return []exprID{me.binary(form.OpAdd, 2*w, wide(), me.operand(in.Args[2], 2*w))}
		}
	case ir.Div:
		return two(pick(form.OpDivU, form.OpDivS))
	case ir.Rem:
		return two(pick(form.OpRemU, form.OpRemS))
	case ir.Min:
		return two(pick(form.OpMinU, form.OpMinS))
	case ir.Max:
		if e := me.larger(b, signed, arg(0), arg(1)); e != noExpr {
			return []exprID{e}
		}
		return two(pick(form.OpMaxU, form.OpMaxS))
	case ir.Neg:
		return one(form.OpNeg)
	case ir.Abs:
		return one(form.OpAbs)
	case ir.And:
		return []exprID{divisions{me.graph}.masked(w, arg(0), arg(1))}
	case ir.Or, ir.Xor:
		return two(form.OpAnd + form.Op(in.Op-ir.And))
	case ir.Not:
		return one(form.OpNot)
	case ir.Shl:
		return []exprID{me.binary(form.OpShl, w, arg(0), me.operand(in.Args[1], 32))}
	case ir.MulHigh:
		return two(pick(form.OpMulHiU, form.OpMulHiS))
	case ir.PopCount:
		return []exprID{me.unary(form.OpPopc, me.widthOf(in.Defs[0]), arg(0))}
	case ir.LeadingZeros:
		return []exprID{me.unary(form.OpClz, me.widthOf(in.Defs[0]), arg(0))}
	case ir.Insert:
		return divisions{me.graph}.insert(w, arg(0), arg(1), me.operand(in.Args[2], 32), me.operand(in.Args[3], 32))
	case ir.Extract:
		return divisions{me.graph}.field(w, signed, arg(0), me.operand(in.Args[1], 32), me.operand(in.Args[2], 32))
	case ir.Shr:
		op := pick(form.OpShrU, form.OpShrS)
		return []exprID{divisions{me.graph}.shift(op, w, arg(0), me.operand(in.Args[1], 32))}
	}
	return nil
}

// toGeneric is an address of a space as a generic one. That it is an address of that space is all that is
// needed to tell it from global memory, so where the variable has been lost (code without
// optimisation computes with the lower 32 bits of shared addresses) a variable without a name stands for it.
func (me meanings) toGeneric(in *ir.Inst) exprID {
	e := me.operand(in.Args[0], 64)
	if in.Space != ir.Shared && in.Space != ir.Cluster && in.Space != ir.Local || me.linear[e].sym != 0 {
		return e
	}
	if x := me.exprs[e]; x.op == form.OpZext && me.exprs[x.a].op == form.OpTrunc {
		// Addresses of these spaces have 32 bits.
		whole := me.exprs[x.a].a
		if f := me.linear[whole]; me.width(whole) == 64 && f.sym != 0 && me.symbols[f.sym-1].space == in.Space &&
			len(f.terms) == 0 {
			if c, ok := me.constant(f.c); ok && c >= 0 && c < 1<<31 {
				return whole
			}
		}
	}
	name := "some " + in.Space.String() + " variable" // no name of PTX
	i, ok := me.symOf[name]
	if !ok {
		i = int64(len(me.symbols))
		me.symOf[name] = i
		me.symbols = append(me.symbols, symbol{name, in.Space, 0})
	}
	return me.binary(form.OpAdd, 64, me.intern(expr{op: form.OpSymbol, w: 64, imm: i}), e)
}

func (me meanings) compare(in *ir.Inst) []exprID {
	e := me.comparison(in.Rel, in.Type, in.Args[0], in.Args[1])
	if e == noExpr {
		return me.zeroTest(in)
	}
	return []exprID{e, me.unary(form.OpNot, 1, e)}
}

func (me meanings) comparison(rel ir.Rel, t ir.Type, x, y ir.Operand) exprID {
	if !t.Integer() || t.Width > 64 || t.Width == 0 {
		return noExpr
	}
	w := uint8(t.Width)
	a, b := me.operand(x, w), me.operand(y, w)
	less, atMost := form.OpLTU, form.OpLEU
	if t.Kind == ir.Signed {
		less, atMost = form.OpLTS, form.OpLES
	}
	switch rel {
	case ir.EQ:
		return me.binary(form.OpEQ, 1, a, b)
	case ir.NE:
		return me.unary(form.OpNot, 1, me.binary(form.OpEQ, 1, a, b))
	case ir.LT:
		return me.binary(less, 1, a, b)
	case ir.LE:
		return me.binary(atMost, 1, a, b)
	case ir.GT:
		return me.binary(less, 1, b, a)
	case ir.GE:
		return me.binary(atMost, 1, b, a)
	}
	return noExpr
}

func (me meanings) convert(b *ir.Block, in *ir.Inst) []exprID {
	to, from := in.Type, in.Type2
	if e := me.scaling(in); e != noExpr {
		return []exprID{e}
	}
	if from.Kind == ir.Float && to.Kind == ir.Signed && (to.Width == 32 || to.Width == 64) &&
		me.notNegative(in.Args[0]) {
		w := uint8(to.Width)
		return []exprID{me.binary(form.OpAnd, w, me.unknown(w, b), me.number(w, int64(1)<<(w-1)-1))}
	}
	if !to.Integer() || !from.Integer() || to.Width > 64 || from.Width > 64 || from.Width == 0 {
		return nil
	}
	e := me.operand(in.Args[0], uint8(from.Width))
	if to.Width <= from.Width {
		return []exprID{me.unary(form.OpTrunc, uint8(to.Width), e)}
	}
	op := form.OpZext
	if from.Kind == ir.Signed {
		op = form.OpSext
	}
	return []exprID{me.unary(op, uint8(to.Width), e)}
}

func (me meanings) pack(in *ir.Inst) []exprID {
	w := me.widthOf(in.Defs[0])
	part := w / uint8(len(in.Args))
	if part == 0 || part*uint8(len(in.Args)) != w {
		return nil
	}
	e := me.number(w, 0)
	for i, x := range in.Args {
		p := me.unary(form.OpZext, w, me.operand(x, part))
		e = me.binary(form.OpOr, w, e, me.binary(form.OpShl, w, p, me.number(32, int64(i)*int64(part))))
	}
	return []exprID{e}
}

func (me meanings) unpack(in *ir.Inst) []exprID {
	x := in.Args[0]
	if x.Kind != ir.Value {
		return nil
	}
	w := me.widthOf(x.Val)
	part := w / uint8(len(in.Defs))
	if part == 0 || w == 1 {
		return nil
	}
	e := me.operand(x, w)
	var list []exprID
	for i := range in.Defs {
		list = append(list, me.unary(form.OpTrunc, part, me.binary(form.OpShrU, w, e, me.number(32,
			int64(i)*int64(part)))))
	}
	return list
}

// load is the value of a parameter, or one that memory holds.
func (me meanings) load(b *ir.Block, in *ir.Inst) []exprID {
	w := uint8(min(in.Type.Width, 64))
	if w < 8 {
		return nil
	}
	var list []exprID
	off, ok := me.parameter(in)
	for i, d := range in.Defs {
		if d == ir.None {
			list = append(list, noExpr)
			continue
		}
		e := noExpr
		if ok && in.Type.Width <= 64 {
			e = me.intern(expr{op: form.OpParam, w: w, imm: off + int64(i)*int64(w/8)})
		} else if l, ok := me.loadedFrom(in, i); ok {
			l.block, l.in = b, in
			if w < 32 && in.Type.Kind != ir.Signed {
				l.imm |= 1
			}
			e = me.loaded(w, b, l)
		} else {
			e = me.unknown(w, b)
		}
		list = append(list, e)
	}
	return list
}

// parameter is where a load reads the parameter buffer.
func (me meanings) parameter(in *ir.Inst) (int64, bool) {
	if !me.f.Kernel || len(in.Mem) == 0 {
		return 0, false
	}
	m := in.Mem[0]
	if m.Space != ir.Param && m.Space != ir.Generic {
		return 0, false
	}
	f := me.linear[me.operand(m.Base, 64)]
	if f.sym == 0 || len(f.terms) > 0 || len(f.checks) > 0 {
		return 0, false
	}
	s := me.symbols[f.sym-1]
	base, ok := me.params[s.name]
	c, known := me.constant(f.c)
	if !ok || !known || s.space != ir.Param || c+m.Off < 0 || c+m.Off > 1<<16 {
		return 0, false
	}
	return int64(base) + c + m.Off, true
}

// loadedFrom is the place of what result i of a load reads; false if its contents are of no use.
func (me meanings) loadedFrom(in *ir.Inst, i int) (loaded, bool) {
	if in.Op != ir.Load || len(in.Mem) != 1 || in.Effect&ir.Orders != 0 || in.Type.Width > 64 ||
		in.Type.Kind == ir.Float {
		return loaded{}, false
	}
	m := in.Mem[0]
	f := me.linear[me.operand(m.Base, 64)]
	off := m.Off + int64(i)*int64(in.Type.Width/8)
	space := ir.Global
	if f.sym != 0 {
		space = me.symbols[f.sym-1].space
	}
	switch {
	case m.Space == ir.Param || space == ir.Param:
		return me.fromParameters(m.Space, f, off)
	case m.Space != ir.Global && m.Space != ir.Generic && m.Space != ir.Const:
		return loaded{}, false
	case space != ir.Global && space != ir.Generic && space != ir.Const:
		return loaded{}, false
	}
	return loaded{at: me.moved(f, me.binary(form.OpAdd, 64, f.c, me.num(off))), kind: form.KindTable}, true
}

// fromParameters is a load from an array in a parameter. Its place is an offset in the parameter buffer.
func (me meanings) fromParameters(space ir.Space, f *linear, off int64) (loaded, bool) {
	if !me.f.Kernel || f.sym == 0 || space != ir.Param && space != ir.Generic {
		return loaded{}, false
	}
	s := me.symbols[f.sym-1]
	lo, ok := me.params[s.name]
	if !ok || s.space != ir.Param || lo < 0 || s.size <= 0 || lo+s.size >= 1<<20 {
		return loaded{}, false
	}
	at := *me.withoutSymbol(f)
	at.c = me.binary(form.OpAdd, 64, at.c, me.num(int64(lo)+off))
	return loaded{at: me.form(at), kind: form.KindParam, imm: int64(lo)<<1 | int64(lo+s.size)<<25}, true
}
