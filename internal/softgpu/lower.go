package softgpu

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"holdfast/internal/isa"
	"holdfast/internal/softgpu/number"
	"holdfast/ptx"
)

// An entityKind says what a name stands for in a function.
type entityKind uint8

const (
	entReg entityKind = iota
	entRegSet
	entKernelParam
	entParam // parameter memory of a function or of a call
	entShared
	entLocal
	entGlobal
	entTargets
	entProto
)

type entity struct {
	kind   entityKind
	typ    ptx.Type
	slot   slotKind
	off    uint32   // register, or offset in its space
	comps  []uint32 // of a vector register
	count  int      // of a register set
	decl   *ptx.Var // of a register set or a global
	area   paramArea
	size   uint32
	labels []string
	proto  *ptx.CallPrototype
	fn     *function // owner of an entLocal
	scope  *scope    // of targets
}

type scope struct {
	parent *scope
	names  map[string]*entity
	labels map[string]*label
}

// A label is a place in the code.
type label struct {
	pc  int32
	pos ptx.Pos
}

// A lowering translates one kernel.
type lowering struct {
	p     *program
	m     *Module
	fn    *function
	scope *scope
	in    *isa.Inst // being translated
	guard *ptx.Guard

	plan   map[regKey]int // slots of the function's registers
	places map[placeKey]uint32

	consts      map[constKey]uint32
	shared      map[*ptx.Var]uint32
	fixups      []fixup
	queue       []*function   // functions to translate
	regResults  []*paramMemOp // results of the function that are registers
	vectors     bool          // the function has vector registers
	savedStack  uint32        // register with the stack pointer on entry; 0 = the function does not move it
	dynamic     bool          // an open shared array is used
	edges       map[*function][]*function
	hasIndirect map[*function]bool
}

type fixup struct {
	inst int
	lab  *label
}

type constKey struct {
	kind slotKind
	bits uint64
	name string // symbol, special register
}

// A refusal says why a kernel cannot be translated, and at which place of the
// source. It ends the translation.
type refusal struct {
	file string
	pos  ptx.Pos
	inst string // opcode with modifiers; "" = something else is to blame
	why  error
}

func (r *refusal) Error() string {
	inst := ""
	if r.inst != "" {
		inst = r.inst + ": "
	}
	return fmt.Sprintf("%s:%d:%d: %s%v", r.file, r.pos.Line, r.pos.Col, inst, r.why)
}

func (r *refusal) Unwrap() error { return r.why }

func (l *lowering) fail(pos ptx.Pos, format string, args ...any) {
	r := &refusal{file: l.m.file, pos: pos, why: fmt.Errorf(format, args...)}
	if l.in != nil {
		r.inst = isa.Text(l.in.Src)
	}
	panic(r)
}

// translate makes the program of a kernel.
func (m *Module) translate(kernel string) (p *program, err error) {
	f := m.funcs[kernel]
	if f == nil || !f.Entry || f.Body == nil {
		return nil, fmt.Errorf("%s: no kernel %q", m.file, kernel)
	}
	p = &program{name: kernel, file: m.file, pos: f.Pos, mod: m, regBytes: regFirst, funcs: map[string]*function{}, maxThreads: maxThreads(f), dynAlign: 16}
	l := &lowering{p: p, m: m, consts: map[constKey]uint32{}, shared: map[*ptx.Var]uint32{}, edges: map[*function][]*function{}, hasIndirect: map[*function]bool{}}
	defer func() {
		if x := recover(); x != nil {
			r, ok := x.(*refusal)
			if !ok {
				panic(x)
			}
			p, err = nil, r
		}
	}()
	p.clusterDirectives(f)
	if p.params, p.paramBytes, err = paramLayout(f); err != nil {
		return nil, &refusal{file: m.file, pos: f.Pos, why: err}
	}
	entry := l.function(f)
	for len(l.queue) > 0 {
		fn := l.queue[0]
		l.queue = l.queue[1:]
		l.body(fn)
		if p.regBytes > maxRegBytes {
			l.in = nil
			l.fail(fn.src.Pos, "more than %d bytes of registers", maxRegBytes)
		}
	}
	p.entry = entry.entry
	for _, fx := range l.fixups {
		if fx.lab.pc < 0 {
			l.in = nil
			l.fail(fx.lab.pos, "the label is not placed")
		}
		p.code[fx.inst].target = fx.lab.pc
	}
	l.markRecursive()
	p.regBytes = alignUp(p.regBytes, 64)
	if l.dynamic {
		p.sharedStatic = alignUp(p.sharedStatic, p.dynAlign)
	}
	return p, nil
}

