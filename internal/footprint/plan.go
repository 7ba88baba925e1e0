package footprint

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// A plan is a program in the order in which a launch evaluates it. It is made from the program alone, when a
// kernel is analysed or a summary read, and not kept with it.
//
// Contexts have steps in common. Two steps of a context may change places if neither writes a variable that the
// other one reads or writes: what they compute stays the same. So the steps of all contexts are one tree whose
// paths are the contexts, each with its own steps in an order that means the same: what several contexts begin with is
// evaluated once. On the way back to a branch the machine undoes what it found behind it.
type plan struct {
	// What recent.go needs comes first (bases.go), then what every launch does, in its order.
	repeats bool      // launches can be remembered
	least   int32     // bytes of parameters
	key     []keyWord // what else than bases a launch depends on, of its parameters
	bases   []int32   // offsets of parameters

	params   int     // bytes of parameters that are read
	template []int64 // the registers: constants are already there
	pointers []ppointer
	ops      []pop
	depth    int // of marks
	snaps    int
	gsnaps   int
	leaves   []int32 // variables that are not evaluated from others
	counters []int32 // of loops
	code     []pcode
	sets     []pset
	sites    []psite
	cands    []pcand // those of the program, then those of sites
	needs    []pneed
	places   []pplace
	readers  []int32 // accesses that read, those of one pointer together
	writers  []int32 // accesses that write, in the same way
	writes   []int32 // accesses that change something, in their order
	updates  []int32 // those that read what they change
	reads    []int32 // accesses that may see what was there before, in their order
	baseOf   []int32 // of accesses: 1 + the base that they lie at; 0 = none
	siteOf   []int32 // of accesses
	view     view
}

// A ppointer loads a register from 8 bytes of the parameters.
type ppointer struct{ reg, off int32 }

// A pop computes a register.
type pop struct {
	instr
	reg int32
}

// A pcode is something to be done. If no thread comes to it, it goes on at end, and nobody comes to places p0 to p1.
type pcode struct {
	do     doing
	index  int32
	end    int32
	p0, p1 int32
}

type doing uint8

const (
	doCondition doing = iota
	doForget          // a variable of which nothing is known
	doVariable
	doGuard
	doAccesses // of a set
	doHome     // what a loaded value is where it is loaded is found here; -1: no longer
	doEnter    // the loop of a counter
	doEntered  // or nobody has: from now on, that is its bound
	doMark     // remembers the state
	doBack     // goes back to it
)

// A pset is the accesses of a context.
type pset struct {
	s0, s1 int32 // sites
	k0, k1 int32 // needs: if they hold, then so do all checks
	p0, p1 int32 // places
	fast   bool  // needs can say so
}

// A psite is terms that some forms of a context have in common: their range is found once.
type psite struct {
	t0, t1 int32 // terms of the program
	d0, d1 int32 // candidates of the plan, for guards of the context
	snap   int32 // where the bounds of the terms' variables are kept
	gsnap  int32 // where the bounds of the candidates are kept
	p0, p1 int32 // places
}

// A pcand is a candidate. Where terms have the very coefficients of the guard's, of which the first one is in register lead, mask is which
// terms these are: together they are once what the guard bounds, unless lead is 0. Else mask is 0.
type pcand struct {
	cand
	lead int32
	mask uint32
}

// A pneed is checks with the same terms: the site's range, moved by register c (-1: not at all), lies within in.
type pneed struct {
	site, c int32
	in      bounds
}

// A pplace is an access, and what of it the range of its bytes depends on.
type pplace struct {
	acc, site int32
	form, c   int32
	sym, base int32
	off, span int64
	none      bool // its length is not known
	checked   bool // its form has checks
}

// maxSharing bounds how much work goes into finding common steps.
const maxSharing = 1 << 21

// A planner makes a plan.
type planner struct {
	*plan
	p     *program
	work  int
	shape map[string]int32
}

// A route is a context on its way into the tree.
type route struct {
	ctx   int32
	steps []routeStep
	left  int
}

