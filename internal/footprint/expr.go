package footprint

import "holdfast/internal/ir"

// An exprID names a symbolic value; it indexes graph.exprs. Arguments have smaller numbers.
type exprID int32

// none is no expression. Expression 0 is never used.
const none exprID = 0

// An xop is the operation of a symbolic value.
type xop uint8

// The operations. The numbers are integers of w bits; where it makes a difference
// whether they are signed, there are two operations. The machine (eval.go) computes the
// ones up to opSelect.
const (
	opNone xop = iota
	opConst
	opParam    // imm: offset in the parameter buffer
	opGeometry // imm: one of the geometry of a launch
	opAdd
	opSub
	opMul
	opMulHiU
	opMulHiS
	opDivU
	opDivS
	opRemU
	opRemS
	opMinU
	opMinS
	opMaxU
	opMaxS
	opNeg
	opAbs
	opAnd
	opOr
	opXor
	opNot
	opShl
	opShrU
	opShrS
	opZext
	opSext
	opTrunc
	opEQ
	opNE
	opLTU
	opLTS
	opLEU
	opLES
	opPopc
	opClz
	opSelect // a ? b : c

	// What differs from thread to thread, or is not known:
	opThread  // imm: one of the coordinates
	opCounter // imm: a loop; how often it has gone back to its header
	opUnknown // imm: a serial number
	opPhi     // the value of one of graph.phis[imm]
	opHalving // a value that begins as a and is only shifted right
	opDrift   // a value that begins as a and changes as graph.drifts[imm] says
	opSymbol  // imm: a variable
	opCurve   // scaled(imm, a)
	opBetween // between a and b, or (c = 1) from a to b-1 (bisect.go)
)

// The geometry of a launch: what opGeometry reads.
const (
	ntidX = iota
	ntidY
	ntidZ
	nctaidX
	nctaidY
	nctaidZ
	clusterX
	clusterY
	clusterZ
	nclusterX
	nclusterY
	nclusterZ
	clusterSize
	dynamicShared
	numGeometry
)

// The coordinates of a thread: what opThread reads.
const (
	tidX = iota
	tidY
	tidZ
	ctaidX
	ctaidY
	ctaidZ
	laneID
	clusterCtaX
	clusterCtaY
	clusterCtaZ
	clusterRank
	clusterIDX
	clusterIDY
	clusterIDZ
	numCoordinates
)

// An expr is a symbolic value of w bits. Concrete values are kept sign-extended from w
// bits to an int64, whatever their sign means.
type expr struct {
	op      xop
	w       uint8
	a, b, c exprID
	imm     int64
}

// A graph holds the symbolic values of one kernel. Equal ones are the same one.
type graph struct {
	exprs   []expr
	index   map[expr]exprID
	uniform []bool   // the same in all threads of the grid, and computable
	bounds  []bounds // of uniform values, in every launch
	linear  []*linear
	phis    []phi
	drifts  []drift

	vars    []variable
	varOf   map[string]varID
	linears map[string]*linear
	symbols []symbol
	checks  []check
	checkOf map[check]int32
	serial  int64
	loads   map[int64]loaded     // unknowns that are loaded, by serial number
	origin  map[exprID]*ir.Block // of opUnknown and opPhi: where its value is made; of opCounter, the header
	maxTid  [3]int64             // the largest tid
}

// A phi is a value that comes from different ways, each taken only under conditions that are
// the same for all threads.
type phi struct {
	args  []exprID
	conds [][]fact
}

// A drift is a change by at least lo and at most hi every time that a loop goes back to its header.
type drift struct {
	loop   int64
	lo, hi int64
	late   bool // the value of the iteration before, if there was one
}

// A symbol is a variable with an address.
type symbol struct {
	name  string
	space ir.Space
	size  int
}

func newGraph() *graph {
	g := &graph{index: map[expr]exprID{}, varOf: map[string]varID{}, linears: map[string]*linear{}, checkOf: map[check]int32{},
		origin: map[exprID]*ir.Block{}, loads: map[int64]loaded{}, maxTid: [3]int64{1023, 1023, 63}}
	g.exprs = append(g.exprs, expr{})
	g.uniform = append(g.uniform, false)
	g.bounds = append(g.bounds, bounds{})
	g.linear = append(g.linear, nil)
	return g
}

func (g *graph) width(e exprID) uint8 { return g.exprs[e].w }

// constant reports the value of a constant.
func (g *graph) constant(e exprID) (int64, bool) {
	x := &g.exprs[e]
	return x.imm, x.op == opConst
}

// number makes a constant.
func (g *graph) number(w uint8, x int64) exprID {
	return g.intern(expr{op: opConst, w: w, imm: canonical(w, x)})
}

// unknown makes a value of which nothing is known but its width.
func (g *graph) unknown(w uint8, at *ir.Block) exprID {
	g.serial++
	e := g.intern(expr{op: opUnknown, w: w, imm: g.serial})
	g.origin[e] = at
	return e
}

