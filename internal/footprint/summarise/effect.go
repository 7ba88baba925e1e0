package summarise

import (
	"slices"
	"strings"

	"holdfast/internal/footprint"
	"holdfast/internal/ir"
)

// callees are the functions of a module, and what calling them does.
type callees struct {
	module   *ir.Module
	funcs    map[string]*ir.Func
	noReturn map[string]bool
	known    map[string]footprint.Cause
	tables   map[string][]symbol // variables that functions of the mathematical library read
	inliner  *ir.Inliner
}

func newCallees(m *ir.Module) *callees {
	c := &callees{module: m, funcs: map[string]*ir.Func{}, noReturn: map[string]bool{"__assertfail": true},
		known:  map[string]footprint.Cause{},
		tables: map[string][]symbol{}}
	for name := range m.NoReturn {
		c.noReturn[name] = true
	}
	for _, f := range m.Funcs {
		if f.Err == nil {
			c.funcs[f.Name] = f
		}
	}
	return c
}

// cut ends blocks where a function is called that does not return: the launch fails there. It is
// for functions that no pass has run on.
func (c *callees) cut(f *ir.Func) {
	for _, b := range f.Blocks {
		for i, in := range b.Insts {
			if in.Op != ir.Call || in.Guarded() || len(in.Args) == 0 || in.Args[0].Kind != ir.Symbol ||
				!c.noReturn[in.Args[0].Name] {
				continue
			}
			b.Insts = append(b.Insts[:i:i], &ir.Inst{Op: ir.Trap, Name: "trap", Pos: in.Pos})
			disconnect(b)
			break
		}
	}
}

// disconnect removes the arcs that leave a block.
func disconnect(b *ir.Block) {
	for _, s := range b.Succs {
		t := s.Block
		t.Preds = append(t.Preds[:s.Index:s.Index], t.Preds[s.Index+1:]...)
		for i := s.Index; i < len(t.Preds); i++ {
			p := t.Preds[i]
			p.Block.Succs[p.Index].Index = i
		}
	}
	b.Succs = nil
}

// effects notes what a kernel does that cannot be foreseen, or that ties it to something
// outside of it.
func effects(s *footprint.Summary, f *ir.Func, calls *callees) {
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			if c := calls.effect(in, 0); c != footprint.NoCause {
				s.Refuse(c, in.Pos)
				if c == footprint.UnknownCall || c == footprint.UnknownInstruction || c == footprint.TensorCopy ||
					c == footprint.Texture || c == footprint.HostCall || c == footprint.DeviceLaunch {
					s.GuessReads, s.GuessWrites = true, true
				}
			}
		}
	}
	if pos := spins(f); pos != 0 {
		s.Refuse(footprint.Spin, pos)
	}
}

// effect is why an instruction makes every instance unknown; NoCause if it does not.
func (c *callees) effect(in *ir.Inst, depth int) footprint.Cause {
	cause := footprint.NoCause
	in.Uses(func(x *ir.Operand) {
		if x.Kind != ir.Special {
			return
		}
		switch x.Reg.From {
		case ir.FromMachine:
			cause = footprint.Clock
		case ir.FromDriver:
			cause = footprint.GridSync
		}
	})
	if cause != footprint.NoCause {
		return cause
	}
	switch in.Reach {
	case ir.Textures:
		return footprint.Texture
	case ir.TensorMaps:
		return footprint.TensorCopy
	case ir.Devices:
		return footprint.SystemScope
	case ir.Grids:
		return footprint.DependentLaunch
	}
	switch in.Op {
	case ir.Call:
		return c.call(in, depth)
	case ir.Fence:
		if in.Scope == ir.SystemScope {
			return footprint.SystemScope
		}
	case ir.Load, ir.Store, ir.Atomic:
		if in.Scope == ir.SystemScope && in.Effect&ir.Orders != 0 && in.Order != ir.Volatile {
			return footprint.SystemScope
		}
	case ir.Other:
		if in.Effect&(ir.AnyRead|ir.AnyWrite) != 0 {
			return footprint.UnknownInstruction
		}
	}
	return footprint.NoCause
}

// maxDepth bounds calls in calls.
const maxDepth = 16

// call is the effect of a call. A function that touches nothing but its own variables and
// parameters has none.
func (c *callees) call(in *ir.Inst, depth int) footprint.Cause {
	if len(in.Args) == 0 || in.Args[0].Kind != ir.Symbol {
		return footprint.UnknownCall
	}
	return c.named(in.Args[0].Name, depth)
}