type routeStep struct {
	do    doing
	index int32
	wait  int32 // steps that it must come after
	next  []int32
	done  bool
}

// prepare makes the plan. A witness is looked for on the path.
func (p *program) prepare(way *path) { p.arrange(way, true) }

// arrange makes a plan in which contexts share what they have in common, and threads are followed only where they may show
// something; or neither.
func (p *program) arrange(way *path, sharing bool) {
	p.plan = plan{siteOf: make([]int32, len(p.accs))}
	b := &planner{plan: &p.plan, p: p}
	b.registers()
	b.plan.cands = make([]pcand, len(p.cands))
	for i := range p.forms {
		f := &p.forms[i]
		for k := f.d0; k < f.d1; k++ {
			b.plan.cands[k] = b.candidate(f, p.cands[k])
		}
	}
	for i := range p.vars {
		if b.leaf(int32(i)) {
			b.leaves = append(b.leaves, int32(i))
		} else if p.vars[i].kind == vCounter {
			b.counters = append(b.counters, int32(i))
		}
	}
	var all, list []*route
	for i := range p.ctxs {
		all = append(all, b.route(int32(i)))
	}
	if sharing {
		b.hoist(all)
	}
	for i, x := range p.ctxs {
		r := all[i]
		if x.rounds == 0 && x.home == 0 && sharing {
			list = append(list, r)
			continue
		}
		// What it finds is for all that follow.
		b.code = append(b.code, pcode{do: doMark}, pcode{do: doHome, index: x.home - 1})
		b.tree([]*route{r}, 1)
		if x.rounds != 0 {
			b.code = append(b.code, pcode{do: doEntered, index: x.rounds - 1})
		}
		b.code = append(b.code, pcode{do: doHome, index: -1}, pcode{do: doBack})
	}
	b.tree(list, 0)
	b.accesses()
	b.look(way, b.movable(way), sharing)
	b.p.pack()
}

func (b *planner) registers() {
	b.template = make([]int64, len(b.p.ops))
	for i, in := range b.p.ops {
		switch {
		case in.op == opConst:
			b.template[i] = in.imm
			continue
		case in.op == opParam && in.w == 64:
			b.pointers = append(b.pointers, ppointer{int32(i), int32(in.imm)})
		default:
			b.ops = append(b.ops, pop{in, int32(i)})
		}
		if in.op == opParam {
			b.params = max(b.params, int(in.imm)+int(in.w/8))
		}
	}
}

// leaf reports whether a variable is the same at the beginning of every context.
func (b *planner) leaf(v int32) bool {
	k := b.p.vars[v].kind
	return k == vThread || k == vAny || k == vFlag || k == vBits
}

// variables calls each for the variables of a form, and of its checks.
func (b *planner) variables(form int32, each func(v int32)) {
	f := &b.p.forms[form]
	for _, t := range b.p.terms[f.t0:f.t1] {
		each(t.v)
	}
	for _, k := range b.p.lists[f.k0:f.k1] {
		g := &b.p.forms[b.p.checks[k].form]
		for _, t := range b.p.terms[g.t0:g.t1] {
			each(t.v)
		}
	}
}

// touched is what a step reads and what it writes.
func (b *planner) touched(do doing, index int32) (reads, writes []int32) {
	read := func(v int32) {
		if !slices.Contains(reads, v) {
			reads = append(reads, v)
		}
	}
	switch do {
	case doGuard:
		g := &b.p.guards[index]
		b.variables(g.form, read)
		if g.rest != 0 {
			b.variables(g.rest-1, read)
		}
		if g.need != 0 {
			b.variables(g.need-1, read)
		}
		if g.load != 0 { // whether it is known here
			read(g.load - 1)
		}
		if g.exit != 0 { // what is known of an exit goes with the counter
			read(b.p.exits[g.exit-1].v)
		}
		f := &b.p.forms[g.form]
		for _, t := range b.p.terms[f.t0:f.t1] { // several terms: what is known of them together, too
			writes = append(writes, t.v)
		}
	case doVariable:
		v := &b.p.vars[index]
		if v.kind == vCounter {
			for _, x := range b.p.exits[v.a0:v.a1] {
				b.variables(x.form, read)
				b.variables(x.rest, read)
			}
		} else {
			for _, a := range b.p.args[v.a0:v.a1] {
				b.variables(a.form, read)
			}
		}
		writes = append(writes, index)
	case doForget:
		writes = append(writes, index)
	}
	return reads, writes
}

