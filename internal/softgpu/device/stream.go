package device

import "time"

// Flags of streams and events (cuda.h).
const (
	streamNonBlocking  = 1
	eventBlockingSync  = 1
	eventDisableTiming = 2
	eventInterprocess  = 4
	handleLegacy       = 1
	handlePerThread    = 2
	leastPriority      = 0
	greatestPriority   = -5
)

// A stream runs its tasks in order, each on top of that after the tasks it depends on.
type stream struct {
	handle   uint64 // 0 for a default stream
	cx       *deviceContext
	flags    uint32
	priority int32
	id       uint64
	thread   int32 // of a per-thread default stream
	legacy   bool

	queue []*task
	busy  bool // a goroutine drains queue
	last  *task

	capture *capture // while captured into a graph
	leaves  []*node  // what the next captured node depends on
}

// wait gives the process lock up until the tasks are done. It ends early, and
// fails, when the process goes.
func (c *call) wait(tasks ...*task) Status {
	pending := tasks[:0:0]
	for _, t := range tasks {
		if !t.finished() {
			pending = append(pending, t)
		}
	}
	if len(pending) > 0 {
		c.unlock()
		for _, t := range pending {
			select {
			case <-t.done:
			case <-c.p.dead:
				c.lock()
				return NotInitialized
			}
		}
		c.lock()
	}
	return Success
}

// before is what waiting for a stream means: its last task, and for the legacy stream, which would put
// a marker behind them, those of the blocking streams.
func (s *stream) before() []*task {
	if !s.legacy {
		return []*task{s.last}
	}
	var out []*task
	for _, o := range s.cx.streams {
		if o.flags&streamNonBlocking == 0 && !o.last.finished() {
			out = append(out, o.last)
		}
	}
	return out
}

// stream resolves a stream argument; what is not a stream ends the operation.
func (c *call) stream(h uint64) *stream {
	switch h {
	case 0, handleLegacy:
		cx := c.th.current()
		if cx == nil {
			panic(InvalidContext)
		}
		return cx.legacy
	case handlePerThread:
		cx := c.th.current()
		if cx == nil {
			panic(InvalidContext)
		}
		s := c.th.perThread[cx]
		if s == nil {
			s = c.p.newStream(cx, 0, 0)
			s.thread = c.th.tid
			c.th.perThread[cx] = s
		}
		return s
	}
	s := must[*stream](c, h)
	if s.cx.sticky != Success {
		panic(s.cx.sticky)
	}
	return s
}

func (w *work) newStream(cx *deviceContext, flags uint32, priority int32) *stream {
	w.serial++
	s := &stream{cx: cx, flags: flags, priority: priority, id: w.serial}
	cx.streams = append(cx.streams, s)
	return s
}

func (c *call) streamCreate(flags uint64, priority int32) Status {
	if flags&^streamNonBlocking != 0 {
		return InvalidValue
	}
	s := c.p.newStream(c.th.current(), uint32(flags), min(max(priority, greatestPriority), leastPriority))
	s.handle = c.p.add(s)
	return c.ret(s.handle)
}

func streamDestroy(c *call) Status {
	s := must[*stream](c, c.args[0])
	if s.capture != nil {
		s.capture.invalidate()
	}
	// Submitted work still runs; the stream only loses its handle. The context forgets it
	// once idle, so that the legacy stream still waits for it.
	delete(c.p.objects, s.handle)
	c.p.retire(s)
	return Success
}

// retire lets the context forget a stream once its work is done.
func (w *work) retire(s *stream) {
	w.submit(s, &task{always: true, run: func() Status {
		w.mu.Lock()
		defer w.mu.Unlock()
		s.cx.forget(s)
		return Success
	}})
}

// streamSync waits for a stream and returns what its context has become.
func (c *call) streamSync(s *stream) Status {
	if s.capture != nil {
		s.capture.invalidate()
		return CaptureUnsupported
	}
	if st := c.wait(s.before()...); st != Success {
		return st
	}
	c.flush()
	return s.cx.sticky
}

// flush hands printf output to the program, if there is any.
func (c *call) flush() {
	c.p.printMu.Lock()
	n := c.p.printed.Len()
	c.p.printMu.Unlock()
	if n > 0 {
		c.unlock()
		c.p.flush()
		c.lock()
	}
}

func streamQuery(c *call) Status {
	s := c.stream(c.args[0])
	if s.capture != nil {
		s.capture.invalidate()
		return CaptureUnsupported
	}
	for _, t := range s.before() {
		if !t.finished() {
			return NotReady
		}
	}
	return s.cx.sticky
}

