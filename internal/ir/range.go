package ir

// An interval is the integers from lo to hi.
type interval struct{ lo, hi int64 }

var unbounded = interval{-anywhere, anywhere}

func (a interval) join(b interval) interval { return interval{min(a.lo, b.lo), max(a.hi, b.hi)} }

func (a interval) bounded() bool { return a.lo > -anywhere && a.hi < anywhere }

// in is a if all of it are signed integers of w bits, and else unbounded.
func (a interval) in(w uint16) interval {
	if w < 2 || w > 64 || w < 33 && (a.lo < -1<<(w-1) || a.hi >= 1<<(w-1)) || !a.bounded() {
		return unbounded
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
func (p *promoter) rangeOf(b *Block, x Operand, w uint16) interval {
	if x.Part != "" || x.Mod != 0 {
		return unbounded
	}
	switch x.Kind {
	case Constant:
		c := int64(x.Bits)
		if w < 64 {
			c = c << (64 - w) >> (64 - w)
		}
		return interval{c, c}.in(w)
	case Special:
		if x.Reg.Max > 0 && w == 32 {
			return interval{0, x.Reg.Max}
		}
	case Value:
		if p.c.Vals[x.Val].Type.Width != w {
			return unbounded
		}
		key := rangeKey{b, x.Val}
		if r, ok := p.ranges[key]; ok {
			return r
		}
		p.ranges[key] = unbounded // if it depends on itself
		r := p.defined(b, x.Val, w)
		p.ranges[key] = r
		return r
	}
	return unbounded
}

// defined is the range of a value from its definition.
func (p *promoter) defined(b *Block, v ValID, w uint16) interval {
	in := p.c.Vals[v].Def
	if in == nil || len(p.ranges) > 1<<16 || in.Op != Phi && len(in.Defs) != 1 {
		return unbounded
	}
	r := p.computed(b, in, w).in(w)
	for _, x := range in.Else {
		r = r.join(p.rangeOf(b, x, w))
	}
	return r.in(w)
}

func (p *promoter) computed(b *Block, in *Inst, w uint16) interval {
	t := in.Type
	if in.Op == Phi {
		return p.phi(b, in, w)
	}
	if in.Op == Select && len(in.Args) == 3 {
		x, y := in.Args[0], in.Args[1]
		return p.rangeOf(b, x, w).join(p.rangeOf(b, y, w))
	}
	if in.Op == Mov {
		return p.rangeOf(b, in.Args[0], w)
	}
	if !t.Integer() {
		return unbounded
	}
	arg := func(i int) interval { return p.rangeOf(b, in.Args[i], t.Width) }
	constant := func(i int) (int64, bool) {
		x := arg(i)
		return x.lo, x.lo == x.hi
	}
	switch in.Op {
	case Load:
		switch {
		case t.Width > 16:
		case t.Kind == Signed:
			return interval{-1 << (t.Width - 1), 1<<(t.Width-1) - 1}
		case w > t.Width:
			return interval{0, 1<<t.Width - 1}
		}
	case Convert:
		from := in.Type2
		if !from.Integer() || t.Width != w {
			return unbounded
		}
		x := p.rangeOf(b, in.Args[0], from.Width)
		switch {
		case t.Width > from.Width && from.Kind != Signed && (!x.bounded() || x.lo < 0):
			if from.Width > 16 {
				return unbounded
			}
			return interval{0, 1<<from.Width - 1}
		}
		return x // to fewer bits only if it fits: see in
	}
	if t.Width != w && in.Op != MulWide {
		return unbounded
	}
	switch in.Op {
	case And:
		for i := range in.Args {
			if c, ok := constant(i); ok && c >= 0 {
				return interval{0, c}
			}
		}
	case Rem:
		c, ok := constant(1)
		if !ok || c <= 0 {
			return unbounded
		}
		if x := arg(0); t.Kind == Signed && !(x.bounded() && x.lo >= 0) {
			return interval{1 - c, c - 1}
		}
		return interval{0, c - 1}
	case Shr:
		c, ok := p.amount(in)
		x := arg(0)
		switch {
		case !ok:
		case x.bounded() && (x.lo >= 0 || t.Kind == Signed):
			return interval{x.lo >> c, x.hi >> c}
		case t.Kind != Signed && c > 0 && int64(w)-c < 31:
			return interval{0, 1<<(int64(w)-c) - 1}
		}
	case Shl:
		if c, ok := p.amount(in); ok && c < 31 {
			return product(arg(0), interval{1 << c, 1 << c})
		}
	case Mul:
		return product(arg(0), arg(1))
	case MulWide:
		x, y := arg(0), arg(1)
		if t.Kind == Signed || x.lo >= 0 && y.lo >= 0 {
			return product(x, y)
		}
	case Add:
		x, y := arg(0), arg(1)
		if x.bounded() && y.bounded() {
			return interval{x.lo + y.lo, x.hi + y.hi}
		}
	case Sub:
		x, y := arg(0), arg(1)
		if x.bounded() && y.bounded() {
			return interval{x.lo - y.hi, x.hi - y.lo}
		}
	}
	return unbounded
}

// amount is by how much a shift shifts.
func (p *promoter) amount(in *Inst) (int64, bool) {
	x := in.Args[1]
	return int64(x.Bits), x.Kind == Constant && x.Bits < uint64(in.Type.Width)
}

func product(x, y interval) interval {
	if !x.bounded() || !y.bounded() {
		return unbounded
	}
	a, b, c, d := x.lo*y.lo, x.lo*y.hi, x.hi*y.lo, x.hi*y.hi
	return interval{min(a, b, c, d), max(a, b, c, d)}
}

// phi is the range of a phi: of a counter, if it is one, up to the last iteration that comes to block b.
func (p *promoter) phi(b *Block, in *Inst, w uint16) interval {
	d := in.Defs[0]
	at := p.c.Vals[d].Block
	l := p.c.Loops.Of[at.Index]
	if l == nil || l.Header != at {
		r := interval{anywhere, -anywhere}
		for _, x := range in.Args {
			r = r.join(p.rangeOf(b, x, w))
		}
		return r
	}
	t := l.Trip
	if l.Irreducible || t == nil || !t.Known || t.Count > 1<<20 {
		return unbounded
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
		if !init.bounded() || step.lo != step.hi {
			return unbounded
		}
		by := step.lo
		if iv.Op == Sub {
			by = -by
		}
		last := product(interval{rounds, rounds}, interval{by, by})
		return interval{init.lo + min(0, last.lo), init.hi + max(0, last.hi)}
	}
	return unbounded
}

// within reports whether block b is executed only in iterations that the test has let go on.
func (p *promoter) within(l *Loop, t *Trip, b *Block) bool {
	if t.Count == 0 || !p.c.Loops.Contains(l, b) {
		return false
	}
	for _, e := range t.Block.Succs {
		if s := e.Block; p.c.Loops.Contains(l, s) && len(s.Preds) == 1 && s != l.Header && p.c.Dom.Dominates(s.Index, b.Index) {
			return true
		}
	}
	return false
}
