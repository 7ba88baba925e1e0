package footprint

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"reflect"
	"slices"

	"holdfast/internal/footprint/form"
)

// A Recent remembers what launches do, for programs that make similar ones again and again: with the same geometry and
// the same numbers, and with the same or with other pointers. What it says is what Evaluate says. It takes up to two
// megabytes and allocates nothing once it has been used. The zero value remembers nothing yet. It is for one goroutine
// at a time; several may have one each for the same summaries.
//
// An entry holds the ranges of a launch relative to its bases (bases.go). Bases whose ranges have addresses in common,
// or between those of the other, are a cluster: they must keep their distances. A launch whose clusters lie apart is
// the remembered one, each cluster moved by itself, because
//
//   - whatever is computed for a launch from something else than bases is the same, and addresses are sums of one base
//     and that;
//   - two accesses that meet are in one cluster, in both launches, and whether a search finds them apart depends on the
//     distance alone;
//   - a thread that is followed to find a witness makes its accesses within their extents, so only accesses of one
//     cluster meet there, too.
//
// The last does not hold where some access has no extent: if a witness was looked for all the same, all bases must be
// where they were. The same goes for launches of which some address is beyond those that there are.
//
// A variable of the module whose address is not known is in no allocation, so reads of it meet no write that stays
// inside one: such an entry is for launches all of whose clusters do.
//
// Contained launches are not remembered, nor are those for which contents of memory are known or sought and of use, and
// those that write variables whose addresses are not known.
type Recent struct {
	Hits, Misses uint64 // launches that were remembered, or not

	sets  [][recentWays]recentSlot
	words []uint64 // entries, one behind the other, around and around
	next  uint64   // words that were ever written

	key      []uint64
	bases    []uint64 // their values; base 0 is address 0
	hulls    []hull
	clusters []Range
	spans    []baseSpan
	starts   []uint64 // what is sorted, and how
	order    []int32
	present  []int32
}

type recentSlot struct {
	s    *Summary
	hash uint64
	at   uint64 // of the words that were ever written
}

const (
	recentWays  = 4
	recentSets  = 1 << 11
	recentMore  = 8 // sets for one kernel with the same numbers
	recentWords = 1 << 18
	recentMost  = 1 << 12 // words of an entry
)

// A hull is all that a launch touches by one base.
type hull struct{ lo, hi uint64 }

// A baseSpan is what accesses touch by one base.
type baseSpan struct {
	Range
	base int32
}

// The words of an entry: its head, the key, clusters (the first of their bases, where they begin and end), what else is
// in clusters (the base and the first one of its cluster, the distance between them), reads and writes (base, begin,
// end). If bases must not move, they are in a cluster with address 0.
const (
	headVerdict = iota // and cause, flags, the base of the witness
	headAt
	headWitness
	headByte
	headCounts // of clusters, others, reads and writes, 16 bits each
	headWords
)

const (
	flagReadsUnknown = 1 << iota
	flagWritesUnknown
	flagInside // clusters have to lie in allocations
	flagReadsVariables
)

// Evaluate is Summary.Evaluate.
func (r *Recent) Evaluate(s *Summary, l *Launch, in *Instance) {
	pl := &s.Code.plan
	if !pl.repeats || s.Refused != NoCause && s.IsOpaque || l.Contained || s.asks(l) ||
		len(l.Params) < max(s.ParamBytes, int(pl.least)) {
		r.Misses++
		s.Evaluate(l, in)
		return
	}
	if r.sets == nil {
		r.sets, r.words = make([][recentWays]recentSlot, recentSets), make([]uint64, recentWords)
	}
	hash := r.read(s, l)
	var set *[recentWays]recentSlot
	// a set that is full of such launches, with other distances, goes on in another one
	for n := range uint64(recentMore) {
		set = &r.sets[(hash+n*(recentSets/recentMore+1))%recentSets]
		same := 0
		for i := range set {
			x := &set[i]
			if x.s != s || x.hash != hash || r.next-x.at > recentWords {
				continue
			}
			if r.again(r.words[x.at%recentWords:], l, in) {
				in.s = s
				r.Hits++
				return
			}
			same++
		}
		if same < len(set) {
			break
		}
	}
	r.Misses++
	s.Evaluate(l, in)
	if at, ok := r.keep(in, l); ok {
		oldest := &set[0]
		for i := range set[1:] {
			if set[i+1].at < oldest.at || set[i+1].s == nil {
				oldest = &set[i+1]
			}
		}
		*oldest = recentSlot{s, hash, at}
	}
}

