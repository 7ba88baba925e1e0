package footprint

import (
	"cmp"
	"encoding/binary"
	"slices"

	"holdfast/internal/ir"
)

// A program is a summary's code: what a launch computes, in flat tables that refer to each
// other by index.
type program struct {
	plan plan // made of the rest

	ops    []instr // uniform values; each writes the register of its own number
	vars   []pvar
	args   []parg
	forms  []pform
	terms  []pterm
	lists  []int32 // checks of forms, conditions of contexts, positions of terms
	cands  []cand
	checks []pcheck
	guards []pguard
	exits  []pexit
	ctxs   []pctx
	steps  []pstep
	accs   []pacc
	congs  []pcong
}

// An instr computes a uniform value of w bits from registers; aw is the width of a.
type instr struct {
	op      xop
	w, aw   uint8
	a, b, c int32
	imm     int64
}

type pvar struct {
	kind   vkind
	w      uint8
	imm    int64
	a0, a1 int32 // args; of vCounter: exits
}

type parg struct {
	form   int32
	w      uint8
	signed bool
	c0, c1 int32 // lists: conditions
}

type pterm struct{ v, coef int32 }

type pform struct {
	t0, t1 int32 // terms
	c      int32 // register
	sym    int32
	k0, k1 int32 // lists: checks
	d0, d1 int32 // cands
}

// A cand is a guard with more than one term, all of whose variables a form has too, at these
// positions.
type cand struct {
	guard int32
	pos   int32 // lists
}

type pcheck struct {
	form int32
	in   bounds
}

type pguard struct {
	form int32
	in   bounds
	not0 bool
	wrap uint8
	top  int32
	exit int32 // 1 + exit
	rest int32 // 1 + form; in is for the sum of both
	need int32 // 1 + form; if it is not negative, the guard holds, but for one side (unrolled.go)
	side uint8
	load int32 // 1 + a loaded value: it holds only where what is loaded is known; 0 = always
	mod  int64 // of several terms: what is bounded is res modulo mod; 0 = not known
	res  int64
}

type pexit struct {
	v    int32 // the counter
	form int32
	rest int32
	step int32
	in   bounds
	not0 bool
	wrap uint8 // instead of in: form modulo 2^wrap is below register top
	top  int32
	load int32 // 1 + a loaded value: the test says something only if what is loaded is known; 0 = none
}

// A pctx is the facts that hold at some accesses: steps are done in order, then the accesses
// looked at.
type pctx struct {
	c0, c1 int32 // lists: conditions, as 2*register + (1: it must not hold)
	s0, s1 int32 // steps
	a0, a1 int32 // accesses
	rounds int32 // 1 + the counter that is bounded here for all contexts that follow; 0 = none
	home   int32 // 1 + the loaded value whose bounds where it is loaded are found here; 0 = none
}

// A pstep evaluates a variable, or (guard) applies a guard.
type pstep struct {
	guard bool
	index int32
}

type pacc struct {
	kind   akind
	hidden bool
	atom   int32 // equal for operations that may meet
	form   int32
	off    int64
	bytes  int64
	span   int64
	step   int64
	count  int64
	pos    int32
	order  int32
	cong   int32 // 1 + a congruence that holds for its terms
	cover  int32 // of a write and what it may cover: the same number; 0 = none
	lone   bool  // of such a write: only threads whose tid.x is 0 make it
	base   int32 // 1 + the register of the pointer that the address is made from; 0 = not known
}

// A pcong says that a form is congruent to a register modulo m; or (not, of m = 2) that it is not.
type pcong struct {
	form, r int32
	m       int64
	not     bool
}

// A compiler turns symbolic values into a program.
type compiler struct {
	*kernel
	p      *program
	reg    map[exprID]int32
	varAt  map[varID]int32
	formAt map[*linear]int32
	chkAt  map[int32]int32
	guards map[guardKey]int32
	given  []guard // of pguard
	exitAt map[int64][]int32
	exitOf []exit
	loops  map[int64][]exit
	atoms  map[atomicUpdate]int32
	names  []Global // the variables in global memory
	circle bool     // a variable is evaluated from itself
	tables bool     // what is loaded may be known (table.go)
	loaded bool     // there is something that may be
}

