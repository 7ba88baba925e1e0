package device

type objectImage struct {
	Handle, Fn, User, Refs uint64
}

type graphImage struct {
	Handle, Origin uint64
	Owned          numbers[uint64]
	Owner          int // index of a node, or -1
	Nodes          []int
}

type nodeImage struct {
	Handle   uint64 // 0: the node has been destroyed, an executable graph remembers it
	Graph    uint64
	From     int
	Deps     []int
	Kind     int
	Kernel   *kernelLaunch
	Copy     copyShape
	Fill     fill
	Fn, User uint64
	Event    uint64
	Addr     uint64
	Child    uint64
	Plan     []int
	Disabled bool
}

type execImage struct {
	Handle, Flags uint64
	Owned         numbers[uint64]
	Plan          []int
}

func (m *imager) node(n *node) int {
	if n == nil {
		return -1
	}
	i, ok := m.nodes[n]
	if !ok {
		i = len(m.nodes)
		m.nodes[n] = i
		m.queue = append(m.queue, n)
	}
	return i
}

func (m *imager) nodeList(ns []*node) []int {
	var out []int
	for _, n := range ns {
		out = append(out, m.node(n))
	}
	return out
}

func (m *imager) graphs() {
	p, img := m.p, m.img
	for _, x := range all[*userObject](p) {
		img.Objects = append(img.Objects, objectImage{x.handle, x.v.fn, x.v.user, x.v.refs})
	}
	for _, x := range all[*graph](p) {
		gi := graphImage{Handle: x.handle, Owned: x.v.owned.handles(), Owner: m.node(x.v.owner),
			Nodes: m.nodeList(x.v.nodes)}
		if o := x.v.origin; o != nil && p.objects[o.handle] == o {
			gi.Origin = o.handle
		}
		img.Graphs = append(img.Graphs, gi)
	}
	for _, x := range all[*graphExec](p) {
		img.Execs = append(img.Execs, execImage{x.handle, x.v.flags, x.v.owned.handles(), m.nodeList(x.v.plan)})
	}
	for i := 0; i < len(m.queue); i++ { // grows while it is worked on
		n := m.queue[i]
		ni := nodeImage{Kind: n.Kind, Kernel: n.Kernel, Copy: n.Copy, Fill: n.Fill, Fn: n.Fn, User: n.User,
			Event: n.Event, Addr: n.Addr, Disabled: n.disabled,
			From: m.node(n.from), Deps: m.nodeList(n.deps), Plan: m.nodeList(n.plan)}
		if p.objects[n.handle] == n {
			ni.Handle, ni.Graph = n.handle, n.graph.handle
			if n.child != nil {
				ni.Child = n.child.handle
			}
		}
		img.Nodes = append(img.Nodes, ni)
	}
}

func (w owned) handles() map[uint64]uint64 {
	m := make(map[uint64]uint64, len(w))
	for o, n := range w {
		m[o.handle] = n
	}
	return m
}

func (m *restorer) node(i int) *node {
	if i < 0 {
		return nil
	}
	return m.nodes[i] // out of range panics, which is errBadImage
}

func (m *restorer) nodeList(is []int) []*node {
	var out []*node
	for _, i := range is {
		out = append(out, m.nodes[i])
	}
	return out
}

