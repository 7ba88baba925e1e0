package fromptx

import (
	"errors"
	"slices"
	"strings"

	"holdfast/internal/ir"
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// ends is the instructions after which nothing comes.
var ends = map[isa.Leaving]ir.Op{isa.Returns: ir.Return, isa.Exits: ir.Exit, isa.Traps: ir.Trap}

// inst converts instruction i.
func (b *builder) inst(i int, in *ptx.Inst) {
	guard := b.guard(in.Guard)
	switch how := isa.LeavingOf(in); how {
	case isa.Branches, isa.Switches:
		b.branch(i, in, guard)
		return
	case isa.Returns, isa.Exits, isa.Traps:
		out := &ir.Inst{Op: ends[how], Guard: guard, Name: isa.Text(in)}
		if out.Op == ir.Return {
			b.returned(out)
		}
		b.add(out)
		if guard.Kind == ir.NoOperand {
			b.out.End()
		}
		return
	case isa.Calls:
		b.call(in, guard)
		return
	}
	d, err := isa.Decode(in)
	var unknown *isa.UnsupportedError
	if errors.As(err, &unknown) {
		b.unknown(in, guard)
		return
	}
	m := d.Means()
	out := &ir.Inst{Name: isa.Text(in), Guard: guard, Type: typeOf(d.T), Type2: typeOf(d.U)}
	mems, parts := b.operands(out, d, &m)
	if m.Operation == isa.Copy && d.Vec > 1 && b.moves(out, parts) {
		return
	}
	out.Op = operation(d, &m, out, parts)
	if out.Op != ir.Convert {
		out.Type2 = ir.Type{}
	}
	attributes(out, d, &m)
	b.memory(out, d, &m, mems)
	b.add(out)
}

// moves makes a mov of a whole vector a mov for each element, unless one of them writes what another reads.
func (b *builder) moves(all *ir.Inst, partial bool) bool {
	if partial || len(all.Args) != len(all.Defs) {
		return false
	}
	for _, x := range all.Args {
		if x.Part != "" || x.Kind == ir.Value && slices.Contains(all.Defs, x.Val) {
			return false
		}
	}
	for i, d := range all.Defs {
		if d != ir.None {
			b.add(&ir.Inst{Op: ir.Mov, Name: all.Name, Guard: all.Guard, Type: all.Type, Defs: []ir.ValID{d},
				Args: all.Args[i : i+1 : i+1]})
		}
	}
	return true
}

// unknown makes an instruction that may do anything with what it names.
func (b *builder) unknown(in *ptx.Inst, guard ir.Operand) {
	known := isa.OutlineOf(in)
	out := &ir.Inst{Op: ir.Other, Name: isa.Text(in), Guard: guard, Reach: reaches[known.Beyond], Effect: ir.Orders}
	if !known.Inside {
		out.Effect |= ir.AnyRead | ir.AnyWrite
	}
	for _, x := range in.Args {
		if a, ok := x.(*ptx.Addr); ok {
			out.Args = append(out.Args, b.convert(a.Base, ptx.U64)...)
			for _, c := range a.Coords {
				out.Args = append(out.Args, b.convert(c, ptx.B32)...)
			}
			continue
		}
		for _, o := range b.convert(x, ptx.B32) {
			if o.Kind == ir.Value {
				out.Defs = append(out.Defs, o.Val)
			}
			if o.Kind != ir.NoOperand {
				out.Args = append(out.Args, o)
			}
		}
	}
	b.add(out)
}

// operands fills in results and arguments. A result that names a part of a register is
// an argument as well: the rest stays; parts then says so. So is the carry flag.
func (b *builder) operands(out *ir.Inst, d *isa.Inst, m *isa.Meaning) (mems []*ptx.Addr, parts bool) {
	var former []ir.Operand
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
	}
	if m.Carry {
		out.Args = append(out.Args, ir.Of(b.carryFlag()))
	}
	return mems, former != nil
}

// results adds what an instruction writes. It gives back those of which only a part is written.
func (b *builder) results(out *ir.Inst, list []ir.Operand) []ir.Operand {
	var parts []ir.Operand
	for _, o := range list {
		if o.Kind == ir.Value {
			out.Defs = append(out.Defs, o.Val)
			if o.Part != "" {
				parts = append(parts, o)
			}
			continue
		}
		out.Defs = append(out.Defs, ir.None)
		if o.Kind != ir.NoOperand {
			b.fail("%s: a result is no register", out.Name)
		}
	}
	return parts
}

