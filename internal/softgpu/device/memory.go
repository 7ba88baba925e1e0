package device

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// memory is what a process has allocated: on devices, in pools, pinned on the host.
type memory struct {
	*vmm
	free        spans // of the window
	allocs      allocTable
	slabs       [][]*slab              // by device
	heap        *allocation            // of device code; nil until a kernel may need it
	hosts       map[uint64]*hostMemory // by id
	registered  []*registration
	defaultPool []*pool // by device
	currentPool []*pool
}

// Kinds of allocations.
const (
	allocDevice  = 1 // cuMemAlloc and the data of modules
	allocPool    = 2 // stream-ordered
	allocHost    = 3 // pinned
	allocManaged = 4 // pinned, and called managed
	allocModule  = 5
	allocGraph   = 6 // of a graph's allocation nodes
	allocArray   = 7
	allocHeap    = 8 // of malloc in device code
	allocOpened  = 9 // of another process
)

// An allocation is a piece of memory that an address can be looked up in. Memory of the
// VMM calls is a mapping instead.
type allocation struct {
	va, size uint64 // as asked for
	extent   uint64 // as taken: what free returns
	kind     int
	dev      int
	cx       *deviceContext
	id       uint64
	slab     *slab // small ones share a page
	phys     *physical
	pool     *pool
	host     *hostMemory
	graphs   int    // that hold graph memory
	shared   bool   // other processes may know it by name
	opened   int    // how often, of another process's memory
	opening  uint64 // where its mapping begins
	dying    bool   // freed, and unmapped when nothing runs
}

// freeable reports whether the calls that free memory take it. What was opened by a memory handle has one of its own.
func (a *allocation) freeable() bool {
	return a.kind == allocDevice || a.kind == allocPool || a.kind == allocGraph ||
		a.kind == allocOpened && a.pool != nil
}

// allocTable is sorted by address.
type allocTable []*allocation

func (t allocTable) find(va uint64) *allocation {
	i, ok := slices.BinarySearchFunc(t, va, func(a *allocation, va uint64) int { return cmp.Compare(a.va, va) })
	if !ok {
		i--
	}
	if i < 0 || va-t[i].va >= max(t[i].size, 1) || t[i].dying {
		return nil
	}
	return t[i]
}

func (t *allocTable) insert(a *allocation) {
	i, _ := slices.BinarySearchFunc(*t, a.va, func(b *allocation, va uint64) int { return cmp.Compare(b.va, va) })
	*t = slices.Insert(*t, i, a)
}

func (t *allocTable) remove(a *allocation) {
	i, ok := slices.BinarySearchFunc(*t, a.va, func(b *allocation, va uint64) int { return cmp.Compare(b.va, va) })
	if ok && (*t)[i] == a {
		*t = slices.Delete(*t, i, i+1)
	}
}

// Small allocations share slabs of one page.
const (
	slabAlign = 512
	slabLimit = granularity / 2
)

type slab struct {
	va   uint64
	phys *physical
	free spans
	used int
}

// fit calls try, and once more after waiting for stream-ordered frees if it
// found no memory.
func (c *call) fit(try func() error) Status {
	err := try()
	if err != nil && (len(c.p.zombies) > 0 || c.p.pending > 0) {
		c.wait(c.p.lasts(nil)...)
		c.p.quiesce(c.p.reap)
		err = try()
	}
	if err != nil {
		c.p.srv.log.Info("out of memory", "pid", c.p.key.pid, "err", err)
		return OutOfMemory
	}
	return Success
}

// allocate takes size bytes of device memory and maps them.
func (me *memory) allocate(cx *deviceContext, size uint64, kind int) (*allocation, error) {
	me.serial++
	a := &allocation{size: size, kind: kind, dev: cx.dev, cx: cx, id: me.serial}
	if size > me.srv.cfg.Memory {
		return nil, fmt.Errorf("%d bytes are more than the device has", size)
	}
	if size <= slabLimit {
		if err := me.allocateSmall(a); err != nil {
			return nil, err
		}
	} else {
		a.extent = (size + granularity - 1) &^ (granularity - 1)
		va, ph, err := me.mapNew(cx.dev, a.extent)
		if err != nil {
			return nil, err
		}
		a.va, a.phys = va, ph
	}
	me.allocs.insert(a)
	return a, nil
}

// mapNew creates physical memory and maps it at a free place of the window.
func (me *memory) mapNew(dev int, size uint64) (uint64, *physical, error) {
	ph, err := me.srv.newPhysical(dev, size)
	if err != nil {
		return 0, nil, err
	}
	va, ok := me.free.take(size, granularity)
	if !ok {
		me.srv.release(ph)
		return 0, nil, fmt.Errorf("no %d free addresses", size)
	}
	if err := me.space.Map(va, ph.fd, 0, size, true); err != nil {
		me.free.give(va, size)
		me.srv.release(ph)
		return 0, nil, err
	}
	return va, ph, nil
}