// function declares f in the program, and queues its body.
func (l *lowering) function(f *ptx.Func) *function {
	if fn := l.p.funcs[f.Name]; fn != nil {
		return fn
	}
	fn := &function{name: f.Name, src: f}
	l.p.funcs[f.Name] = fn
	if f.Body == nil {
		if why := deviceRuntime[f.Name]; why != "" {
			l.fail(f.Pos, "%s is not supported: %s", f.Name, why)
		}
		if fn.native = nativeFunc(f.Name); fn.native == nil {
			l.fail(f.Pos, "%s is declared but not defined in this module", f.Name)
		}
		return fn
	}
	if !f.Entry {
		// The parameter memory is made now, so that callers can copy to it.
		fn.regLo = alignUp(l.p.regBytes, 64)
		l.p.regBytes = fn.regLo
		for _, v := range f.Params {
			fn.params = append(fn.params, l.paramArea(v, fn))
		}
		for _, v := range f.Ret {
			fn.rets = append(fn.rets, l.paramArea(v, fn))
		}
	}
	l.queue = append(l.queue, fn)
	return fn
}

// paramArea makes room for a .param or .reg parameter of a function or a call.
func (l *lowering) paramArea(v *ptx.Var, fn *function) paramArea {
	size, _, open, err := varSize(v)
	if err != nil || open || size > 64<<10 {
		l.fail(v.Pos, "parameter %s: size is not known or too large", v.Name)
	}
	stride := alignUp(uint32(size), 8)
	off := alignUp(l.p.regBytes, 64)
	l.p.regBytes = off + 32*stride
	if l.p.regBytes > maxRegBytes {
		l.fail(v.Pos, "more than %d bytes of registers and parameters", maxRegBytes)
	}
	fn.vectors = append(fn.vectors, vector{off: off, kind: slotParam, stride: stride})
	return paramArea{off: off, stride: stride, size: uint32(size)}
}

func (l *lowering) body(fn *function) {
	f := fn.src
	l.fn, l.in, l.regResults, l.vectors = fn, nil, nil, false
	if f.Entry {
		fn.regLo = alignUp(l.p.regBytes, 64)
		l.p.regBytes = fn.regLo
	}
	fn.entry = int32(len(l.p.code))
	l.plan, l.places = l.m.planRegisters(f), map[placeKey]uint32{}
	l.scope = &scope{names: map[string]*entity{}}
	if f.Entry {
		for i, v := range f.Params {
			l.scope.names[v.Name] = &entity{kind: entKernelParam, typ: v.Type, off: l.p.params[i].Offset, size: l.p.params[i].Size}
		}
	} else {
		for i, v := range f.Params {
			l.declareParam(v, fn.params[i], false)
		}
		for i, v := range f.Ret {
			l.declareParam(v, fn.rets[i], true)
		}
	}
	l.saveStack(f.Body)
	l.block(f.Body)
	// Falling off the end is a return.
	l.in = nil
	l.returns()
	fn.regHi = alignUp(l.p.regBytes, 64)
	l.p.regBytes = fn.regHi
}

// declareParam names a parameter in its function. A .reg parameter is a
// register that is filled from its area on entry, or written to it on return.
func (l *lowering) declareParam(v *ptx.Var, area paramArea, result bool) {
	if v.Space == ptx.SpaceReg {
		if v.Count > 0 || len(v.Dims) > 0 {
			l.fail(v.Pos, "%s: several registers as one parameter", v.Name)
		}
		var e *entity
		if v.Vec > 1 {
			e = l.vectorReg(v)
		} else {
			e = l.reg(v.Type)
		}
		l.scope.names[v.Name] = e
		op := &paramMemOp{area: area}
		for _, part := range e.parts(uint32(elemSize(v.Type))) {
			op.regs, op.elem, op.wide, op.pred = append(op.regs, part.reg), part.size, part.kind == slot64, part.kind == slotPred
		}
		if result {
			l.regResults = append(l.regResults, op)
		} else {
			l.p.code = append(l.p.code, inst{kind: kindExec, x: op, exec: op.load(), fn: l.fn})
		}
		return
	}
	l.scope.names[v.Name] = &entity{kind: entParam, typ: v.Type, area: area, size: area.size}
}