func (b *builder) carryFlag() ir.ValID {
	if b.carry == ir.None {
		b.carry = ir.ValID(len(b.f.Vals))
		b.f.Vals = append(b.f.Vals, ir.Val{Name: "CC", Type: ir.Type{Kind: ir.Pred, Width: 1}})
	}
	return b.carry
}

// ops are the operations that the instruction table names.
var ops = map[isa.Operation]ir.Op{
	isa.Add: ir.Add, isa.Sub: ir.Sub, isa.AddCarry: ir.AddCarry, isa.SubBorrow: ir.SubBorrow, isa.Mul: ir.Mul,
	isa.MulHigh: ir.MulHigh,
	isa.MulWide: ir.MulWide, isa.Mad: ir.Mad, isa.MadWide: ir.MadWide, isa.FMA: ir.FMA, isa.Div: ir.Div,
	isa.Rem: ir.Rem,
	isa.Min: ir.Min, isa.Max: ir.Max, isa.Neg: ir.Neg, isa.Absolute: ir.Abs, isa.And: ir.And, isa.Or: ir.Or,
	isa.Xor: ir.Xor,
	isa.Not: ir.Not, isa.Shl: ir.Shl, isa.Shr: ir.Shr, isa.PopCount: ir.PopCount, isa.LeadingZeros: ir.LeadingZeros,
	isa.Reverse: ir.Reverse, isa.Insert: ir.Insert, isa.Extract: ir.Extract, isa.Logic3: ir.Logic3,
	isa.FunnelLeft: ir.FunnelLeft, isa.FunnelRight: ir.FunnelRight, isa.Permute: ir.Permute, isa.Select: ir.Select,
	isa.ConvertType: ir.Convert,
}

// classes are the operations of instructions that do more than compute.
var classes = map[isa.Class]ir.Op{isa.Load: ir.Load, isa.Store: ir.Store, isa.Atomic: ir.Atomic, isa.Fence: ir.Fence,
	isa.Barrier: ir.Barrier, isa.Collective: ir.Collective}

// operation is the Op of a decoded instruction; what does not fit exactly is Compute.
func operation(d *isa.Inst, m *isa.Meaning, out *ir.Inst, parts bool) ir.Op {
	switch d.Class {
	case isa.Load, isa.Store, isa.Atomic, isa.Fence, isa.Barrier, isa.Collective:
		return classes[d.Class]
	case isa.Prefetch:
		switch {
		case len(out.Defs) > 0:
			return ir.Compute // a cache policy
		case m.Lost:
			return ir.Other
		}
		return ir.Prefetch
	case isa.Tensor, isa.Async:
		return collectiveOrLater(d, m, out)
	case isa.Arith, isa.Compare, isa.Convert, isa.Move:
	default:
		return ir.Other
	}
	if parts || slices.ContainsFunc(out.Args, func(x ir.Operand) bool { return x.Part != "" }) {
		return ir.Compute
	}
	op := arithmetic(d, m, out)
	results := len(out.Defs) == 1 || op == ir.Unpack || op == ir.Compare || op == ir.CompareWith ||
		op == ir.AddCarry || op == ir.SubBorrow
	if want := ir.Arity(op); op == ir.Other || !results || want > 0 && len(out.Args) != want {
		out.Rel, out.Logic, out.Variant, out.Space = ir.NoRel, ir.NoLogic, 0, ir.Generic
		return ir.Compute
	}
	return op
}

// arithmetic is the operation of an instruction that only computes; Other if it has no name.
func arithmetic(d *isa.Inst, m *isa.Meaning, out *ir.Inst) ir.Op {
	carries := d.Has(isa.CC) || m.Carry
	switch m.Operation {
	case isa.Copy:
		switch {
		case d.Vec > 1:
		case len(out.Defs) > 1 && len(out.Args) == 1:
			return ir.Unpack
		case len(out.Defs) == 1 && len(out.Args) > 1:
			return ir.Pack
		case len(out.Defs) == 1:
			return ir.Mov
		}
		return ir.Other
	case isa.ConvertAddress:
		out.Space = spaceOf(d.Space)
		if d.Has(isa.To) {
			return ir.FromGeneric
		}
		return ir.ToGeneric
	case isa.CompareWith:
		return comparison(d, out)
	case isa.Add:
		if carries {
			return ir.AddCarry
		}
	case isa.Sub:
		if carries {
			return ir.SubBorrow
		}
	case isa.AddCarry, isa.SubBorrow:
	default:
		if carries {
			return ir.Other
		}
	}
	return ops[m.Operation]
}