func (m *restorer) graphs() error {
	p := m.p
	m.nodes = make([]*node, len(m.img.Nodes))
	for i := range m.nodes {
		m.nodes[i] = new(node)
	}
	for _, oi := range m.img.Objects {
		if err := m.put(oi.Handle, &userObject{oi.Handle, oi.Fn, oi.User, oi.Refs}); err != nil {
			return err
		}
	}
	for _, gi := range m.img.Graphs {
		g := &graph{handle: gi.Handle, owned: m.owned(gi.Owned), owner: m.node(gi.Owner), nodes: m.nodeList(gi.Nodes)}
		if err := m.put(gi.Handle, g); err != nil {
			return err
		}
	}
	for _, gi := range m.img.Graphs {
		if gi.Origin != 0 {
			p.objects[gi.Handle].(*graph).origin, _ = get[*graph](p, gi.Origin)
		}
	}
	for i := range m.img.Nodes {
		if err := m.graphNode(i); err != nil {
			return err
		}
	}
	for _, g := range all[*graph](p) {
		if !g.v.sound() {
			return bad("graph %#x", g.handle)
		}
	}
	for _, g := range all[*graph](p) {
		if g.v.tooDeep() {
			return bad("graph %#x is inside itself", g.handle)
		}
	}
	seen := make(map[*node]bool)
	for _, ei := range m.img.Execs {
		e := &graphExec{handle: ei.Handle, flags: ei.Flags, owned: m.owned(ei.Owned), plan: m.nodeList(ei.Plan)}
		if !sound(e.plan, seen) {
			return bad("executable graph %#x", ei.Handle)
		}
		if err := m.put(ei.Handle, e); err != nil {
			return err
		}
		eachAllocation(e.plan, (*allocation).hold)
	}
	return nil
}

// graphNode rebuilds node i; all of them exist already.
func (m *restorer) graphNode(i int) error {
	p, ni, n := m.p, &m.img.Nodes[i], m.nodes[i]
	*n = node{handle: ni.Handle, from: m.node(ni.From), deps: m.nodeList(ni.Deps), Kind: ni.Kind, Kernel: ni.Kernel,
		Copy: ni.Copy, Fill: ni.Fill, Fn: ni.Fn, User: ni.User, Event: ni.Event, Addr: ni.Addr,
		plan: m.nodeList(ni.Plan), disabled: ni.Disabled}
	if !n.Copy.valid() || n.Fill.Element != 0 && !n.Fill.valid() || (n.Kind == nodeKernel) != (n.Kernel != nil) {
		return bad("node %d", i)
	}
	if n.Kernel != nil {
		// A function whose module has been unloaded stays away: the node cannot run.
		n.Kernel.fn, _ = get[*function](p, n.Kernel.Func)
	}
	if n.Kind == nodeMemAlloc {
		if n.mem = p.allocs.find(n.Addr); n.mem == nil || n.mem.va != n.Addr || n.mem.kind != allocGraph {
			return bad("graph memory at %#x", n.Addr)
		}
	}
	if n.handle == 0 {
		return nil
	}
	if n.mem != nil {
		n.mem.hold()
	}
	g, ok := get[*graph](p, ni.Graph)
	if !ok {
		return bad("graph %#x", ni.Graph)
	}
	n.graph = g
	if ni.Child != 0 {
		if n.child, ok = get[*graph](p, ni.Child); !ok {
			return bad("graph %#x", ni.Child)
		}
	}
	return m.put(n.handle, n)
}

// sound reports whether a graph's nodes are its own, and each depends on others of it.
func (g *graph) sound() bool {
	for _, n := range g.nodes {
		if n.graph != g || (n.Kind == nodeChild) != (n.child != nil) || n.child != nil && n.child.owner != n {
			return false
		}
		for _, d := range n.deps {
			if d.graph != g {
				return false
			}
		}
	}
	return true
}

// tooDeep reports whether a graph has more graphs around it than any program's: it is inside itself.
func (g *graph) tooDeep() bool {
	const deepest = 32
	depth := 0
	for up := g; up.owner != nil && up.owner.graph != nil; up = up.owner.graph {
		if depth++; depth > deepest {
			return true
		}
	}
	return false
}

// owned is the references of a graph, as far as the objects have so many.
func (m *restorer) owned(refs map[uint64]uint64) owned {
	w := make(owned, len(refs))
	for h, n := range refs {
		if o, ok := get[*userObject](m.p, h); ok && n > 0 && n <= o.refs {
			w[o] = n
		}
	}
	return w
}

// sound reports whether a plan's nodes know where they come from and no plan holds
// itself. seen is false for a node in progress.
func sound(plan []*node, seen map[*node]bool) bool {
	for _, n := range plan {
		done, known := seen[n]
		if known && !done || n.from == nil {
			return false
		}
		if known {
			continue
		}
		seen[n] = false
		if !sound(n.plan, seen) {
			return false
		}
		seen[n] = true
	}
	return true
}
