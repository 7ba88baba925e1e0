package ir

import "fmt"

// Check reports the first thing in f that is not as this package says: the arcs, where
// instructions may stand, what they refer to; in SSA form, that every value has one
// definition and that it dominates the uses; and that the results of passes fit.
func Check(f *Func) error {
	if len(f.Blocks) == 0 {
		return fmt.Errorf("no blocks")
	}
	if len(f.Blocks[0].Preds) != 0 {
		return fmt.Errorf("the entry b0 has predecessors")
	}
	for i, b := range f.Blocks {
		if b.Index != i {
			return fmt.Errorf("block %d has the index %d", i, b.Index)
		}
		if err := checkArcs(f, b); err != nil {
			return fmt.Errorf("b%d: %w", i, err)
		}
		for k, in := range b.Insts {
			if err := f.checkInst(b, k, in); err != nil {
				return fmt.Errorf("b%d: instruction %d, %s %s: %w", i, k, in.Op, in.Name, err)
			}
		}
	}
	if f.Dom != nil && len(f.Dom.Parent) != len(f.Blocks) || f.PostDom != nil &&
		len(f.PostDom.Parent) != len(f.Blocks)+1 {
		return fmt.Errorf("a dominator tree is not of these blocks")
	}
	if f.Loops != nil && len(f.Loops.Of) != len(f.Blocks) {
		return fmt.Errorf("the loop nest is not of these blocks")
	}
	if f.SSA {
		return f.checkSSA()
	}
	return nil
}

func checkArcs(f *Func, b *Block) error {
	for i, e := range b.Succs {
		if e.Block.Index >= len(f.Blocks) || f.Blocks[e.Block.Index] != e.Block {
			return fmt.Errorf("successor %d is no block of the function", i)
		}
		if e.Index >= len(e.Block.Preds) || e.Block.Preds[e.Index] != (Edge{b, i}) {
			return fmt.Errorf("arc to b%d is not in its predecessors", e.Block.Index)
		}
	}
	for i, e := range b.Preds {
		if e.Index >= len(e.Block.Succs) || e.Block.Succs[e.Index] != (Edge{b, i}) {
			return fmt.Errorf("arc from b%d is not in its successors", e.Block.Index)
		}
	}
	in := b.End()
	want := 1
	switch {
	case in == nil:
	case in.Op == Switch:
		if len(b.Succs) == 0 {
			return fmt.Errorf("switch without successors")
		}
		want = len(b.Succs)
	case in.Op == Branch && in.Guarded():
		want = 2
	case in.Op.Leaves() && !in.Guarded():
		want = 0
	}
	if len(b.Succs) != want {
		return fmt.Errorf("%d successors, want %d", len(b.Succs), want)
	}
	return nil
}

func (f *Func) checkInst(b *Block, k int, in *Inst) error {
	if in.Op >= numOps {
		return fmt.Errorf("no such operation")
	}
	if in.Op.Ends() && k != len(b.Insts)-1 {
		return fmt.Errorf("not the last of its block")
	}
	for _, d := range in.Defs {
		if d != None && (d < 0 || int(d) >= len(f.Vals)) {
			return fmt.Errorf("result v%d does not exist", d)
		}
	}
	var err error
	in.Uses(func(x *Operand) {
		if x.Kind == Value && (x.Val < 0 || int(x.Val) >= len(f.Vals)) {
			err = fmt.Errorf("operand v%d does not exist", x.Val)
		}
		if x.Kind == Special && x.Reg == nil {
			err = fmt.Errorf("a special register that is none")
		}
	})
	for _, m := range in.Mem {
		if m.Tile != nil && (m.Tile.Stride < 0 || m.Tile.Stride >= len(in.Args)) {
			err = fmt.Errorf("the distance between rows is argument %d of %d", m.Tile.Stride, len(in.Args))
		}
	}
	if err != nil {
		return err
	}
	if g := in.Guard; g.Kind == Value && f.Vals[g.Val].Type.Kind != Pred {
		return fmt.Errorf("the guard v%d is no predicate", g.Val)
	}
	if want := arity[in.Op]; want > 0 && len(in.Args) != want {
		return fmt.Errorf("%d arguments, want %d", len(in.Args), want)
	}
	if want := accesses[in.Op]; len(in.Mem) < want {
		return fmt.Errorf("%d memory accesses, want %d", len(in.Mem), want)
	}
	switch in.Op {
	case Compare, CompareWith:
		if in.Rel == NoRel || in.Rel > GE || len(in.Defs) == 0 || len(in.Defs) > 2 ||
			(in.Op == CompareWith) != (in.Logic != NoLogic) {
			return fmt.Errorf("a comparison has a relation, and one or two results")
		}
	case Phi:
		if !f.SSA {
			return fmt.Errorf("phi before SSA form")
		}
		if len(in.Args) != len(b.Preds) || len(in.Defs) != 1 || in.Defs[0] == None || in.Guarded() {
			return fmt.Errorf("%d arguments for %d predecessors", len(in.Args), len(b.Preds))
		}
		if k > 0 && b.Insts[k-1].Op != Phi {
			return fmt.Errorf("not at the beginning of its block")
		}
	case AddCarry, SubBorrow:
		if len(in.Args) < 2 || len(in.Args) > 3 || len(in.Defs) == 0 || len(in.Defs) > 2 {
			return fmt.Errorf("%d arguments and %d results of an operation with a carry", len(in.Args), len(in.Defs))
		}
	case Pack, Unpack, Select, Other, Compute:
	default:
		if in.Op >= Mov && in.Op <= FromGeneric && len(in.Defs) != 1 {
			return fmt.Errorf("%d results, want 1", len(in.Defs))
		}
	}
	return nil
}

