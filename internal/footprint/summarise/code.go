package summarise

import (
	"iter"
	"slices"

	"holdfast/internal/ir"
)

// code is a kernel as it is written: its control flow, and what can be said without values.
type code struct {
	f      *ir.Func
	params map[string]int // offsets in the parameter buffer
	loopOf map[*ir.Loop]int64
}

func newCode(f *ir.Func) *code {
	cd := &code{f: f, params: map[string]int{}, loopOf: map[*ir.Loop]int64{}}
	for _, v := range f.Vars {
		if v.Param && v.Space == ir.Param {
			cd.params[v.Name] = v.Off
		}
	}
	for i, l := range f.Loops.Loops {
		cd.loopOf[l] = int64(i)
	}
	return cd
}

// widthOf is the bits of a value.
func (cd *code) widthOf(v ir.ValID) uint8 {
	w := cd.f.Vals[v].Type.Width
	if cd.f.Vals[v].Type.Kind == ir.Pred {
		return 1
	}
	if w == 0 || w > 64 {
		return 64
	}
	return uint8(w)
}

func (cd *code) isPred(x ir.Operand) bool {
	return x.Kind == ir.Value && cd.f.Vals[x.Val].Type.Kind == ir.Pred
}

// madeBy is the instruction that makes a value.
func (cd *code) madeBy(x ir.Operand) *ir.Inst {
	if x.Kind != ir.Value || x.Mod != 0 || x.Part != "" {
		return nil
	}
	return cd.f.Vals[x.Val].Def
}

// sequence is the blocks in an order in which everything that may be executed before a block, in the
// first iteration of the loops around it, comes before it. What a loop holds comes before what
// follows the loop.
func (cd *code) sequence() []*ir.Block {
	done := make([]bool, len(cd.f.Blocks))
	var post []*ir.Block
	next := func(b *ir.Block) []*ir.Block {
		var list []*ir.Block
		for _, e := range b.Succs {
			if !cd.f.Dom.Dominates(e.Block.Index, b.Index) {
				list = append(list, e.Block)
				continue
			}
			l := cd.f.Loops.Of[e.Block.Index]
			for l != nil && l.Header != e.Block {
				l = l.Parent
			}
			if l == nil {
				continue
			}
			for _, x := range l.Exits {
				list = append(list, x.Block.Succs[x.Index].Block)
			}
		}
		return list
	}
	type frame struct {
		b    *ir.Block
		rest []*ir.Block
	}
	stack := []frame{{cd.f.Blocks[0], next(cd.f.Blocks[0])}}
	done[0] = true
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if len(top.rest) == 0 {
			post = append(post, top.b)
			stack = stack[:len(stack)-1]
			continue
		}
		b := top.rest[0]
		top.rest = top.rest[1:]
		if !done[b.Index] {
			done[b.Index] = true
			stack = append(stack, frame{b, next(b)})
		}
	}
	slices.Reverse(post)
	return post
}

// ordered yields the instructions in the order of sequence.
func (cd *code) ordered() iter.Seq2[position, *ir.Inst] {
	return func(yield func(position, *ir.Inst) bool) {
		order := 0
		for _, b := range cd.sequence() {
			for _, in := range b.Insts {
				if order++; !yield(position{b, order}, in) {
					return
				}
			}
		}
	}
}

// always reports whether a block is on every way through the kernel.
func (cd *code) always(b *ir.Block) bool { return cd.f.PostDom.Dominates(b.Index, 0) }

// behind reports whether one of some barriers lies on every way to an access.
func (cd *code) behind(bar []position, r *access) bool {
	return slices.ContainsFunc(bar, func(b position) bool {
		if b.block == r.block {
			return b.order < r.order
		}
		return cd.f.Dom.Dominates(b.block.Index, r.block.Index)
	})
}

// behindBarrier reports whether a barrier may have been passed where a block begins, or in it.
func (cd *code) behindBarrier(to *ir.Block) bool {
	seen := make([]bool, len(cd.f.Blocks))
	var before func(b *ir.Block) bool
	before = func(b *ir.Block) bool {
		if seen[b.Index] {
			return false
		}
		seen[b.Index] = true
		for _, p := range b.Preds {
			if slices.ContainsFunc(p.Block.Insts, func(in *ir.Inst) bool { return in.Op == ir.Barrier }) ||
				before(p.Block) {
				return true
			}
		}
		return false
	}
	return before(to)
}

func (cd *code) everyTime(l *ir.Loop, b *ir.Block) bool {
	for _, latch := range l.Latches {
		if !cd.f.Dom.Dominates(b.Index, latch.Index) {
			return false
		}
	}
	return true
}
