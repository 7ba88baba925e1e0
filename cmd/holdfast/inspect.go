package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"holdfast/internal/recording"

	"github.com/spf13/cobra"
)

func (a *app) inspectVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect MODEL.hfr",
		Short: "Show what is in a recording",
		Long: `Show what is in a recording: inputs and outputs, code and kernels, memory, and what runs.
With --json, its manifest (docs/recording-format.md) is printed. Every chunk is checked
against its digest.`,
		Example: "  holdfast inspect resnet.hfr\n  holdfast inspect resnet.hfr --json | jq .entries[0].inputs",
		Args:    exactly("MODEL.hfr"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := recording.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			return a.inspect(f)
		},
	}
}

func (a *app) inspect(f *recording.File) error {
	m := f.Manifest
	if err := f.Verify(); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(m)
	}
	w := a.stdout
	fmt.Fprintf(w, "recorded on sm_%d, driver %d.%d: %v\n", m.Arch, m.Driver/1000, m.Driver%1000/10, m.Program)
	for i := range m.Entries {
		e := &m.Entries[i]
		work, err := f.Work(e)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "entry %s: %d launches, %d copies, %d sets in %d words\n", e.Name, e.Launches, e.Copies,
			e.Sets, recording.Words(work))
		inspectPorts(w, "input", e.Inputs)
		inspectPorts(w, "output", e.Outputs)
		inspectKernels(w, m, work)
	}
	a.inspectCode(f)
	inspectMemory(w, m)
	if err := inspectRelocations(w, f); err != nil {
		return err
	}
	for _, warning := range m.Warnings {
		fmt.Fprintf(w, "note: %s\n", warning)
	}
	fmt.Fprintf(w, "file: %s, manifest %x\n", bytesText(uint64(f.Size)), f.Digest[:])
	return nil
}

func inspectPorts(w io.Writer, what string, ports []recording.Port) {
	for _, p := range ports {
		fmt.Fprintf(w, "  %s %s: %s %v, %s\n", what, p.Name, p.DType, p.Shape, bytesText(uint64(p.Bytes)))
	}
}

func inspectKernels(w io.Writer, m *recording.Manifest, work []recording.Work) {
	counts := make([]int, len(m.Kernels))
	for _, x := range work {
		if x.Launch != nil {
			counts[x.Launch.Kernel]++
		}
	}
	list := make([]int, len(counts))
	for i := range list {
		list[i] = i
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(counts[b], counts[a]) })
	for _, i := range list {
		fmt.Fprintf(w, "  %6d × %s\n", counts[i], m.Kernels[i].Name)
	}
}

func (a *app) inspectCode(f *recording.File) {
	for i, c := range f.Manifest.Code {
		kernels := 0
		for _, k := range f.Manifest.Kernels {
			if k.Code == i {
				kernels++
			}
		}
		fmt.Fprintf(a.stdout, "code %d: %d kernels", i, kernels)
		for _, g := range c.Images {
			fmt.Fprintf(a.stdout, "; %s for sm_%d, %s", g.Kind, g.Arch, bytesText(uint64(g.Contents.Bytes)))
		}
		fmt.Fprintln(a.stdout)
	}
	for _, v := range f.Manifest.Variables {
		fmt.Fprintf(a.stdout, "  variable %s of code %d: %s\n", v.Name, v.Code, bytesText(uint64(v.Contents.Bytes)))
	}
}

// inspectRelocations says whether memory can be elsewhere, and how many words are addresses.
func inspectRelocations(w io.Writer, f *recording.File) error {
	list, err := f.Patches()
	if err != nil {
		return err
	}
	if f.Manifest.Relocations == nil {
		_, err := fmt.Fprintln(w, "addresses: pinned")
		return err
	}
	words := map[recording.Where]int{}
	for _, p := range list {
		words[p.In] += len(p.Offsets)
	}
	_, err = fmt.Fprintf(w, "addresses: relocatable; words that are some: %d in parameters of launches, %d in memory, "+
		"%d in variables, %d in recorded inputs\n", words[recording.InLaunch], words[recording.InRegion],
		words[recording.InVariable], words[recording.InInput])
	return err
}

func inspectMemory(w io.Writer, m *recording.Manifest) {
	type sum struct {
		n     int
		bytes int64
	}
	sums := map[string]*sum{recording.Live: {}, recording.Scratch: {}}
	zero, last := int64(0), recording.Span{}
	var constant sum
	for _, r := range m.Memory {
		if r.Class == recording.Constant {
			constant.n++
			constant.bytes += r.Bytes
			r.Class = recording.Live
		}
		sums[r.Class].n++
		sums[r.Class].bytes += r.Bytes
		if r.Contents == nil {
			continue
		}
		for i, c := range r.Contents.Chunks {
			if c == recording.Zero {
				zero += min(recording.ChunkSize, r.Bytes-int64(i)*recording.ChunkSize)
			}
		}
	}
	if n := len(m.Memory); n > 0 {
		last = recording.Span{Addr: m.Memory[0].Addr, Bytes: int64(m.Memory[n-1].Addr) +
			m.Memory[n-1].Bytes - int64(m.Memory[0].Addr)}
	}
	written := ""
	if constant.n > 0 {
		written = fmt.Sprintf("; %d of them, %s, are never written", constant.n, bytesText(uint64(constant.bytes)))
	}
	fmt.Fprintf(w, "memory, from %v on: %d regions with contents, %s (%s of it zeros)%s; %d without, %s\n",
		last.Addr, sums[recording.Live].n,
		bytesText(uint64(sums[recording.Live].bytes)), bytesText(uint64(zero)), written, sums[recording.Scratch].n,
		bytesText(uint64(sums[recording.Scratch].bytes)))
}
