package main

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"

	"holdfast/internal/cuda/api"
	"holdfast/internal/trace"

	"github.com/spf13/cobra"
)

func (a *app) traceListVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "ls FILE",
		Short: "List the kernels of a trace",
		Long: `List the processes and kernels of a trace: how often each kernel was launched, by
itself and as a node of graphs, and whether its PTX is in the trace.`,
		Example: "  holdfast trace ls train.trace",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.openTrace(args[0])
			if err != nil {
				return err
			}
			defer t.close()
			return t.list()
		},
	}
}

func (a *app) traceShowVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "show FILE",
		Short: "Print a trace, one record a line",
		Long: `Print a trace, one record a line; with --json each line is an object. Addresses,
handles and arguments of up to 8 bytes are hexadecimal numbers; larger arguments are
shown byte by byte.`,
		Example: "  holdfast trace show train.trace | grep ' launch '",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.openTrace(args[0])
			if err != nil {
				return err
			}
			defer t.close()
			return t.show()
		},
	}
}

// A traceFile is a trace that is being read.
type traceFile struct {
	a      *app
	name   string
	f      *os.File
	r      *trace.Reader
	states map[uint32]*trace.State
	calls  map[uint32]string
}

func (a *app) openTrace(name string) (*traceFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	r, err := trace.NewReader(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	fns, err := api.Functions()
	if err != nil {
		return nil, err
	}
	t := &traceFile{a: a, name: name, f: f, r: r, states: map[uint32]*trace.State{}, calls: map[uint32]string{}}
	for _, fn := range fns {
		t.calls[uint32(fn.Op)] = fn.Name
	}
	return t, nil
}

func (t *traceFile) close() {
	t.r.Close()
	t.f.Close()
}

// next reads a record and applies it to its process. At the end it is nil; early says that the trace was not finished.
func (t *traceFile) next() (rec trace.Record, s *trace.State, early bool, err error) {
	rec, err = t.r.Next()
	if errors.Is(err, trace.ErrEndedEarly) {
		return nil, nil, true, nil
	}
	if err == io.EOF {
		return nil, nil, false, nil
	}
	if err != nil {
		return nil, nil, false, fmt.Errorf("%s: %w", t.name, err)
	}
	s = t.states[t.r.Process()]
	if s == nil {
		s = trace.NewState()
		t.states[t.r.Process()] = s
	}
	s.Apply(rec)
	return rec, s, false, nil
}

func (t *traceFile) warnEarly() {
	fmt.Fprintf(t.a.stderr, "holdfast: %s: the trace ended early: its recorder was killed, or found no space\n", t.name)
}

type traceKernel struct {
	Process  uint32 `json:"process"`
	Kernel   string `json:"kernel"`
	Launches uint64 `json:"launches"` // by themselves
	Captured uint64 `json:"captured"` // into graphs
	InGraphs uint64 `json:"in_graphs"`
	Params   int    `json:"params"` // -1: not known
	PTX      string `json:"ptx"`    // digest; "" none
	Kind     string `json:"code"`
}

type traceProcess struct {
	Number   uint32 `json:"number"`
	PID      uint32 `json:"pid"`
	Name     string `json:"name"`
	Launches uint64 `json:"launches"`
	Graphs   uint64 `json:"graph_launches"`
	Counted  uint64 `json:"counted"` // launches, by the program itself
	Waits    uint64 `json:"waits"`
	Ended    string `json:"ended"` // "itself", "killed", "" = the trace ends before it
}

var codeKinds = []string{trace.CodeUnknown: "?", trace.CodePTX: "ptx", trace.CodeCubin: "cubin",
	trace.CodeFatbin: "fatbin"}

func codeKind(kind uint32) string {
	if int(kind) < len(codeKinds) {
		return codeKinds[kind]
	}
	return "?"
}

func (t *traceFile) list() error {
	c := &traceCount{kernels: map[traceKey]*traceKernel{}, images: map[*traceKernel]trace.Digest{},
		processes: map[uint32]*traceProcess{}, found: map[trace.Digest]trace.Digest{}}
	early := false
	for {
		rec, s, e, err := t.next()
		if err != nil {
			return err
		}
		if rec == nil {
			early = e
			break
		}
		c.add(t.r.Process(), rec, s)
	}
	if early {
		t.warnEarly()
	}
	processes, kernels := c.sorted()
	if t.a.json {
		return t.a.printJSON(struct {
			EndedEarly bool            `json:"ended_early"`
			Processes  []*traceProcess `json:"processes"`
			Kernels    []*traceKernel  `json:"kernels"`
		}{early, processes, kernels})
	}
	if err := processTable(processes).print(t.a.stdout); err != nil {
		return err
	}
	fmt.Fprintln(t.a.stdout)
	return kernelTable(kernels).print(t.a.stdout)
}

type traceKey struct {
	process uint32
	name    string
	module  uint64
}

// A traceCount is what the records of a trace have come to so far.
type traceCount struct {
	kernels   map[traceKey]*traceKernel
	images    map[*traceKernel]trace.Digest
	processes map[uint32]*traceProcess
	found     map[trace.Digest]trace.Digest // texts by their images
}

// add counts a record of a process, in whose state it is applied already.
func (c *traceCount) add(process uint32, rec trace.Record, s *trace.State) {
	switch rec := rec.(type) {
	case *trace.Program:
		p := c.process(process)
		p.PID, p.Name = rec.PID, rec.Name
	case *trace.Exit:
		p := c.process(process)
		p.Counted, p.Waits, p.Ended = rec.Launches, rec.Waits, "killed"
		if rec.Flags&trace.Clean != 0 {
			p.Ended = "itself"
		}
	case *trace.Found:
		c.found[rec.Image] = rec.TextRef.Digest
	case *trace.Launch:
		switch {
		case rec.Flags&trace.Node != 0:
		case rec.Flags&trace.Captured != 0:
			c.process(process).Launches++
			c.kernel(process, rec, s).Captured++
		default:
			c.process(process).Launches++
			c.kernel(process, rec, s).Launches++
		}
	case *trace.GraphLaunch:
		c.process(process).Graphs++
		if g := s.Graph(rec.Graph); g != nil {
			for _, w := range g.Work {
				if l, ok := w.(*trace.Launch); ok {
					c.kernel(process, l, s).InGraphs++
				}
			}
		}
	}
}

func (c *traceCount) process(n uint32) *traceProcess {
	if c.processes[n] == nil && n != 0 {
		c.processes[n] = &traceProcess{Number: n}
	}
	return c.processes[n]
}

// kernel is the row of the kernel of a launch.
func (c *traceCount) kernel(process uint32, l *trace.Launch, s *trace.State) *traceKernel {
	k := traceKey{process, "?", 0}
	row := &traceKernel{Process: process, Params: -1, Kind: "?"}
	var image trace.Digest
	if kernel := s.Kernel(l.Kernel); kernel != nil {
		k.name, k.module = kernel.Name, kernel.Module
		if kernel.Flags&trace.NoLayout == 0 {
			row.Params = len(kernel.Params)
		}
		if m := s.Image(kernel.Module); m != nil {
			row.Kind, image = codeKind(m.Kind), m.Digest
			if len(m.Texts) > 0 {
				row.PTX = m.Texts[len(m.Texts)-1].Digest.String()
			}
		}
	}
	if c.kernels[k] == nil {
		row.Kernel = k.name
		c.kernels[k], c.images[row] = row, image
	}
	return c.kernels[k]
}

// sorted is the rows of both tables. Texts that were found after a launch belong to its kernel, too.
func (c *traceCount) sorted() ([]*traceProcess, []*traceKernel) {
	kernels := []*traceKernel{}
	for _, k := range c.kernels {
		image := c.images[k]
		if d, ok := c.found[image]; ok && k.PTX == "" && image != (trace.Digest{}) {
			k.PTX = d.String()
		}
		kernels = append(kernels, k)
	}
	slices.SortFunc(kernels, func(x, y *traceKernel) int {
		return cmp.Or(cmp.Compare(x.Process, y.Process), cmp.Compare(y.Launches+y.InGraphs, x.Launches+x.InGraphs),
			cmp.Compare(x.Kernel, y.Kernel), cmp.Compare(x.PTX, y.PTX))
	})
	processes := []*traceProcess{}
	for _, p := range c.processes {
		processes = append(processes, p)
	}
	slices.SortFunc(processes, func(x, y *traceProcess) int { return cmp.Compare(x.Number, y.Number) })
	return processes, kernels
}

func processTable(list []*traceProcess) *table {
	t := newTable(">PROCESS", ">PID", "NAME", ">LAUNCHES", ">GRAPHS", ">WAITS", "ENDED")
	for _, p := range list {
		t.add(strconv.Itoa(int(p.Number)), strconv.Itoa(int(p.PID)), p.Name, strconv.FormatUint(p.Launches, 10),
			strconv.FormatUint(p.Graphs, 10), strconv.FormatUint(p.Waits, 10), p.Ended)
	}
	return t
}

func kernelTable(list []*traceKernel) *table {
	t := newTable(">PROCESS", ">LAUNCHES", ">IN GRAPHS", ">PARAMETERS", "CODE", "PTX", "KERNEL")
	for _, k := range list {
		params, ptx := "?", "-"
		if k.Params >= 0 {
			params = strconv.Itoa(k.Params)
		}
		if k.PTX != "" {
			ptx = k.PTX[:12]
		}
		t.add(strconv.Itoa(int(k.Process)), strconv.FormatUint(k.Launches, 10), strconv.FormatUint(k.InGraphs, 10),
			params, k.Kind, ptx, k.Kernel)
	}
	return t
}

// An object is one record in JSON: the fields in the order in which they are added.
type object []field

type field struct {
	name  string
	value any
}

func (t *traceFile) show() error {
	w := bufio.NewWriter(t.a.stdout)
	defer w.Flush()
	out := *t.a
	out.stdout = w
	for {
		rec, s, early, err := t.next()
		if err != nil {
			w.Flush()
			return err
		}
		if rec == nil {
			if early {
				w.Flush()
				t.warnEarly()
			}
			return w.Flush()
		}
		o := t.object(rec, s)
		if t.a.json {
			m := map[string]any{"record": rec.Type().String(), "process": t.r.Process()}
			for _, f := range o {
				m[f.name] = f.value
			}
			if err := out.printLine(m); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%d %v", t.r.Process(), rec.Type())
		for _, f := range o {
			fmt.Fprintf(w, " %s=%v", f.name, f.value)
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
}

func hexa(v uint64) string { return fmt.Sprintf("%#x", v) }

// object gives the fields of a record. Numbers that people read are numbers; addresses and handles are hexadecimal
// strings.
func (t *traceFile) object(rec trace.Record, s *trace.State) object {
	var o object
	add := func(name string, value any) { o = append(o, field{name, value}) }
	flags := func(have uint16, names map[uint16]string) {
		for _, bit := range slices.Sorted(maps.Keys(names)) {
			if have&bit != 0 {
				add(names[bit], true)
			}
		}
	}
	digests := func(texts []trace.TextRef) []string {
		list := []string{}
		for _, x := range texts {
			list = append(list, fmt.Sprintf("sm_%d:%v", x.Arch, x.Digest))
		}
		return list
	}
	common := map[uint16]string{trace.Node: "node", trace.Captured: "captured"}
	where := func(flags uint16, cell, place uint32) {
		if flags&trace.Node != 0 {
			add("graph", cell)
			if g := s.Graph(cell); g != nil && g.Version() {
				add("place", place)
			}
		}
	}
	switch r := rec.(type) {
	case *trace.Program:
		add("pid", r.PID)
		add("ppid", r.PPID)
		add("name", r.Name)
		add("exe", r.Exe)
		add("args", r.Args)
		add("driver", r.Driver)
	case *trace.Text:
		add("digest", r.Digest.String())
		add("bytes", r.Total)
		add("offset", r.Offset)
	case *trace.Image:
		add("module", r.ID)
		add("handle", hexa(r.Handle))
		add("call", t.calls[r.Call])
		add("code", codeKind(r.Kind))
		add("bytes", r.Bytes)
		add("digest", r.Digest.String())
		flags(r.Flags, map[uint16]string{trace.Outline: "outline"})
		add("ptx", digests(r.Texts))
	case *trace.Found:
		add("image", r.Image.String())
		add("ptx", digests([]trace.TextRef{r.TextRef}))
	case *trace.Unload:
		add("module", r.Module)
	case *trace.Kernel:
		add("kernel", r.ID)
		add("module", r.Module)
		add("handle", hexa(r.Handle))
		add("name", r.Name)
		var params []string
		for _, p := range r.Params {
			params = append(params, fmt.Sprintf("%d+%d", p.Offset, p.Size))
		}
		add("params", params)
		flags(r.Flags, map[uint16]string{trace.NoLayout: "no_layout"})
	case *trace.Alloc:
		add("addr", hexa(r.Addr))
		add("bytes", r.Bytes)
		add("kind", memKind(r.Kind))
		add("device", r.Device)
	case *trace.Free:
		add("addr", hexa(r.Addr))
		if r.Bytes > 0 {
			add("bytes", r.Bytes)
		}
	case *trace.Launch:
		name := "?"
		k := s.Kernel(r.Kernel)
		if k != nil {
			name = k.Name
		}
		where(r.Flags, r.Cell, r.Thread)
		if r.Flags&trace.Node == 0 {
			add("thread", r.Thread)
			add("stream", hexa(r.Stream))
		}
		add("kernel", name)
		add("grid", r.Grid)
		add("block", r.Block)
		if r.Cluster != [3]uint32{1, 1, 1} {
			add("cluster", r.Cluster)
		}
		add("shared", r.Shared)
		flags(r.Flags, map[uint16]string{trace.Captured: "captured", trace.Cooperative: "cooperative",
			trace.NoParams: "no_params", trace.Programmatic: "programmatic"})
		add("args", arguments(k, r.Params))
	case *trace.Copy:
		where(r.Flags, r.Cell, r.Thread)
		if r.Flags&trace.Node == 0 {
			add("thread", r.Thread)
			add("stream", hexa(r.Stream))
		}
		add("call", t.calls[r.Call])
		add("dst", hexa(r.Dst))
		if r.Flags&trace.Set != 0 {
			add("value", hexa(r.Src))
		} else {
			add("src", hexa(r.Src))
		}
		add("width", r.Width)
		add("height", r.Height)
		add("depth", r.Depth)
		add("dst_pitch", r.DstPitch)
		if r.Flags&trace.Set == 0 {
			add("src_pitch", r.SrcPitch)
		}
		flags(r.Flags, map[uint16]string{trace.Captured: "captured", trace.DstHost: "dst_host",
			trace.DstArray: "dst_array"})
		if r.Flags&trace.Set == 0 {
			flags(r.Flags, map[uint16]string{trace.SrcHost: "src_host", trace.SrcArray: "src_array"})
		}
	case *trace.Graph:
		add("graph", r.ID)
		add("nodes", r.Nodes)
		add("handle", hexa(r.Handle))
		flags(r.Flags, map[uint16]string{trace.Incomplete: "incomplete"})
	case *trace.GraphVersion:
		add("graph", r.ID)
		add("base", r.Base)
		add("handle", hexa(r.Handle))
		flags(r.Flags, map[uint16]string{trace.Incomplete: "incomplete"})
	case *trace.GraphEnd:
		add("graph", r.ID)
	case *trace.GraphEdges:
		add("graph", r.ID)
		var edges []string
		for _, e := range r.Edges {
			edges = append(edges, fmt.Sprintf("%d>%d", e.From, e.To))
		}
		add("edges", edges)
	case *trace.GraphFree:
		add("graph", r.ID)
	case *trace.GraphLaunch:
		add("graph", r.Graph)
		add("thread", r.Thread)
		add("stream", hexa(r.Stream))
		flags(r.Flags, common)
	case *trace.Other:
		where(r.Flags, r.Cell, r.Thread)
		add("call", t.calls[r.Call])
		add("thread", r.Thread)
		add("stream", hexa(r.Stream))
		flags(r.Flags, common)
		flags(r.Flags, map[uint16]string{trace.Joint: "joint"})
	case *trace.Failed:
		add("thread", r.Thread)
		add("result", r.Result)
	case *trace.Exit:
		add("launches", r.Launches)
		add("graph_launches", r.Graphs)
		add("copies", r.Copies)
		add("waits", r.Waits)
		add("waited_ms", float64(r.Waited.Microseconds())/1000)
		flags(r.Flags, map[uint16]string{trace.Clean: "clean"})
	}
	return o
}

func memKind(kind uint32) string {
	names := []string{trace.MemLinear: "linear", trace.MemAsync: "async", trace.MemMapped: "mapped",
		trace.MemManaged: "managed", trace.MemHost: "host", trace.MemGlobal: "global"}
	if kind > 0 && int(kind) < len(names) {
		return names[kind]
	}
	return "?"
}

// arguments cuts parameter bytes up: numbers of up to 8 bytes as 0x…, the rest as the bytes are.
func arguments(k *trace.Kernel, b []byte) []string {
	list := []string{}
	if k == nil || len(k.Params) == 0 {
		if len(b) > 0 {
			list = append(list, "bytes:"+hex.EncodeToString(b))
		}
		return list
	}
	for _, p := range k.Params {
		if uint64(p.Offset)+uint64(p.Size) > uint64(len(b)) {
			break
		}
		v := b[p.Offset : p.Offset+p.Size]
		if len(v) == 0 || len(v) > 8 {
			list = append(list, "bytes:"+hex.EncodeToString(v))
			continue
		}
		var word [8]byte
		copy(word[:], v)
		list = append(list, hexa(binary.LittleEndian.Uint64(word[:])))
	}
	return list
}
