package softgpu

import (
	"math"
	"math/bits"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// Texture instructions: PTX ISA 9.7.10, and the appendix "Texture Fetching" of the CUDA C++
// Programming Guide. A linear filter weighs texels with fractions of 8 bits, to which the position
// between texel centres is rounded; products and sums are float64, rounded once to float32. Channels that an image
// does not have read as 0, the fourth as 1.

// textures translates what goes through texture and surface objects.
type textures struct{ *operands }

// A texel is four channels, or what a fetch gives: bits of float32, or integers.
type texel [4]uint32

// A textureOp is tex or tld4.
type textureOp struct {
	geom    geometry
	handle  addressOperand
	layer   uint32
	at      []uint32
	integer bool // coordinates are numbers of texels
	offsets []uint32
	level   uint32 // 0 = the largest
	dx, dy  []uint32
	gather  int // component of tld4, 1 to 4; 0 = tex
	d       []uint32
	p       uint32
	half    bool // results are f16
	pairs   bool // two in a register
}

func (tx textures) texture(in *isa.Inst) {
	switch in.Op {
	case "tex", "tld4":
		tx.sample(in)
	case "txq":
		tx.textureQuery(in)
	case "suld", "sust", "sured":
		tx.surface(in)
	case "suq":
		tx.surfaceQuery(in)
	case "istypep":
		tx.isTypeOf(in)
	default:
		tx.fail(in.Src.Pos, "not implemented")
	}
}

func (tx textures) sample(in *isa.Inst) {
	op := &textureOp{geom: tx.geometryOf(in), integer: in.U == ptx.S32, p: regSinkP}
	op.gather = map[string]int{"r": 1, "g": 2, "b": 3, "a": 4}[in.Fn]
	args := in.Args
	op.handle, op.layer, op.at = tx.coordinates(in, args[1].X, op.geom, in.U)
	rest := args[2:]
	switch in.Mode {
	case "level":
		op.level = tx.read(rest[0].X, rest[0].Type)
		rest = rest[1:]
	case "grad":
		if op.geom.cube {
			tx.fail(in.Src.Pos, "gradients of a cube map are not supported")
		}
		op.dx, op.dy = tx.atLeast(rest[0].X, ptx.F32, op.geom.dims), tx.atLeast(rest[1].X, ptx.F32, op.geom.dims)
		rest = rest[2:]
	}
	if len(rest) > 0 {
		if op.geom.cube {
			tx.fail(in.Src.Pos, "depth comparison is not supported")
		}
		if _, vector := rest[0].X.(*ptx.Vector); !vector && op.geom.dims > 1 {
			tx.fail(in.Src.Pos, "depth comparison is not supported")
		}
		op.offsets = tx.atLeast(rest[0].X, ptx.S32, op.geom.dims)
	}
	dst := args[0].X
	if pair, ok := dst.(*ptx.Pair); ok {
		op.p = tx.writeExact(pair.B, ptx.Pred)
		dst = pair.A
	}
	op.half, op.pairs = in.T == ptx.F16 || in.T == ptx.F16x2, in.T == ptx.F16x2
	op.d = tx.registers(dst, in.T, in.Vec, true)
	tx.emit(inst{kind: kindExec, exec: op.exec})
}

func (w *warp) textureOf(in *inst, lane int, handle uint64) *Texture {
	t := w.block.launch.space.texture(handle)
	if t == nil {
		w.fault(FaultUnmapped, in, lane, handle, "this is no texture object")
	}
	return t
}

func (op *textureOp) exec(w *warp, in *inst, mask uint32) {
	var t *Texture
	var last uint64
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		if h := op.handle.at(w, i); t == nil || h != last {
			t, last = w.textureOf(in, i, h), h
			if !op.geom.fits(&t.Levels[0]) {
				w.fault(FaultUnsupported, in, i, h, "the texture object has other dimensions")
			}
		}
		op.put(w, i, op.fetch(w, in, i, t))
	}
	*w.r.p(op.p) |= mask // texels are always resident
}

// put writes the result of a lane.
func (op *textureOp) put(w *warp, lane int, v texel) {
	if op.half {
		for k := range v {
			v[k] = uint32(number.RoundF16(float64(math.Float32frombits(v[k])), number.Nearest))
		}
	}
	for k, d := range op.d {
		if op.pairs {
			w.r.v32(d)[lane] = v[2*k] | v[2*k+1]<<16
		} else {
			w.r.v32(d)[lane] = v[k]
		}
	}
}

// A fetch is one look at one level of a texture.
type fetch struct {
	w      *warp
	in     *inst
	lane   int
	t      *Texture
	m      *Image
	layer  uint64
	offset [3]int64
	unit   bool // coordinates run from 0 to 1, whatever the texture says
}

