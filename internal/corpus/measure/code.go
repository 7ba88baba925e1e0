package measure

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/corpus"
	"holdfast/internal/footprint"
	"holdfast/internal/footprint/summarise"
	"holdfast/internal/softgpu"
	"holdfast/ptx"
)

// A code is the kernels of a module: what is foreseen of each.
type code struct {
	summaries map[string]*footprint.Summary
	digests   map[string]digest // of the kernels' text
}

func analyse(m *ptx.Module, text []byte) (*code, error) {
	list, err := summarise.Module(m)
	if err != nil {
		return nil, err
	}
	c := &code{map[string]*footprint.Summary{}, map[string]digest{}}
	for _, s := range list {
		c.summaries[s.Name] = s
	}
	for _, d := range m.Decls {
		if f, ok := d.(*ptx.Func); ok && f.Entry && f.Body != nil {
			c.digests[f.Name] = sha256.Sum256(text[f.Pos.Offset:f.Body.End.Offset])
		}
	}
	return c, nil
}

// A module is a module of an application, as both sides see it.
type module struct {
	*code
	m *corpus.Module
}

// foresee is a launch of s as footprints see it.
func (m *module) foresee(a *corpus.Application, l *corpus.Launch, s *footprint.Summary,
	allocs []footprint.Range) (*footprint.Launch, error) {
	kernels, globals := m.m.Kernels(), m.m.Globals()
	i := slices.IndexFunc(kernels, func(k softgpu.KernelInfo) bool { return k.Name == l.Kernel })
	if i < 0 {
		return nil, errors.New("the module has no such kernel")
	}
	params, err := l.Params(kernels[i].Params, a.Address)
	if err != nil {
		return nil, err
	}
	out := &footprint.Launch{Grid: l.Grid, Block: l.Block, Cluster: l.Cluster, Shared: l.Shared,
		Params: params, Allocs: allocs}
	at := a.Variables(m.m.Module)
	for _, g := range s.Globals {
		i := slices.IndexFunc(globals, func(x softgpu.Global) bool { return x.Name == g.Name })
		if i < 0 {
			return nil, fmt.Errorf("the module has no variable %s", g.Name)
		}
		out.Globals = append(out.Globals, footprint.Range{Lo: at.Lo + globals[i].Offset,
			Hi: at.Lo + globals[i].Offset + globals[i].Size})
	}
	return out, nil
}

// constants is where the .const variables lie.
func (m *module) constants(a *corpus.Application) []corpus.Range {
	at := a.Variables(m.m.Module)
	var out []corpus.Range
	for _, g := range m.m.Globals() { // by offset
		if g.Const {
			out = append(out, corpus.Range{Lo: at.Lo + g.Offset, Hi: at.Lo + g.Offset + g.Size})
		}
	}
	return out
}

// allocations is where the buffers of an application lie.
func allocations(a *corpus.Application) []footprint.Range {
	var out []footprint.Range
	for _, r := range a.Allocations() {
		out = append(out, footprint.Range(r))
	}
	return out
}

// natural lays out arguments whose parameters nobody knows as a compiler does: each at a multiple of its size.
func natural(a *corpus.Application, l *corpus.Launch) ([]footprint.Param, []byte) {
	var params []footprint.Param
	var out []byte
	for i, x := range l.Args {
		b := x.Encode(a.Address)
		align := 1
		for align < 8 && align < len(b) {
			align *= 2
		}
		out = append(out, make([]byte, -len(out)&(align-1))...)
		params = append(params, footprint.Param{Name: fmt.Sprint(i), Off: len(out), Size: len(b), Align: align})
		out = append(out, b...)
	}
	return params, out
}
