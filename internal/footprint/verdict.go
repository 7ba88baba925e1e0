package footprint

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// Evaluate finds what a launch reads and writes, and judges it. It allocates nothing once in
// has been used for as large a kernel.
func (s *Summary) Evaluate(l *Launch, in *Instance) {
	in.reset(s)
	m := &in.m
	m.launch, m.bad, m.p = l, false, &s.Code
	m.beyond, m.walk.tried = false, false
	m.values, m.pieces = m.values[:0], m.pieces[:0]
	if s.Refused != NoCause && s.IsOpaque {
		in.unknown(s.Refused, s.refusedAt)
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
		m.cluster[i] = max(1, l.Cluster[i], s.Cluster[i])
	}
	if !in.knows(s, l) {
		m.evaluate(&s.Code)
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

// reset makes room for a launch of a kernel.
func (in *Instance) reset(s *Summary) {
	in.Verdict, in.Cause, in.At, in.Witness = Unknown, NoCause, 0, Witness{}
	in.Reads, in.Writes, in.Relied, in.Wanted = in.Reads[:0], in.Writes[:0], in.Relied[:0], in.Wanted[:0]
	in.ReadsUnknown, in.WritesUnknown, in.ReadsVariables, in.unplaced, in.s = false, false, false, false, s
}

// asks reports whether a launch looks for contents of memory.
func (s *Summary) asks(l *Launch) bool {
	return s.HasTables && !s.GuessWrites && (len(l.Known) > 0 || l.Seeks)
}

// knows reports whether contents of memory were of use, and have been used.
func (in *Instance) knows(s *Summary, l *Launch) bool {
	if !s.asks(l) {
		return false
	}
	known := in.m.knowing(&s.KnowingCode)
	if known {
		in.Relied = Merge(append(in.Relied, in.m.relied...))
	}
	if l.Seeks {
		in.Wanted = Merge(append(in.Wanted, in.m.wanted...))
	}
	return known
}

// evaluate finds the extents of all accesses.
func (m *machine) evaluate(p *Program) {
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
		if int64(l.Block[i])-1 > s.MaxTid[i] {
			return false
		}
		threads *= uint64(l.Block[i])
		if c := max(l.Cluster[i], s.Cluster[i]); c > 1 && l.Grid[i]%c != 0 {
			return false
		}
	}
	return threads <= 1024 && len(l.Params) >= s.ParamBytes
}

func (in *Instance) unknown(c Cause, at int) {
	if in.Cause == NoCause {
		in.Verdict, in.Cause, in.At = Unknown, c, at
	}
}

// ranges lists what is read and written.
func (in *Instance) ranges(s *Summary, l *Launch) {
	m := &in.m
	reads, writes, variables := s.GuessReads, s.GuessWrites, false
	list := in.Reads
	for _, i := range m.plan.readers {
		r := &m.results[i]
		if r.state == boxed && r.region == 0 {
			list = m.spread(list, r)
		} else if r.state != never && m.p.Accs[i].Kind == IsRead && r.inVariable(s) {
			variables = true
		} else if r.state != never {
			reads = reads || m.p.Accs[i].Kind != IsWrite
		}
	}
	in.Reads, list = list, in.Writes
	for _, i := range m.plan.writers {
		r := &m.results[i]
		if r.state == boxed && r.region == 0 {
			list = m.spread(list, r)
		} else if r.state != never {
			in.unplaced, writes = true, true
		}
	}
	in.Writes = list
	in.guess(s, l, reads, writes)
	in.readsVariables(variables)
	in.finish()
}

func (in *Instance) readsVariables(some bool) {
	if some && !in.ReadsUnknown {
		in.ReadsUnknown, in.ReadsVariables = true, true
	}
}

// inVariable reports whether an access lies within a variable of the module, wherever that is.
func (r *extent) inVariable(s *Summary) bool {
	if r.state != boxed || r.region < 1 || int(r.region) > len(s.Globals) {
		return false
	}
	size := s.Globals[r.region-1].Size
	return size > 0 && r.lo >= variableBase && r.hi <= variableBase+uint64(size)
}

// spread adds the bytes of an extent to a list.
func (m *machine) spread(list []Range, r *extent) []Range {
	if r.p0 < r.p1 {
		return append(list, m.pieces[r.p0:r.p1]...)
	}
	return extend(list, r.lo, r.hi)
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
	m := &in.m
	m.hit = resize(m.hit, (len(l.Allocs)+63)/64)
	clear(m.hit)
	first, end := l.Allocs[0].Lo, l.Allocs[len(l.Allocs)-1].Hi
	for at := 0; at+8 <= len(l.Params); at += 4 {
		p := binary.LittleEndian.Uint64(l.Params[at:])
		if p < first || p >= end {
			continue
		}
		if i := atOrBelow(l.Allocs, p); p < l.Allocs[i].Hi {
			m.hit[i>>6] |= 1 << (i & 63)
		}
	}
	m.whole = m.whole[:0]
	for i, x := range m.hit {
		for ; x != 0; x &= x - 1 {
			r := l.Allocs[i<<6+bits.TrailingZeros64(x)]
			m.whole = extend(m.whole, r.Lo, r.Hi)
		}
	}
	if len(m.whole) == 0 {
		return
	}
	if reads {
		in.Reads = widen(in.Reads, m.whole)
	}
	if writes {
		in.Writes = widen(in.Writes, m.whole)
	}
}

// widen adds sorted ranges to a list, and leaves out what lies in them.
func widen(list, whole []Range) []Range {
	n := 0
	for _, r := range list {
		if w := whole[atOrBelow(whole, r.Lo)]; r.Lo < w.Lo || w.Hi < r.Hi {
			list[n] = r
			n++
		}
	}
	return append(list[:n], whole...)
}

// atOrBelow is the last of sorted ranges that does not begin above an address, or the first one.
func atOrBelow(list []Range, p uint64) int {
	i := 0
	for n := len(list); n > 1; {
		half := n >> 1
		if list[i+half].Lo <= p {
			i += half
		}
		n -= half
	}
	return i
}

// allocation finds the allocation that holds an address.
func allocation(list []Range, p uint64) (Range, bool) {
	if len(list) == 0 {
		return Range{}, false
	}
	r := list[atOrBelow(list, p)]
	return r, r.Lo <= p && p < r.Hi
}

func (in *Instance) finish() {
	in.Reads = in.m.merge(in.Reads)
	in.Writes = in.m.merge(in.Writes)
}

// Merge sorts ranges, in place, and joins those that touch.
func Merge(list []Range) []Range {
	slices.SortFunc(list, byAddress)
	return joined(list)
}

func byAddress(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) }

