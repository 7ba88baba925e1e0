package footprint

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// Known is memory whose contents are known before a launch reads them: nothing changes them until the launch ends,
// unless the launch itself does, which Evaluate finds out.
type Known struct {
	Range
	Contents *Contents
}

// Contents sums up what some memory holds, so that a launch asks for bounds of a part of it without reading all of
// it. It does not change, and may be used by several goroutines at once.
type Contents struct {
	small  []byte // all, if it is little
	shift  uint8  // log2 of the bytes of a block
	blocks []block
	zeros  bool // behind the blocks
}

// A block is bounds of the words in a part of the contents, at multiples of their sizes: for each reading.
type block [numReadings]interval.Bounds

// The readings of a word. Numbers of 32 and 64 bits are read as signed ones: whoever reads them as unsigned finds out
// from the bounds whether that is the same.
const (
	readU8 = iota
	readS8
	readU16
	readS16
	readS32
	readS64
	numReadings
)

const (
	maxSmall  = 16 << 10 // bytes of contents that are kept
	maxParts  = 256      // blocks
	leastPart = 64       // bytes of one
	maxWords  = 64       // that a launch reads one by one, of small contents
)

// NewContents sums up memory of size bytes that begins with b; what is behind b is zero.
func NewContents(b []byte, size uint64) *Contents {
	if uint64(len(b)) > size {
		b = b[:size]
	}
	c := &Contents{shift: uint8(bits.TrailingZeros(leastPart)), zeros: uint64(len(b)) < size}
	for len(b)>>c.shift >= maxParts {
		c.shift++
	}
	if len(b) <= maxSmall {
		c.small = slices.Clone(b)
	}
	n := 1 << c.shift
	for at := 0; at < len(b); at += n {
		x := blockOf(b[at:min(at+n, len(b))])
		if at+n > len(b) && c.zeros {
			for r := range x {
				x[r] = x[r].Join(interval.Bounds{Lo: 0, Hi: 0})
			}
		}
		c.blocks = append(c.blocks, x)
	}
	return c
}

// blockOf reads a block. Behind its end are zeros, or nothing that belongs to the memory.
func blockOf(b []byte) block {
	var x block
	for r := range x {
		x[r] = interval.Bounds{Lo: interval.Far, Hi: -interval.Far}
	}
	for ; len(b) >= 8; b = b[8:] {
		x.add(binary.LittleEndian.Uint64(b))
	}
	if len(b) > 0 {
		var word [8]byte
		copy(word[:], b)
		x.add(binary.LittleEndian.Uint64(word[:]))
	}
	return x
}

// add joins the words of eight bytes, for each reading.
func (x *block) add(w uint64) {
	x[readS64].Include(interval.Clamp(int64(w)))
	x[readS32].Include(int64(int32(w)))
	x[readS32].Include(int64(int32(w >> 32)))
	u8, s8, u16, s16 := x[readU8], x[readS8], x[readU16], x[readS16]
	for range 4 {
		u16.Include(int64(uint16(w)))
		s16.Include(int64(int16(w)))
		u8.Include(int64(uint8(w)))
		s8.Include(int64(int8(w)))
		u8.Include(int64(uint8(w >> 8)))
		s8.Include(int64(int8(w >> 8)))
		w >>= 16
	}
	x[readU8], x[readS8], x[readU16], x[readS16] = u8, s8, u16, s16
}

