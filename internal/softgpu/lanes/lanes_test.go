package lanes

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// A register has room for lanes of either width.
type register [32]uint64

func (r *register) at() unsafe.Pointer { return unsafe.Pointer(r) }

func (r *register) lane(i int, wide bool) uint64 {
	if wide {
		return r[i]
	}
	return uint64((*[64]uint32)(r.at())[i])
}

func (r *register) set(i int, wide bool, x uint64) {
	if wide {
		r[i] = x
	} else {
		(*[64]uint32)(r.at())[i] = uint32(x)
	}
}

// edges are bits at which some operation does something else, of all widths.
var edges = []uint64{
	0, 1, 2, 3, 15, 16, 31, 32, 33, 63, 64, 65, 0xff, 0x7fff, 0x8000, 0x8001, 0xffff, 0x7fffffff,
	0x80000000, 0x80000001, 0xffffffff,
	1 << 32, 1<<63 - 1, 1 << 63, 1<<63 + 1, ^uint64(0),
	0x3f800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0xffc12345, 0x007fffff, 0x00800000, 0x00800001,
	0x4f000000, 0xcf000000, 0x4effffff,
	0x3ff0000000000000, 0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff0000000000001, 0xfff8000000000123,
	0x000fffffffffffff, 0x0010000000000000,
}

func random(r *rand.Rand) uint64 {
	switch r.IntN(4) {
	case 0:
		return edges[r.IntN(len(edges))]
	case 1:
		return r.Uint64() >> r.IntN(64)
	case 2: // floats near one, of either width
		return uint64(0x3f000000+r.Uint32N(0x01000000))<<32 | uint64(0x3f000000+r.Uint32N(0x01000000))
	}
	return r.Uint64()
}

// widths says which lanes an operation has, by its name: result and operands.
func widths(name string) (wide [4]bool, mask [4]uint64) {
	parts := strings.Split(name, ".")
	bits := func(t string) uint64 {
		switch t[1:] {
		case "16":
			return 0xffff
		case "32":
			return math.MaxUint32
		}
		return math.MaxUint64
	}
	last := bits(parts[len(parts)-1])
	mask = [4]uint64{last, last, last, last}
	wideResult := map[uint64]uint64{0xffff: math.MaxUint32, math.MaxUint32: math.MaxUint64}
	switch op := parts[0]; {
	case op == "cvt":
		mask[0] = bits(parts[len(parts)-2])
	case slices.Contains(parts, "wide"):
		mask[0] = wideResult[last]
		mask[3] = mask[0]
	case op == "popc", op == "clz", op == "bfind":
		mask[0] = math.MaxUint32
	case op == "shl", op == "shr", op == "szext":
		mask[2] = math.MaxUint32
	case op == "bfe", op == "fns", op == "shf":
		mask[2], mask[3] = math.MaxUint32, math.MaxUint32
	}
	for i, m := range mask {
		wide[i] = m > math.MaxUint32
	}
	return wide, mask
}

// checkTwin runs f on random registers, also with the result in the place of an operand of its width, and compares
// each lane with the scalar form.
func checkTwin(t *testing.T, name, kind string, f Vec, scalar number.Func, wide [4]bool, mask [4]uint64,
	random func(*rand.Rand) uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(11, uint64(len(name))))
	for round := range 200 {
		var in [3]register
		for k := range in {
			for i := range 32 {
				in[k].set(i, wide[k+1], random(r)&mask[k+1])
			}
		}
		was := in
		var out register
		d := &out
		if k := round % 4; k < 3 && wide[k+1] == wide[0] {
			d = &in[k]
		}
		f(d.at(), in[0].at(), in[1].at(), in[2].at())
		for i := range 32 {
			a, b, c := was[0].lane(i, wide[1]), was[1].lane(i, wide[2]), was[2].lane(i, wide[3])
			if got, want := d.lane(i, wide[0]), scalar(a, b, c); got != want {
				t.Fatalf("%s, %s, of %#x %#x %#x: %#x, want %#x", name, kind, a, b, c, got, want)
			}
		}
	}
}

