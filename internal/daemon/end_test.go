package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"holdfast/internal/daemon/api"
	"holdfast/internal/keeper"
	"holdfast/internal/process"
)

// sleeper is a daemon that knows nobody, and a process that lives until it is killed.
func sleeper(t *testing.T) (*Daemon, *exec.Cmd, process.Identity) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start, err := process.StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{cfg: Config{Dir: t.TempDir()}, log: slog.New(slog.DiscardHandler),
		programs: map[int]*process.Program{}, kept: map[[16]byte]*keptMemory{}, activity: make(chan struct{}, 1)}
	return d, cmd, process.Identity{PID: cmd.Process.Pid, StartTime: start}
}

// A program whose conversation was broken off in the middle of an operation, and which never says anything again, is
// forgotten when it ends.
func TestEndWithoutConversation(t *testing.T) {
	d, cmd, id := sleeper(t)
	p := process.New(id, api.StateCheckpointing, d.log)
	if err := d.register(p); err != nil {
		t.Fatal(err)
	}
	go d.conversationOver(p)
	p.SetState(api.StateRunning) // the operation has failed
	if !d.has(p) {
		t.Fatal("it is forgotten while it lives")
	}
	cmd.Process.Kill()
	cmd.Wait()
	for end := time.Now().Add(30 * time.Second); d.has(p); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has ended and is still held")
		}
	}
}

// A program is restored whose last process has ended, which the daemon has not noticed yet: it waits for that. One that
// lives is in the way.
func TestRestoredAfterEnd(t *testing.T) {
	d, cmd, id := sleeper(t)
	old, comes := process.New(id, api.StateRunning, d.log), process.New(id, api.StateRestoring, d.log)
	if err := d.register(old); err != nil {
		t.Fatal(err)
	}
	if err := d.registerRestored(t.Context(), comes); err == nil {
		t.Fatal("registered beside one that lives")
	}
	cmd.Process.Kill()
	cmd.Wait()
	done := make(chan error)
	go func() { done <- d.registerRestored(t.Context(), comes) }()
	d.forget(old)
	if err := <-done; err != nil || !d.has(comes) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.registerRestored(ctx, old); err == nil {
		t.Error("registered beside another one although nobody waits any more")
	}
}

// A daemon that ends removes the socket of a keeper that was killed, and no other.
func TestDeadKeepersSocket(t *testing.T) {
	d := &Daemon{cfg: Config{Dir: t.TempDir()}}
	path := filepath.Join(d.cfg.Dir, keeper.Socket)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	d.removeDeadKeeper()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket of a keeper that lives: %v", err)
	}
	l.Close()
	d.removeDeadKeeper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket of a dead keeper is left: %v", err)
	}
}
