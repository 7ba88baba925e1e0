package footprint

import (
	"fmt"

	"holdfast/internal/ir"
	"holdfast/ptx"
)

// Bounds of inlining: what is copied (instructions, values, variables) into one kernel, and in one module;
// instructions in a function that is inlined although calling it has no effect.
const (
	maxInlined       = 1 << 14
	maxInlinedModule = 1 << 18
	maxPlain         = 1 << 7
)

// newInliner makes what puts functions of a module where they are called. Functions that touch nothing but their
// own variables are only worth it if they are small.
func newInliner(m *ptx.Module, c *callees) *ir.Inliner {
	module, inner := variableNames(m)
	return &ir.Inliner{
		Func: maxInlined, Total: maxInlinedModule,
		Module: func(name string) bool { return module[name] },
		Callee: func(name string) *ir.Func {
			f := c.funcs[name]
			if f == nil || c.noReturn[name] {
				return nil
			}
			for _, v := range f.Vars {
				if module[v.Name] && inner[v.Name] {
					return nil // which one is it?
				}
			}
			switch c.named(name, 0) {
			case UnknownCall:
				return f
			case NoCause:
				n := 0
				for _, b := range f.Blocks {
					n += len(b.Insts)
				}
				if n <= maxPlain && len(c.tables[name]) == 0 {
					return f
				}
			}
			return nil
		},
	}
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
