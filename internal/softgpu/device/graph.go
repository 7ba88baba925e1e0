package device

import (
	"fmt"
	"slices"
	"time"

	"holdfast/internal/softgpu/gpuwire"
)

// The kinds of nodes: CUgraphNodeType.
const (
	nodeKernel      = 0
	nodeMemcpy      = 1
	nodeMemset      = 2
	nodeHost        = 3
	nodeChild       = 4
	nodeEmpty       = 5
	nodeEventWait   = 6
	nodeEventRecord = 7
	nodeMemAlloc    = 10
	nodeMemFree     = 11
)

const maxNodes = 1 << 18

// graphs makes graphs, and runs them.
type graphs struct{ launches }

// A graph is a CUgraph.
type graph struct {
	handle uint64
	nodes  []*node // in the order they were added
	owner  *node   // the child node it belongs to
	origin *graph  // what it was cloned from
	owned  owned
}

// A node is a CUgraphNode, or one of an executable graph, which has no handle. Those of
// executable graphs never change: an update replaces them.
type node struct {
	handle   uint64
	graph    *graph
	from     *node // in a clone: the original
	deps     []*node
	Kind     int
	Kernel   *kernelLaunch
	Copy     copyShape
	Fill     fill
	Fn, User uint64
	Event    uint64
	Addr     uint64      // of graph memory
	mem      *allocation // of an allocation node
	child    *graph
	plan     []*node // of a child, executable
	disabled bool
}

// A graphExec is a CUgraphExec: the nodes in an order that respects the edges.
type graphExec struct {
	handle uint64
	flags  uint64
	plan   []*node // each with from: the graph's node
	owned  owned
}

func (gs graphs) newGraph() *graph {
	g := &graph{}
	g.handle = gs.add(g)
	return g
}

func (gs graphs) addToGraph(g *graph, n *node, deps []*node) Status {
	if len(g.nodes) >= maxNodes {
		return OutOfMemory
	}
	n.graph, n.deps = g, deps
	n.handle = gs.add(n)
	g.nodes = append(g.nodes, n)
	return Success
}

// add is the common part of the cuGraphAdd…Node calls, after its parameters.
func (c *call) addNode(g *graph, deps []uint64, n *node) Status {
	var on []*node
	for _, h := range deps {
		d := must[*node](c, h)
		if d.graph != g || slices.Contains(on, d) {
			return InvalidValue
		}
		on = append(on, d)
	}
	if st := c.p.addToGraph(g, n, on); st != Success {
		return st
	}
	return c.ret(n.handle)
}

func graphCreate(c *call) Status {
	if c.args[0] != 0 {
		return InvalidValue
	}
	return c.ret(c.p.newGraph().handle)
}

func (gs graphs) dropGraph(g *graph) {
	for _, n := range g.nodes {
		gs.dropNode(n)
	}
	delete(gs.objects, g.handle)
	gs.dropOwned(g.owned)
}

func (gs graphs) dropNode(n *node) {
	delete(gs.objects, n.handle)
	if n.child != nil {
		gs.dropGraph(n.child)
	}
	if n.Kind == nodeMemAlloc {
		gs.dropGraphMemory(n.mem)
	}
}

func graphDestroy(c *call) Status {
	g := must[*graph](c, c.args[0])
	if g.owner != nil {
		return InvalidValue
	}
	c.p.dropGraph(g)
	return Success
}

func graphAddEmpty(c *call) Status {
	return c.addNode(must[*graph](c, c.args[0]), c.words(), &node{Kind: nodeEmpty})
}

func graphAddKernel(c *call) Status {
	g := must[*graph](c, c.args[0])
	deps, params := c.words(), c.blob()
	o, st := launchAttributes(c.blob())
	if st != Success {
		return st
	}
	if len(o.events) > 0 {
		return InvalidValue
	}
	o.Cooperative = o.Cooperative || c.args[10]&gpuwire.FlagCooperative != 0
	k, st := c.kernelLaunch(c.args[2:], params, o)
	if st != Success {
		return st
	}
	return c.addNode(g, deps, &node{Kind: nodeKernel, Kernel: k})
}