type guardKey struct {
	f    *linear
	in   bounds
	not0 bool
	wrap uint8
	top  exprID
	exit int32
	rest *linear
	need *linear
	load int32
}

func newCompiler(k *kernel, tables bool) *compiler {
	c := &compiler{kernel: k, tables: tables, p: &program{}, reg: map[exprID]int32{}, varAt: map[varID]int32{}, formAt: map[*linear]int32{},
		chkAt: map[int32]int32{}, guards: map[guardKey]int32{}, exitAt: map[int64][]int32{},
		loops: map[int64][]exit{}, atoms: map[atomicUpdate]int32{{}: 0}}
	for i, l := range k.f.Loops.Loops {
		for _, x := range k.exits(l) {
			if x.load != 0 && !tables {
				c.loaded = true
				continue
			}
			c.loops[int64(i)] = append(c.loops[int64(i)], x)
		}
	}
	return c
}

// register is where a uniform value will be.
func (c *compiler) register(e exprID) int32 {
	if r, ok := c.reg[e]; ok {
		return r
	}
	x := c.exprs[e]
	in := instr{op: x.op, w: x.w, aw: c.exprs[x.a].w, imm: x.imm}
	if x.a != none {
		in.a = c.register(x.a)
	}
	if x.b != none {
		in.b = c.register(x.b)
	}
	if x.c != none {
		in.c = c.register(x.c)
	}
	r := int32(len(c.p.ops))
	c.p.ops = append(c.p.ops, in)
	c.reg[e] = r
	return r
}

// condition is a uniform fact as a number: 2*register, and 1 if it must not hold.
func (c *compiler) condition(x fact) int32 { return 2*c.register(x.e) + int32(truth(x.not)&1) }

func (c *compiler) linearForm(f *linear) int32 {
	if i, ok := c.formAt[f]; ok {
		return i
	}
	p := pform{c: c.register(f.c), sym: c.global(f.sym)}
	var terms []pterm
	for _, t := range f.terms {
		terms = append(terms, pterm{c.variableIndex(t.v), c.register(t.coef)})
	}
	var checks []int32
	for _, id := range f.checks {
		checks = append(checks, c.check(id))
	}
	p.t0 = int32(len(c.p.terms))
	c.p.terms = append(c.p.terms, terms...)
	p.t1 = int32(len(c.p.terms))
	p.k0 = int32(len(c.p.lists))
	c.p.lists = append(c.p.lists, checks...)
	p.k1 = int32(len(c.p.lists))
	i := int32(len(c.p.forms))
	c.p.forms = append(c.p.forms, p)
	c.formAt[f] = i
	return i
}

// global numbers the variables in global memory; others are -1.
func (c *compiler) global(sym int32) int32 {
	if sym == 0 {
		return 0
	}
	s := c.symbols[sym-1]
	if s.space != ir.Global && s.space != ir.Generic && s.space != ir.Const {
		return -1
	}
	i := slices.IndexFunc(c.names, func(g Global) bool { return g.Name == s.name })
	if i < 0 {
		i = len(c.names)
		c.names = append(c.names, Global{s.name, s.size})
	}
	return int32(i) + 1
}

func (c *compiler) check(id int32) int32 {
	if i, ok := c.chkAt[id]; ok {
		return i
	}
	ch := c.checks[id]
	f := c.linearForm(ch.f)
	i := int32(len(c.p.checks))
	c.p.checks = append(c.p.checks, pcheck{f, ch.all()})
	c.chkAt[id] = i
	return i
}

func (c *compiler) variableIndex(v varID) int32 {
	if i, ok := c.varAt[v]; ok {
		return i
	}
	x := c.vars[v]
	p := pvar{kind: x.kind, w: x.w, imm: x.imm}
	if x.kind == vTable {
		c.loaded = true
		if !c.tables {
			p.kind, x.args = vAny, nil
		}
	}
	i := int32(len(c.p.vars))
	c.varAt[v] = i
	c.p.vars = append(c.p.vars, p)
	if x.kind == vCounter {
		c.counter(x.imm, i)
		return i
	}
	var args []parg
	for _, a := range x.args {
		q := parg{form: c.linearForm(a.f), w: a.w, signed: a.signed}
		var conds []int32
		for _, x := range a.conds {
			conds = append(conds, c.condition(x))
		}
		q.c0 = int32(len(c.p.lists))
		c.p.lists = append(c.p.lists, conds...)
		q.c1 = int32(len(c.p.lists))
		args = append(args, q)
	}
	p.a0 = int32(len(c.p.args))
	c.p.args = append(c.p.args, args...)
	p.a1 = int32(len(c.p.args))
	c.p.vars[i] = p
	return i
}

