package fromptx

import (
	"holdfast/internal/ir"
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// divide finds where blocks begin: at the targets of branches, and after them.
func (b *builder) divide() {
	b.starts = make([]*ir.Block, len(b.insts)+1)
	start := func(i int) {
		if b.starts[i] == nil {
			b.starts[i] = &ir.Block{}
		}
	}
	for i, p := range b.insts {
		b.scope, b.pos = p.scope, p.in.Pos
		switch isa.LeavingOf(p.in) {
		case isa.Branches, isa.Switches:
			for _, t := range b.targets(p.in) {
				start(t)
			}
		case isa.Returns, isa.Exits, isa.Traps:
		default:
			continue
		}
		start(i + 1)
	}
}

// maxTargets bounds the arcs of a function.
const maxTargets = 1 << 22

// targets are the instructions that a branch may go to.
func (b *builder) targets(in *ptx.Inst) []int {
	if len(in.Args) == 0 {
		b.fail("%s without a target", in.Op)
		return nil
	}
	last, ok := in.Args[len(in.Args)-1].(*ptx.Ref)
	if !ok {
		b.fail("%s: the target is no label", in.Op)
		return nil
	}
	names := []string{last.Name}
	from := b.scope
	if isa.LeavingOf(in) == isa.Switches {
		for ; from != nil; from = from.outer {
			if list, ok := from.tables[last.Name]; ok {
				names = list
				break
			}
		}
		if from == nil {
			b.fail("%s is no list of branch targets", last.Name)
			return nil
		}
	}
	if b.arcs += len(names); b.arcs > maxTargets {
		b.fail("function %s has more than %d branch targets", b.fn.Name, maxTargets)
		return nil
	}
	var list []int
	for _, name := range names {
		at := -1
		for s := from; s != nil && at < 0; s = s.outer {
			if i, ok := s.labels[name]; ok {
				at = i
			}
		}
		if at < 0 {
			b.fail("label %s is not defined", name)
			return nil
		}
		list = append(list, at)
	}
	return list
}

func (b *builder) branch(i int, in *ptx.Inst, guard ir.Operand) {
	targets := b.targets(in)
	if b.err != nil {
		return
	}
	if isa.LeavingOf(in) == isa.Branches {
		out := &ir.Inst{Op: ir.Branch, Guard: guard, Name: isa.Text(in)}
		b.add(out)
		b.out.Arc(b.starts[targets[0]])
	} else {
		if guard.Kind != ir.NoOperand { // a switch is not guarded: branch around it
			b.add(&ir.Inst{Op: ir.Branch, Guard: guard})
			from := b.out.Here()
			b.out.Enter(&ir.Block{})
			ir.Connect(from, b.starts[i+1])
		}
		x := b.convert(in.Args[0], ptx.U32)
		if len(in.Args) != 2 || len(x) != 1 {
			b.fail("%s takes an index and a list", isa.Text(in))
			return
		}
		b.add(&ir.Inst{Op: ir.Switch, Args: x, Name: isa.Text(in)})
		for _, t := range targets {
			b.out.Arc(b.starts[t])
		}
		b.out.End()
		return
	}
	if guard.Kind == ir.NoOperand {
		b.out.End()
	}
}

// call: the callee, then the arguments that are registers or constants; parameter
// variables are accesses.
func (b *builder) call(in *ptx.Inst, guard ir.Operand) {
	out := &ir.Inst{Op: ir.Call, Guard: guard, Name: isa.Text(in), Effect: ir.Orders | ir.AnyRead | ir.AnyWrite}
	c := in.Call
	if c == nil || c.Callee == nil {
		b.fail("call without a callee")
		return
	}
	out.Args = b.convert(c.Callee, ptx.U64)
	param := func(list []ptx.Operand, ret bool) {
		for _, x := range list {
			for _, o := range b.convert(x, ptx.B32) {
				switch {
				case o.Kind == ir.Symbol && !b.funcs[o.Name]:
					out.Mem = append(out.Mem, ir.Access{Read: !ret, Write: ret, Space: ir.Param, Base: o,
						Bytes: b.sizeOf(o.Name)})
				case ret && o.Kind == ir.Value:
					out.Defs = append(out.Defs, o.Val)
				case ret:
					out.Defs = append(out.Defs, ir.None)
				default:
					out.Args = append(out.Args, o)
				}
			}
		}
	}
	param(c.Params, false)
	param(c.Ret, true)
	b.add(out)
}

func (b *builder) sizeOf(name string) int {
	for i := len(b.f.Vars) - 1; i >= 0 && i >= len(b.f.Vars)-64; i-- { // parameters of a call are recent
		if b.f.Vars[i].Name == name {
			return b.f.Vars[i].Size
		}
	}
	return 0
}
