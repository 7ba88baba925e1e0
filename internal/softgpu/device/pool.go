package device

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A pool is a CUmemoryPool. Its memory is allocated when the call is made and freed when
// the stream reaches the free; nothing is kept for reuse, so that the reserved memory is the used.
type pool struct {
	handle    uint64
	dev       int
	isDefault bool
	attrs     map[uint64]uint64
	used      uint64
	high      uint64
	types     uint32 // handle types it can be exported as
	imported  bool   // of another process: nothing is allocated from it
}

// Attributes of pools (CUmemPool_attribute).
const (
	poolReuseFollowEvent   = 1
	poolReuseOpportunistic = 2
	poolReuseInternal      = 3
	poolReleaseThreshold   = 4
	poolReservedCurrent    = 5
	poolReservedHigh       = 6
	poolUsedCurrent        = 7
	poolUsedHigh           = 8
)

func (me *memory) newPool(dev int) *pool {
	po := &pool{dev: dev, attrs: map[uint64]uint64{poolReuseFollowEvent: 1, poolReuseOpportunistic: 1,
		poolReuseInternal: 1}}
	po.handle = me.add(po)
	return po
}

// current is the pool of cuMemAllocAsync on a device.
func (me *memory) poolOf(dev int) *pool {
	if me.defaultPool[dev] == nil {
		me.defaultPool[dev] = me.newPool(dev)
		me.defaultPool[dev].isDefault = true
	}
	if me.currentPool[dev] == nil {
		me.currentPool[dev] = me.defaultPool[dev]
	}
	return me.currentPool[dev]
}

func (c *call) allocFromPool(po *pool, size uint64, s *stream) Status {
	if size == 0 || po.imported {
		return InvalidValue
	}
	if s.capture != nil {
		return c.captureAlloc(s, size)
	}
	cx := s.cx
	var a *allocation
	if st := c.fit(func() (err error) { a, err = c.p.allocate(cx, size, allocPool); return }); st != Success {
		return st
	}
	a.pool = po
	po.used += a.extent
	po.high = max(po.high, po.used)
	return c.ret(a.va)
}

func memAllocAsync(c *call) Status {
	s := c.stream(c.args[1])
	return c.allocFromPool(c.p.poolOf(s.cx.dev), c.args[0], s)
}

func memAllocFromPool(c *call) Status {
	return c.allocFromPool(must[*pool](c, c.args[1]), c.args[0], c.stream(c.args[2]))
}

func memFreeAsync(c *call) Status {
	s := c.stream(c.args[1])
	if c.args[0] == 0 {
		return Success
	}
	if s.capture != nil {
		return c.captureFree(s, c.args[0])
	}
	a := c.p.allocs.find(c.args[0])
	if a == nil || a.va != c.args[0] || !a.freeable() {
		return InvalidValue
	}
	if a.kind == allocGraph {
		return Success // the graph keeps it
	}
	if a.opened > 1 {
		a.opened--
		return Success
	}
	// The address is dead for new calls at once, the memory when the stream gets here.
	a.dying = true
	if a.pool != nil {
		a.pool.used -= a.extent
	}
	p := c.p
	p.submit(s, &task{always: true, run: func() Status {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.zombies = append(p.zombies, a)
		return Success
	}})
	return Success
}

func poolCreate(c *call) Status {
	props := c.record(88) // CUmemPoolProps; 12.x and 13.x begin alike
	if u32(props, 0) != allocationPinned || u32(props, 8) != locationDevice {
		return InvalidValue
	}
	types := u32(props, 4)
	if types&^handleTypeFD != 0 {
		return NotSupported
	}
	po := c.p.newPool(c.device(uint64(u32(props, 12))))
	po.types = types
	return c.ret(po.handle)
}

const poolName = "holdfast-pool"

// poolExport answers with a descriptor that only stands for the pool: its memory is shared pointer by pointer.
func poolExport(c *call) Status {
	po := must[*pool](c, c.args[0])
	if po.types&handleTypeFD == 0 || c.args[1] != handleTypeFD {
		return InvalidValue
	}
	fd, err := memfd(fmt.Sprintf("%s%d", poolName, po.dev), pageSize)
	if err != nil {
		c.p.srv.log.Error("export of a pool failed", "pid", c.p.key.pid, "err", err)
		return OperatingSystem
	}
	c.outFDs = []int{fd}
	c.after = func() { _ = unix.Close(fd) }
	return Success
}

