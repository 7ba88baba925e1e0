package shim

import (
	"testing"

	"holdfast/internal/wire"
)

// A gate that is to stay shut stays so over the death of any number of daemons. Memory that the program cannot export
// again is moved only when it is told that nobody else has it: somebody may be filling it.
func TestStaysShut(t *testing.T) {
	d, p, h := attach(t)
	a := p.OK("alloc %d", 2<<20)[0]
	p.OK("write %d 4711", a)
	h.release()
	h = d.giveBack(h) // now its memory is imported
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	shut := &wire.Lease{Flags: wire.LeaseShut}
	if f := must[*wire.Failed](t, h.ask(shut)); f.Code != wire.FailedState {
		t.Errorf("LEASE of a program that runs: %+v", f)
	}
	must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	must[*wire.Done](t, h.ask(shut))
	for _, flags := range []uint32{0, 0, wire.WelcomeMove} {
		h.drop()
		d.welcome = flags
		h = d.take()
		if h.hello.Flags != wire.HelloReadopt|wire.HelloFrozen|can {
			t.Fatalf("%+v", h.hello)
		}
		h.until("ADOPTED", func() bool { return h.adopted != nil })
		if moved := h.adopted.Lost == 0; moved != (flags != 0) || h.holds(a) != moved {
			t.Errorf("with flags %d: %+v", flags, h.adopted)
		}
	}
	if v := h.word(a); v != 4711 {
		t.Errorf("what was moved says %d", v)
	}
	must[*wire.Thawed](t, h.ask(&wire.Thaw{Flags: wire.ThawGlobals}))
	if f := must[*wire.Failed](t, h.ask(&wire.Thaw{})); f.Code != wire.FailedOpen {
		t.Errorf("THAW of a program that runs: %+v", f)
	}
	if v := p.OK("read %d", a)[0]; v != 4711 {
		t.Errorf("read %d", v)
	}
	// The next freeze is like any other.
	must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	h.drop()
	d.welcome = 0
	h = d.take()
	if h.hello.Flags != wire.HelloReadopt|can {
		t.Errorf("after a freeze of no consequence: %+v", h.hello)
	}
	p.Quit()
}

// A program that has not got its memory back does not say that its gate is open.
func TestThawReleased(t *testing.T) {
	d, p, h := attach(t)
	p.OK("alloc %d", 2<<20)
	h.letGo()
	if f := must[*wire.Failed](t, h.ask(&wire.Thaw{})); f.Code != wire.FailedState {
		t.Errorf("%+v", f)
	}
	h.hangUp()
	h = d.giveBack(h)
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	p.Quit()
}
