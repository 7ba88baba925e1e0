package ir

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// This file is the PTX front end, the only one that knows PTX. What it makes of the
// language:
//
//   - a register is a value before SSA form; a component of a vector register, and the
//     carry flag that add.cc and its like leave, are registers of their own;
//   - vectors and pairs of operands are lists of results or arguments, in order;
//   - parameters are variables in the space param, also those of calls; a call reads and
//     writes those that it names;
//   - an instruction that the instruction table does not hold may read and write all the
//     registers it names, and all memory.

// FromPTX builds the functions of a module that have a body, in source order. An
// error is that of one function, a *ptx.Error; the others still come.
func FromPTX(m *ptx.Module) iter.Seq2[*Func, error] {
	return func(yield func(*Func, error) bool) {
		top := &scope{vars: map[string]*ptx.Var{}}
		funcs := map[string]bool{}
		for _, d := range m.Decls {
			switch d := d.(type) {
			case *ptx.Var:
				top.vars[d.Name] = d
			case *ptx.Func:
				funcs[d.Name] = true
			case *ptx.Alias:
				funcs[d.Name] = true
			}
		}
		for _, d := range m.Decls {
			if fn, ok := d.(*ptx.Func); ok && fn.Body != nil {
				b := &builder{m: m, fn: fn, top: top, funcs: funcs, f: &Func{Name: fn.Name, Kernel: fn.Entry},
					regs: map[register]ValID{}, vars: map[*ptx.Var]string{}, names: map[string]int{}, params: map[string]bool{}, carry: None}
				f, err := b.build()
				if !yield(f, err) {
					return
				}
			}
		}
	}
}

// A scope is the names of a module, a function or a block.
type scope struct {
	outer  *scope
	vars   map[string]*ptx.Var // register sets by prefix
	labels map[string]int      // index of the next instruction
	tables map[string][]string
}

// A register is a variable, a member of a set, or a component of either.
type register struct {
	v     *ptx.Var
	index int
	comp  int
}

// A placed instruction is one with the scope it stands in.
type placed struct {
	in    *ptx.Inst
	scope *scope
}

type builder struct {
	m      *ptx.Module
	fn     *ptx.Func
	top    *scope
	funcs  map[string]bool
	f      *Func
	insts  []placed
	regs   map[register]ValID
	vars   map[*ptx.Var]string // names of variables with an address
	names  map[string]int      // how often a name was given
	params map[string]bool     // of the function, in memory
	carry  ValID
	scope  *scope // of the instruction in hand
	pos    ptx.Pos
	err    error
	arcs   int

	starts []*Block // of instructions that begin a block; one more for the end
	cur    *Block
}

func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = &ptx.Error{File: b.m.File, Pos: b.pos, Msg: fmt.Sprintf(format, args...)}
	}
}

func (b *builder) build() (*Func, error) {
	outer := &scope{outer: b.top, vars: map[string]*ptx.Var{}}
	entry := &Block{}
	b.f.Blocks = []*Block{entry}
	b.cur = entry
	args := &Inst{Op: Other, Name: "arguments"}
	off := 0
	for _, v := range b.fn.Params {
		outer.vars[v.Name] = v
		if v.Space == ptx.SpaceReg {
			args.Defs = append(args.Defs, b.components(register{v, -1, -1})...)
			continue
		}
		size, align := layout(v)
		off = (off + align - 1) / align * align
		b.vars[v] = v.Name
		b.names[v.Name] = 1
		b.params[v.Name] = true
		b.f.Vars = append(b.f.Vars, Var{Name: cmp.Or(v.Name, "_"), Space: Param, Off: off, Size: size, Align: align, Param: true})
		off += size
	}
	for _, v := range b.fn.Ret {
		outer.vars[v.Name] = v
		if v.Space != ptx.SpaceReg && b.names[v.Name] == 0 {
			b.vars[v] = v.Name
			b.names[v.Name] = 1
			size, align := layout(v)
			b.f.Vars = append(b.f.Vars, Var{Name: cmp.Or(v.Name, "_"), Space: space(v.Space), Size: size, Align: align, Result: true})
		}
	}
	if len(args.Defs) > 0 {
		entry.Insts = append(entry.Insts, args)
	}
	b.flatten(b.fn.Body, outer)
	b.divide()
	for i, p := range b.insts {
		if s := b.starts[i]; s != nil {
			b.enter(s)
		}
		b.pos, b.scope = p.in.Pos, p.scope
		b.inst(i, p.in)
		if b.err != nil {
			return nil, b.err
		}
	}
	if s := b.starts[len(b.insts)]; s != nil {
		b.enter(s)
	}
	if b.cur != nil {
		b.pos, b.scope = b.fn.Body.End, outer
		b.add(b.returned(&Inst{Op: Return}))
	}
	return b.f, b.err
}

