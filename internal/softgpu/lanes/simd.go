//go:build goexperiment.simd && amd64

package lanes

import (
	"math/bits"
	"simd/archsimd"
	"unsafe"

	"holdfast/internal/softgpu/number"
)

// Every function here that uses vectors ends with ClearAVXUpperBits: code without vectors that runs after it would
// wait for the upper halves of the registers otherwise.

// vectors reports whether the CPU has what the vector forms use.
func vectors() bool { return archsimd.X86.AVX2() && archsimd.X86.FMA() }

// The parts of expressions in table.go.

// canon makes every NaN the one that f32 instructions give.
func canon(r, nan archsimd.Float32x8) archsimd.Float32x8 { return nan.Merge(r, r.IsNaN()) }

// min32 and max32 are number.Min32 and Max32: of equal numbers, which may be zeros, one has the sign that is wanted.
// The compiler takes Min and Max as commutative, so what they give for a NaN is not used.
func min32(x, y, nan archsimd.Float32x8) archsimd.Float32x8 {
	both := x.AsUint32x8().Or(y.AsUint32x8()).AsFloat32x8()
	return numbers(x, y, both.Merge(x.Min(y), x.Equal(y)), nan)
}

func max32(x, y, nan archsimd.Float32x8) archsimd.Float32x8 {
	both := x.AsUint32x8().And(y.AsUint32x8()).AsFloat32x8()
	return numbers(x, y, both.Merge(x.Max(y), x.Equal(y)), nan)
}

// numbers is r where x and y are numbers, else the one that is.
func numbers(x, y, r, nan archsimd.Float32x8) archsimd.Float32x8 {
	return canon(x.Merge(y.Merge(r, x.IsNaN()), y.IsNaN()), nan)
}

// trunc32 is number.Trunc32: the instruction gives the least number for all that does not fit.
func trunc32(x archsimd.Float32x8) archsimd.Int32x8 {
	above := x.GreaterEqual(archsimd.BroadcastUint32x8(0x4f000000).AsFloat32x8()).ToInt32x8()
	return x.ConvertToInt32().Xor(above).AndNot(x.IsNaN().ToInt32x8())
}

// swapped has the two halves of each 64-bit lane in the other's place. A shift by 32 would do as well, but the compiler
// loads its amount with an instruction that does not go well with vectors of 256 bits.
func swapped(x archsimd.Uint32x8) archsimd.Uint32x8 { return x.PermuteScalarsGrouped(1, 0, 3, 2) }

// mulU64 is the low half of the product: of the halves of the factors, all but the product of the upper ones count.
func mulU64(x, y archsimd.Uint64x4, high archsimd.Uint64x4) archsimd.Uint64x4 {
	a, b := x.AsUint32x8(), y.AsUint32x8()
	cross := a.Mul(swapped(b)) // in each lane, the low half of a product of different halves
	sum := cross.Add(swapped(cross)).AsUint64x4().And(high)
	return a.MulEvenWiden(b).Add(sum)
}

func mulS64(x, y archsimd.Int64x4, high archsimd.Uint64x4) archsimd.Int64x4 {
	return mulU64(x.AsUint64x4(), y.AsUint64x4(), high).AsInt64x4()
}

// wideU32 and wideS32 are whole products.
func wideU32(x, y archsimd.Uint32x4) archsimd.Uint64x4 {
	return x.ExtendToUint64().AsUint32x8().MulEvenWiden(y.ExtendToUint64().AsUint32x8())
}

func wideS32(x, y archsimd.Int32x4) archsimd.Int64x4 {
	return x.ExtendToInt64().AsInt32x8().MulEvenWiden(y.ExtendToInt64().AsInt32x8())
}

// highU32 and highS32 are the upper halves of products, high a mask of the odd lanes.
func highU32(x, y archsimd.Uint32x8, high archsimd.Uint64x4) archsimd.Uint32x8 {
	even := swapped(x.MulEvenWiden(y).AsUint32x8()).AsUint64x4().AndNot(high)
	odd := swapped(x).MulEvenWiden(swapped(y)).And(high)
	return even.Or(odd).AsUint32x8()
}

