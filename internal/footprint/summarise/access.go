package summarise

import (
	"cmp"
	"slices"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
	"holdfast/internal/ir"
)

// An access is a place in a kernel that touches global memory.
type access struct {
	kind   footprint.AccessKind
	atom   atomicUpdate // of isSettle: only equal ones may meet
	f      *linear
	addr   exprID // the same address without off, as a value
	guard  exprID // of the instruction; none: it has none
	value  exprID // what is written, or has been read; none: several values
	off    int64  // added to f
	bytes  int64  // 0 = not known
	facts  []fact
	block  *ir.Block
	order  int // among all instructions
	pos    int
	cong   int32 // 1 + the congruence of the program that holds for f
	hidden bool  // of a read: its own thread has surely written these bytes before
	async  bool  // done some time after the instruction
	upTo   bool  // it may be of fewer bytes, or none
	cover  int32 // of a write and what it may cover (scratch.go): the same number; 0 = none
	lone   bool  // of such a write: only threads whose tid.x is 0 make it
}

// accesses lists what a kernel does to global memory.
type accesses struct {
	*provenance
	used []bool // values that something reads
}

func newAccesses(vs *values) *accesses {
	return &accesses{provenance: &provenance{values: vs}}
}

// collect lists the accesses of a kernel.
func (ac *accesses) collect() []*access {
	var list []*access
	ac.windows()
	ac.used = make([]bool, len(ac.f.Vals))
	for _, b := range ac.f.Blocks {
		for _, in := range b.Insts {
			in.Uses(func(x *ir.Operand) {
				if x.Kind == ir.Value {
					ac.used[x.Val] = true
				}
			})
		}
	}
	for at, in := range ac.ordered() {
		for i := range in.Mem {
			if a := ac.access(at.block, in, &in.Mem[i], ac.facts[at.block.Index]); a != nil {
				a.order = at.order
				list = append(list, ac.rows(a, in, in.Mem[i].Tile)...)
			}
		}
	}
	return list
}

// A position is where an instruction stands: orders are those of sequence.
type position struct {
	block *ir.Block
	order int
}

func (ac *accesses) access(b *ir.Block, in *ir.Inst, m *ir.Access, facts []fact) *access {
	if m.Space == ir.Const {
		return ac.constantRead(b, in, m, facts)
	}
	if m.Space != ir.Global && m.Space != ir.Generic || in.Op == ir.Prefetch || !m.Read && !m.Write {
		return nil
	}
	own := facts
	if in.Guarded() {
		cs := conditions{ac.graph}
		own = cs.resolved(cs.conjuncts(ac.operand(in.Guard, 1), false, slices.Clone(facts)))
	}
	addr := decisions{ac.graph}.assume(ac.operand(m.Base, 64), own)
	f := ac.linear[addr]
	if f.sym != 0 {
		switch ac.symbols[f.sym-1].space {
		case ir.Global, ir.Generic:
		case ir.Const:
			return ac.constantRead(b, in, m, facts)
		default:
			return nil // a variable in shared, local or parameter memory
		}
	} else if m.Space == ir.Generic && ac.inWindow(m.Base) {
		return nil
	}
	a := &access{f: f, addr: addr, off: m.Off, bytes: int64(m.Bytes), facts: own, block: b, pos: in.Pos, async: m.Later}
	switch {
	case in.Op == ir.Store && len(in.Args) == 1 && in.Args[0].Kind == ir.Value && in.Args[0].Part == "":
		a.value = ac.vals[in.Args[0].Val]
	case in.Op == ir.Load && len(in.Defs) == 1 && in.Defs[0] != ir.None:
		a.value = ac.vals[in.Defs[0]]
	}
	a.upTo = m.Partly
	if in.Guarded() {
		a.guard = ac.operand(in.Guard, 1)
	}
	switch {
	case in.Op == ir.Atomic:
		a.kind, a.atom = ac.atomic(in)
	case m.Read && m.Write:
		a.kind = footprint.IsUpdate
	case m.Write:
		a.kind = footprint.IsWrite
	default:
		a.kind = footprint.IsRead
	}
	return a
}