func poolImport(c *call) Status {
	if c.args[0] != handleTypeFD || len(c.fds) != 1 {
		return InvalidValue
	}
	dev, ours, err := deviceOf(c.fds[0], poolName)
	if err != nil || !ours {
		return InvalidValue
	}
	po := c.p.newPool(c.device(uint64(dev)))
	po.imported = true
	return c.ret(po.handle)
}

func poolExportPointer(c *call) Status {
	a := c.p.allocs.find(c.args[0])
	if a == nil || a.va != c.args[0] || a.pool == nil || a.pool.types == 0 {
		return InvalidValue
	}
	c.retBlob(c.p.share(a))
	return Success
}

func poolImportPointer(c *call) Status {
	po := must[*pool](c, c.args[0])
	if !po.imported {
		return InvalidValue
	}
	return c.open(c.blob(), c.th.current(), po)
}

func poolDestroy(c *call) Status {
	po := must[*pool](c, c.args[0])
	if po.isDefault {
		return InvalidValue
	}
	delete(c.p.objects, po.handle)
	if c.p.currentPool[po.dev] == po {
		c.p.currentPool[po.dev] = c.p.defaultPool[po.dev]
	}
	return Success
}

func poolTrim(c *call) Status {
	must[*pool](c, c.args[0])
	return Success
}

func poolSetAttribute(c *call) Status {
	po, attr := must[*pool](c, c.args[0]), c.args[1]
	b := c.blob()
	var v uint64
	switch {
	case attr >= poolReuseFollowEvent && attr <= poolReuseInternal && len(b) >= 4:
		v = uint64(u32(b, 0))
	case attr >= poolReleaseThreshold && attr <= poolUsedHigh && len(b) >= 8:
		v = u64(b, 0)
	default:
		return InvalidValue
	}
	switch attr {
	case poolReservedHigh, poolUsedHigh:
		if v != 0 {
			return InvalidValue
		}
		po.high = po.used
	case poolReservedCurrent, poolUsedCurrent:
		return InvalidValue
	default:
		po.attrs[attr] = v
	}
	return Success
}

func poolGetAttribute(c *call) Status {
	po, attr := must[*pool](c, c.args[0]), c.args[1]
	switch attr {
	case poolReuseFollowEvent, poolReuseOpportunistic, poolReuseInternal:
		c.retBlob(le32(uint32(po.attrs[attr])))
	case poolReleaseThreshold:
		c.retBlob(le64(po.attrs[attr]))
	case poolReservedCurrent, poolUsedCurrent:
		c.retBlob(le64(po.used))
	case poolReservedHigh, poolUsedHigh:
		c.retBlob(le64(po.high))
	default:
		return InvalidValue
	}
	return Success
}

func poolSetAccess(c *call) Status {
	must[*pool](c, c.args[0])
	return Success
}

func poolGetAccess(c *call) Status {
	must[*pool](c, c.args[0])
	return c.ret(accessReadWrite)
}

func deviceSetPool(c *call) Status {
	dev, po := c.device(c.args[0]), must[*pool](c, c.args[1])
	if po.dev != dev {
		return InvalidValue
	}
	c.p.poolOf(dev)
	c.p.currentPool[dev] = po
	return Success
}

func deviceGetPool(c *call) Status {
	return c.ret(c.p.poolOf(c.device(c.args[0])).handle)
}

func deviceDefaultPool(c *call) Status {
	dev := c.device(c.args[0])
	c.p.poolOf(dev)
	return c.ret(c.p.defaultPool[dev].handle)
}

// locationPool is a call that names a device by its location.
func locationPool(of func(*call) Status) func(*call) Status {
	return func(c *call) Status {
		dev, st := c.location()
		if st != Success || c.args[0] != allocationPinned {
			return InvalidValue
		}
		c.args = []uint64{dev}
		return of(c)
	}
}

func (c *call) location() (dev uint64, st Status) {
	if b := c.record(sizeofLocation); u32(b, 0) == locationDevice {
		return uint64(u32(b, 4)), Success
	}
	return 0, NotSupported
}

func locationSetPool(c *call) Status {
	dev, st := c.location()
	if st != Success || c.args[0] != allocationPinned {
		return InvalidValue
	}
	c.args = []uint64{dev, c.args[1]}
	return deviceSetPool(c)
}
