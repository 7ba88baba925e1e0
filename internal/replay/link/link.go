// Package link makes a linked recording (package hfx) of a recording: it has the raw backend place, load and prepare
// everything for a GPU that need not be there, and takes down what it would have done.
//
// It is pure but for the two files: the same recording and GPU give the same bytes.
package link

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"holdfast/internal/engine/raw"
	"holdfast/internal/hfx"
	"holdfast/internal/newfile"
	"holdfast/internal/npy"
	"holdfast/internal/recording"
	"holdfast/internal/replay"
)

// reference is the GPU that an architecture alone stands for: the one of it on which the raw backend was tried.
var reference = map[string]string{"sm_90": "h200"}

// GPU finds what a user calls a GPU: a name, an architecture, "this" for the first of this machine, or its figures.
func GPU(name string) (raw.GPU, error) {
	if name == "this" {
		return raw.Probe(raw.Options{})
	}
	if g, ok := raw.Known[name]; ok {
		return g, nil
	}
	if known, ok := reference[name]; ok {
		return raw.Known[known], nil
	}
	if arch, figures, ok := strings.Cut(name, ":"); ok && strings.HasPrefix(arch, "sm_") {
		return figuresOf(name, arch[len("sm_"):], strings.Split(figures, ","))
	}
	names := []string{"this"}
	for n := range raw.Known {
		names = append(names, n)
	}
	for n := range reference {
		names = append(names, n)
	}
	slices.Sort(names)
	return raw.GPU{}, fmt.Errorf("GPU %q is not known; known are %s and "+
		"sm_ARCH:GPCS,TPCS_OF_GPC,SMS_OF_TPC,WARPS_OF_SM,TPCS", name, strings.Join(names, ", "))
}

func figuresOf(name, arch string, figures []string) (g raw.GPU, err error) {
	g.Name = name
	if g.Arch, err = strconv.Atoi(arch); err == nil && len(figures) != 5 {
		err = fmt.Errorf("%d figures, want 5", len(figures))
	}
	if err != nil {
		return g, fmt.Errorf("GPU %q: %w", name, err)
	}
	for i, to := range []*uint32{&g.GPCs, &g.TPCsPerGPC, &g.SMsPerTPC, &g.Warps, &g.TPCs} {
		n, err := strconv.ParseUint(figures[i], 10, 10)
		if err != nil {
			return g, fmt.Errorf("GPU %q: %w", name, err)
		}
		*to = uint32(n)
	}
	return g, nil
}

// File links a recording into a new file at to, which appears when it is complete. It has f read in order.
func File(f *recording.File, to, entry string, g raw.GPU) (*hfx.File, error) {
	f.InOrder = true
	tmp, err := newfile.Create(to)
	if err != nil {
		return nil, err
	}
	defer tmp.Abort()
	if err := Link(f, entry, g, tmp); err != nil {
		return nil, err
	}
	st, err := tmp.Stat()
	if err != nil {
		return nil, err
	}
	out, err := hfx.Open(tmp, st.Size())
	if err != nil {
		return nil, err
	}
	return out, tmp.Finish(0o666)
}

// Link links one entry of a recording; "" is the only one.
func Link(f *recording.File, entry string, g raw.GPU, to io.WriterAt) error {
	w := hfx.NewWriter(to)
	b, err := raw.Link(g, w)
	if err != nil {
		return err
	}
	p, err := replay.Load(b, f, entry)
	if err != nil {
		return err
	}
	for _, port := range p.Entries[0].Inputs {
		b.Port(portOf(w, &port, hfx.In))
		if err := b.Write(uint64(port.Addr), make([]byte, port.Bytes)); err != nil {
			return fmt.Errorf("input %s: %w", port.Name, err)
		}
	}
	for _, port := range p.Entries[0].Outputs {
		b.Port(portOf(w, &port, hfx.Out))
		if err := b.Read(uint64(port.Addr), make([]byte, port.Bytes)); err != nil {
			return fmt.Errorf("output %s: %w", port.Name, err)
		}
	}
	return w.Finish()
}

// portOf describes a port. One whose type .npy files do not have has no head for them.
func portOf(w *hfx.Writer, port *recording.Port, way uint32) hfx.Port {
	p := hfx.Port{Addr: uint64(port.Addr), Bytes: uint64(port.Bytes), Way: way}
	p.Name, p.NameBytes = w.Text(port.Name)
	p.Type, p.TypeBytes = w.Text(fmt.Sprintf("%s %v", port.DType, port.Shape))
	dtype := port.DType
	if dtype == "bfloat16" { // .npy files know none: its bits are taken as uint16, as everywhere
		dtype = "uint16"
	}
	if head, n, err := npy.Head(dtype, port.Shape); err == nil && int64(n) == port.Bytes {
		p.Array, p.ArrayText = w.Text(string(head))
	}
	if port.Untyped() {
		p.Untyped = 1
	}
	return p
}
