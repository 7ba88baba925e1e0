package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/tap"
	"holdfast/internal/trace"
	"holdfast/internal/wire"
)

// A Watcher is told what a program has and does. All calls come from one goroutine, in the program's order; while one
// is under way the program can be ahead by a ring's worth of records, but a thread whose work asks stands still.
type Watcher interface {
	// Module gets code that was loaded: with its PTX, or without any.
	Module(m *tap.Module)
	// Record gets everything else that is no work: kernels, memory that comes and goes, graphs.
	Record(rec trace.Record)
	// Work gets a piece of work that asks. The thread waits until w.Go is called, now or later, from any goroutine.
	Work(w *Work)
	// Broken says that from now on nothing is told and nothing asks, although nobody ended it: the program is gone or
	// broke the rules, or a piece of work was not answered in time. What ran since may not have asked.
	Broken(err error)
}

// A Part is something that a piece of work does.
type Part struct {
	Launch *trace.Launch // or
	Copy   *trace.Copy
	Kernel *trace.Kernel // of a launch; nil: not known
	Module *tap.Module   // of the kernel; nil: not known
}

// Work is a piece of work that waits: a launch, a copy, a graph.
type Work struct {
	Thread uint32
	Call   string // a name for people: "launch", "copy", …
	Parts  []Part
	// Opaque says that the work may do more than its parts say, and why; "" = the parts are all.
	Opaque string

	t    *Tap
	cell uint32
	gone atomic.Bool
}

// Go lets the work run. Calling it again does nothing.
func (w *Work) Go() {
	if w.gone.Swap(true) {
		return
	}
	w.t.answer(w.cell)
}

// TapConfig is how a program is watched.
type TapConfig struct {
	// NoCode: modules come without PTX, because an earlier tap of this process has shown it.
	NoCode bool
	// Patience is how long a piece of work may wait for its answer; then everything runs on and Watcher.Broken is
	// called. 0 = for ever.
	Patience time.Duration
	// Most is how many bytes of memory what the program tells may take here; 0 = mostTold. One that tells more is not
	// followed any more.
	Most int64
	// Spin is how long the reader looks for work before it sleeps, while work asks. Waking it costs the program some 50
	// µs.
	Spin time.Duration
}

// A Tap is a program that is being watched. Lock order: Tap.mu alone.
type Tap struct {
	p       *Program
	s       *session // the conversation in which it began; it ends with it
	r       *tap.Reader
	w       Watcher
	cfg     TapConfig
	state   *trace.State
	modules map[uint64]*tap.Module
	text    int64 // bytes of PTX so far: whoever watches may keep them after the module has gone
	asks    atomic.Bool
	end     chan struct{} // closed by Close
	done    chan struct{} // closed when the reader has ended

	mu     sync.RWMutex // r is open
	closed bool
	once   sync.Once
}

// Tap begins to watch the program. When it returns, the watcher has been told everything that there was, and the
// program runs as before; see Ask. A program has one tap at a time, and it ends with RELEASE.
func (p *Program) Tap(ctx context.Context, cfg TapConfig, w Watcher) (*Tap, error) {
	s := p.current()
	if s == nil {
		return nil, fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
	}
	if why := p.Unfollowed(); why != "" {
		return nil, fmt.Errorf("process %d: %s", p.id.PID, why)
	}
	if cfg.Most == 0 {
		cfg.Most = mostTold
	}
	r, err := tap.New()
	if err != nil {
		return nil, err
	}
	t := &Tap{p: p, s: s, r: r, w: w, cfg: cfg, state: trace.NewState(), modules: map[uint64]*tap.Module{},
		end: make(chan struct{}), done: make(chan struct{})}
	ready := make(chan struct{})
	go t.read(ready)
	var flags uint32
	if cfg.NoCode {
		flags |= wire.TapNoCode
	}
	_, err = p.call(ctx, &wire.Tap{Flags: flags}, r.FD())
	if err == nil {
		select {
		case <-ready:
			return t, nil
		case <-t.done:
			err = fmt.Errorf("process %d: its tap broke at once", p.id.PID)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), untapLimit)
	defer cancel()
	t.Close(late)
	return nil, err
}

// mostTold is TapConfig.Most for all who do not say. The largest programs that we know tell some tens of MiB.
const mostTold = 1 << 30

// errTooMuch says that a program tells more than is kept of one.
var errTooMuch = errors.New("it has told of more code, kernels, graphs or memory than is kept of one program")

// Unfollowed says why the program is not followed any more (see Tap), or "".
func (p *Program) Unfollowed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unfollowed
}

func (p *Program) unfollow(why string) {
	p.mu.Lock()
	p.unfollowed = why
	p.mu.Unlock()
}

// Ask says which work asks from now on, wire.Ask…; 0 = none. Given while the program is frozen it counts from Thaw on,
// so that nothing runs unasked in between.
func (t *Tap) Ask(ctx context.Context, flags uint32) error {
	t.asks.Store(flags != 0)
	t.wake()
	_, err := t.p.call(ctx, &wire.Ask{Flags: flags})
	return err
}

// Close ends it: nothing asks any more, and what waits for an answer runs. It may be called again, but not by the
// watcher.
func (t *Tap) Close(ctx context.Context) error {
	_, err := t.untap(ctx)
	t.finish()
	return err
}

const untapLimit = 5 * time.Second // when nobody else says how long

