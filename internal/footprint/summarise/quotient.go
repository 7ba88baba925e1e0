package summarise

import (
	"holdfast/internal/footprint/form"
	"holdfast/internal/interval"
)

// quotientForms makes forms of divisions, shifts and remainders.
type quotientForms struct{ *graph }

// floor is f / m, rounded towards minus infinity: what is a multiple of m is divided, the rest
// is a variable.
func (qf quotientForms) floor(f *linear, m int64, w uint8) *linear {
	whole, rest := qf.split(f, m)
	if qf.formBounds(rest).In(interval.Bounds{Lo: 0, Hi: m - 1}) && rest.sym == 0 {
		return qf.withChecks(whole, f)
	}
	// (k*B + r) / (k*m) = B / m if 0 <= r < k.
	if small, k := qf.reduce(rest, m); k > 1 {
		rest, m = small, m/k
	}
	if m > 1 {
		rest = qf.atom(variable{kind: form.KindFloor, w: w, imm: m, args: []argument{{f: rest}}})
	}
	r, ok := qf.sum(whole, rest, qf.num(1))
	if !ok {
		return qf.atom(variable{kind: form.KindFloor, w: w, imm: m, args: []argument{{f: f}}})
	}
	return qf.withChecks(r, f)
}

// shifted is f, read as a number of w bits, divided by m and rounded towards minus infinity.
func (qf quotientForms) shifted(f *linear, w uint8, signed bool, m int64) *linear {
	r := qf.read(f, w, signed)
	if len(r.checks) == len(f.checks) {
		return qf.floor(r, m, w)
	}
	if qf.formBounds(r).In(interval.Bounds{Lo: 0, Hi: m - 1}) && qf.plausible(f) && qf.modest(f, w) {
		return qf.withChecks(qf.uniformForm(qf.num(0)), r) // the sign of an index
	}
	q := qf.floor(r, m, w)
	if whole, _ := qf.split(f, m); len(whole.terms) > 0 || len(q.terms) == 0 {
		return q
	}
	if small, k := qf.reduce(f, m); k > 1 && len(small.terms) < len(f.terms) && qf.plausible(f) {
		return q
	}
	// Without the check it is still a number of fewer bits.
	return qf.atom(variable{kind: form.KindFloor, w: w, imm: m, args: []argument{{f: f, w: w, signed: signed}}})
}

// mod is f modulo m, not negative.
func (qf quotientForms) mod(f *linear, m int64, w uint8) *linear {
	_, rest := qf.split(f, m)
	if qf.formBounds(rest).In(interval.Bounds{Lo: 0, Hi: m - 1}) && rest.sym == 0 {
		return qf.withChecks(rest, f)
	}
	var r *linear
	if small, k := qf.reduce(rest, m); k > 1 {
		// (k*B + r) % (k*m) = k*(B % m) + r if 0 <= r < k.
		low, _ := qf.sum(rest, small, qf.num(-k))
		r = low
		if m/k > 1 {
			a := qf.atom(variable{kind: form.KindMod, w: w, imm: m / k, args: []argument{{f: small}}})
			r, _ = qf.sum(low, a, qf.num(k))
		}
	}
	if r == nil {
		r = qf.atom(variable{kind: form.KindMod, w: w, imm: m, args: []argument{{f: rest}}})
	}
	return qf.withChecks(r, f)
}

// split divides f into m * whole + rest. They are integers, and have no checks: who makes a value of
// them adds those of f.
func (qf quotientForms) split(f *linear, m int64) (whole, rest *linear) {
	var a, b linear
	a.c, b.c = qf.num(0), f.c
	if c, ok := qf.constant(f.c); ok {
		q := interval.FloorDiv(c, m)
		a.c, b.c = qf.num(q), qf.num(c-q*m)
	}
	for _, t := range f.terms {
		if k, ok := qf.constant(t.coef); ok && k%m == 0 {
			a.terms = append(a.terms, term{t.v, qf.num(k / m)})
		} else {
			b.terms = append(b.terms, t)
		}
	}
	b.sym = f.sym
	return qf.form(a), qf.form(b)
}

