package softgpu

import (
	"errors"
	"fmt"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// A cursor is where in the source the translation is, which is what a refusal names.
type cursor struct {
	file  string
	in    *isa.Inst // being translated
	guard *ptx.Guard
}

// A lowering translates one kernel: function after function, statement after statement.
type lowering struct {
	*operands

	fixups     []fixup
	regResults []*paramMemOp // results of the function that are registers
	savedStack uint32        // register with the stack pointer on entry; 0 = the function does not move it
}

type fixup struct {
	inst int
	lab  *label
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

func (c *cursor) fail(pos ptx.Pos, format string, args ...any) {
	r := &refusal{file: c.file, pos: pos, why: fmt.Errorf(format, args...)}
	if c.in != nil {
		r.inst = isa.Text(c.in.Src)
	}
	panic(r)
}

// translate makes the program of a kernel.
func (m *Module) translate(kernel string) (p *program, err error) {
	f := m.funcs[kernel]
	if f == nil || !f.Entry || f.Body == nil {
		return nil, fmt.Errorf("%s: no kernel %q", m.file, kernel)
	}
	p = &program{name: kernel, file: m.file, pos: f.Pos, mod: m, regBytes: regFirst, funcs: map[string]*function{},
		maxThreads: maxThreads(f), dynAlign: 16}
	l := newLowering(p, m)
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
	entry := l.graph.function(f)
	for len(l.graph.queue) > 0 {
		fn := l.graph.queue[0]
		l.graph.queue = l.graph.queue[1:]
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
	l.graph.markRecursive()
	p.regBytes = alignUp(p.regBytes, 64)
	if l.dynamic {
		p.sharedStatic = alignUp(p.sharedStatic, p.dynAlign)
	}
	return p, nil
}

func newLowering(p *program, m *Module) *lowering {
	lay := &layout{
		cursor: &cursor{file: m.file},
		p:      p,
		consts: map[constKey]uint32{},
		shared: map[*ptx.Var]uint32{},
	}
	graph := &callGraph{
		layout:      lay,
		m:           m,
		edges:       map[*function][]*function{},
		hasIndirect: map[*function]bool{},
	}
	return &lowering{operands: &operands{names: &names{layout: lay, m: m}, graph: graph}}
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
			l.scope.names[v.Name] = &entity{kind: entKernelParam, typ: v.Type, off: l.p.params[i].Offset,
				size: l.p.params[i].Size}
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
			op.regs, op.elem, op.wide, op.pred = append(op.regs, part.reg), part.size, part.kind == slot64,
				part.kind == slotPred
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

// returns leaves the function.
func (l *lowering) returns() {
	if l.savedStack != 0 {
		stack{l.operands}.restore(placeAt(l.savedStack, slot32))
	}
	for _, op := range l.regResults {
		l.emit(inst{kind: kindExec, x: op, exec: op.store()})
	}
	l.emit(inst{kind: kindReturn})
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

// saveStack keeps the stack pointer, at the start of a function that moves it.
func (l *lowering) saveStack(b *ptx.Block) {
	l.savedStack = 0
	if l.fn.src.Entry || !moves(b) {
		return
	}
	l.savedStack = l.reg(ptx.U32).off
	sp := stack{l.operands}.pointer()
	l.p.code = append(l.p.code, inst{kind: kindVec, d: l.savedStack, a: sp, b: sp, c: sp, vec: vMov32, fn: l.fn})
}

// translateInst appends the code of one instruction.
func (l *lowering) translateInst(in *isa.Inst) {
	switch in.Class {
	case isa.Load:
		memory{l.operands}.load(in)
	case isa.Store:
		memory{l.operands}.store(in)
	case isa.Atomic:
		memory{l.operands}.atomic(in)
	case isa.Control:
		l.control(in)
	case isa.Barrier:
		barriers{l.operands}.barrier(in)
	case isa.Collective:
		collectives{l.operands}.collective(in)
	case isa.Prefetch:
		if in.Op == "createpolicy" || in.Op == "createpolicy.cvt" {
			l.move(in.Args[0].X, placeAt(l.constBits(0, slot64), slot64), ptx.B64)
		}
	case isa.Fence:
		// Loads and stores are the CPU's own, in order on x86; a poll makes
		// spinning code give way.
		l.emit(inst{kind: kindPoll, exec: fence})
	case isa.Tensor:
		matrices{l.operands}.tensor(in)
	case isa.Texture, isa.Surface:
		textures{l.operands}.texture(in)
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
		registerMoves{l.operands}.mov(in)
		return
	case "cvta":
		addresses{l.operands}.cvta(in)
		return
	case "isspacep":
		addresses{l.operands}.isspacep(in)
		return
	case "setp":
		predicates{l.operands}.setp(in)
		return
	case "testp":
		predicates{l.operands}.testp(in)
		return
	case "and", "or", "xor", "not":
		if in.T == ptx.Pred {
			predicates{l.operands}.predLogic(in)
			return
		}
	case "set":
		if in.Bool != "" {
			predicates{l.operands}.setCombined(in)
			return
		}
	}
	arithmetic{l.operands}.compute(in)
}

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
		calls{l.operands}.call(in)
	case "ret":
		l.returns()
	case "exit":
		l.emit(inst{kind: kindExit})
	case "trap":
		l.emit(inst{kind: kindTrap})
	}
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
		copies{l.operands}.cpAsync(in)
	case "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "cp.async.commit_group", "cp.async.wait_group",
		"cp.async.wait_all":
		// The copies are done already.
	case "cp.async.mbarrier.arrive", "mbarrier.init", "mbarrier.inval", "mbarrier.expect_tx", "mbarrier.complete_tx",
		"mbarrier.arrive", "mbarrier.arrive.expect_tx", "mbarrier.arrive.noComplete", "mbarrier.arrive_drop",
		"mbarrier.arrive_drop.expect_tx", "mbarrier.arrive_drop.noComplete", "mbarrier.test_wait",
		"mbarrier.test_wait.parity", "mbarrier.try_wait", "mbarrier.try_wait.parity", "mbarrier.pending_count":
		barriers{l.operands}.mbarrier(in)
	case "cp.async.bulk", "cp.reduce.async.bulk":
		copies{l.operands}.bulk(in)
	case "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor":
		copies{l.operands}.bulkTensor(in)
	case "st.async", "red.async":
		copies{l.operands}.storeAsync(in)
	case "st.bulk":
		copies{l.operands}.storeBulk(in)
	case "getctarank":
		addresses{l.operands}.getctarank(in)
	case "mapa":
		addresses{l.operands}.mapa(in)
	case "multimem.ld_reduce":
		// Multicast memory of the one device there is: the reduction of one value.
		memory{l.operands}.load(in)
	case "multimem.st":
		memory{l.operands}.store(in)
	case "multimem.red":
		memory{l.operands}.atomic(in)
	case "tensormap.replace":
		copies{l.operands}.tensormapReplace(in)
	case "tensormap.cp_fenceproxy":
		copies{l.operands}.tensormapCopy(in)
	case "alloca":
		stack{l.operands}.alloca(in)
	case "stacksave":
		l.move(in.Args[0].X, placeAt(stack{l.operands}.pointer(), slot32), in.T)
	case "stackrestore":
		stack{l.operands}.restore(l.source(in.Args[0].X, in.T))
	case "txq", "suq", "istypep":
		textures{l.operands}.texture(in)
	case "barrier.cluster":
		l.emit(inst{kind: kindCluster, x: &clusterOp{wait: in.Mode == "wait"}})
	default:
		l.fail(in.Src.Pos, "not implemented")
	}
}

func fence(*warp, *inst, uint32) {}
