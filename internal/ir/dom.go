package ir

// A Tree is a dominator tree. Its nodes are the indexes of blocks.
type Tree struct {
	Root   int32
	Parent []int32 // immediate dominator; of the root, itself
	Order  []int32 // preorder
	Level  []int32 // distance from the root
	pre    []int32
	last   []int32 // the largest pre below a node

	child, sibling []int32 // the first child of a node, and the next one of its parent; -1 = none
}

// Dominates reports whether a is on every path from the root to b.
func (t *Tree) Dominates(a, b int) bool {
	return t.pre[a] <= t.pre[b] && t.pre[b] <= t.last[a]
}

func dominators(f *Func) error {
	f.Dom = newTree(idoms(forward(f), 0), 0)
	return nil
}

func postDominators(f *Func) error {
	root := int32(len(f.Blocks))
	f.PostDom = newTree(idoms(backward(f), root), root)
	return nil
}

// idoms finds the immediate dominator of every node; all are reachable from
// the root. T. Lengauer and R. E. Tarjan, "A fast algorithm for finding
// dominators in a flowgraph", TOPLAS 1979, the variant with path compression:
// O(m log n).
func idoms(g *graph, root int32) []int32 {
	n := len(g.succ)
	num := make([]int32, n) // position in depth-first order
	vertex := make([]int32, 0, n)
	parent := make([]int32, n) // in the depth-first tree
	for i := range num {
		num[i] = -1
	}
	type frame struct {
		node int32
		next int
	}
	stack := []frame{{root, 0}}
	num[root] = 0
	vertex = append(vertex, root)
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if top.next == len(g.succ[top.node]) {
			stack = stack[:len(stack)-1]
			continue
		}
		s := g.succ[top.node][top.next]
		top.next++
		if num[s] < 0 {
			num[s] = int32(len(vertex))
			parent[s] = top.node
			vertex = append(vertex, s)
			stack = append(stack, frame{s, 0})
		}
	}

	semi := make([]int32, n) // semidominator, as a position
	label := make([]int32, n)
	ancestor := make([]int32, n)
	idom := make([]int32, n)
	bucket := make([]int32, n) // first of a list through next
	next := make([]int32, n)
	for i := range n {
		semi[i], label[i], ancestor[i], bucket[i], next[i] = num[i], int32(i), -1, -1, -1
	}
	var path []int32
	eval := func(v int32) int32 {
		if ancestor[v] < 0 {
			return v
		}
		path = path[:0]
		x := v
		for ancestor[ancestor[x]] >= 0 {
			path = append(path, x)
			x = ancestor[x]
		}
		for i := len(path) - 1; i >= 0; i-- {
			p := path[i]
			a := ancestor[p]
			if semi[label[a]] < semi[label[p]] {
				label[p] = label[a]
			}
			ancestor[p] = ancestor[a]
		}
		return label[v]
	}
	for i := len(vertex) - 1; i > 0; i-- {
		w := vertex[i]
		for _, v := range g.pred[w] {
			if num[v] < 0 {
				continue
			}
			if u := eval(v); semi[u] < semi[w] {
				semi[w] = semi[u]
			}
		}
		s := vertex[semi[w]]
		next[w], bucket[s] = bucket[s], w
		p := parent[w]
		ancestor[w] = p
		for v := bucket[p]; v >= 0; v = next[v] {
			if u := eval(v); semi[u] < semi[v] {
				idom[v] = u
			} else {
				idom[v] = p
			}
		}
		bucket[p] = -1
	}
	for _, w := range vertex[1:] {
		if idom[w] != vertex[semi[w]] {
			idom[w] = idom[idom[w]]
		}
	}
	idom[root] = root
	return idom
}

func newTree(parent []int32, root int32) *Tree {
	n := len(parent)
	t := &Tree{Root: root, Parent: parent, Level: make([]int32, n), pre: make([]int32, n), last: make([]int32, n),
		child: make([]int32, n), sibling: make([]int32, n)}
	child, sibling := t.child, t.sibling
	for i := range child {
		child[i], sibling[i] = -1, -1
	}
	for i := n - 1; i >= 0; i-- {
		if p := parent[i]; int32(i) != root {
			sibling[i], child[p] = child[p], int32(i)
		}
	}
	t.Order = make([]int32, 0, n)
	for stack := []int32{root}; len(stack) > 0; {
		x := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if x != root && sibling[x] >= 0 {
			stack = append(stack, sibling[x])
		}
		if x != root {
			t.Level[x] = t.Level[parent[x]] + 1
		}
		t.pre[x] = int32(len(t.Order))
		t.Order = append(t.Order, x)
		if child[x] >= 0 {
			stack = append(stack, child[x])
		}
	}
	for i := len(t.Order) - 1; i >= 0; i-- {
		x := t.Order[i]
		t.last[x] = max(t.last[x], t.pre[x])
		if p := parent[x]; x != root {
			t.last[p] = max(t.last[p], t.last[x])
		}
	}
	return t
}