// layout is the size and alignment of a variable in bytes. Sizes that cannot be are left
// to whoever executes the code.
func layout(v *ptx.Var) (size, align int) {
	elem := max(8, isa.Bits(v.Type)) / 8
	if v.Vec > 1 {
		elem *= v.Vec
	}
	size = elem
	for _, n := range v.Dims {
		if n < 0 || n > 0 && size > math.MaxInt32/n {
			n = 0
		}
		size *= n
	}
	if v.Count > 0 {
		size *= v.Count
	}
	align = elem
	if v.Align > 0 && v.Align <= 1<<20 {
		align = v.Align
	}
	return size, align
}

// flatten lists the instructions of a block and notes what labels mark.
func (b *builder) flatten(blk *ptx.Block, outer *scope) {
	s := &scope{outer: outer, vars: map[string]*ptx.Var{}, labels: map[string]int{}, tables: map[string][]string{}}
	for _, st := range blk.Stmts {
		switch st := st.(type) {
		case *ptx.Label:
			s.labels[st.Name] = len(b.insts)
		case *ptx.BranchTargets:
			s.tables[st.Name] = st.Labels
		case *ptx.VarStmt:
			for _, v := range st.Vars {
				s.vars[v.Name] = v
			}
		case *ptx.Inst:
			b.insts = append(b.insts, placed{st, s})
		case *ptx.Block:
			b.flatten(st, s)
		}
	}
}

// divide finds where blocks begin: at the targets of branches, and after them.
func (b *builder) divide() {
	b.starts = make([]*Block, len(b.insts)+1)
	start := func(i int) {
		if b.starts[i] == nil {
			b.starts[i] = &Block{}
		}
	}
	for i, p := range b.insts {
		b.scope, b.pos = p.scope, p.in.Pos
		switch p.in.Op {
		case "bra", "brx":
			for _, t := range b.targets(p.in) {
				start(t)
			}
		case "ret", "exit", "trap":
		default:
			continue
		}
		start(i + 1)
	}
}

// targets are the instructions that a branch may go to.
func (b *builder) targets(in *ptx.Inst) []int {
	if len(in.Args) == 0 {
		b.fail("%s without a target", in.Op)
		return nil
	}
	last, ok := in.Args[len(in.Args)-1].(*ptx.Ref)
	if !ok {
		b.fail("%s: the target is no label", in.Op)
		return nil
	}
	names := []string{last.Name}
	from := b.scope
	if in.Op == "brx" {
		for ; from != nil; from = from.outer {
			if list, ok := from.tables[last.Name]; ok {
				names = list
				break
			}
		}
		if from == nil {
			b.fail("%s is no list of branch targets", last.Name)
			return nil
		}
	}
	if b.arcs += len(names); b.arcs > maxWork/16 {
		b.fail("function %s has more than %d branch targets", b.fn.Name, maxWork/16)
		return nil
	}
	var list []int
	for _, name := range names {
		at := -1
		for s := from; s != nil && at < 0; s = s.outer {
			if i, ok := s.labels[name]; ok {
				at = i
			}
		}
		if at < 0 {
			b.fail("label %s is not defined", name)
			return nil
		}
		list = append(list, at)
	}
	return list
}

// enter goes on in block s.
func (b *builder) enter(s *Block) {
	if b.cur != nil {
		Connect(b.cur, s)
	}
	s.Index = len(b.f.Blocks)
	b.f.Blocks = append(b.f.Blocks, s)
	b.cur = s
}

