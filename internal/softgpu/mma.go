package softgpu

import (
	"math/bits"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// mma.sync: PTX ISA 9.7.14.5. Registers of a fragment hold per elements each.
//
// In every shape but m8n8k4 of f16, with g = lane/4 and t = lane%4, element e
// of register r is
//
//	A: row g + 8(r%2), column t·per + e + 4·per·(r/2)     (m8: row g, one register)
//	B: row t·per + e + 4·per·r, column g
//	C: row g + 8(i/2), column 2t + i%2, for element i of all registers in order

// An mmaOp is a product with its registers.
type mmaOp struct {
	m, n, k    int
	d, a, b, c []uint32
	da, db     *decoder
	dt, ct     ptx.Type
	rnd        number.Rounding
	saturate   bool
	fn         string    // of b1: xor, and
	sparse     *sparsity // nil = A has all its elements
}

// ka is the number of elements in a row of A.
func (op *mmaOp) ka() int {
	if op.sparse != nil {
		return op.k / 2
	}
	return op.k
}

func (mx matrices) mma(in *isa.Inst) {
	m, n, k := shapeOf(in.Shape)
	op := &mmaOp{m: m, n: n, k: k, dt: in.T, ct: in.W, rnd: number.Nearest, saturate: in.Has(isa.Satfinite), fn: in.Fn}
	if in.Rnd != "" {
		op.rnd = number.RoundingOf(in.Rnd)
	}
	op.da, op.db = decoderOf(in.U), decoderOf(in.V)
	reg := ptx.B32
	if in.T == ptx.F64 {
		reg = ptx.F64
	}
	if in.Op != "mma" {
		op.sparse = mx.sparsity(in.Args[4].X, in.Args[5].X, in.U, k)
	}
	volta := k == 4 && in.U == ptx.F16
	na, nb := m*op.ka()/(32*op.da.per), n*k/(32*op.db.per)
	elems := m * n / 32
	if volta {
		na, nb, elems = 2, 2, 8
	}
	count := func(t ptx.Type) int {
		if t == ptx.F16 {
			return elems / 2
		}
		return elems
	}
	op.a = mx.registers(in.Args[1].X, reg, na, false)
	op.b = mx.registers(in.Args[2].X, reg, nb, false)
	op.c = mx.registers(in.Args[3].X, reg, count(op.ct), false)
	op.d = mx.registers(in.Args[0].X, reg, count(op.dt), true)
	switch {
	case volta:
		la, lb := in.LA == "row", in.LB == "row"
		mx.warpWide(func(w *warp, _ *inst, _ uint32) { op.quads(w, la, lb) })
	case in.U == ptx.B1:
		mx.warpWide(func(w *warp, _ *inst, _ uint32) { op.binary(w) })
	case op.da.float == nil:
		mx.warpWide(func(w *warp, _ *inst, _ uint32) { op.integer(w) })
	default:
		mx.warpWide(func(w *warp, _ *inst, _ uint32) { op.float(w) })
	}
}

// value is register r of a lane; 64-bit where the elements are.
func (w *warp) element(off uint32, lane int, d *decoder) uint64 {
	return w.r.get(off, lane, d.bits == 64)
}

// gather fills a with A by rows and b with B by columns, from the fragments.
func gather[T any](w *warp, op *mmaOp, a, b []T, decodeA, decodeB func(x uint64, to []T)) {
	per, ka := op.da.per, op.ka()
	for r, off := range op.a {
		for lane := range 32 {
			x := w.element(off, lane, op.da)
			decodeA(x, a[(lane/4+8*(r%2))*ka+lane%4*per+4*per*(r/2):])
		}
	}
	for r, off := range op.b {
		for lane := range 32 {
			x := w.element(off, lane, op.db)
			decodeB(x, b[lane/4*op.k+lane%4*per+4*per*r:])
		}
	}
}

// place is the index of element i of lane's part of C in an m×n matrix by rows.
func (op *mmaOp) place(lane, i int) int {
	return (lane/4+8*(i/2))*op.n + lane%4*2 + i%2
}

// loadC reads all elements of a C fragment of float type t.
func (w *warp) loadC(regs []uint32, t ptx.Type, at func(lane, i int, x float64)) {
	d := decoderOf(t)
	for r, off := range regs {
		for lane := range 32 {
			x := w.element(off, lane, d)
			for e := range d.per {
				at(lane, r*d.per+e, d.floatAt(x, e))
			}
		}
	}
}

// storeD writes all elements of a D fragment.
func (w *warp) storeD(regs []uint32, t ptx.Type, at func(lane, i int) float64) {
	for r, off := range regs {
		for lane := range 32 {
			switch t {
			case ptx.F64:
				w.r.v64(off)[lane] = encode(at(lane, r), t)
			case ptx.F16:
				w.r.v32(off)[lane] = uint32(encode(at(lane, 2*r), t) | encode(at(lane, 2*r+1), t)<<16)
			default:
				w.r.v32(off)[lane] = uint32(encode(at(lane, r), t))
			}
		}
	}
}

func (op *mmaOp) float(w *warp) {
	s := w.scratch()
	gather(w, op, s.a[:], s.b[:], op.da.floats, op.db.floats)
	w.loadC(op.c, op.ct, func(lane, i int, x float64) { s.c[op.place(lane, i)] = x })
	if op.sparse != nil {
		rowsOfB(op.sparse, w, s.b[:], s.sel[:], op.m, op.n, op.k, func(i int, b []float64) {
			multiply(s.c[i*op.n:], s.a[i*op.ka():], b, 1, op.n, op.ka())
		})
	} else if op.dt == ptx.F64 {
		multiplyFused(s.c[:], s.a[:], s.b[:], op.m, op.n, op.k, op.rnd)
	} else {
		multiply(s.c[:], s.a[:], s.b[:], op.m, op.n, op.k)
	}
	w.storeD(op.d, op.dt, func(lane, i int) float64 { return s.c[op.place(lane, i)] })
}

func (op *mmaOp) integer(w *warp) {
	s := w.scratch()
	gather(w, op, s.p[:], s.q[:], op.da.ints, op.db.ints)
	for i, off := range op.c {
		for lane, x := range w.r.v32(off) {
			s.r[op.place(lane, i)] = int32(x)
		}
	}
	if op.sparse != nil {
		rowsOfB(op.sparse, w, s.q[:], s.pick[:], op.m, op.n, op.k, func(i int, b []int32) {
			multiplyInt(s.r[i*op.n:], s.p[i*op.ka():], b, 1, op.n, op.ka(), op.saturate)
		})
	} else {
		multiplyInt(s.r[:], s.p[:], s.q[:], op.m, op.n, op.k, op.saturate)
	}
	for i, off := range op.d {
		d := w.r.v32(off)
		for lane := range d {
			d[lane] = uint32(s.r[op.place(lane, i)])
		}
	}
}

// binary works on whole words of 32 elements: d = c + popcount(a op b).
func (op *mmaOp) binary(w *warp) {
	s := w.scratch()
	words := *op
	words.k = op.k / 32
	one := decoder{per: 1, bits: 32}
	words.da, words.db = &one, &one
	word := func(x uint64, to []int32) { to[0] = int32(x) }
	gather(w, &words, s.p[:], s.q[:], word, word)
	for i, off := range op.c {
		for lane, x := range w.r.v32(off) {
			s.r[op.place(lane, i)] = int32(x)
		}
	}
	multiplyBits(s.r[:], s.p[:], s.q[:], op.m, op.n, words.k, op.fn == "and")
	for i, off := range op.d {
		d := w.r.v32(off)
		for lane := range d {
			d[lane] = uint32(s.r[op.place(lane, i)])
		}
	}
}

func multiplyBits(c, a, b []int32, m, n, words int, and bool) {
	for i := range m {
		for j := range n {
			for x := range words {
				v := uint32(a[i*words+x]) ^ uint32(b[j*words+x])
				if and {
					v = uint32(a[i*words+x]) & uint32(b[j*words+x])
				}
				c[i*n+j] += int32(bits.OnesCount32(v))
			}
		}
	}
}

// quads is m8n8k4 of f16, where each of four sets of eight lanes, 4p..4p+3 and 16 more,
// computes a product of its own. With q = lane%4, plus 4 in the upper half of the warp,
// element i of a lane is
//
//	A by rows:    row q, column i         by columns: row i + 4·upper, column lane%4
//	B by columns: row i, column q         by rows:    row lane%4, column i + 4·upper
//	C of f16:     row q, column i
//	C of f32:     row lane%2 + (i&2) + 4·upper, column (i&4) + (lane&2) + i%2
func (op *mmaOp) quads(w *warp, rowA, rowB bool) {
	s := w.scratch()
	const size = 8 * 8
	place := func(t ptx.Type, lane, i int) int {
		set, upper := lane%16/4, lane/16*4
		if t == ptx.F16 {
			return set*size + (lane%4+upper)*8 + i
		}
		return set*size + (lane%2+i&2+upper)*8 + i&4 + lane&2 + i%2
	}
	for lane := range 32 {
		set, upper := lane%16/4*8*4, lane/16*4
		for i := range 4 {
			a := f16Value(uint64(w.r.v32(op.a[i/2])[lane] >> (i % 2 * 16) & 0xffff))
			b := f16Value(uint64(w.r.v32(op.b[i/2])[lane] >> (i % 2 * 16) & 0xffff))
			if rowA {
				s.a[set+(lane%4+upper)*4+i] = a
			} else {
				s.a[set+(i+upper)*4+lane%4] = a
			}
			if rowB {
				s.b[set+(i+upper)*4+lane%4] = b
			} else {
				s.b[set+(lane%4+upper)*4+i] = b
			}
		}
	}
	w.loadC(op.c, op.ct, func(lane, i int, x float64) { s.c[place(op.ct, lane, i)] = x })
	for p := range 4 {
		multiply(s.c[p*size:], s.a[p*32:], s.b[p*32:], 8, 8, 4)
	}
	w.storeD(op.d, op.dt, func(lane, i int) float64 { return s.c[place(op.dt, lane, i)] })
}
