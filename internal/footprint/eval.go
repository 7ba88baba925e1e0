package footprint

import "encoding/binary"

// A machine is the memory that evaluating a launch needs. It belongs to an Instance.
type machine struct {
	p       *program
	plan    *plan
	launch  *Launch
	cluster [3]uint32
	regs    []int64
	vars    []bounds
	rounds  []int64  // of counters: the most that they reach anywhere in the launch
	reached int64    // by the counter in hand; 0: no thread enters its loop
	proven  []bool   // of checks: they hold where the machine is
	failed  []uint32 // of checks: in which turn they did not
	turn    uint32   // a context's accesses
	active  []bool   // of guards with several terms: within says something
	within  []bounds // of those guards: their terms
	grouped int      // guards that are active
	exits   []exitState
	trail   []undo  // what was found on the way to where the machine is
	marks   []int32 // of branches: how long the trail was
	bad     bool    // a uniform value has no result
	dead    bool    // no thread comes to where the machine is
	results []extent
	beyond  bool // some access was boundless because of where its base lies

	// Of programs that know contents of memory (known.go):
	relied  []Range    // what was read of them
	wanted  []Range    // what could not be
	values  []int64    // sets of values
	sets    []valueSet // of variables
	origins []origin   // of loaded values
	home    int32      // the loaded value that the context in hand is of; -1 = none
	pieces  []Range    // of extents

	spans []bounds // of sites
	snap  []bounds // of sites: the variables of their terms
	gsnap []bounds // of sites: their candidates; empty: not active

	// Of verdict.go:
	hit         []uint64 // bits: allocations that parameters point into
	whole       []Range  // those
	keys, spare []uint64
	unsorted    []Range

	walk     walker
	boxes    []boxes
	search   search
	launches uint32 // how many were evaluated
}

// An undo is what the machine does when it goes back: a variable gets its bounds back, or what was found
// is not known any more.
type undo struct {
	what undoing
	id   int32
	old  bounds
}

type undoing uint8

const (
	undoBounds undoing = iota
	undoProof
	undoGroup
)

// An exitState is what a loop's test says in the context in hand.
type exitState struct {
	rest  bounds // of the rest, its constant included
	valid bool
}

// An extent is where an access was found to go.
type extent struct {
	state  extentState
	region int32 // 0: addresses; else 1 + a variable whose address is not known, and offsets in it
	lo, hi uint64
	whole  bool  // all of an allocation: Launch.Contained
	p0, p1 int32 // it is one of these parts, in machine.pieces; lo and hi are around them
}

type extentState uint8

const (
	never extentState = iota // no thread gets there
	boxed
	boundless
)