// Forget makes r remember nothing, and keep its memory.
func (r *Recent) Forget() {
	clear(r.sets)
}

// read finds the key of a launch and its bases.
func (r *Recent) read(s *Summary, l *Launch) uint64 {
	pl := &s.Code.plan
	p := l.Params
	pair := func(a, b uint32) uint64 { return uint64(a) | uint64(b)<<32 }
	key := append(r.key[:0], pair(l.Grid[0], l.Block[0]), pair(l.Grid[1], l.Block[1]), pair(l.Grid[2], l.Block[2]),
		pair(l.Shared, l.Cluster[0]), pair(l.Cluster[1], l.Cluster[2]))
	for _, w := range pl.key {
		var x uint64
		if int(w.off)+8 <= len(p) {
			x = binary.LittleEndian.Uint64(p[w.off:])
		} else {
			var last [8]byte
			copy(last[:], p[w.off:])
			x = binary.LittleEndian.Uint64(last[:])
		}
		key = append(key, x&w.mask)
	}
	if len(s.Globals) > 0 {
		key = append(key, uint64(len(l.Globals)), uint64(form.Truth(l.Globals != nil)))
		for _, g := range l.Globals {
			key = append(key, g.Lo)
		}
	}
	r.key = key
	h := uint64(reflect.ValueOf(s).Pointer()) // kernels are often copies of each other
	for _, x := range key {
		hi, lo := bits.Mul64(h^x^0x9e3779b97f4a7c15, 0xa0761d6478bd642f)
		h = hi ^ lo
	}
	r.bases = append(r.bases[:0], 0)
	for _, off := range pl.bases {
		r.bases = append(r.bases, binary.LittleEndian.Uint64(p[off:]))
	}
	return h
}

// again makes an instance of an entry, if it is the same launch but for bases and its clusters lie apart.
func (r *Recent) again(e []uint64, l *Launch, in *Instance) bool {
	n := headWords + len(r.key)
	if len(e) < n || !slices.Equal(e[headWords:n], r.key) {
		return false
	}
	counts := e[headCounts]
	clusters, others := int(counts&0xffff), int(counts>>16&0xffff)
	reads, writes := int(counts>>32&0xffff), int(counts>>48)
	base := r.bases
	rest := e[n+3*clusters:]
	for ; others > 0; others, rest = others-1, rest[2:] {
		if base[rest[0]&0xffff]-base[rest[0]>>16] != rest[1] {
			return false
		}
	}
	last, sorted := uint64(0), true
	for x := e[n:]; clusters > 0; clusters, x = clusters-1, x[3:] {
		lo, hi := base[x[0]]+x[1], base[x[0]]+x[2]
		if lo >= hi || hi > 1<<63 {
			return false
		}
		sorted = sorted && lo >= last
		last = hi
	}
	if !sorted && !r.lieApart(e[n:], int(counts&0xffff), &in.m) {
		return false
	}
	v := e[headVerdict]
	flags := v >> 16 & 0xff
	if flags&flagInside != 0 && !r.inside(e[n:], int(counts&0xffff), l.Allocs) {
		return false
	}
	in.reset(nil)
	in.Verdict, in.Cause, in.At = Verdict(v), Cause(v>>8), int(e[headAt])
	if in.Verdict == NotIdempotent {
		w := e[headWitness]
		in.Witness = Witness{Read: int(int32(w)), Write: int(int32(w >> 32)), Byte: base[v>>32] + e[headByte]}
	}
	list := in.Reads
	for ; reads > 0; reads, rest = reads-1, rest[3:] {
		b := base[rest[0]]
		list = append(list, Range{b + rest[1], b + rest[2]})
	}
	in.Reads, list = list, in.Writes
	for ; writes > 0; writes, rest = writes-1, rest[3:] {
		b := base[rest[0]]
		list = append(list, Range{b + rest[1], b + rest[2]})
	}
	in.Writes = list
	if flags&(flagReadsUnknown|flagWritesUnknown) != 0 {
		in.guess(nil, l, flags&flagReadsUnknown != 0, flags&flagWritesUnknown != 0)
	}
	in.readsVariables(flags&flagReadsVariables != 0)
	in.finish()
	return true
}

