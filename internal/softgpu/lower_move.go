package softgpu

import (
	"math/bits"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// registerMoves translates mov, which also packs registers into one and unpacks them.
type registerMoves struct{ *operands }

// A packOp has the elements of a mov with a vector.
type packOp struct {
	regs []place
	bits uint
	wide bool // the scalar has 64-bit lanes
}

func (mv registerMoves) mov(in *isa.Inst) {
	dst, src := in.Args[0].X, in.Args[1].X
	dv, dOK := dst.(*ptx.Vector)
	sv, sOK := src.(*ptx.Vector)
	switch {
	case in.Vec > 1:
		if !dOK || !sOK || len(dv.Elems) != in.Vec || len(sv.Elems) != in.Vec {
			mv.fail(in.Src.Pos, "operands %s and %s are not both vectors of %d elements",
				operandText(dst), operandText(src), in.Vec)
		}
		mv.moveVector(dv, sv, in.T)
	case dOK && sOK:
		mv.fail(in.Src.Pos, "both operands are vectors")
	case sOK: // pack
		mv.fillsExactly(in.Src.Args[1], in.T)
		mv.pack(in, dst, sv)
	case dOK: // unpack
		mv.fillsExactly(in.Src.Args[0], in.T)
		mv.unpack(in, dv, src)
	default:
		mv.move(dst, mv.source(src, in.T), in.T)
	}
}

// fillsExactly wants that a vector register in place of braces has as many bits as the number of type t.
func (mv registerMoves) fillsExactly(x ptx.Operand, t ptx.Type) {
	r, ok := x.(*ptx.Ref)
	if !ok {
		return
	}
	if e := mv.lookup(r.Name); e != nil && len(e.comps)*isa.Bits(e.typ) != isa.Bits(t) {
		mv.fail(mv.in.Src.Pos, "%s needs a component", r.Name)
	}
}

// moveVector copies all elements as if at once: {v.y, v.x} may come from v.
func (mv registerMoves) moveVector(dst, src *ptx.Vector, t ptx.Type) {
	from := make([]place, len(src.Elems))
	for k, e := range src.Elems {
		from[k] = mv.source(e, t)
	}
	for k, e := range dst.Elems {
		to := mv.write(e, t)
		for j := k + 1; j < len(from); j++ {
			if from[j].off == to.off {
				former := map[slotKind]ptx.Type{slot32: ptx.B32, slot64: ptx.B64, slot128: ptx.B128}[from[j].kind]
				saved := placeAt(mv.reg(former).off, from[j].kind)
				mv.copyPlace(saved, from[j])
				from[j] = saved
			}
		}
		mv.moveTo(to, e, from[k])
	}
}

func (mv registerMoves) pack(in *isa.Inst, dst ptx.Operand, v *ptx.Vector) {
	total := uint(isa.Bits(in.T))
	n := uint(len(v.Elems))
	if n == 0 || total%n != 0 || total/n < 8 {
		mv.fail(in.Src.Pos, "vector of %d elements", n)
	}
	elem := map[uint]ptx.Type{8: ptx.B8, 16: ptx.B16, 32: ptx.B32, 64: ptx.B64}[total/n]
	op := &packOp{bits: total / n, wide: total == 64}
	for _, e := range v.Elems {
		op.regs = append(op.regs, mv.source(e, elem))
	}
	d := mv.write(dst, in.T)
	if d.kind != slotFor(in.T) {
		mv.fail(in.Src.Pos, "result %s has the wrong width", operandText(dst))
	}
	if total == 128 {
		half := n / 2
		// Both halves are made before either is written.
		tmp := mv.reg(ptx.B128)
		for h := range uint(2) {
			if n == 2 {
				mv.copyPlace(placeAt(tmp.off+256*uint32(h), slot64), op.regs[h])
				continue
			}
			part := &packOp{bits: op.bits, regs: op.regs[h*half : (h+1)*half], wide: true}
			mv.emit(inst{kind: kindExec, d: tmp.off + 256*uint32(h), exec: packExec, x: part})
		}
		mv.copyPlace(d, placeAt(tmp.off, slot128))
		return
	}
	if total == 64 && n == 2 && op.regs[0].kind == slot32 && op.regs[1].kind == slot32 {
		mv.emit(inst{kind: kindVec, wide: wideD, d: d.off, a: op.regs[0].off, b: op.regs[1].off, c: op.regs[0].off,
			vec: vPack64})
		return
	}
	if total == 32 && n == 2 && op.regs[0].kind == slot32 && op.regs[1].kind == slot32 {
		mv.emit(inst{kind: kindVec, d: d.off, a: op.regs[0].off, b: op.regs[1].off, c: op.regs[0].off, vec: vPack32})
		return
	}
	mv.emit(inst{kind: kindExec, d: d.off, exec: packExec, x: op})
}

func vPack64(d, a, b, _ unsafe.Pointer) {
	D, A, B := (*[32]uint64)(d), (*[32]uint32)(a), (*[32]uint32)(b)
	for i := range D {
		D[i] = uint64(A[i]) | uint64(B[i])<<32
	}
}

func vPack32(d, a, b, _ unsafe.Pointer) {
	D, A, B := (*[32]uint32)(d), (*[32]uint32)(a), (*[32]uint32)(b)
	for i := range D {
		D[i] = A[i]&0xffff | B[i]<<16
	}
}

func packExec(w *warp, in *inst, mask uint32) {
	op := in.x.(*packOp)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		var x uint64
		for k, p := range op.regs {
			v := w.r.get(p.off, i, p.wide())
			if op.bits < 64 {
				v &= 1<<op.bits - 1
			}
			x |= v << (uint(k) * op.bits)
		}
		w.r.put(in.d, i, op.wide, x)
	}
}

