package softgpu

import (
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// An address operand, resolved.
type addressOperand struct {
	reg  uint32
	off  uint64
	wide bool
}

func (a addressOperand) at(w *warp, lane int) uint64 {
	if a.wide {
		return w.r.v64(a.reg)[lane] + a.off
	}
	return uint64(w.r.v32(a.reg)[lane] + uint32(a.off))
}

// accessSpace is the space of a load or store. Without one in the opcode, an
// address that names a variable is in the space of that variable.
func (o *operands) accessSpace(in *isa.Inst, x ptx.Operand) memSpace {
	if a, ok := x.(*ptx.Addr); ok && in.Space == "" {
		if ref, ok := a.Base.(*ptx.Ref); ok {
			if e := o.lookup(ref.Name); e != nil {
				switch e.kind {
				case entShared:
					return memShared
				case entLocal:
					return memLocal
				}
			} else if v := o.m.vars[ref.Name]; v != nil && v.Space == ptx.SpaceShared {
				return memShared
			}
		}
	}
	return spaceOf(in.Space)
}

// A paramRef is what an address in parameter space names.
func (o *operands) paramRef(in *isa.Inst, x ptx.Operand) (e *entity, off int64) {
	a, ok := x.(*ptx.Addr)
	if !ok {
		return nil, 0
	}
	if ref, ok := a.Base.(*ptx.Ref); ok {
		if e := o.lookup(ref.Name); e != nil && (e.kind == entKernelParam || e.kind == entParam) {
			return e, a.Off
		}
	}
	return nil, 0
}

// address resolves [base+off]: the register, the offset, and whether the register has 64-bit lanes.
func (o *operands) address(x ptx.Operand, sp memSpace) (reg uint32, off uint64, wide bool) {
	a, ok := x.(*ptx.Addr)
	pos := o.in.Src.Pos
	if !ok || len(a.Coords) > 0 {
		o.fail(pos, "address %s", operandText(x))
	}
	switch base := a.Base.(type) {
	case *ptx.Imm:
		return o.constBits(base.Bits+uint64(a.Off), slot64), 0, true
	case *ptx.Ref:
		p := o.named(base, ptx.U64)
		if p.kind != slot32 && p.kind != slot64 {
			o.fail(pos, "address %s", operandText(x))
		}
		if p.kind == slot32 && sp == memGlobal {
			p = placeAt(o.resize(p, slot64), slot64)
		}
		return p.off, uint64(a.Off), p.wide()
	}
	o.fail(pos, "address %s", operandText(x))
	return 0, 0, false
}

func (o *operands) addressOperand(x ptx.Operand, sp memSpace) addressOperand {
	var a addressOperand
	a.reg, a.off, a.wide = o.address(x, sp)
	return a
}

// elements resolves the register or vector of a load or store.
func (o *operands) elements(in *isa.Inst, x ptx.Operand, write bool) (regs []place, t ptx.Type) {
	t = in.T
	list := []ptx.Operand{x}
	if v, ok := x.(*ptx.Vector); ok {
		list = v.Elems
		if in.Vec == 1 && len(list) != 1 {
			o.fail(in.Src.Pos, "vector operand without .v")
		}
	}
	if in.Vec != len(list) {
		o.fail(in.Src.Pos, "%d elements for .v%d", len(list), in.Vec)
	}
	for _, e := range list {
		var p place
		if write {
			p = o.write(e, t)
		} else {
			p = o.source(e, t)
		}
		if p.kind == slotPred || slotFor(t) == slot64 && p.kind == slot32 || (p.kind == slot128) != (t == ptx.B128) {
			o.fail(in.Src.Pos, "operand %s has the wrong width for .%s", operandText(e), isa.TypeName(t))
		}
		regs = append(regs, p)
	}
	return regs, t
}
