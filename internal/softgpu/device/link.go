package device

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"holdfast/internal/fatbin"
	"holdfast/ptx"
)

// Kinds of what is linked (CUjitInputType).
const (
	linkCubin   = 0
	linkPTX     = 1
	linkFatbin  = 2
	linkObject  = 3
	maxLinked   = 64 << 20 // bytes of all inputs
	maxInputs   = 1 << 10
	unnamedUnit = "input"
)

// A link is a CUlinkState. The result is PTX, which every load call takes.
type link struct {
	handle uint64
	limit  int // CU_JIT_MAX_REGISTERS; 0: none
	inputs []linkInput
	bytes  int
}

// A linkInput is PTX that parses.
type linkInput struct {
	Name string
	Text []byte
}

func linkCreate(c *call) Status {
	l := &link{}
	if len(c.args) > 0 {
		l.limit = int(uint32(c.args[0]))
	}
	l.handle = c.p.add(l)
	return c.ret(l.handle)
}

func linkDestroy(c *call) Status {
	delete(c.p.objects, must[*link](c, c.args[0]).handle)
	return Success
}

// linkAdd answers with the error log, also on failure.
func linkAdd(c *call) Status {
	l, kind := must[*link](c, c.args[0]), c.args[1]
	image, name := c.blob(), string(c.blob())
	if len(image) == 0 {
		return InvalidValue
	}
	if name == "" {
		name = fmt.Sprintf("%s %d", unnamedUnit, len(l.inputs)+1)
	}
	text, st, err := linkable(kind, image)
	if err != nil {
		return c.linkFailed(st, err)
	}
	if len(l.inputs) >= maxInputs || len(text) > maxLinked-l.bytes {
		return c.linkFailed(OutOfMemory, fmt.Errorf("more than %d bytes or %d inputs to link", maxLinked, maxInputs))
	}
	if _, err := ptx.Parse(name, text); err != nil {
		return c.linkFailed(InvalidPTX, err)
	}
	l.inputs, l.bytes = append(l.inputs, linkInput{name, bytes.Clone(text)}), l.bytes+len(text)
	c.retBlob([]byte{})
	return Success
}

func (c *call) linkFailed(st Status, err error) Status {
	c.p.srv.log.Warn("link refused", "pid", c.p.key.pid, "err", err)
	c.p.srv.counts.refused(err)
	c.retBlob(fmt.Appendf(nil, "%+v", err))
	return st
}

// linkable is the PTX in an input.
func linkable(kind uint64, image []byte) ([]byte, Status, error) {
	switch kind {
	case linkPTX:
		return bytes.TrimRight(image, "\x00"), Success, nil
	case linkCubin, linkFatbin:
		return ptxOf(image)
	case linkObject:
		for e, err := range fatbin.Files(bytes.NewReader(image), int64(len(image))) {
			if err != nil {
				return nil, InvalidImage, err
			}
			return ptxOf(e.Data)
		}
		return nil, NoBinaryForGPU, errors.New("object without GPU code")
	}
	return nil, NotSupported, errors.New("the software GPU links PTX, and fat binaries and objects that hold it")
}

// linkComplete answers with the error log and the linked module.
func linkComplete(c *call) Status {
	l := must[*link](c, c.args[0])
	if len(l.inputs) == 0 {
		return c.linkFailed(InvalidImage, errors.New("nothing to link"))
	}
	var units []*unit
	for _, in := range l.inputs {
		m, err := ptx.Parse(in.Name, in.Text)
		if err != nil {
			return c.linkFailed(InvalidPTX, err)
		}
		units = append(units, &unit{in.Name, m})
	}
	m, err := merge(units)
	if err != nil {
		return c.linkFailed(InvalidPTX, err)
	}
	l.limitRegisters(m)
	c.retBlob([]byte{})
	c.retBlob(ptx.Format(m))
	return Success
}

// limitRegisters writes the limit of the link to the kernels that have none of their own: what is linked is loaded
// without options.
func (l *link) limitRegisters(m *ptx.Module) {
	if l.limit <= 0 {
		return
	}
	for _, d := range m.Decls {
		f, ok := d.(*ptx.Func)
		limited := func(p ptx.Directive) bool { return p.Name == ".maxnreg" }
		if !ok || !f.Entry || slices.ContainsFunc(f.Perf, limited) {
			continue
		}
		most := strconv.Itoa(min(max(l.limit, minReportedRegs), maxReportedRegs))
		f.Perf = append(f.Perf, ptx.Directive{Pos: f.Pos, Name: ".maxnreg", Args: []string{most}})
	}
}
