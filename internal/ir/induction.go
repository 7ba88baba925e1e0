package ir

import "math/bits"

// An Induction is a value that changes by the same step in every iteration of a loop: Phi
// is Init when the loop is entered, then Phi Op Step. Op is Add, Sub, Shl or Shr;
// Step does not change in the loop.
type Induction struct {
	Phi  ValID
	Next ValID // the value of the next iteration
	Init Operand
	Op   Op
	Step Operand
	Type Type // of the step's instruction: says whether Shr is arithmetic
}

// A Trip says how often a loop goes round. In each iteration an exit compares
// a value with a bound; the k-th time (from 0) the value is
//
//	Init Op Step Op Step … (k times, once more if Ahead) + Off
//
// which is Phi + Off, or Next + Off if Ahead, and the loop goes on while value While Bound.
type Trip struct {
	Block *Block // the exit
	Induction
	Ahead bool
	Off   int64
	While Rel
	Bound Operand
	Type  Type // of the comparison
	// Count, if Known, is how often the test lets the loop go on; the test is made
	// once more. If Exact, nothing else ends the loop, and it goes back to its
	// header Count times; otherwise it does so at most Count times.
	Known bool
	Count uint64
	Exact bool
}

// maxChain bounds how many instructions lead from one iteration's value to the next.
const maxChain = 64

// inductions finds the induction variables and trip counts of the loops.
func inductions(f *Func) error {
	ends := endings(f)
	for _, l := range f.Loops.Loops {
		if l.Irreducible {
			continue
		}
		for _, in := range l.Header.Phis() {
			if iv, ok := f.induction(l, in); ok {
				l.Inductions = append(l.Inductions, iv)
			}
		}
		l.Trip = f.trip(l, !ends[l])
	}
	return nil
}

// Invariant reports whether x is the same in all iterations of l.
func (f *Func) Invariant(l *Loop, x Operand) bool {
	switch x.Kind {
	case Constant, Symbol:
		return true
	case Special:
		return x.Reg.Fixed
	case Value:
		return !f.Loops.Contains(l, f.Vals[x.Val].Block)
	}
	return false
}

// Through follows moves that change nothing. The result keeps x's modifier.
func (f *Func) Through(x Operand) Operand {
	for range maxChain {
		if x.Kind != Value {
			break
		}
		in := f.Vals[x.Val].Def
		if in.Op != Mov || in.Guarded() || len(in.Defs) != 1 || in.Args[0].Mod != 0 || in.Args[0].Part != "" ||
			x.Part != "" {
			break
		}
		if a := in.Args[0]; a.Kind == Value && f.Vals[a.Val].Type.Width != f.Vals[x.Val].Type.Width {
			break
		}
		mod := x.Mod
		x = in.Args[0]
		x.Mod = mod
	}
	return x
}

func (f *Func) induction(l *Loop, phi *Inst) (Induction, bool) {
	iv := Induction{Phi: phi.Defs[0]}
	next := None
	for i, e := range l.Header.Preds {
		x := f.Through(phi.Args[i])
		if f.Loops.Contains(l, e.Block) {
			x = phi.Args[i]
			if x.Kind != Value || next != None && next != x.Val {
				return iv, false
			}
			next = x.Val
		} else if iv.Init.Kind != NoOperand && iv.Init != x || x.Kind == Undef {
			return iv, false
		} else {
			iv.Init = x
		}
	}
	if next == None || iv.Init.Kind == NoOperand {
		return iv, false
	}
	iv.Next = next
	return iv, f.step(l, &iv)
}

// step finds how Next comes from Phi.
func (f *Func) step(l *Loop, iv *Induction) bool {
	x := Of(iv.Next)
	var sum int64
	for range maxChain {
		x = f.Through(x)
		if x.Kind != Value || x.Mod != 0 || x.Part != "" {
			return false
		}
		if x.Val == iv.Phi {
			if iv.Op == Other {
				iv.Op, iv.Step = Add, Int(sum)
			} else if sum != 0 {
				return false // more than one kind of step
			}
			return true
		}
		if !f.Loops.Contains(l, f.Vals[x.Val].Block) {
			return false
		}
		in := f.Vals[x.Val].Def
		if in.Guarded() || len(in.Defs) != 1 || !in.Type.Integer() || in.Type.Width != f.Vals[iv.Phi].Type.Width {
			return false
		}
		base, step, ok := f.operands(l, in)
		if !ok {
			return false
		}
		iv.Type = in.Type
		if (in.Op == Add || in.Op == Sub) && step.Kind == Constant {
			if in.Op == Sub {
				step.Bits = -step.Bits
			}
			sum += signExtend(step.Bits, in.Type.Width)
		} else if iv.Op == Other {
			iv.Op, iv.Step = in.Op, step
		} else {
			return false
		}
		x = base
	}
	return false
}