// TestOperations compares the loop and the vector form of every operation with its scalar form.
func TestOperations(t *testing.T) {
	number.Ops(func(name string, scalar number.Func) {
		wide, mask := widths(name)
		if f := loops[name]; f != nil {
			checkTwin(t, name, "loop", f, scalar, wide, mask, random)
		}
		if f := simds[name]; f != nil && vectors() {
			checkTwin(t, name, "vectors", f, scalar, wide, mask, random)
		}
	})
	for name := range loops {
		if number.Op(name) == nil {
			t.Errorf("%s has no scalar form", name)
		}
	}
	for name := range simds {
		if loops[name] == nil {
			t.Errorf("%s has no portable form", name)
		}
	}
	t.Logf("%d loops, %d with vectors", len(loops), len(simds))
}

// TestComparisons compares both forms of each with Go's or number's comparison of one lane.
func TestComparisons(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, name := range slices.Sorted(maps.Keys(loopCompares)) {
		op, typ, _ := strings.Cut(name, ".")
		wide, mask := widths(name)
		scalar := number.Compare(op, typeOf[typ], false)
		if scalar == nil {
			t.Fatalf("%s has no scalar form", name)
		}
		for range 200 {
			var a, b register
			for i := range 32 {
				x, y := random(r)&mask[1], random(r)&mask[1]
				if r.IntN(3) == 0 {
					y = x
				}
				a.set(i, wide[1], x)
				b.set(i, wide[1], y)
			}
			var want uint32
			for i := range 32 {
				want |= uint32(number.FromBool(scalar(a.lane(i, wide[1]), b.lane(i, wide[1])))) << i
			}
			if got := loopCompares[name](a.at(), b.at()); got != want {
				t.Fatalf("%s, loop: %#x, want %#x", name, got, want)
			}
			if f := simdCompares[name]; f != nil && vectors() {
				if got := f(a.at(), b.at()); got != want {
					t.Fatalf("%s, vectors: %#x, want %#x", name, got, want)
				}
			}
		}
	}
}

// TestRows has addresses in a row, all the same, and with one that is not.
func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for range 3000 {
		n := uint64(1) << r.IntN(5)
		step := []uint64{n, 0, 2 * n, -n}[r.IntN(4)]
		base := random(r)
		var wide [32]uint64
		var narrow [32]uint32
		for i := range wide {
			wide[i] = base + uint64(i)*step
			narrow[i] = uint32(wide[i])
		}
		row, same := step == n, step == 0
		if r.IntN(2) == 0 {
			i := r.IntN(32)
			wide[i] ^= 1 << r.IntN(32)
			narrow[i] = uint32(wide[i])
			row, same = false, false
		}
		for _, f := range []func(*[32]uint64, uint64) (bool, bool){Row64, loopRow64} {
			if x, y := f(&wide, n); x != row || y != same {
				t.Fatalf("%#x, %d apart: %v %v, want %v %v", wide, n, x, y, row, same)
			}
		}
		for _, f := range []func(*[32]uint32, uint32) (bool, bool){Row32, loopRow32} {
			if x, y := f(&narrow, uint32(n)); x != row || y != same {
				t.Fatalf("%#x, %d apart: %v %v, want %v %v", narrow, n, x, y, row, same)
			}
		}
	}
}

// TestCopyRow copies where the addresses are in a row, and nothing elsewhere.
func TestCopyRow(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	for range 3000 {
		n := uint64(4) << r.IntN(2)
		var wide [32]uint64
		var narrow [32]uint32
		base, row := random(r), r.IntN(2) == 0
		for i := range wide {
			wide[i] = base + uint64(i)*n
		}
		if !row {
			wide[r.IntN(32)] ^= 1 << r.IntN(32)
		}
		var from, was register
		for i := range from {
			from[i], was[i], narrow[i] = r.Uint64(), r.Uint64(), uint32(wide[i])
		}
		want := was
		if row {
			copy(unsafe.Slice((*byte)(want.at()), 32*n), unsafe.Slice((*byte)(from.at()), 32*n))
		}
		for kind, f := range []func(d, s unsafe.Pointer) bool{
			func(d, s unsafe.Pointer) bool {
				if n == 8 {
					return CopyRow64(d, s, &wide)
				}
				return CopyRow32(d, s, &wide)
			},
			func(d, s unsafe.Pointer) bool {
				if n == 8 {
					return loopCopyRow(d, s, &narrow, 8)
				}
				return CopyRow32Narrow(d, s, &narrow)
			},
			func(d, s unsafe.Pointer) bool { return loopCopyRow(d, s, &wide, n) },
			func(d, s unsafe.Pointer) bool { return loopCopyRow(d, s, &narrow, n) },
		} {
			got := was
			if ok := f(got.at(), from.at()); ok != row || got != want {
				t.Fatalf("form %d, %#x, %d bytes: %v, want %v; right bytes: %v", kind, wide, n, ok, row, got == want)
			}
		}
	}
}

