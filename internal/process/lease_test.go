package process

import (
	"errors"
	"io"
	"testing"
	"time"

	"holdfast/internal/wire"
)

// frozen makes p freeze.
func (s shim) frozen(p *Program) {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { _, err := p.Freeze(s.t.Context(), time.Second, 0); done <- err }()
	s.lease(0)
	s.send(s.expect(wire.TypeFreeze), &wire.Frozen{})
	if err := <-done; err != nil {
		s.t.Fatal(err)
	}
}

// lease expects a LEASE with those flags and returns its number.
func (s shim) lease(flags uint32) uint64 {
	s.t.Helper()
	seq, m, _, err := s.c.Recv()
	if l, ok := m.(*wire.Lease); err != nil || !ok || l.Flags != flags {
		s.t.Fatalf("received %+v, %v; want LEASE with flags %d", m, err, flags)
	}
	return seq
}

// A frozen program hears of us until it is thawed, and nothing about its lease afterwards.
func TestRenew(t *testing.T) {
	p := newProgram()
	p.SetLease(5 * time.Millisecond)
	s, _ := talk(t, p, wire.HelloPark)
	s.frozen(p)
	for range 3 {
		s.lease(0)
	}
	done := make(chan error, 1)
	go func() { done <- p.Thaw(t.Context(), 0) }()
	for {
		seq, m, _, err := s.c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type() == wire.TypeThaw {
			s.send(seq, &wire.Thawed{})
			break
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// What is sent next is the next command: had a renewal been left over, it would come before or after it.
	go func() { _, err := p.call(t.Context(), &wire.Untap{}); done <- err }()
	seq := s.expect(wire.TypeUntap)
	time.Sleep(20 * time.Millisecond) // of silence
	s.send(seq, &wire.Done{})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	go func() { _, err := p.call(t.Context(), &wire.Untap{}); done <- err }()
	s.send(s.expect(wire.TypeUntap), &wire.Done{})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// The renewal of a lease ends with the conversation.
func TestRenewEnds(t *testing.T) {
	p := newProgram()
	s, served := talk(t, p, wire.HelloPark)
	s.frozen(p)
	p.mu.Lock()
	r := p.renewing
	p.mu.Unlock()
	s.c.Close()
	<-served
	<-r.ended
}

// A gate that is to stay shut is known to be before anything is overwritten, and nothing takes that back but a THAW.
func TestKeepShut(t *testing.T) {
	p := newProgram()
	p.SetLease(5 * time.Millisecond)
	s, served := talk(t, p, wire.HelloPark)
	if !p.StaysShut() {
		t.Error("it would not stay shut")
	}
	s.frozen(p)
	done := make(chan error, 1)
	go func() { done <- p.KeepShut(t.Context()) }()
	for {
		seq, m, _, err := s.c.Recv()
		l, ok := m.(*wire.Lease)
		if err != nil || !ok {
			t.Fatal(m, err)
		}
		if l.Flags == 0 {
			continue // a renewal
		}
		if p.Shut() {
			t.Error("it counts as shut before it has said so")
		}
		s.send(seq, &wire.Done{})
		break
	}
	if err := <-done; err != nil || !p.Shut() {
		t.Fatalf("%v, shut %v", err, p.Shut())
	}
	s.c.Close()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	s, _ = talk(t, p, wire.HelloPark|wire.HelloReadopt|wire.HelloFrozen)
	if !p.Shut() {
		t.Error("it has come back shut, and does not count as that")
	}
	go func() { done <- p.Thaw(t.Context(), wire.ThawGlobals) }()
	s.send(s.expect(wire.TypeThaw), &wire.Failed{Code: wire.FailedGlobals})
	if err := <-done; err == nil || !p.Shut() {
		t.Errorf("a THAW that has failed: %v, shut %v", err, p.Shut())
	}
	p.SetStuck("so")
	go func() { done <- p.Thaw(t.Context(), wire.ThawGlobals) }()
	s.send(s.expect(wire.TypeThaw), &wire.Thawed{})
	if err := <-done; err != nil || p.Shut() || p.Stuck() != "" {
		t.Errorf("%v, shut %v, %q", err, p.Shut(), p.Stuck())
	}
}

// A program that is not frozen any more does not count as shut.
func TestKeepShutTooLate(t *testing.T) {
	p := newProgram()
	s, _ := talk(t, p, wire.HelloPark)
	done := make(chan error, 1)
	go func() { done <- p.KeepShut(t.Context()) }()
	s.send(s.lease(wire.LeaseShut), &wire.Failed{Code: wire.FailedState, Text: "LEASE: the program is not frozen"})
	if err := <-done; err == nil || p.Shut() {
		t.Errorf("%v, shut %v", err, p.Shut())
	}
}

// What a program that comes shut tells anew takes the place of what is held of it; what it cannot tell stays.
func TestReadoptShut(t *testing.T) {
	p := newProgram()
	s, served := talk(t, p, wire.HelloPark)
	for id := range uint64(3) {
		s.send(0, &wire.Alloc{ID: id + 1, VA: id + 1, Size: 2 << 20}, memfd(t, 2<<20))
	}
	s.send(0, &wire.Adopted{})
	if err := p.WaitAdopted(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := p.Allocs()
	s.c.Close()
	<-served
	s, served = talk(t, p, wire.HelloPark|wire.HelloReadopt|wire.HelloFrozen)
	s.send(0, &wire.Alloc{ID: 2, VA: 2, Size: 2 << 20}, memfd(t, 2<<20))
	s.send(0, &wire.Adopted{})
	if err := p.WaitAdopted(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := p.Allocs()
	if len(after) != 3 || after[0] != before[0] || after[1] == before[1] || after[2] != before[2] {
		t.Errorf("%v became %v", before, after)
	}
	if p.ToldAll() || !p.HoldsUntold(1) || p.HoldsUntold(2) {
		t.Error("it has told one of three")
	}
	s.send(0, &wire.Alloc{ID: 2, VA: 2, Size: 2 << 20}, memfd(t, 2<<20))
	if err := <-served; err == nil {
		t.Error("it may tell the same twice")
	}
}

// A program of whose memory nobody has a descriptor is asked to move what it cannot export.
func TestReadoptShutAlone(t *testing.T) {
	for _, c := range []struct{ flags, want uint32 }{
		{wire.HelloReadopt | wire.HelloFrozen, wire.WelcomeMove}, {wire.HelloReadopt, 0},
	} {
		s := hello(t, newProgram(), c.flags)
		_, m, _, err := s.c.Recv()
		if w, ok := m.(*wire.Welcome); err != nil || !ok || w.Flags != c.want {
			t.Errorf("HELLO with %d: %+v, %v", c.flags, m, err)
		}
	}
}

// Only a program that says that its gate is open counts as not frozen.
func TestThawNotFrozen(t *testing.T) {
	for _, c := range []struct {
		f    wire.Failed
		open bool
	}{
		{wire.Failed{Code: wire.FailedOpen}, true},
		{wire.Failed{Code: wire.FailedState, Text: "THAW: the program is not frozen"}, true},
		{wire.Failed{Code: wire.FailedState, Text: "THAW: the program has not got its memory back"}, false},
	} {
		p := newProgram()
		s, _ := talk(t, p, wire.HelloPark)
		done := make(chan error, 1)
		go func() { done <- p.Thaw(t.Context(), 0) }()
		s.send(s.expect(wire.TypeThaw), &c.f)
		if err := <-done; errors.Is(err, ErrNotFrozen) != c.open {
			t.Errorf("%+v: %v", c.f, err)
		}
	}
}

// released makes p let go of its memory.
func (s shim) released(p *Program) {
	s.t.Helper()
	s.frozen(p)
	s.letsGo(p)
}

// letsGo answers RELEASE.
func (s shim) letsGo(p *Program) {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { _, err := p.Release(s.t.Context()); done <- err }()
	s.send(s.expect(wire.TypeRelease), &wire.Released{})
	if err := <-done; err != nil {
		s.t.Fatal(err)
	}
}

// Whether its threads could be parked or not, a released program has closed everything when Park returns.
func TestPark(t *testing.T) {
	for _, fails := range []bool{false, true} {
		p := newProgram()
		s, served := talk(t, p, wire.HelloPark)
		s.released(p)
		type result struct {
			threads int
			err     error
		}
		done := make(chan result, 1)
		go func() {
			n, err := p.Park(t.Context(), 7, time.Second)
			done <- result{n, err}
		}()
		seq := s.expect(wire.TypePark)
		if fails {
			s.send(seq, &wire.Failed{Code: wire.FailedPark, Text: "PARK: thread 5 does not stop"})
		} else {
			s.send(seq, &wire.Parked{Threads: 3})
		}
		select {
		case r := <-done:
			t.Fatalf("it has not closed its end, but: %+v", r)
		default:
		}
		if _, _, _, err := s.c.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the program does not read the end: %v", err)
		}
		s.c.Close()
		r := <-done
		var refused *Refusal
		if fails != errors.As(r.err, &refused) || !fails && (r.err != nil || r.threads != 3) {
			t.Errorf("fails %v: %+v", fails, r)
		}
		<-served
	}
}

// A program from before PARK, once released, hangs up by itself, at any time, and is asked nothing.
func TestParkOld(t *testing.T) {
	for _, late := range []bool{false, true} {
		p := newProgram()
		s, served := talk(t, p, 0)
		s.letsGo(p)
		if late {
			time.AfterFunc(time.Millisecond, func() { s.c.Close() })
		} else {
			s.c.Close()
			<-served
		}
		if _, err := p.Park(t.Context(), 0, time.Second); err != nil {
			t.Errorf("late %t: %v", late, err)
		}
	}
}

// A program that parks, and whose conversation has ended, is not taken for parked.
func TestParkGone(t *testing.T) {
	p := newProgram()
	s, served := talk(t, p, wire.HelloPark)
	s.released(p)
	s.c.Close()
	<-served
	if _, err := p.Park(t.Context(), 0, time.Second); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}