// A relation is what a comparison asks, and whether it holds for what is no number.
type relation struct {
	rel       ir.Rel
	unordered bool
}

var relations = map[string]relation{
	"eq": {ir.EQ, false}, "ne": {ir.NE, false}, "lt": {ir.LT, false}, "le": {ir.LE, false}, "gt": {ir.GT, false},
	"ge": {ir.GE, false},
	"lo": {ir.LT, false}, "ls": {ir.LE, false}, "hi": {ir.GT, false}, "hs": {ir.GE, false},
	"equ": {ir.EQ, true}, "neu": {ir.NE, true}, "ltu": {ir.LT, true}, "leu": {ir.LE, true}, "gtu": {ir.GT, true},
	"geu": {ir.GE, true},
}

func comparison(d *isa.Inst, out *ir.Inst) ir.Op {
	r := relations[d.Cmp]
	if !out.Type.Integer() && out.Type.Kind != ir.Float || r.rel == ir.NoRel {
		return ir.Other
	}
	out.Rel = r.rel
	if r.unordered {
		out.Variant |= ir.Unordered
	}
	if d.Bool == "" {
		return ir.Compare
	}
	out.Logic = map[string]ir.Logic{"and": ir.BothHold, "or": ir.OneHolds, "xor": ir.OnlyOneHolds}[d.Bool]
	return ir.CompareWith
}

// collectiveOrLater is the Op of matrix instructions and of asynchronous ones.
func collectiveOrLater(d *isa.Inst, m *isa.Meaning, out *ir.Inst) ir.Op {
	touches := len(m.Memory) > 0 || m.Reads || m.Writes
	switch {
	case d.Class == isa.Tensor && m.Threads == isa.Warp && !touches:
		return ir.Collective
	case d.Class == isa.Tensor && len(m.Memory) == 1 && m.Memory[0].Bytes > 0 && m.Memory[0].Read:
		return ir.Load
	case d.Class == isa.Tensor && len(m.Memory) == 1 && m.Memory[0].Bytes > 0:
		return ir.Store
	case d.Class == isa.Tensor:
		return ir.Other
	case m.Threads == isa.Cluster && !touches:
		return ir.Barrier
	case !touches && !m.Orders:
		return ir.Compute
	case !touches && len(out.Defs) == 0:
		return ir.Fence // what it waits for is what the copies were said to touch
	case len(m.Memory) > 1 && m.Memory[0].Write && !m.Memory[0].Read && m.Memory[1].Read && !m.Memory[1].Write:
		return ir.Copy
	}
	return ir.Other
}

var (
	roundings = map[string]ir.Rounding{"rn": ir.Nearest, "rz": ir.TowardZero, "rm": ir.Down, "rp": ir.Up,
		"rna": ir.NearestAway,
		"rs":  ir.Randomly, "rni": ir.NearestInteger, "rzi": ir.Truncate, "rmi": ir.Floor, "rpi": ir.Ceiling}
	orders = map[string]ir.Order{"volatile": ir.Volatile, "relaxed": ir.Relaxed, "acquire": ir.Acquire,
		"release": ir.Release,
		"acq_rel": ir.AcquireRelease, "sc": ir.SequentiallyConsistent, "mmio": ir.MemoryMapped}
	scopes = map[string]ir.Scope{"cta": ir.BlockScope, "cluster": ir.ClusterScope, "gpu": ir.DeviceScope,
		"gl":  ir.DeviceScope,
		"sys": ir.SystemScope}
	updates = map[string]ir.Update{"exch": ir.Exchange, "cas": ir.CompareExchange, "add": ir.Sum, "min": ir.Least,
		"max": ir.Greatest,
		"and": ir.Conjunction, "or": ir.Disjunction, "xor": ir.ExclusiveOr, "inc": ir.Increment, "dec": ir.Decrement}
	groups  = map[isa.Threads]ir.Group{isa.Block: ir.BlockGroup, isa.Cluster: ir.ClusterGroup}
	reaches = map[isa.Beyond]ir.Reach{isa.Textures: ir.Textures, isa.TensorMaps: ir.TensorMaps,
		isa.Devices: ir.Devices, isa.Grids: ir.Grids}
)

