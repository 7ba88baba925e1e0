package recorder

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/fatbin"
	"holdfast/internal/recording"
	"holdfast/internal/tap"
	"holdfast/internal/trace"
)

// A candidate is an image in a module that may be the one that kernels ran from.
type candidate struct {
	kind  string
	arch  int
	exact bool // for this architecture only: preferred
	b     []byte
	cubin *fatbin.Cubin
}

// candidates are the images of a module that a GPU of that architecture can run, the one that the driver prefers first.
func candidates(b []byte, kind uint32, arch int) ([]*candidate, error) {
	var out []*candidate
	var failed error
	add := func(b []byte, isPTX bool, arch int) {
		if isPTX {
			text := bytes.TrimRight(b, "\x00")
			out = append(out, &candidate{kind: recording.PTX, arch: cmp.Or(arch, int(tap.Target(text))), b: text})
			return
		}
		c, err := fatbin.OpenCubin(b)
		if err != nil {
			failed = errors.Join(failed, err)
			return
		}
		out = append(out, &candidate{kind: recording.Cubin, arch: c.Arch, exact: c.Specific, b: b, cubin: c})
	}
	switch kind {
	case trace.CodePTX:
		add(b, true, 0)
	case trace.CodeCubin:
		add(b, false, 0)
	case trace.CodeFatbin:
		f, err := fatbin.Open(b)
		if err != nil {
			return nil, err
		}
		for _, e := range f.Entries {
			runs := e.Kind == fatbin.PTX && e.Arch <= arch || e.Kind == fatbin.ELF && e.Arch/10 == arch/10 &&
				e.Arch <= arch
			if !runs || e.Specific && e.Arch != arch {
				continue
			}
			b, err := e.Data()
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			add(b, e.Kind == fatbin.PTX, e.Arch)
		}
	default:
		return nil, errors.New("it is neither PTX, cubin nor fat binary")
	}
	if len(out) == 0 {
		return nil, errors.Join(fmt.Errorf("it has no code for sm_%d", arch), failed)
	}
	rank := func(c *candidate) int {
		n := 2 * c.arch
		if c.exact {
			n++
		}
		if c.kind == recording.Cubin {
			n += 1 << 20
		}
		return -n
	}
	slices.SortStableFunc(out, func(a, b *candidate) int { return rank(a) - rank(b) })
	return out, nil
}

// has reports whether the image has an entry of that name.
func (c *candidate) has(kernel string) bool {
	if c.cubin == nil {
		for rest := c.b; ; {
			_, after, ok := bytes.Cut(rest, []byte(".entry"))
			if !ok {
				return false
			}
			name := bytes.TrimLeft(after, " \t\r\n")
			if n, ok := bytes.CutPrefix(name, []byte(kernel)); ok && (len(n) == 0 ||
				bytes.IndexByte([]byte(" \t\r\n("), n[0]) >= 0) {
				return true
			}
			rest = after
		}
	}
	return slices.ContainsFunc(c.cubin.Kernels, func(k fatbin.Kernel) bool { return k.Entry && k.Name == kernel })
}

// A module is one that kernels of the range ran from.
type module struct {
	list []*candidate
	code map[*candidate]int // in the manifest
}

// A coder puts the code of kernels into the manifest.
type coder struct {
	s       *rangeSession
	m       *recording.Manifest
	modules map[uint64]*module
	kernels map[uint32]int // by the program's number
}

// arch is what the driver says the kernels that ran are for; where it says nothing (the software GPU), what that GPU
// claims to be.
func (s *rangeSession) arch() int {
	const binaryVersion = 6 // CU_FUNC_ATTRIBUTE_BINARY_VERSION
	arch := 0
	for _, e := range s.ranges {
		for _, w := range e.works {
			if w.kernel == nil {
				continue
			}
			if f := s.functions[w.kernel.ID]; f != nil && len(f.Attributes) > binaryVersion &&
				f.Attributes[binaryVersion] < 1000 {
				arch = max(arch, int(f.Attributes[binaryVersion]))
			}
		}
	}
	return cmp.Or(arch, 90)
}

