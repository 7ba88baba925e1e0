package device

import (
	"sync/atomic"
	"unsafe"
)

// A memop is one stream memory operation: a write, or a wait for a value.
type memop struct {
	addr, value uint64
	bytes       uint64 // 4 or 8
	wait        bool
	compare     uint32 // of a wait
}

// How a wait compares (CUstreamWaitValue_flags).
const (
	waitGEQ   = 0
	waitEQ    = 1
	waitAnd   = 2
	waitNor   = 3
	waitFlush = 1 << 30
)

// Types of CUstreamBatchMemOpParams, 48 bytes each.
const (
	opWait32       = 1
	opWrite32      = 2
	opFlush        = 3
	opWait64       = 4
	opWrite64      = 5
	opBarrier      = 6
	sizeofMemop    = 48
	maxMemops      = 256
	writeNoBarrier = 1
)

func (o *memop) valid(p *process, flags uint64) bool {
	if o.wait {
		o.compare = uint32(flags &^ waitFlush)
		if o.compare > waitNor {
			return false
		}
	} else if flags&^writeNoBarrier != 0 {
		return false
	}
	if o.bytes == 4 {
		o.value = uint64(uint32(o.value))
	}
	return o.addr%o.bytes == 0 && p.mapped(o.addr, o.bytes)
}

// load reads the operand. It may fault if memory went away.
func (o *memop) load(p *process) (uint64, Status) {
	b, st := p.bytes(o.addr, o.bytes)
	if st != Success {
		return 0, st
	}
	if o.bytes == 8 {
		return atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[0]))), Success
	}
	return uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[0])))), Success
}

// holds reports whether a wait is over; it is when the memory is gone.
func (o *memop) holds(p *process) bool {
	v, st := o.load(p)
	if st != Success {
		return true
	}
	switch o.compare {
	case waitGEQ:
		if o.bytes == 4 {
			return int32(v-o.value) >= 0
		}
		return int64(v-o.value) >= 0
	case waitEQ:
		return v == o.value
	case waitAnd:
		return v&o.value != 0
	}
	if o.bytes == 4 {
		return ^uint32(v|o.value) != 0
	}
	return ^(v | o.value) != 0
}

func (o *memop) write(p *process) Status {
	b, st := p.bytes(o.addr, o.bytes)
	if st != Success {
		return st
	}
	if o.bytes == 8 {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[0])), o.value)
	} else {
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[0])), uint32(o.value))
	}
	return Success
}

func (c *call) memops(s *stream, ops []memop) Status {
	if s.capture != nil {
		s.capture.invalidate()
		return CaptureUnsupported
	}
	p := c.p
	for _, o := range ops {
		t := &task{run: func() Status { return o.write(p) }}
		if o.wait {
			t.run, t.until = nil, func() bool { return o.holds(p) }
		}
		p.submit(s, t)
	}
	return Success
}

// streamMemop is cuStreamWaitValue and cuStreamWriteValue, of 32 and 64 bits.
func streamMemop(bytes uint64, wait bool) func(*call) Status {
	return func(c *call) Status {
		s := c.stream(c.args[0])
		o := memop{addr: c.args[1], value: c.args[2], bytes: bytes, wait: wait}
		if !o.valid(c.p, c.args[3]) {
			return InvalidValue
		}
		return c.memops(s, []memop{o})
	}
}

func streamBatchMemop(c *call) Status {
	s, n, b := c.stream(c.args[0]), c.args[1], c.blob()
	if n > maxMemops || uint64(len(b)) < n*sizeofMemop {
		return InvalidValue
	}
	var ops []memop
	for ; n > 0; n, b = n-1, b[sizeofMemop:] {
		o := memop{addr: u64(b, 8), value: u64(b, 16), bytes: 4}
		switch u32(b, 0) {
		case opWait32:
			o.wait = true
		case opWrite32:
		case opWait64:
			o.wait, o.bytes = true, 8
		case opWrite64:
			o.bytes = 8
		case opFlush, opBarrier:
			continue // writes are seen at once
		default:
			return InvalidValue
		}
		if !o.valid(c.p, uint64(u32(b, 24))) {
			return InvalidValue
		}
		ops = append(ops, o)
	}
	return c.memops(s, ops)
}
