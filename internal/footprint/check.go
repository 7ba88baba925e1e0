package footprint

import (
	"fmt"

	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// Check reports what in a decoded summary would make evaluating it fail: every index, and that
// values are computed from earlier ones.
func (s *Summary) Check() error {
	c := &checker{s: s, p: &s.Code}
	if s.Class > Never || s.Cause >= numCauses || s.Refused >= numCauses || s.Loops < 0 || s.Loops > 1<<24 ||
		s.ParamBytes < 0 {
		return fmt.Errorf("the head of %s is not as it should be", s.Name)
	}
	c.program()
	c.p = &s.KnowingCode
	c.program()
	c.path()
	return c.err
}

type checker struct {
	s   *Summary
	p   *Program
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

func (c *checker) instr(x *Instr, i, n int, first int32) {
	ok := width(x.W) && (x.Aw == 0 || width(x.Aw))
	switch {
	case x.Op == form.OpParam:
		ok = ok && x.Imm >= 0 && x.Imm <= 1<<20
	case x.Op == form.OpGeometry:
		ok = ok && x.Imm >= 0 && x.Imm < form.NumGeometry
	case x.Op == form.OpThread:
		ok = ok && x.Imm >= 0 && x.Imm < form.NumCoordinates
	case x.Op == form.OpCounter || x.Op == form.OpHalving || x.Op == form.OpDrift:
		ok = ok && x.Imm >= 0 && x.Imm < int64(c.s.Loops)
	}
	for _, a := range [...]int32{x.A, x.B, x.C} {
		ok = ok && (a == 0 || a >= first && int(a) < min(i, n))
	}
	c.need(ok, "operation", i)
}

func (c *checker) program() {
	p := c.p
	regs, lists := len(p.Ops), len(p.Lists)
	conds := func(lo, hi int32) bool {
		if !span(lo, hi, lists) {
			return false
		}
		for _, x := range p.Lists[lo:hi] {
			if x < 0 || int(x>>1) >= regs {
				return false
			}
		}
		return true
	}
	for i := range p.Ops {
		c.instr(&p.Ops[i], i, regs, 0)
		c.need(p.Ops[i].Op > form.OpNone && p.Ops[i].Op <= form.OpSelect, "value", i)
	}
	for i, x := range p.Vars {
		n := len(p.Args)
		ok := x.Kind <= form.KindParam && (x.Kind != form.KindTable || p == &c.s.KnowingCode && x.W >= 8) &&
			(x.Kind != form.KindThread || x.Imm >= 0 && x.Imm < form.NumCoordinates)
		if x.Kind == form.KindCounter {
			n = len(p.Exits)
		}
		if x.Kind == form.KindFloor || x.Kind == form.KindMod {
			ok = ok && x.Imm > 0 && x.Imm <= interval.Far
		}
		c.need(ok && width(x.W) && span(x.A0, x.A1, n), "variable", i)
	}
	for i, x := range p.Args {
		c.need(within(x.Form, len(p.Forms)) && conds(x.C0, x.C1) && (x.W == 0 || width(x.W)), "argument", i)
	}
	for i, x := range p.Forms {
		ok := span(x.T0, x.T1, len(p.Terms)) && x.T1-x.T0 <= form.MaxTerms && within(x.C, regs) && span(x.K0, x.K1,
			lists) && span(x.D0, x.D1, len(p.Cands))
		if ok {
			for _, k := range p.Lists[x.K0:x.K1] {
				ok = ok && within(k, len(p.Checks))
			}
		}
		c.need(ok && x.Sym >= -1 && int(x.Sym) <= len(c.s.Globals), "form", i)
	}
	for i, x := range p.Terms {
		c.need(within(x.V, len(p.Vars)) && within(x.Coef, regs), "term", i)
	}
	for i, x := range p.Checks {
		c.need(within(x.Form, len(p.Forms)), "check", i)
	}
	for i, x := range p.Guards {
		ok := within(x.Form, len(p.Forms)) && x.Wrap <= 32 && (x.Wrap == 0 || within(x.Top, regs)) && span(0, x.Exit,
			len(p.Exits)) && span(0, x.Rest, len(p.Forms)) &&
			span(0, x.Need, len(p.Forms)) && x.Mod >= 0 && x.Mod <= Largest && x.Res >= 0 && x.Res <= x.Mod &&
			span(0, x.Load, len(p.Vars)) && (x.Load == 0 || p.Vars[x.Load-1].Kind == form.KindTable)
		c.need(ok && (c.err != nil || p.Forms[x.Form].T1 > p.Forms[x.Form].T0), "guard", i)
	}
	for i, x := range p.Exits {
		c.need(within(x.V, len(p.Vars)) && within(x.Form, len(p.Forms)) && within(x.Rest, len(p.Forms)) &&
			within(x.Step, regs) && span(0, x.Load, len(p.Vars)) && (x.Load == 0 ||
			p.Vars[x.Load-1].Kind == form.KindTable) &&
			x.Wrap <= 32 && (x.Wrap == 0 || within(x.Top, regs)), "exit", i)
	}
	var last Context // every access is in one context, and every step and condition in one at most
	for i, x := range p.Ctxs {
		c.need(x.C0 >= last.C1 && x.S0 >= last.S1 && x.A0 == last.A1, "context", i)
		last = x
		c.need(conds(x.C0, x.C1) && span(x.S0, x.S1, len(p.Steps)) && span(x.A0, x.A1, len(p.Accs)) && span(0,
			x.Rounds, len(p.Vars)) && span(0, x.Home, len(p.Vars)) && (x.Home == 0 || c.err != nil ||
			p.Vars[x.Home-1].Kind == form.KindTable), "context", i)
	}
	c.need(int(last.A1) == len(p.Accs), "context", len(p.Ctxs))
	for i, x := range p.Steps {
		n := len(p.Vars)
		if x.Guard {
			n = len(p.Guards)
		}
		c.need(within(x.Index, n), "step", i)
	}
	for i, x := range p.Accs {
		const most = 1 << 40
		ok := within(x.Form, len(p.Forms)) && x.Bytes >= 0 && x.Bytes < most && x.Span >= 0 && x.Span < most &&
			x.Step >= -most && x.Step < most && x.Count >= 0 && x.Count < most
		c.need(ok && span(0, x.Base, regs) && span(0, x.Cong, len(p.Congs)), "access", i)
	}
	for i, x := range p.Congs {
		c.need(within(x.Form, len(p.Forms)) && within(x.R, regs) && x.M > 1 && x.M <= MaxModulus, "congruence", i)
	}
	c.cands()
}

// cands checks that a guard's terms are where a form has them.
func (c *checker) cands() {
	if c.err != nil {
		return
	}
	p := c.p
	for i, f := range p.Forms {
		for _, x := range p.Cands[f.D0:f.D1] {
			if !within(x.Guard, len(p.Guards)) {
				c.need(false, "candidate of form", i)
				return
			}
			g := p.Forms[p.Guards[x.Guard].Form]
			ok := span(x.Pos, x.Pos+g.T1-g.T0, len(p.Lists))
			for k := int32(0); ok && k < g.T1-g.T0; k++ {
				ok = within(p.Lists[x.Pos+k], int(f.T1-f.T0))
			}
			c.need(ok, "candidate of form", i)
		}
	}
}

func (c *checker) path() {
	p := &c.s.Path
	n := len(p.Blocks)
	for i := range p.Ops {
		if i == 0 { // none: other operations name it where they have no argument
			c.need(p.Ops[0] == Instr{}, "operation", 0)
			continue
		}
		c.instr(&p.Ops[i], i, len(p.Ops), 1)
	}
	for i, x := range p.Blocks {
		ok := span(x.I0, x.I1, len(p.Items)) && x.Cond >= -1 && int(x.Cond) < max(len(p.Ops), 1)
		for _, b := range [...]int32{x.S0, x.S1, x.After, x.Leave} {
			ok = ok && (b == -1 || within(b, n))
		}
		c.need(ok && span(0, x.Header, c.s.Loops) && span(0, x.Loop, c.s.Loops), "block", i)
	}
	for i, x := range p.Items {
		c.need(within(x.Addr, len(p.Ops)) && within(x.Guard, len(p.Ops)) && x.Bytes >= 0, "item", i)
	}
}
