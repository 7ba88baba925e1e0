package verify

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/ir"
)

// A judge looks for what a kernel's footprint does not show: calls that no recording needs, and what the analysis
// takes on trust because compilers make it so. Whoever writes PTX by hand need not.
type judge struct {
	m     *ir.Module
	funcs map[string]*ir.Func
}

// newJudge is for modules whose names have been checked.
func newJudge(m *ir.Module) *judge {
	j := &judge{m: m, funcs: map[string]*ir.Func{}}
	for _, f := range m.Funcs {
		j.funcs[f.Name] = f
	}
	return j
}

// judge says why all launches of a kernel are refused, and why none of them is proven; "" if there is no reason.
func (j *judge) judge(name string) (refused, doubt string) {
	unsure := func(format string, args ...any) {
		if doubt == "" {
			doubt = fmt.Sprintf(format, args...)
		}
	}
	reached := []*ir.Func{j.funcs[name]}
	for i := 0; i < len(reached); i++ {
		for _, in := range instructions(reached[i]) {
			if in.Reach == ir.Textures {
				refused = "it uses textures or surfaces, which a recording cannot have"
			}
			if in.Op != ir.Call || len(in.Args) == 0 || in.Args[0].Kind != ir.Symbol {
				continue // an indirect call has no footprint
			}
			callee := in.Args[0].Name
			if outside(callee) {
				refused = fmt.Sprintf("it calls %s", callee)
			}
			g := j.funcs[callee]
			if g == nil {
				continue
			}
			switch {
			case j.m.NoReturn[callee] || callee == "__assertfail":
				// The analysis ends there: nothing is said of what such a function does before it ends the launch.
				unsure("it calls %s, of which its PTX says that it never comes back", callee)
			case strings.HasPrefix(callee, "__internal_"):
				unsure("it calls %s, whose reads of tables are taken on trust", callee)
			}
			if !slices.Contains(reached, g) {
				reached = append(reached, g)
			}
		}
	}
	if newTracer(reached).escapes() {
		unsure("it makes addresses in device memory of addresses of shared, local or parameter memory")
	}
	return refused, doubt
}

// outside reports whether a function is answered by the driver or the host, or launches from the device.
func outside(callee string) bool {
	switch callee {
	case "vprintf", "malloc", "free":
		return true
	}
	return strings.HasPrefix(callee, "cudaLaunchDevice") || strings.HasPrefix(callee, "cudaGetParameterBuffer") ||
		strings.HasPrefix(callee, "cudaGraphLaunch") || strings.HasPrefix(callee, "cudaDeviceSynchronize")
}

func instructions(f *ir.Func) (list []*ir.Inst) {
	for _, b := range f.Blocks {
		list = append(list, b.Insts...)
	}
	return list
}

// A tracer follows addresses of shared, local, parameter and constant memory through registers. A footprint takes such
// an address, and whatever is added to it, for one of that memory, so an access of device memory by one is in no
// footprint. It looks at registers, not at what they hold at some place, and takes all memory for one.
type tracer struct {
	funcs  []*ir.Func
	marked map[*ir.Func][]bool // registers that may hold such an address
	stored bool                // one may have been stored, or passed to a function
}

func newTracer(funcs []*ir.Func) *tracer {
	t := &tracer{funcs: funcs, marked: map[*ir.Func][]bool{}}
	for _, f := range funcs {
		t.marked[f] = make([]bool, len(f.Vals))
	}
	return t
}

// escapes reports whether any access of device memory may be by such an address.
func (t *tracer) escapes() bool {
	for changed := true; changed; {
		changed = false
		for _, f := range t.funcs {
			for _, in := range instructions(f) {
				changed = t.step(f, in) || changed
			}
		}
	}
	for _, f := range t.funcs {
		for _, in := range instructions(f) {
			for _, m := range in.Mem {
				if (m.Space == ir.Generic || m.Space == ir.Global) && in.Op != ir.Prefetch && t.holds(f, &m.Base) {
					return true
				}
			}
		}
	}
	return false
}

// step marks what an instruction makes; it reports whether anything is new.
func (t *tracer) step(f *ir.Func, in *ir.Inst) (changed bool) {
	from := in.Op == ir.ToGeneric && in.Space != ir.Global
	for i := range in.Args {
		from = from || in.Op != ir.Call && t.holds(f, &in.Args[i]) ||
			in.Op == ir.Call && i > 0 && t.holds(f, &in.Args[i])
	}
	for i := range in.Else {
		from = from || t.holds(f, &in.Else[i])
	}
	if from && !t.stored && (len(in.Mem) > 0 || in.Op == ir.Call) {
		t.stored, changed = true, true
	}
	from = from || t.stored && (len(in.Mem) > 0 || in.Op == ir.Call)
	for _, d := range in.Defs {
		if from && d != ir.None && f.Vals[d].Type.Kind != ir.Pred && !t.marked[f][d] {
			t.marked[f][d], changed = true, true
		}
	}
	return changed
}

// holds reports whether an operand may be such an address.
func (t *tracer) holds(f *ir.Func, x *ir.Operand) bool {
	switch x.Kind {
	case ir.Value:
		return t.marked[f][x.Val]
	case ir.Symbol:
		i := slices.IndexFunc(f.Vars, func(v ir.Var) bool { return v.Name == x.Name })
		return i < 0 || f.Vars[i].Space != ir.Global
	}
	return false
}