// operands splits a step's instruction into what changes and what does not.
func (f *Func) operands(l *Loop, in *Inst) (base, step Operand, ok bool) {
	if len(in.Args) != 2 {
		return base, step, false
	}
	a, b := in.Args[0], f.Through(in.Args[1])
	switch in.Op {
	case Add:
		if x := f.Through(a); f.Invariant(l, x) {
			a, b = in.Args[1], x
		}
	case Sub:
	case Shl, Shr:
		if b.Kind != Constant || b.Bits == 0 {
			return base, step, false
		}
	default:
		return base, step, false
	}
	return a, b, b.Mod == 0 && b.Part == "" && f.Invariant(l, b)
}

func signExtend(x uint64, width uint16) int64 {
	if width == 0 || width >= 64 {
		return int64(x)
	}
	return int64(x<<(64-width)) >> (64 - width)
}

// A finder says which induction variable a value is, and whether it is a step ahead.
type finder func(ValID) (iv *Induction, ahead bool)

// trip finds an exit that is tested in every iteration and compares an induction variable.
// stays says that nothing in l ends the thread.
func (f *Func) trip(l *Loop, stays bool) *Trip {
	type place struct {
		iv    *Induction
		ahead bool
	}
	ivs := map[ValID]place{} // the values that are induction variables, or one step ahead of them
	for i := range l.Inductions {
		iv := &l.Inductions[i]
		ivs[iv.Phi] = place{iv, false}
		if iv.Op != Add || iv.Step.Kind != Constant { // else Next is an offset
			ivs[f.Through(Of(iv.Next)).Val] = place{iv, true}
		}
	}
	find := func(v ValID) (*Induction, bool) { return ivs[v].iv, ivs[v].ahead }
	var best *Trip
	for _, e := range l.Exits {
		b := e.Block
		if f.Loops.Of[b.Index] != l || len(b.Succs) != 2 || !f.everyTime(l, b) {
			continue
		}
		end := b.End()
		if end == nil || end.Op != Branch || !end.Guarded() {
			continue
		}
		// Succs[0] is where the branch goes when its guard holds.
		t := f.test(l, end.Guard, e.Index != 0, find)
		if t == nil {
			continue
		}
		t.Block = b
		t.Exact = len(l.Exits) == 1 && stays
		t.count()
		if best == nil || !best.Known && t.Known || best.Known && t.Known && t.Count < best.Count {
			best = t
		}
	}
	return best
}

func (f *Func) everyTime(l *Loop, b *Block) bool {
	for _, latch := range l.Latches {
		if !f.Dom.Dominates(b.Index, latch.Index) {
			return false
		}
	}
	return true
}

// endings notes which loops have something in them that ends the function or the thread, or
// may: a call.
func endings(f *Func) map[*Loop]bool {
	ends := map[*Loop]bool{}
	for i := len(f.Loops.Loops) - 1; i >= 0; i-- { // inner ones first
		l := f.Loops.Loops[i]
		for _, b := range l.Blocks {
			for _, in := range b.Insts {
				if in.Op.Leaves() || in.Op == Call {
					ends[l] = true
				}
			}
		}
		if ends[l] && l.Parent != nil {
			ends[l.Parent] = true
		}
	}
	return ends
}

// test reads the condition under which the loop goes on: guard, or its opposite.
func (f *Func) test(l *Loop, guard Operand, goesOn bool, find finder) *Trip {
	for range maxChain {
		guard = f.Through(guard)
		if guard.Kind != Value {
			return nil
		}
		if guard.Mod&Complement != 0 {
			goesOn = !goesOn
			guard.Mod = 0
		}
		in := f.Vals[guard.Val].Def
		if in.Op != Not || in.Guarded() {
			break
		}
		guard, goesOn = in.Args[0], !goesOn
	}
	in := f.Vals[guard.Val].Def
	if in.Op != Compare || in.Guarded() || !in.Type.Integer() || !f.Loops.Contains(l, f.Vals[guard.Val].Block) {
		return nil
	}
	rel := in.Rel
	if !goesOn {
		rel = rel.Opposite()
	}
	if len(in.Defs) > 1 && in.Defs[1] == guard.Val {
		rel = rel.Opposite()
	}
	a, b := f.Through(in.Args[0]), f.Through(in.Args[1])
	if f.Invariant(l, a) {
		a, b, rel = b, a, rel.Swapped()
	}
	if !f.Invariant(l, b) || b.Mod != 0 || b.Part != "" {
		return nil
	}
	t := &Trip{While: rel, Bound: b, Type: in.Type}
	if !f.shifted(l, a, t, find) {
		return nil
	}
	return t
}

