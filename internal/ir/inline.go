package ir

import (
	"fmt"
	"slices"
)

// Clone is a copy of a function that no pass has run on.
func Clone(f *Func) *Func {
	n := &Func{Name: f.Name, Kernel: f.Kernel, Pos: f.Pos, Limits: f.Limits, Vars: slices.Clone(f.Vars),
		Vals: slices.Clone(f.Vals)}
	n.Blocks = cloneBlocks(f)
	return n
}

// cloneBlocks copies blocks, arcs and instructions.
func cloneBlocks(f *Func) []*Block {
	list := make([]*Block, len(f.Blocks))
	at := make(map[*Block]*Block, len(f.Blocks))
	for i, b := range f.Blocks {
		list[i] = &Block{Index: i}
		at[b] = list[i]
	}
	for i, b := range f.Blocks {
		n := list[i]
		n.Insts = make([]*Inst, len(b.Insts))
		for k, in := range b.Insts {
			n.Insts[k] = cloneInst(in)
		}
		for _, e := range b.Succs {
			n.Succs = append(n.Succs, Edge{at[e.Block], e.Index})
		}
		for _, e := range b.Preds {
			n.Preds = append(n.Preds, Edge{at[e.Block], e.Index})
		}
	}
	return list
}

func cloneInst(in *Inst) *Inst {
	n := *in
	n.Defs, n.Else, n.Args, n.Mem = slices.Clone(in.Defs), slices.Clone(in.Else), slices.Clone(in.Args),
		slices.Clone(in.Mem)
	return &n
}

// An Inliner puts the code of functions where they are called. It works on functions before the
// first pass. What it cannot put in place stays a call: recursion, calls through pointers, arguments that
// are no variables in the space param, more instructions than its bounds allow.
//
// Between call and callee, variables are shared: a parameter of the callee becomes the variable that the caller
// has filled for it. Every call has registers and local variables of its own; an instruction
// named "enter" writes those that might be read before they are written, so that nothing is seen of
// what an earlier execution of the same call has left in them, and one named "leave" does so
// for the arguments behind the call.
type Inliner struct {
	// Callee is the function of this name, which stays as it is; nil if it is not to be inlined.
	Callee func(name string) *Func
	// Module says that a variable belongs to the module, so that a name means the same one in all functions.
	Module func(name string) bool
	// Func and Total bound what is copied (instructions, values, variables) into one function, and by this Inliner.
	Func, Total int

	done   map[string]*Func // callees with their own calls inlined; nil: being made, or not to be had
	serial int
}

// Inline inlines what is called in f. It reports how many calls it has replaced.
func (n *Inliner) Inline(f *Func) int {
	if n.done == nil {
		n.done = map[string]*Func{}
	}
	return n.inline(f, 0)
}

// maxNesting bounds calls in calls.
const maxNesting = 16

func (n *Inliner) inline(f *Func, depth int) int {
	count, room := 0, n.Func
	inlined := map[*Block]bool{}
	have := map[string]Var{}
	for _, v := range f.Vars {
		have[v.Name] = v
	}
	for i := 0; i < len(f.Blocks); i++ { // what follows a call becomes a block at the end
		b := f.Blocks[i]
		if inlined[b] {
			continue
		}
		for k, in := range b.Insts {
			if in.Op != Call || len(in.Args) != 1 || len(in.Defs) != 0 || in.Args[0].Kind != Symbol ||
				in.Args[0].Bits != 0 {
				continue
			}
			g := n.callee(in.Args[0].Name, depth)
			if g == nil {
				continue
			}
			size := g.size()
			if size > room || size > n.Total {
				continue
			}
			vars, ok := n.variables(f, have, g, in)
			if !ok {
				continue
			}
			room -= size
			n.Total -= size
			count++
			for _, c := range splice(f, b, k, g, vars) {
				inlined[c] = true
			}
			break
		}
	}
	return count
}

// size is what there is to copy in a function.
func (f *Func) size() int {
	n := len(f.Blocks) + len(f.Vars) + len(f.Vals)
	for _, b := range f.Blocks {
		n += len(b.Insts) + len(b.Succs)
	}
	return n
}

// callee is a function with its own calls inlined.
func (n *Inliner) callee(name string, depth int) *Func {
	if g, ok := n.done[name]; ok {
		return g
	}
	if depth >= maxNesting {
		return nil
	}
	g := n.Callee(name)
	if g == nil || g.SSA || g.Kernel {
		n.done[name] = nil
		return nil
	}
	n.done[name] = nil // while it is made: no recursion
	if size := g.size(); size > n.Func || size > n.Total {
		return nil
	}
	n.Total -= g.size()
	g = Clone(g)
	n.inline(g, depth+1)
	n.done[name] = g
	return g
}

