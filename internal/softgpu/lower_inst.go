package softgpu

import (
	"math/bits"
	"slices"
	"strings"
	"unsafe"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/lanes"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// translateInst appends the code of one instruction.
func (l *lowering) translateInst(in *isa.Inst) {
	switch in.Class {
	case isa.Load:
		l.load(in)
	case isa.Store:
		l.store(in)
	case isa.Atomic:
		l.atomic(in)
	case isa.Control:
		l.control(in)
	case isa.Barrier:
		l.barrier(in)
	case isa.Collective:
		l.collective(in)
	case isa.Prefetch:
		if in.Op == "createpolicy" || in.Op == "createpolicy.cvt" {
			l.move(in.Args[0].X, placeAt(l.constBits(0, slot64), slot64), ptx.B64)
		}
	case isa.Fence:
		// Loads and stores are the CPU's own, in order on x86; a poll makes
		// spinning code give way.
		l.emit(inst{kind: kindPoll, exec: fence})
	case isa.Tensor:
		l.tensor(in)
	case isa.Texture, isa.Surface:
		l.texture(in)
	case isa.Special, isa.Async:
		l.special(in)
	default:
		l.compute(in)
	}
}

// compute translates everything that only touches registers.
func (l *lowering) compute(in *isa.Inst) {
	switch in.Op {
	case "mov":
		l.mov(in)
		return
	case "cvta":
		l.cvta(in)
		return
	case "isspacep":
		l.isspacep(in)
		return
	case "setp":
		l.setp(in)
		return
	case "testp":
		f := testpFunc(in)
		d := l.writeExact(in.Args[0].X, ptx.Pred)
		a := l.read(in.Args[1].X, in.T)
		x := inst{kind: kindLaneCmp, d: d, a: a, b: a, lane: f}
		if slotFor(in.T) == slot64 {
			x.wide = wideA | wideB
		}
		l.emit(x)
		return
	case "selp":
		l.selp(in)
		return
	case "and", "or", "xor", "not":
		if in.T == ptx.Pred {
			l.predLogic(in)
			return
		}
	case "addc", "subc", "madc":
		l.carry(in)
		return
	case "add", "sub", "mad":
		if in.Has(isa.CC) {
			l.carry(in)
			return
		}
	case "lop3":
		l.lop3(in)
		return
	case "bfi":
		l.bfi(in)
		return
	case "set":
		if in.Bool != "" {
			l.setCombined(in)
			return
		}
	case "min", "max":
		if len(in.Args) == 4 {
			l.minMax3(in)
			return
		}
	}
	if strings.HasPrefix(in.Op, "v") && in.Op != "vote" {
		l.video(in)
		return
	}
	if len(in.Args) > 4 {
		l.fail(in.Src.Pos, "not implemented")
	}
	x := inst{kind: kindVec}
	x.lane = laneOp(in)
	x.vec = vecOp(in, x.lane)
	if in.Op == "prmt" && in.Mode == "" {
		if f := permuteVec(in.Args[3].X); f != nil {
			x.vec = f
		}
	}
	if x.vec == nil {
		x.kind = kindLane
		if x.lane == nil {
			if in.Op == "cvt" {
				l.fail(in.Src.Pos, "this conversion needs a device of sm_100 or later")
			}
			l.fail(in.Src.Pos, "not implemented")
		}
	}
	var off [4]uint32
	for i, a := range in.Args {
		relaxed := in.Op == "cvt"
		if i == 0 {
			t := a.Type
			if relaxed {
				p := l.write(a.X, t)
				if p.kind != slotFor(t) {
					if p.kind != slot64 {
						l.fail(in.Src.Pos, "result %s is too narrow", operandText(a.X))
					}
					// The value is extended to the register.
					tmp := l.reg(t)
					off[0] = tmp.off
					if isa.Bits(in.U) == 64 {
						x.wide |= wideA
					}
					off[1] = l.readRelaxed(in.Args[1].X, in.Args[1].Type)
					x.d, x.a, x.b, x.c = off[0], off[1], off[1], off[1]
					l.emit(x)
					l.emit(inst{kind: kindLane, d: p.off, a: tmp.off, b: tmp.off, c: tmp.off, wide: wideD, lane: extend(t)})
					return
				}
				off[0] = p.off
				if n := isa.Bits(t); isa.Signed(t) && n < 32 && p.bits > n {
					// The sign fills the register.
					f, ext := laneOp(in), extend(t)
					x.kind, x.lane = kindLane, func(a, b, c uint64) uint64 { return ext(f(a, b, c), 0, 0) & 0xffffffff }
				}
			} else {
				off[0] = l.writeExact(a.X, t)
			}
			if slotFor(t) == slot64 {
				x.wide |= wideD
			}
			continue
		}
		t := a.Type
		if relaxed {
			off[i] = l.readRelaxed(a.X, t)
		} else {
			off[i] = l.read(a.X, t)
		}
		if slotFor(t) == slot64 {
			x.wide |= wideA << (i - 1)
		}
	}
	n := len(in.Args)
	for i := n; i < 4; i++ {
		off[i] = off[n-1]
		if n > 1 && x.wide&(wideA<<(n-2)) != 0 {
			x.wide |= wideA << (i - 1)
		}
	}
	x.d, x.a, x.b, x.c = off[0], off[1], off[2], off[3]
	l.emit(x)
}

// permuteVec is prmt with a constant selector that replicates no signs; nil = it is none.
func permuteVec(selector ptx.Operand) vecFunc {
	imm, ok := selector.(*ptx.Imm)
	if !ok || imm.Bits&0x8888 != 0 {
		return nil
	}
	var shift [4]uint // of byte k of the result in b:a
	for k := range shift {
		shift[k] = 8 * uint(imm.Bits>>(4*k)&7)
	}
	return func(d, a, b, _ unsafe.Pointer) {
		D, A, B := (*[32]uint32)(d), (*[32]uint32)(a), (*[32]uint32)(b)
		for i := range D {
			x := uint64(A[i]) | uint64(B[i])<<32
			D[i] = uint32(x>>(shift[0]&63)&0xff | x>>(shift[1]&63)&0xff<<8 | x>>(shift[2]&63)&0xff<<16 | x>>(shift[3]&63)&0xff<<24)
		}
	}
}

// readRelaxed is read for cvt and st, whose operand register may be wider than the type.
func (l *lowering) readRelaxed(x ptx.Operand, t ptx.Type) uint32 {
	p := l.source(x, t)
	if want := slotFor(t); p.kind != want {
		if p.kind == slot64 && want == slot32 {
			return l.resize(p, want)
		}
		l.fail(l.in.Src.Pos, "operand %s is too narrow for .%s", operandText(x), isa.TypeName(t))
	}
	return p.off
}

// extend widens a value of type t to 64 bits.
func extend(t ptx.Type) laneFunc {
	n := uint(isa.Bits(t))
	if isa.Signed(t) {
		return func(a, _, _ uint64) uint64 { return uint64(int64(a<<(64-n)) >> (64 - n)) }
	}
	return func(a, _, _ uint64) uint64 { return a << (64 - n) >> (64 - n) }
}

// move copies a register of any shape.
func (l *lowering) move(x ptx.Operand, from place, t ptx.Type) {
	l.moveTo(l.write(x, t), x, from)
}

// moveTo is move to x, which is resolved already.
func (l *lowering) moveTo(to place, x ptx.Operand, from place) {
	if to.kind != from.kind {
		if to.kind == slot64 && from.kind == slot32 || to.kind == slot32 && from.kind == slot64 {
			from = placeAt(l.resize(from, to.kind), to.kind)
		} else {
			l.fail(l.in.Src.Pos, "result %s has the wrong width", operandText(x))
		}
	}
	l.copyPlace(to, from)
}

func (l *lowering) copyPlace(to, from place) {
	switch to.kind {
	case slotPred:
		l.emit(inst{kind: kindExec, d: to.off, a: from.off, exec: func(w *warp, in *inst, mask uint32) {
			q := w.r.p(in.d)
			*q = *q&^mask | *w.r.p(in.a)&mask
		}})
	case slot32:
		l.emit(inst{kind: kindVec, d: to.off, a: from.off, b: from.off, c: from.off, vec: vMov32})
	case slot64:
		l.emit(inst{kind: kindVec, wide: wideD, d: to.off, a: from.off, b: from.off, c: from.off, vec: vMov64})
	case slot128:
		l.emit(inst{kind: kindVec, wide: wideD, d: to.off, a: from.off, b: from.off, c: from.off, vec: vMov64})
		l.emit(inst{kind: kindVec, wide: wideD, d: to.off + 256, a: from.off + 256, b: from.off, c: from.off, vec: vMov64})
	}
}

func vMov32(d, a, _, _ unsafe.Pointer) { lanes.Copy32(d, a) }
func vMov64(d, a, _, _ unsafe.Pointer) { lanes.Copy64(d, a) }

func (l *lowering) mov(in *isa.Inst) {
	dst, src := in.Args[0].X, in.Args[1].X
	dv, dOK := dst.(*ptx.Vector)
	sv, sOK := src.(*ptx.Vector)
	switch {
	case in.Vec > 1:
		if !dOK || !sOK || len(dv.Elems) != in.Vec || len(sv.Elems) != in.Vec {
			l.fail(in.Src.Pos, "operands %s and %s are not both vectors of %d elements", operandText(dst), operandText(src), in.Vec)
		}
		l.moveVector(dv, sv, in.T)
	case dOK && sOK:
		l.fail(in.Src.Pos, "both operands are vectors")
	case sOK: // pack
		l.fillsExactly(in.Src.Args[1], in.T)
		l.pack(in, dst, sv)
	case dOK: // unpack
		l.fillsExactly(in.Src.Args[0], in.T)
		l.unpack(in, dv, src)
	default:
		l.move(dst, l.sourceExact(src, in.T), in.T)
	}
}

func (l *lowering) sourceExact(x ptx.Operand, t ptx.Type) place {
	p := l.source(x, t)
	if p.kind == slot128 || p.kind == slotPred {
		return p
	}
	return p
}

// fillsExactly wants that a vector register in place of braces has as many bits as the number of type t.
func (l *lowering) fillsExactly(x ptx.Operand, t ptx.Type) {
	r, ok := x.(*ptx.Ref)
	if !ok {
		return
	}
	if e := l.lookup(r.Name); e != nil && len(e.comps)*isa.Bits(e.typ) != isa.Bits(t) {
		l.fail(l.in.Src.Pos, "%s needs a component", r.Name)
	}
}

// moveVector copies all elements as if at once: {v.y, v.x} may come from v.
func (l *lowering) moveVector(dst, src *ptx.Vector, t ptx.Type) {
	from := make([]place, len(src.Elems))
	for k, e := range src.Elems {
		from[k] = l.source(e, t)
	}
	for k, e := range dst.Elems {
		to := l.write(e, t)
		for j := k + 1; j < len(from); j++ {
			if from[j].off == to.off {
				former := map[slotKind]ptx.Type{slot32: ptx.B32, slot64: ptx.B64, slot128: ptx.B128}[from[j].kind]
				saved := placeAt(l.reg(former).off, from[j].kind)
				l.copyPlace(saved, from[j])
				from[j] = saved
			}
		}
		l.moveTo(to, e, from[k])
	}
}

// A packOp has the elements of a mov with a vector.
type packOp struct {
	regs []place
	bits uint
	wide bool // the scalar has 64-bit lanes
}

func (l *lowering) pack(in *isa.Inst, dst ptx.Operand, v *ptx.Vector) {
	total := uint(isa.Bits(in.T))
	n := uint(len(v.Elems))
	if n == 0 || total%n != 0 || total/n < 8 {
		l.fail(in.Src.Pos, "vector of %d elements", n)
	}
	elem := map[uint]ptx.Type{8: ptx.B8, 16: ptx.B16, 32: ptx.B32, 64: ptx.B64}[total/n]
	op := &packOp{bits: total / n, wide: total == 64}
	for _, e := range v.Elems {
		op.regs = append(op.regs, l.source(e, elem))
	}
	d := l.write(dst, in.T)
	if d.kind != slotFor(in.T) {
		l.fail(in.Src.Pos, "result %s has the wrong width", operandText(dst))
	}
	if total == 128 {
		half := n / 2
		// Both halves are made before either is written.
		tmp := l.reg(ptx.B128)
		for h := range uint(2) {
			if n == 2 {
				l.copyPlace(placeAt(tmp.off+256*uint32(h), slot64), op.regs[h])
				continue
			}
			part := &packOp{bits: op.bits, regs: op.regs[h*half : (h+1)*half], wide: true}
			l.emit(inst{kind: kindExec, d: tmp.off + 256*uint32(h), exec: packExec, x: part})
		}
		l.copyPlace(d, placeAt(tmp.off, slot128))
		return
	}
	if total == 64 && n == 2 && op.regs[0].kind == slot32 && op.regs[1].kind == slot32 {
		l.emit(inst{kind: kindVec, wide: wideD, d: d.off, a: op.regs[0].off, b: op.regs[1].off, c: op.regs[0].off, vec: vPack64})
		return
	}
	if total == 32 && n == 2 && op.regs[0].kind == slot32 && op.regs[1].kind == slot32 {
		l.emit(inst{kind: kindVec, d: d.off, a: op.regs[0].off, b: op.regs[1].off, c: op.regs[0].off, vec: vPack32})
		return
	}
	l.emit(inst{kind: kindExec, d: d.off, exec: packExec, x: op})
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

func (l *lowering) unpack(in *isa.Inst, v *ptx.Vector, src ptx.Operand) {
	total := uint(isa.Bits(in.T))
	n := uint(len(v.Elems))
	if n == 0 || total%n != 0 || total/n < 8 {
		l.fail(in.Src.Pos, "vector of %d elements", n)
	}
	elem := map[uint]ptx.Type{8: ptx.B8, 16: ptx.B16, 32: ptx.B32, 64: ptx.B64}[total/n]
	s := l.source(src, in.T)
	if s.kind != slotFor(in.T) {
		l.fail(in.Src.Pos, "operand %s has the wrong width", operandText(src))
	}
	op := &packOp{bits: total / n, wide: total == 64}
	for _, e := range v.Elems {
		op.regs = append(op.regs, l.write(e, elem))
	}
	if total == 128 {
		half := n / 2
		for h := range uint(2) {
			if n == 2 {
				l.copyPlace(op.regs[h], placeAt(s.off+256*uint32(h), slot64))
				continue
			}
			part := &packOp{bits: op.bits, regs: op.regs[h*half : (h+1)*half], wide: true}
			l.emit(inst{kind: kindExec, a: s.off + 256*uint32(h), exec: unpackExec, x: part})
		}
		return
	}
	if total == 64 && n == 2 && !op.regs[0].wide() && !op.regs[1].wide() {
		l.emit(inst{kind: kindVec, d: op.regs[0].off, a: s.off, b: s.off, c: s.off, vec: vLow32})
		l.emit(inst{kind: kindVec, d: op.regs[1].off, a: s.off, b: s.off, c: s.off, vec: vHigh32})
		return
	}
	l.emit(inst{kind: kindExec, a: s.off, exec: unpackExec, x: op})
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

// windowOf is the start of a state space in the generic address space.
func windowOf(space string) (uint64, bool) {
	switch space {
	case "shared", "shared::cta", "shared::cluster":
		return sharedWindow, true
	case "local":
		return localWindow, true
	case "param", "param::entry":
		return paramWindow, true
	}
	return 0, false
}

func (l *lowering) cvta(in *isa.Inst) {
	src := l.source(in.Args[1].X, in.T)
	base, ok := windowOf(in.Space)
	if !ok || in.T != ptx.U64 {
		l.move(in.Args[0].X, src, in.T)
		return
	}
	if in.Has(isa.To) {
		base = -base
	}
	if src.kind != slot64 {
		src = placeAt(l.resize(src, slot64), slot64)
	}
	d := l.writeExact(in.Args[0].X, in.T)
	c := l.constBits(base, slot64)
	l.emit(inst{kind: kindVec, wide: wideD | wideA | wideB, d: d, a: src.off, b: c, c: c, vec: lanes.Op("add.u64")})
}

// isspacep asks whether a generic address lies in the window of a space. Constants lie among the module's
// variables; what is in no window is global.
func (l *lowering) isspacep(in *isa.Inst) {
	d := l.writeExact(in.Args[0].X, ptx.Pred)
	a := l.read(in.Args[1].X, ptx.B64)
	base, ok := windowOf(in.Space)
	if !ok {
		l.isConst(d, a, in.Space == "const")
		return
	}
	size := uint64(sharedSize)
	switch in.Space {
	case "shared::cluster":
		size = clusterSize
	case "local":
		size = localSize
	case "param", "param::entry":
		size = paramSize
	}
	f := func(a, _, _ uint64) uint64 { return number.FromBool(a-base < size) }
	l.emit(inst{kind: kindLaneCmp, wide: wideA | wideB, d: d, a: a, b: a, lane: f})
}

// isConst sets d where the address lies in a variable of the const space, or, if not want, in neither that nor a window but that of
// parameters (H200: they are global, too).
func (l *lowering) isConst(d, a uint32, want bool) {
	var consts []Range
	for _, g := range l.m.globals {
		if g.Const {
			consts = append(consts, Range{Addr: g.Offset, Len: g.Size})
		}
	}
	l.emit(inst{kind: kindExec, d: d, a: a, exec: func(w *warp, in *inst, mask uint32) {
		p, addr := w.r.p(in.d), w.r.v64(in.a)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			off := addr[i] - w.block.launch.in.base
			yes := slices.ContainsFunc(consts, func(r Range) bool { return off-r.Addr < r.Len })
			if !want {
				yes = !yes && (!isWindow(addr[i]) || addr[i]-paramWindow < paramSize)
			}
			*p &^= 1 << i
			if yes {
				*p |= 1 << i
			}
		}
	}})
}

func (l *lowering) setp(in *isa.Inst) {
	x := inst{kind: kindCmp}
	switch d := in.Args[0].X.(type) {
	case *ptx.Pair:
		x.d = l.writeExact(d.A, ptx.Pred)
		if _, sink := d.B.(*ptx.Sink); !sink {
			x.e = l.writeExact(d.B, ptx.Pred)
		}
	default:
		x.d = l.writeExact(d, ptx.Pred)
	}
	x.a, x.b = l.read(in.Args[1].X, in.T), l.read(in.Args[2].X, in.T)
	if in.Bool != "" {
		x.boolOp = map[string]uint8{"and": boolAnd, "or": boolOr, "xor": boolXor}[in.Bool]
		x.c = l.read(in.Args[3].X, ptx.Pred)
	}
	if in.T == ptx.F16x2 || in.T == ptx.BF16x2 {
		l.setpPacked(in, x)
		return
	}
	key := in.Cmp + "." + isa.TypeName(in.T)
	if in.Has(isa.Ftz) {
		x.cmp = lanes.CompareFtz(key)
	} else {
		x.cmp = lanes.Compare(key)
	}
	if x.cmp == nil {
		f := number.Compare(in.Cmp, in.T, in.Has(isa.Ftz))
		if f == nil {
			l.fail(in.Src.Pos, "no comparison .%s of this type", in.Cmp)
		}
		x.kind = kindLaneCmp
		x.lane = func(a, b, _ uint64) uint64 { return number.FromBool(f(a, b)) }
		if slotFor(in.T) == slot64 {
			x.wide = wideA | wideB
		}
	}
	l.emit(x)
}

// setpPacked compares both halves: d gets the low one, e the high one.
func (l *lowering) setpPacked(in *isa.Inst, x inst) {
	half := ptx.F16
	if in.T == ptx.BF16x2 {
		half = ptx.BF16
	}
	f := number.Compare(in.Cmp, half, in.Has(isa.Ftz))
	e := x.e
	hi := x
	x.e, hi.e = 0, 0
	x.kind, hi.kind = kindLaneCmp, kindLaneCmp
	x.lane = func(a, b, _ uint64) uint64 { return number.FromBool(f(a&0xffff, b&0xffff)) }
	hi.lane = func(a, b, _ uint64) uint64 { return number.FromBool(f(a>>16&0xffff, b>>16&0xffff)) }
	hi.d = e
	c := x.c
	if x.boolOp != boolNone && e != 0 && x.d == c {
		// d must not change c before the second comparison.
		t := l.reg(ptx.Pred)
		l.copyPlace(placeAt(t.off, slotPred), placeAt(c, slotPred))
		hi.c = t.off
	}
	l.emit(x)
	if e != 0 {
		l.emit(hi)
	}
}

// setCombined is set with a predicate operand, which becomes a vector of 0 and 1.
func (l *lowering) setCombined(in *isa.Inst) {
	f := setFunc(in)
	if f == nil {
		l.fail(in.Src.Pos, "not implemented")
	}
	p := l.read(in.Args[3].X, ptx.Pred)
	c := l.reg(ptx.U32)
	l.emit(inst{kind: kindVec, d: c.off, a: l.constBits(1, slot32), b: l.constBits(0, slot32), c: p, vec: lanes.Select32})
	x := inst{kind: kindLane, d: l.writeExact(in.Args[0].X, in.T), a: l.read(in.Args[1].X, in.U), b: l.read(in.Args[2].X, in.U), c: c.off, lane: f}
	if slotFor(in.U) == slot64 {
		x.wide = wideA | wideB
	}
	l.emit(x)
}

func (l *lowering) bfi(in *isa.Inst) {
	n := uint(isa.Bits(in.T))
	wide := n == 64
	d := l.writeExact(in.Args[0].X, in.T)
	a, b := l.read(in.Args[1].X, in.T), l.read(in.Args[2].X, in.T)
	c, k := l.read(in.Args[3].X, ptx.U32), l.read(in.Args[4].X, ptx.U32)
	l.emit(inst{kind: kindExec, d: d, a: a, b: b, c: c, e: k, exec: func(w *warp, in *inst, mask uint32) {
		pos, length := w.r.v32(in.c), w.r.v32(in.e)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			w.r.put(in.d, i, wide, number.InsertField(w.r.get(in.a, i, wide), w.r.get(in.b, i, wide), uint64(pos[i]), uint64(length[i]), n))
		}
	}})
}

func (l *lowering) selp(in *isa.Inst) {
	d := l.writeExact(in.Args[0].X, in.T)
	a, b := l.read(in.Args[1].X, in.T), l.read(in.Args[2].X, in.T)
	c := l.read(in.Args[3].X, ptx.Pred)
	if slotFor(in.T) == slot64 {
		l.emit(inst{kind: kindVec, wide: wideD, d: d, a: a, b: b, c: c, vec: lanes.Select64})
	} else {
		l.emit(inst{kind: kindVec, d: d, a: a, b: b, c: c, vec: lanes.Select32})
	}
}

func (l *lowering) predLogic(in *isa.Inst) {
	d := l.writeExact(in.Args[0].X, ptx.Pred)
	a := l.read(in.Args[1].X, ptx.Pred)
	b := a
	if len(in.Args) > 2 {
		b = l.read(in.Args[2].X, ptx.Pred)
	}
	f := map[string]func(a, b uint32) uint32{
		"and": func(a, b uint32) uint32 { return a & b },
		"or":  func(a, b uint32) uint32 { return a | b },
		"xor": func(a, b uint32) uint32 { return a ^ b },
		"not": func(a, b uint32) uint32 { return ^a },
	}[in.Op]
	l.emit(inst{kind: kindExec, d: d, a: a, b: b, exec: func(w *warp, in *inst, mask uint32) {
		q := w.r.p(in.d)
		*q = *q&^mask | f(*w.r.p(in.a), *w.r.p(in.b))&mask
	}})
}

// lop3 compiles the lookup table into the few operations most tables are.
func (l *lowering) lop3(in *isa.Inst) {
	lutArg := in.Args[4]
	imm, ok := lutArg.X.(*ptx.Imm)
	if !ok {
		l.fail(in.Src.Pos, "the table must be a constant")
	}
	lut := uint8(imm.Bits)
	var d, p uint32
	dst := in.Args[0].X
	if pair, ok := dst.(*ptx.Pair); ok {
		d = l.writeExact(pair.A, ptx.B32)
		p = l.writeExact(pair.B, ptx.Pred)
	} else {
		d = l.writeExact(dst, ptx.B32)
	}
	a, b, c := l.read(in.Args[1].X, ptx.B32), l.read(in.Args[2].X, ptx.B32), l.read(in.Args[3].X, ptx.B32)
	var q uint32
	if in.Bool != "" {
		q = l.read(in.Args[5].X, ptx.Pred)
	}
	l.emit(inst{kind: kindVec, d: d, a: a, b: b, c: c, vec: lop3Func(lut)})
	if p != 0 {
		or := in.Bool == "or"
		l.emit(inst{kind: kindExec, d: p, a: d, b: q, exec: func(w *warp, in *inst, mask uint32) {
			var x uint32
			v := w.r.v32(in.a)
			for i := range v {
				if v[i] != 0 {
					x |= 1 << i
				}
			}
			if or {
				x |= *w.r.p(in.b)
			} else {
				x &= *w.r.p(in.b)
			}
			r := w.r.p(in.d)
			*r = *r&^mask | x&mask
		}})
	}
}

func lop3Func(lut uint8) vecFunc {
	switch lut {
	case 0xc0:
		return lanes.Op("and.b32")
	case 0xfc:
		return lanes.Op("or.b32")
	case 0x3c:
		return lanes.Op("xor.b32")
	case 0x96:
		return func(d, a, b, c unsafe.Pointer) {
			D, A, B, C := (*[32]uint32)(d), (*[32]uint32)(a), (*[32]uint32)(b), (*[32]uint32)(c)
			for i := range D {
				D[i] = A[i] ^ B[i] ^ C[i]
			}
		}
	}
	// Eight minterms, each all ones or zero.
	var k [8]uint32
	for i := range k {
		k[i] = -uint32(lut >> i & 1)
	}
	return func(d, a, b, c unsafe.Pointer) {
		D, A, B, C := (*[32]uint32)(d), (*[32]uint32)(a), (*[32]uint32)(b), (*[32]uint32)(c)
		for i := range D {
			D[i] = lop3(A[i], B[i], C[i], &k)
		}
	}
}

// lop3 selects minterm k[abc] bit by bit.
func lop3(a, b, c uint32, k *[8]uint32) uint32 {
	n := b&(k[2]&^c|k[3]&c) | ^b&(k[0]&^c|k[1]&c)
	y := b&(k[6]&^c|k[7]&c) | ^b&(k[4]&^c|k[5]&c)
	return a&y | ^a&n
}

func fence(*warp, *inst, uint32) {}

func (l *lowering) control(in *isa.Inst) {
	switch in.Op {
	case "bra":
		ref, ok := in.Args[0].X.(*ptx.Ref)
		if !ok {
			l.fail(in.Src.Pos, "target %s", operandText(in.Args[0].X))
		}
		lab := l.label(ref.Name, in.Src.Pos, l.scope)
		l.emit(inst{kind: kindBranch})
		l.fixups = append(l.fixups, fixup{len(l.p.code) - 1, lab})
	case "brx.idx":
		ref, ok := in.Args[1].X.(*ptx.Ref)
		var e *entity
		if ok {
			e = l.lookup(ref.Name)
		}
		if e == nil || e.kind != entTargets {
			l.fail(in.Src.Pos, "%s is no list of branch targets", operandText(in.Args[1].X))
		}
		var labs []*label
		for _, name := range e.labels {
			labs = append(labs, l.label(name, in.Src.Pos, e.scope))
		}
		l.emit(inst{kind: kindTable, a: l.read(in.Args[0].X, ptx.U32), x: labs})
	case "call":
		l.call(in)
	case "ret":
		l.returns()
	case "exit":
		l.emit(inst{kind: kindExit})
	case "trap":
		l.emit(inst{kind: kindTrap})
	}
}

func (l *lowering) barrier(in *isa.Inst) {
	op := &barrierOp{mode: in.Mode, fn: in.Fn}
	x := inst{kind: kindBarrier, x: op}
	args := in.Args
	if op.mode == "red" {
		x.d = l.writeExact(args[0].X, in.T)
		last := args[len(args)-1].X
		x.c = l.read(last, ptx.Pred)
		args = args[1 : len(args)-1]
	}
	x.a = l.read(args[0].X, ptx.U32)
	if len(args) > 1 {
		op.hasCount = true
		x.b = l.read(args[1].X, ptx.U32)
	}
	l.emit(x)
}

func (l *lowering) special(in *isa.Inst) {
	switch in.Op {
	case "nanosleep":
		l.read(in.Args[0].X, ptx.U32)
		l.emit(inst{kind: kindSleep})
	case "brkpt":
		l.emit(inst{kind: kindTrap})
	case "pmevent", "setmaxnreg", "griddepcontrol":
		// Hints for the machine; nothing a program can see.
	case "cp.async":
		l.cpAsync(in)
	case "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all":
		// The copies are done already.
	case "cp.async.mbarrier.arrive", "mbarrier.init", "mbarrier.inval", "mbarrier.expect_tx", "mbarrier.complete_tx", "mbarrier.arrive", "mbarrier.arrive.expect_tx",
		"mbarrier.arrive.noComplete", "mbarrier.arrive_drop", "mbarrier.arrive_drop.expect_tx", "mbarrier.arrive_drop.noComplete", "mbarrier.test_wait",
		"mbarrier.test_wait.parity", "mbarrier.try_wait", "mbarrier.try_wait.parity", "mbarrier.pending_count":
		l.mbarrier(in)
	case "cp.async.bulk", "cp.reduce.async.bulk":
		l.bulk(in)
	case "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor":
		l.bulkTensor(in)
	case "st.async", "red.async":
		l.storeAsync(in)
	case "st.bulk":
		l.storeBulk(in)
	case "getctarank":
		l.getctarank(in)
	case "mapa":
		l.mapa(in)
	case "multimem.ld_reduce":
		// Multicast memory of the one device there is: the reduction of one value.
		l.load(in)
	case "multimem.st":
		l.store(in)
	case "multimem.red":
		l.atomic(in)
	case "tensormap.replace":
		l.tensormapReplace(in)
	case "tensormap.cp_fenceproxy":
		l.tensormapCopy(in)
	case "alloca":
		l.alloca(in)
	case "stacksave":
		l.move(in.Args[0].X, placeAt(l.stackPointer(), slot32), in.T)
	case "stackrestore":
		l.stackRestore(l.source(in.Args[0].X, in.T))
	case "txq", "suq", "istypep":
		l.texture(in)
	case "barrier.cluster":
		l.emit(inst{kind: kindCluster, x: &clusterOp{wait: in.Mode == "wait"}})
	default:
		l.fail(in.Src.Pos, "not implemented")
	}
}
