package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/foresee"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
	"holdfast/internal/wire"
)

// Copy on write: in the stall nothing is copied. Afterwards every piece of work that may write device memory asks
// first, and waits until what it will write has been copied aside. What was written without being foreseen is found by
// its digest when it is drained, and the checkpoint is taken again in another way.

// A mispredicted capture was spoilt by a write that did not ask first.
type mispredicted struct {
	what string // for people
	err  *snapshot.MispredictedError
}

func (m *mispredicted) Error() string { return m.what + ": " + m.err.Error() }
func (m *mispredicted) Unwrap() error { return m.err }

// mayCow reports whether this capture may copy on write while programs run.
func (c *capture) mayCow() bool {
	return c.opt.LeaveRunning && (c.opt.Mode == snapshot.Cow || c.opt.Mode == snapshot.Auto && !c.roomForAll())
}

// roomForAll reports whether free device memory has room for a copy of everything, and some more. Then mode auto will
// stage in any case, and the program's code need not be analysed.
func (c *capture) roomForAll() bool {
	bytes := map[*snapshot.Engine]uint64{}
	for _, p := range c.programs {
		id := p.Identity()
		for _, a := range p.Allocs() {
			engine, err := c.env.GPUs.Engine(id.GPU, id.Devices[a.Device])
			if err != nil {
				return false // open says so
			}
			bytes[engine] += a.Size
		}
	}
	for engine, n := range bytes {
		if room, err := engine.Room(); err != nil || room < n+n/8+snapshot.ChunkSize {
			return false
		}
	}
	return true
}

// cows reports whether this capture copies on write.
func (c *capture) cows() bool {
	return slices.ContainsFunc(c.snaps, func(d *deviceSnapshot) bool { return d.snap.Stats().Mode == snapshot.Cow })
}

// watchAll begins to watch the programs, so that their code is analysed before they are frozen.
func (c *capture) watchAll(ctx context.Context) error {
	for _, p := range c.programs {
		w := newWatch(p)
		if err := w.attach(ctx); err != nil {
			return fmt.Errorf("process %d cannot be watched: %w", p.Identity().PID, err)
		}
		c.watches = append(c.watches, w)
	}
	return nil
}

// rearm returns a function that opens the tap of a program again, which ended when the program let go of its memory,
// and arms it. ctx is that of the checkpoint.
func (c *capture) rearm(ctx context.Context) func(context.Context, *process.Program) error {
	return func(now context.Context, p *process.Program) error {
		for i, w := range c.watches {
			if w.program == p {
				if err := w.attach(now); err != nil {
					return err
				}
				return c.arm(now, ctx, i)
			}
		}
		return nil
	}
}

// arm makes the work of a captured program ask from its thaw on, and wait while ctx lasts. now is for the asking
// itself.
func (c *capture) arm(now, ctx context.Context, program int) error {
	where := map[place]regionOf[*deviceSnapshot]{}
	for _, d := range c.snaps {
		for i, ref := range d.refs {
			if !slices.Contains(d.freed, i) {
				where[place{ref.program, ref.alloc.ID}] = regionOf[*deviceSnapshot]{d, i}
			}
		}
	}
	w := c.watches[program]
	missing := func(e *foresee.Effect) map[*deviceSnapshot][]snapshot.Span {
		return regionSpans(where, program, w.spans(nil, e, false), func(d *deviceSnapshot, list []snapshot.Span) bool {
			return d.snap.Kept(list)
		})
	}
	g := gate{settled: func(e *foresee.Effect) bool { return len(missing(e)) == 0 }}
	g.read = func(sp foresee.Span, b []byte) error {
		r, ok := where[place{program, sp.Block}]
		if !ok {
			return errNotHeld
		}
		return r.of.region[r.index].Read(sp.Off, b)
	}
	g.act = func(t *task) {
		c.order.note(program, w, t.effect)
		spans := missing(t.effect)
		if len(spans) == 0 {
			t.work.Go()
			return
		}
		work := t.work
		go func() {
			defer work.Go()
			for d, list := range spans {
				// The drain reports the error: this snapshot has failed, and the program goes on.
				d.snap.BeforeWrite(ctx, list)
			}
		}()
	}
	return w.arm(now, wire.AskWrites, g)
}

// unwatch lets the programs run as they did before.
func (c *capture) unwatch(ctx context.Context) {
	ctx, cancel := c.env.undo(ctx)
	defer cancel()
	for _, w := range c.watches {
		if err := w.detach(ctx); err != nil && !errors.Is(err, process.ErrGone) {
			c.env.Log.Warn("a program stays watched", "pid", w.program.Identity().PID, "err", err)
		}
	}
	c.watches = nil
}

// explain adds to the error of a drain whose memory it is about.
func (c *capture) explain(d *deviceSnapshot, err error) error {
	var bad *snapshot.MispredictedError
	if !errors.As(err, &bad) {
		return err
	}
	ref := d.refs[bad.Region]
	id := c.programs[ref.program].Identity()
	what := fmt.Sprintf("process %d wrote at %#x (allocation of %d bytes at %#x), which was not foreseen",
		id.PID, ref.alloc.VA+bad.Off, ref.alloc.Size, ref.alloc.VA)
	if ref.program < len(c.watches) {
		what += "; " + c.watches[ref.program].doubts()
	}
	return &mispredicted{what, bad}
}
