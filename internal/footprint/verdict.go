package footprint

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Evaluate finds what a launch reads and writes, and judges it. It allocates nothing once in
// has been used for as large a kernel.
func (s *Summary) Evaluate(l *Launch, in *Instance) {
	*in = Instance{Reads: in.Reads[:0], Writes: in.Writes[:0], s: s, m: in.m}
	m := &in.m
	m.launch, m.bad, m.p = l, false, &s.prog
	m.values, m.pieces = m.values[:0], m.pieces[:0]
	if s.refused != NoCause && s.opaque {
		in.unknown(s.refused, s.refusedAt)
		in.guess(s, l, true, true)
		in.finish()
		return
	}
	if !s.accepts(l) {
		in.unknown(BadLaunch, 0)
		in.guess(s, l, true, true)
		in.finish()
		return
	}
	for i := range 3 {
		m.cluster[i] = max(1, l.Cluster[i], s.cluster[i])
	}
	if !s.reads || len(l.Known) == 0 || s.guessWrites || !m.knowing(&s.tables) {
		m.evaluate(&s.prog)
	}
	if m.bad {
		in.unknown(BadLaunch, 0)
		in.guess(s, l, true, true)
		in.finish()
		return
	}
	in.ranges(s, l)
	in.judge(s)
	m.launch = nil
}

// evaluate finds the extents of all accesses.
func (m *machine) evaluate(p *program) {
	m.grow(p)
	if m.uniform(); m.bad {
		return
	}
	m.run()
}

// accepts reports whether a launch is one of this kernel.
func (s *Summary) accepts(l *Launch) bool {
	threads := uint64(1)
	for i := range 3 {
		if l.Grid[i] == 0 || l.Block[i] == 0 || l.Grid[i] > 1<<31-1 || i > 0 && l.Grid[i] > 65535 {
			return false
		}
		if int64(l.Block[i])-1 > s.maxTid[i] {
			return false
		}
		threads *= uint64(l.Block[i])
		if c := max(l.Cluster[i], s.cluster[i]); c > 1 && l.Grid[i]%c != 0 {
			return false
		}
	}
	return threads <= 1024 && len(l.Params) >= s.paramBytes
}

func (in *Instance) unknown(c Cause, at int) {
	if in.Cause == NoCause {
		in.Verdict, in.Cause, in.At = Unknown, c, at
	}
}

// ranges lists what is read and written.
func (in *Instance) ranges(s *Summary, l *Launch) {
	m := &in.m
	reads, writes := s.guessReads, s.guessWrites
	for _, i := range m.plan.order {
		a, r := &m.p.accs[i], &m.results[i]
		switch {
		case r.state == never:
		case r.state == boundless || r.region != 0:
			in.unplaced = in.unplaced || a.kind != isRead
			reads = reads || a.kind != isWrite
			writes = writes || a.kind != isRead
		default:
			read := a.kind != isWrite || a.atom != 0 // an exchange reads, but nobody sees what
			if r.p0 < r.p1 {
				part := m.pieces[r.p0:r.p1]
				if read {
					in.Reads = append(in.Reads, part...)
				}
				if a.kind != isRead {
					in.Writes = append(in.Writes, part...)
				}
				continue
			}
			if read {
				in.Reads = extend(in.Reads, r.lo, r.hi)
			}
			if a.kind != isRead {
				in.Writes = extend(in.Writes, r.lo, r.hi)
			}
		}
	}
	in.guess(s, l, reads, writes)
	in.finish()
}

// extend adds a range to a list; what touches the last one makes that larger.
func extend(list []Range, lo, hi uint64) []Range {
	if n := len(list); n > 0 {
		if last := &list[n-1]; lo <= last.Hi && last.Lo <= hi {
			last.Lo, last.Hi = min(last.Lo, lo), max(last.Hi, hi)
			return list
		}
	}
	return append(list, Range{lo, hi})
}

// guess adds the allocations that parameters point into, for accesses without bounds.
func (in *Instance) guess(s *Summary, l *Launch, reads, writes bool) {
	in.ReadsUnknown, in.WritesUnknown = reads, writes
	if !reads && !writes || len(l.Allocs) == 0 {
		return
	}
	first, end := l.Allocs[0].Lo, l.Allocs[len(l.Allocs)-1].Hi
	for at := 0; at+8 <= len(l.Params); at += 4 {
		p := binary.LittleEndian.Uint64(l.Params[at:])
		if p < first || p >= end {
			continue
		}
		r, ok := allocation(l.Allocs, p)
		if !ok {
			continue
		}
		if reads {
			in.Reads = extend(in.Reads, r.Lo, r.Hi)
		}
		if writes {
			in.Writes = extend(in.Writes, r.Lo, r.Hi)
		}
	}
}