// shifted finds which induction variable x is, how many steps ahead, and by which offset.
func (f *Func) shifted(l *Loop, x Operand, t *Trip, find finder) bool {
	width := t.Type.Width
	for range maxChain {
		x = f.Through(x)
		if x.Kind != Value || x.Mod != 0 || x.Part != "" {
			return false
		}
		if iv, ahead := find(x.Val); iv != nil && f.Vals[iv.Phi].Type.Width == width {
			t.Induction, t.Ahead = *iv, ahead
			return true
		}
		in := f.Vals[x.Val].Def
		if in.Guarded() || len(in.Defs) != 1 || !in.Type.Integer() || in.Type.Width != width ||
			in.Op != Add && in.Op != Sub {
			return false
		}
		base, step, ok := f.operands(l, in)
		if !ok || step.Kind != Constant {
			return false
		}
		if in.Op == Sub {
			step.Bits = -step.Bits
		}
		t.Off += signExtend(step.Bits, width)
		x = base
	}
	return false
}

// apply makes one step, modulo the width.
func (iv *Induction) apply(x uint64) uint64 {
	w := iv.Type.Width
	n := iv.Step.Bits
	switch iv.Op {
	case Add:
		x += n
	case Sub:
		x -= n
	case Shl:
		x <<= n // a count of 64 or more gives 0, as it shall
	case Shr:
		if iv.Type.Kind == Signed {
			x = uint64(signExtend(x, w) >> min(n, 63))
		} else {
			x = mask(x, w) >> n
		}
	}
	return mask(x, w)
}

func mask(x uint64, width uint16) uint64 {
	if width >= 64 {
		return x
	}
	return x & (1<<width - 1)
}

// count computes Count where everything is constant.
func (t *Trip) count() {
	w := t.Type.Width
	if t.Init.Kind != Constant || t.Step.Kind != Constant || t.Bound.Kind != Constant || w == 0 || w > 64 {
		return
	}
	first := t.Init.Bits
	if t.Ahead {
		first = t.apply(first)
	}
	if t.Op == Shl || t.Op == Shr {
		t.simulate(first)
		return
	}
	step := signExtend(t.Step.Bits, w)
	if t.Op == Sub {
		step = -step
	}
	// Order the numbers as unsigned ones, and make the relation LT, NE or EQ.
	flip := uint64(0)
	if t.Type.Kind == Signed {
		flip = 1 << (w - 1)
	}
	v := mask(first+uint64(t.Off), w) ^ flip
	bound := mask(t.Bound.Bits, w) ^ flip
	top := mask(^uint64(0), w)
	rel := t.While
	if rel == GT || rel == GE { // ~ reverses the order
		v, bound, step, rel = v^top, bound^top, -step, rel.Swapped()
	}
	if rel == LE {
		if bound == top {
			return // holds always
		}
		bound, rel = bound+1, LT
	}
	switch rel {
	case LT:
		t.countUp(v, bound, top, step)
	case NE:
		if step == 0 && v != bound {
			return
		}
		d, s := mask(bound-v, w), uint64(step)
		if step < 0 {
			d, s = mask(v-bound, w), -uint64(step)
		}
		if d == 0 {
			t.Known, t.Count = true, 0
		} else if d%s == 0 {
			t.Known, t.Count = true, d/s
		}
	case EQ:
		if v != bound {
			t.Known, t.Count = true, 0
		} else if step != 0 {
			t.Known, t.Count = true, 1
		}
	}
}

// countUp counts the steps from v until it is no longer below bound, unless it would pass
// the largest number on its way.
func (t *Trip) countUp(v, bound, top uint64, step int64) {
	if v >= bound {
		t.Known, t.Count = true, 0
		return
	}
	if step <= 0 {
		return
	}
	d, s := bound-v, uint64(step)
	n := d / s
	if d%s != 0 {
		n++
		if over := s - d%s; over > top-bound {
			return
		}
	}
	t.Known, t.Count = true, n
}

// simulate runs shifts: after as many steps as there are bits nothing changes any more.
func (t *Trip) simulate(first uint64) {
	x := mask(first, t.Type.Width)
	for n := range uint64(bits.UintSize + 2) {
		if !t.holds(mask(x+uint64(t.Off), t.Type.Width)) {
			t.Known, t.Count = true, n
			return
		}
		x = t.apply(x)
	}
}

func (t *Trip) holds(x uint64) bool {
	y := mask(t.Bound.Bits, t.Type.Width)
	if t.Type.Kind == Signed {
		flip := uint64(1) << (t.Type.Width - 1)
		x, y = x^flip, y^flip
	}
	switch t.While {
	case EQ:
		return x == y
	case NE:
		return x != y
	case LT:
		return x < y
	case LE:
		return x <= y
	case GT:
		return x > y
	}
	return x >= y
}