func highS32(x, y archsimd.Int32x8, high archsimd.Uint64x4) archsimd.Int32x8 {
	even := swapped(x.MulEvenWiden(y).AsUint32x8()).AsUint64x4().AndNot(high)
	odd := swapped(x.AsUint32x8()).AsInt32x8().MulEvenWiden(swapped(y.AsUint32x8()).AsInt32x8())
	return even.Or(odd.AsUint64x4().And(high)).AsInt32x8()
}

// signed16 extends the low half of each lane.
func signed16(x archsimd.Uint32x8) archsimd.Int32x8 {
	return x.ShiftAllLeft(16).AsInt32x8().ShiftAllRight(16)
}

// above64 compares unsigned numbers.
func above64(x, y, sign archsimd.Uint64x4) archsimd.Mask64x4 {
	return x.Xor(sign).AsInt64x4().Greater(y.Xor(sign).AsInt64x4())
}

// shiftS64 shifts signs in: AVX2 shifts only zeros into 64-bit lanes. The sign is shifted along and subtracted.
func shiftS64(x archsimd.Int64x4, y archsimd.Uint32x4, sign archsimd.Uint64x4,
	most archsimd.Uint32x4) archsimd.Int64x4 {
	n := y.Min(most).ExtendToUint64()
	s := sign.ShiftRight(n)
	return x.AsUint64x4().ShiftRight(n).Xor(s).Sub(s).AsInt64x4()
}

var (
	ramp32 = [8]uint32{0, 1, 2, 3, 4, 5, 6, 7}
	ramp64 = [4]uint64{0, 1, 2, 3}
)

// Row64 looks at the addresses of a full warp: whether they are n apart, or all the same.
func Row64(a *[32]uint64, n uint64) (row, same bool) {
	if !vectors() {
		return loopRow64(a, n)
	}
	step := a[1] - a[0]
	if step != n && step != 0 {
		return false, false
	}
	// n is no more than 2^32: the product is that of the low halves.
	ramp := archsimd.LoadUint64x4(&ramp64).AsUint32x8().MulEvenWiden(archsimd.BroadcastUint64x4(step).AsUint32x8())
	want, next := archsimd.BroadcastUint64x4(a[0]).Add(ramp), archsimd.BroadcastUint64x4(4*step)
	A := (*[8][4]uint64)(unsafe.Pointer(a))
	x := archsimd.LoadUint64x4(&A[0]).Xor(want)
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[1]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[2]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[3]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[4]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[5]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[6]).Xor(want))
	x = x.Or(archsimd.LoadUint64x4(&A[7]).Xor(want.Add(next)))
	if !x.IsZero() {
		archsimd.ClearAVXUpperBits()
		return false, false
	}
	archsimd.ClearAVXUpperBits()
	return step == n, step == 0
}

// Row32 is Row64 of 32-bit addresses.
func Row32(a *[32]uint32, n uint32) (row, same bool) {
	if !vectors() {
		return loopRow32(a, n)
	}
	step := a[1] - a[0]
	if step != n && step != 0 {
		return false, false
	}
	ramp := archsimd.LoadUint32x8(&ramp32).Mul(archsimd.BroadcastUint32x8(step))
	want, next := ramp.Add(archsimd.BroadcastUint32x8(a[0])), archsimd.BroadcastUint32x8(8*step)
	A := (*[4][8]uint32)(unsafe.Pointer(a))
	x := archsimd.LoadUint32x8(&A[0]).Xor(want)
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint32x8(&A[1]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint32x8(&A[2]).Xor(want))
	x = x.Or(archsimd.LoadUint32x8(&A[3]).Xor(want.Add(next)))
	if !x.IsZero() { // not a value that is used below: the registers would be cleared before it
		archsimd.ClearAVXUpperBits()
		return false, false
	}
	archsimd.ClearAVXUpperBits()
	return step == n, step == 0
}

var (
	bits32 = [8]uint32{1, 2, 4, 8, 16, 32, 64, 128}
	bits64 = [4]uint64{1, 2, 4, 8}
)

