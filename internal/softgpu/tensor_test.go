package softgpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/internal/softgpu/number"
)

// tensorKernel runs one instruction on registers that it loads from p: word w of
// lane l of the operands in order lies at 8·(32w + l); nd words go to q likewise.
// text has %D, %A, %B and %C for the operands.
func tensorKernel(text string, wide bool, nd, na, nb, nc int) string {
	var b strings.Builder
	typ, reg := "b32", "%r"
	if wide {
		typ, reg = "b64", "%rd"
	}
	fmt.Fprintf(&b, "%s.visible .entry k(.param .u64 p, .param .u64 q)\n{\n\t.reg .b32 %%r<300>;\n"+
		"\t.reg .b64 %%rd<300>;\n\t.reg .pred %%p<3>;\n", header)
	b.WriteString("\tld.param.u64 %rd290, [p];\n\tld.param.u64 %rd291, [q];\n\tmov.u32 %r290, %laneid;\n" +
		"\tmul.wide.u32 %rd292, %r290, 8;\n\tadd.u64 %rd290, %rd290, %rd292;\n\tadd.u64 %rd291, %rd291, %rd292;\n")
	for i := range na + nb + nc {
		fmt.Fprintf(&b, "\tld.global.%s %s%d, [%%rd290+%d];\n", typ, reg, i, 256*i)
	}
	list := func(from, n int) string {
		var el []string
		for i := range n {
			el = append(el, fmt.Sprintf("%s%d", reg, from+i))
		}
		return "{" + strings.Join(el, ", ") + "}"
	}
	const d = 100
	fmt.Fprintf(&b, "\t%s;\n", strings.NewReplacer("%D", list(d, nd), "%A", list(0, na), "%B", list(na, nb), "%C",
		list(na+nb, nc)).Replace(text))
	for i := range nd {
		fmt.Fprintf(&b, "\tst.global.%s [%%rd291+%d], %s%d;\n", typ, 256*i, reg, d+i)
	}
	b.WriteString("\tret;\n}\n")
	return b.String()
}

// numberFormat is a type of matrix elements in a test: how to make a random one.
type numberFormat struct {
	bits int
	// random gives the bits of a number and its value
	random func(r *rand.Rand) (uint64, float64)
}

func smallFormatOf(e, m uint) numberFormat {
	return numberFormat{int(1 + e + m), func(r *rand.Rand) (uint64, float64) {
		bias := uint64(1)<<(e-1) - 1
		exp := bias + uint64(r.IntN(5)) - 2
		x := uint64(r.IntN(2))<<(e+m) | exp<<m | r.Uint64N(1<<m)
		v := (1 + float64(x&(1<<m-1))/float64(uint64(1)<<m)) * math.Pow(2, float64(int64(exp)-int64(bias)))
		if x>>(e+m) != 0 {
			v = -v
		}
		return x, v
	}}
}

func integerFormat(bits int, signed bool) numberFormat {
	return numberFormat{bits, func(r *rand.Rand) (uint64, float64) {
		x := r.Uint64N(1 << bits)
		if r.IntN(4) == 0 {
			x = 1 << (bits - 1) // the extreme
		}
		v := float64(x)
		if signed && x>>(bits-1) != 0 {
			v -= float64(uint64(1) << bits)
		}
		return x, v
	}}
}

var numberFormats = map[string]numberFormat{
	"f16": smallFormatOf(5, 10), "bf16": smallFormatOf(8, 7), "e4m3": smallFormatOf(4, 3), "e5m2": smallFormatOf(5, 2),
	"tf32": {32, func(r *rand.Rand) (uint64, float64) {
		x, v := smallFormatOf(8, 10).random(r)
		return x<<13 | r.Uint64N(1<<13), v // the low bits are ignored
	}},
	"f32": {32, func(r *rand.Rand) (uint64, float64) {
		v := float32(r.NormFloat64())
		return uint64(math.Float32bits(v)), float64(v)
	}},
	"f64": {64, func(r *rand.Rand) (uint64, float64) { v := r.NormFloat64(); return math.Float64bits(v), v }},
	"s8":  integerFormat(8, true), "u8": integerFormat(8, false), "s4": integerFormat(4, true),
	"u4":  integerFormat(4, false),
	"s32": integerFormat(32, true), "b1": integerFormat(1, false),
}

