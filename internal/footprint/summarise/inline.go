package summarise

import (
	"holdfast/internal/footprint"
	"holdfast/internal/ir"
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
func newInliner(c *callees) *ir.Inliner {
	return &ir.Inliner{
		Func: maxInlined, Total: maxInlinedModule,
		Module: func(name string) bool { return c.module.Vars[name] },
		Callee: func(name string) *ir.Func {
			f := c.funcs[name]
			if f == nil || c.noReturn[name] {
				return nil
			}
			for _, v := range f.Vars {
				if c.module.Shadowed[v.Name] {
					return nil // which one is it?
				}
			}
			switch c.named(name, 0) {
			case footprint.UnknownCall:
				return f
			case footprint.NoCause:
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
