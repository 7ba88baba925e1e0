package footprint

import (
	"encoding/binary"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// A machine is the memory that evaluating a launch needs. It belongs to an Instance.
type machine struct {
	p       *Program
	plan    *plan
	launch  *Launch
	cluster [3]uint32
	regs    []int64
	vars    []interval.Bounds
	rounds  []int64           // of counters: the most that they reach anywhere in the launch
	reached int64             // by the counter in hand; 0: no thread enters its loop
	proven  []bool            // of checks: they hold where the machine is
	failed  []uint32          // of checks: in which turn they did not
	turn    uint32            // a context's accesses
	active  []bool            // of guards with several terms: within says something
	within  []interval.Bounds // of those guards: their terms
	grouped int               // guards that are active
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

	spans []interval.Bounds // of sites
	snap  []interval.Bounds // of sites: the variables of their terms
	gsnap []interval.Bounds // of sites: their candidates; empty: not active

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
	old  interval.Bounds
}

type undoing uint8

const (
	undoBounds undoing = iota
	undoProof
	undoGroup
)

// An exitState is what a loop's test says in the context in hand.
type exitState struct {
	rest  interval.Bounds // of the rest, its constant included
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
func (m *machine) grow(p *Program) {
	pl := &p.plan
	m.p, m.plan = p, pl
	m.regs = resize(m.regs, len(p.Ops))
	m.vars = resize(m.vars, len(p.Vars))
	m.rounds = resize(m.rounds, len(p.Vars))
	m.within = resize(m.within, len(p.Guards))
	m.exits = resize(m.exits, len(p.Exits))
	m.results = resize(m.results, len(p.Accs))
	m.spans = resize(m.spans, len(pl.sites))
	m.snap = resize(m.snap, pl.snaps)
	m.gsnap = resize(m.gsnap, pl.gsnaps)
	m.marks = resize(m.marks, pl.depth+1)
	if len(m.boxes) < len(p.Accs) {
		m.boxes = make([]boxes, len(p.Accs))
		m.launches = 0
	}
	if m.launches++; m.launches == 0 {
		clear(m.boxes)
		m.launches = 1
	}
	// These are false between launches. They never become smaller: kernels of different shapes take turns.
	if len(m.proven) < len(p.Checks) {
		m.proven, m.failed = make([]bool, len(p.Checks)), make([]uint32, len(p.Checks))
	}
	if len(m.active) < len(p.Guards) {
		m.active = make([]bool, len(p.Guards))
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
		a, b := r[in.A], r[in.B]
		switch s := (64 - in.W) & 63; in.Op {
		case form.OpParam:
			r[in.reg] = m.param(&in.Instr)
		case form.OpGeometry:
			r[in.reg] = m.geometry(int(in.Imm))
		case form.OpAdd:
			r[in.reg] = (a + b) << s >> s
		case form.OpSub:
			r[in.reg] = (a - b) << s >> s
		case form.OpMul:
			r[in.reg] = a * b << s >> s
		case form.OpSext:
			r[in.reg] = a
		case form.OpTrunc:
			r[in.reg] = a << s >> s
		default:
			x, ok := form.Compute(in.Op, in.W, in.Aw, a, b, r[in.C])
			if !ok {
				m.bad = true
			}
			r[in.reg] = x
		}
	}
}

func (m *machine) param(in *Instr) int64 {
	p := m.launch.Params
	if in.Imm+int64(in.W/8) > int64(len(p)) {
		m.bad = true
		return 0
	}
	p = p[in.Imm:]
	switch in.W {
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
	case form.NtidX, form.NtidY, form.NtidZ:
		return int64(l.Block[i-form.NtidX])
	case form.NctaidX, form.NctaidY, form.NctaidZ:
		return int64(int32(l.Grid[i-form.NctaidX]))
	case form.ClusterX, form.ClusterY, form.ClusterZ:
		return int64(m.cluster[i-form.ClusterX])
	case form.NclusterX, form.NclusterY, form.NclusterZ:
		return int64(l.Grid[i-form.NclusterX] / m.cluster[i-form.NclusterX])
	case form.ClusterSize:
		return int64(m.cluster[0]) * int64(m.cluster[1]) * int64(m.cluster[2])
	}
	return int64(l.Shared)
}

// coordinate is the range of a coordinate of the threads of a launch.
func (m *machine) coordinate(i int) interval.Bounds {
	l := m.launch
	n := int64(1)
	switch i {
	case form.TidX, form.TidY, form.TidZ:
		n = int64(l.Block[i-form.TidX])
	case form.CtaidX, form.CtaidY, form.CtaidZ:
		n = int64(l.Grid[i-form.CtaidX])
	case form.LaneID:
		n = min(32, int64(l.Block[0])*int64(l.Block[1])*int64(l.Block[2]))
	case form.ClusterCtaX, form.ClusterCtaY, form.ClusterCtaZ:
		n = int64(m.cluster[i-form.ClusterCtaX])
	case form.ClusterRank:
		n = m.geometry(form.ClusterSize)
	case form.ClusterIDX, form.ClusterIDY, form.ClusterIDZ:
		n = m.geometry(form.NclusterX + i - form.ClusterIDX)
	}
	return interval.Bounds{Lo: 0, Hi: n - 1}
}

// run does what the plan says.
func (m *machine) run() {
	pl := m.plan
	for _, v := range pl.leaves {
		m.vars[v] = m.variable(&m.p.Vars[v])
	}
	for _, v := range pl.counters {
		m.rounds[v] = interval.Far
	}
	m.reached, m.home = 0, -1
	m.dead = false
	for i := 0; i < len(pl.code); i++ {
		x := &pl.code[i]
		switch x.do {
		case doCondition:
			m.dead = (m.regs[x.index>>1] != 0) == (x.index&1 != 0)
		case doForget:
			m.vars[x.index] = interval.Everything
		case doVariable:
			m.assign(x.index)
		case doGuard:
			m.guard(x.index)
		case doAccesses:
			m.accesses(&pl.sets[x.index])
		case doEnter:
			m.reached = max(0, m.vars[x.index].Hi)
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
	x := &m.p.Ctxs[i]
	m.rewind(0)
	m.home = x.Home - 1
	for _, v := range m.plan.leaves {
		m.vars[v] = m.variable(&m.p.Vars[v])
	}
	m.dead = !m.holds(m.p.Lists[x.C0:x.C1])
	for s := x.S0; s < x.S1 && !m.dead; s++ {
		if st := m.p.Steps[s]; st.Guard {
			m.guard(st.Index)
		} else if k := m.p.Vars[st.Index].Kind; k != form.KindThread && k != form.KindAny {
			m.assign(st.Index)
		}
	}
}

// assign evaluates a variable.
func (m *machine) assign(i int32) {
	v := &m.p.Vars[i]
	switch v.Kind {
	case form.KindTable:
		m.vars[i] = m.table(i, v)
	case form.KindParam:
		m.vars[i] = m.picked(i, v)
	case form.KindCounter:
		b := m.counter(v)
		b.Hi = min(b.Hi, m.rounds[i])
		m.vars[i] = b
	default:
		m.vars[i] = m.variable(v)
	}
}

func (m *machine) argument(a *Arg) interval.Bounds {
	f := &m.p.Forms[a.Form]
	b := m.total(f)
	return form.ReadBounds(a.W, a.Signed, b, m.sound(f) && (a.W < 63 || b.Bounded() || m.number(f, a.Signed)))
}

// number reports whether a form without bounds is a variable that is a number of 64 bits.
func (m *machine) number(f *Form, signed bool) bool {
	if f.T1-f.T0 != 1 || f.Sym != 0 || m.regs[f.C] != 0 {
		return false
	}
	t := m.p.Terms[f.T0]
	v := &m.p.Vars[t.V]
	return m.regs[t.Coef] == 1 && form.IsNumber(v.Kind, v.W, v.Imm, signed)
}

// one is the bounds of a value that is one of several.
func (m *machine) one(v *Var) interval.Bounds {
	r := interval.Bounds{Lo: interval.Far, Hi: -interval.Far}
	for i := v.A0; i < v.A1; i++ {
		if a := &m.p.Args[i]; m.holds(m.p.Lists[a.C0:a.C1]) {
			r = r.Join(m.argument(a))
		}
	}
	if r.Empty() {
		// No way leads to where it is chosen, so it has no value. The context may still be one of accesses elsewhere,
		// whose values do not come from there.
		return interval.Bounds{}
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

func (m *machine) variable(v *Var) interval.Bounds {
	switch v.Kind {
	case form.KindThread:
		return m.coordinate(int(v.Imm))
	case form.KindCounter:
		return m.counter(v)
	}
	var ab [2]interval.Bounds
	if v.Kind == form.KindOne {
		return m.one(v)
	}
	for i := v.A0; i < v.A1 && i < v.A0+2; i++ {
		ab[i-v.A0] = m.argument(&m.p.Args[i])
	}
	return form.Evaluate(v.Kind, v.W, v.Imm, ab[0], ab[1])
}

// sound reports whether the checks of a form hold.
func (m *machine) sound(f *Form) bool { return f.K0 == f.K1 || m.prove(f) }

func (m *machine) prove(f *Form) bool {
	for _, id := range m.p.Lists[f.K0:f.K1] {
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
func (m *machine) soundHere(f *Form) bool {
	for _, id := range m.p.Lists[f.K0:f.K1] {
		if m.failed[id] == m.turn || !m.proves(id) {
			m.failed[id] = m.turn
			return false
		}
	}
	return true
}

func (m *machine) check(id int32) bool {
	c := &m.p.Checks[id]
	return m.total(&m.p.Forms[c.Form]).In(c.In)
}

// total is the range of a form as a number.
func (m *machine) total(f *Form) interval.Bounds {
	if f.Sym != 0 {
		return interval.Everything
	}
	c := m.regs[f.C]
	if c >= interval.Far || c <= -interval.Far {
		return interval.Everything
	}
	if f.T1-f.T0 == 1 { // most are a variable and a constant
		t := m.p.Terms[f.T0]
		if m.regs[t.Coef] == 1 {
			return m.vars[t.V].Plus(interval.Bounds{Lo: c, Hi: c})
		}
	}
	return m.span(f).Plus(interval.Bounds{Lo: c, Hi: c})
}

// span is the range of the terms of a form: guards first, then every variable by itself.
func (m *machine) span(f *Form) interval.Bounds {
	terms := m.p.Terms[f.T0:f.T1]
	if m.grouped > 0 {
		return m.grouping(terms, m.plan.cands[f.D0:f.D1])
	}
	return m.sum(terms)
}

// sum is the range of terms, every variable by itself.
func (m *machine) sum(terms []Term) interval.Bounds {
	var sum interval.Bounds
	for _, t := range terms {
		v, k := m.vars[t.V], m.regs[t.Coef]
		if int64(int32(k)) != k || int64(int32(v.Lo)) != v.Lo || int64(int32(v.Hi)) != v.Hi {
			return m.largeSum(terms)
		}
		if k < 0 {
			v.Lo, v.Hi = v.Hi, v.Lo
		}
		sum.Lo += v.Lo * k // at most maxTerms times 2^62 if it were all: see below
		sum.Hi += v.Hi * k
		if sum.Lo < -interval.Far/2 || sum.Hi > interval.Far/2 {
			return m.largeSum(terms)
		}
	}
	return sum
}

// largeSum is sum where numbers may be large.
func (m *machine) largeSum(terms []Term) interval.Bounds {
	var sum interval.Bounds
	for _, t := range terms {
		sum = sum.Plus(m.vars[t.V].Times(interval.Clamp(m.regs[t.Coef])))
	}
	return sum
}

// grouping is the range of terms of which guards may know something together.
func (m *machine) grouping(terms []Term, cands []planCandidate) interval.Bounds {
	var sum interval.Bounds
	var done uint32
	for i := range cands {
		c := &cands[i]
		if !m.active[c.Guard] {
			continue
		}
		if k, mask := m.multiple(terms, c); k != 0 && mask&done == 0 {
			done |= mask
			sum = sum.Plus(m.within[c.Guard].Times(k))
		}
	}
	if done == 0 {
		return m.sum(terms)
	}
	for i := range terms {
		if done&(1<<i) == 0 {
			sum = sum.Plus(m.vars[terms[i].V].Times(interval.Clamp(m.regs[terms[i].Coef])))
		}
	}
	return sum
}

// multiple finds k such that the terms at the candidate's positions are k times the guard's.
func (m *machine) multiple(terms []Term, c *planCandidate) (int64, uint32) {
	if c.mask != 0 {
		if m.regs[c.lead] == 0 {
			return 0, 0
		}
		return 1, c.mask
	}
	gf := &m.p.Forms[m.p.Guards[c.Guard].Form]
	g := m.p.Terms[gf.T0:gf.T1]
	pos := m.p.Lists[c.Pos:]
	var k int64
	var mask uint32
	for i := range g {
		a, b := m.regs[terms[pos[i]].Coef], m.regs[g[i].Coef]
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
			if k <= -interval.Far || k >= interval.Far {
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
func (m *machine) counter(v *Var) interval.Bounds {
	best := interval.Far
	for i := v.A0; i < v.A1; i++ {
		x := &m.p.Exits[i]
		s := &m.exits[i]
		s.rest = m.total(&m.p.Forms[x.Rest])
		s.valid = false
		n, ok := m.passes(x, s.rest)
		if !ok || n >= interval.Far || x.Load != 0 && !m.origins[x.Load-1].here {
			continue
		}
		// The numbers compared must be what they seem to be until then.
		m.vars[x.V] = interval.Bounds{Lo: 0, Hi: n}
		s.valid = true
		f := &m.p.Forms[x.Form]
		for _, id := range m.p.Lists[f.K0:f.K1] {
			if !m.check(id) {
				s.valid = false
				break
			}
		}
		if s.valid {
			best = min(best, n)
		}
	}
	return interval.Bounds{Lo: 0, Hi: best}
}

// passes is the most times that step*k + rest is as x says, for k = 0, 1, … in turn.
func (m *machine) passes(x *Exit, rest interval.Bounds) (int64, bool) {
	step := m.regs[x.Step]
	if step == 0 || !rest.Bounded() {
		return 0, false
	}
	if x.Not0 && rest.Lo != rest.Hi && !m.divides(step, &m.p.Forms[x.Rest]) {
		return 0, false
	}
	in := x.In
	if x.Wrap != 0 {
		// It goes down to below 0, where an unsigned number is not below top: i = n-1; i < n; i--. No step leads past
		// those that are not.
		top, room := m.regs[x.Top], int64(1)<<x.Wrap
		if top <= 0 || top > room || step >= 0 || step < top-room || rest.Lo < top-room || rest.Hi >= room {
			return 0, false
		}
		in = interval.Bounds{Lo: 0, Hi: top - 1}
	}
	if step < 0 { // the same the other way round
		if step <= -interval.Far {
			return 0, false
		}
		step, rest = -step, rest.Times(-1)
		return m.upwards(x.Not0, interval.Bounds{Lo: -in.Hi, Hi: -in.Lo}, step, rest)
	}
	return m.upwards(x.Not0, x.In, step, rest)
}

// divides reports whether all numbers that a form may be are multiples of step.
func (m *machine) divides(step int64, f *Form) bool {
	if step == 1 || step == -1 {
		return true
	}
	if f.Sym != 0 || m.regs[f.C]%step != 0 {
		return false
	}
	for _, t := range m.p.Terms[f.T0:f.T1] {
		if m.regs[t.Coef]%step != 0 {
			return false
		}
	}
	return true
}

func (m *machine) upwards(not0 bool, in interval.Bounds, step int64, rest interval.Bounds) (int64, bool) {
	if not0 {
		// It must hit 0: rest is a multiple of step, or one number (divides).
		if rest.Hi > 0 || rest.Lo == rest.Hi && rest.Lo%step != 0 {
			return 0, false
		}
		return -rest.Lo / step, true
	}
	if in.Hi >= interval.Far {
		return 0, false
	}
	if rest.Lo > in.Hi {
		return 0, true
	}
	return (in.Hi-rest.Lo)/step + 1, true
}

// guard applies a guard: to its variable, or to its terms together.
func (m *machine) guard(id int32) {
	g := &m.p.Guards[id]
	f := &m.p.Forms[g.Form]
	in := g.In
	if g.Load != 0 && !m.origins[g.Load-1].here {
		return
	}
	if g.Exit != 0 {
		x := &m.p.Exits[g.Exit-1]
		s := &m.exits[g.Exit-1]
		if !s.valid {
			return
		}
		in = m.before(x, s)
	}
	if !m.sound(f) {
		return
	}
	c := m.regs[f.C]
	if c >= interval.Far || c <= -interval.Far {
		return
	}
	if f.T1-f.T0 == 1 && g.Wrap == 0 && g.Rest == 0 && g.Need == 0 && (!g.Not0 || g.Exit != 0) {
		t := m.p.Terms[f.T0]
		if k := m.regs[t.Coef]; k == 1 {
			m.narrow(t.V, in.Plus(interval.Bounds{Lo: -c, Hi: -c}))
			return
		}
	}
	now := m.span(f)
	switch {
	case g.Wrap != 0:
		top := m.regs[g.Top]
		if top <= 0 {
			m.dead = true
			return
		}
		t := now.Plus(interval.Bounds{Lo: c, Hi: c})
		if t.Hi > int64(1)<<g.Wrap-1 || t.Lo <= top-1-int64(1)<<g.Wrap {
			return
		}
		in = interval.Bounds{Lo: 0, Hi: top - 1}
	case g.Not0 && g.Exit == 0:
		in = now.Plus(interval.Bounds{Lo: c, Hi: c})
		if in.Lo == 0 {
			in.Lo = 1
		}
		if in.Hi == 0 {
			in.Hi = -1
		}
	}
	if g.Need != 0 || g.Mod != 0 {
		ok := false
		if in, ok = m.sharpened(g, in); !ok {
			return
		}
	}
	in = in.Plus(interval.Bounds{Lo: -c, Hi: -c})
	if g.Rest != 0 {
		in = in.Minus(m.total(&m.p.Forms[g.Rest-1]))
	}
	now = now.Meet(in)
	if now.Empty() {
		m.dead = true
		return
	}
	if f.T1-f.T0 > 1 {
		m.within[id] = now
		if !m.active[id] {
			m.active[id] = true
			m.grouped++
			m.trail = append(m.trail, undo{what: undoGroup, id: id})
		}
		m.share(f, now)
		return
	}
	t := m.p.Terms[f.T0]
	k := m.regs[t.Coef]
	switch {
	case k == 0 || k <= -interval.Far || k >= interval.Far:
		return
	case k < 0:
		k, now = -k, now.Times(-1)
	}
	to := interval.Everything
	if now.Lo > -interval.Far {
		to.Lo = interval.CeilDiv(now.Lo, k)
	}
	if now.Hi < interval.Far {
		to.Hi = interval.FloorDiv(now.Hi, k)
	}
	m.narrow(t.V, to)
}

// narrow brings a variable within bounds.
func (m *machine) narrow(id int32, to interval.Bounds) {
	v := &m.vars[id]
	n := v.Meet(to)
	if n == *v {
		return
	}
	m.trail = append(m.trail, undo{undoBounds, id, *v})
	*v = n
	if n.Empty() {
		m.dead = true
	}
}

// share bounds each variable of a sum, of a few terms, that lies within in: by in less what the others can be.
func (m *machine) share(f *Form, in interval.Bounds) {
	terms := m.p.Terms[f.T0:f.T1]
	if len(terms) > 4 {
		return
	}
	var sum interval.Bounds
	for _, t := range terms {
		sum = sum.Plus(m.vars[t.V].Times(interval.Clamp(m.regs[t.Coef])))
	}
	if sum.Lo <= -Largest || sum.Hi >= Largest || sum.In(in) {
		return
	}
	for _, t := range terms {
		k := interval.Clamp(m.regs[t.Coef])
		own := m.vars[t.V].Times(k)
		// in less [sum.lo-own.lo, sum.hi-own.hi], the others
		r := interval.Bounds{Lo: -interval.Far, Hi: interval.Far}
		if in.Lo > -interval.Far {
			r.Lo = in.Lo - (sum.Hi - own.Hi)
		}
		if in.Hi < interval.Far {
			r.Hi = in.Hi - (sum.Lo - own.Lo)
		}
		switch {
		case k == 0:
			continue
		case k < 0:
			k, r = -k, interval.Bounds{Lo: -r.Hi, Hi: -r.Lo}
		}
		to := interval.Everything
		if r.Lo > -interval.Far {
			to.Lo = interval.CeilDiv(r.Lo, k)
		}
		if r.Hi < interval.Far {
			to.Hi = interval.FloorDiv(r.Hi, k)
		}
		if m.narrow(t.V, to); m.dead {
			return
		}
	}
}

// before is the range of a test's form at the head of the loop: in the first iteration
// it is what it is; in every other one the test was passed a step before.
func (m *machine) before(x *Exit, s *exitState) interval.Bounds {
	step := m.regs[x.Step]
	in := x.In
	if x.Wrap != 0 {
		in = interval.Bounds{Lo: 0, Hi: m.regs[x.Top] - 1}
	}
	if x.Not0 {
		// It goes towards 0 and stops there.
		if step > 0 {
			return interval.Bounds{Lo: -interval.Far, Hi: 0}
		}
		return interval.Bounds{Lo: 0, Hi: interval.Far}
	}
	first := s.rest
	next := in.Plus(interval.Bounds{Lo: step, Hi: step})
	return first.Join(next)
}

// accesses finds the bytes of the accesses of a context, which has been evaluated.
func (m *machine) accesses(x *planSet) {
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
		near := b.Lo >= -Largest && b.Hi <= Largest
		s := &pl.sites[i]
		for k := s.p0; k < s.p1; k++ {
			a := &pl.places[k]
			r := &m.results[a.acc]
			if near && plain && a.sym == 0 && !a.none && (fast || !a.checked) { // as in place
				base := uint64(m.regs[a.c] + a.off)
				lo, hi := base+uint64(b.Lo), base+uint64(b.Hi+a.span)
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
func (m *machine) access(a *planPlace, b interval.Bounds, sound bool, r *extent) {
	*r = extent{state: boundless, region: a.sym}
	if !a.none && (sound || !a.checked || m.soundHere(&m.p.Forms[a.form])) {
		m.place(m.regs[a.c]+a.off, b, a.span, r)
		if len(m.values) > 0 {
			m.parts(&m.p.Accs[a.acc], &m.p.Forms[a.form], r)
		}
	}
	if r.state == boundless && m.launch.Contained && a.base != 0 {
		if x, ok := allocation(m.launch.Allocs, uint64(m.regs[a.base-1])); ok {
			r.state, r.lo, r.hi, r.whole = boxed, x.Lo, x.Hi, true
		}
	}
}

// site finds the range of the terms of a site, and keeps what it is made from.
func (m *machine) site(s *planSite, to *interval.Bounds) {
	terms := m.p.Terms[s.t0:s.t1]
	snap := m.snap[s.snap:][:len(terms)]
	for i, t := range terms {
		snap[i] = m.vars[t.V]
	}
	if s.d0 == s.d1 || m.grouped == 0 {
		for i := range m.gsnap[s.gsnap:][:s.d1-s.d0] {
			m.gsnap[int(s.gsnap)+i] = interval.Bounds{Lo: 1, Hi: 0}
		}
		*to = m.sum(terms)
		return
	}
	cands := m.plan.cands[s.d0:s.d1]
	gsnap := m.gsnap[s.gsnap:][:len(cands)]
	for i := range cands {
		gsnap[i] = interval.Bounds{Lo: 1, Hi: 0}
		if g := cands[i].Guard; m.active[g] {
			gsnap[i] = m.within[g]
		}
	}
	*to = m.grouping(terms, cands)
}

// needed reports whether the checks that were taken together hold.
func (m *machine) needed(n *planNeed) bool {
	b := m.spans[n.site]
	if n.c >= 0 {
		c := m.regs[n.c]
		if c >= interval.Far || c <= -interval.Far {
			return false
		}
		b = b.Plus(interval.Bounds{Lo: c, Hi: c})
	}
	return b.In(n.in)
}

// reach finds where span bytes at a form may lie, off bytes behind it.
func (m *machine) reach(f *Form, off, span int64, r *extent) {
	r.state, r.region = boundless, f.Sym
	if m.sound(f) {
		m.place(m.regs[f.C]+off, m.span(f), span, r)
	}
}

// variableBase stands for the place of a variable that is not known.
const variableBase = 1 << 62

// place finds where span bytes may lie that begin at a number in b behind an address.
func (m *machine) place(at int64, b interval.Bounds, span int64, r *extent) {
	if b.Lo < -Largest || b.Hi > Largest {
		return
	}
	base := uint64(at)
	if r.region > 0 && m.launch.Globals != nil && int(r.region) <= len(m.launch.Globals) {
		base += m.launch.Globals[r.region-1].Lo
		r.region = 0
	}
	lo, hi := base+uint64(b.Lo), base+uint64(b.Hi)+uint64(span)
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
