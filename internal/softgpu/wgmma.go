package softgpu

import (
	"slices"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// wgmma.mma_async: PTX ISA 9.7.15. Four warps compute 64 rows; each computes its own 16, so that
// they need not meet. A is in registers, as for mma.m16n8, or in shared
// memory, B always in shared memory. Element i of D in the order of the registers is at row
// lane/4 + 8(i/2 % 2) of the warp's 16 and column 8(i/4) + 2(lane%4) + i%2.

// A matrixDescriptor is the decoded 64-bit descriptor of a matrix in shared
// memory (PTX ISA 9.7.15.5.1.2): units of 16 bytes that lie in rows of width bytes.
type matrixDescriptor struct {
	start, leading, stride uint64 // bytes
	base                   uint64 // row of the swizzle pattern at which it starts
	mode                   uint8  // as of swizzled: 0 none, 1 32, 2 64, 3 128 bytes
}

func descriptor(x uint64) matrixDescriptor {
	d := matrixDescriptor{start: x & 0x3fff << 4, leading: x >> 16 & 0x3fff << 4, stride: x >> 32 & 0x3fff << 4,
		base: x >> 49 & 7}
	d.mode = uint8(4-x>>62) & 3
	return d
}

// unit is the address of a unit of 16 bytes. K-major: row is the index of
// the row of A (column of B), unit counts along k. MN-major (trans): unit
// counts along the rows of A (columns of B), row is the index in k.
func (d *matrixDescriptor) unit(row, unit uint64, trans bool) uint64 {
	width := uint64(16) << d.mode
	addr := d.start
	switch {
	case d.mode == 0 && trans:
		addr += unit*d.stride + row%8*16 + row/8*d.leading
	case d.mode == 0:
		addr += row/8*d.stride + row%8*16 + unit*d.leading
	case trans:
		per := width / 16
		addr += unit%per*16 + unit/per*d.leading + row%8*width + row/8*d.stride
	default:
		addr += row/8*d.stride + row%8*width + unit*16
	}
	return addr ^ (addr>>7-d.base)&(1<<d.mode-1)<<4
}

// sharedMatrix fills to with count rows of k elements, beginning at row first.
func sharedMatrix[T any](w *warp, in *inst, d *matrixDescriptor, trans bool, first, count, k int, dec *decoder,
	at func(x uint64, e int) T, to []T) {
	per := 128 / int(dec.bits) // elements of a unit
	load := func(row, unit int) *[4]uint32 {
		addr := d.unit(uint64(row), uint64(unit), trans)
		return (*[4]uint32)(w.pointer(in, memShared, 0, addr, 16, pageReadOnly))
	}
	if trans {
		for u := range count / per {
			for x := range k {
				p := load(x, first/per+u)
				for e := range per {
					to[(u*per+e)*k+x] = at(uint64(p[e/dec.per]), e%dec.per)
				}
			}
		}
		return
	}
	for i := range count {
		for u := range k / per {
			p := load(first+i, u)
			for e := range per {
				to[i*k+u*per+e] = at(uint64(p[e/dec.per]), e%dec.per)
			}
		}
	}
}

// A wgmmaOp is the operand list.
type wgmmaOp struct {
	n, k           int
	d              []uint32
	a              []uint32 // nil = descA
	descA, descB   uint32
	scaleD         uint32 // predicate: D is added to
	negA, negB     bool
	transA, transB bool
	da, db         *decoder
	dt             ptx.Type
	saturate, bits bool
	sparse         *sparsity // nil = A has all its elements
}

// ka is the number of elements in a row of A.
func (op *wgmmaOp) ka() int {
	if op.sparse != nil {
		return op.k / 2
	}
	return op.k
}

func (mx matrices) wgmma(in *isa.Inst) {
	_, n, k := shapeOf(in.Shape)
	op := &wgmmaOp{n: n, k: k, dt: in.T, da: decoderOf(in.U), db: decoderOf(in.V), saturate: in.Has(isa.Satfinite),
		bits: in.U == ptx.B1}
	if op.bits {
		// Whole words: 32 elements at a time.
		op.k = k / 32
		op.da = &decoder{per: 1, bits: 32}
		op.db = op.da
	}
	regs := n / 2
	if in.T == ptx.F16 {
		regs = n / 4
	}
	args := in.Args
	_, vector := args[1].X.(*ptx.Vector)
	if vector {
		op.a = mx.registers(args[1].X, ptx.B32, 4, false)
	} else {
		op.descA = mx.read(args[1].X, ptx.B64)
	}
	op.descB = mx.read(args[2].X, ptx.B64)
	if in.Op == "wgmma.mma_async.sp" {
		op.sparse = mx.sparsity(args[3].X, args[4].X, in.U, op.k)
		args = slices.Delete(slices.Clone(args), 3, 5)
	}
	op.scaleD = mx.read(args[3].X, ptx.Pred)
	// The rest are constants: 1 or -1 for the scales, 0 or 1 for the transpositions.
	constant := func(i int) int64 {
		x := args[i].X
		neg := false
		if m, ok := x.(*ptx.Neg); ok && !m.Not {
			x, neg = m.X, true
		}
		imm, ok := x.(*ptx.Imm)
		if !ok {
			mx.fail(in.Src.Pos, "operand %d must be a constant", i+1)
		}
		if neg {
			return -int64(imm.Bits)
		}
		return int64(imm.Bits)
	}
	if len(args) > 5 {
		op.negA, op.negB = constant(4) == -1, constant(5) == -1
	}
	if len(args) > 6 {
		if vector == (len(args) == 8) {
			mx.fail(in.Src.Pos, "%d operands, with A in registers: %v", len(args), vector)
		}
		if !vector {
			op.transA = constant(6) == 1
		}
		op.transB = constant(len(args)-1) == 1
	}
	op.d = mx.registers(args[0].X, ptx.B32, regs, true)
	if op.da.float == nil {
		mx.warpWide(func(w *warp, in *inst, _ uint32) { op.integer(w, in) })
	} else {
		mx.warpWide(func(w *warp, in *inst, _ uint32) { op.float(w, in) })
	}
}

// operandA fills to with the warp's 16 rows of A.
func operandA[T any](w *warp, in *inst, op *wgmmaOp, at func(x uint64, e int) T, to []T) {
	if op.a == nil {
		d := descriptor(w.r.v64(op.descA)[0])
		sharedMatrix(w, in, &d, op.transA, w.id%4*16, 16, op.ka(), op.da, at, to)
		return
	}
	per := op.da.per
	for r, off := range op.a {
		for lane, x := range w.r.v32(off) {
			row := to[(lane/4+8*(r%2))*op.ka()+lane%4*per+4*per*(r/2):]
			for e := range per {
				row[e] = at(uint64(x), e)
			}
		}
	}
}

// place is where element i of a lane lies in 16 rows of 8 columns.
func (op *wgmmaOp) place(lane, i int) int { return (lane/4+8*(i/2%2))*8 + lane%4*2 + i%2 }

func (op *wgmmaOp) float(w *warp, in *inst) {
	s := w.scratch()
	operandA(w, in, op, op.da.floatAt, s.a[:])
	if op.negA != op.negB {
		for i := range s.a[:16*op.ka()] {
			s.a[i] = -s.a[i]
		}
	}
	d := descriptor(w.r.v64(op.descB)[0])
	add := *w.r.p(op.scaleD)&1 != 0
	per := 4 // registers for 8 columns
	if op.dt == ptx.F16 {
		per = 2
	}
	for c := range op.n / 8 {
		sharedMatrix(w, in, &d, op.transB, 8*c, 8, op.k, op.db, op.db.floatAt, s.b[:])
		regs := op.d[per*c : per*(c+1)]
		clear(s.c[:16*8])
		if add {
			w.loadC(regs, op.dt, func(lane, i int, x float64) { s.c[op.place(lane, i)] = x })
		}
		if op.sparse != nil {
			rowsOfB(op.sparse, w, s.b[:], s.sel[:], 16, 8, op.k, func(i int, b []float64) {
				multiply(s.c[i*8:], s.a[i*op.ka():], b, 1, 8, op.ka())
			})
		} else {
			multiply(s.c[:], s.a[:], s.b[:], 16, 8, op.k)
		}
		w.storeD(regs, op.dt, func(lane, i int) float64 { return s.c[op.place(lane, i)] })
	}
}

func (op *wgmmaOp) integer(w *warp, in *inst) {
	s := w.scratch()
	operandA(w, in, op, op.da.intAt, s.p[:])
	d := descriptor(w.r.v64(op.descB)[0])
	add := *w.r.p(op.scaleD)&1 != 0
	for c := range op.n / 8 {
		sharedMatrix(w, in, &d, false, 8*c, 8, op.k, op.db, op.db.intAt, s.q[:])
		regs := op.d[4*c : 4*c+4]
		clear(s.r[:16*8])
		if add {
			for i, off := range regs {
				for lane, x := range w.r.v32(off) {
					s.r[op.place(lane, i)] = int32(x)
				}
			}
		}
		switch {
		case op.sparse != nil:
			rowsOfB(op.sparse, w, s.q[:], s.pick[:], 16, 8, op.k, func(i int, b []int32) {
				multiplyInt(s.r[i*8:], s.p[i*op.ka():], b, 1, 8, op.ka(), op.saturate)
			})
		case op.bits:
			multiplyBits(s.r[:], s.p[:], s.q[:], 16, 8, op.k, true)
		default:
			multiplyInt(s.r[:], s.p[:], s.q[:], 16, 8, op.k, op.saturate)
		}
		for i, off := range regs {
			v := w.r.v32(off)
			for lane := range v {
				v[lane] = uint32(s.r[op.place(lane, i)])
			}
		}
	}
}