func (op *textureOp) fetch(w *warp, in *inst, lane int, t *Texture) texel {
	f := fetch{w: w, in: in, lane: lane, t: t, m: &t.Levels[0]}
	layers := f.m.Layers
	if op.geom.cube {
		layers /= 6
	}
	if op.geom.array {
		f.layer = uint64(min(w.r.v32(op.layer)[lane], layers-1))
	}
	for k, reg := range op.offsets {
		f.offset[k] = int64(int32(w.r.v32(reg)[lane]))
	}
	var at [3]float64
	for k, reg := range op.at {
		x := w.r.v32(reg)[lane]
		if op.integer {
			at[k] = float64(int32(x))
		} else {
			at[k] = float64(math.Float32frombits(x))
		}
	}
	dims := op.geom.dims
	if op.geom.cube {
		var face uint64
		face, at[0], at[1] = cubeFace(at)
		f.layer, f.unit = 6*f.layer+face, true
	}
	var lod float64
	switch {
	case op.gather > 0:
		return f.gather(at, op.gather-1)
	case op.level != 0 && op.integer && !op.geom.cube:
		return f.level(int(int32(w.r.v32(op.level)[lane]))).point(at, dims, true)
	case op.level != 0:
		lod = float64(math.Float32frombits(w.r.v32(op.level)[lane]))
		if op.integer {
			lod = float64(int32(w.r.v32(op.level)[lane]))
		}
	case op.dx != nil:
		lod = math.Log2(max(op.slope(w, lane, t, op.dx), op.slope(w, lane, t, op.dy)))
	case op.integer && !op.geom.cube:
		return f.point(at, dims, true)
	default:
		return f.sample(at, dims)
	}
	return f.mip(at, dims, lod)
}

// cubeFace chooses the face that a direction meets, and the place on it from 0 to 1: the table "Cubemap Fetch" of
// the CUDA C++ Programming Guide. Filters do not look beyond the edge of a face.
func cubeFace(d [3]float64) (face uint64, s, t float64) {
	x, y, z := d[0], d[1], d[2]
	var m float64
	switch ax, ay, az := math.Abs(x), math.Abs(y), math.Abs(z); {
	case ax >= ay && ax >= az:
		if m, s, t = ax, -z, -y; x < 0 {
			face, s = 1, z
		}
	case ay >= az:
		face = 2
		if m, s, t = ay, x, z; y < 0 {
			face, t = 3, -z
		}
	default:
		face = 4
		if m, s, t = az, x, -y; z < 0 {
			face, s = 5, -x
		}
	}
	return face, (s/m + 1) / 2, (t/m + 1) / 2
}

// slope is how many texels a step of the gradient covers.
func (op *textureOp) slope(w *warp, lane int, t *Texture, d []uint32) float64 {
	var sum float64
	for k, reg := range d {
		x := float64(math.Float32frombits(w.r.v32(reg)[lane]))
		if t.Normalized {
			x *= float64(t.Levels[0].size(k))
		}
		sum += x * x
	}
	return math.Sqrt(sum)
}

// size is the number of texels along dimension k.
func (m *Image) size(k int) uint32 { return max(1, [3]uint32{m.Width, m.Height, m.Depth}[k]) }

func (f fetch) level(n int) fetch {
	f.m = &f.t.Levels[min(max(n, 0), len(f.t.Levels)-1)]
	return f
}

// mip samples at a level of detail.
func (f fetch) mip(at [3]float64, dims int, lod float64) texel {
	if lod != lod {
		lod = 0
	}
	lod = min(max(lod+float64(f.t.LevelBias), float64(f.t.MinLevel)), float64(f.t.MaxLevel))
	lod = min(max(lod, 0), float64(len(f.t.Levels)-1))
	if !f.t.LevelFilter {
		return f.level(int(math.Floor(lod+0.5))).sample(at, dims)
	}
	n, alpha := math.Floor(lod), fixed(lod-math.Floor(lod))
	a := f.level(int(n)).sample(at, dims)
	if alpha == 0 || !f.t.floats() {
		return a
	}
	b := f.level(int(n)+1).sample(at, dims)
	var v texel
	for k := range v {
		x, y := float64(math.Float32frombits(a[k])), float64(math.Float32frombits(b[k]))
		v[k] = math.Float32bits(float32(x*(1-alpha) + y*alpha))
	}
	return v
}

// fixed rounds a fraction to 8 bits.
func fixed(x float64) float64 { return math.Floor(x*256+0.5) / 256 }

func (f fetch) sample(at [3]float64, dims int) texel {
	if f.t.Filter && !f.m.Linear {
		return f.linear(at, dims)
	}
	return f.point(at, dims, false)
}