// tolerance is half an ulp of v in format typ, and what float64 sums may add.
func tolerance(typ string, v, magnitude float64) float64 {
	half := map[string]float64{"f16": math.Pow(2, -11), "f32": math.Pow(2, -24), "f64": 0}[typ]
	floor := map[string]float64{"f16": math.Pow(2, -25), "f32": math.Pow(2, -150)}[typ]
	return math.Abs(v)*half + floor + magnitude*math.Pow(2, -48)
}

// valueOf decodes a result.
func valueOf(typ string, x uint64) float64 {
	switch typ {
	case "f16":
		x &= 0xffff
		v := (1 + float64(x&0x3ff)/1024) * math.Pow(2, float64(x>>10&31)-15)
		if x>>10&31 == 0 {
			v = float64(x&0x3ff) / 1024 * math.Pow(2, -14)
		}
		if x>>10&31 == 31 {
			v = math.Inf(1)
		}
		if x>>15 != 0 {
			v = -v
		}
		return v
	case "f32":
		return float64(math.Float32frombits(uint32(x)))
	case "f64":
		return math.Float64frombits(x)
	}
	return float64(int32(uint32(x)))
}

// A mmaCase has the place of element i of lane in each fragment, as the PTX ISA writes it.
type mmaCase struct {
	shape, mods string
	types       string // d a b c
	suffix      string
	a, b, c     func(lane, i int) (row, col int)
}

