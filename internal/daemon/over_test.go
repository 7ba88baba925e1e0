package daemon

import (
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"holdfast/internal/daemon/api"
	"holdfast/internal/process"
	"holdfast/internal/wire"
	"holdfast/internal/wire/wiretest"
)

// heldProcess starts a process and returns the program that it counts as.
func heldProcess(t *testing.T, d *Daemon) (*process.Program, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	start, err := process.StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	id := process.Identity{PID: cmd.Process.Pid, StartTime: start, ControlTID: cmd.Process.Pid, Token: [16]byte{1}}
	p := process.New(id, api.StateRunning, d.log)
	d.programs[id.PID] = p
	return p, cmd
}

func testDaemon() *Daemon {
	return &Daemon{log: slog.New(slog.DiscardHandler), programs: map[int]*process.Program{},
		kept: map[[16]byte]*keptMemory{}, activity: make(chan struct{}, 1)}
}

// conversationOver runs until what it returns is closed, and must go on for a while.
func conversationOver(t *testing.T, d *Daemon, p *process.Program, while time.Duration) <-chan struct{} {
	t.Helper()
	over := make(chan struct{})
	go func() {
		d.conversationOver(p)
		close(over)
	}()
	select {
	case <-over:
		t.Fatal("it lives, and was given up")
	case <-time.After(while):
	}
	return over
}

// A program whose conversation has ended is gone when its process is, and not after some time.
func TestConversationOver(t *testing.T) {
	d := testDaemon()
	p, cmd := heldProcess(t, d)
	over := conversationOver(t, d, p, 1500*time.Millisecond) // longer than anybody waited for its end
	cmd.Process.Kill()                                       // nobody takes its status: it stays as a zombie
	<-over
	<-p.Ended()
	if d.programs[p.Identity().PID] != nil || !p.Forgotten() {
		t.Error("it has ended and is still there")
	}
}

// One that comes back is not looked after any longer.
func TestConversationAnew(t *testing.T) {
	d := testDaemon()
	p, _ := heldProcess(t, d)
	over := conversationOver(t, d, p, 20*time.Millisecond)
	arrive(t, p)
	<-over
	if p.Forgotten() {
		t.Error("it is back, and forgotten")
	}
}

// One that lives without the thread that would come back, as after an exec, is held no longer.
func TestConversationNever(t *testing.T) {
	d := testDaemon()
	q, _ := heldProcess(t, d)
	id := q.Identity()
	id.ControlTID = os.Getpid() // which is no thread of it
	p := process.New(id, api.StateRunning, d.log)
	d.programs[id.PID] = p
	d.conversationOver(p)
	if !p.Forgotten() || d.programs[id.PID] != nil {
		t.Error("it is still held")
	}
}

func arrive(t *testing.T, p *process.Program) {
	t.Helper()
	_, daemon := wiretest.Pair(t)
	if err := p.Attach(daemon, &wire.Hello{Flags: wire.HelloReadopt}, wiretest.Page(t)); err != nil {
		t.Fatal(err)
	}
}