func (l *lowering) block(b *ptx.Block) {
	s := &scope{parent: l.scope, names: map[string]*entity{}, labels: map[string]*label{}}
	for _, st := range b.Stmts {
		switch st := st.(type) {
		case *ptx.Label:
			s.labels[st.Name] = &label{pc: -1, pos: st.Pos}
		case *ptx.BranchTargets:
			s.names[st.Name] = &entity{kind: entTargets, labels: st.Labels, scope: s}
		case *ptx.CallTargets:
			s.names[st.Name] = &entity{kind: entProto, labels: st.Funcs}
		case *ptx.CallPrototype:
			s.names[st.Name] = &entity{kind: entProto, proto: st}
		}
	}
	l.scope = s
	for _, st := range b.Stmts {
		switch st := st.(type) {
		case *ptx.Label:
			s.labels[st.Name].pc = int32(len(l.p.code))
		case *ptx.Block:
			l.block(st)
		case *ptx.VarStmt:
			for _, v := range st.Vars {
				l.declare(v)
			}
		case *ptx.Inst:
			l.inst(st)
		}
	}
	l.scope = s.parent
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
func (l *lowering) reg(t ptx.Type) *entity {
	k := slotFor(t)
	off := l.p.alloc(k)
	l.fn.vectors = append(l.fn.vectors, vector{off: off, kind: k})
	if k == slot128 {
		l.fn.vectors[len(l.fn.vectors)-1].kind = slot64
		l.fn.vectors = append(l.fn.vectors, vector{off: off + 256, kind: slot64})
	}
	switch k {
	case slot32:
		l.p.numRegs++
	case slot64:
		l.p.numRegs += 2
	}
	return &entity{kind: entReg, typ: t, slot: k, off: off}
}

// vectorReg makes a vector register: a register for each component.
func (l *lowering) vectorReg(v *ptx.Var) *entity {
	if v.Type == ptx.Pred || v.Vec > len(componentNames) {
		l.fail(v.Pos, "%s: a vector register of %d .%s", v.Name, v.Vec, isa.TypeName(v.Type))
	}
	l.vectors = true
	e := &entity{kind: entReg, typ: v.Type, slot: slotFor(v.Type)}
	for range v.Vec {
		e.comps = append(e.comps, l.reg(v.Type).off)
	}
	return e
}

var componentNames = [4]string{"x", "y", "z", "w"}

// component is the number of a component by its name, as a place or as a colour; -1 = it is none.
func component(name string) int {
	if len(name) != 1 {
		return -1
	}
	return max(strings.IndexByte("xyzw", name[0]), strings.IndexByte("rgba", name[0]))
}

// spread writes a vector register as the braces with its components, which is what it stands for.
func (l *lowering) spread(x ptx.Operand) ptx.Operand {
	if !l.vectors {
		return x
	}
	switch x := x.(type) {
	case *ptx.Ref:
		e := l.lookup(x.Name)
		if e == nil || e.comps == nil || x.Comp != "" {
			return x
		}
		v := &ptx.Vector{Pos: x.Pos}
		for k := range e.comps {
			v.Elems = append(v.Elems, &ptx.Ref{Pos: x.Pos, Name: x.Name, Comp: componentNames[k]})
		}
		return v
	case *ptx.Pair:
		return &ptx.Pair{Pos: x.Pos, A: l.spread(x.A), B: x.B}
	case *ptx.Addr:
		if len(x.Coords) == 0 {
			return x
		}
		a := *x
		a.Coords = nil
		for _, c := range x.Coords {
			a.Coords = append(a.Coords, l.spread(c))
		}
		return &a
	}
	return x
}

func (l *lowering) declare(v *ptx.Var) {
	switch v.Space {
	case ptx.SpaceReg:
		switch {
		case v.Count > 0:
			l.vectors = l.vectors || v.Vec > 1
			l.scope.names[v.Name] = &entity{kind: entRegSet, typ: v.Type, count: v.Count, decl: v}
		case v.Vec > 1:
			l.scope.names[v.Name] = l.vectorReg(v)
		default:
			l.scope.names[v.Name] = l.planned(regKey{v, -1}, v.Type)
		}
	case ptx.SpaceParam:
		for i := range max(1, v.Count) {
			name := v.Name
			one := *v
			if v.Count > 0 {
				name += strconv.Itoa(i)
				one.Count = 0
			}
			area := l.paramArea(&one, l.fn)
			l.scope.names[name] = &entity{kind: entParam, typ: v.Type, area: area, size: area.size}
		}
	case ptx.SpaceShared:
		l.scope.names[v.Name] = &entity{kind: entShared, typ: v.Type, off: l.placeShared(v)}
	case ptx.SpaceLocal:
		size, align, open, err := varSize(v)
		if err != nil || open || size > 1<<20 {
			l.fail(v.Pos, "local variable %s: size is not known or too large", v.Name)
		}
		off := alignUp(l.fn.localBytes, uint32(align))
		l.fn.localBytes = off + uint32(size)
		l.scope.names[v.Name] = &entity{kind: entLocal, typ: v.Type, off: off, fn: l.fn}
	case ptx.SpaceGlobal, ptx.SpaceConst:
		l.scope.names[v.Name] = &entity{kind: entGlobal, typ: v.Type, decl: v}
	default:
		l.fail(v.Pos, "%s: variable of this state space in a function", v.Name)
	}
}

// dynamicShared marks the offset of an open array: behind everything static.
const dynamicShared = ^uint32(0)

func (l *lowering) placeShared(v *ptx.Var) uint32 {
	if off, ok := l.shared[v]; ok {
		return off
	}
	size, align, open, err := varSize(v)
	if err != nil {
		l.fail(v.Pos, "%s: %v", v.Name, err)
	}
	var off uint32
	if open || v.Link == ptx.LinkExtern {
		off = dynamicShared
		l.dynamic = true
		l.p.dynAlign = max(l.p.dynAlign, uint32(align))
	} else {
		off = alignUp(l.p.sharedStatic, uint32(align))
		if uint64(off)+size > sharedSize {
			l.fail(v.Pos, "%s: more than %d bytes of shared memory", v.Name, sharedSize)
		}
		l.p.sharedStatic = off + uint32(size)
	}
	l.shared[v] = off
	return off
}

// lookup finds what a name stands for in the function; nil = not local to it.
func (l *lowering) lookup(name string) *entity {
	for s := l.scope; s != nil; s = s.parent {
		if e := s.names[name]; e != nil {
			return e
		}
		if prefix, n, ok := setMember(name, func(p string) int {
			if e := s.names[p]; e != nil && e.kind == entRegSet {
				return e.count
			}
			return 0
		}); ok {
			set := s.names[prefix]
			var e *entity
			if set.decl.Vec > 1 {
				e = l.vectorReg(set.decl)
			} else {
				e = l.planned(regKey{set.decl, n}, set.typ)
			}
			s.names[name] = e
			return e
		}
	}
	return nil
}

// setMember splits the name of a member of a register set, %r12 of "%r<20>",
// where size gives the size of a set, 0 if there is none.
func setMember(name string, size func(prefix string) int) (prefix string, n int, ok bool) {
	i := len(name)
	for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	for j := max(i, 1); j < len(name); j++ {
		if name[j] == '0' && j != len(name)-1 {
			continue
		}
		if k := size(name[:j]); k > 0 {
			if n, err := strconv.Atoi(name[j:]); err == nil && n < k {
				return name[:j], n, true
			}
		}
	}
	return "", 0, false
}

// planned makes a register, or finds the place it shares with others.
func (l *lowering) planned(key regKey, t ptx.Type) *entity {
	slot, ok := l.plan[key]
	if !ok {
		return l.reg(t)
	}
	k := slotFor(t)
	at := placeKey{k, slot}
	off, ok := l.places[at]
	if !ok {
		off = l.reg(t).off
		l.places[at] = off
	}
	return &entity{kind: entReg, typ: t, slot: k, off: off}
}

type placeKey struct {
	kind slotKind
	slot int
}

func (l *lowering) label(name string, pos ptx.Pos, from *scope) *label {
	for s := from; s != nil; s = s.parent {
		if lab := s.labels[name]; lab != nil {
			return lab
		}
	}
	l.fail(pos, "no label %s", name)
	return nil
}

// constant makes a vector that holds a value known before the kernel runs.
func (l *lowering) constant(key constKey, value func(*launch, *warp, int) uint64, perBlock bool) uint32 {
	if off, ok := l.consts[key]; ok {
		return off
	}
	off := l.p.alloc(key.kind)
	c := &constFill{off: off, kind: key.kind, value: value}
	if perBlock {
		l.p.blockConsts = append(l.p.blockConsts, c)
	} else {
		l.p.consts = append(l.p.consts, c)
	}
	l.consts[key] = off
	return off
}

func (l *lowering) constBits(x uint64, k slotKind) uint32 {
	if k == slot32 {
		x = uint64(uint32(x))
	}
	return l.constant(constKey{kind: k, bits: x}, func(*launch, *warp, int) uint64 { return x }, false)
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

// symbol makes a vector with the address of a variable or function.
func (l *lowering) symbol(name string, pos ptx.Pos, add int64, k slotKind) (uint32, bool) {
	key := constKey{kind: k, name: name, bits: uint64(add)}
	if v := l.m.vars[name]; v != nil {
		switch v.Space {
		case ptx.SpaceShared:
			off := l.placeShared(v)
			return l.sharedAddress(off, add, k), true
		case ptx.SpaceGlobal, ptx.SpaceConst:
			i, ok := l.m.byName[name]
			if !ok {
				l.fail(pos, "%s is declared .extern and not defined in this module", name)
			}
			off := l.m.globals[i].Offset + uint64(add)
			return l.constant(key, func(la *launch, _ *warp, _ int) uint64 { return la.in.base + off }, false), true
		}
		l.fail(pos, "%s: module variable of this state space", name)
	}
	if f := l.m.funcs[name]; f != nil {
		if f.Body != nil {
			l.function(f)
		}
		addr := codeWindow + uint64(l.m.codeIdx[f.Name])*codeStep + uint64(add)
		return l.constant(key, func(*launch, *warp, int) uint64 { return addr }, false), true
	}
	return 0, false
}

func (l *lowering) sharedAddress(off uint32, add int64, k slotKind) uint32 {
	if off == dynamicShared {
		p := l.p
		return l.constant(constKey{kind: k, name: "shared dynamic", bits: uint64(add)},
			func(*launch, *warp, int) uint64 { return uint64(p.sharedStatic) + uint64(add) }, false)
	}
	return l.constBits(uint64(off)+uint64(add), k)
}

func (l *lowering) localAddress(e *entity, add int64, k slotKind) uint32 {
	fn := e.fn
	if l.mayRecur(fn) {
		// The frame is known only when the function runs.
		t := l.reg(map[slotKind]ptx.Type{slot32: ptx.U32, slot64: ptx.U64}[k])
		off := uint64(e.off) + uint64(add)
		wide := k == slot64
		l.emit(inst{kind: kindExec, d: t.off, exec: func(w *warp, in *inst, mask uint32) {
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
	return l.constant(constKey{kind: k, name: "local " + fn.name, bits: uint64(e.off) + uint64(add)},
		func(*launch, *warp, int) uint64 { return uint64(fn.localBase) + uint64(e.off) + uint64(add) }, false)
}

// mayRecur: only a function that is not the kernel can.
func (l *lowering) mayRecur(fn *function) bool { return !fn.src.Entry }

// emit appends an instruction, with the guard of the one being translated.
func (l *lowering) emit(x inst) *inst {
	x.src, x.fn = l.in, l.fn
	if l.guard != nil {
		e := l.lookup(l.guard.Reg)
		if e == nil || e.slot != slotPred || e.kind != entReg {
			l.fail(l.in.Src.Pos, "guard %s is not a predicate", l.guard.Reg)
		}
		x.guard, x.guardNot = e.off, l.guard.Not
	}
	l.p.code = append(l.p.code, x)
	return &l.p.code[len(l.p.code)-1]
}

// returns leaves the function.
func (l *lowering) returns() {
	if l.savedStack != 0 {
		l.stackRestore(placeAt(l.savedStack, slot32))
	}
	for _, op := range l.regResults {
		l.emit(inst{kind: kindExec, x: op, exec: op.store()})
	}
	l.emit(inst{kind: kindReturn})
}

// A place is a resolved operand.
type place struct {
	off  uint32
	kind slotKind
	bits int // declared width of a register that is written
}

func placeAt(off uint32, k slotKind) place { return place{off: off, kind: k} }

func (p place) wide() bool { return p.kind == slot64 || p.kind == slot128 }

// source resolves an operand that is read, whatever its width.
func (l *lowering) source(x ptx.Operand, t ptx.Type) place {
	pos := l.in.Src.Pos
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
		return placeAt(l.constBits(bits, k), k)
	case *ptx.Ref:
		return l.named(x, t)
	case *ptx.Neg:
		if x.Not {
			p := l.source(x.X, ptx.Pred)
			if p.kind != slotPred {
				l.fail(pos, "! before something that is no predicate")
			}
			d := l.reg(ptx.Pred)
			l.emit(inst{kind: kindExec, d: d.off, a: p.off, exec: func(w *warp, in *inst, mask uint32) {
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
			return l.source(&n, t)
		}
	case *ptx.Sink:
		k := slotFor(t)
		return placeAt(l.constBits(0, k), k)
	}
	l.fail(pos, "operand %s", operandText(x))
	return place{}
}

func (l *lowering) named(x *ptx.Ref, t ptx.Type) place {
	pos := l.in.Src.Pos
	if e := l.lookup(x.Name); e != nil {
		switch e.kind {
		case entReg:
			if e.comps != nil {
				k := component(x.Comp)
				if k < 0 || k >= len(e.comps) {
					l.fail(pos, "%s needs a component", x.Name)
				}
				return placeAt(e.comps[k], e.slot)
			}
			if x.Comp != "" {
				l.fail(pos, "component .%s of %s", x.Comp, x.Name)
			}
			return placeAt(e.off, e.slot)
		case entShared:
			k := addressSlot(t)
			return placeAt(l.sharedAddress(e.off, 0, k), k)
		case entLocal:
			k := addressSlot(t)
			return placeAt(l.localAddress(e, 0, k), k)
		case entGlobal:
			k := addressSlot(t)
			g := l.m.globals[l.m.byVar[e.decl]]
			return placeAt(l.constant(constKey{kind: k, name: g.Name}, func(la *launch, _ *warp, _ int) uint64 { return la.in.base + g.Offset }, false), k)
		case entKernelParam:
			k := addressSlot(t)
			return placeAt(l.constBits(uint64(e.off), k), k)
		}
		l.fail(pos, "operand %s", x.Name)
	}
	if x.Name == "WARP_SZ" {
		return placeAt(l.constBits(32, slotFor(t)), slotFor(t))
	}
	if strings.HasPrefix(x.Name, "%") {
		s, err := specialRegister(x.Name, x.Comp)
		if err != nil {
			l.fail(pos, "%v", err)
		}
		k := slot32
		if s.wide {
			k = slot64
		}
		if t == ptx.Pred {
			k = slotPred
		}
		if !s.dynamic {
			return placeAt(l.constant(constKey{kind: k, name: x.Name + "." + x.Comp}, s.value, s.perBlock), k)
		}
		typ := ptx.U32
		if s.wide {
			typ = ptx.U64
		}
		d := l.reg(typ)
		l.emit(inst{kind: kindExec, d: d.off, exec: func(w *warp, in *inst, mask uint32) {
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
	if off, ok := l.symbol(x.Name, pos, 0, k); ok {
		return placeAt(off, k)
	}
	l.fail(pos, "%s is not declared", x.Name)
	return place{}
}

func addressSlot(t ptx.Type) slotKind {
	if isa.Bits(t) == 32 {
		return slot32
	}
	return slot64
}

// read resolves an operand of type t, whose register must have that width.
func (l *lowering) read(x ptx.Operand, t ptx.Type) uint32 {
	p := l.source(x, t)
	if want := slotFor(t); p.kind != want {
		if p.kind == slot64 && want == slot32 || p.kind == slot32 && want == slot64 {
			return l.resize(p, want)
		}
		l.fail(l.in.Src.Pos, "operand %s has the wrong width for .%s", operandText(x), isa.TypeName(t))
	}
	return p.off
}

// resize makes a 64-bit source narrower, or widens with zeros: special
// registers may be read in either width.
func (l *lowering) resize(p place, want slotKind) uint32 {
	typ := ptx.U32
	if want == slot64 {
		typ = ptx.U64
	}
	d := l.reg(typ)
	in := inst{kind: kindLane, d: d.off, a: p.off, b: p.off, c: p.off, lane: func(a, _, _ uint64) uint64 { return a }}
	if want == slot64 {
		in.wide = wideD
	} else {
		in.wide = wideA
	}
	l.emit(in)
	return d.off
}

// write resolves a register that is written.
func (l *lowering) write(x ptx.Operand, t ptx.Type) place {
	switch x := x.(type) {
	case *ptx.Sink:
		if t == ptx.Pred {
			return placeAt(regSinkP, slotPred)
		}
		return placeAt(regSink, slotFor(t))
	case *ptx.Ref:
		e := l.lookup(x.Name)
		if e == nil || e.kind != entReg {
			l.fail(l.in.Src.Pos, "%s is not a register", x.Name)
		}
		if e.comps != nil {
			p := l.named(x, t)
			p.bits = isa.Bits(e.typ)
			return p
		}
		return place{off: e.off, kind: e.slot, bits: isa.Bits(e.typ)}
	}
	l.fail(l.in.Src.Pos, "result %s", operandText(x))
	return place{}
}

func (l *lowering) writeExact(x ptx.Operand, t ptx.Type) uint32 {
	p := l.write(x, t)
	if p.kind != slotFor(t) {
		l.fail(l.in.Src.Pos, "result %s has the wrong width for .%s", operandText(x), isa.TypeName(t))
	}
	return p.off
}

func (l *lowering) inst(st *ptx.Inst) {
	l.in = &isa.Inst{Src: st}
	in, err := isa.Decode(st)
	if err != nil {
		why := err
		if u, ok := errors.AsType[*isa.UnsupportedError](err); ok {
			why = fmt.Errorf("not supported: %s", u.Why)
		}
		l.fail(st.Pos, "%w", why)
	}
	l.in, l.guard = in, st.Guard
	for i := range in.Args {
		in.Args[i].X = l.spread(in.Args[i].X)
	}
	l.translateInst(in)
	l.in, l.guard = nil, nil
}

// markRecursive finds functions that may be entered again before they return,
// and gives the others their local memory.
func (l *lowering) markRecursive() {
	p := l.p
	// Indirect calls may reach every function whose address is taken.
	var taken []*function
	for name, fn := range p.funcs {
		if l.m.taken[name] && fn.src.Body != nil {
			taken = append(taken, fn)
		}
	}
	reach := func(from *function) map[*function]bool {
		seen := map[*function]bool{}
		var visit func(f *function)
		visit = func(f *function) {
			next := l.edges[f]
			if l.hasIndirect[f] {
				next = append(append([]*function(nil), next...), taken...)
			}
			for _, g := range next {
				if !seen[g] {
					seen[g] = true
					visit(g)
				}
			}
		}
		visit(from)
		return seen
	}
	for _, name := range l.m.order {
		fn := p.funcs[name]
		if fn == nil {
			continue
		}
		if reach(fn)[fn] {
			fn.recursive = true
			p.recursive = true
			continue
		}
		fn.localBase = alignUp(p.localStatic, 16)
		p.localStatic = alignUp(fn.localBase+fn.localBytes, 16)
	}
	for _, fn := range p.funcs {
		fn.localBytes = alignUp(fn.localBytes, 16)
	}
}
