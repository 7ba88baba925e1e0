package recorder

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"holdfast/internal/recording"
	"holdfast/internal/trace"
)

// work takes the records that traces have too.
func (s *rangeSession) work(rec trace.Record) {
	if s.phase == contents {
		s.enter()
	}
	if s.phase == before || s.err != nil {
		s.state.Apply(rec)
		return
	}
	if f, ok := rec.(*trace.Failed); ok {
		for _, w := range s.latest[f.Thread] {
			w.dropped = true
		}
		return
	}
	switch rec := rec.(type) {
	case *trace.Alloc:
		s.allocated(rec)
	case *trace.Free: // cuMemFree waits for the device
		s.released(rec)
		s.order.everything()
	}
	s.state.Apply(rec)
	thread, flags, isWork := workOf(rec)
	if !isWork || flags&trace.Node != 0 {
		return
	}
	delete(s.latest, thread)
	if flags&trace.Captured != 0 {
		return
	}
	if s.phase == between {
		s.outside(rec)
		return
	}
	from := len(s.works)
	s.submitted(rec, thread)
	s.latest[thread] = s.works[from:len(s.works):len(s.works)]
	delete(s.pending, thread)
}

// submitted takes a piece of work of the range.
func (s *rangeSession) submitted(rec trace.Record, thread uint32) {
	switch rec := rec.(type) {
	case *trace.Launch:
		s.onStream(rec.Stream, thread, func(at *frontier) { s.launch(rec, at) })
	case *trace.Copy:
		s.onStream(rec.Stream, thread, func(at *frontier) {
			s.copy(rec, at, thread)
			if !strings.HasSuffix(s.call(rec.Call), "Async") { // it may have returned when the copy was done
				at.seen = true
			}
		})
	case *trace.GraphLaunch:
		s.onStream(rec.Stream, thread, func(at *frontier) { s.graph(rec, at) })
	case *trace.Other:
		s.fail("%s within the range: it cannot be replayed", s.call(rec.Call))
	}
}

// onStream has f add work to a stream.
func (s *rangeSession) onStream(handle uint64, thread uint32, f func(at *frontier)) {
	on, from := streamOf(handle, thread), len(s.works)
	at := s.order.begin(on)
	f(at)
	s.order.end(on, at, from)
}

// outside refuses work between two ranges that may write memory of the device: the second would find something else
// there in a replay than it did in the program. Copies to the host do no harm.
func (s *rangeSession) outside(rec trace.Record) {
	what := ""
	switch rec := rec.(type) {
	case *trace.Launch:
		what = "a kernel that is not known"
		if k := s.state.Kernel(rec.Kernel); k != nil {
			what = "kernel " + k.Name
		}
	case *trace.Copy:
		if rec.Width == 0 || rec.Height == 0 || rec.Depth == 0 || rec.Flags&trace.DstHost != 0 || !s.onDevice(rec.Dst) {
			return
		}
		what = s.call(rec.Call)
	case *trace.GraphLaunch:
		what = "a graph"
	case *trace.Other:
		what = s.call(rec.Call)
	}
	s.fail("%s comes after range %q and before range %q, which would find other memory in a replay: "+
		"have one of the ranges around it", what, s.Name, s.missing())
}

func workOf(rec trace.Record) (thread uint32, flags uint16, ok bool) {
	switch rec := rec.(type) {
	case *trace.Launch:
		return rec.Thread, rec.Flags, true
	case *trace.Copy:
		return rec.Thread, rec.Flags, true
	case *trace.GraphLaunch:
		return rec.Thread, rec.Flags, true
	case *trace.Other:
		return rec.Thread, rec.Flags, true
	}
	return 0, 0, false
}

func (s *rangeSession) call(n uint32) string {
	if name := s.r.calls[n]; name != "" {
		return name
	}
	return fmt.Sprintf("driver call %d", n)
}

const mostBytes = 1 << 48 // no GPU has more addresses

// allocated takes note of memory that comes within the range. It may have been somebody else's a moment ago, and how
// its users are ordered is between them and the host.
func (s *rangeSession) allocated(a *trace.Alloc) {
	switch {
	case a.Kind == trace.MemHost, a.Kind == trace.MemGlobal, a.Bytes == 0:
	case a.Device != 0:
		s.fail("memory at %#x is on device %d: only programs that use one GPU can be recorded", a.Addr, a.Device)
	case a.Bytes > mostBytes || a.Addr > mostBytes:
		s.fail("memory at %#x (%d bytes): no such addresses", a.Addr, a.Bytes)
	case a.Kind == trace.MemManaged:
		s.fail(managedMemory, a.Addr, a.Bytes)
	default:
		ended := len(s.ranges)
		if s.phase == inside {
			ended--
		}
		s.made = append(s.made, madeMemory{recording.Span{Addr: recording.Addr(a.Addr), Bytes: int64(a.Bytes)}, ended})
		s.order.everything()
	}
}

