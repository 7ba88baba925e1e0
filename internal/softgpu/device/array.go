package device

import (
	"encoding/binary"
	"math/bits"

	"holdfast/internal/softgpu"
)

// Flags of arrays (CUDA_ARRAY3D_… in cuda.h).
const (
	arrayLayered = 0x01
	arraySurface = 0x02
	arrayCubemap = 0x04
	arrayGather  = 0x08
	arrayDepth   = 0x10
	arrayColour  = 0x20
	arrayServed  = arrayLayered | arraySurface | arrayCubemap | arrayGather | arrayDepth | arrayColour
)

const (
	sizeofArrayDesc        = 24 // CUDA_ARRAY_DESCRIPTOR
	sizeofArray3DDesc      = 40 // CUDA_ARRAY3D_DESCRIPTOR
	sizeofArrayRequirement = 32 // CUDA_ARRAY_MEMORY_REQUIREMENTS
	cubemapFaces           = 6
)

// An arrayDesc is CUDA_ARRAY3D_DESCRIPTOR. A height or depth of 0 is a dimension that the array does not have; Depth
// counts the layers of a layered array.
type arrayDesc struct {
	Width, Height, Depth    uint64
	Format, Channels, Flags uint32
}

// An array is a CUarray: rows without gaps, then slices or layers, in memory of its own whose address no program
// learns.
type array struct {
	handle uint64
	cx     *deviceContext
	desc   arrayDesc
	data   *allocation
	mipmap *mipmap // whose level it is
}

// A mipmap is a CUmipmappedArray.
type mipmap struct {
	handle uint64
	cx     *deviceContext
	desc   arrayDesc
	levels []*array
}

// image is an array as kernels read it.
func (d *arrayDesc) image(address uint64) softgpu.Image {
	format := softgpu.TexelFormat(d.Format)
	m := softgpu.Image{Address: address, Width: uint32(d.Width), Height: uint32(d.Height), Format: format,
		Channels: int(d.Channels)}
	m.Pitch = d.Width * format.Size() * uint64(d.Channels)
	m.Slice = m.Pitch * max(d.Height, 1)
	if d.Flags&(arrayLayered|arrayCubemap) != 0 {
		m.Layers = uint32(d.Depth)
	} else {
		m.Depth = uint32(d.Depth)
	}
	return m
}

func (d *arrayDesc) bytes() uint64 {
	m := d.image(0)
	return m.Slice * max(d.Depth, 1)
}

// valid checks a description before memory is asked for.
func (d *arrayDesc) valid() Status {
	if d.Flags&^arrayServed != 0 || d.Format > 0xff || softgpu.TexelFormat(d.Format).Size() == 0 {
		return NotSupported // sparse and planar arrays, block compression
	}
	const most = softgpu.MaxImageWidth
	if d.Width == 0 || d.Width > most || d.Height > most || d.Depth > softgpu.MaxImageDepth {
		return InvalidValue
	}
	layered := d.Flags&arrayLayered != 0
	switch {
	case d.Flags&arrayCubemap != 0:
		if d.Width != d.Height || d.Depth == 0 || d.Depth%cubemapFaces != 0 || !layered && d.Depth != cubemapFaces {
			return InvalidValue
		}
	case layered && d.Depth == 0, !layered && d.Depth > 0 && d.Height == 0:
		return InvalidValue
	}
	m := d.image(0)
	if err := m.Check(); err != nil {
		return InvalidValue
	}
	return Success
}

// record is the C struct.
func (d *arrayDesc) record() []byte {
	b := make([]byte, sizeofArray3DDesc)
	for i, v := range []uint64{d.Width, d.Height, d.Depth} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	for i, v := range []uint32{d.Format, d.Channels, d.Flags} {
		binary.LittleEndian.PutUint32(b[24+4*i:], v)
	}
	return b
}

func readArrayDesc(b []byte) arrayDesc {
	return arrayDesc{u64(b, 0), u64(b, 8), u64(b, 16), u32(b, 24), u32(b, 28), u32(b, 32)}
}

// level is the description of one mipmap level. Layers do not shrink.
func (d arrayDesc) level(i int) arrayDesc {
	shrink := func(n uint64) uint64 {
		if n == 0 {
			return 0
		}
		return max(n>>i, 1)
	}
	d.Width, d.Height = shrink(d.Width), shrink(d.Height)
	if d.Flags&(arrayLayered|arrayCubemap) == 0 {
		d.Depth = shrink(d.Depth)
	}
	return d
}

// newArray takes memory for an array.
func (me *memory) newArray(cx *deviceContext, d arrayDesc) (*array, error) {
	a, err := me.allocate(cx, d.bytes(), allocArray)
	if err != nil {
		return nil, err
	}
	r := &array{cx: cx, desc: d, data: a}
	r.handle = me.add(r)
	return r, nil
}

