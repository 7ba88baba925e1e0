package softgpu

import (
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// A layout says where values lie: registers, parameters and constants in the register file of a warp,
// shared variables in the memory of their block.
type layout struct {
	*cursor
	p  *program
	fn *function // being translated

	plan    map[regKey]int // slots of the function's registers
	places  map[placeKey]uint32
	vectors bool // the function has vector registers

	consts  map[constKey]uint32
	shared  map[*ptx.Var]uint32
	dynamic bool // an open shared array is used
}

type constKey struct {
	kind slotKind
	bits uint64
	name string // symbol, special register
}

type placeKey struct {
	kind slotKind
	slot int
}

func slotFor(t ptx.Type) slotKind {
	switch n := isa.Bits(t); {
	case t == ptx.Pred:
		return slotPred
	case n == 128:
		return slot128
	case n == 64:
		return slot64
	}
	return slot32
}

// reg makes a register.
func (lay *layout) reg(t ptx.Type) *entity {
	k := slotFor(t)
	off := lay.p.alloc(k)
	lay.fn.vectors = append(lay.fn.vectors, vector{off: off, kind: k})
	if k == slot128 {
		lay.fn.vectors[len(lay.fn.vectors)-1].kind = slot64
		lay.fn.vectors = append(lay.fn.vectors, vector{off: off + 256, kind: slot64})
	}
	switch k {
	case slot32:
		lay.p.numRegs++
	case slot64:
		lay.p.numRegs += 2
	}
	return &entity{kind: entReg, typ: t, slot: k, off: off}
}

// vectorReg makes a vector register: a register for each component.
func (lay *layout) vectorReg(v *ptx.Var) *entity {
	if v.Type == ptx.Pred || v.Vec > len(componentNames) {
		lay.fail(v.Pos, "%s: a vector register of %d .%s", v.Name, v.Vec, isa.TypeName(v.Type))
	}
	lay.vectors = true
	e := &entity{kind: entReg, typ: v.Type, slot: slotFor(v.Type)}
	for range v.Vec {
		e.comps = append(e.comps, lay.reg(v.Type).off)
	}
	return e
}

// planned makes a register, or finds the place it shares with others.
func (lay *layout) planned(key regKey, t ptx.Type) *entity {
	slot, ok := lay.plan[key]
	if !ok {
		return lay.reg(t)
	}
	k := slotFor(t)
	at := placeKey{k, slot}
	off, ok := lay.places[at]
	if !ok {
		off = lay.reg(t).off
		lay.places[at] = off
	}
	return &entity{kind: entReg, typ: t, slot: k, off: off}
}

// paramArea makes room for a .param or .reg parameter of a function or a call.
func (lay *layout) paramArea(v *ptx.Var, fn *function) paramArea {
	size, _, open, err := varSize(v)
	if err != nil || open || size > 64<<10 {
		lay.fail(v.Pos, "parameter %s: size is not known or too large", v.Name)
	}
	stride := alignUp(uint32(size), 8)
	off := alignUp(lay.p.regBytes, 64)
	lay.p.regBytes = off + 32*stride
	if lay.p.regBytes > maxRegBytes {
		lay.fail(v.Pos, "more than %d bytes of registers and parameters", maxRegBytes)
	}
	fn.vectors = append(fn.vectors, vector{off: off, kind: slotParam, stride: stride})
	return paramArea{off: off, stride: stride, size: uint32(size)}
}

func (lay *layout) placeShared(v *ptx.Var) uint32 {
	if off, ok := lay.shared[v]; ok {
		return off
	}
	size, align, open, err := varSize(v)
	if err != nil {
		lay.fail(v.Pos, "%s: %v", v.Name, err)
	}
	var off uint32
	if open || v.Link == ptx.LinkExtern {
		off = dynamicShared
		lay.dynamic = true
		lay.p.dynAlign = max(lay.p.dynAlign, uint32(align))
	} else {
		off = alignUp(lay.p.sharedStatic, uint32(align))
		if uint64(off)+size > sharedSize {
			lay.fail(v.Pos, "%s: more than %d bytes of shared memory", v.Name, sharedSize)
		}
		lay.p.sharedStatic = off + uint32(size)
	}
	lay.shared[v] = off
	return off
}

// constant makes a vector that holds a value known before the kernel runs.
func (lay *layout) constant(key constKey, value func(*launch, *warp, int) uint64, perBlock bool) uint32 {
	if off, ok := lay.consts[key]; ok {
		return off
	}
	off := lay.p.alloc(key.kind)
	c := &constFill{off: off, kind: key.kind, value: value}
	if perBlock {
		lay.p.blockConsts = append(lay.p.blockConsts, c)
	} else {
		lay.p.consts = append(lay.p.consts, c)
	}
	lay.consts[key] = off
	return off
}

func (lay *layout) constBits(x uint64, k slotKind) uint32 {
	if k == slot32 {
		x = uint64(uint32(x))
	}
	return lay.constant(constKey{kind: k, bits: x}, func(*launch, *warp, int) uint64 { return x }, false)
}

// dynamicShared marks the offset of an open array: behind everything static.
const dynamicShared = ^uint32(0)
