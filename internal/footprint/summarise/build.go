package summarise

import (
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
	"holdfast/internal/ir"
)

// A kernel is one function on its way to a summary.
type kernel struct {
	*graph
	f       *ir.Func
	params  map[string]int // offsets in the parameter buffer
	vals    []exprID       // of the SSA values; none: not yet
	symOf   map[string]int64
	loopOf  map[*ir.Loop]int64
	done    []bool // blocks whose values are known
	facts   [][]fact
	used    []bool   // values that something reads
	makings []making // of the SSA values

	// What passes have found out of phis at the heads of loops:

	steps      map[ir.ValID]step       // they change by this in each iteration
	carried    map[ir.ValID][]exprID   // they are one of these, computed in the iteration before
	bisections map[ir.ValID]*bisection // they are an end of a binary search
	midpoints  map[ir.ValID]*bisection // (no phis) the middle of one
	repeated   map[ir.ValID]bool       // all their values are loaded from one place
}

// A step is how a value changes from one iteration to the next: by a uniform amount, or (none) by
// lo to hi.
type step struct {
	by     exprID
	lo, hi int64
}

// build gives every SSA value a symbolic one. Blocks come in reverse postorder, so arguments
// come first, but for those of phis at the heads of loops.
func build(f *ir.Func, maxTid [3]int64) *kernel {
	k := &kernel{graph: newGraph(), f: f, params: map[string]int{}, vals: make([]exprID, len(f.Vals)),
		symOf:  map[string]int64{},
		loopOf: map[*ir.Loop]int64{}, done: make([]bool, len(f.Blocks))}
	k.maxTid = maxTid
	for _, v := range f.Vars {
		if v.Param && v.Space == ir.Param {
			k.params[v.Name] = v.Off
		}
		k.symOf[v.Name] = int64(len(k.symbols))
		k.symbols = append(k.symbols, symbol{v.Name, v.Space, v.Size})
	}
	for i, l := range f.Loops.Loops {
		k.loopOf[l] = int64(i)
	}
	k.steps = map[ir.ValID]step{}
	k.carried = map[ir.ValID][]exprID{}
	k.repeated = map[ir.ValID]bool{}
	k.bisections, k.midpoints = map[ir.ValID]*bisection{}, map[ir.ValID]*bisection{}
	for range maxPasses {
		k.pass()
		if !k.inductions() {
			break
		}
	}
	return k
}

// maxPasses bounds how often the values are made anew because more of them turned out to be
// induction variables.
const maxPasses = 4

func (k *kernel) pass() {
	clear(k.vals)
	clear(k.done)
	k.facts = make([][]fact, len(k.f.Blocks))
	for _, b := range k.f.Blocks {
		k.facts[b.Index] = k.blockFacts(b)
		for _, in := range b.Insts {
			k.inst(b, in)
		}
		k.done[b.Index] = true
	}
}

// inductions finds phis at the heads of loops that change by the same, or by a bounded amount, in
// every iteration, whatever way it takes. It reports whether there are new ones.
func (k *kernel) inductions() bool {
	found := false
	for _, l := range k.f.Loops.Loops {
		if l.Irreducible {
			continue
		}
		if k.bisect(l) {
			found = true
			continue
		}
		for _, in := range l.Header.Phis() {
			d := in.Defs[0]
			if _, ok := k.steps[d]; ok || k.exprs[k.vals[d]].op != form.OpUnknown || k.width(k.vals[d]) < 8 {
				continue
			}
			if s, ok := k.stepOf(l, in); ok {
				k.steps[d] = s
				found = true
				continue
			}
			if _, ok := k.carried[d]; ok {
				continue
			}
			if k.repeated[d] {
				continue
			}
			if k.loadedAgain(l, in) {
				k.repeated[d], found = true, true
				continue
			}
			if list := k.carriedOf(l, in); list != nil {
				k.carried[d] = list
				found = true
			}
		}
	}
	return found
}

