package footprint

import "slices"

// A view is what of a path a thread that is followed can show: the accesses that it may come to, whose addresses may be computed, and the
// operations that these and the branches on the way need. An operand is 0 (none), an operation, or a register of the program (^register): most of
// what a thread needs is uniform.
type view struct {
	blind  bool // no thread shows that it reads something and writes it: there is no witness in any launch
	ops    []instr
	blocks []vblock
	items  []vitem
}

type vblock struct {
	pblock
	unclear bool // its condition is never computed
}

type vitem struct {
	pitem
	base int32 // that it lies at (bases.go)
}

// A viewer makes a view.
type viewer struct {
	*view
	p     *program
	way   *path
	fixed []int32 // of operations: the register that holds the same; -1: none
	clear []bool  // operations that may be computed
	bases []int32 // of operations
	at    []int32 // operands of the view, by operation; 0: not there
}

// look makes the view of a path: of what may be seen, or of all. bases are those of the path's operations; nil: they have none.
func (b *planner) look(way *path, bases []int32, part bool) {
	v := &viewer{view: &b.view, p: b.p, way: way, bases: bases, at: make([]int32, len(way.ops))}
	v.blind = true
	if len(way.blocks) == 0 || len(way.ops) > maxOps {
		return
	}
	v.same()
	v.clear = slices.Repeat([]bool{true}, len(way.ops))
	if part {
		v.computable()
	}
	blocks := make([]vblock, len(way.blocks))
	reads, writes := false, false
	v.ops = append(v.ops, instr{})
	for i, ok := range v.reachable() {
		x := vblock{pblock: way.blocks[i]}
		x.i0, x.i1, x.cond = int32(len(v.items)), int32(len(v.items)), 0
		if c := way.blocks[i].cond; ok && c != 0 {
			if x.unclear = c < 0 || !v.clear[c]; !x.unclear {
				x.cond = v.operand(c)
			}
		}
		for k := way.blocks[i].i0; ok && k < way.blocks[i].i1; k++ {
			it := way.items[k]
			if it.hidden || it.bytes == 0 || !v.clear[it.addr] || it.guard != 0 && !v.clear[it.guard] {
				continue
			}
			reads = reads || it.kind == isRead || it.kind == isUpdate
			writes = writes || it.kind != isRead
			y := vitem{pitem: it}
			if y.addr, y.guard = v.operand(it.addr), v.operand(it.guard); bases != nil {
				y.base = bases[it.addr]
			}
			v.items = append(v.items, y)
			x.i1++
		}
		blocks[i] = x
	}
	if v.blind = part && !(reads && writes); v.blind {
		v.ops, v.items = nil, nil
		return
	}
	v.blocks = blocks
}

// operand is an operation of the path in the view.
func (v *viewer) operand(i int32) int32 {
	if i == 0 || v.at[i] != 0 {
		return v.at[i]
	}
	if r := v.fixed[i]; r >= 0 {
		v.at[i] = ^r
		return ^r
	}
	in := v.way.ops[i]
	in.a, in.b, in.c = v.operand(in.a), v.operand(in.b), v.operand(in.c)
	v.at[i] = int32(len(v.ops))
	v.ops = append(v.ops, in)
	return v.at[i]
}

// same finds the operations that are registers of the program.
func (v *viewer) same() {
	at := map[instr]int32{}
	for i, in := range v.p.ops {
		at[in] = int32(i)
	}
	for i, in := range v.way.ops {
		r := int32(-1)
		if i > 0 {
			all := true
			for _, a := range [...]*int32{&in.a, &in.b, &in.c} {
				if *a != 0 {
					*a = v.fixed[*a]
					all = all && *a >= 0
				}
			}
			if x, ok := at[in]; ok && all {
				r = x
			}
		}
		v.fixed = append(v.fixed, r)
	}
}

// computable finds the operations that valueOf may have a value for.
func (v *viewer) computable() {
	for i := range v.way.ops {
		in := &v.way.ops[i]
		a, b, c := v.clear[in.a], v.clear[in.b], v.clear[in.c]
		ok := false
		switch in.op {
		case opNone, opUnknown, opPhi, opSymbol, opCurve, opBetween:
		case opConst, opParam, opGeometry, opThread, opCounter:
			ok = true
		case opHalving, opDrift:
			ok = a
		case opSelect:
			ok = a && (b || c)
		default:
			ok = a && (b || in.b == 0)
			if in.w == 1 && (in.op == opAnd || in.op == opOr) {
				ok = a || b
			}
		}
		v.clear[i] = i > 0 && (ok || v.fixed[i] >= 0)
	}
}

// reachable finds the blocks that a thread may be followed to.
func (v *viewer) reachable() []bool {
	ok := make([]bool, len(v.way.blocks))
	for todo := []int32{0}; len(todo) > 0; {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if b < 0 || ok[b] {
			continue
		}
		ok[b] = true
		x := &v.way.blocks[b]
		todo = append(todo, x.after, x.leave)
		if x.cond == 0 || x.cond > 0 && v.clear[x.cond] {
			todo = append(todo, x.s0, x.s1)
		}
	}
	return ok
}
