package ir

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var testRegisters = [...]Register{
	{Name: "tid.x", Is: ThreadIndex, Type: Type{Unsigned, 32}, Same: Varies, Fixed: true, Max: 1023},
	{Name: "ctaid.x", Is: BlockIndex, Type: Type{Unsigned, 32}, Same: SameBlock, Fixed: true},
	{Name: "ntid.x", Is: BlockSize, Type: Type{Unsigned, 32}, Same: SameGrid, Fixed: true, Max: 1024},
}

// randomFunc makes a function over a few registers with any control flow: loops with several
// entries, arcs from a block to itself, blocks that cannot be reached.
func randomFunc(rng *rand.Rand) *Func {
	f := &Func{Name: "random", Kernel: true}
	const words, preds = 5, 2
	for i := range words {
		f.Vals = append(f.Vals, Val{Name: fmt.Sprintf("%%r%d", i), Type: Type{Bits, 32}})
	}
	for i := range preds {
		f.Vals = append(f.Vals, Val{Name: fmt.Sprintf("%%p%d", i), Type: Type{Pred, 1}})
	}
	reg := func() ValID { return ValID(rng.IntN(words)) }
	pred := func() Operand {
		x := Of(ValID(words + rng.IntN(preds)))
		x.Mod = Mod(rng.IntN(2)) * Complement
		return x
	}
	word := func() Operand {
		switch rng.IntN(8) {
		case 0:
			return Int(int64(rng.IntN(4)))
		case 1:
			return Operand{Kind: Special, Reg: &testRegisters[rng.IntN(3)]}
		}
		return Of(reg())
	}
	n := 2 + rng.IntN(9)
	for i := range n {
		f.Blocks = append(f.Blocks, &Block{Index: i})
	}
	u32 := Type{Unsigned, 32}
	for i, b := range f.Blocks {
		add := func(in *Inst) { b.Insts = append(b.Insts, in) }
		if i == 0 { // so that little is undefined
			for r := range ValID(words) {
				if rng.IntN(5) > 0 {
					add(&Inst{Op: Mov, Type: u32, Defs: []ValID{r}, Args: []Operand{Int(int64(rng.IntN(5)))}})
				}
			}
			for p := range ValID(preds) {
				add(&Inst{Op: Compare, Type: u32, Rel: LT, Defs: []ValID{words + p}, Args: []Operand{word(), Int(2)}})
			}
		}
		for range rng.IntN(4) {
			in := &Inst{Op: []Op{Mov, Add, Sub, Xor, Compare, Compare, Select}[rng.IntN(7)], Type: u32,
				Defs: []ValID{reg()}}
			for range arity[in.Op] {
				in.Args = append(in.Args, word())
			}
			switch in.Op {
			case Compare:
				in.Rel = Rel(1 + rng.IntN(6))
				in.Defs[0] = ValID(words + rng.IntN(preds))
			case Select:
				in.Args[2] = pred()
			}
			if rng.IntN(5) == 0 {
				in.Guard = pred()
			}
			add(in)
		}
		to := func() *Block { return f.Blocks[1+rng.IntN(n-1)] }
		switch rng.IntN(12) {
		case 0:
			add(&Inst{Op: Return})
		case 1:
			add(&Inst{Op: Exit, Guard: pred()})
			Connect(b, to())
		case 2:
			Connect(b, to())
		case 3:
			add(&Inst{Op: Switch, Args: []Operand{word()}})
			for range 1 + rng.IntN(3) {
				Connect(b, to())
			}
		default:
			add(&Inst{Op: Branch, Guard: pred()})
			Connect(b, to())
			Connect(b, to())
		}
	}
	return f
}

// A machine runs one thread of a function.
type machine struct {
	f     *Func
	vals  []uint64
	tid   uint64
	ctaid uint64
	// at is told of every instruction that has been run, with the iterations of the
	// loops around it, if the function has them.
	at    func(b *Block, in *Inst, iteration string)
	trace []string // of the instructions that are in the function in both forms
	iters map[*Loop]int
}

func (m *machine) operand(x Operand) uint64 {
	var v uint64
	switch x.Kind {
	case Value:
		v = m.vals[x.Val]
	case Constant:
		v = x.Bits
	case Special:
		v = map[string]uint64{"tid.x": m.tid, "ctaid.x": m.ctaid, "ntid.x": 4}[x.Reg.Name]
	case Undef:
		v = 0 // as registers begin here
	}
	if x.Mod&Complement != 0 {
		v ^= 1
	}
	return v
}

