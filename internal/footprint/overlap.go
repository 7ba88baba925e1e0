package footprint

import (
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// A box is a set of accesses of one launch: base + the sum of stride*i for i from 0 to n, over its
// dimensions, and width bytes at each of these places.
type box struct {
	base  int64
	width int64
	n     int
	dims  [form.MaxTerms + 1]dim
	// If m is not 0, only those places count at which the sum of c*i is congruent to want modulo m.
	m, want int64
}

// A dim is one of a box's dimensions; stride > 0.
type dim struct{ stride, n, c int64 }

// most is the farthest that one dimension may reach; the sum of all stays far below 2^63.
const Largest = int64(1) << 56

// add adds step * [lo, hi].
func (b *box) add(step int64, r interval.Bounds) bool { return b.weigh(step, r, 0) }

// weigh is add; what is in r counts c times in the congruence.
func (b *box) weigh(step int64, r interval.Bounds, c int64) bool {
	if !r.Bounded() {
		return false
	}
	if step < 0 {
		step, r, c = -step, r.Times(-1), -c
	}
	if b.m != 0 {
		c %= b.m
		b.want = (b.want - c*(r.Lo%b.m)) % b.m
		if step == 0 && r.Hi > r.Lo && c != 0 {
			b.m = 0 // depends on what is no place
		}
	}
	at := interval.SatMul(step, r.Lo)
	if at <= -Largest || at >= Largest || interval.SatMul(step, r.Hi-r.Lo) >= Largest {
		return false
	}
	b.base += at
	if step != 0 && r.Hi > r.Lo {
		i := b.n
		for ; i > 0 && b.dims[i-1].stride < step; i-- {
			b.dims[i] = b.dims[i-1]
		}
		b.dims[i] = dim{step, r.Hi - r.Lo, c}
		b.n++
	}
	return true
}

// box makes the box of an access from what its site has kept. With guards,
// terms that a guard bounds together are one dimension; without, each is its own.
func (m *machine) box(a *Access, x *planSite, guards bool, b *box) bool {
	b.base, b.width, b.n = 0, a.Bytes, 0
	terms := m.p.Terms[x.t0:x.t1]
	cong := m.congruence(a, terms, guards, b)
	vars := m.snap[x.snap:][:len(terms)]
	var done uint32
	for i := x.d0; guards && i < x.d1; i++ {
		in := m.gsnap[x.gsnap+i-x.d0]
		if in.Empty() {
			continue
		}
		c := &m.plan.cands[i]
		k, mask := m.multiple(terms, c)
		if k == 0 || mask&done != 0 {
			continue
		}
		done |= mask
		for j := i + 1; j < x.d1; j++ { // the same terms from the other side
			o := m.gsnap[x.gsnap+j-x.d0]
			if o.Empty() {
				continue
			}
			switch l, also := m.multiple(terms, &m.plan.cands[j]); {
			case also != mask:
			case l == k:
				in = in.Meet(o)
			case l == -k:
				in = in.Meet(o.Times(-1))
			}
		}
		if !m.guarded(c, in, vars, k, m.proportion(cong, terms, c, b), b) {
			return false
		}
	}
	for i, t := range terms {
		if done&(1<<i) == 0 && !b.weigh(m.regs[t.Coef], vars[i], m.coefficient(cong, t.V)) {
			return false
		}
	}
	switch {
	case a.Count == 0:
		b.width = a.Span
	case a.Count > 1:
		return b.add(a.Step, interval.Bounds{Lo: 0, Hi: a.Count - 1})
	}
	return true
}

// congruence begins with the congruence of an access; none if it does not hold for its terms.
func (m *machine) congruence(a *Access, terms []Term, guards bool, b *box) []Term {
	b.m, b.want = 0, 0
	if !guards || a.Cong == 0 {
		return nil
	}
	x := &m.p.Congs[a.Cong-1]
	f := &m.p.Forms[x.Form]
	r := m.regs[x.R]
	if r < 0 || r >= x.M || x.Not && x.M != 2 {
		return nil
	}
	if x.Not {
		r = 1 - r
	}
	of := m.p.Terms[f.T0:f.T1]
	for _, t := range of {
		found := false
		for _, u := range terms {
			found = found || u.V == t.V
		}
		if !found {
			return nil
		}
	}
	b.m, b.want = x.M, (r-m.regs[f.C]%x.M)%x.M
	return of
}

// coefficient is that of a variable.
func (m *machine) coefficient(terms []Term, v int32) int64 {
	for _, t := range terms {
		if t.V == v {
			return m.regs[t.Coef]
		}
	}
	return 0
}

// proportion is how often the terms of a guard are in a congruence; if they are not there together, it is given up.
func (m *machine) proportion(cong []Term, terms []Term, c *planCandidate, b *box) int64 {
	if b.m == 0 {
		return 0
	}
	f := &m.p.Forms[m.p.Guards[c.Guard].Form]
	k := int64(0)
	for i, t := range m.p.Terms[f.T0:f.T1] {
		g := m.regs[t.Coef]
		x := m.coefficient(cong, terms[m.p.Lists[int(c.Pos)+i]].V)
		if i == 0 && g != 0 && g != -1 {
			k = x / g % b.m
		} else if i == 0 {
			k = -x % b.m
		}
		if (x%b.m-k*(g%b.m))%b.m != 0 {
			b.m = 0
			return 0
		}
	}
	return k
}

// guarded adds k times what candidate g bounds to in: steps of the greatest common divisor of its
// coefficients. vars are those of the form.
// It counts c times in the congruence.
func (m *machine) guarded(g *planCandidate, in interval.Bounds, vars []interval.Bounds, k, c int64, b *box) bool {
	f := &m.p.Forms[m.p.Guards[g.Guard].Form]
	var step, start int64
	for i, t := range m.p.Terms[f.T0:f.T1] {
		x, v := m.regs[t.Coef], vars[m.p.Lists[int(g.Pos)+i]]
		at := interval.SatMul(interval.Clamp(x), v.Lo)
		if at <= -Largest || at >= Largest {
			return false
		}
		step = interval.Gcd(step, x)
		start += at
	}
	if step <= 0 || !in.Bounded() {
		return false
	}
	// The first number from in.lo on that is congruent to start.
	first := start + interval.CeilDiv(in.Lo-start, step)*step
	if first > in.Hi {
		return false
	}
	at := interval.SatMul(k, first)
	if at <= -Largest || at >= Largest {
		return false
	}
	b.base += at
	if b.m != 0 {
		b.want = (b.want - c*(first%b.m)) % b.m
		c *= step % b.m
	}
	return b.weigh(interval.SatMul(k, step), interval.Bounds{Lo: 0, Hi: (in.Hi - first) / step}, c)
}

// apart reports whether no byte is in both boxes, the second one moved by delta, as far as
// greatest common divisors and bounds tell.
func apart(a, b *box, delta int64) bool {
	low := a.base - b.base - delta
	var small int64
	for _, d := range a.dims[:a.n] {
		small += d.stride * d.n
	}
	for _, d := range b.dims[:b.n] {
		small += d.stride * d.n
		low -= d.stride * d.n
	}
	// The bytes meet if low + the sum of stride*i is from 1-a.width to b.width-1.
	if low <= -interval.Far/2 || low >= interval.Far/2 {
		return false
	}
	var step, large int64
	for i, j := 0, 0; ; {
		// The larger strides together make multiples of step, up to large; the others
		// anything up to small.
		lo, hi := 1-a.width-low-small, b.width-1-low
		lo, hi = max(lo, 0), min(hi, large)
		if lo > hi || step > 0 && interval.FloorDiv(hi, step) < interval.CeilDiv(lo, step) {
			return true
		}
		var d dim
		switch {
		case i < a.n && (j == b.n || a.dims[i].stride >= b.dims[j].stride):
			d = a.dims[i]
			i++
		case j < b.n:
			d = b.dims[j]
			j++
		default:
			return incongruent(a, b, low)
		}
		step = interval.Gcd(step, d.stride)
		size := d.stride * d.n
		large += size
		small -= size
	}
}

// incongruent reports whether low + the sum of stride*i cannot be from 1-a.width to b.width-1 because of what
// remains modulo one of the strides: all others are taken as their remainders of least size. With a
// stride of n+1, one of n goes one step backwards.
func incongruent(a, b *box, low int64) bool {
	for x := range a.n + b.n {
		var g int64
		if x < a.n {
			g = a.dims[x].stride
		} else {
			g = b.dims[x-a.n].stride
		}
		at := interval.Bounds{Lo: low - b.width + 1, Hi: low + a.width - 1}
		for _, d := range a.dims[:a.n] {
			at = remains(at, d, g)
		}
		for _, d := range b.dims[:b.n] {
			at = remains(at, d, g)
		}
		if at.Bounded() && interval.FloorDiv(at.Hi, g) < interval.CeilDiv(at.Lo, g) {
			return true
		}
	}
	return false
}

// remains adds a dimension, modulo g.
func remains(b interval.Bounds, d dim, g int64) interval.Bounds {
	r := d.stride % g
	if r > g/2 {
		r -= g
	}
	return b.Plus(interval.Bounds{Lo: 0, Hi: d.n}.Times(r))
}

// A search looks for two places, one in each of two boxes, whose bytes meet and which are as the congruences want: by
// the difference in every dimension, the largest stride first.
type search struct {
	dims [2*form.MaxTerms + 2]struct {
		stride, lo, hi, c, least,
		greatest int64
	} // least, greatest: of the strides that follow
	n      int
	in     interval.Bounds // where the sum must be
	m      int64
	budget int
}

// maxTried bounds the differences that are tried for two boxes.
const maxTried = 64

// meet reports whether a byte may be in both boxes, the second one moved by delta. No is a proof: every difference was
// looked at.
func (s *search) meet(a, b *box, delta int64) bool {
	low := a.base - b.base - delta
	if low <= -interval.Far/2 || low >= interval.Far/2 {
		return true
	}
	s.n, s.m, s.budget = 0, 1, maxTried
	s.in = interval.Bounds{Lo: 1 - a.width - low, Hi: b.width - 1 - low}
	want := int64(0)
	if a.m == b.m && a.m != 0 {
		s.m, want = a.m, (a.want-b.want)%a.m
	}
	i, j := 0, 0
	for i < a.n || j < b.n {
		d := &s.dims[s.n]
		s.n++
		switch {
		case j == b.n || i < a.n && a.dims[i].stride > b.dims[j].stride:
			d.stride, d.lo, d.hi, d.c = a.dims[i].stride, 0, a.dims[i].n, a.dims[i].c
			i++
		case i == a.n || b.dims[j].stride > a.dims[i].stride || (a.dims[i].c-b.dims[j].c)%s.m != 0:
			d.stride, d.lo, d.hi, d.c = b.dims[j].stride, -b.dims[j].n, 0, b.dims[j].c
			j++
		default:
			d.stride, d.lo, d.hi, d.c = a.dims[i].stride, -b.dims[j].n, a.dims[i].n, a.dims[i].c
			i++
			j++
		}
	}
	var least, greatest int64
	for k := s.n - 1; k >= 0; k-- {
		d := &s.dims[k]
		d.least, d.greatest = least, greatest
		least += d.stride * d.lo
		greatest += d.stride * d.hi
	}
	return s.try(0, 0, want)
}

// try goes on with dimension k: the sum so far is at, and the rest of the congruence want.
func (s *search) try(k int, at, want int64) bool {
	if s.budget--; s.budget < 0 {
		return true
	}
	if k == s.n {
		return want%s.m == 0 && s.in.Lo <= at && at <= s.in.Hi
	}
	d := &s.dims[k]
	lo := max(d.lo, interval.CeilDiv(s.in.Lo-at-d.greatest, d.stride))
	hi := min(d.hi, interval.FloorDiv(s.in.Hi-at-d.least, d.stride))
	if hi-lo > maxTried {
		return true
	}
	for x := lo; x <= hi; x++ {
		if s.try(k+1, at+d.stride*x, (want-d.c%s.m*(x%s.m))%s.m) {
			return true
		}
	}
	return false
}
