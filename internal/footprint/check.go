package footprint

import "fmt"

// check reports what in a decoded summary would make evaluating it fail: every index, and that
// values are computed from earlier ones.
func (s *Summary) check() error {
	c := &checker{s: s, p: &s.prog}
	if s.Class > Never || s.Cause >= numCauses || s.refused >= numCauses || s.loops < 0 || s.loops > 1<<24 || s.paramBytes < 0 {
		return fmt.Errorf("the head of %s is not as it should be", s.Name)
	}
	c.program()
	c.p = &s.tables
	c.program()
	c.path()
	return c.err
}

type checker struct {
	s   *Summary
	p   *program
	err error
}

func (c *checker) need(ok bool, what string, i int) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("%s %d is not as it should be", what, i)
	}
}

// span reports whether lo to hi is a part of n things.
func span(lo, hi int32, n int) bool { return 0 <= lo && lo <= hi && int(hi) <= n }

func within(i int32, n int) bool { return 0 <= i && int(i) < n }

func width(w uint8) bool { return w == 1 || w == 8 || w == 16 || w == 32 || w == 64 }

func (c *checker) instr(x *instr, i, n int, first int32) {
	ok := width(x.w) && (x.aw == 0 || width(x.aw))
	switch {
	case x.op == opParam:
		ok = ok && x.imm >= 0 && x.imm <= 1<<20
	case x.op == opGeometry:
		ok = ok && x.imm >= 0 && x.imm < numGeometry
	case x.op == opThread:
		ok = ok && x.imm >= 0 && x.imm < numCoordinates
	case x.op == opCounter || x.op == opHalving || x.op == opDrift:
		ok = ok && x.imm >= 0 && x.imm < int64(c.s.loops)
	}
	for _, a := range [...]int32{x.a, x.b, x.c} {
		ok = ok && (a == 0 || a >= first && int(a) < min(i, n))
	}
	c.need(ok, "operation", i)
}

