package fromptx

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"holdfast/internal/ir"
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// Module builds the functions of a module that have a body, in source order. One that cannot be built has an error, a
// *ptx.Error.
func Module(m *ptx.Module) *ir.Module {
	out := &ir.Module{NoReturn: map[string]bool{}}
	var inner map[string]bool
	out.Vars, inner = variableNames(m)
	out.Shadowed = map[string]bool{}
	for name := range inner {
		if out.Vars[name] {
			out.Shadowed[name] = true
		}
	}
	top := &scope{vars: map[string]*ptx.Var{}}
	funcs := map[string]bool{}
	for _, d := range m.Decls {
		switch d := d.(type) {
		case *ptx.Var:
			top.vars[d.Name] = d
		case *ptx.Func:
			funcs[d.Name] = true
			if d.NoReturn {
				out.NoReturn[d.Name] = true
			}
		case *ptx.Alias:
			funcs[d.Name] = true
		}
	}
	specials := map[string]*ir.Register{}
	for _, d := range m.Decls {
		fn, ok := d.(*ptx.Func)
		if !ok || fn.Body == nil {
			continue
		}
		b := &builder{m: m, fn: fn, top: top, funcs: funcs, f: newFunc(fn), regs: map[register]ir.ValID{},
			vars:  map[*ptx.Var]string{},
			names: map[string]int{}, params: map[string]bool{}, specials: specials, carry: ir.None}
		f, err := b.build()
		if err != nil {
			f = newFunc(fn)
			f.Err = err
		}
		out.Funcs = append(out.Funcs, f)
	}
	return out
}

func newFunc(fn *ptx.Func) *ir.Func {
	return &ir.Func{Name: fn.Name, Kernel: fn.Entry, Pos: fn.Pos.Line, Limits: limits(fn)}
}

// limits reads what a kernel says of its launches.
func limits(fn *ptx.Func) ir.Limits {
	l := ir.Limits{MaxThread: [3]int64{1023, 1023, 63}}
	for _, d := range fn.Perf {
		var n [3]int64
		for i := range n {
			n[i] = 1
			if i < len(d.Args) {
				x, err := strconv.ParseInt(d.Args[i], 0, 32)
				if err != nil || x <= 0 {
					x = 1024
				}
				n[i] = x
			}
		}
		switch d.Name {
		case ".maxntid":
			for i := range n {
				l.MaxThread[i] = min(l.MaxThread[i], n[0]*n[1]*n[2]-1)
			}
		case ".reqntid":
			for i := range n {
				l.MaxThread[i] = min(l.MaxThread[i], n[i]-1)
			}
		case ".reqnctapercluster":
			for i := range n {
				l.Cluster[i] = uint32(n[i])
			}
		}
	}
	return l
}

// A scope is the names of a module, a function or a block.
type scope struct {
	outer  *scope
	vars   map[string]*ptx.Var // register sets by prefix
	labels map[string]int      // index of the next instruction
	tables map[string][]string
}

// A register is a variable, a member of a set, or a component of either.
type register struct {
	v     *ptx.Var
	index int
	comp  int
}

// A placed instruction is one with the scope it stands in.
type placed struct {
	in    *ptx.Inst
	scope *scope
}

type builder struct {
	m      *ptx.Module
	fn     *ptx.Func
	top    *scope
	funcs  map[string]bool
	f      *ir.Func
	insts  []placed
	regs   map[register]ir.ValID
	vars   map[*ptx.Var]string // names of variables with an address
	names  map[string]int      // how often a name was given
	params map[string]bool     // of the function, in memory

	specials map[string]*ir.Register // of the module
	carry    ir.ValID
	scope    *scope // of the instruction in hand
	pos      ptx.Pos
	err      error
	arcs     int

	starts []*ir.Block // of instructions that begin a block; one more for the end
	out    *ir.Builder
}

func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = &ptx.Error{File: b.m.File, Pos: b.pos, Msg: fmt.Sprintf(format, args...)}
	}
}