// Blend32 copies the lanes of mask, of which there is one at least, from t to d.
func Blend32(d, t unsafe.Pointer, mask uint32) {
	if !vectors() || mask&(mask-1) == 0 {
		loopBlend32(d, t, mask)
		return
	}
	select32((*[4][8]uint32)(d), (*[4][8]uint32)(t), (*[4][8]uint32)(d), mask)
}

// Blend64 is Blend32 of 64-bit lanes.
func Blend64(d, t unsafe.Pointer, mask uint32) {
	if !vectors() || bits.OnesCount32(mask) <= 4 {
		loopBlend64(d, t, mask)
		return
	}
	select64((*[8][4]uint64)(d), (*[8][4]uint64)(t), (*[8][4]uint64)(d), mask)
}

// Select32 is selp: a where the predicate that c points to is set, else b.
func Select32(d, a, b, c unsafe.Pointer) {
	if !vectors() {
		loopSelect32(d, a, b, c)
		return
	}
	select32((*[4][8]uint32)(d), (*[4][8]uint32)(a), (*[4][8]uint32)(b), *(*uint32)(c))
}

// Select64 is Select32 of 64-bit lanes.
func Select64(d, a, b, c unsafe.Pointer) {
	if !vectors() {
		loopSelect64(d, a, b, c)
		return
	}
	select64((*[8][4]uint64)(d), (*[8][4]uint64)(a), (*[8][4]uint64)(b), *(*uint32)(c))
}

func select32(d, a, b *[4][8]uint32, mask uint32) {
	lane := archsimd.LoadUint32x8(&bits32)
	for i := range d {
		yes := archsimd.BroadcastUint32x8(mask).And(lane).Equal(lane)
		archsimd.LoadUint32x8(&a[i]).Merge(archsimd.LoadUint32x8(&b[i]), yes).Store(&d[i])
		mask >>= 8
	}
	archsimd.ClearAVXUpperBits()
}

func select64(d, a, b *[8][4]uint64, mask uint32) {
	lane := archsimd.LoadUint64x4(&bits64)
	for i := range d {
		yes := archsimd.BroadcastUint64x4(uint64(mask)).And(lane).Equal(lane)
		archsimd.LoadUint64x4(&a[i]).Merge(archsimd.LoadUint64x4(&b[i]), yes).Store(&d[i])
		mask >>= 4
	}
	archsimd.ClearAVXUpperBits()
}

// ftz makes subnormal numbers zero. most is everything but the sign, exponent that of numbers.
func ftz(x archsimd.Float32x8, exponent, most archsimd.Uint32x8) archsimd.Float32x8 {
	u := x.AsUint32x8()
	tiny := u.And(exponent).Equal(u.Xor(u)).ToInt32x8().AsUint32x8()
	return u.AndNot(tiny.And(most)).AsFloat32x8()
}

// simdFtz is loopFtz. Groups of eight with the smallest normal number among the results, to which a subnormal one may
// have been rounded up, go the scalar way.
func simdFtz(op string, scalar number.Func) Vec {
	switch op {
	case "add":
		return func(d, a, b, _ unsafe.Pointer) {
			ftzAdd((*[4][8]float32)(d), (*[4][8]float32)(a), (*[4][8]float32)(b), 0)
		}
	case "sub":
		return func(d, a, b, _ unsafe.Pointer) {
			ftzAdd((*[4][8]float32)(d), (*[4][8]float32)(a), (*[4][8]float32)(b), 1<<31)
		}
	case "mul":
		return func(d, a, b, _ unsafe.Pointer) {
			ftzMul((*[4][8]float32)(d), (*[4][8]float32)(a), (*[4][8]float32)(b), scalar)
		}
	case "fma":
		return func(d, a, b, c unsafe.Pointer) {
			ftzFMA((*[4][8]float32)(d), (*[4][8]float32)(a), (*[4][8]float32)(b), (*[4][8]float32)(c), scalar)
		}
	}
	return nil
}

const (
	exponent32 = 0x7f800000
	most32     = 0x7fffffff
	normal32   = 0x00800000 // the smallest normal number
)

