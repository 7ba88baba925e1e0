package ir

import "holdfast/internal/interval"

// fits is a if all of it are signed integers of w bits, and else everything.
func fits(a interval.Bounds, w uint16) interval.Bounds {
	if w < 2 || w > 64 || !a.Bounded() || !a.In(interval.SignedBounds(uint8(w))) {
		return interval.Everything
	}
	return a
}

type rangeKey struct {
	b *Block
	v ValID
}

// rangeOf bounds a value of w bits as a signed integer, where it is used in block b. It knows what indices of small
// arrays are made of: remainders, masks, short types, counters of loops whose number of
// iterations is known.
func (p *promoter) rangeOf(b *Block, x Operand, w uint16) interval.Bounds {
	if x.Part != "" || x.Mod != 0 {
		return interval.Everything
	}
	switch x.Kind {
	case Constant:
		c := int64(x.Bits)
		if w < 64 {
			c = c << (64 - w) >> (64 - w)
		}
		return fits(interval.Bounds{Lo: c, Hi: c}, w)
	case Special:
		if x.Reg.Max > 0 && w == 32 {
			return interval.Bounds{Lo: 0, Hi: x.Reg.Max}
		}
	case Value:
		if p.c.Vals[x.Val].Type.Width != w {
			return interval.Everything
		}
		key := rangeKey{b, x.Val}
		if r, ok := p.ranges[key]; ok {
			return r
		}
		p.ranges[key] = interval.Everything // if it depends on itself
		r := p.defined(b, x.Val, w)
		p.ranges[key] = r
		return r
	}
	return interval.Everything
}

// defined is the range of a value from its definition.
func (p *promoter) defined(b *Block, v ValID, w uint16) interval.Bounds {
	in := p.c.Vals[v].Def
	if in == nil || len(p.ranges) > 1<<16 || in.Op != Phi && len(in.Defs) != 1 {
		return interval.Everything
	}
	r := fits(p.computed(b, in, w), w)
	for _, x := range in.Else {
		r = r.Join(p.rangeOf(b, x, w))
	}
	return fits(r, w)
}

func (p *promoter) computed(b *Block, in *Inst, w uint16) interval.Bounds {
	t := in.Type
	if in.Op == Phi {
		return p.phi(b, in, w)
	}
	if in.Op == Select && len(in.Args) == 3 {
		x, y := in.Args[0], in.Args[1]
		return p.rangeOf(b, x, w).Join(p.rangeOf(b, y, w))
	}
	if in.Op == Mov {
		return p.rangeOf(b, in.Args[0], w)
	}
	if !t.Integer() {
		return interval.Everything
	}
	arg := func(i int) interval.Bounds { return p.rangeOf(b, in.Args[i], t.Width) }
	constant := func(i int) (int64, bool) {
		x := arg(i)
		return x.Lo, x.Lo == x.Hi
	}
	switch in.Op {
	case Load:
		switch {
		case t.Width > 16:
		case t.Kind == Signed:
			return interval.Bounds{Lo: -1 << (t.Width - 1), Hi: 1<<(t.Width-1) - 1}
		case w > t.Width:
			return interval.Bounds{Lo: 0, Hi: 1<<t.Width - 1}
		}
	case Convert:
		from := in.Type2
		if !from.Integer() || t.Width != w {
			return interval.Everything
		}
		x := p.rangeOf(b, in.Args[0], from.Width)
		switch {
		case t.Width > from.Width && from.Kind != Signed && (!x.Bounded() || x.Lo < 0):
			if from.Width > 16 {
				return interval.Everything
			}
			return interval.Bounds{Lo: 0, Hi: 1<<from.Width - 1}
		}
		return x // to fewer bits only if it fits: see fits
	}
	if t.Width != w && in.Op != MulWide {
		return interval.Everything
	}
	switch in.Op {
	case And:
		for i := range in.Args {
			if c, ok := constant(i); ok && c >= 0 {
				return interval.Bounds{Lo: 0, Hi: c}
			}
		}
	case Rem:
		c, ok := constant(1)
		if !ok || c <= 0 {
			return interval.Everything
		}
		if x := arg(0); t.Kind == Signed && !(x.Bounded() && x.Lo >= 0) {
			return interval.Bounds{Lo: 1 - c, Hi: c - 1}
		}
		return interval.Bounds{Lo: 0, Hi: c - 1}
	case Shr:
		c, ok := p.amount(in)
		x := arg(0)
		switch {
		case !ok:
		case x.Bounded() && (x.Lo >= 0 || t.Kind == Signed):
			return interval.Bounds{Lo: x.Lo >> c, Hi: x.Hi >> c}
		case t.Kind != Signed && c > 0 && int64(w)-c < 31:
			return interval.Bounds{Lo: 0, Hi: 1<<(int64(w)-c) - 1}
		}
	case Shl:
		if c, ok := p.amount(in); ok && c < 31 {
			return product(arg(0), interval.Bounds{Lo: 1 << c, Hi: 1 << c})
		}
	case Mul:
		return product(arg(0), arg(1))
	case MulWide:
		x, y := arg(0), arg(1)
		if t.Kind == Signed || x.Lo >= 0 && y.Lo >= 0 {
			return product(x, y)
		}
	case Add:
		x, y := arg(0), arg(1)
		if x.Bounded() && y.Bounded() {
			return x.Plus(y)
		}
	case Sub:
		x, y := arg(0), arg(1)
		if x.Bounded() && y.Bounded() {
			return x.Minus(y)
		}
	}
	return interval.Everything
}