func graphKernelGet(c *call) Status {
	n := must[*node](c, c.args[0])
	if n.Kind != nodeKernel {
		return InvalidValue
	}
	k := n.Kernel
	c.retBlob(append([]byte{}, k.Params...))
	return c.ret(k.Func, uint64(k.Grid[0]), uint64(k.Grid[1]), uint64(k.Grid[2]),
		uint64(k.Block[0]), uint64(k.Block[1]), uint64(k.Block[2]), uint64(k.Shared))
}

func graphKernelSet(c *call) Status {
	n := must[*node](c, c.args[0])
	if n.Kind != nodeKernel {
		return InvalidValue
	}
	k, st := c.kernelLaunch(c.args[1:], c.blob(), n.Kernel.options())
	if st != Success {
		return st
	}
	n.Kernel = k
	return Success
}

func graphAddMemcpy(c *call) Status {
	g := must[*graph](c, c.args[0])
	s := copyArgs(c.args[2:])
	if !s.valid() || s.total() == 0 || s.DstKind > 1 || s.SrcKind > 1 {
		return InvalidValue
	}
	return c.addNode(g, c.words(), &node{Kind: nodeMemcpy, Copy: s})
}

func graphMemcpyGet(c *call) Status {
	n := must[*node](c, c.args[0])
	if n.Kind != nodeMemcpy {
		return InvalidValue
	}
	return c.ret(n.Copy.args()...)
}

func graphMemcpySet(c *call) Status {
	n, s := must[*node](c, c.args[0]), copyArgs(c.args[1:])
	if n.Kind != nodeMemcpy || !s.valid() || s.total() == 0 || s.DstKind > 1 || s.SrcKind > 1 {
		return InvalidValue
	}
	n.Copy = s
	return Success
}

// memsetParams reads CUDA_MEMSET_NODE_PARAMS.
func (c *call) memsetParams() (fill, Status) {
	b := c.record(40)
	f := fill{Dst: u64(b, 0), Pitch: u64(b, 8), Value: u32(b, 16), Element: u32(b, 20), Width: u64(b, 24),
		Height: u64(b, 32)}
	if !f.valid() {
		return f, InvalidValue
	}
	return f, Success
}

func graphAddMemset(c *call) Status {
	g, deps := must[*graph](c, c.args[0]), c.words()
	f, st := c.memsetParams()
	if st != Success {
		return st
	}
	return c.addNode(g, deps, &node{Kind: nodeMemset, Fill: f})
}

func graphMemsetGet(c *call) Status {
	n := must[*node](c, c.args[0])
	if n.Kind != nodeMemset {
		return InvalidValue
	}
	f := n.Fill
	b := append(le64(f.Dst), le64(f.Pitch)...)
	b = append(append(b, le32(f.Value)...), le32(f.Element)...)
	b = append(append(b, le64(f.Width)...), le64(f.Height)...)
	c.retBlob(b)
	return Success
}

func graphMemsetSet(c *call) Status {
	n := must[*node](c, c.args[0])
	f, st := c.memsetParams()
	if st != Success || n.Kind != nodeMemset {
		return InvalidValue
	}
	n.Fill = f
	return Success
}

func graphAddHost(c *call) Status {
	g := must[*graph](c, c.args[0])
	if c.args[2] == 0 {
		return InvalidValue
	}
	return c.addNode(g, c.words(), &node{Kind: nodeHost, Fn: c.args[2], User: c.args[3]})
}

func graphHostGet(c *call) Status {
	n := must[*node](c, c.args[0])
	if n.Kind != nodeHost {
		return InvalidValue
	}
	return c.ret(n.Fn, n.User)
}

func graphHostSet(c *call) Status {
	n := must[*node](c, c.args[0])
	if n.Kind != nodeHost || c.args[1] == 0 {
		return InvalidValue
	}
	n.Fn, n.User = c.args[1], c.args[2]
	return Success
}

func graphAddChild(c *call) Status {
	const deepest = 16
	g, child := must[*graph](c, c.args[0]), must[*graph](c, c.args[2])
	if g == child || child.depth() >= deepest {
		return InvalidValue
	}
	if child.usesMemory() {
		return NotSupported
	}
	n := &node{Kind: nodeChild}
	st := c.addNode(g, c.words(), n)
	if st == Success {
		n.child = c.p.cloneGraph(child)
		n.child.owner = n
	}
	return st
}