func (k *kernel) stepOf(l *ir.Loop, in *ir.Inst) (step, bool) {
	d := in.Defs[0]
	w := k.width(k.vals[d])
	s := step{lo: interval.Far, hi: -interval.Far}
	for i, p := range l.Header.Preds {
		if !k.f.Loops.Contains(l, p.Block) {
			continue
		}
		f := k.linear[k.assume(k.operand(in.Args[i], w), k.edgeFacts(p.Block, p.Index,
			slices.Clone(k.facts[p.Block.Index])))]
		by, ok := k.sum(f, k.linear[k.vals[d]], k.num(-1))
		if !ok || by.sym != 0 || len(by.checks) > 0 {
			return s, false
		}
		b := k.formBounds(by)
		s.lo, s.hi = min(s.lo, b.Lo), max(s.hi, b.Hi)
		if len(by.terms) > 0 || s.by != noExpr && s.by != by.c {
			s.by = -1
		} else if s.by == noExpr {
			s.by = by.c
		}
	}
	if s.by > 0 {
		return s, true
	}
	const most = 1 << 20 // larger steps are of no use
	return step{noExpr, s.lo, s.hi}, s.lo >= -most && s.hi <= most && s.lo <= s.hi
}

// widthOf is the bits of a value.
func (k *kernel) widthOf(v ir.ValID) uint8 {
	w := k.f.Vals[v].Type.Width
	if k.f.Vals[v].Type.Kind == ir.Pred {
		return 1
	}
	if w == 0 || w > 64 {
		return 64
	}
	return uint8(w)
}

func (k *kernel) inst(b *ir.Block, in *ir.Inst) {
	if len(in.Defs) == 0 {
		return
	}
	if in.Op == ir.Phi {
		k.vals[in.Defs[0]] = k.phi(b, in)
		return
	}
	if x := k.midpoints[in.Defs[0]]; x != nil {
		k.vals[in.Defs[0]] = k.between(b, k.widthOf(in.Defs[0]), x, 1)
		return
	}
	res := k.results(b, in)
	for i, d := range in.Defs {
		if d == ir.None {
			continue
		}
		w := k.widthOf(d)
		e := noExpr
		if i < len(res) {
			e = res[i]
		}
		if e == noExpr || k.width(e) != w && (w == 1 || k.width(e) == 1) {
			e = k.unknown(w, b)
		}
		if k.width(e) > w {
			e = k.unary(form.OpTrunc, w, e)
		} else if k.width(e) < w {
			// The instruction says nothing of the upper bits, or extends by its type.
			op := form.OpZext
			if in.Type.Kind == ir.Signed {
				op = form.OpSext
			}
			e = k.unary(op, w, e)
		}
		if in.Guarded() && i < len(in.Else) {
			e = k.make(form.OpSelect, w, k.operand(in.Guard, 1), e, k.operand(in.Else[i], w))
		}
		k.vals[d] = e
	}
}

// operand is the value of an operand as one of w bits.
func (k *kernel) operand(x ir.Operand, w uint8) exprID {
	var e exprID
	switch x.Kind {
	case ir.Value:
		e = k.vals[x.Val]
		if e == noExpr || x.Part != "" {
			return k.unknown(w, nil)
		}
	case ir.Constant:
		bits := int64(x.Bits)
		if w == 1 && bits != 0 {
			bits = -1
		}
		e = k.number(w, bits)
	case ir.Special:
		e = k.special(x.Reg)
	case ir.Symbol:
		i, ok := k.symOf[x.Name]
		if !ok {
			return k.unknown(w, nil)
		}
		e = k.binary(form.OpAdd, 64, k.intern(expr{op: form.OpSymbol, w: 64, imm: i}), k.num(int64(x.Bits)))
	default:
		return k.unknown(w, nil)
	}
	if have := k.width(e); have != w {
		switch {
		case have == 1 || w == 1:
			return k.unknown(w, nil)
		case have > w:
			e = k.unary(form.OpTrunc, w, e)
		default:
			e = k.unary(form.OpZext, w, e) // no instruction does this
		}
	}
	if x.Mod&ir.Complement != 0 {
		e = k.unary(form.OpNot, w, e)
	}
	if x.Mod&ir.Negated != 0 {
		e = k.unary(form.OpNeg, w, e)
	}
	return e
}

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

