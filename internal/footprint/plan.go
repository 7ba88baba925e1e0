package footprint

import (
	"cmp"
	"encoding/binary"
	"slices"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
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
	pointers []planPointer
	ops      []planOp
	depth    int // of marks
	snaps    int
	gsnaps   int
	leaves   []int32 // variables that are not evaluated from others
	counters []int32 // of loops
	code     []planAction
	sets     []planSet
	sites    []planSite
	cands    []planCandidate // those of the program, then those of sites
	needs    []planNeed
	places   []planPlace
	readers  []int32 // accesses that read, those of one pointer together
	writers  []int32 // accesses that write, in the same way
	writes   []int32 // accesses that change something, in their order
	updates  []int32 // those that read what they change
	reads    []int32 // accesses that may see what was there before, in their order
	baseOf   []int32 // of accesses: 1 + the base that they lie at; 0 = none
	siteOf   []int32 // of accesses
	view     view
}

// A planPointer loads a register from 8 bytes of the parameters.
type planPointer struct{ reg, off int32 }

// A planOp computes a register.
type planOp struct {
	Instr
	reg int32
}

// A planAction is something to be done. If no thread comes to it, it goes on at end, and nobody comes to places p0 to
// p1.
type planAction struct {
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

// A planSet is the accesses of a context.
type planSet struct {
	s0, s1 int32 // sites
	k0, k1 int32 // needs: if they hold, then so do all checks
	p0, p1 int32 // places
	fast   bool  // needs can say so
}

// A planSite is terms that some forms of a context have in common: their range is found once.
type planSite struct {
	t0, t1 int32 // terms of the program
	d0, d1 int32 // candidates of the plan, for guards of the context
	snap   int32 // where the bounds of the terms' variables are kept
	gsnap  int32 // where the bounds of the candidates are kept
	p0, p1 int32 // places
}

// A planCandidate is a candidate. Where terms have the very coefficients of the guard's, of which the first one is in
// register lead, mask is which terms these are: together they are once what the guard bounds, unless lead is 0. Else
// mask is 0.
type planCandidate struct {
	Candidate
	lead int32
	mask uint32
}

// A planNeed is checks with the same terms: the site's range, moved by register c (-1: not at all), lies within in.
type planNeed struct {
	site, c int32
	in      interval.Bounds
}

// A planPlace is an access, and what of it the range of its bytes depends on.
type planPlace struct {
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
	p     *Program
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

// Prepare makes the plan. A witness is looked for on the path.
func (p *Program) Prepare(way *Path) { p.arrange(way, true) }

// arrange makes a plan in which contexts share what they have in common, and threads are followed only where they may
// show something; or neither.
func (p *Program) arrange(way *Path, sharing bool) {
	p.plan = plan{siteOf: make([]int32, len(p.Accs))}
	b := &planner{plan: &p.plan, p: p}
	b.registers()
	b.plan.cands = make([]planCandidate, len(p.Cands))
	for i := range p.Forms {
		f := &p.Forms[i]
		for k := f.D0; k < f.D1; k++ {
			b.plan.cands[k] = b.candidate(f, p.Cands[k])
		}
	}
	for i := range p.Vars {
		if b.leaf(int32(i)) {
			b.leaves = append(b.leaves, int32(i))
		} else if p.Vars[i].Kind == form.KindCounter {
			b.counters = append(b.counters, int32(i))
		}
	}
	var all, list []*route
	for i := range p.Ctxs {
		all = append(all, b.route(int32(i)))
	}
	if sharing {
		b.hoist(all)
	}
	for i, x := range p.Ctxs {
		r := all[i]
		if x.Rounds == 0 && x.Home == 0 && sharing {
			list = append(list, r)
			continue
		}
		// What it finds is for all that follow.
		b.code = append(b.code, planAction{do: doMark}, planAction{do: doHome, index: x.Home - 1})
		b.tree([]*route{r}, 1)
		if x.Rounds != 0 {
			b.code = append(b.code, planAction{do: doEntered, index: x.Rounds - 1})
		}
		b.code = append(b.code, planAction{do: doHome, index: -1}, planAction{do: doBack})
	}
	b.tree(list, 0)
	b.accesses()
	b.look(way, b.movable(way), sharing)
	b.p.pack()
}

func (b *planner) registers() {
	b.template = make([]int64, len(b.p.Ops))
	for i, in := range b.p.Ops {
		switch {
		case in.Op == form.OpConst:
			b.template[i] = in.Imm
			continue
		case in.Op == form.OpParam && in.W == 64:
			b.pointers = append(b.pointers, planPointer{int32(i), int32(in.Imm)})
		default:
			b.ops = append(b.ops, planOp{in, int32(i)})
		}
		if in.Op == form.OpParam {
			b.params = max(b.params, int(in.Imm)+int(in.W/8))
		}
	}
}

// leaf reports whether a variable is the same at the beginning of every context.
func (b *planner) leaf(v int32) bool {
	k := b.p.Vars[v].Kind
	return k == form.KindThread || k == form.KindAny || k == form.KindFlag || k == form.KindBits
}

// variables calls each for the variables of a form, and of its checks.
func (b *planner) variables(form int32, each func(v int32)) {
	f := &b.p.Forms[form]
	for _, t := range b.p.Terms[f.T0:f.T1] {
		each(t.V)
	}
	for _, k := range b.p.Lists[f.K0:f.K1] {
		g := &b.p.Forms[b.p.Checks[k].Form]
		for _, t := range b.p.Terms[g.T0:g.T1] {
			each(t.V)
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
		g := &b.p.Guards[index]
		b.variables(g.Form, read)
		if g.Rest != 0 {
			b.variables(g.Rest-1, read)
		}
		if g.Need != 0 {
			b.variables(g.Need-1, read)
		}
		if g.Load != 0 { // whether it is known here
			read(g.Load - 1)
		}
		if g.Exit != 0 { // what is known of an exit goes with the counter
			read(b.p.Exits[g.Exit-1].V)
		}
		f := &b.p.Forms[g.Form]
		for _, t := range b.p.Terms[f.T0:f.T1] { // several terms: what is known of them together, too
			writes = append(writes, t.V)
		}
	case doVariable:
		v := &b.p.Vars[index]
		if v.Kind == form.KindCounter {
			for _, x := range b.p.Exits[v.A0:v.A1] {
				b.variables(x.Form, read)
				b.variables(x.Rest, read)
			}
		} else {
			for _, a := range b.p.Args[v.A0:v.A1] {
				b.variables(a.Form, read)
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
	x := &b.p.Ctxs[ctx]
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
	for _, c := range b.p.Lists[x.C0:x.C1] {
		add(doCondition, c)
	}
	for _, st := range b.p.Steps[x.S0:x.S1] {
		do, but := doVariable, st.Index
		if st.Guard {
			do, but = doGuard, -1
		} else if b.leaf(st.Index) {
			continue
		}
		reads, _ := b.touched(do, st.Index)
		for _, v := range reads {
			known(v, but)
		}
		add(do, st.Index)
	}
	for _, a := range b.p.Accs[x.A0:x.A1] {
		b.variables(a.Form, func(v int32) { known(v, -1) })
	}
	if x.Rounds != 0 {
		known(x.Rounds-1, -1)
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
			b.code = append(b.code, planAction{do: doMark, index: int32(depth)})
			at++
		}
		b.code = append(b.code, planAction{do: do, index: index, p0: int32(len(b.places))})
		if len(rest) > 0 {
			b.tree(with, depth+1)
			b.close(at)
			b.code = append(b.code, planAction{do: doBack, index: int32(depth)})
			list = rest
			continue
		}
		b.tree(with, depth)
		b.close(at)
		return
	}
}

// hoist puts variables before everything else that each context which has them may begin with: no guard bears on them.
// Contexts that do not have them do not see them. Not those of which contexts find out something for others, nor those
// that may find that no thread comes here.
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
			switch k := b.p.Vars[v].Kind; {
			case has[v] < 2 || ready[v] < has[v] || k == form.KindOne || k == form.KindTable || k == form.KindCounter:
				continue
			}
			found = true
			b.code = append(b.code, planAction{do: doVariable, index: v, end: int32(len(b.code)) + 1})
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
	x := &b.p.Ctxs[ctx]
	if x.Rounds != 0 {
		b.code = append(b.code, planAction{do: doEnter, index: x.Rounds - 1})
	}
	if x.A0 == x.A1 {
		return
	}
	s := planSet{s0: int32(len(b.sites)), k0: int32(len(b.needs)), p0: int32(len(b.places)), fast: true}
	b.shape = map[string]int32{}
	checks := map[int32]bool{}
	for i := x.A0; i < x.A1; i++ {
		a := &b.p.Accs[i]
		f := &b.p.Forms[a.Form]
		site := b.site(x, f)
		b.siteOf[i] = site
		b.places = append(b.places, planPlace{acc: i, site: site, form: a.Form, c: f.C, sym: f.Sym, base: a.Base,
			off: a.Off, span: a.Span,
			none: a.Bytes == 0, checked: f.K0 < f.K1})
		for _, k := range b.p.Lists[f.K0:f.K1] {
			if !checks[k] {
				checks[k] = true
				b.need(x, &s, k)
			}
		}
	}
	s.s1, s.k1, s.p1 = int32(len(b.sites)), int32(len(b.needs)), int32(len(b.places))
	slices.SortStableFunc(b.places[s.p0:], func(x, y planPlace) int { return cmp.Compare(x.site, y.site) })
	for i := s.p0; i < s.p1; i++ {
		at := &b.sites[b.places[i].site]
		if at.p1 == 0 {
			at.p0 = i
		}
		at.p1 = i + 1
	}
	b.code = append(b.code, planAction{do: doAccesses, index: int32(len(b.sets)), end: int32(len(b.code)) + 1})
	b.sets = append(b.sets, s)
}

// site finds or makes the site of a form in the context in hand.
func (b *planner) site(x *Context, f *Form) int32 {
	var key []byte
	for _, t := range b.p.Terms[f.T0:f.T1] {
		key = binary.AppendVarint(binary.AppendVarint(key, int64(t.V)), int64(t.Coef))
	}
	if i, ok := b.shape[string(key)]; ok {
		return i
	}
	i := int32(len(b.sites))
	b.shape[string(key)] = i
	s := planSite{t0: f.T0, t1: f.T1, snap: int32(b.snaps), gsnap: int32(b.gsnaps), d0: int32(len(b.plan.cands))}
	for _, c := range b.p.Cands[f.D0:f.D1] {
		if slices.Contains(b.p.Steps[x.S0:x.S1], Step{true, c.Guard}) {
			b.plan.cands = append(b.plan.cands, b.candidate(f, c))
		}
	}
	s.d1 = int32(len(b.plan.cands))
	b.snaps += int(s.t1 - s.t0)
	b.gsnaps += int(s.d1 - s.d0)
	b.sites = append(b.sites, s)
	return i
}

func (b *planner) candidate(f *Form, c Candidate) planCandidate {
	of := &b.p.Forms[b.p.Guards[c.Guard].Form]
	x := planCandidate{Candidate: c, lead: b.p.Terms[of.T0].Coef}
	for i, t := range b.p.Terms[of.T0:of.T1] {
		at := b.p.Lists[int(c.Pos)+i]
		if b.p.Terms[f.T0+at].Coef != t.Coef {
			x.mask = 0
			break
		}
		x.mask |= 1 << at
	}
	return x
}

// need adds a check to those of a set.
func (b *planner) need(x *Context, s *planSet, check int32) {
	k := &b.p.Checks[check]
	f := &b.p.Forms[k.Form]
	if f.Sym != 0 {
		s.fast = false
		return
	}
	n := planNeed{b.site(x, f), f.C, k.In}
	const large, small = 1 << 61, 1 << 40
	inner := func(x int64) bool { return x > -large && x < large }
	if c := b.p.Ops[f.C]; c.Op == form.OpConst && c.Imm > -small && c.Imm < small && (inner(n.in.Lo) ||
		n.in.Lo <= -interval.Far) && (inner(n.in.Hi) || n.in.Hi >= interval.Far) {
		// The same as a condition for the terms alone.
		n.c = -1
		if inner(n.in.Lo) {
			n.in.Lo -= c.Imm
		}
		if inner(n.in.Hi) {
			n.in.Hi -= c.Imm
		}
		for i := range b.needs[s.k0:] {
			if o := &b.needs[int(s.k0)+i]; o.site == n.site && o.c == -1 {
				o.in = o.in.Meet(n.in)
				return
			}
		}
	}
	b.needs = append(b.needs, n)
}

// accesses lists the accesses for those who look at all of them.
func (b *planner) accesses() {
	accs := b.p.Accs
	for i := range accs {
		if accs[i].Kind != IsWrite || accs[i].Atom != 0 { // an exchange reads, but nobody sees what
			b.readers = append(b.readers, int32(i))
		}
		if accs[i].Kind != IsRead {
			b.writers = append(b.writers, int32(i))
		}
		if !accs[i].Hidden && accs[i].Kind != IsWrite {
			b.reads = append(b.reads, int32(i))
		}
		if accs[i].Kind != IsRead {
			b.writes = append(b.writes, int32(i))
		}
		if accs[i].Kind == IsUpdate {
			b.updates = append(b.updates, int32(i))
		}
	}
	// Allocations are often passed in their order.
	param := func(a *Access) int64 {
		if a.Base == 0 {
			return -1
		}
		return b.p.Ops[a.Base-1].Imm
	}
	for _, list := range [...][]int32{b.readers, b.writers} {
		slices.SortStableFunc(list, func(x, y int32) int {
			p, q := &accs[x], &accs[y]
			return cmp.Or(cmp.Compare(param(p), param(q)), cmp.Compare(b.p.Forms[p.Form].C, b.p.Forms[q.Form].C),
				cmp.Compare(p.Off, q.Off))
		})
	}
}
