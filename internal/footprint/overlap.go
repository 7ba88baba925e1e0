package footprint

// A box is a set of accesses of one launch: base + the sum of stride*i for i from 0 to n, over its
// dimensions, and width bytes at each of these places.
type box struct {
	base  int64
	width int64
	n     int
	dims  [maxTerms + 1]dim
}

type dim struct{ stride, n int64 } // stride > 0

// most is the farthest that one dimension may reach; the sum of all stays far below 2^63.
const most = int64(1) << 56

// add adds step * [lo, hi].
func (b *box) add(step int64, r bounds) bool {
	if !r.bounded() {
		return false
	}
	if step < 0 {
		step, r = -step, r.times(-1)
	}
	at := satMul(step, r.lo)
	if at <= -most || at >= most || satMul(step, r.hi-r.lo) >= most {
		return false
	}
	b.base += at
	if step != 0 && r.hi > r.lo {
		i := b.n
		for ; i > 0 && b.dims[i-1].stride < step; i-- {
			b.dims[i] = b.dims[i-1]
		}
		b.dims[i] = dim{step, r.hi - r.lo}
		b.n++
	}
	return true
}

// box makes the box of an access from what its site has kept. With guards,
// terms that a guard bounds together are one dimension; without, each is its own.
func (m *machine) box(a *pacc, x *psite, guards bool, b *box) bool {
	b.base, b.width, b.n = 0, a.bytes, 0
	terms := m.p.terms[x.t0:x.t1]
	vars := m.snap[x.snap:][:len(terms)]
	var done uint32
	for i := x.d0; guards && i < x.d1; i++ {
		in := m.gsnap[x.gsnap+i-x.d0]
		if in.empty() {
			continue
		}
		c := &m.plan.cands[i]
		k, mask := m.multiple(terms, c)
		if k == 0 || mask&done != 0 {
			continue
		}
		done |= mask
		if !m.guarded(c, in, vars, k, b) {
			return false
		}
	}
	for i, t := range terms {
		if done&(1<<i) == 0 && !b.add(m.regs[t.coef], vars[i]) {
			return false
		}
	}
	switch {
	case a.count == 0:
		b.width = a.span
	case a.count > 1:
		return b.add(a.step, bounds{0, a.count - 1})
	}
	return true
}

// guarded adds k times what candidate g bounds to in: steps of the greatest common divisor of its
// coefficients. vars are those of the form.
func (m *machine) guarded(g *cand, in bounds, vars []bounds, k int64, b *box) bool {
	f := &m.p.forms[m.p.guards[g.guard].form]
	var step, start int64
	for i, t := range m.p.terms[f.t0:f.t1] {
		c, v := m.regs[t.coef], vars[m.p.lists[int(g.pos)+i]]
		at := satMul(clamp(c), v.lo)
		if at <= -most || at >= most {
			return false
		}
		step = gcd(step, c)
		start += at
	}
	if step <= 0 || !in.bounded() {
		return false
	}
	// The first number from in.lo on that is congruent to start.
	first := start + ceilDiv(in.lo-start, step)*step
	if first > in.hi {
		return false
	}
	at := satMul(k, first)
	if at <= -most || at >= most {
		return false
	}
	b.base += at
	return b.add(satMul(k, step), bounds{0, (in.hi - first) / step})
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
	if low <= -far/2 || low >= far/2 {
		return false
	}
	var step, large int64
	for i, j := 0, 0; ; {
		// The larger strides together make multiples of step, up to large; the others
		// anything up to small.
		lo, hi := 1-a.width-low-small, b.width-1-low
		lo, hi = max(lo, 0), min(hi, large)
		if lo > hi || step > 0 && floorDiv(hi, step) < ceilDiv(lo, step) {
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
		step = gcd(step, d.stride)
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
		at := bounds{low - b.width + 1, low + a.width - 1}
		for _, d := range a.dims[:a.n] {
			at = at.remains(d, g)
		}
		for _, d := range b.dims[:b.n] {
			at = at.remains(d, g)
		}
		if at.bounded() && floorDiv(at.hi, g) < ceilDiv(at.lo, g) {
			return true
		}
	}
	return false
}

// remains adds a dimension, modulo g.
func (b bounds) remains(d dim, g int64) bounds {
	r := d.stride % g
	if r > g/2 {
		r -= g
	}
	return b.plus(bounds{0, d.n}.times(r))
}
