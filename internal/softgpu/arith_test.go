package softgpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// The vector forms give what the scalar forms give: for every half, and for pairs and triples around the edges.
func TestHalfVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	edges := []uint32{0, 1, 0x3ff, 0x400, 0x401, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7f, 0x80, 0x81, 0x7f7f, 0x7f80,
		0x7f81, 0x3c00, 0x3f80, 0x3c01, 0x3bff}
	half := func() uint32 {
		h := uint32(r.Uint32() & 0xffff)
		if r.IntN(2) == 0 {
			h = edges[r.IntN(len(edges))] | uint32(r.IntN(2))<<15
		}
		return h
	}
	single := func() uint32 {
		switch r.IntN(4) {
		case 0:
			return half() << 16 // a bf16
		case 1: // an f16, or next to the middle of two
			x := float32(number.SmallValue(half(), 5, 10))
			return math.Float32bits(x) + uint32(r.IntN(3)-1) + uint32(r.IntN(2))<<12
		case 2:
			return half()<<16 | 0x8000 + uint32(r.IntN(3)-1)
		}
		return r.Uint32()
	}
	var a, b, c, got [32]uint32
	at := func(x *[32]uint32) unsafe.Pointer { return unsafe.Pointer(x) }
	check := func(name string, in *isa.Inst) {
		t.Helper()
		scalar := laneOp(in)
		vec := vecOp(in, scalar)
		if vec == nil {
			t.Fatalf("%s: no vector form", name)
		}
		vec(at(&got), at(&a), at(&b), at(&c))
		for i := range got {
			if want := uint32(scalar(uint64(a[i]), uint64(b[i]), uint64(c[i]))); got[i] != want {
				t.Fatalf("%s of %#x %#x %#x: %#x, want %#x", name, a[i], b[i], c[i], got[i], want)
			}
		}
	}
	for _, u := range []ptx.Type{ptx.F16, ptx.BF16} {
		for base := 0; base < 1<<16; base += 32 {
			for i := range a {
				a[i] = uint32(base + i)
			}
			check(fmt.Sprint("cvt to f32 of ", u), &isa.Inst{Op: "cvt", T: ptx.F32, U: u})
		}
	}
	for range 4000 {
		for i := range a {
			a[i], b[i], c[i] = single(), single(), single()
		}
		for _, typ := range []ptx.Type{ptx.F16, ptx.BF16} {
			check(fmt.Sprint("cvt.rn from f32 to ", typ), &isa.Inst{Op: "cvt", T: typ, U: ptx.F32, Rnd: "rn"})
		}
		for _, typ := range []ptx.Type{ptx.F16x2, ptx.BF16x2} {
			check(fmt.Sprint("cvt.rn from f32 to ", typ),
				&isa.Inst{Op: "cvt", T: typ, U: ptx.F32, Rnd: "rn", Args: make([]isa.Arg, 3)})
		}
		for _, op := range []string{"add", "sub", "mul", "fma"} {
			check(op+".ftz", &isa.Inst{Op: op, T: ptx.F32, Rnd: "rn", Flags: isa.Ftz})
		}
		for i := range a {
			a[i], b[i], c[i] = half()|half()<<16, half()|half()<<16, half()|half()<<16
		}
		for _, typ := range []ptx.Type{ptx.F16x2, ptx.BF16x2, ptx.F16, ptx.BF16} {
			for _, op := range []string{"add", "sub", "mul", "fma"} {
				if typ == ptx.F16 || typ == ptx.BF16 {
					for i := range a {
						a[i], b[i], c[i] = a[i]&0xffff, b[i]&0xffff, c[i]&0xffff
					}
				}
				check(fmt.Sprint(op, " of ", typ), &isa.Inst{Op: op, T: typ, Rnd: "rn"})
			}
		}
	}
}

func TestPermuteConstants(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	scalar := laneOp(&isa.Inst{Op: "prmt", T: ptx.B32})
	var a, b, d [32]uint32
	for range 2000 {
		for i := range a {
			a[i], b[i] = r.Uint32(), r.Uint32()
		}
		sel := uint64(r.Uint32() & 0xffff)
		f := permuteVec(&ptx.Imm{Bits: sel})
		if (f == nil) != (sel&0x8888 != 0) {
			t.Fatalf("selector %#x: %v", sel, f != nil)
		}
		if f == nil {
			continue
		}
		f(unsafe.Pointer(&d), unsafe.Pointer(&a), unsafe.Pointer(&b), nil)
		for i := range d {
			if want := uint32(scalar(uint64(a[i]), uint64(b[i]), sel)); d[i] != want {
				t.Fatalf("prmt %#x %#x %#x: %#x, want %#x", a[i], b[i], sel, d[i], want)
			}
		}
	}
}
