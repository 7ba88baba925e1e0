package softgpu

import (
	"math/bits"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// wmma: PTX ISA 9.7.14.4. Which lane holds which element of a fragment is not
// specified, and differs between architectures. Here element e of register r of
// a lane is number (r·32 + lane)·per + e, counted by rows in A and C and by
// columns in B; where a fragment has room for more elements (A and B of f16), they repeat.

// A fragment says how a wmma operand lies in registers.
type fragment struct {
	rows, cols int // of the matrix; B is counted as its transpose
	regs       int
	d          *decoder
}

// fragmentOf is the fragment of matrix a, b or c (d).
func fragmentOf(which byte, shape string, t ptx.Type) fragment {
	m, n, k := shapeOf(shape)
	f := fragment{d: decoderOf(t)}
	switch which {
	case 'a':
		f.rows, f.cols = m, k
	case 'b':
		f.rows, f.cols = n, k
	default:
		f.rows, f.cols = m, n
	}
	f.regs = max(1, f.rows*f.cols/(32*f.d.per))
	if t == ptx.F16 && which != 'c' {
		f.regs = 8
	}
	return f
}

// index is the number of element e of register r of a lane.
func (f *fragment) index(r, lane, e int) int {
	return ((r*32+lane)*f.d.per + e) % (f.rows * f.cols)
}

func fragmentReg(t ptx.Type) ptx.Type {
	if t == ptx.F64 {
		return ptx.F64
	}
	return ptx.B32
}

func (mx matrices) wmma(in *isa.Inst) {
	m, n, k := shapeOf(in.Shape)
	ta, tb, tc := in.U, in.V, in.W
	if tb == ptx.TypeNone { // f16: only the types of D and C are written
		ta, tb, tc = ptx.F16, ptx.F16, in.U
	}
	fa, fb, fc, fd := fragmentOf('a', in.Shape, ta), fragmentOf('b', in.Shape, tb), fragmentOf('c', in.Shape, tc),
		fragmentOf('c', in.Shape, in.T)
	a := mx.registers(in.Args[1].X, fragmentReg(ta), fa.regs, false)
	b := mx.registers(in.Args[2].X, fragmentReg(tb), fb.regs, false)
	c := mx.registers(in.Args[3].X, fragmentReg(tc), fc.regs, false)
	d := mx.registers(in.Args[0].X, fragmentReg(in.T), fd.regs, true)
	dt, saturate, and, isBits := in.T, in.Has(isa.Satfinite), in.Fn == "and", ta == ptx.B1
	rnd := number.Nearest
	if in.Rnd != "" {
		rnd = number.RoundingOf(in.Rnd)
	}
	if fa.d.float == nil {
		mx.warpWide(func(w *warp, _ *inst, _ uint32) {
			s := w.scratch()
			readFragment(w, &fc, c, s.r[:], fc.d.intAt)
			if isBits {
				// A row of 128 bits is four words in a row, in neighbouring lanes.
				for lane := range 32 {
					s.p[lane], s.q[lane] = int32(w.r.v32(a[0])[lane]), int32(w.r.v32(b[0])[lane])
				}
				multiplyBits(s.r[:], s.p[:], s.q[:], m, n, k/32, and)
			} else {
				readFragment(w, &fa, a, s.p[:], fa.d.intAt)
				readFragment(w, &fb, b, s.q[:], fb.d.intAt)
				multiplyInt(s.r[:], s.p[:], s.q[:], m, n, k, saturate)
			}
			for r, off := range d {
				for lane := range 32 {
					w.r.v32(off)[lane] = uint32(s.r[fd.index(r, lane, 0)])
				}
			}
		})
		return
	}
	mx.warpWide(func(w *warp, _ *inst, _ uint32) {
		s := w.scratch()
		readFragment(w, &fa, a, s.a[:], fa.d.floatAt)
		readFragment(w, &fb, b, s.b[:], fb.d.floatAt)
		readFragment(w, &fc, c, s.c[:], fc.d.floatAt)
		if dt == ptx.F64 {
			multiplyFused(s.c[:], s.a[:], s.b[:], m, n, k, rnd)
		} else {
			multiply(s.c[:], s.a[:], s.b[:], m, n, k)
		}
		if saturate {
			clampAll(s.c[:m*n], dt)
		}
		w.storeD(d, dt, func(lane, i int) float64 { return s.c[fd.index(i/fd.d.per, lane, i%fd.d.per)] })
	})
}

// clampAll makes results finite: .satfinite.
func clampAll(c []float64, t ptx.Type) {
	for i, x := range c {
		if x == x {
			c[i] = number.ClampFinite(x, t)
		} else {
			c[i] = 0
		}
	}
}

func readFragment[T any](w *warp, f *fragment, regs []uint32, to []T, at func(x uint64, e int) T) {
	for r, off := range regs {
		for lane := range 32 {
			x := w.element(off, lane, f.d)
			for e := range f.d.per {
				to[f.index(r, lane, e)] = at(x, e)
			}
		}
	}
}

// wmmaMemory is wmma.load and wmma.store. The matrix lies by rows or columns,
// stride elements apart.
func (mx matrices) wmmaMemory(in *isa.Inst) {
	store := in.Op == "wmma.store.d"
	which := byte('c')
	if !store {
		which = in.Op[len(in.Op)-1]
	}
	f := fragmentOf(which, in.Shape, in.T)
	mem, reg := in.Args[0].X, in.Args[1].X
	if !store {
		mem, reg = reg, mem
	}
	sp := mx.accessSpace(in, mem)
	x := inst{kind: kindSync, e: mx.constBits(uint64(fullMask), slot32)}
	var wide bool
	x.a, x.off, wide = mx.address(mem, sp)
	if wide {
		x.wide = wideA
	}
	// B is counted by columns: for it, rows of the fragment are columns of the matrix.
	byRows := (in.LA == "row") != (which == 'b')
	line := f.rows
	if byRows {
		line = f.cols
	}
	stride := mx.constBits(uint64(line), slot32)
	if len(in.Args) > 2 {
		stride = mx.read(in.Args[2].X, ptx.U32)
	}
	regs := mx.registers(reg, fragmentReg(in.T), f.regs, !store)
	size, per := uint64(f.d.bits), f.d.per
	if size < 8 {
		// Sub-byte elements: whole registers, which lie side by side along k.
		size, per = 32, 1
		f.cols /= f.d.per
	}
	sub := f.d.bits < 8
	perReg := f.d.per
	x.exec = func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			lane := bits.TrailingZeros32(m)
			base := w.address(in, lane)
			ld := uint64(w.r.v32(stride)[lane])
			if sub {
				ld /= uint64(perReg)
			}
			for r, off := range regs {
				var v uint64
				if store {
					v = w.r.get(off, lane, size == 64)
				}
				for e := range per {
					i := ((r*32+lane)*per + e) % (f.rows * f.cols)
					row, col := uint64(i/f.cols), uint64(i%f.cols)
					at := row*ld + col
					if !byRows {
						at = col*ld + row
					}
					addr := base + at*size/8
					if store {
						p := w.pointer(in, sp, lane, addr, size/8, pageWritable)
						w.observeSpace(sp, lane, addr, size/8, Written)
						putBits(p, v>>(uint64(e)*size), size)
						continue
					}
					p := w.pointer(in, sp, lane, addr, size/8, pageReadOnly)
					w.observeSpace(sp, lane, addr, size/8, Read)
					v |= getBits(p, size) << (uint64(e) * size)
				}
				if !store {
					w.r.put(off, lane, size == 64, v)
				}
			}
		}
	}
	mx.emit(x)
}