// A loaded value is what memory, or the parameter buffer, holds at this form: a variable of this kind.
type loaded struct {
	at    *linear
	kind  vkind
	imm   int64
	block *ir.Block
	in    *ir.Inst
}

// loaded makes the value of a load.
func (g *graph) loaded(w uint8, at *ir.Block, l loaded) exprID {
	g.loads[g.serial+1] = l
	return g.unknown(w, at)
}

// canonical is x modulo 2^w, sign-extended.
func canonical(w uint8, x int64) int64 {
	if w >= 64 {
		return x
	}
	return x << (64 - w) >> (64 - w)
}

// intern gives an expression its number and works out what follows from it.
func (g *graph) intern(x expr) exprID {
	if e, ok := g.index[x]; ok {
		return e
	}
	e := exprID(len(g.exprs))
	g.exprs = append(g.exprs, x)
	g.index[x] = e
	u := x.op <= opSelect
	for _, arg := range [...]exprID{x.a, x.b, x.c} {
		u = u && (arg == none || g.uniform[arg])
	}
	g.uniform = append(g.uniform, u)
	g.bounds = append(g.bounds, bounds{})
	g.linear = append(g.linear, nil)
	if x.w > 1 {
		if u {
			g.bounds[e] = g.uniformBounds(e)
		}
		g.linear[e] = g.linearise(e)
	}
	return e
}

// unary, binary and ternary make expressions, simplified.
func (g *graph) unary(op xop, w uint8, a exprID) exprID { return g.make(op, w, a, none, none) }

func (g *graph) binary(op xop, w uint8, a, b exprID) exprID { return g.make(op, w, a, b, none) }

func (g *graph) make(op xop, w uint8, a, b, c exprID) exprID {
	x := expr{op: op, w: w, a: a, b: b, c: c}
	aw := g.exprs[a].w
	av, ac := g.constant(a)
	bv, bc := g.constant(b)
	cv, cc := g.constant(c)
	if ac && (bc || b == none) && (cc || c == none) {
		if v, ok := compute(op, w, aw, av, bv, cv); ok {
			return g.number(w, v)
		}
	}
	switch op {
	case opAdd, opMul, opAnd, opOr, opXor, opMinU, opMinS, opMaxU, opMaxS, opEQ, opNE:
		if ac || !bc && a > b { // constants to the right
			x.a, x.b = b, a
			a, b, av, ac, bv, bc = b, a, bv, bc, av, ac
		}
	}
	if e := g.simplify(x, ac, av, bc, bv); e != none {
		return e
	}
	return g.intern(x)
}

