// Package foresee says what a piece of a program's work may read and write before it runs: launches by the footprints
// of their kernels, copies by their arguments. Work comes in the form of trace records.
//
// What it says of a launch is either proven, or a guess: of a kernel without PTX, or with an access that has no bound,
// the guess is the allocations that its parameters point into. Who acts on a guess must be able to find out afterwards
// that it was wrong; who cannot must treat everything as touched.
//
// It imports footprint, trace and ptx, and nothing that talks to programs or devices.
package foresee

import (
	"iter"
	"math/bits"
	"slices"
	"sort"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/summarise"
	"holdfast/internal/trace"
	"holdfast/ptx"
)

// An Effect is what a piece of work may do to memory. Ranges are addresses of the program: sorted, disjoint.
type Effect struct {
	Name          string // of the kernel, for messages; of what is no kernel, what it is
	Reads, Writes []footprint.Range
	Proven        bool // it touches nothing else
	Everything    bool // nothing is known of it, and the ranges say nothing
	Exact         bool // its kernels are the very PTX that was looked at
	Bounded       bool // if they are, it writes nothing else
	// Owed is what work that has gone may touch if this goes and changes what is known of memory (memory.go). It is
	// part of what this has to wait for.
	Owed struct{ Reads, Writes []Span }
}

// reset makes e the effect of nothing.
func (e *Effect) reset() {
	owed := e.Owed
	owed.Reads, owed.Writes = owed.Reads[:0], owed.Writes[:0]
	*e = Effect{Reads: e.Reads[:0], Writes: e.Writes[:0], Proven: true, Exact: true, Bounded: true, Owed: owed}
}

// Nothing makes e the effect of work of that name that touches no memory.
func (e *Effect) Nothing(name string) {
	e.reset()
	e.Name = name
}

// Unknown makes e the effect of work of that name of which nothing is known.
func (e *Effect) Unknown(name string) {
	e.reset()
	e.Name, e.Proven, e.Everything, e.Exact, e.Bounded = name, false, true, false, false
}

// A Program foresees the work of one program. It is not for several goroutines at once.
type Program struct {
	// Translated says that the driver can run nothing but what it translates from PTX.
	Translated bool

	state   *trace.State
	texts   map[trace.Digest][]byte // not analysed yet
	known   map[trace.Digest]map[string]*footprint.Summary
	kernels map[uint32]*kernel
	allocs  []footprint.Range // of state; nil when it is to be made anew
	recent  footprint.Recent
	launch  footprint.Launch // in hand
	inst    footprint.Instance
	part    Effect
	memory  *memory // nil: contents do not count
}

// kernel is what is known of a kernel of the trace.
type kernel struct {
	told    *trace.Kernel
	summary *footprint.Summary
	exact   bool // the summary is of the very code that runs
}

// New makes a Program that has seen nothing yet.
func New() *Program {
	return &Program{
		state: trace.NewState(), texts: map[trace.Digest][]byte{},
		known: map[trace.Digest]map[string]*footprint.Summary{}, kernels: map[uint32]*kernel{},
	}
}

// Text gives the PTX text with a digest, before the first kernel of it is applied.
func (p *Program) Text(d trace.Digest, text []byte) {
	if _, done := p.known[d]; !done {
		p.texts[d] = text
	}
}

// Apply takes note of a record. That of a kernel takes as long as its analysis.
func (p *Program) Apply(r trace.Record) {
	p.moves(r)
	p.state.Apply(r)
	switch r := r.(type) {
	case *trace.Alloc, *trace.Free:
		p.allocs = nil
	case *trace.Kernel:
		p.kernels[r.ID] = p.analyse(r)
	}
}

// State is what the program has, by the records so far.
func (p *Program) State() *trace.State { return p.state }

// analyse finds the summary of a kernel. The code that runs is PTX that the driver itself translates, or that the
// assembler of the cubin left in it; of other machine code, a PTX text beside it is a guess.
func (p *Program) analyse(k *trace.Kernel) *kernel {
	out := &kernel{told: k}
	if im := p.state.Image(k.Module); im != nil {
		refs := slices.Clone(im.Texts)
		slices.SortStableFunc(refs, func(a, b trace.TextRef) int { return int(b.Arch) - int(a.Arch) })
		for _, ref := range refs {
			if s := p.summaries(ref.Digest)[k.Name]; s != nil && fits(s, k) {
				out.summary, out.exact = s, p.Translated || im.Kind == trace.CodePTX || im.Flags&trace.Assembled != 0
				return out
			}
		}
	}
	params := make([]footprint.Param, len(k.Params))
	for i, q := range k.Params {
		params[i] = footprint.Param{Off: int(q.Offset), Size: int(q.Size)}
	}
	out.summary = footprint.Opaque(k.Name, params)
	return out
}

// fits reports whether a summary can be of that kernel: its parameters lie where the driver says.
func fits(s *footprint.Summary, k *trace.Kernel) bool {
	return k.Flags&trace.NoLayout != 0 || slices.EqualFunc(s.Params, k.Params,
		func(a footprint.Param, b trace.Param) bool {
			return a.Off == int(b.Offset) && a.Size == int(b.Size)
		})
}

// summaries analyses a text once.
func (p *Program) summaries(d trace.Digest) map[string]*footprint.Summary {
	if have, done := p.known[d]; done {
		return have
	}
	text, ok := p.texts[d]
	if !ok {
		return nil
	}
	delete(p.texts, d)
	have := map[string]*footprint.Summary{}
	p.known[d] = have
	m, err := ptx.Parse("", text)
	if err != nil {
		return have // newer than this parser, or broken: then nothing is known of its kernels
	}
	list, err := summarise.Module(m)
	if err != nil {
		return have
	}
	for _, s := range list {
		have[s.Name] = s
	}
	return have
}

