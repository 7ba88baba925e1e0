package summarise

import (
	"holdfast/internal/footprint/form"
	"holdfast/internal/ir"
)

// values are the symbolic values of a kernel, and what is known where they are made.
type values struct {
	*graph
	*code
	vals  []exprID // of the SSA values; none: not yet
	symOf map[string]int64
	done  []bool // blocks whose values are known
	facts [][]fact
	found
}

// found is what passes have found out of phis at the heads of loops.
type found struct {
	steps      map[ir.ValID]step       // they change by this in each iteration
	carried    map[ir.ValID][]exprID   // they are one of these, computed in the iteration before
	bisections map[ir.ValID]*bisection // they are an end of a binary search
	midpoints  map[ir.ValID]*bisection // (no phis) the middle of one
	repeated   map[ir.ValID]bool       // all their values are loaded from one place
}

// build gives every SSA value a symbolic one. Blocks come in reverse postorder, so arguments
// come first, but for those of phis at the heads of loops.
func build(f *ir.Func, maxTid [3]int64) *values {
	vs := &values{
		graph: newGraph(),
		code:  newCode(f),
		vals:  make([]exprID, len(f.Vals)),
		symOf: map[string]int64{},
		done:  make([]bool, len(f.Blocks)),
		found: found{
			steps:      map[ir.ValID]step{},
			carried:    map[ir.ValID][]exprID{},
			bisections: map[ir.ValID]*bisection{},
			midpoints:  map[ir.ValID]*bisection{},
			repeated:   map[ir.ValID]bool{},
		},
	}
	vs.maxTid = maxTid
	for _, v := range f.Vars {
		vs.symOf[v.Name] = int64(len(vs.symbols))
		vs.symbols = append(vs.symbols, symbol{v.Name, v.Space, v.Size})
	}
	for range maxPasses {
		vs.pass()
		if !(inductions{vs}).find() {
			break
		}
	}
	return vs
}

// maxPasses bounds how often the values are made anew because more of them turned out to be
// induction variables.
const maxPasses = 4

func (vs *values) pass() {
	clear(vs.vals)
	clear(vs.done)
	vs.facts = make([][]fact, len(vs.f.Blocks))
	for _, b := range vs.f.Blocks {
		vs.facts[b.Index] = vs.blockFacts(b)
		for _, in := range b.Insts {
			vs.inst(b, in)
		}
		vs.done[b.Index] = true
	}
}

func (vs *values) inst(b *ir.Block, in *ir.Inst) {
	if len(in.Defs) == 0 {
		return
	}
	if in.Op == ir.Phi {
		vs.vals[in.Defs[0]] = merges{vs}.phi(b, in)
		return
	}
	if x := vs.midpoints[in.Defs[0]]; x != nil {
		vs.vals[in.Defs[0]] = merges{vs}.between(b, vs.widthOf(in.Defs[0]), x, 1)
		return
	}
	res := meanings{vs}.results(b, in)
	for i, d := range in.Defs {
		if d == ir.None {
			continue
		}
		w := vs.widthOf(d)
		e := noExpr
		if i < len(res) {
			e = res[i]
		}
		if e == noExpr || vs.width(e) != w && (w == 1 || vs.width(e) == 1) {
			e = vs.unknown(w, b)
		}
		if vs.width(e) > w {
			e = vs.unary(form.OpTrunc, w, e)
		} else if vs.width(e) < w {
			// The instruction says nothing of the upper bits, or extends by its type.
			op := form.OpZext
			if in.Type.Kind == ir.Signed {
				op = form.OpSext
			}
			e = vs.unary(op, w, e)
		}
		if in.Guarded() && i < len(in.Else) {
			e = vs.make(form.OpSelect, w, vs.operand(in.Guard, 1), e, vs.operand(in.Else[i], w))
		}
		vs.vals[d] = e
	}
}

// operand is the value of an operand as one of w bits.
func (vs *values) operand(x ir.Operand, w uint8) exprID {
	var e exprID
	switch x.Kind {
	case ir.Value:
		e = vs.vals[x.Val]
		if e == noExpr || x.Part != "" {
			return vs.unknown(w, nil)
		}
	case ir.Constant:
		bits := int64(x.Bits)
		if w == 1 && bits != 0 {
			bits = -1
		}
		e = vs.number(w, bits)
	case ir.Special:
		e = meanings{vs}.special(x.Reg)
	case ir.Symbol:
		i, ok := vs.symOf[x.Name]
		if !ok {
			return vs.unknown(w, nil)
		}
		e = vs.binary(form.OpAdd, 64, vs.intern(expr{op: form.OpSymbol, w: 64, imm: i}), vs.num(int64(x.Bits)))
	default:
		return vs.unknown(w, nil)
	}
	if have := vs.width(e); have != w {
		switch {
		case have == 1 || w == 1:
			return vs.unknown(w, nil)
		case have > w:
			e = vs.unary(form.OpTrunc, w, e)
		default:
			e = vs.unary(form.OpZext, w, e) // no instruction does this
		}
	}
	if x.Mod&ir.Complement != 0 {
		e = vs.unary(form.OpNot, w, e)
	}
	if x.Mod&ir.Negated != 0 {
		e = vs.unary(form.OpNeg, w, e)
	}
	return e
}