func mmaCases() []mmaCase {
	var cs []mmaCase
	// C of all m16n8 shapes, and of m8n8.
	c16 := func(lane, i int) (int, int) {
		row := lane >> 2
		if i >= 2 {
			row += 8
		}
		return row, lane%4*2 + i&1
	}
	c8 := func(lane, i int) (int, int) { return lane >> 2, lane%4*2 + i&1 }
	add := func(shape, types string, a, b, c func(lane, i int) (int, int)) {
		cs = append(cs, mmaCase{shape: shape, mods: "row.col", types: types, a: a, b: b, c: c})
	}
	// 9.7.14.5.7, .8: m16n8k8 and m16n8k16 of 16-bit elements
	a168 := func(lane, i int) (int, int) {
		row := lane >> 2
		if i >= 2 {
			row += 8
		}
		return row, lane%4*2 + i&1
	}
	b168 := func(lane, i int) (int, int) { return lane%4*2 + i, lane >> 2 }
	a1616 := func(lane, i int) (int, int) {
		row := lane >> 2
		if !(i < 2 || i >= 4 && i < 6) {
			row += 8
		}
		col := lane%4*2 + i&1
		if i >= 4 {
			col += 8
		}
		return row, col
	}
	b1616 := func(lane, i int) (int, int) {
		row := lane%4*2 + i&1
		if i >= 2 {
			row += 8
		}
		return row, lane >> 2
	}
	for _, t := range []string{"f32 f16 f16 f32", "f16 f16 f16 f16", "f32 bf16 bf16 f32"} {
		add("m16n8k8", t, a168, b168, c16)
		add("m16n8k16", t, a1616, b1616, c16)
	}
	// tf32
	add("m16n8k4", "f32 tf32 tf32 f32", func(lane, i int) (int, int) { return lane>>2 + 8*i, lane % 4 },
		func(lane, i int) (int, int) { return lane % 4, lane >> 2 }, c16)
	a8tf := func(lane, i int) (int, int) {
		row, col := lane>>2, lane%4
		if i == 1 || i == 3 {
			row += 8
		}
		if i >= 2 {
			col += 4
		}
		return row, col
	}
	b8tf := func(lane, i int) (int, int) { return lane%4 + 4*i, lane >> 2 }
	add("m16n8k8", "f32 tf32 tf32 f32", a8tf, b8tf, c16)
	// f64
	f64 := "f64 f64 f64 f64"
	add("m8n8k4", f64, func(lane, i int) (int, int) { return lane >> 2, lane % 4 },
		func(lane, i int) (int, int) { return lane % 4, lane >> 2 }, c8)
	add("m16n8k4", f64, func(lane, i int) (int, int) { return lane>>2 + 8*i, lane % 4 },
		func(lane, i int) (int, int) { return lane % 4, lane >> 2 }, c16)
	add("m16n8k8", f64, a8tf, b8tf, c16)
	add("m16n8k16", f64, func(lane, i int) (int, int) {
		row := lane >> 2
		if i%2 != 0 {
			row += 8
		}
		return row, i*2 - i%2*2 + lane%4
	}, func(lane, i int) (int, int) { return lane%4 + 4*i, lane >> 2 }, c16)
	// 8-bit
	a816 := func(lane, i int) (int, int) { return lane >> 2, lane%4*4 + i }
	b816 := func(lane, i int) (int, int) { return lane%4*4 + i, lane >> 2 }
	a16816 := func(lane, i int) (int, int) {
		row := lane >> 2
		if i >= 4 {
			row += 8
		}
		return row, lane%4*4 + i&3
	}
	a1632 := func(lane, i int) (int, int) {
		row := lane >> 2
		if !(i < 4 || i >= 8 && i < 12) {
			row += 8
		}
		col := lane%4*4 + i&3
		if i >= 8 {
			col += 16
		}
		return row, col
	}
	b1632 := func(lane, i int) (int, int) {
		row := lane%4*4 + i&3
		if i >= 4 {
			row += 16
		}
		return row, lane >> 2
	}
	for _, t := range []string{"s32 s8 s8 s32", "s32 u8 s8 s32", "s32 s8 u8 s32", "s32 u8 u8 s32"} {
		add("m8n8k16", t, a816, b816, c8)
		add("m16n8k16", t, a16816, b816, c16)
		add("m16n8k32", t, a1632, b1632, c16)
	}
	for _, t := range []string{"f32 e4m3 e5m2 f32", "f16 e5m2 e4m3 f16", "f32 e4m3 e4m3 f32"} {
		add("m16n8k16", t, a16816, b816, c16)
		add("m16n8k32", t, a1632, b1632, c16)
	}
	// 4-bit
	for _, t := range []string{"s32 s4 s4 s32", "s32 u4 s4 s32", "s32 u4 u4 s32"} {
		add("m8n8k32", t, func(lane, i int) (int, int) { return lane >> 2, lane%4*8 + i },
			func(lane, i int) (int, int) { return lane%4*8 + i, lane >> 2 }, c8)
		add("m16n8k32", t, func(lane, i int) (int, int) {
			row := lane >> 2
			if i >= 8 {
				row += 8
			}
			return row, lane%4*8 + i&7
		}, func(lane, i int) (int, int) { return lane%4*8 + i, lane >> 2 }, c16)
		add("m16n8k64", t, func(lane, i int) (int, int) {
			row := lane >> 2
			if !(i < 8 || i >= 16 && i < 24) {
				row += 8
			}
			col := lane%4*8 + i&7
			if i >= 16 {
				col += 32
			}
			return row, col
		}, func(lane, i int) (int, int) {
			row := lane%4*8 + i&7
			if i >= 8 {
				row += 32
			}
			return row, lane >> 2
		}, c16)
	}
	// 1-bit
	for _, op := range []string{".xor.popc", ".and.popc"} {
		n := len(cs)
		t := "s32 b1 b1 s32"
		add("m8n8k128", t, func(lane, i int) (int, int) { return lane >> 2, lane%4*32 + i },
			func(lane, i int) (int, int) { return lane%4*32 + i, lane >> 2 }, c8)
		add("m16n8k128", t, func(lane, i int) (int, int) {
			row := lane >> 2
			if i >= 32 {
				row += 8
			}
			return row, lane%4*32 + i&31
		}, func(lane, i int) (int, int) { return lane%4*32 + i, lane >> 2 }, c16)
		add("m16n8k256", t, func(lane, i int) (int, int) {
			row := lane >> 2
			if !(i < 32 || i >= 64 && i < 96) {
				row += 8
			}
			col := lane%4*32 + i&31
			if i >= 64 {
				col += 128
			}
			return row, col
		}, func(lane, i int) (int, int) {
			row := lane%4*32 + i&31
			if i >= 32 {
				row += 128
			}
			return row, lane >> 2
		}, c16)
		for i := n; i < len(cs); i++ {
			cs[i].suffix = op
		}
	}
	return cs
}

// fill makes a random matrix of a format: bits and values, row after row.
func fill(r *rand.Rand, f numberFormat, n int) ([]uint64, []float64) {
	bits, vals := make([]uint64, n), make([]float64, n)
	for i := range bits {
		bits[i], vals[i] = f.random(r)
	}
	return bits, vals
}

