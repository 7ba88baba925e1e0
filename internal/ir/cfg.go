package ir

// order removes blocks that cannot be reached and sorts the rest in reverse postorder, so
// that a block comes after its predecessors, back edges excepted. The predecessor
// lists come out in the order of the blocks.
func order(f *Func) error {
	seen := make([]bool, len(f.Blocks))
	type frame struct {
		b    *Block
		next int
	}
	for i, b := range f.Blocks {
		b.Index = i
	}
	var post []*Block
	stack := []frame{{f.Blocks[0], 0}}
	seen[0] = true
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		// Last successor first: the first one then follows its block in the result.
		if k := len(top.b.Succs) - 1 - top.next; k >= 0 {
			top.next++
			if s := top.b.Succs[k].Block; !seen[s.Index] {
				seen[s.Index] = true
				stack = append(stack, frame{s, 0})
			}
			continue
		}
		post = append(post, top.b)
		stack = stack[:len(stack)-1]
	}
	f.Blocks = f.Blocks[:0]
	for i := len(post) - 1; i >= 0; i-- {
		post[i].Index = len(f.Blocks)
		f.Blocks = append(f.Blocks, post[i])
		post[i].Preds = nil
	}
	for _, b := range f.Blocks {
		for i := range b.Succs {
			s := b.Succs[i].Block
			b.Succs[i].Index = len(s.Preds)
			s.Preds = append(s.Preds, Edge{b, i})
		}
	}
	return nil
}

// A graph is blocks as numbers.
type graph struct{ succ, pred [][]int32 }

func newGraph(n int) *graph { return &graph{make([][]int32, n), make([][]int32, n)} }

func (g *graph) edge(a, b int32) {
	g.succ[a] = append(g.succ[a], b)
	g.pred[b] = append(g.pred[b], a)
}

// forward is the control flow graph.
func forward(f *Func) *graph {
	g := newGraph(len(f.Blocks))
	for _, b := range f.Blocks {
		for _, e := range b.Succs {
			g.edge(int32(b.Index), int32(e.Block.Index))
		}
	}
	return g
}

// backward is the reversed control flow graph with one more node, the end of the function,
// as its root. A region that never ends is given an arc to the end from its last block, so
// that every block has a post-dominator.
func backward(f *Func) *graph {
	n := len(f.Blocks)
	end := int32(n)
	g := newGraph(n + 1)
	for _, b := range f.Blocks {
		for _, e := range b.Succs {
			g.edge(int32(e.Block.Index), int32(b.Index))
		}
		if len(b.Succs) == 0 || b.End() != nil && b.End().Op.Leaves() {
			g.edge(end, int32(b.Index))
		}
	}
	seen := make([]bool, n+1)
	reach := func(from int32) {
		stack := []int32{from}
		seen[from] = true
		for len(stack) > 0 {
			x := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, y := range g.succ[x] {
				if !seen[y] {
					seen[y] = true
					stack = append(stack, y)
				}
			}
		}
	}
	reach(end)
	for i := n - 1; i >= 0; i-- {
		if !seen[i] {
			g.edge(end, int32(i))
			reach(int32(i))
		}
	}
	return g
}