// released takes note of memory that is freed after the first range has begun.
func (s *rangeSession) released(f *trace.Free) {
	if f.Bytes > 0 {
		s.freed = append(s.freed, recording.Span{Addr: recording.Addr(f.Addr), Bytes: int64(min(f.Bytes, mostBytes))})
	} else if a := s.state.At(f.Addr); a != nil {
		s.freed = append(s.freed, recording.Span{Addr: recording.Addr(a.Addr), Bytes: int64(min(a.Bytes, mostBytes))})
	}
}

func (s *rangeSession) add(w *rangeWork, at *frontier) {
	s.order.add(at)
	s.works = append(s.works, w)
}

func (s *rangeSession) launch(l *trace.Launch, at *frontier) {
	k := s.state.Kernel(l.Kernel)
	switch {
	case k == nil:
		s.fail("a launch within the range is of a kernel that is not known")
		return
	case l.Flags&trace.NoParams != 0 || k.Flags&trace.NoLayout != 0:
		s.fail("kernel %s: what its parameters are is not known", k.Name)
		return
	}
	s.checkPointers(k, l.Params)
	s.add(&rangeWork{launch: l, kernel: k}, at)
}

// checkPointers refuses launches that are given what a replay does not have: memory of the host, and variables whose
// address depends on where the driver puts their module.
func (s *rangeSession) checkPointers(k *trace.Kernel, params []byte) {
	for at := 0; at+8 <= len(params); at += 4 {
		v := binary.LittleEndian.Uint64(params[at:])
		a := s.state.At(v)
		switch {
		case a == nil:
		case a.Kind == trace.MemHost:
			s.fail("kernel %s is given host memory (%#x, byte %d of its parameters): copy it to the device first",
				k.Name, v, at)
		case a.Kind == trace.MemGlobal:
			s.fail("kernel %s is given the address of a variable of a module (%#x, byte %d of its parameters), "+
				"which is another in a replay",
				k.Name, v, at)
		}
	}
}

func (s *rangeSession) onDevice(addr uint64) bool {
	a := s.state.At(addr)
	return a != nil && a.Kind != trace.MemHost
}

func (s *rangeSession) isVariable(addr uint64) bool {
	a := s.state.At(addr)
	return a != nil && a.Kind == trace.MemGlobal
}

func (s *rangeSession) copy(c *trace.Copy, at *frontier, thread uint32) {
	call := s.call(c.Call)
	if c.Width == 0 || c.Height == 0 || c.Depth == 0 {
		return
	}
	if hi, area := bits.Mul64(c.Width, c.Height); hi != 0 || area > 1<<40 || c.Depth > 1<<16 {
		s.fail("%s of %d × %d × %d bytes", call, c.Width, c.Height, c.Depth)
		return
	}
	if !strings.HasPrefix(call, "cuMemcpy") && !strings.HasPrefix(call, "cuMemset") && !strings.HasPrefix(call,
		"cuGraphAddMem") {
		s.fail("%s within the range: it cannot be replayed", call)
		return
	}
	if c.Flags&(trace.DstArray|trace.SrcArray) != 0 {
		s.fail("%s within the range: CUDA arrays cannot be replayed", call)
		return
	}
	fromHost := c.Flags&trace.Set == 0 && (c.Flags&trace.SrcHost != 0 || !s.onDevice(c.Src))
	toHost := c.Flags&trace.DstHost != 0 || c.Flags&trace.Set == 0 && !s.onDevice(c.Dst)
	switch {
	case toHost && c.Flags&trace.Set != 0:
		s.fail("%s of host memory within the range: it cannot be replayed", call)
	case toHost && fromHost:
		s.warn("%s from host to host memory: a replay does not do it", call)
	case fromHost:
		s.input(c, at, thread)
	case toHost:
		s.outputs = append(s.outputs, extent(c.Dst, c.DstPitch, c.DstSlice, c))
		s.slices(c, at, func(w *rangeWork, _ uint64) { w.output = true })
		at.seen = true
	case s.isVariable(c.Dst) || c.Flags&trace.Set == 0 && s.isVariable(c.Src):
		s.fail("%s of a variable of a module within the range: its address is another in a replay", call)
	default:
		s.slices(c, at, nil)
	}
}