// counter adds the exits of a loop.
func (c *compiler) counter(loop int64, v int32) {
	var list []pexit
	var given []exit
	for _, x := range c.loops[loop] {
		load := int32(0)
		if x.load != 0 {
			load = c.variableIndex(varID(x.load-1)) + 1
		}
		p := pexit{v: v, form: c.linearForm(x.g.f), rest: c.linearForm(x.rest), step: c.register(x.step), in: x.g.in, not0: x.g.not0, load: load, wrap: x.wrap}
		if x.wrap != 0 {
			p.top = c.register(x.top)
		}
		list = append(list, p)
		given = append(given, x)
	}
	c.p.vars[v].a0 = int32(len(c.p.exits))
	for i := range list {
		c.exitAt[loop] = append(c.exitAt[loop], int32(len(c.p.exits)))
		c.p.exits = append(c.p.exits, list[i])
		c.exitOf = append(c.exitOf, given[i])
	}
	c.p.vars[v].a1 = int32(len(c.p.exits))
}

func (c *compiler) guard(g guard, exit int32) int32 {
	key := guardKey{g.f, g.in, g.not0, g.wrap, g.top, exit, g.rest, g.need, g.load}
	if i, ok := c.guards[key]; ok {
		return i
	}
	p := pguard{form: c.linearForm(g.f), in: g.in, not0: g.not0, wrap: g.wrap, exit: exit}
	if g.wrap != 0 {
		p.top = c.register(g.top)
	}
	if g.rest != nil {
		p.rest = c.linearForm(g.rest) + 1
	}
	if g.load != 0 {
		p.load = c.variableIndex(varID(g.load-1)) + 1
	}
	if g.need != nil {
		p.need, p.side = c.linearForm(g.need)+1, g.side
	}
	whole := g.f
	if g.rest != nil {
		whole, _ = c.sum(g.f, g.rest, c.num(1))
	}
	if g.wrap == 0 && (!g.not0 || exit != 0) && whole != nil && len(g.f.terms) > 1 {
		p.mod, p.res = c.modulus(whole)
	}
	i := int32(len(c.p.guards))
	c.p.guards = append(c.p.guards, p)
	c.given = append(c.given, g)
	c.guards[key] = i
	return i
}

// A scope is what an access needs of its facts.
type scope struct {
	conds  []int32
	guards []int32
	vars   map[varID]bool
	in     []int64 // the loops around the access
}

// scopeOf finds the guards that tell something about an access, and the variables to be
// evaluated.
func (c *compiler) scopeOf(a *access, f *linear) scope {
	s := scope{vars: map[varID]bool{}}
	var all []int32
	for _, x := range a.facts {
		if c.uniform[x.e] {
			if v, ok := c.constant(x.e); !ok || (v != 0) == x.not {
				s.conds = append(s.conds, c.condition(x))
			}
			continue
		}
		for _, g := range c.kernel.guards(x) {
			if len(g.f.terms) > 0 { // else a comparison of a value with itself
				all = append(all, c.guard(g, 0))
			}
		}
	}
	for i, l := range c.f.Loops.Loops {
		if !c.f.Dom.Dominates(l.Header.Index, a.block.Index) {
			continue
		}
		s.in = append(s.in, int64(i))
		if _, ok := c.varOf[c.counterKey(int64(i))]; !ok {
			continue
		}
		c.variableIndex(c.varOf[c.counterKey(int64(i))])
		for _, x := range c.exitAt[int64(i)] {
			all = append(all, c.guard(c.exitOf[x].g, x+1))
		}
	}
	all = c.atMostWhole(all)
	if c.tables {
		all = c.projections(all)
	}
	forms := map[*linear]bool{}
	var need func(f *linear)
	need = func(f *linear) {
		if forms[f] {
			return
		}
		forms[f] = true
		for _, id := range f.checks {
			need(c.checks[id].f)
		}
		for _, t := range f.terms {
			if s.vars[t.v] {
				continue
			}
			s.vars[t.v] = true
			for _, g := range c.arguments(t.v) {
				need(g.f)
			}
			if c.vars[t.v].kind == vCounter {
				for _, x := range c.loops[c.vars[t.v].imm] {
					need(x.g.f)
					need(x.rest)
				}
			}
		}
	}
	need(f)
	if c.tables {
		all = c.aliases(all, s.vars)
	}
	all = c.floors(all, s.vars)
	used := map[int32]bool{}
	for grown := true; grown; {
		grown = false
		for _, id := range all {
			if used[id] {
				continue
			}
			g := c.given[id]
			for f := range forms {
				if subset(g.f, f) {
					used[id], grown = true, true
					need(g.f)
					if g.rest != nil {
						need(g.rest)
					}
					if g.need != nil {
						need(g.need)
					}
					break
				}
			}
		}
	}
	for _, id := range all {
		if used[id] && !slices.Contains(s.guards, id) {
			s.guards = append(s.guards, id)
		}
	}
	slices.Sort(s.conds)
	s.conds = slices.Compact(s.conds)
	return s
}