// TestMasks copies and selects the lanes of masks.
func TestMasks(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	for range 3000 {
		mask := r.Uint32() & r.Uint32() >> r.IntN(30)
		if r.IntN(2) == 0 {
			mask = ^mask
		}
		mask |= 1 << r.IntN(32)
		for _, wide := range []bool{false, true} {
			var a, b, want register
			for i := range 32 {
				a.set(i, wide, r.Uint64())
				b.set(i, wide, r.Uint64())
				want.set(i, wide, b.lane(i, wide))
				if mask>>i&1 != 0 {
					want.set(i, wide, a.lane(i, wide))
				}
			}
			blends := []func(d, t unsafe.Pointer, mask uint32){Blend32, loopBlend32}
			selects := []Vec{Select32, loopSelect32}
			if wide {
				blends = []func(d, t unsafe.Pointer, mask uint32){Blend64, loopBlend64}
				selects = []Vec{Select64, loopSelect64}
			}
			for k := range 2 {
				got, d := b, register{}
				blends[k](got.at(), a.at(), mask)
				selects[k](d.at(), a.at(), b.at(), unsafe.Pointer(&mask))
				if got != want || d != want {
					t.Fatalf("mask %#x, wide %v, form %d: %x and %x, want %x", mask, wide, k, got, d, want)
				}
			}
		}
	}
}

// halfBits makes a half: at an edge of one of the formats, a few bits, or any.
func halfBits(r *rand.Rand) uint64 {
	edges := []uint64{0, 1, 0x3ff, 0x400, 0x401, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7f, 0x80, 0x81, 0x7f7f, 0x7f80,
		0x7f81, 0x3c00, 0x3f80, 0x3c01, 0x3bff}
	switch r.IntN(3) {
	case 0:
		return edges[r.IntN(len(edges))] | r.Uint64N(2)<<15
	case 1: // near one
		return 0x3800 + r.Uint64N(0x1000) | r.Uint64N(2)<<15
	}
	return r.Uint64N(1 << 16)
}

// TestHalves compares both forms of the 16-bit formats with what package number says of one.
func TestHalves(t *testing.T) {
	narrow, lanes32 := [4]bool{}, [4]uint64{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}
	both := func(r *rand.Rand) uint64 { return halfBits(r) | halfBits(r)<<16 }
	low := func(r *rand.Rand) uint64 { return halfBits(r) }
	for _, bf16 := range []bool{false, true} {
		typ := typeOf["f16"]
		if bf16 {
			typ = typeOf["bf16"]
		}
		f := formatOf(bf16)
		canonical := func(x float64) uint64 {
			if x != x {
				return number.NaN16
			}
			return number.RoundHalf(x, typ, number.Nearest)
		}
		for op, exact := range map[HalfOp]func(a, b, c float64) float64{
			HalfAdd: func(a, b, _ float64) float64 { return number.AddOdd(a, b) },
			HalfSub: func(a, b, _ float64) float64 { return number.AddOdd(a, -b) },
			HalfMul: func(a, b, _ float64) float64 { return a * b },
			HalfFMA: func(a, b, c float64) float64 { return number.AddOdd(a*b, c) },
		} {
			one := func(a, b, c uint64) uint64 {
				return canonical(exact(number.HalfValue(a&0xffff, typ), number.HalfValue(b&0xffff, typ),
					number.HalfValue(c&0xffff, typ)))
			}
			two := func(a, b, c uint64) uint64 { return one(a, b, c) | one(a>>16, b>>16, c>>16)<<16 }
			for range 20 {
				checkTwin(t, "half", "loop", loopHalf(f, op, false, one), one, narrow, lanes32, low)
				checkTwin(t, "pair", "loop", loopHalf(f, op, true, two), two, narrow, lanes32, both)
				if vectors() {
					checkTwin(t, "half", "vectors", simdHalf(f, op, false, one), one, narrow, lanes32, low)
					checkTwin(t, "pair", "vectors", simdHalf(f, op, true, two), two, narrow, lanes32, both)
				}
			}
		}
		widen := func(a, _, _ uint64) uint64 {
			return number.Bits32(number.Canon32(float32(number.HalfValue(a, typ))))
		}
		one := func(a uint64) uint64 { return canonical(float64(number.F32(a))) }
		to := func(a, _, _ uint64) uint64 { return one(a) }
		pair := func(a, b, _ uint64) uint64 { return one(a)<<16 | one(b) }
		// Numbers of f32, also next to a half or next to the middle of two.
		single := func(r *rand.Rand) uint64 {
			x := number.Bits32(float32(number.HalfValue(halfBits(r), typ)))
			switch r.IntN(4) {
			case 0:
				return x + uint64(r.IntN(3)-1) + r.Uint64N(2)<<12
			case 1:
				return x + uint64(r.IntN(3)-1) + r.Uint64N(2)<<15
			case 2:
				return random(r) & math.MaxUint32
			}
			return x
		}
		for range 20 {
			checkTwin(t, "widen", "loop", loopWiden(f, widen), widen, narrow, lanes32, low)
			checkTwin(t, "narrow", "loop", loopNarrow(f, false, to), to, narrow, lanes32, single)
			checkTwin(t, "narrow pair", "loop", loopNarrow(f, true, pair), pair, narrow, lanes32, single)
			if vectors() {
				checkTwin(t, "widen", "vectors", simdWiden(f, widen), widen, narrow, lanes32, low)
				checkTwin(t, "narrow", "vectors", simdNarrow(f, false, to), to, narrow, lanes32, single)
				checkTwin(t, "narrow pair", "vectors", simdNarrow(f, true, pair), pair, narrow, lanes32, single)
			}
		}
	}
}