func (k *kernel) special(r *ir.Register) exprID {
	if i, ok := geometry[r.Is]; ok {
		return k.intern(expr{op: form.OpGeometry, w: 32, imm: i + int64(r.Dim)})
	}
	if i, ok := coordinates[r.Is]; ok {
		return k.intern(expr{op: form.OpThread, w: 32, imm: i + int64(r.Dim)})
	}
	return k.unknown(uint8(r.Type.Width), nil)
}

// results are the values that an instruction makes; none where nothing is known.
func (k *kernel) results(b *ir.Block, in *ir.Inst) []exprID {
	t := in.Type
	w := uint8(min(t.Width, 64))
	if t.Kind == ir.Pred {
		w = 1
	}
	switch in.Op {
	case ir.Load:
		return k.load(b, in)
	case ir.Mov:
		w = k.widthOf(in.Defs[0])
		return []exprID{k.operand(in.Args[0], w)}
	case ir.ToGeneric:
		return []exprID{k.toGeneric(in)}
	case ir.FromGeneric:
		return []exprID{k.operand(in.Args[0], k.widthOf(in.Defs[0]))}
	case ir.Pack:
		return k.pack(in)
	case ir.Unpack:
		return k.unpack(in)
	case ir.Select:
		a, b, c := in.Args[0], in.Args[1], in.Args[2]
		if k.isPred(a) && !k.isPred(c) {
			a, b, c = b, c, a
		}
		w = k.widthOf(in.Defs[0])
		return []exprID{k.choice(w, k.operand(c, 1), k.operand(a, w), k.operand(b, w))}
	case ir.Compare:
		return k.compare(in)
	case ir.Convert:
		return k.convert(b, in)
	case ir.CompareWith:
		return k.compareWith(in)
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
	arg := func(i int) exprID { return k.operand(in.Args[i], w) }
	one := func(op form.Op) []exprID { return []exprID{k.unary(op, w, arg(0))} }
	two := func(op form.Op) []exprID { return []exprID{k.binary(op, w, arg(0), arg(1))} }
	wide := func() exprID {
		ext := pick(form.OpZext, form.OpSext)
		return k.binary(form.OpMul, 2*w, k.unary(ext, 2*w, arg(0)), k.unary(ext, 2*w, arg(1)))
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
		return []exprID{k.total(w, arg(0), arg(1))}
	case ir.Sub:
		return two(form.OpSub)
	case ir.Mul:
		return two(form.OpMul)
	case ir.Mad:
		return []exprID{k.binary(form.OpAdd, w, k.binary(form.OpMul, w, arg(0), arg(1)), arg(2))}
	case ir.MulWide:
		if w <= 32 {
			return []exprID{wide()}
		}
	case ir.MadWide:
		if w <= 32 {
			return []exprID{k.binary(form.OpAdd, 2*w, wide(), k.operand(in.Args[2], 2*w))}
		}
	case ir.Div:
		return two(pick(form.OpDivU, form.OpDivS))
	case ir.Rem:
		return two(pick(form.OpRemU, form.OpRemS))
	case ir.Min:
		return two(pick(form.OpMinU, form.OpMinS))
	case ir.Max:
		if e := k.larger(b, signed, arg(0), arg(1)); e != noExpr {
			return []exprID{e}
		}
		return two(pick(form.OpMaxU, form.OpMaxS))
	case ir.Neg:
		return one(form.OpNeg)
	case ir.Abs:
		return one(form.OpAbs)
	case ir.And:
		return []exprID{k.masked(w, arg(0), arg(1))}
	case ir.Or, ir.Xor:
		return two(form.OpAnd + form.Op(in.Op-ir.And))
	case ir.Not:
		return one(form.OpNot)
	case ir.Shl:
		return []exprID{k.binary(form.OpShl, w, arg(0), k.operand(in.Args[1], 32))}
	case ir.MulHigh:
		return two(pick(form.OpMulHiU, form.OpMulHiS))
	case ir.PopCount:
		return []exprID{k.unary(form.OpPopc, k.widthOf(in.Defs[0]), arg(0))}
	case ir.LeadingZeros:
		return []exprID{k.unary(form.OpClz, k.widthOf(in.Defs[0]), arg(0))}
	case ir.Insert:
		return k.insert(w, arg(0), arg(1), k.operand(in.Args[2], 32), k.operand(in.Args[3], 32))
	case ir.Extract:
		return k.field(w, signed, arg(0), k.operand(in.Args[1], 32), k.operand(in.Args[2], 32))
	case ir.Shr:
		return []exprID{k.shift(pick(form.OpShrU, form.OpShrS), w, arg(0), k.operand(in.Args[1], 32))}
	}
	return nil
}

// toGeneric is an address of a space as a generic one. That it is an address of that space is all that is
// needed to tell it from global memory, so where the variable has been lost (code without
// optimisation computes with the lower 32 bits of shared addresses) a variable without a name stands for it.
func (k *kernel) toGeneric(in *ir.Inst) exprID {
	e := k.operand(in.Args[0], 64)
	if in.Space != ir.Shared && in.Space != ir.Cluster && in.Space != ir.Local || k.linear[e].sym != 0 {
		return e
	}
	if x := k.exprs[e]; x.op == form.OpZext && k.exprs[x.a].op == form.OpTrunc {
		// Addresses of these spaces have 32 bits.
		whole := k.exprs[x.a].a
		if f := k.linear[whole]; k.width(whole) == 64 && f.sym != 0 && k.symbols[f.sym-1].space == in.Space &&
			len(f.terms) == 0 {
			if c, ok := k.constant(f.c); ok && c >= 0 && c < 1<<31 {
				return whole
			}
		}
	}
	name := "some " + in.Space.String() + " variable" // no name of PTX
	i, ok := k.symOf[name]
	if !ok {
		i = int64(len(k.symbols))
		k.symOf[name] = i
		k.symbols = append(k.symbols, symbol{name, in.Space, 0})
	}
	return k.binary(form.OpAdd, 64, k.intern(expr{op: form.OpSymbol, w: 64, imm: i}), e)
}

func (k *kernel) isPred(x ir.Operand) bool {
	return x.Kind == ir.Value && k.f.Vals[x.Val].Type.Kind == ir.Pred
}

func (k *kernel) compare(in *ir.Inst) []exprID {
	e := k.comparison(in.Rel, in.Type, in.Args[0], in.Args[1])
	if e == noExpr {
		return k.zeroTest(in)
	}
	return []exprID{e, k.unary(form.OpNot, 1, e)}
}

func (k *kernel) comparison(rel ir.Rel, t ir.Type, x, y ir.Operand) exprID {
	if !t.Integer() || t.Width > 64 || t.Width == 0 {
		return noExpr
	}
	w := uint8(t.Width)
	a, b := k.operand(x, w), k.operand(y, w)
	less, atMost := form.OpLTU, form.OpLEU
	if t.Kind == ir.Signed {
		less, atMost = form.OpLTS, form.OpLES
	}
	switch rel {
	case ir.EQ:
		return k.binary(form.OpEQ, 1, a, b)
	case ir.NE:
		return k.unary(form.OpNot, 1, k.binary(form.OpEQ, 1, a, b))
	case ir.LT:
		return k.binary(less, 1, a, b)
	case ir.LE:
		return k.binary(atMost, 1, a, b)
	case ir.GT:
		return k.binary(less, 1, b, a)
	case ir.GE:
		return k.binary(atMost, 1, b, a)
	}
	return noExpr
}

func (k *kernel) convert(b *ir.Block, in *ir.Inst) []exprID {
	to, from := in.Type, in.Type2
	if e := k.scaling(in); e != noExpr {
		return []exprID{e}
	}
	if from.Kind == ir.Float && to.Kind == ir.Signed && (to.Width == 32 || to.Width == 64) &&
		k.notNegative(in.Args[0]) {
		w := uint8(to.Width)
		return []exprID{k.binary(form.OpAnd, w, k.unknown(w, b), k.number(w, int64(1)<<(w-1)-1))}
	}
	if !to.Integer() || !from.Integer() || to.Width > 64 || from.Width > 64 || from.Width == 0 {
		return nil
	}
	e := k.operand(in.Args[0], uint8(from.Width))
	if to.Width <= from.Width {
		return []exprID{k.unary(form.OpTrunc, uint8(to.Width), e)}
	}
	op := form.OpZext
	if from.Kind == ir.Signed {
		op = form.OpSext
	}
	return []exprID{k.unary(op, uint8(to.Width), e)}
}

func (k *kernel) pack(in *ir.Inst) []exprID {
	w := k.widthOf(in.Defs[0])
	part := w / uint8(len(in.Args))
	if part == 0 || part*uint8(len(in.Args)) != w {
		return nil
	}
	e := k.number(w, 0)
	for i, x := range in.Args {
		p := k.unary(form.OpZext, w, k.operand(x, part))
		e = k.binary(form.OpOr, w, e, k.binary(form.OpShl, w, p, k.number(32, int64(i)*int64(part))))
	}
	return []exprID{e}
}

func (k *kernel) unpack(in *ir.Inst) []exprID {
	x := in.Args[0]
	if x.Kind != ir.Value {
		return nil
	}
	w := k.widthOf(x.Val)
	part := w / uint8(len(in.Defs))
	if part == 0 || w == 1 {
		return nil
	}
	e := k.operand(x, w)
	var list []exprID
	for i := range in.Defs {
		list = append(list, k.unary(form.OpTrunc, part, k.binary(form.OpShrU, w, e, k.number(32,
			int64(i)*int64(part)))))
	}
	return list
}

// load is the value of a parameter, or one that memory holds.
func (k *kernel) load(b *ir.Block, in *ir.Inst) []exprID {
	w := uint8(min(in.Type.Width, 64))
	if w < 8 {
		return nil
	}
	var list []exprID
	off, ok := k.parameter(in)
	for i, d := range in.Defs {
		if d == ir.None {
			list = append(list, noExpr)
			continue
		}
		e := noExpr
		if ok && in.Type.Width <= 64 {
			e = k.intern(expr{op: form.OpParam, w: w, imm: off + int64(i)*int64(w/8)})
		} else if l, ok := k.loadedFrom(in, i); ok {
			l.block, l.in = b, in
			if w < 32 && in.Type.Kind != ir.Signed {
				l.imm |= 1
			}
			e = k.loaded(w, b, l)
		} else {
			e = k.unknown(w, b)
		}
		list = append(list, e)
	}
	return list
}

// parameter is where a load reads the parameter buffer.
func (k *kernel) parameter(in *ir.Inst) (int64, bool) {
	if !k.f.Kernel || len(in.Mem) == 0 {
		return 0, false
	}
	m := in.Mem[0]
	if m.Space != ir.Param && m.Space != ir.Generic {
		return 0, false
	}
	f := k.linear[k.operand(m.Base, 64)]
	if f.sym == 0 || len(f.terms) > 0 || len(f.checks) > 0 {
		return 0, false
	}
	s := k.symbols[f.sym-1]
	base, ok := k.params[s.name]
	c, known := k.constant(f.c)
	if !ok || !known || s.space != ir.Param || c+m.Off < 0 || c+m.Off > 1<<16 {
		return 0, false
	}
	return int64(base) + c + m.Off, true
}

// phi is the value of a phi: an induction variable, a choice, or one of its arguments.
func (k *kernel) phi(b *ir.Block, in *ir.Inst) exprID {
	d := in.Defs[0]
	w := k.widthOf(d)
	if l := k.f.Loops.Of[b.Index]; l != nil && l.Header == b && !l.Irreducible {
		return k.headerPhi(b, l, in, w)
	}
	var list []exprID
	same := true
	for i, p := range b.Preds {
		if !k.done[p.Block.Index] {
			return k.unknown(w, b)
		}
		e := k.operand(in.Args[i], w)
		list = append(list, e)
		same = same && e == list[0]
	}
	if len(list) == 0 {
		return k.unknown(w, b)
	}
	if same {
		return list[0]
	}
	if x, ok := k.samePlace(list); ok {
		x.block, x.in = b, in
		return k.loaded(w, b, x)
	}
	var settled *linear
	if w > 1 {
		settled = k.settled(b, list, w)
	}
	if e := k.ifElse(b, list, w); e != noExpr && settled == nil {
		return e
	}
	if w == 1 {
		return k.unknown(w, b)
	}
	p := phi{args: list}
	for _, e := range b.Preds {
		var conds []fact
		for _, x := range k.edgeFacts(e.Block, e.Index, slices.Clone(k.facts[e.Block.Index])) {
			if k.uniform[x.e] {
				conds = append(conds, x)
			}
		}
		p.conds = append(p.conds, conds)
	}
	k.phis = append(k.phis, p)
	e := k.intern(expr{op: form.OpPhi, w: w, imm: int64(len(k.phis) - 1)})
	k.origin[e] = b
	if settled != nil {
		k.linear[e] = settled
	}
	return e
}

func (k *kernel) headerPhi(b *ir.Block, l *ir.Loop, in *ir.Inst, w uint8) exprID {
	for _, iv := range l.Inductions {
		if iv.Phi != in.Defs[0] || w == 1 || iv.Type.Width != uint16(w) {
			continue
		}
		init := k.operand(iv.Init, w)
		switch iv.Op {
		case ir.Add, ir.Sub:
			step := k.operand(iv.Step, w)
			if iv.Op == ir.Sub {
				step = k.unary(form.OpNeg, w, step)
			}
			c := k.intern(expr{op: form.OpCounter, w: 64, imm: k.loopOf[l]})
			k.origin[c] = l.Header
			return k.binary(form.OpAdd, w, init, k.binary(form.OpMul, w, k.unary(form.OpTrunc, w, c), step))
		case ir.Shr:
			k.serial++
			signed := int64(0)
			if iv.Type.Kind == ir.Signed {
				signed = 1
			}
			e := k.intern(expr{op: form.OpHalving, w: w, a: init, imm: 2*k.serial + signed})
			k.origin[e] = b
			return e
		}
	}
	if s, ok := k.steps[in.Defs[0]]; ok {
		return k.stepped(b, l, in, w, s)
	}
	if x := k.bisections[in.Defs[0]]; x != nil {
		return k.between(b, w, x, 0)
	}
	if k.repeated[in.Defs[0]] {
		return k.reload(b, l, in, w)
	}
	if list, ok := k.carried[in.Defs[0]]; ok {
		return k.carriedValue(b, l, in, w, list)
	}
	return k.unknown(w, b)
}

// stepped is a phi whose step was found by an earlier pass.
func (k *kernel) stepped(b *ir.Block, l *ir.Loop, in *ir.Inst, w uint8, s step) exprID {
	init := noExpr
	for i, p := range b.Preds {
		if k.f.Loops.Contains(l, p.Block) {
			continue
		}
		e := k.operand(in.Args[i], w)
		if init != noExpr && init != e {
			return k.unknown(w, b)
		}
		init = e
	}
	if init == noExpr {
		return k.unknown(w, b)
	}
	if s.by != noExpr {
		c := k.intern(expr{op: form.OpCounter, w: 64, imm: k.loopOf[l]})
		k.origin[c] = l.Header
		return k.binary(form.OpAdd, w, init, k.binary(form.OpMul, w, k.unary(form.OpTrunc, w, c),
			k.unary(form.OpTrunc, w, s.by)))
	}
	k.drifts = append(k.drifts, drift{loop: k.loopOf[l], lo: s.lo, hi: s.hi})
	e := k.intern(expr{op: form.OpDrift, w: w, a: init, imm: int64(len(k.drifts) - 1)})
	k.origin[e] = b
	return e
}

// ifElse sees that the two arguments of a phi come from the two sides of a branch.
func (k *kernel) ifElse(b *ir.Block, list []exprID, w uint8) exprID {
	if len(b.Preds) != 2 {
		return noExpr
	}
	top := k.f.Blocks[k.f.Dom.Parent[b.Index]]
	end := top.End()
	if end == nil || end.Op != ir.Branch || !end.Guarded() || len(top.Succs) != 2 {
		return noExpr
	}
	side := func(p ir.Edge) int {
		found := -1
		for i, s := range top.Succs {
			from := p.Block == top && p.Index == i || s.Block != b && len(s.Block.Preds) == 1 &&
				k.f.Dom.Dominates(s.Block.Index, p.Block.Index)
			if from {
				if found >= 0 {
					return -1
				}
				found = i
			}
		}
		return found
	}
	s0, s1 := side(b.Preds[0]), side(b.Preds[1])
	if s0 < 0 || s1 < 0 || s0 == s1 {
		return noExpr
	}
	if s0 == 1 {
		list = []exprID{list[1], list[0]}
	}
	return k.choice(w, k.operand(end.Guard, 1), list[0], list[1])
}