// subset reports whether all variables of a guard are in f.
func subset(g, f *linear) bool {
	i := 0
	for _, t := range g.terms {
		for i < len(f.terms) && f.terms[i].v < t.v {
			i++
		}
		if i == len(f.terms) || f.terms[i].v != t.v {
			return false
		}
	}
	return len(g.terms) > 0
}

func (s *scope) key() string {
	var key []byte
	for _, x := range s.conds {
		key = binary.AppendVarint(key, int64(x))
	}
	key = append(key, 0x80, 0x80)
	for _, x := range s.guards {
		key = binary.AppendVarint(key, int64(x))
	}
	return string(key)
}

// compile makes the program of a kernel's accesses.
func (c *compiler) compile(list []*access) {
	scopes := map[string]int{}
	var all []scope
	of := func(a *access) int {
		s := c.scopeOf(a, a.f)
		key := s.key()
		i, ok := scopes[key]
		if !ok {
			i = len(all)
			scopes[key] = i
			all = append(all, s)
			return i
		}
		for v := range s.vars {
			all[i].vars[v] = true
		}
		all[i].in = slices.DeleteFunc(all[i].in, func(l int64) bool { return !slices.Contains(s.in, l) })
		return i
	}
	where := map[*access]int{}
	for _, a := range list {
		where[a] = of(a)
		a.cong = c.congruence(a)
	}
	c.entries(all)
	by := make([][]*bundle, len(all))
	for i := range all {
		var part []*access
		for _, a := range list {
			if where[a] == i {
				part = append(part, a)
			}
		}
		by[i] = c.bundles(part, func(*access) int { return i })
	}
	for i, s := range all {
		x := pctx{c0: int32(len(c.p.lists))}
		c.p.lists = append(c.p.lists, s.conds...)
		x.c1 = int32(len(c.p.lists))
		for _, b := range by[i] {
			c.linearForm(b.f)
		}
		x.s0 = int32(len(c.p.steps))
		c.steps(s)
		x.s1 = int32(len(c.p.steps))
		x.a0 = int32(len(c.p.accs))
		for _, b := range by[i] {
			atom, ok := c.atoms[b.atom]
			if !ok {
				atom = int32(len(c.atoms))
				c.atoms[b.atom] = atom
			}
			c.p.accs = append(c.p.accs, pacc{kind: b.kind, hidden: b.hidden, atom: atom, form: c.linearForm(b.f), off: b.off, bytes: b.bytes,
				span: b.span, step: b.step, count: b.count, pos: int32(b.pos), order: int32(b.order), base: c.base(b.f.c), cong: b.cong, cover: b.cover, lone: b.lone})
		}
		x.a1 = int32(len(c.p.accs))
		c.p.ctxs = append(c.p.ctxs, x)
	}
	c.candidates()
}

// maxModulus bounds the numbers modulo which congruences are kept.
const maxModulus = 1 << 20

