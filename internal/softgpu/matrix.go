package softgpu

import (
	"fmt"
	"math"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// The arithmetic of the tensor instructions.
//
// A matrix product is computed element by element, in the order k = 0, 1, …,
// starting with C. Products and sums of the float formats up to 32 bits are float64, where every
// product is exact, and the result is rounded once, to nearest even: it differs from the
// exact one by at most half an ulp of D and 2^-52 of the sum of the magnitudes for each addition. f64 is a chain of
// fused multiply-adds, each rounded as the instruction says. Integers are
// exact, and wrap or saturate at the end. A NaN is the canonical one. Of tf32 operands the low 13 bits are
// ignored.

// matrices translates the tensor instructions.
type matrices struct{ *operands }

// maxMatrix is the size of the largest operand: 64 rows of A and 256 columns of
// B of wgmma go 16 rows and 8 columns at a time; A of m16n8k64, B of m8n32k16.
const maxMatrix = 16 * 64

// A matrixScratch holds the operands of a product: A by rows, B by columns.
type matrixScratch struct {
	a, b, c [maxMatrix]float64
	p, q, r [maxMatrix]int32
	sel     [maxMatrix]float64 // of B, for a row of a sparse A
	pick    [maxMatrix]int32
}

func (w *warp) scratch() *matrixScratch {
	if w.matrix == nil {
		w.matrix = &matrixScratch{}
	}
	return w.matrix
}

// multiply is c = a×b + c for m×k, k×n and m×n elements; n is a multiple of 4.
// Four columns at a time, because one sum alone waits for each of its additions.
func multiply(c, a, b []float64, m, n, k int) {
	for i := range m {
		row := a[i*k : i*k+k]
		for j := 0; j < n; j += 4 {
			out := (*[4]float64)(c[i*n+j:])
			b0, b1, b2, b3 := b[j*k:][:len(row)], b[(j+1)*k:][:len(row)], b[(j+2)*k:][:len(row)], b[(j+3)*k:][:len(row)]
			s0, s1, s2, s3 := out[0], out[1], out[2], out[3]
			for x, v := range row {
				s0 += v * b0[x]
				s1 += v * b1[x]
				s2 += v * b2[x]
				s3 += v * b3[x]
			}
			*out = [4]float64{s0, s1, s2, s3}
		}
	}
}

// multiplyFused is multiply with fused steps, each rounded by r.
func multiplyFused(c, a, b []float64, m, n, k int, r number.Rounding) {
	for i := range m {
		for j := range n {
			s := c[i*n+j]
			for x := range k {
				if r == number.Nearest {
					s = math.FMA(a[i*k+x], b[j*k+x], s)
				} else {
					s = number.FMA64(a[i*k+x], b[j*k+x], s, r, false)
				}
			}
			c[i*n+j] = s
		}
	}
}

// multiplyInt is multiply on integers. Products of 64 elements of 8 bits do not overflow int64.
func multiplyInt(c, a, b []int32, m, n, k int, saturate bool) {
	for i := range m {
		row := a[i*k : i*k+k]
		for j := range n {
			col := b[j*k:][:len(row)]
			if !saturate {
				var s int32
				for x, v := range row {
					s += v * col[x]
				}
				c[i*n+j] += s
				continue
			}
			s := int64(c[i*n+j])
			for x, v := range row {
				s += int64(v) * int64(col[x])
			}
			c[i*n+j] = int32(min(max(s, math.MinInt32), math.MaxInt32))
		}
	}
}

// A decoder gives element e of a 32-bit register (of the only element, for 64 bits).
type decoder struct {
	per   int // elements of a register
	bits  uint
	float func(x uint64) float64 // nil = integer
	sign  bool
}

func (d *decoder) floatAt(x uint64, e int) float64 {
	if d.per == 1 {
		return d.float(x)
	}
	return d.float(x >> (uint(e) * d.bits) & (1<<d.bits - 1))
}

// floats decodes all elements of a register.
func (d *decoder) floats(x uint64, to []float64) {
	switch d.per {
	case 1:
		to[0] = d.float(x)
	case 2:
		to[0], to[1] = d.float(x&0xffff), d.float(x>>16&0xffff)
	default:
		for e := range d.per {
			to[e] = d.floatAt(x, e)
		}
	}
}

func (d *decoder) ints(x uint64, to []int32) {
	left := 32 - d.bits
	if d.sign {
		for e := range d.per {
			to[e] = int32(uint32(x)<<left) >> left
			x >>= d.bits
		}
		return
	}
	for e := range d.per {
		to[e] = int32(uint32(x) << left >> left)
		x >>= d.bits
	}
}

func (d *decoder) intAt(x uint64, e int) int32 {
	v := uint32(x) >> (uint(e) * d.bits)
	if d.sign {
		return int32(v<<(32-d.bits)) >> (32 - d.bits)
	}
	return int32(v << (32 - d.bits) >> (32 - d.bits))
}

// decoderOf is how elements of type t lie in registers and in memory.
func decoderOf(t ptx.Type) *decoder {
	switch t {
	case ptx.F64:
		return &decoder{per: 1, bits: 64, float: math.Float64frombits}
	case ptx.F32:
		return &decoder{per: 1, bits: 32,
			float: func(x uint64) float64 { return float64(math.Float32frombits(uint32(x))) }}
	case ptx.TF32:
		return &decoder{per: 1, bits: 32,
			float: func(x uint64) float64 { return float64(math.Float32frombits(uint32(x) &^ 0x1fff)) }}
	case ptx.BF16:
		return &decoder{per: 2, bits: 16,
			float: func(x uint64) float64 { return float64(math.Float32frombits(uint32(x) << 16)) }}
	case ptx.F16:
		return &decoder{per: 2, bits: 16, float: f16Value}
	case ptx.E4M3, ptx.E5M2:
		var table [256]float64
		for i := range table {
			if t == ptx.E4M3 {
				table[i] = e4m3Value(uint32(i))
			} else {
				table[i] = number.SmallValue(uint32(i), 5, 2)
			}
		}
		return &decoder{per: 4, bits: 8, float: func(x uint64) float64 { return table[x&0xff] }}
	case ptx.S32:
		return &decoder{per: 1, bits: 32, sign: true}
	case ptx.S8, ptx.U8:
		return &decoder{per: 4, bits: 8, sign: t == ptx.S8}
	case ptx.S4, ptx.U4:
		return &decoder{per: 8, bits: 4, sign: t == ptx.S4}
	case ptx.B1:
		return &decoder{per: 32, bits: 1}
	}
	return nil
}

// f16Value is number.SmallValue(x, 5, 10), quicker.
func f16Value(x uint64) float64 {
	exp := x >> 10 & 0x1f
	switch exp {
	case 0:
		v := float64(x&0x3ff) * 0x1p-24
		if x>>15&1 != 0 {
			return -v
		}
		return v
	case 0x1f:
		return number.SmallValue(uint32(x), 5, 10)
	}
	return math.Float64frombits(x>>15&1<<63 | (exp+1023-15)<<52 | x&0x3ff<<42)
}

// e4m3Value: no infinity, and only 0x7f and 0xff are NaN.
func e4m3Value(x uint32) float64 {
	if x&0x7f == 0x7f {
		return math.NaN()
	}
	v := math.Ldexp(float64(x&7|8), int(x>>3&15)-7-3)
	if x>>3&15 == 0 {
		v = math.Ldexp(float64(x&7), -6-3)
	}
	if x&0x80 != 0 {
		v = -v
	}
	return v
}

// encode rounds a result to type t.
func encode(x float64, t ptx.Type) uint64 {
	switch t {
	case ptx.F64:
		return math.Float64bits(x)
	case ptx.F16:
		if x != x {
			return number.NaN16
		}
		return uint64(number.RoundF16(x, number.Nearest))
	}
	if x != x {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(float32(x)))
}

// shapeOf splits m16n8k16.
func shapeOf(s string) (m, n, k int) {
	if _, err := fmt.Sscanf(s, "m%dn%dk%d", &m, &n, &k); err != nil {
		return 0, 0, 0
	}
	return m, n, k
}

func (mx matrices) tensor(in *isa.Inst) {
	switch in.Op {
	case "mma", "mma.sp", "mma.sp::ordered_metadata":
		mx.mma(in)
	case "wmma.mma":
		mx.wmma(in)
	case "wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.store.d":
		mx.wmmaMemory(in)
	case "ldmatrix", "stmatrix":
		mx.matrixMemory(in)
	case "movmatrix":
		mx.movmatrix(in)
	case "wgmma.mma_async", "wgmma.mma_async.sp":
		mx.wgmma(in)
	case "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group":
		// Products are done when they are issued.
	default:
		mx.fail(in.Src.Pos, "not implemented")
	}
}
