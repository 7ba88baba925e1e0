package daemon

import (
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/daemon/api"
	"holdfast/internal/process"
	"holdfast/internal/wire"
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

// A program whose conversation has ended is gone when its process is, and not after some time.
func TestConversationOver(t *testing.T) {
	d := testDaemon()
	p, cmd := heldProcess(t, d)
	over := make(chan struct{})
	go func() {
		d.conversationOver(p)
		close(over)
	}()
	select {
	case <-over:
		t.Fatal("it lives, and was given up")
	case <-time.After(1500 * time.Millisecond): // longer than anybody waited for its end
	}
	cmd.Process.Kill() // nobody takes its status: it stays as a zombie
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
	over := make(chan struct{})
	go func() {
		d.conversationOver(p)
		close(over)
	}()
	select {
	case <-over:
		t.Fatal("it lives, and was given up")
	case <-time.After(20 * time.Millisecond):
	}
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
	path := filepath.Join(t.TempDir(), "s")
	l, err := wire.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := wire.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var u *net.UnixConn
	if u, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	page, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	m := wire.PageMagic
	if err == nil {
		_, err = unix.Pwrite(page, []byte{byte(m), byte(m >> 8), byte(m >> 16), byte(m >> 24)}, 0)
	}
	if err == nil {
		err = unix.Ftruncate(page, wire.PageSize)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(page), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	if err == nil {
		err = p.Attach(wire.NewConn(u), &wire.Hello{Flags: wire.HelloReadopt}, page)
	}
	if err != nil {
		t.Fatal(err)
	}
}
