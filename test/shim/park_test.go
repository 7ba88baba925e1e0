package shim

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/wire"
)

// running lists the threads of a program that run, or could.
func (h *held) running() (list []string) {
	h.t.Helper()
	stats, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(int(h.hello.PID)), "task/*/stat"))
	if err != nil || len(stats) == 0 {
		h.t.Fatalf("threads of process %d: %v, %v", h.hello.PID, stats, err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if _, after, ok := strings.Cut(string(b), ") "); err == nil && ok && after[0] == 'R' {
			list = append(list, string(b))
		}
	}
	return list
}

func (h *held) untilRunning(want bool) {
	h.t.Helper()
	for end := time.Now().Add(patience); len(h.running()) > 0 != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("threads that run: %v, want some: %v", h.running(), want)
		}
	}
}

// Parked, no thread runs, whatever it does and blocks; and all of them do again when they may.
func TestPark(t *testing.T) {
	const threads = 6
	d, p, h := attach(t)
	p.OK("alloc 4096")
	p.OK("spin %d", threads)
	for round := range 20 {
		h.untilRunning(true)
		h.letGo()
		parked := h.park(0)
		if parked.Threads != threads+1 {
			t.Fatalf("round %d: %d threads stand still, want %d and the main one", round, parked.Threads, threads)
		}
		h.untilRunning(false) // the last ones are on their way into the futex
		for range 20 {
			if list := h.running(); len(list) > 0 {
				t.Fatalf("round %d: a thread runs: %v", round, list)
			}
		}
		t.Logf("round %d: %d µs", round, parked.Nanos/1000)
		switch round % 3 {
		case 1: // the driver waits for one of them
			if err := unix.Tgkill(int(h.hello.PID), int(h.hello.ControlTID),
				unix.Signal(64-wire.RunOffset)); err != nil {
				t.Fatal(err)
			}
			h.untilRunning(true)
		case 2: // a handler of the program's does not run in between
			if err := unix.Kill(int(h.hello.PID), unix.SIGUSR1); err != nil {
				t.Fatal(err)
			}
		}
		h = d.giveBack(h)
		must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
		p.OK("setuid") // glibc's own use of that signal
	}
	p.Quit()
}

// A thread that has slept through the end of one time comes to the next all the same: the scheduler may not have let it
// out of the handler in between.
func TestParkAgainAtOnce(t *testing.T) {
	d, p, h := attach(t)
	p.OK("spin 40")
	for range 30 {
		h.letGo()
		if parked := h.park(0); parked.Threads != 41 {
			t.Fatalf("%d threads stand still", parked.Threads)
		}
		h = d.giveBack(h)
		must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	}
	p.Quit()
}

// Between RELEASED and PARK the control thread holds all locks: whatever else comes then is refused or dropped.
func TestNothingBeforePark(t *testing.T) {
	d, p, h := attach(t)
	p.OK("alloc 4096")
	h.letGo()
	for _, m := range []wire.Message{&wire.Untap{}, &wire.Ask{}, &wire.Freeze{}, &wire.Thaw{}, &wire.Release{},
		&wire.MapEnd{}, &wire.Quit{}} {
		if f, ok := h.ask(m).(*wire.Failed); !ok || f.Code != wire.FailedState {
			t.Errorf("%v: %+v", m.Type(), f)
		}
	}
	for _, m := range []wire.Message{&wire.Shared{ID: 1}, &wire.RoomMade{ID: 1}, &wire.Calm{Millis: 1}} {
		if err := h.c.Send(0, m); err != nil {
			t.Fatal(err)
		}
	}
	h.park(0)
	h = d.giveBack(h)
	must[*wire.Thawed](t, h.ask(&wire.Thaw{}))
	p.Quit()
}

// Who kills a parked program means it.
func TestParkedIsKilled(t *testing.T) {
	_, p, h := attach(t)
	p.OK("spin 2")
	h.letGo()
	h.park(0)
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := p.Cmd.Wait()
	var status *exec.ExitError
	if !errors.As(err, &status) || status.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", err)
	}
}

// A daemon that says nothing loses its hold on a frozen program.
func TestLease(t *testing.T) {
	d, p, h := attach(t)
	a := p.OK("alloc 4096")[0]
	if err := h.c.Send(0, &wire.Lease{Millis: 50}); err != nil {
		t.Fatal(err)
	}
	must[*wire.Frozen](t, h.ask(&wire.Freeze{TimeoutMillis: inTime}))
	p.OK("write %d 7", a) // it waits for the gate
	h.drop()
	h = d.take()
	if h.hello.Flags != wire.HelloReadopt|can {
		t.Errorf("HELLO after a lease: %+v", h.hello)
	}
	h.until("ADOPTED", func() bool { return h.adopted != nil })
	p.Quit()
	if s := p.Stderr.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "says nothing for 50 ms") {
		t.Errorf("stderr: %s", s)
	}
}