// observeSpace is observe for an instruction that may name another space than global.
func (w *warp) observeSpace(sp memSpace, lane int, addr, n uint64, a Access) {
	if w.block.watch != nil && sp == memGlobal {
		w.observe(lane, addr, n, a)
	}
}

func getBits(p unsafe.Pointer, size uint64) uint64 {
	switch size {
	case 8:
		return uint64(*(*uint8)(p))
	case 16:
		return uint64(*(*uint16)(p))
	case 32:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

func putBits(p unsafe.Pointer, x, size uint64) {
	switch size {
	case 8:
		*(*uint8)(p) = uint8(x)
	case 16:
		*(*uint16)(p) = uint16(x)
	case 32:
		*(*uint32)(p) = uint32(x)
	default:
		*(*uint64)(p) = x
	}
}

// matrixMemory is ldmatrix and stmatrix (PTX ISA 9.7.14.5.15 and .16): lane 8j+i has the
// address of row i of matrix j; lane 4i+c holds elements 2c and 2c+1 of row i
// of matrix j in register j, or of column i with .trans.
func (mx matrices) matrixMemory(in *isa.Inst) {
	store := in.Op == "stmatrix"
	mem, reg := in.Args[0].X, in.Args[1].X
	if !store {
		mem, reg = reg, mem
	}
	sp := mx.accessSpace(in, mem)
	n := int(in.Num[1] - '0')
	x := inst{kind: kindSync, e: mx.constBits(uint64(fullMask), slot32)}
	var wide bool
	x.a, x.off, wide = mx.address(mem, sp)
	if wide {
		x.wide = wideA
	}
	regs := mx.registers(reg, ptx.B32, n, !store)
	trans := in.Has(isa.Trans)
	need := uint8(pageReadOnly)
	if store {
		need = pageWritable
	}
	x.exec = func(w *warp, in *inst, _ uint32) {
		var rows [4][8]*[8]uint16
		for j := range n {
			for i := range 8 {
				rows[j][i] = (*[8]uint16)(w.pointer(in, sp, 8*j+i, w.address(in, 8*j+i), 16, need))
			}
		}
		for j, off := range regs {
			v := w.r.v32(off)
			for lane := range v {
				lo, hi := &rows[j][lane/4][lane%4*2], &rows[j][lane/4][lane%4*2+1]
				if trans {
					lo, hi = &rows[j][lane%4*2][lane/4], &rows[j][lane%4*2+1][lane/4]
				}
				if store {
					*lo, *hi = uint16(v[lane]), uint16(v[lane]>>16)
				} else {
					v[lane] = uint32(*lo) | uint32(*hi)<<16
				}
			}
		}
	}
	mx.emit(x)
}

// movmatrix transposes an 8×8 matrix of 16-bit elements held as by ldmatrix.
func (mx matrices) movmatrix(in *isa.Inst) {
	d, a := mx.writeExact(in.Args[0].X, ptx.B32), mx.read(in.Args[1].X, ptx.B32)
	mx.warpWide(func(w *warp, _ *inst, _ uint32) {
		src, dst := *w.r.v32(a), w.r.v32(d)
		at := func(row, col int) uint32 { return src[row*4+col/2] >> (col % 2 * 16) & 0xffff }
		for lane := range dst {
			dst[lane] = at(lane%4*2, lane/4) | at(lane%4*2+1, lane/4)<<16
		}
	})
}
