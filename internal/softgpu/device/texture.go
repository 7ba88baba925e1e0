package device

import (
	"bytes"
	"math"

	"holdfast/internal/softgpu"
)

// Structs of texture and surface objects (cuda.h, x86-64).
const (
	sizeofResourceDesc = 144
	sizeofTextureDesc  = 104
	sizeofViewDesc     = 112
)

// Kinds of resources (CUresourcetype).
const (
	resourceArray  = 0
	resourceMipmap = 1
	resourceLinear = 2
	resourcePitch  = 3
)

// Flags of CUDA_TEXTURE_DESC.
const (
	textureAsInteger  = 0x01
	textureNormalized = 0x02
	textureSRGB       = 0x10
	textureTrilinear  = 0x20 // an optimisation that is not made here
	textureServed     = textureAsInteger | textureNormalized | textureSRGB | textureTrilinear
)

// textures makes texture and surface objects known to kernels.
type textures struct{ *memory }

// A textureObject is a CUtexObject or a CUsurfObject, with the structs that made it.
type textureObject struct {
	handle             uint64
	cx                 *deviceContext
	surface            bool
	resource, sampling []byte
	view               []byte // empty: none
}

// levelsOf are the images of a resource.
func (tx textures) levelsOf(res []byte) ([]softgpu.Image, Status) {
	if u32(res, 136) != 0 {
		return nil, InvalidValue
	}
	at := u64(res, 8)
	format, channels := softgpu.TexelFormat(min(u32(res, 16), 255)), int(min(u32(res, 20), 255))
	texel := format.Size() * uint64(channels)
	switch u32(res, 0) {
	case resourceArray:
		a, ok := get[*array](tx, at)
		if !ok {
			return nil, InvalidHandle
		}
		return []softgpu.Image{a.desc.image(a.data.va)}, Success
	case resourceMipmap:
		m, ok := get[*mipmap](tx, at)
		if !ok {
			return nil, InvalidHandle
		}
		var levels []softgpu.Image
		for _, a := range m.levels {
			levels = append(levels, a.desc.image(a.data.va))
		}
		return levels, Success
	case resourceLinear:
		n := u64(res, 24)
		if texel == 0 || n < texel || n/texel > softgpu.MaxImageLinear || at%textureAlignment != 0 ||
			!tx.mapped(at, n) {
			return nil, InvalidValue
		}
		return []softgpu.Image{{Address: at, Width: uint32(n / texel), Format: format, Channels: channels,
			Linear: true}}, Success
	case resourcePitch:
		w, h, pitch := u64(res, 24), u64(res, 32), u64(res, 40)
		const most = softgpu.MaxImageWidth
		if texel == 0 || w == 0 || h == 0 || w > most || h > most || pitch > math.MaxUint32 || pitch < w*texel ||
			pitch%texturePitch != 0 ||
			at%textureAlignment != 0 || !tx.mapped(at, pitch*(h-1)+w*texel) {
			return nil, InvalidValue
		}
		return []softgpu.Image{{Address: at, Width: uint32(w), Height: uint32(h), Pitch: pitch, Format: format,
			Channels: channels}}, Success
	}
	return nil, InvalidValue
}

// viewFormats are the CUresourceViewFormat values from 1 on, three numbers of channels each.
var viewFormats = []softgpu.TexelFormat{softgpu.TexelU8, softgpu.TexelS8, softgpu.TexelU16, softgpu.TexelS16,
	softgpu.TexelU32, softgpu.TexelS32, softgpu.TexelF16, softgpu.TexelF32}

// viewOf applies a CUDA_RESOURCE_VIEW_DESC.
func viewOf(levels []softgpu.Image, view []byte) ([]softgpu.Image, Status) {
	base := &levels[0]
	first, last, layer, lastLayer := u32(view, 32), u32(view, 36), u32(view, 40), u32(view, 44)
	if base.Linear || u64(view, 8) != uint64(base.Width) || u64(view, 16) != uint64(base.Height) || first > last ||
		int(last) >= len(levels) || layer > lastLayer {
		return nil, InvalidValue
	}
	format, channels := base.Format, base.Channels
	if f := int(u32(view, 0)); f > 0 {
		if f > 3*len(viewFormats) {
			return nil, NotSupported // block compression
		}
		format, channels = viewFormats[(f-1)/3], 1<<((f-1)%3)
		if format.Size()*uint64(channels) != base.Format.Size()*uint64(base.Channels) {
			return nil, InvalidValue
		}
	}
	var out []softgpu.Image
	for _, m := range levels[first : last+1] {
		m.Format, m.Channels = format, channels
		if m.Layers > 0 {
			if lastLayer >= m.Layers {
				return nil, InvalidValue
			}
			m.Address += uint64(layer) * m.Slice
			m.Layers = lastLayer - layer + 1
		}
		out = append(out, m)
	}
	return out, Success
}

