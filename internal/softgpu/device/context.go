package device

import (
	"math"
	"slices"
)

// A deviceContext is a CUcontext.
type deviceContext struct {
	handle  uint64
	id      uint64
	dev     int
	primary bool
	refs    int // of a primary context
	flags   uint32
	active  bool
	limits  map[uint64]uint64
	cache   uint64
	shmem   uint64

	legacy  *stream
	streams []*stream // all, the legacy one first
	sticky  Status    // once a kernel has failed, every call returns it
}

func (w *work) newContext(dev int, flags uint32) *deviceContext {
	w.serial++
	cx := &deviceContext{dev: dev, id: w.serial, flags: flags, active: true, limits: make(map[uint64]uint64)}
	cx.handle = w.add(cx)
	w.contexts = append(w.contexts, cx)
	cx.legacy = w.newStream(cx, 0, 0)
	cx.legacy.legacy = true
	return cx
}

func (cx *deviceContext) forget(s *stream) {
	if i := slices.Index(cx.streams, s); i >= 0 {
		cx.streams = slices.Delete(cx.streams, i, i+1)
	}
}

func (c *call) device(v uint64) int {
	if int64(int32(v)) < 0 || int(int32(v)) >= c.p.srv.cfg.Devices {
		panic(InvalidDevice)
	}
	return int(int32(v))
}

// context resolves a context argument; 0 is the current one.
func (c *call) context(h uint64) *deviceContext {
	if h == 0 {
		if cx := c.th.current(); cx != nil {
			return cx
		}
		panic(InvalidContext)
	}
	cx, ok := get[*deviceContext](c.p, h)
	if !ok || !cx.active {
		panic(InvalidContext)
	}
	return cx
}

func cuInit(c *call) Status {
	if c.args[0] != 0 {
		return InvalidValue
	}
	c.p.initialised = true
	return Success
}

func primaryRetain(c *call) Status {
	dev := c.device(c.args[0])
	cx := c.p.primary(dev)
	cx.active = true
	cx.refs++
	return c.ret(cx.handle)
}

// primary gives a device's primary context, which keeps its handle for ever.
func (w *work) primary(dev int) *deviceContext {
	cx := w.primaries[dev]
	if cx == nil {
		cx = w.newContext(dev, 0)
		cx.primary, cx.active = true, false
		w.primaries[dev] = cx
	}
	return cx
}

func primaryRelease(c *call) Status {
	cx := c.p.primaries[c.device(c.args[0])]
	if cx == nil || cx.refs == 0 {
		return InvalidContext
	}
	cx.refs--
	if cx.refs > 0 || !cx.active {
		return Success
	}
	return c.destroyContext(cx)
}

func primaryReset(c *call) Status {
	cx := c.p.primaries[c.device(c.args[0])]
	if cx == nil || !cx.active {
		return Success
	}
	// Those who retained it still release it, but it is there again only for who retains it anew.
	return c.destroyContext(cx)
}

func primarySetFlags(c *call) Status {
	c.p.primary(c.device(c.args[0])).flags = uint32(c.args[1])
	return Success
}

func primaryState(c *call) Status {
	cx := c.p.primary(c.device(c.args[0]))
	return c.ret(uint64(cx.flags), truth(cx.active))
}

func ctxCreate(c *call) Status {
	cx := c.p.newContext(c.device(c.args[1]), uint32(c.args[0]))
	c.th.stack = append(c.th.stack, cx)
	return c.ret(cx.handle)
}

func ctxDestroy(c *call) Status {
	cx := c.context(c.args[0])
	if cx.primary {
		return InvalidContext
	}
	st := c.destroyContext(cx)
	delete(c.p.objects, cx.handle)
	c.p.contexts = slices.DeleteFunc(c.p.contexts, func(o *deviceContext) bool { return o == cx })
	if c.th.current() == cx {
		c.th.stack = c.th.stack[:len(c.th.stack)-1]
	}
	return st
}