// packFragment puts matrix elements into registers, 8 bytes a lane and register.
func packFragment(bits []uint64, cols, elemBits, regs int, at func(lane, i int) (int, int)) []uint64 {
	width := max(32, elemBits)
	per := width / elemBits
	out := make([]uint64, 32*regs)
	for lane := range 32 {
		for i := range regs * per {
			row, col := at(lane, i)
			out[i/per*32+lane] |= bits[row*cols+col] << (i % per * elemBits)
		}
	}
	return out
}

func TestMMA(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	d := newDevice(t, 4)
	for _, c := range mmaCases() {
		typ := strings.Fields(c.types)
		for _, extra := range []string{"", ".satfinite", ".rz"} {
			if extra == ".satfinite" && (typ[0] != "s32" || typ[1] == "b1") || extra == ".rz" && typ[0] != "f64" {
				continue
			}
			name := fmt.Sprintf("mma.sync.aligned.%s.%s%s.%s%s", c.shape, c.mods, extra,
				strings.Join(typ, "."), c.suffix)
			var m, n, k int
			fmt.Sscanf(c.shape, "m%dn%dk%d", &m, &n, &k)
			fd, fa, fb, fc := numberFormats[typ[0]], numberFormats[typ[1]], numberFormats[typ[2]], numberFormats[typ[3]]
			regs := func(elems, bits int) int { return elems * bits / 32 / max(32, bits) }
			nd, na, nb, nc := regs(m*n, fd.bits), regs(m*k, fa.bits), regs(k*n, fb.bits), regs(m*n, fc.bits)
			in := d.load(tensorKernel(name+" %D, %A, %B, %C", typ[0] == "f64", nd, na, nb, nc))
			ab, av := fill(r, fa, m*k)
			bb, bv := fill(r, fb, k*n)
			cb, cv := fill(r, fc, m*n)
			words := packFragment(ab, k, fa.bits, na, c.a)
			words = append(words, packFragment(bb, n, fb.bits, nb, c.b)...)
			words = append(words, packFragment(cb, n, fc.bits, nc, c.c)...)
			p, q := upload(d, words), d.alloc(uint64(nd)*256)
			d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(32), Params: params(p, q)})
			out := view[uint64](d, q, nd*32)
			per := max(32, fd.bits) / fd.bits
			for lane := range 32 {
				for i := range nd * per {
					row, col := c.c(lane, i)
					want, mag := cv[row*n+col], math.Abs(cv[row*n+col])
					for x := range k {
						p := av[row*k+x] * bv[x*n+col]
						if c.suffix == ".xor.popc" {
							p = math.Abs(av[row*k+x] - bv[x*n+col])
						}
						want += p
						mag += math.Abs(p)
					}
					got := valueOf(typ[0], out[i/per*32+lane]>>(i%per*fd.bits))
					tol := tolerance(typ[0], want, mag)
					if typ[0] == "s32" {
						tol = 0
						if extra == ".satfinite" {
							want = min(max(want, math.MinInt32), math.MaxInt32)
						} else {
							want = float64(int32(int64(want)))
						}
					}
					if math.Abs(got-want) > tol {
						t.Fatalf("%s: row %d, column %d: %v, want %v ± %v", name, row, col, got, want, tol)
					}
				}
			}
		}
	}
}