// lieApart reports whether no two clusters have addresses in common, in whatever order they lie.
func (r *Recent) lieApart(e []uint64, n int, m *machine) bool {
	list := r.clusters[:0]
	for ; n > 0; n, e = n-1, e[3:] {
		b := r.bases[e[0]]
		list = append(list, Range{b + e[1], b + e[2]})
	}
	r.clusters = list
	m.sort(list)
	for i := 1; i < len(list); i++ {
		if list[i].Lo < list[i-1].Hi {
			return false
		}
	}
	return true
}

// inside reports whether each cluster lies in one allocation.
func (r *Recent) inside(e []uint64, n int, allocs []Range) bool {
	for ; n > 0; n, e = n-1, e[3:] {
		b := r.bases[e[0]]
		if a, ok := allocation(allocs, b+e[1]); !ok || b+e[2] > a.Hi {
			return false
		}
	}
	return true
}

// keep writes the entry of an instance that was just evaluated, and says where; false if it cannot be remembered.
func (r *Recent) keep(in *Instance, l *Launch) (at uint64, ok bool) {
	m := &in.m
	pl := m.plan
	if in.Cause == BadLaunch || m.bad {
		return 0, false
	}
	if in.s.GuessWrites && m.walk.tried {
		return 0, false // a witness would depend on allocations
	}
	variables, wild := false, false // reads of variables somewhere, and writes that may be anywhere
	still := m.beyond || m.walk.tried && (in.ReadsUnknown || in.WritesUnknown)
	r.hulls = resize(r.hulls, len(r.bases))
	clear(r.hulls)
	for i := range m.results {
		x := &m.results[i]
		if x.region != 0 && x.state != never {
			if m.p.Accs[i].Kind != IsRead {
				return 0, false
			}
			variables = true
			continue
		}
		if x.state != boxed {
			wild = wild || x.state != never && m.p.Accs[i].Kind != IsRead
			continue
		}
		h := &r.hulls[pl.baseOf[i]]
		if h.hi == 0 {
			*h = hull{x.lo, x.hi}
		} else {
			h.lo, h.hi = min(h.lo, x.lo), max(h.hi, x.hi)
		}
	}
	shown := int32(0)
	if in.Verdict == NotIdempotent && !still {
		shown = m.walk.shown
		if h := r.hulls[shown]; in.Witness.Byte < h.lo || in.Witness.Byte >= h.hi {
			return 0, false
		}
	}
	if room := recentWords - int(r.next%recentWords); room < recentMost {
		r.next += uint64(room)
	}
	e := &entry{words: r.words[r.next%recentWords:][:recentMost]}
	flags := uint64(form.Truth(in.ReadsUnknown &&
		!in.ReadsVariables)&flagReadsUnknown | form.Truth(in.WritesUnknown)&flagWritesUnknown |
		form.Truth(variables)&flagInside |
		form.Truth(in.ReadsVariables)&flagReadsVariables)
	e.add(uint64(in.Verdict)|uint64(in.Cause)<<8|flags<<16|uint64(shown)<<32, uint64(in.At),
		uint64(uint32(in.Witness.Read))|uint64(uint32(in.Witness.Write))<<32, in.Witness.Byte-r.bases[shown], 0)
	e.add(r.key...)
	counts := uint64(0)
	if still {
		for i, b := range r.bases[1:] {
			e.add(uint64(i+1), b)
			counts += 1 << 16
		}
	} else {
		counts = r.clustered(e, m)
	}
	if variables && (still || wild || e.full ||
		!r.inside(e.words[headWords+len(r.key):], int(counts&0xffff), l.Allocs)) {
		return 0, false
	}
	counts |= r.ranges(e, m, pl.readers) << 32
	counts |= r.ranges(e, m, pl.writers) << 48
	e.words[headCounts] = counts
	at = r.next
	r.next += uint64(e.n) // even if it is not complete: what was there is gone
	return at, !e.full
}

// An entry is one that is being written.
type entry struct {
	words []uint64
	n     int
	full  bool
}

func (e *entry) add(list ...uint64) {
	if e.n+len(list) > len(e.words) {
		e.full = true
		return
	}
	e.n += copy(e.words[e.n:], list)
}