// texels scales a coordinate to numbers of texels, of which NaN is none.
func (f fetch) texels(x float64, k int) float64 {
	if f.t.Normalized || f.unit {
		x *= float64(f.m.size(k))
	}
	if x != x {
		return 0
	}
	return min(max(x, -1<<40), 1<<40)
}

func (f fetch) point(at [3]float64, dims int, integer bool) texel {
	var i [3]int64
	for k := range dims {
		if integer {
			i[k] = int64(at[k])
		} else {
			i[k] = int64(math.Floor(f.texels(at[k], k)))
		}
	}
	return f.read(i, dims)
}

// corner is the texel below a position, and the weight of the next one.
func (f fetch) corner(x float64, k int) (int64, float64) {
	u := f.texels(x, k) - 0.5
	i := math.Floor(u)
	return int64(i), fixed(u - i)
}

func (f fetch) linear(at [3]float64, dims int) texel {
	var base [3]int64
	var alpha [3]float64
	for k := range dims {
		base[k], alpha[k] = f.corner(at[k], k)
	}
	var sum [4]float64
	for c := range 1 << dims {
		i, weight := base, 1.0
		for k := range dims {
			if c>>k&1 != 0 {
				i[k]++
				weight *= alpha[k]
			} else {
				weight *= 1 - alpha[k]
			}
		}
		if weight == 0 {
			continue
		}
		v := f.read(i, dims)
		for k := range sum {
			sum[k] += weight * float64(math.Float32frombits(v[k]))
		}
	}
	var v texel
	for k := range v {
		v[k] = math.Float32bits(float32(sum[k]))
	}
	return v
}

// gather takes one channel of the four texels that a linear filter would weigh.
func (f fetch) gather(at [3]float64, channel int) texel {
	x, _ := f.corner(at[0], 0)
	y, _ := f.corner(at[1], 1)
	var v texel
	for k, d := range [4][2]int64{{0, 1}, {1, 1}, {1, 0}, {0, 0}} {
		v[k] = f.read([3]int64{x + d[0], y + d[1]}, 2)[channel]
	}
	return v
}

// wrap brings index i of n texels inside; it reports false for the border.
func (m AddressMode) wrap(i, n int64, normalized bool) (int64, bool) {
	if uint64(i) < uint64(n) {
		return i, true
	}
	switch {
	case m == AddressBorder:
		return 0, false
	case m == AddressWrap && normalized:
		return (i%n + n) % n, true
	case m == AddressMirror && normalized:
		i = (i%(2*n) + 2*n) % (2 * n)
		if i >= n {
			i = 2*n - 1 - i
		}
		return i, true
	}
	return min(max(i, 0), n-1), true
}

// floats reports whether fetches give floats.
func (t *Texture) floats() bool {
	f := t.Levels[0].Format
	return f.float() || t.ReadFloat && f.Size() < 4
}

// read is the texel at index i, or what stands for it outside.
func (f fetch) read(i [3]int64, dims int) texel {
	m := f.m
	for k := range dims {
		n := int64(m.size(k))
		x := i[k] + f.offset[k]
		if m.Linear {
			if uint64(x) >= uint64(n) {
				return texel{}
			}
			i[k] = x
			continue
		}
		var inside bool
		if i[k], inside = f.t.Mode[k].wrap(x, n, f.t.Normalized || f.unit); !inside {
			var v texel
			for k, c := range f.t.Border {
				v[k] = math.Float32bits(c)
			}
			return v
		}
	}
	z := uint64(i[2]) + f.layer
	addr := m.texelAt(uint64(i[0]), uint64(i[1]), z)
	p := f.w.pointer(f.in, memGlobal, f.lane, addr, m.texel(), pageReadOnly)
	f.w.observe(f.lane, addr, m.texel(), Read)
	v := texel{3: 1}
	if f.t.floats() {
		v[3] = 0x3f800000
	}
	size := m.Format.Size()
	for c := range m.Channels {
		v[c] = f.t.channel(getBits(unsafe.Add(p, uint64(c)*size), 8*size), c)
	}
	return v
}

// channel decodes channel c of a texel.
func (t *Texture) channel(x uint64, c int) uint32 {
	f := t.Levels[0].Format
	small := t.ReadFloat
	switch f {
	case TexelF16:
		return math.Float32bits(float32(f16Value(x)))
	case TexelF32:
		return uint32(x)
	case TexelU8:
		if small && t.SRGB && c < 3 {
			return math.Float32bits(float32(linearFromSRGB(float64(x) / 255)))
		}
		if small {
			return math.Float32bits(float32(float64(x) / 255))
		}
	case TexelU16:
		if small {
			return math.Float32bits(float32(float64(x) / 65535))
		}
	case TexelS8:
		if small {
			return math.Float32bits(float32(max(float64(int8(x))/127, -1)))
		}
		return uint32(int32(int8(x)))
	case TexelS16:
		if small {
			return math.Float32bits(float32(max(float64(int16(x))/32767, -1)))
		}
		return uint32(int32(int16(x)))
	}
	return uint32(x)
}

