package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/wire"
)

// Release makes a frozen program let go of all its memory. The conversation goes on until Park or HangUp.
func (p *Program) Release(ctx context.Context) (wire.Released, error) {
	p.letGo() // a LEASE that it does not read any more would cut off what it says last
	old := false
	if s := p.current(); s != nil {
		old = !s.parks
	}
	r, err := p.call(ctx, &wire.Release{})
	if err != nil {
		var refused *Refusal
		if errors.As(err, &refused) {
			p.renew() // it is frozen as before
		}
		return wire.Released{}, err
	}
	rel, ok := r.(*wire.Released)
	if !ok {
		return wire.Released{}, fmt.Errorf("process %d answered RELEASE with %v", p.id.PID, r.Type())
	}
	p.mu.Lock()
	if p.s != nil {
		p.s.released = true
	}
	p.hangsUp = old
	p.mu.Unlock()
	return *rel, nil
}

// Released reports whether the program has let go of its memory and still talks to us.
func (p *Program) Released() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s != nil && p.s.released
}

// Park makes all threads of a released program stand still but its control thread and except, the thread in which the
// driver restores it; then the conversation ends. The driver must be locked. Programs from images of before PARK run
// on.
func (p *Program) Park(ctx context.Context, except int, timeout time.Duration) (threads int, err error) {
	p.mu.Lock()
	s, hungUp := p.s, p.hangsUp
	p.mu.Unlock()
	if s == nil && !hungUp {
		return 0, fmt.Errorf("process %d: %w", p.id.PID, ErrGone)
	}
	if s == nil || !s.parks {
		return 0, p.HangUp(ctx)
	}
	r, err := p.call(ctx, &wire.Park{Except: uint32(except), TimeoutMillis: uint32(timeout.Milliseconds())})
	if err != nil {
		return 0, errors.Join(err, p.HangUp(ctx))
	}
	parked, ok := r.(*wire.Parked)
	if !ok {
		return 0, fmt.Errorf("process %d answered PARK with %v", p.id.PID, r.Type())
	}
	return int(parked.Threads), p.HangUp(ctx)
}

// HangUp ends the conversation with a released program, so that nothing of ours is open in it, and waits for its end.
func (p *Program) HangUp(ctx context.Context) error {
	s := p.current()
	if s == nil {
		return nil
	}
	if s.parks {
		s.conn.CloseWrite() // it may have hung up itself
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d keeps its conversation open: %w", p.id.PID, ctx.Err())
	}
}

// LetRun lets the threads of a parked program run although it has not come back: the driver waits for a lock that one
// of them holds.
func (p *Program) LetRun() error { return unix.Tgkill(p.id.PID, p.id.ControlTID, SignalRun) }