// reduce finds the largest k that divides m, such that f = k*B + r with 0 <= r < k: the coefficients of B are
// divided by k, and r is a constant and terms that are small in every launch.
func (qf quotientForms) reduce(f *linear, m int64) (*linear, int64) {
	c, ok := qf.constant(f.c)
	if !ok || f.sym != 0 || len(f.terms) == 0 {
		return nil, 1
	}
	best := int64(1)
	for _, t := range f.terms {
		x, ok := qf.constant(t.coef)
		if !ok {
			return nil, 1
		}
		k := interval.Gcd(m, x)
		for _, u := range f.terms {
			// What has no chance of being small must be a multiple as well.
			if y, ok := qf.constant(u.coef); ok && !qf.vars[u.v].bounds.Times(y).In(interval.Bounds{Lo: 0, Hi: k - 1}) {
				k = interval.Gcd(k, y)
			}
		}
		if k > best && qf.rest(f, k, c).In(interval.Bounds{Lo: 0, Hi: k - 1}) {
			best = k
		}
	}
	if best <= 1 {
		return nil, 1
	}
	r := linear{c: qf.num(interval.FloorDiv(c, best))}
	for _, t := range f.terms {
		if x, _ := qf.constant(t.coef); x%best == 0 {
			r.terms = append(r.terms, term{t.v, qf.num(x / best)})
		}
	}
	return qf.form(r), best
}

// rest is the bounds, in every launch, of the terms of f that are no multiples of k, and c modulo k.
func (qf quotientForms) rest(f *linear, k, c int64) interval.Bounds {
	r := interval.Bounds{Lo: c - interval.FloorDiv(c, k)*k, Hi: c - interval.FloorDiv(c, k)*k}
	for _, t := range f.terms {
		if x, ok := qf.constant(t.coef); !ok || x%k != 0 {
			r = r.Plus(qf.vars[t.v].bounds.Product(qf.bounds[t.coef]))
		}
	}
	return r
}

// plausible reports whether a form looks like an index that is computed from coordinates and loop
// counters. A program that computes it with 32 bits takes care that it fits.
func (qf quotientForms) plausible(f *linear) bool {
	if f.sym != 0 {
		return false
	}
	b := qf.bounds[f.c]
	for _, t := range f.terms {
		v := qf.vars[t.v].bounds
		if qf.vars[t.v].kind == form.KindCounter {
			v.Hi = 1 << 20
		}
		b = b.Plus(v.Product(qf.bounds[t.coef]))
	}
	return b.Lo >= 0 && b.Hi < 1<<46
}

// modest reports whether a form is a signed number of w bits in a launch of up to 1024 blocks: one that is not may be
// bits that are moved to the top, to take the highest.
func (qf quotientForms) modest(f *linear, w uint8) bool {
	b := qf.bounds[f.c]
	for _, t := range f.terms {
		v := qf.vars[t.v].bounds
		b = b.Plus(interval.Bounds{Lo: min(max(v.Lo, -1023), v.Hi), Hi: min(v.Hi, 1023)}.Product(qf.bounds[t.coef]))
	}
	return b.In(interval.SignedBounds(w))
}

// divide is the form of a division or its remainder.
func (qf quotientForms) divide(x expr) *linear {
	signed := x.op == form.OpDivS || x.op == form.OpRemS
	quot := x.op == form.OpDivU || x.op == form.OpDivS
	m, ok := qf.constant(x.b)
	if ok && m > 0 && m < interval.Far {
		fa := qf.linear[x.a]
		f := qf.read(fa, x.w, signed)
		whole, _ := qf.split(fa, m)
		// A form that rests on a check gives more, but nothing if the check fails.
		worth := len(f.checks) == len(fa.checks) || len(whole.terms) > 0 || qf.plausible(fa)
		if worth && (!signed || qf.formBounds(f).Lo >= 0) {
			if quot {
				return qf.floor(f, m, x.w)
			}
			return qf.mod(f, m, x.w)
		}
	}
	kind := form.KindDivU + form.Kind(x.op-form.OpDivU)
	return qf.atom(variable{kind: kind, w: x.w, args: []argument{qf.arg(x.a, signed), qf.arg(x.b, signed)}})
}