// TestFtz compares both forms with the definition: operands flushed, and the result flushed if it is below the
// smallest normal number when it is rounded with an exponent that has no limit.
func TestFtz(t *testing.T) {
	flush := func(x uint64) float32 { return number.Flush32(number.F32(x)) }
	for op, exact := range map[string]func(a, b, c float32) (float64, float32){
		"add": func(a, b, _ float32) (float64, float32) { return number.AddOdd(float64(a), float64(b)), a + b },
		"sub": func(a, b, _ float32) (float64, float32) { return number.AddOdd(float64(a), -float64(b)), a - b },
		"mul": func(a, b, _ float32) (float64, float32) { return float64(a) * float64(b), a * b },
		"fma": func(a, b, c float32) (float64, float32) {
			return number.AddOdd(float64(a)*float64(b), float64(c)), number.FMA32(a, b, c)
		},
	} {
		scalar := func(a, b, c uint64) uint64 {
			x, r := exact(flush(a), flush(b), flush(c))
			if r == r && r != 0 && math.Abs(float64(float32(x*0x1p24))) < 0x1p-102 {
				r = float32(math.Copysign(0, float64(r)))
			}
			return number.Bits32(number.Flush32(number.Canon32(r)))
		}
		// Many results next to the smallest normal number.
		small := func(r *rand.Rand) uint64 {
			switch r.IntN(4) {
			case 0:
				return uint64(0x3f7ffff8+r.Uint32N(16)) | r.Uint64N(2)<<31
			case 1:
				return uint64(0x007ffff8+r.Uint32N(16)) | r.Uint64N(2)<<31
			case 2:
				return uint64(0x1f800000+r.Uint32N(0x01000000)) | r.Uint64N(2)<<31
			}
			return random(r) & math.MaxUint32
		}
		mask := [4]uint64{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}
		for range 20 {
			checkTwin(t, op+".ftz", "loop", loopFtz(op, scalar), scalar, [4]bool{}, mask, small)
			if vectors() {
				checkTwin(t, op+".ftz", "vectors", simdFtz(op, scalar), scalar, [4]bool{}, mask, small)
			}
		}
	}
}

var typeOf = map[string]ptx.Type{
	"u16": ptx.U16, "s16": ptx.S16, "b16": ptx.B16, "u32": ptx.U32, "s32": ptx.S32, "b32": ptx.B32,
	"u64": ptx.U64, "s64": ptx.S64, "b64": ptx.B64, "f32": ptx.F32, "f64": ptx.F64, "f16": ptx.F16, "bf16": ptx.BF16,
}
