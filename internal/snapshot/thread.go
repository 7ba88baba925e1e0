package snapshot

import (
	"runtime"

	"holdfast/internal/cuda"
)

// thread is a goroutine with an OS thread of its own on which the device's context is current.
type thread struct {
	calls chan func()
	done  chan struct{}
}

// startThread starts a thread; it fails when the context cannot be made current.
func startThread(drv cuda.Driver, ctx cuda.Context) (*thread, error) {
	t := &thread{calls: make(chan func()), done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(t.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := drv.SetContext(ctx)
		started <- err
		if err != nil {
			return
		}
		for f := range t.calls {
			f()
		}
		drv.SetContext(0) // the thread goes back to the runtime without our context
	}()
	return t, <-started
}

// do runs f on the thread and returns its result.
func (t *thread) do(f func() error) error {
	result := make(chan error, 1)
	t.calls <- func() { result <- f() }
	return <-result
}

// stop ends the thread after the calls in progress.
func (t *thread) stop() {
	close(t.calls)
	<-t.done
}
