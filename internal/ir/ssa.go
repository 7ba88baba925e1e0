package ir

import (
	"fmt"
	"slices"
)

// maxWork bounds the steps of a pass whose result can be larger than the function: sets of
// blocks or values for every block. No compiled kernel comes near.
const maxWork = 1 << 26

// A TooLargeError says that a pass gave up on a function.
type TooLargeError struct {
	Func, Pass string
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("function %s: %s needs more than %d steps", e.Func, e.Pass, maxWork)
}

// ssa gives every register write a value of its own, with phi instructions where values
// meet. A guarded write keeps the former value for the threads whose guard is false: that
// value is in Else.
func ssa(f *Func) error {
	phis, err := placePhis(f)
	if err != nil {
		return err
	}
	rename(f, phis)
	f.SSA = true
	return nil
}

// A written is what placePhis knows of a register.
type written struct {
	blocks []int32 // that write it
	across bool    // read in a block that has not written it before
	once   bool    // one instruction writes it, without a guard
}

// placePhis lists for every block the registers that need a phi there: those that are live
// across blocks, at the iterated dominance frontier of their writes. A register that is
// written once, before every use, needs none.
func placePhis(f *Func) ([][]ValID, error) {
	regs := writes(f)
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			in.Uses(func(x *Operand) {
				if x.Kind == Value {
					if w := &regs[x.Val]; w.once && !f.Dom.Dominates(int(w.blocks[0]), b.Index) {
						w.once = false
					}
				}
			})
		}
	}
	p := newFrontier(f)
	phis := make([][]ValID, len(f.Blocks))
	for r := range regs {
		if w := &regs[r]; w.across && !w.once {
			for _, j := range p.iterate(w.blocks) {
				p.work += len(f.Blocks[j].Preds)
				phis[j] = append(phis[j], ValID(r))
			}
		}
		if p.work > maxWork {
			return nil, &TooLargeError{f.Name, "ssa"}
		}
	}
	return phis, nil
}

// writes finds which blocks write a register. A register that its own block reads before it
// writes it is not written once in the sense of placePhis.
func writes(f *Func) []written {
	regs := make([]written, len(f.Vals))
	last := make([]int32, len(f.Vals)) // the last block that wrote it, plus one
	for _, b := range f.Blocks {
		i := int32(b.Index)
		early := func(x *Operand) {
			if x.Kind == Value && last[x.Val] != i+1 {
				regs[x.Val].across = true
			}
		}
		for _, in := range b.Insts {
			in.Uses(early)
			for _, d := range in.Defs {
				if d == None {
					continue
				}
				w := &regs[d]
				if last[d] != i+1 {
					w.across = w.across || in.Guarded()
					last[d] = i + 1
					w.blocks = append(w.blocks, i)
					w.once = len(w.blocks) == 1 && !in.Guarded()
				} else {
					w.once = false
				}
			}
		}
	}
	for _, b := range f.Blocks { // a read above the write, in the block of the write
		i := int32(b.Index)
		for _, in := range b.Insts {
			in.Uses(func(x *Operand) {
				if x.Kind == Value && last[x.Val] != -i-1 && regs[x.Val].once && regs[x.Val].blocks[0] == i {
					regs[x.Val].once = false
				}
			})
			for _, d := range in.Defs {
				if d != None {
					last[d] = -i - 1
				}
			}
		}
	}
	return regs
}

// A frontier computes iterated dominance frontiers. V. Sreedhar and G. Gao, "A linear time
// algorithm for placing φ-nodes", POPL 1995: subtrees of the dominator tree from the
// deepest block up, each block once.
type frontier struct {
	f            *Func
	rank         []int32 // blocks by level, the deepest first
	block        []int32 // by rank
	seen, placed []int32 // the last run that saw a block, or placed a phi there
	run          int32
	work         int
}

func newFrontier(f *Func) *frontier {
	n := len(f.Blocks)
	p := &frontier{f: f, rank: make([]int32, n), block: make([]int32, n), seen: make([]int32, n),
		placed: make([]int32, n)}
	for i := range p.block {
		p.block[i] = int32(i)
	}
	slices.SortStableFunc(p.block, func(a, b int32) int { return int(f.Dom.Level[b]) - int(f.Dom.Level[a]) })
	for r, b := range p.block {
		p.rank[b] = int32(r)
	}
	return p
}

