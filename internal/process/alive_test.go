package process

import (
	"os"
	"os/exec"
	"testing"

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
