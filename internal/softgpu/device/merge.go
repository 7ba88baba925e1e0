package device

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"holdfast/ptx"
)

// A unit is one module among those that are linked.
type unit struct {
	name string
	m    *ptx.Module
}

// merge makes one module of several, as a linker does (PTX ISA 9.0, section 11.6): definitions that are visible, weak
// or common are known to all units, the others to their own. It takes the modules over. Debug information is left out,
// since it names lines of files that are not there any more.
func merge(units []*unit) (*ptx.Module, error) {
	l := &linker{defined: make(map[string]definition), taken: make(map[string]bool)}
	for _, u := range units {
		if err := l.define(u); err != nil {
			return nil, err
		}
	}
	out := &ptx.Module{File: sourceName}
	declared := make(map[string]bool) // what no unit defines
	for i, u := range units {
		if i > 0 && u.m.AddressSize != out.AddressSize {
			return nil, fmt.Errorf("%s has %d-bit addresses, %s has %d",
				u.name, u.m.AddressSize, units[0].name, out.AddressSize)
		}
		out.AddressSize = u.m.AddressSize
		if v := u.m.Version; v.Major > out.Version.Major ||
			v.Major == out.Version.Major && v.Minor > out.Version.Minor {
			out.Version = v
		}
		if i == 0 || newer(u.m.Target, out.Target) {
			out.Target = u.m.Target
		}
		decls, err := l.link(u, declared)
		if err != nil {
			return nil, err
		}
		out.Decls = append(out.Decls, decls...)
	}
	return out, nil
}

// newer compares the architectures of two .target directives.
func newer(a, b []string) bool {
	number := func(t []string) int {
		n, _ := strconv.Atoi(strings.TrimRight(strings.TrimPrefix(t[0], "sm_"), "af"))
		return n
	}
	return len(a) > 0 && (len(b) == 0 || number(a) > number(b))
}

// A definition is what a name known to all units stands for.
type definition struct {
	decl ptx.Decl
	unit *unit
	weak bool
}

type linker struct {
	defined map[string]definition
	taken   map[string]bool // names at module scope, of any unit
}

// symbol is a declaration's name and linkage, and whether it is a definition.
func symbol(d ptx.Decl) (name string, link ptx.Linkage, defines bool) {
	switch d := d.(type) {
	case *ptx.Var:
		return d.Name, d.Link, d.Link != ptx.LinkExtern
	case *ptx.Func:
		if d.Entry && d.Body != nil {
			return d.Name, ptx.LinkVisible, true // kernels are found by their name whatever they are
		}
		return d.Name, d.Link, d.Body != nil
	case *ptx.Alias:
		return d.Name, ptx.LinkVisible, true
	}
	return "", ptx.LinkNone, false
}

func (l *linker) define(u *unit) error {
	for _, d := range u.m.Decls {
		name, link, defines := symbol(d)
		if name == "" {
			continue
		}
		l.taken[name] = true
		if !defines || link == ptx.LinkNone {
			continue
		}
		weak := link == ptx.LinkWeak || link == ptx.LinkCommon
		old, found := l.defined[name]
		switch {
		case !found || old.weak && !weak:
			l.defined[name] = definition{d, u, weak}
		case !weak && !old.weak:
			return fmt.Errorf("%s is defined in %s and in %s", name, old.unit.name, u.name)
		}
	}
	return nil
}

// link is what of a unit goes into the result, with its own names made unlike those of the others.
func (l *linker) link(u *unit, declared map[string]bool) ([]ptx.Decl, error) {
	own := make(map[string]bool)
	for _, d := range u.m.Decls {
		if name, link, defines := symbol(d); defines && link == ptx.LinkNone {
			own[name] = true
		}
	}
	r := renamer{to: make(map[string]string)}
	for name := range own {
		if l.elsewhere(name) {
			r.to[name] = l.fresh(name)
		}
	}
	var out []ptx.Decl
	for _, d := range u.m.Decls {
		name, _, defines := symbol(d)
		switch d := d.(type) {
		case *ptx.Section, *ptx.File:
			continue
		case *ptx.Var, *ptx.Func, *ptx.Alias:
			_, global := l.defined[name]
			switch {
			case own[name]: // with the declarations before it
			case defines && l.defined[name].decl != d, !defines && global:
				continue // another one counts
			case !defines && declared[name]:
				continue
			case !defines:
				if v, ok := d.(*ptx.Var); ok && v.Space != ptx.SpaceShared {
					return nil, fmt.Errorf("%s:%d: %s is not defined in any of the modules", u.name, v.Pos.Line, name)
				}
				declared[name] = true
			}
		}
		r.decl(d)
		out = append(out, d)
	}
	return out, nil
}