// congruence finds, among the facts at an access, one that says what some of its terms are modulo a number: that
// i%2 is 0. Such a fact holds as integers, for the form in the remainder, if the checks of its own form hold; they must be
// checks of the access, too.
func (c *compiler) congruence(a *access) int32 {
	for _, x := range a.facts {
		if c.uniform[x.e] {
			continue
		}
		for _, g := range c.kernel.guards(x) {
			if g.wrap != 0 || len(g.f.terms) != 1 || !g.not0 && g.in != (bounds{0, 0}) {
				continue
			}
			v := c.vars[g.f.terms[0].v]
			k, ok := c.constant(g.f.terms[0].coef)
			if !ok || k != 1 && k != -1 || v.kind != vMod || v.imm < 2 || v.imm > maxModulus || g.not0 && v.imm != 2 {
				continue
			}
			of := v.args[0]
			if of.w != 0 || of.f.sym != 0 || len(of.f.checks) > 0 || !among(of.f, a.f) {
				continue
			}
			if slices.ContainsFunc(g.f.checks, func(id int32) bool { return !slices.Contains(a.f.checks, id) }) {
				continue
			}
			p := pcong{form: c.linearForm(of.f), r: c.register(c.binary(opMul, 64, g.f.c, c.num(-k))), m: v.imm, not: g.not0}
			i := slices.Index(c.p.congs, p)
			if i < 0 {
				i = len(c.p.congs)
				c.p.congs = append(c.p.congs, p)
			}
			return int32(i) + 1
		}
	}
	return 0
}

// among reports whether f has all variables of g.
func among(g, f *linear) bool {
	for _, t := range g.terms {
		if !slices.ContainsFunc(f.terms, func(u term) bool { return u.v == t.v }) {
			return false
		}
	}
	return len(g.terms) > 0
}

// entries adds a context for every loop whose counter is used behind the loop. An access there may be reached
// without entering the loop, so that its own facts do not say what holds wherever the loop is entered; but only where
// it is entered does the counter have a value. Blocks are in reverse postorder: a loop's bound is there before it is
// needed for another one.
func (c *compiler) entries(all []scope) {
	behind := map[int64]bool{}
	for _, s := range all {
		for v := range s.vars {
			if x := c.vars[v]; x.kind == vCounter && !slices.Contains(s.in, x.imm) {
				behind[x.imm] = true
			}
		}
	}
	var list []int64
	for l := range behind {
		list = append(list, l)
	}
	header := func(l int64) *ir.Block { return c.f.Loops.Loops[l].Header }
	slices.SortFunc(list, func(a, b int64) int { return cmp.Compare(header(a).Index, header(b).Index) })
	homes := c.homes(all)
	for _, l := range list {
		v := c.varOf[c.counterKey(l)]
		for len(homes) > 0 && homes[0].block.Index < header(l).Index {
			c.beforehand(homes[0].scope, pctx{home: c.variableIndex(homes[0].v) + 1})
			homes = homes[1:]
		}
		s := c.scopeOf(&access{facts: c.facts[header(l).Index], block: header(l)}, c.varForm(v))
		c.beforehand(s, pctx{rounds: c.variableIndex(v) + 1})
	}
	for _, h := range homes {
		c.beforehand(h.scope, pctx{home: c.variableIndex(h.v) + 1})
	}
}

// beforehand adds a context without accesses.
func (c *compiler) beforehand(s scope, x pctx) {
	x.c0 = int32(len(c.p.lists))
	c.p.lists = append(c.p.lists, s.conds...)
	x.c1 = int32(len(c.p.lists))
	x.s0 = int32(len(c.p.steps))
	c.steps(s)
	x.s1 = int32(len(c.p.steps))
	x.a0, x.a1 = int32(len(c.p.accs)), int32(len(c.p.accs))
	c.p.ctxs = append(c.p.ctxs, x)
}

// base is 1 + the register of the only pointer in an address.
func (c *compiler) base(e exprID) int32 {
	found := none
	for e != none {
		x := c.exprs[e]
		next := none
		for _, a := range [...]exprID{e, x.a, x.b} {
			if y := c.exprs[a]; y.op == opParam && y.w == 64 && (a == e || x.op == opAdd) {
				if found != none {
					return 0
				}
				found = a
			} else if y.op == opAdd && a != e && x.op == opAdd {
				next = a
			}
		}
		e = next
	}
	if found == none {
		return 0
	}
	return c.register(found) + 1
}