func (g *graph) depth() int {
	d := 0
	for _, n := range g.nodes {
		if n.child != nil {
			d = max(d, n.child.depth()+1)
		}
	}
	return d
}

func graphChildGet(c *call) Status {
	n := must[*node](c, c.args[0])
	if n.Kind != nodeChild {
		return InvalidValue
	}
	return c.ret(n.child.handle)
}

// graphAddEvent adds an event record or wait node.
func graphAddEvent(kind int) func(*call) Status {
	return func(c *call) Status {
		g := must[*graph](c, c.args[0])
		must[*event](c, c.args[2])
		return c.addNode(g, c.words(), &node{Kind: kind, Event: c.args[2]})
	}
}

func graphEventGet(kind int) func(*call) Status {
	return func(c *call) Status {
		n := must[*node](c, c.args[0])
		if n.Kind != kind {
			return InvalidValue
		}
		return c.ret(n.Event)
	}
}

func graphEventSet(kind int) func(*call) Status {
	return func(c *call) Status {
		n := must[*node](c, c.args[0])
		must[*event](c, c.args[1])
		if n.Kind != kind {
			return InvalidValue
		}
		n.Event = c.args[1]
		return Success
	}
}

// cloneGraph copies a graph, child graphs included.
func (gs graphs) cloneGraph(g *graph) *graph {
	to := gs.newGraph()
	to.origin, to.owned = g, g.owned.share()
	copies := make(map[*node]*node, len(g.nodes))
	for _, n := range g.nodes {
		m := *n
		m.graph, m.from = to, n
		m.handle = gs.add(&m)
		copies[n] = &m
		to.nodes = append(to.nodes, &m)
		if n.child != nil {
			m.child = gs.cloneGraph(n.child)
			m.child.owner = &m
		}
	}
	for _, m := range to.nodes {
		deps := make([]*node, len(m.deps))
		for i, d := range m.deps {
			deps[i] = copies[d]
		}
		m.deps = deps
	}
	return to
}

func graphClone(c *call) Status {
	g := must[*graph](c, c.args[0])
	if g.usesMemory() {
		return NotSupported
	}
	return c.ret(c.p.cloneGraph(g).handle)
}

func graphFindInClone(c *call) Status {
	n, g := must[*node](c, c.args[0]), must[*graph](c, c.args[1])
	for _, m := range g.nodes {
		if m.from == n {
			return c.ret(m.handle)
		}
	}
	return InvalidValue
}

func graphNodeType(c *call) Status {
	return c.ret(uint64(must[*node](c, c.args[0]).Kind))
}

func (c *call) retNodes(ns []*node) {
	b := []byte{}
	for _, n := range ns {
		b = append(b, le64(n.handle)...)
	}
	c.retBlob(b)
}

func graphNodes(c *call) Status {
	g := must[*graph](c, c.args[0])
	c.retNodes(g.nodes)
	return c.ret(uint64(len(g.nodes)))
}

func graphRoots(c *call) Status {
	g := must[*graph](c, c.args[0])
	var roots []*node
	for _, n := range g.nodes {
		if len(n.deps) == 0 {
			roots = append(roots, n)
		}
	}
	c.retNodes(roots)
	return c.ret(uint64(len(roots)))
}

func graphEdges(c *call) Status {
	g := must[*graph](c, c.args[0])
	var from, to []*node
	for _, n := range g.nodes {
		for _, d := range n.deps {
			from, to = append(from, d), append(to, n)
		}
	}
	c.retNodes(from)
	c.retNodes(to)
	return c.ret(uint64(len(from)))
}

func nodeDependencies(c *call) Status {
	n := must[*node](c, c.args[0])
	c.retNodes(n.deps)
	return c.ret(uint64(len(n.deps)))
}

func nodeDependents(c *call) Status {
	n := must[*node](c, c.args[0])
	var out []*node
	for _, m := range n.graph.nodes {
		if slices.Contains(m.deps, n) {
			out = append(out, m)
		}
	}
	c.retNodes(out)
	return c.ret(uint64(len(out)))
}

