package summarise

import (
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
	"holdfast/internal/ir"
)

// An exprID names a symbolic value; it indexes graph.exprs. Arguments have smaller numbers.
type exprID int32

// none is no expression. Expression 0 is never used.
const noExpr exprID = 0

// An expr is a symbolic value of w bits. Concrete values are kept sign-extended from w
// bits to an int64, whatever their sign means.
type expr struct {
	op      form.Op
	w       uint8
	a, b, c exprID
	imm     int64
}

// A graph holds the symbolic values of one kernel. Equal ones are the same one.
type graph struct {
	exprs   []expr
	index   map[expr]exprID
	uniform []bool            // the same in all threads of the grid, and computable
	bounds  []interval.Bounds // of uniform values, in every launch
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
	origin  map[exprID]*ir.Block // of OpUnknown and OpPhi: where its value is made; of OpCounter, the header
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
	before bool // the value of the iteration before, if there was one
}

// A symbol is a variable with an address.
type symbol struct {
	name  string
	space ir.Space
	size  int
}

func newGraph() *graph {
	g := &graph{index: map[expr]exprID{}, varOf: map[string]varID{}, linears: map[string]*linear{},
		checkOf: map[check]int32{},
		origin:  map[exprID]*ir.Block{}, loads: map[int64]loaded{}, maxTid: [3]int64{1023, 1023, 63}}
	g.exprs = append(g.exprs, expr{})
	g.uniform = append(g.uniform, false)
	g.bounds = append(g.bounds, interval.Bounds{})
	g.linear = append(g.linear, nil)
	return g
}

func (g *graph) width(e exprID) uint8 { return g.exprs[e].w }

// constant reports the value of a constant.
func (g *graph) constant(e exprID) (int64, bool) {
	x := &g.exprs[e]
	return x.imm, x.op == form.OpConst
}

// number makes a constant.
func (g *graph) number(w uint8, x int64) exprID {
	return g.intern(expr{op: form.OpConst, w: w, imm: form.Canonical(w, x)})
}

// unknown makes a value of which nothing is known but its width.
func (g *graph) unknown(w uint8, at *ir.Block) exprID {
	g.serial++
	e := g.intern(expr{op: form.OpUnknown, w: w, imm: g.serial})
	g.origin[e] = at
	return e
}

// A loaded value is what memory, or the parameter buffer, holds at this form: a variable of this kind.
type loaded struct {
	at    *linear
	kind  form.Kind
	imm   int64
	block *ir.Block
	in    *ir.Inst
}

// loaded makes the value of a load.
func (g *graph) loaded(w uint8, at *ir.Block, l loaded) exprID {
	g.loads[g.serial+1] = l
	return g.unknown(w, at)
}

