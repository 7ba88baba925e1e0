package device

import "slices"

// Capture modes (CUstreamCaptureMode) and states (CUstreamCaptureStatus).
const (
	captureGlobal      = 0
	captureThreadLocal = 1
	captureRelaxed     = 2
	captureNone        = 0
	captureActive      = 1
	captureInvalidated = 2
)

// A capture turns the work of some streams into a graph.
type capture struct {
	p       *process
	id      uint64
	graph   *graph
	given   bool // the graph was there before
	mode    int
	thread  int32
	origin  *stream
	streams []*stream
	invalid bool
}

func (k *capture) invalidate() { k.invalid = true }

func (k *capture) usable() Status {
	if k.invalid {
		return CaptureInvalidated
	}
	return Success
}

// drop ends the capture and forgets its streams.
func (k *capture) drop() {
	for _, s := range k.streams {
		s.capture, s.leaves = nil, nil
	}
	delete(k.p.captures, k.id)
}

// addNode captures one piece of work.
func (s *stream) addNode(n *node) Status {
	k := s.capture
	if st := k.usable(); st != Success {
		return st
	}
	if st := k.p.addToGraph(k.graph, n, s.leaves); st != Success {
		k.invalidate()
		return st
	}
	s.leaves = []*node{n}
	return Success
}

// joinCapture makes a stream wait for an event that was captured.
func (s *stream) joinCapture(e *event) Status {
	k := e.captured
	if k.p.captures[k.id] != k {
		return InvalidValue // that capture has ended
	}
	if st := k.usable(); st != Success {
		return st
	}
	switch {
	case s.capture == nil && s.legacy:
		k.invalidate()
		return CaptureImplicit
	case s.capture == nil:
		s.capture = k
		s.leaves = slices.Clone(e.leaves)
		k.streams = append(k.streams, s)
		return Success
	case s.capture != k:
		s.capture.invalidate()
		k.invalidate()
		return CaptureMerge
	}
	for _, n := range e.leaves {
		if !slices.Contains(s.leaves, n) {
			s.leaves = append(slices.Clip(s.leaves), n)
		}
	}
	return Success
}

func beginCapture(c *call) Status { return c.beginCapture(c.args[1], nil, nil) }

// beginCaptureToGraph captures into a graph that is there, behind some of its nodes.
func beginCaptureToGraph(c *call) Status {
	g := must[*graph](c, c.args[1])
	var leaves []*node
	for _, h := range c.words() {
		n := must[*node](c, h)
		if n.graph != g || slices.Contains(leaves, n) {
			return InvalidValue
		}
		leaves = append(leaves, n)
	}
	for _, b := range c.blob() {
		if b != 0 {
			return NotSupported // edges that are not plain dependences
		}
	}
	return c.beginCapture(c.args[3], g, leaves)
}

func (c *call) beginCapture(mode uint64, g *graph, leaves []*node) Status {
	s := c.stream(c.args[0])
	if mode > captureRelaxed {
		return InvalidValue
	}
	if s.legacy {
		return CaptureUnsupported
	}
	if s.capture != nil {
		return IllegalState
	}
	p := c.p
	p.serial++
	k := &capture{p: p, id: p.serial, graph: g, given: g != nil, mode: int(mode), thread: c.th.tid, origin: s,
		streams: []*stream{s}}
	if g == nil {
		k.graph = p.newGraph()
	}
	p.captures[k.id] = k
	s.capture, s.leaves = k, leaves
	return Success
}

func endCapture(c *call) Status {
	s := c.stream(c.args[0])
	k := s.capture
	switch {
	case k == nil:
		return IllegalState
	case k.origin != s:
		k.invalidate()
		return CaptureUnmatched
	case k.mode != captureRelaxed && k.thread != c.th.tid:
		return CaptureWrongThread
	}
	st := k.usable()
	if st == Success && !k.joined() {
		st = CaptureUnjoined
	}
	k.drop()
	if st != Success {
		if !k.given {
			c.p.dropGraph(k.graph)
		}
		return st
	}
	return c.ret(k.graph.handle)
}

// joined reports whether all captured work is before what the origin stream
// would do next.
func (k *capture) joined() bool {
	before := make(map[*node]bool)
	work := slices.Clone(k.origin.leaves)
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		if !before[n] {
			before[n] = true
			work = append(work, n.deps...)
		}
	}
	for _, s := range k.streams {
		for _, n := range s.leaves {
			if !before[n] {
				return false
			}
		}
	}
	return true
}

func (s *stream) captureStatus() uint64 {
	switch {
	case s.capture == nil:
		return captureNone
	case s.capture.invalid:
		return captureInvalidated
	}
	return captureActive
}

func isCapturing(c *call) Status {
	s := c.stream(c.args[0])
	if s.legacy {
		if st := c.p.refuseIfImplicit(s); st != Success {
			return st
		}
	}
	return c.ret(s.captureStatus())
}

func captureInfo(c *call) Status {
	s := c.stream(c.args[0])
	if s.legacy {
		if st := c.p.refuseIfImplicit(s); st != Success {
			return st
		}
	}
	if s.capture == nil {
		c.retNodes(nil)
		return c.ret(captureNone, 0, 0, 0)
	}
	c.retNodes(s.leaves)
	return c.ret(s.captureStatus(), s.capture.id, s.capture.graph.handle, uint64(len(s.leaves)))
}

func updateCaptureDependencies(c *call) Status {
	s := c.stream(c.args[0])
	if s.capture == nil {
		return IllegalState
	}
	if st := s.capture.usable(); st != Success {
		return st
	}
	var deps []*node
	for _, h := range c.words() {
		n := must[*node](c, h)
		if n.graph != s.capture.graph {
			return InvalidValue
		}
		deps = append(deps, n)
	}
	const set = 1 // CU_STREAM_SET_CAPTURE_DEPENDENCIES; 0 adds
	if c.args[len(c.args)-1] == set {
		s.leaves = deps
		return Success
	}
	for _, n := range deps {
		if !slices.Contains(s.leaves, n) {
			s.leaves = append(slices.Clip(s.leaves), n)
		}
	}
	return Success
}

func exchangeCaptureMode(c *call) Status {
	if c.args[0] > captureRelaxed {
		return InvalidValue
	}
	old := c.th.captureMode
	c.th.captureMode = int(c.args[0])
	return c.ret(uint64(old))
}

// refuseIfUnsafe is for calls that a capture in progress may forbid
// (cuThreadExchangeStreamCaptureMode); they end the capture.
func (w *work) refuseIfUnsafe(th *thread) Status {
	st := Success
	for _, k := range w.captures {
		own := k.thread == th.tid
		if th.captureMode == captureRelaxed || k.mode == captureRelaxed {
			continue
		}
		if own || k.mode == captureGlobal && th.captureMode == captureGlobal {
			k.invalidate()
			st = CaptureUnsupported
		}
	}
	return st
}

// refuseIfImplicit is for work in the legacy stream, which would order itself with
// streams that are being captured.
func (w *work) refuseIfImplicit(s *stream) Status {
	if !s.legacy {
		return Success
	}
	st := Success
	for _, k := range w.captures {
		for _, o := range k.streams {
			if o.cx == s.cx && o.flags&streamNonBlocking == 0 {
				k.invalidate()
				st = CaptureImplicit
			}
		}
	}
	return st
}

// refuseIfCapturing is for waiting for a whole context.
func (w *work) refuseIfCapturing(cx *deviceContext) Status {
	st := Success
	for _, k := range w.captures {
		if k.origin.cx == cx {
			k.invalidate()
			st = CaptureUnsupported
		}
	}
	return st
}