// textureOf is a texture object as kernels use it.
func (tx textures) textureOf(o *textureObject) (*softgpu.Texture, Status) {
	levels, st := tx.levelsOf(o.resource)
	if st == Success && len(o.view) > 0 {
		levels, st = viewOf(levels, o.view)
	}
	if st != Success {
		return nil, st
	}
	d := o.sampling
	flags := u32(d, 16)
	if flags&^textureServed != 0 {
		return nil, NotSupported
	}
	float := func(at int) float32 { return math.Float32frombits(u32(d, at)) }
	base := &levels[0]
	small := base.Format.Size() < 4 && base.Format != softgpu.TexelF16
	t := &softgpu.Texture{Levels: levels, Filter: u32(d, 12) != 0 && !base.Linear,
		Normalized: flags&textureNormalized != 0, ReadFloat: small && flags&textureAsInteger == 0,
		LevelFilter: u32(d, 24) != 0, LevelBias: float(28), MinLevel: float(32), MaxLevel: float(36)}
	t.SRGB = flags&textureSRGB != 0 && t.ReadFloat && base.Format == softgpu.TexelU8
	for i := range t.Mode {
		t.Mode[i] = softgpu.AddressMode(min(u32(d, 4*i), 255))
	}
	for i := range t.Border {
		t.Border[i] = float(40 + 4*i)
	}
	if len(levels) > 1 && !t.Normalized {
		return nil, InvalidValue
	}
	return t, Success
}

// surfaceOf is a surface object as kernels use it.
func (tx textures) surfaceOf(o *textureObject) (*softgpu.Image, Status) {
	a, ok := get[*array](tx, u64(o.resource, 8))
	if u32(o.resource, 0) != resourceArray || u32(o.resource, 136) != 0 {
		return nil, InvalidValue
	}
	if !ok {
		return nil, InvalidHandle
	}
	if a.desc.Flags&arraySurface == 0 {
		return nil, InvalidValue
	}
	m := a.desc.image(a.data.va)
	return &m, Success
}

// bind makes the object's handle known to kernels that are launched from now on.
func (tx textures) bind(o *textureObject) Status {
	var err error
	if o.surface {
		m, st := tx.surfaceOf(o)
		if st != Success {
			return st
		}
		err = tx.space.SetSurface(o.handle, m)
	} else {
		t, st := tx.textureOf(o)
		if st != Success {
			return st
		}
		err = tx.space.SetTexture(o.handle, t)
	}
	if err != nil {
		tx.srv.log.Warn("texture refused", "pid", tx.key.pid, "err", err)
		return InvalidValue
	}
	return Success
}

func (c *call) createTexture(o *textureObject) Status {
	o.cx = c.th.current()
	o.handle = c.p.add(o)
	if st := c.p.bind(o); st != Success {
		delete(c.p.objects, o.handle)
		return st
	}
	return c.ret(o.handle)
}

func textureCreate(c *call) Status {
	o := &textureObject{resource: bytes.Clone(c.record(sizeofResourceDesc)),
		sampling: bytes.Clone(c.record(sizeofTextureDesc))}
	if view := c.blob(); view != nil {
		if len(view) < sizeofViewDesc {
			return InvalidValue
		}
		o.view = bytes.Clone(view)
	}
	return c.createTexture(o)
}

func surfaceCreate(c *call) Status {
	return c.createTexture(&textureObject{surface: true, resource: bytes.Clone(c.record(sizeofResourceDesc))})
}

// object resolves a texture or surface object.
func (c *call) object(surface bool) *textureObject {
	o := must[*textureObject](c, c.args[0])
	if o.surface != surface {
		panic(InvalidHandle)
	}
	return o
}

// textureDestroy takes an object away once no submitted work can use it.
func textureDestroy(surface bool) func(*call) Status {
	return func(c *call) Status {
		o := c.object(surface)
		if st := c.wait(c.p.lasts(nil)...); st != Success {
			return st
		}
		c.p.unbind(o)
		return Success
	}
}

func (tx textures) unbind(o *textureObject) {
	delete(tx.objects, o.handle)
	if o.surface {
		_ = tx.space.SetSurface(o.handle, nil)
	} else {
		_ = tx.space.SetTexture(o.handle, nil)
	}
}

// textureGet answers with one of the structs that an object was made of.
func textureGet(surface bool, part func(*textureObject) []byte) func(*call) Status {
	return func(c *call) Status {
		b := part(c.object(surface))
		if len(b) == 0 {
			return InvalidValue
		}
		c.retBlob(b)
		return Success
	}
}

func (o *textureObject) resourceDesc() []byte { return o.resource }
func (o *textureObject) textureDesc() []byte  { return o.sampling }
func (o *textureObject) viewDesc() []byte     { return o.view }
