package ir

// A Level says which threads surely have the same value, or take the same way.
type Level uint8

// The levels, strongest first.
const (
	SameGrid  Level = iota // all threads of the launch
	SameBlock              // all of a block
	SameWarp               // all of a warp
	Varies                 // nothing is known
)

// Uniformity says of every value which threads have the same one, of those that compute it
// in the same iterations of all loops around it; and of every block, whether such threads
// agree to execute it. It holds for what the threads compute, however the hardware schedules
// them. What is not known varies: plain loads, atomics, calls.
//
// After J. Rosemann et al., "An abstract interpretation for SPMD divergence on reducible
// control flow graphs", POPL 2021: a branch whose condition varies makes vary
//   - the phis where disjoint paths from it meet, before all its paths have met again;
//   - values of a loop that it makes threads leave in different iterations, if they are
//     read outside of that loop.
type Uniformity struct {
	Val     []Level
	Control []Level // by block
}

func uniformity(f *Func) error {
	u := &uniform{f: f, val: make([]Level, len(f.Vals)), floor: make([]Level, len(f.Vals)),
		control: make([]Level, len(f.Blocks)), branch: make([]Level, len(f.Blocks)),
		meets: make([]Level, len(f.Blocks)), influence: make([]*influence, len(f.Blocks)),
		label: make([]int32, len(f.Blocks)), local: map[string]bool{}}
	for _, v := range f.Vars {
		u.local[v.Name] = v.Space == Local || v.Space == Param && !(v.Param && f.Kernel)
	}
	u.index()
	if !u.solve() {
		// Too large: nothing is known.
		for i := range u.val {
			u.val[i] = Varies
		}
		for i := range u.control {
			u.control[i] = Varies
		}
	}
	f.Uniform = &Uniformity{Val: u.val, Control: u.control}
	return nil
}

// A uniform is the state of the solver. Levels only rise.
type uniform struct {
	f         *Func
	val       []Level
	floor     []Level // of values: what they are for reasons of control
	control   []Level
	branch    []Level // of the condition at the end of a block
	meets     []Level // of the phis of a block
	influence []*influence
	label     []int32
	local     map[string]bool

	readers [][]*Inst // of a value
	blockOf []*Block  // of an instruction, by id
	escapes []*Loop   // the outermost loop that a value is defined in and read outside of
	list    []*Inst
	queued  []bool
	work    int
}

// An influence is what a branch decides: where its paths meet, and the loops that threads
// may leave in different iterations because of it.
type influence struct {
	joins []int32
	loops []*Loop
}

func (u *uniform) index() {
	f := u.f
	u.readers = make([][]*Inst, len(f.Vals))
	u.escapes = make([]*Loop, len(f.Vals))
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			in.id = int32(len(u.blockOf))
			u.blockOf = append(u.blockOf, b)
			u.queued = append(u.queued, false)
			u.push(in)
			in.Uses(func(x *Operand) {
				if x.Kind != Value {
					return
				}
				if r := u.readers[x.Val]; len(r) == 0 || r[len(r)-1] != in {
					u.readers[x.Val] = append(r, in)
				}
				for l := f.Loops.Of[f.Vals[x.Val].Block.Index]; l != nil && !f.Loops.Contains(l, b); l = l.Parent {
					u.work++
					if e := u.escapes[x.Val]; e == nil || l.first < e.first {
						u.escapes[x.Val] = l
					}
				}
			})
		}
	}
}

func (u *uniform) push(in *Inst) {
	if !u.queued[in.id] {
		u.queued[in.id] = true
		u.list = append(u.list, in)
	}
}

// solve reports false if it gave up.
func (u *uniform) solve() bool {
	for len(u.list) > 0 {
		if u.work > maxWork {
			return false
		}
		in := u.list[len(u.list)-1]
		u.list = u.list[:len(u.list)-1]
		u.queued[in.id] = false
		b := u.blockOf[in.id]
		level := u.eval(in, b)
		for _, d := range in.Defs {
			if d != None {
				u.raise(d, max(level, u.floor[d]))
			}
		}
		if (in.Op.Ends() && in.Guarded() || in.Op == Switch) && level > u.branch[b.Index] {
			u.branch[b.Index] = level
			u.diverge(b, level)
			u.spread(b)
		}
	}
	return u.work <= maxWork
}

func (u *uniform) raise(v ValID, level Level) {
	if level <= u.val[v] {
		return
	}
	u.val[v] = level
	u.work += 1 + len(u.readers[v])
	for _, in := range u.readers[v] {
		u.push(in)
	}
}

func (u *uniform) eval(in *Inst, b *Block) Level {
	level := SameGrid
	in.Uses(func(x *Operand) {
		u.work++
		level = max(level, u.operand(x))
	})
	switch in.Op {
	case Phi:
		level = max(level, u.meets[b.Index])
	case Load:
		if in.Effect&Fixed == 0 {
			level = Varies
		}
	case Other, Atomic, Copy, Call:
		level = Varies
	case Collective, Barrier:
		switch {
		case in.Effect&BlockWide != 0:
			level = SameBlock
		case in.Effect&WarpWide != 0:
			level = SameWarp
		default:
			level = Varies
		}
		if in.Guarded() {
			level = Varies
		}
	}
	return level
}

func (u *uniform) operand(x *Operand) Level {
	switch x.Kind {
	case Value:
		return u.val[x.Val]
	case Special:
		return x.Reg.Same
	case Symbol:
		if u.local[x.Name] {
			return Varies
		}
	case Undef:
		return Varies
	}
	return SameGrid
}

