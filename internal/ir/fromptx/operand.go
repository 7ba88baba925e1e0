package fromptx

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"holdfast/internal/ir"
	"holdfast/internal/isa"
	"holdfast/ptx"
)

// typeOf is the plain type of a PTX one.
func typeOf(t ptx.Type) ir.Type {
	w := uint16(isa.Bits(t))
	switch t {
	case ptx.TypeNone:
		return ir.Type{}
	case ptx.Pred:
		return ir.Type{Kind: ir.Pred, Width: 1}
	case ptx.B8, ptx.B16, ptx.B32, ptx.B64, ptx.B128:
		return ir.Type{Kind: ir.Bits, Width: w}
	case ptx.U8, ptx.U16, ptx.U32, ptx.U64:
		return ir.Type{Kind: ir.Unsigned, Width: w}
	case ptx.S8, ptx.S16, ptx.S32, ptx.S64:
		return ir.Type{Kind: ir.Signed, Width: w}
	case ptx.F16, ptx.F32, ptx.F64:
		return ir.Type{Kind: ir.Float, Width: w}
	case ptx.BF16:
		return ir.Type{Kind: ir.Brain, Width: w}
	case ptx.F16x2:
		return ir.Type{Kind: ir.HalfPair, Width: w}
	case ptx.BF16x2:
		return ir.Type{Kind: ir.BrainPair, Width: w}
	}
	return ir.Type{Kind: ir.Packed, Width: w}
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
func (b *builder) regOf(r register) ir.ValID {
	if v, ok := b.regs[r]; ok {
		return v
	}
	v := ir.ValID(len(b.f.Vals))
	name := cmp.Or(r.v.Name, "_") // a parameter without a name
	if r.index >= 0 {
		name += fmt.Sprint(r.index)
	}
	if r.comp >= 0 {
		name += "." + "xyzwabcd"[r.comp:r.comp+1]
	}
	b.regs[r] = v
	b.f.Vals = append(b.f.Vals, ir.Val{Name: name, Type: typeOf(r.v.Type)})
	return v
}

// components are the values of a register: of a vector, one for each component.
func (b *builder) components(r register) []ir.ValID {
	if r.v.Vec <= 1 || r.v.Vec > 8 {
		return []ir.ValID{b.regOf(r)}
	}
	var list []ir.ValID
	for i := range r.v.Vec {
		r.comp = i
		list = append(list, b.regOf(r))
	}
	return list
}

// convert gives the operands that one operand of PTX stands for; t is the type that a
// constant takes.
func (b *builder) convert(x ptx.Operand, t ptx.Type) []ir.Operand {
	switch x := x.(type) {
	case *ptx.Imm:
		return []ir.Operand{{Kind: ir.Constant, Bits: constant(x, t)}}
	case *ptx.Ref:
		return b.ref(x)
	case *ptx.Sink:
		return []ir.Operand{{}}
	case *ptx.Vector:
		var list []ir.Operand
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
				list[i].Mod ^= ir.Complement
			} else if list[i].Kind == ir.Constant && !isa.Float(t) {
				list[i].Bits = -list[i].Bits
			} else {
				list[i].Mod ^= ir.Negated
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

func (b *builder) ref(x *ptx.Ref) []ir.Operand {
	if x.Name == "WARP_SZ" {
		return []ir.Operand{ir.Int(32)}
	}
	if strings.Contains(x.Comp, "::") { // the lexer takes it for a qualifier
		b.fail("%s has no part %s", x.Name, x.Comp)
		return []ir.Operand{{}}
	}
	if r, ok := b.register(x.Name); ok {
		if r.v.Vec > 1 && r.v.Vec <= 8 {
			if i, ok := components[x.Comp]; ok && i < r.v.Vec {
				r.comp = i
				return []ir.Operand{ir.Of(b.regOf(r))}
			}
			if x.Comp != "" {
				b.fail("%s has no component %s", x.Name, x.Comp)
			}
			var list []ir.Operand
			for _, id := range b.components(r) {
				list = append(list, ir.Of(id))
			}
			return list
		}
		o := ir.Of(b.regOf(r))
		o.Part = x.Comp
		return []ir.Operand{o}
	}
	if ptx.SpecialRegister(x.Name) && b.variable(x.Name) == nil {
		name := strings.TrimPrefix(x.Name, "%")
		if x.Comp != "" {
			name += "." + x.Comp
		}
		return []ir.Operand{{Kind: ir.Special, Reg: b.special(name)}}
	}
	return b.symbol(x.Name, 0)
}

// special is a special register: one for all functions of the module. A component that it does not have, or the whole
// of one that has components, may be anything.
func (b *builder) special(name string) *ir.Register {
	if r := b.specials[name]; r != nil {
		return r
	}
	r := &ir.Register{Name: name, Type: ir.Type{Kind: ir.Unsigned, Width: 32}, Same: ir.Varies, From: ir.FromMachine}
	if s := isa.SpecialNamed(name); s != nil {
		r.Is, r.Dim, r.Type, r.Fixed = ir.Coordinate(s.Is), uint8(s.Dim), typeOf(s.Type), s.Fixed
		r.Same, r.From, r.Max = ir.Level(s.Same), ir.Source(s.From), int64(s.Max)
	} else if base, _, _ := strings.Cut(name, "."); isa.SpecialNamed(base) != nil {
		r.From = ir.Source(isa.SpecialNamed(base).From)
	} else if s := isa.SpecialNamed(base + ".x"); s != nil {
		r.From = ir.Source(s.From)
	}
	b.specials[name] = r
	return r
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
func (b *builder) symbol(name string, off int64) []ir.Operand {
	o := ir.Operand{Kind: ir.Symbol, Name: name, Bits: uint64(off)}
	v := b.variable(name)
	if v == nil {
		if !b.funcs[name] && !b.marks(name) {
			b.fail("%s is not declared", name)
		}
		return []ir.Operand{o}
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
		b.f.Vars = append(b.f.Vars, ir.Var{Name: given, Space: space(v.Space), Size: size, Align: align})
	}
	o.Name = given
	return []ir.Operand{o}
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

func space(s ptx.Space) ir.Space {
	switch s {
	case ptx.SpaceGlobal, ptx.SpaceTex:
		return ir.Global
	case ptx.SpaceShared:
		return ir.Shared
	case ptx.SpaceLocal:
		return ir.Local
	case ptx.SpaceConst:
		return ir.Const
	case ptx.SpaceParam:
		return ir.Param
	}
	return ir.Generic
}
