package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"holdfast/internal/cuda"
	"holdfast/internal/process"
)

// The driver's own checkpoint of a program, in the order that NVIDIA's plugin for CRIU takes: lock while everything
// runs, so that no call is inside; stop everything but the thread in which the driver restores; save, and later restore
// and unlock; only then let the others run. Between save and restore the driver's mappings are not there.

// driverCheckpoint takes the contexts of a released program down into its own memory. When it returns nil, nothing of
// the program runs and its conversation is over.
func (c *capture) driverCheckpoint(ctx context.Context, p *process.Program) error {
	pid := p.Identity().PID
	start := time.Now()
	step := func(name string) {
		c.t.add(name, time.Since(start), true)
		start = time.Now()
	}
	if err := c.driver.CheckpointLock(pid, c.opt.Timeout); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	step("  lock")
	tid, err := restoreThread(c.driver, pid)
	if err != nil {
		return err
	}
	if _, err := p.Park(ctx, tid, c.opt.Timeout); err != nil {
		return err
	}
	step("  park")
	defer step("  save")
	if nudged, err := c.env.attended(p, tid, "save", func() error {
		return c.driver.CheckpointSave(pid)
	}); err != nil || nudged {
		if err == nil {
			err = errors.New("the driver's save stood still until the program's threads ran")
		}
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// errUnknownToDriver is wrapped by the error for a process that has no contexts, neither live nor saved.
var errUnknownToDriver = errors.New("the driver knows nothing of it")

// driverRestore brings the contexts of a program back from wherever they are in the driver's checkpoint cycle.
func (e *Env) driverRestore(drv cuda.Driver, p *process.Program) error {
	pid := p.Identity().PID
	state, err := drv.CheckpointState(pid)
	if errors.Is(err, cuda.ErrInvalidValue) {
		err = fmt.Errorf("%w: %w", errUnknownToDriver, err)
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	switch state {
	case cuda.ProcessRunning:
		return nil
	case cuda.ProcessCheckpointed:
		tid, err := restoreThread(drv, pid)
		if err == nil {
			_, err = e.attended(p, tid, "restore", func() error { return drv.CheckpointRestore(pid) })
		}
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	case cuda.ProcessFailed:
		return fmt.Errorf("process %d: the driver says that its checkpoint failed for good", pid)
	}
	if err := drv.CheckpointUnlock(pid); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// restoreThread is the thread of a process in which the driver does its work, 0 where it does not say.
func restoreThread(drv cuda.Driver, pid int) (int, error) {
	tid, err := drv.CheckpointRestoreThread(pid)
	var unsupported *cuda.UnsupportedError
	if err != nil && !errors.As(err, &unsupported) {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	return tid, nil
}

// standstill is how long the driver's thread may do nothing at all while it saves or restores. It may wait for a lock
// that a stopped thread holds; then the threads are let run, which is the lesser risk.
const standstill = 10 * time.Second

// attended makes the driver take one step on a program whose threads stand still. It reports whether the step only
// ended after the threads were let run.
func (e *Env) attended(p *process.Program, tid int, what string, do func() error) (nudged bool, err error) {
	done := make(chan error, 1)
	go func() { done <- do() }()
	limit := cmp.Or(e.Standstill, standstill)
	tick := time.NewTicker(limit / 10)
	defer tick.Stop()
	pid := p.Identity().PID
	before, since := activity(pid, tid), time.Now()
	for {
		select {
		case err := <-done:
			return nudged, err
		case <-tick.C:
		}
		if now := activity(pid, tid); now != before {
			before, since = now, time.Now()
		}
		if tid != 0 && !nudged && time.Since(since) >= limit {
			nudged = true
			e.Log.Error("the driver stands still; the program's threads are let run", "pid", pid, "thread", tid,
				"step", what,
				"err", p.LetRun())
		}
	}
}

// activity changes whenever a thread does anything: its times in /proc/PID/task/TID/schedstat and its state.
func activity(pid, tid int) string {
	dir := fmt.Sprintf("/proc/%d/task/%d/", pid, tid)
	times, _ := os.ReadFile(dir + "schedstat")
	status, _ := os.ReadFile(dir + "status")
	_, switches, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
	return string(times) + switches
}

// hangUp ends the conversations of programs that were released, so that they can be woken.
func hangUp(ctx context.Context, programs []*process.Program) error {
	return parallel(programs, func(p *process.Program) error {
		if !p.Released() {
			return nil
		}
		return p.HangUp(ctx)
	})
}
