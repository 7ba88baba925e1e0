package softgpu

import (
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// memory translates loads, stores, atomic operations, and parameters, which lie in registers.
type memory struct{ *operands }

func spaceOf(name string) memSpace {
	switch name {
	case "shared", "shared::cta", "shared::cluster":
		return memShared
	case "local":
		return memLocal
	}
	return memGlobal
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

func (me memory) load(in *isa.Inst) {
	regs, t := me.elements(in, in.Args[0].X, true)
	regs, t = split128(regs, t)
	size := uint64(isa.Bits(t)) / 8
	if e, off := me.paramRef(in, in.Args[1].X); e != nil {
		me.loadParam(in, e, off, regs, t)
		return
	}
	sp := me.accessSpace(in, in.Args[1].X)
	if in.Space == "param" || in.Space == "param::entry" {
		sp = memParam
	}
	if in.Space == "param::func" {
		me.fail(in.Src.Pos, "function parameter at a computed address")
	}
	if mixedWidth(regs) {
		me.fail(in.Src.Pos, "elements of different width")
	}
	x := inst{kind: kindExec}
	var wide bool
	x.a, x.off, wide = me.address(in.Args[1].X, sp)
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
	me.emit(x)
	me.touches(sp, op.bytes, Read)
}

// loadParam reads parameter memory at a fixed place.
func (me memory) loadParam(in *isa.Inst, e *entity, off int64, regs []place, t ptx.Type) {
	size := int64(isa.Bits(t)) / 8
	if off < 0 || off+size*int64(len(regs)) > int64(e.size) {
		me.fail(in.Src.Pos, "bytes %d..%d of a parameter of %d bytes", off, off+size*int64(len(regs)), e.size)
	}
	if e.kind == entParam {
		me.areaAccess(in, e, off, regs, t, loadArea)
		return
	}
	for k, p := range regs {
		at := uint32(off) + e.off + uint32(k)*uint32(size)
		ext := extend(t)
		kind := p.kind
		c := me.constant(constKey{kind: kind, name: "param " + isa.TypeName(t), bits: uint64(at)},
			func(la *launch, _ *warp, _ int) uint64 {
				var x uint64
				p := unsafe.Add(unsafe.Pointer(&la.params[0]), at)
				for i := range size {
					x |= uint64(*(*uint8)(unsafe.Add(p, i))) << (8 * i)
				}
				return ext(x, 0, 0)
			}, false)
		me.copyPlace(p, placeAt(c, kind))
	}
}

func (me memory) areaAccess(in *isa.Inst, e *entity, off int64, regs []place, t ptx.Type, exec execFunc) {
	if mixedWidth(regs) {
		me.fail(in.Src.Pos, "elements of different width")
	}
	size := isa.Bits(t) / 8
	if off%int64(size) != 0 {
		me.fail(in.Src.Pos, "misaligned parameter access")
	}
	op := &paramMemOp{area: e.area, off: uint32(off), elem: uint32(size), sext: isa.Signed(t), wide: regs[0].wide()}
	for _, p := range regs {
		op.regs = append(op.regs, p.off)
	}
	me.emit(inst{kind: kindExec, x: op, exec: exec})
}

func (me memory) store(in *isa.Inst) {
	regs, t := me.elements(in, in.Args[1].X, false)
	regs, t = split128(regs, t)
	size := uint64(isa.Bits(t)) / 8
	if e, off := me.paramRef(in, in.Args[0].X); e != nil {
		if e.kind == entKernelParam || off < 0 || uint64(off)+size*uint64(len(regs)) > uint64(e.size) {
			me.fail(in.Src.Pos, "store to %s", operandText(in.Args[0].X))
		}
		for i := range regs {
			regs[i] = me.widen(regs[i], regs[0].wide())
		}
		me.areaAccess(in, e, off, regs, t, storeArea)
		return
	}
	sp := me.accessSpace(in, in.Args[0].X)
	if in.Space == "param" || in.Space == "param::func" || in.Space == "param::entry" {
		me.fail(in.Src.Pos, "store to a parameter at a computed address")
	}
	for i := range regs {
		regs[i] = me.widen(regs[i], regs[0].wide())
	}
	x := inst{kind: kindExec}
	var wide bool
	x.a, x.off, wide = me.address(in.Args[0].X, sp)
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
	me.emit(x)
	me.touches(sp, op.bytes, Written)
}