// elsewhere reports whether a name that one unit keeps to itself is that of something in the result already. The first
// unit keeps its names.
func (l *linker) elsewhere(name string) bool {
	_, global := l.defined[name]
	if global || l.taken[ownMark+name] {
		return true
	}
	l.taken[ownMark+name] = true
	return false
}

// ownMark sets names in use by one unit apart from names in the table; no PTX name begins so.
const ownMark = "="

func (l *linker) fresh(name string) string {
	for i := 2; ; i++ {
		if s := name + "$" + strconv.Itoa(i); !l.taken[s] {
			l.taken[s] = true
			return s
		}
	}
}

// A renamer replaces names of module scope where nothing nearer has the same name.
type renamer struct {
	to     map[string]string
	nearer []map[string]bool
}

func (r *renamer) name(p *string) {
	to, ok := r.to[*p]
	if ok && !slices.ContainsFunc(r.nearer, func(s map[string]bool) bool { return s[*p] }) {
		*p = to
	}
}

func (r *renamer) decl(d ptx.Decl) {
	switch d := d.(type) {
	case *ptx.Var:
		r.name(&d.Name)
		r.init(d.Init)
	case *ptx.Alias:
		r.name(&d.Name)
		r.name(&d.Aliasee)
	case *ptx.Func:
		r.name(&d.Name)
		near := make(map[string]bool)
		for _, v := range slices.Concat(d.Ret, d.Params) {
			near[v.Name] = true
		}
		r.nearer = append(r.nearer, near)
		if d.Body != nil {
			r.block(d.Body)
		}
		r.nearer = r.nearer[:len(r.nearer)-1]
	}
}

func (r *renamer) block(b *ptx.Block) {
	near := make(map[string]bool)
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *ptx.Label:
			near[s.Name] = true
		case *ptx.BranchTargets:
			near[s.Name] = true
		case *ptx.CallTargets:
			near[s.Name] = true
		case *ptx.CallPrototype:
			near[s.Name] = true
		case *ptx.VarStmt:
			for _, v := range s.Vars {
				near[v.Name] = true
			}
		}
	}
	r.nearer = append(r.nearer, near)
	b.Stmts = slices.DeleteFunc(b.Stmts, func(s ptx.Stmt) bool {
		switch s := s.(type) {
		case *ptx.Loc, *ptx.Section, *ptx.File:
			return true
		case *ptx.Block:
			r.block(s)
		case *ptx.VarStmt:
			for _, v := range s.Vars {
				r.init(v.Init)
			}
		case *ptx.CallTargets:
			for i := range s.Funcs {
				r.name(&s.Funcs[i])
			}
		case *ptx.Inst:
			r.operands(s.Args)
			if k := s.Call; k != nil {
				r.operands(k.Ret)
				r.operand(k.Callee)
				r.operands(k.Params)
			}
		}
		return false
	})
	r.nearer = r.nearer[:len(r.nearer)-1]
}

func (r *renamer) operands(list []ptx.Operand) {
	for _, o := range list {
		r.operand(o)
	}
}

func (r *renamer) operand(o ptx.Operand) {
	switch o := o.(type) {
	case *ptx.Ref:
		r.name(&o.Name)
	case *ptx.Vector:
		r.operands(o.Elems)
	case *ptx.Addr:
		r.operand(o.Base)
		r.operands(o.Coords)
	case *ptx.Neg:
		r.operand(o.X)
	case *ptx.Pair:
		r.operand(o.A)
		r.operand(o.B)
	case *ptx.Generic:
		r.name(&o.Name)
	case *ptx.Index:
		r.name(&o.Name)
	case *ptx.Mask:
		r.name(&o.X.Name)
	}
}

func (r *renamer) init(in *ptx.Init) {
	if in == nil || in.Field != "" {
		return
	}
	for _, x := range in.List {
		r.init(x)
	}
	if in.Value != nil {
		r.operand(in.Value)
	}
}