// untap ends the reader, and makes the program let go of the tap, once; whoever comes second waits for the first.
func (t *Tap) untap(ctx context.Context) (first bool, err error) {
	t.once.Do(func() {
		first = true
		close(t.end)
		select {
		case <-t.s.done: // a later conversation has nothing to do with it
			err = fmt.Errorf("process %d: %w", t.p.id.PID, ErrGone)
		default:
			_, err = t.p.call(ctx, &wire.Untap{})
		}
	})
	return first, err
}

// finish waits for the reader and lets go of the ring.
func (t *Tap) finish() {
	t.wake()
	<-t.done
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		t.r.Close()
	}
}

func (t *Tap) wake() {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.closed {
		t.r.Wake()
	}
}

func (t *Tap) answer(cell uint32) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.closed {
		t.r.Answer(cell)
	}
}

const tapNap = 100 * time.Millisecond // how soon the reader notices that there is nobody any more

func (t *Tap) read(ready chan struct{}) {
	defer close(t.done)
	h := &tapped{Tap: t, ready: ready}
	for {
		n, err := t.r.Read(h)
		if err != nil {
			t.broken(err)
			return
		}
		if n > 0 {
			continue
		}
		select {
		case <-t.end:
			return
		case <-t.s.done:
			t.broken(fmt.Errorf("process %d: %w", t.p.id.PID, ErrGone))
			return
		default:
		}
		spin := time.Duration(0)
		if t.asks.Load() {
			spin = t.cfg.Spin
		}
		t.r.Wait(spin, tapNap)
	}
}

// broken ends the watching from this side: the program lets go of what waits before the watcher hears of it, so that a
// new tap is not ended by this one.
func (t *Tap) broken(err error) {
	t.mu.RLock()
	if !t.closed {
		t.r.Stop()
	}
	t.mu.RUnlock()
	ctx, cancel := context.WithTimeout(context.Background(), untapLimit)
	defer cancel()
	if errors.Is(err, errTooMuch) {
		t.p.unfollow("its work is no longer foreseen: " + err.Error())
	}
	if first, _ := t.untap(ctx); first { // the program may be gone
		t.w.Broken(err)
	}
}

// tapped is what the reader sees of a Tap.
type tapped struct {
	*Tap
	ready chan struct{}
}

// Module implements tap.Handler.
func (t *tapped) Module(m *tap.Module) error {
	t.modules[m.ID] = m
	t.state.Apply(&m.Image)
	for _, text := range m.PTX {
		t.text += int64(len(text))
	}
	if err := t.room(); err != nil {
		return err
	}
	t.w.Module(m)
	return nil
}

// room is an error when the program has told too much.
func (t *tapped) room() error {
	if t.state.Kept()+t.text > t.cfg.Most {
		return fmt.Errorf("%w (%d MiB)", errTooMuch, t.cfg.Most>>20)
	}
	return nil
}

// Record implements tap.Handler.
func (t *tapped) Record(rec trace.Record, raw []byte) error {
	t.state.Apply(rec)
	if err := t.room(); err != nil {
		return err
	}
	w := &Work{t: t.Tap}
	var flags uint16
	switch r := rec.(type) {
	case *trace.Ready:
		if t.ready != nil {
			close(t.ready)
			t.ready = nil
		}
		return nil
	case *trace.Unload:
		delete(t.modules, r.Module)
		t.w.Record(rec)
		return nil
	case *trace.Launch:
		flags, w.Thread, w.cell, w.Call = r.Flags, r.Thread, r.Cell, "launch"
		w.add(r)
	case *trace.Copy:
		flags, w.Thread, w.cell, w.Call = r.Flags, r.Thread, r.Cell, "copy"
		w.add(r)
	case *trace.Other:
		flags, w.Thread, w.cell, w.Call = r.Flags, r.Thread, r.Cell, fmt.Sprintf("call %d", r.Call)
		w.add(r)
	case *trace.GraphLaunch:
		flags, w.Thread, w.cell, w.Call = r.Flags, r.Thread, r.Cell, "graph launch"
		g := t.state.Graph(r.Graph)
		switch {
		case g == nil:
			w.Opaque = "the graph was made in a way that is not followed"
		case g.Flags&trace.Incomplete != 0 || !g.Done:
			w.Opaque = "the graph was changed in a way that is not followed"
		}
		if g != nil {
			for _, part := range g.Work {
				w.add(part)
			}
		}
	default:
		t.w.Record(rec)
		return nil
	}
	if flags&trace.Asks == 0 { // of a graph, or captured into one
		return nil
	}
	t.w.Work(w)
	if t.cfg.Patience > 0 && !w.gone.Load() {
		time.AfterFunc(t.cfg.Patience, func() {
			if !w.gone.Load() {
				t.broken(fmt.Errorf("process %d: a %s was not answered within %v", t.p.id.PID, w.Call, t.cfg.Patience))
			}
		})
	}
	return nil
}

func (w *Work) add(rec trace.Record) {
	switch r := rec.(type) {
	case *trace.Launch:
		part := Part{Launch: r, Kernel: w.t.state.Kernel(r.Kernel)}
		if part.Kernel != nil {
			part.Module = w.t.modules[part.Kernel.Module]
		}
		w.Parts = append(w.Parts, part)
	case *trace.Copy:
		w.Parts = append(w.Parts, Part{Copy: r})
	case *trace.Other:
		if r.Flags&trace.Joint != 0 {
			return
		}
		w.Opaque = fmt.Sprintf("driver call %d may do anything", r.Call)
	}
}

// Allocs is the memory of the program as its tap has told it, by address, with the held allocation behind each. Only
// the watcher's calls may use it.
func (t *Tap) Allocs() []trace.Alloc { return t.state.Allocs() }
