package footprint

import (
	"strings"

	"holdfast/internal/ir"
	"holdfast/ptx"
)

// callees are the functions of a module, and what calling them does.
type callees struct {
	funcs    map[string]*ir.Func
	noReturn map[string]bool
	known    map[string]Cause
	tables   map[string][]symbol // variables that functions of the mathematical library read
	inliner  *ir.Inliner
}

func newCallees(m *ptx.Module, funcs map[string]*ir.Func) *callees {
	c := &callees{funcs: funcs, noReturn: map[string]bool{"__assertfail": true}, known: map[string]Cause{}, tables: map[string][]symbol{}}
	for _, d := range m.Decls {
		if fn, ok := d.(*ptx.Func); ok && fn.NoReturn {
			c.noReturn[fn.Name] = true
		}
	}
	return c
}

// cut ends blocks where a function is called that does not return: the launch fails there. It is
// for functions that no pass has run on.
func (c *callees) cut(f *ir.Func) {
	for _, b := range f.Blocks {
		for i, in := range b.Insts {
			if in.Op != ir.Call || in.Guarded() || len(in.Args) == 0 || in.Args[0].Kind != ir.Symbol || !c.noReturn[in.Args[0].Name] {
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
func (s *Summary) effects(f *ir.Func, calls *callees) {
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			if c := calls.effect(in, 0); c != NoCause {
				s.refuse(c, in.Pos)
				if c == UnknownCall || c == UnknownInstruction || c == TensorCopy || c == Texture || c == HostCall || c == DeviceLaunch {
					s.guessReads, s.guessWrites = true, true
				}
			}
		}
	}
	if pos := spins(f); pos != 0 {
		s.refuse(Spin, pos)
	}
}

// specials that are not the same if the launch is repeated.
var unrepeatable = map[string]Cause{"clock": Clock, "clock_hi": Clock, "clock64": Clock, "globaltimer": Clock, "globaltimer_lo": Clock,
	"globaltimer_hi": Clock, "smid": Clock, "nsmid": Clock, "warpid": Clock, "nwarpid": Clock, "gridid": Clock}

// effect is why an instruction makes every instance unknown; NoCause if it does not.
func (c *callees) effect(in *ir.Inst, depth int) Cause {
	cause := NoCause
	in.Uses(func(x *ir.Operand) {
		if x.Kind != ir.Special {
			return
		}
		if why := unrepeatable[x.Name]; why != NoCause {
			cause = why
		}
		if strings.HasPrefix(x.Name, "envreg") {
			cause = GridSync
		}
		if strings.HasPrefix(x.Name, "pm") {
			cause = Clock
		}
	})
	if cause != NoCause {
		return cause
	}
	name := in.Name
	system := strings.Contains(name, ".sys")
	switch in.Op {
	case ir.Call:
		return c.call(in, depth)
	case ir.Prefetch:
		if strings.HasPrefix(name, "discard") {
			return UnknownInstruction // what is discarded is lost
		}
	case ir.Fence:
		if system {
			return SystemScope
		}
	case ir.Load, ir.Store, ir.Atomic:
		if strings.HasPrefix(name, "multimem") || system && in.Effect&ir.Orders != 0 && !strings.Contains(name, "volatile") {
			return SystemScope
		}
	case ir.Other:
		return otherEffect(in)
	}
	return NoCause
}

// otherEffect judges instructions by their names: package ir knows only that they may touch
// anything.
func otherEffect(in *ir.Inst) Cause {
	name := in.Name
	has := func(p ...string) bool {
		for _, p := range p {
			if strings.HasPrefix(name, p) {
				return true
			}
		}
		return false
	}
	switch {
	case name == "arguments":
		return NoCause
	case has("griddepcontrol"):
		return DependentLaunch
	case has("tex.", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"):
		return Texture
	case has("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "tensormap."):
		return TensorCopy
	case has("multimem."):
		return SystemScope
	case has("wgmma.", "mbarrier.", "nanosleep", "setmaxnreg", "brkpt", "pmevent", "stacksave", "stackrestore", "alloca", "elect"):
		return NoCause // nothing in global memory
	case has("cp.async.mbarrier", "cp.async.bulk.commit", "cp.async.bulk.wait", "cp.async.bulk.prefetch"):
		return NoCause
	case has("wmma.load", "wmma.store"):
		return NoCause // accesses
	case has("cp.async.bulk.shared", "cp.async.bulk.global", "cp.reduce.async.bulk.global", "cp.reduce.async.bulk.shared"):
		return NoCause // accesses, too
	case in.Effect&(ir.AnyRead|ir.AnyWrite) == 0:
		return NoCause
	}
	for i := range in.Mem {
		if sp := in.Mem[i].Space; sp != ir.Shared && sp != ir.Cluster && sp != ir.Local {
			return UnknownInstruction
		}
	}
	if len(in.Mem) > 0 {
		return NoCause
	}
	return UnknownInstruction
}

// maxDepth bounds calls in calls.
const maxDepth = 16

// call is the effect of a call. A function that touches nothing but its own variables and
// parameters has none.
func (c *callees) call(in *ir.Inst, depth int) Cause {
	if len(in.Args) == 0 || in.Args[0].Kind != ir.Symbol {
		return UnknownCall
	}
	return c.named(in.Args[0].Name, depth)
}

// named is the effect of calling a function.
func (c *callees) named(name string, depth int) Cause {
	switch {
	case name == "vprintf" || name == "malloc" || name == "free" || name == "__assertfail":
		return HostCall
	case strings.HasPrefix(name, "cudaLaunchDevice") || strings.HasPrefix(name, "cudaGetParameterBuffer") || strings.HasPrefix(name, "cudaGraphLaunch") || strings.HasPrefix(name, "cudaDeviceSynchronize"):
		return DeviceLaunch
	}
	if why, ok := c.known[name]; ok {
		return why
	}
	f := c.funcs[name]
	if f == nil || depth > maxDepth {
		return UnknownCall
	}
	c.known[name] = UnknownCall // if it calls itself
	if strings.HasPrefix(name, "__internal_") {
		c.known[name] = c.library(name, f)
		return c.known[name]
	}
	why := NoCause
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			if e := c.effect(in, depth+1); e != NoCause {
				why = e
			}
			for _, m := range in.Mem {
				if (m.Space == ir.Global || m.Space == ir.Generic) && in.Op != ir.Prefetch && (m.Read || m.Write) {
					why = UnknownCall
				}
			}
			if in.Op == ir.Atomic && why == NoCause {
				why = UnknownCall
			}
		}
	}
	c.known[name] = why
	return why
}

// library judges a function of the compiler's mathematical library. Such functions may also read tables
// of the module, which then count as read whole; their indices are trusted.
func (c *callees) library(name string, f *ir.Func) Cause {
	f = ir.Clone(f) // others inline it
	c.cut(f)
	if err := ir.Analyse(f, false); err != nil {
		return UnknownCall
	}
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			if in.Op == ir.Call || c.effect(in, maxDepth) != NoCause {
				return UnknownCall
			}
		}
	}
	k := build(f, [3]int64{1023, 1023, 63})
	for _, a := range k.collect() {
		if a.kind != isRead || a.f.sym == 0 || k.symbols[a.f.sym-1].size == 0 {
			return UnknownCall
		}
		c.tables[name] = append(c.tables[name], k.symbols[a.f.sym-1])
	}
	return NoCause
}