// steps orders the variables and guards of a scope: a guard as soon as its variables are there.
func (c *compiler) steps(s scope) {
	have := map[varID]bool{}
	done := map[int32]bool{}
	apply := func() {
		for _, id := range s.guards {
			if done[id] {
				continue
			}
			ready := c.given[id].load == 0 || have[varID(c.given[id].load-1)]
			for _, t := range c.given[id].f.terms {
				ready = ready && have[t.v]
			}
			for _, k := range c.given[id].f.checks {
				for _, t := range c.checks[k].f.terms {
					ready = ready && have[t.v]
				}
			}
			for _, f := range [...]*linear{c.given[id].rest, c.given[id].need} {
				for i := 0; f != nil && i < len(f.terms); i++ {
					ready = ready && have[f.terms[i].v]
				}
			}
			if ready {
				done[id] = true
				c.p.steps = append(c.p.steps, pstep{true, id})
			}
		}
	}
	var order []varID
	for v := range s.vars {
		order = append(order, v)
	}
	slices.Sort(order)
	open := map[varID]bool{}
	var visit func(v varID)
	visit = func(v varID) {
		if have[v] {
			return
		}
		if open[v] {
			c.circle = true
			return
		}
		open[v] = true
		c.dependencies(v, visit)
		apply()
		c.p.steps = append(c.p.steps, pstep{false, c.variableIndex(v)})
		have[v] = true
	}
	for _, v := range order { // those of the launch first
		if c.vars[v].kind == vThread || c.vars[v].kind == vAny || c.vars[v].kind == vTable && !c.tables {
			visit(v)
		}
	}
	apply()
	for _, v := range order {
		visit(v)
		apply()
	}
}

// dependencies calls visit for the variables that v is evaluated from.
func (c *compiler) dependencies(v varID, visit func(varID)) {
	form := func(f *linear) {
		for _, t := range f.terms {
			if t.v != v {
				visit(t.v)
			}
		}
		for _, id := range f.checks {
			for _, t := range c.checks[id].f.terms {
				if t.v != v {
					visit(t.v)
				}
			}
		}
	}
	for _, a := range c.arguments(v) {
		form(a.f)
	}
	if c.vars[v].kind == vCounter {
		for _, x := range c.loops[c.vars[v].imm] {
			form(x.g.f)
		}
	}
}

// candidates notes for every form the guards that may bound several of its terms at once.
func (c *compiler) candidates() {
	used := make([][]int32, len(c.p.forms))
	for gi := range c.p.guards {
		gf := c.p.guards[gi].form
		g := c.p.terms[c.p.forms[gf].t0:c.p.forms[gf].t1]
		if len(g) < 2 {
			continue
		}
		for fi := range c.p.forms {
			f := &c.p.forms[fi]
			if positions(g, c.p.terms[f.t0:f.t1]) != nil {
				used[fi] = append(used[fi], int32(gi))
			}
		}
	}
	for fi := range c.p.forms {
		f := &c.p.forms[fi]
		size := func(gi int32) int32 {
			g := c.p.forms[c.p.guards[gi].form]
			return g.t1 - g.t0
		}
		// Of guards with the same terms the later one knows what the earlier one does.
		slices.SortFunc(used[fi], func(a, b int32) int { return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(b, a)) })
		f.d0 = int32(len(c.p.cands))
		for _, gi := range used[fi] {
			g := c.p.forms[c.p.guards[gi].form]
			pos := positions(c.p.terms[g.t0:g.t1], c.p.terms[f.t0:f.t1])
			c.p.cands = append(c.p.cands, cand{gi, int32(len(c.p.lists))})
			c.p.lists = append(c.p.lists, pos...)
		}
		f.d1 = int32(len(c.p.cands))
	}
}

// positions is where the variables of g are in f; nil if one is not.
func positions(g, f []pterm) []int32 {
	var pos []int32
	for _, t := range g {
		i := slices.IndexFunc(f, func(u pterm) bool { return u.v == t.v })
		if i < 0 {
			return nil
		}
		pos = append(pos, int32(i))
	}
	return pos
}
