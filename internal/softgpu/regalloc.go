package softgpu

import (
	"cmp"
	"math/bits"
	"slices"

	"holdfast/internal/isa"
	"holdfast/ptx"
)

// Compilers emit PTX in single assignment form, with thousands of virtual
// registers of which few live at once. Registers whose live intervals do not
// overlap share a place, which keeps a warp's file in the cache. Lanes may be
// anywhere in the code: a place holds one register for one lane and another for the next,
// and since writes touch active lanes only, they do not meet.

// A regKey names a virtual register: a variable, or a member of a set.
type regKey struct {
	v     *ptx.Var
	index int
}

// A node is one instruction in source order.
type node struct {
	uses, defs []int // register numbers
	partial    bool  // guarded: the definition keeps the old value in some lanes
	next       []int // successors other than the following one
	stops      bool  // does not fall through
}

// An interval is a register with the first and last instruction at which it lives.
type interval struct {
	reg        int
	start, end int
}

// An allocator numbers the registers of one function and finds their intervals.
type allocator struct {
	mod    *Module
	scope  *allocScope
	nums   map[regKey]int
	keys   []regKey
	nodes  []node
	fixups []labelUse
	ok     bool
}

type allocScope struct {
	parent  *allocScope
	vars    map[string]*ptx.Var
	labels  map[string]*int
	targets map[string][]string
}

type labelUse struct {
	node  int
	name  string
	scope *allocScope
}

// planRegisters gives each register of f's body a slot number of its kind;
// slots of one kind count from 0. It is nil where f has something that will
// be refused anyway.
func (m *Module) planRegisters(f *ptx.Func) map[regKey]int {
	a := &allocator{mod: m, nums: map[regKey]int{}, ok: true}
	a.block(f.Body)
	for _, fx := range a.fixups {
		at := findLabel(fx.scope, fx.name)
		if at == nil || *at < 0 {
			return nil
		}
		a.nodes[fx.node].next = append(a.nodes[fx.node].next, *at)
	}
	if !a.ok {
		return nil
	}
	return a.assign()
}

func findLabel(s *allocScope, name string) *int {
	for ; s != nil; s = s.parent {
		if at := s.labels[name]; at != nil {
			return at
		}
	}
	return nil
}

func (a *allocator) block(b *ptx.Block) {
	s := &allocScope{parent: a.scope, vars: map[string]*ptx.Var{}, labels: map[string]*int{},
		targets: map[string][]string{}}
	for _, st := range b.Stmts {
		switch st := st.(type) {
		case *ptx.Label:
			at := -1
			s.labels[st.Name] = &at
		case *ptx.BranchTargets:
			s.targets[st.Name] = st.Labels
		}
	}
	a.scope = s
	for _, st := range b.Stmts {
		switch st := st.(type) {
		case *ptx.Label:
			*s.labels[st.Name] = len(a.nodes)
		case *ptx.Block:
			a.block(st)
		case *ptx.VarStmt:
			for _, v := range st.Vars {
				if v.Count == 0 || v.Space == ptx.SpaceReg {
					s.vars[v.Name] = v
				}
			}
		case *ptx.Inst:
			a.inst(st)
		}
	}
	a.scope = s.parent
}

// lookup finds the register that a name stands for; ok is false for
// everything that is not planned.
func (a *allocator) lookup(name string) (int, bool) {
	for s := a.scope; s != nil; s = s.parent {
		if v := s.vars[name]; v != nil {
			if v.Space != ptx.SpaceReg || v.Vec > 1 {
				return 0, false
			}
			if v.Count == 0 {
				return a.number(regKey{v, -1}), true
			}
		}
		if prefix, n, ok := setMember(name, func(p string) int {
			if v := s.vars[p]; v != nil && v.Space == ptx.SpaceReg {
				return v.Count
			}
			return 0
		}); ok {
			if s.vars[prefix].Vec > 1 {
				return 0, false
			}
			return a.number(regKey{s.vars[prefix], n}), true
		}
	}
	return 0, false
}

func (a *allocator) number(k regKey) int {
	n, ok := a.nums[k]
	if !ok {
		n = len(a.keys)
		a.nums[k] = n
		a.keys = append(a.keys, k)
	}
	return n
}

func (a *allocator) inst(st *ptx.Inst) {
	in, err := isa.Decode(st)
	if err != nil {
		a.ok = false
		return
	}
	at := len(a.nodes)
	var n node
	if g := st.Guard; g != nil {
		n.partial = true
		a.operand(&n, &ptx.Ref{Name: g.Reg}, false)
	}
	for _, arg := range in.Args {
		if arg.Spec.Role == isa.InOut {
			a.operand(&n, arg.X, false)
		}
		a.operand(&n, arg.X, arg.Spec.Role == isa.Dst || arg.Spec.Role == isa.InOut)
	}
	if c := st.Call; c != nil {
		a.operand(&n, c.Callee, false)
		for _, x := range c.Params {
			a.operand(&n, x, false)
		}
		for _, x := range c.Ret {
			a.operand(&n, x, true)
		}
	}
	switch in.Op {
	case "bra":
		if r, ok := in.Args[0].X.(*ptx.Ref); ok {
			a.fixups = append(a.fixups, labelUse{at, r.Name, a.scope})
		}
		n.stops = st.Guard == nil
	case "brx.idx":
		if r, ok := in.Args[1].X.(*ptx.Ref); ok {
			for s := a.scope; s != nil; s = s.parent {
				if list, ok := s.targets[r.Name]; ok {
					for _, name := range list {
						a.fixups = append(a.fixups, labelUse{at, name, s})
					}
					break
				}
			}
		}
		n.stops = st.Guard == nil
	case "ret", "exit":
		n.stops = st.Guard == nil
	}
	a.nodes = append(a.nodes, n)
}

