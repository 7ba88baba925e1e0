package corpus

import (
	"slices"
	"sync"

	"holdfast/internal/softgpu"
	"holdfast/ptx"
)

// A Library is the modules that several machines have in common. Its zero value is empty.
type Library struct {
	mu      sync.Mutex
	modules map[string]*Module // by file
}

// A Module is a PTX file, parsed and ready to be instantiated.
type Module struct {
	Text   []byte
	Source *ptx.Module
	*softgpu.Module
}

// Module reads a module of an application.
func (lib *Library) Module(a *Application, name string) (*Module, error) {
	lib.mu.Lock()
	defer lib.mu.Unlock()
	key := a.File + "\x00" + a.Modules[name]
	if m := lib.modules[key]; m != nil {
		return m, nil
	}
	text, err := a.Source(name)
	if err != nil {
		return nil, err
	}
	source, err := ptx.Parse(a.Modules[name], text)
	if err != nil {
		return nil, err
	}
	loaded, err := softgpu.Load(source)
	if err != nil {
		return nil, err
	}
	m := &Module{text, source, loaded}
	if lib.modules == nil {
		lib.modules = map[string]*Module{}
	}
	lib.modules[key] = m
	return m, nil
}

// mallocs reports whether the module may call malloc.
func (m *Module) mallocs() bool {
	return slices.ContainsFunc(m.Source.Decls, func(d ptx.Decl) bool {
		f, ok := d.(*ptx.Func)
		return ok && f.Body == nil && f.Name == "malloc"
	})
}

// Variables is where the variables of a module lie: behind the buffers, with nothing near them.
func (a *Application) Variables(m *softgpu.Module) Range {
	lo := (a.layout().end + 2*softgpu.PageSize - 1) &^ (softgpu.PageSize - 1)
	return Range{lo, lo + m.DataSize()}
}
