package softgpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"holdfast/internal/softgpu/number"
)

// fetchKernel is a kernel that samples at coordinate t of its thread, with dims coordinates a thread in
// coords, and stores four channels. inst has the opcode, operands the address' coordinates and what follows.
func fetchKernel(inst, coordinates string, dims int, after string) string {
	var b strings.Builder
	b.WriteString(header + `.visible .entry k(.param .u64 tex, .param .u64 coords, .param .u64 out)
{
	.reg .b32 %r<9>;
	.reg .f32 %f<9>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [tex];
	ld.param.u64 %rd2, [coords];
	ld.param.u64 %rd3, [out];
	mov.u32 %r8, %tid.x;
`)
	fmt.Fprintf(&b, "\tmul.wide.u32 %%rd4, %%r8, %d;\n\tadd.u64 %%rd2, %%rd2, %%rd4;\n"+
		"\tmul.wide.u32 %%rd4, %%r8, 16;\n\tadd.u64 %%rd3, %%rd3, %%rd4;\n", 4*dims)
	for i := range dims {
		fmt.Fprintf(&b, "\tld.global.b32 %%r%d, [%%rd2+%d];\n\tmov.b32 %%f%d, %%r%d;\n", i+1, 4*i, i+1, i+1)
	}
	fmt.Fprintf(&b, "\t%s {%%r4, %%r5, %%r6, %%r7}, [%%rd1, %s]%s;\n"+
		"\tst.global.v4.b32 [%%rd3], {%%r4, %%r5, %%r6, %%r7};\n\tret;\n}\n", inst, coordinates, after)
	return b.String()
}

const textureHandle = 7

// fetch runs a kernel of fetchKernel over coordinates.
func (d *device) fetch(src string, tex *Texture, coords []uint32, dims int) [][4]uint32 {
	d.t.Helper()
	if err := d.space.SetTexture(textureHandle, tex); err != nil {
		d.t.Fatal(err)
	}
	n := len(coords) / dims
	in := d.load(src)
	out := d.alloc(uint64(n) * 16)
	d.run(in, "k", LaunchConfig{Grid: dims3(1), Block: dims3(uint32(n)),
		Params: params(uint64(textureHandle), upload(d, coords), out)})
	return append([][4]uint32(nil), view[[4]uint32](d, out, n)...)
}

func dims3(x uint32) [3]uint32 { return [3]uint32{x, 1, 1} }

func floatBits(x []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(&x[0])), len(x))
}

// image uploads texels: w×h×d of so many channels, in rows with some space between them.
func (d *device) image(r *rand.Rand, f TexelFormat, channels, w, h, depth, layers int) Image {
	m := Image{Width: uint32(w), Height: uint32(h), Depth: uint32(depth), Layers: uint32(layers),
		Format: f, Channels: channels}
	n := m.texel()
	m.Pitch = uint64(w)*n + 3*n
	m.Slice = m.Pitch*uint64(max(h, 1)) + 5*n
	mem := make([]byte, m.Slice*uint64(max(depth, layers, 1)))
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	switch f {
	case TexelF32:
		x := unsafe.Slice((*float32)(unsafe.Pointer(&mem[0])), len(mem)/4)
		for i := range x {
			x[i] = r.Float32()*4 - 2
		}
	case TexelF16:
		x := unsafe.Slice((*uint16)(unsafe.Pointer(&mem[0])), len(mem)/2)
		for i := range x {
			x[i] = number.RoundF16(r.Float64()*4-2, number.Nearest)
		}
	}
	m.Address = upload(d, mem)
	return m
}

// element reads a channel of a texel as the CUDA programming guide's T[i,j,k]: a float, or an integer.
func (d *device) element(m *Image, normalized bool, x, y, z, c int) float64 {
	if c >= m.Channels {
		if c == 3 {
			return 1
		}
		return 0
	}
	at := m.Address + uint64(x)*m.texel() + uint64(y)*m.Pitch + uint64(z)*m.Slice + uint64(c)*m.Format.Size()
	switch m.Format {
	case TexelU8:
		v := float64(view[uint8](d, at, 1)[0])
		if normalized {
			v /= 255
		}
		return v
	case TexelS8:
		v := float64(view[int8](d, at, 1)[0])
		if normalized {
			v = max(v/127, -1)
		}
		return v
	case TexelU16:
		v := float64(view[uint16](d, at, 1)[0])
		if normalized {
			v /= 65535
		}
		return v
	case TexelS16:
		v := float64(view[int16](d, at, 1)[0])
		if normalized {
			v = max(v/32767, -1)
		}
		return v
	case TexelF16:
		return number.SmallValue(uint32(view[uint16](d, at, 1)[0]), 5, 10)
	case TexelF32:
		return float64(view[float32](d, at, 1)[0])
	case TexelS32:
		return float64(view[int32](d, at, 1)[0])
	}
	return float64(view[uint32](d, at, 1)[0])
}

