package process

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/wire"
)

// DefaultLease is how long a frozen program waits for a daemon that says nothing: one that hangs, or is stopped,
// costs the operation that it was busy with, not the program. We say something five times as often.
const DefaultLease = 15 * time.Second

// SetLease sets the lease of the program's freezes to come; 0: DefaultLease.
func (p *Program) SetLease(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d > 0 {
		p.leaseTime = d
	}
}

// StaysShut reports whether the program would keep its gate shut if it were asked to. Shims of older images do not.
func (p *Program) StaysShut() bool {
	s := p.current()
	return s != nil && s.parks
}

// KeepShut makes a frozen program keep its gate shut whatever becomes of us, until Thaw: its memory is about to be
// overwritten. After an error it may do so, or may have opened it; a Thaw opens it in any case.
func (p *Program) KeepShut(ctx context.Context) error {
	p.letGo() // a renewal of the lease would take this back
	r, err := p.call(ctx, &wire.Lease{Flags: wire.LeaseShut})
	if err != nil {
		return err
	}
	if _, ok := r.(*wire.Done); !ok {
		return fmt.Errorf("process %d answered LEASE with %v", p.id.PID, r.Type())
	}
	p.setShut(true)
	return nil
}

// Shut reports whether the program stands behind a gate that only Thaw opens, because its memory may be half of one
// state and half of another.
func (p *Program) Shut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shut
}

func (p *Program) setShut(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = on
	if !on {
		p.stuck = ""
	}
}

// SetStuck says why the gate of the program stays shut although nobody is busy with it, and what can be done; "":
// somebody is.
func (p *Program) SetStuck(why string) {
	p.mu.Lock()
	p.stuck = why
	p.mu.Unlock()
}

// Stuck is what SetStuck has said.
func (p *Program) Stuck() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck
}

func (p *Program) current() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s
}

// tell says in s how long the program stays frozen if it hears nothing more from us. An error is ignored: the next
// message finds it too.
func (s *session) tell(d time.Duration) {
	s.conn.Send(0, &wire.Lease{Millis: uint32(d.Milliseconds())})
}

// lease tells the program its lease before a freeze. With shut set the gate is to stay shut.
func (p *Program) lease(shut bool) {
	p.mu.Lock()
	s, d := p.s, p.leaseTime
	p.mu.Unlock()
	switch {
	case s == nil || !s.parks:
	case shut:
		s.conn.Send(0, &wire.Lease{Flags: wire.LeaseShut})
	default:
		s.tell(d)
	}
}

// A renewal keeps a frozen program from going on by itself.
type renewal struct{ end, ended chan struct{} }

// renew begins the renewal of the lease of a program that is frozen from now on. It ends with letGo, or the
// conversation.
func (p *Program) renew() {
	p.letGo()
	s := p.current()
	if s == nil || !s.parks {
		return
	}
	r := &renewal{make(chan struct{}), make(chan struct{})}
	p.mu.Lock()
	p.renewing = r
	every := p.leaseTime
	p.mu.Unlock()
	go func() {
		defer close(r.ended)
		tick := time.NewTicker(every / 5)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.tell(every)
			case <-r.end:
				return
			case <-s.done:
				return
			}
		}
	}()
}

// letGo ends the renewal. Nothing of it is sent after letGo has returned: it would be about the program's next
// freeze, or take a KeepShut back.
func (p *Program) letGo() {
	p.mu.Lock()
	r := p.renewing
	p.renewing = nil
	p.mu.Unlock()
	if r != nil {
		close(r.end)
		<-r.ended
	}
}