// constantRead is a read of constant memory: it stays in its variable.
func (ac *accesses) constantRead(b *ir.Block, in *ir.Inst, m *ir.Access, facts []fact) *access {
	f := ac.linear[ac.operand(m.Base, 64)]
	if f.sym == 0 || !m.Read {
		return nil // nothing that a kernel can write
	}
	a := &access{kind: footprint.IsRead, f: f, off: m.Off, bytes: int64(m.Bytes), facts: facts, block: b, pos: in.Pos}
	size := int64(ac.symbols[f.sym-1].size)
	at := ac.formBounds(ac.withoutSymbol(f)).Plus(interval.Bounds{Lo: m.Off, Hi: m.Off})
	if len(f.checks) > 0 || size > 0 && (at.Lo < 0 || at.Hi > size-a.bytes) {
		a.f = ac.form(linear{c: ac.num(0), sym: f.sym})
		a.off, a.bytes = 0, max(size, 1)
	}
	return a
}

func (g *graph) withoutSymbol(f *linear) *linear {
	n := *f
	n.sym = 0
	return g.form(n)
}

// rows are the accesses of a warp that loads or stores a matrix: one for each row, or column, that lies in one piece.
// The whole warp makes them, so that no thread surely makes all.
func (ac *accesses) rows(a *access, in *ir.Inst, t *ir.Tile) []*access {
	if t == nil {
		return []*access{a}
	}
	stride := ac.operand(in.Args[t.Stride], 32)
	if !ac.uniform[stride] {
		return []*access{a}
	}
	step := ac.binary(form.OpMul, 64, ac.unary(form.OpZext, 64, stride), ac.num(int64(t.Elem)))
	var list []*access
	for i := range t.Rows {
		r := *a
		off := ac.binary(form.OpMul, 64, step, ac.num(int64(i)))
		f, ok := ac.sum(a.f, ac.uniformForm(off), ac.num(1))
		if !ok {
			return []*access{a}
		}
		r.f, r.addr, r.bytes = f, ac.binary(form.OpAdd, 64, a.addr, off), int64(t.Bytes)
		r.async, r.upTo = true, true
		list = append(list, &r)
	}
	return list
}

// A bundle is accesses that differ by constants: off, off+step, … (count of them), each with
// this many bytes; count 0: from off on, unevenly.
type bundle struct {
	access
	step  int64
	count int64
	span  int64 // from off to the end of the last one
}

// bundles merges accesses of one kind, under the same guards, at the same form but for a constant.
func (g *graph) bundles(list []*access, guards func(*access) int) []*bundle {
	type key struct {
		kind   footprint.AccessKind
		atom   atomicUpdate
		hidden bool
		bytes  int64
		form   int32
		guards int
		cong   int32
		cover  int32
		lone   bool
	}
	index := map[key][]*access{}
	var keys []key
	for _, a := range list {
		base, off := a.f, a.off
		if x := g.exprs[a.f.c]; x.op == form.OpConst {
			base, off = g.moved(a.f, g.num(0)), off+x.imm
		} else if c, ok := g.constant(x.b); ok && x.op == form.OpAdd {
			base, off = g.moved(a.f, x.a), off+c
		}
		n := *a
		n.f, n.off = base, off
		q := key{a.kind, a.atom, a.hidden, a.bytes, base.id, guards(a), a.cong, a.cover, a.lone}
		if index[q] == nil {
			keys = append(keys, q)
		}
		index[q] = append(index[q], &n)
	}
	var out []*bundle
	for _, q := range keys {
		same := index[q]
		slices.SortStableFunc(same, func(a, b *access) int { return cmp.Compare(a.off, b.off) })
		out = append(out, bundled(same)...)
	}
	return out
}

// maxSpan bounds what is merged: offsets farther apart are bundles of their own.
const maxSpan = 1 << 24

func bundled(same []*access) []*bundle {
	var out []*bundle
	for len(same) > 0 {
		n := 1
		for n < len(same) && same[n].off-same[0].off < maxSpan {
			n++
		}
		part := same[:n]
		same = same[n:]
		b := &bundle{access: *part[0], count: 1}
		for _, a := range part { // whether anything is written before a read is asked of all of them
			b.order = min(b.order, a.order)
		}
		last := part[len(part)-1].off
		b.span = last - b.off + max(b.bytes, 1)
		if last > b.off {
			b.step, b.count = evenly(part)
		}
		out = append(out, b)
	}
	return out
}

// evenly is the step and the number of offsets that lie at the same distance; 0, 0 if they do not.
func evenly(part []*access) (step, count int64) {
	at := part[0].off
	count = 1
	for _, a := range part[1:] {
		switch {
		case a.off == at:
		case step == 0 || a.off-at == step:
			step = a.off - at
			at = a.off
			count++
		default:
			return 0, 0
		}
	}
	return step, count
}

// moved is f with another constant.
func (g *graph) moved(f *linear, c exprID) *linear {
	n := *f
	n.c = c
	return g.form(n)
}
