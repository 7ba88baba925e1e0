package softgpu

import (
	"math/bits"
	"slices"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

func spaceOf(name string) memSpace {
	switch name {
	case "shared", "shared::cta", "shared::cluster":
		return memShared
	case "local":
		return memLocal
	}
	return memGlobal
}

// accessSpace is the space of a load or store. Without one in the opcode, an
// address that names a variable is in the space of that variable.
func (l *lowering) accessSpace(in *isa.Inst, x ptx.Operand) memSpace {
	if a, ok := x.(*ptx.Addr); ok && in.Space == "" {
		if ref, ok := a.Base.(*ptx.Ref); ok {
			if e := l.lookup(ref.Name); e != nil {
				switch e.kind {
				case entShared:
					return memShared
				case entLocal:
					return memLocal
				}
			} else if v := l.m.vars[ref.Name]; v != nil && v.Space == ptx.SpaceShared {
				return memShared
			}
		}
	}
	return spaceOf(in.Space)
}

// address resolves [base+off]: the register, the offset, and whether the register has 64-bit lanes.
func (l *lowering) address(x ptx.Operand, sp memSpace) (reg uint32, off uint64, wide bool) {
	a, ok := x.(*ptx.Addr)
	pos := l.in.Src.Pos
	if !ok || len(a.Coords) > 0 {
		l.fail(pos, "address %s", operandText(x))
	}
	switch base := a.Base.(type) {
	case *ptx.Imm:
		return l.constBits(base.Bits+uint64(a.Off), slot64), 0, true
	case *ptx.Ref:
		p := l.named(base, ptx.U64)
		if p.kind != slot32 && p.kind != slot64 {
			l.fail(pos, "address %s", operandText(x))
		}
		if p.kind == slot32 && sp == memGlobal {
			p = placeAt(l.resize(p, slot64), slot64)
		}
		return p.off, uint64(a.Off), p.wide()
	}
	l.fail(pos, "address %s", operandText(x))
	return 0, 0, false
}

// elements resolves the register or vector of a load or store.
func (l *lowering) elements(in *isa.Inst, x ptx.Operand, write bool) (regs []place, t ptx.Type) {
	t = in.T
	list := []ptx.Operand{x}
	if v, ok := x.(*ptx.Vector); ok {
		list = v.Elems
		if in.Vec == 1 && len(list) != 1 {
			l.fail(in.Src.Pos, "vector operand without .v")
		}
	}
	if in.Vec != len(list) {
		l.fail(in.Src.Pos, "%d elements for .v%d", len(list), in.Vec)
	}
	for _, e := range list {
		var p place
		if write {
			p = l.write(e, t)
		} else {
			p = l.source(e, t)
		}
		if p.kind == slotPred || slotFor(t) == slot64 && p.kind == slot32 || (p.kind == slot128) != (t == ptx.B128) {
			l.fail(in.Src.Pos, "operand %s has the wrong width for .%s", operandText(e), isa.TypeName(t))
		}
		regs = append(regs, p)
	}
	return regs, t
}

// split128 turns 128-bit elements into pairs of 64-bit ones.
func split128(regs []place, t ptx.Type) ([]place, ptx.Type) {
	if t != ptx.B128 {
		return regs, t
	}
	var two []place
	for _, p := range regs {
		two = append(two, placeAt(p.off, slot64), placeAt(p.off+256, slot64))
	}
	return two, ptx.B64
}

// sameWidth makes all registers of a vector equally wide: where they are not, narrow ones are loaded first.
func mixedWidth(regs []place) bool {
	for _, p := range regs {
		if p.wide() != regs[0].wide() {
			return true
		}
	}
	return false
}

// A paramRef is what an address in parameter space names.
func (l *lowering) paramRef(in *isa.Inst, x ptx.Operand) (e *entity, off int64) {
	a, ok := x.(*ptx.Addr)
	if !ok {
		return nil, 0
	}
	if ref, ok := a.Base.(*ptx.Ref); ok {
		if e := l.lookup(ref.Name); e != nil && (e.kind == entKernelParam || e.kind == entParam) {
			return e, a.Off
		}
	}
	return nil, 0
}

func (l *lowering) load(in *isa.Inst) {
	regs, t := l.elements(in, in.Args[0].X, true)
	regs, t = split128(regs, t)
	size := uint64(isa.Bits(t)) / 8
	if e, off := l.paramRef(in, in.Args[1].X); e != nil {
		l.loadParam(in, e, off, regs, t)
		return
	}
	sp := l.accessSpace(in, in.Args[1].X)
	if in.Space == "param" || in.Space == "param::entry" {
		sp = memParam
	}
	if in.Space == "param::func" {
		l.fail(in.Src.Pos, "function parameter at a computed address")
	}
	if mixedWidth(regs) {
		l.fail(in.Src.Pos, "elements of different width")
	}
	x := inst{kind: kindExec}
	var wide bool
	x.a, x.off, wide = l.address(in.Args[1].X, sp)
	if wide {
		x.wide |= wideA
	}
	op := &memOp{space: sp, elem: size, bytes: size * uint64(len(regs)), need: pageReadOnly, wide: regs[0].wide()}
	if len(regs) > 1 || sp == memLocal || sp == memParam {
		for _, p := range regs {
			op.regs = append(op.regs, p.off)
		}
	}
	x.d = regs[0].off
	if op.wide {
		x.wide |= wideD
	}
	x.x = op
	x.exec = loadFunc(op, t, op.wide, wide)
	if in.Sem != "" && in.Sem != "weak" {
		x.kind = kindPoll
	}
	l.emit(x)
	l.touches(sp, op.bytes, Read)
}

// loadParam reads parameter memory at a fixed place.
func (l *lowering) loadParam(in *isa.Inst, e *entity, off int64, regs []place, t ptx.Type) {
	size := int64(isa.Bits(t)) / 8
	if off < 0 || off+size*int64(len(regs)) > int64(e.size) {
		l.fail(in.Src.Pos, "bytes %d..%d of a parameter of %d bytes", off, off+size*int64(len(regs)), e.size)
	}
	if e.kind == entParam {
		l.areaAccess(in, e, off, regs, t, loadArea)
		return
	}
	for k, p := range regs {
		at := uint32(off) + e.off + uint32(k)*uint32(size)
		ext := extend(t)
		kind := p.kind
		c := l.constant(constKey{kind: kind, name: "param " + isa.TypeName(t), bits: uint64(at)}, func(la *launch, _ *warp, _ int) uint64 {
			var x uint64
			p := unsafe.Add(unsafe.Pointer(&la.params[0]), at)
			for i := range size {
				x |= uint64(*(*uint8)(unsafe.Add(p, i))) << (8 * i)
			}
			return ext(x, 0, 0)
		}, false)
		l.copyPlace(p, placeAt(c, kind))
	}
}

func (l *lowering) areaAccess(in *isa.Inst, e *entity, off int64, regs []place, t ptx.Type, exec execFunc) {
	if mixedWidth(regs) {
		l.fail(in.Src.Pos, "elements of different width")
	}
	size := isa.Bits(t) / 8
	if off%int64(size) != 0 {
		l.fail(in.Src.Pos, "misaligned parameter access")
	}
	op := &paramMemOp{area: e.area, off: uint32(off), elem: uint32(size), sext: isa.Signed(t), wide: regs[0].wide()}
	for _, p := range regs {
		op.regs = append(op.regs, p.off)
	}
	l.emit(inst{kind: kindExec, x: op, exec: exec})
}

func (l *lowering) store(in *isa.Inst) {
	regs, t := l.elements(in, in.Args[1].X, false)
	regs, t = split128(regs, t)
	size := uint64(isa.Bits(t)) / 8
	if e, off := l.paramRef(in, in.Args[0].X); e != nil {
		if e.kind == entKernelParam || off < 0 || uint64(off)+size*uint64(len(regs)) > uint64(e.size) {
			l.fail(in.Src.Pos, "store to %s", operandText(in.Args[0].X))
		}
		for i := range regs {
			regs[i] = l.widen(regs[i], regs[0].wide())
		}
		l.areaAccess(in, e, off, regs, t, storeArea)
		return
	}
	sp := l.accessSpace(in, in.Args[0].X)
	if in.Space == "param" || in.Space == "param::func" || in.Space == "param::entry" {
		l.fail(in.Src.Pos, "store to a parameter at a computed address")
	}
	for i := range regs {
		regs[i] = l.widen(regs[i], regs[0].wide())
	}
	x := inst{kind: kindExec}
	var wide bool
	x.a, x.off, wide = l.address(in.Args[0].X, sp)
	if wide {
		x.wide |= wideA
	}
	op := &memOp{space: sp, elem: size, bytes: size * uint64(len(regs)), need: pageWritable, wide: regs[0].wide()}
	if len(regs) > 1 || sp == memLocal {
		for _, p := range regs {
			op.regs = append(op.regs, p.off)
		}
	}
	x.b = regs[0].off
	if op.wide {
		x.wide |= wideB
	}
	x.x = op
	x.exec = storeFunc(op, t, op.wide, wide)
	if in.Sem != "" && in.Sem != "weak" {
		x.kind = kindPoll
	}
	l.emit(x)
	l.touches(sp, op.bytes, Written)
}

func (l *lowering) widen(p place, wide bool) place {
	if p.wide() == wide {
		return p
	}
	k := slot32
	if wide {
		k = slot64
	}
	return placeAt(l.resize(p, k), k)
}

// cpAsync copies at once. Waiting for it later then waits for nothing.
func (l *lowering) cpAsync(in *isa.Inst) {
	size, ok := in.Args[2].X.(*ptx.Imm)
	if !ok || size.Bits != 4 && size.Bits != 8 && size.Bits != 16 {
		l.fail(in.Src.Pos, "copy size %s", operandText(in.Args[2].X))
	}
	n := size.Bits
	x := inst{kind: kindExec}
	var dw, sw bool
	var dOff, sOff uint64
	var dReg, sReg uint32
	dReg, dOff, dw = l.address(in.Args[0].X, memShared)
	sReg, sOff, sw = l.address(in.Args[1].X, memGlobal)
	srcSize := l.constBits(n, slot32)
	policies := 0
	if slices.Contains(in.Src.Mods, "L2::cache_hint") {
		policies = 1 // the last operand
	}
	if len(in.Args) > 3+policies {
		srcSize = l.read(in.Args[3].X, ptx.U32)
	}
	x.exec = func(w *warp, in *inst, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			da := w.r.get(dReg, i, dw) + dOff
			sa := w.r.get(sReg, i, sw) + sOff
			dst := unsafe.Slice((*byte)(w.pointer(in, memShared, i, da, n, pageWritable)), n)
			k := min(uint64(w.r.v32(srcSize)[i]), n)
			if k > 0 {
				w.observe(i, sa, k, Read)
				copy(dst, unsafe.Slice((*byte)(w.pointer(in, memGlobal, i, sa, n, pageReadOnly)), k))
			}
			clear(dst[k:])
		}
	}
	l.emit(x)
}