// Launch says what a launch may do, whatever memory holds.
func (p *Program) Launch(l *trace.Launch, e *Effect) { p.evaluate(l, nil, false, e) }

// footprint is a launch as its summary wants it.
func (p *Program) footprint(l *trace.Launch) footprint.Launch {
	if p.allocs == nil {
		for _, a := range p.state.Allocs() {
			if a.Kind != trace.MemGlobal { // its kernels know it by name
				p.allocs = append(p.allocs, footprint.Range{Lo: a.Addr, Hi: a.Addr + a.Bytes})
			}
		}
	}
	return footprint.Launch{Grid: l.Grid, Block: l.Block, Cluster: l.Cluster, Shared: l.Shared, Params: l.Params,
		Allocs: p.allocs}
}

// evaluate is Launch with what is known of memory; false if nothing is known of the launch.
func (p *Program) evaluate(l *trace.Launch, known []footprint.Known, seeks bool, e *Effect) bool {
	e.reset()
	k := p.kernels[l.Kernel]
	if k == nil {
		e.Unknown("a kernel that is not known")
		return false
	}
	if l.Flags&trace.NoParams != 0 {
		e.Unknown(k.told.Name)
		return false
	}
	p.launch = p.footprint(l)
	p.launch.Known, p.launch.Seeks = known, seeks
	p.recent.Evaluate(k.summary, &p.launch, &p.inst)
	e.Name = k.told.Name
	e.Reads = append(e.Reads, p.inst.Reads...)
	e.Writes = append(e.Writes, p.inst.Writes...)
	e.Exact, e.Bounded = k.exact, !p.inst.WritesUnknown
	// A module's variables are the driver's memory, in no allocation; whoever brings a program back has brought them
	// back before it runs.
	e.Proven = k.exact && (!p.inst.ReadsUnknown || p.inst.ReadsVariables) && !p.inst.WritesUnknown
	return true
}

// Indexed reports whether a launch among the pieces has addresses that come from memory that it reads: then their
// ranges are all that it might touch.
func (p *Program) Indexed(pieces []Piece) bool {
	for _, piece := range pieces {
		if piece.Launch != nil && p.evaluate(piece.Launch, nil, true, &p.part) && len(p.inst.Wanted) > 0 {
			return true
		}
	}
	return false
}

// Copy says what a copy or a memset may do.
func (p *Program) Copy(c *trace.Copy, e *Effect) {
	e.reset()
	e.Name = "copy"
	if c.Flags&trace.Set != 0 {
		e.Name = "memset"
	} else if c.Flags&(trace.SrcHost|trace.SrcArray) == 0 {
		e.Reads = appendBox(e.Reads, box(c.Src, c.SrcPitch, c.SrcSlice, c))
	}
	if c.Flags&(trace.DstHost|trace.DstArray) == 0 {
		e.Writes = appendBox(e.Writes, box(c.Dst, c.DstPitch, c.DstSlice, c))
	}
}

// appendBox appends a range, unless it is empty: a copy of no bytes touches nothing.
func appendBox(list []footprint.Range, r footprint.Range) []footprint.Range {
	if r.Hi <= r.Lo {
		return list
	}
	return append(list, r)
}

// box is the range that holds all rows and slices of one side of a copy: to the end of all addresses if it does not
// fit.
func box(at, pitch, slice uint64, c *trace.Copy) footprint.Range {
	end, carry := bits.Add64(at, c.Width, 0)
	add := func(n, step uint64) {
		if n > 1 {
			high, low := bits.Mul64(n-1, step)
			var over uint64
			end, over = bits.Add64(end, low, 0)
			carry |= high | over
		}
	}
	add(c.Height, pitch)
	add(c.Depth, slice)
	if carry != 0 {
		end = ^uint64(0)
	}
	return footprint.Range{Lo: at, Hi: end}
}

// Join adds what another piece of work may do, which the first may run beside.
func (e *Effect) Join(other *Effect) {
	if e.Everything || other.Everything {
		e.Unknown(other.Name)
		return
	}
	e.Reads, e.Writes = footprint.Merge(append(e.Reads, other.Reads...)),
		footprint.Merge(append(e.Writes, other.Writes...))
	e.Proven, e.Exact, e.Bounded = e.Proven && other.Proven, e.Exact && other.Exact, e.Bounded && other.Bounded
}

// A Span is a part of an allocation (wire.Alloc) of a held program.
type Span struct {
	Block    uint64
	Off, Len uint64
}

// Spans appends what ranges mean in allocations. Addresses that are no held memory are left out.
func (p *Program) Spans(list []Span, ranges []footprint.Range) []Span {
	for _, r := range ranges {
		for _, sp := range p.held(r) {
			list = append(list, sp)
		}
	}
	return list
}

// held yields the held allocations that a range touches, and what it touches of each.
func (p *Program) held(r footprint.Range) iter.Seq2[*trace.Alloc, Span] {
	return func(yield func(*trace.Alloc, Span) bool) {
		allocs := p.state.Allocs()
		i := sort.Search(len(allocs), func(i int) bool { return allocs[i].Addr+allocs[i].Bytes > r.Lo })
		for ; i < len(allocs) && allocs[i].Addr < r.Hi; i++ {
			a := &allocs[i]
			if a.Block == 0 {
				continue
			}
			lo, hi := max(a.Addr, r.Lo), min(a.Addr+a.Bytes, r.Hi)
			if !yield(a, Span{Block: a.Block, Off: a.Offset + lo - a.Addr, Len: hi - lo}) {
				return
			}
		}
	}
}
