package softgpu

import (
	"fmt"
	"math/bits"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// Dynamic stack allocation: PTX ISA 9.7.17. A program that uses it has a stack pointer, an offset
// in local memory, in each lane. The stack lies behind all other local memory and grows down; a function that
// moved the pointer puts it back when it returns.

// stack translates what moves the stack pointer.
type stack struct{ *operands }

// allocaBytes is the size of the stack of alloca in a thread.
const allocaBytes = 32 << 10

// pointer is the register of the stack pointer, which each block begins with the end of local memory.
func (st stack) pointer() uint32 {
	st.p.alloca = true
	return st.constant(constKey{kind: slot32, name: "stack pointer"},
		func(_ *launch, w *warp, _ int) uint64 { return w.localSpan }, true)
}

// moves reports whether a body has instructions that move the stack pointer.
func moves(b *ptx.Block) bool {
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ptx.Block:
			if moves(s) {
				return true
			}
		case *ptx.Inst:
			if s.Op == "alloca" || s.Op == "stackrestore" {
				return true
			}
		}
	}
	return false
}

// restore sets the stack pointer.
func (st stack) restore(from place) {
	sp := st.pointer()
	if from.wide() {
		from = placeAt(st.resize(from, slot32), slot32)
	}
	st.emit(inst{kind: kindExec, d: sp, a: from.off, exec: func(w *warp, in *inst, mask uint32) {
		d, a := w.r.v32(in.d), w.r.v32(in.a)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			if x := uint64(a[i]); x > w.localSpan || x < w.localSpan-allocaBytes {
				w.fault(FaultStack, in, i, 0, fmt.Sprintf("stack pointer %#x", x))
			}
			d[i] = a[i]
		}
	}})
}

func (st stack) alloca(in *isa.Inst) {
	sp := st.pointer()
	size := st.source(in.Args[1].X, in.T)
	align := uint64(8)
	if len(in.Args) > 2 {
		imm, ok := in.Args[2].X.(*ptx.Imm)
		if !ok || imm.Bits == 0 || imm.Bits&(imm.Bits-1) != 0 || imm.Bits > 1<<23 {
			st.fail(in.Src.Pos, "alignment %s", operandText(in.Args[2].X))
		}
		align = max(align, imm.Bits)
	}
	st.emit(inst{kind: kindExec, d: sp, a: size.off, exec: func(w *warp, in *inst, mask uint32) {
		d := w.r.v32(in.d)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			n := w.r.get(in.a, i, size.wide())
			room := uint64(d[i]) - (w.localSpan - allocaBytes)
			if n > room || (uint64(d[i])-n)&^(align-1) < w.localSpan-allocaBytes {
				w.fault(FaultStack, in, i, 0, fmt.Sprintf("alloca of %d bytes", n))
			}
			d[i] = uint32((uint64(d[i]) - n) &^ (align - 1))
		}
	}})
	st.move(in.Args[0].X, placeAt(sp, slot32), in.T)
}