func (s *rangeSession) input(c *trace.Copy, at *frontier, thread uint32) {
	want := c.Width * c.Height * c.Depth
	var data []byte
	if list := s.pending[thread]; len(list) > 0 {
		data, s.pending[thread] = list[0], list[1:]
	}
	if uint64(len(data)) != want {
		s.fail("%s: %d of the %d bytes that it takes from the host are known", s.call(c.Call), len(data), want)
		return
	}
	from := extent(c.Src, c.SrcPitch, c.SrcSlice, c)
	for _, o := range s.outputs {
		if o.from < from.to && from.from < o.to {
			s.fail("%s takes from the host (%#x) what a copy within the range has brought there: it would be an input "+
				"that depends on an output; copy it on the device", s.call(c.Call), from.from)
			return
		}
	}
	if len(s.outputs) > 0 {
		s.warn("a copy to the device comes after one to the host: if the program computes one from the other, " +
			"a replay on other input is not the program's")
	}
	s.slices(c, at, func(w *rangeWork, z uint64) { w.input = data[z*c.Width*c.Height:][:c.Width*c.Height] })
}

// extent is the memory that one side of a copy takes.
func extent(addr, pitch, slice uint64, c *trace.Copy) hostSpan {
	return hostSpan{addr, addr + (c.Depth-1)*slice + (c.Height-1)*pitch + c.Width}
}

// slices makes a piece of work of each slice of a copy.
func (s *rangeSession) slices(c *trace.Copy, at *frontier, more func(w *rangeWork, z uint64)) {
	for z := range c.Depth {
		one := *c
		one.Dst, one.Depth = c.Dst+z*c.DstSlice, 1
		if c.Flags&trace.Set == 0 {
			one.Src += z * c.SrcSlice
		}
		w := &rangeWork{copy: &one}
		if more != nil {
			more(w, z)
		}
		s.add(w, at)
	}
}

// graph adds the nodes of a graph: those without edges to them where the graph is launched, the others after those that
// their edges come from. What comes next there comes after all of them.
func (s *rangeSession) graph(l *trace.GraphLaunch, at *frontier) {
	g := s.state.Graph(l.Graph)
	if g == nil || !g.Done || g.Flags&trace.Incomplete != 0 {
		s.fail("a graph that is launched within the range: what it consists of is not known")
		return
	}
	before := make([][]*point, len(g.Work))
	edges := edgesOf(g)
	inner := make([]bool, len(g.Work)) // others come after it
	for _, e := range edges {
		inner[e.From] = true
	}
	var ends []*point
	for i, rec := range g.Work {
		node := &frontier{points: before[i]}
		if len(node.points) == 0 {
			node.points = at.points
		}
		s.node(rec, node, l.Thread)
		at.seen = at.seen || node.seen
		done := s.order.meet(node.points)
		for ; len(edges) > 0 && int(edges[0].From) == i; edges = edges[1:] {
			before[edges[0].To] = append(before[edges[0].To], done)
		}
		if !inner[i] {
			ends = append(ends, done)
		}
	}
	if len(ends) > 0 {
		at.points = ends
	}
}

// edgesOf is the edges of a graph by where they come from. One whose edges are not known is a chain: its nodes were
// told in an order in which they may run.
func edgesOf(g *trace.GraphState) []trace.Edge {
	edges := slices.Clone(g.Edges)
	if !g.Ordered {
		for i := 1; i < len(g.Work); i++ {
			edges = append(edges, trace.Edge{From: uint32(i - 1), To: uint32(i)})
		}
	}
	slices.SortFunc(edges, func(a, b trace.Edge) int { return cmp.Compare(a.From, b.From) })
	return edges
}

func (s *rangeSession) node(rec trace.Record, at *frontier, thread uint32) {
	switch rec := rec.(type) {
	case *trace.Launch:
		s.launch(rec, at)
		return
	case *trace.Copy:
		s.copy(rec, at, thread)
		return
	case *trace.Other:
		if rec.Flags&trace.Joint != 0 {
			return
		}
	}
	s.fail("a graph that is launched within the range has a node that cannot be replayed " +
		"(host function, memory, semaphore, event or condition)")
}
