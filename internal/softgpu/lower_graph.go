package softgpu

import "holdfast/ptx"

// A callGraph has the functions that a kernel may reach, and who calls whom.
type callGraph struct {
	*layout
	m           *Module
	queue       []*function // functions to translate
	edges       map[*function][]*function
	hasIndirect map[*function]bool
}

// function declares f in the program, and queues its body.
func (g *callGraph) function(f *ptx.Func) *function {
	if fn := g.p.funcs[f.Name]; fn != nil {
		return fn
	}
	fn := &function{name: f.Name, src: f}
	g.p.funcs[f.Name] = fn
	if f.Body == nil {
		if why := deviceRuntime[f.Name]; why != "" {
			g.fail(f.Pos, "%s is not supported: %s", f.Name, why)
		}
		if fn.native = nativeFunc(f.Name); fn.native == nil {
			g.fail(f.Pos, "%s is declared but not defined in this module", f.Name)
		}
		return fn
	}
	if !f.Entry {
		// The parameter memory is made now, so that callers can copy to it.
		fn.regLo = alignUp(g.p.regBytes, 64)
		g.p.regBytes = fn.regLo
		for _, v := range f.Params {
			fn.params = append(fn.params, g.paramArea(v, fn))
		}
		for _, v := range f.Ret {
			fn.rets = append(fn.rets, g.paramArea(v, fn))
		}
	}
	g.queue = append(g.queue, fn)
	return fn
}

// markRecursive finds functions that may be entered again before they return,
// and gives the others their local memory.
func (g *callGraph) markRecursive() {
	p := g.p
	// Indirect calls may reach every function whose address is taken.
	var taken []*function
	for name, fn := range p.funcs {
		if g.m.taken[name] && fn.src.Body != nil {
			taken = append(taken, fn)
		}
	}
	reach := func(from *function) map[*function]bool {
		seen := map[*function]bool{}
		var visit func(f *function)
		visit = func(f *function) {
			next := g.edges[f]
			if g.hasIndirect[f] {
				next = append(append([]*function(nil), next...), taken...)
			}
			for _, g := range next {
				if !seen[g] {
					seen[g] = true
					visit(g)
				}
			}
		}
		visit(from)
		return seen
	}
	for _, name := range g.m.order {
		fn := p.funcs[name]
		if fn == nil {
			continue
		}
		if reach(fn)[fn] {
			fn.recursive = true
			p.recursive = true
			continue
		}
		fn.localBase = alignUp(p.localStatic, 16)
		p.localStatic = alignUp(fn.localBase+fn.localBytes, 16)
	}
	for _, fn := range p.funcs {
		fn.localBytes = alignUp(fn.localBytes, 16)
	}
}
