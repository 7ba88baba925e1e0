package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/internal/foresee"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
	"holdfast/internal/tap"
	"holdfast/internal/trace"
	"holdfast/internal/wire"
)

// A watch foresees what the work of one program will do while that waits, and lets it go when it may. It keeps what it
// has learnt of the program's code from one tap to the next.
type watch struct {
	program *process.Program
	tap     *process.Tap

	mu       sync.Mutex
	foreseen *foresee.Program
	effect   foresee.Effect
	pieces   []foresee.Piece
	gate     gate
	armed    bool // arm was called
	broken   error
	asked    int      // pieces of work
	guesses  int      // of them, those that are not proven
	guessed  []string // names of work whose effect was a guess
}

// A gate says what becomes of work.
type gate struct {
	act     func(*task)                // nil: it goes at once
	settled func(*foresee.Effect) bool // act would let it go at once
	// read reads what memory held when the gate was armed. With proofs set, guesses do not count.
	read   func(sp foresee.Span, b []byte) error
	proofs bool
}

// A task is a piece of work that waits.
type task struct {
	work   *process.Work
	effect *foresee.Effect // valid until act returns
}

// mostGuessed is how many names of guesses are kept for messages.
const mostGuessed = 8

// spin is how long the reader of a tap looks for work before it sleeps. Work that asks stands still until it is seen.
const spin = 100 * time.Microsecond

func newWatch(p *process.Program) *watch {
	w := &watch{program: p, foreseen: foresee.New()}
	w.foreseen.Translated = p.Identity().GPU == wire.GPUSoft
	return w
}

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

// arm makes work of the frozen program ask from the next thaw on; g decides.
func (w *watch) arm(ctx context.Context, flags uint32, g gate) error {
	w.mu.Lock()
	again := w.armed
	w.gate, w.armed = g, true
	w.foreseen.Forget()
	err := w.broken
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if err := w.tap.Ask(ctx, flags); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !again { // if again, work may have run unasked since the moment whose contents read returns
		w.foreseen.Remember(g.read, g.proofs)
	}
	return nil
}

// detach ends the watching; what waits goes.
func (w *watch) detach(ctx context.Context) error {
	w.mu.Lock()
	w.gate = gate{}
	w.foreseen.Forget()
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
	w.foreseen.Forget()
}

// Work implements process.Watcher.
func (w *watch) Work(work *process.Work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate.act == nil {
		work.Go()
		return
	}
	w.asked++
	if shares(w.program) {
		w.foreseen.Forget()
	}
	w.pieces = w.pieces[:0]
	for _, part := range work.Parts {
		w.pieces = append(w.pieces, foresee.Piece{Launch: part.Launch, Copy: part.Copy})
	}
	e := &w.effect
	w.foreseen.Work(work.Call, w.pieces, work.Opaque, w.gate.settled, e)
	if !e.Proven && len(w.guessed) < mostGuessed && !slices.Contains(w.guessed, e.Name) {
		w.guessed = append(w.guessed, e.Name)
	}
	if !e.Proven {
		w.guesses++
	}
	w.gate.act(&task{work: work, effect: e})
}

// shares reports whether a program has memory that others may write without being watched.
func shares(p *process.Program) bool {
	return slices.ContainsFunc(p.Caveats(), func(c wire.Caveat) bool { return c.Flags&wire.CaveatBlocksFull != 0 })
}

// foresight says of how many pieces of work the effect was a guess, and how many were foreseen with contents of memory.
func (w *watch) foresight() (guesses, known int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.guesses, w.foreseen.Used()
}

// guessNames is some of the names of that work.
func (w *watch) guessNames() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.guessed)
}

// spans appends what the effect touches in allocations: what it writes, and if reads is set what it reads.
func (w *watch) spans(list []foresee.Span, e *foresee.Effect, reads bool) []foresee.Span {
	if e.Everything {
		for _, a := range w.foreseen.State().Allocs() {
			if a.Block != 0 {
				list = append(list, foresee.Span{Block: a.Block, Off: a.Offset, Len: a.Bytes})
			}
		}
	} else {
		list = w.foreseen.Spans(list, e.Writes)
		if reads {
			list = w.foreseen.Spans(list, e.Reads)
		}
	}
	list = append(list, e.Owed.Writes...)
	if reads {
		list = append(list, e.Owed.Reads...)
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

// A place names an allocation of a program; snapshots and fills find their region by it.
type place struct {
	program int
	block   uint64
}

// regionSpans groups the spans of one program by the snapshot or fill that has their memory. Groups whose spans are
// all settled are left out, as are spans that nobody has: they were allocated later.
func regionSpans[T comparable](where map[place]regionOf[T], program int, list []foresee.Span,
	settled func(T, []snapshot.Span) bool) map[T][]snapshot.Span {
	out := map[T][]snapshot.Span{}
	for _, sp := range list {
		if r, ok := where[place{program, sp.Block}]; ok {
			out[r.of] = append(out[r.of], snapshot.Span{Region: r.index, Off: sp.Off, Len: sp.Len})
		}
	}
	maps.DeleteFunc(out, settled)
	return out
}

// regionOf is one of the regions of a snapshot or a fill.
type regionOf[T comparable] struct {
	of    T
	index int
}