// spread raises the control level of the blocks that depend on a branch at the end of b.
func (u *uniform) spread(b *Block) {
	list := []*Block{b}
	for len(list) > 0 {
		b := list[len(list)-1]
		list = list[:len(list)-1]
		level := max(u.branch[b.Index], u.control[b.Index])
		stop := u.f.PostDom.Parent[b.Index]
		for _, e := range b.Succs {
			for r := int32(e.Block.Index); r != stop && r != u.f.PostDom.Root; r = u.f.PostDom.Parent[r] {
				if u.work++; u.work > maxWork {
					return
				}
				if u.control[r] < level {
					u.control[r] = level
					list = append(list, u.f.Blocks[r])
				}
			}
		}
	}
}

// diverge applies the influence of a branch.
func (u *uniform) diverge(b *Block, level Level) {
	inf := u.influence[b.Index]
	if inf == nil {
		inf = u.follow(b)
		u.influence[b.Index] = inf
	}
	for _, j := range inf.joins {
		if level > u.meets[j] {
			u.meets[j] = level
			for _, phi := range u.f.Blocks[j].Phis() {
				u.push(phi)
			}
		}
	}
	nest := u.f.Loops
	for _, l := range inf.loops {
		for _, in := range nest.Loops[l.first : l.last+1] {
			for _, b := range in.Blocks {
				u.escape(b, l, level)
			}
		}
	}
}

// escape raises the values of b that are read outside of l.
func (u *uniform) escape(b *Block, l *Loop, level Level) {
	for _, in := range b.Insts {
		u.work++
		for _, d := range in.Defs {
			if d == None || u.floor[d] >= level {
				continue
			}
			if e := u.escapes[d]; e != nil && e.first <= l.first {
				u.floor[d] = level
				u.raise(d, level)
			}
		}
	}
}

// follow finds the influence of the branch at the end of a: it sends a label along each
// successor; where two different ones arrive is a join, which sends its own.
func (u *uniform) follow(a *Block) *influence {
	f := u.f
	n := len(f.Blocks)
	inf := &influence{}
	stop := f.PostDom.Parent[a.Index]
	for l := f.Loops.Of[a.Index]; l != nil; l = l.Parent {
		if stop == f.PostDom.Root || !f.Loops.Contains(l, f.Blocks[stop]) {
			inf.loops = append(inf.loops, l)
		}
	}
	joined := map[int32]bool{}
	join := func(b int32) {
		if !joined[b] {
			joined[b] = true
			inf.joins = append(inf.joins, b)
		}
	}
	// What an iteration of an irreducible loop is depends on where the loop was entered:
	// a branch that leads into one, or is in one, makes all its phis vary.
	irreducible := map[*Loop]bool{}
	upset := func(b *Block) {
		var outer *Loop
		for l := f.Loops.Of[b.Index]; l != nil; l = l.Parent {
			u.work++
			if l.Irreducible {
				outer = l
			}
		}
		if outer == nil || irreducible[outer] {
			return
		}
		irreducible[outer] = true
		inf.loops = append(inf.loops, outer)
		for _, l := range f.Loops.Loops[outer.first : outer.last+1] {
			for _, b := range l.Blocks {
				u.work++
				join(int32(b.Index))
			}
		}
	}
	upset(a)
	// Blocks in reverse postorder, but from a on and round: what a loop does before a comes
	// after what it does behind it. So a block is looked at after its predecessors.
	key := func(b int32) int32 { return int32((int(b) - a.Index - 1 + n) % n) }
	var queue heap
	var touched []int32
	arrive := func(b, label int32) {
		u.work++
		upset(f.Blocks[b])
		// Threads that go round a loop before they have met the others are an iteration ahead
		// of them; in its phis they meet those that came later.
		if l := f.Loops.Of[b]; l != nil && int32(l.Header.Index) == b && f.Loops.Contains(l, a) &&
			stop != f.PostDom.Root && f.Loops.Contains(l, f.Blocks[stop]) {
			join(b)
		}
		switch have := u.label[b]; {
		case have == 0:
			touched = append(touched, b)
			u.label[b] = label + 1
		case have == label+1 || have == b+1 && joined[b]:
			return
		default:
			u.label[b] = b + 1
			join(b)
		}
		if b != stop && b != int32(a.Index) { // paths may meet there, but end there
			queue.push(key(b))
		}
	}
	for _, e := range a.Succs {
		arrive(int32(e.Block.Index), int32(e.Block.Index))
	}
	for len(queue) > 0 && u.work <= maxWork {
		b := int32((int(queue.pop()) + a.Index + 1) % n)
		for _, e := range f.Blocks[b].Succs {
			arrive(int32(e.Block.Index), u.label[b]-1)
		}
	}
	for _, b := range touched {
		u.label[b] = 0
	}
	return inf
}

// A heap is a binary heap, the smallest first.
type heap []int32

func (h *heap) push(x int32) {
	*h = append(*h, x)
	s := *h
	for i := len(s) - 1; i > 0; {
		p := (i - 1) / 2
		if s[p] <= s[i] {
			break
		}
		s[p], s[i] = s[i], s[p]
		i = p
	}
}

func (h *heap) pop() int32 {
	s := *h
	top := s[0]
	n := len(s) - 1
	s[0] = s[n]
	s = s[:n]
	*h = s
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && s[c+1] < s[c] {
			c++
		}
		if s[i] <= s[c] {
			break
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
	return top
}