func (c *checker) program() {
	p := c.p
	regs, lists := len(p.ops), len(p.lists)
	conds := func(lo, hi int32) bool {
		if !span(lo, hi, lists) {
			return false
		}
		for _, x := range p.lists[lo:hi] {
			if x < 0 || int(x>>1) >= regs {
				return false
			}
		}
		return true
	}
	for i := range p.ops {
		c.instr(&p.ops[i], i, regs, 0)
		c.need(p.ops[i].op > opNone && p.ops[i].op <= opSelect, "value", i)
	}
	for i, x := range p.vars {
		n := len(p.args)
		ok := x.kind <= vParam && (x.kind != vTable || p == &c.s.tables && x.w >= 8) && (x.kind != vThread || x.imm >= 0 && x.imm < numCoordinates)
		if x.kind == vCounter {
			n = len(p.exits)
		}
		if x.kind == vFloor || x.kind == vMod {
			ok = ok && x.imm > 0 && x.imm <= far
		}
		c.need(ok && width(x.w) && span(x.a0, x.a1, n), "variable", i)
	}
	for i, x := range p.args {
		c.need(within(x.form, len(p.forms)) && conds(x.c0, x.c1) && (x.w == 0 || width(x.w)), "argument", i)
	}
	for i, x := range p.forms {
		ok := span(x.t0, x.t1, len(p.terms)) && x.t1-x.t0 <= maxTerms && within(x.c, regs) && span(x.k0, x.k1, lists) && span(x.d0, x.d1, len(p.cands))
		if ok {
			for _, k := range p.lists[x.k0:x.k1] {
				ok = ok && within(k, len(p.checks))
			}
		}
		c.need(ok && x.sym >= -1 && int(x.sym) <= len(c.s.Globals), "form", i)
	}
	for i, x := range p.terms {
		c.need(within(x.v, len(p.vars)) && within(x.coef, regs), "term", i)
	}
	for i, x := range p.checks {
		c.need(within(x.form, len(p.forms)), "check", i)
	}
	for i, x := range p.guards {
		ok := within(x.form, len(p.forms)) && x.wrap <= 32 && (x.wrap == 0 || within(x.top, regs)) && span(0, x.exit, len(p.exits)) && span(0, x.rest, len(p.forms)) &&
			span(0, x.need, len(p.forms)) && x.mod >= 0 && x.mod <= most && x.res >= 0 && x.res <= x.mod &&
			span(0, x.load, len(p.vars)) && (x.load == 0 || p.vars[x.load-1].kind == vTable)
		c.need(ok && (c.err != nil || p.forms[x.form].t1 > p.forms[x.form].t0), "guard", i)
	}
	for i, x := range p.exits {
		c.need(within(x.v, len(p.vars)) && within(x.form, len(p.forms)) && within(x.rest, len(p.forms)) && within(x.step, regs) && span(0, x.load, len(p.vars)) && (x.load == 0 || p.vars[x.load-1].kind == vTable) &&
			x.wrap <= 32 && (x.wrap == 0 || within(x.top, regs)), "exit", i)
	}
	var last pctx // every access is in one context, and every step and condition in one at most
	for i, x := range p.ctxs {
		c.need(x.c0 >= last.c1 && x.s0 >= last.s1 && x.a0 == last.a1, "context", i)
		last = x
		c.need(conds(x.c0, x.c1) && span(x.s0, x.s1, len(p.steps)) && span(x.a0, x.a1, len(p.accs)) && span(0, x.rounds, len(p.vars)) && span(0, x.home, len(p.vars)) && (x.home == 0 || c.err != nil || p.vars[x.home-1].kind == vTable), "context", i)
	}
	c.need(int(last.a1) == len(p.accs), "context", len(p.ctxs))
	for i, x := range p.steps {
		n := len(p.vars)
		if x.guard {
			n = len(p.guards)
		}
		c.need(within(x.index, n), "step", i)
	}
	for i, x := range p.accs {
		const most = 1 << 40
		ok := within(x.form, len(p.forms)) && x.bytes >= 0 && x.bytes < most && x.span >= 0 && x.span < most && x.step >= -most && x.step < most && x.count >= 0 && x.count < most
		c.need(ok && span(0, x.base, regs) && span(0, x.cong, len(p.congs)), "access", i)
	}
	for i, x := range p.congs {
		c.need(within(x.form, len(p.forms)) && within(x.r, regs) && x.m > 1 && x.m <= maxModulus, "congruence", i)
	}
	c.cands()
}

// cands checks that a guard's terms are where a form has them.
func (c *checker) cands() {
	if c.err != nil {
		return
	}
	p := c.p
	for i, f := range p.forms {
		for _, x := range p.cands[f.d0:f.d1] {
			if !within(x.guard, len(p.guards)) {
				c.need(false, "candidate of form", i)
				return
			}
			g := p.forms[p.guards[x.guard].form]
			ok := span(x.pos, x.pos+g.t1-g.t0, len(p.lists))
			for k := int32(0); ok && k < g.t1-g.t0; k++ {
				ok = within(p.lists[x.pos+k], int(f.t1-f.t0))
			}
			c.need(ok, "candidate of form", i)
		}
	}
}

func (c *checker) path() {
	p := &c.s.path
	n := len(p.blocks)
	for i := range p.ops {
		if i == 0 { // none: other operations name it where they have no argument
			c.need(p.ops[0] == instr{}, "operation", 0)
			continue
		}
		c.instr(&p.ops[i], i, len(p.ops), 1)
	}
	for i, x := range p.blocks {
		ok := span(x.i0, x.i1, len(p.items)) && x.cond >= -1 && int(x.cond) < max(len(p.ops), 1)
		for _, b := range [...]int32{x.s0, x.s1, x.after, x.leave} {
			ok = ok && (b == -1 || within(b, n))
		}
		c.need(ok && span(0, x.header, c.s.loops) && span(0, x.loop, c.s.loops), "block", i)
	}
	for i, x := range p.items {
		c.need(within(x.addr, len(p.ops)) && within(x.guard, len(p.ops)) && x.bytes >= 0, "item", i)
	}
}
