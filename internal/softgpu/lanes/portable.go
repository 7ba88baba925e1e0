//go:build !(goexperiment.simd && amd64)

package lanes

import (
	"unsafe"

	"holdfast/internal/softgpu/number"
)

var (
	simds        map[string]Vec
	simdCompares map[string]Cmp
)

func vectors() bool { return false }

func simdFtz(string, number.Func) Vec                     { return nil }
func simdHalf(*halfFormat, HalfOp, bool, number.Func) Vec { return nil }
func simdWiden(*halfFormat, number.Func) Vec              { return nil }
func simdNarrow(*halfFormat, bool, number.Func) Vec       { return nil }

// Row64 looks at the addresses of a full warp: whether they are n apart, or all the same.
func Row64(a *[32]uint64, n uint64) (row, same bool) { return loopRow64(a, n) }

// Row32 is Row64 of 32-bit addresses.
func Row32(a *[32]uint32, n uint32) (row, same bool) { return loopRow32(a, n) }

// Blend32 copies the lanes of mask, of which there is one at least, from t to d.
func Blend32(d, t unsafe.Pointer, mask uint32) { loopBlend32(d, t, mask) }

// Blend64 is Blend32 of 64-bit lanes.
func Blend64(d, t unsafe.Pointer, mask uint32) { loopBlend64(d, t, mask) }

// Select32 is selp: a where the predicate that c points to is set, else b.
func Select32(d, a, b, c unsafe.Pointer) { loopSelect32(d, a, b, c) }

// Select64 is Select32 of 64-bit lanes.
func Select64(d, a, b, c unsafe.Pointer) { loopSelect64(d, a, b, c) }

// Copy32 copies 32 numbers of 32 bits, which overlap in whole or not at all.
func Copy32(d, s unsafe.Pointer) { *(*[32]uint32)(d) = *(*[32]uint32)(s) }

// Copy64 copies 32 numbers of 64 bits, likewise.
func Copy64(d, s unsafe.Pointer) { *(*[32]uint64)(d) = *(*[32]uint64)(s) }

// CopyRow32 copies 32 words if the addresses in a are 4 apart, and reports whether they are.
func CopyRow32(d, s unsafe.Pointer, a *[32]uint64) bool { return loopCopyRow(d, s, a, 4) }

// CopyRow64 is CopyRow32 of numbers of 64 bits, 8 apart.
func CopyRow64(d, s unsafe.Pointer, a *[32]uint64) bool { return loopCopyRow(d, s, a, 8) }

// CopyRow32Narrow is CopyRow32 with 32-bit addresses.
func CopyRow32Narrow(d, s unsafe.Pointer, a *[32]uint32) bool { return loopCopyRow(d, s, a, 4) }