var allFormats = []TexelFormat{TexelU8, TexelS8, TexelU16, TexelS16, TexelU32, TexelS32, TexelF16, TexelF32}

// Integer coordinates name texels, in every format and number of channels.
func TestTexelFetch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	d := newDevice(t, 8)
	for _, f := range allFormats {
		for _, channels := range []int{1, 2, 4} {
			for _, normalized := range []bool{false, true} {
				m := d.image(r, f, channels, 13, 7, 0, 0)
				tex := &Texture{Levels: []Image{m}, ReadFloat: normalized,
					Mode: [3]AddressMode{AddressClamp, AddressClamp}}
				var coords []uint32
				for range 64 {
					coords = append(coords, uint32(int32(r.IntN(20)-4)), uint32(int32(r.IntN(14)-4)))
				}
				out := d.fetch(fetchKernel("tex.2d.v4.u32.s32", "{%r1, %r2}", 2, ""), tex, coords, 2)
				for i, got := range out {
					x, y := min(max(int(int32(coords[2*i])), 0), 12), min(max(int(int32(coords[2*i+1])), 0), 6)
					for c := range 4 {
						want := d.element(&m, normalized && f.Size() < 4, x, y, 0, c)
						g := float64(got[c])
						switch {
						case tex.floats():
							g = float64(math.Float32frombits(got[c]))
							want = float64(float32(want))
						case f == TexelS8 || f == TexelS16 || f == TexelS32:
							g = float64(int32(got[c]))
						}
						if g != want {
							t.Fatalf("format %#x, %d channels, normalized %v: texel %d,%d channel %d is %v, want %v", f,
								channels, normalized, x, y, c, g, want)
						}
					}
				}
			}
		}
	}
}

// inside maps a real coordinate as the programming guide says, in texels.
func inside(mode AddressMode, i, n int, normalized bool) (int, bool) {
	if i >= 0 && i < n {
		return i, true
	}
	// The centre of texel i, as a normalised coordinate.
	x := (float64(i) + 0.5) / float64(n)
	switch {
	case mode == AddressBorder:
		return 0, false
	case mode == AddressWrap && normalized:
		x -= math.Floor(x)
	case mode == AddressMirror && normalized:
		if k := math.Floor(x); int(k)%2 == 0 {
			x -= k
		} else {
			x = 1 - (x - k)
		}
	default:
		x = min(max(x, 0), 1-0.5/float64(n))
	}
	return int(x * float64(n)), true
}

// Point and linear sampling in all address modes, geometries and both kinds of coordinates,
// against the formulas of the programming guide.
func TestTextureSampling(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	d := newDevice(t, 8)
	size := [3]int{9, 6, 5}
	for _, g := range []struct {
		name        string
		coordinates string
		words, dims int
		layers      int
	}{
		{"1d", "{%f1}", 1, 1, 0}, {"2d", "{%f1, %f2}", 2, 2, 0}, {"3d", "{%f1, %f2, %f3, %f3}", 3, 3, 0},
		{"a1d", "{%r1, %f2}", 2, 1, 3}, {"a2d", "{%r1, %f2, %f3, %f3}", 3, 2, 3},
	} {
		for mode := AddressWrap; mode <= AddressBorder; mode++ {
			for k := range 8 {
				filter, normalized, format := k&1 != 0, k&2 != 0, []TexelFormat{TexelF32, TexelU8}[k>>2]
				shape := [3]int{}
				copy(shape[:], size[:g.dims])
				m := d.image(r, format, 4, shape[0], shape[1], shape[2], g.layers)
				tex := &Texture{Levels: []Image{m}, Filter: filter, Normalized: normalized, ReadFloat: true,
					Mode: [3]AddressMode{mode, mode, mode}, Border: [4]float32{1, 2, 3, 4}}
				const n = 64
				var coords []uint32
				for range n {
					for w := range g.words {
						if w == 0 && g.layers > 0 {
							coords = append(coords, uint32(r.IntN(4)))
							continue
						}
						x := r.Float32()*30 - 10
						if normalized {
							x = r.Float32()*6 - 2.5
						}
						coords = append(coords, math.Float32bits(x))
					}
				}
				out := d.fetch(fetchKernel("tex."+g.name+".v4.f32.f32", g.coordinates, g.words, ""),
					tex, coords, g.words)
				for i, got := range out {
					at := coords[i*g.words : (i+1)*g.words]
					layer := 0
					if g.layers > 0 {
						layer, at = min(int(at[0]), g.layers-1), at[1:]
					}
					for c := range 4 {
						want := d.reference(tex, at, g.dims, layer, c)
						if math.Float32frombits(got[c]) != float32(want) {
							t.Fatalf("%s mode %d filter %v normalized %v format %#x: at %v channel %d: %v, want %v",
								g.name, mode, filter, normalized, format,
								at, c, math.Float32frombits(got[c]), float32(want))
						}
					}
				}
			}
		}
	}
}