// route lists the steps of a context, and which must come after which.
func (b *planner) route(ctx int32) *route {
	x := &b.p.ctxs[ctx]
	r := &route{ctx: ctx}
	have := map[int32]bool{}
	wrote := map[int32]int32{}
	readers := map[int32][]int32{}
	add := func(do doing, index int32) {
		reads, writes := b.touched(do, index)
		i := int32(len(r.steps))
		r.steps = append(r.steps, routeStep{do: do, index: index})
		after := func(j int32) {
			if n := r.steps[j].next; len(n) == 0 || n[len(n)-1] != i {
				r.steps[j].next = append(n, i)
				r.steps[i].wait++
			}
		}
		for _, v := range append(reads, writes...) {
			if j, ok := wrote[v]; ok {
				after(j)
			}
		}
		for _, v := range writes {
			for _, j := range readers[v] {
				after(j)
			}
			readers[v] = nil
		}
		for _, v := range reads {
			readers[v] = append(readers[v], i)
		}
		for _, v := range writes {
			wrote[v] = i
			have[v] = true
		}
	}
	known := func(v, but int32) {
		if !have[v] && v != but && !b.leaf(v) { // no program of ours does this
			add(doForget, v)
		}
	}
	for _, c := range b.p.lists[x.c0:x.c1] {
		add(doCondition, c)
	}
	for _, st := range b.p.steps[x.s0:x.s1] {
		do, but := doVariable, st.index
		if st.guard {
			do, but = doGuard, -1
		} else if b.leaf(st.index) {
			continue
		}
		reads, _ := b.touched(do, st.index)
		for _, v := range reads {
			known(v, but)
		}
		add(do, st.index)
	}
	for _, a := range b.p.accs[x.a0:x.a1] {
		b.variables(a.form, func(v int32) { known(v, -1) })
	}
	if x.rounds != 0 {
		known(x.rounds-1, -1)
	}
	r.left = len(r.steps)
	return r
}

// step is a step of this kind that a route can take now; nil: there is none.
func (r *route) step(do doing, index int32) *routeStep {
	for i := range r.steps {
		if s := &r.steps[i]; !s.done && s.wait == 0 && s.do == do && s.index == index {
			return s
		}
	}
	return nil
}

func (r *route) take(s *routeStep) {
	s.done = true
	r.left--
	for _, j := range s.next {
		r.steps[j].wait--
	}
}

// tree writes the code of some routes that begin with the same steps, which are done.
func (b *planner) tree(list []*route, depth int) {
	b.plan.depth = max(b.plan.depth, depth)
	for len(list) > 0 {
		n := 0
		for _, r := range list {
			if r.left == 0 {
				b.set(r.ctx)
			} else {
				list[n] = r
				n++
			}
		}
		if list = list[:n]; n == 0 {
			return
		}
		do, index := b.best(list)
		var with, rest []*route
		for _, r := range list {
			if s := r.step(do, index); s != nil {
				r.take(s)
				with = append(with, r)
			} else {
				rest = append(rest, r)
			}
		}
		at := len(b.code)
		if len(rest) > 0 {
			b.code = append(b.code, pcode{do: doMark, index: int32(depth)})
			at++
		}
		b.code = append(b.code, pcode{do: do, index: index, p0: int32(len(b.places))})
		if len(rest) > 0 {
			b.tree(with, depth+1)
			b.close(at)
			b.code = append(b.code, pcode{do: doBack, index: int32(depth)})
			list = rest
			continue
		}
		b.tree(with, depth)
		b.close(at)
		return
	}
}