// named is the effect of calling a function.
func (c *callees) named(name string, depth int) footprint.Cause {
	switch {
	case name == "vprintf" || name == "malloc" || name == "free" || name == "__assertfail":
		return footprint.HostCall
	case strings.HasPrefix(name, "cudaLaunchDevice") || strings.HasPrefix(name, "cudaGetParameterBuffer") ||
		strings.HasPrefix(name, "cudaGraphLaunch") || strings.HasPrefix(name, "cudaDeviceSynchronize"):
		return footprint.DeviceLaunch
	}
	if why, ok := c.known[name]; ok {
		return why
	}
	f := c.funcs[name]
	if f == nil || depth > maxDepth {
		return footprint.UnknownCall
	}
	c.known[name] = footprint.UnknownCall // if it calls itself
	if strings.HasPrefix(name, "__internal_") {
		c.known[name] = c.library(name, f)
		return c.known[name]
	}
	why := footprint.NoCause
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			if e := c.effect(in, depth+1); e != footprint.NoCause {
				why = e
			}
			for _, m := range in.Mem {
				if (m.Space == ir.Global || m.Space == ir.Generic) && in.Op != ir.Prefetch && (m.Read || m.Write) {
					why = footprint.UnknownCall
				}
			}
			if in.Op == ir.Atomic && why == footprint.NoCause {
				why = footprint.UnknownCall
			}
		}
	}
	c.known[name] = why
	return why
}

// library judges a function of the compiler's mathematical library. Such functions may also read tables
// of the module, which then count as read whole; their indices are trusted.
func (c *callees) library(name string, f *ir.Func) footprint.Cause {
	f = ir.Clone(f) // others inline it
	c.cut(f)
	if err := ir.Analyse(f, false); err != nil {
		return footprint.UnknownCall
	}
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			if in.Op == ir.Call || c.effect(in, maxDepth) != footprint.NoCause {
				return footprint.UnknownCall
			}
		}
	}
	vs := build(f, [3]int64{1023, 1023, 63})
	for _, a := range newAccesses(vs).collect() {
		if a.kind != footprint.IsRead || a.f.sym == 0 || vs.symbols[a.f.sym-1].size == 0 {
			return footprint.UnknownCall
		}
		c.tables[name] = append(c.tables[name], vs.symbols[a.f.sym-1])
	}
	return footprint.NoCause
}

// tableReads are the reads of tables by library functions that the kernel calls.
func (vs *values) tableReads(calls *callees) []*access {
	var list []*access
	for _, b := range vs.f.Blocks {
		for _, in := range b.Insts {
			if in.Op != ir.Call || len(in.Args) == 0 || in.Args[0].Kind != ir.Symbol {
				continue
			}
			for _, s := range calls.tables[in.Args[0].Name] {
				i, ok := vs.symOf[s.name]
				if !ok {
					i = int64(len(vs.symbols))
					vs.symOf[s.name] = i
					vs.symbols = append(vs.symbols, s)
				}
				f := vs.form(linear{c: vs.num(0), sym: int32(i) + 1})
				list = append(list, &access{kind: footprint.IsRead, f: f, bytes: int64(s.size),
					facts: vs.facts[b.Index], block: b, pos: in.Pos})
			}
		}
	}
	return list
}

// An atomicUpdate is what atomic operations do: equal ones may come in any order.
type atomicUpdate struct {
	what ir.Update
	of   ir.Type
}

// atomic says what an atomic operation does to memory.
func (ac *accesses) atomic(in *ir.Inst) (footprint.AccessKind, atomicUpdate) {
	used := slices.ContainsFunc(in.Defs, func(d ir.ValID) bool { return d != ir.None && ac.used[d] })
	if used {
		return footprint.IsUpdate, atomicUpdate{}
	}
	switch in.Update {
	case ir.Least, ir.Greatest, ir.Conjunction, ir.Disjunction:
		return footprint.IsSettle, atomicUpdate{in.Update, in.Type}
	case ir.Exchange:
		return footprint.IsWrite, atomicUpdate{what: ir.Exchange}
	}
	return footprint.IsUpdate, atomicUpdate{}
}

// spins finds a loop that may wait for memory: whether it goes on depends on an ordered or atomic
// read in it. It returns the line of the read; 0 if there is none.
func spins(f *ir.Func) int {
	depends := map[ir.ValID]*ir.Inst{} // values that come from such a read
	for range 4 {                      // often enough for values that go round a loop or two
		grown := false
		for _, b := range f.Blocks {
			for _, in := range b.Insts {
				from := source(in, depends)
				if from == nil {
					continue
				}
				for _, d := range in.Defs {
					if d != ir.None && depends[d] == nil {
						depends[d] = from
						grown = true
					}
				}
			}
		}
		if !grown {
			break
		}
	}
	where := map[*ir.Inst]*ir.Block{}
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			where[in] = b
		}
	}
	for _, l := range f.Loops.Loops {
		for _, e := range l.Exits {
			end := e.Block.End()
			if end == nil || end.Guard.Kind != ir.Value {
				continue
			}
			if from := depends[end.Guard.Val]; from != nil && f.Loops.Contains(l, where[from]) {
				return max(1, from.Pos)
			}
		}
	}
	return 0
}

// source is the ordered read that the results of an instruction depend on.
func source(in *ir.Inst, depends map[ir.ValID]*ir.Inst) *ir.Inst {
	if in.Op == ir.Atomic || in.Op == ir.Load && in.Effect&ir.Orders != 0 {
		if len(in.Mem) > 0 && in.Mem[0].Space != ir.Shared && in.Mem[0].Space != ir.Cluster {
			return in
		}
	}
	var from *ir.Inst
	in.Uses(func(x *ir.Operand) {
		if x.Kind == ir.Value && depends[x.Val] != nil {
			from = depends[x.Val]
		}
	})
	return from
}