// variables finds what the variables of g are called in f, where in calls g. f has those in have, and gets what is
// missing.
func (n *Inliner) variables(f *Func, have map[string]Var, g *Func, in *Inst) (map[string]string, bool) {
	var args, results []Access
	used := map[string]bool{}
	for _, m := range in.Mem {
		v, ok := have[m.Base.Name]
		if !ok || m.Base.Kind != Symbol || m.Off != 0 || m.Base.Bits != 0 || v.Space != Param || v.Param ||
			used[v.Name] {
			return nil, false
		}
		used[v.Name] = true
		if m.Write {
			results = append(results, m)
		} else {
			args = append(args, m)
		}
	}
	names := map[string]string{}
	var added []Var
	n.serial++
	for _, v := range g.Vars {
		if _, twice := names[v.Name]; twice {
			return nil, false
		}
		switch {
		case v.Param || v.Result:
			list := &args
			if v.Result {
				list = &results
			}
			if len(*list) == 0 || v.Space != Param || have[(*list)[0].Base.Name].Size != v.Size {
				return nil, false
			}
			names[v.Name] = (*list)[0].Base.Name
			*list = (*list)[1:]
			continue
		case v.Space == Local || v.Space == Param:
			if n.Module(v.Name) {
				return nil, false
			}
			names[v.Name] = fmt.Sprintf("%s.%d", v.Name, n.serial)
		case n.Module(v.Name):
			names[v.Name] = v.Name
			if _, ok := have[v.Name]; ok {
				continue
			}
		case v.Space == Shared: // all calls have the same one
			names[v.Name] = g.Name + "." + v.Name
			if _, ok := have[names[v.Name]]; ok {
				continue
			}
		default:
			return nil, false
		}
		v.Name = names[v.Name]
		if _, taken := have[v.Name]; taken {
			return nil, false
		}
		added = append(added, v)
	}
	if len(args) > 0 || len(results) > 0 || writesParams(g) {
		return nil, false
	}
	f.Vars = append(f.Vars, added...)
	for _, v := range added {
		have[v.Name] = v
	}
	return names, true
}

// writesParams reports whether a function changes its parameters, which are copies in the language and
// the caller's variables here.
func writesParams(g *Func) bool {
	param := map[string]bool{}
	for _, v := range g.Vars {
		if v.Param {
			param[v.Name] = true
		}
	}
	for _, b := range g.Blocks {
		for _, in := range b.Insts {
			for i := range in.Mem {
				if m := &in.Mem[i]; m.Base.Kind == Symbol && param[m.Base.Name] && in.Op != Load {
					return true
				}
			}
		}
	}
	return false
}

// splice replaces instruction k of block b by the code of g. It gives the blocks of that code.
func splice(f *Func, b *Block, k int, g *Func, names map[string]string) []*Block {
	call := b.Insts[k]
	first := ValID(len(f.Vals))
	f.Vals = append(f.Vals, g.Vals...)
	body := cloneBlocks(g)
	rest := &Block{Insts: append([]*Inst{leave(call, names, g)}, b.Insts[k+1:]...), Succs: b.Succs}
	for i, e := range rest.Succs {
		e.Block.Preds[e.Index] = Edge{rest, i}
	}
	b.Insts, b.Succs = b.Insts[:k:k], nil
	if call.Guarded() {
		b.Insts = append(b.Insts, &Inst{Op: Branch, Guard: call.Guard, Pos: call.Pos})
	}
	Connect(b, body[0])
	if call.Guarded() {
		Connect(b, rest)
	}
	for _, c := range body {
		for _, in := range c.Insts {
			for i, d := range in.Defs {
				if d != None {
					in.Defs[i] += first
				}
			}
			in.Uses(func(x *Operand) {
				switch x.Kind {
				case Value:
					x.Val += first
				case Symbol:
					if name, ok := names[x.Name]; ok {
						x.Name = name
					}
				}
			})
		}
		returns(c, rest)
	}
	body[0].Insts = append([]*Inst{enter(g, first, names, call.Pos)}, body[0].Insts...)
	for _, c := range append(body, rest) {
		c.Index = len(f.Blocks)
		f.Blocks = append(f.Blocks, c)
	}
	return body
}

// returns makes the return at the end of a block a branch.
func returns(c, rest *Block) {
	end := c.End()
	if end == nil || end.Op != Return {
		return
	}
	if !end.Guarded() {
		c.Insts = c.Insts[:len(c.Insts)-1]
		Connect(c, rest)
		return
	}
	c.Insts[len(c.Insts)-1] = &Inst{Op: Branch, Guard: end.Guard, Name: end.Name, Pos: end.Pos}
	c.Succs = append([]Edge{{rest, len(rest.Preds)}}, c.Succs...)
	rest.Preds = append(rest.Preds, Edge{c, 0})
	s := c.Succs[1]
	s.Block.Preds[s.Index] = Edge{c, 1}
}

// enter writes what a callee may read before it has written it.
func enter(g *Func, first ValID, names map[string]string, pos int) *Inst {
	in := &Inst{Op: Other, Name: "enter", Pos: pos}
	wrote := make([]int, len(g.Vals)) // the last block that wrote it, plus one
	early := make([]bool, len(g.Vals))
	for i, b := range g.Blocks {
		for _, x := range b.Insts {
			x.Uses(func(o *Operand) {
				if o.Kind == Value && wrote[o.Val] != i+1 {
					early[o.Val] = true
				}
			})
			for _, d := range x.Defs {
				if d == None {
					continue
				}
				if x.Guarded() && wrote[d] != i+1 {
					early[d] = true
				}
				wrote[d] = i + 1
			}
		}
	}
	for v, e := range early {
		if e {
			in.Defs = append(in.Defs, first+ValID(v))
		}
	}
	for _, v := range g.Vars {
		if v.Result || !v.Param && (v.Space == Local || v.Space == Param) {
			in.Mem = append(in.Mem, Access{Write: true, Space: v.Space,
				Base: Operand{Kind: Symbol, Name: names[v.Name]}, Bytes: v.Size})
		}
	}
	return in
}

// leave writes the arguments: they are not those of the next call.
func leave(call *Inst, names map[string]string, g *Func) *Inst {
	in := &Inst{Op: Other, Name: "leave", Pos: call.Pos}
	for _, v := range g.Vars {
		if v.Param {
			in.Mem = append(in.Mem, Access{Write: true, Space: v.Space,
				Base: Operand{Kind: Symbol, Name: names[v.Name]}, Bytes: v.Size})
		}
	}
	return in
}