// linearFromSRGB is the transfer function of IEC 61966-2-1.
func linearFromSRGB(x float64) float64 {
	if x <= 0.04045 {
		return x / 12.92
	}
	return math.Pow((x+0.055)/1.055, 2.4)
}

// The answers to .channel_data_type and .channel_order are those of OpenCL (PTX ISA 5.3.2).
func channelType(f TexelFormat, normalized bool) uint32 {
	const snorm8, snorm16, unorm8, unorm16 = 0x10d0, 0x10d1, 0x10d2, 0x10d3
	switch f {
	case TexelS8:
		if normalized {
			return snorm8
		}
		return 0x10d7
	case TexelS16:
		if normalized {
			return snorm16
		}
		return 0x10d8
	case TexelS32:
		return 0x10d9
	case TexelU8:
		if normalized {
			return unorm8
		}
		return 0x10da
	case TexelU16:
		if normalized {
			return unorm16
		}
		return 0x10db
	case TexelU32:
		return 0x10dc
	case TexelF16:
		return 0x10dd
	}
	return 0x10de
}

func channelOrder(channels int) uint32 {
	return map[int]uint32{1: 0x10b0, 2: 0x10b2, 4: 0x10b5}[channels]
}

// imageAnswer is what txq and suq say about an image.
func imageAnswer(m *Image, what string, normalized bool) (uint32, bool) {
	switch what {
	case "width":
		return m.Width, true
	case "height":
		return m.Height, true
	case "depth":
		return m.Depth, true
	case "array_size":
		return m.Layers, true
	case "channel_data_type":
		return channelType(m.Format, normalized), true
	case "channel_order":
		return channelOrder(m.Channels), true
	}
	return 0, false
}

func (t *Texture) answer(what string, level int32) uint32 {
	m := &t.Levels[min(max(int(level), 0), len(t.Levels)-1)]
	if x, ok := imageAnswer(m, what, t.ReadFloat); ok {
		return x
	}
	switch what {
	case "normalized_coords":
		return uint32(number.FromBool(t.Normalized))
	case "num_mipmap_levels":
		return uint32(len(t.Levels))
	case "num_samples":
		return 1
	case "filter_mode":
		return uint32(number.FromBool(t.Filter))
	case "force_unnormalized_coords":
		return uint32(number.FromBool(!t.Normalized))
	}
	// addr_mode_0 to 2, in the order of PTX ISA 5.3: wrap, mirror, clamp_ogl, clamp_to_edge, clamp_to_border.
	mode := t.Mode[what[len(what)-1]-'0']
	return [...]uint32{AddressWrap: 0, AddressMirror: 1, AddressClamp: 3, AddressBorder: 4}[mode]
}

func (tx textures) textureQuery(in *isa.Inst) {
	d := tx.writeExact(in.Args[0].X, ptx.B32)
	level := tx.constBits(0, slot32)
	if len(in.Args) > 2 {
		level = tx.read(in.Args[2].X, ptx.B32)
	}
	handle, what := tx.handle(in.Args[1].X.(*ptx.Addr)), in.Fn
	tx.emit(inst{kind: kindExec, exec: func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			t := w.textureOf(in, i, handle.at(w, i))
			w.r.v32(d)[i] = t.answer(what, int32(w.r.v32(level)[i]))
		}
	}})
}

// isTypeOf is istypep: whether an address is that of a variable of an opaque type.
func (tx textures) isTypeOf(in *isa.Inst) {
	want := map[string]ptx.Type{"texref": ptx.TexRef, "samplerref": ptx.SamplerRef, "surfref": ptx.SurfRef}[in.Fn]
	offsets := map[uint64]bool{}
	for i, v := range tx.m.decls {
		if v.Type == want {
			offsets[tx.m.globals[i].Offset] = true
		}
	}
	d, a := tx.writeExact(in.Args[0].X, ptx.Pred), tx.read(in.Args[1].X, ptx.B64)
	tx.emit(inst{kind: kindExec, exec: func(w *warp, _ *inst, mask uint32) {
		p := w.r.p(d)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			*p &^= 1 << i
			if offsets[w.r.v64(a)[i]-w.block.launch.in.base] {
				*p |= 1 << i
			}
		}
	}})
}