// attributes fills in what an instruction has beside its operation.
func attributes(out *ir.Inst, d *isa.Inst, m *isa.Meaning) {
	out.Round, out.Order, out.Scope, out.Reach = roundings[d.Rnd], orders[d.Sem], scopes[d.Scope], reaches[m.Beyond]
	for _, x := range [...]struct {
		flag isa.Flag
		is   ir.Variant
	}{{isa.Ftz, ir.Flushes}, {isa.NaN, ir.KeepsNaN}, {isa.Abs, ir.Magnitudes}, {isa.XorSign, ir.SignXor}} {
		if d.Has(x.flag) {
			out.Variant |= x.is
		}
	}
	switch out.Op {
	case ir.Atomic:
		out.Update = updates[d.Fn]
	case ir.FunnelLeft, ir.FunnelRight:
		if d.Mode2 == "wrap" {
			out.Variant |= ir.Wraps
		}
	case ir.Barrier:
		out.Barrier = ir.Meeting{Among: groups[m.Threads], Arrives: m.Barrier.Arrives, Waits: m.Barrier.Waits,
			Counted: m.Barrier.Counted}
	}
}

// spaceOf is the memory space of a modifier.
func spaceOf(s string) ir.Space {
	if s == "shared::cluster" {
		return ir.Cluster
	}
	s, _, _ = strings.Cut(s, "::")
	return map[string]ir.Space{"global": ir.Global, "shared": ir.Shared, "local": ir.Local, "const": ir.Const,
		"param": ir.Param}[s]
}

// memory fills in accesses and effects.
func (b *builder) memory(out *ir.Inst, d *isa.Inst, m *isa.Meaning, mems []*ptx.Addr) {
	if len(mems) < ir.Accesses(out.Op) {
		b.fail("%s: %d addresses", out.Name, len(mems))
		return
	}
	for _, x := range [...]struct {
		has bool
		is  ir.Effect
	}{{m.Orders, ir.Orders}, {m.Reads, ir.AnyRead}, {m.Writes || m.Lost, ir.AnyWrite}, {m.Agrees &&
		out.Op == ir.Collective, ir.WarpWide},
		{m.Agrees && out.Op == ir.Barrier, ir.BlockWide}} {
		if x.has {
			out.Effect |= x.is
		}
	}
	for i, addr := range mems {
		a := b.access(out, &m.Memory[i], addr)
		for _, c := range addr.Coords {
			out.Args = append(out.Args, b.convert(c, ptx.B32)...)
		}
		out.Mem = append(out.Mem, a)
	}
	if out.Op == ir.Load && len(out.Mem) > 0 {
		m := out.Mem[0]
		if d.Has(isa.Nc) || m.Space == ir.Const || m.Space == ir.Param && b.f.Kernel && m.Base.Kind == ir.Symbol &&
			b.params[m.Base.Name] {
			out.Effect |= ir.Fixed
		}
	}
}

// access is what an instruction does at one address.
func (b *builder) access(out *ir.Inst, m *isa.Access, addr *ptx.Addr) ir.Access {
	a := ir.Access{Space: spaceOf(m.Space), Read: m.Read, Write: m.Write, Off: addr.Off, Bytes: m.Bytes,
		Later: m.Later, Partly: m.Partly}
	if m.Tile != nil && len(out.Args) > 0 {
		a.Tile = &ir.Tile{Rows: m.Tile.Rows, Bytes: m.Tile.Bytes, Elem: m.Tile.Elem, Stride: len(out.Args) - 1}
	}
	base := b.convert(addr.Base, ptx.U64)
	if len(base) != 1 {
		b.fail("%s: the address is no single register", out.Name)
		return a
	}
	a.Base = base[0]
	if a.Base.Kind == ir.Symbol {
		a.Off += int64(a.Base.Bits)
		a.Base.Bits = 0
	}
	return a
}
