package ir

import "slices"

// A Loop is a strongly connected region with the block through which it is entered.
type Loop struct {
	Header      *Block
	Parent      *Loop // nil = outermost
	Children    []*Loop
	Depth       int      // 1 = outermost
	Blocks      []*Block // of this loop, those of its children excepted; Header first
	Latches     []*Block // where it goes back to Header
	Exits       []Edge   // the arcs that leave it: the inner block, and which successor
	Irreducible bool     // it can be entered elsewhere as well

	Inductions []Induction // by the pass inductions
	Trip       *Trip       // nil = not known

	first, last int // in preorder of the nest: its own number, the largest below it
}

// A Nest is the loops of a function.
type Nest struct {
	Loops []*Loop // outer before inner, else in the order of their headers
	Of    []*Loop // the innermost loop of each block; nil = none
}

// Contains reports whether b is in l or in a loop inside it.
func (n *Nest) Contains(l *Loop, b *Block) bool {
	in := n.Of[b.Index]
	return in != nil && l.first <= in.first && in.first <= l.last
}

// loops finds the loop nest. P. Havlak, "Nesting of reducible and irreducible loops", TOPLAS
// 1997: headers from the inside out, each taking in what reaches its back edges; loops
// that are done count as one node (union-find).
func loops(f *Func) error {
	n := len(f.Blocks)
	// Depth-first numbers: blocks are in reverse postorder, which is not a preorder.
	pre, last := depthFirst(f)
	byPre := make([]int32, n)
	for i, p := range pre {
		byPre[p] = int32(i)
	}
	above := func(a, b int32) bool { return pre[a] <= pre[b] && pre[b] <= last[a] }
	back, other := splitArcs(f, above)
	done := newDisjoint(n)
	outer := make([]*Loop, n) // the loop headed by a block, its parent filled in later
	nest := &Nest{Of: make([]*Loop, n)}
	mark := make([]int32, n) // last header that took a node in, plus one
	work := 0
	for k := n - 1; k >= 0; k-- {
		w := byPre[k]
		if len(back[w]) == 0 {
			continue
		}
		l := &Loop{Header: f.Blocks[w]}
		var body []int32
		take := func(x int32) {
			if x != w && mark[x] != w+1 {
				mark[x] = w + 1
				body = append(body, x)
			}
		}
		for _, v := range back[w] {
			take(done.find(v))
		}
		for i := 0; i < len(body); i++ {
			for _, y := range other[body[i]] {
				if work++; work > maxWork {
					return &TooLargeError{f.Name, "loops"}
				}
				if y = done.find(y); above(w, y) {
					take(y)
				} else {
					l.Irreducible = true
					other[w] = append(other[w], y)
				}
			}
		}
		for _, x := range body {
			done[x] = w
			if inner := outer[x]; inner != nil {
				inner.Parent = l
			} else {
				nest.Of[x] = l
			}
		}
		nest.Of[w] = l
		outer[w] = l
	}
	for _, b := range f.Blocks { // in an order in which headers of outer loops come first
		if l := outer[b.Index]; l != nil {
			nest.Loops = append(nest.Loops, l)
		}
	}
	nest.arrange()
	if err := nest.members(f, work); err != nil {
		return err
	}
	f.Loops = nest
	return nil
}

// splitArcs divides the predecessors of each block into those that the block is above in the depth-first tree, and the
// others.
func splitArcs(f *Func, above func(a, b int32) bool) (back, other [][]int32) {
	back, other = make([][]int32, len(f.Blocks)), make([][]int32, len(f.Blocks))
	for _, b := range f.Blocks {
		for _, e := range b.Preds {
			i, p := int32(b.Index), int32(e.Block.Index)
			if above(i, p) {
				back[i] = append(back[i], p)
			} else {
				other[i] = append(other[i], p)
			}
		}
	}
	return back, other
}

// A disjoint is a union-find: each node has one that stands for it, at first itself.
type disjoint []int32

func newDisjoint(n int) disjoint {
	d := make(disjoint, n)
	for i := range d {
		d[i] = int32(i)
	}
	return d
}

func (d disjoint) find(x int32) int32 {
	for d[x] != x {
		d[x] = d[d[x]]
		x = d[x]
	}
	return x
}

// members fills in what belongs to each loop: its blocks, its latches and its exits. work is what finding the loops has
// cost so far.
func (n *Nest) members(f *Func, work int) error {
	for _, b := range f.Blocks {
		for l := n.Of[b.Index]; l != nil; l = l.Parent {
			if l == n.Of[b.Index] {
				l.Blocks = append(l.Blocks, b)
			}
			leaves := false
			for i, e := range b.Succs {
				if work++; work > maxWork {
					return &TooLargeError{f.Name, "loops"}
				}
				if e.Block == l.Header && (len(l.Latches) == 0 || l.Latches[len(l.Latches)-1] != b) {
					l.Latches = append(l.Latches, b)
				}
				if !n.Contains(l, e.Block) {
					l.Exits = append(l.Exits, Edge{b, i})
					leaves = true
				}
			}
			if !leaves { // then it does not leave or close an outer one either
				break
			}
		}
	}
	for _, l := range n.Loops {
		if i := slices.Index(l.Blocks, l.Header); i > 0 { // an irreducible loop may have it elsewhere
			copy(l.Blocks[1:i+1], l.Blocks[:i])
			l.Blocks[0] = l.Header
		}
	}
	return nil
}

// arrange numbers the loops so that Contains is a comparison, and sorts them.
func (n *Nest) arrange() {
	var stack []*Loop
	for i := len(n.Loops) - 1; i >= 0; i-- {
		if l := n.Loops[i]; l.Parent == nil {
			stack = append(stack, l)
		} else {
			l.Parent.Children = append(l.Parent.Children, l)
		}
	}
	n.Loops = n.Loops[:0]
	for len(stack) > 0 {
		l := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		l.first = len(n.Loops)
		l.Depth = 1
		if l.Parent != nil {
			l.Depth = l.Parent.Depth + 1
		}
		n.Loops = append(n.Loops, l)
		stack = append(stack, l.Children...)
		slices.Reverse(l.Children)
	}
	for i := len(n.Loops) - 1; i >= 0; i-- {
		l := n.Loops[i]
		l.last = max(l.last, l.first)
		if l.Parent != nil {
			l.Parent.last = max(l.Parent.last, l.last)
		}
	}
}

// depthFirst gives the preorder number of every block and the largest one below it in the
// depth-first tree.
func depthFirst(f *Func) (pre, last []int32) {
	n := len(f.Blocks)
	pre, last = make([]int32, n), make([]int32, n)
	for i := range pre {
		pre[i] = -1
	}
	type frame struct {
		b    *Block
		next int
	}
	count := int32(1)
	pre[0] = 0
	stack := []frame{{f.Blocks[0], 0}}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if top.next == len(top.b.Succs) {
			last[top.b.Index] = count - 1
			stack = stack[:len(stack)-1]
			continue
		}
		s := top.b.Succs[top.next].Block
		top.next++
		if pre[s.Index] < 0 {
			pre[s.Index] = count
			count++
			stack = append(stack, frame{s, 0})
		}
	}
	return pre, last
}