// ftzAdd is a + b, with sign in b's.
func ftzAdd(d, a, b *[4][8]float32, sign uint32) {
	exponent, most, s := archsimd.BroadcastUint32x8(exponent32), archsimd.BroadcastUint32x8(most32),
		archsimd.BroadcastUint32x8(sign)
	nan := archsimd.BroadcastUint32x8(number.NaN32).AsFloat32x8()
	for i := range d {
		x, y := ftz(archsimd.LoadFloat32x8(&a[i]), exponent, most), ftz(archsimd.LoadFloat32x8(&b[i]), exponent, most)
		r := x.Add(y.AsUint32x8().Xor(s).AsFloat32x8())
		canon(ftz(r, exponent, most), nan).Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}

func ftzMul(d, a, b *[4][8]float32, scalar number.Func) {
	exponent, most := archsimd.BroadcastUint32x8(exponent32), archsimd.BroadcastUint32x8(most32)
	nan, least := archsimd.BroadcastUint32x8(number.NaN32).AsFloat32x8(), archsimd.BroadcastUint32x8(normal32)
	for i := range d {
		x, y := ftz(archsimd.LoadFloat32x8(&a[i]), exponent, most), ftz(archsimd.LoadFloat32x8(&b[i]), exponent, most)
		r := x.Mul(y)
		if r.AsUint32x8().And(most).Equal(least).ToBits() != 0 {
			archsimd.ClearAVXUpperBits()
			for k := range d[i] {
				d[i][k] = number.F32(scalar(number.Bits32(a[i][k]), number.Bits32(b[i][k]), 0))
			}
			continue
		}
		canon(ftz(r, exponent, most), nan).Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}

func ftzFMA(d, a, b, c *[4][8]float32, scalar number.Func) {
	exponent, most := archsimd.BroadcastUint32x8(exponent32), archsimd.BroadcastUint32x8(most32)
	nan, least := archsimd.BroadcastUint32x8(number.NaN32).AsFloat32x8(), archsimd.BroadcastUint32x8(normal32)
	for i := range d {
		x, y := ftz(archsimd.LoadFloat32x8(&a[i]), exponent, most), ftz(archsimd.LoadFloat32x8(&b[i]), exponent, most)
		r := x.MulAdd(y, ftz(archsimd.LoadFloat32x8(&c[i]), exponent, most))
		if r.AsUint32x8().And(most).Equal(least).ToBits() != 0 {
			archsimd.ClearAVXUpperBits()
			for k := range d[i] {
				d[i][k] = number.F32(scalar(number.Bits32(a[i][k]), number.Bits32(b[i][k]), number.Bits32(c[i][k])))
			}
			continue
		}
		canon(ftz(r, exponent, most), nan).Store(&d[i])
	}
	archsimd.ClearAVXUpperBits()
}

// Copy32 copies 32 numbers of 32 bits, which overlap in whole or not at all.
func Copy32(d, s unsafe.Pointer) {
	if !vectors() {
		*(*[32]uint32)(d) = *(*[32]uint32)(s)
		return
	}
	copyNumbers(d, s, 4)
}

// Copy64 copies 32 numbers of 64 bits, likewise.
func Copy64(d, s unsafe.Pointer) {
	if !vectors() {
		*(*[32]uint64)(d) = *(*[32]uint64)(s)
		return
	}
	copyNumbers(d, s, 8)
}

// The offsets of neighbours in a row.
var (
	row32       = [4]uint64{0, 4, 8, 12}
	row64       = [4]uint64{0, 8, 16, 24}
	row32Narrow = [8]uint32{0, 4, 8, 12, 16, 20, 24, 28}
)

// CopyRow32 copies 32 words if the addresses in a are 4 apart, and reports whether they are. It is written out, as the
// two after it are: it is what a load or store costs.
func CopyRow32(d, s unsafe.Pointer, a *[32]uint64) bool {
	if !vectors() {
		return loopCopyRow(d, s, a, 4)
	}
	if a[1]-a[0] != 4 {
		return false
	}
	A := (*[8][4]uint64)(unsafe.Pointer(a))
	want, next := archsimd.BroadcastUint64x4(a[0]).Add(archsimd.LoadUint64x4(&row32)), archsimd.BroadcastUint64x4(16)
	x := archsimd.LoadUint64x4(&A[0]).Xor(want)
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[1]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[2]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[3]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[4]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[5]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[6]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[7]).Xor(want))
	if !x.IsZero() {
		archsimd.ClearAVXUpperBits()
		return false
	}
	D, S := (*[4][4]uint64)(d), (*[4][4]uint64)(s)
	archsimd.LoadUint64x4(&S[0]).Store(&D[0])
	archsimd.LoadUint64x4(&S[1]).Store(&D[1])
	archsimd.LoadUint64x4(&S[2]).Store(&D[2])
	archsimd.LoadUint64x4(&S[3]).Store(&D[3])
	archsimd.ClearAVXUpperBits()
	return true
}