func (m *machine) compute(in *Inst) uint64 {
	w := max(in.Type.Width, 1)
	arg := func(i int) uint64 { return mask(m.operand(in.Args[i]), w) }
	switch in.Op {
	case Mov:
		return arg(0)
	case Add:
		return mask(arg(0)+arg(1), w)
	case Sub:
		return mask(arg(0)-arg(1), w)
	case Xor:
		return arg(0) ^ arg(1)
	case Shl:
		return mask(arg(0)<<arg(1), w)
	case Shr:
		if in.Type.Kind == Signed {
			return mask(uint64(signExtend(arg(0), w)>>min(arg(1), 63)), w)
		}
		return arg(0) >> arg(1)
	case Select:
		if m.operand(in.Args[2]) != 0 {
			return arg(0)
		}
		return arg(1)
	case Compare:
		t := &Trip{Bound: Int(int64(arg(1))), While: in.Rel, Type: in.Type}
		if t.holds(arg(0)) {
			return 1
		}
		return 0
	}
	panic("operation " + in.Op.String())
}

// run executes at most limit instructions, and reports whether that was to the end.
func (m *machine) run(limit int) bool {
	m.vals = make([]uint64, len(m.f.Vals))
	m.iters = map[*Loop]int{}
	b, from := m.f.Blocks[0], -1
	for {
		m.iterate(b, from)
		var phis []uint64
		for _, in := range b.Phis() {
			phis = append(phis, m.operand(in.Args[from]))
		}
		for i, in := range b.Phis() {
			m.vals[in.Defs[0]] = phis[i]
			m.note(b, in)
		}
		next := 0
		ended := false
		for _, in := range b.Insts[len(phis):] {
			if limit--; limit < 0 {
				return false
			}
			on := !in.Guarded() || m.operand(in.Guard) != 0
			switch {
			case in.Op == Branch:
				if !on {
					next = 1
				}
			case in.Op == Switch:
				next = int(m.operand(in.Args[0])) % len(b.Succs)
			case in.Op.Leaves():
				ended = on
			case on:
				v := m.compute(in)
				m.trace = append(m.trace, fmt.Sprintf("%s=%d", m.f.Vals[in.Defs[0]].Name, v))
				m.vals[in.Defs[0]] = v
			case m.f.SSA:
				m.vals[in.Defs[0]] = m.operand(in.Else[0])
			}
			m.note(b, in)
		}
		if limit--; ended || limit < 0 {
			return ended
		}
		from = b.Succs[next].Index
		b = b.Succs[next].Block
	}
}

// iterate counts the iterations of the loops around b.
func (m *machine) iterate(b *Block, from int) {
	if m.f.Loops == nil || from < 0 {
		return
	}
	p := b.Preds[from].Block
	for l := m.f.Loops.Of[b.Index]; l != nil; l = l.Parent {
		switch {
		case !m.f.Loops.Contains(l, p):
			m.iters[l] = 0
		case b == l.Header:
			m.iters[l]++
		}
	}
}

func (m *machine) note(b *Block, in *Inst) {
	if m.at == nil {
		return
	}
	var key []string
	for l := m.f.Loops.Of[b.Index]; l != nil; l = l.Parent {
		key = append(key, fmt.Sprint(m.iters[l]))
	}
	m.at(b, in, strings.Join(key, " "))
}

// TestRandom compares what random functions do before and after the passes, and what
// they compute with what the analyses say.
func TestRandom(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 300
	}
	uniform := [Varies + 1]int{}
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := randomFunc(rng)
		before := Format(f, false)
		roundTrip(t, f)
		old, err := Read(before)
		if err != nil {
			t.Fatal(err)
		}
		if err := Analyse(f, true); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, before)
		}
		roundTrip(t, f)
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d: %s\n%s", seed, fmt.Sprintf(format, args...), Format(f, true))
		}
		checkTrees(f, fail)
		checkLoops(f, fail)
		checkLive(f, fail)
		runThreads(f, old, fail)
		for _, l := range f.Uniform.Val {
			uniform[l]++
		}
	}
	if slices.Contains(uniform[:2], 0) || uniform[Varies] == 0 {
		t.Errorf("levels seen: %v", uniform)
	}
}

