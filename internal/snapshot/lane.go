package snapshot

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"holdfast/internal/cuda"
)

// batch is work for a lane: as many chunks as a buffer holds.
type batch struct {
	begin func(buf []byte, s cuda.Stream) error // prepares buf and queues copies on s
	end   func(buf []byte) error                // called when s is idle; nil for nothing
	soon  bool                                  // set by begin: it is ended before the lane begins another
	group *group
	err   error // of begin
}

// group is a set of batches that fail together.
type group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// err returns why the group's remaining batches are not to be done, nil while they are.
func (g *group) err() error {
	if g.ctx.Err() != nil {
		return context.Cause(g.ctx)
	}
	return nil
}

// lane moves data between device and host. It has two buffers of pinned host memory, each with a stream, so
// that the device copies into or out of one while the processor works on the other.
type lane struct {
	drv     cuda.Driver
	buffers [2][]byte
	streams [2]cuda.Stream
}

// runLane serves batches until the channel is closed. While the lane cannot be set up it fails what it takes, so that
// nobody waits for it; but it tries again for each group: memory or descriptors that were missing may be there by then.
func runLane(drv cuda.Driver, ctx cuda.Context, bufferSize int, batches <-chan *batch) {
	giveWay()
	l := &lane{drv: drv}
	defer func() {
		l.close()
		drv.SetContext(0)
	}()
	var first *batch
	for err := l.open(ctx, bufferSize); err != nil; {
		b, ok := <-batches
		if !ok {
			return
		}
		if b.group.err() == nil {
			if err = l.open(ctx, bufferSize); err == nil {
				first = b
				break
			}
			b.group.cancel(err)
		}
		b.group.wg.Done()
	}
	l.serve(first, batches)
}

// serve does the first batch, if there is one, and all that come.
func (l *lane) serve(first *batch, batches <-chan *batch) {
	var current *batch
	for side := 0; ; side = 1 - side {
		next, ok := first, true
		if first = nil; next == nil {
			next, ok = take(batches, current == nil)
		}
		if !ok {
			return
		}
		if next != nil {
			l.begin(next, 1-side)
		}
		if current != nil {
			l.end(current, side)
		}
		if current = next; current != nil && current.soon {
			l.end(current, 1-side)
			current = nil
		}
	}
}

// giveWay makes the rest of the calling goroutine run on an OS thread of its own that has the lowest priority: as many
// lanes as there are processors must not slow down the program that they serve. The thread ends with the goroutine,
// for its priority cannot be raised again without privileges.
func giveWay() {
	runtime.LockOSThread()
	unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19) // Linux: of this thread; best effort
}

// take returns the next batch: nil when there is none yet and wait is false, not ok when there will be none and
// wait is true.
func take(batches <-chan *batch, wait bool) (b *batch, ok bool) {
	if wait {
		b, ok = <-batches
		return b, ok
	}
	select {
	case b = <-batches:
	default:
	}
	return b, true
}

// open sets the lane up for a context. If it fails the lane has nothing.
func (l *lane) open(ctx cuda.Context, bufferSize int) error {
	if err := l.drv.SetContext(ctx); err != nil {
		return err
	}
	for i := range l.buffers {
		var err error
		if l.streams[i], err = l.drv.StreamCreate(); err == nil {
			if l.buffers[i], err = l.drv.HostAlloc(bufferSize); err != nil {
				err = fmt.Errorf("pin host memory: %w", err)
			}
		}
		if err != nil {
			l.close()
			return err
		}
	}
	return nil
}

func (l *lane) close() {
	for i := range l.buffers {
		if l.streams[i] != 0 {
			l.drv.StreamDestroy(l.streams[i])
		}
		if l.buffers[i] != nil {
			l.drv.HostFree(l.buffers[i])
		}
	}
	l.buffers, l.streams = [2][]byte{}, [2]cuda.Stream{}
}

func (l *lane) begin(b *batch, side int) {
	if b.err = b.group.err(); b.err == nil {
		b.err = b.begin(l.buffers[side], l.streams[side])
	}
}

// end waits for the batch's copies, whether or not it failed, because the buffer is used again, and finishes it.
func (l *lane) end(b *batch, side int) {
	defer b.group.wg.Done()
	err := l.drv.StreamSynchronize(l.streams[side])
	if b.err != nil {
		err = b.err
	}
	if err == nil {
		err = b.group.err()
	}
	if err == nil && b.end != nil {
		err = b.end(l.buffers[side])
	}
	if err != nil {
		b.group.cancel(err)
	}
}

// runBatches gives the lanes the batches of next until it returns nil, waits for all of them, and returns the first
// error.
func (e *Engine) runBatches(ctx context.Context, next func() *batch) error {
	g := &group{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	defer g.cancel(nil)
	for g.err() == nil {
		b := next()
		if b == nil {
			break
		}
		b.group = g
		g.wg.Add(1)
		select {
		case e.batches <- b:
		case <-g.ctx.Done():
			g.wg.Done()
		}
	}
	g.wg.Wait()
	return g.err()
}
