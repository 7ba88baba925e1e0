package process

import (
	"time"

	"holdfast/internal/wire"
)

// A frozen program waits for its daemon, but not for ever: one that hangs, or is stopped, costs the operation that it was busy
// with, not the program. So the program opens its gate when it has heard nothing for leaseTime; we say something every renewTime.
const (
	leaseTime = 15 * time.Second
	renewTime = 3 * time.Second
)

// KeepShut says of a frozen program that its memory is no longer what it was: until Thaw its gate stays shut, whatever becomes of us.
func (p *Program) KeepShut() {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.lease(true)
}

// lease tells a frozen program how long it stays so if it hears nothing more of us, or with shut that its memory is being filled and
// only we may open its gate.
func (p *Program) lease(shut bool) {
	p.mu.Lock()
	s := p.s
	p.mu.Unlock()
	if s == nil || !s.parks {
		return
	}
	m := &wire.Lease{Millis: uint32(leaseTime.Milliseconds())}
	if shut {
		m.Flags = wire.LeaseShut
	}
	s.conn.Send(0, m) // what follows finds the same error
}

// renew keeps a frozen program from going on by itself, until its conversation or its freeze ends.
func (p *Program) renew(s *session, end <-chan struct{}) {
	tick := time.NewTicker(renewTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.mu.Lock()
			shut := p.shut
			p.mu.Unlock()
			p.lease(shut)
		case <-end:
			return
		case <-s.done:
			return
		}
	}
}

// hold begins the lease of a program that is frozen from now on.
func (p *Program) hold(shut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLease()
	p.shut = shut
	if s := p.s; s != nil && s.parks {
		p.thawed = make(chan struct{})
		go p.renew(s, p.thawed)
	}
}

// letGo ends it.
func (p *Program) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLease()
}

func (p *Program) endLease() {
	p.shut = false
	if p.thawed != nil {
		close(p.thawed)
		p.thawed = nil
	}
}
