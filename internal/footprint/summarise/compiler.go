package summarise

import (
	"cmp"
	"encoding/binary"
	"slices"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
	"holdfast/internal/ir"
)

// A compiler turns symbolic values into a program.
type compiler struct {
	*values
	p      *footprint.Program
	reg    map[exprID]int32
	varAt  map[varID]int32
	formAt map[*linear]int32
	chkAt  map[int32]int32
	guards map[guardKey]int32
	given  []guard // of Guard
	exitAt map[int64][]int32
	exitOf []exit
	loops  map[int64][]exit
	atoms  map[atomicUpdate]int32
	names  []footprint.Global // the variables in global memory
	circle bool               // a variable is evaluated from itself
	tables bool               // what is loaded may be known (table.go)
	loaded bool               // there is something that may be
}

type guardKey struct {
	f    *linear
	in   interval.Bounds
	not0 bool
	wrap uint8
	top  exprID
	exit int32
	rest *linear
	need *linear
	load int32
}

func newCompiler(vs *values, tables bool) *compiler {
	c := &compiler{values: vs, tables: tables, p: &footprint.Program{}, reg: map[exprID]int32{},
		varAt: map[varID]int32{}, formAt: map[*linear]int32{},
		chkAt: map[int32]int32{}, guards: map[guardKey]int32{}, exitAt: map[int64][]int32{},
		loops: map[int64][]exit{}, atoms: map[atomicUpdate]int32{{}: 0}}
	for i, l := range vs.f.Loops.Loops {
		for _, x := range vs.exits(l) {
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
	in := footprint.Instr{Op: x.op, W: x.w, Aw: c.exprs[x.a].w, Imm: x.imm}
	if x.a != noExpr {
		in.A = c.register(x.a)
	}
	if x.b != noExpr {
		in.B = c.register(x.b)
	}
	if x.c != noExpr {
		in.C = c.register(x.c)
	}
	r := int32(len(c.p.Ops))
	c.p.Ops = append(c.p.Ops, in)
	c.reg[e] = r
	return r
}

// condition is a uniform fact as a number: 2*register, and 1 if it must not hold.
func (c *compiler) condition(x fact) int32 { return 2*c.register(x.e) + int32(form.Truth(x.not)&1) }

func (c *compiler) linearForm(f *linear) int32 {
	if i, ok := c.formAt[f]; ok {
		return i
	}
	p := footprint.Form{C: c.register(f.c), Sym: c.global(f.sym)}
	var terms []footprint.Term
	for _, t := range f.terms {
		terms = append(terms, footprint.Term{V: c.variableIndex(t.v), Coef: c.register(t.coef)})
	}
	var checks []int32
	for _, id := range f.checks {
		checks = append(checks, c.check(id))
	}
	p.T0 = int32(len(c.p.Terms))
	c.p.Terms = append(c.p.Terms, terms...)
	p.T1 = int32(len(c.p.Terms))
	p.K0 = int32(len(c.p.Lists))
	c.p.Lists = append(c.p.Lists, checks...)
	p.K1 = int32(len(c.p.Lists))
	i := int32(len(c.p.Forms))
	c.p.Forms = append(c.p.Forms, p)
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
	i := slices.IndexFunc(c.names, func(g footprint.Global) bool { return g.Name == s.name })
	if i < 0 {
		i = len(c.names)
		c.names = append(c.names, footprint.Global{Name: s.name, Size: s.size})
	}
	return int32(i) + 1
}

func (c *compiler) check(id int32) int32 {
	if i, ok := c.chkAt[id]; ok {
		return i
	}
	ch := c.checks[id]
	f := c.linearForm(ch.f)
	i := int32(len(c.p.Checks))
	c.p.Checks = append(c.p.Checks, footprint.Check{Form: f, In: ch.all()})
	c.chkAt[id] = i
	return i
}

func (c *compiler) variableIndex(v varID) int32 {
	if i, ok := c.varAt[v]; ok {
		return i
	}
	x := c.vars[v]
	p := footprint.Var{Kind: x.kind, W: x.w, Imm: x.imm}
	if x.kind == form.KindTable {
		c.loaded = true
		if !c.tables {
			p.Kind, x.args = form.KindAny, nil
		}
	}
	i := int32(len(c.p.Vars))
	c.varAt[v] = i
	c.p.Vars = append(c.p.Vars, p)
	if x.kind == form.KindCounter {
		c.counter(x.imm, i)
		return i
	}
	var args []footprint.Arg
	for _, a := range x.args {
		q := footprint.Arg{Form: c.linearForm(a.f), W: a.w, Signed: a.signed}
		var conds []int32
		for _, x := range a.conds {
			conds = append(conds, c.condition(x))
		}
		q.C0 = int32(len(c.p.Lists))
		c.p.Lists = append(c.p.Lists, conds...)
		q.C1 = int32(len(c.p.Lists))
		args = append(args, q)
	}
	p.A0 = int32(len(c.p.Args))
	c.p.Args = append(c.p.Args, args...)
	p.A1 = int32(len(c.p.Args))
	c.p.Vars[i] = p
	return i
}

// counter adds the exits of a loop.
func (c *compiler) counter(loop int64, v int32) {
	var list []footprint.Exit
	var given []exit
	for _, x := range c.loops[loop] {
		load := int32(0)
		if x.load != 0 {
			load = c.variableIndex(varID(x.load-1)) + 1
		}
		p := footprint.Exit{V: v, Form: c.linearForm(x.g.f), Rest: c.linearForm(x.rest), Step: c.register(x.step),
			In: x.g.in, Not0: x.g.not0, Load: load, Wrap: x.wrap}
		if x.wrap != 0 {
			p.Top = c.register(x.top)
		}
		list = append(list, p)
		given = append(given, x)
	}
	c.p.Vars[v].A0 = int32(len(c.p.Exits))
	for i := range list {
		c.exitAt[loop] = append(c.exitAt[loop], int32(len(c.p.Exits)))
		c.p.Exits = append(c.p.Exits, list[i])
		c.exitOf = append(c.exitOf, given[i])
	}
	c.p.Vars[v].A1 = int32(len(c.p.Exits))
}

func (c *compiler) guard(g guard, exit int32) int32 {
	key := guardKey{g.f, g.in, g.not0, g.wrap, g.top, exit, g.rest, g.need, g.load}
	if i, ok := c.guards[key]; ok {
		return i
	}
	p := footprint.Guard{Form: c.linearForm(g.f), In: g.in, Not0: g.not0, Wrap: g.wrap, Exit: exit}
	if g.wrap != 0 {
		p.Top = c.register(g.top)
	}
	if g.rest != nil {
		p.Rest = c.linearForm(g.rest) + 1
	}
	if g.load != 0 {
		p.Load = c.variableIndex(varID(g.load-1)) + 1
	}
	if g.need != nil {
		p.Need, p.Side = c.linearForm(g.need)+1, g.side
	}
	whole := g.f
	if g.rest != nil {
		whole, _ = c.sum(g.f, g.rest, c.num(1))
	}
	if g.wrap == 0 && (!g.not0 || exit != 0) && whole != nil && len(g.f.terms) > 1 {
		p.Mod, p.Res = conditions{c.graph}.modulus(whole)
	}
	i := int32(len(c.p.Guards))
	c.p.Guards = append(c.p.Guards, p)
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
		for _, g := range (conditions{c.graph}).guards(x) {
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
			if c.vars[t.v].kind == form.KindCounter {
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
		x := footprint.Context{C0: int32(len(c.p.Lists))}
		c.p.Lists = append(c.p.Lists, s.conds...)
		x.C1 = int32(len(c.p.Lists))
		for _, b := range by[i] {
			c.linearForm(b.f)
		}
		x.S0 = int32(len(c.p.Steps))
		c.steps(s)
		x.S1 = int32(len(c.p.Steps))
		x.A0 = int32(len(c.p.Accs))
		for _, b := range by[i] {
			atom, ok := c.atoms[b.atom]
			if !ok {
				atom = int32(len(c.atoms))
				c.atoms[b.atom] = atom
			}
			c.p.Accs = append(c.p.Accs, footprint.Access{Kind: b.kind, Hidden: b.hidden, Atom: atom,
				Form: c.linearForm(b.f), Off: b.off, Bytes: b.bytes,
				Span: b.span, Step: b.step, Count: b.count, Pos: int32(b.pos), Order: int32(b.order),
				Base: c.base(b.f.c), Cong: b.cong, Cover: b.cover, Lone: b.lone})
		}
		x.A1 = int32(len(c.p.Accs))
		c.p.Ctxs = append(c.p.Ctxs, x)
	}
	c.candidates()
}

// congruence finds, among the facts at an access, one that says what some of its terms are modulo a number: that
// i%2 is 0. Such a fact holds as integers, for the form in the remainder, if the checks of its own form hold; they
// must be checks of the access, too.
func (c *compiler) congruence(a *access) int32 {
	for _, x := range a.facts {
		if c.uniform[x.e] {
			continue
		}
		for _, g := range (conditions{c.graph}).guards(x) {
			if g.wrap != 0 || len(g.f.terms) != 1 || !g.not0 && g.in != (interval.Bounds{Lo: 0, Hi: 0}) {
				continue
			}
			v := c.vars[g.f.terms[0].v]
			k, ok := c.constant(g.f.terms[0].coef)
			if !ok || k != 1 && k != -1 || v.kind != form.KindMod || v.imm < 2 || v.imm > footprint.MaxModulus ||
				g.not0 && v.imm != 2 {
				continue
			}
			of := v.args[0]
			if of.w != 0 || of.f.sym != 0 || len(of.f.checks) > 0 || !among(of.f, a.f) {
				continue
			}
			if slices.ContainsFunc(g.f.checks, func(id int32) bool { return !slices.Contains(a.f.checks, id) }) {
				continue
			}
			p := footprint.Congruence{Form: c.linearForm(of.f), R: c.register(c.binary(form.OpMul, 64, g.f.c,
				c.num(-k))), M: v.imm, Not: g.not0}
			i := slices.Index(c.p.Congs, p)
			if i < 0 {
				i = len(c.p.Congs)
				c.p.Congs = append(c.p.Congs, p)
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
			if x := c.vars[v]; x.kind == form.KindCounter && !slices.Contains(s.in, x.imm) {
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
			c.beforehand(homes[0].scope, footprint.Context{Home: c.variableIndex(homes[0].v) + 1})
			homes = homes[1:]
		}
		s := c.scopeOf(&access{facts: c.facts[header(l).Index], block: header(l)}, c.varForm(v))
		c.beforehand(s, footprint.Context{Rounds: c.variableIndex(v) + 1})
	}
	for _, h := range homes {
		c.beforehand(h.scope, footprint.Context{Home: c.variableIndex(h.v) + 1})
	}
}

// beforehand adds a context without accesses.
func (c *compiler) beforehand(s scope, x footprint.Context) {
	x.C0 = int32(len(c.p.Lists))
	c.p.Lists = append(c.p.Lists, s.conds...)
	x.C1 = int32(len(c.p.Lists))
	x.S0 = int32(len(c.p.Steps))
	c.steps(s)
	x.S1 = int32(len(c.p.Steps))
	x.A0, x.A1 = int32(len(c.p.Accs)), int32(len(c.p.Accs))
	c.p.Ctxs = append(c.p.Ctxs, x)
}

// base is 1 + the register of the only pointer in an address.
func (c *compiler) base(e exprID) int32 {
	found := noExpr
	for e != noExpr {
		x := c.exprs[e]
		next := noExpr
		for _, a := range [...]exprID{e, x.a, x.b} {
			if y := c.exprs[a]; y.op == form.OpParam && y.w == 64 && (a == e || x.op == form.OpAdd) {
				if found != noExpr {
					return 0
				}
				found = a
			} else if y.op == form.OpAdd && a != e && x.op == form.OpAdd {
				next = a
			}
		}
		e = next
	}
	if found == noExpr {
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
				c.p.Steps = append(c.p.Steps, footprint.Step{Guard: true, Index: id})
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
		c.p.Steps = append(c.p.Steps, footprint.Step{Guard: false, Index: c.variableIndex(v)})
		have[v] = true
	}
	for _, v := range order { // those of the launch first
		if c.vars[v].kind == form.KindThread || c.vars[v].kind == form.KindAny || c.vars[v].kind == form.KindTable &&
			!c.tables {
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
	visitForm := func(f *linear) {
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
		visitForm(a.f)
	}
	if c.vars[v].kind == form.KindCounter {
		for _, x := range c.loops[c.vars[v].imm] {
			visitForm(x.g.f)
		}
	}
}

// candidates notes for every form the guards that may bound several of its terms at once.
func (c *compiler) candidates() {
	used := make([][]int32, len(c.p.Forms))
	for gi := range c.p.Guards {
		gf := c.p.Guards[gi].Form
		g := c.p.Terms[c.p.Forms[gf].T0:c.p.Forms[gf].T1]
		if len(g) < 2 {
			continue
		}
		for fi := range c.p.Forms {
			f := &c.p.Forms[fi]
			if footprint.Positions(g, c.p.Terms[f.T0:f.T1]) != nil {
				used[fi] = append(used[fi], int32(gi))
			}
		}
	}
	for fi := range c.p.Forms {
		f := &c.p.Forms[fi]
		size := func(gi int32) int32 {
			g := c.p.Forms[c.p.Guards[gi].Form]
			return g.T1 - g.T0
		}
		// Of guards with the same terms the later one knows what the earlier one does.
		slices.SortFunc(used[fi], func(a, b int32) int {
			return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(b,
				a))
		})
		f.D0 = int32(len(c.p.Cands))
		for _, gi := range used[fi] {
			g := c.p.Forms[c.p.Guards[gi].Form]
			pos := footprint.Positions(c.p.Terms[g.T0:g.T1], c.p.Terms[f.T0:f.T1])
			c.p.Cands = append(c.p.Cands, footprint.Candidate{Guard: gi, Pos: int32(len(c.p.Lists))})
			c.p.Lists = append(c.p.Lists, pos...)
		}
		f.D1 = int32(len(c.p.Cands))
	}
}
