package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/criu"
	"holdfast/internal/process"
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

const lingers = "HOLDFAST_TEST_LINGERS" // the directory of a daemon that has been killed and is not gone yet

func TestMain(m *testing.M) {
	if dir := os.Getenv(lingers); dir != "" {
		os.Exit(linger(dir))
	}
	os.Exit(m.Run())
}

func init() {
	if os.Getenv(lingers) != "" {
		runtime.LockOSThread() // main is to run on the first thread, which ends before the others
	}
}

// linger is what a killed process is for a moment: its first thread is gone, others still have its files.
func linger(dir string) int {
	f, err := os.OpenFile(filepath.Join(dir, "daemon.pid"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return 1
	}
	if _, err := net.Listen("unix", filepath.Join(dir, APISocket)); err != nil {
		return 1
	}
	go func() {
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	return 1
}

// A daemon that was killed, and whose last thread has not ended, is waited for: it takes calls, but answers none.
func TestOwnAfterKill(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lingers+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	for process.Alive(cmd.Process.Pid, 0) { // until its first thread is gone
		runtime.Gosched()
	}
	lock, err := os.OpenFile(filepath.Join(dir, "daemon.pid"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if c, err := net.Dial("unix", filepath.Join(dir, APISocket)); err != nil {
		t.Fatalf("it takes no calls: %v", err)
	} else {
		c.Close()
	}
	owned := make(chan error, 1)
	go func() { owned <- own(t.Context(), lock, filepath.Join(dir, APISocket)) }()
	select {
	case err := <-owned:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	in.Close()
	if err := <-owned; err != nil {
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

// CRIU that was not found once is looked for again; found, it is not.
func TestUntilFound(t *testing.T) {
	asked := 0
	get := untilFound(func() (*criu.Tool, error) {
		if asked++; asked == 1 {
			return nil, unix.EMFILE
		}
		return new(criu.Tool), nil
	})
	if _, err := get(); err == nil {
		t.Error("found at once")
	}
	a, err := get()
	b, _ := get()
	if err != nil || a == nil || a != b || asked != 2 {
		t.Errorf("%v %v %v, asked %d times", a, b, err, asked)
	}
}