// hoist puts variables before everything else that each context which has them may begin with: no guard bears on
// them. Contexts that do not have them do not see them. Not those of which contexts find out something for others, nor those that may
// find that no thread comes here.
func (b *planner) hoist(list []*route) {
	for found := true; found && b.work < maxSharing; {
		found = false
		var order []int32
		has, ready := map[int32]int{}, map[int32]int{}
		for _, r := range list {
			b.work += len(r.steps)
			for i := range r.steps {
				s := &r.steps[i]
				if s.done || s.do != doVariable && s.do != doForget {
					continue
				}
				if has[s.index]++; has[s.index] == 1 {
					order = append(order, s.index)
				}
				if s.do == doVariable && s.wait == 0 {
					ready[s.index]++
				}
			}
		}
		for _, v := range order {
			switch k := b.p.vars[v].kind; {
			case has[v] < 2 || ready[v] < has[v] || k == vOne || k == vTable || k == vCounter:
				continue
			}
			found = true
			b.code = append(b.code, pcode{do: doVariable, index: v, end: int32(len(b.code)) + 1})
			for _, r := range list {
				if s := r.step(doVariable, v); s != nil {
					r.take(s)
				}
			}
		}
	}
}

// close notes what follows from a step.
func (b *planner) close(at int) {
	b.code[at].end = int32(len(b.code))
	b.code[at].p1 = int32(len(b.places))
}

// best is the step that most routes can take; among equals the first one.
func (b *planner) best(list []*route) (doing, int32) {
	type key struct {
		do    doing
		index int32
	}
	if len(list) == 1 || b.work > maxSharing {
		for i := range list[0].steps {
			if s := &list[0].steps[i]; !s.done { // those before it are done
				return s.do, s.index
			}
		}
	}
	count := map[key]int{}
	var found key
	for _, r := range list {
		b.work += len(r.steps)
		for i := range r.steps {
			if s := &r.steps[i]; !s.done && s.wait == 0 {
				count[key{s.do, s.index}]++
			}
		}
	}
	for _, r := range list {
		for i := range r.steps {
			if s := &r.steps[i]; !s.done && s.wait == 0 && count[key{s.do, s.index}] > count[found] {
				found = key{s.do, s.index}
			}
		}
	}
	return found.do, found.index
}

// set writes the code of a context's accesses.
func (b *planner) set(ctx int32) {
	x := &b.p.ctxs[ctx]
	if x.rounds != 0 {
		b.code = append(b.code, pcode{do: doEnter, index: x.rounds - 1})
	}
	if x.a0 == x.a1 {
		return
	}
	s := pset{s0: int32(len(b.sites)), k0: int32(len(b.needs)), p0: int32(len(b.places)), fast: true}
	b.shape = map[string]int32{}
	checks := map[int32]bool{}
	for i := x.a0; i < x.a1; i++ {
		a := &b.p.accs[i]
		f := &b.p.forms[a.form]
		site := b.site(x, f)
		b.siteOf[i] = site
		b.places = append(b.places, pplace{acc: i, site: site, form: a.form, c: f.c, sym: f.sym, base: a.base, off: a.off, span: a.span,
			none: a.bytes == 0, checked: f.k0 < f.k1})
		for _, k := range b.p.lists[f.k0:f.k1] {
			if !checks[k] {
				checks[k] = true
				b.need(x, &s, k)
			}
		}
	}
	s.s1, s.k1, s.p1 = int32(len(b.sites)), int32(len(b.needs)), int32(len(b.places))
	slices.SortStableFunc(b.places[s.p0:], func(x, y pplace) int { return cmp.Compare(x.site, y.site) })
	for i := s.p0; i < s.p1; i++ {
		at := &b.sites[b.places[i].site]
		if at.p1 == 0 {
			at.p0 = i
		}
		at.p1 = i + 1
	}
	b.code = append(b.code, pcode{do: doAccesses, index: int32(len(b.sets)), end: int32(len(b.code)) + 1})
	b.sets = append(b.sets, s)
}