// runThreads runs two blocks of four threads in both forms.
func runThreads(f, old *Func, fail func(string, ...any)) {
	type instance struct {
		v         ValID
		iteration string
		ctaid     uint64
	}
	seen := map[instance]uint64{}
	for id := range uint64(8) {
		m := &machine{f: f, tid: id % 4, ctaid: id / 4}
		m.at = func(b *Block, in *Inst, iteration string) {
			for _, d := range in.Defs {
				level := f.Uniform.Val[d]
				key := instance{d, iteration, m.ctaid}
				if level == SameGrid {
					key.ctaid = 0
				} else if level == Varies {
					continue
				}
				if was, ok := seen[key]; ok && was != m.vals[d] {
					fail("v%d is the same in the %s, but %d and %d in iteration %s", d, level, was, m.vals[d],
						iteration)
				}
				seen[key] = m.vals[d]
			}
		}
		ended := m.run(400)
		o := &machine{f: old, tid: m.tid, ctaid: m.ctaid}
		if oldEnded := o.run(400); ended != oldEnded || !slices.Equal(m.trace, o.trace) {
			fail("thread %d does %v (ended: %v), did %v (%v)", id, m.trace, ended, o.trace, oldEnded)
		}
	}
}

// checkTrees compares dominance with its definition: without a, b is out of reach.
func checkTrees(f *Func, fail func(string, ...any)) {
	for name, c := range map[string]struct {
		g *graph
		t *Tree
	}{"dominators": {forward(f), f.Dom}, "postdominators": {backward(f), f.PostDom}} {
		for a := range c.g.succ {
			seen := make([]bool, len(c.g.succ))
			if list := []int32{c.t.Root}; int32(a) != c.t.Root {
				for seen[c.t.Root] = true; len(list) > 0; {
					x := list[0]
					list = list[1:]
					for _, y := range c.g.succ[x] {
						if y != int32(a) && !seen[y] {
							seen[y] = true
							list = append(list, y)
						}
					}
				}
			}
			for b := range seen {
				if c.t.Dominates(a, b) == seen[b] {
					fail("%s: b%d over b%d: %v", name, a, b, c.t.Dominates(a, b))
				}
			}
		}
	}
}

// checkLoops wants strongly connected loops, of which the reducible ones have headers
// that dominate them, and that no cycle is outside of loops.
func checkLoops(f *Func, fail func(string, ...any)) {
	within := func(l *Loop, from *Block) map[*Block]bool { // what from reaches inside l
		seen := map[*Block]bool{}
		for list := []*Block{from}; len(list) > 0; {
			b := list[0]
			list = list[1:]
			for _, e := range b.Succs {
				if f.Loops.Contains(l, e.Block) && !seen[e.Block] {
					seen[e.Block] = true
					list = append(list, e.Block)
				}
			}
		}
		return seen
	}
	for _, l := range f.Loops.Loops {
		var all []*Block
		for _, b := range f.Blocks {
			if f.Loops.Contains(l, b) {
				all = append(all, b)
			}
		}
		entered := false
		for _, b := range all {
			if r := within(l, b); len(r) != len(all) {
				fail("loop b%d: from b%d only %d of %d blocks are reached", l.Header.Index, b.Index, len(r), len(all))
			}
			if !l.Irreducible && !f.Dom.Dominates(l.Header.Index, b.Index) {
				fail("loop b%d has b%d, which it does not dominate", l.Header.Index, b.Index)
			}
			for _, e := range b.Preds {
				entered = entered || b != l.Header && !f.Loops.Contains(l, e.Block)
			}
		}
		if entered != l.Irreducible {
			fail("loop b%d: irreducible %v", l.Header.Index, l.Irreducible)
		}
	}
	for _, b := range f.Blocks { // an arc back to a dominator closes a loop of that header
		for _, e := range b.Succs {
			if f.Dom.Dominates(e.Block.Index, b.Index) {
				l := f.Loops.Of[e.Block.Index]
				for l != nil && l.Header != e.Block {
					l = l.Parent
				}
				if l == nil || !f.Loops.Contains(l, b) || !slices.Contains(l.Latches, b) {
					fail("b%d to b%d closes no loop", b.Index, e.Block.Index)
				}
			}
		}
	}
}

