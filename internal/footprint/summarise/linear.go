package summarise

import (
	"encoding/binary"
	"slices"

	"holdfast/internal/footprint/form"
)

// A linear form is c + the sum of coef * v over its terms, as an integer. A value of w bits
// is congruent to its form modulo 2^w, so that adding, subtracting and multiplying by a uniform
// number need no proof that nothing overflows. Where bits become a number (a comparison, a
// division, a conversion to a wider type) that proof is needed: the form then lists
// a check, which each launch makes, and where it fails nothing is known of the form.
type linear struct {
	id     int32
	terms  []term  // by ascending variable
	c      exprID  // uniform, 64 bits
	sym    int32   // 1 + the variable of the program whose address is added; 0 = none
	checks []int32 // ascending
}

// A term is coef * v; coef is uniform, of 64 bits.
type term struct {
	v    varID
	coef exprID
}

// A check holds if a form lies within the signed or unsigned integers of w bits.
type check struct {
	f      *linear
	w      uint8
	signed bool
}

// form finds or makes a form. terms are sorted, without zero coefficients.
func (g *graph) form(f linear) *linear {
	key := binary.AppendVarint(nil, int64(f.c))
	key = binary.AppendVarint(key, int64(f.sym))
	for _, t := range f.terms {
		key = binary.AppendVarint(key, int64(t.v))
		key = binary.AppendVarint(key, int64(t.coef))
	}
	key = append(key, 0x80, 0x80) // no varint ends so
	for _, c := range f.checks {
		key = binary.AppendVarint(key, int64(c))
	}
	if have := g.linears[string(key)]; have != nil {
		return have
	}
	f.id = int32(len(g.linears))
	g.linears[string(key)] = &f
	return &f
}

func (g *graph) num(x int64) exprID { return g.number(64, x) }

// of64 is a uniform value as a signed 64-bit one.
func (g *graph) of64(e exprID) exprID { return g.unary(form.OpSext, 64, e) }

func (g *graph) uniformForm(c exprID) *linear { return g.form(linear{c: c}) }

func (g *graph) varForm(v varID) *linear {
	return g.form(linear{terms: []term{{v, g.num(1)}}, c: g.num(0)})
}

// atom is the form of a variable of its own.
func (g *graph) atom(v variable) *linear { return g.varForm(g.variable(v)) }

// opaque is the form of a value that is not looked into.
func (g *graph) opaque(e exprID) *linear {
	return g.atom(variable{kind: form.KindAny, w: g.width(e), from: e})
}

// sum is a + k*b for a uniform k.
func (g *graph) sum(a, b *linear, k exprID) (*linear, bool) {
	f := linear{c: g.binary(form.OpAdd, 64, a.c, g.binary(form.OpMul, 64, b.c, k)), sym: a.sym}
	if b.sym != 0 {
		if one, _ := g.constant(k); a.sym != 0 || one != 1 {
			return nil, false
		}
		f.sym = b.sym
	}
	i, j := 0, 0
	for i < len(a.terms) || j < len(b.terms) {
		var t term
		switch {
		case j == len(b.terms) || i < len(a.terms) && a.terms[i].v < b.terms[j].v:
			t = a.terms[i]
			i++
		case i == len(a.terms) || b.terms[j].v < a.terms[i].v:
			t = term{b.terms[j].v, g.binary(form.OpMul, 64, b.terms[j].coef, k)}
			j++
		default:
			t = term{a.terms[i].v, g.binary(form.OpAdd, 64, a.terms[i].coef, g.binary(form.OpMul, 64,
				b.terms[j].coef, k))}
			i++
			j++
		}
		if x, ok := g.constant(t.coef); !ok || x != 0 {
			f.terms = append(f.terms, t)
		}
	}
	if len(f.terms) > form.MaxTerms {
		return nil, false
	}
	f.checks = union(a.checks, b.checks)
	return g.form(f), true
}

func union(a, b []int32) []int32 {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	r := slices.Concat(a, b)
	slices.Sort(r)
	return slices.Compact(r)
}

func (g *graph) scaled(f *linear, k exprID) (*linear, bool) {
	return g.sum(g.uniformForm(g.num(0)), f, k)
}

// add is a + k*b with remainders recognised: x - x/m*m is x % m.
func (g *graph) add(a, b *linear, k exprID) (*linear, bool) {
	f, ok := g.sum(a, b, k)
	if !ok {
		return nil, false
	}
	for range f.terms {
		r := identities{g}.remainders(f)
		if r == nil {
			break
		}
		f = r
	}
	for range f.terms {
		r := identities{g}.wrapped(f)
		if r == nil {
			break
		}
		f = r
	}
	return f, true
}

func (g *graph) isZero(e exprID) bool {
	x, ok := g.constant(e)
	return ok && x == 0
}

// withChecks is r with the checks of f.
func (g *graph) withChecks(r, f *linear) *linear {
	n := *r
	n.checks = union(r.checks, f.checks)
	return g.form(n)
}

func (g *graph) counterKey(loop int64) string {
	return string(g.keyOf(&variable{kind: form.KindCounter, w: 64, imm: loop}))
}