func (me *memory) allocateSmall(a *allocation) error {
	a.extent = (max(a.size, 1) + slabAlign - 1) &^ (slabAlign - 1)
	for _, s := range me.slabs[a.dev] {
		if va, ok := s.free.take(a.extent, slabAlign); ok {
			a.va, a.slab = va, s
			s.used++
			return nil
		}
	}
	va, ph, err := me.mapNew(a.dev, granularity)
	if err != nil {
		return err
	}
	s := &slab{va: va, phys: ph, free: spans{{va, va + granularity}}, used: 1}
	a.va, _ = s.free.take(a.extent, slabAlign)
	a.slab = s
	me.slabs[a.dev] = append(me.slabs[a.dev], s)
	return nil
}

// dropAllocation takes a device allocation away. Nothing of the process may be running.
func (me *memory) dropAllocation(a *allocation) {
	me.allocs.remove(a)
	if a.pool != nil && !a.dying {
		a.pool.used -= a.extent
	}
	if s := a.slab; s != nil {
		s.free.give(a.va, a.extent)
		s.used--
		if s.used == 0 {
			me.slabs[a.dev] = slices.DeleteFunc(me.slabs[a.dev], func(o *slab) bool { return o == s })
			me.unmapPhysical(s.va, granularity, s.phys)
		}
		return
	}
	va := a.va
	if a.kind == allocOpened {
		va = a.opening
	}
	me.unmapPhysical(va, a.extent, a.phys)
}

func (me *memory) unmapPhysical(va, size uint64, ph *physical) {
	if err := me.space.Unmap(va, size); err != nil {
		me.srv.log.Error("unmapping device memory", "pid", me.key.pid, "err", err)
		return // the addresses stay taken, the memory counted
	}
	me.free.give(va, size)
	me.srv.release(ph)
}

// releaseMemory gives everything back at the process's end; the address space is closed next.
func (p *process) releaseMemory() {
	for _, a := range p.allocs {
		if a.phys != nil {
			p.srv.release(a.phys)
		}
	}
	for _, slabs := range p.slabs {
		for _, s := range slabs {
			p.srv.release(s.phys)
		}
	}
	for _, m := range p.mappings {
		p.srv.release(m.phys)
	}
	for _, h := range all[*memHandle](p) {
		p.srv.release(h.v.phys)
	}
	for _, h := range p.hosts {
		h.close()
	}
	p.allocs, p.slabs, p.mappings, p.hosts, p.objects, p.zombies = nil, nil, nil, nil, nil, nil
}

func memAlloc(c *call) Status {
	size := c.args[0]
	if size == 0 {
		return InvalidValue
	}
	cx := c.th.current()
	if st := c.p.refuseIfUnsafe(c.th); st != Success {
		return st
	}
	var a *allocation
	if st := c.fit(func() (err error) { a, err = c.p.allocate(cx, size, allocDevice); return }); st != Success {
		return st
	}
	return c.ret(a.va)
}

func memAllocPitch(c *call) Status {
	width, height := c.args[0], c.args[1]
	if width == 0 || height == 0 || width > c.p.srv.cfg.Memory || height > c.p.srv.cfg.Memory {
		return InvalidValue
	}
	pitch := (width + 511) &^ 511
	if height > c.p.srv.cfg.Memory/pitch {
		return OutOfMemory
	}
	cx := c.th.current()
	var a *allocation
	if st := c.fit(func() (err error) { a, err = c.p.allocate(cx, pitch*height, allocDevice); return }); st != Success {
		return st
	}
	return c.ret(a.va, pitch)
}

func memFree(c *call) Status {
	if c.args[0] == 0 {
		return Success
	}
	if st := c.p.refuseIfUnsafe(c.th); st != Success {
		return st
	}
	a := c.p.allocs.find(c.args[0])
	if a == nil || a.va != c.args[0] || !a.freeable() {
		return InvalidValue
	}
	if a.kind == allocOpened {
		return c.close(a)
	}
	if st := c.wait(c.p.lasts(nil)...); st != Success {
		return st
	}
	if a.kind == allocGraph {
		return Success // the graph keeps it
	}
	if c.p.allocs.find(a.va) != a {
		return InvalidValue // another thread freed it meanwhile
	}
	c.p.quiesce(func() { c.p.dropAllocation(a) })
	return Success
}

func memGetInfo(c *call) Status {
	s := c.p.srv
	return c.ret(s.free(c.th.current().dev), s.cfg.Memory)
}