func (c *call) createArray(d arrayDesc) Status {
	if st := d.valid(); st != Success {
		return st
	}
	cx := c.th.current()
	var a *array
	if st := c.fit(func() (err error) { a, err = c.p.newArray(cx, d); return }); st != Success {
		return st
	}
	return c.ret(a.handle)
}

func arrayCreate(c *call) Status {
	b := c.record(sizeofArrayDesc)
	return c.createArray(arrayDesc{Width: u64(b, 0), Height: u64(b, 8), Format: u32(b, 16), Channels: u32(b, 20)})
}

func array3DCreate(c *call) Status {
	return c.createArray(readArrayDesc(c.record(sizeofArray3DDesc)))
}

func arrayDescriptor(c *call) Status {
	d := must[*array](c, c.args[0]).desc
	if d.Depth > 0 {
		return InvalidValue
	}
	b := append(le64(d.Width), le64(d.Height)...)
	c.retBlob(append(append(b, le32(d.Format)...), le32(d.Channels)...))
	return Success
}

func array3DDescriptor(c *call) Status {
	c.retBlob(must[*array](c, c.args[0]).desc.record())
	return Success
}

func arrayPlane(c *call) Status {
	must[*array](c, c.args[0])
	return InvalidValue // no planar formats
}

func arrayRequirements(c *call) Status {
	return c.requirements(must[*array](c, c.args[0]).desc.bytes())
}

func mipmapRequirements(c *call) Status {
	var n uint64
	for _, a := range must[*mipmap](c, c.args[0]).levels {
		n += a.desc.bytes()
	}
	return c.requirements(n)
}

func (c *call) requirements(n uint64) Status {
	c.device(c.args[1])
	b := make([]byte, sizeofArrayRequirement)
	binary.LittleEndian.PutUint64(b, n)
	binary.LittleEndian.PutUint64(b[8:], slabAlign)
	c.retBlob(b)
	return Success
}

// arrayLayout is gpuwire's ARRAY_LAYOUT: copies see an array as pitched memory.
func arrayLayout(c *call) Status {
	a := must[*array](c, c.args[0])
	m := a.desc.image(a.data.va)
	return c.ret(m.Address, m.Pitch, max(a.desc.Height, 1), max(a.desc.Depth, 1))
}

// dropArrays waits for submitted work and takes arrays away.
func (c *call) dropArrays(drop func()) Status {
	if st := c.wait(c.p.lasts(nil)...); st != Success {
		return st
	}
	c.p.quiesce(drop)
	return Success
}

func (me *memory) dropArray(a *array) {
	if _, ok := me.objects[a.handle]; ok { // another thread may have been quicker
		delete(me.objects, a.handle)
		me.dropAllocation(a.data)
	}
}

func arrayDestroy(c *call) Status {
	a := must[*array](c, c.args[0])
	if a.mipmap != nil {
		return InvalidHandle
	}
	return c.dropArrays(func() { c.p.dropArray(a) })
}

func mipmapCreate(c *call) Status {
	d, n := readArrayDesc(c.record(sizeofArray3DDesc)), c.args[0]
	if st := d.valid(); st != Success {
		return st
	}
	largest := max(d.Width, d.Height)
	if d.Flags&(arrayLayered|arrayCubemap) == 0 {
		largest = max(largest, d.Depth)
	}
	n = min(n, uint64(bits.Len64(largest))) // as the driver clamps it
	if n == 0 {
		return InvalidValue
	}
	cx := c.th.current()
	m := &mipmap{cx: cx, desc: d}
	st := c.fit(func() error {
		for len(m.levels) < int(n) {
			a, err := c.p.newArray(cx, d.level(len(m.levels)))
			if err != nil {
				return err
			}
			a.mipmap = m
			m.levels = append(m.levels, a)
		}
		return nil
	})
	if st != Success {
		c.p.quiesce(func() {
			for _, a := range m.levels {
				c.p.dropArray(a)
			}
		})
		return st
	}
	m.handle = c.p.add(m)
	return c.ret(m.handle)
}

func mipmapLevel(c *call) Status {
	m := must[*mipmap](c, c.args[0])
	if c.args[1] >= uint64(len(m.levels)) {
		return InvalidValue
	}
	return c.ret(m.levels[c.args[1]].handle)
}

func mipmapDestroy(c *call) Status {
	m := must[*mipmap](c, c.args[0])
	return c.dropArrays(func() {
		delete(c.p.objects, m.handle)
		for _, a := range m.levels {
			c.p.dropArray(a)
		}
	})
}

func textureLinearWidth(c *call) Status {
	format, channels := softgpu.TexelFormat(min(c.args[0], 255)), c.args[1]
	c.device(c.args[2])
	if format.Size() == 0 || channels == 0 || channels > 4 {
		return InvalidValue
	}
	return c.ret(softgpu.MaxImageLinear)
}
