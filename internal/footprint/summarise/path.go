package summarise

import (
	"holdfast/internal/footprint"
	"holdfast/internal/footprint/form"
	"holdfast/internal/ir"
)

// paths makes the path on which witnesses are looked for.
type paths struct{ *values }

// path makes the code that a witness is looked for in.
func (pt paths) path(list []*access) footprint.Path {
	var p footprint.Path
	at := map[exprID]int32{}
	p.Ops = append(p.Ops, footprint.Instr{})
	var op func(e exprID) int32
	op = func(e exprID) int32 {
		if e == noExpr {
			return 0
		}
		if i, ok := at[e]; ok {
			return i
		}
		x := pt.exprs[e]
		in := footprint.Instr{Op: x.op, W: x.w, Imm: x.imm}
		in.A, in.B, in.C = op(x.a), op(x.b), op(x.c)
		if x.a != noExpr {
			in.Aw = pt.width(x.a)
		}
		if b := pt.origin[e]; b != nil && (x.op == form.OpHalving || x.op == form.OpDrift) {
			in.Imm = pt.loopOf[pt.f.Loops.Of[b.Index]]
		}
		i := int32(len(p.Ops))
		p.Ops = append(p.Ops, in)
		at[e] = i
		return i
	}
	by := map[*ir.Block][]*access{}
	for _, a := range list {
		by[a.block] = append(by[a.block], a)
	}
	end := len(pt.f.Blocks)
	for _, b := range pt.f.Blocks {
		x := footprint.PathBlock{I0: int32(len(p.Items)), S0: -1, S1: -1, After: -1, Leave: -1}
		for _, a := range by[b] {
			if a.upTo {
				continue // no witness: it may read nothing
			}
			p.Items = append(p.Items, footprint.PathItem{Kind: a.kind, Hidden: a.hidden, Addr: op(a.addr),
				Guard: op(a.guard), Off: a.off, Bytes: a.bytes,
				Pos: int32(a.pos), Order: int32(a.order), Value: int32(a.value)})
		}
		x.I1 = int32(len(p.Items))
		if d := pt.f.PostDom.Parent[b.Index]; int(d) < end {
			x.After = d
		}
		pt.branch(b, &x, op)
		if l := pt.f.Loops.Of[b.Index]; l != nil {
			x.Loop = int32(pt.loopOf[l]) + 1
			if l.Header == b {
				x.Header = x.Loop
				d := pt.f.PostDom.Parent[b.Index]
				for int(d) < end && pt.f.Loops.Contains(l, pt.f.Blocks[d]) {
					d = pt.f.PostDom.Parent[d]
				}
				if int(d) < end {
					x.Leave = d
				}
			}
		}
		p.Blocks = append(p.Blocks, x)
	}
	return p
}

// branch fills in how a block ends.
func (pt paths) branch(b *ir.Block, x *footprint.PathBlock, op func(exprID) int32) {
	end := b.End()
	switch {
	case end == nil || end.Op == ir.Branch && !end.Guarded():
		if len(b.Succs) > 0 {
			x.S0 = int32(b.Succs[0].Block.Index)
			x.S1 = x.S0
		}
	case end.Op == ir.Branch && len(b.Succs) == 2:
		x.Cond = op(pt.operand(end.Guard, 1))
		x.S0, x.S1 = int32(b.Succs[0].Block.Index), int32(b.Succs[1].Block.Index)
	case end.Op.Leaves() && end.Guarded() && len(b.Succs) == 1:
		x.Cond = op(pt.operand(end.Guard, 1))
		x.S1 = int32(b.Succs[0].Block.Index)
	case end.Op == ir.Switch:
		x.Cond = -1
	}
}
