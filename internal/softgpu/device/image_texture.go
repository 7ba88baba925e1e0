package device

type arrayImage struct {
	Handle, Cx uint64
	Desc       arrayDesc
	Data       uint64 // address
}

type mipmapImage struct {
	Handle, Cx uint64
	Desc       arrayDesc
	Levels     []uint64
}

type textureImage struct {
	Handle, Cx               uint64
	Surface                  bool
	Resource, Sampling, View []byte
}

func (m *imager) textures() {
	p, img := m.p, m.img
	for _, x := range all[*array](p) {
		img.Arrays = append(img.Arrays, arrayImage{x.handle, x.v.cx.handle, x.v.desc, x.v.data.va})
	}
	for _, x := range all[*mipmap](p) {
		mi := mipmapImage{Handle: x.handle, Cx: x.v.cx.handle, Desc: x.v.desc}
		for _, a := range x.v.levels {
			mi.Levels = append(mi.Levels, a.handle)
		}
		img.Mipmaps = append(img.Mipmaps, mi)
	}
	for _, x := range all[*textureObject](p) {
		o := x.v
		img.Textures = append(img.Textures, textureImage{x.handle, o.cx.handle, o.surface, o.resource, o.sampling,
			o.view})
	}
}

func (m *restorer) textures() error {
	p := m.p
	used := make(map[*allocation]bool)
	for _, ai := range m.img.Arrays {
		cx, err := m.context(ai.Cx)
		if err != nil {
			return err
		}
		al := p.allocs.find(ai.Data)
		if ai.Desc.valid() != Success || al == nil || al.va != ai.Data || al.kind != allocArray ||
			al.size < ai.Desc.bytes() || used[al] {
			return bad("array %#x", ai.Handle)
		}
		used[al] = true
		if err := m.put(ai.Handle, &array{handle: ai.Handle, cx: cx, desc: ai.Desc, data: al}); err != nil {
			return err
		}
	}
	for _, mi := range m.img.Mipmaps {
		cx, err := m.context(mi.Cx)
		if err != nil {
			return err
		}
		mm := &mipmap{handle: mi.Handle, cx: cx, desc: mi.Desc}
		for _, h := range mi.Levels {
			a, ok := get[*array](p, h)
			if !ok || a.mipmap != nil {
				return bad("mipmapped array %#x", mi.Handle)
			}
			a.mipmap = mm
			mm.levels = append(mm.levels, a)
		}
		if len(mm.levels) == 0 {
			return bad("mipmapped array %#x", mi.Handle)
		}
		if err := m.put(mi.Handle, mm); err != nil {
			return err
		}
	}
	for _, ti := range m.img.Textures {
		cx, err := m.context(ti.Cx)
		if err != nil {
			return err
		}
		o := &textureObject{handle: ti.Handle, cx: cx, surface: ti.Surface, resource: ti.Resource,
			sampling: ti.Sampling, view: ti.View}
		if len(o.resource) < sizeofResourceDesc || !o.surface && len(o.sampling) < sizeofTextureDesc ||
			len(o.view) > 0 && len(o.view) < sizeofViewDesc {
			return bad("texture %#x", ti.Handle)
		}
		if err := m.put(ti.Handle, o); err != nil {
			return err
		}
		// An object whose memory is gone stays a name for nothing, as it was.
		_ = p.bind(o)
	}
	return nil
}
