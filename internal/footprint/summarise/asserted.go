package summarise

import (
	"slices"

	"holdfast/internal/footprint/form"
)

// Compilers that check indices (Triton's tl.device_assert, which torch.compile puts before every index that it loads)
// compare the index, whatever it was made from, and trap:
//
//	i = loaded < 0 ? loaded + n : loaded;  if (!(i <u n)) trap;  …a[i]…
//
// Where i <u n holds, i is min(i, n-1) as an unsigned number: the same bits, so that an address may be made from
// the one or the other. The second has both bounds, without any proof that loaded + n is what it seems. It does not
// have what the form of i says of coordinates and loops, so only values with something unknown in them are replaced,
// and not those that guards bound as well.

// A limit is a value, and what it is equal to where some facts hold.
type limit struct {
	e, by         exprID
	least, atmost bool // by has these bounds
}

// limits are the values that facts bound on both sides, and that their forms do not.
func (ds decisions) limits(facts []fact) []limit {
	var list []limit
	for _, f := range facts {
		x := ds.exprs[f.e]
		switch x.op {
		case form.OpLTS, form.OpLES, form.OpLTU, form.OpLEU:
		default:
			continue
		}
		below, above, strict := x.a, x.b, x.op == form.OpLTS || x.op == form.OpLTU
		if f.not {
			below, above, strict = above, below, !strict
		}
		signed := x.op == form.OpLTS || x.op == form.OpLES
		e, by := below, above
		if ds.uniform[below] {
			e, by = above, below
		}
		w := ds.width(e)
		if w == 1 || ds.uniform[e] || !ds.uniform[by] || !signed && e == above || !ds.adrift(e, signed) {
			continue
		}
		i := slices.IndexFunc(list, func(l limit) bool { return l.e == e })
		if i < 0 {
			i = len(list)
			list = append(list, limit{e: e, by: e})
		}
		l := &list[i]
		off := form.Truth(strict) & 1
		switch { // where e < 0 is asked for, by-1 is another number, but no thread comes there
		case e == above:
			l.by = ds.binary(form.OpMaxS, w, l.by, ds.binary(form.OpAdd, w, by, ds.number(w, off)))
			l.least = true
		case signed:
			l.by = ds.binary(form.OpMinS, w, l.by, ds.binary(form.OpAdd, w, by, ds.number(w, -off)))
			l.atmost = true
		default:
			l.by = ds.binary(form.OpMinU, w, l.by, ds.binary(form.OpAdd, w, by, ds.number(w, -off)))
			l.least, l.atmost = true, true
		}
	}
	return slices.DeleteFunc(list, func(l limit) bool { return !l.least || !l.atmost })
}

// adrift reports whether a value that is compared with a uniform one has something unknown in it, and no form that a
// guard of it could bound.
func (ds decisions) adrift(e exprID, signed bool) bool {
	f := ds.linear[e]
	if f.sym != 0 || !ds.loose(f, 0) {
		return false
	}
	w := ds.width(e)
	b := ds.formBounds(f)
	switch {
	case signed:
		return w > 32 && !b.In(numbers(f, w, true)) && !ds.itself(f, w, true)
	case w > 32 || len(f.checks) > 0:
		return true
	}
	return b.Hi > int64(1)<<w-1 || b.Lo < -1<<(w-1) // a wrap says the same of one that is
}

// loose reports whether something unknown is in a form.
func (ds decisions) loose(f *linear, depth int) bool {
	for _, t := range f.terms {
		v := ds.vars[t.v]
		switch v.kind {
		case form.KindTable, form.KindParam:
			return true
		case form.KindAny:
			if ds.exprs[v.from].op == form.OpUnknown {
				return true
			}
		}
		for _, a := range v.args {
			if depth > 8 || ds.loose(a.f, depth+1) {
				return true
			}
		}
	}
	return false
}

// within is a value where limits hold of what it is made from.
func (ds decisions) within(e exprID, list []limit, depth int) exprID {
	for _, l := range list {
		if l.e == e {
			return l.by
		}
	}
	x := ds.exprs[e]
	if ds.uniform[e] || x.op > form.OpSelect || x.w == 1 || depth > 12 {
		return e
	}
	var arg [3]exprID
	same := true
	for i, a := range [...]exprID{x.a, x.b, x.c} {
		if a != noExpr {
			arg[i] = ds.within(a, list, depth+1)
			same = same && arg[i] == a
		}
	}
	if same {
		return e
	}
	return ds.make(x.op, x.w, arg[0], arg[1], arg[2])
}