// edges reads two arrays of nodes of one graph.
func (c *call) edges(g *graph) (from, to []*node) {
	f, t := c.words(), c.words()
	if len(f) != len(t) {
		panic(InvalidValue)
	}
	for i := range f {
		a, b := must[*node](c, f[i]), must[*node](c, t[i])
		if a.graph != g || b.graph != g || a == b {
			panic(InvalidValue)
		}
		from, to = append(from, a), append(to, b)
	}
	return from, to
}

func graphAddDependencies(c *call) Status {
	from, to := c.edges(must[*graph](c, c.args[0]))
	for i := range from {
		if slices.Contains(to[i].deps, from[i]) {
			return InvalidValue
		}
	}
	for i := range from {
		to[i].deps = append(slices.Clip(to[i].deps), from[i])
	}
	return Success
}

func graphRemoveDependencies(c *call) Status {
	from, to := c.edges(must[*graph](c, c.args[0]))
	for i := range from {
		at := slices.Index(to[i].deps, from[i])
		if at < 0 {
			return InvalidValue
		}
		to[i].deps = slices.Delete(slices.Clone(to[i].deps), at, at+1)
	}
	return Success
}

func graphDestroyNode(c *call) Status {
	n := must[*node](c, c.args[0])
	g := n.graph
	g.nodes = slices.DeleteFunc(g.nodes, func(m *node) bool { return m == n })
	for _, m := range g.nodes {
		m.deps = slices.DeleteFunc(slices.Clone(m.deps), func(d *node) bool { return d == n })
	}
	c.p.dropNode(n)
	return Success
}

// plan orders a graph's nodes, and copies them; a cycle is InvalidValue.
func (g *graph) plan() ([]*node, Status) {
	index := make(map[*node]int, len(g.nodes))
	waiting := make([]int, len(g.nodes))
	next := make([][]int, len(g.nodes))
	for i, n := range g.nodes {
		index[n] = i
	}
	var ready []int
	for i, n := range g.nodes {
		waiting[i] = len(n.deps)
		for _, d := range n.deps {
			next[index[d]] = append(next[index[d]], i)
		}
		if len(n.deps) == 0 {
			ready = append(ready, i)
		}
	}
	var plan []*node
	for len(ready) > 0 {
		i := ready[0]
		ready = ready[1:]
		n := *g.nodes[i]
		n.from, n.handle = g.nodes[i], g.nodes[i].handle
		if n.child != nil {
			var st Status
			if n.plan, st = n.child.plan(); st != Success {
				return nil, st
			}
		}
		plan = append(plan, &n)
		for _, j := range next[i] {
			if waiting[j]--; waiting[j] == 0 {
				ready = append(ready, j)
			}
		}
	}
	if len(plan) != len(g.nodes) {
		return nil, InvalidValue
	}
	return plan, Success
}

func graphInstantiate(c *call) Status {
	g := must[*graph](c, c.args[0])
	const known = 1 | 2 | 8 // auto free, upload, node priority
	if c.args[1]&^known != 0 {
		return NotSupported // device launch
	}
	plan, st := g.plan()
	if st != Success {
		return st
	}
	eachAllocation(plan, (*allocation).hold)
	e := &graphExec{flags: c.args[1], plan: plan, owned: g.owned.share()}
	e.handle = c.p.add(e)
	return c.ret(e.handle)
}

func execDestroy(c *call) Status {
	e := must[*graphExec](c, c.args[0])
	delete(c.p.objects, e.handle)
	eachAllocation(e.plan, c.p.dropGraphMemory)
	c.p.dropOwned(e.owned)
	return Success
}

func execFlags(c *call) Status { return c.ret(must[*graphExec](c, c.args[0]).flags) }

func execUpload(c *call) Status {
	must[*graphExec](c, c.args[0])
	c.stream(c.args[1])
	return Success
}

// A planRun is one launch of a plan: the records its event nodes make. It does not change while the plan runs.
type planRun struct {
	records map[*node]*record
	deps    []*task
}

