package summarise

import (
	"slices"

	"holdfast/internal/footprint"
	"holdfast/internal/ir"
	"holdfast/internal/ir/fromptx"
	"holdfast/ptx"
)

// maxAccesses bounds how many accesses a kernel may have.
const maxAccesses = 1 << 16

// Module analyses every kernel of a module. A kernel that cannot be analysed still has
// a summary, which says so.
func Module(m *ptx.Module) ([]*footprint.Summary, error) {
	mod := fromptx.Module(m)
	calls := newCallees(mod)
	calls.inliner = newInliner(calls)
	var list []*footprint.Summary
	for _, f := range mod.Funcs {
		if f.Kernel {
			list = append(list, kernelOf(f, calls))
		}
	}
	return list, nil
}

// kernelOf is the summary of one kernel.
func kernelOf(f *ir.Func, calls *callees) *footprint.Summary {
	s := &footprint.Summary{Name: f.Name, MaxTid: f.Limits.MaxThread, Cluster: f.Limits.Cluster}
	if f.Err != nil {
		s.Refuse(footprint.UnknownInstruction, f.Pos)
		s.IsOpaque = true
		return s
	}
	for _, v := range f.Vars {
		if v.Param && v.Space == ir.Param {
			s.Params = append(s.Params, footprint.Param{Name: v.Name, Off: v.Off, Size: v.Size, Align: v.Align})
			s.ParamBytes = max(s.ParamBytes, v.Off+v.Size)
		}
	}
	calls.inliner.Inline(f)
	ir.Promote(f, calls.inliner.Module)
	calls.cut(f)
	if err := ir.Analyse(f, false); err != nil {
		s.Refuse(footprint.TooLarge, f.Pos)
		s.IsOpaque = true
		return s
	}
	analyse(s, f, calls)
	return s
}

func analyse(s *footprint.Summary, f *ir.Func, calls *callees) {
	effects(s, f, calls)
	vs := build(f, s.MaxTid)
	list := append(newAccesses(vs).collect(), vs.tableReads(calls)...)
	if len(list) > maxAccesses {
		s.Refuse(footprint.TooLarge, 0)
		s.IsOpaque = true
		return
	}
	vs.hide(list)
	coverage{vs}.cover(list)
	c := newCompiler(vs, false)
	c.compile(list)
	if c.circle {
		s.Refuse(footprint.TooLarge, 0)
		s.IsOpaque = true
		return
	}
	s.Code = *c.p
	names := c.names
	if c.loaded {
		t := newCompiler(vs, true)
		t.names = c.names
		t.compile(list)
		if !t.circle {
			s.KnowingCode, s.HasTables, names = *t.p, true, t.names
		}
	}
	irreducible := slices.ContainsFunc(f.Loops.Loops, func(l *ir.Loop) bool { return l.Irreducible })
	if !irreducible { // else nobody knows what comes before what
		s.Path = paths{vs}.path(list)
	}
	s.Code.Prepare(&s.Path)
	s.KnowingCode.Prepare(&s.Path)
	s.Loops = len(f.Loops.Loops)
	s.Globals = names
	classify(s, list)
}

// classify says for which launches the kernel is idempotent.
func classify(s *footprint.Summary, list []*access) {
	s.Class = footprint.Always
	for _, a := range list {
		if a.kind != footprint.IsRead {
			s.Class = footprint.Conditionally
		}
	}
	if s.Refused != footprint.NoCause {
		s.Class = footprint.ClassUnknown
		return
	}
	for _, a := range list {
		if a.kind == footprint.IsUpdate && a.cover == 0 && s.Class != footprint.Never {
			s.Class, s.Cause, s.At = footprint.Never, footprint.ReadModifyWrite, a.pos
		}
	}
}