// add appends an instruction to the block in hand. After the end of a block comes code
// that nothing reaches until a label.
func (b *builder) add(in *Inst) {
	in.Pos = b.pos.Line
	if b.cur == nil {
		b.cur = &Block{Index: len(b.f.Blocks)}
		b.f.Blocks = append(b.f.Blocks, b.cur)
	}
	b.cur.Insts = append(b.cur.Insts, in)
}

// returned adds the results of the function to a return: registers are read.
func (b *builder) returned(in *Inst) *Inst {
	for _, v := range b.fn.Ret {
		if v.Space == ptx.SpaceReg {
			for _, id := range b.components(register{v, -1, -1}) {
				in.Args = append(in.Args, Of(id))
			}
		}
	}
	return in
}

func (b *builder) guard(g *ptx.Guard) Operand {
	if g == nil {
		return Operand{}
	}
	r, ok := b.register(g.Reg)
	if !ok {
		b.fail("%s is no register", g.Reg)
		return Operand{}
	}
	x := Of(b.regOf(r))
	if b.f.Vals[x.Val].Type.Kind != Pred {
		b.fail("the guard %s is no predicate", g.Reg)
	}
	if g.Not {
		x.Mod = Complement
	}
	return x
}

// inst converts instruction i.
func (b *builder) inst(i int, in *ptx.Inst) {
	guard := b.guard(in.Guard)
	switch in.Op {
	case "bra", "brx":
		b.branch(i, in, guard)
		return
	case "ret", "exit", "trap":
		out := &Inst{Op: map[string]Op{"ret": Return, "exit": Exit, "trap": Trap}[in.Op], Guard: guard, Name: isa.Text(in)}
		if out.Op == Return {
			b.returned(out)
		}
		b.add(out)
		if guard.Kind == NoOperand {
			b.cur = nil
		}
		return
	case "call":
		b.call(in, guard)
		return
	}
	d, err := isa.Decode(in)
	var unknown *isa.UnsupportedError
	if errors.As(err, &unknown) {
		b.unknown(in, guard)
		return
	}
	out := &Inst{Name: isa.Text(in), Guard: guard, Type: typeOf(d.T), Type2: typeOf(d.U)}
	mems, partial := b.operands(out, d)
	if d.Op == "mov" && d.Vec > 1 && b.moves(out, partial) {
		return
	}
	out.Op = operation(d, out, partial)
	if out.Op != Convert {
		out.Type2 = Type{}
	}
	b.memory(out, d, mems)
	b.add(out)
}

// moves makes a mov of a whole vector a mov for each element, unless one of them writes what another reads.
func (b *builder) moves(all *Inst, partial bool) bool {
	if partial || len(all.Args) != len(all.Defs) {
		return false
	}
	for _, x := range all.Args {
		if x.Part != "" || x.Kind == Value && slices.Contains(all.Defs, x.Val) {
			return false
		}
	}
	for i, d := range all.Defs {
		if d != None {
			b.add(&Inst{Op: Mov, Name: all.Name, Guard: all.Guard, Type: all.Type, Defs: []ValID{d}, Args: all.Args[i : i+1 : i+1]})
		}
	}
	return true
}

func (b *builder) branch(i int, in *ptx.Inst, guard Operand) {
	targets := b.targets(in)
	if b.err != nil {
		return
	}
	if in.Op == "bra" {
		out := &Inst{Op: Branch, Guard: guard, Name: isa.Text(in)}
		b.add(out)
		Connect(b.cur, b.starts[targets[0]])
	} else {
		if guard.Kind != NoOperand { // a switch is not guarded: branch around it
			b.add(&Inst{Op: Branch, Guard: guard})
			sw := &Block{Index: len(b.f.Blocks)}
			b.f.Blocks = append(b.f.Blocks, sw)
			Connect(b.cur, sw)
			Connect(b.cur, b.starts[i+1])
			b.cur = sw
		}
		x := b.convert(in.Args[0], ptx.U32)
		if len(in.Args) != 2 || len(x) != 1 {
			b.fail("%s takes an index and a list", isa.Text(in))
			return
		}
		b.add(&Inst{Op: Switch, Args: x, Name: isa.Text(in)})
		for _, t := range targets {
			Connect(b.cur, b.starts[t])
		}
		b.cur = nil
		return
	}
	if guard.Kind == NoOperand {
		b.cur = nil
	}
}

