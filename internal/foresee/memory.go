package foresee

import (
	"fmt"
	"iter"
	"slices"
	"sort"

	"holdfast/internal/footprint"
	"holdfast/internal/trace"
)

// Contents of memory bound what a launch touches through tables of indices and pointers. They come from one moment at
// which nothing of the program ran (a freeze): whoever has stopped the program can read what its memory held then. From
// that moment on all work that may write is told here before it runs, so a table is what it was as long as nothing that
// may write it has been told.
//
// Work is told in the order in which it asks, and that need not be the order in which it runs: what asks later may run
// earlier, on another stream, or at the same time. So two things follow from a table that a launch relies on. Work that
// was told before and may write it takes it away. And work that is told later and may write it is given, beside its own
// effect, what that launch may do if the table is not what it was: Effect.Owed. Whoever waits for an effect then has
// waited for both before the table can change.
//
// That this is enough: let all that was told since the moment be one heap of accesses in whatever order they happen,
// and take the first that is not in what was waited for when its work went. Its launch relied on a table that has
// changed, or else the footprint would hold. The write that changed it came before, so it lies in what was said of its
// work W. W was not told before the launch: the table would have been taken away. So it was told later, was given what
// the launch may do with any table at all, and did not go until that was waited for, and the access lies in that.

// A memory is what is known of the contents of a program's memory.
type memory struct {
	read   func(Span, []byte) error
	proofs bool
	gone   bool // nothing is known any more
	doubt  bool // that nothing else was written is so only if machine code does what the PTX beside it says

	written spanSet // since the moment, perhaps; and what was allocated or freed
	relied  spanSet // tables of work that may be under way
	owed    debt    // what that may do without them
	used    int     // pieces of work that relied on something

	tables map[Span]*footprint.Contents
	bytes  uint64 // that were read

	better, part   Effect
	known          []footprint.Known
	want, was      []footprint.Range
	relies         []footprint.Range
	spans, reliant []Span
}

// A debt is what all work may do that relies on contents, if these are not what they were.
type debt struct {
	reads, writes         spanSet
	any                   bool
	doubt, wide, unproven bool // not Exact, Bounded, Proven
}

const (
	pageBytes  = 4 << 10  // tables are read in multiples of this, so that one does for many launches
	tableBytes = 4 << 20  // of the largest: summing it up takes tens of milliseconds, and work waits
	allBytes   = 64 << 20 // of all
	maxTables  = 256      // that are kept, summed up in at most 40 KiB each
	maxSpans   = 4096     // of a set
	maxPieces  = 1024     // of a graph
	maxRounds  = 4        // a table may say where the next one is
)

// Remember makes contents of memory count from now on: read reads what held memory has at this moment, whenever it is
// called. No work is under way, and all that may write memory is given to Work before it runs, in the order in which it
// asks. With proofs, only what is proven counts; without, also what PTX beside machine code says.
func (p *Program) Remember(read func(Span, []byte) error, proofs bool) {
	p.memory = &memory{read: read, proofs: proofs, tables: map[Span]*footprint.Contents{}}
	for _, a := range p.state.Allocs() {
		p.memory.alias(&a)
	}
}

// Forget ends that: nothing is known any more. What is owed stays owed.
func (p *Program) Forget() {
	if p.memory != nil {
		p.memory.forget()
	}
}

// Used is how many pieces of work were foreseen with contents of memory.
func (p *Program) Used() int {
	if p.memory == nil {
		return 0
	}
	return p.memory.used
}

func (m *memory) forget() { m.gone, m.tables, m.written = true, nil, nil }

// alias forgets everything if memory that is not held is mapped: it may be held memory by another name.
func (m *memory) alias(a *trace.Alloc) {
	if a.Kind == trace.MemMapped && a.Block == 0 {
		m.forget()
	}
}

// moves takes note of memory that comes or goes, before the state does: what was at its address, and what will be,
// count as written.
func (p *Program) moves(r trace.Record) {
	m := p.memory
	if m == nil || m.gone {
		return
	}
	m.spans = m.spans[:0]
	switch r := r.(type) {
	case *trace.Alloc:
		m.alias(r)
		if r.Block != 0 {
			m.spans = append(m.spans, Span{r.Block, r.Offset, r.Bytes})
		}
		m.spans = p.Spans(m.spans, []footprint.Range{{Lo: r.Addr, Hi: max(r.Addr, r.Addr+r.Bytes)}})
	case *trace.Free:
		n := r.Bytes
		if a := p.state.At(r.Addr); a != nil {
			n = max(n, a.Bytes)
		}
		m.spans = p.Spans(m.spans, []footprint.Range{{Lo: r.Addr, Hi: max(r.Addr, r.Addr+n)}})
	}
	m.write(m.spans)
}