// rangeOf is the allocation or mapping an address lies in.
func (me *memory) rangeOf(va uint64) (base, size uint64, ok bool) {
	if a := me.allocs.find(va); a != nil {
		return a.va, a.size, true
	}
	if m := me.mappingAt(va); m != nil {
		return m.va, m.size, true
	}
	if r := me.registration(va); r != nil {
		return r.Lo, r.Hi - r.Lo, true
	}
	return 0, 0, false
}

func memAddressRange(c *call) Status {
	base, size, ok := c.p.rangeOf(c.args[0])
	if !ok {
		return NotFound
	}
	return c.ret(base, size)
}

// A hostMemory is pinned host memory: a memfd that the client maps too.
type hostMemory struct {
	id    uint64
	fd    int
	mem   []byte
	size  uint64 // as asked for
	flags uint32
	kind  int
	cx    *deviceContext
	alloc *allocation // once placed
	at    uint64      // where to place it again, after a restore
}

func (h *hostMemory) close() {
	if h.mem != nil {
		_ = unix.Munmap(h.mem)
	}
	if h.fd >= 0 {
		_ = unix.Close(h.fd)
	}
}

const pageSize = 4 << 10

func newHostMemory(id, size uint64) (*hostMemory, error) {
	mapped := (size + pageSize - 1) &^ (pageSize - 1)
	fd, err := memfd("holdfast-pinned", mapped)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, int(mapped), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("map pinned memory: %w", err)
	}
	return &hostMemory{id: id, fd: fd, mem: mem, size: size}, nil
}

func hostAlloc(c *call) Status {
	size, flags, kind := c.args[0], uint32(c.args[1]), c.args[2]
	if size == 0 || kind > 1 {
		return InvalidValue
	}
	const mostPinned = 1 << 40
	if size > mostPinned {
		return OutOfMemory
	}
	c.p.serial++
	h, err := newHostMemory(c.p.serial, size)
	if err != nil {
		c.p.srv.log.Info("no pinned memory", "pid", c.p.key.pid, "bytes", size, "err", err)
		return OutOfMemory
	}
	h.flags, h.cx, h.kind = flags, c.th.current(), allocHost
	if kind == 1 {
		h.kind = allocManaged
	}
	c.p.hosts[h.id] = h
	c.outFDs = []int{h.fd}
	return c.ret(h.id, uint64(len(h.mem)))
}

func hostPlaced(c *call) Status {
	h := c.p.hosts[c.args[0]]
	if h == nil || h.alloc != nil || c.args[1]%pageSize != 0 {
		return InvalidValue
	}
	return c.p.place(h, c.args[1])
}

func (me *memory) place(h *hostMemory, va uint64) Status {
	if va+uint64(len(h.mem)) < va {
		return InvalidValue
	}
	if err := me.space.Alias(va, h.mem); err != nil {
		me.srv.log.Warn("pinned memory", "pid", me.key.pid, "err", err)
		return InvalidValue
	}
	me.serial++
	h.alloc = &allocation{va: va, size: h.size, extent: uint64(len(h.mem)), kind: h.kind, dev: h.cx.dev, cx: h.cx,
		id: me.serial, host: h}
	me.allocs.insert(h.alloc)
	// The client's mapping and ours keep the memory; a descriptor each would run out.
	_ = unix.Close(h.fd)
	h.fd = -1
	return Success
}

func hostFree(c *call) Status {
	a := c.p.allocs.find(c.args[0])
	if a == nil || a.host == nil || a.va != c.args[0] {
		return InvalidValue
	}
	if st := c.wait(c.p.lasts(nil)...); st != Success {
		return st
	}
	if c.p.allocs.find(a.va) != a {
		return InvalidValue
	}
	c.p.quiesce(func() {
		if err := c.p.space.Unalias(a.va); err != nil {
			c.p.srv.log.Error("pinned memory", "pid", c.p.key.pid, "err", err)
		}
		c.p.allocs.remove(a)
		delete(c.p.hosts, a.host.id)
		a.host.close()
	})
	return Success
}

func hostDevicePointer(c *call) Status {
	if r := c.p.registration(c.args[0]); r != nil {
		if r.mem == nil {
			if err := c.p.show(r); err != nil {
				c.p.srv.log.Warn("registered memory", "pid", c.p.key.pid, "err", err)
				return OutOfMemory
			}
		}
		return c.ret(c.args[0])
	}
	if a := c.p.allocs.find(c.args[0]); a == nil || a.host == nil {
		return InvalidValue
	}
	return c.ret(c.args[0])
}

func hostFlags(c *call) Status {
	if c.p.registration(c.args[0]) != nil {
		return c.ret(2)
	}
	a := c.p.allocs.find(c.args[0])
	if a == nil || a.host == nil {
		return InvalidValue
	}
	return c.ret(uint64(a.host.flags | 2)) // CU_MEMHOSTALLOC_DEVICEMAP holds with unified addressing
}
