package daemon

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Who finds the directory taken waits for a daemon that cannot be called any more, and not for one that can.
func TestOwn(t *testing.T) {
	dir := t.TempDir()
	open := func() *os.File {
		f, err := os.OpenFile(filepath.Join(dir, "daemon.pid"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	socket := filepath.Join(dir, APISocket)
	ending := open()
	if err := own(t.Context(), ending, socket); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	second := open()
	if err := own(t.Context(), second, socket); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("beside a daemon: %v", err)
	}
	l.Close()
	done := make(chan error, 1)
	go func() { done <- own(t.Context(), second, socket) }()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	ending.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A daemon does not end under a request, however long that takes.
func TestIdleWithRequest(t *testing.T) {
	d := &Daemon{cfg: Config{Idle: 10 * time.Millisecond}, activity: make(chan struct{}, 1)}
	d.requests = 1
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.waitIdle(t.Context())
	}()
	select {
	case <-done:
		t.Fatal("it ended under a request")
	case <-time.After(100 * time.Millisecond):
	}
	d.mu.Lock()
	d.requests = 0
	d.mu.Unlock()
	d.touch()
	<-done

	// The request comes when the time is running already, and nobody says so.
	d.cfg.Idle = 100 * time.Millisecond
	done = make(chan struct{})
	go func() {
		defer close(done)
		d.waitIdle(t.Context())
	}()
	time.Sleep(10 * time.Millisecond)
	d.mu.Lock()
	d.requests = 1
	d.mu.Unlock()
	select {
	case <-done:
		t.Fatal("it ended under a request that came later")
	case <-time.After(300 * time.Millisecond):
	}
	d.mu.Lock()
	d.requests = 0
	d.mu.Unlock()
	d.touch()
	<-done
}