// destroyContext waits for the context's work and takes away what belongs to it. A
// primary context keeps its handle and its (empty) default stream.
func (c *call) destroyContext(cx *deviceContext) Status {
	p := c.p
	if st := c.wait(p.lasts(cx)...); st != Success {
		return st
	}
	c.flush()
	for _, s := range cx.streams {
		if s.capture != nil {
			s.capture.invalidate()
			s.capture.drop()
		}
	}
	p.quiesce(func() {
		for h, v := range p.objects {
			switch v := v.(type) {
			case *stream:
				if v.cx == cx {
					delete(p.objects, h)
				}
			case *event:
				if v.cx == cx {
					delete(p.objects, h)
				}
			case *module:
				if v.cx == cx {
					p.dropModule(v)
				}
			case *array:
				if v.cx == cx {
					delete(p.objects, h)
				}
			case *mipmap:
				if v.cx == cx {
					delete(p.objects, h)
				}
			case *textureObject:
				if v.cx == cx {
					p.unbind(v)
				}
			case *library:
				delete(v.modules, cx)
			}
		}
		for _, a := range slices.Clone(p.allocs) {
			if a.cx == cx && a.host == nil && a.kind != allocGraph {
				if a == p.heap {
					p.heap = nil
					_ = p.space.SetHeap(0, 0)
				}
				p.dropAllocation(a)
			}
		}
	})
	for _, t := range p.threads {
		delete(t.perThread, cx)
	}
	cx.active = false
	cx.sticky = Success
	cx.streams = nil
	cx.legacy = p.newStream(cx, 0, 0)
	cx.legacy.legacy = true
	return Success
}

// A primary context that nobody holds can be made current all the same: calls that need it are refused, and
// it serves them again once it has been retained.
func ctxPush(c *call) Status {
	const deepest = 1 << 10
	cx, ok := get[*deviceContext](c.p, c.args[0])
	if !ok || len(c.th.stack) > deepest {
		return InvalidContext
	}
	c.th.stack = append(c.th.stack, cx)
	return Success
}

func ctxPop(c *call) Status {
	cx := c.th.current()
	if cx == nil {
		return InvalidContext
	}
	c.th.stack = c.th.stack[:len(c.th.stack)-1]
	return c.ret(cx.handle)
}

func ctxSetCurrent(c *call) Status {
	var next []*deviceContext
	if c.args[0] != 0 {
		cx, ok := get[*deviceContext](c.p, c.args[0])
		if !ok {
			return InvalidContext
		}
		next = []*deviceContext{cx}
	}
	if n := len(c.th.stack); n > 0 {
		c.th.stack = c.th.stack[:n-1]
	}
	c.th.stack = append(c.th.stack, next...)
	return Success
}

func ctxGetCurrent(c *call) Status {
	if cx := c.th.current(); cx != nil {
		return c.ret(cx.handle)
	}
	return c.ret(0)
}

func ctxGetDevice(c *call) Status {
	var h uint64
	if len(c.args) > 0 {
		h = c.args[0]
	}
	return c.ret(uint64(c.context(h).dev))
}

func ctxSynchronize(c *call) Status {
	var h uint64
	if len(c.args) > 0 {
		h = c.args[0]
	}
	cx := c.context(h)
	if !cx.active {
		return ContextIsDestroyed
	}
	if cx.sticky != Success {
		return cx.sticky
	}
	if st := c.p.refuseIfCapturing(cx); st != Success {
		return st
	}
	if st := c.wait(c.p.lasts(cx)...); st != Success {
		return st
	}
	c.flush()
	return cx.sticky
}

const limitMallocHeap = 2 // CU_LIMIT_MALLOC_HEAP_SIZE

// The limits (CUlimit) and what they are at first.
var limitDefaults = map[uint64]uint64{
	0:               1024,    // stack size
	1:               1 << 20, // printf buffer
	limitMallocHeap: 8 << 20,
	3:               2,    // synchronisation depth
	4:               2048, // pending launches
	5:               128,  // L2 fetch granularity
	6:               0,    // persisting L2
}

func ctxSetLimit(c *call) Status {
	if _, ok := limitDefaults[c.args[0]]; !ok {
		return InvalidValue
	}
	c.th.current().limits[c.args[0]] = c.args[1]
	return Success
}

func ctxGetLimit(c *call) Status {
	v, ok := limitDefaults[c.args[0]]
	if !ok {
		return InvalidValue
	}
	if set, ok := c.th.current().limits[c.args[0]]; ok {
		v = set
	}
	return c.ret(v)
}

func ctxEnablePeer(c *call) Status {
	to, from := c.context(c.args[0]), c.th.current()
	if to.dev == from.dev || c.args[1] != 0 {
		return InvalidDevice
	}
	if c.p.peers[[2]int{from.dev, to.dev}] {
		return PeerAccessEnabled
	}
	c.p.peers[[2]int{from.dev, to.dev}] = true
	return Success
}

func ctxDisablePeer(c *call) Status {
	to, from := c.context(c.args[0]), c.th.current()
	if !c.p.peers[[2]int{from.dev, to.dev}] {
		return PeerAccessNotEnabled
	}
	delete(c.p.peers, [2]int{from.dev, to.dev})
	return Success
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func floatBits(f float32) uint64 { return uint64(math.Float32bits(f)) }