// kernel is the place of a kernel in the manifest.
func (c *coder) kernel(k *trace.Kernel) (uint32, error) {
	if i, ok := c.kernels[k.ID]; ok {
		return uint32(i), nil
	}
	code, err := c.codeOf(k)
	if err != nil {
		return 0, fmt.Errorf("kernel %s: its code cannot be kept: %w", k.Name, err)
	}
	params := []recording.Param{}
	for _, p := range k.Params {
		params = append(params, recording.Param{Offset: int(p.Offset), Size: int(p.Size)})
	}
	c.kernels[k.ID] = len(c.m.Kernels)
	c.m.Kernels = append(c.m.Kernels, recording.Kernel{Code: code, Name: k.Name, Params: params})
	return uint32(c.kernels[k.ID]), nil
}

func (c *coder) codeOf(k *trace.Kernel) (int, error) {
	if k.Module == 0 {
		return 0, errors.New("which module it is of is not known")
	}
	m := c.modules[k.Module]
	if m == nil {
		b, kind, err := c.s.whole(k.Module)
		if err != nil {
			return 0, err
		}
		list, err := candidates(b, kind, c.m.Arch)
		if err != nil {
			return 0, err
		}
		m = &module{list: list, code: map[*candidate]int{}}
		c.modules[k.Module] = m
	}
	var images []*candidate // the best of each kind
	for _, g := range m.list {
		if g.has(k.Name) && !slices.ContainsFunc(images, func(h *candidate) bool { return h.kind == g.kind }) {
			images = append(images, g)
		}
	}
	if len(images) == 0 {
		return 0, errors.New("no image of its module has it")
	}
	if i, ok := m.code[images[0]]; ok {
		return i, nil
	}
	i := len(c.m.Code)
	m.code[images[0]] = i
	code := recording.Code{}
	for _, g := range images {
		code.Images = append(code.Images, recording.Image{Arch: g.arch, Contents: c.s.r.w.Put(g.b), Kind: g.kind})
	}
	c.m.Code = append(c.m.Code, code)
	return i, nil
}

// variables keeps what the variables of modules that run hold.
func (c *coder) variables() error {
	known := map[uint64]map[string]bool{}
	for _, v := range c.s.variables {
		m := c.modules[v.Module]
		if m == nil {
			continue // nothing of it runs
		}
		if uint64(len(v.b)) != v.Variable.Bytes {
			return fmt.Errorf("variable %s: its contents could not be read", v.Name)
		}
		if known[v.Module] == nil {
			known[v.Module] = map[string]bool{}
		}
		known[v.Module][v.Name] = true
		for g, i := range m.code {
			if g.defines(v.Name) {
				c.m.Variables = append(c.m.Variables, recording.Variable{Code: i, Contents: c.s.r.w.Put(v.b),
					Name: v.Name})
			}
		}
	}
	slices.SortFunc(c.m.Variables, func(a, b recording.Variable) int {
		return cmp.Or(a.Code-b.Code, strings.Compare(a.Name, b.Name))
	})
	var unknown []string
	for id, m := range c.modules {
		for g := range m.code {
			unknown = append(unknown, g.unknown(known[id])...)
		}
	}
	if n := len(unknown); n > 0 {
		c.s.warn("%d variables of modules, %s the first, are not known to the program: a replay begins with "+
			"what their modules say, not with what kernels may have written before the range", n, slices.Min(unknown))
	}
	return nil
}

func (g *candidate) defines(name string) bool {
	if g.cubin == nil {
		return bytes.Contains(g.b, []byte(name))
	}
	return slices.ContainsFunc(g.cubin.Globals, func(v fatbin.Global) bool { return v.Name == name })
}

// unknown are the variables that kernels may have written and that the program never asked for.
func (g *candidate) unknown(known map[string]bool) (list []string) {
	if g.cubin == nil {
		return nil
	}
	for _, v := range g.cubin.Globals {
		if strings.HasPrefix(v.Section, ".nv.global") && !known[v.Name] && !strings.HasPrefix(v.Name, "$") {
			list = append(list, v.Name)
		}
	}
	return list
}