func (a *allocator) operand(n *node, x ptx.Operand, def bool) {
	switch x := x.(type) {
	case *ptx.Ref:
		if r, ok := a.lookup(x.Name); ok {
			if def {
				n.defs = append(n.defs, r)
			} else {
				n.uses = append(n.uses, r)
			}
		}
	case *ptx.Vector:
		for _, e := range x.Elems {
			a.operand(n, e, def)
		}
	case *ptx.Pair:
		a.operand(n, x.A, def)
		a.operand(n, x.B, def)
	case *ptx.Neg:
		a.operand(n, x.X, def)
	case *ptx.Addr:
		a.operand(n, x.Base, false)
		for _, c := range x.Coords {
			a.operand(n, c, false)
		}
	}
}

type bitset []uint64

func (b bitset) set(i int)      { b[i>>6] |= 1 << (i & 63) }
func (b bitset) has(i int) bool { return b[i>>6]>>(i&63)&1 != 0 }

// maxPlan bounds the work: blocks times registers.
const maxPlan = 1 << 31

// assign computes liveness over basic blocks, intervals and slots.
func (a *allocator) assign() map[regKey]int {
	if len(a.nodes) == 0 {
		return nil
	}
	first, blockOf := a.blocks()
	nb := len(first)
	words := (len(a.keys) + 63) / 64
	if nb*words*64 > maxPlan {
		return nil
	}
	pool := make([]uint64, 4*nb*words)
	take := func() bitset {
		b := pool[:words:words]
		pool = pool[words:]
		return b
	}
	use, def, in, out := make([]bitset, nb), make([]bitset, nb), make([]bitset, nb), make([]bitset, nb)
	for b := range nb {
		use[b], def[b], in[b], out[b] = take(), take(), take(), take()
		for i := first[b]; i < a.blockEnd(first, b); i++ {
			n := &a.nodes[i]
			for _, r := range n.uses {
				if !def[b].has(r) {
					use[b].set(r)
				}
			}
			for _, r := range n.defs {
				if n.partial && !def[b].has(r) {
					use[b].set(r)
				} else {
					def[b].set(r)
				}
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for b := nb - 1; b >= 0; b-- {
			last := a.blockEnd(first, b) - 1
			n := &a.nodes[last]
			merge := func(s int) {
				for w := range words {
					out[b][w] |= in[s][w]
				}
			}
			if !n.stops && last+1 < len(a.nodes) {
				merge(blockOf[last+1])
			}
			for _, t := range n.next {
				if t < len(a.nodes) {
					merge(blockOf[t])
				}
			}
			for w := range words {
				if x := use[b][w] | out[b][w]&^def[b][w]; x != in[b][w] {
					in[b][w] = x
					changed = true
				}
			}
		}
	}
	ivs := make([]interval, len(a.keys))
	for r := range ivs {
		ivs[r] = interval{reg: r, start: len(a.nodes), end: -1}
	}
	touch := func(r, at int) {
		ivs[r].start, ivs[r].end = min(ivs[r].start, at), max(ivs[r].end, at)
	}
	each := func(s bitset, at int) {
		for w, x := range s {
			for ; x != 0; x &= x - 1 {
				touch(w<<6+bits.TrailingZeros64(x), at)
			}
		}
	}
	for b := range nb {
		each(in[b], first[b])
		each(out[b], a.blockEnd(first, b)-1)
		for i := first[b]; i < a.blockEnd(first, b); i++ {
			for _, r := range a.nodes[i].uses {
				touch(r, i)
			}
			for _, r := range a.nodes[i].defs {
				touch(r, i)
			}
		}
	}
	return a.scan(ivs)
}

// blocks finds where basic blocks begin, and the block of each instruction.
func (a *allocator) blocks() (first []int, blockOf []int) {
	leader := make([]bool, len(a.nodes)+1)
	leader[0] = true
	for i := range a.nodes {
		n := &a.nodes[i]
		if n.stops || len(n.next) > 0 {
			leader[i+1] = true
		}
		for _, t := range n.next {
			leader[t] = true
		}
	}
	blockOf = make([]int, len(a.nodes))
	for i := range a.nodes {
		if leader[i] {
			first = append(first, i)
		}
		blockOf[i] = len(first) - 1
	}
	return first, blockOf
}

func (a *allocator) blockEnd(first []int, b int) int {
	if b+1 < len(first) {
		return first[b+1]
	}
	return len(a.nodes)
}

// scan gives slots to intervals in the order of their starts. An interval that ends
// at an instruction keeps its slot for that instruction: a result never shares
// a place with an operand, since an instruction may become several.
func (a *allocator) scan(ivs []interval) map[regKey]int {
	slices.SortFunc(ivs, func(x, y interval) int {
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.reg, y.reg))
	})
	plan := make(map[regKey]int, len(ivs))
	var free [slotParam][]int
	var count [slotParam]int
	active := make([][]interval, slotParam) // by kind, sorted by end
	for _, iv := range ivs {
		key := a.keys[iv.reg]
		k := slotFor(key.v.Type)
		for len(active[k]) > 0 && active[k][0].end < iv.start {
			free[k] = append(free[k], plan[a.keys[active[k][0].reg]])
			active[k] = active[k][1:]
		}
		var slot int
		if n := len(free[k]); n > 0 {
			slot, free[k] = free[k][n-1], free[k][:n-1]
		} else {
			slot = count[k]
			count[k]++
		}
		plan[key] = slot
		at, _ := slices.BinarySearchFunc(active[k], iv.end,
			func(x interval, end int) int { return cmp.Compare(x.end, end) })
		active[k] = slices.Insert(active[k], at, iv)
	}
	return plan
}