func (gs graphs) prepare(r *planRun, cx *deviceContext, plan []*node) {
	for _, n := range plan {
		switch {
		case n.disabled:
		case n.Kind == nodeChild:
			gs.prepare(r, cx, n.plan)
		case n.Kind == nodeEventWait:
			// Waited for before the launch begins: a task that runs must not wait for another.
			if e, ok := get[*event](gs, n.Event); ok && e.rec != nil && !e.rec.task.finished() && !r.makes(e.rec) {
				r.deps = append(r.deps, e.rec.task)
			}
		case n.Kind == nodeEventRecord:
			if e, ok := get[*event](gs, n.Event); ok {
				rec := &record{task: &task{done: make(chan struct{}), cx: cx}}
				r.records[n] = rec
				e.rec, e.captured = rec, nil
			}
		}
	}
}

func (r *planRun) makes(rec *record) bool {
	for _, own := range r.records {
		if own == rec {
			return true
		}
	}
	return false
}

func graphLaunch(c *call) Status {
	e, s := must[*graphExec](c, c.args[0]), c.stream(c.args[1])
	p := c.p
	if s.capture != nil {
		s.capture.invalidate()
		return CaptureUnsupported
	}
	if st := p.refuseIfImplicit(s); st != Success {
		return st
	}
	p.srv.counts.graphs.Add(1)
	r := &planRun{records: make(map[*node]*record)}
	p.prepare(r, s.cx, e.plan)
	plan, cx := e.plan, s.cx
	p.submit(s, &task{always: true, deps: r.deps, run: func() Status {
		defer func() { // whatever happened, nobody waits for ever
			for _, rec := range r.records {
				if !rec.task.finished() {
					close(rec.task.done)
				}
			}
		}()
		p.mu.Lock()
		failed := cx.sticky != Success
		p.mu.Unlock()
		if failed {
			return Success
		}
		return p.runPlan(r, plan)
	}})
	return Success
}

func (gs graphs) runNode(r *planRun, n *node) Status {
	select {
	case <-gs.dead:
		return LaunchFailed
	default:
	}
	if n.disabled {
		return Success
	}
	switch n.Kind {
	case nodeKernel:
		return gs.runKernel(n.Kernel)
	case nodeMemcpy:
		return gs.runGraphCopy(&n.Copy)
	case nodeMemset:
		return gs.fillNow(&n.Fill)
	case nodeHost:
		_, _ = gs.control.call(gpuwire.OpCallback, []uint64{0, n.Fn, n.User, 0, 0}, nil)
	case nodeChild:
		return gs.runPlan(r, n.plan)
	case nodeEventRecord:
		if rec := r.records[n]; rec != nil && !rec.task.finished() {
			gs.mu.Lock()
			rec.when = time.Now()
			gs.mu.Unlock()
			close(rec.task.done)
		}
	}
	return Success
}

// runGraphCopy copies with pageable sides read and written through the control connection.
func (gs graphs) runGraphCopy(s *copyShape) Status {
	n := s.total()
	if (s.SrcKind == gpuwire.KindPageable || s.DstKind == gpuwire.KindPageable) && n > gpuwire.MaxPayload {
		return NotSupported
	}
	var src, dst []byte
	if s.SrcKind == gpuwire.KindPageable {
		var st Status
		if src, st = gs.hostRead(s); st != Success {
			return st
		}
	}
	if s.DstKind == gpuwire.KindPageable {
		dst = make([]byte, n)
	}
	if st := gs.copyNow(s, dst, src); st != Success {
		return st
	}
	if dst != nil {
		return gs.hostWrite(s, dst)
	}
	return Success
}

func (gs graphs) hostRead(s *copyShape) ([]byte, Status) {
	out := make([]byte, 0, s.total())
	for z := range s.Depth {
		for y := range s.Height {
			at, n := s.Src+(z*s.SrcLines+y)*s.SrcPitch, s.Width
			if s.linear() || s.SrcPitch == s.Width && s.Depth == 1 {
				n = s.total() // rows without gaps in one message
			}
			rep, err := gs.control.call(gpuwire.OpHostRead, []uint64{at, n}, nil)
			if err == nil && (rep.Status != 0 || uint64(len(rep.Payload)) != n) {
				err = fmt.Errorf("the program answers %v, %d bytes", Status(rep.Status), len(rep.Payload))
			}
			if err != nil {
				gs.srv.log.Warn("reading host memory for a graph", "pid", gs.key.pid, "addr", at,
					"bytes", n, "err", err)
				return nil, IllegalAddress
			}
			out = append(out, rep.Payload...)
			if n == s.total() {
				return out, Success
			}
		}
	}
	return out, Success
}