func (m *memory) write(list []Span) {
	if m.gone {
		return
	}
	if m.written.add(list); len(m.written) > maxSpans {
		m.forget()
	}
}

// enough reports whether an effect says all that matters: what is written or, with proofs, everything.
func (m *memory) enough(e *Effect) bool { return e.Bounded && (e.Proven || !m.proofs) }

// A Piece is something that a piece of work does.
type Piece struct {
	Launch *trace.Launch // or
	Copy   *trace.Copy
}

// Work says what a piece of work may do: all of its pieces, in any order. opaque, if not empty, says why it may do more
// than that. settled (nil: never) reports whether nothing would have to wait for such an effect; contents of memory are
// looked at only if something would.
func (p *Program) Work(name string, pieces []Piece, opaque string, settled func(*Effect) bool, e *Effect) {
	e.Nothing(name)
	for i, piece := range pieces {
		p.piece(piece, false, &p.part)
		if i == 0 {
			e.Name = p.part.Name
		}
		e.Join(&p.part)
	}
	if opaque != "" {
		e.Unknown(fmt.Sprintf("%s (%s)", name, opaque))
	}
	m := p.memory
	if m == nil {
		return
	}
	if m.gone || e.Everything || len(pieces) > maxPieces || m.enough(e) && settled != nil && settled(e) ||
		!p.refine(pieces) {
		p.told(e)
		return
	}
	m.used++
	m.better.Name = e.Name
	p.told(&m.better)
	m.relied.add(m.reliant)
	m.owed.add(p, e)
	*e, m.better = m.better, *e
}

func (p *Program) piece(piece Piece, knowing bool, e *Effect) {
	switch {
	case piece.Copy != nil:
		p.Copy(piece.Copy, e)
	case piece.Launch == nil:
		e.reset()
	case knowing:
		p.launchKnowing(piece.Launch, e)
	default:
		p.Launch(piece.Launch, e)
	}
}

// told takes note of work that goes as soon as its effect allows it.
func (p *Program) told(e *Effect) {
	m := p.memory
	m.spans = p.Spans(m.spans[:0], e.Writes)
	if m.owed.any && (!e.Bounded || m.relied.meets(m.spans)) {
		m.owed.joinTo(e)
	}
	m.doubt = m.doubt || !e.Exact
	if !e.Bounded || m.proofs && !e.Exact {
		m.forget()
	}
	m.write(m.spans)
	m.write(e.Owed.Writes)
}

// refine makes better what the pieces may do with what is known, and reliant what that rests on; false if it is of no
// use.
func (p *Program) refine(pieces []Piece) bool {
	m := p.memory
	m.relies = m.relies[:0]
	b := &m.better
	b.reset()
	for _, piece := range pieces {
		p.piece(piece, true, &m.part)
		b.Join(&m.part)
	}
	if len(m.relies) == 0 || !m.enough(b) || len(m.relied) > maxSpans ||
		len(m.owed.reads)+len(m.owed.writes) > maxSpans {
		return false
	}
	m.reliant = p.Spans(m.reliant[:0], footprint.Merge(m.relies))
	var on spanSet
	on.add(m.reliant)
	// Another piece may write what one relies on; and what it relies on may be written by work that this one makes do
	// what it was not to do.
	m.spans = p.Spans(m.spans[:0], b.Writes)
	if on.meets(m.spans) {
		return false
	}
	return !m.owed.any || !m.relied.meets(m.spans) || !m.owed.wide && !on.meets(m.owed.writes)
}

