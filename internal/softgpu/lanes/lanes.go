// Package lanes has the operations of package number on 32 lanes at a time, a register of a warp.
//
// A register is 32 numbers of 32 or of 64 bits; numbers of 16 bits and fewer lie in lanes of 32, with zeros above. An
// operation takes unsafe pointers to whole registers, because their widths differ and the register file is one piece
// of memory: results and operands may be the same register, but may not overlap otherwise.
//
// Each operation exists as a loop, which is portable, and many as vector instructions as well: those are built where
// GOEXPERIMENT has simd, and used where the CPU has AVX2 and FMA. Both give the same bits, and so does the scalar
// form in package number. All three are made of one table; a test compares them for every operation.
//
//	table.go     the operations: their types, their expression, their vector expression
//	gen.go       makes zloops.go, zsimd.go and ../number/zops.go of it
//	lanes.go     the operations by name
//	loops.go     what is a loop and not in the table: addresses in a row, lanes by a mask
//	half.go      f16 and bf16, one number or two in a lane
//	ftz.go       single precision without subnormal numbers
//	simd.go      vector instructions: the parts of expressions, and the twins of loops.go and ftz.go
//	simdhalf.go  the twin of half.go
//	portable.go  stands for it where there are none
//
// It imports package number and nothing else of ours.
package lanes

import (
	"math"
	"unsafe"

	"holdfast/internal/softgpu/number"
)

//go:generate go run gen.go table.go

// A Vec is an operation on whole registers.
type Vec func(d, a, b, c unsafe.Pointer)

// A Cmp compares two registers: bit i of the result is that of lane i.
type Cmp func(a, b unsafe.Pointer) uint32

// Op is the operation that number.Op has by the same name; nil if it has no form for whole registers.
func Op(name string) Vec {
	if f := simds[name]; f != nil && vectors() {
		return f
	}
	return loops[name]
}

// Compare is the comparison lt.s32 and its like; nil if there is none.
func Compare(name string) Cmp {
	if f := simdCompares[name]; f != nil && vectors() {
		return f
	}
	return loopCompares[name]
}

// loopFMA32 is number.FMA32, with the test for what is rare inline: the sum is rounded a second time where that cannot
// matter, that is, not in the middle between two f32 and not to a subnormal one.
func loopFMA32(d, a, b, c unsafe.Pointer) {
	D, A, B, C := (*[16][2]float32)(d), (*[16][2]float32)(a), (*[16][2]float32)(b), (*[16][2]float32)(c)
	for i := range D {
		d, a, b, c := &D[i], &A[i], &B[i], &C[i]
		s := float64(a[0])*float64(b[0]) + float64(c[0])
		t := float64(a[1])*float64(b[1]) + float64(c[1])
		r, q := float32(s), float32(t)
		if k := math.Float64bits(s); k&0x1fffffff == 0x10000000 || k<<1-least64 > infinite64-least64 {
			r = number.FMA32(a[0], b[0], c[0])
		}
		if k := math.Float64bits(t); k&0x1fffffff == 0x10000000 || k<<1-least64 > infinite64-least64 {
			q = number.FMA32(a[1], b[1], c[1])
		}
		d[0], d[1] = r, q
	}
}

// The bits of float64 without the sign, doubled: of the smallest normal float32, and a bit more, and of infinity.
const (
	least64    = 0x3810000000000000<<1 + 1
	infinite64 = 0x7ff0000000000000 << 1
)