func (gs graphs) hostWrite(s *copyShape, b []byte) Status {
	for z := range s.Depth {
		for y := range s.Height {
			at, n := s.Dst+(z*s.DstLines+y)*s.DstPitch, s.Width
			if s.linear() || s.DstPitch == s.Width && s.Depth == 1 {
				n = s.total()
			}
			rep, err := gs.control.call(gpuwire.OpHostWrite, []uint64{at}, b[:n])
			if err == nil && rep.Status != 0 {
				err = Status(rep.Status)
			}
			if err != nil {
				gs.srv.log.Warn("writing host memory for a graph", "pid", gs.key.pid, "addr", at,
					"bytes", n, "err", err)
				return IllegalAddress
			}
			if b = b[n:]; len(b) == 0 {
				return Success
			}
		}
	}
	return Success
}

// replace exchanges the node of an executable graph that came from one of the graph.
func (e *graphExec) replace(from *node, change func(*node) Status) Status {
	for i, n := range e.plan {
		if n.from == from {
			m := *n
			if st := change(&m); st != Success {
				return st
			}
			// Launches that are queued hold the old plan.
			e.plan = slices.Clone(e.plan)
			e.plan[i] = &m
			return Success
		}
	}
	return InvalidValue
}

func execKernelSet(c *call) Status {
	e, n := must[*graphExec](c, c.args[0]), must[*node](c, c.args[1])
	if n.Kind != nodeKernel {
		return InvalidValue
	}
	k, st := c.kernelLaunch(c.args[2:], c.blob(), n.Kernel.options())
	if st != Success {
		return st
	}
	return e.replace(n, func(m *node) Status { m.Kernel = k; return Success })
}

func execMemcpySet(c *call) Status {
	e, n, s := must[*graphExec](c, c.args[0]), must[*node](c, c.args[1]), copyArgs(c.args[2:])
	if n.Kind != nodeMemcpy || !s.valid() || s.total() == 0 || s.DstKind > 1 || s.SrcKind > 1 {
		return InvalidValue
	}
	return e.replace(n, func(m *node) Status { m.Copy = s; return Success })
}

func execMemsetSet(c *call) Status {
	e, n := must[*graphExec](c, c.args[0]), must[*node](c, c.args[1])
	f, st := c.memsetParams()
	if st != Success || n.Kind != nodeMemset {
		return InvalidValue
	}
	return e.replace(n, func(m *node) Status { m.Fill = f; return Success })
}

func execHostSet(c *call) Status {
	e, n := must[*graphExec](c, c.args[0]), must[*node](c, c.args[1])
	if n.Kind != nodeHost || c.args[2] == 0 {
		return InvalidValue
	}
	return e.replace(n, func(m *node) Status { m.Fn, m.User = c.args[2], c.args[3]; return Success })
}

func execChildSet(c *call) Status {
	e, n, g := must[*graphExec](c, c.args[0]), must[*node](c, c.args[1]), must[*graph](c, c.args[2])
	if n.Kind != nodeChild {
		return InvalidValue
	}
	return e.replace(n, func(m *node) Status {
		plan, st := updatePlan(m.plan, g, nil)
		if st == Success {
			m.plan = plan
		}
		return st
	})
}

func execEventSet(kind int) func(*call) Status {
	return func(c *call) Status {
		e, n := must[*graphExec](c, c.args[0]), must[*node](c, c.args[1])
		must[*event](c, c.args[2])
		if n.Kind != kind {
			return InvalidValue
		}
		return e.replace(n, func(m *node) Status { m.Event = c.args[2]; return Success })
	}
}

func execSetEnabled(c *call) Status {
	e, n := must[*graphExec](c, c.args[0]), must[*node](c, c.args[1])
	if n.Kind > nodeMemset {
		return InvalidValue
	}
	return e.replace(n, func(m *node) Status { m.disabled = c.args[2] == 0; return Success })
}

