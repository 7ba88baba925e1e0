package shim

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/wire"
)

// Variables of modules go into held memory when the program is frozen, and come back from there.
func TestGlobals(t *testing.T) {
	env, soft := driver(t)
	if !soft {
		t.Skip("the test writes into the memory of the software GPU")
	}
	d, p, h := attach(t, env...)
	mirror := func() int {
		t.Helper()
		fd := -1
		for id, a := range h.allocs {
			if a.Kind != wire.KindMirror {
				continue
			}
			if fd >= 0 {
				t.Fatal("more than one mirror")
			}
			fd = h.fds[id]
		}
		if fd < 0 {
			t.Fatal("there is no mirror")
		}
		return fd
	}
	freeze := func() {
		t.Helper()
		must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	}
	want := func(va, n uint64) {
		t.Helper()
		if got := p.OK("read %d", va)[0]; got != n {
			t.Errorf("at %#x: %d, want %d", va, got, n)
		}
	}
	image := make([]byte, 2<<20)
	rollback := func() {
		t.Helper()
		if _, err := unix.Pwrite(mirror(), image, 0); err != nil {
			t.Fatal(err)
		}
		must[*wire.Thawed](t, h.ask(&wire.Thaw{Flags: wire.ThawGlobals}))
	}

	first := p.OK("variable")[0]
	p.OK("bump 0 3")
	freeze()
	if n, err := unix.Pread(mirror(), image, 0); err != nil || n != len(image) {
		t.Fatal(n, err)
	}
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	want(first, 10)
	p.OK("bump 0 2")
	newer := p.OK("variable")[0]
	p.OK("bump 1 1")
	freeze()
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	want(first, 12)
	freeze()
	rollback()
	want(first, 10)
	want(newer, 8) // the state is older than that one: it stays
	p.OK("bump 0 1")
	want(first, 11)

	// Over letting go, and with a new daemon.
	h.release()
	h = d.giveBack(h)
	rollback()
	want(first, 10)
	want(newer, 8)
	h.drop()
	h = d.take()
	h.until("ADOPTED", func() bool { return h.adopted != nil })
	p.OK("bump 0 5")
	freeze()
	rollback()
	want(first, 10)

	// Where a variable was, there may be another one now.
	p.OK("unload 0")
	p.OK("unload 1")
	third := p.OK("variable")[0]
	freeze()
	rollback()
	want(third, 7)
	if len(h.allocs) != 1 {
		t.Errorf("%d allocations, want the mirror alone", len(h.allocs))
	}

	// What is no mirror is refused, and the program runs on.
	clear(image)
	freeze()
	if _, err := unix.Pwrite(mirror(), image, 0); err != nil {
		t.Fatal(err)
	}
	if f := must[*wire.Failed](t, h.ask(&wire.Thaw{Flags: wire.ThawGlobals})); f.Code != wire.FailedGlobals {
		t.Errorf("%+v", f)
	}
	p.OK("bump 2 1")
	want(third, 8)
	// Variables that nobody asks for would not come back.
	if len(h.caveats) != 1 || h.caveats[0].Code != wire.CaveatGlobals || h.caveats[0].Flags != 0 ||
		!strings.Contains(h.caveats[0].Text, "never asks") {
		t.Errorf("caveats %v", h.caveats)
	}
	p.Quit()
}
