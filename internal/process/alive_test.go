package process

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process is not taken for dead because there is no descriptor to look at it.
func TestAliveWithoutDescriptors(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	start, err := StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, scarce := os.Open("/proc/self/stat")
	we, gone := Alive(os.Getpid(), start), Alive(ended.Process.Pid, 0)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if scarce == nil {
		t.Fatal("descriptors were not scarce: the test shows nothing")
	}
	if !we {
		t.Error("we are taken for dead")
	}
	if gone {
		t.Error("a process that is not there is taken for alive")
	}
}

// A process has not ended because there is no descriptor to await its end with, and the end is noticed once there is.
func TestAwaitEndWithoutDescriptors(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	start, err := StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	id := Identity{PID: cmd.Process.Pid, StartTime: start}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	free, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	for _, spare := range []int{0, 1} { // one is too few: it has to be seen that it is still the same process
		ctx, cancel := context.WithCancel(t.Context())
		scarce := unix.Rlimit{Cur: uint64(free + spare), Max: old.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &scarce); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- AwaitEnd(ctx, id) }()
		select {
		case err = <-ended:
			t.Errorf("%d descriptors: it is said to have ended: %v", spare, err)
			ended <- err
		case <-time.After(300 * time.Millisecond):
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		if spare == 1 {
			in.Close()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		cancel()
	}
}