// tableReads are the reads of tables by library functions that the kernel calls.
func (k *kernel) tableReads(calls *callees) []*access {
	var list []*access
	for _, b := range k.f.Blocks {
		for _, in := range b.Insts {
			if in.Op != ir.Call || len(in.Args) == 0 || in.Args[0].Kind != ir.Symbol {
				continue
			}
			for _, s := range calls.tables[in.Args[0].Name] {
				i, ok := k.symOf[s.name]
				if !ok {
					i = int64(len(k.symbols))
					k.symOf[s.name] = i
					k.symbols = append(k.symbols, s)
				}
				f := k.form(linear{c: k.num(0), sym: int32(i) + 1})
				list = append(list, &access{kind: isRead, f: f, bytes: int64(s.size), facts: k.facts[b.Index], block: b, pos: in.Pos})
			}
		}
	}
	return list
}

// atomic says what an atomic operation does to memory.
func (k *kernel) atomic(in *ir.Inst) (akind, string) {
	part := strings.Split(in.Name, ".")
	used := false
	for _, d := range in.Defs {
		used = used || d != ir.None && k.used[d]
	}
	if used {
		return isUpdate, ""
	}
	for _, p := range part[1:] {
		switch p {
		case "min", "max", "and", "or":
			return isSettle, p + "." + part[len(part)-1]
		case "exch":
			return isWrite, "exch"
		}
	}
	return isUpdate, ""
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