func (mv registerMoves) unpack(in *isa.Inst, v *ptx.Vector, src ptx.Operand) {
	total := uint(isa.Bits(in.T))
	n := uint(len(v.Elems))
	if n == 0 || total%n != 0 || total/n < 8 {
		mv.fail(in.Src.Pos, "vector of %d elements", n)
	}
	elem := map[uint]ptx.Type{8: ptx.B8, 16: ptx.B16, 32: ptx.B32, 64: ptx.B64}[total/n]
	s := mv.source(src, in.T)
	if s.kind != slotFor(in.T) {
		mv.fail(in.Src.Pos, "operand %s has the wrong width", operandText(src))
	}
	op := &packOp{bits: total / n, wide: total == 64}
	for _, e := range v.Elems {
		op.regs = append(op.regs, mv.write(e, elem))
	}
	if total == 128 {
		half := n / 2
		for h := range uint(2) {
			if n == 2 {
				mv.copyPlace(op.regs[h], placeAt(s.off+256*uint32(h), slot64))
				continue
			}
			part := &packOp{bits: op.bits, regs: op.regs[h*half : (h+1)*half], wide: true}
			mv.emit(inst{kind: kindExec, a: s.off + 256*uint32(h), exec: unpackExec, x: part})
		}
		return
	}
	if total == 64 && n == 2 && !op.regs[0].wide() && !op.regs[1].wide() {
		mv.emit(inst{kind: kindVec, d: op.regs[0].off, a: s.off, b: s.off, c: s.off, vec: vLow32})
		mv.emit(inst{kind: kindVec, d: op.regs[1].off, a: s.off, b: s.off, c: s.off, vec: vHigh32})
		return
	}
	mv.emit(inst{kind: kindExec, a: s.off, exec: unpackExec, x: op})
}

func vLow32(d, a, _, _ unsafe.Pointer) {
	D, A := (*[32]uint32)(d), (*[32]uint64)(a)
	for i := range D {
		D[i] = uint32(A[i])
	}
}

func vHigh32(d, a, _, _ unsafe.Pointer) {
	D, A := (*[32]uint32)(d), (*[32]uint64)(a)
	for i := range D {
		D[i] = uint32(A[i] >> 32)
	}
}

func unpackExec(w *warp, in *inst, mask uint32) {
	op := in.x.(*packOp)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		x := w.r.get(in.a, i, op.wide)
		for k, p := range op.regs {
			v := x >> (uint(k) * op.bits)
			if op.bits < 64 {
				v &= 1<<op.bits - 1
			}
			w.r.put(p.off, i, p.wide(), v)
		}
	}
}