// addRange adds a base, and a range relative to it.
func (e *entry) addRange(base, lo, hi uint64) {
	if e.n+3 > len(e.words) {
		e.full = true
		return
	}
	w := e.words[e.n:][:3]
	w[0], w[1], w[2] = base, lo, hi
	e.n += 3
}

// clustered writes the clusters, and what else is in them.
func (r *Recent) clustered(e *entry, m *machine) uint64 {
	order := r.sorted(m)
	var clusters, others uint64
	for i := 0; i < len(order); {
		first := order[i]
		lo, hi := r.hulls[first].lo, r.hulls[first].hi
		for i++; i < len(order) && r.hulls[order[i]].lo < hi; i++ {
			hi = max(hi, r.hulls[order[i]].hi)
		}
		e.addRange(uint64(first), lo-r.bases[first], hi-r.bases[first])
		clusters++
	}
	for i := 0; i < len(order); {
		first := order[i]
		hi := r.hulls[first].hi
		for i++; i < len(order) && r.hulls[order[i]].lo < hi; i++ {
			x := order[i]
			hi = max(hi, r.hulls[x].hi)
			e.add(uint64(x)|uint64(first)<<16, r.bases[x]-r.bases[first])
			others++
		}
	}
	return clusters | others<<16
}

// sorted is the bases that something lies at, by address.
func (r *Recent) sorted(m *machine) []int32 {
	r.starts, r.present = r.starts[:0], r.present[:0]
	for i, h := range r.hulls {
		if h.hi != 0 {
			r.starts, r.present = append(r.starts, h.lo), append(r.present, int32(i))
		}
	}
	order := r.inOrder(m)
	for i, k := range order {
		order[i] = r.present[k]
	}
	return order
}

// inOrder is the numbers of r.starts, the smallest first.
func (r *Recent) inOrder(m *machine) []int32 {
	const low, few = 12, 8
	order := r.order[:0]
	sorted, all, last := true, uint64(0), uint64(0)
	for i, x := range r.starts {
		sorted = sorted && x >= last
		last = x
		all |= x
		order = append(order, int32(i))
	}
	r.order = order
	switch {
	case sorted:
	case len(order) <= few:
		for i := 1; i < len(order); i++ {
			x := order[i]
			j := i
			for ; j > 0 && r.starts[order[j-1]] > r.starts[x]; j-- {
				order[j] = order[j-1]
			}
			order[j] = x
		}
	case len(order) <= 1<<low && all>>(64-low) == 0: // as in sort
		m.keys, m.spare = resize(m.keys, len(order)), resize(m.spare, len(order))
		for i, x := range r.starts {
			m.keys[i] = x<<low | uint64(i)
		}
		for i, k := range sortKeys(m.keys, m.spare) {
			order[i] = int32(k & (1<<low - 1))
		}
	default:
		slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(r.starts[a], r.starts[b]) })
	}
	return order
}

// ranges writes what some accesses touch, by address, so that they need no sorting if the bases stay in their order;
// how many ranges that are. Those of one base that touch are one.
func (r *Recent) ranges(e *entry, m *machine, list []int32) uint64 {
	r.spans, r.starts = r.spans[:0], r.starts[:0]
	for _, i := range list {
		x := &m.results[i]
		if x.state != boxed || x.region != 0 {
			continue
		}
		k := m.plan.baseOf[i]
		if x.p0 == x.p1 {
			r.span(k, x.lo, x.hi)
		}
		for _, p := range m.pieces[x.p0:x.p1] {
			r.span(k, p.Lo, p.Hi)
		}
	}
	for _, x := range r.spans {
		r.starts = append(r.starts, x.Lo)
	}
	for _, i := range r.inOrder(m) {
		x := &r.spans[i]
		b := r.bases[x.base]
		e.addRange(uint64(x.base), x.Lo-b, x.Hi-b)
	}
	return uint64(len(r.spans))
}

// span adds what an access touches.
func (r *Recent) span(base int32, lo, hi uint64) {
	if n := len(r.spans); n > 0 {
		if last := &r.spans[n-1]; last.base == base && lo <= last.Hi && last.Lo <= hi {
			last.Lo, last.Hi = min(last.Lo, lo), max(last.Hi, hi)
			return
		}
	}
	r.spans = append(r.spans, baseSpan{Range{lo, hi}, base})
}