// resolved adds what follows from several facts: p from p || q, where q does not hold. An assertion of an index that a
// mask covers, !mask || i < n, says something where the mask holds.
func (cs conditions) resolved(list []fact) []fact {
	for i := 0; i < len(list) && len(list) < 64; i++ {
		f := list[i]
		x := cs.exprs[f.e]
		if x.op != form.OpOr || f.not {
			if x.op != form.OpAnd || !f.not {
				continue
			}
		}
		// One of x.a and x.b is as want says.
		want := int(form.Truth(!f.not) & 1)
		for _, p := range [2][2]exprID{{x.a, x.b}, {x.b, x.a}} {
			if r := cs.truthOf(p[0], list, 0); r >= 0 && r != want {
				list = cs.conjuncts(p[1], f.not, list)
				break
			}
		}
	}
	return list
}

// truthOf is 1 if a predicate is true where some facts hold, 0 if it is false, and -1 if neither is seen.
func (cs conditions) truthOf(e exprID, facts []fact, depth int) int {
	for _, f := range facts {
		if f.e == e {
			return 1 - int(form.Truth(f.not)&1)
		}
	}
	x := cs.exprs[e]
	if depth > 8 {
		return -1
	}
	switch x.op {
	case form.OpLTS, form.OpLES:
		if v, top, above, ok := cs.threshold(x); ok {
			for _, f := range facts {
				if w, t, a, ok := cs.threshold(cs.exprs[f.e]); ok && v == w && top == t {
					return int(form.Truth((a == above) != f.not) & 1)
				}
			}
		}
	case form.OpNot:
		if r := cs.truthOf(x.a, facts, depth+1); r >= 0 {
			return 1 - r
		}
	case form.OpAnd, form.OpOr:
		ends := int(form.Truth(x.op == form.OpOr) & 1) // what decides it alone
		a, b := cs.truthOf(x.a, facts, depth+1), cs.truthOf(x.b, facts, depth+1)
		switch {
		case a == ends || b == ends:
			return ends
		case a >= 0 && b >= 0:
			return 1 - ends
		}
	}
	return -1
}

// zeros adds what is known where no bit of a number under a mask is set: of a vector's assertions, Triton makes a bit
// each, and asks whether any is set.
func (cs conditions) zeros(e exprID, mask uint64, list []fact, depth int) []fact {
	x := cs.exprs[e]
	mask &= form.Unsigned(x.w, -1)
	if mask == 0 || depth > 12 {
		return list
	}
	c, constant := cs.constant(x.b)
	switch x.op {
	case form.OpOr:
		return cs.zeros(x.b, mask, cs.zeros(x.a, mask, list, depth+1), depth+1)
	case form.OpAnd:
		if constant {
			return cs.zeros(x.a, mask&uint64(c), list, depth+1)
		}
	case form.OpMul: // bit i is bit i-n of what is shifted
		if constant && c > 0 && c&(c-1) == 0 {
			return cs.zeros(x.a, mask/uint64(c), list, depth+1)
		}
	case form.OpZext, form.OpTrunc:
		if w := cs.width(x.a); w > 1 {
			return cs.zeros(x.a, mask, list, depth+1)
		} else if x.op == form.OpZext && mask&1 != 0 {
			return cs.conjuncts(x.a, true, list)
		}
	case form.OpSelect:
		d, other := cs.constant(x.c)
		if constant && uint64(c)&mask != 0 {
			return cs.conjuncts(x.a, true, list)
		}
		if other && uint64(d)&mask != 0 {
			return cs.conjuncts(x.a, false, list)
		}
	}
	return list
}

// threshold sees v < top, and (above) its opposite, in a signed comparison of a value with a constant.
func (cs conditions) threshold(x expr) (v exprID, top int64, above, ok bool) {
	if x.op != form.OpLTS && x.op != form.OpLES || cs.width(x.a) > 32 { // top may be 2^31
		return
	}
	more := form.Truth(x.op == form.OpLES) & 1
	if c, ok := cs.constant(x.b); ok {
		return x.a, c + more, false, true
	}
	if c, ok := cs.constant(x.a); ok {
		return x.b, c + 1 - more, true, true
	}
	return
}

// each is what a comparison with a maximum or a minimum says of what that is of: where max(a, b) < n, both are; where
// n < max(a, b) is false, both are not above n.
func (cs conditions) each(x expr, not bool) []exprID {
	signed := x.op == form.OpLTS || x.op == form.OpLES
	if !signed && x.op != form.OpLTU && x.op != form.OpLEU {
		return nil
	}
	most, least := form.OpMaxU, form.OpMinU
	if signed {
		most, least = form.OpMaxS, form.OpMinS
	}
	if not {
		most, least = least, most
	}
	switch a, b := cs.exprs[x.a], cs.exprs[x.b]; {
	case a.op == most && !cs.uniform[x.a]:
		return []exprID{cs.binary(x.op, 1, a.a, x.b), cs.binary(x.op, 1, a.b, x.b)}
	case b.op == least && !cs.uniform[x.b]:
		return []exprID{cs.binary(x.op, 1, x.a, b.a), cs.binary(x.op, 1, x.a, b.b)}
	}
	return nil
}
