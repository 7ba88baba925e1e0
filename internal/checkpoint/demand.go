package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/internal/foresee"
	"holdfast/internal/process"
	"holdfast/internal/snapshot"
	"holdfast/internal/snapshot/digest"
	"holdfast/internal/wire"
)

// Restore on demand: the program runs as soon as its process is back, while its device memory still fills. Every piece
// of work asks before it runs, and waits for the chunks that it will read or write. Here a wrong guess could not be
// found out afterwards, so only proven footprints count: work of which less is known waits for everything.

// onDemand does what run does after the programs are registered, and leaves the rest to res.Finish.
func (r *restoration) onDemand(ctx context.Context) error {
	// The fills outlive the request: the client gets its answer as soon as the program runs.
	fillCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var fills []*snapshot.Filling
	begun := make(chan error, 1)
	go func() {
		begun <- r.t.do("begin to fill", func() (err error) {
			fills, err = r.startFills(fillCtx)
			return err
		})
	}()
	err := r.cpuSide(ctx)
	if err = errors.Join(err, <-begun); err == nil {
		var watches []*watch
		watches, err = r.hold(ctx, fillCtx, fills)
		for _, p := range r.programs {
			p.SetMissing(func() uint64 { return missing(fills) })
		}
		if err == nil {
			err = r.t.do("thaw", func() error { return r.env.thaw(ctx, r.programs) })
		}
		if err == nil {
			r.res.Missing = missing(fills)
			r.res.Finish = func() error {
				defer stop()
				return r.finish(fillCtx, fills, watches)
			}
			return nil
		}
	}
	stop()
	for _, f := range fills {
		f.Wait()
	}
	return err
}

func missing(fills []*snapshot.Filling) (bytes uint64) {
	for _, f := range fills {
		bytes += f.Missing()
	}
	return bytes
}

func (r *restoration) startFills(ctx context.Context) ([]*snapshot.Filling, error) {
	var fills []*snapshot.Filling
	for _, d := range r.devices {
		f, err := d.engine.StartFill(ctx, d.regions, d.digests, r.im.ReadChunk,
			snapshot.FillOptions{Compare: d.warm, Order: d.order})
		if err != nil {
			return fills, err
		}
		fills = append(fills, f)
	}
	return fills, nil
}

// hold makes the work of the programs ask from their thaw on, and wait for what it needs.
func (r *restoration) hold(ctx, fillCtx context.Context, fills []*snapshot.Filling) ([]*watch, error) {
	where := map[place]regionOf[*snapshot.Filling]{}
	for n, d := range r.devices {
		for i, at := range d.places {
			where[at] = regionOf[*snapshot.Filling]{fills[n], i}
		}
	}
	var watches []*watch
	for i, p := range r.programs {
		w := newWatch(p)
		if err := w.attach(ctx); err != nil {
			return nil, fmt.Errorf("process %d cannot be watched, so nothing can be filled on demand: %w",
				p.Identity().PID, err)
		}
		watches = append(watches, w)
		wanted := func(e *foresee.Effect) map[*snapshot.Filling][]snapshot.Span {
			return regionSpans(where, i, w.spans(nil, e, true), (*snapshot.Filling).Ready)
		}
		g := gate{proofs: true, read: r.contents(i), settled: func(e *foresee.Effect) bool {
			return len(wanted(e)) == 0
		}}
		g.act = func(t *task) {
			if !t.effect.Proven {
				go r.let(t.work, func() error { return needAll(fillCtx, fills) })
				return
			}
			spans := wanted(t.effect)
			if len(spans) == 0 {
				t.work.Go()
				return
			}
			go r.let(t.work, func() error {
				for f, list := range spans {
					if err := f.Need(fillCtx, list); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := w.arm(ctx, wire.AskWrites|wire.AskReads|wire.AskHold, g); err != nil {
			return nil, err
		}
	}
	return watches, nil
}

var errNotHeld = errors.New("memory that is not held")

// contents reads from the image what memory of a program will hold once it is filled, however far the fill is.
func (r *restoration) contents(program int) func(foresee.Span, []byte) error {
	digests := map[uint64][]digest.Digest{}
	for _, d := range r.devices {
		for i, at := range d.places {
			if at.program == program {
				digests[at.block] = d.digests[i]
			}
		}
	}
	chunk := make([]byte, snapshot.ChunkSize)
	var last *digest.Digest // in chunk
	return func(sp foresee.Span, b []byte) error {
		for len(b) > 0 {
			n, at := sp.Off/snapshot.ChunkSize, sp.Off%snapshot.ChunkSize
			list := digests[sp.Block]
			if n >= uint64(len(list)) {
				return errNotHeld
			}
			if last == nil || *last != list[n] {
				last = nil
				if err := r.im.ReadChunk(list[n], chunk); err != nil {
					return err
				}
				last = &list[n]
			}
			k := copy(b, chunk[at:])
			b, sp.Off = b[k:], sp.Off+uint64(k)
		}
		return nil
	}
}

// let lets work go when need returns. If its memory will never come the work keeps waiting, and finish ends the
// program.
func (r *restoration) let(w *process.Work, need func() error) {
	start := time.Now()
	err := need()
	r.waited.Lock()
	r.res.Waits++
	r.res.Waited += time.Since(start)
	r.waited.Unlock()
	if err == nil {
		w.Go()
	}
}

func needAll(ctx context.Context, fills []*snapshot.Filling) error {
	for _, f := range fills {
		if err := f.All(ctx); err != nil {
			return err
		}
	}
	return nil
}

// finish waits until all is filled, and lets the programs run as others do. If the memory cannot be filled they are
// ended: the image is as it was, and can be restored again.
func (r *restoration) finish(ctx context.Context, fills []*snapshot.Filling, watches []*watch) error {
	errs := make([]error, len(fills))
	var wg sync.WaitGroup
	for i, f := range fills {
		wg.Go(func() {
			st, err := f.Wait()
			errs[i] = err
			r.waited.Lock()
			r.res.BytesFilled += uint64(st.Chunks-st.Kept) * snapshot.ChunkSize
			r.waited.Unlock()
		})
	}
	wg.Wait()
	for _, p := range r.programs {
		p.SetMissing(nil)
	}
	defer r.close()
	if err := errors.Join(errs...); err != nil {
		return errors.Join(fmt.Errorf("the memory of %s could not be filled; the program is ended: %w", r.opt.Dir, err),
			r.undo())
	}
	k, err := r.env.Keeper()
	if err != nil {
		return err
	}
	for i, w := range watches {
		guesses, known := w.foresight()
		r.res.Guesses, r.res.Known = r.res.Guesses+guesses, r.res.Known+known
		r.res.Guessed = append(r.res.Guessed, w.guessNames()...)
		id := r.programs[i].Identity()
		if err := w.detach(ctx); err != nil && !errors.Is(err, process.ErrGone) {
			return fmt.Errorf("process %d stays watched: %w", id.PID, err)
		}
		if err := errors.Join(r.env.removeUnderway(key(id.Token)), k.Delete(key(id.Token))); err != nil {
			return err
		}
	}
	return nil
}