// checkLive solves the data flow equations.
func checkLive(f *Func, fail func(string, ...any)) {
	in, out := make([]map[ValID]bool, len(f.Blocks)), make([]map[ValID]bool, len(f.Blocks))
	for i := range f.Blocks {
		in[i], out[i] = map[ValID]bool{}, map[ValID]bool{}
	}
	for changed := true; changed; {
		changed = false
		for _, b := range slices.Backward(f.Blocks) {
			i := b.Index
			n := len(in[i]) + len(out[i])
			for _, e := range b.Succs {
				maps.Copy(out[i], in[e.Block.Index])
				for _, phi := range e.Block.Phis() {
					if x := phi.Args[e.Index]; x.Kind == Value {
						out[i][x.Val] = true
					}
				}
			}
			live := maps.Clone(out[i])
			for _, inst := range slices.Backward(b.Insts) {
				for _, d := range inst.Defs {
					delete(live, d)
				}
				if inst.Op != Phi {
					inst.Uses(func(x *Operand) {
						if x.Kind == Value {
							live[x.Val] = true
						}
					})
				}
			}
			maps.Copy(in[i], live)
			changed = changed || len(in[i])+len(out[i]) != n
		}
	}
	for i := range f.Blocks {
		if want := slices.Sorted(maps.Keys(in[i])); !slices.Equal(want, f.Live.In[i]) {
			fail("live into b%d: %v, want %v", i, f.Live.In[i], want)
		}
		if want := slices.Sorted(maps.Keys(out[i])); !slices.Equal(want, f.Live.Out[i]) {
			fail("live out of b%d: %v, want %v", i, f.Live.Out[i], want)
		}
	}
}

// TestTrips compares trip counts with how often random loops go round.
func TestTrips(t *testing.T) {
	known, infinite := 0, 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		width := []uint16{8, 16, 32, 64}[rng.IntN(4)]
		near := func() int64 { // small numbers, and those near a limit of the type
			x := int64(rng.IntN(41)) - 20
			if rng.IntN(3) == 0 {
				x += int64(1) << (width - 1 - uint16(rng.IntN(2)))
			}
			return x
		}
		typ := Type{[]Kind{Signed, Unsigned}[rng.IntN(2)], width}
		step := fmt.Sprintf("add:%s v3, %d", typ, near())
		switch rng.IntN(4) {
		case 0:
			step = fmt.Sprintf("sub:%s v3, %d", typ, rng.IntN(5))
		case 1:
			step = fmt.Sprintf("%s:%s v3, %d", []string{"shr", "shl"}[rng.IntN(2)], typ, 1+rng.IntN(2))
		}
		rel := Rel(1 + rng.IntN(6))
		tested := []string{"v0", "v1"}[rng.IntN(2)]
		operands := fmt.Sprintf("%s, v4", tested)
		if rng.IntN(2) == 0 {
			operands = fmt.Sprintf("v4, %s", tested)
		}
		body := fmt.Sprintf("b1:\n v3 = mov:%s v0\n v1 = %s\n", typ, step)
		test := fmt.Sprintf("v2 = compare.%s:%s %s\n", rel, typ, operands)
		branch := []string{"@v2 branch -> b1 b2\n", "@!v2 branch -> b2 b1\n"}[rng.IntN(2)]
		text := fmt.Sprintf("kernel k\nregister v0:b%d a\nregister v1:b%d b\nregister v2:pred p\nregister v3:b%d "+
			"c\nregister v4:b%d d\n"+
			"b0:\n v0 = mov:%s %d\n v4 = mov:%s %d\n-> b1\n%s %s v0 = mov:%s v1\n %sb2:\n return\nend\n",
			width, width, width, width, typ, near(), typ, near(), body, test, typ, branch)
		f, err := Read([]byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if err := Analyse(f, true); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if len(f.Loops.Loops) != 1 {
			t.Fatalf("no loop\n%s", text)
		}
		rounds := uint64(0)
		m := &machine{f: f}
		m.at = func(b *Block, in *Inst, iteration string) { fmt.Sscan(iteration, &rounds) }
		ended := m.run(3000)
		trip := f.Loops.Loops[0].Trip
		if !ended {
			infinite++
			if trip != nil && trip.Known && trip.Count < rounds {
				t.Fatalf("seed %d: %s, but it goes on after %d\n%s", seed, trip, rounds, Format(f, true))
			}
			continue
		}
		if trip == nil || !trip.Known {
			continue // it passes the limits of its type
		}
		known++
		if !trip.Exact || trip.Count != rounds {
			t.Fatalf("seed %d: %s, but %d\n%s", seed, trip, rounds, Format(f, true))
		}
	}
	if known < 700 || infinite < 150 {
		t.Errorf("%d known, %d endless: too few to tell", known, infinite)
	}
}