// allocation finds the allocation that holds an address.
func allocation(list []Range, p uint64) (Range, bool) {
	lo, hi := 0, len(list)
	for lo < hi {
		mid := (lo + hi) / 2
		if list[mid].Hi <= p {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(list) && list[lo].Lo <= p {
		return list[lo], true
	}
	return Range{}, false
}

func (in *Instance) finish() {
	in.Reads = Merge(in.Reads)
	in.Writes = Merge(in.Writes)
}

// Merge sorts ranges, in place, and joins those that touch.
func Merge(list []Range) []Range {
	if len(list) < 2 {
		return list
	}
	sorted := true
	for i := 1; i < len(list) && sorted; i++ {
		sorted = list[i-1].Lo <= list[i].Lo
	}
	if sorted {
		// Nothing to do.
	} else if len(list) <= 512 {
		shellSort(list)
	} else {
		slices.SortFunc(list, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	}
	n := 0
	for _, r := range list[1:] {
		if r.Lo <= list[n].Hi {
			list[n].Hi = max(list[n].Hi, r.Hi)
			continue
		}
		n++
		list[n] = r
	}
	return list[:n+1]
}

// shellSort is D. Shell's sort with M. Ciura's gaps: for short lists without a function call for each
// comparison.
func shellSort(list []Range) {
	for _, gap := range [...]int{132, 57, 23, 10, 4, 1} {
		for i := gap; i < len(list); i++ {
			x := list[i]
			j := i
			for ; j >= gap && list[j-gap].Lo > x.Lo; j -= gap {
				list[j] = list[j-gap]
			}
			list[j] = x
		}
	}
}

// judge compares every write with every read that may see what was there before.
func (in *Instance) judge(s *Summary) {
	m := &in.m
	accs := m.p.accs
	wrote := false
	for _, i := range m.plan.writes {
		wrote = wrote || m.results[i].state != never
	}
	if s.refused != NoCause {
		in.unknown(s.refused, s.refusedAt)
		return
	}
	if !wrote {
		in.Verdict = Idempotent
		return
	}
	for _, i := range m.plan.writes {
		if in.Cause == NoCause && accs[i].kind == isUpdate && m.results[i].state != never {
			in.conflict(ReadModifyWrite, int(i), int(i))
		}
	}
	for i := range accs {
		if in.Cause != NoCause || !in.ReadsUnknown && !in.WritesUnknown {
			break // nothing is boundless
		}
		w, r := &accs[i], &m.results[i]
		if r.state == boundless && w.kind != isRead {
			in.unknown(UnboundedWrite, int(w.pos))
		}
		if r.state == boundless && w.kind == isRead && !w.hidden {
			in.unknown(UnboundedRead, int(w.pos))
		}
	}
	if in.Cause == NoCause {
		in.pairs(s)
	}
	if in.Cause == NoCause {
		in.Verdict = Idempotent
	}
}

// maxSeparations bounds how many pairs of accesses whose hulls meet are looked at more closely: a
// launch is judged in microseconds. What is left is a conflict.
const maxSeparations = 80

// pairs looks at every read, and at every write that it may meet.
func (in *Instance) pairs(s *Summary) {
	m := &in.m
	accs := m.p.accs
	looks := 0
	for _, j := range m.plan.reads {
		r, rr := &accs[j], &m.results[j]
		if rr.state == never || rr.region == 0 && !in.unplaced && !touches(in.Writes, rr.lo, rr.hi) {
			continue
		}
		for _, i := range m.plan.writes {
			w, wr := &accs[i], &m.results[i]
			if wr.state == never || !m.meets(wr, rr) {
				continue
			}
			if w.kind == isSettle && r.kind == isSettle && w.atom == r.atom {
				continue
			}
			if looks++; looks <= maxSeparations && m.separate(int(i), int(j)) {
				continue
			}
			in.conflict(ReadThenWrite, int(j), int(i))
			return
		}
	}
}

// touches reports whether the bytes from lo to hi have one in common with sorted ranges.
func touches(list []Range, lo, hi uint64) bool {
	i, j := 0, len(list)
	for i < j {
		mid := int(uint(i+j) >> 1)
		if list[mid].Hi <= lo {
			i = mid + 1
		} else {
			j = mid
		}
	}
	return i < len(list) && list[i].Lo < hi
}

// meets reports whether the hulls of two accesses have a byte in common.
func (m *machine) meets(a, b *extent) bool {
	if a.region != b.region {
		// A variable of the module is not in any allocation, nor in another variable.
		if a.region != 0 && b.region != 0 {
			return false
		}
		if a.region != 0 {
			a = b
		}
		r, ok := allocation(m.launch.Allocs, a.lo)
		return !ok || a.hi > r.Hi
	}
	return m.common(a, b)
}

// separate reports whether two accesses whose hulls meet have no byte in common all the same.
func (m *machine) separate(i, j int) bool {
	if m.results[i].whole || m.results[j].whole {
		return false
	}
	a, b := m.boxesOf(i), m.boxesOf(j)
	delta := b.base - a.base
	return a.ok[0] && b.ok[0] && apart(&a.box[0], &b.box[0], delta) || a.ok[1] && b.ok[1] && apart(&a.box[1], &b.box[1], delta)
}

// boxes are the strided boxes of an access, relative to base: with guards, and without.
type boxes struct {
	made uint32 // the launch that they were made for
	base int64
	box  [2]box
	ok   [2]bool
}

func (m *machine) boxesOf(i int) *boxes {
	x := &m.boxes[i]
	if x.made == m.launches {
		return x
	}
	x.made = m.launches
	a := &m.p.accs[i]
	f := &m.p.forms[a.form]
	x.base = m.regs[f.c] + a.off
	if f.sym > 0 && m.launch.Globals != nil {
		x.base += int64(m.launch.Globals[f.sym-1].Lo)
	}
	for v := range x.box {
		x.ok[v] = m.box(a, &m.plan.sites[m.plan.siteOf[i]], v == 0, &x.box[v])
	}
	return x
}

// conflict says that access r may read what access w overwrites.
func (in *Instance) conflict(c Cause, r, w int) {
	if in.Cause == NoCause && !in.witness(in.s, r, w) {
		in.unknown(c, int(in.m.p.accs[w].pos))
	}
}
