package summarise

import (
	"slices"

	"holdfast/internal/footprint"
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// choiceForms makes forms of values that are one of several.
type choiceForms struct{ *graph }

// choose is the form of a ? b : c.
func (cf choiceForms) choose(e exprID, x expr, fb, fc *linear) *linear {
	if d, ok := cf.sum(fb, fc, cf.num(-1)); ok && len(d.terms) == 0 && d.sym == 0 {
		if cf.uniform[x.a] {
			c := cf.make(form.OpSelect, 64, x.a, d.c, cf.num(0))
			if f, ok := cf.sum(cf.withChecks(fc, fb), cf.uniformForm(c), cf.num(1)); ok {
				return f
			}
		}
		// b = c + d: c + d * flag
		flag := cf.test(x.a)
		base := cf.withChecks(fc, fb)
		if f, ok := cf.add(base, flag, d.c); ok {
			return f
		}
	}
	v := variable{kind: form.KindOne, w: x.w, from: e, args: []argument{{f: cf.unless(fb, x.a, false)},
		{f: cf.unless(fc, x.a, true)}}}
	if cf.uniform[x.a] {
		v.args[0].conds = []fact{{x.a, false}}
		v.args[1].conds = []fact{{x.a, true}}
	}
	return cf.oneOf(v)
}

// oneOf is the form of one of several forms: what all of them have is taken out, so that it is not lost that it is the
// same. Checks stay where they are: a form that rests on some of its own is left alone.
func (cf choiceForms) oneOf(v variable) *linear {
	base := linear{c: cf.num(0)}
	for _, t := range v.args[0].f.terms {
		all := true
		for _, a := range v.args {
			all = all && slices.Contains(a.f.terms, t)
		}
		if all {
			base.terms = append(base.terms, t)
		}
	}
	for _, a := range v.args {
		if a.w != 0 || a.f.sym != 0 || !slices.Equal(a.f.checks, v.args[0].f.checks) {
			return cf.atom(v)
		}
	}
	if len(base.terms) == 0 {
		return cf.atom(v)
	}
	base.checks = v.args[0].f.checks
	rest := v
	rest.args = slices.Clone(v.args)
	for i, a := range rest.args {
		f := linear{c: a.f.c}
		for _, t := range a.f.terms {
			if !slices.Contains(base.terms, t) {
				f.terms = append(f.terms, t)
			}
		}
		rest.args[i].f = cf.form(f)
	}
	if f, ok := cf.sum(cf.form(base), cf.atom(rest), cf.num(1)); ok {
		return f
	}
	return cf.atom(v)
}

// unless is f, which is used only where a == b is not what yes says: if a - b = k*V + c is not 0 and V would have its
// least number there, V is at least one more.
func (cf choiceForms) unless(f *linear, cond exprID, yes bool) *linear {
	for cf.exprs[cond].op == form.OpNot {
		cond, yes = cf.exprs[cond].a, !yes
	}
	x := cf.exprs[cond]
	if x.op != form.OpEQ || !yes || cf.uniform[cond] {
		return f
	}
	d, ok := cf.difference(x.a, x.b, true)
	if !ok || len(d.terms) != 1 || len(union(d.checks, f.checks)) != len(f.checks) {
		return f
	}
	v := d.terms[0].v
	c, ok1 := cf.constant(d.c)
	k, ok2 := cf.constant(d.terms[0].coef)
	least := cf.vars[v].bounds.Lo
	if !ok1 || !ok2 || least <= -footprint.Largest || c <= -footprint.Largest || c >= footprint.Largest ||
		interval.SatMul(k, least) != -c {
		return f
	}
	for _, t := range f.terms {
		if t.v != v {
			continue
		}
		more := cf.atom(variable{kind: form.KindMaxS, w: 64, args: []argument{{f: cf.varForm(v)},
			{f: cf.uniformForm(cf.num(least + 1))}}})
		r, ok := cf.sum(f, cf.varForm(v), cf.binary(form.OpMul, 64, t.coef, cf.num(-1)))
		if !ok {
			return f
		}
		if r, ok = cf.sum(r, more, t.coef); ok {
			return r
		}
	}
	return f
}

// test is the form of a predicate, as 0 or 1.
func (cf choiceForms) test(e exprID) *linear {
	x := cf.exprs[e]
	switch x.op {
	case form.OpLTS, form.OpLES, form.OpLTU, form.OpLEU:
		if d, ok := cf.difference(x.a, x.b, x.op == form.OpLTS || x.op == form.OpLES); ok {
			return cf.atom(variable{kind: form.KindTest, w: 1, imm: -(form.Truth(x.op == form.OpLTS ||
				x.op == form.OpLTU) & 1), from: e, args: []argument{{f: d}}})
		}
	}
	return cf.atom(variable{kind: form.KindFlag, w: 1, from: e})
}

// merge is the form of a value that comes from different ways.
func (cf choiceForms) merge(e exprID, x expr) *linear {
	list := cf.phis[x.imm].args
	conds := cf.phis[x.imm].conds
	first := cf.linear[list[0]]
	v := variable{kind: form.KindOne, w: x.w, from: e}
	same := true
	for i, a := range list {
		f := cf.linear[a]
		d, ok := cf.sum(f, first, cf.num(-1))
		same = same && ok && len(d.terms) == 0 && d.sym == 0
		if same {
			v.args = append(v.args, argument{f: d, conds: conds[i]})
		}
	}
	if !same {
		v.args = nil
		for i, a := range list {
			v.args = append(v.args, argument{f: cf.linear[a], conds: conds[i]})
		}
		return cf.oneOf(v)
	}
	base := first
	for _, a := range list {
		base = cf.withChecks(base, cf.linear[a])
	}
	if f, ok := cf.sum(base, cf.atom(v), cf.num(1)); ok {
		return f
	}
	return nil
}

// drift is the form of a value that starts as fa and changes by a bounded step.
func (cf choiceForms) drift(e exprID, x expr, fa *linear) *linear {
	d := cf.drifts[x.imm]
	rounds := cf.atom(variable{kind: form.KindCounter, w: 64, imm: d.loop})
	if d.before {
		less, _ := cf.sum(rounds, cf.uniformForm(cf.num(-1)), cf.num(1))
		rounds = cf.atom(variable{kind: form.KindMaxS, w: 64, args: []argument{{f: less},
			{f: cf.uniformForm(cf.num(0))}}})
	}
	step := cf.atom(variable{kind: form.KindBits, w: 64, imm: d.hi - d.lo, from: e})
	step, ok := cf.sum(cf.uniformForm(cf.num(d.lo)), step, cf.num(1))
	if !ok {
		return nil
	}
	sum := cf.atom(variable{kind: form.KindMul, w: 64, args: []argument{{f: rounds}, {f: step}}})
	if f, ok := cf.sum(fa, sum, cf.num(1)); ok {
		return f
	}
	return nil
}
