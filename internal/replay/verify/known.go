package verify

import (
	"fmt"
	"slices"

	"holdfast/internal/footprint"
	"holdfast/internal/recording"
)

// Kernels load indices and pointers from memory, and go where these say. The recording has what memory held when the
// range began; of what no work of it writes, a launch finds just that, in the first replay and in every later one.
//
// Which memory that is depends on what all launches write, and what these write may depend on it. So it is assumed of
// all memory that the other work does not write, and must come out: suppose that it were wrong, and take the first
// access, in any order in which the work may run, that is not in its footprint. Its address is made from what was read
// before it, and that is as assumed unless something has been written there before; which is in no footprint either.
// (Package footprint says the same of one launch.)

const (
	pageBytes  = 4 << 10 // tables are read in multiples of this, so that one does for many launches
	tableBytes = 4 << 20 // of the largest
	allBytes   = 64 << 20
	maxLooks   = 4 // a table may say where the next one is
	maxRounds  = 4
)

// contents is what memory holds that nothing writes.
type contents struct {
	f      *recording.File
	fixed  []fixed // by address
	tables map[footprint.Range]*footprint.Contents
	bytes  uint64
	err    error
}

// A fixed range is part of a region with contents, and is not written.
type fixed struct {
	footprint.Range
	region *recording.Region
}

// know looks at the launches that are not proven once more, with what memory holds.
func (c *checker) know() error {
	var writes []footprint.Range
	var open []int
	for i := range c.report.Items {
		x := &c.report.Items[i]
		switch {
		case x.Level == Proven:
			writes = append(writes, x.Writes...)
		case x.Level == ByArguments && c.tabled(x):
			open = append(open, i)
		default:
			return nil // it may write anything
		}
	}
	tables := map[footprint.Range]*footprint.Contents{}
	for round := 0; round < maxRounds && len(open) > 0; round++ {
		writes = footprint.Merge(writes)
		k := &contents{f: c.f, tables: tables}
		k.declare(c.m, writes)
		better, settled, err := c.again(open, k, writes)
		if err != nil {
			return err
		}
		for _, x := range better {
			if x.Level == ByArguments {
				return nil // nor would it be more with less that is known
			}
		}
		if settled {
			c.accept(open, better)
			return nil
		}
		for _, x := range better {
			writes = append(writes, x.Writes...)
		}
	}
	return nil
}

// again looks at launches with what memory holds. Settled says that what was assumed has come out: nothing writes what
// any of them relies on, and no launch writes what it was not known to write.
func (c *checker) again(open []int, k *contents, writes []footprint.Range) (better []Item, settled bool, err error) {
	var relied, more []footprint.Range
	refused := false
	for _, i := range open {
		x := c.report.Items[i]
		if c.launch(&x, k); k.err != nil {
			return nil, false, k.err
		}
		better = append(better, x)
		relied, more = append(relied, x.Relied...), append(more, x.Writes...)
		refused = refused || x.Level == Refused
	}
	all := footprint.Merge(append(slices.Clone(writes), more...))
	if refused { // perhaps only because the table that it loads from is not made yet
		return better, slices.Equal(all, writes), nil
	}
	return better, !common(footprint.Merge(relied), all), nil
}

// accept takes what was found. If a launch is refused, what others rest on is not known.
func (c *checker) accept(open []int, better []Item) {
	refused := slices.ContainsFunc(better, func(x Item) bool { return x.Level == Refused })
	for n, i := range open {
		if !refused || better[n].Level == Refused {
			c.report.Items[i] = better[n]
		}
	}
}

// tabled reports whether contents of memory may be of use to a launch.
func (c *checker) tabled(x *Item) bool {
	k := c.kernels[x.Kernel]
	return k.doubt == "" && len(k.summaries) > 0 &&
		!slices.ContainsFunc(k.summaries, func(s *footprint.Summary) bool { return s.GuessReads || s.GuessWrites })
}

func (k *contents) declare(m *recording.Manifest, writes []footprint.Range) {
	for i := range m.Memory {
		g := &m.Memory[i]
		if g.Contents == nil {
			continue
		}
		for _, r := range without(footprint.Range{Lo: uint64(g.Addr), Hi: uint64(g.Addr) + uint64(g.Bytes)}, writes) {
			k.fixed = append(k.fixed, fixed{r, g})
		}
	}
}

// evaluate is Summary.Evaluate with the tables that the launch asks for.
func (k *contents) evaluate(s *footprint.Summary, l *footprint.Launch, in *footprint.Instance) {
	l.Seeks = true
	var want []footprint.Range
	for look := 1; ; look++ {
		s.Evaluate(l, in)
		if len(in.Wanted) == 0 || look == maxLooks || k.err != nil {
			return
		}
		was := slices.Clone(want)
		for _, r := range in.Wanted {
			if r.Lo < r.Hi && r.Hi-r.Lo <= tableBytes && r.Hi <= topAddress {
				want = append(want, footprint.Range{Lo: r.Lo / pageBytes * pageBytes,
					Hi: (r.Hi + pageBytes - 1) / pageBytes * pageBytes})
			}
		}
		if want = footprint.Merge(want); slices.Equal(want, was) {
			return
		}
		l.Known = l.Known[:0]
		for _, r := range want {
			for _, x := range k.fixed {
				if part := (footprint.Range{Lo: max(r.Lo, x.Lo), Hi: min(r.Hi, x.Hi)}); part.Lo < part.Hi {
					if t := k.table(part, x.region); t != nil {
						l.Known = append(l.Known, footprint.Known{Range: part, Contents: t})
					}
				}
			}
		}
	}
}

// table sums up what a range of a region holds; nil if that is more than is looked at.
func (k *contents) table(r footprint.Range, g *recording.Region) *footprint.Contents {
	if t, ok := k.tables[r]; ok || k.bytes+(r.Hi-r.Lo) > allBytes {
		return t
	}
	k.bytes += r.Hi - r.Lo
	b, err := k.f.ReadAt(*g.Contents, int64(r.Lo-uint64(g.Addr)), int64(r.Hi-r.Lo))
	if err != nil {
		k.err = fmt.Errorf("region at %v: %w", g.Addr, err)
		return nil
	}
	k.tables[r] = footprint.NewContents(b, uint64(len(b)))
	return k.tables[r]
}
