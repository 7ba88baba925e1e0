package checkpoint

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/cuda"
	"holdfast/internal/process"
	"holdfast/internal/wire"
	"holdfast/internal/wire/wiretest"
)

// checkpointer is a driver that takes down and brings back contexts, and fails where it is told to.
type checkpointer struct {
	cuda.Driver
	mu    sync.Mutex
	state cuda.ProcessState
	lock  error
	save  func() error
	lost  error // of its state
}

func (d *checkpointer) step(to cuda.ProcessState, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.state = to
	}
	return err
}

func (d *checkpointer) CheckpointState(int) (cuda.ProcessState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state, d.lost
}

func (d *checkpointer) CheckpointRestoreThread(pid int) (int, error) { return pid, nil }

func (d *checkpointer) CheckpointLock(int, time.Duration) error {
	return d.step(cuda.ProcessLocked, d.lock)
}

func (d *checkpointer) CheckpointSave(int) error { return d.step(cuda.ProcessCheckpointed, d.save()) }
func (d *checkpointer) CheckpointRestore(int) error {
	return d.step(cuda.ProcessLocked, nil)
}
func (d *checkpointer) CheckpointUnlock(int) error { return d.step(cuda.ProcessRunning, nil) }

// deaf starts a process that the signals which wake programs, and let their threads run, do not end; or only the
// second does.
func deaf(t *testing.T, toBoth bool) int {
	t.Helper()
	signals := "63"
	if toBoth {
		signals = "63 61"
	}
	cmd := exec.Command("bash", "-c", "trap '' "+signals+"; echo; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// comer is a program that the test plays over several conversations.
type comer struct {
	t      *testing.T
	p      *process.Program
	parks  func() wire.Message // what it answers to PARK
	mu     sync.Mutex
	mapped int
	thawed int
}

// converse is one conversation, and after it, if the program was released, the next one.
func (h *comer) converse(flags uint32) {
	c, daemon, err := wiretest.Connect(filepath.Join(h.t.TempDir(), "s"))
	if err != nil {
		h.t.Error(err)
		return
	}
	if err := h.p.Attach(daemon, &wire.Hello{Flags: flags | wire.HelloPark}, wiretest.Page(h.t)); err != nil {
		h.t.Error(err)
		return
	}
	go func() {
		released := h.obey(c)
		c.Close()
		if released {
			h.converse(wire.HelloResume)
		}
	}()
	go h.p.Serve(func(*process.Program, *wire.Room) uint64 { return 0 })
}

func (h *comer) obey(c *wire.Conn) (released bool) {
	for {
		seq, m, fds, err := c.Recv()
		wire.CloseAll(fds)
		if err != nil {
			for h.p.Conversing() { // our end of it goes last
				c.Close()
				time.Sleep(time.Millisecond)
			}
			return released
		}
		switch m.(type) {
		case *wire.Freeze:
			c.Send(seq, &wire.Frozen{})
		case *wire.Release:
			released = true
			c.Send(seq, &wire.Released{})
		case *wire.Park:
			c.Send(seq, h.parks())
		case *wire.MapEnd:
			released = false
			h.mu.Lock()
			h.mapped++
			h.mu.Unlock()
			c.Send(seq, &wire.Mapped{})
		case *wire.Thaw:
			h.mu.Lock()
			h.thawed++
			h.mu.Unlock()
			c.Send(seq, &wire.Thawed{})
		}
	}
}

type driverOnly struct {
	noGPU
	drv cuda.Driver
}

func (g driverOnly) Driver(uint32) (cuda.Driver, error) { return g.drv, nil }

// Whatever fails after a program has let go of its memory, it gets that back and runs.
func TestTakeDownFails(t *testing.T) {
	parked := func() wire.Message { return &wire.Parked{Threads: 1} }
	fails := errors.New("the driver does not want to")
	for _, c := range []struct {
		name string
		drv  *checkpointer
		park func() wire.Message
		want string
	}{
		{"lock", &checkpointer{lock: fails}, parked, fails.Error()},
		{"park", &checkpointer{}, func() wire.Message {
			return &wire.Failed{Code: wire.FailedPark, Text: "PARK: thread 5 does not stop"}
		}, "thread 5"},
		{"save", &checkpointer{save: func() error { return fails }}, parked, fails.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			pid := deaf(t, true)
			h := &comer{t: t, p: newProgram(t, pid), parks: c.park}
			t.Cleanup(h.p.Drop)
			h.converse(0)
			e := keeping(t, 0)
			e.GPUs = driverOnly{drv: c.drv}
			run := &capture{env: e, programs: []*process.Program{h.p}, driver: c.drv,
				opt: Options{Timeout: time.Second}}
			if err := e.freeze(t.Context(), run.programs, time.Second); err != nil {
				t.Fatal(err)
			}
			if err := e.keepAll(run.programs, DoingCheckpoint); err != nil {
				t.Fatal(err)
			}
			err := run.takeDown(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("takeDown = %v, want %q", err, c.want)
			}
			if err := e.comeBack(run.programs, &run.t, nil); err != nil {
				t.Fatal(err)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.mapped != 1 || h.thawed != 1 || c.drv.state != cuda.ProcessRunning {
				t.Errorf("mapped %d times, thawed %d times, the driver is in state %v", h.mapped, h.thawed, c.drv.state)
			}
			k, err := e.Keeper()
			if err != nil {
				t.Fatal(err)
			}
			if keys, err := k.List(); err != nil || len(keys) != 0 {
				t.Errorf("left with the keeper: %v, %v", keys, err)
			}
		})
	}
}

// Of a program that cannot come back whoever asked is told why and what to do, and so is ps.
func TestHopeless(t *testing.T) {
	for name, c := range map[string]struct {
		drv  *checkpointer
		attr *syscall.SysProcAttr
		want string
	}{
		"GPU": {&checkpointer{lost: cuda.ErrInvalidValue}, nil, "the GPU that it had come back to is gone"},
		"user": {&checkpointer{lost: errors.New("no driver just now")},
			&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534}}, "it has become user 65534"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.attr != nil && os.Getuid() != 0 {
				t.Skip("only root can become another user")
			}
			pid := sleeper(t, c.attr) // the wake ends it, unless it has ended before
			p := newProgram(t, pid)
			t.Cleanup(p.Drop)
			p.SetRestorable("/images/last")
			e := keeping(t, 0)
			e.GPUs, e.Patience = driverOnly{drv: c.drv}, time.Second
			err := e.comeBack([]*process.Program{p}, &timeline{}, nil)
			var late *NotBackError
			if !errors.As(err, &late) {
				t.Fatalf("%v", err)
			}
			for _, text := range []string{late.Error(), p.NotBack()} {
				if !strings.Contains(text, c.want) || !strings.Contains(text, fmt.Sprintf("kill -9 %d", pid)) ||
					!strings.Contains(text, "holdfast restore /images/last") {
					t.Errorf("%q, want %q and what to do", text, c.want)
				}
			}
			syscall.Kill(pid, syscall.SIGKILL)
			<-late.Done
		})
	}
}