// reference samples by recursion over the dimensions.
func (d *device) reference(tex *Texture, at []uint32, dims, layer, c int) float64 {
	m := &tex.Levels[0]
	size := [3]int{int(m.Width), int(m.Height), int(m.Depth)}
	var sum func(k int, i [3]int, border bool) float64
	sum = func(k int, i [3]int, border bool) float64 {
		if k == dims {
			if border {
				return float64(tex.Border[c])
			}
			return float64(float32(d.element(m, true, i[0], i[1], i[2]+layer, c)))
		}
		u := float64(math.Float32frombits(at[k]))
		if tex.Normalized {
			u *= float64(size[k])
		}
		tap := func(x int) float64 {
			j, ok := inside(tex.Mode[k], x, size[k], tex.Normalized)
			i[k] = j
			return sum(k+1, i, border || !ok)
		}
		if !tex.Filter {
			return tap(int(math.Floor(u)))
		}
		b := u - 0.5
		a := math.Round((b-math.Floor(b))*256) / 256
		return (1-a)*tap(int(math.Floor(b))) + a*tap(int(math.Floor(b))+1)
	}
	return sum(0, [3]int{}, false)
}

// Levels, offsets, tld4, 16-bit results, linear memory.
func TestTextureForms(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	d := newDevice(t, 8)
	big, small := d.image(r, TexelF32, 4, 16, 8, 0, 0), d.image(r, TexelF32, 4, 8, 4, 0, 0)
	tex := &Texture{Levels: []Image{big, small}, MaxLevel: 8,
		Mode: [3]AddressMode{AddressClamp, AddressClamp, AddressClamp}}
	at := floatBits([]float32{3.5, 2.5})
	float := func(v [4]uint32) (f [4]float64) {
		for i := range f {
			f[i] = float64(math.Float32frombits(v[i]))
		}
		return f
	}
	want := func(m *Image, x, y int) (f [4]float64) {
		for c := range f {
			f[c] = d.element(m, false, x, y, 0, c)
		}
		return f
	}
	for _, c := range []struct {
		inst, after string
		want        [4]float64
	}{
		{"tex.base.2d.v4.f32.f32", "", want(&big, 3, 2)},
		{"tex.level.2d.v4.f32.f32", ", 0f3F800000", want(&small, 3, 2)},
		{"tex.level.2d.v4.f32.f32", ", 0f41000000", want(&small, 3, 2)},
		{"tex.level.2d.v4.f32.f32", ", 0fC0000000", want(&big, 3, 2)},
		{"tex.2d.v4.f32.f32", ", {1, -2}", want(&big, 4, 0)},
		{"tex.level.2d.v4.f32.f32", ", 0f3F800000, {-1, 1}", want(&small, 2, 3)},
		{"tex.grad.2d.v4.f32.f32", ", {0f40000000, 0f00000000}, {0f00000000, 0f3F800000}", want(&small, 3, 2)},
		{"tld4.g.2d.v4.f32.f32", "",
			[4]float64{want(&big, 3, 3)[1], want(&big, 4, 3)[1], want(&big, 4, 2)[1], want(&big, 3, 2)[1]}},
	} {
		if got := float(d.fetch(fetchKernel(c.inst, "{%f1, %f2}", 2, c.after), tex, at, 2)[0]); got != c.want {
			t.Errorf("%s%s: %v, want %v", c.inst, c.after, got, c.want)
		}
	}
	tex.LevelFilter = true
	mixed := float(d.fetch(fetchKernel("tex.level.2d.v4.f32.f32", "{%f1, %f2}", 2, ", 0f3E800000"), tex, at, 2)[0])
	for c, x := range mixed {
		if w := 0.75*want(&big, 3, 2)[c] + 0.25*want(&small, 3, 2)[c]; float32(x) != float32(w) {
			t.Errorf("between levels: channel %d is %v, want %v", c, x, w)
		}
	}
	line := d.image(r, TexelS16, 2, 40, 0, 0, 0)
	line.Linear = true
	if got := d.fetch(fetchKernel("tex.1d.v4.s32.s32", "{%r1}", 1, ""), &Texture{Levels: []Image{line}},
		[]uint32{39, 40, math.MaxUint32}, 1); int32(got[0][1]) != int32(d.element(&line, false, 39, 0, 0, 1)) ||
		got[1] != (texel{}) || got[2] != (texel{}) {
		t.Errorf("linear memory: %v", got)
	}
	half := strings.ReplaceAll(fetchKernel("tex.2d.v2.f16x2.f32", "{%f1, %f2}", 2, ""),
		"{%r4, %r5, %r6, %r7}, [%rd1", "{%r4, %r5}, [%rd1")
	got := d.fetch(half, &Texture{Levels: []Image{big}}, at, 2)[0]
	for c := range 4 {
		if h := uint16(got[c/2] >> (c % 2 * 16)); h != uint16(number.RoundF16(want(&big, 3, 2)[c], number.Nearest)) {
			t.Errorf("f16x2 channel %d: %#x", c, h)
		}
	}
}

