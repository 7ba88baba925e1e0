package device

import (
	"encoding/binary"
	"fmt"
)

// Memory of one process in another, the way before exportable handles: a CUipcMemHandle, or what a memory pool tells of
// a pointer, names an allocation of a living process. It says nothing that its own user does not know, and is looked up
// when it is used.
const (
	sharedMagic  = 0x31637069_4648 // "HFipc1"
	sizeofShared = 64
)

// share gives an allocation's name to others.
func (p *process) share(a *allocation) []byte {
	a.shared = true
	b := make([]byte, sizeofShared)
	for i, v := range []uint64{sharedMagic, uint64(p.key.pid), p.key.nonce, a.va, a.id} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return b
}

// A sharedPlace is where an allocation lies in physical memory.
type sharedPlace struct {
	phys *physical
	off  uint64
	size uint64
	dev  int
}

// lookUp finds what a name stands for, in another process, and holds its memory. Called without any lock.
func (s *server) lookUp(b []byte) (sharedPlace, Status) {
	if len(b) < sizeofShared || u64(b, 0) != sharedMagic {
		return sharedPlace{}, InvalidValue
	}
	s.mu.Lock()
	p := s.procs[procKey{int32(u64(b, 8)), u64(b, 16)}]
	s.mu.Unlock()
	if p == nil {
		return sharedPlace{}, InvalidValue
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.allocs.find(u64(b, 24))
	if a == nil || a.va != u64(b, 24) || a.id != u64(b, 32) || !a.shared {
		return sharedPlace{}, InvalidValue
	}
	at := sharedPlace{phys: a.phys, size: a.size, dev: a.dev}
	if a.slab != nil {
		at.phys, at.off = a.slab.phys, a.va-a.slab.va
	}
	if at.phys == nil {
		return sharedPlace{}, InvalidValue
	}
	s.hold(at.phys)
	return at, Success
}

// open maps memory of another process, and takes over the reference to it.
func (p *process) open(cx *deviceContext, at sharedPlace, po *pool) (*allocation, error) {
	va, ok := p.free.take(at.phys.size, granularity)
	if !ok {
		return nil, fmt.Errorf("no %d free addresses", at.phys.size)
	}
	if err := p.space.Map(va, at.phys.fd, 0, at.phys.size, true); err != nil {
		p.free.give(va, at.phys.size)
		return nil, err
	}
	p.serial++
	a := &allocation{va: va + at.off, size: at.size, extent: at.phys.size, kind: allocOpened,
		dev: at.dev, cx: cx, id: p.serial,
		phys: at.phys, opened: 1, opening: va, pool: po}
	p.allocs.insert(a)
	if po != nil {
		po.used += a.extent
		po.high = max(po.high, po.used)
	}
	return a, nil
}

// sharesMemory reports whether memory of the process is another's as well, which a checkpoint could not keep so.
func (p *process) sharesMemory() bool {
	for _, a := range p.allocs {
		if a.shared || a.kind == allocOpened {
			return true
		}
	}
	return false
}

func ipcGetMemHandle(c *call) Status {
	a := c.p.allocs.find(c.args[0])
	if a == nil || a.kind != allocDevice {
		return InvalidValue
	}
	c.retBlob(c.p.share(a))
	return Success
}

func ipcOpenMemHandle(c *call) Status {
	const lazyPeerAccess = 1 // all devices of a process have access anyway
	handle, cx := c.blob(), c.th.current()
	if c.args[0]&^lazyPeerAccess != 0 {
		return InvalidValue
	}
	return c.open(handle, cx, nil)
}

// open maps what a name stands for, or finds it mapped. Memory of a pool comes through a pool.
func (c *call) open(name []byte, cx *deviceContext, po *pool) Status {
	if len(name) >= sizeofShared && int32(u64(name, 8)) == c.p.key.pid && u64(name, 16) == c.p.key.nonce {
		return InvalidContext // one's own memory
	}
	c.unlock()
	at, st := c.p.srv.lookUp(name)
	c.lock()
	if st != Success {
		return st
	}
	for _, a := range c.p.allocs {
		if a.kind == allocOpened && a.phys == at.phys && a.va-a.opening == at.off && a.pool == po && !a.dying {
			a.opened++
			c.p.srv.release(at.phys)
			return c.ret(a.va)
		}
	}
	a, err := c.p.open(cx, at, po)
	if err != nil {
		c.p.srv.release(at.phys)
		c.p.srv.log.Warn("memory of another process", "pid", c.p.key.pid, "err", err)
		return OutOfMemory
	}
	return c.ret(a.va)
}

func ipcCloseMemHandle(c *call) Status {
	a := c.p.allocs.find(c.args[0])
	if a == nil || a.va != c.args[0] || a.kind != allocOpened || a.pool != nil {
		return InvalidValue
	}
	return c.close(a)
}

// close gives one opening of another process's memory back.
func (c *call) close(a *allocation) Status {
	if a.opened > 1 {
		a.opened--
		return Success
	}
	if st := c.wait(c.p.lasts(nil)...); st != Success {
		return st
	}
	if c.p.allocs.find(a.va) != a {
		return InvalidValue // another thread closed it meanwhile
	}
	if a.opened--; a.opened > 0 {
		return Success // or opened it
	}
	c.p.quiesce(func() { c.p.dropAllocation(a) })
	return Success
}