// iterate gives the iterated frontier of a set of blocks, in ascending order.
func (p *frontier) iterate(blocks []int32) []int32 {
	p.run++
	dom := p.f.Dom
	var queue heap
	var out, stack []int32
	for _, b := range blocks {
		queue.push(p.rank[b])
	}
	for len(queue) > 0 && p.work <= maxWork {
		root := p.block[queue.pop()]
		if p.seen[root] == p.run {
			continue
		}
		p.seen[root] = p.run
		stack = append(stack[:0], root)
		for len(stack) > 0 {
			x := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, e := range p.f.Blocks[x].Succs {
				p.work++
				y := int32(e.Block.Index)
				if dom.Parent[y] == x && y != dom.Root || dom.Level[y] > dom.Level[root] || p.placed[y] == p.run {
					continue
				}
				p.placed[y] = p.run
				out = append(out, y)
				queue.push(p.rank[y])
			}
			for c := dom.child[x]; c >= 0; c = dom.sibling[c] {
				p.work++
				if p.seen[c] != p.run {
					p.seen[c] = p.run
					stack = append(stack, c)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// rename walks the dominator tree and replaces registers by values.
func rename(f *Func, phis [][]ValID) {
	regs := f.Vals
	f.Vals = nil
	now := make([]Operand, len(regs)) // what a register holds
	for i := range now {
		now[i] = Operand{Kind: Undef}
	}
	type undo struct {
		reg ValID
		was Operand
	}
	var log []undo
	write := func(r ValID, in *Inst, b *Block) ValID {
		v := ValID(len(f.Vals))
		f.Vals = append(f.Vals, Val{Name: regs[r].Name, Type: regs[r].Type, Def: in, Block: b})
		log = append(log, undo{r, now[r]})
		now[r] = Of(v)
		return v
	}
	regOf := map[*Inst]ValID{}
	for j, rs := range phis {
		if len(rs) == 0 {
			continue
		}
		b := f.Blocks[j]
		list := make([]*Inst, 0, len(rs)+len(b.Insts))
		for _, r := range rs {
			in := &Inst{Op: Phi, Type: regs[r].Type, Defs: []ValID{None}, Args: make([]Operand, len(b.Preds))}
			regOf[in] = r
			list = append(list, in)
		}
		b.Insts = append(list, b.Insts...)
	}
	// Preorder; a node's writes are undone when the walk leaves its subtree.
	type open struct {
		node int32
		mark int
	}
	var stack []open
	for _, i := range f.Dom.Order {
		for len(stack) > 0 && stack[len(stack)-1].node != f.Dom.Parent[i] {
			top := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for len(log) > top.mark {
				u := log[len(log)-1]
				log = log[:len(log)-1]
				now[u.reg] = u.was
			}
		}
		stack = append(stack, open{i, len(log)})
		b := f.Blocks[i]
		for _, in := range b.Insts {
			if in.Op == Phi {
				in.Defs[0] = write(regOf[in], in, b)
				continue
			}
			in.Uses(func(x *Operand) {
				if x.Kind == Value {
					was := now[x.Val]
					was.Mod, was.Part = x.Mod, x.Part
					*x = was
				}
			})
			if in.Guarded() && len(in.Defs) > 0 {
				in.Else = make([]Operand, len(in.Defs))
				for k, d := range in.Defs { // before any of them is written: one may be there twice
					if d != None {
						in.Else[k] = now[d]
					}
				}
			}
			for k, d := range in.Defs {
				if d != None {
					in.Defs[k] = write(d, in, b)
				}
			}
		}
		for _, e := range b.Succs {
			for _, in := range e.Block.Phis() {
				if r, ours := regOf[in]; ours {
					in.Args[e.Index] = now[r]
				}
			}
		}
	}
}

// prune removes phis that no other instruction needs, and numbers the values in the order
// of the program.
func prune(f *Func) error {
	needed := make([]bool, len(f.Vals))
	var list []ValID
	need := func(x *Operand) {
		if x.Kind == Value && !needed[x.Val] {
			needed[x.Val] = true
			list = append(list, x.Val)
		}
	}
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			if in.Op != Phi {
				in.Uses(need)
			}
		}
	}
	for len(list) > 0 {
		v := list[len(list)-1]
		list = list[:len(list)-1]
		if in := f.Vals[v].Def; in.Op == Phi {
			in.Uses(need)
		}
	}
	number := make([]ValID, len(f.Vals))
	vals := make([]Val, 0, len(f.Vals))
	for _, b := range f.Blocks {
		kept := b.Insts[:0]
		for _, in := range b.Insts {
			if in.Op == Phi && !needed[in.Defs[0]] {
				continue
			}
			kept = append(kept, in)
			for k, d := range in.Defs {
				if d != None {
					number[d] = ValID(len(vals))
					in.Defs[k] = number[d]
					vals = append(vals, f.Vals[d])
				}
			}
		}
		clear(b.Insts[len(kept):])
		b.Insts = kept
	}
	f.Vals = vals
	for _, b := range f.Blocks {
		for _, in := range b.Insts {
			in.Uses(func(x *Operand) {
				if x.Kind == Value {
					x.Val = number[x.Val]
				}
			})
		}
	}
	return nil
}
