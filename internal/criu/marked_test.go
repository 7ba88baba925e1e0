package criu

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Only what has the arguments of that very restore is ended.
func TestEndMarked(t *testing.T) {
	start := func(args ...string) (*exec.Cmd, <-chan error) {
		cmd := exec.Command("sh", append([]string{"-c", "echo ready; read line"}, args...)...)
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
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		return cmd, ended
	}
	_, ended := start("restore", "--work-dir", "/tmp/holdfast-criu-abc-1", "-v4")
	for _, args := range [][]string{
		{"restore", "--work-dir", "/tmp/holdfast-criu-abcd-1"},
		{"restore", "--work-dir", "/tmp/holdfast-criu-1"},
		{"/tmp/holdfast-criu-abc-1"},
		{"restore", "--work-dir", "/tmp/holdfast-criu-abc-1/log"},
	} {
		_, other := start(args...)
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