// amount is by how much a shift shifts.
func (p *promoter) amount(in *Inst) (int64, bool) {
	x := in.Args[1]
	return int64(x.Bits), x.Kind == Constant && x.Bits < uint64(in.Type.Width)
}

func product(x, y interval.Bounds) interval.Bounds {
	if !x.Bounded() || !y.Bounded() {
		return interval.Everything
	}
	return x.Product(y)
}

// phi is the range of a phi: of a counter, if it is one, up to the last iteration that comes to block b.
func (p *promoter) phi(b *Block, in *Inst, w uint16) interval.Bounds {
	d := in.Defs[0]
	at := p.c.Vals[d].Block
	l := p.c.Loops.Of[at.Index]
	if l == nil || l.Header != at {
		r := interval.Bounds{Lo: interval.Far, Hi: -interval.Far}
		for _, x := range in.Args {
			r = r.Join(p.rangeOf(b, x, w))
		}
		return r
	}
	t := l.Trip
	if l.Irreducible || t == nil || !t.Known || t.Count > 1<<20 {
		return interval.Everything
	}
	rounds := int64(t.Count) // it goes back to its header so often
	if p.within(l, t, b) {
		rounds--
	}
	for _, iv := range l.Inductions {
		if iv.Phi != d || iv.Type.Width != w || iv.Op != Add && iv.Op != Sub {
			continue
		}
		init, step := p.rangeOf(at, iv.Init, w), p.rangeOf(at, iv.Step, w)
		if !init.Bounded() || step.Lo != step.Hi {
			return interval.Everything
		}
		by := step.Lo
		if iv.Op == Sub {
			by = -by
		}
		last := interval.Bounds{Lo: rounds, Hi: rounds}.Times(by)
		return init.Plus(interval.Bounds{Lo: min(0, last.Lo), Hi: max(0, last.Hi)})
	}
	return interval.Everything
}

// within reports whether block b is executed only in iterations that the test has let go on.
func (p *promoter) within(l *Loop, t *Trip, b *Block) bool {
	if t.Count == 0 || !p.c.Loops.Contains(l, b) {
		return false
	}
	for _, e := range t.Block.Succs {
		if s := e.Block; p.c.Loops.Contains(l, s) && len(s.Preds) == 1 && s != l.Header &&
			p.c.Dom.Dominates(s.Index, b.Index) {
			return true
		}
	}
	return false
}