// call: the callee, then the arguments that are registers or constants; parameter
// variables are accesses.
func (b *builder) call(in *ptx.Inst, guard Operand) {
	out := &Inst{Op: Call, Guard: guard, Name: isa.Text(in), Effect: Orders | AnyRead | AnyWrite}
	c := in.Call
	if c == nil || c.Callee == nil {
		b.fail("call without a callee")
		return
	}
	out.Args = b.convert(c.Callee, ptx.U64)
	param := func(list []ptx.Operand, ret bool) {
		for _, x := range list {
			for _, o := range b.convert(x, ptx.B32) {
				switch {
				case o.Kind == Symbol && !b.funcs[o.Name]:
					out.Mem = append(out.Mem, Access{Read: !ret, Write: ret, Space: Param, Base: o, Bytes: b.sizeOf(o.Name)})
				case ret && o.Kind == Value:
					out.Defs = append(out.Defs, o.Val)
				case ret:
					out.Defs = append(out.Defs, None)
				default:
					out.Args = append(out.Args, o)
				}
			}
		}
	}
	param(c.Params, false)
	param(c.Ret, true)
	b.add(out)
}

func (b *builder) sizeOf(name string) int {
	for i := len(b.f.Vars) - 1; i >= 0 && i >= len(b.f.Vars)-64; i-- { // parameters of a call are recent
		if b.f.Vars[i].Name == name {
			return b.f.Vars[i].Size
		}
	}
	return 0
}

// unknown makes an instruction that may do anything with what it names.
func (b *builder) unknown(in *ptx.Inst, guard Operand) {
	out := &Inst{Op: Other, Name: isa.Text(in), Guard: guard, Effect: Orders | AnyRead | AnyWrite}
	for _, x := range in.Args {
		if a, ok := x.(*ptx.Addr); ok {
			out.Args = append(out.Args, b.convert(a.Base, ptx.U64)...)
			for _, c := range a.Coords {
				out.Args = append(out.Args, b.convert(c, ptx.B32)...)
			}
			continue
		}
		for _, o := range b.convert(x, ptx.B32) {
			if o.Kind == Value {
				out.Defs = append(out.Defs, o.Val)
			}
			if o.Kind != NoOperand {
				out.Args = append(out.Args, o)
			}
		}
	}
	b.add(out)
}

// operands fills in results and arguments. A result that names a part of a register is
// an argument as well: the rest stays; partial then says so.
func (b *builder) operands(out *Inst, d *isa.Inst) (mems []*ptx.Addr, partial bool) {
	var former []Operand
	for _, a := range d.Args {
		switch a.Spec.Role {
		case isa.Mem:
			addr, ok := a.X.(*ptx.Addr)
			if !ok {
				b.fail("%s: an operand is no address", out.Name)
				return nil, false
			}
			mems = append(mems, addr)
		case isa.Dst:
			former = append(former, b.results(out, b.convert(a.X, a.Type))...)
		case isa.InOut:
			list := b.convert(a.X, a.Type)
			b.results(out, list)
			out.Args = append(out.Args, list...)
		case isa.Src:
			out.Args = append(out.Args, b.convert(a.X, a.Type)...)
		}
	}
	out.Args = append(out.Args, former...)
	if d.Has(isa.CC) {
		out.Defs = append(out.Defs, b.carryFlag())
		partial = true
	}
	if d.Op == "addc" || d.Op == "subc" || d.Op == "madc" {
		out.Args = append(out.Args, Of(b.carryFlag()))
		partial = true
	}
	return mems, partial || former != nil
}

// results adds what an instruction writes. It gives back those of which only a part is written.
func (b *builder) results(out *Inst, list []Operand) []Operand {
	var parts []Operand
	for _, o := range list {
		if o.Kind == Value {
			out.Defs = append(out.Defs, o.Val)
			if o.Part != "" {
				parts = append(parts, o)
			}
			continue
		}
		out.Defs = append(out.Defs, None)
		if o.Kind != NoOperand {
			b.fail("%s: a result is no register", out.Name)
		}
	}
	return parts
}