func (g *graph) simplify(x expr, ac bool, av int64, bc bool, bv int64) exprID {
	a, b := x.a, x.b
	xa := g.exprs[a]
	switch x.op {
	case opAdd:
		if bc && bv == 0 {
			return a
		}
		if k, m := g.factor(a), g.factor(b); !bc && k.base == m.base {
			return g.binary(opMul, x.w, k.base, g.number(x.w, k.times+m.times))
		}
		if bc && xa.op == opAdd {
			if v, ok := g.constant(xa.b); ok {
				return g.binary(opAdd, x.w, xa.a, g.number(x.w, v+bv))
			}
		}
	case opSub:
		if bc {
			return g.binary(opAdd, x.w, a, g.number(x.w, -bv))
		}
		if a == b {
			return g.number(x.w, 0)
		}
	case opMul:
		if bc && bv == 0 {
			return b
		}
		if bc && bv == 1 {
			return a
		}
		if bc && xa.op == opMul {
			if v, ok := g.constant(xa.b); ok {
				return g.binary(opMul, x.w, xa.a, g.number(x.w, v*bv))
			}
		}
	case opDivU, opDivS:
		if bc && bv == 1 {
			return a
		}
	case opAnd:
		if bc && bv == 0 {
			return b
		}
		if bc && bv == -1 || a == b {
			return a
		}
		if c, ok := g.constant(xa.b); bc && ok && xa.op == opDivU && c > 0 {
			if most := unsigned(x.w, -1) / uint64(c); uint64(smear(int64(min(most, uint64(far)))))&^unsigned(x.w, bv) == 0 {
				return a // a quotient has no bits where the mask has none
			}
		}
		if w := g.width(xa.a); bc && xa.op == opZext && w > 1 { // the bits above are 0
			return g.unary(opZext, x.w, g.binary(opAnd, w, xa.a, g.number(w, bv)))
		}
	case opOr:
		if bc && bv == 0 || a == b {
			return a
		}
	case opXor:
		if bc && bv == 0 {
			return a
		}
		if bc && bv == -1 {
			return g.unary(opNot, x.w, a)
		}
		if x.w == 1 && bc { // 1 is -1 in one bit
			return g.unary(opNot, 1, a)
		}
	case opShl:
		if bc && bv >= 0 && bv < int64(x.w) {
			return g.binary(opMul, x.w, a, g.number(x.w, int64(uint64(1)<<uint(bv))))
		}
	case opShrU, opShrS:
		if bc && bv == 0 {
			return a
		}
	case opNot:
		if xa.op == opNot {
			return xa.a
		}
	case opNeg:
		return g.binary(opMul, x.w, a, g.number(x.w, -1))
	case opMinS, opMinU, opMaxS, opMaxU:
		if a == b {
			return a
		}
		if max := x.op == opMaxS || x.op == opMaxU; max && (xa.op == opNot || g.exprs[b].op == opNot) { // max(~p, q) = ~min(p, ~q)
			least := opMinS
			if x.op == opMaxU {
				least = opMinU
			}
			return g.unary(opNot, x.w, g.binary(least, x.w, g.unary(opNot, x.w, a), g.unary(opNot, x.w, b)))
		}
	case opZext, opSext, opTrunc:
		if xa.w == x.w {
			return a
		}
		if x.op == opTrunc {
			switch xa.op {
			case opTrunc:
				return g.unary(opTrunc, x.w, xa.a)
			case opZext, opSext:
				if iw := g.width(xa.a); iw == x.w {
					return xa.a
				} else if iw > x.w {
					return g.unary(opTrunc, x.w, xa.a)
				}
				return g.unary(xa.op, x.w, xa.a)
			}
		} else if xa.op == opZext || xa.op == x.op {
			return g.unary(xa.op, x.w, xa.a)
		}
	case opLTS, opLES, opLTU, opLEU:
		if g.uniform[a] && g.uniform[b] {
			break
		}
		// c < n - (n > 0 ? 1 : 0) is c+1 < n if c is not negative: a positive n is n-1, another is not above c.
		if x.op == opLTS && ac && av >= 0 && av < 1<<6 {
			if n := g.counted(b); n != none {
				return g.binary(opLTS, 1, g.number(g.width(a), av+1), n)
			}
		}
		signed := x.op == opLTS || x.op == opLES
		if d, ok := g.difference(a, b, signed); ok && len(d.checks) == 0 {
			most := int64(0)
			if x.op == opLTS || x.op == opLTU {
				most = -1
			}
			if r := g.formBounds(d); r.hi <= most {
				return g.number(1, -1)
			} else if r.lo > most {
				return g.number(1, 0)
			}
		}
	case opEQ, opNE:
		// A truth value kept as a number: select(p, c1, c2) == c.
		if bc && xa.op == opSelect {
			c1, ok1 := g.constant(xa.b)
			c2, ok2 := g.constant(xa.c)
			if ok1 && ok2 && c1 != c2 {
				is1, is2 := c1 == bv, c2 == bv
				if x.op == opNE {
					is1, is2 = !is1, !is2
				}
				switch {
				case is1 && !is2:
					return xa.a
				case is2 && !is1:
					return g.unary(opNot, 1, xa.a)
				case is1:
					return g.number(1, -1)
				default:
					return g.number(1, 0)
				}
			}
		}
		if bc && bv == 0 && (xa.op == opZext || xa.op == opSext) {
			return g.binary(x.op, 1, xa.a, g.number(g.width(xa.a), 0))
		}
	case opSelect:
		if ac {
			if av != 0 {
				return b
			}
			return x.c
		}
		if b == x.c {
			return b
		}
		if xa.op == opNot {
			return g.make(opSelect, x.w, xa.a, x.c, b)
		}
		if x.w == 1 { // conditions that code without optimisation works out by branches: a && b, a || b
			if c, ok := g.constant(b); ok && c != 0 {
				return g.binary(opOr, 1, a, x.c)
			} else if ok {
				return g.binary(opAnd, 1, g.unary(opNot, 1, a), x.c)
			}
			if c, ok := g.constant(x.c); ok && c != 0 {
				return g.binary(opOr, 1, g.unary(opNot, 1, a), b)
			} else if ok {
				return g.binary(opAnd, 1, a, b)
			}
		}
	}
	return none
}

// counted sees n + (n > 0 ? -1 : 0), and gives n.
func (g *graph) counted(e exprID) exprID {
	x := g.exprs[e]
	if x.op != opAdd {
		return none
	}
	for _, p := range [2][2]exprID{{x.a, x.b}, {x.b, x.a}} {
		s := g.exprs[p[1]]
		if s.op != opSelect {
			continue
		}
		down, ok1 := g.constant(s.b)
		stay, ok2 := g.constant(s.c)
		if ok1 && ok2 && down == -1 && stay == 0 && s.a == g.binary(opLTS, 1, g.number(x.w, 0), p[0]) {
			return p[0]
		}
	}
	return none
}

// A multiple is base * times.
type multiple struct {
	base  exprID
	times int64
}

func (g *graph) factor(e exprID) multiple {
	if x := g.exprs[e]; x.op == opMul {
		if k, ok := g.constant(x.b); ok {
			return multiple{x.a, k}
		}
	}
	return multiple{e, 1}
}
