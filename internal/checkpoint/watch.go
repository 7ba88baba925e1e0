package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/internal/foresee"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
	"holdfast/internal/tap"
	"holdfast/internal/trace"
)

// A watch foresees what the work of one program will do while that waits, and lets it go when it may. It keeps what it has
// learnt of the program's code from one tap to the next.
type watch struct {
	program *process.Program
	tap     *process.Tap

	mu       sync.Mutex
	foreseen *foresee.Program
	effect   foresee.Effect
	part     foresee.Effect
	act      func(*task) // what becomes of work; nil: it goes at once
	broken   error
	asked    int      // pieces of work
	guessed  []string // names of work whose effect was a guess
}

// A task is a piece of work that waits.
type task struct {
	work   *process.Work
	effect *foresee.Effect // valid until act returns
	spans  func(list []foresee.Span, e *foresee.Effect, reads bool) []foresee.Span
}

// mostGuessed is how many names of guesses are kept for messages.
const mostGuessed = 8

// spin is how long the reader of a tap looks for work before it sleeps. Work that asks stands still until it is seen.
const spin = 100 * time.Microsecond

func newWatch(p *process.Program) *watch { return &watch{program: p, foreseen: foresee.New()} }

// attach begins to watch. When it returns, all the code that the program has is analysed.
func (w *watch) attach(ctx context.Context) error {
	again := w.tap != nil
	if again {
		w.tap.Close(ctx) // it ended by itself when the program let go of its memory
	}
	w.mu.Lock()
	w.broken = nil
	w.mu.Unlock()
	t, err := w.program.Tap(ctx, process.TapConfig{NoCode: again, Spin: spin}, w)
	if err != nil {
		return err
	}
	w.tap = t
	return nil
}

// arm makes work ask from the next thaw on; act decides.
func (w *watch) arm(ctx context.Context, flags uint32, act func(*task)) error {
	w.mu.Lock()
	w.act = act
	err := w.broken
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.tap.Ask(ctx, flags)
}

// detach ends the watching; what waits goes.
func (w *watch) detach(ctx context.Context) error {
	w.mu.Lock()
	w.act = nil
	w.mu.Unlock()
	if w.tap == nil {
		return nil
	}
	return w.tap.Close(ctx)
}

// Module implements process.Watcher.
func (w *watch) Module(m *tap.Module) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(m.PTX) == 0 && w.foreseen.State().Image(m.ID) != nil {
		return // told before, with its code
	}
	for i, text := range m.PTX {
		w.foreseen.Text(m.Texts[i].Digest, text)
	}
	w.foreseen.Apply(&m.Image)
}

// Record implements process.Watcher.
func (w *watch) Record(rec trace.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.foreseen.Apply(rec)
}

// Broken implements process.Watcher.
func (w *watch) Broken(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = err
}

// Work implements process.Watcher.
func (w *watch) Work(work *process.Work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.act == nil {
		work.Go()
		return
	}
	w.asked++
	e := &w.effect
	e.Nothing(work.Call)
	for i, part := range work.Parts {
		switch {
		case part.Launch != nil:
			w.foreseen.Launch(part.Launch, &w.part)
		case part.Copy != nil:
			w.foreseen.Copy(part.Copy, &w.part)
		}
		if i == 0 {
			e.Name = w.part.Name
		}
		e.Join(&w.part)
	}
	if work.Opaque != "" {
		e.Unknown(fmt.Sprintf("%s (%s)", work.Call, work.Opaque))
	}
	if !e.Proven && len(w.guessed) < mostGuessed && !slices.Contains(w.guessed, e.Name) {
		w.guessed = append(w.guessed, e.Name)
	}
	w.act(&task{work: work, effect: e, spans: w.spans})
}

// spans appends what the effect touches in allocations: what it writes, and if reads is set what it reads.
func (w *watch) spans(list []foresee.Span, e *foresee.Effect, reads bool) []foresee.Span {
	if e.Everything {
		for _, a := range w.foreseen.State().Allocs() {
			if a.Block != 0 {
				list = append(list, foresee.Span{Block: a.Block, Off: a.Offset, Len: a.Bytes})
			}
		}
		return list
	}
	list = w.foreseen.Spans(list, e.Writes)
	if reads {
		list = w.foreseen.Spans(list, e.Reads)
	}
	return list
}

// doubts says which work may have done more than was foreseen.
func (w *watch) doubts() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.guessed) == 0 {
		return fmt.Sprintf("all of its %d pieces of work since were foreseen", w.asked)
	}
	return fmt.Sprintf("of its %d pieces of work since these were guesses: %s", w.asked, strings.Join(w.guessed, ", "))
}

// A place is where the regions of snapshots or fills have a held allocation.
type place struct {
	program int
	block   uint64
}

// regionSpans sorts spans of one program by what has their memory. What nobody has is left out: it was allocated later.
func regionSpans[T comparable](where map[place]regionOf[T], program int, list []foresee.Span) map[T][]snapshot.Span {
	out := map[T][]snapshot.Span{}
	for _, sp := range list {
		if r, ok := where[place{program, sp.Block}]; ok {
			out[r.of] = append(out[r.of], snapshot.Span{Region: r.index, Off: sp.Off, Len: sp.Len})
		}
	}
	return out
}

// regionOf is one of the regions of a snapshot or a fill.
type regionOf[T comparable] struct {
	of    T
	index int
}