func streamWaitEvent(c *call) Status {
	s, e := c.stream(c.args[0]), must[*event](c, c.args[1])
	if e.captured != nil {
		return s.joinCapture(e)
	}
	if s.capture != nil {
		if e.rec == nil {
			return Success
		}
		if c.args[2]&1 != 0 { // CU_EVENT_WAIT_EXTERNAL
			s.addNode(&node{Kind: nodeEventWait, Event: c.args[1]})
			return Success
		}
		s.capture.invalidate()
		return CaptureIsolation
	}
	if e.rec == nil || e.rec.task.finished() {
		return Success
	}
	c.p.submit(s, &task{always: true, deps: []*task{e.rec.task}})
	return Success
}

// An event marks a place in a stream.
type event struct {
	handle   uint64
	cx       *deviceContext
	flags    uint32
	rec      *record
	captured *capture // recorded into a capture
	leaves   []*node
}

// A record is one recording of an event.
type record struct {
	task *task
	when time.Time // once the task is done
}

func eventCreate(c *call) Status {
	flags := c.args[0]
	if flags&^(eventBlockingSync|eventDisableTiming|eventInterprocess) != 0 {
		return InvalidValue
	}
	if flags&eventInterprocess != 0 {
		return NotSupported
	}
	e := &event{cx: c.th.current(), flags: uint32(flags)}
	e.handle = c.p.add(e)
	return c.ret(e.handle)
}

func eventDestroy(c *call) Status {
	e := must[*event](c, c.args[0])
	delete(c.p.objects, e.handle)
	return Success
}

func eventRecord(c *call) Status {
	e, s := must[*event](c, c.args[0]), c.stream(c.args[1])
	if s.capture != nil {
		if st := s.capture.usable(); st != Success {
			return st
		}
		if len(c.args) > 2 && c.args[2]&1 != 0 { // CU_EVENT_RECORD_EXTERNAL
			s.addNode(&node{Kind: nodeEventRecord, Event: c.args[0]})
			return Success
		}
		e.captured, e.leaves = s.capture, append([]*node(nil), s.leaves...)
		return Success
	}
	if e.cx != s.cx {
		return InvalidHandle
	}
	e.captured, e.leaves = nil, nil
	c.p.record(e, s)
	return Success
}

func (w *work) record(e *event, s *stream) {
	r := &record{}
	e.rec = r
	r.task = w.submit(s, &task{always: true, run: func() Status {
		w.mu.Lock()
		defer w.mu.Unlock()
		r.when = time.Now()
		return Success
	}})
}

func eventQuery(c *call) Status {
	e := must[*event](c, c.args[0])
	if e.captured != nil {
		return CapturedEvent
	}
	if e.rec != nil && !e.rec.task.finished() {
		return NotReady
	}
	return e.cx.sticky
}

func eventSynchronize(c *call) Status {
	e := must[*event](c, c.args[0])
	if e.captured != nil {
		return CapturedEvent
	}
	if e.rec != nil {
		if st := c.wait(e.rec.task); st != Success {
			return st
		}
	}
	c.flush()
	return e.cx.sticky
}

func eventElapsed(c *call) Status {
	a, b := must[*event](c, c.args[0]), must[*event](c, c.args[1])
	if a.rec == nil || b.rec == nil || (a.flags|b.flags)&eventDisableTiming != 0 {
		return InvalidHandle
	}
	if !a.rec.task.finished() || !b.rec.task.finished() {
		return NotReady
	}
	return c.ret(floatBits(float32(b.rec.when.Sub(a.rec.when).Seconds() * 1e3)))
}

// Attributes of streams (CUstreamAttrID) that can be set; none has an effect.
var streamAttributes = map[uint64]bool{
	1: true,           // access policy window
	3: true,           // synchronisation policy
	8: true,           // priority
	9: true, 10: true, // memory synchronisation domains
}

const sizeofAttributeValue = 64

func streamGetAttribute(c *call) Status {
	s := c.stream(c.args[0])
	if !streamAttributes[c.args[1]] {
		return InvalidValue
	}
	v := make([]byte, sizeofAttributeValue)
	switch c.args[1] {
	case 3:
		v[0] = 1 // automatic
	case 8:
		copy(v, le32(uint32(s.priority)))
	}
	c.retBlob(v)
	return Success
}

func streamSetAttribute(c *call) Status {
	c.stream(c.args[0])
	c.record(4)
	if !streamAttributes[c.args[1]] {
		return InvalidValue
	}
	return Success
}
