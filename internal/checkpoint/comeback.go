package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"holdfast/internal/process"
)

// NotBackError is wrapped by the error of an operation that has ended while programs of it still stand still. They
// are being brought back; whoever asked need not wait for it.
type NotBackError struct {
	PID  int
	Why  string          // why it will never come back; "": it may
	Done <-chan struct{} // closed when all of them have their memory or are gone
}

func (e *NotBackError) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("process %d does not come back: %s", e.PID, e.Why)
	}
	return fmt.Sprintf("process %d does not come back yet; that is tried until it does, and ps says restoring "+
		"meanwhile",
		e.PID)
}

// comeback brings released programs back, from any state after the keeper got their descriptors.
type comeback struct {
	env      *Env
	programs []*process.Program
	t        *timeline
	lost     bool // if they have no memory themselves, nobody has it

	mu     sync.RWMutex // read-locked over before
	before func(*process.Program) error
}

// comeBack brings released programs back. What fails is tried again for as long as they live: another program may have
// taken the device memory that the driver needs, and may give it back; a stopped program cannot answer until it is
// continued. It waits for Env.Patience at most, and then returns a [*NotBackError].
//
// before, if not nil, is called for each program that has its memory again and is about to run, as long as comeBack
// has not returned.
func (e *Env) comeBack(programs []*process.Program, t *timeline, before func(context.Context,
	*process.Program) error) error {
	b := &comeback{env: e, programs: programs, t: t}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if before != nil {
		b.before = func(p *process.Program) error { return before(ctx, p) }
	}
	return e.patiently(programs, b.all, func() {
		cancel()
		b.mu.Lock() // before belongs to the caller, which goes on now
		b.before = nil
		b.mu.Unlock()
	})
}

// patiently does what brings programs back, and waits for it until the patience ends: then it calls late, and returns a
// *NotBackError. What is done goes on.
func (e *Env) patiently(programs []*process.Program, do func() error, late func()) error {
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = do()
	}()
	limit := time.NewTimer(e.patience())
	defer limit.Stop()
	select {
	case <-done:
		return err
	case <-limit.C:
	}
	late()
	return notBack(programs, done)
}

// notBack is the error for programs that are waited for no longer. It is about one that will not come back, if any.
func notBack(programs []*process.Program, done <-chan struct{}) error {
	e := &NotBackError{PID: programs[0].Identity().PID, Done: done}
	for _, p := range programs {
		if why := p.NotBack(); why != "" {
			e.PID, e.Why = p.Identity().PID, why
		}
	}
	return e
}

// all returns when each program has come back or is gone; the error says of those that are.
func (b *comeback) all() error { return parallel(b.programs, b.one) }

// How long an attempt waits for the one before it, and how long a program may take to answer a signal: longer than it
// tries to connect.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
	wakeLimit  = 15 * time.Second
)

func (b *comeback) one(p *process.Program) error {
	p.Log().Debug("coming back")
	said, before := "", ""
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		if why := strangeUser(p); why != "" && !p.Conversing() {
			b.say(p, why) // the attempt may take a minute
		}
		err := b.try(p)
		if err == nil {
			p.SetNotBack("")
			b.env.resumed(p)
			return nil
		}
		id := p.Identity()
		if !process.Alive(id.PID, id.StartTime) {
			return fmt.Errorf("process %d: %w: %v", id.PID, process.ErrGone, err)
		}
		if err.Error() != said {
			said = err.Error()
			p.Log().Warn("a program does not come back yet", "err", err)
		}
		// Believe it only twice in a row: the driver also knows nothing of a program that is just coming back.
		now := hopeless(p, err)
		if now == before {
			b.say(p, now)
		}
		before = now
		if errors.Is(err, process.ErrGone) {
			wait = firstRetry // it has broken off its conversation, and waits to be woken again
		}
		select {
		case <-p.Ended():
		case <-time.After(wait):
		}
	}
}

// say makes ps, and whoever asked, say why a program does not come back; "": it may.
func (b *comeback) say(p *process.Program, why string) {
	if why == p.NotBack() {
		return
	}
	p.SetNotBack(why)
	if why != "" {
		p.Log().Error("a program does not come back: " + why)
	}
}

// hopeless returns why a program can never be brought back and what to do, or "". The attempts go on all the same:
// they cost little, and then a wrong guess here costs nothing.
func hopeless(p *process.Program, err error) string {
	if errors.Is(err, errUnknownToDriver) {
		return "the GPU that it had come back to is gone with all its contexts, as when the software GPU dies: " +
			endIt(p)
	}
	return strangeUser(p)
}

// strangeUser says that a program has become a user that neither we nor the software GPU let in, or returns "".
func strangeUser(p *process.Program) string {
	uid, _, err := usersOf(p.Identity())
	if err != nil || uid == 0 || uid == os.Geteuid() {
		return ""
	}
	return fmt.Sprintf("it has become user %d, whom neither this daemon nor the software GPU lets in: %s", uid,
		endIt(p))
}

func endIt(p *process.Program) string {
	remedy := fmt.Sprintf("end it (kill -9 %d)", p.Identity().PID)
	if dir := p.Restorable(); dir != "" {
		remedy += ", and it goes on from its last image: holdfast restore " + dir
	}
	return remedy
}

// try does what is left to do for one program. Only the wake has a time limit: waiting for an answer ends with the
// program anyway.
func (b *comeback) try(p *process.Program) error {
	id := p.Identity()
	drv, err := b.env.GPUs.Driver(id.GPU)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := b.env.driverRestore(drv, p); err != nil {
		return err
	}
	b.t.add("  driver restore", time.Since(start), true)
	start = time.Now()
	// A program that was not released yet, or whose last daemon died before it was, comes back by itself.
	wake, cancel := context.WithTimeout(context.Background(), wakeLimit)
	err = p.Wake(wake)
	cancel()
	if err != nil {
		return err
	}
	b.t.add("  wake", time.Since(start), true)
	if p.NeedsMemory() && b.lost {
		return endLost(p)
	}
	if p.NeedsMemory() {
		start = time.Now()
		if _, err := p.Remap(context.Background(), false); err != nil {
			return err
		}
		b.t.add("  map", time.Since(start), true)
	}
	// From here on the program has its memory: should we die, it opens its gate by itself.
	b.unkeep(p)
	b.prepare(p)
	return open(context.Background(), p, 0)
}

// unkeep deletes the keeper's record of a program. An error does not stop the program: the next daemon would find
// that it runs.
func (b *comeback) unkeep(p *process.Program) {
	var err error
	for range 3 {
		if err = b.env.unkeep(p); err == nil {
			return
		}
	}
	p.Log().Error("the keeper keeps the record of a program that has come back", "err", err)
}

func (b *comeback) prepare(p *process.Program) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.before == nil {
		return
	}
	if err := b.before(p); err != nil {
		p.Log().Warn("not prepared for running again", "err", err)
	}
}