// readWord reads the first bytes of b as a number; one of 64 bits ends at ±far.
func readWord(r int, b []byte) int64 {
	switch r {
	case readU8:
		return int64(b[0])
	case readS8:
		return int64(int8(b[0]))
	case readU16:
		return int64(binary.LittleEndian.Uint16(b))
	case readS16:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case readS32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return interval.Clamp(int64(binary.LittleEndian.Uint64(b)))
}

// reading is that of a number of w bits.
func reading(w uint8, signed bool) int {
	switch w {
	case 8:
		return readU8 + int(form.Truth(signed)&1)
	case 16:
		return readU16 + int(form.Truth(signed)&1)
	case 32:
		return readS32
	}
	return readS64
}

// at is word i of small contents, in bytes.
func (c *Contents) at(r int, i uint64) int64 {
	var word [8]byte
	if i < uint64(len(c.small)) {
		copy(word[:], c.small[i:])
	}
	return readWord(r, word[:])
}

// bounds is those of the words from lo to below hi.
func (c *Contents) bounds(r int, lo, hi uint64) interval.Bounds {
	b := interval.Bounds{Lo: interval.Far, Hi: -interval.Far}
	first, last := lo>>c.shift, (hi-1)>>c.shift
	for i := first; i <= last && i < uint64(len(c.blocks)); i++ {
		b = b.Join(c.blocks[i][r])
	}
	if last >= uint64(len(c.blocks)) {
		b = b.Join(interval.Bounds{Lo: 0, Hi: 0})
	}
	return b
}

// known finds the range that holds lo to hi.
func known(list []Known, lo, hi uint64) *Known {
	i, j := 0, len(list)
	for i < j {
		mid := int(uint(i+j) >> 1)
		if list[mid].Hi <= lo {
			i = mid + 1
		} else {
			j = mid
		}
	}
	if i < len(list) && list[i].Lo <= lo && hi <= list[i].Hi && list[i].Contents != nil {
		return &list[i]
	}
	return nil
}

// A valueSet is the values that a variable may have, if they are few: machine.values[v0:v1].
type valueSet struct{ v0, v1 int32 }

// maxValues bounds a set.
const maxValues = 16

// An origin is what is known of a loaded value wherever it is loaded, in all of the launch.
type origin struct {
	known  bool
	here   bool // at all addresses that it may have where the machine is, so it is the same whenever it is loaded
	in     interval.Bounds
	v0, v1 int32 // machine.values; equal: many
}

// table is the bounds of a value that is loaded: those of the words at all addresses that the load may have here, if
// they are known, or of those that it may have where it stands.
func (m *machine) table(i int32, v *Var) interval.Bounds {
	m.many(i)
	b, ok := m.lookup(i, v)
	m.origins[i].here = ok
	if !ok {
		m.many(i)
		b = form.Evaluate(form.KindTable, v.W, v.Imm, interval.Bounds{}, interval.Bounds{})
	}
	if o := &m.origins[i]; !ok && o.known {
		b = o.in
		if o.v1 > o.v0 {
			m.sets[i] = valueSet{o.v0, o.v1}
		}
	}
	if m.home == i && ok {
		s := m.sets[i]
		m.origins[i] = origin{true, true, b, s.v0, s.v1}
	}
	return b
}

// lookup is table for the addresses that the load may have in the context in hand. What a launch relies on is noted.
func (m *machine) lookup(i int32, v *Var) (interval.Bounds, bool) {
	signed := v.Imm == 0
	all := interval.UnsignedBounds(v.W)
	if signed {
		all = interval.SignedBounds(v.W)
	}
	if v.A0 >= v.A1 || len(m.launch.Known) == 0 && !m.launch.Seeks {
		return all, false
	}
	f := &m.p.Forms[m.p.Args[v.A0].Form]
	n := uint64(v.W / 8)
	var r extent
	m.reach(f, 0, int64(n), &r)
	if r.state != boxed || r.region != 0 {
		return all, false
	}
	t := known(m.launch.Known, r.lo, r.hi)
	if t == nil || t.Lo%n != 0 {
		if m.launch.Seeks {
			m.wanted = extend(m.wanted, r.lo, r.hi)
		}
		return all, false
	}
	m.relied = append(m.relied, Range{r.lo, r.hi})
	how := reading(v.W, signed)
	// A misaligned load is a fault: whatever is read begins at a multiple of n.
	lo := (r.lo - t.Lo + n - 1) / n * n
	hi := (r.hi - t.Lo) / n * n
	if lo >= hi {
		return all, false
	}
	step := n
	if base, s, ok := m.lattice(f); ok && s%int64(n) == 0 {
		// Addresses differ from base by multiples of s.
		at := int64(base-t.Lo-lo) % s
		if at < 0 {
			at += s
		}
		if uint64(at)%n == 0 && uint64(at) < hi-lo {
			lo, step = lo+uint64(at), uint64(s)
		}
	}
	var b interval.Bounds
	if c := t.Contents; c.small != nil && (hi-lo-1)/step < maxWords {
		b = m.words(i, c, how, lo, hi, step)
	} else {
		b = c.bounds(how, lo, hi)
	}
	return b, b.Hi > -interval.Far && b.Lo < interval.Far // all words beyond: not to be computed with
}

// lattice is a place of a form and the greatest common divisor of the distances from it; false if they
// are not simple.
func (m *machine) lattice(f *Form) (base uint64, step int64, ok bool) {
	at, d := int64(0), int64(0)
	for _, t := range m.p.Terms[f.T0:f.T1] {
		k, v := m.regs[t.Coef], m.vars[t.V]
		if !v.Bounded() || k <= -interval.Far || k >= interval.Far {
			return 0, 0, false
		}
		x := interval.SatMul(k, v.Lo)
		if x <= -Largest || x >= Largest {
			return 0, 0, false
		}
		at += x
		if v.Lo != v.Hi {
			d = interval.Gcd(d, k)
		}
	}
	base = uint64(m.regs[f.C] + at)
	if f.Sym > 0 {
		base += m.launch.Globals[f.Sym-1].Lo
	}
	return base, d, d > 0
}

// words reads small contents.
func (m *machine) words(i int32, c *Contents, how int, lo, hi, step uint64) interval.Bounds {
	b := interval.Bounds{Lo: interval.Far, Hi: -interval.Far}
	start := len(m.values)
	for at := lo; at < hi; at += step {
		x := c.at(how, at)
		b = b.Join(interval.Bounds{Lo: x, Hi: x})
		m.note(start, x)
	}
	m.set(i, start)
	return b
}

// many says that the values of variable i are not known to be few.
func (m *machine) many(i int32) {
	if len(m.sets) < len(m.p.Vars) {
		m.sets = make([]valueSet, len(m.p.Vars))
	}
	m.sets[i] = valueSet{}
}

// note keeps one of the values that a variable may have: those from start on.
func (m *machine) note(start int, x int64) {
	if len(m.values)-start <= maxValues && !slices.Contains(m.values[start:], x) {
		m.values = append(m.values, x)
	}
}

// set keeps the noted values of variable i if they are few.
func (m *machine) set(i int32, start int) {
	if n := len(m.values) - start; n > maxValues || n < 2 {
		m.values = m.values[:start]
		return
	}
	m.sets[i] = valueSet{int32(start), int32(len(m.values))}
}

// picked is the bounds of a value that is picked from an array in the parameters.
func (m *machine) picked(i int32, v *Var) interval.Bounds {
	m.many(i)
	signed := v.Imm&1 == 0
	all := interval.UnsignedBounds(v.W)
	if signed {
		all = interval.SignedBounds(v.W)
	}
	if v.A0 >= v.A1 || v.W < 8 {
		return all
	}
	f := &m.p.Forms[m.p.Args[v.A0].Form]
	if f.Sym != 0 || !m.sound(f) {
		return all
	}
	t := paramTable(v.Imm)
	n := int64(v.W / 8)
	at := m.total(f)
	p := m.launch.Params
	if at.Lo < t.lo() || at.Hi > min(t.hi(), int64(len(p)))-n || at.Lo > at.Hi {
		return all
	}
	// The buffer itself lies at a multiple of any word's size.
	step, lo := n, interval.CeilDiv(at.Lo, n)*n
	if base, s, ok := m.lattice(f); ok && s%n == 0 {
		if first := lo + form.Modulo(interval.Bounds{Lo: int64(base) - lo, Hi: int64(base) - lo}, s).Lo; first%n == 0 &&
			first <= at.Hi {
			step, lo = s, first
		}
	}
	if (at.Hi-lo)/step >= maxWords {
		return all
	}
	how := reading(v.W, signed)
	b := interval.Bounds{Lo: interval.Far, Hi: -interval.Far}
	start := len(m.values)
	for ; lo <= at.Hi; lo += step {
		x := readWord(how, p[lo:])
		b = b.Join(interval.Bounds{Lo: x, Hi: x})
		m.note(start, x)
	}
	m.set(i, start)
	if b.Lo >= interval.Far || b.Hi <= -interval.Far {
		m.many(i)
		return all
	}
	return b
}

// parts lists where an access may go for each value of a pointer that is one of few, instead of everywhere in
// between.
func (m *machine) parts(a *Access, f *Form, r *extent) {
	if r.state != boxed || r.region != 0 {
		return
	}
	for _, t := range m.p.Terms[f.T0:f.T1] {
		v := &m.p.Vars[t.V]
		if v.Kind < form.KindTable || m.sets[t.V].v0 == m.sets[t.V].v1 {
			continue
		}
		s := m.sets[t.V]
		was := m.vars[t.V]
		start := len(m.pieces)
		for _, x := range m.values[s.v0:s.v1] {
			if x < was.Lo || x > was.Hi {
				continue // a guard says that it is not this one
			}
			m.vars[t.V] = interval.Bounds{Lo: x, Hi: x}
			var q extent
			m.reach(f, a.Off, a.Span, &q)
			if q.state != boxed {
				m.pieces = m.pieces[:start]
				break
			}
			m.pieces = append(m.pieces, Range{q.lo, q.hi})
		}
		m.vars[t.V] = was
		if len(m.pieces) > start {
			r.p0, r.p1 = int32(start), int32(len(m.pieces))
			r.lo, r.hi = m.pieces[start].Lo, m.pieces[start].Hi
			for _, p := range m.pieces[start:] {
				r.lo, r.hi = min(r.lo, p.Lo), max(r.hi, p.Hi)
			}
			return
		}
	}
}

// each calls yield for the ranges of an extent; it stops when that says false.
func (m *machine) each(r *extent, yield func(lo, hi uint64) bool) bool {
	if r.p0 == r.p1 {
		return yield(r.lo, r.hi)
	}
	for _, p := range m.pieces[r.p0:r.p1] {
		if !yield(p.Lo, p.Hi) {
			return false
		}
	}
	return true
}

// common reports whether two extents in one region have a byte in common.
func (m *machine) common(a, b *extent) bool {
	if a.lo >= b.hi || b.lo >= a.hi {
		return false
	}
	if a.p0 == a.p1 && b.p0 == b.p1 {
		return true
	}
	return !m.each(a, func(lo, hi uint64) bool {
		return m.each(b, func(lo2, hi2 uint64) bool { return lo >= hi2 || lo2 >= hi })
	})
}

// knowing finds the extents of all accesses with what is known of memory; false if the launch may change what that
// rests on, or if nothing of it was of use.
//
// That it then proves as much as without: suppose that some access were not in its extent, and take the first one. What
// its address is made from then lies within the bounds that it was given, unless a load has read something else than
// what was known; that was written before, since nobody but the launch writes; and as no extent of a write meets what
// was relied upon, that write was not in its extent, and earlier.
func (m *machine) knowing(p *Program) bool {
	m.relied, m.wanted = m.relied[:0], m.wanted[:0]
	m.origins = resize(m.origins, len(p.Vars))
	clear(m.origins)
	m.evaluate(p)
	if !m.bad && len(m.relied) > 0 && m.intact() {
		return true
	}
	m.values, m.pieces = m.values[:0], m.pieces[:0]
	m.bad = false
	return false
}

// intact reports whether nothing that the launch writes may lie in a table that was relied upon.
func (m *machine) intact() bool {
	for i := range m.p.Accs {
		a, r := &m.p.Accs[i], &m.results[i]
		if a.Kind == IsRead || r.state == never {
			continue
		}
		if r.state == boundless || r.region != 0 {
			return false
		}
		if !m.each(r, func(lo, hi uint64) bool {
			for _, t := range m.relied {
				if lo < t.Hi && t.Lo < hi {
					return false
				}
			}
			return true
		}) {
			return false
		}
	}
	return true
}

// A paramTable is the parameter that a load whose place is computed reads, as bytes of the parameter buffer, and (bit
// 0) whether numbers are unsigned.
type paramTable int64

func (t paramTable) lo() int64 { return int64(t) >> 1 & (1<<24 - 1) }
func (t paramTable) hi() int64 { return int64(t) >> 25 & (1<<24 - 1) }
