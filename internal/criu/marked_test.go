package criu

import (
	"bufio"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// waiting starts a process with these arguments, as leader of its process group or not, and tells how it ended.
func waiting(t *testing.T, leader bool, args ...string) (ended <-chan error) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", "echo ready; read line"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: leader}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	if !bufio.NewScanner(out).Scan() {
		t.Fatal("it is not ready")
	}
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }()
	return end
}

// Of the dumps of a daemon that died, those are ended that cannot end by themselves: their program is gone, or CRIU.
func TestEndAbandoned(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	here, there := strconv.Itoa(os.Getpid()), strconv.Itoa(gone.Process.Pid)
	work := func(n string) []string { return []string{workOption, "/tmp/holdfast-criu-" + n} }
	dead := waiting(t, true, append(work("1"), dumpAction, treeOption, there)...)
	helper := waiting(t, false, append(work("2"), dumpAction, treeOption, here)...)
	others := []<-chan error{
		waiting(t, true, append(work("3"), dumpAction, treeOption, here)...),
		waiting(t, false, append(work("3"), dumpAction, treeOption, here)...), // of a CRIU that works
		waiting(t, true, append(work("4"), dumpAction, treeOption, there)...), // not one of those
	}
	tool := &Tool{log: slog.New(slog.DiscardHandler)}
	tool.endAbandoned([]string{"holdfast-criu-1", "holdfast-criu-2", "holdfast-criu-3"}, 4*time.Second)
	for i, ended := range []<-chan error{dead, helper} {
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Errorf("dump %d was not ended", i+1)
		}
	}
	for i, ended := range others {
		select {
		case err := <-ended:
			t.Errorf("%d was ended: %v", i, err)
		default:
		}
	}
}

// Only what has the arguments of that very restore is ended.
func TestEndMarked(t *testing.T) {
	ended := waiting(t, false, "restore", "--work-dir", "/tmp/holdfast-criu-abc-1", "-v4")
	for _, args := range [][]string{
		{"restore", "--work-dir", "/tmp/holdfast-criu-abcd-1"},
		{"restore", "--work-dir", "/tmp/holdfast-criu-1"},
		{"/tmp/holdfast-criu-abc-1"},
		{"restore", "--work-dir", "/tmp/holdfast-criu-abc-1/log"},
	} {
		other := waiting(t, false, args...)
		defer func() {
			select {
			case err := <-other:
				t.Errorf("%v was ended: %v", args, err)
			default:
			}
		}()
	}
	// Once it has let go of CRIU's memory it has no arguments any more, but CRIU's executable and log.
	dir := filepath.Join(t.TempDir(), workPrefix+"abc-2")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(shell)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "criu")
	if err := os.WriteFile(copied, data, 0o700); err != nil {
		t.Fatal(err)
	}
	fills := exec.Command(copied, "-c", "read line")
	reads := exec.Command(shell, "-c", "read line") // somebody who looks at the log
	var readsIn io.Closer
	for _, cmd := range []*exec.Cmd{fills, reads} {
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		readsIn = in
		cmd.ExtraFiles = []*os.File{log}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := EndMarked("abc", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := fills.Wait(); err == nil || fills.ProcessState.Exited() {
		t.Errorf("a process without arguments was not ended: %v", err)
	}
	readsIn.Close()
	if reads.Wait(); !reads.ProcessState.Exited() {
		t.Error("who has the log open was ended")
	}
	if err := EndMarked("", time.Second); err != nil { // a record of an older daemon
		t.Error(err)
	}
}
