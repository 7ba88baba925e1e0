package checkpoint

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/process"
	"holdfast/internal/wire"
	"holdfast/internal/wire/wiretest"
)

// saysHello makes a program of process pid, which says that it is process self.
func saysHello(t *testing.T, pid, self int) *process.Program {
	t.Helper()
	_, daemon := wiretest.Pair(t)
	start, err := process.StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	p := process.New(process.Identity{PID: pid, StartTime: start, ControlTID: pid}, "running",
		slog.New(slog.DiscardHandler))
	if err := p.Attach(daemon, &wire.Hello{PID: uint32(self)}, wiretest.Page(t)); err != nil {
		t.Fatal(err)
	}
	return p
}

// sleeper starts a process that does nothing.
func sleeper(t *testing.T, attr *syscall.SysProcAttr) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

// A program that is not where we are, or not who it was, is refused before it is frozen.
func TestWayBack(t *testing.T) {
	e := &Env{Log: slog.New(slog.DiscardHandler)}
	here := sleeper(t, nil)
	refused := func(p *process.Program, why string) {
		t.Helper()
		var r *Refused
		if err := e.checkWayBack([]*process.Program{p}); !errors.As(err, &r) || !strings.Contains(r.Reason, why) {
			t.Errorf("%v, want a refusal that says %q", err, why)
		}
	}
	if err := e.checkWayBack([]*process.Program{saysHello(t, here, here)}); err != nil {
		t.Error(err)
	}
	refused(saysHello(t, here, 7), "PID namespace of its own, in which it is process 7")
	if os.Getuid() != 0 {
		return
	}
	ns := sleeper(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID})
	refused(saysHello(t, ns, ns), "pid namespace of its own")
	user := sleeper(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER})
	refused(saysHello(t, user, user), "user namespace of its own")
	other := sleeper(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534}})
	refused(saysHello(t, other, other), "is user 65534 now")
	e.Socket = filepath.Join(t.TempDir(), "socket")
	if err := os.WriteFile(e.Socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mounts := sleeper(t, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS})
	if err := e.checkWayBack([]*process.Program{saysHello(t, mounts, mounts)}); err != nil {
		t.Errorf("a program that sees our socket: %v", err)
	}
}