func (b *builder) build() (*ir.Func, error) {
	outer := &scope{outer: b.top, vars: map[string]*ptx.Var{}}
	b.out = ir.NewBuilder(b.f)
	args := &ir.Inst{Op: ir.Other, Name: "arguments"}
	off := 0
	for _, v := range b.fn.Params {
		outer.vars[v.Name] = v
		if v.Space == ptx.SpaceReg {
			args.Defs = append(args.Defs, b.components(register{v, -1, -1})...)
			continue
		}
		size, align := layout(v)
		off = (off + align - 1) / align * align
		b.vars[v] = v.Name
		b.names[v.Name] = 1
		b.params[v.Name] = true
		b.f.Vars = append(b.f.Vars, ir.Var{Name: cmp.Or(v.Name, "_"), Space: ir.Param, Off: off, Size: size,
			Align: align, Param: true})
		off += size
	}
	for _, v := range b.fn.Ret {
		outer.vars[v.Name] = v
		if v.Space != ptx.SpaceReg && b.names[v.Name] == 0 {
			b.vars[v] = v.Name
			b.names[v.Name] = 1
			size, align := layout(v)
			b.f.Vars = append(b.f.Vars, ir.Var{Name: cmp.Or(v.Name, "_"), Space: space(v.Space), Size: size,
				Align: align, Result: true})
		}
	}
	if len(args.Defs) > 0 {
		b.out.Add(args)
	}
	b.flatten(b.fn.Body, outer)
	b.divide()
	for i, p := range b.insts {
		if s := b.starts[i]; s != nil {
			b.out.Enter(s)
		}
		b.pos, b.scope = p.in.Pos, p.scope
		b.inst(i, p.in)
		if b.err != nil {
			return nil, b.err
		}
	}
	if s := b.starts[len(b.insts)]; s != nil {
		b.out.Enter(s)
	}
	if b.out.Here() != nil {
		b.pos, b.scope = b.fn.Body.End, outer
		b.add(b.returned(&ir.Inst{Op: ir.Return}))
	}
	if _, err := b.out.Done(); err != nil {
		b.fail("%v", err)
	}
	return b.f, b.err
}

// layout is the size and alignment of a variable in bytes. Sizes that cannot be are left
// to whoever executes the code.
func layout(v *ptx.Var) (size, align int) {
	elem := max(8, isa.Bits(v.Type)) / 8
	if v.Vec > 1 {
		elem *= v.Vec
	}
	size = elem
	for _, n := range v.Dims {
		if n < 0 || n > 0 && size > math.MaxInt32/n {
			n = 0
		}
		size *= n
	}
	if v.Count > 0 {
		size *= v.Count
	}
	align = elem
	if v.Align > 0 && v.Align <= 1<<20 {
		align = v.Align
	}
	return size, align
}

// flatten lists the instructions of a block and notes what labels mark.
func (b *builder) flatten(blk *ptx.Block, outer *scope) {
	s := &scope{outer: outer, vars: map[string]*ptx.Var{}, labels: map[string]int{}, tables: map[string][]string{}}
	for _, st := range blk.Stmts {
		switch st := st.(type) {
		case *ptx.Label:
			s.labels[st.Name] = len(b.insts)
		case *ptx.BranchTargets:
			s.tables[st.Name] = st.Labels
		case *ptx.VarStmt:
			for _, v := range st.Vars {
				s.vars[v.Name] = v
			}
		case *ptx.Inst:
			b.insts = append(b.insts, placed{st, s})
		case *ptx.Block:
			b.flatten(st, s)
		}
	}
}

// add appends an instruction to the block in hand. After the end of a block comes code
// that nothing reaches until a label.
func (b *builder) add(in *ir.Inst) {
	in.Pos = b.pos.Line
	b.out.Add(in)
	if err := b.out.Err(); err != nil {
		b.fail("%v", err)
	}
}

// returned adds the results of the function to a return: registers are read.
func (b *builder) returned(in *ir.Inst) *ir.Inst {
	for _, v := range b.fn.Ret {
		if v.Space == ptx.SpaceReg {
			for _, id := range b.components(register{v, -1, -1}) {
				in.Args = append(in.Args, ir.Of(id))
			}
		}
	}
	return in
}

func (b *builder) guard(g *ptx.Guard) ir.Operand {
	if g == nil {
		return ir.Operand{}
	}
	r, ok := b.register(g.Reg)
	if !ok {
		b.fail("%s is no register", g.Reg)
		return ir.Operand{}
	}
	x := ir.Of(b.regOf(r))
	if b.f.Vals[x.Val].Type.Kind != ir.Pred {
		b.fail("the guard %s is no predicate", g.Reg)
	}
	if g.Not {
		x.Mod = ir.Complement
	}
	return x
}

// variableNames are the names of the variables of a module, and of those in functions.
func variableNames(m *ptx.Module) (module, inner map[string]bool) {
	module, inner = map[string]bool{}, map[string]bool{}
	var block func(*ptx.Block)
	block = func(b *ptx.Block) {
		for _, st := range b.Stmts {
			switch st := st.(type) {
			case *ptx.VarStmt:
				for _, v := range st.Vars {
					if v.Space != ptx.SpaceReg {
						inner[v.Name] = true
					}
				}
			case *ptx.Block:
				block(st)
			}
		}
	}
	for _, d := range m.Decls {
		switch d := d.(type) {
		case *ptx.Var:
			module[d.Name] = true
			for i := range min(d.Count, 1<<10) {
				module[fmt.Sprint(d.Name, i)] = true
			}
		case *ptx.Func:
			for _, v := range append(d.Params[:len(d.Params):len(d.Params)], d.Ret...) {
				inner[v.Name] = true
			}
			if d.Body != nil {
				block(d.Body)
			}
		}
	}
	return module, inner
}
