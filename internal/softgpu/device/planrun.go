package device

import (
	"runtime/debug"
	"slices"
	"sync"
)

// chain reports whether a plan has only one order: each node depends on the one before it.
func chain(plan []*node) bool {
	for i, n := range plan[min(1, len(plan)):] {
		if !slices.Contains(n.deps, plan[i].from) {
			return false
		}
	}
	return true
}

// runPlan runs the nodes of an executable graph: those that do not depend on one another side by side.
func (gs graphs) runPlan(r *planRun, plan []*node) Status {
	if gs.srv.cfg.Deterministic || chain(plan) {
		for _, n := range plan {
			if st := gs.mirrored(func() Status { return gs.runNode(r, n) }); st != Success {
				return st
			}
		}
		return Success
	}
	g := &graphRun{of: gs, r: r, waiting: make([]int, len(plan)), next: make([][]int, len(plan)), plan: plan,
		free: max(gs.srv.cfg.Workers, 2)}
	index := make(map[*node]int, len(plan))
	for i, n := range plan {
		index[n.from] = i
	}
	for i, n := range plan {
		g.waiting[i] = len(n.deps)
		for _, d := range n.deps {
			j := index[d]
			g.next[j] = append(g.next[j], i)
		}
		if len(n.deps) == 0 {
			g.ready = append(g.ready, i)
		}
	}
	g.mu.Lock()
	g.start()
	g.mu.Unlock()
	g.busy.Wait()
	return g.status
}

// A graphRun is the state of one launch of a graph that is no chain.
type graphRun struct {
	of   graphs
	r    *planRun
	plan []*node
	next [][]int // nodes that depend on one
	busy sync.WaitGroup

	mu      sync.Mutex
	waiting []int // dependences of a node that have not run
	ready   []int
	free    int // how many more nodes may run at once
	status  Status
}

// start gives nodes that are ready goroutines of their own. g.mu is held.
func (g *graphRun) start() {
	for len(g.ready) > 0 && g.free > 0 && g.status == Success {
		i := g.ready[0]
		g.ready = g.ready[1:]
		g.free--
		g.busy.Go(func() { g.run(i) })
	}
}

func (g *graphRun) run(i int) {
	debug.SetPanicOnFault(true)
	st := g.of.runTask(&task{run: func() Status { return g.of.runNode(g.r, g.plan[i]) }})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free++
	if st != Success {
		if g.status == Success {
			g.status = st
		}
		return
	}
	for _, j := range g.next[i] {
		if g.waiting[j]--; g.waiting[j] == 0 {
			g.ready = append(g.ready, j)
		}
	}
	g.start()
}