// launchKnowing is Launch with what is known of memory. Tables are read as the launch asks for them.
func (p *Program) launchKnowing(l *trace.Launch, e *Effect) {
	m := p.memory
	m.want, m.known = m.want[:0], m.known[:0]
	for round := 1; ; round++ {
		if !p.evaluate(l, m.known, true, e) || len(p.inst.Wanted) == 0 || round == maxRounds {
			break
		}
		m.was = append(m.was[:0], m.want...)
		for _, r := range p.inst.Wanted {
			if r.Hi-r.Lo <= tableBytes && r.Hi <= ^uint64(0)-pageBytes {
				m.want = append(m.want, footprint.Range{Lo: r.Lo &^ (pageBytes - 1),
					Hi: (r.Hi + pageBytes - 1) &^ (pageBytes - 1)})
			}
		}
		if m.want = footprint.Merge(m.want); slices.Equal(m.want, m.was) {
			break
		}
		p.read()
	}
	if !e.Everything && len(p.inst.Relied) > 0 {
		m.relies = append(m.relies, p.inst.Relied...)
		e.Proven = e.Proven && !m.doubt
	}
}

// read makes known what is known of what is wanted.
func (p *Program) read() {
	m := p.memory
	m.known = m.known[:0]
	for _, r := range m.want {
		for a, touched := range p.held(r) {
			for sp := range m.written.without(touched) {
				if c := m.table(sp); c != nil {
					at := a.Addr + sp.Off - a.Offset
					m.known = append(m.known, footprint.Known{Range: footprint.Range{Lo: at, Hi: at + sp.Len},
						Contents: c})
				}
			}
		}
	}
}

// table sums up what a part of memory holds; nil if that is not known.
func (m *memory) table(sp Span) *footprint.Contents {
	c, ok := m.tables[sp]
	if ok || sp.Len > tableBytes || m.bytes+sp.Len > allBytes {
		return c
	}
	m.bytes += sp.Len
	b := make([]byte, sp.Len)
	if err := m.read(sp, b); err == nil {
		c = footprint.NewContents(b, sp.Len)
	}
	if len(m.tables) == maxTables {
		clear(m.tables)
	}
	m.tables[sp] = c
	return c
}

// add adds what work may do that relies on contents.
func (d *debt) add(p *Program, e *Effect) {
	d.any = true
	d.reads.add(p.Spans(nil, e.Reads))
	d.writes.add(p.Spans(nil, e.Writes))
	d.doubt = d.doubt || !e.Exact
	d.wide = d.wide || !e.Bounded
	d.unproven = d.unproven || !e.Proven
}

func (d *debt) joinTo(e *Effect) {
	e.Owed.Reads, e.Owed.Writes = append(e.Owed.Reads[:0], d.reads...), append(e.Owed.Writes[:0], d.writes...)
	e.Exact = e.Exact && !d.doubt
	e.Bounded = e.Bounded && !d.wide
	e.Proven = e.Proven && !d.unproven
}

// A spanSet is memory: sorted spans that do not touch each other.
type spanSet []Span

// from finds the first span that ends at off or later, or is of a later block.
func (s spanSet) from(block, off uint64) int {
	return sort.Search(len(s), func(i int) bool {
		return s[i].Block > block || s[i].Block == block && s[i].Off+s[i].Len >= off
	})
}

func (s *spanSet) add(list []Span) {
	for _, sp := range list {
		if sp.Len == 0 {
			continue
		}
		lo, hi := sp.Off, sp.Off+sp.Len
		i := s.from(sp.Block, lo)
		j := i
		for ; j < len(*s) && (*s)[j].Block == sp.Block && (*s)[j].Off <= hi; j++ {
			lo, hi = min(lo, (*s)[j].Off), max(hi, (*s)[j].Off+(*s)[j].Len)
		}
		if j == i+1 && (*s)[i] == (Span{sp.Block, lo, hi - lo}) {
			continue
		}
		*s = slices.Replace(*s, i, j, Span{sp.Block, lo, hi - lo})
	}
}

func (s spanSet) meets(list []Span) bool {
	for _, sp := range list {
		if i := s.from(sp.Block, sp.Off+1); sp.Len > 0 && i < len(s) && s[i].Block == sp.Block &&
			s[i].Off < sp.Off+sp.Len {
			return true
		}
	}
	return false
}

// without is a span without what is in the set.
func (s spanSet) without(sp Span) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		at, end := sp.Off, sp.Off+sp.Len
		for i := s.from(sp.Block, at+1); i < len(s) && s[i].Block == sp.Block && s[i].Off < end; i++ {
			if s[i].Off > at && !yield(Span{sp.Block, at, s[i].Off - at}) {
				return
			}
			at = s[i].Off + s[i].Len
		}
		if at < end {
			yield(Span{sp.Block, at, end - at})
		}
	}
}