// joined joins the ranges of a sorted list that touch.
func joined(list []Range) []Range {
	if len(list) < 2 {
		return list
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

// merge is Merge with memory of the machine.
func (m *machine) merge(list []Range) []Range {
	m.sort(list)
	return joined(list)
}

// sort sorts ranges, in place. If there are many, it sorts addresses with places in the list, one number each.
func (m *machine) sort(list []Range) {
	sorted := true
	for i := 1; i < len(list) && sorted; i++ {
		sorted = list[i-1].Lo <= list[i].Lo
	}
	const low = 12
	switch {
	case sorted:
		return
	case len(list) <= 12:
		for i := 1; i < len(list); i++ {
			x := list[i]
			j := i
			for ; j > 0 && list[j-1].Lo > x.Lo; j-- {
				list[j] = list[j-1]
			}
			list[j] = x
		}
		return
	case len(list) > 1<<low:
		slices.SortFunc(list, byAddress)
		return
	}
	n := len(list)
	m.keys, m.spare, m.unsorted = resize(m.keys, n), resize(m.spare, n), append(m.unsorted[:0], list...)
	for i, r := range list {
		if r.Lo>>(64-low) != 0 {
			slices.SortFunc(list, byAddress)
			return
		}
		m.keys[i] = r.Lo<<low | uint64(i)
	}
	for i, k := range sortKeys(m.keys, m.spare) {
		list[i] = m.unsorted[k&(1<<low-1)]
	}
}

// sortKeys sorts keys, there or in spare: runs of a few, then two and two runs together, without a branch on what is
// compared.
func sortKeys(keys, spare []uint64) []uint64 {
	const run = 6
	for at := 0; at < len(keys); at += run {
		part := keys[at:min(at+run, len(keys))]
		for i := 1; i < len(part); i++ {
			x := part[i]
			j := i
			for ; j > 0 && part[j-1] > x; j-- {
				part[j] = part[j-1]
			}
			part[j] = x
		}
	}
	for size := run; size < len(keys); size *= 2 {
		for at := 0; at < len(keys); at += 2 * size {
			mid, end := min(at+size, len(keys)), min(at+2*size, len(keys))
			a, b, out := keys[at:mid], keys[mid:end], spare[at:end]
			if len(b) == 0 || a[len(a)-1] <= b[0] {
				copy(out, keys[at:end])
				continue
			}
			i, j := 0, 0
			for k := range out {
				if i == len(a) || j == len(b) {
					copy(out[k:], a[i:])
					copy(out[k+len(a)-i:], b[j:])
					break
				}
				x, y := a[i], b[j]
				less := 0
				if y < x {
					x, less = y, 1
				}
				out[k] = x
				j += less
				i += 1 - less
			}
		}
		keys, spare = spare, keys
	}
	return keys
}

// judge compares every write with every read that may see what was there before.
func (in *Instance) judge(s *Summary) {
	m := &in.m
	accs := m.p.Accs
	wrote := false
	for _, i := range m.plan.writes {
		wrote = wrote || m.results[i].state != never
	}
	if s.Refused != NoCause {
		in.unknown(s.Refused, s.refusedAt)
		return
	}
	if !wrote {
		in.Verdict = Idempotent
		return
	}
	for _, i := range m.plan.updates {
		if in.Cause == NoCause && m.results[i].state != never && !m.covered(int(i)) {
			in.conflict(ReadModifyWrite, int(i), int(i))
		}
	}
	for i := range accs {
		if in.Cause != NoCause || !in.ReadsUnknown && !in.WritesUnknown {
			break // nothing is boundless
		}
		w, r := &accs[i], &m.results[i]
		if r.state == boundless && w.Kind != IsRead {
			in.unknown(UnboundedWrite, int(w.Pos))
		}
		if r.state == boundless && w.Kind == IsRead && !w.Hidden {
			in.unknown(UnboundedRead, int(w.Pos))
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
	accs := m.p.Accs
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
			if w.Kind == IsSettle && r.Kind == IsSettle && w.Atom == r.Atom {
				continue
			}
			if looks++; looks <= maxSeparations && m.separate(int(i), int(j)) {
				continue
			}
			if m.covered(int(j)) {
				break
			}
			in.conflict(ReadThenWrite, int(j), int(i))
			return
		}
	}
}

// touches reports whether the bytes from lo to hi have one in common with sorted ranges that do not overlap.
func touches(list []Range, lo, hi uint64) bool {
	if len(list) == 0 {
		return false
	}
	r := list[atOrBelow(list, hi-1)]
	return r.Lo < hi && lo < r.Hi
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
	if m.results[i].whole || m.results[j].whole || m.results[i].region != m.results[j].region {
		return false
	}
	a, b := m.boxesOf(i), m.boxesOf(j)
	delta := b.base - a.base
	if a.ok[0] && b.ok[0] && apart(&a.box[0], &b.box[0], delta) {
		return true
	}
	x, y := a.free(), b.free()
	if x+y > 0 && a.ok[x] && b.ok[y] && apart(&a.box[x], &b.box[y], delta) {
		return true
	}
	return a.ok[0] && b.ok[0] && !m.search.meet(&a.box[0], &b.box[0], delta)
}

// boxes are the strided boxes of an access, relative to base: with guards, and without.
type boxes struct {
	made uint32 // the launch that they were made for
	base int64
	box  [2]box
	ok   [2]bool
	both bool // they differ
}

// free is the index of the box without guards.
func (x *boxes) free() int {
	if x.both {
		return 1
	}
	return 0
}

func (m *machine) boxesOf(i int) *boxes {
	x := &m.boxes[i]
	if x.made == m.launches {
		return x
	}
	x.made = m.launches
	a := &m.p.Accs[i]
	f := &m.p.Forms[a.Form]
	x.base = m.regs[f.C] + a.Off
	if f.Sym > 0 && m.launch.Globals != nil {
		x.base += int64(m.launch.Globals[f.Sym-1].Lo)
	}
	site := &m.plan.sites[m.plan.siteOf[i]]
	x.both = false
	for _, g := range m.gsnap[site.gsnap:][:site.d1-site.d0] {
		x.both = x.both || !g.Empty()
	}
	x.ok[0] = m.box(a, site, true, &x.box[0])
	if x.both {
		x.ok[1] = m.box(a, site, false, &x.box[1])
	}
	return x
}

// conflict says that access r may read what access w overwrites.
func (in *Instance) conflict(c Cause, r, w int) {
	if in.Cause == NoCause && !in.witness(in.s, r, w) {
		in.unknown(c, int(in.m.p.Accs[w].Pos))
	}
}
