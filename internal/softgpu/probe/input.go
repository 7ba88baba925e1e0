package probe

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
)

// Input makes the input array of one round. Round 0 holds combinations of edge values (of matrix
// fragments: small whole numbers, whose sums are exact), later rounds are random with edges mixed in.
func (p *Probe) Input(seed uint64, round int) []byte {
	h := fnv.New64a()
	h.Write([]byte(p.ID()))
	r := rand.New(rand.NewPCG(seed, h.Sum64()+uint64(round)))
	out := make([]byte, p.InBytes())
	stride := p.InStride()
	edges := make([][]uint64, len(p.In))
	for i, f := range p.In {
		if round == 0 {
			edges[i] = edgesOf(f.Type)
		}
	}
	for th := range p.NumThreads() {
		at, operand := th*stride, 0
		combination := th * 967 % Threads // all of them, in an order whose beginning is mixed
		for i, f := range p.In {
			for range f.Count {
				var x uint64
				if n := len(edges[i]); n > 0 && operand < 2 {
					x = edges[i][combination%n]
					combination /= n
				} else {
					x = value(r, f.Type, round)
				}
				operand++
				switch f.Bytes {
				case 1:
					out[at] = byte(x)
				case 2:
					binary.LittleEndian.PutUint16(out[at:], uint16(x))
				case 4:
					binary.LittleEndian.PutUint32(out[at:], uint32(x))
				default:
					binary.LittleEndian.PutUint64(out[at:], x)
				}
				at += f.Bytes
			}
		}
	}
	return out
}

// Output makes what the output array holds before the launch.
func (p *Probe) Output(seed uint64, round int) []byte {
	h := fnv.New64a()
	h.Write([]byte(p.ID()))
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], h.Sum64())
	key[16] = byte(round) + 1
	out := make([]byte, p.OutBytes())
	_, _ = rand.NewChaCha8(key).Read(out) // never fails
	return out
}

// Params is what the third parameter holds.
func (p *Probe) Params() []byte {
	b := make([]byte, p.Extra)
	for i := range b {
		b[i] = byte(i*37 + 11)
	}
	return b
}

// A format is a binary floating-point format.
type format struct{ e, m int }

var formats = map[string]format{"f16": {5, 10}, "bf16": {8, 7}, "f32": {8, 23}, "f64": {11, 52}, "tf32": {8, 10},
	"e4m3": {4, 3}, "e5m2": {5, 2}}

func (f format) bias() uint64 { return 1<<(f.e-1) - 1 }
func (f format) sign() uint64 { return 1 << (f.e + f.m) }
func (f format) inf() uint64  { return (1<<f.e - 1) << f.m }

// edges are magnitudes around every change of behaviour: zero, the denormals, one, the range of
// integers, the largest, infinity and NaN, quiet and signalling with payloads.
func (f format) edges() [22]uint64 {
	one := f.bias() << f.m
	return [...]uint64{0, 1, 2, 1<<f.m - 1, 1 << f.m, 1<<f.m + 1, one, one - 1, one + 1, one + 1<<f.m, one + 3<<(f.m-1),
		f.inf() - 1, f.inf(), f.inf() + 1,
		f.inf() | 1<<(f.m-1), f.inf() | 1<<(f.m-1) | 1, f.inf() - 1<<f.m, one - uint64(f.m)<<f.m,
		one + uint64(f.m)<<f.m, one - 1<<f.m, one - 1<<f.m + 1, one - 1<<f.m - 1}
}

func widthOf(typ string) int {
	for _, w := range []struct {
		suffix string
		n      int
	}{{"16x2", 32}, {"8x4", 32}, {"8x2", 16}, {"32x2", 64}, {"64", 64}, {"32", 32}, {"16", 16}, {"8", 8}} {
		if strings.HasSuffix(typ, w.suffix) {
			return w.n
		}
	}
	return 32
}

func intEdges(w int) [31]uint64 {
	one := uint64(1)
	return [...]uint64{0, 1, 2, 3, ^uint64(0), ^uint64(0) - 1, one << (w - 1), one<<(w-1) - 1, one<<(w-1) + 1, 7, 8, 15,
		16, 17, 24, 31, 32, 33, 63, 64, 65, 0x7f, 0x80, 0xff, 0x100,
		one << (w / 2), one<<(w/2) - 1, one<<(w/2) + 1, 0x7f80_7f80_7f80_7f80,
		0x8080_8080_8080_8080, 0x0101_0101_0101_0101}
}

// edgesOf lists edge values of a type, nil if it has none.
func edgesOf(typ string) []uint64 {
	if f, ok := formats[typ]; ok {
		var all []uint64
		for _, x := range f.edges() {
			all = append(all, x, x|f.sign())
		}
		return all
	}
	switch {
	case typ == "pred", typ == "zero", typ == "few", strings.HasPrefix(typ, "m:"), strings.HasPrefix(typ, "oob:"),
		strings.HasPrefix(typ, "sparse"), strings.Contains(typ, "x"):
		return nil
	}
	all := intEdges(widthOf(typ))
	return all[:]
}