func (b *builder) carryFlag() ValID {
	if b.carry == None {
		b.carry = ValID(len(b.f.Vals))
		b.f.Vals = append(b.f.Vals, Val{Name: "CC", Type: Type{Pred, 1}})
	}
	return b.carry
}

var plainOps = map[string]Op{"add": Add, "sub": Sub, "div": Div, "rem": Rem, "min": Min, "max": Max, "neg": Neg, "abs": Abs,
	"and": And, "or": Or, "xor": Xor, "not": Not, "shl": Shl, "shr": Shr, "selp": Select}

var rels = map[string]Rel{"eq": EQ, "ne": NE, "lt": LT, "le": LE, "gt": GT, "ge": GE, "lo": LT, "ls": LE, "hi": GT, "hs": GE}

// operation is the Op of a decoded instruction; what does not fit exactly is Compute.
func operation(d *isa.Inst, out *Inst, partial bool) Op {
	switch d.Class {
	case isa.Load:
		return Load
	case isa.Store:
		return Store
	case isa.Atomic:
		return Atomic
	case isa.Prefetch:
		if len(out.Defs) > 0 {
			return Compute // createpolicy
		}
		return Prefetch
	case isa.Fence:
		return Fence
	case isa.Barrier:
		return Barrier
	case isa.Collective:
		return Collective
	case isa.Arith, isa.Compare, isa.Convert, isa.Move:
	default:
		return otherwise(d.Op)
	}
	exact := !partial && !d.Has(isa.Sat) && !d.Has(isa.Relu)
	for _, x := range out.Args {
		exact = exact && x.Part == ""
	}
	op, plain := plainOps[d.Op]
	switch {
	case !exact:
		return Compute
	case d.Op == "mov" && d.Vec > 1:
		return Compute
	case plain && d.U != ptx.TypeNone:
		return Compute // mixed precision
	case plain:
	case d.Op == "mov":
		switch {
		case len(out.Defs) > 1 && len(out.Args) == 1:
			op = Unpack
		case len(out.Defs) == 1 && len(out.Args) > 1:
			op = Pack
		case len(out.Defs) == 1:
			op = Mov
		}
	case d.Op == "mul" && (d.Mode == "lo" || d.Mode == "" && isa.Float(d.T)):
		op = Mul
	case d.Op == "mul" && d.Mode == "wide":
		op = MulWide
	case d.Op == "mad" && d.Mode == "lo":
		op = Mad
	case d.Op == "mad" && d.Mode == "wide":
		op = MadWide
	case d.Op == "cvt":
		op = Convert
	case d.Op == "cvta" && d.Has(isa.To):
		op, out.Space = FromGeneric, spaceOf(d.Space)
	case d.Op == "cvta":
		op, out.Space = ToGeneric, spaceOf(d.Space)
	case d.Op == "setp" && d.Bool == "" && rels[d.Cmp] != NoRel && out.Type.Kind != Packed:
		op, out.Rel = Compare, rels[d.Cmp]
	}
	if op == Other || op != Unpack && op != Compare && len(out.Defs) != 1 || arity[op] > 0 && len(out.Args) != arity[op] {
		out.Rel, out.Space = NoRel, Generic
		return Compute
	}
	return op
}

// otherwise is the Op of matrix instructions, asynchronous ones and the like.
func otherwise(op string) Op {
	switch op {
	case "mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.mma", "movmatrix":
		return Collective
	case "ldmatrix":
		return Load
	case "stmatrix":
		return Store
	case "mapa", "getctarank":
		return Compute
	case "barrier.cluster":
		return Barrier
	case "cp.async":
		return Copy
	}
	if strings.HasPrefix(op, "cp.async.") && (strings.HasSuffix(op, "_group") || strings.HasSuffix(op, "wait_all")) {
		return Fence // what they wait for is what the copies were said to touch
	}
	return Other
}

// exclude takes back what the class of an instruction says of memory where its Op, or its
// name, says more.
func exclude(d *isa.Inst, op Op, effects isa.Effect) isa.Effect {
	switch {
	case op == Collective || op == Compute || op == Barrier || op == Fence, strings.HasPrefix(d.Op, "wgmma."):
		// wgmma reads shared memory, by descriptors; what it reads shows in its results only.
		return effects &^ (isa.ReadsMemory | isa.WritesMemory)
	case op == Load || strings.HasPrefix(d.Op, "wmma.load"):
		return effects &^ isa.WritesMemory
	case op == Store || strings.HasPrefix(d.Op, "wmma.store"):
		return effects &^ isa.ReadsMemory
	}
	return effects
}