// Arity is how many arguments an operation has; 0 if that is not fixed.
func Arity(op Op) int { return arity[op] }

// Accesses is how many accesses to memory an operation has at least.
func Accesses(op Op) int { return accesses[op] }

// arity is how many arguments an operation has, where that is fixed.
var arity = [numOps]int{Mov: 1, Unpack: 1, Add: 2, Sub: 2, Mul: 2, MulWide: 2, Mad: 3, MadWide: 3, Div: 2,
	Rem: 2, Min: 2, Max: 2,
	Neg: 1, Abs: 1, And: 2, Or: 2, Xor: 2, Not: 1, Shl: 2, Shr: 2, Convert: 1, Compare: 2, Select: 3, ToGeneric: 1,
	FromGeneric: 1, Switch: 1,
	CompareWith: 3, MulHigh: 2, FMA: 3, PopCount: 1, LeadingZeros: 1, Reverse: 1, Insert: 4, Extract: 3, Logic3: 4,
	FunnelLeft: 3, FunnelRight: 3, Permute: 3}

// accesses is how many accesses to memory an operation has at least.
var accesses = [numOps]int{Load: 1, Store: 1, Atomic: 1, Copy: 2}

// checkSSA wants one definition of every value, before its uses.
func (f *Func) checkSSA() error {
	place := make([]int, len(f.Vals)) // of the definition in its block, plus one
	for _, b := range f.Blocks {
		for k, in := range b.Insts {
			for _, d := range in.Defs {
				if d == None {
					continue
				}
				if place[d] != 0 {
					return fmt.Errorf("v%d is defined twice, again in b%d", d, b.Index)
				}
				place[d] = k + 1
				if v := f.Vals[d]; v.Def != in || v.Block != b {
					return fmt.Errorf("v%d is not recorded as defined in b%d", d, b.Index)
				}
			}
			if in.Op != Phi && in.Guarded() && len(in.Else) != len(in.Defs) || !in.Guarded() && len(in.Else) != 0 {
				return fmt.Errorf("b%d: %s %s: %d former values for %d results", b.Index, in.Op, in.Name, len(in.Else),
					len(in.Defs))
			}
		}
	}
	dom := f.Dom
	if dom == nil { // a function that was read from text
		dom = newTree(idoms(forward(f), 0), 0)
	}
	var err error
	for _, b := range f.Blocks {
		for k, in := range b.Insts {
			if in.Op == Phi {
				for i, x := range in.Args {
					if p := b.Preds[i].Block; x.Kind == Value &&
						(place[x.Val] == 0 || !dom.Dominates(f.Vals[x.Val].Block.Index, p.Index)) {
						return fmt.Errorf("b%d: v%d in a phi is not defined at the end of b%d", b.Index, x.Val, p.Index)
					}
				}
				continue
			}
			in.Uses(func(x *Operand) {
				if x.Kind != Value {
					return
				}
				d := f.Vals[x.Val].Block
				if place[x.Val] == 0 || d == b && place[x.Val] > k || d != b && !dom.Dominates(d.Index, b.Index) {
					err = fmt.Errorf("b%d: %s %s: v%d is not defined there", b.Index, in.Op, in.Name, x.Val)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
