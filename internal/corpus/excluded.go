package corpus

import (
	"slices"
	"strings"

	"holdfast/ptx"
)

// Excluded says why no launch of a kernel is idempotent by definition, whatever a run of it shows; "" = nothing
// excludes it. What excludes is found in the text of the kernel and of the functions that it may call: it talks to the
// host or to other devices, looks at clocks, launches kernels, may overlap with the launch before or
// after it, or calls what is not in its module. Launches whose blocks wait for one another are marked in the corpus.
func (m *Module) Excluded(l *Launch) string {
	if l.Spin {
		return "blocks wait for one another"
	}
	s := &scan{funcs: map[string]*ptx.Func{}, seen: map[string]bool{}}
	for _, d := range m.Source.Decls {
		if f, ok := d.(*ptx.Func); ok && (s.funcs[f.Name] == nil || f.Body != nil) {
			s.funcs[f.Name] = f
		}
	}
	return s.function(l.Kernel)
}

// A scan looks for what excludes a kernel.
type scan struct {
	funcs map[string]*ptx.Func
	seen  map[string]bool
}

func (s *scan) function(name string) string {
	if s.seen[name] {
		return ""
	}
	s.seen[name] = true
	f := s.funcs[name]
	switch {
	case f != nil && f.Body != nil:
		return s.block(f.Body)
	case name == "vprintf" || name == "__assertfail" || name == "malloc" || name == "free":
		return "printf, assert or malloc"
	case strings.HasPrefix(name, "cudaLaunchDevice") || strings.HasPrefix(name, "cudaGetParameterBuffer"):
		return "launches kernels"
	}
	return "calls what is not in the module"
}

func (s *scan) block(b *ptx.Block) string {
	for _, st := range b.Stmts {
		why := ""
		switch st := st.(type) {
		case *ptx.Block:
			why = s.block(st)
		case *ptx.Inst:
			why = s.inst(st)
		}
		if why != "" {
			return why
		}
	}
	return ""
}

var clocks = []string{"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}

func (s *scan) inst(in *ptx.Inst) string {
	switch {
	case in.Call != nil:
		callee, ok := in.Call.Callee.(*ptx.Ref)
		if !ok || s.funcs[callee.Name] == nil {
			return "calls what is not in the module" // through a register
		}
		return s.function(callee.Name)
	case in.Op == "griddepcontrol":
		return "may overlap with another launch"
	case (in.Op == "st" || in.Op == "atom" || in.Op == "red" || in.Op == "multimem") && slices.Contains(in.Mods, "sys"):
		return "writes with the scope of the system"
	}
	for _, x := range in.Args {
		if r, ok := x.(*ptx.Ref); ok && slices.Contains(clocks, r.Name) {
			return "looks at a clock"
		}
	}
	return ""
}