// matrixRow is the bytes that a thread's address means to ldmatrix and stmatrix.
const matrixRow = 16

func spaceOf(s string) Space {
	s, _, _ = strings.Cut(strings.Replace(s, "shared::cluster", "cluster", 1), "::")
	for i, name := range spaceNames {
		if s == name {
			return Space(i)
		}
	}
	return Generic
}

// memory fills in accesses and effects.
func (b *builder) memory(out *Inst, d *isa.Inst, mems []*ptx.Addr) {
	effects := exclude(d, out.Op, d.Class.Effects())
	if effects&isa.Orders != 0 {
		out.Effect |= Orders
	}
	if d.Sem == "acquire" || d.Sem == "release" || d.Sem == "relaxed" || d.Sem == "volatile" || d.Sem == "acq_rel" || d.Sem == "sc" || d.Sem == "mmio" {
		out.Effect |= Orders
	}
	if out.Op == Copy && len(mems) != 2 || len(mems) < accesses[out.Op] {
		b.fail("%s: %d addresses", out.Name, len(mems))
		return
	}
	for i, m := range mems {
		a := Access{Space: spaceOf(d.Space), Read: effects&isa.ReadsMemory != 0, Write: effects&isa.WritesMemory != 0, Off: m.Off}
		switch out.Op {
		case Load, Store, Atomic:
			a.Bytes = isa.Bits(d.T) / 8 * max(1, d.Vec)
			if d.Class == isa.Tensor {
				a.Bytes = matrixRow
			}
		case Copy: // to shared memory, from global memory
			a.Space, a.Read, a.Write = [...]Space{Shared, Global}[i], i == 1, i == 0
			if n := out.Args; len(n) > 0 && n[0].Kind == Constant && n[0].Bits <= 16 {
				a.Bytes = int(n[0].Bits)
			}
		case Other:
			if strings.HasPrefix(d.Op, "mbarrier.") {
				a.Bytes = 8
				break
			}
			if a.Read {
				out.Effect |= AnyRead
			}
			if a.Write {
				out.Effect |= AnyWrite
			}
		}
		if base := b.convert(m.Base, ptx.U64); len(base) == 1 {
			a.Base = base[0]
			if a.Base.Kind == Symbol {
				a.Off += int64(a.Base.Bits)
				a.Base.Bits = 0
			}
		} else {
			b.fail("%s: the address is no single register", out.Name)
		}
		for _, c := range m.Coords {
			out.Args = append(out.Args, b.convert(c, ptx.B32)...)
		}
		out.Mem = append(out.Mem, a)
	}
	if len(mems) == 0 {
		if effects&isa.ReadsMemory != 0 {
			out.Effect |= AnyRead
		}
		if effects&isa.WritesMemory != 0 {
			out.Effect |= AnyWrite
		}
	}
	switch {
	case out.Op == Load && len(out.Mem) > 0:
		m := out.Mem[0]
		if d.Has(isa.Nc) || m.Space == Const || m.Space == Param && b.f.Kernel && m.Base.Kind == Symbol && b.params[m.Base.Name] {
			out.Effect |= Fixed
		}
	case out.Op == Collective && (d.Op == "vote.sync" || d.Op == "redux"):
		if n := len(out.Args); n > 0 && out.Args[n-1].Kind == Constant && uint32(out.Args[n-1].Bits) == math.MaxUint32 {
			out.Effect |= WarpWide
		}
	case out.Op == Barrier && d.Mode == "red" && len(out.Args) == 2: // no number of threads: all of the block
		out.Effect |= BlockWide
	}
}

