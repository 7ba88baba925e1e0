package footprint

import (
	"slices"

	"holdfast/internal/footprint/form"
)

// A view is what of a path a thread that is followed can show: the accesses that it may come to, whose addresses may be
// computed, and the operations that these and the branches on the way need. An operand is 0 (none), an operation, or a
// register of the program (^register): most of what a thread needs is uniform.
type view struct {
	blind  bool // no thread shows that it reads something and writes it: there is no witness in any launch
	ops    []Instr
	blocks []vblock
	items  []vitem
}

type vblock struct {
	PathBlock
	unclear bool // its condition is never computed
}

type vitem struct {
	PathItem
	base int32 // that it lies at (bases.go)
}

// A viewer makes a view.
type viewer struct {
	*view
	p     *Program
	way   *Path
	fixed []int32 // of operations: the register that holds the same; -1: none
	clear []bool  // operations that may be computed
	bases []int32 // of operations
	at    []int32 // operands of the view, by operation; 0: not there
}

// look makes the view of a path: of what may be seen, or of all. bases are those of the path's operations; nil: they
// have none.
func (b *planner) look(way *Path, bases []int32, part bool) {
	v := &viewer{view: &b.view, p: b.p, way: way, bases: bases, at: make([]int32, len(way.Ops))}
	v.blind = true
	if len(way.Blocks) == 0 || len(way.Ops) > maxOps {
		return
	}
	v.same()
	v.clear = slices.Repeat([]bool{true}, len(way.Ops))
	if part {
		v.computable()
	}
	blocks := make([]vblock, len(way.Blocks))
	reads, writes := false, false
	v.ops = append(v.ops, Instr{})
	for i, ok := range v.reachable() {
		x := vblock{PathBlock: way.Blocks[i]}
		x.I0, x.I1, x.Cond = int32(len(v.items)), int32(len(v.items)), 0
		if c := way.Blocks[i].Cond; ok && c != 0 {
			if x.unclear = c < 0 || !v.clear[c]; !x.unclear {
				x.Cond = v.operand(c)
			}
		}
		for k := way.Blocks[i].I0; ok && k < way.Blocks[i].I1; k++ {
			it := way.Items[k]
			if it.Hidden || it.Bytes == 0 || !v.clear[it.Addr] || it.Guard != 0 && !v.clear[it.Guard] {
				continue
			}
			reads = reads || it.Kind == IsRead || it.Kind == IsUpdate
			writes = writes || it.Kind != IsRead
			y := vitem{PathItem: it}
			if y.Addr, y.Guard = v.operand(it.Addr), v.operand(it.Guard); bases != nil {
				y.base = bases[it.Addr]
			}
			v.items = append(v.items, y)
			x.I1++
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
	in := v.way.Ops[i]
	in.A, in.B, in.C = v.operand(in.A), v.operand(in.B), v.operand(in.C)
	v.at[i] = int32(len(v.ops))
	v.ops = append(v.ops, in)
	return v.at[i]
}

// same finds the operations that are registers of the program.
func (v *viewer) same() {
	at := map[Instr]int32{}
	for i, in := range v.p.Ops {
		at[in] = int32(i)
	}
	for i, in := range v.way.Ops {
		r := int32(-1)
		if i > 0 {
			all := true
			for _, a := range [...]*int32{&in.A, &in.B, &in.C} {
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
	for i := range v.way.Ops {
		in := &v.way.Ops[i]
		a, b, c := v.clear[in.A], v.clear[in.B], v.clear[in.C]
		ok := false
		switch in.Op {
		case form.OpNone, form.OpUnknown, form.OpPhi, form.OpSymbol, form.OpCurve, form.OpBetween:
		case form.OpConst, form.OpParam, form.OpGeometry, form.OpThread, form.OpCounter:
			ok = true
		case form.OpHalving, form.OpDrift:
			ok = a
		case form.OpSelect:
			ok = a && (b || c)
		default:
			ok = a && (b || in.B == 0)
			if in.W == 1 && (in.Op == form.OpAnd || in.Op == form.OpOr) {
				ok = a || b
			}
		}
		v.clear[i] = i > 0 && (ok || v.fixed[i] >= 0)
	}
}

// reachable finds the blocks that a thread may be followed to.
func (v *viewer) reachable() []bool {
	ok := make([]bool, len(v.way.Blocks))
	for todo := []int32{0}; len(todo) > 0; {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if b < 0 || ok[b] {
			continue
		}
		ok[b] = true
		x := &v.way.Blocks[b]
		todo = append(todo, x.After, x.Leave)
		if x.Cond == 0 || x.Cond > 0 && v.clear[x.Cond] {
			todo = append(todo, x.S0, x.S1)
		}
	}
	return ok
}