// A restored program that breaks off its first conversation, as one that had no descriptor for what it was sent, is
// woken again.
func TestRestoredBreaksOff(t *testing.T) {
	p := newProgram(t, deaf(t, true))
	t.Cleanup(p.Drop)
	converse := func(answer func(c *wire.Conn, seq uint64)) (over chan struct{}) {
		c, daemon, err := wiretest.Connect(filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Error(err)
			return nil
		}
		over = make(chan struct{})
		if err := p.Attach(daemon, &wire.Hello{Flags: wire.HelloResume | wire.HelloPark},
			wiretest.Page(t)); err != nil {
			t.Error(err)
			return nil
		}
		go func() {
			defer close(over)
			p.Serve(func(*process.Program, *wire.Room) uint64 { return 0 })
		}()
		go func() {
			defer c.Close()
			for {
				seq, m, fds, err := c.Recv()
				wire.CloseAll(fds)
				if err != nil {
					return
				}
				if _, ok := m.(*wire.MapEnd); ok {
					answer(c, seq)
				}
			}
		}()
		return over
	}
	first := converse(func(c *wire.Conn, _ uint64) { c.Close() })
	go func() {
		<-first
		converse(func(c *wire.Conn, seq uint64) { c.Send(seq, &wire.Mapped{}) })
	}()
	r := &restoration{env: &Env{Log: slog.New(slog.DiscardHandler), Patience: time.Minute}}
	if err := r.giveMemory(t.Context(), p); err != nil {
		t.Error(err)
	}
}

// A driver that does nothing at all in a program whose threads stand still makes them run, and what it was doing counts
// as failed.
func TestAttended(t *testing.T) {
	e := &Env{Log: slog.New(slog.DiscardHandler), Standstill: 20 * time.Millisecond}
	p := newProgram(t, deaf(t, false)) // the signal ends it
	t.Cleanup(p.Drop)
	nudged, err := e.attended(p, p.Identity().PID, "save", func() error {
		return process.AwaitEnd(t.Context(), p.Identity())
	})
	if err != nil || !nudged {
		t.Errorf("nudged %v, %v", nudged, err)
	}
	if !slices.Contains([]error{nil, unix.ESRCH}, p.LetRun()) {
		t.Error("it is still there")
	}
	// One that has nothing to stand still for is left alone.
	fails := errors.New("no")
	if nudged, err := e.attended(p, 0, "save", func() error { return fails }); nudged || !errors.Is(err, fails) {
		t.Errorf("nudged %v, %v", nudged, err)
	}
}