// CopyRow64 is CopyRow32 of numbers of 64 bits, 8 apart.
func CopyRow64(d, s unsafe.Pointer, a *[32]uint64) bool {
	if !vectors() {
		return loopCopyRow(d, s, a, 8)
	}
	if a[1]-a[0] != 8 {
		return false
	}
	A := (*[8][4]uint64)(unsafe.Pointer(a))
	want, next := archsimd.BroadcastUint64x4(a[0]).Add(archsimd.LoadUint64x4(&row64)), archsimd.BroadcastUint64x4(32)
	x := archsimd.LoadUint64x4(&A[0]).Xor(want)
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[1]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[2]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[3]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[4]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[5]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[6]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint64x4(&A[7]).Xor(want))
	if !x.IsZero() {
		archsimd.ClearAVXUpperBits()
		return false
	}
	D, S := (*[8][4]uint64)(d), (*[8][4]uint64)(s)
	archsimd.LoadUint64x4(&S[0]).Store(&D[0])
	archsimd.LoadUint64x4(&S[1]).Store(&D[1])
	archsimd.LoadUint64x4(&S[2]).Store(&D[2])
	archsimd.LoadUint64x4(&S[3]).Store(&D[3])
	archsimd.LoadUint64x4(&S[4]).Store(&D[4])
	archsimd.LoadUint64x4(&S[5]).Store(&D[5])
	archsimd.LoadUint64x4(&S[6]).Store(&D[6])
	archsimd.LoadUint64x4(&S[7]).Store(&D[7])
	archsimd.ClearAVXUpperBits()
	return true
}

// CopyRow32Narrow is CopyRow32 with 32-bit addresses.
func CopyRow32Narrow(d, s unsafe.Pointer, a *[32]uint32) bool {
	if !vectors() {
		return loopCopyRow(d, s, a, 4)
	}
	if a[1]-a[0] != 4 {
		return false
	}
	A := (*[4][8]uint32)(unsafe.Pointer(a))
	want, next := archsimd.BroadcastUint32x8(a[0]).Add(archsimd.LoadUint32x8(&row32Narrow)),
		archsimd.BroadcastUint32x8(32)
	x := archsimd.LoadUint32x8(&A[0]).Xor(want)
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint32x8(&A[1]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint32x8(&A[2]).Xor(want))
	want = want.Add(next)
	x = x.Or(archsimd.LoadUint32x8(&A[3]).Xor(want))
	if !x.IsZero() {
		archsimd.ClearAVXUpperBits()
		return false
	}
	D, S := (*[4][4]uint64)(d), (*[4][4]uint64)(s)
	archsimd.LoadUint64x4(&S[0]).Store(&D[0])
	archsimd.LoadUint64x4(&S[1]).Store(&D[1])
	archsimd.LoadUint64x4(&S[2]).Store(&D[2])
	archsimd.LoadUint64x4(&S[3]).Store(&D[3])
	archsimd.ClearAVXUpperBits()
	return true
}

// copyNumbers copies 32 numbers of 4 or 8 bytes.
func copyNumbers(d, s unsafe.Pointer, n int) {
	D, S := (*[8][4]uint64)(d), (*[8][4]uint64)(s)
	for i := range n {
		archsimd.LoadUint64x4(&S[i&7]).Store(&D[i&7])
	}
	archsimd.ClearAVXUpperBits()
}