// A direction through the middle of texel i, j of a face finds that texel.
func TestCubeMap(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	d := newDevice(t, 8)
	const n = 5
	faces := [6]func(s, t float32) [3]float32{
		func(s, t float32) [3]float32 { return [3]float32{1, -t, -s} },
		func(s, t float32) [3]float32 { return [3]float32{-1, -t, s} },
		func(s, t float32) [3]float32 { return [3]float32{s, 1, t} },
		func(s, t float32) [3]float32 { return [3]float32{s, -1, -t} },
		func(s, t float32) [3]float32 { return [3]float32{s, -t, 1} },
		func(s, t float32) [3]float32 { return [3]float32{-s, -t, -1} },
	}
	for _, array := range []bool{false, true} {
		layers, name, coordinates, words := 6, "cube", "{%f1, %f2, %f3, %f3}", 3
		if array {
			layers, name, coordinates, words = 18, "acube", "{%r1, %f2, %f3, %f4}", 4
		}
		m := d.image(r, TexelF32, 4, n, n, 0, layers)
		for _, filter := range []bool{false, true} {
			tex := &Texture{Levels: []Image{m}, Filter: filter, Normalized: true,
				Mode: [3]AddressMode{AddressClamp, AddressClamp, AddressClamp}}
			var coords []uint32
			var want [][3]int // column, row, layer
			for cube := range layers / 6 {
				for face, at := range faces {
					i, j := r.IntN(n), r.IntN(n)
					v := at((float32(i)+0.5)/n*2-1, (float32(j)+0.5)/n*2-1)
					if array {
						coords = append(coords, uint32(cube))
					}
					for _, x := range v {
						coords = append(coords, math.Float32bits(x*3))
					}
					want = append(want, [3]int{i, j, 6*cube + face})
				}
			}
			for k, got := range d.fetch(fetchKernel("tex."+name+".v4.f32.f32", coordinates, words, ""),
				tex, coords, words) {
				for c := range 4 {
					if x := d.element(&m, false, want[k][0], want[k][1], want[k][2], c); math.Abs(
						float64(math.Float32frombits(got[c]))-x) > 1e-6 {
						t.Fatalf("%s filter %v: texel %v channel %d: %v, want %v", name, filter, want[k], c,
							math.Float32frombits(got[c]), x)
					}
				}
			}
		}
	}
}