// value makes one value of a type. The types are those of PTX; "few" are numbers below 4, "angle" is an f32 of
// some turns, "oob:" before a format mixes in the NaN of tensor copies, "m:" before a format makes elements of
// matrices, as many as fit 32 bits.
func value(r *rand.Rand, typ string, round int) uint64 {
	if elem, ok := strings.CutPrefix(typ, "m:"); ok {
		return matrixValue(r, elem, round)
	}
	if elem, ok := strings.CutPrefix(typ, "oob:"); ok {
		elem, two := strings.CutSuffix(elem, "x2")
		one := func() uint64 {
			if r.IntN(4) == 0 {
				return 0x7ff7 | r.Uint64()&0x8000
			}
			return floatValue(r, formats[elem])
		}
		if two {
			return one()&0xffff | one()<<16
		}
		return one()
	}
	switch typ {
	case "zero":
		return 0
	case "sparse 2:4", "sparse 1:2": // four bits a group: two places out of four, or one half out of two
		places := []uint64{0x4, 0x8, 0xc, 0x9, 0xd, 0xe}
		if typ == "sparse 1:2" {
			places = []uint64{0x4, 0xe}
		}
		var x uint64
		for i := range 8 {
			x |= places[r.IntN(len(places))] << (4 * i)
		}
		return x
	case "few":
		return r.Uint64N(4)
	case "pred":
		return r.Uint64N(2)
	case "angle":
		return uint64(math.Float32bits((r.Float32() - 0.5) * 4 * math.Pi))
	case "f16x2", "bf16x2":
		f := formats[strings.TrimSuffix(typ, "x2")]
		return floatValue(r, f)&0xffff | floatValue(r, f)<<16
	case "f32x2":
		return floatValue(r, formats["f32"])&0xffffffff | floatValue(r, formats["f32"])<<32
	case "u16x2", "s16x2":
		return intValue(r, 16)&0xffff | intValue(r, 16)<<16
	case "u8x4", "s8x4":
		return intValue(r, 8)&0xff | intValue(r, 8)&0xff<<8 | intValue(r, 8)&0xff<<16 | intValue(r, 8)&0xff<<24
	}
	if f, ok := formats[typ]; ok {
		return floatValue(r, f)
	}
	return intValue(r, widthOf(typ))
}

func intValue(r *rand.Rand, w int) uint64 {
	edges := intEdges(w)
	switch r.IntN(4) {
	case 0:
		return edges[r.IntN(len(edges))]
	case 1:
		return r.Uint64() >> r.IntN(64)
	}
	return r.Uint64()
}

func floatValue(r *rand.Rand, f format) uint64 {
	sign := r.Uint64() & f.sign()
	mantissa := r.Uint64() & (1<<f.m - 1)
	switch r.IntN(5) {
	case 0:
		edges := f.edges()
		return sign | edges[r.IntN(len(edges))]
	case 1: // few bits and a moderate exponent: exact results and ties
		keep := r.IntN(f.m)
		return sign | (f.bias()+uint64(r.IntN(9))-4)<<f.m | mantissa>>keep<<keep
	case 2:
		spread := min(2*f.m, 1<<(f.e-1))
		return sign | (f.bias()-uint64(spread)/2+uint64(r.IntN(spread)))<<f.m | mantissa
	case 3: // whole numbers of the size of integers, and halves
		return sign | min(f.bias()+uint64(r.IntN(66)), 1<<f.e-2)<<f.m | mantissa
	}
	return r.Uint64() & (f.sign()<<1 - 1)
}

// matrixValue makes a register of matrix elements: in round 0 whole numbers from -4 to 4, so that every
// sum is exact; in round 1 numbers of moderate size; in round 2 zeros, infinities, NaN and denormals among them.
func matrixValue(r *rand.Rand, elem string, round int) uint64 {
	switch elem {
	case "f64":
		if round == 0 {
			return math.Float64bits(float64(r.IntN(9) - 4))
		}
		return math.Float64bits((r.Float64() - 0.5) * math.Ldexp(1, r.IntN(8)))
	case "f32", "tf32", "f16", "bf16", "e4m3", "e5m2":
		f := formats[elem]
		one := func() uint64 {
			x := float32(r.IntN(9) - 4)
			if round > 0 {
				x = (r.Float32() - 0.5) * float32(math.Ldexp(1, r.IntN(8)))
			}
			if round == 2 && r.IntN(24) == 0 {
				edges := []uint64{0, f.inf(), 1, 1<<f.m - 1, f.inf() | 1<<(f.m-1)}
				v := edges[r.IntN(len(edges))] | r.Uint64()&f.sign()
				if elem == "tf32" {
					v <<= 13
				}
				return v
			}
			return f.truncated(x, elem == "tf32")
		}
		switch f.e + f.m {
		case 31, 18:
			return one()
		case 15:
			return one() | one()<<16
		}
		return one() | one()<<8 | one()<<16 | one()<<24
	}
	if round == 0 && (elem == "s8" || elem == "u8") {
		return r.Uint64() & 0x0707_0707
	}
	return r.Uint64()
}

// truncated is x in format f, rounded towards zero; x is within the range of normal numbers or zero.
// wide keeps the place of the mantissa in 32 bits.
func (f format) truncated(x float32, wide bool) uint64 {
	b := uint64(math.Float32bits(x))
	sign := b >> 31 << (f.e + f.m)
	exp := int(b>>23&0xff) - 127 + int(f.bias())
	v := sign
	if exp > 0 {
		v |= uint64(exp)<<f.m | b&(1<<23-1)>>(23-f.m)
	}
	if wide {
		v <<= 13
	}
	return v
}
