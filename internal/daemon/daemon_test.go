package daemon

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
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

// A daemon does not end under a request, however long that takes. Time is the test's own: on a busy machine a sleep
// could outlast the time after which the daemon ends.
func TestIdleWithRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Daemon{cfg: Config{Idle: time.Minute}, activity: make(chan struct{}, 1)}
		requests := func(n int) {
			d.mu.Lock()
			d.requests = n
			d.mu.Unlock()
		}
		for _, soon := range []bool{true, false} {
			if soon {
				requests(1)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				d.waitIdle(t.Context())
			}()
			time.Sleep(time.Second)
			requests(1) // it may come when the time is running already, and nobody says so
			time.Sleep(time.Hour)
			select {
			case <-done:
				t.Fatalf("it ended under a request (there from the beginning: %v)", soon)
			default:
			}
			requests(0)
			d.touch()
			time.Sleep(59 * time.Second)
			select {
			case <-done:
				t.Fatal("it ended before its time")
			default:
			}
			<-done
		}
	})
}