func TestTextureQueries(t *testing.T) {
	d := newDevice(t, 4)
	m := d.image(rand.New(rand.NewPCG(7, 8)), TexelU8, 2, 12, 10, 0, 6)
	tex := &Texture{Levels: []Image{m, m}, Filter: true, ReadFloat: true, Normalized: true,
		Mode: [3]AddressMode{AddressMirror, AddressBorder}}
	if err := d.space.SetTexture(textureHandle, tex); err != nil {
		t.Fatal(err)
	}
	if err := d.space.SetSurface(textureHandle, &m); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	var want []uint32
	for _, q := range []struct {
		inst string
		want uint32
	}{
		{"txq.width", 12}, {"txq.height", 10}, {"txq.array_size", 6}, {"txq.channel_data_type", 0x10d2},
		{"txq.channel_order", 0x10b2},
		{"txq.normalized_coords", 1}, {"txq.num_mipmap_levels", 2}, {"txq.filter_mode", 1},
		{"txq.addr_mode_0", 1}, {"txq.addr_mode_1", 4},
		{"suq.width", 12}, {"suq.height", 10}, {"suq.array_size", 6},
		{"suq.channel_data_type", 0x10da}, {"suq.memory_layout", 0},
	} {
		fmt.Fprintf(&b, "\t%s.b32 %%r1, [%%rd1];\n\tst.global.u32 [%%rd2+%d], %%r1;\n", q.inst, 4*len(want))
		want = append(want, q.want)
	}
	in := d.load(header + ".visible .entry k(.param .u64 h, .param .u64 out)\n{\n\t.reg .b32 %r<2>;\n" +
		"\t.reg .b64 %rd<3>;\n\tld.param.u64 %rd1, [h];\n\tld.param.u64 %rd2, [out];\n" + b.String() + "\tret;\n}\n")
	out := d.alloc(256)
	d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(uint64(textureHandle), out)})
	for i, x := range view[uint32](d, out, len(want)) {
		if x != want[i] {
			t.Errorf("query %d: %#x, want %#x", i, x, want[i])
		}
	}
	d.fails(in, "k", LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(uint64(99), out)}, FaultUnmapped)
}

const surfaceKernels = header + `.visible .entry copy(.param .u64 from, .param .u64 to)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [from];
	ld.param.u64 %rd2, [to];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %tid.y;
	shl.b32 %r3, %r1, 3;
	suld.b.2d.v2.b32.trap {%r4, %r5}, [%rd1, {%r3, %r2}];
	sust.b.2d.v2.b32.trap [%rd2, {%r3, %r2}], {%r5, %r4};
	ret;
}
.visible .entry edge(.param .u64 s, .param .u32 x, .param .u32 y, .param .u64 out)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [s];
	ld.param.u32 %r1, [x];
	ld.param.u32 %r2, [y];
	ld.param.u64 %rd2, [out];
	suld.b.2d.b32.clamp %r3, [%rd1, {%r1, %r2}];
	suld.b.2d.b32.zero %r4, [%rd1, {%r1, %r2}];
	sust.b.2d.b32.zero [%rd1, {%r1, %r2}], %r4;
	st.global.v2.u32 [%rd2], {%r3, %r4};
	suld.b.2d.b32.trap %r3, [%rd1, {%r1, %r2}];
	ret;
}
.visible .entry layers(.param .u64 s)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [s];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %tid.y;
	sust.p.a1d.b32.trap [%rd1, {%r2, %r1}], 300;
	sust.b.a1d.b8.zero [%rd1, {%r2, 2}], %r2;
	ret;
}
.visible .entry reduce(.param .u64 s, .param .u64 t)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [s];
	ld.param.u64 %rd2, [t];
	mov.u32 %r1, %tid.x;
	and.b32 %r2, %r1, 3;
	shl.b32 %r3, %r2, 2;
	sured.b.add.1d.u32.trap [%rd1, {%r3}], %r1;
	sured.p.max.1d.b32.trap [%rd2, {%r2}], %r1;
	ret;
}
`