// typeOf is the plain type of a PTX one.
func typeOf(t ptx.Type) Type {
	w := uint16(isa.Bits(t))
	switch t {
	case ptx.TypeNone:
		return Type{}
	case ptx.Pred:
		return Type{Pred, 1}
	case ptx.B8, ptx.B16, ptx.B32, ptx.B64, ptx.B128:
		return Type{Bits, w}
	case ptx.U8, ptx.U16, ptx.U32, ptx.U64:
		return Type{Unsigned, w}
	case ptx.S8, ptx.S16, ptx.S32, ptx.S64:
		return Type{Signed, w}
	case ptx.F16, ptx.F32, ptx.F64:
		return Type{Float, w}
	}
	return Type{Packed, w}
}

// register finds a register by name: a variable, or a member of a set.
func (b *builder) register(name string) (register, bool) {
	digits := len(name)
	for digits > 0 && name[digits-1] >= '0' && name[digits-1] <= '9' {
		digits--
	}
	for s := b.scope; s != nil; s = s.outer {
		if v := s.vars[name]; v != nil && v.Count == 0 {
			return register{v, -1, -1}, v.Space == ptx.SpaceReg
		}
		// %r12 may belong to %r<13>, or to %r1<3>.
		for cut := max(digits, len(name)-8); cut < len(name); cut++ {
			v := s.vars[name[:cut]]
			if v == nil || v.Count == 0 || v.Space != ptx.SpaceReg || name[cut] == '0' && cut+1 < len(name) {
				continue
			}
			n := 0
			for _, c := range name[cut:] {
				n = 10*n + int(c-'0')
			}
			if n < v.Count {
				return register{v, n, -1}, true
			}
		}
	}
	return register{}, false
}

// regOf numbers a register.
func (b *builder) regOf(r register) ValID {
	if v, ok := b.regs[r]; ok {
		return v
	}
	v := ValID(len(b.f.Vals))
	name := cmp.Or(r.v.Name, "_") // a parameter without a name
	if r.index >= 0 {
		name += fmt.Sprint(r.index)
	}
	if r.comp >= 0 {
		name += "." + "xyzwabcd"[r.comp:r.comp+1]
	}
	b.regs[r] = v
	b.f.Vals = append(b.f.Vals, Val{Name: name, Type: typeOf(r.v.Type)})
	return v
}

// components are the values of a register: of a vector, one for each component.
func (b *builder) components(r register) []ValID {
	if r.v.Vec <= 1 || r.v.Vec > 8 {
		return []ValID{b.regOf(r)}
	}
	var list []ValID
	for i := range r.v.Vec {
		r.comp = i
		list = append(list, b.regOf(r))
	}
	return list
}

// convert gives the operands that one operand of PTX stands for; t is the type that a
// constant takes.
func (b *builder) convert(x ptx.Operand, t ptx.Type) []Operand {
	switch x := x.(type) {
	case *ptx.Imm:
		return []Operand{{Kind: Constant, Bits: constant(x, t)}}
	case *ptx.Ref:
		return b.ref(x)
	case *ptx.Sink:
		return []Operand{{}}
	case *ptx.Vector:
		var list []Operand
		for _, e := range x.Elems {
			list = append(list, b.convert(e, t)...)
		}
		return list
	case *ptx.Pair:
		return append(b.convert(x.A, t), b.convert(x.B, ptx.Pred)...)
	case *ptx.Neg:
		list := b.convert(x.X, t)
		for i := range list {
			if x.Not {
				list[i].Mod ^= Complement
			} else if list[i].Kind == Constant && !isa.Float(t) {
				list[i].Bits = -list[i].Bits
			} else {
				list[i].Mod ^= Negated
			}
		}
		return list
	case *ptx.Generic:
		return b.symbol(x.Name, x.Off)
	case *ptx.Index:
		if v := b.variable(x.Name); v != nil {
			return b.symbol(x.Name, x.Index*int64(max(8, isa.Bits(v.Type))/8))
		}
		return b.symbol(x.Name, 0)
	case *ptx.Addr:
		return b.convert(x.Base, t)
	}
	b.fail("operand of kind %T", x)
	return nil
}

