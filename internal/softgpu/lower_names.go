package softgpu

import (
	"strconv"
	"strings"

	"holdfast/ptx"
)

// names says what a name stands for at the place that is being translated.
type names struct {
	*layout
	m     *Module
	scope *scope
}

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

// lookup finds what a name stands for in the function; nil = not local to it.
func (ns *names) lookup(name string) *entity {
	for s := ns.scope; s != nil; s = s.parent {
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
				e = ns.vectorReg(set.decl)
			} else {
				e = ns.planned(regKey{set.decl, n}, set.typ)
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

func (ns *names) label(name string, pos ptx.Pos, from *scope) *label {
	for s := from; s != nil; s = s.parent {
		if lab := s.labels[name]; lab != nil {
			return lab
		}
	}
	ns.fail(pos, "no label %s", name)
	return nil
}

func (ns *names) declare(v *ptx.Var) {
	switch v.Space {
	case ptx.SpaceReg:
		switch {
		case v.Count > 0:
			ns.vectors = ns.vectors || v.Vec > 1
			ns.scope.names[v.Name] = &entity{kind: entRegSet, typ: v.Type, count: v.Count, decl: v}
		case v.Vec > 1:
			ns.scope.names[v.Name] = ns.vectorReg(v)
		default:
			ns.scope.names[v.Name] = ns.planned(regKey{v, -1}, v.Type)
		}
	case ptx.SpaceParam:
		for i := range max(1, v.Count) {
			name := v.Name
			one := *v
			if v.Count > 0 {
				name += strconv.Itoa(i)
				one.Count = 0
			}
			area := ns.paramArea(&one, ns.fn)
			ns.scope.names[name] = &entity{kind: entParam, typ: v.Type, area: area, size: area.size}
		}
	case ptx.SpaceShared:
		ns.scope.names[v.Name] = &entity{kind: entShared, typ: v.Type, off: ns.placeShared(v)}
	case ptx.SpaceLocal:
		size, align, open, err := varSize(v)
		if err != nil || open || size > 1<<20 {
			ns.fail(v.Pos, "local variable %s: size is not known or too large", v.Name)
		}
		off := alignUp(ns.fn.localBytes, uint32(align))
		ns.fn.localBytes = off + uint32(size)
		ns.scope.names[v.Name] = &entity{kind: entLocal, typ: v.Type, off: off, fn: ns.fn}
	case ptx.SpaceGlobal, ptx.SpaceConst:
		ns.scope.names[v.Name] = &entity{kind: entGlobal, typ: v.Type, decl: v}
	default:
		ns.fail(v.Pos, "%s: variable of this state space in a function", v.Name)
	}
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
func (ns *names) spread(x ptx.Operand) ptx.Operand {
	if !ns.vectors {
		return x
	}
	switch x := x.(type) {
	case *ptx.Ref:
		e := ns.lookup(x.Name)
		if e == nil || e.comps == nil || x.Comp != "" {
			return x
		}
		v := &ptx.Vector{Pos: x.Pos}
		for k := range e.comps {
			v.Elems = append(v.Elems, &ptx.Ref{Pos: x.Pos, Name: x.Name, Comp: componentNames[k]})
		}
		return v
	case *ptx.Pair:
		return &ptx.Pair{Pos: x.Pos, A: ns.spread(x.A), B: x.B}
	case *ptx.Addr:
		if len(x.Coords) == 0 {
			return x
		}
		a := *x
		a.Coords = nil
		for _, c := range x.Coords {
			a.Coords = append(a.Coords, ns.spread(c))
		}
		return &a
	}
	return x
}