// site finds or makes the site of a form in the context in hand.
func (b *planner) site(x *pctx, f *pform) int32 {
	var key []byte
	for _, t := range b.p.terms[f.t0:f.t1] {
		key = binary.AppendVarint(binary.AppendVarint(key, int64(t.v)), int64(t.coef))
	}
	if i, ok := b.shape[string(key)]; ok {
		return i
	}
	i := int32(len(b.sites))
	b.shape[string(key)] = i
	s := psite{t0: f.t0, t1: f.t1, snap: int32(b.snaps), gsnap: int32(b.gsnaps), d0: int32(len(b.plan.cands))}
	for _, c := range b.p.cands[f.d0:f.d1] {
		if slices.Contains(b.p.steps[x.s0:x.s1], pstep{true, c.guard}) {
			b.plan.cands = append(b.plan.cands, b.candidate(f, c))
		}
	}
	s.d1 = int32(len(b.plan.cands))
	b.snaps += int(s.t1 - s.t0)
	b.gsnaps += int(s.d1 - s.d0)
	b.sites = append(b.sites, s)
	return i
}

func (b *planner) candidate(f *pform, c cand) pcand {
	of := &b.p.forms[b.p.guards[c.guard].form]
	x := pcand{cand: c, lead: b.p.terms[of.t0].coef}
	for i, t := range b.p.terms[of.t0:of.t1] {
		at := b.p.lists[int(c.pos)+i]
		if b.p.terms[f.t0+at].coef != t.coef {
			x.mask = 0
			break
		}
		x.mask |= 1 << at
	}
	return x
}

// need adds a check to those of a set.
func (b *planner) need(x *pctx, s *pset, check int32) {
	k := &b.p.checks[check]
	f := &b.p.forms[k.form]
	if f.sym != 0 {
		s.fast = false
		return
	}
	n := pneed{b.site(x, f), f.c, k.in}
	const large, small = 1 << 61, 1 << 40
	inner := func(x int64) bool { return x > -large && x < large }
	if c := b.p.ops[f.c]; c.op == opConst && c.imm > -small && c.imm < small && (inner(n.in.lo) || n.in.lo <= -far) && (inner(n.in.hi) || n.in.hi >= far) {
		// The same as a condition for the terms alone.
		n.c = -1
		if inner(n.in.lo) {
			n.in.lo -= c.imm
		}
		if inner(n.in.hi) {
			n.in.hi -= c.imm
		}
		for i := range b.needs[s.k0:] {
			if o := &b.needs[int(s.k0)+i]; o.site == n.site && o.c == -1 {
				o.in = o.in.meet(n.in)
				return
			}
		}
	}
	b.needs = append(b.needs, n)
}

// accesses lists the accesses for those who look at all of them.
func (b *planner) accesses() {
	accs := b.p.accs
	for i := range accs {
		if accs[i].kind != isWrite || accs[i].atom != 0 { // an exchange reads, but nobody sees what
			b.readers = append(b.readers, int32(i))
		}
		if accs[i].kind != isRead {
			b.writers = append(b.writers, int32(i))
		}
		if !accs[i].hidden && accs[i].kind != isWrite {
			b.reads = append(b.reads, int32(i))
		}
		if accs[i].kind != isRead {
			b.writes = append(b.writes, int32(i))
		}
		if accs[i].kind == isUpdate {
			b.updates = append(b.updates, int32(i))
		}
	}
	// Allocations are often passed in their order.
	param := func(a *pacc) int64 {
		if a.base == 0 {
			return -1
		}
		return b.p.ops[a.base-1].imm
	}
	for _, list := range [...][]int32{b.readers, b.writers} {
		slices.SortStableFunc(list, func(x, y int32) int {
			p, q := &accs[x], &accs[y]
			return cmp.Or(cmp.Compare(param(p), param(q)), cmp.Compare(b.p.forms[p.form].c, b.p.forms[q.form].c), cmp.Compare(p.off, q.off))
		})
	}
}
