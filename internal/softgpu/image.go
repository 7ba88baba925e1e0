package softgpu

import (
	"fmt"
	"maps"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// An Image is texels in device memory: what a CUDA array, or a linear or pitched texture
// resource, is to the executor. Rows of texels lie Pitch bytes apart, slices (of a third dimension, or
// layers) Slice bytes; a program never sees that layout of an array, so any will do.
type Image struct {
	Address uint64 // device address of the first texel, mapped in the Space
	Width   uint32 // texels
	Height  uint32 // rows; 0 = one-dimensional
	Depth   uint32 // slices; 0 = not three-dimensional
	Layers  uint32 // of a layered image; 0 = not layered. Depth is then 0. A cube map has 6, or a multiple of that
	Pitch   uint64 // bytes from row to row
	Slice   uint64 // bytes from slice to slice or layer to layer

	Format   TexelFormat
	Channels int  // 1, 2 or 4
	Linear   bool // linear memory: fetched by index, which out of range reads zeros
}

// A TexelFormat is a CUarray_format (cuda.h, CUDA 12.4).
type TexelFormat uint8

// The formats of a channel.
const (
	TexelU8  TexelFormat = 0x01
	TexelU16 TexelFormat = 0x02
	TexelU32 TexelFormat = 0x03
	TexelS8  TexelFormat = 0x08
	TexelS16 TexelFormat = 0x09
	TexelS32 TexelFormat = 0x0a
	TexelF16 TexelFormat = 0x10
	TexelF32 TexelFormat = 0x20
)

// Size is the size of a channel in bytes, 0 for an unknown format.
func (f TexelFormat) Size() uint64 {
	switch f {
	case TexelU8, TexelS8:
		return 1
	case TexelU16, TexelS16, TexelF16:
		return 2
	case TexelU32, TexelS32, TexelF32:
		return 4
	}
	return 0
}

func (f TexelFormat) float() bool { return f == TexelF16 || f == TexelF32 }

// texel is the size of a texel in bytes.
func (m *Image) texel() uint64 { return m.Format.Size() * uint64(m.Channels) }

// Limits of an image, those of compute capability 9.0.
const (
	MaxImageLinear = 1 << 28 // texels of linear memory
	MaxImageWidth  = 131072
	MaxImageDepth  = 16384
)

// Check reports what about m cannot be sampled or stored to.
func (m *Image) Check() error {
	n := m.texel()
	switch {
	case m.Format.Size() == 0:
		return fmt.Errorf("image: channel format %#x is not supported", uint8(m.Format))
	case m.Channels != 1 && m.Channels != 2 && m.Channels != 4:
		return fmt.Errorf("image: %d channels", m.Channels)
	case m.Width == 0 || m.Linear && m.Width > MaxImageLinear || !m.Linear && m.Width > MaxImageWidth ||
		m.Height > MaxImageWidth || m.Depth > MaxImageDepth || m.Layers > MaxImageDepth:
		return fmt.Errorf("image: %d×%d×%d texels, %d layers", m.Width, m.Height, m.Depth, m.Layers)
	case m.Depth > 0 && (m.Height == 0 || m.Layers > 0), m.Linear && (m.Height > 0 || m.Depth > 0 || m.Layers > 0):
		return fmt.Errorf("image: dimensions %d×%d×%d with %d layers do not go together",
			m.Width, m.Height, m.Depth, m.Layers)
	case m.Address%n != 0 || m.Pitch%n != 0 || m.Slice%n != 0:
		return fmt.Errorf("image at %#x, pitch %d, slice %d: not multiples of the %d bytes of a texel",
			m.Address, m.Pitch, m.Slice, n)
	case m.Height > 1 && m.Pitch < uint64(m.Width)*n:
		return fmt.Errorf("image: pitch %d is less than a row of %d texels", m.Pitch, m.Width)
	case m.Pitch >= 1<<32 || m.Slice >= 1<<40:
		return fmt.Errorf("image: pitch %d, slice %d", m.Pitch, m.Slice)
	}
	return nil
}

// An AddressMode is a CUaddress_mode (cuda.h): what a coordinate outside an image means.
type AddressMode uint8

// The address modes. Wrap and mirror count only with normalised coordinates, else they are clamp.
const (
	AddressWrap AddressMode = iota
	AddressClamp
	AddressMirror
	AddressBorder
)

// A Texture is what the 64-bit handle of a texture object names.
type Texture struct {
	Levels     []Image // mipmap levels, the largest first; at least one
	Mode       [3]AddressMode
	Filter     bool // linear, else point
	Normalized bool // coordinates run from 0 to 1
	ReadFloat  bool // 8 and 16 bit integers are read as floats in [0,1] or [-1,1]; a linear filter needs it
	SRGB       bool // the first three channels of 8 bits are sRGB
	Border     [4]float32

	LevelFilter        bool // linear between levels, else the nearest one
	LevelBias          float32
	MinLevel, MaxLevel float32
}

// Check reports what about t cannot be sampled.
func (t *Texture) Check() error {
	if len(t.Levels) == 0 || len(t.Levels) > 32 {
		return fmt.Errorf("texture of %d levels", len(t.Levels))
	}
	for i := range t.Levels {
		if err := t.Levels[i].Check(); err != nil {
			return fmt.Errorf("texture level %d: %w", i, err)
		}
		if a, b := &t.Levels[0], &t.Levels[i]; a.Format != b.Format || a.Channels != b.Channels {
			return fmt.Errorf("texture level %d has another format", i)
		}
	}
	for _, m := range t.Mode {
		if m > AddressBorder {
			return fmt.Errorf("texture: address mode %d", m)
		}
	}
	f := t.Levels[0].Format
	if small := f.Size() < 4 && !f.float(); t.Filter && !f.float() && !(small && t.ReadFloat) {
		return fmt.Errorf("texture: linear filtering of integers")
	}
	if t.SRGB && (f != TexelU8 || !t.ReadFloat) {
		return fmt.Errorf("texture: sRGB conversion of channels that are no 8-bit integers read as floats")
	}
	return nil
}

// handles are the texture and surface objects of a Space. They are replaced, never changed.
type handles struct {
	textures map[uint64]*Texture
	surfaces map[uint64]*Image
}

// SetTexture makes handle name t in launches that begin from now on; nil removes it. The handle of
// a .texref variable is its address. t must not change any more.
func (s *Space) SetTexture(handle uint64, t *Texture) error {
	if t != nil {
		if err := t.Check(); err != nil {
			return err
		}
	}
	s.setHandle(func(h *handles) {
		if t == nil {
			delete(h.textures, handle)
		} else {
			h.textures[handle] = t
		}
	})
	return nil
}

// SetSurface makes handle name the surface of m; nil removes it. m must not change any more.
func (s *Space) SetSurface(handle uint64, m *Image) error {
	if m != nil {
		if err := m.Check(); err != nil {
			return err
		}
	}
	s.setHandle(func(h *handles) {
		if m == nil {
			delete(h.surfaces, handle)
		} else {
			h.surfaces[handle] = m
		}
	})
	return nil
}

func (s *Space) setHandle(f func(*handles)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &handles{textures: map[uint64]*Texture{}, surfaces: map[uint64]*Image{}}
	if old := s.handles.Load(); old != nil {
		maps.Copy(h.textures, old.textures)
		maps.Copy(h.surfaces, old.surfaces)
	}
	f(h)
	s.handles.Store(h)
}

// texture is what handle names, or nil.
func (s *Space) texture(handle uint64) *Texture {
	if h := s.handles.Load(); h != nil {
		return h.textures[handle]
	}
	return nil
}

// surface is what handle names, or nil.
func (s *Space) surface(handle uint64) *Image {
	if h := s.handles.Load(); h != nil {
		return h.surfaces[handle]
	}
	return nil
}

// A geometry is what the coordinates of an instruction mean: .1d, .a2d….
type geometry struct {
	dims  int
	array bool // the first coordinate is a layer
	cube  bool // six layers, of which a direction chooses one
}

func (g geometry) String() string {
	if g.cube {
		return map[bool]string{false: "cube", true: "acube"}[g.array]
	}
	if g.array {
		return fmt.Sprintf("a%dd", g.dims)
	}
	return fmt.Sprintf("%dd", g.dims)
}

// geometryOf reads a .geom modifier; multi-sampled images are not supported.
func (tx textures) geometryOf(in *isa.Inst) geometry {
	g := geometry{array: in.Shape[0] == 'a'}
	switch in.Shape {
	case "1d", "a1d":
		g.dims = 1
	case "2d", "a2d":
		g.dims = 2
	case "3d":
		g.dims = 3
	case "cube", "acube":
		g.dims, g.cube = 2, true
	default:
		tx.fail(in.Src.Pos, ".%s is not supported", in.Shape)
	}
	return g
}

// fits reports whether m has as many dimensions as g.
func (g geometry) fits(m *Image) bool {
	dims := 1
	if m.Height > 0 {
		dims = 2
	}
	if m.Depth > 0 {
		dims = 3
	}
	if g.cube {
		return dims == 2 && m.Layers > 0 && m.Layers%6 == 0 && (g.array || m.Layers == 6)
	}
	return dims == g.dims && (m.Layers > 0) == g.array
}

// coordinates resolves [handle, {coordinates}]. A vector may be longer than the geometry needs: the ISA
// rounds three up to four.
func (tx textures) coordinates(in *isa.Inst, x ptx.Operand, g geometry, t ptx.Type,
) (handle addressOperand, layer uint32, at []uint32) {
	a, ok := x.(*ptx.Addr)
	if !ok || len(a.Coords) == 0 {
		tx.fail(in.Src.Pos, "address %s", operandText(x))
	}
	if len(a.Coords) > 1 {
		tx.fail(in.Src.Pos, "a separate sampler (.target texmode_independent) is not supported")
	}
	handle = tx.handle(a)
	list := []ptx.Operand{a.Coords[0]}
	if v, ok := a.Coords[0].(*ptx.Vector); ok {
		list = v.Elems
	}
	if g.array {
		layer = tx.read(list[0], ptx.U32)
		list = list[1:]
	}
	n := g.dims
	if g.cube {
		n = 3 // a direction
	}
	if len(list) < n {
		tx.fail(in.Src.Pos, "%d coordinates", len(list))
	}
	for _, c := range list[:n] {
		at = append(at, tx.read(c, t))
	}
	return handle, layer, at
}

// handle resolves what names a texture or surface: a register that holds a handle, a variable whose address
// is one, or a parameter of the kernel.
func (tx textures) handle(a *ptx.Addr) addressOperand {
	plain := *a
	plain.Coords = nil
	if e, off := tx.paramRef(tx.in, &plain); e != nil && e.kind == entKernelParam {
		d := tx.reg(ptx.U64)
		memory(tx).loadParam(tx.in, e, off, []place{placeAt(d.off, slot64)}, ptx.B64)
		return addressOperand{reg: d.off, wide: true}
	}
	return tx.addressOperand(&plain, memGlobal)
}

// texelAt gives the address of a texel; the coordinates are inside.
func (m *Image) texelAt(x, y, z uint64) uint64 {
	return m.Address + x*m.texel() + y*m.Pitch + z*m.Slice
}
