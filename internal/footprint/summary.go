package footprint

import (
	"slices"

	"holdfast/internal/ir"
	"holdfast/internal/ir/fromptx"
	"holdfast/ptx"
)

// A Summary is all that is known of a kernel before it is launched. It does not change, and
// may be used by several goroutines at once.
type Summary struct {
	Name    string
	Params  []Param
	Class   Class
	Cause   Cause    // why not Always
	At      int      // line of the source that is the cause
	Globals []Global // variables in global memory that it may access; Launch.Globals says where they are

	refused    Cause // why no instance is judged
	opaque     bool  // nothing is known of what it accesses
	reads      bool  // there are tables
	paramBytes int
	prog       program

	// An instruction that is not understood may read or write anything.
	guessReads, guessWrites bool
	maxTid                  [3]int64
	cluster                 [3]uint32
	refusedAt               int
	path                    path
	loops                   int
	tables                  program // prog again, for launches that know what memory holds (table.go)
}

// maxAccesses bounds how many accesses a kernel may have.
const maxAccesses = 1 << 16

// Summarise analyses every kernel of a module. A kernel that cannot be analysed still has
// a summary, which says so.
func Summarise(m *ptx.Module) ([]*Summary, error) {
	mod := fromptx.Module(m)
	calls := newCallees(mod)
	calls.inliner = newInliner(calls)
	var list []*Summary
	for _, f := range mod.Funcs {
		if f.Kernel {
			list = append(list, summarise(f, calls))
		}
	}
	return list, nil
}

// Opaque is the summary of a kernel without PTX: every launch may read and write the
// allocations that its parameters point into.
func Opaque(name string, params []Param) *Summary {
	s := &Summary{Name: name, Params: slices.Clone(params), Class: ClassUnknown}
	s.refuse(NoCode, 0)
	s.opaque = true
	return s
}

func (s *Summary) refuse(c Cause, at int) {
	if s.refused == NoCause {
		s.refused, s.refusedAt = c, at
		s.Cause, s.At = c, at
	}
}

func summarise(f *ir.Func, calls *callees) *Summary {
	s := &Summary{Name: f.Name, maxTid: f.Limits.MaxThread, cluster: f.Limits.Cluster}
	if f.Err != nil {
		s.refuse(UnknownInstruction, f.Pos)
		s.opaque = true
		return s
	}
	for _, v := range f.Vars {
		if v.Param && v.Space == ir.Param {
			s.Params = append(s.Params, Param{v.Name, v.Off, v.Size, v.Align})
			s.paramBytes = max(s.paramBytes, v.Off+v.Size)
		}
	}
	calls.inliner.Inline(f)
	ir.Promote(f, calls.inliner.Module)
	calls.cut(f)
	if err := ir.Analyse(f, false); err != nil {
		s.refuse(TooLarge, f.Pos)
		s.opaque = true
		return s
	}
	s.analyse(f, calls)
	return s
}

func (s *Summary) analyse(f *ir.Func, calls *callees) {
	s.effects(f, calls)
	k := build(f, s.maxTid)
	list := append(k.collect(), k.tableReads(calls)...)
	if len(list) > maxAccesses {
		s.refuse(TooLarge, 0)
		s.opaque = true
		return
	}
	k.hide(list)
	k.cover(list)
	c := newCompiler(k, false)
	c.compile(list)
	if c.circle {
		s.refuse(TooLarge, 0)
		s.opaque = true
		return
	}
	s.prog = *c.p
	names := c.names
	if c.loaded {
		t := newCompiler(k, true)
		t.names = c.names
		t.compile(list)
		if !t.circle {
			s.tables, s.reads, names = *t.p, true, t.names
		}
	}
	irreducible := slices.ContainsFunc(f.Loops.Loops, func(l *ir.Loop) bool { return l.Irreducible })
	if !irreducible { // else nobody knows what comes before what
		s.path = k.path(list)
	}
	s.prog.prepare(&s.path)
	s.tables.prepare(&s.path)
	s.loops = len(f.Loops.Loops)
	s.Globals = names
	s.classify(list)
}

// classify says for which launches the kernel is idempotent.
func (s *Summary) classify(list []*access) {
	s.Class = Always
	for _, a := range list {
		if a.kind != isRead {
			s.Class = Conditionally
		}
	}
	if s.refused != NoCause {
		s.Class = ClassUnknown
		return
	}
	for _, a := range list {
		if a.kind == isUpdate && a.cover == 0 && s.Class != Never {
			s.Class, s.Cause, s.At = Never, ReadModifyWrite, a.pos
		}
	}
}
