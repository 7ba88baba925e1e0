package device

import (
	"runtime/debug"
	"sync"
	"time"
)

// work is what a process has submitted, and where: contexts, streams, tasks, captures.
type work struct {
	*mirroring
	mu   sync.Mutex
	cond *sync.Cond // signalled when running or conns shrink, or quiescing ends
	gone bool

	contexts  []*deviceContext
	primaries []*deviceContext
	captures  map[uint64]*capture

	pending   int // tasks submitted and not finished
	running   int // tasks that run at this moment
	quiescing int // while positive, no task starts
	zombies   []*allocation
}

func newWork(m *mirroring) *work {
	w := &work{mirroring: m}
	w.cond = sync.NewCond(&w.mu)
	return w
}

// A task is one piece of submitted work.
type task struct {
	run    func() Status // nil: only order
	until  func() bool   // the task begins once this is true; called with process.mu held
	always bool          // runs in a failed context too
	deps   []*task
	done   chan struct{}
	cx     *deviceContext
}

func (t *task) finished() bool {
	if t == nil {
		return true
	}
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// submit queues work on s behind everything that stream order and the rules of the
// legacy default stream put before it.
func (w *work) submit(s *stream, t *task) *task {
	t.done = make(chan struct{})
	t.cx = s.cx
	depend := func(on *task) {
		if !on.finished() {
			t.deps = append(t.deps, on)
		}
	}
	switch {
	case s.legacy:
		for _, other := range s.cx.streams {
			if other.flags&streamNonBlocking == 0 {
				depend(other.last)
			}
		}
	case s.flags&streamNonBlocking == 0:
		depend(s.cx.legacy.last)
	}
	s.queue = append(s.queue, t)
	s.last = t
	w.pending++
	if !s.busy {
		s.busy = true
		go w.drain(s)
	}
	return t
}

// pollInterval is how often a stream that waits for a value in memory looks: any
// program and any device may write it, without telling.
const pollInterval = 50 * time.Microsecond

// drain runs a stream's tasks until there are none.
func (w *work) drain(s *stream) {
	debug.SetPanicOnFault(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(s.queue) > 0 {
		t := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		if len(t.deps) > 0 {
			w.mu.Unlock()
			for _, d := range t.deps {
				select {
				case <-d.done:
				case <-w.dead:
				}
			}
			w.mu.Lock()
		}
		for t.until != nil && !w.gone && t.cx.sticky == Success && !t.until() {
			w.mu.Unlock()
			time.Sleep(pollInterval)
			w.mu.Lock()
		}
		for w.quiescing > 0 && !w.gone {
			w.cond.Wait()
		}
		if t.run != nil && !w.gone && (t.cx.sticky == Success || t.always) {
			w.running++
			w.mu.Unlock()
			st := w.runTask(t)
			w.mu.Lock()
			w.running--
			if st != Success && t.cx.sticky == Success {
				t.cx.sticky = st
			}
		}
		w.pending--
		t.deps, t.run, t.until = nil, nil, nil
		close(t.done)
		if w.pending == 0 {
			w.reap()
		}
		if w.quiescing > 0 || w.pending == 0 {
			w.cond.Broadcast()
		}
	}
	s.queue = nil
	s.busy = false
}

func (w *work) runTask(t *task) (st Status) {
	defer func() {
		if r := recover(); r != nil {
			w.srv.log.Error("submitted work failed", "pid", w.key.pid, "panic", r, "stack", string(debug.Stack()))
			st = LaunchFailed
		}
	}()
	if t.always { // order, or a graph, whose nodes do it
		return t.run()
	}
	return w.mirrored(t.run)
}

// quiesce runs f while no task of the process runs. p.mu is held before, during f,
// and after, but not while it waits.
func (w *work) quiesce(f func()) {
	w.quiescing++
	for w.running > 0 {
		w.cond.Wait()
	}
	f()
	w.quiescing--
	w.cond.Broadcast()
}

// reap frees what stream-ordered frees left. Nothing of the process may be running.
func (w *work) reap() {
	if w.running > 0 {
		return
	}
	for _, a := range w.zombies {
		w.dropAllocation(a)
	}
	w.zombies = nil
}

// lasts are the last tasks of all streams of a context, or of all contexts if cx
// is nil.
func (w *work) lasts(cx *deviceContext) []*task {
	var out []*task
	for _, x := range w.contexts {
		if cx == nil || x == cx {
			for _, s := range x.streams {
				if !s.last.finished() {
					out = append(out, s.last)
				}
			}
		}
	}
	return out
}