func execGetEnabled(c *call) Status {
	e, n := must[*graphExec](c, c.args[0]), must[*node](c, c.args[1])
	for _, m := range e.plan {
		if m.from == n {
			return c.ret(truth(!m.disabled))
		}
	}
	return InvalidValue
}

// updatePlan is a plan with the parameters of g, which must have the shape that the plan was
// made from. A node that does not fit is put in *bad.
func updatePlan(old []*node, g *graph, bad **node) ([]*node, Status) {
	plan, st := g.plan()
	if st != Success {
		return nil, st
	}
	mismatch := func(n *node) ([]*node, Status) {
		if bad != nil && n != nil {
			*bad = n.from
		}
		return nil, GraphExecUpdateFailure
	}
	if len(plan) != len(old) {
		return mismatch(nil)
	}
	at := func(plan []*node) map[*node]int {
		m := make(map[*node]int)
		for i, n := range plan {
			m[n.from] = i
		}
		return m
	}
	oldAt, newAt := at(old), at(plan)
	for i, n := range plan {
		o := old[i]
		if o.Kind != n.Kind || len(o.deps) != len(n.deps) || n.Addr != o.Addr {
			return mismatch(n) // graph memory cannot change
		}
		for j := range n.deps {
			if newAt[n.deps[j]] != oldAt[o.deps[j]] {
				return mismatch(n)
			}
		}
		if n.Kind == nodeChild {
			child, st := updatePlan(o.plan, n.child, bad)
			if st != Success {
				return nil, st
			}
			n.plan = child
		}
		// The executable graph's nodes keep the names of those it was instantiated from.
		n.disabled, n.from, n.deps, n.handle = o.disabled, o.from, o.deps, o.handle
	}
	return plan, Success
}

// execUpdate answers with the result even on failure.
func execUpdate(c *call) Status {
	e, g := must[*graphExec](c, c.args[0]), must[*graph](c, c.args[1])
	const topologyChanged = 2 // CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
	var bad *node
	plan, st := updatePlan(e.plan, g, &bad)
	if st != Success {
		var h uint64
		if bad != nil {
			h = bad.handle
		}
		c.ret(topologyChanged, h, 0)
		return GraphExecUpdateFailure
	}
	e.plan = plan
	return c.ret(0, 0, 0)
}

func kernelNodeAttribute(c *call) Status {
	n := must[*node](c, c.args[0])
	if n.Kind != nodeKernel {
		return InvalidValue
	}
	b := make([]byte, sizeofAttributeValue)
	switch k := n.Kernel; c.args[1] {
	case attrCooperative:
		b[0] = byte(truth(k.Cooperative))
	case attrCluster:
		for i, n := range k.Cluster {
			copy(b[4*i:], le32(n))
		}
	}
	c.retBlob(b)
	return Success
}

func kernelNodeSetAttribute(c *call) Status {
	n := must[*node](c, c.args[0])
	v := c.record(sizeofAttributeValue)
	if n.Kind != nodeKernel {
		return InvalidValue
	}
	o := n.Kernel.options()
	if st := o.set(uint32(c.args[1]), v); st != Success {
		return st
	}
	if len(o.events) > 0 {
		return InvalidValue // of launches only
	}
	return c.p.setOptions(n, o)
}

func (k *kernelLaunch) options() launchOptions {
	return launchOptions{Cooperative: k.Cooperative, Cluster: k.Cluster}
}

// setOptions gives a kernel node other launch attributes. What is queued or instantiated keeps the old ones.
func (gs graphs) setOptions(n *node, o launchOptions) Status {
	k := *n.Kernel
	k.Cooperative, k.Cluster = o.Cooperative, o.Cluster
	if k.fn == nil {
		return InvalidHandle
	}
	if st := gs.checkLaunch(&k); st != Success {
		return st
	}
	n.Kernel = &k
	return Success
}

func kernelNodeCopyAttributes(c *call) Status {
	dst, src := must[*node](c, c.args[0]), must[*node](c, c.args[1])
	if dst.Kind != nodeKernel || src.Kind != nodeKernel {
		return InvalidValue
	}
	return c.p.setOptions(dst, src.Kernel.options())
}