func TestSurfaces(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	d := newDevice(t, 8)
	in := d.load(surfaceKernels)
	surface := func(h uint64, m Image) *Image {
		t.Helper()
		if err := d.space.SetSurface(h, &m); err != nil {
			t.Fatal(err)
		}
		return &m
	}
	from, to := surface(1, d.image(r, TexelF32, 2, 8, 4, 0, 0)), surface(2, d.image(r, TexelF32, 2, 8, 4, 0, 0))
	d.run(in, "copy", LaunchConfig{Grid: dims(1), Block: dims(8, 4), Params: params(uint64(1), uint64(2))})
	for y := range 4 {
		for x := range 8 {
			for c := range 2 {
				if a, b := d.element(from, false, x, y, 0, c), d.element(to, false, x, y, 0, 1-c); a != b {
					t.Fatalf("texel %d,%d channel %d: %v, want %v", x, y, c, b, a)
				}
			}
		}
	}
	d.fails(in, "copy", LaunchConfig{Grid: dims(1), Block: dims(9, 4), Params: params(uint64(1), uint64(2))}, FaultTrap)
	d.fails(in, "copy",
		LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(uint64(1), uint64(3))}, FaultUnmapped)

	word := surface(3, d.image(r, TexelU32, 1, 5, 3, 0, 0))
	out := d.alloc(8)
	for _, c := range []struct{ x, y, tx, ty int }{{-4, 1, 0, 1}, {20, 1, 4, 1}, {8, -1, 2, 0}, {8, 3, 2, 2}} {
		before := d.element(word, false, c.tx, c.ty, 0, 0)
		d.fails(in, "edge",
			LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(uint64(3), c.x, c.y, out)}, FaultTrap)
		if got := view[uint32](d, out, 2); float64(got[0]) != before || got[1] != 0 ||
			d.element(word, false, c.tx, c.ty, 0, 0) != before {
			t.Errorf("%d,%d: %v, want %v and 0", c.x, c.y, got, before)
		}
	}
	d.fails(in, "edge",
		LaunchConfig{Grid: dims(1), Block: dims(1), Params: params(uint64(3), 2, 0, out)}, FaultMisaligned)

	bytes := surface(4, d.image(r, TexelU8, 1, 6, 0, 0, 3))
	d.run(in, "layers", LaunchConfig{Grid: dims(1), Block: dims(6, 3), Params: params(uint64(4))})
	for layer := range 3 {
		for x := range 6 {
			want := 255.0
			if x == 2 {
				want = float64(layer)
			}
			if got := d.element(bytes, false, x, 0, layer, 0); got != want {
				t.Errorf("layer %d texel %d: %v, want %v", layer, x, got, want)
			}
		}
	}

	sum, top := d.image(r, TexelU32, 1, 4, 0, 0, 0), d.image(r, TexelS32, 1, 4, 0, 0, 0)
	clear(view[uint32](d, sum.Address, 4))
	copy(view[int32](d, top.Address, 4), []int32{-1, -1, -1, 1000})
	surface(5, sum)
	surface(6, top)
	d.run(in, "reduce", LaunchConfig{Grid: dims(1), Block: dims(64), Params: params(uint64(5), uint64(6))})
	for k := range uint32(4) {
		wantTop := int32(60 + k)
		if k == 3 {
			wantTop = 1000
		}
		if got := view[uint32](d, sum.Address, 4)[k]; got != 480+16*k {
			t.Errorf("sum %d: %d", k, got)
		}
		if got := view[int32](d, top.Address, 4)[k]; got != wantTop {
			t.Errorf("max %d: %d", k, got)
		}
	}
}

// An observer sees what textures and surfaces read and write, texel by texel.
func TestImagesAreObserved(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	d := newDevice(t, 4)
	from, to := d.image(r, TexelF32, 2, 8, 4, 0, 0), d.image(r, TexelF32, 2, 8, 4, 0, 0)
	for h, m := range map[uint64]*Image{1: &from, 2: &to} {
		if err := d.space.SetSurface(h, m); err != nil {
			t.Fatal(err)
		}
	}
	rows := func(m *Image, width uint64) (list []Range) {
		for y := range uint64(m.Height) {
			list = append(list, Range{Addr: m.Address + y*m.Pitch, Len: width * m.texel()})
		}
		return list
	}
	var o Observer
	d.run(d.load(surfaceKernels), "copy",
		LaunchConfig{Grid: dims(1), Block: dims(8, 4), Params: params(uint64(1), uint64(2)), Observer: &o})
	if got := o.Ranges(Read, Written); !slices.Equal(got, rows(&from, 8)) {
		t.Errorf("read: %v, want %v", got, rows(&from, 8))
	}
	if got := o.Ranges(Written, Read); !slices.Equal(got, rows(&to, 8)) {
		t.Errorf("written: %v, want %v", got, rows(&to, 8))
	}
	// A linear filter between the first two texels of each row.
	if err := d.space.SetTexture(textureHandle, &Texture{Levels: []Image{from}, Filter: true}); err != nil {
		t.Fatal(err)
	}
	coords := upload(d, floatBits([]float32{1, 0.5, 1, 1.5, 1, 2.5, 1, 3.5}))
	out := d.alloc(64)
	d.run(d.load(fetchKernel("tex.2d.v4.f32.f32", "{%f1, %f2}", 2, "")), "k",
		LaunchConfig{Grid: dims(1), Block: dims(4), Params: params(uint64(textureHandle), coords, out), Observer: &o})
	if got := o.Ranges(Read, Written); !slices.Equal(got, append(rows(&from, 2), Range{Addr: coords, Len: 32})) {
		t.Errorf("sampled: %v, want %v and the coordinates", got, rows(&from, 2))
	}
}