// constant is the bits of a constant as type t has them.
func constant(x *ptx.Imm, t ptx.Type) uint64 {
	switch {
	case x.Kind == ptx.ImmF64 && t == ptx.F32:
		return uint64(math.Float32bits(float32(math.Float64frombits(x.Bits))))
	case x.Kind == ptx.ImmF32 && t == ptx.F64:
		return math.Float64bits(float64(math.Float32frombits(uint32(x.Bits))))
	case (x.Kind == ptx.ImmS64 || x.Kind == ptx.ImmU64) && t == ptx.F32:
		return uint64(math.Float32bits(float32(integer(x))))
	case (x.Kind == ptx.ImmS64 || x.Kind == ptx.ImmU64) && t == ptx.F64:
		return math.Float64bits(integer(x))
	}
	return x.Bits
}

func integer(x *ptx.Imm) float64 {
	if x.Kind == ptx.ImmU64 {
		return float64(x.Bits)
	}
	return float64(int64(x.Bits))
}

var components = map[string]int{"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}

func (b *builder) ref(x *ptx.Ref) []Operand {
	if x.Name == "WARP_SZ" {
		return []Operand{Int(32)}
	}
	if strings.Contains(x.Comp, "::") { // the lexer takes it for a qualifier
		b.fail("%s has no part %s", x.Name, x.Comp)
		return []Operand{{}}
	}
	if r, ok := b.register(x.Name); ok {
		if r.v.Vec > 1 && r.v.Vec <= 8 {
			if i, ok := components[x.Comp]; ok && i < r.v.Vec {
				r.comp = i
				return []Operand{Of(b.regOf(r))}
			}
			if x.Comp != "" {
				b.fail("%s has no component %s", x.Name, x.Comp)
			}
			var list []Operand
			for _, id := range b.components(r) {
				list = append(list, Of(id))
			}
			return list
		}
		o := Of(b.regOf(r))
		o.Part = x.Comp
		return []Operand{o}
	}
	if ptx.SpecialRegister(x.Name) && b.variable(x.Name) == nil {
		name := strings.TrimPrefix(x.Name, "%")
		if x.Comp != "" {
			name += "." + x.Comp
		}
		return []Operand{{Kind: Special, Name: name}}
	}
	return b.symbol(x.Name, 0)
}

// variable finds a variable with an address.
func (b *builder) variable(name string) *ptx.Var {
	for s := b.scope; s != nil; s = s.outer {
		if v := s.vars[name]; v != nil && v.Space != ptx.SpaceReg {
			return v
		}
		// .shared .b32 a<3> declares a0, a1, a2.
		for cut := len(name) - 1; cut > 0 && cut >= len(name)-8 && name[cut] >= '0' && name[cut] <= '9'; cut-- {
			if v := s.vars[name[:cut]]; v != nil && v.Count > 0 && v.Space != ptx.SpaceReg {
				return v
			}
		}
	}
	return nil
}

// symbol is the address of a variable or a function.
func (b *builder) symbol(name string, off int64) []Operand {
	o := Operand{Kind: Symbol, Name: name, Bits: uint64(off)}
	v := b.variable(name)
	if v == nil {
		if !b.funcs[name] && !b.marks(name) {
			b.fail("%s is not declared", name)
		}
		return []Operand{o}
	}
	given, ok := b.vars[v]
	if v.Count > 0 && b.names[name] > 0 {
		given, ok = name, true
	}
	if !ok {
		given = name
		if n := b.names[name]; n > 0 { // another one in another block
			given = fmt.Sprintf("%s@%d", name, n+1)
		}
		b.names[name]++
		if v.Count == 0 {
			b.vars[v] = given
		}
		size, align := layout(v)
		b.f.Vars = append(b.f.Vars, Var{Name: given, Space: space(v.Space), Size: size, Align: align})
	}
	o.Name = given
	return []Operand{o}
}

// marks reports whether name is a label or a list of them, as an operand of an instruction
// that the table does not hold.
func (b *builder) marks(name string) bool {
	for s := b.scope; s != nil; s = s.outer {
		if _, ok := s.labels[name]; ok || s.tables[name] != nil {
			return true
		}
	}
	return false
}

func space(s ptx.Space) Space {
	switch s {
	case ptx.SpaceGlobal, ptx.SpaceTex:
		return Global
	case ptx.SpaceShared:
		return Shared
	case ptx.SpaceLocal:
		return Local
	case ptx.SpaceConst:
		return Const
	case ptx.SpaceParam:
		return Param
	}
	return Generic
}
