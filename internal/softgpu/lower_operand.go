package softgpu

import (
	"math"
	"strings"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/lanes"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// operands resolves the operands of an instruction to places in the register file and appends what executes
// it. The families of instructions (arithmetic, memory, matrices and so on) hold this and no more.
type operands struct {
	*names
	graph *callGraph // an operand may be the address of a function
}

// A place is a resolved operand.
type place struct {
	off  uint32
	kind slotKind
	bits int // declared width of a register that is written
}

func placeAt(off uint32, k slotKind) place { return place{off: off, kind: k} }

func (p place) wide() bool { return p.kind == slot64 || p.kind == slot128 }

// emit appends an instruction, with the guard of the one being translated.
func (o *operands) emit(x inst) *inst {
	x.src, x.fn = o.in, o.fn
	if o.guard != nil {
		e := o.lookup(o.guard.Reg)
		if e == nil || e.slot != slotPred || e.kind != entReg {
			o.fail(o.in.Src.Pos, "guard %s is not a predicate", o.guard.Reg)
		}
		x.guard, x.guardNot = e.off, o.guard.Not
	}
	o.p.code = append(o.p.code, x)
	return &o.p.code[len(o.p.code)-1]
}

// warpWide emits an instruction that all lanes of a warp execute together.
func (o *operands) warpWide(f execFunc) {
	o.emit(inst{kind: kindSync, e: o.constBits(uint64(fullMask), slot32), exec: f})
}

// source resolves an operand that is read, whatever its width.
func (o *operands) source(x ptx.Operand, t ptx.Type) place {
	pos := o.in.Src.Pos
	switch x := x.(type) {
	case *ptx.Imm:
		k := slotFor(t)
		bits := immBits(x, t)
		if k == slotPred {
			if bits != 0 {
				bits = 1
			}
		} else if n := isa.Bits(t); n < 64 && n >= 8 {
			bits &= 1<<n - 1
		}
		return placeAt(o.constBits(bits, k), k)
	case *ptx.Ref:
		return o.named(x, t)
	case *ptx.Neg:
		if x.Not {
			p := o.source(x.X, ptx.Pred)
			if p.kind != slotPred {
				o.fail(pos, "! before something that is no predicate")
			}
			d := o.reg(ptx.Pred)
			o.emit(inst{kind: kindExec, d: d.off, a: p.off, exec: func(w *warp, in *inst, mask uint32) {
				q := w.r.p(in.d)
				*q = *q&^mask | ^*w.r.p(in.a)&mask
			}})
			return placeAt(d.off, slotPred)
		}
		if imm, ok := x.X.(*ptx.Imm); ok {
			n := *imm
			switch n.Kind {
			case ptx.ImmF32:
				n.Bits ^= 1 << 31
			case ptx.ImmF64:
				n.Bits ^= 1 << 63
			default:
				n.Bits = -n.Bits
			}
			return o.source(&n, t)
		}
	case *ptx.Sink:
		k := slotFor(t)
		return placeAt(o.constBits(0, k), k)
	}
	o.fail(pos, "operand %s", operandText(x))
	return place{}
}

// immBits is the value of a constant operand of type t.
func immBits(x *ptx.Imm, t ptx.Type) uint64 {
	var f float64
	switch x.Kind {
	case ptx.ImmF32:
		if t == ptx.F32 || !isa.Float(t) {
			return uint64(uint32(x.Bits))
		}
		f = float64(math.Float32frombits(uint32(x.Bits)))
	case ptx.ImmF64:
		if t == ptx.F64 || !isa.Float(t) {
			return x.Bits
		}
		f = math.Float64frombits(x.Bits)
	default:
		switch t {
		case ptx.F32, ptx.F64:
			f = float64(int64(x.Bits))
			if x.Kind == ptx.ImmU64 {
				f = float64(x.Bits)
			}
		default:
			return x.Bits
		}
	}
	switch t {
	case ptx.F16:
		return uint64(number.RoundF16(f, number.Nearest))
	case ptx.BF16:
		return uint64(number.RoundBF16(f, number.Nearest))
	case ptx.F32, ptx.TF32:
		return uint64(math.Float32bits(float32(f)))
	}
	return math.Float64bits(f)
}

func (o *operands) named(x *ptx.Ref, t ptx.Type) place {
	pos := o.in.Src.Pos
	if e := o.lookup(x.Name); e != nil {
		switch e.kind {
		case entReg:
			if e.comps != nil {
				k := component(x.Comp)
				if k < 0 || k >= len(e.comps) {
					o.fail(pos, "%s needs a component", x.Name)
				}
				return placeAt(e.comps[k], e.slot)
			}
			if x.Comp != "" {
				o.fail(pos, "component .%s of %s", x.Comp, x.Name)
			}
			return placeAt(e.off, e.slot)
		case entShared:
			k := addressSlot(t)
			return placeAt(o.sharedAddress(e.off, 0, k), k)
		case entLocal:
			k := addressSlot(t)
			return placeAt(o.localAddress(e, 0, k), k)
		case entGlobal:
			k := addressSlot(t)
			g := o.m.globals[o.m.byVar[e.decl]]
			return placeAt(o.constant(constKey{kind: k, name: g.Name},
				func(la *launch, _ *warp, _ int) uint64 { return la.in.base + g.Offset }, false), k)
		case entKernelParam:
			k := addressSlot(t)
			return placeAt(o.constBits(uint64(e.off), k), k)
		}
		o.fail(pos, "operand %s", x.Name)
	}
	if x.Name == "WARP_SZ" {
		return placeAt(o.constBits(32, slotFor(t)), slotFor(t))
	}
	if strings.HasPrefix(x.Name, "%") {
		s, err := specialRegister(x.Name, x.Comp)
		if err != nil {
			o.fail(pos, "%v", err)
		}
		k := slot32
		if s.wide {
			k = slot64
		}
		if t == ptx.Pred {
			k = slotPred
		}
		if !s.dynamic {
			return placeAt(o.constant(constKey{kind: k, name: x.Name + "." + x.Comp}, s.value, s.perBlock), k)
		}
		typ := ptx.U32
		if s.wide {
			typ = ptx.U64
		}
		d := o.reg(typ)
		o.emit(inst{kind: kindExec, d: d.off, exec: func(w *warp, in *inst, mask uint32) {
			v := s.value(w.block.launch, w, 0)
			for i := range 32 {
				if mask>>i&1 != 0 {
					w.r.put(in.d, i, s.wide, v)
				}
			}
		}})
		return placeAt(d.off, k)
	}
	k := addressSlot(t)
	if off, ok := o.symbol(x.Name, pos, 0, k); ok {
		return placeAt(off, k)
	}
	o.fail(pos, "%s is not declared", x.Name)
	return place{}
}

func addressSlot(t ptx.Type) slotKind {
	if isa.Bits(t) == 32 {
		return slot32
	}
	return slot64
}

// symbol makes a vector with the address of a variable or function.
func (o *operands) symbol(name string, pos ptx.Pos, add int64, k slotKind) (uint32, bool) {
	key := constKey{kind: k, name: name, bits: uint64(add)}
	if v := o.m.vars[name]; v != nil {
		switch v.Space {
		case ptx.SpaceShared:
			off := o.placeShared(v)
			return o.sharedAddress(off, add, k), true
		case ptx.SpaceGlobal, ptx.SpaceConst:
			i, ok := o.m.byName[name]
			if !ok {
				o.fail(pos, "%s is declared .extern and not defined in this module", name)
			}
			off := o.m.globals[i].Offset + uint64(add)
			return o.constant(key, func(la *launch, _ *warp, _ int) uint64 { return la.in.base + off }, false), true
		}
		o.fail(pos, "%s: module variable of this state space", name)
	}
	if f := o.m.funcs[name]; f != nil {
		if f.Body != nil {
			o.graph.function(f)
		}
		addr := codeWindow + uint64(o.m.codeIdx[f.Name])*codeStep + uint64(add)
		return o.constant(key, func(*launch, *warp, int) uint64 { return addr }, false), true
	}
	return 0, false
}

func (o *operands) sharedAddress(off uint32, add int64, k slotKind) uint32 {
	if off == dynamicShared {
		p := o.p
		return o.constant(constKey{kind: k, name: "shared dynamic", bits: uint64(add)},
			func(*launch, *warp, int) uint64 { return uint64(p.sharedStatic) + uint64(add) }, false)
	}
	return o.constBits(uint64(off)+uint64(add), k)
}

func (o *operands) localAddress(e *entity, add int64, k slotKind) uint32 {
	fn := e.fn
	if o.mayRecur(fn) {
		// The frame is known only when the function runs.
		t := o.reg(map[slotKind]ptx.Type{slot32: ptx.U32, slot64: ptx.U64}[k])
		off := uint64(e.off) + uint64(add)
		wide := k == slot64
		o.emit(inst{kind: kindExec, d: t.off, exec: func(w *warp, in *inst, mask uint32) {
			base := uint64(0)
			if fn.recursive {
				base = uint64(w.groups[w.cur].fr.local)
			} else {
				base = uint64(fn.localBase)
			}
			for i := range 32 {
				if mask>>i&1 != 0 {
					w.r.put(in.d, i, wide, base+off)
				}
			}
		}})
		return t.off
	}
	return o.constant(constKey{kind: k, name: "local " + fn.name, bits: uint64(e.off) + uint64(add)},
		func(*launch, *warp, int) uint64 { return uint64(fn.localBase) + uint64(e.off) + uint64(add) }, false)
}

// mayRecur: only a function that is not the kernel can.
func (o *operands) mayRecur(fn *function) bool { return !fn.src.Entry }

// read resolves an operand of type t, whose register must have that width.
func (o *operands) read(x ptx.Operand, t ptx.Type) uint32 {
	p := o.source(x, t)
	if want := slotFor(t); p.kind != want {
		if p.kind == slot64 && want == slot32 || p.kind == slot32 && want == slot64 {
			return o.resize(p, want)
		}
		o.fail(o.in.Src.Pos, "operand %s has the wrong width for .%s", operandText(x), isa.TypeName(t))
	}
	return p.off
}

// readRelaxed is read for cvt and st, whose operand register may be wider than the type.
func (o *operands) readRelaxed(x ptx.Operand, t ptx.Type) uint32 {
	p := o.source(x, t)
	if want := slotFor(t); p.kind != want {
		if p.kind == slot64 && want == slot32 {
			return o.resize(p, want)
		}
		o.fail(o.in.Src.Pos, "operand %s is too narrow for .%s", operandText(x), isa.TypeName(t))
	}
	return p.off
}

// resize makes a 64-bit source narrower, or widens with zeros: special
// registers may be read in either width.
func (o *operands) resize(p place, want slotKind) uint32 {
	typ := ptx.U32
	if want == slot64 {
		typ = ptx.U64
	}
	d := o.reg(typ)
	in := inst{kind: kindLane, d: d.off, a: p.off, b: p.off, c: p.off, lane: func(a, _, _ uint64) uint64 { return a }}
	if want == slot64 {
		in.wide = wideD
	} else {
		in.wide = wideA
	}
	o.emit(in)
	return d.off
}

func (o *operands) widen(p place, wide bool) place {
	if p.wide() == wide {
		return p
	}
	k := slot32
	if wide {
		k = slot64
	}
	return placeAt(o.resize(p, k), k)
}

// write resolves a register that is written.
func (o *operands) write(x ptx.Operand, t ptx.Type) place {
	switch x := x.(type) {
	case *ptx.Sink:
		if t == ptx.Pred {
			return placeAt(regSinkP, slotPred)
		}
		return placeAt(regSink, slotFor(t))
	case *ptx.Ref:
		e := o.lookup(x.Name)
		if e == nil || e.kind != entReg {
			o.fail(o.in.Src.Pos, "%s is not a register", x.Name)
		}
		if e.comps != nil {
			p := o.named(x, t)
			p.bits = isa.Bits(e.typ)
			return p
		}
		return place{off: e.off, kind: e.slot, bits: isa.Bits(e.typ)}
	}
	o.fail(o.in.Src.Pos, "result %s", operandText(x))
	return place{}
}

func (o *operands) writeExact(x ptx.Operand, t ptx.Type) uint32 {
	p := o.write(x, t)
	if p.kind != slotFor(t) {
		o.fail(o.in.Src.Pos, "result %s has the wrong width for .%s", operandText(x), isa.TypeName(t))
	}
	return p.off
}

// registers resolves a vector operand, or one register, of n registers.
func (o *operands) registers(x ptx.Operand, t ptx.Type, n int, write bool) []uint32 {
	list := []ptx.Operand{x}
	if v, ok := x.(*ptx.Vector); ok {
		list = v.Elems
	}
	if len(list) != n {
		o.fail(o.in.Src.Pos, "operand %s: %d registers, want %d", operandText(x), len(list), n)
	}
	regs := make([]uint32, n)
	for i, e := range list {
		if write {
			regs[i] = o.writeExact(e, t)
		} else {
			regs[i] = o.read(e, t)
		}
	}
	return regs
}

// atLeast resolves the first n elements of a vector, or one register.
func (o *operands) atLeast(x ptx.Operand, t ptx.Type, n int) []uint32 {
	list := []ptx.Operand{x}
	if v, ok := x.(*ptx.Vector); ok {
		list = v.Elems
	}
	if len(list) < n {
		o.fail(o.in.Src.Pos, "operand %s: %d elements, want %d", operandText(x), len(list), n)
	}
	regs := make([]uint32, n)
	for i := range regs {
		regs[i] = o.read(list[i], t)
	}
	return regs
}

// move copies a register of any shape.
func (o *operands) move(x ptx.Operand, from place, t ptx.Type) {
	o.moveTo(o.write(x, t), x, from)
}

// moveTo is move to x, which is resolved already.
func (o *operands) moveTo(to place, x ptx.Operand, from place) {
	if to.kind != from.kind {
		if to.kind == slot64 && from.kind == slot32 || to.kind == slot32 && from.kind == slot64 {
			from = placeAt(o.resize(from, to.kind), to.kind)
		} else {
			o.fail(o.in.Src.Pos, "result %s has the wrong width", operandText(x))
		}
	}
	o.copyPlace(to, from)
}

func (o *operands) copyPlace(to, from place) {
	switch to.kind {
	case slotPred:
		o.emit(inst{kind: kindExec, d: to.off, a: from.off, exec: func(w *warp, in *inst, mask uint32) {
			q := w.r.p(in.d)
			*q = *q&^mask | *w.r.p(in.a)&mask
		}})
	case slot32:
		o.emit(inst{kind: kindVec, d: to.off, a: from.off, b: from.off, c: from.off, vec: vMov32})
	case slot64:
		o.emit(inst{kind: kindVec, wide: wideD, d: to.off, a: from.off, b: from.off, c: from.off, vec: vMov64})
	case slot128:
		o.emit(inst{kind: kindVec, wide: wideD, d: to.off, a: from.off, b: from.off, c: from.off, vec: vMov64})
		o.emit(inst{kind: kindVec, wide: wideD, d: to.off + 256, a: from.off + 256, b: from.off, c: from.off,
			vec: vMov64})
	}
}

func vMov32(d, a, _, _ unsafe.Pointer) { lanes.Copy32(d, a) }

func vMov64(d, a, _, _ unsafe.Pointer) { lanes.Copy64(d, a) }