// mma.m8n8k4 of f16: four products at a time (PTX ISA 9.7.14.5.1).
func TestMMAVolta(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	d := newDevice(t, 4)
	f := numberFormats["f16"]
	for _, la := range []string{"row", "col"} {
		for _, lb := range []string{"row", "col"} {
			for _, dc := range [][2]string{{"f16", "f16"}, {"f32", "f32"}, {"f32", "f16"}} {
				regs := map[string]int{"f16": 4, "f32": 8}
				nd, nc := regs[dc[0]], regs[dc[1]]
				in := d.load(tensorKernel(fmt.Sprintf("mma.sync.aligned.m8n8k4.%s.%s.%s.f16.f16.%s %%D, %%A, %%B, %%C",
					la, lb, dc[0], dc[1]), false, nd, 2, 2, nc))
				words := make([]uint64, 32*(4+nc))
				var av, bv [4][32]float64
				var cv [4][64]float64
				// quad pair p has lanes 4p..4p+3 and 16+4p..16+4p+3
				placeC := func(typ string, lane, i int) (row, col int) {
					if typ == "f16" {
						row = lane % 4
						if lane >= 16 {
							row += 4
						}
						return row, i
					}
					x := lane&1 + i&2
					if lane >= 16 {
						x += 4
					}
					return x, i&4 + lane&2 + i&1
				}
				for lane := range 32 {
					p := lane / 4 % 4
					hi := 0
					if lane >= 16 {
						hi = 4
					}
					for i := range 4 {
						x, v := f.random(r)
						words[i/2*32+lane] |= x << (16 * (i % 2))
						if la == "row" {
							av[p][(lane%4+hi)*4+i] = v
						} else {
							av[p][(i+hi)*4+lane%4] = v
						}
						x, v = f.random(r)
						words[(2+i/2)*32+lane] |= x << (16 * (i % 2))
						if lb == "row" {
							bv[p][lane%4*8+i+hi] = v
						} else {
							bv[p][i*8+lane%4+hi] = v
						}
					}
					for i := range 8 {
						row, col := placeC(dc[1], lane, i)
						x, v := numberFormats[dc[1]].random(r)
						if dc[1] == "f16" {
							words[(4+i/2)*32+lane] |= x << (16 * (i % 2))
						} else {
							words[(4+i)*32+lane] = x
						}
						cv[p][row*8+col] = v
					}
				}
				p, q := upload(d, words), d.alloc(uint64(nd)*256)
				d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(32), Params: params(p, q)})
				out := view[uint64](d, q, nd*32)
				for lane := range 32 {
					for i := range 8 {
						row, col := placeC(dc[0], lane, i)
						s := lane / 4 % 4
						want := cv[s][row*8+col]
						mag := math.Abs(want)
						for x := range 4 {
							want += av[s][row*4+x] * bv[s][x*8+col]
							mag += math.Abs(av[s][row*4+x] * bv[s][x*8+col])
						}
						word := out[i*32%(nd*32)+lane]
						if dc[0] == "f16" {
							word = out[i/2*32+lane] >> (16 * (i % 2))
						}
						if got := valueOf(dc[0], word); math.Abs(got-want) > tolerance(dc[0], want, mag) {
							t.Fatalf("%s %s %v: set %d row %d column %d: %v, want %v", la, lb,
								dc, s, row, col, got, want)
						}
					}
				}
			}
		}
	}
}

// Infinities, NaNs and overflow.
func TestMMASpecial(t *testing.T) {
	d := newDevice(t, 4)
	run := func(text string, nd, na, nb, nc int, a, b, c uint64) uint64 {
		in := d.load(tensorKernel(text+" %D, %A, %B, %C", false, nd, na, nb, nc))
		words := make([]uint64, 32*(na+nb+nc))
		for i := range words {
			switch {
			case i < 32*na:
				words[i] = a
			case i < 32*(na+nb):
				words[i] = b
			default:
				words[i] = c
			}
		}
		p, q := upload(d, words), d.alloc(uint64(nd)*256)
		d.run(in, "k", LaunchConfig{Grid: dims(1), Block: dims(32), Params: params(p, q)})
		return view[uint64](d, q, 1)[0] & 0xffffffff
	}
	const f16 = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"
	const f32 = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
	for _, c := range []struct {
		name    string
		text    string
		nd      int
		a, b, c uint64
		want    uint64
	}{
		{"largest × largest overflows", f16, 2, 0x7bff7bff, 0x7bff7bff, 0, 0x7c007c00},
		{"inf × 0", f16, 2, 0x7c007c00, 0, 0, 0x7fff7fff},
		{"inf × 0 in f32", f32, 4, 0x7c007c00, 0, 0, 0x7fffffff},
		{"NaN in C", f32, 4, 0, 0, 0xffc12345, 0x7fffffff},
		{"inf in C", f32, 4, 0x3c003c00, 0x3c003c00, 0x7f800000, 0x7f800000},
		{"subnormals are kept", f32, 4, 0x00010001, 0x3c003c00, 0, 0x35000000}, // 8 × 2^-24
		{"-0 + 0 products", f32, 4, 0, 0, 0x80000000, 0},
	} {
		if got := run(c.text, c.nd, 2, 1, c.nd, c.a, c.b, c.c); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

// f16Value against the general conversion, for all numbers.
func TestF16Value(t *testing.T) {
	for x := range uint64(1 << 16) {
		got, want := f16Value(x), number.SmallValue(uint32(x), 5, 10)
		if math.Float64bits(got) != math.Float64bits(want) && want == want || got == got && want != want {
			t.Fatalf("%#x: %v, want %v", x, got, want)
		}
	}
}