// grow makes room for a program.
func (m *machine) grow(p *program) {
	pl := &p.plan
	m.p, m.plan = p, pl
	m.regs = resize(m.regs, len(p.ops))
	m.vars = resize(m.vars, len(p.vars))
	m.rounds = resize(m.rounds, len(p.vars))
	m.within = resize(m.within, len(p.guards))
	m.exits = resize(m.exits, len(p.exits))
	m.results = resize(m.results, len(p.accs))
	m.spans = resize(m.spans, len(pl.sites))
	m.snap = resize(m.snap, pl.snaps)
	m.gsnap = resize(m.gsnap, pl.gsnaps)
	m.marks = resize(m.marks, pl.depth+1)
	if len(m.boxes) < len(p.accs) {
		m.boxes = make([]boxes, len(p.accs))
		m.launches = 0
	}
	if m.launches++; m.launches == 0 {
		clear(m.boxes)
		m.launches = 1
	}
	// These are false between launches. They never become smaller: kernels of different shapes take turns.
	if len(m.proven) < len(p.checks) {
		m.proven, m.failed = make([]bool, len(p.checks)), make([]uint32, len(p.checks))
	}
	if len(m.active) < len(p.guards) {
		m.active = make([]bool, len(p.guards))
	}
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// uniform computes the registers.
func (m *machine) uniform() {
	pl := m.plan
	p := m.launch.Params
	if pl.params > len(p) {
		m.bad = true
		return
	}
	r := m.regs
	copy(r, pl.template)
	for _, x := range pl.pointers {
		r[x.reg] = int64(binary.LittleEndian.Uint64(p[x.off:]))
	}
	for i := range pl.ops {
		in := &pl.ops[i]
		a, b := r[in.a], r[in.b]
		switch s := (64 - in.w) & 63; in.op {
		case opParam:
			r[in.reg] = m.param(&in.instr)
		case opGeometry:
			r[in.reg] = m.geometry(int(in.imm))
		case opAdd:
			r[in.reg] = (a + b) << s >> s
		case opSub:
			r[in.reg] = (a - b) << s >> s
		case opMul:
			r[in.reg] = a * b << s >> s
		case opSext:
			r[in.reg] = a
		case opTrunc:
			r[in.reg] = a << s >> s
		default:
			x, ok := compute(in.op, in.w, in.aw, a, b, r[in.c])
			if !ok {
				m.bad = true
			}
			r[in.reg] = x
		}
	}
}

func (m *machine) param(in *instr) int64 {
	p := m.launch.Params
	if in.imm+int64(in.w/8) > int64(len(p)) {
		m.bad = true
		return 0
	}
	p = p[in.imm:]
	switch in.w {
	case 64:
		return int64(binary.LittleEndian.Uint64(p))
	case 32:
		return int64(int32(binary.LittleEndian.Uint32(p)))
	case 16:
		return int64(int16(binary.LittleEndian.Uint16(p)))
	}
	return int64(int8(p[0]))
}

func (m *machine) geometry(i int) int64 {
	l := m.launch
	switch i {
	case ntidX, ntidY, ntidZ:
		return int64(l.Block[i-ntidX])
	case nctaidX, nctaidY, nctaidZ:
		return int64(int32(l.Grid[i-nctaidX]))
	case clusterX, clusterY, clusterZ:
		return int64(m.cluster[i-clusterX])
	case nclusterX, nclusterY, nclusterZ:
		return int64(l.Grid[i-nclusterX] / m.cluster[i-nclusterX])
	case clusterSize:
		return int64(m.cluster[0]) * int64(m.cluster[1]) * int64(m.cluster[2])
	}
	return int64(l.Shared)
}

// coordinate is the range of a coordinate of the threads of a launch.
func (m *machine) coordinate(i int) bounds {
	l := m.launch
	n := int64(1)
	switch i {
	case tidX, tidY, tidZ:
		n = int64(l.Block[i-tidX])
	case ctaidX, ctaidY, ctaidZ:
		n = int64(l.Grid[i-ctaidX])
	case laneID:
		n = min(32, int64(l.Block[0])*int64(l.Block[1])*int64(l.Block[2]))
	case clusterCtaX, clusterCtaY, clusterCtaZ:
		n = int64(m.cluster[i-clusterCtaX])
	case clusterRank:
		n = m.geometry(clusterSize)
	case clusterIDX, clusterIDY, clusterIDZ:
		n = m.geometry(nclusterX + i - clusterIDX)
	}
	return bounds{0, n - 1}
}

// run does what the plan says.
func (m *machine) run() {
	pl := m.plan
	for _, v := range pl.leaves {
		m.vars[v] = m.variable(&m.p.vars[v])
	}
	for _, v := range pl.counters {
		m.rounds[v] = far
	}
	m.reached, m.home = 0, -1
	m.dead = false
	for i := 0; i < len(pl.code); i++ {
		x := &pl.code[i]
		switch x.do {
		case doCondition:
			m.dead = (m.regs[x.index>>1] != 0) == (x.index&1 != 0)
		case doForget:
			m.vars[x.index] = everything
		case doVariable:
			m.assign(x.index)
		case doGuard:
			m.guard(x.index)
		case doAccesses:
			m.accesses(&pl.sets[x.index])
		case doEnter:
			m.reached = max(0, m.vars[x.index].hi)
		case doHome:
			m.home = x.index
		case doEntered:
			m.rounds[x.index], m.reached = m.reached, 0
		case doMark:
			m.marks[x.index] = int32(len(m.trail))
		case doBack:
			m.rewind(int(m.marks[x.index]))
		}
		if m.dead {
			for _, a := range pl.places[x.p0:x.p1] {
				m.results[a.acc] = extent{}
			}
			m.dead = false
			i = int(x.end) - 1
		}
	}
	m.rewind(0)
}

// rewind goes back to when the trail was so long.
func (m *machine) rewind(to int) {
	for i := len(m.trail) - 1; i >= to; i-- {
		switch u := &m.trail[i]; u.what {
		case undoBounds:
			m.vars[u.id] = u.old
		case undoProof:
			m.proven[u.id] = false
		case undoGroup:
			m.active[u.id] = false
			m.grouped--
		}
	}
	m.trail = m.trail[:to]
}

// context evaluates context i by itself, for those who want to see how its ranges come about, up to where no thread
// goes on. The machine stays there.
func (m *machine) context(i int) {
	x := &m.p.ctxs[i]
	m.rewind(0)
	m.home = x.home - 1
	for _, v := range m.plan.leaves {
		m.vars[v] = m.variable(&m.p.vars[v])
	}
	m.dead = !m.holds(m.p.lists[x.c0:x.c1])
	for s := x.s0; s < x.s1 && !m.dead; s++ {
		if st := m.p.steps[s]; st.guard {
			m.guard(st.index)
		} else if k := m.p.vars[st.index].kind; k != vThread && k != vAny {
			m.assign(st.index)
		}
	}
}

// assign evaluates a variable.
func (m *machine) assign(i int32) {
	v := &m.p.vars[i]
	switch v.kind {
	case vTable:
		m.vars[i] = m.table(i, v)
	case vParam:
		m.vars[i] = m.picked(i, v)
	case vCounter:
		b := m.counter(v)
		b.hi = min(b.hi, m.rounds[i])
		m.vars[i] = b
	default:
		m.vars[i] = m.variable(v)
	}
}

func (m *machine) argument(a *parg) bounds {
	f := &m.p.forms[a.form]
	b := m.total(f)
	return readBounds(a.w, a.signed, b, m.sound(f) && (a.w < 63 || b.bounded() || m.number(f, a.signed)))
}

// number reports whether a form without bounds is a variable that is a number of 64 bits.
func (m *machine) number(f *pform, signed bool) bool {
	if f.t1-f.t0 != 1 || f.sym != 0 || m.regs[f.c] != 0 {
		return false
	}
	t := m.p.terms[f.t0]
	v := &m.p.vars[t.v]
	return m.regs[t.coef] == 1 && isNumber(v.kind, v.w, v.imm, signed)
}

// one is the bounds of a value that is one of several.
func (m *machine) one(v *pvar) bounds {
	r := bounds{far, -far}
	for i := v.a0; i < v.a1; i++ {
		if a := &m.p.args[i]; m.holds(m.p.lists[a.c0:a.c1]) {
			r = r.join(m.argument(a))
		}
	}
	if r.empty() {
		// No way leads to where it is chosen, so it has no value. The context may still be one of accesses elsewhere, whose values
		// do not come from there.
		return bounds{}
	}
	return r
}

// holds reports whether all of some uniform conditions hold.
func (m *machine) holds(conds []int32) bool {
	for _, c := range conds {
		if (m.regs[c>>1] != 0) == (c&1 != 0) {
			return false
		}
	}
	return true
}

func (m *machine) variable(v *pvar) bounds {
	switch v.kind {
	case vThread:
		return m.coordinate(int(v.imm))
	case vCounter:
		return m.counter(v)
	}
	var ab [2]bounds
	if v.kind == vOne {
		return m.one(v)
	}
	for i := v.a0; i < v.a1 && i < v.a0+2; i++ {
		ab[i-v.a0] = m.argument(&m.p.args[i])
	}
	return evaluate(v.kind, v.w, v.imm, ab[0], ab[1])
}

// sound reports whether the checks of a form hold.
func (m *machine) sound(f *pform) bool { return f.k0 == f.k1 || m.prove(f) }

func (m *machine) prove(f *pform) bool {
	for _, id := range m.p.lists[f.k0:f.k1] {
		if !m.proves(id) {
			return false
		}
	}
	return true
}

func (m *machine) proves(id int32) bool {
	if !m.proven[id] {
		if !m.check(id) {
			return false
		}
		m.proven[id] = true
		m.trail = append(m.trail, undo{what: undoProof, id: id})
	}
	return true
}

// soundHere is sound for the accesses of one context: a check that fails for one of them fails for all.
func (m *machine) soundHere(f *pform) bool {
	for _, id := range m.p.lists[f.k0:f.k1] {
		if m.failed[id] == m.turn || !m.proves(id) {
			m.failed[id] = m.turn
			return false
		}
	}
	return true
}

func (m *machine) check(id int32) bool {
	c := &m.p.checks[id]
	return m.total(&m.p.forms[c.form]).in(c.in)
}

// total is the range of a form as a number.
func (m *machine) total(f *pform) bounds {
	if f.sym != 0 {
		return everything
	}
	c := m.regs[f.c]
	if c >= far || c <= -far {
		return everything
	}
	if f.t1-f.t0 == 1 { // most are a variable and a constant
		t := m.p.terms[f.t0]
		if m.regs[t.coef] == 1 {
			return m.vars[t.v].plus(bounds{c, c})
		}
	}
	return m.span(f).plus(bounds{c, c})
}

// span is the range of the terms of a form: guards first, then every variable by itself.
func (m *machine) span(f *pform) bounds {
	terms := m.p.terms[f.t0:f.t1]
	if m.grouped > 0 {
		return m.grouping(terms, m.plan.cands[f.d0:f.d1])
	}
	return m.sum(terms)
}

// sum is the range of terms, every variable by itself.
func (m *machine) sum(terms []pterm) bounds {
	var sum bounds
	for _, t := range terms {
		v, k := m.vars[t.v], m.regs[t.coef]
		if int64(int32(k)) != k || int64(int32(v.lo)) != v.lo || int64(int32(v.hi)) != v.hi {
			return m.largeSum(terms)
		}
		if k < 0 {
			v.lo, v.hi = v.hi, v.lo
		}
		sum.lo += v.lo * k // at most maxTerms times 2^62 if it were all: see below
		sum.hi += v.hi * k
		if sum.lo < -far/2 || sum.hi > far/2 {
			return m.largeSum(terms)
		}
	}
	return sum
}

// largeSum is sum where numbers may be large.
func (m *machine) largeSum(terms []pterm) bounds {
	var sum bounds
	for _, t := range terms {
		sum = sum.plus(m.vars[t.v].times(clamp(m.regs[t.coef])))
	}
	return sum
}

// grouping is the range of terms of which guards may know something together.
func (m *machine) grouping(terms []pterm, cands []pcand) bounds {
	var sum bounds
	var done uint32
	for i := range cands {
		c := &cands[i]
		if !m.active[c.guard] {
			continue
		}
		if k, mask := m.multiple(terms, c); k != 0 && mask&done == 0 {
			done |= mask
			sum = sum.plus(m.within[c.guard].times(k))
		}
	}
	if done == 0 {
		return m.sum(terms)
	}
	for i := range terms {
		if done&(1<<i) == 0 {
			sum = sum.plus(m.vars[terms[i].v].times(clamp(m.regs[terms[i].coef])))
		}
	}
	return sum
}

// multiple finds k such that the terms at the candidate's positions are k times the guard's.
func (m *machine) multiple(terms []pterm, c *pcand) (int64, uint32) {
	if c.mask != 0 {
		if m.regs[c.lead] == 0 {
			return 0, 0
		}
		return 1, c.mask
	}
	gf := &m.p.forms[m.p.guards[c.guard].form]
	g := m.p.terms[gf.t0:gf.t1]
	pos := m.p.lists[c.pos:]
	var k int64
	var mask uint32
	for i := range g {
		a, b := m.regs[terms[pos[i]].coef], m.regs[g[i].coef]
		if i == 0 {
			switch {
			case b == 0:
				return 0, 0
			case a == b:
				k = 1
			case b == 1:
				k = a
			case a%b != 0:
				return 0, 0
			default:
				k = a / b
			}
			if k <= -far || k >= far {
				return 0, 0
			}
		}
		if !isProduct(a, b, k) {
			return 0, 0
		}
		mask |= 1 << pos[i]
	}
	return k, mask
}

// isProduct reports whether a = b * k, as integers.
func isProduct(a, b, k int64) bool {
	if int64(int32(b)) == b && int64(int32(k)) == k {
		return a == b*k
	}
	if b == 0 {
		return a == 0
	}
	return a%b == 0 && a/b == k && b != -1
}

// counter bounds how often a loop has gone back to its header: each test that lets it go on was
// passed that many times.
func (m *machine) counter(v *pvar) bounds {
	best := far
	for i := v.a0; i < v.a1; i++ {
		x := &m.p.exits[i]
		s := &m.exits[i]
		s.rest = m.total(&m.p.forms[x.rest])
		s.valid = false
		n, ok := m.passes(x, s.rest)
		if !ok || n >= far || x.load != 0 && !m.origins[x.load-1].here {
			continue
		}
		// The numbers compared must be what they seem to be until then.
		m.vars[x.v] = bounds{0, n}
		s.valid = true
		f := &m.p.forms[x.form]
		for _, id := range m.p.lists[f.k0:f.k1] {
			if !m.check(id) {
				s.valid = false
				break
			}
		}
		if s.valid {
			best = min(best, n)
		}
	}
	return bounds{0, best}
}

// passes is the most times that step*k + rest is as x says, for k = 0, 1, … in turn.
func (m *machine) passes(x *pexit, rest bounds) (int64, bool) {
	step := m.regs[x.step]
	if step == 0 || !rest.bounded() {
		return 0, false
	}
	if x.not0 && rest.lo != rest.hi && !m.divides(step, &m.p.forms[x.rest]) {
		return 0, false
	}
	in := x.in
	if x.wrap != 0 {
		// It goes down to below 0, where an unsigned number is not below top: i = n-1; i < n; i--. No step leads past those that are not.
		top, room := m.regs[x.top], int64(1)<<x.wrap
		if top <= 0 || top > room || step >= 0 || step < top-room || rest.lo < top-room || rest.hi >= room {
			return 0, false
		}
		in = bounds{0, top - 1}
	}
	if step < 0 { // the same the other way round
		if step <= -far {
			return 0, false
		}
		step, rest = -step, rest.times(-1)
		return m.upwards(x.not0, bounds{-in.hi, -in.lo}, step, rest)
	}
	return m.upwards(x.not0, x.in, step, rest)
}

// divides reports whether all numbers that a form may be are multiples of step.
func (m *machine) divides(step int64, f *pform) bool {
	if step == 1 || step == -1 {
		return true
	}
	if f.sym != 0 || m.regs[f.c]%step != 0 {
		return false
	}
	for _, t := range m.p.terms[f.t0:f.t1] {
		if m.regs[t.coef]%step != 0 {
			return false
		}
	}
	return true
}

func (m *machine) upwards(not0 bool, in bounds, step int64, rest bounds) (int64, bool) {
	if not0 {
		// It must hit 0: rest is a multiple of step, or one number (divides).
		if rest.hi > 0 || rest.lo == rest.hi && rest.lo%step != 0 {
			return 0, false
		}
		return -rest.lo / step, true
	}
	if in.hi >= far {
		return 0, false
	}
	if rest.lo > in.hi {
		return 0, true
	}
	return (in.hi-rest.lo)/step + 1, true
}

// guard applies a guard: to its variable, or to its terms together.
func (m *machine) guard(id int32) {
	g := &m.p.guards[id]
	f := &m.p.forms[g.form]
	in := g.in
	if g.load != 0 && !m.origins[g.load-1].here {
		return
	}
	if g.exit != 0 {
		x := &m.p.exits[g.exit-1]
		s := &m.exits[g.exit-1]
		if !s.valid {
			return
		}
		in = m.before(x, s)
	}
	if !m.sound(f) {
		return
	}
	c := m.regs[f.c]
	if c >= far || c <= -far {
		return
	}
	if f.t1-f.t0 == 1 && g.wrap == 0 && g.rest == 0 && g.need == 0 && (!g.not0 || g.exit != 0) {
		t := m.p.terms[f.t0]
		if k := m.regs[t.coef]; k == 1 {
			m.narrow(t.v, in.plus(bounds{-c, -c}))
			return
		}
	}
	now := m.span(f)
	switch {
	case g.wrap != 0:
		top := m.regs[g.top]
		if top <= 0 {
			m.dead = true
			return
		}
		t := now.plus(bounds{c, c})
		if t.hi > int64(1)<<g.wrap-1 || t.lo <= top-1-int64(1)<<g.wrap {
			return
		}
		in = bounds{0, top - 1}
	case g.not0 && g.exit == 0:
		in = now.plus(bounds{c, c})
		if in.lo == 0 {
			in.lo = 1
		}
		if in.hi == 0 {
			in.hi = -1
		}
	}
	if g.need != 0 || g.mod != 0 {
		ok := false
		if in, ok = m.sharpened(g, in); !ok {
			return
		}
	}
	in = in.plus(bounds{-c, -c})
	if g.rest != 0 {
		in = in.minus(m.total(&m.p.forms[g.rest-1]))
	}
	now = now.meet(in)
	if now.empty() {
		m.dead = true
		return
	}
	if f.t1-f.t0 > 1 {
		m.within[id] = now
		if !m.active[id] {
			m.active[id] = true
			m.grouped++
			m.trail = append(m.trail, undo{what: undoGroup, id: id})
		}
		m.share(f, now)
		return
	}
	t := m.p.terms[f.t0]
	k := m.regs[t.coef]
	switch {
	case k == 0 || k <= -far || k >= far:
		return
	case k < 0:
		k, now = -k, now.times(-1)
	}
	to := everything
	if now.lo > -far {
		to.lo = ceilDiv(now.lo, k)
	}
	if now.hi < far {
		to.hi = floorDiv(now.hi, k)
	}
	m.narrow(t.v, to)
}

// narrow brings a variable within bounds.
func (m *machine) narrow(id int32, to bounds) {
	v := &m.vars[id]
	n := v.meet(to)
	if n == *v {
		return
	}
	m.trail = append(m.trail, undo{undoBounds, id, *v})
	*v = n
	if n.empty() {
		m.dead = true
	}
}

// share bounds each variable of a sum, of a few terms, that lies within in: by in less what the others can be.
func (m *machine) share(f *pform, in bounds) {
	terms := m.p.terms[f.t0:f.t1]
	if len(terms) > 4 {
		return
	}
	var sum bounds
	for _, t := range terms {
		sum = sum.plus(m.vars[t.v].times(clamp(m.regs[t.coef])))
	}
	if sum.lo <= -most || sum.hi >= most || sum.in(in) {
		return
	}
	for _, t := range terms {
		k := clamp(m.regs[t.coef])
		own := m.vars[t.v].times(k)
		// in less [sum.lo-own.lo, sum.hi-own.hi], the others
		r := bounds{-far, far}
		if in.lo > -far {
			r.lo = in.lo - (sum.hi - own.hi)
		}
		if in.hi < far {
			r.hi = in.hi - (sum.lo - own.lo)
		}
		switch {
		case k == 0:
			continue
		case k < 0:
			k, r = -k, bounds{-r.hi, -r.lo}
		}
		to := everything
		if r.lo > -far {
			to.lo = ceilDiv(r.lo, k)
		}
		if r.hi < far {
			to.hi = floorDiv(r.hi, k)
		}
		if m.narrow(t.v, to); m.dead {
			return
		}
	}
}

// before is the range of a test's form at the head of the loop: in the first iteration
// it is what it is; in every other one the test was passed a step before.
func (m *machine) before(x *pexit, s *exitState) bounds {
	step := m.regs[x.step]
	in := x.in
	if x.wrap != 0 {
		in = bounds{0, m.regs[x.top] - 1}
	}
	if x.not0 {
		// It goes towards 0 and stops there.
		if step > 0 {
			return bounds{-far, 0}
		}
		return bounds{0, far}
	}
	first := s.rest
	next := in.plus(bounds{step, step})
	return first.join(next)
}

// accesses finds the bytes of the accesses of a context, which has been evaluated.
func (m *machine) accesses(x *pset) {
	pl := m.plan
	if m.turn++; m.turn == 0 {
		clear(m.failed)
		m.turn = 1
	}
	for i := x.s0; i < x.s1; i++ {
		m.site(&pl.sites[i], &m.spans[i])
	}
	fast := x.fast
	for i := x.k0; fast && i < x.k1; i++ {
		fast = m.needed(&pl.needs[i])
	}
	plain := len(m.values) == 0
	for i := x.s0; i < x.s1; i++ {
		b := m.spans[i]
		near := b.lo >= -most && b.hi <= most
		s := &pl.sites[i]
		for k := s.p0; k < s.p1; k++ {
			a := &pl.places[k]
			r := &m.results[a.acc]
			if near && plain && a.sym == 0 && !a.none && (fast || !a.checked) { // as in place
				base := uint64(m.regs[a.c] + a.off)
				lo, hi := base+uint64(b.lo), base+uint64(b.hi+a.span)
				if lo < hi && hi <= 1<<63 {
					*r = extent{state: boxed, lo: lo, hi: hi}
					continue
				}
			}
			m.access(a, b, fast, r)
		}
	}
}

// access finds the bytes of one access, whose terms have range b; sound says that all checks hold.
func (m *machine) access(a *pplace, b bounds, sound bool, r *extent) {
	*r = extent{state: boundless, region: a.sym}
	if !a.none && (sound || !a.checked || m.soundHere(&m.p.forms[a.form])) {
		m.place(m.regs[a.c]+a.off, b, a.span, r)
		if len(m.values) > 0 {
			m.parts(&m.p.accs[a.acc], &m.p.forms[a.form], r)
		}
	}
	if r.state == boundless && m.launch.Contained && a.base != 0 {
		if x, ok := allocation(m.launch.Allocs, uint64(m.regs[a.base-1])); ok {
			r.state, r.lo, r.hi, r.whole = boxed, x.Lo, x.Hi, true
		}
	}
}

// site finds the range of the terms of a site, and keeps what it is made from.
func (m *machine) site(s *psite, to *bounds) {
	terms := m.p.terms[s.t0:s.t1]
	snap := m.snap[s.snap:][:len(terms)]
	for i, t := range terms {
		snap[i] = m.vars[t.v]
	}
	if s.d0 == s.d1 || m.grouped == 0 {
		for i := range m.gsnap[s.gsnap:][:s.d1-s.d0] {
			m.gsnap[int(s.gsnap)+i] = bounds{1, 0}
		}
		*to = m.sum(terms)
		return
	}
	cands := m.plan.cands[s.d0:s.d1]
	gsnap := m.gsnap[s.gsnap:][:len(cands)]
	for i := range cands {
		gsnap[i] = bounds{1, 0}
		if g := cands[i].guard; m.active[g] {
			gsnap[i] = m.within[g]
		}
	}
	*to = m.grouping(terms, cands)
}

// needed reports whether the checks that were taken together hold.
func (m *machine) needed(n *pneed) bool {
	b := m.spans[n.site]
	if n.c >= 0 {
		c := m.regs[n.c]
		if c >= far || c <= -far {
			return false
		}
		b = b.plus(bounds{c, c})
	}
	return b.in(n.in)
}

// reach finds where span bytes at a form may lie, off bytes behind it.
func (m *machine) reach(f *pform, off, span int64, r *extent) {
	r.state, r.region = boundless, f.sym
	if m.sound(f) {
		m.place(m.regs[f.c]+off, m.span(f), span, r)
	}
}

// variableBase stands for the place of a variable that is not known.
const variableBase = 1 << 62

// place finds where span bytes may lie that begin at a number in b behind an address.
func (m *machine) place(at int64, b bounds, span int64, r *extent) {
	if b.lo < -most || b.hi > most {
		return
	}
	base := uint64(at)
	if r.region > 0 && m.launch.Globals != nil && int(r.region) <= len(m.launch.Globals) {
		base += m.launch.Globals[r.region-1].Lo
		r.region = 0
	}
	lo, hi := base+uint64(b.lo), base+uint64(b.hi)+uint64(span)
	if r.region != 0 { // offsets, which may be negative
		lo += variableBase
		hi += variableBase
	}
	if hi <= lo || hi > 1<<63 {
		m.beyond = true
		return
	}
	r.state, r.lo, r.hi = boxed, lo, hi
}
