package device

import "encoding/binary"

// Memory that a graph allocates has the same addresses in every launch. Here it exists, and keeps
// its contents, as long as the graph or an executable one made from it: allocation and free nodes
// only mark where the program may use it.

// sizeofAllocParams is sizeof(CUDA_MEM_ALLOC_NODE_PARAMS): CUmemPoolProps (88), access
// descriptors and their number, bytesize at 104, dptr at 112.
const (
	sizeofAllocParams = 120
	allocParamsSize   = 104
	allocParamsPtr    = 112
)

// graphAllocation makes memory for an allocation node.
func (c *call) graphAllocation(cx *deviceContext, size uint64) (*allocation, Status) {
	if size == 0 {
		return nil, InvalidValue
	}
	var a *allocation
	st := c.fit(func() (err error) { a, err = c.p.allocate(cx, size, allocGraph); return })
	return a, st
}

// hold and drop count the graphs that have a node of the memory.
func (a *allocation) hold() { a.graphs++ }

func (gs graphs) dropGraphMemory(a *allocation) {
	if a.graphs--; a.graphs > 0 {
		return
	}
	// Launches may still be running.
	a.dying = true
	gs.zombies = append(gs.zombies, a)
	if gs.pending == 0 {
		gs.reap()
	}
}

// eachAllocation calls f for the memory of a plan's allocation nodes.
func eachAllocation(plan []*node, f func(*allocation)) {
	for _, n := range plan {
		if n.Kind == nodeMemAlloc {
			f(n.mem)
		}
		eachAllocation(n.plan, f)
	}
}

// usesMemory reports whether a graph has nodes that allocate or free: it cannot be
// cloned or be a child then.
func (g *graph) usesMemory() bool {
	for _, n := range g.nodes {
		if n.Kind == nodeMemAlloc || n.Kind == nodeMemFree {
			return true
		}
	}
	return false
}

// captureAlloc is cuMemAllocAsync in a stream that is being captured.
func (c *call) captureAlloc(s *stream, size uint64) Status {
	if st := s.capture.usable(); st != Success {
		return st
	}
	a, st := c.graphAllocation(s.cx, size)
	if st != Success {
		return st
	}
	a.hold()
	if s.capture == nil { // ended by another thread while this one waited for memory
		c.p.dropGraphMemory(a)
		return IllegalState
	}
	if st := s.addNode(&node{Kind: nodeMemAlloc, mem: a, Addr: a.va}); st != Success {
		c.p.dropGraphMemory(a)
		return st
	}
	return c.ret(a.va)
}

func (c *call) captureFree(s *stream, va uint64) Status {
	if a := c.p.allocs.find(va); a == nil || a.va != va || a.kind != allocGraph {
		s.capture.invalidate()
		return InvalidValue
	}
	return s.addNode(&node{Kind: nodeMemFree, Addr: va})
}

func graphAddAlloc(c *call) Status {
	g := must[*graph](c, c.args[0])
	deps, params := c.words(), append([]byte(nil), c.record(sizeofAllocParams)...)
	if u32(params, 0) != allocationPinned || u32(params, 8) != locationDevice || g.owner != nil {
		return InvalidValue
	}
	cx := c.p.primary(c.device(uint64(u32(params, 12))))
	if cur := c.th.current(); cur != nil && cur.dev == cx.dev {
		cx = cur
	}
	a, st := c.graphAllocation(cx, u64(params, allocParamsSize))
	if st != Success {
		return st
	}
	a.hold()
	if st := c.addNode(g, deps, &node{Kind: nodeMemAlloc, mem: a, Addr: a.va}); st != Success {
		c.p.dropGraphMemory(a)
		return st
	}
	binary.LittleEndian.PutUint64(params[allocParamsPtr:], a.va)
	c.retBlob(params)
	return Success
}

func graphAllocGet(c *call) Status {
	n := must[*node](c, c.args[0])
	if n.Kind != nodeMemAlloc {
		return InvalidValue
	}
	b := make([]byte, sizeofAllocParams)
	binary.LittleEndian.PutUint32(b, allocationPinned)
	binary.LittleEndian.PutUint32(b[8:], locationDevice)
	binary.LittleEndian.PutUint32(b[12:], uint32(n.mem.dev))
	binary.LittleEndian.PutUint64(b[allocParamsSize:], n.mem.size)
	binary.LittleEndian.PutUint64(b[allocParamsPtr:], n.mem.va)
	c.retBlob(b)
	return Success
}

func graphAddFree(c *call) Status {
	g, va := must[*graph](c, c.args[0]), c.args[2]
	if a := c.p.allocs.find(va); a == nil || a.va != va || a.kind != allocGraph {
		return InvalidValue
	}
	return c.addNode(g, c.words(), &node{Kind: nodeMemFree, Addr: va})
}

func graphFreeGet(c *call) Status {
	n := must[*node](c, c.args[0])
	if n.Kind != nodeMemFree {
		return InvalidValue
	}
	return c.ret(n.Addr)
}

// Attributes of a device's graph memory (CUgraphMem_attribute): what is used and reserved, now and at
// most; no record of the most is kept, so that it is what it is now.
const lastGraphMemAttribute = 3

func graphMemAttribute(c *call) Status {
	dev := c.device(c.args[0])
	if c.args[1] > lastGraphMemAttribute {
		return InvalidValue
	}
	var n uint64
	for _, a := range c.p.allocs {
		if a.kind == allocGraph && a.dev == dev && !a.dying {
			n += a.extent
		}
	}
	return c.ret(n)
}

// graphMemSetAttribute resets a record of the most.
func graphMemSetAttribute(c *call) Status {
	c.device(c.args[0])
	if attr := c.args[1]; attr != 1 && attr != lastGraphMemAttribute {
		return InvalidValue
	}
	return c.ret(0)
}