// intern gives an expression its number and works out what follows from it.
func (g *graph) intern(x expr) exprID {
	if e, ok := g.index[x]; ok {
		return e
	}
	e := exprID(len(g.exprs))
	g.exprs = append(g.exprs, x)
	g.index[x] = e
	u := x.op <= form.OpSelect
	for _, arg := range [...]exprID{x.a, x.b, x.c} {
		u = u && (arg == noExpr || g.uniform[arg])
	}
	g.uniform = append(g.uniform, u)
	g.bounds = append(g.bounds, interval.Bounds{})
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
func (g *graph) unary(op form.Op, w uint8, a exprID) exprID { return g.make(op, w, a, noExpr, noExpr) }

func (g *graph) binary(op form.Op, w uint8, a, b exprID) exprID { return g.make(op, w, a, b, noExpr) }

func (g *graph) make(op form.Op, w uint8, a, b, c exprID) exprID {
	x := expr{op: op, w: w, a: a, b: b, c: c}
	aw := g.exprs[a].w
	av, ac := g.constant(a)
	bv, bc := g.constant(b)
	cv, cc := g.constant(c)
	if ac && (bc || b == noExpr) && (cc || c == noExpr) {
		if v, ok := form.Compute(op, w, aw, av, bv, cv); ok {
			return g.number(w, v)
		}
	}
	switch op {
	case form.OpAdd, form.OpMul, form.OpAnd, form.OpOr, form.OpXor, form.OpMinU, form.OpMinS, form.OpMaxU,
		form.OpMaxS, form.OpEQ, form.OpNE:
		if ac || !bc && a > b { // constants to the right
			x.a, x.b = b, a
			a, b, av, ac, bv, bc = b, a, bv, bc, av, ac
		}
	}
	if e := g.simplify(x, ac, av, bc, bv); e != noExpr {
		return e
	}
	return g.intern(x)
}

func (g *graph) simplify(x expr, ac bool, av int64, bc bool, bv int64) exprID {
	a, b := x.a, x.b
	xa := g.exprs[a]
	switch x.op {
	case form.OpAdd:
		if bc && bv == 0 {
			return a
		}
		if k, m := g.factor(a), g.factor(b); !bc && k.base == m.base {
			return g.binary(form.OpMul, x.w, k.base, g.number(x.w, k.times+m.times))
		}
		if bc && xa.op == form.OpAdd {
			if v, ok := g.constant(xa.b); ok {
				return g.binary(form.OpAdd, x.w, xa.a, g.number(x.w, v+bv))
			}
		}
	case form.OpSub:
		if bc {
			return g.binary(form.OpAdd, x.w, a, g.number(x.w, -bv))
		}
		if a == b {
			return g.number(x.w, 0)
		}
	case form.OpMul:
		if bc && bv == 0 {
			return b
		}
		if bc && bv == 1 {
			return a
		}
		if bc && xa.op == form.OpMul {
			if v, ok := g.constant(xa.b); ok {
				return g.binary(form.OpMul, x.w, xa.a, g.number(x.w, v*bv))
			}
		}
	case form.OpDivU, form.OpDivS:
		if bc && bv == 1 {
			return a
		}
	case form.OpAnd:
		if bc && bv == 0 {
			return b
		}
		if bc && bv == -1 || a == b {
			return a
		}
		if c, ok := g.constant(xa.b); bc && ok && xa.op == form.OpDivU && c > 0 {
			if most := form.Unsigned(x.w, -1) / uint64(c); uint64(interval.Smear(int64(min(most,
				uint64(interval.Far)))))&^form.Unsigned(x.w, bv) == 0 {
				return a // a quotient has no bits where the mask has none
			}
		}
		if w := g.width(xa.a); bc && xa.op == form.OpZext && w > 1 { // the bits above are 0
			return g.unary(form.OpZext, x.w, g.binary(form.OpAnd, w, xa.a, g.number(w, bv)))
		}
	case form.OpOr:
		if bc && bv == 0 || a == b {
			return a
		}
	case form.OpXor:
		if bc && bv == 0 {
			return a
		}
		if bc && bv == -1 {
			return g.unary(form.OpNot, x.w, a)
		}
		if x.w == 1 && bc { // 1 is -1 in one bit
			return g.unary(form.OpNot, 1, a)
		}
	case form.OpShl:
		if bc && bv >= 0 && bv < int64(x.w) {
			return g.binary(form.OpMul, x.w, a, g.number(x.w, int64(uint64(1)<<uint(bv))))
		}
	case form.OpShrU, form.OpShrS:
		if bc && bv == 0 {
			return a
		}
	case form.OpNot:
		if xa.op == form.OpNot {
			return xa.a
		}
	case form.OpNeg:
		return g.binary(form.OpMul, x.w, a, g.number(x.w, -1))
	case form.OpMinS, form.OpMinU, form.OpMaxS, form.OpMaxU:
		if a == b {
			return a
		}
		if max := x.op == form.OpMaxS || x.op == form.OpMaxU; max && (xa.op == form.OpNot ||
			g.exprs[b].op == form.OpNot) { // max(~p, q) = ~min(p, ~q)
			least := form.OpMinS
			if x.op == form.OpMaxU {
				least = form.OpMinU
			}
			return g.unary(form.OpNot, x.w, g.binary(least, x.w, g.unary(form.OpNot, x.w, a), g.unary(form.OpNot,
				x.w, b)))
		}
	case form.OpZext, form.OpSext, form.OpTrunc:
		if xa.w == x.w {
			return a
		}
		if x.op == form.OpTrunc {
			switch xa.op {
			case form.OpTrunc:
				return g.unary(form.OpTrunc, x.w, xa.a)
			case form.OpZext, form.OpSext:
				if iw := g.width(xa.a); iw == x.w {
					return xa.a
				} else if iw > x.w {
					return g.unary(form.OpTrunc, x.w, xa.a)
				}
				return g.unary(xa.op, x.w, xa.a)
			}
		} else if xa.op == form.OpZext || xa.op == x.op {
			return g.unary(xa.op, x.w, xa.a)
		}
	case form.OpLTS, form.OpLES, form.OpLTU, form.OpLEU:
		if g.uniform[a] && g.uniform[b] {
			break
		}
		// c < n - (n > 0 ? 1 : 0) is c+1 < n if c is not negative: a positive n is n-1, another is not above c.
		if x.op == form.OpLTS && ac && av >= 0 && av < 1<<6 {
			if n := g.counted(b); n != noExpr {
				return g.binary(form.OpLTS, 1, g.number(g.width(a), av+1), n)
			}
		}
		signed := x.op == form.OpLTS || x.op == form.OpLES
		if d, ok := g.difference(a, b, signed); ok && len(d.checks) == 0 {
			most := int64(0)
			if x.op == form.OpLTS || x.op == form.OpLTU {
				most = -1
			}
			if r := g.formBounds(d); r.Hi <= most {
				return g.number(1, -1)
			} else if r.Lo > most {
				return g.number(1, 0)
			}
		}
	case form.OpEQ, form.OpNE:
		// A truth value kept as a number: select(p, c1, c2) == c.
		if bc && xa.op == form.OpSelect {
			c1, ok1 := g.constant(xa.b)
			c2, ok2 := g.constant(xa.c)
			if ok1 && ok2 && c1 != c2 {
				is1, is2 := c1 == bv, c2 == bv
				if x.op == form.OpNE {
					is1, is2 = !is1, !is2
				}
				switch {
				case is1 && !is2:
					return xa.a
				case is2 && !is1:
					return g.unary(form.OpNot, 1, xa.a)
				case is1:
					return g.number(1, -1)
				default:
					return g.number(1, 0)
				}
			}
		}
		if bc && bv == 0 && (xa.op == form.OpZext || xa.op == form.OpSext) {
			return g.binary(x.op, 1, xa.a, g.number(g.width(xa.a), 0))
		}
	case form.OpSelect:
		if ac {
			if av != 0 {
				return b
			}
			return x.c
		}
		if b == x.c {
			return b
		}
		if xa.op == form.OpNot {
			return g.make(form.OpSelect, x.w, xa.a, x.c, b)
		}
		if x.w == 1 { // conditions that code without optimisation works out by branches: a && b, a || b
			if c, ok := g.constant(b); ok && c != 0 {
				return g.binary(form.OpOr, 1, a, x.c)
			} else if ok {
				return g.binary(form.OpAnd, 1, g.unary(form.OpNot, 1, a), x.c)
			}
			if c, ok := g.constant(x.c); ok && c != 0 {
				return g.binary(form.OpOr, 1, g.unary(form.OpNot, 1, a), b)
			} else if ok {
				return g.binary(form.OpAnd, 1, a, b)
			}
		}
	}
	return noExpr
}

// counted sees n + (n > 0 ? -1 : 0), and gives n.
func (g *graph) counted(e exprID) exprID {
	x := g.exprs[e]
	if x.op != form.OpAdd {
		return noExpr
	}
	for _, p := range [2][2]exprID{{x.a, x.b}, {x.b, x.a}} {
		s := g.exprs[p[1]]
		if s.op != form.OpSelect {
			continue
		}
		down, ok1 := g.constant(s.b)
		stay, ok2 := g.constant(s.c)
		if ok1 && ok2 && down == -1 && stay == 0 && s.a == g.binary(form.OpLTS, 1, g.number(x.w, 0), p[0]) {
			return p[0]
		}
	}
	return noExpr
}

// A multiple is base * times.
type multiple struct {
	base  exprID
	times int64
}

func (g *graph) factor(e exprID) multiple {
	if x := g.exprs[e]; x.op == form.OpMul {
		if k, ok := g.constant(x.b); ok {
			return multiple{x.a, k}
		}
	}
	return multiple{e, 1}
}
