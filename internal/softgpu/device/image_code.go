package device

import "fmt"

type kernelImage struct {
	Handle uint64
	Name   string
	Attrs  numbers[int32]
	Kernel uint64 // of a function of a library
}

type libraryImage struct {
	Handle  uint64
	Limit   int // of registers
	Image   []byte
	Kernels []kernelImage
}

type moduleImage struct {
	Handle, Cx, Lib, Data uint64 // Data: address, or 0
	Limit                 int    // of registers
	Image                 []byte
	Functions             []kernelImage
}

type linkImage struct {
	Handle uint64
	Limit  int // of registers
	Inputs []linkInput
}

func (m *imager) code() {
	p, img := m.p, m.img
	for _, x := range all[*library](p) {
		li := libraryImage{Handle: x.handle, Limit: x.v.code.limit, Image: x.v.image}
		for _, name := range sortedNames(x.v.kernels) {
			k := x.v.kernels[name]
			li.Kernels = append(li.Kernels, kernelImage{k.handle, name, k.attrs, 0})
		}
		img.Libraries = append(img.Libraries, li)
	}
	for _, x := range all[*module](p) {
		mi := moduleImage{Handle: x.handle, Cx: x.v.cx.handle, Limit: x.v.code.limit, Image: x.v.image}
		if x.v.lib != nil {
			mi.Lib = x.v.lib.handle
		}
		if x.v.data != nil {
			mi.Data = x.v.data.va
		}
		for _, name := range sortedNames(x.v.functions) {
			f := x.v.functions[name]
			ki := kernelImage{f.handle, name, f.attrs, 0}
			if f.kernel != nil {
				ki.Kernel = f.kernel.handle
			}
			mi.Functions = append(mi.Functions, ki)
		}
		img.Modules = append(img.Modules, mi)
	}
	for _, x := range all[*link](p) {
		img.Links = append(img.Links, linkImage{x.handle, x.v.limit, x.v.inputs})
	}
}

func (m *restorer) code() error {
	p := m.p
	for _, li := range m.img.Libraries {
		cd, _, err := p.srv.translate(li.Image, li.Limit)
		if err != nil {
			return fmt.Errorf("library %#x: %w: %w", li.Handle, errBadImage, err)
		}
		l := &library{handle: li.Handle, image: li.Image, code: cd, modules: make(map[*deviceContext]*module),
			kernels: make(map[string]*kernel)}
		if err := m.put(li.Handle, l); err != nil {
			return err
		}
		for _, ki := range li.Kernels {
			if _, ok := cd.kernels[ki.Name]; !ok {
				return bad("kernel %q", ki.Name)
			}
			k := &kernel{handle: ki.Handle, lib: l, name: ki.Name, attrs: attributes(ki.Attrs)}
			if err := m.put(ki.Handle, k); err != nil {
				return err
			}
			l.kernels[ki.Name] = k
		}
	}
	for _, li := range m.img.Links {
		l := &link{handle: li.Handle, limit: li.Limit, inputs: li.Inputs}
		for _, in := range li.Inputs {
			l.bytes += len(in.Text)
		}
		if err := m.put(li.Handle, l); err != nil {
			return err
		}
	}
	used := make(map[*allocation]bool) // as data of a module
	for _, mi := range m.img.Modules {
		if err := m.module(&mi, used); err != nil {
			return err
		}
	}
	return nil
}

func (m *restorer) module(mi *moduleImage, used map[*allocation]bool) error {
	p := m.p
	cx, err := m.context(mi.Cx)
	if err != nil {
		return err
	}
	mod := &module{handle: mi.Handle, cx: cx, image: mi.Image, functions: make(map[string]*function)}
	if mi.Lib != 0 {
		l, ok := get[*library](p, mi.Lib)
		if !ok || l.modules[cx] != nil {
			return bad("library %#x", mi.Lib)
		}
		mod.lib, mod.code = l, l.code
		l.modules[cx] = mod
	} else if mod.code, _, err = p.srv.translate(mi.Image, mi.Limit); err != nil {
		return fmt.Errorf("module %#x: %w: %w", mi.Handle, errBadImage, err)
	}
	if n := mod.code.sm.DataSize(); n > 0 {
		al := p.allocs.find(mi.Data)
		if al == nil || al.va != mi.Data || al.kind != allocModule || al.size < n || used[al] {
			return bad("data of module %#x", mi.Handle)
		}
		mod.data, used[al] = al, true
	}
	// The data are as the program left them, not as the module initialises them.
	mod.inst = mod.code.sm.Attach(p.space, mi.Data)
	if err := m.put(mi.Handle, mod); err != nil {
		return err
	}
	for _, fi := range mi.Functions {
		info, ok := mod.code.kernels[fi.Name]
		if !ok {
			return bad("function %q", fi.Name)
		}
		f := &function{handle: fi.Handle, mod: mod, name: fi.Name, info: info, attrs: attributes(fi.Attrs)}
		f.kernel, _ = get[*kernel](p, fi.Kernel)
		if err := m.put(fi.Handle, f); err != nil {
			return err
		}
		mod.functions[fi.Name] = f
	}
	return nil
}

func attributes(m map[uint64]int32) map[uint64]int32 {
	if m == nil {
		return make(map[uint64]int32)
	}
	return m
}
